//! The surface on which the object stands: of the nearly level planes near the place at which the cameras look, the
//! highest that is not a part of the object itself and has nothing of the object below it. Where there is none, the wall on which
//! it hangs: such a plane that faces the cameras, whichever way.

use nalgebra::{Matrix3, Vector3};

use crate::camera::Gaze;
use crate::defaults::with_defaults;
use crate::random::Random;
use crate::statistics::{SIGMA_OF_MAD, median};

/// A plane and how flat its points are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SupportPlane {
    /// Unit normal, away from the ground.
    pub(super) normal: Vector3<f64>,
    /// A point of it.
    pub(super) point: Vector3<f64>,
    /// Standard deviation of its points from it (robust), world units.
    pub(super) deviation: f64,
    /// Whether it is no ground but a wall: it may carry anything else beside the object, and the normal says nothing of up.
    pub(super) is_wall: bool,
}

impl SupportPlane {
    /// Height of a point above it, world units.
    pub(super) fn height(&self, point: &Vector3<f64>) -> f64 {
        (point - self.point).dot(&self.normal)
    }
}

with_defaults! {
    /// When a plane carries the object. "The distance" is that of the cameras from the place at which they look
    /// ([`Gaze::distance`]). All chosen by hand.
    #[derive(Debug, Clone, PartialEq)]
    pub(super) struct SupportPlaneOptions {
        /// Least cosine of the angle between the normal and the scene's up: 28 degrees.
        pub(super) level: f64 = 0.88,
        /// Least cosine of the angle between a wall's normal and the mean direction to the cameras: 60 degrees.
        pub(super) facing: f64 = 0.5,
        /// Cameras are so far before a wall, in units of the distance,
        pub(super) before: f64 = 0.25,
        /// all of them but this part (0 to 1).
        pub(super) most_behind: f64 = 0.1,
        /// Part (0 to 1) of the points, as they count, that a wall must hold: it is seen all around the object. Other flat things
        /// may hold as much as a ground must.
        pub(super) least_wall: f64 = 0.1,
        /// Points this near to a plane, in units of the distance, belong to it.
        pub(super) thickness: f64 = 0.006,
        /// Standard deviation, in units of the distance, of the Gaussian around the focus by which points count; beyond
        /// the distance itself they do not count at all.
        pub(super) width: f64 = 0.4,
        /// Number of planes that are looked at, the largest first.
        pub(super) candidates: usize = 4,
        /// Number of triples of points that are tried for each.
        pub(super) trials: usize = 800,
        /// Number of fits to its points that refine the best of them.
        pub(super) refits: usize = 3,
        /// Number of points that are looked at: more make no difference to where a plane is.
        pub(super) sample: usize = 20_000,
        /// Number of points without which there is no plane.
        pub(super) least_points: usize = 50,
        /// A plane whose points have more than this mean saliency (0 to 1) belongs to the object.
        pub(super) most_salient: f64 = 0.5,
        /// Part (0 to 1) of all saliency that may be below the plane.
        pub(super) most_below: f64 = 0.2,
        /// What stands on a plane is not crossed by it. Of the saliency within this distance above the plane, in thicknesses, but not right
        /// at it,
        pub(super) beside: f64 = 10.0,
        /// this part (0 to 1) at most may be as near below it. Below the tables of four films and a carpet it was 0.02 at most, below most
        /// planes through things on these 0.2 to 1.8: the top of a pile of books beside a vase, where the table was blank.
        pub(super) most_crossing: f64 = 0.2,
        /// It does not matter if it is less than this part (0 to 1) of all saliency.
        pub(super) least_crossing: f64 = 0.01,
        /// Part (0 to 1) of the points, as they count, that the plane must hold.
        pub(super) least_support: f64 = 0.04,
        /// Part (0 to 1) of the largest such plane's points, and of the widest one's extent, that a higher one must have: the top of a
        /// pedestal carries something, too, but is a part of the object. Points alone do not tell: a top of marble holds half as many
        /// as the plain table on which it stands, and has a fifth of its extent.
        pub(super) beside_largest: f64 = 0.4,
    }
}

