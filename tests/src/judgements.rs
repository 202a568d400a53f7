//! What verdicts said of captures, beside what was true of them: reads the results of `verdict-study`, grades them anew by
//! the figures they recorded, and counts.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use libreconstruct::sfm::{Evidence, Grade, Verdict};
use libreconstruct::{Error, ErrorKind, Result};
use serde_json::Value;

use crate::risk::Outcome;

/// Rotations (degrees) and places (share of the camera path) of a sound reconstruction are off by no more.
const SOUND: (f64, f64) = (1.0, 0.02);
/// And it has this share of the frames.
const MOST_FRAMES: f64 = 0.8;
/// A refusal should not take longer, in seconds of wall clock.
const LONG_REFUSAL: f64 = 60.0;
/// The kind of film of a room that looks the same after half a turn: its sides cannot be told apart for certain, but may come out right.
/// The truth says whether they did.
const BY_LUCK: &str = "twin";

/// Which part of the study a capture belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Half {
    /// Captures that constants may be chosen by: those of odd seeds.
    Tuned,
    /// Captures that say how good the constants are: those of even seeds.
    HeldOut,
    /// Not filmed by the generator.
    Real,
}

impl Half {
    /// As tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Half::Tuned => "tuned on",
            Half::HeldOut => "held out",
            Half::Real => "real",
        }
    }
}

/// One capture.
#[derive(Debug, Clone)]
pub struct Judgement {
    /// Its name.
    pub id: String,
    /// What was filmed: the name without the seed.
    pub kind: String,
    /// Whether it cannot be reconstructed.
    pub is_impossible: bool,
    /// Where it belongs.
    pub half: Half,
    /// The verdict that follows from the recorded figures; none where there was an error before there was a model.
    pub verdict: Option<Verdict>,
    /// The error before there was a model.
    pub refusal: Option<String>,
    /// True errors where they are known: rotations (degrees) and places (share of the camera path).
    pub errors: Option<(f64, f64)>,
    /// Processor seconds of structure from motion, and of the verdict.
    pub seconds: (f64, f64),
    /// Seconds of wall clock until structure from motion had a model or an error, or until no frames could be chosen. Not every file of
    /// results has them.
    pub wall_seconds: Option<f64>,
}

impl Judgement {
    fn from_line(line: &Value) -> Option<Self> {
        let id = line["id"].as_str()?.to_owned();
        let (kind, half) = match id.rsplit_once('-').and_then(|(k, s)| Some((k, s.parse::<u64>().ok()?))) {
            Some((kind, seed)) => (kind.to_owned(), if seed % 2 == 1 { Half::Tuned } else { Half::HeldOut }),
            None => (id.clone(), Half::Real),
        };
        let figures = line["verdict"]["evidence"].clone();
        let verdict = serde_json::from_value::<Evidence>(figures).ok().map(Verdict::of);
        Some(Self {
            kind,
            is_impossible: line["group"] == "impossible",
            half,
            verdict,
            refusal: line["error"].as_str().map(str::to_owned),
            errors: line["true_rotation"].as_f64().zip(line["true_position"].as_f64()),
            seconds: (
                line["seconds"].as_f64().unwrap_or(0.0),
                line["verdict_seconds"].as_f64().unwrap_or(0.0),
            ),
            wall_seconds: line["wall_seconds"].as_f64(),
            id,
        })
    }

    /// The grade; none where there is no model.
    pub fn grade(&self) -> Option<Grade> {
        self.verdict.as_ref().map(|v| v.grade)
    }

    fn is_good(&self) -> bool {
        self.grade() == Some(Grade::Good)
    }

    /// Whether a user gets an error: there is no model, or one that only the study keeps.
    pub fn is_refused(&self) -> bool {
        self.grade().is_none_or(|grade| grade == Grade::Broken)
    }

