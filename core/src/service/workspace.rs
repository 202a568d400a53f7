//! The folders in which workers work: one for each job that was begun, locked while somebody is in it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::failpoints;
use crate::file_lock::FileLock;
use crate::files::{create_private_folder, free_space, new_try, sweep_tries, try_disk};
use crate::job::{JobId, Timestamp};

const LOCK: &str = "worker.lock";
const LOG: &str = "job.log";
/// The folder of the pipeline, and
const RUN: &str = "run";
/// that of the pictures of an archive: each is taken for complete where it is.
pub(super) const PICTURES: &str = "pictures";

/// All workspaces of this machine.
pub(super) struct Workspaces {
    root: PathBuf,
    /// What a test says is free in place of the system.
    #[cfg(test)]
    pub(super) told_free: Mutex<Option<u64>>,
}

/// A workspace that this worker is in.
pub(super) struct JobWorkspace {
    folder: PathBuf,
    log: Mutex<File>,
    lock: FileLock,
}

impl Workspaces {
    pub(super) fn open(root: PathBuf) -> Result<Self> {
        create_private_folder(&root)?;
        Ok(Self::to_look_at(root))
    }

    /// Those of a folder as it is: nothing is made.
    pub(super) fn to_look_at(root: PathBuf) -> Self {
        Self {
            root,
            #[cfg(test)]
            told_free: Mutex::default(),
        }
    }

    /// Tries whether something can be written here.
    pub(super) fn try_disk(&self) -> Result<()> {
        failpoints::pass("workspace.create").map_err(|e| Error::io("write", &self.root, e))?;
        try_disk(&self.root)
    }

    /// Removes what killed processes left of such a try, if nobody touched it for `age`.
    pub(super) fn sweep(&self, age: Duration) -> Result<()> {
        sweep_tries(&self.root, age)
    }

    /// The name of a new file for a moment; one that a killed process leaves is swept.
    pub(super) fn new_file_to_look_at(&self) -> Result<PathBuf> {
        new_try(&self.root)
    }

    /// Bytes that can still be written here, if there is a way to know.
    pub(super) fn free_space(&self) -> Result<Option<u64>> {
        #[cfg(test)]
        {
            let told = *self.told_free.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if told.is_some() {
                return Ok(told);
            }
        }
        free_space(&self.root)
    }

    fn folder(&self, job: JobId) -> PathBuf {
        self.root.join(job.to_string())
    }

    /// Enters the workspace of `job`, making it if need be; nothing if somebody else is in it.
    pub(super) fn enter(&self, job: JobId) -> Result<Option<JobWorkspace>> {
        let folder = self.folder(job);
        failpoints::pass("workspace.create").map_err(|e| Error::io("create", &folder, e))?;
        create_private_folder(&folder)?;
        let Some(lock) = lock(&folder)? else { return Ok(None) };
        let path = folder.join(LOG);
        let log =
            File::options().create(true).append(true).open(&path).map_err(|e| Error::io("open", &path, e))?;
        Ok(Some(JobWorkspace { folder, log: Mutex::new(log), lock }))
    }

    /// Removes the workspace of `job`, if there is one; says whether it is gone: it is not while somebody is in it.
    pub(super) fn remove(&self, job: JobId) -> Result<bool> {
        self.remove_after(job, |_| Ok(()))
    }

    /// The same, when `last_look` has seen to the log in it, if there is one. If that fails nothing is removed.
    pub(super) fn remove_after(
        &self,
        job: JobId,
        last_look: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<bool> {
        let folder = self.folder(job);
        if !folder.exists() {
            return Ok(true);
        }
        let Some(lock) = lock(&folder)? else { return Ok(!folder.exists()) };
        let log = folder.join(LOG);
        if log.exists() {
            last_look(&log)?;
        }
        remove(&folder, &lock).map(|()| true)
    }

    /// The jobs that have one.
    pub(super) fn list(&self) -> Result<Vec<JobId>> {
        let entries = match fs::read_dir(&self.root) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            entries => entries.map_err(|e| Error::io("list", &self.root, e))?,
        };
        let mut jobs = Vec::new();
        for entry in entries {
            let name = entry.map_err(|e| Error::io("list", &self.root, e))?.file_name();
            jobs.extend(
                name.to_str().and_then(|n| n.parse().ok()).filter(|job: &JobId| name == *job.to_string()),
            );
        }
        Ok(jobs)
    }

