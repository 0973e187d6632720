//! Choice of the engines of a session's streams.
//!
//! They are chosen at the first file, once more when the files are found to be many, and again when
//! the facts change.
//!
//! A sending stream looks at the page cache ahead of it ([`SourceWatch`]); the session's thread
//! looks at the disk's rate ([`DiskWatch`]). Either way a stream changes between two spans.

use super::{
    sending::pack::SMALL_FILE_BYTES_MAX,
    streams::{StreamFigures, Streams},
    supply::fallback_notice,
};
use crate::{
    events::{Event, Explained},
    locks::{Lock, lock},
    problem::Side,
};
use haul_datapath::{
    EngineInfo, FileSpan, Host, SpanFile, WireKind,
    choose::{self, Choice, Slowdown, Turn},
};
use haul_host::FileSystem;
use haul_protocol::{
    Message, StreamId,
    message::{self, Compared, FileKind, FileOffer, Growth},
};
use std::{
    collections::BTreeSet,
    fs::File,
    ops::Range,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Engines that were chosen for all streams of a session.
#[derive(Debug)]
pub struct Chosen {
    pub candidates: Vec<&'static EngineInfo>,
    /// Engines for a stream that stays TCP though the others have RDMA endpoints; empty elsewhere.
    pub over_tcp: Vec<&'static EngineInfo>,
    pub because: String,
    /// The user chose the engine by an option, so it is never chosen again.
    pub forced: bool,
}

impl Chosen {
    /// The engine for streams that begin before there is a file to choose by.
    #[must_use]
    pub fn last_resort() -> Self {
        let candidates = vec![&haul_datapath::engines::read_write::INFO];
        Self { candidates, over_tcp: Vec::new(), because: String::new(), forced: false }
    }

    /// The engines of the session's wire, and those of a stream that stays TCP.
    #[must_use]
    pub fn both(&self) -> (&[&'static EngineInfo], &[&'static EngineInfo]) {
        (&self.candidates, &self.over_tcp)
    }
}

/// Engines that the session's thread has chosen for its streams since they began.
#[derive(Debug, Default)]
pub struct Orders {
    number: AtomicU64,
    latest: Lock<Order>,
}

/// An engine that the streams are to change to between two spans.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// Engines in order of preference; never empty once the order is given.
    pub candidates: Vec<&'static EngineInfo>,
    /// The order is a choice by the files, which another look at the page cache may overrule;
    /// otherwise a trial.
    pub is_choice: bool,
}

impl Order {
    /// Whether the order is for streams of such a wire: its last engine is the one that always goes
    /// on, and each kind of wire has its own.
    #[must_use]
    pub fn fits(&self, wire: WireKind) -> bool {
        self.candidates.last().is_some_and(|last| last.wires.contains(&wire))
    }
}

impl Orders {
    pub fn give(&self, order: Order) {
        let mut latest = lock(&self.latest);
        *latest = order;
        self.number.fetch_add(1, Ordering::Release);
    }

    /// Takes the latest order, if the stream has not `seen` it.
    #[must_use]
    pub fn newer_than(&self, seen: &mut u64) -> Option<Order> {
        if self.number.load(Ordering::Acquire) == *seen {
            return None;
        }
        let latest = lock(&self.latest);
        *seen = self.number.load(Ordering::Acquire);
        Some(latest.clone())
    }
}

/// Bytes of a source that are looked at before another engine is chosen. Where files are shorter it
/// is several of them: a warm one among cold ones changes nothing.
const LOOK_BYTES: u64 = 16 << 20;

/// Looks at the page cache ahead of a stream, a window at a time.
#[derive(Debug)]
pub struct SourceWatch {
    host: Arc<Host>,
    wire: WireKind,
    digest: bool,
    /// The engine that suits what was looked at last; that another stands in for it changes
    /// nothing.
    suits: &'static EngineInfo,
    looked_at: Option<(Weak<SpanFile>, Range<u64>)>,
    /// Bytes of the windows since the last that was judged.
    window_bytes: u64,
    cached_bytes: u64,
}

impl SourceWatch {
    /// Starts the watch; `None` where the user asked for the engine, or the wire has only one,
    /// whatever the page cache holds.
    #[must_use]
    pub fn new(host: &Arc<Host>, wire: WireKind, digest: bool, chosen: &Chosen) -> Option<Self> {
        let suits = chosen.candidates.first().filter(|_| !chosen.forced)?;
        let has_choice = wire != WireKind::Fabric;
        let (host, looked_at, window_bytes, cached_bytes) = (host.clone(), None, 0, 0);
        has_choice.then_some(Self {
            host,
            wire,
            digest,
            suits,
            looked_at,
            window_bytes,
            cached_bytes,
        })
    }

