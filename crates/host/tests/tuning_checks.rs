//! All tuning checks over one stored host, a fast one that nobody has tuned.

// Clippy's exemption for tests covers #[test] functions only, not the helpers beside them.
#![allow(clippy::unwrap_used)]

use std::{fs, path::Path};

use haul_host::{
    checks::audit,
    tune::{Change, Finding, Goal, Machine, Setting, State, Wanted, machine::STORED_ANSWERS},
};

const RINGS: &str = "Pre-set maximums:\nRX:\t\t8192\nTX:\t\t8192\n\
    Current hardware settings:\nRX:\t\t1024\nTX:\t\t1024\n";
const CHANNELS: &str = "Pre-set maximums:\nRX:\t\tn/a\nCombined:\t63\n\
    Current hardware settings:\nRX:\t\tn/a\nCombined:\t1\n";
const LINK: &str = r#"[{"ifname":"eth0","min_mtu":68,"max_mtu":9978,"tso_max_size":524280,
    "gso_max_size":65536,"gso_ipv4_max_size":65536,"gro_max_size":65536,
    "gro_ipv4_max_size":65536}]"#;

/// Answers of programs, by command.
const ANSWERS: [(&str, &str); 11] = [
    ("dcb pfc show dev eth0", "pfc-cap 8 macsec-bypass off delay 0\nprio-pfc 0:off 3:off\n"),
    ("ethtool -g eth0", RINGS),
    ("ethtool -l eth0", CHANNELS),
    ("ethtool -k eth0", "Features for eth0:\nscatter-gather: off\nlarge-receive-offload: on\n"),
    (
        "ethtool -a eth0",
        "Pause parameters for eth0:\nAutonegotiate:\toff\nRX:\t\toff\nTX:\t\toff\n",
    ),
    ("ethtool -c eth0", "Adaptive RX: off  TX: off\nrx-usecs:\t0\n"),
    ("ethtool -i eth0", "driver: mlx5_core\nversion: 6.8.0\nfirmware-version: 22.41\n"),
    ("ip -details -json link show dev eth0", LINK),
    ("tc -json qdisc show dev eth0", r#"[{"kind":"pfifo_fast","handle":"0:","root":true}]"#),
    ("lspci -vv -s 0000:3b:00.0", "DevCtl: MaxPayload 256 bytes, MaxReadReq 512 bytes\n"),
    (
        "systemctl show --property=ActiveState,UnitFileState irqbalance.service",
        "ActiveState=active\nUnitFileState=enabled\n",
    ),
];

const INTERRUPTS: &str = "      CPU0 CPU1 CPU2 CPU3\n\
    51: 1 0 0 0 PCI-MSI 1-edge mlx5_comp0@pci:0000:3b:00.0\n\
    52: 1 0 0 0 PCI-MSI 2-edge mlx5_comp1@pci:0000:3b:00.0\n";
const MOUNTS: &str = "22 1 9:0 / /data rw - xfs /dev/md0 rw\n\
    23 1 8:1 / / rw,relatime - btrfs /dev/sda1 rw\n";
const LIMITS: &str = "Limit Soft Hard Units\n\
    Max open files            1024                 4096                 files\n\
    Max locked memory         65536                65536                bytes\n";

const FILES: &[(&str, &str)] = &[
    ("proc/812/comm", "irqbalance"),
    ("proc/813/comm", "tuned"),
    ("proc/cmdline", "ro quiet intel_iommu=on"),
    ("proc/cpuinfo", "cpu MHz\t\t: 2100.000"),
    ("proc/interrupts", INTERRUPTS),
    ("proc/irq/51/smp_affinity_list", "0"),
    ("proc/irq/52/smp_affinity_list", "0"),
    ("proc/meminfo", "MemTotal:       536870912 kB\nMemAvailable:   524288000 kB"),
    ("proc/self/limits", LIMITS),
    ("proc/self/mountinfo", MOUNTS),
    ("proc/sys/net/ipv4/tcp_available_ulp", "espintcp mptcp"),
    ("proc/sys/kernel/io_uring_disabled", "2"),
    ("proc/sys/kernel/numa_balancing", "1"),
    ("proc/sys/kernel/osrelease", "6.8.0"),
    ("proc/sys/net/core/default_qdisc", "pfifo_fast"),
    ("proc/sys/net/core/netdev_max_backlog", "1000"),
    ("proc/sys/net/core/optmem_max", "20480"),
    ("proc/sys/net/core/rmem_default", "2147483647"),
    ("proc/sys/net/core/rmem_max", "212992"),
    ("proc/sys/net/core/wmem_default", "212992"),
    ("proc/sys/net/core/wmem_max", "212992"),
    ("proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic"),
    ("proc/sys/net/ipv4/tcp_allowed_congestion_control", "reno"),
    ("proc/sys/net/ipv4/tcp_congestion_control", "reno"),
    ("proc/sys/net/ipv4/tcp_mem", "1000 2000 3000"),
    ("proc/sys/net/ipv4/tcp_mtu_probing", "0"),
    ("proc/sys/net/ipv4/tcp_no_metrics_save", "0"),
    ("proc/sys/net/ipv4/tcp_rmem", "4096 131072 6291456"),
    ("proc/sys/net/ipv4/tcp_sack", "0"),
    ("proc/sys/net/ipv4/tcp_timestamps", "0"),
    ("proc/sys/net/ipv4/tcp_window_scaling", "0"),
    ("proc/sys/net/ipv4/tcp_wmem", "4096 16384 4194304"),
    ("proc/sys/vm/dirty_background_bytes", "0"),
    ("proc/sys/vm/dirty_background_ratio", "10"),
    ("proc/sys/vm/dirty_bytes", "0"),
    ("proc/sys/vm/dirty_ratio", "20"),
    ("etc/sysctl.conf", "net.core.rmem_max = 4194304"),
    ("etc/tuned/active_profile", "network-throughput"),
    ("sys/block/md0/dev", "9:0"),
    ("sys/block/md0/md/chunk_size", "4096"),
    ("sys/block/md0/md/degraded", "0"),
    ("sys/block/md0/md/group_thread_cnt", "0"),
    ("sys/block/md0/md/level", "raid6"),
    ("sys/block/md0/md/raid_disks", "12"),
    ("sys/block/md0/md/stripe_cache_size", "256"),
    ("sys/block/md0/md/sync_action", "check"),
    ("sys/block/md0/queue/read_ahead_kb", "128"),
    ("sys/block/md0/queue/rotational", "0"),
    ("sys/block/nvme0n1/device/model", "A drive"),
    ("sys/block/nvme0n1/queue/read_ahead_kb", "128"),
    ("sys/block/nvme0n1/queue/scheduler", "none [kyber]"),
    ("sys/block/sda/device/model", "ST16000NM001G"),
    ("sys/block/sda/queue/read_ahead_kb", "128"),
    ("sys/block/sda/queue/rotational", "1"),
    ("sys/block/sda/queue/scheduler", "[bfq] mq-deadline"),
    ("sys/block/sda/sda1/dev", "8:1"),
    ("sys/class/infiniband/mlx5_0/device/current_link_speed", "8.0 GT/s PCIe"),
    ("sys/class/infiniband/mlx5_0/device/current_link_width", "8"),
    ("sys/class/infiniband/mlx5_0/device/max_link_speed", "8.0 GT/s PCIe"),
    ("sys/class/infiniband/mlx5_0/device/max_link_width", "16"),
    ("sys/class/infiniband/mlx5_0/fw_ver", "22.31.1014"),
    ("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "eth0"),
    ("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/0", "IB/RoCE v1"),
    ("sys/class/infiniband/mlx5_0/ports/1/gids/0", "fe80::1"),
    ("sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", "7"),
    ("sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet"),
    ("sys/class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)"),
    ("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE"),
    ("sys/class/infiniband/mlx5_0/ports/2/link_layer", "InfiniBand"),
    ("sys/class/infiniband/mlx5_0/ports/2/state", "1: DOWN"),
    ("sys/class/iommu/dmar0/address", "1"),
    ("sys/class/net/eth0/device/current_link_speed", "8.0 GT/s PCIe"),
    ("sys/class/net/eth0/device/current_link_width", "8"),
    ("sys/class/net/eth0/device/iommu_group/type", "DMA-FQ"),
    ("sys/class/net/eth0/device/max_link_speed", "16.0 GT/s PCIe"),
    ("sys/class/net/eth0/device/max_link_width", "16"),
    ("sys/class/net/eth0/device/msi_irqs/51", "msix"),
    ("sys/class/net/eth0/device/msi_irqs/52", "msix"),
    ("sys/class/net/eth0/device/numa_node", "1"),
    ("sys/class/net/eth0/device/uevent", "PCI_SLOT_NAME=0000:3b:00.0"),
    ("sys/class/net/eth0/duplex", "full"),
    ("sys/class/net/eth0/ecn/roce_np/enable/3", "0"),
    ("sys/class/net/eth0/flags", "0x1003"),
    ("sys/class/net/eth0/mtu", "4000"),
    ("sys/class/net/eth0/operstate", "up"),
    ("sys/class/net/eth0/speed", "100000"),
    ("sys/class/net/eth0/tx_queue_len", "1000"),
    ("sys/class/net/eth0/type", "1"),
    ("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "2100000"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_available_governors", "performance powersave"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state0/disable", "0"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "290"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state0/name", "C6"),
    ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,2"),
    ("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle"),
    ("sys/devices/system/cpu/intel_pstate/no_turbo", "1"),
    ("sys/devices/system/cpu/online", "0-3"),
    ("sys/devices/system/cpu/smt/active", "1"),
    ("sys/devices/system/node/node0/cpulist", "0-1"),
    ("sys/devices/system/node/node1/cpulist", "2-3"),
    ("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:       131072000 kB"),
];

fn write(root: &Path, path: &str, text: &[u8]) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Stores the host; returns its directory, and its files with their text, the answers among them.
fn stored() -> (tempfile::TempDir, Vec<(String, &'static str)>) {
    let answers =
        ANSWERS.iter().map(|(command, text)| (format!("{STORED_ANSWERS}/{command}"), *text));
    let files: Vec<_> =
        FILES.iter().map(|(path, text)| ((*path).to_owned(), *text)).chain(answers).collect();
    let root = tempfile::tempdir().unwrap();
    for (path, text) in &files {
        write(root.path(), path, text.as_bytes());
    }
    (root, files)
}

fn audited(root: &Path) -> Vec<Finding> {
    let machine = Machine::below(root);
    audit(&machine, &Goal::of(&machine, &Wanted::default()))
}

/// Changes that a stored host can take: those of files. Its two dirty limits do not clear each
/// other as the kernel's do.
fn changes_of_files(findings: &[Finding]) -> Vec<Change> {
    let changes = findings.iter().flat_map(|finding| finding.changes.clone());
    let is_file = |change: &Change| matches!(change.setting, Setting::Sysctl(_) | Setting::File(_));
    changes.filter(is_file).collect()
}

#[test]
fn a_host_that_nobody_has_tuned_is_found_wanting_by_every_check() {
    let (root, _) = stored();
    let findings = audited(root.path());
    // These find nothing to say against this host.
    let content = ["card", "numa-node", "card-driver", "kernel-age", "smt", "rdma-kernel"];
    for check in haul_host::checks::CHECKS {
        let improves = findings
            .iter()
            .any(|finding| finding.check == check.name && finding.state == State::Improve);
        assert_eq!(improves, !content.contains(&check.name), "{}", check.name);
    }
    for finding in &findings {
        assert_ne!(finding.state, State::Unknown, "{finding:?}");
    }
}

#[test]
fn what_is_changed_is_good_the_next_time_and_old_values_in_reverse_give_what_was() {
    let (root, files) = stored();
    let machine = Machine::below(root.path());
    let changes = changes_of_files(&audited(root.path()));
    assert!(changes.len() > 25, "{}", changes.len());
    let mut old = Vec::new();
    for Change { setting, value } in &changes {
        old.push((setting, setting.read(&machine).unwrap()));
        setting.write(&machine, value).unwrap();
    }
    assert_eq!(changes_of_files(&audited(root.path())), []);
    for (setting, value) in old.iter().rev() {
        setting.write(&machine, value).unwrap();
    }
    for (path, text) in files {
        let now = fs::read_to_string(root.path().join(&path)).unwrap();
        // A file that offers a choice shows the chosen word among the others.
        let is_choice = path.ends_with("scheduler") && text.contains(&format!("[{now}]"));
        assert!(now == text || is_choice, "{path}: {now}");
    }
}

#[test]
fn no_check_is_put_out_by_what_any_file_or_program_says() {
    let (root, files) = stored();
    let nonsense: [&[u8]; 9] = [
        b"",
        b"-1",
        b"0",
        b"18446744073709551616",
        b"a:b: c = d [e] - f / g , 0-",
        b"0-8191",
        b"\xff\xfe\x00\x80",
        b"! netlink error: Operation not permitted",
        b"[{}, 1, \"x\"]",
    ];
    for (path, text) in &files {
        for nonsense in nonsense {
            write(root.path(), path, nonsense);
            let findings = audited(root.path());
            assert!(findings.len() > 20, "{path} {nonsense:?}");
            for change in findings.iter().flat_map(|finding| &finding.changes) {
                let words = change.setting.to_string();
                assert_eq!(words.parse().as_ref(), Ok(&change.setting), "{path} {nonsense:?}");
            }
        }
        fs::remove_file(root.path().join(path)).unwrap();
        audited(root.path());
        write(root.path(), path, text.as_bytes());
    }
}
