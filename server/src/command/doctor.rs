//! `reconstruct doctor`: what is wrong with a service and its machine.

use std::process::ExitCode;

use clap::Args;
use libreconstruct::Result;
use libreconstruct::service::{Diagnosis, Finding, Repaired, Service, Severity};
use serde_json::json;
use toml::Table;

use super::data::{DataArguments, no_folder};
use crate::context::{Global, print_result};

/// Say what is wrong with a service and its machine
///
/// Looks at the database, the stored files, the rights of the folder, leftovers of programs that were killed, free space, ffmpeg
/// and its containment, the device, and says for each finding what to do. Changes nothing, may run beside servers and workers,
/// and looks also at folders that cannot be opened. Notes are good to know; problems make the exit status 1.
///
/// --repair sees to what can be mended safely, says what it did, and looks again. It takes back what rows say about files that
/// are lost: a finished job without its scene goes to the queue if its video is still there, and otherwise fails with the code
/// files_lost. It removes nothing that may be somebody's: files that no row names are moved to set-aside/ in the folder.
///
/// Of a service that many machines share it knows nothing: addresses of rows and files are refused.
#[derive(Args)]
#[command(after_help = "\
Examples:
  reconstruct doctor --data /srv/scenes
  reconstruct doctor --data /srv/scenes --repair
  reconstruct doctor --data /srv/scenes --json

Exit status: 0 no problems, 1 problems were found and are still there, others as for every command.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: DataArguments,
    /// Mend what can be mended safely
    #[arg(long)]
    repair: bool,
}

impl Arguments {
    pub(crate) fn run(&self, global: Global) -> Result<ExitCode> {
        let config = self.data.config(Table::new())?;
        if config.database.is_some() || config.storage.is_some() {
            return Err(no_folder(
                "doctor looks at a service in a folder",
                "leave them out (also as LIBRECONSTRUCT_DATABASE, LIBRECONSTRUCT_STORAGE and in the configuration file) and \
                 name the folder by --data",
            ));
        }
        let options = config.service_options();
        let mut diagnosis = Service::diagnose(&config.data, &options)?;
        let mut repaired = vec![];
        if self.repair && diagnosis.findings.iter().any(|finding| finding.repairable) {
            repaired = Service::repair(&config.data, &options, &diagnosis)?;
            diagnosis = Service::diagnose(&config.data, &options)?;
        }
        let diagnosis = diagnosis.and(Service::diagnose_machine(&options));
        let problems = diagnosis.problems();
        let value = json!({ "problems": problems, "findings": diagnosis.findings, "repaired": repaired });
        print_result(global, &value, &told(&diagnosis, &repaired));
        Ok(if problems == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

/// All of it, for people.
fn told(diagnosis: &Diagnosis, repaired: &[Repaired]) -> String {
    let mut lines: Vec<String> = repaired
        .iter()
        .map(|r| format!("{} {}: {}", if r.done { "repaired" } else { "not repaired" }, r.code, r.message))
        .collect();
    lines.extend(diagnosis.findings.iter().map(one));
    let problems = diagnosis.problems();
    lines.push(match problems {
        0 => "no problems were found".to_owned(),
        1 => "1 problem was found".to_owned(),
        _ => format!("{problems} problems were found"),
    });
    if diagnosis.findings.iter().any(|f| f.severity == Severity::Problem && f.repairable) {
        lines.push("--repair can see to some of them".to_owned());
    }
    lines.join("\n")
}

fn one(finding: &Finding) -> String {
    let kind = match finding.severity {
        Severity::Problem => "problem",
        Severity::Note => "note",
    };
    let advice = match finding.advice.as_str() {
        "" => String::new(),
        advice => format!("\n  do: {advice}"),
    };
    format!("{kind} {}: {}{advice}", finding.code, finding.message)
}
