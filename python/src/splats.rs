//! Gaussian scenes.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::cast_slice;
use libreconstruct::glam::{Vec3, Vec4};
use libreconstruct::presentation::{TurntableOptions, write_turntable};
use libreconstruct::raster::load_for_viewing;
use libreconstruct::raster::{self, DeviceChoice, Rasteriser, Rendering};
use libreconstruct::splats::{SceneFormat, Splats as CoreSplats, SpzOptions, SpzVersion, sh_coefficients};
use libreconstruct::{Error, Result};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::array::{Array, groups};
use crate::error::OrRaise;
use crate::model::SparseModel;
use crate::view::{SimilarityTuple, ViewTuple, similarity, view};
use crate::work::{long, quick};

/// A rasteriser with the scene loaded, and the device that was asked for.
type Viewer = Option<(DeviceChoice, Box<dyn Rasteriser>)>;

/// A Gaussian scene that does not change. `Scene` in Python is made of this.
#[pyclass(frozen, module = "libreconstruct._native")]
pub(crate) struct Splats {
    splats: Arc<CoreSplats>,
    /// Kept between renderings, since loading a scene takes longer than rendering it.
    viewer: Mutex<Viewer>,
}

impl Splats {
    pub(crate) fn new(splats: CoreSplats) -> Self {
        Self { splats: Arc::new(splats), viewer: Mutex::new(None) }
    }

    /// A view of values of the scene; `shape` is that of one splat's.
    fn array(&self, values: &[f32], shape: &[usize]) -> Array {
        Array::view(self.splats.clone(), values, &[&[self.splats.len()][..], shape].concat())
    }

    /// Calls `use_viewer` with the rasteriser for `device` that has the scene loaded.
    fn with_viewer<T>(
        &self,
        device: &DeviceChoice,
        use_viewer: impl FnOnce(&mut dyn Rasteriser) -> Result<T>,
    ) -> Result<T> {
        let mut viewer = self.viewer.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken out: after an error the next call begins anew.
        let mut rasteriser = match viewer.take() {
            Some((of, rasteriser)) if of == *device => rasteriser,
            _ => {
                let mut rasteriser = raster::open(device)?;
                load_for_viewing(rasteriser.as_mut(), &self.splats)?;
                rasteriser
            }
        };
        let result = use_viewer(rasteriser.as_mut())?;
        *viewer = Some((device.clone(), rasteriser));
        Ok(result)
    }
}

