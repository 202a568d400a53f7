//! The operations, for the description only: the handlers are beside this module.
#![allow(dead_code)] // only their descriptions are used

use super::schemas::*;
use utoipa::IntoResponses;

/// What every operation may answer.
#[derive(IntoResponses)]
enum Refused {
    /// Missing or invalid API key
    #[response(status = 401)]
    Unauthenticated(Error),
    /// The account may not use the interface
    #[response(status = 403)]
    Forbidden(Error),
    /// Rate limit exceeded
    #[response(status = 429)]
    TooManyRequests(Error),
    /// Internal server error
    #[response(status = 500)]
    Internal(Error),
    /// The server is busy; try again later
    #[response(status = 503)]
    Busy(Error),
}

/// What an operation that writes may answer.
#[derive(IntoResponses)]
enum Writes {
    /// The server has no space left; try again later
    #[response(status = 507)]
    NoSpace(Error),
}

/// What an operation that takes a body may answer.
#[derive(IntoResponses)]
enum WrongBody {
    /// The body did not arrive in time
    #[response(status = 408)]
    Timeout(Error),
    /// The body is larger than 64 KiB
    #[response(status = 413)]
    TooLarge(Error),
    /// The body is not application/json
    #[response(status = 415)]
    UnsupportedType(Error),
}

/// List jobs
///
/// Newest first. Without `limit` all of them; with it a page, and a `Link` header to the next.
#[utoipa::path(
    get, path = "/api/v1/jobs/", operation_id = "list_jobs", tag = "jobs", security(("api_key" = [])),
    params(
        ("limit" = Option<u32>, Query, description = "Jobs of a page", minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "Where the page starts, from the Link header of the one before",
         pattern = "^-?[0-9a-f]{1,15}\\.[0-9a-f]{32}$"),
        ("status" = Option<String>, Query, description = "Only jobs in this state: Queued, Processing video, Generating 3D scene, Finished, Failed or Not found, in upper or lower case",
         pattern = "^([qQ][uU][eE][uU][eE][dD]|[pP][rR][oO][cC][eE][sS][sS][iI][nN][gG] [vV][iI][dD][eE][oO]|[gG][eE][nN][eE][rR][aA][tT][iI][nN][gG] 3[dD] [sS][cC][eE][nN][eE]|[fF][iI][nN][iI][sS][hH][eE][dD]|[fF][aA][iI][lL][eE][dD]|[nN][oO][tT] [fF][oO][uU][nN][dD])$"),
        ("public" = Option<bool>, Query, description = "Only jobs that are, or are not, public"),
    ),
    responses(
        Refused,
        (status = 200, description = "The jobs", body = [JobSummary]),
        (status = 400, description = "A parameter is wrong", body = Error),
    )
)]
fn list_jobs() {}

/// Get a job
#[utoipa::path(
    get, path = "/api/v1/jobs/{job_id}/", operation_id = "get_job", tag = "jobs", security(("api_key" = [])),
    params(("job_id" = Uuid, Path, description = "The job")),
    responses(
        Refused,
        (status = 200, description = "The job", body = Job),
        (status = 404, description = "No such job of the caller", body = Error),
    )
)]
fn get_job() {}

/// Update a job
///
/// Changes what is given; unknown and read-only fields are ignored.
#[utoipa::path(
    patch, path = "/api/v1/jobs/{job_id}/", operation_id = "update_job", tag = "jobs", security(("api_key" = [])),
    params(("job_id" = Uuid, Path, description = "The job")),
    request_body = JobUpdate,
    responses(
        Refused,
        WrongBody,
        Writes,
        (status = 200, description = "The job as it is now", body = Job),
        (status = 400, description = "The body is wrong; the message names every field", body = Error),
        (status = 404, description = "No such job of the caller", body = Error),
    )
)]
fn update_job() {}

/// Delete a job
///
/// Deletes the job and its files for ever, and stops it if it runs.
#[utoipa::path(
    delete, path = "/api/v1/jobs/{job_id}/", operation_id = "delete_job", tag = "jobs", security(("api_key" = [])),
    params(("job_id" = Uuid, Path, description = "The job")),
    responses(
        Refused,
        Writes,
        (status = 204, description = "It is gone"),
        (status = 404, description = "No such job of the caller", body = Error),
    )
)]
fn delete_job() {}

