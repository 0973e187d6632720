//! Explanations of a rate that fell: which cache or allowance fits what was seen.
//!
//! The kernel does not tell why a disk got slower. What is said is the explanation that fits the
//! way the bytes went, the limits of the page cache and the kind of device.

use super::course::{Cliff, Course};
use crate::{
    disk::setting::{Method, Operation},
    words,
};
use haul_host::block_device::{BlockDevice, DeviceKind, Place, Storage};
use serde::Serialize;

/// Bytes written at a cliff and not yet on the disk, as a share of the limit: writers are slowed
/// from halfway between the background limit and this one on (balance_dirty_pages in
/// mm/page-writeback.c), and a disk among several has only its part.
const NEAR_LIMIT: std::ops::RangeInclusive<f64> = 0.25..=1.5;

/// The cause that fits a fallen rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The page cache holds as many unwritten bytes as it may.
    PageCache,
    /// A cache of the disk or a controller is full, or flash leaves its fast mode.
    DeviceCache,
    /// The host of a virtual machine has a cache, or lets the disk be fast for a while only.
    Hypervisor,
    /// A file or another host stands behind the device.
    Elsewhere,
    /// The disk's inner tracks are shorter.
    Tracks,
    /// Other users of the disk, or the device's own tidying up.
    Disturbance,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    pub cause: Cause,
    /// The explanation in whole sentences.
    pub words: String,
}

/// Circumstances that an explanation needs beside the course.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'facts> {
    pub operation: Operation,
    pub method: Method,
    pub dirty_limit_bytes: u64,
    pub storage: &'facts Storage,
}

/// Explains a fallen rate; `None` where nothing fell.
#[must_use]
pub fn explain(course: &Course, facts: &Circumstances<'_>) -> Option<Explanation> {
    let way = if facts.method == Method::Buffered { "by way of" } else { "past" };
    let things = format!("{} {way} the page cache", facts.operation.things());
    match course {
        Course::TooShort | Course::Steady => None,
        Course::Cliff(cliff) => {
            let (cause, why) = of_cliff(cliff, facts);
            Some(Explanation {
                cause,
                words: format!(
                    "{things} fall from {} to {} after {} ({}) and stay there: {why}.",
                    words::gb_per_s(cliff.before_bytes_per_s),
                    words::gb_per_s(cliff.after_bytes_per_s),
                    words::bytes(cliff.at_bytes),
                    words::seconds(cliff.at_s),
                ),
            })
        }
        Course::Sinks { from_bytes_per_s, to_bytes_per_s } => {
            let rotates = facts.storage.device().and_then(BlockDevice::rotates) == Some(true);
            let (cause, why) = if rotates {
                (Cause::Tracks, "a rotating disk is slower towards its inner tracks")
            } else {
                (Cause::Disturbance, "a cache fills, the device gets hot, or others use it")
            };
            let (from, to) = (words::gb_per_s(*from_bytes_per_s), words::gb_per_s(*to_bytes_per_s));
            let words = format!("{things} sink bit by bit from {from} to {to}: {why}.");
            Some(Explanation { cause, words })
        }
        Course::Dip(dip) => Some(Explanation {
            cause: Cause::Disturbance,
            words: format!(
                "{things} dip from {} to {} between {} and {} and recover: others used the disk, \
                 or it tidied up.",
                words::gb_per_s(dip.usual_bytes_per_s),
                words::gb_per_s(dip.low_bytes_per_s),
                words::seconds(dip.from_s),
                words::seconds(dip.to_s),
            ),
        }),
    }
}

fn of_cliff(cliff: &Cliff, facts: &Circumstances<'_>) -> (Cause, String) {
    if facts.operation == Operation::Write && facts.method == Method::Buffered {
        let written_out = cliff.after_bytes_per_s * cliff.at_s;
        let waiting = (cliff.at_bytes as f64 - written_out).max(0.0);
        if NEAR_LIMIT.contains(&(waiting / facts.dirty_limit_bytes.max(1) as f64)) {
            let limit = words::bytes(facts.dirty_limit_bytes);
            let why = format!(
                "the page cache holds as much unwritten data as it may ({limit} by \
                 vm.dirty_ratio or vm.dirty_bytes), and from there on the disk sets the rate"
            );
            return (Cause::PageCache, why);
        }
    }
    let (cause, why) = match &facts.storage.place {
        Place::Network => (
            Cause::Elsewhere,
            "the server's cache is full, or its network is shared with others".to_owned(),
        ),
        Place::Memory => (Cause::Disturbance, "memory is short, or others use it".to_owned()),
        Place::Device(_) | Place::Overlay { .. } | Place::Hidden => {
            facts.storage.device().map_or_else(|| (Cause::DeviceCache, of_hidden()), of_device)
        }
    };
    match facts.operation {
        Operation::Write => (cause, why),
        Operation::Read => {
            (cause, format!("what was written last was still in a cache below the kernel's; {why}"))
        }
    }
}

fn of_hidden() -> String {
    "a cache below the file system is full, or others use the disk".to_owned()
}