#[pymethods]
impl Splats {
    /// Reads a `.ply`, `.spz`, `.glb` or `.sog` file; its content decides.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        quick(py, || CoreSplats::read(&path)).map(Self::new)
    }

    /// A scene of the bytes of C-contiguous little-endian float32 arrays.
    #[staticmethod]
    fn from_bytes(
        py: Python<'_>,
        means: PyBackedBytes,
        log_scales: PyBackedBytes,
        rotations: PyBackedBytes,
        opacities: PyBackedBytes,
        sh: PyBackedBytes,
        sh_degree: u32,
        antialiased: bool,
    ) -> PyResult<Self> {
        quick(py, || {
            let torn = || Error::argument("the arrays are no whole float32 values");
            let splats = CoreSplats {
                means: groups(&means).ok_or_else(torn)?.into_iter().map(Vec3::from_array).collect(),
                log_scales: groups(&log_scales).ok_or_else(torn)?.into_iter().map(Vec3::from_array).collect(),
                rotations: groups(&rotations).ok_or_else(torn)?.into_iter().map(Vec4::from_array).collect(),
                opacities: groups::<1>(&opacities).ok_or_else(torn)?.into_flattened(),
                sh_degree,
                sh: groups::<1>(&sh).ok_or_else(torn)?.into_flattened(),
                antialiased,
            };
            splats.check()?;
            Ok(Self::new(splats))
        })
    }

    /// Writes a file, whole or not at all. `spz_version` (2, 3, 4) is for `.spz` files only.
    fn write(&self, py: Python<'_>, path: PathBuf, spz_version: u32) -> PyResult<()> {
        quick(py, || {
            let version = match spz_version {
                2 => SpzVersion::V2,
                3 => SpzVersion::V3,
                4 => SpzVersion::V4,
                other => {
                    return Err(Error::argument(format!("spz_version is {other}: 2, 3 and 4 are possible")));
                }
            };
            match SceneFormat::of(&path)? {
                SceneFormat::Ply => self.splats.write_ply(&path),
                SceneFormat::Glb => self.splats.write_glb(&path),
                SceneFormat::Sog => self.splats.write_sog(&path),
                SceneFormat::Spz => {
                    self.splats.write_spz(&path, &SpzOptions { version, ..SpzOptions::default() })
                }
            }
        })
    }

    fn __len__(&self) -> usize {
        self.splats.len()
    }

    #[getter]
    fn sh_degree(&self) -> u32 {
        self.splats.sh_degree
    }

    #[getter]
    fn antialiased(&self) -> bool {
        self.splats.antialiased
    }

    #[getter]
    fn means(&self) -> Array {
        self.array(cast_slice(&self.splats.means), &[3])
    }

    #[getter]
    fn log_scales(&self) -> Array {
        self.array(cast_slice(&self.splats.log_scales), &[3])
    }

    #[getter]
    fn rotations(&self) -> Array {
        self.array(cast_slice(&self.splats.rotations), &[4])
    }

    #[getter]
    fn opacities(&self) -> Array {
        self.array(&self.splats.opacities, &[])
    }

    #[getter]
    fn sh(&self) -> Array {
        self.array(&self.splats.sh, &[sh_coefficients(self.splats.sh_degree), 3])
    }

    /// The splats whose byte in `mask` is not 0, in their order.
    fn select(&self, py: Python<'_>, mask: PyBackedBytes) -> PyResult<Self> {
        quick(py, || {
            if mask.len() != self.splats.len() {
                let (given, needed) = (mask.len(), self.splats.len());
                return Err(Error::argument(format!("the mask has {given} entries for {needed} splats")));
            }
            let mut kept = CoreSplats::clone(&self.splats);
            // The lengths are equal.
            kept.retain(|i| mask[i] != 0);
            Ok(Self::new(kept))
        })
    }

    /// The scene in a moved world.
    fn transform(&self, py: Python<'_>, motion: SimilarityTuple) -> PyResult<Self> {
        quick(py, || {
            let (scale, rotation, translation) = similarity(motion)?;
            let mut moved = CoreSplats::clone(&self.splats);
            moved.transform(scale, &rotation, &translation)?;
            Ok(Self::new(moved))
        })
    }

    /// The view as an array (height, width, 4): float32 as it was rendered, or uint8, clamped.
    fn render(
        &self,
        py: Python<'_>,
        camera: ViewTuple,
        background: [f32; 3],
        device: &str,
        as_float: bool,
    ) -> PyResult<Array> {
        let device: DeviceChoice = device.parse().or_raise()?;
        let rendering = quick(py, || {
            let view = view(camera)?;
            self.with_viewer(&device, |viewer| viewer.render(&view, self.splats.sh_degree, background))
        })?;
        Ok(picture(py, rendering, as_float))
    }

    /// Films the scene along the path of `model`'s cameras into an H.264 video.
    fn turntable(
        &self,
        py: Python<'_>,
        model: &SparseModel,
        path: PathBuf,
        frames: usize,
        frame_rate: f64,
        max_side: u32,
        background: [f32; 3],
        device: &str,
        listener: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let device: DeviceChoice = device.parse().or_raise()?;
        let options = TurntableOptions { frames, frame_rate, max_side, background };
        let model = model.inner();
        long(py, listener, |control| {
            let degree = self.splats.sh_degree;
            self.with_viewer(&device, |viewer| {
                write_turntable(viewer, degree, model, &options, &path, control)
            })
        })
    }
}

/// A rendering as an array of height, width, 4.
pub(crate) fn picture(py: Python<'_>, rendering: Rendering, as_float: bool) -> Array {
    let shape = [rendering.height as usize, rendering.width as usize, 4];
    if as_float {
        return Array::new(rendering.rgba.into_flattened(), &shape);
    }
    let bytes = py.detach(|| {
        // `as` saturates, and turns what is not a number into 0.
        rendering.rgba.as_flattened().iter().map(|v| (v * 255.0 + 0.5) as u8).collect()
    });
    Array::new::<u8>(bytes, &shape)
}
