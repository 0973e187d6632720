//! Socket addresses of a server that is written as host and port.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

/// Interval at which it is looked whether somebody still waits.
const STOP_POLL: Duration = Duration::from_millis(50);

/// Splits `host:port` or `[address]:port`; a link-local address keeps its interface behind a `%`.
#[must_use]
pub fn host_and_port(server: &str) -> Option<(&str, u16)> {
    let (host, port) = server.rsplit_once(':')?;
    let inside = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    Some((inside.unwrap_or(host), port.parse().ok()?))
}

/// Resolves a server's host. Unlike [`str`]'s own resolution it knows the name of an interface:
/// `[fe80::1%eth0]:7117`.
///
/// # Errors
/// `InvalidInput` without a port, else what the resolver says.
pub fn addresses(server: &str) -> io::Result<Vec<SocketAddr>> {
    let without = || io::Error::new(io::ErrorKind::InvalidInput, "needs a host and a port");
    Ok(host_and_port(server).ok_or_else(without)?.to_socket_addrs()?.collect())
}

/// Resolves a server's host as [`addresses`], until `stop` says that nobody waits any more. The
/// resolver cannot be ended (getaddrinfo(3) asks silent name servers for many seconds), so it works
/// on a thread of its own, which is left behind then.
///
/// # Errors
/// As [`addresses`]; `Interrupted` where it was stopped.
pub fn addresses_unless(server: &str, stop: &dyn Fn() -> bool) -> io::Result<Vec<SocketAddr>> {
    let asked = server.to_owned();
    beside(move || addresses(&asked), stop)
}

/// Does a look-up on a thread of its own, until `stop` says that nobody waits any more.
fn beside(
    look_up: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
    stop: &dyn Fn() -> bool,
) -> io::Result<Vec<SocketAddr>> {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new().name("haul-lookup".into()).spawn(move || {
        let _ = sender.send(look_up());
    })?;
    loop {
        match receiver.recv_timeout(STOP_POLL) {
            Ok(found) => return found,
            Err(RecvTimeoutError::Timeout) if !stop() => {}
            Err(_) => {
                let text = "nobody waits for its address any more";
                return Err(io::Error::new(io::ErrorKind::Interrupted, text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case of name servers that do not answer: a run that was told to end waited for them.
    #[test]
    fn a_look_up_that_hangs_is_left_when_nobody_waits_for_it() {
        let (hold, held) = mpsc::channel::<()>();
        let hangs = move || {
            let _ = held.recv();
            Ok(Vec::new())
        };
        let asked = std::cell::Cell::new(0);
        let stop = || asked.replace(asked.get() + 1) == 2;
        let error = beside(hangs, &stop).unwrap_err();
        assert_eq!((error.kind(), asked.get()), (io::ErrorKind::Interrupted, 3));
        drop(hold);
        let found = addresses_unless("[::1]:7", &|| false).unwrap();
        assert_eq!(found, ["[::1]:7".parse().unwrap()]);
    }

    #[test]
    fn a_host_may_stand_in_brackets_and_has_a_port() {
        assert_eq!(host_and_port("h:1"), Some(("h", 1)));
        assert_eq!(host_and_port("[::1]:65535"), Some(("::1", 65_535)));
        assert_eq!(host_and_port("[fe80::1%eth0]:1"), Some(("fe80::1%eth0", 1)));
        for none in ["h", "h:", "h:65536", "[::1]", ""] {
            assert_eq!(host_and_port(none), None, "{none}");
        }
    }

    /// Case of `[fe80::1%lo]:80`, which the standard library passes on with its brackets.
    #[test]
    fn an_interface_may_be_a_name_or_a_number() {
        for server in ["[fe80::1%lo]:80", "[fe80::1%1]:80"] {
            let found = addresses(server).expect("the first interface is lo");
            let SocketAddr::V6(address) = found[0] else { panic!("{found:?}") };
            assert_eq!((address.scope_id(), address.port()), (1, 80), "{server}");
        }
        assert!(addresses("[fe80::1%none]:80").is_err());
        assert_eq!(addresses("host").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
