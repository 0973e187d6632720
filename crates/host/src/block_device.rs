//! The storage below a directory: which disk, of what kind, and how the kernel is set for it.
//!
//! Read from /proc/self/mountinfo and /sys below a root that tests replace. What is missing there
//! is `None` and never an error: containers hide a part of /sys, and btrfs and ZFS number their
//! devices themselves.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{below, number, text};

/// Levels of stacked devices that are followed: RAID on LVM on encryption is three, and a loop of
/// links ends here.
const LEVELS_MAX: usize = 8;
/// Members of one device that are looked at, at most.
const MEMBERS_MAX: usize = 64;
/// The unit in which the kernel counts a device's size, whatever its own are (block/genhd.c).
const SECTOR_BYTES: u64 = 512;

/// The kind of a disk: how it is attached, or what stands in for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    Nvme,
    /// A SCSI, SAS, SATA or USB disk: the kernel drives them alike.
    Scsi,
    /// A disk that a hypervisor provides (virtio).
    Virtio,
    Xen,
    /// An SD card or eMMC.
    Mmc,
    /// Linux software RAID (md).
    Raid,
    /// A device of the device mapper: LVM, dm-crypt, multipath.
    Mapped,
    /// A file that is used as a disk.
    Loop,
    /// RAM as a disk, compressed or not.
    Memory,
    /// A disk of another host: nbd, rbd, drbd.
    Network,
    Other,
}

/// Kinds of disks by the beginning of their name (Documentation/admin-guide/devices.txt).
const KINDS: [(&str, DeviceKind); 15] = [
    ("nvme", DeviceKind::Nvme),
    ("sd", DeviceKind::Scsi),
    ("sr", DeviceKind::Scsi),
    ("vd", DeviceKind::Virtio),
    ("xvd", DeviceKind::Xen),
    ("mmcblk", DeviceKind::Mmc),
    ("md", DeviceKind::Raid),
    ("dm-", DeviceKind::Mapped),
    ("loop", DeviceKind::Loop),
    ("zram", DeviceKind::Memory),
    ("ram", DeviceKind::Memory),
    ("pmem", DeviceKind::Memory),
    ("nbd", DeviceKind::Network),
    ("rbd", DeviceKind::Network),
    ("drbd", DeviceKind::Network),
];

impl DeviceKind {
    /// Tells the kind of a disk from its name in /sys/block, such as `nvme0n1` or `md127`.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        KINDS.iter().find(|(prefix, _)| name.starts_with(prefix)).map_or(Self::Other, |kind| kind.1)
    }

    /// The name of the kind in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nvme => "NVMe",
            Self::Scsi => "SCSI or SATA",
            Self::Virtio => "virtio",
            Self::Xen => "Xen",
            Self::Mmc => "MMC",
            Self::Raid => "RAID",
            Self::Mapped => "device mapper",
            Self::Loop => "loop",
            Self::Memory => "memory",
            Self::Network => "network",
            Self::Other => "unknown",
        }
    }
}

/// The way a disk treats what is written to it, as it told the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCache {
    /// The disk answers before the bytes are durable, so a sync has to empty its cache.
    Back,
    /// The disk answers once the bytes are durable; it may have a cache that survives a power cut.
    Through,
}

impl WriteCache {
    /// The name of the kind of cache in /sys/block/NAME/queue/write_cache.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Back => "write back",
            Self::Through => "write through",
        }
    }
}

/// A disk, or what stands in for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    /// The name in /sys/block, for a partition that of its disk.
    pub name: String,
    pub kind: DeviceKind,
    /// Vendor and model, the name of a mapping, the file behind a loop device.
    pub model: Option<String>,
    /// The level of a RAID (`raid0`), the kind of a mapping (`LVM`, `CRYPT`, `mpath`).
    pub level: Option<String>,
    /// Members that a RAID has lost.
    pub degraded: Option<u64>,
    pub size_bytes: Option<u64>,
    /// Whether the disk claims to rotate; virtual disks often do.
    pub rotational: Option<bool>,
    /// The I/O scheduler; `none` is one too.
    pub scheduler: Option<String>,
    pub readahead_bytes: Option<u64>,
    pub write_cache: Option<WriteCache>,
    /// The largest request that the kernel sends.
    pub request_bytes_max: Option<u64>,
    /// The number of requests that the kernel lets wait in one queue.
    pub requests_max: Option<u64>,
    /// The size of which O_DIRECT needs multiples.
    pub logical_block_bytes: Option<u64>,
    /// The disks that this one is made of.
    pub members: Vec<Self>,
}

