//! Renders a furnished room along a hand-held camera path to a video with known poses, intrinsics, scale and masks.
//!
//! In: [`CaptureOptions`]. Out, in a folder: `video.mp4`, `poses.json` (camera-to-world per video frame, metres),
//! `masks/` if asked for, `capture.json` (the options, the tags). The picture is ray-cast from textured quads,
//! ellipsoids and cylinders with baked soft light, seen through a lens with radial distortion, a shutter that is open
//! for a while (motion blur), optionally a rolling one, an exposure that drifts, and sensor noise.

mod dataset;
mod house;
mod light;
mod path;
mod photograph;
mod room;
mod rounds;
mod scene;
mod scenery;
mod staging;
mod stills;
mod texture;
mod truth;

use std::f64::consts::TAU;
use std::path::Path;
use std::sync::Arc;

use libreconstruct::camera::panorama::direction_in_panorama;
use libreconstruct::camera::{Camera, CameraModel, Pose};
use libreconstruct::video::VideoWriter;
use libreconstruct::{Control, Error, Result};
use nalgebra::{Matrix3, Quaternion, UnitQuaternion, Vector2, Vector3};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use path::CameraPath;
use room::Subject;
use staging::turn_of_things;

pub use dataset::film_dataset;
pub use scenery::Scenery;
pub use staging::Staging;
pub use stills::{film_frames, film_missing_frames, take_photographs};
pub(crate) use texture::uniform;

/// What to film and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaptureOptions {
    /// Fixes the room, the path and the noise.
    pub seed: u64,
    /// Picture width in pixels (even).
    pub width: u32,
    /// Picture height in pixels (even).
    pub height: u32,
    /// Number of video frames.
    pub frames: u32,
    /// Frames per second.
    pub frame_rate: f64,
    /// Degrees of the walk around the table; small values make a short arc.
    pub arc_degrees: f64,
    /// Focal length over the long side of the picture.
    pub relative_focal: f64,
    /// Radial distortion of the lens (SIMPLE_RADIAL, SIMPLE_RADIAL_FISHEYE).
    pub distortion: f64,
    /// Seconds for which the shutter is open.
    pub shutter: f64,
    /// Seconds from the first to the last line, which lie along the long side of the picture as those of a sensor do: rows
    /// downwards, columns to the right in a picture on end; 0 is a global shutter.
    pub rolling_shutter: f64,
    /// Standard deviation of the noise in 8-bit steps.
    pub noise: f64,
    /// How far the exposure drifts over the clip, in stops.
    pub exposure_drift: f64,
    /// The AprilTags on the table, if there are any.
    pub tags: Option<TagOptions>,
    /// Whether to write a mask of the subject on the table for every frame.
    pub masks: bool,
    /// What stands on the table.
    #[serde(default)]
    pub subject: SubjectKind,
    /// What it stands on.
    #[serde(default)]
    pub table: TableKind,
    /// Whether things that are not the subject stand around it on the table.
    #[serde(default)]
    pub neighbours: bool,
    /// Whether three upright things stand between the camera's path and the table, each of which hides the subject in some pictures.
    #[serde(default)]
    pub occluders: bool,
    /// Size of the camera's path around the place at which it looks, over the usual one: small values go close around the
    /// subject. It counts where the camera goes around one table.
    #[serde(default = "unchanged")]
    pub path_scale: f64,
    /// Part of the clip, at its end, in which the camera has turned away from the table; 0 for none.
    #[serde(default)]
    pub look_away: f64,
    /// What moves.
    #[serde(default)]
    pub staging: Staging,
    /// Focal length at the end of the clip over that at its start.
    #[serde(default = "unchanged")]
    pub zoom: f64,
    /// How far the principal point is off the middle of the picture, over its longer side: right, down.
    #[serde(default)]
    pub off_centre: [f64; 2],
    /// Whether the room is bare: walls of one colour, and no furniture but the table.
    #[serde(default)]
    pub plain_walls: bool,
    /// Whether the room looks the same after half a turn.
    #[serde(default)]
    pub twin: bool,
    /// Whether all of it is filmed as in a mirror: to who looks for the same features, another place. Without tags, and
    /// with a principal point in the middle of the picture's width.
    #[serde(default)]
    pub mirrored: bool,
    /// Whether all directions are filmed, as an equirectangular panorama, in place of what a lens sees; the poses are those of
    /// its front. Twice as wide as high, without a rolling shutter, a zoom or a principal point off the middle.
    #[serde(default)]
    pub panorama: bool,
    /// Whether the lens is a fisheye: the focal length then is what an angle of 1 radian from the axis is long.
    #[serde(default)]
    pub fisheye: bool,
    /// A house of so many rooms, 1 or an even number, in place of the one room: the camera goes through all of them and comes back,
    /// once around the table of each. In this case nothing is asked of the arc, the subject, the table and the walls.
    #[serde(default)]
    pub rooms: Option<u32>,
}

