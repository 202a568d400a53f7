//! A PostgreSQL of the tests' own: a new cluster in a folder, reached through a socket there; it ends with this process.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The name of PostgreSQL's socket in its folder, at the standard port.
pub(super) const SOCKET: &str = ".s.PGSQL.5432";

/// The address of a database whose server has its socket in `folder`.
pub(super) fn address_in(folder: &Path, database: &str) -> String {
    format!("postgres://postgres@{}/{database}", folder.to_str().unwrap().replace('/', "%2F"))
}

/// A server that is started once for all tests of this process.
pub(super) struct Server {
    folder: PathBuf,
    programs: PathBuf,
    /// Options of it alone, behind those of all.
    options: String,
}

/// The newest PostgreSQL of Debian's places, or that of the search path.
fn programs() -> Option<PathBuf> {
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|bin| bin.join("initdb").exists())
        .collect();
    versions.sort();
    versions.pop()
}

/// A command that runs as somebody whom PostgreSQL allows: it refuses to run as root.
pub(super) fn as_ordinary_user(program: &Path) -> Command {
    // SAFETY: it has no parameters and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=nobody", "--regid=nogroup", "--clear-groups", "--pdeathsig=KILL", "--"])
        .arg(program);
    command
}

impl Server {
    /// The server, if there is a PostgreSQL on this machine.
    pub(super) fn get() -> Option<&'static Server> {
        static SERVER: OnceLock<Option<Server>> = OnceLock::new();
        SERVER.get_or_init(|| Some(Self::make(programs()?))).as_ref()
    }

    /// One that nobody else uses.
    pub(super) fn alone() -> Option<Server> {
        Some(Self::make(programs()?))
    }

    fn make(programs: PathBuf) -> Self {
        // The one who runs the server must get there; it is removed by the watcher below.
        let folder =
            tempfile::Builder::new().prefix("reconstruct-postgres-").tempdir_in("/tmp").unwrap().keep();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
        let server = Self { folder, programs, options: String::new() };
        let made = as_ordinary_user(&server.programs.join("initdb"))
            .args([
                "--auth=trust",
                "--username=postgres",
                "--encoding=UTF8",
                "--no-locale",
                "--no-sync",
                "--pgdata",
            ])
            .arg(server.data())
            .stdout(Stdio::null())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        server.start();
        // When this process is gone, however it ended, its end of the pipe is closed: then the server goes, and its folder.
        let mut watcher = Command::new("sh");
        let script =
            "read -r _; kill -QUIT $(head -n1 data/postmaster.pid) 2>/dev/null; sleep 0.2; rm -rf \"$PWD\"";
        watcher.args(["-c", script]).current_dir(&server.folder).stdin(Stdio::piped());
        std::mem::forget(watcher.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        server
    }

    /// Where its files are. It may be written to by whoever runs the server.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Starts it and waits until it answers.
    pub(super) fn start(&self) {
        self.control(&["start", "-w", "-t", "60", "-l"], Some(&self.folder.join("log")));
    }

    /// Kills it as a power cut does, and starts it again.
    pub(super) fn crash(&self) {
        self.control(&["stop", "-m", "immediate"], None);
        self.start();
    }

    /// Starts it again with `options` of its own. With another port its socket has another name, by which `sql` does not find it.
    pub(super) fn restart_with(&mut self, options: String) {
        self.options = options;
        self.crash();
    }

    fn control(&self, arguments: &[&str], log: Option<&Path>) {
        let options = format!(
            "-k {} -c listen_addresses= -c max_connections=300 -c shared_buffers=32MB {}",
            self.folder.display(),
            self.options
        );
        let mut command = as_ordinary_user(&self.programs.join("pg_ctl"));
        command.args(arguments).args(log).arg("-D").arg(self.data());
        if log.is_some() {
            command.arg("-o").arg(options);
        }
        assert!(command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
    }

    /// The address of a new, empty database.
    pub(super) fn database(&self) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.address(&name)
    }

    fn address(&self, database: &str) -> String {
        address_in(&self.folder, database)
    }

    /// Where it listens.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join(SOCKET)
    }

    /// Runs SQL beside the tests; what it answers.
    pub(super) fn sql(&self, database: &str, sql: &str) -> String {
        let output = Command::new(self.programs.join("psql"))
            .args([
                "-X",
                "-q",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-U",
                "postgres",
                "-d",
                database,
                "-c",
                sql,
                "-h",
            ])
            .arg(&self.folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}
