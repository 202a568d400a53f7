//! Points that go to their places between the steps of an adjustment.
//!
//! A robust loss makes steps too short where residuals lie in its tail: a point with an observation that is off by a few times the
//! noise slides to its place over dozens of steps, long after the cameras have come to rest, and each of these steps is one of
//! all cameras and points. But a point alone is three unknowns, and the few that still slide go there by steps of their own
//! ("embedded point iterations" of Jeong et al., "Pushing the Envelope of Modern Methods for Bundle Adjustment", 2010).

use rayon::prelude::*;

use super::{Problem, State, projectors};
use crate::sfm::projection::Projector;
use crate::sfm::schur::{CHUNK, factor3, unwhiten_vector, whiten_vector};

/// Steps of a point between two of everything, at most. Chosen by hand.
const MOST_STEPS: usize = 5;
/// A point has settled where a step would lower its cost by less than this, in squares of the keypoints' noise: half the square of
/// the step in standard deviations of the point. Chosen by hand.
const LEAST_GAIN: f64 = 0.01;
/// Damping of these steps, relative: only for points that are seen from one direction.
const DAMPING: f64 = 1e-6;

/// The equations of one point, and its cost.
struct OwnEquations {
    /// Sum of the losses.
    cost: f64,
    /// Lower triangle of `J^T J` (00, 10, 11, 20, 21, 22).
    normal: [f64; 6],
    /// `J^T r`
    gradient: [f64; 3],
}

impl OwnEquations {
    const EMPTY: Self = Self { cost: 0.0, normal: [0.0; 6], gradient: [0.0; 3] };

    /// The step that they ask for, and by how much it would lower the cost if they were exact. `None` where they are singular.
    fn step(&self) -> Option<([f64; 3], f64)> {
        let mut v = self.normal;
        for k in [0, 2, 5] {
            v[k] += DAMPING * v[k] + f64::MIN_POSITIVE;
        }
        let l = factor3(&v)?;
        let whitened = whiten_vector(&self.gradient, &l);
        Some((unwhiten_vector(&whitened, &l).map(|x| -x), half_square(&whitened)))
    }
}

fn half_square(y: &[f64; 3]) -> f64 {
    0.5 * (y[0] * y[0] + y[1] * y[1] + y[2] * y[2])
}

impl Problem<'_> {
    /// Moves points of `state` while cameras stay, each as far as that lowers its cost: those that had not settled before the
    /// last step, of which `whitened` are the gradients.
    pub(super) fn settle(&self, state: &mut State, whitened: &[[f64; 3]]) {
        let least = LEAST_GAIN * self.options.noise * self.options.noise;
        let projectors = projectors(state);
        let mut points = std::mem::take(&mut state.points);
        let chunks = points.par_chunks_mut(CHUNK).zip(whitened.par_chunks(CHUNK)).enumerate();
        chunks.for_each(|(chunk, (points, whitened))| {
            for (i, (point, y)) in points.iter_mut().zip(whitened).enumerate() {
                if half_square(y) > least {
                    self.settle_point(&projectors, state, chunk * CHUNK + i, point, least);
                }
            }
        });
        state.points = points;
    }

    /// Moves point `p`, which is at `point`, until a step gains less than `least`.
    fn settle_point(
        &self,
        projectors: &[Projector],
        state: &State,
        p: usize,
        point: &mut [f64; 3],
        least: f64,
    ) {
        let Some(mut own) = self.own_equations(projectors, state, p, point) else { return };
        for _ in 0..MOST_STEPS {
            let Some((step, gain)) = own.step() else { return };
            if gain < least {
                return;
            }
            let moved = [point[0] + step[0], point[1] + step[1], point[2] + step[2]];
            match self.own_equations(projectors, state, p, &moved) {
                Some(next) if next.cost < own.cost => (*point, own) = (moved, next),
                _ => return,
            }
        }
    }

    /// The equations of point `p` at `point`; `None` if that is behind a camera which sees it.
    fn own_equations(
        &self,
        projectors: &[Projector],
        state: &State,
        p: usize,
        point: &[f64; 3],
    ) -> Option<OwnEquations> {
        let mut own = OwnEquations::EMPTY;
        for o in self.seen(p) {
            let place = self.place(o);
            let projector = &projectors[self.others.index(place)];
            let mut l = projector.linearise(&state.extrinsics[place], point, &self.pixels[o])?;
            self.add_extra(state, o, &mut l.residual);
            let squared = l.residual[0] * l.residual[0] + l.residual[1] * l.residual[1];
            let (loss, weight) = self.options.loss.at(squared);
            own.cost += loss;
            for (q, r) in l.by_point.iter().zip(l.residual) {
                let s = q.map(|q| weight * q);
                let products = [s[0] * q[0], s[1] * q[0], s[1] * q[1], s[2] * q[0], s[2] * q[1], s[2] * q[2]];
                own.normal.iter_mut().zip(products).for_each(|(sum, product)| *sum += product);
                own.gradient.iter_mut().zip(s).for_each(|(sum, s)| *sum += s * r);
            }
        }
        Some(own)
    }
}

