//! Each store as it is spoken to: the promises of every storage, large blobs, addresses of its own, and what goes wrong.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::ObjectStorage;
use super::test_stores::{AZURE, GOOGLE, S3, TestStore};
use super::writer::PART;
use crate::async_runtime::wait_for;
use crate::error::ErrorKind;
use crate::job::{ArtifactKind, BlobName, JobId, VideoExtension};
use crate::storage::{BlobKey, DownloadAnswer, Storage, UploadAddress};

mod s3 {
    use super::*;
    crate::storage::suite::tests!((|| S3.open()));
}

mod google {
    use super::*;
    crate::storage::suite::tests!((|| GOOGLE.open()));
}

mod azure {
    use super::*;
    crate::storage::suite::tests!((|| AZURE.open()));
}

const HOUR: Duration = Duration::from_secs(3600);
/// Those whose servers check signatures.
const CHECKING: [TestStore; 2] = [S3, AZURE];

fn name() -> BlobName {
    BlobName::random(VideoExtension::Mp4)
}

fn artifact() -> BlobKey {
    BlobKey::Artifact { job: JobId::random(), attempt: 1, kind: ArtifactKind::Ply }
}

/// Bytes no two pieces of which are alike, so that none can stand in for another.
fn bytes(count: usize) -> Vec<u8> {
    (0u32..).flat_map(u32::to_le_bytes).take(count).collect()
}

