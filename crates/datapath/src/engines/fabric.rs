//! RDMA endpoints: files out of the page cache to registered memory, and from there to the disk.
//!
//! Copies per byte, where a card moves them: none by the sender, and none by the receiver where
//! whole pages go to the disk by O_DIRECT. The sender registers the file's own pages, a window at a
//! time (`VipSendFile` of study S1); what a file system does not let be registered goes through a
//! buffer. The providers `tcp` and `shm` copy in the kernel. The receiver writes the registered
//! memory that a message came into.

use std::{collections::VecDeque, io};

use haul_fabric::{Error, FileError, HELD_MAX, InFlight, Message, Mover, ReceiveEnd, SendEnd};
use haul_sys::WriteRing;

use crate::{
    Boundary, EngineError, EngineInfo, FabricEnd, FabricFigures, FileSpan, OpenError,
    ReceiveEngine, Remedy, SendEngine, Setup, SpanDone, SpanId, SpanTap, StageTimes, Verdict, Wait,
    Wire, WireKind,
    block_queue::ALIGN_BYTES,
    progress::{Progress, is_unsupported_error},
    stopwatch::timed,
};

pub static INFO: EngineInfo = EngineInfo {
    name: "fabric",
    summary: "RDMA: registered pages of the page cache, to registered memory",
    wires: &[WireKind::Fabric],
    align_bytes: 1,
    spans_in_flight_max: 4,
    sees_bytes: false,
    reads_while_sending: true,
    probe: |_| Verdict::Usable,
    open_send: Some(|setup: Setup<'_>| match setup.wire {
        Wire::Fabric(end) => match *end {
            FabricEnd::Sends(end) => Ok(Box::new(FabricSender::new(end))),
            end @ FabricEnd::Receives(_) => Err(wrong_end(Wire::Fabric(Box::new(end)))),
        },
        wire => Err(wrong_end(wire)),
    }),
    open_receive: Some(|setup: Setup<'_>| match setup.wire {
        Wire::Fabric(end) => match *end {
            FabricEnd::Receives(end) => Ok(Box::new(FabricReceiver::new(end))),
            end @ FabricEnd::Sends(_) => Err(wrong_end(Wire::Fabric(Box::new(end)))),
        },
        wire => Err(wrong_end(wire)),
    }),
};

/// Shortest run that is written past the page cache: below it a page costs less than a disk.
const DIRECT_BYTES_MIN: usize = 64 << 10;

fn wrong_end(wire: Wire) -> OpenError {
    let why = "needs a pair of RDMA endpoints that goes this way, found another wire";
    let source = io::Error::new(io::ErrorKind::Unsupported, why);
    OpenError { wire, cause: error_of("open", Remedy::UseAnotherEngine, 0, source) }
}

fn error_of(
    call: &'static str,
    remedy: Remedy,
    moved_bytes: u64,
    source: io::Error,
) -> EngineError {
    EngineError {
        engine: INFO.name,
        call,
        span: None,
        offset_bytes: 0,
        moved_bytes,
        remedy,
        source,
    }
}

/// The error of a pair that failed between two spans.
fn broken(call: &'static str, moved_bytes: u64, error: Error) -> EngineError {
    error_of(call, Remedy::Reconnect, moved_bytes, error.into())
}

/// Bytes that were copied of those that were moved, of which this process copied some.
fn copied_by(mover: Mover, copied_here_bytes: u64, moved_bytes: u64) -> u64 {
    match mover {
        Mover::Card => copied_here_bytes,
        Mover::Kernel => moved_bytes,
    }
}

/// Whether bytes of this length can be written past the page cache, and whether that pays.
fn fits_direct(bytes: &[u8], offset_bytes: u64) -> bool {
    let places = [bytes.as_ptr().addr() as u64, bytes.len() as u64, offset_bytes];
    places.iter().all(|place| place.is_multiple_of(ALIGN_BYTES)) && bytes.len() >= DIRECT_BYTES_MIN
}

struct FabricSender {
    end: SendEnd,
    /// Spans that are sent, with the windows that their bytes may still be sent out of.
    in_flight: VecDeque<(SpanDone, Vec<InFlight>)>,
    times: StageTimes,
}

impl FabricSender {
    fn new(end: SendEnd) -> Self {
        Self { end, in_flight: VecDeque::new(), times: StageTimes::default() }
    }

    /// Bytes that were copied since the pair was opened.
    fn copied_bytes(&self) -> u64 {
        let figures = self.end.figures();
        let moved_bytes = figures.copied_bytes + figures.window_bytes;
        copied_by(self.end.provider().mover(), figures.copied_bytes, moved_bytes)
    }

