//! Data streams of a session that sends: opened, watched, replaced, given up.

use super::{context::Context, loss::LossWatch};
use crate::{
    locks::lock,
    session::{
        engine_orders::{Chosen, Engines},
        headway::{Carried, Cut},
        listening::SILENT_AFTER_PING,
        sending::send_spans,
        streams::{self, StreamError, StreamEvent},
        supply::{Connect, Supply},
    },
};
use haul_protocol::{StreamId, message::StreamProgress};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

/// Longest wait for the streams to say their orderly end.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// The data streams of a role that sends, and the engines they send with.
pub(super) struct DataStreams {
    pub supply: Supply,
    /// The engines, chosen at the first regular file for all streams.
    pub engines: Engines,
    pub forced_engine: Option<String>,
    pub loss: LossWatch,
    pub watch: Watch,
}

/// Times at which each stream last got something through.
pub(super) struct Watch {
    pub stall_after: Duration,
    /// Time when the receiver last said anything.
    pub heard_at: Instant,
    pub receiver: BTreeMap<StreamId, StreamProgress>,
    seen: BTreeMap<StreamId, (u64, Instant)>,
    /// Streams that were given up and have not ended yet.
    stalled: BTreeSet<StreamId>,
}

impl Watch {
    pub fn new(stall_after: Duration, now: Instant) -> Self {
        Self {
            stall_after,
            heard_at: now,
            receiver: BTreeMap::new(),
            seen: BTreeMap::new(),
            stalled: BTreeSet::new(),
        }
    }

    /// Looks at a stream, which `waits` for acknowledgements or has nothing under way. Gives its
    /// stall where it got nothing through for longer than `stall_after`.
    fn look(
        &mut self,
        (stream, acked_bytes, waits): (StreamId, u64, bool),
        stall_after: Duration,
        now: Instant,
    ) -> Option<Stalled> {
        let received = self.receiver.get(&stream);
        let moved = acked_bytes.saturating_add(received.map_or(0, |r| r.received_bytes));
        let seen = self.seen.entry(stream).or_insert((moved, now));
        if seen.0 != moved || !waits {
            *seen = (moved, now);
        }
        let still = now.saturating_duration_since(seen.1);
        if still <= stall_after {
            return None;
        }
        seen.1 = now;
        // What a receiver said before it fell silent says nothing of now.
        let is_heard = now.saturating_duration_since(self.heard_at) < SILENT_AFTER_PING;
        let on_storage = is_heard && received.is_some_and(|r| r.on_storage);
        Some(Stalled { stream, still, on_storage })
    }
}

/// A stream that has something under way and got nothing through for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stalled {
    stream: StreamId,
    still: Duration,
    /// The receiver waits for its disk.
    on_storage: bool,
}

impl DataStreams {
    /// Opens the streams that are due, and handles the events of all.
    pub fn tick(&mut self, context: &mut Context<'_>) {
        self.open(context);
        self.handle_events(context);
    }

    /// Looks at the streams, the disk and the path.
    pub fn watch(&mut self, now: Instant, context: &mut Context<'_>) {
        self.watch_stalls(now, context);
        self.watch_disk(now, context);
        self.watch_loss(now, context);
    }

    fn open(&mut self, context: &Context<'_>) {
        // As soon as there is something to send, if it is wanted: by then the streams are there.
        let wanted = self.engines.chosen.is_some();
        for (stream, connect) in self.supply.next(wanted) {
            self.spawn(stream, connect, context);
        }
    }

    fn spawn(&self, stream: StreamId, connect: Connect, context: &Context<'_>) {
        let shared = context.shared.clone();
        let chosen = self.engines.chosen.clone().unwrap_or_else(|| Arc::new(Chosen::last_resort()));
        let mut set_up = context.shared.setup.clone();
        if let Some(control) = &self.loss.control {
            set_up.congestion.control = Some(control.clone());
        }
        context.shared.streams.spawn(
            stream,
            move || {
                let socket = connect()?;
                streams::set_up_sender(&socket, &set_up);
                Ok(socket)
            },
            move |socket, figures| {
                lock(&shared.machine).stream_opened(stream)?;
                send_spans::run(&shared, stream, socket, &chosen, figures)
            },
        );
    }

