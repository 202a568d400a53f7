use std::fs;
use std::path::PathBuf;

use bytemuck::cast_slice;
use glam::{Vec3, vec3, vec4};

use super::super::test_scenes::random_splats;
use super::container::{gzip_of, read};
use super::*;
use crate::random::Random;

const VERSIONS: [SpzVersion; 3] = [SpzVersion::V2, SpzVersion::V3, SpzVersion::V4];

fn read_bytes(bytes: &[u8], frame: SpzFrame) -> Result<Splats> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scene.spz");
    fs::write(&path, bytes).unwrap();
    Splats::read_spz(&path, frame)
}

fn refusal(bytes: &[u8]) -> String {
    let error = read_bytes(bytes, SpzFrame::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidFile, "{error}");
    error.to_string()
}

/// The largest differences that the format's rounding may make.
fn assert_close(a: &Splats, b: &Splats, version: SpzVersion, fractional_bits: u32) {
    assert_eq!((a.len(), a.sh_degree, a.antialiased), (b.len(), b.sh_degree, b.antialiased));
    let near = |a: f32, b: f32, tolerance: f32, what: &str| {
        assert!((a - b).abs() <= tolerance * 1.001, "{what}: {a} and {b}, {version:?}");
    };
    let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
    // Version 2 leaves w to be computed, which is inexact where it is small.
    let alignment = if version == SpzVersion::V2 { 0.99 } else { 0.99999 };
    for i in 0..a.len() {
        for k in 0..3 {
            near(a.means[i][k], b.means[i][k], 0.5 / (1 << fractional_bits) as f32, "position");
            near(a.log_scales[i][k], b.log_scales[i][k], 1.0 / 32.0, "scale");
        }
        near(sigmoid(a.opacities[i]), sigmoid(b.opacities[i]), 0.5 / 255.0, "opacity");
        let dot = a.rotations[i].dot(b.rotations[i]);
        assert!(dot.abs() > alignment, "rotation: {:?} and {:?}", a.rotations[i], b.rotations[i]);
        let values = a.sh.len() / a.len();
        for k in 0..values {
            // Rounded twice: to 1/128, then to a multiple of the step.
            let tolerance = [0.5 / 38.25, 1.0 / 32.0 + 1.0 / 256.0, 1.0 / 16.0 + 1.0 / 256.0]
                [usize::from(k >= 3) + usize::from(k >= 12)];
            let (low, high) = if k < 3 { (-3.33, 3.33) } else { (-1.0, 0.99) };
            near(
                a.sh[i * values + k].clamp(low, high),
                b.sh[i * values + k].clamp(low, high),
                tolerance,
                "colour",
            );
        }
    }
}

#[test]
fn what_is_read_back_differs_by_the_rounding_of_the_format() {
    for version in VERSIONS {
        for degree in 0..=3 {
            for frame in [SpzFrame::RightUpBack, SpzFrame::Unchanged] {
                let mut splats = random_splats(u64::from(degree), 500, degree);
                splats.antialiased = degree % 2 == 0;
                splats.opacities[0] = -30.0;
                splats.opacities[1] = 30.0;
                let options = SpzOptions { version, frame, fractional_bits: Some(13) };
                let bytes = splats.to_spz(&options).unwrap();
                let back = read_bytes(&bytes, frame).unwrap();
                assert_close(&splats, &back, version, 13);
                assert!(back.opacities.iter().all(|v| v.is_finite()));
                // What has been rounded once is not changed any more, however often it is written.
                let again = read_bytes(&back.to_spz(&options).unwrap(), frame).unwrap();
                assert_eq!(back.means, again.means);
                assert_eq!(back.log_scales, again.log_scales);
                assert_eq!(back.opacities, again.opacities);
                assert_eq!(back.sh[..3], again.sh[..3]);
            }
        }
    }
}

