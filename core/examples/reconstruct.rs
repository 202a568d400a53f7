//! A video becomes a scene, with progress: the example of the README.

#![allow(clippy::print_stdout)]

use libreconstruct::pipeline::{Quality, ReconstructionOptions, reconstruct};
use libreconstruct::{Control, Event};

fn main() -> libreconstruct::Result<()> {
    let options = ReconstructionOptions::with_quality(Quality::Preview);
    let control = Control::new().with_listener(|event| {
        if let Event::Progress { stage, fraction, .. } = event {
            eprintln!("{stage} {:.0} %", fraction * 100.0);
        }
    });
    let report = reconstruct("kitchen.mp4".as_ref(), "kitchen".as_ref(), &options, &control)?;
    println!("{} of {} frames have a pose", report.sfm.registered, report.frames.used);
    Ok(())
}
