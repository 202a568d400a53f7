//! What crosses crates: the synthetic capture generator, the measures against its known truth, and helpers of the
//! end-to-end tests.

pub mod alignment;
pub mod cost;
pub mod drawn_captures;
pub mod drawn_masks;
mod exit_code;
pub mod growth;
pub mod judgements;
pub mod masks;
pub mod object_scene;
pub mod pose_error;
pub mod prerequisites;
pub mod risk;
pub mod synthetic;

pub use exit_code::exit_code;
