//! Other focal lengths to begin with, where a map does not tell its own.
//!
//! Pictures along a wall say next to nothing of the focal length pair by pair, and their rotations, which then decide, little more. A map
//! that begins with one two or three times too long is adjusted into a minimum of its own: the path is bent onto a small circle, as if the
//! camera had turned, and the lens is bent to match. It does not find out of that by itself. What tells that it is wrong are doubts about
//! its lens (little holds the focal length, or it seems to change, or residuals are alike in all frames), and that fewer matches
//! fit a point. From a usual focal length the same capture comes out right, and knows its focal length well.

use crate::camera::Camera;
use crate::error::{ErrorKind, Result};
use crate::sfm::calibration::FAR_FROM_KNOWN;
use crate::sfm::reconstruction::Reconstruction;
use crate::sfm::verdict::Doubt;

/// What people film with, over the longer side of the picture: phones, and COLMAP's guess. Of five ways along a wall, whose focal lengths
/// were 0.75 to 1.2 of it, the maps found their way from either.
const USUAL: [f64; 2] = [0.8, 1.2];

/// Whether a model, or why there is none, may be due to a wrong focal length.
pub(super) fn may_have_a_wrong_focal(found: &Result<Reconstruction>) -> bool {
    match found {
        Ok(found) => {
            let reasons = found.report.verdict.iter().flat_map(|verdict| &verdict.reasons);
            let is_of_lens =
                |doubt| matches!(doubt, Doubt::UnknownFocalLength | Doubt::OtherLens | Doubt::Zoom);
            reasons.into_iter().any(|reason| is_of_lens(reason.doubt))
        }
        // Too long a focal length takes the depth away.
        Err(error) => {
            matches!(error.kind(), ErrorKind::IntrinsicsUnreliable | ErrorKind::InsufficientParallax)
        }
    }
}

/// `begun` with other focal lengths, but for those that are near its own.
pub(super) fn other_starts(begun: &Camera) -> Vec<Camera> {
    let side = f64::from(begun.width.max(begun.height));
    let is_other = |focal: &f64| (focal / begun.mean_focal()).ln().abs() > (1.0 + FAR_FROM_KNOWN).ln();
    let with_focal = |focal: f64| Camera {
        params: Camera::from_focal(begun.model, focal, begun.width, begun.height).params,
        ..begun.clone()
    };
    USUAL.map(|part| part * side).into_iter().filter(is_other).map(with_focal).collect()
}

/// Whether `other` explains more of what was matched.
pub(super) fn explains_more(other: &Result<Reconstruction>, best: &Result<Reconstruction>) -> bool {
    match (other, best) {
        (Ok(other), Ok(best)) => other.report.observations > best.report.observations,
        (Ok(_), Err(_)) => true,
        (Err(_), _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::CameraModel;

    #[test]
    fn usual_focal_lengths_are_tried_that_are_not_near_the_first() {
        let others = |focal: f64| {
            let begun = Camera::from_focal(CameraModel::SimpleRadial, focal, 300, 400);
            other_starts(&begun).iter().map(Camera::mean_focal).collect::<Vec<_>>()
        };
        assert_eq!(others(900.0), [320.0, 480.0]);
        assert_eq!(others(470.0), [320.0]);
        assert_eq!(others(330.0), [480.0]);
    }
}
