//! Finds the `ffmpeg` and `ffprobe` programs and checks that they are new enough.
//!
//! Looked for in this order: the environment variables `RECONSTRUCT_FFMPEG` and `RECONSTRUCT_FFPROBE`, the folder of
//! the running executable, `PATH`. Nothing is ever downloaded. What was found is remembered for the life of the
//! process; a failure is not, so that an installation in between is noticed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};

use super::process::{self, Limits, Process};

/// The oldest version whose options we use.
const OLDEST: Version = Version { major: 5, minor: 0 };

/// An ffmpeg release number; builds of the development branch count as newer than every release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    major: u32,
    minor: u32,
}

/// The two programs and what this build of ffmpeg can do. A start of ffmpeg costs a tenth of a second of computing, most of it
/// for its libraries; so it is asked only for what is needed.
#[derive(Debug)]
pub(super) struct Tools {
    /// Absolute path of `ffmpeg`.
    pub(super) ffmpeg: PathBuf,
    /// Absolute path of `ffprobe`.
    pub(super) ffprobe: PathBuf,
    version: Version,
    /// The tables that it prints, once they were asked for.
    filters: OnceLock<String>,
    encoders: OnceLock<String>,
}

static FOUND: OnceLock<Tools> = OnceLock::new();

impl Tools {
    /// The programs of this machine.
    ///
    /// # Errors
    /// [`ErrorKind::FfmpegMissing`] if one is missing, does not run or is older than 5.0.
    pub(super) fn find() -> Result<&'static Tools> {
        if let Some(tools) = FOUND.get() {
            return Ok(tools);
        }
        let folder = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_path_buf));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let named = |variable: &str, program: &str| {
            locate(program, variable, std::env::var_os(variable).as_deref(), folder.as_deref(), &path)
        };
        let ffmpeg = named("RECONSTRUCT_FFMPEG", "ffmpeg")?;
        let ffprobe = named("RECONSTRUCT_FFPROBE", "ffprobe")?;
        let version = check_version(&ffmpeg)?;
        check_version(&ffprobe)?;
        let (filters, encoders) = (OnceLock::new(), OnceLock::new());
        Ok(FOUND.get_or_init(|| Tools { ffmpeg, ffprobe, version, filters, encoders }))
    }

    /// Whether this build has the filter `name`.
    ///
    /// # Errors
    /// [`ErrorKind::FfmpegMissing`] if ffmpeg does not run any more.
    pub(super) fn has_filter(&self, name: &str) -> Result<bool> {
        self.table(&self.filters, "-filters").map(|table| lists(table, name))
    }

    /// Whether this build has the encoder `name`.
    ///
    /// # Errors
    /// [`ErrorKind::FfmpegMissing`] if ffmpeg does not run any more.
    pub(super) fn has_encoder(&self, name: &str) -> Result<bool> {
        self.table(&self.encoders, "-encoders").map(|table| lists(table, name))
    }

    /// What ffmpeg prints for `option`, asked for once.
    fn table<'a>(&self, table: &'a OnceLock<String>, option: &str) -> Result<&'a str> {
        if let Some(text) = table.get() {
            return Ok(text);
        }
        let text = ask(&self.ffmpeg, &["-hide_banner", option])?;
        Ok(table.get_or_init(|| text))
    }

    /// The option that keeps every frame as it is, neither doubled nor dropped: its name changed in 5.1.
    pub(super) fn passthrough(&self) -> [&'static str; 2] {
        let renamed = self.version >= Version { major: 5, minor: 1 };
        [if renamed { "-fps_mode" } else { "-vsync" }, "passthrough"]
    }
}

/// Tries whether the programs of this machine, which were found once, still run.
///
/// # Errors
/// As for [`Tools::find`].
#[cfg(feature = "service")]
pub(crate) fn check_tools() -> Result<()> {
    let Some(tools) = FOUND.get() else {
        // What is found is tried.
        return Tools::find().map(drop);
    };
    check_version(&tools.ffmpeg)?;
    check_version(&tools.ffprobe).map(drop)
}

/// Whether the table printed by `-filters` or `-encoders` has `name` in its second column.
fn lists(table: &str, name: &str) -> bool {
    table.lines().any(|line| line.split_whitespace().nth(1) == Some(name))
}

fn locate(
    program: &str,
    variable: &str,
    named: Option<&OsStr>,
    folder: Option<&Path>,
    search: &OsStr,
) -> Result<PathBuf> {
    if let Some(named) = named.filter(|n| !n.is_empty()) {
        let path = std::path::absolute(named).unwrap_or_else(|_| PathBuf::from(named));
        return match path.is_file() {
            true => Ok(path),
            false => Err(Error::new(
                ErrorKind::FfmpegMissing,
                format!("{variable} names {}, which is not a file", path.display()),
            )
            .hint(format!("set {variable} to the {program} program, or unset it to look in PATH"))),
        };
    }
    let file = format!("{program}{}", std::env::consts::EXE_SUFFIX);
    folder
        .map(Path::to_path_buf)
        .into_iter()
        // A relative entry would run whatever program lies in the current folder.
        .chain(std::env::split_paths(search).filter(|entry| entry.is_absolute()))
        .map(|entry| entry.join(&file))
        .find(|path| path.is_file())
        .ok_or_else(|| {
            Error::new(ErrorKind::FfmpegMissing, format!("the program {program} was not found in PATH"))
                .hint(format!("install it with `{}`, or set {variable} to it", install_command()))
        })
}

