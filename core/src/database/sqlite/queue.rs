//! Jobs as workers see them.

use std::time::Duration;

use rusqlite::{Connection, Row, ToSql, params};

use super::jobs::view_column;
use super::values::{Name, json};
use super::{Sql, SqliteDatabase, all, first, run};
use crate::database::{
    Abilities, Claim, Clock, Lease, LeaseState, Patience, Progress, Publication, QueueOrder, QueueRows,
    Reclaimed, Return, Returned,
};
use crate::error::Result;
use crate::job::{ArtifactKind, Failure, JobId, JobRequest, Timestamp, UserId};
use crate::stage::Stage;

/// The row that a lease holds: the same claim, by the same process.
const HELD: &str = "job_id = ?1 AND attempt = ?2 AND lease_owner = ?3 AND state = 'running'";
/// Lets go of a job.
const FREE: &str = "lease_owner = NULL, lease_worker = NULL, lease_boot = NULL, lease_until = NULL,
    updated_at = ?4, version = version + 1";

/// A job that failed because its workers died, or for a full disk: there may have been nobody to store its log.
const DIED: &str = "state = 'failed' AND failure_code IN ('crashed', 'disk_full') AND deleted = 0";

fn state(c: &Connection, lease: &Lease) -> Sql<LeaseState> {
    let sql = format!("SELECT deleted FROM jobs WHERE {HELD}");
    let deleted = first(c, &sql, params![lease.job, lease.attempt, lease.owner], |r| r.get(0))?;
    Ok(match deleted {
        Some(false) => LeaseState::Held,
        Some(true) => LeaseState::Deleted,
        None => LeaseState::Lost,
    })
}

