//! The disks of a machine that hold data, and what is mounted from them.

use crate::tune::Machine;

/// The kind of a disk, by which settings it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A disk with heads, which are slow from one far place to another.
    Rotating,
    Ssd,
    Nvme,
    /// Several disks behind a controller, one to the kernel.
    HardwareRaid,
    /// A virtual disk; the hypervisor alone knows what is behind it.
    Virtual,
    /// A device over other disks: md or device mapper.
    Stacked,
}

impl Kind {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Rotating => "rotating disk",
            Self::Ssd => "SSD",
            Self::Nvme => "NVMe",
            Self::HardwareRaid => "RAID controller",
            Self::Virtual => "virtual disk",
            Self::Stacked => "over other disks",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Whether the kernel takes the disk for one with heads.
    pub(crate) rotational: bool,
}

impl Disk {
    pub(crate) fn path(&self, file: &str) -> String {
        format!("/sys/block/{}/{file}", self.name)
    }

    /// Whether the disk has heads to move, as far as can be told.
    pub(crate) fn seeks(&self) -> bool {
        match self.kind {
            Kind::Rotating | Kind::HardwareRaid => true,
            Kind::Stacked => self.rotational,
            Kind::Ssd | Kind::Nvme | Kind::Virtual => false,
        }
    }
}

/// Beginnings of names of devices that hold no transfer's data: made of memory or files, or
/// removable.
const OTHERS: [&str; 6] = ["loop", "ram", "zram", "sr", "fd", "nbd"];
/// Words in the vendor and the model of disks that RAID controllers show (SCSI INQUIRY).
const RAID_WORDS: [&str; 8] =
    ["PERC", "MegaRAID", "MR9", "AVAGO", "LOGICAL VOLUME", "ServeRAID", "RAID", "Adaptec"];
const VIRTUAL_WORDS: [&str; 6] = ["QEMU", "VMware", "Msft", "VBOX", "Google", "Amazon Elastic"];

/// Real disks, and those that are stacked over them, by name. Empty slots and removable ones are
/// left out.
pub(crate) fn disks(machine: &Machine) -> Vec<Disk> {
    machine.names("/sys/block").into_iter().filter_map(|name| disk(machine, name)).collect()
}

fn disk(machine: &Machine, name: String) -> Option<Disk> {
    let number = |file: &str| machine.number(&format!("/sys/block/{name}/{file}")).ok();
    let is_kind = |kind: &str| {
        name.strip_prefix(kind).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let is_other = OTHERS.iter().any(|kind| is_kind(kind));
    let is_empty = number("size") == Some(0);
    if is_other || is_empty || number("removable") == Some(1) || number("hidden") == Some(1) {
        return None;
    }
    let rotational = number("queue/rotational") == Some(1);
    let text =
        |file: &str| machine.text(&format!("/sys/block/{name}/device/{file}")).unwrap_or_default();
    let label = format!("{} {}", text("vendor"), text("model"));
    let says = |words: &[&str]| words.iter().any(|word| label.contains(word));
    let kind = if ["md", "dm-"].iter().any(|kind| is_kind(kind)) {
        Kind::Stacked
    } else if !machine.exists(&format!("/sys/block/{name}/device")) {
        return None;
    } else if name.starts_with("vd") || name.starts_with("xvd") || says(&VIRTUAL_WORDS) {
        Kind::Virtual
    } else if name.starts_with("nvme") {
        Kind::Nvme
    } else if says(&RAID_WORDS) {
        Kind::HardwareRaid
    } else if rotational {
        Kind::Rotating
    } else {
        Kind::Ssd
    };
    Some(Disk { name, kind, rotational })
}

/// A file system of a real disk that is mounted to be written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) point: String,
    pub(crate) kind: String,
    /// Options of the mount, then of the file system.
    pub(crate) options: Vec<String>,
    pub(crate) disk: Disk,
}

