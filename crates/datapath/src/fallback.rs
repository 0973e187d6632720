//! One wire, and the engines that stand in for each other on it.
//!
//! [`Sender`] and [`Receiver`] run the first engine of a list that can be opened. Where it gives up
//! in the middle of a span, the next one goes on at the very byte; no byte is lost or repeated, and
//! a tap sees each once. Each change is kept as a [`Fallback`] for the user to see.

use std::{collections::VecDeque, io};

use crate::{
    Boundary, Buffers, EngineError, EngineInfo, FileSpan, Host, OpenError, ReceiveEngine, Remedy,
    SendEngine, Setup, SpanDone, SpanId, SpanTap, StageTimes, Verdict, Wait, Wire,
};

/// One engine took over from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    pub from: &'static str,
    pub to: &'static str,
    /// The reason in words: what the first engine could not do.
    pub why: String,
}

/// What [`Sender`] and [`Receiver`] have in common: the candidates and what became of them.
struct Bench {
    host: Host,
    buffers: Buffers,
    waiting: VecDeque<&'static EngineInfo>,
    /// The engine at work, or the last that was.
    info: &'static EngineInfo,
    /// Of engines that are gone.
    earlier_times: StageTimes,
    fallbacks: Vec<Fallback>,
    /// What earlier engines moved of spans that a later one finishes.
    carried: Vec<SpanDone>,
}

/// The engine at work, or the wire alone after the last candidate failed.
enum Seat<E: ?Sized> {
    Engine(Box<E>),
    Bare(Wire),
    /// Only while one engine makes room for another.
    Empty,
}

