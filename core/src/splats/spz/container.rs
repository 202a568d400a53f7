//! The container: headers and compression. What is inside the attributes is [`super::quantise`]'s business.
//!
//! Versions 1 to 3 are one gzip stream of a 16-byte header and the attributes; version 4 is a plain 32-byte header, a
//! table of contents, and one Zstandard frame per attribute that is not empty.

use std::cmp::Ordering;
use std::io::Read;

use flate2::read::GzDecoder;
use flate2::{Compress, Compression, Crc, FlushCompress};
use rayon::prelude::*;

use crate::error::{Error, ErrorKind, Result};
use crate::splats::harmonics::sh_coefficients;

const MAGIC: u32 = 0x5053_474e; // "NGSP"
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ANTIALIASED: u8 = 0x1;
const EXTENSIONS: u8 = 0x2;
const LEVEL_OF_DETAIL: u8 = 0x80;
const HEADER_4: usize = 32;
const ZSTD_LEVEL: i32 = 12;
/// No scene has more: ten times what the largest training makes.
pub(super) const MAX_SPLATS: usize = 100_000_000;
/// What so many splats take uncompressed.
pub(super) const MAX_FILE: u64 = MAX_SPLATS as u64 * 96;
/// What a file of any size may unpack to, bytes: 700,000 splats with all their colours.
const ALWAYS: usize = 64 << 20;
/// To how many times its size a larger one may unpack. A real scene comes to 2, for positions are noise; Zstandard could make
/// 32,000 of what is all the same.
const MAX_RATIO: usize = 128;
/// For how many times its size room is made before anything has been unpacked: more than scenes need.
const USUAL_RATIO: usize = 64;
/// Windows that a Zstandard frame may ask for, as logarithms of bytes: always what encoders use that do not know how much will
/// come, and never more than the format has.
const WINDOW_LOGS: [u32; 2] = [23, 31];

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Header {
    /// 1 to 4.
    pub(super) version: u32,
    pub(super) count: usize,
    /// 0 to 4.
    pub(super) sh_degree: u32,
    /// 0 to 23.
    pub(super) fractional_bits: u32,
    pub(super) antialiased: bool,
}

impl Header {
    /// Bytes per splat of positions, alphas, colours, scales, rotations and spherical harmonics.
    pub(super) fn strides(&self) -> [usize; 6] {
        let position = if self.version == 1 { 6 } else { 9 };
        let rotation = if self.version <= 2 { 3 } else { 4 };
        [position, 1, 3, 3, rotation, 3 * (sh_coefficients(self.sh_degree) - 1)]
    }

    fn check(&self) -> Result<(), String> {
        if !(1..=4).contains(&self.version) {
            return Err(format!("version {} of .spz is unknown; 1 to 4 are known", self.version));
        }
        if self.count == 0 || self.count > MAX_SPLATS {
            return Err(format!("it promises {} splats; 1 to {MAX_SPLATS} make sense", self.count));
        }
        if self.sh_degree > 4 || self.fractional_bits > 23 {
            return Err(format!(
                "spherical harmonics of degree {} and {} fractional bits; up to 4 and 23 make sense",
                self.sh_degree, self.fractional_bits
            ));
        }
        Ok(())
    }

    /// Whether a file of `size` bytes can honestly hold so many splats.
    fn check_size(&self, size: usize) -> Result<(), String> {
        // The numbers are small: `check` came before.
        let unpacked = self.strides().iter().sum::<usize>() * self.count;
        if unpacked <= ALWAYS || unpacked / MAX_RATIO <= size {
            return Ok(());
        }
        Err(format!("its {size} bytes cannot hold the {} splats it promises", self.count))
    }
}

/// A file's content uncompressed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Packed {
    pub(super) header: Header,
    /// In the order of the file: positions, alphas, colours, scales, rotations, spherical harmonics.
    pub(super) attributes: [Vec<u8>; 6],
}

