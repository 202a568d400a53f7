//! The service survives being killed, and the disk failing, at every place where something becomes durable.
//!
//! A child process (this program again) plays a scenario over a folder and says what was acknowledged. It is killed at a
//! failpoint, or the system refuses an operation there. Then the folder is opened again, a worker runs, and everything that
//! was acknowledged must hold. Run with `cargo test --features failpoints --test service_failures`.

#![allow(clippy::unwrap_used)] // a test may; clippy.toml allows it only inside the test functions themselves

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libreconstruct::job::{ArtifactKind, CameraData, JobId, JobRequest, JobStatus, JobUpdate, Tier, UserId};
use libreconstruct::pipeline::ReconstructionOptions;
use libreconstruct::service::{
    Appended, Outcome, Runner, Service, ServiceOptions, UploadFacts, WorkerOptions,
};
use libreconstruct::{CancelToken, Control, Error, ErrorKind, Result, Stage, failpoints};

/// Says that this process is a child, and in which folder.
const CHILD: &str = "LIBRECONSTRUCT_TEST_CHILD";
/// Children at a time: they mostly wait.
const CHILDREN: usize = 12;

fn options() -> ServiceOptions {
    ServiceOptions { lease_seconds: 6, min_free_bytes: 0, ..ServiceOptions::default() }
}

fn service(folder: &Path) -> Result<Service> {
    Service::open(&data(folder), options())
}

/// The folder of the service in the folder of a test.
fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

/// A new folder, in memory where the system has such a place with some room: processes are killed here, and what they have written
/// outlives them wherever it is.
fn new_folder() -> tempfile::TempDir {
    let memory = "/dev/shm";
    let in_memory =
        if free_kib(memory) >= Some(256 << 10) { tempfile::tempdir_in(memory).ok() } else { None };
    in_memory.unwrap_or_else(|| tempfile::tempdir().unwrap())
}

/// The fourth number of what `df` says in its second line. Containers have 64 MiB in memory, if nothing else is asked for.
fn free_kib(folder: &str) -> Option<u64> {
    let told = Command::new("df").args(["-Pk", folder]).output().ok()?;
    let told = String::from_utf8(told.stdout).ok()?;
    told.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()
}

/// A small real video, made once.
fn video() -> Vec<u8> {
    static VIDEO: Mutex<Option<Vec<u8>>> = Mutex::new(None);
    let mut video = VIDEO.lock().unwrap();
    video
        .get_or_insert_with(|| {
            let folder = new_folder();
            let path = folder.path().join("v.mp4");
            let made = Command::new("ffmpeg")
                .args(["-v", "error", "-f", "lavfi", "-i", "testsrc=duration=1:size=64x64:rate=4"])
                .arg(&path)
                .status()
                .unwrap();
            assert!(made.success());
            std::fs::read(path).unwrap()
        })
        .clone()
}

/// Does what the title of the job says.
struct ByTitle;

impl Runner for ByTitle {
    fn run(
        &self,
        _: &Path,
        workspace: &Path,
        options: &ReconstructionOptions,
        control: &Control,
    ) -> Result<Outcome> {
        std::fs::create_dir_all(workspace).map_err(|e| Error::io("create", workspace, e))?;
        let again = workspace.join("again");
        let title = options.title.clone().unwrap_or_default();
        control.progress(Stage::Train, "training", 0.5);
        match title.as_str() {
            "bad" => return Err(Error::new(ErrorKind::TooFewFrames, "two frames")),
            "trouble" if !again.exists() => {
                std::fs::write(again, "").map_err(|e| Error::io("write", workspace, e))?;
                return Err(Error::new(ErrorKind::Gpu, "lost"));
            }
            // Long enough for a sign of life.
            "slow" => std::thread::sleep(Duration::from_millis(1300)),
            _ => {}
        }
        let mut files = Vec::new();
        for kind in [ArtifactKind::Ply, ArtifactKind::Spz] {
            let path = workspace.join(kind.extension());
            std::fs::write(&path, format!("{} of {title}", kind.extension()))
                .map_err(|e| Error::io("write", &path, e))?;
            files.push((kind, path));
        }
        Ok(Outcome { files, camera: CameraData::default(), warnings: vec![] })
    }
}

