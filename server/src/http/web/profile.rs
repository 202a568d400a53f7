//! What a user is and has: keys, limits, sessions, the password, passkeys.

use hyper::StatusCode;
use libreconstruct::database::Usage;
use libreconstruct::job::{ApiKey, ApiKeySecret, Limits, Tier, User};
use libreconstruct::service::{OpenSession, OwnPasskey, SignedIn};
use libreconstruct::{Error, ErrorKind};
use maud::{Markup, html};

use super::form::Form;
use super::page::{Page, go_to};
use super::sign_in::{password_fields, problem};
use super::{browser, passkeys, session, words};
use crate::http::error::ApiError;
use crate::http::exchange::Exchange;
use crate::http::rate_limit::{Class, RateLimits};
use crate::http::response::Answer;

/// What the page says besides what there is.
#[derive(Default)]
struct News {
    /// A key that was just made. It is shown now and never again.
    key: Option<(ApiKey, ApiKeySecret)>,
    /// Why none was made.
    key_problem: Option<Error>,
    password_problem: Option<Error>,
    password_changed: bool,
}

/// What is known of a user.
struct Profile {
    keys: Vec<ApiKey>,
    usage: Usage,
    sessions: Vec<OpenSession>,
    passkeys: Vec<OwnPasskey>,
    has_password: bool,
}

/// The page.
pub(super) async fn get(exchange: &mut Exchange<'_>) -> Answer {
    let signed_in = session::need(exchange, Class::Request).await?;
    show(exchange, signed_in, StatusCode::OK, News::default()).await
}

/// Makes a key (rule 79 of docs/rest.md) and shows it, this once: it is in no other answer, and no browser keeps this one.
pub(super) async fn create_key(exchange: &mut Exchange<'_>, form: Form) -> Answer {
    let signed_in = session::need(exchange, Class::Request).await?;
    let user = signed_in.user.user_id;
    let made = exchange.api.blocking(move |service| Ok(service.create_key(user, form.text("name").trim())));
    match made.await? {
        Ok(key) => {
            let news = News { key: Some(key), ..News::default() };
            show(exchange, signed_in, StatusCode::CREATED, news).await
        }
        Err(error) => {
            let status = match error.kind() {
                ErrorKind::InvalidArgument => StatusCode::BAD_REQUEST,
                ErrorKind::PermissionDenied => StatusCode::FORBIDDEN,
                // As many as a user may have are there.
                ErrorKind::Conflict => StatusCode::CONFLICT,
                _ => return Err(error.into()),
            };
            let news = News { key_problem: Some(error), ..News::default() };
            show(exchange, signed_in, status, news).await
        }
    }
}

/// Asks whether a key is to be revoked.
pub(super) async fn ask_to_revoke(exchange: &mut Exchange<'_>, key: &str) -> Answer {
    let signed_in = session::need(exchange, Class::Request).await?;
    let key = own_key(exchange, &signed_in, key).await?;
    let prefix = exchange.api.prefix();
    let content = html! {
        h1 { "Revoke the key " (key.name) "?" }
        p { "Programs that use " code { (key.prefix) "…" } " are refused from this moment on. It cannot be taken back." }
        form.actions method="post" {
            button.danger { "Revoke the key" }
            a href={ (prefix) "/profile" } { "Keep it" }
        }
    };
    let title = "Revoke a key";
    Page { prefix, title, user: Some(&signed_in.user), path: "", script: None }
        .answer(StatusCode::OK, &content)
}

/// Revokes a key.
pub(super) async fn revoke(exchange: &mut Exchange<'_>, key: &str) -> Answer {
    let signed_in = session::need(exchange, Class::Request).await?;
    let key = own_key(exchange, &signed_in, key).await?;
    let user = signed_in.user.user_id;
    exchange.api.blocking(move |service| service.revoke_key(user, &key.prefix)).await?;
    go_to(exchange.api, "/profile")
}

