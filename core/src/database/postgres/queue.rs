//! Jobs as workers see them.

use std::time::Duration;

use super::PostgresDatabase;
use super::connection::Sql;
use super::jobs::view_column;
use super::session::{Row, Session};
use super::values::{IntoColumn, Name, Value, json, values};
use crate::database::{
    Abilities, Claim, Lease, LeaseState, Patience, Progress, Publication, QueueOrder, QueueRows, Reclaimed,
    Return, Returned,
};
use crate::error::Result;
use crate::job::{ArtifactKind, Failure, JobId, JobRequest, Timestamp, UserId};
use crate::stage::Stage;

/// The row that a lease holds: the same claim, by the same process.
const HELD: &str = "job_id = $1 AND attempt = $2 AND lease_owner = $3 AND state = 'running'";
/// Lets go of a job.
const FREE: &str = "lease_owner = NULL, lease_worker = NULL, lease_boot = NULL, lease_until = NULL,
    updated_at = $4, version = version + 1";
/// What waits and does not rest: of the alias `job`, with the parameters of [`Search::values`].
const WAITS: &str = "job.state = 'queued' AND NOT job.deleted AND (NOT job.remove_background OR $1)
    AND (job.rest_until IS NULL OR job.rest_until <= $3 OR job.rest_until > $7)";
/// Whether there is room now for the alias `job`.
const FITS: &str = "job.gaussians <= $2 AND job.gaussians + $4 + $6 <= $5";
/// What the jobs that run on a machine will need of its memory, if each alone needs no more than `$3`.
const BUSY: &str = "SELECT coalesce(sum(gaussians + $1), 0)::bigint FROM jobs
    WHERE state = 'running' AND (lease_boot = $2 OR starts_with(lease_boot, $2 || '/')) AND gaussians + $1 <= $3";

/// When the user of a job was served last. The row is locked: nobody else changes that meanwhile.
const USER_OF_JOB: &str = "SELECT served FROM users
    WHERE user_id = (SELECT user_id FROM jobs WHERE job_id = $1) FOR NO KEY UPDATE";

/// A job that failed because its workers died, or for a full disk: there may have been nobody to store its log.
const DIED: &str = "state = 'failed' AND failure_code IN ('crashed', 'disk_full') AND NOT deleted";

fn held(lease: &Lease) -> [Value; 3] {
    [lease.job.value(), lease.attempt.value(), lease.owner.value()]
}

fn state(c: &Session, lease: &Lease) -> Sql<LeaseState> {
    let sql = format!("SELECT deleted FROM jobs WHERE {HELD}");
    let deleted = c.first(&sql, &held(lease), |r| r.get(0))?;
    Ok(match deleted {
        Some(false) => LeaseState::Held,
        Some(true) => LeaseState::Deleted,
        None => LeaseState::Lost,
    })
}

fn put_artifact(c: &Session, lease: &Lease, kind: ArtifactKind, size: u64) -> Sql<()> {
    const PUT: &str = "INSERT INTO artifacts (job_id, kind, attempt, size) VALUES ($1, $2, $3, $4)
        ON CONFLICT (job_id, kind) DO UPDATE SET attempt = excluded.attempt, size = excluded.size";
    c.run(PUT, values![lease.job, Name(kind), lease.attempt, size]).map(drop)
}

/// Where a job stands that is to be given back.
struct Standing {
    deleted: bool,
    crashes: u32,
    disturbances: u32,
    reach: f64,
    lease_until: i64,
}

impl Standing {
    /// Locks the row: nobody prolongs the lease meanwhile.
    fn of(c: &Session, lease: &Lease) -> Sql<Option<Self>> {
        let sql = format!(
            "SELECT deleted, crashes, disturbances, reach, stage, stage_fraction, lease_until FROM jobs
             WHERE {HELD} FOR UPDATE"
        );
        c.first(&sql, &held(lease), |r| {
            let now = match r.get::<Option<Name<Stage>>>(4)? {
                Some(Name(stage)) => {
                    Progress { stage, fraction: r.get(5)?, percent: None, seconds_left: None }.reach()
                }
                None => 0.0,
            };
            let before: f64 = r.get(3)?;
            let further = now >= before + Patience::STEP;
            let count = |n: u32| if further { 0 } else { n };
            Ok(Standing {
                deleted: r.get(0)?,
                crashes: count(r.get(1)?),
                disturbances: count(r.get(2)?),
                reach: if further { now } else { before },
                lease_until: r.get(6)?,
            })
        })
    }
}

