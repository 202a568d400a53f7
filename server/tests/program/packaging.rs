//! The unit files and the container file name things of the program and of this repository: they must be there.
#![cfg(unix)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{assert_success, reconstruct};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

const UNITS: [&str; 3] = ["reconstruct.service", "reconstruct-worker@.service", "reconstruct-backup.service"];

/// The values of a setting of a unit, in their order.
fn values<'a>(unit: &'a str, name: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect()
}

/// The names of all settings as environment variables, by what the program prints.
fn variables() -> BTreeSet<String> {
    let output = reconstruct().args(["serve", "--print-config"]).output().unwrap();
    assert_success(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    let (mut section, mut names) = (String::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = format!("{name}_");
        } else if let Some((name, _)) = line.trim_start_matches("# ").split_once(" =")
            && !name.contains(' ')
        {
            names.insert(format!("LIBRECONSTRUCT_{}", format!("{section}{name}").to_uppercase()));
        }
    }
    assert!(names.len() > 30 && names.contains("LIBRECONSTRUCT_LIMITS_MAX_STORED_BYTES"), "{names:?}");
    names
}

#[test]
fn the_units_start_the_program_as_it_is() {
    let known = variables();
    let installed = "/usr/local/bin/reconstruct ";
    for name in UNITS {
        let unit = read(&format!("packaging/systemd/{name}"));
        for variable in values(&unit, "Environment").iter().flat_map(|line| line.split_whitespace()) {
            let variable = variable.split('=').next().unwrap();
            let others = ["XDG_CACHE_HOME", "PATH"];
            assert!(
                known.contains(variable) || others.contains(&variable),
                "{name}: {variable} is no setting"
            );
        }
        let [command] = values(&unit, "ExecStart")[..] else { panic!("{name} starts one program") };
        let Some(arguments) = command.strip_prefix(installed) else {
            let script =
                command.strip_prefix("/usr/local/lib/reconstruct/").unwrap_or_else(|| panic!("{command}"));
            assert!(root().join("packaging/systemd").join(script).is_file(), "{name}: {script}");
            continue;
        };
        // The example of a configuration stands in for the one in /etc; `--help` reads all options, and does nothing.
        let config = root().join("packaging/serve.toml");
        let arguments = arguments.replace("/etc/reconstruct/serve.toml", config.to_str().unwrap());
        let output = reconstruct().args(arguments.split_whitespace()).arg("--help").output().unwrap();
        assert_success(&output);
    }
}

#[test]
fn the_server_runs_as_its_unit_says() {
    let unit = read("packaging/systemd/reconstruct.service");
    let mut program = reconstruct();
    for setting in values(&unit, "Environment").iter().flat_map(|line| line.split_whitespace()) {
        let (name, value) = setting.split_once('=').unwrap();
        program.env(name, value);
    }
    let config = root().join("packaging/serve.toml");
    let output = program.args(["serve", "--print-config", "--config"]).arg(config).output().unwrap();
    assert_success(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    for line in ["data = \"/var/lib/reconstruct\"", "workers = 0", "max_stored_bytes = 200000000000"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // That folder is the one that the units may write.
    for name in UNITS {
        let unit = read(&format!("packaging/systemd/{name}"));
        if name == "reconstruct-backup.service" {
            // A folder of its own would be another mount than that of the backups, and files are not linked between mounts.
            assert!(values(&unit, "StateDirectory").is_empty(), "{name}");
            assert_eq!(values(&unit, "ReadWritePaths"), ["/var"], "{name}");
        } else {
            assert_eq!(values(&unit, "StateDirectory"), ["reconstruct"], "{name}");
        }
        assert_eq!(values(&unit, "User"), ["reconstruct"], "{name}");
        assert!(values(&unit, "RequiresMountsFor")[0].starts_with("/var/lib/reconstruct"), "{name}");
    }
    assert!(read("packaging/systemd/reconstruct.sysusers").contains("\nu reconstruct - "));
    assert!(
        read("packaging/systemd/reconstruct.tmpfiles")
            .contains("d /var/backups/reconstruct 0700 reconstruct reconstruct")
    );
}

/// What a unit forbids must leave to ffmpeg's box what that is made of, see core/src/video/sandbox.rs.
#[test]
fn the_units_leave_room_for_the_box_of_ffmpeg() {
    for name in ["reconstruct.service", "reconstruct-worker@.service"] {
        let unit = read(&format!("packaging/systemd/{name}"));
        assert_eq!(values(&unit, "RestrictNamespaces"), ["user net ipc"], "{name}");
        assert_eq!(values(&unit, "NoNewPrivileges"), ["yes"], "{name}");
        // /proc/meminfo and the number of the machine's run are read.
        assert!(!values(&unit, "ProcSubset").contains(&"pid"), "{name}");
        // One ffmpeg that is killed for its memory must not stop all.
        assert_eq!(values(&unit, "OOMPolicy"), ["continue"], "{name}");
        let allowed = values(&unit, "SystemCallFilter").join(" ");
        for call in ["landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "seccomp"] {
            assert!(allowed.split(' ').any(|word| word == call), "{name}: {call}");
        }
        assert!(allowed.starts_with("@system-service"), "{name}");
    }
    let worker = read("packaging/systemd/reconstruct-worker@.service");
    // Drivers make code while they run.
    assert_eq!(values(&worker, "MemoryDenyWriteExecute"), [] as [&str; 0]);
    assert_eq!(values(&worker, "PrivateNetwork"), ["yes"]);
}

/// What the box and the workers ask of the kernel is in the set of system calls that the units allow. systemd knows what is in it.
#[test]
fn the_set_of_system_calls_holds_what_is_needed() {
    let mut calls = BTreeSet::new();
    let mut sets = vec!["@system-service".to_owned()];
    while let Some(set) = sets.pop() {
        let Ok(output) = Command::new("systemd-analyze").args(["syscall-filter", &set]).output() else {
            println!("skipped: there is no systemd-analyze here");
            return;
        };
        assert_success(&output);
        let text = String::from_utf8(output.stdout).unwrap();
        for word in
            text.lines().skip(1).map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            match word.starts_with('@') {
                true => sets.push(word.to_owned()),
                false => drop(calls.insert(word.to_owned())),
            }
        }
    }
    let needed = [
        "unshare",
        "prctl",
        "close_range",
        "prlimit64",
        "clone",
        "clone3",
        "execve",
        "setpriority",
        "flock",
        "linkat",
        "statfs",
        "fsync",
        "rename",
        "memfd_create",
        "kill",
        "sched_setaffinity",
    ];
    for call in needed {
        assert!(calls.contains(call), "{call} is not in @system-service");
    }
}

/// systemd itself reads the units, where it is installed.
#[test]
fn systemd_understands_the_units() {
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_reconstruct");
    let script = root().join("packaging/systemd/nightly-backup").canonicalize().unwrap();
    let mut names = vec![];
    for entry in fs::read_dir(root().join("packaging/systemd")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.ends_with(".service") && !name.ends_with(".timer") {
            continue;
        }
        // What it starts is looked for, and is not installed here.
        let unit = read(&format!("packaging/systemd/{name}"))
            .replace("/usr/local/bin/reconstruct", program)
            .replace("/usr/local/lib/reconstruct/nightly-backup", script.to_str().unwrap());
        fs::write(folder.path().join(&name), unit).unwrap();
        names.push(name.replace('@', "@1"));
    }
    assert_eq!(names.len(), 4, "{names:?}");
    fs::rename(
        folder.path().join("reconstruct-worker@.service"),
        folder.path().join("reconstruct-worker@1.service"),
    )
    .unwrap();
    let units: Vec<PathBuf> = names.iter().map(|name| folder.path().join(name)).collect();
    let Ok(output) = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&units).output()
    else {
        println!("skipped: there is no systemd-analyze here");
        return;
    };
    let text = String::from_utf8_lossy(&output.stderr);
    // It also speaks of units of the machine.
    let about_ours: Vec<&str> = text.lines().filter(|line| line.contains("reconstruct")).collect();
    assert!(about_ours.is_empty(), "{text}");
    for unit in units.iter().filter(|unit| unit.extension().is_some_and(|e| e == "service")) {
        let mut rate = Command::new("systemd-analyze");
        let output = rate
            .args(["security", "--offline=yes", "--no-pager", "--threshold=25"])
            .arg(unit)
            .output()
            .unwrap();
        // 25 of 100 is what it calls "OK".
        assert_success(&output);
    }
}

