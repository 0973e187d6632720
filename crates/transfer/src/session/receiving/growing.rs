//! Receiver's side of files that are sent while they are written.
//!
//! What came of them stays open between two rounds, and is counted once.

use crate::{
    events::Lag,
    name::Name,
    session::{lag::LagMeter, stages, tally::Tally},
    storage::{open_files, prepare::Prepared, target::TargetFile},
};
use haul_protocol::{
    SpanGrid, SpanSet,
    message::{Compared, Fault, FileOffer, Growth},
};
use std::{collections::BTreeMap, time::Instant};

/// The most files that grow which are counted at a time; of others the figures are rougher.
const FILES_MAX: usize = 4096;

/// Account of a file that grows.
#[derive(Default)]
struct File {
    /// Target of the file, open and locked between two rounds.
    target: Option<TargetFile>,
    span_bytes: u64,
    stored_as: Vec<u8>,
    /// Size of the file as it was offered last.
    offered_bytes: u64,
    /// Size of the file at the last round that was settled.
    settled_bytes: u64,
    /// Bytes that this session knows to have come, an earlier run's included.
    arrived_bytes: u64,
    /// Bytes that an earlier run left. `None` until the first answer.
    resumed_bytes: Option<u64>,
    /// The round that is on its way.
    round: Option<Round>,
    /// Time when the last round was offered.
    offered_at: Option<Instant>,
    kept_at: u64,
}

struct Round {
    /// Earliest time of what the round brings: it was written after the round before was offered.
    written_since: Instant,
    there_bytes: u64,
}

/// Bytes that have to come again, of those that were counted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct BytesAgain {
    /// Bytes of this session that have to come again.
    pub bytes: u64,
    /// Bytes of an earlier run, at the first answer to this file.
    pub resumed_bytes: u64,
}

#[derive(Default)]
pub struct Growing {
    files: BTreeMap<Vec<u8>, File>,
    kept: u64,
    pub lag: LagMeter,
}

impl Growing {
    /// Counts an offer: of many of one file only what it has grown by.
    pub fn offered(&mut self, offer: &FileOffer, tally: &mut Tally) {
        if self.files.len() >= FILES_MAX && !self.files.contains_key(&offer.name) {
            self.files.pop_first();
        }
        let is_new = !self.files.contains_key(&offer.name);
        let file = self.files.entry(offer.name.clone()).or_default();
        tally.offered_files += u64::from(is_new);
        tally.offered_bytes =
            tally.offered_bytes.saturating_sub(file.offered_bytes).saturating_add(offer.size_bytes);
        file.offered_bytes = offer.size_bytes;
    }

    /// Takes up a file that an earlier round of this session left open; `None`: there is none.
    pub fn prepare(&mut self, offer: &FileOffer) -> Option<Result<Prepared, Fault>> {
        let file = self.files.get_mut(&offer.name)?;
        let mut target = file.target.take()?;
        let asks = offer.growth == Growth::Grown && offer.compared == Compared::NotCompared;
        if asks
            && file.settled_bytes == offer.size_bytes
            && let Some(open) = target.to_compare()
        {
            file.target = Some(target);
            return Some(Ok(Prepared::Compare(open)));
        }
        let span_bytes = file.span_bytes;
        Some(target.next_round(offer, span_bytes, file.settled_bytes).map(|durable| {
            let (target, stored_as) = (Box::new(target), file.stored_as.clone());
            Prepared::Ready { target, span_bytes, durable, stored_as, left: None }
        }))
    }

    /// Whether every byte of a file came in this session.
    pub fn is_of_session(&self, name: &[u8]) -> bool {
        self.files.get(name).is_some_and(|file| file.resumed_bytes == Some(0))
    }

    /// Begins a round with what is there, and says what of the earlier ones comes again.
    pub fn begins(
        &mut self,
        offer: &FileOffer,
        span_bytes: u64,
        durable: &SpanSet,
        stored_as: &[u8],
    ) -> BytesAgain {
        let Ok(grid) = SpanGrid::new(offer.size_bytes, span_bytes) else {
            return BytesAgain::default();
        };
        let there = durable.bytes(&grid);
        let Some(file) = self.files.get_mut(&offer.name) else { return BytesAgain::default() };
        (file.span_bytes, file.stored_as) = (span_bytes, stored_as.to_vec());
        let offered_at = Instant::now();
        let written_since = file.offered_at.replace(offered_at).unwrap_or(offered_at);
        file.round = Some(Round { written_since, there_bytes: there });
        let arrived = std::mem::replace(&mut file.arrived_bytes, there);
        match file.resumed_bytes {
            None => {
                file.resumed_bytes = Some(there);
                BytesAgain { bytes: 0, resumed_bytes: there }
            }
            Some(_) => BytesAgain { bytes: arrived.saturating_sub(there), resumed_bytes: 0 },
        }
    }

