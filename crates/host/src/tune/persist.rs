//! Files that repeat the changes at the next boot: sysctl.d, udev rules, a systemd unit.
//!
//! Each is written anew from all that the ledger says was changed, so applying again, or some more,
//! leaves one consistent set.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{
    Machine,
    ledger::{Changed, Content, Standing},
    setting::{Setting, quoted},
};

const SYSCTL: &str = "etc/sysctl.d/90-haul-dtn.conf";
const UDEV: &str = "etc/udev/rules.d/90-haul-dtn.rules";
const SCRIPT: &str = "etc/haul/tune.sh";
const UNIT: &str = "etc/systemd/system/haul-tune.service";
/// The link that `systemctl enable` makes (the unit's WantedBy).
const WANTED: &str = "etc/systemd/system/multi-user.target.wants/haul-tune.service";

pub(super) const HEAD: &str =
    "# Written by haul tune; haul tune --undo takes it away. Changes here are lost.\n";

/// The place of the files for the next boot, and the way haul is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Persisted {
    /// The root of the files: `/`, or that of an image that should boot with the changes.
    pub root: PathBuf,
    /// The program and the words that name the goal, for checks that have to look anew at each
    /// boot.
    pub again: Vec<String>,
}

/// Matches of udev rules by disk: `sda` may be another one at the next boot.
type Disks = BTreeMap<String, String>;

/// Numbers that disks carry, as udev(7) matches them: of an NVMe or a virtio disk, of one below
/// SCSI, of an array.
const LASTING: [(&str, &str); 5] = [
    ("wwid", "ATTR{wwid}"),
    ("device/wwid", "ATTRS{wwid}"),
    ("serial", "ATTR{serial}"),
    ("device/serial", "ATTRS{serial}"),
    ("md/uuid", "ATTR{md/uuid}"),
];

/// Finds a lasting match for each disk in `standing` that has a number no other disk has.
fn lasting_names(machine: &Machine, standing: &Standing) -> Disks {
    let all = machine.names("/sys/block");
    let number = |disk: &str, file: &str| {
        let number = machine.text(&format!("/sys/block/{disk}/{file}")).ok()?;
        let plain = |sign: char| sign.is_ascii_graphic() && !"\"\\*?[]|".contains(sign);
        (!number.is_empty() && number.chars().all(|c| plain(c) || c == ' ')).then_some(number)
    };
    let lasting = |disk: &str| {
        LASTING.iter().find_map(|(file, key)| {
            let own = number(disk, file)?;
            let is_alone = !all.iter().any(|other| {
                other != disk && number(other, file).is_some_and(|number| number == own)
            });
            is_alone.then(|| format!("{key}==\"{own}\""))
        })
    };
    let paths = standing.settings.iter().filter_map(|changed| changed.setting.path());
    let disks = paths
        .filter_map(|path| Some(path.strip_prefix("/sys/block/")?.split_once('/')?.0.to_owned()));
    disks.filter_map(|disk| Some((disk.clone(), lasting(&disk)?))).collect()
}

/// Contents of each file, in the order of writing. A file without lines is taken away.
#[must_use]
pub fn files(
    machine: &Machine,
    standing: &Standing,
    persisted: &Persisted,
) -> Vec<(PathBuf, Content)> {
    let mut lines = Lines { disks: lasting_names(machine, standing), ..Lines::default() };
    for changed in &standing.settings {
        lines.add(changed);
    }
    let has_to_look = !lines.again.is_empty() && !persisted.again.is_empty();
    let has_script = !lines.script.is_empty() || has_to_look;
    let text = |lines: &[String]| match lines {
        [] => Content::Nothing,
        lines => Content::Text(format!("{HEAD}{}\n", lines.join("\n"))),
    };
    let script = if has_script {
        Content::Text(lines.script_text(&persisted.again))
    } else {
        Content::Nothing
    };
    let (unit, wanted) = if has_script {
        (Content::Text(unit()), Content::Link(Path::new("/").join(UNIT)))
    } else {
        (Content::Nothing, Content::Nothing)
    };
    let all = [
        (SYSCTL, text(&lines.sysctl)),
        (UDEV, text(&lines.udev)),
        (SCRIPT, script),
        (UNIT, unit),
        (WANTED, wanted),
    ];
    all.map(|(path, content)| (persisted.root.join(path), content)).to_vec()
}