/// Gives the user, whose row is locked, the turn back that the last claim of the job took. It stays taken if the user was served
/// since; then it is that later claim which leads back to the turn before this one.
fn give_turn_back(c: &Session, job: JobId) -> Sql<()> {
    const TURN: &str = "SELECT user_id, claim_number, served_before FROM jobs
        WHERE job_id = $1 AND claim_number IS NOT NULL AND served_before IS NOT NULL";
    let turn =
        c.first(TURN, values![job], |r| Ok((r.get::<UserId>(0)?, r.get::<i64>(1)?, r.get::<i64>(2)?)))?;
    if let Some((user, number, before)) = turn {
        const USER: &str = "UPDATE users SET served = $3 WHERE user_id = $1 AND served = $2";
        c.run(USER, values![user, number, before])?;
        const NEXT: &str = "UPDATE jobs SET served_before = $3
            WHERE user_id = $1 AND state = 'running' AND served_before = $2";
        c.run(NEXT, values![user, number, before])?;
    }
    Ok(())
}

/// Gives a running job back, if `may` says so of the end of its lease. `has_died` is whether its worker has.
fn give_back(
    c: &Session,
    now: Timestamp,
    lease: &Lease,
    why: Return<'_>,
    has_died: bool,
    patience: &Patience,
    may: impl Fn(i64) -> bool,
) -> Sql<Returned> {
    // Before the job: who gives back several of one user at once would else wait for each other.
    c.exists(USER_OF_JOB, values![lease.job])?;
    let Some(mut standing) = Standing::of(c, lease)?.filter(|s| may(s.lease_until)) else {
        return Ok(Returned::Gone);
    };
    let with = |more: &[Value]| [&held(lease)[..], &[now.value()], more].concat();
    if standing.deleted {
        // Nobody sees it; it only has to be at rest.
        c.run(&format!("UPDATE jobs SET state = 'failed', {FREE} WHERE {HELD}"), &with(&[]))?;
        return Ok(Returned::Gone);
    }
    let last_chance = match why {
        Return::Unharmed | Return::Occupied => None,
        Return::Disturbed(failure) => {
            standing.disturbances += 1;
            (standing.disturbances >= patience.disturbances).then_some(failure)
        }
        Return::Crashed(failure) => {
            standing.crashes += 1;
            (standing.crashes >= patience.crashes).then_some(failure)
        }
    };
    let Standing { crashes, disturbances, reach, .. } = standing;
    if let Some(failure) = last_chance {
        let sql = format!(
            "UPDATE jobs SET state = 'failed', crashes = $5, disturbances = $6, failure_code = $7, failure_message = $8,
                finished_at = $4, {FREE} WHERE {HELD}"
        );
        c.run(&sql, &with(values![crashes, disturbances, failure.code, failure.message]))?;
        return Ok(Returned::Failed);
    }
    // What has disturbed a worker that lives has had its turn; so has what workers die of again and again: its user would come first each
    // time.
    if (has_died && disturbances <= 1) || matches!(why, Return::Unharmed | Return::Occupied) {
        give_turn_back(c, lease.job)?;
    }
    let stands_back = match why {
        Return::Occupied => "(SELECT served FROM users WHERE users.user_id = jobs.user_id)",
        Return::Unharmed | Return::Disturbed(_) | Return::Crashed(_) => "NULL",
    };
    let rest = match why {
        Return::Unharmed => 0,
        Return::Occupied => Patience::OCCUPIED_SECONDS,
        Return::Disturbed(_) | Return::Crashed(_) => Patience::rest_seconds(crashes + disturbances),
    };
    let until = now.plus_seconds(rest);
    let sql = format!(
        "UPDATE jobs SET state = 'queued', crashes = $5, disturbances = $6, reach = $7, rest_until = $8,
            claim_number = NULL, served_before = {stands_back}, stage = NULL, stage_fraction = 0, percent = NULL, {FREE}
         WHERE {HELD}"
    );
    c.run(&sql, &with(values![crashes, disturbances, reach, until]))?;
    Ok(Returned::Queued)
}

