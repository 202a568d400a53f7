//! How users sign in to the web application: invitations, passwords, sessions. `passkeys.rs` and `identities.rs` are the ways without a password.
//!
//! An operator gives a user a link; who opens it chooses a password and is signed in. A session is a token that the browser holds;
//! it is looked up with every request, so what ends it counts at once, in all processes. Whether a name is known is told by nothing:
//! neither by the answer to a wrong password nor by the time that it takes.

use std::net::IpAddr;
use std::time::Duration;

use super::Service;
use super::access_token::AccessToken;
use super::passwords;
use crate::database::{Invitation, NewInvitation, NewSession, TokenHash, Usage};
use crate::error::{Error, ErrorKind, Result};
use crate::hex::hex;
use crate::job::{Timestamp, User, UserId};

/// How long an invitation holds, seconds: three days, so that a weekend may lie between.
const INVITATION: u64 = 3 * 24 * 3600;
/// A session that nobody uses ends after so many seconds: a week.
const IDLE: u64 = 7 * 24 * 3600;
/// A session ends after so many seconds in any case: thirty days, the longest that NIST SP 800-63B (section 4.1.3) has for one factor.
const LIFETIME: u64 = 30 * 24 * 3600;
/// So old may the note be of when a session was last used, seconds: a page costs no write to the disk.
const NOTED_EVERY: u64 = 60;
/// Characters that are kept of what a browser calls itself: enough for its name, which stands last.
const AGENT_CHARACTERS: usize = 160;
/// The browser with which somebody signs in.
#[derive(Debug, Clone, Copy)]
pub struct Browser<'a> {
    /// What it calls itself.
    pub agent: &'a str,
    /// The token of a session that it holds already. That one ends.
    pub before: Option<&'a str>,
}

/// A link that was made for a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invited {
    /// What the link has. It can be used once.
    pub token: AccessToken,
    /// Until when it holds.
    pub expires_at: Timestamp,
}

/// Who is signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedIn {
    /// The user, with what the user may do now.
    pub user: User,
    /// The session.
    pub(super) token: TokenHash,
}

/// A session, as its user sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenSession {
    /// Names it among those of its user, and opens nothing.
    pub id: String,
    /// What the browser called itself.
    pub agent: String,
    /// When the user signed in.
    pub created_at: Timestamp,
    /// When it was last used, to the minute.
    pub seen_at: Timestamp,
    /// When it ends at the latest.
    pub expires_at: Timestamp,
    /// Whether it is the one that asks.
    pub is_this: bool,
}

/// By what a session is named: of 64 bits, so that those of a user differ.
fn id_of(token: &TokenHash) -> String {
    hex(token.first_chunk::<8>().map_or(&[][..], |first| first))
}

fn wrong() -> Error {
    Error::new(ErrorKind::Unauthenticated, "The name or the password is wrong.")
}

fn wrong_now() -> Error {
    Error::new(ErrorKind::PermissionDenied, "the current password is wrong")
}

pub(super) fn too_early(wait: Duration) -> Error {
    let seconds = wait.as_millis().div_ceil(1000).max(1);
    Error::new(
        ErrorKind::TooManyRequests,
        format!("There were too many attempts to sign in. Try again in {seconds} seconds."),
    )
}

fn no_invitation() -> Error {
    Error::new(ErrorKind::NotFound, "This link was used already, was replaced by a newer one, or is too old.")
        .hint("ask for a new one")
}

pub(super) fn new_session(agent: &str) -> Result<(AccessToken, NewSession)> {
    let token = AccessToken::random()?;
    let agent = agent.chars().filter(|c| !c.is_control()).take(AGENT_CHARACTERS).collect();
    let session = NewSession { token: token.hash(), agent, idle_seconds: IDLE, lifetime_seconds: LIFETIME };
    Ok((token, session))
}

impl Service {
    /// Makes a link with which a user chooses a password, for three days; it takes the place of all links of the user before.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such user.
    pub fn invite(&self, user: UserId) -> Result<Invited> {
        self.make_link(user, true)
    }

