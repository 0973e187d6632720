//! `--proxy`, and the proxy that the environment names.

use super::{ssh::OtherSide, usage_problem};
use crate::ssh::ways::Way;
use clap::Args;
use haul_transfer::{HaulUrl, Problem, Proxy};
use std::{env, fs::File, io::Read, net::IpAddr};

/// Variables that name a proxy, the first that is set counts. Those for the web alone, such as
/// `https_proxy`, do not: their proxies mostly lead to port 443 and nowhere else.
const VARIABLES: [&str; 2] = ["all_proxy", "ALL_PROXY"];
/// Variables that name hosts without a proxy.
const EXCEPTIONS: [&str; 2] = ["no_proxy", "NO_PROXY"];
/// Value that switches a proxy off.
const NONE: &str = "none";
/// Most bytes of a file that holds a proxy.
const FILE_BYTES_MAX: u64 = 4096;

/// The option for a proxy.
#[derive(Debug, Default, Args)]
pub struct LowProxy {
    /// Go by a proxy: socks5://HOST, socks5h://HOST, http://USER:PASSWORD@HOST:PORT, or none
    ///
    /// Control and data connections; socks5h and http resolve names at the proxy. @FILE reads it
    /// from a file, so that no other user sees a password. Without it ALL_PROXY names one, and
    /// NO_PROXY hosts that are reached directly.
    #[arg(long, value_name = "PROXY")]
    pub proxy: Option<String>,
}

impl LowProxy {
    /// Gives the other side the proxy by which it is reached.
    ///
    /// # Errors
    /// If what names it is no proxy.
    pub fn give_to(&self, side: &mut OtherSide) -> Result<(), Problem> {
        match side {
            OtherSide::Server(urls) => urls.iter_mut().try_for_each(|url| self.give_to_url(url)),
            OtherSide::BySsh { login, proxy, way, .. } => {
                self.check_way(*way)?;
                *proxy = self.for_host(login.host())?;
                Ok(())
            }
        }
    }

    /// Gives a URL the proxy by which its server is reached.
    ///
    /// # Errors
    /// If what names it is no proxy.
    pub fn give_to_url(&self, url: &mut HaulUrl) -> Result<(), Problem> {
        url.proxy = self.for_host(&url.host)?;
        Ok(())
    }

    /// Refuses a proxy for connections that are not made to the other side. One of the environment
    /// is for those alone that are.
    ///
    /// # Errors
    /// If both were asked for.
    pub fn check_way(&self, way: Way) -> Result<(), Problem> {
        let Some(option) = way.option() else { return Ok(()) };
        if self.proxy.as_ref().is_none_or(|proxy| proxy == NONE) {
            return Ok(());
        }
        let needs = "connections to the other side, which a proxy can make";
        let hint = "leave out one of both: by a proxy no other way is tried";
        Err(usage_problem("cannot take --proxy", needs, option, hint))
    }

    /// The value of `--proxy` for another machine: what a file here has, in its place.
    ///
    /// # Errors
    /// If it is no proxy.
    pub fn for_another(value: &str) -> Result<String, Problem> {
        let text = match value.strip_prefix('@') {
            Some(path) => read(path)?.trim().to_owned(),
            None => value.to_owned(),
        };
        if text != NONE {
            parse("--proxy", &text)?;
        }
        Ok(text)
    }

    /// The proxy by which a host is reached; `None` for none.
    ///
    /// # Errors
    /// If what names it is no proxy.
    pub fn for_host(&self, host: &str) -> Result<Option<Proxy>, Problem> {
        let variable = |names: &[&str]| {
            let set = names.iter().filter_map(|name| Some((*name, env::var(name).ok()?)));
            set.map(|(name, text)| (name.to_owned(), text)).find(|(_, text)| !text.is_empty())
        };
        match &self.proxy {
            Some(text) if text == NONE => Ok(None),
            Some(text) => match text.strip_prefix('@') {
                Some(path) => parse("--proxy", read(path)?.trim()).map(Some),
                None => parse("--proxy", text).map(Some),
            },
            None => match variable(&VARIABLES) {
                Some(_) if is_excepted(host, variable(&EXCEPTIONS).map(|(_, text)| text)) => {
                    Ok(None)
                }
                Some((name, text)) => parse(&name, &text).map(Some),
                None => Ok(None),
            },
        }
    }
}

fn read(path: &str) -> Result<String, Problem> {
    let read = || -> std::io::Result<String> {
        let mut text = String::new();
        File::open(path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    };
    read().map_err(|error| {
        let needs = "a file that holds the proxy alone";
        usage_problem(&format!("cannot take --proxy @{path}"), needs, &error.to_string(), "")
    })
}

fn parse(from: &str, text: &str) -> Result<Proxy, Problem> {
    // The text is not shown: it may hold a password.
    text.parse().map_err(|error: haul_transfer::ProxyError| {
        let hint = "--proxy none goes without one";
        usage_problem(&format!("cannot take {from}"), "", &error.to_string(), hint)
    })
}

/// Whether a host is reached directly though the environment names a proxy: one of this machine,
/// and what the list names, by name, domain, address or network.
fn is_excepted(host: &str, list: Option<String>) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    list.unwrap_or_default().to_ascii_lowercase().split([',', ' ']).map(str::trim).any(|entry| {
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
            assert_eq!(is_excepted(host, Some(list.into())), is, "{host}");
        }
        assert!(is_excepted("h", Some("*".into())) && !is_excepted("h", None));
        assert!(is_excepted("9.9.9.9", Some("0.0.0.0/0".into())));
    }

    #[test]
    fn what_is_no_proxy_is_told_without_its_words() {
        let low = |proxy: &str| LowProxy { proxy: Some(proxy.into()) }.for_host("h");
        assert_eq!(low("none"), Ok(None));
        assert_eq!(low("socks5h://p:9").unwrap().unwrap().to_string(), "socks5h://p:9");
        let error = low("ftp://ann:secret@p").unwrap_err().to_string();
        assert!(error.contains("cannot take --proxy") && !error.contains("secret"), "{error}");
        assert!(low("@/no/such/file").unwrap_err().to_string().contains("/no/such/file"));
    }
}
