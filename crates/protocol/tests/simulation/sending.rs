//! Owner of the sending side: reads model files, writes frames, gives stalled streams up.

use super::{
    link::{Connection, End, Micros},
    model::{Outcome, Plan, Trouble, content},
    random::Random,
    witness::Witness,
};
use crc::{CRC_32_ISCSI, Crc};
use haul_protocol::{
    FileId, Message, Sender, SenderEvent, SpanIndex, StreamId,
    file_life::{EndResult, NextStep, OfferFacts, next_step},
    frame::{FrameHeader, PayloadStatus, SpanHeader, SpanTrailer},
    message,
    sender::{Assignment, FileOutcome},
};
use std::collections::BTreeMap;

/// The most spans on their way on a stream.
const IN_FLIGHT_MAX: usize = 4;

#[derive(Debug)]
struct SendStream {
    sequence: u64,
    last_sign: Micros,
}

/// A file that was offered in this session.
#[derive(Clone, Copy, Debug)]
struct Offered {
    index: usize,
    version: i64,
    facts: OfferFacts,
}

/// A file that is to be offered, and what its offer says beside its name and size.
#[derive(Clone, Copy, Debug)]
struct ToOffer {
    index: usize,
    kind: message::FileKind,
    compared: message::Compared,
}

#[derive(Debug)]
pub struct SendingSide {
    pub sender: Sender,
    pub outcomes: BTreeMap<FileId, (usize, Outcome)>,
    pub finished: bool,
    end: End,
    to_offer: Vec<ToOffer>,
    /// Sources that a move may remove: the index, and the version that was offered.
    pub freed: Vec<(usize, i64)>,
    offered: BTreeMap<FileId, Offered>,
    streams: BTreeMap<StreamId, SendStream>,
    in_flight: BTreeMap<(FileId, SpanIndex), StreamId>,
    /// Spans that went out last, for forged headers.
    recent: Vec<Assignment>,
    checks: Vec<(Micros, FileId)>,
    vanishings: Vec<(Micros, FileId)>,
}

/// CRC-32C of header, payload and status, as the protocol's `crc32c` digest.
pub fn digest(header: &[u8], payload: &[u8], status: u8) -> [u8; 16] {
    let crc = Crc::<u32>::new(&CRC_32_ISCSI);
    let mut state = crc.digest();
    state.update(&header[..36]);
    state.update(payload);
    state.update(&[status]);
    let mut digest = [0; 16];
    digest[..4].copy_from_slice(&state.finalize().to_le_bytes());
    digest
}

impl SendingSide {
    pub fn new(end: End, plan: &Plan, to_offer: Vec<usize>) -> Self {
        let first = |index: usize| {
            let (kind, compared) = (plan.files[index].kind, message::Compared::NotCompared);
            ToOffer { index, kind, compared }
        };
        let to_offer = to_offer.into_iter().rev().map(first).collect();
        let limits = (plan.offers_max, plan.offer_bytes_max);
        Self {
            sender: Sender::new(limits.0, limits.1),
            outcomes: BTreeMap::new(),
            finished: false,
            end,
            to_offer,
            freed: Vec::new(),
            offered: BTreeMap::new(),
            streams: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            recent: Vec::new(),
            checks: Vec::new(),
            vanishings: Vec::new(),
        }
    }

    /// Takes a data stream; false: the connection is to be closed.
    pub fn stream_opened(&mut self, stream: StreamId, now: Micros) -> bool {
        let fits = self.sender.stream_opened(stream).is_ok();
        if fits {
            self.streams.insert(stream, SendStream { sequence: 0, last_sign: now });
        }
        fits
    }

    pub fn handle(&mut self, message: Message, now: Micros, witness: &mut Witness) {
        match &message {
            Message::SpansVerified(verified) => {
                for range in &verified.spans {
                    for span in range.first.0..range.first.0 + range.count {
                        self.answered(verified.file, SpanIndex(span), now);
                    }
                }
            }
            Message::SpanBad(bad) => {
                witness.counts.damaged += 1;
                let of = self.in_flight.get(&(bad.file, bad.span));
                let was_sent = of == Some(&bad.stream);
                witness.counts.forged += u64::from(!was_sent);
            }
            _ => {}
        }
        self.sender.handle(message).expect("the receiver is honest");
    }

    fn answered(&mut self, file: FileId, span: SpanIndex, now: Micros) {
        let stream = self.in_flight.remove(&(file, span)).expect("only what was sent is answered");
        if let Some(state) = self.streams.get_mut(&stream) {
            state.last_sign = now;
        }
    }

