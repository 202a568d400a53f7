//! API keys: made, checked, revoked.
//!
//! A key is random and long, so one fast authentication code is as good as a slow hash (service keys are not
//! passwords). The code is HMAC-SHA256 under a pepper that is not in the database: whoever steals the database can
//! neither find a key nor forge one. A check does the same work whatever is presented, and compares in constant time.
//! Nothing is cached, so that a key stops working at once when another process revokes it.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use super::Service;
use super::users::check_name;
use crate::database::StoredKey;
use crate::error::{Error, ErrorKind, Result};
use crate::job::{ApiKey, ApiKeySecret, Tier, UserId};

/// Longest text of which the code is computed; no key is longer.
const LONGEST: usize = 128;
/// How many keys are drawn, at most, to find one whose prefix is not taken. A prefix is one of 62^8 (2e14): with a
/// million keys in use, the chance that a new prefix is taken is one in 200 million.
const PREFIX_TRIES: u32 = 8;

/// Whose request it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The user.
    pub user_id: UserId,
    /// What the user may do; see [`Service::authorize`].
    pub tier: Tier,
    /// Identifies the key, for logs and [`Service::authorize_again`].
    pub key_prefix: String,
}

/// One text for whatever is wrong with a key.
fn invalid_key() -> Error {
    Error::new(ErrorKind::Unauthenticated, "Invalid API key")
}

fn check_tier(tier: Tier) -> Result<()> {
    match tier {
        Tier::Enterprise => Ok(()),
        Tier::Free => {
            Err(Error::new(ErrorKind::PermissionDenied, "The API is available to Enterprise-tier users only"))
        }
    }
}

impl Service {
    /// Makes a key for a user of the Enterprise tier. The secret is shown now and never again.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a bad name, [`ErrorKind::NotFound`] if there is no such user,
    /// [`ErrorKind::PermissionDenied`] for a user of another tier, [`ErrorKind::Conflict`] for one who has a hundred keys that are not
    /// revoked.
    pub fn create_key(&self, user: UserId, name: &str) -> Result<(ApiKey, ApiKeySecret)> {
        self.create_key_from(user, name, ApiKeySecret::random)
    }

    /// Draws keys until one has a prefix that no other key has.
    fn create_key_from(
        &self,
        user: UserId,
        name: &str,
        mut draw: impl FnMut() -> Result<ApiKeySecret>,
    ) -> Result<(ApiKey, ApiKeySecret)> {
        check_name("the name of the key", name)?;
        for _ in 0..PREFIX_TRIES {
            let secret = draw()?;
            let key = ApiKey {
                name: name.to_owned(),
                prefix: secret.prefix().to_owned(),
                created_at: self.inner.clock.now(),
                last_used: None,
                revoked_at: None,
            };
            if self.inner.database.create_key(user, &key, &self.code_of(secret.reveal()))? {
                return Ok((key, secret));
            }
        }
        Err(Error::new(
            ErrorKind::Internal,
            format!("no key was made: the prefixes of {PREFIX_TRIES} random keys were all taken"),
        )
        .hint("try again; if this happens again, the random numbers of this system are not random"))
    }

    /// The keys of a user, oldest first.
    ///
    /// # Errors
    /// The database's.
    pub fn keys(&self, user: UserId) -> Result<Vec<ApiKey>> {
        self.flush_last_used()?;
        self.inner.database.keys(user)
    }

    /// Makes a key useless, at once and for ever, in all processes.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the user has no such key.
    pub fn revoke_key(&self, user: UserId, prefix: &str) -> Result<()> {
        if self.inner.database.revoke_key(user, prefix)? {
            return Ok(());
        }
        Err(Error::new(ErrorKind::NotFound, format!("there is no key {prefix:?} of this user")))
    }

    /// Finds whose key was presented.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthenticated`], with one text for whatever is wrong.
    pub fn authenticate(&self, presented: &str) -> Result<Caller> {
        let prefix = ApiKeySecret::prefix_of(presented);
        let stored = self.inner.database.key(prefix.unwrap_or_default())?;
        let nobody =
            StoredKey { user: UserId(uuid::Uuid::nil()), tier: Tier::Free, mac: [0; 32], revoked: true };
        let known = prefix.is_some() && stored.is_some();
        let stored = stored.unwrap_or(nobody);
        let genuine = bool::from(self.code_of(presented).ct_eq(&stored.mac));
        if !genuine || !known || stored.revoked {
            return Err(invalid_key());
        }
        let prefix = prefix.unwrap_or_default();
        self.inner.last_used.note(prefix, self.inner.clock.now());
        Ok(Caller { user_id: stored.user, tier: stored.tier, key_prefix: prefix.to_owned() })
    }

