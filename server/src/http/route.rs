//! From a path to a resource. Both slash forms are served, without a redirect (rule 1).

use hyper::Method;

use super::web::WebRoute;

/// A resource of the server, with the parameters of its path as they were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    Jobs,
    Job {
        job_id: &'a str,
    },
    Download {
        job_id: &'a str,
        file_type: &'a str,
    },
    Preview {
        job_id: &'a str,
    },
    Report {
        job_id: &'a str,
    },
    Cancel {
        job_id: &'a str,
    },
    Restart {
        job_id: &'a str,
    },
    GenerateUploadUrl,
    SubmitJob,
    Webhooks,
    Webhook {
        webhook_id: &'a str,
    },
    Deliveries {
        webhook_id: &'a str,
    },
    Replay {
        webhook_id: &'a str,
        delivery_id: &'a str,
    },
    /// A signed address: the name of the blob.
    Blob {
        name: &'a str,
    },
    /// Where a client of tus begins an upload, of which it knows the signed address.
    Tus {
        name: &'a str,
    },
    /// The viewer of a public scene, and what its page fetches.
    View {
        job_id: &'a str,
    },
    ViewCamera {
        job_id: &'a str,
    },
    ViewScene {
        job_id: &'a str,
    },
    /// The scene with few splats.
    ViewFirst {
        job_id: &'a str,
    },
    ViewPreview {
        job_id: &'a str,
    },
    Health,
    Ready,
    Metrics,
    OpenApi,
    Docs,
    /// A page of the web application.
    Web(WebRoute<'a>),
}

/// What the path of every operation begins with: the version is part of it (docs/rest.md, §9).
pub(crate) const API: &str = "/api/v1";
/// Everything before the name of a blob. One segment, so that Azure's clients find account, container and blob.
pub(crate) const BLOB: &str = "/blob/";
/// The same of the address at which clients of tus begin an upload.
pub(crate) const TUS: &str = "/tus/";
/// Everything before the id of a job whose scene is looked at in a browser.
const VIEW: &str = "/view/";

impl<'a> Route<'a> {
    /// The resource at `path`, if there is one.
    pub(crate) fn of(path: &'a str) -> Option<Self> {
        if let Some(name) = path.strip_prefix(BLOB) {
            return (!name.is_empty()).then_some(Self::Blob { name });
        }
        if let Some(name) = path.strip_prefix(TUS) {
            return (!name.is_empty()).then_some(Self::Tus { name });
        }
        if let Some(path) = path.strip_prefix(API) {
            let path = path.strip_prefix('/')?;
            let mut segments = path.strip_suffix('/').unwrap_or(path).split('/');
            let mut next = || segments.next();
            let five = [next(), next(), next(), next(), next()];
            if segments.next().is_some() {
                return None;
            }
            return Some(match five {
                [Some("jobs"), None, ..] => Self::Jobs,
                [Some("jobs"), Some(""), ..] => return None,
                [Some("jobs"), Some(job_id), None, ..] => Self::Job { job_id },
                [Some("jobs"), Some(job_id), Some("preview"), None, _] => Self::Preview { job_id },
                [Some("jobs"), Some(job_id), Some("report"), None, _] => Self::Report { job_id },
                [Some("jobs"), Some(job_id), Some("cancel"), None, _] => Self::Cancel { job_id },
                [Some("jobs"), Some(job_id), Some("restart"), None, _] => Self::Restart { job_id },
                [Some("jobs"), Some(job_id), Some("download"), Some(file_type), None] => {
                    Self::Download { job_id, file_type }
                }
                [Some("generate-upload-url"), None, ..] => Self::GenerateUploadUrl,
                [Some("submit-job"), None, ..] => Self::SubmitJob,
                [Some("webhooks"), None, ..] => Self::Webhooks,
                [Some("webhooks"), Some(""), ..] => return None,
                [Some("webhooks"), Some(webhook_id), None, ..] => Self::Webhook { webhook_id },
                [Some("webhooks"), Some(webhook_id), Some("deliveries"), None, _] => {
                    Self::Deliveries { webhook_id }
                }
                [
                    Some("webhooks"),
                    Some(webhook_id),
                    Some("deliveries"),
                    Some(delivery_id),
                    Some("replay"),
                ] => Self::Replay { webhook_id, delivery_id },
                _ => return None,
            });
        }
        if let Some(path) = path.strip_prefix(VIEW) {
            let (job_id, file) = path.split_once('/').unwrap_or((path, ""));
            return match file {
                _ if job_id.is_empty() => None,
                "" => Some(Self::View { job_id }),
                "camera.json" => Some(Self::ViewCamera { job_id }),
                "scene.spz" => Some(Self::ViewScene { job_id }),
                "first.spz" => Some(Self::ViewFirst { job_id }),
                "preview.jpg" => Some(Self::ViewPreview { job_id }),
                _ => None,
            };
        }
        match path.strip_suffix('/').unwrap_or(path) {
            "/healthz" => Some(Self::Health),
            "/readyz" => Some(Self::Ready),
            "/metrics" => Some(Self::Metrics),
            "/openapi.json" => Some(Self::OpenApi),
            "/docs" => Some(Self::Docs),
            _ => WebRoute::of(path).map(Self::Web),
        }
    }

