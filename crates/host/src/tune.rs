//! Tuning: the findings of the checks on a host, for a goal.
//!
//! [`audit`](crate::checks::audit) only reads. What is changed, and set back, is in [`ledger`] and
//! [`change`].

pub mod change;
mod ethtool;
pub mod finding;
pub mod goal;
pub mod ledger;
pub mod machine;
pub mod persist;
mod qdisc;
pub mod setting;

pub use finding::{Caution, Change, Finding, Needs, State, Weight};
pub use goal::{Goal, Role, Wanted};
pub use machine::{Machine, Platform};
pub use setting::Setting;

pub(crate) use ethtool::{Feature, Ring, coalescing, driver, features, link, pause, queues, rings};
pub(crate) use qdisc::{is_there as has_qdisc, root as root_qdisc};

/// The share of good findings among all that could be read, by weight: 0 to 100. 100 if nothing
/// could.
#[must_use]
pub fn score(findings: &[Finding]) -> u32 {
    let weight = |finding: &Finding| match finding.weight {
        Weight::Low => 1,
        Weight::Medium => 3,
        Weight::High => 9,
    };
    let sum = |state: State| -> u32 {
        findings.iter().filter(|finding| finding.state == state).map(weight).sum()
    };
    let (good, improve) = (sum(State::Good), sum(State::Improve));
    (good * 100).checked_div(good + improve).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_is_the_share_of_what_is_good_by_weight() {
        let good = Finding::good(Weight::High, "a", "1");
        let low = Finding::improve(Weight::Low, "b", "1", "2");
        let unread = machine::Unread { what: "c".to_owned(), why: machine::Why::Missing };
        let unknown = Finding::unknown("c", &unread);
        assert_eq!(score(&[good.clone(), low.clone(), unknown.clone()]), 90);
        assert_eq!(score(&[unknown]), 100);
        assert_eq!(score(&[low]), 0);
        assert_eq!(score(&[good]), 100);
    }
}
