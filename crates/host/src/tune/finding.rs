//! A finding of a check: a value, what it should be, and the change that makes it so.

use serde::Serialize;

use super::{machine::Unread, setting::Setting};

/// The weight of a finding: how much a transfer loses while the value is not as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    /// A disputed value, or one worth a few per cent.
    Low,
    Medium,
    /// A value that holds a transfer to a part of what the host could do.
    High,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Good,
    /// A change would improve the value.
    Improve,
    /// The value could not be read, or made no sense.
    Unknown,
    /// The host has no such thing as the check looks at.
    Absent,
}

/// The right that a change needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Needs {
    Nothing,
    Root,
    /// Rights of root, and a reboot.
    Reboot,
    /// The administrator of the container's host.
    ContainerHost,
    /// The administrator of the hypervisor.
    Hypervisor,
    /// A person at the machine: a card, a slot, firmware.
    Hands,
    /// The administrator of the network.
    Network,
}

impl Needs {
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Root => "root",
            Self::Reboot => "root and a reboot",
            Self::ContainerHost => "the administrator of the container's host",
            Self::Hypervisor => "the administrator of the hypervisor",
            Self::Hands => "somebody at the machine",
            Self::Network => "the network's administrator",
        }
    }
}

/// Whether `--apply` without names makes a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Caution {
    None,
    /// The change can cut connections, or needs the rest of the network to change too.
    OnlyByName,
}

/// A setting with the value that it should get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    pub setting: Setting,
    pub value: String,
}

/// A statement of one check about one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check's name; the audit fills it in.
    pub check: &'static str,
    /// The subject: a setting, a card, a disk.
    pub subject: String,
    pub state: State,
    pub weight: Weight,
    pub found: String,
    /// The value that suits the goal; empty where nothing can be said.
    pub wanted: String,
    /// An additional sentence, where the check's own words are not enough.
    pub note: String,
    /// The shell command that makes the change; empty where none does.
    pub command: String,
    pub needs: Needs,
    pub caution: Caution,
    pub changes: Vec<Change>,
}

impl Finding {
    fn new(state: State, weight: Weight, subject: &str, found: &str, wanted: &str) -> Self {
        Self {
            check: "",
            subject: subject.to_owned(),
            state,
            weight,
            found: found.to_owned(),
            wanted: wanted.to_owned(),
            note: String::new(),
            command: String::new(),
            needs: Needs::Nothing,
            caution: Caution::None,
            changes: Vec::new(),
        }
    }

    #[must_use]
    pub fn good(weight: Weight, subject: &str, found: &str) -> Self {
        Self::new(State::Good, weight, subject, found, "")
    }

    /// Makes a finding with a value that should change; it needs root until something else is said.
    #[must_use]
    pub fn improve(weight: Weight, subject: &str, found: &str, wanted: &str) -> Self {
        Self { needs: Needs::Root, ..Self::new(State::Improve, weight, subject, found, wanted) }
    }

    #[must_use]
    pub fn unknown(subject: &str, unread: &Unread) -> Self {
        Self::new(State::Unknown, Weight::Low, subject, &unread.words(), "")
    }

    /// Makes a finding about something that this host does not have; `why` says so in words.
    #[must_use]
    pub fn absent(subject: &str, why: &str) -> Self {
        Self::new(State::Absent, Weight::Low, subject, why, "")
    }

    #[must_use]
    pub fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// Adds the change that makes the value as wanted; several may be added.
    #[must_use]
    pub fn change(mut self, setting: Setting, value: impl Into<String>) -> Self {
        let change = Change { setting, value: value.into() };
        if !self.command.is_empty() {
            self.command.push_str(" && ");
        }
        self.command.push_str(&change.setting.shell(&change.value));
        self.changes.push(change);
        self
    }

    /// Sets a command in place of what the changes would be, or where haul makes none.
    #[must_use]
    pub fn command(self, command: impl Into<String>) -> Self {
        Self { command: command.into(), ..self }
    }

    #[must_use]
    pub fn needs(self, needs: Needs) -> Self {
        Self { needs, ..self }
    }

    #[must_use]
    pub fn only_by_name(self) -> Self {
        Self { caution: Caution::OnlyByName, ..self }
    }
}
