//! What the commands are given, and how they say their results.

use clap::Args;
use libreconstruct::Control;

use crate::ui;

/// What every command takes.
#[derive(Args, Clone, Copy)]
pub(crate) struct Global {
    /// Print one JSON object per line on standard output: progress, warnings, at last the result
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print only warnings, errors and the result
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Number of threads (default: all cores); results do not depend on it
    #[arg(long, global = true, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
}

/// What a command of the pipeline is given.
pub(crate) struct Context<'a> {
    pub(crate) global: Global,
    pub(crate) control: &'a Control,
}

impl Context<'_> {
    /// Prints a result: the value for machines, the text for people.
    pub(crate) fn result(&self, value: &impl serde::Serialize, text: &str) {
        print_result(self.global, value, text);
    }
}

/// Prints a result: the value for machines, the text for people.
pub(crate) fn print_result(global: Global, value: &impl serde::Serialize, text: &str) {
    if global.json {
        ui::print_json(value);
    } else {
        ui::say(text);
    }
}
