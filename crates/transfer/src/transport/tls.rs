//! TLS 1.3 for the control connection and for private data streams. The server's certificate is
//! self-signed and pinned by the token.

use crate::{
    state::Identity,
    token::{fingerprint_of, same_secret},
};
use rustls::{
    ClientConfig, DigitallySignedStruct, OtherError, ServerConfig, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs},
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
    version::TLS13,
};
use std::{io, sync::Arc};

/// Name of the protocol in the handshake of a private data stream (RFC 7301). A handshake of a
/// control connection has none, so that neither can stand in the other's place.
const DATA_PROTOCOL: &[u8] = b"haul-data/1";

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Ciphers of private streams, best first: AES where the processor has instructions
/// for it and for GCM, and otherwise ChaCha20, which is quick without any.
fn data_provider(has_aes: bool) -> Arc<CryptoProvider> {
    let aes = aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let chacha = aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256;
    let cipher_suites = if has_aes { vec![aes, chacha] } else { vec![chacha, aes] };
    Arc::new(CryptoProvider { cipher_suites, ..aws_lc_rs::default_provider() })
}

/// Whether this processor has instructions for AES and for the multiplications of GCM.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::is_x86_feature_detected!("aes") && std::is_x86_feature_detected!("pclmulqdq")
    }
    #[cfg(target_arch = "aarch64")]
    {
        std::arch::is_aarch64_feature_detected!("aes")
            && std::arch::is_aarch64_feature_detected!("pmull")
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        false
    }
}

/// TLS settings of a server's private data streams.
///
/// # Errors
/// If the stored key does not belong to the certificate.
pub fn server_data_config(identity: &Identity) -> io::Result<Arc<ServerConfig>> {
    server_data_config_with(identity, has_aes())
}

/// TLS settings of a server's private data streams, where its processor is good at AES or is not.
pub(crate) fn server_data_config_with(
    identity: &Identity,
    has_aes: bool,
) -> io::Result<Arc<ServerConfig>> {
    let mut config = server_builder(identity, data_provider(has_aes))?;
    // What both are good at: the client's choice, unless this side is bad at it.
    config.ignore_client_order = !has_aes;
    config.alpn_protocols = vec![DATA_PROTOCOL.to_vec()];
    config.enable_secret_extraction = true;
    Ok(Arc::new(config))
}

/// TLS settings of a client's private data streams to the server with this fingerprint.
///
/// # Errors
/// If the provider lacks TLS 1.3.
pub fn client_data_config(fingerprint: [u8; 16]) -> io::Result<Arc<ClientConfig>> {
    client_data_config_with(fingerprint, has_aes())
}

/// TLS settings of a client's private data streams, where its processor is good at AES or is not.
pub(crate) fn client_data_config_with(
    fingerprint: [u8; 16],
    has_aes: bool,
) -> io::Result<Arc<ClientConfig>> {
    let mut config = client_builder(fingerprint, data_provider(has_aes))?;
    config.alpn_protocols = vec![DATA_PROTOCOL.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_secret_extraction = true;
    Ok(Arc::new(config))
}

/// Whether the handshake of a data stream agreed on the protocol of data streams.
#[must_use]
pub fn is_data_protocol(agreed: Option<&[u8]>) -> bool {
    agreed == Some(DATA_PROTOCOL)
}

/// TLS settings of a server.
///
/// # Errors
/// If the stored key does not belong to the certificate.
pub fn server_config(identity: &Identity) -> io::Result<Arc<ServerConfig>> {
    let mut config = server_builder(identity, provider())?;
    config.max_fragment_size = Some(RECORD_BYTES_MAX);
    Ok(Arc::new(config))
}

fn server_builder(identity: &Identity, provider: Arc<CryptoProvider>) -> io::Result<ServerConfig> {
    let certificate = CertificateDer::from(identity.certificate_der.clone());
    let key = PrivatePkcs8KeyDer::from(identity.key_der.clone());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key.into())
        .map_err(io::Error::other)?;
    // A session is as long as a connection: nothing to resume, so no tickets.
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// TLS settings of a client that believes only the server with this fingerprint.
///
/// # Errors
/// If the provider lacks TLS 1.3.
pub fn client_config(fingerprint: [u8; 16]) -> io::Result<Arc<ClientConfig>> {
    let mut config = client_builder(fingerprint, provider())?;
    config.max_fragment_size = Some(RECORD_BYTES_MAX);
    Ok(Arc::new(config))
}

fn client_builder(
    fingerprint: [u8; 16],
    provider: Arc<CryptoProvider>,
) -> io::Result<ClientConfig> {
    let algorithms = provider.signature_verification_algorithms;
    Ok(ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned { fingerprint, algorithms }))
        .with_no_client_auth())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::StateDirectory;
    use rustls::{CipherSuite, ClientConnection, ServerConnection};

    /// The cipher that a client and a server agree on, of which each is good at AES or is not.
    fn agreed(identity: &Identity, client_has_aes: bool, server_has_aes: bool) -> CipherSuite {
        let config = client_data_config_with(identity.fingerprint(), client_has_aes).unwrap();
        let name = ServerName::try_from("haul").unwrap();
        let mut client = ClientConnection::new(config, name).unwrap();
        let config = server_data_config_with(identity, server_has_aes).unwrap();
        let mut server = ServerConnection::new(config).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut &*bytes).unwrap();
            server.process_new_packets().unwrap();
            bytes.clear();
            server.write_tls(&mut bytes).unwrap();
            client.read_tls(&mut &*bytes).unwrap();
            client.process_new_packets().unwrap();
        }
        client.negotiated_cipher_suite().unwrap().suite()
    }

    #[test]
    fn the_cipher_is_one_that_both_processors_are_good_at() {
        let directory = tempfile::tempdir().unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(directory.path(), private).unwrap();
        let identity = StateDirectory::open(directory.path()).unwrap().identity().unwrap();
        let agreed = |client, server| agreed(&identity, client, server);
        assert_eq!(agreed(true, true), CipherSuite::TLS13_AES_128_GCM_SHA256);
        for (client, server) in [(true, false), (false, true), (false, false)] {
            let cipher = agreed(client, server);
            assert_eq!(cipher, CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, "{client} {server}");
        }
    }
}