    /// Whether to call it good is wrong, in tables and in the picture alike: poses are off by more than a good model's may be, or
    /// it cannot be reconstructed. Where places look alike the poses alone decide.
    pub fn is_wrong(&self) -> bool {
        match self.errors {
            Some((rotation, position)) if rotation > SOUND.0 || position > SOUND.1 => true,
            Some(_) => self.is_impossible && self.kind != BY_LUCK,
            None => self.is_impossible,
        }
    }

    /// Whether all is well with it: poses as a good model's, of nearly all frames, of something that can be reconstructed.
    pub fn is_sound(&self) -> bool {
        let registered = self.verdict.as_ref().map_or(0.0, |v| v.evidence.registered);
        !self.is_impossible && self.errors.is_some() && !self.is_wrong() && registered >= MOST_FRAMES
    }

    /// Expected errors over the true ones: rotations, places. Only where the rest of the world is as it seems: what speaks
    /// against a capture speaks against its figures.
    pub fn ratios(&self) -> Option<[f64; 2]> {
        let verdict = self.verdict.as_ref()?;
        let (rotation, position) = self.errors?;
        Some([verdict.rotation_error_degrees / rotation, verdict.position_error / position])
    }

    /// How doubtful it is said to be: by its grade, then by what its errors stay below.
    pub fn outcome(&self) -> Outcome {
        let doubt = self.verdict.as_ref().map_or(f64::INFINITY, |v| {
            let worst = (v.rotation_bound_degrees / SOUND.0).max(v.position_bound / SOUND.1);
            // Any bound comes after those of a better grade.
            let share = worst / (1.0 + worst);
            match v.grade {
                Grade::Good => share,
                Grade::Doubtful => 1.0 + share,
                Grade::Broken => f64::INFINITY,
            }
        });
        Outcome { doubt, is_sound: self.errors.is_some() && !self.is_wrong() }
    }
}

/// Reads files of results.
///
/// # Errors
/// A file that cannot be read; a line that is no result.
pub fn read_judgements(files: &[impl AsRef<Path>]) -> Result<Vec<Judgement>> {
    let mut found = Vec::new();
    for path in files.iter().map(AsRef::as_ref) {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
        for (k, line) in text.lines().enumerate() {
            let value = serde_json::from_str::<Value>(line).ok();
            let judgement = value.as_ref().and_then(Judgement::from_line).ok_or_else(|| {
                let message = format!("line {} of {} is no result of this study", k + 1, path.display());
                Error::new(ErrorKind::InvalidArgument, message)
            })?;
            found.push(judgement);
        }
    }
    Ok(found)
}

/// `part` of `whole`, in per cent where that says something.
fn share(part: usize, whole: usize) -> String {
    match whole {
        0 => "–".into(),
        _ => format!("{part} of {whole} ({:.1} %)", 100.0 * part as f64 / whole as f64),
    }
}