/// The one command that installs ffmpeg on this kind of system.
fn install_command() -> &'static str {
    if cfg!(target_os = "macos") {
        return "brew install ffmpeg";
    }
    if cfg!(target_os = "windows") {
        return "winget install Gyan.FFmpeg";
    }
    let exists = |path: &str| Path::new(path).exists();
    if exists("/usr/bin/dnf") {
        "sudo dnf install ffmpeg-free"
    } else if exists("/usr/bin/pacman") {
        "sudo pacman -S ffmpeg"
    } else if exists("/sbin/apk") {
        "apk add ffmpeg"
    } else {
        "sudo apt-get install -y ffmpeg"
    }
}

fn check_version(program: &Path) -> Result<Version> {
    let text = ask(program, &["-version"])?;
    let banner = text.lines().next().unwrap_or_default();
    let version = parse_version(banner).ok_or_else(|| {
        Error::new(
            ErrorKind::FfmpegMissing,
            format!("{} does not look like ffmpeg: it says {banner:?}", program.display()),
        )
        .hint(format!("install ffmpeg {} or newer with `{}`", OLDEST.major, install_command()))
    })?;
    if version < OLDEST {
        let Version { major, minor } = version;
        return Err(Error::new(
            ErrorKind::FfmpegMissing,
            format!("{} is version {major}.{minor}; {} or newer is needed", program.display(), OLDEST.major),
        )
        .hint(format!("update it with `{}`", install_command())));
    }
    Ok(version)
}

/// Reads `ffmpeg version 5.1.9-0+deb12u1 ...`; also `n7.1` and the development branch's `N-118000-g...` and dates.
fn parse_version(banner: &str) -> Option<Version> {
    let mut words = banner.split_whitespace();
    if !words.next()?.starts_with("ff") || words.next()? != "version" {
        return None;
    }
    let word = words.next()?;
    if word.starts_with("N-") || word.starts_with("git-") {
        return Some(Version { major: u32::MAX, minor: 0 });
    }
    let mut numbers = word.trim_start_matches(['n', 'v']).split(|c: char| !c.is_ascii_digit());
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next().and_then(|n| n.parse().ok()).unwrap_or(0);
    Some(Version { major, minor })
}

/// Whether the system would start another program to run this one.
fn is_script(program: &Path) -> bool {
    let mut start = [0; 2];
    File::open(program).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *b"#!"
}

/// What `program` prints for `arguments`.
fn ask(program: &Path, arguments: &[&str]) -> Result<String> {
    let fails = |why: String| {
        let hint = if is_script(program) {
            "it is a script, which may start no other program here: name the program itself".to_owned()
        } else {
            format!("install ffmpeg again with `{}`", install_command())
        };
        Error::new(ErrorKind::FfmpegMissing, format!("{} does not run: {why}", program.display())).hint(hint)
    };
    let mut command = Command::new(program);
    command.args(arguments);
    let process =
        Process::spawn(&mut command, &Limits::default()).map_err(|e| fails(e.message().to_owned()))?;
    // Uncancellable on purpose: it takes milliseconds, and what it finds is for the whole process.
    let output = process::run(process, 1 << 20, Duration::from_secs(20), &Control::new())
        .map_err(|e| fails(e.message().to_owned()))?;
    if !output.status.success() {
        return Err(fails(format!("{}: {}", output.status, output.log.summary())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_distributions_write_them() {
        let version = |major, minor| Some(Version { major, minor });
        assert_eq!(parse_version("ffmpeg version 5.1.9-0+deb12u1 Copyright (c) 2000"), version(5, 1));
        assert_eq!(parse_version("ffprobe version n7.1 Copyright"), version(7, 1));
        assert_eq!(parse_version("ffmpeg version 4.4.2-0ubuntu0.22.04.1 Copyright"), version(4, 4));
        assert_eq!(parse_version("ffmpeg version 9.0 Copyright"), version(9, 0));
        assert!(parse_version("ffmpeg version N-118000-g1234abc Copyright").unwrap() > OLDEST);
        assert!(parse_version("ffmpeg version 2024-05-02-git-71669f2ad5 gyan.dev").unwrap() > OLDEST);
        assert_eq!(parse_version("avconv 12"), None);
        assert_eq!(parse_version(""), None);
    }

    #[test]
    fn a_missing_program_is_reported_with_the_command_that_installs_it() {
        let error = locate("ffmpeg", "RECONSTRUCT_FFMPEG", None, None, OsStr::new("relative:")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FfmpegMissing);
        assert!(error.hint_text().unwrap().contains(install_command()), "{error}");
        let named = OsStr::new("/nowhere/ffmpeg");
        let error = locate("ffmpeg", "RECONSTRUCT_FFMPEG", Some(named), None, OsStr::new("")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FfmpegMissing);
        assert!(error.message().contains("nowhere"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_program_that_is_not_ffmpeg_is_refused() {
        let error = check_version(Path::new("/bin/echo")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FfmpegMissing);
        assert!(error.message().contains("does not look like ffmpeg"), "{error}");
    }

    #[test]
    fn a_script_is_told_from_a_program() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("ffmpeg");
        std::fs::write(&script, "#!/bin/sh\nexit 1\n").unwrap();
        assert!(is_script(&script) && !is_script(&std::env::current_exe().unwrap()));
        assert!(!is_script(&folder.path().join("none")));
    }

    #[test]
    fn names_in_a_table_are_whole_words() {
        let table = " ... zscale   V->V  Apply resizing\n TS. scale  V->V Scale\n";
        assert!(lists(table, "zscale") && lists(table, "scale") && !lists(table, "cale"));
    }
}