/// Tells the parent something that is now true for ever.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n@{line}").unwrap();
    out.flush().unwrap();
}

/// Tries as a client does: a refused operation is asked for again.
fn retry<T>(mut attempt: impl FnMut() -> Result<T>) -> T {
    let mut last = None;
    for _ in 0..5 {
        match attempt() {
            Ok(value) => return value,
            Err(error) => last = Some(error),
        }
    }
    panic!("still refused: {last:?}")
}

/// The ways in which a video comes.
#[derive(Clone, Copy)]
enum Sent {
    Whole,
    InBlocks,
    /// At the end of what has come, in two transfers.
    Appended,
}

fn upload(s: &Service, user: UserId, bytes: &[u8], how: Sent) -> libreconstruct::job::BlobName {
    let name = retry(|| s.create_upload(user, "mp4")).blob_name;
    if let Sent::Appended = how {
        let mut acknowledged = 0;
        for end in [bytes.len() / 2, bytes.len()] {
            retry(|| {
                let first = s.arrived(&name)?.bytes as usize;
                assert!((acknowledged..=end).contains(&first), "{first}, after {acknowledged}");
                match s.append(&name, first as u64, Some(bytes.len() as u64), UploadFacts::default())? {
                    Appended::Begun(mut appending) => {
                        appending.append(&bytes[first..end])?;
                        appending.finish(false).map(drop)
                    }
                    Appended::Elsewhere(arrived) => {
                        assert!(arrived.is_complete, "{arrived:?}");
                        Ok(())
                    }
                }
            });
            acknowledged = end;
        }
        return name;
    }
    retry(|| {
        if let Sent::Whole = how {
            let mut writer = s.begin_upload(&name, UploadFacts::default())?;
            writer.append(bytes)?;
            return writer.finish();
        }
        let (a, b) = bytes.split_at(bytes.len() / 2);
        for (id, part) in [("a", a), ("b", b)] {
            let mut writer = s.put_block(&name, id, UploadFacts::default())?;
            writer.append(part)?;
            writer.finish()?;
        }
        s.commit_blocks(&name, &["a".into(), "b".into()], UploadFacts::default(), &CancelToken::new())
    });
    name
}

/// Cancels when it goes, also in a panic: the scope of a worker's thread would wait for it for ever.
struct Cancels<'a>(&'a CancelToken);

