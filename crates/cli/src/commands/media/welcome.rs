//! What `haul media` says when it listens.

use crate::ui;
use std::net::SocketAddr;

/// What the user reads first.
#[derive(Debug)]
pub struct Welcome {
    pub root: String,
    pub address: SocketAddr,
    /// The dashboard's URL.
    pub status: Option<String>,
    /// At which rates, and who comes in.
    pub policy: String,
}

impl Welcome {
    #[must_use]
    pub fn text(&self) -> String {
        let who = if self.address.ip().is_loopback() {
            "this machine only; --listen 0.0.0.0:8080 is for all"
        } else {
            "whoever reaches the address"
        };
        let root = ui::printable(&self.root);
        let dashboard = self.status.as_ref().map(|url| format!("Dashboard: {url}\n"));
        format!(
            "haul media serves {root} to {who}:\n\n    {}\n\n{}\n{}Ctrl-C ends it.",
            url(self.address),
            self.policy,
            dashboard.unwrap_or_default()
        )
    }
}

/// As browsers take it.
pub(super) fn url(address: SocketAddr) -> String {
    format!("http://{address}/")
}
