//! A server on the far host of a long path, which can vanish and come back.

use super::{
    Place,
    process::{Haul, Ran},
};
use crate::words;
use haul_testkit::{
    skip::skip,
    wan::{Path, Wan},
};
use std::ffi::OsString;

/// A server far away; the clients of a test run on the near host.
pub struct Far {
    pub wan: Wan,
    pub server: Haul,
    url: String,
}

impl Far {
    /// Starts the server; `None` and a skipped test where there can be no such path.
    pub fn start(place: &Place, path: Path) -> Option<Self> {
        let wan = match Wan::start(path, place.seed.0) {
            Ok(wan) => wan,
            Err(why) => {
                skip("root, ip(8) and TUN devices", why.to_string());
                return None;
            }
        };
        let (server, url) = launch(&wan, place, "0");
        Some(Self { wan, server, url })
    }

    /// URL of the root that is served.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Kills the server and starts it again on its port.
    pub fn restart(&mut self, place: &Place) {
        self.server.kill();
        let port = self.url.trim_end_matches('/').rsplit(':').next().unwrap().to_owned();
        let (server, url) = launch(&self.wan, place, &port);
        assert_eq!(url, self.url, "a server that starts again keeps its URL");
        self.server = server;
    }

    pub fn start_haul(&self, place: &Place, words: &[OsString]) -> Haul {
        let words = [words, &words!["--json"]].concat();
        Haul::start(self.wan.near(&place.command(&words)))
    }

    pub fn run(&self, place: &Place, words: &[OsString]) -> Ran {
        self.start_haul(place, words).finish()
    }
}

fn launch(wan: &Wan, place: &Place, port: &str) -> (Haul, String) {
    let listen = format!("{}:{port}", wan.far_address());
    let words = words!["serve", place.path("root"), "--listen", listen, "--json"];
    let mut command = place.command(&words);
    command.env("HAUL_STATE", place.path("state"));
    let server = Haul::start(wan.far(&command));
    let line = server.wait_for("listening line", |_| true);
    let url = line["url"].as_str().unwrap().to_owned();
    (server, url)
}
