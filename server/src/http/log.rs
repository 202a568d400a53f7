//! Logs on standard error: lines of JSON for machines, or text for people. Never keys, signatures or titles.

use std::io::IsTerminal;
use std::str::FromStr;

use libreconstruct::{Error, Result};
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

/// How log lines look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// Text on a terminal, else JSON.
    #[default]
    Auto,
    /// One JSON object a line.
    Json,
    /// Text.
    Text,
}

/// Starts the log; `filter` is a level, or levels by target as in `info,access=debug`.
pub(crate) fn start(filter: &str, format: LogFormat) -> Result<()> {
    let targets = Targets::from_str(filter).map_err(|e| {
        Error::argument(format!("log is {filter:?}: {e}"))
            .hint("use off, error, warn, info, debug or trace, or levels by target as in info,access=debug")
    })?;
    let json = match format {
        LogFormat::Auto => !std::io::stderr().is_terminal(),
        LogFormat::Json => true,
        LogFormat::Text => false,
    };
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = if json {
        lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
    } else {
        lines.with_ansi(std::io::stderr().is_terminal()).boxed()
    };
    // A second start in one process (tests) keeps the first.
    let _ = registry().with(lines.with_filter(targets)).try_init();
    Ok(())
}

/// Says which protections hold around `ffmpeg` in this process.
pub(crate) fn tell_containment() {
    for protection in libreconstruct::video::containment() {
        let (name, detail) = (protection.name, protection.detail);
        match protection.holds {
            true => tracing::info!(name, detail, "around ffmpeg"),
            false => tracing::warn!(name, detail, "around ffmpeg this does not hold"),
        }
    }
}
