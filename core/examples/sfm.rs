use std::path::{Path, PathBuf};

use libreconstruct::sfm::{SfmOptions, reconstruct};
use libreconstruct::video::{Frame, FrameSource, Frames};
use libreconstruct::{Control, Error, Event, Result};

fn main() {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let result = match arguments.as_slice() {
        [frames, out] => run(frames, out, None),
        [frames, out, options] => run(frames, out, Some(options)),
        _ => Err(Error::argument("usage: sfm FRAMES OUT [OPTIONS.json]")),
    };
    if let Err(error) = result {
        eprintln!("{error:?}");
        std::process::exit(error.kind().exit_code().into());
    }
}

fn run(folder: &Path, out: &Path, options: Option<&PathBuf>) -> Result<()> {
    let options: SfmOptions = match options {
        Some(o) => serde_json::from_str(&o.to_string_lossy()).map_err(|e| Error::argument(format!("{e}")))?,
        None => Default::default(),
    };
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let frames = names
        .iter()
        .enumerate()
        .map(|(i, name)| {
            let (width, height) = image::image_dimensions(folder.join(name)).unwrap();
            Frame {
                name: name.clone(),
                index: i as u64,
                timestamp: None,
                width,
                height,
                sharpness: 1.0,
                focal_prior: None,
            }
        })
        .collect::<Vec<_>>();
    let source = if folder.to_string_lossy().contains("video") {
        serde_json::from_str(r#"{"kind":"video","container":"","codec":"","width":1,"height":1,"rotation":0,"duration":1.0,"frame_rate":1.0,"hdr":false}"#).unwrap()
    } else {
        FrameSource::Images
    };
    let frames =
        Frames { folder: folder.into(), source, total: frames.len() as u64, frames, warnings: vec![] };
    let control = Control::new().with_listener(|e| {
        if let Event::Progress { step, fraction, .. } = e
            && step != "features"
        {
            eprintln!("{fraction:.2} {step}")
        }
    });
    let r = reconstruct(&frames, &options, &control)?;
    std::fs::create_dir_all(out).unwrap();
    r.model.write_binary(out)?;
    let report = serde_json::to_string_pretty(&r.report).unwrap();
    std::fs::write(out.join("report.json"), report).unwrap();
    Ok(())
}
