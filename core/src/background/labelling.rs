//! Which Gaussians of a scene belong to the object: what stands on the surface near the place at which the cameras
//! look, or where there is no such surface, what the network found salient in the views that see it, or else what a person
//! points at, and what is in no wall.

use nalgebra::Vector3;
use rayon::prelude::*;

use super::quick_scene::{Places, QuickScene};
use super::support_plane::{self, SupportPlane, SupportPlaneOptions};
use super::views::SalientView;
use crate::camera::Gaze;
use crate::defaults::with_defaults;
use crate::error::Result;
use crate::neighbours::Neighbours;
use crate::statistics::median;

/// What was found out about the Gaussians of a scene.
pub(super) struct ObjectLabels {
    /// By Gaussian: the probability (0 to 1) that it belongs to the object; `None` where nothing can be said.
    pub(super) object: Vec<Option<f32>>,
}

with_defaults! {
    /// When a Gaussian belongs to the object. "The distance" is that of the cameras from the place at which they look
    /// ([`Gaze::distance`]); saliency is what the network says, 0 to 1.
    ///
    /// Measured together on a synthetic room whose masks are known: mean overlap (intersection over union) 0.972, where
    /// small depth maps in place of Gaussians gave 0.908. Each by itself was chosen by hand, unless it says otherwise.
    #[derive(Debug, Clone, PartialEq)]
    pub(super) struct LabelOptions {
        /// How the surface is found on which the object stands.
        pub(super) plane: SupportPlaneOptions = SupportPlaneOptions::default(),
        /// What stands on the plane within this part of the cameras' distance, both along the plane, is object whether
        /// it is salient or not.
        pub(super) object_radius: f64 = 0.4,
        /// The cameras' distance along the plane counts as this part of the distance at least: cameras straight above
        /// have none.
        pub(super) least_radius: f64 = 0.5,
        /// A Gaussian is certainly above the plane from this height on, in units of the distance,
        pub(super) clearance: f64 = 0.004,
        /// and from this many standard deviations of the plane's points.
        pub(super) deviations: f64 = 3.0,
        /// Up to this part (0 to 1) of that height it belongs to the plane; in between its probability grows evenly.
        pub(super) on_plane: f64 = 0.5,
        /// With this (smoothed) saliency a Gaussian belongs to the object. Low: where the network finds only a part of
        /// a large object in each view, it finds every part in some.
        pub(super) salient: f32 = 0.15,
        /// With less saliency than this it belongs to the background.
        pub(super) plain: f32 = 0.1,
        /// Number of views that must see a Gaussian for its saliency to count.
        pub(super) least_views: u32 = 2,
        /// Where there is no plane, what is farther from the focus than this, in units of the distance, is background.
        pub(super) far: f64 = 1.2,
        /// Number of views that must see a foot (see [`with_feet`]). The values for feet were measured together, on a
        /// candlestick of thin rods in a synthetic room: mean overlap 0.757 without feet, 0.845 with them, lowest 0.52
        /// and 0.73.
        pub(super) foot_views: u32 = 3,
        /// Mean saliency of a foot.
        pub(super) foot_salient: f32 = 0.5,
        /// Part of the probability that goes on from a foot's Gaussian to the next: many weak links make no foot.
        pub(super) foot_link: f32 = 0.9,
        /// Where a person points at what the network does not see, and there is no plane, a Gaussian belongs to what is there if
        /// more than this part (0 to 1) of its neighbours does, as they count. Before the even border of what is reached it is
        /// nearly half; where a few touch a thing of another colour, next to nothing.
        pub(super) pointed_link: f32 = 0.2,
        /// What is so reached is no thing but a table or a floor if more than this part (0 to 1) of it is farther from its middle
        /// than `object_radius`, in units of the distance.
        pub(super) pointed_beyond: f64 = 0.1,
        /// Number of nearest Gaussians over which saliency is smoothed.
        pub(super) neighbours: usize = 12,
        /// Number of times it is smoothed, and feet grow.
        pub(super) smoothings: usize = 40,
        /// Part (0 to 1) of a Gaussian's own saliency that each smoothing keeps.
        pub(super) kept: f32 = 0.05,
        /// Standard deviation (colours 0 to 1) over which neighbours of another colour count less.
        pub(super) same_colour: f32 = 0.1,
        /// A view sees a Gaussian before the surface that it shows there, or behind it by less than this, in units of
        /// the distance.
        pub(super) depth_margin: f64 = 0.03,
        /// A pixel shows a surface if Gaussians cover more than this part (0 to 1) of it.
        pub(super) opaque: f64 = 0.5,
        /// Surfaces are told apart up to this distance from the focus, in units of the distance.
        pub(super) reach: f64 = 2.0,
    }
}

