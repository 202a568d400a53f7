//! What every face calls: users, keys, uploads, jobs, workers, webhooks, over one folder.
//!
//! A [`Service`] is a handle that many threads share. All calls block for as long as the disk takes (a submission also looks
//! at its video for up to two seconds). A call that changes something and returned `Ok` survives a power cut. Any number of
//! processes may open the same folder on one machine: servers, workers, commands; a second machine is refused.
//!
//! ```text
//! folder/  jobs.db      the rows: the only truth                  (database)
//!          secrets.json what makes keys and addresses genuine     (secrets)
//!          videos/ blocks/ scenes/ staged/                        (storage)
//!          work/<job>/  where a worker is at it                   (workspace)
//!          processes/   a locked file for each process that lives (process)
//!          host         which machine uses the folder             (host)
//!          kept-room.json for which jobs it has kept room         (kept_room)
//!          jobs-version-N.db  the rows before an upgrade changed their form (database)
//! ```
//!
//! ```no_run
//! # fn main() -> libreconstruct::Result<()> {
//! use libreconstruct::job::{ArtifactKind, JobRequest, Tier};
//! use libreconstruct::service::{Service, ServiceOptions, WorkerOptions};
//!
//! let service = Service::open("scenes".as_ref(), ServiceOptions::default())?;
//! let user = service.user_or_new("anna", Tier::Enterprise)?.user_id;
//! let video = service.import_video(user, "garden.mp4".as_ref())?;
//! let job = service.submit(user, JobRequest::new(video), None)?.body.job_id;
//!
//! let workers = service.start_workers(1, &WorkerOptions::default())?;
//! let mut seen = 0;
//! loop {
//!     let now = service.wait(user, job, seen, std::time::Duration::from_secs(60))?;
//!     println!("{} {:?}", now.status, now.percent_complete);
//!     seen = now.details.version;
//!     if now.status.is_terminal() {
//!         break;
//!     }
//! }
//! let ply = service.artifact(user, job, ArtifactKind::Ply)?;
//! println!("{} has {} bytes", ply.file_name, ply.size);
//! drop(workers);
//! # Ok(())
//! # }
//! ```
//!
//! Without a worker a job waits, and everything else about it can be done:
//!
//! ```
//! # fn main() -> libreconstruct::Result<()> {
//! use libreconstruct::job::{JobRequest, Tier};
//! use libreconstruct::service::{Service, ServiceOptions};
//! # use libreconstruct::video::VideoWriter;
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let (folder, video) = (folder.path().join("scenes"), folder.path().join("garden.mp4"));
//! # let mut writer = VideoWriter::create(&video, 64, 48, 4.0)?;
//! # for n in 0..4 {
//! #     writer.write(&image::RgbImage::from_fn(64, 48, |x, y| image::Rgb([(x * 3 + y + n) as u8; 3])))?;
//! # }
//! # writer.finish()?;
//! # let options = ServiceOptions { min_free_bytes: 0, ..ServiceOptions::default() };
//! let service = Service::open(&folder, options)?;
//! let (anna, ben) = (service.add_user("anna", Tier::Free)?, service.add_user("ben", Tier::Free)?);
//! let video = service.import_video(anna.user_id, &video)?;
//! let job = service.submit(anna.user_id, JobRequest::new(video), None)?.body.job_id;
//! assert!(service.job(ben.user_id, job).is_err()); // to others it does not exist
//! let job = service.cancel(anna.user_id, job)?;
//! assert!(job.status.is_terminal());
//! # Ok(())
//! # }
//! ```