    /// Whether the caller may use the interface.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if the user's tier is not enterprise.
    pub fn authorize(&self, caller: &Caller) -> Result<()> {
        check_tier(caller.tier)
    }

    /// Whether a caller who was let through a while ago would be let through now: for requests that wait. It reads one row,
    /// writes nothing, and is no use of the key.
    ///
    /// # Errors
    /// As for [`Service::authenticate`] and [`Service::authorize`].
    pub fn authorize_again(&self, caller: &Caller) -> Result<()> {
        let stored = self.inner.database.key(&caller.key_prefix)?;
        match stored.filter(|key| key.user == caller.user_id && !key.revoked) {
            Some(key) => check_tier(key.tier),
            None => Err(invalid_key()),
        }
    }

    /// Writes when keys were last used; otherwise that is done every ten seconds.
    ///
    /// # Errors
    /// The database's; it is tried again later.
    pub fn flush_last_used(&self) -> Result<()> {
        self.inner.last_used.flush(self.inner.database.as_ref())
    }

    /// The authentication code of a key.
    fn code_of(&self, key: &str) -> [u8; 32] {
        let key = key.as_bytes();
        let mut mac = self.inner.secrets.mac();
        mac.update(&key[..key.len().min(LONGEST)]);
        mac.finalize().into_bytes().into()
    }
}

