//! Capacity of a server, by what a stream costs its disk and its processors.
//!
//! It is not the bandwidth alone: each period of each stream costs a read, a wake-up and a system
//! call, however few its bytes are.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::pace::{Pacing, Rate};

/// The cost of one read to the disk; reads that are in flight together cost their share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiskCost {
    pub per_read_s: f64,
    pub per_byte_s: f64,
    /// Longest read that the server asks for, in bytes.
    pub read_bytes: u64,
    /// Reads in flight at once: a read with an earlier deadline waits for them.
    pub depth: u32,
}

/// The cost of a stream to the processors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessorCost {
    pub per_period_s: f64,
    pub per_byte_s: f64,
    /// Number of processors: one for each loop.
    pub processors: f64,
}

/// The capacity of the server. A part that was not measured is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    pub disk: Option<DiskCost>,
    pub processors: Option<ProcessorCost>,
    pub network_bits_per_s: Option<f64>,
}

/// A resource that streams can use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    Disk,
    Processors,
    Network,
    /// Number of streams, limited by a setting.
    Streams,
}

impl Resource {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Processors => "processors",
            Self::Network => "network",
            Self::Streams => "streams",
        }
    }
}

/// Shares of a server's resources: 1 is all of one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    pub disk: f64,
    pub processors: f64,
    pub network: f64,
}

impl Share {
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self {
            disk: self.disk * factor,
            processors: self.processors * factor,
            network: self.network * factor,
        }
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            disk: self.disk + other.disk,
            processors: self.processors + other.processors,
            network: self.network + other.network,
        }
    }

    /// Least number of equal parts of a share that each fit into `room`; 0 where a resource has
    /// none.
    #[must_use]
    pub fn parts_in(self, room: Self) -> u32 {
        let of = |share: f64, room: f64| match (share > 0.0, room > 0.0) {
            (false, _) => 1,
            (true, true) => (share / room * (1.0 - 1e-9)).ceil() as u32,
            (true, false) => 0,
        };
        let parts = [
            of(self.disk, room.disk),
            of(self.processors, room.processors),
            of(self.network, room.network),
        ];
        if parts.contains(&0) { 0 } else { parts.into_iter().max().unwrap_or(1) }
    }

    /// First resource whose share is above its limit, or is no number.
    #[must_use]
    pub fn above(self, limit: Self) -> Option<Resource> {
        [
            (Resource::Disk, self.disk, limit.disk),
            (Resource::Processors, self.processors, limit.processors),
            (Resource::Network, self.network, limit.network),
        ]
        .into_iter()
        .find_map(|(resource, share, limit)| {
            let fits = share <= limit;
            (!fits).then_some(resource)
        })
    }
}

/// Bytes on the wire for each byte of a stream: TCP, IP and Ethernet add 90 to 1448 (RFC 9293, RFC
/// 791, IEEE 802.3 with its gap).
const WIRE_FACTOR: f64 = 1538.0 / 1448.0;

