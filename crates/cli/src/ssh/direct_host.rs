//! The host that ssh(1) connects to by itself, as `ssh -G` tells.
//!
//! Its name leads to the other side, where an address that the other side knows may not, as behind
//! the address translation of a cloud.

use super::{login::Login, program::SshProgram};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// Most addresses of a name that are kept.
const ADDRESSES_MAX: usize = 32;

/// Place of a machine as ssh's configuration here has it.
#[derive(Clone, Debug, Default)]
pub struct KnownHost {
    /// Name or address that ssh(1) connects to by itself; `None` where it goes by way of another
    /// host, or does not say.
    pub name: Option<String>,
    /// Addresses that the name has here, without a port.
    pub found: Vec<SocketAddr>,
    /// Whether ssh goes by way of another host or by a program: the other side sees the address of
    /// a machine that may not be this one.
    pub is_behind_another: bool,
}

impl KnownHost {
    /// Asks ssh, which may take as long as what its configuration runs, and looks the name up.
    #[must_use]
    pub fn of(program: &SshProgram, login: &Login) -> Self {
        let told = program.configuration(login).and_then(|mut command| command.output().ok());
        let lines = told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned());
        let lines = lines.unwrap_or_default();
        let (name, is_behind_another) = (host_of(&lines), goes_by_another(&lines));
        let found = name.as_ref().and_then(|name| (name.as_str(), 0).to_socket_addrs().ok());
        let found = found.into_iter().flatten().take(ADDRESSES_MAX).collect();
        Self { name, found, is_behind_another }
    }

    /// Addresses of the name as another machine may know them, without the interface of this one.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.found.iter().map(|found| found.ip().to_canonical()).collect()
    }
}

/// The host that ssh connects to by itself, by the lines of `ssh -G`.
fn host_of(lines: &str) -> Option<String> {
    let host = value(lines, "hostname").filter(|host| !host.is_empty());
    host.filter(|_| !goes_by_another(lines)).map(str::to_owned)
}

/// Whether ssh connects by way of something else, such as a jump host. A command may be one too
/// (`ssh -W %h:%p gate`), and nobody here knows where others lead.
fn goes_by_another(lines: &str) -> bool {
    let is_set = |keyword| value(lines, keyword).is_some_and(|value| value != "none");
    is_set("proxyjump") || is_set("proxycommand")
}

/// The value in the lines of `ssh -G`, each of which is a keyword in small letters and its value.
fn value<'a>(lines: &'a str, keyword: &str) -> Option<&'a str> {
    let pairs = lines.lines().filter_map(|line| line.split_once(' '));
    pairs.filter(|(name, _)| *name == keyword).map(|(_, value)| value.trim()).next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_behind_another_is_not_connected_to() {
        let direct = "user ann\nhostname dtn1.example.org\nport 22\n";
        assert_eq!(host_of(direct).as_deref(), Some("dtn1.example.org"));
        for proxy in ["proxyjump gate", "proxycommand nc %h %p", "proxycommand ssh -W %h:%p gate"] {
            let lines = format!("{proxy}\n{direct}");
            assert_eq!((host_of(&lines), goes_by_another(&lines)), (None, true), "{proxy}");
        }
        for lines in [direct.to_owned(), format!("{direct}proxycommand none\nproxyjump none\n")] {
            assert!(host_of(&lines).is_some() && !goes_by_another(&lines), "{lines}");
        }
        assert_eq!(host_of("usage: ssh\n"), None);
    }
}
