//! Passwords, passkeys, invitations, sessions.

use rusqlite::{Connection, Row, params};

use super::connection::Sql;
use super::values::Name;
use super::{SqliteDatabase, all, first, run};
use crate::database::{
    AccountRows, Identity, Invitation, MOST_SESSIONS, NewInvitation, NewSession, Passkey, PasskeyUse,
    Session, TokenHash, UsedChallenge,
};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{Timestamp, User, UserId};

/// The columns of a user, from `column` on.
fn user(row: &Row<'_>, column: usize) -> rusqlite::Result<User> {
    let Name(tier) = row.get(column + 2)?;
    Ok(User { user_id: row.get(column)?, name: row.get(column + 1)?, tier, created_at: row.get(column + 3)? })
}

const SESSION: &str = "token, agent, sessions.created_at, seen_at, expires_at";

fn session(row: &Row<'_>) -> rusqlite::Result<Session> {
    Ok(Session {
        token: row.get(0)?,
        agent: row.get(1)?,
        created_at: row.get(2)?,
        seen_at: row.get(3)?,
        expires_at: row.get(4)?,
    })
}

const PASSKEY: &str =
    "credential, user_id, passkeys.name, host, public_key, sign_count, passkeys.created_at, last_used";

fn passkey(row: &Row<'_>) -> rusqlite::Result<Passkey> {
    Ok(Passkey {
        credential: row.get(0)?,
        user: row.get(1)?,
        name: row.get(2)?,
        host: row.get(3)?,
        public_key: row.get(4)?,
        sign_count: row.get(5)?,
        created_at: row.get(6)?,
        last_used: row.get(7)?,
    })
}

/// Whose identity it is.
fn whose(c: &Connection, identity: &Identity) -> Sql<Option<User>> {
    const FIND: &str = "SELECT user_id, name, tier, created_at FROM identities JOIN users USING (user_id)
        WHERE issuer = ?1 AND subject = ?2";
    first(c, FIND, params![identity.issuer, identity.subject], |r| user(r, 0))
}

/// Notes that a challenge was answered; whether it was the first time.
fn use_up(c: &Connection, used: &UsedChallenge) -> Sql<bool> {
    const USE: &str =
        "INSERT INTO used_challenges (challenge, forgotten_at) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    Ok(run(c, USE, params![used.challenge, used.forgotten_at])? > 0)
}

fn add_session(c: &Connection, user: UserId, new: &NewSession, now: Timestamp) -> Sql<()> {
    const ADD: &str = "INSERT INTO sessions (token, user_id, agent, created_at, seen_at, idle_at, expires_at)
        VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6)";
    let idle_at = now.plus_seconds(new.idle_seconds);
    let expires_at = now.plus_seconds(new.lifetime_seconds);
    run(c, ADD, params![new.token, user, new.agent, now, idle_at, expires_at])?;
    // Whoever signs in again and again does not fill the rows.
    const KEEP: &str = "DELETE FROM sessions WHERE user_id = ?1 AND token IN (SELECT token FROM sessions
        WHERE user_id = ?1 AND token <> ?2 ORDER BY created_at DESC, token LIMIT -1 OFFSET ?3)";
    run(c, KEEP, params![user, new.token, MOST_SESSIONS - 1])?;
    Ok(())
}

fn end_others(c: &Connection, user: UserId, keep: Option<&TokenHash>, now: Timestamp) -> Sql<u64> {
    const OPEN: &str = "SELECT count(*) FROM sessions
        WHERE user_id = ?1 AND token IS NOT ?2 AND min(idle_at, expires_at) > ?3";
    let open = first(c, OPEN, params![user, keep, now], |r| r.get(0))?;
    run(c, "DELETE FROM sessions WHERE user_id = ?1 AND token IS NOT ?2", params![user, keep])?;
    run(c, "DELETE FROM invitations WHERE user_id = ?1", [user])?;
    Ok(open.unwrap_or_default())
}

/// Ends all sessions and takes back all invitations: a copy must not bring back what ended since it was made.
pub(super) fn end_all(c: &Connection) -> Sql<()> {
    run(c, "DELETE FROM sessions", [])?;
    run(c, "DELETE FROM invitations", [])?;
    Ok(())
}

