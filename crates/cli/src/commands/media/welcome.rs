//! What `haul media` says when it listens.

use crate::ui;
use haul_media::tls;
use std::net::SocketAddr;

/// What the user reads first.
#[derive(Debug)]
pub struct Welcome {
    pub root: String,
    pub url: String,
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
            self.url,
            self.policy,
            dashboard.unwrap_or_default()
        )
    }
}

/// As browsers take it, also on other machines.
#[must_use]
pub fn url(address: SocketAddr, is_encrypted: bool) -> String {
    let scheme = if is_encrypted { "https" } else { "http" };
    match address.ip().is_unspecified().then(haul_host::host_name).flatten() {
        Some(name) => format!("{scheme}://{name}:{}/", address.port()),
        None => format!("{scheme}://{address}/"),
    }
}