impl Capacity {
    /// Whether all times and rates are finite and none is negative: with others everybody would
    /// find room.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let cost = |one: f64| one.is_finite() && one >= 0.0;
        let some = |one: f64| one.is_finite() && one > 0.0;
        self.disk.is_none_or(|disk| {
            cost(disk.per_read_s)
                && cost(disk.per_byte_s)
                && some(disk.per_read_s + disk.per_byte_s)
                && disk.read_bytes > 0
        }) && self.processors.is_none_or(|one| {
            cost(one.per_period_s)
                && cost(one.per_byte_s)
                && some(one.per_period_s + one.per_byte_s)
                && some(one.processors)
        }) && self.network_bits_per_s.is_none_or(some)
    }

    /// Whether the costs of a stream to the disk and to the processors were measured.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.disk.is_some() && self.processors.is_some()
    }

    /// Share that a stream of a given rate takes. `cached`: the share of its bytes that is in the
    /// page cache and costs the disk nothing.
    #[must_use]
    pub fn share(&self, rate: Rate, pacing: Pacing, cached: f64) -> Share {
        let period_s = pacing.period.as_secs_f64();
        let bytes = rate.bytes_in(pacing.period) as f64;
        let disk = self.disk.map_or(0.0, |cost| {
            let reads = (bytes / cost.read_bytes as f64).ceil().max(1.0);
            let busy_s = reads * cost.per_read_s + bytes * cost.per_byte_s;
            busy_s / period_s * (1.0 - cached.clamp(0.0, 1.0))
        });
        let processors = self.processors.map_or(0.0, |cost| {
            (cost.per_period_s + bytes * cost.per_byte_s) / period_s / cost.processors
        });
        let network = self
            .network_bits_per_s
            .map_or(0.0, |bits_per_s| rate.bits_per_s as f64 * WIRE_FACTOR / bits_per_s);
        Share { disk, processors, network }
    }

    /// Limit up to which shares may be taken. Reads are taken earliest deadline first; that keeps
    /// all deadlines while their sum is at most 1 (Liu and Layland, JACM 20(1), 1973), less what a
    /// read that is in flight holds up an earlier one (Jeffay, Stanat and Martel, RTSS 1991), less
    /// the margin.
    #[must_use]
    pub fn limit(&self, period: Duration, margin: f64) -> Share {
        let blocked = self.disk.map_or(0.0, |cost| {
            let read_s = cost.per_read_s + cost.read_bytes as f64 * cost.per_byte_s;
            read_s * f64::from(cost.depth) / period.as_secs_f64()
        });
        // Nothing is left by a large reserve, and what was not measured is no limit then either.
        let rest = (1.0 - margin).max(0.0);
        Share { disk: (rest - blocked).max(0.0), processors: rest, network: rest }
    }

    /// Streams of one rate that are kept, none of them cached, and what limits them; `None` where
    /// nothing that was measured does.
    #[must_use]
    pub fn streams(&self, rate: Rate, pacing: Pacing, margin: f64) -> Option<(u64, Resource)> {
        self.reasons(rate, pacing, margin).into_iter().min_by_key(|(streams, _)| *streams)
    }

    /// Streams that each measured resource can keep.
    #[must_use]
    pub fn reasons(&self, rate: Rate, pacing: Pacing, margin: f64) -> Vec<(u64, Resource)> {
        let share = self.share(rate, pacing, 0.0);
        let limit = self.limit(pacing.period, margin);
        let of = |share: f64, limit: f64, resource| {
            // The least error of the division must not cost a stream.
            (share > 0.0).then(|| ((limit / share * (1.0 + 1e-9)) as u64, resource))
        };
        [
            of(share.disk, limit.disk, Resource::Disk),
            of(share.processors, limit.processors, Resource::Processors),
            of(share.network, limit.network, Resource::Network),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_no_limit_however_little_is_left() {
        let limit = Capacity::default().limit(Duration::from_secs(3), 1.06);
        assert_eq!(Share::default().above(limit), None);
    }

    pub(crate) fn pacing() -> Pacing {
        Pacing { period: Duration::from_secs(2), start_up: Duration::from_secs(4) }
    }

    /// A disk that reads 1 MB in 10 ms + 10 ms; a stream of 4 Mbit/s wants one in 2 s.
    fn disk() -> DiskCost {
        DiskCost { per_read_s: 0.01, per_byte_s: 1e-8, read_bytes: 1_000_000, depth: 4 }
    }

    #[test]
    fn a_disk_keeps_as_many_as_it_has_reads_for() {
        let capacity = Capacity { disk: Some(disk()), ..Capacity::default() };
        let rate = Rate { bits_per_s: 4_000_000 };
        let share = capacity.share(rate, pacing(), 0.0);
        assert!((share.disk - 0.01).abs() < 1e-12, "{share:?}");
        // 0.1 is the margin, and 4 reads of 20 ms in 2 s hold up 0.04.
        assert_eq!(capacity.streams(rate, pacing(), 0.1), Some((86, Resource::Disk)));
        // Half the rate costs more than half: the read itself.
        let half = capacity.share(Rate { bits_per_s: 2_000_000 }, pacing(), 0.0);
        assert!((half.disk - 0.0075).abs() < 1e-12, "{half:?}");
        assert_eq!(capacity.share(rate, pacing(), 1.0).disk, 0.0);
    }

    #[test]
    fn costs_that_make_room_for_everybody_are_none() {
        let of = |network| Capacity { network_bits_per_s: Some(network), ..Capacity::default() };
        let with = |disk| Capacity { disk: Some(disk), ..Capacity::default() };
        let work = |processors| Capacity {
            processors: Some(ProcessorCost { per_period_s: 1e-5, per_byte_s: 0.0, processors }),
            ..Capacity::default()
        };
        assert!(Capacity::default().is_sound() && with(disk()).is_sound());
        assert!(of(1e9).is_sound() && work(2.0).is_sound());
        for (per_read_s, per_byte_s) in [(0.0, 0.1), (0.1, 0.0), (0.1, 0.2)] {
            assert!(with(DiskCost { per_read_s, per_byte_s, ..disk() }).is_sound());
            let cost = ProcessorCost { per_period_s: per_read_s, per_byte_s, processors: 1.0 };
            assert!(Capacity { processors: Some(cost), ..Capacity::default() }.is_sound());
        }
        for unsound in [
            of(0.0),
            of(-1e9),
            of(f64::NAN),
            of(f64::INFINITY),
            work(0.0),
            work(-2.0),
            with(DiskCost { per_read_s: -0.1, ..disk() }),
            with(DiskCost { per_read_s: -0.1, per_byte_s: 0.2, ..disk() }),
            with(DiskCost { per_byte_s: f64::NAN, ..disk() }),
            with(DiskCost { per_read_s: 0.0, per_byte_s: 0.0, ..disk() }),
            with(DiskCost { read_bytes: 0, ..disk() }),
        ] {
            assert!(!unsound.is_sound(), "{unsound:?}");
        }
        let no_number = Share { disk: f64::NAN, ..Share::default() };
        let limit = Share { disk: 1.0, processors: 1.0, network: 1.0 };
        assert_eq!(no_number.above(limit), Some(Resource::Disk));
        assert_eq!(limit.above(limit), None);
    }

    #[test]
    fn shares_are_added_and_parted_resource_by_resource() {
        let of = |disk, processors, network| Share { disk, processors, network };
        assert_eq!(of(1.0, 2.0, 3.0).plus(of(10.0, 20.0, 30.0)), of(11.0, 22.0, 33.0));
        for (share, room, parts) in [
            (of(0.0, 0.0, 0.0), of(0.0, 0.0, 0.0), 1),
            // Twice the room is two parts, and the least more is three.
            (of(0.6, 0.1, 0.1), of(0.3, 0.3, 0.3), 2),
            (of(0.1, 0.601, 0.1), of(0.3, 0.3, 0.3), 3),
            (of(0.1, 0.1, 0.9), of(0.3, 0.3, 0.1), 9),
            (of(0.1, 0.0, 0.0), of(0.0, 0.3, 0.3), 0),
            (of(0.9, 0.1, 0.0), of(0.3, -0.1, 0.3), 0),
        ] {
            assert_eq!(share.parts_in(room), parts, "{share:?} in {room:?}");
        }
    }

    #[test]
    fn a_capacity_is_measured_when_disk_and_processors_are() {
        let cost = ProcessorCost { per_period_s: 1e-4, per_byte_s: 0.0, processors: 1.0 };
        for (disk, processors) in [(true, true), (true, false), (false, true), (false, false)] {
            let capacity = Capacity {
                disk: disk.then(self::disk),
                processors: processors.then_some(cost),
                network_bits_per_s: Some(1e9),
            };
            assert_eq!(capacity.is_measured(), disk && processors);
        }
    }

    #[test]
    fn a_resource_is_named_as_its_refusals_are_counted() {
        for (why, name) in super::super::Why::ALL {
            if let super::super::Why::Full(resource) = why {
                assert_eq!(resource.name(), name);
            }
        }
    }

    #[test]
    fn the_scarcest_is_the_limit_and_what_was_not_measured_is_none() {
        let rate = Rate { bits_per_s: 8_000_000 };
        assert_eq!(Capacity::default().streams(rate, pacing(), 0.1), None);
        let processors = ProcessorCost { per_period_s: 1e-4, per_byte_s: 2e-10, processors: 2.0 };
        let all = Capacity {
            disk: Some(disk()),
            processors: Some(processors),
            network_bits_per_s: Some(1e9),
        };
        let reasons = all.reasons(rate, pacing(), 0.1);
        let of =
            |wanted| reasons.iter().find(|(_, one)| *one == wanted).map(|(streams, _)| *streams);
        // 100 + 400 us of each 2 s of 2 processors.
        assert_eq!(of(Resource::Processors), Some(7_200));
        assert_eq!(of(Resource::Network), Some(105));
        assert_eq!(all.streams(rate, pacing(), 0.1), Some((43, Resource::Disk)));
    }
}
