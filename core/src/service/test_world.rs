//! What the tests of the service share: a service in a folder of its own, with users and a clock that they move.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::place::Place;
use super::worker::{Worked, Worker};
use super::{
    Environment, Idempotency, Outcome, ReconstructionDefaults, Runner, Service, ServiceOptions, Submission,
    UploadFacts, WorkerOptions,
};
use crate::control::{CancelToken, Control};
use crate::database::{Clock, ManualClock};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{ArtifactKind, BlobName, CameraData, Job, JobId, JobRequest, Tier, UserId};
use crate::pipeline::ReconstructionOptions;

/// Opens the service of `folder` as another process would. Every file counts as a video.
pub(super) fn open(folder: &Path, options: ServiceOptions, clock: &Arc<ManualClock>) -> Service {
    open_with(folder, options, clock, None)
}

/// The same with its rows in this PostgreSQL, if one is named.
fn open_with(
    folder: &Path,
    options: ServiceOptions,
    clock: &Arc<ManualClock>,
    database: Option<&str>,
) -> Service {
    let environment = Environment { clock: clock.clone(), look: |_, _| Ok(()) };
    let place = |folder: &Path, clock: Arc<dyn Clock>, options: &ServiceOptions| match database {
        #[cfg(feature = "postgres")]
        Some(address) => {
            let rows = crate::database::PostgresDatabase::open(address)?;
            let database = Arc::new(rows.with_clock(clock).with_order(options.queue));
            let storage = Box::new(crate::storage::LocalStorage::open(folder)?);
            Ok(Place { database, storage, has_other_machines: false })
        }
        _ => Place::in_folder(folder, clock, options),
    };
    Service::open_at(folder, None, options, environment, place).unwrap()
}

/// A new folder, in memory where the system has such a place: nothing is lost there by not waiting for a disk.
pub(super) fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    // As the service makes its own.
    #[cfg(unix)]
    fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    folder
}

pub(super) struct World {
    pub(super) service: Service,
    pub(super) anna: UserId,
    pub(super) eve: UserId,
    pub(super) clock: Arc<ManualClock>,
    pub(super) folder: tempfile::TempDir,
    /// Where its rows are, if not in the folder.
    database: Option<String>,
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(ServiceOptions { min_free_bytes: 0, ..ServiceOptions::default() })
    }

    pub(super) fn with(options: ServiceOptions) -> Self {
        Self::with_rows_in(None, options)
    }

    pub(super) fn with_rows_in(database: Option<String>, options: ServiceOptions) -> Self {
        let folder = folder();
        let clock = Arc::new(ManualClock::new());
        let service = open_with(folder.path(), options, &clock, database.as_deref());
        let user = |name: &str| service.add_user(name, Tier::Enterprise).unwrap().user_id;
        World { anna: user("anna"), eve: user("eve"), service, clock, folder, database }
    }

    /// The same service, opened by another process.
    pub(super) fn reopen(&self) -> Service {
        self.reopen_with(self.service.options().clone())
    }

    /// The same folder with other options.
    pub(super) fn reopen_with(&self, options: ServiceOptions) -> Service {
        open_with(self.folder.path(), options, &self.clock, self.database.as_deref())
    }

    pub(super) fn upload(&self, user: UserId) -> BlobName {
        let name = self.service.create_upload(user, "mp4").unwrap().blob_name;
        let file_name = Some("garden.mp4".to_owned());
        let mut writer =
            self.service.begin_upload(&name, UploadFacts { file_name, ..UploadFacts::default() }).unwrap();
        writer.append(b"a video").unwrap();
        writer.finish().unwrap();
        name
    }

    pub(super) fn submit(&self, user: UserId) -> JobId {
        self.submit_with(JobRequest::new(self.upload(user)), user, None).unwrap().body.job_id
    }

    pub(super) fn submit_with(
        &self,
        request: JobRequest,
        user: UserId,
        idempotency: Option<Idempotency>,
    ) -> Result<Submission> {
        self.service.submit(user, request, idempotency)
    }

    pub(super) fn job(&self, job: JobId) -> Job {
        self.service.job(self.anna, job).unwrap()
    }

    /// Lets a worker make a small scene of the first job that waits.
    pub(super) fn finish_one(&self) {
        let (options, cancel) =
            (WorkerOptions { threads: 1, niceness: 0, ..Default::default() }, CancelToken::new());
        let mut worker = Worker::new(&self.service, &options, &cancel, &SmallScenes).unwrap();
        assert!(worker.work_once().unwrap() == Worked::Done);
    }

    /// A job that is finished.
    pub(super) fn finished(&self, user: UserId) -> JobId {
        let job = self.submit(user);
        self.finish_one();
        job
    }

    /// All files of videos, scenes and workspaces, and all that is staged: what a deletion must not leave.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for name in ["videos", "blocks", "scenes", "staged", "work"] {
            collect(&self.folder.path().join(name), &mut files);
        }
        files.sort();
        files
    }
}

/// Makes scenes of a few bytes, which differ from one to the next.
pub(super) struct SmallScenes;

impl Runner for SmallScenes {
    fn run(&self, _: &Path, workspace: &Path, _: &ReconstructionOptions, _: &Control) -> Result<Outcome> {
        fs::create_dir_all(workspace).unwrap();
        let file = |kind: ArtifactKind| {
            let path = workspace.join(format!("scene.{}", kind.extension()));
            fs::write(&path, format!("{} of {}", kind.extension(), workspace.display())).unwrap();
            (kind, path)
        };
        let files = [ArtifactKind::Ply, ArtifactKind::Spz, ArtifactKind::Preview].map(file).to_vec();
        Ok(Outcome { files, camera: CameraData::default(), warnings: vec![] })
    }
}

/// Of one job it leaves more than the disk has room for.
pub(super) struct Hungry {
    /// What that job leaves. While it is there, the machine can do nothing.
    pub(super) left: PathBuf,
}

impl Hungry {
    /// On the machine that works in `folder`.
    pub(super) fn of(greedy: JobId, folder: &Path) -> Self {
        Self { left: folder.join(format!("work/{greedy}/run/frames")) }
    }
}

impl Runner for Hungry {
    fn run(
        &self,
        video: &Path,
        workspace: &Path,
        options: &ReconstructionOptions,
        control: &Control,
    ) -> Result<Outcome> {
        if self.left.parent() != Some(workspace) {
            return SmallScenes.run(video, workspace, options, control);
        }
        fs::create_dir_all(workspace).unwrap();
        fs::write(&self.left, "too much").unwrap();
        Err(Error::new(ErrorKind::DiskFull, "there is no room for the frames"))
    }

    fn check(&self, _: &ReconstructionDefaults) -> Result<()> {
        match self.left.exists() {
            true => Err(Error::new(ErrorKind::DiskFull, "the disk is full")),
            false => Ok(()),
        }
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}