/// The storage below a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Device(Box<BlockDevice>),
    /// Memory as storage (tmpfs, ramfs): there is no disk.
    Memory,
    /// A disk of another host; the network is between.
    Network,
    /// Layers over other directories; new files go into the upper one.
    Overlay {
        upper: Option<Box<Storage>>,
    },
    /// Storage without a device in /sys.
    Hidden,
}

/// A mounted file system and what it lies on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// The type as mount(8) calls it: `ext4`, `nfs4`; empty where /proc does not tell.
    pub file_system: String,
    /// The mounted object: a device, `server:/export`, the name of a pool.
    pub source: String,
    /// Options of the mount and of the file system, in their order.
    pub options: Vec<String>,
    pub place: Place,
}

/// File systems whose disks are elsewhere, as mount(8) calls them.
const NETWORK_KINDS: [&str; 18] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "ceph",
    "9p",
    "afs",
    "ncpfs",
    "lustre",
    "gpfs",
    "beegfs",
    "glusterfs",
    "orangefs",
    "virtiofs",
    "gfs2",
    "ocfs2",
    "coda",
];

impl Storage {
    /// Reads the storage of the directory `path`, absolute and without links, on the device of
    /// these numbers (stat(2)).
    #[must_use]
    pub fn of(root: &Path, path: &Path, major: u32, minor: u32) -> Self {
        let mounts = text(&below(root, "/proc/self/mountinfo")).unwrap_or_default();
        Self::within(root, &mounts, path, Some((major, minor)), LEVELS_MAX)
    }

    fn within(
        root: &Path,
        mounts: &str,
        path: &Path,
        device: Option<(u32, u32)>,
        levels: usize,
    ) -> Self {
        let mount = Mount::of(mounts, path, device).unwrap_or_default();
        let place = match mount.kind.as_str() {
            "tmpfs" | "ramfs" | "devtmpfs" | "hugetlbfs" => Place::Memory,
            kind if is_network(kind) => Place::Network,
            "overlay" => Place::Overlay { upper: mount.upper(root, mounts, levels) },
            _ => mount.device(root, device, levels),
        };
        Self { file_system: mount.kind, source: mount.source, options: mount.options, place }
    }

    /// The disk below the storage, through an overlay too.
    #[must_use]
    pub fn device(&self) -> Option<&BlockDevice> {
        match &self.place {
            Place::Device(device) => Some(device),
            Place::Overlay { upper } => upper.as_ref()?.device(),
            Place::Memory | Place::Network | Place::Hidden => None,
        }
    }
}

fn is_network(kind: &str) -> bool {
    // fuse.sshfs, fuse.s3fs, fuse.glusterfs; fuseblk (ntfs-3g) has a disk.
    NETWORK_KINDS.contains(&kind) || kind.starts_with("fuse.")
}

/// A line of /proc/self/mountinfo (proc_pid_mountinfo(5)).
#[derive(Debug, Default)]
struct Mount {
    device: String,
    point: PathBuf,
    kind: String,
    source: String,
    options: Vec<String>,
}

impl Mount {
    fn parse(line: &str) -> Option<Self> {
        let (place, what) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(2);
        let mut what = what.split(' ');
        let (device, _root, point, options) =
            (place.next()?, place.next()?, place.next()?, place.next()?);
        let (kind, source) = (what.next()?, what.next()?);
        let own = options.split(',').chain(what.next().unwrap_or_default().split(','));
        let mut options: Vec<String> = Vec::new();
        for option in own.filter(|option| !option.is_empty()) {
            if !options.iter().any(|known| known == option) {
                options.push(option.to_owned());
            }
        }
        Some(Self {
            device: device.to_owned(),
            point: PathBuf::from(unescaped(point)),
            kind: kind.to_owned(),
            source: unescaped(source),
            options,
        })
    }

