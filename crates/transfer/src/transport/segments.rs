//! Sizes of the segments of a run's connections. They are smaller where a path swallows large
//! packets.
//!
//! Where a tunnel is narrower than its ends, and what it says of that (ICMP, RFC 1191) is filtered,
//! a connection is made and its first full segments never arrive: a black hole (RFC 2923). The same
//! comes of a queueing discipline of the sending host that drops what is larger than its bucket
//! (tc-tbf(8), burst), which TCP does not take for sent. Linux
//! finds one by itself only where `net.ipv4.tcp_mtu_probing` asks for it. The client opens all
//! connections, so the most that it sets before a handshake holds for what both sides send.
//!
//! Control connections have short segments from the beginning: they move little, and a message that
//! stalls them stalls everything. Streams get shorter ones step by step, and the user hears of it
//! once that has helped.

use crate::locks::{Guard, Lock, lock};
use haul_sys::tcp_info::TcpInfo;
use std::time::Duration;

/// Segment sizes that are tried, one after the other. Packets of 1280 bytes pass wherever IPv6 does
/// (RFC 8200, section 5); 536 bytes are the segments of the least that IPv4 asks of a host (RFC
/// 9293, 3.7.1).
const STEPS_BYTES: [u32; 2] = [1200, 536];
/// Retransmissions without an acknowledgement in between after which a segment is taken for
/// swallowed.
const RETRANSMITS_MIN: u32 = 3;
const UNACKNOWLEDGED_MS_MIN: u32 = 1000;
/// Probes after which a segment is taken for dropped by this host itself: it is tried again twice a
/// second (`TCP_RESOURCE_PROBE_INTERVAL`, include/net/tcp.h).
const PROBES_MIN: u8 = 3;
/// Time for which a stream brings nothing at all before its packets are suspected to vanish.
pub const NOTHING_AFTER: Duration = Duration::from_secs(3);

/// Findings of the connections of a run about segments, shared by them.
#[derive(Debug, Default)]
pub struct Segments(Lock<State>);

#[derive(Debug, Default)]
struct State {
    /// Number of steps that have been taken for streams; 0 where segments are as the path's
    /// interface has them.
    steps: usize,
    /// Whether no step helped.
    did_not_help: bool,
    /// Whether the last step is taken for control connections.
    control_is_least: bool,
    /// Size of the segments and packets of the first stream whose packets vanished, and what
    /// dropped them.
    swallowed: Option<Swallowed>,
    told: bool,
}

#[derive(Clone, Copy, Debug)]
struct Swallowed {
    segment_bytes: u32,
    packet_bytes: u32,
    by: DroppedBy,
}

/// The culprit that drops packets which are too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DroppedBy {
    Path,
    /// The queueing discipline of this host's interface.
    OwnQueue,
}

/// Smaller segments that helped, and what made them necessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Narrowed {
    pub from_bytes: u32,
    pub to_bytes: u32,
    /// Size of the packets that do not arrive.
    pub packet_bytes: u32,
    pub by: DroppedBy,
}

impl std::fmt::Display for Narrowed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { to_bytes, packet_bytes, by, .. } = self;
        match by {
            DroppedBy::Path => {
                write!(f, "the path drops packets of {packet_bytes} bytes and does not say so; ")?;
            }
            DroppedBy::OwnQueue => {
                write!(f, "this host's own queue drops packets of {packet_bytes} bytes ")?;
                write!(f, "(tc -s qdisc: is a burst smaller than the MTU?); ")?;
            }
        }
        write!(f, "streams use an MSS of {to_bytes}")
    }
}

impl Segments {
    /// Most bytes of a segment of the next stream; `None` where they are as the interface has them.
    #[must_use]
    pub fn of_stream(&self) -> Option<u32> {
        self.state().steps.checked_sub(1).map(|step| STEPS_BYTES[step])
    }

    /// Most bytes of a segment of the next control connection.
    #[must_use]
    pub fn of_control(&self) -> u32 {
        STEPS_BYTES[usize::from(self.state().control_is_least)]
    }

