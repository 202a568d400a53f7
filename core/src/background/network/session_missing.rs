//! What stands in for a model where the library was built without the feature `background`.

use crate::error::{Error, ErrorKind};

/// Cannot be had.
pub(super) enum Session {}

impl Session {
    /// Says that this library cannot run models.
    pub(super) fn open(_: Vec<u8>, _: impl Fn(String) -> Error) -> crate::Result<Self> {
        let message = "this library was built without the network that finds the object";
        Err(Error::new(ErrorKind::Unsupported, message)
            .hint("build it with the feature `background`, or give masks of your own"))
    }

    /// Never called: there is no value of this type.
    pub(super) fn with_threads(&self, _: usize) -> Self {
        match *self {}
    }

    /// Never called: there is no value of this type.
    pub(super) fn run(&self, _: [usize; 4], _: Vec<f32>) -> Result<([usize; 4], Vec<f32>), String> {
        match *self {}
    }
}
