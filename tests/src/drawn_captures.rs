//! Captures to judge verdicts by: of each kind as many as wanted, every one with a room, a path, a lens and faults of its
//! own, drawn within ranges that reach from what hardly matters to what ruins a reconstruction.

use std::f64::consts::TAU;

use crate::synthetic::{CaptureOptions, Staging, SubjectKind, TableKind, uniform};

/// What a kind of capture is in the study.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// What people film when they take care.
    Usual,
    /// With one fault, from hardly any to a bad one.
    Faulty,
    /// What cannot be reconstructed, or only by luck.
    Impossible,
}

impl Group {
    /// As results name it.
    pub fn name(self) -> &'static str {
        match self {
            Group::Usual => "usual",
            Group::Faulty => "faulty",
            Group::Impossible => "impossible",
        }
    }
}

/// Numbers of one capture, each fixed by its seed, its kind and what it is for.
struct Draw {
    seed: u64,
    key: u64,
}

impl Draw {
    fn part(&mut self) -> f64 {
        self.key += 1;
        uniform(self.seed, self.key)
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.part()
    }

    /// Each doubling within the range as likely as any other.
    fn magnitude(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.part())
    }

    fn frames(&mut self, low: u32, high: u32) -> u32 {
        self.between(f64::from(low), f64::from(high) + 1.0) as u32
    }

    fn happens(&mut self, probability: f64) -> bool {
        self.part() < probability
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        let k = (self.part() * all.len() as f64) as usize;
        all.get(k).copied()
    }
}

/// A kind of capture: its name, its group, and what it changes of a usual walk.
pub struct Kind {
    /// Part of the names of its captures.
    pub name: &'static str,
    /// Where it belongs.
    pub group: Group,
    change: fn(&mut CaptureOptions, &mut Draw),
}

const fn kind(name: &'static str, group: Group, change: fn(&mut CaptureOptions, &mut Draw)) -> Kind {
    Kind { name, group, change }
}

/// All kinds. Those that share a scenery follow each other.
pub const KINDS: &[Kind] = &[
    kind("walk", Group::Usual, |o, draw| {
        o.arc_degrees = draw.between(40.0, 200.0);
        o.frames = (o.arc_degrees / draw.between(5.0, 8.0)).clamp(10.0, 30.0) as u32;
    }),
    kind("orbit", Group::Usual, |o, draw| (o.arc_degrees, o.frames) = (360.0, draw.frames(28, 40))),
    kind("along", Group::Usual, |o, draw| {
        (o.staging, o.arc_degrees) = (Staging::Along, draw.between(40.0, 110.0));
    }),
    kind("wide_lens", Group::Usual, |o, draw| {
        (o.arc_degrees, o.relative_focal) = (draw.between(60.0, 150.0), draw.between(0.5, 0.62));
    }),
    // Photographs; what the second camera is like is drawn in [`draw`].
    kind("two_cameras", Group::Usual, |o, draw| {
        (o.arc_degrees, o.frames, o.rolling_shutter) = (draw.between(60.0, 150.0), draw.frames(20, 30), 0.0);
    }),
    kind("short_walk", Group::Faulty, |o, draw| o.arc_degrees = draw.magnitude(2.5, 25.0)),
    kind("few", Group::Faulty, |o, draw| {
        (o.arc_degrees, o.frames) = (draw.between(20.0, 80.0), draw.frames(4, 8));
    }),
    kind("sparse", Group::Faulty, |o, draw| {
        (o.arc_degrees, o.frames) = (draw.between(120.0, 330.0), draw.frames(10, 16));
    }),
    kind("noise", Group::Faulty, |o, draw| o.noise = draw.magnitude(5.0, 25.0)),
    kind("dark", Group::Faulty, |o, draw| {
        (o.noise, o.exposure_drift) = (draw.between(6.0, 18.0), draw.between(0.8, 2.0));
    }),
    // In seconds of a walk at 25 degrees each.
    kind("blur", Group::Faulty, |o, draw| o.shutter = draw.magnitude(0.02, 0.2)),
    kind("rolling", Group::Faulty, |o, draw| o.rolling_shutter = draw.between(0.012, 0.06)),
    kind("bent_lens", Group::Faulty, |o, draw| o.distortion = -draw.between(0.12, 0.4)),
    kind("cropped", Group::Faulty, |o, draw| {
        let (far, angle) = (draw.magnitude(0.015, 0.1), draw.between(0.0, TAU));
        o.off_centre = [far * angle.cos(), far * angle.sin()];
    }),
    kind("look_away", Group::Faulty, |o, draw| {
        o.look_away = draw.between(0.2, 0.5);
        o.frames = 24;
    }),
    kind("zoom", Group::Faulty, |o, draw| {
        let by = draw.magnitude(1.01, 1.8);
        o.zoom = if draw.happens(0.5) { by } else { 1.0 / by };
    }),
    kind("on_the_spot", Group::Impossible, |o, draw| {
        (o.staging, o.arc_degrees) = (Staging::OnTheSpot, draw.between(40.0, 120.0));
    }),
    kind("bare_room", Group::Faulty, |o, _| o.plain_walls = true),
    kind("turned", Group::Impossible, |o, draw| {
        (o.staging, o.arc_degrees) = (Staging::Turned, draw.between(50.0, 300.0));
    }),
    kind("turned_before_nothing", Group::Impossible, |o, draw| {
        (o.staging, o.plain_walls, o.arc_degrees) = (Staging::Turned, true, draw.between(50.0, 300.0));
    }),
    kind("photograph", Group::Impossible, |o, _| o.staging = Staging::Photograph),
    kind("joined", Group::Impossible, |o, draw| o.frames = draw.frames(10, 18)),
    kind("two_rooms", Group::Impossible, |o, draw| o.frames = draw.frames(10, 18)),
    kind("twin", Group::Impossible, |o, draw| {
        (o.arc_degrees, o.frames, o.twin) = (draw.between(250.0, 350.0), draw.frames(28, 40), true);
    }),
];