impl Drop for Cancels<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// One pass through everything that writes.
#[test]
fn scenario_of_a_child() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    let s = retry(|| service(Path::new(&folder)));
    let bytes = std::fs::read(Path::new(&folder).join("input.mp4")).unwrap();
    let name = format!("user {}", std::process::id());
    let user = retry(|| s.add_user(&name, Tier::Free)).user_id;
    retry(|| s.set_tier(user, Tier::Enterprise));
    say(&format!("user {name}"));
    let (key, secret) = retry(|| s.create_key(user, "laptop"));
    say(&format!("key {}", secret.reveal()));
    retry(|| s.authenticate(secret.reveal()));
    retry(|| s.flush_last_used());
    // In each way; the last goes with its only job.
    let ways = [Sent::Whole, Sent::InBlocks, Sent::Appended];
    let blobs = ways.map(|how| upload(&s, user, &bytes, how));
    let submit = |title: &str, blob: usize| {
        let request = JobRequest { title: Some(title.to_owned()), ..JobRequest::new(blobs[blob]) };
        let job = retry(|| s.submit(user, request.clone(), None)).body.job_id;
        say(&format!("job {job} {title}"));
        job
    };
    let slow = submit("slow", 0);
    let others = [submit("bad", 0), submit("trouble", 0), submit("good", 2)];
    let (cancelled, waiting) = (submit("cancelled", 1), submit("waiting", 1));
    say(&format!("may {cancelled}"));
    retry(|| s.cancel(user, cancelled));
    say(&format!("cancelled {cancelled}"));
    let delete = |job: JobId| {
        say(&format!("may {job}"));
        // A deletion whose answer was lost reads as one of an unknown job.
        retry(|| {
            s.delete(user, job).or_else(|e| if e.kind() == ErrorKind::NotFound { Ok(()) } else { Err(e) })
        });
        say(&format!("deleted {job}"));
    };
    delete(waiting);
    let cancel = CancelToken::new();
    std::thread::scope(|scope| {
        scope.spawn(|| s.run_worker_with(&worker(), &cancel, &ByTitle).unwrap());
        let _ends = Cancels(&cancel);
        let update = JobUpdate { public: Some(true), ..JobUpdate::default() };
        retry(|| s.update(user, slow, &update));
        say(&format!("public {slow}"));
        for job in others.iter().chain([&slow]) {
            wait_for_end(&s, user, *job);
            say(&format!("ended {job}"));
        }
    });
    let ply = retry(|| s.artifact(user, slow, ArtifactKind::Ply));
    let saved = Path::new(&folder).join(format!("saved {}.ply", std::process::id()));
    retry(|| s.save_artifact(&ply, &saved));
    say(&format!("saved {}", saved.display()));
    back_up_and_restore(&s, Path::new(&folder));
    lose_files(&s, user, others[1], &bytes);
    delete(others[2]);
    retry(|| s.revoke_key(user, &key.prefix));
    say(&format!("revoked {}", secret.reveal()));
    retry(|| s.maintain());
    say("done");
}

/// A place for this process, beside the folder of the service.
fn beside(folder: &Path, what: &str) -> PathBuf {
    let place = folder.join("beside");
    std::fs::create_dir_all(&place).unwrap();
    place.join(format!("{what} {}", std::process::id()))
}

fn back_up_and_restore(s: &Service, folder: &Path) {
    let (backup, restored) = (beside(folder, "backup"), beside(folder, "restored"));
    // What was made although its last step failed is there.
    retry(|| if backup.exists() { Ok(()) } else { s.backup(&backup, None, &mut |_| Ok(())).map(drop) });
    say(&format!("backup {}", backup.display()));
    let restore = || Service::restore(&backup, &restored, &mut |_| Ok(())).map(drop);
    retry(|| if restored.join("jobs.db").exists() { Ok(()) } else { restore() });
    say(&format!("restored {}", restored.display()));
}

/// The disk loses a scene and a video, and the operator has that seen to.
fn lose_files(s: &Service, user: UserId, job: JobId, bytes: &[u8]) {
    let scene = retry(|| s.artifact(user, job, ArtifactKind::Ply));
    let video = upload(s, user, bytes, Sent::Whole);
    say(&format!("reopened {job}"));
    let id = video.to_string().trim_start_matches("videos/").split('.').next().unwrap().to_owned();
    for entry in std::fs::read_dir(s.folder().join("videos")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with(&id) {
            std::fs::remove_file(path).unwrap();
        }
    }
    std::fs::remove_file(s.local_path(&scene.key).unwrap()).unwrap();
    retry(|| repair(s.folder()));
}

/// Sees to all that was lost.
fn repair(folder: &Path) -> Result<()> {
    let diagnosis = Service::diagnose(folder, &options())?;
    let repaired = Service::repair(folder, &options(), &diagnosis)?;
    match repaired.iter().find(|r| !r.done) {
        Some(failed) => Err(Error::new(ErrorKind::Io, failed.message.clone())),
        None => Ok(()),
    }
}

fn worker() -> WorkerOptions {
    WorkerOptions { threads: 1, niceness: 0, ..WorkerOptions::default() }
}