/// The turn by 180 degrees about x is a symmetry of the colours too: a splat seen from a turned direction in the turned
/// frame has the colour it had.
#[test]
fn the_colour_is_turned_with_the_scene() {
    // The basis of degree 1 to 3 as polynomials, up to factors that do not matter here.
    let basis = |[x, y, z]: [f32; 3]| {
        let (xx, yy, zz) = (x * x, y * y, z * z);
        [
            y,
            z,
            x,
            x * y,
            y * z,
            2.0 * zz - xx - yy,
            x * z,
            xx - yy,
            y * (3.0 * xx - yy),
            x * y * z,
            y * (4.0 * zz - xx - yy),
            z * (2.0 * zz - 3.0 * xx - 3.0 * yy),
            x * (4.0 * zz - xx - yy),
            z * (xx - yy),
            x * (xx - 3.0 * yy),
        ]
    };
    let mut splats = random_splats(5, 1, 3);
    // Multiples of the step of the format, so that rounding does not blur the comparison.
    splats.sh.iter_mut().for_each(|v| *v = (*v * 8.0).round().clamp(-7.0, 7.0) / 8.0);
    let bytes = splats.to_spz(&SpzOptions::default()).unwrap();
    let turned = read_bytes(&bytes, SpzFrame::Unchanged).unwrap();
    assert!((turned.means[0][0] - splats.means[0][0]).abs() < 1e-3);
    assert!((turned.means[0][1] + splats.means[0][1]).abs() < 1e-3);
    assert!((turned.means[0][2] + splats.means[0][2]).abs() < 1e-3);
    for direction in [[0.3f32, -0.5, 0.8], [-0.9, 0.1, 0.2], [0.1, 0.7, -0.6]] {
        let [x, y, z] = direction;
        let seen = |splats: &Splats, direction| -> f32 {
            basis(direction).iter().enumerate().map(|(k, b)| b * splats.sh[3 + 3 * k]).sum()
        };
        assert!((seen(&splats, [x, y, z]) - seen(&turned, [x, -y, -z])).abs() < 1e-5);
    }
}

/// One splat whose bytes were worked out by hand from the definition of the format.
#[test]
fn one_splat_has_exactly_these_bytes() {
    let splats = Splats {
        means: vec![vec3(1.0, 0.5, -2.0)],
        log_scales: vec![vec3(-10.0, 0.0, 9.0)],
        rotations: vec![vec4(-0.5, 0.5, -0.5, 0.5)],
        opacities: vec![0.0],
        sh_degree: 1,
        sh: vec![0.0, 4.0, -1.0, 0.25, 0.0, -1.0, 0.5, 0.5, 0.5, 0.06, 0.07, -0.07],
        antialiased: true,
    };
    let header = |version: u8| [b'N', b'G', b'S', b'P', version, 0, 0, 0, 1, 0, 0, 0, 1, 12, 1];
    // 4096, -2048, 8192 in 24 bits: y and z have changed their signs.
    let positions = [0x00, 0x10, 0x00, 0x00, 0xf8, 0xff, 0x00, 0x20, 0x00];
    let alphas = [128]; // 127.5 goes away from zero
    let colours = [128, 255, 89]; // 127.5, clamped, 89.25
    let scales = [0, 160, 255];
    // (w x y z) = (-½ ½ ½ -½) after the turn, so x y z w = ½ ½ -½ -½; with w >= 0: -½ -½ ½: 63.75, 63.75, 191.25
    let first_three = [64, 64, 191];
    // x is the largest (first of equals), then y + , z -, w -: magnitude 511 / √2 = 361.3 → 361
    let smallest_three = ((361 << 20) | (1 << 9 | 361) << 10 | (1 << 9 | 361)) as u32;
    // Degree 1 is turned by -, -, +; rounded to multiples of 8 around 128.
    let sh = [96, 128, 255, 64, 64, 64, 136, 136, 120];
    for (version, number) in [(SpzVersion::V2, 2), (SpzVersion::V3, 3)] {
        let options = SpzOptions { version, fractional_bits: Some(12), ..SpzOptions::default() };
        let bytes = splats.to_spz(&options).unwrap();
        let mut payload = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut payload).unwrap();
        let mut expected = [&header(number)[..], &[0], &positions, &alphas, &colours, &scales].concat();
        match version {
            SpzVersion::V2 => expected.extend(first_three),
            _ => expected.extend(smallest_three.to_le_bytes()),
        }
        expected.extend(sh);
        assert_eq!(payload, expected, "{version:?}");
    }
    let options = SpzOptions { version: SpzVersion::V4, fractional_bits: Some(12), ..SpzOptions::default() };
    let bytes = splats.to_spz(&options).unwrap();
    assert_eq!(bytes[..32], [&header(4)[..], &[6, 32, 0, 0, 0], &[0; 12]].concat());
    let mut at = 32 + 6 * 16;
    let attributes = [&positions[..], &alphas, &colours, &scales, &smallest_three.to_le_bytes(), &sh];
    for (k, attribute) in attributes.into_iter().enumerate() {
        let entry = |offset: usize| {
            let start = 32 + 16 * k + offset;
            u64::from_le_bytes(bytes[start..start + 8].try_into().unwrap()) as usize
        };
        assert_eq!(entry(8), attribute.len());
        assert_eq!(zstd::bulk::decompress(&bytes[at..at + entry(0)], 100).unwrap(), attribute);
        at += entry(0);
    }
    assert_eq!(at, bytes.len());
}

