//! The page on which one signs in, and what all ways to do it have in common.

use hyper::StatusCode;
use hyper::header::SET_COOKIE;
use libreconstruct::service::AccessToken;
use maud::{Markup, html};

use super::browser;
use super::page::{Page, go_to};
use crate::http::error::ApiError;
use crate::http::exchange::Exchange;
use crate::http::response::Answer;

/// The page on which one signs in, in each of the ways that there are here.
pub(super) fn page(exchange: &Exchange<'_>, status: StatusCode, name: &str, problem: Option<&str>) -> Answer {
    let is_private = browser::has_private_line(exchange);
    let content = html! {
        h1 { "Sign in" }
        @if is_private {
            @if let Some(problem) = problem { p.problem role="alert" { (problem) } }
            form.card method="post" action={ (exchange.api.prefix()) "/sign-in" } {
                label for="name" { "Name" }
                input #name name="name" autocomplete="username" autocapitalize="none" spellcheck="false" required
                    maxlength="255" value=(name) autofocus[problem.is_none()];
                label for="password" { "Password" }
                input #password type="password" name="password" autocomplete="current-password" required
                    autofocus[problem.is_some()];
                button.main { "Sign in" }
            }
            (passkey_button(exchange))
            (company_link(exchange))
            p.help {
                "You have no password yet, or have forgotten it? Ask who runs this server for an invitation."
            }
        } @else {
            (not_private())
        }
    };
    Page { script: Some("passkeys.js"), ..new_page(exchange, "Sign in") }.answer(status, &content)
}

pub(super) fn new_page<'a>(exchange: &Exchange<'a>, title: &'a str) -> Page<'a> {
    Page { prefix: exchange.api.prefix(), title, user: None, path: "", script: None }
}

pub(super) fn not_private() -> Markup {
    html! {
        p.problem {
            "Everybody between you and this server could read your password here: the address begins with http. Use its \
             address with https."
        }
        p.help {
            "For who runs this server: give it a certificate (tls_certificate), or put it behind a proxy that does TLS and \
             set public_url."
        }
    }
}

/// Passwords, and what takes their place, go over lines that nobody else reads.
///
/// # Errors
/// If this is none.
pub(super) fn need_private_line(exchange: &Exchange<'_>) -> Result<(), ApiError> {
    if browser::has_private_line(exchange) {
        return Ok(());
    }
    Err(ApiError::forbidden(
        "not_private",
        "Passwords are not taken over plain http. Use the address with https.",
    ))
}

/// The button with which one signs in. It is shown by the script, if the browser knows passkeys.
fn passkey_button(exchange: &Exchange<'_>) -> Markup {
    let prefix = exchange.api.prefix();
    html! {
        @if browser::site(exchange).is_some() {
            form.card #use-passkey method="post" action={ (prefix) "/sign-in/passkey" } hidden {
                @for name in ["credential", "client_data", "authenticator_data", "signature", "user_handle"] {
                    input type="hidden" name=(name);
                }
                p.problem role="alert" hidden {}
                button { "Sign in with a passkey" }
            }
        }
    }
}

/// The way there, on the page where one signs in.
fn company_link(exchange: &Exchange<'_>) -> Markup {
    html! {
        @if let Some(provider) = &exchange.api.provider {
            p { a href={ (exchange.api.prefix()) "/sign-in/company" } { "Sign in with " (provider.name()) } }
        }
    }
}

/// The browser has the session from now on.
pub(super) fn begin(exchange: &Exchange<'_>, token: &AccessToken) -> Answer {
    let mut answer = go_to(exchange.api, "/scenes")?;
    answer.headers_mut().insert(SET_COOKIE, browser::keep(token.reveal())?);
    Ok(answer)
}
