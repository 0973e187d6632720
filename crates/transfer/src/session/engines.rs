//! The engines of a session's streams: chosen at the first file, and again when the facts change.
//!
//! A sending stream looks at the page cache ahead of it ([`SourceWatch`]); the session's thread
//! looks at the disk's rate ([`DiskWatch`]). Either way a stream changes between two spans.

use super::{
    lock,
    streams::{StreamFigures, Streams},
    supply::fallback_notice,
};
use crate::{
    events::{Event, Side},
    explain::Explained,
};
use haul_datapath::{
    EngineInfo, FileSpan, Host, SpanFile, WireKind,
    choose::{self, Choice, Slowdown, Turn},
};
use haul_host::FileSystem;
use haul_protocol::{Message, StreamId, wire};
use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// What was chosen for all streams of a session.
#[derive(Debug)]
pub struct Chosen {
    pub candidates: Vec<&'static EngineInfo>,
    pub because: String,
    /// By an option, so it is never chosen again.
    pub forced: bool,
}

impl Chosen {
    /// For streams that begin before there is a file to choose by.
    #[must_use]
    pub fn last_resort() -> Self {
        let candidates = vec![&haul_datapath::engines::read_write::INFO];
        Self { candidates, because: String::new(), forced: false }
    }
}

/// Engines that the session's thread has chosen for its streams since they began.
#[derive(Debug, Default)]
pub struct Orders {
    number: AtomicU64,
    candidates: Mutex<Vec<&'static EngineInfo>>,
}

impl Orders {
    pub fn give(&self, candidates: Vec<&'static EngineInfo>) {
        let mut now = lock(&self.candidates);
        *now = candidates;
        self.number.fetch_add(1, Ordering::Release);
    }

    /// The candidates to go on with, if there is an order that the stream has not `seen`.
    #[must_use]
    pub fn newer_than(&self, seen: &mut u64) -> Option<Vec<&'static EngineInfo>> {
        if self.number.load(Ordering::Acquire) == *seen {
            return None;
        }
        let now = lock(&self.candidates);
        *seen = self.number.load(Ordering::Acquire);
        Some(now.clone())
    }
}

/// Looks at the page cache ahead of a stream, a window at a time.
#[derive(Debug)]
pub struct SourceWatch {
    host: Arc<Host>,
    digest: bool,
    /// What suits what was looked at last; that another stands in for it changes nothing.
    suits: &'static EngineInfo,
    looked_at: Option<(Weak<SpanFile>, Range<u64>)>,
}

impl SourceWatch {
    /// `None` where the engine was asked for.
    #[must_use]
    pub fn new(host: &Arc<Host>, digest: bool, chosen: &Chosen) -> Option<Self> {
        let suits = chosen.candidates.first().filter(|_| !chosen.forced)?;
        Some(Self { host: host.clone(), digest, suits, looked_at: None })
    }

    /// Another engine for this span and what comes behind it.
    pub fn look(&mut self, span: &FileSpan) -> Option<Choice> {
        let is_seen = self.looked_at.as_ref().is_some_and(|(file, window)| {
            std::ptr::eq(file.as_ptr(), Arc::as_ptr(&span.file))
                && window.contains(&span.offset_bytes)
        });
        if is_seen || span.file.is_repeating() {
            return None;
        }
        let file = span.file.file();
        let size_bytes = file.metadata().ok()?.len();
        let left_bytes = size_bytes.saturating_sub(span.offset_bytes);
        let window_bytes = left_bytes.min(choose::WINDOW_BYTES);
        let window = span.offset_bytes..span.offset_bytes + window_bytes;
        self.looked_at = Some((Arc::downgrade(&span.file), window));
        let cached =
            haul_sys::cachestat::cached_bytes(file, span.offset_bytes, window_bytes).ok()?;
        let facts = choose::SendFacts {
            host: &self.host,
            wire: WireKind::Tcp,
            file_system: FileSystem::of(file).ok().map(|system| system.kind),
            size_bytes: left_bytes,
            resident_share: cached as f64 / window_bytes.max(1) as f64,
            digest: self.digest,
            forced: None,
        };
        let choice = choose::send_engine_again(&facts, self.suits)?;
        self.suits = choice.candidates[0];
        Some(choice)
    }
}

/// How often the streams' figures are looked at for it.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks at the rate of a session's disk.
#[derive(Debug)]
pub struct DiskWatch {
    slowdown: Slowdown,
    begun: Instant,
    looked_at: Instant,
    disk_ns: u64,
}

impl DiskWatch {
    #[must_use]
    pub fn new(chosen: &Chosen, now: Instant) -> Self {
        let slowdown = Slowdown::new(&chosen.candidates, chosen.forced);
        Self { slowdown, begun: now, looked_at: now, disk_ns: 0 }
    }

    /// `bytes`: done by the disk so far. `disk_ns`: what a stream has waited for it.
    pub fn look(
        &mut self,
        now: Instant,
        streams: &Streams,
        bytes: impl FnOnce(&[StreamFigures]) -> u64,
        disk_ns: fn(&StreamFigures) -> u64,
    ) -> Option<Turn> {
        let passed = now.saturating_duration_since(self.looked_at);
        if passed < LOOK_EVERY || self.slowdown.is_over() {
            return None;
        }
        self.looked_at = now;
        let figures = streams.socket_figures();
        let waited_ns: u64 = figures.iter().map(disk_ns).sum();
        let stream_ns = passed.as_nanos() as f64 * f64::from(streams.open_count().max(1));
        let share = waited_ns.saturating_sub(self.disk_ns) as f64 / stream_ns;
        self.disk_ns = waited_ns;
        self.slowdown.look(now.saturating_duration_since(self.begun), bytes(&figures), share)
    }
}

