//! Rows against files, both ways.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::finding::{Finding, Repair, some_of};
use crate::database::{FileOwner, JobRows, NamedFile, RowsFile, SqliteDatabase, UpkeepRows};
use crate::error::Result;
use crate::job::ArtifactKind;
use crate::service::layout;
use crate::service::lost_files::key_of;
use crate::service::needed::is_needed;
use crate::service::workspace::Workspaces;
use crate::storage::{BlobKind, LocalStorage, Storage};

pub(super) fn examine(folder: &Path, rows: &SqliteDatabase, age: Duration, findings: &mut Vec<Finding>) {
    let storage = LocalStorage::to_look_at(folder);
    let looks = [
        named_files(&storage, rows, findings),
        orphans(&storage, rows, age, findings),
        staged(&storage, age, findings),
        workspaces(folder, rows, findings),
    ];
    findings.extend(looks.iter().filter_map(|look| look.as_ref().err()).map(Finding::unreadable));
}

/// Files that rows name: are they there, and as large as they should be?
fn named_files(storage: &LocalStorage, rows: &SqliteDatabase, findings: &mut Vec<Finding>) -> Result<()> {
    let mut wrong = vec![];
    for file in rows.named_files()? {
        let key = key_of(file.file);
        match storage.metadata(&key)? {
            None => wrong.push((file, format!("{key} is missing"))),
            Some(found) if found.size != file.size => {
                let sizes = format!("{key} has {} bytes and should have {}", found.size, file.size);
                wrong.push((file, sizes));
            }
            Some(_) => {}
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    // What was deleted meanwhile is not named any more.
    let still = rows.named_files()?;
    wrong.retain(|(file, _)| still.contains(file));
    findings.extend(wrong.iter().map(|(file, wrong)| lost(file, wrong).with(Repair::Lose(file.file))));
    Ok(())
}

fn lost(file: &NamedFile, wrong: &str) -> Finding {
    let NamedFile { user, file, .. } = file;
    match file {
        RowsFile::Video { .. } => Finding::problem(
            "video_lost",
            format!("{wrong}: a video of the user {user}. Jobs that wait for it cannot be done"),
            "copy the file from a backup to its place. Else --repair notes that it is lost: jobs that wait for it fail with \
             files_lost, finished ones stay as they are",
        ),
        RowsFile::Artifact { job, kind: ArtifactKind::Ply | ArtifactKind::Spz, .. } => Finding::problem(
            "scene_lost",
            format!(
                "{wrong}: the job {job} of the user {user} says that it is finished, and its scene cannot be fetched"
            ),
            "copy the file from a backup to its place. Else --repair takes it back: the job goes to the queue and is done again \
             if its video is still there; otherwise it fails with files_lost",
        ),
        RowsFile::Artifact { job, .. } => Finding::problem(
            "artifact_lost",
            format!("{wrong}: it belongs to the job {job} of the user {user}"),
            "copy the file from a backup to its place. Else --repair notes that the job does not have it; its scene stays",
        ),
    }
}

/// Files that no row names.
fn orphans(
    storage: &LocalStorage,
    rows: &SqliteDatabase,
    age: Duration,
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
            format!(
                "a server removes them at its next look, once an hour. If the database was replaced by an older one, move away \
                 what you need before you start it; --repair puts them into {}/",
                layout::SET_ASIDE
            ),
        );
        findings.push(finding.with(Repair::SetAside(orphans)));
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
