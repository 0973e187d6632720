//! Words of `haul media` when it begins to listen.

use crate::ui;
use haul_media::tls;
use std::net::SocketAddr;

/// Facts of the first message that a user reads.
#[derive(Debug)]
pub struct Welcome {
    pub root: String,
    pub url: String,
    /// The name of this machine, for a URL that others can open where it listens on all addresses.
    pub host: Option<String>,
    pub address: SocketAddr,
    /// The dashboard's URL.
    pub status: Option<String>,
    /// Rates of streams and who comes in, in words.
    pub policy: String,
    /// The side that encrypts, haul or the kernel; `None` without TLS.
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
        let dashboard =
            self.status.as_ref().map(|url| format!("Dashboard: {}\n", self.open_url(url)));
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
            self.open_url(&self.url),
            self.policy,
            dashboard.unwrap_or_default()
        )
    }

    /// The URL that a person opens, here or elsewhere: by name where it listens on all addresses.
    fn open_url(&self, url: &str) -> String {
        let Some(host) = &self.host else { return url.to_owned() };
        let named = format!("://{host}:");
        url.replacen("://0.0.0.0:", &named, 1).replacen("://[::]:", &named, 1)
    }
}

/// The URL of an address, as browsers take it.
#[must_use]
pub fn url(address: SocketAddr, is_encrypted: bool) -> String {
    let scheme = if is_encrypted { "https" } else { "http" };
    format!("{scheme}://{address}/")
}
