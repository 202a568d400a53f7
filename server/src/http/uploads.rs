//! Addresses for uploads (docs/rest.md, §4.7).

use hyper::StatusCode;
use hyper::body::Incoming;
use libreconstruct::service::UploadTicket;
use libreconstruct::storage::UploadAddress;
use serde_json::{Map, Value, json};

use super::api::Api;
use super::drain::or_drain;
use super::error::ApiError;
use super::exchange::Exchange;
use super::json as json_body;
use super::rate_limit::Class;
use super::response::Answer;
use super::route;
use super::signature::{Access, sign};

/// A new address, and the name to submit the video under.
pub(crate) async fn generate(exchange: &mut Exchange<'_>, body: Incoming) -> Answer {
    let (caller, body) = or_drain(exchange.caller(Class::Upload).await, body)?;
    let body = exchange.body(&caller, json_body::read_object(&exchange.parts.headers, body)).await?;
    let (user, extension) = (caller.user_id, file_extension(&body)?);
    // Some storages are asked for what signs their addresses.
    let ticket = exchange.api.stored(move |service| service.create_upload(user, &extension)).await?;
    let name = ticket.blob_name.to_string();
    // Where the storage has an address of its own, no server sees the bytes (rule 83).
    if let Some(address) = ticket.address {
        return json_body::response(StatusCode::OK, &at_the_storage(&address, &name));
    }
    let base = exchange.api.base(&exchange.connection, exchange.parts);
    // Exactly these two fields, with status 200 (rule 25).
    let body = json!({ "url": format!("{base}{}", own_path(exchange.api, &ticket)), "blob_name": name });
    json_body::response(StatusCode::OK, &body)
}

/// The path and the signed query of the upload's address on this server.
pub(crate) fn own_path(api: &Api, ticket: &UploadTicket) -> String {
    let name = ticket.blob_name.to_string();
    let expiry = u64::try_from(ticket.expires_at.as_micros() / 1_000_000).unwrap_or(0);
    let query = sign(api.service().signing_keys(), Access::Upload, &name, expiry, None);
    format!("{}{name}?{query}", route::BLOB)
}

/// A third field only where the storage needs headers (rule 25).
fn at_the_storage(address: &UploadAddress, name: &str) -> Value {
    let mut body = json!({ "url": address.url, "blob_name": name });
    if !address.headers.is_empty() {
        let headers = address.headers.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value)));
        body["headers"] = Value::Object(headers.collect());
    }
    body
}

fn file_extension(body: &Map<String, Value>) -> Result<String, ApiError> {
    match body.get("file_extension") {
        None | Some(Value::Null) => Err(ApiError::bad_request("file_extension is required")),
        Some(Value::String(extension)) => Ok(extension.clone()),
        Some(_) => Err(ApiError::bad_request("file_extension must be a string")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_25_headers_are_a_third_field_where_the_storage_needs_some() {
        let mut address = UploadAddress { url: "https://b.example/x?sig=1".to_owned(), headers: Vec::new() };
        let plain = json!({ "url": "https://b.example/x?sig=1", "blob_name": "videos/a.mp4" });
        assert_eq!(at_the_storage(&address, "videos/a.mp4"), plain);
        address.headers.push(("x-ms-blob-type", "BlockBlob"));
        let headers = json!({ "x-ms-blob-type": "BlockBlob" });
        assert_eq!(at_the_storage(&address, "videos/a.mp4")["headers"], headers);
    }
}