mod access_token;
mod accounts;
mod addresses;
mod appending;
pub(crate) mod archive;
mod arrivals;
mod backup;
mod block_counts;
mod block_names;
mod blocks;
mod challenges;
mod changes;
mod doctor;
mod exclusive;
mod fault;
mod handing_over;
mod host;
mod housekeeper;
mod identities;
mod incoming;
mod job_changes;
mod job_report;
mod jobs;
mod kept_room;
mod keys;
mod known_adapter;
mod last_used;
mod layout;
mod lists_at_work;
mod live_picture;
mod lost_files;
mod machine;
mod maintenance;
#[cfg(feature = "postgres")]
mod migrate;
#[cfg(not(feature = "postgres"))]
#[path = "migrate_missing.rs"]
mod migrate;
mod missing_videos;
#[cfg(test)]
mod model;
mod moved;
mod needed;
mod options;
mod packing;
mod passkeys;
mod passwords;
mod paused;
mod place;
mod process;
mod promised;
mod public;
mod quota;
mod rates;
mod readable_videos;
mod refusal;
mod right_storage;
mod runner;
mod secrets;
mod senders;
mod sign_in_tries;
mod space;
mod spending;
mod sweeps;
mod taking_over;
#[cfg(test)]
mod test_lost_machines;
#[cfg(test)]
mod test_machine_faults;
#[cfg(test)]
mod test_machines;
#[cfg(test)]
mod test_maintenance;
#[cfg(test)]
mod test_many_blocks;
#[cfg(test)]
mod test_storage_addresses;
#[cfg(test)]
mod test_takeover;
#[cfg(test)]
mod test_world;
#[cfg(test)]
mod tests;
mod tries;
mod upload_facts;
mod upload_writer;
mod uploads;
mod users;
mod video_file;
mod webauthn;
mod webhooks;
mod worker;
mod worker_options;
mod workers;
mod workspace;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use access_token::AccessToken;
pub use accounts::{Browser, Invited, OpenSession, SignedIn};
pub use addresses::Addresses;
pub use appending::{Appended, Appending, Arrived};
pub use backup::{BackedUpFile, BackupManifest, CopyProgress};
pub use doctor::{Diagnosis, Finding, Repaired, Severity};
pub use identities::{Newcomer, ReturnTicket};
pub use job_changes::{JobChange, JobEvent, on_job_change};
pub use job_report::{JobCamera, JobProgress, JobReport, JobVerdict, Quality, Ran, Requested};
pub use jobs::{Artifact, Idempotency, Submission};
pub use keys::Caller;
pub use maintenance::{MaintenanceReport, Statistics};
pub use moved::{Migration, Moved};
pub use options::{ReconstructionDefaults, ServiceOptions};
pub use passkeys::{OwnPasskey, PasskeyRequest};
pub use paused::PausedWorker;
pub use rates::Spent;
pub use refusal::WrongStorage;
pub use runner::{Outcome, PipelineRunner, Runner};
pub use secrets::{SigningKey, SigningKeys};
pub use upload_facts::{UploadFacts, UploadTicket};
pub use upload_writer::UploadWriter;
pub use webauthn::{PASSKEY_ALGORITHMS, Said, Site};
pub use webhooks::{Notice, Told, WebhookKey};

pub use worker_options::{WorkerEnd, WorkerOptions};
pub use workers::Workers;

use crate::database::{Clock, JobDatabase, SystemClock};
use crate::error::{Error, ErrorKind, Result};
use crate::files::create_private_folder;
use crate::job::{JobId, Limits, UserId};
use crate::storage::Storage;
use crate::video;
use arrivals::Arrivals;
use block_counts::BlockCounts;
use changes::Changes;
use exclusive::Exclusive;
use host::{HostMark, Identity};
use housekeeper::Housekeeper;
use kept_room::KeptRoom;
use last_used::LastUsed;
use lists_at_work::ListsAtWork;
use passwords::Passwords;
use paused::Paused;
use place::Place;
use process::{ProcessLock, initial_lock};
use promised::Promised;
use rates::Rates;
use readable_videos::ReadableVideos;
use refusal::Refusal;
use secrets::{Secrets, SecretsSource};
use senders::Senders;
use sign_in_tries::SignInTries;
use sweeps::Sweeps;
use workspace::Workspaces;

fn job_not_found() -> Error {
    Error::new(ErrorKind::NotFound, "Job not found")
}

