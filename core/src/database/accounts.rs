//! What lets people sign in to the web application, as it stands in rows: passwords, passkeys, invitations, sessions.
//!
//! No secret is among them. Of a token that somebody holds there is the SHA-256, of a password what a slow hash makes of it.

use crate::error::Result;
use crate::job::{Timestamp, User, UserId};

/// SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// A session that is to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// By what it is found.
    pub token: TokenHash,
    /// What the browser calls itself, shortened.
    pub agent: String,
    /// It ends after so many seconds without a request.
    pub idle_seconds: u64,
    /// It ends after so many seconds in any case.
    pub lifetime_seconds: u64,
}

/// A session of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// By what it is found.
    pub token: TokenHash,
    /// What the browser called itself.
    pub agent: String,
    /// When the user signed in.
    pub created_at: Timestamp,
    /// When it was last noted that it is used.
    pub seen_at: Timestamp,
    /// When it ends at the latest.
    pub expires_at: Timestamp,
}

/// An invitation that is to be given out. It takes the place of all that its user has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewInvitation {
    /// By what it is found.
    pub token: TokenHash,
    /// Who is invited.
    pub user: UserId,
    /// Whether a password is to be chosen; else it signs in as it is.
    pub sets_password: bool,
    /// Seconds for which it holds.
    pub lifetime_seconds: u64,
}

/// An invitation that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invitation {
    /// Who is invited.
    pub user: User,
    /// Whether a password is to be chosen.
    pub sets_password: bool,
    /// Until when it holds.
    pub expires_at: Timestamp,
}

/// A challenge that was answered rightly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsedChallenge {
    /// SHA-256 of it.
    pub challenge: TokenHash,
    /// It holds no more from some time before this.
    pub forgotten_at: Timestamp,
}

/// The public half of a key with which a user signs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passkey {
    /// By what the device that has it names it.
    pub credential: Vec<u8>,
    /// Whose it is.
    pub user: UserId,
    /// What the user calls it.
    pub name: String,
    /// The host for which it was made.
    pub host: String,
    /// The key, as COSE has it.
    pub public_key: Vec<u8>,
    /// The counter of the device when it was last used.
    pub sign_count: u32,
    /// When it was added.
    pub created_at: Timestamp,
    /// When it was last used.
    pub last_used: Option<Timestamp>,
}

/// Who somebody is for another service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// The address of the service.
    pub issuer: String,
    /// What it calls them, for ever.
    pub subject: String,
}

/// A passkey that has signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PasskeyUse {
    /// Which.
    pub credential: Vec<u8>,
    /// The counter of the device.
    pub sign_count: u32,
    /// What it has answered to.
    pub challenge: UsedChallenge,
}

