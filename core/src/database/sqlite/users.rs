//! Users and their keys.

use rusqlite::{OptionalExtension, Row, params};

use super::SqliteDatabase;
use super::values::Name;
use crate::database::{StoredKey, UserRows};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{ApiKey, Tier, Timestamp, User, UserId};

const USER: &str = "SELECT user_id, name, tier, created_at FROM users";

fn user(row: &Row<'_>) -> rusqlite::Result<User> {
    let Name(tier) = row.get(2)?;
    Ok(User { user_id: row.get(0)?, name: row.get(1)?, tier, created_at: row.get(3)? })
}

impl UserRows for SqliteDatabase {
    fn add_user(&self, user: &User) -> Result<()> {
        self.write("database.add_user.commit", |t| {
            let taken = t.prepare_cached("SELECT 1 FROM users WHERE name = ?1")?.exists([&user.name])?;
            if taken {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    format!("there is a user {:?} already", user.name),
                )
                .into());
            }
            t.prepare_cached("INSERT INTO users (user_id, name, tier, created_at) VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![user.user_id, user.name, Name(user.tier), user.created_at])?;
            Ok(())
        })
    }

    fn users(&self) -> Result<Vec<User>> {
        self.read(|c| {
            let mut statement = c.prepare_cached(&format!("{USER} ORDER BY name"))?;
            Ok(statement.query_map([], user)?.collect::<rusqlite::Result<_>>()?)
        })
    }

    fn user_by_name(&self, name: &str) -> Result<Option<User>> {
        self.read(|c| {
            Ok(c.prepare_cached(&format!("{USER} WHERE name = ?1"))?.query_row([name], user).optional()?)
        })
    }

    fn set_tier(&self, user: UserId, tier: Tier) -> Result<bool> {
        self.write("database.set_tier.commit", |t| {
            let changed = t
                .prepare_cached("UPDATE users SET tier = ?2 WHERE user_id = ?1")?
                .execute(params![user, Name(tier)])?;
            Ok(changed > 0)
        })
    }

    fn create_key(&self, user: UserId, key: &ApiKey, mac: &[u8; 32]) -> Result<bool> {
        self.write("database.create_key.commit", |t| {
            if !t.prepare_cached("SELECT 1 FROM users WHERE user_id = ?1")?.exists([user])? {
                return Err(Error::new(ErrorKind::NotFound, format!("there is no user {user}")).into());
            }
            let changed = t
                .prepare_cached(
                    "INSERT INTO api_keys (prefix, user_id, name, mac, created_at) VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT (prefix) DO NOTHING",
                )?
                .execute(params![key.prefix, user, key.name, mac, key.created_at])?;
            Ok(changed > 0)
        })
    }

    fn keys(&self, user: UserId) -> Result<Vec<ApiKey>> {
        self.read(|c| {
            let mut statement = c.prepare_cached(
                "SELECT name, prefix, created_at, last_used, revoked_at FROM api_keys WHERE user_id = ?1
                 ORDER BY created_at, prefix",
            )?;
            let keys = statement.query_map([user], |row| {
                Ok(ApiKey {
                    name: row.get(0)?,
                    prefix: row.get(1)?,
                    created_at: row.get(2)?,
                    last_used: row.get(3)?,
                    revoked_at: row.get(4)?,
                })
            })?;
            Ok(keys.collect::<rusqlite::Result<_>>()?)
        })
    }

    fn revoke_key(&self, user: UserId, prefix: &str) -> Result<bool> {
        let now = self.clock.now();
        self.write("database.revoke_key.commit", |t| {
            let changed = t
                .prepare_cached(
                    "UPDATE api_keys SET revoked_at = ifnull(revoked_at, ?3) WHERE user_id = ?1 AND prefix = ?2",
                )?
                .execute(params![user, prefix, now])?;
            Ok(changed > 0)
        })
    }

    fn key(&self, prefix: &str) -> Result<Option<StoredKey>> {
        self.read(|c| {
            let mut statement = c.prepare_cached(
                "SELECT user_id, tier, mac, revoked_at IS NOT NULL FROM api_keys JOIN users USING (user_id)
                 WHERE prefix = ?1",
            )?;
            let key = statement.query_row([prefix], |row| {
                let Name(tier) = row.get(1)?;
                Ok(StoredKey { user: row.get(0)?, tier, mac: row.get(2)?, revoked: row.get(3)? })
            });
            Ok(key.optional()?)
        })
    }

    fn touch_keys(&self, used: &[(String, Timestamp)]) -> Result<()> {
        self.write("database.touch_keys.commit", |t| {
            let mut statement = t.prepare_cached(
                "UPDATE api_keys SET last_used = max(ifnull(last_used, 0), ?2) WHERE prefix = ?1",
            )?;
            for (prefix, time) in used {
                statement.execute(params![prefix, time])?;
            }
            Ok(())
        })
    }
}
