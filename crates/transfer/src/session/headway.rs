//! Headway of a client's transfer: spans that were verified, and nothing else, count.
//!
//! Bytes that move show that a connection lives, so it is not called stalled. They are no progress:
//! a path that cuts every connection before a span is through moves bytes for ever. From the first
//! cut behind the last verified span on, the time of `--retry-for` runs. What a connection lived
//! and moved before it was cut is taken off it, so that a slow path, on which one span takes
//! minutes, has its tries. After several cuts spans become smaller, which needs another session.
//!
//! One of these lasts for all sessions of a run. It has no clock and no socket.

use super::streams::StreamFigures;
use crate::{
    locks::{Lock, lock},
    session::listening::LOST_AFTER,
};
use haul_protocol::{
    frame::{HEADER_BYTES, PREFACE_BYTES},
    limits,
};
use std::time::{Duration, Instant};

/// Time within which connections that break broke for one reason.
const ROUND: Duration = Duration::from_millis(200);
/// Rounds of broken streams without a verified span after which a session is given up for another.
const ROUNDS_MAX: u32 = 12;
const REOPEN_DELAY: Duration = Duration::from_millis(50);
/// Pause before a stream without work is opened again, beside others that have work.
const REOPEN_IDLE_DELAY: Duration = Duration::from_secs(1);
/// Rounds of streams that carried a part of a span, none of which was verified, after which spans
/// become smaller: those of this size do not come through.
const CUTS_A_SIZE: u32 = 3;
/// Age of a session at which it is not broken, if it has nothing to move and its peer still speaks.
const IDLE_AFTER: Duration = Duration::from_secs(5);
/// Rounds with the smallest spans after which all time counts, also what connections lived.
const CUTS_OF_SMALLEST: u32 = 8;
/// Divisor of the size of spans to the next smaller one.
const SHRINK: u64 = 8;

/// Bytes that a connection brought before it was cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Payload bytes, behind the preface and the first header.
    pub payload_bytes: u64,
    /// Time from the connection's opening to the last byte that moved.
    pub lived: Duration,
}

impl Carried {
    #[must_use]
    pub fn of(figures: &StreamFigures) -> Self {
        // The SYN counts as a byte, and the preface goes one way only.
        let (sent, received) = (figures.tcp.bytes_acked, figures.tcp.bytes_received);
        let sent = sent.saturating_sub(1 + (PREFACE_BYTES + HEADER_BYTES) as u64);
        let payload_bytes = sent.max(received.saturating_sub(HEADER_BYTES as u64));
        let lived = figures.opened_at.zip(figures.moved_at);
        let lived = lived.map_or(Duration::ZERO, |(from, to)| to.saturating_duration_since(from));
        Self { payload_bytes, lived }
    }
}

/// A data stream that was cut, and what went on beside it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cut {
    pub carried: Carried,
    /// The connection was moving a span.
    pub at_work: bool,
    /// Time when the oldest other stream that is moving a span was opened.
    pub oldest_at_work: Option<Instant>,
}

/// The step after a stream was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Opens another stream after this time.
    Reopen(Duration),
    /// Ends the session; another one may do better, or [`Headway::is_over`] says that none does.
    EndSession,
}

#[derive(Debug)]
pub struct Headway(Lock<State>);

#[derive(Debug)]
struct State {
    retry_for: Duration,
    session_at: Option<Instant>,
    /// Time when the peer last said anything.
    heard_at: Option<Instant>,
    /// Size of spans that the user wants, or the largest that is chosen.
    span_bytes: u64,
    /// Spans have become smaller than the size that was wanted.
    is_smaller: bool,
    /// Progress that the session has verified, in any unit that grows.
    verified: u64,
    /// Time of the first cut since a span was verified.
    broken_since: Option<Instant>,
    /// Time that connections lived since the first cut, one of each round.
    lived: Duration,
    /// Time when the last round of cuts began.
    round_at: Option<Instant>,
    /// Rounds of cuts in this session, since a span was verified.
    rounds: u32,
    /// Rounds of cuts in which spans of this size were on their way.
    cuts: u32,
    cuts_ever: u32,
    carried_bytes: u64,
    /// Times that nothing got on any more, however many connections broke meanwhile.
    outages: u64,
}

