//! Proxies that connections to a server go by: SOCKS5, and HTTP by CONNECT.

use crate::name::decode_path;
use std::{fmt, str::FromStr, sync::Arc};

/// Port of a SOCKS proxy that names none (RFC 1928).
const SOCKS_PORT: u16 = 1080;
/// Port of an HTTP proxy that names none, as curl(1) has it.
const HTTP_PORT: u16 = 1080;
/// Most bytes of a user's name or a password in SOCKS5 (RFC 1929).
const LOGIN_BYTES_MAX: usize = 255;

/// The protocol of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProxyKind {
    /// SOCKS5, and names are resolved on this side.
    Socks5,
    /// SOCKS5, and names are resolved at the proxy.
    Socks5h,
    /// HTTP by CONNECT, and names are resolved at the proxy.
    Http,
}

/// A proxy that connections to a server go by: `socks5://[USER:PASSWORD@]HOST[:PORT]`,
/// `socks5h://...` or `http://...`.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Protocol of the proxy.
    pub kind: ProxyKind,
    /// Name or address of the proxy, without the brackets of IPv6.
    pub host: String,
    /// Port of the proxy.
    pub port: u16,
    pub(crate) login: Option<Arc<Login>>,
}

/// A user and a password, as bytes.
#[derive(PartialEq, Eq)]
pub(crate) struct Login {
    pub user: Vec<u8>,
    pub password: Vec<u8>,
}

/// A text that is no proxy, told without a password that may be in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a proxy: {0}. It looks like socks5h://HOST:1080 or http://USER:PASSWORD@HOST:3128")]
pub struct ProxyError(&'static str);

impl ProxyKind {
    fn scheme(self) -> &'static str {
        match self {
            Self::Socks5 => "socks5",
            Self::Socks5h => "socks5h",
            Self::Http => "http",
        }
    }
}

impl Proxy {
    /// Host and port, with brackets where the host is an IPv6 address.
    #[must_use]
    pub fn server(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// Shows the proxy without its user and password.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let login = if self.login.is_some() { "...@" } else { "" };
        write!(f, "{}://{login}{}", self.kind.scheme(), self.server())
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Proxy {
    type Err = ProxyError;

    fn from_str(text: &str) -> Result<Self, ProxyError> {
        let (scheme, rest) = text.split_once("://").ok_or(ProxyError("no :// in it"))?;
        let kind = match scheme {
            "socks5" => ProxyKind::Socks5,
            "socks5h" => ProxyKind::Socks5h,
            "http" => ProxyKind::Http,
            _ => return Err(ProxyError("the scheme is none of socks5, socks5h and http")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (login, server) = match rest.rsplit_once('@') {
            Some((login, server)) => (Some(parse_login(login)?), server),
            None => (None, rest),
        };
        let port = if kind == ProxyKind::Http { HTTP_PORT } else { SOCKS_PORT };
        let wrong = ProxyError("the host or port is wrong");
        let (host, port) = split_port(server, port).ok_or(wrong)?;
        Ok(Self { kind, host, port, login: login.map(Arc::new) })
    }
}

fn parse_login(text: &str) -> Result<Login, ProxyError> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let decoded = |text| {
        let bytes = decode_path(text).filter(|bytes| bytes.len() <= LOGIN_BYTES_MAX);
        bytes.ok_or(ProxyError("user and password have at most 255 bytes, and a % is %25"))
    };
    let login = Login { user: decoded(user)?, password: decoded(password)? };
    // RFC 1929 has no empty user, and RFC 7617 none with a colon.
    let is_usable = !login.user.is_empty() && !login.user.contains(&b':');
    is_usable.then_some(login).ok_or(ProxyError("the user is empty, or has a colon"))
}

fn split_port(server: &str, default: u16) -> Option<(String, u16)> {
    let (host, rest) = match server.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => server.find(':').map_or((server, ""), |at| server.split_at(at)),
    };
    let port = match rest.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|port| *port > 0)?,
        None => rest.is_empty().then_some(default)?,
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
    (!host.is_empty() && host.chars().all(is_plain)).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_has_a_scheme_a_host_and_maybe_a_login_that_is_never_shown() {
        for (text, shown) in [
            ("socks5://h", "socks5://h:1080"),
            ("socks5h://10.0.0.1:9050/", "socks5h://10.0.0.1:9050"),
            ("http://[::1]:3128", "http://[::1]:3128"),
            ("http://ann:s%40cret@h:1", "http://...@h:1"),
        ] {
            let proxy: Proxy = text.parse().unwrap();
            assert_eq!((proxy.to_string(), format!("{proxy:?}")), (shown.into(), shown.into()));
        }
        let proxy: Proxy = "http://ann:a%3Ab@c@h:1".parse().unwrap();
        assert_eq!(proxy.login.unwrap().password, b"a:b@c");
        for bad in [
            "h:1",
            "https://h",
            "socks4://secret@h",
            "http://",
            "http://h:0",
            "http://h:x",
            "http://a b",
            "socks5://:secret@h",
            "http://secret%4@h",
            "http://h/secret",
            "http://h\r\nX: secret",
        ] {
            let error = bad.parse::<Proxy>().unwrap_err().to_string();
            assert!(error.contains("not a proxy") && !error.contains("secret"), "{error}");
        }
        assert!(format!("http://{}@h", "u".repeat(256)).parse::<Proxy>().is_err());
    }
}