#[test]
fn version_1_is_read() {
    let mut payload = b"NGSP\x01\0\0\0\x01\0\0\0\0\x0c\0\0".to_vec();
    payload.extend([0x00, 0x3e, 0x00, 0xc0, 0x01, 0x00]); // 1.5, -2, the smallest denormal
    payload.extend([255, 128, 128, 128, 0, 16, 32, 128, 128, 128]);
    let splats = read_bytes(&gzip_of(&payload), SpzFrame::Unchanged).unwrap();
    assert_eq!(splats.means, [vec3(1.5, -2.0, 2f32.powi(-24))]);
    assert_eq!(splats.log_scales, [vec3(-10.0, -9.0, -8.0)]);
    assert!(splats.rotations[0][0] > 0.9999);
}

#[test]
fn positions_use_the_bits_that_the_extent_leaves() {
    let mut splats = random_splats(3, 2000, 0);
    splats.means.iter_mut().for_each(|v| *v = v.clamp(Vec3::splat(-60.0), Vec3::splat(60.0)));
    assert_eq!(quantise::fractional_bits(&splats.means), 16);
    splats.means[7] = vec3(100.0, 0.0, 300.0);
    assert_eq!(quantise::fractional_bits(&splats.means), 14);
    // Two far ones in 2000 do not spoil the rest.
    splats.means[7] = vec3(1e5, -3e5, 2e5);
    splats.log_scales[7] = vec3(0.0, 1.0, 2.0);
    assert_eq!(quantise::fractional_bits(&splats.means), 12);
    let back = read_bytes(&splats.to_spz(&SpzOptions::default()).unwrap(), SpzFrame::default()).unwrap();
    // Pulled in along its direction and shrunk as much.
    let factor = 8_388_607.0 / 4096.0 / 3e5;
    for k in 0..3 {
        assert!((back.means[7][k] - splats.means[7][k] * factor).abs() < 1e-3, "{:?}", back.means[7]);
        assert!((back.log_scales[7][k] - splats.log_scales[7][k] - factor.ln()).abs() < 0.04);
    }
    splats.means.iter_mut().for_each(|mean| mean[0] = 5000.0);
    assert_eq!(quantise::fractional_bits(&splats.means), 10);
    splats.means.iter_mut().for_each(|mean| mean[0] = 1e12);
    assert_eq!(quantise::fractional_bits(&splats.means), 0);
}

#[test]
fn what_the_format_cannot_hold_is_refused() {
    let options = SpzOptions::default();
    let kind = |splats: &Splats, options: &SpzOptions| splats.to_spz(options).unwrap_err().kind();
    assert_eq!(kind(&Splats::with_capacity(0, 3), &options), ErrorKind::InvalidArgument);
    let splats = random_splats(1, 10, 1);
    let bits = SpzOptions { fractional_bits: Some(24), ..options };
    assert_eq!(kind(&splats, &bits), ErrorKind::InvalidArgument);
    let mut spoilt = splats.clone();
    spoilt.sh[57] = f32::NAN;
    assert_eq!(kind(&spoilt, &options), ErrorKind::InvalidFile);
    let mut short = splats;
    short.opacities.pop();
    assert_eq!(kind(&short, &options), ErrorKind::InvalidFile);
}

