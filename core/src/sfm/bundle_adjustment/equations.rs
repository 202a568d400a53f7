//! The normal equations of a bundle adjustment: every observation is linearised once, points are eliminated, and each camera gets its sums.

use rayon::prelude::*;

use super::workspace::{Part, Workspace};
use super::{Problem, State, projectors};
use crate::sfm::projection::Projector;
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
        self.linearise_all(state, damping, work);
        let Workspace { points, parts } = work;
        let terms = |c: usize| self.camera_terms(state, parts, c, damping);
        schur::reduce::<6, 8>(&self.structure, points, self.border(), terms)
    }

    /// Linearises every observation once, eliminates the points, and sums up what the cameras get.
    fn linearise_all(&self, state: &State, damping: f64, work: &mut Workspace) {
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
        tasks.into_par_iter().for_each(|slice| self.linearise_slice(&projectors, state, damping, slice));
    }

    fn linearise_slice(&self, projectors: &[Projector], state: &State, damping: f64, slice: Slice<'_>) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the instructions.
            return unsafe { self.linearise_slice_avx2(projectors, state, damping, slice) };
        }
        self.linearise_slice_any(projectors, state, damping, slice);
    }

    /// The same bits: the compiler never fuses or reorders operations by itself.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn linearise_slice_avx2(&self, projectors: &[Projector], state: &State, damping: f64, slice: Slice<'_>) {
        self.linearise_slice_any(projectors, state, damping, slice);
    }

    #[inline(always)]
    fn linearise_slice_any(&self, projectors: &[Projector], state: &State, damping: f64, slice: Slice<'_>) {
        let (structure, border) = (&self.structure, self.border());
        let Slice { first, y, factor, z, z_border, part } = slice;
        let base = structure.point_start[first] as usize;
        part.clear();
        for (i, p) in (first..first + y.len()).enumerate() {
            let mut v = [0.0; 6];
            let mut g = [0.0; 3];
            let mut zb = [[0.0; BORDER]; 3];
            let seen = self.seen(p);
            // What lenses get is summed up.
            z[seen.end - base..structure.of_point(p).end - base].fill([[0.0; 8]; 3]);
            for o in seen.clone() {
                let block = &mut z[o - base];
                *block = [[0.0; 8]; 3];
                let Some(l) = self.linearise(projectors, state, o, p) else { continue };
                for r in 0..2 {
                    let q = &l.by_point[r];
                    v[0] += q[0] * q[0];
                    v[1] += q[1] * q[0];
                    v[2] += q[1] * q[1];
                    v[3] += q[2] * q[0];
                    v[4] += q[2] * q[1];
                    v[5] += q[2] * q[2];
                }
                let [j0, j1] = [0, 1].map(|r| {
                    let (w, q) = (&l.by_rotation[r], &l.by_point[r]);
                    [w[0], w[1], w[2], -q[0], -q[1], -q[2], 0.0, 0.0]
                });
                let ([q0, q1], [i0, i1], [r0, r1]) = (&l.by_point, &l.by_intrinsics, &l.residual);
                for k in 0..3 {
                    g[k] += q0[k] * r0 + q1[k] * r1;
                    for a in 0..8 {
                        block[k][a] = j0[a] * q0[k] + j1[a] * q1[k];
                    }
                }
                let own = &mut part.cameras[structure.camera[o] as usize];
                for a in 0..6 {
                    own.gradient[a] += j0[a] * r0 + j1[a] * r1;
                    for b in 0..8 {
                        own.u[a][b] += j0[a] * j0[b] + j1[a] * j1[b];
                    }
                }
                let lens = self.lens(o);
                if border > 0 || lens > 0 {
                    // The column of a lens that has a block of its own is among the observations, else in the border.
                    let z_lens = match lens {
                        0 => &mut zb,
                        _ => {
                            let node = self.node(lens) as u32;
                            let lenses = &structure.camera[seen.end..structure.of_point(p).end];
                            // `with_room_for` gave every point its lenses.
                            let at = lenses.iter().position(|&c| c == node).unwrap_or(0);
                            &mut z[seen.end + at - base]
                        }
                    };
                    for k in 0..3 {
                        for b in 0..BORDER {
                            z_lens[k][b] += i0[b] * q0[k] + i1[b] * q1[k];
                        }
                    }
                    for a in 0..6 {
                        for b in 0..BORDER {
                            own.u_lens[a][b] += j0[a] * i0[b] + j1[a] * i1[b];
                        }
                    }
                }
                if lens > 0 {
                    let own = &mut part.cameras[self.node(lens)];
                    for a in 0..6 {
                        own.gradient[a] += i0[a] * r0 + i1[a] * r1;
                        for b in 0..8 {
                            own.u[a][b] += i0[a] * i0[b] + i1[a] * i1[b];
                        }
                    }
                } else if border > 0 {
                    for a in 0..border {
                        part.border_gradient[a] += i0[a] * r0 + i1[a] * r1;
                        for b in 0..BORDER {
                            part.border[a][b] += i0[a] * i0[b] + i1[a] * i1[b];
                        }
                    }
                }
            }
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
                schur::whiten(&mut zb, &l);
                *out = zb;
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

/// A slice of the points, from `first` on, with what is to be made of it.
struct Slice<'a> {
    first: usize,
    y: &'a mut [[f64; 3]],
    factor: &'a mut [[f64; 6]],
    z: &'a mut [Block<8>],
    z_border: &'a mut [Block<BORDER>],
    part: &'a mut Part,
}
