//! Arrays of the core as numpy sees them, without a copy: an object with NumPy's array interface (version 3), which
//! `numpy.asarray` turns into a view that keeps the object, and with it the memory, alive.

use std::any::Any;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// An element type of arrays.
pub(crate) trait Element: bytemuck::Pod + Send + Sync {
    /// NumPy's name of it.
    const TYPE: &'static str;
}

/// NumPy's name of a type in this machine's byte order.
macro_rules! element {
    ($type:ty, $name:literal) => {
        impl Element for $type {
            const TYPE: &'static str =
                if cfg!(target_endian = "little") { concat!("<", $name) } else { concat!(">", $name) };
        }
    };
}

element!(f32, "f4");
element!(f64, "f8");
element!(u32, "u4");
element!(u64, "u8");
impl Element for u8 {
    const TYPE: &'static str = "|u1";
}

/// Memory that numpy looks at. Internal.
#[pyclass(frozen, module = "libreconstruct._native")]
pub(crate) struct Array {
    address: usize,
    shape: Vec<usize>,
    element: &'static str,
    writable: bool,
    /// What owns the memory; it is not touched by Rust as long as it is shared.
    _owner: Box<dyn Any + Send + Sync>,
}

impl Array {
    /// A read-only view of values that `owner` keeps in place for as long as it lives (an `Arc` that nobody writes through).
    pub(crate) fn view<E: Element>(owner: impl Any + Send + Sync, values: &[E], shape: &[usize]) -> Self {
        debug_assert_eq!(values.len(), shape.iter().product::<usize>());
        let address = values.as_ptr().expose_provenance();
        Self { address, shape: shape.to_vec(), element: E::TYPE, writable: false, _owner: Box::new(owner) }
    }

    /// Values that belong to numpy from now on.
    pub(crate) fn new<E: Element>(values: Vec<E>, shape: &[usize]) -> Self {
        debug_assert_eq!(values.len(), shape.iter().product::<usize>());
        // Moving a vector does not move its elements.
        let mut values = values;
        let address = values.as_mut_ptr().expose_provenance();
        Self { address, shape: shape.to_vec(), element: E::TYPE, writable: true, _owner: Box::new(values) }
    }
}

#[pymethods]
impl Array {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", self.element)?;
        interface.set_item("shape", PyTuple::new(py, &self.shape)?)?;
        interface.set_item("data", (self.address, !self.writable))?;
        Ok(interface)
    }
}

/// The numbers in the bytes of a C-contiguous little-endian array, `N` to a group. `None` if they are not whole groups.
pub(crate) fn groups<const N: usize>(bytes: &[u8]) -> Option<Vec<[f32; N]>> {
    let (chunks, rest) = bytes.as_chunks::<4>();
    let (groups, left) = chunks.as_chunks::<N>();
    (rest.is_empty() && left.is_empty())
        .then(|| groups.iter().map(|group| group.map(f32::from_le_bytes)).collect())
}
