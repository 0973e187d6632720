//! Timing of the questions to a silent peer: when it is pinged, and when it is given up.

use std::time::{Duration, Instant};

/// Silence after which a side asks whether the other is there.
const PING_AFTER: Duration = Duration::from_secs(5);
/// Silence after which a side gives the session up.
pub const LOST_AFTER: Duration = Duration::from_secs(20);
/// Silence after a ping that ends the session, where another one waits for what this one holds.
const LOST_AFTER_WANTED: Duration = Duration::from_secs(4);

/// Silence after which a server that tells no figures is not believed any more: it answers pings
/// every five seconds.
pub const SILENT_AFTER_PING: Duration = Duration::from_secs(8);

/// The step that a peer's silence calls for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    Nothing,
    Ping,
    GiveUp(String),
}

#[derive(Debug)]
pub struct Listening {
    lost_after: Duration,
    pinged_at: Instant,
    /// Time of the ping that was sent because another session waits.
    asked_at: Option<Instant>,
    /// Count of bytes on the streams at the last look while another session waits, and the time
    /// when it last grew: on a slow path an answer stands behind them in the same queue.
    moved: Option<(u64, Instant)>,
}

impl Listening {
    #[must_use]
    pub fn new(lost_after: Duration, now: Instant) -> Self {
        Self { lost_after, pinged_at: now, asked_at: None, moved: None }
    }

    /// Whether another session waits, and the peer has not been heard since it was asked.
    #[must_use]
    pub fn is_doubted(&self, heard_at: Instant) -> bool {
        self.asked_at.is_some_and(|at| at > self.latest(heard_at))
    }

    /// Time when the peer was last heard, be it by its bytes.
    fn latest(&self, heard_at: Instant) -> Instant {
        self.moved.map_or(heard_at, |(_, at)| heard_at.max(at))
    }

