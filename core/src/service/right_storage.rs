//! Whether the storage is that of the rows, where it is apart from them. Where it is another one, nothing may be removed there, nothing
//! that is missing is lost, and no scene may be put there.
//!
//! Rows and storage have the same id. It is drawn when a service first comes to a storage without one, and never changes. So the rows
//! of another service are told from ours by it, however much is in them: those of a trial, say, that was given the address of the
//! storage in use.

use std::collections::HashSet;
use std::time::Duration;

use super::Service;
use super::lost_files::key_of;
use super::needed::is_needed;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{BlobKind, SERVICE_ID};

/// Of so many videos and artifacts at most it is looked whether any is there.
const SOME_FILES: u32 = 16;
/// Of so many stored files, from all over the list, it is asked whether rows name them.
const SAMPLE: usize = 100;

/// Whose the files of a storage are that does not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// There is none.
    Nobody,
    /// Rows name most of them.
    Us,
    Others,
}

impl Service {
    /// Tells rows and storage apart that have different ids. It takes a moment, and notes nothing: users wait for what is being opened.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if they have; the storage's and the database's.
    pub(super) fn compare_ids(&self) -> Result<()> {
        if !self.inner.has_other_machines {
            return Ok(());
        }
        match (self.inner.database.service_id()?, self.inner.storage.service_id()?) {
            (Some(of_rows), Some(of_files)) => compare(&of_rows, &of_files),
            _ => Ok(()),
        }
    }

    /// Looks whether the storage is that of the rows. One that has no id is given that of the rows, if its files are theirs.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if no file is there that rows name, [`ErrorKind::Conflict`] if the storage is that of another service, or its
    /// files seem to be; the storage's and the database's.
    pub(super) fn check_storage(&self) -> Result<()> {
        if !self.inner.has_other_machines {
            return Ok(());
        }
        self.look_for_named_files()?;
        let (database, storage) = (&self.inner.database, &self.inner.storage);
        let of_files = storage.service_id()?;
        let of_rows = match (database.service_id()?, &of_files) {
            (Some(id), _) => id,
            // Rows that came back from a time before they had one.
            (None, Some(id)) if self.owner_of_files()? == Owner::Us => database.note_service_id(id)?,
            (None, _) => database.note_service_id(&uuid::Uuid::new_v4().to_string())?,
        };
        if let Some(id) = of_files {
            return compare(&of_rows, &id);
        }
        // As long as it says nothing, the first to come may be the wrong one.
        if !self.may_take_files()? {
            let message =
                "nothing says whose the stored files are, and rows name few of them: nothing is removed";
            return Err(Error::new(ErrorKind::Conflict, message).hint(belong_together(&of_rows)));
        }
        storage.note_service_id(&of_rows)?;
        // Another service may have come in the same moment.
        compare(&of_rows, &storage.service_id()?.unwrap_or_default())
    }

    /// Whether the stored files, which do not say whose they are, do not seem to be those of others. To look costs a list of all of
    /// them: after a no it is done again in an hour.
    fn may_take_files(&self) -> Result<bool> {
        let looks = &self.inner.owner_looks;
        if !looks.are_due(Duration::ZERO) {
            return Ok(false);
        }
        let is_others = self.owner_of_files()? == Owner::Others;
        if is_others {
            looks.note();
        }
        Ok(!is_others)
    }

    /// What rows say of some of the stored files.
    fn owner_of_files(&self) -> Result<Owner> {
        let mut keys = Vec::new();
        for kind in BlobKind::ALL {
            keys.extend(self.inner.storage.list(kind, Duration::ZERO)?);
        }
        let (mut looked_at, mut needed) = (0, 0);
        for key in keys.iter().step_by(keys.len() / SAMPLE + 1) {
            looked_at += 1;
            needed += u64::from(is_needed(self.inner.database.as_ref(), key)?);
        }
        Ok(match looked_at {
            0 => Owner::Nobody,
            all if 2 * needed >= all => Owner::Us,
            _ => Owner::Others,
        })
    }

    /// Looks whether any of some files that rows name is there. Files are lost one by one: where there is none at all, a folder is not
    /// mounted that can be written to all the same, or the address of the storage is another.
    fn look_for_named_files(&self) -> Result<()> {
        let mut missing = HashSet::new();
        for named in self.inner.database.newest_files(SOME_FILES)? {
            if self.inner.storage.metadata(&key_of(named.file))?.is_some() {
                return Ok(());
            }
            missing.insert(named.file);
        }
        // One alone may be lost.
        if missing.len() < 2 {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Io,
            format!("none of the {} files that rows name is there: is the storage mounted?", missing.len()),
        )
        .hint(
            "see whether the address of the storage is another (--storage); `reconstruct doctor` says more",
        ))
    }
}

fn compare(of_rows: &str, of_files: &str) -> Result<()> {
    if of_rows == of_files {
        return Ok(());
    }
    let message = format!(
        "the storage is that of another service, of the id {of_files:?}; the rows have {of_rows:?}: nothing is removed, and no job is \
         worked on"
    );
    Err(Error::new(ErrorKind::Conflict, message).hint(belong_together(of_rows)))
}

