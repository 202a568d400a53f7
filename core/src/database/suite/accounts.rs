//! Users and their keys; who may sign in: invitations, sessions, passwords, passkeys, identities.

use super::World;
use crate::database::{
    Clock, Identity, JobDatabase, MOST_KEYS, MOST_SESSIONS, NewInvitation, NewSession, Passkey, PasskeyUse,
    TokenHash, UsedChallenge,
};
use crate::error::ErrorKind;
use crate::job::{ApiKey, Tier, Timestamp, User, UserId};

pub(in crate::database) fn users_and_keys<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    assert_eq!(d.users().unwrap().iter().map(|u| u.name.as_str()).collect::<Vec<_>>(), ["anna", "eve"]);
    let twin = User { user_id: UserId::random(), ..d.users().unwrap()[0].clone() };
    assert_eq!(d.add_user(&twin).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(d.user_by_name("eve").unwrap().unwrap().user_id, w.eve);
    assert_eq!(d.user_by_name("Eve").unwrap(), None);
    assert_eq!(d.user_by_name("ev\0e").unwrap(), None);
    let key = ApiKey {
        name: "laptop".into(),
        prefix: "lrk_00000001".into(),
        created_at: w.clock.now(),
        last_used: None,
        revoked_at: None,
    };
    assert!(d.create_key(w.anna, &key, &[1; 32]).unwrap());
    assert!(!d.create_key(w.eve, &key, &[2; 32]).unwrap());
    let other = ApiKey { prefix: "lrk_00000002".into(), ..key.clone() };
    assert_eq!(d.create_key(UserId::random(), &other, &[2; 32]).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(d.key(&other.prefix).unwrap(), None);
    let stored = d.key(&key.prefix).unwrap().unwrap();
    assert_eq!(
        (stored.user, stored.tier, stored.mac, stored.revoked),
        (w.anna, Tier::Enterprise, [1; 32], false)
    );
    assert!(d.set_tier(w.anna, Tier::Free).unwrap());
    assert!(!d.set_tier(UserId::random(), Tier::Free).unwrap());
    assert_eq!(d.key(&key.prefix).unwrap().unwrap().tier, Tier::Free);
    let (early, late) = (w.clock.now(), w.clock.now());
    d.touch_keys(&[(key.prefix.clone(), late)]).unwrap();
    d.touch_keys(&[(key.prefix.clone(), early), ("unknown".into(), early)]).unwrap();
    assert_eq!(d.keys(w.anna).unwrap(), [ApiKey { last_used: Some(late), ..key.clone() }]);
    assert!(!d.revoke_key(w.eve, &key.prefix).unwrap());
    assert!(!d.revoke_key(w.anna, "lrk_\0").unwrap());
    assert_eq!(d.key("lrk_\0").unwrap(), None);
    assert!(d.revoke_key(w.anna, &key.prefix).unwrap());
    assert!(d.key(&key.prefix).unwrap().unwrap().revoked);
    assert_eq!(d.keys(w.eve).unwrap(), []);
}

pub(in crate::database) fn most_keys<D: JobDatabase>(w: World<D>) {
    let make = |user: UserId, n: u64| {
        let (prefix, created_at) = (format!("lrk_{n:08}"), w.clock.now());
        let key = ApiKey { name: "laptop".into(), prefix, created_at, last_used: None, revoked_at: None };
        w.database.create_key(user, &key, &[1; 32])
    };
    for n in 0..MOST_KEYS {
        assert!(make(w.anna, n).unwrap());
    }
    let refused = make(w.anna, MOST_KEYS).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert!(refused.hint_text().unwrap().contains("revoke"), "{refused:?}");
    // Those of others and those that are revoked do not count.
    assert!(make(w.eve, MOST_KEYS).unwrap());
    assert!(w.database.revoke_key(w.anna, "lrk_00000000").unwrap());
    assert!(make(w.anna, MOST_KEYS + 1).unwrap());
}

const MINUTE: u64 = 60;

fn begun(token: u8) -> NewSession {
    NewSession {
        token: [token; 32],
        agent: format!("browser {token}"),
        idle_seconds: 10 * MINUTE,
        lifetime_seconds: 60 * MINUTE,
    }
}

impl<D: JobDatabase> World<D> {
    /// Whether a time is so many seconds from now. With each look at the clock of the tests a microsecond passes.
    fn is_in(&self, time: Timestamp, seconds: i64) -> bool {
        let micros = time.as_micros() - self.clock.now().as_micros();
        (micros - seconds * 1_000_000).abs() < 1_000_000
    }

    fn invite(&self, user: UserId, token: u8, sets_password: bool) -> TokenHash {
        let token = [token; 32];
        let new = NewInvitation { token, user, sets_password, lifetime_seconds: 10 * MINUTE };
        let expires_at = self.database.add_invitation(&new).unwrap();
        assert!(self.is_in(expires_at, 10 * MINUTE as i64));
        token
    }

    /// Gives a user a password, and the session that begins with it.
    fn with_password(&self, user: UserId, password: &str, session: u8) {
        let invitation = self.invite(user, 255, true);
        let accepted = self.database.accept_invitation(&invitation, Some(password), &begun(session)).unwrap();
        assert_eq!(accepted.unwrap().user_id, user);
    }

    fn tokens(&self, user: UserId) -> Vec<u8> {
        self.database.sessions(user).unwrap().iter().map(|session| session.token[0]).collect()
    }
}

/// Invitations: one use, for their time, the newest of a user only.
pub(in crate::database) fn invitations<D: JobDatabase>(w: World<D>) {
    let nobody =
        NewInvitation { token: [9; 32], user: UserId::random(), sets_password: true, lifetime_seconds: 1 };
    assert_eq!(w.database.add_invitation(&nobody).unwrap_err().kind(), ErrorKind::NotFound);

    let (first, eves) = (w.invite(w.anna, 1, true), w.invite(w.eve, 2, true));
    let token = w.invite(w.anna, 3, true);
    assert_eq!(w.database.invitation(&first).unwrap(), None);
    assert_eq!(w.database.invitation(&eves).unwrap().unwrap().user.name, "eve");
    for _ in 0..2 {
        // To look uses nothing up.
        let found = w.database.invitation(&token).unwrap().unwrap();
        assert_eq!((found.user.user_id, found.sets_password), (w.anna, true));
        assert!(w.is_in(found.expires_at, 10 * MINUTE as i64));
    }
    // It asks for a password.
    assert_eq!(w.database.accept_invitation(&token, None, &begun(1)).unwrap(), None);
    let accepted = w.database.accept_invitation(&token, Some("hash"), &begun(1)).unwrap().unwrap();
    assert_eq!(accepted.name, "anna");
    assert_eq!(w.database.password(w.anna).unwrap().as_deref(), Some("hash"));
    assert_eq!(w.database.accept_invitation(&token, Some("other"), &begun(2)).unwrap(), None);
    assert_eq!(w.database.password(w.anna).unwrap().as_deref(), Some("hash"));
    assert_eq!(w.tokens(w.anna), [1]);

    // One that signs in leaves the password and the other sessions as they are, and sets none.
    let token = w.invite(w.anna, 4, false);
    assert_eq!(w.database.accept_invitation(&token, Some("other"), &begun(2)).unwrap(), None);
    w.database.accept_invitation(&token, None, &begun(2)).unwrap().unwrap();
    assert_eq!(w.tokens(w.anna).len(), 2);
    assert_eq!(w.database.password(w.anna).unwrap().as_deref(), Some("hash"));

    // Its time is over.
    assert_eq!(w.database.forget_expired_accesses().unwrap(), 0);
    w.clock.advance(10 * MINUTE as i64);
    assert_eq!(w.database.invitation(&eves).unwrap(), None);
    assert_eq!(w.database.accept_invitation(&eves, Some("hash"), &begun(3)).unwrap(), None);
    assert_eq!(w.database.password(w.eve).unwrap(), None);
    // It, and the two sessions that nobody has used since.
    assert_eq!(w.database.forget_expired_accesses().unwrap(), 3);
    assert_eq!(w.database.forget_expired_accesses().unwrap(), 0);
}

/// Sessions end when nobody uses them, when their time is over, and when they are ended; each by itself or all of a user.
pub(in crate::database) fn sessions<D: JobDatabase>(w: World<D>) {
    w.with_password(w.anna, "hash", 1);
    let (user, session) = w.database.session(&[1; 32]).unwrap().unwrap();
    assert_eq!((user.user_id, user.tier), (w.anna, Tier::Enterprise));
    assert_eq!(session.agent, "browser 1");
    assert!(w.is_in(session.created_at, 0) && w.is_in(session.seen_at, 0));
    assert!(w.is_in(session.expires_at, 60 * MINUTE as i64));
    assert_eq!(w.database.session(&[2; 32]).unwrap(), None);
    // What the user may do is looked up each time.
    w.database.set_tier(w.anna, Tier::Free).unwrap();
    assert_eq!(w.database.session(&[1; 32]).unwrap().unwrap().0.tier, Tier::Free);

    // A use prolongs it, but not beyond its end.
    w.clock.advance(9 * MINUTE as i64);
    w.database.touch_session(&[1; 32], 10 * MINUTE).unwrap();
    w.clock.advance(9 * MINUTE as i64);
    let seen = w.database.session(&[1; 32]).unwrap().unwrap().1;
    assert!(w.is_in(seen.seen_at, -9 * MINUTE as i64));
    w.database.touch_session(&[1; 32], 100 * MINUTE).unwrap();
    w.clock.advance(42 * MINUTE as i64);
    assert_eq!(w.database.session(&[1; 32]).unwrap(), None);
    assert_eq!(w.tokens(w.anna), [] as [u8; 0]);
    // One that has ended is not brought back.
    w.database.touch_session(&[1; 32], 100 * MINUTE).unwrap();
    assert_eq!(w.database.session(&[1; 32]).unwrap(), None);
    assert_eq!(w.database.forget_expired_accesses().unwrap(), 1);

    // Unused, it ends earlier.
    w.database.begin_session(w.anna, "hash", &begun(2), None).unwrap();
    w.clock.advance(10 * MINUTE as i64);
    assert_eq!(w.database.session(&[2; 32]).unwrap(), None);

    w.with_password(w.eve, "hash", 20);
    for token in 3..7 {
        assert!(w.database.begin_session(w.anna, "hash", &begun(token), None).unwrap());
        w.clock.advance(1);
    }
    w.database.touch_session(&[3; 32], MINUTE).unwrap();
    assert_eq!(w.tokens(w.anna), [3, 6, 5, 4]);
    w.database.end_session(&[6; 32]).unwrap();
    w.database.end_session(&[6; 32]).unwrap();
    assert_eq!(w.database.session(&[6; 32]).unwrap(), None);
    let invitation = w.invite(w.anna, 8, false);
    assert_eq!(w.database.end_sessions(w.anna, Some(&[5; 32])).unwrap(), 2);
    assert_eq!(w.tokens(w.anna), [5]);
    assert_eq!(w.database.invitation(&invitation).unwrap(), None);
    assert_eq!(w.database.end_sessions(w.anna, None).unwrap(), 1);
    assert_eq!(w.tokens(w.anna), [] as [u8; 0]);
    assert_eq!(w.tokens(w.eve), [20]);
}

/// Whoever signs in again and again is signed out where that was longest ago.
pub(in crate::database) fn most_sessions<D: JobDatabase>(w: World<D>) {
    w.with_password(w.eve, "hash", 200);
    w.with_password(w.anna, "hash", 1);
    let last = MOST_SESSIONS as u8 + 10;
    for token in 2..=last {
        assert!(w.database.begin_session(w.anna, "hash", &begun(token), None).unwrap());
    }
    let mut kept = w.tokens(w.anna);
    kept.sort_unstable();
    assert_eq!(kept, (11..=last).collect::<Vec<u8>>());
    assert_eq!(w.tokens(w.eve), [200]);
}

/// A password opens sessions for as long as it is the password, and a new one ends what the old one opened.
pub(in crate::database) fn passwords<D: JobDatabase>(w: World<D>) {
    assert_eq!(w.database.password(w.anna).unwrap(), None);
    assert!(!w.database.begin_session(w.anna, "hash", &begun(1), None).unwrap());
    assert!(!w.database.begin_session(UserId::random(), "hash", &begun(1), None).unwrap());
    w.with_password(w.anna, "hash", 1);
    assert!(!w.database.begin_session(w.anna, "other", &begun(2), None).unwrap());
    assert!(w.database.begin_session(w.anna, "hash", &begun(2), Some(&[1; 32])).unwrap());
    assert_eq!(w.tokens(w.anna), [2]);
    assert!(w.database.begin_session(w.anna, "hash", &begun(3), None).unwrap());

    assert!(!w.database.change_password(w.anna, "other", "new", &[3; 32]).unwrap());
    assert!(!w.database.change_password(w.eve, "hash", "new", &[3; 32]).unwrap());
    assert_eq!(w.tokens(w.anna).len(), 2);
    assert!(w.database.change_password(w.anna, "hash", "new", &[3; 32]).unwrap());
    assert_eq!(w.tokens(w.anna), [3]);
    assert!(!w.database.begin_session(w.anna, "hash", &begun(4), None).unwrap());
    // By an invitation, too.
    w.with_password(w.anna, "newest", 5);
    assert_eq!(w.tokens(w.anna), [5]);
    assert_eq!(w.database.password(w.anna).unwrap().as_deref(), Some("newest"));
    assert_eq!(w.database.password(w.eve).unwrap(), None);

    // A copy has the password, and nothing that is open.
    let invitation = w.invite(w.anna, 9, true);
    w.database.release_all().unwrap();
    assert_eq!(w.database.invitation(&invitation).unwrap(), None);
    assert_eq!(w.tokens(w.anna), [] as [u8; 0]);
    assert_eq!(w.database.password(w.anna).unwrap().as_deref(), Some("newest"));
}

/// Passkeys: of one user each, as many as are allowed, each answer once, and no further back.
pub(in crate::database) fn passkeys<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let challenge =
        |n: u8| UsedChallenge { challenge: [n; 32], forgotten_at: w.clock.now().plus_seconds(MINUTE) };
    let made = |user: UserId, n: u8| Passkey {
        credential: vec![n; 20],
        user,
        name: format!("device {n}"),
        host: "scenes.example.org".into(),
        public_key: vec![n; 77],
        sign_count: 0,
        created_at: w.clock.now(),
        last_used: None,
    };
    let (phone, eves) = (made(w.anna, 1), made(w.eve, 2));
    assert!(d.add_passkey(&phone, 2, &challenge(1)).unwrap());
    assert!(d.add_passkey(&eves, 2, &challenge(2)).unwrap());
    assert_eq!(d.passkeys(w.anna).unwrap(), std::slice::from_ref(&phone));
    let (user, found) = d.passkey(&phone.credential).unwrap().unwrap();
    assert_eq!((user.user_id, user.name.as_str(), &found), (w.anna, "anna", &phone));
    assert_eq!(d.passkey(&[9; 20]).unwrap(), None);
    // An answer that was given before, a device that is known, one too many.
    let tablet = made(w.anna, 3);
    assert!(!d.add_passkey(&tablet, 2, &challenge(1)).unwrap());
    let stolen = Passkey { user: w.anna, ..eves.clone() };
    assert_eq!(d.add_passkey(&stolen, 2, &challenge(4)).unwrap_err().kind(), ErrorKind::Conflict);
    assert!(d.add_passkey(&tablet, 2, &challenge(4)).unwrap());
    assert_eq!(d.add_passkey(&made(w.anna, 5), 2, &challenge(5)).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(d.passkey(&eves.credential).unwrap().unwrap().1, eves);

    let begin = |credential: &[u8], sign_count: u32, n: u8, token: u8, replaces: Option<TokenHash>| {
        let used = PasskeyUse { credential: credential.to_vec(), sign_count, challenge: challenge(n) };
        d.begin_session_with_passkey(&used, &begun(token), replaces.as_ref()).unwrap()
    };
    assert!(begin(&phone.credential, 0, 10, 1, None));
    assert_eq!(d.session(&[1; 32]).unwrap().unwrap().0.user_id, w.anna);
    assert!(d.passkey(&phone.credential).unwrap().unwrap().1.last_used.is_some());
    assert!(!begin(&phone.credential, 0, 10, 2, None));
    assert!(!begin(&[9; 20], 0, 11, 2, None));
    assert!(begin(&phone.credential, 0, 11, 2, Some([1; 32])));
    assert_eq!(w.tokens(w.anna), [2]);
    // A counter that has begun to count goes on.
    assert!(begin(&tablet.credential, 7, 12, 3, None));
    for count in [7, 6, 0] {
        assert!(!begin(&tablet.credential, count, 13, 4, None), "{count}");
    }
    assert!(begin(&tablet.credential, 8, 13, 4, None));

    assert!(!d.remove_passkey(w.eve, &phone.credential).unwrap());
    assert!(d.remove_passkey(w.anna, &phone.credential).unwrap());
    assert!(!d.remove_passkey(w.anna, &phone.credential).unwrap());
    assert!(!begin(&phone.credential, 0, 14, 5, None));
    // A copy has them.
    d.release_all().unwrap();
    assert_eq!(d.passkeys(w.anna).unwrap().len(), 1);
    // Whoever is invited again begins anew; a link that only signs in changes nothing.
    let link = w.invite(w.anna, 200, false);
    d.accept_invitation(&link, None, &begun(6)).unwrap().unwrap();
    assert_eq!(d.passkeys(w.anna).unwrap().len(), 1);
    w.with_password(w.anna, "hash", 7);
    assert_eq!(d.passkeys(w.anna).unwrap(), []);
    assert_eq!(d.passkeys(w.eve).unwrap(), std::slice::from_ref(&eves));
    // What was answered is forgotten when nothing can answer to it any more.
    assert_eq!(d.forget_expired_accesses().unwrap(), 0);
    w.clock.advance(2 * MINUTE as i64);
    assert_eq!(d.forget_expired_accesses().unwrap(), 7);
    assert_eq!(d.forget_expired_accesses().unwrap(), 0);
}

/// Identities: of one user each, each answer once.
pub(in crate::database) fn identities<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let of = |subject: &str| Identity { issuer: "https://login.example".into(), subject: subject.into() };
    let user = |id: UserId| d.users().unwrap().into_iter().find(|user| user.user_id == id).unwrap();
    let challenge =
        |n: u8| UsedChallenge { challenge: [n; 32], forgotten_at: w.clock.now().plus_seconds(MINUTE) };
    let begin = |identity: &Identity, n: u8, token: u8, replaces: Option<TokenHash>| {
        let begun = d.begin_session_by_identity(identity, &challenge(n), &begun(token), replaces.as_ref());
        begun.unwrap().map(|user| user.name)
    };
    assert_eq!(begin(&of("a"), 1, 1, None), None);
    d.add_identity(&of("a"), &user(w.anna), false).unwrap();
    assert_eq!(d.add_identity(&of("a"), &user(w.eve), false).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(d.user_by_identity(&of("a")).unwrap().unwrap().user_id, w.anna);
    let elsewhere = Identity { issuer: "https://other.example".into(), ..of("a") };
    assert_eq!(d.user_by_identity(&elsewhere).unwrap(), None);
    assert_eq!(d.user_by_identity(&of("a\0")).unwrap(), None);
    assert_eq!(begin(&elsewhere, 1, 1, None), None);
    assert_eq!(begin(&of("a"), 1, 1, None).as_deref(), Some("anna"));
    assert_eq!(begin(&of("a"), 1, 2, None), None);
    assert_eq!(begin(&of("a"), 2, 2, Some([1; 32])).as_deref(), Some("anna"));
    assert_eq!(w.tokens(w.anna), [2]);

    // A new user, with all or nothing.
    let fresh = |name: &str| User {
        user_id: UserId::random(),
        name: name.into(),
        tier: Tier::Free,
        created_at: w.clock.now(),
    };
    let ben = fresh("ben");
    assert_eq!(d.add_identity(&of("b"), &ben, false).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(d.add_identity(&of("b"), &fresh("anna"), true).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(d.user_by_identity(&of("b")).unwrap(), None);
    assert_eq!(d.add_identity(&of("a"), &ben, true).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(d.user_by_name("ben").unwrap(), None);
    d.add_identity(&of("b"), &ben, true).unwrap();
    assert_eq!(d.user_by_name("ben").unwrap().as_ref(), Some(&ben));
    assert_eq!(begin(&of("b"), 3, 3, None).as_deref(), Some("ben"));

    d.add_identity(&of("c"), &user(w.anna), false).unwrap();
    assert_eq!(d.identities(w.anna).unwrap(), [of("a"), of("c")]);
    assert_eq!(d.remove_identities(w.anna).unwrap(), 2);
    assert_eq!(d.remove_identities(w.anna).unwrap(), 0);
    assert_eq!(begin(&of("a"), 4, 4, None), None);
    assert_eq!(d.identities(ben.user_id).unwrap(), [of("b")]);
}