/// Download a file of a job
///
/// Redirects to an address that needs no key and holds for 15 minutes. It serves ranges. While too many files go out, it answers 429
/// or 503 with `Retry-After`, and is to be asked again.
#[utoipa::path(
    get, path = "/api/v1/jobs/{job_id}/download/{file_type}/", operation_id = "download_scene", tag = "files",
    security(("api_key" = [])),
    params(
        ("job_id" = Uuid, Path, description = "The job"),
        ("file_type" = String, Path, description = "ply or spz, the scene; report, all figures; log; cameras, the poses as COLMAP has them, zip; masks, zip; turntable, MP4; sog and glb, the scene in these formats; first_look, a large scene with few splats, spz; poses, a picture of the cameras, JPEG",
         pattern = "^(ply|spz|report|log|cameras|masks|turntable|sog|glb|first_look|poses)$"),
    ),
    responses(
        Refused,
        (status = 302, description = "Follow Location to the file", headers(("Location" = String))),
        (status = 400, description = "No such file type", body = Error),
        (status = 404, description = "No such job of the caller, or it has no such file yet", body = Error),
    )
)]
fn download_scene() {}

/// Get the preview image
///
/// Redirects to a JPEG at an address that needs no key and holds for 15 minutes.
#[utoipa::path(
    get, path = "/api/v1/jobs/{job_id}/preview/", operation_id = "get_preview", tag = "files", security(("api_key" = [])),
    params(("job_id" = Uuid, Path, description = "The job")),
    responses(
        Refused,
        (status = 302, description = "Follow Location to the picture", headers(("Location" = String))),
        (status = 404, description = "No such job of the caller, or it has no preview yet", body = Error),
    )
)]
fn get_preview() {}

/// Get the report on a job
///
/// What the job itself does not tell: how far its stage is, why it failed, what ran, how good the scene is. Who asks for
/// text/event-stream gets it as server-sent events: at once, and after each change until the job has ended.
#[utoipa::path(
    get, path = "/api/v1/jobs/{job_id}/report/", operation_id = "get_report", tag = "jobs", security(("api_key" = [])),
    params(
        ("job_id" = Uuid, Path, description = "The job"),
        ("wait" = Option<u32>, Query, description = "Seconds to wait for a change", minimum = 0, maximum = 50),
        ("version" = Option<u64>, Query, description = "Do not wait if the job has another version than this", minimum = 0),
    ),
    responses(
        Refused,
        (status = 200, description = "The report", body = JobReport),
        (status = 204, description = "Of events: the job has ended, and Last-Event-ID was its last one"),
        (status = 400, description = "A parameter is wrong", body = Error),
        (status = 404, description = "No such job of the caller", body = Error),
        (status = 429, description = "Rate limit exceeded, or too many requests wait", body = Error),
    )
)]
fn get_report() {}

/// Cancel a job
///
/// Stops it and keeps it: it has failed then.
#[utoipa::path(
    post, path = "/api/v1/jobs/{job_id}/cancel/", operation_id = "cancel_job", tag = "jobs", security(("api_key" = [])),
    params(("job_id" = Uuid, Path, description = "The job")),
    responses(
        Refused,
        Writes,
        (status = 200, description = "The job as it is now", body = Job),
        (status = 404, description = "No such job of the caller", body = Error),
        (status = 409, description = "The job has ended already", body = Error),
    )
)]
fn cancel_job() {}

/// Restart a job
///
/// Makes a new job of the same video, with the options of the first where the body names no other.
#[utoipa::path(
    post, path = "/api/v1/jobs/{job_id}/restart/", operation_id = "restart_job", tag = "jobs", security(("api_key" = [])),
    params(
        ("job_id" = Uuid, Path, description = "The job"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible characters, kept for 24 hours",
         pattern = "^[ \\t]*\"?[!-~]{1,255}\"?[ \\t]*$"),
    ),
    request_body = RestartRequest,
    responses(
        Refused,
        WrongBody,
        Writes,
        (status = 201, description = "The new job is queued", body = Submitted, headers(("Location" = String))),
        (status = 400, description = "The body or the video is wrong; the message names every field", body = Error),
        (status = 404, description = "No such job of the caller", body = Error),
        (status = 409, description = "The job has not ended, or a request with this Idempotency-Key is being worked on",
         body = Error),
        (status = 422, description = "The Idempotency-Key was used with another body", body = Error),
        (status = 429, description = "Rate limit exceeded, or too many jobs wait", body = Error),
    )
)]
fn restart_job() {}

/// Get an upload address
///
/// PUT the video to `url` (status 201), then submit `blob_name`. `url` also takes blocks, as Azure's clients send them, and uploads
/// that go on after a break: HEAD tells `Upload-Offset`, PATCH with `Upload-Offset` and `Upload-Complete` adds to the end (the IETF's
/// resumable uploads; tus 1.0 as an upload that was created). A client of tus that begins uploads itself has as its `endpoint` the same
/// address, query and all, with `/tus/` in the place of `/blob/`: POST there with `Tus-Resumable: 1.0.0` and `Upload-Length` is
/// answered with 201 and `Location`, which takes HEAD and PATCH.
#[utoipa::path(
    post, path = "/api/v1/generate-upload-url/", operation_id = "generate_upload_url", tag = "jobs",
    security(("api_key" = [])),
    request_body = UploadRequest,
    responses(
        Refused,
        WrongBody,
        Writes,
        (status = 200, description = "The address", body = UploadAddress),
        (status = 400, description = "No accepted file extension", body = Error),
    )
)]
fn generate_upload_url() {}

