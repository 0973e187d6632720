//! A setting of a running system, which can be read, set, and set back.

use std::{fmt, fs, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    ethtool,
    machine::{Machine, Unread, Why, run, sysctl_path},
    qdisc,
};

/// A setting, written as `sysctl net.core.rmem_max`, `file /sys/...`, `ring eth0 rx`, ...: so it
/// stands in the ledger, in `--json` and on the screen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    /// A file below /proc/sys, by its name in sysctl(8).
    Sysctl(String),
    /// A file of /proc or /sys that holds a value, by its path.
    File(String),
    /// Descriptors in a card's ring, `rx` or `tx` (ethtool -G).
    Ring { card: String, ring: String },
    /// An offload of a card, `on` or `off`, by ethtool's long name (ethtool -K).
    Offload { card: String, feature: String },
    /// Pause frames of a card, `on` or `off`: `rx`, `tx` or `autoneg` (ethtool -A).
    Pause { card: String, direction: String },
    /// The queueing discipline at the root of a card (tc-qdisc(8)).
    Qdisc { card: String },
    /// A number that ip-link(8) sets, such as `gso_max_size`.
    Link { card: String, attribute: String },
    /// A service of systemd: `active enabled` or `inactive disabled`.
    Service { name: String },
    /// The limit at which unwritten pages go to disk, `bytes 268435456` or `ratio 10`, by the
    /// beginning of its two names in sysctl(8), such as `vm.dirty_background`. Setting one of the
    /// two sets the other to 0, and 0 bytes is refused, so they are one setting
    /// (mm/page-writeback.c).
    DirtyLimit { name: String },
}

impl Setting {
    #[must_use]
    pub fn sysctl(name: &str) -> Self {
        Self::Sysctl(name.to_owned())
    }

    #[must_use]
    pub fn file(path: impl Into<String>) -> Self {
        Self::File(path.into())
    }

    /// Whether the setting is named by the number of an interrupt.
    #[must_use]
    pub fn is_interrupt(&self) -> bool {
        matches!(self, Self::File(path) if path.starts_with("/proc/irq/"))
    }

    /// The file that holds the setting, where one does.
    #[must_use]
    pub fn path(&self) -> Option<String> {
        match self {
            Self::Sysctl(name) => Some(sysctl_path(name)),
            Self::File(path) => Some(path.clone()),
            Self::DirtyLimit { name } => Some(sysctl_path(&format!("{name}_bytes"))),
            _ => None,
        }
    }

    /// Settings that the kernel sets anew when this one is written, and a person may have set
    /// before: they are remembered with it, and set back after it.
    #[must_use]
    pub fn disturbs(&self, machine: &Machine) -> Vec<Self> {
        let Self::File(path) = self else { return vec![] };
        let files = if let Some(queue) = path.strip_suffix("/scheduler") {
            // elevator_switch in block/elevator.c: a scheduler comes with its own defaults, and
            // with its own number of requests; bfq switches the throttling of writers off.
            let own = machine.names(&format!("{queue}/iosched")).into_iter();
            let own = own.map(|name| format!("{queue}/iosched/{name}"));
            let beside = ["nr_requests", "wbt_lat_usec"].map(|name| format!("{queue}/{name}"));
            own.chain(beside).collect()
        } else if let Some(policy) = path.strip_suffix("/scaling_governor") {
            // store_energy_performance_preference in amd-pstate.c and intel_pstate.c.
            vec![format!("{policy}/energy_performance_preference")]
        } else if let Some(card) = card_of_mtu(path) {
            // addrconf_notify in net/ipv6/addrconf.c: NETDEV_CHANGEMTU.
            vec![format!("/proc/sys/net/ipv6/conf/{card}/mtu")]
        } else {
            vec![]
        };
        files.into_iter().filter(|file| machine.exists(file)).map(Self::File).collect()
    }

    /// The name and the value in sysctl(8), where the setting has one, to keep it over a boot.
    #[must_use]
    pub fn sysctl_of(&self, value: &str) -> Option<(String, String)> {
        match self {
            Self::Sysctl(name) => Some((name.clone(), value.to_owned())),
            Self::DirtyLimit { name } => {
                let (unit, number) = value.split_once(' ')?;
                Some((format!("{name}_{unit}"), number.to_owned()))
            }
            _ => None,
        }
    }

