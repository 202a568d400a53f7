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
    use std::fs;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::error::{Error, ErrorKind};
    use crate::job::{BLOB_NOT_FOUND, JobRequest, VideoExtension};
    use crate::service::test_machines::World;
    use crate::storage::BlobKey;

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

    #[test]
    fn a_known_video_is_refused_if_it_is_lost_and_not_if_the_storage_cannot_tell() {
        let world = World::new();
        let machine = world.machine();
        let blob = machine.upload(b"a video");
        let submit = || machine.service.submit(machine.user(), JobRequest::new(blob), None);
        submit().unwrap();
        let version = machine.service.uploaded_video(machine.user(), &blob).unwrap().version;
        let video = world.shared.path().join(BlobKey::Video { name: blob, version }.to_string());
        let (folder, aside) = (video.parent().unwrap(), world.shared.path().join("aside"));
        // A file in the place of its folder: it can be said neither that the video is there nor that it is not.
        fs::rename(folder, &aside).unwrap();
        fs::write(folder, "").unwrap();
        assert_eq!(
            machine
                .service
                .inner
                .storage
                .metadata(&BlobKey::Video { name: blob, version })
                .unwrap_err()
                .kind(),
            ErrorKind::Io
        );
        submit().unwrap();
        fs::remove_file(folder).unwrap();
        assert_eq!(submit().unwrap_err().message(), BLOB_NOT_FOUND);
        fs::rename(&aside, folder).unwrap();
        submit().unwrap();
    }
}
