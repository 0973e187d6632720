//! Smaller segments for a round whose first full ones vanish.
//!
//! A transfer does it by the same rule (`transport/segments.rs`).

use super::{
    report::{BlackHole, Direction, PathFacts},
    streams::RunningStreams,
    summary::Sample,
};
use crate::transport::segments::{DroppedBy, NOTHING_AFTER, Narrowed, Segments};
use haul_protocol::message;
use std::time::Duration;

/// Rounds of a probe beside those that were asked for: one for the path's MTU, and one for each
/// smaller size of segments.
pub const ROUNDS_BESIDE: usize = 3;
/// Retransmissions of a server's stream after which it counts as tried in vain.
const RETRANSMITS_MIN: u32 = 3;
/// Length of IP's header and TCP's, in bytes, options not counted.
const HEADER_BYTES_V4: u32 = 40;
const HEADER_BYTES_V6: u32 = 60;

/// Whether a round is to be begun again with smaller segments: on no stream of a way did anything
/// get through.
pub fn must_narrow(
    running: &RunningStreams,
    theirs: Option<&Sample>,
    lasted: Duration,
    segments: &Segments,
) -> bool {
    // On this side as on the other: only what the other side sent, and tried again.
    let tries =
        |stream: &message::ProbeStream| stream.sends && stream.retransmits >= RETRANSMITS_MIN;
    let sends = |stream: &message::ProbeStream| stream.sends && stream.sent_bytes > 0;
    let streams = theirs.map_or(&[][..], |sample| &sample.streams);
    let they_try =
        streams.iter().any(tries) || lasted >= NOTHING_AFTER && streams.iter().any(sends);
    let vanished = running.vanished(they_try);
    // All of them, so that each that was opened before others found it out is known as such.
    vanished.iter().filter(|tcp| segments.swallows(tcp)).count() > 0
}

/// Puts what streams found out into the path's facts, unless datagrams found it out better.
pub fn tell(path: &mut PathFacts, narrowed: Narrowed, direction: Direction, is_v4: bool) {
    let header_bytes = if is_v4 { HEADER_BYTES_V4 } else { HEADER_BYTES_V6 };
    let passes_bytes = narrowed.to_bytes + header_bytes;
    let of_way = match direction {
        Direction::ToServer => &mut path.passes_to_server_bytes,
        Direction::ToClient => &mut path.passes_to_client_bytes,
    };
    if *of_way == 0 {
        *of_way = passes_bytes;
        path.unmeasured = None;
    }
    let vanishes_bytes = narrowed.packet_bytes;
    let found = BlackHole { direction, vanishes_bytes, passes_bytes, own_queue: false };
    let hole = path.black_hole.get_or_insert(found);
    hole.own_queue = narrowed.by == DroppedBy::OwnQueue;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_datagrams_found_stays_and_what_they_did_not_comes_from_the_segments() {
        let by = DroppedBy::OwnQueue;
        let narrowed = Narrowed { from_bytes: 1448, to_bytes: 1200, packet_bytes: 1500, by };
        let mut path = PathFacts { unmeasured: Some("no UDP".into()), ..PathFacts::default() };
        tell(&mut path, narrowed, Direction::ToClient, true);
        assert_eq!((path.passes_to_server_bytes, path.passes_to_client_bytes), (0, 1240));
        let hole = path.black_hole.unwrap();
        assert_eq!((hole.vanishes_bytes, hole.passes_bytes, hole.own_queue), (1500, 1240, true));
        assert_eq!(path.unmeasured, None);
        let mut path = PathFacts { passes_to_server_bytes: 1400, ..PathFacts::default() };
        tell(&mut path, narrowed, Direction::ToServer, false);
        assert_eq!(path.passes_to_server_bytes, 1400);
        assert_eq!(path.black_hole.unwrap().passes_bytes, 1260);
    }
}