/// The factor of what is as usual.
fn unchanged() -> f64 {
    1.0
}

/// What stands on the table, the subject of the film.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubjectKind {
    /// A vase on a stone, a globe, books and a cup.
    #[default]
    StillLife,
    /// A white figure without any texture.
    Plain,
    /// A candlestick: rods of 16 to 24 mm.
    Thin,
    /// The figure in a dark colour.
    Dark,
    /// Pale bricks with tools on them.
    Bricks,
    /// A toy train, 1.12 m long and 11 cm wide.
    Train,
}

/// What the subject stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableKind {
    /// An oak table.
    #[default]
    Oak,
    /// A white table without any texture.
    Blank,
    /// A grey table without texture, but with the lamp's highlight.
    Glossy,
    /// A table with a patterned cloth.
    Cloth,
    /// Stone that fills the room at the table's height.
    Ground,
}

/// AprilTags (tagStandard41h12) in the scene.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TagOptions {
    /// How many, 1 to 5: the third lies flat, the others are tilted.
    pub count: u32,
    /// Side of their inner white squares, metres: 0.005 to 0.15.
    pub size: f64,
    /// Radians by which the sheets are bent, from the left edge to the right; 0 is flat.
    pub bend: f64,
    /// Whether a tag of another family lies beside them.
    pub distractor: bool,
}

/// Larger tags would not find room on the table: the inner white square of this side is on a sheet of 33 cm.
const MAX_TAG_SIZE: f64 = 0.15;

impl Default for CaptureOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            width: 960,
            height: 540,
            frames: 150,
            frame_rate: 15.0,
            arc_degrees: 230.0,
            relative_focal: 0.8,
            distortion: -0.04,
            shutter: 1.0 / 200.0,
            rolling_shutter: 0.0,
            noise: 1.5,
            exposure_drift: 0.15,
            tags: None,
            masks: false,
            subject: SubjectKind::StillLife,
            table: TableKind::Oak,
            neighbours: false,
            occluders: false,
            path_scale: unchanged(),
            look_away: 0.0,
            staging: Staging::Around,
            zoom: unchanged(),
            off_centre: [0.0; 2],
            plain_walls: false,
            twin: false,
            mirrored: false,
            panorama: false,
            fisheye: false,
            rooms: None,
        }
    }
}

impl CaptureOptions {
    /// The camera that films; of panoramas the one that they are filmed without.
    pub fn camera(&self) -> Camera {
        let focal = self.relative_focal * f64::from(self.width.max(self.height));
        let model = if self.fisheye { CameraModel::SimpleRadialFisheye } else { CameraModel::SimpleRadial };
        let mut camera = Camera::from_focal(model, focal, self.width, self.height);
        camera.params[3] = self.distortion;
        let side = f64::from(self.width.max(self.height));
        camera.params[1] += self.off_centre[0] * side;
        camera.params[2] += self.off_centre[1] * side;
        camera
    }

