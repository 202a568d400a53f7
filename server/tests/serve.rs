//! The server as its clients see it: transport, keys, signed addresses, limits, the end.
#![cfg(unix)]
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use common::server::{Answer, start, start_in};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// An mp4 of one second.
fn video() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mp4");
    let input = ["-f", "lavfi", "-i", "testsrc2=size=320x240:rate=10:duration=1", "-c:v", "libx264"];
    let mut ffmpeg = std::process::Command::new("ffmpeg");
    let status =
        ffmpeg.args(["-v", "error"]).args(input).args(["-pix_fmt", "yuv420p"]).arg(&path).status().unwrap();
    assert!(status.success());
    std::fs::read(path).unwrap()
}

const NO_JOB: &str = "0d8bbd3c-3e2c-4b5a-9d3f-2f4e3a1b9c70";

#[test]
fn routes_methods_and_errors() {
    let server = start(&[]);
    for path in ["/api/v1/jobs/", "/api/v1/jobs"] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.body.as_slice()), (200, &b"[]"[..]));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("x-request-id").unwrap().len(), 36);
    }
    // Rule 4 of docs/rest.md.
    let head = server.request("HEAD", "/api/v1/jobs/", None);
    assert_eq!((head.status, head.body.len(), head.header("content-length")), (200, 0, Some("2")));
    let options = server.anonymous("OPTIONS", "/api/v1/submit-job/", &[], b"");
    assert_eq!((options.status, options.header("allow")), (204, Some("POST, OPTIONS")));
    // Rules 3 and 5.
    for (method, path, allow) in [
        ("PUT", "/api/v1/jobs/x/", "GET, HEAD, PATCH, DELETE, OPTIONS"),
        ("DELETE", "/api/v1/jobs/", "GET, HEAD, OPTIONS"),
        ("GET", "/api/v1/submit-job/", "POST, OPTIONS"),
        ("POST", "/blob/videos/x.mp4", "GET, HEAD, PUT, PATCH, DELETE, OPTIONS"),
        ("TRACE", "/api/v1/jobs/", "GET, HEAD, OPTIONS"),
    ] {
        let answer = server.request(method, path, None);
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allow)), "{method} {path}");
        answer.error();
    }
    // Rule 11: what does not exist needs no key.
    for path in ["/view", "/api/v1/", "/api/v1/keys/", "/api/v1/jobs/x/stop/", "/favicon.ico"] {
        let answer = server.anonymous("GET", path, &[], b"");
        assert_eq!((answer.status, answer.error().as_str()), (404, "Not found"), "{path}");
    }
    // Rule 2.
    for id in ["x", NO_JOB, &NO_JOB.to_uppercase(), "%00", "..%2f"] {
        let answer = server.get(&format!("/api/v1/jobs/{id}/"));
        assert_eq!((answer.status, answer.error().as_str()), (404, "Job not found"), "{id}");
    }
    // Rule 66 goes before the lookup, as does every parameter of the route.
    let answer = server.get(&format!("/api/v1/jobs/{NO_JOB}/download/obj/"));
    assert_eq!(answer.status, 400);
    let said = answer.error();
    assert!(said.starts_with("Invalid file type. Must be \"ply\" or \"spz\" (or one of: report, "), "{said}");
}

/// Rule 79 of docs/rest.md: what `--demo` prints for a browser.
#[test]
fn the_link_of_a_demonstration_signs_in_once() {
    let server = start(&[]);
    let path = &server.sign_in[server.sign_in.find("/invitation/").unwrap()..];
    let page = server.anonymous("GET", path, &[], b"");
    assert!(page.status == 200 && String::from_utf8_lossy(&page.body).contains("Sign in as demo"));
    let ours = ["sec-fetch-site: same-origin"];
    let answer = server.anonymous("POST", path, &ours, b"");
    assert_eq!((answer.status, answer.header("location")), (303, Some("/scenes")));
    let cookie = format!("cookie: {}", answer.header("set-cookie").unwrap().split(';').next().unwrap());
    assert_eq!(server.anonymous("GET", "/scenes", &[&cookie], b"").status, 200);
    assert_eq!(server.anonymous("POST", path, &ours, b"").status, 404);
    // Without pages there is no link.
    assert_eq!(start(&[("LIBRECONSTRUCT_WEB", "false")]).sign_in, "");
}

