//! Edits of density control: copies of splats, moved and resized, in place of others or past the end.

use glam::{DQuat, DVec3, DVec4};

use super::lanes::Row;
use super::scalar::Scalar;
use super::state::{Gathered, Geometry, Harmonics, MEAN, OPACITY, ROTATION, SCALE, Scene};
use crate::error::Result;
use crate::raster::SplatEdit;
use crate::raster::check::check_edits;

/// # Errors
/// [`crate::ErrorKind::InvalidArgument`] if a source does not exist, a destination is written twice, or the
/// destinations past the end leave a gap. The scene is unchanged then.
pub(super) fn edit<T: Scalar>(scene: &mut Scene<T>, edits: &[SplatEdit]) -> Result<()> {
    let len = check_edits(edits, scene.len() as u32)? as usize;
    let read: Vec<_> = edits
        .iter()
        .map(|e| {
            let source = e.source as usize;
            let mut geometry = scene.parameters.geometry[source];
            for k in 0..3 {
                geometry[SCALE + k] += T::of_f32(e.log_scale_offset);
            }
            if e.shift != 0.0 {
                shift(&mut geometry, f64::from(e.shift));
            }
            geometry[OPACITY] = T::of_f32(e.opacity);
            (geometry, scene.parameters.sh[source])
        })
        .collect();

    // Moments that had no entries yet get them all by this.
    for values in [&mut scene.parameters, &mut scene.first, &mut scene.second] {
        values.geometry.resize(len, Row::default());
        values.sh.resize(len, Harmonics::default());
    }
    scene.gathered.resize(len, Gathered::default());
    for (e, (geometry, sh)) in edits.iter().zip(read) {
        let at = e.destination as usize;
        scene.parameters.geometry[at] = geometry;
        scene.parameters.sh[at] = sh;
        for moments in [&mut scene.first, &mut scene.second] {
            moments.geometry[at] = Row::default();
            moments.sh[at] = Harmonics::default();
        }
        scene.gathered[at] = Gathered::default();
    }
    Ok(())
}

/// Moves a splat along its longest axis, which becomes shorter (see [`SplatEdit::shift`]).
fn shift<T: Scalar>(geometry: &mut Geometry<T>, by: f64) {
    let value = |k: usize| f64::from(geometry[k].f32());
    let mut axis = 0;
    for k in 1..3 {
        if value(SCALE + k) > value(SCALE + axis) {
            axis = k;
        }
    }
    let [w, x, y, z] = std::array::from_fn(|k| value(ROTATION + k));
    let turn = DQuat::from_vec4(DVec4::new(x, y, z, w).normalize_or(DVec4::W));
    let offset = turn * DVec3::AXES[axis] * (by * value(SCALE + axis).exp());
    for k in 0..3 {
        geometry[MEAN + k] += T::of(offset[k]);
    }
    geometry[SCALE + axis] += T::of(0.5 * (1.0 - by * by).ln());
}
