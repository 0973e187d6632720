//! A stored host for the tests of the checks: a few files, and what programs answer.

use std::fs;

use crate::tune::{Goal, Machine, Role, Wanted, machine::STORED_ANSWERS};

pub(crate) struct Stored {
    root: tempfile::TempDir,
}

/// Makes a host with these files, by their path below the root.
pub(crate) fn host(files: &[(&str, &str)]) -> Stored {
    let host = Stored { root: tempfile::tempdir().unwrap() };
    files.iter().fold(host, |host, (path, text)| host.file(path, text))
}

impl Stored {
    pub(crate) fn file(self, path: &str, text: &str) -> Self {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// Adds a program's answer, by its command.
    pub(crate) fn answer(self, command: &str, shown: &str) -> Self {
        let name = format!("{STORED_ANSWERS}/{}", command.replace('/', "_"));
        self.file(&name, shown)
    }

    pub(crate) fn machine(&self) -> Machine {
        Machine::below(self.root.path())
    }

    /// The goal of a data transfer node with this card.
    pub(crate) fn goal(&self, card: &str) -> Goal {
        let wanted = Wanted { card: Some(card.to_owned()), ..Wanted::default() };
        Goal::of(&self.machine(), &wanted)
    }

    /// The goal of a data transfer node of this rate, whatever its cards are.
    pub(crate) fn goal_of(&self, gigabits_per_s: u64) -> Goal {
        let rate_bits_per_s = Some(gigabits_per_s * 1_000_000_000);
        Goal::of(&self.machine(), &Wanted { role: Role::Dtn, rate_bits_per_s, ..Wanted::default() })
    }
}
