//! Which protections hold around ffmpeg on this host, in words for a log and for those who run a service.

use serde::Serialize;

/// One of the protections around the processes that read strangers' videos.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Protection {
    /// A short name: `limits`, `files`, `system_calls` or `network`.
    pub name: &'static str,
    /// Whether it holds on this host.
    pub holds: bool,
    /// What it keeps from happening, or why it does not hold here.
    pub detail: String,
}

/// The protections around ffmpeg and ffprobe, each with whether it holds on this host. A child process is never started
/// without one that is said to hold. The first call takes some milliseconds.
///
/// ```
/// for protection in libreconstruct::video::containment() {
///     println!("{}: {} ({})", protection.name, protection.holds, protection.detail);
/// }
/// ```
pub fn containment() -> Vec<Protection> {
    let protection = |name, what: Result<String, String>| {
        let holds = what.is_ok();
        Protection { name, holds, detail: what.unwrap_or_else(|why| why) }
    };
    vec![
        protection("limits", limits()),
        protection("files", files()),
        protection("system_calls", system_calls()),
        protection("network", network()),
    ]
}

#[cfg(any(target_os = "linux", not(unix)))]
fn limits() -> Result<String, String> {
    match cfg!(target_os = "linux") {
        true => Ok("memory, processor time, open files and file sizes are limited".to_owned()),
        false => Err("this system has no limits for a process".to_owned()),
    }
}

#[cfg(all(unix, not(target_os = "linux")))]
fn limits() -> Result<String, String> {
    Ok("processor time, open files and file sizes are limited; memory is not".to_owned())
}

#[cfg(target_os = "linux")]
use linux::{files, network, system_calls};

#[cfg(target_os = "linux")]
mod linux {
    use super::super::sandbox::Host;

    pub(super) fn files() -> Result<String, String> {
        let version = Host::get().landlock.clone()?;
        Ok(format!("only the video, the output file and system libraries can be opened (Landlock {version})"))
    }

    pub(super) fn system_calls() -> Result<String, String> {
        Host::get().seccomp.clone()?;
        Ok("sockets, further processes, signals to others and tracing are refused (seccomp)".to_owned())
    }

    pub(super) fn network() -> Result<String, String> {
        Host::get().network.clone()?;
        Ok("there is no network (a network namespace of its own)".to_owned())
    }
}

#[cfg(not(target_os = "linux"))]
fn files() -> Result<String, String> {
    Err("Landlock is a part of Linux".to_owned())
}

#[cfg(not(target_os = "linux"))]
fn system_calls() -> Result<String, String> {
    Err("seccomp is a part of Linux".to_owned())
}

#[cfg(not(target_os = "linux"))]
fn network() -> Result<String, String> {
    Err("network namespaces are a part of Linux".to_owned())
}
