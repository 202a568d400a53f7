//! A job as it is sent: in answers, and in what webhooks are told.

use libreconstruct::job::Job;
use serde_json::{Value, json};

use super::error::ApiError;
use crate::config::Config;

/// The thirteen fields of a job; the reason of a failure only if the operator has switched that on (rule 73 of docs/rest.md).
pub(crate) fn job_value(config: &Config, job: &Job) -> Result<Value, ApiError> {
    let mut value = serde_json::to_value(job).map_err(|e| ApiError::internal(e.to_string()))?;
    if config.extra_fields {
        let failure = job.details.failure.as_ref();
        value["error_code"] = json!(failure.map(|f| &f.code));
        value["error_message"] = json!(failure.map(|f| &f.message));
    }
    Ok(value)
}