    /// # Errors
    /// What cannot be filmed.
    pub fn check(&self) -> Result<()> {
        let even = self.width.is_multiple_of(2) && self.height.is_multiple_of(2);
        if !even || !(64..=4096).contains(&self.width) || !(64..=4096).contains(&self.height) {
            return Err(Error::argument(format!(
                "a picture of {}x{} cannot be filmed: each side must be even and 64 to 4096",
                self.width, self.height
            )));
        }
        if self.frames == 0 || !(1.0..=240.0).contains(&self.frame_rate) {
            return Err(Error::argument(format!(
                "{} frames at {} per second: at least one frame and 1 to 240 per second are needed",
                self.frames, self.frame_rate
            )));
        }
        if !(0.0..1.0).contains(&self.look_away) {
            return Err(Error::argument(format!(
                "the camera looks away for {} of the clip: a part from 0 to below 1 is needed",
                self.look_away
            )));
        }
        if !(0.1..=1.0).contains(&self.path_scale) || (self.occluders && self.path_scale != 1.0) {
            return Err(Error::argument(format!(
                "a path {} times as wide as usual: 0.1 to 1 can be filmed, and only 1 where things \
                 stand between it and the table",
                self.path_scale
            )));
        }
        if let Some(rooms) = self.rooms.filter(|&n| n != 1 && (n == 0 || !n.is_multiple_of(2) || n > 200)) {
            return Err(Error::argument(format!(
                "a house of {rooms} rooms: 1 or an even number up to 200 can be filmed"
            )));
        }
        if !(0.1..=10.0).contains(&self.zoom) {
            return Err(Error::argument(format!("a zoom by {}: 0.1 to 10 can be filmed", self.zoom)));
        }
        let has_lens = self.rolling_shutter != 0.0 || self.zoom != 1.0 || self.off_centre != [0.0; 2];
        if self.panorama && (self.width != 2 * self.height || has_lens) {
            return Err(Error::argument(format!(
                "a panorama of {}x{} cannot be filmed: it is twice as wide as high, without a rolling shutter, a zoom or a \
                 principal point off the middle",
                self.width, self.height
            )));
        }
        if self.mirrored && (self.tags.is_some() || self.off_centre[0] != 0.0) {
            return Err(Error::argument(
                "what is filmed as in a mirror has no tags, and a principal point in the middle of its width",
            ));
        }
        if let Some(tags) = &self.tags
            && !((1..=5).contains(&tags.count)
                && (0.005..=MAX_TAG_SIZE).contains(&tags.size)
                && tags.bend.is_finite())
        {
            return Err(Error::argument(format!(
                "{} tags of {} mm: 1 to 5 of 5 to {} mm can be placed",
                tags.count,
                1000.0 * tags.size,
                1000.0 * MAX_TAG_SIZE
            )));
        }
        Ok(())
    }
}

/// Four samples per pixel, on a rotated grid; each is taken at its own moment of the open shutter.
const SAMPLES: [[f64; 2]; 4] = [[0.375, 0.125], [0.875, 0.375], [0.125, 0.625], [0.625, 0.875]];

/// Renders the capture into `output`. Deterministic for the options.
///
/// # Errors
/// Options out of range, no ffmpeg, an output folder that cannot be written, cancellation.
pub fn generate(output: &Path, options: &CaptureOptions, control: &Control) -> Result<()> {
    options.check()?;
    let make = |path: &Path| std::fs::create_dir_all(path).map_err(|e| Error::io("create", path, e));
    make(output)?;
    let film = Film::new(options);
    let mut video =
        VideoWriter::create(&output.join("video.mp4"), options.width, options.height, options.frame_rate)?;
    if options.masks {
        make(&output.join("masks"))?;
    }
    for frame in 0..options.frames {
        control.check()?;
        let (rgb, mask) = film.expose(frame);
        video.write(&rgb)?;
        if options.masks {
            let path = output.join("masks").join(format!("{frame:06}.png"));
            mask.save(&path).map_err(|e| Error::io("write", &path, std::io::Error::other(e)))?;
        }
        let done = (frame + 1) as f32 / options.frames as f32;
        control.progress(libreconstruct::Stage::Frames, "filming", done);
    }
    video.finish()?;
    truth::write(output, options, &film.poses(), film.scenery.standing().tags())
}

