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
}

impl KnownHost {
    /// Asks ssh, which may take as long as what its configuration runs, and looks the name up.
    #[must_use]
    pub fn of(program: &SshProgram, login: &Login) -> Self {
        let told = program.configuration(login).and_then(|mut command| command.output().ok());
        let name = told.and_then(|told| host_of(&String::from_utf8_lossy(&told.stdout)));
        let found = name.as_ref().and_then(|name| (name.as_str(), 0).to_socket_addrs().ok());
        let found = found.into_iter().flatten().take(ADDRESSES_MAX).collect();
        Self { name, found }
    }

    /// Addresses of the name as another machine may know them, without the interface of this one.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.found.iter().map(|found| found.ip().to_canonical()).collect()
    }
}

/// Reads the lines of `ssh -G`: a keyword in small letters and its value.
fn host_of(lines: &str) -> Option<String> {
    let value = |keyword: &str| {
        let pairs = lines.lines().filter_map(|line| line.split_once(' '));
        pairs.filter(|(name, _)| *name == keyword).map(|(_, value)| value.trim()).next_back()
    };
    let goes_by = |keyword: &str| value(keyword).is_some_and(|value| value != "none");
    let is_direct = !goes_by("proxyjump") && !goes_by("proxycommand");
    value("hostname").filter(|host| is_direct && !host.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_behind_another_is_not_connected_to() {
        let direct = "user ann\nhostname dtn1.example.org\nport 22\n";
        assert_eq!(host_of(direct).as_deref(), Some("dtn1.example.org"));
        for proxy in ["proxyjump gate\n", "proxycommand nc %h %p\n"] {
            assert_eq!(host_of(&format!("{proxy}{direct}")), None, "{proxy}");
        }
        assert!(host_of(&format!("{direct}proxycommand none\n")).is_some());
        assert_eq!(host_of("usage: ssh\n"), None);
    }
}
