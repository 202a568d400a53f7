//! `reconstruct download`: the files of a job come from a server.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use libreconstruct::{CancelToken, Error, ErrorKind, Result};
use serde_json::json;

use super::on_server::{ServerArguments, job, path};
use crate::context::{Global, print_result};
use crate::remote::client::Client;
use crate::remote::download::download;
use crate::ui;

/// Fetch the files of a job from a server
///
/// Each file appears when all of it is there. A connection that breaks is taken up again where it was.
#[derive(Args)]
#[command(after_help = "\
Examples:
  reconstruct download 0d8bbd3c-3e2c-4b5a-9d3f-2f4e3a1b9c70 --server https://scenes.example.org -o kitchen
  reconstruct download \"$JOB\" -o kitchen --files spz,report
  reconstruct download \"$JOB\" -o failed --files log              why a job failed, in the worker's words

Exit codes: 0 all files are there, 2 wrong use, 3 there is no such job or file (yet), 6 the connection, the server or the disk
failed, 7 refused (key, limits), 130 stopped.")]
pub(crate) struct Arguments {
    /// The job's id
    job_id: String,
    #[command(flatten)]
    server: ServerArguments,
    /// Folder for the files; made if it is not there
    #[arg(short, long, value_name = "FOLDER", default_value = ".")]
    output: PathBuf,
    /// Which, with commas between them
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = FileKind::SCENE)]
    files: Vec<FileKind>,
}

/// A file of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileKind {
    /// scene.ply: the scene
    Ply,
    /// scene.spz: the scene, compressed
    Spz,
    /// preview.jpg: a picture of it
    Preview,
    /// report.json: every figure of its reconstruction
    Report,
    /// log.txt: what the worker noted
    Log,
    /// poses.jpg: a picture of the camera poses
    Poses,
    /// cameras.zip: the camera poses as COLMAP has them
    Cameras,
    /// masks.zip: masks of the object, if the background was removed
    Masks,
    /// turntable.mp4: a film around the scene, if the server makes one
    Turntable,
    /// scene.sog: the scene for PlayCanvas and SuperSplat, if the server makes it
    Sog,
    /// scene.glb: the scene as glTF, if the server makes it
    Glb,
    /// first_look.spz: a large scene with few splats, to show while the whole one comes
    #[value(alias = "first_look")]
    FirstLook,
}

impl FileKind {
    /// What a scene consists of.
    pub(super) const SCENE: [Self; 3] = [Self::Ply, Self::Spz, Self::Preview];

    fn name(self) -> &'static str {
        match self {
            Self::Ply => "scene.ply",
            Self::Spz => "scene.spz",
            Self::Preview => "preview.jpg",
            Self::Report => "report.json",
            Self::Log => "log.txt",
            Self::Poses => "poses.jpg",
            Self::Cameras => "cameras.zip",
            Self::Masks => "masks.zip",
            Self::Turntable => "turntable.mp4",
            Self::Sog => "scene.sog",
            Self::Glb => "scene.glb",
            Self::FirstLook => "first_look.spz",
        }
    }

    fn path(self, job_id: &str) -> String {
        let job = path(job_id);
        let file_type = match self {
            Self::Preview => return format!("{job}preview/"),
            Self::Ply => "ply",
            Self::Spz => "spz",
            Self::Report => "report",
            Self::Log => "log",
            Self::Poses => "poses",
            Self::Cameras => "cameras",
            Self::Masks => "masks",
            Self::Turntable => "turntable",
            Self::Sog => "sog",
            Self::Glb => "glb",
            Self::FirstLook => "first_look",
        };
        format!("{job}download/{file_type}/")
    }
}

impl Arguments {
    pub(crate) fn run(&self, global: Global, cancel: &CancelToken) -> Result<()> {
        let client = self.server.client(global)?;
        self.server
            .run(cancel, &client, |client| fetch(client, &self.job_id, &self.output, &self.files, global))
    }
}

/// Writes these files of a job into `folder`.
pub(super) async fn fetch(
    client: &Client,
    job_id: &str,
    folder: &Path,
    files: &[FileKind],
    global: Global,
) -> Result<()> {
    let mode = ui::Mode::choose(global.json, global.quiet);
    let mut written = Vec::new();
    for kind in files {
        let to = folder.join(kind.name());
        std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
        let result = download(client, &kind.path(job_id), &to, &mut ui::bytes(mode, kind.name())).await;
        if let Err(error) = result {
            return Err(match error.kind() {
                ErrorKind::NotFound => not_there(client, job_id, error).await,
                _ => error,
            });
        }
        written.push(to.display().to_string());
    }
    print_result(global, &json!({ "job_id": job_id, "files": written }), &written.join("\n"));
    Ok(())
}

/// A file that is not there may come yet.
async fn not_there(client: &Client, job_id: &str, error: Error) -> Error {
    match job(client, job_id).await {
        Ok(job) => error.hint(format!("the job is: {}", ui::job_line(&job))),
        Err(_) => error.hint("a job of another user, or of another server, is not there either"),
    }
}