    fn send_span(
        &mut self,
        progress: &mut Progress<'_>,
        mut tap: Option<&mut dyn SpanTap>,
    ) -> Result<Vec<InFlight>, EngineError> {
        let mut windows = Vec::new();
        while progress.left_bytes() > 0 {
            let run = progress.run(u64::MAX);
            let (digest_ns, mut seen_ns) = (&mut self.times.digest_ns, 0);
            let mut see = |bytes: &[u8]| {
                if let Some(tap) = tap.as_deref_mut() {
                    timed(&mut seen_ns, || tap.see_cold(bytes));
                }
            };
            let begun = std::time::Instant::now();
            let file = progress.span.file.file();
            let sent = self.end.send_file(file, run.offset_bytes, run.len_bytes, &mut see);
            let took_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            *digest_ns += seen_ns;
            self.times.send_ns += took_ns.saturating_sub(seen_ns);
            let (moved, error) = match sent {
                Ok(in_flight) => {
                    windows.push(in_flight);
                    progress.moved_bytes += run.len_bytes;
                    continue;
                }
                Err(failed) => failed,
            };
            progress.moved_bytes += moved;
            return Err(match error {
                FileError::Truncated => progress.truncated("fi_send"),
                FileError::Read(error) => progress.file("pread", error),
                FileError::Wire(error) => progress.wire("fi_send", error),
            });
        }
        Ok(windows)
    }

    fn hand_over(&mut self, done: &mut Vec<SpanDone>) {
        while let Some((span, windows)) = self.in_flight.front()
            && windows.iter().all(InFlight::is_over)
        {
            done.push(*span);
            self.in_flight.pop_front();
        }
    }
}

impl SendEngine for FabricSender {
    fn send_bytes(&mut self, bytes: &[u8], boundary: Boundary) -> Result<(), EngineError> {
        let end = &mut self.end;
        timed(&mut self.times.send_ns, || {
            end.send(bytes)?;
            if boundary == Boundary::Flush { end.flush() } else { Ok(()) }
        })
        .map_err(|error| broken("fi_send", 0, error))
    }

    fn submit(
        &mut self,
        span: &FileSpan,
        tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        let mut progress = Progress::new(INFO.name, span);
        let copied_before = self.copied_bytes();
        let windows = self.send_span(&mut progress, tap)?;
        let (id, moved_bytes) = (span.id, progress.moved_bytes);
        let copied_bytes = self.copied_bytes() - copied_before;
        // The pages are the card's until its completions; what follows does not wait for them.
        self.in_flight.push_back((SpanDone { id, moved_bytes, copied_bytes }, windows));
        self.hand_over(done);
        Ok(())
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<SpanDone>) -> Result<(), EngineError> {
        let end = &mut self.end;
        timed(&mut self.times.send_ns, || match wait {
            Wait::DontBlock => end.progress(),
            Wait::ForOne | Wait::ForAll => end.settle(),
        })
        .map_err(|error| broken("fi_send", 0, error))?;
        self.hand_over(done);
        Ok(())
    }

    fn spans_in_flight(&self) -> u32 {
        u32::try_from(self.in_flight.len()).unwrap_or(u32::MAX)
    }

    fn stage_times(&self) -> StageTimes {
        self.times
    }

    fn fabric_figures(&self) -> Option<FabricFigures> {
        Some(FabricFigures { end: self.end.figures().clone(), ..FabricFigures::default() })
    }

    fn into_wire(self: Box<Self>) -> Wire {
        Wire::Fabric(Box::new(FabricEnd::Sends(self.end)))
    }
}

/// A span that is not yet in the file as a whole.
struct Flight {
    span: FileSpan,
    copied_bytes: u64,
    writes: usize,
    fault: Option<(&'static str, u64, io::Error)>,
}

impl Flight {
    fn new(span: FileSpan) -> Self {
        Self { span, copied_bytes: 0, writes: 0, fault: None }
    }

    fn is_written(&self) -> bool {
        self.writes == 0
    }
}

/// A message whose write past the page cache is under way.
struct Writing {
    message: Message,
    span: SpanId,
    offset_bytes: u64,
}

impl AsRef<[u8]> for Writing {
    fn as_ref(&self) -> &[u8] {
        self.message.bytes()
    }
}

struct FabricReceiver {
    end: ReceiveEnd,
    /// Writes past the page cache; `None` where io_uring is forbidden.
    ring: Option<WriteRing<Writing>>,
    /// Whether the file system refused a write past the page cache.
    is_refused: bool,
    /// The error of the pair, found while memory was given back; the next receive tells it.
    broken: Option<Error>,
    flights: Vec<Flight>,
    /// Bytes written past the page cache, and by way of it.
    direct_bytes: u64,
    cached_bytes: u64,
    times: StageTimes,
}

impl FabricReceiver {
    fn new(end: ReceiveEnd) -> Self {
        Self {
            end,
            ring: WriteRing::new(HELD_MAX as u32).ok(),
            is_refused: false,
            broken: None,
            flights: Vec::new(),
            direct_bytes: 0,
            cached_bytes: 0,
            times: StageTimes::default(),
        }
    }