#[test]
fn hostile_files_are_refused() {
    let header = |version: u8, count: u32, degree: u8, bits: u8, flags: u8| {
        let mut bytes = b"NGSP".to_vec();
        bytes.extend([version, 0, 0, 0]);
        bytes.extend(count.to_le_bytes());
        bytes.extend([degree, bits, flags, 0]);
        bytes
    };
    let zeros = |version, count, degree, bits, flags, size: usize| {
        gzip_of(&[header(version, count, degree, bits, flags), vec![0; size]].concat())
    };
    read_bytes(&zeros(3, 2, 0, 12, 0, 40), SpzFrame::default()).unwrap();
    read_bytes(&zeros(3, 2, 0, 12, 2, 48), SpzFrame::default()).unwrap();
    read_bytes(&zeros(3, 2, 4, 23, 1, 40 + 2 * 72), SpzFrame::default()).unwrap();
    let cases = [
        (b"NGSX".to_vec(), "no .spz file"),
        (Vec::new(), "no .spz file"),
        (gzip_of(b"hello"), "header cannot be unpacked"),
        (gzip_of(b"something else, long enough"), "does not begin with NGSP"),
        (zeros(3, 0, 0, 12, 0, 0), "promises 0 splats"),
        (zeros(3, u32::MAX, 0, 12, 0, 20), "promises 4294967295 splats"),
        (zeros(3, 100_000_000, 3, 12, 0, 20), "cannot hold"),
        (zeros(3, 3, 0, 12, 0, 40), "ends before the last"),
        (zeros(3, 2, 0, 12, 0, 41), "more bytes follow"),
        (zeros(3, 2, 5, 12, 0, 400), "degree 5"),
        (zeros(3, 2, 0, 24, 0, 40), "24 fractional bits"),
        (zeros(3, 2, 0, 12, 0x80, 40), "levels of detail"),
        (zeros(0, 2, 0, 12, 0, 40), "version 0"),
        (zeros(5, 2, 0, 12, 0, 40), "version 5"),
        (zeros(4, 2, 0, 12, 0, 40), "not compressed as a whole"),
        (header(3, 2, 0, 12, 0), "must be compressed"),
        (header(4, 2, 0, 12, 0), "streams"),
        (header(4, 2, 0, 12, 0)[..9].to_vec(), "ends within its header"),
    ];
    for (bytes, expected) in cases {
        let message = refusal(&bytes);
        assert!(message.contains(expected), "{expected}: {message}");
    }
    // A bomb: 30 kB that would unpack to 30 MB, with a count that is true to its first 40 bytes.
    let bomb = zeros(3, 2, 0, 12, 0, 30_000_000);
    assert!(bomb.len() < 200_000 && refusal(&bomb).contains("more bytes follow"));
}

/// A file of version 4 without further colours, its six streams packed one by one.
fn of_streams(count: u32, streams: [Vec<u8>; 5]) -> Vec<u8> {
    let mut bytes = b"NGSP\x04\0\0\0".to_vec();
    bytes.extend(count.to_le_bytes());
    bytes.extend([0, 12, 0, 5]);
    bytes.extend(32u32.to_le_bytes());
    bytes.resize(32, 0);
    for (stream, stride) in streams.iter().zip([9, 1, 3, 3, 4]) {
        bytes.extend((stream.len() as u64).to_le_bytes());
        bytes.extend((u64::from(count) * stride).to_le_bytes());
    }
    bytes.extend(streams.concat());
    bytes
}

/// One byte, `count` times, as Zstandard packs it best: 128 kB in four bytes.
fn same_byte(count: usize) -> Vec<u8> {
    const BLOCK: usize = 128 << 10;
    // Magic, no size, a window of 128 kB, and blocks of the kind that repeats a byte.
    let mut stream = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x38];
    for at in (0..count).step_by(BLOCK) {
        let size = BLOCK.min(count - at);
        let last = u32::from(at + size == count);
        stream.extend(&((size as u32) << 3 | 1 << 1 | last).to_le_bytes()[..3]);
        stream.push(0x55);
    }
    stream
}

