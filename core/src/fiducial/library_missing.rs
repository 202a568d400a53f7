//! What stands in for the C library where this one was built without the feature `tags`: everything says so.

use image::GrayImage;

use super::found::Found;
use crate::error::{Error, ErrorKind, Result};

fn missing() -> Error {
    Error::new(ErrorKind::Unsupported, "this library was built without the detector of AprilTags")
        .hint("build it with the feature `tags`")
}

/// Cannot be had.
pub(super) enum Family {}

impl Family {
    pub(super) fn new() -> Result<Self> {
        Err(missing())
    }

    /// Never called: there is no value of this type.
    pub(super) fn modules(&self, _: u32) -> Option<(usize, Vec<bool>)> {
        match *self {}
    }
}

/// Cannot be had.
pub(super) struct Search {
    pub(super) family: Family,
}

impl Search {
    /// # Errors
    /// [`ErrorKind::Unsupported`], always.
    pub(super) fn new() -> Result<Self> {
        Err(missing())
    }

    /// Never called: there is no value of this type.
    pub(super) fn tags(&mut self, _: &mut GrayImage) -> Vec<Found> {
        match self.family {}
    }
}
