//! Whether single precision, in which Gaussians are kept and rendered, tells places apart where the scene is. In map or
//! geocentric coordinates, millions of metres from their origin, it does not.

use super::dataset::Dataset;
use crate::error::{Error, Result};
use crate::statistics::median;

/// How far apart neighbouring numbers may be, in units of the scene scale: with a focal length of a thousand pixels it is a tenth
/// of one.
const COARSEST: f64 = 1e-4;

/// # Errors
/// [`crate::ErrorKind::InvalidArgument`] if most cameras are too far from the origin for the size of what they see.
pub(super) fn check(dataset: &Dataset) -> Result<()> {
    let largest = |&view: &usize| dataset.views[view].view.centre().amax();
    let mut coordinates: Vec<f64> = dataset.train.iter().map(largest).collect();
    // That of most: where a single pose is wrong, however far off, the others make a scene.
    let Some(coordinate) = median(&mut coordinates) else { return Ok(()) };
    let (scale, apart) = (dataset.scene_scale(), coordinate * f64::from(f32::EPSILON));
    if apart <= COARSEST * scale {
        return Ok(());
    }
    Err(Error::argument(format!(
        "the cameras have coordinates of {coordinate:.0}, and what they see is {scale:.3} away: scenes are kept in single \
         precision, in which neighbouring numbers of that size are {apart:.2e} apart"
    ))
    .hint(
        "move the model near its origin: give it in a local frame, for example from its first camera on, and not in map or \
         geocentric coordinates",
    ))
}

#[cfg(test)]
mod tests {
    use nalgebra::{UnitQuaternion, Vector3};

    use crate::control::Control;
    use crate::error::ErrorKind;
    use crate::raster::{DeviceChoice, open};
    use crate::train::dataset::tests::arc;
    use crate::train::{Dataset, TrainOptions, Trainer};

    #[test]
    fn a_model_in_map_coordinates_is_refused_and_one_beside_its_origin_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let near = arc(folder.path(), 6);
        let begun = |offset: f64| {
            let mut model = near.clone();
            model.transform(1.0, &UnitQuaternion::identity(), &Vector3::new(offset, 0.0, 0.0));
            let dataset = Dataset::from_model(&model, folder.path(), None).unwrap();
            let options = TrainOptions { dense_initialisation: false, ..TrainOptions::default() };
            Trainer::new(dataset, options, open(&DeviceChoice::Cpu).unwrap(), &Control::new()).map(drop)
        };
        let refused = begun(6e6).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        assert!(refused.message().contains("coordinates of 6000"), "{refused}");
        assert!(refused.hint_text().is_some_and(|hint| hint.contains("near its origin")), "{refused}");
        // Ten times as far from it as from what they see.
        begun(40.0).unwrap();
    }
}
