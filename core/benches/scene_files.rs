//! How fast scene files are written and read: `cargo bench -p libreconstruct --bench scene_files [splats]`.
//!
//! Megabytes are those of the scene in memory (236 bytes a splat with spherical harmonics of degree 3), so that formats can
//! be compared. CPU seconds are of all threads together.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::time::Instant;

use libreconstruct::splats::{Splats, SpzOptions, SpzVersion};

/// CPU seconds of this process so far, where the system tells (Linux).
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The fields after the name, which may contain spaces: user and system time are number 14 and 15, in 1/100 s.
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    Some((fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?) / 100.0)
}

fn main() {
    let count = std::env::args().filter_map(|a| a.parse().ok()).next().unwrap_or(500_000);
    let mut state = 1u64;
    // Sums of three uniform numbers are normal enough to compress like a scene.
    let mut random = || {
        (0..3)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32 / (1 << 23) as f32 - 1.0
            })
            .sum::<f32>()
    };
    let mut splats = Splats::with_capacity(count, 3);
    for _ in 0..count {
        splats.means.push([0; 3].map(|_| 3.0 * random()).into());
        splats.log_scales.push([0; 3].map(|_| random() - 5.0).into());
        splats.rotations.push([0; 4].map(|_| random()).into());
        splats.opacities.push(3.0 * random());
        splats.sh.extend((0..48).map(|k| if k < 3 { random() } else { 0.1 * random() }));
    }
    let folder = tempfile::tempdir().unwrap();
    let megabytes = (count * 59 * 4) as f64 / 1e6;
    println!(
        "{count} splats, {megabytes:.0} MB\nfile        bytes/splat   write MB/s (CPU s)    read MB/s (CPU s)"
    );
    let spz = |version| Some(SpzOptions { version, ..SpzOptions::default() });
    let files = [
        ("scene.ply", None),
        ("scene.glb", None),
        ("scene.sog", None),
        ("v2.spz", spz(SpzVersion::V2)),
        ("v3.spz", spz(SpzVersion::V3)),
        ("v4.spz", spz(SpzVersion::V4)),
    ];
    for (name, options) in files {
        let path = folder.path().join(name);
        let timed = |work: &mut dyn FnMut()| {
            let (start, cpu) = (Instant::now(), cpu_seconds());
            work();
            let speed = megabytes / start.elapsed().as_secs_f64();
            let cpu = cpu.zip(cpu_seconds()).map_or(f64::NAN, |(before, after)| after - before);
            format!("{speed:8.0} ({cpu:6.2})")
        };
        let write = timed(&mut || match &options {
            None => splats.write(&path).unwrap(),
            Some(options) => splats.write_spz(&path, options).unwrap(),
        });
        let read = timed(&mut || assert_eq!(Splats::read(&path).unwrap().len(), count));
        let size = std::fs::metadata(&path).unwrap().len() as f64 / count as f64;
        println!("{name:10} {size:12.1} {write:>20} {read:>20}");
    }
}