fn put_artifact(c: &Connection, lease: &Lease, kind: ArtifactKind, size: u64) -> Sql<()> {
    run(
        c,
        "INSERT OR REPLACE INTO artifacts (job_id, kind, attempt, size) VALUES (?1, ?2, ?3, ?4)",
        params![lease.job, Name(kind), lease.attempt, size],
    )?;
    Ok(())
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
    fn of(c: &Connection, lease: &Lease) -> Sql<Option<Self>> {
        let sql = format!(
            "SELECT deleted, crashes, disturbances, reach, stage, stage_fraction, lease_until FROM jobs
             WHERE {HELD}"
        );
        first(c, &sql, params![lease.job, lease.attempt, lease.owner], |r| {
            let now = match r.get::<_, Option<Name<Stage>>>(4)? {
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

/// Gives the user the turn back that the last claim of the job took. It stays taken if the user was served since; then it is
/// that later claim which leads back to the turn before this one.
fn give_turn_back(c: &Connection, job: JobId) -> Sql<()> {
    const TURN: &str = "SELECT user_id, claim_number, served_before FROM jobs
        WHERE job_id = ?1 AND claim_number IS NOT NULL AND served_before IS NOT NULL";
    let turn: Option<(UserId, i64, i64)> = first(c, TURN, [job], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))?;
    if let Some((user, number, before)) = turn {
        const USER: &str = "UPDATE users SET served = ?3 WHERE user_id = ?1 AND served = ?2";
        run(c, USER, params![user, number, before])?;
        const NEXT: &str = "UPDATE jobs SET served_before = ?3
            WHERE user_id = ?1 AND state = 'running' AND served_before = ?2";
        run(c, NEXT, params![user, number, before])?;
    }
    Ok(())
}

/// Gives a running job back, if `may` says so of the end of its lease. `has_died` is whether its worker has.
fn give_back(
    c: &Connection,
    clock: &dyn Clock,
    lease: &Lease,
    why: Return<'_>,
    has_died: bool,
    patience: &Patience,
    may: impl Fn(i64) -> bool,
) -> Sql<Returned> {
    let now = clock.now();
    let key = params![lease.job, lease.attempt, lease.owner, now];
    let Some(mut standing) = Standing::of(c, lease)?.filter(|s| may(s.lease_until)) else {
        return Ok(Returned::Gone);
    };
    if standing.deleted {
        // Nobody sees it; it only has to be at rest.
        run(c, &format!("UPDATE jobs SET state = 'failed', {FREE} WHERE {HELD}"), key)?;
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
            "UPDATE jobs SET state = 'failed', crashes = ?5, disturbances = ?6, failure_code = ?7, failure_message = ?8,
                finished_at = ?4, {FREE} WHERE {HELD}"
        );
        let values = params![crashes, disturbances, failure.code, failure.message];
        run(c, &sql, &[key, values].concat()[..])?;
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
    let until = clock.lease_micros() + seconds(rest);
    let sql = format!(
        "UPDATE jobs SET state = 'queued', crashes = ?5, disturbances = ?6, reach = ?7, rest_until = ?8, rest_boot = ?9,
            claim_number = NULL, served_before = {stands_back}, stage = NULL, stage_fraction = 0, percent = NULL, {FREE}
         WHERE {HELD}"
    );
    run(c, &sql, &[key, params![crashes, disturbances, reach, until, clock.boot()]].concat()[..])?;
    Ok(Returned::Queued)
}

fn request(row: &Row<'_>) -> rusqlite::Result<JobRequest> {
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
        camera_type: row.get::<_, Option<Name<_>>>(8)?.map(|n| n.0),
    })
}

/// What a machine is to do next.
enum Next {
    /// Nothing: no job waits that it can do.
    Nothing,
    /// To take this job.
    Take(Box<Claim>),
    /// To keep room for this one, whose turn it is. What else it could take would take that room.
    KeepRoom(JobId),
}

/// A job that was found.
struct Found {
    claim: Claim,
    /// Whether there is room for it now.
    fits: bool,
    /// What the jobs that run on this machine will need of its memory.
    busy: i64,
}

/// How what a machine is to do next is found.
struct Search<'a> {
    /// The first job that fits now, and takes no more than a limit.
    next: String,
    /// The first job that fits now, or for which the machine is to keep room.
    first: String,
    abilities: Abilities<'a>,
    all_gaussians: i64,
    given_up: String,
    boot: &'a str,
    now: Timestamp,
    /// The same by the clock of leases, and what is later than any rest ends.
    lease_now: i64,
    far_off: i64,
    long_ago: Timestamp,
}

impl<'a> Search<'a> {
    fn new(database: &'a SqliteDatabase, abilities: &Abilities<'a>) -> Self {
        // Of users who were never served comes first who has waited longest, whatever this worker can do of theirs. Each user
        // is looked at once, not once for each job.
        let (with, from, order) = match database.order {
            QueueOrder::Submitted => ("", "jobs JOIN users USING (user_id)", "seq"),
            QueueOrder::Users => (
                "WITH turns AS MATERIALIZED (SELECT user_id, served,
                    (SELECT count(*) FROM jobs WHERE jobs.user_id = users.user_id AND state = 'running') AS running,
                    (SELECT min(seq) FROM jobs WHERE jobs.user_id = users.user_id
                        AND state = 'queued' AND deleted = 0) AS head
                    FROM users)",
                "turns CROSS JOIN jobs USING (user_id)",
                // One that found no room goes behind the others of its user, until another was taken.
                "running, served, head, ifnull(served_before = served, 0), seq",
            ),
        };
        // What waits and does not rest.
        const WAITS: &str = "state = 'queued' AND jobs.deleted = 0 AND (NOT remove_background OR ?1)
            AND (rest_until IS NULL OR rest_until <= ?3 OR rest_until > ?7 OR rest_boot <> ?4)";
        // What the jobs that run on this machine will need of its memory.
        const BUSY: &str = "(SELECT ifnull(sum(gaussians + ?5), 0) FROM jobs AS busy
            WHERE busy.state = 'running' AND busy.lease_boot = ?4)";
        let fits = format!("gaussians <= ?2 AND gaussians + ?5 <= ?6 - {BUSY}");
        let query = |which: &str| {
            format!(
                "{with} SELECT jobs.blob_name, title, public, method, gaussians, steps, apriltag_size_mm,
                    remove_background, asked_camera_type, job_id, attempt, version_of_video, worked_micros,
                    jobs.user_id, {fits}, {BUSY}
                FROM {from} JOIN (SELECT blob_name, version AS version_of_video FROM uploads) USING (blob_name)
                WHERE {WAITS} AND ({which}) ORDER BY {order} LIMIT 1"
            )
        };
        let next = query(&format!("{fits} AND gaussians + ?5 <= ?8"));
        // Where more memory is taken than running jobs will need, a large job does not wait for their end.
        let first = query(&format!(
            "({fits}) OR (uploaded_at <= ?8 AND instr(?9, job_id) = 0 AND gaussians + ?5 <= ?6
                AND gaussians <= ?2 + {BUSY})"
        ));
        let (now, lease_now) = (database.clock.now(), database.clock.lease_micros());
        Self {
            next,
            first,
            abilities: *abilities,
            all_gaussians: i64::try_from(abilities.all_gaussians).unwrap_or(i64::MAX),
            given_up: abilities.given_up_list(),
            boot: database.clock.boot(),
            now,
            lease_now,
            far_off: lease_now.saturating_add(Patience::AHEAD),
            long_ago: now.minus_seconds(Abilities::KEEP_ROOM_AFTER_SECONDS),
        }
    }

    /// The parameters of both statements, and `more`.
    fn values<'b>(&'b self, more: &[&'b dyn ToSql]) -> Vec<&'b dyn ToSql> {
        let Self { abilities, all_gaussians, boot, lease_now, far_off, .. } = self;
        let Abilities { masks, max_gaussians, beside, .. } = abilities;
        let can: [&'b dyn ToSql; 7] = [masks, max_gaussians, lease_now, boot, beside, all_gaussians, far_off];
        [&can[..], more].concat()
    }

    /// The job that one of the statements finds, as `owner` will have it.
    fn find(&self, c: &Connection, sql: &str, more: &[&dyn ToSql], owner: &str) -> Sql<Option<Found>> {
        first(c, sql, &self.values(more)[..], |row| {
            let (job, attempt): (JobId, u32) = (row.get(9)?, row.get(10)?);
            let lease = Lease { job, attempt: attempt + 1, owner: owner.to_owned() };
            let version: i64 = row.get(11)?;
            let claim = Claim {
                lease,
                user: row.get(13)?,
                request: request(row)?,
                video_version: version.cast_unsigned(),
                worked: Duration::from_micros(row.get(12)?),
            };
            Ok(Found { claim, fits: row.get(14)?, busy: row.get(15)? })
        })
    }

    /// The first job that fits now and, with what it needs beside its Gaussians, takes `most` at most.
    fn next(&self, c: &Connection, most: i64, owner: &str) -> Sql<Option<Found>> {
        self.find(c, &self.next, params![most], owner)
    }

    /// How much a job may take for which the machine keeps room, with what it needs beside its Gaussians, beside `large`.
    fn left_beside(&self, c: &Connection, large: &Found) -> Sql<i64> {
        let beside = i64::from(self.abilities.beside);
        let free = i64::from(self.abilities.max_gaussians).saturating_add(beside);
        let large_needs = i64::from(large.claim.request.training_max_num_gaussians).saturating_add(beside);
        let left = self.all_gaussians.min(free.saturating_add(large.busy)).saturating_sub(large_needs);
        // Running jobs that have no room beside the large one end before it begins, and no more like them are taken.
        const STAY: &str = "SELECT ifnull(sum(gaussians + ?1), 0) FROM jobs
            WHERE state = 'running' AND lease_boot = ?2 AND gaussians + ?1 <= ?3";
        let stay: Option<i64> = first(c, STAY, params![beside, self.boot, left], |r| r.get(0))?;
        Ok(left.saturating_sub(stay.unwrap_or_default()))
    }

    fn look(&self, c: &Connection, owner: &str) -> Sql<Next> {
        let Some(found) = self.find(c, &self.first, params![self.long_ago, self.given_up], owner)? else {
            return Ok(Next::Nothing);
        };
        if found.fits {
            return Ok(Next::Take(Box::new(found.claim)));
        }
        let left = self.left_beside(c, &found)?;
        Ok(match self.next(c, left, owner)? {
            Some(small) => Next::Take(Box::new(small.claim)),
            None => Next::KeepRoom(found.claim.lease.job),
        })
    }
}

impl QueueRows for SqliteDatabase {
    fn claim(
        &self,
        owner: &str,
        worker: &str,
        lease_seconds: u64,
        abilities: &Abilities<'_>,
    ) -> Result<Option<Claim>> {
        let search = Search::new(self, abilities);
        let next = |c: &Connection| -> Sql<Option<Claim>> {
            Ok(match search.look(c, owner)? {
                Next::Take(claim) => Some(*claim),
                Next::Nothing | Next::KeepRoom(_) => None,
            })
        };
        // An idle worker looks often; it takes the write lock only if there is something to take.
        if self.read(next)?.is_none() {
            return Ok(None);
        }
        let (now, until) = (search.now, search.lease_now + seconds(lease_seconds));
        self.write("database.claim.commit", |t| {
            let Some(claim) = next(t)? else { return Ok(None) };
            const BEGIN: &str = "UPDATE jobs SET state = 'running', attempt = ?2, stage = NULL, stage_fraction = 0,
                percent = NULL, lease_owner = ?3, lease_worker = ?4, lease_boot = ?5, lease_until = ?6,
                started_at = ifnull(started_at, ?7), updated_at = ?7, version = version + 1,
                claim_number = (SELECT max(served) + 1 FROM users),
                served_before = (SELECT served FROM users WHERE users.user_id = jobs.user_id) WHERE job_id = ?1";
            let Lease { job, attempt, .. } = claim.lease;
            run(t, BEGIN, params![job, attempt, owner, worker, self.clock.boot(), until, now])?;
            const SERVED: &str = "UPDATE users SET served = (SELECT claim_number FROM jobs WHERE job_id = ?1)
                WHERE user_id = (SELECT user_id FROM jobs WHERE job_id = ?1)";
            run(t, SERVED, [job])?;
            Ok(Some(claim))
        })
    }

    fn kept_room(&self, abilities: &Abilities<'_>) -> Result<Option<JobId>> {
        let search = Search::new(self, abilities);
        // As nobody's: nothing is taken.
        self.read(|c| {
            Ok(match search.look(c, "")? {
                // Where nothing else would fit, it is kept from nobody.
                Next::KeepRoom(job) => search.next(c, i64::MAX, "")?.map(|_| job),
                Next::Nothing | Next::Take(_) => None,
            })
        })
    }

    fn largest_waiting(&self) -> Result<Option<(JobId, u32, Timestamp)>> {
        const LARGEST: &str =
            "SELECT job_id, gaussians, uploaded_at FROM jobs WHERE state = 'queued' AND deleted = 0
            ORDER BY gaussians DESC, seq LIMIT 1";
        self.read(|c| first(c, LARGEST, [], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?))))
    }

    fn heartbeat(&self, lease: &Lease, lease_seconds: u64) -> Result<LeaseState> {
        self.write("database.heartbeat.commit", |t| {
            // It may have waited for the lock: the lease lasts from now on.
            let longest = seconds(lease_seconds);
            let until = self.clock.lease_micros() + longest;
            // Leases all have the same length: from one to the next is the time between the heart-beats. Who was not heard of for
            // longer than one lasts has stopped working: it is the clock that went forward.
            let sql = format!(
                "UPDATE jobs SET worked_micros = worked_micros + min(?5, max(0, ?4 - lease_until)), lease_until = ?4
                 WHERE {HELD}"
            );
            run(t, &sql, params![lease.job, lease.attempt, lease.owner, until, longest])?;
            state(t, lease)
        })
    }

    fn lease_state(&self, lease: &Lease) -> Result<LeaseState> {
        self.read(|c| state(c, lease))
    }

    fn progress(&self, lease: &Lease, progress: &Progress) -> Result<LeaseState> {
        let now = self.clock.now();
        self.write("database.progress.commit", |t| {
            let sql = format!(
                "UPDATE jobs SET stage = ?4, stage_fraction = ?5, updated_at = ?7, version = version + 1, stage_ends_at = ?8,
                    percent = CASE WHEN ?6 IS NULL THEN percent ELSE min(99, max(ifnull(percent, 0), ?6)) END
                 WHERE {HELD} AND deleted = 0"
            );
            let Lease { job, attempt, owner } = lease;
            let Progress { stage, fraction, percent, seconds_left } = *progress;
            let ends_at = seconds_left.map(|seconds| now.plus_seconds(seconds));
            run(t, &sql, params![job, attempt, owner, Name(stage), fraction, percent, now, ends_at])?;
            state(t, lease)
        })
    }

    fn show_picture(&self, lease: &Lease, picture: &[u8]) -> Result<LeaseState> {
        let now = self.clock.now();
        self.write("database.show_picture.commit", |t| {
            let sql = format!(
                "INSERT INTO live_pictures (job_id, picture, made_at)
                 SELECT job_id, ?4, ?5 FROM jobs WHERE {HELD} AND deleted = 0
                 ON CONFLICT (job_id) DO UPDATE SET picture = excluded.picture, made_at = excluded.made_at"
            );
            run(t, &sql, params![lease.job, lease.attempt, lease.owner, picture, now])?;
            state(t, lease)
        })
    }

    fn publish(&self, lease: &Lease, publication: &Publication) -> Result<LeaseState> {
        let now = self.clock.now();
        self.write("database.publish.commit", |t| {
            let sql = format!(
                "UPDATE jobs SET state = 'finished', percent = 100, has_ply = 1, has_spz = 1, found_view = ?5,
                    warnings = ?6, finished_at = ?4, {FREE} WHERE {HELD} AND deleted = 0"
            );
            let Lease { job, attempt, owner } = lease;
            let (view, warnings) = (view_column(&publication.camera)?, json(&publication.warnings)?);
            let changed = run(t, &sql, params![job, attempt, owner, now, view, warnings])?;
            if changed == 0 {
                return state(t, lease);
            }
            for (kind, size) in &publication.artifacts {
                put_artifact(t, lease, *kind, *size)?;
            }
            Ok(LeaseState::Held)
        })
    }

    fn fail(&self, lease: &Lease, failure: &Failure, log_size: Option<u64>) -> Result<LeaseState> {
        let now = self.clock.now();
        self.write("database.fail.commit", |t| {
            let sql = format!(
                "UPDATE jobs SET state = 'failed', failure_code = ?5, failure_message = ?6, finished_at = ?4, {FREE}
                 WHERE {HELD} AND deleted = 0"
            );
            let Lease { job, attempt, owner } = lease;
            let changed =
                run(t, &sql, params![job, attempt, owner, now, failure.code, failure.message])?;
            if changed == 0 {
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
            let returned = give_back(t, &*self.clock, lease, why, false, patience, |_| true)?;
            if let (Returned::Failed, Some(size)) = (returned, log_size) {
                put_artifact(t, lease, ArtifactKind::Log, size)?;
            }
            Ok(returned)
        })
    }

    fn reclaim(&self, is_alive: &dyn Fn(&str) -> bool, patience: &Patience) -> Result<Reclaimed> {
        let (now, rows) = self.read(|c| {
            const RUNNING: &str =
                "SELECT job_id, attempt, lease_owner, lease_until, lease_boot = ?1 AND lease_until > ?2
                FROM jobs WHERE state = 'running'";
            let now = self.clock.lease_micros();
            let rows = all(c, RUNNING, params![self.clock.boot(), now], |r| {
                let lease = Lease { job: r.get(0)?, attempt: r.get(1)?, owner: r.get(2)? };
                Ok((lease, r.get::<_, i64>(3)?, !r.get::<_, bool>(4)?))
            })?;
            Ok((now, rows))
        })?;
        let (dead, alive): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|(lease, _, late)| *late || !is_alive(&lease.owner));
        let endless: Vec<_> = alive.into_iter().filter(|(_, until, _)| until - now > Lease::AHEAD).collect();
        let mut reclaimed = Reclaimed::default();
        if dead.is_empty() && endless.is_empty() {
            return Ok(reclaimed);
        }
        let failure = Failure {
            code: "crashed".into(),
            message: format!("the worker died {} times while it worked on this video", patience.disturbances),
        };
        self.write("database.reclaim.commit", |t| {
            for (lease, seen, _) in &endless {
                let until = self.clock.lease_micros() + seconds(Lease::SIGN_OF_LIFE_SECONDS);
                let cut = format!("UPDATE jobs SET lease_until = ?4 WHERE {HELD} AND lease_until = ?5");
                run(t, &cut, params![lease.job, lease.attempt, lease.owner, until, seen])?;
            }
            for (lease, seen, late) in &dead {
                // One that was prolonged since is alive.
                let may = |until: i64| !late || until == *seen;
                let why = Return::Disturbed(&failure);
                match give_back(t, &*self.clock, lease, why, true, patience, may)? {
                    Returned::Queued => reclaimed.queued.push(lease.job),
                    Returned::Failed => reclaimed.failed.push(lease.job),
                    Returned::Gone => {
                        const DELETED: &str =
                            "SELECT 1 FROM jobs WHERE job_id = ?1 AND deleted AND state <> 'running'";
                        if first(t, DELETED, params![lease.job], |_| Ok(()))?.is_some() {
                            reclaimed.deleted.push(lease.job);
                        }
                    }
                }
            }
            Ok(reclaimed)
        })
    }

    fn attempt_without_log(&self, job: JobId) -> Result<Option<u32>> {
        let sql = format!(
            "SELECT attempt FROM jobs WHERE job_id = ?1 AND {DIED}
             AND NOT EXISTS (SELECT 1 FROM artifacts WHERE artifacts.job_id = ?1 AND kind = ?2)"
        );
        self.read(|c| first(c, &sql, params![job, Name(ArtifactKind::Log)], |r| r.get(0)))
    }

    fn add_log(&self, job: JobId, attempt: u32, size: u64) -> Result<bool> {
        let sql = format!(
            "INSERT INTO artifacts (job_id, kind, attempt, size)
             SELECT job_id, ?2, attempt, ?4 FROM jobs WHERE job_id = ?1 AND attempt = ?3 AND {DIED}
             ON CONFLICT (job_id, kind) DO NOTHING"
        );
        self.write("database.reclaim.commit", |t| {
            Ok(run(t, &sql, params![job, Name(ArtifactKind::Log), attempt, size])? > 0)
        })
    }
}

fn seconds(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX / 2_000_000) * 1_000_000
}