    /// The mount that `path` is in: of those on its device, where there are such, the deepest, and
    /// of those the one that was mounted last.
    fn of(mounts: &str, path: &Path, device: Option<(u32, u32)>) -> Option<Self> {
        let parsed = || mounts.lines().filter_map(Self::parse);
        let deepest = |mounts: &mut dyn Iterator<Item = Self>| {
            mounts
                .filter(|mount| path.starts_with(&mount.point))
                .max_by_key(|mount| mount.point.components().count())
        };
        let numbers = device.map(|(major, minor)| format!("{major}:{minor}"));
        let same = |mount: &Self| numbers.as_ref().is_some_and(|numbers| *numbers == mount.device);
        // btrfs gives files other numbers than its mount has.
        deepest(&mut parsed().filter(same)).or_else(|| deepest(&mut parsed()))
    }

    fn upper(&self, root: &Path, mounts: &str, levels: usize) -> Option<Box<Storage>> {
        let upper = self.options.iter().find_map(|option| option.strip_prefix("upperdir="))?;
        // In a container the directory is one of the host's, which cannot be seen from inside.
        let is_here = levels > 0 && below(root, upper).is_dir();
        is_here.then(|| {
            let upper = Path::new(upper);
            Box::new(Storage::within(root, mounts, upper, None, levels - 1))
        })
    }

    fn device(&self, root: &Path, numbers: Option<(u32, u32)>, levels: usize) -> Place {
        let by_numbers = |(major, minor): (u32, u32)| {
            let link = below(root, "/sys/dev/block").join(format!("{major}:{minor}"));
            BlockDevice::at(&link, levels)
        };
        let of_mount = || {
            let (major, minor) = self.device.split_once(':')?;
            by_numbers((major.parse().ok()?, minor.parse().ok()?))
        };
        // Several devices are written with a colon between them (bcachefs).
        let by_source = || {
            let first = self.source.split(':').next()?;
            let node = below(root, first.strip_prefix("/dev/").map(|_| first)?);
            let node = fs::canonicalize(&node).unwrap_or(node);
            let name = node.file_name()?;
            BlockDevice::at(&below(root, "/sys/class/block").join(name), levels)
        };
        let found = numbers.and_then(by_numbers).or_else(of_mount).or_else(by_source);
        found.map_or(Place::Hidden, |device| Place::Device(Box::new(device)))
    }
}

/// Decodes a blank, a tab, a line's end and a backslash, which the kernel writes as three octal
/// digits.
fn unescaped(text: &str) -> String {
    let codes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    codes.iter().fold(text.to_owned(), |text, (code, character)| text.replace(code, character))
}

impl BlockDevice {
    /// Reads the disk at a directory of /sys, or at a link to one; a partition leads to its disk.
    fn at(link: &Path, levels: usize) -> Option<Self> {
        let directory = fs::canonicalize(link).ok()?;
        let disk = if directory.join("queue").is_dir() {
            directory
        } else {
            let parent = directory.parent()?;
            parent.join("queue").is_dir().then(|| parent.to_owned())?
        };
        let name = disk.file_name()?.to_str()?.to_owned();
        let kind = DeviceKind::from_name(&name);
        let queue = disk.join("queue");
        let kib = |name| number(&queue.join(name)).map(|kib| kib.saturating_mul(1024));
        Some(Self {
            kind,
            model: model(&disk, kind),
            level: level(&disk),
            degraded: number(&disk.join("md/degraded")),
            size_bytes: number(&disk.join("size")).map(|size| size.saturating_mul(SECTOR_BYTES)),
            rotational: number(&queue.join("rotational")).map(|value| value != 0),
            scheduler: text(&queue.join("scheduler")).and_then(|text| chosen(&text)),
            readahead_bytes: kib("read_ahead_kb"),
            write_cache: text(&queue.join("write_cache")).and_then(|text| match text.trim() {
                "write back" => Some(WriteCache::Back),
                "write through" => Some(WriteCache::Through),
                _ => None,
            }),
            request_bytes_max: kib("max_sectors_kb"),
            requests_max: number(&queue.join("nr_requests")),
            logical_block_bytes: number(&queue.join("logical_block_size")),
            members: members(&disk, levels),
            name,
        })
    }