impl super::Secrets {
    /// A new authentication code under the pepper.
    pub(super) fn mac(&self) -> Hmac<Sha256> {
        // The pepper fills half a block of the hash; HMAC pads it with zeros (RFC 2104, section 2).
        let mut block = [0; 64];
        block[..32].copy_from_slice(&self.pepper.0);
        Hmac::new(&block.into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::ServiceOptions;
    use super::*;

    fn service(folder: &std::path::Path) -> Service {
        Service::open(folder, ServiceOptions::default()).unwrap()
    }

    /// Rules 13 and 15 of docs/rest.md.
    #[test]
    fn a_key_works_until_it_is_revoked_and_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        let service = service(folder.path());
        let user = service.add_user("anna", Tier::Enterprise).unwrap();
        let (key, secret) = service.create_key(user.user_id, "laptop").unwrap();
        let caller = service.authenticate(secret.reveal()).unwrap();
        assert_eq!((caller.user_id, caller.tier), (user.user_id, Tier::Enterprise));
        assert_eq!(caller.key_prefix, key.prefix);
        service.authorize(&caller).unwrap();

        let (_, other) = service.create_key(user.user_id, "desk").unwrap();
        let mixed = format!("{}.{}", secret.prefix(), other.reveal().split_once('.').unwrap().1);
        let long = "x".repeat(10_000);
        for wrong in ["", "lrk_", "Api-Key", &mixed, &format!("{}x", secret.reveal()), secret.prefix(), &long]
        {
            let error = service.authenticate(wrong).unwrap_err();
            assert_eq!(
                (error.kind(), error.message()),
                (ErrorKind::Unauthenticated, "Invalid API key"),
                "{wrong}"
            );
        }
        // A downgraded user is known but may do nothing.
        service.set_tier(user.user_id, Tier::Free).unwrap();
        let caller = service.authenticate(secret.reveal()).unwrap();
        assert_eq!(service.authorize(&caller).unwrap_err().kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_key_whose_prefix_is_taken_is_drawn_again() {
        let folder = tempfile::tempdir().unwrap();
        let service = service(folder.path());
        let anna = service.add_user("anna", Tier::Enterprise).unwrap().user_id;
        let eve = service.add_user("eve", Tier::Enterprise).unwrap().user_id;
        let (_, taken) = service.create_key(anna, "laptop").unwrap();
        let fresh = ApiKeySecret::random().unwrap();
        let mut draws = [taken.clone(), taken.clone(), fresh.clone()].into_iter();
        let (key, secret) = service.create_key_from(eve, "desk", || Ok(draws.next().unwrap())).unwrap();
        assert_eq!((key.prefix.as_str(), &secret), (fresh.prefix(), &fresh));
        assert_eq!(service.authenticate(fresh.reveal()).unwrap().user_id, eve);
        assert_eq!(service.authenticate(taken.reveal()).unwrap().user_id, anna);

        // It gives up in the end, and says what was wrong: the user is there.
        let error = service.create_key_from(eve, "phone", || Ok(taken.clone())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.message().contains("prefixes"), "{error}");
        assert_eq!(service.keys(eve).unwrap().len(), 1);
        let unknown = service.create_key_from(UserId::random(), "x", || Ok(taken.clone())).unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_revocation_by_another_process_counts_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (server, command) = (service(folder.path()), service(folder.path()));
        let user = command.add_user("anna", Tier::Enterprise).unwrap().user_id;
        let (key, secret) = command.create_key(user, "laptop").unwrap();
        server.authenticate(secret.reveal()).unwrap();
        let stranger = command.add_user("eve", Tier::Enterprise).unwrap().user_id;
        assert_eq!(command.revoke_key(stranger, &key.prefix).unwrap_err().kind(), ErrorKind::NotFound);
        server.authenticate(secret.reveal()).unwrap();
        command.revoke_key(user, &key.prefix).unwrap();
        let error = server.authenticate(secret.reveal()).unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Unauthenticated, "Invalid API key"));
        let revoked = server.keys(user).unwrap()[0].revoked_at.unwrap();
        command.revoke_key(user, &key.prefix).unwrap();
        assert_eq!(server.keys(user).unwrap()[0].revoked_at, Some(revoked));
    }

    /// Rule 86 of docs/rest.md: a request that waits is held to what holds when it is answered.
    #[test]
    fn who_waits_is_let_through_again_while_the_key_and_the_tier_hold() {
        let folder = tempfile::tempdir().unwrap();
        let (server, command) = (service(folder.path()), service(folder.path()));
        let user = command.add_user("anna", Tier::Enterprise).unwrap().user_id;
        let (key, secret) = command.create_key(user, "laptop").unwrap();
        let caller = server.authenticate(secret.reveal()).unwrap();
        server.flush_last_used().unwrap();
        let used = command.keys(user).unwrap()[0].last_used;
        server.authorize_again(&caller).unwrap();
        server.flush_last_used().unwrap();
        assert!(used.is_some());
        assert_eq!(command.keys(user).unwrap()[0].last_used, used, "it is no use of the key");

        let again = || server.authorize_again(&caller).map_err(|error| error.kind());
        command.set_tier(user, Tier::Free).unwrap();
        assert_eq!(again(), Err(ErrorKind::PermissionDenied));
        command.set_tier(user, Tier::Enterprise).unwrap();
        assert_eq!(again(), Ok(()));
        command.revoke_key(user, &key.prefix).unwrap();
        assert_eq!(again(), Err(ErrorKind::Unauthenticated));
    }

    /// Rule 20: no request writes it; it is done beside them, and when the service closes.
    #[test]
    fn the_last_use_is_written_beside_the_requests_and_when_the_service_closes() {
        let folder = tempfile::tempdir().unwrap();
        let clock = std::sync::Arc::new(crate::database::ManualClock::new());
        let open = || super::super::test_world::open(folder.path(), ServiceOptions::default(), &clock);
        let (server, other) = (open(), open());
        let user = server.add_user("anna", Tier::Enterprise).unwrap().user_id;
        let (_, secret) = server.create_key(user, "laptop").unwrap();
        let last_used = || other.keys(user).unwrap()[0].last_used;
        server.authenticate(secret.reveal()).unwrap();
        assert_eq!(last_used(), None);
        server.inner.housekeeper.wake();
        while last_used().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let first = last_used();
        clock.advance(5);
        server.authenticate(secret.reveal()).unwrap();
        assert_eq!(last_used(), first);
        drop(server);
        assert!(last_used() > first);
    }

    /// Rule 78.
    #[test]
    fn only_users_of_the_enterprise_tier_are_given_keys() {
        let folder = tempfile::tempdir().unwrap();
        let service = service(folder.path());
        let user = service.add_user("anna", Tier::Free).unwrap().user_id;
        let refused = service.create_key(user, "laptop").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        assert!(refused.message().contains("Enterprise"), "{refused}");
        assert!(service.keys(user).unwrap().is_empty());
        service.set_tier(user, Tier::Enterprise).unwrap();
        service.create_key(user, "laptop").unwrap();
        // A key of a user who leaves the tier stays, and works again when the tier is back.
        service.set_tier(user, Tier::Free).unwrap();
        assert_eq!(service.keys(user).unwrap().len(), 1);
    }

    #[test]
    fn users_and_keys_have_good_names() {
        let folder = tempfile::tempdir().unwrap();
        let service = service(folder.path());
        let user = service.add_user("anna", Tier::Free).unwrap();
        assert_eq!(service.add_user("anna", Tier::Free).unwrap_err().kind(), ErrorKind::Conflict);
        for bad in ["", "  ", "a\nb", &"x".repeat(256)] {
            assert_eq!(service.add_user(bad, Tier::Free).unwrap_err().kind(), ErrorKind::InvalidArgument);
            assert_eq!(service.create_key(user.user_id, bad).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        assert_eq!(service.create_key(UserId::random(), "x").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(service.set_tier(UserId::random(), Tier::Free).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(service.user_by_name("anna").unwrap(), user);
        assert_eq!(service.users().unwrap(), [user]);
        assert_eq!(service.user_by_name("eve").unwrap_err().kind(), ErrorKind::NotFound);
    }
}
