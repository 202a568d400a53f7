//! A furnished room: brick, plaster, pictures, shelves of books, a rug, and on the table the things that are filmed.
//!
//! World: metres, y down, the floor at y = 0, the middle of the table at x = z = 0.

use std::f64::consts::TAU;
use std::sync::Arc;

use nalgebra::Vector3;

use super::scene::{Material, Scene, Shape, Surface};
use super::texture::{self, Texture, uniform};
use super::truth::TagTruth;
use super::{SubjectKind, TableKind, TagOptions};

type Vec3 = Vector3<f64>;

/// Whether a surface belongs to what a mask should keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    Yes,
    No,
}

/// What decides how the room looks.
pub(super) struct Room {
    pub(super) seed: u64,
    pub(super) tags: Option<TagOptions>,
    pub(super) subject: SubjectKind,
    pub(super) table: TableKind,
    /// Whether things that are not the subject stand around it on the table.
    pub(super) neighbours: bool,
    /// Whether things stand between the camera's path and the table.
    pub(super) occluders: bool,
    /// Walls of one colour, and no furniture but the table.
    pub(super) plain_walls: bool,
    /// Half of everything stands there twice, the second time turned by half a turn.
    pub(super) twin: bool,
    /// Everything but the walls is turned by half a turn.
    pub(super) turned: bool,
    /// Where doors are, in the middle of a wall: +1 or -1 along x, or along z.
    pub(super) doors: Vec<(i32, i32)>,
}

/// Half the side of the room.
pub(super) const HALF: f64 = 2.7;
const CEILING: f64 = -2.7;
/// Where the lamp hangs.
const LAMP: Vec3 = Vec3::new(0.6, -2.35, -0.5);
/// Height of the table top.
const TABLE: f64 = -0.74;
/// Half the width of a door, and how high it is.
const DOOR: (f64, f64) = (0.45, 2.05);
/// What must be free before a door: to both sides of its middle, and into the room.
const PASSAGE: (f64, f64) = (0.65, 1.0);

pub(super) fn matte(texture: &Arc<Texture>, u: f64, v: f64) -> Material {
    glossy(texture, u, v, 0.0)
}

fn glossy(texture: &Arc<Texture>, u: f64, v: f64, gloss: f64) -> Material {
    Material { texture: texture.clone(), repeat: (u, v), offset: (0.0, 0.0), gloss }
}

pub(super) fn surface(shape: Shape, material: &Material, subject: Subject) -> Surface {
    Surface { shape, material: material.clone(), subject, light: None }
}

fn quad(corner: Vec3, u: Vec3, v: Vec3, material: &Material) -> Surface {
    surface(Shape::Quad { corner, u, v }, material, Subject::No)
}

/// A wall from `corner` (its upper one) with a door in its middle: what is left of it, right of it and above it.
fn wall_with_door(corner: Vec3, along: Vec3, down: Vec3, material: &Material) -> Vec<Surface> {
    let (half, height) = (DOOR.0 / along.norm(), DOOR.1 / down.norm());
    let piece = |u: (f64, f64), v: (f64, f64)| {
        let (repeat, offset) = (material.repeat, material.offset);
        let cut = Material {
            texture: material.texture.clone(),
            repeat: (repeat.0 * (u.1 - u.0), repeat.1 * (v.1 - v.0)),
            offset: (offset.0 + repeat.0 * u.0, offset.1 + repeat.1 * v.0),
            gloss: material.gloss,
        };
        quad(corner + u.0 * along + v.0 * down, (u.1 - u.0) * along, (v.1 - v.0) * down, &cut)
    };
    vec![
        piece((0.0, 0.5 - half), (0.0, 1.0)),
        piece((0.5 + half, 1.0), (0.0, 1.0)),
        piece((0.5 - half, 0.5 + half), (0.0, 1.0 - height)),
    ]
}

/// A box standing at `base` (centre of its bottom), turned by `angle` about the vertical.
fn cuboid(base: Vec3, size: Vec3, angle: f64, material: &Material, subject: Subject) -> Vec<Surface> {
    let (sin, cos) = angle.sin_cos();
    let (x, z) = (Vec3::new(cos, 0.0, sin) * size.x, Vec3::new(-sin, 0.0, cos) * size.z);
    let up = Vec3::new(0.0, -size.y, 0.0);
    let corner = base - 0.5 * x - 0.5 * z;
    let side = |corner, u, v| surface(Shape::Quad { corner, u, v }, material, subject);
    vec![
        side(corner + up, x, z),
        side(corner + up, x, -up),
        side(corner + up + z, x, -up),
        side(corner + up, z, -up),
        side(corner + up + x, z, -up),
    ]
}

