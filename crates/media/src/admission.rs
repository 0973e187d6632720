//! Admission of streams, while every admitted deadline still holds with a margin.
//!
//! A stream that would break this is refused at once.
//!
//! All loops ask one book. A stream counts with what it costs ([`capacity`]), and in its first
//! period with its start-up as well; where that is more than there is at all, in as many periods as
//! it takes. Its place stays its viewer's for a moment after it ended: who seeks, or takes the next
//! segment, ends one answer and begins another, and gets the place's rate in the long run. Some
//! players begin the other first: then the place is lent until the one has ended.

pub mod capacity;
mod place;
mod refusals;
mod terms;
mod timed;

pub use place::{Place, Start};
pub use refusals::{Refusal, Refusals, Why};
pub use terms::{MARGIN, Priority, Terms};

use slab::Slab;
use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use crate::{
    pace::{Pacing, Rate},
    site::Identity,
};
use capacity::{Capacity, Resource, Share};
use place::PlaceState;
use timed::Timed;

/// A viewer who asks for a place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Viewer {
    pub peer: IpAddr,
    /// Directory of the file that is asked for: the segments of a film are one after the other.
    pub directory: Vec<u8>,
}

/// The request for a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    pub rate: Rate,
    pub priority: Priority,
    /// The share of the film that is in the page cache.
    pub cached: f64,
    /// Length of the answer, in bytes.
    pub bytes: u64,
    pub film: Identity,
    /// The answer begins behind the film's beginning.
    pub is_seek: bool,
    /// The client named the rate, and it is more than the film's own.
    pub is_wish: bool,
}

impl Asked {
    /// Time for which a number of the answer's bytes plays.
    fn plays(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 * 8.0 / self.rate.bits_per_s as f64)
    }
}

/// Decisions of the door so far, and how full it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Door {
    /// Whether there is a limit at all.
    pub is_limited: bool,
    pub admitted: u64,
    pub refused: Refusals,
    /// Streams that are admitted and under way, those whose place is kept among them.
    pub streams: u64,
    /// Shares that the admitted streams take, and may take together.
    pub taken: Share,
    pub limit: Share,
    pub streams_max: Option<u64>,
    /// The door is shut, because streams miss their deadlines.
    pub is_shut: bool,
}

/// The book of admitted streams, which all loops share.
#[derive(Debug, Default)]
pub struct Admission {
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    terms: Terms,
    taken: Share,
    streams: u64,
    /// Streams that are under way, those on borrowed places among them.
    live: Slab<Live>,
    /// Places that are each player's own, by player and film.
    players: HashMap<(IpAddr, Identity), Vec<usize>>,
    /// Shares that start-ups take until they end; `beginning_sum` is all of them together.
    beginning: Timed<Share>,
    beginning_sum: Share,
    begun: u64,
    /// Places of viewers who have left a moment ago, and whose they are, by their leads: behind a
    /// proxy all are one viewer.
    kept: Timed<Kept>,
    kept_of: HashMap<Viewer, BTreeSet<(Instant, u64)>>,
    shut_until: Option<Instant>,
    admitted: u64,
    refused: Refusals,
}

#[derive(Debug)]
struct Live {
    asked: Asked,
    /// Request that the stream counts with: the rate may be that of a place it came back to.
    booked: Asked,
    /// Time until which its viewer plays what it had before the answer; not before the answer
    /// began.
    lead_from: Instant,
    /// Time before which the place is not lent again, as it was lent in vain.
    lends_from: Option<Instant>,
    peer: IpAddr,
    /// Number of the stream's start-up.
    beginning: u64,
    tie: Tie,
    state: Arc<PlaceState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tie {
    None,
    LentTo(usize),
    /// Lent by another place; `why` tells why the stream has none of its own.
    Borrowed {
        from: usize,
        why: Why,
    },
}

#[derive(Debug)]
struct Kept {
    viewer: Viewer,
    booked: Asked,
    /// Time until which its viewer plays what it was sent.
    lead_until: Instant,
    /// Number of the start-up of the stream that has left.
    beginning: u64,
}

impl Admission {
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        Self { book: Mutex::new(Book { terms, ..Book::default() }) }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets new terms; streams that are there stay, and count by them.
    pub fn set_terms(&self, terms: Terms) {
        self.book().set_terms(terms);
    }

