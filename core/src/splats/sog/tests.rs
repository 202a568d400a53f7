use std::fs;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use glam::{Vec3, vec3, vec4};
use rawzip::{CompressionMethod, ZipArchiveWriter};
use serde_json::{Value, json};

use super::super::test_scenes::random_splats;
use super::picture::Picture;
use super::*;
use crate::random::Random;
use crate::splats::sh_coefficients;

fn read_bytes(bytes: &[u8]) -> Result<Splats> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scene.sog");
    fs::write(&path, bytes).unwrap();
    Splats::read_sog(&path)
}

fn refusal(bytes: &[u8]) -> String {
    let error = read_bytes(bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidFile, "{error}");
    error.to_string()
}

type Files = Vec<(String, Vec<u8>)>;

/// The files of an archive.
fn files_of(bytes: &[u8]) -> Files {
    let archive = rawzip::ZipArchive::from_slice(bytes).unwrap();
    let entries = archive.entries().map(|entry| {
        let entry = entry.unwrap();
        let name = String::from_utf8(entry.file_path().as_bytes().to_vec()).unwrap();
        (name, archive.get_entry(entry.wayfinder()).unwrap().data().to_vec())
    });
    entries.collect()
}

fn zip(files: &Files) -> Vec<u8> {
    let files: Vec<(&str, Vec<u8>)> =
        files.iter().map(|(name, content)| (name.as_str(), content.clone())).collect();
    archive::write(&files).unwrap()
}

/// An archive whose files are compressed.
fn deflated(files: &Files, folder: &str) -> Vec<u8> {
    let mut zip = ZipArchiveWriter::new(Vec::new());
    for (name, content) in files {
        let name = format!("{folder}{name}");
        let entry = zip.new_file(&name).compression_method(CompressionMethod::DEFLATE);
        let (mut entry, config) = entry.start().unwrap();
        let mut data = config.wrap(DeflateEncoder::new(&mut entry, Compression::fast()));
        data.write_all(content).unwrap();
        let (encoder, descriptor) = data.finish().unwrap();
        encoder.finish().unwrap();
        entry.finish(descriptor).unwrap();
    }
    zip.finish().unwrap()
}

fn altered(files: &Files, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut files = files.clone();
    change(&mut files.iter_mut().find(|(own, _)| own == name).unwrap().1);
    zip(&files)
}

fn with_meta(files: &Files, place: &str, value: Value) -> Vec<u8> {
    altered(files, "meta.json", |json| {
        let mut meta: Value = serde_json::from_slice(json).unwrap();
        let (parent, name) = place.rsplit_once('/').unwrap();
        meta.pointer_mut(parent).unwrap()[name] = value;
        *json = meta.to_string().into_bytes();
    })
}

fn webp_of(width: usize, height: usize, pixel: [u8; 4]) -> Vec<u8> {
    webp::encode(&Picture { width, height, pixels: vec![pixel; width * height] })
}

/// A picture of one pixel that says it has so many: its header holds both sides less one in 14 bits each, after the signature 0x2f.
fn webp_that_says(width: u32, height: u32) -> Vec<u8> {
    let mut file = webp_of(1, 1, [0, 0, 0, 255]);
    let sides = 21..25;
    let header = u32::from_le_bytes(file[sides.clone()].try_into().unwrap());
    assert_eq!((file[20], header & 0x0fff_ffff), (0x2f, 0));
    file[sides].copy_from_slice(&(header | (width - 1) | (height - 1) << 14).to_le_bytes());
    file
}

/// Splats in whose colours few sets of spherical harmonics come again and again.
fn scene(count: usize, degree: u32) -> Splats {
    let mut splats = random_splats(u64::from(degree), count, degree);
    let per_splat = 3 * sh_coefficients(degree);
    let sets = count / 8;
    for i in sets..count {
        let (before, own) = splats.sh.split_at_mut(i * per_splat);
        own[3..per_splat].copy_from_slice(&before[(i % sets) * per_splat..][3..per_splat]);
    }
    splats
}

