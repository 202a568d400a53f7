//! Where the rows and files of a service are, if many machines share them.

use std::fmt;
use std::path::PathBuf;

use crate::error::{Error, Result};

/// Where the rows and files of a service are, and what makes keys genuine there. The default: all in its folder.
///
/// Both addresses are given or none: files in the folder of one machine are no use to the others.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Addresses {
    /// The rows: `postgres://user:password@host:port/database`, with `?sslmode=require` where it is far.
    pub database: Option<String>,
    /// The files: `file:///srv/scenes`, a folder that all machines see.
    pub storage: Option<String>,
    /// The file with the secrets, the same on all machines. Absent: `secrets.json` in the folder, which must be there already if
    /// other machines share the rows.
    pub secrets: Option<PathBuf>,
}

impl Addresses {
    /// Both addresses, if the service is shared.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there is only one of them.
    pub(super) fn shared(&self) -> Result<Option<(&str, &str)>> {
        match (&self.database, &self.storage) {
            (None, None) => Ok(None),
            (Some(database), Some(storage)) => Ok(Some((database, storage))),
            (Some(_), None) => Err(one_alone("database", "storage")),
            (None, Some(_)) => Err(one_alone("storage", "database")),
        }
    }
}

fn one_alone(given: &str, missing: &str) -> Error {
    Error::argument(format!("an address of the {given} is given and none of the {missing}"))
        .hint("give both for a service of many machines, or none for one that lies in a folder")
}

/// Without the password.
impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = self.database.as_deref().map(without_password);
        let Self { storage, secrets, .. } = self;
        f.debug_struct("Addresses")
            .field("database", &database)
            .field("storage", storage)
            .field("secrets", secrets)
            .finish()
    }
}

/// The address with dots for the password.
fn without_password(address: &str) -> String {
    // A password in the query would be found too, but nobody is told to write one there.
    let Some((scheme, rest)) = address.split_once("://") else { return "…".into() };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (place, query) = rest.split_at(end);
    let (user, host) = place.rsplit_once('@').unwrap_or(("", place));
    let user = match user.split_once(':') {
        Some((name, _)) => format!("{name}:…@"),
        None if user.is_empty() => String::new(),
        None => format!("{user}@"),
    };
    let query = query.split('?').next().unwrap_or_default();
    format!("{scheme}://{user}{host}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let shown = |address: &str| {
            format!("{:?}", Addresses { database: Some(address.into()), ..Addresses::default() })
        };
        assert!(
            shown("postgres://anna:s3cr@t@host:5432/jobs?sslmode=require")
                .contains("postgres://anna:…@host:5432/jobs\"")
        );
        assert!(shown("postgres://anna@host/jobs").contains("anna@host/jobs"));
        for hidden in ["postgres://a:s3cret@h/j", "postgres://a@h/j?password=s3cret", "a:s3cret@h"] {
            assert!(!shown(hidden).contains("s3cret"), "{}", shown(hidden));
        }
    }

    #[test]
    fn both_addresses_or_none() {
        let mut addresses = Addresses::default();
        assert_eq!(addresses.shared().unwrap(), None);
        addresses.database = Some("postgres://h/j".into());
        assert!(addresses.shared().unwrap_err().message().contains("none of the storage"));
        addresses.storage = Some("file:///b".into());
        assert_eq!(addresses.shared().unwrap(), Some(("postgres://h/j", "file:///b")));
    }
}
