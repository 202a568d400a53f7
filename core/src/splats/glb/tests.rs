use std::fs;
use std::path::Path;

use glam::{Mat3, Vec3, vec3, vec4};
use serde_json::{Value, json};

use super::super::test_scenes::random_splats;
use super::*;
use crate::random::Random;

fn to_glb(splats: &Splats) -> Vec<u8> {
    let mut bytes = Vec::new();
    write::Layout::new(splats).unwrap().write(splats, &mut bytes).unwrap();
    bytes
}

fn read_bytes(bytes: &[u8]) -> Result<Splats> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scene.glb");
    fs::write(&path, bytes).unwrap();
    Splats::read_glb(&path)
}

fn refusal(bytes: &[u8]) -> String {
    let error = read_bytes(bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidFile, "{error}");
    error.to_string()
}

/// A file of this description and buffer.
fn pack(document: &Value, buffer: &[u8]) -> Vec<u8> {
    let mut json = document.to_string().into_bytes();
    json.resize(json.len().next_multiple_of(4), b' ');
    let mut bytes = b"glTF\x02\0\0\0".to_vec();
    bytes.extend((28 + json.len() as u32 + buffer.len() as u32).to_le_bytes());
    for (kind, content) in [(b"JSON", &json[..]), (b"BIN\0", buffer)] {
        bytes.extend((content.len() as u32).to_le_bytes());
        bytes.extend(kind);
        bytes.extend(content);
    }
    bytes
}

/// The description and the buffer of a file.
fn unpack(bytes: &[u8]) -> (Value, Vec<u8>) {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let json = &bytes[20..20 + word(12)];
    let buffer = &bytes[28 + json.len()..];
    assert_eq!(buffer.len(), word(20 + json.len()));
    assert_eq!(bytes.len(), word(8));
    (serde_json::from_slice(json).unwrap(), buffer.to_vec())
}

/// A file with its description changed.
fn altered(bytes: &[u8], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let (mut document, buffer) = unpack(bytes);
    change(&mut document);
    pack(&document, &buffer)
}

/// What is read differs by what logarithm and exponential leave.
fn assert_close(a: &Splats, b: &Splats) {
    assert_eq!((a.len(), a.sh_degree, a.antialiased), (b.len(), b.sh_degree, b.antialiased));
    for i in 0..a.len() {
        assert!((a.means[i] - b.means[i]).length() <= 1e-5 * (1.0 + a.means[i].length()), "{i}");
        assert!((a.log_scales[i] - b.log_scales[i]).abs().max_element() < 1e-5, "{i}");
        assert!((covariance(a, i) - covariance(b, i)).abs_diff_max() < 1e-5, "{i}");
        assert!((a.opacities[i] - b.opacities[i]).abs() < 1e-4, "{} {}", a.opacities[i], b.opacities[i]);
    }
    let worst = a.sh.iter().zip(&b.sh).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst < 1e-5, "{worst}");
}

trait Largest {
    fn abs_diff_max(&self) -> f32;
}

impl Largest for Mat3 {
    fn abs_diff_max(&self) -> f32 {
        self.to_cols_array().into_iter().map(f32::abs).fold(0.0, f32::max)
    }
}

/// The shape of a splat of unit size, whichever of its quaternions it has.
fn covariance(splats: &Splats, i: usize) -> Mat3 {
    let scales = splats.log_scales[i] - Vec3::splat(splats.log_scales[i].max_element());
    let half = Mat3::from_quat(splats.rotation(i)) * Mat3::from_diagonal(scales.exp());
    half * half.transpose()
}