impl Headway {
    #[must_use]
    pub fn new(retry_for: Duration, span_bytes: u64) -> Self {
        Self(Lock::new(State {
            retry_for,
            session_at: None,
            heard_at: None,
            span_bytes,
            is_smaller: false,
            verified: 0,
            broken_since: None,
            lived: Duration::ZERO,
            round_at: None,
            rounds: 0,
            cuts: 0,
            cuts_ever: 0,
            carried_bytes: 0,
            outages: 0,
        }))
    }

    /// Times in this run that nothing got on any more, until something was verified again.
    #[must_use]
    pub fn outages(&self) -> u64 {
        lock(&self.0).outages
    }

    /// Starts the time for coming back, while the first session is waited for.
    pub fn begin_waiting(&self, now: Instant) {
        lock(&self.0).broken_since = Some(now);
    }

    /// Ends the wait for the first session: the server is there.
    pub fn end_waiting(&self) {
        lock(&self.0).forget();
    }

    /// Begins another session, which has verified nothing yet.
    pub fn begin_session(&self, now: Instant) {
        let mut state = lock(&self.0);
        state.session_at = Some(now);
        (state.verified, state.rounds, state.round_at) = (0, 0, None);
    }

    /// Notes what the session has verified, in any unit that grows. More than before is progress,
    /// and all that went wrong until now is forgotten.
    pub fn verified(&self, total: u64) {
        let mut state = lock(&self.0);
        if total > state.verified {
            state.verified = total;
            state.forget();
        }
    }

    /// Notes the time when the peer last said anything.
    pub fn heard(&self, at: Instant) {
        lock(&self.0).heard_at = Some(at);
    }

    /// Notes that no file is under way: there is nothing to get on with. A peer that took the
    /// session and says nothing is no reason to forget what went wrong before.
    pub fn idle(&self) {
        let mut state = lock(&self.0);
        let between = state.heard_at.zip(state.session_at);
        let lives = between.map(|(heard, begun)| heard.saturating_duration_since(begun));
        if lives.is_some_and(|lives| lives >= IDLE_AFTER) {
            state.forget();
        }
    }

    /// Counts a data stream that was cut, and says what to do next.
    pub fn stream_cut(&self, now: Instant, cut: &Cut) -> Next {
        let mut state = lock(&self.0);
        let survives = |state: &State| {
            cut.oldest_at_work.is_some_and(|at| state.broken_since.is_none_or(|since| at <= since))
        };
        if !cut.at_work && survives(&state) {
            // Others do the work, and live.
            return Next::Reopen(REOPEN_IDLE_DELAY);
        }
        state.cut(now, cut.carried);
        let rounds = state.rounds;
        let is_futile = rounds > ROUNDS_MAX || state.must_shrink(now) || state.is_over(now);
        if is_futile && !survives(&state) {
            return Next::EndSession;
        }
        Next::Reopen(REOPEN_DELAY * rounds.min(ROUNDS_MAX))
    }

    /// Notes that the session was lost. Returns the sizes of spans before and from now on, where
    /// they become smaller.
    pub fn session_lost(&self, now: Instant) -> Option<(u64, u64)> {
        let mut state = lock(&self.0);
        state.is_broken(now);
        if !state.must_shrink(now) || state.is_over(now) {
            return None;
        }
        let before = state.span_bytes;
        let soon_over = state.clock(now) * 2 >= state.retry_for;
        let next = if soon_over { 0 } else { before / SHRINK };
        state.span_bytes = next.max(limits::SPAN_BYTES_MIN);
        (state.is_smaller, state.cuts) = (true, 0);
        Some((before, state.span_bytes))
    }

    /// The size of spans to ask for, where connections are cut before a larger one is through.
    #[must_use]
    pub fn smaller_span_bytes(&self) -> Option<u64> {
        let state = lock(&self.0);
        state.is_smaller.then_some(state.span_bytes)
    }