/// Zstandard makes 32,000 bytes of one. Up to 64 MB that is read, for then nothing is lost.
#[test]
fn what_unpacks_to_far_more_than_a_scene_is_refused() {
    let equal = |count: u32| of_streams(count, [9, 1, 3, 3, 4].map(|size| same_byte(count as usize * size)));
    let most = (64 << 20) / 20;
    let small = equal(most);
    assert!(small.len() < 3000, "{}", small.len());
    assert_eq!(read_bytes(&small, SpzFrame::default()).unwrap().len(), most as usize);
    let message = refusal(&equal(most + 1));
    assert!(message.contains("cannot hold"), "{message}");
    assert!(refusal(&equal(100_000_000)).contains("cannot hold"));
}

/// What comes out of a stream is counted, whatever its header says.
#[test]
fn a_stream_is_as_long_as_the_table_says() {
    let sizes = [9, 1, 3, 3, 4].map(|size| size * 1000);
    let with = |size: usize| {
        let mut streams = sizes.map(same_byte);
        streams[2] = same_byte(size);
        of_streams(1000, streams)
    };
    read(&with(3000)).unwrap();
    assert!(refusal(&with(2999)).contains("too short"));
    assert!(refusal(&with(3001)).contains("too long"));
    assert!(refusal(&with(60 << 20)).contains("too long"));
    // A window of 2 GB, for which room would be made.
    let mut wide = with(3000);
    let at = 32 + 5 * 16 + 5;
    assert_eq!(wide[at], 0x38);
    wide[at] = 21 << 3;
    let message = refusal(&wide);
    assert!(message.contains("memory"), "{message}");
}

#[test]
fn hostile_tables_of_contents_are_refused() {
    let good = random_splats(1, 30, 1)
        .to_spz(&SpzOptions { version: SpzVersion::V4, ..Default::default() })
        .unwrap();
    read(&good).unwrap();
    let altered = |at: usize, bytes: &[u8]| {
        let mut altered = good.clone();
        altered[at..at + bytes.len()].copy_from_slice(bytes);
        altered
    };
    let cases = [
        (altered(15, &[5]), "5 streams instead of 6"),
        (altered(16, &[31, 0, 0, 0]), "table of contents at byte 31"),
        (altered(16, &[255, 255, 255, 255]), "table of contents"),
        (altered(32, &[255; 8]), "cut off"),
        (altered(40, &[255; 8]), "instead of 270"),
        (altered(32 + 96, &[0; 4]), "damaged"),
        ([&good[..], &[0]].concat(), "1 bytes follow"),
        (good[..good.len() - 1].to_vec(), "cut off"),
        (altered(8, &[255, 255, 255, 0]), "cannot hold"),
    ];
    for (bytes, expected) in cases {
        let message = refusal(&bytes);
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

#[test]
fn altered_files_never_panic() {
    let mut random = Random::new(1);
    for version in VERSIONS {
        let bytes = random_splats(2, 40, 2).to_spz(&SpzOptions { version, ..Default::default() }).unwrap();
        for _ in 0..400 {
            let mut altered = bytes.clone();
            for _ in 0..1 + random.below(4) {
                let range = if random.uniform() < 0.5 { 64 } else { bytes.len() };
                let at = random.below(range);
                altered[at] = random.next_u64() as u8;
            }
            altered.truncate(1 + random.below(2 * bytes.len()));
            if let Ok(packed) = read(&altered) {
                let splats = quantise::decode(&packed, SpzFrame::default());
                splats.check().unwrap();
                assert!((0..splats.len()).all(|i| splats.is_finite_at(i)));
            }
        }
    }
}

fn unpack(path: PathBuf) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).unwrap();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut bytes).unwrap();
    bytes
}

fn read_packed_ply(path: PathBuf) -> Splats {
    let folder = tempfile::tempdir().unwrap();
    let ply = folder.path().join("scene.ply");
    fs::write(&ply, unpack(path)).unwrap();
    Splats::read_ply(&ply).unwrap()
}

