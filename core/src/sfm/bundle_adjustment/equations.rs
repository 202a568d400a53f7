//! The normal equations of a bundle adjustment: every observation is linearised once, points are eliminated, and each camera gets its sums.

use rayon::prelude::*;

use super::workspace::{Part, Workspace};
use super::{PoseUnknowns, Problem, State, projectors};
#[cfg(target_arch = "x86_64")]
use crate::sfm::lanes::Avx2;
use crate::sfm::lanes::{LANES, Lanes, Portable};
use crate::sfm::projection::{Linearised, Projector};
use crate::sfm::schur::{self, BORDER, Block, CameraTerms, PointTerms, Reduced};

impl Problem<'_> {
    /// The damped reduced system at `state`.
    pub(super) fn equations(&self, state: &State, damping: f64) -> (Reduced, PointTerms<8>) {
        let mut work = Workspace::new(&self.structure, self.border());
        let reduced = self.equations_in(state, damping, &mut work);
        (reduced, work.points)
    }

    /// The damped reduced system at `state`; the terms of the points go into `work`.
    pub(super) fn equations_in(&self, state: &State, damping: f64, work: &mut Workspace) -> Reduced {
        self.linearise_all(state, work, |slice, projectors| {
            self.linearise_slice(projectors, state, damping, slice);
        });
        let Workspace { points, parts } = work;
        let terms = |c: usize| self.camera_terms(state, parts, c, damping);
        schur::reduce::<6, 8>(&self.structure, points, self.border(), terms)
    }

    /// Linearises every observation once, eliminates the points, and sums up what the cameras get.
    /// `linearise` does so with a slice of the points.
    fn linearise_all(
        &self,
        state: &State,
        work: &mut Workspace,
        linearise: impl Fn(Slice<'_>, &[Projector]) + Sync,
    ) {
        let projectors = projectors(state);
        let (structure, border) = (&self.structure, self.border());
        let length = structure.points().div_ceil(work.parts.len());
        // Tasks own whole slices of the points, hence disjoint slices of every array.
        let mut tasks = Vec::with_capacity(work.parts.len());
        let PointTerms { z, z_border, y, factor } = &mut work.points;
        let (mut z, mut z_border) = (z.as_mut_slice(), z_border.as_mut_slice());
        let by_slice = y.chunks_mut(length).zip(factor.chunks_mut(length)).zip(&mut work.parts);
        for (k, ((y, factor), part)) in by_slice.enumerate() {
            let first = k * length;
            let observations = structure.point_start[first]..structure.point_start[first + y.len()];
            let (own, rest) = z.split_at_mut(observations.len());
            z = rest;
            let (own_border, rest) = z_border.split_at_mut(if border > 0 { y.len() } else { 0 });
            z_border = rest;
            tasks.push(Slice { first, y, factor, z: own, z_border: own_border, part });
        }
        tasks.into_par_iter().for_each(|slice| linearise(slice, &projectors));
    }

    fn linearise_slice(&self, projectors: &[Projector], state: &State, damping: f64, slice: Slice<'_>) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor has the features that the function is compiled for.
            return unsafe { self.linearise_slice_avx2(projectors, state, damping, slice) };
        }
        self.linearise_slice_in::<Portable>(projectors, state, damping, slice);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn linearise_slice_avx2(&self, projectors: &[Projector], state: &State, damping: f64, slice: Slice<'_>) {
        self.linearise_slice_in::<Avx2>(projectors, state, damping, slice);
    }

    #[inline(always)]
    fn linearise_slice_in<V: Lanes>(
        &self,
        projectors: &[Projector],
        state: &State,
        damping: f64,
        slice: Slice<'_>,
    ) {
        // Most lenses have so few unknowns that half of the room for them is empty.
        match self.unknowns_of_a_lens().div_ceil(LANES) {
            0 | 1 => self.linearise_points::<V, 1>(projectors, state, damping, slice),
            _ => self.linearise_points::<V, 2>(projectors, state, damping, slice),
        }
    }

    /// How many shared unknowns the observations through one lens depend on, at most.
    fn unknowns_of_a_lens(&self) -> usize {
        let others = self.others.of_camera.iter().map(|lens| lens.free.len() + self.extra);
        others.fold(self.border(), usize::max)
    }

    /// With `N` vectors for the shared unknowns.
    #[inline(always)]
    fn linearise_points<V: Lanes, const N: usize>(
        &self,
        projectors: &[Projector],
        state: &State,
        damping: f64,
        slice: Slice<'_>,
    ) {
        let (structure, border) = (&self.structure, self.border());
        let Slice { first, y, factor, z, z_border, part } = slice;
        let base = structure.point_start[first] as usize;
        // A camera that goes one way sees what it would see if all points went the other way.
        let by_centre = if self.options.poses == PoseUnknowns::Rotations { 0.0 } else { -1.0 };
        part.clear();
        for (i, p) in (first..first + y.len()).enumerate() {
            // By row: the equations of the point by itself, and its gradient.
            let mut own = [V::zero(); 3];
            let mut zb = [[V::zero(); N]; 3];
            let seen = self.seen(p);
            // What lenses get is summed up.
            z[seen.end - base..structure.of_point(p).end - base].fill([[0.0; 8]; 3]);
            for o in seen.clone() {
                let block = &mut z[o - base];
                let Some(l) = self.linearise(projectors, state, o, p) else {
                    *block = [[0.0; 8]; 3];
                    continue;
                };
                let rows = [Row::<V, N>::of(&l, 0, by_centre), Row::<V, N>::of(&l, 1, by_centre)];
                for k in 0..3 {
                    let by_point = [V::splat(l.by_point[0][k]), V::splat(l.by_point[1][k])];
                    own[k] = added(by_point, [rows[0].point, rows[1].point], own[k]);
                    for (h, out) in block[k].as_chunks_mut().0.iter_mut().enumerate() {
                        let first = rows[0].camera[h].times(by_point[0]);
                        rows[1].camera[h].fma(by_point[1], first).store(out);
                    }
                }
                let camera = &mut part.cameras[structure.camera[o] as usize];
                let residual = [V::splat(l.residual[0]), V::splat(l.residual[1])];
                let by_camera = [&rows[0].camera, &rows[1].camera];
                add_row(residual, by_camera, &mut camera.gradient);
                let lens = self.lens(o);
                let by_lens = [&rows[0].lens, &rows[1].lens];
                for a in 0..6 {
                    let by_unknown = [V::splat(rows[0].by_camera[a]), V::splat(rows[1].by_camera[a])];
                    add_row(by_unknown, by_camera, &mut camera.u[a]);
                    if border > 0 || lens > 0 {
                        add_row(by_unknown, by_lens, &mut camera.u_lens[a]);
                    }
                }
                // The column of a lens that has a block of its own is among the observations, else in the border.
                if lens > 0 {
                    let node = self.node(lens) as u32;
                    let lenses = &structure.camera[seen.end..structure.of_point(p).end];
                    // `with_room_for` gave every point its lenses.
                    let at = lenses.iter().position(|&c| c == node).unwrap_or(0);
                    let z_lens = &mut z[seen.end + at - base];
                    for k in 0..3 {
                        add_row(
                            [V::splat(l.by_point[0][k]), V::splat(l.by_point[1][k])],
                            by_lens,
                            &mut z_lens[k],
                        );
                    }
                    let camera = &mut part.cameras[self.node(lens)];
                    add_row(residual, by_lens, &mut camera.gradient);
                    for a in 0..6 {
                        let by_unknown = [V::splat(l.by_intrinsics[0][a]), V::splat(l.by_intrinsics[1][a])];
                        add_row(by_unknown, by_lens, &mut camera.u[a]);
                    }
                } else if border > 0 {
                    for k in 0..3 {
                        let by_point = [V::splat(l.by_point[0][k]), V::splat(l.by_point[1][k])];
                        for h in 0..N {
                            zb[k][h] = added(by_point, [by_lens[0][h], by_lens[1][h]], zb[k][h]);
                        }
                    }
                    add_row(residual, by_lens, &mut part.border_gradient);
                    for a in 0..border {
                        let by_unknown = [V::splat(l.by_intrinsics[0][a]), V::splat(l.by_intrinsics[1][a])];
                        add_row(by_unknown, by_lens, &mut part.border[a]);
                    }
                }
            }
            let mut rows = [[0.0; LANES]; 3];
            for (out, row) in rows.iter_mut().zip(own) {
                row.store(out);
            }
            let mut v = [rows[0][0], rows[1][0], rows[1][1], rows[2][0], rows[2][1], rows[2][2]];
            let g = rows.map(|row| row[3]);
            // A point that is seen from one direction only gets its missing stiffness from the largest one.
            let floor = 1e-9 * v[0].max(v[2]).max(v[5]) + f64::MIN_POSITIVE;
            for k in [0, 2, 5] {
                v[k] += damping * v[k] + floor;
            }
            let blocks = structure.of_point(p).start - base..structure.of_point(p).end - base;
            let Some(l) = schur::factor3(&v) else {
                // Not seen at all: it takes no part.
                z[blocks].fill([[0.0; 8]; 3]);
                z_border.get_mut(i).into_iter().for_each(|out| *out = [[0.0; BORDER]; 3]);
                y[i] = [0.0; 3];
                factor[i] = [1.0, 0.0, 1.0, 0.0, 0.0, 1.0];
                continue;
            };
            for block in &mut z[blocks] {
                schur::whiten(block, &l);
            }
            if let Some(out) = z_border.get_mut(i) {
                *out = [[0.0; BORDER]; 3];
                for (out, row) in out.iter_mut().zip(&zb) {
                    for (out, part) in out.as_chunks_mut().0.iter_mut().zip(row) {
                        part.store(out);
                    }
                }
                schur::whiten(out, &l);
            }
            y[i] = schur::whiten_vector(&g, &l);
            factor[i] = l;
        }
    }

    /// What camera `c` of the structure gets; the border is the first one's.
    fn camera_terms(&self, state: &State, parts: &[Part], c: usize, damping: f64) -> CameraTerms<6, 8> {
        let border = self.border();
        let mut t = CameraTerms::<6, 8>::zero();
        for part in parts {
            let own = &part.cameras[c];
            for a in 0..6 {
                t.gradient[a] += own.gradient[a];
                (0..8).for_each(|b| t.u[a][b] += own.u[a][b]);
                (0..BORDER).for_each(|b| t.u_border[a][b] += own.u_lens[a][b]);
            }
        }
        if let Some(lens) = c.checked_sub(self.stations.count()) {
            for (k, weight, pull) in self.others.of_camera[lens].pulls(&state.others[lens]) {
                t.u[k][k] += weight;
                t.gradient[k] += pull;
            }
        } else if let lens @ 1.. = self.others.index(self.stations.first(c)) {
            t.beside = Some((self.node(lens), std::mem::replace(&mut t.u_border, [[0.0; BORDER]; 6])));
        }
        if c == 0 {
            for part in parts {
                for a in 0..border {
                    t.border_gradient[a] += part.border_gradient[a];
                    (0..BORDER).for_each(|b| t.border[a][b] += part.border[a][b]);
                }
            }
            for (k, weight, pull) in self.intrinsics.pulls(&state.camera) {
                t.border[k][k] += weight;
                t.border_gradient[k] += pull;
            }
        }
        for a in 0..6 {
            t.u[a][a] += damping * t.u[a][a];
            if t.u[a][a] <= 0.0 {
                t.u[a][a] = 1.0; // not an unknown, or an image that sees nothing: its step is zero
            }
        }
        for a in 0..border {
            t.border[a][a] += damping * t.border[a][a];
        }
        t
    }
}

