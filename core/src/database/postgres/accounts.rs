//! Passwords, passkeys, invitations, sessions.

use super::PostgresDatabase;
use super::connection::Sql;
use super::session::{Row, Session as Connection};
use super::values::{Name, values};
use crate::database::{
    AccountRows, Identity, Invitation, MOST_SESSIONS, NewInvitation, NewSession, Passkey, PasskeyUse,
    Session, TokenHash, UsedChallenge,
};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{Timestamp, User, UserId};

/// The columns of a user, from `column` on.
fn user(row: &Row, column: usize) -> Sql<User> {
    let Name(tier) = row.get(column + 2)?;
    Ok(User { user_id: row.get(column)?, name: row.get(column + 1)?, tier, created_at: row.get(column + 3)? })
}

const SESSION: &str = "token, agent, sessions.created_at, seen_at, expires_at";

fn session(row: &Row) -> Sql<Session> {
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

fn passkey(row: &Row) -> Sql<Passkey> {
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
        WHERE issuer = $1 AND subject = $2";
    c.first(FIND, values![identity.issuer, identity.subject], |r| user(r, 0))
}

/// Notes that a challenge was answered; whether it was the first time.
fn use_up(c: &Connection, used: &UsedChallenge) -> Sql<bool> {
    const USE: &str =
        "INSERT INTO used_challenges (challenge, forgotten_at) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    Ok(c.run(USE, values![used.challenge, used.forgotten_at])? > 0)
}

fn add_session(c: &Connection, user: UserId, new: &NewSession, now: Timestamp) -> Sql<()> {
    const ADD: &str = "INSERT INTO sessions (token, user_id, agent, created_at, seen_at, idle_at, expires_at)
        VALUES ($1, $2, $3, $4, $4, $5, $6)";
    let idle_at = now.plus_seconds(new.idle_seconds);
    let expires_at = now.plus_seconds(new.lifetime_seconds);
    c.run(ADD, values![new.token, user, new.agent, now, idle_at, expires_at])?;
    // Whoever signs in again and again does not fill the rows. The row of the user is locked.
    const KEEP: &str = "DELETE FROM sessions WHERE user_id = $1 AND token IN (SELECT token FROM sessions
        WHERE user_id = $1 AND token <> $2 ORDER BY created_at DESC, token OFFSET $3)";
    c.run(KEEP, values![user, new.token, MOST_SESSIONS - 1])?;
    Ok(())
}

fn end_others(c: &Connection, user: UserId, keep: Option<&TokenHash>, now: Timestamp) -> Sql<u64> {
    const OPEN: &str = "SELECT count(*) FROM sessions
        WHERE user_id = $1 AND token IS DISTINCT FROM $2 AND least(idle_at, expires_at) > $3";
    const END: &str = "DELETE FROM sessions WHERE user_id = $1 AND token IS DISTINCT FROM $2";
    let open = c.first(OPEN, values![user, keep.copied(), now], |r| r.get(0))?;
    c.run(END, values![user, keep.copied()])?;
    c.run("DELETE FROM invitations WHERE user_id = $1", values![user])?;
    Ok(open.unwrap_or_default())
}

/// Who signs in, chooses a password or is invited holds the row of the user meanwhile, so that one of them is first: a session
/// cannot begin with a password that is being replaced.
fn lock_user(c: &Connection, user: UserId) -> Sql<bool> {
    c.exists("SELECT 1 FROM users WHERE user_id = $1 FOR NO KEY UPDATE", values![user])
}

impl AccountRows for PostgresDatabase {
    fn add_invitation(&self, new: &NewInvitation) -> Result<Timestamp> {
        self.write("database.add_invitation.commit", |t| {
            if !lock_user(t, new.user)? {
                let message = format!("there is no user {}", new.user);
                return Err(Error::new(ErrorKind::NotFound, message).into());
            }
            t.run("DELETE FROM invitations WHERE user_id = $1", values![new.user])?;
            const ADD: &str =
                "INSERT INTO invitations (token, user_id, sets_password, created_at, expires_at)
                VALUES ($1, $2, $3, $4, $5)";
            let now = self.now(t)?;
            let expires_at = now.plus_seconds(new.lifetime_seconds);
            t.run(ADD, values![new.token, new.user, new.sets_password, now, expires_at])?;
            Ok(expires_at)
        })
    }

