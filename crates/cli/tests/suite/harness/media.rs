//! A running `haul media` of a place's root, and what its clients ask of it.

use super::{
    Place,
    http::Client,
    process::{Haul, Ran},
};
use crate::words;
use rustix::process::Signal;
use rustls::ClientConfig;
use serde_json::Value;
use std::{ffi::OsString, fs, net::SocketAddr, sync::Arc};

pub struct Media {
    pub haul: Haul,
    pub address: SocketAddr,
    /// Address of the dashboard; `None` where it is off.
    pub status: Option<SocketAddr>,
    /// TLS configuration of clients, where the server speaks HTTPS.
    pub tls: Option<Arc<ClientConfig>>,
}

/// Words of `haul media ROOT` on a free port, with options.
pub fn words(place: &Place, options: &[&str]) -> Vec<OsString> {
    let words = words!["media", place.path("root"), "--listen", "127.0.0.1:0"];
    words.into_iter().chain(options.iter().map(OsString::from)).collect()
}

impl Media {
    pub fn start(place: &Place, options: &[&str]) -> Self {
        Self::of(place.start(&words(place, options)))
    }

    /// Takes a process that says where it listens.
    pub fn of(haul: Haul) -> Self {
        let line = haul.wait_for("start", |event| event["event"] == "listening");
        let listens = address(&line["url"]).unwrap_or_else(|| panic!("no address: {line}"));
        Self { haul, address: listens, status: address(&line["status"]), tls: None }
    }

    pub fn client(&self) -> Client {
        match &self.tls {
            Some(config) => Client::connect_tls(self.address, config),
            None => Client::connect(self.address),
        }
    }

    #[track_caller]
    pub fn status(&self) -> SocketAddr {
        self.status.expect("an address of its status")
    }

    pub fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.haul.id())).unwrap().count()
    }

    /// Checks that the server is there, and answers.
    #[track_caller]
    pub fn assert_serves(&self) {
        assert_eq!(self.client().get("/film.mp4", "Range: bytes=0-9\r\n").status, 206);
    }

    pub fn signal(&self, signal: Signal) {
        self.haul.signal(signal);
    }

    /// Ends the server by SIGTERM, and returns what it said.
    pub fn end(self) -> Ran {
        self.signal(Signal::TERM);
        self.haul.finish()
    }
}

fn address(url: &Value) -> Option<SocketAddr> {
    let (_, behind) = url.as_str()?.split_once("://")?;
    behind.trim_end_matches('/').parse().ok()
}
