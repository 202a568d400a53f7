//! The engine
//!
//! An engine is the whole service on one folder: users, videos, jobs and their results, all of which survive the program
//! and its crashes. Any number of engines, programs and servers of one machine may use the same folder at once. An
//! engine acts for one user and sees that user's jobs only; jobs are done by workers (below), in this program or in
//! another one.
//!
//! Where many machines share a service, its rows are in a database and its files in a storage, whose addresses are given
//! as options; the folder is then this machine's own place for its work.
//!
//! Whoever opens the folder is its operator: rc_engine_for_user() makes an engine for any user without asking for a key.
//! A program that serves others makes theirs with rc_engine_for_key().

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Mutex;

use libreconstruct::job::{Tier, UserId};
use libreconstruct::service::{Addresses, Service, ServiceOptions, Workers};

use crate::argument::{Versioned, choice, number_of, optional_path, optional_text, path, text, versioned};
use crate::entry::answer;
use crate::error::{Fault, rc_code, rc_error};
use crate::handle::{Opaque, opaque};
use crate::text::c_string;

/// The service on a folder, for one user.
pub struct rc_engine {
    _opaque: [u8; 0],
}

/// What is behind an `rc_engine`.
pub(crate) struct Engine {
    pub(crate) service: Service,
    pub(crate) user: UserId,
    pub(crate) workers: Mutex<Vec<Workers>>,
    folder: CString,
}

impl Engine {
    fn new(service: Service, user: UserId) -> Self {
        let folder = c_string(service.folder().to_string_lossy());
        Self { service, user, workers: Mutex::default(), folder }
    }

    /// Another engine on the same folder.
    fn acting_for(&self, user: UserId) -> *mut rc_engine {
        rc_engine::make(Self::new(self.service.clone(), user))
    }
}

opaque!(rc_engine, Engine, "engine", b"rc_engin");

/// What a user may do.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rc_tier {
    /// Where a tier may be left out: enterprise.
    RC_TIER_DEFAULT = 0,
    /// Nothing through an API key.
    RC_TIER_FREE = 1,
    /// Everything.
    RC_TIER_ENTERPRISE = 2,
}

pub(crate) const TIERS: [(rc_tier, Tier); 3] = [
    (rc_tier::RC_TIER_DEFAULT, Tier::Enterprise),
    (rc_tier::RC_TIER_FREE, Tier::Free),
    (rc_tier::RC_TIER_ENTERPRISE, Tier::Enterprise),
];

/// Workers that are started at once, at most.
pub(crate) const MOST_WORKERS: u32 = 256;

/// How an engine is opened. Start from RC_ENGINE_OPTIONS_INIT.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rc_engine_options {
    /// sizeof(rc_engine_options)
    pub struct_size: usize,
    /// Name of the user to act for, who is added if there is none; NULL = "local".
    pub user: *const c_char,
    /// Tier of the user, if added.
    pub tier: MaybeUninit<rc_tier>,
    /// How many workers to start in this program, at most 256; 0 = none.
    pub workers: u32,
    /// Settings of the service as a JSON object; NULL = the defaults. For example
    /// {"reconstruction": {"device": "cpu", "max_frames": 100}, "limits": {"max_queued_jobs": 10}}.
    pub settings_json: *const c_char,
    /// Where the rows are if many machines share them, for example
    /// "postgres://user:password@db.example.org/reconstruct?sslmode=require"; NULL = in the folder. Given together with
    /// storage.
    pub database: *const c_char,
    /// Where videos and scenes are if many machines share them, for example "file:///mnt/scenes", a folder that all of
    /// them see; NULL = in the folder. Given together with database.
    pub storage: *const c_char,
    /// File with what makes keys genuine, the same on all machines; NULL = secrets.json in the folder, which is made if it
    /// is not there, but must be there if other machines share the rows.
    pub secrets: *const c_char,
}

// SAFETY: numbers, pointers and an enum that may be anything.
unsafe impl Versioned for rc_engine_options {}

/// Opens the engine on a folder, which is made (for its owner only) if it is not there, and stores it in *engine. What
/// an earlier program left undone is taken up.
///
/// options: NULL = the defaults.
///
/// Fails with RC_INVALID_ARGUMENT for settings out of range and addresses that are none, RC_INVALID_FILE for a folder or
/// a database that is damaged or of a newer version, RC_NOT_FOUND if there are no secrets beside an address,
/// RC_CONFLICT while another machine uses the folder, RC_UNSUPPORTED for an address that this build cannot open, RC_IO
/// (also if the database cannot be reached), RC_DISK_FULL.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_engine_open(
    folder: *const c_char,
    options: *const rc_engine_options,
    engine: *mut *mut rc_engine,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        answer(engine, "engine", error, || {
            let folder = path(folder, "folder")?;
            let options = versioned(options, "options")?;
            let name = optional_text(options.user, "options.user")?.unwrap_or("local");
            let tier = choice(options.tier, "options.tier", &TIERS)?;
            let settings = settings(optional_text(options.settings_json, "options.settings_json")?)?;
            let addresses = Addresses {
                database: optional_text(options.database, "options.database")?.map(str::to_owned),
                storage: optional_text(options.storage, "options.storage")?.map(str::to_owned),
                secrets: optional_path(options.secrets, "options.secrets")?.map(Path::to_owned),
                secrets_json: None,
            };
            Ok(rc_engine::make(open(folder, &addresses, settings, name, tier, options.workers)?))
        })
    }
}

