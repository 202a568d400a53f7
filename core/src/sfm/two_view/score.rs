//! How well a model explains all matches: the inner loop of every RANSAC here.
//!
//! Coordinates lie in blocks of eight matches, column by column, so that one instruction does the same step for several
//! matches. The same code is compiled once for AVX2 and once for any machine; both do the same operations in the same
//! order, hence give the same bits.

use nalgebra::Matrix3;

/// Matches per block.
pub(crate) const LANES: usize = 8;

/// Numbers of `C` columns in blocks of eight rows; the last block is filled up with NaN, which no threshold lets pass.
#[derive(Debug, Clone)]
pub(crate) struct Columns<const C: usize> {
    blocks: Vec<[[f64; LANES]; C]>,
    len: usize,
}

impl<const C: usize> Columns<C> {
    pub(crate) fn new(rows: impl Iterator<Item = [f64; C]>) -> Self {
        let mut columns = Self { blocks: Vec::new(), len: 0 };
        for row in rows {
            let lane = columns.len % LANES;
            if lane == 0 {
                columns.blocks.push([[f64::NAN; LANES]; C]);
            }
            if let Some(block) = columns.blocks.last_mut() {
                for c in 0..C {
                    block[c][lane] = row[c];
                }
            }
            columns.len += 1;
        }
        columns
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Row `i`, which must be less than the length.
    pub(crate) fn row(&self, i: usize) -> [f64; C] {
        let block = &self.blocks[i / LANES];
        std::array::from_fn(|c| block[c][i % LANES])
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = [f64; C]> + Clone + '_ {
        (0..self.len).map(|i| self.row(i))
    }

    pub(crate) fn blocks(&self) -> &[[[f64; LANES]; C]] {
        &self.blocks
    }
}

/// Two coordinates of the first picture, two of the second.
pub(crate) type PointPairs = Columns<4>;

/// A squared residual as a function of the numbers of one match. Not finite where the model says nothing.
pub(crate) trait Residual<const C: usize> {
    fn squared(&self, row: [f64; C]) -> f64;
}

/// What `c = x2ᵀ M x1` is made of: the first two coordinates of `a = M x1` and `b = Mᵀ x2`, and the sum of their squares.
pub(super) struct EpipolarTerms {
    pub(super) a: [f64; 2],
    pub(super) b: [f64; 2],
    pub(super) c: f64,
    pub(super) square: f64,
}

impl EpipolarTerms {
    /// `m` is row by row.
    #[inline(always)]
    pub(super) fn new(m: &[f64; 9], [x1, y1, x2, y2]: [f64; 4]) -> Self {
        let a0 = m[0] * x1 + m[1] * y1 + m[2];
        let a1 = m[3] * x1 + m[4] * y1 + m[5];
        let a2 = m[6] * x1 + m[7] * y1 + m[8];
        let b0 = m[0] * x2 + m[3] * y2 + m[6];
        let b1 = m[1] * x2 + m[4] * y2 + m[7];
        let c = x2 * a0 + y2 * a1 + a2;
        Self { a: [a0, a1], b: [b0, b1], c, square: a0 * a0 + a1 * a1 + b0 * b0 + b1 * b1 }
    }
}

/// First-order geometric error of `x2ᵀ M x1 = 0` (Sampson; Hartley & Zisserman, 11.9).
pub(crate) struct Sampson([f64; 9]);

impl Sampson {
    pub(crate) fn new(m: &Matrix3<f64>) -> Self {
        Self(row_major(m))
    }
}

impl Residual<4> for Sampson {
    #[inline(always)]
    fn squared(&self, row: [f64; 4]) -> f64 {
        let EpipolarTerms { c, square, .. } = EpipolarTerms::new(&self.0, row);
        c * c / square
    }
}

/// Distance in the second picture of `x2` from `H x1`.
pub(crate) struct Transfer([f64; 9]);

impl Transfer {
    pub(crate) fn new(h: &Matrix3<f64>) -> Self {
        Self(row_major(h))
    }
}

impl Residual<4> for Transfer {
    #[inline(always)]
    fn squared(&self, [x1, y1, x2, y2]: [f64; 4]) -> f64 {
        let h = &self.0;
        let inverse = 1.0 / (h[6] * x1 + h[7] * y1 + h[8]);
        let dx = (h[0] * x1 + h[1] * y1 + h[2]) * inverse - x2;
        let dy = (h[3] * x1 + h[4] * y1 + h[5]) * inverse - y2;
        dx * dx + dy * dy
    }
}

fn row_major(m: &Matrix3<f64>) -> [f64; 9] {
    std::array::from_fn(|k| m[(k / 3, k % 3)])
}

/// What a model is worth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Score {
    /// Sum over all matches of the squared residual, at most the squared threshold each (MSAC; Torr & Zisserman, CVIU
    /// 2000).
    pub(crate) cost: f64,
    /// Matches below the threshold.
    pub(crate) inliers: usize,
}

