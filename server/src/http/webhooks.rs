//! Addresses that are told when a job of the caller ends (docs/rest.md, rules 93 to 98): list, add, show, remove; what they were
//! told, and telling it again.

use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{LINK, LOCATION};
use libreconstruct::job::{DeliveryId, UserId, WebhookId};
use serde_json::{Map, Value};

use super::body::ResponseBody;
use super::drain::or_drain;
use super::error::ApiError;
use super::exchange::Exchange;
use super::rate_limit::Class;
use super::response::{Answer, header_value, response};
use super::{json as json_body, route};
use crate::webhook::secret_text;

/// Deliveries of a page where the client does not say.
const PAGE: u32 = 100;
/// The most of a page.
const LARGEST_PAGE: u32 = 1000;

/// Those of the caller, the oldest first.
pub(crate) async fn list(exchange: &mut Exchange<'_>) -> Answer {
    let user = exchange.authorize(Class::Request).await?;
    let webhooks = exchange.api.quick(|service| service.webhooks(user)).await?;
    json_body::response(StatusCode::OK, &webhooks)
}

/// One more; its secret is shown now and never again (rule 93).
pub(crate) async fn add(exchange: &mut Exchange<'_>, body: Incoming) -> Answer {
    let (caller, body) = or_drain(exchange.caller(Class::Request).await, body)?;
    let body = exchange.body(&caller, json_body::read_object(&exchange.parts.headers, body)).await?;
    let (user, url) = (caller.user_id, url(&body)?);
    let settings = &exchange.api.config().webhooks;
    let (url, most) = (settings.check(&url)?, settings.max_per_user);
    let added = exchange.api.blocking(move |service| service.add_webhook(user, url.as_str(), most)).await?;
    let (webhook, key) = added;
    let mut shown = serde_json::to_value(&webhook).map_err(|e| ApiError::internal(e.to_string()))?;
    shown["secret"] = secret_text(&key).into();
    let mut response = json_body::response(StatusCode::CREATED, &shown)?;
    let location = format!("{}{}/webhooks/{}/", exchange.api.prefix(), route::API, webhook.webhook_id);
    response.headers_mut().insert(LOCATION, header_value(&location)?);
    Ok(response)
}

fn url(body: &Map<String, Value>) -> Result<String, ApiError> {
    match body.get("url") {
        None | Some(Value::Null) => Err(ApiError::bad_request("url is required")),
        Some(Value::String(url)) => Ok(url.clone()),
        Some(_) => Err(ApiError::bad_request("url must be a string")),
    }
}

/// One, without its secret.
pub(crate) async fn get(exchange: &mut Exchange<'_>, webhook_id: &str) -> Answer {
    let (user, webhook_id) = authorize(exchange, webhook_id).await?;
    let webhooks = exchange.api.quick(|service| service.webhooks(user)).await?;
    let webhook = webhooks.iter().find(|webhook| webhook.webhook_id == webhook_id).ok_or_else(no_webhook)?;
    json_body::response(StatusCode::OK, webhook)
}

/// It is told nothing more.
pub(crate) async fn remove(exchange: &mut Exchange<'_>, webhook_id: &str) -> Answer {
    let (user, webhook_id) = authorize(exchange, webhook_id).await?;
    exchange.api.blocking(move |service| service.remove_webhook(user, webhook_id)).await?;
    Ok(response(StatusCode::NO_CONTENT, ResponseBody::empty()))
}

/// What it was told and is to be told, the newest first, in pages (rule 98).
pub(crate) async fn deliveries(exchange: &mut Exchange<'_>, webhook_id: &str) -> Answer {
    let (user, webhook_id) = authorize(exchange, webhook_id).await?;
    let (limit, before) = page(exchange.parts.uri.query().unwrap_or(""))?;
    // One more than asked for says whether there is another page.
    let read = move |service: &libreconstruct::service::Service| {
        service.deliveries(user, webhook_id, before, limit.saturating_add(1))
    };
    let mut deliveries = exchange.api.blocking(read).await?;
    let is_last = deliveries.len() <= limit as usize;
    deliveries.truncate(limit as usize);
    let mut response = json_body::response(StatusCode::OK, &deliveries)?;
    if let (false, Some(last)) = (is_last, deliveries.last()) {
        let base = exchange.api.base(&exchange.connection, exchange.parts);
        let path = format!("{}/webhooks/{webhook_id}/deliveries/", route::API);
        let link = format!("<{base}{path}?limit={limit}&cursor={}>; rel=\"next\"", last.place);
        response.headers_mut().insert(LINK, header_value(&link)?);
    }
    Ok(response)
}

/// How many, and before which place. Parameters of other names are ignored.
fn page(query: &str) -> Result<(u32, Option<u64>), ApiError> {
    let (mut limit, mut before) = (PAGE, None);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "limit" => {
                let number = value.parse().ok().filter(|limit| (1..=LARGEST_PAGE).contains(limit));
                let wrong = || ApiError::bad_request(format!("limit must be 1 to {LARGEST_PAGE}"));
                limit = number.ok_or_else(wrong)?;
            }
            "cursor" => {
                // As far as databases count.
                let place = value.parse().ok().filter(|place| i64::try_from(*place).is_ok());
                let wrong = || ApiError::bad_request("cursor must be that of a Link header");
                before = Some(place.ok_or_else(wrong)?);
            }
            _ => {}
        }
    }
    Ok((limit, before))
}

/// Tells it once more (rule 98).
pub(crate) async fn replay(exchange: &mut Exchange<'_>, webhook_id: &str, delivery_id: &str) -> Answer {
    let user = exchange.authorize(Class::Request).await?;
    let no_delivery = || ApiError::new(StatusCode::NOT_FOUND, "not_found", "Delivery not found");
    let ids = webhook_id.parse::<WebhookId>().ok().zip(delivery_id.parse::<DeliveryId>().ok());
    let (webhook_id, delivery_id) = ids.ok_or_else(no_delivery)?;
    let replay = move |service: &libreconstruct::service::Service| {
        service.replay_delivery(user, webhook_id, delivery_id)
    };
    json_body::response(StatusCode::OK, &exchange.api.blocking(replay).await?)
}

/// Who asks, and for which webhook. What is no id names none.
async fn authorize(exchange: &mut Exchange<'_>, webhook_id: &str) -> Result<(UserId, WebhookId), ApiError> {
    let user = exchange.authorize(Class::Request).await?;
    Ok((user, webhook_id.parse().map_err(|_| no_webhook())?))
}

fn no_webhook() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "not_found", "Webhook not found")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_98_pages_are_read_or_refused() {
        assert_eq!(page("").unwrap(), (PAGE, None));
        assert_eq!(page("limit=5&cursor=17&other=1").unwrap(), (5, Some(17)));
        for bad in ["limit=0", "limit=1001", "limit=x", "cursor=", "cursor=-1", "cursor=9223372036854775808"]
        {
            assert_eq!(page(bad).unwrap_err().status, StatusCode::BAD_REQUEST, "{bad}");
        }
    }
}
