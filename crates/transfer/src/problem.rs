//! Errors in words: what was tried, what it needs, what was found, what to do.

use crate::name::{Name, exact_path, printable, read_exact_path};
use haul_protocol::message;
use serde::{Deserialize, Serialize};

/// The side of a transfer that something happened on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The side that sends.
    Source,
    /// The side that receives.
    Target,
    /// The network between both.
    Path,
    /// No side in particular.
    #[default]
    Session,
}

/// An error in words: what was tried, what it needs, what was found, what to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Problem {
    /// Name of the file that the problem is about; empty for none.
    #[serde(flatten, serialize_with = "exact_path", deserialize_with = "read_exact_path")]
    pub path: Name,
    /// Side that the problem happened on.
    pub side: Side,
    /// The attempt that failed.
    pub what: String,
    /// Requirement; empty where there is nothing to tell.
    pub needs: String,
    /// Finding instead of it; empty where there is nothing to tell.
    pub found: String,
    /// Cure; empty where there is nothing to tell.
    pub hint: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.side {
            Side::Source => f.write_str("source: ")?,
            Side::Target => f.write_str("target: ")?,
            Side::Path => f.write_str("network: ")?,
            Side::Session => {}
        }
        if !self.path.0.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        // Names of this host may be in any of them.
        let (needs, found) = (printable(&self.needs), printable(&self.found));
        f.write_str(&printable(&self.what))?;
        match (needs.is_empty(), found.is_empty()) {
            (false, false) => write!(f, ": needs {needs}, found {found}")?,
            (false, true) => write!(f, ": needs {needs}")?,
            (true, false) => write!(f, ": {found}")?,
            (true, true) => {}
        }
        let ended =
            [&self.found, &self.needs, &self.what].into_iter().find(|part| !part.is_empty());
        if !ended.is_some_and(|part| part.ends_with('.')) {
            f.write_str(".")?;
        }
        if !self.hint.is_empty() {
            let end = if self.hint.ends_with(['.', '?', '!']) { "" } else { "." };
            write!(f, " {}{end}", sentence(&printable(&self.hint)))?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

/// Text with a capital at its begin, unless it begins with something to type.
fn sentence(text: &str) -> String {
    let word = text.split(' ').next().unwrap_or_default();
    let is_plain = word != "haul" && word.bytes().all(|byte| byte.is_ascii_alphabetic());
    match text.chars().next().filter(|_| is_plain) {
        Some(first) => first.to_ascii_uppercase().to_string() + &text[1..],
        None => text.to_owned(),
    }
}

impl Problem {
    /// A problem of no file and no side in particular, such as a mistake on the command line.
    #[must_use]
    pub fn in_general(what: &str, needs: &str, found: &str, hint: &str) -> Self {
        Self {
            path: Name::default(),
            side: Side::Session,
            what: what.to_owned(),
            needs: needs.to_owned(),
            found: found.to_owned(),
            hint: hint.to_owned(),
        }
    }

    /// Cause of the problem, without the file and its numbers: equal for the files that one cause
    /// hits, as a full disk does.
    #[must_use]
    pub fn cause(&self) -> String {
        let mut cause = format!("{:?}", self.side);
        for part in [&self.what, &self.needs, &self.found] {
            cause.push('\n');
            let mut in_number = false;
            for character in part.chars() {
                let is_digit = character.is_ascii_digit();
                if !is_digit || !in_number {
                    cause.push(if is_digit { '0' } else { character });
                }
                in_number = is_digit;
            }
        }
        cause
    }

    /// Problem of a file by the name that all its events have: a fault may give that of the other
    /// side, or none. What the other side calls by another name is said so.
    #[must_use]
    pub(crate) fn of_file(fault: &message::Fault, name: &[u8]) -> Self {
        let mut this = Self { path: Name(name.to_vec()), ..Self::of(fault) };
        // A directory before it is no other name, and would tell equal problems apart.
        if !fault.path.ends_with(name) && !fault.path.is_empty() {
            this.what = format!("{} (called {} there)", this.what, Name(fault.path.clone()));
        }
        this
    }

    /// The problem that a side of the protocol tells, in its words.
    #[must_use]
    pub(crate) fn of(fault: &message::Fault) -> Self {
        let side = match fault.side {
            message::Side::Source => Side::Source,
            message::Side::Target => Side::Target,
            message::Side::Path => Side::Path,
            message::Side::Unknown => Side::Session,
        };
        Self {
            path: Name(fault.path.clone()),
            side,
            what: printable(&fault.what),
            needs: printable(&fault.needs),
            found: printable(&fault.found),
            hint: printable(&fault.hint),
        }
    }
}