    /// Reads the value now, in the form in which it can be set again.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn read(&self, machine: &Machine) -> Result<String, Unread> {
        match self {
            Self::Sysctl(name) => machine.sysctl(name),
            Self::File(path) => Ok(chosen(&machine.text(path)?)),
            Self::Ring { card, ring } => {
                let rings = ethtool::rings(machine, card)?;
                let found = if ring == "tx" { rings.tx } else { rings.rx };
                found.map(|ring| ring.now.to_string()).ok_or_else(|| self.not_there())
            }
            Self::Offload { card, feature } => {
                let features = ethtool::features(machine, card)?;
                let found = features.get(feature).ok_or_else(|| self.not_there())?;
                Ok(on_off(found.on).to_owned())
            }
            Self::Pause { card, direction } => {
                let pause = ethtool::pause(machine, card)?;
                let found = match &direction[..] {
                    "rx" => pause.rx,
                    "tx" => pause.tx,
                    _ => pause.autonegotiate,
                };
                found.map(|on| on_off(on).to_owned()).ok_or_else(|| self.not_there())
            }
            Self::Qdisc { card } => qdisc::root(machine, card),
            Self::Link { card, attribute } => {
                let link = ethtool::link(machine, card)?;
                link[attribute].as_u64().map(|n| n.to_string()).ok_or_else(|| self.not_there())
            }
            Self::Service { name } => service(machine, name),
            Self::DirtyLimit { name } => dirty_limit(machine, name),
        }
    }

    /// Writes the value, and does not look whether it took.
    ///
    /// # Errors
    /// In the system's words, or the program's.
    pub fn write(&self, machine: &Machine, value: &str) -> Result<(), Unread> {
        if let Self::DirtyLimit { .. } = self {
            let (name, number) = self
                .sysctl_of(value)
                .filter(|(_, number)| number.parse::<u64>().is_ok())
                .ok_or_else(|| Unread::nonsense(self.to_string(), value))?;
            return write_file(machine, &sysctl_path(&name), &number);
        }
        if let Some(path) = self.path() {
            return write_file(machine, &path, value);
        }
        if !machine.is_live() {
            let why = Why::Failed("a stored host runs no programs".to_owned());
            return Err(Unread { what: self.to_string(), why });
        }
        for command in self.commands(value) {
            run(&command.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// The shell command that sets the value.
    #[must_use]
    pub fn shell(&self, value: &str) -> String {
        if let Some((name, value)) = self.sysctl_of(value) {
            return format!("sysctl -w {name}={}", quoted(&value));
        }
        match self {
            Self::File(path) => format!("echo {} > {}", quoted(value), quoted(path)),
            _ => {
                let line = |words: &Vec<String>| {
                    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
                };
                self.commands(value).iter().map(line).collect::<Vec<_>>().join(" && ")
            }
        }
    }

    fn commands(&self, value: &str) -> Vec<Vec<String>> {
        let words = |text: &[&str]| text.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        match self {
            Self::Sysctl(_) | Self::File(_) | Self::DirtyLimit { .. } => vec![],
            Self::Ring { card, ring } => vec![words(&["ethtool", "-G", card, ring, value])],
            Self::Offload { card, feature } => {
                vec![words(&["ethtool", "-K", card, feature, value])]
            }
            Self::Pause { card, direction } => {
                vec![words(&["ethtool", "-A", card, direction, value])]
            }
            Self::Qdisc { card } => qdisc::commands(card, value),
            Self::Link { card, attribute } => {
                vec![words(&["ip", "link", "set", "dev", card, attribute, value])]
            }
            Self::Service { name } => {
                let (active, enabled) = value.split_once(' ').unwrap_or((value, "disabled"));
                let start = if active == "active" { "start" } else { "stop" };
                let enable = if enabled == "enabled" { "enable" } else { "disable" };
                vec![words(&["systemctl", enable, name]), words(&["systemctl", start, name])]
            }
        }
    }

    fn not_there(&self) -> Unread {
        Unread { what: self.to_string(), why: Why::Missing }
    }
}

fn card_of_mtu(path: &str) -> Option<&str> {
    path.strip_prefix("/sys/class/net/")?.strip_suffix("/mtu")
}

fn write_file(machine: &Machine, path: &str, value: &str) -> Result<(), Unread> {
    fs::write(machine.path(path), value).map_err(|error| {
        let why = match error.kind() {
            std::io::ErrorKind::PermissionDenied => Why::NoRight,
            std::io::ErrorKind::NotFound => Why::Missing,
            _ => Why::of(&error),
        };
        Unread { what: format!("writing \"{value}\" to {path}"), why }
    })
}

/// Whether two values mean the same: blanks do not count.
#[must_use]
pub fn same(one: &str, other: &str) -> bool {
    one.split_whitespace().eq(other.split_whitespace())
}

/// The chosen value of a file that offers a choice, in brackets: `none [mq-deadline] kyber`.
fn chosen(text: &str) -> String {
    let word = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    word.map_or_else(|| text.to_owned(), str::to_owned)
}

fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Reads the state of a service. Both questions answer with a status that is not 0 where the answer
/// is no.
fn service(machine: &Machine, name: &str) -> Result<String, Unread> {
    let shown =
        machine.answer(&["systemctl", "show", "--property=ActiveState,UnitFileState", name])?;
    let is = |key: &str, value: &str| shown.lines().any(|line| line == format!("{key}={value}"));
    let active = if is("ActiveState", "active") { "active" } else { "inactive" };
    let enabled = if is("UnitFileState", "enabled") { "enabled" } else { "disabled" };
    Ok(format!("{active} {enabled}"))
}

/// Reads the limit of unwritten pages that holds, of the two: the other is 0.
fn dirty_limit(machine: &Machine, name: &str) -> Result<String, Unread> {
    let number = |unit: &str| {
        let name = format!("{name}_{unit}");
        let text = machine.sysctl(&name)?;
        text.parse::<u64>().map_err(|_| Unread::nonsense(name, &text))
    };
    Ok(match number("bytes")? {
        0 => format!("ratio {}", number("ratio")?),
        bytes => format!("bytes {bytes}"),
    })
}

/// Writes a text as one word of a shell.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,+@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sysctl(name) => write!(f, "sysctl {name}"),
            Self::File(path) => write!(f, "file {path}"),
            Self::Ring { card, ring } => write!(f, "ring {card} {ring}"),
            Self::Offload { card, feature } => write!(f, "offload {card} {feature}"),
            Self::Pause { card, direction } => write!(f, "pause {card} {direction}"),
            Self::Qdisc { card } => write!(f, "qdisc {card}"),
            Self::Link { card, attribute } => write!(f, "link {card} {attribute}"),
            Self::Service { name } => write!(f, "service {name}"),
            Self::DirtyLimit { name } => write!(f, "dirty-limit {name}"),
        }
    }
}