impl Score {
    /// Worse than any model.
    pub(crate) const WORST: Score = Score { cost: f64::INFINITY, inliers: 0 };
}

/// Scores a model on all rows; stops as soon as the cost exceeds `limit` and returns [`Score::WORST`] then.
pub(crate) fn msac<const C: usize>(
    columns: &Columns<C>,
    residual: &impl Residual<C>,
    squared_threshold: f64,
    limit: f64,
) -> Score {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { msac_avx2(columns, residual, squared_threshold, limit) };
    }
    msac_body(columns, residual, squared_threshold, limit)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn msac_avx2<const C: usize>(
    columns: &Columns<C>,
    residual: &impl Residual<C>,
    squared_threshold: f64,
    limit: f64,
) -> Score {
    msac_body(columns, residual, squared_threshold, limit)
}

#[inline(always)]
fn msac_body<const C: usize>(
    columns: &Columns<C>,
    residual: &impl Residual<C>,
    squared_threshold: f64,
    limit: f64,
) -> Score {
    let (mut cost, mut inliers) = ([0.0; LANES], [0.0; LANES]);
    // The padding counts as outliers; this much of the cost is not the model's.
    let padding = (columns.blocks.len() * LANES - columns.len) as f64 * squared_threshold;
    for batch in columns.blocks.chunks(16) {
        for block in batch {
            for lane in 0..LANES {
                let squared = residual.squared(std::array::from_fn(|c| block[c][lane]));
                let inside = squared < squared_threshold;
                cost[lane] += if inside { squared } else { squared_threshold };
                inliers[lane] += if inside { 1.0 } else { 0.0 };
            }
        }
        if cost.iter().sum::<f64>() > limit + padding {
            return Score::WORST;
        }
    }
    Score { cost: cost.iter().sum::<f64>() - padding, inliers: inliers.iter().sum::<f64>() as usize }
}

/// The rows below the threshold, ascending.
pub(crate) fn inlier_rows<const C: usize>(
    columns: &Columns<C>,
    residual: &impl Residual<C>,
    squared_threshold: f64,
) -> Vec<usize> {
    (0..columns.len).filter(|&i| residual.squared(columns.row(i)) < squared_threshold).collect()
}

#[cfg(test)]
mod tests {
    use nalgebra::Vector3;

    use super::*;
    use crate::random::Random;

    #[test]
    fn the_vector_code_the_portable_code_and_the_definition_agree() {
        let mut random = Random::new(9);
        for n in [0, 1, 7, 8, 9, 1000, 1003] {
            let pairs = PointPairs::new((0..n).map(|_| std::array::from_fn(|_| random.normal())));
            let model = Matrix3::from_fn(|_, _| random.normal());
            let residual = Sampson::new(&model);
            let fast = msac(&pairs, &residual, 0.3, f64::INFINITY);
            assert_eq!(fast, msac_body(&pairs, &residual, 0.3, f64::INFINITY));
            let mut cost = 0.0;
            for [a, b, c, d] in pairs.rows() {
                let (x1, x2) = (Vector3::new(a, b, 1.0), Vector3::new(c, d, 1.0));
                let (l2, l1) = (model * x1, model.transpose() * x2);
                let error = x2.dot(&l2).powi(2) / (l2.xy().norm_squared() + l1.xy().norm_squared());
                cost += error.min(0.3);
            }
            assert!((fast.cost - cost).abs() < 1e-9, "{} {cost}", fast.cost);
            assert_eq!(fast.inliers, inlier_rows(&pairs, &residual, 0.3).len());
            if n > 500 {
                assert_eq!(msac(&pairs, &residual, 0.3, 0.5 * cost), Score::WORST);
            }
        }
    }
}
