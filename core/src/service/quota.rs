//! What one user may store (rule 22 of docs/rest.md): a submission beyond it is refused by the database, a transfer here. So a
//! video that is never submitted, or blocks that are never put together, take no more of the disk than one that is.

use super::Service;
use super::block_names::announcement;
use super::upload_writer::Target;
use crate::error::{Error, Result};
use crate::job::BlobName;

impl Service {
    /// Refuses a transfer of a user who stores more than is allowed already. One that is begun with less may end with more,
    /// as nobody needs to say beforehand how large a video is: its submission tells of it then, and the next transfer.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for such a transfer; [`NotFound`](crate::ErrorKind::NotFound) and
    /// [`Conflict`](crate::ErrorKind::Conflict) if the upload is gone or used; the database's and the storage's.
    pub(super) fn check_stored(&self, name: &BlobName, target: &Target) -> Result<()> {
        let Some(most) = self.limits().max_stored_bytes else { return Ok(()) };
        let upload = self.unused_upload(name)?;
        let stored = self.inner.database.usage(upload.user)?.stored_bytes;
        // A video takes the place of what was sent to its address before, whole or in blocks.
        let replaced = match target {
            Target::Video { .. } => {
                let whole = upload.video.as_ref().map_or(0, |video| video.size);
                whole.saturating_add(self.waiting_bytes(name)?)
            }
            Target::Block => 0,
        };
        let others = stored.saturating_sub(replaced);
        if others <= most {
            return Ok(());
        }
        Err(Error::argument(format!("{others} bytes are stored; {most} are allowed")).hint(
            "delete jobs that are no longer needed; videos that were sent and not submitted go by themselves after a while",
        ))
    }

    /// Bytes of blocks of the upload that wait for their list.
    fn waiting_bytes(&self, name: &BlobName) -> Result<u64> {
        let blocks = self.inner.storage.blocks(name)?;
        Ok(blocks.into_iter().filter(|(key, _)| *key != announcement(name)).map(|(_, size)| size).sum())
    }

    /// Counts the blocks of the upload anew.
    pub(super) fn count_waiting_bytes(&self, name: &BlobName) -> Result<()> {
        self.inner.block_counts.forget(name);
        let bytes = self.waiting_bytes(name)?;
        self.inner.database.note_waiting_bytes(name, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ServiceOptions;
    use super::super::test_world::World;
    use super::super::upload_facts::UploadFacts;
    use super::*;
    use crate::control::CancelToken;
    use crate::error::ErrorKind;
    use crate::job::Limits;

    /// Anna may store 100 bytes.
    fn world() -> World {
        let limits = Limits { max_stored_bytes: Some(100), ..Limits::default() };
        World::with(ServiceOptions { limits, min_free_bytes: 0, ..ServiceOptions::default() })
    }

    fn name(w: &World) -> BlobName {
        w.service.create_upload(w.anna, "mp4").unwrap().blob_name
    }

    fn send(w: &World, name: &BlobName, size: usize) -> Result<String> {
        let mut writer = w.service.begin_upload(name, UploadFacts::default())?;
        writer.append(&vec![0; size])?;
        writer.finish()
    }

    fn put(w: &World, name: &BlobName, id: &str, size: usize) -> Result<String> {
        let mut writer = w.service.put_block(name, id, UploadFacts::default())?;
        writer.append(&vec![0; size])?;
        writer.finish()
    }

    fn is_refused<T>(sent: Result<T>, stored: u64) {
        let error = sent.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().starts_with(&format!("{stored} bytes are stored; 100 are")), "{error}");
    }

    fn stored(w: &World) -> u64 {
        w.service.usage(w.anna).unwrap().stored_bytes
    }

    #[test]
    fn videos_that_are_never_submitted_are_bounded() {
        let w = world();
        let (first, second, third) = (name(&w), name(&w), name(&w));
        send(&w, &first, 60).unwrap();
        send(&w, &second, 60).unwrap();
        is_refused(send(&w, &third, 1), 120);
        is_refused(put(&w, &third, "a", 1), 120);
        // What takes the place of another is measured by the others.
        send(&w, &second, 30).unwrap();
        send(&w, &third, 1).unwrap();
        assert_eq!(stored(&w), 91);
        // Others have their own.
        let eve = w.service.create_upload(w.eve, "mp4").unwrap().blob_name;
        send(&w, &eve, 60).unwrap();
    }

    #[test]
    fn transfers_at_once_do_not_all_end() {
        let w = world();
        let mut open: Vec<_> =
            (0..4).map(|_| w.service.begin_upload(&name(&w), UploadFacts::default()).unwrap()).collect();
        for writer in &mut open {
            writer.append(&[0; 90]).unwrap();
        }
        let (ended, refused): (Vec<_>, Vec<_>) =
            open.into_iter().map(|writer| writer.finish()).partition(Result::is_ok);
        assert_eq!((ended.len(), refused.len(), stored(&w)), (2, 2, 180));
    }

    #[test]
    fn blocks_count_from_when_they_have_come_until_they_are_gone() {
        let w = world();
        let (first, second) = (name(&w), name(&w));
        put(&w, &first, "a", 60).unwrap();
        put(&w, &first, "a", 50).unwrap();
        put(&w, &second, "b", 60).unwrap();
        assert_eq!(stored(&w), 110);
        is_refused(put(&w, &first, "c", 1), 110);
        is_refused(send(&w, &name(&w), 1), 110);
        // What lies there can still be put together: that needs no more room.
        let ids = ["a".to_owned()];
        w.service.commit_blocks(&first, &ids, UploadFacts::default(), &CancelToken::new()).unwrap();
        assert_eq!(stored(&w), 110);
        // What was begun and is given up counts no more.
        w.service.forget_arrived(&second).unwrap();
        assert_eq!(stored(&w), 50);
        let mut appending = w.service.append_anew(&second, Some(200), UploadFacts::default()).unwrap();
        appending.append(&[0; 60]).unwrap();
        assert_eq!((appending.store().unwrap(), stored(&w)), (60, 110));
        drop(appending);
        is_refused(send(&w, &name(&w), 1), 110);
        let once = w.service.append(&second, 60, None, UploadFacts::default()).unwrap();
        let super::super::appending::Appended::Begun(mut more) = once else { panic!("not begun") };
        is_refused(more.append(&[0; 1]), 110);
    }
}
