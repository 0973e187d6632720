//! Reads the stored hosts under tests/hosts and compares what is found with what they are.

use std::path::PathBuf;

use haul_host::{Host, Node, interface_node};

const KIB: u64 = 1024;
const GIB: u64 = 1 << 30;

/// MemAvailable of the virtual machine, when it was stored.
const AVAILABLE_KIB: u64 = 24_372_976;

/// Reads a stored host's facts, without those that are always the running process's own.
fn stored(name: &str) -> Host {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/hosts").join(name);
    assert!(root.is_dir(), "no stored host {name}");
    let found = Host::read(&root);
    assert!(found.page_bytes >= 4096 && found.open_files_max > 0);
    Host { page_bytes: 0, memlock_limit_bytes: 0, open_files_max: 0, ..found }
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

#[test]
fn the_virtual_machine_of_the_measurements_is_read_as_it_is() {
    let expected = Host {
        kernel: (6, 18),
        cores: 2,
        cpus: vec![0, 1],
        memory_bytes: 24_684_092 * KIB,
        memory_available_bytes: AVAILABLE_KIB * KIB,
        dirty_limit_bytes: AVAILABLE_KIB * KIB / 100 * 20,
        may_administer_network: true,
        congestion_allowed: words("reno bbr"),
        congestion_available: words("reno bbr cubic"),
        congestion_default: "bbr".to_owned(),
        receive_buffer_bytes_max: 32 << 20,
        send_buffer_bytes_max: 4 << 20,
        ..Host::default()
    };
    assert_eq!(stored("virtual-machine"), expected);
}

#[test]
fn a_limit_of_a_cgroup_above_ours_holds_for_us() {
    let expected = Host {
        kernel: (6, 8),
        cores: 6,
        cpus: (0..16).chain(32..48).collect(),
        nodes: vec![
            Node { number: 0, cpus: (0..16).collect() },
            Node { number: 1, cpus: (32..48).collect() },
        ],
        memory_bytes: 8 * GIB,
        memory_available_bytes: 7 * GIB,
        dirty_limit_bytes: GIB / 4,
        io_uring_disabled: true,
        congestion_allowed: words("reno cubic"),
        congestion_available: words("reno cubic"),
        congestion_default: "cubic".to_owned(),
        ..Host::default()
    };
    assert_eq!(stored("memory-limited"), expected);
}

#[test]
fn the_node_of_a_network_interface_is_known_where_it_has_hardware() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/hosts/memory-limited");
    assert_eq!(interface_node(&root, "eth0"), Some(1));
    assert_eq!(interface_node(&root, "lo"), None);
    assert_eq!(interface_node(&root, "../net/eth0"), None);
}

#[test]
fn a_container_under_cgroups_version_1_is_held_to_its_limits() {
    let expected = Host {
        kernel: (5, 14),
        cores: 1,
        cpus: (0..8).collect(),
        memory_bytes: 4 * GIB,
        memory_available_bytes: 3 * GIB,
        dirty_limit_bytes: 3 * GIB / 100 * 20,
        congestion_allowed: words("reno"),
        congestion_available: words("reno"),
        ..Host::default()
    };
    assert_eq!(stored("limited-version-1"), expected);
}

#[test]
fn a_host_that_shows_nothing_is_believed_to_have_little() {
    let found = stored("empty");
    let expected = Host {
        kernel: (5, 10),
        cores: found.cores,
        memory_bytes: GIB,
        memory_available_bytes: GIB / 2,
        dirty_limit_bytes: GIB / 2 / 100 * 20,
        congestion_allowed: words("reno"),
        congestion_available: words("reno"),
        ..Host::default()
    };
    assert_eq!(found, expected);
    assert!(found.cores >= 1);
}

#[test]
fn the_host_that_runs_this_test_has_memory_and_a_kernel() {
    let found = Host::read("/".as_ref());
    assert!(found.kernel >= (5, 10), "haul needs Linux 5.10 or newer, found {:?}", found.kernel);
    assert!(found.memory_available_bytes <= found.memory_bytes && found.memory_bytes > 0);
    assert!(found.cores >= 1);
}