/// Stacked frustums with a closed top: `profile` is (height above the base, radius), from below.
fn turned(base: Vec3, profile: &[(f64, f64)], material: &Material, subject: Subject) -> Vec<Surface> {
    let mut parts = Vec::new();
    for pair in profile.windows(2) {
        let ((low, bottom_radius), (high, top_radius)) = (pair[0], pair[1]);
        let top = base - Vec3::new(0.0, high, 0.0);
        parts.push(surface(
            Shape::Frustum { top, height: high - low, top_radius, bottom_radius },
            material,
            subject,
        ));
    }
    parts
}

fn ball(centre: Vec3, radii: Vec3, material: &Material, subject: Subject) -> Vec<Surface> {
    vec![surface(Shape::Ellipsoid { centre, radii }, material, subject)]
}

impl Room {
    /// Builds and lights it.
    pub(super) fn build(&self) -> Scene {
        let mut things = self.objects();
        if self.twin {
            things = twice(things);
        }
        things.retain(|thing| !thing.iter().any(|s| self.stands_in_a_passage(&s.shape)));
        if self.turned {
            things = things.iter().map(|thing| half_turned(thing)).collect();
        }
        let mut truths = Vec::new();
        if let Some(options) = &self.tags {
            for (id, sheet) in sheets(options) {
                things.push(sheet.surfaces());
                truths.extend(id.map(|id| sheet.truth(id)));
            }
        }
        Scene::new(things, LAMP, truths)
    }

    /// The room without the subject, and the subject: what turns is lit as it stands at first.
    pub(super) fn build_apart(&self) -> (Scene, Scene) {
        let scene = |things| Scene::new(things, LAMP, Vec::new());
        (scene(self.surroundings()), scene(self.things_on_the_table()))
    }

    /// Everything but the tags.
    fn objects(&self) -> Vec<Vec<Surface>> {
        let mut things = self.surroundings();
        things.extend(self.things_on_the_table());
        things
    }

    fn surroundings(&self) -> Vec<Vec<Surface>> {
        let mut things = self.shell();
        let furniture = self.furniture();
        if self.plain_walls {
            let grey = matte(&Texture::paint(4, |_, _| [0.55, 0.54, 0.52]), 1.0, 1.0);
            // The table, which comes after the rug, and its legs.
            things.extend(furniture.into_iter().skip(1).take(5));
            things.iter_mut().flatten().for_each(|s| s.material = grey.clone());
        } else {
            things.extend(furniture);
        }
        if let Some((top, size)) = self.table_top() {
            // Two millimetres above the oak, which it hides.
            things.push(cuboid(
                on_table(0.0, 0.0, -0.002),
                Vec3::new(size.0, 0.004, size.1),
                0.1,
                &top,
                Subject::No,
            ));
        }
        if self.neighbours {
            things.extend(self.neighbours());
        }
        if self.occluders {
            things.extend(self.occluders());
        }
        things
    }

    /// What covers the oak of the table, and its width and depth (metres).
    fn table_top(&self) -> Option<(Material, (f64, f64))> {
        const OF_TABLE: (f64, f64) = (1.52, 0.97);
        let s = self.seed * 1000 + 300;
        let white = Texture::paint(4, |_, _| [0.86, 0.86, 0.85]);
        match self.table {
            TableKind::Oak => None,
            TableKind::Blank => Some((matte(&white, 1.0, 1.0), OF_TABLE)),
            TableKind::Glossy => {
                let grey = Texture::paint(4, |_, _| [0.45, 0.44, 0.43]);
                Some((glossy(&grey, 1.0, 1.0, 0.5), OF_TABLE))
            }
            TableKind::Cloth => Some((matte(&texture::rug(s), 1.0, 1.0), OF_TABLE)),
            TableKind::Ground => {
                let side = 2.0 * HALF - 0.02;
                Some((matte(&texture::granite(s, [0.55, 0.53, 0.5]), 4.0, 4.0), (side, side)))
            }
        }
    }

    /// A bowl, a bottle and a box, farther from the middle than the subject.
    fn neighbours(&self) -> Vec<Vec<Surface>> {
        let s = self.seed * 1000 + 400;
        let bowl = glossy(&texture::ceramic(s), 1.0, 1.0, 0.2);
        let bottle = glossy(&texture::granite(s + 1, [0.15, 0.35, 0.2]), 1.0, 1.0, 0.3);
        let carton = matte(&texture::poster(s + 2), 1.0, 1.0);
        let side = [-1.0, 1.0][(self.seed % 2) as usize];
        vec![
            turned(
                on_table(0.5 * side, 0.22, 0.0),
                &[(0.0, 0.05), (0.03, 0.1), (0.07, 0.12)],
                &bowl,
                Subject::No,
            ),
            turned(
                on_table(-0.48 * side, 0.2, 0.0),
                &[(0.0, 0.04), (0.18, 0.04), (0.22, 0.015), (0.3, 0.015)],
                &bottle,
                Subject::No,
            ),
            cuboid(on_table(0.46 * side, -0.24, 0.0), Vec3::new(0.16, 0.1, 0.09), 0.7, &carton, Subject::No),
        ]
    }