/// What the views that show the focus say of the Gaussians of `scene`. The others have no vote: what is salient in them is
/// something else.
///
/// # Errors
/// Those of the rasteriser.
pub(super) fn saliency<'a>(
    scene: &QuickScene,
    views: impl IntoIterator<Item = &'a SalientView>,
    gaze: &Gaze,
    options: &LabelOptions,
) -> Result<Vec<Votes>> {
    votes(scene, &showing(views, gaze), gaze, options)
}

fn showing<'a>(views: impl IntoIterator<Item = &'a SalientView>, gaze: &Gaze) -> Vec<&'a SalientView> {
    views.into_iter().filter(|v| v.shows(&gaze.focus)).collect()
}

/// The plane on which the object stands or hangs, by what the `views` say, of which `votes` are.
pub(super) fn find_plane(
    scene: &QuickScene,
    votes: &[Votes],
    views: &[SalientView],
    gaze: &Gaze,
    options: &LabelOptions,
) -> Option<SupportPlane> {
    let seen: Vec<(Vector3<f64>, f64)> = (scene.centres.iter().zip(votes))
        .filter(|(_, v)| v.views >= options.least_views)
        .map(|(p, v)| (*p, f64::from(v.mean())))
        .collect();
    let centres: Vec<Vector3<f64>> = showing(views, gaze).iter().map(|v| v.camera.centre()).collect();
    support_plane::find(&seen, &centres, gaze, &options.plane)
}

/// Tells object from background among the Gaussians of `scene`, which stand on `plane` or hang on it if there is one. A person may
/// have `pointed` at a place on a surface: what is there is object even if the network does not see it.
pub(super) fn label(
    scene: &QuickScene,
    votes: &[Votes],
    views: &[SalientView],
    gaze: &Gaze,
    plane: Option<&SupportPlane>,
    pointed: Option<&Vector3<f64>>,
    options: &LabelOptions,
) -> ObjectLabels {
    let around = neighbourhoods(scene, options);
    let smooth = smoothed(&around, votes, options);
    let object = match plane {
        Some(plane) if !plane.is_wall => {
            let standing = above(&scene.centres, &smooth, plane, gaze, &showing(views, gaze), options);
            with_feet(&around, &standing, votes, options).into_iter().map(Some).collect()
        }
        wall => {
            let is_background = |p: &Vector3<f64>| {
                let far = (p - gaze.focus).norm() > options.far * gaze.distance;
                // A shadow on the wall and what is printed there are as salient as what hangs there.
                far || wall.is_some_and(|wall| above_plane(p, wall, gaze, options) < 0.5)
            };
            let background: Vec<bool> = scene.centres.iter().map(is_background).collect();
            let meant = match pointed {
                Some(place) => {
                    let radius = options.object_radius * gaze.distance;
                    unseen_thing(&scene.centres, &around, &smooth, &background, place, radius, options)
                }
                None => vec![false; scene.centres.len()],
            };
            (smooth.iter().zip(votes).zip(&background).zip(&meant))
                .map(|(((salient, votes), background), meant)| match *salient {
                    _ if *background => Some(0.0),
                    _ if *meant => Some(1.0),
                    s if s < options.plain => Some(0.0),
                    s if s > options.salient && votes.views >= options.least_views => Some(1.0),
                    _ => None,
                })
                .collect()
        }
    };
    ObjectLabels { object }
}

/// What the network says of a Gaussian in the views that see it: the sum of its saliency, and their number.
#[derive(Clone, Copy, Default)]
pub(super) struct Votes {
    saliency: f32,
    views: u32,
}

impl Votes {
    pub(super) fn mean(self) -> f32 {
        self.saliency / self.views.max(1) as f32
    }
}

/// By Gaussian of `scene`: what the views say that see it.
fn votes(
    scene: &QuickScene,
    views: &[&SalientView],
    gaze: &Gaze,
    options: &LabelOptions,
) -> Result<Vec<Votes>> {
    let mut places = Places::new(scene, gaze.focus, options.reach * gaze.distance)?;
    let margin = options.depth_margin * gaze.distance;
    let mut votes = vec![Votes::default(); scene.centres.len()];
    for view in views {
        let surfaces = places.seen_by(&view.camera, options.opaque)?;
        votes.par_iter_mut().zip(&scene.centres).for_each(|(votes, centre)| {
            let Some((x, y, depth)) = view.camera.project(centre) else { return };
            let Some(pixel) = view.camera.pixel(x, y) else { return };
            let hidden = surfaces[pixel]
                .and_then(|place| view.camera.project(&place))
                .is_some_and(|surface| surface.2 < depth - margin);
            if !hidden {
                votes.views += 1;
                votes.saliency += f32::from(view.saliency[pixel]) / 255.0;
            }
        });
    }
    Ok(votes)
}