    /// The same, but who opens it is signed in without a password: for a server on one's own machine.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such user.
    pub fn sign_in_link(&self, user: UserId) -> Result<Invited> {
        self.make_link(user, false)
    }

    fn make_link(&self, user: UserId, sets_password: bool) -> Result<Invited> {
        let token = AccessToken::random()?;
        let new = NewInvitation { token: token.hash(), user, sets_password, lifetime_seconds: INVITATION };
        let expires_at = self.inner.database.add_invitation(&new)?;
        Ok(Invited { token, expires_at })
    }

    /// Whom a link is for. It is not used up by this.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for every link that holds no more or never did.
    pub fn invitation(&self, token: &str) -> Result<Invitation> {
        let hash = AccessToken::hash_of(token).ok_or_else(no_invitation)?;
        self.inner.database.invitation(&hash)?.ok_or_else(no_invitation)
    }

    /// Uses a link up: its user has this password from now on and no passkeys, all sessions from before end, and one begins.
    /// A link that asks for no password leaves the old one and the other sessions as they are.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] as for [`Service::invitation`]; [`ErrorKind::InvalidArgument`] for a password that is missing,
    /// shorter than 8 or longer than 128 characters, or easy to guess: then the link still holds.
    pub fn accept_invitation(
        &self,
        token: &str,
        password: Option<&str>,
        browser: &Browser<'_>,
    ) -> Result<(AccessToken, User)> {
        let invitation = self.invitation(token)?;
        let hash = match (invitation.sets_password, password) {
            (true, Some(password)) => {
                passwords::check(password, &invitation.user.name)?;
                Some(self.inner.passwords.hash(password)?)
            }
            (true, None) => return Err(Error::argument("choose a password")),
            (false, _) => None,
        };
        let used = AccessToken::hash_of(token).ok_or_else(no_invitation)?;
        let (token, session) = new_session(browser.agent)?;
        let accepted = self.inner.database.accept_invitation(&used, hash.as_deref(), &session)?;
        let user = accepted.ok_or_else(no_invitation)?;
        if let Some(before) = browser.before {
            self.sign_out(before)?;
        }
        Ok((token, user))
    }

    /// Signs a user in who comes from the address `from`.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthenticated`] with one text for unknown names, users without a password and wrong passwords, after the same
    /// work; [`ErrorKind::TooManyRequests`] after too many tries of this name or from this address, whether the password is
    /// right or not.
    pub fn sign_in(
        &self,
        name: &str,
        password: &str,
        from: IpAddr,
        browser: &Browser<'_>,
    ) -> Result<(AccessToken, User)> {
        self.count_try(name, from)?;
        let user = self.inner.database.user_by_name(name)?;
        // One who is not there has no password, either.
        let user_id = user.as_ref().map_or(UserId(uuid::Uuid::nil()), |user| user.user_id);
        let kept = self.inner.database.password(user_id)?;
        let is_right = self.inner.passwords.verify(password, kept.as_deref())?;
        let (Some(user), Some(kept), true) = (user, kept, is_right) else { return Err(wrong()) };
        let (token, session) = new_session(browser.agent)?;
        let before = browser.before.and_then(AccessToken::hash_of);
        // Else the password was changed in between.
        if !self.inner.database.begin_session(user.user_id, &kept, &session, before.as_ref())? {
            return Err(wrong());
        }
        self.inner.tries.succeeded(name, from);
        Ok((token, user))
    }

    fn count_try(&self, name: &str, from: IpAddr) -> Result<()> {
        self.inner.tries.begin(name, from, self.inner.clock.lease_micros()).map_err(too_early)
    }