#[test]
fn the_container_file_names_what_is_there() {
    let file = read("packaging/container/Containerfile").replace("\\\n", " ");
    let lines = |word: &'static str| {
        let mut found: Vec<String> = vec![];
        for line in file.lines() {
            if let Some(rest) = line.strip_prefix(word).and_then(|rest| rest.strip_prefix(' ')) {
                found.push(rest.split_whitespace().collect::<Vec<_>>().join(" "));
            }
        }
        found
    };
    let known = variables();
    let others = ["HOME", "XDG_CACHE_HOME", "NVIDIA_DRIVER_CAPABILITIES"];
    for setting in lines("ENV").iter().flat_map(|line| line.split(' ')) {
        let name = setting.split('=').next().unwrap();
        assert!(known.contains(name) || others.contains(&name), "{name} is no setting");
    }
    // The compiler that the workspace asks for, at least.
    let oldest =
        read("Cargo.toml").split("rust-version = \"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    assert!(lines("ARG")[0].contains(&format!("/rust:{oldest}-")), "{:?}", lines("ARG"));
    let run = lines("RUN").join("\n");
    assert!(run.contains("cargo build --locked --release -p libreconstruct-server"));
    assert!(
        run.contains(" scripts/install-mask-model.sh ")
            && root().join("scripts/install-mask-model.sh").is_file()
    );
    for package in ["ffmpeg", "libvulkan1", "mesa-vulkan-drivers"] {
        assert!(
            run.contains(package)
                && read("scripts/install-dependencies.sh").contains(&format!("need {package} ")),
            "{package}"
        );
    }
    // Not root, and with its folder as the only place that is kept.
    assert_eq!(lines("USER"), ["10001:10001"]);
    assert_eq!(lines("VOLUME"), ["/var/lib/reconstruct"]);
    assert!(lines("ENV")[0].contains("LIBRECONSTRUCT_DATA=/var/lib/reconstruct"));
    assert!(
        lines("COPY")
            .iter()
            .any(|copy| copy.ends_with("/source/target/release/reconstruct /usr/local/bin/reconstruct"))
    );
    // A place of the mask model that the program looks at, and routes that the server has.
    assert!(lines("COPY").iter().any(|copy| copy.ends_with("/usr/local/share/libreconstruct")));
    assert!(read("core/src/background/weights.rs").contains("/usr/local/share/libreconstruct"));
    assert!(
        file.contains("http://127.0.0.1:8080/readyz")
            && read("server/src/http/route.rs").contains("\"/readyz\"")
    );
    let output = reconstruct()
        .args(["serve", "--print-config"])
        .env("LIBRECONSTRUCT_LISTEN", "0.0.0.0:8080")
        .output()
        .unwrap();
    assert_success(&output);
}
