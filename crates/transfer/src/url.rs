//! URLs of haul (`haul://TOKEN@HOST[:PORT]/path`). A user copies one from one machine to the other.

use crate::{
    name::{decode_path, encode_path},
    proxy::Proxy,
    token::Token,
};
use std::{fmt, net::Ipv6Addr, str::FromStr};

/// The port of `haul://` URLs that name none.
pub const PORT_DEFAULT: u16 = 7117;

/// A server, the token that opens it, and a path below the token's root.
#[derive(Clone, PartialEq, Eq)]
pub struct HaulUrl {
    /// Token of the URL; `None` where it has none, which is to be set before a transfer.
    pub token: Option<Token>,
    /// Name or address of the server, without the brackets of IPv6.
    pub host: String,
    /// The port of the server.
    pub port: u16,
    /// The path as written after the host, percent-decoded, without the first `/`. Bytes, not text.
    pub path: Vec<u8>,
    /// Proxy by which connections to the server go; no part of the text.
    pub proxy: Option<Proxy>,
}

/// A text that is no URL of haul, told with what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a haul URL: {0}. It looks like haul://TOKEN@HOST:7117/path; `haul serve` prints one")]
pub struct UrlError(String);

impl HaulUrl {
    /// Host and port, with brackets where the host is an IPv6 address.
    #[must_use]
    pub fn server(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The URL with its token, to be shown only to those who may have it.
    #[must_use]
    pub fn reveal(&self) -> String {
        let token = self.token.as_ref().map_or(String::new(), |token| token.reveal() + "@");
        format!("haul://{token}{}/{}", self.server(), encode_path(&self.path))
    }
}

/// Shows the URL redacted: the token does not reach logs.
impl fmt::Display for HaulUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = if self.token.is_some() { "...@" } else { "" };
        write!(f, "haul://{token}{}/{}", self.server(), encode_path(&self.path))
    }
}

impl fmt::Debug for HaulUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for HaulUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let error = |why: &str| UrlError(why.to_owned());
        let rest = text.strip_prefix("haul://").ok_or_else(|| error("no haul:// in front"))?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (token, server) = match authority.rsplit_once('@') {
            Some((token, server)) => {
                let token = Token::from_str(token).map_err(|why| error(&why.to_string()))?;
                (Some(token), server)
            }
            None => (None, authority),
        };
        let (host, port) = split_port(server).ok_or_else(|| error("the host or port is wrong"))?;
        let wrong = "a % in its path is not followed by two hexadecimal digits; a % of a name is \
                     written %25";
        let path = decode_path(path).ok_or_else(|| error(wrong))?;
        Ok(Self { token, host, port, path, proxy: None })
    }
}

fn split_port(server: &str) -> Option<(String, u16)> {
    let (host, port) = if let Some(rest) = server.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        // Behind a % is the interface of a link-local address.
        host.split('%').next()?.parse::<Ipv6Addr>().ok()?;
        (host, rest.strip_prefix(':').or(rest.is_empty().then_some(""))?)
    } else {
        server.split_once(':').unwrap_or((server, ""))
    };
    let port = if port.is_empty() { PORT_DEFAULT } else { port.parse().ok()? };
    let plain =
        !host.is_empty() && host.chars().all(|c| c.is_alphanumeric() || "-._:%".contains(c));
    plain.then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_survives_being_printed() {
        let token = Token::generate([7; 16]).expect("random bytes");
        for path in [&b""[..], b"dir/", b"a b%\xff\n", b"null:"] {
            let url = HaulUrl {
                token: Some(token.clone()),
                host: "::1".into(),
                port: 9,
                path: path.to_vec(),
                proxy: None,
            };
            assert_eq!(url.reveal().parse::<HaulUrl>(), Ok(url.clone()));
            assert!(!format!("{url} {url:?}").contains(&token.reveal()));
        }
    }

    #[test]
    fn the_port_has_a_default_and_nonsense_is_refused() {
        assert_eq!("haul://host/x".parse::<HaulUrl>().expect("valid").port, PORT_DEFAULT);
        assert_eq!("haul://[::1]".parse::<HaulUrl>().expect("valid").server(), "[::1]:7117");
        for bad in [
            "http://a",
            "haul://",
            "haul://a:b",
            "haul://xyz@host/",
            "haul://h/%4",
            "haul://[h:9]:1/",
        ] {
            assert!(bad.parse::<HaulUrl>().is_err(), "{bad}");
        }
    }
}
