//! TLS to a server whose certificate the tests have made: it is believed by who has signed that and by the name in it, and by nothing
//! else.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use super::PostgresDatabase;
use super::test_server::{Server, as_ordinary_user};
use crate::error::{ErrorKind, Result};
use crate::prerequisites::Prerequisite;

/// The name in the server's certificate. Nobody has it: connections are led to this machine.
const HOST: &str = "db.example.org";
/// How OpenSSL makes a key.
const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";

/// Runs OpenSSL in `folder` as whoever runs the server: it takes nobody else's key.
fn openssl(folder: &Path, arguments: &str) {
    let mut command = as_ordinary_user(Path::new("openssl"));
    let done = command.args(arguments.split(' ')).current_dir(folder).output().unwrap();
    assert!(done.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A server that speaks TLS, and its port on this machine. In its folder are `ours.pem`, which has signed its certificate, and
/// `other.pem`, which has not.
fn server_with_tls() -> Option<(Server, u16)> {
    let mut server = Server::alone()?;
    let folder = server.folder().to_owned();
    for signer in ["ours", "other"] {
        let names = format!("-subj /CN={signer} -keyout {signer}.key -out {signer}.pem");
        openssl(&folder, &format!("req -x509 {KEY} -days 2 {names}"));
    }
    let names = format!("-subj /CN=server -addext subjectAltName=DNS:{HOST}");
    openssl(&folder, &format!("req -new {KEY} {names} -keyout server.key -out server.csr"));
    let signed =
        "x509 -req -in server.csr -copy_extensions copy -CA ours.pem -CAkey ours.key -set_serial 1 -days 2";
    openssl(&folder, &format!("{signed} -out server.pem"));
    fs::set_permissions(folder.join("server.key"), Permissions::from_mode(0o600)).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let folder = folder.display();
    server.restart_with(format!(
        "-c listen_addresses=127.0.0.1 -c port={port} -c ssl=on -c ssl_cert_file={folder}/server.pem -c ssl_key_file={folder}/server.key"
    ));
    Some((server, port))
}

/// Whether a connection to the server by the name `host`, which it was asked for with these parameters, is one by TLS: as the server
/// sees it.
fn is_by_tls(port: u16, host: &str, parameters: &str) -> Result<bool> {
    let address = format!("postgres://postgres@{host}:{port}/postgres?hostaddr=127.0.0.1&{parameters}");
    let database = PostgresDatabase::open_to_look(&address)?;
    // Who is refused once is refused again.
    let database = PostgresDatabase { tries: Duration::ZERO, ..database };
    const SEEN: &str = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let seen: Option<bool> = database.read(|session| session.first(SEEN, &[], |row| row.get(0)))?;
    Ok(seen.unwrap())
}

#[test]
fn a_server_is_believed_by_its_certificate_and_its_name() {
    let Some((server, port)) = server_with_tls() else {
        return Prerequisite::Postgres.is_missing("PostgreSQL's server");
    };
    let signer = |name: &str| format!("sslrootcert={}", server.folder().join(name).display());
    let (ours, other) = (signer("ours.pem"), signer("other.pem"));
    for mode in ["", "&sslmode=require", "&sslmode=verify-ca", "&sslmode=verify-full"] {
        assert!(is_by_tls(port, HOST, &format!("{ours}{mode}")).unwrap(), "{mode}");
        let refused = |host: &str, signer: &str| {
            let error = is_by_tls(port, host, &format!("{signer}{mode}")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io, "{mode}: {error}");
            error.message().to_owned()
        };
        let unknown = refused(HOST, &other);
        assert!(unknown.contains("invalid peer certificate: UnknownIssuer"), "{mode}: {unknown}");
        let named = refused("elsewhere.example.org", &ours);
        assert!(named.contains("not valid for name \"elsewhere.example.org\""), "{mode}: {named}");
        assert!(named.contains(HOST), "{mode}: {named}");
        let missing = refused(HOST, &signer("nobodys.pem"));
        assert!(missing.contains("nobodys.pem"), "{mode}: {missing}");
    }
    assert!(!is_by_tls(port, HOST, "sslmode=disable").unwrap());
}
