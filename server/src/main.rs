//! The `reconstruct` command: a video becomes camera poses and a Gaussian scene.
//!
//! A thin face: it reads options, shows progress and maps errors to exit codes; the work is the library's.

mod command;
mod config;
mod context;
mod hidden;
mod http;
mod oidc;
mod reach;
mod remote;
mod telemetry;
mod ui;
mod webhook;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use libreconstruct::{CancelToken, Error, ErrorKind, Result};

use command::data::OnService;
use context::{Context, Global};

/// Make a 3D Gaussian scene from a video.
///
/// `reconstruct run VIDEO -o FOLDER` does everything: it picks sharp frames, finds the camera poses, fits the scene and
/// writes scene.ply, scene.spz, preview.jpg, turntable.mp4 and report.json. The other commands are its stages, each by
/// itself, and tools for the files. Stopped or killed, the same command continues where it was.
///
/// `reconstruct serve` is the same as a service for many users: a REST interface that takes videos and gives out scenes. `submit`,
/// `status` and `download` are the other end of it.
#[derive(Parser)]
#[command(
    version,
    after_help = "\
Examples:
  reconstruct run kitchen.mp4 -o kitchen --quality preview    a small scene in minutes, also without a GPU
  reconstruct run photos/ -o castle --test-every 8            from a folder of pictures, scored on every 8th
  reconstruct info kitchen/scene.spz                          what is in a file
  reconstruct convert kitchen/scene.ply kitchen.spz           from one format to another
  reconstruct serve --demo                                    the REST server, with a session to try it
  reconstruct submit kitchen.mp4 --server URL -o kitchen      the same on a server, as one of its users
  reconstruct doctor --data /srv/scenes                       what is wrong with a service, and what to do

Exit codes: 0 done, 2 wrong use, 3 bad input, 4 missing program or device, 5 the scene cannot be reconstructed,
6 system (disk, memory, driver), 7 refused by the service, 130 cancelled, 1 a fault of this program (of doctor and backup also:
problems or lost files were found)."
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(command::run::Arguments),
    Frames(command::frames::Arguments),
    Sfm(command::sfm::Arguments),
    Tags(command::tags::Arguments),
    Train(command::train::Arguments),
    Render(command::render::Arguments),
    Eval(command::eval::Arguments),
    Convert(command::convert::Arguments),
    Info(command::info::Arguments),
    Devices(command::devices::Arguments),
    Submit(command::submit::Arguments),
    Status(command::status::Arguments),
    Download(command::download::Arguments),
    Serve(command::serve::Arguments),
    Worker(command::worker::Arguments),
    Users(OnService<command::users::Action>),
    Keys(OnService<command::keys::Action>),
    Jobs(OnService<command::jobs::Action>),
    Backup(command::backup::Arguments),
    Restore(command::restore::Arguments),
    Migrate(command::migrate::Arguments),
    Doctor(command::doctor::Arguments),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        // Vulkan drivers complain on standard error without it, on servers and in containers.
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var("XDG_RUNTIME_DIR", std::env::temp_dir()) };
    }
    match run(cli) {
        Ok(code) => code,
        Err((global, error)) => {
            report(global, &error);
            ExitCode::from(error.kind().exit_code())
        }
    }
}

fn run(cli: Cli) -> std::result::Result<ExitCode, (Global, Error)> {
    let global = cli.global;
    let cancel = CancelToken::new();
    let work = || -> Result<ExitCode> {
        let done = |()| ExitCode::SUCCESS;
        // The server hears its signals itself, and the commands on a service's folder are done in no time.
        match &cli.command {
            Command::Serve(a) => return a.run(global).map(done),
            Command::Users(a) => {
                let (service, config) = a.data.open_with_config()?;
                return a.action.run(&service, &config, global).map(done);
            }
            Command::Keys(a) => return a.action.run(&a.data.open_existing()?, global).map(done),
            Command::Jobs(a) => return a.action.run(&a.data.open_existing()?, global).map(done),
            Command::Doctor(a) => return a.run(global),
            Command::Backup(a) => {
                stop_on_interrupt(cancel.clone(), "nothing is left of the backup")?;
                return a.run(global, &cancel);
            }
            Command::Restore(a) => {
                stop_on_interrupt(cancel.clone(), "the folder is emptied again")?;
                return a.run(global, &cancel).map(done);
            }
            Command::Migrate(a) => {
                stop_on_interrupt(cancel.clone(), "the folder can be used as before")?;
                return a.run(global, &cancel).map(done);
            }
            Command::Submit(a) => {
                stop_on_interrupt(cancel.clone(), "sent blocks are kept; a submitted job goes on")?;
                return a.run(global, &cancel).map(done);
            }
            Command::Status(a) => {
                stop_on_interrupt(cancel.clone(), "the job goes on")?;
                return a.run(global, &cancel).map(done);
            }
            Command::Download(a) => {
                stop_on_interrupt(cancel.clone(), "files that are whole stay")?;
                return a.run(global, &cancel).map(done);
            }
            _ => {}
        }
        stop_on_interrupt(cancel.clone(), "the same command will continue")?;
        if let Command::Worker(a) = &cli.command {
            return a.run(global, &cancel).map(done);
        }
        let control = ui::control(ui::Mode::choose(global.json, global.quiet), cancel);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(global.threads.map_or(0, usize::from))
            .build()
            .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start threads: {e}")))?;
        let context = Context { global, control: &control };
        pool.install(|| match cli.command {
            Command::Run(a) => a.run(&context),
            Command::Frames(a) => a.run(&context),
            Command::Sfm(a) => a.run(&context),
            Command::Tags(a) => a.run(&context),
            Command::Train(a) => a.run(&context),
            Command::Render(a) => a.run(&context),
            Command::Eval(a) => a.run(&context),
            Command::Convert(a) => a.run(&context),
            Command::Info(a) => a.run(&context),
            Command::Devices(a) => a.run(&context),
            // They have run above.
            Command::Submit(_)
            | Command::Status(_)
            | Command::Download(_)
            | Command::Serve(_)
            | Command::Worker(_)
            | Command::Users(_)
            | Command::Keys(_)
            | Command::Jobs(_)
            | Command::Backup(_)
            | Command::Restore(_)
            | Command::Migrate(_)
            | Command::Doctor(_) => Ok(()),
        })
        .map(done)
    };
    work().map_err(|error| (global, error))
}

/// The first interrupt asks the work to stop, and says what `then` follows; a second one ends the process at once.
fn stop_on_interrupt(cancel: CancelToken, then: &'static str) -> Result<()> {
    ctrlc::set_handler(move || {
        if cancel.is_cancelled() {
            std::process::exit(130);
        }
        eprintln!("stopping; {then} (press again to stop at once)");
        cancel.cancel();
    })
    .map_err(|e| Error::new(ErrorKind::Internal, format!("cannot handle interrupts: {e}")))
}

fn report(global: Global, error: &Error) {
    if global.json {
        ui::print_json(&serde_json::json!({
            "event": "error",
            "kind": error.kind().slug(),
            "stage": error.stage(),
            "message": error.message(),
            "hint": error.hint_text(),
        }));
        return;
    }
    let stage = error.stage().map(|s| format!(" ({s})")).unwrap_or_default();
    eprintln!("error{stage}: {}", error.message());
    if let Some(hint) = error.hint_text() {
        eprintln!("  hint: {hint}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
