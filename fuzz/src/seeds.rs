//! The inputs to begin with, which lie in `corpus/`: small ones, of every form that each target knows.

use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use image::{DynamicImage, GrayImage, ImageFormat, Luma};
use libreconstruct::camera::{Camera, CameraModel, Image, Point2D, Point3D, Pose, SparseModel};
use libreconstruct::fiducial::{PRINTED_MODULES, modules};
use libreconstruct::fuzzing::{KEY, archive_of};
use libreconstruct::glam::{vec3, vec4};
use libreconstruct::splats::{Splats, SpzOptions, SpzVersion, sh_coefficients};
use sha2::{Digest, Sha256};

use super::targets::{archive, checkpoint, colmap, glb, signed_address, sog, tags};

/// Inputs of about a megabyte whose bytes take as much memory each as any do. Too large to be kept, and to be found: what is said
/// of memory holds for these, too.
pub fn dense() -> Vec<(&'static str, Vec<u8>)> {
    const ROWS: usize = 60_000;
    let ply = |format: &str, element: &str, names: &[String], row: &[u8]| {
        let properties: String = names.iter().map(|name| format!("property uchar {name}\n")).collect();
        let header = format!("ply\nformat {format} 1.0\nelement {element} {ROWS}\n{properties}end_header\n");
        [header.as_bytes(), &row.repeat(ROWS)].concat()
    };
    let owned = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<String>>();
    let vertex = owned(&VERTEX);
    let coloured: Vec<String> =
        vertex.iter().cloned().chain((0..45).map(|k| format!("f_rest_{k}"))).collect();
    let ranges: Vec<String> = ["x", "y", "z", "scale_x", "scale_y", "scale_z"]
        .iter()
        .flat_map(|name| [format!("min_{name}"), format!("max_{name}")])
        .collect();
    let words = b"0 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
    let model = |files: [String; 3]| files.map(String::into_bytes).join(colmap::CUT);
    let lines = |line: fn(usize) -> String| (0..ROWS).map(line).collect::<String>();
    let camera = || "1 SIMPLE_PINHOLE 1 1 1 0 0\n".to_owned();
    let mut points = SparseModel::default();
    for id in 0..ROWS as u64 / 3 {
        points
            .points
            .insert(id, Point3D { xyz: [0.0; 3].into(), rgb: [0; 3], error: 0.0, track: Vec::new() });
    }
    // 4.5 MB in as many kilobytes: as much as the bound on the memory of this target is for.
    let mut splats = GzEncoder::new(Vec::new(), Compression::default());
    let header = b"NGSP\x03\0\0\0\x70\x11\x01\0\x03\x0c\0\0"; // 70,000 of degree 3
    splats.write_all(&[&header[..], &vec![0; 70_000 * 65]].concat()).expect("a vector takes all");
    // As many splats as are read of any file, and four times as many pixels in each picture, all the same.
    let meta = r#"{"version":2,"count":1190000,"means":{"mins":[0,0,0],"maxs":[0,0,0],"files":["0","0"]},"scales":{"codebook":[0],"files":["0"]},"quats":{"files":["0"]},"sh0":{"codebook":[0],"files":["0"]}}"#;
    let mut pixels = Cursor::new(Vec::new());
    let opaque = image::RgbImage::new(2180, 2180);
    opaque.write_to(&mut pixels, ImageFormat::WebP).expect("a picture can be encoded");
    vec![
        ("sog", [meta.as_bytes(), &pixels.into_inner()].join(sog::CUT)),
        ("spz", splats.finish().expect("a vector takes all")),
        ("glb", format!("{{\"nodes\":[{}{{}}]}}", "{},".repeat(300_000)).into_bytes()),
        ("glb", format!("{{\"meshes\":[{}{{}}]}}", "{\"primitives\":[{}]},".repeat(40_000)).into_bytes()),
        ("glb", format!("{{\"scenes\":[{{\"nodes\":[{}0]}}]}}", "0,".repeat(400_000)).into_bytes()),
        ("glb", many_places()),
        ("ply", ply("binary_little_endian", "vertex", &vertex, &[0; 14])),
        ("ply", ply("binary_little_endian", "vertex", &coloured, &[0; 59])),
        ("ply", ply("ascii", "vertex", &vertex, words)),
        ("ply", ply("binary_little_endian", "chunk", &ranges, &[0; 12])),
        ("ply", ply("ascii", "vertex", &vertex, b"0 0 0 0 0 0 0 0 0 0 ")), // one line
        ("colmap_binary", colmap_files(&points, "bin")),
        (
            "colmap_text",
            model([lines(|k| format!("{k} SIMPLE_PINHOLE 1 1 1 0 0\n")), String::new(), String::new()]),
        ),
        ("colmap_text", model([camera(), lines(|k| format!("{k} 1 0 0 0 0 0 0 1 a\n\n")), String::new()])),
        (
            "colmap_text",
            model([camera(), "1 1 0 0 0 0 0 0 1 a\n".to_owned() + &"0 0 -1 ".repeat(ROWS), String::new()]),
        ),
        ("colmap_text", model([String::new(), String::new(), lines(|k| format!("{k} 0 0 0 0 0 0 0\n"))])),
        (
            "block_list",
            format!("<BlockList>{}</BlockList>", "<Latest>a</Latest>".repeat(50_000)).into_bytes(),
        ),
        ("probe", format!("{{\"streams\":[{}0]}}", "[],".repeat(ROWS)).into_bytes()),
        ("probe", format!("{{\"streams\":[{}0]}}", "0,".repeat(ROWS)).into_bytes()),
        ("probe", format!("{{{}\"a\":0}}", lines(|k| format!("\"{k:x}\":0,"))).into_bytes()),
        ("camera_data", format!("{{\"a\":[{}0]}}", "[],".repeat(20_000)).into_bytes()),
    ]
}