/// How an engine of one direction is opened.
type Open<E> = fn(&EngineInfo, Setup<'_>) -> Option<Result<Box<E>, OpenError>>;

impl Bench {
    fn new(candidates: Vec<&'static EngineInfo>, host: &Host, buffers: Buffers) -> Self {
        let info = candidates.first().copied().expect("the caller offers one engine at least");
        Self {
            host: host.clone(),
            buffers,
            waiting: candidates.into(),
            info,
            earlier_times: StageTimes::default(),
            fallbacks: Vec::new(),
            carried: Vec::new(),
        }
    }

    /// Opens the first waiting engine that can be opened on `wire`.
    ///
    /// `from` is the one that gave up, and why.
    fn open_next<E: ?Sized>(
        &mut self,
        open: Open<E>,
        mut wire: Wire,
        mut from: Option<(&'static str, EngineError)>,
    ) -> Result<Box<E>, OpenError> {
        while let Some(info) = self.waiting.pop_front() {
            let opened = match self.refusal(info, &wire) {
                Some(error) => Err(OpenError { wire, cause: error }),
                None => {
                    let host = &self.host;
                    let Buffers { bytes_max: buffer_bytes_max, block_bytes, in_vain } =
                        self.buffers;
                    // `refusal` looks at the wire and the host; only the direction is left.
                    let setup = Setup { wire, host, buffer_bytes_max, block_bytes, in_vain };
                    match open(info, setup) {
                        Some(opened) => opened,
                        None => unreachable!("candidates of the other direction were left out"),
                    }
                }
            };
            if let Some((gave_up, error)) = from.take() {
                let why = why(&error);
                self.fallbacks.push(Fallback { from: gave_up, to: info.name, why });
            }
            match opened {
                Ok(engine) => {
                    self.info = info;
                    return Ok(engine);
                }
                Err(OpenError { wire: back, cause }) => {
                    wire = back;
                    from = Some((info.name, cause));
                }
            }
        }
        let cause = match from {
            Some((_, cause)) => cause,
            None => refused(self.info.name, "no engine of the list works in this direction".into()),
        };
        Err(OpenError { wire, cause })
    }

    /// Puts the first waiting engine that can be opened on `wire` into the empty seat, or else the
    /// bare wire.
    fn fill<E: ?Sized>(
        &mut self,
        seat: &mut Seat<E>,
        open: Open<E>,
        wire: Wire,
        from: Option<(&'static str, EngineError)>,
    ) -> Result<(), EngineError> {
        let (filled, outcome) = match self.open_next(open, wire, from) {
            Ok(engine) => (Seat::Engine(engine), Ok(())),
            Err(OpenError { wire, cause }) => (Seat::Bare(wire), Err(cause)),
        };
        *seat = filled;
        outcome
    }

    /// Why the engine cannot even be opened here.
    fn refusal(&self, info: &EngineInfo, wire: &Wire) -> Option<EngineError> {
        if !info.wires.contains(&wire.kind()) {
            let found = format!("it cannot use a wire of kind {:?}", wire.kind());
            return Some(refused(info.name, found));
        }
        match (info.probe)(&self.host) {
            Verdict::Usable => None,
            Verdict::Refused { needs, found } => {
                Some(refused(info.name, format!("needs {needs}, found {found}")))
            }
        }
    }

    /// Remembers what a span's earlier engine has moved.
    fn carry(&mut self, id: SpanId, error: &EngineError) {
        let moved_bytes = error.moved_bytes;
        let copied_bytes = if self.info.sees_bytes { moved_bytes } else { 0 };
        match self.carried.iter_mut().find(|carried| carried.id == id) {
            Some(carried) => {
                carried.moved_bytes += moved_bytes;
                carried.copied_bytes += copied_bytes;
            }
            None => self.carried.push(SpanDone { id, moved_bytes, copied_bytes }),
        }
    }

    /// Makes the completions from `first` on speak of whole spans.
    fn complete(&mut self, done: &mut [SpanDone]) {
        if self.carried.is_empty() {
            return;
        }
        for done in done {
            if let Some(at) = self.carried.iter().position(|carried| carried.id == done.id) {
                let carried = self.carried.swap_remove(at);
                done.moved_bytes += carried.moved_bytes;
                done.copied_bytes += carried.copied_bytes;
            }
        }
    }

    /// Makes an error of the present engine speak of the whole span.
    fn whole(&mut self, mut error: EngineError) -> EngineError {
        let carried = self.carried.iter().position(|carried| Some(carried.id) == error.span);
        if let Some(at) = carried {
            error.moved_bytes += self.carried.swap_remove(at).moved_bytes;
        }
        error
    }
}

/// The error's own words, without what the user knows already.
fn why(error: &EngineError) -> String {
    if error.call == "open" { error.source.to_string() } else { error.to_string() }
}

fn refused(engine: &'static str, why: String) -> EngineError {
    EngineError {
        engine,
        call: "open",
        span: None,
        offset_bytes: 0,
        moved_bytes: 0,
        remedy: Remedy::UseAnotherEngine,
        source: io::Error::new(io::ErrorKind::Unsupported, why),
    }
}

/// No engine is left on this wire: another connection begins with the first of the list again.
fn no_engine(engine: &'static str) -> EngineError {
    EngineError { remedy: Remedy::Stop, ..refused(engine, "no engine is left to go on".into()) }
}

/// A tap for one more call, while the caller keeps it.
fn again<'tap>(tap: &'tap mut Option<&mut dyn SpanTap>) -> Option<&'tap mut dyn SpanTap> {
    match tap {
        Some(tap) => Some(&mut **tap),
        None => None,
    }
}

/// Sends on one wire with the best engine that works there.
pub struct Sender {
    bench: Bench,
    seat: Seat<dyn SendEngine>,
}

impl Sender {
    /// Opens the first of `candidates` that can be opened; those that only receive are left out.
    ///
    /// # Errors
    /// That of the last candidate, with the wire unharmed.
    ///
    /// # Panics
    /// If there are no candidates.
    pub fn open(
        mut candidates: Vec<&'static EngineInfo>,
        wire: Wire,
        host: &Host,
        buffers: impl Into<Buffers>,
    ) -> Result<Self, OpenError> {
        assert!(!candidates.is_empty(), "the chooser offers one engine at least");
        let first = candidates[0];
        candidates.retain(|info| info.open_send.is_some());
        if candidates.is_empty() {
            return Err(OpenError { wire, cause: refused(first.name, "it cannot send".into()) });
        }
        let mut bench = Bench::new(candidates, host, buffers.into());
        let engine = bench.open_next(open_send, wire, None)?;
        Ok(Self { bench, seat: Seat::Engine(engine) })
    }

    /// The engine at work.
    #[must_use]
    pub fn info(&self) -> &'static EngineInfo {
        self.bench.info
    }

    /// The changes since this was last asked.
    pub fn take_fallbacks(&mut self) -> Vec<Fallback> {
        std::mem::take(&mut self.bench.fallbacks)
    }

    fn engine(&mut self) -> Result<&mut dyn SendEngine, EngineError> {
        match &mut self.seat {
            Seat::Engine(engine) => Ok(&mut **engine),
            Seat::Bare(_) | Seat::Empty => Err(no_engine(self.bench.info.name)),
        }
    }

    /// Sends bytes as [`SendEngine::send_bytes`] does.
    ///
    /// # Errors
    /// As there.
    pub fn send_bytes(&mut self, bytes: &[u8], boundary: Boundary) -> Result<(), EngineError> {
        self.engine()?.send_bytes(bytes, boundary)
    }

    /// Prepares a span as [`SendEngine::prepare`] does.
    pub fn prepare(&mut self, next: &FileSpan) {
        if let Ok(engine) = self.engine() {
            engine.prepare(next);
        }
    }

    /// Submits a span as [`SendEngine::submit`] does, by as many engines as it takes.
    ///
    /// # Errors
    /// Those that no other engine helps with; [`Remedy::UseAnotherEngine`] only if none is left.
    /// `moved_bytes` counts from the beginning of `span`, whichever engine moved them.
    pub fn submit(
        &mut self,
        span: &FileSpan,
        mut tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        let first = done.len();
        let mut rest = span.clone();
        loop {
            let outcome = self.engine()?.submit(&rest, again(&mut tap), done);
            let Err(error) = outcome else { break };
            if error.remedy != Remedy::UseAnotherEngine {
                return Err(self.bench.whole(error));
            }
            rest = rest.after(error.moved_bytes);
            self.change(span.id, error, done)?;
        }
        self.bench.complete(&mut done[first..]);
        Ok(())
    }

    fn change(
        &mut self,
        id: SpanId,
        error: EngineError,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        self.bench.carry(id, &error);
        let (gave_up, offset_bytes) = (self.bench.info.name, error.offset_bytes);
        let Seat::Engine(mut engine) = std::mem::replace(&mut self.seat, Seat::Empty) else {
            return Err(error);
        };
        let reaped = engine.reap(Wait::ForAll, done);
        self.bench.earlier_times.add(&engine.stage_times());
        let wire = engine.into_wire();
        if let Err(worse) = reaped {
            self.seat = Seat::Bare(wire);
            return Err(worse);
        }
        let filled = self.bench.fill(&mut self.seat, open_send, wire, Some((gave_up, error)));
        filled.map_err(|cause| {
            let whole = EngineError { span: Some(id), offset_bytes, moved_bytes: 0, ..cause };
            self.bench.whole(whole)
        })
    }

    /// Between two spans: the first of `candidates` that can be opened goes on, because it was
    /// chosen, and the others stand behind it. This is no [`Fallback`].
    ///
    /// # Errors
    /// As of [`Self::reap`], by the engine that leaves; or of the last candidate.
    ///
    /// # Panics
    /// If none of the candidates sends.
    pub fn change_to(
        &mut self,
        mut candidates: Vec<&'static EngineInfo>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        candidates.retain(|info| info.open_send.is_some());
        assert!(!candidates.is_empty(), "the chooser offers one engine at least");
        // What an engine has packed and holds back leaves with it.
        self.send_bytes(&[], Boundary::Flush)?;
        self.reap(Wait::ForAll, done)?;
        let wire = match std::mem::replace(&mut self.seat, Seat::Empty) {
            Seat::Engine(engine) => {
                self.bench.earlier_times.add(&engine.stage_times());
                engine.into_wire()
            }
            Seat::Bare(wire) => wire,
            Seat::Empty => unreachable!("every change of engines leaves one or the bare wire"),
        };
        self.bench.waiting = candidates.into();
        self.bench.fill(&mut self.seat, open_send, wire, None)
    }

    /// Reaps spans as [`SendEngine::reap`] does.
    ///
    /// # Errors
    /// As there.
    pub fn reap(&mut self, wait: Wait, done: &mut Vec<SpanDone>) -> Result<(), EngineError> {
        let first = done.len();
        let outcome = self.engine()?.reap(wait, done);
        self.bench.complete(&mut done[first..]);
        outcome.map_err(|error| self.bench.whole(error))
    }

    #[must_use]
    pub fn spans_in_flight(&self) -> u32 {
        match &self.seat {
            Seat::Engine(engine) => engine.spans_in_flight(),
            Seat::Bare(_) | Seat::Empty => 0,
        }
    }

    /// Stage times of all engines that were at work here.
    #[must_use]
    pub fn stage_times(&self) -> StageTimes {
        let mut times = self.bench.earlier_times;
        if let Seat::Engine(engine) = &self.seat {
            times.add(&engine.stage_times());
        }
        times
    }

    /// Gives the wire back. Spans in flight have been reaped before.
    #[must_use]
    pub fn into_wire(self) -> Wire {
        match self.seat {
            Seat::Engine(engine) => engine.into_wire(),
            Seat::Bare(wire) => wire,
            Seat::Empty => unreachable!("every change of engines leaves one or the bare wire"),
        }
    }
}