    /// Does a step of the sending side: offers, reads, writes, looks at sources.
    pub fn step(
        &mut self,
        now: Micros,
        plan: &Plan,
        connections: &mut BTreeMap<StreamId, Connection>,
        random: &mut Random,
        witness: &mut Witness,
    ) {
        self.offer(now, plan, random, witness);
        self.take_events(now, plan, connections, random, witness);
        for (_, file) in self.checks.extract_if(.., |check| check.0 <= now) {
            let Some(offered) = self.offered.get(&file) else { continue };
            let is_same = plan.files[offered.index].version(now) == offered.version;
            let changed = || fault(message::FaultCode::SourceChanged);
            self.sender.source_checked(file, if is_same { Ok(()) } else { Err(changed()) });
        }
        for (_, file) in self.vanishings.extract_if(.., |vanishing| vanishing.0 <= now) {
            self.sender.source_failed(file, fault(message::FaultCode::NotFound));
        }
        let streams: Vec<StreamId> = self.sender.open_streams().collect();
        for stream in streams {
            let connection = connections.get_mut(&stream).expect("open streams are connected");
            if let Some(why) = self.why_lost(stream, connection, now, plan) {
                witness.counts.dropped += 1;
                self.sender.drop_stream(stream, why);
                connection.close(self.end, now);
            } else if random.chance(70) {
                self.send_span(stream, connection, now, plan, random, witness);
            }
        }
        if self.sender.all_settled() {
            self.say_goodbye(now, connections, random);
        }
    }

    fn offer(&mut self, now: Micros, plan: &Plan, random: &mut Random, witness: &mut Witness) {
        while self.sender.may_offer() {
            let Some(ToOffer { index, kind, compared }) = self.to_offer.pop() else {
                let open = |file: &&FileId| !self.outcomes.contains_key(file);
                let mut open = self.offered.keys().filter(open).map(|file| &self.offered[file]);
                if !open.any(|offered| offered.facts.may_be_offered_again()) {
                    self.sender.end_offers(self.offered.len() as u64, 0);
                }
                return;
            };
            let file = &plan.files[index];
            let version = file.version(now);
            let is_link = kind == message::FileKind::HardLink;
            let link_target = if is_link { b"in-place".to_vec() } else { Vec::new() };
            let offer = message::FileOffer {
                name: format!("file-{index}").into_bytes(),
                kind,
                compared,
                size_bytes: file.size_bytes,
                mtime_s: version,
                link_target,
                ..Default::default()
            };
            let facts = OfferFacts::new(&offer, false, plan.file_options);
            let file = self.sender.offer(offer);
            self.offered.insert(file, Offered { index, version, facts });
            if matches!(plan.files[index].trouble, Trouble::Vanishes { .. }) {
                self.vanishings.push((now + random.below(6 * plan.latency), file));
            }
            witness.counts.offered += 1;
        }
    }

    fn take_events(
        &mut self,
        now: Micros,
        plan: &Plan,
        connections: &mut BTreeMap<StreamId, Connection>,
        random: &mut Random,
        witness: &mut Witness,
    ) {
        while let Some(event) = self.sender.poll_event() {
            match event {
                SenderEvent::CheckSource(file) => {
                    self.checks.push((now + random.below(plan.latency), file));
                }
                SenderEvent::StreamClosed(stream) => {
                    self.streams.remove(&stream);
                    self.in_flight.retain(|_, of| *of != stream);
                    if let Some(connection) = connections.get_mut(&stream) {
                        connection.close(self.end, now);
                    }
                }
                SenderEvent::Settled { file, outcome, source_failed } => {
                    self.in_flight.retain(|sent, _| sent.0 != file);
                    let offered = self.offered.get_mut(&file).expect("it was offered");
                    offered.facts.source_failed = source_failed;
                    let (index, outcome) = self.settled(file, outcome, now, plan, witness);
                    let earlier = self.outcomes.insert(file, (index, outcome));
                    assert_eq!(earlier, None, "{file:?} is settled twice");
                }
                SenderEvent::Resumed { .. } => witness.counts.resumed += 1,
                // What was looked at before says nothing of what is read once more.
                SenderEvent::Lost { file, .. } => self.checks.retain(|check| check.1 != file),
                SenderEvent::Finished(_) => self.finished = true,
                SenderEvent::SpanDamaged { .. } => {}
                other => panic!("unexpected: {other:?}"),
            }
        }
    }

    /// Takes the next step of a file whose offer is settled.
    fn settled(
        &mut self,
        file: FileId,
        outcome: FileOutcome,
        now: Micros,
        plan: &Plan,
        witness: &mut Witness,
    ) -> (usize, Outcome) {
        let Offered { index, version, facts } = self.offered[&file];
        let is_same = plan.files[index].version(now) == version;
        let again = ToOffer { index, kind: facts.kind, compared: facts.compared };
        let outcome = match next_step(outcome, &facts) {
            NextStep::Compare(_) => {
                witness.counts.compared += 1;
                let same = message::Compared::SameContent;
                let compared = if is_same { same } else { message::Compared::OtherContent };
                self.to_offer.push(ToOffer { compared, ..again });
                Outcome::Compared
            }
            NextStep::OfferAsFile => {
                witness.counts.links_as_files += 1;
                self.to_offer.push(ToOffer { kind: message::FileKind::Regular, ..again });
                Outcome::Failed(message::FaultCode::KindUnsupported)
            }
            NextStep::Ends(end) => {
                // A move looks at its source once more.
                if end.frees_source && is_same && !plan.file_options.dry_run {
                    self.freed.push((index, version));
                }
                match end.result {
                    EndResult::Done => Outcome::Done,
                    EndResult::Skipped | EndResult::Planned(_) => Outcome::Skipped,
                    EndResult::Failed(fault) => Outcome::Failed(fault.code),
                }
            }
            other => panic!("the receiver is honest, and nothing is watched: {other:?}"),
        };
        (index, outcome)
    }

