//! Figures of one way of a round, from what both sides counted.

use super::report::{
    DatagramFigures, Direction, Interval, Limited, SideUse, StreamFigures, StreamInterval, Way,
};
use haul_protocol::{
    StreamId,
    message::{self, ProbeStream},
};

/// A side's figures at one moment.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub at_us: u64,
    pub streams: Vec<ProbeStream>,
    /// Time since the round began in which the side's own CPU quota held it, in nanoseconds.
    pub throttled_ns: u64,
}

/// Samples that one side counted in a round.
#[derive(Clone, Debug, Default)]
pub struct SideSamples {
    pub samples: Vec<Sample>,
    /// Figures of the streams when nothing more came.
    pub last: Vec<ProbeStream>,
    pub cores_max: u32,
}

impl SideSamples {
    fn seconds(&self, from: usize, to: usize) -> f64 {
        let at = |sample: usize| self.samples.get(sample).map_or(0, |sample| sample.at_us);
        (at(to).saturating_sub(at(from)) as f64 / 1e6).max(1e-6)
    }

    fn of(&self, sample: usize, stream: StreamId) -> ProbeStream {
        let streams = self.samples.get(sample).map_or(&[][..], |sample| &sample.streams);
        find(streams, stream)
    }

    fn throttled_ns(&self, from: usize, to: usize) -> u64 {
        let at = |sample: usize| self.samples.get(sample).map_or(0, |sample| sample.throttled_ns);
        at(to).saturating_sub(at(from))
    }

    fn end(&self) -> usize {
        self.samples.len().saturating_sub(1)
    }
}

fn find(streams: &[ProbeStream], stream: StreamId) -> ProbeStream {
    streams.iter().find(|found| found.stream == stream).cloned().unwrap_or_default()
}

/// One way of a round, as the samples of both sides count it.
pub struct Counted<'a> {
    pub asked: &'a message::Probe,
    pub direction: Direction,
    pub sender: &'a SideSamples,
    pub receiver: &'a SideSamples,
    pub counted_from: usize,
}