fn wait_for_end(s: &Service, user: UserId, job: JobId) {
    let end = Instant::now() + Duration::from_secs(60);
    let mut version = 0;
    loop {
        let seen = retry(|| s.wait(user, job, version, Duration::from_secs(1)));
        version = seen.details.version;
        if seen.status.is_terminal() {
            return;
        }
        assert!(Instant::now() < end, "stuck: {seen:?}");
    }
}

/// Runs the scenario with this setting of failpoints; returns what it said and whether it was killed.
fn child(folder: &Path, failpoints: &str) -> (Vec<String>, bool) {
    child_until(folder, failpoints, None)
}

/// Like [`child`]; with `limit`, it is killed after that time.
fn child_until(folder: &Path, failpoints: &str, limit: Option<Duration>) -> (Vec<String>, bool) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "scenario_of_a_child", "--nocapture"])
        .env(CHILD, folder)
        .env("FAILPOINTS", failpoints)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    if let Some(limit) = limit {
        std::thread::sleep(limit);
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let said = text.lines().filter_map(|l| l.strip_prefix('@')).map(str::to_owned).collect();
    let killed = output.status.code().is_none();
    if !killed {
        assert!(output.status.success(), "{failpoints}: {}", String::from_utf8_lossy(&output.stderr));
    }
    (said, killed)
}

/// Opens what the child left, lets a worker run, and checks all that was said.
fn check(folder: &Path, said: &[String], what: &str) {
    check_service(folder, said, what);
    check_backups(folder, said, what);
}

