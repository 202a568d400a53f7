//! Where the object ends in each view: the outline of the solid, which is right to within a few pixels, and then what the view's
//! own picture says.

use super::evidence::Odds;
use super::guided_filter::NONE;
use super::local_colours::{LocalColourOptions, with_local_colours};
use super::shown::{Shown, part_around};
use super::views::{EdgeOptions, SalientView, smooth};
use crate::defaults::with_defaults;

with_defaults! {
    /// How the outline of the solid becomes that of the object. Chosen by hand.
    #[derive(Debug, Clone, PartialEq)]
    pub(super) struct OutlineOptions {
        /// Radius (pixels) of the rim in which a view's own pixels decide where the object ends.
        rim: usize = 4,
        /// Log odds of what is outside of the rim,
        outside: f32 = -4.0,
        /// and what is added inside it.
        inside: f32 = 1.5,
        /// Pixels around those in which another thing hides the object that may be hidden, too: cells are not exact.
        pub(super) beside_hidden: usize = 2,
        /// How masks are fitted to edges.
        pub(super) edges: EdgeOptions = EdgeOptions::default(),
        /// How colours beside the outline are compared.
        local_colours: LocalColourOptions = LocalColourOptions::default(),
    }
}

/// The odds of a view's pixels, of which those far from the outline of the solid are what it says, and the overlap of what
/// the pixels said with the outline.
pub(super) fn within_outline(
    view: &SalientView,
    odds: &[Odds],
    shown: &[Shown],
    options: &OutlineOptions,
) -> (Vec<Odds>, f64) {
    let rim = part_around(view, shown, options.rim);
    let near = part_around(view, shown, 4 * options.rim);
    let (mut both, mut either) = (0u32, 0u32);
    let mut within = Vec::with_capacity(odds.len());
    for (k, odds) in odds.iter().enumerate() {
        let is_outline = shown[k] == Shown::Object;
        let is_object = odds.log_odds() > 0.0;
        if near[k] > NONE && !matches!(shown[k], Shown::Hidden | Shown::Other) {
            both += u32::from(is_outline && is_object);
            either += u32::from(is_outline || is_object);
        }
        within.push(match shown[k] {
            Shown::Hidden | Shown::Other => Odds::new(options.outside),
            // Less than a fifth around it: farther out than half of the rim.
            Shown::Nothing if rim[k] < 0.2 => Odds::new(options.outside),
            _ if rim[k] > 0.99 => Odds::new(odds.log_odds() + options.inside),
            _ => *odds,
        });
    }
    (within, if either == 0 { 1.0 } else { f64::from(both) / f64::from(either) })
}

/// The odds of a view's pixels as its picture has them. Those `within` the outline of the solid, fitted to the edges of the picture, make
/// an outline that is nearer to the true one; in the rim of this one, what the pixels were `told` to be counts, and what colours are on
/// either side of it.
pub(super) fn refined(
    view: &SalientView,
    within: &[Odds],
    told: &[Odds],
    shown: &[Shown],
    options: &OutlineOptions,
) -> Vec<Odds> {
    let (width, height) = view.size();
    let odds: Vec<f32> = within.iter().map(|odds| odds.log_odds()).collect();
    let smooth = smooth(&view.colours, &odds, width, height, &options.edges);
    let pixel = |(shown, odds): (&Shown, &f32)| match shown {
        Shown::Hidden | Shown::Other => *shown,
        _ if *odds > 0.0 => Shown::Object,
        _ => Shown::Nothing,
    };
    let shown: Vec<Shown> = shown.iter().zip(&smooth).map(pixel).collect();
    let told = with_local_colours(view, told, &shown, options.rim, &options.local_colours);
    within_outline(view, &told, &shown, options).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::{Camera, CameraModel, Pose};
    use crate::raster;

    const WIDTH: usize = 40;
    const HEIGHT: usize = 30;

    fn view(colour: impl Fn(usize, usize) -> [u8; 3]) -> SalientView {
        let camera = Camera::from_focal(CameraModel::Pinhole, 40.0, WIDTH as u32, HEIGHT as u32);
        SalientView {
            camera: raster::View::new(&camera, &Pose::identity()),
            saliency: vec![0; WIDTH * HEIGHT],
            colours: (0..WIDTH * HEIGHT).map(|k| colour(k % WIDTH, k / WIDTH)).collect(),
        }
    }

    #[test]
    fn an_outline_finds_the_edge_of_the_picture_from_farther_than_its_rim() {
        // Red before green as far as row 12; the solid ends in row 18, and no pixel was told anything.
        let view = view(|_, y| if y < 12 { [180, 60, 50] } else { [70, 150, 60] });
        let shown: Vec<Shown> = (0..WIDTH * HEIGHT)
            .map(|k| if k < 18 * WIDTH { Shown::Object } else { Shown::Nothing })
            .collect();
        let told = vec![Odds::new(0.0); WIDTH * HEIGHT];
        let options = OutlineOptions::default();
        let (within, _) = within_outline(&view, &told, &shown, &options);
        let rows = |odds: &[Odds]| {
            let odds: Vec<f32> = odds.iter().map(|odds| odds.log_odds()).collect();
            let smooth = smooth(&view.colours, &odds, WIDTH, HEIGHT, &options.edges);
            smooth.chunks(WIDTH).take_while(|row| row[WIDTH / 2] > 0.0).count()
        };
        let refined = refined(&view, &within, &told, &shown, &options);
        // Fitted once, it moves by a row of the six.
        assert_eq!((rows(&within), rows(&refined)), (17, 12));
    }
}
