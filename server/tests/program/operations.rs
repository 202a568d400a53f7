//! What an operator does with a service: backups, restorations, repairs.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use libreconstruct::job::{ArtifactKind, CameraData};
use libreconstruct::pipeline::ReconstructionOptions;
use libreconstruct::service::{Outcome, Runner, Service, ServiceOptions, WorkerEnd, WorkerOptions};
use libreconstruct::{CancelToken, Control, Result};
use serde_json::{Value, json};

use crate::common::server::{Server, start, start_in};
use crate::common::{assert_success, reconstruct, stderr};

const OPERATIONS: &str = include_str!("../../../docs/operations.md");

/// An mp4 of one second.
fn video() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mp4");
    let input = ["-f", "lavfi", "-i", "testsrc2=size=64x64:rate=4:duration=1"];
    assert!(Command::new("ffmpeg").args(["-v", "error"]).args(input).arg(&path).status().unwrap().success());
    fs::read(path).unwrap()
}

/// Makes scenes of a few bytes.
struct SmallScenes;

impl Runner for SmallScenes {
    fn run(&self, _: &Path, work: &Path, _: &ReconstructionOptions, _: &Control) -> Result<Outcome> {
        fs::create_dir_all(work).unwrap();
        let file = |kind: ArtifactKind| {
            let path = work.join(kind.extension());
            fs::write(&path, kind.extension()).unwrap();
            (kind, path)
        };
        let files = [ArtifactKind::Ply, ArtifactKind::Spz, ArtifactKind::Preview].map(file).to_vec();
        Ok(Outcome { files, camera: CameraData::default(), warnings: vec![] })
    }
}

/// Lets a worker of this process see to all jobs that wait in the folder.
fn work(data: &Path) {
    let service =
        Service::open(data, ServiceOptions { min_free_bytes: 0, ..ServiceOptions::default() }).unwrap();
    let end = WorkerEnd::Idle(std::time::Duration::ZERO);
    let options = WorkerOptions { threads: 1, niceness: 0, end, ..WorkerOptions::default() };
    service.run_worker_with(&options, &CancelToken::new(), &SmallScenes).unwrap();
}

fn data(server: &Server) -> PathBuf {
    server.folder.path().join("data")
}

fn run(data: &Path, arguments: &[&str]) -> Output {
    reconstruct().args(arguments).arg("--data").arg(data).output().unwrap()
}

fn json_of(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap()).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn codes(diagnosis: &Value) -> Vec<&str> {
    let findings = diagnosis["findings"].as_array().unwrap();
    let problems = findings.iter().filter(|finding| finding["severity"] == "problem");
    problems.map(|finding| finding["code"].as_str().unwrap()).collect()
}

#[test]
fn a_worker_says_what_holds_around_ffmpeg() {
    let folder = tempfile::tempdir().unwrap();
    let worker = run(folder.path(), &["worker", "--device", "cpu", "--exit-when-idle", "0"]);
    let log = stderr(&worker);
    let told = log.lines().filter(|line| line.contains("around ffmpeg"));
    assert_eq!(told.count(), libreconstruct::video::containment().len(), "{log}");
}

