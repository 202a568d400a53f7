//! Passwords: which are good enough, and what is kept of them.
//!
//! Kept is what Argon2id makes of a password (RFC 9106), with 19 MiB of memory and two passes: what OWASP's cheat sheet on the
//! storage of passwords recommends. So a few of them at once are bounded, and so is how many wait.

use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{Error as HashError, PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};

use super::access_token::fill_random;
use crate::error::{Error, ErrorKind, Result};

/// Memory of one computation, KiB.
const MEMORY_KIB: u32 = 19 * 1024;
/// Passes over it.
const PASSES: u32 = 2;
/// Bytes of a salt, as RFC 9106 recommends.
const SALT_BYTES: usize = 16;
/// Computations at once: 38 MiB and two threads in all. One takes some twenty milliseconds.
const AT_ONCE: u32 = 2;
/// So many wait for their turn, two seconds at most in all; who comes then is told to come back.
const WAITING: u32 = 200;
/// Fewest characters of a password (NIST SP 800-63B, section 5.1.1).
const SHORTEST: usize = 8;
/// Most characters: enough for every sentence, and an end to what has to be hashed.
const LONGEST: usize = 128;
/// Passwords of [`SHORTEST`] and more letters that are tried first wherever passwords are guessed, in lower case.
const WORST: &str = include_str!("worst_passwords.txt");

/// Refuses a password that is too short, too long, or one of the first that anybody would try.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] with what to do. The password is not repeated.
pub(super) fn check(password: &str, user: &str) -> Result<()> {
    let length = password.chars().count();
    if length < SHORTEST {
        return Err(Error::argument(format!(
            "the password has {length} characters: at least {SHORTEST} are needed"
        ))
        .hint("a sentence that only you would say is easy to remember and hard to guess"));
    }
    if length > LONGEST {
        return Err(Error::argument(format!(
            "the password has {length} characters: at most {LONGEST} are possible"
        )));
    }
    let lower = password.to_lowercase();
    // "Password123!" is no better than "password".
    let core = lower.trim_matches(|c: char| !c.is_alphabetic());
    let is_worst = WORST.lines().any(|worst| worst == lower || (!core.is_empty() && worst == core));
    let mut letters = lower.chars();
    let first = letters.next();
    if is_worst || letters.all(|letter| Some(letter) == first) {
        return Err(Error::argument("the password is one of those that are guessed first")
            .hint("choose one that nobody else uses"));
    }
    let name = user.to_lowercase();
    let name_core = name.trim_matches(|c: char| !c.is_alphabetic());
    if lower == name || (!core.is_empty() && core == name_core) {
        return Err(Error::argument("the password is the name of the user").hint("choose another one"));
    }
    Ok(())
}

/// Hashes passwords, a few at once.
#[derive(Default)]
pub(super) struct Passwords {
    turns: Mutex<Turns>,
    freed: Condvar,
    /// What a password is compared with where there is none to compare with.
    nobodys: OnceLock<String>,
}

#[derive(Default)]
struct Turns {
    taken: u32,
    waiting: u32,
}

/// A turn to compute, until it is dropped.
struct Turn<'a>(&'a Passwords);

impl Passwords {
    /// What is to be kept of a password.
    ///
    /// # Errors
    /// [`ErrorKind::TooManyRequests`] while too many wait.
    pub(super) fn hash(&self, password: &str) -> Result<String> {
        let _turn = self.turn()?;
        hash(password)
    }

    /// Whether it is the password of which `kept` is kept. Without one the same work is done, and the answer is no.
    ///
    /// # Errors
    /// [`ErrorKind::TooManyRequests`] while too many wait, [`ErrorKind::InvalidFile`] if what is kept cannot be read.
    pub(super) fn verify(&self, password: &str, kept: Option<&str>) -> Result<bool> {
        let _turn = self.turn()?;
        // Before it is known whether it is needed, so that the first call is no different for unknown names.
        let nobodys = match self.nobodys.get() {
            Some(known) => known,
            None => {
                let made = hash("nobody has this password")?;
                self.nobodys.get_or_init(|| made)
            }
        };
        // No password that anybody chose is longer. A longer one costs as much as the longest.
        let cut: String = password.chars().take(LONGEST).collect();
        let damaged = |e: &dyn std::fmt::Display| {
            Error::new(ErrorKind::InvalidFile, format!("what is kept of a password cannot be read: {e}"))
        };
        let parsed = PasswordHash::new(kept.unwrap_or(nobodys.as_str())).map_err(|e| damaged(&e))?;
        let is_it = match argon2()?.verify_password(cut.as_bytes(), &parsed) {
            Ok(()) => true,
            Err(HashError::PasswordInvalid) => false,
            Err(e) => return Err(damaged(&e)),
        };
        Ok(is_it && kept.is_some() && cut.len() == password.len())
    }

