//! What every storage must do: one function for each promise, and one test of each for every storage.

use std::io::{Read, Seek, SeekFrom};
use std::time::Duration;

use super::{BlobKey, BlobKind, Reached, Storage};
use crate::error::ErrorKind;
use crate::job::{ArtifactKind, BlobName, JobId, VideoExtension};
use crate::stage::Stage;

fn write(storage: &dyn Storage, key: &BlobKey, bytes: &[u8]) {
    let mut blob = storage.create(key).unwrap();
    for part in bytes.chunks(1000) {
        blob.write_all(part).unwrap();
    }
    assert_eq!(blob.commit().unwrap().size, bytes.len() as u64);
}

fn read(storage: &dyn Storage, key: &BlobKey) -> Vec<u8> {
    let mut reader = storage.open(key).unwrap();
    let mut bytes = Vec::new();
    reader.file.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, reader.size);
    bytes
}

/// The numbers from 0, four bytes each: more than any buffer holds.
fn numbers() -> Vec<u8> {
    (0..100_000u32).flat_map(u32::to_le_bytes).collect()
}

/// Makes one test of each promise for the storage that `$open` gives: a function to an empty storage and what it needs to live, if
/// there is what it needs.
macro_rules! tests {
    ($open:expr) => {
        $crate::storage::suite::tests! {
            $open =>
            a_blob_is_not_there_before_its_commit
            a_blob_that_was_not_committed_leaves_nothing
            a_committed_blob_comes_back_whole
            a_blob_is_read_from_any_place
            a_blob_may_be_empty
            a_commit_takes_the_place_of_the_blob_before
            a_file_becomes_a_blob_and_stays_where_it_was
            a_file_that_is_missing_is_not_found_and_changes_nothing
            blobs_are_listed_by_kind
            young_blobs_are_not_listed_as_old
            an_upload_is_listed_with_its_versions_and_blocks
            the_blocks_of_an_upload_are_listed_with_their_sizes
            parts_of_blobs_make_a_blob
            a_copy_keeps_its_bytes
            checkpoints_of_a_job_are_listed_with_their_sizes
            the_artifacts_of_all_attempts_at_a_job_are_listed
            a_deletion_is_final_and_repeatable
            a_deletion_does_not_disturb_who_reads
            a_blob_comes_back_after_the_last_of_its_job_was_deleted
            whose_the_files_are_is_noted_once
            free_space_is_unknown_or_not_none
        }
    };
    ($open:expr => $($promise:ident)*) => {
        $(#[test]
        fn $promise() {
            let Some((_keep, storage)) = $open() else { return };
            $crate::storage::suite::$promise(&storage);
        })*
    };
}
pub(super) use tests;

const ANY_AGE: Duration = Duration::ZERO;
const KINDS: [BlobKind; 3] = [BlobKind::Video, BlobKind::Block, BlobKind::Artifact];

fn video() -> BlobKey {
    BlobKey::Video { name: BlobName::random(VideoExtension::Mp4), version: 0xfeed }
}

fn artifact() -> BlobKey {
    BlobKey::Artifact { job: JobId::random(), attempt: 3, kind: ArtifactKind::Spz }
}

/// Nothing is left over that a sweep would remove.
fn is_clean(storage: &dyn Storage) {
    assert_eq!(storage.sweep_staged(ANY_AGE).unwrap(), 0);
}

pub(super) fn a_blob_is_not_there_before_its_commit(storage: &dyn Storage) {
    let key = video();
    let mut staged = storage.create(&key).unwrap();
    staged.write_all(b"half").unwrap();
    assert_eq!(storage.metadata(&key).unwrap(), None);
    assert_eq!(storage.open(&key).err().unwrap().kind(), ErrorKind::NotFound);
    assert_eq!(storage.list(BlobKind::Video, ANY_AGE).unwrap(), []);
}