pub(super) fn write(packed: &Packed) -> Result<Vec<u8>> {
    let header = &packed.header;
    let flags = if header.antialiased { ANTIALIASED } else { 0 };
    // The counts are far below the limits of the fields: `Header::check` and the callers see to it.
    let mut bytes = Vec::new();
    for word in [MAGIC, header.version, header.count as u32] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend([header.sh_degree as u8, header.fractional_bits as u8, flags]);
    if header.version < 4 {
        bytes.push(0);
        packed.attributes.iter().for_each(|attribute| bytes.extend(attribute));
        return gzip(&bytes);
    }
    let failed =
        |e: std::io::Error| Error::new(ErrorKind::Internal, format!("cannot compress: {e}")).caused_by(e);
    let filled: Vec<&Vec<u8>> = packed.attributes.iter().filter(|attribute| !attribute.is_empty()).collect();
    let streams: Vec<Vec<u8>> = filled
        .par_iter()
        .map(|attribute| zstd::bulk::compress(attribute, ZSTD_LEVEL).map_err(failed))
        .collect::<Result<_>>()?;
    bytes.push(streams.len() as u8);
    bytes.extend((HEADER_4 as u32).to_le_bytes());
    bytes.resize(HEADER_4, 0);
    for (attribute, stream) in filled.iter().zip(&streams) {
        bytes.extend((stream.len() as u64).to_le_bytes());
        bytes.extend((attribute.len() as u64).to_le_bytes());
    }
    streams.iter().for_each(|stream| bytes.extend(stream));
    Ok(bytes)
}

/// One gzip member, made of parts that are compressed side by side: each but the last ends on a byte boundary without
/// ending the stream. The size of the parts is fixed, so the result does not depend on the number of threads.
fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    const PART: usize = 1 << 20;
    let failed = |what: &str| Error::new(ErrorKind::Internal, format!("cannot compress: {what}"));
    let parts = bytes.chunks(PART).count();
    let compressed: Vec<Vec<u8>> = bytes
        .par_chunks(PART)
        .enumerate()
        .map(|(k, part)| {
            let mut deflate = Compress::new(Compression::default(), false);
            // Deflate adds five bytes per 32 kB to what it cannot compress.
            let mut out = Vec::with_capacity(part.len() + part.len() / 1024 + 1024);
            let flush = if k + 1 == parts { FlushCompress::Finish } else { FlushCompress::Sync };
            deflate.compress_vec(part, &mut out, flush).map_err(|e| failed(&e.to_string()))?;
            let complete = deflate.total_in() == part.len() as u64 && out.len() < out.capacity();
            if complete { Ok(out) } else { Err(failed("deflate ran out of room")) }
        })
        .collect::<Result<_>>()?;
    let mut crc = Crc::new();
    crc.update(bytes);
    // Magic, deflate, no flags, no time, no extra, unknown system.
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    compressed.iter().for_each(|part| out.extend(part));
    out.extend(crc.sum().to_le_bytes());
    out.extend((bytes.len() as u32).to_le_bytes());
    Ok(out)
}

/// Whether a file that begins so can be an `.spz` file.
pub(super) fn check_start(bytes: &[u8]) -> Result<(), String> {
    if bytes.starts_with(&MAGIC.to_le_bytes()) || bytes.starts_with(&GZIP) {
        return Ok(());
    }
    Err("it is no .spz file: it begins neither with NGSP nor as gzip does".into())
}

/// Unpacks a file. The error is the sentence that says what is wrong.
pub(super) fn read(bytes: &[u8]) -> Result<Packed, String> {
    check_start(bytes)?;
    if bytes.starts_with(&GZIP) { read_gzip(bytes) } else { read_streams(bytes) }
}

/// The 15 bytes that all versions have in common, and the flags.
fn common_header(bytes: &[u8; 16]) -> Result<(Header, u8), String> {
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if word(0) != MAGIC {
        return Err("it is no .spz file: what was compressed does not begin with NGSP".into());
    }
    let flags = bytes[14];
    if flags & LEVEL_OF_DETAIL != 0 {
        return Err("it holds levels of detail in a vendor's extension, which are not supported".into());
    }
    let header = Header {
        version: word(4),
        count: word(8) as usize,
        sh_degree: u32::from(bytes[12]),
        fractional_bits: u32::from(bytes[13]),
        antialiased: flags & ANTIALIASED != 0,
    };
    header.check()?;
    Ok((header, flags))
}

