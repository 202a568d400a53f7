//! Signing in with a passkey: a key that the user's device keeps and gives out to nobody, unlocked by a finger, a face or a number.
//!
//! Here are the public halves. Which of them signs, and that it signs here and now, is all that a passkey says: no name is typed, no
//! secret is sent, and what was made for this host is used on no other.

use std::net::IpAddr;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::Service;
use super::access_token::AccessToken;
use super::accounts::{Browser, SignedIn, new_session, too_early};
use super::users::check_name;
use super::webauthn::{Said, Site};
use crate::database::{Passkey, PasskeyUse};
use crate::error::{Error, ErrorKind, Result};
use crate::hex::hex;
use crate::job::{Timestamp, User, UserId};

/// Passkeys of a user at most.
const MOST: u64 = 20;
/// How long somebody may take to unlock a device, seconds.
const TO_ANSWER: u64 = 300;
/// Who has signed in so many seconds ago is not asked for the password again, where there is none.
const RECENT: u64 = 600;
const TO_ADD: &str = "add a passkey";
const TO_SIGN_IN: &str = "sign in with a passkey";

/// A passkey, as its user sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnPasskey {
    /// Names it among those of its user, and opens nothing.
    pub id: String,
    /// What the user calls it.
    pub name: String,
    /// The host for which it was made.
    pub host: String,
    /// When it was added.
    pub created_at: Timestamp,
    /// When it was last used.
    pub last_used: Option<Timestamp>,
}

/// What a browser needs to make a passkey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PasskeyRequest {
    /// What the device has to answer to.
    pub challenge: String,
    /// By what the device knows the user. It says nothing about who that is.
    pub user_handle: Vec<u8>,
    /// The keys that there are: a device that has one of them makes no other.
    pub have: Vec<Vec<u8>>,
}

/// By what a passkey is named: of 64 bits, so that those of a user differ.
fn id_of(credential: &[u8]) -> String {
    let hash = Sha256::digest(credential);
    hex(hash.first_chunk::<8>().map_or(&[][..], |first| first))
}

fn unknown() -> Error {
    Error::new(
        ErrorKind::Unauthenticated,
        "This passkey is not known here, was removed, or took too long. Try again, or sign in with your password.",
    )
}

fn too_late() -> Error {
    Error::argument("that took too long, or was done already").hint("try again")
}

