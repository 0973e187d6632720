//! TLS 1.3 for the control connection. The server's certificate is self-signed and pinned by the
//! token.

use crate::{
    state::Identity,
    token::{fingerprint_of, same_secret},
};
use rustls::{
    ClientConfig, DigitallySignedStruct, OtherError, ServerConfig, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs},
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
    version::TLS13,
};
use std::{io, sync::Arc};

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// TLS settings of a server.
///
/// # Errors
/// If the stored key does not belong to the certificate.
pub fn server_config(identity: &Identity) -> io::Result<Arc<ServerConfig>> {
    let certificate = CertificateDer::from(identity.certificate_der.clone());
    let key = PrivatePkcs8KeyDer::from(identity.key_der.clone());
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key.into())
        .map_err(io::Error::other)?;
    // A session is as long as a connection: nothing to resume, so no tickets.
    config.send_tls13_tickets = 0;
    config.max_fragment_size = Some(RECORD_BYTES_MAX);
    Ok(Arc::new(config))
}

/// TLS settings of a client that believes only the server with this fingerprint.
///
/// # Errors
/// If the provider lacks TLS 1.3.
pub fn client_config(fingerprint: [u8; 16]) -> io::Result<Arc<ClientConfig>> {
    let provider = provider();
    let algorithms = provider.signature_verification_algorithms;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned { fingerprint, algorithms }))
        .with_no_client_auth();
    config.max_fragment_size = Some(RECORD_BYTES_MAX);
    Ok(Arc::new(config))
}

/// Most bytes of a record, which is read when all of it has arrived. The first window of a
/// connection is some 14 KiB (RFC 6928), so one of 16 KiB would take a round trip more, and what
/// stands at its front with it.
const RECORD_BYTES_MAX: usize = 4096;

/// Server whose key is not the one in the token.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the server's key is not the one in the token")]
pub struct WrongKey;

impl WrongKey {
    /// Whether this is why a handshake failed.
    #[must_use]
    pub fn is(error: &rustls::Error) -> bool {
        matches!(error, rustls::Error::Other(OtherError(cause)) if cause.is::<Self>())
    }
}

/// Accepts the certificate whose SHA-256 begins as the token says, and no other.
#[derive(Debug)]
struct Pinned {
    fingerprint: [u8; 16],
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if same_secret(&fingerprint_of(end_entity), &self.fingerprint) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(OtherError(Arc::new(WrongKey)).into())
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3 is spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