#[derive(Debug, Default)]
struct Lines {
    disks: Disks,
    sysctl: Vec<String>,
    udev: Vec<String>,
    script: Vec<String>,
    /// Names of checks that have to look again at each boot.
    again: Vec<String>,
}

impl Lines {
    fn add(&mut self, changed: &Changed) {
        let Changed { check, setting, new, .. } = changed;
        match setting {
            Setting::Sysctl(_) | Setting::DirtyLimit { .. } => {
                self.sysctl
                    .extend(setting.sysctl_of(new).map(|(name, new)| format!("{name} = {new}")));
            }
            // The numbers of interrupts are given out anew at each boot.
            Setting::File(path) if path.starts_with("/proc/irq/") => {
                if !self.again.contains(check) {
                    self.again.push(check.clone());
                }
            }
            Setting::File(path) => match self.udev_attribute(path) {
                Some((matches, attribute)) => self.udev.push(format!(
                    "ACTION==\"add|change|move\", {matches}, ATTR{{{attribute}}}=\"{new}\""
                )),
                None => self.script.push(setting.shell(new)),
            },
            Setting::Ring { card, .. }
            | Setting::Offload { card, .. }
            | Setting::Pause { card, .. } => self.udev.push(format!(
                "ACTION==\"add|move\", SUBSYSTEM==\"net\", KERNEL==\"{card}\", \
                 RUN+=\"/usr/sbin/{}\"",
                setting.shell(new)
            )),
            Setting::Qdisc { .. } | Setting::Link { .. } => self.script.push(setting.shell(new)),
            // systemctl enable and disable keep it themselves.
            Setting::Service { .. } => {}
        }
    }

    /// Finds what udev can set when the device appears (udev(7)), such as
    /// `SUBSYSTEM=="net", KERNEL=="eth0"` and `mtu`.
    fn udev_attribute<'a>(&self, path: &'a str) -> Option<(String, &'a str)> {
        for (prefix, subsystem) in [("/sys/block/", "block"), ("/sys/class/net/", "net")] {
            let device = path.strip_prefix(prefix).and_then(|path| path.split_once('/'));
            if let Some((device, attribute)) = device {
                let matches = match self.disks.get(device) {
                    // Partitions have the number of their disk, and no queue.
                    Some(lasting) => format!("ENV{{DEVTYPE}}==\"disk\", {lasting}"),
                    None => format!("KERNEL==\"{device}\""),
                };
                return Some((format!("SUBSYSTEM==\"{subsystem}\", {matches}"), attribute));
            }
        }
        None
    }

    /// The text of the script that runs at boot; a line that fails does not keep the others from
    /// being done.
    fn script_text(&self, again: &[String]) -> String {
        let mut text = format!("#!/bin/sh\n{HEAD}status=0\n");
        for line in &self.script {
            text.push_str(&format!("{line} || status=1\n"));
        }
        if let ([program, words @ ..], false) = (again, self.again.is_empty()) {
            let words: String = words.iter().map(|word| format!(" {}", quoted(word))).collect();
            let program = quoted(program);
            let checks = self.again.join(",");
            text.push_str(&format!(
                "{program} tune --apply={checks} --this-boot{words} || status=1\n"
            ));
        }
        text + "exit $status\n"
    }
}

