//! Passkeys: signing in with one, adding and removing them. What a device says comes from a script of the page (`passkeys.js`); what of
//! it counts is the service's to say.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::StatusCode;
use libreconstruct::ErrorKind;
use libreconstruct::service::{Browser, OwnPasskey, PASSKEY_ALGORITHMS, Said, Site};
use maud::{Markup, html};
use serde_json::json;

use super::form::Form;
use super::page::{Page, go_to};
use super::sign_in_page::{begin, need_private_line, page};
use super::{browser, session, words};
use crate::http::error::ApiError;
use crate::http::exchange::Exchange;
use crate::http::json as json_body;
use crate::http::rate_limit::Class;
use crate::http::response::Answer;

/// How long a browser waits for a device, milliseconds. What the device answers to holds for as long.
const TIMEOUT: u32 = 300_000;

fn need_site(exchange: &Exchange<'_>) -> Result<Site, ApiError> {
    browser::site(exchange).ok_or_else(|| {
        ApiError::new(
            StatusCode::NOT_FOUND,
            "not_found",
            "Browsers have passkeys for names of hosts only, over https. Use the address with the name of this server.",
        )
    })
}

/// What a device is asked to sign.
pub(super) async fn challenge(exchange: &Exchange<'_>) -> Answer {
    let site = need_site(exchange)?;
    let challenge = exchange.api.service().passkey_challenge()?;
    json_body::response(
        StatusCode::OK,
        &json!({"challenge": challenge, "rpId": site.host, "timeout": TIMEOUT, "userVerification": "required"}),
    )
}

/// Signs in.
pub(super) async fn sign_in(exchange: &mut Exchange<'_>, form: Form) -> Answer {
    need_private_line(exchange)?;
    let site = need_site(exchange)?;
    let (said, credential) = (said(&form)?, bytes(&form, "credential")?);
    let (signature, user_handle) = (bytes(&form, "signature")?, bytes(&form, "user_handle")?);
    let from = browser::address(exchange);
    let (agent, before) = (browser::agent(exchange), browser::token(exchange).map(str::to_owned));
    let answer = exchange.api.blocking(move |service| {
        let browser = Browser { agent: &agent, before: before.as_deref() };
        Ok(service.sign_in_with_passkey(&credential, &said, &signature, &user_handle, &site, from, &browser))
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
            page(exchange, status, "", Some(error.message()))
        }
    }
}

/// Says what a device needs to make a passkey, after the password.
pub(super) async fn begin_adding(exchange: &mut Exchange<'_>, form: Form) -> Answer {
    let signed_in = session::need(exchange, Class::Request).await?;
    let site = need_site(exchange)?;
    let from = browser::address(exchange);
    let asking = signed_in.clone();
    let asked = exchange
        .api
        .blocking(move |service| Ok(service.passkey_request(&asking, form.text("current"), from)))
        .await?;
    let request = asked.map_err(refusal)?;
    let have: Vec<String> =
        request.have.iter().map(|credential| URL_SAFE_NO_PAD.encode(credential)).collect();
    let kinds = PASSKEY_ALGORITHMS.map(|alg| json!({"type": "public-key", "alg": alg}));
    let name = &signed_in.user.name;
    json_body::response(
        StatusCode::OK,
        &json!({
            "challenge": request.challenge,
            "rp": {"id": site.host, "name": "reconstruct"},
            "user": {"id": URL_SAFE_NO_PAD.encode(&request.user_handle), "name": name, "displayName": name},
            "pubKeyCredParams": kinds,
            "excludeCredentials": have,
            "authenticatorSelection": {"residentKey": "required", "requireResidentKey": true, "userVerification": "required"},
            "attestation": "none",
            "timeout": TIMEOUT,
        }),
    )
}

/// Adds what a device has made.
pub(super) async fn add(exchange: &mut Exchange<'_>, form: Form) -> Answer {
    let signed_in = session::need(exchange, Class::Request).await?;
    let (site, said) = (need_site(exchange)?, said(&form)?);
    let added = exchange
        .api
        .blocking(move |service| Ok(service.add_passkey(&signed_in, form.text("name").trim(), &site, &said)))
        .await?;
    added.map_err(refusal)?;
    go_to(exchange.api, "/profile")
}

