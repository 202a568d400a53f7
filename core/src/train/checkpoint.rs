//! A training run on disk, so that it continues bit for bit where it stopped.
//!
//! One file, little endian: magic, version, length of the header, the header as JSON, the arrays as 32-bit numbers in
//! the order of [`arrays`], SHA-256 of all that. It is written beside its place, flushed to the disk and renamed, so
//! that there is always a whole one. The random numbers have no state: they are keyed by seed and step.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;

use bytemuck::cast_slice_mut;
use glam::{Vec3, Vec4};
use serde::{Deserialize, Serialize};

use super::budget::Plan;
use crate::error::{Error, ErrorKind, Result};
use crate::files;
use crate::hashing::Hashing;
use crate::raster::{DensityStatistics, StepStatistics, TrainState};
use crate::splats::{Splats, sh_coefficients};

const MAGIC: &[u8; 8] = b"LRTRAIN\n";
const VERSION: u32 = 1;
const HEADER_MAX: u32 = 1 << 16;
/// Bytes around the header and the arrays: magic, version and length before them, the sum behind.
const AROUND: u64 = 16 + 32;

/// All that a run needs to go on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Checkpoint {
    pub(crate) progress: Progress,
    pub(crate) state: TrainState,
}

/// Where the run is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// Steps that were done.
    pub(crate) step: u32,
    /// Whether the last of them is still owed its round of density control.
    #[serde(default)]
    pub(crate) refine_due: bool,
    /// Number of Gaussians with which it began.
    pub(crate) initial_count: u64,
    /// Number of Gaussians that were taken out of free space.
    #[serde(default)]
    pub(crate) cleaned: u64,
    /// Highest degree of the spherical harmonics that it came to.
    #[serde(default)]
    pub(crate) sh_degree: u32,
    /// Seconds that it took so far.
    pub(crate) seconds: f64,
    /// What it was cut down to, if it is to end in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) plan: Option<Plan>,
    /// What its last step found out. All of it are numbers: JSON knows nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) statistics: Option<StepStatistics>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    options: String,
    dataset: String,
    progress: Progress,
    splats: u64,
    sh_degree: u32,
    exposures: u64,
    statistics: bool,
}

impl Checkpoint {
    /// Writes it; `options` and `dataset` are the hashes under which it may be continued. (Mutable only because the
    /// arrays are listed once, for reading and writing; a copy would double the memory.)
    pub(crate) fn write(&mut self, path: &Path, options: &str, dataset: &str) -> Result<()> {
        let header = Header {
            options: options.into(),
            dataset: dataset.into(),
            progress: self.progress.clone(),
            splats: self.state.splats.len() as u64,
            sh_degree: self.state.splats.sh_degree,
            exposures: self.state.exposures.len() as u64,
            statistics: !self.state.statistics.gradient.is_empty(),
        };
        let json = serde_json::to_vec(&header).map_err(|e| {
            Error::new(ErrorKind::Internal, "the header of the checkpoint cannot be written").caused_by(e)
        })?;
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(".partial");
        let partial = path.with_file_name(name);
        let written = (|| {
            let mut file = Hashing::new(BufWriter::with_capacity(1 << 20, File::create(&partial)?));
            file.write_all(MAGIC)?;
            file.write_all(&VERSION.to_le_bytes())?;
            file.write_all(&(json.len() as u32).to_le_bytes())?;
            file.write_all(&json)?;
            for array in arrays(&mut self.state) {
                match array {
                    Array::Floats(values) => write_words(&mut file, values, |v| v.to_le_bytes())?,
                    Array::Counts(values) => write_words(&mut file, values, |v| v.to_le_bytes())?,
                }
            }
            let digest = file.digest();
            file.inner.write_all(&digest)?;
            let file = file.inner.into_inner().map_err(std::io::IntoInnerError::into_error)?;
            file.sync_all()?;
            Ok(())
        })();
        let placed = written
            .map_err(|e: std::io::Error| Error::io("write the checkpoint", path, e))
            .and_then(|()| files::rename(&partial, path));
        if placed.is_err() {
            let _ = std::fs::remove_file(&partial);
        }
        placed
    }

