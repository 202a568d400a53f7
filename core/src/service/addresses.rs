//! Where the rows and files of a service are, if many machines share them.

use std::fmt;
use std::path::PathBuf;

use super::secrets::SecretsSource;
use crate::error::{Error, Result};

/// Where the rows and files of a service are, and what makes keys genuine there. The default: all in its folder.
///
/// Both addresses are given or none: files in the folder of one machine are no use to the others.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Addresses {
    /// The rows: `postgres://user:password@host:port/database`, with `?sslmode=require` where it is far.
    pub database: Option<String>,
    /// The files: `file:///srv/scenes`, a folder that all machines see, or `s3://…`, `gs://…`, `az://…`, an object store.
    pub storage: Option<String>,
    /// The file with the secrets, the same on all machines. Absent: `secrets.json` in the folder, which must be there already if
    /// other machines share the rows.
    pub secrets: Option<PathBuf>,
    /// The content of such a file, for who has it in an environment variable. Not together with a file.
    pub secrets_json: Option<String>,
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

    /// Where the secrets are, if that is said.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if it is said twice, or their content where a file is to be named.
    pub(super) fn secrets_source(&self) -> Result<Option<SecretsSource>> {
        match (&self.secrets, &self.secrets_json) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(Error::argument("the secrets are given twice: as a file and as text")
                .hint("give one of them")),
            // Else the message that there is no such file would show it.
            (Some(path), None) if path.to_string_lossy().trim_start().starts_with('{') => {
                Err(Error::argument("the secrets are given where the name of their file belongs")
                    .hint("give them as text (LIBRECONSTRUCT_SECRETS_JSON), or name the file"))
            }
            (Some(path), None) => Ok(Some(SecretsSource::Shared(path.clone()))),
            (None, Some(text)) => Ok(Some(SecretsSource::Text(text.clone()))),
        }
    }
}

fn one_alone(given: &str, missing: &str) -> Error {
    Error::argument(format!("an address of the {given} is given and none of the {missing}"))
        .hint("give both for a service of many machines, or none for one that lies in a folder")
}

/// Without the password and the secrets.
impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = self.database.as_deref().map(without_password);
        let secrets_json = self.secrets_json.as_ref().map(|_| "…");
        let Self { storage, secrets, .. } = self;
        f.debug_struct("Addresses")
            .field("database", &database)
            .field("storage", storage)
            .field("secrets", secrets)
            .field("secrets_json", &secrets_json)
            .finish()
    }
}

/// The address with dots for the password.
pub(super) fn without_password(address: &str) -> String {
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
    fn secrets_come_from_one_place_and_are_not_shown() {
        let text = "{\"pepper\": \"s3cret\"}".to_owned();
        let given = Addresses { secrets_json: Some(text.clone()), ..Addresses::default() };
        assert!(matches!(given.secrets_source(), Ok(Some(SecretsSource::Text(_)))));
        let twice = Addresses { secrets: Some("/etc/secrets.json".into()), ..given.clone() };
        assert!(twice.secrets_source().err().unwrap().message().contains("twice"));
        let misplaced = Addresses { secrets: Some(format!(" {text}").into()), ..Addresses::default() };
        let error = misplaced.secrets_source().err().unwrap();
        assert!(error.hint_text().unwrap().contains("LIBRECONSTRUCT_SECRETS_JSON"));
        for shown in [format!("{given:?}"), format!("{twice:?}"), format!("{error:?}"), error.to_string()] {
            assert!(!shown.contains("s3cret"), "{shown}");
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
