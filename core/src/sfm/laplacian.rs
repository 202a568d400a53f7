//! Differences between the nodes of a graph by least squares: its weighted Laplacian, solved by conjugate gradients.

use std::sync::Arc;

use super::block_sparse::{BlockMatrix, Factor, Graph, Pattern};

/// From so many images on, conjugate gradients are led by a coarse solution, see [`Coarse`]: without, they need more steps
/// the longer the chain of images is. As many images as in [`super::rotation_averaging`].
const MANY_IMAGES: usize = 390;

/// The nodes of a graph in groups, one for an image: its Laplacian seen from afar, which is small and solved exactly. What
/// conjugate gradients take long to find out, how the ends of a chain stand to each other, it says at once (the additive
/// two-level preconditioner of Nicolaides, "Deflation of conjugate gradients with applications to boundary value
/// problems", SIAM Journal on Numerical Analysis 1987).
pub(crate) struct Coarse<'a> {
    group_of: &'a [usize],
    pattern: Arc<Pattern>,
}

impl<'a> Coarse<'a> {
    /// `None` for so few groups that it does not pay.
    pub(crate) fn new(group_of: &'a [usize], groups: usize, links: &[(usize, usize)]) -> Option<Self> {
        if groups < MANY_IMAGES {
            return None;
        }
        let mut graph = Graph::new(groups);
        let ends = links.iter().map(|&(a, b)| (group_of[a], group_of[b]));
        ends.filter(|(a, b)| a != b).for_each(|(a, b)| graph.join(a, b));
        Some(Self { group_of, pattern: Arc::new(Pattern::new(graph, 1, 0.0)) })
    }

    /// For these weights of the links; `None` if it cannot be factored.
    fn factor(&self, links: &[(usize, usize)], weights: &[f64]) -> Option<Factor> {
        let mut laplacian = BlockMatrix::zeros(Arc::clone(&self.pattern), 0);
        let mut diagonal = vec![0.0; laplacian.size()];
        for (&(a, b), w) in links.iter().zip(weights) {
            let (a, b) = (self.group_of[a], self.group_of[b]);
            if a != b {
                diagonal[a] += w;
                diagonal[b] += w;
                *laplacian.entry(a.min(b), a.max(b))? -= w;
            }
        }
        // The constant of every component is free.
        let floor = 1e-9 * diagonal.iter().fold(f64::MIN_POSITIVE, |m, &d| m.max(d));
        for (a, d) in diagonal.iter().enumerate() {
            *laplacian.entry(a, a)? = d + floor;
        }
        laplacian.factor()
    }

    /// Adds the coarse answer to `r` to `z`.
    fn add_to(&self, factor: &Factor, r: &[f64], z: &mut [f64]) {
        let mut sums = vec![0.0; self.pattern.nodes()];
        self.group_of.iter().zip(r).for_each(|(&g, r)| sums[g] += r);
        if factor.solve_in_place(&mut sums, 1).is_some() {
            self.group_of.iter().zip(z).for_each(|(&g, z)| *z += sums[g]);
        }
    }
}

/// Solves `L x = b` for the weighted graph Laplacian `L` by conjugate gradients from `start`, with a Jacobi preconditioner
/// and, for many images, a coarse solution. `b` sums to zero over every component, so a solution exists; the constant is
/// free.
pub(crate) fn solve_laplacian(
    links: &[(usize, usize)],
    weights: &[f64],
    b: &[f64],
    start: Vec<f64>,
    coarse: Option<&Coarse<'_>>,
) -> Vec<f64> {
    let n = b.len();
    let coarse = coarse.and_then(|coarse| Some((coarse, coarse.factor(links, weights)?)));
    let apply = |x: &[f64]| {
        let mut y = vec![0.0; n];
        for (&(i, j), w) in links.iter().zip(weights) {
            let d = w * (x[i] - x[j]);
            y[i] += d;
            y[j] -= d;
        }
        y
    };
    let mut diagonal = vec![0.0; n];
    for (&(i, j), w) in links.iter().zip(weights) {
        diagonal[i] += w;
        diagonal[j] += w;
    }
    let precondition = |r: &[f64]| {
        let jacobi = r.iter().zip(&diagonal).map(|(r, d)| if *d > 0.0 { r / d } else { 0.0 });
        let mut z: Vec<f64> = jacobi.collect();
        if let Some((coarse, factor)) = &coarse {
            coarse.add_to(factor, r, &mut z);
        }
        z
    };
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let mut x = start;
    let ax = apply(&x);
    let mut r: Vec<f64> = b.iter().zip(&ax).map(|(b, a)| b - a).collect();
    let mut z = precondition(&r);
    let mut p = z.clone();
    let mut rz = dot(&r, &z);
    let target = 1e-16 * dot(b, &precondition(b)).max(f64::MIN_POSITIVE);
    for _ in 0..4 * n + 20 {
        if rz <= target {
            break;
        }
        let ap = apply(&p);
        let curvature = dot(&p, &ap);
        if curvature <= 0.0 {
            break;
        }
        let step = rz / curvature;
        for k in 0..n {
            x[k] += step * p[k];
            r[k] -= step * ap[k];
        }
        z = precondition(&r);
        let next = dot(&r, &z);
        let beta = next / rz;
        rz = next;
        for k in 0..n {
            p[k] = z[k] + beta * p[k];
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn a_coarse_solution_leads_to_the_same_differences() {
        // Two nodes for each of 500 images in a circle.
        let (images, mut random) = (500, Random::new(2));
        let group_of: Vec<usize> = (0..2 * images).map(|node| node / 2).collect();
        let links: Vec<(usize, usize)> =
            (0..2 * images).flat_map(|a| (1..5).map(move |k| (a, (a + k) % (2 * images)))).collect();
        let weights: Vec<f64> = links.iter().map(|_| 0.5 + random.uniform()).collect();
        let mut b = vec![0.0; 2 * images];
        for &(i, j) in &links {
            let value = random.normal();
            b[i] += value;
            b[j] -= value;
        }
        let coarse = Coarse::new(&group_of, images, &links);
        assert!(coarse.is_some());
        let solve = |coarse| solve_laplacian(&links, &weights, &b, vec![0.0; 2 * images], coarse);
        let (led, alone) = (solve(coarse.as_ref()), solve(None));
        let largest = alone.iter().map(|x| (x - alone[0]).abs()).fold(0.0, f64::max);
        for (a, b) in led.iter().zip(&alone) {
            assert!(((a - led[0]) - (b - alone[0])).abs() < 1e-5 * largest);
        }
    }
}
