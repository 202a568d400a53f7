//! `.glb` files. An input that does not begin as one is taken for what is in one, description and buffer with a zero between
//! them, so that more than the sizes of chunks is tried.

use libreconstruct::ErrorKind;
use libreconstruct::splats::Splats;

use super::super::scratch;
use super::check_scene;

/// Between description and buffer.
pub const CUT: u8 = 0;

pub fn run(bytes: &[u8]) {
    if bytes.starts_with(b"glTF") {
        return read(bytes);
    }
    let (json, buffer) = match bytes.iter().position(|byte| *byte == CUT) {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[][..]),
    };
    read(&pack(json, buffer));
}

/// A file of this description and buffer.
pub fn pack(json: &[u8], buffer: &[u8]) -> Vec<u8> {
    let mut bytes = b"glTF\x02\0\0\0".to_vec();
    bytes.extend((28 + json.len() as u32 + buffer.len() as u32).to_le_bytes());
    for (kind, content) in [(b"JSON", json), (b"BIN\0", buffer)] {
        bytes.extend((content.len() as u32).to_le_bytes());
        bytes.extend(kind);
        bytes.extend(content);
    }
    bytes
}

fn read(bytes: &[u8]) {
    match Splats::read_glb(&scratch::file("input.glb", bytes)) {
        Ok(splats) => check_scene(&splats),
        Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidFile, "{error}"),
    }
}