/// Passwords, passkeys, invitations and sessions of users. What has expired is as if it were not there.
pub trait AccountRows {
    /// Makes an invitation; says until when it holds.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if there is no such user.
    fn add_invitation(&self, invitation: &NewInvitation) -> Result<Timestamp>;
    /// An invitation that holds; it is not used up by this.
    ///
    /// # Errors
    /// The database's.
    fn invitation(&self, token: &TokenHash) -> Result<Option<Invitation>>;
    /// Uses an invitation up and begins a session. With a password that replaces the one before, all passkeys of the user go and all
    /// other sessions end. Nothing happens, and nothing is returned, if the invitation does not hold or asks for a password that is not
    /// given, or the other way round.
    ///
    /// # Errors
    /// The database's.
    fn accept_invitation(
        &self,
        invitation: &TokenHash,
        password: Option<&str>,
        session: &NewSession,
    ) -> Result<Option<User>>;
    /// What a password of the user is compared with, if the user has one.
    ///
    /// # Errors
    /// The database's.
    fn password(&self, user: UserId) -> Result<Option<String>>;
    /// Makes `new` the password if it is still `old`, and ends all other sessions than `keep`. Says whether it was.
    ///
    /// # Errors
    /// The database's.
    fn change_password(&self, user: UserId, old: &str, new: &str, keep: &TokenHash) -> Result<bool>;
    /// Begins a session if the password of the user is still `password`, and ends the one that it `replaces`. Says whether it
    /// was: a password that was changed meanwhile opens nothing.
    ///
    /// # Errors
    /// The database's.
    fn begin_session(
        &self,
        user: UserId,
        password: &str,
        session: &NewSession,
        replaces: Option<&TokenHash>,
    ) -> Result<bool>;
    /// Adds a passkey that answers to `challenge`; nothing happens, and it is said so, if another did before.
    ///
    /// # Errors
    /// [`Conflict`](crate::ErrorKind::Conflict) if the credential is known or the user has `most` already.
    fn add_passkey(&self, passkey: &Passkey, most: u64, challenge: &UsedChallenge) -> Result<bool>;
    /// The passkeys of a user, the oldest first.
    ///
    /// # Errors
    /// The database's.
    fn passkeys(&self, user: UserId) -> Result<Vec<Passkey>>;
    /// A passkey, and whose it is.
    ///
    /// # Errors
    /// The database's.
    fn passkey(&self, credential: &[u8]) -> Result<Option<(User, Passkey)>>;
    /// Removes a passkey; says whether the user had it.
    ///
    /// # Errors
    /// The database's.
    fn remove_passkey(&self, user: UserId, credential: &[u8]) -> Result<bool>;
    /// Begins a session with a passkey, and ends the one that it `replaces`. Says whether it was: not if the passkey is gone, if its
    /// challenge was answered to before, or if its counter has not grown, unless it has always been 0.
    ///
    /// # Errors
    /// The database's.
    fn begin_session_with_passkey(
        &self,
        used: &PasskeyUse,
        session: &NewSession,
        replaces: Option<&TokenHash>,
    ) -> Result<bool>;
    /// Makes a user known by an identity, and adds the user if `is_new`.
    ///
    /// # Errors
    /// [`Conflict`](crate::ErrorKind::Conflict) if the identity is somebody's already or the name of a new user is taken;
    /// [`NotFound`](crate::ErrorKind::NotFound) if there is no such user.
    fn add_identity(&self, identity: &Identity, user: &User, is_new: bool) -> Result<()>;
    /// The identities of a user.
    ///
    /// # Errors
    /// The database's.
    fn identities(&self, user: UserId) -> Result<Vec<Identity>>;
    /// Whose identity it is.
    ///
    /// # Errors
    /// The database's.
    fn user_by_identity(&self, identity: &Identity) -> Result<Option<User>>;
    /// Takes all identities of a user away; says how many.
    ///
    /// # Errors
    /// The database's.
    fn remove_identities(&self, user: UserId) -> Result<u64>;
    /// Begins a session of whose identity this is, and ends the one that it `replaces`; nothing happens if it is nobody's, or if
    /// `challenge` was answered before.
    ///
    /// # Errors
    /// The database's.
    fn begin_session_by_identity(
        &self,
        identity: &Identity,
        challenge: &UsedChallenge,
        session: &NewSession,
        replaces: Option<&TokenHash>,
    ) -> Result<Option<User>>;
    /// Whose session it is, if it holds, with what the user may do now.
    ///
    /// # Errors
    /// The database's.
    fn session(&self, token: &TokenHash) -> Result<Option<(User, Session)>>;
    /// Notes that a session is used: it ends after `idle_seconds` without another note.
    ///
    /// # Errors
    /// The database's.
    fn touch_session(&self, token: &TokenHash, idle_seconds: u64) -> Result<()>;
    /// The sessions of a user, the one that was used last first.
    ///
    /// # Errors
    /// The database's.
    fn sessions(&self, user: UserId) -> Result<Vec<Session>>;
    /// Ends a session. One that has ended already stays so.
    ///
    /// # Errors
    /// The database's.
    fn end_session(&self, token: &TokenHash) -> Result<()>;
    /// Ends all sessions of a user but `keep`; says how many. Invitations of the user are worth nothing any more.
    ///
    /// # Errors
    /// The database's.
    fn end_sessions(&self, user: UserId, keep: Option<&TokenHash>) -> Result<u64>;
    /// Removes what has expired; says how much.
    ///
    /// # Errors
    /// The database's.
    fn forget_expired_accesses(&self) -> Result<u64>;
}