/// How certainly (0 to 1) a point is above the plane and not in it.
pub(super) fn above_plane(
    point: &Vector3<f64>,
    plane: &SupportPlane,
    gaze: &Gaze,
    options: &LabelOptions,
) -> f64 {
    let clearance = (options.clearance * gaze.distance).max(options.deviations * plane.deviation);
    let above = (plane.height(point) / clearance - options.on_plane) / (1.0 - options.on_plane);
    above.clamp(0.0, 1.0)
}

/// By Gaussian: the probability that it stands on the plane as a part of the object, by its height and by its distance
/// from the focus along the plane.
fn above(
    centres: &[Vector3<f64>],
    smooth: &[f32],
    plane: &SupportPlane,
    gaze: &Gaze,
    views: &[&SalientView],
    options: &LabelOptions,
) -> Vec<f32> {
    let along = |p: &Vector3<f64>| {
        let d = p - gaze.focus;
        (d - plane.normal * d.dot(&plane.normal)).norm()
    };
    let mut radii: Vec<f64> = views.iter().map(|v| along(&v.camera.centre())).collect();
    let radius = median(&mut radii).unwrap_or(0.0).max(options.least_radius * gaze.distance);
    centres
        .iter()
        .zip(smooth)
        .map(|(p, salient)| {
            let distance = along(p);
            let inside = distance < options.object_radius * radius
                || (distance < radius && *salient > options.salient);
            if inside { above_plane(p, plane, gaze, options) as f32 } else { 0.0 }
        })
        .collect()
}

/// Adds to what stands on the plane its feet: Gaussians in the plane, or below it where it mirrors the object, that
/// most views find salient and that are connected through neighbours of their own colour with what stands. A sheet of
/// paper on the table is salient, too, but is connected with nothing.
fn with_feet(
    around: &[Neighbourhood],
    standing: &[f32],
    votes: &[Votes],
    options: &LabelOptions,
) -> Vec<f32> {
    let may_be_foot: Vec<bool> = standing
        .iter()
        .zip(votes)
        .map(|(s, v)| *s < 0.5 && v.views >= options.foot_views && v.mean() > options.foot_salient)
        .collect();
    let mut reached = standing.to_vec();
    for _ in 0..options.smoothings {
        reached = (around.par_iter().zip(&may_be_foot).zip(standing))
            .map(|((around, may_be_foot), standing)| match may_be_foot {
                true => {
                    options.foot_link
                        * around.iter().map(|&(j, weight)| weight * reached[j as usize]).sum::<f32>()
                }
                false => *standing,
            })
            .collect();
    }
    standing.iter().zip(&reached).map(|(s, r)| if *r > 0.5 { 1.0 } else { *s }).collect()
}

/// By Gaussian: whether it is of the thing whose surface is at `place`: it is there, or connected with what is there through
/// neighbours of its own colour that are not `background`. Nothing is where the network sees what is there, whose `smooth` word
/// stands; nor where too much of it is farther than `radius` (world units) from its middle ([`LabelOptions::pointed_beyond`]): a table
/// of the thing's own colour would be taken for a part of it.
fn unseen_thing(
    centres: &[Vector3<f64>],
    around: &[Neighbourhood],
    smooth: &[f32],
    background: &[bool],
    place: &Vector3<f64>,
    radius: f64,
    options: &LabelOptions,
) -> Vec<bool> {
    let mut reached = vec![false; centres.len()];
    let there = Neighbours::new(centres).nearest(place, options.neighbours + 1);
    let salient = there.iter().map(|(_, i)| smooth[*i as usize]).sum::<f32>() / there.len().max(1) as f32;
    if salient > options.salient {
        return reached;
    }
    // By Gaussian: those that have it for a neighbour. Each is asked again when it is reached, and only then: what is thin and long
    // costs no more than what is compact.
    let mut asking: Vec<Vec<u32>> = vec![Vec::new(); centres.len()];
    for (i, neighbours) in around.iter().enumerate() {
        neighbours.iter().for_each(|(j, _)| asking[*j as usize].push(i as u32));
    }
    let mut left: Vec<u32> = there.into_iter().map(|(_, i)| i).filter(|i| !background[*i as usize]).collect();
    left.iter().for_each(|i| reached[*i as usize] = true);
    while let Some(from) = left.pop() {
        for &i in &asking[from as usize] {
            let at = i as usize;
            if reached[at] || background[at] {
                continue;
            }
            let is_neighbour_reached = |(j, _): &&(u32, f32)| reached[*j as usize];
            let part: f32 = around[at].iter().filter(is_neighbour_reached).map(|(_, weight)| weight).sum();
            if part > options.pointed_link {
                reached[at] = true;
                left.push(i);
            }
        }
    }
    let thing: Vec<&Vector3<f64>> =
        centres.iter().zip(&reached).filter(|(_, is_reached)| **is_reached).map(|(p, _)| p).collect();
    let middle = thing.iter().copied().sum::<Vector3<f64>>() / thing.len().max(1) as f64;
    let beyond = thing.iter().filter(|p| (**p - middle).norm() > radius).count();
    if beyond as f64 > options.pointed_beyond * thing.len() as f64 {
        return vec![false; centres.len()];
    }
    reached
}