fn open_send(
    info: &EngineInfo,
    setup: Setup<'_>,
) -> Option<Result<Box<dyn SendEngine>, OpenError>> {
    Some(info.open_send?(setup))
}

fn open_receive(
    info: &EngineInfo,
    setup: Setup<'_>,
) -> Option<Result<Box<dyn ReceiveEngine>, OpenError>> {
    Some(info.open_receive?(setup))
}

/// Receives on one wire with the best engine that works there.
pub struct Receiver {
    bench: Bench,
    seat: Seat<dyn ReceiveEngine>,
    /// Late errors of engines that are gone; [`Receiver::reap`] returns them.
    late: VecDeque<EngineError>,
}

impl Receiver {
    /// Opens the first of `candidates` that can be opened; those that only send are left out.
    ///
    /// # Errors
    /// That of the last candidate, with the wire unharmed.
    ///
    /// # Panics
    /// If there are no candidates.
    pub fn open(
        mut candidates: Vec<&'static EngineInfo>,
        wire: Wire,
        host: &Host,
        buffers: impl Into<Buffers>,
    ) -> Result<Self, OpenError> {
        assert!(!candidates.is_empty(), "the chooser offers one engine at least");
        let first = candidates[0];
        candidates.retain(|info| info.open_receive.is_some());
        if candidates.is_empty() {
            return Err(OpenError { wire, cause: refused(first.name, "it cannot receive".into()) });
        }
        let mut bench = Bench::new(candidates, host, buffers.into());
        let engine = bench.open_next(open_receive, wire, None)?;
        Ok(Self { bench, seat: Seat::Engine(engine), late: VecDeque::new() })
    }

