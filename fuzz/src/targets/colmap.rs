//! COLMAP's sparse models. An input holds the three files, one after the other, with [`CUT`] between them. What is read has
//! references that lead somewhere, and reads as the same again when it is written.

use std::fs;

use libreconstruct::ErrorKind;
use libreconstruct::camera::SparseModel;

use super::super::scratch;

/// What stands between the files.
pub const CUT: &[u8] = b"--8<--";

pub fn binary(bytes: &[u8]) {
    read(bytes, "bin");
}

pub fn text(bytes: &[u8]) {
    read(bytes, "txt");
}

fn read(bytes: &[u8], extension: &str) {
    let folder = scratch::folder().join(extension);
    fs::create_dir_all(&folder).expect("a temporary folder can be made");
    let mut rest = bytes;
    for name in ["cameras", "images", "points3D"] {
        let at = rest.windows(CUT.len()).position(|window| window == CUT);
        let (file, after) = at.map_or((rest, &[][..]), |at| (&rest[..at], &rest[at + CUT.len()..]));
        fs::write(folder.join(name).with_extension(extension), file)
            .expect("a temporary file can be written");
        rest = after;
    }
    let model = match SparseModel::read(&folder) {
        Ok(model) => model,
        Err(error) => return assert_eq!(error.kind(), ErrorKind::InvalidFile, "{error}"),
    };
    for image in model.images.values() {
        assert!(model.cameras.contains_key(&image.camera_id));
        assert!(image.points2d.iter().filter_map(|p| p.point3d).all(|id| model.points.contains_key(&id)));
        assert!(image.pose.centre().iter().all(|v| v.is_finite()) || image.pose.translation.norm() > 1e150);
    }
    for (id, point) in &model.points {
        for (image, index) in &point.track {
            assert_eq!(model.images[image].points2d[*index as usize].point3d, Some(*id));
        }
    }
    let again = folder.join("again");
    let written = if extension == "bin" { model.write_binary(&again) } else { model.write_text(&again) };
    written.expect("what was read can be written");
    let back = SparseModel::read(&again).expect("what was written can be read");
    assert!(same(&back, &model), "what was written reads as something else");
}

/// Equal, where an error of infinity or a pose that is a last bit off count as equal.
fn same(a: &SparseModel, b: &SparseModel) -> bool {
    a.cameras == b.cameras
        && a.points == b.points
        && a.images.len() == b.images.len()
        && a.images.iter().zip(&b.images).all(|((i, a), (k, b))| {
            let turned = a.pose.rotation.coords - b.pose.rotation.coords;
            i == k
                && (&a.name, a.camera_id, &a.points2d) == (&b.name, b.camera_id, &b.points2d)
                && a.pose.translation == b.pose.translation
                && turned.norm() < 1e-15
        })
}
