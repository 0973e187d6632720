//! Words that mean another machine, as scp(1) and rsync(1) read them: `[user@]host:path`.
//!
//! A `/` before the first `:` makes a word a path of this machine, so `./a:b` is a file here. What
//! a word is depends on the word alone, never on which files there are.

use super::problem;
use haul_transfer::Problem;
use std::{ffi::OsStr, fmt, os::unix::ffi::OsStrExt};

/// A host, and the user to be there, as ssh(1) is given them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    user: Option<String>,
    host: String,
}

/// A path of another machine that is reached by ssh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshPlace {
    pub login: Login,
    /// The path there, as bytes. Without a `/` in front it is below the user's home directory.
    pub path: Vec<u8>,
}

impl Login {
    /// The word that ssh(1) takes.
    #[must_use]
    pub fn word(&self) -> String {
        match &self.user {
            Some(user) => format!("{user}@{}", self.host),
            None => self.host.clone(),
        }
    }

    /// Name or address of the host, as the user calls it.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (user, host) = match text.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, text),
        };
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']').filter(|inner| inner.contains(':'))?,
            None => host,
        };
        // A word with a - in front would be an option of ssh(1).
        let is_name = |name: &str| {
            let is_part =
                |c: char| !c.is_whitespace() && !c.is_control() && !"[]'\"`$\\".contains(c);
            !name.is_empty() && !name.starts_with('-') && name.chars().all(is_part)
        };
        let is_login = is_name(host) && user.is_none_or(is_name);
        is_login.then(|| Self { user: user.map(Into::into), host: host.to_owned() })
    }
}

/// Shows a login as it stands in front of a path.
impl fmt::Display for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        if self.host.contains(':') { write!(f, "[{}]", self.host) } else { f.write_str(&self.host) }
    }
}

impl fmt::Display for SshPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.login, String::from_utf8_lossy(&self.path))
    }
}

/// Whether a word means another machine that is reached by ssh.
#[must_use]
pub fn is_remote(word: &OsStr) -> bool {
    split(word.as_bytes()).is_some()
}

/// Reads a word; `None` where it means this machine, or is a URL of haul.
///
/// # Errors
/// If it means another machine and has no such name in front.
pub fn parse(word: &OsStr) -> Option<Result<SshPlace, Problem>> {
    let (front, path) = split(word.as_bytes())?;
    let refused = |needs: &str, found: &str| {
        let hint = "a path of this machine that has a colon is written ./NAME or /NAME";
        problem(&format!("cannot take {}", word.display()), needs, found, hint)
    };
    Some(match Login::parse(front) {
        None => {
            let found = format!("{:?}", String::from_utf8_lossy(front));
            Err(refused("a host or user@host before the first colon", &found))
        }
        Some(_) if path.starts_with(b":") => {
            Err(refused("a path behind the colon", "another colon, as of an rsync daemon"))
        }
        Some(login) => Ok(SshPlace { login, path: path.to_vec() }),
    })
}

/// Parts of a word before and behind the colon that makes it a path of another machine.
fn split(word: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_ours = word.starts_with(b"haul://") || word.starts_with(b"zero:") || word == b"null:";
    if is_ours {
        return None;
    }
    let before_slash = word.split(|byte| *byte == b'/').next().unwrap_or_default();
    let is_bracket = |at: &usize| *at == 0 || before_slash[*at - 1] == b'@';
    let colon = match before_slash.iter().position(|byte| *byte == b'[').filter(is_bracket) {
        Some(_) => before_slash.windows(2).position(|pair| pair == b"]:")? + 1,
        None => before_slash.iter().position(|byte| *byte == b':')?,
    };
    (colon > 0).then(|| (&word[..colon], &word[colon + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(word: &str) -> Option<(String, String, Vec<u8>)> {
        let place = parse(OsStr::new(word))?.unwrap();
        Some((place.login.word(), place.to_string(), place.path))
    }

    #[test]
    fn a_word_is_remote_as_scp_and_rsync_have_it() {
        for (word, login, path) in [
            ("dtn1:/data/x", "dtn1", "/data/x"),
            ("ann@dtn1:x y", "ann@dtn1", "x y"),
            ("dtn1:", "dtn1", ""),
            ("a:b:c", "a", "b:c"),
            ("ann@corp@dtn1:x", "ann@corp@dtn1", "x"),
            ("[::1]:/x", "::1", "/x"),
            ("ann@[fe80::1%eth0]:x", "ann@fe80::1%eth0", "x"),
            ("12:00.dat", "12", "00.dat"),
            ("zero@h:null:", "zero@h", "null:"),
        ] {
            let (read_login, shown, read_path) = read(word).unwrap();
            assert_eq!((&read_login[..], &read_path[..]), (login, path.as_bytes()), "{word}");
            assert_eq!(shown, word);
            assert!(is_remote(OsStr::new(word)));
        }
    }

    #[test]
    fn a_slash_before_the_colon_makes_a_word_local_and_urls_stay_urls() {
        for word in [
            "./a:b",
            "/a:b",
            "dir/a:b",
            "a",
            "",
            ":x",
            "[a]",
            "[::1]",
            "../a@b:c",
            "haul://h:7117/x",
            "zero:4K",
            "null:",
        ] {
            assert_eq!(read(word), None, "{word}");
        }
        let bytes = parse(OsStr::from_bytes(b"h:na\xffme")).unwrap().unwrap();
        assert_eq!(bytes.path, b"na\xffme");
    }

    #[test]
    fn a_front_that_is_no_host_is_refused_and_never_an_option_of_ssh() {
        for word in [
            "-oProxyCommand=x:y",
            "a@-b:x",
            "-a@b:x",
            "Scan 12:30.dat",
            "@h:x",
            "a@:x",
            "[ab]:x",
            "$(x):y",
            "h::module",
            "x[1:2",
        ] {
            let refused = parse(OsStr::new(word)).unwrap().unwrap_err().to_string();
            assert!(refused.contains("./NAME"), "{word}: {refused}");
        }
        assert!(parse(OsStr::from_bytes(b"\xff:x")).unwrap().is_err());
    }
}