impl Mount {
    pub(crate) fn has(&self, option: &str) -> bool {
        self.options.iter().any(|one| one == option)
    }
}

/// Mounts of the disks' file systems, each file system once. Those that only start the machine, and
/// what is bound into a container, are left out (proc_pid_mountinfo(5)).
pub(crate) fn mounts(machine: &Machine) -> Vec<Mount> {
    let disks = disks(machine);
    let table = machine.text("/proc/self/mountinfo").unwrap_or_default();
    let mut seen = Vec::new();
    let mut mounts = Vec::new();
    for line in table.lines() {
        let Some((device, mount)) = mount(machine, &disks, line) else { continue };
        if !seen.contains(&device) {
            seen.push(device);
            mounts.push(mount);
        }
    }
    mounts
}

/// Reads a line of mountinfo, `36 25 8:1 / /data rw,noatime shared:1 - xfs /dev/sda1 rw,attr2`.
fn mount(machine: &Machine, disks: &[Disk], line: &str) -> Option<(String, Mount)> {
    let (of_mount, of_system) = line.split_once(" - ")?;
    let of_mount: Vec<&str> = of_mount.split(' ').collect();
    let [_, _, device, root, point, options, ..] = of_mount[..] else { return None };
    let of_system: Vec<&str> = of_system.split(' ').collect();
    let [kind, source, super_options, ..] = of_system[..] else { return None };
    let point = unescaped(point);
    let starts = ["/boot", "/efi"].iter().any(|path| {
        point.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    // Of btrfs a subvolume is mounted as others are from their root.
    if starts || (root != "/" && kind != "btrfs") || kind == "swap" {
        return None;
    }
    let options: Vec<String> =
        options.split(',').chain(super_options.split(',')).map(str::to_owned).collect();
    if options.iter().any(|option| option == "ro") {
        return None;
    }
    let disk = disks.iter().find(|disk| holds(machine, disk, device, source))?.clone();
    Some((source.to_owned(), Mount { point, kind: kind.to_owned(), options, disk }))
}

/// Whether the device is the disk, or a partition of it. btrfs shows a number of its own, so there
/// the name counts, which for the device mapper is another one.
fn holds(machine: &Machine, disk: &Disk, device: &str, source: &str) -> bool {
    let is = |file: String, text: &str| machine.text(&file).is_ok_and(|found| found == text);
    if !device.starts_with("0:") {
        return is(disk.path("dev"), device)
            || partitions(machine, disk)
                .iter()
                .any(|partition| is(disk.path(&format!("{partition}/dev")), device));
    }
    let Some(name) = source.strip_prefix("/dev/") else { return false };
    name == disk.name
        || partitions(machine, disk).iter().any(|partition| partition == name)
        || name.strip_prefix("mapper/").is_some_and(|name| is(disk.path("dm/name"), name))
}

fn partitions(machine: &Machine, disk: &Disk) -> Vec<String> {
    let mut names = machine.names(&format!("/sys/block/{}", disk.name));
    names.retain(|name| name.starts_with(&disk.name));
    names
}

/// Devices stacked over the disk or one of its partitions: md0, dm-1.
pub(crate) fn holders(machine: &Machine, disk: &Disk) -> Vec<String> {
    let mut holders = machine.names(&disk.path("holders"));
    for partition in partitions(machine, disk) {
        holders.extend(machine.names(&disk.path(&format!("{partition}/holders"))));
    }
    holders.sort_unstable();
    holders.dedup();
    holders
}

/// Decodes characters that the kernel writes as three octal digits, such as `\040` for a blank.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let sign = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match sign {
            Some(sign) if byte == b'\\' => {
                bytes.push(sign);
                rest = &after[3..];
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::stored;

    #[test]
    fn disks_are_told_from_what_only_looks_like_one() {
        let host = stored::host(&[
            ("sys/block/loop0/queue/rotational", "0\n"),
            ("sys/block/zram0/queue/rotational", "0\n"),
            ("sys/block/sr0/device/vendor", "HL-DT-ST\n"),
            ("sys/block/sda/queue/rotational", "1\n"),
            ("sys/block/sda/device/model", "ST16000NM001G\n"),
            ("sys/block/sdb/queue/rotational", "1\n"),
            ("sys/block/sdb/device/model", "PERC H730P\n"),
            ("sys/block/sdc/device/model", "Flash Disk\n"),
            ("sys/block/sdc/removable", "1\n"),
            ("sys/block/sdd/size", "0\n"),
            ("sys/block/sdd/device/model", "Reader\n"),
            ("sys/block/nvme0n1/device/model", "A drive\n"),
            ("sys/block/nvme0c0n1/hidden", "1\n"),
            ("sys/block/nvme0c0n1/device/model", "A drive\n"),
            ("sys/block/nvme1n1/device/model", "Amazon Elastic Block Store\n"),
            ("sys/block/vda/device/vendor", "0x1af4\n"),
            ("sys/block/vda/queue/rotational", "1\n"),
            ("sys/block/md0/queue/rotational", "1\n"),
            ("sys/block/dm-0/queue/rotational", "0\n"),
        ]);
        let found = disks(&host.machine());
        let found: Vec<_> = found.iter().map(|disk| (&disk.name[..], disk.kind)).collect();
        let expected = [
            ("dm-0", Kind::Stacked),
            ("md0", Kind::Stacked),
            ("nvme0n1", Kind::Nvme),
            ("nvme1n1", Kind::Virtual),
            ("sda", Kind::Rotating),
            ("sdb", Kind::HardwareRaid),
            ("vda", Kind::Virtual),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_mount_is_on_a_disk_by_its_partition_or_the_mappers_name() {
        let table = "\
            22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw\n\
            23 22 8:1 / /boot rw,relatime - ext4 /dev/sda1 rw\n\
            24 22 8:2 /etc/hosts /etc/hosts rw,relatime - ext4 /dev/sda2 rw\n\
            25 22 0:50 /@a /big\\040data rw,noatime - btrfs /dev/mapper/vg-data rw,subvol=/@a\n\
            26 22 0:51 / /tmp rw - tmpfs tmpfs rw\n\
            27 22 8:2 / /again rw,relatime - ext4 /dev/sda2 rw\n\
            28 22 8:3 / /old ro - xfs /dev/sda3 ro\n\
            29 22 odd\n";
        let host = stored::host(&[
            ("proc/self/mountinfo", table),
            ("sys/block/sda/dev", "8:0\n"),
            ("sys/block/sda/device/model", "ST16000NM001G\n"),
            ("sys/block/sda/sda1/dev", "8:1\n"),
            ("sys/block/sda/sda2/dev", "8:2\n"),
            ("sys/block/sda/sda3/dev", "8:3\n"),
            ("sys/block/sda/sda3/holders/dm-0", ""),
            ("sys/block/dm-0/dev", "253:0\n"),
            ("sys/block/dm-0/dm/name", "vg-data\n"),
        ]);
        let machine = host.machine();
        let found = mounts(&machine);
        let found: Vec<_> =
            found.iter().map(|mount| (&mount.point[..], &mount.disk.name[..])).collect();
        assert_eq!(found, [("/", "sda"), ("/big data", "dm-0")]);
        let disk = disks(&machine).into_iter().find(|disk| disk.name == "sda").unwrap();
        assert_eq!(holders(&machine, &disk), ["dm-0"]);
    }

    #[test]
    fn escapes_that_make_no_sense_stay_as_they_are() {
        for (text, expected) in
            [("/a\\040b", "/a b"), ("/a\\", "/a\\"), ("/a\\9", "/a\\9"), ("/a\\777", "/a\\777")]
        {
            assert_eq!(unescaped(text), expected);
        }
    }
}
