//! `reconstruct tags`: what the detector sees, and tags to print.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use libreconstruct::fiducial::{Tag, Tags, detect_tags, print_tag, show_tags};
use libreconstruct::pipeline::{files, frames_of};
use libreconstruct::video::FrameOptions;
use libreconstruct::{Error, Result};

use super::ProjectionArguments;
use super::data::table;
use crate::context::Context;

/// Find the AprilTags of a video, or make one to print
///
/// Looks for tags of the family tagStandard41h12 in the key frames of a video or in a folder of pictures, at full
/// resolution. Writes tags.json, the frames with the tags drawn (tags/) and a contact sheet of them (tags/tags.jpg), and
/// says how often and how large each tag was seen: a scale needs 3 frames with an edge of 24 pixels or more, from
/// different sides.
///
/// With --print it writes a tag as an SVG picture, to be printed in its true size: print without scaling, check the ruler
/// below the tag, and fix it to something flat.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Video, folder of pictures, or folder that `reconstruct frames` wrote
    #[arg(required_unless_present = "print", conflicts_with = "print")]
    video: Option<PathBuf>,
    /// Folder for the results; with --print the picture to write (.svg)
    #[arg(short, long, value_name = "PATH")]
    output: PathBuf,
    /// Make tag ID (0 to 2114) to print
    #[arg(long, value_name = "ID", requires = "size")]
    print: Option<u32>,
    /// Edge of the inner white square of the printed tag, 5/9 of its width: 100mm, 10cm, 0.1m
    #[arg(long, value_name = "LENGTH", value_parser = millimetres, requires = "print")]
    size: Option<f64>,
    /// At most this many frames [default: 150, or up to 450 where neighbouring ones would share
    /// too little]
    #[arg(long, value_name = "N")]
    max_frames: Option<usize>,
    /// Long side of the frames that are written in pixels at most; tags are looked for at full resolution
    #[arg(long, value_name = "PIXELS", default_value_t = 1600)]
    max_resolution: u32,
    #[command(flatten)]
    projection: ProjectionArguments,
}

/// A length in millimetres; without a unit it is one of millimetres.
fn millimetres(text: &str) -> std::result::Result<f64, String> {
    let text = text.trim();
    let units = [("mm", 1.0), ("cm", 10.0), ("m", 1000.0), ("", 1.0)];
    let read = |(unit, factor): (&str, f64)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        Some(number * factor)
    };
    units.into_iter().find_map(read).ok_or_else(|| "a length like 100mm, 10cm or 0.1m is expected".to_owned())
}

/// What was seen of one id.
#[derive(serde::Serialize)]
struct Summary {
    id: u32,
    frames: usize,
    sightings: usize,
    smallest_edge_pixels: f64,
    median_edge_pixels: f64,
    largest_edge_pixels: f64,
    median_decision_margin: f64,
}

impl Arguments {
    pub(crate) fn run(&self, context: &Context<'_>) -> Result<()> {
        match (self.print, self.size, &self.video) {
            (Some(id), Some(size), _) => self.print(id, size, context),
            (_, _, Some(video)) => self.find(video, context),
            // The options' own rules have refused this.
            _ => Err(Error::argument("a video, or --print with --size, is needed")),
        }
    }

    fn print(&self, id: u32, size: f64, context: &Context<'_>) -> Result<()> {
        let picture = print_tag(id, size)?;
        libreconstruct::write_file(&self.output, picture.as_bytes())?;
        let printed = 1.8 * size;
        let value = serde_json::json!({ "id": id, "apriltag_size_mm": size, "printed_width_mm": printed, "path": self.output });
        let text = format!(
            "{}: tag {id}, {printed:.1} mm wide; its inner white square has {size} mm (--apriltag-size-mm {size})",
            self.output.display()
        );
        context.result(&value, &text);
        Ok(())
    }

    fn find(&self, video: &Path, context: &Context<'_>) -> Result<()> {
        let control = context.control;
        let wanted = FrameOptions {
            max_resolution: self.max_resolution,
            projection: self.projection.named(),
            ..FrameOptions::of_at_most(self.max_frames)
        };
        let (frames, source) = frames_of(video, &self.output, &wanted, control)?;
        let tags = detect_tags(&frames, source, control)?;
        tags.write(&self.output.join(files::TAGS))?;
        let folder = self.output.join("tags");
        let shown = show_tags(&frames, &tags, &folder, control)?;
        let summaries = summaries(&tags);
        let value = serde_json::json!({
            "family": tags.family, "frames": frames.frames.len(), "frames_with_tags": shown,
            "sightings": tags.count(), "tags": summaries,
        });
        let header = ["id", "frames", "sightings", "edge px (least, median, most)", "margin"];
        let rows = summaries.iter().map(|s| {
            [
                s.id.to_string(),
                s.frames.to_string(),
                s.sightings.to_string(),
                format!(
                    "{:.0} {:.0} {:.0}",
                    s.smallest_edge_pixels, s.median_edge_pixels, s.largest_edge_pixels
                ),
                format!("{:.0}", s.median_decision_margin),
            ]
        });
        let found = match summaries.is_empty() {
            true => format!("no tag of the family {}", tags.family),
            false => table(header, rows),
        };
        let text = format!(
            "{found}\n{shown} of {} frames show tags\ndrawn in {}",
            frames.frames.len(),
            folder.join("tags.jpg").display()
        );
        context.result(&value, &text);
        Ok(())
    }
}

/// By id.
fn summaries(tags: &Tags) -> Vec<Summary> {
    let mut by_id: BTreeMap<u32, Vec<&Tag>> = BTreeMap::new();
    tags.frames.iter().flat_map(|f| &f.tags).for_each(|t| by_id.entry(t.id).or_default().push(t));
    let frames = tags.frames_by_id();
    let one = |(id, seen): (u32, Vec<&Tag>)| {
        let mut edges: Vec<f64> = seen.iter().map(|t| t.edge).collect();
        let mut margins: Vec<f64> = seen.iter().map(|t| f64::from(t.decision_margin)).collect();
        edges.sort_by(f64::total_cmp);
        margins.sort_by(f64::total_cmp);
        let at = |values: &[f64], k: usize| values.get(k).copied().unwrap_or(0.0);
        Summary {
            id,
            frames: frames.get(&id).copied().unwrap_or(0),
            sightings: seen.len(),
            smallest_edge_pixels: at(&edges, 0),
            median_edge_pixels: at(&edges, edges.len() / 2),
            largest_edge_pixels: at(&edges, edges.len() - 1),
            median_decision_margin: at(&margins, margins.len() / 2),
        }
    };
    by_id.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn a_tag_to_print_is_written_beside_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("tag.svg"), folder.path().join("old.svg"));
        std::fs::write(&path, "old").unwrap();
        std::fs::hard_link(&path, &old).unwrap();
        let words = ["tags", "--print", "7", "--size", "100mm", "-o", path.to_str().unwrap()];
        let command = <Command as clap::Parser>::try_parse_from(words).unwrap();
        let global = crate::context::Global { json: true, quiet: true, threads: None };
        command.arguments.run(&Context { global, control: &libreconstruct::Control::new() }).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().contains("<svg"));
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "old");
    }

    #[test]
    fn lengths_have_units() {
        for (text, mm) in
            [("100mm", 100.0), ("100", 100.0), ("10 cm", 100.0), ("0.1m", 100.0), ("1e2mm", 100.0)]
        {
            assert!((millimetres(text).unwrap() - mm).abs() < 1e-9, "{text}");
        }
        for text in ["", "mm", "ten", "10 inches"] {
            assert!(millimetres(text).is_err(), "{text}");
        }
    }
}