pub(super) fn a_blob_that_was_not_committed_leaves_nothing(storage: &dyn Storage) {
    let key = video();
    let mut staged = storage.create(&key).unwrap();
    staged.write_all(b"half").unwrap();
    drop(staged);
    assert_eq!(storage.metadata(&key).unwrap(), None);
    assert_eq!(storage.list(BlobKind::Video, ANY_AGE).unwrap(), []);
    is_clean(storage);
}

pub(super) fn a_committed_blob_comes_back_whole(storage: &dyn Storage) {
    let (key, bytes) = (video(), numbers());
    write(storage, &key, &bytes);
    assert_eq!(read(storage, &key), bytes);
    assert_eq!(storage.metadata(&key).unwrap().unwrap().size, bytes.len() as u64);
    is_clean(storage);
}

pub(super) fn a_blob_is_read_from_any_place(storage: &dyn Storage) {
    let key = video();
    write(storage, &key, &numbers());
    let mut reader = storage.open(&key).unwrap();
    reader.file.seek(SeekFrom::Start(4000)).unwrap();
    let mut four = [0; 4];
    reader.file.read_exact(&mut four).unwrap();
    assert_eq!(u32::from_le_bytes(four), 1000);
}

pub(super) fn a_blob_may_be_empty(storage: &dyn Storage) {
    let key = video();
    write(storage, &key, b"");
    assert_eq!(read(storage, &key), b"");
    assert_eq!(storage.metadata(&key).unwrap().unwrap().size, 0);
}

pub(super) fn a_commit_takes_the_place_of_the_blob_before(storage: &dyn Storage) {
    let key = video();
    for bytes in [&b"first and longer"[..], b"", b"again"] {
        write(storage, &key, bytes);
        assert_eq!(read(storage, &key), bytes);
    }
    assert_eq!(storage.list(BlobKind::Video, ANY_AGE).unwrap(), [key]);
}

/// Also twice under the same key, as by a worker that was killed in between.
pub(super) fn a_file_becomes_a_blob_and_stays_where_it_was(storage: &dyn Storage) {
    let key = artifact();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scene.spz");
    std::fs::write(&file, b"scene").unwrap();
    for _ in 0..2 {
        assert_eq!(storage.put_file(&key, &file).unwrap().size, 5);
        assert_eq!(read(storage, &key), b"scene");
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"scene");
    is_clean(storage);
}

