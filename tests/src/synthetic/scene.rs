//! What a ray hits, and what it looks like there.

use std::sync::Arc;

use nalgebra::Vector3;

use super::light::Lightmap;
use super::room::Subject;
use super::texture::{Colour, Texture};
use super::truth::TagTruth;

type Vec3 = Vector3<f64>;

/// The shapes that everything is made of. All are hollow surfaces; y points down.
pub(super) enum Shape {
    /// A parallelogram, seen from both sides: corner, first edge, second edge.
    Quad { corner: Vec3, u: Vec3, v: Vec3 },
    /// An axis-aligned ellipsoid: centre, half axes.
    Ellipsoid { centre: Vec3, radii: Vec3 },
    /// The side of an upright cylinder or cone frustum: centre of the top, height, radius at the top and below.
    Frustum { top: Vec3, height: f64, top_radius: f64, bottom_radius: f64 },
}

/// Where a ray hits a shape: distance, surface coordinates in 0..1, unit normal towards the viewer.
#[derive(Clone, Copy)]
pub(super) struct Hit {
    pub(super) distance: f64,
    pub(super) u: f64,
    pub(super) v: f64,
    pub(super) normal: Vec3,
}

impl Shape {
    pub(super) fn intersect(&self, origin: &Vec3, direction: &Vec3, nearest: f64) -> Option<Hit> {
        const START: f64 = 1e-4;
        match self {
            Shape::Quad { corner, u, v } => {
                let normal = u.cross(v);
                let slope = normal.dot(direction);
                if slope.abs() < 1e-12 {
                    return None;
                }
                let distance = normal.dot(&(corner - origin)) / slope;
                if !(START..nearest).contains(&distance) {
                    return None;
                }
                let local = origin + distance * direction - corner;
                let n2 = normal.norm_squared();
                let (a, b) = (local.cross(v).dot(&normal) / n2, u.cross(&local).dot(&normal) / n2);
                if !(0.0..=1.0).contains(&a) || !(0.0..=1.0).contains(&b) {
                    return None;
                }
                let normal = normal.normalize() * -slope.signum();
                Some(Hit { distance, u: a, v: b, normal })
            }
            Shape::Ellipsoid { centre, radii } => {
                let o = (origin - centre).component_div(radii);
                let d = direction.component_div(radii);
                let (a, b, c) = (d.norm_squared(), o.dot(&d), o.norm_squared() - 1.0);
                let root = b * b - a * c;
                if root <= 0.0 {
                    return None;
                }
                let root = root.sqrt();
                let distance = [(-b - root) / a, (-b + root) / a].into_iter().find(|t| *t > START)?;
                if distance >= nearest {
                    return None;
                }
                let p = o + distance * d;
                let outward = p.component_div(radii).normalize();
                let normal = if outward.dot(direction) > 0.0 { -outward } else { outward };
                let u = 0.5 + p.z.atan2(p.x) / std::f64::consts::TAU;
                let v = p.y.clamp(-1.0, 1.0).acos() / std::f64::consts::PI;
                Some(Hit { distance, u, v, normal })
            }
            Shape::Frustum { top, height, top_radius, bottom_radius } => {
                let slope = (bottom_radius - top_radius) / height;
                let o = origin - top;
                let radius = top_radius + slope * o.y;
                let a = direction.x.powi(2) + direction.z.powi(2) - (slope * direction.y).powi(2);
                let b = o.x * direction.x + o.z * direction.z - slope * direction.y * radius;
                let c = o.x * o.x + o.z * o.z - radius * radius;
                let root = b * b - a * c;
                if root <= 0.0 || a.abs() < 1e-12 {
                    return None;
                }
                let root = root.sqrt();
                let (near, far) = ((-b - root) / a, (-b + root) / a);
                let distance = [near.min(far), near.max(far)]
                    .into_iter()
                    .find(|t| *t > START && (0.0..=*height).contains(&(o.y + t * direction.y)))?;
                if distance >= nearest {
                    return None;
                }
                let p = o + distance * direction;
                let outward = Vec3::new(p.x, -slope * (top_radius + slope * p.y), p.z).normalize();
                let normal = if outward.dot(direction) > 0.0 { -outward } else { outward };
                let u = 0.5 + p.z.atan2(p.x) / std::f64::consts::TAU;
                Some(Hit { distance, u, v: p.y / height, normal })
            }
        }
    }

