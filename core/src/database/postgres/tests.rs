//! What the suite of every database cannot ask: several machines, connections that break, a server that crashes.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::super::suite;
use super::test_server::Server;
use super::*;
use crate::database::{
    Abilities, AccountRows, Claim, Inserted, JobRows, LeaseState, NewInvitation, NewJob, NewSession,
    QueueRows, UploadRows, UploadedVideo, UserRows, WebhookRows,
};
use crate::job::{
    BlobName, Job, JobId, JobRequest, JobStatus, Limits, ListQuery, Tier, User, UserId, VideoExtension,
    WebhookId,
};
use crate::prerequisites::Prerequisite;

mod promises {
    use super::*;

    fn open(clock: Arc<dyn Clock>, order: QueueOrder) -> Option<(tempfile::TempDir, PostgresDatabase)> {
        let database = super::database()?;
        Some((tempfile::tempdir().unwrap(), database.with_clock(clock).with_order(order)))
    }

    suite::tests!(open);
}

/// A new, empty database, if there is a server.
fn database() -> Option<PostgresDatabase> {
    PostgresDatabase::open(&server()?.database()).map(Some).unwrap()
}

#[track_caller]
fn server() -> Option<&'static Server> {
    let server = Server::get();
    if server.is_none() {
        Prerequisite::Postgres.is_missing("PostgreSQL's server");
    }
    server
}

#[test]
fn settings_with_which_commits_are_lost_are_seen() {
    let Some(server) = server() else { return };
    let address = server.database();
    let name = address.rsplit('/').next().unwrap();
    let state = PostgresDatabase::open_to_look(&address).unwrap().server_state().unwrap();
    assert_eq!((state.unsafe_settings, state.is_standby), (vec![], false));
    assert!((1..=state.max_connections).contains(&state.connections) && state.max_connections == 300);
    assert!(Timestamp::now().as_micros().abs_diff(state.now.as_micros()) < 60_000_000);
    server.sql(name, &format!("ALTER DATABASE {name} SET synchronous_commit = off"));
    let state = PostgresDatabase::open_to_look(&address).unwrap().server_state().unwrap();
    assert_eq!(state.unsafe_settings, ["synchronous_commit = off"]);
    assert_eq!(PostgresDatabase::open_to_look(&address).unwrap().schema_version().unwrap().found, 0);
}

impl PostgresDatabase {
    fn user(&self, name: &str) -> UserId {
        let user_id = UserId::random();
        let user = User { user_id, name: name.into(), tier: Tier::Free, created_at: Timestamp::now() };
        self.add_user(&user).unwrap();
        user_id
    }

    fn upload_of(&self, user: UserId) -> BlobName {
        let name = BlobName::random(VideoExtension::Mp4);
        self.create_upload(user, name, 7200).unwrap();
        let video =
            UploadedVideo { version: 1, size: 10, sha256: Some([7; 32]), file_name: None, block_list: None };
        self.finish_upload(&name, &video).unwrap();
        name
    }

    fn submit(&self, user: UserId, limits: &Limits) -> Result<JobId> {
        let job_id = JobId::random();
        let request = JobRequest::new(self.upload_of(user));
        let new = NewJob { user, job_id, request, video_version: 1, idempotency: None };
        self.insert_job(&new, limits).map(|_| job_id)
    }

    fn take(&self, owner: &str) -> Option<Claim> {
        self.claim(owner, "worker", 3600, &Abilities::ALL).unwrap()
    }
}