pub(super) fn a_file_that_is_missing_is_not_found_and_changes_nothing(storage: &dyn Storage) {
    let key = artifact();
    write(storage, &key, b"scene");
    let folder = tempfile::tempdir().unwrap();
    let missing = storage.put_file(&key, &folder.path().join("none")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert_eq!(read(storage, &key), b"scene");
    is_clean(storage);
}

pub(super) fn blobs_are_listed_by_kind(storage: &dyn Storage) {
    let (video, artifact) = (video(), artifact());
    let name = BlobName::random(VideoExtension::Mp4);
    let mut blocks = [BlobKey::block(name, "a"), BlobKey::block(name, "b")];
    blocks.sort();
    blocks.iter().chain([&video, &artifact]).for_each(|key| write(storage, key, b"some"));
    assert_eq!(storage.list(BlobKind::Video, ANY_AGE).unwrap(), [video]);
    assert_eq!(storage.list(BlobKind::Artifact, ANY_AGE).unwrap(), [artifact]);
    assert_eq!(storage.list(BlobKind::Block, ANY_AGE).unwrap(), blocks);
}

pub(super) fn young_blobs_are_not_listed_as_old(storage: &dyn Storage) {
    let block = BlobKey::block(BlobName::random(VideoExtension::Mp4), "a");
    for key in [block, video(), artifact()] {
        write(storage, &key, b"some");
    }
    for kind in KINDS {
        assert_eq!(storage.list(kind, ANY_AGE).unwrap().len(), 1);
        assert_eq!(storage.list(kind, Duration::from_secs(3600)).unwrap(), []);
    }
}

pub(super) fn an_upload_is_listed_with_its_versions_and_blocks(storage: &dyn Storage) {
    let name = BlobName::random(VideoExtension::Mp4);
    let mut own = vec![
        BlobKey::Video { name, version: 0xfeed },
        BlobKey::Video { name, version: 0xff_feed },
        BlobKey::block(name, "a"),
        BlobKey::block(name, "b"),
    ];
    let other = BlobName::random(VideoExtension::Mp4);
    let others = [BlobKey::Video { name: other, version: 0xfeed }, BlobKey::block(other, "a"), artifact()];
    own.iter().chain(&others).for_each(|key| write(storage, key, b"some"));
    own.sort();
    assert_eq!(storage.list_upload(&name).unwrap(), own);
    assert_eq!(storage.list_upload(&BlobName::random(VideoExtension::Mp4)).unwrap(), []);
}

pub(super) fn the_blocks_of_an_upload_are_listed_with_their_sizes(storage: &dyn Storage) {
    let [name, other] = [(); 2].map(|()| BlobName::random(VideoExtension::Mp4));
    let mut own = vec![(BlobKey::block(name, "a"), 4), (BlobKey::block(name, "b"), 0)];
    write(storage, &own[0].0, b"some");
    write(storage, &own[1].0, b"");
    write(storage, &BlobKey::block(other, "a"), b"others");
    write(storage, &BlobKey::Video { name, version: 1 }, b"a video");
    own.sort();
    assert_eq!(storage.blocks(&name).unwrap(), own);
    assert_eq!(storage.blocks(&BlobName::random(VideoExtension::Mp4)).unwrap(), []);
}

pub(super) fn parts_of_blobs_make_a_blob(storage: &dyn Storage) {
    let name = BlobName::random(VideoExtension::Mp4);
    let (a, b) = (BlobKey::block(name, "a"), BlobKey::block(name, "b"));
    let bytes = numbers();
    write(storage, &a, &bytes);
    write(storage, &b, b"tail");
    let key = BlobKey::Video { name, version: 1 };
    let mut staged = storage.create(&key).unwrap();
    staged.write_all(b"head").unwrap();
    staged.append_blob(&a, 4096, 8192).unwrap();
    staged.append_blob(&b, 0, 4).unwrap();
    staged.write_all(b"!").unwrap();
    staged.commit().unwrap();
    assert_eq!(read(storage, &key), [b"head", &bytes[4096..12288], b"tail!"].concat());
    // What was used stays, and what is not there is an error.
    assert_eq!(read(storage, &a), bytes);
    let mut staged = storage.create(&key).unwrap();
    assert!(staged.append_blob(&b, 0, 5).is_err());
    let missing = staged.append_blob(&BlobKey::block(name, "c"), 0, 1).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

pub(super) fn a_copy_keeps_its_bytes(storage: &dyn Storage) {
    let name = BlobName::random(VideoExtension::Mp4);
    let (from, to) = (BlobKey::Incoming { name }, BlobKey::Video { name, version: 1 });
    assert_eq!(storage.copy(&from, &to).unwrap_err().kind(), ErrorKind::NotFound);
    let bytes = numbers();
    write(storage, &from, &bytes);
    assert_eq!(storage.copy(&from, &to).unwrap().size, bytes.len() as u64);
    write(storage, &from, b"another video");
    assert_eq!(read(storage, &to), bytes);
    assert_eq!(storage.list_upload(&name).unwrap(), [to, from]);
    storage.delete(&from).unwrap();
    assert_eq!(read(storage, &to), bytes);
}

pub(super) fn checkpoints_of_a_job_are_listed_with_their_sizes(storage: &dyn Storage) {
    let [job, other] = [(); 2].map(|()| JobId::random());
    let key = |job, reached| BlobKey::Checkpoint { job, reached, version: 7 };
    let mut own =
        vec![(key(job, Reached::Finished(Stage::Frames)), 6), (key(job, Reached::Training { step: 500 }), 0)];
    write(storage, &own[0].0, b"frames");
    write(storage, &own[1].0, b"");
    write(storage, &key(other, Reached::Finished(Stage::Sfm)), b"poses");
    own.sort();
    assert_eq!(storage.checkpoints(job).unwrap(), own);
    assert_eq!(storage.checkpoints(JobId::random()).unwrap(), []);
    own.iter().for_each(|(key, _)| storage.delete(key).unwrap());
    assert_eq!(storage.checkpoints(job).unwrap(), []);
}

pub(super) fn the_artifacts_of_all_attempts_at_a_job_are_listed(storage: &dyn Storage) {
    let [job, other] = [(); 2].map(|()| JobId::random());
    let key = |job, attempt, kind| BlobKey::Artifact { job, attempt, kind };
    let mut own = [
        key(job, 1, ArtifactKind::Log),
        key(job, 12, ArtifactKind::Ply),
        key(job, 1000, ArtifactKind::Spz),
        key(job, 1000, ArtifactKind::Preview),
    ];
    let checkpoint = BlobKey::Checkpoint { job, reached: Reached::Finished(Stage::Sfm), version: 7 };
    let others = [key(other, 1, ArtifactKind::Ply), checkpoint];
    own.iter().chain(&others).for_each(|key| write(storage, key, b"some"));
    own.sort();
    assert_eq!(storage.artifacts(job).unwrap(), own);
    assert_eq!(storage.artifacts(JobId::random()).unwrap(), []);
    own.iter().for_each(|key| storage.delete(key).unwrap());
    assert_eq!(storage.artifacts(job).unwrap(), []);
}

pub(super) fn a_deletion_is_final_and_repeatable(storage: &dyn Storage) {
    let block = BlobKey::block(BlobName::random(VideoExtension::Mp4), "a");
    let keys = [block, video(), artifact()];
    keys.iter().for_each(|key| write(storage, key, b"some"));
    for key in &keys {
        storage.delete(key).unwrap();
        storage.delete(key).unwrap();
        assert_eq!(storage.metadata(key).unwrap(), None);
        assert_eq!(storage.open(key).err().unwrap().kind(), ErrorKind::NotFound);
    }
    for kind in KINDS {
        assert_eq!(storage.list(kind, ANY_AGE).unwrap(), []);
    }
}

pub(super) fn a_deletion_does_not_disturb_who_reads(storage: &dyn Storage) {
    let key = artifact();
    write(storage, &key, b"scene");
    let mut reader = storage.open(&key).unwrap();
    storage.delete(&key).unwrap();
    let mut text = String::new();
    reader.file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "scene");
}

/// A storage may remove the folder of a job with its last file, and must not miss it then.
pub(super) fn a_blob_comes_back_after_the_last_of_its_job_was_deleted(storage: &dyn Storage) {
    let key = artifact();
    for text in [&b"first"[..], b"second"] {
        write(storage, &key, text);
        assert_eq!(read(storage, &key), text);
        storage.delete(&key).unwrap();
    }
}

/// And it is no blob: nothing lists it, and no sweep takes it.
pub(super) fn whose_the_files_are_is_noted_once(storage: &dyn Storage) {
    assert_eq!(storage.service_id().unwrap(), None);
    storage.note_service_id("one").unwrap();
    storage.note_service_id("another").unwrap();
    write(storage, &video(), b"some");
    is_clean(storage);
    assert_eq!(storage.service_id().unwrap().as_deref(), Some("one"));
    let listed: usize = BlobKind::ALL.iter().map(|kind| storage.list(*kind, ANY_AGE).unwrap().len()).sum();
    assert_eq!(listed, 1);
}

pub(super) fn free_space_is_unknown_or_not_none(storage: &dyn Storage) {
    assert!(storage.free_space().unwrap().is_none_or(|free| free > 0));
}
