//! The description of the interface for programs, made from code. A copy is committed beside the sources, and a test compares.

mod paths;
mod schemas;

use std::sync::OnceLock;

use bytes::Bytes;
use utoipa::OpenApi;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, SecurityScheme};
use utoipa::openapi::server::Server;

use super::error::ApiError;
use super::json;

/// Name of the security scheme.
const API_KEY: &str = "api_key";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Video reconstruction service",
        description = "Turns uploaded videos into 3D Gaussian scenes. Ask for an upload address, PUT the video to it, submit a \
                       job, poll the job until its status is Finished or Failed, then fetch the scene.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    paths(
        paths::list_jobs,
        paths::get_job,
        paths::update_job,
        paths::delete_job,
        paths::download_scene,
        paths::get_preview,
        paths::get_report,
        paths::cancel_job,
        paths::restart_job,
        paths::generate_upload_url,
        paths::submit_job,
        paths::list_webhooks,
        paths::add_webhook,
        paths::get_webhook,
        paths::delete_webhook,
        paths::list_deliveries,
        paths::replay_delivery,
    ),
    components(schemas(
        schemas::Job,
        schemas::JobSummary,
        schemas::JobUpdate,
        schemas::CameraData,
        schemas::CameraUpdate,
        schemas::Vector,
        schemas::UploadRequest,
        schemas::UploadAddress,
        schemas::SubmitRequest,
        schemas::Submitted,
        schemas::RestartRequest,
        schemas::JobReport,
        schemas::Progress,
        schemas::Failure,
        schemas::Warning,
        schemas::Requested,
        schemas::Ran,
        schemas::Quality,
        schemas::JobVerdict,
        schemas::Reason,
        schemas::WebhookRequest,
        schemas::Webhook,
        schemas::NewWebhook,
        schemas::Delivery,
        schemas::Error,
    ))
)]
struct Interface;

/// The document as it is sent.
pub(crate) struct Texts {
    pub(crate) plain: Bytes,
    pub(crate) gzip: Bytes,
}

/// The document as a server sends it, made once: answers that nobody takes are no copies of it.
#[derive(Default)]
pub(crate) struct Description(OnceLock<Result<Texts, String>>);

impl Description {
    /// The document. `public_url` is the address at which the paths begin; where there is none, they begin at the host that sends the
    /// document, as OpenAPI has it.
    pub(crate) fn texts(&self, public_url: Option<&str>) -> Result<&Texts, ApiError> {
        let texts = self.0.get_or_init(|| {
            let mut document = document().clone();
            document.servers = public_url.map(|url| vec![Server::new(url.trim_end_matches('/'))]);
            let plain = serde_json::to_vec(&document).map_err(|error| error.to_string())?;
            let gzip = json::gzip(&plain).map_err(|error| error.to_string())?;
            Ok(Texts { plain: plain.into(), gzip: gzip.into() })
        });
        texts.as_ref().map_err(|error| ApiError::internal(format!("cannot describe the interface: {error}")))
    }
}

/// The document, made once.
fn document() -> &'static utoipa::openapi::OpenApi {
    static DOCUMENT: OnceLock<utoipa::openapi::OpenApi> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let mut document = Interface::openapi();
        let mut key = ApiKeyValue::new("Authorization");
        key.description = Some("`Api-Key <key>`: the word Api-Key, a space, the key.".to_owned());
        let components = document.components.get_or_insert_default();
        components.add_security_scheme(API_KEY, SecurityScheme::ApiKey(ApiKey::Header(key)));
        document
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use libreconstruct::job::{JobId, JobSummary};
    use serde_json::Value;

    use super::super::route::Route;
    use super::*;

    #[test]
    fn the_committed_copy_is_the_document() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
        let text = serde_json::to_string_pretty(document()).unwrap() + "\n";
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(committed, text, "run the test with UPDATE_OPENAPI=1 and commit server/openapi.json");
    }

    #[test]
    fn the_document_names_the_public_address() {
        let servers = |public_url: Option<&str>| {
            let description = Description::default();
            let texts = description.texts(public_url).unwrap();
            serde_json::from_slice::<Value>(&texts.plain).unwrap()["servers"].clone()
        };
        assert_eq!(servers(None), Value::Null);
        let named = serde_json::json!([{ "url": "https://example.org/scans" }]);
        assert_eq!(servers(Some("https://example.org/scans/")), named);
    }

    #[test]
    fn every_operation_is_a_route_and_every_method_is_described() {
        let document = serde_json::to_value(document()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        assert_eq!(paths.len(), 13);
        for (path, operations) in paths {
            let route = path.replace("{job_id}", "0").replace("{file_type}", "ply");
            let route = route.replace("{webhook_id}", "0").replace("{delivery_id}", "0");
            let route = Route::of(&route).unwrap();
            assert_eq!(route.template(), path);
            for method in ["GET", "POST", "PATCH", "DELETE"] {
                let described = operations.get(method.to_lowercase()).is_some();
                assert_eq!(described, route.allow().split(", ").any(|m| m == method), "{method} {path}");
            }
        }
    }

    #[test]
    fn every_operation_may_find_the_server_busy_and_every_one_that_writes_no_space() {
        let document = serde_json::to_value(document()).unwrap();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let answers = operation["responses"].as_object().unwrap();
                assert!(answers.contains_key("503"), "{method} {path}");
                assert_eq!(answers.contains_key("507"), method != "get", "{method} {path}");
            }
        }
    }

    /// The fields of a described object are those that are sent.
    #[test]
    fn the_described_fields_are_those_of_the_core() {
        let document = serde_json::to_value(document()).unwrap();
        let described = |name: &str| -> Vec<String> {
            let properties = document["components"]["schemas"][name]["properties"].as_object().unwrap();
            properties.keys().cloned().collect()
        };
        let sent = |value: Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
        let summary = JobSummary { job_id: JobId::random(), title: "a".to_owned() };
        assert_eq!(described("JobSummary"), sent(serde_json::to_value(summary).unwrap()));
        let camera = serde_json::to_value(libreconstruct::presentation::CameraData::default()).unwrap();
        assert_eq!(described("CameraData"), sent(camera));
        assert_eq!(described("Job").len(), 13);
        assert_eq!(described("Submitted").len(), 10);
    }
}
