//! Words to a machine that is to send what it has to another, whose server ssh has begun.

use super::{
    messages::{EncodedPath, Start},
    ports::Ports,
    ways::Way,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The place that a machine is to send to.
#[derive(Clone, Serialize, Deserialize)]
pub struct SendTarget {
    /// The machine as the user calls it.
    pub name: String,
    pub token: String,
    pub port: u16,
    /// Names and addresses to try, the best first.
    pub hosts: Vec<String>,
    /// Path of the server's URL.
    pub path: EncodedPath,
}

/// Shows no token.
impl fmt::Debug for SendTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, hosts, port, path, .. } = self;
        write!(f, "SendTarget({name}, {hosts:?}, port {port}, {path:?})")
    }
}

/// Words of the near end to a machine that is to send.
#[derive(Clone, Serialize, Deserialize)]
pub struct SendOrder {
    pub target: SendTarget,
    /// Options of a push, each one word.
    #[serde(default)]
    pub options: Vec<String>,
    /// Ways beside connections to the target; `None` where the near end or the target has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_ways: Option<OtherWays>,
}

/// Ways for the data beside connections to the target.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OtherWays {
    /// The one that the user has named.
    pub way: Way,
    /// Ports that the machine that sends may listen on; any free one where there are none.
    pub ports: Option<Ports>,
}

/// Shows no value of an option: a proxy may have a password.
impl fmt::Debug for SendOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, options, other_ways } = self;
        let names = options.iter().map(|word| word.split('=').next().unwrap_or_default());
        let names: Vec<&str> = names.collect();
        write!(f, "SendOrder({target:?}, {names:?}, {other_ways:?})")
    }
}

impl SendTarget {
    /// The target that a server has begun for: `host` is its name by which ssh connects.
    #[must_use]
    pub fn of(name: String, start: &Start, host: Option<String>) -> Option<Self> {
        let mut hosts: Vec<String> = Vec::new();
        let mut told = start.addresses.iter().cloned();
        for one in told.next().into_iter().chain(host).chain(told) {
            if !hosts.contains(&one) {
                hosts.push(one);
            }
        }
        // What leads a machine to itself is tried last: it would find another server there.
        let leads_home =
            |host: &String| host.parse::<std::net::IpAddr>().is_ok_and(|it| it.is_loopback());
        hosts.sort_by_key(leads_home);
        let (token, path) = (start.token.clone(), start.paths.first()?.clone());
        Some(Self { name, token, port: start.port, hosts, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_is_sought_where_ssh_found_it_and_at_home_last() {
        let start = Start {
            version: 1,
            software: String::new(),
            token: "secret".into(),
            port: 5,
            addresses: ["127.0.0.1", "10.0.0.5", "dtn2", "::1"].map(String::from).to_vec(),
            paths: vec![EncodedPath::of(b"x")],
            root: EncodedPath::of(b"/"),
            grace_ms: 0,
            takes_orders: false,
        };
        let target = SendTarget::of("bob@dtn2".into(), &start, Some("dtn2".into())).unwrap();
        assert_eq!(target.hosts, ["dtn2", "10.0.0.5", "127.0.0.1", "::1"]);
        assert!(!format!("{target:?}").contains("secret"));
        let options = vec!["--proxy=http://u:word@p".to_owned()];
        let order = SendOrder { target, options, other_ways: None };
        assert!(format!("{order:?}").contains("--proxy") && !format!("{order:?}").contains("word"));
        let none = Start { paths: Vec::new(), ..start };
        assert!(SendTarget::of(String::new(), &none, None).is_none());
    }
}
