//! Changes stored hosts as `haul tune` would, and looks at them again.

use haul_host::{
    checks::audit,
    tune::{Change, Finding, Setting, State},
};

use super::{HOSTS, pretended_kernel, snapshot, unpacking::UnpackedHost};

/// Rounds of changes: one may bring another check's, as large frames ask for the search for smaller
/// ones.
const ROUNDS_MAX: usize = 3;

fn with_changes(host: &UnpackedHost) -> Vec<Finding> {
    let mut findings = audit(&host.machine, &host.goal);
    findings.retain(|finding| finding.state == State::Improve && !finding.changes.is_empty());
    findings
}

fn is_same(one: &Finding, other: &Finding) -> bool {
    (one.check, &one.subject) == (other.check, &other.subject)
}

/// Makes all changes. Returns each with the value that was there before.
fn apply(host: &UnpackedHost, name: &str, findings: &[Finding]) -> Vec<(Setting, String)> {
    let mut before = Vec::new();
    for change in findings.iter().flat_map(|finding| &finding.changes) {
        let found = change.setting.read(&host.machine);
        let found = found.unwrap_or_else(|unread| panic!("{name}: {}", unread.words()));
        pretended_kernel::set(&host.machine, change).unwrap_or_else(|words| {
            panic!("{name}: {} = {}: {words}", change.setting, change.value)
        });
        before.push((change.setting.clone(), found));
    }
    before
}

/// The findings without those of interrupts: to which of the allowed processors one goes back is
/// the kernel's choice.
fn all_but_interrupts(host: &UnpackedHost) -> String {
    let mut findings = audit(&host.machine, &host.goal);
    findings.retain(|finding| finding.check != "interrupts");
    snapshot::of(host, &findings)
}

#[test]
fn every_change_names_a_setting_that_its_own_words_name() {
    for host in HOSTS.iter() {
        let host = UnpackedHost::of(host);
        for change in with_changes(&host).iter().flat_map(|finding| &finding.changes) {
            let words = change.setting.to_string();
            assert_eq!(words.parse().as_ref(), Ok(&change.setting));
            assert!(!change.value.is_empty(), "{words}");
        }
    }
}

#[test]
fn what_is_applied_is_not_found_again() {
    for stored in HOSTS.iter() {
        let host = UnpackedHost::of(stored);
        let mut rounds = 0;
        loop {
            let findings = with_changes(&host);
            if findings.is_empty() {
                break;
            }
            rounds += 1;
            assert!(rounds <= ROUNDS_MAX, "{}: still {findings:#?}", stored.name);
            apply(&host, &stored.name, &findings);
            let after = audit(&host.machine, &host.goal);
            let is_left = |finding: &&Finding| {
                finding.state == State::Improve && findings.iter().any(|old| is_same(finding, old))
            };
            let left: Vec<_> = after.iter().filter(is_left).collect();
            assert!(left.is_empty(), "{}: still there: {left:#?}", stored.name);
        }
    }
}

#[test]
fn what_is_applied_is_undone_by_the_old_values_in_reverse() {
    for stored in HOSTS.iter() {
        let host = UnpackedHost::of(stored);
        let at_first = all_but_interrupts(&host);
        let before = apply(&host, &stored.name, &with_changes(&host));
        for (setting, value) in before.iter().rev() {
            let change = Change { setting: setting.clone(), value: value.clone() };
            pretended_kernel::set(&host.machine, &change)
                .unwrap_or_else(|words| panic!("{}: {setting} = {value}: {words}", stored.name));
        }
        for (setting, value) in &before {
            // The first value, where a setting was changed twice.
            let first = before.iter().find(|(other, _)| other == setting).map(|(_, value)| value);
            if first != Some(value) {
                continue;
            }
            let found = setting.read(&host.machine);
            assert_eq!(found.as_ref(), Ok(value), "{}: {setting}", stored.name);
        }
        let difference = snapshot::difference(&at_first, &all_but_interrupts(&host));
        assert!(difference.is_empty(), "{}:\n{difference}", stored.name);
    }
}
