//! Culls, projects and colours the splats: from parameters to [`Projected`] records and the list of visible splats.
//!
//! Sixteen splats at a time: what is stored splat by splat is transposed on the way in and out. Only what survives culling
//! gets a colour. A splat with any parameter that is not finite is
//! not visible, so nothing below has to think of it.

use rayon::prelude::*;

use super::isa::Isa;
use super::lanes::{Kernel, LANES, Lanes, columns, each};
use super::scalar::Scalar;
use super::state::{Geometry, Harmonics, MEAN, OPACITY, Scene};
use crate::error::{Error, ErrorKind, Result};
use crate::raster::{ALPHA_MIN, DILATION, NEAR, TILE, View};
use crate::splats::harmonics::basis;

/// Splats that one task handles; also the grain of the later passes over splats.
pub(super) const CHUNK: usize = 256;
/// log2 of the least alpha.
pub(super) const LOG2_ALPHA_MIN: f64 = -7.994_353_436_858_858; // log2(1 / 255)
/// Added to log2(opacity / ALPHA_MIN) for all extents, so that rounding never cuts off a pixel that counts.
const EXTENT_SLACK: f64 = 1e-3;
const HALF_LOG2_E: f64 = 0.5 * std::f64::consts::LOG2_E;

/// A visible splat on the picture: one cache line in single precision.
///
/// `alpha = 2^(log2_opacity - (skew_x dx + skew_y dy)² - squeeze dy²)` with (dx, dy) from the centre to the pixel: the
/// Cholesky form of the conic, which no rounding can make negative.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub(super) struct Projected<T> {
    pub(super) u: T,
    pub(super) v: T,
    pub(super) skew_x: T,
    pub(super) skew_y: T,
    pub(super) squeeze: T,
    pub(super) log2_opacity: T,
    pub(super) rgb: [T; 3],
    /// Half the width of the box around all pixels where alpha reaches the least value.
    pub(super) reach_x: T,
    /// Half its height.
    pub(super) reach_y: T,
    pub(super) depth: T,
    pub(super) opacity: T,
    /// 2D covariance with the dilation: xx, xy, yy.
    pub(super) covariance: [T; 3],
}

impl<T: Copy> Projected<T> {
    /// The fields in their order.
    #[inline(always)]
    pub(super) fn to_row(self) -> [T; LANES] {
        let Self {
            u,
            v,
            skew_x,
            skew_y,
            squeeze,
            log2_opacity,
            rgb,
            reach_x,
            reach_y,
            depth,
            opacity,
            covariance,
        } = self;
        let ([r, g, b], [xx, xy, yy]) = (rgb, covariance);
        [u, v, skew_x, skew_y, squeeze, log2_opacity, r, g, b, reach_x, reach_y, depth, opacity, xx, xy, yy]
    }

    /// The inverse of [`to_row`](Self::to_row); also for vectors, each with one field of 16 splats.
    #[inline(always)]
    pub(super) fn from_row(row: [T; LANES]) -> Self {
        let [
            u,
            v,
            skew_x,
            skew_y,
            squeeze,
            log2_opacity,
            r,
            g,
            b,
            reach_x,
            reach_y,
            depth,
            opacity,
            xx,
            xy,
            yy,
        ] = row;
        let (rgb, covariance) = ([r, g, b], [xx, xy, yy]);
        Self {
            u,
            v,
            skew_x,
            skew_y,
            squeeze,
            log2_opacity,
            rgb,
            reach_x,
            reach_y,
            depth,
            opacity,
            covariance,
        }
    }
}

/// Projected splats, up to 16, as one vector per field.
#[inline(always)]
pub(super) fn projected_columns<V: Lanes>(projected: &[Projected<V::T>], splats: &[u32]) -> Projected<V> {
    let mut rows = [V::zero(); LANES];
    for (row, &splat) in rows.iter_mut().zip(splats) {
        *row = V::load(&projected[splat as usize].to_row());
    }
    Projected::from_row(V::transpose(rows))
}

/// A view in the numbers of the passes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Camera<T> {
    pub(super) rotation: [[T; 3]; 3],
    pub(super) translation: [T; 3],
    pub(super) fx: T,
    pub(super) fy: T,
    pub(super) cx: T,
    pub(super) cy: T,
    /// Largest |x/z| and |y/z| in the Jacobian.
    pub(super) limit_x: T,
    pub(super) limit_y: T,
    /// Camera centre in the world.
    pub(super) centre: [T; 3],
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) tiles_x: u32,
    pub(super) tiles_y: u32,
}

