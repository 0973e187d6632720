//! Owner of the receiving side: answers offers, writes behind, closes streams, commits.

use super::{
    link::{Arrival, Connection, End, Micros},
    model::{Disk, Outcome, Plan, Target, Trouble},
    random::Random,
    sending::{digest, fault},
    witness::Witness,
};
use haul_protocol::{
    FileId, Message, Receiver, ReceiverEvent, SpanIndex, SpanSet, StreamId,
    file_life::OfferFacts,
    frame::{FrameHeader, HEADER_BYTES, PayloadStatus, SpanHeader, SpanTrailer, TRAILER_BYTES},
    limits, message,
    receiver::{Answer, Earlier, Permit, SpanEnd},
};
use std::collections::BTreeMap;

/// Length of the bytes that stand for a payload.
const PAYLOAD_BYTES: usize = 8;

#[derive(Debug, Default)]
struct ReceiveStream {
    bytes: Vec<u8>,
    /// The span whose payload comes next, and what to do with it.
    current: Option<(SpanHeader, Permit)>,
    last_sign: Micros,
    is_closing: bool,
}

/// A payload that the disk is still busy with.
#[derive(Debug)]
struct WriteBehind {
    due: Micros,
    stream: StreamId,
    file: FileId,
    span: SpanIndex,
    end: SpanEnd,
    content: u64,
}

#[derive(Debug)]
pub struct ReceivingSide {
    pub receiver: Receiver,
    pub outcomes: BTreeMap<FileId, (usize, Outcome)>,
    end: End,
    disk: Disk,
    indices: BTreeMap<FileId, usize>,
    streams: BTreeMap<StreamId, ReceiveStream>,
    writes: Vec<WriteBehind>,
    answers: Vec<(Micros, message::FileOffer)>,
    commits: Vec<(Micros, FileId)>,
    /// Files whose spans of an earlier session are being read back, with the spans that will be
    /// found lost.
    rechecks: Vec<(Micros, FileId, SpanSet)>,
}

impl ReceivingSide {
    pub fn new(end: End, limits: (u32, u64)) -> Self {
        Self {
            receiver: Receiver::new(limits.0, limits.1),
            outcomes: BTreeMap::new(),
            end,
            disk: Disk::default(),
            indices: BTreeMap::new(),
            streams: BTreeMap::new(),
            writes: Vec::new(),
            answers: Vec::new(),
            commits: Vec::new(),
            rechecks: Vec::new(),
        }
    }

    /// Takes a data stream; false: the connection is to be closed.
    pub fn stream_opened(&mut self, stream: StreamId, early: Vec<u8>, now: Micros) -> bool {
        let fits = self.receiver.stream_opened(stream).is_ok();
        if fits {
            let state = ReceiveStream { bytes: early, last_sign: now, ..Default::default() };
            self.streams.insert(stream, state);
        }
        fits
    }

    pub fn open_streams(&self) -> usize {
        self.streams.values().filter(|state| !state.is_closing).count()
    }

    pub fn handle(&mut self, message: Message) {
        self.receiver.handle(message).expect("the sender is honest");
    }

    pub fn step(
        &mut self,
        now: Micros,
        plan: &Plan,
        target: &mut Target,
        connections: &mut BTreeMap<StreamId, Connection>,
        random: &mut Random,
        witness: &mut Witness,
    ) {
        self.take_events(now, plan, connections, random);
        let answers: Vec<_> = self.answers.extract_if(.., |answer| answer.0 <= now).collect();
        for (_, offer) in answers {
            self.answer(&offer, now, plan, target, random, witness);
        }
        self.finish_rechecks(now, witness);
        let streams: Vec<StreamId> = self.streams.keys().copied().collect();
        for stream in streams {
            let connection = connections.get_mut(&stream).expect("open streams are connected");
            self.read(stream, connection, now, plan, random, witness);
        }
        self.finish_writes(now);
        self.finish_closing();
        if random.chance(3) {
            self.disk.flush_journal(target);
        }
        let commits: Vec<_> = self.commits.extract_if(.., |commit| commit.0 <= now).collect();
        for (_, file) in commits {
            self.commit(file, plan, target);
        }
    }

    fn take_events(
        &mut self,
        now: Micros,
        plan: &Plan,
        connections: &mut BTreeMap<StreamId, Connection>,
        random: &mut Random,
    ) {
        while let Some(event) = self.receiver.poll_event() {
            match event {
                ReceiverEvent::Offered(offer) => {
                    self.answers.push((now + random.below(plan.latency), offer));
                }
                ReceiverEvent::Commit(file) => {
                    self.commits.push((now + random.below(plan.latency), file));
                }
                ReceiverEvent::GivenUp { file, fault } => {
                    self.settle(file, Outcome::Failed(fault.code));
                }
                ReceiverEvent::CloseStream { stream, .. } => {
                    let connection = connections.get_mut(&stream).expect("it was opened");
                    self.close(stream, connection, now);
                }
                ReceiverEvent::Finished(_) => {
                    assert!(!self.receiver.has_open_files(), "goodbye with files open");
                    assert!(self.receiver.is_all_confirmed(), "nothing is left to confirm");
                    self.receiver.finish(message::SideReport::default());
                }
                ReceiverEvent::OffersEnd { .. } | ReceiverEvent::AllVerified(_) => {}
                other => panic!("unexpected: {other:?}"),
            }
        }
        if self.receiver.is_all_confirmed() {
            assert_eq!(self.receiver.has_open_files(), !self.commits.is_empty(), "all is left");
        }
    }

