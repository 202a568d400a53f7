//! Light, computed once per surface: a lamp with a soft shadow and the light of the room around.

use nalgebra::Vector3;

use super::scene::{Scene, Shape};
use super::texture::{Colour, uniform};

/// Irradiance over a surface, on a grid in its surface coordinates.
pub(super) struct Lightmap {
    width: usize,
    height: usize,
    texels: Vec<Colour>,
}

/// Metres per texel; shadows of a lamp half a metre wide are softer than this.
const TEXEL: f64 = 0.035;
const LAMP_RAYS: u64 = 16;
const ROOM_RAYS: u64 = 24;
/// Radius of the lamp in metres.
const LAMP_RADIUS: f64 = 0.35;

impl Lightmap {
    pub(super) fn bake(scene: &Scene, index: usize) -> Self {
        let shape = &scene.surface(index).shape;
        let (across, along) = shape.extent();
        let cells = |length: f64| ((length / TEXEL).ceil() as usize).clamp(4, 200);
        let (width, height) = (cells(across), cells(along));
        let texels = (0..width * height)
            .map(|i| {
                let (a, b) = ((i % width) as f64 + 0.5, (i / width) as f64 + 0.5);
                let key = (index as u64) << 32 | i as u64;
                light_at(scene, shape, a / width as f64, b / height as f64, key)
            })
            .collect();
        Self { width, height, texels }
    }

    pub(super) fn sample(&self, u: f64, v: f64) -> Colour {
        let clamped = |value: f64, n: usize| (value * n as f64 - 0.5).clamp(0.0, (n - 1) as f64);
        let (x, y) = (clamped(u, self.width), clamped(v, self.height));
        let (x0, y0) = (x as usize, y as usize);
        let (x1, y1) = ((x0 + 1).min(self.width - 1), (y0 + 1).min(self.height - 1));
        let (fx, fy) = (x.fract() as f32, y.fract() as f32);
        let at = |x: usize, y: usize| self.texels[y * self.width + x];
        at(x0, y0).lerp(&at(x1, y0), fx).lerp(&at(x0, y1).lerp(&at(x1, y1), fx), fy)
    }
}

fn light_at(scene: &Scene, shape: &Shape, a: f64, b: f64, key: u64) -> Colour {
    let lamp = scene.lamp();
    let (point, normal) = shape.at(a, b);
    // Surfaces are seen from the side that faces the middle of the room or the outside of a body; quads do not know
    // theirs, so it is the one towards the lamp. The undersides of tables stay a little too bright: nobody looks.
    let normal = match shape {
        Shape::Quad { .. } if normal.dot(&(lamp - point)) < 0.0 => -normal,
        _ => normal,
    };
    let start = point + 2e-3 * normal;

    let mut direct = 0.0;
    for k in 0..LAMP_RAYS {
        let offset = Vector3::from_fn(|i, _| uniform(11, key * 512 + k * 3 + i as u64) * 2.0 - 1.0);
        let towards = lamp + LAMP_RADIUS * offset - start;
        let distance = towards.norm();
        let direction = towards / distance;
        let facing = normal.dot(&direction);
        if facing > 0.0 && !scene.is_blocked(&start, &direction, distance) {
            direct += facing / (distance * distance).max(0.3);
        }
    }
    let mut around = 0.0;
    for k in 0..ROOM_RAYS {
        // Cosine-weighted directions: a point on the sphere around the tip of the normal.
        let z = uniform(23, key * 512 + 2 * k) * 2.0 - 1.0;
        let turn = uniform(23, key * 512 + 2 * k + 1) * std::f64::consts::TAU;
        let ring = (1.0 - z * z).sqrt();
        let sphere = Vector3::new(ring * turn.cos(), z, ring * turn.sin());
        let Some(direction) = (normal + sphere).try_normalize(1e-6) else { continue };
        // Far surfaces give light, near ones take it: the darkness of corners and under things.
        let distance = scene.cast(&start, &direction, 1.6).map_or(1.6, |(_, hit)| hit.distance);
        around += (distance / 1.6).sqrt();
    }
    let (direct, around) = (direct / LAMP_RAYS as f64, around / ROOM_RAYS as f64);
    let warm = Colour::new(1.0, 0.93, 0.82) * (2.6 * direct) as f32;
    let cool = Colour::new(0.86, 0.93, 1.0) * (0.42 * around) as f32;
    warm + cool
}
