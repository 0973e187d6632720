//! Connections by way of a proxy of SOCKS5 or HTTP.
//!
//! SOCKS5 is RFC 1928 and RFC 1929, CONNECT of HTTP RFC 9110, 9.3.6. What a proxy says is not
//! trusted: every answer has a limit in bytes and in time. The server proves who it is behind it,
//! by TLS, as without one.

use super::{
    race::{self, Setup},
    resolve,
};
use crate::{
    name::printable,
    proxy::{Login, Proxy, ProxyKind},
};
use std::{
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// Time in which a proxy has to answer, once it is connected to.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(20);
/// Interval at which it is looked whether somebody still waits.
const STOP_POLL: Duration = Duration::from_millis(100);
/// Most bytes of the head of an HTTP answer.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Most characters of a proxy's words in an error.
const SHOWN_CHARS_MAX: usize = 200;
/// Most addresses of a server that a proxy is asked for.
const ADDRESSES_MAX: usize = 4;

/// Connects to `server` (`host:port`) by way of a proxy.
///
/// # Errors
/// If the proxy does not answer, refuses, or answers something else.
pub fn connect(
    proxy: &Proxy,
    server: &str,
    setup: Setup<'_>,
    patience: Duration,
    stop: &dyn Fn() -> bool,
) -> io::Result<TcpStream> {
    let (host, port) = resolve::host_and_port(server).ok_or(ErrorKind::InvalidInput)?;
    let mut targets = vec![Target::of(host, port)];
    if let (ProxyKind::Socks5, Target::Name(..)) = (proxy.kind, &targets[0]) {
        let found = resolve::addresses_unless(server, stop)?.into_iter().take(ADDRESSES_MAX);
        targets = found.map(Target::Address).collect();
    }
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for target in targets {
        let socket = reach(proxy, setup, patience, stop)?;
        let deadline = Instant::now() + ANSWER_WAIT_MAX;
        let mut asking = Asking { socket: &socket, deadline, stop };
        let asked = match proxy.kind {
            ProxyKind::Http => asking.http(&target, proxy.login.as_deref()),
            ProxyKind::Socks5 | ProxyKind::Socks5h => asking.socks(&target, proxy.login.as_deref()),
        };
        match asked {
            Ok(()) => {
                socket.set_read_timeout(None)?;
                socket.set_write_timeout(None)?;
                return Ok(socket);
            }
            Err(error) => last = io::Error::new(error.kind(), format!("proxy {proxy}: {error}")),
        }
        if stop() {
            break;
        }
    }
    Err(last)
}

/// Connects to the proxy itself.
fn reach(
    proxy: &Proxy,
    setup: Setup<'_>,
    patience: Duration,
    stop: &dyn Fn() -> bool,
) -> io::Result<TcpStream> {
    let found = resolve::addresses_unless(&proxy.server(), stop);
    found.and_then(|addresses| race::connect(&addresses, setup, patience, stop)).map_err(|error| {
        let text = format!("proxy {proxy} cannot be reached: {error}");
        io::Error::new(error.kind(), text)
    })
}

/// The server that a proxy is asked for.
enum Target {
    Address(SocketAddr),
    Name(String, u16),
}

impl Target {
    fn of(host: &str, port: u16) -> Self {
        match host.parse::<IpAddr>() {
            Ok(address) => Self::Address(SocketAddr::new(address, port)),
            Err(_) => Self::Name(host.to_owned(), port),
        }
    }

    /// Kind, address and port, as SOCKS5 has them.
    fn socks_bytes(&self) -> io::Result<Vec<u8>> {
        let (mut bytes, port) = match self {
            Self::Address(SocketAddr::V4(v4)) => {
                ([&[1][..], &v4.ip().octets()].concat(), v4.port())
            }
            Self::Address(SocketAddr::V6(v6)) => {
                ([&[4][..], &v6.ip().octets()].concat(), v6.port())
            }
            Self::Name(name, port) => {
                let len = u8::try_from(name.len()).map_err(|_| invalid("the name is too long"))?;
                ([&[3, len][..], name.as_bytes()].concat(), *port)
            }
        };
        bytes.extend_from_slice(&port.to_be_bytes());
        Ok(bytes)
    }

    fn http_text(&self) -> String {
        match self {
            Self::Address(address) => address.to_string(),
            Self::Name(name, port) => format!("{name}:{port}"),
        }
    }
}

/// A proxy that is being asked, and the time for it.
struct Asking<'a> {
    socket: &'a TcpStream,
    deadline: Instant,
    stop: &'a dyn Fn() -> bool,
}

