//! The container: a header of 12 bytes, then chunks. The first holds JSON, the second the buffer.

use std::io::{self, Read};

use crate::splats::source::Source;

pub(super) const MAGIC: [u8; 4] = *b"glTF";
pub(super) const VERSION: u32 = 2;
pub(super) const JSON: [u8; 4] = *b"JSON";
pub(super) const BINARY: [u8; 4] = *b"BIN\0";
/// Longest description of a scene that is read, bytes. One with a single primitive has 5,000. A hostile one takes up to a
/// hundred times its size in memory.
const MAX_JSON: u64 = 1 << 20;

/// What is in a file.
pub(super) struct Content {
    pub(super) json: Vec<u8>,
    pub(super) buffer: Vec<u8>,
}

/// Why a file could not be read: the system, or what is in it, as a sentence.
pub(super) enum Failure {
    System(io::Error),
    Content(String),
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Content(why)
    }
}

/// Reads a file to its end. Room is made for what comes, not for what was promised.
pub(super) fn read(mut source: Source) -> Result<Content, Failure> {
    if source.start() != MAGIC.as_slice() {
        return Err("it is no .glb file: it does not begin with glTF".to_owned().into());
    }
    let header = take(&mut source, 12, "header")?;
    if word(&header, 4) != VERSION {
        return Err(format!("version {} of glTF is unknown; 2 is known", word(&header, 4)).into());
    }
    let size = u64::from(word(&header, 8));
    if source.size().is_some_and(|own| own < size) {
        return Err(format!("it ends before the {size} bytes that it promises").into());
    }
    let mut left = size.saturating_sub(12);
    let (kind, length) = next_chunk(&mut source, &mut left)?;
    if kind != JSON {
        return Err("its first chunk is no JSON".to_owned().into());
    }
    if length > MAX_JSON {
        return Err(format!("it describes its scene in {length} bytes; up to {MAX_JSON} are read").into());
    }
    let json = take(&mut source, length, "description")?;
    let mut buffer = Vec::new();
    let mut is_second = true;
    while left > 0 {
        let (kind, length) = next_chunk(&mut source, &mut left)?;
        if kind == BINARY && is_second {
            buffer = take(&mut source, length, "buffer")?;
        } else {
            // Kinds of chunks that are not known may follow.
            let skipped = io::copy(&mut source.by_ref().take(length), &mut io::sink());
            if skipped.map_err(Failure::System)? < length {
                return Err("it ends within a chunk".to_owned().into());
            }
        }
        is_second = false;
    }
    let rest = source.read(&mut [0]).map_err(Failure::System)?;
    if rest > 0 {
        return Err(format!("more bytes follow than the {size} that it promises").into());
    }
    Ok(Content { json, buffer })
}

/// Kind and size of the next chunk, which is taken off what is left.
fn next_chunk(source: &mut Source, left: &mut u64) -> Result<([u8; 4], u64), Failure> {
    let header = take(source, 8, "chunks")?;
    let length = u64::from(word(&header, 0));
    *left = left
        .checked_sub(8 + length)
        .ok_or_else(|| "one of its chunks is longer than the file says it is itself".to_owned())?;
    // `take` gave all 8.
    Ok(([header[4], header[5], header[6], header[7]], length))
}

/// So many bytes, all of them.
fn take(source: &mut Source, length: u64, what: &str) -> Result<Vec<u8>, Failure> {
    // Of a pipe nothing is known beforehand, and what a file has was looked at.
    let room = if source.size().is_some() { length } else { 0 };
    let mut bytes = Vec::with_capacity(usize::try_from(room).unwrap_or(0));
    source.by_ref().take(length).read_to_end(&mut bytes).map_err(Failure::System)?;
    if (bytes.len() as u64) < length {
        return Err(format!("it ends within its {what}").into());
    }
    Ok(bytes)
}

/// A number in bytes that are known to be there.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