impl<T: Scalar> Camera<T> {
    pub(super) fn new(view: &View) -> Self {
        let centre: [f64; 3] = view.centre().into();
        Self {
            rotation: [0, 1, 2].map(|i| view.rotation.row(i).to_array().map(T::of)),
            translation: view.translation.to_array().map(T::of),
            fx: T::of(view.fx),
            fy: T::of(view.fy),
            cx: T::of(view.cx),
            cy: T::of(view.cy),
            limit_x: T::of(1.3 * 0.5 * f64::from(view.width) / view.fx),
            limit_y: T::of(1.3 * 0.5 * f64::from(view.height) / view.fy),
            centre: centre.map(T::of),
            width: view.width,
            height: view.height,
            tiles_x: view.width.div_ceil(TILE),
            tiles_y: view.height.div_ceil(TILE),
        }
    }

    /// Number of tiles.
    pub(super) fn tiles(&self) -> usize {
        self.tiles_x as usize * self.tiles_y as usize
    }
}

/// The output of the pass.
#[derive(Debug, Default)]
pub(super) struct Projection<T> {
    pub(super) camera: Option<Camera<T>>,
    pub(super) sh_degree: u32,
    /// One per splat; only those of visible splats are of this view.
    pub(super) projected: Vec<Projected<T>>,
    /// Numbers of the visible splats, ascending.
    pub(super) visible: Vec<u32>,
    /// `visible[chunk_starts[c]..chunk_starts[c + 1]]` are those of splats `c * CHUNK` and on.
    pub(super) chunk_starts: Vec<usize>,
    scratch: Vec<u32>,
}

impl<T: Scalar> Projection<T> {
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for an impossible view, or a degree that the scene does not have.
    pub(super) fn run(&mut self, isa: Isa, scene: &Scene<T>, view: &View, sh_degree: u32) -> Result<()> {
        view.check(sh_degree, scene.sh_degree)?;
        let camera = Camera::new(view);
        let n = scene.len();
        self.camera = Some(camera);
        self.sh_degree = sh_degree;
        self.projected.resize(n, Projected::default());
        self.scratch.resize(n, 0);
        let counts: Vec<usize> = self
            .projected
            .par_chunks_mut(CHUNK)
            .zip(self.scratch.par_chunks_mut(CHUNK))
            .zip(scene.parameters.geometry.par_chunks(CHUNK))
            .zip(scene.parameters.sh.par_chunks(CHUNK))
            .enumerate()
            .map(|(chunk, (((projected, visible), geometry), sh))| {
                let chunk = ProjectChunk {
                    camera: &camera,
                    geometry,
                    sh,
                    sh_degree,
                    antialiased: scene.antialiased,
                    first: (chunk * CHUNK) as u32,
                    projected,
                    visible,
                };
                T::run(isa, chunk)
            })
            .collect();
        self.visible.clear();
        self.chunk_starts.clear();
        self.chunk_starts.push(0);
        for (chunk, &count) in counts.iter().enumerate() {
            let at = chunk * CHUNK;
            self.visible.extend_from_slice(&self.scratch[at..at + count]);
            self.chunk_starts.push(self.visible.len());
        }
        Ok(())
    }

    /// # Errors
    /// [`ErrorKind::Internal`] if no view was projected.
    pub(super) fn camera(&self) -> Result<Camera<T>> {
        self.camera.ok_or_else(|| Error::new(ErrorKind::Internal, "no view was projected"))
    }
}

/// Rotation matrix of quaternions of unit length, row by row.
#[inline(always)]
pub(super) fn rotation<V: Lanes>([w, x, y, z]: [V; 4]) -> [[V; 3]; 3] {
    let (one, two) = (V::of(1.0), V::of(2.0));
    [
        [one - two * (y * y + z * z), two * (x * y - w * z), two * (x * z + w * y)],
        [two * (x * y + w * z), one - two * (x * x + z * z), two * (y * z - w * x)],
        [two * (x * z - w * y), two * (y * z + w * x), one - two * (x * x + y * y)],
    ]
}

