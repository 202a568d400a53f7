//! Users and their keys.

use rusqlite::{Row, params};

use super::values::Name;
use super::{SqliteDatabase, all, first, run};
use crate::database::{MOST_KEYS, StoredKey, UserRows, too_many_keys};
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
            run(
                t,
                "INSERT INTO users (user_id, name, tier, created_at) VALUES (?1, ?2, ?3, ?4)",
                params![user.user_id, user.name, Name(user.tier), user.created_at],
            )?;
            Ok(())
        })
    }

    fn users(&self) -> Result<Vec<User>> {
        self.read(|c| all(c, &format!("{USER} ORDER BY name"), [], user))
    }

    fn user_by_name(&self, name: &str) -> Result<Option<User>> {
        self.read(|c| first(c, &format!("{USER} WHERE name = ?1"), [name], user))
    }

    fn set_tier(&self, user: UserId, tier: Tier) -> Result<bool> {
        self.write("database.set_tier.commit", |t| {
            let changed = run(t, "UPDATE users SET tier = ?2 WHERE user_id = ?1", params![user, Name(tier)])?;
            Ok(changed > 0)
        })
    }

    fn create_key(&self, user: UserId, key: &ApiKey, mac: &[u8; 32]) -> Result<bool> {
        self.write("database.create_key.commit", |t| {
            let tier = first(t, "SELECT tier FROM users WHERE user_id = ?1", [user], |r| r.get(0))?;
            match tier {
                Some(Name(Tier::Enterprise)) => {}
                Some(Name(Tier::Free)) => {
                    return Err(Error::new(
                        ErrorKind::PermissionDenied,
                        "only users of the Enterprise tier may be given keys",
                    )
                    .hint("change the user's tier first")
                    .into());
                }
                None => {
                    return Err(Error::new(ErrorKind::NotFound, format!("there is no user {user}")).into());
                }
            }
            const COUNT: &str = "SELECT count(*) FROM api_keys WHERE user_id = ?1 AND revoked_at IS NULL";
            let count: Option<u64> = first(t, COUNT, [user], |r| r.get(0))?;
            if count.unwrap_or_default() >= MOST_KEYS {
                return Err(too_many_keys().into());
            }
            let changed = run(
                t,
                "INSERT INTO api_keys (prefix, user_id, name, mac, created_at) VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT (prefix) DO NOTHING",
                params![key.prefix, user, key.name, mac, key.created_at],
            )?;
            Ok(changed > 0)
        })
    }

    fn keys(&self, user: UserId) -> Result<Vec<ApiKey>> {
        const KEYS: &str = "SELECT name, prefix, created_at, last_used, revoked_at FROM api_keys
            WHERE user_id = ?1 ORDER BY created_at, prefix";
        let key = |row: &Row<'_>| {
            Ok(ApiKey {
                name: row.get(0)?,
                prefix: row.get(1)?,
                created_at: row.get(2)?,
                last_used: row.get(3)?,
                revoked_at: row.get(4)?,
            })
        };
        self.read(|c| all(c, KEYS, [user], key))
    }

    fn revoke_key(&self, user: UserId, prefix: &str) -> Result<bool> {
        let now = self.clock.now();
        const REVOKE: &str =
            "UPDATE api_keys SET revoked_at = ifnull(revoked_at, ?3) WHERE user_id = ?1 AND prefix = ?2";
        self.write("database.revoke_key.commit", |t| Ok(run(t, REVOKE, params![user, prefix, now])? > 0))
    }

    fn key(&self, prefix: &str) -> Result<Option<StoredKey>> {
        const KEY: &str = "SELECT user_id, tier, mac, revoked_at IS NOT NULL
            FROM api_keys JOIN users USING (user_id) WHERE prefix = ?1";
        let key = |row: &Row<'_>| {
            let Name(tier) = row.get(1)?;
            Ok(StoredKey { user: row.get(0)?, tier, mac: row.get(2)?, revoked: row.get(3)? })
        };
        self.read(|c| first(c, KEY, [prefix], key))
    }

    fn touch_keys(&self, used: &[(String, Timestamp)]) -> Result<()> {
        self.write("database.touch_keys.commit", |t| {
            const TOUCH: &str =
                "UPDATE api_keys SET last_used = max(ifnull(last_used, 0), ?2) WHERE prefix = ?1";
            for (prefix, time) in used {
                run(t, TOUCH, params![prefix, time])?;
            }
            Ok(())
        })
    }
}