#[cfg(test)]
mod tests {
    use nalgebra::Vector3;

    use super::*;
    use crate::control::Control;
    use crate::random::Random;
    use crate::sfm::bundle_adjustment::{
        ASSUMED_NOISE, BundleOptions, PoseUnknowns, RefineIntrinsics, adjust,
    };
    use crate::sfm::levenberg_marquardt::Stopping;
    use crate::sfm::map::Map;
    use crate::sfm::projection::Loss;
    use crate::sfm::synthetic::Capture;

    static OPTIONS: BundleOptions = BundleOptions {
        loss: Loss::Cauchy(1.0),
        noise: ASSUMED_NOISE,
        rest: 0.0,
        stopping: Stopping { max_iterations: 100, tolerance: 1e-9 },
        poses: PoseUnknowns::All,
        intrinsics: RefineIntrinsics { focal: false, distortion: None, principal_point: None },
        other_centres: Vec::new(),
    };

    /// The true cameras, with points beside their places, a sixth of which have one observation that is some pixels off.
    fn spoiled() -> (Map, Vec<Vec<nalgebra::Vector2<f64>>>) {
        let capture = Capture::orbit(12, 400, 0.3, 5);
        let (mut map, mut keypoints) = (capture.true_map_with_points(), capture.keypoints.clone());
        let mut random = Random::new(9);
        for (k, point) in map.points.iter_mut().enumerate() {
            point.xyz += 0.01 * Vector3::new(random.normal(), random.normal(), random.normal());
            if k % 6 == 0 {
                let o = point.track[k % point.track.len()];
                keypoints[o.image as usize][o.keypoint as usize].x += 4.0;
            }
        }
        (map, keypoints)
    }

    #[test]
    fn points_go_to_their_places_while_cameras_stay() {
        let (mut map, keypoints) = spoiled();
        let problem = Problem::new(&map, &keypoints, &OPTIONS).unwrap();
        let start = problem.state(&map);
        let mut settled = start.clone();
        problem.settle(&mut settled, &vec![[1e3; 3]; map.points.len()]);
        assert_eq!(settled.extrinsics, start.extrinsics);
        // What is left to gain is that of the cameras, each of which fits its noise by six unknowns.
        adjust(&mut map, &keypoints, &OPTIONS, &Control::new()).unwrap();
        let [before, after, least] = [&start, &settled, &problem.state(&map)].map(|s| problem.cost(s));
        assert!(before > 3.0 * after && after < 1.05 * least, "{before} {after} {least}");
    }

    #[test]
    fn points_that_had_settled_stay() {
        let (map, keypoints) = spoiled();
        let problem = Problem::new(&map, &keypoints, &OPTIONS).unwrap();
        let mut state = problem.state(&map);
        let mut gradients = vec![[0.0; 3]; map.points.len()];
        gradients[7] = [1e3; 3];
        problem.settle(&mut state, &gradients);
        let moved: Vec<usize> = (0..map.points.len())
            .filter(|&p| state.points[p] != <[f64; 3]>::from(map.points[p].xyz))
            .collect();
        assert_eq!(moved, [7]);
    }
}