/// Why there is no passkey, in the service's own words.
fn refusal(error: libreconstruct::Error) -> ApiError {
    let status = match error.kind() {
        ErrorKind::InvalidArgument | ErrorKind::Unauthenticated => StatusCode::BAD_REQUEST,
        ErrorKind::PermissionDenied => StatusCode::FORBIDDEN,
        ErrorKind::Conflict => StatusCode::CONFLICT,
        ErrorKind::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
        _ => return error.into(),
    };
    let hint = error.hint_text().map(|hint| format!(" {hint}.")).unwrap_or_default();
    let text = format!("{}.{hint}", error.message().trim_end_matches('.'));
    ApiError::new(status, "passkey_refused", text)
}

/// Asks whether a passkey is to be removed.
pub(super) async fn ask_to_remove(exchange: &mut Exchange<'_>, id: &str) -> Answer {
    let signed_in = session::need(exchange, Class::Request).await?;
    let user = signed_in.user.user_id;
    let own = exchange.api.blocking(move |service| service.passkeys(user)).await?;
    let passkey = own.into_iter().find(|passkey| passkey.id == id).ok_or_else(|| {
        ApiError::new(
            StatusCode::NOT_FOUND,
            "not_found",
            "There is no such passkey, or it was removed already.",
        )
    })?;
    let prefix = exchange.api.prefix();
    let content = html! {
        h1 { "Remove the passkey " (passkey.name) "?" }
        p { "Nobody signs in with it from this moment on. Who is signed in stays so: the profile says where that is." }
        form.actions method="post" {
            button.danger { "Remove the passkey" }
            a href={ (prefix) "/profile" } { "Keep it" }
        }
    };
    let title = "Remove a passkey";
    Page { prefix, title, user: Some(&signed_in.user), path: "", script: None }
        .answer(StatusCode::OK, &content)
}

/// Removes a passkey of the user's. Somebody else's is answered as one that does not exist.
pub(super) async fn remove(exchange: &mut Exchange<'_>, id: &str) -> Answer {
    let user = session::need(exchange, Class::Request).await?.user.user_id;
    let id = id.to_owned();
    exchange.api.blocking(move |service| service.remove_passkey(user, &id)).await?;
    go_to(exchange.api, "/profile")
}

fn said(form: &Form) -> Result<Said, ApiError> {
    Ok(Said {
        client_data: bytes(form, "client_data")?,
        authenticator_data: bytes(form, "authenticator_data")?,
    })
}

/// The bytes of a field.
fn bytes(form: &Form, name: &str) -> Result<Vec<u8>, ApiError> {
    let wrong = |_| ApiError::bad_request("The browser did not send what its device has said.");
    URL_SAFE_NO_PAD.decode(form.text(name)).map_err(wrong)
}

/// What the profile says of them.
pub(super) fn section(exchange: &Exchange<'_>, passkeys: &[OwnPasskey], has_password: bool) -> Markup {
    let prefix = exchange.api.prefix();
    html! {
        section aria-labelledby="passkeys" {
            h2 #passkeys { "Passkeys" }
            p.help {
                "With a passkey you sign in by your device, which knows you by a finger, a face or a number. There is nothing to type, \
                 and nothing that somebody else could learn."
            }
            @if passkeys.is_empty() {
                p { "You have none." }
            }
            ul.plain {
                @for passkey in passkeys {
                    li {
                        strong { (passkey.name) }
                        span.help {
                            "for " (passkey.host) ", since " (words::time(passkey.created_at)) ", last used "
                            (passkey.last_used.map_or_else(|| "never".to_owned(), words::time))
                        }
                        a href={ (prefix) "/profile/passkeys/" (passkey.id) "/remove" } {
                            "Remove" span.unseen { " the passkey " (passkey.name) }
                        }
                    }
                }
            }
            @if browser::site(exchange).is_some() {
                noscript { p { "To add one takes scripts, which this browser does not run." } }
                form.card #add-passkey method="post" action={ (prefix) "/profile/passkeys" }
                    data-begin={ (prefix) "/profile/passkeys/begin" } hidden {
                    label for="passkey-name" { "Name of a new passkey" }
                    input #passkey-name name="name" required maxlength="255" placeholder="phone" autocomplete="off";
                    @if has_password {
                        label for="passkey-password" { "Your password" }
                        input #passkey-password type="password" autocomplete="current-password" required;
                    }
                    input type="hidden" name="client_data";
                    input type="hidden" name="authenticator_data";
                    p.problem role="alert" hidden {}
                    button { "Add a passkey" }
                }
            } @else {
                p.help { "Browsers make them for names of hosts only, over https: not at the address by which you are here." }
            }
        }
    }
}