/// The cause and its words for a device; a RAID or a mapping goes by its first member.
fn of_device(device: &BlockDevice) -> (Cause, String) {
    if let Some(member) = device.members.first() {
        return of_device(member);
    }
    match device.kind {
        DeviceKind::Virtio | DeviceKind::Xen => (
            Cause::Hypervisor,
            "the cache of the virtual machine's host is full, or a burst that the hypervisor \
             allows is used up"
                .to_owned(),
        ),
        DeviceKind::Loop | DeviceKind::Memory | DeviceKind::Network => (
            Cause::Elsewhere,
            "what stands behind this device has a cache that is full, or others use it".to_owned(),
        ),
        DeviceKind::Nvme | DeviceKind::Scsi | DeviceKind::Mmc
            if device.rotational != Some(true) =>
        {
            (
                Cause::DeviceCache,
                "the drive's fast flash (SLC cache) is full, or it got hot".to_owned(),
            )
        }
        DeviceKind::Nvme
        | DeviceKind::Scsi
        | DeviceKind::Mmc
        | DeviceKind::Raid
        | DeviceKind::Mapped
        | DeviceKind::Other => {
            (Cause::DeviceCache, "the cache of the disk or its controller is full".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::course::Dip;

    const GIB: f64 = (1_u64 << 30) as f64;

    fn device(kind: DeviceKind, rotational: bool, members: Vec<BlockDevice>) -> BlockDevice {
        BlockDevice {
            name: "disk".to_owned(),
            kind,
            model: None,
            level: None,
            degraded: None,
            size_bytes: None,
            rotational: Some(rotational),
            scheduler: None,
            readahead_bytes: None,
            write_cache: None,
            request_bytes_max: None,
            requests_max: None,
            logical_block_bytes: None,
            members,
        }
    }

    fn explained(course: Course, method: Method, place: Place) -> Explanation {
        let (file_system, source, options) = (String::new(), String::new(), Vec::new());
        let storage = Storage { file_system, source, options, place };
        let facts = Circumstances {
            operation: Operation::Write,
            method,
            dirty_limit_bytes: 4 << 30,
            storage: &storage,
        };
        explain(&course, &facts).unwrap()
    }

    /// A cliff from 2 GiB/s to half a GiB/s after this many seconds.
    fn cliff(at_s: f64) -> Course {
        Course::Cliff(Cliff {
            at_s,
            at_bytes: (at_s * 2.0 * GIB) as u64,
            before_bytes_per_s: 2.0 * GIB,
            after_bytes_per_s: GIB / 2.0,
        })
    }

    #[test]
    fn buffered_writes_that_fall_near_the_dirty_limit_have_filled_the_page_cache() {
        let disk = || Place::Device(Box::new(device(DeviceKind::Nvme, false, Vec::new())));
        let found = explained(cliff(2.0), Method::Buffered, disk());
        assert_eq!(found.cause, Cause::PageCache);
        assert!(found.words.starts_with("Writes by way of the page cache fall"), "{}", found.words);
        assert!(found.words.contains("after 4 GiB (2.00 s)"), "{}", found.words);
        assert!(found.words.contains("from 2.15 GB/s to 0.54 GB/s"), "{}", found.words);
        // 30 GiB would have to wait: no page cache of that limit.
        assert_eq!(explained(cliff(20.0), Method::Buffered, disk()).cause, Cause::DeviceCache);
        let direct = explained(cliff(2.0), Method::IoUring, disk());
        assert_eq!(direct.cause, Cause::DeviceCache);
        assert!(direct.words.contains("SLC"), "{}", direct.words);
    }

    #[test]
    fn the_kind_of_device_says_whose_cache_it_was() {
        let at = |device: BlockDevice| {
            explained(cliff(2.0), Method::Direct, Place::Device(Box::new(device)))
        };
        assert_eq!(at(device(DeviceKind::Virtio, true, Vec::new())).cause, Cause::Hypervisor);
        assert_eq!(at(device(DeviceKind::Loop, false, Vec::new())).cause, Cause::Elsewhere);
        let rotating = at(device(DeviceKind::Scsi, true, Vec::new()));
        assert!(rotating.words.contains("controller"), "{}", rotating.words);
        let member = device(DeviceKind::Nvme, false, Vec::new());
        assert!(at(device(DeviceKind::Raid, false, vec![member])).words.contains("SLC"));
        let network = explained(cliff(2.0), Method::Direct, Place::Network);
        assert_eq!(network.cause, Cause::Elsewhere);
        assert_eq!(explained(cliff(2.0), Method::Direct, Place::Hidden).cause, Cause::DeviceCache);
    }

    #[test]
    fn what_sinks_or_dips_is_no_cache() {
        let sinks = Course::Sinks { from_bytes_per_s: 2e8, to_bytes_per_s: 1e8 };
        let disk = Place::Device(Box::new(device(DeviceKind::Scsi, true, Vec::new())));
        assert_eq!(explained(sinks, Method::Direct, disk).cause, Cause::Tracks);
        assert_eq!(explained(sinks, Method::Direct, Place::Hidden).cause, Cause::Disturbance);
        let dip = Dip { from_s: 1.0, to_s: 2.5, usual_bytes_per_s: 2e9, low_bytes_per_s: 1e8 };
        let found = explained(Course::Dip(dip), Method::Direct, Place::Hidden);
        assert!(found.words.contains("between 1.00 s and 2.50 s"), "{}", found.words);
    }
}