    /// Who is signed in with this token, if it is one of a session that goes on. It goes on for longer by this.
    ///
    /// # Errors
    /// The database's.
    pub fn session(&self, token: &str) -> Result<Option<SignedIn>> {
        let Some(hash) = AccessToken::hash_of(token) else { return Ok(None) };
        let database = &self.inner.database;
        let Some((user, session)) = database.session(&hash)? else { return Ok(None) };
        if session.seen_at.plus_seconds(NOTED_EVERY) <= self.inner.clock.now()
            && let Err(error) = database.touch_session(&hash, IDLE)
        {
            // On a full disk pages must still be shown: space is freed by them.
            log::warn!("when a session was last used: {error:?}");
        }
        Ok(Some(SignedIn { user, token: hash }))
    }

    /// The open sessions of who is signed in, the one that was used last first.
    ///
    /// # Errors
    /// The database's.
    pub fn sessions(&self, signed_in: &SignedIn) -> Result<Vec<OpenSession>> {
        let sessions = self.inner.database.sessions(signed_in.user.user_id)?;
        Ok(sessions
            .into_iter()
            .map(|session| OpenSession {
                id: id_of(&session.token),
                is_this: session.token == signed_in.token,
                agent: session.agent,
                created_at: session.created_at,
                seen_at: session.seen_at,
                expires_at: session.expires_at,
            })
            .collect())
    }

    /// Replaces the password of who is signed in; all other sessions end.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if `current` is not the password, [`ErrorKind::InvalidArgument`] for a bad new one,
    /// [`ErrorKind::TooManyRequests`] after too many tries.
    pub fn change_password(
        &self,
        signed_in: &SignedIn,
        current: &str,
        new: &str,
        from: IpAddr,
    ) -> Result<()> {
        let user = &signed_in.user;
        passwords::check(new, &user.name)?;
        let kept = self.check_password(user, current, from)?;
        let hash = self.inner.passwords.hash(new)?;
        match self.inner.database.change_password(user.user_id, &kept, &hash, &signed_in.token)? {
            true => Ok(()),
            // It was changed in between.
            false => Err(wrong_now()),
        }
    }

    /// Whether somebody who is signed in knows the password; what is kept of it.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if it is wrong, [`ErrorKind::TooManyRequests`] after too many tries.
    pub(super) fn check_password(&self, user: &User, password: &str, from: IpAddr) -> Result<String> {
        self.count_try(&user.name, from)?;
        let kept = self.inner.database.password(user.user_id)?;
        let is_right = self.inner.passwords.verify(password, kept.as_deref())?;
        let (Some(kept), true) = (kept, is_right) else { return Err(wrong_now()) };
        self.inner.tries.succeeded(&user.name, from);
        Ok(kept)
    }

    /// Whether a user has a password: one who was never invited has none.
    ///
    /// # Errors
    /// The database's.
    pub fn has_password(&self, user: UserId) -> Result<bool> {
        Ok(self.inner.database.password(user)?.is_some())
    }

    /// Ends a session. A token of none does nothing.
    ///
    /// # Errors
    /// The database's.
    pub fn sign_out(&self, token: &str) -> Result<()> {
        match AccessToken::hash_of(token) {
            Some(hash) => self.inner.database.end_session(&hash),
            None => Ok(()),
        }
    }

    /// Ends one of the sessions of a user, by its [`OpenSession::id`]: that of a browser that is not at hand.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the user has no such session (any more); the database's.
    pub fn end_session(&self, user: UserId, id: &str) -> Result<()> {
        let sessions = self.inner.database.sessions(user)?;
        let Some(session) = sessions.iter().find(|session| id_of(&session.token) == id) else {
            return Err(Error::new(
                ErrorKind::NotFound,
                "There is no such session, or it has ended already.",
            ));
        };
        self.inner.database.end_session(&session.token)
    }

    /// Ends all sessions of a user, and takes back all links: says how many sessions.
    ///
    /// # Errors
    /// The database's.
    pub fn sign_out_everywhere(&self, user: UserId) -> Result<u64> {
        self.inner.database.end_sessions(user, None)
    }

