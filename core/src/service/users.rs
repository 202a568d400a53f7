//! Users. Only the command line and the library call these: no request can.

use crate::error::{Error, ErrorKind, Result};
use crate::job::{Tier, User, UserId};

use super::Service;

impl Service {
    /// Adds a user.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a name that is empty, longer than 255 characters or has control characters;
    /// [`ErrorKind::Conflict`] if it is taken.
    pub fn add_user(&self, name: &str, tier: Tier) -> Result<User> {
        check_name("the name of the user", name)?;
        let created_at = self.inner.clock.now();
        let user = User { user_id: UserId::random(), name: name.to_owned(), tier, created_at };
        self.inner.database.add_user(&user)?;
        Ok(user)
    }

    /// The user of this name; added with `tier` if there is none. The tier of one that exists stays what it is.
    ///
    /// # Errors
    /// As for [`Service::add_user`].
    pub fn user_or_new(&self, name: &str, tier: Tier) -> Result<User> {
        if let Some(user) = self.inner.database.user_by_name(name)? {
            return Ok(user);
        }
        match self.add_user(name, tier) {
            // Another process was quicker.
            Err(error) if error.kind() == ErrorKind::Conflict => self.user_by_name(name),
            added => added,
        }
    }

    /// All users, by name.
    ///
    /// # Errors
    /// The database's.
    pub fn users(&self) -> Result<Vec<User>> {
        self.inner.database.users()
    }

    /// The user of this name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub fn user_by_name(&self, name: &str) -> Result<User> {
        let found = self.inner.database.user_by_name(name)?;
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no user {name:?}")))
    }

    /// Changes what a user may do, from the next request on.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub fn set_tier(&self, user: UserId, tier: Tier) -> Result<()> {
        if self.inner.database.set_tier(user, tier)? {
            return Ok(());
        }
        Err(Error::new(ErrorKind::NotFound, format!("there is no user {user}")))
    }
}

pub(super) fn check_name(what: &str, name: &str) -> Result<()> {
    let length = name.trim().chars().count();
    if !(1..=255).contains(&length) || name.chars().any(char::is_control) {
        return Err(Error::argument(format!(
            "{what} is {name:?}: 1 to 255 characters are allowed, without control characters"
        )));
    }
    Ok(())
}
