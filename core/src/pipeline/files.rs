//! Names of what a reconstruction leaves in its folder.

/// Key frames.
pub const FRAMES: &str = "frames";
/// Contact sheet of the key frames.
pub const FRAMES_SHEET: &str = "frames.jpg";
/// COLMAP model of the frames.
pub const SPARSE: &str = "sparse";
/// Undistorted frames and their COLMAP model.
pub const UNDISTORTED: &str = "undistorted";
/// AprilTags in the frames, where their size was given.
pub const TAGS: &str = "tags.json";
/// Picture of the camera poses.
pub const POSES: &str = "poses.jpg";
/// Contact sheet of the masks, where the background was removed.
pub const MASKS_SHEET: &str = "masks.jpg";
/// The Gaussian scene.
pub const PLY: &str = "scene.ply";
/// The Gaussian scene, compressed.
pub const SPZ: &str = "scene.spz";
/// A picture of the scene.
pub const PREVIEW: &str = "preview.jpg";
/// Where a viewer starts.
pub const CAMERA: &str = "camera.json";
/// The scene from all sides.
pub const TURNTABLE: &str = "turntable.mp4";
/// Every figure.
pub const REPORT: &str = "report.json";

/// All of them.
pub(super) const ALL: [&str; 13] = [
    FRAMES,
    FRAMES_SHEET,
    SPARSE,
    UNDISTORTED,
    TAGS,
    POSES,
    MASKS_SHEET,
    PLY,
    SPZ,
    PREVIEW,
    CAMERA,
    TURNTABLE,
    REPORT,
];