    /// Takes an order of the session's thread: a choice tells what suits the source, a trial does
    /// not.
    pub fn ordered(&mut self, order: &Order) {
        if order.is_choice {
            self.suits = order.candidates[0];
        }
    }

    /// Chooses another engine for this span and what comes behind it, if the page cache says so.
    /// `bulk_bytes`: see [`Engines::bulk_bytes`].
    pub fn look(&mut self, span: &FileSpan, bulk_bytes: u64) -> Option<Choice> {
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
        self.window_bytes += window_bytes;
        self.cached_bytes += cached.min(window_bytes);
        if self.window_bytes < LOOK_BYTES.min(left_bytes.max(bulk_bytes)) {
            return None;
        }
        let resident_share = self.cached_bytes as f64 / self.window_bytes.max(1) as f64;
        let looked_at_bytes = std::mem::take(&mut self.window_bytes);
        self.cached_bytes = 0;
        let facts = choose::SendFacts {
            host: &self.host,
            wire: self.wire,
            source: source_of(Some(file)),
            size_bytes: left_bytes.max(bulk_bytes),
            resident_share,
            digest: self.digest,
            forced: None,
        };
        let choice = choose::send_engine_again(&facts, looked_at_bytes, self.suits)?;
        self.suits = choice.candidates[0];
        Some(choice)
    }
}

/// File system that an opened source lies on; `None`: it could not be opened.
pub fn source_of(file: Option<&File>) -> choose::Source {
    let system = file.and_then(|file| FileSystem::of(file).ok());
    system.map_or(choose::Source::Unknown, |system| choose::Source::File(system.kind))
}

/// Interval between two looks at the disk's rate.
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

    /// Looks at the disk's rate and says which engines to try, if any. `bytes`: done by the disk so
    /// far. `disk_ns`: what a stream has waited for it.
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

/// The engines of one side's session, and what users were told of them.
#[derive(Debug)]
pub struct Engines {
    side: Side,
    pub chosen: Option<Arc<Chosen>>,
    /// Engines of the next choice, for streams that stay TCP where others have RDMA endpoints.
    pub over_tcp: Vec<&'static EngineInfo>,
    /// The choice was made for many bytes, and not by a first small file.
    chosen_for_many: bool,
    bulk_bytes: u64,
    disk: Option<DiskWatch>,
    /// Changes that were told: each is told once, however many streams change.
    told: BTreeSet<String>,
    /// Explanation of the choice, for the client that asked for it.
    explained: Option<message::Explained>,
}

/// A change as told to both sides' users: a notice for the other, an event for this one.
pub type Change = (message::Notice, Event);

/// Makes the event of something that is done in another way, for the users of both sides.
pub fn told_to_both(side: Side, stream: StreamId, from_to: String, why: String) -> Change {
    (fallback_notice(stream, &from_to, &why), Event::Fallback { side, from_to, why })
}

impl Engines {
    #[must_use]
    pub fn new(side: Side) -> Self {
        Self {
            side,
            chosen: None,
            over_tcp: Vec::new(),
            chosen_for_many: false,
            bulk_bytes: 0,
            disk: None,
            told: BTreeSet::new(),
            explained: None,
        }
    }

    /// Bytes by which the engines are to be chosen, if an offer makes it due: at the first file
    /// that has some, and once more when the files, which are offered one by one, add up to many.
    pub fn offered(&mut self, offer: &FileOffer) -> Option<u64> {
        // A file that was compared, or grew meanwhile, was offered before.
        let is_new = offer.compared == Compared::NotCompared && offer.growth == Growth::NotGrowing;
        let counts = is_new || self.chosen.is_none();
        if offer.kind != FileKind::Regular || !counts {
            return None;
        }
        if offer.size_bytes > SMALL_FILE_BYTES_MAX {
            self.bulk_bytes = self.bulk_bytes.saturating_add(offer.size_bytes);
        }
        let is_due = match &self.chosen {
            None => offer.size_bytes > 0,
            Some(chosen) => {
                !chosen.forced && !self.chosen_for_many && self.bulk_bytes >= choose::LARGE_BYTES
            }
        };
        is_due.then(|| self.bulk_bytes.max(offer.size_bytes))
    }