    fn handle_events(&mut self, context: &mut Context<'_>) {
        for event in context.shared.streams.take_events() {
            match event {
                StreamEvent::Fallback { from_to, why, stream } => {
                    let change = self.engines.change(None, stream, from_to, why);
                    context.tell_change(change);
                }
                // A sender reads nothing of its streams.
                StreamEvent::Violated { .. } => {}
                StreamEvent::Ended { stream, why: Some(StreamError::Renewal), .. } => {
                    self.watch.seen.remove(&stream);
                    self.renew(context);
                }
                StreamEvent::Ended { stream, why, carried, .. } => {
                    self.watch.seen.remove(&stream);
                    if context.finishing || context.shared.streams.stopping() {
                        continue;
                    }
                    let why = why.map_or_else(|| "it was closed".into(), |why| why.to_string());
                    let at_work = self.watch.stalled.remove(&stream)
                        || lock(&context.shared.machine).awaits_acknowledgement(stream);
                    lock(&context.shared.machine).drop_stream(stream, &why);
                    self.replace(&why, (carried, at_work), context);
                }
            }
        }
    }

    /// Opens another stream, with another key, in place of one that ended for its key's sake.
    fn renew(&self, context: &Context<'_>) {
        if context.finishing || context.shared.streams.stopping() {
            return;
        }
        if let Some((stream, connect)) = self.supply.renew() {
            self.spawn(stream, connect, context);
        }
    }

    fn replace(
        &mut self,
        why: &str,
        (carried, at_work): (Carried, bool),
        context: &mut Context<'_>,
    ) {
        self.watch_headway(context);
        let others = context.shared.streams.open();
        let machine = lock(&context.shared.machine);
        let others = others.iter().filter(|(stream, _)| machine.awaits_acknowledgement(*stream));
        let oldest_at_work = others.filter_map(|(_, figures)| figures.opened_at).min();
        drop(machine);
        match self.supply.replace(why, &Cut { carried, at_work, oldest_at_work }) {
            Ok(Some((stream, connect))) => self.spawn(stream, connect, context),
            Ok(None) => {}
            Err(end) => context.ended = Some(end),
        }
    }

    /// Stops the streams and waits for their orderly end.
    pub fn end(&self, context: &Context<'_>) {
        context.shared.streams.request_stop();
        // With the lock held in between, no stream misses the notice.
        drop(lock(&context.shared.machine));
        context.shared.spans.notify_all();
        context.shared.streams.join_within(END_PATIENCE);
    }

    /// Tells the supply of progress: a span verified, as bytes that move only show that a stream
    /// lives.
    fn watch_headway(&mut self, context: &mut Context<'_>) {
        let machine = lock(&context.shared.machine);
        context.tally.verified_bytes = machine.verified_bytes();
        let has_files = machine.has_files();
        drop(machine);
        self.supply.watch_headway(context.tally.headway(), has_files);
    }

    /// Gives up streams that have something under way and get nothing through.
    fn watch_stalls(&mut self, now: Instant, context: &mut Context<'_>) {
        if context.finishing {
            return;
        }
        self.watch_headway(context);
        let stall_after = self.supply.stall_after(now, self.watch.stall_after);
        let mut stalled = Vec::new();
        for (stream, figures) in context.shared.streams.open() {
            if figures.hung_up {
                lock(&context.shared.machine).drop_stream(stream, "reset");
                context.shared.streams.shut(stream);
                context.shared.spans.notify_all();
                continue;
            }
            if let Some(event) = self.supply.narrowed(&figures.tcp) {
                context.tell(event);
            }
            if self.supply.swallows_sent(&figures.tcp) {
                lock(&context.shared.machine).drop_stream(stream, "its first segments vanish");
                context.shared.streams.shut(stream);
                continue;
            }
            let waits = lock(&context.shared.machine).awaits_acknowledgement(stream);
            let seen = (stream, figures.tcp.bytes_acked, waits);
            stalled.extend(self.watch.look(seen, stall_after, now));
        }
        stalled.into_iter().for_each(|stalled| self.bear_stall(stalled, context));
    }

