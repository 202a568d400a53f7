//! TLS, where the server is reached without a proxy in front of it. The files are read again on SIGHUP; on
//! Windows, which has no such signal, when the server starts.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use libreconstruct::{Error, ErrorKind, Result};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;

/// The certificate and its key, as they were last read.
pub(crate) struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: RwLock<TlsAcceptor>,
}

impl Tls {
    /// Reads both files (PEM).
    pub(crate) fn open(certificate: &Path, key: &Path) -> Result<Self> {
        let current = RwLock::new(load(certificate, key)?);
        Ok(Self { certificate: certificate.to_owned(), key: key.to_owned(), current })
    }

    /// What accepts the next connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the files again; on an error the old certificate stays in use.
    #[cfg_attr(windows, expect(dead_code, reason = "nothing tells a program on Windows to do it"))]
    pub(crate) fn reload(&self) -> Result<()> {
        let acceptor = load(&self.certificate, &self.key)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = acceptor;
        Ok(())
    }
}

fn load(certificate: &Path, key: &Path) -> Result<TlsAcceptor> {
    let wrong = |path: &Path, error: &dyn std::fmt::Display| {
        Error::new(ErrorKind::InvalidArgument, format!("cannot use {} for TLS: {error}", path.display()))
            .hint(
                "tls_certificate and tls_key name PEM files: the chain of certificates, and the private key",
            )
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(|certificates| certificates.collect::<std::result::Result<Vec<_>, _>>())
        .map_err(|e| wrong(certificate, &e))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| wrong(key, &e))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| wrong(certificate, &e))?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|e| wrong(certificate, &e))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