#[test]
fn what_is_written_is_read_back() {
    for degree in 0..=3 {
        let mut splats = random_splats(u64::from(degree), 300, degree);
        splats.antialiased = degree % 2 == 1;
        splats.log_scales[0] = vec3(-60.0, 0.0, 100.0);
        splats.opacities[..2].copy_from_slice(&[-90.0, 90.0]);
        let back = read_bytes(&to_glb(&splats)).unwrap();
        // Signs were turned there and back.
        assert_eq!((&back.means, &back.rotations, &back.sh), (&splats.means, &splats.rotations, &splats.sh));
        assert!((back.log_scales[0] - vec3(-40.0, 0.0, 88.72)).length() < 0.01, "{:?}", back.log_scales[0]);
        assert!((back.opacities[0] + 90.0).abs() < 1e-3 && back.opacities[1] == 20.0);
        for (splats, opacity) in [(&mut splats, -90.0), (&mut back.clone(), -90.0)] {
            splats.log_scales[0] = Vec3::ZERO;
            splats.opacities[..2].copy_from_slice(&[opacity, 20.0]);
        }
        let mut back = back;
        back.log_scales[0] = Vec3::ZERO;
        assert_close(&splats, &back);
    }
}

/// One splat whose values were worked out by hand from the text of the extension.
#[test]
fn one_splat_has_exactly_these_values() {
    let splats = Splats {
        means: vec![vec3(1.0, 2.0, 3.0)],
        log_scales: vec![vec3(0.0, 2f32.ln(), -(4f32.ln()))],
        rotations: vec![vec4(1.0, 3.0, 5.0, 1.0)], // of length 6
        opacities: vec![0.0],
        sh_degree: 1,
        sh: vec![0.0, 10.0, -10.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9],
        antialiased: false,
    };
    let (document, buffer) = unpack(&to_glb(&splats));
    let primitive = &document["meshes"][0]["primitives"][0];
    assert_eq!(primitive["mode"], 0);
    let expected = json!({
        "kernel": "ellipse", "colorSpace": "srgb_rec709_display", "projection": "perspective",
        "sortingMethod": "cameraDistance",
    });
    assert_eq!(primitive["extensions"]["KHR_gaussian_splatting"], expected);
    assert_eq!(document["extensionsUsed"], json!(["KHR_gaussian_splatting"]));
    let values = |name: &str| -> Vec<f32> {
        let accessor = &document["accessors"][primitive["attributes"][name].as_u64().unwrap() as usize];
        let view = &document["bufferViews"][accessor["bufferView"].as_u64().unwrap() as usize];
        let (start, size) = (view["byteOffset"].as_u64().unwrap(), view["byteLength"].as_u64().unwrap());
        let bytes = &buffer[start as usize..(start + size) as usize];
        match accessor["componentType"].as_u64().unwrap() {
            5121 => bytes.iter().map(|&byte| f32::from(byte)).collect(),
            _ => bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect(),
        }
    };
    assert_eq!(values("POSITION"), [-1.0, -2.0, 3.0]);
    assert_eq!(document["accessors"][0]["min"], json!([-1.0, -2.0, 3.0]));
    assert_eq!(values("COLOR_0"), [128.0, 255.0, 0.0, 128.0]);
    assert_eq!(values("KHR_gaussian_splatting:ROTATION"), [-0.5, -5.0 / 6.0, 1.0 / 6.0, 1.0 / 6.0]);
    assert_eq!(values("KHR_gaussian_splatting:SCALE"), [1.0, 2.0, 0.25]);
    assert_eq!(values("KHR_gaussian_splatting:OPACITY"), [0.5]);
    assert_eq!(values("KHR_gaussian_splatting:SH_DEGREE_0_COEF_0"), [0.0, 10.0, -10.0]);
    assert_eq!(values("KHR_gaussian_splatting:SH_DEGREE_1_COEF_0"), [-0.1, -0.2, -0.3]);
    assert_eq!(values("KHR_gaussian_splatting:SH_DEGREE_1_COEF_1"), [0.4, 0.5, 0.6]);
    assert_eq!(values("KHR_gaussian_splatting:SH_DEGREE_1_COEF_2"), [-0.7, -0.8, -0.9]);
}

/// The turn into glTF's frame is that of the whole world by 180 degrees about z.
#[test]
fn the_turn_is_that_of_the_world() {
    let splats = random_splats(3, 100, 3);
    let (mut ours, mut theirs) = (splats.clone(), splats);
    frame::turn(&mut ours);
    let turn = nalgebra::UnitQuaternion::from_euler_angles(0.0, 0.0, std::f64::consts::PI);
    theirs.transform(1.0, &turn, &nalgebra::Vector3::zeros()).unwrap();
    assert_close(&ours, &theirs);
}