    /// Whether the time for coming back has passed without progress.
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        lock(&self.0).is_over(now)
    }

    /// Time for coming back that is left, once it runs.
    #[must_use]
    pub fn left(&self, now: Instant) -> Option<Duration> {
        let state = lock(&self.0);
        state.broken_since.map(|_| state.retry_for.saturating_sub(state.clock(now)))
    }

    /// Time until the run is given up, if the session is lost in `lost_in`.
    #[must_use]
    pub fn given_up_in(&self, now: Instant, lost_in: Duration) -> Duration {
        let left = self.left(now);
        left.unwrap_or_else(|| lost_in + lock(&self.0).retry_for)
    }

    /// Silence of a server after which the session is given up for another: the time for coming
    /// back would otherwise pass without a try.
    #[must_use]
    pub fn lost_after(&self) -> Duration {
        let retry_for = lock(&self.0).retry_for;
        if retry_for.is_zero() {
            return LOST_AFTER;
        }
        (retry_for / 2).clamp(LOST_AFTER_MIN, LOST_AFTER)
    }

    /// Time for which a stream may bring nothing: not longer than there is time for coming back,
    /// once that runs.
    #[must_use]
    pub fn stall_after(&self, now: Instant, stall_after: Duration) -> Duration {
        let left = self.left(now);
        left.map_or(stall_after, |left| stall_after.min(left.max(STALL_AFTER_MIN)))
    }

    /// The cause of cuts, where several carried a part of a span each: one may have been an
    /// outage.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        let state = lock(&self.0);
        (state.cuts_ever >= CUTS_A_SIZE).then_some(Cause {
            connections: state.cuts_ever,
            span_bytes: state.span_bytes,
            carried_bytes: state.carried_bytes,
        })
    }
}

/// The shortest silence after which a session is given up.
const LOST_AFTER_MIN: Duration = Duration::from_secs(5);
/// The shortest time for which a stream may bring nothing.
const STALL_AFTER_MIN: Duration = Duration::from_secs(2);

/// A cause of cuts that lets no span through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Rounds of connections, one after the other.
    pub connections: u32,
    pub span_bytes: u64,
    /// The most payload bytes that one connection carried.
    pub carried_bytes: u64,
}

impl State {
    fn forget(&mut self) {
        self.broken_since = None;
        (self.lived, self.carried_bytes) = (Duration::ZERO, 0);
        (self.rounds, self.cuts, self.cuts_ever) = (0, 0, 0);
    }

    fn is_broken(&mut self, now: Instant) {
        if self.broken_since.is_none() {
            self.broken_since = Some(now);
            // What breaks together is one outage, though spans that were under way are verified
            // in between.
            let together = |at: Instant| now.saturating_duration_since(at) <= ROUND;
            self.outages += u64::from(!self.round_at.is_some_and(together));
        }
    }

    fn cut(&mut self, now: Instant, carried: Carried) {
        self.is_broken(now);
        self.carried_bytes = self.carried_bytes.max(carried.payload_bytes);
        if self.round_at.is_none_or(|at| now.saturating_duration_since(at) > ROUND) {
            self.round_at = Some(now);
            self.rounds += 1;
            if carried.payload_bytes > 0 {
                self.cuts += 1;
                self.cuts_ever += 1;
                // The first cut starts the time: what was before it is not on it.
                self.lived += if self.cuts_ever > 1 { carried.lived } else { Duration::ZERO };
            }
        }
    }

    fn is_smallest(&self) -> bool {
        self.span_bytes <= limits::SPAN_BYTES_MIN
    }

    fn must_shrink(&self, now: Instant) -> bool {
        let soon_over = self.clock(now) * 2 >= self.retry_for;
        !self.is_smallest() && (self.cuts >= CUTS_A_SIZE || (self.cuts > 0 && soon_over))
    }

    /// Time for which nothing got on, without what connections lived.
    fn clock(&self, now: Instant) -> Duration {
        let Some(since) = self.broken_since else { return Duration::ZERO };
        let all = now.saturating_duration_since(since);
        if self.is_smallest() && self.cuts >= CUTS_OF_SMALLEST {
            return all;
        }
        all.saturating_sub(self.lived)
    }