impl AccountRows for SqliteDatabase {
    fn add_invitation(&self, new: &NewInvitation) -> Result<Timestamp> {
        let now = self.clock.now();
        self.write("database.add_invitation.commit", |t| {
            if !t.prepare_cached("SELECT 1 FROM users WHERE user_id = ?1")?.exists([new.user])? {
                let message = format!("there is no user {}", new.user);
                return Err(Error::new(ErrorKind::NotFound, message).into());
            }
            run(t, "DELETE FROM invitations WHERE user_id = ?1", [new.user])?;
            const ADD: &str =
                "INSERT INTO invitations (token, user_id, sets_password, created_at, expires_at)
                VALUES (?1, ?2, ?3, ?4, ?5)";
            let expires_at = now.plus_seconds(new.lifetime_seconds);
            run(t, ADD, params![new.token, new.user, new.sets_password, now, expires_at])?;
            Ok(expires_at)
        })
    }

    fn invitation(&self, token: &TokenHash) -> Result<Option<Invitation>> {
        const FIND: &str = "SELECT sets_password, expires_at, user_id, name, tier, users.created_at
            FROM invitations JOIN users USING (user_id) WHERE token = ?1 AND expires_at > ?2";
        let now = self.clock.now();
        self.read(|c| {
            first(c, FIND, params![token, now], |r| {
                Ok(Invitation { user: user(r, 2)?, sets_password: r.get(0)?, expires_at: r.get(1)? })
            })
        })
    }

    fn accept_invitation(
        &self,
        invitation: &TokenHash,
        password: Option<&str>,
        session: &NewSession,
    ) -> Result<Option<User>> {
        let now = self.clock.now();
        self.write("database.accept_invitation.commit", |t| {
            const USE: &str = "DELETE FROM invitations
                WHERE token = ?1 AND expires_at > ?2 AND sets_password = ?3 RETURNING user_id";
            let invited =
                first(t, USE, params![invitation, now, password.is_some()], |r| r.get::<_, UserId>(0))?;
            let Some(invited) = invited else { return Ok(None) };
            if let Some(password) = password {
                const SET: &str = "INSERT INTO passwords (user_id, hash, changed_at) VALUES (?1, ?2, ?3)
                    ON CONFLICT (user_id) DO UPDATE SET hash = ?2, changed_at = ?3";
                run(t, SET, params![invited, password, now])?;
                run(t, "DELETE FROM passkeys WHERE user_id = ?1", [invited])?;
                end_others(t, invited, None, now)?;
            }
            add_session(t, invited, session, now)?;
            const USER: &str = "SELECT user_id, name, tier, created_at FROM users WHERE user_id = ?1";
            first(t, USER, [invited], |r| user(r, 0))
        })
    }

    fn password(&self, user: UserId) -> Result<Option<String>> {
        self.read(|c| first(c, "SELECT hash FROM passwords WHERE user_id = ?1", [user], |r| r.get(0)))
    }

    fn change_password(&self, user: UserId, old: &str, new: &str, keep: &TokenHash) -> Result<bool> {
        let now = self.clock.now();
        self.write("database.change_password.commit", |t| {
            const CHANGE: &str =
                "UPDATE passwords SET hash = ?3, changed_at = ?4 WHERE user_id = ?1 AND hash = ?2";
            let changed = run(t, CHANGE, params![user, old, new, now])? > 0;
            if changed {
                end_others(t, user, Some(keep), now)?;
            }
            Ok(changed)
        })
    }

    fn begin_session(
        &self,
        user: UserId,
        password: &str,
        session: &NewSession,
        replaces: Option<&TokenHash>,
    ) -> Result<bool> {
        let now = self.clock.now();
        self.write("database.begin_session.commit", |t| {
            const SAME: &str = "SELECT 1 FROM passwords WHERE user_id = ?1 AND hash = ?2";
            if !t.prepare_cached(SAME)?.exists(params![user, password])? {
                return Ok(false);
            }
            if let Some(before) = replaces {
                run(t, "DELETE FROM sessions WHERE token = ?1", [before])?;
            }
            add_session(t, user, session, now)?;
            Ok(true)
        })
    }

