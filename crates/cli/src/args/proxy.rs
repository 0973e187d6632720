//! `--proxy`, and the proxy that the environment names.

use super::{ssh::OtherSide, usage_problem};
use crate::ssh::{
    by_proxy::{ProxyRule, is_excepted},
    ways::Way,
};
use clap::Args;
use haul_transfer::{HaulUrl, Problem, Proxy};
use std::{env, fs::File, io::Read};

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
                // The name in the command is one for ssh; the host behind it has others.
                *proxy = self.rule_for(login.host())?;
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
        Ok(self.rule_for(host)?.proxy)
    }

    /// The proxy of the option or of the environment, and the hosts that need none; no proxy for a
    /// host that is one of them. What the environment names is read for the others alone: it may
    /// be a proxy that haul does not know.
    ///
    /// # Errors
    /// If what names it is no proxy.
    fn rule_for(&self, host: &str) -> Result<ProxyRule, Problem> {
        let variable = |names: &[&str]| {
            let set = names.iter().filter_map(|name| Some((*name, env::var(name).ok()?)));
            set.map(|(name, text)| (name.to_owned(), text)).find(|(_, text)| !text.is_empty())
        };
        let named = |proxy| ProxyRule { proxy: Some(proxy), without: None };
        match &self.proxy {
            Some(text) if text == NONE => Ok(ProxyRule::default()),
            Some(text) => match text.strip_prefix('@') {
                Some(path) => parse("--proxy", read(path)?.trim()).map(named),
                None => parse("--proxy", text).map(named),
            },
            None => {
                let Some((name, text)) = variable(&VARIABLES) else {
                    return Ok(ProxyRule::default());
                };
                let without = variable(&EXCEPTIONS).map(|(_, text)| text).unwrap_or_default();
                if is_excepted(host, &without) {
                    return Ok(ProxyRule::default());
                }
                Ok(ProxyRule { proxy: Some(parse(&name, &text)?), without: Some(without) })
            }
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

#[cfg(test)]
mod tests {
    use super::*;

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