/// For each splat the number of the one at its place in the other scene.
fn partners(a: &Splats, b: &Splats) -> Vec<usize> {
    let nearest = |i: usize| {
        let distance = |k: &usize| a.means[i].distance_squared(b.means[*k]);
        (0..b.len()).min_by(|x, y| distance(x).total_cmp(&distance(y))).unwrap()
    };
    (0..a.len()).map(nearest).collect()
}

/// The largest differences that the format's rounding may make; of what is coded, means of squares.
fn assert_close(a: &Splats, b: &Splats, step: f32) {
    assert_eq!((a.len(), a.sh_degree), (b.len(), b.sh_degree));
    let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
    let per_splat = a.sh.len() / a.len();
    let (mut scales, mut colours, mut rest) = (0.0, 0.0, 0.0);
    for (i, k) in partners(a, b).into_iter().enumerate() {
        for axis in 0..3 {
            let (a, b) = (a.means[i][axis], b.means[k][axis]);
            assert!((a - b).abs() <= step * (1.0 + a.abs()), "position {a} and {b}");
        }
        let dot = a.rotation(i).dot(b.rotation(k)).abs();
        assert!(dot > 0.9999, "rotation: {dot}");
        // Some programs cut off instead of rounding.
        let (own, other) = (sigmoid(a.opacities[i]), sigmoid(b.opacities[k]));
        assert!((own - other).abs() < 1.01 / 255.0, "opacity: {own} and {other}");
        scales += (a.log_scales[i] - b.log_scales[k]).length_squared();
        for c in 0..per_splat {
            let square = (a.sh[i * per_splat + c] - b.sh[k * per_splat + c]).powi(2);
            if c < 3 { colours += square } else { rest += square }
        }
    }
    let count = 3.0 * a.len() as f32;
    let errors =
        [scales, colours, rest / (per_splat as f32 / 3.0 - 1.0).max(1.0)].map(|sum| (sum / count).sqrt());
    println!("errors of scales, colours, spherical harmonics: {errors:?}");
    assert!(errors[0] < 0.02 && errors[1] < 0.02 && errors[2] < 0.01, "{errors:?}");
}

#[test]
fn what_is_read_back_differs_by_the_rounding_of_the_format() {
    for degree in 0..=3 {
        let mut splats = scene(800, degree);
        splats.antialiased = degree % 2 == 0;
        splats.opacities[0] = -30.0;
        splats.opacities[1] = 30.0;
        let back = read_bytes(&splats.to_sog().unwrap()).unwrap();
        back.check().unwrap();
        assert_eq!(back.first_not_finite(), None);
        assert_eq!(back.antialiased, splats.antialiased);
        // About 5 units of logarithm in 65535 steps.
        assert_close(&splats, &back, 0.5 * 5.0 / 65_535.0);
    }
}

#[test]
fn small_scenes_come_back() {
    for count in [1, 2, 3, 17] {
        let splats = random_splats(2, count, 3);
        let back = read_bytes(&splats.to_sog().unwrap()).unwrap();
        assert_eq!(back.len(), count);
        // Each splat has its own set of spherical harmonics, and each scale its own value.
        for (i, k) in partners(&splats, &back).into_iter().enumerate() {
            assert!((splats.means[i] - back.means[k]).length() < 1e-3);
            assert!((splats.log_scales[i] - back.log_scales[k]).length() < 1e-6);
            for c in 0..48 {
                assert!((splats.sh[48 * i + c] - back.sh[48 * k + c]).abs() < 0.01);
            }
        }
    }
    let flat = Splats { means: vec![Vec3::ONE; 20], ..random_splats(1, 20, 0) };
    let back = read_bytes(&flat.to_sog().unwrap()).unwrap();
    assert!(back.means.iter().all(|mean| (*mean - Vec3::ONE).length() < 1e-6));
}