    fn settle(&mut self, file: FileId, outcome: Outcome) {
        self.disk.open.remove(&file);
        self.commits.retain(|commit| commit.1 != file);
        let index = self.indices.get(&file).copied().unwrap_or(usize::MAX);
        let earlier = self.outcomes.insert(file, (index, outcome));
        assert_eq!(earlier, None, "{file:?} is settled twice");
    }

    fn answer(
        &mut self,
        offer: &message::FileOffer,
        now: Micros,
        plan: &Plan,
        target: &mut Target,
        random: &mut Random,
        witness: &mut Witness,
    ) {
        let file = offer.file;
        if self.outcomes.contains_key(&file) {
            // The sender gave it up meanwhile; the machine must not mind.
            self.receiver.answer(file, Answer::Skip).expect("forgotten");
            return;
        }
        let name = std::str::from_utf8(&offer.name).expect("the model's names");
        let index = name.strip_prefix("file-").and_then(|index| index.parse().ok());
        let index: usize = index.expect("the model's names");
        self.indices.insert(file, index);
        let kept = &mut target.files[index];
        let answer = if kept.committed == Some(offer.mtime_s) {
            // To the machines these are the same: the file is settled by the answer.
            if OfferFacts::new(offer, false, plan.file_options).may_be_compared() {
                self.settle(file, Outcome::Compared);
                Answer::Compare(message::Compare { blake3: [7; limits::CONTENT_BYTES] })
            } else {
                self.settle(file, Outcome::Skipped);
                let plans = plan.file_options.dry_run && random.chance(50);
                if plans { Answer::Plan(message::Plan::default()) } else { Answer::Skip }
            }
        } else if offer.kind == message::FileKind::HardLink
            && plan.files[index].trouble == Trouble::NoLinks
        {
            self.settle(file, Outcome::Failed(message::FaultCode::KindUnsupported));
            Answer::Fault(fault(message::FaultCode::KindUnsupported))
        } else if plan.files[index].trouble == Trouble::NoSpaceAtOnce {
            self.settle(file, Outcome::Failed(message::FaultCode::NoSpace));
            Answer::Fault(fault(message::FaultCode::NoSpace))
        } else {
            let span_bytes = limits::SPAN_BYTES_MIN << random.below(2);
            let durable = self.disk.open(file, index, offer, kept, span_bytes);
            witness.told_durable(file, durable.iter());
            let earlier = Earlier { is_read_back: random.chance(50), ..Earlier::default() };
            if earlier.is_read_back {
                let mut lost = SpanSet::new(durable.file_spans());
                for span in durable.iter().filter(|_| random.chance(30)) {
                    lost.insert(span);
                }
                self.rechecks.push((now + random.below(20 * plan.latency), file, lost));
            }
            let stored_as = Vec::new();
            Answer::Need { span_bytes: kept.span_bytes, durable, stored_as, earlier }
        };
        self.receiver.answer(file, answer).expect("a fitting answer");
    }

    fn finish_rechecks(&mut self, now: Micros, witness: &mut Witness) {
        let done: Vec<_> = self.rechecks.extract_if(.., |recheck| recheck.0 <= now).collect();
        for (_, file, lost) in done {
            for span in lost.iter() {
                self.disk.lose(file, span);
                witness.lost(file, span);
            }
            self.receiver.read_back(file, &lost);
        }
    }

    fn read(
        &mut self,
        stream: StreamId,
        connection: &mut Connection,
        now: Micros,
        plan: &Plan,
        random: &mut Random,
        witness: &mut Witness,
    ) {
        let state = self.streams.get_mut(&stream).expect("listed above");
        if state.is_closing {
            return;
        }
        match connection.incoming(self.end).read(now) {
            Arrival::Bytes(bytes) => {
                state.bytes.extend(bytes);
                state.last_sign = now;
            }
            Arrival::End => return self.close(stream, connection, now),
            Arrival::Nothing => {
                let is_idle = now - state.last_sign > plan.stall_after();
                if is_idle && self.receiver.has_open_files() {
                    return self.close(stream, connection, now);
                }
            }
        }
        while self.streams.get(&stream).is_some_and(|state| !state.is_closing) {
            let step = self.take_frame(stream, now, plan, random, witness);
            match step {
                FrameStep::Taken => {}
                FrameStep::NeedsMore => return,
                FrameStep::Ended => self.close(stream, connection, now),
                FrameStep::Lost => {
                    witness.counts.broken_framing += 1;
                    self.close(stream, connection, now);
                }
            }
        }
    }