/// Half a megabyte of primitives in one mesh, and half a megabyte of nodes that show it: 80 million parts.
fn many_places() -> Vec<u8> {
    let own = |name: &str, accessor: u32| format!("\"KHR_gaussian_splatting:{name}\":{accessor}");
    let attributes = [
        "\"POSITION\":0".to_owned(),
        own("ROTATION", 1),
        own("SCALE", 0),
        own("OPACITY", 2),
        own("SH_DEGREE_0_COEF_0", 0),
    ]
    .join(",");
    let primitive = format!(
        "{{\"attributes\":{{{attributes}}},\"mode\":0,\"extensions\":{{\"KHR_gaussian_splatting\":{{}}}}}}"
    );
    let accessors = ["VEC3", "VEC4", "SCALAR"]
        .map(|shape| format!("{{\"bufferView\":0,\"componentType\":5121,\"count\":1,\"type\":\"{shape}\"}}"))
        .join(",");
    let json = format!(
        "{{\"meshes\":[{{\"primitives\":[{}]}}],\"nodes\":[{}],\"accessors\":[{accessors}],\
         \"bufferViews\":[{{\"buffer\":0,\"byteLength\":16}}],\"buffers\":[{{\"byteLength\":16}}]}}",
        vec![primitive; 2000].join(","),
        vec!["{\"mesh\":0}"; 40_000].join(",")
    );
    [json.as_bytes(), &[0; 16][..]].join(&glb::CUT)
}

/// Inputs with the names of their files.
pub type Inputs = Vec<(String, Vec<u8>)>;

/// The inputs of each target.
pub fn all() -> [(&'static str, Inputs); 16] {
    [
        ("ply", ply()),
        ("spz", spz()),
        ("glb", glb()),
        ("sog", sog()),
        ("colmap_binary", colmap("bin")),
        ("colmap_text", colmap("txt")),
        ("exif", exif()),
        ("archive", archives()),
        ("pictures", packed_pictures()),
        ("checkpoint", checkpoints()),
        ("probe", probe()),
        ("camera_data", camera_data()),
        ("tags", pictures()),
        ("block_list", block_list()),
        ("range", range()),
        ("signed_address", addresses()),
    ]
}

fn named<const N: usize>(inputs: [(&str, Vec<u8>); N]) -> Inputs {
    inputs.map(|(name, bytes)| (name.to_owned(), bytes)).to_vec()
}

/// Calls `write` with the path of a temporary file and gives what is in it then.
fn written(name: &str, write: impl FnOnce(&Path)) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(name);
    write(&path);
    fs::read(path).expect("what was written can be read")
}

