//! What the first stages of structure from motion cost: `cargo bench --bench features -- FOLDER…`, one thread, the first pictures of
//! each folder, a table on standard output.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::time::Instant;

use libreconstruct::sfm::features::{FeatureOptions, Features, FirstOctave, extract};
use libreconstruct::sfm::matching::{MatchOptions, match_pair};
use libreconstruct::sfm::pairing::{PairingOptions, candidate_pairs};

/// Pictures of a folder that are measured.
const PICTURES: usize = 8;

fn main() {
    let mut folders: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    // Cargo passes `--bench` to every benchmark.
    folders.retain(|folder| folder.as_os_str() != "--bench");
    if folders.is_empty() {
        println!("give one or more folders of pictures: cargo bench --bench features -- FOLDER…");
        return;
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    println!(
        "{:<32} {:>7} {:>6} {:>7} {:>9} {:>9} {:>8} {:>7} {:>9}",
        "folder", "Mpixel", "octave", "kp", "decode s", "extract s", "match ms", "GMAC/s", "retrieve s"
    );
    for folder in &folders {
        for octave in [FirstOctave::Native, FirstOctave::Doubled] {
            pool.install(|| measure(folder, octave));
        }
    }
}

fn measure(folder: &Path, first_octave: FirstOctave) {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.truncate(PICTURES);
    let options = FeatureOptions { first_octave, ..FeatureOptions::default() };
    let (mut decoding, mut extraction, mut pixels) = (0.0, 0.0, 0.0);
    let mut features: Vec<Features> = Vec::new();
    for path in &paths {
        let start = cpu_seconds();
        let luma = image::open(path).unwrap().to_luma8();
        let decoded = cpu_seconds();
        features.push(extract(&luma, None, &options));
        decoding += decoded - start;
        extraction += cpu_seconds() - decoded;
        pixels += f64::from(luma.width()) * f64::from(luma.height());
    }
    let count = paths.len() as f64;
    let keypoints: usize = features.iter().map(|features| features.keypoints.len()).sum();

    let start = cpu_seconds();
    let (mut products, mut pairs) = (0.0, 0.0);
    for (i, a) in features.iter().enumerate() {
        for b in &features[i + 1..] {
            std::hint::black_box(match_pair(a, b, &MatchOptions::default()));
            products += 128.0 * a.keypoints.len() as f64 * b.keypoints.len() as f64;
            pairs += 1.0;
        }
    }
    let matching = cpu_seconds() - start;

    let start = cpu_seconds();
    let by_retrieval = PairingOptions { exhaustive_max: 0, ..PairingOptions::default() };
    std::hint::black_box(candidate_pairs(&features, false, &by_retrieval));
    let retrieval = cpu_seconds() - start;
    println!(
        "{:<32} {:>7.2} {:>6} {:>7.0} {:>9.3} {:>9.3} {:>8.2} {:>7.1} {:>9.3}",
        folder.display(),
        pixels / count * 1e-6,
        if first_octave == FirstOctave::Native { "0" } else { "-1" },
        keypoints as f64 / count,
        decoding / count,
        extraction / count,
        matching / pairs * 1e3,
        products / matching * 1e-9,
        retrieval,
    );
}

/// Processor time of this thread where the system tells it (Linux), else the clock's.
fn cpu_seconds() -> f64 {
    thread_local!(static START: Instant = Instant::now());
    let from_system = || -> Option<f64> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    };
    from_system().map_or_else(|| START.with(|start| start.elapsed().as_secs_f64()), |ns| ns * 1e-9)
}