    /// What it is called in logs and metrics: the template of its path.
    pub(crate) fn template(self) -> &'static str {
        match self {
            Self::Jobs => "/api/v1/jobs/",
            Self::Job { .. } => "/api/v1/jobs/{job_id}/",
            Self::Download { .. } => "/api/v1/jobs/{job_id}/download/{file_type}/",
            Self::Preview { .. } => "/api/v1/jobs/{job_id}/preview/",
            Self::Report { .. } => "/api/v1/jobs/{job_id}/report/",
            Self::Cancel { .. } => "/api/v1/jobs/{job_id}/cancel/",
            Self::Restart { .. } => "/api/v1/jobs/{job_id}/restart/",
            Self::GenerateUploadUrl => "/api/v1/generate-upload-url/",
            Self::SubmitJob => "/api/v1/submit-job/",
            Self::Webhooks => "/api/v1/webhooks/",
            Self::Webhook { .. } => "/api/v1/webhooks/{webhook_id}/",
            Self::Deliveries { .. } => "/api/v1/webhooks/{webhook_id}/deliveries/",
            Self::Replay { .. } => "/api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/replay/",
            Self::Blob { .. } => "/blob/",
            Self::Tus { .. } => "/tus/",
            Self::View { .. } => "/view/{job_id}/",
            Self::ViewCamera { .. } => "/view/{job_id}/camera.json",
            Self::ViewScene { .. } => "/view/{job_id}/scene.spz",
            Self::ViewFirst { .. } => "/view/{job_id}/first.spz",
            Self::ViewPreview { .. } => "/view/{job_id}/preview.jpg",
            Self::Health => "/healthz",
            Self::Ready => "/readyz",
            Self::Metrics => "/metrics",
            Self::OpenApi => "/openapi.json",
            Self::Docs => "/docs",
            Self::Web(page) => page.template(),
        }
    }

    /// Whether it gives its user a file of a job, or the address of one.
    pub(crate) fn gives_file(self) -> bool {
        match self {
            Self::Download { .. } | Self::Preview { .. } => true,
            Self::Web(page) => page.gives_file(),
            _ => false,
        }
    }

    /// The value of `Allow` (rules 3 to 5): HEAD goes with every GET, OPTIONS with everything.
    pub(crate) fn allow(self) -> &'static str {
        match self {
            Self::Job { .. } => "GET, HEAD, PATCH, DELETE, OPTIONS",
            Self::GenerateUploadUrl
            | Self::SubmitJob
            | Self::Cancel { .. }
            | Self::Restart { .. }
            | Self::Replay { .. }
            | Self::Tus { .. } => "POST, OPTIONS",
            Self::Webhooks => "GET, HEAD, POST, OPTIONS",
            Self::Webhook { .. } => "GET, HEAD, DELETE, OPTIONS",
            // POST on an upload address is a 405 (rule 23).
            Self::Blob { .. } => "GET, HEAD, PUT, PATCH, DELETE, OPTIONS",
            Self::Web(page) => page.allow(),
            _ => "GET, HEAD, OPTIONS",
        }
    }

    pub(crate) fn allows(self, method: &Method) -> bool {
        self.allow().split(", ").any(|allowed| allowed == method.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_1_both_slash_forms_name_the_same_resource() {
        for path in [
            "/api/v1/jobs",
            "/api/v1/jobs/0b",
            "/api/v1/jobs/0b/preview",
            "/api/v1/jobs/0b/report",
            "/api/v1/jobs/0b/cancel",
            "/api/v1/jobs/0b/restart",
            "/api/v1/jobs/0b/download/ply",
            "/api/v1/generate-upload-url",
            "/api/v1/submit-job",
            "/api/v1/webhooks",
            "/api/v1/webhooks/0b",
            "/api/v1/webhooks/0b/deliveries",
            "/api/v1/webhooks/0b/deliveries/0c/replay",
            "/view/0b",
            "/healthz",
        ] {
            let route = Route::of(path);
            assert!(route.is_some(), "{path}");
            assert_eq!(route, Route::of(&format!("{path}/")), "{path}");
        }
    }

    #[test]
    fn other_paths_name_nothing() {
        for path in [
            "",
            "*",
            "/scenes/0b/stop",
            "/api",
            "/api/v1",
            "/api/v1/",
            "/api/v1jobs/",
            "/api/v1//jobs/",
            "/api/v1/jobs//",
            "/api/v1/jobs///",
            "/api/v1/jobs/0b//",
            "/api/v1/jobs/0b/download/",
            "/api/v1/jobs/0b/download/ply/x/",
            "/api/v1/jobs/0b/stop/",
            "/api/v1/jobs/0b/cancel/now/",
            "/api/v1/webhooks//",
            "/api/v1/webhooks/0b/deliveries/0c/",
            "/api/v1/webhooks/0b/deliveries/0c/replay/x/",
            "/api/v1/webhooks/0b/replay/",
            "/api/v1/jobs/0b/download/ply/x/y/",
            "/api/v2/jobs/",
            "/API/v1/jobs/",
            "/blob/",
            "/blob",
            "/tus/",
            "/tus",
            "/view",
            "/view/",
            "/view//",
            "/view//scene.spz",
            "/view/0b//",
            "/view/0b/scene.ply",
            "/view/0b/scene.spz/",
        ] {
            assert_eq!(Route::of(path), None, "{path}");
        }
    }

    #[test]
    fn rule_5_put_is_no_method_of_a_job() {
        let route = Route::of("/api/v1/jobs/0b/").unwrap();
        assert!(!route.allows(&Method::PUT) && route.allows(&Method::PATCH) && route.allows(&Method::HEAD));
        assert!(!Route::of("/blob/videos/x.mp4").unwrap().allows(&Method::POST));
    }
}