    /// Whether the disk rotates, or any of the disks that it is made of.
    #[must_use]
    pub fn rotates(&self) -> Option<bool> {
        let members = self.members.iter().filter_map(Self::rotates);
        members.reduce(|one, other| one || other).or(self.rotational)
    }
}

fn words(path: &Path) -> Option<String> {
    let text = text(path)?;
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (!words.is_empty()).then_some(words)
}

fn model(disk: &Path, kind: DeviceKind) -> Option<String> {
    match kind {
        DeviceKind::Mapped => words(&disk.join("dm/name")),
        DeviceKind::Loop => words(&disk.join("loop/backing_file")),
        _ => {
            let model = words(&disk.join("device/model"))?;
            // Of a SATA disk this is "ATA", which names nobody.
            let vendor = words(&disk.join("device/vendor"));
            let vendor = vendor.filter(|vendor| vendor != "ATA" && !vendor.starts_with("0x"));
            Some(vendor.map_or_else(|| model.clone(), |vendor| format!("{vendor} {model}")))
        }
    }
}

/// The level of a RAID, or the kind of a mapping: what stands before the first dash of its uuid
/// (`LVM-...`, `CRYPT-LUKS2-...`).
fn level(disk: &Path) -> Option<String> {
    let mapped = || {
        let uuid = words(&disk.join("dm/uuid"))?;
        uuid.split('-').next().map(str::to_owned)
    };
    words(&disk.join("md/level")).or_else(mapped)
}

/// The scheduler in brackets of `none [mq-deadline] kyber`, or the only one.
fn chosen(schedulers: &str) -> Option<String> {
    let mut names = schedulers.split_whitespace();
    let bracketed = names.clone().find_map(|name| name.strip_prefix('[')?.strip_suffix(']'));
    bracketed.or_else(|| names.next()).map(str::to_owned)
}