#[test]
fn bodies_of_requests() {
    let server = start(&[]);
    let authorization = format!("Authorization: Api-Key {}", server.key);
    let post = |headers: &[&str], body: &[u8]| {
        let mut all = vec![authorization.as_str()];
        all.extend(headers);
        server.anonymous("POST", "/api/v1/generate-upload-url/", &all, body)
    };
    let good = br#"{"file_extension": "mp4"}"#;
    for headers in
        [&[][..], &["Content-Type: application/json"], &["Content-Type: application/json; charset=utf-8"]]
    {
        assert_eq!(post(headers, good).status, 200, "{headers:?}");
    }
    // Rule 6.
    assert_eq!(post(&["Content-Type: application/x-www-form-urlencoded"], good).status, 415);
    assert_eq!(post(&["Content-Encoding: gzip"], good).status, 415);
    // Rule 7.
    for body in
        [&b""[..], b"{", b"[1]", br#"{"file_extension": "mp4", "file_extension": "mov"}"#, b"{\"a\": NaN}"]
    {
        let answer = post(&[], body);
        assert_eq!(answer.status, 400);
        assert!(answer.error().starts_with("Request body is not valid JSON: "), "{}", answer.error());
    }
    // Rule 8: announced, and not announced.
    let large = vec![b' '; 70_000];
    assert_eq!(post(&[], &large).status, 413);
    let chunked = [format!("{:x}\r\n", large.len()).as_bytes(), &large, b"\r\n0\r\n\r\n"].concat();
    let line = "POST /api/v1/generate-upload-url/ HTTP/1.1";
    let answer = server.raw(&[line, "Host: a", &authorization, "Transfer-Encoding: chunked"], &chunked);
    assert_eq!(answer.status, 413);
    // Rule 27.
    for extension in
        [json!(".mp4"), json!("a/mp4"), json!("exe"), json!(""), json!(" mp4"), json!(7), json!(null)]
    {
        let body = json!({ "file_extension": extension });
        assert_eq!(post(&[], body.to_string().as_bytes()).status, 400, "{body}");
    }
    let answer = post(&[], br#"{"file_extension": "MOV"}"#).json();
    assert!(answer["blob_name"].as_str().unwrap().ends_with(".mov"));
    // Rule 25: exactly these.
    assert_eq!(answer.as_object().unwrap().len(), 2);
}

#[test]
fn keys_and_tiers() {
    let server = start(&[]);
    let path = "/api/v1/jobs/";
    let refused = |answer: Answer| {
        assert_eq!((answer.status, answer.error().as_str()), (401, "Invalid API key"));
        assert_eq!(answer.header("www-authenticate"), Some("Api-Key realm=\"api\""));
    };
    refused(server.anonymous("GET", path, &[], b""));
    refused(server.anonymous("GET", path, &[&format!("Authorization: Bearer {}", server.key)], b""));
    refused(server.with_key("lrk_aaaaaaaa.", "GET", path, None));
    let mut wrong = server.key.clone();
    let last = wrong.pop().unwrap();
    wrong.push(if last == 'x' { 'y' } else { 'x' });
    refused(server.with_key(&wrong, "GET", path, None));
    // Rule 14.
    let lower = format!("authorization: api-key  {}", server.key);
    assert_eq!(server.anonymous("GET", path, &[&lower], b"").status, 200);

    // A key that another process makes works at once, and stops working at once.
    assert_eq!(server.operate(&["users", "add", "alice"])["tier"], "enterprise");
    let key = server.operate(&["keys", "create", "alice", "--name", "laptop"]);
    let secret = key["key"].as_str().unwrap();
    assert_eq!(server.with_key(secret, "GET", path, None).status, 200);
    server.operate(&["users", "set-tier", "alice", "free"]);
    let answer = server.with_key(secret, "GET", path, None);
    assert_eq!(answer.status, 403);
    answer.error();
    server.operate(&["users", "set-tier", "alice", "enterprise"]);
    server.operate(&["keys", "revoke", "alice", key["prefix"].as_str().unwrap()]);
    refused(server.with_key(secret, "GET", path, None));
    let keys = server.operate(&["keys", "list", "alice"]);
    let listed = keys["keys"][0].as_object().unwrap();
    assert_eq!((&listed["name"], &listed["prefix"]), (&json!("laptop"), &key["prefix"]));
    assert!(
        listed.contains_key("created_at") && listed.contains_key("last_used") && !listed.contains_key("key")
    );
}

#[test]
fn rate_limits() {
    let server = start(&[
        ("LIBRECONSTRUCT_RATE_LIMITS_REQUESTS_PER_MINUTE", "60"),
        ("LIBRECONSTRUCT_RATE_LIMITS_REQUESTS_BURST", "5"),
        ("LIBRECONSTRUCT_RATE_LIMITS_FAILED_AUTHENTICATIONS_PER_MINUTE", "3"),
    ]);
    let path = "/api/v1/jobs/";
    let statuses: Vec<u16> = (0..6).map(|_| server.get(path).status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
    let answer = server.get(path);
    assert_eq!(answer.error(), "Rate limit exceeded");
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert!(answer.header("ratelimit").is_some() && answer.header("ratelimit-policy").is_some());
    // An upload address is another bucket.
    server.upload_address();
    let statuses: Vec<u16> = (0..4).map(|_| server.anonymous("GET", path, &[], b"").status).collect();
    assert_eq!(statuses, [401, 401, 401, 429]);
}

#[test]
fn an_upload_address_does_what_it_says_and_no_more() {
    let server = start(&[("LIBRECONSTRUCT_LIMITS_MAX_UPLOAD_BYTES", "1000000")]);
    let (path, name) = server.upload_address();
    let put = |path: &str, headers: &[&str], body: &[u8]| server.anonymous("PUT", path, headers, body);
    // Rules 23, 24 and 69: any headers, also a key that nobody asked for.
    let strange = ["Authorization: Api-Key nonsense", "x-ms-blob-type: BlockBlob", "Content-Type: video/mp4"];
    let answer = put(&path, &strange, b"abc");
    assert_eq!((answer.status, answer.header("content-length"), answer.body.len()), (201, Some("0"), 0));
    let first = answer.header("etag").unwrap().to_owned();
    // Rule 29: again, until it is submitted.
    let second = put(&path, &[], b"abcd");
    assert_eq!(second.status, 201);
    assert_ne!(second.header("etag").unwrap(), first);
    // It reads nothing but how much has come (rule 100), and another name is not signed.
    assert_eq!(server.anonymous("GET", &path, &[], b"").status, 403);
    let asked = server.anonymous("HEAD", &path, &[], b"");
    assert_eq!((asked.status, asked.header("upload-offset")), (204, Some("4")));
    let other = path.replace(name.split('-').next().unwrap(), "videos/00000000");
    assert_eq!(put(&other, &[], b"abc").status, 403);
    assert_eq!(put(&path.replace("sig=", "sig=A"), &[], b"abc").status, 403);
    assert_eq!(put(path.split('?').next().unwrap(), &[], b"abc").status, 403);
    // Rule 31.
    let sha = STANDARD.encode(Sha256::digest(b"abc"));
    assert_eq!(put(&path, &[&format!("Content-Digest: sha-256=:{sha}:")], b"abc").status, 201);
    assert_eq!(put(&path, &[&format!("Content-Digest: sha-256=:{sha}:")], b"abd").status, 400);
    assert_eq!(put(&path, &["Content-MD5: kAFQmDzST7DWlj99KOF/cg=="], b"abc").status, 201);
    assert_eq!(put(&path, &["Content-MD5: kAFQmDzST7DWlj99KOF/cg=="], b"abd").status, 400);
    assert_eq!(put(&path, &["Content-MD5: kAFQ"], b"abc").status, 400);
    // Rule 28: announced, and counted.
    let large = vec![0; 1_000_001];
    let answer = put(&path, &[], &large);
    assert_eq!(answer.status, 413);
    answer.error();
    let chunked = [format!("{:x}\r\n", large.len()).as_bytes(), &large, b"\r\n0\r\n\r\n"].concat();
    let line = format!("PUT {path} HTTP/1.1");
    assert_eq!(server.raw(&[&line, "Host: a", "Transfer-Encoding: chunked"], &chunked).status, 413);
}

/// Who is refused while it still sends hears why, and is not cut off.
#[test]
fn a_refusal_in_the_middle_of_a_body_is_heard() {
    let server = start(&[("LIBRECONSTRUCT_LIMITS_MAX_UPLOAD_BYTES", "262144")]);
    let (path, _) = server.upload_address();
    let authorization = format!("Authorization: Api-Key {}", server.key);
    let spaces = vec![b' '; 1 << 16];
    let chunk = [&b"10000\r\n"[..], &spaces, b"\r\n"].concat();
    for line in [
        format!("PUT {path}"),
        format!("PUT {path}&comp=blocklist"),
        "POST /api/v1/generate-upload-url/".to_owned(),
    ] {
        // Of lists more is taken.
        let chunks = if line.contains("blocklist") { 256 } else { 128 };
        let mut stream = server.connect();
        let head = format!("{line} HTTP/1.1\r\nHost: a\r\n{authorization}\r\nTransfer-Encoding: chunked\r\n");
        write!(stream, "{head}Connection: close\r\n\r\n").unwrap();
        for _ in 0..chunks {
            stream.write_all(&chunk).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        stream.write_all(b"0\r\n\r\n").unwrap();
        let answer = Answer::read(stream, false);
        let expected = if line.contains("blocklist") { 400 } else { 413 };
        assert_eq!(answer.status, expected, "{line}");
        answer.error();
    }
}

#[test]
fn an_interrupted_upload_leaves_nothing() {
    let server = start(&[]);
    let (path, name) = server.upload_address();
    let mut stream = server.connect();
    write!(stream, "PUT {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n").unwrap();
    stream.write_all(&vec![0; 2_000_000]).unwrap();
    drop(stream);
    std::thread::sleep(Duration::from_millis(300));
    // Rules 30 and 44.
    let answer = server.request("POST", "/api/v1/submit-job/", Some(json!({ "blob_name": name })));
    assert_eq!((answer.status, answer.error().as_str()), (400, "Blob not found. Please verify the upload."));
    let mut left = Vec::new();
    files(&server.folder.path().join("data"), &mut left);
    assert!(left.iter().all(|(_, size)| *size < 1_000_000), "{left:?}");
}

fn files(folder: &std::path::Path, into: &mut Vec<(std::path::PathBuf, u64)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.metadata().unwrap() {
            m if m.is_dir() => files(&entry.path(), into),
            m => into.push((entry.path(), m.len())),
        }
    }
}

#[test]
fn a_video_in_blocks() {
    let server = start(&[]);
    let (path, name) = server.upload_address();
    let video = video();
    let (first, second) = video.split_at(video.len() / 2);
    let block = |id: &str, bytes: &[u8]| {
        server.anonymous("PUT", &format!("{path}&comp=block&blockid={id}"), &[], bytes).status
    };
    assert_eq!([block("Mg%3D%3D", second), block("MQ%3D%3D", first)], [201, 201]);
    let list = "<?xml version='1.0' encoding='utf-8'?>\n<BlockList><Latest>MQ==</Latest><Latest>Mg==</Latest></BlockList>";
    let path = format!("{path}&comp=blocklist");
    let named = ["Content-Disposition: attachment; filename=\"garden.mp4\""];
    assert_eq!(server.anonymous("PUT", &path, &[], list.replace("Mg", "NA").as_bytes()).status, 400);
    let answer = server.anonymous("PUT", &path, &named, list.as_bytes());
    assert_eq!((answer.status, answer.body.len()), (201, 0), "{answer:?}");
    let answer = server.request("POST", "/api/v1/submit-job/", Some(json!({ "blob_name": name })));
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(answer.json()["title"], "garden.mp4");
    // Rule 29.
    assert_eq!(server.anonymous("PUT", &path, &[], list.as_bytes()).status, 409);
}

#[test]
fn the_life_of_a_job_that_waits() {
    let server = start(&[]);
    let video = video();
    let job = server.submit(&video, json!({"title": "Garden", "training_num_steps": 100.0, "other": 1}));
    let path = format!("/api/v1/jobs/{job}/");
    let shown = server.get(&path).json();
    assert_eq!(shown.as_object().unwrap().len(), 13);
    assert_eq!((&shown["status"], &shown["title"]), (&json!("Queued - position: 1"), &json!("Garden")));
    assert_eq!((&shown["percent_complete"], &shown["has_ply"]), (&Value::Null, &json!(false)));
    assert_eq!(server.get("/api/v1/jobs/").json(), json!([{"job_id": job, "title": "Garden"}]));
    let upper = server.get(&path.to_uppercase().replace("/API/V1/JOBS/", "/api/v1/jobs/"));
    assert_eq!(upper.json(), shown);

    let answer =
        server.request("PATCH", &path, Some(json!({"title": "Park", "public": true, "status": "Finished"})));
    assert_eq!(answer.status, 200);
    assert_eq!((&answer.json()["title"], &answer.json()["public"]), (&json!("Park"), &json!(true)));
    assert_eq!(answer.json()["status"], "Queued - position: 1");
    for body in [json!({"title": " "}), json!({"public": "yes"}), json!({"camera_data": {"position": 1}})] {
        assert_eq!(server.request("PATCH", &path, Some(body)).status, 400);
    }
    for (file, text) in [("download/ply", "PLY"), ("download/spz", "SPZ")] {
        let answer = server.get(&format!("{path}{file}/"));
        let expected = format!("{text} file not available for this job");
        assert_eq!((answer.status, answer.error()), (404, expected));
    }
    assert_eq!(server.get(&format!("{path}preview/")).status, 404);

    // Rule 16: for others it does not exist, to the byte.
    server.operate(&["users", "add", "mallory"]);
    let mallory = server.operate(&["keys", "create", "mallory"]);
    let mallory = mallory["key"].as_str().unwrap();
    for (method, rest, body) in [
        ("GET", "", None),
        ("HEAD", "", None),
        ("PATCH", "", Some(json!({"title": "Mine"}))),
        ("DELETE", "", None),
        ("GET", "download/ply/", None),
        ("GET", "preview/", None),
    ] {
        let foreign = server.with_key(mallory, method, &format!("{path}{rest}"), body.clone());
        let unknown = server.with_key(mallory, method, &format!("/api/v1/jobs/{NO_JOB}/{rest}"), body);
        let plain = |answer: Answer| {
            let mut headers = answer.headers;
            headers.retain(|(name, _)| name != "x-request-id" && name != "date");
            (answer.status, headers, answer.body)
        };
        let (foreign, unknown) = (plain(foreign), plain(unknown));
        assert_eq!(foreign.0, 404);
        assert_eq!(foreign, unknown, "{method} {rest}");
    }
    assert_eq!(server.with_key(mallory, "GET", "/api/v1/jobs/", None).body, b"[]");

    let answer = server.request("DELETE", &path, None);
    assert_eq!((answer.status, answer.body.len()), (204, 0));
    assert_eq!(server.request("DELETE", &path, None).status, 404);
    assert_eq!(server.get(&path).status, 404);
}

#[test]
fn a_repeated_submission_is_one_job() {
    let server = start(&[]);
    let (path, name) = server.upload_address();
    assert_eq!(server.anonymous("PUT", &path, &[], &video()).status, 201);
    let authorization = format!("Authorization: Api-Key {}", server.key);
    let submit = |key: &str, body: &str| {
        let headers =
            [authorization.as_str(), &format!("Idempotency-Key: {key}"), "Content-Type: application/json"];
        server.anonymous("POST", "/api/v1/submit-job/", &headers, body.as_bytes())
    };
    let body = json!({"blob_name": name, "public": true}).to_string();
    let first = submit("\"a1\"", &body);
    assert_eq!(first.status, 201, "{first:?}");
    let job = first.json();
    assert_eq!(job.as_object().unwrap().len(), 10);
    assert_eq!((&job["success"], &job["status"]), (&json!(true), &json!("queued")));
    assert_eq!(
        first.header("location").unwrap(),
        format!("/api/v1/jobs/{}/", job["job_id"].as_str().unwrap())
    );
    // The same fields in another order are the same request.
    let again = submit("a1", &format!("{{\"public\": true, \"blob_name\": \"{name}\"}}"));
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert_eq!(submit("a1", &body.replace("true", "false")).status, 422);
    assert_eq!(submit("", &body).status, 400);
    assert_eq!(server.get("/api/v1/jobs/").json().as_array().unwrap().len(), 1);
    // Rule 46: without the key, another job with the same video.
    assert_eq!(server.request("POST", "/api/v1/submit-job/", Some(json!({"blob_name": name}))).status, 201);
}

#[test]
fn pages_and_compression() {
    let server = start(&[]);
    let video = video();
    let (path, name) = server.upload_address();
    assert_eq!(server.anonymous("PUT", &path, &[], &video).status, 201);
    for k in 0..30 {
        let body = json!({"blob_name": name, "title": format!("Job {k}")});
        assert_eq!(server.request("POST", "/api/v1/submit-job/", Some(body)).status, 201);
    }
    let all = server.get("/api/v1/jobs/").json();
    assert_eq!(all[0]["title"], "Job 29");
    let mut paged = Vec::new();
    let mut next = Some("/api/v1/jobs/?limit=12&status=queued".to_owned());
    let mut pages = 0;
    while let Some(path) = next {
        let answer = server.get(&path);
        paged.extend(answer.json().as_array().unwrap().clone());
        pages += 1;
        next = answer.header("link").map(|link| {
            let url = link.strip_prefix('<').unwrap().strip_suffix(">; rel=\"next\"").unwrap();
            server.path_of(url)
        });
    }
    assert_eq!((pages, Value::Array(paged)), (3, all.clone()));
    assert_eq!(server.get("/api/v1/jobs/?limit=0").status, 400);

    let authorization = format!("Authorization: Api-Key {}", server.key);
    let answer = server.anonymous("GET", "/api/v1/jobs/", &[&authorization, "Accept-Encoding: gzip"], b"");
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(&answer.body[..]).read_to_string(&mut text).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), all);
    let answer =
        server.anonymous("GET", "/api/v1/jobs/?limit=1", &[&authorization, "Accept-Encoding: gzip"], b"");
    assert_eq!(answer.header("content-encoding"), None);
}

#[test]
fn slow_clients_are_cut_and_hurt_nobody() {
    let server = start(&[("LIBRECONSTRUCT_CONNECTIONS_HEADER_TIMEOUT_SECONDS", "2")]);
    let mut slow: Vec<_> = (0..200).map(|_| server.connect()).collect();
    for stream in &mut slow {
        stream.write_all(b"GET /api/v1/jobs/ HTTP/1.1\r\nHost: a\r\nX-").unwrap();
    }
    let began = Instant::now();
    assert_eq!(server.get("/api/v1/jobs/").status, 200);
    assert!(began.elapsed() < Duration::from_secs(1));
    for stream in &mut slow {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

#[test]
fn an_upload_takes_little_memory() {
    let server = start(&[]);
    let (path, _) = server.upload_address();
    let chunk = vec![7; 1 << 20];
    let size = 300 << 20;
    let before = server.memory();
    let mut stream = server.connect();
    let head =
        format!("PUT {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut most = before;
    for _ in 0..size >> 20 {
        stream.write_all(&chunk).unwrap();
        most = most.max(server.memory());
    }
    assert_eq!(Answer::read(stream, false).status, 201);
    assert!(most - before <= 32.0, "{before} MiB, then {most} MiB");
}

#[test]
fn the_end_is_orderly() {
    let mut server = start(&[]);
    // A request that is under way ends well.
    let (path, name) = server.upload_address();
    let mut stream = server.connect();
    write!(stream, "PUT {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc").unwrap();
    std::thread::sleep(Duration::from_millis(200));
    server.signal("-TERM");
    std::thread::sleep(Duration::from_millis(200));
    stream.write_all(b"def").unwrap();
    assert_eq!(Answer::read(stream, false).status, 201);
    assert_eq!(server.wait(Duration::from_secs(12)).code(), Some(0));

    // What was answered is there after the next start, and the key still works.
    let key = server.key.clone();
    let folder = std::mem::replace(&mut server.folder, tempfile::tempdir().unwrap());
    let mut server = start_in(folder, &[]);
    assert_eq!(server.with_key(&key, "GET", "/api/v1/jobs/", None).status, 200);
    let answer = server.request("POST", "/api/v1/submit-job/", Some(json!({ "blob_name": name })));
    assert_eq!((answer.status, answer.error().as_str()), (400, "Invalid file format"));

    // A second signal does not wait for anybody.
    let (path, _) = server.upload_address();
    let mut stream = server.connect();
    write!(stream, "PUT {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc").unwrap();
    std::thread::sleep(Duration::from_millis(200));
    server.signal("-TERM");
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    server.signal("-TERM");
    assert_eq!(server.wait(Duration::from_secs(3)).code(), Some(130));
    assert!(began.elapsed() < Duration::from_secs(2));
}

/// Rule 100 of docs/rest.md: what a transfer has brought is kept to its last byte, also if the server is told to stop in between.
#[test]
fn an_orderly_stop_keeps_what_has_come_of_an_upload() {
    let mut server = start(&[]);
    let (path, _) = server.upload_address();
    let mut stream = server.connect();
    let head = "Host: a\r\nUpload-Offset: 0\r\nUpload-Complete: ?1\r\nContent-Length: 1000000";
    write!(stream, "PATCH {path} HTTP/1.1\r\n{head}\r\nConnection: close\r\n\r\n").unwrap();
    stream.write_all(&[7; 100_000]).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    server.signal("-TERM");
    // The sender is told at once, and ends.
    let mut said = [0; 1024];
    let length = stream.read(&mut said).unwrap();
    let said = String::from_utf8_lossy(&said[..length]).to_lowercase();
    assert!(said.starts_with("http/1.1 503 ") && said.contains("retry-after: 5"), "{said}");
    drop(stream);
    assert_eq!(server.wait(Duration::from_secs(12)).code(), Some(0));

    let folder = std::mem::replace(&mut server.folder, tempfile::tempdir().unwrap());
    let server = start_in(folder, &[]);
    let asked = server.anonymous("HEAD", &path, &[], b"");
    assert_eq!((asked.status, asked.header("upload-offset")), (204, Some("100000")));
}

#[test]
fn what_operators_need() {
    let server = start(&[]);
    let get = |path: &str| server.anonymous("GET", path, &[], b"");
    assert_eq!(get("/healthz").json(), json!({"status": "ok"}));
    let ready = get("/readyz").json();
    assert_eq!((&ready["status"], &ready["paused_workers"]), (&json!("ready"), &json!([])));
    for layer in ["limits", "files", "system_calls", "network"] {
        assert!(ready["containment"][layer].is_boolean(), "{ready}");
    }
    server.get("/api/v1/jobs/");
    let metrics = get("/metrics");
    let text = String::from_utf8(metrics.body).unwrap();
    let line = "reconstruct_http_requests_total{route=\"/api/v1/jobs/\",method=\"GET\",status=\"200\"} 1";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("reconstruct_jobs{state=\"queued\"} 0"), "{text}");
    assert_eq!(get("/openapi.json").json()["openapi"], "3.1.0");
    assert_eq!(get("/docs").header("content-type"), Some("text/html; charset=utf-8"));
}

#[test]
fn plain_http_is_for_this_machine() {
    let output = common::run(["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(common::stderr(&output).contains("--insecure-http"));
}

/// Nothing secret gets into the log, however much is logged.
#[test]
fn the_log_has_no_secrets() {
    let server = start(&[("LIBRECONSTRUCT_LOG", "trace")]);
    let (path, _) = server.upload_address();
    assert_eq!(server.anonymous("PUT", &path, &[], b"abc").status, 201);
    let text = server.log();
    let (prefix, secret) = server.key.split_once('.').unwrap();
    let signature = path.split("sig=").nth(1).unwrap();
    assert!(!text.contains(secret) && !text.contains(signature), "{text}");
    assert!(text.contains("audit") && text.contains(prefix), "{text}");
    for line in text.lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
    }
}
