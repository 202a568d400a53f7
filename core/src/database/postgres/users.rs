//! Users and their keys.

use super::PostgresDatabase;
use super::connection::Sql;
use super::session::Row;
use super::values::{Name, values};
use crate::database::{MOST_KEYS, StoredKey, UserRows, too_many_keys};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{ApiKey, Tier, Timestamp, User, UserId};

const USER: &str = "SELECT user_id, name, tier, created_at FROM users";

fn user(row: &Row) -> Sql<User> {
    let Name(tier) = row.get(2)?;
    Ok(User { user_id: row.get(0)?, name: row.get(1)?, tier, created_at: row.get(3)? })
}

impl UserRows for PostgresDatabase {
    fn add_user(&self, user: &User) -> Result<()> {
        self.write("database.add_user.commit", |t| {
            const ADD: &str = "INSERT INTO users (user_id, name, tier, created_at) VALUES ($1, $2, $3, $4)
                ON CONFLICT (name) DO NOTHING";
            let values = values![user.user_id, user.name, Name(user.tier), user.created_at];
            match t.run(ADD, values)? {
                0 => Err(Error::new(ErrorKind::Conflict, format!("there is a user {:?} already", user.name))
                    .into()),
                _ => Ok(()),
            }
        })
    }

    fn users(&self) -> Result<Vec<User>> {
        self.read(|c| c.all(&format!("{USER} ORDER BY name"), &[], user))
    }

    fn user_by_name(&self, name: &str) -> Result<Option<User>> {
        self.read(|c| c.first(&format!("{USER} WHERE name = $1"), values![name], user))
    }

    fn set_tier(&self, user: UserId, tier: Tier) -> Result<bool> {
        self.write("database.set_tier.commit", |t| {
            let changed =
                t.run("UPDATE users SET tier = $2 WHERE user_id = $1", values![user, Name(tier)])?;
            Ok(changed > 0)
        })
    }

    fn create_key(&self, user: UserId, key: &ApiKey, mac: &[u8; 32]) -> Result<bool> {
        self.write("database.create_key.commit", |t| {
            // The tier must not change before the key is there, and two keys at once are counted one after the other.
            const TIER: &str = "SELECT tier FROM users WHERE user_id = $1 FOR NO KEY UPDATE";
            let tier = t.first(TIER, values![user], |r| r.get(0))?;
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
            const COUNT: &str = "SELECT count(*) FROM api_keys WHERE user_id = $1 AND revoked_at IS NULL";
            let count: Option<u64> = t.first(COUNT, values![user], |r| r.get(0))?;
            if count.unwrap_or_default() >= MOST_KEYS {
                return Err(too_many_keys().into());
            }
            const CREATE: &str =
                "INSERT INTO api_keys (prefix, user_id, name, mac, created_at) VALUES ($1, $2, $3, $4, $5)
                ON CONFLICT (prefix) DO NOTHING";
            Ok(t.run(CREATE, values![key.prefix, user, key.name, *mac, key.created_at])? > 0)
        })
    }

    fn keys(&self, user: UserId) -> Result<Vec<ApiKey>> {
        const KEYS: &str = "SELECT name, prefix, created_at, last_used, revoked_at FROM api_keys
            WHERE user_id = $1 ORDER BY created_at, prefix";
        let key = |row: &Row| {
            Ok(ApiKey {
                name: row.get(0)?,
                prefix: row.get(1)?,
                created_at: row.get(2)?,
                last_used: row.get(3)?,
                revoked_at: row.get(4)?,
            })
        };
        self.read(|c| c.all(KEYS, values![user], key))
    }

    fn revoke_key(&self, user: UserId, prefix: &str) -> Result<bool> {
        self.write("database.revoke_key.commit", |t| {
            const REVOKE: &str =
                "UPDATE api_keys SET revoked_at = coalesce(revoked_at, $3) WHERE user_id = $1 AND prefix = $2";
            Ok(t.run(REVOKE, values![user, prefix, self.now(t)?])? > 0)
        })
    }

    fn key(&self, prefix: &str) -> Result<Option<StoredKey>> {
        const KEY: &str = "SELECT user_id, tier, mac, revoked_at IS NOT NULL
            FROM api_keys JOIN users USING (user_id) WHERE prefix = $1";
        let key = |row: &Row| {
            let Name(tier) = row.get(1)?;
            Ok(StoredKey { user: row.get(0)?, tier, mac: row.get(2)?, revoked: row.get(3)? })
        };
        self.read(|c| c.first(KEY, values![prefix], key))
    }

    fn touch_keys(&self, used: &[(String, Timestamp)]) -> Result<()> {
        // In one order, so that two servers that note the same keys do not wait for each other.
        let mut used: Vec<_> = used.iter().collect();
        used.sort();
        self.write("database.touch_keys.commit", |t| {
            const TOUCH: &str =
                "UPDATE api_keys SET last_used = $2 WHERE prefix = $1 AND coalesce(last_used, 0) < $2";
            for (prefix, time) in &used {
                t.run(TOUCH, values![prefix, time])?;
            }
            Ok(())
        })
    }
}
