//! Edits of density control: copies of splats with an offset, in place of others or past the end.

use super::scalar::Scalar;
use super::state::{GEOMETRY, Gathered, MEAN, OPACITY, SCALE, Scene};
use crate::error::{Error, Result};
use crate::raster::SplatEdit;

/// # Errors
/// [`crate::ErrorKind::InvalidArgument`] if a source does not exist, a destination is written twice, or the
/// destinations past the end leave a gap. The scene is unchanged then.
pub(super) fn edit<T: Scalar>(scene: &mut Scene<T>, edits: &[SplatEdit]) -> Result<()> {
    let (old_len, stride) = (scene.len(), scene.sh_stride());
    let mut destinations: Vec<u32> = edits.iter().map(|e| e.destination).collect();
    destinations.sort_unstable();
    if let Some(twice) = destinations.windows(2).find(|w| w[0] == w[1]) {
        return Err(Error::argument(format!("splat {} is written by two edits", twice[0])));
    }
    let grown = destinations.iter().filter(|&&d| d as usize >= old_len).count();
    if let Some(&last) = destinations.last()
        && last as usize >= old_len + grown
    {
        return Err(Error::argument(format!(
            "an edit writes splat {last}, but {old_len} splats grow by {grown} only"
        )));
    }
    if let Some(e) = edits.iter().find(|e| e.source as usize >= old_len) {
        return Err(Error::argument(format!("an edit reads splat {} of {old_len}", e.source)));
    }

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
            (geometry, scene.parameters.sh[source * stride..(source + 1) * stride].to_vec())
        })
        .collect();

    let len = old_len + grown;
    for values in [&mut scene.parameters, &mut scene.first, &mut scene.second] {
        values.geometry.resize(len, [T::default(); GEOMETRY]);
        values.sh.resize(len * stride, T::default());
    }
    scene.gathered.resize(len, Gathered::default());
    for (e, (geometry, sh)) in edits.iter().zip(read) {
        let at = e.destination as usize;
        let sh_range = at * stride..(at + 1) * stride;
        scene.parameters.geometry[at] = geometry;
        scene.parameters.sh[sh_range.clone()].copy_from_slice(&sh);
        for moments in [&mut scene.first, &mut scene.second] {
            moments.geometry[at] = [T::default(); GEOMETRY];
            moments.sh[sh_range.clone()].fill(T::default());
        }
        scene.gathered[at] = Gathered::default();
    }
    Ok(())
}