fn read_gzip(bytes: &[u8]) -> Result<Packed, String> {
    let mut stream = GzDecoder::new(bytes);
    let mut start = [0; 16];
    stream.read_exact(&mut start).map_err(|e| format!("its header cannot be unpacked: {e}"))?;
    let (header, flags) = common_header(&start)?;
    if header.version > 3 {
        return Err(format!("version {} of .spz is not compressed as a whole", header.version));
    }
    header.check_size(bytes.len())?;
    let strides = header.strides();
    // A hostile file must deliver before it is given more room than an honest one needs.
    let mut attributes =
        strides.map(|stride| Vec::with_capacity((stride * header.count).min(USUAL_RATIO * bytes.len())));
    for (attribute, stride) in attributes.iter_mut().zip(strides) {
        let size = (stride * header.count) as u64;
        let read =
            (&mut stream).take(size).read_to_end(attribute).map_err(|e| format!("it is damaged: {e}"))?;
        if read as u64 != size {
            return Err(format!("it ends before the last of the {} splats it promises", header.count));
        }
    }
    // Reading on to the end also checks the sum. Only extensions may follow.
    let rest = std::io::copy(&mut (&mut stream).take(1), &mut std::io::sink());
    match rest {
        Err(e) => Err(format!("it is damaged: {e}")),
        Ok(rest) if rest > 0 && flags & EXTENSIONS == 0 => Err("more bytes follow its last attribute".into()),
        Ok(_) => Ok(Packed { header, attributes }),
    }
}

fn read_streams(bytes: &[u8]) -> Result<Packed, String> {
    let too_short = || "it ends within its header".to_owned();
    let start = bytes.first_chunk::<16>().ok_or_else(too_short)?;
    let (header, _) = common_header(start)?;
    if header.version != 4 {
        return Err(format!("version {} of .spz must be compressed as a whole", header.version));
    }
    header.check_size(bytes.len())?;
    let strides = header.strides();
    let wanted = strides.iter().filter(|&&stride| stride > 0).count();
    if usize::from(start[15]) != wanted {
        return Err(format!("it has {} streams instead of {wanted}", start[15]));
    }
    let offset = bytes.get(16..20).and_then(|b| b.first_chunk::<4>()).ok_or_else(too_short)?;
    let offset = u32::from_le_bytes(*offset) as usize;
    let table = bytes.get(offset..).filter(|_| offset >= HEADER_4).and_then(|b| b.get(..16 * wanted));
    let table = table.ok_or_else(|| format!("its table of contents at byte {offset} is not in the file"))?;
    let mut entries = table.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap_or_default()));
    let mut rest = &bytes[offset + table.len()..];
    // Cut the file into streams first, then unpack them side by side.
    let mut streams: Vec<(&[u8], usize)> = Vec::new();
    for stride in strides {
        let size = stride * header.count;
        if size == 0 {
            streams.push((&[], 0));
            continue;
        }
        let (compressed, uncompressed) = (entries.next().unwrap_or(0), entries.next().unwrap_or(0));
        if uncompressed != size as u64 {
            return Err(format!("one of its streams has {uncompressed} bytes instead of {size}"));
        }
        let split = usize::try_from(compressed).ok().and_then(|length| rest.split_at_checked(length));
        let (stream, after) = split.ok_or("its last stream is cut off")?;
        streams.push((stream, size));
        rest = after;
    }
    if !rest.is_empty() {
        return Err(format!("{} bytes follow its last stream", rest.len()));
    }
    let unpacked: Vec<Vec<u8>> = streams
        .into_par_iter()
        .map(|(stream, size)| if size == 0 { Ok(Vec::new()) } else { unpack_stream(stream, size) })
        .collect::<Result<_, String>>()?;
    let attributes = unpacked.try_into().map_err(|_| "it has a wrong number of streams")?;
    Ok(Packed { header, attributes })
}

/// What a stream of Zstandard holds, which must be `size` bytes.
fn unpack_stream(stream: &[u8], size: usize) -> Result<Vec<u8>, String> {
    let damaged = |e: std::io::Error| format!("it is damaged: {e}");
    let mut decoder = zstd::stream::read::Decoder::with_buffer(stream).map_err(damaged)?;
    // The decoder makes room for the window that the stream asks for: never more than what comes out of it needs.
    let window = (usize::BITS - size.leading_zeros()).clamp(WINDOW_LOGS[0], WINDOW_LOGS[1]);
    decoder.window_log_max(window).map_err(damaged)?;
    // One byte more than there should be: that is how the end is seen, and the sum of the stream is checked there.
    let mut unpacked = Vec::with_capacity((size + 1).min(USUAL_RATIO * stream.len()));
    decoder.take(size as u64 + 1).read_to_end(&mut unpacked).map_err(damaged)?;
    match unpacked.len().cmp(&size) {
        Ordering::Equal => Ok(unpacked),
        Ordering::Less => Err("one of its streams is too short".to_owned()),
        Ordering::Greater => Err("one of its streams is too long".to_owned()),
    }
}

/// Compresses anything as gzip; for tests that build hostile files.
#[cfg(test)]
pub(super) fn gzip_of(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