    fn invitation(&self, token: &TokenHash) -> Result<Option<Invitation>> {
        const FIND: &str = "SELECT sets_password, expires_at, user_id, name, tier, users.created_at
            FROM invitations JOIN users USING (user_id) WHERE token = $1 AND expires_at > $2";
        self.read(|c| {
            c.first(FIND, values![*token, self.now(c)?], |r| {
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
        self.write("database.accept_invitation.commit", |t| {
            const INVITED: &str = "SELECT user_id FROM invitations WHERE token = $1";
            let Some(invited) = t.first(INVITED, values![*invitation], |r| r.get::<UserId>(0))? else {
                return Ok(None);
            };
            lock_user(t, invited)?;
            const USE: &str =
                "DELETE FROM invitations WHERE token = $1 AND expires_at > $2 AND sets_password = $3";
            let now = self.now(t)?;
            // Another one may have used it while this one waited.
            if t.run(USE, values![*invitation, now, password.is_some()])? == 0 {
                return Ok(None);
            }
            if let Some(password) = password {
                const SET: &str = "INSERT INTO passwords (user_id, hash, changed_at) VALUES ($1, $2, $3)
                    ON CONFLICT (user_id) DO UPDATE SET hash = $2, changed_at = $3";
                t.run(SET, values![invited, *password, now])?;
                t.run("DELETE FROM passkeys WHERE user_id = $1", values![invited])?;
                end_others(t, invited, None, now)?;
            }
            add_session(t, invited, session, now)?;
            const USER: &str = "SELECT user_id, name, tier, created_at FROM users WHERE user_id = $1";
            t.first(USER, values![invited], |r| user(r, 0))
        })
    }

    fn password(&self, user: UserId) -> Result<Option<String>> {
        self.read(|c| c.first("SELECT hash FROM passwords WHERE user_id = $1", values![user], |r| r.get(0)))
    }

    fn change_password(&self, user: UserId, old: &str, new: &str, keep: &TokenHash) -> Result<bool> {
        self.write("database.change_password.commit", |t| {
            lock_user(t, user)?;
            const CHANGE: &str =
                "UPDATE passwords SET hash = $3, changed_at = $4 WHERE user_id = $1 AND hash = $2";
            let now = self.now(t)?;
            let changed = t.run(CHANGE, values![user, *old, *new, now])? > 0;
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
        self.write("database.begin_session.commit", |t| {
            lock_user(t, user)?;
            const SAME: &str = "SELECT 1 FROM passwords WHERE user_id = $1 AND hash = $2";
            if !t.exists(SAME, values![user, *password])? {
                return Ok(false);
            }
            if let Some(before) = replaces {
                t.run("DELETE FROM sessions WHERE token = $1", values![*before])?;
            }
            add_session(t, user, session, self.now(t)?)?;
            Ok(true)
        })
    }

    fn add_passkey(&self, new: &Passkey, most: u64, challenge: &UsedChallenge) -> Result<bool> {
        self.write("database.add_passkey.commit", |t| {
            // Two at once are counted one after the other.
            lock_user(t, new.user)?;
            const COUNT: &str = "SELECT count(*) FROM passkeys WHERE user_id = $1";
            let count: Option<u64> = t.first(COUNT, values![new.user], |r| r.get(0))?;
            if count.unwrap_or_default() >= most {
                return Err(Error::new(ErrorKind::Conflict, format!("there are {most} passkeys already")).into());
            }
            if !use_up(t, challenge)? {
                return Ok(false);
            }
            const ADD: &str =
                "INSERT INTO passkeys (credential, user_id, name, host, public_key, sign_count, created_at, last_used)
                VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING";
            let Passkey { credential, user, name, host, public_key, sign_count, created_at, last_used } = new;
            let values = values![
                **credential, user, name, host, **public_key, sign_count, created_at, last_used
            ];
            if t.run(ADD, values)? == 0 {
                return Err(Error::new(ErrorKind::Conflict, "this passkey is known already").into());
            }
            Ok(true)
        })
    }

    fn passkeys(&self, user: UserId) -> Result<Vec<Passkey>> {
        let find =
            format!("SELECT {PASSKEY} FROM passkeys WHERE user_id = $1 ORDER BY created_at, credential");
        self.read(|c| c.all(&find, values![user], passkey))
    }

    fn passkey(&self, credential: &[u8]) -> Result<Option<(User, Passkey)>> {
        let find = format!(
            "SELECT {PASSKEY}, user_id, users.name, tier, users.created_at
             FROM passkeys JOIN users USING (user_id) WHERE credential = $1"
        );
        self.read(|c| c.first(&find, values![*credential], |r| Ok((user(r, 8)?, passkey(r)?))))
    }

    fn remove_passkey(&self, user: UserId, credential: &[u8]) -> Result<bool> {
        self.write("database.remove_passkey.commit", |t| {
            const REMOVE: &str = "DELETE FROM passkeys WHERE user_id = $1 AND credential = $2";
            Ok(t.run(REMOVE, values![user, *credential])? > 0)
        })
    }

    fn begin_session_with_passkey(
        &self,
        used: &PasskeyUse,
        session: &NewSession,
        replaces: Option<&TokenHash>,
    ) -> Result<bool> {
        self.write("database.begin_session_with_passkey.commit", |t| {
            const WHOSE: &str = "SELECT user_id FROM passkeys WHERE credential = $1";
            let user = t.first(WHOSE, values![*used.credential], |r| r.get::<UserId>(0))?;
            let Some(user) = user else { return Ok(false) };
            // What takes the passkey away, or ends all sessions, comes before or after this.
            lock_user(t, user)?;
            let now = self.now(t)?;
            const NOTE: &str = "UPDATE passkeys SET sign_count = $2, last_used = $3
                WHERE credential = $1 AND (sign_count < $2 OR (sign_count = 0 AND $2 = 0))";
            if t.run(NOTE, values![*used.credential, used.sign_count, now])? == 0
                || !use_up(t, &used.challenge)?
            {
                return Ok(false);
            }
            if let Some(before) = replaces {
                t.run("DELETE FROM sessions WHERE token = $1", values![*before])?;
            }
            add_session(t, user, session, now)?;
            Ok(true)
        })
    }

    fn add_identity(&self, identity: &Identity, user: &User, is_new: bool) -> Result<()> {
        self.write("database.add_identity.commit", |t| {
            let conflict = |message: String| Err(Error::new(ErrorKind::Conflict, message).into());
            if is_new {
                const USER: &str = "INSERT INTO users (user_id, name, tier, created_at) VALUES ($1, $2, $3, $4)
                    ON CONFLICT DO NOTHING";
                if t.run(USER, values![user.user_id, user.name, Name(user.tier), user.created_at])? == 0 {
                    return conflict(format!("there is a user {:?} already", user.name));
                }
            } else if !lock_user(t, user.user_id)? {
                let message = format!("there is no user {}", user.user_id);
                return Err(Error::new(ErrorKind::NotFound, message).into());
            }
            const ADD: &str =
                "INSERT INTO identities (issuer, subject, user_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
            if t.run(ADD, values![identity.issuer, identity.subject, user.user_id])? == 0 {
                return conflict("this identity is somebody's already".into());
            }
            Ok(())
        })
    }

    fn identities(&self, user: UserId) -> Result<Vec<Identity>> {
        const FIND: &str =
            "SELECT issuer, subject FROM identities WHERE user_id = $1 ORDER BY issuer, subject";
        self.read(|c| c.all(FIND, values![user], |r| Ok(Identity { issuer: r.get(0)?, subject: r.get(1)? })))
    }

    fn user_by_identity(&self, identity: &Identity) -> Result<Option<User>> {
        self.read(|c| whose(c, identity))
    }

    fn remove_identities(&self, user: UserId) -> Result<u64> {
        self.write("database.remove_identities.commit", |t| {
            lock_user(t, user)?;
            t.run("DELETE FROM identities WHERE user_id = $1", values![user])
        })
    }

    fn begin_session_by_identity(
        &self,
        identity: &Identity,
        challenge: &UsedChallenge,
        session: &NewSession,
        replaces: Option<&TokenHash>,
    ) -> Result<Option<User>> {
        self.write("database.begin_session_by_identity.commit", |t| {
            let Some(found) = whose(t, identity)? else { return Ok(None) };
            // What takes the identity away, or ends all sessions, comes before or after this.
            lock_user(t, found.user_id)?;
            let Some(user) = whose(t, identity)?.filter(|user| user.user_id == found.user_id) else {
                return Ok(None);
            };
            if !use_up(t, challenge)? {
                return Ok(None);
            }
            if let Some(before) = replaces {
                t.run("DELETE FROM sessions WHERE token = $1", values![*before])?;
            }
            add_session(t, user.user_id, session, self.now(t)?)?;
            Ok(Some(user))
        })
    }

    fn session(&self, token: &TokenHash) -> Result<Option<(User, Session)>> {
        let find = format!(
            "SELECT {SESSION}, user_id, name, tier, users.created_at
             FROM sessions JOIN users USING (user_id) WHERE token = $1 AND least(idle_at, expires_at) > $2"
        );
        self.read(|c| c.first(&find, values![*token, self.now(c)?], |r| Ok((user(r, 5)?, session(r)?))))
    }

    fn touch_session(&self, token: &TokenHash, idle_seconds: u64) -> Result<()> {
        self.write("database.touch_session.commit", |t| {
            const TOUCH: &str =
                "UPDATE sessions SET seen_at = greatest(seen_at, $2), idle_at = greatest(idle_at, $3)
                WHERE token = $1 AND least(idle_at, expires_at) > $2";
            let now = self.now(t)?;
            t.run(TOUCH, values![*token, now, now.plus_seconds(idle_seconds)])?;
            Ok(())
        })
    }

    fn sessions(&self, user: UserId) -> Result<Vec<Session>> {
        let find = format!(
            "SELECT {SESSION} FROM sessions WHERE user_id = $1 AND least(idle_at, expires_at) > $2
             ORDER BY seen_at DESC, created_at DESC, token"
        );
        self.read(|c| c.all(&find, values![user, self.now(c)?], session))
    }

    fn end_session(&self, token: &TokenHash) -> Result<()> {
        self.write("database.end_session.commit", |t| {
            t.run("DELETE FROM sessions WHERE token = $1", values![*token])?;
            Ok(())
        })
    }

    fn end_sessions(&self, user: UserId, keep: Option<&TokenHash>) -> Result<u64> {
        self.write("database.end_sessions.commit", |t| {
            // A session that is just beginning is there then, and ends with the others.
            lock_user(t, user)?;
            end_others(t, user, keep, self.now(t)?)
        })
    }

    fn forget_expired_accesses(&self) -> Result<u64> {
        self.write("database.forget_expired_accesses.commit", |t| {
            let now = self.now(t)?;
            let sessions =
                t.run("DELETE FROM sessions WHERE least(idle_at, expires_at) <= $1", values![now])?;
            let invitations = t.run("DELETE FROM invitations WHERE expires_at <= $1", values![now])?;
            let challenges = t.run("DELETE FROM used_challenges WHERE forgotten_at <= $1", values![now])?;
            Ok(sessions + invitations + challenges)
        })
    }
}