    /// What a user has of what is limited ([`Service::limits`]).
    ///
    /// # Errors
    /// The database's.
    pub fn usage(&self, user: UserId) -> Result<Usage> {
        self.inner.database.usage(user)
    }
}

#[cfg(test)]
mod tests {
    use super::super::sign_in_tries::FREE_FROM_AN_ADDRESS;
    use super::super::test_world::World;
    use super::*;
    use crate::job::Tier;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const FIREFOX: Browser<'_> = Browser { agent: "Firefox", before: None };
    const GOOD: &str = "correct horse";

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    impl World {
        fn accepted(&self, user: UserId) -> AccessToken {
            let link = self.service.invite(user).unwrap();
            self.service.accept_invitation(link.token.reveal(), Some(GOOD), &FIREFOX).unwrap().0
        }

        fn signs_in(&self, password: &str) -> Result<(AccessToken, User)> {
            self.service.sign_in("anna", password, HOME, &FIREFOX)
        }

        fn who(&self, token: &AccessToken) -> Option<UserId> {
            self.service.session(token.reveal()).unwrap().map(|signed_in| signed_in.user.user_id)
        }
    }

    #[test]
    fn from_the_invitation_to_the_end_of_the_session() {
        let w = World::new();
        let link = w.service.invite(w.anna).unwrap();
        let token = link.token.reveal();
        let invited = w.service.invitation(token).unwrap();
        assert_eq!((invited.user.name.as_str(), invited.expires_at), ("anna", link.expires_at));
        // A bad password does not use it up.
        for bad in [Some("short"), Some("password1"), Some("anna1234"), None] {
            let error = w.service.accept_invitation(token, bad, &FIREFOX).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{bad:?}");
        }
        assert!(!w.service.has_password(w.anna).unwrap());
        let (session, user) = w.service.accept_invitation(token, Some(GOOD), &FIREFOX).unwrap();
        assert_eq!((user.user_id, w.who(&session)), (w.anna, Some(w.anna)));
        let again = w.service.accept_invitation(token, Some(GOOD), &FIREFOX).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::NotFound);
        assert_eq!(w.service.invitation("nonsense").unwrap_err().to_string(), again.to_string());
        // The token of a link is none of a session, and the other way round.
        assert_eq!(w.service.session(token).unwrap(), None);
        assert!(w.service.invitation(session.reveal()).is_err());

