//! The choice of congestion control, number of streams and span size for a network path.

use std::time::Duration;

use crate::{Host, choose::facts::counted};

/// Round trip below which a path is within a site: the wire is never idle for want of a window.
const SHORT_PATH_RTT: Duration = Duration::from_millis(1);

/// Round trip up to which that between two ends in one subnet is taken for a queue's: 4 MB, as a
/// port may hold in a switch, leave it within 32 ms at 1 Gbit/s. Beyond it the subnet spans a long
/// circuit.
const QUEUE_RTT_MAX: Duration = Duration::from_millis(32);

/// Rate at which a long path gets one stream for each span in flight, within the two limits below.
const LONG_PATH_RATE_BITS_PER_S: u64 = 10_000_000_000;
const LONG_PATH_STREAMS_MIN: u64 = 4;
/// Most streams of a long path: more overrun a queue of one bandwidth-delay product when they all
/// start at once. At 1 Gbit/s and 100 ms (`cargo xtask lab wan`) 8 streams lost 7000 segments of a
/// tree of 164 MB, 6 none.
const LONG_PATH_STREAMS_MAX: u64 = 6;

/// Streams of a transfer whose bytes are copied or digested: a second one pays where that fills the
/// first one's core.
const COPYING_STREAMS: u32 = 2;

/// Send buffer between two ends on one host: half of a common second-level cache, with the kernel's
/// doubling.
const SAME_HOST_SEND_BUFFER_BYTES: usize = 512 << 10;

/// Most streams that can be asked for.
pub const STREAMS_MAX: u32 = 256;

pub const SPAN_BYTES_DEFAULT: u64 = 8 << 20;
pub const SPAN_BYTES_MIN: u64 = 64 << 10;
pub const SPAN_BYTES_MAX: u64 = 1 << 30;

/// Most spans of a file: the journal and the receiver keep a mark for each.
pub const SPANS_PER_FILE_MAX: u64 = 1 << 20;

/// A choice of congestion control for each socket, or the system's own left as it is, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CongestionChoice {
    /// The name to set with TCP_CONGESTION; `None` leaves the system's.
    pub control: Option<String>,
    pub because: String,
    /// The path that it is for.
    pub length: PathLength,
}

/// Facts that tell how long a path is.
///
/// A round trip alone does not tell: others may have filled a queue on the way for as long as this
/// end has looked, and the path is then taken for longer than it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathLength {
    /// The round trip: the one that the session begins with, or the shortest since.
    pub rtt: Duration,
    /// Whether both ends are in one subnet, without a router between them.
    pub one_subnet: bool,
}

impl PathLength {
    /// Length by a round trip, with the subnet where it matters.
    #[must_use]
    pub fn of(rtt: Duration, one_subnet: impl FnOnce() -> bool) -> Self {
        let may_be_a_queue = (SHORT_PATH_RTT..=QUEUE_RTT_MAX).contains(&rtt);
        Self { rtt, one_subnet: may_be_a_queue && one_subnet() }
    }

    /// Whether the path is within a site.
    fn is_short(self) -> bool {
        self.rtt < SHORT_PATH_RTT || (self.one_subnet && self.rtt <= QUEUE_RTT_MAX)
    }

    /// The sign by which a short path is known, in words.
    fn short_because(self) -> String {
        let round_trip = milliseconds(self.rtt);
        if self.rtt < SHORT_PATH_RTT {
            format!("the round trip takes {round_trip}")
        } else {
            format!("both ends are in one subnet, so a round trip of {round_trip} is a queue's")
        }
    }
}