/// Submit a job
///
/// The video must have been uploaded. An Idempotency-Key makes it safe to ask again after a lost answer.
#[utoipa::path(
    post, path = "/api/v1/submit-job/", operation_id = "submit_job", tag = "jobs", security(("api_key" = [])),
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible characters, kept for 24 hours",
            pattern = "^[ \\t]*\"?[!-~]{1,255}\"?[ \\t]*$")),
    request_body = SubmitRequest,
    responses(
        Refused,
        WrongBody,
        Writes,
        (status = 201, description = "The job is queued", body = Submitted, headers(("Location" = String))),
        (status = 400, description = "The body or the video is wrong; the message names every field", body = Error),
        (status = 409, description = "A request with this Idempotency-Key is being worked on", body = Error),
        (status = 422, description = "The Idempotency-Key was used with another body", body = Error),
        (status = 429, description = "Rate limit exceeded, or too many jobs wait", body = Error),
    )
)]
fn submit_job() {}

/// List webhooks
///
/// The addresses that are told when a job of the caller ends, the oldest first.
#[utoipa::path(
    get, path = "/api/v1/webhooks/", operation_id = "list_webhooks", tag = "webhooks", security(("api_key" = [])),
    responses(
        Refused,
        (status = 200, description = "The webhooks", body = [Webhook]),
    )
)]
fn list_webhooks() {}

/// Add a webhook
///
/// `url` is told of each job of the caller that ends from now on, as Standard Webhooks has it: a POST of
/// `{"type": "job.finished", "timestamp": …, "data": the job}` with a signature under the secret, which is shown now and never
/// again.
#[utoipa::path(
    post, path = "/api/v1/webhooks/", operation_id = "add_webhook", tag = "webhooks", security(("api_key" = [])),
    request_body = WebhookRequest,
    responses(
        Refused,
        WrongBody,
        Writes,
        (status = 201, description = "The webhook, with its secret", body = NewWebhook, headers(("Location" = String))),
        (status = 400, description = "The address is wrong, or none that may be told", body = Error),
        (status = 409, description = "There are as many as there may be", body = Error),
    )
)]
fn add_webhook() {}

/// Get a webhook
#[utoipa::path(
    get, path = "/api/v1/webhooks/{webhook_id}/", operation_id = "get_webhook", tag = "webhooks", security(("api_key" = [])),
    params(("webhook_id" = Uuid, Path, description = "The webhook")),
    responses(
        Refused,
        (status = 200, description = "The webhook", body = Webhook),
        (status = 404, description = "No such webhook of the caller", body = Error),
    )
)]
fn get_webhook() {}

/// Delete a webhook
///
/// It is told nothing more.
#[utoipa::path(
    delete, path = "/api/v1/webhooks/{webhook_id}/", operation_id = "delete_webhook", tag = "webhooks",
    security(("api_key" = [])),
    params(("webhook_id" = Uuid, Path, description = "The webhook")),
    responses(
        Refused,
        Writes,
        (status = 204, description = "It is gone"),
        (status = 404, description = "No such webhook of the caller", body = Error),
    )
)]
fn delete_webhook() {}

/// List the deliveries of a webhook
///
/// What it was told in the last seven days, and is to be told, the newest first; a `Link` header leads to the next page.
#[utoipa::path(
    get, path = "/api/v1/webhooks/{webhook_id}/deliveries/", operation_id = "list_deliveries", tag = "webhooks",
    security(("api_key" = [])),
    params(
        ("webhook_id" = Uuid, Path, description = "The webhook"),
        ("limit" = Option<u32>, Query, description = "Deliveries of a page; 100 if absent", minimum = 1, maximum = 1000),
        ("cursor" = Option<u64>, Query, description = "Where the page starts, from the Link header of the one before", minimum = 0),
    ),
    responses(
        Refused,
        (status = 200, description = "The deliveries", body = [Delivery]),
        (status = 400, description = "A parameter is wrong", body = Error),
        (status = 404, description = "No such webhook of the caller", body = Error),
    )
)]
fn list_deliveries() {}

/// Replay a delivery
///
/// The webhook is told once more, at once.
#[utoipa::path(
    post, path = "/api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/replay/", operation_id = "replay_delivery",
    tag = "webhooks", security(("api_key" = [])),
    params(
        ("webhook_id" = Uuid, Path, description = "The webhook"),
        ("delivery_id" = Uuid, Path, description = "The delivery"),
    ),
    responses(
        Refused,
        Writes,
        (status = 200, description = "The delivery as it is now", body = Delivery),
        (status = 404, description = "No such webhook of the caller, or it has no such delivery", body = Error),
    )
)]
fn replay_delivery() {}