    /// Bytes offered in files that are not packed: engines move those, packs bypass them.
    #[must_use]
    pub fn bulk_bytes(&self) -> u64 {
        self.bulk_bytes
    }

    /// Takes the choice of the engines. `watches_disk`: it may be made again by the disk's rate.
    /// Streams that run already get theirs by `orders`.
    pub fn choose(&mut self, choice: Choice, forced: bool, watches_disk: bool, orders: &Orders) {
        if self.chosen.is_some() {
            orders.give(Order { candidates: choice.candidates.clone(), is_choice: true });
        }
        let Choice { candidates, because, .. } = choice;
        let over_tcp = std::mem::take(&mut self.over_tcp);
        let chosen = Chosen { candidates, over_tcp, because, forced };
        self.disk = watches_disk.then(|| DiskWatch::new(&chosen, Instant::now()));
        self.chosen = Some(Arc::new(chosen));
        self.chosen_for_many = self.bulk_bytes >= choose::LARGE_BYTES;
    }

    /// The reason of the choice, for the report; empty before there was one.
    #[must_use]
    pub fn because(&self) -> String {
        self.chosen.as_ref().map_or(String::new(), |chosen| chosen.because.clone())
    }

    /// Keeps for the client how a server chose its engines.
    pub fn explain(&mut self, explained: Explained) {
        self.explained = Some(explained.into_message());
    }

    pub fn take_explained(&mut self) -> Option<Message> {
        self.explained.take().map(Message::Explained)
    }

    /// Makes the event of a change, if it is news. `side` is the path where no engine changes.
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
        Some(told_to_both(side.unwrap_or(self.side), stream, from_to, why))
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
        orders.give(Order { candidates: turn.candidates, is_choice: false });
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
    fn an_order_is_for_streams_of_the_wire_that_it_was_made_for() {
        let fits = |candidates: &[&'static EngineInfo]| {
            let order = Order { candidates: candidates.to_vec(), is_choice: false };
            [WireKind::Tcp, WireKind::KernelTls, WireKind::Tls, WireKind::Fabric]
                .map(|wire| order.fits(wire))
        };
        let io_uring = &engines::io_uring::INFO;
        assert_eq!(fits(&[io_uring, &engines::read_write::INFO]), [true, true, false, false]);
        assert_eq!(fits(&[io_uring, &engines::tls::INFO]), [false, false, true, false]);
        assert_eq!(fits(&[&engines::fabric::INFO]), [false, false, false, true]);
    }