/// Two splats, worked out by hand from the definition of the format.
#[test]
fn two_splats_have_exactly_these_values() {
    let picture =
        |pixels: [[u8; 4]; 2]| webp::encode(&Picture { width: 2, height: 1, pixels: pixels.to_vec() });
    let coded = |codebook: &[f32], name: &str| json!({ "codebook": codebook, "files": [name] });
    let meta = json!({
        "version": 2,
        "count": 2,
        "antialias": true,
        "means": { "mins": [-1.0, 0.0, 2.0], "maxs": [1.0, 0.0, 3.0], "files": ["low", "high"] },
        "scales": coded(&[-5.0, -4.5, 1.0], "scales"),
        "quats": { "files": ["quats"] },
        "sh0": coded(&[0.0, 0.5, -0.5], "sh0"),
        "shN": { "count": 65, "bands": 1, "codebook": [0.0, 0.25, -0.25], "files": ["palette", "labels"] },
    });
    // Set 64 is the first of the second row.
    let mut palette = vec![[0, 0, 0, 255]; 2 * 64 * 3];
    palette[64 * 3..64 * 3 + 3].copy_from_slice(&[[0, 1, 2, 255], [1, 1, 1, 255], [2, 0, 0, 255]]);
    let palette = webp::encode(&Picture { width: 64 * 3, height: 2, pixels: palette });
    let files: Files = [
        ("meta.json", meta.to_string().into_bytes()),
        ("low", picture([[0, 7, 0, 255], [255, 9, 255, 255]])),
        ("high", picture([[0, 1, 0, 255], [255, 2, 255, 255]])),
        ("scales", picture([[0, 1, 2, 255], [2, 2, 2, 255]])),
        // x = 1; and half a turn about z, of which w, x and y are near zero.
        ("quats", picture([[127, 128, 127, 253], [128, 127, 128, 255]])),
        ("sh0", picture([[0, 1, 2, 0], [1, 1, 1, 51]])),
        ("palette", palette),
        ("labels", picture([[64, 0, 0, 255], [0, 0, 0, 255]])),
    ]
    .map(|(name, content)| (name.to_owned(), content))
    .to_vec();
    let splats = read_bytes(&zip(&files)).unwrap();
    let e = |power: f64| power.exp_m1() as f32;
    assert_eq!(splats.means, [vec3(-e(1.0), 0.0, e(2.0)), vec3(e(1.0), 0.0, e(3.0))]);
    assert_eq!(splats.log_scales, [vec3(-5.0, -4.5, 1.0), Vec3::splat(1.0)]);
    assert!((splats.rotations[0] - vec4(0.0, 1.0, 0.0, 0.0)).length() < 0.006, "{:?}", splats.rotations[0]);
    assert!((splats.rotations[1] - vec4(0.0, 0.0, 0.0, 1.0)).length() < 0.006, "{:?}", splats.rotations[1]);
    assert!(splats.opacities[0] < -6.9 && (splats.opacities[1] + 4f32.ln()).abs() < 1e-6);
    assert_eq!(splats.sh[..12], [0.0, 0.5, -0.5, 0.0, 0.25, -0.25, 0.25, 0.25, 0.25, -0.25, 0.0, 0.0]);
    assert!(splats.sh[15..].iter().all(|value| *value == 0.0) && splats.antialiased);

    // The same, packed once more, in a folder, with something beside it.
    let mut more = files;
    more.insert(0, ("old/meta.json".to_owned(), b"{}".to_vec()));
    more.push(("readme.txt".to_owned(), b"hello".to_vec()));
    assert_eq!(read_bytes(&deflated(&more, "kitchen/")).unwrap(), splats);
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let splats = scene(5000, 2);
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| splats.to_sog().unwrap())
    };
    assert!(with(1) == with(3));
}

#[test]
fn what_the_format_cannot_hold_is_refused() {
    let kind = |splats: &Splats| splats.to_sog().unwrap_err().kind();
    assert_eq!(kind(&Splats::with_capacity(0, 3)), ErrorKind::InvalidArgument);
    let mut spoilt = random_splats(1, 10, 1);
    spoilt.sh[57] = f32::NAN;
    assert_eq!(kind(&spoilt), ErrorKind::InvalidFile);
    spoilt.opacities.pop();
    assert_eq!(kind(&spoilt), ErrorKind::InvalidFile);
}