/// Degrees of a walk that a person takes in a second.
const PACE: f64 = 25.0;

/// The clips of a capture, one after the other, of pictures whose sides are `side` and 3/4 of it. Captures of one seed
/// have their room in common.
pub fn draw(kind: &Kind, seed: u64, side: u32) -> Vec<CaptureOptions> {
    let mut of_room = Draw { seed, key: 0 };
    let subjects = [SubjectKind::StillLife, SubjectKind::Plain, SubjectKind::Dark, SubjectKind::Bricks];
    let tables = [TableKind::Oak, TableKind::Cloth, TableKind::Ground, TableKind::Glossy, TableKind::Blank];
    let (subject, table) = (of_room.one_of(&subjects), of_room.one_of(&tables));
    let mut options = CaptureOptions {
        seed,
        subject: subject.unwrap_or_default(),
        table: table.unwrap_or_default(),
        neighbours: of_room.happens(0.4),
        ..Default::default()
    };
    // Kinds differ in all that is drawn below.
    let name = kind.name.bytes().fold(0u64, |sum, b| sum.wrapping_mul(257) + u64::from(b));
    let own = &mut Draw { seed: seed ^ name.rotate_left(20), key: 0 };
    let (long, short) = (side & !1, (side * 3 / 4) & !1);
    (options.width, options.height) = if own.happens(0.3) { (short, long) } else { (long, short) };
    options.arc_degrees = own.between(50.0, 140.0);
    options.frames = own.frames(14, 20);
    options.relative_focal = own.between(0.65, 1.2);
    options.distortion = own.between(-0.1, 0.04);
    options.noise = own.magnitude(0.8, 4.0);
    options.shutter = own.between(0.0, 0.008);
    options.rolling_shutter = if own.happens(0.5) { own.between(0.0, 0.012) } else { 0.0 };
    options.exposure_drift = own.between(0.0, 0.5);
    options.off_centre = [own.between(-0.008, 0.008), own.between(-0.008, 0.008)];
    (kind.change)(&mut options, own);
    options.frame_rate = (f64::from(options.frames) * PACE / options.arc_degrees).clamp(2.0, 30.0);
    // A frame is over when the next one begins.
    let longest = 0.95 / options.frame_rate;
    (options.shutter, options.rolling_shutter) =
        (options.shutter.min(longest), options.rolling_shutter.min(longest));
    let first = options.clone();
    match kind.name {
        "two_cameras" => {
            // Another telephone, or another lens of the same one.
            let (long, short) = ((side * 9 / 8) & !1, (side * 5 / 8) & !1);
            (options.width, options.height) = if own.happens(0.3) { (short, long) } else { (long, short) };
            options.relative_focal = own.magnitude(0.5, 1.6);
            options.distortion = own.between(-0.1, 0.04);
            options.off_centre = [own.between(-0.008, 0.008), own.between(-0.008, 0.008)];
            vec![first, options]
        }
        // Not another room, which would be furnished alike.
        "joined" => vec![first, CaptureOptions { staging: Staging::Photograph, ..options }],
        "two_rooms" => {
            options.off_centre[0] = 0.0;
            vec![
                CaptureOptions { off_centre: options.off_centre, ..first },
                CaptureOptions { mirrored: true, frames: options.frames * 3 / 4, ..options },
            ]
        }
        _ => vec![first],
    }
}