    /// A bottle, a plant and a post half way between the subject and the camera, beside the table. They hide all of the subject's
    /// height: they are as high as the camera goes.
    fn occluders(&self) -> Vec<Vec<Surface>> {
        /// Where they end, metres above the floor.
        const TOP: f64 = 1.6;
        /// Radius of the plant, a stack of balls, metres.
        const PLANT: f64 = 0.12;
        let s = self.seed * 1000 + 450;
        let glaze = glossy(&texture::ceramic(s), 1.0, 3.0, 0.1);
        let leaves = matte(&texture::granite(s + 1, [0.3, 0.5, 0.2]), 1.0, 1.0);
        let paint = matte(&texture::cloth(s + 2, [0.6, 0.45, 0.3]), 1.0, 8.0);
        let foot = if self.table == TableKind::Ground { TABLE } else { 0.0 };
        let height = TOP + foot;
        // Angles are those of the camera's path: from -z towards +x.
        let at = |degrees: f64, distance: f64| {
            let (sin, cos) = degrees.to_radians().sin_cos();
            Vec3::new(distance * sin, foot, -distance * cos)
        };
        let bottle = [(0.0, 0.1), (height - 0.2, 0.1), (height - 0.12, 0.05), (height, 0.05)];
        let plant = (0..(height / 0.17).ceil() as u32).flat_map(|k| {
            let turn = 2.4 * f64::from(k);
            let aside = 0.02 * Vec3::new(turn.sin(), 0.0, turn.cos());
            let up = Vec3::new(0.0, PLANT + 0.17 * f64::from(k) - height, 0.0);
            let radius = PLANT - 0.015 * f64::from(k % 2);
            ball(at(36.0, 0.75) + aside + up, Vec3::repeat(radius), &leaves, Subject::No)
        });
        vec![
            turned(at(-28.0, 0.74), &bottle, &glaze, Subject::No),
            plant.collect(),
            cuboid(at(-155.0, 0.75), Vec3::new(0.17, height, 0.17), 0.4, &paint, Subject::No),
        ]
    }

    fn things_on_the_table(&self) -> Vec<Vec<Surface>> {
        match self.subject {
            SubjectKind::StillLife => self.still_life(),
            SubjectKind::Plain => figure([0.82, 0.82, 0.8]),
            SubjectKind::Dark => figure([0.11, 0.1, 0.1]),
            SubjectKind::Thin => self.candlestick(),
            SubjectKind::Bricks => self.bricks_with_tools(),
            SubjectKind::Train => self.train(),
        }
    }

    fn bricks_with_tools(&self) -> Vec<Vec<Surface>> {
        let s = self.seed * 1000 + 140;
        let pale = matte(&texture::plaster(s, [0.82, 0.76, 0.68]), 1.0, 1.0);
        let steel = glossy(&texture::granite(s + 1, [0.3, 0.3, 0.33]), 1.0, 1.0, 0.2);
        let red = matte(&texture::cloth(s + 2, [0.6, 0.15, 0.12]), 1.0, 1.0);
        let mut things = Vec::new();
        for (x, z, height, turn) in [(-0.13, 0.0, 0.0, 0.1), (0.13, 0.02, 0.0, -0.15), (0.0, 0.01, 0.1, 0.9)]
        {
            let size = Vec3::new(0.24, 0.1, 0.14);
            things.push(cuboid(on_table(x, z, height), size, turn, &pale, Subject::Yes));
        }
        for (x, z, turn) in [(-0.02, -0.03, 0.3), (0.02, 0.05, 2.2)] {
            things.push(cuboid(
                on_table(x, z, 0.2),
                Vec3::new(0.34, 0.018, 0.03),
                turn,
                &steel,
                Subject::Yes,
            ));
            let (sin, cos) = f64::sin_cos(turn);
            let handle = on_table(x + 0.1 * cos, z + 0.1 * sin, 0.199);
            things.push(cuboid(handle, Vec3::new(0.14, 0.03, 0.045), turn, &red, Subject::Yes));
        }
        things
    }