/// Two splats as other programs might store them: everything in one view, integers, an attribute shared by two.
fn interleaved() -> (Value, Vec<u8>) {
    let mut buffer = vec![9; 4];
    for k in 0..2u8 {
        buffer.extend([i16::from(k) * 100, -200, 300].iter().flat_map(|v| v.to_le_bytes()));
        buffer.extend([0, 0]);
        buffer.extend([0, 0, -127i8 as u8, 0]); // half a turn about z
        buffer.extend(1000i16.to_le_bytes().repeat(3));
        buffer.extend((65_535 * u16::from(k)).to_le_bytes());
        buffer.extend([1.0f32, -2.0, 0.5].iter().flat_map(|v| v.to_le_bytes()));
    }
    let accessor = |offset: u32, component: u32, normalized: bool, shape: &str| {
        json!({ "bufferView": 0, "byteOffset": offset, "componentType": component, "normalized": normalized,
                "count": 2, "type": shape })
    };
    let document = json!({
        "asset": { "version": "2.0" },
        "extensionsUsed": ["KHR_gaussian_splatting", "KHR_mesh_quantization"],
        "extensionsRequired": ["KHR_mesh_quantization"],
        "meshes": [{ "primitives": [{
            "attributes": {
                "POSITION": 0,
                "KHR_gaussian_splatting:ROTATION": 1,
                "KHR_gaussian_splatting:SCALE": 2,
                "KHR_gaussian_splatting:OPACITY": 3,
                "KHR_gaussian_splatting:SH_DEGREE_0_COEF_0": 4,
                "KHR_gaussian_splatting:SH_DEGREE_1_COEF_0": 4,
                "KHR_gaussian_splatting:SH_DEGREE_1_COEF_1": 4,
                "KHR_gaussian_splatting:SH_DEGREE_1_COEF_2": 4,
            },
            "mode": 0,
            "extensions": { "KHR_gaussian_splatting": {
                "kernel": "ellipse", "colorSpace": "srgb_rec709_display" } },
            "extras": { "antialiased": "perhaps" },
        }]}],
        "accessors": [
            accessor(0, 5122, false, "VEC3"),
            accessor(8, 5120, true, "VEC4"),
            accessor(12, 5122, true, "VEC3"),
            accessor(18, 5123, true, "SCALAR"),
            accessor(20, 5126, false, "VEC3"),
        ],
        "bufferViews": [{ "buffer": 0, "byteOffset": 4, "byteLength": 64, "byteStride": 32 }],
        "buffers": [{ "byteLength": 68 }],
    });
    (document, buffer)
}

#[test]
fn files_of_other_programs_are_read() {
    let (document, buffer) = interleaved();
    let splats = read_bytes(&pack(&document, &buffer)).unwrap();
    assert_eq!(splats.means, [vec3(0.0, 200.0, 300.0), vec3(-100.0, 200.0, 300.0)]);
    assert_eq!(splats.rotations, [vec4(0.0, 0.0, 0.0, -1.0); 2]);
    assert!((splats.log_scales[1] - Vec3::splat((1000f32 / 32_767.0).ln())).length() < 1e-6);
    assert_eq!(splats.opacities, [-20.0, 20.0]);
    assert_eq!(splats.sh[..12], [1.0, -2.0, 0.5, -1.0, 2.0, -0.5, 1.0, -2.0, 0.5, -1.0, 2.0, -0.5]);
    assert!(!splats.antialiased);
}