impl Asking<'_> {
    fn socks(&mut self, target: &Target, login: Option<&Login>) -> io::Result<()> {
        self.write(if login.is_some() { &[5, 2, 0, 2] } else { &[5, 1, 0] })?;
        let [version, method] = self.read::<2>()?;
        if version != 5 {
            return Err(invalid("its answer is none of SOCKS5"));
        }
        match (method, login) {
            (0, _) => {}
            (2, Some(Login { user, password })) => {
                // Both have at most 255 bytes, as a proxy is made with these alone.
                let len = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap_or(u8::MAX);
                let (user_len, password_len) = ([1, len(user)], [len(password)]);
                self.write(&[&user_len[..], user, &password_len, password].concat())?;
                if self.read::<2>()?[1] != 0 {
                    return Err(denied("it refuses the user or the password"));
                }
            }
            (0xff, Some(_)) => return Err(denied("it takes no password")),
            (0xff, None) => return Err(denied("it wants a user and a password")),
            _ => return Err(invalid("it wants a login that nobody offered")),
        }
        self.write(&[&[5, 1, 0][..], &target.socks_bytes()?].concat())?;
        let [version, reply, _, kind] = self.read::<4>()?;
        if version != 5 {
            return Err(invalid("its answer is none of SOCKS5"));
        }
        if reply != 0 {
            return Err(refused(&format!("it refuses: {}", socks_words(reply))));
        }
        // The address by which the proxy connects, and its port, say nothing here.
        let len = match kind {
            1 => 4,
            4 => 16,
            3 => usize::from(self.read::<1>()?[0]),
            _ => return Err(invalid("its answer is none of SOCKS5")),
        };
        self.read_exact(&mut vec![0; len + 2])
    }

    fn http(&mut self, target: &Target, login: Option<&Login>) -> io::Result<()> {
        let target = target.http_text();
        let login = login.map_or_else(String::new, |Login { user, password }| {
            let pair = base64(&[&user[..], b":", password].concat());
            format!("Proxy-Authorization: Basic {pair}\r\n")
        });
        let asked = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{login}\r\n");
        self.write(asked.as_bytes())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") && !head.ends_with(b"\n\n") {
            if head.len() >= HEAD_BYTES_MAX {
                return Err(invalid("its answer has no end within 16 KiB"));
            }
            // One at a time: behind the head is what the server says.
            head.extend(self.read::<1>()?);
        }
        let line = String::from_utf8_lossy(&head);
        let line = line.lines().next().unwrap_or_default();
        let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5));
        let status = status.filter(|status| status.bytes().all(|byte| byte.is_ascii_digit()));
        let shown: String = printable(line).chars().take(SHOWN_CHARS_MAX).collect();
        match status {
            Some(status) if status.starts_with('2') => Ok(()),
            Some("407") => Err(denied(&format!("it wants another user or password ({shown})"))),
            Some(_) => Err(refused(&format!("it refuses: {shown}"))),
            None => Err(invalid(&format!("its answer is none of HTTP ({shown:?})"))),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        // It is short, and fits the buffer of a new connection.
        self.socket.set_write_timeout(Some(ANSWER_WAIT_MAX))?;
        self.socket.write_all(bytes)
    }

    fn read<const LEN: usize>(&mut self) -> io::Result<[u8; LEN]> {
        let mut bytes = [0; LEN];
        self.read_exact(&mut bytes).map(|()| bytes)
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.socket.set_read_timeout(Some(STOP_POLL))?;
        let mut len = 0;
        while len < bytes.len() {
            if (self.stop)() {
                return Err(io::Error::new(ErrorKind::Interrupted, "nobody waits any more"));
            }
            if Instant::now() > self.deadline {
                let text = format!("no whole answer in {} s", ANSWER_WAIT_MAX.as_secs());
                return Err(io::Error::new(ErrorKind::TimedOut, text));
            }
            match self.socket.read(&mut bytes[len..]) {
                Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "it hung up")),
                Ok(read) => len += read,
                Err(error) if is_passing(error.kind()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text)
}