    fn candlestick(&self) -> Vec<Vec<Surface>> {
        let brass = glossy(&texture::granite(self.seed * 1000 + 121, [0.62, 0.48, 0.2]), 1.0, 1.0, 0.1);
        let wax = matte(&texture::plaster(self.seed * 1000 + 122, [0.8, 0.3, 0.25]), 1.0, 1.0);
        let part = |base, profile: &[(f64, f64)]| turned(base, profile, &brass, Subject::Yes);
        let foot = [(0.0, 0.14), (0.02, 0.13), (0.05, 0.03), (0.07, 0.012), (0.36, 0.012)];
        let mut things = vec![part(on_table(0.0, 0.0, 0.0), &foot)];
        for (turn, length, height) in [(0.5, 0.62, 0.36), (0.5 + TAU / 4.0, 0.44, 0.26)] {
            let beam = Vec3::new(length, 0.016, 0.016);
            things.push(cuboid(on_table(0.0, 0.0, height), beam, turn, &brass, Subject::Yes));
            let (sin, cos) = f64::sin_cos(turn);
            for end in [-0.5 * length, 0.5 * length] {
                let top = on_table(end * cos, end * sin, height + 0.016);
                things.push(part(top, &[(0.0, 0.012), (0.02, 0.03)]));
                things.push(turned(top, &[(0.0, 0.01), (0.13, 0.01)], &wax, Subject::Yes));
            }
        }
        things
    }

    /// Three wagons and an engine on one base, along the table.
    fn train(&self) -> Vec<Vec<Surface>> {
        const TURN: f64 = 0.1;
        let s = self.seed * 1000 + 160;
        let iron = matte(&texture::granite(s, [0.3, 0.3, 0.32]), 8.0, 1.0);
        let (sin, cos) = TURN.sin_cos();
        let at = |along: f64, height: f64| on_table(along * cos, along * sin, height);
        let mut things = vec![cuboid(at(0.0, 0.0), Vec3::new(1.12, 0.04, 0.1), TURN, &iron, Subject::Yes)];
        let bodies = [
            (-0.42, 0.26, 0.13),
            (-0.14, 0.26, 0.1),
            (0.14, 0.26, 0.14),
            (0.35, 0.12, 0.2),
            (0.48, 0.14, 0.11),
        ];
        for (k, (along, length, height)) in (0u64..).zip(bodies) {
            let colour: [f32; 3] = std::array::from_fn(|i| 0.25 + 0.5 * uniform(s, 10 * k + i as u64) as f32);
            let paint = matte(&texture::cloth(s + 1 + k, colour), 1.0, 1.0);
            things.push(cuboid(at(along, 0.04), Vec3::new(length, height, 0.11), TURN, &paint, Subject::Yes));
        }
        let chimney = [(0.0, 0.02), (0.06, 0.02), (0.09, 0.03)];
        things.push(turned(at(0.5, 0.15), &chimney, &iron, Subject::Yes));
        things
    }

    fn shell(&self) -> Vec<Vec<Surface>> {
        let s = self.seed * 1000;
        let side = 2.0 * HALF;
        let floor = matte(&texture::boards(s + 1, [0.3, 0.18, 0.1], [0.62, 0.44, 0.27], 8.0), 2.0, 2.0);
        let brick = matte(&texture::bricks(s + 2), 2.0, 1.5);
        let green = matte(&texture::plaster(s + 3, [0.62, 0.68, 0.58]), 2.0, 1.0);
        let cream = matte(&texture::plaster(s + 4, [0.85, 0.78, 0.64]), 2.0, 1.0);
        let blue = matte(&texture::plaster(s + 5, [0.5, 0.58, 0.68]), 2.0, 1.0);
        let white = matte(&texture::plaster(s + 6, [0.9, 0.88, 0.85]), 2.0, 2.0);
        let (x, z) = (Vec3::new(side, 0.0, 0.0), Vec3::new(0.0, 0.0, side));
        let down = Vec3::new(0.0, -CEILING, 0.0);
        let at = |x: f64, y: f64, z: f64| Vec3::new(x, y, z);
        let mut things = vec![
            vec![quad(at(-HALF, 0.0, -HALF), x, z, &floor)],
            vec![quad(at(-HALF, CEILING, -HALF), x, z, &white)],
        ];
        let doors = self.doors_before_the_turn();
        for (corner, along, material, door) in [
            (at(-HALF, CEILING, HALF), x, &brick, (0, 1)),
            (at(-HALF, CEILING, -HALF), x, &cream, (0, -1)),
            (at(-HALF, CEILING, -HALF), z, &green, (-1, 0)),
            (at(HALF, CEILING, -HALF), z, &blue, (1, 0)),
        ] {
            match doors.contains(&door) {
                true => things.push(wall_with_door(corner, along, down, material)),
                false => things.push(vec![quad(corner, along, down, material)]),
            }
        }
        things
    }

    /// Where doors are in the room as it is built, which may be turned after.
    fn doors_before_the_turn(&self) -> Vec<(i32, i32)> {
        let sign = if self.turned { -1 } else { 1 };
        self.doors.iter().map(|(x, z)| (sign * x, sign * z)).collect()
    }