fn scene(count: usize, degree: u32) -> Splats {
    let mut splats = Splats { antialiased: degree == 1, ..Splats::with_capacity(count, degree) };
    for k in 0..count {
        let v = k as f32;
        splats.means.push(vec3(v, 0.5 - v, 2.0 * v));
        splats.log_scales.push(vec3(-1.0, -2.0 - v, -3.0));
        splats.rotations.push(vec4(1.0, v, 0.0, 0.5).normalize());
        splats.opacities.push(v - 1.0);
    }
    splats.sh = (0..count * sh_coefficients(degree) * 3).map(|k| (k % 7) as f32 / 8.0).collect();
    splats
}

/// What a splat of a `.ply` file has at least.
const VERTEX: [&str; 14] = [
    "x", "y", "z", "f_dc_0", "f_dc_1", "f_dc_2", "opacity", "scale_0", "scale_1", "scale_2", "rot_0",
    "rot_1", "rot_2", "rot_3",
];

fn ply() -> Inputs {
    let written =
        |splats: Splats| written("a.ply", |path| splats.write_ply(path).expect("a scene can be written"));
    let header = |format: &str, kind: &str| {
        let properties: String = VERTEX.iter().map(|name| format!("property {kind} {name}\n")).collect();
        format!("ply\nformat {format} 1.0\ncomment antialiased 1\nelement vertex 2\n{properties}end_header\n")
    };
    let text = header("ascii", "double") + &"0.5 1 -2 1e-3 0 0 inf -5 -5 -inf 1 0 0 0\n".repeat(2);
    let mut big = header("binary_big_endian", "short").into_bytes();
    big.extend((0..28u16).flat_map(u16::to_be_bytes));
    named([
        ("empty", written(scene(0, 0))),
        ("degree_0", written(scene(2, 0))),
        ("degree_3", written(scene(1, 3))),
        ("text", text.into_bytes()),
        ("big_endian", big),
        ("packed", packed_ply()),
    ])
}

/// SuperSplat's packed form, with one splat.
fn packed_ply() -> Vec<u8> {
    let mut header = "ply\nformat binary_little_endian 1.0\nelement chunk 1\n".to_owned();
    for range in ["x", "y", "z", "scale_x", "scale_y", "scale_z", "r", "g", "b"] {
        header += &format!("property float min_{range}\nproperty float max_{range}\n");
    }
    header += "element vertex 1\n";
    for word in ["position", "rotation", "scale", "color"] {
        header += &format!("property uint packed_{word}\n");
    }
    header += "element sh 1\n";
    (0..9).for_each(|k| header += &format!("property uchar f_rest_{k}\n"));
    let mut bytes = (header + "end_header\n").into_bytes();
    bytes.extend((0..18u8).flat_map(|k| f32::from(k % 2).to_le_bytes()));
    bytes.extend([0u32, 1 << 30, u32::MAX, 0x00ff_0080].iter().flat_map(|word| word.to_le_bytes()));
    bytes.extend(0..9);
    bytes
}