fn request(row: &Row) -> Sql<JobRequest> {
    let Name(reconstruction_method) = row.get(3)?;
    Ok(JobRequest {
        blob_name: row.get(0)?,
        title: row.get(1)?,
        public: row.get(2)?,
        reconstruction_method,
        training_max_num_gaussians: row.get(4)?,
        training_num_steps: row.get(5)?,
        apriltag_size_mm: row.get(6)?,
        remove_background: row.get(7)?,
        camera_type: row.get::<Option<Name<_>>>(8)?.map(|n| n.0),
    })
}

/// What locks the job that [`query`] finds. One that another worker is just taking is passed over.
const LOCKED: &str = " FOR UPDATE OF job SKIP LOCKED";
/// The first job that fits now, and takes no more than `$8`.
const NEXT: &str = "job.gaussians + $4 <= $8";
/// The first job that fits now, or for which the machine is to keep room.
const OR_LARGE: &str = "(job.uploaded_at <= $8 AND strpos($9, job.job_id) = 0
    AND job.gaussians + $4 <= $5 AND job.gaussians <= $2 + $6)";

/// The first of the jobs that wait and of which `which` holds, how many Gaussians it has, and whether there is room for it now.
fn query(order: QueueOrder, which: &str) -> String {
    let can = format!("{WAITS} AND ({which})");
    match order {
        QueueOrder::Submitted => format!(
            "SELECT job.job_id, job.gaussians, {FITS} FROM jobs AS job WHERE {can} ORDER BY job.seq LIMIT 1"
        ),
        // Users who wait are found by stepping from one to the next in the index of waiting jobs, so neither users without such
        // jobs nor more than one job of each are looked at; the first job that a worker can do is sought of one user after the
        // other, until one has it. One that found no room goes behind the others of its user, until another was taken. The row is
        // locked outside: inside, one of every user would be.
        QueueOrder::Users => format!(
            "WITH RECURSIVE head AS (
                (SELECT user_id, seq FROM jobs WHERE state = 'queued' AND NOT deleted ORDER BY user_id, seq LIMIT 1)
                UNION ALL
                SELECT next.user_id, next.seq FROM head CROSS JOIN LATERAL (SELECT user_id, seq FROM jobs
                    WHERE state = 'queued' AND NOT deleted AND user_id > head.user_id
                    ORDER BY user_id, seq LIMIT 1) AS next)
            SELECT job.job_id, job.gaussians, {FITS} FROM (
                SELECT user_id, coalesce(busy.running, 0) AS running, served, head.seq
                FROM head JOIN users USING (user_id)
                LEFT JOIN (SELECT user_id, count(*) AS running FROM jobs WHERE state = 'running' GROUP BY user_id) AS busy
                    USING (user_id)
                ORDER BY running, served, seq) AS turn
            CROSS JOIN LATERAL (SELECT own.job_id FROM (
                (SELECT job.job_id, 0 AS back FROM jobs AS job
                    WHERE job.user_id = turn.user_id AND job.served_before IS DISTINCT FROM turn.served AND {can}
                    ORDER BY job.seq LIMIT 1)
                UNION ALL
                (SELECT job.job_id, 1 AS back FROM jobs AS job
                    WHERE job.user_id = turn.user_id AND job.served_before IS NOT NULL
                        AND job.served_before = turn.served AND {can}
                    ORDER BY job.seq LIMIT 1)) AS own ORDER BY own.back LIMIT 1) AS first
            JOIN jobs AS job ON job.job_id = first.job_id
            WHERE job.state = 'queued' AND NOT job.deleted
            ORDER BY turn.running, turn.served, turn.seq LIMIT 1"
        ),
    }
}

/// What a machine is to do next.
enum Next {
    /// Nothing: no job waits that it can do.
    Nothing,
    /// To take this job.
    Take(JobId),
    /// To keep room for this one, whose turn it is. What else it could take would take that room.
    KeepRoom(JobId),
}

