//! Who may come: a stream is admitted when every admitted deadline still holds with a margin, and
//! refused at once otherwise.
//!
//! All loops ask one book. A stream counts with what it costs ([`capacity`]), and in its first
//! period with its start-up as well; where that is more than there is at all, in as many periods as
//! it takes. Its place stays its viewer's for a moment after it ended: who seeks, or takes the next
//! segment, ends one answer and begins another. Some players begin the other first: then the place
//! is lent until the one has ended.

pub mod capacity;
pub mod measure;
mod place;
mod refusals;

pub use place::Place;
pub use refusals::{Refusal, Refusals, Why};

use slab::Slab;
use std::{
    collections::{BTreeMap, HashMap},
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

/// Of the capacity, left free by default.
pub const MARGIN: f64 = 0.1;

/// Who is refused first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    Low,
    #[default]
    Normal,
    High,
}

impl Priority {
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Low, Self::Normal, Self::High].into_iter().find(|one| one.name() == name)
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }

    /// How many times the reserve is kept from it.
    fn reserves(self) -> f64 {
        match self {
            Self::Low => 2.0,
            Self::Normal => 1.0,
            Self::High => 0.0,
        }
    }
}

/// What streams are admitted by.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    pub capacity: Capacity,
    pub pacing: Pacing,
    /// Of each resource, left free: 0.1 is a tenth.
    pub margin: f64,
    /// Of each resource, kept for streams of higher priority, a time for each step.
    pub reserve: f64,
    pub streams_max: Option<u64>,
}

impl Default for Terms {
    /// Everybody comes in.
    fn default() -> Self {
        Self {
            capacity: Capacity::default(),
            pacing: Pacing::default(),
            margin: MARGIN,
            reserve: 0.0,
            streams_max: None,
        }
    }
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Viewer {
    pub peer: IpAddr,
    /// The directory of what it asks for: the segments of a film are one after the other.
    pub directory: Vec<u8>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    pub rate: Rate,
    pub priority: Priority,
    /// The share of the film that is in the page cache.
    pub cached: f64,
    /// Of the answer.
    pub bytes: u64,
    pub film: Identity,
    /// It begins behind the film's beginning.
    pub is_seek: bool,
}

/// What the door did, and how full it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Door {
    /// There is a limit at all.
    pub is_limited: bool,
    pub admitted: u64,
    pub refused: Refusals,
    /// Admitted and under way, those whose place is kept among them.
    pub streams: u64,
    /// What they take, and may take together.
    pub taken: Share,
    pub limit: Share,
    pub streams_max: Option<u64>,
    /// It is shut, as streams miss their deadlines.
    pub is_shut: bool,
}

/// The book of all loops.
#[derive(Debug, Default)]
pub struct Admission {
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    terms: Terms,
    taken: Share,
    streams: u64,
    /// Those that are there.
    live: Slab<Live>,
    /// The places of a player's film that are its own.
    players: HashMap<(IpAddr, Identity), Vec<usize>>,
    /// Start-ups, until their end, by their numbers.
    beginning: BTreeMap<u64, (Instant, Share)>,
    begun: u64,
    /// Places of viewers who have left a moment ago.
    kept: HashMap<Viewer, Vec<Kept>>,
    shut_until: Option<Instant>,
    admitted: u64,
    refused: Refusals,
}

#[derive(Debug)]
struct Live {
    asked: Asked,
    peer: IpAddr,
    /// The number of its start-up.
    beginning: u64,
    tie: Tie,
    state: Arc<PlaceState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tie {
    None,
    LentTo(usize),
    /// And why it has none of its own.
    Borrowed {
        from: usize,
        why: Why,
    },
}

#[derive(Debug)]
struct Kept {
    until: Instant,
    asked: Asked,
    /// The number of its start-up.
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

    /// New terms; who is there stays, and counts by them.
    pub fn set_terms(&self, terms: Terms) {
        self.book().set_terms(terms);
    }

    /// # Errors
    /// Why the stream may not come.
    pub fn admit(
        self: &Arc<Self>,
        viewer: Viewer,
        asked: Asked,
        now: Instant,
    ) -> Result<Place, Refusal> {
        let (key, start_up_periods, state) = {
            let mut book = self.book();
            let (key, start_up_periods) = book.admit(&viewer, asked, now)?;
            (key, start_up_periods, book.live[key].state.clone())
        };
        let admission = self.clone();
        Ok(Place { admission, viewer: Some(viewer), key, start_up_periods, state })
    }

    /// A deadline was missed by the server, not by the path or the player: nobody more comes in for
    /// some periods. `is_wish`: the client named the stream's rate; where nobody measured what
    /// rates there is room for, it may have asked for what no machine does.
    pub fn missed(&self, is_wish: bool, now: Instant) {
        let mut book = self.book();
        if book.is_limited() && (!is_wish || book.terms.capacity.is_measured()) {
            book.shut_until = Some(now + SHUT_PERIODS * book.terms.pacing.period);
        }
    }