/// Ends a session of the user's. Somebody else's is answered as one that does not exist.
pub(super) async fn end_session(exchange: &mut Exchange<'_>, id: &str) -> Answer {
    let user = session::need(exchange, Class::Request).await?.user.user_id;
    let id = id.to_owned();
    exchange.api.blocking(move |service| service.end_session(user, &id)).await?;
    go_to(exchange.api, "/profile")
}

/// Changes the password.
pub(super) async fn change_password(exchange: &mut Exchange<'_>, form: Form) -> Answer {
    let signed_in = session::need(exchange, Class::Request).await?;
    let from = browser::address(exchange);
    let asking = signed_in.clone();
    let changed = exchange.api.blocking(move |service| {
        if form.text("password") != form.text("again") {
            return Ok(Err(Error::argument("the two new passwords are not the same")));
        }
        Ok(service.change_password(&asking, form.text("current"), form.text("password"), from))
    });
    let (status, news) = match changed.await? {
        Ok(()) => (StatusCode::OK, News { password_changed: true, ..News::default() }),
        Err(error) => {
            let status = match error.kind() {
                ErrorKind::InvalidArgument => StatusCode::BAD_REQUEST,
                ErrorKind::PermissionDenied => StatusCode::FORBIDDEN,
                ErrorKind::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
                _ => return Err(error.into()),
            };
            (status, News { password_problem: Some(error), ..News::default() })
        }
    };
    show(exchange, signed_in, status, news).await
}

/// A key of the user that still works. Somebody else's is answered as one that does not exist.
async fn own_key(exchange: &Exchange<'_>, signed_in: &SignedIn, key: &str) -> Result<ApiKey, ApiError> {
    let user = signed_in.user.user_id;
    let keys = exchange.api.blocking(move |service| service.keys(user)).await?;
    keys.into_iter().find(|own| own.prefix == key && own.revoked_at.is_none()).ok_or_else(|| {
        ApiError::new(StatusCode::NOT_FOUND, "not_found", "There is no such key, or it was revoked already.")
    })
}

async fn show(exchange: &Exchange<'_>, signed_in: SignedIn, status: StatusCode, news: News) -> Answer {
    let asking = signed_in.clone();
    let profile = exchange.api.blocking(move |service| {
        let user = asking.user.user_id;
        Ok(Profile {
            keys: service.keys(user)?,
            usage: service.usage(user)?,
            sessions: service.sessions(&asking)?,
            passkeys: service.passkeys(user)?,
            has_password: service.has_password(user)?,
        })
    });
    let profile = profile.await?;
    let (prefix, user) = (exchange.api.prefix(), &signed_in.user);
    let content = html! {
        h1 { "Profile" }
        (keys(prefix, user, &profile, &news))
        (limits(&profile.usage, exchange.api.service().limits(), &exchange.api.config().rate_limits))
        (sessions(prefix, &profile.sessions))
        (password(prefix, &profile, &news))
        (passkeys::section(exchange, &profile.passkeys, profile.has_password))
    };
    let page =
        Page { prefix, title: "Profile", user: Some(user), path: "/profile", script: Some("profile.js") };
    page.answer(status, &content)
}