/// The same of the service alone.
fn check_service(folder: &Path, said: &[String], what: &str) {
    // An operator whose repair was cut off does it again.
    if said.iter().any(|line| line.starts_with("reopened")) {
        repair(&data(folder)).unwrap();
    }
    let s = service(folder).unwrap();
    let mut jobs = HashMap::new();
    let [mut deleted, mut cancelled, mut public, mut open, mut ended] = [(); 5].map(|()| HashSet::new());
    let (mut key, mut revoked, mut user) = (None, false, None);
    for line in said {
        let mut words = line.splitn(3, ' ');
        let (verb, first) = (words.next().unwrap(), words.next().unwrap_or_default());
        let id = || first.parse::<JobId>().unwrap();
        match verb {
            "user" => user = Some(s.user_by_name(&line["user ".len()..]).unwrap()),
            "key" => key = Some(first.to_owned()),
            "revoked" => revoked = true,
            "job" => drop(jobs.insert(id(), words.next().unwrap().to_owned())),
            "may" => drop(open.insert(id())),
            "deleted" => drop(deleted.insert(id())),
            "cancelled" => drop(cancelled.insert(id())),
            "public" => drop(public.insert(id())),
            "ended" => drop(ended.insert(id())),
            "reopened" => drop(ended.remove(&id())),
            "backup" | "restored" => {}
            "saved" => assert_eq!(std::fs::read(&line["saved ".len()..]).unwrap(), b"ply of slow", "{what}"),
            _ => assert_eq!(verb, "done"),
        }
    }
    if let Some(key) = key {
        // Only the one whose revocation was under way may be either.
        let works = s.authenticate(&key).is_ok();
        assert!(works != revoked || said.last().is_some_and(|l| l.starts_with("deleted")), "{what}: key");
    }
    let Some(user) = user else { return };
    assert_eq!(user.tier, Tier::Enterprise);
    let user = user.user_id;
    // What ended before must be as it was, also before a worker runs.
    for job in &ended {
        if let Ok(job) = s.job(user, *job) {
            assert!(job.status.is_terminal(), "{what}: {job:?}");
        }
    }
    let cancel = CancelToken::new();
    std::thread::scope(|scope| {
        scope.spawn(|| s.run_worker_with(&worker(), &cancel, &ByTitle).unwrap());
        let _ends = Cancels(&cancel);
        for job in s.all_jobs().unwrap() {
            wait_for_end(&s, job.details.owner, job.job_id);
        }
    });
    s.maintain().unwrap();
    for (id, title) in &jobs {
        let seen = s.job(user, *id);
        if deleted.contains(id) {
            assert_eq!(seen.unwrap_err().kind(), ErrorKind::NotFound, "{what}: {title}");
            for place in ["scenes", "work"] {
                assert!(
                    !data(folder).join(place).join(id.to_string()).exists(),
                    "{what}: {place} of {title}"
                );
            }
            continue;
        }
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => {
                assert!(open.contains(id), "{what}: lost {title}: {error:?}");
                continue;
            }
        };
        assert!(!public.contains(id) || seen.public, "{what}: {title} is not public any more");
        let failed = seen.details.failure.as_ref().map(|f| f.code.as_str());
        match title.as_str() {
            "bad" => assert_eq!(failed, Some("too_few_frames"), "{what}"),
            "cancelled" if cancelled.contains(id) => assert_eq!(failed, Some("cancelled"), "{what}"),
            "cancelled" | "waiting" if open.contains(id) => assert!(seen.status.is_terminal(), "{what}"),
            _ => {
                assert_eq!((seen.status, failed), (JobStatus::Finished, None), "{what}: {title}");
                for kind in [ArtifactKind::Ply, ArtifactKind::Spz] {
                    let artifact = s.artifact(user, *id, kind).unwrap();
                    let mut text = String::new();
                    s.open_blob(&artifact.key).unwrap().file.read_to_string(&mut text).unwrap();
                    assert_eq!(text, format!("{} of {title}", kind.extension()), "{what}");
                    assert_eq!(artifact.size, text.len() as u64, "{what}");
                }
            }
        }
        assert!(!data(folder).join("work").join(id.to_string()).exists(), "{what}: workspace of {title}");
    }
    let statistics = s.statistics().unwrap().rows;
    let left =
        (statistics.deleting, statistics.queued, statistics.processing_video, statistics.generating_scene);
    assert_eq!(left, (0, 0, 0, 0), "{what}");
    assert_eq!(s.integrity_check().unwrap(), [] as [String; 0], "{what}");
    drop(s);
    assert!(jobs.values().all(|t| !t.is_empty()));
}

/// A backup that has its name is complete, and a folder that was restored opens with all its jobs, or not at all.
fn check_backups(folder: &Path, said: &[String], what: &str) {
    let opened = |folder: &Path| Service::open(folder, options()).map(|s| s.all_jobs().unwrap().len() as u64);
    let was_said = |verb: &str, path: &Path| said.contains(&format!("{verb} {}", path.display()));
    for entry in std::fs::read_dir(folder.join("beside")).into_iter().flatten() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.starts_with("backup") {
            let again = folder.join("again");
            let manifest = Service::restore(&path, &again, &mut |_| Ok(())).unwrap();
            assert!(manifest.jobs > 0, "{what}: {manifest:?}");
            assert_eq!(opened(&again).unwrap(), manifest.jobs, "{what}");
            std::fs::remove_dir_all(again).unwrap();
        } else if name.starts_with("restored") {
            match opened(&path) {
                // Nothing was begun yet, or it was opened so before.
                Ok(0) => assert!(!was_said("restored", &path), "{what}"),
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::InvalidFile, "{what}: {error:?}");
                    assert!(!was_said("restored", &path), "{what}");
                }
            }
        }
        // All else is what was never finished; its name says so.
    }
    for line in said {
        if let Some(path) = line.strip_prefix("backup ").or(line.strip_prefix("restored ")) {
            assert!(Path::new(path).exists(), "{what}: {path}");
        }
    }
}

/// Copies a folder with what is in it.
fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    std::fs::set_permissions(to, std::fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (from, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if from.is_dir() {
            copy_folder(&from, &to);
        } else {
            std::fs::copy(from, to).unwrap();
        }
    }
}