/// Neighbours of a Gaussian and their weights, which sum to 1: the more alike the colour, the more.
type Neighbourhood = Vec<(u32, f32)>;

fn neighbourhoods(scene: &QuickScene, options: &LabelOptions) -> Vec<Neighbourhood> {
    let centres = &scene.centres;
    let tree = Neighbours::new(centres);
    (0..centres.len())
        .into_par_iter()
        .map(|i| {
            let colour = scene.colour(i);
            let weigh = |(_, j): (f64, u32)| {
                let other = scene.colour(j as usize);
                let square: f32 = (0..3).map(|c| (colour[c] - other[c]).powi(2)).sum();
                (j, (-0.5 * square / (options.same_colour * options.same_colour)).exp())
            };
            let mut around: Neighbourhood =
                tree.nearest(&centres[i], options.neighbours + 1).into_iter().map(weigh).collect();
            let sum: f32 = around.iter().map(|a| a.1).sum();
            around.iter_mut().for_each(|a| a.1 /= sum.max(1e-6));
            around
        })
        .collect()
}

/// Saliency averaged over neighbours in space, many times, so that it spreads over surfaces of one colour: what the
/// network misses on one part of a roof it finds on another.
fn smoothed(around: &[Neighbourhood], votes: &[Votes], options: &LabelOptions) -> Vec<f32> {
    let own: Vec<f32> = votes.iter().map(|v| v.mean()).collect();
    let mut smooth = own.clone();
    for _ in 0..options.smoothings {
        smooth = around
            .par_iter()
            .zip(&own)
            .map(|(around, own)| {
                let mean: f32 = around.iter().map(|&(j, weight)| weight * smooth[j as usize]).sum();
                options.kept * own + (1.0 - options.kept) * mean
            })
            .collect();
    }
    smooth
}

#[cfg(test)]
mod tests {
    use glam::{DMat3, Vec3, dvec3};

    use super::*;
    use crate::raster;
    use crate::splats::{IDENTITY, SH_C0, Splats};

    #[test]
    fn what_is_hidden_is_not_voted_on() {
        // A wall of Gaussians before the first camera, one Gaussian far behind it, and a second camera behind that.
        let mut splats = Splats { sh_degree: 0, ..Splats::default() };
        let mut add = |mean: [f32; 3]| {
            splats.means.push(mean.into());
            splats.log_scales.push(Vec3::splat(0.1f32.ln()));
            splats.rotations.push(IDENTITY);
            splats.opacities.push(4.0);
            splats.sh.extend([0.1 / SH_C0; 3]);
        };
        add([0.0, 0.0, 4.0]);
        for k in 0..441i16 {
            add([f32::from(k % 21 - 10) * 0.1, f32::from(k / 21 - 10) * 0.1, 2.0]);
        }
        let scene = QuickScene::of(splats);
        let camera = |z: f64, forward: f64| raster::View {
            rotation: DMat3::from_diagonal(dvec3(forward, 1.0, forward)),
            translation: dvec3(0.0, 0.0, -z * forward),
            fx: 80.0,
            fy: 80.0,
            cx: 40.0,
            cy: 40.0,
            width: 80,
            height: 80,
        };
        let view = |camera, value| SalientView {
            camera,
            saliency: vec![value; 80 * 80],
            colours: [[0; 3]; 80 * 80].into(),
        };
        let views = [view(camera(0.0, 1.0), 255), view(camera(6.0, -1.0), 51)];
        let focus = Vector3::new(0.0, 0.0, 3.0);
        let gaze = Gaze { focus, converges: true, distance: 3.0, up: -Vector3::y() };
        let votes = votes(&scene, &views.each_ref(), &gaze, &LabelOptions::default()).unwrap();
        assert_eq!(votes[0].views, 1);
        assert!((votes[0].mean() - 0.2).abs() < 1e-6);
        // The wall hides itself from nobody but where the single one stands before it.
        assert_eq!(votes[1].views, 2);
        assert!((votes[1].mean() - 0.6).abs() < 1e-6);
    }
}
