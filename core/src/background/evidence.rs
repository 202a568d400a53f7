//! Which Gaussians of a scene are the object: where the cameras look, what stands above the ground there, and how often the
//! network found each salient.

use nalgebra::{Matrix3, Vector3};
use rayon::prelude::*;

use super::quick_scene::QuickScene;
use super::support_plane::{self, SupportPlane};
use super::views::{View, pixel, project};
use crate::error::Result;
use crate::raster;
use crate::statistics::median;
use crate::train::{Neighbours, centre};

/// Where the capture takes place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stage {
    /// The point that most cameras look at.
    pub(super) focus: Vector3<f64>,
    /// Median distance from it of the cameras that show it.
    pub(super) distance: f64,
    /// The scene's up, unit length.
    pub(super) up: Vector3<f64>,
}

/// What the Gaussians of a scene were found to be.
pub(super) struct Evidence {
    /// By Gaussian: how far it is of the object (1) or of the background (0); `None` where it cannot be told.
    pub(super) object: Vec<Option<f32>>,
    /// What the object stands on.
    pub(super) plane: Option<SupportPlane>,
}

/// Levelled scenes have their up here.
const WORLD_UP: Vector3<f64> = Vector3::new(0.0, -1.0, 0.0);
/// What stands on the plane within this part of the cameras' distance from the focus (along the plane) is the object.
const STAGE_RADIUS: f64 = 0.4;
/// A Gaussian is above the plane from this height on, in units of the distance to the cameras,
const CLEARANCE: f64 = 0.004;
/// and from this many standard deviations of the plane's points.
const DEVIATIONS: f64 = 3.0;
/// Up to this part of the clearance it is of the plane.
const ON_PLANE: f64 = 0.5;
/// What is at least this salient, with its neighbours, belongs to the object; a network that finds only a part of a large
/// object in each view finds every part in some.
const SALIENT: f32 = 0.15;
/// Below this it belongs to the background.
const PLAIN: f32 = 0.1;
/// Without a plane to stand on, what is farther from the focus (in units of the cameras' distance) is background.
const FAR: f64 = 1.2;
/// A foot is seen by at least so many views,
const FOOT_VIEWS: u32 = 3;
/// and as salient as this in the mean.
const FOOT_SALIENT: f32 = 0.5;
/// What goes on from a Gaussian to the next: many weak links make no foot.
const REACHED: f32 = 0.9;
const NEIGHBOURS: usize = 12;
const SMOOTHINGS: usize = 40;
/// What each smoothing keeps of a Gaussian's own votes.
const KEPT: f32 = 0.05;
/// Neighbours whose colours (0 to 1) differ by more than this count little.
const SAME_COLOUR: f32 = 0.1;
/// A Gaussian is seen by a view if it lies before the surface that is seen there, or behind it by less than this part of the
/// cameras' distance.
const DEPTH_MARGIN: f64 = 0.03;
/// At most so many cameras are paired in search of the place that most look at,
const PAIRED: usize = 64;
/// which is then fitted to their rays so often.
const REFITS: usize = 10;
/// What is seen within this part of the picture's long side from its middle is looked at.
const MIDDLE: f64 = 0.1;
/// Surfaces are told apart up to this distance from the focus, in units of the cameras'.
const REACH: f64 = 2.0;

impl Stage {
    /// Where most of `cameras` look, and the scene's up. Cameras that look elsewhere have no part in it. `None` if there is no
    /// such place.
    pub(super) fn of(cameras: &[raster::View]) -> Option<Self> {
        let focus = gaze(cameras)?;
        let mut showing: Vec<&raster::View> = cameras.iter().filter(|c| shows(c, &focus)).collect();
        if showing.is_empty() {
            // Cameras that turn on the spot: nothing is at the focus, and no view will vote.
            showing = cameras.iter().collect();
        }
        let mut distances: Vec<f64> = showing.iter().map(|c| (centre(c) - focus).norm()).collect();
        let distance = median(&mut distances)?;
        let up = showing.iter().map(|c| -axis(c, 1)).sum::<Vector3<f64>>().try_normalize(1e-9)?;
        let up = if up.dot(&WORLD_UP) > 0.75 { WORLD_UP } else { up };
        (distance > 0.0 && focus.iter().all(|v| v.is_finite())).then_some(Self { focus, distance, up })
    }