/// Finds the plane among `points` with their saliency (0 to 1), seen by cameras with these `centres`. `None` if there is none, as
/// for an object on a plain ground, in the air, or filmed against the sky.
pub(super) fn find(
    points: &[(Vector3<f64>, f64)],
    centres: &[Vector3<f64>],
    gaze: &Gaze,
    options: &SupportPlaneOptions,
) -> Option<SupportPlane> {
    let stride = points.len().div_ceil(options.sample.max(1)).max(1);
    let weight = |p: &Vector3<f64>| {
        let distance = (p - gaze.focus).norm() / gaze.distance;
        if distance < 1.0 { (-0.5 * (distance / options.width).powi(2)).exp() } else { 0.0 }
    };
    let points: Vec<Weighted> = points
        .iter()
        .step_by(stride)
        .map(|(position, saliency)| Weighted {
            position: *position,
            saliency: *saliency,
            weight: weight(position),
        })
        .filter(|p| p.weight > 0.0)
        .collect();
    let ground = Facing { direction: gaze.up, least: options.level };
    carrying(&points, &ground, options.least_support, gaze, options).or_else(|| {
        let to_cameras = centres.iter().filter_map(|c| (c - gaze.focus).try_normalize(1e-12));
        let direction = to_cameras.sum::<Vector3<f64>>().try_normalize(1e-12)?;
        let wall = Facing { direction, least: options.facing };
        let wall = carrying(&points, &wall, options.least_wall, gaze, options)?;
        let is_behind = |centre: &&Vector3<f64>| wall.height(centre) < options.before * gaze.distance;
        let behind = centres.iter().filter(is_behind).count() as f64;
        (behind <= options.most_behind * centres.len() as f64)
            .then_some(SupportPlane { is_wall: true, ..wall })
    })
}

/// Which way a plane faces: the cosine of the angle between its normal and the direction is this at least.
struct Facing {
    direction: Vector3<f64>,
    least: f64,
}

/// Of the planes that face so, hold this part of all points at least and may carry the object, the highest.
fn carrying(
    points: &[Weighted],
    facing: &Facing,
    least_support: f64,
    gaze: &Gaze,
    options: &SupportPlaneOptions,
) -> Option<SupportPlane> {
    let total: f64 = points.iter().map(|p| p.weight).sum();
    let salient: f64 = points.iter().map(|p| p.weight * p.saliency).sum();
    let thickness = options.thickness * gaze.distance;
    let mut left = points.to_vec();
    let mut carrying: Vec<Carrying> = Vec::new();
    for round in 0..options.candidates {
        let Some(plane) = largest_plane(&left, facing, thickness, options, round as u64) else { break };
        let own: Vec<&Weighted> =
            left.iter().filter(|p| plane.height(&p.position).abs() < thickness).collect();
        let support: f64 = own.iter().map(|p| p.weight).sum();
        let own_saliency = own.iter().map(|p| p.weight * p.saliency).sum::<f64>() / support.max(1e-12);
        let below: f64 = points
            .iter()
            .filter(|p| plane.height(&p.position) < -2.0 * thickness)
            .map(|p| p.weight * p.saliency)
            .sum();
        let beside = |sign: f64| -> f64 {
            let range = 2.0 * thickness..options.beside * thickness;
            let is_beside = |p: &&Weighted| range.contains(&(sign * plane.height(&p.position)));
            points.iter().filter(is_beside).map(|p| p.weight * p.saliency).sum()
        };
        let crossing = beside(-1.0);
        let is_crossed =
            crossing > options.most_crossing * beside(1.0) && crossing > options.least_crossing * salient;
        let carries = own_saliency < options.most_salient
            && below < options.most_below * salient
            && !is_crossed
            && support > least_support * total;
        if carries {
            carrying.push(Carrying { plane, support, extent: extent(&own, support) });
        }
        left.retain(|p| plane.height(&p.position).abs() > 2.0 * thickness);
    }
    for size in [|c: &Carrying| c.support, |c: &Carrying| c.extent] {
        let largest = carrying.iter().map(size).fold(0.0, f64::max);
        carrying.retain(|c| size(c) >= options.beside_largest * largest);
    }
    let planes = carrying.into_iter().map(|c| c.plane);
    planes.min_by(|a, b| a.height(&gaze.focus).total_cmp(&b.height(&gaze.focus)))
}

/// A plane that may carry the object.
struct Carrying {
    plane: SupportPlane,
    /// Number of its points, as they count.
    support: f64,
    extent: f64,
}

/// How much of the space around the focus a plane takes whose `own` points count so much in all, whatever its texture: the square
/// (world units) of the distance from their middle within which half of them lie, as they count in the mean.
fn extent(own: &[&Weighted], support: f64) -> f64 {
    let middle = own.iter().map(|p| p.weight * p.position).sum::<Vector3<f64>>() / support;
    let mut squares: Vec<(f64, f64)> =
        own.iter().map(|p| ((p.position - middle).norm_squared(), p.weight)).collect();
    squares.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut sum = 0.0;
    let half = squares.iter().find(|(_, weight)| {
        sum += weight;
        sum >= 0.5 * support
    });
    half.map_or(0.0, |(square, _)| square * support / own.len() as f64)
}