/// Where camera and things are at one moment.
struct Moment {
    origin: Vector3<f64>,
    /// From the camera's axes to the world's.
    turn: Matrix3<f64>,
    things: Option<UnitQuaternion<f64>>,
}

/// A room, a camera and a path: everything that decides what a frame looks like.
pub struct Film {
    options: CaptureOptions,
    scenery: Arc<Scenery>,
    path: CameraPath,
    /// The view ray (z = 1, of a panorama of unit length) of every sample of every pixel, row by row: the lens is inverted only
    /// once.
    rays: Vec<[Vector3<f64>; 4]>,
}

impl Film {
    /// Builds and lights the room.
    pub fn new(options: &CaptureOptions) -> Self {
        Self::in_scenery(Scenery::build(options), options)
    }

    /// In what was built of options that differ only in the camera, its path and the clip.
    pub fn in_scenery(scenery: Arc<Scenery>, options: &CaptureOptions) -> Self {
        let camera = options.camera();
        let rays = (0..options.height)
            .into_par_iter()
            .flat_map_iter(|y| {
                let camera = camera.clone();
                (0..options.width).map(move |x| {
                    SAMPLES.map(|s| {
                        let at = Vector2::new(f64::from(x) + s[0], f64::from(y) + s[1]);
                        if options.panorama {
                            let size = [f64::from(options.width), f64::from(options.height)];
                            return direction_in_panorama([at.x / size[0], at.y / size[1]]);
                        }
                        let ray = camera.unproject(&at);
                        Vector3::new(ray.x, ray.y, 1.0)
                    })
                })
            })
            .collect();
        Self { options: options.clone(), scenery, path: CameraPath::new(options), rays }
    }

    /// What is filmed and how.
    pub fn options(&self) -> &CaptureOptions {
        &self.options
    }

    /// World-to-camera in the middle of the exposure of every frame (of its middle row); of a panorama that of its front.
    pub fn poses(&self) -> Vec<Pose> {
        poses(&self.options, &self.path)
    }

    /// The poses of a film that need not be made.
    pub fn poses_of(options: &CaptureOptions) -> Vec<Pose> {
        poses(options, &CameraPath::new(options))
    }

    fn at(&self, time: f64) -> Moment {
        let pose = self.path.pose(time);
        Moment {
            origin: pose.centre(),
            turn: pose.rotation_matrix().transpose(),
            things: turn_of_things(self.options.staging, self.path.part(time), self.path.arc()),
        }
    }