/// A line of a ledger that names no setting, as an older or newer haul may have written it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no setting that this haul knows")]
pub struct UnknownSetting(String);

impl FromStr for Setting {
    type Err = UnknownSetting;

    fn from_str(text: &str) -> Result<Self, UnknownSetting> {
        let wrong = || UnknownSetting(text.to_owned());
        let (kind, rest) = text.split_once(' ').ok_or_else(wrong)?;
        let pair = || rest.split_once(' ').ok_or_else(wrong);
        let own = str::to_owned;
        Ok(match kind {
            // The ledger is read by root: its names lead nowhere else.
            "sysctl" if !rest.contains("..") && !rest.contains('/') => Self::Sysctl(own(rest)),
            "file"
                if (rest.starts_with("/proc/") || rest.starts_with("/sys/"))
                    && !rest.contains("/../") =>
            {
                Self::File(own(rest))
            }
            "ring" => pair().map(|(card, ring)| Self::Ring { card: own(card), ring: own(ring) })?,
            "offload" => pair()
                .map(|(card, feature)| Self::Offload { card: own(card), feature: own(feature) })?,
            "pause" => pair().map(|(card, direction)| Self::Pause {
                card: own(card),
                direction: own(direction),
            })?,
            "qdisc" => Self::Qdisc { card: own(rest) },
            "link" => pair().map(|(card, attribute)| Self::Link {
                card: own(card),
                attribute: own(attribute),
            })?,
            "service" => Self::Service { name: own(rest) },
            "dirty-limit" if matches!(rest, "vm.dirty" | "vm.dirty_background") => {
                Self::DirtyLimit { name: own(rest) }
            }
            _ => return Err(wrong()),
        })
    }
}

