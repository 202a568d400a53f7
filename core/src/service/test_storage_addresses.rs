//! A storage that takes videos from clients, and gives them scenes, at addresses of its own; and what becomes of jobs whose videos
//! it has lost.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::job_changes::hearing;
use super::test_machines::{ANNOUNCED, Machine, World};
use super::test_world::SmallScenes;
use super::worker::Worked;
use super::{Idempotency, UploadFacts};
use crate::control::CancelToken;
use crate::error::{Error, ErrorKind, Result};
use crate::job::{
    ArtifactKind, BLOB_NOT_FOUND, BlobName, Failure, JobId, JobRequest, JobState, JobStatus, ListQuery,
};
use crate::storage::{BlobKey, BlobKind, DownloadAnswer};

/// Takes for a video what begins with the right words.
fn look(path: &Path, _: Duration) -> Result<()> {
    match fs::read(path).unwrap().starts_with(b"a video") {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::InvalidMedia, "no video")),
    }
}

impl Machine {
    fn address(&self) -> BlobName {
        let ticket = self.service.create_upload(self.user(), "mp4").unwrap();
        let address = ticket.address.unwrap();
        let expected = format!("far://{}?for=7200", BlobKey::Incoming { name: ticket.blob_name });
        assert_eq!((address.url, address.headers), (expected, vec![("x-far", "1")]));
        ticket.blob_name
    }

    /// What a client does: no server sees it.
    fn put(&self, name: &BlobName, bytes: &[u8]) {
        let mut blob = self.service.inner.storage.create(&BlobKey::Incoming { name: *name }).unwrap();
        blob.write_all(bytes).unwrap();
        blob.commit().unwrap();
    }

    fn submit_sent(&self, name: &BlobName) -> Result<JobId> {
        Ok(self.service.submit(self.user(), JobRequest::new(*name), None)?.body.job_id)
    }

    fn files(&self, kind: BlobKind) -> Vec<BlobKey> {
        self.service.inner.storage.list(kind, Duration::ZERO).unwrap()
    }