/// Files of the reference implementation, made from the same scene: ours must have the same bytes inside.
#[test]
fn the_reference_implementation_writes_the_same_bytes() {
    let Some(folder) = crate::prerequisites::capture("splats/playbot") else { return };
    let splats = read_packed_ply(folder.join("playbot_lod3.ply.gz"));
    for (version, file) in VERSIONS.into_iter().zip(["v2", "v3", "v4"]) {
        let reference = fs::read(folder.join(format!("playbot_lod3.{file}.spz"))).unwrap();
        // It turns nothing unless told to, and always uses 12 bits.
        let options = SpzOptions { version, frame: SpzFrame::Unchanged, fractional_bits: Some(12) };
        let (ours, theirs) = (read(&splats.to_spz(&options).unwrap()).unwrap(), read(&reference).unwrap());
        assert_eq!(ours.header, theirs.header);
        for (k, (ours, theirs)) in ours.attributes.iter().zip(&theirs.attributes).enumerate() {
            let different = ours.iter().zip(theirs).filter(|(a, b)| a != b).count();
            assert_eq!((ours.len(), different), (theirs.len(), 0), "attribute {k} of version {file}");
        }
    }
    let decoded = read_packed_ply(folder.join("playbot_lod3.from_v3_reference.ply.gz"));
    let ours = Splats::read_spz(&folder.join("playbot_lod3.v3.spz"), SpzFrame::Unchanged).unwrap();
    assert_close(&decoded, &ours, SpzVersion::V3, 12);
    let Some(folder) = crate::prerequisites::capture("splats/biker") else { return };
    let decoded = read_packed_ply(folder.join("biker.from_spz_reference.ply.gz"));
    let ours = Splats::read_spz(&folder.join("biker.spz"), SpzFrame::Unchanged).unwrap();
    assert_eq!(ours.len(), 152_746);
    assert_close(&decoded, &ours, SpzVersion::V4, 12);
}

/// Splats as another program would see them: numbers that the format holds without clamping.
fn common_splats(count: usize, degree: u32) -> Splats {
    let mut splats = random_splats(11, count, degree);
    splats.antialiased = true;
    splats.opacities.iter_mut().for_each(|v| *v = v.clamp(-4.0, 5.0));
    splats.log_scales.iter_mut().for_each(|v| *v = v.clamp(Vec3::splat(-9.0), Vec3::splat(4.0)));
    splats.sh.iter_mut().for_each(|v| *v = v.clamp(-0.9, 0.9));
    splats
}

fn write_common_files(splats: &Splats, folder: &std::path::Path, frame: SpzFrame) {
    splats.write_ply(&folder.join("ours.ply")).unwrap();
    for (version, number) in VERSIONS.into_iter().zip(2..) {
        let options = SpzOptions { version, frame, fractional_bits: Some(12) };
        splats.write_spz(&folder.join(format!("ours_v{number}.spz")), &options).unwrap();
    }
}

#[test]
fn gsply_reads_and_writes_the_same_scenes() {
    let folder = tempfile::tempdir().unwrap();
    let splats = Splats { antialiased: false, ..common_splats(300, 3) };
    write_common_files(&splats, folder.path(), SpzFrame::Unchanged);
    if !crate::interop::run("python3", "gsply_roundtrip.py", &[folder.path().to_str().unwrap()]) {
        return;
    }
    assert_eq!(Splats::read(&folder.path().join("gsply_ours.ply")).unwrap(), splats);
    for (version, number) in VERSIONS.into_iter().zip(2..) {
        let theirs = Splats::read(&folder.path().join(format!("gsply_v{number}.ply"))).unwrap();
        assert_close(&splats, &theirs, version, 12);
        let ours = Splats::read_spz(&folder.path().join(format!("ours_v{number}.spz")), SpzFrame::Unchanged);
        assert_same(&ours.unwrap(), &theirs);
    }
    let theirs = Splats::read_spz(&folder.path().join("gsply.spz"), SpzFrame::Unchanged).unwrap();
    assert_close(&splats, &theirs, SpzVersion::V3, 12);
}

/// Two readers of one file: the same values but for the last bits.
fn assert_same(ours: &Splats, theirs: &Splats) {
    let near = |a: &[f32], b: &[f32], what: &str| {
        assert_eq!(a.len(), b.len());
        let worst = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!("{what}: {worst:e}");
        assert!(worst < 2e-5, "{what}: {worst}");
    };
    near(cast_slice(&ours.means), cast_slice(&theirs.means), "positions");
    near(cast_slice(&ours.log_scales), cast_slice(&theirs.log_scales), "scales");
    near(&ours.opacities, &theirs.opacities, "opacities");
    near(&ours.sh, &theirs.sh, "colours");
    for (a, b) in ours.rotations.iter().zip(&theirs.rotations) {
        let dot = a.dot(*b);
        assert!(dot.abs() > 1.0 - 1e-6, "rotations: {a:?} and {b:?}");
    }
}