    /// Somebody was refused before it was asked whether there is room.
    pub fn note_refused(&self, why: Why) {
        self.book().refused.count(why);
    }

    #[must_use]
    pub fn refusals(&self) -> Refusals {
        self.book().refused
    }

    /// Not everybody comes in.
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
/// A start-up takes no longer, whether or not it finds room in them.
const START_UP_PERIODS_MAX: u32 = 20;
/// A place is its viewer's for so many periods after the answer ended.
const KEPT_PERIODS: u32 = 2;

impl Book {
    fn is_limited(&self) -> bool {
        self.terms.capacity != Capacity::default() || self.terms.streams_max.is_some()
    }

    fn limit(&self, priority: Priority) -> Share {
        let kept = self.terms.reserve * priority.reserves();
        self.terms.capacity.limit(self.terms.pacing.period, self.terms.margin + kept)
    }

    /// What is over is not counted any longer.
    fn forget(&mut self, now: Instant) {
        self.beginning.retain(|_, (until, _)| *until > now);
        self.shut_until = self.shut_until.filter(|until| *until > now);
        let mut gone = Vec::new();
        self.kept.retain(|_, places| {
            places.retain(|place| {
                let stays = place.until > now;
                if !stays {
                    gone.push(place.asked);
                }
                stays
            });
            !places.is_empty()
        });
        for asked in gone {
            self.free(asked);
        }
    }

    fn set_terms(&mut self, terms: Terms) {
        self.terms = terms;
        let kept = self.kept.values().flatten().map(|kept| &kept.asked);
        let live = self.live.iter().map(|(_, live)| live);
        let own = live.filter(|live| !matches!(live.tie, Tie::Borrowed { .. }));
        let all = own.map(|live| &live.asked).chain(kept);
        self.taken = all.fold(Share::default(), |sum, asked| sum.plus(self.share(asked)));
    }

    fn share(&self, asked: &Asked) -> Share {
        self.terms.capacity.share(asked.rate, self.terms.pacing, asked.cached)
    }

    /// What comes beside the stream's own share in its first periods, and in how many of them.
    fn start_up(&self, asked: &Asked) -> (Share, u32) {
        let Pacing { period, start_up } = self.terms.pacing;
        let whole_bytes = asked.rate.bytes_in(start_up).max(1);
        let part = (asked.bytes as f64 / whole_bytes as f64).min(1.0);
        let share = self.share(asked);
        let all = share.times(start_up.as_secs_f64() / period.as_secs_f64() * part);
        let room = self.limit(asked.priority).plus(share.times(-1.0));
        // While nobody else is there it has to find room, however long that takes.
        let periods = all.parts_in(room).clamp(1, START_UP_PERIODS_MAX);
        (all.times(1.0 / f64::from(periods)), periods)
    }