/// A job that was found.
struct Found {
    job: JobId,
    gaussians: u32,
    /// Whether there is room for it now.
    fits: bool,
}

/// How what a machine is to do next is found.
struct Search<'a> {
    next: String,
    first: String,
    /// [`LOCKED`], or nothing for who only looks.
    lock: &'static str,
    abilities: Abilities<'a>,
    all_gaussians: i64,
    machine: &'a str,
}

impl<'a> Search<'a> {
    fn new(database: &'a PostgresDatabase, abilities: &Abilities<'a>, lock: &'static str) -> Self {
        let machine = database.clock.as_ref().map_or(database.machine.as_str(), |clock| clock.boot());
        Self {
            next: query(database.order, &format!("{FITS} AND {NEXT}")) + lock,
            first: query(database.order, &format!("({FITS}) OR {OR_LARGE}")),
            lock,
            abilities: *abilities,
            all_gaussians: i64::try_from(abilities.all_gaussians).unwrap_or(i64::MAX),
            machine,
        }
    }

    /// What the jobs that run on the machine will need of its memory, if each alone needs `most` at most.
    fn busy(&self, c: &Session, most: i64) -> Sql<i64> {
        let busy = c.first(BUSY, values![self.abilities.beside, self.machine, most], |r| r.get(0))?;
        Ok(busy.unwrap_or_default())
    }

    /// The parameters of both queries, and `more`.
    fn values(&self, now: Timestamp, busy: i64, more: &[Value]) -> Vec<Value> {
        let Abilities { masks, max_gaussians, beside, .. } = self.abilities;
        let far_off = now.as_micros().saturating_add(Patience::AHEAD);
        let can = values![masks, max_gaussians, now, beside, self.all_gaussians, busy, far_off];
        [can, more].concat()
    }

    /// The first job that fits now and, with what it needs beside its Gaussians, takes `most` at most.
    fn next(&self, c: &Session, now: Timestamp, busy: i64, most: i64) -> Sql<Option<JobId>> {
        c.first(&self.next, &self.values(now, busy, values![most]), |r| r.get(0))
    }

    /// The first job that fits now, or for which the machine is to keep room.
    fn first(&self, c: &Session, now: Timestamp, busy: i64, lock: &str) -> Sql<Option<Found>> {
        let long_ago = now.minus_seconds(Abilities::KEEP_ROOM_AFTER_SECONDS);
        let values = self.values(now, busy, values![long_ago, self.abilities.given_up_list()]);
        let sql = format!("{}{lock}", self.first);
        c.first(&sql, &values, |r| Ok(Found { job: r.get(0)?, gaussians: r.get(1)?, fits: r.get(2)? }))
    }

    /// Locks the job, if it still waits and nobody else is just taking it.
    fn lock(&self, c: &Session, job: JobId) -> Sql<bool> {
        let lock = format!(
            "SELECT 1 FROM jobs AS job WHERE job_id = $1 AND state = 'queued' AND NOT deleted{}",
            self.lock
        );
        c.exists(&lock, values![job])
    }

    /// How much a job may take for which the machine keeps room, with what it needs beside its Gaussians, beside `large`.
    fn left_beside(&self, c: &Session, busy: i64, large: &Found) -> Sql<i64> {
        let beside = i64::from(self.abilities.beside);
        let free = i64::from(self.abilities.max_gaussians).saturating_add(beside);
        let large_needs = i64::from(large.gaussians).saturating_add(beside);
        let left = self.all_gaussians.min(free.saturating_add(busy)).saturating_sub(large_needs);
        // Running jobs that have no room beside the large one end before it begins, and no more like them are taken.
        Ok(left.saturating_sub(self.busy(c, left)?))
    }