    fn why_lost(
        &self,
        stream: StreamId,
        connection: &mut Connection,
        now: Micros,
        plan: &Plan,
    ) -> Option<&'static str> {
        let silence = now - self.streams[&stream].last_sign;
        let ends = connection.incoming(self.end).read(now) == super::link::Arrival::End;
        if ends || connection.outgoing(self.end).is_broken(now) {
            return Some("the connection broke");
        }
        let awaits = self.sender.awaits_acknowledgement(stream);
        (awaits && silence > plan.stall_after()).then_some("nothing moved")
    }

    fn send_span(
        &mut self,
        stream: StreamId,
        connection: &mut Connection,
        now: Micros,
        plan: &Plan,
        random: &mut Random,
        witness: &mut Witness,
    ) {
        let in_flight = self.in_flight.values().filter(|of| **of == stream).count();
        let pipe = connection.outgoing(self.end);
        if in_flight >= IN_FLIGHT_MAX || !pipe.has_room() {
            return;
        }
        let Some(next) = self.sender.next_span(stream) else { return };
        witness.sent(&next);
        self.recent.truncate(4);
        self.recent.insert(0, next);
        let earlier = self.in_flight.insert((next.file, next.span), stream);
        assert_eq!(earlier, None, "{next:?} is on two streams");
        let offered = self.offered[&next.file];
        let source = &plan.files[offered.index];
        let is_unreadable = source.trouble == Trouble::Unreadable(next.span);
        if is_unreadable {
            self.sender.source_failed(next.file, fault(message::FaultCode::IoFailed));
            if random.chance(30) {
                // Found out before anything of the span went out.
                return;
            }
        }
        let state = self.streams.get_mut(&stream).expect("open");
        if in_flight == 0 {
            state.last_sign = now;
        }
        let read = content(offered.index, source.version(now), next.offset_bytes);
        let is_same = source.version(now) == offered.version;
        let status = if is_unreadable {
            PayloadStatus::Abandoned
        } else if next.whole_file
            && is_same
            && random.chance(60)
            && self.sender.confirm_with_span(next.file)
        {
            witness.counts.confirmed_with_span += 1;
            PayloadStatus::Confirmed
        } else {
            PayloadStatus::Whole
        };
        let header = header_of(&next, stream, state.sequence);
        let mut bytes = frame(header, read, status);
        if plan.forged > 0 && random.below(1000) < plan.forged {
            let of = self.recent[random.below(self.recent.len() as u64) as usize];
            let span = SpanIndex(random.below(of.grid.count().into()) as u32);
            let (offset_bytes, len_bytes) = of.grid.range(span);
            let forged = Assignment { span, offset_bytes, len_bytes, ..of };
            bytes[..40].copy_from_slice(&header_of(&forged, stream, state.sequence));
        }
        state.sequence += 1;
        if source.trouble == Trouble::AlwaysDamaged(next.span) {
            // All bits of a byte: the link, which flips one, cannot undo it.
            bytes[43] ^= 0xff;
        }
        pipe.write(now, &bytes, random);
    }

    fn say_goodbye(
        &mut self,
        now: Micros,
        connections: &mut BTreeMap<StreamId, Connection>,
        random: &mut Random,
    ) {
        for stream in self.sender.open_streams() {
            let sequence = self.streams[&stream].sequence;
            let end = FrameHeader::End { stream, sequence }.encode();
            let pipe = connections.get_mut(&stream).expect("connected").outgoing(self.end);
            pipe.write(now, &end, random);
            pipe.close_writing(now);
        }
        self.sender.finish(message::SideReport::default());
    }
}

fn header_of(next: &Assignment, stream: StreamId, sequence: u64) -> [u8; 40] {
    let (file, offset_bytes, len_bytes) = (next.file, next.offset_bytes, next.len_bytes);
    FrameHeader::Span(SpanHeader { file, offset_bytes, len_bytes, sequence, stream }).encode()
}

/// Makes a frame: header, eight bytes that stand for the payload, trailer.
fn frame(header: [u8; 40], content: u64, status: PayloadStatus) -> Vec<u8> {
    let payload = content.to_le_bytes();
    let digest = digest(&header, &payload, status.to_byte());
    let trailer = SpanTrailer { status, digest }.encode();
    [&header[..], &payload[..], &trailer[..]].concat()
}

pub fn fault(code: message::FaultCode) -> message::Fault {
    message::Fault::new(code, message::Side::Unknown, "the model says so")
}
