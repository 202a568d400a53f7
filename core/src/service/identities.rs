//! Signing in by another service that knows who somebody is (OpenID Connect). The face asks that service and verifies what it says; here it
//! is known whose identity that is, and that each answer counts once.

use std::net::IpAddr;

use sha2::{Digest, Sha256};

use super::Service;
use super::access_token::AccessToken;
use super::accounts::{Browser, new_session, too_early};
use super::users::check_name;
use crate::database::Identity;
use crate::error::{Error, ErrorKind, Result};
use crate::hex::hex;
use crate::job::{Tier, User, UserId};

/// How long somebody may take to sign in there, seconds.
const TO_RETURN: u64 = 900;
const TO_SIGN_IN: &str = "sign in by an identity";

/// What goes to the other service and must come back with its answer, in the same browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReturnTicket {
    /// What the browser keeps meanwhile, and shows to nobody else.
    pub token: AccessToken,
    /// What the other service sends back (`state`).
    pub state: String,
    /// What it has to sign (`nonce`).
    pub nonce: String,
    /// What shows that who asks for the answer is who has sent the browser there (`code_verifier` of RFC 7636).
    pub verifier: String,
}

/// A user who is to be added on the first visit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Newcomer {
    /// How the user is to be called.
    pub name: String,
    /// What the user may do.
    pub tier: Tier,
}

fn is_nobodys() -> Error {
    Error::new(
        ErrorKind::PermissionDenied,
        "Nobody here is known by this account. Ask who runs this server to link it.",
    )
}

fn too_late() -> Error {
    Error::new(
        ErrorKind::Unauthenticated,
        "That took too long, was done already, or began in another browser. Try again.",
    )
}

/// What follows from the browser's token, and from nothing that others see.
fn derived(token: &str, what: &str) -> String {
    hex(&Sha256::digest(format!("{what}\n{token}")))
}

impl ReturnTicket {
    fn of(token: AccessToken, state: String) -> Self {
        let (nonce, verifier) = (derived(token.reveal(), "nonce"), derived(token.reveal(), "verifier"));
        Self { token, state, nonce, verifier }
    }
}

impl Service {
    /// A ticket for a browser that is sent to another service. It holds for a quarter of an hour, and for one return.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if the system gives no random numbers.
    pub fn leave_to_sign_in(&self) -> Result<ReturnTicket> {
        let token = AccessToken::random()?;
        let state = self.new_challenge(TO_SIGN_IN, &token.hash(), TO_RETURN)?;
        Ok(ReturnTicket::of(token, state))
    }

    /// The ticket of a browser that comes back with `state` and has kept `token`. It is not used up by this.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthenticated`] if the two do not belong together, or do not hold any more; [`ErrorKind::TooManyRequests`]
    /// after too many tries from this address.
    pub fn return_to_sign_in(&self, token: &str, state: &str, from: IpAddr) -> Result<ReturnTicket> {
        self.inner.tries.begin_from(from, self.inner.clock.lease_micros()).map_err(too_early)?;
        let token = AccessToken::presented(token).ok_or_else(too_late)?;
        self.check_challenge(state, TO_SIGN_IN, &token.hash()).ok_or_else(too_late)?;
        Ok(ReturnTicket::of(token, state.to_owned()))
    }

    /// Signs in whose identity this is, after the other service has said so for this ticket. If it is nobody's yet, `newcomer` is added,
    /// if there is one.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if it is nobody's, or the name of a newcomer is taken;
    /// [`ErrorKind::Unauthenticated`] if the ticket was used or holds no more.
    pub fn sign_in_by_identity(
        &self,
        identity: &Identity,
        ticket: &ReturnTicket,
        newcomer: Option<&Newcomer>,
        from: IpAddr,
        browser: &Browser<'_>,
    ) -> Result<(AccessToken, User)> {
        let challenge =
            self.check_challenge(&ticket.state, TO_SIGN_IN, &ticket.token.hash()).ok_or_else(too_late)?;
        if self.inner.database.user_by_identity(identity)?.is_none() {
            self.add_newcomer(identity, newcomer.ok_or_else(is_nobodys)?)?;
        }
        let (token, session) = new_session(browser.agent)?;
        let replaces = browser.before.and_then(AccessToken::hash_of);
        let begun = self.inner.database.begin_session_by_identity(
            identity,
            &challenge,
            &session,
            replaces.as_ref(),
        )?;
        let user = begun.ok_or_else(too_late)?;
        self.inner.tries.succeeded_from(from);
        Ok((token, user))
    }

    fn add_newcomer(&self, identity: &Identity, newcomer: &Newcomer) -> Result<()> {
        check_name("the name of your account", &newcomer.name)?;
        let user = User {
            user_id: UserId::random(),
            name: newcomer.name.clone(),
            tier: newcomer.tier,
            created_at: self.inner.clock.now(),
        };
        match self.inner.database.add_identity(identity, &user, true) {
            // Two visits at once: the other one has added it.
            Err(e)
                if e.kind() == ErrorKind::Conflict
                    && self.inner.database.user_by_identity(identity)?.is_some() =>
            {
                Ok(())
            }
            // A name alone says nothing: whoever has it here may be somebody else.
            Err(e) if e.kind() == ErrorKind::Conflict => Err(Error::new(
                ErrorKind::PermissionDenied,
                format!(
                    "There is a user {:?} here already. Ask who runs this server to link your account.",
                    newcomer.name
                ),
            )),
            done => done,
        }
    }

