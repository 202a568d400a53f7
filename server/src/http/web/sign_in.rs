//! Signing in and out, and the page to which an invitation leads.

use hyper::StatusCode;
use hyper::header::SET_COOKIE;
use libreconstruct::service::Browser;
use libreconstruct::{Error, ErrorKind};
use maud::{Markup, html};

use super::form::Form;
use super::page::go_to;
use super::sign_in_page::{begin, need_private_line, new_page, not_private, page};
use super::{browser, session};
use crate::http::exchange::Exchange;
use crate::http::rate_limit::Class;
use crate::http::response::Answer;

/// Leads to the first page for who asks.
pub(super) async fn home(exchange: &mut Exchange<'_>) -> Answer {
    let path = if session::find(exchange).await?.is_some() { "/scenes" } else { "/sign-in" };
    go_to(exchange.api, path)
}

/// The form. Who is signed in has no need of it.
pub(super) async fn form(exchange: &mut Exchange<'_>) -> Answer {
    if session::find(exchange).await?.is_some() {
        return go_to(exchange.api, "/scenes");
    }
    page(exchange, StatusCode::OK, "", None)
}

/// Signs in.
pub(super) async fn sign_in(exchange: &mut Exchange<'_>, form: Form) -> Answer {
    need_private_line(exchange)?;
    let from = browser::address(exchange);
    let (agent, before) = (browser::agent(exchange), browser::token(exchange).map(str::to_owned));
    let name = form.text("name").to_owned();
    let answer = exchange.api.blocking(move |service| {
        let browser = Browser { agent: &agent, before: before.as_deref() };
        // Its errors are for the page, not for clients of the interface.
        Ok(service.sign_in(form.text("name"), form.text("password"), from, &browser))
    });
    match answer.await? {
        Ok((token, user)) => {
            exchange.facts.user = Some(user.user_id);
            begin(exchange, &token)
        }
        Err(error) => {
            let status = match error.kind() {
                ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
                ErrorKind::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
                _ => return Err(error.into()),
            };
            // How long one has to wait is in the text.
            page(exchange, status, &name, Some(error.message()))
        }
    }
}

/// Ends the session of this browser. One that has ended already is no reason for an error.
pub(super) async fn sign_out(exchange: &mut Exchange<'_>) -> Answer {
    session::find(exchange).await?;
    if let Some(token) = browser::token(exchange).map(str::to_owned) {
        exchange.api.blocking(move |service| service.sign_out(&token)).await?;
    }
    leave(exchange)
}

/// Ends all sessions of the user.
pub(super) async fn sign_out_everywhere(exchange: &mut Exchange<'_>) -> Answer {
    let user = session::need(exchange, Class::Request).await?.user.user_id;
    exchange.api.blocking(move |service| service.sign_out_everywhere(user)).await?;
    leave(exchange)
}

/// The page to which a link leads. To look at it uses nothing up: programs that look at links in mails do that.
pub(super) async fn invitation(exchange: &mut Exchange<'_>, token: &str) -> Answer {
    invitation_page(exchange, token, StatusCode::OK, None).await
}

/// Uses a link up.
pub(super) async fn accept(exchange: &mut Exchange<'_>, token: &str, form: Form) -> Answer {
    need_private_line(exchange)?;
    if form.text("password") != form.text("again") {
        let error = Error::argument("the two passwords are not the same");
        return invitation_page(exchange, token, StatusCode::BAD_REQUEST, Some(error)).await;
    }
    let (agent, before) = (browser::agent(exchange), browser::token(exchange).map(str::to_owned));
    let owned = token.to_owned();
    let answer = exchange.api.blocking(move |service| {
        let browser = Browser { agent: &agent, before: before.as_deref() };
        Ok(service.accept_invitation(&owned, Some(form.text("password")), &browser))
    });
    match answer.await? {
        Ok((token, user)) => {
            exchange.facts.user = Some(user.user_id);
            begin(exchange, &token)
        }
        Err(error) if error.kind() == ErrorKind::InvalidArgument => {
            invitation_page(exchange, token, StatusCode::BAD_REQUEST, Some(error)).await
        }
        Err(error) => Err(error.into()),
    }
}

async fn invitation_page(
    exchange: &mut Exchange<'_>,
    token: &str,
    status: StatusCode,
    error: Option<Error>,
) -> Answer {
    let owned = token.to_owned();
    let invitation = exchange.api.blocking(move |service| service.invitation(&owned)).await?;
    let is_private = browser::has_private_line(exchange);
    let name = &invitation.user.name;
    let content = html! {
        h1 { "Welcome, " (name) }
        @if !is_private {
            (not_private())
        } @else if invitation.sets_password {
            p { "Choose a password for " strong { (name) } ". With it you sign in from now on." }
            (problem(error.as_ref()))
            form.card method="post" {
                // So that password managers know whose it is.
                input type="hidden" name="name" autocomplete="username" value=(name);
                (password_fields())
                button.main { "Set the password and sign in" }
            }
        } @else {
            p { "This link signs you in as " strong { (name) } ". It can be used once." }
            form.card method="post" { button.main { "Sign in as " (name) } }
        }
    };
    new_page(exchange, "Welcome").answer(status, &content)
}

/// Two fields for a new password.
pub(super) fn password_fields() -> Markup {
    html! {
        label for="password" { "New password" }
        input #password type="password" name="password" autocomplete="new-password" required
            minlength="8" maxlength="128" aria-describedby="password-help";
        p.help #password-help { "8 to 128 characters. A sentence that only you would say is good." }
        label for="again" { "The same again" }
        input #again type="password" name="again" autocomplete="new-password" required maxlength="128";
    }
}

/// What was wrong with what was sent, told at once by programs that read pages aloud.
pub(super) fn problem(error: Option<&Error>) -> Markup {
    html! {
        @if let Some(error) = error {
            p.problem role="alert" {
                (error.message()) "."
                @if let Some(hint) = error.hint_text() { " " (hint) "." }
            }
        }
    }
}

fn leave(exchange: &Exchange<'_>) -> Answer {
    let mut answer = go_to(exchange.api, "/sign-in")?;
    answer.headers_mut().insert(SET_COOKIE, browser::forget());
    Ok(answer)
}