    /// The point and unit normal at surface coordinates; the normal's side is arbitrary for quads.
    pub(super) fn at(&self, a: f64, b: f64) -> (Vec3, Vec3) {
        let turn = (a - 0.5) * std::f64::consts::TAU;
        match self {
            Shape::Quad { corner, u, v } => (corner + a * u + b * v, u.cross(v).normalize()),
            Shape::Ellipsoid { centre, radii } => {
                let (polar, around) = ((b * std::f64::consts::PI).sin(), turn);
                let p =
                    Vec3::new(polar * around.cos(), (b * std::f64::consts::PI).cos(), polar * around.sin());
                (centre + p.component_mul(radii), p.component_div(radii).normalize())
            }
            Shape::Frustum { top, height, top_radius, bottom_radius } => {
                let slope = (bottom_radius - top_radius) / height;
                let radius = top_radius + slope * b * height;
                let p = Vec3::new(radius * turn.cos(), b * height, radius * turn.sin());
                (top + p, Vec3::new(turn.cos(), -slope, turn.sin()).normalize())
            }
        }
    }

    /// Rough lengths along the two surface coordinates, metres.
    pub(super) fn extent(&self) -> (f64, f64) {
        use std::f64::consts::{PI, TAU};
        match self {
            Shape::Quad { u, v, .. } => (u.norm(), v.norm()),
            Shape::Ellipsoid { radii, .. } => (TAU * radii.x.max(radii.z), PI * radii.max()),
            Shape::Frustum { height, top_radius, bottom_radius, .. } => {
                (TAU * top_radius.max(*bottom_radius), *height)
            }
        }
    }

    /// Its middle.
    pub(super) fn middle(&self) -> Vec3 {
        let (low, high) = self.bounds();
        0.5 * (low + high)
    }

    /// The same shape after half a turn about the vertical through x = z = 0.
    pub(super) fn half_turned(&self) -> Self {
        let turned = |p: &Vec3| Vec3::new(-p.x, p.y, -p.z);
        match self {
            Shape::Quad { corner, u, v } => {
                Shape::Quad { corner: turned(corner), u: turned(u), v: turned(v) }
            }
            Shape::Ellipsoid { centre, radii } => Shape::Ellipsoid { centre: turned(centre), radii: *radii },
            Shape::Frustum { top, height, top_radius, bottom_radius } => Shape::Frustum {
                top: turned(top),
                height: *height,
                top_radius: *top_radius,
                bottom_radius: *bottom_radius,
            },
        }
    }

    /// The corners of a box around it.
    pub(super) fn bounds(&self) -> (Vec3, Vec3) {
        match self {
            Shape::Quad { corner, u, v } => {
                let corners = [*corner, corner + u, corner + v, corner + u + v];
                corners.iter().fold((corners[0], corners[0]), |(lo, hi), p| (lo.inf(p), hi.sup(p)))
            }
            Shape::Ellipsoid { centre, radii } => (centre - radii, centre + radii),
            Shape::Frustum { top, height, top_radius, bottom_radius } => {
                let r = top_radius.max(*bottom_radius);
                (top - Vec3::new(r, 0.0, r), top + Vec3::new(r, *height, r))
            }
        }
    }
}

/// What a surface is made of.
#[derive(Clone)]
pub(super) struct Material {
    pub(super) texture: Arc<Texture>,
    /// Repeats of the texture over the surface.
    pub(super) repeat: (f64, f64),
    /// Where in the texture the surface begins.
    pub(super) offset: (f64, f64),
    /// Strength of the highlight, 0 to 1.
    pub(super) gloss: f64,
}

/// A shape with its material and, once lit, its light.
pub(super) struct Surface {
    pub(super) shape: Shape,
    pub(super) material: Material,
    pub(super) subject: Subject,
    pub(super) light: Option<Lightmap>,
}

/// Surfaces that stand close together, behind one bounding box.
struct Group {
    low: Vec3,
    high: Vec3,
    surfaces: std::ops::Range<usize>,
}

impl Group {
    /// Whether a ray meets the bounding box nearer than `nearest`.
    fn is_met(&self, origin: &Vec3, inverse_direction: &Vec3, nearest: f64) -> bool {
        let (mut enter, mut leave) = (f64::MIN, f64::MAX);
        for axis in 0..3 {
            let a = (self.low[axis] - origin[axis]) * inverse_direction[axis];
            let b = (self.high[axis] - origin[axis]) * inverse_direction[axis];
            let (near, far) = if a < b { (a, b) } else { (b, a) };
            enter = if near > enter { near } else { enter };
            leave = if far < leave { far } else { leave };
        }
        !(enter > leave || leave < 0.0 || enter > nearest)
    }
}

/// Everything there is to see.
pub(super) struct Scene {
    surfaces: Vec<Surface>,
    groups: Vec<Group>,
    lamp: Vec3,
    tags: Vec<TagTruth>,
}