    /// Reads one that was written under the same hashes.
    pub(crate) fn read(path: &Path, options: &str, dataset: &str) -> Result<Self> {
        let io = |e| Error::io("read the checkpoint", path, e);
        let mut file = File::open(path).map_err(io)?;
        if begins_otherwise(&mut file).map_err(io)? {
            let what = format!("cannot continue from {}: it is no checkpoint", path.display());
            return Err(Error::new(ErrorKind::InvalidFile, what).hint(
                "the file stays as it is: give the path of a checkpoint, or one at which there is none yet",
            ));
        }
        file.rewind().map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let mut file = Hashing::new(BufReader::with_capacity(1 << 20, file));
        let mut start = [0; 16];
        if length < AROUND {
            return Err(damaged(path, &format!("it has only {length} bytes")));
        }
        file.read_exact(&mut start).map_err(io)?;
        let word = |at: usize| u32::from_le_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]]);
        if word(8) != VERSION {
            return Err(damaged(path, &format!("its version is {}, not {VERSION}", word(8))));
        }
        if word(12) > HEADER_MAX || u64::from(word(12)) > length - AROUND {
            return Err(damaged(path, &format!("its header claims {} bytes", word(12))));
        }
        let mut json = vec![0; word(12) as usize];
        file.read_exact(&mut json).map_err(io)?;
        let header: Header = serde_json::from_slice(&json)
            .map_err(|e| damaged(path, "its header is unreadable").caused_by(e))?;
        if header.sh_degree > 3 {
            return Err(damaged(path, &format!("its colours have the degree {}", header.sh_degree)));
        }
        let expected = payload(&header).and_then(|p| p.checked_add(AROUND + json.len() as u64));
        if expected != Some(length) {
            return Err(damaged(
                path,
                &format!("it has {length} bytes and its header speaks of another size"),
            ));
        }
        let foreign = |what: &str| {
            Error::argument(format!("the checkpoint {} was written for {what}", path.display()))
                .hint("delete it to start afresh, or give what it was written for")
        };
        if header.dataset != dataset {
            return Err(foreign("other pictures, poses or points"));
        }
        if header.options != options {
            return Err(foreign("other training options"));
        }
        let mut state = allocate(&header);
        for array in arrays(&mut state) {
            match array {
                Array::Floats(values) => read_words(&mut file, values, f32::from_le_bytes).map_err(io)?,
                Array::Counts(values) => read_words(&mut file, values, u32::from_le_bytes).map_err(io)?,
            }
        }
        let digest = file.digest();
        let mut stored = [0; 32];
        file.inner.read_exact(&mut stored).map_err(io)?;
        if digest != stored {
            return Err(damaged(path, "its checksum does not fit its contents"));
        }
        Ok(Self { progress: header.progress, state })
    }
}

/// How many steps were done when the checkpoint was written that begins here. No more of it is looked at than its header;
/// nothing if that is none of ours.
pub(crate) fn steps_of(file: &mut impl Read) -> Option<u32> {
    let mut start = [0; 16];
    file.read_exact(&mut start).ok()?;
    let word = |at: usize| u32::from_le_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]]);
    let length = word(12);
    if &start[..8] != MAGIC || word(8) != VERSION || length > HEADER_MAX {
        return None;
    }
    let mut json = vec![0; length as usize];
    file.read_exact(&mut json).ok()?;
    serde_json::from_slice::<Header>(&json).ok().map(|header| header.progress.step)
}

/// Whether the file at `path` is something else than a checkpoint, by how it begins: then it is not ours to write over. What cannot
/// be read may be.
pub(super) fn is_other_file(path: &Path) -> bool {
    File::open(path).and_then(|mut file| begins_otherwise(&mut file)).unwrap_or(true)
}

/// Whether a file does not begin as a checkpoint does. One that is cut off, however early, still does.
fn begins_otherwise(file: &mut impl Read) -> std::io::Result<bool> {
    let mut start = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut start)?;
    Ok(MAGIC.iter().zip(&start).any(|(ours, found)| ours != found))
}