#[test]
fn nodes_put_splats_in_their_places() {
    let splats = random_splats(1, 20, 2);
    let file = to_glb(&splats);
    let placed = |nodes: Value, roots: Value| {
        altered(&file, |document| {
            document["nodes"] = nodes;
            document["scenes"] = json!([{}, { "nodes": roots }]);
            document["scene"] = json!(1);
        })
    };
    let half = std::f64::consts::FRAC_1_SQRT_2;
    // Twice as large, a quarter of a turn about y, then 5 to glTF's left, and one that stays.
    let turned = json!([
        { "children": [2], "translation": [5.0, 0.0, 0.0], "rotation": [0.0, half, 0.0, half] },
        { "mesh": 0 },
        { "mesh": 0, "scale": [2.0, 2.0, 2.0] },
        { "mesh": 0, "translation": [1.0, 1.0, 1.0] },
    ]);
    let two = read_bytes(&placed(turned, json!([1, 0]))).unwrap();
    assert_eq!(two.len(), 40);
    assert_eq!(two.means[..20], splats.means);
    let mut moved = splats.clone();
    // About y up by a quarter of a turn is about y down by one the other way.
    let turn = nalgebra::UnitQuaternion::from_euler_angles(0.0, -std::f64::consts::FRAC_PI_2, 0.0);
    moved.transform(2.0, &turn, &nalgebra::Vector3::new(-5.0, 0.0, 0.0)).unwrap();
    let mut second = two;
    second.retain(|i| i >= 20);
    assert_close(&moved, &second);
    // The same as one matrix, column by column.
    let matrix = json!([{ "mesh": 0, "matrix": [0, 0, -2, 0, 0, 2, 0, 0, 2, 0, 0, 0, 5, 0, 0, 1] }]);
    assert_close(&moved, &read_bytes(&placed(matrix, json!([0]))).unwrap());
    // Without scenes and without nodes.
    let bare = altered(&file, |document| {
        document["nodes"] = json!([]);
        document["scenes"] = json!([]);
    });
    assert_eq!(read_bytes(&bare).unwrap().means, splats.means);

    for (nodes, expected) in [
        (json!([{ "mesh": 0, "scale": [1.0, 1.0, 1.1] }]), "distorts"),
        (json!([{ "mesh": 0, "scale": [-1.0, 1.0, 1.0] }]), "distorts"),
        (json!([{ "mesh": 0, "scale": [0.0, 0.0, 0.0] }]), "distorts"),
        (json!([{ "mesh": 0, "matrix": [1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1] }]), "distorts"),
        (json!([{ "mesh": 0, "rotation": [0, 0, 0, 0] }]), "distorts"),
        (json!([{ "mesh": 0, "translation": [1e300, 0, 0] }]), "too far away"),
        (json!([{ "mesh": 0, "children": [0] }]), "in two places"),
        (json!([{ "children": [1, 1] }, { "mesh": 0 }]), "in two places"),
        (json!([{ "children": [7] }]), "no node 7"),
        (json!([{ "mesh": 3 }]), "no mesh 3"),
        (json!([{}]), "has no primitive with"),
    ] {
        let message = refusal(&placed(nodes.clone(), json!([0])));
        assert!(message.contains(expected), "{nodes}: {message}");
    }
}

#[test]
fn primitives_are_joined() {
    let (mut document, buffer) = interleaved();
    let mut second = document["meshes"][0]["primitives"][0].clone();
    for k in 0..3 {
        let name = format!("KHR_gaussian_splatting:SH_DEGREE_1_COEF_{k}");
        second["attributes"].as_object_mut().unwrap().remove(&name);
    }
    // A mesh of something else does not disturb.
    let triangles = json!({ "attributes": { "POSITION": 77 } });
    document["meshes"][0]["primitives"].as_array_mut().unwrap().extend([triangles, second]);
    let splats = read_bytes(&pack(&document, &buffer)).unwrap();
    splats.check().unwrap();
    assert_eq!((splats.len(), splats.sh_degree), (4, 1));
    assert_eq!(splats.means[..2], splats.means[2..]);
    assert_eq!(splats.sh[36..39], [1.0, -2.0, 0.5]);
    assert!(splats.sh[39..48].iter().all(|value| *value == 0.0));
}

