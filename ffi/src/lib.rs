//! The C face. `include/reconstruct.h` is its manual; it is made from this crate's documentation comments, one file a
//! chapter (`tests/header.rs`), so they are written for readers of C.
//!
//! What holds for every function, and where it is made so:
//!
//! - No panic crosses the border: [`entry`].
//! - No pointer is followed before it was looked at, and outputs are written only on success: [`argument`].
//! - Handles are boxes that begin with a mark of their type, so that a wrong one is refused: [`handle`].
//! - What the engine reports becomes an `rc_error`: [`error`].
//!
//! The one thing that cannot be checked is the caller's promise that a pointer which is not NULL points to what the
//! header says. Every `unsafe` block of the exported functions rests on it and on nothing else.

#![allow(non_camel_case_types, reason = "the names are those of the C interface")]
#![allow(clippy::missing_safety_doc, reason = "the header's front chapter states it once for all functions")]

mod argument;
mod artifact;
mod cancel;
mod engine;
mod entry;
mod error;
mod event;
mod handle;
mod job;
mod keys;
mod list;
mod log;
mod model;
mod reconstruct;
mod renderer;
mod scene;
mod sfm;
mod submit;
mod text;
mod upload;
mod version;
mod work;
mod worker;

pub use artifact::*;
pub use cancel::*;
pub use engine::*;
pub use error::*;
pub use event::*;
pub use job::*;
pub use keys::*;
pub use list::*;
pub use log::*;
pub use model::*;
pub use reconstruct::*;
pub use renderer::*;
pub use scene::*;
pub use sfm::*;
pub use submit::*;
pub use text::*;
pub use upload::*;
pub use version::*;
pub use worker::*;