fn members(disk: &Path, levels: usize) -> Vec<BlockDevice> {
    if levels == 0 {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(disk.join("slaves")) else { return Vec::new() };
    let mut links: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).take(MEMBERS_MAX).collect();
    links.sort();
    links.iter().filter_map(|link| BlockDevice::at(link, levels - 1)).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(mounts: &str) -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            tree.file("proc/self/mountinfo", mounts);
            tree
        }

        fn path(&self) -> &Path {
            self.0.path()
        }

        fn file(&self, name: &str, content: &str) {
            let path = self.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }

        /// Makes a disk with these files below its directory, and its links.
        fn disk(&self, name: &str, numbers: &str, files: &[(&str, &str)]) {
            let directory = format!("sys/devices/{name}");
            fs::create_dir_all(self.path().join(&directory).join("queue")).unwrap();
            for (file, content) in files {
                self.file(&format!("{directory}/{file}"), content);
            }
            self.link(&format!("sys/dev/block/{numbers}"), &format!("../../devices/{name}"));
            let own = Path::new(name).file_name().unwrap().to_str().unwrap();
            self.link(&format!("sys/class/block/{own}"), &format!("../../devices/{name}"));
        }

        fn link(&self, name: &str, target: &str) {
            let path = self.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(target, path).unwrap();
        }

        fn storage(&self, path: &str, major: u32, minor: u32) -> Storage {
            Storage::of(self.path(), Path::new(path), major, minor)
        }
    }

    #[test]
    fn an_nvme_disk_says_what_it_is_and_how_it_is_set() {
        let tree = Tree::new(
            "27 1 259:2 / / rw,noatime shared:1 - ext4 /dev/nvme0n1p2 rw\n\
             40 27 259:3 / /data rw,noatime - xfs /dev/nvme0n1p3 rw,noquota\n",
        );
        tree.disk(
            "nvme/nvme0n1",
            "259:0",
            &[
                ("queue/rotational", "0\n"),
                ("queue/scheduler", "[none] mq-deadline kyber\n"),
                ("queue/read_ahead_kb", "128\n"),
                ("queue/write_cache", "write back\n"),
                ("queue/max_sectors_kb", "512\n"),
                ("queue/nr_requests", "1023\n"),
                ("queue/logical_block_size", "4096\n"),
                ("size", "2048\n"),
                ("device/model", "FAST SSD 1   \n"),
                ("nvme0n1p3/partition", "3\n"),
            ],
        );
        tree.link("sys/dev/block/259:3", "../../devices/nvme/nvme0n1/nvme0n1p3");
        let found = tree.storage("/data/in/here", 259, 3);
        assert_eq!((found.file_system.as_str(), found.source.as_str()), ("xfs", "/dev/nvme0n1p3"));
        assert_eq!(found.options, ["rw", "noatime", "noquota"]);
        let device = found.device().unwrap();
        let expected = BlockDevice {
            name: "nvme0n1".to_owned(),
            kind: DeviceKind::Nvme,
            model: Some("FAST SSD 1".to_owned()),
            level: None,
            degraded: None,
            size_bytes: Some(1 << 20),
            rotational: Some(false),
            scheduler: Some("none".to_owned()),
            readahead_bytes: Some(128 << 10),
            write_cache: Some(WriteCache::Back),
            request_bytes_max: Some(512 << 10),
            requests_max: Some(1023),
            logical_block_bytes: Some(4096),
            members: Vec::new(),
        };
        assert_eq!(*device, expected);
    }

    #[test]
    fn a_mapping_on_a_raid_leads_to_disks_that_rotate() {
        let tree = Tree::new("27 1 253:0 / /raid rw - ext4 /dev/mapper/vg-data rw\n");
        let rotates =
            [("queue/rotational", "1\n"), ("device/vendor", "ATA"), ("device/model", "A")];
        tree.disk("sda", "8:0", &rotates);
        tree.disk("sdb", "8:16", &rotates);
        let md = [("md/level", "raid0\n"), ("md/degraded", "1\n"), ("queue/rotational", "0\n")];
        tree.disk("md0", "9:0", &md);
        tree.disk("dm-0", "253:0", &[("dm/name", "vg-data"), ("dm/uuid", "LVM-abc")]);
        tree.link("sys/devices/md0/slaves/sda", "../../sda");
        tree.link("sys/devices/md0/slaves/sdb", "../../sdb");
        tree.link("sys/devices/dm-0/slaves/md0", "../../md0");
        let found = tree.storage("/raid", 253, 0);
        let mapped = found.device().unwrap();
        assert_eq!(mapped.kind, DeviceKind::Mapped);
        assert_eq!(mapped.level.as_deref(), Some("LVM"));
        assert_eq!(mapped.model.as_deref(), Some("vg-data"));
        let raid = &mapped.members[0];
        assert_eq!((raid.kind, raid.level.as_deref()), (DeviceKind::Raid, Some("raid0")));
        assert_eq!(raid.degraded, Some(1));
        let names: Vec<&str> = raid.members.iter().map(|disk| disk.name.as_str()).collect();
        assert_eq!(names, ["sda", "sdb"]);
        assert_eq!(raid.members[0].model.as_deref(), Some("A"));
        assert_eq!((raid.rotational, mapped.rotates()), (Some(false), Some(true)));
    }

    #[test]
    fn members_that_lead_in_a_circle_end() {
        let tree = Tree::new("27 1 9:0 / / rw - ext4 /dev/md0 rw\n");
        tree.disk("md0", "9:0", &[]);
        tree.link("sys/devices/md0/slaves/md0", "../../md0");
        let found = tree.storage("/", 9, 0);
        let mut levels = 0;
        let mut device = found.device().unwrap();
        while let Some(member) = device.members.first() {
            (device, levels) = (member, levels + 1);
        }
        assert_eq!(levels, LEVELS_MAX);
    }

    #[test]
    fn btrfs_is_found_by_the_device_that_is_mounted() {
        let tree =
            Tree::new("27 1 0:35 /sub / rw - btrfs /dev/disk/by-label/big rw,compress=zstd\n");
        tree.disk("sda", "8:0", &[("sda2/partition", "2")]);
        tree.link("sys/class/block/sda2", "../../devices/sda/sda2");
        tree.file("dev/sda2", "");
        tree.link("dev/disk/by-label/big", "../../sda2");
        let found = tree.storage("/home", 0, 41);
        assert_eq!(found.device().unwrap().name, "sda");
        assert!(found.options.iter().any(|option| option == "compress=zstd"));
    }

    #[test]
    fn memory_networks_and_pools_have_no_disk() {
        let tree = Tree::new(
            "1 0 0:30 / /run rw - tmpfs none rw\n\
             2 0 0:31 / /net\\040work rw - nfs4 server:/export rw,vers=4.2\n\
             3 0 0:32 / /pool rw - zfs tank/data rw\n\
             4 0 0:33 / /far rw - fuse.sshfs host: rw\n",
        );
        assert_eq!(tree.storage("/run/x", 0, 30).place, Place::Memory);
        let network = tree.storage("/net work/x", 0, 31);
        assert_eq!((network.place, network.source.as_str()), (Place::Network, "server:/export"));
        assert_eq!(tree.storage("/pool", 0, 32).place, Place::Hidden);
        assert_eq!(tree.storage("/far", 0, 33).place, Place::Network);
    }

    #[test]
    fn an_overlay_writes_to_the_disk_of_its_upper_layer() {
        let tree = Tree::new(
            "1 0 8:0 / / rw - ext4 /dev/sda rw\n\
             2 1 0:50 / /merged rw - overlay overlay rw,lowerdir=/l,upperdir=/upper,workdir=/w\n\
             3 1 0:51 / /hidden rw - overlay overlay rw,lowerdir=/l,upperdir=/gone,workdir=/w\n",
        );
        tree.disk("sda", "8:0", &[]);
        fs::create_dir(tree.path().join("upper")).unwrap();
        let found = tree.storage("/merged/x", 0, 50);
        assert_eq!(found.file_system, "overlay");
        assert_eq!(found.device().unwrap().name, "sda");
        let hidden = tree.storage("/hidden", 0, 51);
        assert_eq!(hidden.place, Place::Overlay { upper: None });
    }

    #[test]
    fn of_two_mounts_at_one_place_the_last_is_seen() {
        let tree = Tree::new(
            "1 0 0:30 / / rw - tmpfs a rw\n2 0 0:31 / /x rw - nfs b rw\n\
             3 0 0:32 / /x rw - tmpfs c rw\n",
        );
        assert_eq!(tree.storage("/x", 0, 99).source, "c");
        assert_eq!(tree.storage("/x/y", 0, 31).source, "b");
        assert_eq!(tree.storage("/xy", 0, 99).source, "a");
    }

    #[test]
    fn a_host_that_tells_nothing_is_no_error() {
        let tree = Tree::new("nonsense\n1 2 - x\n27 1 8:0 / / rw - ext4 /dev/sda rw\n");
        assert_eq!(tree.storage("/x", 8, 0).place, Place::Hidden);
        tree.disk("sda", "8:0", &[("queue/rotational", "perhaps"), ("queue/scheduler", "")]);
        let found = tree.storage("/x", 8, 0);
        let device = found.device().unwrap();
        assert_eq!((device.rotational, &device.scheduler), (None, &None));
        let empty = Storage::of(Path::new("/nowhere-at-all"), Path::new("/x"), 8, 0);
        assert_eq!((empty.file_system.as_str(), empty.place), ("", Place::Hidden));
    }

    #[test]
    fn names_of_disks_tell_their_kind() {
        for (name, kind) in [
            ("nvme0n1", DeviceKind::Nvme),
            ("sda", DeviceKind::Scsi),
            ("vda", DeviceKind::Virtio),
            ("md127", DeviceKind::Raid),
            ("dm-3", DeviceKind::Mapped),
            ("zram0", DeviceKind::Memory),
            ("ublkb0", DeviceKind::Other),
        ] {
            assert_eq!(DeviceKind::from_name(name), kind, "{name}");
        }
        assert_eq!(chosen("none [mq-deadline] kyber\n").as_deref(), Some("mq-deadline"));
        assert_eq!(chosen("none\n").as_deref(), Some("none"));
    }
}
