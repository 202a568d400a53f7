//! `reconstruct submit`: a video goes to a server and becomes a job there.

use std::cell::OnceCell;
use std::path::PathBuf;

use clap::Args;
use libreconstruct::pipeline::ReconstructionMethod;
use libreconstruct::presentation::CameraType;
use libreconstruct::{CancelToken, ErrorKind, Result};
use serde_json::{Map, Value};

use super::download::{FileKind, fetch};
use super::on_server::{ServerArguments, goes_on, wait};
use super::run::camera_type;
use crate::context::{Global, print_result};
use crate::remote::upload;
use crate::ui;

/// Send a video to a server, as a job
///
/// Prints the id of the job, alone on standard output, so that a script can keep it; all else goes to standard error. The video is
/// sent in blocks where the server takes them: after a break, or when the command was stopped, the same command goes on with what
/// is not there yet (for two hours), and the same video is not submitted twice, until the job's id was printed. Any server of the
/// interface will do, also one that keeps videos in a cloud storage.
///
/// Below 8 KiB a second a line is too slow for a video that does not get through within two hours.
///
/// A server that is busy is given the time that it asks for, up to five minutes; one that is away while a job is waited for, ten.
///
/// The key is never an argument, which others on this machine could see: it is in RECONSTRUCT_API_KEY or in a file.
#[derive(Args)]
#[command(after_help = "\
Examples:
  export RECONSTRUCT_SERVER=https://scenes.example.org RECONSTRUCT_API_KEY=lrk_…
  JOB=$(reconstruct submit kitchen.mp4)                         sends it and goes on
  reconstruct status \"$JOB\" --wait && reconstruct download \"$JOB\" -o kitchen
  reconstruct submit kitchen.mp4 -o kitchen                     sends it, waits, fetches the scene
  reconstruct submit kitchen.mp4 --wait --json                  one JSON object a line
  reconstruct submit tags.mov --server http://127.0.0.1:8080 --api-key-file key.txt --apriltag-size-mm 80

Exit codes: 0 submitted (with --wait: finished), 2 wrong use or no video, 3 there is no such file,
6 the connection or the server failed, 7 refused (key, limits), 130 stopped. With --wait, if the
job failed, what `reconstruct run` would end with: 3 bad input, 4 missing program or device,
5 the scene cannot be reconstructed, 6 system. Stopping the command does not stop the job.")]
pub(crate) struct Arguments {
    /// Video file (mp4, mov, m4v, mkv, webm, avi), or pictures (jpg, png, webp) in a zip file
    video: PathBuf,
    #[command(flatten)]
    server: ServerArguments,
    /// Title of the scene [default: the file's name]
    #[arg(long)]
    title: Option<String>,
    /// Let others see it, where the server has pages for that
    #[arg(long)]
    public: bool,
    /// How camera poses are found: glomap (global) or colmap (incremental) structure from motion [default: glomap]
    #[arg(long)]
    reconstruction_method: Option<ReconstructionMethod>,
    /// Largest number of Gaussians, 1,000 to 10,000,000 [default: 1,000,000, or less if the server allows less]
    #[arg(long, value_name = "N")]
    training_max_num_gaussians: Option<u32>,
    /// Training steps, 1 to 200,000 [default: 25,000, or less if the server allows less]
    #[arg(long, value_name = "N")]
    training_num_steps: Option<u32>,
    /// Edge of the inner white square of the AprilTags (tagStandard41h12) in the scene in millimetres, 1 to 1000: makes the
    /// scene metric. It is 5/9 of the printed width
    #[arg(long, value_name = "MM")]
    apriltag_size_mm: Option<f64>,
    /// Keep the object only
    #[arg(long)]
    remove_background: bool,
    /// How a viewer moves: orbital or drone [default: drone]
    #[arg(long, value_parser = camera_type)]
    camera_type: Option<CameraType>,
    /// Wait until the job has ended; fail if it does
    #[arg(long)]
    wait: bool,
    /// Wait, then write scene.ply, scene.spz and preview.jpg into this folder
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(&self, global: Global, cancel: &CancelToken) -> Result<()> {
        let client = self.server.client(global)?;
        let options = self.options();
        let mode = ui::Mode::choose(global.json, global.quiet);
        let submitted_id = OnceCell::new();
        let known = &submitted_id;
        let done = self.server.run(cancel, &client, |client| async move {
            let submitted =
                upload::submit(client, &self.video, &options, &mut ui::bytes(mode, "upload")).await?;
            let job_id = submitted["job_id"].as_str().unwrap_or_default();
            // At once, so that it is known whatever comes.
            print_result(global, &submitted, job_id);
            let _ = known.set(job_id.to_owned());
            if self.wait || self.output.is_some() {
                wait(client, job_id, global, true).await?;
            }
            if let Some(folder) = &self.output {
                let fetched = fetch(client, job_id, folder, &FileKind::SCENE, global).await;
                let folder = folder.display();
                fetched.map_err(|e| match e.kind() {
                    // The same command would submit the video once more.
                    ErrorKind::Io | ErrorKind::TooManyRequests => e.hint(format!(
                        "the scene is on the server: reconstruct download {job_id} -o {folder}"
                    )),
                    _ => e,
                })?;
            }
            Ok(())
        });
        done.map_err(|error| match submitted_id.get() {
            _ if !cancel.is_cancelled() => error,
            Some(job_id) => error.hint(goes_on(job_id)),
            None => error.hint("the same command will continue"),
        })
    }

    /// What was asked for; the rest is the server's to choose.
    fn options(&self) -> Value {
        let truth = |given: bool| given.then_some(Value::Bool(true));
        let given = [
            ("title", self.title.clone().map(Value::from)),
            ("public", truth(self.public)),
            (
                "reconstruction_method",
                self.reconstruction_method.and_then(|method| serde_json::to_value(method).ok()),
            ),
            ("training_max_num_gaussians", self.training_max_num_gaussians.map(Value::from)),
            ("training_num_steps", self.training_num_steps.map(Value::from)),
            ("apriltag_size_mm", self.apriltag_size_mm.map(Value::from)),
            ("remove_background", truth(self.remove_background)),
            ("camera_type", self.camera_type.and_then(|kind| serde_json::to_value(kind).ok())),
        ];
        let given = given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(given.collect::<Map<_, _>>())
    }
}