    fn look(&self, c: &Session, now: Timestamp) -> Sql<Next> {
        let busy = self.busy(c, i64::MAX)?;
        // Where no job runs, room is kept for none.
        if busy == 0 {
            return Ok(self.next(c, now, 0, i64::MAX)?.map_or(Next::Nothing, Next::Take));
        }
        // It is not locked while it is looked for: if it is one that waits for room, other machines would pass it over.
        let Some(mut found) = self.first(c, now, busy, "")? else { return Ok(Next::Nothing) };
        if found.fits {
            if self.lock(c, found.job)? {
                return Ok(Next::Take(found.job));
            }
            // Somebody was quicker.
            match self.first(c, now, busy, self.lock)? {
                None => return Ok(Next::Nothing),
                Some(other) if other.fits => return Ok(Next::Take(other.job)),
                Some(large) => found = large,
            }
        }
        let left = self.left_beside(c, busy, &found)?;
        Ok(self.next(c, now, busy, left)?.map_or(Next::KeepRoom(found.job), Next::Take))
    }
}

impl QueueRows for PostgresDatabase {
    fn claim(
        &self,
        owner: &str,
        worker: &str,
        lease_seconds: u64,
        abilities: &Abilities<'_>,
    ) -> Result<Option<Claim>> {
        let search = Search::new(self, abilities, LOCKED);
        let machine = search.machine;
        // An idle worker looks often: that is one question, outside a transaction.
        const ANY: &str = "SELECT 1 FROM jobs WHERE state = 'queued' AND NOT deleted LIMIT 1";
        if !self.read(|c| c.exists(ANY, &[]))? {
            return Ok(None);
        }
        self.write("database.claim.commit", |t| {
            // Workers of one machine come one after the other: what each takes of its memory counts for the next, also if that is
            // one with another group.
            let whole = machine.split('/').next().unwrap_or_default();
            t.exists("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", values![whole])?;
            let now = self.now(t)?;
            let Next::Take(job) = search.look(t, now)? else { return Ok(None) };
            let before: Option<i64> = t.first(USER_OF_JOB, values![job], |r| r.get(0))?;
            const BEGIN: &str = "UPDATE jobs SET state = 'running', attempt = attempt + 1, stage = NULL, stage_fraction = 0,
                percent = NULL, lease_owner = $2, lease_worker = $3, lease_boot = $4, lease_until = $5,
                started_at = coalesce(started_at, $6), updated_at = $6, version = jobs.version + 1,
                claim_number = nextval('turns'), served_before = $7
                FROM uploads WHERE job_id = $1 AND uploads.blob_name = jobs.blob_name
                RETURNING jobs.blob_name, title, public, method, gaussians, steps, apriltag_size_mm, remove_background,
                    asked_camera_type, attempt, uploads.version, worked_micros, jobs.user_id";
            let until = now.plus_seconds(lease_seconds);
            let claim = t.first(BEGIN, values![job, owner, worker, machine, until, now, before], |row| {
                let lease = Lease { job, attempt: row.get(9)?, owner: owner.to_owned() };
                let version: i64 = row.get(10)?;
                Ok(Claim {
                    lease,
                    user: row.get(12)?,
                    request: request(row)?,
                    video_version: version.cast_unsigned(),
                    worked: Duration::from_micros(row.get(11)?),
                })
            })?;
            const SERVED: &str = "UPDATE users SET served = jobs.claim_number FROM jobs
                WHERE jobs.job_id = $1 AND users.user_id = jobs.user_id";
            t.run(SERVED, values![job])?;
            Ok(claim)
        })
    }

    fn kept_room(&self, abilities: &Abilities<'_>) -> Result<Option<JobId>> {
        let search = Search::new(self, abilities, "");
        self.read(|c| {
            let now = self.now(c)?;
            Ok(match search.look(c, now)? {
                // Where nothing else would fit, it is kept from nobody.
                Next::KeepRoom(job) => {
                    let busy = search.busy(c, i64::MAX)?;
                    search.next(c, now, busy, i64::MAX)?.map(|_| job)
                }
                Next::Nothing | Next::Take(_) => None,
            })
        })
    }