/// A coordinate of a residual by all that it depends on. `N` vectors have room for the unknowns of a lens.
struct Row<V, const N: usize> {
    /// By the unknowns of its camera: a rotation, then the centre; zero beyond.
    by_camera: [f64; 8],
    camera: [V; 2],
    lens: [V; N],
    /// By the point, and the residual itself.
    point: V,
}

impl<V: Lanes, const N: usize> Row<V, N> {
    /// `by_centre` is what the derivatives by the point are multiplied by to be those by the centre.
    #[inline(always)]
    fn of(l: &Linearised, r: usize, by_centre: f64) -> Self {
        let ([w0, w1, w2], [q0, q1, q2]) = (l.by_rotation[r], l.by_point[r]);
        let by_camera = [w0, w1, w2, by_centre * q0, by_centre * q1, by_centre * q2, 0.0, 0.0];
        Self {
            by_camera,
            camera: V::row(&by_camera),
            lens: V::row(&l.by_intrinsics[r]),
            point: V::load(&[q0, q1, q2, l.residual[r]]),
        }
    }
}

/// `sum` with the products of both coordinates of a residual.
#[inline(always)]
fn added<V: Lanes>(by: [V; 2], [first, second]: [V; 2], sum: V) -> V {
    second.fma(by[1], first.fma(by[0], sum))
}

