//! `.spz` files. An input that begins as the content of an older file does is packed first, so that more than the packing is
//! tried.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use libreconstruct::ErrorKind;
use libreconstruct::splats::{Splats, SpzFrame};

use super::super::scratch;
use super::check_scene;

/// More splats take too long to be read often. Files that promise more than any are tried.
pub const MAX_SPLATS: usize = 50_000;
const REFUSED_SPLATS: u32 = 10_000_000;

pub fn run(bytes: &[u8]) {
    if !bytes.starts_with(b"NGSP") {
        return read(bytes);
    }
    if let Some(count) = bytes.get(8..12) {
        let count = u32::from_le_bytes([count[0], count[1], count[2], count[3]]);
        if (MAX_SPLATS as u32..REFUSED_SPLATS).contains(&count) {
            return;
        }
    }
    read(bytes);
    if bytes.get(4).is_some_and(|version| *version < 4) {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(bytes).expect("a vector takes all");
        read(&packed.finish().expect("a vector takes all"));
    }
}

fn read(bytes: &[u8]) {
    match Splats::read_spz(&scratch::file("input.spz", bytes), SpzFrame::default()) {
        Ok(splats) => check_scene(&splats),
        Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidFile, "{error}"),
    }
}
