//! What the service accepts.

use serde::{Deserialize, Serialize};

use crate::defaults::with_defaults;
use crate::error::{Error, Result};

with_defaults! {
    /// Bounds on requests and resources; a server's operator may change them.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct Limits {
        /// Largest video, bytes.
        pub max_upload_bytes: u64 = 5 << 30,
        /// How long an upload address works, minutes. A transfer that was begun in time may end later.
        pub upload_lifetime_minutes: u64 = 120,
        /// How long an uploaded video waits for a job before it is removed, hours.
        pub upload_retention_hours: u64 = 24,
        /// Waiting jobs that one user may have.
        pub max_queued_jobs: u64 = 100,
        /// Bytes of videos and scenes that one user may have; absent = no limit.
        pub max_stored_bytes: Option<u64> = None,
        /// Smallest `training_max_num_gaussians`.
        pub min_gaussians: u32 = 1_000,
        /// Largest `training_max_num_gaussians`.
        pub max_gaussians: u32 = 10_000_000,
        /// Largest `training_num_steps`; the smallest is 1.
        pub max_steps: u32 = 200_000,
        /// How long the answer to an idempotency key is kept, hours.
        pub idempotency_hours: u64 = 24,
    }
}

impl Limits {
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for bounds that let nothing in or more than the engine can do.
    pub fn check(&self) -> Result<()> {
        if self.max_upload_bytes == 0 {
            return Err(Error::argument("max_upload_bytes is 0: no video could be uploaded"));
        }
        if self.upload_lifetime_minutes == 0 || self.upload_retention_hours == 0 {
            return Err(Error::argument(
                "upload_lifetime_minutes and upload_retention_hours must be at least 1",
            ));
        }
        let engine = Self::default();
        let (low, high) = (self.min_gaussians, self.max_gaussians);
        if low < engine.min_gaussians || high > engine.max_gaussians || low > high {
            return Err(Error::argument(format!(
                "min_gaussians {low} to max_gaussians {high}: must lie in {} to {}",
                engine.min_gaussians, engine.max_gaussians
            )));
        }
        if !(1..=engine.max_steps).contains(&self.max_steps) {
            return Err(Error::argument(format!(
                "max_steps is {}: 1 to {} is possible",
                self.max_steps, engine.max_steps
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::ReconstructionOptions;

    #[test]
    fn the_widest_limits_are_those_of_the_engine() {
        let limits = Limits::default();
        limits.check().unwrap();
        let options = |gaussians, steps| ReconstructionOptions {
            training_max_num_gaussians: gaussians,
            training_num_steps: steps,
            ..Default::default()
        };
        options(limits.min_gaussians, 1).check().unwrap();
        options(limits.max_gaussians, limits.max_steps).check().unwrap();
        assert!(options(limits.min_gaussians - 1, 1).check().is_err());
        assert!(options(limits.max_gaussians + 1, 1).check().is_err());
        assert!(options(limits.max_gaussians, limits.max_steps + 1).check().is_err());
        assert!(Limits { max_gaussians: 999, ..limits.clone() }.check().is_err());
        assert!(Limits { max_steps: 0, ..limits }.check().is_err());
    }
}