#[test]
fn a_backup_of_a_running_server_is_served_again() {
    let server = start(&[]);
    let (done, deleted) = (server.submit(&video(), json!({})), server.submit(&video(), json!({})));
    work(&data(&server));
    let waiting = server.submit(&video(), json!({}));
    let place = tempfile::tempdir().unwrap();
    let to = place.path().join("backup");
    let output = run(&data(&server), &["backup", "--json", "--to", to.to_str().unwrap()]);
    assert_success(&output);
    let told = json_of(&output);
    assert_eq!((&told["jobs"], &told["users"], &told["lost"]), (&json!(3), &json!(1), &json!([])));
    // What is deleted later is still in it.
    assert_eq!(server.request("DELETE", &format!("/api/v1/jobs/{deleted}/"), None).status, 204);

    let folder = tempfile::tempdir().unwrap();
    let output = run(&folder.path().join("data"), &["restore", to.to_str().unwrap()]);
    assert_success(&output);
    assert!(String::from_utf8_lossy(&output.stdout).contains("3 jobs"), "{output:?}");
    let again = start_in(folder, &[]);
    let status = |id: &str| {
        let answer = again.with_key(&server.key, "GET", &format!("/api/v1/jobs/{id}/"), None);
        answer.json()["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        [&done, &deleted, &waiting].map(|id| status(id)),
        ["Finished", "Finished", "Queued - position: 1"]
    );
    let ply = again.with_key(&server.key, "GET", &format!("/api/v1/jobs/{deleted}/download/ply/"), None);
    let file = again.anonymous("GET", &again.path_of(ply.header("location").unwrap()), &[], b"");
    assert_eq!((file.status, file.body.as_slice()), (200, &b"ply"[..]));
    let sound = run(&data(&again), &["doctor", "--json"]);
    assert_eq!(codes(&json_of(&sound)), [] as [&str; 0], "{sound:?}");
    assert_success(&sound);
}

#[test]
fn the_doctor_finds_what_is_lost_and_takes_it_back() {
    let server = start(&[]);
    let done = server.submit(&video(), json!({}));
    work(&data(&server));
    let waiting = server.submit(&video(), json!({}));
    let output = run(&data(&server), &["doctor"]);
    assert_success(&output);
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("no problems were found\n"), "{output:?}");
    fs::remove_file(data(&server).join(format!("scenes/{done}/1.spz"))).unwrap();
    let newest = fs::read_dir(data(&server).join("videos")).unwrap().map(|e| e.unwrap().path());
    let newest = newest.max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap()).unwrap();
    fs::remove_file(&newest).unwrap();

    let output = run(&data(&server), &["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let mut found = json_of(&output);
    let mut problems = codes(&found);
    problems.sort_unstable();
    assert_eq!(problems, ["scene_lost", "video_lost"]);
    assert_eq!(found["problems"].take(), 2);
    let text = String::from_utf8(run(&data(&server), &["doctor"]).stdout).unwrap();
    for words in
        [done.as_str(), "problem scene_lost: ", "  do: copy the file from a backup", "2 problems were found"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    // A look has changed nothing.
    assert_eq!(server.get(&format!("/api/v1/jobs/{done}/")).json()["status"], "Finished");

    let output = run(&data(&server), &["doctor", "--repair", "--json"]);
    assert_success(&output);
    let repaired = json_of(&output)["repaired"].as_array().unwrap().len();
    assert_eq!(repaired, 2, "{output:?}");
    let log: Vec<Value> =
        stderr(&output).lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    for (job, event) in [(&done, "given_back"), (&waiting, "failed")] {
        let is_it = |line: &&Value| line["target"] == "job" && line["job"] == job.as_str();
        let told: Vec<_> = log.iter().filter(is_it).map(|line| (&line["event"], &line["detail"])).collect();
        assert_eq!(told, [(&json!(event), &json!("files_lost"))], "{output:?}");
    }
    assert_eq!(server.get(&format!("/api/v1/jobs/{done}/")).json()["status"], "Queued - position: 1");
    let failed = server.operate(&["jobs", "show", &waiting]);
    assert_eq!((&failed["status"], &failed["failure"]["code"]), (&json!("Failed"), &json!("files_lost")));
}

#[test]
fn wrong_names_and_full_folders_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let expect = |output: Output, code: i32, words: &str| {
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(stderr(&output).contains(words), "{words}: {}", stderr(&output));
    };
    let to = at("backup");
    expect(run(&at("typo"), &["backup", "--to", to.to_str().unwrap()]), 3, "there is no service in");
    expect(run(&at("typo"), &["doctor"]), 3, "typo");
    for action in [&["keys", "--data", "typo", "list", "alice"][..], &["jobs", "--data", "typo", "list"]] {
        let output = reconstruct().args(action).current_dir(place.path()).output().unwrap();
        expect(output, 3, "there is no service in typo");
    }
    expect(run(&at("new"), &["restore", to.to_str().unwrap()]), 3, "no complete backup");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "nothing is made");
    let add = ["users", "--data", "data", "add", "alice"];
    assert_success(&reconstruct().args(add).current_dir(place.path()).output().unwrap());
    assert_success(&run(&at("data"), &["backup", "--to", to.to_str().unwrap()]));
    expect(run(&at("data"), &["backup", "--to", to.to_str().unwrap()]), 2, "is there already");
    expect(run(&at("data"), &["restore", to.to_str().unwrap()]), 2, "is not empty");
    expect(
        run(&at("data"), &["backup", "--to", at("data/in").to_str().unwrap()]),
        2,
        "folder of the service",
    );
}

