//! Whether the storage is that of the rows, where it is apart from them. Where it is another one, nothing may be removed there, nothing
//! that is missing is lost, no scene may be put there, and no upload and no job is taken.
//!
//! Rows and storage have the same id. It is drawn when a service first comes to a storage without one, and never changes. So the rows
//! of another service are told from ours by it, however much is in them: those of a trial, say, that was given the address of the
//! storage in use. A storage without an id is told from the one that was given ours, say an empty place at a wrong address, by the files
//! that rows name: a few that came since do not hide that the others are missing.

use std::collections::HashSet;
use std::time::Duration;

use super::Service;
use super::lost_files::{SOME_FILES, key_of, one_missing};
use super::needed::is_needed;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{BlobKind, SERVICE_ID};

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
    /// Why no upload and no job is taken, as was found when the service was opened or last maintained: the storage does not seem to
    /// be that of the rows. Nothing if they are taken. Asks nobody, so that it can be called often.
    pub fn wrong_storage(&self) -> Option<Error> {
        self.inner.refusal.check().err()
    }

    /// Refuses to take an upload or a job where the storage does not seem to be that of the rows.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`], caused by [`WrongStorage`](super::WrongStorage).
    pub(super) fn check_takes_in(&self) -> Result<()> {
        // Who is refused may wait for the answer of a storage; others never do.
        if self.inner.refusal.is_old() {
            self.compare_again();
        }
        self.inner.refusal.check()
    }

    /// Compares the ids of rows and storage: uploads and jobs are taken from now on, or not.
    pub(super) fn compare_again(&self) {
        match self.compare_ids() {
            Ok(()) => self.inner.refusal.note(None),
            Err(error) if error.kind() == ErrorKind::Conflict => self.inner.refusal.note(Some(&error)),
            // What was found before holds.
            Err(error) => log::warn!("whose files are stored: {error:?}"),
        }
    }

    /// Tells rows and storage apart that do not belong together by their ids, and by few files where one of them has none. It takes a
    /// moment, and notes nothing: users wait for what is being opened.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if they do not; the storage's and the database's.
    pub(super) fn compare_ids(&self) -> Result<()> {
        if !self.inner.has_other_machines {
            return Ok(());
        }
        // Whoever draws an id notes it in the rows first.
        let of_files = self.inner.storage.service_id()?;
        match (self.inner.database.service_id()?, of_files) {
            (Some(of_rows), Some(of_files)) => compare(&of_rows, &of_files),
            (Some(of_rows), None) => self.look_for_some_files(&of_rows),
            // New rows beside the files of others, unless they come from before they had an id.
            (None, Some(of_files)) if self.missing_if_all()?.is_some() => {
                let message = format!(
                    "the storage is that of another service, of the id {of_files:?}; the rows have none, and no file is there that they \
                     name: nothing is taken in or removed, and no job is worked on"
                );
                Err(Error::new(ErrorKind::Conflict, message).hint(format!(
                    "see whether one of the addresses of database and storage (--database, --storage) is another service's; if they \
                     belong together, remove {SERVICE_ID} from the storage: it gets the id of the rows then"
                )))
            }
            (None, _) => Ok(()),
        }
    }

    /// Looks whether the storage is that of the rows. One that has no id is given that of the rows, if its files are theirs.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if no file is there that rows name, [`ErrorKind::Conflict`] if the storage is that of another service, or seems
    /// to be; the storage's and the database's.
    pub(super) fn check_storage(&self) -> Result<()> {
        if !self.inner.has_other_machines {
            return Ok(());
        }
        self.look_for_named_files()?;
        let (database, storage) = (&self.inner.database, &self.inner.storage);
        let of_files = storage.service_id()?;
        let noted = database.service_id()?;
        // Both were given it within a moment of each other: a storage without it is rather another one than that which had it.
        if let (Some(of_rows), None) = (&noted, &of_files) {
            self.look_for_some_files(of_rows)?;
        }
        let of_rows = match (noted, &of_files) {
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
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if there is none; the storage's and the database's.
    pub(super) fn look_for_named_files(&self) -> Result<()> {
        match self.missing_if_all()? {
            // One alone may be lost.
            None | Some(0 | 1) => Ok(()),
            Some(missing) => Err(Error::new(
                ErrorKind::Io,
                format!("none of the {missing} files that rows name is there: is the storage mounted?"),
            )
            .hint(
                "see whether the address of the storage is another (--storage); `reconstruct doctor` says more",
            )),
        }
    }

    /// How many of the newest files that rows name were looked for, if none of them is there.
    fn missing_if_all(&self) -> Result<Option<usize>> {
        let mut missing = HashSet::new();
        for named in self.inner.database.newest_files(SOME_FILES)? {
            if self.inner.storage.metadata(&key_of(named.file))?.is_some() {
                return Ok(None);
            }
            missing.insert(named.file);
        }
        if !missing.is_empty() {
            // Whoever deletes a file changes its row first.
            let named = self.inner.database.newest_files(SOME_FILES)?;
            missing.retain(|file| named.iter().any(|named| named.file == *file));
        }
        Ok(Some(missing.len()))
    }

    /// Looks whether some files that rows with the id `of_rows` name are there, in a storage without an id: all of them are, where it
    /// is given that of the rows for the first time.
    fn look_for_some_files(&self, of_rows: &str) -> Result<()> {
        let missing = one_missing(self.inner.database.as_ref(), self.inner.storage.as_ref())?;
        let Some(missing) = missing else { return Ok(()) };
        let message = format!(
            "nothing says whose the stored files are, and {missing}, which rows name, is not among them: nothing is taken in or removed, \
             and no job is worked on"
        );
        Err(Error::new(ErrorKind::Conflict, message).hint(belong_together(of_rows)))
    }
}

fn compare(of_rows: &str, of_files: &str) -> Result<()> {
    if of_rows == of_files {
        return Ok(());
    }
    let message = format!(
        "the storage is that of another service, of the id {of_files:?}; the rows have {of_rows:?}: nothing is taken in or removed, and \
         no job is worked on"
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
    use std::error::Error as _;
    use std::fs;
    use std::sync::{Arc, Mutex};

    use super::super::test_machines::{Asked, World};
    use super::super::test_world::folder;
    use super::super::worker::Worked;
    use super::super::{UploadFacts, WrongStorage};
    use super::*;
    use crate::job::{JobRequest, JobStatus};
    use crate::storage::BlobKey;

    /// A trial with rows of its own: a user, and a job.
    #[test]
    fn the_storage_of_another_service_keeps_its_files_whatever_rows_one_has() {
        let (ours, theirs) = (World::new(), World::new());
        let here = ours.machine();
        let job = here.submit(b"a video");
        assert_eq!(here.work_once().unwrap(), Worked::Done);
        // It waits since before the address was changed. These rows have no id.
        let of_theirs = theirs.machine().submit(b"another video");
        let strange = theirs.machine_over(ours.shared.path());
        let files =
            || BlobKind::ALL.map(|kind| here.service.inner.storage.list(kind, Duration::ZERO).unwrap());
        let before = files();
        for refused in [strange.service.sweep(Duration::ZERO).map(drop), strange.work_once().map(drop)] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
            assert!(error.message().contains("another service") && error.hint_text().is_some(), "{error:?}");
        }
        assert!(matches!(strange.status(of_theirs), JobStatus::Queued { .. }));
        assert_eq!(files(), before);
        // What it took would be removed here as a file of nobody.
        let refused = strange.service.create_upload(strange.user(), "mp4").unwrap_err();
        assert!(refused.source().is_some_and(|cause| cause.is::<WrongStorage>()), "{refused:?}");
        assert!(
            refused.message().contains("another service") && refused.hint_text().is_some(),
            "{refused:?}"
        );
        // Whose it is goes on.
        assert_eq!((here.service.sweep(Duration::ZERO).unwrap(), files()), (0, before));
        assert_eq!(here.status(job), JobStatus::Finished);
        assert_eq!(here.work_once().unwrap(), Worked::Nothing);
    }

    /// The other service was the first to note its id, after this one was opened.
    #[test]
    fn nothing_is_taken_once_the_storage_is_found_to_be_that_of_another_service() {
        let (ours, theirs) = (World::new(), World::new());
        let (here, strange) = (ours.machine(), theirs.machine_over(ours.shared.path()));
        here.submit(b"a video");
        assert_eq!(here.work_once().unwrap(), Worked::Done);
        let (name, unused) = (strange.upload(b"a video"), strange.upload(b"another video"));
        let begun = || strange.service.begin_upload(&unused, UploadFacts::default());
        let mut slow = begun().unwrap();
        slow.append(b"a video that takes long").unwrap();
        strange.service.check_storage().unwrap_err();
        assert!(
            strange.service.wrong_storage().is_none(),
            "it is asked now and then, and not by each request"
        );
        strange.service.maintain().unwrap();
        let told = strange.service.wrong_storage().unwrap();
        assert!(told.message().contains("another service"), "{told:?}");
        let request = JobRequest::new(name);
        for refused in [
            strange.service.create_upload(strange.user(), "mp4").map(drop),
            strange.service.create_patient_upload(strange.user(), "mp4").map(drop),
            begun().map(drop),
            strange.service.append_anew(&unused, None, UploadFacts::default()).map(drop),
            slow.finish().map(drop),
            strange.service.submit(strange.user(), request.clone(), None).map(drop),
        ] {
            let error = refused.unwrap_err();
            assert_eq!((error.kind(), error.message()), (ErrorKind::Conflict, told.message()));
        }
        // The operator has put it right.
        let id = strange.service.inner.database.service_id().unwrap().unwrap();
        fs::write(ours.shared.path().join(SERVICE_ID), id).unwrap();
        strange.service.maintain().unwrap();
        strange.service.submit(strange.user(), request, None).unwrap();
        assert!(strange.service.wrong_storage().is_none());
    }

    /// The address of the storage was changed to an empty place, to which something comes before anybody notices.
    #[test]
    fn a_storage_without_an_id_is_not_taken_for_the_one_that_was_given_it() {
        let world = World::new();
        let here = world.machine();
        here.service.check_storage().unwrap();
        let empty = folder();
        let there = world.machine_over(empty.path());
        let job = here.submit(b"a video");
        let newer = [(); 2].map(|()| there.submit(b"a newer video"));
        let looks = [there.service.look_for_waiting_videos().map(drop), there.work_once().map(drop)];
        for refused in looks.into_iter().chain([there.service.sweep(Duration::ZERO).map(drop)]) {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
            assert!(error.hint_text().is_some_and(|hint| hint.contains(SERVICE_ID)), "{error:?}");
        }
        assert!(
            [job, newer[0], newer[1]].iter().all(|job| matches!(here.status(*job), JobStatus::Queued { .. }))
        );
        assert!(!empty.path().join(SERVICE_ID).exists());
        // Whoever opens it now takes nothing, nor does this one from its next look on.
        let another = world.machine_over(empty.path());
        assert!(another.service.create_upload(another.user(), "mp4").is_err());
        there.service.maintain().unwrap();
        assert!(there.service.create_upload(there.user(), "mp4").is_err());
        // In the right place the first is done.
        assert_eq!(here.work_once().unwrap(), Worked::Done);
        assert_eq!(here.status(job), JobStatus::Finished);
    }

    /// It was killed after it had noted the id in the rows, or somebody removed what says whose the files are.
    #[test]
    fn a_storage_that_has_all_files_is_given_its_id_again() {
        let world = World::new();
        let here = world.machine();
        here.submit(b"a video");
        assert_eq!(here.work_once().unwrap(), Worked::Done);
        let gone = here.submit(b"a video that is deleted");
        let note = world.shared.path().join(SERVICE_ID);
        let id = fs::read_to_string(&note).unwrap();
        fs::remove_file(&note).unwrap();
        here.service.compare_ids().unwrap();
        here.service.delete(here.user(), gone).unwrap();
        here.service.check_storage().unwrap();
        assert_eq!(fs::read_to_string(&note).unwrap(), id);
        // Where files are missing, too, somebody has to say that it is the right one.
        let waits = here.upload(b"a video that is lost");
        here.service.submit(here.user(), JobRequest::new(waits), None).unwrap();
        let version = here.service.uploaded_video(here.user(), &waits).unwrap().version;
        let lost = BlobKey::Video { name: waits, version };
        here.service.inner.storage.delete(&lost).unwrap();
        fs::remove_file(&note).unwrap();
        for refused in [here.service.compare_ids(), here.service.check_storage()] {
            let error = refused.unwrap_err();
            assert!(error.message().contains(&lost.to_string()), "{error:?}");
            assert!(error.hint_text().is_some_and(|hint| hint.contains(id.trim())), "{error:?}");
        }
        fs::write(&note, id).unwrap();
        here.service.check_storage().unwrap();
    }

    /// Somebody deletes all there is in that moment.
    #[test]
    fn files_that_no_row_names_any_more_are_not_missing() {
        let world = World::new();
        let there = world.machine();
        let jobs = [(); 2].map(|()| there.submit(b"a video"));
        let (user, deletes) = (there.user(), Arc::<Mutex<Option<Service>>>::default());
        let once = deletes.clone();
        let here = world.machine_that_hears(move |asked, _| {
            let service = if asked == Asked::Find { once.lock().unwrap().take() } else { None };
            service.map_or(Ok(()), |service| jobs.iter().try_for_each(|job| service.delete(user, *job)))
        });
        *deletes.lock().unwrap() = Some(there.service.clone());
        here.service.look_for_named_files().unwrap();
        assert!(
            deletes.lock().unwrap().is_none()
                && there.service.inner.database.deleted_jobs().unwrap().is_empty()
        );
        // Those that rows still name are.
        for _ in 0..2 {
            let name = there.upload(b"a video that is lost");
            there.service.submit(user, JobRequest::new(name), None).unwrap();
            let version = there.service.uploaded_video(user, &name).unwrap().version;
            there.service.inner.storage.delete(&BlobKey::Video { name, version }).unwrap();
        }
        assert_eq!(here.service.look_for_named_files().unwrap_err().kind(), ErrorKind::Io);
    }

    #[test]
    fn a_new_service_takes_a_storage_without_files() {
        let world = World::new();
        let (first, second) = (world.machine(), world.machine());
        // One was killed between the rows and the storage.
        let id = first.service.inner.database.note_service_id("0b5c").unwrap();
        first.service.compare_ids().unwrap();
        let job = first.submit(b"a video");
        assert_eq!(second.work_once().unwrap(), Worked::Done);
        assert_eq!(second.service.inner.storage.service_id().unwrap(), Some(id));
        assert_eq!(first.status(job), JobStatus::Finished);
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