fn keys(prefix: &str, user: &User, profile: &Profile, news: &News) -> Markup {
    let working = profile.keys.iter().filter(|key| key.revoked_at.is_none());
    let revoked = profile.keys.len() - working.clone().count();
    html! {
        section aria-labelledby="keys" {
            h2 #keys { "API keys" }
            @if let Some((key, secret)) = &news.key {
                div.news role="status" {
                    p { "This is the key " strong { (key.name) } ". It is shown now and never again: keep it like a password." }
                    div.copy {
                        code #new-key { (secret.reveal()) }
                        button type="button" data-copy="new-key" hidden { "Copy" }
                    }
                }
            }
            @if profile.keys.len() > revoked {
                div.wide role="region" aria-label="Table of your keys" tabindex="0" {
                    table {
                        thead { tr {
                            th scope="col" { "Name" } th scope="col" { "Begins with" } th scope="col" { "Made" }
                            th scope="col" { "Last used" } th scope="col" { span.unseen { "What to do" } }
                        } }
                        tbody {
                            @for key in working {
                                tr {
                                    th scope="row" { (key.name) }
                                    td { code { (key.prefix) } }
                                    td { (words::time(key.created_at)) }
                                    td { (key.last_used.map_or_else(|| "never".to_owned(), words::time)) }
                                    td { a href={ (prefix) "/profile/keys/" (key.prefix) "/revoke" } {
                                        "Revoke" span.unseen { " the key " (key.name) }
                                    } }
                                }
                            }
                        }
                    }
                }
            } @else {
                p { "You have no key." }
            }
            @if revoked > 0 { p.help { (revoked) " revoked" } }
            (problem(news.key_problem.as_ref()))
            @if user.tier == Tier::Enterprise {
                form.row method="post" action={ (prefix) "/profile/keys" } {
                    label for="key-name" { "Name of a new key" }
                    input #key-name name="name" required maxlength="255" placeholder="laptop" autocomplete="off";
                    button { "Make a key" }
                }
            } @else {
                p.help { "Keys are for users of the Enterprise tier. Yours is " (user.tier.as_str()) "." }
            }
        }
    }
}

fn limits(usage: &Usage, limits: &Limits, rates: &RateLimits) -> Markup {
    let rate = |count: u32, per: &str| match count {
        0 => "no limit".to_owned(),
        count => format!("{count} in {per}"),
    };
    html! {
        section aria-labelledby="limits" {
            h2 #limits { "Usage" }
            dl {
                dt { "Waiting jobs" }
                dd { (usage.waiting_jobs) " of " (limits.max_queued_jobs) }
                dt { "Stored" }
                dd {
                    (words::bytes(usage.stored_bytes))
                    @if let Some(most) = limits.max_stored_bytes { " of " (words::bytes(most)) }
                }
                dt { "Largest video" }
                dd { (words::bytes(limits.max_upload_bytes)) }
                dt { "Requests" }
                dd { (rate(rates.requests_per_minute, "a minute")) }
                dt { "Submissions" }
                dd { (rate(rates.submits_per_hour, "an hour")) }
            }
        }
    }
}

fn sessions(prefix: &str, sessions: &[OpenSession]) -> Markup {
    html! {
        section aria-labelledby="sessions" {
            h2 #sessions { "Where you are signed in" }
            ul.plain {
                @for session in sessions {
                    li title=(session.agent) {
                        strong { (words::browser(&session.agent)) }
                        @if session.is_this { " (this browser)" }
                        span.help {
                            "since " (words::time(session.created_at)) ", last used " (words::time(session.seen_at))
                        }
                        @if !session.is_this {
                            form method="post" action={ (prefix) "/profile/sessions/" (session.id) "/end" } {
                                button { "Sign out there" span.unseen { ": " (words::browser(&session.agent)) } }
                            }
                        }
                    }
                }
            }
            form method="post" action={ (prefix) "/sign-out-everywhere" } {
                button { "Sign out everywhere" }
            }
        }
    }
}

fn password(prefix: &str, profile: &Profile, news: &News) -> Markup {
    html! {
        section aria-labelledby="change-password" {
            h2 #change-password { "Password" }
            @if news.password_changed {
                p.news role="status" { "The password is changed. You are signed out everywhere else." }
            }
            @if profile.has_password {
                (problem(news.password_problem.as_ref()))
                form.card method="post" action={ (prefix) "/profile/password" } {
                    label for="current" { "Current password" }
                    input #current type="password" name="current" autocomplete="current-password" required;
                    (password_fields())
                    button { "Change the password" }
                }
            } @else {
                p { "You have none: a link has signed you in. Who runs this server can invite you to choose one." }
            }
        }
    }
}
