//! Addresses of the store itself, which open one blob for a while to whoever holds them.

use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use object_store::signer::{Method, SignedUrlOptions, Signer, Url};

use super::azure_delegation::Delegation;
use super::azure_sas::{self, AccountKey, AnswerHeaders, Blob, Delegate, Permission};
use super::calls::{CALL, Calls};
use crate::error::Result;
use crate::job::Timestamp;
use crate::storage::{DownloadAnswer, UploadAddress};

/// How addresses are signed.
#[derive(Debug)]
pub(super) enum Signing {
    /// Amazon's way, which Google has taken over: all in the query.
    Query(Arc<dyn Signer>),
    /// Azure's.
    Azure(Box<Azure>),
    /// There is no key to sign with, only one that was signed by somebody else.
    None,
}

/// What signs for Azure.
#[derive(Debug)]
pub(super) struct Azure {
    pub(super) account: String,
    pub(super) container: String,
    /// Where clients reach the account.
    pub(super) endpoint: Url,
    pub(super) key: Key,
}

/// With what.
#[derive(Debug)]
pub(super) enum Key {
    /// The account's own.
    Account(AccountKey),
    /// What the store gives to the identity of this machine.
    Delegated(Delegation),
}

impl Signing {
    /// An address to which a client PUTs the blob at `path`, and what the request must have in its head.
    pub(super) fn upload(
        &self,
        calls: &Calls,
        path: &Path,
        lifetime: Duration,
    ) -> Result<Option<UploadAddress>> {
        let (url, headers) = match self {
            Self::Query(signer) => {
                let signed = signer.signed_url(Method::PUT, path, lifetime);
                (calls.wait(CALL, "sign", "an address", signed)?, Vec::new())
            }
            Self::Azure(azure) => {
                let url = azure.sign(calls, path, Permission::Write, lifetime, AnswerHeaders::default())?;
                (url, vec![("x-ms-blob-type", "BlockBlob")])
            }
            Self::None => return Ok(None),
        };
        Ok(Some(UploadAddress { url: url.into(), headers }))
    }

    /// An address from which anybody GETs the blob at `path`.
    pub(super) fn download(
        &self,
        calls: &Calls,
        path: &Path,
        lifetime: Duration,
        answer: &DownloadAnswer<'_>,
    ) -> Result<Option<String>> {
        let url = match self {
            Self::Query(signer) => {
                let mut options =
                    SignedUrlOptions::new().with_query([("response-content-type", answer.content_type)]);
                if let Some(disposition) = answer.content_disposition {
                    options = options.with_query([("response-content-disposition", disposition)]);
                }
                let signed = signer.signed_url_opts(Method::GET, path, lifetime, &options);
                calls.wait(CALL, "sign", "an address", signed)?
            }
            Self::Azure(azure) => {
                let headers = AnswerHeaders {
                    content_disposition: answer.content_disposition.unwrap_or_default(),
                    content_type: answer.content_type,
                };
                azure.sign(calls, path, Permission::Read, lifetime, headers)?
            }
            Self::None => return Ok(None),
        };
        Ok(Some(url.into()))
    }
}

impl Azure {
    fn sign(
        &self,
        calls: &Calls,
        path: &Path,
        permission: Permission,
        lifetime: Duration,
        answer: AnswerHeaders<'_>,
    ) -> Result<Url> {
        let mut url = self.endpoint.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments
                .pop_if_empty()
                .push(&self.container)
                .extend(path.parts().map(|part| part.as_ref().to_owned()));
        }
        let blob = Blob { account: &self.account, container: &self.container, name: path.as_ref() };
        let expiry = azure_sas::moment(Timestamp::now(), lifetime);
        let mut sign = |key: &AccountKey, delegate: Option<&Delegate>| {
            azure_sas::sign(&mut url, blob, permission, &expiry, answer, key, delegate)
        };
        match &self.key {
            Key::Account(key) => sign(key, None)?,
            Key::Delegated(delegation) => {
                let delegated = delegation.key(calls, lifetime)?;
                sign(&delegated.key, Some(&delegated.delegate))?;
            }
        }
        Ok(url)
    }
}