fn unit() -> String {
    format!(
        "{HEAD}[Unit]\nDescription=Settings that haul tune applied\n\
        Wants=network-online.target\nAfter=network-online.target\n\n\
        [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh /{SCRIPT}\n\n\
        [Install]\nWantedBy=multi-user.target\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(changes: &[(Setting, &str)]) -> Standing {
        let changed = |(setting, new): &(Setting, &str)| Changed {
            check: "a-check".to_owned(),
            setting: setting.clone(),
            old: "old".to_owned(),
            new: (*new).to_owned(),
        };
        Standing { settings: changes.iter().map(changed).collect(), ..Standing::default() }
    }

    fn text_of(changes: &[(Setting, &str)], path: &str) -> Option<String> {
        let again = ["/usr/bin/haul", "--rtt", "80ms"].map(str::to_owned).to_vec();
        let persisted = Persisted { root: PathBuf::from("/"), again };
        let machine = Machine::below(Path::new("/nowhere"));
        let all = files(&machine, &standing(changes), &persisted);
        let (_, content) = all.into_iter().find(|(name, _)| name.ends_with(path)).unwrap();
        match content {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }

    #[test]
    fn each_kind_of_setting_goes_where_the_next_boot_finds_it() {
        let card = || "eth0".to_owned();
        let changes = [
            (Setting::sysctl("net.ipv4.tcp_rmem"), "4096 87380 33554432"),
            (Setting::DirtyLimit { name: "vm.dirty".to_owned() }, "bytes 1073741824"),
            (Setting::file("/sys/block/sda/queue/scheduler"), "mq-deadline"),
            (Setting::file("/sys/class/net/eth0/mtu"), "9000"),
            (Setting::Ring { card: card(), ring: "rx".to_owned() }, "4096"),
            (Setting::file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"), "performance"),
            (Setting::file("/proc/irq/42/smp_affinity_list"), "3"),
        ];
        let sysctl = text_of(&changes, SYSCTL).unwrap();
        assert!(sysctl.contains("\nnet.ipv4.tcp_rmem = 4096 87380 33554432\n"), "{sysctl}");
        assert!(sysctl.ends_with("\nvm.dirty_bytes = 1073741824\n"), "{sysctl}");
        let udev = text_of(&changes, UDEV).unwrap();
        assert!(udev.contains("KERNEL==\"sda\", ATTR{queue/scheduler}=\"mq-deadline\""), "{udev}");
        assert!(udev.contains("KERNEL==\"eth0\", ATTR{mtu}=\"9000\""), "{udev}");
        assert!(udev.contains("RUN+=\"/usr/sbin/ethtool -G eth0 rx 4096\""), "{udev}");
        let script = text_of(&changes, SCRIPT).unwrap();
        assert!(script.contains("echo performance > /sys/devices/system/cpu/cpu0"), "{script}");
        // An interrupt's number is another one after a boot.
        assert!(!script.contains("irq"), "{script}");
        let again = "/usr/bin/haul tune --apply=a-check --this-boot --rtt 80ms || status=1\n";
        assert!(script.contains(again), "{script}");
        assert!(text_of(&changes, UNIT).is_some());
    }

    #[test]
    fn a_disk_is_known_by_the_number_that_no_other_has() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("nvme0n1/wwid", "eui.0025385b71b00001\n"),
            ("nvme0n1/device/serial", "S4EV\n"),
            ("sda/device/wwid", "naa.5000c500a0b1c2d3\n"),
            ("sdb/device/wwid", "t10.ATA \"odd\"\n"),
            ("vda/serial", "twin\n"),
            ("vdb/serial", "twin\n"),
        ] {
            let path = root.path().join("sys/block").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let machine = Machine::below(root.path());
        for (disk, matches) in [
            ("nvme0n1", "ENV{DEVTYPE}==\"disk\", ATTR{wwid}==\"eui.0025385b71b00001\""),
            ("sda", "ENV{DEVTYPE}==\"disk\", ATTRS{wwid}==\"naa.5000c500a0b1c2d3\""),
            ("sdb", "KERNEL==\"sdb\""),
            ("vda", "KERNEL==\"vda\""),
        ] {
            let setting = Setting::file(format!("/sys/block/{disk}/queue/read_ahead_kb"));
            let standing = standing(&[(setting, "8192")]);
            let persisted = Persisted { root: PathBuf::from("/"), again: vec![] };
            let all = files(&machine, &standing, &persisted);
            let Content::Text(rules) = &all[1].1 else { panic!("no rules") };
            let rule = format!("\"block\", {matches}, ATTR{{queue/read_ahead_kb}}=\"8192\"");
            assert!(rules.contains(&rule), "{rules}");
        }
    }

    #[test]
    fn without_a_change_of_its_kind_a_file_is_taken_away() {
        let changes = [(Setting::sysctl("net.core.rmem_max"), "1")];
        assert!(text_of(&changes, SYSCTL).is_some());
        for path in [UDEV, SCRIPT, UNIT, WANTED] {
            assert_eq!(text_of(&changes, path), None);
        }
    }
}