    fn flight(&mut self, span: SpanId) -> &mut Flight {
        let mut flights = self.flights.iter_mut();
        flights.find(|flight| flight.span.id == span).expect("its span is not over")
    }

    /// Takes a write that is over, and gives its memory back. False if there is none. That the pair
    /// has broken meanwhile concerns no write: what came whole goes to its file.
    fn take_finished(&mut self, block: bool) -> bool {
        let Some(ring) = &mut self.ring else { return false };
        let finished = timed(&mut self.times.target_ns, || ring.finished(block));
        let (writing, outcome) = match finished {
            Ok(Some(finished)) => finished,
            Ok(None) => return false,
            Err(error) => {
                self.lose_ring(&error);
                return false;
            }
        };
        let Writing { message, span, offset_bytes } = writing;
        let from = match outcome {
            Ok(written) => {
                self.direct_bytes += written as u64;
                Ok(written)
            }
            Err(error) if is_unsupported_error(&error) => {
                self.is_refused = true;
                Ok(0)
            }
            Err(error) => Err(error),
        };
        // What was cut short, perhaps by a full disk, leaves a rest: writing it tells.
        let times = &mut self.times.target_ns;
        let Some(flight) = self.flights.iter_mut().find(|flight| flight.span.id == span) else {
            self.give_back(message);
            return true;
        };
        let file = flight.span.file.clone();
        let written = from.and_then(|from| {
            let rest = &message.bytes()[from..];
            flight.copied_bytes += rest.len() as u64;
            self.cached_bytes += rest.len() as u64;
            let at = offset_bytes + from as u64;
            timed(times, || std::os::unix::fs::FileExt::write_all_at(file.file(), rest, at))
        });
        flight.writes -= 1;
        if let Err(error) = written {
            flight.fault.get_or_insert(("pwrite", offset_bytes, error));
        }
        self.give_back(message);
        true
    }

    fn give_back(&mut self, message: Message) {
        if let Err(error) = self.end.give_back(message) {
            self.broken.get_or_insert(error);
        }
    }

    /// Gives up all writes under way, as the ring itself has failed.
    fn lose_ring(&mut self, error: &io::Error) {
        self.ring = None;
        for flight in self.flights.iter_mut().filter(|flight| !flight.is_written()) {
            flight.writes = 0;
            let again = io::Error::new(error.kind(), error.to_string());
            let offset_bytes = flight.span.offset_bytes;
            flight.fault.get_or_insert(("wait for a write", offset_bytes, again));
        }
    }

    /// Takes off a span that broke, once no write of it is under way.
    fn give_up(&mut self, span: SpanId) {
        while !self.flight(span).is_written() && self.take_finished(true) {}
        self.flights.retain(|flight| flight.span.id != span);
    }

    fn receive_span(
        &mut self,
        progress: &mut Progress<'_>,
        tap: &mut Option<&mut dyn SpanTap>,
    ) -> Result<(), Error> {
        while progress.left_bytes() > 0 {
            while self.take_finished(false) {}
            // Others must still come while these are written.
            while self.ring.as_ref().is_some_and(|ring| ring.in_flight() >= HELD_MAX) {
                self.take_finished(true);
            }
            if let Some(error) = self.broken.clone() {
                return Err(error);
            }
            let end = &mut self.end;
            let left = progress.left_bytes();
            let taken = timed(&mut self.times.receive_ns, || end.take(left))?;
            let moved = match taken {
                Some(message) => self.write_message(progress, message, tap),
                None => self.write_part(progress, left, tap)?,
            };
            progress.moved_bytes += moved;
        }
        Ok(())
    }

    /// Writes a message that is all of this span.
    fn write_message(
        &mut self,
        progress: &Progress<'_>,
        message: Message,
        tap: &mut Option<&mut dyn SpanTap>,
    ) -> u64 {
        let (span, len) = (progress.span, message.bytes().len());
        if let Some(tap) = tap {
            timed(&mut self.times.digest_ns, || tap.see(message.bytes()));
        }
        let offset_bytes = span.offset_bytes + progress.moved_bytes;
        if fits_direct(message.bytes(), offset_bytes)
            && !self.is_refused
            && let Some(ring) = &mut self.ring
            && let Ok(direct) = span.file.direct()
        {
            let writing = Writing { message, span: span.id, offset_bytes };
            let started = ring.start(writing, 0..len, direct.clone(), offset_bytes);
            self.flight(span.id).writes += 1;
            if let Err(error) = started {
                self.lose_ring(&error);
            }
        } else {
            self.write_buffered(span, offset_bytes, message.bytes());
            self.give_back(message);
        }
        len as u64
    }