    /// Decides what to do about the peer's silence. `waited_for`: another session waits for what
    /// this one holds, whose streams have moved so many bytes.
    pub fn look(&mut self, now: Instant, heard_at: Instant, waited_for: Option<u64>) -> Next {
        let silent = now.saturating_duration_since(heard_at);
        if silent > self.lost_after {
            return Next::GiveUp(format!("nothing heard for {} s", silent.as_secs()));
        }
        match (waited_for, self.moved) {
            (None, _) => self.moved = None,
            // How long ago the first of them came is not known.
            (Some(bytes), None) => self.moved = Some((bytes, heard_at)),
            (Some(bytes), Some((before, _))) if bytes != before => self.moved = Some((bytes, now)),
            _ => {}
        }
        let latest = self.latest(heard_at);
        if waited_for.is_none() {
            self.asked_at = None;
        } else if let Some(at) = self.asked_at.filter(|at| *at > latest) {
            if now.saturating_duration_since(at) > LOST_AFTER_WANTED {
                return Next::GiveUp(format!(
                    "nothing heard for {} s, and another session waits for what this one holds",
                    silent.as_secs()
                ));
            }
        } else if self.asked_at.is_none_or(|at| now.duration_since(at) > LOST_AFTER_WANTED) {
            (self.asked_at, self.pinged_at) = (Some(now), now);
            return Next::Ping;
        }
        let ping_after = PING_AFTER.min(self.lost_after / 2);
        if silent > ping_after && now.saturating_duration_since(self.pinged_at) > ping_after {
            self.pinged_at = now;
            return Next::Ping;
        }
        Next::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// Seconds after which a peer is given up, looked at ten times a second for 30 s; `None`: it is
    /// kept.
    fn kept(is_waited_for: bool, answers: bool) -> Option<u128> {
        kept_that_moves(is_waited_for.then_some(0), answers)
    }

    /// Seconds after which a peer is given up whose streams move so many bytes between two looks.
    fn kept_that_moves(waited_for: Option<u64>, answers: bool) -> Option<u128> {
        let begun = Instant::now();
        let mut heard_at = begun;
        let mut listening = Listening::new(LOST_AFTER, begun);
        (1..300).find_map(|turn| {
            let now = begun + Duration::from_millis(100 * turn);
            let moved = waited_for.map(|bytes| bytes * turn);
            match listening.look(now, heard_at, moved) {
                Next::GiveUp(_) => return Some(now.duration_since(begun).as_secs().into()),
                Next::Ping if answers => heard_at = now + Duration::from_millis(50),
                _ => {}
            }
            assert!(!answers || !listening.is_doubted(heard_at));
            None
        })
    }

    #[test]
    fn a_silent_peer_is_given_up_sooner_where_another_waits_for_what_it_holds() {
        assert_eq!(kept(false, false), Some(20));
        assert_eq!(kept(true, false), Some(4));
    }

    #[test]
    fn a_peer_whose_bytes_arrive_is_kept_as_long_as_if_nobody_waited() {
        assert_eq!(kept_that_moves(Some(1), false), Some(20));
    }

    #[test]
    fn a_peer_that_answers_is_kept_whoever_waits() {
        assert_eq!(kept(false, true), None);
        assert_eq!(kept(true, true), None);
    }

    const MOMENT: Duration = Duration::from_nanos(1);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_silent_peer_is_asked_after_five_seconds_or_half_its_time_and_not_more_often() {
        for (lost_after, ping_after) in [(LOST_AFTER, PING_AFTER), (seconds(8), seconds(4))] {
            let begun = Instant::now();
            let mut listening = Listening::new(lost_after, begun);
            let mut look = |after| listening.look(begun + after, begun, None);
            assert_eq!(look(ping_after), Next::Nothing);
            assert_eq!(look(ping_after + MOMENT), Next::Ping);
            if lost_after > ping_after * 3 {
                assert_eq!(look(ping_after * 2 + MOMENT), Next::Nothing);
                assert_eq!(look(ping_after * 2 + MOMENT * 2), Next::Ping);
            }
            // One that speaks is not asked, however long ago it was asked last.
            let mut listening = Listening::new(lost_after, begun);
            let now = begun + seconds(60);
            assert_eq!(listening.look(now, now - ping_after, None), Next::Nothing);
        }
    }

    #[test]
    fn a_peer_is_kept_to_the_very_end_of_its_time() {
        let begun = Instant::now();
        let mut listening = Listening::new(LOST_AFTER, begun);
        let end = begun + LOST_AFTER;
        assert!(!matches!(listening.look(end, begun, None), Next::GiveUp(_)));
        let why = Next::GiveUp("nothing heard for 20 s".into());
        assert_eq!(listening.look(end + MOMENT, begun, None), why);
    }

    #[test]
    fn who_holds_what_another_waits_for_has_four_seconds_to_answer() {
        let begun = Instant::now();
        let mut listening = Listening::new(LOST_AFTER, begun);
        let asked_at = begun + seconds(1);
        assert_eq!(listening.look(asked_at, begun, Some(7)), Next::Ping);
        assert!(listening.is_doubted(begun) && !listening.is_doubted(asked_at));
        let end = asked_at + LOST_AFTER_WANTED;
        assert_eq!(listening.look(end, begun, Some(7)), Next::Nothing);
        assert!(matches!(listening.look(end + MOMENT, begun, Some(7)), Next::GiveUp(_)));
        // It has answered in time: it is asked again, after as long.
        assert_eq!(listening.look(end, asked_at, Some(7)), Next::Nothing);
        assert_eq!(listening.look(end + MOMENT, asked_at, Some(7)), Next::Ping);
    }

    #[test]
    fn bytes_that_moved_while_nobody_waited_are_no_answer() {
        let begun = Instant::now();
        let mut listening = Listening::new(LOST_AFTER, begun);
        assert_eq!(listening.look(begun + seconds(1), begun, Some(10)), Next::Ping);
        assert_eq!(listening.look(begun + seconds(2), begun, None), Next::Nothing);
        assert!(!listening.is_doubted(begun), "nobody waits any more");
        assert_eq!(listening.look(begun + seconds(3), begun, Some(50)), Next::Ping);
        assert!(listening.is_doubted(begun));
    }
}