    /// Tells of a stall, and gives the stream up if another may do better.
    fn bear_stall(&mut self, stalled: Stalled, context: &mut Context<'_>) {
        let Stalled { stream, still, on_storage } = stalled;
        let told = if on_storage {
            ("target_disk", "the receiver waits for its disk; waiting on")
        } else {
            ("network", "nothing arrives on a stream; opening another")
        };
        let told = self.supply.stall(told, still, context.tally.headway());
        told.into_iter().for_each(|event| context.tell(event));
        if !on_storage {
            // Its spans go to others at once, and it ends later: it was at work all the same.
            self.watch.stalled.insert(stream);
            lock(&context.shared.machine).drop_stream(stream, "stalled");
            context.shared.streams.shut(stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        events::Event,
        file_options::FileOptions,
        session::{
            headway::Headway,
            role::SessionEnd,
            sending::{start::Begun, without_peer},
            streams::StreamSetup,
        },
    };
    use haul_protocol::{
        FileId, Message, SpanIndex, SpanRange,
        message::{Need, SpansVerified},
    };
    use std::{io::Read, net::TcpStream};
    use without_peer::SPAN_BYTES;

    const STALL: Duration = Duration::from_secs(20);
    const MOMENT: Duration = Duration::from_nanos(1);
    const STREAM: StreamId = StreamId(0);

    #[test]
    fn a_stream_stalls_when_neither_side_sees_it_move_and_it_has_something_under_way() {
        let begun = Instant::now();
        let mut watch = Watch::new(STALL, begun);
        let mut stalls = |acked_bytes, waits, after: Duration| {
            watch.look((STREAM, acked_bytes, waits), STALL, begun + after).map(|it| it.still)
        };
        assert_eq!(stalls(0, true, Duration::ZERO), None);
        assert_eq!(stalls(0, true, STALL), None, "it has the whole of its time");
        assert_eq!(stalls(0, true, STALL + MOMENT), Some(STALL + MOMENT));
        assert_eq!(stalls(0, true, STALL * 2 + MOMENT), None, "it has as long again");
        assert_eq!(stalls(1, true, STALL * 3), None, "a byte is through");
        assert_eq!(stalls(1, true, STALL * 4), None);
        assert_eq!(stalls(1, false, STALL * 5), None, "nothing is under way");
        assert_eq!(stalls(1, true, STALL * 6), None);
        assert_eq!(stalls(1, true, STALL * 6 + MOMENT), Some(STALL + MOMENT));
    }

    #[test]
    fn a_stall_is_the_disk_s_while_the_receiver_says_so_and_bytes_that_it_took_are_none() {
        let begun = Instant::now();
        let says = |received_bytes, on_storage| StreamProgress {
            stream: STREAM,
            received_bytes,
            on_storage,
        };
        for (heard_before, on_storage, expected) in [
            (Duration::ZERO, true, true),
            (SILENT_AFTER_PING - MOMENT, true, true),
            (SILENT_AFTER_PING, true, false),
            (Duration::ZERO, false, false),
        ] {
            let mut watch = Watch::new(STALL, begun);
            watch.receiver.insert(STREAM, says(7, on_storage));
            assert_eq!(watch.look((STREAM, 5, true), STALL, begun), None);
            watch.heard_at = begun + STALL * 2 - heard_before;
            let stalled = watch.look((STREAM, 5, true), STALL, begun + STALL * 2).unwrap();
            let expected = Stalled { stream: STREAM, still: STALL * 2, on_storage: expected };
            assert_eq!(stalled, expected, "{heard_before:?}");
            watch.receiver.insert(STREAM, says(8, on_storage));
            assert_eq!(watch.look((STREAM, 5, true), STALL, begun + STALL * 4), None);
        }
    }

    /// A session that sends a file of two spans, the first of which is under way on stream 0.
    struct Session<'a> {
        context: Context<'a>,
        streams: DataStreams,
        file: FileId,
        far: TcpStream,
    }

    impl<'a> Session<'a> {
        fn begin(hear: &'a mut dyn FnMut(Event)) -> Self {
            let directory = tempfile::tempdir().unwrap();
            std::fs::write(directory.path().join("file"), [7; 2 * SPAN_BYTES as usize]).unwrap();
            let file = without_peer::files(directory.path()).remove(0);
            let Begun { context, streams, .. } = without_peer::begin(FileOptions::default(), hear);
            let need = Need { span_bytes: SPAN_BYTES, ..Need::default() };
            let file = without_peer::needed(&context, file, need);
            let (_, far) = without_peer::open_stream(&context, STREAM);
            lock(&context.shared.machine).next_span(STREAM).unwrap();
            without_peer::said(&context);
            Self { context, streams, file, far }
        }

        /// Has the receiver verify the span that is under way.
        fn verify_first(&self) {
            let spans = vec![SpanRange { first: SpanIndex(0), count: 1 }];
            let verified = SpansVerified { file: self.file, spans };
            without_peer::hear(&self.context, Message::SpansVerified(verified));
        }

        /// Watches until the stream has stalled.
        fn stall(&mut self) {
            let now = Instant::now();
            let stall_after = self.streams.watch.stall_after;
            self.streams.watch(now, &mut self.context);
            self.streams.watch.heard_at = now + stall_after;
            self.streams.watch(now + stall_after + MOMENT, &mut self.context);
        }

        /// Reasons for which streams were dropped since the last call.
        fn dropped(&self) -> Vec<String> {
            let why = |message| match message {
                Message::StreamDrop(drop) => Some(drop.why),
                _ => None,
            };
            without_peer::said(&self.context).into_iter().filter_map(why).collect()
        }

        /// Lets a client open another stream in place of each, for this long.
        fn reopens(&mut self, retry_for: Duration) -> Arc<Headway> {
            let (source, headway) = without_peer::client(retry_for);
            let streams = self.context.shared.streams.clone();
            self.streams.supply = Supply::new(source, streams, StreamSetup::of_nobody());
            headway
        }

        fn end_of(&mut self, stream: StreamId) {
            let (why, carried, in_span) = (None, Carried::default(), false);
            let ended = StreamEvent::Ended { stream, why, carried, in_span };
            self.context.shared.streams.tell(ended);
            self.streams.handle_events(&mut self.context);
        }

        fn stop(self) {
            self.context.shared.streams.stop();
        }
    }

    fn stages(told: &[Event]) -> Vec<&str> {
        let stages = told.iter().map(|event| match event {
            Event::Stall { stage, .. } => stage.as_str(),
            other => panic!("{other:?}"),
        });
        stages.collect()
    }

    #[test]
    fn a_stream_that_gets_nothing_through_is_given_up_and_its_socket_shut() {
        let mut told = Vec::new();
        let mut hear = |event| told.push(event);
        let mut session = Session::begin(&mut hear);
        session.stall();
        assert_eq!(session.dropped(), ["stalled"]);
        assert!(session.streams.watch.stalled.contains(&STREAM));
        assert_eq!(session.far.read(&mut [0]).unwrap(), 0);
        session.stop();
        assert_eq!(stages(&told), ["network"]);
    }

    #[test]
    fn a_stream_whose_receiver_waits_for_its_disk_is_waited_for() {
        let mut told = Vec::new();
        let mut hear = |event| told.push(event);
        let mut session = Session::begin(&mut hear);
        let waits = StreamProgress { stream: STREAM, received_bytes: 0, on_storage: true };
        session.streams.watch.receiver.insert(STREAM, waits);
        session.stall();
        assert_eq!(session.dropped(), [""; 0]);
        assert!(session.streams.watch.stalled.is_empty());
        session.stop();
        assert_eq!(stages(&told), ["target_disk"]);
    }

    #[test]
    fn a_stream_that_was_reset_is_given_up_at_once() {
        let mut hear = |_| {};
        let mut session = Session::begin(&mut hear);
        let linger = Some(Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&session.far, linger).unwrap();
        session.far = without_peer::connection().0;
        let streams = session.context.shared.streams.clone();
        without_peer::wait_until("reset", || streams.open()[0].1.hung_up);
        session.streams.watch(Instant::now(), &mut session.context);
        assert_eq!(session.dropped(), ["reset"]);
        session.stop();
    }

    #[test]
    fn spans_that_are_verified_are_the_headway_of_a_session() {
        let mut hear = |_| {};
        let mut session = Session::begin(&mut hear);
        session.verify_first();
        session.streams.watch(Instant::now(), &mut session.context);
        assert_eq!(session.context.tally.verified_bytes, SPAN_BYTES);
        session.stop();
    }

    #[test]
    fn a_stream_that_ends_is_dropped_unless_the_session_is_over() {
        for (finishing, stopping, dropped) in [
            (false, false, &["it was closed"][..]),
            (true, false, &[][..]),
            (false, true, &[][..]),
            (true, true, &[][..]),
        ] {
            let mut hear = |_| {};
            let mut session = Session::begin(&mut hear);
            session.context.finishing = finishing;
            if stopping {
                session.context.shared.streams.request_stop();
            }
            session.streams.watch.seen.insert(STREAM, (0, Instant::now()));
            session.end_of(STREAM);
            assert_eq!(session.dropped(), dropped, "{finishing} {stopping}");
            assert!(session.streams.watch.seen.is_empty());
            session.stop();
        }
    }

    /// A stream without work is no outage where others do the work.
    #[test]
    fn a_stream_was_at_work_if_its_spans_are_under_way_or_went_to_others() {
        for (stalled, has_span, is_outage) in
            [(false, false, false), (true, false, true), (false, true, true), (true, true, true)]
        {
            let mut hear = |_| {};
            let mut session = Session::begin(&mut hear);
            let headway = session.reopens(Duration::from_secs(60));
            let _far = without_peer::open_stream(&session.context, StreamId(1));
            if has_span {
                lock(&session.context.shared.machine).next_span(StreamId(1)).unwrap();
            }
            if stalled {
                session.streams.watch.stalled.insert(StreamId(1));
            }
            session.end_of(StreamId(1));
            let left = headway.left(Instant::now());
            assert_eq!(left.is_some(), is_outage, "{stalled} {has_span}");
            assert!(session.streams.watch.stalled.is_empty() && session.context.ended.is_none());
            session.stop();
        }
    }

    #[test]
    fn a_session_ends_when_there_is_no_reason_to_open_another_stream() {
        let mut hear = |_| {};
        let mut session = Session::begin(&mut hear);
        session.reopens(Duration::ZERO);
        session.verify_first();
        let mut machine = lock(&session.context.shared.machine);
        machine.stream_opened(StreamId(1)).unwrap();
        machine.next_span(StreamId(1)).unwrap();
        drop(machine);
        session.end_of(StreamId(1));
        let ended = session.context.ended.take();
        assert!(matches!(&ended, Some(SessionEnd::Lost(why)) if why.contains("closed")));
        session.stop();
    }

    #[test]
    fn at_the_end_no_stream_goes_on() {
        let mut hear = |_| {};
        let session = Session::begin(&mut hear);
        let streams = session.context.shared.streams.clone();
        session.streams.end(&session.context);
        assert!(streams.stopping() && streams.open_count() == 0);
    }
}
