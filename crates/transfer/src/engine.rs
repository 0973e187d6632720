//! Engines by name: ways of moving bytes between a file and a connection.

use haul_datapath::engines::{ENGINES, find};
use std::str::FromStr;

/// An engine, as `sendfile` or `io-uring`, which a user may name instead of what haul chooses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Engine(&'static str);

impl Engine {
    /// Every engine, the plainest first. Not every host can run every one.
    pub fn all() -> impl Iterator<Item = Self> {
        ENGINES.iter().map(|engine| Self(engine.name))
    }

    /// Name of the engine, as options and reports have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Whether the engine reads files and sends them.
    #[must_use]
    pub fn sends(self) -> bool {
        find(self.0).is_some_and(|engine| engine.open_send.is_some())
    }

    /// Whether the engine receives files and writes them.
    #[must_use]
    pub fn receives(self) -> bool {
        find(self.0).is_some_and(|engine| engine.open_receive.is_some())
    }
}

impl FromStr for Engine {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        find_by_name(Self::all(), Self::name, "engine", name)
    }
}

impl std::fmt::Display for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.0)
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({})", self.0)
    }
}

/// A name that no engine, protection or digest has, told with those that there are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is no {kind}; there are {names}")]
pub struct UnknownName {
    kind: &'static str,
    given: String,
    names: String,
}

/// Element of `all` that has this name.
///
/// # Errors
/// If none has.
pub(crate) fn find_by_name<T: Copy>(
    all: impl IntoIterator<Item = T>,
    name_of: impl Fn(T) -> &'static str,
    kind: &'static str,
    given: &str,
) -> Result<T, UnknownName> {
    let mut names = Vec::new();
    for one in all {
        if name_of(one) == given {
            return Ok(one);
        }
        names.push(name_of(one));
    }
    Err(UnknownName { kind, given: given.to_owned(), names: names.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{ClearDigest, Protection};

    #[test]
    fn names_of_engines_protections_and_digests_are_read_as_they_are_shown() {
        for engine in Engine::all() {
            assert_eq!(engine.to_string().parse(), Ok(engine));
            assert!(engine.sends() || engine.receives(), "{engine}");
        }
        for protection in [Protection::Clear, Protection::Safe, Protection::Private] {
            assert_eq!(protection.to_string().parse(), Ok(protection));
        }
        for digest in [ClearDigest::None, ClearDigest::Crc32c, ClearDigest::Xxh3] {
            assert_eq!(digest.to_string().parse(), Ok(digest));
        }
        let error = "privat".parse::<Protection>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"privat\" is no protection; there are clear, safe, private"
        );
    }
}