fn damaged(path: &Path, what: &str) -> Error {
    Error::new(ErrorKind::InvalidFile, format!("cannot continue from {}: {what}", path.display()))
        .hint("delete the file: training then starts afresh")
}

/// One array of a checkpoint.
enum Array<'a> {
    Floats(&'a mut [f32]),
    Counts(&'a mut [u32]),
}

/// All arrays, in the order of the file.
fn arrays(state: &mut TrainState) -> Vec<Array<'_>> {
    let mut all = Vec::new();
    for splats in [&mut state.splats, &mut state.first_moments, &mut state.second_moments] {
        all.push(Array::Floats(cast_slice_mut(&mut splats.means)));
        all.push(Array::Floats(cast_slice_mut(&mut splats.log_scales)));
        all.push(Array::Floats(cast_slice_mut(&mut splats.rotations)));
        all.push(Array::Floats(&mut splats.opacities));
        all.push(Array::Floats(&mut splats.sh));
    }
    for exposures in
        [&mut state.exposures, &mut state.exposure_first_moments, &mut state.exposure_second_moments]
    {
        all.push(Array::Floats(exposures.as_flattened_mut()));
    }
    let statistics = &mut state.statistics;
    all.push(Array::Floats(&mut statistics.gradient));
    all.push(Array::Floats(&mut statistics.error));
    all.push(Array::Counts(&mut statistics.visible));
    all.push(Array::Floats(&mut statistics.radius));
    all
}

/// Bytes of all arrays; `None` if they could not be counted.
fn payload(header: &Header) -> Option<u64> {
    let per_splat =
        3 * (11 + 3 * sh_coefficients(header.sh_degree) as u64) + if header.statistics { 4 } else { 0 };
    let words = header.splats.checked_mul(per_splat)?.checked_add(header.exposures.checked_mul(36)?)?;
    words.checked_mul(4)
}

/// A state of the right size; the size was compared with that of the file.
fn allocate(header: &Header) -> TrainState {
    let (n, exposures) = (header.splats as usize, header.exposures as usize);
    let counted = if header.statistics { n } else { 0 };
    let zero = Splats {
        means: vec![Vec3::ZERO; n],
        log_scales: vec![Vec3::ZERO; n],
        rotations: vec![Vec4::ZERO; n],
        opacities: vec![0.0; n],
        sh_degree: header.sh_degree,
        sh: vec![0.0; n * sh_coefficients(header.sh_degree) * 3],
        antialiased: false,
    };
    TrainState {
        splats: zero.clone(),
        first_moments: zero.clone(),
        second_moments: zero,
        exposures: vec![[0.0; 12]; exposures],
        exposure_first_moments: vec![[0.0; 12]; exposures],
        exposure_second_moments: vec![[0.0; 12]; exposures],
        statistics: DensityStatistics {
            gradient: vec![0.0; counted],
            error: vec![0.0; counted],
            visible: vec![0; counted],
            radius: vec![0.0; counted],
        },
    }
}

const CHUNK: usize = 1 << 14;

fn write_words<T: Copy>(
    file: &mut impl Write,
    values: &[T],
    bytes: impl Fn(T) -> [u8; 4],
) -> std::io::Result<()> {
    let mut buffer = Vec::with_capacity(4 * CHUNK);
    for chunk in values.chunks(CHUNK) {
        buffer.clear();
        buffer.extend(chunk.iter().flat_map(|v| bytes(*v)));
        file.write_all(&buffer)?;
    }
    Ok(())
}

