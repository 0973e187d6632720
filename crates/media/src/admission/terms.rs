//! Terms by which streams are admitted: capacity, margin, reserve and priorities.

use super::capacity::Capacity;
use crate::pace::Pacing;

/// Share of the capacity that is left free by default.
pub const MARGIN: f64 = 0.1;

/// The order in which viewers are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    Low,
    #[default]
    Normal,
    High,
}

impl Priority {
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Low, Self::Normal, Self::High].into_iter().find(|one| one.name() == name)
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }

    /// Number of reserves that are kept from a stream of this priority.
    pub(super) fn reserves(self) -> f64 {
        match self {
            Self::Low => 2.0,
            Self::Normal => 1.0,
            Self::High => 0.0,
        }
    }
}

/// Terms by which streams are admitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    pub capacity: Capacity,
    pub pacing: Pacing,
    /// Share of each resource that is left free: 0.1 is a tenth.
    pub margin: f64,
    /// Share of each resource that is kept for streams of higher priority, a time for each step.
    pub reserve: f64,
    pub streams_max: Option<u64>,
}

impl Default for Terms {
    /// Terms that admit everybody.
    fn default() -> Self {
        Self {
            capacity: Capacity::default(),
            pacing: Pacing::default(),
            margin: MARGIN,
            reserve: 0.0,
            streams_max: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_is_found_by_the_name_that_it_is_told_by() {
        for (name, priority) in
            [("low", Priority::Low), ("normal", Priority::Normal), ("high", Priority::High)]
        {
            assert_eq!((Priority::named(name), priority.name()), (Some(priority), name));
        }
        assert_eq!(Priority::named("highest"), None);
    }
}