    /// Counts once those of an earlier run's bytes of this file that have to come again.
    pub fn not_resumed(&mut self, name: &[u8], again_bytes: u64) -> u64 {
        let Some(file) = self.files.get_mut(name) else { return 0 };
        let resumed = file.resumed_bytes.unwrap_or(0);
        let lost = resumed.saturating_sub(file.arrived_bytes).min(again_bytes);
        file.resumed_bytes = Some(resumed - lost);
        lost
    }

    /// Settles a round that is durable: what came stays open for the next.
    pub fn settled(&mut self, offer: &FileOffer, target: Option<TargetFile>) {
        let Some(file) = self.files.get_mut(&offer.name) else { return };
        self.lag.see(Lag { path: Name(offer.name.clone()), bytes: 0, seconds: 0.0 });
        (file.settled_bytes, file.arrived_bytes) = (offer.size_bytes, offer.size_bytes);
        file.round = None;
        file.target = target;
        self.kept += 1;
        file.kept_at = self.kept;
        self.close_oldest();
    }

    /// Closes the file that was kept longest, if too many are open: each takes descriptors, and a
    /// round of one that was closed opens it again.
    fn close_oldest(&mut self) {
        let most = open_files::kept_files_max();
        let open = || self.files.values().filter(|file| file.target.is_some());
        if open().count() <= most {
            return;
        }
        let oldest = open().map(|file| file.kept_at).min();
        let mut files = self.files.values_mut();
        if let Some(file) = files.find(|file| Some(file.kept_at) == oldest) {
            file.target = None;
        }
    }

    /// Ends a round that was given up: others follow, or none.
    pub fn given_up(&mut self, name: &[u8]) {
        if let Some(file) = self.files.get_mut(name) {
            file.round = None;
        }
    }

    /// Forgets a file that has its name, or never will. False when it did not grow.
    pub fn ended(&mut self, name: &[u8]) -> bool {
        self.files.remove(name).is_some()
    }