    fn largest_waiting(&self) -> Result<Option<(JobId, u32, Timestamp)>> {
        const LARGEST: &str =
            "SELECT job_id, gaussians, uploaded_at FROM jobs WHERE state = 'queued' AND NOT deleted
            ORDER BY gaussians DESC, seq LIMIT 1";
        self.read(|c| c.first(LARGEST, &[], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?))))
    }

    fn heartbeat(&self, lease: &Lease, lease_seconds: u64) -> Result<LeaseState> {
        self.write("database.heartbeat.commit", |t| {
            let now = self.now(t)?;
            let until = now.plus_seconds(lease_seconds);
            let longest = until.as_micros().saturating_sub(now.as_micros());
            // Leases all have the same length: from one to the next is the time between the heart-beats. Who was not heard of for
            // longer than one lasts has stopped working: it is the clock that went forward.
            let sql = format!(
                "UPDATE jobs SET worked_micros = worked_micros + least($5::bigint, greatest(0, $4 - lease_until)),
                    lease_until = $4
                 WHERE {HELD} RETURNING deleted"
            );
            let held = [&held(lease)[..], values![until, longest]].concat();
            Ok(match t.first(&sql, &held, |r| r.get(0))? {
                Some(false) => LeaseState::Held,
                Some(true) => LeaseState::Deleted,
                None => LeaseState::Lost,
            })
        })
    }

    fn lease_state(&self, lease: &Lease) -> Result<LeaseState> {
        self.read(|c| state(c, lease))
    }

    fn progress(&self, lease: &Lease, progress: &Progress) -> Result<LeaseState> {
        self.write("database.progress.commit", |t| {
            let now = self.now(t)?;
            let sql = format!(
                "UPDATE jobs SET stage = $4, stage_fraction = $5, updated_at = $7, version = version + 1, stage_ends_at = $8,
                    percent = CASE WHEN $6::bigint IS NULL THEN percent
                        ELSE least(99, greatest(coalesce(percent, 0), $6)) END
                 WHERE {HELD} AND NOT deleted"
            );
            let Progress { stage, fraction, percent, seconds_left } = *progress;
            let ends_at = seconds_left.map(|seconds| now.plus_seconds(seconds));
            let said = values![Name(stage), fraction, percent, now, ends_at];
            t.run(&sql, &[&held(lease)[..], said].concat())?;
            state(t, lease)
        })
    }

    fn show_picture(&self, lease: &Lease, picture: &[u8]) -> Result<LeaseState> {
        self.write("database.show_picture.commit", |t| {
            // The row is locked: who ends the attempt in this moment would else not see the picture, and leave it.
            let sql = format!(
                "INSERT INTO live_pictures (job_id, picture, made_at)
                 SELECT job_id, $4::bytea, $5::bigint FROM jobs WHERE {HELD} AND NOT deleted FOR UPDATE
                 ON CONFLICT (job_id) DO UPDATE SET picture = excluded.picture, made_at = excluded.made_at"
            );
            let shown = values![*picture, self.now(t)?];
            t.run(&sql, &[&held(lease)[..], shown].concat())?;
            state(t, lease)
        })
    }

    fn publish(&self, lease: &Lease, publication: &Publication) -> Result<LeaseState> {
        self.write("database.publish.commit", |t| {
            let now = self.now(t)?;
            let sql = format!(
                "UPDATE jobs SET state = 'finished', percent = 100, has_ply = TRUE, has_spz = TRUE, found_view = $5,
                    warnings = $6, finished_at = $4, {FREE} WHERE {HELD} AND NOT deleted"
            );
            let made = values![now, view_column(&publication.camera)?, json(&publication.warnings)?];
            if t.run(&sql, &[&held(lease)[..], made].concat())? == 0 {
                return state(t, lease);
            }
            for (kind, size) in &publication.artifacts {
                put_artifact(t, lease, *kind, *size)?;
            }
            Ok(LeaseState::Held)
        })
    }

    fn fail(&self, lease: &Lease, failure: &Failure, log_size: Option<u64>) -> Result<LeaseState> {
        self.write("database.fail.commit", |t| {
            let now = self.now(t)?;
            let sql = format!(
                "UPDATE jobs SET state = 'failed', failure_code = $5, failure_message = $6, finished_at = $4, {FREE}
                 WHERE {HELD} AND NOT deleted"
            );
            let why = values![now, failure.code, failure.message];
            if t.run(&sql, &[&held(lease)[..], why].concat())? == 0 {
                return state(t, lease);
            }
            if let Some(size) = log_size {
                put_artifact(t, lease, ArtifactKind::Log, size)?;
            }
            Ok(LeaseState::Held)
        })
    }

    fn release(
        &self,
        lease: &Lease,
        why: Return<'_>,
        patience: &Patience,
        log_size: Option<u64>,
    ) -> Result<Returned> {
        self.write("database.release.commit", |t| {
            let returned = give_back(t, self.now(t)?, lease, why, false, patience, |_| true)?;
            if let (Returned::Failed, Some(size)) = (returned, log_size) {
                put_artifact(t, lease, ArtifactKind::Log, size)?;
            }
            Ok(returned)
        })
    }

    fn reclaim(&self, is_alive: &dyn Fn(&str) -> bool, patience: &Patience) -> Result<Reclaimed> {
        let (now, rows) = self.read(|c| {
            let now = self.now(c)?.as_micros();
            const RUNNING: &str =
                "SELECT job_id, attempt, lease_owner, lease_until FROM jobs WHERE state = 'running'";
            let rows = c.all(RUNNING, &[], |r| {
                let until: i64 = r.get(3)?;
                Ok((Lease { job: r.get(0)?, attempt: r.get(1)?, owner: r.get(2)? }, until, until <= now))
            })?;
            Ok((now, rows))
        })?;
        let (dead, alive): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|(lease, _, late)| *late || !is_alive(&lease.owner));
        for (lease, seen, _) in alive.iter().filter(|(_, until, _)| until - now > Lease::AHEAD) {
            let cut = format!("UPDATE jobs SET lease_until = $4 WHERE {HELD} AND lease_until = $5");
            self.write("database.reclaim.commit", |t| {
                let until = self.now(t)?.plus_seconds(Lease::SIGN_OF_LIFE_SECONDS);
                t.run(&cut, &[&held(lease)[..], values![until, seen]].concat())
            })?;
        }
        let mut reclaimed = Reclaimed::default();
        let failure = Failure {
            code: "crashed".into(),
            message: format!("the worker died {} times while it worked on this video", patience.disturbances),
        };
        for (lease, seen, late) in &dead {
            // Each by itself: no lock is held while another row is waited for.
            let returned = self.write("database.reclaim.commit", |t| {
                let now = self.now(t)?;
                // One that was prolonged since is alive.
                let may = |until: i64| !late || until == *seen;
                let returned = give_back(t, now, lease, Return::Disturbed(&failure), true, patience, may)?;
                const DELETED: &str =
                    "SELECT 1 FROM jobs WHERE job_id = $1 AND deleted AND state <> 'running'";
                let is_deleted = returned == Returned::Gone && t.exists(DELETED, values![lease.job])?;
                Ok((returned, is_deleted))
            })?;
            match returned {
                (Returned::Queued, _) => reclaimed.queued.push(lease.job),
                (Returned::Failed, _) => reclaimed.failed.push(lease.job),
                (Returned::Gone, true) => reclaimed.deleted.push(lease.job),
                (Returned::Gone, false) => {}
            }
        }
        Ok(reclaimed)
    }

    fn attempt_without_log(&self, job: JobId) -> Result<Option<u32>> {
        let sql = format!(
            "SELECT attempt FROM jobs WHERE job_id = $1 AND {DIED}
             AND NOT EXISTS (SELECT 1 FROM artifacts WHERE artifacts.job_id = $1 AND kind = $2)"
        );
        self.read(|c| c.first(&sql, values![job, Name(ArtifactKind::Log)], |r| r.get(0)))
    }

    fn add_log(&self, job: JobId, attempt: u32, size: u64) -> Result<bool> {
        // The row is locked: who deletes the job in this moment would else leave the log.
        let sql = format!(
            "INSERT INTO artifacts (job_id, kind, attempt, size)
             SELECT job_id, $2::text, attempt, $4::bigint FROM jobs
             WHERE job_id = $1 AND attempt = $3 AND {DIED} FOR UPDATE
             ON CONFLICT (job_id, kind) DO NOTHING"
        );
        self.write("database.reclaim.commit", |t| {
            Ok(t.run(&sql, values![job, Name(ArtifactKind::Log), attempt, size])? > 0)
        })
    }
}
