//! Edits of density control: copies of splats with an offset, in place of others or past the end.

use super::lanes::Row;
use super::scalar::Scalar;
use super::state::{Gathered, Harmonics, MEAN, OPACITY, SCALE, Scene};
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
                geometry[MEAN + k] += T::of_f32(e.mean_offset[k]);
                geometry[SCALE + k] += T::of_f32(e.log_scale_offset[k]);
            }
            geometry[OPACITY] = T::of_f32(e.opacity);
            (geometry, scene.parameters.sh[source])
        })
        .collect();

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