/// The engines of one side's session, and what is said of them.
#[derive(Debug)]
pub struct Engines {
    side: Side,
    pub chosen: Option<Arc<Chosen>>,
    disk: Option<DiskWatch>,
    /// Changes that were told: each is told once, however many streams change.
    told: BTreeSet<String>,
    /// For the client that asked how this side chose.
    explained: Option<wire::Explained>,
}

/// A change for both sides' users: the other's, and this one's.
pub type Change = (wire::Notice, Event);

impl Engines {
    #[must_use]
    pub fn new(side: Side) -> Self {
        Self { side, chosen: None, disk: None, told: BTreeSet::new(), explained: None }
    }

    /// `watches_disk`: the choice may be made again by the disk's rate.
    pub fn choose(&mut self, choice: Choice, forced: bool, watches_disk: bool) {
        let chosen = Chosen { candidates: choice.candidates, because: choice.because, forced };
        self.disk = watches_disk.then(|| DiskWatch::new(&chosen, Instant::now()));
        self.chosen = Some(Arc::new(chosen));
    }

    /// For the report; empty before there was a choice.
    #[must_use]
    pub fn because(&self) -> String {
        self.chosen.as_ref().map_or(String::new(), |chosen| chosen.because.clone())
    }

    /// Keeps for the client how a server chose.
    pub fn explain(&mut self, explained: Explained) {
        self.explained = Some(explained.into_wire());
    }

    pub fn take_explained(&mut self) -> Option<Message> {
        self.explained.take().map(Message::Explained)
    }

    /// What to tell of a change, if it is news. `side` is the path where no engine changes.
    pub fn change(
        &mut self,
        side: Option<Side>,
        stream: StreamId,
        from_to: String,
        why: String,
    ) -> Option<Change> {
        if !self.told.insert(from_to.clone()) {
            return None;
        }
        let notice = fallback_notice(stream, &from_to, &why);
        let side = side.unwrap_or(self.side);
        Some((notice, Event::Fallback { side, from_to, why }))
    }

    /// Has the streams try other engines where the disk has slowed; `bytes` and `disk_ns` are those
    /// of [`DiskWatch::look`].
    pub fn watch_disk(
        &mut self,
        now: Instant,
        (streams, orders): (&Streams, &Orders),
        bytes: impl FnOnce(&[StreamFigures]) -> u64,
        disk_ns: fn(&StreamFigures) -> u64,
    ) -> Option<Change> {
        let turn = self.disk.as_mut()?.look(now, streams, bytes, disk_ns)?;
        let to = format!("-> {}", turn.candidates[0].name);
        orders.give(turn.candidates);
        self.change(None, StreamId(0), to, turn.because)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_datapath::{SpanId, engines};
    use haul_testkit::{page_cache, skip::skip};
    use std::io::Write;

    #[test]
    fn an_order_is_seen_once_by_each_stream() {
        let orders = Orders::default();
        let (mut one, mut other) = (0, 0);
        assert!(orders.newer_than(&mut one).is_none());
        orders.give(vec![&engines::read_write::INFO]);
        assert_eq!(orders.newer_than(&mut one).map(|c| c[0].name), Some("read-write"));
        assert!(orders.newer_than(&mut one).is_none());
        assert_eq!(orders.newer_than(&mut other).map(|c| c.len()), Some(1));
    }

    #[test]
    fn a_file_whose_second_half_is_cold_changes_engines_once() {
        let half = choose::WINDOW_BYTES;
        let mut file = tempfile::NamedTempFile::new_in(".").unwrap();
        let block = vec![7; 1 << 20];
        for _ in 0..2 * half / block.len() as u64 {
            file.write_all(&block).unwrap();
        }
        let kind = FileSystem::of(file.as_file()).unwrap().kind;
        let forgotten = page_cache::forget(file.path(), half..2 * half);
        if forgotten.is_err() || choose_cold(kind) != "io-uring" {
            return skip("a disk below this directory", &format!("{kind}, {forgotten:?}"));
        }
        let host = Arc::new(Host { kernel: (6, 18), ..Host::default() });
        let chosen = Chosen {
            candidates: vec![&engines::sendfile::INFO],
            because: String::new(),
            forced: false,
        };
        let mut watch = SourceWatch::new(&host, true, &chosen).unwrap();
        let file = Arc::new(SpanFile::new(file.into_file()));
        let mut changes = Vec::new();
        for offset_bytes in (0..2 * half).step_by(8 << 20) {
            let id = SpanId(offset_bytes);
            let span = FileSpan { id, file: file.clone(), offset_bytes, len_bytes: 8 << 20 };
            let choice = watch.look(&span);
            changes.extend(choice.map(|choice| (offset_bytes, choice.candidates[0].name)));
        }
        assert_eq!(changes, [(half, "io-uring")]);
    }

    fn choose_cold(kind: haul_host::FsKind) -> &'static str {
        let host = Host { kernel: (6, 18), ..Host::default() };
        let facts = choose::SendFacts {
            host: &host,
            wire: WireKind::Tcp,
            file_system: Some(kind),
            size_bytes: choose::WINDOW_BYTES,
            resident_share: 0.0,
            digest: true,
            forced: None,
        };
        choose::send_engine(&facts).unwrap().candidates[0].name
    }
}