fn read(storage: &ObjectStorage, key: &BlobKey) -> Vec<u8> {
    let mut bytes = Vec::new();
    storage.open(key).unwrap().file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn write(storage: &ObjectStorage, key: &BlobKey, bytes: &[u8]) {
    let mut blob = storage.create(key).unwrap();
    blob.write_all(bytes).unwrap();
    blob.commit().unwrap();
}

/// A request as a client of the service makes it, which knows the address and nothing else.
struct Client(reqwest::Client);

struct Answer {
    status: u16,
    headers: reqwest::header::HeaderMap,
    body: Vec<u8>,
}

impl Client {
    fn new() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self(reqwest::Client::builder().no_proxy().build().unwrap())
    }

    fn ask(&self, request: reqwest::RequestBuilder) -> Answer {
        wait_for(async {
            let answer = request.send().await.unwrap();
            let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
            Answer { status, headers, body: answer.bytes().await.unwrap().to_vec() }
        })
        .unwrap()
    }

    fn get(&self, url: &str) -> Answer {
        self.ask(self.0.get(url))
    }

    fn put(&self, address: &UploadAddress, headers: &[(&str, &[u8])], body: &[u8]) -> Answer {
        let mut request = self.0.put(&address.url).body(body.to_vec());
        for (name, value) in &address.headers {
            request = request.header(*name, *value);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.ask(request)
    }
}

#[test]
fn a_large_blob_goes_in_parts() {
    for store in [S3, AZURE, GOOGLE] {
        let Some(((), storage)) = store.open() else { continue };
        let content = bytes(2 * PART + 12_345);
        let (written, put) = (artifact(), artifact());
        write(&storage, &written, &content);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("scene.ply");
        std::fs::write(&file, &content).unwrap();
        assert_eq!(storage.put_file(&put, &file).unwrap().size, content.len() as u64);
        for key in [written, put] {
            assert!(read(&storage, &key) == content, "{store:?}");
        }
        // As many bytes as parts hold: there is no empty last part.
        write(&storage, &written, &content[..2 * PART]);
        assert!(read(&storage, &written) == content[..2 * PART], "{store:?}");
        let mut reader = storage.open(&put).unwrap().file;
        for place in [PART as u64 + 3, 0, 2 * PART as u64 + 12_344] {
            reader.seek(SeekFrom::Start(place)).unwrap();
            let mut byte = [0];
            reader.read_exact(&mut byte).unwrap();
            assert_eq!(byte[0], content[place as usize], "{store:?} {place}");
        }
        assert_eq!(reader.seek(SeekFrom::End(5)).unwrap(), content.len() as u64 + 5);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        // One that is given up in the middle leaves what was there.
        let mut blob = storage.create(&put).unwrap();
        blob.write_all(&content[..PART + 1]).unwrap();
        drop(blob);
        assert!(read(&storage, &put) == content, "{store:?}");
        // Also if it becomes none after all: parts of another blob, and one that is missing.
        let mut blob = storage.create(&put).unwrap();
        blob.append_blob(&written, 7, PART as u64).unwrap();
        assert_eq!(blob.append_blob(&artifact(), 0, 1).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(blob.commit().unwrap().size, PART as u64);
        assert!(read(&storage, &put) == content[7..7 + PART], "{store:?}");
    }
}

#[test]
fn what_is_replaced_is_not_mixed_with_what_was_there() {
    for store in [S3, AZURE, GOOGLE] {
        let Some(((), storage)) = store.open() else { continue };
        let key = artifact();
        write(&storage, &key, &[1; 100_000]);
        let mut reader = storage.open(&key).unwrap().file;
        reader.read_exact(&mut [0; 10]).unwrap();
        write(&storage, &key, &[2; 100_000]);
        reader.seek(SeekFrom::Start(90_000)).unwrap();
        let error = reader.read(&mut [0; 10]).unwrap_err();
        assert!(error.to_string().contains("replaced"), "{store:?}: {error}");
    }
}

#[test]
fn a_client_sends_its_video_to_the_store() {
    let client = Client::new();
    for store in [S3, AZURE, GOOGLE] {
        let Some(((), storage)) = store.open() else { continue };
        let name = name();
        let key = BlobKey::Incoming { name };
        assert_eq!(storage.announced_file_name(&name).unwrap(), None);
        let address = storage.upload_address(&name, HOUR).unwrap().unwrap();
        let answer = client.put(&address, &[("content-type", b"video/mp4")], b"a video");
        assert!(matches!(answer.status, 200 | 201), "{store:?}: {}", String::from_utf8_lossy(&answer.body));
        assert_eq!(read(&storage, &key), b"a video");
        // Until a job is submitted, the client may send another one.
        client.put(&address, &[], b"another video");
        let video = BlobKey::Video { name, version: 1 };
        assert_eq!(storage.copy(&key, &video).unwrap().size, 13);
        client.put(&address, &[], b"late");
        assert_eq!(read(&storage, &video), b"another video");
        assert_eq!(storage.announced_file_name(&name).unwrap(), None);
    }
}

#[test]
fn the_name_of_the_file_comes_with_it() {
    let client = Client::new();
    let ways: [(TestStore, &str, &[u8], &str); 5] = [
        (S3, "content-disposition", b"attachment; filename=\"kitchen 1.mp4\"", "kitchen 1.mp4"),
        (S3, "content-disposition", b"attachment; filename*=UTF-8''K%C3%BCche.mp4", "Küche.mp4"),
        // Amazon wants its own headers to be signed, so there are none a client could add.
        (GOOGLE, "content-disposition", b"attachment; filename=kitchen.mp4", "kitchen.mp4"),
        (AZURE, "x-ms-blob-content-disposition", b"attachment; filename=kitchen.mp4", "kitchen.mp4"),
        (AZURE, "x-ms-meta-filename", b"kitchen.mp4", "kitchen.mp4"),
    ];
    for (store, header, value, expected) in ways {
        let Some(((), storage)) = store.open() else { continue };
        let name = name();
        let address = storage.upload_address(&name, HOUR).unwrap().unwrap();
        let answer = client.put(&address, &[(header, value)], b"a video");
        assert!(matches!(answer.status, 200 | 201), "{store:?} {header}: {}", answer.status);
        assert_eq!(
            storage.announced_file_name(&name).unwrap().as_deref(),
            Some(expected),
            "{store:?} {header}"
        );
    }
}

/// A client can write into a header what it likes; the video must be usable, whatever it was.
#[test]
fn a_file_name_in_another_alphabet_spoils_nothing() {
    let client = Client::new();
    let Some(((), storage)) = S3.open() else { return };
    let name = name();
    let address = storage.upload_address(&name, HOUR).unwrap().unwrap();
    let disposition = "attachment; filename=\"Küche.mp4\"".as_bytes();
    let answer = client.put(&address, &[("content-disposition", disposition)], b"a video");
    assert_eq!(answer.status, 200);
    let key = BlobKey::Incoming { name };
    assert_eq!(read(&storage, &key), b"a video");
    assert_eq!(storage.metadata(&key).unwrap().unwrap().size, 7);
    assert_eq!(storage.announced_file_name(&name).unwrap().as_deref(), Some("Küche.mp4"));
}

#[test]
fn an_address_opens_one_blob_for_one_purpose_and_a_while() {
    let client = Client::new();
    for store in CHECKING {
        let Some(((), storage)) = store.open() else { continue };
        let name = name();
        let address = storage.upload_address(&name, HOUR).unwrap().unwrap();
        let other = UploadAddress { url: address.url.replace("incoming/", "videos/"), ..address.clone() };
        assert_eq!(client.put(&other, &[], b"x").status, 403, "{store:?}: another blob");
        assert_eq!(client.put(&address, &[], b"a video").status / 100, 2, "{store:?}");
        assert_eq!(client.get(&address.url).status, 403, "{store:?}: another purpose");
        assert_ne!(client.ask(client.0.delete(&address.url)).status / 100, 2, "{store:?}: another purpose");
        let naked = address.url.split('?').next().unwrap();
        assert!(matches!(client.get(naked).status, 403 | 404 | 409), "{store:?}: no signature");
        assert_eq!(read(&storage, &BlobKey::Incoming { name }), b"a video");
        let brief = storage.upload_address(&name, Duration::from_secs(1)).unwrap().unwrap();
        std::thread::sleep(Duration::from_millis(2500));
        assert_eq!(client.put(&brief, &[], b"late").status, 403, "{store:?}: too late");
    }
}

#[test]
fn an_address_says_what_is_behind_it() {
    let client = Client::new();
    let disposition = "attachment; filename*=UTF-8''K%C3%BCche%20%221%22.ply";
    let answer =
        DownloadAnswer { content_type: "application/octet-stream", content_disposition: Some(disposition) };
    for store in CHECKING {
        let Some(((), storage)) = store.open() else { continue };
        let key = artifact();
        write(&storage, &key, b"a scene");
        let url = storage.download_address(&key, HOUR, &answer).unwrap().unwrap();
        let got = client.get(&url);
        assert_eq!((got.status, got.body.as_slice()), (200, &b"a scene"[..]), "{store:?}");
        assert_eq!(got.headers["content-disposition"], disposition, "{store:?}");
        assert_eq!(got.headers["content-type"], "application/octet-stream", "{store:?}");
        let part = client.ask(client.0.get(&url).header("range", "bytes=2-4"));
        assert_eq!((part.status, part.body.as_slice()), (206, &b"sce"[..]), "{store:?}");
        assert_eq!(client.get(&url.replace("ply", "exe")).status, 403, "{store:?}: it is signed");
        let picture = DownloadAnswer { content_type: "image/jpeg", content_disposition: None };
        let url = storage.download_address(&key, HOUR, &picture).unwrap().unwrap();
        let got = client.get(&url);
        assert_eq!(got.status, 200, "{store:?}");
        assert_eq!(got.headers["content-type"], "image/jpeg", "{store:?}");
        assert!(!got.headers.contains_key("content-disposition"), "{store:?}");
    }
}

/// What clients of Azure do with large files: they put `comp` to the address.
#[test]
fn a_client_of_azure_sends_blocks() {
    let client = Client::new();
    let Some(((), storage)) = AZURE.open() else { return };
    let name = name();
    let address = storage.upload_address(&name, HOUR).unwrap().unwrap();
    for (id, content) in [("YQ==", "first "), ("Yg==", "second")] {
        let url = format!("{}&comp=block&blockid={}", address.url, id.replace('=', "%3D"));
        assert_eq!(client.ask(client.0.put(url).body(content)).status, 201);
    }
    let list = "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList><Latest>YQ==</Latest><Latest>Yg==</Latest></BlockList>";
    let url = format!("{}&comp=blocklist", address.url);
    assert_eq!(client.ask(client.0.put(url).body(list)).status, 201);
    assert_eq!(read(&storage, &BlobKey::Incoming { name }), b"first second");
}

/// What an address says behind its `?`.
fn query_of(address: &str) -> BTreeMap<String, String> {
    let url = object_store::signer::Url::parse(address).unwrap();
    url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

/// Whether the signature of an address is one for `method`. Google's test server looks at none: so it is verified here, as Google's
/// manual says (V4 signing process).
fn is_signed_for_google(method: &str, address: &str) -> bool {
    let url = object_store::signer::Url::parse(address).unwrap();
    let pairs = query_of(address);
    let encode = |text: &str| {
        const UNRESERVED: percent_encoding::AsciiSet =
            percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
        percent_encoding::utf8_percent_encode(text, &UNRESERVED).to_string()
    };
    let query: Vec<String> = pairs
        .iter()
        .filter(|(name, _)| *name != "X-Goog-Signature")
        .map(|(name, value)| format!("{}={}", encode(name), encode(value)))
        .collect();
    let request = format!(
        "{method}\n{}\n{}\nhost:storage.googleapis.com\n\nhost\nUNSIGNED-PAYLOAD",
        url.path(),
        query.join("&")
    );
    let (_, scope) = pairs["X-Goog-Credential"].split_once('/').unwrap();
    let hash = crate::hex::hex(&<sha2::Sha256 as sha2::Digest>::digest(request.as_bytes()));
    let text = format!("GOOG4-RSA-SHA256\n{}\n{scope}\n{hash}", pairs["X-Goog-Date"]);
    let signature = &pairs["X-Goog-Signature"];
    let signature: Vec<u8> = (0..signature.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&signature[at..at + 2], 16).unwrap())
        .collect();
    let account = std::fs::read_to_string(std::env::var("GOOGLE_SERVICE_ACCOUNT").unwrap()).unwrap();
    let account: serde_json::Value = serde_json::from_str(&account).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (file, content) in [
        ("key", account["private_key"].as_str().unwrap().as_bytes()),
        ("text", text.as_bytes()),
        ("signature", &signature),
    ] {
        std::fs::write(folder.path().join(file), content).unwrap();
    }
    let openssl = |arguments: &[&str]| {
        let mut command = std::process::Command::new("openssl");
        command.args(arguments).current_dir(folder.path()).output().unwrap()
    };
    assert!(openssl(&["pkey", "-in", "key", "-pubout", "-out", "public"]).status.success());
    openssl(&["dgst", "-sha256", "-verify", "public", "-signature", "signature", "text"]).status.success()
}

#[test]
fn addresses_of_google_are_signed() {
    let Some(((), storage)) = GOOGLE.open() else { return };
    let answer = DownloadAnswer {
        content_type: "image/jpeg",
        content_disposition: Some("attachment; filename=\"a b\""),
    };
    let download = storage.download_address(&artifact(), HOUR, &answer).unwrap().unwrap();
    let query = query_of(&download);
    assert_eq!(query["response-content-type"], "image/jpeg");
    assert_eq!(query["response-content-disposition"], "attachment; filename=\"a b\"");
    assert_eq!(query["X-Goog-Expires"], "3600");
    assert!(is_signed_for_google("GET", &download), "{download}");
    assert!(!is_signed_for_google("PUT", &download), "{download}");
    // Of what a client sends along nothing is signed, so that it may say of which type its video is.
    let upload = storage.upload_address(&name(), HOUR).unwrap().unwrap();
    let query = query_of(&upload.url);
    assert_eq!((query["X-Goog-SignedHeaders"].as_str(), upload.headers.len()), ("host", 0));
    assert_eq!(query["X-Goog-Expires"], "3600");
    assert!(is_signed_for_google("PUT", &upload.url), "{}", upload.url);
    assert!(!is_signed_for_google("GET", &upload.url), "{}", upload.url);
}

/// In a network of containers the service has another name for the store than its clients.
#[test]
fn clients_may_reach_the_store_by_another_name() {
    let client = Client::new();
    for store in [S3, AZURE, GOOGLE] {
        let Some(address) = store.address() else { continue };
        let (_, inner) = address.split_once("endpoint=").unwrap();
        let outer = inner.replace("127.0.0.1", "localhost");
        let storage = ObjectStorage::open(&format!("{address}&public_endpoint={outer}")).unwrap();
        let name = name();
        let upload = storage.upload_address(&name, HOUR).unwrap().unwrap();
        assert!(upload.url.starts_with(&format!("{outer}/")), "{store:?}: {}", upload.url);
        assert_eq!(client.put(&upload, &[], b"a video").status / 100, 2, "{store:?}");
        assert_eq!(read(&storage, &BlobKey::Incoming { name }), b"a video");
        let answer = DownloadAnswer { content_type: "image/jpeg", content_disposition: None };
        let download = storage.download_address(&BlobKey::Incoming { name }, HOUR, &answer).unwrap().unwrap();
        assert!(download.starts_with(&format!("{outer}/")), "{store:?}: {download}");
        assert_eq!(client.get(&download).body, b"a video", "{store:?}");
    }
}

#[test]
fn names_below_a_prefix_of_any_kind_are_listed() {
    let Some(address) = S3.address() else { return };
    let (place, parameters) = address.split_once('?').unwrap();
    let storage = ObjectStorage::open(&format!("{place}/deep%20er/%C3%BC+?{parameters}")).unwrap();
    let key = artifact();
    write(&storage, &key, b"a scene");
    assert_eq!(storage.list(key.kind(), Duration::ZERO).unwrap(), [key]);
    assert_eq!(read(&storage, &key), b"a scene");
    // Of a storage above it these are somebody else's names.
    let above = ObjectStorage::open(&address).unwrap();
    assert_eq!(above.list(key.kind(), Duration::ZERO).unwrap(), []);
}

#[test]
fn a_bucket_that_is_missing_is_told_from_a_blob_that_is() {
    for (store, word) in [(S3, "bucket"), (AZURE, "container"), (GOOGLE, "bucket")] {
        let Some(address) = store.address() else { continue };
        let error = ObjectStorage::open(&address.replace("/tests/", "/nobodys/")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{store:?}: {error}");
        assert!(error.message().contains(&format!("no such {word}")), "{store:?}: {error}");
    }
}

#[test]
fn a_store_that_is_away_is_waited_for_and_then_told() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    if S3.address().is_none() {
        return;
    }
    let begin = Instant::now();
    let address = format!("s3://tests/p?endpoint=http://127.0.0.1:{port}");
    let error = ObjectStorage::open(&address).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.message().contains("refused"), "{error}");
    assert!(error.hint_text().is_some());
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
}

/// Hands on to the store, and breaks its first answers off after some bytes.
fn breaking_proxy(store: String, after: usize, times: u32) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let left = Arc::new(AtomicU32::new(times));
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, store) = (client.unwrap(), TcpStream::connect(&store).unwrap());
            let (mut from, mut to) = (client.try_clone().unwrap(), store.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            let left = Arc::clone(&left);
            std::thread::spawn(move || {
                let (mut store, mut client) = (store, client);
                let passed =
                    std::io::copy(&mut Read::by_ref(&mut store).take(after as u64), &mut client).unwrap_or(0);
                let breaks = || left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
                if passed < after as u64 || breaks().is_err() {
                    let _ = std::io::copy(&mut store, &mut client);
                }
                let _ = client.shutdown(std::net::Shutdown::Both);
                let _ = store.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    address
}

#[test]
fn a_connection_that_breaks_is_made_again() {
    for store in [S3, AZURE, GOOGLE] {
        let Some(address) = store.address() else { continue };
        let (key, content) = (artifact(), bytes(PART - 1));
        write(&ObjectStorage::open(&address).unwrap(), &key, &content);
        // What goes by TLS cannot be broken off at a byte.
        let Some((_, endpoint)) = address.split_once("endpoint=http://") else { continue };
        let server = endpoint.split('/').next().unwrap();
        let proxy = breaking_proxy(server.to_owned(), 1 << 20, 5);
        let storage = ObjectStorage::open(&address.replace(server, &proxy)).unwrap();
        assert!(read(&storage, &key) == content, "{store:?}");
    }
}