    fn add_passkey(&self, new: &Passkey, most: u64, challenge: &UsedChallenge) -> Result<bool> {
        self.write("database.add_passkey.commit", |t| {
            const COUNT: &str = "SELECT count(*) FROM passkeys WHERE user_id = ?1";
            let count: Option<u64> = first(t, COUNT, [new.user], |r| r.get(0))?;
            if count.unwrap_or_default() >= most {
                return Err(Error::new(ErrorKind::Conflict, format!("there are {most} passkeys already")).into());
            }
            if !use_up(t, challenge)? {
                return Ok(false);
            }
            const ADD: &str =
                "INSERT INTO passkeys (credential, user_id, name, host, public_key, sign_count, created_at, last_used)
                VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING";
            let Passkey { credential, user, name, host, public_key, sign_count, created_at, last_used } = new;
            let values = params![credential, user, name, host, public_key, sign_count, created_at, last_used];
            if run(t, ADD, values)? == 0 {
                return Err(Error::new(ErrorKind::Conflict, "this passkey is known already").into());
            }
            Ok(true)
        })
    }

    fn passkeys(&self, user: UserId) -> Result<Vec<Passkey>> {
        let find =
            format!("SELECT {PASSKEY} FROM passkeys WHERE user_id = ?1 ORDER BY created_at, credential");
        self.read(|c| all(c, &find, [user], passkey))
    }

    fn passkey(&self, credential: &[u8]) -> Result<Option<(User, Passkey)>> {
        let find = format!(
            "SELECT {PASSKEY}, user_id, users.name, tier, users.created_at
             FROM passkeys JOIN users USING (user_id) WHERE credential = ?1"
        );
        self.read(|c| first(c, &find, [credential], |r| Ok((user(r, 8)?, passkey(r)?))))
    }

    fn remove_passkey(&self, user: UserId, credential: &[u8]) -> Result<bool> {
        self.write("database.remove_passkey.commit", |t| {
            const REMOVE: &str = "DELETE FROM passkeys WHERE user_id = ?1 AND credential = ?2";
            Ok(run(t, REMOVE, params![user, credential])? > 0)
        })
    }

    fn begin_session_with_passkey(
        &self,
        used: &PasskeyUse,
        session: &NewSession,
        replaces: Option<&TokenHash>,
    ) -> Result<bool> {
        let now = self.clock.now();
        self.write("database.begin_session_with_passkey.commit", |t| {
            const HAS_GROWN: &str = "SELECT user_id FROM passkeys
                WHERE credential = ?1 AND (sign_count < ?2 OR (sign_count = 0 AND ?2 = 0))";
            let user =
                first(t, HAS_GROWN, params![used.credential, used.sign_count], |r| r.get::<_, UserId>(0))?;
            let Some(user) = user else { return Ok(false) };
            if !use_up(t, &used.challenge)? {
                return Ok(false);
            }
            const NOTE: &str = "UPDATE passkeys SET sign_count = ?2, last_used = ?3 WHERE credential = ?1";
            run(t, NOTE, params![used.credential, used.sign_count, now])?;
            if let Some(before) = replaces {
                run(t, "DELETE FROM sessions WHERE token = ?1", [before])?;
            }
            add_session(t, user, session, now)?;
            Ok(true)
        })
    }

    fn add_identity(&self, identity: &Identity, user: &User, is_new: bool) -> Result<()> {
        self.write("database.add_identity.commit", |t| {
            let conflict = |message: String| Err(Error::new(ErrorKind::Conflict, message).into());
            if is_new {
                const USER: &str = "INSERT INTO users (user_id, name, tier, created_at) VALUES (?1, ?2, ?3, ?4)
                    ON CONFLICT DO NOTHING";
                if run(t, USER, params![user.user_id, user.name, Name(user.tier), user.created_at])? == 0 {
                    return conflict(format!("there is a user {:?} already", user.name));
                }
            } else if !t.prepare_cached("SELECT 1 FROM users WHERE user_id = ?1")?.exists([user.user_id])? {
                let message = format!("there is no user {}", user.user_id);
                return Err(Error::new(ErrorKind::NotFound, message).into());
            }
            const ADD: &str =
                "INSERT INTO identities (issuer, subject, user_id) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
            if run(t, ADD, params![identity.issuer, identity.subject, user.user_id])? == 0 {
                return conflict("this identity is somebody's already".into());
            }
            Ok(())
        })
    }