/// What the forward projection and its gradient both need.
pub(super) struct Geometric<V> {
    /// Camera coordinates.
    pub(super) p: [V; 3],
    /// 1 / depth.
    pub(super) inverse_z: V,
    /// Jacobian times world-to-camera rotation, 2x3.
    pub(super) m: [[V; 3]; 2],
    /// Quaternion of unit length and the inverse of its length before.
    pub(super) quaternion: [V; 4],
    pub(super) inverse_norm: V,
    pub(super) rotation: [[V; 3]; 3],
    pub(super) scale: [V; 3],
    /// `m` times rotation times scale, 2x3: the covariance is `half halfᵀ` plus the dilation.
    pub(super) half: [[V; 3]; 2],
    /// Covariance with the dilation: xx, xy, yy.
    pub(super) covariance: [V; 3],
    pub(super) determinant: V,
    /// That of the covariance without the dilation.
    pub(super) own_determinant: V,
}

#[inline(always)]
pub(super) fn dot<V: Lanes>(a: [V; 3], b: [V; 3]) -> V {
    a[0].fma(b[0], a[1].fma(b[1], a[2] * b[2]))
}

#[inline(always)]
fn clamp<V: Lanes>(value: V, limit: V::T) -> V {
    value.max(V::splat(-limit)).min(V::splat(limit))
}

#[inline(always)]
pub(super) fn geometric<V: Lanes>(camera: &Camera<V::T>, g: &[V; LANES]) -> Geometric<V> {
    let mean = [g[0], g[1], g[2]];
    let r = each!(i in 3 => each!(j in 3 => V::splat(camera.rotation[i][j])));
    let p = each!(i in 3 => dot(r[i], mean) + V::splat(camera.translation[i]));
    let inverse_z = V::of(1.0) / p[2];
    let slope = [clamp(p[0] * inverse_z, camera.limit_x), clamp(p[1] * inverse_z, camera.limit_y)];
    let jx = V::splat(camera.fx) * inverse_z;
    let jy = V::splat(camera.fy) * inverse_z;
    let m = [
        each!(i in 3 => jx * slope[0].fnma(r[2][i], r[0][i])),
        each!(i in 3 => jy * slope[1].fnma(r[2][i], r[1][i])),
    ];
    let q = [g[4], g[5], g[6], g[7]];
    let inverse_norm = V::of(1.0) / (q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]).sqrt();
    let quaternion = each!(i in 4 => q[i] * inverse_norm);
    let rotation = rotation(quaternion);
    let scale = [g[8].exp(), g[9].exp(), g[10].exp()];
    let half = each!(i in 2 => each!(j in 3 => {
        scale[j] * dot(m[i], [rotation[0][j], rotation[1][j], rotation[2][j]])
    }));
    let [h0, h1] = half;
    let (s0, s1) = (dot(h0, h0), dot(h1, h1));
    let dilation = V::of(DILATION);
    let cross = [h0[1] * h1[2] - h0[2] * h1[1], h0[2] * h1[0] - h0[0] * h1[2], h0[0] * h1[1] - h0[1] * h1[0]];
    // Lagrange's identity: a sum of squares, where xx yy - xy² would cancel.
    let own_determinant = dot(cross, cross);
    let determinant = own_determinant + dilation * (s0 + s1 + dilation);
    let covariance = [s0 + dilation, dot(h0, h1), s1 + dilation];
    Geometric {
        p,
        inverse_z,
        m,
        quaternion,
        inverse_norm,
        rotation,
        scale,
        half,
        covariance,
        determinant,
        own_determinant,
    }
}

struct ProjectChunk<'a, T> {
    camera: &'a Camera<T>,
    geometry: &'a [Geometry<T>],
    sh: &'a [Harmonics<T>],
    sh_degree: u32,
    antialiased: bool,
    first: u32,
    projected: &'a mut [Projected<T>],
    visible: &'a mut [u32],
}

