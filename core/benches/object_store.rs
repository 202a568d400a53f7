//! How fast blobs go to an object store and come back, and the memory that it takes:
//!
//! ```sh
//! PYTHONPATH=tests .venv/bin/python -m stores --only s3 cargo bench -p libreconstruct --bench object_store -- 1024
//! ```
//!
//! The number is the size of the blob in MiB. The store runs on this machine, so it and this program share its processors.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people")]

use std::io::Read;
use std::time::Instant;

use libreconstruct::job::{ArtifactKind, JobId};
use libreconstruct::storage::{BlobKey, ObjectStorage, Storage};

fn main() {
    let mebibytes: u64 = std::env::args().filter_map(|a| a.parse().ok()).next().unwrap_or(256);
    let Ok(stores) = std::env::var("LIBRECONSTRUCT_TEST_STORES") else {
        println!("there is no store: start this by `python -m stores`");
        return;
    };
    let stores: serde_json::Value = serde_json::from_str(&stores).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scene.ply");
    std::io::copy(&mut random().take(mebibytes << 20), &mut std::fs::File::create(&file).unwrap()).unwrap();
    for (scheme, address) in stores.as_object().unwrap() {
        let storage = ObjectStorage::open(address.as_str().unwrap()).unwrap();
        let key = BlobKey::Artifact { job: JobId::random(), attempt: 1, kind: ArtifactKind::Ply };
        let before = memory();
        let speed = |begin: Instant| mebibytes as f64 / begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        storage.put_file(&key, &file).unwrap();
        println!(
            "{scheme}: put {mebibytes} MiB: {:.0} MiB/s, {} MiB of memory more",
            speed(begin),
            memory() - before
        );
        let before = memory();
        let begin = Instant::now();
        let mut blob = storage.open(&key).unwrap().file;
        let mut buffer = vec![0; 1 << 20];
        let mut count = 0;
        loop {
            match blob.read(&mut buffer).unwrap() {
                0 => break,
                n => count += n as u64,
            }
        }
        assert_eq!(count, mebibytes << 20);
        println!(
            "{scheme}: got {mebibytes} MiB: {:.0} MiB/s, {} MiB of memory more",
            speed(begin),
            memory() - before
        );
        storage.delete(&key).unwrap();
    }
}

/// Bytes that no store can compress.
fn random() -> impl Read {
    std::fs::File::open("/dev/urandom").unwrap()
}

/// The most memory that this process ever had, MiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}