    /// Admits a stream and gives it a place.
    ///
    /// # Errors
    /// Why the stream may not come.
    pub fn admit(
        self: &Arc<Self>,
        viewer: Viewer,
        asked: Asked,
        now: Instant,
    ) -> Result<Place, Refusal> {
        let (key, start, state) = {
            let mut book = self.book();
            let (key, start) = book.admit(&viewer, asked, now)?;
            (key, start, book.live[key].state.clone())
        };
        let admission = self.clone();
        Ok(Place { admission, viewer: Some(viewer), key, start, state })
    }

    /// Notes a deadline missed by the server, not by the path or the player: nobody more comes in
    /// for several periods. `is_wish`: the client named the stream's rate; where nobody measured
    /// what rates there is room for, it may have asked for what no machine does.
    pub fn missed(&self, is_wish: bool, now: Instant) {
        let mut book = self.book();
        if book.is_limited() && (!is_wish || book.terms.capacity.is_measured()) {
            book.shut_until = Some(now + SHUT_PERIODS * book.terms.pacing.period);
        }
    }

    /// Counts a stream that was refused before it was asked whether there is room.
    pub fn note_refused(&self, why: Why) {
        self.book().refused.count(why);
    }

    #[must_use]
    pub fn refusals(&self) -> Refusals {
        self.book().refused
    }

    /// Whether a limit is set, so that not everybody comes in.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.book().is_limited()
    }

    #[must_use]
    pub fn door(&self, now: Instant) -> Door {
        let mut book = self.book();
        book.forget(now);
        Door {
            is_limited: book.is_limited(),
            admitted: book.admitted,
            refused: book.refused,
            streams: book.streams,
            taken: book.taken_with_beginnings(),
            limit: book.limit(Priority::High),
            streams_max: book.terms.streams_max,
            is_shut: book.shut_until.is_some(),
        }
    }
}

const SHUT_PERIODS: u32 = 2;
/// Most periods that a start-up takes, whether or not it finds room in them.
const START_UP_PERIODS_MAX: u32 = 20;
/// Periods for which a place stays its viewer's after the answer ended.
const KEPT_PERIODS: u32 = 2;
/// Longest time a place is kept where the answer was sent whole: segments of HLS and DASH play for
/// 2 to 10 s.
const KEPT_WHOLE_MAX: Duration = Duration::from_secs(30);
/// Most film that a viewer may gather by answers one after the other, in start-ups with the period
/// after each: one who seeks throws away what it had, and one who never plays takes no more than
/// the rate in the long run.
const LEAD_STARTS: u32 = 3;
/// Factor by which the next part of a film may be faster than the one that its place was given for:
/// each has an average of its own. Much slower is another film.
const VARIES: f64 = 1.5;
const VARIES_DOWN: f64 = 1.0 / 3.0;

impl Live {
    /// Time until which the viewer plays what it was sent.
    fn lead_until(&self) -> Instant {
        self.lead_from + self.asked.plays(self.state.sent_bytes.load(Ordering::Relaxed))
    }
}

impl Kept {
    /// Rate that a kept place counts with once it is taken back; `None` where more is asked than it
    /// was given for.
    fn takes_back(&self, asked: &Asked) -> Option<Rate> {
        let ratio = asked.rate.bits_per_s as f64 / self.booked.rate.bits_per_s as f64;
        let is_part = asked.film != self.booked.film && !asked.is_wish;
        if is_part && (VARIES_DOWN..=VARIES).contains(&ratio) {
            return Some(self.booked.rate);
        }
        (ratio <= 1.0).then_some(asked.rate)
    }
}

impl Book {
    fn is_limited(&self) -> bool {
        self.terms.capacity != Capacity::default() || self.terms.streams_max.is_some()
    }

    fn limit(&self, priority: Priority) -> Share {
        let kept = self.terms.reserve * priority.reserves();
        self.terms.capacity.limit(self.terms.pacing.period, self.terms.margin + kept)
    }

    /// Stops counting what is over: start-ups, kept places and a shut door.
    fn forget(&mut self, now: Instant) {
        while let Some(share) = self.beginning.take_over(now) {
            self.end_beginning(share);
        }
        self.shut_until = self.shut_until.filter(|until| *until > now);
        while let Some(kept) = self.kept.take_over(now) {
            self.forget_kept(&kept);
            self.free(kept.booked);
        }
    }

    fn set_terms(&mut self, terms: Terms) {
        self.terms = terms;
        let kept = self.kept.values().map(|kept| &kept.booked);
        let live = self.live.iter().map(|(_, live)| live);
        let own = live.filter(|live| !matches!(live.tie, Tie::Borrowed { .. }));
        let all = own.map(|live| &live.booked).chain(kept);
        self.taken = all.fold(Share::default(), |sum, asked| sum.plus(self.share(asked)));
    }