/// Looks at a video for a limited time: an error if it is none.
type Look = fn(&Path, Duration) -> Result<()>;

/// What a test replaces.
struct Environment {
    clock: Arc<dyn Clock>,
    look: Look,
}

/// The service over one folder; cheap to clone.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

struct Inner {
    options: ServiceOptions,
    clock: Arc<dyn Clock>,
    look: Look,
    readable: ReadableVideos,
    database: Arc<dyn JobDatabase>,
    storage: Box<dyn Storage>,
    has_other_machines: bool,
    secrets: Secrets,
    secrets_source: SecretsSource,
    process: ProcessLock,
    host: Arc<HostMark>,
    #[cfg_attr(not(test), expect(dead_code, reason = "it works as long as it is there"))]
    housekeeper: Housekeeper,
    workspaces: Workspaces,
    changes: Changes,
    /// Idempotency keys of submissions that are being worked on.
    submissions: Exclusive<(UserId, String)>,
    /// Uploads whose blocks are being put together.
    block_lists: ListsAtWork,
    block_counts: BlockCounts,
    arrivals: Arrivals,
    senders: Arc<Senders>,
    space: Arc<Promised>,
    last_used: Arc<LastUsed>,
    /// Of the storage.
    sweeps: Sweeps,
    /// Of whose the files are in a storage that does not say it, and that seemed to be others'.
    owner_looks: Sweeps,
    refusal: Refusal,
    /// Of the job that there never was, under whose name it is tried whether the storage takes something; locked meanwhile.
    tried: Mutex<JobId>,
    rates: Rates,
    passwords: Passwords,
    tries: SignInTries,
    /// Of this machine's own folder.
    machine_sweeps: Sweeps,
    kept_room: KeptRoom,
    paused: Paused,
    /// Workers whose work goes on although it was told to stop long ago.
    stuck: AtomicUsize,
    folder: PathBuf,
}

impl Service {
    /// Opens the service in `folder`, making it (for its owner only) if it is not there, and takes up what an earlier process
    /// left: jobs of dead workers go back to the queue, half-done deletions are done.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for options out of range, [`ErrorKind::InvalidFile`] for a damaged or newer folder,
    /// [`ErrorKind::Conflict`] while another machine uses it; the system's.
    pub fn open(folder: &Path, options: ServiceOptions) -> Result<Service> {
        Self::open_shared(folder, &Addresses::default(), options)
    }

    /// Opens the service whose rows and files are at `addresses`, where other machines see them too; `folder` is this machine's
    /// own place for what it works on.
    ///
    /// # Errors
    /// As for [`Service::open`]; [`ErrorKind::Unsupported`] for an address that this build cannot open; those of the network.
    pub fn open_shared(folder: &Path, addresses: &Addresses, options: ServiceOptions) -> Result<Service> {
        let environment = Environment { clock: Arc::new(SystemClock::new()), look: video::quick_check };
        let secrets = addresses.secrets_source()?;
        match addresses.shared()? {
            None => Self::open_with(folder, secrets, options, environment, Place::in_folder),
            Some((database, storage)) => {
                Self::open_with(folder, secrets, options, environment, |_, _, options| {
                    Place::shared(database, storage, options)
                })
            }
        }
    }

    #[cfg(test)]
    fn open_in(folder: &Path, options: ServiceOptions, environment: Environment) -> Result<Service> {
        Self::open_at(folder, None, options, environment, Place::in_folder)
    }

    /// The same, its secrets in the named file.
    #[cfg(test)]
    fn open_at(
        folder: &Path,
        secrets: Option<&Path>,
        options: ServiceOptions,
        environment: Environment,
        place: impl FnOnce(&Path, Arc<dyn Clock>, &ServiceOptions) -> Result<Place>,
    ) -> Result<Service> {
        let secrets = secrets.map(|file| SecretsSource::Shared(file.to_owned()));
        Self::open_with(folder, secrets, options, environment, place)
    }

