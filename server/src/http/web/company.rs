//! Signing in by another service that knows who somebody is, if the operator has named one: the way there, and the way back.
//!
//! Links lead there, no forms: what a page may send its forms to is this server alone. On the way back the browser comes from elsewhere; that
//! it went there from here is shown by a cookie that lasts for the way.

use hyper::StatusCode;
use hyper::header::SET_COOKIE;
use libreconstruct::ErrorKind;
use libreconstruct::service::Browser;

use super::browser;
use super::sign_in_page::{begin, need_private_line, page};
use crate::http::body::ResponseBody;
use crate::http::error::ApiError;
use crate::http::exchange::Exchange;
use crate::http::response::{Answer, header_value, response};
use crate::oidc::{Provider, Refusal};

/// The path to which the other service sends browsers back.
const BACK: &str = "/sign-in/company/return";

/// Leads the browser there.
pub(super) async fn leave(exchange: &Exchange<'_>) -> Answer {
    let provider = provider(exchange)?;
    need_private_line(exchange)?;
    let ticket = exchange.api.service().leave_to_sign_in()?;
    let way = match provider.way_there(&ticket, &back(exchange)).await {
        Ok(way) => way,
        Err(refusal) => return refused(exchange, &refusal),
    };
    let mut answer = response(StatusCode::SEE_OTHER, ResponseBody::empty());
    answer.headers_mut().insert(hyper::header::LOCATION, header_value(&way)?);
    answer.headers_mut().insert(SET_COOKIE, browser::keep_for_the_way(ticket.token.reveal())?);
    Ok(answer)
}

/// Signs in who comes back.
pub(super) async fn come_back(exchange: &mut Exchange<'_>) -> Answer {
    let provider = provider(exchange)?;
    need_private_line(exchange)?;
    let query = exchange.parts.uri.query().unwrap_or("");
    let given = |name: &str| {
        let found = form_urlencoded::parse(query.as_bytes()).find(|(own, _)| own == name);
        found.map(|(_, value)| value.into_owned()).unwrap_or_default()
    };
    let (code, state) = (given("code"), given("state"));
    let from = browser::address(exchange);
    let kept = browser::kept_for_the_way(exchange).unwrap_or_default().to_owned();
    let ticket =
        exchange.api.blocking(move |service| Ok(service.return_to_sign_in(&kept, &state, from))).await?;
    let ticket = match ticket {
        Ok(ticket) => ticket,
        Err(error) => return not_signed_in(exchange, error),
    };
    if code.is_empty() {
        // Somebody has changed their mind there, or may not sign in there.
        return page(exchange, StatusCode::UNAUTHORIZED, "", Some("You were not signed in there."));
    }
    let visitor = match provider.who(&code, &ticket, &back(exchange)).await {
        Ok(visitor) => visitor,
        Err(refusal) => return refused(exchange, &refusal),
    };
    let (agent, before) = (browser::agent(exchange), browser::token(exchange).map(str::to_owned));
    let answer = exchange.api.blocking(move |service| {
        let browser = Browser { agent: &agent, before: before.as_deref() };
        let (identity, newcomer) = (&visitor.identity, visitor.newcomer.as_ref());
        Ok(service.sign_in_by_identity(identity, &ticket, newcomer, from, &browser))
    });
    match answer.await? {
        Ok((token, user)) => {
            exchange.facts.user = Some(user.user_id);
            let mut answer = begin(exchange, &token)?;
            answer.headers_mut().append(SET_COOKIE, browser::forget_the_way());
            Ok(answer)
        }
        Err(error) => not_signed_in(exchange, error),
    }
}

fn provider<'a>(exchange: &Exchange<'a>) -> Result<&'a Provider, ApiError> {
    exchange.api.provider.as_ref().ok_or_else(ApiError::no_route)
}

/// The address to which it sends browsers back: the operator has named it there.
fn back(exchange: &Exchange<'_>) -> String {
    format!("{}{BACK}", exchange.api.base(&exchange.connection, exchange.parts))
}

fn refused(exchange: &Exchange<'_>, refusal: &Refusal) -> Answer {
    let (status, text) = match refusal {
        Refusal::Unreachable(why) => {
            tracing::error!("nobody can sign in by oidc.issuer: {why}");
            (
                StatusCode::BAD_GATEWAY,
                "The service by which you sign in does not answer as it should. Try again later.",
            )
        }
        Refusal::NotBelieved(why) => {
            tracing::warn!("an answer of oidc.issuer is not believed: {why}");
            (
                StatusCode::UNAUTHORIZED,
                "What the service by which you sign in has said does not hold. Try again.",
            )
        }
        Refusal::NotAdmitted => (
            StatusCode::FORBIDDEN,
            "Your account is not among those that may sign in here. Ask who runs this server.",
        ),
    };
    page(exchange, status, "", Some(text))
}

fn not_signed_in(exchange: &Exchange<'_>, error: libreconstruct::Error) -> Answer {
    let status = match error.kind() {
        ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorKind::PermissionDenied | ErrorKind::InvalidArgument => StatusCode::FORBIDDEN,
        ErrorKind::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
        _ => return Err(error.into()),
    };
    page(exchange, status, "", Some(error.message()))
}