    /// Whether the next control connection may have smaller segments than the last.
    #[must_use]
    pub fn control_may_shrink(&self) -> bool {
        !self.state().control_is_least
    }

    /// Notes that a control connection brought nothing. True when the next has smaller segments.
    pub fn control_is_silent(&self) -> bool {
        !std::mem::replace(&mut self.state().control_is_least, true)
    }

    /// Notes that the packets of a stream like this one vanish. True when another is to be opened
    /// in its place, which has smaller segments.
    pub fn swallows(&self, tcp: &TcpInfo) -> bool {
        let mut state = self.state();
        if state.did_not_help {
            return false;
        }
        let taken = STEPS_BYTES.iter().filter(|step| tcp.mss_bytes <= **step).count();
        if taken < state.steps {
            // Opened before others found it out.
            return true;
        }
        if taken == STEPS_BYTES.len() {
            (state.steps, state.did_not_help) = (0, true);
            return false;
        }
        let packet_bytes = tcp.path_mtu_bytes.max(tcp.mss_bytes);
        let by = if dropped_here(tcp) { DroppedBy::OwnQueue } else { DroppedBy::Path };
        let this = Swallowed { segment_bytes: tcp.mss_bytes, packet_bytes, by };
        state.swallowed.get_or_insert(this);
        state.steps = taken + 1;
        true
    }

    /// Forgets what nobody has proved, for it may have been an outage that ended the session.
    pub fn forget_unproved(&self) {
        let mut state = self.state();
        if !state.told {
            (state.steps, state.did_not_help, state.swallowed) = (0, false, None);
        }
    }

    /// Notes that a stream like this one moves, and says once that smaller segments were what it
    /// took.
    pub fn moves(&self, tcp: &TcpInfo) -> Option<Narrowed> {
        let mut state = self.state();
        let to_bytes = STEPS_BYTES[state.steps.checked_sub(1)?];
        let Swallowed { segment_bytes, .. } = state.swallowed?;
        let moved_bytes = tcp.bytes_acked.max(tcp.bytes_received);
        let is_proof = tcp.mss_bytes <= to_bytes && moved_bytes > 2 * u64::from(segment_bytes);
        let is_news = is_proof && !std::mem::replace(&mut state.told, true);
        drop(state);
        self.narrowed().filter(|_| is_news)
    }

    /// Narrowing that it took to get through, once that was told.
    #[must_use]
    pub fn narrowed(&self) -> Option<Narrowed> {
        let state = self.state();
        let swallowed = state.swallowed.filter(|_| state.told)?;
        let Swallowed { segment_bytes, packet_bytes, by } = swallowed;
        let to_bytes = STEPS_BYTES[state.steps.checked_sub(1)?];
        Some(Narrowed { from_bytes: segment_bytes, to_bytes, packet_bytes, by })
    }

    fn state(&self) -> Guard<'_, State> {
        lock(&self.0)
    }
}

/// Whether the first full segments of a connection were sent again and again, and none of them
/// arrived.
#[must_use]
pub fn first_segments_vanish(tcp: &TcpInfo) -> bool {
    let on_the_way = tcp.total_retransmits >= RETRANSMITS_MIN && tcp.unacked_segments > 0;
    (on_the_way || dropped_here(tcp))
        && tcp.last_ack_received_ms >= UNACKNOWLEDGED_MS_MIN
        && tcp.bytes_acked < u64::from(tcp.mss_bytes)
}

