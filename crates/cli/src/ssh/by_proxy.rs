//! The proxy by which a server is connected to, and the hosts that need none.

use super::direct_host::KnownHost;
use haul_transfer::{
    ConnectOptions, Proxy,
    internals::{connect_by_proxy, connect_to_first},
};
use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

/// A proxy of the user or of the environment; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyRule {
    pub proxy: Option<Proxy>,
    /// Hosts that are reached without it, as `NO_PROXY` has them; `None` where the user has named
    /// the proxy, so that each host is reached by it.
    pub without: Option<String>,
}

impl ProxyRule {
    /// The proxy by which a host is reached; `None` for none.
    #[must_use]
    pub fn for_host(&self, host: &str) -> Option<&Proxy> {
        let is_excepted = || self.without.as_ref().is_some_and(|list| is_excepted(host, list));
        self.proxy.as_ref().filter(|_| !is_excepted())
    }
}

/// Addresses of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reachable {
    pub direct: Vec<SocketAddr>,
    /// Addresses to which a proxy leads, tried behind the others.
    pub by_proxy: Vec<SocketAddr>,
}

impl Reachable {
    /// Parts the addresses of a server, of which this is known, by whether the proxy leads there. A
    /// host needs none where its address does not, or the name that ssh connects to.
    #[must_use]
    pub fn at(addresses: &[IpAddr], port: u16, known: &KnownHost, rule: &ProxyRule) -> Self {
        let has_proxy = |host: &str| rule.for_host(host).is_some();
        let has_proxy_by_name = known.name.as_deref().is_none_or(has_proxy);
        let mut servers = Self::default();
        for address in addresses {
            // What was looked up here may have an interface of this machine.
            let found = known.found.iter().find(|found| found.ip().to_canonical() == *address);
            let by_name = found.is_none() || has_proxy_by_name;
            let is_by_proxy = by_name && has_proxy(&address.to_string());
            let mut address = found.copied().unwrap_or((*address, 0).into());
            address.set_port(port);
            if is_by_proxy { &mut servers.by_proxy } else { &mut servers.direct }.push(address);
        }
        servers
    }

    /// All addresses, in the order in which they are tried.
    #[must_use]
    pub fn all(&self) -> Vec<SocketAddr> {
        [&self.direct[..], &self.by_proxy].concat()
    }

    /// Finds the first that can be connected to, and the proxy to it, within this time.
    ///
    /// # Errors
    /// Why the last that was tried could not be.
    pub fn connect<'a>(
        &self,
        proxy: Option<&'a Proxy>,
        options: &ConnectOptions,
        time_max: Duration,
        stop: &dyn Fn() -> bool,
    ) -> io::Result<(SocketAddr, Option<&'a Proxy>)> {
        let deadline = Instant::now() + time_max;
        let share = if self.by_proxy.is_empty() { time_max } else { time_max / 2 };
        let reached = connect_to_first(&self.direct, options, share, stop)
            .and_then(|socket| Ok((socket.peer_addr()?, None)));
        match (reached, proxy) {
            (Err(_), Some(proxy)) if !self.by_proxy.is_empty() => {
                let left = deadline.saturating_duration_since(Instant::now());
                let server = connect_by_proxy(proxy, &self.by_proxy, options, left, stop)?;
                Ok((server, Some(proxy)))
            }
            (reached, _) => reached,
        }
    }
}

/// Whether a host is reached directly though the environment names a proxy: one of this machine,
/// and what the list names, by name, domain, address or network.
pub fn is_excepted(host: &str, list: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    list.to_ascii_lowercase().split([',', ' ']).map(str::trim).any(|entry| {
        let domain = entry.trim_start_matches("*.").trim_start_matches('.');
        let in_domain = || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
        let in_network = || address.zip(entry.split_once('/')).is_some_and(is_in);
        entry == "*" || (!domain.is_empty() && (host == domain || in_domain())) || in_network()
    })
}

fn is_in((address, (network, bits)): (IpAddr, (&str, &str))) -> bool {
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else {
        return false;
    };
    let (one, other, width) = match (address, network) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits().into(), other.to_bits().into(), 32),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits(), other.to_bits(), 128),
        _ => return false,
    };
    let differs: u128 = one ^ other;
    bits <= width && differs.checked_shr(width - bits).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ssh's alias for a machine stands in no list; its host name and its addresses do.
    #[test]
    fn a_server_needs_no_proxy_where_the_name_or_the_address_behind_the_alias_does_not() {
        let addresses = ["192.0.2.7", "10.0.0.5"].map(|text| text.parse().unwrap());
        let name = Some("dtn1.example.org".to_owned());
        let known = KnownHost { name, found: vec![(addresses[0], 0).into()], ..Default::default() };
        let proxy = Some("http://p:9".parse().unwrap());
        let parted = |without: Option<&str>| {
            let rule = ProxyRule { proxy: proxy.clone(), without: without.map(str::to_owned) };
            let servers = Reachable::at(&addresses, 5000, &known, &rule);
            [servers.direct, servers.by_proxy].map(|addresses| {
                addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            })
        };
        let (named, other) = ("192.0.2.7:5000", "10.0.0.5:5000");
        assert_eq!(parted(Some("dtn9")), ["".to_owned(), format!("{named} {other}")]);
        assert_eq!(parted(Some("example.org")), [named, other]);
        assert_eq!(parted(Some("192.0.2.0/24")), [named, other]);
        assert_eq!(parted(Some("10.0.0.0/8")), [other, named]);
        assert_eq!(parted(Some("*"))[1], "");
        assert_eq!(parted(None)[0], "", "a proxy that the user has named is for each");
        let none = Reachable::at(&addresses, 5000, &known, &ProxyRule::default());
        assert_eq!((none.direct.len(), none.all().len()), (2, 2));
    }

    #[test]
    fn hosts_without_a_proxy_are_named_by_name_domain_address_or_network() {
        let list = "dtn1, .example.org,*.lab.net 10.0.0.0/8,192.168.1.5,2001:db8::/32,0.0.0.0/x";
        for (host, is) in [
            ("localhost", true),
            ("127.0.0.2", true),
            ("::1", true),
            ("DTN1", true),
            ("dtn1.", true),
            ("a.dtn1", true),
            ("xdtn1", false),
            ("example.org", true),
            ("a.example.org", true),
            ("badexample.org", false),
            ("a.lab.net", true),
            ("10.9.9.9", true),
            ("11.0.0.1", false),
            ("192.168.1.5", true),
            ("192.168.1.50", false),
            ("2001:db8:1::9", true),
            ("2001:db9::9", false),
        ] {
            assert_eq!(is_excepted(host, list), is, "{host}");
        }
        assert!(is_excepted("h", "*") && !is_excepted("h", ""));
        assert!(is_excepted("9.9.9.9", "0.0.0.0/0"));
    }
}