impl<T: Scalar> Kernel<T> for ProjectChunk<'_, T> {
    /// How many are visible.
    type Output = usize;

    #[inline(always)]
    fn run<V: Lanes<T = T>>(self) -> usize {
        let camera = self.camera;
        let zero = V::zero();
        let mut count = 0;
        for (block, records) in self.geometry.chunks(LANES).enumerate() {
            let g = columns::<V>(records.iter());
            let f = geometric(camera, &g);
            let mut opacity = V::of(1.0) / (V::of(1.0) + (zero - g[OPACITY]).exp());
            if self.antialiased {
                opacity = opacity * (f.own_determinant / f.determinant).sqrt();
            }
            let depth = f.p[2];
            let in_front = V::bits(depth.ge(V::of(NEAR))) & !V::bits(V::of(NEAR).ge(depth));
            // log2(opacity / ALPHA_MIN) is not negative where it is not hopeless.
            let mut candidates = in_front & V::bits(opacity.ge(V::of(ALPHA_MIN)));
            candidates &= ((1u32 << records.len()) - 1) as u16;
            if candidates == 0 {
                continue;
            }
            let log2_opacity = opacity.log2();
            let [xx, xy, yy] = f.covariance;
            let u = (V::splat(camera.fx) * f.p[0]).fma(f.inverse_z, V::splat(camera.cx));
            let v = (V::splat(camera.fy) * f.p[1]).fma(f.inverse_z, V::splat(camera.cy));
            let reach = (log2_opacity + V::of(EXTENT_SLACK - LOG2_ALPHA_MIN)) / V::of(HALF_LOG2_E);
            let reach_x = (reach * xx).max(zero).sqrt();
            let reach_y = (reach * yy).max(zero).sqrt();
            let skew_x = (V::of(HALF_LOG2_E) * yy / f.determinant).sqrt();
            let skew_y = zero - xy / yy * skew_x;
            let squeeze = V::of(HALF_LOG2_E) / yy;
            // The box touches the picture. All comparisons are false for what is not a number.
            candidates &= V::bits((u + reach_x).ge(zero)) & V::bits((v + reach_y).ge(zero));
            candidates &= V::bits(V::splat(T::of(f64::from(camera.width))).ge(u - reach_x));
            candidates &= V::bits(V::splat(T::of(f64::from(camera.height))).ge(v - reach_y));
            // 0, or not a number.
            let mut not_finite = u * zero;
            for value in &g {
                not_finite = not_finite + *value * zero;
            }
            for value in [v, xx, xy, yy, f.determinant, skew_x, skew_y, squeeze] {
                not_finite = not_finite + value * zero;
            }
            candidates &= V::bits(not_finite.ge(zero));
            if candidates == 0 {
                continue;
            }
            let rgb = self.colours(block, candidates, &g);
            let not_finite = (rgb[0] + rgb[1] + rgb[2]) * zero;
            candidates &= V::bits(not_finite.ge(zero));
            let rgb = each!(c in 3 => rgb[c].max(zero));
            let covariance = [xx, xy, yy];
            let splats = Projected {
                u,
                v,
                skew_x,
                skew_y,
                squeeze,
                log2_opacity,
                rgb,
                reach_x,
                reach_y,
                depth,
                opacity,
                covariance,
            };
            let rows = V::transpose(splats.to_row());
            while candidates != 0 {
                let lane = candidates.trailing_zeros() as usize % LANES;
                candidates &= candidates - 1;
                let local = block * LANES + lane;
                self.projected[local] = Projected::from_row(rows[lane].array());
                self.visible[count] = self.first + local as u32;
                count += 1;
            }
        }
        count
    }
}

/// Unit vector from the camera centre to a mean, and the inverse of the distance.
#[inline(always)]
pub(super) fn direction<V: Lanes>(camera: &Camera<V::T>, g: &[V; LANES]) -> ([V; 3], V) {
    let d = each!(i in 3 => g[MEAN + i] - V::splat(camera.centre[i]));
    let inverse = V::of(1.0) / dot(d, d).sqrt();
    (each!(i in 3 => d[i] * inverse), inverse)
}

impl<T: Scalar> ProjectChunk<'_, T> {
    /// 0.5 + SH, not clamped, of a block's splats that are `chosen`.
    #[inline(always)]
    fn colours<V: Lanes<T = T>>(&self, block: usize, chosen: u16, g: &[V; LANES]) -> [V; 3] {
        let (d, _) = direction(self.camera, g);
        let basis = V::transpose(basis(self.sh_degree, d, V::of));
        let mut products = [[V::zero(); LANES]; 3];
        for lane in 0..LANES {
            if chosen >> lane & 1 == 1 {
                let sh = &self.sh[block * LANES + lane];
                for channel in 0..3 {
                    products[channel][lane] = V::load(&sh[channel]) * basis[lane];
                }
            }
        }
        each!(c in 3 => V::sums(products[c]) + V::of(0.5))
    }
}