/// Tables: of each kind, and of each half what a verdict promises.
pub fn tables(judgements: &[Judgement]) -> String {
    let mut text = String::from(
        "| kind | half | captures | refused before | good | doubtful | broken | good but wrong | sound | of these good |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let mut rows: BTreeMap<(bool, &str, Half), Vec<&Judgement>> = BTreeMap::new();
    for j in judgements {
        rows.entry((j.is_impossible, j.kind.as_str(), j.half)).or_default().push(j);
    }
    let count = |of: &[&Judgement], what: &dyn Fn(&Judgement) -> bool| of.iter().filter(|j| what(j)).count();
    for ((_, kind, half), of) in &rows {
        let graded = |grade| count(of, &|j| j.grade() == Some(grade));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {kind} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            half.name(),
            of.len(),
            count(of, &|j| j.verdict.is_none()),
            graded(Grade::Good),
            graded(Grade::Doubtful),
            graded(Grade::Broken),
            count(of, &|j| j.is_good() && j.is_wrong()),
            count(of, &Judgement::is_sound),
            count(of, &|j| j.is_sound() && j.is_good())
        );
    }
    text.push_str(
        "\n| half | captures | good but wrong | sound ones graded good | rotations expected within a factor of two | \
         places | rotations below their bound | places | cost |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for half in [Half::Tuned, Half::HeldOut, Half::Real] {
        let of: Vec<&Judgement> = judgements.iter().filter(|j| j.half == half).collect();
        if of.is_empty() {
            continue;
        }
        let good = count(&of, &Judgement::is_good);
        let ratios = |k: usize| -> Vec<f64> {
            of.iter().filter(|j| j.is_sound()).filter_map(|j| Some(j.ratios()?[k])).collect()
        };
        let near = |k: usize| {
            let all = ratios(k);
            share(all.iter().filter(|r| (0.5..=2.0).contains(*r)).count(), all.len())
        };
        let below = |k: usize| {
            let all: Vec<(f64, f64)> = of
                .iter()
                .filter(|j| j.is_sound())
                .filter_map(|j| {
                    let (verdict, errors) = (j.verdict.as_ref()?, j.errors?);
                    Some(match k {
                        0 => (errors.0, verdict.rotation_bound_degrees),
                        _ => (errors.1, verdict.position_bound),
                    })
                })
                .collect();
            share(all.iter().filter(|(error, bound)| error <= bound).count(), all.len())
        };
        let seconds = of.iter().fold((0.0, 0.0), |sum, j| (sum.0 + j.seconds.0, sum.1 + j.seconds.1));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {:.1} % |",
            half.name(),
            of.len(),
            share(count(&of, &|j| j.is_good() && j.is_wrong()), good),
            share(count(&of, &|j| j.is_sound() && j.is_good()), count(&of, &Judgement::is_sound)),
            near(0),
            near(1),
            below(0),
            below(1),
            100.0 * seconds.1 / seconds.0.max(1e-9)
        );
    }
    text
}

/// Table: how long refusals take, before there is a model or of a broken one.
pub fn refusals(judgements: &[Judgement]) -> String {
    let mut text = format!(
        "| half | refused | with their time | longest, wall clock | over {LONG_REFUSAL} s |\n\
         | --- | --- | --- | --- | --- |\n"
    );
    for half in [Half::Tuned, Half::HeldOut, Half::Real] {
        let of: Vec<&Judgement> = judgements.iter().filter(|j| j.half == half && j.is_refused()).collect();
        let timed: Vec<(f64, &str)> =
            of.iter().filter_map(|j| Some((j.wall_seconds?, j.id.as_str()))).collect();
        let longest = timed.iter().max_by(|a, b| a.0.total_cmp(&b.0));
        if of.is_empty() {
            continue;
        }
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            half.name(),
            of.len(),
            timed.len(),
            longest.map_or("–".into(), |(seconds, id)| format!("{seconds:.1} s ({id})")),
            timed.iter().filter(|(seconds, _)| *seconds > LONG_REFUSAL).count()
        );
    }
    text
}