#[test]
fn the_reference_implementation_and_splat_transform_read_and_write_the_same_scenes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (count, degree) = (300, 3);
    let splats = common_splats(count, degree);
    write_common_files(&splats, folder.path(), SpzFrame::RightUpBack);
    let per_splat = 48;
    let (mut colours, mut rest) = (Vec::new(), Vec::new());
    for sh in splats.sh.chunks_exact(per_splat) {
        colours.extend_from_slice(&sh[..3]);
        rest.extend_from_slice(&sh[3..]);
    }
    let xyzw: Vec<f32> = splats.rotations.iter().flat_map(|q| [q.y, q.z, q.w, q.x]).collect();
    let (means, scales) = (cast_slice(&splats.means), cast_slice(&splats.log_scales));
    let all = [means, scales, &xyzw, &splats.opacities, &colours, &rest].concat();
    fs::write(path("ours.f32"), all.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
    let arguments = [folder.path().to_str().unwrap(), &count.to_string(), "45"];
    if !crate::interop::run("node", "spz_roundtrip.mjs", &arguments) {
        return;
    }
    for (version, number) in VERSIONS.into_iter().zip(2..) {
        let bytes = fs::read(path(&format!("reference_v{number}.f32"))).unwrap();
        let values: Vec<f32> = bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        let mut at = 0;
        let mut next = |size: usize| {
            at += count * size;
            &values[at - count * size..at]
        };
        let triples = |values: &[f32]| values.chunks(3).map(Vec3::from_slice).collect();
        let (means, log_scales) = (triples(next(3)), triples(next(3)));
        let rotations = next(4).chunks(4).map(|q| vec4(q[3], q[0], q[1], q[2])).collect();
        let opacities = next(1).to_vec();
        let colours = next(3).chunks(3);
        let sh = colours.zip(next(45).chunks(45)).flat_map(|(dc, rest)| [dc, rest].concat()).collect();
        let theirs =
            Splats { means, log_scales, rotations, opacities, sh_degree: degree, sh, antialiased: true };
        assert_close(&splats, &theirs, version, 12);
        let ours = path(&format!("ours_v{number}.spz"));
        assert_same(&Splats::read(&ours).unwrap(), &theirs);
        // Encoded by the reference from the same numbers: the same bytes inside.
        let reference = fs::read(path(&format!("reference_v{number}.spz"))).unwrap();
        assert_eq!(read(&reference).unwrap(), read(&fs::read(ours).unwrap()).unwrap(), "version {number}");
    }

    let unflagged = Splats { antialiased: false, ..splats.clone() };
    let mut theirs = Splats::read(&path("transform_ply.ply")).unwrap();
    theirs.antialiased = false;
    assert_same(&unflagged, &theirs);
    let mut theirs = Splats::read(&path("transform_spz.ply")).unwrap();
    theirs.antialiased = false;
    let ours = Splats { antialiased: false, ..Splats::read(&path("ours_v3.spz")).unwrap() };
    assert_same(&ours, &theirs);
    let mut theirs = Splats::read(&path("transform.spz")).unwrap();
    theirs.antialiased = false;
    assert_close(&unflagged, &theirs, SpzVersion::V3, 12);
    // The packed file is in the order of a space-filling curve: compare by nearest position.
    let packed = Splats::read(&path("transform.compressed.ply")).unwrap();
    assert_eq!((packed.len(), packed.sh_degree), (count, degree));
    for i in 0..count {
        let distance = |k: &usize| packed.means[*k].distance_squared(splats.means[i]);
        let k = (0..count).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap();
        assert!(distance(&k) < 1e-3, "{}", distance(&k));
        let dot = packed.rotations[k].dot(splats.rotations[i]);
        assert!(dot.abs() > 0.9999);
        for c in 0..3 {
            assert!((packed.log_scales[k][c] - splats.log_scales[i][c]).abs() < 0.02);
        }
        for c in 0..per_splat {
            let (a, b) = (packed.sh[k * per_splat + c], splats.sh[i * per_splat + c]);
            assert!((a - b).abs() < 0.02, "coefficient {c}: {a} and {b}");
        }
    }
}