    /// Whether the focus is in the picture of `camera`.
    pub(super) fn is_shown_by(&self, camera: &raster::View) -> bool {
        shows(camera, &self.focus)
    }
}

/// The point that most of `cameras` look at. If all show the point nearest to all viewing rays, it is that. Else some turn away
/// and would pull it with them: of the points nearest to two rays, the one that most have in the middle of the picture begins,
/// and rays that pass far from it count little.
fn gaze(cameras: &[raster::View]) -> Option<Vector3<f64>> {
    let weigh = |point: &Vector3<f64>| -> Vec<f64> { cameras.iter().map(|c| centred(c, point)).collect() };
    let mut focus = nearest_to_rays(cameras.iter().map(|c| (c, 1.0)))?;
    if !cameras.iter().all(|c| shows(c, &focus)) {
        let mut most = weigh(&focus).iter().sum::<f64>();
        let stride = cameras.len().div_ceil(PAIRED).max(1);
        let some: Vec<&raster::View> = cameras.iter().step_by(stride).collect();
        for (k, a) in some.iter().enumerate() {
            for b in &some[k + 1..] {
                let Some(point) = nearest_to_rays([(*a, 1.0), (*b, 1.0)]) else { continue };
                let centred = weigh(&point).iter().sum::<f64>();
                if centred > most {
                    (focus, most) = (point, centred);
                }
            }
        }
        for _ in 0..REFITS {
            let Some(point) = nearest_to_rays(cameras.iter().zip(weigh(&focus))) else { break };
            focus = point;
        }
    }
    Some(focus)
}

/// The point with the least sum of squared distances from the viewing rays, which have weights.
fn nearest_to_rays<'a>(cameras: impl IntoIterator<Item = (&'a raster::View, f64)>) -> Option<Vector3<f64>> {
    let (mut a, mut b) = (Matrix3::<f64>::zeros(), Vector3::<f64>::zeros());
    let (mut centres, mut weights) = (Vector3::<f64>::zeros(), 0.0);
    for (camera, weight) in cameras {
        let (forward, centre) = (axis(camera, 2), centre(camera));
        let across = weight * (Matrix3::identity() - forward * forward.transpose());
        a += across;
        b += across * centre;
        centres += weight * centre;
        weights += weight;
    }
    // Rays that are parallel meet nowhere: a little weight keeps the focus near the cameras then.
    let inverse: Matrix3<f64> = (a + Matrix3::<f64>::identity() * (1e-6 * weights)).try_inverse()?;
    Some(inverse * (b + centres * 1e-6))
}

/// A row of the camera's rotation: its x, y or z axis in the world.
fn axis(camera: &raster::View, row: usize) -> Vector3<f64> {
    Vector3::from(camera.rotation[row])
}

fn shows(camera: &raster::View, point: &Vector3<f64>) -> bool {
    project(camera, point).is_some_and(|(x, y, _)| pixel(camera, x, y).is_some())
}

/// How near to the middle of the picture the point is seen: 1 there, 1/2 at [`MIDDLE`], 0 if it is not in the picture.
fn centred(camera: &raster::View, point: &Vector3<f64>) -> f64 {
    let Some((x, y, _)) = project(camera, point).filter(|(x, y, _)| pixel(camera, *x, *y).is_some()) else {
        return 0.0;
    };
    let long = MIDDLE * f64::from(camera.width.max(camera.height));
    1.0 / (1.0 + ((x - camera.cx) / long).powi(2) + ((y - camera.cy) / long).powi(2))
}

impl Evidence {
    /// What to paint a Gaussian with: object, unknown.
    pub(super) fn paint(&self, gaussian: usize) -> [f32; 3] {
        match self.object[gaussian] {
            Some(object) => [object, 0.0, 0.0],
            None => [0.0, 1.0, 0.0],
        }
    }
}

