//! The Python face: a thin extension module, `libreconstruct._native`. What users import is the typed package around
//! it in `python/libreconstruct`.
//!
//! Rules: every call that can take a millisecond runs without the GIL (`work`); arrays are handed over without a copy
//! (`array`); structured values travel as JSON with the names of the REST interface, so that both kinds of services look
//! the same from Python; a core error becomes the exception of its kind (`error`).

mod array;
mod engine;
mod error;
mod model;
mod pictures;
mod reconstruct;
mod sfm;
mod splats;
mod trainer;
mod upkeep;
mod view;
mod work;

use pyo3::prelude::*;

/// What the typed package builds on.
#[pymodule(gil_used = true)]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::array::Array;
    #[pymodule_export]
    use crate::engine::{Blob, Engine};
    #[pymodule_export]
    use crate::error::error_kinds;
    #[pymodule_export]
    use crate::model::SparseModel;
    #[pymodule_export]
    use crate::pictures::{encode_png, jpeg_to_png};
    #[pymodule_export]
    use crate::reconstruct::{devices, preset, reconstruct};
    #[pymodule_export]
    use crate::sfm::{extract_frames, load_frames, sfm};
    #[pymodule_export]
    use crate::splats::Splats;
    #[pymodule_export]
    use crate::trainer::Trainer;
    #[pymodule_export]
    use crate::view::look_at;
    #[pymodule_export]
    use crate::work::{num_threads, set_num_threads};

    /// The version of the engine.
    #[pyfunction]
    fn version() -> &'static str {
        libreconstruct::VERSION
    }

    /// Where the weights of the mask model are, for when they are in none of the usual places.
    #[pyfunction]
    fn set_mask_model_place(path: std::path::PathBuf) {
        libreconstruct::background::set_model_place(path);
    }

    #[pymodule_init]
    fn init() {
        crate::error::log_to_stderr();
    }
}
