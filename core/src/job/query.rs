//! What a list of jobs can be asked for.

use std::fmt;
use std::str::FromStr;

use super::{JobId, JobSummary, Timestamp};
use crate::error::{Error, Result};

/// The six states by which jobs can be filtered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobState {
    /// Waiting, at any position.
    Queued,
    /// Frames are chosen and cameras placed.
    ProcessingVideo,
    /// The scene is trained and written.
    GeneratingScene,
    /// Done.
    Finished,
    /// Ended without a scene, but for those of which the video is missing.
    Failed,
    /// Ended because the storage no longer has the video.
    NotFound,
}

impl FromStr for JobState {
    type Err = Error;

    /// Reads the words of [`super::JobStatus`], whatever their case.
    fn from_str(text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().as_str() {
            "queued" => Ok(Self::Queued),
            "processing video" => Ok(Self::ProcessingVideo),
            "generating 3d scene" => Ok(Self::GeneratingScene),
            "finished" => Ok(Self::Finished),
            "failed" => Ok(Self::Failed),
            "not found" => Ok(Self::NotFound),
            _ => Err(Error::argument(format!(
                "status is {text:?}: Queued, Processing video, Generating 3D scene, Finished, Failed and Not found are known"
            ))),
        }
    }
}

/// Which jobs to list; the default is all, newest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// At most this many, 1 to 1000; absent = all.
    pub limit: Option<u32>,
    /// Only those after this place of an earlier page.
    pub cursor: Option<Cursor>,
    /// Only those in this state.
    pub status: Option<JobState>,
    /// Only those that are, or are not, public.
    pub public: Option<bool>,
}

impl ListQuery {
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a limit outside 1 to 1000.
    pub fn check(&self) -> Result<()> {
        match self.limit {
            Some(limit) if !(1..=1000).contains(&limit) => {
                Err(Error::argument(format!("limit is {limit}: 1 to 1000 is allowed")))
            }
            _ => Ok(()),
        }
    }
}

/// A place in a list; opaque to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// When the last job of the page was submitted.
    pub uploaded_at: Timestamp,
    /// The last job of the page.
    pub job_id: JobId,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{}", self.uploaded_at.as_micros(), self.job_id.0.as_simple())
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let (time, id) = text.split_once('.')?;
            let micros = i64::from_str_radix(time, 16).ok()?;
            let id = uuid::Uuid::try_parse(id).ok()?;
            Some(Self { uploaded_at: Timestamp::from_micros(micros), job_id: JobId(id) })
        };
        parse().ok_or_else(|| {
            Error::argument(format!("cursor is {text:?}")).hint("use the one of the Link header as it is")
        })
    }
}

/// Part of a list of jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobPage {
    /// Newest first.
    pub jobs: Vec<JobSummary>,
    /// Where the next page starts, if there is one.
    pub next: Option<Cursor>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_from_its_text() {
        let cursor = Cursor { uploaded_at: Timestamp::now(), job_id: JobId::random() };
        assert_eq!(cursor.to_string().parse::<Cursor>().unwrap(), cursor);
        for bad in ["", ".", "zz.1", "1", "12.34"] {
            assert!(bad.parse::<Cursor>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_limit_is_bounded() {
        for (limit, good) in [(0, false), (1, true), (1000, true), (1001, false)] {
            assert_eq!(ListQuery { limit: Some(limit), ..Default::default() }.check().is_ok(), good);
        }
    }
}