    fn begin_start_up(&mut self, number: u64, asked: &Asked, now: Instant) {
        if self.is_limited() && !self.terms.pacing.start_up.is_zero() {
            let (share, periods) = self.start_up(asked);
            self.beginning.insert(number, (now + periods * self.terms.pacing.period, share));
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
        self.beginning.values().fold(self.taken, |sum, (_, share)| sum.plus(*share))
    }

    /// The number of the place, and the periods of its start-up.
    fn admit(
        &mut self,
        viewer: &Viewer,
        asked: Asked,
        now: Instant,
    ) -> Result<(usize, u32), Refusal> {
        self.forget(now);
        let own = self.take_kept(viewer);
        // One viewer has one start-up at a time, however often it seeks.
        let own_start_up = own.as_ref().and_then(|own| self.beginning.remove(&own.beginning));
        if let Some(own) = &own {
            self.free(own.asked);
        }
        let share = self.share(&asked);
        let (start_up, start_up_periods) = self.start_up(&asked);
        // Who was here a moment ago comes back whatever it costs for a moment: that was promised.
        let is_back = own.as_ref().is_some_and(|own| asked.rate <= own.asked.rate);
        let sum = self.taken.plus(share);
        let sum =
            if is_back { sum } else { self.taken_with_beginnings().plus(share).plus(start_up) };
        if let Some(why) = self.refusal(sum, asked.priority, is_back) {
            if let Some(own) = own {
                self.streams += 1;
                self.taken = self.taken.plus(self.share(&own.asked));
                self.beginning.extend(own_start_up.map(|start_up| (own.beginning, start_up)));
                self.kept.entry(viewer.clone()).or_default().push(own);
            }
            if let Some(lender) = self.lender(viewer.peer, &asked) {
                return Ok((self.lend(lender, viewer.peer, asked, why), start_up_periods));
            }
            self.refused.count(why);
            let is_never = share.above(self.limit(asked.priority)).is_some();
            let retry_after = (!is_never).then_some(self.terms.pacing.period);
            return Err(Refusal { why, retry_after });
        }
        let key = self.seat(viewer.peer, asked, Tie::None);
        self.count(key, now);
        Ok((key, start_up_periods))
    }

    fn seat(&mut self, peer: IpAddr, asked: Asked, tie: Tie) -> usize {
        self.begun += 1;
        let beginning = self.begun;
        self.live.insert(Live { asked, peer, beginning, tie, state: Arc::default() })
    }

    /// From now on the place is its stream's own.
    fn count(&mut self, key: usize, now: Instant) {
        let Live { asked, peer, beginning, .. } = self.live[key];
        self.admitted += 1;
        self.streams += 1;
        self.taken = self.taken.plus(self.share(&asked));
        self.begin_start_up(beginning, &asked, now);
        self.players.entry((peer, asked.film)).or_default().push(key);
    }

    /// A place of the same player and film, which goes on elsewhere in it: it may be about to end
    /// the one answer, as ffmpeg does once it has the head of the other.
    fn lender(&self, peer: IpAddr, asked: &Asked) -> Option<usize> {
        let own = self.players.get(&(peer, asked.film)).filter(|_| asked.is_seek)?;
        own.iter().copied().find(|key| {
            let live = &self.live[*key];
            live.tie == Tie::None && asked.rate <= live.asked.rate
        })
    }

    fn lend(&mut self, lender: usize, peer: IpAddr, asked: Asked, why: Why) -> usize {
        let borrower = self.seat(peer, asked, Tie::Borrowed { from: lender, why });
        self.live[borrower].state.is_borrowed.store(true, Ordering::Relaxed);
        self.live[lender].tie = Tie::LentTo(borrower);
        self.live[lender].state.is_lent.store(true, Ordering::Relaxed);
        borrower
    }

    /// The lender is gone, as its player goes on with the other.
    fn hand_over(&mut self, lender: &Live, borrower: usize, now: Instant) {
        self.free(lender.asked);
        // One player has one start-up at a time.
        self.beginning.remove(&lender.beginning);
        self.live[borrower].tie = Tie::None;
        self.count(borrower, now);
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

    fn take_kept(&mut self, viewer: &Viewer) -> Option<Kept> {
        let places = self.kept.get_mut(viewer)?;
        let place = places.pop();
        if places.is_empty() {
            self.kept.remove(viewer);
        }
        place
    }

    /// A place is kept for no longer than its answer plays: who asked for a few bytes has seen
    /// them.
    fn leave(&mut self, viewer: Viewer, key: usize, now: Instant) {
        let live = self.live.remove(key);
        let Live { asked, beginning, .. } = live;
        match live.tie {
            Tie::Borrowed { from, .. } => {
                self.live[from].tie = Tie::None;
                return self.live[from].state.is_lent.store(false, Ordering::Relaxed);
            }
            Tie::LentTo(borrower) => {
                self.forget_player(key, &live);
                return self.hand_over(&live, borrower, now);
            }
            Tie::None => self.forget_player(key, &live),
        }
        if !self.is_limited() {
            return self.free(asked);
        }
        let plays =
            Duration::from_secs_f64(asked.bytes as f64 * 8.0 / asked.rate.bits_per_s as f64);
        let until = now + plays.min(KEPT_PERIODS * self.terms.pacing.period);
        self.kept.entry(viewer).or_default().push(Kept { until, asked, beginning });
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
        Asked { rate, priority, cached: 0.0, bytes: 300_000_000, film: (1, 1), is_seek: false }
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

    /// It was refused for ever by a server where nobody was.
    #[test]
    fn a_start_up_that_never_fits_at_once_takes_longer() {
        let admission = Arc::new(Admission::new(terms(10.0)));
        let now = Instant::now();
        let fast = Asked { rate: Rate { bits_per_s: 8_000_000 }, ..asked(NORMAL) };
        let place = admission.admit(viewer(1), fast, now).unwrap();
        // 16 in parts of 2.
        assert_eq!(place.start_up_periods(), 8);
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
        let second = admission.admit(viewer(1), seek, now).unwrap();
        drop(first);
        assert!(!second.is_borrowed());
        assert_eq!(admission.door(now).streams, 1);
        let third = admission.admit(viewer(1), seek, now).unwrap();
        assert!(third.is_borrowed() && second.is_lent());
        // Who ended it himself was not refused.
        let streams = |door: Door| door.refused.by_name().find(|(name, _)| *name == "streams");
        assert_eq!(streams(admission.door(now)), Some(("streams", 4)));
        second.turn_away();
        assert_eq!(admission.refusals().total(), 4, "a place of its own");
        third.turn_away();
        assert_eq!(streams(admission.door(now)), Some(("streams", 5)));
        drop((second, third));
        let door = admission.door(now + Duration::from_secs(60));
        assert_eq!((door.streams, door.taken), (0, Share::default()));
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
