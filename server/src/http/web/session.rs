//! Who asks for a page: the session of its cookie, and nothing else. A key opens no page.

use hyper::StatusCode;
use hyper::header::LOCATION;
use libreconstruct::service::SignedIn;

use super::browser;
use crate::http::error::ApiError;
use crate::http::exchange::Exchange;
use crate::http::rate_limit::Class;
use crate::http::response::header_value;

/// Who is signed in, if anybody is.
pub(super) async fn find(exchange: &mut Exchange<'_>) -> Result<Option<SignedIn>, ApiError> {
    let Some(token) = browser::token(exchange).map(str::to_owned) else { return Ok(None) };
    let signed_in = exchange.api.blocking(move |service| service.session(&token)).await?;
    exchange.facts.user = signed_in.as_ref().map(|signed_in| signed_in.user.user_id);
    Ok(signed_in)
}

/// Who is signed in, after the rate limit has let them through; everybody else is led to the page where one signs in. A request
/// counts as one with a key does: it is the user's.
pub(super) async fn need(exchange: &mut Exchange<'_>, class: Class) -> Result<SignedIn, ApiError> {
    let Some(signed_in) = find(exchange).await? else {
        let to = header_value(&format!("{}/sign-in", exchange.api.prefix()))?;
        let error = ApiError::new(StatusCode::SEE_OTHER, "signed_out", "Sign in first.");
        return Err(error.with_header(LOCATION, to));
    };
    exchange.api.limiters.check(class, &signed_in.user.user_id, exchange.api.service())?;
    Ok(signed_in)
}