fn spz() -> Inputs {
    let written = |version, degree| {
        let options = SpzOptions { version, ..SpzOptions::default() };
        written("a.spz", |path| scene(3, degree).write_spz(path, &options).expect("a scene can be written"))
    };
    let content = |version: u8, rotation: usize| {
        let mut bytes = b"NGSP".to_vec();
        bytes.extend([version, 0, 0, 0, 2, 0, 0, 0, 1, 12, 1, 0]);
        let position = if version == 1 { 6 } else { 9 };
        bytes.extend((0..2 * (position + 1 + 3 + 3 + rotation + 9)).map(|k| k as u8));
        bytes
    };
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(&content(1, 3)).expect("a vector takes all");
    named([
        ("version_1", packed.finish().expect("a vector takes all")),
        ("version_2", written(SpzVersion::V2, 0)),
        ("version_3", written(SpzVersion::V3, 2)),
        ("version_4", written(SpzVersion::V4, 1)),
        ("version_4_without_sh", written(SpzVersion::V4, 0)),
        ("content_1", content(1, 3)),
        ("content_2", content(2, 3)),
        ("content_3", content(3, 4)),
    ])
}

fn glb() -> Inputs {
    let written =
        |degree| written("a.glb", |path| scene(3, degree).write_glb(path).expect("a scene can be written"));
    // Integers, one view for all, nodes in nodes.
    let accessor = |offset: u32, kind: u32, shape: &str| {
        format!(
            r#"{{"bufferView":0,"byteOffset":{offset},"componentType":{kind},"normalized":true,"count":2,"type":"{shape}"}}"#
        )
    };
    let accessors = [
        accessor(0, 5126, "VEC3"),
        accessor(12, 5120, "VEC4"),
        accessor(16, 5122, "VEC3"),
        accessor(22, 5121, "SCALAR"),
        accessor(24, 5126, "VEC3"),
    ];
    let names = ["ROTATION", "SCALE", "OPACITY", "SH_DEGREE_0_COEF_0"];
    let names: String =
        (1..).zip(names).map(|(k, name)| format!(r#","KHR_gaussian_splatting:{name}":{k}"#)).collect();
    let json = format!(
        r#"{{"scenes":[{{"nodes":[0]}}],"nodes":[{{"children":[1],"scale":[2,2,2]}},{{"mesh":0,"rotation":[0,0.6,0,0.8],"translation":[1,2,3]}}],"meshes":[{{"primitives":[{{"mode":0,"attributes":{{"POSITION":0{names}}},"extensions":{{"KHR_gaussian_splatting":{{"kernel":"ellipse","colorSpace":"srgb_rec709_display"}}}},"extras":{{"antialiased":true}}}}]}}],"accessors":[{}],"bufferViews":[{{"buffer":0,"byteLength":72,"byteStride":36}}],"buffers":[{{"byteLength":72}}]}}"#,
        accessors.join(",")
    );
    let buffer: Vec<u8> = (0..72).map(|k| k % 63).collect();
    named([
        ("degree_0", written(0)),
        ("degree_1", written(1)),
        ("degree_3", written(3)),
        ("content", [json.as_bytes(), &[glb::CUT], &buffer].concat()),
        ("integers", glb::pack(json.as_bytes(), &buffer)),
    ])
}

fn sog() -> Inputs {
    let written = |count: usize, degree| {
        written("a.sog", |path| scene(count, degree).write_sog(path).expect("a scene can be written"))
    };
    let picture = |width: u32, height: u32, alpha: u8| {
        let pixel = |x, y| image::Rgba([(x % 3) as u8, (y % 2) as u8, 0, alpha]);
        let mut bytes = Cursor::new(Vec::new());
        let picture = image::RgbaImage::from_fn(width, height, pixel);
        picture.write_to(&mut bytes, ImageFormat::WebP).expect("a picture can be encoded");
        bytes.into_inner()
    };
    let meta = r#"{"version":2,"count":5,"antialias":true,"means":{"mins":[-1,0,-2],"maxs":[1,0,2],"files":["0","1"]},"scales":{"codebook":[-3,-2,-1],"files":["2"]},"quats":{"files":["3"]},"sh0":{"codebook":[0,0.5,1],"files":["2"]},"shN":{"count":70,"bands":1,"codebook":[0,0.1,-0.1],"files":["4","5"]}}"#;
    let pictures = [
        picture(4, 2, 255),
        picture(4, 2, 9),
        picture(4, 2, 128),
        picture(8, 1, 253),
        picture(192, 2, 255),
        picture(8, 1, 0),
    ];
    let names = ["meta.json", "0", "1", "2", "3", "4", "5"];
    let parts: Vec<&[u8]> =
        std::iter::once(meta.as_bytes()).chain(pictures.iter().map(Vec::as_slice)).collect();
    let files: Vec<(&str, &[u8])> = names.into_iter().zip(parts.iter().copied()).collect();
    named([
        ("degree_0", written(2, 0)),
        ("degree_3", written(9, 3)),
        ("content", parts.join(sog::CUT)),
        ("deflated", zip(&files, true)),
    ])
}

/// The three files of a model, as an input.
fn colmap_files(model: &SparseModel, extension: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let made =
        if extension == "bin" { model.write_binary(folder.path()) } else { model.write_text(folder.path()) };
    made.expect("a model can be written");
    let file = |name: &str| fs::read(folder.path().join(name).with_extension(extension)).expect("its file");
    ["cameras", "images", "points3D"].map(file).join(colmap::CUT)
}

fn colmap(extension: &str) -> Inputs {
    let model = |camera_model: CameraModel, keypoints: u64| {
        let mut model = SparseModel::default();
        model.cameras.insert(1, Camera::from_focal(camera_model, 500.0, 640, 480));
        for (id, name) in [(1, "a.jpg"), (2, "sub/b c.png")] {
            let point = |k| Point2D { xy: [k as f64, 2.5].into(), point3d: (k > 0).then_some(k) };
            let points2d = (0..=keypoints).map(point).collect();
            let pose =
                Pose::look_at(&[f64::from(id), 0.0, -3.0].into(), &[0.0; 3].into(), &[0.0, -1.0, 0.0].into());
            let pose = pose.expect("a direction");
            model.images.insert(id, Image { name: name.to_owned(), camera_id: 1, pose, points2d });
        }
        for id in 1..=keypoints {
            let xyz = [0.5, 0.25, id as f64].into();
            let track = vec![(1, id as u32), (2, id as u32)];
            model.points.insert(id, Point3D { xyz, rgb: [9, 8, 7], error: 0.5, track });
        }
        model
    };
    let input = |model: &SparseModel| colmap_files(model, extension);
    named([
        ("empty", input(&SparseModel::default())),
        ("no_points", input(&model(CameraModel::SimplePinhole, 0))),
        ("pinhole", input(&model(CameraModel::Pinhole, 2))),
        ("opencv", input(&model(CameraModel::OpenCv, 1))),
    ])
}

/// Orientation, focal length, its equivalent, and the density of pixels, as TIFF.
fn tiff(big_endian: bool) -> Vec<u8> {
    let u16 = |v: u16| if big_endian { v.to_be_bytes() } else { v.to_le_bytes() };
    let u32 = |v: u32| if big_endian { v.to_be_bytes() } else { v.to_le_bytes() };
    let entry = |tag: u16, kind: u16, value: u32| -> Vec<u8> {
        // A short stands at the beginning of the four bytes.
        let value = if kind == 3 { [u16(value as u16), [0; 2]].concat() } else { u32(value).to_vec() };
        [&u16(tag)[..], &u16(kind), &u32(1), &value].concat()
    };
    let start = if big_endian { b"MM" } else { b"II" };
    // The header, the first directory with two entries, and then that of the photograph.
    let (first, second) = (8, 8 + 2 + 2 * 12 + 4);
    let values = second + 2 + 6 * 12 + 4;
    let mut bytes = [&start[..], &u16(42), &u32(first), &u16(2)].concat();
    bytes.extend([entry(0x0112, 3, 6), entry(0x8769, 4, second), u32(0).to_vec(), u16(6).to_vec()].concat());
    bytes.extend([entry(0x920a, 5, values), entry(0xa002, 4, 4032), entry(0xa003, 4, 3024)].concat());
    bytes.extend([entry(0xa20e, 5, values + 8), entry(0xa210, 3, 3), entry(0xa405, 3, 26)].concat());
    bytes.extend([u32(0), u32(71), u32(10), u32(4000), u32(1)].concat());
    bytes
}

fn exif() -> Inputs {
    let inside = [&b"Exif\0\0"[..], &tiff(false)].concat();
    let length = (inside.len() as u16 + 2).to_be_bytes();
    let jpeg = [&[0xff, 0xd8, 0xff, 0xe1][..], &length, &inside, &[0xff, 0xd9]].concat();
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut crc = flate2::Crc::new();
    let chunk = [&b"eXIf"[..], &tiff(true)].concat();
    crc.update(&chunk);
    png.extend([&(chunk.len() as u32 - 4).to_be_bytes()[..], &chunk, &crc.sum().to_be_bytes()].concat());
    let mut webp = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\x08\0\0\0\0\0\0\0\0\0EXIF".to_vec();
    webp.extend((tiff(false).len() as u32).to_le_bytes());
    webp.extend(tiff(false));
    let length = (webp.len() as u32 - 8).to_le_bytes();
    webp[4..8].copy_from_slice(&length);
    named([
        ("little_endian", tiff(false)),
        ("big_endian", tiff(true)),
        ("jpeg", jpeg),
        ("png", png),
        ("webp", webp),
    ])
}

fn archives() -> Inputs {
    let manifest = |outputs: &str| {
        let cost = r#"{"seconds":1.0,"cpu_seconds":1.0}"#;
        format!(r#"{{"version":"1","key":"{KEY}","outputs":[{outputs}],"report":null,"cost":{cost}}}"#)
    };
    let one = manifest(r#"["frames/frame_000001.jpg",3]"#);
    let two = manifest(r#"["sparse/0/cameras.bin",0],["sparse/0/images.bin",5]"#);
    let above = manifest(r#"["frames/../../a.jpg",3]"#);
    let parts = |parts: &[&[u8]]| parts.join(archive::CUT);
    let picture: &[(&Path, &[u8])] = &[(Path::new("frames/frame_000001.jpg"), b"abc")];
    named([
        ("stored", archive_of(one.as_bytes(), picture).expect("a short name")),
        ("frames", parts(&[one.as_bytes(), b"frames/frame_000001.jpg", b"abc"])),
        ("model", parts(&[two.as_bytes(), b"sparse/0/cameras.bin", b"", b"sparse/0/images.bin", b"abcde"])),
        ("above", parts(&[above.as_bytes(), b"frames/../../a.jpg", b"abc"])),
        ("empty", parts(&[manifest("").as_bytes()])),
    ])
}

fn packed_pictures() -> Inputs {
    let mut png = Cursor::new(Vec::new());
    let dot = DynamicImage::ImageLuma8(GrayImage::from_pixel(1, 1, Luma([9])));
    dot.write_to(&mut png, ImageFormat::Png).expect("a vector takes all");
    let png = png.into_inner();
    let three = [("1.png", &png[..]), ("a/2.png", &png), ("a/b/3.jpg", b"none")];
    named([
        ("stored", zip(&three, false)),
        ("deflated", zip(&three, true)),
        ("above", zip(&[three[0], three[1], ("../4.png", &png)], false)),
        ("grows", zip(&[three[0], three[1], ("4.png", &[0; 20_000])], true)),
        ("empty", zip(&[], false)),
    ])
}

/// A zip archive with these files.
pub fn zip(files: &[(&str, &[u8])], deflated: bool) -> Vec<u8> {
    let (mut bytes, mut table) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let mut crc = flate2::Crc::new();
        crc.update(content);
        let packed = if deflated {
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(content).and_then(|()| encoder.finish()).expect("a vector takes all")
        } else {
            content.to_vec()
        };
        // Version, flags, method, time and date; checksum and sizes; lengths of the name and of what may follow it.
        let mut about = [20u16, 0, if deflated { 8 } else { 0 }, 0, 0x21].map(u16::to_le_bytes).concat();
        about.extend([crc.sum(), packed.len() as u32, content.len() as u32].map(u32::to_le_bytes).concat());
        about.extend([name.len() as u16, 0].map(u16::to_le_bytes).concat());
        let place = bytes.len() as u32;
        bytes.extend([b"PK\x03\x04", &about[..], name.as_bytes(), &packed].concat());
        table.extend(
            [b"PK\x01\x02\x14\x03", &about[..], &[0; 10], &place.to_le_bytes(), name.as_bytes()].concat(),
        );
    }
    let (count, start, length) = (files.len() as u16, bytes.len() as u32, table.len() as u32);
    bytes.extend(table);
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend([count, count].map(u16::to_le_bytes).concat());
    bytes.extend([length, start].map(u32::to_le_bytes).concat());
    bytes.extend([0, 0]);
    bytes
}

fn checkpoints() -> Inputs {
    let input = |splats: usize, degree: u32, statistics: bool| {
        let (options, dataset) = (checkpoint::OPTIONS, checkpoint::DATASET);
        let header = format!(
            "{{\"options\":\"{options}\",\"dataset\":\"{dataset}\",\"progress\":{{\"step\":17,\"initial_count\":2,\
             \"seconds\":1.5}},\"splats\":{splats},\"sh_degree\":{degree},\"exposures\":1,\"statistics\":{statistics}}}"
        );
        let mut bytes = b"LRTRAIN\n\x01\0\0\0".to_vec();
        bytes.extend((header.len() as u32).to_le_bytes());
        bytes.extend(header.bytes());
        let numbers = splats * (3 * (11 + 3 * sh_coefficients(degree)) + if statistics { 4 } else { 0 }) + 36;
        bytes.extend((0..numbers).flat_map(|k| (k as f32).to_le_bytes()));
        let sum = Sha256::digest(&bytes);
        bytes.extend(sum);
        bytes
    };
    named([("empty", input(0, 0, false)), ("degree_0", input(2, 0, true)), ("degree_2", input(1, 2, false))])
}

fn probe() -> Inputs {
    let plain = r#"{"streams":[{"index":0,"codec_name":"h264","codec_type":"video","width":1920,"height":1080,"sample_aspect_ratio":"1:1","field_order":"progressive","color_range":"tv","color_space":"bt709","color_transfer":"bt709","color_primaries":"bt709","r_frame_rate":"30/1","avg_frame_rate":"30000/1001","duration":"10.010000","nb_frames":"300","disposition":{"attached_pic":0}},{"index":1,"codec_name":"aac","codec_type":"audio"}],"format":{"nb_streams":2,"format_name":"mov,mp4,m4a,3gp,3g2,mj2","duration":"10.010000"}}"#;
    let turned = r#"{"streams":[{"index":1,"codec_name":"hevc","codec_type":"video","width":1440,"height":1080,"sample_aspect_ratio":"4:3","field_order":"tt","color_transfer":"smpte2084","avg_frame_rate":"60/1","duration":"4.5","disposition":{"attached_pic":0},"side_data_list":[{"side_data_type":"Display Matrix","displaymatrix":"\n00000000:            0       65536           0\n00000001:       -65536           0           0\n00000002:            0           0  1073741824\n","rotation":-90},{"side_data_type":"Stereo 3D","type":"2D"}]}],"format":{"format_name":"matroska,webm","duration":"4.5"}}"#;
    let spherical = r#"{"streams":[{"codec_name":"vp9","codec_type":"video","width":3840,"height":1920,"side_data_list":[{"side_data_type":"Spherical Mapping","projection":"equirectangular"}]}],"format":{}}"#;
    let cover =
        r#"{"streams":[{"codec_type":"video","codec_name":"mjpeg","disposition":{"attached_pic":1}}]}"#;
    named([
        ("plain.json", plain.into()),
        ("turned.json", turned.into()),
        ("spherical.json", spherical.into()),
        ("cover.json", cover.into()),
    ])
}

fn camera_data() -> Inputs {
    let camera = r#"{"position":{"x":1,"y":0,"z":-2.5},"lookAt":{"x":0,"y":0,"z":0},"up":{"x":0,"y":-1,"z":0},"cameraType":"orbital"}"#;
    let update =
        format!(r#"{{"title":" Garden ","public":true,"camera_data":{camera},"status":"Finished"}}"#);
    let reset = r#"{"title":null,"camera_data":null,"other":[1e6,{"a":"\u00e9"}]}"#;
    named([("camera.json", camera.into()), ("update.json", update.into()), ("reset.json", reset.into())])
}

/// A tag with `module` pixels for each of its modules, upright on white.
fn tag(id: u32, module: u32) -> GrayImage {
    let bits = modules(id).expect("a tag of that number");
    let side = (PRINTED_MODULES as u32 + 4) * module;
    GrayImage::from_fn(side, side, |x, y| {
        let cell = |v: u32| (v / module).wrapping_sub(2) as usize;
        let white = bits.get(cell(y)).and_then(|row| row.get(cell(x))).copied().unwrap_or(true);
        Luma([if white { 230 } else { 20 }])
    })
}

fn pictures() -> Inputs {
    let grey = |picture: &GrayImage| {
        let size = [picture.width() as u8, picture.height() as u8];
        [tags::PIXELS, &size, picture.as_raw()].concat()
    };
    let stored = |picture: DynamicImage, format| {
        let mut bytes = Cursor::new(Vec::new());
        picture.write_to(&mut bytes, format).expect("a picture can be written");
        bytes.into_inner()
    };
    let small = DynamicImage::from(tag(7, 4));
    named([
        ("tag", grey(&tag(0, 5))),
        ("noise", [tags::PIXELS, &[64, 48, 1, 200, 30, 255, 90, 17, 3]].concat()),
        ("tag.png", stored(small.clone(), ImageFormat::Png)),
        ("tag.jpg", stored(small.clone(), ImageFormat::Jpeg)),
        ("tag.webp", stored(small.to_rgb8().into(), ImageFormat::WebP)),
        ("deep.png", stored(DynamicImage::new_rgba16(33, 32), ImageFormat::Png)),
    ])
}

fn block_list() -> Inputs {
    let azure = "<?xml version='1.0' encoding='utf-8'?>\n<BlockList><Latest>MDAx</Latest>\n<Latest>MDAy</Latest>\
                 <Uncommitted>MDAz</Uncommitted></BlockList>";
    let odd = "\u{feff}<BlockList><!-- a --><Committed> a<!-- b -->b </Committed></BlockList>";
    let entity = "<!DOCTYPE a [<!ENTITY b \"c\">]><BlockList><Latest>&b;&amp;</Latest></BlockList>";
    named([
        ("azure.xml", azure.into()),
        ("odd.xml", odd.into()),
        ("empty.xml", "<BlockList/>".into()),
        ("entity.xml", entity.into()),
        ("data.xml", "<BlockList><Latest><![CDATA[a]]></Latest></BlockList>".into()),
    ])
}

fn range() -> Inputs {
    named([
        ("part", b"10000\nrange:bytes=0-499".to_vec()),
        ("suffix", b"10000\nrange:bytes=-500\nif-range:\"abc\"".to_vec()),
        ("open", b"10\nrange:bytes=9-\nif-range:Sun, 06 Nov 1994 08:49:37 GMT".to_vec()),
        ("several", b"10\nrange:bytes=0-1,5-6\nif-none-match:\"x\", W/\"abc\"".to_vec()),
        ("since", b"0\nrange:bytes=0-\nif-modified-since:Sun, 06 Nov 1994 08:49:36 GMT".to_vec()),
    ])
}

fn addresses() -> Inputs {
    let blob = "videos/6f1c2d3e-0000-4000-8000-000000000000.mp4";
    named([
        ("plain", signed_address::seed(blob, "")),
        ("named", signed_address::seed(blob, "Küche & Bad; \"1|2\".ply")),
        ("twice", b"a\nse=2000&se=2000&si=a&sig=AAAA".to_vec()),
        ("azure", b"a\ncomp=block&blockid=AA%3D%3D&se=2000&si=b&sig=AAAA&rscd=a%20b".to_vec()),
    ])
}