    fn share(&self, asked: &Asked) -> Share {
        self.terms.capacity.share(asked.rate, self.terms.pacing, asked.cached)
    }

    /// Beginning of an answer whose viewer has `lead` of film in hand.
    fn start(&self, asked: &Asked, lead: Duration) -> Start {
        let Pacing { period, start_up } = self.terms.pacing;
        let lead_max = LEAD_STARTS * (start_up + period);
        let first = lead + period;
        let start_up = start_up.min(lead_max.saturating_sub(first));
        let room = self.limit(asked.priority).plus(self.share(asked).times(-1.0));
        // While nobody else is there it has to find room, however long that takes.
        let periods = self.start_up(asked, start_up).parts_in(room).clamp(1, START_UP_PERIODS_MAX);
        Start { start_up, periods, wait: first.saturating_sub(lead_max) }
    }

    /// Share that a whole start-up takes beside the stream's own. An answer that ends within its
    /// first period has none.
    fn start_up(&self, asked: &Asked, start_up: Duration) -> Share {
        let period = self.terms.pacing.period;
        let behind_bytes = asked.bytes.saturating_sub(asked.rate.bytes_in(period));
        let part = behind_bytes as f64 / asked.rate.bytes_in(start_up).max(1) as f64;
        let periods = start_up.as_secs_f64() / period.as_secs_f64() * part.min(1.0);
        self.share(asked).times(periods)
    }

    fn begin_start_up(&mut self, number: u64, asked: &Asked, start: Start, now: Instant) {
        let share = self.start_up(asked, start.start_up).times(1.0 / f64::from(start.periods));
        if share != Share::default() {
            // Nothing is waited for: who has to wait has no start-up.
            let until = now + start.periods * self.terms.pacing.period;
            self.beginning.insert(number, until, share);
            self.beginning_sum = self.beginning_sum.plus(share);
        }
    }

    fn end_beginning(&mut self, share: Share) {
        self.beginning_sum = self.beginning_sum.plus(share.times(-1.0));
        if self.beginning.is_empty() {
            self.beginning_sum = Share::default();
        }
    }

    fn free(&mut self, asked: Asked) {
        self.streams = self.streams.saturating_sub(1);
        self.taken = self.taken.plus(self.share(&asked).times(-1.0));
        if self.streams == 0 {
            // Sums of fractions do not end at nothing by themselves.
            self.taken = Share::default();
        }
    }

    fn taken_with_beginnings(&self) -> Share {
        self.taken.plus(self.beginning_sum)
    }

    /// Admits a stream: the number of its place, and how it begins.
    fn admit(
        &mut self,
        viewer: &Viewer,
        asked: Asked,
        now: Instant,
    ) -> Result<(usize, Start), Refusal> {
        self.forget(now);
        let own = self.take_kept(viewer);
        // One viewer has one start-up at a time, however often it seeks.
        let own_start_up = own.as_ref().and_then(|(_, own)| self.beginning.remove(own.beginning));
        if let Some((_, share)) = own_start_up {
            self.end_beginning(share);
        }
        if let Some((_, own)) = &own {
            self.free(own.booked);
        }
        // Who was here a moment ago comes back whatever it costs for a moment: that was promised.
        let back = own.as_ref().and_then(|(_, own)| own.takes_back(&asked));
        let booked = Asked { rate: back.unwrap_or(asked.rate), ..asked };
        let lead_from = own.as_ref().map_or(now, |(_, own)| own.lead_until.max(now));
        let start = self.start(&booked, lead_from - now);
        let share = self.share(&booked);
        let sum = match back {
            Some(_) => self.taken.plus(share),
            None => {
                let start_up = self.start_up(&booked, start.start_up);
                let part = start_up.times(1.0 / f64::from(start.periods));
                self.taken_with_beginnings().plus(share).plus(part)
            }
        };
        if let Some(why) = self.refusal(sum, asked.priority, back.is_some()) {
            if let Some((until, own)) = own {
                self.streams += 1;
                self.taken = self.taken.plus(self.share(&own.booked));
                if let Some((until, share)) = own_start_up {
                    self.beginning.insert(own.beginning, until, share);
                    self.beginning_sum = self.beginning_sum.plus(share);
                }
                self.keep(until, own);
            }
            if let Some(lender) = self.lender(viewer.peer, &asked, now) {
                return Ok(self.lend(lender, asked, why, now));
            }
            self.refused.count(why);
            let is_never = share.above(self.limit(asked.priority)).is_some();
            let retry_after = (!is_never).then_some(self.terms.pacing.period);
            return Err(Refusal { why, retry_after });
        }
        let key = self.seat(viewer.peer, asked, Tie::None, lead_from);
        self.live[key].booked = booked;
        self.count(key, start, now);
        Ok((key, start))
    }

