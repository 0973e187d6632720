//! Names that the `Host` field of a request may have.
//!
//! A page of another site can have its own name lead here for a moment (DNS rebinding), and its
//! script would then read what only this machine may; but it cannot change the name that the
//! browser sends. So names are answered only if they are known; addresses always are.

use std::net::IpAddr;

/// Host names that a request may have.
#[derive(Clone, Debug)]
pub struct HostNames {
    names: Vec<String>,
}

impl HostNames {
    /// Host names: those that are given, and the machine's own.
    #[must_use]
    pub fn new(names: &[String]) -> Self {
        Self { names: names.iter().cloned().chain(haul_host::host_name()).collect() }
    }

    /// Whether `host`, a request's with or without a port, is known; `None` is one of HTTP/1.0,
    /// which no browser sends.
    #[must_use]
    pub fn know(&self, host: Option<&str>) -> bool {
        let Some(host) = host else { return true };
        let name = without_port(host);
        let is = |known: &str| name.trim_end_matches('.').eq_ignore_ascii_case(known);
        let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
        // `localhost` is this machine for every browser (RFC 6761, 6.3).
        bare.parse::<IpAddr>().is_ok()
            || is("localhost")
            || self.names.iter().any(|known| is(known.trim_end_matches('.')))
    }
}

/// Whether a page asks its own site: its `http://[::1]:8081` is the `[::1]:8081` that it asks.
#[must_use]
pub fn is_same_site(origin: Option<&str>, host: Option<&str>) -> bool {
    let Some(origin) = origin else { return true };
    let site = origin.split_once("://").map(|(_, site)| site);
    site.zip(host).is_some_and(|(site, host)| site.eq_ignore_ascii_case(host))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_known_names_are_let_in_and_strangers_not() {
        let names = HostNames::new(&["dash.example.org".to_owned(), "media".to_owned()]);
        for host in [
            "127.0.0.1:8081",
            "192.0.2.7",
            "[::1]:8081",
            "[2001:db8::1]",
            "localhost",
            "LocalHost:8081",
            "localhost.",
            "dash.example.org:443",
            "Media.",
        ] {
            assert!(names.know(Some(host)), "{host}");
        }
        for host in [
            "",
            ":8081",
            "evil.example",
            "evil.example:8081",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "dash.example.org.evil.example",
            "[::1].evil.example",
            "0x7f.1",
            "127.0.0.1:x",
        ] {
            assert!(!names.know(Some(host)), "{host}");
        }
        assert!(names.know(None));
        assert!(haul_host::host_name().is_none_or(|own| names.know(Some(&own))));
    }

    #[test]
    fn a_page_of_another_site_is_told_from_our_own() {
        for (origin, host, is_same) in [
            (None, Some("a"), true),
            (Some("http://127.0.0.1:8081"), Some("127.0.0.1:8081"), true),
            (Some("https://dash.example.org"), Some("Dash.example.org"), true),
            (Some("http://127.0.0.1:9000"), Some("127.0.0.1:8081"), false),
            (Some("http://evil.example"), Some("127.0.0.1:8081"), false),
            (Some("null"), Some("127.0.0.1:8081"), false),
        ] {
            assert_eq!(is_same_site(origin, host), is_same, "{origin:?}");
        }
    }
}
