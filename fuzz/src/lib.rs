//! Everything that reads what comes from outside, as functions of bytes, with what must hold whatever the bytes are: no panic,
//! no more memory than the input justifies, and what is said beside each target.
//!
//! `fuzz_targets/` gives each to the fuzzing engine (`make fuzz`); `server/tests/fuzz_corpus.rs` runs the inputs in `corpus/`
//! and `regressions/` through them without it, in the ordinary tests, and makes the inputs to begin with from `seeds.rs`.

pub mod memory;
mod scratch;
pub mod seeds;
mod server;
pub mod targets;

use targets::*;

/// Something that is tried.
pub struct Target {
    /// Its name, and that of its inputs' folder.
    pub name: &'static str,
    /// Tries one input; panics if a promise is broken.
    pub run: fn(&[u8]),
    /// How much memory it may take, however small the input.
    pub bytes: usize,
    /// And beyond that for each byte of the input.
    pub per_byte: usize,
}

const fn target(name: &'static str, run: fn(&[u8]), bytes: usize, per_byte: usize) -> Target {
    Target { name, run, bytes, per_byte }
}

const KB: usize = 1 << 10;
const MB: usize = 1 << 20;

/// All targets.
pub const TARGETS: [Target; 16] = [
    target("ply", ply::run, MB / 2, 16),
    target("spz", spz::run, 6 * 92 * spz::MAX_SPLATS, 16),
    target("glb", glb::run, 2 * 64 * MB + MB, 100),
    target("sog", sog::run, 256 * MB, 64),
    target("colmap_binary", colmap::binary, MB / 2, 8),
    target("colmap_text", colmap::text, MB / 2, 24),
    target("exif", exif::run, 64 * KB, 16),
    target("archive", archive::run, MB / 2, 48),
    target("pictures", pictures::run, 4 * MB, 32),
    target("checkpoint", checkpoint::run, 3 * MB / 2, 8),
    target("probe", probe::run, 64 * KB, 32),
    target("camera_data", camera_data::run, 64 * KB, 32),
    target("tags", tags::run, 32 * tags::MAX_PIXELS as usize + MB, 16),
    target("block_list", block_list::run, 64 * KB, 16),
    target("range", range::run, 64 * KB, 64), // the map of headers itself
    target("signed_address", signed_address::run, 64 * KB, 64),
];

/// Tries `bytes` on the target of that name.
///
/// # Panics
/// If a promise is broken, or there is no such target.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target of that name");
    let most = target.bytes + target.per_byte * bytes.len();
    let taken = memory::peak_of(|| (target.run)(bytes));
    assert!(taken <= most, "{name} took {taken} bytes for an input of {}, and may take {most}", bytes.len());
}