    /// Takes frame number `frame`: the picture (sRGB) and the mask of the subject (255 = subject).
    pub fn expose(&self, frame: u32) -> (image::RgbImage, image::GrayImage) {
        let o = &self.options;
        let (width, height) = (o.width as usize, o.height as usize);
        let time = time_of(o, frame);
        let middle = f64::from(o.frames.max(2) - 1) / o.frame_rate / 2.0;
        let gain = 2f64.powf(o.exposure_drift * (1.3 * (time - middle) / middle.max(1e-9)).sin());
        let zoom = o.zoom.powf(f64::from(frame) / f64::from(o.frames.max(2) - 1));
        let pixel_angle = match o.panorama {
            true => TAU / f64::from(o.width),
            false => 1.0 / zoom / (o.relative_focal * f64::from(o.width.max(o.height))),
        };

        let is_on_end = width < height;
        let lines: Vec<[Moment; 4]> = (0..width.min(height))
            .map(|line| {
                let part = (line as f64 + 0.5) / width.min(height) as f64 - 0.5;
                std::array::from_fn(|k| {
                    let open = o.shutter * ((k as f64 + 0.5) / 4.0 - 0.5);
                    self.at(time + o.rolling_shutter * part + open)
                })
            })
            .collect();
        let rooms = self.scenery.rooms_seen_from(&self.path.pose(time).centre());
        let mut rgb = vec![0u8; width * height * 3];
        let mut mask = vec![0u8; width * height];
        rgb.par_chunks_mut(width * 3).zip(mask.par_chunks_mut(width)).enumerate().for_each(
            |(y, (rgb_row, mask_row))| {
                for x in 0..width {
                    let moments = &lines[if is_on_end { x } else { y }];
                    let mut colour = Vector3::zeros();
                    let mut covered = 0u32;
                    for (k, moment) in moments.iter().enumerate() {
                        let ray = self.rays[y * width + x][k];
                        let direction = (moment.turn * Vector3::new(ray.x, ray.y, zoom * ray.z)).normalize();
                        let (seen, subject) = match &rooms {
                            Some(rooms) => rooms.look(&moment.origin, &direction, pixel_angle),
                            None => self.scenery.look(
                                &moment.origin,
                                &direction,
                                pixel_angle,
                                moment.things.as_ref(),
                            ),
                        };
                        colour += seen;
                        covered += u32::from(subject == Subject::Yes);
                    }
                    colour *= 0.25 * gain;
                    for c in 0..3 {
                        let key = ((u64::from(frame) * height as u64 + y as u64) * width as u64 + x as u64)
                            * 3
                            + c as u64;
                        let noise = o.noise * texture::normal(o.seed, key);
                        let value = texture::encode_srgb(colour[c]) * 255.0 + noise;
                        rgb_row[x * 3 + c] = value.round().clamp(0.0, 255.0) as u8;
                    }
                    mask_row[x] = (covered * 255 / 4) as u8;
                }
            },
        );
        // The buffers were made with exactly this size.
        #[allow(clippy::expect_used)]
        let mut picture = (
            image::RgbImage::from_raw(o.width, o.height, rgb).expect("width * height * 3 bytes"),
            image::GrayImage::from_raw(o.width, o.height, mask).expect("width * height bytes"),
        );
        if o.mirrored {
            image::imageops::flip_horizontal_in_place(&mut picture.0);
            image::imageops::flip_horizontal_in_place(&mut picture.1);
        }
        picture
    }
}

/// When a frame is taken, seconds.
fn time_of(options: &CaptureOptions, frame: u32) -> f64 {
    f64::from(frame) / options.frame_rate
}

fn poses(options: &CaptureOptions, path: &CameraPath) -> Vec<Pose> {
    let poses = (0..options.frames).map(|frame| path.pose(time_of(options, frame)));
    if options.mirrored { poses.map(|pose| mirror(&pose)).collect() } else { poses.collect() }
}

/// The pose in a world whose x axis is turned round from which the same picture is seen, turned round: the turn about x
/// stays, those about y and z go the other way.
fn mirror(pose: &Pose) -> Pose {
    let q = pose.rotation.quaternion();
    let rotation = UnitQuaternion::new_normalize(Quaternion::new(q.w, q.i, -q.j, -q.k));
    let t = pose.translation;
    Pose { rotation, translation: Vector3::new(-t.x, t.y, t.z) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirrored_pose_sees_a_mirrored_point_at_the_mirrored_place() {
        let pose = Pose {
            rotation: UnitQuaternion::from_euler_angles(0.3, -0.8, 1.1),
            translation: Vector3::new(0.4, -0.2, 3.0),
        };
        let point = Vector3::new(0.7, 0.1, -0.5);
        let (seen, mirrored) =
            (pose.transform(&point), mirror(&pose).transform(&Vector3::new(-point.x, point.y, point.z)));
        assert!((mirrored - Vector3::new(-seen.x, seen.y, seen.z)).norm() < 1e-12, "{seen} {mirrored}");
    }
}
