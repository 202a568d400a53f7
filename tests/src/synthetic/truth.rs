//! The known truth beside a capture, in the format of the pose files that real captures come with.

use std::path::Path;

use libreconstruct::camera::Pose;
use libreconstruct::{Error, Result};
use serde::Serialize;
use serde_json::json;

use super::CaptureOptions;

/// A tag in the scene.
#[derive(Debug, Clone, Serialize)]
pub(super) struct TagTruth {
    pub(super) id: u32,
    /// Side of the inner white square, metres.
    pub(super) size: f64,
    /// Its corners, world, metres, in the order of AprilTag's detections; those of a bent print are no square.
    pub(super) corners: [[f64; 3]; 4],
}

pub(super) fn write(
    folder: &Path,
    options: &CaptureOptions,
    poses: &[Pose],
    tags: &[TagTruth],
) -> Result<()> {
    let camera = options.camera();
    let (fx, fy) = camera.focal();
    let centre = camera.principal_point();
    let frames: Vec<_> = poses
        .iter()
        .enumerate()
        .map(|(k, pose)| {
            let m = pose.inverse().to_matrix4();
            let rows: Vec<[f64; 4]> = (0..4).map(|r| std::array::from_fn(|c| m[(r, c)])).collect();
            json!({
                "file": format!("{k:06}"), "width": options.width, "height": options.height,
                "fx": fx, "fy": fy, "cx": centre.x, "cy": centre.y, "k1": options.distortion,
                "k2": 0, "p1": 0, "p2": 0, "c2w": rows,
            })
        })
        .collect();
    let mut poses = json!({
        "convention": "c2w is a row-major 4x4 camera-to-world matrix; x right, y down, z forward",
        "units": "metres",
        "pixel_origin": "the centre of the top-left pixel is (0.5, 0.5)",
        "source": "rendered: exact",
        "num_frames": frames.len(),
        "frames": frames,
    });
    if options.panorama {
        // All directions are seen, and the poses are those of the front.
        poses["projection"] = json!("equirectangular");
        for frame in poses["frames"].as_array_mut().into_iter().flatten().filter_map(|f| f.as_object_mut()) {
            for of_lens in ["fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2"] {
                frame.remove(of_lens);
            }
        }
    }
    save(&folder.join("poses.json"), &poses)?;
    save(&folder.join("capture.json"), &json!({ "options": options, "tags": tags }))
}

fn save(path: &Path, value: &serde_json::Value) -> Result<()> {
    let text = format!("{value:#}\n");
    std::fs::write(path, text).map_err(|e| Error::io("write", path, e))
}
