//! Mends what can be mended safely, one finding after the other.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::finding::{Diagnosis, Repair};
use crate::database::{Lost, RowsFile};
use crate::error::{Error, Result};
use crate::files::{create_private_file, create_private_folder, rename, replace_atomically};
use crate::service::job_changes::{JobEvent, tell_of};
use crate::service::lost_files::{FILES_LOST, key_of, lose};
use crate::service::{Addresses, Inner, Service, ServiceOptions, layout};
use crate::storage::{BlobKey, Storage};

/// What was done about a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// The code of the finding.
    pub code: &'static str,
    /// What was done, or why it could not be.
    pub message: String,
    /// Whether it could be done.
    pub done: bool,
}

impl Service {
    /// Sees to the findings that are repairable, each by itself, and says what it did. No file that may be somebody's is removed:
    /// it is moved to `set-aside/` in the folder, for the operator to look at. Opens the service, which takes back the jobs of
    /// dead workers as every start does.
    ///
    /// # Errors
    /// Those of [`Service::open`], if a finding needs it open.
    pub fn repair(folder: &Path, options: &ServiceOptions, diagnosis: &Diagnosis) -> Result<Vec<Repaired>> {
        Self::repair_shared(folder, &Addresses::default(), options, diagnosis)
    }

    /// The same for the service whose rows and files are at `addresses`, where other machines see them too: of these findings the
    /// lost files are repairable, while servers and workers run. What there is of a damaged file is copied to `set-aside/` in
    /// `folder`, this machine's own place.
    ///
    /// # Errors
    /// Those of [`Service::open_shared`], if a finding needs the service open.
    pub fn repair_shared(
        folder: &Path,
        addresses: &Addresses,
        options: &ServiceOptions,
        diagnosis: &Diagnosis,
    ) -> Result<Vec<Repaired>> {
        let mut repaired = vec![];
        let mut repairs: Vec<_> =
            diagnosis.findings.iter().filter_map(|f| Some((f.code, f.repair.as_ref()?))).collect();
        // Videos before artifacts, see `lose`; all else in the order in which it was found.
        repairs.sort_by_key(|(_, repair)| matches!(repair, Repair::Lose(RowsFile::Artifact { .. })));
        let mut service = None;
        for (code, repair) in repairs {
            let done = match repair {
                Repair::Restrict(paths) => restrict(paths),
                Repair::RemoveLocks(paths) => Ok(remove_locks(paths)),
                _ => {
                    let service = match &mut service {
                        Some(service) => service,
                        none => none.insert(Self::open_shared(folder, addresses, options.clone())?),
                    };
                    service.do_repair(repair)
                }
            };
            repaired.push(match done {
                Ok(message) => Repaired { code, message, done: true },
                Err(error) => Repaired { code, message: error.to_string(), done: false },
            });
        }
        Ok(repaired)
    }

    fn do_repair(&self, repair: &Repair) -> Result<String> {
        let inner = &self.inner;
        match repair {
            Repair::Lose(file) => self.note_lost(*file),
            Repair::SetAside(keys) => {
                for key in keys {
                    self.set_aside(key)?;
                }
                Ok(format!(
                    "moved {} files to {}",
                    keys.len(),
                    inner.folder.join(layout::SET_ASIDE).display()
                ))
            }
            Repair::RemoveStaged(age) => {
                let removed = inner.storage.sweep_staged(*age)?;
                Ok(format!("removed {removed} files that were never complete"))
            }
            Repair::RemoveWorkspaces(jobs) => {
                let mut removed = 0;
                for job in jobs {
                    removed += usize::from(self.remove_leftovers(*job)?);
                }
                Ok(format!("removed {removed} workspaces"))
            }
            // Done without opening the service.
            Repair::Restrict(paths) => restrict(paths),
            Repair::RemoveLocks(paths) => Ok(remove_locks(paths)),
        }
    }

