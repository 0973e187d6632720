//! Findings of `haul tune` on kinds of machines that this one is not.
//!
//! `HAUL_FINDINGS=write cargo test -p haul-host --test stored_hosts` writes the findings anew.

mod applying;
mod expansion;
mod garbage;
mod notation;
mod pretended_kernel;
mod snapshot;
mod unpacking;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use haul_host::{
    checks::audit,
    tune::{Finding, Needs, State, Weight, score},
};
use notation::StoredHost;
use unpacking::UnpackedHost;

/// All stored hosts, by name.
static HOSTS: LazyLock<Vec<StoredHost>> = LazyLock::new(|| {
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        notation::read(&path.to_string_lossy(), &text).unwrap_or_else(|fault| panic!("{fault}"))
    };
    files("host").iter().map(read).collect()
});

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stored_hosts")
}

fn files(extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory()).expect("the directory of the stored hosts");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files.sort_unstable();
    files
}

fn unpacked(name: &str) -> UnpackedHost {
    let host = HOSTS.iter().find(|host| host.name == name);
    UnpackedHost::of(host.unwrap_or_else(|| panic!("no stored host {name}")))
}

fn findings(name: &str) -> Vec<Finding> {
    let host = unpacked(name);
    audit(&host.machine, &host.goal)
}

#[test]
fn every_stored_host_is_found_to_be_what_its_findings_say() {
    let writes = std::env::var_os("HAUL_FINDINGS").is_some_and(|value| value == "write");
    let mut differences = String::new();
    for host in HOSTS.iter() {
        let unpacked = UnpackedHost::of(host);
        let found = snapshot::of(&unpacked, &audit(&unpacked.machine, &unpacked.goal));
        let path = directory().join(format!("{}.findings", host.name));
        if writes {
            fs::write(&path, &found).expect("a writable directory");
            println!("written: {}", path.display());
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        if expected != found {
            let difference = snapshot::difference(&expected, &found);
            differences.push_str(&format!("--- {}.findings\n{difference}\n", host.name));
        }
    }
    assert!(
        differences.is_empty(),
        "what is found is not what is stored (-), but this (+); if it is right, \
        HAUL_FINDINGS=write writes it:\n{differences}"
    );
}

#[test]
fn findings_without_a_host_are_not_kept() {
    assert!(HOSTS.len() >= 8, "{} stored hosts", HOSTS.len());
    for path in files("findings") {
        assert!(path.with_extension("host").exists(), "{} has no host", path.display());
    }
}

#[test]
fn a_tuned_node_has_nothing_of_weight_left_and_an_untuned_one_has() {
    let of_weight =
        |finding: &&Finding| finding.state == State::Improve && finding.weight > Weight::Low;
    let tuned = findings("tuned-100g-dtn");
    let left: Vec<_> = tuned.iter().filter(of_weight).collect();
    assert!(left.is_empty(), "{left:#?}");
    let untuned = findings("untuned-100g");
    assert!(untuned.iter().filter(of_weight).count() >= 5);
    assert!(score(&untuned) + 30 < score(&tuned), "{} {}", score(&untuned), score(&tuned));
}

#[test]
fn a_container_is_told_who_can_change_what_it_cannot() {
    let found = findings("container");
    let of_others = |finding: &&Finding| finding.needs == Needs::ContainerHost;
    assert!(found.iter().filter(of_others).count() >= 3);
    for finding in &found {
        let is_sysctl = |name: &str| name.starts_with("sysctl ");
        let sets = finding.changes.iter().map(|change| change.setting.to_string());
        assert!(!sets.into_iter().any(|name| is_sysctl(&name)), "{finding:?}");
    }
}

/// Findings of the checks of RDMA on this host.
fn of_rdma(name: &str) -> Vec<Finding> {
    let mut found = findings(name);
    found.retain(|finding| finding.check.starts_with("rdma-"));
    found
}

#[test]
fn rdma_is_looked_at_where_there_is_a_card_and_nowhere_else() {
    for host in HOSTS.iter() {
        let has_card = ["roce-healthy", "roce-sick", "infiniband", "soft-roce"];
        assert_eq!(
            !of_rdma(&host.name).is_empty(),
            has_card.contains(&&host.name[..]),
            "{}",
            host.name
        );
    }
}

#[test]
fn a_healthy_card_of_rdma_has_nothing_to_improve_and_a_sick_one_has_by_every_check() {
    let healthy = of_rdma("roce-healthy");
    assert!(healthy.iter().all(|finding| finding.state == State::Good), "{healthy:#?}");
    let sick = of_rdma("roce-sick");
    for check in haul_host::checks::CHECKS.iter().filter(|check| check.name.starts_with("rdma-")) {
        assert!(healthy.iter().any(|finding| finding.check == check.name), "{}", check.name);
        let improves =
            |finding: &Finding| finding.check == check.name && finding.state == State::Improve;
        assert!(sick.iter().any(improves), "{}", check.name);
    }
}

#[test]
fn a_host_of_nonsense_is_told_that_it_makes_none() {
    let found = findings("broken");
    let unknown = found.iter().filter(|finding| finding.state == State::Unknown).count();
    assert!(unknown >= 5, "{unknown} of {}", found.len());
}