    /// Has a user sign in by an identity from now on, too.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if it is somebody's already, [`ErrorKind::InvalidArgument`] if it has no name or no issuer.
    pub fn link_identity(&self, user: &User, identity: &Identity) -> Result<()> {
        check_name("the subject", &identity.subject)?;
        check_name("the issuer", &identity.issuer)?;
        self.inner.database.add_identity(identity, user, false)
    }

    /// The identities by which a user signs in.
    ///
    /// # Errors
    /// The database's.
    pub fn identities(&self, user: UserId) -> Result<Vec<Identity>> {
        self.inner.database.identities(user)
    }

    /// Takes all identities of a user away; says how many. Sessions go on.
    ///
    /// # Errors
    /// The database's.
    pub fn unlink_identities(&self, user: UserId) -> Result<u64> {
        self.inner.database.remove_identities(user)
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_world::World;
    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const FIREFOX: Browser<'_> = Browser { agent: "Firefox", before: None };

    fn identity(subject: &str) -> Identity {
        Identity { issuer: "https://login.example".into(), subject: subject.into() }
    }

    impl World {
        fn comes_back(&self, subject: &str, newcomer: Option<&str>) -> Result<String> {
            let left = self.service.leave_to_sign_in().unwrap();
            let ticket = self.service.return_to_sign_in(left.token.reveal(), &left.state, HOME)?;
            assert_eq!(ticket, left);
            let newcomer = newcomer.map(|name| Newcomer { name: name.into(), tier: Tier::Free });
            let (token, user) = self.service.sign_in_by_identity(
                &identity(subject),
                &ticket,
                newcomer.as_ref(),
                HOME,
                &FIREFOX,
            )?;
            assert_eq!(self.service.session(token.reveal()).unwrap().unwrap().user, user);
            Ok(user.name)
        }
    }

    #[test]
    fn who_is_linked_signs_in_and_nobody_else() {
        let w = World::new();
        let anna = w.service.user_by_name("anna").unwrap();
        assert_eq!(w.comes_back("a", None).unwrap_err().kind(), ErrorKind::PermissionDenied);
        w.service.link_identity(&anna, &identity("a")).unwrap();
        assert_eq!(w.comes_back("a", None).unwrap(), "anna");
        let eve = w.service.user_by_name("eve").unwrap();
        assert_eq!(w.service.link_identity(&eve, &identity("a")).unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(
            w.service.link_identity(&eve, &identity(" ")).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
        assert_eq!(w.service.identities(w.anna).unwrap(), [identity("a")]);
        assert_eq!(w.service.unlink_identities(w.anna).unwrap(), 1);
        assert_eq!(w.comes_back("a", None).unwrap_err().kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    fn newcomers_are_added_once_and_never_take_a_name() {
        let w = World::new();
        assert_eq!(w.comes_back("n", Some("nora@example.org")).unwrap(), "nora@example.org");
        assert_eq!(w.service.user_by_name("nora@example.org").unwrap().tier, Tier::Free);
        // Who is known stays so, whatever the name is now.
        assert_eq!(w.comes_back("n", Some("anna")).unwrap(), "nora@example.org");
        let taken = w.comes_back("other", Some("anna")).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::PermissionDenied);
        assert_eq!(w.comes_back("other", Some("")).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn an_answer_counts_once_in_the_browser_that_has_asked_and_for_its_time() {
        let w = World::new();
        w.service.link_identity(&w.service.user_by_name("anna").unwrap(), &identity("a")).unwrap();
        let (left, other) = (w.service.leave_to_sign_in().unwrap(), w.service.leave_to_sign_in().unwrap());
        assert!(left.nonce != other.nonce && left.verifier != other.verifier && left.nonce != left.verifier);
        let back = |token: &str, state: &str| w.service.return_to_sign_in(token, state, HOME);
        for (token, state) in [
            (other.token.reveal(), &left.state[..]),
            (left.token.reveal(), &other.state),
            (left.token.reveal(), ""),
            ("", &left.state),
            ("x", &left.state),
        ] {
            assert_eq!(back(token, state).unwrap_err().kind(), ErrorKind::Unauthenticated);
        }
        let ticket = back(left.token.reveal(), &left.state).unwrap();
        let sign_in = || w.service.sign_in_by_identity(&identity("a"), &ticket, None, HOME, &FIREFOX);
        sign_in().unwrap();
        assert_eq!(sign_in().unwrap_err().kind(), ErrorKind::Unauthenticated);
        w.clock.advance(TO_RETURN as i64 + 1);
        assert_eq!(back(other.token.reveal(), &other.state).unwrap_err().kind(), ErrorKind::Unauthenticated);
    }

    #[test]
    fn tries_from_an_address_have_to_wait() {
        let w = World::new();
        let kinds: Vec<_> =
            (0..40).map(|_| w.service.return_to_sign_in("x", "y", HOME).unwrap_err().kind()).collect();
        assert_eq!((kinds[0], kinds[39]), (ErrorKind::Unauthenticated, ErrorKind::TooManyRequests));
    }
}
