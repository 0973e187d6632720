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
    /// The target that a server has begun for, by these names and addresses.
    #[must_use]
    pub fn of(name: String, start: &Start, hosts: Vec<String>) -> Option<Self> {
        let (token, path) = (start.token.clone(), start.paths.first()?.clone());
        Some(Self { name, token, port: start.port, hosts, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_token_and_no_value_of_an_option_is_shown() {
        let start = Start {
            version: 1,
            software: String::new(),
            token: "secret".into(),
            port: 5,
            addresses: Vec::new(),
            paths: vec![EncodedPath::of(b"x")],
            root: EncodedPath::of(b"/"),
            grace_ms: 0,
            takes_orders: false,
        };
        let target = SendTarget::of("bob@dtn2".into(), &start, vec!["dtn2".into()]).unwrap();
        assert!(!format!("{target:?}").contains("secret"));
        let options = vec!["--proxy=http://u:word@p".to_owned()];
        let order = SendOrder { target, options, other_ways: None };
        assert!(format!("{order:?}").contains("--proxy") && !format!("{order:?}").contains("word"));
        let none = Start { paths: Vec::new(), ..start };
        assert!(SendTarget::of(String::new(), &none, Vec::new()).is_none());
    }
}