    fn turn(&self) -> Result<Turn<'_>> {
        // A poisoned lock is fine: nothing that is done under it can panic in the middle.
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if turns.waiting >= WAITING {
            return Err(Error::new(
                ErrorKind::TooManyRequests,
                "Too many people sign in at the same time. Try again in a minute.",
            ));
        }
        turns.waiting += 1;
        while turns.taken >= AT_ONCE {
            turns = self.freed.wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
        turns.waiting -= 1;
        turns.taken += 1;
        Ok(Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.turns.lock().unwrap_or_else(PoisonError::into_inner).taken -= 1;
        self.0.freed.notify_one();
    }
}

fn argon2() -> Result<Argon2<'static>> {
    let parameters = Params::new(MEMORY_KIB, PASSES, 1, None)
        .map_err(|e| Error::new(ErrorKind::Internal, format!("parameters of Argon2: {e}")))?;
    Ok(Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters))
}

fn hash(password: &str) -> Result<String> {
    let mut salt = [0; SALT_BYTES];
    fill_random(&mut salt)?;
    let hash = argon2()?.hash_password_with_salt(password.as_bytes(), &salt);
    let hash =
        hash.map_err(|e| Error::new(ErrorKind::Internal, format!("the password cannot be hashed: {e}")))?;
    Ok(hash.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_known_again_and_no_other_is() {
        let passwords = Passwords::default();
        let kept = passwords.hash("correct horse").unwrap();
        assert!(kept.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{kept}");
        assert_ne!(passwords.hash("correct horse").unwrap(), kept);
        assert!(passwords.verify("correct horse", Some(&kept)).unwrap());
        for wrong in ["", "correct hors", "correct horse ", "Correct horse"] {
            assert!(!passwords.verify(wrong, Some(&kept)).unwrap(), "{wrong}");
        }
        assert!(!passwords.verify("nobody has this password", None).unwrap());
        assert_eq!(passwords.verify("x", Some("nonsense")).unwrap_err().kind(), ErrorKind::InvalidFile);
        // The longest password is not known by its beginning with more behind it.
        let longest = "é".repeat(LONGEST);
        let kept = passwords.hash(&longest).unwrap();
        assert!(passwords.verify(&longest, Some(&kept)).unwrap());
        assert!(!passwords.verify(&format!("{longest}x"), Some(&kept)).unwrap());
    }

    #[test]
    fn only_so_many_are_hashed_at_once_and_only_so_many_wait() {
        let passwords = Passwords::default();
        let turns: Vec<_> = (0..AT_ONCE).map(|_| passwords.turn().unwrap()).collect();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(passwords.turn().unwrap()));
            while passwords.turns.lock().unwrap().waiting == 0 {
                std::thread::yield_now();
            }
            assert!(!waiting.is_finished());
            passwords.turns.lock().unwrap().waiting += WAITING - 1;
            assert_eq!(passwords.turn().err().unwrap().kind(), ErrorKind::TooManyRequests);
            passwords.turns.lock().unwrap().waiting -= WAITING - 1;
            drop(turns);
            waiting.join().unwrap();
        });
        assert_eq!(passwords.turns.lock().unwrap().taken, 0);
    }

    #[test]
    fn bad_passwords_are_refused_and_not_repeated() {
        for bad in [
            "short77",
            "password",
            "PassWord123!",
            "12345678",
            "aaaaaaaaaaaa",
            "margarethe",
            "Margarethe!",
            "99margarethe99",
            &"long ".repeat(26),
        ] {
            let error = check(bad, "Margarethe").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{bad}");
            // (Some of them are words that the message needs.)
            let repeated = error.to_string().to_lowercase().contains(&bad.to_lowercase());
            assert!(!repeated || bad == "password", "{error}");
        }
        for good in
            ["correct horse", "8 Zeichen", "пароль на столе", &"x1".repeat(64), "margarethe likes tea"]
        {
            check(good, "Margarethe").unwrap();
        }
        // A name without letters is no reason to refuse what has none, either.
        check("2847 1938 5566", "1234").unwrap();
    }

    #[test]
    fn the_worst_are_written_as_they_are_compared() {
        let all: Vec<&str> = WORST.lines().collect();
        assert!(all.len() > 50);
        for worst in all {
            assert!(worst.chars().count() >= SHORTEST && worst == worst.to_lowercase(), "{worst}");
        }
    }
}