/// Which of the cameras took picture `k` of a capture by several: of the second it is a quarter to a half.
pub fn taken_by(clips: &[CaptureOptions], k: usize) -> usize {
    let seed = clips.first().map_or(0, |o| o.seed);
    usize::from(uniform(seed ^ 0x7a6b, k as u64) < 0.25 + 0.25 * uniform(seed, 0x7a6b))
}

/// What decides a scenery.
pub fn scenery_key(o: &CaptureOptions) -> String {
    let room = matches!(o.staging, Staging::Around | Staging::Along | Staging::OnTheSpot);
    let staging = if room { "room".into() } else { format!("{:?}", o.staging) };
    format!("{} {} {} {staging}", o.seed, o.plain_walls, o.twin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_of_a_kind_differ_and_those_of_a_seed_share_their_room() {
        let of = |name: &str, seed| {
            let kind = KINDS.iter().find(|k| k.name == name).expect("a kind");
            draw(kind, seed, 320)
        };
        assert_eq!(of("noise", 7), of("noise", 7));
        let (noise, blur, other) = (&of("noise", 7)[0], &of("blur", 7)[0], &of("noise", 8)[0]);
        assert_eq!(
            (noise.subject, noise.table, noise.neighbours),
            (blur.subject, blur.table, blur.neighbours)
        );
        assert_eq!(scenery_key(noise), scenery_key(blur));
        assert!(noise.arc_degrees != blur.arc_degrees && noise.arc_degrees != other.arc_degrees);
        assert!(noise.noise >= 5.0 && blur.noise <= 4.0);
    }

    #[test]
    fn every_kind_can_be_filmed() {
        for (kind, seed) in KINDS.iter().flat_map(|k| (1..30).map(move |seed| (k, seed))) {
            let clips = draw(kind, seed, 320);
            assert!(!clips.is_empty());
            let mixed = kind.name == "two_cameras";
            let of_second = (0..clips[0].frames).map(|k| taken_by(&clips, k as usize)).sum::<usize>();
            assert!(!mixed || of_second >= 3, "{of_second}");
            for (n, o) in clips.iter().enumerate() {
                assert!(
                    (4..=44).contains(&o.frames) && (2.0..=30.0).contains(&o.frame_rate),
                    "{} {o:?}",
                    kind.name
                );
                let is_usual = o.width.min(o.height) == 240 && o.width.max(o.height) == 320;
                assert!(is_usual != (mixed && n == 1));
                assert!((0.5..=1.6).contains(&o.relative_focal) && o.zoom > 0.5);
                assert!(o.shutter.max(o.rolling_shutter) * o.frame_rate < 1.0);
            }
        }
    }
}
