//! Whether single precision, in which Gaussians are kept and rendered, tells places apart where the scene is. In map or
//! geocentric coordinates, millions of metres from their origin, it does not.

use super::dataset::Dataset;
use crate::control::Warning;
use crate::error::{Error, Result};
use crate::statistics::median;

/// How far apart neighbouring numbers may be, in units of the scene scale, without a word: with a focal length of a thousand pixels it
/// is a tenth of one.
const TOLD: f64 = 1e-4;
/// Whole pixels: nothing sharp comes of it.
const REFUSED: f64 = 1e-3;
/// What helps.
const ADVICE: &str = "move the model near its origin: give it in a local frame, for example from its first camera on, and not in map or \
    geocentric coordinates";

/// # Errors
/// [`crate::ErrorKind::InvalidArgument`] if most cameras are too far from the origin for the size of what they see.
pub(super) fn check(dataset: &Dataset) -> Result<()> {
    match distance(dataset, REFUSED) {
        Some(said) => Err(Error::argument(said).hint(ADVICE)),
        None => Ok(()),
    }
}

/// That most cameras are so far from the origin that a part of a pixel is lost, if they are.
pub(super) fn warning(dataset: &Dataset) -> Option<Warning> {
    distance(dataset, TOLD).map(|said| Warning::new("far_from_origin", format!("{said}; {ADVICE}")))
}

/// How far most cameras are from the origin, if neighbouring numbers there are `least` apart at least, in units of the scene scale.
fn distance(dataset: &Dataset, least: f64) -> Option<String> {
    let largest = |&view: &usize| dataset.views[view].view.centre().amax();
    let mut coordinates: Vec<f64> = dataset.train.iter().map(largest).collect();
    // That of most: where a single pose is wrong, however far off, the others make a scene.
    let coordinate = median(&mut coordinates)?;
    let (scale, apart) = (dataset.scene_scale(), coordinate * f64::from(f32::EPSILON));
    (apart >= least * scale).then(|| {
        format!(
            "the cameras have coordinates of {coordinate:.0}, and what they see is {scale:.3} away: scenes are kept in single \
             precision, in which neighbouring numbers of that size are {apart:.2e} apart"
        )
    })
}

#[cfg(test)]
mod tests {
    use nalgebra::{UnitQuaternion, Vector3};

    use crate::control::Control;
    use crate::error::ErrorKind;
    use crate::raster::{DeviceChoice, open};
    use crate::train::dataset::tests::arc;
    use crate::train::{Checkpoint, Dataset, TrainOptions, Trainer};

    fn options() -> TrainOptions {
        TrainOptions { dense_initialisation: false, ..TrainOptions::default() }
    }

    #[test]
    fn a_model_in_map_coordinates_is_refused_and_one_beside_its_origin_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let near = arc(folder.path(), 6);
        let dataset = |scale: f64, offset: [f64; 3]| {
            let mut model = near.clone();
            model.transform(scale, &UnitQuaternion::identity(), &Vector3::from(offset));
            Dataset::from_model(&model, folder.path(), None).unwrap()
        };
        let begun = |scale: f64, offset: [f64; 3]| {
            let rasteriser = open(&DeviceChoice::Cpu).unwrap();
            Trainer::new(dataset(scale, offset), options(), rasteriser, &Control::new())
        };
        let told = |trainer: &Trainer| {
            let warning = trainer.warnings().iter().find(|w| w.code == "far_from_origin");
            warning.map(|w| w.message.clone())
        };
        // Geocentric ones, and those of a map.
        for (offset, said) in
            [([6e6, 0.0, 0.0], "coordinates of 6000"), ([5e5, 5e6, 0.0], "coordinates of 5000")]
        {
            let refused = begun(1.0, offset).err().unwrap();
            assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
            assert!(refused.message().contains(said), "{refused}");
            assert!(refused.hint_text().is_some_and(|hint| hint.contains("near its origin")), "{refused}");
        }
        // A room, seen from 2 metres, 3 kilometres from the origin: a fifth of a pixel.
        let room = begun(0.5, [3000.0, 0.0, 0.0]).unwrap();
        let said = told(&room).unwrap();
        assert!(said.contains("coordinates of 300") && said.contains("near its origin"), "{said}");
        // Ten times as far from it as from what they see.
        let mut beside = begun(1.0, [40.0, 0.0, 0.0]).unwrap();
        assert_eq!(told(&beside), None);

        // What was begun goes on, wherever it is, and is told of.
        let path = folder.path().join("train.checkpoint");
        beside.save(&path).unwrap();
        let hash = options().hash().unwrap();
        let mut checkpoint = Checkpoint::read(&path, &hash, dataset(1.0, [40.0, 0.0, 0.0]).hash()).unwrap();
        let far = dataset(1.0, [6e6, 0.0, 0.0]);
        checkpoint.write(&path, &hash, far.hash()).unwrap();
        let rasteriser = open(&DeviceChoice::Cpu).unwrap();
        let continued = Trainer::resume(far, options(), rasteriser, &path).unwrap();
        assert!(told(&continued).is_some());
    }
}
