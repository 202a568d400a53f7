//! Masks of the object in every picture, on which all views agree: what `--remove-background` is done with.
//!
//! ```text
//! frames ─ network, frame_masks ─▶ a map for every frame
//!        ─ object_poses ─▶ SparseModel ─ camera::undistort ─▶ PINHOLE frames
//!        ─ quick_scene ─ labelling, support_plane ─▶ which Gaussians belong to the object
//!        ─ evidence, colours ─▶ what each pixel of each view says
//!        ─ occlusion ─▶ where a thing before the object hides it
//!        ─ solid, pieces, consensus, agreement ─▶ the object as one solid in space, and its outline in every view
//!        ─ shown, outlines, local_colours ─▶ where it ends by the picture of each view
//!        ─ views, guided_filter, floor, mask_making ─▶ a mask for every PINHOLE frame
//! ```
//!
//! In: frames, and the network's weights ([`find_model`]) or masks of the user's own. Out: `masks/` beside the
//! undistorted pictures, which training takes as their alpha, `masks_hidden/` where other things hide the object, and a
//! contact sheet. Masks ([`crate::masks`]) are 8-bit grey, 255 = object. Everything computes on the current rayon pool;
//! results do not depend on its number of threads.

mod agreement;
mod colours;
mod consensus;
mod evidence;
mod finished_scene;
mod floor;
mod frame_masks;
mod guided_filter;
mod labelling;
mod local_colours;
mod mask_making;
mod network;
mod object_point;
mod object_poses;
mod occlusion;
mod outlines;
mod outside;
mod pieces;
mod pointing;
mod quick_scene;
mod sampled_maps;
mod sheet;
mod shown;
mod solid;
mod support_plane;
#[cfg(test)]
mod tests;
#[cfg(feature = "service")]
mod usable_weights;
mod views;
mod weights;

pub use finished_scene::FinishedScene;
pub use frame_masks::{FrameMasks, MaskOptions, WIDEST_FLOOR};
pub use mask_making::{MASKS, MaskReport, mask_dataset, mask_frames};
pub use network::{NETWORK_SIDE, SaliencyNetwork};
pub use object_point::ObjectPoint;
pub use object_poses::{ObjectPoses, PosesFrom, reconstruct_object};
pub use outside::ObjectOutline;
#[cfg(feature = "service")]
pub(crate) use usable_weights::check_model;
pub use weights::{MODEL_FILE, MODEL_SHA256, MODEL_VARIABLE, find_model, set_model_place};