    /// Whether something is where people go through a door.
    fn stands_in_a_passage(&self, shape: &Shape) -> bool {
        // Walls, floor and rug are at its sides.
        const MARGIN: f64 = 0.01;
        let (low, high) = shape.bounds();
        let meets = |from: Vec3, to: Vec3| (0..3).all(|i| low[i] < to[i] && from[i] < high[i]);
        self.doors_before_the_turn().iter().any(|&(x, z)| {
            let out = Vec3::new(f64::from(x), 0.0, f64::from(z));
            let beside = PASSAGE.0 * Vec3::new(out.z.abs(), 0.0, out.x.abs());
            let (near, far) = ((HALF - PASSAGE.1) * out, (HALF - MARGIN) * out);
            let (lowest, highest) = (near.inf(&far) - beside, near.sup(&far) + beside);
            meets(lowest - Vec3::new(0.0, DOOR.1, 0.0), highest - Vec3::new(0.0, MARGIN, 0.0))
        })
    }

    fn furniture(&self) -> Vec<Vec<Surface>> {
        let s = self.seed * 1000;
        let oak = texture::boards(s + 11, [0.36, 0.22, 0.12], [0.7, 0.5, 0.3], 5.0);
        let walnut = texture::boards(s + 12, [0.2, 0.12, 0.08], [0.42, 0.28, 0.18], 4.0);
        let (table, dark) = (glossy(&oak, 1.0, 1.0, 0.04), matte(&walnut, 1.0, 1.0));
        let flat = |x: f64, z: f64| Vec3::new(x, 0.0, z);
        let mut things = Vec::new();

        let rug = matte(&texture::rug(s + 13), 1.0, 1.0);
        let lift = Vec3::new(-1.35, -0.006, -1.1);
        things.push(vec![quad(lift, Vec3::new(2.7, 0.0, 0.0), Vec3::new(0.0, 0.0, 2.2), &rug)]);

        things.push(cuboid(
            Vec3::new(0.0, TABLE + 0.04, 0.0),
            Vec3::new(1.5, 0.04, 0.95),
            0.1,
            &table,
            Subject::No,
        ));
        for (dx, dz) in [(-0.66, -0.38), (0.66, -0.38), (-0.66, 0.38), (0.66, 0.38)] {
            let leg = Vec3::new(0.06, -TABLE - 0.04, 0.06);
            things.push(cuboid(flat(dx, dz), leg, 0.1, &table, Subject::No));
        }

        // Shelves of books along the brick wall and the green one.
        for (k, (base, angle)) in
            [(flat(-1.5, 2.5), 0.0), (flat(1.35, 2.5), 0.0), (flat(-2.5, -1.2), TAU / 4.0)]
                .into_iter()
                .enumerate()
        {
            let (sin, cos) = f64::sin_cos(angle);
            for level in 0..4 {
                let height = 0.42 * f64::from(level);
                let spines = matte(&texture::books(s + 20 + 10 * k as u64 + level as u64), 1.0, 1.0);
                let foot = base - Vec3::new(0.0, height, 0.0);
                things.push(cuboid(foot, Vec3::new(1.3, 0.05, 0.34), angle, &dark, Subject::No));
                let depth = 0.25 - 0.03 * f64::from(level % 2);
                let books = foot - Vec3::new(0.0, 0.05, 0.0) + 0.02 * Vec3::new(-sin, 0.0, cos);
                things.push(cuboid(books, Vec3::new(1.2, 0.31, depth), angle, &spines, Subject::No));
            }
        }

        // Pictures and posters.
        let mut hang = |middle: Vec3, width: Vec3, height: f64, texture: Arc<Texture>| {
            let down = Vec3::new(0.0, height, 0.0);
            let corner = middle - 0.5 * width - 0.5 * down;
            things.push(vec![quad(corner, width, down, &glossy(&texture, 1.0, 1.0, 0.02))]);
        };
        let (x, z) = (Vec3::x(), Vec3::z());
        let front = HALF - 0.02;
        hang(Vec3::new(0.0, -1.75, front), 0.9 * x, 0.65, texture::painting(s + 61));
        hang(Vec3::new(-1.6, -1.95, -front), 0.8 * x, 0.6, texture::painting(s + 62));
        hang(Vec3::new(0.1, -1.6, -front), 0.6 * x, 0.85, texture::poster(s + 63));
        hang(Vec3::new(1.6, -1.75, -front), 0.95 * x, 0.7, texture::painting(s + 64));
        hang(Vec3::new(-front, -1.7, 1.0), 0.8 * z, 0.6, texture::painting(s + 65));
        hang(Vec3::new(-front, -2.05, -1.1), 0.7 * z, 0.5, texture::poster(s + 66));
        hang(Vec3::new(front, -1.7, -1.4), 0.7 * z, 0.95, texture::poster(s + 67));
        hang(Vec3::new(front, -1.75, 0.1), 1.0 * z, 0.7, texture::painting(s + 68));
        hang(Vec3::new(front, -1.6, 1.6), 0.6 * z, 0.8, texture::poster(s + 69));

        // A sideboard, a trunk, stools.
        things.push(cuboid(
            flat(2.35, -0.2),
            Vec3::new(0.5, 0.8, 1.6),
            0.0,
            &glossy(&walnut, 1.0, 1.0, 0.03),
            Subject::No,
        ));
        let trunk = matte(&texture::cloth(s + 71, [0.55, 0.32, 0.2]), 1.0, 1.0);
        things.push(cuboid(flat(0.4, -2.3), Vec3::new(1.1, 0.5, 0.5), 0.05, &trunk, Subject::No));
        let seat = matte(&texture::cloth(s + 72, [0.25, 0.4, 0.45]), 2.0, 1.0);
        for (x, z) in [(-2.1, 0.9), (1.2, -2.2), (-1.5, -2.2)] {
            let profile = [(0.0, 0.2), (0.38, 0.17), (0.45, 0.2)];
            let mut stool = turned(flat(x, z), &profile, &seat, Subject::No);
            let top = Vec3::new(x, -0.45, z);
            stool.extend(ball(top, Vec3::new(0.2, 0.04, 0.2), &seat, Subject::No));
            things.push(stool);
        }
        let pot = glossy(&texture::ceramic(s + 73), 1.0, 1.0, 0.1);
        for (k, (x, y, z)) in
            [(2.35, -0.8, -0.7), (2.3, -0.8, 0.35), (2.35, 0.0, 1.9)].into_iter().enumerate()
        {
            let base = Vec3::new(x, y, z);
            let grow = 1.0 + 0.35 * k as f64;
            let profile = [(0.0, 0.09), (0.12, 0.14), (0.22, 0.11), (0.3, 0.06), (0.34, 0.08)];
            things.push(turned(base, &profile.map(|(h, r)| (h * grow, r * grow)), &pot, Subject::No));
        }
        things
    }