fn read_words<T>(
    file: &mut impl Read,
    values: &mut [T],
    value: impl Fn([u8; 4]) -> T,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 4 * CHUNK.min(values.len())];
    for chunk in values.chunks_mut(CHUNK) {
        let bytes = &mut buffer[..4 * chunk.len()];
        file.read_exact(bytes)?;
        for (v, b) in chunk.iter_mut().zip(bytes.chunks_exact(4)) {
            *v = value([b[0], b[1], b[2], b[3]]);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn checkpoint() -> Checkpoint {
        let header = Header {
            options: String::new(),
            dataset: String::new(),
            progress: Progress {
                step: 17,
                refine_due: true,
                initial_count: 5,
                cleaned: 3,
                sh_degree: 1,
                seconds: 1.5,
                plan: None,
                statistics: Some(StepStatistics {
                    loss: 0.25,
                    l1: 0.125,
                    ssim: 0.5,
                    visible: 30,
                    intersections: 90,
                }),
            },
            splats: 40,
            sh_degree: 2,
            exposures: 3,
            statistics: true,
        };
        let mut state = allocate(&header);
        let mut random = Random::new(1);
        for array in arrays(&mut state) {
            match array {
                Array::Floats(values) => values.iter_mut().for_each(|v| *v = random.normal() as f32),
                Array::Counts(values) => values.iter_mut().for_each(|v| *v = random.below(100) as u32),
            }
        }
        Checkpoint { progress: header.progress, state }
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train.checkpoint");
        let mut first = checkpoint();
        first.write(&path, "o", "d").unwrap();
        first.state.statistics = DensityStatistics::default();
        first.write(&path, "o", "d").unwrap();
        assert_eq!(Checkpoint::read(&path, "o", "d").unwrap(), first);
        let mut with_statistics = checkpoint();
        with_statistics.write(&path, "o", "d").unwrap();
        assert_eq!(Checkpoint::read(&path, "o", "d").unwrap(), with_statistics);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else stays behind");
        assert_eq!(steps_of(&mut File::open(&path).unwrap()), Some(17));
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(steps_of(&mut &bytes[..40]), None);
        assert_eq!(steps_of(&mut &bytes[1..]), None);
    }

    #[test]
    fn progress_of_earlier_versions_owes_nothing() {
        let earlier: Progress =
            serde_json::from_str(r#"{"step":17,"initial_count":5,"seconds":1.5}"#).unwrap();
        assert!(!earlier.refine_due && earlier.step == 17 && (earlier.cleaned, earlier.sh_degree) == (0, 0));
        assert!(earlier.plan.is_none() && earlier.statistics.is_none());
    }

    #[test]
    fn a_damaged_or_foreign_checkpoint_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train.checkpoint");
        checkpoint().write(&path, "o", "d").unwrap();
        let good = std::fs::read(&path).unwrap();
        let refused = |bytes: &[u8], says: &str| {
            std::fs::write(&path, bytes).unwrap();
            let error = Checkpoint::read(&path, "o", "d").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidFile);
            assert!(error.to_string().contains(says), "{error}");
        };
        refused(&good[..20], "only 20 bytes");
        refused(&good[..good.len() - 4], "another size");
        let mut flipped = good.clone();
        let middle = good.len() / 2;
        flipped[middle] ^= 1;
        refused(&flipped, "checksum");
        let mut newer = good.clone();
        newer[8] = 9;
        refused(&newer, "version is 9");
        let mut header = good.clone();
        header[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        refused(&header, "header claims");
        // As long as the file, and so longer than what follows its own length.
        header[12..16].copy_from_slice(&(good.len() as u32 - 40).to_le_bytes());
        refused(&header, "header claims");
        refused(&vec![7; 4096], "no checkpoint");
        // A header that promises more Gaussians than memory could hold is refused before anything is allocated.
        let text = String::from_utf8_lossy(&good[16..16 + 400]).into_owned();
        let at = 16 + text.find("\"splats\":40").unwrap();
        let mut huge = good[..at].to_vec();
        huge.extend(b"\"splats\":18446744073709551615");
        huge.extend(&good[at + 11..]);
        let length = u32::from_le_bytes(good[12..16].try_into().unwrap()) + 18;
        huge[12..16].copy_from_slice(&length.to_le_bytes());
        refused(&huge, "another size");

        std::fs::write(&path, &good).unwrap();
        for (options, dataset) in [("x", "d"), ("o", "x")] {
            let error = Checkpoint::read(&path, options, dataset).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
        let none = Checkpoint::read(&folder.path().join("none"), "o", "d").unwrap_err();
        assert_eq!(none.kind(), ErrorKind::NotFound);
    }
}
