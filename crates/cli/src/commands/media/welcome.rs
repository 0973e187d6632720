//! What `haul media` says when it listens.

use crate::ui;
use haul_media::tls;
use std::net::SocketAddr;

/// What the user reads first.
#[derive(Debug)]
pub struct Welcome {
    pub root: String,
    pub url: String,
    /// This machine's, for a URL that others can open where it listens on all addresses.
    pub host: Option<String>,
    pub address: SocketAddr,
    /// The dashboard's URL.
    pub status: Option<String>,
    /// At which rates, and who comes in.
    pub policy: String,
    /// `None` without TLS.
    pub tls: Option<tls::By>,
}

impl Welcome {
    #[must_use]
    pub fn text(&self) -> String {
        let who = match self.address.ip().to_canonical().is_loopback() {
            true => {
                let port = self.address.port();
                format!("this machine only; --listen 0.0.0.0:{port} is for all")
            }
            false => "whoever reaches the address".to_owned(),
        };
        let root = ui::printable(&self.root);
        let dashboard = self.status.as_ref().map(|url| format!("Dashboard: {url}\n"));
        let encrypted = match self.tls {
            None => "",
            Some(tls::By::Kernel) => "The kernel encrypts (kTLS).\n",
            Some(tls::By::Rustls) => {
                "haul encrypts, as this kernel has no TLS; where it was built, `modprobe tls` \
                brings it.\n"
            }
        };
        format!(
            "haul media serves {root} to {who}:\n\n    {}\n\n{}\n{encrypted}{}Ctrl-C ends it.",
            self.open_url(),
            self.policy,
            dashboard.unwrap_or_default()
        )
    }

    /// What a person opens, here or elsewhere.
    fn open_url(&self) -> String {
        let host = self.host.as_ref().filter(|_| self.address.ip().is_unspecified());
        let ip = self.address.to_string();
        host.map_or(self.url.clone(), |host| {
            self.url.replace(&ip, &format!("{host}:{}", self.address.port()))
        })
    }
}

/// As browsers take it.
#[must_use]
pub fn url(address: SocketAddr, is_encrypted: bool) -> String {
    let scheme = if is_encrypted { "https" } else { "http" };
    format!("{scheme}://{address}/")
}