/// The same for a row, of which both coordinates have `N` vectors.
#[inline(always)]
fn add_row<V: Lanes, const N: usize>(by: [V; 2], both: [&[V; N]; 2], row: &mut [f64; 8]) {
    for (h, out) in row.as_chunks_mut().0.iter_mut().take(N).enumerate() {
        added(by, [both[0][h], both[1][h]], V::load(out)).store(out);
    }
}

/// A slice of the points, from `first` on, with what is to be made of it.
struct Slice<'a> {
    first: usize,
    y: &'a mut [[f64; 3]],
    factor: &'a mut [[f64; 6]],
    z: &'a mut [Block<8>],
    z_border: &'a mut [Block<BORDER>],
    part: &'a mut Part,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::bundle_adjustment::{ASSUMED_NOISE, BundleOptions, RefineIntrinsics};
    use crate::sfm::levenberg_marquardt::Stopping;
    use crate::sfm::projection::Loss;
    use crate::sfm::synthetic::Capture;

    /// All that a workspace has of the equations.
    fn all(work: &Workspace) -> Vec<f64> {
        let Workspace { points, parts } = work;
        let of_points = points.z.iter().chain(&points.z_border).flatten().flatten();
        let mut all: Vec<f64> = of_points.copied().collect();
        all.extend(points.y.iter().flatten().chain(points.factor.iter().flatten()));
        for part in parts {
            all.extend(part.border.iter().flatten().chain(&part.border_gradient));
            for camera in &part.cameras {
                all.extend(camera.u.iter().chain(&camera.u_lens).flatten().chain(&camera.gradient));
            }
        }
        all
    }

    #[test]
    fn whatever_instructions_and_room_there_are_the_equations_are_the_same() {
        for principal_point in [None, Some(20.0)] {
            let options = BundleOptions {
                loss: Loss::Cauchy(1.0),
                noise: ASSUMED_NOISE,
                rest: 0.0,
                stopping: Stopping { max_iterations: 1, tolerance: 0.0 },
                poses: PoseUnknowns::All,
                intrinsics: RefineIntrinsics { focal: true, distortion: Some(1.0), principal_point },
                other_centres: Vec::new(),
            };
            let capture = Capture::orbit(9, 600, 0.5, 3);
            let map = capture.true_map_with_points();
            let problem = Problem::new(&map, &capture.keypoints, &options).unwrap();
            let state = problem.state(&map);
            let by = |linearise: &(dyn Fn(Slice<'_>, &[Projector]) + Sync)| {
                let mut work = Workspace::new(&problem.structure, problem.border());
                problem.linearise_all(&state, &mut work, linearise);
                all(&work)
            };
            let chosen = by(&|slice, projectors| problem.linearise_slice(projectors, &state, 1e-3, slice));
            let portable =
                by(&|s, projectors| problem.linearise_slice_in::<Portable>(projectors, &state, 1e-3, s));
            let wide =
                by(&|s, projectors| problem.linearise_points::<Portable, 2>(projectors, &state, 1e-3, s));
            assert!(chosen.iter().any(|v| *v != 0.0));
            assert_eq!(portable, wide);
            let largest = portable.iter().fold(0.0, |largest: f64, v| largest.max(v.abs()));
            for (a, b) in chosen.iter().zip(&portable) {
                assert!((a - b).abs() <= 1e-9 * b.abs() + 1e-13 * largest, "{a} {b}");
            }
        }
    }
}