impl Serialize for Setting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Setting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_setting_is_read_back_from_its_own_words() {
        let card = || "eth0".to_owned();
        let all = [
            Setting::sysctl("net.core.rmem_max"),
            Setting::file("/sys/block/sda/queue/scheduler"),
            Setting::Ring { card: card(), ring: "rx".to_owned() },
            Setting::Offload { card: card(), feature: "generic-receive-offload".to_owned() },
            Setting::Pause { card: card(), direction: "tx".to_owned() },
            Setting::Qdisc { card: card() },
            Setting::Link { card: card(), attribute: "gso_max_size".to_owned() },
            Setting::Service { name: "irqbalance.service".to_owned() },
            Setting::DirtyLimit { name: "vm.dirty".to_owned() },
        ];
        for setting in all {
            assert_eq!(setting.to_string().parse(), Ok(setting));
        }
    }

    #[test]
    fn a_ledger_cannot_name_files_outside_proc_and_sys() {
        for text in [
            "file /etc/passwd",
            "file /sys/../etc/passwd",
            "sysctl ../../etc/passwd",
            "sysctl net/../../x",
            "odd",
            "odd thing",
            "ring eth0",
            "dirty-limit ../../etc/passwd",
            "",
        ] {
            assert!(text.parse::<Setting>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_a_change_disturbs_is_what_the_host_has_of_it() {
        let root = tempfile::tempdir().unwrap();
        let file = |path: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "1\n").unwrap();
        };
        file("sys/block/sda/queue/scheduler");
        file("sys/block/sda/queue/nr_requests");
        file("sys/block/sda/queue/iosched/read_expire");
        file("sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference");
        file("proc/sys/net/ipv6/conf/eth0.100/mtu");
        let machine = Machine::below(root.path());
        for (path, disturbed) in [
            (
                "/sys/block/sda/queue/scheduler",
                "/sys/block/sda/queue/iosched/read_expire /sys/block/sda/queue/nr_requests",
            ),
            (
                "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
                "/sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference",
            ),
            ("/sys/class/net/eth0.100/mtu", "/proc/sys/net/ipv6/conf/eth0.100/mtu"),
            ("/sys/class/net/eth1/mtu", ""),
            ("/sys/block/sda/queue/nr_requests", ""),
        ] {
            let found = Setting::file(path).disturbs(&machine);
            let found: Vec<_> = found.iter().map(|one| one.path().unwrap()).collect();
            assert_eq!(found.join(" "), disturbed, "{path}");
        }
    }

    #[test]
    fn what_is_set_is_quoted_for_the_shell() {
        let sysctl = Setting::sysctl("net.ipv4.tcp_rmem");
        assert_eq!(sysctl.shell("4096 87380 1"), "sysctl -w net.ipv4.tcp_rmem='4096 87380 1'");
        let file = Setting::file("/sys/x y");
        assert_eq!(file.shell("it's"), r"echo 'it'\''s' > '/sys/x y'");
        let ring = Setting::Ring { card: "eth0".to_owned(), ring: "rx".to_owned() };
        assert_eq!(ring.shell("4096"), "ethtool -G eth0 rx 4096");
    }

    /// A dirty limit is read by the name that holds: the kernel keeps the other at 0, and refuses 0
    /// bytes; this tree stands for it.
    #[test]
    fn a_dirty_limit_is_read_by_the_name_that_holds_and_set_back_by_it() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("proc/sys/vm");
        fs::create_dir_all(&directory).unwrap();
        let file = |name: &str| directory.join(name);
        let machine = Machine::below(root.path());
        let setting = Setting::DirtyLimit { name: "vm.dirty".to_owned() };
        assert!(setting.read(&machine).is_err());
        fs::write(file("dirty_bytes"), "0\n").unwrap();
        fs::write(file("dirty_ratio"), "20\n").unwrap();
        let before = setting.read(&machine).unwrap();
        assert_eq!(before, "ratio 20");
        setting.write(&machine, "bytes 268435456").unwrap();
        assert_eq!(fs::read_to_string(file("dirty_bytes")).unwrap(), "268435456");
        fs::write(file("dirty_ratio"), "0\n").unwrap();
        assert_eq!(setting.read(&machine).unwrap(), "bytes 268435456");
        setting.write(&machine, &before).unwrap();
        assert_eq!(fs::read_to_string(file("dirty_ratio")).unwrap(), "20");
        assert_eq!(setting.shell("bytes 268435456"), "sysctl -w vm.dirty_bytes=268435456");
        assert_eq!(setting.shell(&before), "sysctl -w vm.dirty_ratio=20");
        for nonsense in ["", "20", "bytes many", "bytes 1 2"] {
            assert!(setting.write(&machine, nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn of_a_choice_the_chosen_word_is_the_value() {
        assert_eq!(chosen("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(chosen("performance"), "performance");
        assert_eq!(chosen("4096 87380 6291456"), "4096 87380 6291456");
    }
}