    fn is_over(&self, now: Instant) -> bool {
        self.broken_since.is_some() && self.clock(now) >= self.retry_for
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: u64 = 8 << 20;
    const RETRY: Duration = Duration::from_secs(20);

    fn cut(payload_bytes: u64, lived_s: u64) -> Cut {
        let carried = Carried { payload_bytes, lived: Duration::from_secs(lived_s) };
        Cut { carried, at_work: true, oldest_at_work: None }
    }

    fn nothing() -> Cut {
        cut(0, 0)
    }

    /// Course of a run on a path that does the same to each connection.
    struct Course {
        sizes: Vec<u64>,
        seconds: f64,
        connections: u32,
    }

    /// Runs sessions until the run is over, or a span of this size is through.
    fn course(each: Cut, between: Duration, through_bytes: u64) -> Course {
        let (begun, headway) = (Instant::now(), Headway::new(RETRY, SPAN));
        let (mut now, mut sizes, mut connections) = (begun, vec![SPAN], 0);
        while *sizes.last().unwrap() > through_bytes && !headway.is_over(now) {
            headway.begin_session(now);
            loop {
                now += each.carried.lived + between;
                connections += 1;
                match headway.stream_cut(now, &each) {
                    Next::Reopen(delay) => now += delay,
                    Next::EndSession => break,
                }
                assert!(connections < 10_000, "no end");
            }
            sizes.extend(headway.session_lost(now).map(|(_, after)| after));
        }
        Course { sizes, seconds: (now - begun).as_secs_f64(), connections }
    }

    #[test]
    fn streams_that_break_together_count_once_and_a_verified_span_forgets_them() {
        let (now, headway) = (Instant::now(), Headway::new(RETRY, SPAN));
        assert!((0..100).all(|_| headway.stream_cut(now, &nothing()) != Next::EndSession));
        let later = |round: u32| now + ROUND * 2 * round;
        let gave_up =
            |round: &u32| headway.stream_cut(later(*round), &nothing()) == Next::EndSession;
        assert_eq!((1..=ROUNDS_MAX).find(gave_up), Some(ROUNDS_MAX));
        headway.verified(1);
        assert_eq!(
            headway.stream_cut(later(ROUNDS_MAX + 1), &nothing()),
            Next::Reopen(REOPEN_DELAY)
        );
        headway.verified(1);
        let again = headway.stream_cut(later(ROUNDS_MAX + 2), &nothing());
        assert_eq!(again, Next::Reopen(REOPEN_DELAY * 2), "the same as before is no progress");
    }

    #[test]
    fn cuts_make_spans_smaller_long_before_the_time_is_over() {
        let course = course(cut(256 << 10, 0), Duration::from_millis(250), 64 << 10);
        assert_eq!(course.sizes, [SPAN, 1 << 20, 128 << 10, 64 << 10]);
        assert!(course.seconds < 5.0, "{}", course.seconds);
    }

    #[test]
    fn cuts_before_the_smallest_span_end_in_time() {
        let course = course(cut(20 << 10, 0), Duration::from_millis(250), 0);
        assert_eq!(course.sizes.last(), Some(&(64 << 10)));
        assert!((20.0..22.0).contains(&course.seconds), "{}", course.seconds);
    }

    /// Case of a slow path: a span of 8 MiB takes 7 minutes at 20 kB/s.
    #[test]
    fn a_slow_path_that_is_cut_now_and_then_gets_smaller_spans_and_is_not_given_up() {
        let course = course(cut(4 << 20, 200), Duration::from_millis(250), 1 << 20);
        assert_eq!((&course.sizes[..], course.connections), (&[SPAN, 1 << 20][..], 3));
    }

    #[test]
    fn slow_connections_that_never_bring_the_smallest_span_end_too() {
        let course = course(cut(20 << 10, 10), Duration::from_millis(250), 0);
        assert!(course.connections < 30, "{}", course.connections);
    }

    #[test]
    fn connections_that_carry_nothing_leave_the_spans_as_they_are() {
        let course = course(nothing(), Duration::from_secs(1), 0);
        assert_eq!(course.sizes, [SPAN]);
        assert!((20.0..23.0).contains(&course.seconds), "{}", course.seconds);
    }

    /// Case of a NAT that forgets connections on which nothing goes over.
    #[test]
    fn idle_streams_that_are_cut_beside_one_at_work_are_no_lack_of_progress() {
        let (begun, headway) = (Instant::now(), Headway::new(RETRY, SPAN));
        let idle = Cut { at_work: false, oldest_at_work: Some(begun), ..nothing() };
        for minute in 1..100 {
            let now = begun + Duration::from_secs(60) * minute;
            assert_eq!(headway.stream_cut(now, &idle), Next::Reopen(REOPEN_IDLE_DELAY));
            assert!(!headway.is_over(now));
        }
    }

    #[test]
    fn a_stream_that_survives_the_first_cut_is_waited_for() {
        let (begun, headway) = (Instant::now(), Headway::new(RETRY, SPAN));
        let second = |seconds: u64| begun + Duration::from_secs(seconds);
        let beside = |opened_s| Cut { oldest_at_work: Some(second(opened_s)), ..cut(1000, 0) };
        for cuts in 1..10 {
            let next = headway.stream_cut(second(10 * cuts), &beside(0));
            assert!(matches!(next, Next::Reopen(_)), "{next:?}");
        }
        assert_eq!(headway.stream_cut(second(100), &beside(99)), Next::EndSession);
    }

    #[test]
    fn a_session_that_has_nothing_to_move_forgets_what_went_wrong() {
        let (begun, headway) = (Instant::now(), Headway::new(RETRY, SPAN));
        headway.session_lost(begun);
        headway.begin_session(begun);
        headway.idle();
        assert!(headway.is_over(begun + RETRY), "the peer has said nothing yet");
        headway.heard(begun + IDLE_AFTER / 2);
        headway.idle();
        assert!(headway.is_over(begun + RETRY), "it did not live long enough to tell");
        headway.heard(begun + IDLE_AFTER);
        headway.idle();
        assert!(!headway.is_over(begun + RETRY * 9));
    }

    /// Case stored from a link that was cut for 20 s: `reconnected 36 times`.
    #[test]
    fn an_outage_counts_once_however_often_connections_are_tried() {
        let (begun, headway) = (Instant::now(), Headway::new(RETRY * 3, SPAN));
        let second = |seconds: u64| begun + Duration::from_secs(seconds);
        for seconds in 10..20 {
            headway.stream_cut(second(seconds), &nothing());
        }
        headway.session_lost(second(20));
        headway.begin_session(second(30));
        headway.stream_cut(second(31), &nothing());
        assert_eq!(headway.outages(), 1);
        headway.verified(1);
        headway.stream_cut(second(40), &nothing());
        headway.verified(2);
        headway.stream_cut(second(40) + ROUND / 2, &nothing());
        assert_eq!(headway.outages(), 2, "what breaks together is one");
    }

    /// Case stored from a path that was cut: a silence of 20 s is longer than `--retry-for 10s`.
    #[test]
    fn a_silent_session_is_given_up_while_there_is_time_for_another() {
        let after = |seconds| Headway::new(Duration::from_secs(seconds), SPAN).lost_after();
        assert_eq!([60, 30, 10, 1].map(after).map(|after| after.as_secs()), [20, 15, 5, 5]);
        assert_eq!(after(0), LOST_AFTER, "no other will be tried");
        let (now, headway) = (Instant::now(), Headway::new(RETRY, SPAN));
        let left = Duration::from_secs(3);
        assert_eq!(headway.given_up_in(now, left), RETRY + left, "and then it is tried");
        headway.session_lost(now);
        assert_eq!(headway.given_up_in(now + left, left), RETRY - left);
    }

    #[test]
    fn without_time_for_coming_back_a_lost_session_is_the_end() {
        let (now, headway) = (Instant::now(), Headway::new(Duration::ZERO, SPAN));
        assert!(!headway.is_over(now));
        headway.stream_cut(now, &cut(1 << 20, 0));
        assert_eq!(headway.session_lost(now), None, "no session is left for smaller spans");
        assert!(headway.is_over(now));
        assert_eq!(headway.cause(), None, "one cut may have been an outage");
    }

    /// A cut of a stream that had no work, beside one at work since then.
    fn idle_beside(oldest_at_work: Option<Instant>) -> Cut {
        Cut { at_work: false, oldest_at_work, ..nothing() }
    }

    #[test]
    fn a_stream_without_work_counts_only_when_no_other_has_lived_since_nothing_broke() {
        let (begun, headway) = (Instant::now(), Headway::new(RETRY, SPAN));
        let at = |tenths: u32| begun + Duration::from_millis(100) * tenths;
        let next = headway.stream_cut(at(0), &idle_beside(Some(begun)));
        assert_eq!((next, headway.left(at(0))), (Next::Reopen(REOPEN_IDLE_DELAY), None));
        let first = Next::Reopen(REOPEN_DELAY);
        assert_eq!(headway.stream_cut(at(10), &idle_beside(None)), first, "nobody works");
        assert_eq!(headway.left(at(10)), Some(RETRY));
        let next = headway.stream_cut(at(20), &idle_beside(Some(at(10))));
        assert_eq!(next, Next::Reopen(REOPEN_IDLE_DELAY), "it is as old as the break");
        let next = headway.stream_cut(at(30), &idle_beside(Some(at(11))));
        assert_eq!(next, Next::Reopen(REOPEN_DELAY * 2), "it may be cut like all before it");
        let next = headway.stream_cut(at(40), &Cut { at_work: true, ..idle_beside(Some(begun)) });
        assert_eq!(next, Next::Reopen(REOPEN_DELAY * 3), "its span has to come again");
    }

    #[test]
    fn a_session_in_which_an_old_stream_still_works_is_not_ended_for_the_others() {
        let (begun, headway) = (Instant::now(), Headway::new(RETRY * 9, SPAN));
        let cut_in = |round: u32, oldest_at_work| {
            let cut = Cut { oldest_at_work, ..nothing() };
            headway.stream_cut(begun + ROUND * 2 * round, &cut)
        };
        for round in 1..=ROUNDS_MAX {
            assert_eq!(cut_in(round, None), Next::Reopen(REOPEN_DELAY * round));
        }
        let longest = Next::Reopen(REOPEN_DELAY * ROUNDS_MAX);
        assert_eq!(cut_in(ROUNDS_MAX + 1, Some(begun)), longest);
        assert_eq!(cut_in(ROUNDS_MAX + 2, Some(begun + RETRY)), Next::EndSession);
    }

    #[test]
    fn what_breaks_within_the_time_of_a_round_is_one_round() {
        let (now, headway) = (Instant::now(), Headway::new(RETRY, SPAN));
        let moment = Duration::from_nanos(1);
        let rounds = [(now, 1), (now + ROUND, 1), (now + ROUND + moment, 2)];
        for (at, round) in rounds {
            assert_eq!(headway.stream_cut(at, &nothing()), Next::Reopen(REOPEN_DELAY * round));
        }
    }

    /// An idle connection that comes with the preface and a header alone has carried nothing.
    #[test]
    fn what_a_connection_carried_is_payload_and_the_time_to_its_last_byte() {
        let (begun, lived) = (Instant::now(), Duration::from_secs(7));
        let of = |bytes_acked, bytes_received, moved_at| {
            let tcp = haul_sys::TcpInfo { bytes_acked, bytes_received, ..Default::default() };
            let opened_at = Some(begun);
            Carried::of(&StreamFigures { tcp, opened_at, moved_at, ..StreamFigures::default() })
        };
        let (preface, header) = (PREFACE_BYTES as u64, HEADER_BYTES as u64);
        let sent = Carried { payload_bytes: 700, lived };
        assert_eq!(of(1 + preface + header + 700, 0, Some(begun + lived)), sent);
        let received = Carried { payload_bytes: 500, lived };
        assert_eq!(of(1 + preface, header + 500, Some(begun + lived)), received);
        assert_eq!(of(1 + preface + header, 0, None), Carried::default());
    }

    #[test]
    fn the_wait_for_the_first_session_takes_as_long_as_for_any_other() {
        let (now, headway) = (Instant::now(), Headway::new(RETRY, SPAN));
        headway.begin_waiting(now);
        let moment = Duration::from_nanos(1);
        assert!(!headway.is_over(now + RETRY - moment) && headway.is_over(now + RETRY));
        headway.end_waiting();
        assert!(!headway.is_over(now + RETRY));
        assert_eq!((headway.left(now), headway.outages()), (None, 0));
    }

    #[test]
    fn another_session_begins_at_nothing_verified_and_at_no_rounds() {
        let (now, headway) = (Instant::now(), Headway::new(RETRY, SPAN));
        headway.verified(5);
        headway.stream_cut(now, &nothing());
        headway.begin_session(now);
        let first = Next::Reopen(REOPEN_DELAY);
        assert_eq!(headway.stream_cut(now, &nothing()), first, "a round of its own");
        headway.verified(1);
        assert_eq!(headway.left(now), None, "what it verified is progress");
    }

    #[test]
    fn a_path_on_which_half_the_time_has_passed_gets_the_smallest_spans_at_once() {
        let moment = Duration::from_nanos(1);
        for (after, next) in [(RETRY / 2 - moment, SPAN / 8), (RETRY / 2, 64 << 10)] {
            let (now, headway) = (Instant::now(), Headway::new(RETRY, SPAN));
            for round in 0..3 {
                headway.stream_cut(now + ROUND * 2 * round, &cut(1 << 20, 0));
            }
            assert_eq!(headway.smaller_span_bytes(), None);
            assert_eq!(headway.session_lost(now + after), Some((SPAN, next)));
            assert_eq!(headway.smaller_span_bytes(), Some(next));
        }
    }

    #[test]
    fn one_cut_within_a_span_is_no_reason_for_smaller_ones_before_half_the_time_has_passed() {
        let (now, headway) = (Instant::now(), Headway::new(RETRY, SPAN));
        headway.stream_cut(now, &cut(1 << 20, 0));
        let before = now + RETRY / 2 - Duration::from_nanos(1);
        assert_eq!(headway.stream_cut(before, &nothing()), Next::Reopen(REOPEN_DELAY * 2));
        assert_eq!(headway.session_lost(before), None);
        assert_eq!(headway.stream_cut(now + RETRY / 2, &nothing()), Next::EndSession);
    }

    #[test]
    fn the_time_that_connections_lived_since_the_first_cut_is_taken_off() {
        let (now, headway) = (Instant::now(), Headway::new(RETRY, SPAN));
        let second = |seconds: u64| now + Duration::from_secs(seconds);
        let passed = |seconds: u64| RETRY - headway.left(second(seconds)).expect("it runs");
        headway.stream_cut(second(0), &cut(300, 10));
        assert_eq!(passed(5), Duration::from_secs(5), "what was before the first cut");
        headway.stream_cut(second(12), &cut(900, 10));
        assert_eq!(passed(12), Duration::from_secs(2));
        assert_eq!(headway.cause(), None, "two may have been outages");
        headway.stream_cut(second(23), &cut(600, 10));
        assert_eq!(passed(23), Duration::from_secs(3));
        let cause = Cause { connections: 3, span_bytes: SPAN, carried_bytes: 900 };
        assert_eq!(headway.cause(), Some(cause));
        let stall = Duration::from_secs(30);
        let stalls = [23, 29, 39].map(|at| headway.stall_after(second(at), stall).as_secs());
        assert_eq!(stalls, [17, 11, 2], "no longer than there is time, and long enough for a try");
        headway.verified(1);
        assert_eq!(headway.stall_after(second(39), stall), stall);
    }

    #[test]
    fn after_eight_cuts_of_the_smallest_spans_all_time_counts() {
        for (span_bytes, at_eighth) in [(64 << 10, 7 * 12), (SPAN, 7 * 2)] {
            let (now, headway) = (Instant::now(), Headway::new(RETRY * 9, span_bytes));
            let mut passed = Vec::new();
            for number in 0..8 {
                let at = now + Duration::from_secs(12) * number;
                headway.stream_cut(at, &cut(300, 10));
                passed.push((RETRY * 9 - headway.left(at).expect("it runs")).as_secs());
            }
            assert_eq!(passed, [0, 2, 4, 6, 8, 10, 12, at_eighth]);
        }
    }
}
