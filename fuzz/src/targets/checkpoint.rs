//! Checkpoints of the trainer: as they are, and with the sum put right, so that more than the sum is tried.

use libreconstruct::ErrorKind;
use libreconstruct::fuzzing::read_checkpoint;
use sha2::{Digest, Sha256};

use super::super::scratch;

/// The hashes under which the checkpoints of the corpus were written.
pub const OPTIONS: &str = "o";
pub const DATASET: &str = "d";
const SUM: usize = 32;

pub fn run(bytes: &[u8]) {
    read(bytes);
    if let Some(length) = bytes.len().checked_sub(SUM) {
        let mut whole = bytes.to_vec();
        let sum = Sha256::digest(&whole[..length]);
        whole[length..].copy_from_slice(&sum);
        read(&whole);
    }
}

fn read(bytes: &[u8]) {
    match read_checkpoint(&scratch::file("train.checkpoint", bytes), OPTIONS, DATASET) {
        // Three scenes of 14 numbers a splat are in it.
        Ok(splats) => assert!(splats * 3 * 14 * 4 <= bytes.len(), "{splats} splats"),
        Err(error) => {
            let known = [ErrorKind::InvalidFile, ErrorKind::InvalidArgument].contains(&error.kind());
            assert!(known, "{error:?}");
        }
    }
}
