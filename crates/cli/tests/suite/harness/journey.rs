//! Both directions of a transfer, so that a test can go through each.

use super::{Place, server::Server};
use std::path::PathBuf;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Push,
    Pull,
}

pub const WAYS: [Way; 2] = [Way::Push, Way::Pull];

/// A transfer to try, one way, from a server or to it.
pub struct Journey {
    pub server: Server,
    pub way: Way,
    pub place: Place,
}

impl Journey {
    pub fn new(way: Way) -> Self {
        let place = Place::new();
        let server = Server::start(&place);
        Self { place, server, way }
    }

    /// Path of a source.
    pub fn from(&self, name: &str) -> PathBuf {
        match self.way {
            Way::Push => self.place.source(name),
            Way::Pull => self.place.root(name),
        }
    }

    /// Path at which a source arrives.
    pub fn to(&self, name: &str) -> PathBuf {
        match self.way {
            Way::Push => self.place.root(name),
            Way::Pull => self.place.target(name),
        }
    }
}
