//! Real roots of the polynomials in which the minimal solvers end.

/// A root is told to a share of itself, or of this if it is smaller.
const SMALL: f64 = 1e-4;
/// Highest degree that [`real_roots`] accepts.
const MAX_DEGREE: usize = 15;

/// The real roots of `Σ coefficients[k] xᵏ` (degree at most 15), in no particular order; roots of even multiplicity can
/// be missed.
///
/// The real line is split into [-1, 1] and its outside, which `x → 1/x` maps to (-1, 1) with the coefficients reversed,
/// so that no power overflows and a leading coefficient near zero does no harm. Within [-1, 1] the roots of each
/// derivative split the interval into monotone pieces, each with at most one root, which safeguarded Newton steps find
/// (Yuksel, High-Performance Graphics 2022).
pub(crate) fn real_roots(coefficients: &[f64], roots: &mut Vec<f64>) {
    roots.clear();
    let largest = coefficients.iter().fold(0.0f64, |m, c| m.max(c.abs()));
    if !(largest > 0.0 && largest.is_finite()) || coefficients.len() > MAX_DEGREE + 1 {
        return;
    }
    let mut scaled = [0.0; MAX_DEGREE + 1];
    let n = coefficients.len();
    for (s, c) in scaled.iter_mut().zip(coefficients) {
        *s = c / largest;
    }
    let mut found = [0.0; MAX_DEGREE + 1];
    let count = roots_in_unit_interval(&scaled[..n], &mut found);
    roots.extend_from_slice(&found[..count]);
    scaled[..n].reverse();
    let count = roots_in_unit_interval(&scaled[..n], &mut found);
    roots.extend(found[..count].iter().filter(|y| y.abs() > 1e-12 && y.abs() < 1.0).map(|y| 1.0 / y));
}

/// Roots in [-1, 1], ascending; returns their number.
fn roots_in_unit_interval(coefficients: &[f64], roots: &mut [f64; MAX_DEGREE + 1]) -> usize {
    let degree = coefficients.len() - 1;
    // derivatives[j] is the j-th derivative divided by j!, whose size stays moderate.
    let mut derivatives = [[0.0; MAX_DEGREE + 1]; MAX_DEGREE + 1];
    derivatives[0][..=degree].copy_from_slice(coefficients);
    for j in 1..degree {
        for k in 0..=degree - j {
            derivatives[j][k] = derivatives[j - 1][k + 1] * (k + 1) as f64 / j as f64;
        }
    }
    let mut count = 0;
    let mut breaks = [0.0; MAX_DEGREE + 3];
    for d in 1..=degree {
        let order = degree - d;
        let p = &derivatives[order][..=d];
        breaks[0] = -1.0;
        breaks[1..=count].copy_from_slice(&roots[..count]);
        breaks[count + 1] = 1.0;
        let pieces = count + 1;
        count = 0;
        // What only parts the line must not be exact.
        let tolerance = if d == degree { 1e-14 } else { 1e-6 };
        let mut left = evaluate(p, breaks[0]).0;
        for i in 0..pieces {
            let right = evaluate(p, breaks[i + 1]).0;
            if left == 0.0 {
                // A root exactly on a break belongs to the piece on its right.
                if count == 0 || roots[count - 1] != breaks[i] {
                    roots[count] = breaks[i];
                    count += 1;
                }
            } else if (left < 0.0) != (right < 0.0) && right != 0.0 || (right == 0.0 && i + 1 == pieces) {
                roots[count] = root_between(p, breaks[i], breaks[i + 1], left < 0.0, tolerance);
                count += 1;
            }
            left = right;
        }
    }
    count
}

/// The value and the derivative at `x` (Horner).
#[inline(always)]
fn evaluate(p: &[f64], x: f64) -> (f64, f64) {
    let (mut value, mut slope) = (0.0, 0.0);
    for &c in p.iter().rev() {
        slope = slope * x + value;
        value = value * x + c;
    }
    (value, slope)
}

/// The root of the monotone piece [a, b]; `rising`: the value at `a` is negative. It ends with a step below `tolerance` of the root, and
/// of one near 0 below that of [`SMALL`]: the error left is about the square of it.
fn root_between(p: &[f64], mut a: f64, mut b: f64, rising: bool, tolerance: f64) -> f64 {
    let mut x = 0.5 * (a + b);
    for _ in 0..80 {
        let (value, slope) = evaluate(p, x);
        if (value < 0.0) == rising {
            a = x;
        } else {
            b = x;
        }
        let newton = x - value / slope;
        let next = if newton > a && newton < b { newton } else { 0.5 * (a + b) };
        if (next - x).abs() <= tolerance * next.abs().max(SMALL) {
            return next;
        }
        x = next;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn finds_all_real_roots_of_random_products() {
        let mut random = Random::new(1);
        let mut roots = Vec::new();
        for _ in 0..2000 {
            // (real roots) x (quadratics without real roots), degree 10
            let real = 2 * random.below(4);
            let expected: Vec<f64> = (0..real).map(|_| (3.0 * random.normal()).sinh()).collect();
            let mut p = vec![1.0];
            let multiply = |p: &mut Vec<f64>, factor: &[f64]| {
                let mut product = vec![0.0; p.len() + factor.len() - 1];
                for (i, a) in p.iter().enumerate() {
                    for (j, b) in factor.iter().enumerate() {
                        product[i + j] += a * b;
                    }
                }
                *p = product;
            };
            for r in &expected {
                multiply(&mut p, &[-r, 1.0]);
            }
            while p.len() < 11 {
                let (re, im) = (random.normal(), 0.3 + random.uniform());
                multiply(&mut p, &[re * re + im * im, -2.0 * re, 1.0]);
            }
            let apart = expected
                .iter()
                .enumerate()
                .all(|(i, a)| expected[..i].iter().all(|b| (a - b).abs() > 0.05 * (1.0 + a.abs())));
            if !apart {
                continue;
            }
            real_roots(&p, &mut roots);
            assert_eq!(roots.len(), expected.len(), "{expected:?} {roots:?}");
            for e in &expected {
                let nearest = roots.iter().map(|r| (r - e).abs()).fold(f64::INFINITY, f64::min);
                assert!(nearest < 1e-6 * (1.0 + e.abs()), "{e} is missed by {nearest}");
            }
        }
    }

    #[test]
    fn degenerate_polynomials_give_what_is_there() {
        let mut roots = Vec::new();
        real_roots(&[0.0, 0.0, 0.0], &mut roots);
        assert!(roots.is_empty());
        real_roots(&[-6.0, 3.0, 0.0, 0.0], &mut roots);
        assert_eq!(roots.len(), 1);
        assert!((roots[0] - 2.0).abs() < 1e-12);
        real_roots(&[f64::NAN, 1.0], &mut roots);
        assert!(roots.is_empty());
    }
}
