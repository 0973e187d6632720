//! `haul media` over TLS: an authority that clients believe, and a place with its certificates.

use super::{Place, media::Media};
use data_encoding::BASE64;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion, crypto::aws_lc_rs,
    pki_types::CertificateDer, version::TLS13,
};
use std::{fs, sync::Arc};

const FILM_BYTES: u64 = 3_000_000;
/// Options of a server for its certificate and key.
pub const PAIR: [&str; 4] = ["--tls-cert", "cert.pem", "--tls-key", "key.pem"];

/// An authority that clients believe, and files of a certificate that it signed.
pub struct Authority {
    pub certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "a test's authority");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// Makes a chain and its key, as text.
    pub fn certify(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let own = params.signed_by(&key, &self.issuer).unwrap();
        let chain = pem("CERTIFICATE", own.der()) + &pem("CERTIFICATE", &self.certificate);
        (chain, pem("PRIVATE KEY", key.serialized_der()))
    }

    pub fn client(&self, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let mut config =
            ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_protocol_versions(&[version])
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

pub fn pem(kind: &str, der: &[u8]) -> String {
    let text = BASE64.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", lines.join("\n"))
}

/// A place with a film, and a certificate in `cert.pem` and `key.pem`.
pub struct Studio {
    pub place: Place,
    pub authority: Authority,
}

impl Studio {
    pub fn new() -> Self {
        let place = Place::new();
        place.file(&place.root("film.mp4"), FILM_BYTES);
        let studio = Self { place, authority: Authority::new() };
        studio.renew();
        studio
    }

    pub fn renew(&self) {
        let (chain, key) = self.authority.certify();
        fs::write(self.place.path("cert.pem"), chain).unwrap();
        fs::write(self.place.path("key.pem"), key).unwrap();
    }

    pub fn film(&self) -> Vec<u8> {
        fs::read(self.place.root("film.mp4")).unwrap()
    }

    /// Starts a server with the certificate.
    pub fn start(&self, options: &[&str]) -> Media {
        self.start_with(&[&PAIR, options].concat())
    }

    pub fn start_with(&self, options: &[&str]) -> Media {
        let mut media = Media::start(&self.place, options);
        media.tls = Some(self.client());
        media
    }

    pub fn client(&self) -> Arc<ClientConfig> {
        self.authority.client(&TLS13)
    }
}
