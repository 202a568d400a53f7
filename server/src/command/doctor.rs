//! `reconstruct doctor`: what is wrong with a service and its machine.

use std::process::ExitCode;

use clap::Args;
use libreconstruct::Result;
use libreconstruct::service::{Diagnosis, Finding, Repaired, Service, Severity};
use serde_json::json;
use toml::Table;

use super::data::DataArguments;
use crate::context::{Global, print_result};
use crate::http::log;
use crate::telemetry;

/// Say what is wrong with a service and its machine
///
/// Looks at the database, the stored files, the rights of the folder, leftovers of programs that were killed, free space, ffmpeg
/// and its containment, the device, and says for each finding what to do. Changes nothing, may run beside servers and workers,
/// and looks also at folders that cannot be opened. Notes are good to know; problems make the exit status 1.
///
/// --repair sees to what can be mended safely, says what it did, and looks again. It takes back what rows say about files that
/// are lost: a finished job without its scene goes to the queue if its video is still there, and otherwise fails with the code
/// files_lost; each such job is a line in the log, on standard error. It removes nothing that may be somebody's: files that no
/// row names are moved to set-aside/ in the folder.
///
/// With --database and --storage it looks at a service that many machines share: whether both can be reached from here, how
/// PostgreSQL is set up (commits that a power cut takes back, a stand-by, connections, clocks), the form of its tables, and every
/// file against its row. There --repair takes back what rows say about files that are lost, and moves nothing that no row names:
/// it may be another service's.
#[derive(Args)]
#[command(after_help = "\
Examples:
  reconstruct doctor --data /srv/scenes
  reconstruct doctor --data /srv/scenes --repair
  reconstruct doctor --data /srv/scenes --json
  LIBRECONSTRUCT_DATABASE=postgres://reconstruct:…@db/reconstruct reconstruct doctor --storage s3://scenes

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
        let options = config.service_options();
        let addresses = config.addresses();
        let mut diagnosis = Service::diagnose_shared(&config.data, &addresses, &options)?;
        let mut repaired = vec![];
        if self.repair && diagnosis.findings.iter().any(|finding| finding.repairable) {
            // Jobs change by it, and the log is the story of each.
            log::start(&config.log, config.log_format)?;
            telemetry::start(&config)?;
            repaired = Service::repair_shared(&config.data, &addresses, &options, &diagnosis)?;
            diagnosis = Service::diagnose_shared(&config.data, &addresses, &options)?;
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