/// Chooses the congestion control by the path's length.
///
/// On short paths BBR's pacing costs most of the rate (1.9 GB/s where cubic has 6.6, on loopback).
/// Without CAP_NET_ADMIN only the allowed ones may be chosen (tcp(7), TCP_CONGESTION): give
/// [`Host::may_administer_network`] as `may_choose_any`. The call can still be refused in a
/// container; the system's own is then used.
#[must_use]
pub fn congestion(host: &Host, length: PathLength, may_choose_any: bool) -> CongestionChoice {
    let own = match host.congestion_default.as_str() {
        "" => "not known by name",
        name => name,
    };
    let round_trip = milliseconds(length.rtt);
    if !length.is_short() {
        let because = format!(
            "the round trip takes {round_trip}, so the system's congestion control ({own}) stays"
        );
        return CongestionChoice { control: None, because, length };
    }
    if matches!(own, "cubic" | "reno") {
        let because = format!("the system's congestion control is {own}, right for {round_trip}");
        return CongestionChoice { control: None, because, length };
    }
    let permitted =
        if may_choose_any { &host.congestion_available } else { &host.congestion_allowed };
    // Reno is part of every kernel and permitted to everyone.
    let name = if permitted.iter().any(|name| name == "cubic") { "cubic" } else { "reno" };
    let because = format!(
        "{}, where {name} does not hold the rate back as pacing by the system's own ({own}) may",
        length.short_because()
    );
    CongestionChoice { control: Some(name.to_owned()), because, length }
}

/// The loss of a path, by what was sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    pub sent_bytes: u64,
    pub sent_again_bytes: u64,
}

/// Share of bytes sent again from which a loss-based window on a long path is far below the
/// rate: at one segment of 10,000 and 100 ms reno's is 120 segments, 14 Mbit/s (Mathis et al.,
/// 1997).
const LOSSY_SHARE: f64 = 1e-4;
/// Bytes sent again below which a loss says nothing.
const LOSSY_BYTES_MIN: u64 = 16 << 10;

impl Loss {
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            sent_bytes: self.sent_bytes.saturating_sub(before.sent_bytes),
            sent_again_bytes: self.sent_again_bytes.saturating_sub(before.sent_again_bytes),
        }
    }

    /// The share of sent bytes that were sent again.
    #[must_use]
    pub fn share(self) -> f64 {
        self.sent_again_bytes as f64 / self.sent_bytes.max(1) as f64
    }

    /// Whether so much is lost that a window that shrinks with each loss stays small.
    #[must_use]
    pub fn is_lossy(self) -> bool {
        self.sent_again_bytes >= LOSSY_BYTES_MIN && self.share() >= LOSSY_SHARE
    }
}

/// Facts of a path that streams have been at work on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathSeen {
    /// The length; a round trip of zero if none was seen yet.
    pub length: PathLength,
    pub loss: Loss,
    /// Whether what is sent waits in a queue: the path is then full, and loses for that.
    pub is_full: bool,
}

/// Chooses another congestion control than `own`, the one at work, when a path is seen to be
/// another than it was taken for.
///
/// On a path that turns out to be short it is that of a short one, in place of BBR, which paces. On
/// a long path that loses segments again and again without being full it is BBR, if `own` takes
/// each loss for a full queue, and BBR is permitted.
#[must_use]
pub fn congestion_again(
    host: &Host,
    own: &str,
    seen: PathSeen,
    may_choose_any: bool,
) -> Option<CongestionChoice> {
    let PathSeen { length, loss, is_full } = seen;
    if own.starts_with("bbr") {
        let is_proven = !length.rtt.is_zero() && length.rtt < SHORT_PATH_RTT;
        let choice = Some(congestion(host, length, may_choose_any)).filter(|_| is_proven)?;
        let control = choice.control.unwrap_or_else(|| host.congestion_default.clone());
        return Some(CongestionChoice { control: Some(control), ..choice });
    }
    if length.is_short() {
        return None;
    }
    if is_full || !matches!(own, "cubic" | "reno") || !loss.is_lossy() {
        return None;
    }
    let permitted =
        if may_choose_any { &host.congestion_available } else { &host.congestion_allowed };
    let control = permitted.iter().find(|name| *name == "bbr")?.clone();
    let because = format!(
        "{:.2} % of what was sent had to be sent again, at a round trip of {}: {control} does not \
         take each loss for a full queue",
        loss.share() * 100.0,
        milliseconds(length.rtt)
    );
    Some(CongestionChoice { control: Some(control), because, length })
}