    /// The engine at work.
    #[must_use]
    pub fn info(&self) -> &'static EngineInfo {
        self.bench.info
    }

    /// The changes since this was last asked.
    pub fn take_fallbacks(&mut self) -> Vec<Fallback> {
        std::mem::take(&mut self.bench.fallbacks)
    }

    fn engine(&mut self) -> Result<&mut dyn ReceiveEngine, EngineError> {
        match &mut self.seat {
            Seat::Engine(engine) => Ok(&mut **engine),
            Seat::Bare(_) | Seat::Empty => Err(no_engine(self.bench.info.name)),
        }
    }

    /// Receives bytes as [`ReceiveEngine::receive_bytes`] does.
    ///
    /// # Errors
    /// As there.
    pub fn receive_bytes(&mut self, buffer: &mut [u8]) -> Result<(), EngineError> {
        self.engine()?.receive_bytes(buffer)
    }

    /// Submits a span as [`ReceiveEngine::submit`] does, by as many engines as it takes.
    ///
    /// # Errors
    /// Those that no other engine helps with; [`Remedy::UseAnotherEngine`] only if none is left.
    /// They always concern `span`; `moved_bytes` counts from its beginning, whichever engine moved
    /// them, and says where the wire stands.
    pub fn submit(
        &mut self,
        span: &FileSpan,
        mut tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        let first = done.len();
        let mut rest = span.clone();
        loop {
            let outcome = self.engine()?.submit(&rest, again(&mut tap), done);
            let Err(error) = outcome else { break };
            if error.remedy != Remedy::UseAnotherEngine {
                self.bench.complete(&mut done[first..]);
                return Err(self.bench.whole(error));
            }
            rest = rest.after(error.moved_bytes);
            self.change(span.id, error, done)?;
        }
        self.bench.complete(&mut done[first..]);
        Ok(())
    }

    fn change(
        &mut self,
        id: SpanId,
        error: EngineError,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        let (gave_up, offset_bytes) = (self.bench.info.name, error.offset_bytes);
        let Seat::Engine(mut engine) = std::mem::replace(&mut self.seat, Seat::Empty) else {
            return Err(error);
        };
        let first = done.len();
        // One error for each span that failed, so this ends.
        while engine.spans_in_flight() > 0 {
            if let Err(late) = engine.reap(Wait::ForAll, done) {
                self.late.push_back(self.bench.whole(late));
            }
        }
        self.bench.complete(&mut done[first..]);
        self.bench.carry(id, &error);
        self.bench.earlier_times.add(&engine.stage_times());
        let wire = engine.into_wire();
        let filled = self.bench.fill(&mut self.seat, open_receive, wire, Some((gave_up, error)));
        filled.map_err(|cause| {
            let whole = EngineError { span: Some(id), offset_bytes, moved_bytes: 0, ..cause };
            self.bench.whole(whole)
        })
    }

    /// Reaps spans as [`ReceiveEngine::reap`] does.
    ///
    /// # Errors
    /// Of one late write, with the id of its span; the stream and the other spans are unharmed by
    /// it. `moved_bytes` is then the whole span: nothing is left to drain. To get all of them, call
    /// again until nothing is in flight.
    pub fn reap(&mut self, wait: Wait, done: &mut Vec<SpanDone>) -> Result<(), EngineError> {
        if let Some(late) = self.late.pop_front() {
            return Err(late);
        }
        let first = done.len();
        let outcome = self.engine()?.reap(wait, done);
        self.bench.complete(&mut done[first..]);
        outcome.map_err(|error| self.bench.whole(error))
    }

    /// Between two spans: the first of `candidates` that can be opened goes on, because it was
    /// chosen, and the others stand behind it. This is no [`Fallback`]. Waits for all writes in
    /// flight; their errors come from [`Self::reap`].
    ///
    /// # Errors
    /// Of the last candidate.
    ///
    /// # Panics
    /// If none of the candidates receives.
    pub fn change_to(
        &mut self,
        mut candidates: Vec<&'static EngineInfo>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        candidates.retain(|info| info.open_receive.is_some());
        assert!(!candidates.is_empty(), "the chooser offers one engine at least");
        let first = done.len();
        let wire = match std::mem::replace(&mut self.seat, Seat::Empty) {
            Seat::Engine(mut engine) => {
                // One error for each span that failed, so this ends.
                while engine.spans_in_flight() > 0 {
                    if let Err(late) = engine.reap(Wait::ForAll, done) {
                        self.late.push_back(self.bench.whole(late));
                    }
                }
                self.bench.complete(&mut done[first..]);
                self.bench.earlier_times.add(&engine.stage_times());
                engine.into_wire()
            }
            Seat::Bare(wire) => wire,
            Seat::Empty => unreachable!("every change of engines leaves one or the bare wire"),
        };
        self.bench.waiting = candidates.into();
        self.bench.fill(&mut self.seat, open_receive, wire, None)
    }

    /// Spans whose completion or error is still to come from [`Receiver::reap`].
    #[must_use]
    pub fn spans_in_flight(&self) -> u32 {
        let late = self.late.len() as u32;
        match &self.seat {
            Seat::Engine(engine) => engine.spans_in_flight() + late,
            Seat::Bare(_) | Seat::Empty => late,
        }
    }

    /// Stage times of all engines that were at work here.
    #[must_use]
    pub fn stage_times(&self) -> StageTimes {
        let mut times = self.bench.earlier_times;
        if let Seat::Engine(engine) = &self.seat {
            times.add(&engine.stage_times());
        }
        times
    }

    /// Gives the wire back. Spans in flight have been reaped before.
    #[must_use]
    pub fn into_wire(self) -> Wire {
        match self.seat {
            Seat::Engine(engine) => engine.into_wire(),
            Seat::Bare(wire) => wire,
            Seat::Empty => unreachable!("every change of engines leaves one or the bare wire"),
        }
    }
}