fn settings(text: Option<&str>) -> Result<ServiceOptions, Fault> {
    let Some(text) = text else { return Ok(ServiceOptions::default()) };
    serde_json::from_str(text).map_err(|e| Fault::argument(format!("the settings cannot be read: {e}")))
}

fn open(
    folder: &Path,
    addresses: &Addresses,
    settings: ServiceOptions,
    name: &str,
    tier: Tier,
    workers: u32,
) -> Result<Engine, Fault> {
    // Opening may make a folder and a user, and what is refused leaves nothing.
    if workers > MOST_WORKERS {
        let message = format!("{workers} workers are asked for: 0 to {MOST_WORKERS} are allowed");
        return Err(Fault::argument(message));
    }
    let service = Service::open_shared(folder, addresses, settings)?;
    let user = service.user_or_new(name, tier)?.user_id;
    let engine = Engine::new(service, user);
    if workers > 0 {
        engine.start_workers(workers, &Default::default())?;
    }
    Ok(engine)
}

/// Frees an engine. Workers that were started on it stop first, each with a checkpoint of its job, which takes seconds.
/// Jobs, artifacts and uploads that came from it stay usable. NULL is allowed.
///
/// Thread-safe, while nobody uses the engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_engine_free(engine: *mut rc_engine) {
    // SAFETY: the caller's promise.
    unsafe { rc_engine::free(engine) }
}

/// The folder, absolute; NULL for NULL. Lives as long as the engine.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_engine_folder(engine: *const rc_engine) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { rc_engine::text(engine, |engine| Some(&engine.folder)) }
}

/// Stores in *other an engine on the same folder that acts for the user of this name, who is added with this tier if
/// there is none. The operator's way: nobody is asked for a key.
///
/// Fails with RC_INVALID_ARGUMENT for a name that is empty, too long or has control characters.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_engine_for_user(
    engine: *const rc_engine,
    name: *const c_char,
    tier: MaybeUninit<rc_tier>,
    other: *mut *mut rc_engine,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_engine::ask(engine, other, "other", error, |engine| {
            let (name, tier) = (text(name, "name")?, choice(tier, "tier", &TIERS)?);
            Ok(engine.acting_for(engine.service.user_or_new(name, tier)?.user_id))
        })
    }
}

/// Stores in *other an engine on the same folder that acts for the owner of an API key. The key is looked at in this call alone:
/// call this again for each request, since a key may be revoked and its owner's tier changed.
///
/// Fails with RC_UNAUTHENTICATED for a key that is not genuine, RC_PERMISSION_DENIED for an owner of the free tier.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_engine_for_key(
    engine: *const rc_engine,
    api_key: *const c_char,
    other: *mut *mut rc_engine,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_engine::ask(engine, other, "other", error, |engine| {
            let caller = engine.service.authenticate(text(api_key, "api_key")?)?;
            engine.service.authorize(&caller)?;
            Ok(engine.acting_for(caller.user_id))
        })
    }
}

/// Changes what a user may do, from the next request on.
///
/// Fails with RC_NOT_FOUND if there is no user of this name.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_engine_set_tier(
    engine: *const rc_engine,
    name: *const c_char,
    tier: MaybeUninit<rc_tier>,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_engine::call(engine, error, |engine| {
            let name = text(name, "name")?;
            if number_of(tier) == rc_tier::RC_TIER_DEFAULT as u32 {
                return Err(Fault::argument("tier is RC_TIER_DEFAULT: say which it is to be"));
            }
            let tier = choice(tier, "tier", &TIERS)?;
            let user = engine.service.user_by_name(name)?.user_id;
            Ok(engine.service.set_tier(user, tier)?)
        })
    }
}

/// Stores in *json the users of the folder, by name: [{"user_id", "name", "tier", "created_at"}]. Free it with
/// rc_string_free().
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_engine_users_json(
    engine: *const rc_engine,
    json: *mut *mut c_char,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe { rc_engine::ask_json(engine, json, error, |engine| Ok(engine.service.users()?)) }
}
