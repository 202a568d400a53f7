//! From an address and the environment to a store.

use std::sync::{Arc, Mutex};

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::HttpConnector;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::signer::Url;

use super::address::{Address, Kind};
use super::answers::Connector;
use super::azure_delegation::Delegation;
use super::azure_sas::AccountKey;
use super::calls::{client, retries};
use super::signing::{Azure, Key, Signing};
use super::store::Store;
use crate::error::{Error, Result};

/// A store that can be asked; nothing was asked yet.
pub(super) struct Connected {
    pub(super) store: Arc<dyn Store>,
    pub(super) signing: Signing,
}

/// Takes the credentials from where each store's own programs take them.
///
/// # Errors
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if they, or the address, cannot be used.
pub(super) fn connect(address: &Address) -> Result<Connected> {
    // Whoever was first has chosen; the build has this one only.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let connected = match address.kind {
        Kind::S3 => s3(address),
        Kind::Google => google(address),
        Kind::Azure => azure(address)?,
    };
    connected.map_err(|error| cannot_be_used(address, &error))
}

type Stored<T> = object_store::Result<T>;

fn s3(address: &Address) -> Stored<Connected> {
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(&address.bucket)
        .with_retry(retries())
        .with_http_connector(Connector)
        // Some that speak like S3 do not know it, and one blob is deleted at a time.
        .with_disable_bulk_delete(true);
    if let Some(region) = &address.region {
        builder = builder.with_region(region);
    }
    let named = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint]
        .iter()
        .find_map(|key| Url::parse(&builder.get_config_value(key)?).ok());
    let endpoint = address.endpoint.clone().or(named);
    let store = at_endpoint(builder.clone(), address, endpoint.as_ref()).build()?;
    let signer = match &address.public_endpoint {
        None => store.clone(),
        public => at_endpoint(builder, address, public.as_ref())
            .with_credentials(Arc::clone(store.credentials()))
            .build()?,
    };
    Ok(Connected { store: Arc::new(store), signing: Signing::Query(Arc::new(signer)) })
}

fn at_endpoint(builder: AmazonS3Builder, address: &Address, endpoint: Option<&Url>) -> AmazonS3Builder {
    let bucket = &address.bucket;
    // A certificate for *.s3.… holds for one part of a name. Stores of others mostly have none for the names of buckets.
    let in_path = address.path_style.unwrap_or(endpoint.is_some() || bucket.contains('.'));
    let builder = builder
        .with_virtual_hosted_style_request(!in_path)
        .with_client_options(client(endpoint.is_some_and(|url| url.scheme() == "http")));
    let Some(endpoint) = endpoint else { return builder };
    let mut endpoint = endpoint.clone();
    if let Some(host) = endpoint.host_str().map(str::to_owned)
        && !in_path
    {
        // One that is a number has no names below it: then it stays in the path of nobody, and the store says so.
        let _ = endpoint.set_host(Some(&format!("{bucket}.{host}")));
    }
    builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint.as_str().trim_end_matches('/'))
}

fn google(address: &Address) -> Stored<Connected> {
    let builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(&address.bucket)
        .with_retry(retries())
        .with_http_connector(Connector);
    let at = |endpoint: Option<&Url>| {
        let is_plain = endpoint.is_some_and(|url| url.scheme() == "http");
        let builder = builder.clone().with_client_options(client(is_plain));
        match endpoint {
            Some(url) => builder.with_base_url(url.as_str().trim_end_matches('/')),
            None => builder,
        }
    };
    let store = at(address.endpoint.as_ref()).build()?;
    let signer = match &address.public_endpoint {
        None => store.clone(),
        public => at(public.as_ref())
            .with_credentials(Arc::clone(store.credentials()))
            .with_signing_credentials(Arc::clone(store.signing_credentials()))
            .build()?,
    };
    Ok(Connected { store: Arc::new(store), signing: Signing::Query(Arc::new(signer)) })
}

fn azure(address: &Address) -> Result<Stored<Connected>> {
    let builder = MicrosoftAzureBuilder::from_env()
        .with_use_emulator(false)
        .with_account(&address.account)
        .with_container_name(&address.bucket)
        .with_retry(retries())
        .with_http_connector(Connector);
    let named =
        builder.get_config_value(&AzureConfigKey::Endpoint).and_then(|endpoint| Url::parse(&endpoint).ok());
    let endpoint = match address.endpoint.clone().or(named) {
        Some(endpoint) => endpoint,
        None => Url::parse(&format!("https://{}.blob.core.windows.net", address.account))
            .map_err(|e| Error::argument(format!("the account {} cannot be used: {e}", address.account)))?,
    };
    let has_signature = builder.get_config_value(&AzureConfigKey::SasKey).is_some();
    let account_key = builder.get_config_value(&AzureConfigKey::AccessKey);
    let account_key = account_key.map(|key| AccountKey::parse(&key)).transpose()?;
    let options = client(endpoint.scheme() == "http");
    let store = builder
        .with_endpoint(endpoint.as_str().trim_end_matches('/').to_owned())
        .with_client_options(options.clone())
        .build();
    let (store, client) = match (store, Connector.connect(&options)) {
        (Ok(store), Ok(client)) => (store, client),
        (Err(error), _) | (_, Err(error)) => return Ok(Err(error)),
    };
    let key = match account_key {
        Some(key) => Some(Key::Account(key)),
        // Who has only what somebody else has signed can sign nothing.
        None if has_signature => None,
        None => Some(Key::Delegated(Delegation {
            credentials: Arc::clone(store.credentials()),
            client,
            endpoint: endpoint.clone(),
            account: address.account.clone(),
            kept: Mutex::new(None),
        })),
    };
    let signing = key.map_or(Signing::None, |key| {
        Signing::Azure(Box::new(Azure {
            account: address.account.clone(),
            container: address.bucket.clone(),
            endpoint: address.public_endpoint.clone().unwrap_or(endpoint),
            key,
        }))
    });
    Ok(Ok(Connected { store: Arc::new(store), signing }))
}

/// Why a store cannot even be asked: mostly credentials that are incomplete or in a file that cannot be read.
fn cannot_be_used(address: &Address, error: &object_store::Error) -> Error {
    let text = error.to_string();
    // What stands in quotes may be part of a key that somebody put elsewhere than it belongs; a path does not.
    let why = if text.contains("nable to open") {
        &text
    } else {
        text.split(['"', '`']).next().unwrap_or_default()
    };
    Error::argument(format!("the storage {address} cannot be used: {}", why.trim_end()))
        .hint("see the variables of the environment that begin with AWS_, GOOGLE_ or AZURE_")
}