impl Counted<'_> {
    #[must_use]
    pub fn way(&self) -> Way {
        let (from, end) = (self.counted_from, self.receiver.end());
        let ids = self.ids();
        let seconds = self.receiver.seconds(from, end);
        let bytes: u64 = ids.iter().map(|id| self.received(*id, from, end)).sum();
        let sum = |pick: fn(&ProbeStream) -> u64| {
            ids.iter().map(|id| self.sent(*id, from, self.sender.end(), pick)).sum::<u64>()
        };
        let lasts: Vec<ProbeStream> =
            ids.iter().map(|id| self.sender.of(self.sender.end(), *id)).collect();
        let (resent, sent) = (sum(|s| s.resent_bytes), sum(|s| s.sent_bytes));
        Way {
            direction: self.direction,
            seconds,
            bytes,
            gbit_per_s: gbit(bytes, seconds),
            congestion: lasts.first().map(|s| s.congestion.clone()).unwrap_or_default(),
            rtt_us: mean(lasts.iter().map(|s| s.rtt_us)),
            min_rtt_us: least(lasts.iter().map(|s| s.min_rtt_us)),
            retransmits: sum(|s| s.retransmits.into()),
            resent_share: resent as f64 / sent.max(1) as f64,
            cwnd_bytes: lasts.iter().map(|s| s.cwnd_bytes).sum(),
            limited: mean_limited(ids.iter().map(|id| self.limited(*id, from, self.sender.end()))),
            room_waits: sum(|s| s.room_waits),
            sender: side_use(self.sender, &ids, from, bytes),
            receiver: side_use(self.receiver, &ids, from, bytes),
            datagrams: self.datagrams(&ids),
            streams: ids.iter().map(|id| self.stream(*id)).collect(),
            intervals: (1..=end).map(|to| self.interval(&ids, to)).collect(),
            verdict: super::report::Verdict::default(),
        }
    }

    /// Numbers of the streams of this way.
    fn ids(&self) -> Vec<StreamId> {
        let sends = |stream: &&ProbeStream| stream.sends;
        let first = self.sender.samples.first();
        first.map_or(&[][..], |s| &s.streams).iter().filter(sends).map(|s| s.stream).collect()
    }

    fn received(&self, id: StreamId, from: usize, to: usize) -> u64 {
        let bytes = |sample: usize| self.receiver.of(sample, id).bytes;
        bytes(to).saturating_sub(bytes(from))
    }

    fn sent(&self, id: StreamId, from: usize, to: usize, pick: fn(&ProbeStream) -> u64) -> u64 {
        let of = |sample: usize| pick(&self.sender.of(sample, id));
        of(to).saturating_sub(of(from))
    }

    fn limited(&self, id: StreamId, from: usize, to: usize) -> Limited {
        let whole_us = self.sender.seconds(from, to) * 1e6;
        let of = |pick: fn(&ProbeStream) -> u64| {
            (self.sent(id, from, to, pick) as f64 / whole_us).min(1.0)
        };
        let busy = of(|s| s.busy_us);
        let receiver_window = of(|s| s.receiver_window_us).min(busy);
        let send_buffer = of(|s| s.send_buffer_us).min(busy - receiver_window);
        Limited {
            receiver_window,
            send_buffer,
            congestion_window: busy - receiver_window - send_buffer,
            application: 1.0 - busy,
        }
    }

    fn stream(&self, id: StreamId) -> StreamFigures {
        let (from, end) = (self.counted_from, self.receiver.end());
        let last = self.sender.of(self.sender.end(), id);
        let cpu = |side: &SideSamples| {
            let ns = side.of(side.end(), id).cpu_ns.saturating_sub(side.of(from, id).cpu_ns);
            ns as f64 / 1e9 / side.seconds(from, side.end())
        };
        StreamFigures {
            stream: id.0,
            gbit_per_s: gbit(self.received(id, from, end), self.receiver.seconds(from, end)),
            retransmits: self.sent(id, from, self.sender.end(), |s| s.retransmits.into()),
            rtt_us: last.rtt_us,
            min_rtt_us: last.min_rtt_us,
            cwnd_bytes: last.cwnd_bytes,
            delivery_rate_gbit_per_s: gbit(last.delivery_rate_bytes_per_s, 1.0),
            sender_cpu: cpu(self.sender),
            receiver_cpu: cpu(self.receiver),
        }
    }

    fn interval(&self, ids: &[StreamId], to: usize) -> Interval {
        let from = to - 1;
        let seconds = self.receiver.seconds(from, to);
        let at_s = |sample: usize| {
            self.receiver.samples.get(sample).map_or(0.0, |sample| sample.at_us as f64 / 1e6)
        };
        let streams: Vec<StreamInterval> = ids
            .iter()
            .map(|id| {
                let now = self.sender.of(to, *id);
                StreamInterval {
                    stream: id.0,
                    gbit_per_s: gbit(self.received(*id, from, to), seconds),
                    retransmits: self.sent(*id, from, to, |s| s.retransmits.into()),
                    rtt_us: now.rtt_us,
                    min_rtt_us: now.min_rtt_us,
                    cwnd_bytes: now.cwnd_bytes,
                    delivery_rate_gbit_per_s: gbit(now.delivery_rate_bytes_per_s, 1.0),
                    limited: self.limited(*id, from, to),
                }
            })
            .collect();
        let missing = |id: &StreamId| {
            let (now, before) = (self.receiver.of(to, *id), self.receiver.of(from, *id));
            let expected = now.sequence_next.saturating_sub(before.sequence_next);
            expected.saturating_sub(now.datagrams.saturating_sub(before.datagrams))
        };
        Interval {
            from_s: at_s(from),
            to_s: at_s(to),
            omitted: to <= self.counted_from,
            gbit_per_s: streams.iter().map(|stream| stream.gbit_per_s).sum(),
            retransmits: streams.iter().map(|stream| stream.retransmits).sum(),
            lost: ids.iter().map(missing).sum(),
            rtt_us: mean(streams.iter().map(|stream| stream.rtt_us)),
            streams,
        }
    }

    /// Figures of the datagrams that were sent behind the last that had arrived when counting
    /// began.
    fn datagrams(&self, ids: &[StreamId]) -> Option<DatagramFigures> {
        if self.asked.kind != message::ProbeKind::Datagrams {
            return None;
        }
        let (mut sent, mut received, mut reordered, mut duplicates, mut jitter_ns) =
            (0, 0, 0, 0, 0);
        for id in ids {
            let begin = self.receiver.of(self.counted_from, *id);
            let (out, last) = (find(&self.sender.last, *id), find(&self.receiver.last, *id));
            sent += out.datagrams.saturating_sub(begin.sequence_next);
            received += last.datagrams.saturating_sub(begin.datagrams);
            reordered += last.reordered.saturating_sub(begin.reordered);
            duplicates += last.duplicates.saturating_sub(begin.duplicates);
            jitter_ns = last.jitter_ns.max(jitter_ns);
        }
        let lost = u64::saturating_sub(sent, received);
        Some(DatagramFigures {
            sent,
            received,
            lost,
            lost_share: lost as f64 / sent.max(1) as f64,
            reordered,
            duplicates,
            jitter_us: jitter_ns as f64 / 1e3,
            rate_asked_gbit_per_s: gbit(self.asked.rate_bytes_per_s, 1.0),
            datagram_bytes: self.asked.block_bytes,
        })
    }
}

