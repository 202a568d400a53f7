//! A server that runs for a test, and plain HTTP/1.1 with it: what goes over the wire is what the test writes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A running `reconstruct serve --demo`; killed when it is dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) address: SocketAddr,
    /// A link with which a browser is signed in as `demo`; empty where there are no pages.
    pub(crate) sign_in: String,
    /// A key of the user `demo`.
    pub(crate) key: String,
    pub(crate) folder: tempfile::TempDir,
}

/// Starts a server on a free port, without workers and rate limits unless `environment` says otherwise.
pub(crate) fn start(environment: &[(&str, &str)]) -> Server {
    start_in(tempfile::tempdir().unwrap(), environment)
}

/// The same, on the folder of an earlier one.
pub(crate) fn start_in(folder: tempfile::TempDir, environment: &[(&str, &str)]) -> Server {
    let log = std::fs::File::create(folder.path().join("log")).unwrap();
    let mut process = command(folder.path(), environment)
        .args(["serve", "--demo", "--json", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line:?}: {e}"));
    let address = ready["url"].as_str().unwrap().rsplit('/').next().unwrap().parse().unwrap();
    let sign_in = ready["sign_in"].as_str().unwrap_or_default().to_owned();
    Server { process, address, sign_in, key: ready["api_key"].as_str().unwrap().to_owned(), folder }
}

fn command(folder: &Path, environment: &[(&str, &str)]) -> Command {
    let mut command = super::reconstruct();
    command
        .env("LIBRECONSTRUCT_DATA", folder.join("data"))
        .env("LIBRECONSTRUCT_WORKERS", "0")
        .env("LIBRECONSTRUCT_LOG", "warn")
        .env("LIBRECONSTRUCT_RATE_LIMITS_REQUESTS_PER_MINUTE", "0")
        .env("LIBRECONSTRUCT_RATE_LIMITS_SUBMITS_PER_HOUR", "0")
        .env("LIBRECONSTRUCT_RATE_LIMITS_UPLOADS_PER_HOUR", "0")
        .env("LIBRECONSTRUCT_RATE_LIMITS_FAILED_AUTHENTICATIONS_PER_MINUTE", "0")
        .envs(environment.iter().copied());
    command
}

impl Server {
    /// Runs another command on the server's folder and returns its JSON.
    pub(crate) fn operate(&self, arguments: &[&str]) -> Value {
        let output = command(self.folder.path(), &[]).args(arguments).arg("--json").output().unwrap();
        super::assert_success(&output);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What it has written to its log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Sends a signal, as `kill` names it.
    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.process.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Waits for the end of the process.
    pub(crate) fn wait(&mut self, at_most: Duration) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < at_most, "still running after {at_most:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Resident memory now, MiB.
    pub(crate) fn memory(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Sends `head` (lines without their ends) and `body` and reads the answer to its end.
    pub(crate) fn raw(&self, head: &[&str], body: &[u8]) -> Answer {
        let mut stream = self.connect();
        let text = head.join("\r\n") + "\r\nConnection: close\r\n\r\n";
        stream.write_all(text.as_bytes()).unwrap();
        // A server that refuses early may close before all of it is sent.
        let _ = stream.write_all(body);
        Answer::read(stream, head[0].starts_with("HEAD"))
    }

    /// A request without a key.
    pub(crate) fn anonymous(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Answer {
        let line = format!("{method} {path} HTTP/1.1");
        let host = format!("Host: {}", self.address);
        let length = format!("Content-Length: {}", body.len());
        let mut head = vec![line.as_str(), &host];
        if !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH") {
            head.push(&length);
        }
        head.extend(headers);
        self.raw(&head, body)
    }

    /// A request with a key.
    pub(crate) fn with_key(&self, key: &str, method: &str, path: &str, body: Option<Value>) -> Answer {
        let authorization = format!("Authorization: Api-Key {key}");
        let mut headers = vec![authorization.as_str()];
        let body = body.map(|b| b.to_string()).unwrap_or_default();
        if !body.is_empty() {
            headers.push("Content-Type: application/json");
        }
        self.anonymous(method, path, &headers, body.as_bytes())
    }

    /// A request of the user `demo`.
    pub(crate) fn request(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        self.with_key(&self.key, method, path, body)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request("GET", path, None)
    }

    /// An upload address of this server, as path and query, and the name of the blob.
    pub(crate) fn upload_address(&self) -> (String, String) {
        let answer =
            self.request("POST", "/api/v1/generate-upload-url/", Some(json!({"file_extension": "mp4"})));
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer = answer.json();
        let url = answer["url"].as_str().unwrap();
        (self.path_of(url), answer["blob_name"].as_str().unwrap().to_owned())
    }

    /// The path and query of an address that must be one of this server's.
    pub(crate) fn path_of(&self, url: &str) -> String {
        url.strip_prefix(&format!("http://{}", self.address)).unwrap_or_else(|| panic!("{url}")).to_owned()
    }

    /// Uploads `video` and submits it; the body may say more about the job.
    pub(crate) fn submit(&self, video: &[u8], mut body: Value) -> String {
        let (path, name) = self.upload_address();
        assert_eq!(self.anonymous("PUT", &path, &[], video).status, 201);
        body["blob_name"] = name.into();
        let answer = self.request("POST", "/api/v1/submit-job/", Some(body));
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()["job_id"].as_str().unwrap().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Reads an answer from a connection that the server closes after it.
    pub(crate) fn read(mut stream: TcpStream, is_head: bool) -> Self {
        let mut bytes = Vec::new();
        // A reset after the answer is no matter.
        let _ = stream.read_to_end(&mut bytes);
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or_else(|| {
            panic!("no answer: {:?}", String::from_utf8_lossy(&bytes));
        });
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let mut answer = Self { status, headers, body: bytes[end + 4..].to_vec() };
        if answer.header("transfer-encoding") == Some("chunked") {
            answer.body = dechunk(&answer.body);
        } else if let Some(length) = answer.header("content-length").filter(|_| !is_head) {
            assert_eq!(answer.body.len().to_string(), length, "the body is as long as announced");
        }
        answer
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {} {:?}", self.status, String::from_utf8_lossy(&self.body)))
    }

    /// The message of an error, which must be all that there is.
    #[track_caller]
    pub(crate) fn error(&self) -> String {
        let body = self.json();
        let object = body.as_object().unwrap();
        assert_eq!(object.len(), 1, "{body}");
        assert_eq!(self.header("content-type"), Some("application/json"));
        object["error"].as_str().unwrap().to_owned()
    }
}

fn dechunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let end = bytes.windows(2).position(|w| w == b"\r\n").unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return whole;
        }
        whole.extend_from_slice(&bytes[end + 2..end + 2 + size]);
        bytes = &bytes[end + 4 + size..];
    }
}