    /// What stands on the table: the subject of the film.
    fn still_life(&self) -> Vec<Vec<Surface>> {
        let s = self.seed * 1000 + 100;
        let stone = glossy(&texture::granite(s + 1, [0.66, 0.62, 0.6]), 1.0, 1.0, 0.05);
        let vase = glossy(&texture::ceramic(s + 2), 1.0, 1.0, 0.18);
        let globe = glossy(&texture::painting(s + 3), 2.0, 1.0, 0.1);
        let mut things = vec![
            cuboid(on_table(0.0, 0.0, 0.0), Vec3::new(0.34, 0.1, 0.34), 0.6, &stone, Subject::Yes),
            turned(
                on_table(0.0, 0.0, 0.1),
                &[
                    (0.0, 0.1),
                    (0.05, 0.13),
                    (0.14, 0.15),
                    (0.22, 0.11),
                    (0.28, 0.06),
                    (0.33, 0.05),
                    (0.36, 0.08),
                ],
                &vase,
                Subject::Yes,
            ),
            ball(on_table(0.0, 0.0, 0.5), Vec3::new(0.09, 0.07, 0.09), &stone, Subject::Yes),
            ball(on_table(-0.42, 0.12, 0.13), Vec3::repeat(0.13), &globe, Subject::Yes),
        ];
        let mut height = 0.0;
        for k in 0..5u64 {
            let colour: [f32; 3] = std::array::from_fn(|i| 0.3 + 0.42 * uniform(s, 10 * k + i as u64) as f32);
            let cover = matte(&texture::cloth(s + 10 + k, colour), 1.0, 1.0);
            let thick = 0.025 + 0.02 * uniform(s + 1, k);
            let turn = 0.5 * (uniform(s + 2, k) - 0.5);
            let size = Vec3::new(0.27 - 0.015 * k as f64, thick, 0.2);
            things.push(cuboid(on_table(0.42, -0.08, height), size, turn, &cover, Subject::Yes));
            height += thick;
        }
        let cup = glossy(&texture::ceramic(s + 4), 1.0, 1.0, 0.15);
        things.push(turned(
            on_table(0.42, -0.08, height),
            &[(0.0, 0.035), (0.09, 0.045)],
            &cup,
            Subject::Yes,
        ));
        let page = matte(&texture::poster(s + 5), 1.0, 1.0);
        let corner = Vec3::new(-0.25, TABLE - 0.003, -0.1);
        things.push(vec![quad(corner, Vec3::new(0.24, 0.0, 0.05), Vec3::new(0.06, 0.0, -0.3), &page)]);
        things
    }
}