fn denied(text: &str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, text)
}

fn refused(text: &str) -> io::Error {
    io::Error::new(ErrorKind::ConnectionRefused, text)
}

/// The replies of RFC 1928, section 6.
fn socks_words(reply: u8) -> String {
    let words = match reply {
        1 => "it has failed by itself",
        2 => "its rules allow no such connection",
        3 => "the network cannot be reached from there",
        4 => "the host cannot be reached from there",
        5 => "the server refuses connections from there",
        6 => "the time to live has expired",
        7 => "it knows no CONNECT",
        8 => "it knows no such kind of address",
        other => return format!("reply {other}"),
    };
    words.to_owned()
}

/// Base64 of RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let of = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = of(0) << 16 | of(1) << 8 | of(2);
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpListener, thread};

    /// Runs one connection by a proxy that says this, and gives what the proxy heard.
    fn by(proxy: &str, server: &str, said: &[&[u8]]) -> (io::Result<String>, Vec<u8>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let said: Vec<Vec<u8>> = said.iter().map(|part| part.to_vec()).collect();
        let far = thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let (mut heard, mut part) = (Vec::new(), [0; 4096]);
            for answer in said {
                let len = socket.read(&mut part).unwrap_or(0);
                heard.extend_from_slice(&part[..len]);
                if socket.write_all(&answer).is_err() {
                    break;
                }
            }
            heard
        });
        let proxy = proxy.replace("PORT", &port.to_string()).parse().unwrap();
        let patience = Duration::from_secs(60);
        let made = connect(&proxy, server, Setup::default(), patience, &|| false);
        let made = made.map(|mut socket| {
            let mut rest = String::new();
            socket.read_to_string(&mut rest).unwrap();
            rest
        });
        (made, far.join().unwrap())
    }

    #[test]
    fn a_socks_proxy_is_asked_for_names_and_addresses() {
        let ok = [5, 0, 0, 1, 9, 9, 9, 9, 0, 1, b'h', b'i'];
        let (made, heard) = by("socks5h://127.0.0.1:PORT", "dtn1:7117", &[&[5, 0], &ok]);
        assert_eq!(made.unwrap(), "hi", "what the server says is not taken from it");
        assert_eq!(heard, b"\x05\x01\0\x05\x01\0\x03\x04dtn1\x1b\xcd");
        let named = [5, 0, 0, 3, 1, b'x', 0, 1];
        let (made, heard) = by("socks5://127.0.0.1:PORT", "10.0.0.5:80", &[&[5, 0], &named]);
        assert_eq!(
            (made.unwrap().as_str(), &heard[3..]),
            ("", &b"\x05\x01\0\x01\n\0\0\x05\0P"[..])
        );
        let six = [&[5, 0, 0, 4][..], &[0; 18]].concat();
        let (made, heard) = by("socks5://127.0.0.1:PORT", "[::1]:80", &[&[5, 0], &six]);
        assert!(made.is_ok() && heard[6] == 4, "{made:?}");
        let login = [&[5, 2][..], &[1, 0], &ok];
        let (made, heard) = by("socks5h://ann:secret@127.0.0.1:PORT", "h:1", &login);
        assert!(made.is_ok(), "{made:?}");
        assert!(heard.starts_with(b"\x05\x02\0\x02\x01\x03ann\x06secret\x05\x01"), "{heard:?}");
    }

    #[test]
    fn an_http_proxy_is_asked_to_connect() {
        let ok = b"HTTP/1.1 200 Connection established\r\nX: y\r\n\r\nhi";
        let (made, heard) = by("http://ann:s:t@127.0.0.1:PORT", "[::1]:7117", &[ok]);
        assert_eq!(made.unwrap(), "hi");
        let heard = String::from_utf8(heard).unwrap();
        assert!(heard.starts_with("CONNECT [::1]:7117 HTTP/1.1\r\nHost: [::1]:7117\r\n"));
        assert!(heard.ends_with("\r\nProxy-Authorization: Basic YW5uOnM6dA==\r\n\r\n"), "{heard}");
        let (made, heard) = by("http://127.0.0.1:PORT", "dtn1:1", &[b"HTTP/1.0 200\n\n"]);
        assert!(made.is_ok() && !String::from_utf8(heard).unwrap().contains("Auth"), "{made:?}");
    }

    #[test]
    fn a_proxy_that_refuses_or_talks_nonsense_is_told_and_its_password_is_not() {
        let long = [b"HTTP/1.1 200 ".to_vec(), vec![b'x'; 20_000]].concat();
        let (socks, http) =
            ("socks5h://ann:secret@127.0.0.1:PORT", "http://a:secret@127.0.0.1:PORT");
        for (proxy, said, says) in [
            (socks, &[&[5, 0xff][..]][..], "takes no password"),
            (socks, &[&[5, 2], &[1, 1]], "refuses the user or the password"),
            (socks, &[&[5, 0], &[5, 2, 0, 1]], "rules allow no such"),
            (socks, &[&[5, 0], &[5, 5, 0, 1]], "server refuses"),
            (socks, &[&[5, 0], &[5, 99, 0, 1]], "reply 99"),
            (socks, &[&[5, 0], &[5, 0, 0, 9]], "none of SOCKS5"),
            (socks, &[&[5, 0], &[5, 0, 0, 3, 200, 1]], "hung up"),
            (socks, &[b"HT"], "none of SOCKS5"),
            (socks, &[&[5]], "hung up"),
            (socks, &[&[5, 1]], "nobody offered"),
            (http, &[b"HTTP/1.1 403 No \x1b[2J\r\n\r\n"], "403 No"),
            (http, &[b"HTTP/1.1 407 Who?\r\n\r\n"], "another user or password"),
            (http, &[b"HTTP/1.1 200 OK\r\n"], "hung up"),
            (http, &[b"SSH-2.0-x\r\n\r\n"], "none of HTTP"),
            (http, &[b"HTTP/1.\r\n\r\n"], "none of HTTP"),
            (http, &["HTTP/1.1 2\u{e4}\r\n\r\n".as_bytes()], "none of HTTP"),
            (http, &[&long], "no end within 16 KiB"),
            (http, &[b""], "hung up"),
        ] {
            let error = by(proxy, "h:1", said).0.unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("...@127.0.0.1"), "{says}: {error}");
            assert!(!error.contains("secret") && !error.contains('\x1b'), "{error}");
        }
        let (made, _) = by("socks5h://127.0.0.1:PORT", "h:1", &[&[5, 0xff]]);
        assert!(made.unwrap_err().to_string().contains("wants a user"));
    }

    #[test]
    fn a_proxy_that_says_nothing_is_left_when_nobody_waits_any_more() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let text = format!("http://{}", listener.local_addr().unwrap());
        let asked = std::cell::Cell::new(0);
        let stop = || {
            asked.set(asked.get() + 1);
            asked.get() > 3
        };
        let patience = Duration::from_secs(60);
        let made = connect(&text.parse().unwrap(), "h:1", Setup::default(), patience, &stop);
        assert_eq!(made.unwrap_err().kind(), ErrorKind::Interrupted);
    }
}
