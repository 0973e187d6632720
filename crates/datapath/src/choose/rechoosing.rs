//! Repeated choice of engines while a transfer runs, when the facts have changed.
//!
//! The page cache then holds less or more of what comes next, or the disk has become slower.

use std::time::Duration;

use super::{Choice, SendCase, cases::in_words, send_engine};
use crate::{
    EngineInfo,
    choose::facts::{SendFacts, Source},
};

/// Bytes of a source that are looked at at a time: several hundredths of a second of a fast
/// transfer, and enough that another engine pays for its beginning.
pub const WINDOW_BYTES: u64 = 128 << 20;

/// Share of a window in the page cache below which an engine that reads it is replaced; one that
/// reads past it is replaced above the other share. In between each is as good.
const STAYS_WARM_SHARE: f64 = 0.3;
const STAYS_COLD_SHARE: f64 = 0.7;
/// [`STAYS_WARM_SHARE`] where memory cannot hold the whole source: what is read into the page cache
/// takes the place of what is there and comes next (0.94 of reading past it, with 75 to 91 % of
/// each window cached).
const STAYS_WARM_SHARE_BEYOND: f64 = 0.8;
const STAYS_COLD_SHARE_BEYOND: f64 = 0.95;

/// Chooses another engine for what comes next of a source, if the one at work does not suit it any
/// more.
///
/// `facts` are of what comes next: `resident_share` of the `looked_at_bytes`, at most
/// [`WINDOW_BYTES`]; `size_bytes` of all that is left. An engine that was asked for stays.
#[must_use]
pub fn send_engine_again(
    facts: &SendFacts<'_>,
    looked_at_bytes: u64,
    at_work: &'static EngineInfo,
) -> Option<Choice> {
    if facts.forced.is_some() || !matches!(facts.source, Source::File(_)) {
        return None;
    }
    let reads_past = SendCase::ColdLargeOnDisk.order()[..2].contains(&at_work.name);
    let (stays_warm, stays_cold) = if facts.is_beyond_memory() {
        (STAYS_WARM_SHARE_BEYOND, STAYS_COLD_SHARE_BEYOND)
    } else {
        (STAYS_WARM_SHARE, STAYS_COLD_SHARE)
    };
    let suits = if reads_past {
        facts.resident_share <= stays_cold
    } else {
        facts.resident_share >= stays_warm
    };
    if suits {
        return None;
    }
    let mut choice = send_engine(facts).ok()?;
    if choice.candidates[0].name == at_work.name {
        return None;
    }
    let percent = (facts.resident_share.max(0.0) * 100.0).round().min(100.0);
    let window = in_words(looked_at_bytes);
    choice.because = format!("{percent} % of the next {window} is in the page cache");
    Some(choice)
}

/// Time over which a rate is taken: the receiver syncs once a second.
const LOOK: Duration = Duration::from_secs(2);
/// Slow looks in a row before a disk counts as slower than it was.
const SLOW_LOOKS: u32 = 2;
/// Share of the best rate so far below which a look is slow; a disk's rate varies by less.
const SLOW_SHARE: f64 = 0.5;
/// Share of time spent on the disk above which the disk holds the transfer back.
const DISK_SHARE_MIN: f64 = 0.4;
/// Factor by which another engine has to be faster, or the first one goes on.
const GAIN_MIN: f64 = 1.1;

/// A change of engine that [`Slowdown::look`] asks for.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Engines that go on from the next span, the best first.
    pub candidates: Vec<&'static EngineInfo>,
    pub because: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// The engine that was chosen, or a better one that was found.
    AtWork { slow_looks: u32 },
    /// Another engine is on trial. The first look is not counted: what the other has begun ends in
    /// it.
    OnTrial { bytes_per_s_before: f64, settled: bool },
}

/// Watches the rate of a disk. When it falls to half of what it was while the disk holds the
/// transfer back, the other engines are tried once each, one look long, and the fastest stays.
#[derive(Clone, Debug)]
pub struct Slowdown {
    /// Engines to go on with, the one at work first.
    candidates: Vec<&'static EngineInfo>,
    untried: Vec<&'static EngineInfo>,
    state: State,
    best_bytes_per_s: f64,
    looked: Option<(Duration, u64)>,
}