    fn seat(&mut self, peer: IpAddr, asked: Asked, tie: Tie, lead_from: Instant) -> usize {
        self.begun += 1;
        let state = Arc::default();
        let (booked, beginning, lends_from) = (asked, self.begun, None);
        let live = Live { asked, booked, lead_from, lends_from, peer, beginning, tie, state };
        self.live.insert(live)
    }

    /// Counts a place as its stream's own from now on.
    fn count(&mut self, key: usize, start: Start, now: Instant) {
        let Live { booked, peer, beginning, .. } = self.live[key];
        self.admitted += 1;
        self.streams += 1;
        self.taken = self.taken.plus(self.share(&booked));
        if self.is_limited() {
            self.begin_start_up(beginning, &booked, start, now);
        }
        self.players.entry((peer, booked.film)).or_default().push(key);
    }

    /// Finds a place of the same player and film that can be lent to an answer elsewhere in it: the
    /// player may be about to end the one answer, as ffmpeg does once it has the head of the other.
    fn lender(&self, peer: IpAddr, asked: &Asked, now: Instant) -> Option<usize> {
        let own = self.players.get(&(peer, asked.film)).filter(|_| asked.is_seek)?;
        own.iter().copied().find(|key| {
            let live = &self.live[*key];
            live.tie == Tie::None
                && asked.rate <= live.asked.rate
                && live.lends_from.is_none_or(|from| from <= now)
        })
    }

    fn lend(&mut self, lender: usize, asked: Asked, why: Why, now: Instant) -> (usize, Start) {
        let (peer, lead_from) = (self.live[lender].peer, self.live[lender].lead_until().max(now));
        let start = self.start(&asked, lead_from - now);
        let borrower = self.seat(peer, asked, Tie::Borrowed { from: lender, why }, lead_from);
        self.live[borrower].state.is_borrowed.store(true, Ordering::Relaxed);
        self.live[lender].tie = Tie::LentTo(borrower);
        self.live[lender].state.is_lent.store(true, Ordering::Relaxed);
        (borrower, start)
    }

    /// Hands a place to its borrower: the lender is gone, as its player goes on with the other.
    fn hand_over(&mut self, lender: &Live, borrower: usize, now: Instant) {
        self.free(lender.booked);
        // One player has one start-up at a time.
        if let Some((_, share)) = self.beginning.remove(lender.beginning) {
            self.end_beginning(share);
        }
        self.live[borrower].tie = Tie::None;
        let Live { asked, lead_from, .. } = self.live[borrower];
        let start = self.start(&asked, lead_from.saturating_duration_since(now));
        self.count(borrower, start, now);
        self.live[borrower].state.is_borrowed.store(false, Ordering::Relaxed);
    }

    fn turn_away(&mut self, key: usize) {
        if let Tie::Borrowed { why, .. } = self.live[key].tie {
            self.refused.count(why);
        }
    }

    fn forget_player(&mut self, key: usize, live: &Live) {
        let player = (live.peer, live.asked.film);
        let Some(own) = self.players.get_mut(&player) else { return };
        own.retain(|one| *one != key);
        if own.is_empty() {
            self.players.remove(&player);
        }
    }

    fn refusal(&self, sum: Share, priority: Priority, is_back: bool) -> Option<Why> {
        if self.shut_until.is_some() && !is_back {
            return Some(Why::Late);
        }
        if let Some(resource) = sum.above(self.limit(priority)) {
            return Some(Why::Full(resource));
        }
        let kept = self.terms.reserve * priority.reserves();
        let streams_max = self.terms.streams_max? as f64 * (1.0 - kept).max(0.0);
        (self.streams as f64 + 1.0 > streams_max).then_some(Why::Full(Resource::Streams))
    }

    fn keep(&mut self, until: Instant, kept: Kept) {
        let place = (kept.lead_until, kept.beginning);
        self.kept_of.entry(kept.viewer.clone()).or_default().insert(place);
        self.kept.insert(kept.beginning, until, kept);
    }

    fn take_kept(&mut self, viewer: &Viewer) -> Option<(Instant, Kept)> {
        // Several may sit behind one address: who waits for a part has little in hand.
        let (_, number) = *self.kept_of.get(viewer)?.first()?;
        let taken = self.kept.remove(number)?;
        self.forget_kept(&taken.1);
        Some(taken)
    }

