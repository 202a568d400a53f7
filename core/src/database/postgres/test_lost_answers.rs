//! COMMITs whose answer does not arrive, while the database cannot be reached for a while after, or crashes.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::PostgresDatabase;
use super::session::Session;
use super::test_server::{SOCKET, Server, address_in};
use crate::database::UserRows;
use crate::error::ErrorKind;
use crate::job::UserId;
use crate::prerequisites::Prerequisite;

/// A way to the server that breaks at a COMMIT, and turns some clients away after that.
struct Way {
    server: PathBuf,
    /// Nothing is lost while this is none.
    loses: Mutex<Option<Loss>>,
    /// How many more clients are turned away.
    refuses: AtomicU32,
}

#[derive(Clone, Copy)]
struct Loss {
    /// How many clients are turned away. Clients, not a time: on a busy machine it does not matter how long each of them takes.
    refuses: u32,
    /// Whether the COMMIT gets to the server, and only its answer is lost.
    is_heard: bool,
}

impl Way {
    /// Listens in `folder` as PostgreSQL would.
    fn open(folder: &std::path::Path, server: &Server) -> Arc<Self> {
        let listener = UnixListener::bind(folder.join(SOCKET)).unwrap();
        let way =
            Arc::new(Self { server: server.socket(), loses: Mutex::new(None), refuses: AtomicU32::new(0) });
        let shared = way.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let way = shared.clone();
                std::thread::spawn(move || way.pass(client.unwrap()));
            }
        });
        way
    }

    fn pass(&self, client: UnixStream) {
        let one_less = |left: u32| left.checked_sub(1);
        if self.refuses.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            return;
        }
        let server = UnixStream::connect(&self.server).unwrap();
        let (mut from_server, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let back = std::thread::spawn(move || {
            let _ = std::io::copy(&mut from_server, &mut to_client);
            let _ = to_client.shutdown(Shutdown::Both);
        });
        let (mut client, mut server, mut piece) = (client, server, [0; 4096]);
        while let Ok(count @ 1..) = client.read(&mut piece) {
            let loss = *self.loses.lock().unwrap();
            if let (Some(loss), true) = (loss, piece[..count].ends_with(b"COMMIT\0")) {
                self.refuses.store(loss.refuses, Ordering::Relaxed);
                *self.loses.lock().unwrap() = None;
                // The client hears nothing more; the server does its work.
                client.shutdown(Shutdown::Both).unwrap();
                if loss.is_heard {
                    server.write_all(&piece[..count]).unwrap();
                    std::thread::sleep(Duration::from_millis(100));
                }
                break;
            }
            if server.write_all(&piece[..count]).is_err() {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Both);
        back.join().unwrap();
    }
}

/// Adds a user, and counts how often the work is done.
fn add_user(database: &PostgresDatabase, count: &AtomicU32) -> crate::error::Result<()> {
    let user = UserId::random();
    database.write("database.add_user.commit", |t| {
        count.fetch_add(1, Ordering::Relaxed);
        let sql = "INSERT INTO users (user_id, name, tier, created_at) VALUES ($1, 'anna', 'free', 0)";
        t.run(sql, super::values::values![user]).map(drop)
    })
}

/// Adds a user while the answer to the COMMIT is lost and the next clients are turned away, and tries for one second: how often the
/// work was done, what came of it, and whether the user is there.
fn add_user_unheard(refuses: u32) -> Option<(u32, crate::error::Result<()>, bool)> {
    let Some(server) = Server::get() else {
        Prerequisite::Postgres.is_missing("PostgreSQL's server");
        return None;
    };
    let name = server.database().rsplit('/').next().unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let way = Way::open(folder.path(), server);
    let database = PostgresDatabase::open(&address_in(folder.path(), &name)).unwrap();
    let database = PostgresDatabase { tries: Duration::from_secs(1), ..database };
    // All other connections are in use: to ask what became of it there is only the place of the one that broke.
    let others = 1..database.pool.status().max_size;
    let _in_use: Vec<Session> = others.map(|_| Session::open(&database.pool).unwrap()).collect();
    let count = AtomicU32::new(0);
    *way.loses.lock().unwrap() = Some(Loss { refuses, is_heard: true });
    let added = add_user(&database, &count);
    way.refuses.store(0, Ordering::Relaxed);
    let there = database.user_by_name("anna").unwrap().is_some();
    Some((count.into_inner(), added, there))
}

#[test]
fn what_was_committed_is_found_to_be_so() {
    let Some((count, added, there)) = add_user_unheard(1) else { return };
    added.unwrap();
    assert!(there && count == 1, "{count}");
}

/// All looks at what became of it fail: within a second there are five, 0, 50, 150, 350 and 750 ms after the first or later. Who did
/// the work again after them would get through.
#[test]
fn what_may_be_committed_is_not_done_again() {
    let Some((count, added, there)) = add_user_unheard(5) else { return };
    let error = added.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.message().contains("not known whether"), "{error}");
    assert!(error.hint_text().is_some(), "{error:?}");
    assert!(there && count == 1, "{count}");
}

/// A transaction that never reached the disk is gone after a crash, and PostgreSQL gives its number to another, which is committed.
#[test]
fn what_a_crash_has_undone_is_done_again() {
    let Some(server) = Server::alone() else {
        return Prerequisite::Postgres.is_missing("PostgreSQL's server");
    };
    // Nothing gets to the disk before somebody waits for it.
    server.sql("postgres", "ALTER SYSTEM SET wal_writer_delay = '10s'");
    server.crash();
    let name = server.database().rsplit('/').next().unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let way = Way::open(folder.path(), &server);
    let database = PostgresDatabase::open(&address_in(folder.path(), &name)).unwrap();
    let database = PostgresDatabase { tries: Duration::from_secs(120), ..database };
    let count = AtomicU32::new(0);
    *way.loses.lock().unwrap() = Some(Loss { refuses: u32::MAX, is_heard: false });
    std::thread::scope(|scope| {
        let added = scope.spawn(|| add_user(&database, &count));
        while way.loses.lock().unwrap().is_some() {
            std::thread::sleep(Duration::from_millis(1));
        }
        server.crash();
        for number in 0..10 {
            let values = format!("('{number}', 'user{number}', 'free', 0)");
            server
                .sql(&name, &format!("INSERT INTO users (user_id, name, tier, created_at) VALUES {values}"));
        }
        way.refuses.store(0, Ordering::Relaxed);
        added.join().unwrap().unwrap();
    });
    assert!(database.user_by_name("anna").unwrap().is_some());
    assert_eq!(count.into_inner(), 2);
}