    fn content(&self, name: &BlobName) -> Vec<u8> {
        let version = self.service.uploaded_video(self.user(), name).unwrap().version;
        let (mut bytes, key) = (Vec::new(), BlobKey::Video { name: *name, version });
        self.service.open_blob(&key).unwrap().file.read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn lose_video(&self, name: &BlobName) {
        let version = self.service.uploaded_video(self.user(), name).unwrap().version;
        self.service.inner.storage.delete(&BlobKey::Video { name: *name, version }).unwrap();
    }
}

#[test]
fn what_was_sent_to_the_storage_is_what_the_job_works_on() {
    let world = World::new();
    let (here, there) = (world.machine_that_looks(look), world.machine());
    let name = here.address();
    assert_eq!(here.submit_sent(&name).unwrap_err().message(), BLOB_NOT_FOUND);
    here.put(&name, b"a video, half");
    here.put(&name, b"a video");
    let stranger = there.service.add_user("eve", crate::job::Tier::Enterprise).unwrap().user_id;
    let foreign = there.service.submit(stranger, JobRequest::new(name), None).unwrap_err();
    assert_eq!(foreign.message(), BLOB_NOT_FOUND);
    assert_eq!(here.files(BlobKind::Video), []);

    let job = here.submit_sent(&name).unwrap();
    let shown = here.service.job(here.user(), job).unwrap();
    assert_eq!(shown.title, ANNOUNCED.rsplit('/').next().unwrap());
    assert_eq!(here.files(BlobKind::Incoming), []);
    let video = here.service.uploaded_video(here.user(), &name).unwrap();
    assert_eq!((video.size, video.sha256), (7, None));
    // The address is still good, and leads to nothing that counts.
    here.put(&name, b"something else");
    assert_eq!(here.content(&name), b"a video");
    let second = there.submit_sent(&name).unwrap();
    assert_eq!(there.content(&name), b"a video");
    assert_eq!((there.work_once().unwrap(), there.work_once().unwrap()), (Worked::Done, Worked::Done));
    assert_eq!([here.status(job), here.status(second)], [JobStatus::Finished; 2]);
    here.service.sweep(Duration::ZERO).unwrap();
    assert_eq!((here.files(BlobKind::Incoming), here.files(BlobKind::Video).len()), (vec![], 1));
    for job in [job, second] {
        here.service.delete(here.user(), job).unwrap();
    }
    assert_eq!(BlobKind::ALL.map(|kind| here.files(kind).len()), [0; 5]);
}

#[test]
fn what_is_no_video_is_refused_and_another_one_may_take_its_place() {
    let world = World::new();
    let here = world.machine_that_looks(look);
    let name = here.address();
    here.put(&name, b"a poem");
    for _ in 0..2 {
        assert_eq!(here.submit_sent(&name).unwrap_err().message(), "Invalid file format");
        assert_eq!((here.files(BlobKind::Video), here.work()), (vec![], 0));
    }
    here.put(&name, b"a video at last");
    here.submit_sent(&name).unwrap();
    assert_eq!(here.content(&name), b"a video at last");
}

/// Who comes back after days sends through the server: no store would sign for that long.
#[test]
fn a_patient_upload_asks_the_storage_for_no_address() {
    let world = World::new();
    let here = world.machine_with(look, |options| {
        options.limits.upload_lifetime_minutes = 30 * 24 * 60;
        options.limits.upload_retention_hours = 30 * 24;
    });
    assert!(here.service.create_upload(here.user(), "mp4").unwrap_err().message().contains("a week"));
    let ticket = here.service.create_patient_upload(here.user(), "mp4").unwrap();
    assert_eq!(ticket.address, None);
    let mut writer = here.service.begin_upload(&ticket.blob_name, UploadFacts::default()).unwrap();
    writer.append(b"a video").unwrap();
    writer.finish().unwrap();
    here.submit_sent(&ticket.blob_name).unwrap();
    assert_eq!(here.content(&ticket.blob_name), b"a video");
}

#[test]
fn what_is_too_large_is_refused_and_removed() {
    let world = World::new();
    let here = world.machine_with(look, |options| options.limits.max_upload_bytes = 10);
    let name = here.address();
    here.put(&name, b"a video of eleven bytes and more");
    assert_eq!(here.submit_sent(&name).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(BlobKind::ALL.map(|kind| here.files(kind).len()), [0; 5]);
    assert_eq!(here.submit_sent(&name).unwrap_err().message(), BLOB_NOT_FOUND);
    here.put(&name, b"a video");
    here.submit_sent(&name).unwrap();
}

#[test]
fn quotas_count_what_came_to_the_storage() {
    let world = World::new();
    let here = world.machine_with(look, |options| options.limits.max_stored_bytes = Some(20));
    let name = here.address();
    here.put(&name, b"a video that is far too long");
    let refused = here.submit_sent(&name).unwrap_err();
    assert!(refused.message().contains("28 bytes are stored; 20 are allowed"), "{refused}");
    // Nothing is lost by it, and nothing more is stored by trying again.
    assert!(here.submit_sent(&name).is_err());
    assert_eq!((here.files(BlobKind::Video).len(), here.files(BlobKind::Incoming).len()), (1, 1));
    here.put(&name, b"a video, shorter");
    here.submit_sent(&name).unwrap();
    assert_eq!(here.content(&name), b"a video, shorter");
    assert_eq!((here.files(BlobKind::Video).len(), here.files(BlobKind::Incoming).len()), (1, 0));
}

#[test]
fn submissions_at_once_all_succeed_and_leave_one_video() {
    let world = World::new();
    let machines: Vec<Machine> = (0..3).map(|_| world.machine_that_looks(look)).collect();
    let here = &machines[0];
    let user = here.user();
    for round in 0..8 {
        let name = here.address();
        here.put(&name, b"a video");
        // One half with a key: however often it is asked, there is one job.
        let key = |_| Idempotency { key: format!("key {round}"), body_hash: [1; 32] };
        let with_key = (round % 2 == 0).then_some(()).map(key);
        let mut jobs: Vec<JobId> = thread::scope(|scope| {
            let submit = |machine: &Machine| {
                let request = JobRequest::new(name);
                machine.service.submit(user, request, with_key.clone()).unwrap().body.job_id
            };
            let all: Vec<_> = machines.iter().map(|machine| scope.spawn(move || submit(machine))).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        jobs.sort();
        jobs.dedup();
        assert_eq!(jobs.len(), if with_key.is_some() { 1 } else { 3 });
        assert_eq!(here.content(&name), b"a video");
        assert_eq!((here.files(BlobKind::Video).len(), here.files(BlobKind::Incoming).len()), (1, 0));
        for _ in &jobs {
            assert_eq!(here.work_once().unwrap(), Worked::Done);
        }
        for job in jobs {
            here.service.delete(user, job).unwrap();
        }
        assert_eq!(BlobKind::ALL.map(|kind| here.files(kind).len()), [0; 5]);
    }
}

/// A server is killed after each step; another one goes on.
#[test]
fn whatever_step_was_the_last_nothing_is_lost_and_nothing_stays() {
    let world = World::new();
    let (here, there) = (world.machine_that_looks(look), world.machine_that_looks(look));
    let name = here.address();
    here.put(&name, b"a video");
    // After the copy.
    let (from, to) = (BlobKey::Incoming { name }, BlobKey::Video { name, version: 7 });
    here.service.inner.storage.copy(&from, &to).unwrap();
    there.service.sweep(Duration::ZERO).unwrap();
    assert_eq!((there.files(BlobKind::Video), there.files(BlobKind::Incoming)), (vec![], vec![from]));
    // After it was taken in; the client, without an answer, sends a better one.
    here.service.take_in(here.user(), &name, |_| Ok(())).unwrap().unwrap();
    there.service.sweep(Duration::ZERO).unwrap();
    assert_eq!((there.files(BlobKind::Video).len(), there.files(BlobKind::Incoming).len()), (1, 1));
    there.put(&name, b"a video, better");
    let job = there.submit_sent(&name).unwrap();
    assert_eq!(there.content(&name), b"a video, better");
    // After the job was added, before what was sent was removed.
    there.put(&name, b"a video, better");
    there.service.sweep(Duration::ZERO).unwrap();
    assert_eq!((there.files(BlobKind::Video).len(), there.files(BlobKind::Incoming).len()), (1, 0));
    assert_eq!(there.work_once().unwrap(), Worked::Done);
    assert_eq!(here.status(job), JobStatus::Finished);
}

#[test]
fn what_nobody_submits_goes_with_its_upload() {
    let world = World::new();
    let here = world.machine();
    let name = here.address();
    here.put(&name, b"a video");
    here.service.sweep(Duration::ZERO).unwrap();
    assert_eq!(here.files(BlobKind::Incoming).len(), 1);
    world.clock.advance(25 * 3600);
    here.service.remove_deleted().unwrap();
    assert_eq!(here.files(BlobKind::Incoming), []);
    assert_eq!(here.submit_sent(&name).unwrap_err().message(), BLOB_NOT_FOUND);
}

#[test]
fn a_video_may_also_come_through_the_server() {
    let world = World::new();
    let here = world.machine_that_looks(look);
    let name = here.address();
    here.put(&name, b"a video sent there");
    let facts = super::UploadFacts { file_name: Some("b.mp4".into()), ..super::UploadFacts::default() };
    let mut writer = here.service.begin_upload(&name, facts).unwrap();
    writer.append(b"a video sent here").unwrap();
    writer.finish().unwrap();
    assert_eq!(here.files(BlobKind::Incoming), [], "the last complete transfer counts");
    let job = here.submit_sent(&name).unwrap();
    assert_eq!(here.content(&name), b"a video sent here");
    assert_eq!(here.service.job(here.user(), job).unwrap().title, "b.mp4");
}

#[test]
fn scenes_have_addresses_of_the_storage() {
    let world = World::new();
    let here = world.machine();
    let job = here.submit(b"a video");
    here.work_once().unwrap();
    let ply = here.service.artifact(here.user(), job, ArtifactKind::Ply).unwrap();
    let (lifetime, answer) =
        (Duration::from_secs(900), DownloadAnswer { content_type: "a/b", content_disposition: None });
    let address = here.service.artifact_address(&ply, lifetime, &answer).unwrap().unwrap();
    assert_eq!(address, format!("far://{}?for=900&as=a/b", ply.key));
    let folder = super::test_world::World::new();
    let job = folder.finished(folder.anna);
    let ply = folder.service.artifact(folder.anna, job, ArtifactKind::Ply).unwrap();
    assert_eq!(folder.service.artifact_address(&ply, lifetime, &answer).unwrap(), None);
    assert_eq!(folder.service.create_upload(folder.anna, "mp4").unwrap().address, None);
}

/// Rule 82 of docs/rest.md.
#[test]
fn a_job_whose_video_is_missing_is_not_found() {
    let world = World::new();
    let here = world.machine();
    let user = here.user();
    let name = here.upload(b"a video");
    let jobs = [(); 2].map(|()| here.submit_sent(&name).unwrap());
    let other = here.submit(b"another video");
    hearing::begin();
    here.service.look_for_waiting_videos().unwrap();
    assert!(matches!(here.status(jobs[0]), JobStatus::Queued { position: Some(1) }));
    here.lose_video(&name);
    // The worker that takes up the first finds out, for all that wait for it.
    assert_eq!(here.work_once().unwrap(), Worked::Done);
    for job in jobs {
        let shown = here.service.job(user, job).unwrap();
        assert_eq!((shown.status, shown.status.to_string().as_str()), (JobStatus::NotFound, "Not found"));
        let failure = shown.details.failure.unwrap();
        assert_eq!(failure.code, Failure::VIDEO_MISSING);
        assert!(failure.message.contains("upload it again"), "{}", failure.message);
        assert_eq!(here.service.cancel(user, job).unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(here.service.job(user, job).unwrap().status, JobStatus::NotFound);
    }
    assert!(matches!(here.status(other), JobStatus::Queued { position: Some(1) }));
    let listed = |status| {
        let query = ListQuery { status: Some(status), ..ListQuery::default() };
        here.service.list(user, &query).unwrap().jobs.len()
    };
    assert_eq!((listed(JobState::NotFound), listed(JobState::Failed), listed(JobState::Queued)), (2, 0, 1));
    // Of one that waits it is found out before its turn comes.
    let (first, second) = (here.upload(b"first"), here.upload(b"second"));
    let waiting = [first, second].map(|name| here.submit_sent(&name).unwrap());
    here.lose_video(&second);
    assert_eq!(here.service.look_for_waiting_videos().unwrap(), 1);
    assert!(matches!(here.status(waiting[0]), JobStatus::Queued { .. }));
    assert_eq!(here.status(waiting[1]), JobStatus::NotFound);
    // Each end is told once, whoever has found out.
    for (job, more) in [(jobs[0], true), (jobs[1], false), (waiting[1], false), (waiting[0], false)] {
        let told = hearing::of(job, "failed");
        let expected = format!("job {job}: failed (video_missing)");
        assert_eq!(told.len(), usize::from(job != waiting[0]), "{told:?}");
        assert!(
            told.iter().all(|t| if more { t.starts_with(&expected) } else { *t == expected }),
            "{told:?}"
        );
    }
    here.service.delete(user, waiting[1]).unwrap();
    assert_eq!(here.service.job(user, waiting[1]).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_storage_that_is_away_has_lost_nothing() {
    let world = World::new();
    let here = world.machine();
    let job = here.submit(b"a video");
    // As if it were not mounted.
    let (videos, staged) = (world.shared.path().join("videos"), world.shared.path().join("staged"));
    let aside = world.shared.path().join("aside");
    fs::rename(&videos, &aside).unwrap();
    fs::remove_dir_all(&staged).unwrap();
    fs::write(&staged, "").unwrap();
    assert!(here.service.look_for_waiting_videos().is_err());
    assert!(here.work_once().is_err());
    fs::remove_file(&staged).unwrap();
    fs::rename(&aside, &videos).unwrap();
    fs::create_dir(&staged).unwrap();
    assert!(matches!(here.status(job), JobStatus::Queued { .. }));
    assert_eq!(here.work_once().unwrap(), Worked::Done);
    assert_eq!(here.status(job), JobStatus::Finished);
}

/// A folder that is not mounted, or another one, can be written to all the same.
#[test]
fn a_storage_without_any_file_that_rows_name_costs_no_job() {
    let world = World::new();
    let here = world.machine();
    let [first, second] = [(); 2].map(|()| here.submit(b"a video"));
    let (options, cancel) =
        (super::WorkerOptions { threads: 1, niceness: 0, ..Default::default() }, CancelToken::new());
    let mut worker = super::worker::Worker::new(&here.service, &options, &cancel, &SmallScenes).unwrap();
    assert_eq!(worker.work_once().unwrap(), Worked::Done);
    assert_eq!(here.status(first), JobStatus::Finished);
    let place = |name: &str| world.shared.path().join(name);
    let aside = |name: &str| place(&format!("{name} of ours"));
    for name in ["videos", "scenes"] {
        fs::rename(place(name), aside(name)).unwrap();
        fs::create_dir(place(name)).unwrap();
    }
    // A worker that has just seen that all is well, one that begins, a server.
    let others = [worker.work_once().map(drop), here.work_once().map(drop)];
    let looked = [here.service.look_for_waiting_videos(), here.service.sweep(Duration::ZERO)];
    for refused in others.into_iter().chain(looked.map(|looked| looked.map(drop))) {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.message().contains("none of the"), "{error}");
    }
    assert!(matches!(here.status(second), JobStatus::Queued { .. }));
    for name in ["videos", "scenes"] {
        fs::remove_dir_all(place(name)).unwrap();
        fs::rename(aside(name), place(name)).unwrap();
    }
    // Nothing is held against the job: it need not rest.
    assert_eq!(worker.work_once().unwrap(), Worked::Done);
    assert_eq!(here.status(second), JobStatus::Finished);
}

/// Rule 82: in a folder a missing file is something else.
#[test]
fn in_one_folder_no_job_is_not_found() {
    let folder = super::test_world::World::new();
    let job = folder.submit(folder.anna);
    let videos = folder.folder.path().join("videos");
    for file in fs::read_dir(videos).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    assert_eq!(folder.service.look_for_waiting_videos().unwrap(), 0);
    assert!(matches!(folder.job(job).status, JobStatus::Queued { .. }));
    // A worker that reads the file.
    struct Reads;
    impl super::Runner for Reads {
        fn run(
            &self,
            video: &Path,
            _: &Path,
            _: &crate::pipeline::ReconstructionOptions,
            _: &crate::control::Control,
        ) -> Result<super::Outcome> {
            let read = fs::read(video).map_err(|e| Error::io("read", video, e));
            read.map(|_| panic!("it is gone"))
        }
    }
    let options = super::WorkerOptions { threads: 1, niceness: 0, ..Default::default() };
    let cancel = crate::control::CancelToken::new();
    super::worker::Worker::new(&folder.service, &options, &cancel, &Reads).unwrap().work_once().unwrap();
    let shown = folder.job(job);
    assert_eq!(shown.status, JobStatus::Failed);
    assert_eq!(shown.details.failure.unwrap().code, "not_found");
}