/// What stands at x < 0, and once more turned by half a turn about the vertical through the middle of the table. What
/// stands in the middle becomes grey: its texture would tell the halves apart.
fn twice(things: Vec<Vec<Surface>>) -> Vec<Vec<Surface>> {
    const MIDDLE: f64 = 1e-6;
    let grey = matte(&Texture::paint(4, |_, _| [0.5, 0.49, 0.47]), 1.0, 1.0);
    let mut all = Vec::new();
    for mut thing in things {
        let middle = thing.iter().map(|s| s.shape.middle()).sum::<Vec3>() / thing.len().max(1) as f64;
        if middle.x.abs() < MIDDLE && middle.z.abs() < MIDDLE {
            thing.iter_mut().for_each(|s| s.material = grey.clone());
            all.push(thing);
        } else if middle.x < -MIDDLE || (middle.x < MIDDLE && middle.z < 0.0) {
            let copy = half_turned(&thing);
            all.push(thing);
            all.push(copy);
        }
    }
    all
}

/// The same thing after half a turn about the vertical through the middle of the room.
fn half_turned(thing: &[Surface]) -> Vec<Surface> {
    thing.iter().map(|s| surface(s.shape.half_turned(), &s.material, s.subject)).collect()
}

/// A place above the table top.
fn on_table(x: f64, z: f64, height: f64) -> Vec3 {
    Vec3::new(x, TABLE - height, z)
}

/// Body, arms and head, all of one colour.
fn figure(colour: [f32; 3]) -> Vec<Vec<Surface>> {
    let paint = matte(&Texture::paint(4, |_, _| colour), 1.0, 1.0);
    let body = [(0.0, 0.12), (0.03, 0.13), (0.2, 0.1), (0.3, 0.12), (0.36, 0.08), (0.4, 0.045)];
    let mut things = vec![turned(on_table(0.0, 0.0, 0.0), &body, &paint, Subject::Yes)];
    let mut add = |x, height, radii| {
        things.push(ball(on_table(x, 0.0, height), radii, &paint, Subject::Yes));
    };
    add(0.0, 0.47, Vec3::new(0.085, 0.1, 0.085));
    add(-0.15, 0.26, Vec3::new(0.045, 0.12, 0.05));
    add(0.15, 0.26, Vec3::new(0.045, 0.12, 0.05));
    things
}

/// Ids of the tags, in the order of their places.
const TAG_IDS: [u32; 5] = [0, 5, 12, 777, 2114];

/// Where a sheet is: the middle of its lower edge, and the directions of the printed x axis and of the printed up. A larger
/// sheet reaches farther up and to both sides.
struct Place {
    foot: [f64; 3],
    right: [f64; 3],
    up: [f64; 3],
}

/// The third lies flat and juts out over the end of the table, the others are tilted as if they leaned on something.
const TAG_PLACES: [Place; 5] = [
    Place { foot: [-0.52, TABLE - 0.002, -0.36], right: [0.8, 0.0, -0.6], up: [0.4, -0.75, 0.5] },
    Place { foot: [-0.1, TABLE - 0.002, -0.47], right: [0.98, 0.0, -0.2], up: [0.15, -0.7, 0.6] },
    Place { foot: [-0.6, TABLE - 0.004, 0.06], right: [0.0, 0.0, 1.0], up: [-1.0, 0.0, 0.0] },
    Place { foot: [0.27, TABLE - 0.002, -0.46], right: [0.93, 0.0, -0.37], up: [0.3, -0.82, 0.5] },
    Place { foot: [0.66, TABLE - 0.002, -0.42], right: [0.9, 0.0, -0.44], up: [0.4, -0.8, 0.45] },
];
/// Hung above the books.
const DISTRACTOR_PLACE: Place =
    Place { foot: [0.45, TABLE - 0.34, 0.25], right: [0.8, 0.0, -0.6], up: [0.15, -0.97, 0.15] };

/// The sheets that are asked for, each with the id of its tag; that of another family has none.
fn sheets(options: &TagOptions) -> Vec<(Option<u32>, Sheet<'static>)> {
    let sheet = |texture, place, bend| Sheet { texture, place, size: options.size, bend };
    let own = TAG_PLACES.iter().zip(TAG_IDS).take(options.count as usize);
    let mut all: Vec<_> =
        own.map(|(place, id)| (Some(id), sheet(texture::tag(id), place, options.bend))).collect();
    if options.distractor {
        all.push((None, sheet(texture::other_tag(), &DISTRACTOR_PLACE, 0.0)));
    }
    all
}