    /// Takes the files of which no end was told.
    pub fn take_unended(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.files).into_keys().collect()
    }

    /// Notes the lag of what is durable here behind what was offered. What was written at the
    /// source since is not known here.
    pub fn look(&mut self, now: Instant, durable_since: impl Fn() -> u64) {
        let open = self.files.values().filter(|file| file.round.is_some()).count();
        for (name, file) in &self.files {
            let Some(round) = &file.round else { continue };
            // With several on their way nobody knows whose bytes are durable already.
            let came = if open == 1 { durable_since() } else { 0 };
            let there = file.settled_bytes.max(round.there_bytes + came);
            let bytes = file.offered_bytes.saturating_sub(there);
            let seconds = now.saturating_duration_since(round.written_since).as_secs_f64();
            let seconds = if bytes == 0 { 0.0 } else { stages::round(seconds, 2) };
            self.lag.see(Lag { path: Name(name.clone()), bytes, seconds });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_protocol::message;

    const SPAN: u64 = 64 << 10;

    fn offer(size_bytes: u64) -> FileOffer {
        let (kind, growth) = (message::FileKind::Regular, Growth::Growing);
        FileOffer { name: b"x".to_vec(), kind, size_bytes, growth, ..FileOffer::default() }
    }

    fn first_spans(size_bytes: u64, count: u32) -> SpanSet {
        let mut set = SpanSet::new(SpanGrid::new(size_bytes, SPAN).unwrap().count());
        (0..count).for_each(|span| {
            set.insert(haul_protocol::SpanIndex(span));
        });
        set
    }

    /// Runs one round after the other, as a session does it.
    fn round(
        growing: &mut Growing,
        tally: &mut Tally,
        size_bytes: u64,
        there: u32,
    ) -> (BytesAgain, u64) {
        growing.offered(&offer(size_bytes), tally);
        let durable = first_spans(size_bytes, there);
        let again = growing.begins(&offer(size_bytes), SPAN, &durable, b"");
        let lost = growing.not_resumed(b"x", again.bytes);
        growing.settled(&offer(size_bytes), None);
        (again, lost)
    }

    #[test]
    fn rounds_of_one_file_are_counted_as_one_file() {
        let (mut growing, mut tally) = (Growing::default(), Tally::default());
        let (again, _) = round(&mut growing, &mut tally, SPAN * 5 / 2, 1);
        assert_eq!(again, BytesAgain { bytes: 0, resumed_bytes: SPAN });
        // Half a span comes again, and nothing else.
        let (again, lost) = round(&mut growing, &mut tally, SPAN * 4, 2);
        assert_eq!((again, lost), (BytesAgain { bytes: SPAN / 2, resumed_bytes: 0 }, 0));
        assert_eq!((tally.offered_files, tally.offered_bytes), (1, SPAN * 4));
        // All of it comes again: an earlier run's bytes too.
        let (again, lost) = round(&mut growing, &mut tally, SPAN * 5, 0);
        assert_eq!((again, lost), (BytesAgain { bytes: SPAN * 4, resumed_bytes: 0 }, SPAN));
        // And once more: they are off the count already.
        let (again, lost) = round(&mut growing, &mut tally, SPAN * 6, 0);
        assert_eq!((again, lost), (BytesAgain { bytes: SPAN * 5, resumed_bytes: 0 }, 0));
        growing.ended(b"x");
        assert!(growing.files.is_empty());
    }

    #[test]
    fn what_is_durable_of_a_span_that_is_not_full_does_not_lag() {
        let (mut growing, mut tally) = (Growing::default(), Tally::default());
        round(&mut growing, &mut tally, SPAN + 40, 0);
        growing.offered(&offer(SPAN + 51), &mut tally);
        std::thread::sleep(std::time::Duration::from_millis(30));
        growing.begins(&offer(SPAN + 51), SPAN, &first_spans(SPAN + 51, 1), b"");
        growing.lag = LagMeter::default();
        growing.look(Instant::now(), || 0);
        let lag = growing.lag.largest.unwrap();
        // Nobody has said when it was written: after the round before was offered.
        assert!(lag.bytes == 11 && lag.seconds >= 0.03, "{lag:?}");
    }

    fn named(name: &str, size_bytes: u64) -> FileOffer {
        FileOffer { name: name.as_bytes().to_vec(), ..offer(size_bytes) }
    }

    #[test]
    fn a_file_is_of_the_session_if_no_earlier_run_left_any_of_it() {
        let (mut growing, mut tally) = (Growing::default(), Tally::default());
        for (name, there) in [("fresh", 0), ("resumed", 1)] {
            let offer = named(name, SPAN * 2);
            growing.offered(&offer, &mut tally);
            assert!(!growing.is_of_session(name.as_bytes()), "nobody has looked yet");
            growing.begins(&offer, SPAN, &first_spans(SPAN * 2, there), b"");
        }
        let of_session =
            ["fresh", "resumed", "other"].map(|it| growing.is_of_session(it.as_bytes()));
        assert_eq!(of_session, [true, false, false]);
    }

    #[test]
    fn a_file_whose_end_was_told_is_forgotten_and_every_other_is_left_over() {
        let (mut growing, mut tally) = (Growing::default(), Tally::default());
        ["a", "b", "c"].iter().for_each(|name| growing.offered(&named(name, 1), &mut tally));
        assert_eq!([b"b", b"b", b"x"].map(|name| growing.ended(name)), [true, false, false]);
        assert_eq!(growing.take_unended(), [b"a", b"c"]);
        assert!(growing.take_unended().is_empty());
    }

    #[test]
    fn of_more_files_than_are_counted_the_first_one_counts_anew() {
        let (mut growing, mut tally) = (Growing::default(), Tally::default());
        let mut offered = |numbers: std::ops::RangeInclusive<usize>| {
            for number in numbers {
                growing.offered(&named(&format!("{number:05}"), 1), &mut tally);
            }
            (growing.files.len(), tally.offered_files)
        };
        let most = FILES_MAX as u64;
        assert_eq!(offered(1..=FILES_MAX), (FILES_MAX, most));
        assert_eq!(offered(1..=FILES_MAX), (FILES_MAX, most), "all of them are known");
        assert_eq!(offered(FILES_MAX + 1..=FILES_MAX + 1), (FILES_MAX, most + 1));
        assert_eq!(offered(2..=FILES_MAX), (FILES_MAX, most + 1), "the first was forgotten");
    }

    /// Bytes that each file lags when so many became durable since, by name.
    fn lags(growing: &mut Growing, durable_since: u64) -> Vec<(String, u64, f64)> {
        growing.lag = LagMeter::default();
        let now = Instant::now() + std::time::Duration::from_secs(10);
        growing.look(now, || durable_since);
        assert!(growing.lag.take(now).is_empty());
        let told = growing.lag.take(now + std::time::Duration::from_secs(1));
        told.into_iter().map(|lag| (lag.path.to_string(), lag.bytes, lag.seconds)).collect()
    }

    #[test]
    fn a_file_lags_by_what_is_neither_there_nor_came_since() {
        let (mut growing, mut tally) = (Growing::default(), Tally::default());
        growing.offered(&named("x", SPAN * 7), &mut tally);
        growing.begins(&named("x", SPAN * 7), SPAN, &first_spans(SPAN * 7, 3), b"");
        let spans = |told: Vec<(String, u64, f64)>| {
            told.into_iter().map(|(name, bytes, _)| (name, bytes / SPAN)).collect::<Vec<_>>()
        };
        let of = |name: &str, spans| (name.to_owned(), spans);
        assert_eq!(spans(lags(&mut growing, 0)), [of("x", 4)]);
        assert_eq!(spans(lags(&mut growing, SPAN)), [of("x", 3)]);
        assert_eq!(lags(&mut growing, SPAN * 4), [("x".to_owned(), 0, 0.0)]);
        assert!(lags(&mut growing, SPAN)[0].2 >= 10.0);
        // Of two nobody knows whose came.
        growing.offered(&named("y", SPAN * 2), &mut tally);
        growing.begins(&named("y", SPAN * 2), SPAN, &first_spans(SPAN * 2, 0), b"");
        assert_eq!(spans(lags(&mut growing, SPAN)), [of("x", 4), of("y", 2)]);
        growing.given_up(b"x");
        assert_eq!(spans(lags(&mut growing, SPAN)), [of("y", 1)]);
        growing.settled(&named("y", SPAN * 2), None);
        assert!(lags(&mut growing, SPAN).is_empty());
        // What is settled is there, also where a span of it comes again.
        growing.begins(&named("x", SPAN * 7), SPAN, &first_spans(SPAN * 7, 7), b"");
        growing.settled(&named("x", SPAN * 7), None);
        growing.offered(&named("x", SPAN * 9), &mut tally);
        growing.begins(&named("x", SPAN * 9), SPAN, &first_spans(SPAN * 9, 6), b"");
        assert_eq!(spans(lags(&mut growing, 0)), [of("x", 2)]);
    }

    /// A target of a file that grows, in a directory.
    fn target(directory: &std::path::Path, offer: &FileOffer) -> TargetFile {
        use crate::{file_options::FileOptions, storage::fresh::Fresh};
        use haul_protocol::message::Digest;
        let place = super::super::without_peer::place(directory, FileOptions::default());
        match place.prepare(offer, SPAN, Digest::AesGmac, &mut Fresh::default()).unwrap() {
            Prepared::Ready { target, .. } => *target,
            _ => panic!("it is there already"),
        }
    }

    #[test]
    fn the_end_of_a_file_that_is_there_is_compared_and_anything_else_comes() {
        for (growth, compared, size_bytes, is_compared) in [
            (Growth::Grown, Compared::NotCompared, SPAN, true),
            (Growth::Grown, Compared::NotCompared, SPAN + 1, false),
            (Growth::Grown, Compared::OtherContent, SPAN, false),
            (Growth::Growing, Compared::NotCompared, SPAN, false),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let (mut growing, mut tally) = (Growing::default(), Tally::default());
            growing.offered(&offer(SPAN), &mut tally);
            assert!(growing.prepare(&offer(SPAN)).is_none(), "none was left open");
            growing.begins(&offer(SPAN), SPAN, &first_spans(SPAN, 0), b"");
            growing.settled(&offer(SPAN), Some(target(directory.path(), &offer(SPAN))));
            let round = FileOffer { growth, compared, ..offer(size_bytes) };
            let prepared = growing.prepare(&round).expect("it was left open").unwrap();
            assert_eq!(matches!(prepared, Prepared::Compare(_)), is_compared, "{round:?}");
            let is_open = growing.prepare(&round).is_some();
            assert_eq!(is_open, is_compared, "what is compared stays open, if it differs");
        }
    }

    #[test]
    fn of_more_files_than_stay_open_the_one_that_was_settled_first_is_closed() {
        let directory = tempfile::tempdir().unwrap();
        let (mut growing, mut tally) = (Growing::default(), Tally::default());
        let most = open_files::kept_files_max();
        // The later a file is settled, the earlier is its name.
        let of = |number: usize| named(&format!("{:04}", 9999 - number), SPAN);
        let mut settle = |growing: &mut Growing, number| {
            growing.offered(&of(number), &mut tally);
            growing.settled(&of(number), Some(target(directory.path(), &of(number))));
        };
        let is_open = |growing: &Growing, number| growing.files[&of(number).name].target.is_some();
        (0..most).for_each(|number| settle(&mut growing, number));
        assert!((0..most).all(|number| is_open(&growing, number)));
        settle(&mut growing, most);
        let closed: Vec<_> = (0..=most).filter(|number| !is_open(&growing, *number)).collect();
        assert_eq!(closed, [0]);
    }
}
