//! `.sog` files. An input that does not begin as one is taken for what is in one: the description, then pictures, which the
//! description calls 0, 1 and so on. Checksums are right then, and more than the archive is tried.

use libreconstruct::ErrorKind;
use libreconstruct::splats::Splats;

use super::super::{scratch, seeds};
use super::check_scene;

/// Between description and pictures.
pub const CUT: &[u8] = b"\0CUT\0";

pub fn run(bytes: &[u8]) {
    if bytes.starts_with(b"PK") {
        return read(bytes);
    }
    let (mut parts, mut rest) = (Vec::new(), bytes);
    while let Some(at) = rest.windows(CUT.len()).position(|window| window == CUT) {
        parts.push(&rest[..at]);
        rest = &rest[at + CUT.len()..];
    }
    parts.push(rest);
    let names = ["meta.json", "0", "1", "2", "3", "4", "5", "6"];
    let files: Vec<(&str, &[u8])> = names.into_iter().zip(parts).collect();
    read(&seeds::zip(&files, false));
}

fn read(bytes: &[u8]) {
    match Splats::read_sog(&scratch::file("input.sog", bytes)) {
        Ok(splats) => check_scene(&splats),
        Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidFile, "{error}"),
    }
}