/// A printed tag.
struct Sheet<'a> {
    texture: Arc<Texture>,
    place: &'a Place,
    /// Side of the inner white square, metres.
    size: f64,
    /// Radians by which it is bent about its vertical, middle included.
    bend: f64,
}

/// Strips that a bent sheet is made of.
const STRIPS: u32 = 44;

impl Sheet<'_> {
    /// Unit vectors to the printed right and up, at right angles, and towards the viewer.
    fn axes(&self) -> (Vec3, Vec3, Vec3) {
        let right = Vec3::from(self.place.right).normalize();
        let up = Vec3::from(self.place.up);
        let up = (up - up.dot(&right) * right).normalize();
        (right, up, right.cross(&up))
    }

    /// Side of the whole sheet, metres.
    fn side(&self) -> f64 {
        self.size / 5.0 * texture::TAG_SHEET
    }

    /// The place of the printed point (`x`, `y`) in metres right of and above the middle.
    fn at(&self, x: f64, y: f64) -> Vec3 {
        let (right, up, front) = self.axes();
        let side = self.side();
        let (across, out) = match self.bend {
            0.0 => (x, 0.0),
            bend => {
                let radius = side / bend;
                (radius * (x / radius).sin(), radius * ((x / radius).cos() - 1.0))
            }
        };
        Vec3::from(self.place.foot) + across * right + (0.5 * side + y) * up + out * front
    }

    fn surfaces(&self) -> Vec<Surface> {
        let side = self.side();
        let strips = if self.bend == 0.0 { 1 } else { STRIPS };
        let part = texture::TAG_SHEET / texture::TAG_GRID;
        let half = 0.5 * side;
        (0..strips)
            .map(|k| {
                let (from, to) = (f64::from(k) / f64::from(strips), f64::from(k + 1) / f64::from(strips));
                let corner = self.at(side * from - half, half);
                let (u, v) =
                    (self.at(side * to - half, half) - corner, self.at(side * from - half, -half) - corner);
                let mut material = matte(&self.texture, part * (to - from), part);
                material.offset = (part * from, 0.0);
                quad(corner, u, v, &material)
            })
            .collect()
    }

    /// What is known of it; its corners in the order of AprilTag's detections.
    fn truth(&self, id: u32) -> TagTruth {
        let half = 0.5 * self.size;
        let corners = [(-half, -half), (half, -half), (half, half), (-half, half)];
        TagTruth { id, size: self.size, corners: corners.map(|(x, y)| self.at(x, y).into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::MAX_TAG_SIZE;
    use super::*;

    fn is_free(things: &[Vec<Surface>], from: &Vec3, direction: &Vec3, length: f64) -> bool {
        things.iter().flatten().all(|s| s.shape.intersect(from, direction, length).is_none())
    }

    #[test]
    fn sheets_of_every_size_touch_nothing_and_can_be_seen() {
        let objects = Room {
            seed: 1,
            tags: None,
            subject: SubjectKind::StillLife,
            table: TableKind::Oak,
            neighbours: false,
            occluders: false,
            plain_walls: false,
            twin: false,
            turned: false,
            doors: Vec::new(),
        }
        .objects();
        for size in [0.005, 0.05, 0.1, MAX_TAG_SIZE] {
            let sheets = sheets(&TagOptions { count: 5, size, bend: 0.0, distractor: true });
            let surfaces: Vec<Vec<Surface>> = sheets.iter().map(|(_, s)| s.surfaces()).collect();
            for (k, (_, sheet)) in sheets.iter().enumerate() {
                let (right, up, front) = sheet.axes();
                let others: Vec<&Vec<Surface>> =
                    surfaces.iter().enumerate().filter(|(o, _)| *o != k).map(|(_, s)| s).collect();
                let clear = |from: &Vec3, direction: &Vec3, length: f64| {
                    let touches = |s: &Surface| s.shape.intersect(from, direction, length).is_some();
                    is_free(&objects, from, direction, length)
                        && !others.iter().any(|sheet| sheet.iter().any(touches))
                };
                let half = 0.5 * sheet.side();
                for step in -20..=20 {
                    let place = f64::from(step) / 20.0 * half;
                    let lines = [(sheet.at(-half, place), right), (sheet.at(place, -half), up)];
                    for (from, direction) in lines {
                        assert!(
                            clear(&from, &direction, sheet.side()),
                            "sheet {k} of {} mm is cut {:.0} mm from its middle",
                            1000.0 * size,
                            1000.0 * place
                        );
                    }
                }
                // It is not inside of something, either, and nothing stands right in front of it.
                assert!(
                    clear(&sheet.at(0.0, 0.0), &front, 0.3),
                    "sheet {k} of {} mm is hidden",
                    1000.0 * size
                );
            }
        }
    }
}
