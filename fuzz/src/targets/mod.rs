//! What is tried, one file each.

pub mod archive;
pub mod block_list;
pub mod camera_data;
pub mod checkpoint;
pub mod colmap;
pub mod exif;
pub mod glb;
pub mod pictures;
pub mod ply;
pub mod probe;
pub mod range;
pub mod signed_address;
pub mod sog;
pub mod spz;
pub mod tags;

use libreconstruct::splats::Splats;

/// What holds of every scene that was read.
fn check_scene(splats: &Splats) {
    splats.check().expect("a scene that was read has arrays that belong together");
    let finite = splats.means.iter().all(|v| v.is_finite())
        && splats.log_scales.iter().all(|v| v.is_finite())
        && splats.rotations.iter().all(|v| v.is_finite() && (v.length() - 1.0).abs() < 1e-5)
        && splats.opacities.iter().all(|v| v.is_finite())
        && splats.sh.iter().all(|v| v.is_finite());
    assert!(finite, "a scene that was read is not finite");
}