    #[test]
    fn an_order_is_seen_once_by_each_stream() {
        let orders = Orders::default();
        let (mut one, mut other) = (0, 0);
        assert!(orders.newer_than(&mut one).is_none());
        let candidates = vec![&engines::read_write::INFO];
        orders.give(Order { candidates, is_choice: false });
        let name = |order: Order| order.candidates[0].name;
        assert_eq!(orders.newer_than(&mut one).map(name), Some("read-write"));
        assert!(orders.newer_than(&mut one).is_none());
        assert_eq!(orders.newer_than(&mut other).map(name), Some("read-write"));
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
            return skip("a disk below this directory", format!("{kind}, {forgotten:?}"));
        }
        let host = Arc::new(Host { kernel: (6, 18), ..Host::default() });
        let mut watch = watch(&host);
        let file = Arc::new(SpanFile::new(file.into_file()));
        let mut changes = Vec::new();
        for offset_bytes in (0..2 * half).step_by(8 << 20) {
            let id = SpanId(offset_bytes);
            let span = FileSpan { id, file: file.clone(), offset_bytes, len_bytes: 8 << 20 };
            let choice = watch.look(&span, 2 * half);
            changes.extend(choice.map(|choice| (offset_bytes, choice.candidates[0].name)));
        }
        assert_eq!(changes, [(half, "io-uring")]);
    }

    /// The watch of a stream that begins with sendfile.
    fn watch(host: &Arc<Host>) -> SourceWatch {
        let candidates = vec![&engines::sendfile::INFO];
        let chosen =
            Chosen { candidates, over_tcp: Vec::new(), because: String::new(), forced: false };
        SourceWatch::new(host, WireKind::Tcp, true, &chosen).unwrap()
    }

    fn file(size_bytes: u64) -> FileOffer {
        FileOffer { size_bytes, kind: FileKind::Regular, ..FileOffer::default() }
    }

    #[test]
    fn a_trial_says_nothing_of_what_suits_the_source_and_a_choice_does() {
        let host = Arc::new(Host::default());
        let mut watch = watch(&host);
        let order = |is_choice| Order { candidates: vec![&engines::io_uring::INFO], is_choice };
        watch.ordered(&order(false));
        assert_eq!(watch.suits.name, "sendfile");
        watch.ordered(&order(true));
        assert_eq!(watch.suits.name, "io-uring");
    }

    fn chosen(engine: &'static EngineInfo) -> Choice {
        Choice { candidates: vec![engine], because: String::new(), passed_over: Vec::new() }
    }

    #[test]
    fn many_files_are_chosen_for_once_however_small_the_first_is() {
        const MIB: u64 = 1 << 20;
        let orders = Orders::default();
        let mut seen = 0;
        let mut all = Engines::new(Side::Target);
        assert_eq!(all.offered(&file(0)), None);
        assert_eq!(all.offered(&file(3)), Some(3));
        all.choose(chosen(&engines::read_write::INFO), false, true, &orders);
        assert!(orders.newer_than(&mut seen).is_none(), "no stream runs before the first choice");
        // Packs bypass the engines.
        assert!((0..1000).all(|_| all.offered(&file(SMALL_FILE_BYTES_MAX)).is_none()));
        assert!((0..31).all(|_| all.offered(&file(2 * MIB)).is_none()));
        assert_eq!(all.offered(&file(2 * MIB)), Some(64 * MIB));
        all.choose(chosen(&engines::io_uring::INFO), false, true, &orders);
        let order = orders.newer_than(&mut seen).unwrap();
        assert!(order.is_choice && order.candidates[0].name == "io-uring", "{order:?}");
        assert_eq!(all.offered(&file(1 << 40)), None, "once");

        let mut all = Engines::new(Side::Target);
        assert_eq!(all.offered(&file(MIB)), Some(MIB));
        all.choose(chosen(&engines::read_write::INFO), true, true, &orders);
        assert_eq!(all.offered(&file(1 << 40)), None, "what was asked for stays");

        // What was offered before is no other file, and a directory is none.
        let mut all = Engines::new(Side::Target);
        let directory = FileOffer { kind: FileKind::Directory, ..file(1 << 40) };
        assert_eq!(all.offered(&directory), None);
        let round = FileOffer { growth: Growth::Growing, ..file(MIB) };
        assert_eq!(all.offered(&round), Some(MIB));
        all.choose(chosen(&engines::read_write::INFO), false, true, &orders);
        let compared = FileOffer { compared: Compared::OtherContent, ..file(MIB) };
        assert!((0..100).all(|_| [&round, &compared].iter().all(|o| all.offered(o).is_none())));
        assert_eq!(all.bulk_bytes(), MIB);
    }

    /// Case of short cold files: each is too short to be worth another engine, together they are
    /// not.
    #[test]
    fn many_short_cold_files_change_engines_once() {
        const MIB: u64 = 1 << 20;
        let directory = tempfile::tempdir_in(".").unwrap();
        let host = Arc::new(Host { kernel: (6, 18), ..Host::default() });
        let mut watch = watch(&host);
        let mut changes = Vec::new();
        for number in 1..=40 {
            let path = directory.path().join(number.to_string());
            std::fs::write(&path, vec![7; MIB as usize]).unwrap();
            let kind = FileSystem::of(std::fs::File::open(&path).unwrap()).unwrap().kind;
            // Some stay warm.
            let forgotten = (number % 5 > 0).then(|| page_cache::forget(&path, 0..MIB));
            if forgotten.is_some_and(|done| done.is_err()) || choose_cold(kind) != "io-uring" {
                return skip("a disk below this directory", kind.to_string());
            }
            let file = Arc::new(SpanFile::new(std::fs::File::open(&path).unwrap()));
            let span = FileSpan { id: SpanId(number), file, offset_bytes: 0, len_bytes: MIB };
            let choice = watch.look(&span, 64 * MIB);
            changes.extend(choice.map(|choice| (number, choice.because)));
        }
        let because = "19 % of the next 16 MiB is in the page cache".to_owned();
        assert_eq!(changes, [(16, because)]);
    }

    fn choose_cold(kind: haul_host::FsKind) -> &'static str {
        let host = Host { kernel: (6, 18), ..Host::default() };
        let facts = choose::SendFacts {
            host: &host,
            wire: WireKind::Tcp,
            source: choose::Source::File(kind),
            size_bytes: choose::WINDOW_BYTES,
            resident_share: 0.0,
            digest: true,
            forced: None,
        };
        choose::send_engine(&facts).unwrap().candidates[0].name
    }

    static LOOK_NS: AtomicU64 = AtomicU64::new(0);

    fn waited_ns(_: &StreamFigures) -> u64 {
        LOOK_NS.load(Ordering::Relaxed)
    }

    /// Streams of a session, each of which only waits.
    fn waiting(count: u32) -> Arc<Streams> {
        let streams = Streams::new(crate::transport::waker::Waker::new().unwrap());
        for number in 0..count {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let far = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (near, _) = listener.accept().unwrap();
            let of_thread = streams.clone();
            streams.spawn(
                StreamId(number),
                move || Ok(near),
                move |_, _| {
                    let _far = far;
                    while !of_thread.stopping() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    Ok(())
                },
            );
        }
        while streams.open_count() < count {
            std::thread::yield_now();
        }
        streams
    }

    /// The first change of engines for a disk that becomes ten times slower after eight seconds,
    /// while each stream waits for it for so long in a second.
    fn change_by(engines: &mut Engines, streams: &Streams, each_ns: u64) -> Option<Change> {
        let (begun, orders) = (Instant::now(), Orders::default());
        LOOK_NS.store(0, Ordering::Relaxed);
        let mut bytes = 0;
        (1..30).find_map(|second| {
            LOOK_NS.fetch_add(each_ns, Ordering::Relaxed);
            bytes += if second < 8 { 1_000_000_000 } else { 100_000_000 };
            let now = begun + Duration::from_secs(second);
            let change = engines.watch_disk(now, (streams, &orders), |_| bytes, waited_ns);
            let order = orders.newer_than(&mut 0);
            assert_eq!(order.is_some(), change.is_some());
            if let Some(order) = order {
                assert!(!order.is_choice && order.candidates[0].name == "direct", "{order:?}");
            }
            change
        })
    }

    const THREE: [&EngineInfo; 3] =
        [&engines::io_uring::INFO, &engines::direct::INFO, &engines::read_write::INFO];

    fn watched(forced: bool, watches_disk: bool) -> Engines {
        let choice = Choice { candidates: THREE.to_vec(), ..chosen(THREE[0]) };
        let mut all = Engines::new(Side::Target);
        all.choose(choice, forced, watches_disk, &Orders::default());
        all
    }

    #[test]
    fn other_engines_are_tried_where_a_disk_slows_down_that_streams_wait_for() {
        for count in [1, 2] {
            let streams = waiting(count);
            let change = change_by(&mut watched(false, true), &streams, 450_000_000);
            let Some((notice, Event::Fallback { from_to, .. })) = change else {
                panic!("{change:?}")
            };
            assert_eq!((&*notice.what, &*from_to), ("-> direct", "-> direct"));
            let none = change_by(&mut watched(false, true), &streams, 350_000_000);
            assert!(none.is_none(), "{none:?}: it waits for something else");
            for mut engines in [watched(true, true), watched(false, false)] {
                let none = change_by(&mut engines, &streams, 450_000_000);
                assert!(none.is_none(), "{none:?}");
            }
            streams.stop();
        }
    }

    #[test]
    fn the_disk_is_looked_at_once_a_second_and_not_where_nothing_is_to_be_tried() {
        let streams = waiting(0);
        let choose = |forced| Chosen {
            candidates: THREE.to_vec(),
            over_tcp: Vec::new(),
            because: String::new(),
            forced,
        };
        let begun = Instant::now();
        for (forced, looks) in [(false, &[1000, 2000, 3500][..]), (true, &[])] {
            let mut watch = DiskWatch::new(&choose(forced), begun);
            let mut asked = Vec::new();
            for ms in [0, 500, 999, 1000, 1500, 1999, 2000, 2999, 3500, 4400] {
                let now = begun + Duration::from_millis(ms);
                let bytes = |_: &[StreamFigures]| {
                    asked.push(ms);
                    0
                };
                assert!(watch.look(now, &streams, bytes, waited_ns).is_none());
            }
            assert_eq!(asked, looks);
        }
    }

    #[test]
    fn a_source_is_told_by_its_file_system_where_it_can_be_opened() {
        let file = tempfile::tempfile().unwrap();
        let kind = FileSystem::of(&file).unwrap().kind;
        assert_eq!(source_of(Some(&file)), choose::Source::File(kind));
        assert_eq!(source_of(None), choose::Source::Unknown);
    }

    #[test]
    fn a_choice_is_explained_once_and_has_its_reason() {
        let mut all = Engines::new(Side::Source);
        assert!(all.because().is_empty() && all.take_explained().is_none());
        let choice = Choice { because: "it suits".into(), ..chosen(&engines::sendfile::INFO) };
        let host = Host::default();
        all.explain(Explained::engines(Side::Source, vec!["a fact".into()], &host, &choice));
        assert!(matches!(all.take_explained(), Some(Message::Explained(_))));
        assert!(all.take_explained().is_none());
        all.choose(choice, false, false, &Orders::default());
        assert_eq!(all.because(), "it suits");
        let (stream, from_to) = (StreamId(3), || "one -> other".to_owned());
        let change = all.change(Some(Side::Path), stream, from_to(), "it cannot".into());
        let Some((notice, Event::Fallback { side, .. })) = change else { panic!("{change:?}") };
        assert_eq!((notice.stream, &*notice.what, side), (stream, "one -> other", Side::Path));
        assert!(all.change(None, stream, from_to(), "again".into()).is_none());
    }

    #[test]
    fn what_is_asked_for_is_not_watched_and_what_repeats_is_not_looked_at() {
        let host = Arc::new(Host::default());
        let candidates = vec![&engines::sendfile::INFO];
        let asked =
            Chosen { candidates, over_tcp: Vec::new(), because: String::new(), forced: true };
        assert!(SourceWatch::new(&host, WireKind::Tcp, true, &asked).is_none());
        let free = Chosen { forced: false, ..asked };
        for (wire, has_choice) in [
            (WireKind::Tcp, true),
            (WireKind::KernelTls, true),
            (WireKind::Tls, true),
            (WireKind::Fabric, false),
        ] {
            assert_eq!(
                SourceWatch::new(&host, wire, true, &free).is_some(),
                has_choice,
                "{wire:?}"
            );
        }
        let mut watch = watch(&host);
        let file = Arc::new(SpanFile::zeros().unwrap());
        let span = FileSpan { id: SpanId(1), file, offset_bytes: 0, len_bytes: 1 << 20 };
        assert!(watch.look(&span, 1 << 30).is_none() && watch.looked_at.is_none());
    }

    #[test]
    fn windows_of_a_source_are_looked_at_once_from_where_the_stream_is() {
        const MIB: u64 = 1 << 20;
        let host = Arc::new(Host::default());
        let mut watch = watch(&host);
        let file = tempfile::tempfile().unwrap();
        // A hole, which takes no room, and is not in the page cache.
        file.set_len(2 * choose::WINDOW_BYTES + 5 * MIB).unwrap();
        let file = Arc::new(SpanFile::new(file));
        let window = |watch: &SourceWatch| watch.looked_at.as_ref().map(|(_, it)| it.clone());
        let look = |watch: &mut SourceWatch, file: &Arc<SpanFile>, offset_bytes| {
            let (id, file) = (SpanId(offset_bytes), file.clone());
            watch.look(&FileSpan { id, file, offset_bytes, len_bytes: MIB }, u64::MAX);
        };
        look(&mut watch, &file, 3 * MIB);
        let first = 3 * MIB..choose::WINDOW_BYTES + 3 * MIB;
        assert_eq!(window(&watch), Some(first.clone()));
        look(&mut watch, &file, first.end - 1);
        assert_eq!(window(&watch), Some(first.clone()), "it was looked at");
        look(&mut watch, &file, first.end);
        assert_eq!(window(&watch), Some(first.end..2 * choose::WINDOW_BYTES + 3 * MIB));
        let last = 2 * choose::WINDOW_BYTES + 3 * MIB;
        look(&mut watch, &file, last);
        assert_eq!(window(&watch), Some(last..last + 2 * MIB), "to its end");
        // Another file has its own.
        let other = tempfile::tempfile().unwrap();
        other.set_len(last + MIB).unwrap();
        let other = Arc::new(SpanFile::new(other));
        look(&mut watch, &other, last);
        assert_eq!(window(&watch), Some(last..last + MIB));
    }
}
