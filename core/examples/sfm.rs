//! Camera poses and sparse points from a folder of pictures, as a COLMAP model.
//!
//! ```text
//! cargo run --release --example sfm -- FRAMES OUT [OPTIONS]
//! ```
//!
//! FRAMES is a folder of JPEG and PNG pictures of one camera, or one with the `frames.json` of the frames stage. OUT gets
//! `cameras.bin`, `images.bin`, `points3D.bin` and `report.json`. OPTIONS is JSON with any field of `SfmOptions`, for
//! example `{"focal": 1180.0}`.

use std::path::Path;

use libreconstruct::sfm::{SfmOptions, reconstruct};
use libreconstruct::video::{Frame, Frames};
use libreconstruct::{Control, Error, ErrorKind, Event, Result};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.as_slice() {
        [frames, out] => run(frames.as_ref(), out.as_ref(), "{}"),
        [frames, out, options] => run(frames.as_ref(), out.as_ref(), options),
        _ => Err(Error::argument("usage: sfm FRAMES OUT [OPTIONS]")),
    };
    if let Err(error) = result {
        eprintln!("{error:?}");
        std::process::exit(error.kind().exit_code().into());
    }
}

fn run(folder: &Path, out: &Path, options: &str) -> Result<()> {
    let options: SfmOptions =
        serde_json::from_str(options).map_err(|e| Error::argument(format!("OPTIONS: {e}")))?;
    let frames = frames_in(folder)?;
    let control = Control::new().with_listener(|event| match event {
        Event::Progress { step, fraction, .. } => eprint!("\r{:3.0} % {step:<24}", 100.0 * fraction),
        Event::Warning { warning, .. } => eprintln!("\nwarning: {}", warning.message),
    });
    let result = reconstruct(&frames, &options, &control)?;
    eprintln!();
    std::fs::create_dir_all(out).map_err(|e| Error::io("create", out, e))?;
    result.model.write_binary(out)?;
    let path = out.join("report.json");
    let report = serde_json::to_string_pretty(&result.report)
        .map_err(|e| Error::new(ErrorKind::Internal, format!("the report cannot be written: {e}")))?;
    std::fs::write(&path, report).map_err(|e| Error::io("write", &path, e))
}

/// The frames described in the folder, or all its pictures in the order of their names.
fn frames_in(folder: &Path) -> Result<Frames> {
    let description = Frames::description_path(folder);
    if let Ok(text) = std::fs::read_to_string(&description) {
        let frames: Frames = serde_json::from_str(&text).map_err(|e| {
            Error::new(ErrorKind::InvalidFile, format!("{} is damaged: {e}", description.display()))
        })?;
        return Ok(Frames { folder: folder.to_path_buf(), ..frames });
    }
    let entries = std::fs::read_dir(folder).map_err(|e| Error::io("open", folder, e))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| {
            let name = name.to_ascii_lowercase();
            [".jpg", ".jpeg", ".png"].iter().any(|end| name.ends_with(end))
        })
        .collect();
    names.sort();
    let frame = |(i, name): (usize, String)| {
        let (width, height) = image::image_dimensions(folder.join(&name))
            .map_err(|e| Error::new(ErrorKind::InvalidMedia, format!("{name} cannot be read: {e}")))?;
        Ok(Frame::new(name, i as u64, width, height))
    };
    let frames = names.into_iter().enumerate().map(frame).collect::<Result<_>>()?;
    Ok(Frames::of_images(folder, frames))
}