impl Slowdown {
    /// Begins to watch a disk: `candidates` are as they were chosen, the one at work first; the
    /// last is a last resort and is not tried. With one that was asked for nothing is ever tried.
    #[must_use]
    pub fn new(candidates: &[&'static EngineInfo], forced: bool) -> Self {
        let untried = match candidates {
            [_, others @ .., _] if !forced => others.to_vec(),
            _ => Vec::new(),
        };
        Self {
            candidates: candidates.to_vec(),
            untried,
            state: State::AtWork { slow_looks: 0 },
            best_bytes_per_s: 0.0,
            looked: None,
        }
    }

    /// Whether there is nothing to try, or nothing more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.untried.is_empty() && matches!(self.state, State::AtWork { .. })
    }

    /// Takes a look at the disk's rate, which may ask for a change of engine; to be called often.
    /// `now` and `bytes` count from the same beginning; `bytes` is what the disk has done (durable,
    /// or read), `disk_share` the part of its streams' time since the last look in which they
    /// waited for it.
    pub fn look(&mut self, now: Duration, bytes: u64, disk_share: f64) -> Option<Turn> {
        if self.is_over() {
            return None;
        }
        let Some((then, bytes_then)) = self.looked else {
            self.looked = Some((now, bytes));
            return None;
        };
        let passed = now.saturating_sub(then);
        if passed < LOOK {
            return None;
        }
        self.looked = Some((now, bytes));
        let bytes_per_s = bytes.saturating_sub(bytes_then) as f64 / passed.as_secs_f64();
        match self.state {
            State::AtWork { slow_looks } => self.at_work(bytes_per_s, disk_share, slow_looks),
            State::OnTrial { bytes_per_s_before, settled: false } => {
                self.state = State::OnTrial { bytes_per_s_before, settled: true };
                None
            }
            State::OnTrial { bytes_per_s_before, settled: true } => {
                self.end_trial(bytes_per_s, bytes_per_s_before)
            }
        }
    }

    fn at_work(&mut self, bytes_per_s: f64, disk_share: f64, slow_looks: u32) -> Option<Turn> {
        self.best_bytes_per_s = self.best_bytes_per_s.max(bytes_per_s);
        let slow = bytes_per_s < self.best_bytes_per_s * SLOW_SHARE && disk_share > DISK_SHARE_MIN;
        let slow_looks = if slow { slow_looks + 1 } else { 0 };
        self.state = State::AtWork { slow_looks };
        if slow_looks < SLOW_LOOKS {
            return None;
        }
        let because = format!(
            "the disk slowed from {} to {}; trying {}",
            rate(self.best_bytes_per_s),
            rate(bytes_per_s),
            self.untried[0].name
        );
        self.state = State::OnTrial { bytes_per_s_before: bytes_per_s, settled: false };
        let trial = self.untried[0];
        Some(Turn { candidates: self.with_first(trial), because })
    }

    fn end_trial(&mut self, bytes_per_s: f64, bytes_per_s_before: f64) -> Option<Turn> {
        let tried = self.untried.remove(0);
        let before = self.candidates[0];
        let figures = format!("{} for {}", rate(bytes_per_s), rate(bytes_per_s_before));
        self.state = State::AtWork { slow_looks: 0 };
        let stays = bytes_per_s >= bytes_per_s_before * GAIN_MIN;
        let reached = if stays {
            self.candidates = self.with_first(tried);
            bytes_per_s
        } else {
            bytes_per_s_before
        };
        if let Some(next) = self.untried.first().copied() {
            let because =
                format!("{} has {figures} of {}; trying {}", tried.name, before.name, next.name);
            self.state = State::OnTrial { bytes_per_s_before: reached, settled: false };
            return Some(Turn { candidates: self.with_first(next), because });
        }
        let word = if stays { "stays" } else { "goes on" };
        let because = format!(
            "{} has {figures} of {}, so {} {word}",
            tried.name, before.name, self.candidates[0].name
        );
        Some(Turn { candidates: self.candidates.clone(), because })
    }

    fn with_first(&self, first: &'static EngineInfo) -> Vec<&'static EngineInfo> {
        let others = self.candidates.iter().copied().filter(|info| info.name != first.name);
        std::iter::once(first).chain(others).collect()
    }
}

fn rate(bytes_per_s: f64) -> String {
    format!("{:.0} MB/s", bytes_per_s / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, WireKind, engines};
    use haul_host::FsKind;

    fn facts(host: &Host, resident_share: f64) -> SendFacts<'_> {
        SendFacts {
            host,
            wire: WireKind::Tcp,
            source: Source::File(FsKind::Ext),
            size_bytes: 4 << 30,
            resident_share,
            digest: true,
            forced: None,
        }
    }