    /// Notes that a file is lost, unless it has come back or its row is gone.
    fn note_lost(&self, file: RowsFile) -> Result<String> {
        let inner = &self.inner;
        let key = key_of(file);
        let size = inner.database.named_files()?.into_iter().find(|named| named.file == file).map(|n| n.size);
        let found = inner.storage.metadata(&key)?.map(|metadata| metadata.size);
        if size.is_none() || found == size {
            return Ok(format!("{key}: nothing was to be done any more"));
        }
        let lost = lose(inner.database.as_ref(), file)?;
        let mut message = match &lost {
            Lost::Unchanged => {
                return Ok(format!(
                    "{key}: a worker is at a job that needs it; look again when that has ended"
                ));
            }
            Lost::Forgotten => format!("{key} is no longer named by a row"),
            Lost::Queued(job) => {
                tell_of(*job, JobEvent::GivenBack { why: FILES_LOST });
                format!("the job {job} is in the queue again")
            }
            Lost::Failed(jobs) => {
                jobs.iter().for_each(|job| tell_of(*job, JobEvent::Failed { code: FILES_LOST }));
                let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
                format!("failed with {FILES_LOST}: {}", jobs.join(", "))
            }
        };
        // What is left of a damaged file may be worth something to somebody.
        if found.is_some() {
            message += &match self.set_aside(&key) {
                Ok(()) => format!(
                    "; what there is of {key} is in {}",
                    inner.folder.join(layout::SET_ASIDE).display()
                ),
                Err(error) => format!(
                    "; what there is of {key} could not be put aside, and a server removes it at its next look: {error}"
                ),
            };
        }
        inner.changes.notify();
        Ok(message)
    }

    /// Moves a stored file to the folder in which the operator finds it.
    fn set_aside(&self, key: &BlobKey) -> Result<()> {
        let Inner { folder, storage, .. } = self.inner.as_ref();
        let target = folder.join(layout::SET_ASIDE).join(key.to_string());
        create_private_folder(target.parent().unwrap_or(folder))?;
        let moved = match storage.local_path(key).filter(|path| path.starts_with(folder)) {
            Some(path) => rename(&path, &target),
            None => fetch(storage.as_ref(), key, &target).and_then(|()| storage.delete(key)),
        };
        match moved {
            // A server was faster.
            Err(e) if e.kind() == crate::ErrorKind::NotFound => Ok(()),
            moved => moved,
        }
    }
}

/// Copies a blob to the file `target`.
fn fetch(storage: &dyn Storage, key: &BlobKey, target: &Path) -> Result<()> {
    let mut blob = storage.open(key)?;
    replace_atomically(target, |path| {
        let io = |e| Error::io("write", target, e);
        let mut file = create_private_file(path).map_err(io)?;
        std::io::copy(&mut blob.file, &mut file).map_err(io)?;
        file.sync_all().map_err(io)
    })
}

/// Removes locks that nobody holds. Another process may do the same at the same time.
fn remove_locks(paths: &[PathBuf]) -> String {
    let removed = paths.iter().filter(|path| fs::remove_file(path).is_ok()).count();
    format!("removed {removed} locks of processes that are gone")
}

#[cfg(unix)]
fn restrict(paths: &[PathBuf]) -> Result<String> {
    use std::os::unix::fs::PermissionsExt;
    for path in paths {
        let io = |e| Error::io("change the rights of", path, e);
        let mut rights = fs::metadata(path).map_err(io)?.permissions();
        rights.set_mode(rights.mode() & 0o700);
        fs::set_permissions(path, rights).map_err(io)?;
    }
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    Ok(format!("only their owner may use these now: {}", super::finding::some_of(&names)))
}

/// There is no finding that asks for it.
#[cfg(not(unix))]
fn restrict(_: &[PathBuf]) -> Result<String> {
    Err(Error::new(crate::ErrorKind::Unsupported, "the rights of files are the system's here"))
}
