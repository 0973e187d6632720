//! The tuning checks, one a file. Each reads, and says what it found, what should be, and why.
//!
//! To add one: a file with its `CHECK`, two lines here, its findings in `tests/stored_hosts/`.

use crate::tune::{
    Change, Finding, Goal, Machine, Needs, Platform, State, Weight, goal,
    machine::{Unread, Why},
    setting::Setting,
};

/// The part of the report in which a check stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    Tcp,
    NetworkCard,
    Rdma,
    Processor,
    Storage,
    System,
}

impl Group {
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Tcp => "TCP and sockets",
            Self::NetworkCard => "Network cards",
            Self::Rdma => "RDMA",
            Self::Processor => "Processors and memory",
            Self::Storage => "Storage",
            Self::System => "System and limits",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The name for `--apply=NAME` and `--explain NAME`.
    pub name: &'static str,
    pub group: Group,
    /// The subject of the check, in a few words.
    pub summary: &'static str,
    /// The reason why the check matters, and for which goal.
    pub why: &'static str,
    /// The source of the advice.
    pub source: &'static str,
    pub look: fn(&Machine, &Goal) -> Vec<Finding>,
}

#[cfg(test)]
pub(crate) mod stored;

macro_rules! checks {
    ($($file:ident),* $(,)?) => {
        $(mod $file;)*
        /// All checks, in the order of the report.
        pub const CHECKS: &[Check] = &[$($file::CHECK),*];
    };
}

checks! {
    // TCP and sockets
    socket_buffers, tcp_buffers, buffer_defaults, tcp_memory, optmem, tcp_options, mtu_probing,
    metrics_save, congestion_control, backlog, qdisc,
    // Network cards
    card, rings, mtu, txqueuelen, offloads, pause, coalescing, pcie_link, pcie_read_request,
    big_tcp, card_driver, irqbalance, interrupts, queues, numa_node,
    // RDMA
    rdma_port, rdma_memlock, rdma_mtu, rdma_address, rdma_pcie, rdma_flow_control, rdma_ecn,
    rdma_errors, rdma_packages, rdma_kernel,
    // Processors and memory
    governor, boost, smt, cores, iommu, numa_balancing, c_states,
    // Storage
    scheduler, readahead, dirty_bytes, mount_options, file_system, raid,
    // System and limits
    memlock, open_files, kernel_age, tuned, sysctl_conflicts, io_uring, kernel_tls,
}

/// Finds the check of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Check> {
    CHECKS.iter().find(|check| check.name == name)
}

/// The rate from which the processors and the bus limit, so that their settings count.
const FAST_BITS_PER_S: u64 = 40_000_000_000;

/// Findings of `look` for each card of the goal that is there; the check `card` names those that
/// are not.
fn of_cards(machine: &Machine, goal: &Goal, look: impl Fn(&str) -> Finding) -> Vec<Finding> {
    goal.cards.iter().filter(|card| machine.has_interface(card)).map(|card| look(card)).collect()
}

/// The card's address on PCI, such as `0000:3b:00.0`; a virtual one may have none.
fn pci_address(machine: &Machine, card: &str) -> Option<String> {
    let device = format!("/sys/class/net/{card}/device");
    let is_address = |name: &String| {
        let is_sign = |sign: char| sign.is_ascii_hexdigit() || matches!(sign, ':' | '.');
        name.matches(':').count() == 2 && name.contains('.') && name.chars().all(is_sign)
    };
    if let Some(name) = machine.link_name(&device).filter(is_address) {
        return Some(name);
    }
    let uevent = machine.text(&format!("{device}/uevent")).unwrap_or_default();
    let name = crate::value_after(&uevent, "PCI_SLOT_NAME=")?.to_owned();
    Some(name).filter(is_address)
}

/// The rate that the card says it carries, or the goal's where it does not say.
fn card_rate(machine: &Machine, goal: &Goal, card: &str) -> u64 {
    goal::speed(machine, card).unwrap_or(goal.rate_bits_per_s)
}

/// The weight of a finding that costs more the faster the card is.
fn weight_at(rate_bits_per_s: u64) -> Weight {
    match rate_bits_per_s {
        0..10_000_000_000 => Weight::Low,
        10_000_000_000..FAST_BITS_PER_S => Weight::Medium,
        _ => Weight::High,
    }
}

/// The party that decides what this host is made of.
fn maker(machine: &Machine) -> Needs {
    match machine.platform() {
        Platform::Hardware => Needs::Hands,
        Platform::Virtual => Needs::Hypervisor,
        Platform::Container => Needs::ContainerHost,
    }
}