    fn identities(&self, user: UserId) -> Result<Vec<Identity>> {
        const FIND: &str =
            "SELECT issuer, subject FROM identities WHERE user_id = ?1 ORDER BY issuer, subject";
        self.read(|c| all(c, FIND, [user], |r| Ok(Identity { issuer: r.get(0)?, subject: r.get(1)? })))
    }

    fn user_by_identity(&self, identity: &Identity) -> Result<Option<User>> {
        self.read(|c| whose(c, identity))
    }

    fn remove_identities(&self, user: UserId) -> Result<u64> {
        self.write("database.remove_identities.commit", |t| {
            Ok(run(t, "DELETE FROM identities WHERE user_id = ?1", [user])? as u64)
        })
    }

    fn begin_session_by_identity(
        &self,
        identity: &Identity,
        challenge: &UsedChallenge,
        session: &NewSession,
        replaces: Option<&TokenHash>,
    ) -> Result<Option<User>> {
        let now = self.clock.now();
        self.write("database.begin_session_by_identity.commit", |t| {
            let Some(user) = whose(t, identity)? else { return Ok(None) };
            if !use_up(t, challenge)? {
                return Ok(None);
            }
            if let Some(before) = replaces {
                run(t, "DELETE FROM sessions WHERE token = ?1", [before])?;
            }
            add_session(t, user.user_id, session, now)?;
            Ok(Some(user))
        })
    }

    fn session(&self, token: &TokenHash) -> Result<Option<(User, Session)>> {
        let find = format!(
            "SELECT {SESSION}, user_id, name, tier, users.created_at
             FROM sessions JOIN users USING (user_id) WHERE token = ?1 AND min(idle_at, expires_at) > ?2"
        );
        let now = self.clock.now();
        self.read(|c| first(c, &find, params![token, now], |r| Ok((user(r, 5)?, session(r)?))))
    }

    fn touch_session(&self, token: &TokenHash, idle_seconds: u64) -> Result<()> {
        let now = self.clock.now();
        const TOUCH: &str = "UPDATE sessions SET seen_at = max(seen_at, ?2), idle_at = max(idle_at, ?3)
            WHERE token = ?1 AND min(idle_at, expires_at) > ?2";
        let idle_at = now.plus_seconds(idle_seconds);
        self.write("database.touch_session.commit", |t| {
            run(t, TOUCH, params![token, now, idle_at])?;
            Ok(())
        })
    }

    fn sessions(&self, user: UserId) -> Result<Vec<Session>> {
        let find = format!(
            "SELECT {SESSION} FROM sessions WHERE user_id = ?1 AND min(idle_at, expires_at) > ?2
             ORDER BY seen_at DESC, created_at DESC, token"
        );
        let now = self.clock.now();
        self.read(|c| all(c, &find, params![user, now], session))
    }

    fn end_session(&self, token: &TokenHash) -> Result<()> {
        self.write("database.end_session.commit", |t| {
            run(t, "DELETE FROM sessions WHERE token = ?1", [token])?;
            Ok(())
        })
    }

    fn end_sessions(&self, user: UserId, keep: Option<&TokenHash>) -> Result<u64> {
        let now = self.clock.now();
        self.write("database.end_sessions.commit", |t| end_others(t, user, keep, now))
    }

    fn forget_expired_accesses(&self) -> Result<u64> {
        let now = self.clock.now();
        const ANY: &str =
            "SELECT 1 WHERE EXISTS (SELECT 1 FROM sessions WHERE min(idle_at, expires_at) <= ?1)
            OR EXISTS (SELECT 1 FROM invitations WHERE expires_at <= ?1)
            OR EXISTS (SELECT 1 FROM used_challenges WHERE forgotten_at <= ?1)";
        // Nothing is written where nothing is to be done.
        if self.read(|c| first(c, ANY, [now], |_| Ok(())))?.is_none() {
            return Ok(0);
        }
        self.write("database.forget_expired_accesses.commit", |t| {
            let sessions = run(t, "DELETE FROM sessions WHERE min(idle_at, expires_at) <= ?1", [now])?;
            let invitations = run(t, "DELETE FROM invitations WHERE expires_at <= ?1", [now])?;
            let challenges = run(t, "DELETE FROM used_challenges WHERE forgotten_at <= ?1", [now])?;
            Ok((sessions + invitations + challenges) as u64)
        })
    }
}