/// The size of the send buffer to set with SO_SNDBUF; `None` leaves it to the kernel, which lets it
/// grow with the congestion window.
///
/// Between two ends on one host the wire is memory: whatever waits in the socket has left the
/// processor's second-level cache by the time it is received, and is fetched once more. The kernel
/// doubles what it is given (socket(7)).
#[must_use]
pub fn send_buffer_bytes(same_host: bool) -> Option<usize> {
    same_host.then_some(SAME_HOST_SEND_BUFFER_BYTES)
}

/// Facts that the number of streams depends on.
#[derive(Clone, Copy, Debug)]
pub struct StreamFacts<'facts> {
    pub host: &'facts Host,
    pub rtt: Duration,
    /// Bytes of the whole transfer.
    pub size_bytes: u64,
    /// The size of a span, as [`span_bytes`] chose it.
    pub span_bytes: u64,
    /// Whether bytes pass through user space on the way: an engine copies, or a digest is computed.
    pub sees_copy: bool,
    /// The value of --streams.
    pub forced: Option<u32>,
}

/// The number of streams, 1 to [`STREAMS_MAX`] and no more than there are spans, and why.
#[must_use]
pub fn streams(facts: &StreamFacts<'_>) -> (u32, String) {
    let round_trip = milliseconds(facts.rtt);
    let (wanted, because) = if let Some(forced) = facts.forced {
        (forced.clamp(1, STREAMS_MAX), format!("--streams {forced} was asked for"))
    } else if facts.rtt >= SHORT_PATH_RTT {
        let wanted = long_path_streams(facts.rtt);
        (wanted, format!("the round trip takes {round_trip}, and each stream has its own window"))
    } else if facts.sees_copy {
        let wanted = COPYING_STREAMS.min(facts.host.cores).max(1);
        let cores = counted(u64::from(facts.host.cores.max(1)), "core");
        (
            wanted,
            format!("bytes are copied or digested on {cores}, one stream on each, two at most"),
        )
    } else {
        (
            1,
            format!(
                "nothing is copied and the round trip takes {round_trip}: one stream is enough"
            ),
        )
    };
    let spans = facts.size_bytes.div_ceil(facts.span_bytes.max(1)).max(1);
    match u32::try_from(spans) {
        Ok(spans) if spans < wanted => {
            (spans, format!("there is no more to move than {}", counted(spans.into(), "span")))
        }
        _ => (wanted, because),
    }
}

/// The size of a span in bytes: a power of two, at most [`SPANS_PER_FILE_MAX`] of them in the
/// largest file, of `size_bytes`.
///
/// `forced`, the value of --span-size, is brought to the nearest size that is possible. Files of
/// more than a PiB have more spans: no span is larger than [`SPAN_BYTES_MAX`].
#[must_use]
pub fn span_bytes(size_bytes: u64, forced: Option<u64>) -> u64 {
    let wanted = forced.map_or(SPAN_BYTES_DEFAULT, |forced| {
        forced.clamp(SPAN_BYTES_MIN, SPAN_BYTES_MAX).next_power_of_two()
    });
    let needed = size_bytes.div_ceil(SPANS_PER_FILE_MAX).min(SPAN_BYTES_MAX).next_power_of_two();
    wanted.max(needed)
}

