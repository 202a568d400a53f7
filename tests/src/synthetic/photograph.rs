//! One large flat photograph, and nothing else.

use nalgebra::Vector3;

use super::room::{Subject, matte, surface};
use super::scene::{Scene, Shape, Surface};
use super::texture;

/// Width and height, metres.
const SIZE: (f64, f64) = (3.6, 2.4);

/// A collage on the plane z = 0, its middle at the height of an eye.
pub(super) fn photograph(seed: u64) -> Scene {
    let s = seed * 1000 + 500;
    let parts = [
        texture::painting(s),
        texture::books(s + 1),
        texture::rug(s + 2),
        texture::poster(s + 3),
        texture::bricks(s + 4),
        texture::painting(s + 5),
    ];
    let (u, v) = (Vector3::x() * SIZE.0 / 3.0, Vector3::y() * SIZE.1 / 2.0);
    let corner = Vector3::new(-SIZE.0 / 2.0, -1.4 - SIZE.1 / 2.0, 0.0);
    let sheet: Vec<Surface> = parts
        .iter()
        .enumerate()
        .map(|(k, part)| {
            let corner = corner + (k % 3) as f64 * u + (k / 3) as f64 * v;
            surface(Shape::Quad { corner, u, v }, &matte(part, 1.0, 1.0), Subject::No)
        })
        .collect();
    Scene::new(vec![sheet], Vector3::new(0.6, -2.35, -2.0), Vec::new())
}
