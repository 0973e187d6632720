//! HTTPS: the certificate and its key, and the encryption of a connection in this process.

mod kernel;
mod ledger;
mod stream;

pub(crate) use kernel::Kernel;
pub(crate) use stream::{Stream, Then};

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use crate::settings_file;
use rustls::{
    CipherSuite, Error, InconsistentKeys, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    version::{TLS12, TLS13},
};

/// A certificate and its key as files say them, and what is made of them. It may be read again
/// while connections use what it was before.
pub struct Certificate {
    files: Files,
    config: RwLock<Arc<ServerConfig>>,
}

/// Paths of certificate and key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// File of the server's certificate first, then those that sign it.
    pub certificate: PathBuf,
    /// File of the key, which may be that of the certificate.
    pub key: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: io::Error },
    #[error("{path} holds no certificate in PEM (-----BEGIN CERTIFICATE-----)")]
    NoCertificate { path: String },
    #[error("{path} holds no private key in PEM (-----BEGIN PRIVATE KEY-----)")]
    NoKey { path: String },
    #[error("the key in {path} is encrypted, and nobody is there to say its password")]
    EncryptedKey { path: String },
    #[error("{path} is damaged: {words}")]
    Damaged { path: String, words: String },
    #[error("the key in {key} is not that of the first certificate in {certificate}")]
    OtherKey { certificate: String, key: String },
    #[error("the certificate in {certificate} with the key in {key} cannot be used: {words}")]
    Unfit { certificate: String, key: String, words: String },
}

/// Most bytes of a file: a chain and a key take a few KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The side that encrypts what a connection sends: kernel or process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// kTLS: files go into the socket by sendfile(2) as without TLS.
    Kernel,
    /// Encryption by this process, as the system's kernel has no TLS.
    Rustls,
}

impl By {
    /// Chooses the best that this system has.
    #[must_use]
    pub fn here() -> Self {
        if kernel::is_there() { Self::Kernel } else { Self::Rustls }
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Rustls => "rustls",
        }
    }
}

impl Certificate {
    /// Reads the certificate and its key.
    ///
    /// # Errors
    /// What is wrong with the files.
    pub fn load(files: Files) -> Result<Self, CertificateError> {
        let config = RwLock::new(config(&files)?);
        Ok(Self { files, config })
    }

    /// Reads the files again, for connections that begin from now on.
    ///
    /// # Errors
    /// What is wrong with the files: then all stays as it was.
    pub fn load_again(&self) -> Result<(), CertificateError> {
        let config = config(&self.files)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("files", &self.files).finish_non_exhaustive()
    }
}

fn config(files: &Files) -> Result<Arc<ServerConfig>, CertificateError> {
    let chain = chain(&files.certificate)?;
    let key = key(&files.key)?;
    let unfit = |error: Error| {
        let certificate = files.certificate.display().to_string();
        let key = files.key.display().to_string();
        match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                CertificateError::OtherKey { certificate, key }
            }
            error => CertificateError::Unfit { certificate, key, words: error.to_string() },
        }
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(unfit)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Tickets that the clients keep: who comes back costs no signature, and no memory here.
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(unfit)?;
    config.send_tls13_tickets = 1;
    config.enable_secret_extraction = By::here() == By::Kernel;
    Ok(Arc::new(config))
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let failed = |source| CertificateError::Read { path: path.display().to_string(), source };
    settings_file::read(path, FILE_BYTES_MAX).map_err(failed)
}

fn damaged(path: &Path, error: &pem::Error) -> CertificateError {
    CertificateError::Damaged { path: path.display().to_string(), words: error.to_string() }
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let bytes = read(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let chain = chain.map_err(|error| damaged(path, &error))?;
    if chain.is_empty() {
        return Err(CertificateError::NoCertificate { path: path.display().to_string() });
    }
    Ok(chain)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, CertificateError> {
    let bytes = read(path)?;
    let has = |words: &[u8]| bytes.windows(words.len()).any(|part| part == words);
    // OpenSSL's older kind says it in a field (RFC 1421, 4.6.1.1).
    let is_encrypted = has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"4,ENCRYPTED");
    let path_text = || path.display().to_string();
    match PrivateKeyDer::from_pem_slice(&bytes) {
        _ if is_encrypted => Err(CertificateError::EncryptedKey { path: path_text() }),
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) => Err(CertificateError::NoKey { path: path_text() }),
        Err(error) => Err(damaged(path, &error)),
    }
}

/// Bytes that a record has on the wire beside those of the stream: its head, the number of the
/// message where it is sent along, the kind where that is hidden, and the tag (RFC 8446, 5.2; RFC
/// 5288, 3; RFC 7905, 2).
fn overhead_bytes(suite: CipherSuite) -> u64 {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256
        | CipherSuite::TLS13_AES_256_GCM_SHA384
        | CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => 5 + 1 + 16,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => 5 + 16,
        _ => 5 + 8 + 16,
    }
}
