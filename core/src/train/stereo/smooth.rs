//! Semi-global matching (Hirschmüller, PAMI 2008): costs summed along straight paths through the picture, on which a
//! change of depth has a price.

use super::Frame;
use super::sweep::Volume;

/// The price of moving by one plane from pixel to pixel.
const SMALL: f32 = 0.02;
/// The price of moving farther, where the picture is uniform; it falls with the step in brightness,
const LARGE: f32 = 0.5;
/// halved at this one.
const EDGE: f32 = 0.08;

/// The sums of the costs along the eight directions, in the order of the volume.
pub(super) fn along_paths(volume: &Volume, frame: &Frame) -> Vec<f32> {
    const DIRECTIONS: [(i32, i32); 8] =
        [(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1), (1, -1), (-1, 1)];
    let (w, h, planes) = (volume.width, volume.height, volume.planes);
    let mut total = vec![0.0f32; volume.cost.len()];
    // The path costs of the row before and of this row.
    let mut before = vec![0.0f32; w * planes];
    let mut row = vec![0.0f32; w * planes];
    for (dx, dy) in DIRECTIONS {
        for n in 0..h {
            let y = if dy < 0 { h - 1 - n } else { n };
            for m in 0..w {
                let x = if dx < 0 || (dx == 0 && dy < 0) { w - 1 - m } else { m };
                let costs = &volume.cost[(y * w + x) * planes..][..planes];
                let (px, py) = (x as i32 - dx, y as i32 - dy);
                let inside = px >= 0 && py >= 0 && px < w as i32 && py < h as i32;
                if !inside {
                    row[x * planes..][..planes].copy_from_slice(costs);
                } else {
                    let edge = (frame.grey[y * w + x] - frame.grey[py as usize * w + px as usize]).abs();
                    let large = (LARGE / (1.0 + edge / EDGE)).max(SMALL);
                    if dy == 0 {
                        let (from, to) = pair(&mut row, px as usize * planes, x * planes, planes);
                        extend(costs, from, to, large);
                    } else {
                        extend(
                            costs,
                            &before[px as usize * planes..][..planes],
                            &mut row[x * planes..][..planes],
                            large,
                        );
                    }
                }
                let sum = &mut total[(y * w + x) * planes..][..planes];
                for (s, v) in sum.iter_mut().zip(&row[x * planes..][..planes]) {
                    *s += v;
                }
            }
            std::mem::swap(&mut before, &mut row);
        }
    }
    total
}

/// Two separate ranges of one slice, the first to read and the second to write.
fn pair(values: &mut [f32], from: usize, to: usize, length: usize) -> (&[f32], &mut [f32]) {
    if from < to {
        let (a, b) = values.split_at_mut(to);
        (&a[from..from + length], &mut b[..length])
    } else {
        let (a, b) = values.split_at_mut(from);
        (&b[..length], &mut a[to..to + length])
    }
}

/// One step along a path: `to = costs + min(from, its neighbours + SMALL, least + large) - least`.
fn extend(costs: &[f32], from: &[f32], to: &mut [f32], large: f32) {
    let least = from.iter().copied().fold(f32::INFINITY, f32::min);
    let bound = least + large;
    let last = from.len() - 1;
    for k in 0..from.len() {
        let below = if k > 0 { from[k - 1] } else { f32::INFINITY };
        let above = if k < last { from[k + 1] } else { f32::INFINITY };
        to[k] = costs[k] + from[k].min(below.min(above) + SMALL).min(bound) - least;
    }
}