/// What a person would look at: captures that were called good and are wrong, and sound ones that were not called good.
pub fn surprises(judgements: &[Judgement]) -> String {
    let mut text = String::new();
    for j in judgements {
        let what = match (j.is_good() && j.is_wrong(), j.is_sound() && !j.is_good()) {
            (true, _) => "called good",
            (_, true) => "sound",
            _ => continue,
        };
        let (rotation, position) = j.errors.unwrap_or((f64::NAN, f64::NAN));
        let reasons = j.verdict.iter().flat_map(|v| &v.reasons).map(|r| r.message.as_str());
        let _ = writeln!(
            text,
            "{what}: {} ({rotation:.3} degrees, {:.2} %) {}",
            j.id,
            100.0 * position,
            reasons.collect::<Vec<_>>().join("; ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::risk::risk_curve;
    use serde_json::json;

    fn line(id: &str, group: &str, errors: (f64, f64), spread: f64) -> Value {
        json!({
            "id": id, "group": group, "true_rotation": errors.0, "true_position": errors.1,
            "verdict": { "evidence": {
                "frames": 20, "registered": 1.0, "parallax_degrees": 9.0, "noise": 0.05,
                "worst_frame_agreement": 1.0, "rotation_spread": vec![spread; 5], "position_spread": vec![spread / 50.0; 5],
            } }
        })
    }

    #[test]
    fn grades_follow_from_figures_and_are_held_against_the_truth() {
        let of = |value: &Value| Judgement::from_line(value).expect("a result");
        let sound = of(&line("walk-7", "usual", (0.01, 2e-4), 0.01));
        assert!(sound.is_good() && sound.is_sound() && sound.half == Half::Tuned && sound.kind == "walk");
        let wrong = of(&line("cropped-8", "faulty", (3.0, 2e-4), 0.01));
        assert!(wrong.is_good() && wrong.is_wrong() && !wrong.is_sound() && wrong.half == Half::HeldOut);
        let unsure = of(&line("walk-9", "usual", (0.1, 2e-4), 5.0));
        assert!(!unsure.is_good() && unsure.is_sound());
        let refused =
            of(&json!({ "id": "turned-2", "group": "impossible", "error": "insufficient_parallax" }));
        assert!(refused.verdict.is_none() && !refused.is_sound());
        assert!(sound.outcome().doubt < unsure.outcome().doubt && refused.outcome().doubt.is_infinite());
        assert_eq!(of(&line("data/fox", "usual", (0.1, 1e-3), 0.01)).half, Half::Real);

        let all = [sound, wrong, unsure, refused];
        let surprises = surprises(&all);
        assert!(
            surprises.contains("called good: cropped-8") && surprises.contains("sound: walk-9"),
            "{surprises}"
        );
        assert_eq!(surprises.lines().count(), 2);
        let tables = tables(&all);
        assert!(tables.contains("| held out | 2 | 1 of 1 (100.0 %) |"), "{tables}");
        assert!(tables.contains("| tuned on | 2 | 0 of 1 (0.0 %) | 1 of 2 (50.0 %) |"), "{tables}");
    }

    #[test]
    fn tables_and_the_picture_agree_on_what_is_wrong() {
        let of =
            |id: &str, errors| Judgement::from_line(&line(id, "impossible", errors, 0.01)).expect("a result");
        let (right, off) = (of("twin-2", (0.1, 1e-3)), of("twin-4", (9.0, 0.3)));
        assert!(!right.is_wrong() && right.outcome().is_sound && off.is_wrong() && !off.outcome().is_sound);
        // A photograph is no place, however right the poses before it are.
        let photograph = of("photograph-6", (0.1, 1e-3));
        assert!(photograph.is_wrong() && !photograph.outcome().is_sound);
        let all = [right, off, photograph];
        assert!(all.iter().all(|j| j.is_good() && !j.is_sound()));
        assert!(tables(&all).contains("| held out | 3 | 2 of 3 (66.7 %) |"), "{}", tables(&all));
        let curve = risk_curve(&all.each_ref().map(Judgement::outcome));
        assert_eq!(curve.last(), Some(&(1.0, 2.0 / 3.0)));
        assert_eq!(surprises(&all).matches("called good: ").count(), 2);
    }

    #[test]
    fn refusals_say_how_long_they_took() {
        let of = |value: &Value| Judgement::from_line(value).expect("a result");
        let mut broken = line("walk-4", "usual", (0.1, 1e-3), 1e3);
        broken["wall_seconds"] = json!(75.5);
        let mut good = line("walk-6", "usual", (0.1, 1e-3), 0.01);
        good["wall_seconds"] = json!(300.0);
        let refused = |id: &str| json!({ "id": id, "group": "impossible", "error": "insufficient_parallax" });
        let (untimed, mut timed) = (refused("turned-2"), refused("turned-8"));
        timed["wall_seconds"] = json!(4.0);
        let all = [broken, good, untimed, timed].each_ref().map(of);
        assert_eq!(all.each_ref().map(Judgement::is_refused), [true, false, true, true]);
        let table = refusals(&all);
        assert!(table.ends_with("| held out | 3 | 2 | 75.5 s (walk-4) | 1 |\n"), "{table}");
        assert_eq!(table.lines().count(), 3);
    }
}