#[derive(Clone)]
struct Weighted {
    position: Vector3<f64>,
    saliency: f64,
    weight: f64,
}

/// The plane facing so that holds most of what is not salient (RANSAC), fitted to its points.
fn largest_plane(
    points: &[Weighted],
    facing: &Facing,
    thickness: f64,
    options: &SupportPlaneOptions,
    seed: u64,
) -> Option<SupportPlane> {
    if points.len() < options.least_points {
        return None;
    }
    let mut sums = Vec::with_capacity(points.len());
    let mut sum = 0.0;
    for p in points {
        sum += p.weight * (1.0 - p.saliency);
        sums.push(sum);
    }
    let mut random = Random::new(seed);
    let draw = |random: &mut Random| {
        let target = random.uniform() * sum;
        let at = sums.partition_point(|s| *s < target);
        points[at.min(points.len() - 1)].position
    };
    let mut best: Option<(f64, Vector3<f64>, Vector3<f64>)> = None;
    for _ in 0..options.trials {
        let [a, b, c] = [draw(&mut random), draw(&mut random), draw(&mut random)];
        let Some(normal) = (b - a).cross(&(c - a)).try_normalize(1e-12) else { continue };
        let normal = if normal.dot(&facing.direction) < 0.0 { -normal } else { normal };
        if normal.dot(&facing.direction) < facing.least {
            continue;
        }
        let near = |p: &&Weighted| (p.position - a).dot(&normal).abs() < thickness;
        let score: f64 = points.iter().filter(near).map(|p| p.weight * (1.0 - p.saliency)).sum();
        if best.as_ref().is_none_or(|(s, ..)| score > *s) {
            best = Some((score, normal, a));
        }
    }
    let (_, mut normal, mut point) = best?;
    for _ in 0..options.refits {
        let near: Vec<&Weighted> =
            points.iter().filter(|p| (p.position - point).dot(&normal).abs() < thickness).collect();
        let total: f64 = near.iter().map(|p| p.weight).sum();
        if near.len() < 3 || total <= 0.0 {
            return None;
        }
        point = near.iter().map(|p| p.weight * p.position).sum::<Vector3<f64>>() / total;
        let mut scatter = Matrix3::zeros();
        for p in &near {
            let d = p.position - point;
            scatter += p.weight * d * d.transpose();
        }
        let eigen = scatter.symmetric_eigen();
        let fitted: Vector3<f64> = eigen.eigenvectors.column(eigen.eigenvalues.imin()).into_owned();
        normal = if fitted.dot(&facing.direction) < 0.0 { -fitted } else { fitted };
    }
    let mut deviations: Vec<f64> =
        points.iter().map(|p| (p.position - point).dot(&normal).abs()).filter(|d| *d < thickness).collect();
    let deviation = SIGMA_OF_MAD * median(&mut deviations)?;
    (normal.dot(&facing.direction) > facing.least).then_some(SupportPlane {
        normal,
        point,
        deviation,
        is_wall: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table at y = 0.5 with a salient ball on it, a floor at y = 1.2, and some noise. Up is -y.
    fn room(table_saliency: f64) -> (Vec<(Vector3<f64>, f64)>, Gaze) {
        let mut random = Random::new(3);
        let mut unit = || 2.0 * random.uniform() - 1.0;
        let mut points = Vec::new();
        for _ in 0..1500 {
            points.push((Vector3::new(0.6 * unit(), 0.5 + 0.003 * unit(), 0.6 * unit()), table_saliency));
            points.push((Vector3::new(2.0 * unit(), 1.2 + 0.003 * unit(), 2.0 * unit()), 0.0));
            let direction = Vector3::new(unit(), unit(), unit()).try_normalize(1e-6).unwrap_or(Vector3::x());
            points.push((Vector3::new(0.0, 0.3, 0.0) + 0.2 * direction, 0.9));
            points.push((Vector3::new(2.0 * unit(), 2.0 * unit(), 2.0 * unit()), 0.05));
        }
        let focus = Vector3::new(0.0, 0.35, 0.0);
        (points, Gaze { focus, converges: true, distance: 2.0, up: -Vector3::y() })
    }

    #[test]
    fn the_table_is_found_and_not_the_larger_floor() {
        let ((points, gaze), options) = (room(0.02), SupportPlaneOptions::default());
        let plane = find(&points, &[], &gaze, &options).unwrap();
        assert!(!plane.is_wall);
        assert!((plane.height(&Vector3::new(0.3, 0.0, 0.2)) - 0.5).abs() < 0.005, "{plane:?}");
        assert!(plane.normal.dot(&gaze.up) > 0.999);
        assert!(plane.deviation < 0.01);
        assert_eq!(find(&points, &[], &gaze, &options), Some(plane));
    }

    #[test]
    fn the_textured_top_of_a_pedestal_is_not_what_carries_the_object() {
        // On the table stands a plinth, a quarter as long, whose top has nearly as many points, and the ball on it.
        let ((mut points, gaze), options) = (room(0.02), SupportPlaneOptions::default());
        let mut random = Random::new(5);
        let mut unit = || 2.0 * random.uniform() - 1.0;
        for _ in 0..1300 {
            points.push((Vector3::new(0.15 * unit(), 0.4 + 0.003 * unit(), 0.15 * unit()), 0.1));
        }
        let plane = find(&points, &[], &gaze, &options).unwrap();
        assert!((plane.height(&Vector3::zeros()) - 0.5).abs() < 0.005, "{plane:?}");
    }

    #[test]
    fn a_plane_that_the_object_crosses_does_not_carry_it() {
        // Of the table few points are known. Beside the ball a box stands on it, whose top has as many and is as wide.
        let ((points, gaze), options) = (room(0.02), SupportPlaneOptions::default());
        let is_on_table = |p: &Vector3<f64>| (p.y - 0.5).abs() < 0.01;
        let mut points: Vec<(Vector3<f64>, f64)> = (points.into_iter().enumerate())
            .filter(|(i, (p, _))| !is_on_table(p) || i % 3 == 0)
            .map(|(_, point)| point)
            .collect();
        let mut random = Random::new(5);
        let mut unit = || 2.0 * random.uniform() - 1.0;
        for _ in 0..700 {
            let top = Vector3::new(0.35 + 0.3 * unit(), 0.42 + 0.003 * unit(), 0.5 * unit());
            points.push((top, 0.1));
        }
        let plane = find(&points, &[], &gaze, &options).unwrap();
        assert!((plane.height(&Vector3::zeros()) - 0.5).abs() < 0.005, "{plane:?}");
        let any = SupportPlaneOptions { most_crossing: f64::INFINITY, ..options };
        let plane = find(&points, &[], &gaze, &any).unwrap();
        assert!((plane.height(&Vector3::zeros()) - 0.42).abs() < 0.005, "{plane:?}");
    }

    #[test]
    fn a_plane_of_the_object_carries_nothing() {
        // What lies in the table's plane is as salient as the ball: only the floor is left to stand on.
        let ((points, gaze), options) = (room(0.9), SupportPlaneOptions::default());
        let plane = find(&points, &[], &gaze, &options).unwrap();
        assert!((plane.height(&Vector3::zeros()) - 1.2).abs() < 0.01, "{plane:?}");
        assert!(find(&points[..30], &[], &gaze, &options).is_none());
    }

    #[test]
    fn a_wall_carries_what_is_seen_before_it() {
        // The same turned on its side: the table is a wall at x = 0.5, on which the ball hangs.
        let (points, gaze) = room(0.02);
        let turned = |p: &Vector3<f64>| Vector3::new(p.y, p.x, p.z);
        let points: Vec<(Vector3<f64>, f64)> = points.iter().map(|(p, s)| (turned(p), *s)).collect();
        let (gaze, options) = (Gaze { focus: turned(&gaze.focus), ..gaze }, SupportPlaneOptions::default());
        let at = |degrees: f64| {
            let angle = degrees.to_radians();
            gaze.focus + gaze.distance * Vector3::new(-angle.cos(), 0.0, angle.sin())
        };
        let before: Vec<Vector3<f64>> = (-6..=6).map(|k| at(10.0 * f64::from(k))).collect();
        let wall = find(&points, &before, &gaze, &options).unwrap();
        assert!(wall.is_wall && wall.normal.x < -0.999, "{wall:?}");
        assert!((wall.height(&Vector3::zeros()) - 0.5).abs() < 0.005, "{wall:?}");
        // Who goes all around the ball sees what looks like one from behind, too; and who sees it edge-on sees none.
        let around: Vec<Vector3<f64>> = (0..24).map(|k| at(15.0 * f64::from(k))).collect();
        assert_eq!(find(&points, &around, &gaze, &options), None);
        let beside: Vec<Vector3<f64>> = (0..12).map(|k| at(85.0 + f64::from(k))).collect();
        assert_eq!(find(&points, &beside, &gaze, &options), None);
    }
}