fn long_path_streams(rtt: Duration) -> u32 {
    let rtt_us = u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX);
    let in_flight_bytes = rtt_us.saturating_mul(LONG_PATH_RATE_BITS_PER_S / 8 / 1_000_000);
    let streams = in_flight_bytes / SPAN_BYTES_DEFAULT;
    streams.clamp(LONG_PATH_STREAMS_MIN, LONG_PATH_STREAMS_MAX) as u32
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Duration = Duration::from_micros(150);
    const GIB: u64 = 1 << 30;

    /// A path through a router.
    fn of(rtt: Duration) -> PathLength {
        PathLength { rtt, one_subnet: false }
    }

    fn names(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    /// The host that the measurements were made on: BBR by default, cubic only for administrators.
    fn host() -> Host {
        Host {
            cores: 2,
            congestion_allowed: names("reno bbr"),
            congestion_available: names("reno bbr cubic"),
            congestion_default: "bbr".to_owned(),
            ..Host::default()
        }
    }

    fn facts(host: &Host, rtt: Duration) -> StreamFacts<'_> {
        let span_bytes = SPAN_BYTES_DEFAULT;
        StreamFacts { host, rtt, size_bytes: GIB, span_bytes, sees_copy: false, forced: None }
    }

    #[test]
    fn a_short_path_gets_cubic_where_it_is_permitted() {
        let choice = congestion(&host(), of(LOCAL), true);
        assert_eq!(choice.control.as_deref(), Some("cubic"));
        assert_eq!(
            choice.because,
            "the round trip takes 0.15 ms, where cubic does not hold the rate back as pacing by \
             the system's own (bbr) may"
        );
        let host = Host { congestion_allowed: names("reno cubic"), ..host() };
        assert_eq!(congestion(&host, of(LOCAL), false).control.as_deref(), Some("cubic"));
    }

    #[test]
    fn a_short_path_gets_reno_where_cubic_is_not_permitted() {
        assert_eq!(congestion(&host(), of(LOCAL), false).control.as_deref(), Some("reno"));
        let unknown = Host::default();
        assert_eq!(congestion(&unknown, of(LOCAL), true).control.as_deref(), Some("reno"));
    }

    #[test]
    fn cubic_and_reno_stay_as_they_are() {
        for own in ["cubic", "reno"] {
            let host = Host { congestion_default: own.to_owned(), ..host() };
            let choice = congestion(&host, of(LOCAL), true);
            assert_eq!(choice.control, None);
            assert!(choice.because.contains(own), "{}", choice.because);
        }
    }

    #[test]
    fn a_long_path_keeps_the_systems_congestion_control() {
        let choice = congestion(&host(), of(SHORT_PATH_RTT), true);
        assert_eq!(choice.control, None);
        assert_eq!(
            choice.because,
            "the round trip takes 1.00 ms, so the system's congestion control (bbr) stays"
        );
    }

    #[test]
    fn a_round_trip_within_one_subnet_is_a_queues_unless_no_switch_holds_so_much() {
        let within = |ms| PathLength { rtt: Duration::from_millis(ms), one_subnet: true };
        let choice = congestion(&host(), within(10), true);
        assert_eq!(choice.control.as_deref(), Some("cubic"));
        assert_eq!(
            choice.because,
            "both ends are in one subnet, so a round trip of 10.00 ms is a queue's, where cubic \
             does not hold the rate back as pacing by the system's own (bbr) may"
        );
        assert_eq!(congestion(&host(), within(32), true).control.as_deref(), Some("cubic"));
        assert_eq!(congestion(&host(), within(33), true).control, None, "a long circuit");
        let loss = Loss { sent_bytes: 100_000_000, sent_again_bytes: 100_000 };
        let again = |ms| {
            let seen = PathSeen { length: within(ms), loss, is_full: false };
            congestion_again(&host(), "cubic", seen, true).and_then(|choice| choice.control)
        };
        assert_eq!((again(32), again(33).as_deref()), (None, Some("bbr")));
    }

    #[test]
    fn a_path_that_turns_out_to_be_short_gets_what_a_short_one_takes() {
        let again = |own, rtt| {
            let seen = PathSeen { length: of(rtt), ..PathSeen::default() };
            congestion_again(&host(), own, seen, true).and_then(|choice| choice.control)
        };
        assert_eq!(again("bbr", LOCAL).as_deref(), Some("cubic"));
        assert_eq!(again("cubic", LOCAL), None, "it has it");
        assert_eq!(again("bbr", Duration::ZERO), None, "nothing was seen");
        assert_eq!(again("bbr", SHORT_PATH_RTT), None);
        let seen = PathSeen { length: of(LOCAL), ..PathSeen::default() };
        let host = Host { congestion_default: "cubic".into(), ..host() };
        let choice = congestion_again(&host, "bbr", seen, true).unwrap();
        assert_eq!(choice.control.as_deref(), Some("cubic"), "it lost while others filled it");
        let within = PathLength { rtt: Duration::from_millis(9), one_subnet: true };
        let seen = PathSeen { length: within, ..seen };
        assert_eq!(congestion_again(&host, "bbr", seen, true), None, "no proof");
    }

    #[test]
    fn the_subnet_is_asked_for_only_where_a_queue_may_be_the_reason() {
        let asked = |us| {
            let mut is_asked = false;
            let length = PathLength::of(Duration::from_micros(us), || {
                is_asked = true;
                true
            });
            assert_eq!(length.one_subnet, is_asked);
            is_asked
        };
        assert_eq!([999, 1000, 32_000, 32_001].map(asked), [false, true, true, false]);
    }

    #[test]
    fn a_long_path_that_loses_gets_bbr_where_it_is_permitted() {
        let rtt = Duration::from_millis(50);
        let loss = Loss { sent_bytes: 100_000_000, sent_again_bytes: 100_000 };
        let seen = |rtt, loss| PathSeen { length: of(rtt), loss, is_full: false };
        let again = |own, rtt, loss| congestion_again(&host(), own, seen(rtt, loss), false);
        let choice = again("cubic", rtt, loss).unwrap();
        assert_eq!(choice.control.as_deref(), Some("bbr"));
        assert!(choice.because.starts_with("0.10 % of what was sent"), "{}", choice.because);
        assert_eq!(again("bbr", rtt, loss), None);
        assert_eq!(again("htcp", rtt, loss), None, "chosen by who knows his path");
        assert_eq!(again("cubic", LOCAL, loss), None);
        let clean = Loss { sent_again_bytes: 9_000, ..loss };
        assert_eq!(again("cubic", rtt, clean), None);
        let few = Loss { sent_bytes: 100_000, sent_again_bytes: 15_000 };
        assert_eq!(again("cubic", rtt, few), None);
        let host = Host { congestion_allowed: names("reno cubic"), ..host() };
        assert_eq!(congestion_again(&host, "cubic", seen(rtt, loss), false), None);
        let full = PathSeen { is_full: true, ..seen(rtt, loss) };
        assert_eq!(congestion_again(&self::host(), "cubic", full, false), None);
    }

    #[test]
    fn one_stream_is_enough_where_nothing_is_copied() {
        let (count, because) = streams(&facts(&host(), LOCAL));
        assert_eq!(count, 1);
        assert!(because.starts_with("nothing is copied"), "{because}");
    }

    #[test]
    fn copying_gets_two_streams_if_there_are_two_cores() {
        for (cores, expected) in [(0, 1), (1, 1), (2, 2), (64, 2)] {
            let host = Host { cores, ..host() };
            let facts = StreamFacts { sees_copy: true, ..facts(&host, LOCAL) };
            assert_eq!(streams(&facts).0, expected, "{cores} cores");
        }
    }

    #[test]
    fn a_long_path_gets_four_to_six_streams_as_it_gets_longer() {
        let host = host();
        for (rtt_ms, expected) in [(1, 4), (20, 4), (40, 5), (50, 6), (80, 6), (600, 6)] {
            let facts = facts(&host, Duration::from_millis(rtt_ms));
            assert_eq!(streams(&facts).0, expected, "{rtt_ms} ms");
        }
        assert_eq!(streams(&facts(&host, Duration::MAX)).0, 6);
    }

    #[test]
    fn there_are_never_more_streams_than_spans() {
        let host = host();
        let long = facts(&host, Duration::from_millis(100));
        let three = StreamFacts { size_bytes: 2 * SPAN_BYTES_DEFAULT + 1, ..long };
        assert_eq!(streams(&three), (3, "there is no more to move than 3 spans".to_owned()));
        let empty = StreamFacts { size_bytes: 0, ..long };
        assert_eq!(streams(&empty), (1, "there is no more to move than 1 span".to_owned()));
        let forced = StreamFacts { forced: Some(16), ..three };
        assert_eq!(streams(&forced).0, 3);
    }

    #[test]
    fn streams_that_are_asked_for_are_given_up_to_the_limit() {
        let host = host();
        for (asked, expected) in [(0, 1), (3, 3), (STREAMS_MAX, STREAMS_MAX)] {
            let facts =
                StreamFacts { forced: Some(asked), size_bytes: 100 * GIB, ..facts(&host, LOCAL) };
            let because = format!("--streams {asked} was asked for");
            assert_eq!(streams(&facts), (expected, because));
        }
        let many =
            StreamFacts { forced: Some(u32::MAX), size_bytes: u64::MAX, ..facts(&host, LOCAL) };
        assert_eq!(streams(&many).0, STREAMS_MAX);
    }

    #[test]
    fn a_span_has_eight_mib_until_a_file_would_have_too_many() {
        assert_eq!(span_bytes(0, None), 8 << 20);
        assert_eq!(span_bytes(8 << 40, None), 8 << 20);
        assert_eq!(span_bytes((8 << 40) + 1, None), 16 << 20);
        assert_eq!(span_bytes(1 << 50, None), SPAN_BYTES_MAX);
        assert_eq!(span_bytes(u64::MAX, None), SPAN_BYTES_MAX);
    }

    #[test]
    fn a_span_size_that_is_asked_for_is_brought_to_what_is_possible() {
        assert_eq!(span_bytes(GIB, Some(0)), SPAN_BYTES_MIN);
        assert_eq!(span_bytes(GIB, Some(1 << 20)), 1 << 20);
        assert_eq!(span_bytes(GIB, Some((1 << 20) + 1)), 2 << 20);
        assert_eq!(span_bytes(GIB, Some(u64::MAX)), SPAN_BYTES_MAX);
        assert_eq!(span_bytes(1 << 40, Some(SPAN_BYTES_MIN)), 1 << 20);
    }

    #[test]
    fn no_file_up_to_a_pib_has_too_many_spans_and_all_sizes_are_powers_of_two() {
        for shift in 0..=50 {
            for size_bytes in [(1_u64 << shift) - 1, 1 << shift, (1 << shift) + (1 << shift) / 3] {
                for forced in [None, Some(1), Some(99_999), Some(1 << 40)] {
                    let span = span_bytes(size_bytes, forced);
                    assert!(span.is_power_of_two() && span <= SPAN_BYTES_MAX);
                    let fits = size_bytes.div_ceil(span) <= SPANS_PER_FILE_MAX;
                    assert!(fits || size_bytes > 1 << 50, "{size_bytes} in spans of {span}");
                }
            }
        }
    }

    #[test]
    fn a_loss_is_what_was_sent_again_since_and_a_millisecond_is_a_long_path() {
        let before = Loss { sent_bytes: 100, sent_again_bytes: 10 };
        let now = Loss { sent_bytes: 350, sent_again_bytes: 15 };
        assert_eq!(now.since(before), Loss { sent_bytes: 250, sent_again_bytes: 5 });
        assert_eq!(before.since(now), Loss::default());
        let loss = Loss { sent_bytes: 100_000_000, sent_again_bytes: 100_000 };
        let seen = PathSeen { length: of(SHORT_PATH_RTT), loss, is_full: false };
        assert!(congestion_again(&host(), "cubic", seen, false).is_some());
    }

    #[test]
    fn only_a_wire_that_is_memory_has_a_small_send_buffer() {
        assert_eq!(send_buffer_bytes(false), None);
        assert_eq!(send_buffer_bytes(true), Some(512 << 10));
    }

    #[test]
    fn as_many_spans_as_streams_are_no_reason_for_fewer() {
        let host = host();
        let size_bytes = 4 * SPAN_BYTES_DEFAULT;
        let long = StreamFacts { size_bytes, ..facts(&host, Duration::from_millis(20)) };
        let (count, because) = streams(&long);
        assert!(count == 4 && because.starts_with("the round trip takes"), "{because}");
    }
}
