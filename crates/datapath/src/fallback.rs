//! Engines that stand in for each other on one wire.
//!
//! [`Sender`] and [`Receiver`] run the first engine of a list that can be opened. Where it gives up
//! in the middle of a span, the next one goes on at the very byte; no byte is lost or repeated, and
//! a tap sees each once. Each change is kept as a [`Fallback`] for the user to see.
//!
//! Both are one type, [`Succession`]; the few things in which sending and receiving differ are in
//! [`Direction`].

use std::{collections::VecDeque, io};

use crate::{
    Boundary, Buffers, EngineError, EngineInfo, FabricFigures, FileSpan, Host, OpenError,
    ReceiveEngine, Remedy, SendEngine, Setup, SpanDone, SpanId, SpanTap, StageTimes, Verdict, Wait,
    Wire,
};

/// A change in which one engine took over from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    pub from: &'static str,
    pub to: &'static str,
    /// The reason in words: what the first engine could not do.
    pub why: String,
}

/// Sends on one wire with the best engine that works there.
pub type Sender = Succession<dyn SendEngine>;

/// Receives on one wire with the best engine that works there.
pub type Receiver = Succession<dyn ReceiveEngine>;

/// Opens an engine of one direction.
pub type Opener<E> = fn(Setup<'_>) -> Result<Box<E>, OpenError>;

/// The part of an engine's contract that [`Succession`] needs, whether it sends or receives.
///
/// The methods that an engine has too are those of [`SendEngine`] and [`ReceiveEngine`].
pub trait Direction {
    /// Words for an engine of the other direction.
    const OTHER_WAY: &'static str;

    /// The function that opens the engine in this direction, if it has one.
    fn opener(info: &EngineInfo) -> Option<Opener<Self>>;

    fn submit(
        &mut self,
        span: &FileSpan,
        tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError>;

    fn reap(&mut self, wait: Wait, done: &mut Vec<SpanDone>) -> Result<(), EngineError>;

    /// Reaps all spans in flight.
    ///
    /// Errors that concern one span and leave the wire as it is go to `late`; one that is returned
    /// means that the wire is not to be used again.
    fn settle(
        &mut self,
        done: &mut Vec<SpanDone>,
        late: &mut Vec<EngineError>,
    ) -> Result<(), EngineError>;

    fn spans_in_flight(&self) -> u32;

    fn stage_times(&self) -> StageTimes;

    fn fabric_figures(&self) -> Option<FabricFigures>;

    fn into_wire(self: Box<Self>) -> Wire;
}

impl Direction for dyn SendEngine {
    const OTHER_WAY: &'static str = "it cannot send";

    fn opener(info: &EngineInfo) -> Option<Opener<Self>> {
        info.open_send
    }

    fn submit(
        &mut self,
        span: &FileSpan,
        tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        SendEngine::submit(self, span, tap, done)
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<SpanDone>) -> Result<(), EngineError> {
        SendEngine::reap(self, wait, done)
    }

    fn settle(
        &mut self,
        done: &mut Vec<SpanDone>,
        _late: &mut Vec<EngineError>,
    ) -> Result<(), EngineError> {
        SendEngine::reap(self, Wait::ForAll, done)
    }

    fn spans_in_flight(&self) -> u32 {
        SendEngine::spans_in_flight(self)
    }

    fn stage_times(&self) -> StageTimes {
        SendEngine::stage_times(self)
    }

    fn fabric_figures(&self) -> Option<FabricFigures> {
        SendEngine::fabric_figures(self)
    }

    fn into_wire(self: Box<Self>) -> Wire {
        SendEngine::into_wire(self)
    }
}

impl Direction for dyn ReceiveEngine {
    const OTHER_WAY: &'static str = "it cannot receive";

    fn opener(info: &EngineInfo) -> Option<Opener<Self>> {
        info.open_receive
    }

    fn submit(
        &mut self,
        span: &FileSpan,
        tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        ReceiveEngine::submit(self, span, tap, done)
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<SpanDone>) -> Result<(), EngineError> {
        ReceiveEngine::reap(self, wait, done)
    }

    fn settle(
        &mut self,
        done: &mut Vec<SpanDone>,
        late: &mut Vec<EngineError>,
    ) -> Result<(), EngineError> {
        // One error for each span that failed, so this ends.
        while ReceiveEngine::spans_in_flight(self) > 0 {
            late.extend(ReceiveEngine::reap(self, Wait::ForAll, done).err());
        }
        Ok(())
    }

    fn spans_in_flight(&self) -> u32 {
        ReceiveEngine::spans_in_flight(self)
    }

    fn stage_times(&self) -> StageTimes {
        ReceiveEngine::stage_times(self)
    }

    fn fabric_figures(&self) -> Option<FabricFigures> {
        ReceiveEngine::fabric_figures(self)
    }

    fn into_wire(self: Box<Self>) -> Wire {
        ReceiveEngine::into_wire(self)
    }
}

/// A wire, the engine at work on it, and those that take its place when it gives up.
pub struct Succession<E: Direction + ?Sized> {
    host: Host,
    buffers: Buffers,
    holder: Holder<E>,
    /// Candidates that have not been tried yet, the best first.
    waiting: VecDeque<&'static EngineInfo>,
    /// The engine at work, or the last that was.
    info: &'static EngineInfo,
    /// Stage times of engines that are gone.
    earlier_times: StageTimes,
    fallbacks: Vec<Fallback>,
    /// Bytes that earlier engines moved of spans which a later one finishes.
    carried: Vec<SpanDone>,
    /// Errors of single spans from engines that are gone; [`Self::reap`] returns them.
    late: VecDeque<EngineError>,
}

/// The holder of the wire.
enum Holder<E: ?Sized> {
    /// The engine at work.
    Engine(Box<E>),
    /// Nobody holds the wire, after the last candidate failed.
    Nobody(Wire),
    /// Nobody holds the wire, only while one engine makes room for another.
    Changing,
}

/// An engine that gave up, and its error.
type GaveUp = (&'static str, EngineError);

impl<E: Direction + ?Sized> Succession<E> {
    /// Opens the first of `candidates` that can be opened; those of the other direction are left
    /// out.
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
        candidates.retain(|info| E::opener(info).is_some());
        let Some(&info) = candidates.first() else {
            return Err(OpenError { wire, cause: refused(first.name, E::OTHER_WAY.into()) });
        };
        let mut opened = Self {
            host: host.clone(),
            buffers: buffers.into(),
            holder: Holder::Changing,
            waiting: candidates.into(),
            info,
            earlier_times: StageTimes::default(),
            fallbacks: Vec::new(),
            carried: Vec::new(),
            late: VecDeque::new(),
        };
        opened.holder = Holder::Engine(opened.open_next(wire, None)?);
        Ok(opened)
    }

    /// The engine at work.
    #[must_use]
    pub fn info(&self) -> &'static EngineInfo {
        self.info
    }

    /// The changes since this was last asked.
    pub fn take_fallbacks(&mut self) -> Vec<Fallback> {
        std::mem::take(&mut self.fallbacks)
    }

    /// Submits a span as [`SendEngine::submit`] or [`ReceiveEngine::submit`] does, by as many
    /// engines as it takes.
    ///
    /// # Errors
    /// Those that no other engine helps with; [`Remedy::UseAnotherEngine`] only if none is left.
    /// `moved_bytes` counts from the beginning of `span`, whichever engine moved them, and says
    /// where the wire stands. A receiver's always concern `span`.
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
                self.complete(&mut done[first..]);
                return Err(self.whole(error));
            }
            rest = rest.after(error.moved_bytes);
            self.change(span.id, error, done)?;
        }
        self.complete(&mut done[first..]);
        Ok(())
    }

    /// Reaps spans as [`SendEngine::reap`] or [`ReceiveEngine::reap`] does.
    ///
    /// # Errors
    /// As there. A receiver's is of one late write, with the id of its span; the stream and the
    /// other spans are unharmed by it. `moved_bytes` is then the whole span: nothing is left to
    /// drain. To get all of them, call again until nothing is in flight.
    pub fn reap(&mut self, wait: Wait, done: &mut Vec<SpanDone>) -> Result<(), EngineError> {
        if let Some(late) = self.late.pop_front() {
            return Err(late);
        }
        let first = done.len();
        let outcome = self.engine()?.reap(wait, done);
        self.complete(&mut done[first..]);
        outcome.map_err(|error| self.whole(error))
    }

    /// Changes engines between two spans: the first of `candidates` that can be opened goes on,
    /// because it was chosen, and the others stand behind it. This is no [`Fallback`]. Waits for
    /// all spans in flight; a receiver's late errors come from [`Self::reap`].
    ///
    /// # Errors
    /// Those of the engine that leaves, as [`Self::reap`] has them for a sender; or that of the
    /// last candidate.
    ///
    /// # Panics
    /// If none of the candidates works in this direction.
    pub fn change_to(
        &mut self,
        mut candidates: Vec<&'static EngineInfo>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        candidates.retain(|info| E::opener(info).is_some());
        assert!(!candidates.is_empty(), "the chooser offers one engine at least");
        self.settle(done)?;
        let wire = self.take_wire();
        self.waiting = candidates.into();
        self.seat_next(wire, None)
    }

    /// Number of spans whose completion or error is still to come from [`Self::reap`].
    #[must_use]
    pub fn spans_in_flight(&self) -> u32 {
        let late = self.late.len() as u32;
        match &self.holder {
            Holder::Engine(engine) => engine.spans_in_flight() + late,
            Holder::Nobody(_) | Holder::Changing => late,
        }
    }

    /// Stage times of all engines that were at work here.
    #[must_use]
    pub fn stage_times(&self) -> StageTimes {
        let mut times = self.earlier_times;
        if let Holder::Engine(engine) = &self.holder {
            times.add(&engine.stage_times());
        }
        times
    }

    /// Figures of RDMA endpoints, where the engine at work has them.
    #[must_use]
    pub fn fabric_figures(&self) -> Option<FabricFigures> {
        match &self.holder {
            Holder::Engine(engine) => engine.fabric_figures(),
            Holder::Nobody(_) | Holder::Changing => None,
        }
    }

    /// Gives the wire back. Spans in flight have been reaped before.
    #[must_use]
    pub fn into_wire(mut self) -> Wire {
        self.take_wire()
    }

    fn engine(&mut self) -> Result<&mut E, EngineError> {
        match &mut self.holder {
            Holder::Engine(engine) => Ok(engine),
            Holder::Nobody(_) | Holder::Changing => Err(no_engine(self.info.name)),
        }
    }

    /// Changes engines in the middle of the span `id`, where the one at work gave up.
    fn change(
        &mut self,
        id: SpanId,
        error: EngineError,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        let (gave_up, offset_bytes) = (self.info.name, error.offset_bytes);
        let settled = self.settle(done);
        self.carry(id, &error);
        let wire = self.take_wire();
        if let Err(worse) = settled {
            self.holder = Holder::Nobody(wire);
            return Err(worse);
        }
        self.seat_next(wire, Some((gave_up, error))).map_err(|cause| {
            let whole = EngineError { span: Some(id), offset_bytes, moved_bytes: 0, ..cause };
            self.whole(whole)
        })
    }

    /// Reaps all spans in flight, and keeps the errors of single ones for [`Self::reap`].
    fn settle(&mut self, done: &mut Vec<SpanDone>) -> Result<(), EngineError> {
        let (first, mut late) = (done.len(), Vec::new());
        let outcome = self.engine()?.settle(done, &mut late);
        for error in late {
            let whole = self.whole(error);
            self.late.push_back(whole);
        }
        self.complete(&mut done[first..]);
        outcome.map_err(|error| self.whole(error))
    }

    /// Takes the wire from whoever holds it, until [`Self::seat_next`] gives it to another.
    fn take_wire(&mut self) -> Wire {
        match std::mem::replace(&mut self.holder, Holder::Changing) {
            Holder::Engine(engine) => {
                self.earlier_times.add(&engine.stage_times());
                engine.into_wire()
            }
            Holder::Nobody(wire) => wire,
            Holder::Changing => unreachable!("every change of engines leaves one or the wire"),
        }
    }

    /// Gives `wire` to the first waiting engine that can be opened on it, or else to nobody.
    fn seat_next(&mut self, wire: Wire, from: Option<GaveUp>) -> Result<(), EngineError> {
        let (holder, outcome) = match self.open_next(wire, from) {
            Ok(engine) => (Holder::Engine(engine), Ok(())),
            Err(OpenError { wire, cause }) => (Holder::Nobody(wire), Err(cause)),
        };
        self.holder = holder;
        outcome
    }

    /// Opens the first waiting engine that can be opened on `wire`.
    fn open_next(&mut self, mut wire: Wire, mut from: Option<GaveUp>) -> Result<Box<E>, OpenError> {
        while let Some(info) = self.waiting.pop_front() {
            let opened = match self.refusal(info, &wire) {
                Some(cause) => Err(OpenError { wire, cause }),
                None => self.open_one(info, wire),
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

    fn open_one(&self, info: &EngineInfo, wire: Wire) -> Result<Box<E>, OpenError> {
        let Buffers { bytes_max: buffer_bytes_max, block_bytes, if_copied } = self.buffers;
        let setup = Setup { wire, host: &self.host, buffer_bytes_max, block_bytes, if_copied };
        match E::opener(info) {
            Some(open) => open(setup),
            None => unreachable!("candidates of the other direction were left out"),
        }
    }

    /// The reason why an engine cannot even be opened here.
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

    /// Makes completions speak of whole spans, with what earlier engines moved of them.
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

impl Sender {
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
}

impl Receiver {
    /// Receives bytes as [`ReceiveEngine::receive_bytes`] does.
    ///
    /// # Errors
    /// As there.
    pub fn receive_bytes(&mut self, buffer: &mut [u8]) -> Result<(), EngineError> {
        self.engine()?.receive_bytes(buffer)
    }

    /// Looks whether something has come, as [`ReceiveEngine::has_come`] does.
    pub fn has_come(&mut self) -> Option<bool> {
        self.engine().ok()?.has_come()
    }
}

/// The words of an error without what the user knows already.
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

/// The error where no engine is left on this wire: another connection begins with the first of the
/// list again.
fn no_engine(engine: &'static str) -> EngineError {
    EngineError { remedy: Remedy::Stop, ..refused(engine, "no engine is left to go on".into()) }
}

/// Lends a tap for one more call, while the caller keeps it.
fn again<'tap>(tap: &'tap mut Option<&mut dyn SpanTap>) -> Option<&'tap mut dyn SpanTap> {
    match tap {
        Some(tap) => Some(&mut **tap),
        None => None,
    }
}
