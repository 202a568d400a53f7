//! Uploads that were looked at and can be read: who submits one of them again waits for no program, and one upload that is submitted
//! over and over takes no processor time to speak of.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::job::BlobName;

/// How many are remembered, in this process alone.
const REMEMBERED: usize = 1024;

/// The last uploads that could be read, by name and version: another transfer to the same name has another version.
#[derive(Default)]
pub(super) struct ReadableVideos(Mutex<VecDeque<(BlobName, u64)>>);

impl ReadableVideos {
    /// Whether this one could be read.
    pub(super) fn holds(&self, name: &BlobName, version: u64) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&(*name, version))
    }

    /// Remembers one that could be read, in place of the oldest if there are too many.
    pub(super) fn add(&self, name: &BlobName, version: u64) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() == REMEMBERED {
            known.pop_front();
        }
        known.push_back((*name, version));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::error::{Error, ErrorKind};
    use crate::job::{JobRequest, VideoExtension};
    use crate::service::test_machines::World;

    #[test]
    fn the_oldest_is_forgotten() {
        let videos = ReadableVideos::default();
        let names: Vec<_> = (0..=REMEMBERED).map(|_| BlobName::random(VideoExtension::Mp4)).collect();
        for name in &names {
            videos.add(name, 7);
        }
        assert!(!videos.holds(&names[0], 7));
        assert!(names[1..].iter().all(|name| videos.holds(name, 7) && !videos.holds(name, 8)));
    }

    #[test]
    fn a_video_is_looked_at_once_for_all_its_submissions() {
        static LOOKS: AtomicUsize = AtomicUsize::new(0);
        let world = World::new();
        let machine = world.machine_that_looks(|path, _| {
            LOOKS.fetch_add(1, Ordering::Relaxed);
            if std::fs::read(path).unwrap() == b"a video" {
                return Ok(());
            }
            Err(Error::new(ErrorKind::InvalidMedia, "no video"))
        });
        let blob = machine.upload(b"a video");
        let submit = |blob| machine.service.submit(machine.user(), JobRequest::new(blob), None);
        for _ in 0..3 {
            submit(blob).unwrap();
        }
        assert_eq!(LOOKS.load(Ordering::Relaxed), 1);
        // What cannot be read is looked at each time, and twice: it may have been the disk.
        let other = machine.upload(b"no video");
        for _ in 0..2 {
            assert_eq!(submit(other).unwrap_err().message(), "Invalid file format");
        }
        assert_eq!(LOOKS.load(Ordering::Relaxed), 5);
    }
}