fn side_use(side: &SideSamples, ids: &[StreamId], from: usize, bytes: u64) -> SideUse {
    let whole_ns = side.seconds(from, side.end()) * 1e9;
    let since = |id: StreamId, pick: fn(&ProbeStream) -> u64| {
        let begin = pick(&side.of(from, id));
        pick(&side.of(side.end(), id)).saturating_sub(begin) as f64
    };
    let cpu = || ids.iter().map(|id| since(*id, |s| s.cpu_ns));
    let all_ns: f64 = cpu().sum();
    SideUse {
        cores: all_ns / whole_ns,
        busiest: cpu().fold(0.0, f64::max) / whole_ns,
        waited: ids.iter().map(|id| since(*id, |s| s.run_queue_ns)).fold(0.0, f64::max) / whole_ns,
        throttled: side.throttled_ns(from, side.end()) as f64 / whole_ns,
        cpu_s_per_gb: if bytes > 0 { all_ns / bytes as f64 } else { 0.0 },
        cores_max: side.cores_max,
    }
}

fn mean_limited(all: impl Iterator<Item = Limited>) -> Limited {
    let all: Vec<Limited> = all.collect();
    let mean =
        |pick: fn(&Limited) -> f64| all.iter().map(pick).sum::<f64>() / (all.len().max(1) as f64);
    Limited {
        receiver_window: mean(|limited| limited.receiver_window),
        send_buffer: mean(|limited| limited.send_buffer),
        congestion_window: mean(|limited| limited.congestion_window),
        application: mean(|limited| limited.application),
    }
}

/// Rate in 10^9 bits a second.
#[must_use]
pub fn gbit(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 * 8.0 / 1e9 / seconds.max(1e-6)
}

fn mean(values: impl Iterator<Item = u32>) -> u32 {
    let (sum, count) = values.fold((0, 0), |(sum, count), v| (sum + u64::from(v), count + 1));
    u32::try_from(sum / u64::max(count, 1)).unwrap_or(u32::MAX)
}

/// The least of the values that are known; 0 is not.
fn least(values: impl Iterator<Item = u32>) -> u32 {
    values.filter(|value| *value > 0).min().unwrap_or(0)
}
