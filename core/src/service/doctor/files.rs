//! Rows against files, both ways.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rayon::prelude::*;

use super::finding::{Finding, Repair, some_of};
use crate::database::{FileOwner, JobDatabase, JobRows, NamedFile, RowsFile, SqliteDatabase};
use crate::error::Result;
use crate::job::ArtifactKind;
use crate::service::layout;
use crate::service::lost_files::key_of;
use crate::service::needed::is_needed;
use crate::service::workspace::Workspaces;
use crate::storage::{BlobKind, LocalStorage, Storage};

/// Where the files are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Where {
    /// In the folder of the service.
    Folder,
    /// Where other machines see them too: what no row names may be another service's there, and is left where it is.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "rows are shared in PostgreSQL only"))]
    Shared,
}

pub(super) fn examine(folder: &Path, rows: &SqliteDatabase, age: Duration, findings: &mut Vec<Finding>) {
    let storage = LocalStorage::to_look_at(folder);
    let looks = [
        named_files(&storage, rows, Where::Folder, findings),
        orphans(&storage, rows, age, Where::Folder, findings),
        staged(&storage, age, findings),
        workspaces(folder, rows, findings),
    ];
    findings.extend(looks.iter().filter_map(|look| look.as_ref().err()).map(Finding::unreadable));
}

/// Files that rows name: are they there, and as large as they should be?
pub(super) fn named_files(
    storage: &dyn Storage,
    rows: &dyn JobDatabase,
    place: Where,
    findings: &mut Vec<Finding>,
) -> Result<()> {
    // Several at once: an object store takes its time for each.
    let look = |file: &NamedFile| -> Result<Option<(Option<u64>, String)>> {
        let key = key_of(file.file);
        let found = storage.metadata(&key)?.map(|metadata| metadata.size);
        let wrong = match found {
            None => format!("{key} is missing"),
            Some(size) if size != file.size => {
                format!("{key} has {size} bytes and should have {}", file.size)
            }
            Some(_) => return Ok(None),
        };
        Ok(Some((found, wrong)))
    };
    let named = rows.named_files()?;
    let looked = named.par_iter().map(|file| Ok(look(file)?.map(|(found, wrong)| (file, found, wrong))));
    let mut wrong: Vec<_> = looked.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
    if wrong.is_empty() {
        return Ok(());
    }
    // What was deleted meanwhile is not named any more.
    let still = rows.named_files()?;
    wrong.retain(|(file, ..)| still.contains(file));
    if wrong.len() > 1 && wrong.len() == named.len() && wrong.iter().all(|(_, found, _)| found.is_none()) {
        findings.push(all_lost(wrong.len(), place));
        return Ok(());
    }
    findings
        .extend(wrong.iter().map(|(file, _, wrong)| lost(file, wrong, place).with(Repair::Lose(file.file))));
    Ok(())
}

/// Files are lost one by one. Where there is none at all, one looks at the wrong place: to believe the rows wrong would be the end of
/// every job.
fn all_lost(count: usize, place: Where) -> Finding {
    let found =
        format!("none of the {count} files that rows name is there: it looks as if this were another place");
    Finding::problem(
        "all_files_lost",
        found,
        match place {
            Where::Folder => {
                "see whether a part of the folder lies on a disk that is not mounted, or restore a backup to a new folder. If \
                 all files are lost for good, delete the jobs (`reconstruct jobs delete`)"
            }
            Where::Shared => {
                "see whether the address of the storage is another (--storage), or whether it is mounted here. Start no server \
                 before. If all files are lost for good, delete the jobs (`reconstruct jobs delete`)"
            }
        },
    )
}