/// The finding for a value that cannot be read: absent where the driver has no such thing, else not
/// known.
fn not_read(subject: &str, unread: &Unread) -> Finding {
    match &unread.why {
        Why::NotSupported(_) => {
            Finding::absent(subject, &format!("its driver has no such thing ({})", unread.what))
        }
        _ => Finding::unknown(subject, unread),
    }
}

/// Checks that a setting of sysctl(8) has this value.
fn sysctl_is(machine: &Machine, name: &str, wanted: &str, weight: Weight) -> Finding {
    match machine.sysctl(name) {
        Ok(found) if found == wanted => Finding::good(weight, name, &found),
        // What could not be set back is not changed.
        Ok(found) if wanted.parse::<i64>().is_ok() && found.parse::<i64>().is_err() => {
            Finding::unknown(name, &Unread::nonsense(name, &found))
        }
        Ok(found) => {
            Finding::improve(weight, name, &found, wanted).change(Setting::sysctl(name), wanted)
        }
        Err(unread) => Finding::unknown(name, &unread),
    }
}

/// Checks that a setting, which holds one number, is no smaller than `wanted`.
fn sysctl_at_least(machine: &Machine, name: &str, wanted: u64, weight: Weight) -> Finding {
    let found = match machine.sysctl(name) {
        Ok(found) => found,
        Err(unread) => return Finding::unknown(name, &unread),
    };
    match found.parse::<u64>() {
        Ok(number) if number >= wanted => Finding::good(weight, name, &found),
        Ok(_) => Finding::improve(weight, name, &found, &wanted.to_string())
            .change(Setting::sysctl(name), wanted.to_string()),
        Err(_) => Finding::unknown(name, &Unread::nonsense(name, &found)),
    }
}

/// A limit of this process by its name in /proc/PID/limits; `u64::MAX` is no limit.
fn soft_limit(machine: &Machine, name: &str) -> Result<u64, Unread> {
    const PATH: &str = "/proc/self/limits";
    let text = machine.text(PATH)?;
    let word = crate::value_after(&text, name).and_then(|rest| rest.split_whitespace().next());
    match word {
        Some("unlimited") => Ok(u64::MAX),
        Some(word) => word.parse().map_err(|_| Unread::nonsense(PATH, word)),
        None => Err(Unread { what: format!("{name} in {PATH}"), why: Why::Missing }),
    }
}

/// The numbers of a setting that holds several.
fn sysctl_numbers<const COUNT: usize>(
    machine: &Machine,
    name: &str,
) -> Result<[u64; COUNT], Unread> {
    let text = machine.sysctl(name)?;
    let numbers: Option<Vec<u64>> = text.split(' ').map(|word| word.parse().ok()).collect();
    numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(|| Unread::nonsense(name, &text))
}

/// All findings of all checks, in their order.
#[must_use]
pub fn audit(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    CHECKS.iter().flat_map(|check| look(check, machine, goal)).collect()
}

/// Runs one check. A finding says where nobody on this host can make the change.
#[must_use]
pub fn look(check: &Check, machine: &Machine, goal: &Goal) -> Vec<Finding> {
    let mut findings = (check.look)(machine, goal);
    for finding in &mut findings {
        finding.check = check.name;
        let of_others =
            |change: &Change| change.setting.path().is_some_and(|path| machine.is_read_only(&path));
        if finding.state == State::Improve && finding.changes.iter().any(of_others) {
            finding.needs = Needs::ContainerHost;
            finding.changes.clear();
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_a_name_of_its_own_and_says_why() {
        for check in CHECKS {
            assert_eq!(CHECKS.iter().filter(|other| other.name == check.name).count(), 1);
            let is_name = |sign: char| sign.is_ascii_lowercase() || sign == '-';
            assert!(check.name.chars().all(is_name), "{}", check.name);
            assert!(!check.summary.is_empty() && !check.source.is_empty(), "{}", check.name);
            assert!(check.why.len() > 60, "{}", check.name);
        }
        let groups: Vec<Group> = CHECKS.iter().map(|check| check.group).collect();
        assert!(groups.is_sorted(), "checks of a group stand together");
    }

    #[test]
    fn on_a_host_that_shows_nothing_every_check_says_so() {
        let root = tempfile::tempdir().unwrap();
        let machine = Machine::below(root.path());
        let goal = Goal::of(&machine, &crate::tune::Wanted::default());
        for check in CHECKS {
            for finding in look(check, &machine, &goal) {
                assert!(finding.changes.is_empty(), "{finding:?}");
            }
        }
    }
}