/// Whether bytes were sent that are neither acknowledged nor in flight: the host itself dropped
/// them.
///
/// What a queueing discipline refuses (`NET_XMIT_DROP`) stays unsent for TCP, which counts no
/// retransmission of it and tries again as it does for a window that is full
/// (tcp_write_xmit, tcp_send_probe0, net/ipv4/tcp_output.c). A peer without room takes nothing, so
/// no bytes are sent to it.
fn dropped_here(tcp: &TcpInfo) -> bool {
    tcp.unacked_segments == 0
        && tcp.notsent_bytes > 0
        && tcp.probes >= PROBES_MIN
        && tcp.bytes_sent.saturating_sub(tcp.bytes_acked) >= u64::from(tcp.mss_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(mss_bytes: u32, bytes_acked: u64) -> TcpInfo {
        TcpInfo { mss_bytes, bytes_acked, path_mtu_bytes: 1500, ..TcpInfo::default() }
    }

    #[test]
    fn segments_become_smaller_once_for_all_streams_and_it_is_told_when_it_helped() {
        let segments = Segments::default();
        assert_eq!(segments.of_stream(), None);
        assert!((0..8).all(|_| segments.swallows(&stream(1448, 65))), "all are opened again");
        assert_eq!(segments.of_stream(), Some(1200));
        assert_eq!(segments.moves(&stream(1448, 1 << 20)), None, "one that was opened before");
        assert_eq!(segments.moves(&stream(1188, 1000)), None, "it may have been one small frame");
        assert!(segments.swallows(&stream(1188, 65)));
        assert_eq!(segments.of_stream(), Some(536));
        let by = DroppedBy::Path;
        let narrowed = Narrowed { from_bytes: 1448, to_bytes: 536, packet_bytes: 1500, by };
        assert_eq!(segments.moves(&stream(524, 1 << 20)), Some(narrowed));
        assert_eq!(segments.moves(&stream(524, 1 << 20)), None, "once");
    }

    #[test]
    fn where_the_smallest_segments_vanish_too_they_are_as_they_were() {
        let segments = Segments::default();
        assert!(segments.swallows(&stream(1448, 65)) && segments.swallows(&stream(1200, 65)));
        assert!(!segments.swallows(&stream(536, 65)));
        assert_eq!(segments.of_stream(), None);
        assert!(!segments.swallows(&stream(1448, 65)), "not all over again");
        segments.forget_unproved();
        assert!(segments.swallows(&stream(1448, 65)), "another session may find out more");
    }

    #[test]
    fn control_connections_are_short_from_the_beginning_and_shorter_once() {
        let segments = Segments::default();
        assert_eq!(segments.of_control(), 1200);
        assert!(segments.control_is_silent());
        assert_eq!(segments.of_control(), 536);
        assert!(!segments.control_is_silent());
    }

    #[test]
    fn only_first_segments_that_nobody_acknowledges_vanish() {
        let vanishes = TcpInfo {
            total_retransmits: 4,
            unacked_segments: 10,
            last_ack_received_ms: 1500,
            ..stream(1448, 65)
        };
        assert!(first_segments_vanish(&vanishes));
        for other in [
            TcpInfo { bytes_acked: 100_000, ..vanishes },
            TcpInfo { total_retransmits: 1, ..vanishes },
            TcpInfo { last_ack_received_ms: 20, ..vanishes },
            TcpInfo { unacked_segments: 0, ..vanishes },
        ] {
            assert!(!first_segments_vanish(&other), "{other:?}");
        }
    }

    /// Figures of a tbf with a burst of 1000 bytes: nothing was in flight, and nothing counted as
    /// sent again.
    #[test]
    fn what_the_host_s_own_queue_drops_vanishes_too_and_is_told_from_a_full_window() {
        let dropped = TcpInfo {
            probes: 3,
            last_ack_received_ms: 1504,
            notsent_bytes: 70_952,
            bytes_sent: 33_364,
            ..stream(1448, 61)
        };
        assert!(first_segments_vanish(&dropped));
        for other in [
            TcpInfo { bytes_sent: 60, ..dropped },
            TcpInfo { bytes_acked: 100_000, bytes_sent: 200_000, ..dropped },
            TcpInfo { probes: 2, ..dropped },
            TcpInfo { last_ack_received_ms: 20, ..dropped },
            TcpInfo { notsent_bytes: 0, ..dropped },
        ] {
            assert!(!first_segments_vanish(&other), "{other:?}");
        }
        let segments = Segments::default();
        assert!(segments.swallows(&dropped));
        let told = segments.moves(&stream(1188, 1 << 20)).unwrap().to_string();
        assert!(told.contains("own queue drops packets of 1500 bytes"), "{told}");
    }
}