#[test]
fn each_job_is_claimed_once_and_users_take_turns() {
    let Some(database) = database() else { return };
    let database = database.with_order(QueueOrder::Users);
    let users: Vec<UserId> = (0..10).map(|n| database.user(&format!("user{n}"))).collect();
    for user in users.iter().flat_map(|user| [*user; 8]) {
        database.submit(user, &Limits::default()).unwrap();
    }
    let claims: Vec<(usize, JobId)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|n| {
                let database = &database;
                scope.spawn(move || {
                    let owner = format!("process{n}");
                    (0..10).map(|turn| (turn, database.take(&owner).unwrap().lease.job)).collect::<Vec<_>>()
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert_eq!(claims.iter().map(|(_, job)| job).collect::<HashSet<_>>().len(), 80);
    assert_eq!(database.take("late"), None);
    // Among so many at once turns are not exact, but nobody waits for the end of another one's queue.
    let early: HashSet<UserId> = claims
        .iter()
        .filter(|(turn, _)| *turn < 4)
        .map(|(_, job)| database.all_jobs().unwrap().iter().find(|j| j.job_id == *job).unwrap().details.owner)
        .collect();
    assert_eq!(early.len(), 10);
}

/// Containers on one machine, each with a limit of its own, take nothing from each other; who has no limit sees them all.
#[test]
fn memory_is_that_of_the_group() {
    let Some(server) = server() else { return };
    let address = server.database();
    let open = || PostgresDatabase::open(&address).unwrap();
    let (machine, one, other) = (open(), open().in_group("one"), open().in_group("another"));
    let user = machine.user("anna");
    for _ in 0..4 {
        machine.submit(user, &Limits::default()).unwrap();
    }
    // Room for one job and a half.
    let each = u64::from(JobRequest::new(machine.upload_of(user)).training_max_num_gaussians);
    let abilities = Abilities { all_gaussians: each / 2 * 3, beside: 0, ..Abilities::ALL };
    let takes = |of: &PostgresDatabase| of.claim("p", "w", 60, &abilities).unwrap().is_some();
    assert!(takes(&one) && !takes(&one));
    assert!(takes(&other) && !takes(&other));
    assert!(!takes(&machine), "both are on it");
    assert!(
        machine.claim("p", "w", 60, &Abilities { all_gaussians: 3 * each, ..abilities }).unwrap().is_some()
    );
}

/// A job by itself and among all has the same place, whatever runs and whoever was served last.
#[test]
fn places_in_the_queue_agree() {
    for order in [QueueOrder::Submitted, QueueOrder::Users] {
        let Some(database) = database() else { return };
        let database = database.with_order(order);
        let users: Vec<UserId> = (0..4).map(|n| database.user(&format!("user{n}"))).collect();
        // Some have many jobs, one has none.
        for (turn, user) in users.iter().take(3).enumerate().flat_map(|(n, user)| [(n, user); 5]) {
            for _ in 0..=turn {
                database.submit(*user, &Limits::default()).unwrap();
            }
        }
        for _ in 0..7 {
            let all = database.all_jobs().unwrap();
            let alone = |job: &Job| database.job(job.details.owner, job.job_id).unwrap().unwrap().status;
            assert!(all.iter().all(|job| job.status == alone(job)), "{all:?}");
            let mut places: Vec<u64> = all.iter().filter_map(place).collect();
            places.sort_unstable();
            assert_eq!(places, (1..=places.len() as u64).collect::<Vec<_>>());
            let first = all.iter().find(|job| place(job) == Some(1)).unwrap().job_id;
            assert_eq!(database.take("me").unwrap().lease.job, first);
        }
    }
}

fn place(job: &Job) -> Option<u64> {
    match job.status {
        JobStatus::Queued { position } => position,
        _ => None,
    }
}

#[test]
fn limits_are_exact_however_many_submit_at_once() {
    let Some(database) = database() else { return };
    let user = database.user("anna");
    let limits = Limits { max_queued_jobs: 5, ..Limits::default() };
    let taken = std::thread::scope(|scope| {
        let all: Vec<_> = (0..12).map(|_| scope.spawn(|| database.submit(user, &limits))).collect();
        all.into_iter().map(|one| one.join().unwrap()).filter(Result::is_ok).count()
    });
    assert_eq!(taken, 5);
    // One key, one job.
    let user = database.user("eve");
    let blob = database.upload_of(user);
    let jobs: HashSet<JobId> = std::thread::scope(|scope| {
        let submit = || {
            let (job_id, request) = (JobId::random(), JobRequest::new(blob));
            let idempotency = Some(("key".to_owned(), [1; 32]));
            let new = NewJob { user, job_id, request, video_version: 1, idempotency };
            match database.insert_job(&new, &Limits::default()).unwrap() {
                Inserted::Added(answer) | Inserted::Before(answer) => answer.job_id,
                Inserted::VideoChanged => panic!("nobody changed it"),
            }
        };
        let all: Vec<_> = (0..8).map(|_| scope.spawn(submit)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(jobs.len(), 1);
}

/// The job that is deleted is the only one of its video, until the submission beside it is done.
#[test]
fn a_video_that_is_submitted_again_meanwhile_outlives_its_first_job() {
    let Some(server) = server() else { return };
    let address = server.database();
    let name = address.rsplit('/').next().unwrap();
    let database = PostgresDatabase::open(&address).unwrap();
    let user = database.user("anna");
    let blob = database.upload_of(user);
    let submit = || {
        let (job_id, request) = (JobId::random(), JobRequest::new(blob));
        let new = NewJob { user, job_id, request, video_version: 1, idempotency: None };
        assert!(matches!(database.insert_job(&new, &Limits::default()).unwrap(), Inserted::Added(_)));
        job_id
    };
    let wait_for = |event: &str, count: &str| {
        let waiting = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}' AND {event}");
        let began = Instant::now();
        while server.sql(name, &waiting).trim() != count {
            assert!(began.elapsed() < Duration::from_secs(20), "{event}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let first = submit();
    std::thread::scope(|scope| {
        // Both come to the row of the upload while somebody has it, the submission first.
        let hold = format!("SELECT 1 FROM uploads WHERE blob_name = '{blob}' FOR UPDATE; SELECT pg_sleep(4)");
        scope.spawn(move || server.sql(name, &hold));
        wait_for("wait_event = 'PgSleep'", "1");
        let second = scope.spawn(submit);
        wait_for("wait_event_type = 'Lock'", "1");
        let deleted = scope.spawn(|| database.mark_deleted(user, first).unwrap());
        wait_for("wait_event_type = 'Lock'", "2");
        assert!(deleted.join().unwrap());
        let second = second.join().unwrap();
        assert!(!database.upload(&blob).unwrap().unwrap().deleted, "a job waits for it");
        assert_eq!(database.take("me").unwrap().lease.job, second);
        database.mark_deleted(user, second).unwrap();
        assert!(database.upload(&blob).unwrap().unwrap().deleted);
    });
}

#[test]
fn connections_that_break_are_made_again() {
    let Some(server) = server() else { return };
    let address = server.database();
    let name = address.rsplit('/').next().unwrap();
    let database = PostgresDatabase::open(&address).unwrap();
    let user = database.user("anna");
    let done = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            for _ in 0..60 {
                let job =
                    database.submit(user, &Limits { max_queued_jobs: 1000, ..Limits::default() }).unwrap();
                let claim = database.take("me").unwrap();
                assert_eq!((claim.lease.job, claim.lease.attempt), (job, 1));
                assert_eq!(database.heartbeat(&claim.lease, 60).unwrap(), LeaseState::Held);
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut before = done.load(Ordering::Relaxed);
        while !work.is_finished() {
            let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'libreconstruct'";
            server.sql(name, &format!("{cut} AND datname = '{name}'"));
            std::thread::sleep(std::time::Duration::from_millis(15));
            // On a busy machine 15 ms are too short for anything, and no number of tries would be enough.
            while !work.is_finished() && done.load(Ordering::Relaxed) == before {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            before = done.load(Ordering::Relaxed);
        }
        work.join().unwrap();
    });
    assert_eq!(database.list_jobs(user, &ListQuery::default()).unwrap().jobs.len(), 60);
}

#[test]
fn strange_and_newer_databases_are_left_alone() {
    let Some(server) = server() else { return };
    let address = server.database();
    let name = address.rsplit('/').next().unwrap();
    server.sql(name, "CREATE TABLE mine (x INT)");
    let refused = PostgresDatabase::open(&address).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidFile);
    assert!(refused.message().contains("another program"), "{refused}");
    server.sql(name, "DROP TABLE mine");
    let ours = PostgresDatabase::open(&address).unwrap();
    assert_eq!(ours.schema_version().unwrap(), SchemaVersion { found: 11, newest: 11 });
    assert_eq!(ours.integrity_check().unwrap(), [""; 0]);
    drop(PostgresDatabase::open(&address).unwrap());
    server.sql(name, "UPDATE schema_version SET version = 99, usable_from = 98");
    assert!(PostgresDatabase::open(&address).unwrap_err().message().contains("99"));
    // As programs leave it that note nothing.
    server.sql(name, "ALTER TABLE schema_version DROP COLUMN usable_from");
    assert!(PostgresDatabase::open(&address).unwrap_err().message().contains("99"));
    let none = PostgresDatabase::open(&address.replace(name, "none")).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::Io);
    assert!(none.message().contains("\"none\" does not exist"), "{none}");
}

/// While machines are brought to a new version one after the other, one that still has the old may be started anew.
#[test]
fn tables_of_the_next_version_are_used_if_they_say_that_they_can_be() {
    let Some(server) = server() else { return };
    let address = server.database();
    let name = address.rsplit('/').next().unwrap();
    let (now, next) = (schema::newest(), schema::newest() + 1);
    drop(PostgresDatabase::open(&address).unwrap());
    // What the next version does: it adds, and says who can still use it.
    server.sql(name, "ALTER TABLE jobs ADD COLUMN another BIGINT");
    server.sql(name, &format!("UPDATE schema_version SET version = {next}, usable_from = {now}"));
    let database = PostgresDatabase::open(&address).unwrap();
    assert_eq!(database.schema_version().unwrap(), SchemaVersion { found: next, newest: now });
    let user = database.user("anna");
    let job = database.submit(user, &Limits::default()).unwrap();
    assert_eq!(database.take("me").unwrap().lease.job, job);
    server.sql(name, &format!("UPDATE schema_version SET usable_from = {next}"));
    assert_eq!(PostgresDatabase::open(&address).unwrap_err().kind(), ErrorKind::InvalidFile);
    // Of its own tables it says that the version before can use them.
    let noted = format!("SELECT 1 FROM schema_version WHERE usable_from = {}", now - 1);
    let another = PostgresDatabase::open(&server.database()).unwrap();
    assert!(another.read(|c| c.exists(&noted, &[])).unwrap());
}

#[test]
fn processes_that_open_a_new_database_at_once_make_it_once() {
    let Some(server) = server() else { return };
    let address = server.database();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..6).map(|_| scope.spawn(|| PostgresDatabase::open(&address))).collect();
        all.into_iter().for_each(|one| drop(one.join().unwrap().unwrap()));
    });
}

#[test]
fn rows_go_to_a_file_and_come_back() {
    let Some(first) = database() else { return };
    let users = [first.user("anna"), first.user("eve")];
    for user in users.iter().flat_map(|user| [*user; 3]) {
        first.submit(user, &Limits::default()).unwrap();
    }
    let claim = first.take("me").unwrap();
    // What a webhook is to be told goes along with it.
    let hook = WebhookId::random();
    first.add_webhook(users[0], hook, "https://a.example/", 1).unwrap();
    first
        .cancel_job(
            users[0],
            first.take("me").unwrap().lease.job,
            &crate::job::Failure { code: "a".into(), message: "b".into() },
        )
        .unwrap();
    // A password goes along, and what is open does not.
    let (invitation, session) = ([1; 32], [2; 32]);
    let new = NewInvitation { token: invitation, user: users[0], sets_password: true, lifetime_seconds: 60 };
    first.add_invitation(&new).unwrap();
    let begun = NewSession { token: session, agent: String::new(), idle_seconds: 60, lifetime_seconds: 60 };
    first.accept_invitation(&invitation, Some("hash"), &begun).unwrap().unwrap();
    first.add_invitation(&new).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jobs.db");
    crate::database::UpkeepRows::copy_to(&first, &file).unwrap();
    let second = database().unwrap();
    assert_eq!(second.take_rows(&file).unwrap(), RowsTaken { rows: 2 + 1 + 6 + 6 + 1 + 1, before: false });
    assert_eq!(second.password(users[0]).unwrap().as_deref(), Some("hash"));
    assert_eq!((second.session(&session).unwrap(), second.invitation(&invitation).unwrap()), (None, None));
    assert!(first.session(&session).unwrap().is_some());
    let told = |d: &PostgresDatabase| d.deliveries(users[0], hook, None, 9).unwrap().unwrap();
    assert_eq!((told(&second), told(&second).len()), (told(&first), 1));
    // There it runs, here it waits: these are other rows.
    let error = second.take_rows(&file).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains("of jobs differs"), "{error}");
    // The job that ran waits, at its old place; all else is the same.
    assert_eq!(
        second.take("you").unwrap().lease,
        crate::database::Lease { attempt: 2, owner: "you".into(), ..claim.lease }
    );
    let titles = |d: &PostgresDatabase| {
        d.all_jobs().unwrap().into_iter().map(|j| (j.job_id, j.title, j.details.failure)).collect::<Vec<_>>()
    };
    assert_eq!(titles(&first), titles(&second));
    let job = second.submit(users[0], &Limits::default()).unwrap();
    let failure = crate::job::Failure { code: "cancelled".into(), message: "b".into() };
    second.cancel_job(users[0], job, &failure).unwrap();
    assert_eq!(told(&second).len(), 2);
}

#[test]
fn rows_that_were_taken_are_known_again() {
    let Some(first) = database() else { return };
    let user = first.user("anna");
    // More than one statement adds, and than are compared at once.
    for _ in 0..1050 {
        first.upload_of(user);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jobs.db");
    crate::database::UpkeepRows::copy_to(&first, &file).unwrap();
    let second = database().unwrap();
    assert_eq!(second.take_rows(&file).unwrap(), RowsTaken { rows: 1051, before: false });
    assert_eq!(second.take_rows(&file).unwrap(), RowsTaken { rows: 1051, before: true });
    second.set_tier(user, Tier::Enterprise).unwrap();
    let differs = second.take_rows(&file).unwrap_err();
    assert!(differs.message().contains("of users differs"), "{differs}");
    second.set_tier(user, Tier::Free).unwrap();
    second.user("eve");
    let more = second.take_rows(&file).unwrap_err();
    assert!(more.message().contains("2 in users instead of 1"), "{more}");
}

/// Heart-beats leave nothing in the indexes, so tables do not grow by them.
#[test]
fn heart_beats_are_light() {
    // A server of its own: while another test's transaction lasts, old rows are kept and no update is light.
    let Some(server) = Server::alone() else { return };
    let address = server.database();
    let name = address.rsplit('/').next().unwrap();
    let database = PostgresDatabase::open(&address).unwrap();
    let user = database.user("anna");
    let limits = Limits { max_queued_jobs: 1000, ..Limits::default() };
    for _ in 0..40 {
        database.submit(user, &limits).unwrap();
    }
    let leases: Vec<_> = (0..20).map(|_| database.take("me").unwrap().lease).collect();
    drop(database);
    server.sql(name, "VACUUM FULL jobs");
    let count = "SELECT n_tup_upd || ' ' || n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'jobs'";
    let counts = || {
        let text = server.sql(name, count);
        let (all, hot) = text.trim().split_once(' ').unwrap();
        (all.parse::<u32>().unwrap(), hot.parse::<u32>().unwrap())
    };
    // What a session has counted is told at its end, if not before: each claim is an update and each beat.
    let counted = |updates: u32| {
        let end = Instant::now() + std::time::Duration::from_secs(60);
        loop {
            let now = counts();
            if now.0 >= updates || Instant::now() > end {
                break now;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    };
    let before = counted(20);
    let beats = 400;
    let database = PostgresDatabase::open(&address).unwrap();
    for lease in leases.iter().cycle().take(beats) {
        database.heartbeat(lease, 60).unwrap();
    }
    drop(database);
    let after = counted(before.0 + beats as u32);
    let (all, light) = (after.0 - before.0, after.1 - before.1);
    assert!(all == beats as u32 && light * 10 > all * 8, "{light} of {all}");
}

#[test]
fn nothing_that_was_acknowledged_is_lost_when_the_server_crashes() {
    // A server of its own: the others' go on.
    let Some(server) = Server::alone() else { return };
    let database = PostgresDatabase::open(&server.database()).unwrap();
    let user = database.user("anna");
    let limits = Limits { max_queued_jobs: 10_000, ..Limits::default() };
    let end = Instant::now() + std::time::Duration::from_secs(6);
    let (jobs, claims) = std::thread::scope(|scope| {
        let submitters: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut jobs = Vec::new();
                    while Instant::now() < end {
                        jobs.push(database.submit(user, &limits).unwrap());
                    }
                    jobs
                })
            })
            .collect();
        let workers: Vec<_> = (0..2)
            .map(|n| {
                let database = &database;
                scope.spawn(move || {
                    let (owner, mut claims) = (format!("process{n}"), Vec::new());
                    while Instant::now() < end {
                        claims.extend(
                            database.take(&owner).map(|claim| (claim.lease.job, claim.lease.attempt)),
                        );
                    }
                    claims
                })
            })
            .collect();
        for _ in 0..2 {
            std::thread::sleep(std::time::Duration::from_millis(1500));
            server.crash();
        }
        let jobs: Vec<_> = submitters.into_iter().flat_map(|one| one.join().unwrap()).collect();
        let claims: Vec<_> = workers.into_iter().flat_map(|one| one.join().unwrap()).collect();
        (jobs, claims)
    });
    let there: HashSet<JobId> = database.all_jobs().unwrap().into_iter().map(|job| job.job_id).collect();
    assert!(jobs.iter().all(|job| there.contains(job)), "{} of {}", there.len(), jobs.len());
    assert!(jobs.len() > 20 && claims.len() > 10, "{} {}", jobs.len(), claims.len());
    assert_eq!(
        claims.iter().collect::<HashSet<_>>().len(),
        claims.len(),
        "a job was claimed twice at one attempt"
    );
}