    /// The log so far.
    pub(super) fn read_log(&self, job: JobId) -> Result<Vec<u8>> {
        let path = self.folder(job).join(LOG);
        match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            read => read.map_err(|e| Error::io("read", &path, e)),
        }
    }
}

/// The line with which the log of an attempt begins.
pub(super) fn first_line(attempt: u32, worker: &str) -> String {
    format!("attempt {attempt} by {worker}")
}

/// Whether the attempt was made here, as the log says.
pub(super) fn is_log_of(log: &Path, attempt: u32) -> Result<bool> {
    let text = fs::read(log).map_err(|e| Error::io("read", log, e))?;
    let begin = format!(" {}", first_line(attempt, ""));
    Ok(String::from_utf8_lossy(&text).lines().any(|line| line.contains(&begin)))
}

/// Locks the folder for whoever works in it or removes it.
fn lock(folder: &Path) -> Result<Option<FileLock>> {
    let path = folder.join(LOCK);
    let open = File::options().create(true).truncate(false).write(true).open(&path);
    let file = match open {
        // Removed since it was found.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        open => open.map_err(|e| Error::io("open", &path, e))?,
    };
    let lock = FileLock::try_take(file).map_err(|e| Error::io("lock", &path, e))?;
    // The file may have been removed, with the folder, between its opening and its locking: then the lock says nothing.
    Ok(lock.filter(|lock| is_the_one(lock.file(), &path)))
}

#[cfg(unix)]
fn is_the_one(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), fs::metadata(path)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// Elsewhere files have no number to compare: a lock's file that was removed and made again meanwhile is taken for the old one.
#[cfg(not(unix))]
fn is_the_one(_file: &File, path: &Path) -> bool {
    path.exists()
}

/// Removes the folder; the lock keeps others out until it is gone.
fn remove(folder: &Path, _lock: &FileLock) -> Result<()> {
    let fails = |e| Error::io("remove", folder, e);
    failpoints::pass("workspace.remove").map_err(fails)?;
    // The lock's file last: while it is there, nobody can begin anew in a folder that is half removed.
    remove_all_but(&[LOCK], folder)?;
    fs::remove_dir_all(folder).map_err(fails)
}

/// Removes what is in the folder, but for the files of these names.
fn remove_all_but(kept: &[&str], folder: &Path) -> Result<()> {
    let fails = |e| Error::io("remove", folder, e);
    for entry in fs::read_dir(folder).map_err(fails)? {
        let entry = entry.map_err(fails)?;
        if kept.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        let path = entry.path();
        let removed = if entry.file_type().map_err(fails)?.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.map_err(|e| Error::io("remove", &path, e))?;
    }
    Ok(())
}