    /// Writes the beginning of a message that goes on behind the span.
    fn write_part(
        &mut self,
        progress: &Progress<'_>,
        left: u64,
        tap: &mut Option<&mut dyn SpanTap>,
    ) -> Result<u64, Error> {
        let len = usize::try_from(left).unwrap_or(usize::MAX);
        let part = self.end.peek()?[..len].to_vec();
        if let Some(tap) = tap {
            timed(&mut self.times.digest_ns, || tap.see(&part));
        }
        let offset_bytes = progress.span.offset_bytes + progress.moved_bytes;
        self.write_buffered(progress.span, offset_bytes, &part);
        self.end.skip(len)?;
        Ok(left)
    }

    fn write_buffered(&mut self, span: &FileSpan, offset_bytes: u64, bytes: &[u8]) {
        let mut flights = self.flights.iter_mut();
        let flight = flights.find(|flight| flight.span.id == span.id).expect("it is not over");
        if flight.fault.is_some() || span.file.is_sink() {
            return;
        }
        flight.copied_bytes += bytes.len() as u64;
        self.cached_bytes += bytes.len() as u64;
        let file = span.file.file();
        let written = timed(&mut self.times.target_ns, || {
            std::os::unix::fs::FileExt::write_all_at(file, bytes, offset_bytes)
        });
        if let Err(error) = written {
            flight.fault = Some(("pwrite", offset_bytes, error));
        }
    }

    /// Hands over a span that is in its file; an error for one that failed.
    fn hand_over_one(&mut self, done: &mut Vec<SpanDone>) -> Option<Result<(), EngineError>> {
        let at = self.flights.iter().position(Flight::is_written)?;
        let Flight { span, copied_bytes, fault, .. } = self.flights.remove(at);
        let (id, moved_bytes) = (span.id, span.len_bytes);
        let Some((call, offset_bytes, source)) = fault else {
            let mover = self.end.provider().mover();
            let copied_bytes = copied_by(mover, copied_bytes, moved_bytes);
            done.push(SpanDone { id, moved_bytes, copied_bytes });
            return Some(Ok(()));
        };
        let error = error_of(call, Remedy::SkipFile, moved_bytes, source);
        Some(Err(EngineError { span: Some(id), offset_bytes, ..error }))
    }
}

impl ReceiveEngine for FabricReceiver {
    fn receive_bytes(&mut self, buffer: &mut [u8]) -> Result<(), EngineError> {
        if let Some(error) = self.broken.clone() {
            return Err(broken("fi_recv", 0, error));
        }
        let end = &mut self.end;
        timed(&mut self.times.receive_ns, || end.receive(buffer))
            .map_err(|(filled, error)| broken("fi_recv", filled as u64, error))
    }

    fn submit(
        &mut self,
        span: &FileSpan,
        mut tap: Option<&mut dyn SpanTap>,
        _: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        let mut progress = Progress::new(INFO.name, span);
        self.flights.push(Flight::new(span.clone()));
        let outcome = self.receive_span(&mut progress, &mut tap);
        let id = progress.span.id;
        if let Err(error) = outcome {
            self.give_up(id);
            return Err(progress.wire("fi_recv", error));
        }
        Ok(())
    }

    fn has_come(&mut self) -> Option<bool> {
        // What is wrong with the pair is told by the next receive.
        Some(self.end.has_come().unwrap_or(true))
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<SpanDone>) -> Result<(), EngineError> {
        let first = done.len();
        loop {
            while let Some(handed) = self.hand_over_one(done) {
                handed?;
            }
            let is_enough = match wait {
                Wait::DontBlock => false,
                Wait::ForOne => done.len() > first,
                Wait::ForAll => self.flights.is_empty(),
            };
            if is_enough {
                return Ok(());
            }
            let block = wait != Wait::DontBlock;
            // Where the ring has failed, spans are over without a write that is.
            if !self.take_finished(block) && !self.flights.iter().any(Flight::is_written) {
                return Ok(());
            }
        }
    }

    fn spans_in_flight(&self) -> u32 {
        u32::try_from(self.flights.len()).unwrap_or(u32::MAX)
    }

    fn stage_times(&self) -> StageTimes {
        self.times
    }

    fn fabric_figures(&self) -> Option<FabricFigures> {
        let (direct_bytes, cached_bytes) = (self.direct_bytes, self.cached_bytes);
        Some(FabricFigures { end: self.end.figures().clone(), direct_bytes, cached_bytes })
    }

    fn into_wire(self: Box<Self>) -> Wire {
        Wire::Fabric(Box::new(FabricEnd::Receives(self.end)))
    }
}

#[cfg(test)]
mod tests;