    /// Opens the service whose rows and files are where `place` says; the rest lies in `folder`, also the secrets if it is not
    /// said where they are.
    fn open_with(
        folder: &Path,
        secrets: Option<SecretsSource>,
        options: ServiceOptions,
        environment: Environment,
        place: impl FnOnce(&Path, Arc<dyn Clock>, &ServiceOptions) -> Result<Place>,
    ) -> Result<Service> {
        #[cfg(feature = "failpoints")]
        crate::failpoints::read_environment();
        options.check()?;
        create_private_folder(folder)?;
        let folder = std::path::absolute(folder).map_err(|e| Error::io("open", folder, e))?;
        // One process at a time makes what is missing.
        let making = initial_lock(&folder)?;
        check_complete(&folder)?;
        let host = Arc::new(HostMark::take(&folder, Identity::of_this_machine(environment.clock.boot()))?);
        let Environment { clock, look } = environment;
        let Place { database, storage, has_other_machines } = place(&folder, clock.clone(), &options)?;
        let secrets_source =
            secrets.unwrap_or_else(|| match (folder.join(layout::SECRETS), has_other_machines) {
                (file, false) => SecretsSource::Own(file),
                // Each of many machines would make its own, and none would know the keys of the others.
                (file, true) => SecretsSource::Shared(file),
            });
        let secrets = secrets_source.read()?;
        let process = ProcessLock::take(&folder.join(layout::PROCESSES))?;
        let workspaces = Workspaces::open(folder.join(layout::WORK))?;
        let kept_room = KeptRoom::of(&folder, clock.boot());
        crate::files::sync_folder(&folder)?;
        drop(making);
        let last_used = Arc::<LastUsed>::default();
        let housekeeper = Housekeeper::start(host.clone(), last_used.clone(), database.clone())?;
        let service = Service {
            inner: Arc::new(Inner {
                options,
                clock,
                look,
                readable: ReadableVideos::default(),
                database,
                storage,
                has_other_machines,
                secrets,
                secrets_source,
                process,
                host,
                housekeeper,
                workspaces,
                changes: Changes::default(),
                submissions: Exclusive::default(),
                block_lists: ListsAtWork::default(),
                block_counts: BlockCounts::default(),
                arrivals: Arrivals::default(),
                senders: Arc::default(),
                space: Arc::default(),
                last_used,
                sweeps: Sweeps::later(),
                owner_looks: Sweeps::default(),
                refusal: Refusal::default(),
                tried: Mutex::new(JobId::random()),
                rates: Rates::default(),
                passwords: Passwords::default(),
                tries: SignInTries::default(),
                machine_sweeps: Sweeps::default(),
                kept_room,
                paused: Paused::default(),
                stuck: AtomicUsize::new(0),
                folder,
            }),
        };
        // Who removes something looks closer, and does not do it then.
        service.compare_again();
        service.recover();
        Ok(service)
    }

    /// Whether rows and files are shared with other machines: then calls may wait for a database on one of them.
    pub fn has_other_machines(&self) -> bool {
        self.inner.has_other_machines
    }

    /// The bounds in force.
    pub fn limits(&self) -> &Limits {
        &self.inner.options.limits
    }

    /// The options in force.
    pub fn options(&self) -> &ServiceOptions {
        &self.inner.options
    }

    /// Keys with which a server signs addresses; the same for all processes of the folder.
    pub fn signing_keys(&self) -> &SigningKeys {
        &self.inner.secrets.signing_keys
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.inner.folder
    }
}

/// Refuses a folder to which a backup is being restored, or was until that was cut off.
fn check_complete(folder: &Path) -> Result<()> {
    if !folder.join(layout::RESTORING).exists() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidFile,
        format!(
            "{} is not complete: a backup is being restored to it, or that was cut off",
            folder.display()
        ),
    )
    .hint("wait for the end of `reconstruct restore`, or start it again: it begins anew"))
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(error) = self.last_used.flush(self.database.as_ref()) {
            log::warn!("when keys were last used: {error:?}");
        }
        if !self.process.others_live() {
            self.host.remove();
        }
    }
}