impl Scene {
    /// What there is to see where there is nothing.
    pub(super) const DARK: Vec3 = Vec3::new(0.02, 0.02, 0.02);

    /// From things that each consist of some surfaces, lit by a lamp at `lamp`.
    pub(super) fn new(things: Vec<Vec<Surface>>, lamp: Vec3, tags: Vec<TagTruth>) -> Self {
        let mut surfaces = Vec::new();
        let mut groups = Vec::new();
        for thing in things {
            let start = surfaces.len();
            let (mut low, mut high) = (Vec3::repeat(f64::MAX), Vec3::repeat(f64::MIN));
            for surface in thing {
                let (a, b) = surface.shape.bounds();
                (low, high) = (low.inf(&a), high.sup(&b));
                surfaces.push(surface);
            }
            let margin = Vec3::repeat(1e-6);
            groups.push(Group { low: low - margin, high: high + margin, surfaces: start..surfaces.len() });
        }
        let mut scene = Self { surfaces, groups, lamp, tags };
        let lights: Vec<Lightmap> = {
            use rayon::prelude::*;
            (0..scene.surfaces.len()).into_par_iter().map(|i| Lightmap::bake(&scene, i)).collect()
        };
        for (surface, light) in scene.surfaces.iter_mut().zip(lights) {
            surface.light = Some(light);
        }
        scene
    }

    pub(super) fn tags(&self) -> &[TagTruth] {
        &self.tags
    }

    pub(super) fn lamp(&self) -> Vec3 {
        self.lamp
    }

    pub(super) fn surface(&self, index: usize) -> &Surface {
        &self.surfaces[index]
    }

    /// The nearest surface along a ray, nearer than `limit`.
    pub(super) fn cast(&self, origin: &Vec3, direction: &Vec3, limit: f64) -> Option<(usize, Hit)> {
        let inverse = direction.map(|d| 1.0 / d);
        let mut best: Option<(usize, Hit)> = None;
        let mut nearest = limit;
        for group in &self.groups {
            if !group.is_met(origin, &inverse, nearest) {
                continue;
            }
            for index in group.surfaces.clone() {
                if let Some(hit) = self.surfaces[index].shape.intersect(origin, direction, nearest) {
                    nearest = hit.distance;
                    best = Some((index, hit));
                }
            }
        }
        best
    }

    /// Whether anything is on a ray, nearer than `limit`: what `cast` finds first is enough.
    pub(super) fn is_blocked(&self, origin: &Vec3, direction: &Vec3, limit: f64) -> bool {
        let inverse = direction.map(|d| 1.0 / d);
        self.groups.iter().filter(|group| group.is_met(origin, &inverse, limit)).any(|group| {
            let mut surfaces = self.surfaces[group.surfaces.clone()].iter();
            surfaces.any(|surface| surface.shape.intersect(origin, direction, limit).is_some())
        })
    }

    /// Linear colour along a ray and whether it hits the subject. `pixel_angle` (radians) sets the texture detail.
    pub(super) fn look(&self, origin: &Vec3, direction: &Vec3, pixel_angle: f64) -> (Vec3, Subject) {
        // The room is closed: a ray that slips through a seam between two walls sees a dark corner.
        self.look_at(origin, direction, pixel_angle).unwrap_or((Self::DARK, Subject::No))
    }

    /// As [`Scene::look`]; `None` where nothing is met.
    pub(super) fn look_at(
        &self,
        origin: &Vec3,
        direction: &Vec3,
        pixel_angle: f64,
    ) -> Option<(Vec3, Subject)> {
        let (index, hit) = self.cast(origin, direction, f64::MAX)?;
        let surface = &self.surfaces[index];
        let material = &surface.material;
        let (across, along) = surface.shape.extent();
        let slant = hit.normal.dot(direction).abs().max(0.15);
        let per_metre = (material.repeat.0 / across).max(material.repeat.1 / along);
        let footprint = hit.distance * pixel_angle * per_metre / slant.sqrt();
        let (repeat, offset) = (material.repeat, material.offset);
        let (u, v) = ((hit.u * repeat.0 + offset.0) as f32, (hit.v * repeat.1 + offset.1) as f32);
        let albedo: Colour = material.texture.sample(u, v, footprint as f32);
        let light = surface.light.as_ref().map_or(Colour::zeros(), |l| l.sample(hit.u, hit.v));
        let mut colour = albedo.component_mul(&light).cast::<f64>();
        if material.gloss > 0.0 {
            let point = origin + hit.distance * direction;
            let half = ((self.lamp - point).normalize() - direction).normalize();
            colour += Vec3::repeat(material.gloss * half.dot(&hit.normal).max(0.0).powi(24));
        }
        Some((colour, surface.subject))
    }
}