impl Service {
    /// What a device needs to make a passkey for who is signed in. `password` is that of the user; who has none must have signed in
    /// within the last ten minutes.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] for a wrong password or a session that is too old; [`ErrorKind::TooManyRequests`] after too many
    /// tries; [`ErrorKind::Conflict`] if there are 20 already.
    pub fn passkey_request(
        &self,
        signed_in: &SignedIn,
        password: &str,
        from: IpAddr,
    ) -> Result<PasskeyRequest> {
        let user = signed_in.user.user_id;
        if self.has_password(user)? {
            self.check_password(&signed_in.user, password, from)?;
        } else {
            let session = self.inner.database.session(&signed_in.token)?;
            let now = self.inner.clock.now();
            if session.is_none_or(|(_, session)| now >= session.created_at.plus_seconds(RECENT)) {
                return Err(Error::new(ErrorKind::PermissionDenied, "it is too long ago that you signed in")
                    .hint("sign out and in again, then add the passkey at once"));
            }
        }
        let have: Vec<_> =
            self.inner.database.passkeys(user)?.into_iter().map(|own| own.credential).collect();
        if have.len() as u64 >= MOST {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!("you have {MOST} passkeys, the most that are possible"),
            )
            .hint("remove one that you do not use"));
        }
        let challenge = self.new_challenge(TO_ADD, &signed_in.token, TO_ANSWER)?;
        Ok(PasskeyRequest { challenge, user_handle: user.0.as_bytes().to_vec(), have })
    }

    /// Adds the passkey that a device has made, for who was asked by [`Service::passkey_request`] in the same session.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a name that cannot be one, and if it took too long; [`ErrorKind::Unauthenticated`] if what the
    /// device says is wrong; [`ErrorKind::Conflict`] if the passkey is known or there are too many.
    pub fn add_passkey(&self, signed_in: &SignedIn, name: &str, site: &Site, said: &Said) -> Result<()> {
        check_name("name", name)?;
        let challenge = said.challenge()?;
        let used = self.check_challenge(&challenge, TO_ADD, &signed_in.token).ok_or_else(too_late)?;
        let key = said.new_key(site)?;
        let passkey = Passkey {
            credential: key.credential,
            user: signed_in.user.user_id,
            name: name.to_owned(),
            host: site.host.clone(),
            public_key: key.public_key,
            sign_count: key.sign_count,
            created_at: self.inner.clock.now(),
            last_used: None,
        };
        match self.inner.database.add_passkey(&passkey, MOST, &used)? {
            true => Ok(()),
            false => Err(too_late()),
        }
    }

    /// The passkeys of a user, the oldest first.
    ///
    /// # Errors
    /// The database's.
    pub fn passkeys(&self, user: UserId) -> Result<Vec<OwnPasskey>> {
        let passkeys = self.inner.database.passkeys(user)?;
        let own = |passkey: Passkey| OwnPasskey {
            id: id_of(&passkey.credential),
            name: passkey.name,
            host: passkey.host,
            created_at: passkey.created_at,
            last_used: passkey.last_used,
        };
        Ok(passkeys.into_iter().map(own).collect())
    }

    /// Removes a passkey of a user, by its [`OwnPasskey::id`]. Sessions that began with it go on.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the user has no such passkey.
    pub fn remove_passkey(&self, user: UserId, id: &str) -> Result<()> {
        let passkeys = self.inner.database.passkeys(user)?;
        let found = passkeys.iter().find(|passkey| id_of(&passkey.credential) == id);
        let removed = match found {
            Some(passkey) => self.inner.database.remove_passkey(user, &passkey.credential)?,
            None => false,
        };
        match removed {
            true => Ok(()),
            false => {
                Err(Error::new(ErrorKind::NotFound, "There is no such passkey, or it was removed already."))
            }
        }
    }

    /// What a device has to answer to for somebody to sign in.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if the system gives no random numbers.
    pub fn passkey_challenge(&self) -> Result<String> {
        self.new_challenge(TO_SIGN_IN, b"", TO_ANSWER)
    }

    /// Signs in whoever has the passkey `credential`, which said `said` with this `signature`, from the address `from`. `user_handle` is
    /// what the device was told of the user when the passkey was made.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthenticated`] with one text, whatever is wrong; [`ErrorKind::TooManyRequests`] after too many tries from this
    /// address.
    pub fn sign_in_with_passkey(
        &self,
        credential: &[u8],
        said: &Said,
        signature: &[u8],
        user_handle: &[u8],
        site: &Site,
        from: IpAddr,
        browser: &Browser<'_>,
    ) -> Result<(AccessToken, User)> {
        self.inner.tries.begin_from(from, self.inner.clock.lease_micros()).map_err(too_early)?;
        let found = self.inner.database.passkey(credential)?;
        let verified = found.and_then(|(user, passkey)| {
            // For the host for which it was made, whatever the browser was told.
            let is_for_here = passkey.host == site.host;
            let is_of_user = bool::from(user.user_id.0.as_bytes()[..].ct_eq(user_handle));
            let challenge = self.check_challenge(&said.challenge().ok()?, TO_SIGN_IN, b"")?;
            let count = said.verify(site, &passkey.public_key, signature).ok()?;
            (is_for_here && is_of_user).then_some((user, passkey, challenge, count))
        });
        let (user, passkey, challenge, sign_count) = verified.ok_or_else(unknown)?;
        let (token, session) = new_session(browser.agent)?;
        let replaces = browser.before.and_then(AccessToken::hash_of);
        let used = PasskeyUse { credential: passkey.credential, sign_count, challenge };
        // Else it was used or removed in between, or its counter went back: then there are two of it.
        if !self.inner.database.begin_session_with_passkey(&used, &session, replaces.as_ref())? {
            return Err(unknown());
        }
        self.inner.tries.succeeded_from(from);
        Ok((token, user))
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_world::World;
    use super::super::webauthn::tests::{Authenticator, site};
    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const FIREFOX: Browser<'_> = Browser { agent: "Firefox", before: None };
    const GOOD: &str = "correct horse";

    impl World {
        /// Somebody who has just chosen a password.
        fn with_password(&self, user: UserId) -> SignedIn {
            let link = self.service.invite(user).unwrap();
            let accepted = self.service.accept_invitation(link.token.reveal(), Some(GOOD), &FIREFOX).unwrap();
            self.service.session(accepted.0.reveal()).unwrap().unwrap()
        }

        fn add(&self, signed_in: &SignedIn, authenticator: &Authenticator) -> Result<()> {
            let request = self.service.passkey_request(signed_in, GOOD, HOME)?;
            let said = authenticator.create(&site(), &request.challenge);
            self.service.add_passkey(signed_in, "phone", &site(), &said)
        }

        fn answer(
            &self,
            authenticator: &Authenticator,
            challenge: &str,
            user: UserId,
        ) -> Result<(AccessToken, User)> {
            let (said, signature) = authenticator.get(&site(), challenge);
            let handle = user.0.as_bytes();
            self.service.sign_in_with_passkey(
                &authenticator.credential,
                &said,
                &signature,
                handle,
                &site(),
                HOME,
                &FIREFOX,
            )
        }

        fn signs_in_with(&self, authenticator: &Authenticator, user: UserId) -> Result<(AccessToken, User)> {
            self.answer(authenticator, &self.service.passkey_challenge().unwrap(), user)
        }
    }

    fn message<T>(result: Result<T>) -> String {
        let error = result.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
        error.message().to_owned()
    }

    #[test]
    fn a_passkey_opens_sessions_of_who_has_added_it_until_it_is_removed() {
        let w = World::new();
        let signed_in = w.with_password(w.anna);
        let phone = Authenticator::p256();
        assert_eq!(message(w.signs_in_with(&phone, w.anna)), unknown().message());
        w.add(&signed_in, &phone).unwrap();
        let own = w.service.passkeys(w.anna).unwrap();
        assert_eq!((own.len(), own[0].name.as_str(), own[0].last_used), (1, "phone", None));
        let (token, user) = w.signs_in_with(&phone, w.anna).unwrap();
        assert_eq!(user.user_id, w.anna);
        assert_eq!(w.service.session(token.reveal()).unwrap().unwrap().user.user_id, w.anna);
        assert!(w.service.passkeys(w.anna).unwrap()[0].last_used.is_some());
        // It is whose it is.
        assert_eq!(message(w.signs_in_with(&phone, w.eve)), unknown().message());
        assert_eq!(w.service.remove_passkey(w.eve, &own[0].id).unwrap_err().kind(), ErrorKind::NotFound);
        w.service.remove_passkey(w.anna, &own[0].id).unwrap();
        assert_eq!(w.service.remove_passkey(w.anna, &own[0].id).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(message(w.signs_in_with(&phone, w.anna)), unknown().message());
        assert_eq!(w.service.passkeys(w.anna).unwrap(), []);
    }

    #[test]
    fn an_answer_counts_once_and_for_its_time_and_for_what_was_asked() {
        let w = World::new();
        let signed_in = w.with_password(w.anna);
        let phone = Authenticator::p256();
        w.add(&signed_in, &phone).unwrap();
        let challenge = w.service.passkey_challenge().unwrap();
        w.answer(&phone, &challenge, w.anna).unwrap();
        assert_eq!(message(w.answer(&phone, &challenge, w.anna)), unknown().message());
        let challenge = w.service.passkey_challenge().unwrap();
        w.clock.advance(TO_ANSWER as i64 + 1);
        assert_eq!(message(w.answer(&phone, &challenge, w.anna)), unknown().message());
        for challenge in
            ["", "made up", &w.service.passkey_request(&signed_in, GOOD, HOME).unwrap().challenge]
        {
            assert_eq!(message(w.answer(&phone, challenge, w.anna)), unknown().message());
        }
        // Nor does one with which somebody signs in add a passkey, nor one of another session.
        let tablet = Authenticator::p256();
        let eve = w.with_password(w.eve);
        for challenge in [
            w.service.passkey_challenge().unwrap(),
            w.service.passkey_request(&eve, GOOD, HOME).unwrap().challenge,
        ] {
            let said = tablet.create(&site(), &challenge);
            let error = w.service.add_passkey(&signed_in, "tablet", &site(), &said).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
        let request = w.service.passkey_request(&signed_in, GOOD, HOME).unwrap();
        assert_eq!(request.have, std::slice::from_ref(&phone.credential));
        let said = tablet.create(&site(), &request.challenge);
        w.service.add_passkey(&signed_in, "tablet", &site(), &said).unwrap();
        let again = w.service.add_passkey(&signed_in, "tablet", &site(), &said).unwrap_err();
        assert!(matches!(again.kind(), ErrorKind::InvalidArgument | ErrorKind::Conflict), "{again}");
        assert_eq!(w.service.passkeys(w.anna).unwrap().len(), 2);
    }

    #[test]
    fn a_passkey_is_for_the_host_for_which_it_was_made() {
        let w = World::new();
        let signed_in = w.with_password(w.anna);
        let phone = Authenticator::p256();
        w.add(&signed_in, &phone).unwrap();
        let evil = Site { origin: "https://evil.example".into(), host: "evil.example".into() };
        let (said, signature) = phone.get(&evil, &w.service.passkey_challenge().unwrap());
        let handle = w.anna.0.as_bytes();
        let taken = w.service.sign_in_with_passkey(
            &phone.credential,
            &said,
            &signature,
            handle,
            &evil,
            HOME,
            &FIREFOX,
        );
        assert_eq!(message(taken), unknown().message());
    }

    #[test]
    fn a_copied_authenticator_is_noticed_by_its_counter() {
        let w = World::new();
        let signed_in = w.with_password(w.anna);
        let mut phone = Authenticator::p256();
        phone.count = 5;
        w.add(&signed_in, &phone).unwrap();
        for (count, opens) in [(6, true), (6, false), (4, false), (9, true), (0, false)] {
            phone.count = count;
            assert_eq!(w.signs_in_with(&phone, w.anna).is_ok(), opens, "{count}");
        }
    }

    #[test]
    fn who_adds_a_passkey_knows_the_password_or_has_just_signed_in() {
        let w = World::new();
        let signed_in = w.with_password(w.anna);
        let asked = |password: &str| w.service.passkey_request(&signed_in, password, HOME).map(drop);
        assert_eq!(asked("wrong password").unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(asked("").unwrap_err().kind(), ErrorKind::PermissionDenied);
        asked(GOOD).unwrap();
        // Guesses wait as they do where one signs in.
        let guesses: Vec<_> = (0..6).map(|_| asked("wrong password").unwrap_err().kind()).collect();
        assert_eq!(guesses.last(), Some(&ErrorKind::TooManyRequests));

        let link = w.service.sign_in_link(w.eve).unwrap();
        let (token, _) = w.service.accept_invitation(link.token.reveal(), None, &FIREFOX).unwrap();
        let eve = w.service.session(token.reveal()).unwrap().unwrap();
        w.service.passkey_request(&eve, "", HOME).unwrap();
        w.clock.advance(RECENT as i64);
        let late = w.service.passkey_request(&eve, "", HOME).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    fn tries_from_an_address_have_to_wait() {
        let w = World::new();
        let phone = Authenticator::p256();
        let kinds: Vec<_> = (0..40).map(|_| w.signs_in_with(&phone, w.anna).unwrap_err().kind()).collect();
        assert_eq!((kinds[0], kinds[39]), (ErrorKind::Unauthenticated, ErrorKind::TooManyRequests));
    }

    #[test]
    fn a_new_password_by_invitation_takes_all_passkeys_away() {
        let w = World::new();
        let signed_in = w.with_password(w.anna);
        let phone = Authenticator::p256();
        w.add(&signed_in, &phone).unwrap();
        w.with_password(w.eve);
        w.signs_in_with(&phone, w.anna).unwrap();
        w.with_password(w.anna);
        assert_eq!(message(w.signs_in_with(&phone, w.anna)), unknown().message());
    }

    #[test]
    fn there_are_as_many_as_anybody_needs() {
        let w = World::new();
        let signed_in = w.with_password(w.anna);
        for _ in 0..MOST {
            w.add(&signed_in, &Authenticator::p256()).unwrap();
        }
        let one_more = w.add(&signed_in, &Authenticator::p256()).unwrap_err();
        assert_eq!(one_more.kind(), ErrorKind::Conflict);
    }
}