    fn again(facts: &SendFacts<'_>, at_work: &str) -> Option<&'static str> {
        let looked_at_bytes = facts.size_bytes.min(WINDOW_BYTES);
        let at_work = engines::find(at_work).unwrap();
        send_engine_again(facts, looked_at_bytes, at_work).map(|c| c.candidates[0].name)
    }

    #[test]
    fn where_the_page_cache_ends_the_disk_is_read_past_it_and_back() {
        let host = Host { kernel: (6, 18), ..Host::default() };
        assert_eq!(again(&facts(&host, 1.0), "sendfile"), None);
        assert_eq!(again(&facts(&host, 0.31), "sendfile"), None);
        assert_eq!(again(&facts(&host, 0.29), "sendfile"), Some("io-uring"));
        assert_eq!(again(&facts(&host, 0.0), "io-uring"), None);
        assert_eq!(again(&facts(&host, 0.69), "io-uring"), None);
        assert_eq!(again(&facts(&host, 0.71), "io-uring"), Some("sendfile"));
        let sendfile = engines::find("sendfile").unwrap();
        let choice = send_engine_again(&facts(&host, 0.024), WINDOW_BYTES, sendfile);
        assert_eq!(choice.unwrap().because, "2 % of the next 128 MiB is in the page cache");
    }

    #[test]
    fn what_memory_cannot_hold_is_read_past_the_page_cache_unless_nearly_all_is_there() {
        let host = Host { kernel: (6, 18), memory_bytes: 1 << 30, ..Host::default() };
        assert_eq!(again(&facts(&host, 0.94), "io-uring"), None);
        assert_eq!(again(&facts(&host, 0.96), "io-uring"), Some("sendfile"));
        assert_eq!(again(&facts(&host, 0.81), "sendfile"), None);
        assert_eq!(again(&facts(&host, 0.79), "sendfile"), Some("io-uring"));
    }

    #[test]
    fn an_engine_that_was_asked_for_and_a_short_rest_stay() {
        let host = Host::default();
        let forced = SendFacts { forced: Some("sendfile"), ..facts(&host, 0.0) };
        assert_eq!(again(&forced, "sendfile"), None);
        let short = SendFacts { size_bytes: 1 << 20, ..facts(&host, 0.0) };
        assert_eq!(again(&short, "sendfile"), None);
        let zeros = SendFacts { source: Source::Zeros, ..facts(&host, 0.0) };
        assert_eq!(again(&zeros, "sendfile"), None);
    }

    /// A disk whose rate depends on the engine and on time.
    struct Disk {
        slowdown: Slowdown,
        engine: &'static str,
        bytes: u64,
        now: Duration,
        turns: Vec<String>,
    }

    impl Disk {
        fn new(names: &[&str]) -> Self {
            let candidates: Vec<_> = names.iter().map(|n| engines::find(n).unwrap()).collect();
            Self {
                slowdown: Slowdown::new(&candidates, false),
                engine: candidates[0].name,
                bytes: 0,
                now: Duration::ZERO,
                turns: Vec::new(),
            }
        }

        fn run(&mut self, seconds: u32, share: f64, rate: impl Fn(&str) -> u64) {
            for _ in 0..seconds * 2 {
                self.now += Duration::from_millis(500);
                self.bytes += rate(self.engine) * 500_000;
                if let Some(turn) = self.slowdown.look(self.now, self.bytes, share) {
                    self.engine = turn.candidates[0].name;
                    self.turns.push(turn.because);
                }
            }
        }
    }

    const ENGINES: [&str; 4] = ["io-uring", "dontcache", "direct", "read-write"];

    #[test]
    fn a_disk_that_keeps_its_rate_and_a_slow_network_change_nothing() {
        let mut disk = Disk::new(&ENGINES);
        disk.run(30, 0.9, |_| 2000);
        disk.run(30, 0.9, |_| 1100);
        disk.run(30, 0.1, |_| 100);
        assert_eq!((disk.engine, disk.turns.len()), ("io-uring", 0));
    }

    #[test]
    fn a_disk_that_slowed_is_tried_with_the_other_engines_and_the_best_stays() {
        let mut disk = Disk::new(&ENGINES);
        let slowed = |engine: &str| match engine {
            "io-uring" => 500,
            "dontcache" => 800,
            "direct" => 520,
            _ => panic!("the last resort is never tried"),
        };
        disk.run(10, 0.9, |_| 2000);
        disk.run(40, 0.9, slowed);
        assert_eq!(disk.engine, "dontcache");
        assert_eq!(
            disk.turns,
            [
                "the disk slowed from 2000 MB/s to 500 MB/s; trying dontcache",
                "dontcache has 800 MB/s for 500 MB/s of io-uring; trying direct",
                "direct has 520 MB/s for 800 MB/s of dontcache, so dontcache goes on",
            ]
        );
    }

    #[test]
    fn where_nothing_helps_the_first_goes_on_and_all_is_said_once() {
        let mut disk = Disk::new(&ENGINES);
        disk.run(10, 0.9, |_| 2000);
        disk.run(60, 0.9, |_| 300);
        assert_eq!((disk.engine, disk.turns.len()), ("io-uring", 3));
        disk.run(60, 0.9, |_| 30);
        assert_eq!(disk.turns.len(), 3);
    }

    #[test]
    fn what_was_asked_for_is_never_left() {
        let candidates = [engines::find("io-uring").unwrap(), engines::find("direct").unwrap()];
        assert!(Slowdown::new(&candidates, true).untried.is_empty());
        assert!(Slowdown::new(&candidates, false).untried.is_empty(), "only the last resort");
    }

    #[test]
    fn neither_an_engine_that_was_asked_for_nor_one_for_zeros_is_chosen_again() {
        let host = Host::default();
        let forced = SendFacts { forced: Some("sendfile"), ..facts(&host, 0.0) };
        assert_eq!(again(&forced, "splice"), None);
        let zeros = SendFacts { source: Source::Zeros, ..facts(&host, 0.0) };
        assert_eq!(again(&zeros, "read-write"), None);
    }

    #[test]
    fn a_look_is_two_seconds_long_to_the_nanosecond() {
        let mut slowdown = Disk::new(&ENGINES).slowdown;
        slowdown.look(Duration::ZERO, 5, 0.9);
        slowdown.look(LOOK - Duration::from_nanos(1), 6, 0.9);
        assert_eq!(slowdown.looked, Some((Duration::ZERO, 5)));
        slowdown.look(LOOK, 7, 0.9);
        assert_eq!(slowdown.looked, Some((LOOK, 7)));
        slowdown.look(LOOK * 3, 8, 0.9);
        assert_eq!(slowdown.looked, Some((LOOK * 3, 8)));
    }

    #[test]
    fn half_the_rate_twice_in_a_row_is_slow_where_the_disk_is_waited_for() {
        let slow_looks = |bytes_per_s, disk_share, before| {
            let mut slowdown = Disk::new(&ENGINES).slowdown;
            slowdown.best_bytes_per_s = 1000.0;
            let turn = slowdown.at_work(bytes_per_s, disk_share, before);
            match slowdown.state {
                State::AtWork { slow_looks } => (Some(slow_looks), turn),
                State::OnTrial { .. } => (None, turn),
            }
        };
        assert_eq!(slow_looks(500.0, 0.9, 0).0, Some(0));
        assert_eq!(slow_looks(499.0, 0.4, 0).0, Some(0));
        assert_eq!(slow_looks(499.0, 0.9, 0).0, Some(1));
        let (looks, turn) = slow_looks(499.0, 0.9, 1);
        let names: Vec<_> = turn.unwrap().candidates.iter().map(|engine| engine.name).collect();
        assert_eq!(looks, None);
        assert_eq!(names, ["dontcache", "io-uring", "direct", "read-write"]);
    }

    #[test]
    fn an_engine_that_is_hardly_faster_does_not_stay() {
        let mut disk = Disk::new(&ENGINES);
        disk.run(10, 0.9, |_| 2000);
        disk.run(40, 0.9, |engine| if engine == "io-uring" { 500 } else { 520 });
        assert_eq!((disk.engine, disk.turns.len()), ("io-uring", 3));
    }
}
