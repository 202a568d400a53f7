//! Whether it is the disk that makes a video look bad: a program that cannot read a part of a file says nearly the same of it as of a
//! damaged one, or takes what it could read for all of it. So where there is such a doubt, and only there, the worker reads the file
//! itself.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::super::Service;
use super::super::runner::Outcome;
use super::super::video_file::check_pictures;
use crate::control::{Control, Event, Warning};
use crate::error::{Error, ErrorKind, Result};
use crate::job::BlobName;

/// The warnings that a part of the video, or some of the pictures and clips of an archive, could not be decoded.
const DOUBTS: [&str; 5] = ["clip_skipped", "damaged_video", "frames_lost", "images_skipped", "video_cut_off"];

/// Looks after the video of one attempt.
pub(super) struct VideoCheck {
    service: Service,
    name: BlobName,
    version: u64,
    /// Where it lies.
    file: PathBuf,
    /// The workspace of the job, in which the pictures of an archive are.
    folder: PathBuf,
    control: Control,
    has_looked: AtomicBool,
    trouble: Mutex<Option<Error>>,
}

impl VideoCheck {
    pub(super) fn new(
        service: &Service,
        (name, version): (BlobName, u64),
        file: PathBuf,
        folder: &Path,
        control: &Control,
    ) -> Arc<Self> {
        let (service, folder, control) = (service.clone(), folder.to_owned(), control.clone());
        let (has_looked, trouble) = (AtomicBool::new(false), Mutex::default());
        Arc::new(Self { service, name, version, file, folder, control, has_looked, trouble })
    }

    /// The control for the work on the video. At a warning that raises a doubt the video is read before the work goes on, which is
    /// cancelled if the video is not what came: else hours would go into a scene of half of it.
    pub(super) fn control(self: &Arc<Self>) -> Control {
        let check = Arc::clone(self);
        self.control.clone().with_listener(move |event| {
            let raises_doubt = matches!(&event, Event::Warning { warning, .. } if is_doubt(warning));
            check.control.send(event);
            if raises_doubt {
                check.look();
            }
        })
    }

    /// What came of the work, unless the disk is to blame for it. A scene is not doubted any more: each stage was when it was made.
    pub(super) fn judge(&self, result: Result<Outcome>) -> Result<Outcome> {
        let speaks_against_video =
            |error: &Error| matches!(error.kind(), ErrorKind::InvalidMedia | ErrorKind::TooFewFrames);
        if result.as_ref().is_err_and(speaks_against_video) {
            self.look();
        }
        match self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(trouble) => Err(trouble),
            None => result,
        }
    }

    /// Reads all of the video, once in an attempt.
    fn look(&self) {
        if self.has_looked.swap(true, Ordering::Relaxed) {
            return;
        }
        let checked = self
            .service
            .check_video(&self.name, self.version, &self.file, &self.control)
            .and_then(|()| check_pictures(&self.folder, &self.control));
        let Err(error) = checked else { return };
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        self.control.cancel_token().cancel();
    }
}

fn is_doubt(warning: &Warning) -> bool {
    DOUBTS.contains(&warning.code.as_ref())
}