    fn forget_kept(&mut self, kept: &Kept) {
        let Some(places) = self.kept_of.get_mut(&kept.viewer) else { return };
        places.remove(&(kept.lead_until, kept.beginning));
        if places.is_empty() {
            self.kept_of.remove(&kept.viewer);
        }
    }

    /// Keeps a place after its answer while that plays, as a player with enough in hand asks for
    /// the next part no earlier, and not longer: who asked for a few bytes has seen them.
    fn leave(&mut self, viewer: Viewer, key: usize, now: Instant) {
        let live = self.live.remove(key);
        let Live { asked, booked, beginning, .. } = live;
        match live.tie {
            Tie::Borrowed { from, .. } => {
                self.live[from].tie = Tie::None;
                // It was in vain: the other had not ended.
                self.live[from].lends_from = Some(now + self.terms.pacing.period);
                return self.live[from].state.is_lent.store(false, Ordering::Relaxed);
            }
            Tie::LentTo(borrower) => {
                self.forget_player(key, &live);
                return self.hand_over(&live, borrower, now);
            }
            Tie::None => self.forget_player(key, &live),
        }
        if !self.is_limited() {
            return self.free(booked);
        }
        let has_all = live.state.sent_bytes.load(Ordering::Relaxed) >= asked.bytes;
        let kept_max = KEPT_PERIODS * self.terms.pacing.period;
        let kept_max = if has_all { kept_max.max(KEPT_WHOLE_MAX) } else { kept_max };
        let lead_until = live.lead_until();
        // And while its viewer has much in hand: it would come back as one who has nothing.
        let lead = lead_until.saturating_duration_since(now).min(KEPT_WHOLE_MAX.max(kept_max));
        let until = now + asked.plays(asked.bytes).mul_f64(VARIES).min(kept_max).max(lead);
        self.keep(until, Kept { viewer, booked, lead_until, beginning });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(streams: f64) -> Terms {
        Terms {
            // With a margin of a tenth, and what lower layers add.
            capacity: Capacity {
                network_bits_per_s: Some(streams * 1_000_000.0 * 1538.0 / 1448.0 / 0.9 + 1.0),
                ..Capacity::default()
            },
            ..Terms::default()
        }
    }

    fn viewer(number: u8) -> Viewer {
        Viewer { peer: IpAddr::from([10, 0, 0, number]), directory: b"/films".to_vec() }
    }

    fn asked(priority: Priority) -> Asked {
        let rate = Rate { bits_per_s: 1_000_000 };
        Asked {
            rate,
            priority,
            cached: 0.0,
            bytes: 300_000_000,
            film: (1, 1),
            is_seek: false,
            is_wish: false,
        }
    }

    const NORMAL: Priority = Priority::Normal;

    #[test]
    fn as_many_come_in_as_there_is_room_for() {
        let admission = Arc::new(Admission::new(terms(10.0)));
        let mut now = Instant::now();
        let mut places = Vec::new();
        for number in 0..30 {
            // Each in a period of its own, so that none begins beside another.
            now += Duration::from_secs(4);
            if let Ok(place) = admission.admit(viewer(number), asked(NORMAL), now) {
                places.push(place);
            }
        }
        // A start-up of two periods has to find room beside those that are there.
        assert_eq!(places.len(), 8);
        let door = admission.door(now);
        assert_eq!((door.admitted, door.refused.total(), door.streams), (8, 22, 8));
        let why: Vec<_> = door.refused.by_name().filter(|(_, count)| *count > 0).collect();
        assert_eq!(why, [("network", 22)]);
        let refused = admission.admit(viewer(99), asked(NORMAL), now).unwrap_err();
        assert_eq!(refused.why, Why::Full(Resource::Network));
        assert_eq!(refused.retry_after, Some(Duration::from_secs(3)));
    }

    #[test]
    fn those_who_come_at_once_count_with_their_start_up() {
        let admission = Arc::new(Admission::new(terms(10.0)));
        let now = Instant::now();
        let come = |now, from| -> Vec<Place> {
            (from..from + 20)
                .filter_map(|number| admission.admit(viewer(number), asked(NORMAL), now).ok())
                .collect()
        };
        let first = come(now, 0);
        assert_eq!(first.len(), 3);
        let second = come(now + Duration::from_secs(3), 50);
        assert_eq!(second.len(), 2);
    }

    #[test]
    fn a_viewer_who_seeks_keeps_its_place_and_one_who_leaves_gives_it_back() {
        let admission = Arc::new(Admission::new(terms(3.0)));
        let now = Instant::now();
        let place = admission.admit(viewer(1), asked(NORMAL), now).unwrap();
        assert!(admission.admit(viewer(2), asked(NORMAL), now).is_err());
        drop(place);
        assert!(admission.admit(viewer(2), asked(NORMAL), now).is_err());
        let again = admission.admit(viewer(1), asked(NORMAL), now).unwrap();
        drop(again);
        let later = now + Duration::from_secs(60);
        let place = admission.admit(viewer(2), asked(NORMAL), later).unwrap();
        assert_eq!(admission.door(later).streams, 1);
        drop(place);
        let door = admission.door(later + Duration::from_secs(60));
        assert_eq!((door.streams, door.taken), (0, Share::default()));
    }

    #[test]
    fn a_viewer_who_seeks_often_has_one_start_up_and_asking_for_more_is_asking_anew() {
        let admission = Arc::new(Admission::new(terms(10.0)));
        let now = Instant::now();
        for _ in 0..50 {
            drop(admission.admit(viewer(1), asked(NORMAL), now).unwrap());
        }
        // A stream and its start-up of two periods; as much again is there for others.
        let taken = admission.door(now).taken.network / admission.door(now).limit.network;
        assert!((taken - 0.3).abs() < 0.01, "{taken}");
        let more = |rate| Asked { rate: Rate { bits_per_s: rate }, ..asked(NORMAL) };
        let refused = admission.admit(viewer(1), more(11_000_000), now).unwrap_err();
        // Whenever it asks.
        assert_eq!(refused.retry_after, None);
        let place = admission.admit(viewer(1), more(3_000_000), now).unwrap();
        assert!(admission.admit(viewer(2), asked(NORMAL), now).is_err());
        drop(place);
        // The place that is kept is as large as the last.
        assert!(admission.admit(viewer(1), more(3_000_000), now).is_ok());
    }

    /// A stream whose start-up never fits was refused for ever by a server where nobody was.
    #[test]
    fn a_start_up_that_never_fits_at_once_takes_longer() {
        let admission = Arc::new(Admission::new(terms(10.0)));
        let now = Instant::now();
        let fast = Asked { rate: Rate { bits_per_s: 8_000_000 }, ..asked(NORMAL) };
        let place = admission.admit(viewer(1), fast, now).unwrap();
        // 16 in parts of 2.
        assert_eq!(place.start().periods, 8);
        let share = |now| {
            let door = admission.door(now);
            door.taken.network / door.limit.network
        };
        assert!((share(now) - 1.0).abs() < 0.01, "{}", share(now));
        assert!((share(now + Duration::from_secs(23)) - 1.0).abs() < 0.01);
        assert!((share(now + Duration::from_secs(25)) - 0.8).abs() < 0.01);
        let slow = admission.admit(viewer(2), asked(NORMAL), now + Duration::from_secs(60));
        assert!(slow.is_err(), "a start-up of 2 beside 8");
    }

    #[test]
    fn a_player_that_seeks_before_it_lets_go_borrows_its_own_place() {
        let admission =
            Arc::new(Admission::new(Terms { streams_max: Some(1), ..Terms::default() }));
        let now = Instant::now();
        let seek = Asked { is_seek: true, ..asked(NORMAL) };
        let first = admission.admit(viewer(1), asked(NORMAL), now).unwrap();
        // Neither another player, nor another film, nor the same from its beginning.
        assert!(admission.admit(viewer(2), seek, now).is_err());
        assert!(admission.admit(viewer(1), Asked { film: (1, 2), ..seek }, now).is_err());
        assert!(admission.admit(viewer(1), asked(NORMAL), now).is_err());
        let second = admission.admit(viewer(1), seek, now).unwrap();
        assert!(second.is_borrowed() && first.is_lent());
        // One place is lent once.
        assert!(admission.admit(viewer(1), seek, now).is_err());
        drop(second);
        assert!(!first.is_lent());
        // It was in vain: without end small parts would get round the door.
        assert!(admission.admit(viewer(1), seek, now).is_err());
        let now = Instant::now() + Duration::from_secs(3);
        first.note_sent(1_000_000);
        let second = admission.admit(viewer(1), seek, now).unwrap();
        drop(first);
        assert!(!second.is_borrowed());
        assert_eq!(admission.door(now).streams, 1);
        let third = admission.admit(viewer(1), seek, now).unwrap();
        assert!(third.is_borrowed() && second.is_lent());
        // Who ended it himself was not refused.
        let streams = |door: Door| door.refused.by_name().find(|(name, _)| *name == "streams");
        assert_eq!(streams(admission.door(now)), Some(("streams", 5)));
        second.turn_away();
        assert_eq!(admission.refusals().total(), 5, "a place of its own");
        third.turn_away();
        assert_eq!(streams(admission.door(now)), Some(("streams", 6)));
        drop((second, third));
        let door = admission.door(now + Duration::from_secs(60));
        assert_eq!((door.streams, door.taken), (0, Share::default()));
    }

    /// Ends a place whose answer was sent whole.
    fn end(mut place: Place, asked: Asked, now: Instant) {
        place.note_sent(asked.bytes);
        let viewer = place.viewer.take().unwrap();
        place.admission.book().leave(viewer, place.key, now);
    }

    /// A segment that plays for 6 s, at a rate a quarter above its average.
    fn segment(number: u64, bits_per_s: u64) -> Asked {
        let bytes = bits_per_s * 6 / 8 * 4 / 5;
        Asked { rate: Rate { bits_per_s }, bytes, film: (1, number), ..asked(NORMAL) }
    }

    /// Viewers of segments lost their place to newcomers: between two segments, and where the next
    /// was faster.
    #[test]
    fn a_viewer_of_segments_keeps_its_place_in_a_full_house() {
        let admission = Arc::new(Admission::new(terms(2.6)));
        let mut now = Instant::now();
        let begin = |viewer, asked, now| admission.admit(viewer, asked, now);
        end(begin(viewer(1), segment(0, 1_000_000), now).unwrap(), segment(0, 1_000_000), now);
        now += Duration::from_millis(5_900);
        let _other = begin(viewer(2), segment(100, 1_000_000), now).unwrap();
        for (number, bits_per_s) in (1..).zip([1_400_000, 700_000, 1_300_000, 1_500_000, 900_000]) {
            let next = segment(number, bits_per_s);
            let place = begin(viewer(1), next, now).unwrap();
            assert_eq!(place.start().wait, Duration::ZERO, "{number}");
            end(place, next, now);
            assert!(begin(viewer(3), segment(200, 1_000_000), now).is_err(), "{number}");
            now += Duration::from_millis(5_900);
        }
        // What it names itself, and what is no part of the film, is asked anew.
        let wish = Asked { is_wish: true, ..segment(300, 1_400_000) };
        assert!(begin(viewer(1), wish, now).is_err());
        assert!(begin(viewer(1), segment(301, 1_600_000), now).is_err());
        assert!(begin(viewer(1), segment(302, 1_400_000), now).is_ok());
    }

    #[test]
    fn who_takes_part_after_part_gets_the_rate_and_some_start_ups() {
        let admission = Arc::new(Admission::new(terms(10.0)));
        let begun = Instant::now();
        let (mut now, mut plays) = (begun, Duration::ZERO);
        for number in 0..100 {
            // 2 s, so that one comes whole within its first period.
            let part = Asked { bytes: 250_000, ..segment(number, 1_000_000) };
            let place = admission.admit(viewer(1), part, now).unwrap();
            now += place.start().wait;
            plays += part.plays(part.bytes);
            end(place, part, now);
        }
        let lead = plays - (now - begun);
        let most = Duration::from_secs(27);
        assert!(lead <= most && lead > most - Duration::from_secs(3), "{lead:?}");
        // Nor do many parts that are short, and pauses between them.
        let small = Asked { bytes: 1_250, ..segment(0, 1_000_000) };
        let (begun, mut plays) = (now + Duration::from_secs(60), Duration::ZERO);
        let mut now = begun;
        for _ in 0..10_000 {
            let place = admission.admit(viewer(3), small, now).unwrap();
            now += place.start().wait;
            plays += small.plays(small.bytes);
            end(place, small, now);
            now += if plays.as_millis() % 1_000 == 0 { small.plays(5_000) } else { Duration::ZERO };
        }
        assert!(plays - (now - begun) <= most, "{plays:?} in {:?}", now - begun);
        // Who seeks now and then waits for nothing.
        let mut now = now + Duration::from_secs(60);
        for _ in 0..100 {
            let place = admission.admit(viewer(7), asked(NORMAL), now).unwrap();
            let Start { start_up, wait, .. } = place.start();
            assert_eq!(wait, Duration::ZERO);
            let released = start_up + Duration::from_secs(3);
            let bytes = asked(NORMAL).rate.bytes_in(released);
            end(place, Asked { bytes, ..asked(NORMAL) }, now);
            now += Duration::from_secs(3);
        }
    }

    #[test]
    fn a_few_bytes_cost_no_start_up_and_keep_no_place() {
        let admission = Arc::new(Admission::new(terms(4.0)));
        // A byte plays for 8 us.
        let soon = || Instant::now() + Duration::from_millis(1);
        let few = Asked { bytes: 1, ..asked(NORMAL) };
        for number in 0..50 {
            drop(admission.admit(viewer(number), few, soon()).unwrap());
        }
        assert!(admission.book().beginning.is_empty());
        assert!(admission.admit(viewer(99), asked(NORMAL), soon()).is_ok());
    }

    #[test]
    fn those_who_are_there_count_by_new_terms() {
        let admission = Arc::new(Admission::new(Terms::default()));
        let now = Instant::now();
        let places: Vec<Place> =
            (0..4).map(|one| admission.admit(viewer(one), asked(NORMAL), now).unwrap()).collect();
        admission.set_terms(terms(4.0));
        let share = |door: Door| door.taken.network / door.limit.network;
        assert!((share(admission.door(now)) - 1.0).abs() < 0.01);
        assert!(admission.admit(viewer(9), asked(NORMAL), now).is_err());
        admission.set_terms(terms(8.0));
        assert!((share(admission.door(now)) - 0.5).abs() < 0.01);
        drop(places);
        let door = admission.door(now + Duration::from_secs(60));
        assert_eq!((door.streams, door.taken), (0, Share::default()));
    }

    #[test]
    fn a_reserve_is_for_those_of_higher_priority() {
        let terms = Terms { reserve: 0.3, ..terms(10.0) };
        let admission = Arc::new(Admission::new(terms));
        let mut now = Instant::now();
        let mut places = Vec::new();
        let mut count = |priority| {
            let before = places.len();
            for number in 0..20 {
                now += Duration::from_secs(4);
                places.extend(admission.admit(viewer(number), asked(priority), now));
            }
            places.len() - before
        };
        assert_eq!(count(Priority::Low), 1);
        assert_eq!(count(Priority::Normal), 3);
        assert_eq!(count(Priority::High), 4);
    }

    #[test]
    fn while_deadlines_are_missed_nobody_more_comes_in() {
        let admission = Arc::new(Admission::new(terms(100.0)));
        let now = Instant::now();
        let _there = admission.admit(viewer(1), asked(NORMAL), now).unwrap();
        // What nobody measured room for says nothing of the others.
        admission.missed(true, now);
        assert!(!admission.door(now).is_shut);
        admission.missed(false, now);
        let refused = admission.admit(viewer(2), asked(NORMAL), now).unwrap_err();
        assert_eq!(refused.why, Why::Late);
        assert!(admission.door(now).is_shut);
        assert!(admission.admit(viewer(2), asked(NORMAL), now + Duration::from_secs(7)).is_ok());
    }

    #[test]
    fn without_terms_everybody_comes_in_and_nothing_is_kept() {
        let admission = Arc::new(Admission::new(Terms::default()));
        let now = Instant::now();
        for number in 0..200 {
            admission.missed(false, now);
            drop(admission.admit(viewer(number), asked(Priority::Low), now).unwrap());
        }
        let door = admission.door(now);
        assert_eq!((door.admitted, door.streams, door.is_limited), (200, 0, false));
    }

    #[test]
    fn a_reserve_is_of_the_number_of_streams_too() {
        let terms = Terms { streams_max: Some(10), reserve: 0.3, ..Terms::default() };
        let admission = Arc::new(Admission::new(terms));
        let now = Instant::now();
        let mut places = Vec::new();
        for (priority, count) in [(Priority::Low, 4), (NORMAL, 3), (Priority::High, 3)] {
            let before = places.len();
            places.extend(
                (0..20).filter_map(|one| admission.admit(viewer(one), asked(priority), now).ok()),
            );
            assert_eq!(places.len() - before, count, "{priority:?}");
        }
    }

    #[test]
    fn a_number_of_streams_is_a_limit_too() {
        let terms = Terms { streams_max: Some(2), ..Terms::default() };
        let admission = Arc::new(Admission::new(terms));
        let now = Instant::now();
        let _places = [1, 2].map(|one| admission.admit(viewer(one), asked(NORMAL), now).unwrap());
        let refused = admission.admit(viewer(3), asked(NORMAL), now).unwrap_err();
        assert_eq!(refused.why, Why::Full(Resource::Streams));
    }
}
