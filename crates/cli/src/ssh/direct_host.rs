//! The host that ssh(1) connects to by itself, as `ssh -G` tells.
//!
//! Its name leads to the other side, where an address that the other side knows may not, as behind
//! the address translation of a cloud.

use super::{login::Login, program::SshProgram};

/// Name or address of the host; `None` where ssh goes by way of another, or does not say.
#[must_use]
pub fn of(program: &SshProgram, login: &Login) -> Option<String> {
    let told = program.configuration(login)?.output().ok()?;
    host_of(&String::from_utf8_lossy(&told.stdout))
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