/// Bytes of the files in the folder, as far as they can be seen.
fn bytes_in(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let bytes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_in(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    bytes.fold(0, u64::saturating_add)
}

/// The name of what is not to be gone on with.
fn gone(name: &str) -> String {
    format!("{name}.gone")
}

impl JobWorkspace {
    /// The folder itself.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the pipeline works.
    pub(super) fn pipeline_folder(&self) -> PathBuf {
        self.folder.join(RUN)
    }

    /// The log's file.
    pub(super) fn log_path(&self) -> PathBuf {
        self.folder.join(LOG)
    }

    /// Adds a line to the log.
    pub(super) fn log(&self, now: Timestamp, line: &str) {
        let mut log = self.log.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // A log that cannot be written stops no job.
        let _ = writeln!(log, "{now} {line}");
    }

    /// Bytes that lie in it.
    pub(super) fn bytes(&self) -> u64 {
        bytes_in(&self.folder)
    }

    /// Removes all that the work has left in it; the log stays.
    pub(super) fn clear(&self) -> Result<()> {
        // What may go file by file is first, also what an earlier try has left: on a full disk a new name may need the room.
        remove_all_but(&[LOCK, LOG, RUN, PICTURES], &self.folder)?;
        for name in [PICTURES, RUN] {
            self.set_aside(name)?;
        }
        remove_all_but(&[LOCK, LOG], &self.folder)
    }

    /// Removes the pictures that were unpacked from an archive: they are unpacked anew.
    pub(super) fn forget_pictures(&self) -> Result<()> {
        let gone = self.folder.join(gone(PICTURES));
        let remove = || match fs::remove_dir_all(&gone) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", &gone, e)),
            _ => Ok(()),
        };
        remove()?;
        self.set_aside(PICTURES)?;
        remove()
    }

    /// Takes the name of what would be gone on with, however much of it were left when its removal stops half-way.
    fn set_aside(&self, name: &str) -> Result<()> {
        let whole = self.folder.join(name);
        match fs::rename(&whole, self.folder.join(gone(name))) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", &whole, e)),
            _ => Ok(()),
        }
    }

    /// Leaves and removes it.
    pub(super) fn remove(self) -> Result<()> {
        remove(&self.folder, &self.lock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_at_a_time_and_nothing_stays() {
        let folder = tempfile::tempdir().unwrap();
        let workspaces = Workspaces::open(folder.path().join("work")).unwrap();
        let job = JobId::random();
        let first = workspaces.enter(job).unwrap().unwrap();
        assert!(workspaces.enter(job).unwrap().is_none());
        first.log(Timestamp::now(), "hello");
        fs::create_dir_all(first.pipeline_folder().join("frames")).unwrap();
        assert!(String::from_utf8(workspaces.read_log(job).unwrap()).unwrap().ends_with(" hello\n"));
        assert!(!workspaces.remove(job).unwrap());
        drop(first);
        // What the first did is there for the second.
        let second = workspaces.enter(job).unwrap().unwrap();
        assert!(second.pipeline_folder().join("frames").is_dir());
        assert_eq!(workspaces.list().unwrap(), [job]);
        // Its log outlives what it has made.
        fs::write(second.pipeline_folder().join("frames/1.jpg"), [0u8; 1000]).unwrap();
        assert!(second.bytes() > 1000);
        second.clear().unwrap();
        assert!(!second.pipeline_folder().exists() && (1..1000).contains(&second.bytes()));
        assert!(workspaces.enter(job).unwrap().is_none());
        second.remove().unwrap();
        assert_eq!(workspaces.list().unwrap(), []);
        assert!(workspaces.remove(job).unwrap());
        assert_eq!(workspaces.read_log(job).unwrap(), b"");
        drop(workspaces.enter(job).unwrap().unwrap());
        assert!(workspaces.remove(job).unwrap());
    }

    #[test]
    fn nobody_goes_on_with_what_is_half_removed() {
        let folder = tempfile::tempdir().unwrap();
        let workspaces = Workspaces::open(folder.path().join("work")).unwrap();
        let workspace = workspaces.enter(JobId::random()).unwrap().unwrap();
        let fill = || {
            for part in ["pictures", "run/frames"] {
                fs::create_dir_all(workspace.folder().join(part)).unwrap();
                fs::write(workspace.folder().join(part).join("1.jpg"), "x").unwrap();
            }
        };
        let is_there = |name: &str| workspace.folder().join(name).exists();
        fill();
        // The removal ended here: what is left has another name.
        for name in [PICTURES, RUN] {
            workspace.set_aside(name).unwrap();
        }
        assert!(!is_there("pictures") && !workspace.pipeline_folder().exists());
        assert!(is_there("pictures.gone/1.jpg") && is_there("run.gone/frames/1.jpg"));
        // It is in the way of nobody, and goes the next time.
        fill();
        workspace.clear().unwrap();
        let left = fs::read_dir(workspace.folder()).unwrap().map(|e| e.unwrap().file_name());
        let mut left: Vec<_> = left.map(|name| name.into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, [LOG, LOCK]);
        // Of the pictures alone, also where an earlier removal of them has stopped half-way.
        fill();
        workspace.set_aside(PICTURES).unwrap();
        fill();
        workspace.forget_pictures().unwrap();
        assert!(!is_there("pictures") && !is_there("pictures.gone") && is_there("run/frames/1.jpg"));
        workspace.forget_pictures().unwrap();
        workspace.clear().unwrap();
    }
}
