//! The Python face: a thin extension module, `libreconstruct._native`. What users import is the typed package around
//! it in `python/libreconstruct`.

use pyo3::prelude::*;

/// The functions that the typed package builds on.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    /// The version of the engine.
    #[pyfunction]
    fn version() -> &'static str {
        libreconstruct::VERSION
    }
}