/// What to do where rows and storage do not seem to.
fn belong_together(of_rows: &str) -> String {
    format!(
        "see whether one of the addresses of database and storage (--database, --storage) is another service's; if they belong \
         together, store the text {of_rows} under the name {SERVICE_ID} in the storage"
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::test_machines::World;
    use super::super::worker::Worked;
    use super::*;
    use crate::job::JobStatus;

    /// A trial with rows of its own: a user, and a job.
    #[test]
    fn the_storage_of_another_service_keeps_its_files_whatever_rows_one_has() {
        let (ours, theirs) = (World::new(), World::new());
        let here = ours.machine();
        let job = here.submit(b"a video");
        assert_eq!(here.work_once().unwrap(), Worked::Done);
        let strange = theirs.machine_over(ours.shared.path());
        let files =
            || BlobKind::ALL.map(|kind| here.service.inner.storage.list(kind, Duration::ZERO).unwrap());
        let before = files();
        let of_theirs = strange.submit(b"another video");
        for refused in [strange.service.sweep(Duration::ZERO).map(drop), strange.work_once().map(drop)] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
            assert!(error.message().contains("another service") && error.hint_text().is_some(), "{error:?}");
        }
        assert!(matches!(strange.status(of_theirs), JobStatus::Queued { .. }));
        let after = files();
        assert!(
            before.iter().zip(&after).all(|(before, after)| before.iter().all(|key| after.contains(key)))
        );
        // Whose it is goes on.
        assert_eq!((here.service.sweep(Duration::ZERO).unwrap(), files()), (1, before));
        assert_eq!(here.status(job), JobStatus::Finished);
        assert_eq!(here.work_once().unwrap(), Worked::Nothing);
    }

    /// The trial is the first that has a version with ids.
    #[test]
    fn a_storage_that_does_not_say_whose_it_is_is_taken_by_whom_its_files_belong_to() {
        let (ours, theirs) = (World::new(), World::new());
        let here = ours.machine();
        here.submit(b"a video");
        assert_eq!(here.work_once().unwrap(), Worked::Done);
        let note = ours.shared.path().join(SERVICE_ID);
        let id = fs::read_to_string(&note).unwrap();
        fs::remove_file(&note).unwrap();
        let strange = theirs.machine_over(ours.shared.path());
        assert_eq!(strange.service.inner.database.service_id().unwrap(), None, "to open it lists no files");
        strange.submit(b"another video");
        let refused = strange.service.sweep(Duration::ZERO).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        let own = strange.service.inner.database.service_id().unwrap().unwrap();
        assert!(refused.hint_text().is_some_and(|hint| hint.contains(&own)), "{refused:?}");
        assert!(!note.exists());
        here.service.sweep(Duration::ZERO).unwrap();
        assert_eq!(fs::read_to_string(&note).unwrap(), id);
        assert!(strange.service.sweep(Duration::ZERO).unwrap_err().message().contains("another service"));
    }

    /// Each worker asks every minute.
    #[test]
    fn the_files_of_others_are_listed_once_an_hour() {
        let (ours, theirs) = (World::new(), World::new());
        let here = ours.machine();
        here.submit(b"a video");
        assert_eq!(here.work_once().unwrap(), Worked::Done);
        let note = ours.shared.path().join(SERVICE_ID);
        fs::remove_file(&note).unwrap();
        let strange = theirs.machine_over(ours.shared.path());
        let check = || strange.service.check_storage().map_err(|error| error.kind());
        assert_eq!(check(), Err(ErrorKind::Conflict));
        let storage = &here.service.inner.storage;
        for key in BlobKind::ALL.into_iter().flat_map(|kind| storage.list(kind, Duration::ZERO).unwrap()) {
            storage.delete(&key).unwrap();
        }
        assert_eq!(check(), Err(ErrorKind::Conflict), "it is not looked whether they are still there");
        strange.service.inner.owner_looks.look_again();
        assert_eq!(check(), Ok(()));
        assert!(note.exists());
    }

    #[test]
    fn rows_from_before_they_had_an_id_take_that_of_their_files() {
        let world = World::new();
        let here = world.machine();
        here.submit(b"a video");
        here.service.check_storage().unwrap();
        let id = here.service.inner.database.service_id().unwrap();
        assert!(id.is_some());
        let rows = rusqlite::Connection::open(world.shared.path().join("jobs.db")).unwrap();
        assert_eq!(rows.execute("DELETE FROM service_id", []).unwrap(), 1);
        let again = world.machine();
        again.service.check_storage().unwrap();
        assert_eq!(again.service.inner.database.service_id().unwrap(), id);
        assert_eq!(again.service.sweep(Duration::ZERO).unwrap(), 0);
        // New ones, beside files that they do not name, do not.
        let other_world = World::new();
        let others = other_world.machine_over(world.shared.path());
        assert_eq!(others.service.check_storage().unwrap_err().kind(), ErrorKind::Conflict);
        let own = others.service.inner.database.service_id().unwrap();
        assert!(own.is_some() && own != id, "{own:?}");
        // To open it is enough to be told from then on.
        assert_eq!(others.service.compare_ids().unwrap_err().kind(), ErrorKind::Conflict);
        again.service.compare_ids().unwrap();
    }
}
