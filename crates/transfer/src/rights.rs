//! Rights that a token allows, and those that each request needs. One function decides for all of
//! them.
//!
//! A right is needed for what a peer learns as well as for what it does. `--delete` tells names and
//! comparing tells the BLAKE3 of a file, so neither is for a token that may only write.

use haul_protocol::message::{self, Direction, Fault, FaultCode, OnConflict, Side};
use serde::{Deserialize, Serialize};

/// Rights that a token gives, or a server by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredRights")]
pub struct Rights {
    /// Right to the bytes of files, which includes [`Self::list`].
    pub read: bool,
    /// Right to bring files, and to replace others by them.
    pub write: bool,
    /// Right to be told names, sizes, times and owners.
    pub list: bool,
    /// Right to remove what is there.
    pub delete: bool,
}

/// Rights as they stand in a state directory; an older version wrote two of them.
#[derive(Deserialize)]
struct StoredRights {
    read: bool,
    write: bool,
    list: Option<bool>,
    delete: Option<bool>,
}

impl From<StoredRights> for Rights {
    fn from(stored: StoredRights) -> Self {
        let StoredRights { read, write, list, delete } = stored;
        Self {
            read,
            write,
            list: read || list.unwrap_or(false),
            delete: delete.unwrap_or(read && write),
        }
    }
}

impl Rights {
    /// Every right.
    pub const ALL: Self = Self { read: true, write: true, list: true, delete: true };
    /// No right.
    pub const NONE: Self = Self { read: false, write: false, list: false, delete: false };
    /// Rights to fetch what is there, and nothing else.
    pub const READ_ONLY: Self = Self { read: true, list: true, ..Self::NONE };

    /// Whether these rights have `right` among them.
    #[must_use]
    pub(crate) fn allows(self, right: Right) -> bool {
        match right {
            Right::Read => self.read,
            Right::Write => self.write,
            Right::List => self.list || self.read,
            Right::Delete => self.delete,
        }
    }

    /// Names of the rights, without those that another one includes.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let list = Some(Right::List).filter(|_| self.list && !self.read);
        let others = [Right::Read, Right::Write, Right::Delete];
        let others = others.into_iter().filter(move |right| self.allows(*right));
        list.into_iter().chain(others).map(Right::name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    Read,
    Write,
    List,
    Delete,
}

impl Right {
    /// Name of the right in `haul token new`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::List => "list",
            Self::Delete => "delete",
        }
    }
}

/// A right that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    pub right: Right,
    /// Part of the request that needs the right, as its user would say; empty for the request
    /// itself.
    because: &'static str,
    /// Request that can be made instead.
    instead: &'static str,
}

impl Need {
    #[must_use]
    pub const fn new(right: Right) -> Self {
        Self { right, because: "", instead: "" }
    }

    const fn because(right: Right, because: &'static str, instead: &'static str) -> Self {
        Self { right, because, instead }
    }

    /// Fault by which a token that lacks the right is refused.
    #[must_use]
    pub fn fault(self) -> Fault {
        let right = self.right.name();
        let what = format!("the token has no right to {right} here");
        let new = format!("`haul token new --{right}` on the server makes one that has");
        let hint = if self.instead.is_empty() { new } else { format!("{}; {new}", self.instead) };
        let needs = match self.because {
            "" => String::new(),
            because => format!("it, as {because}"),
        };
        Fault::new(FaultCode::RightMissing, Side::Unknown, what).needs(needs).hint(hint)
    }
}

/// Bits of `preserve` for values that somebody wrote, which no listing shows.
const PRESERVED_VALUES: u32 = 16 | 32;

/// Rights that a session which moves files needs, all of them.
#[must_use]
pub fn needed(open: &message::Open) -> Vec<Need> {
    let file_options = open.file_options.unwrap_or_default();
    let mut needs = Vec::new();
    match open.direction {
        Direction::Push => {
            needs.push(Need::new(Right::Write));
            if file_options.remove_extra {
                let instead = "leave out --delete";
                let names = "--delete tells the names that are there";
                needs.push(Need::because(Right::List, names, instead));
                let removes = "--delete removes what is there";
                needs.push(Need::because(Right::Delete, removes, instead));
            }
            // What is replaced whatever it holds is never read.
            if file_options.compare_content && file_options.on_conflict != OnConflict::Replace {
                let tells = "comparing tells the BLAKE3 of what is there";
                let instead = "leave out --checksum-compare; with --move, --on-conflict replace \
                               compares nothing";
                needs.push(Need::because(Right::Read, tells, instead));
            }
        }
        Direction::Pull => {
            needs.push(Need::new(if lists_only(open) { Right::List } else { Right::Read }));
            if file_options.move_sources {
                let removes = "--move removes what was fetched";
                needs.push(Need::because(Right::Delete, removes, "leave out --move"));
            }
        }
        // Each round of a probe asks for its own.
        Direction::Probe | Direction::Unknown => needs.push(Need::new(Right::Read)),
    }
    needs
}