/// Tells object from background among the Gaussians of `scene`. Views that do not show the focus have no vote: what is
/// salient in them is something else.
///
/// # Errors
/// Those of the rasteriser.
pub(super) fn weigh(scene: &QuickScene, views: &[View], stage: &Stage) -> Result<Evidence> {
    let views: Vec<&View> = views.iter().filter(|v| stage.is_shown_by(&v.camera)).collect();
    let votes = votes(scene, &views, stage)?;
    let seen: Vec<(Vector3<f64>, f64)> = scene
        .centres
        .iter()
        .zip(&votes)
        .filter(|(_, v)| v.views >= 2)
        .map(|(p, v)| (*p, f64::from(v.mean())))
        .collect();
    let plane = support_plane::find(&seen, stage);
    let around = neighbourhoods(scene);
    let smooth = smoothed(&around, &votes);
    let object = match &plane {
        Some(plane) => {
            let standing = above(&scene.centres, &smooth, plane, stage, &views);
            with_feet(&around, &standing, &votes).into_iter().map(Some).collect()
        }
        None => scene
            .centres
            .iter()
            .zip(&smooth)
            .zip(&votes)
            .map(|((p, salient), votes)| {
                let far = (p - stage.focus).norm() > FAR * stage.distance;
                match *salient {
                    s if far || s < PLAIN => Some(0.0),
                    s if s > SALIENT && votes.views >= 2 => Some(1.0),
                    _ => None,
                }
            })
            .collect(),
    };
    Ok(Evidence { object, plane })
}

/// What the network says of a Gaussian in the views that see it.
#[derive(Clone, Copy, Default)]
struct Votes {
    saliency: f32,
    views: u32,
}

impl Votes {
    fn mean(self) -> f32 {
        self.saliency / self.views.max(1) as f32
    }
}

fn votes(scene: &QuickScene, views: &[&View], stage: &Stage) -> Result<Vec<Votes>> {
    let reach = REACH * stage.distance;
    // Painted with its place, the scene shows where each pixel's surface is.
    let mut places = scene.painted(|i| {
        let offset = (scene.centres[i] - stage.focus) / reach;
        std::array::from_fn(|k| (0.5 + 0.5 * offset[k]).clamp(0.0, 1.0) as f32)
    })?;
    let margin = DEPTH_MARGIN * stage.distance;
    let mut votes = vec![Votes::default(); scene.centres.len()];
    for view in views {
        let surfaces = places.seen_by(&view.camera)?;
        votes.par_iter_mut().zip(&scene.centres).for_each(|(votes, centre)| {
            let Some((x, y, depth)) = project(&view.camera, centre) else { return };
            let Some(pixel) = pixel(&view.camera, x, y) else { return };
            let [a, b, c, weight] = surfaces[pixel].map(f64::from);
            let hidden = weight > 0.5 && {
                let place =
                    stage.focus + (2.0 * Vector3::new(a, b, c) / weight - Vector3::repeat(1.0)) * reach;
                project(&view.camera, &place).is_some_and(|surface| surface.2 < depth - margin)
            };
            if !hidden {
                votes.views += 1;
                votes.saliency += f32::from(view.saliency[pixel]) / 255.0;
            }
        });
    }
    Ok(votes)
}

/// By height above the plane and distance from where the cameras look.
fn above(
    centres: &[Vector3<f64>],
    smooth: &[f32],
    plane: &SupportPlane,
    stage: &Stage,
    views: &[&View],
) -> Vec<f32> {
    let clearance = (CLEARANCE * stage.distance).max(DEVIATIONS * plane.deviation);
    let along = |p: &Vector3<f64>| {
        let d = p - stage.focus;
        (d - plane.normal * d.dot(&plane.normal)).norm()
    };
    let mut radii: Vec<f64> = views.iter().map(|v| along(&centre(&v.camera))).collect();
    // Cameras straight above have no radius to speak of.
    let radius = median(&mut radii).unwrap_or(0.0).max(0.5 * stage.distance);
    centres
        .iter()
        .zip(smooth)
        .map(|(p, salient)| {
            let (height, distance) = (plane.height(p), along(p));
            let inside = distance < STAGE_RADIUS * radius || (distance < radius && *salient > SALIENT);
            let above = (height / clearance - ON_PLANE) / (1.0 - ON_PLANE);
            if inside { above.clamp(0.0, 1.0) as f32 } else { 0.0 }
        })
        .collect()
}

