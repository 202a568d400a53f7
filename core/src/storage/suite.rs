//! What every storage must do.

use std::io::{Read, Seek, SeekFrom};
use std::time::Duration;

use super::{BlobKey, BlobKind, Storage};
use crate::error::ErrorKind;
use crate::job::{ArtifactKind, BlobName, JobId, VideoExtension};

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

/// Runs the whole suite on an empty storage.
pub(super) fn run(storage: &dyn Storage) {
    let name = BlobName::random(VideoExtension::Mp4);
    let video = BlobKey::Video { name, version: 0xfeed };
    let job = JobId::random();
    let artifact = BlobKey::Artifact { job, attempt: 3, kind: ArtifactKind::Spz };

    // Nothing is to be seen before the commit, and nothing stays of what was dropped.
    let mut staged = storage.create(&video).unwrap();
    staged.write_all(b"half").unwrap();
    assert_eq!(storage.metadata(&video).unwrap(), None);
    assert_eq!(storage.open(&video).err().unwrap().kind(), ErrorKind::NotFound);
    drop(staged);
    assert_eq!(storage.list(BlobKind::Video, Duration::ZERO).unwrap(), []);
    assert_eq!(storage.sweep_staged(Duration::ZERO).unwrap(), 0);

    // What was committed comes back, from any place.
    let bytes: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    write(storage, &video, &bytes);
    assert_eq!(read(storage, &video), bytes);
    let mut reader = storage.open(&video).unwrap();
    reader.file.seek(SeekFrom::Start(4000)).unwrap();
    let mut four = [0; 4];
    reader.file.read_exact(&mut four).unwrap();
    assert_eq!(u32::from_le_bytes(four), 1000);
    assert_eq!(storage.metadata(&video).unwrap().unwrap().size, bytes.len() as u64);
    write(storage, &video, b"");
    assert_eq!(read(storage, &video), b"");
    write(storage, &video, b"again");

    // A file is taken over, twice under the same key if need be, and stays where it was.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scene.spz");
    std::fs::write(&file, b"scene").unwrap();
    for _ in 0..2 {
        assert_eq!(storage.put_file(&artifact, &file).unwrap().size, 5);
        assert_eq!(read(storage, &artifact), b"scene");
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"scene");
    let missing = storage.put_file(&artifact, &folder.path().join("none")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert_eq!(read(storage, &artifact), b"scene");
    assert_eq!(storage.sweep_staged(Duration::ZERO).unwrap(), 0);

    // Blobs are listed by kind and age.
    let blocks = [BlobKey::block(name, "a"), BlobKey::block(name, "b")];
    blocks.iter().for_each(|key| write(storage, key, b"block"));
    assert_eq!(storage.list(BlobKind::Video, Duration::ZERO).unwrap(), [video]);
    assert_eq!(storage.list(BlobKind::Artifact, Duration::ZERO).unwrap(), [artifact]);
    assert_eq!(storage.list(BlobKind::Block, Duration::ZERO).unwrap().len(), 2);
    assert_eq!(storage.list(BlobKind::Block, Duration::from_secs(3600)).unwrap(), []);
    let (second, other) =
        (BlobKey::Video { name, version: 0xff_feed }, BlobName::random(VideoExtension::Mp4));
    let others = [BlobKey::Video { name: other, version: 0xfeed }, BlobKey::block(other, "a")];
    [second].iter().chain(&others).for_each(|key| write(storage, key, b"more"));
    let mut of_upload = vec![video, second, blocks[0], blocks[1]];
    of_upload.sort();
    assert_eq!(storage.list_upload(&name).unwrap(), of_upload);
    assert_eq!(storage.list_upload(&BlobName::random(VideoExtension::Mp4)).unwrap(), []);
    [second].iter().chain(&others).for_each(|key| storage.delete(key).unwrap());

    // Deletion is final, repeatable, and does not disturb who reads.
    let mut reader = storage.open(&artifact).unwrap();
    for key in blocks.iter().chain([&video, &artifact]) {
        storage.delete(key).unwrap();
        storage.delete(key).unwrap();
        assert_eq!(storage.metadata(key).unwrap(), None);
    }
    let mut text = String::new();
    reader.file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "scene");
    for kind in [BlobKind::Video, BlobKind::Block, BlobKind::Artifact] {
        assert_eq!(storage.list(kind, Duration::ZERO).unwrap(), []);
    }
    // The folder of a job that went with its last file comes back with the next.
    write(storage, &artifact, b"more");
    storage.delete(&artifact).unwrap();
    assert!(storage.free_space().unwrap().is_none_or(|free| free > 0));
}