/// Plays the scenario with `setting` for every failpoint; returns those that it never came to.
fn all(setting: &str) -> Vec<&'static str> {
    // Something to take up: a job whose worker was killed. Each begins with a copy, as a service does whose folder was moved.
    let left = new_folder();
    std::fs::write(left.path().join("input.mp4"), video()).unwrap();
    let (before, killed) = child(left.path(), "worker.claimed=return(kill)");
    assert!(killed);
    let (next, untouched) = (AtomicUsize::new(0), Mutex::new(vec![]));
    std::thread::scope(|scope| {
        for _ in 0..CHILDREN {
            scope.spawn(|| {
                loop {
                    let Some(name) = failpoints::NAMES.get(next.fetch_add(1, Ordering::Relaxed)) else {
                        return;
                    };
                    let folder = new_folder();
                    copy_folder(left.path(), folder.path());
                    let what = format!("{name}={setting}");
                    let (said, killed) = child(folder.path(), &what);
                    let kill = setting.contains("kill");
                    if kill && !killed {
                        untouched.lock().unwrap().push(*name);
                    }
                    assert!(killed || said.last().is_some_and(|l| l == "done"), "{what}: {said:?}");
                    check(folder.path(), &said, &what);
                    check_service(folder.path(), &before, &what);
                }
            });
        }
    });
    let mut untouched = untouched.into_inner().unwrap();
    untouched.sort_unstable();
    untouched
}

/// Places to which a service of one folder never comes; tests/rest/test_cloud_storage.py kills servers at those of submissions,
/// tests/rest/test_migrate.py at those of the way to many machines.
const OF_MANY_MACHINES: [&str; 10] = [
    "database.fail_waiting.commit",
    "database.note_service_id.commit",
    "database.take_rows.commit",
    "database.take_tokens.commit",
    "migrate.copy",
    "migrate.place",
    "migrate.rows",
    "submit.added",
    "submit.copied",
    "submit.taken_in",
];

/// A place to which only an archive of pictures comes; a test beside the code (service/video_file.rs) goes through it.
const OF_ARCHIVES: &str = "workspace.pictures";

#[test]
fn killed_at_the_first_pass_of_every_failpoint() {
    let mut elsewhere = OF_MANY_MACHINES.to_vec();
    elsewhere.push(OF_ARCHIVES);
    assert_eq!(all("return(kill)"), elsewhere);
}

#[test]
fn killed_at_the_second_pass_of_every_failpoint() {
    // Some are passed once only; then nothing was killed, and all must be well anyhow.
    all("1*off->return(kill)");
}

/// `KILLS=10000` kills more often than the usual 20 times.
#[test]
fn killed_at_any_moment() {
    let video = video();
    let kills = std::env::var("KILLS").map_or(20, |text| text.parse::<usize>().unwrap());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CHILDREN {
            scope.spawn(|| {
                while next.load(Ordering::Relaxed) < kills {
                    // One folder is killed in several times: what one left is what the next finds.
                    let folder = new_folder();
                    std::fs::write(folder.path().join("input.mp4"), &video).unwrap();
                    let mut all = vec![];
                    for _ in 0..2 {
                        // Spread evenly over the time that the scenario takes (golden ratio sequence).
                        let k = next.fetch_add(1, Ordering::Relaxed) as f64;
                        let limit = Duration::from_secs_f64(0.01 + 2.0 * (k * 0.618_033_988_75).fract());
                        all.push((k, child_until(folder.path(), "", Some(limit)).0));
                    }
                    for (k, said) in all {
                        check(folder.path(), &said, &format!("kill {k}"));
                    }
                }
            });
        }
    });
}

#[test]
fn an_operation_that_fails_once_loses_nothing() {
    all("1*return(eio)");
    all("1*return(enospc)");
}
