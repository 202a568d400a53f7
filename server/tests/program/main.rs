//! The real program, from its command line. One test program, so that all share the captures, which take long to film.

#![allow(clippy::unwrap_used)] // a test may panic

#[path = "../common/mod.rs"]
mod common;

mod background;
mod errors;
mod operations;
mod packaging;
mod readme;
mod resume;
mod run;
mod scale;