    /// Takes a header, or a payload with its trailer, off what arrived.
    fn take_frame(
        &mut self,
        stream: StreamId,
        now: Micros,
        plan: &Plan,
        random: &mut Random,
        witness: &mut Witness,
    ) -> FrameStep {
        let state = self.streams.get_mut(&stream).expect("open");
        let Some((header, permit)) = state.current else {
            let Some(bytes) = state.bytes.first_chunk::<HEADER_BYTES>() else {
                return FrameStep::NeedsMore;
            };
            let header = match FrameHeader::decode(bytes) {
                Err(_) => return FrameStep::Lost,
                Ok(FrameHeader::End { .. } | FrameHeader::Renewal { .. }) => {
                    return FrameStep::Ended;
                }
                Ok(FrameHeader::Span(header)) => header,
                Ok(FrameHeader::Pack(_)) => panic!("the model sends none"),
            };
            state.bytes.drain(..HEADER_BYTES);
            let permit = match self.receiver.span_starts(stream, &header) {
                Err(_) if plan.forged > 0 => return FrameStep::Lost,
                permit => permit.expect("an honest header"),
            };
            state.current = Some((header, permit));
            match permit {
                Permit::Write(span) => self.begin_write(stream, header.file, span, plan),
                Permit::Discard => witness.counts.discarded += 1,
            }
            return FrameStep::Taken;
        };
        if state.bytes.len() < PAYLOAD_BYTES + TRAILER_BYTES {
            return FrameStep::NeedsMore;
        }
        let payload: Vec<u8> = state.bytes.drain(..PAYLOAD_BYTES).collect();
        let trailer: Vec<u8> = state.bytes.drain(..TRAILER_BYTES).collect();
        state.current = None;
        if let Permit::Write(span) = permit {
            let end = judge(&header, &payload, trailer.as_slice().try_into().expect("24 bytes"));
            let file = header.file;
            let content = u64::from_le_bytes(payload.try_into().expect("eight bytes"));
            let due = now + random.below(plan.latency);
            self.writes.push(WriteBehind { due, stream, file, span, end, content });
        }
        FrameStep::Taken
    }

    fn begin_write(&mut self, stream: StreamId, file: FileId, span: SpanIndex, plan: &Plan) {
        self.disk.begin_write(stream, file, span);
        if plan.files[self.indices[&file]].trouble == Trouble::NoSpaceAt(span) {
            self.receiver.file_failed(file, fault(message::FaultCode::NoSpace));
            self.settle(file, Outcome::Failed(message::FaultCode::NoSpace));
        }
    }

    fn finish_writes(&mut self, now: Micros) {
        let done: Vec<_> = self.writes.extract_if(.., |write| write.due <= now).collect();
        for write in done {
            let is_good = matches!(write.end, SpanEnd::Verified | SpanEnd::Confirmed);
            let content = is_good.then_some(write.content);
            self.disk.end_write(write.stream, write.file, write.span, content);
            self.receiver.span_ended(write.stream, write.file, write.span, write.end);
        }
    }

    /// Shuts the socket down; the stream is closed when its writes are through.
    fn close(&mut self, stream: StreamId, connection: &mut Connection, now: Micros) {
        connection.close(self.end, now);
        if let Some(state) = self.streams.get_mut(&stream) {
            state.is_closing = true;
        }
    }

    fn finish_closing(&mut self) {
        let writes = &self.writes;
        let is_through = |stream: StreamId| writes.iter().all(|write| write.stream != stream);
        let mut closed = Vec::new();
        self.streams.retain(|stream, state| {
            let is_over = state.is_closing && is_through(*stream);
            if is_over {
                closed.push(*stream);
            }
            !is_over
        });
        for stream in closed {
            self.receiver.stream_closed(stream);
            self.disk.fence(stream);
        }
    }

    fn commit(&mut self, file: FileId, plan: &Plan, target: &mut Target) {
        if plan.files[self.indices[&file]].trouble == Trouble::CommitFails {
            let code = message::FaultCode::IoFailed;
            self.receiver.committed(file, Err(fault(code)));
            return self.settle(file, Outcome::Failed(code));
        }
        self.disk.commit(file, target);
        self.receiver.committed(file, Ok(()));
        self.settle(file, Outcome::Done);
    }
}

/// Results of looking at the bytes of a stream.
enum FrameStep {
    Taken,
    NeedsMore,
    Ended,
    /// The framing of the stream is lost.
    Lost,
}

/// Judges a span by its digest: nothing else makes a payload believed.
fn judge(header: &SpanHeader, payload: &[u8], trailer: &[u8; TRAILER_BYTES]) -> SpanEnd {
    let Ok(trailer) = SpanTrailer::decode(trailer) else { return SpanEnd::Damaged };
    let header = FrameHeader::Span(*header).encode();
    if digest(&header, payload, trailer.status.to_byte()) != trailer.digest {
        return SpanEnd::Damaged;
    }
    match trailer.status {
        PayloadStatus::Whole => SpanEnd::Verified,
        PayloadStatus::Abandoned => SpanEnd::Abandoned,
        PayloadStatus::Confirmed => SpanEnd::Confirmed,
    }
}
