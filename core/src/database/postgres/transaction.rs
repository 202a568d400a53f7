//! Transactions: each is tried again where the connection, not the work, was at fault.

use std::time::{Duration, Instant};

use deadpool_postgres::Pool;

use super::connection::{Fault, Sql};
use super::marks::{Mark, Marks};
use super::session::Session;
use crate::error::{Error, ErrorKind};

/// How long a transaction is tried again while the database cannot be reached or has no room: so long takes the restart of a
/// server, or a stand-by that takes over.
pub(super) const TRIES: Duration = Duration::from_secs(15);
/// The same for who only looks at it, and tells of what keeps it away.
pub(super) const LOOK: Duration = Duration::from_secs(3);
/// The first rest between two tries; each further one is twice as long.
const FIRST_REST: Duration = Duration::from_millis(50);
/// The longest.
const LONGEST_REST: Duration = Duration::from_secs(2);

/// Runs `work` on a connection, each statement by itself; it only reads.
pub(super) fn read<T>(pool: &Pool, tries: Duration, mut work: impl FnMut(&Session) -> Sql<T>) -> Sql<T> {
    again_and_again(tries, || {
        let session = Session::open(pool)?;
        work(&session)
    })
}

/// Runs `work` on a connection, each statement by itself, and does not try again.
pub(super) fn once<T>(pool: &Pool, work: impl FnOnce(&Session) -> Sql<T>) -> Sql<T> {
    work(&Session::open(pool)?)
}

/// Runs `work`, which only reads, so that it sees one moment.
pub(super) fn read_at_one_moment<T>(
    pool: &Pool,
    tries: Duration,
    mut work: impl FnMut(&Session) -> Sql<T>,
) -> Sql<T> {
    again_and_again(tries, || {
        let mut session = Session::open(pool)?;
        session.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
        let value = work(&session)?;
        session.end("COMMIT")?;
        Ok(value)
    })
}

/// Runs `work` in a transaction of its own and makes it durable; `before_commit` is called before that. It is run again from its
/// beginning where it has left nothing.
pub(super) fn write<T>(
    pool: &Pool,
    marks: &Marks,
    tries: Duration,
    mut work: impl FnMut(&Session) -> Sql<T>,
    before_commit: impl Fn() -> std::result::Result<(), Error>,
) -> Sql<T> {
    let mark = marks.take();
    again_and_again(tries, || {
        let mut session = Session::open(pool)?;
        session.begin("BEGIN")?;
        let number = mark.next();
        let done = work(&session).and_then(|value| before_commit().map_err(Fault::Ours).map(|()| value));
        let set = |value| Ok((value, mark.set(&session, number)?));
        let (value, changes) = match done.and_then(set) {
            Ok(done) => done,
            Err(fault) => {
                // The work's own error counts; a connection that cannot even do this is closed.
                let _ = session.end("ROLLBACK");
                return Err(fault);
            }
        };
        let ended = session.end("COMMIT");
        // Its place in the pool is free from now on: who asks below what became of it needs one, and so do all others who ask.
        drop(session);
        match ended {
            Ok(()) => Ok(value),
            // The connection broke while the answer was on its way: whether it was committed, the server knows.
            Err(fault) if changes && fault.is_passing() => match committed(pool, tries, &mark, number)? {
                true => Ok(value),
                false => Err(fault),
            },
            Err(fault) => Err(fault),
        }
    })
}

/// Whether the transaction that set the mark to this number was committed; waits until it has ended.
fn committed(pool: &Pool, tries: Duration, mark: &Mark<'_>, number: i64) -> Sql<bool> {
    let ended = again_and_again(tries, || {
        let mut session = Session::open(pool)?;
        session.begin("BEGIN")?;
        let found = mark.get(&session)?;
        session.end("COMMIT")?;
        Ok(found == Some(number))
    });
    // Not a fault that passes: what may be done already must not be done again.
    ended.map_err(|fault| {
        let why = fault.translate();
        let message = format!("it is not known whether a change was made: {}", why.message());
        let hint = why.hint_text().unwrap_or("see whether PostgreSQL can be reached").to_owned();
        Fault::Ours(Error::new(ErrorKind::Io, message).hint(hint).caused_by(why))
    })
}

/// Does `work` until it succeeds, fails for a reason that does not pass, or was tried for `tries`.
fn again_and_again<T>(tries: Duration, mut work: impl FnMut() -> Sql<T>) -> Sql<T> {
    let end = Instant::now() + tries;
    let mut rest = FIRST_REST;
    loop {
        match work() {
            Err(fault) if fault.is_passing() && Instant::now() + rest < end => {
                std::thread::sleep(rest);
                rest = (2 * rest).min(LONGEST_REST);
            }
            done => return done,
        }
    }
}