/// Commands on a folder do not leave aside what they were told of a service that many machines share, nor show its password.
#[test]
fn addresses_are_refused_where_they_would_be_ignored() {
    let place = tempfile::tempdir().unwrap();
    let (data, backup) = (place.path().join("data"), place.path().join("backup"));
    let add = ["users", "--data", "data", "add", "alice"];
    assert_success(&reconstruct().args(add).current_dir(place.path()).output().unwrap());
    assert_success(&run(&data, &["backup", "--to", backup.to_str().unwrap()]));
    let database = "postgres://anna:secret@db.example/reconstruct";
    let refused = |output: Output, hint: &str| {
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("address") && said.contains(hint), "{said}");
        assert!(!said.contains("secret"), "{said}");
    };
    let new = place.path().join("new");
    let restore = ["restore", backup.to_str().unwrap()];
    for given in [["--database", database], ["--storage", "file:///mnt/scenes"]] {
        for doctor in [&["doctor"][..], &["doctor", "--repair"]] {
            refused(run(&data, &[doctor, &given[..]].concat()), "and none of the");
        }
        refused(run(&new, &[&restore[..], &given[..]].concat()), "migrate");
        assert!(!new.exists());
    }
    let with = |folder: &Path, arguments: &[&str]| {
        let mut command = reconstruct();
        command.args(arguments).arg("--data").arg(folder).env("LIBRECONSTRUCT_DATABASE", database);
        command.output().unwrap()
    };
    refused(with(&data, &["doctor", "--repair"]), "and none of the");
    // On a machine that is set up for many, a backup becomes a folder all the same.
    assert_success(&with(&new, &restore));
}

/// The script of the nightly backup, as it stands.
#[test]
fn nightly_backups_are_linked_and_the_oldest_go() {
    let place = tempfile::tempdir().unwrap();
    let (folder, backups) = (place.path().join("data"), place.path().join("backups"));
    fs::create_dir(&backups).unwrap();
    let service =
        Service::open(&folder, ServiceOptions { min_free_bytes: 0, ..ServiceOptions::default() }).unwrap();
    let alice = service.add_user("alice", libreconstruct::job::Tier::Free).unwrap().user_id;
    fs::write(place.path().join("a.mp4"), video()).unwrap();
    service.import_video(alice, &place.path().join("a.mp4")).unwrap();
    drop(service);
    // Not one of the script's: it stays.
    fs::create_dir(backups.join("2020-by-hand")).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_reconstruct")).parent().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/systemd/nightly-backup");
    for night in 0..3 {
        let output = Command::new(&script)
            .arg(&backups)
            .arg("2")
            .env("PATH", format!("{}:{}", program.display(), std::env::var("PATH").unwrap()))
            .env("LIBRECONSTRUCT_DATA", &folder)
            .output()
            .unwrap();
        assert_success(&output);
        // The script names them by the second.
        if night < 2 {
            std::thread::sleep(std::time::Duration::from_millis(1100));
        }
    }
    let mut names: Vec<PathBuf> = fs::read_dir(&backups).unwrap().map(|e| e.unwrap().path()).collect();
    names.sort();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names[0].ends_with("2020-by-hand"));
    for backup in &names[1..] {
        let video = fs::read_dir(backup.join("videos")).unwrap().next().unwrap().unwrap().path();
        // The service's own and two backups.
        assert_eq!(fs::metadata(video).unwrap().nlink(), 3);
    }
}