/// Adds to what stands above the plane its feet: what lies in the plane, or is reflected below it, but is salient in most views
/// and goes on, in its own colour, into what stands. A sheet of paper that lies about is salient, too, but ends in itself.
fn with_feet(around: &[Neighbourhood], standing: &[f32], votes: &[Votes]) -> Vec<f32> {
    let may_be_foot: Vec<bool> = standing
        .iter()
        .zip(votes)
        .map(|(s, v)| *s < 0.5 && v.views >= FOOT_VIEWS && v.mean() > FOOT_SALIENT)
        .collect();
    let mut reached = standing.to_vec();
    for _ in 0..SMOOTHINGS {
        reached = (around.par_iter().zip(&may_be_foot).zip(standing))
            .map(|((around, may_be_foot), standing)| match may_be_foot {
                true => REACHED * around.iter().map(|&(j, weight)| weight * reached[j as usize]).sum::<f32>(),
                false => *standing,
            })
            .collect();
    }
    standing.iter().zip(&reached).map(|(s, r)| if *r > 0.5 { 1.0 } else { *s }).collect()
}

/// Neighbours of a Gaussian, and how much each counts: 1 in sum, more where the colour is the same.
type Neighbourhood = Vec<(u32, f32)>;

fn neighbourhoods(scene: &QuickScene) -> Vec<Neighbourhood> {
    let centres = &scene.centres;
    let tree = Neighbours::new(centres);
    (0..centres.len())
        .into_par_iter()
        .map(|i| {
            let colour = scene.colour(i);
            let weigh = |(_, j): (f64, u32)| {
                let other = scene.colour(j as usize);
                let square: f32 = (0..3).map(|c| (colour[c] - other[c]).powi(2)).sum();
                (j, (-0.5 * square / (SAME_COLOUR * SAME_COLOUR)).exp())
            };
            let mut around: Neighbourhood =
                tree.nearest(&centres[i], NEIGHBOURS + 1).into_iter().map(weigh).collect();
            let sum: f32 = around.iter().map(|a| a.1).sum();
            around.iter_mut().for_each(|a| a.1 /= sum.max(1e-6));
            around
        })
        .collect()
}

/// Saliency averaged over neighbours in space, many times, within surfaces of one colour: what the network misses on a roof it
/// finds on other parts of it.
fn smoothed(around: &[Neighbourhood], votes: &[Votes]) -> Vec<f32> {
    let own: Vec<f32> = votes.iter().map(|v| v.mean()).collect();
    let mut smooth = own.clone();
    for _ in 0..SMOOTHINGS {
        smooth = around
            .par_iter()
            .zip(&own)
            .map(|(around, own)| {
                let mean: f32 = around.iter().map(|&(j, weight)| weight * smooth[j as usize]).sum();
                KEPT * own + (1.0 - KEPT) * mean
            })
            .collect();
    }
    smooth
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::splats::{SH_C0, Splats};

    #[test]
    fn what_is_hidden_is_not_voted_on() {
        // A wall of Gaussians before the first camera, one Gaussian far behind it, and a second camera behind that.
        let mut splats = Splats { sh_degree: 0, ..Splats::default() };
        let mut add = |mean: [f32; 3]| {
            splats.means.push(mean);
            splats.log_scales.push([0.1f32.ln(); 3]);
            splats.rotations.push([1.0, 0.0, 0.0, 0.0]);
            splats.opacities.push(4.0);
            splats.sh.extend([0.1 / SH_C0; 3]);
        };
        add([0.0, 0.0, 4.0]);
        for k in 0..441i16 {
            add([f32::from(k % 21 - 10) * 0.1, f32::from(k / 21 - 10) * 0.1, 2.0]);
        }
        let scene = QuickScene::of(splats);
        let camera = |z: f64, forward: f64| raster::View {
            rotation: [[forward, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, forward]],
            translation: [0.0, 0.0, -z * forward],
            fx: 80.0,
            fy: 80.0,
            cx: 40.0,
            cy: 40.0,
            width: 80,
            height: 80,
        };
        let view = |camera, value| View { camera, saliency: vec![value; 80 * 80] };
        let views = [view(camera(0.0, 1.0), 255), view(camera(6.0, -1.0), 51)];
        let stage = Stage { focus: Vector3::new(0.0, 0.0, 3.0), distance: 3.0, up: -Vector3::y() };
        let votes = votes(&scene, &views.each_ref(), &stage).unwrap();
        assert_eq!(votes[0].views, 1);
        assert!((votes[0].mean() - 0.2).abs() < 1e-6);
        // The wall hides itself from nobody but where the single one stands before it.
        assert_eq!(votes[1].views, 2);
        assert!((votes[1].mean() - 0.6).abs() < 1e-6);
    }
}