fn lost(file: &NamedFile, wrong: &str, place: Where) -> Finding {
    let NamedFile { user, file, .. } = file;
    let advice = |repaired: &str| match place {
        Where::Folder => format!("copy the file from a backup to its place. Else --repair {repaired}"),
        Where::Shared => format!(
            "bring the file back: from a backup, or an earlier version that the store kept. Else --repair {repaired}"
        ),
    };
    match file {
        RowsFile::Video { .. } => Finding::problem(
            "video_lost",
            format!("{wrong}: a video of the user {user}. Jobs that wait for it cannot be done"),
            advice(
                "notes that it is lost: jobs that wait for it fail with files_lost, finished ones stay as they are",
            ),
        ),
        RowsFile::Artifact { job, kind: ArtifactKind::Ply | ArtifactKind::Spz, .. } => Finding::problem(
            "scene_lost",
            format!(
                "{wrong}: the job {job} of the user {user} says that it is finished, and its scene cannot be fetched"
            ),
            advice(
                "takes it back: the job goes to the queue and is done again if its video is still there; otherwise it fails with \
                 files_lost",
            ),
        ),
        RowsFile::Artifact { job, .. } => Finding::problem(
            "artifact_lost",
            format!("{wrong}: it belongs to the job {job} of the user {user}"),
            advice("notes that the job does not have it; its scene stays"),
        ),
    }
}

/// Files that no row names.
pub(super) fn orphans(
    storage: &dyn Storage,
    rows: &dyn JobDatabase,
    age: Duration,
    place: Where,
    findings: &mut Vec<Finding>,
) -> Result<()> {
    let (mut orphans, mut bytes) = (vec![], 0);
    for kind in BlobKind::ALL {
        for key in storage.list(kind, age)? {
            if !is_needed(rows, &key)? {
                bytes += storage.metadata(&key)?.map_or(0, |metadata| metadata.size);
                orphans.push(key);
            }
        }
    }
    if !orphans.is_empty() {
        let names: Vec<String> = orphans.iter().map(ToString::to_string).collect();
        let finding = Finding::problem(
            "orphans",
            format!(
                "no row names {} stored files with {bytes} bytes ({}): a killed program left them, or the database is older than \
                 they are",
                names.len(),
                some_of(&names)
            ),
            match place {
                Where::Folder => format!(
                    "a server removes them at its next look, once an hour. If the database was replaced by an older one, move \
                     away what you need before you start it; --repair puts them into {}/",
                    layout::SET_ASIDE
                ),
                Where::Shared => "a server removes them at its next look, once an hour. If the database was replaced by an older \
                                  one, or these are another service's, stop all servers and copy what you need elsewhere"
                    .to_owned(),
            },
        );
        findings.push(match place {
            Where::Folder => finding.with(Repair::SetAside(orphans)),
            Where::Shared => finding,
        });
    }
    Ok(())
}

/// What was being written when a process died.
fn staged(storage: &LocalStorage, age: Duration, findings: &mut Vec<Finding>) -> Result<()> {
    let staged = storage.abandoned(age)?;
    if !staged.is_empty() {
        let bytes: u64 = staged.iter().filter_map(|path| Some(fs::metadata(path).ok()?.len())).sum();
        let finding = Finding::note(
            "staged_leftovers",
            format!(
                "{} files with {bytes} bytes were never complete: transfers that a killed program had begun",
                staged.len()
            ),
            "nothing: nobody was told that they had arrived, and a server removes them once an hour",
        );
        findings.push(finding.with(Repair::RemoveStaged(age)));
    }
    Ok(())
}

/// Workspaces of jobs that have ended.
fn workspaces(folder: &Path, rows: &SqliteDatabase, findings: &mut Vec<Finding>) -> Result<()> {
    let mut ended = vec![];
    for job in Workspaces::to_look_at(folder.join(layout::WORK)).list()? {
        if !matches!(rows.file_owner(job)?, FileOwner::Unfinished) {
            ended.push(job);
        }
    }
    if !ended.is_empty() {
        let names: Vec<String> = ended.iter().map(ToString::to_string).collect();
        let finding = Finding::note(
            "ended_workspaces",
            format!("the jobs {} have ended and still have a workspace", some_of(&names)),
            "nothing: a server removes them once an hour, unless somebody is in them",
        );
        findings.push(finding.with(Repair::RemoveWorkspaces(ended)));
    }
    Ok(())
}