/// Older ones may have what it lacks.
#[test]
fn a_backup_without_files_that_are_lost_ends_with_an_error_and_lets_none_go() {
    let place = tempfile::tempdir().unwrap();
    let (folder, backups) = (place.path().join("data"), place.path().join("backups"));
    let service =
        Service::open(&folder, ServiceOptions { min_free_bytes: 0, ..ServiceOptions::default() }).unwrap();
    let alice = service.add_user("alice", libreconstruct::job::Tier::Free).unwrap().user_id;
    fs::write(place.path().join("a.mp4"), "a video").unwrap();
    for _ in 0..2 {
        service.import_video(alice, &place.path().join("a.mp4")).unwrap();
    }
    drop(service);
    let mut videos = fs::read_dir(folder.join("videos")).unwrap().map(|entry| entry.unwrap().path());
    fs::remove_file(videos.next().unwrap()).unwrap();
    let to = place.path().join("backup");
    let output = run(&folder, &["backup", "--json", "--to", to.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(json_of(&output)["lost"].as_array().unwrap().len(), 1, "{output:?}");
    assert!(to.join("backup.json").is_file());

    let oldest = backups.join("2020-01-01T000000");
    fs::create_dir_all(&oldest).unwrap();
    fs::copy(to.join("backup.json"), oldest.join("backup.json")).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_reconstruct")).parent().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/systemd/nightly-backup");
    let output = Command::new(&script)
        .arg(&backups)
        .arg("1")
        .env("PATH", format!("{}:{}", program.display(), std::env::var("PATH").unwrap()))
        .env("LIBRECONSTRUCT_DATA", &folder)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(fs::read_dir(&backups).unwrap().count(), 2);
    assert!(oldest.is_dir());

    fs::remove_file(videos.next().unwrap()).unwrap();
    let none = place.path().join("none");
    let output = run(&folder, &["backup", "--to", none.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    assert!(stderr(&output).contains("none of the 2 files") && !none.exists(), "{output:?}");
}

/// The commands of docs/operations.md, in their order.
#[test]
fn the_commands_of_the_manual_run() {
    let place = tempfile::tempdir().unwrap();
    for folder in ["backups", "srv"] {
        fs::create_dir(place.path().join(folder)).unwrap();
    }
    let blocks: Vec<&str> =
        OPERATIONS.split("```console\n").skip(1).filter_map(|b| b.split("```").next()).collect();
    let commands: Vec<&str> = blocks
        .iter()
        .flat_map(|b| b.lines())
        .filter_map(|line| line.strip_prefix("$ reconstruct "))
        .collect();
    assert!(commands.len() >= 6, "{commands:?}");
    for command in commands {
        // The folders of the manual, in the folder of the test.
        let here = |word: &str| match word.strip_prefix('/') {
            Some(path) => place.path().join(path).display().to_string(),
            None => word.to_owned(),
        };
        let output = reconstruct()
            .args(command.split_whitespace().map(here))
            .current_dir(place.path())
            .output()
            .unwrap();
        println!("$ reconstruct {command}\n{}", String::from_utf8_lossy(&output.stdout));
        assert_success(&output);
    }
}

/// The words in the first column of the manual's tables, as they stand between backquotes there.
fn first_column(of: &str) -> Vec<&'static str> {
    let section = OPERATIONS.split(of).nth(1).unwrap_or_else(|| panic!("{of}"));
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.flat_map(|row| row.split(" | ").next().unwrap().split('`').step_by(2))
        .filter(|word| !word.trim().is_empty())
        .collect()
}

#[test]
fn the_manual_lists_every_code_of_a_failed_job() {
    use libreconstruct::ErrorKind;
    // What only a request can meet.
    let requests = [
        ErrorKind::Unauthenticated,
        ErrorKind::PermissionDenied,
        ErrorKind::Conflict,
        ErrorKind::IdempotencyMismatch,
        ErrorKind::TooManyRequests,
        ErrorKind::TooLarge,
    ];
    let mut codes: Vec<&str> =
        ErrorKind::ALL.iter().filter(|kind| !requests.contains(kind)).map(|kind| kind.slug()).collect();
    codes.extend(["crashed", "files_lost"]);
    codes.sort_unstable();
    let mut listed: Vec<&str> = first_column("\n## Why a job failed\n");
    listed.retain(|word| *word != ", ");
    listed.sort_unstable();
    assert_eq!(listed, codes);
}

#[test]
fn the_manual_lists_every_metric_and_every_alarm() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let names = |text: &str| -> std::collections::BTreeSet<String> {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = text.split(|c| !word(c)).filter(|w| w.starts_with("reconstruct_"));
        words.map(str::to_owned).collect()
    };
    let listed = names(&first_column("\n## Metrics and alarms\n").join(" "));
    let server = start(&[("LIBRECONSTRUCT_LOG", "off")]);
    // Counters appear with what they count.
    for _ in 0..2 {
        server.get("/api/v1/jobs/");
    }
    let shown = String::from_utf8(server.get("/metrics").body).unwrap();
    // Not those of what has not happened here: refusals, jobs.
    let made = [
        "http/metrics.rs",
        "http/listener.rs",
        "telemetry/jobs.rs",
        "telemetry/traces.rs",
        "command/serve/courier.rs",
    ]
    .map(|file| fs::read_to_string(root.join("server/src").join(file)).unwrap())
    .concat();
    for metric in &listed {
        let is_shown = shown.lines().any(|line| line.starts_with(metric.as_str()));
        assert!(is_shown || made.contains(&format!("!(\"{metric}\"")), "{metric}: {shown}");
    }
    let suffixes = ["_bucket", "_sum", "_count"];
    for metric in names(&shown.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")) {
        let base = suffixes.iter().find_map(|suffix| metric.strip_suffix(suffix)).unwrap_or(&metric);
        assert!(listed.contains(base), "{metric} is not in docs/operations.md");
    }
    let alerts = fs::read_to_string(root.join("packaging/prometheus/alerts.yml")).unwrap();
    let expressions: String =
        alerts.split("expr:").skip(1).map(|rest| rest.split("labels:").next().unwrap()).collect();
    for metric in names(&expressions) {
        assert!(listed.contains(&metric), "there is no metric {metric}");
    }
    let alarms: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let told: Vec<&str> = first_column("\n## Metrics and alarms\n")
        .into_iter()
        .filter(|w| w.starts_with("Reconstruct"))
        .collect();
    assert_eq!(told, alarms);
}