#[test]
fn what_the_format_cannot_hold_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.glb");
    let kind = |splats: &Splats| splats.write_glb(&path).unwrap_err().kind();
    assert_eq!(kind(&Splats::with_capacity(0, 3)), ErrorKind::InvalidArgument);
    let mut spoilt = random_splats(1, 10, 1);
    spoilt.sh[57] = f32::NAN;
    assert_eq!(kind(&spoilt), ErrorKind::InvalidFile);
    spoilt.opacities.pop();
    assert_eq!(kind(&spoilt), ErrorKind::InvalidFile);
    assert!(!path.exists());
}

#[test]
fn hostile_files_are_refused() {
    let (document, buffer) = interleaved();
    let good = pack(&document, &buffer);
    read_bytes(&good).unwrap();
    let with = |place: &str, value: Value| {
        altered(&good, |document| {
            let (parent, name) = place.rsplit_once('/').unwrap();
            document.pointer_mut(parent).unwrap()[name] = value;
        })
    };
    let splatting = "/meshes/0/primitives/0/extensions/KHR_gaussian_splatting";
    let attribute = |name: &str| format!("/meshes/0/primitives/0/attributes/{name}");
    let mut cases = vec![
        (b"glTX".to_vec(), "no .glb file"),
        (Vec::new(), "no .glb file"),
        (good[..10].to_vec(), "within its header"),
        (good[..40].to_vec(), "it ends before"),
        (good[..good.len() - 1].to_vec(), "it ends before"),
        ([&good[..], &[0]].concat(), "more bytes follow"),
        ([&good[..4], &[1], &good[5..]].concat(), "version 1"),
        ([&good[..12], &[255; 4], &good[16..]].concat(), "longer than the file"),
        ([&good[..16], b"BIN\0", &good[20..]].concat(), "no JSON"),
        ([&good[..20], b"!", &good[21..]].concat(), "description is damaged"),
        (with("/extensionsRequired", json!(["EXT_meshopt_compression"])), "EXT_meshopt_compression"),
        (with("/buffers/0/uri", json!("scene.bin")), "another file"),
        (with("/buffers/0/byteLength", json!(67)), "beyond the end"),
        (with("/buffers/0/byteLength", json!(u64::MAX)), "beyond the end"),
        (with("/bufferViews/0/buffer", json!(1)), "another file"),
        (with("/bufferViews/0/byteOffset", json!(u64::MAX)), "beyond the end"),
        (with("/bufferViews/0/byteStride", json!(33)), "beyond the end"),
        (with("/bufferViews/0/byteStride", json!(0)), "overlaps"),
        (with("/bufferViews/0/extensions", json!({ "EXT_a": {} })), "packed by the extension"),
        (with("/accessors/0/count", json!(u64::MAX)), "beyond the end"),
        (with("/accessors/0/count", json!(0)), "no values"),
        (with("/accessors/0/count", json!(1)), "same length"),
        (with("/accessors/0/count", json!(-1)), "description is damaged"),
        (with("/accessors/0/byteOffset", json!(1u64 << 40)), "beyond the end"),
        (with("/accessors/0/bufferView", json!(null)), "no values in the file"),
        (with("/accessors/0/bufferView", json!(1)), "no buffer view"),
        (with("/accessors/0/sparse", json!({ "count": 1 })), "sparse"),
        (with("/accessors/0/type", json!("VEC4")), "instead of VEC3"),
        (with("/accessors/0/componentType", json!(5125)), "unknown type 5125"),
        (with(&attribute("POSITION"), json!(99)), "no accessor"),
        (with(&attribute("KHR_gaussian_splatting:SH_DEGREE_3_COEF_0"), json!(4)), "SH_DEGREE_2_COEF_0"),
        (with("/meshes/0/primitives/0/mode", json!(4)), "mode"),
        (with(&format!("{splatting}/kernel"), json!("cube")), "kernel"),
        (with(&format!("{splatting}/colorSpace"), json!("lin_rec709_display")), "colour space"),
    ];
    let compressed = json!({ "KHR_gaussian_splatting_compression_spz_2": { "bufferView": 0 } });
    cases.push((with(&format!("{splatting}/extensions"), compressed), "compression_spz_2"));
    // Where the scales of the two splats are.
    for (at, expected) in [(16, "negative"), (48, "splat 1 of a primitive is negative")] {
        let mut buffer = buffer.clone();
        buffer[at..at + 2].copy_from_slice(&(-1i16).to_le_bytes());
        cases.push((pack(&document, &buffer), expected));
    }
    let mut infinite = buffer.clone();
    infinite[24..28].copy_from_slice(&f32::INFINITY.to_le_bytes());
    cases.push((pack(&document, &infinite), "colour of splat 0 of a primitive is not finite"));
    cases.push((pack(&json!({ "asset": " ".repeat(3 << 20) }), &[]), "describes its scene in"));
    for (bytes, expected) in cases {
        let message = refusal(&bytes);
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

/// A small file in which one mesh stands in many places.
#[test]
fn what_becomes_far_more_than_the_file_is_refused() {
    let file = to_glb(&random_splats(1, 1000, 3));
    let many = |count: usize| {
        altered(&file, |document| {
            document["nodes"] = json!(vec![json!({ "mesh": 0 }); count]);
            document["scenes"][0]["nodes"] = json!((0..count).collect::<Vec<_>>());
        })
    };
    // 64 MB are read of any file.
    assert_eq!(read_bytes(&many(280)).unwrap().len(), 280_000);
    assert!(refusal(&many(300)).contains("cannot hold"));
}

/// Thousands of nodes, all with one mesh of thousands of primitives: tens of millions of parts, by a description of a megabyte.
#[test]
fn what_many_nodes_make_of_many_primitives_is_counted_first() {
    let (mut document, buffer) = interleaved();
    let primitive = document["meshes"][0]["primitives"][0].clone();
    document["meshes"][0]["primitives"] = json!(vec![primitive; 1000]);
    document["nodes"] = json!(vec![json!({ "mesh": 0 }); 40_000]);
    // Opened by every node they would take tens of gigabytes.
    assert!(refusal(&pack(&document, &buffer)).contains("cannot hold"));
    // What is no more than its size is made, in the order of the nodes.
    document["meshes"][0]["primitives"].as_array_mut().unwrap().truncate(3);
    document["nodes"] = json!([{ "mesh": 0 }, { "mesh": 0, "translation": [0, 0, 5] }]);
    let splats = read_bytes(&pack(&document, &buffer)).unwrap();
    assert_eq!(splats.len(), 12);
    let moved = splats.means[6..].iter().zip(&splats.means[..6]);
    assert!(moved.into_iter().all(|(to, from)| (*to - *from - vec3(0.0, 0.0, 5.0)).length() < 1e-3));
}

#[test]
fn altered_files_never_panic() {
    let mut random = Random::new(1);
    let (document, buffer) = interleaved();
    for bytes in [to_glb(&random_splats(2, 20, 1)), pack(&document, &buffer)] {
        for _ in 0..2000 {
            let mut altered = bytes.clone();
            for _ in 0..1 + random.below(3) {
                let at = 20 + random.below(bytes.len() - 20);
                // Digits, most often: numbers of accessors, sizes, counts.
                altered[at] = match random.below(3) {
                    0 => random.next_u64() as u8,
                    _ => b'0' + random.below(10) as u8,
                };
            }
            if let Ok(splats) = read_bytes(&altered) {
                splats.check().unwrap();
                assert_eq!(splats.first_not_finite(), None);
            }
        }
    }
}

fn interop(folder: &Path, splats: &Splats) -> bool {
    splats.write_ply(&folder.join("ours.ply")).unwrap();
    crate::interop::run("node", "scene_formats.mjs", &[folder.to_str().unwrap(), "glb"])
}

/// A scene without any symmetry: its place, shape and colours must be the same in the file that another program made of it.
#[test]
fn splat_transform_writes_the_same_scene() {
    let folder = tempfile::tempdir().unwrap();
    let mut splats = random_splats(12, 300, 3);
    splats.means.iter_mut().for_each(|mean| *mean += vec3(5.0, -3.0, 11.0));
    if !interop(folder.path(), &splats) {
        return;
    }
    let theirs = Splats::read(&folder.path().join("transform.glb")).unwrap();
    assert_close(&splats, &theirs);
}