        let (other, _) = w.signs_in(GOOD).unwrap();
        assert_eq!((w.who(&session), w.who(&other)), (Some(w.anna), Some(w.anna)));
        w.service.sign_out(other.reveal()).unwrap();
        assert_eq!((w.who(&session), w.who(&other)), (Some(w.anna), None));
        assert_eq!(w.service.sign_out_everywhere(w.anna).unwrap(), 1);
        assert_eq!(w.who(&session), None);
    }

    #[test]
    fn one_session_is_ended_by_its_user_and_by_nobody_else() {
        let w = World::new();
        let here = w.accepted(w.anna);
        let (away, _) = w.signs_in(GOOD).unwrap();
        let of_eve = w.accepted(w.eve);
        let asking = w.service.session(here.reveal()).unwrap().unwrap();
        let sessions = w.service.sessions(&asking).unwrap();
        let other = sessions.iter().find(|session| !session.is_this).unwrap();
        assert_eq!(w.service.end_session(w.eve, &other.id).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(w.who(&away), Some(w.anna));
        w.service.end_session(w.anna, &other.id).unwrap();
        assert_eq!((w.who(&away), w.who(&here), w.who(&of_eve)), (None, Some(w.anna), Some(w.eve)));
        assert_eq!(w.service.end_session(w.anna, &other.id).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(w.service.session(&other.id).unwrap(), None);
    }

    #[test]
    fn who_signs_in_again_has_a_new_token_and_the_old_one_is_worth_nothing() {
        let w = World::new();
        let first = w.accepted(w.anna);
        let browser = Browser { before: Some(first.reveal()), ..FIREFOX };
        let (second, _) = w.service.sign_in("anna", GOOD, HOME, &browser).unwrap();
        assert_ne!(first, second);
        assert_eq!((w.who(&first), w.who(&second)), (None, Some(w.anna)));
        // Also if it is somebody else's, who used the browser before.
        let link = w.service.invite(w.eve).unwrap();
        let browser = Browser { before: Some(second.reveal()), ..FIREFOX };
        w.service.accept_invitation(link.token.reveal(), Some(GOOD), &browser).unwrap();
        assert_eq!(w.who(&second), None);
    }

    #[test]
    fn unknown_names_and_wrong_passwords_have_the_same_answer() {
        let w = World::new();
        w.accepted(w.anna);
        let answers = ["anna", "eve", "nobody", ""]
            .map(|name| w.service.sign_in(name, "wrong horse", HOME, &FIREFOX).unwrap_err());
        for answer in &answers {
            assert_eq!(answer.kind(), ErrorKind::Unauthenticated);
            assert_eq!(answer.to_string(), answers[0].to_string());
        }
        // The medians of a few, in turn, as others use this machine too. A hash takes milliseconds, all else much less.
        let mut times = [const { Vec::new() }; 3];
        for round in 0..7 {
            for (name, times) in ["anna", "eve", "nobody"].iter().zip(&mut times) {
                let begun = std::time::Instant::now();
                w.service.sign_in(name, "wrong horse", address(round), &FIREFOX).unwrap_err();
                times.push(begun.elapsed().as_secs_f64());
                w.service.inner.tries.succeeded(name, address(round));
            }
        }
        let [known, without, unknown] = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[3]
        });
        for other in [without, unknown] {
            assert!((0.33..3.0).contains(&(other / known)), "{known} {without} {unknown}");
        }
    }

    #[test]
    fn after_five_tries_a_name_has_to_wait_whether_it_is_known_or_not() {
        let w = World::new();
        w.accepted(w.anna);
        for name in ["anna", "nobody"] {
            for n in 0..5 {
                let error = w.service.sign_in(name, "wrong horse", address(n), &FIREFOX).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unauthenticated);
            }
            // From another address, and with the right password, too.
            let error = w.service.sign_in(name, GOOD, address(9), &FIREFOX).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TooManyRequests);
            assert!(error.message().contains("in 2 seconds"), "{error}");
        }
        w.clock.advance(2);
        w.signs_in(GOOD).unwrap();
        // It begins anew.
        for _ in 0..4 {
            assert_eq!(w.signs_in("wrong horse").unwrap_err().kind(), ErrorKind::Unauthenticated);
        }
        w.signs_in(GOOD).unwrap();
    }

    #[test]
    fn an_address_has_to_wait_however_many_names_it_tries() {
        let w = World::new();
        w.accepted(w.anna);
        // Without the work, which is the same whatever is tried.
        for n in 0..FREE_FROM_AN_ADDRESS {
            w.service.count_try(&format!("name{n}"), address(1)).unwrap();
        }
        let refused = w.service.sign_in("anna", GOOD, address(1), &FIREFOX).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TooManyRequests);
        // An office in the morning: who is right counts for nothing.
        for _ in 0..FREE_FROM_AN_ADDRESS {
            w.service.count_try("anna", address(2)).unwrap();
            w.service.inner.tries.succeeded("anna", address(2));
        }
        w.service.sign_in("anna", GOOD, address(2), &FIREFOX).unwrap();
        w.clock.advance(16 * 60);
        w.service.maintain().unwrap();
        w.service.sign_in("anna", GOOD, address(1), &FIREFOX).unwrap();
    }

    #[test]
    fn sessions_end_by_themselves_and_their_rows_are_swept() {
        let w = World::new();
        let token = w.accepted(w.anna);
        let signed_in = w.service.session(token.reveal()).unwrap().unwrap();
        // Used each day it goes on for thirty days and no longer.
        for _ in 0..29 {
            w.clock.advance(24 * 3600);
            assert_eq!(w.who(&token), Some(w.anna));
        }
        let seen = &w.service.sessions(&signed_in).unwrap()[0];
        let days = (seen.seen_at.as_micros() - seen.created_at.as_micros()) / (24 * 3600 * 1_000_000);
        assert_eq!(days, 29);
        assert!(seen.is_this);
        w.clock.advance(24 * 3600);
        assert_eq!(w.who(&token), None);

        let (token, _) = w.signs_in(GOOD).unwrap();
        w.clock.advance(IDLE as i64 - 1);
        assert_eq!(w.who(&token), Some(w.anna));
        w.clock.advance(IDLE as i64);
        assert_eq!(w.who(&token), None);
        w.service.invite(w.eve).unwrap();
        w.clock.advance(INVITATION as i64);
        w.service.maintain().unwrap();
        assert_eq!(w.service.inner.database.forget_expired_accesses().unwrap(), 0);
    }

    #[test]
    fn a_user_sees_the_own_sessions_and_no_others() {
        let w = World::new();
        let first = w.accepted(w.anna);
        w.accepted(w.eve);
        let long = format!("Mozilla/5.0\n{}", "x".repeat(1000));
        let browser = Browser { agent: &long, before: None };
        w.clock.advance(1);
        w.service.sign_in("anna", GOOD, HOME, &browser).unwrap();
        let signed_in = w.service.session(first.reveal()).unwrap().unwrap();
        let sessions = w.service.sessions(&signed_in).unwrap();
        assert_eq!(sessions.iter().map(|s| s.is_this).collect::<Vec<_>>(), [false, true]);
        assert_eq!(sessions[0].agent.chars().count(), AGENT_CHARACTERS);
        assert!(!sessions[0].agent.contains('\n'));
    }

    #[test]
    fn a_new_password_ends_the_other_sessions_and_wants_the_old_one() {
        let w = World::new();
        let (here, there) = (w.accepted(w.anna), w.signs_in(GOOD).unwrap().0);
        let signed_in = w.service.session(here.reveal()).unwrap().unwrap();
        let change = |current: &str, new: &str| w.service.change_password(&signed_in, current, new, HOME);
        assert_eq!(change("wrong horse", "battery staple").unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(change(GOOD, "anna").unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(w.who(&there), Some(w.anna));
        change(GOOD, "battery staple").unwrap();
        assert_eq!((w.who(&here), w.who(&there)), (Some(w.anna), None));
        assert!(w.signs_in(GOOD).is_err());
        w.signs_in("battery staple").unwrap();
        // A new invitation is the way back for who has forgotten it: it ends all.
        w.accepted(w.anna);
        assert_eq!(w.who(&here), None);
        w.signs_in(GOOD).unwrap();
    }

    #[test]
    fn a_link_that_signs_in_sets_no_password_and_ends_nothing() {
        let w = World::new();
        let session = w.accepted(w.anna);
        let link = w.service.sign_in_link(w.anna).unwrap();
        let (other, _) =
            w.service.accept_invitation(link.token.reveal(), Some("another one"), &FIREFOX).unwrap();
        assert_eq!((w.who(&session), w.who(&other)), (Some(w.anna), Some(w.anna)));
        w.signs_in(GOOD).unwrap();
        assert!(w.service.accept_invitation(link.token.reveal(), None, &FIREFOX).is_err());
    }

    /// What the user may do is looked up with every request.
    #[test]
    fn a_tier_that_is_lost_is_lost_in_open_sessions_too() {
        let w = World::new();
        let token = w.accepted(w.anna);
        w.service.set_tier(w.anna, Tier::Free).unwrap();
        let signed_in = w.service.session(token.reveal()).unwrap().unwrap();
        assert_eq!(signed_in.user.tier, Tier::Free);
        let refused = w.service.create_key(signed_in.user.user_id, "laptop").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    }
}
