//! `reconstruct jobs`: the jobs of a service, for its operator.

use clap::Subcommand;
use libreconstruct::job::{Job, JobId};
use libreconstruct::service::Service;
use libreconstruct::{Error, ErrorKind, Result};
use serde_json::{Value, json};

use super::data::table;
use crate::context::{Global, print_result};

/// Look after the jobs of a service
///
/// Works on the folder of the service, also while its server runs, and sees the jobs of all users.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  reconstruct jobs list
  reconstruct jobs show 0d8bbd3c-3e2c-4b5a-9d3f-2f4e3a1b9c70 --json
  reconstruct jobs log 0d8bbd3c-3e2c-4b5a-9d3f-2f4e3a1b9c70
  reconstruct jobs cancel 0d8bbd3c-3e2c-4b5a-9d3f-2f4e3a1b9c70")]
pub(crate) enum Action {
    /// List jobs, newest first
    List {
        /// Only those of this user
        #[arg(long)]
        user: Option<String>,
    },
    /// Show everything about a job
    Show {
        /// The job's id
        job_id: JobId,
    },
    /// Stop a job; it ends as failed
    Cancel {
        /// The job's id
        job_id: JobId,
    },
    /// Delete a job and its files, for ever
    Delete {
        /// The job's id
        job_id: JobId,
    },
    /// Print what the worker noted
    Log {
        /// The job's id
        job_id: JobId,
    },
}

impl Action {
    pub(crate) fn run(&self, service: &Service, global: Global) -> Result<()> {
        match self {
            Self::List { user } => {
                let mut jobs = service.all_jobs()?;
                if let Some(name) = user {
                    let owner = service.user_by_name(name)?.user_id;
                    jobs.retain(|job| job.details.owner == owner);
                }
                let values = jobs.iter().map(whole).collect::<Result<Vec<Value>>>()?;
                print_result(global, &json!({ "jobs": values }), &listed(service, &jobs)?);
            }
            Self::Show { job_id } => {
                let job = whole(&find(service, *job_id)?)?;
                let text = serde_json::to_string_pretty(&job).unwrap_or_default();
                print_result(global, &job, &text);
            }
            Self::Cancel { job_id } => {
                let job = find(service, *job_id)?;
                let job = service.cancel(job.details.owner, *job_id)?;
                print_result(global, &whole(&job)?, &format!("{job_id}: {}", job.status));
            }
            Self::Delete { job_id } => {
                let job = find(service, *job_id)?;
                service.delete(job.details.owner, *job_id)?;
                print_result(
                    global,
                    &json!({ "job_id": job_id, "deleted": true }),
                    &format!("deleted {job_id}"),
                );
            }
            Self::Log { job_id } => {
                let job = find(service, *job_id)?;
                let log = service.log(job.details.owner, *job_id)?;
                print_result(global, &json!({ "job_id": job_id, "log": log }), log.trim_end());
            }
        }
        Ok(())
    }
}

fn find(service: &Service, job_id: JobId) -> Result<Job> {
    let mut jobs = service.all_jobs()?;
    let found = jobs.iter().position(|job| job.job_id == job_id).map(|at| jobs.swap_remove(at));
    found.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("there is no job {job_id}"))
            .hint("`reconstruct jobs list` shows those that there are")
    })
}

/// A job with what the interface does not show, in one object.
fn whole(job: &Job) -> Result<Value> {
    let wrong =
        |e: serde_json::Error| Error::new(ErrorKind::Internal, format!("cannot serialise a job: {e}"));
    let mut value = serde_json::to_value(job).map_err(wrong)?;
    let details = serde_json::to_value(&job.details).map_err(wrong)?;
    if let (Value::Object(value), Value::Object(details)) = (&mut value, details) {
        value.extend(details);
    }
    Ok(value)
}

fn listed(service: &Service, jobs: &[Job]) -> Result<String> {
    let users = service.users()?;
    let rows = jobs.iter().map(|job| {
        let owner = users.iter().find(|u| u.user_id == job.details.owner);
        let percent = job.percent_complete.map_or(String::new(), |p| format!("{p} %"));
        [
            job.job_id.to_string(),
            owner.map_or_else(|| job.details.owner.to_string(), |u| u.name.clone()),
            job.status.to_string(),
            percent,
            job.uploaded_at.to_string(),
            job.title.clone(),
        ]
    });
    Ok(table(["JOB", "USER", "STATUS", "DONE", "SUBMITTED", "TITLE"], rows))
}
