//! What a model is worth, without knowing the truth: how far off its poses are expected to be, and what speaks against
//! it. `docs/verdict.md` says what is promised, and how well it was kept.
//!
//! ```text
//! spread, residuals, pairs, joints, overlap, stillness, flatness, turning, zoom → gather (Evidence) → calibrated (errors) → judge → Verdict
//! ```
//!
//! No test sees everything: the spread knows noise and weak geometry, not a wrong world; pairs, joints and overlap know places
//! taken for others; stillness, flatness, turning and zoom know captures that are not what structure from motion assumes.

mod calibrated;
mod evidence;
mod flatness;
mod gather;
mod hinges;
mod joints;
mod judge;
mod overlap;
mod pairs;
mod residuals;
mod shown_steps;
mod spread;
mod statement;
mod stillness;
mod turning;
mod zoom;

pub use evidence::Evidence;
pub(crate) use gather::Judged;
pub(crate) use judge::judge;
pub use statement::{Doubt, FrameDoubt, Grade, Reason, Verdict};