#[test]
fn hostile_files_are_refused() {
    let good = scene(100, 1).to_sog().unwrap();
    let files = files_of(&good);
    read_bytes(&zip(&files)).unwrap();
    let meta = |place: &str, value: Value| with_meta(&files, place, value);
    let picture = |name: &str, content: Vec<u8>| altered(&files, name, |own| *own = content);
    let without = |name: &str| {
        let mut files = files.clone();
        files.retain(|(own, _)| own != name);
        zip(&files)
    };
    let cut = |name: &str| altered(&files, name, |own| own.truncate(own.len() / 2));
    let codebook: Vec<f32> = vec![0.0; 257];
    let cases = [
        (b"PK\x05\x06".to_vec(), "no .sog file"),
        (Vec::new(), "no .sog file"),
        (good[..good.len() - 1].to_vec(), "damaged"),
        (good[..good.len() / 2].to_vec(), "damaged"),
        (good[..30].to_vec(), "damaged"),
        (without("meta.json"), "no meta.json"),
        (without("quats.webp"), "\"quats.webp\" is missing"),
        (meta("/version", json!(3)), "version 3"),
        (meta("/version", json!(null)), "version 1"),
        (meta("/count", json!(0)), "promises 0 splats"),
        (meta("/count", json!(u64::MAX)), "splats"),
        (meta("/count", json!(-1)), "description is damaged"),
        (meta("/count", json!(99_999_999)), "cannot hold"),
        (meta("/count", json!(1000)), "does not suit"),
        (meta("/means/mins", json!([0, 0])), "description is damaged"),
        (meta("/means/mins", json!([1e300, 0, 0])), "not finite"),
        (meta("/means/files", json!(["means_l.webp"])), "description is damaged"),
        (meta("/means/files", json!(["../means_l.webp", "b"])), "is missing"),
        (meta("/scales/codebook", json!([1.0])), "the scale of splat"),
        (meta("/sh0/codebook", json!([])), "the colour of splat 0"),
        (meta("/sh0/codebook", json!([1e39])), "not finite"),
        (meta("/sh0/codebook", json!(codebook)), "more than 256"),
        (meta("/shN/codebook", json!([1.0])), "a colour of its palette"),
        (meta("/shN/bands", json!(4)), "degree 4"),
        (meta("/shN/bands", json!(0)), "degree 0"),
        (meta("/shN/bands", json!(2)), "does not suit"),
        (meta("/shN/count", json!(0)), "palette has 0"),
        (meta("/shN/count", json!(65_537)), "palette has 65537"),
        (meta("/shN/count", json!(1)), "the palette entry of splat"),
        (meta("/shN/count", json!(65)), "does not suit"),
        (altered(&files, "meta.json", |own| own.resize(2 << 20, b' ')), "are read"),
        (altered(&files, "meta.json", |own| own.truncate(300)), "description is damaged"),
        (cut("sh0.webp"), "\"sh0.webp\" is damaged"),
        (picture("quats.webp", webp_of(12, 12, [0, 0, 0, 251])), "the rotation of splat 0"),
        (picture("means_l.webp", b"RIFF".to_vec()), "is damaged"),
        // A bomb: a few bytes that ask for room for a gigabyte of pixels.
        (picture("scales.webp", webp_that_says(16_383, 16_383)), "is 16383x16383"),
        (picture("shN_centroids.webp", webp_of(192, 2000, [0, 0, 0, 255])), "is 192x2000"),
    ];
    for (bytes, expected) in cases {
        let message = refusal(&bytes);
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

/// What the table of contents of an archive may say.
#[test]
fn hostile_archives_are_refused() {
    let good = scene(100, 0).to_sog().unwrap();
    // Where the entries of the table of contents are.
    let magic = b"PK\x01\x02";
    let entries: Vec<usize> = (0..good.len() - 4).filter(|at| good[*at..].starts_with(magic)).collect();
    assert_eq!(entries.len(), 6);
    let with = |entry: usize, offset: usize, bytes: &[u8]| {
        let mut altered = good.clone();
        altered[entries[entry] + offset..][..bytes.len()].copy_from_slice(bytes);
        altered
    };
    let cases = [
        (with(0, 8, &[9]), "is encrypted"),
        (with(1, 10, &[12]), "unusual way"),
        (with(1, 16, &[1, 2, 3, 4]), "is damaged"),
        // Sizes: packed, unpacked.
        (with(1, 20, &(good.len() as u32).to_le_bytes()), "overlap"),
        (with(1, 20, &[255; 4]), "overlap"),
        (with(1, 24, &[255; 4]), "more than such an archive can hold"),
        (with(1, 24, &[1, 0, 0, 0]), "is damaged"),
        // Where the file is.
        (with(1, 42, &[255; 4]), "is damaged"),
        (with(1, 42, &[1, 0, 0, 0]), "is damaged"),
        (with(0, 46, b"x"), "no meta.json"),
    ];
    for (bytes, expected) in cases {
        let message = refusal(&bytes);
        assert!(message.contains(expected), "{expected}: {message}");
    }
    let many: Files = (0..1100).map(|k| (k.to_string(), Vec::new())).collect();
    assert!(refusal(&zip(&many)).contains("more than 1000 files"));
    // 100 MB of spaces in 100 kB.
    let bomb: Files = vec![("meta.json".to_owned(), vec![b' '; 100 << 20])];
    let bomb = deflated(&bomb, "");
    assert!(bomb.len() < 1 << 20 && refusal(&bomb).contains("more than such an archive can hold"));
}

#[test]
fn altered_files_never_panic() {
    let mut random = Random::new(1);
    let files = files_of(&random_splats(2, 60, 2).to_sog().unwrap());
    for _ in 0..1500 {
        let mut altered = files.clone();
        let which = random.below(files.len());
        let content = &mut altered[which].1;
        for _ in 0..1 + random.below(4) {
            let at = random.below(content.len());
            content[at] = match random.below(2) {
                0 => random.next_u64() as u8,
                _ => b'0' + random.below(10) as u8,
            };
        }
        let mut bytes = zip(&altered);
        if random.below(4) == 0 {
            let at = random.below(bytes.len());
            bytes[at] = random.next_u64() as u8;
        }
        if let Ok(splats) = read_bytes(&bytes) {
            splats.check().unwrap();
            assert_eq!(splats.first_not_finite(), None);
        }
    }
}

/// A scene without any symmetry, through splat-transform in both directions.
#[test]
fn splat_transform_reads_and_writes_the_same_scenes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut splats = scene(400, 3);
    splats.means.iter_mut().for_each(|mean| *mean += vec3(2.0, -1.0, 5.0));
    splats.opacities.iter_mut().for_each(|opacity| *opacity = opacity.clamp(-4.0, 4.0));
    splats.write_ply(&path("ours.ply")).unwrap();
    splats.write_sog(&path("ours.sog")).unwrap();
    if !crate::interop::run("node", "scene_formats.mjs", &[folder.path().to_str().unwrap(), "sog"]) {
        return;
    }
    // What it reads in our file is what we read.
    let (ours, theirs) =
        (Splats::read(&path("ours.sog")).unwrap(), Splats::read(&path("transform_sog.ply")).unwrap());
    let near = |a: &[f32], b: &[f32], tolerance: f32| {
        assert_eq!(a.len(), b.len());
        let worst = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < tolerance, "{worst}");
    };
    near(bytemuck::cast_slice(&ours.means), bytemuck::cast_slice(&theirs.means), 1e-5);
    near(bytemuck::cast_slice(&ours.log_scales), bytemuck::cast_slice(&theirs.log_scales), 1e-6);
    near(bytemuck::cast_slice(&ours.rotations), bytemuck::cast_slice(&theirs.rotations), 1e-5);
    near(&ours.opacities, &theirs.opacities, 1e-3);
    near(&ours.sh, &theirs.sh, 1e-6);
    // What it writes is read here, but that it rounds more: it has as many sets of colours as there are splats.
    let theirs = Splats::read(&path("transform.sog")).unwrap();
    assert_close(&splats, &theirs, 5.0 / 65_535.0);
}