/// Whether a pull asks for no more than what a listing shows.
#[must_use]
pub fn lists_only(open: &message::Open) -> bool {
    let file_options = open.file_options.unwrap_or_default();
    open.direction == Direction::Pull
        && file_options.dry_run
        && !file_options.compare_content
        && !file_options.follow
        && !file_options.watch
        && file_options.preserve & PRESERVED_VALUES == 0
}

/// Whether what is needed changes what a server has.
#[must_use]
pub fn changes_files(needs: &[Need]) -> bool {
    needs.iter().any(|need| matches!(need.right, Right::Write | Right::Delete))
}

#[cfg(test)]
mod tests {
    use super::*;
    use message::FileOptions;

    fn rights_of(direction: Direction, file_options: FileOptions) -> Vec<Right> {
        let open = message::Open {
            direction,
            file_options: Some(file_options),
            ..message::Open::default()
        };
        needed(&open).into_iter().map(|need| need.right).collect()
    }

    fn plain() -> FileOptions {
        FileOptions { preserve: 3, ..FileOptions::default() }
    }

    #[test]
    fn each_request_needs_the_rights_to_do_it_and_to_learn_what_it_tells() {
        use Right::{Delete, List, Read, Write};
        let dry = FileOptions { dry_run: true, ..plain() };
        let delete = FileOptions { remove_extra: true, ..plain() };
        let compare = FileOptions { compare_content: true, ..plain() };
        let moves = FileOptions { move_sources: true, ..plain() };
        let replace = OnConflict::Replace;
        let dry_and = |file_options: &FileOptions| FileOptions { dry_run: true, ..*file_options };
        let cases = [
            (plain(), vec![Write], vec![Read]),
            (dry, vec![Write], vec![List]),
            (FileOptions { preflight: true, ..dry }, vec![Write], vec![List]),
            // A client's own directory is mirrored by a pull.
            (delete, vec![Write, List, Delete], vec![Read]),
            (dry_and(&delete), vec![Write, List, Delete], vec![List]),
            (compare, vec![Write, Read], vec![Read]),
            (dry_and(&compare), vec![Write, Read], vec![Read]),
            (FileOptions { on_conflict: replace, ..compare }, vec![Write], vec![Read]),
            (moves, vec![Write], vec![Read, Delete]),
            (dry_and(&moves), vec![Write], vec![List, Delete]),
            (FileOptions { move_sources: true, ..compare }, vec![Write, Read], vec![Read, Delete]),
            (FileOptions { preserve: 63, ..dry }, vec![Write], vec![Read]),
            (FileOptions { preserve: 15, ..dry }, vec![Write], vec![List]),
            (FileOptions { follow: true, ..plain() }, vec![Write], vec![Read]),
            (FileOptions { follow: true, ..dry }, vec![Write], vec![Read]),
            (FileOptions { watch: true, ..dry }, vec![Write], vec![Read]),
            (FileOptions { discard: true, ..plain() }, vec![Write], vec![Read]),
        ];
        for (file_options, push, pull) in cases {
            assert_eq!(rights_of(Direction::Push, file_options), push, "{file_options:?}");
            assert_eq!(rights_of(Direction::Pull, file_options), pull, "{file_options:?}");
        }
        let no_options = message::Open { direction: Direction::Push, ..message::Open::default() };
        assert_eq!(needed(&no_options), [Need::new(Write)]);
        assert!(!needed(&message::Open::default()).is_empty(), "no request needs nothing");
    }

    /// Rule for tokens of an older version, which said `read` and `write` only: whoever has a right
    /// keeps it.
    #[test]
    fn rights_of_an_older_version_are_what_they_were_where_that_is_safe() {
        let of = |read: bool, write: bool| {
            let stored = serde_json::json!({ "read": read, "write": write });
            serde_json::from_value::<Rights>(stored).unwrap()
        };
        assert_eq!(of(true, true), Rights::ALL);
        assert_eq!(of(true, false), Rights::READ_ONLY);
        assert_eq!(of(false, true), Rights { write: true, ..Rights::NONE });
        for rights in [Rights::ALL, Rights::NONE, Rights { list: true, ..Rights::NONE }] {
            let stored = serde_json::to_value(rights).unwrap();
            assert_eq!(serde_json::from_value::<Rights>(stored).unwrap(), rights);
        }
    }
}
