//! Control messages on the wire: a length, then protobuf.
//!
//! They are checked against the limits before use.

mod edge;
mod fault;
mod fields;
mod files;
mod opening;
mod probes;
mod reports;
#[cfg(test)]
mod tests;

pub use crate::span::SpanRange;
pub use edge::{DataKeys, Secret};
pub use fault::{Fault, FaultCode, Side};
pub use files::{
    Answer, Compare, Compared, Extent, FileAnswer, FileConfirm, FileKind, FileOffer, FileRange,
    FileSettled, Growth, Need, OffersEnd, Owner, Plan, Removed, SpanBad, SpansLost, SpansVerified,
    StreamClosed, StreamDrop, Xattr,
};
pub use opening::{
    Digest, Direction, FileOptions, FilterRule, Hello, HelloReply, OnConflict, Open, Opened,
    Protection, Selection,
};
pub use probes::{
    Audit, AuditFinding, Audited, Probe, ProbeFigures, ProbeKind, ProbeReady, ProbeResult,
    ProbeStep, ProbeStream,
};
pub use reports::{
    Candidate, Explained, Figures, Finish, HostFacts, Notice, Ping, Progress, RdmaFigures,
    SideReport, Stage, StageTime, StreamProgress, TargetFacts,
};

use crate::{ProtocolError, limits, name, wire};
use alloc::{format, string::String, vec::Vec};
use core::ops::RangeInclusive;
use edge::{Edge, kinds};
use prost::Message as _;

kinds! {
    /// One control message.
    pub enum Message {
        Hello(Hello),
        HelloReply(HelloReply),
        Open(Open),
        Opened(Opened),
        /// The session ends with this fault; either side may say so at any time.
        Refused(Fault),
        FileOffer(FileOffer),
        OffersEnd(OffersEnd),
        FileAnswer(FileAnswer),
        SpansVerified(SpansVerified),
        SpanBad(SpanBad),
        StreamDrop(StreamDrop),
        StreamClosed(StreamClosed),
        FileConfirm(FileConfirm),
        FileSettled(FileSettled),
        Progress(Progress),
        Finish(Finish),
        Notice(Notice),
        Ping(Ping),
        Pong(Ping),
        Selection(Selection),
        Removed(Removed),
        Facts(HostFacts),
        Explained(Explained),
        Figures(Figures),
        Probe(Probe),
        ProbeReady(ProbeReady),
        ProbeStep(ProbeStep),
        ProbeFigures(ProbeFigures),
        ProbeResult(ProbeResult),
        SpansLost(SpansLost),
        Audit(Audit),
        Audited(Audited),
    }
}

/// Length of the number that stands before each message, in bytes.
pub const LENGTH_BYTES: usize = 4;

/// Appends the message as it goes over the wire. A text longer than [`limits::TEXT_BYTES_MAX`] is
/// cut to it: the peer would end the session for it.
pub fn encode_message(mut message: Message, out: &mut Vec<u8>) {
    cut_texts(&mut message);
    let control = wire::Control { kind: Some(message.encode()) };
    let len = u32::try_from(control.encoded_len()).expect("messages are far below 4 GiB");
    out.extend_from_slice(&len.to_le_bytes());
    control.encode(out).expect("a Vec grows as needed");
}

/// Takes the first message off `bytes`: returns it and the number of bytes it took, or `None` when
/// more bytes are needed.
///
/// # Errors
/// If the message is longer than `len_max`, is no protobuf, or holds more than the limits allow.
pub fn decode_message(
    bytes: &[u8],
    len_max: usize,
) -> Result<Option<(Message, usize)>, ProtocolError> {
    let Some(len) = bytes.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let len = u32::from_le_bytes(*len) as usize;
    if len > len_max {
        let what = format!("a control message of {len} bytes, at most {len_max} are allowed");
        return Err(ProtocolError::new(what));
    }
    let Some(body) = bytes.get(LENGTH_BYTES..LENGTH_BYTES + len) else { return Ok(None) };
    check_fields(body)?;
    let control = wire::Control::decode(body)
        .map_err(|error| ProtocolError::new(format!("a control message: {error}")))?;
    let Some(kind) = control.kind else {
        return Err(ProtocolError::new("a control message of unknown kind"));
    };
    let message = Message::decode(kind)?;
    check(&message)?;
    Ok(Some((message, LENGTH_BYTES + len)))
}

/// The most items in a list of the message of this number in `Control` (haul.proto). Where a list
/// has no limit of its own, its items are of few bytes.
fn items_max(kind: u64) -> usize {
    match kind {
        6 => limits::HOLES_MAX,
        9 | 30 => limits::RANGES_MAX,
        15 => limits::STREAMS_MAX as usize,
        20 => limits::SELECTION_ITEMS_MAX,
        21 => limits::REMOVED_MAX,
        23 => limits::EXPLAINED_MAX,
        24 => limits::STAGES_MAX,
        28 | 29 => limits::PROBE_STREAMS_MAX,
        41 => limits::AUDIT_FINDINGS_MAX,
        _ => limits::PATHS_MAX,
    }
}

/// Checks the fields of a message before any of them is made.
///
/// It is of one kind: a decoder takes the last of several, and a peer in another language might
/// take the first. Its lists have as many items as they may: an item without bytes takes 2 on the
/// wire, and more than a hundred times as much in memory.
fn check_fields(control: &[u8]) -> Result<(), ProtocolError> {
    let one_kind = fields::of(control).count() <= 1;
    ensure(one_kind, "a control message of more than one kind")?;
    for (kind, message) in fields::of(control) {
        let items_max = items_max(kind >> 3);
        let (mut items, mut answers) = ([0; LIST_FIELDS_MAX + 1], 0);
        for (tag, _) in fields::of(message) {
            ensure(!fields::is_group(tag), "a group, which no message has")?;
            let number = usize::try_from(tag >> 3).ok().filter(|number| *number <= LIST_FIELDS_MAX);
            let items = &mut items[number.unwrap_or(0)];
            *items += 1;
            ensure(*items <= items_max, "more items in a list than it may have")?;
            answers += u32::from(kind >> 3 == FILE_ANSWER && ANSWERS.contains(&(tag >> 3)));
            ensure(answers <= 1, "a file answer of more than one answer")?;
        }
    }
    Ok(())
}

/// Largest number of a field that is a list (haul.proto). Fields behind it are counted together, as
/// field 0, which no message has: none has as many of them as a list may have items.
const LIST_FIELDS_MAX: usize = 14;

/// Number of `file_answer` in `Control`, and those of its answers (haul.proto).
const FILE_ANSWER: u64 = 8;
const ANSWERS: RangeInclusive<u64> = 2..=6;

/// Cuts every text of a message that goes out to what [`check`] allows.
fn cut_texts(message: &mut Message) {
    match message {
        Message::Hello(hello) => cut(&mut hello.software),
        Message::HelloReply(reply) => cut(&mut reply.software),
        Message::Open(open) => {
            cut(&mut open.peer_engine);
            open.fabrics.iter_mut().for_each(cut);
        }
        Message::Opened(opened) => {
            [&mut opened.fabric, &mut opened.fabric_refused].into_iter().for_each(cut);
        }
        Message::Facts(facts) => {
            cut(&mut facts.kernel);
            cut(&mut facts.congestion);
            facts.target.iter_mut().for_each(|target| cut(&mut target.file_system));
        }
        Message::Explained(explained) => cut_explained(explained),
        Message::Refused(fault) => cut_fault(fault),
        Message::Probe(probe) => cut(&mut probe.congestion),
        Message::Audit(audit) => cut(&mut audit.role),
        Message::Audited(audited) => {
            cut(&mut audited.goal);
            audited.findings.iter_mut().flat_map(texts_of).for_each(cut);
        }
        Message::ProbeFigures(figures) => {
            figures.streams.iter_mut().for_each(|stream| cut(&mut stream.congestion));
        }
        Message::ProbeResult(result) => {
            result.fault.iter_mut().for_each(cut_fault);
            result.streams.iter_mut().for_each(|stream| cut(&mut stream.congestion));
        }
        Message::FileAnswer(FileAnswer { answer: Answer::Fault(fault), .. }) => {
            cut_fault(fault);
        }
        Message::StreamDrop(drop) => cut(&mut drop.why),
        Message::FileConfirm(confirm) => confirm.fault.iter_mut().for_each(cut_fault),
        Message::FileSettled(settled) => settled.fault.iter_mut().for_each(cut_fault),
        Message::Finish(finish) => {
            if let Some(report) = &mut finish.report {
                cut(&mut report.engine);
                cut(&mut report.because);
                cut(&mut report.read_back);
                let rdma = report.rdma.iter_mut();
                rdma.flat_map(rdma_texts).for_each(cut);
            }
        }
        Message::Notice(notice) => {
            cut(&mut notice.what);
            cut(&mut notice.why);
            notice.fault.iter_mut().for_each(cut_fault);
        }
        Message::Removed(removed) => removed.names.iter_mut().for_each(cut_name),
        // Without texts that are cut: each kind by its name, so that a new one is thought of.
        Message::FileOffer(_)
        | Message::FileAnswer(_)
        | Message::SpansVerified(_)
        | Message::SpansLost(_)
        | Message::SpanBad(_)
        | Message::StreamClosed(_)
        | Message::Progress(_)
        | Message::OffersEnd(_)
        | Message::Figures(_)
        | Message::Selection(_)
        | Message::ProbeReady(_)
        | Message::ProbeStep(_)
        | Message::Ping(_)
        | Message::Pong(_) => {}
    }
}

fn cut_explained(explained: &mut Explained) {
    explained.facts.iter_mut().for_each(cut);
    for candidate in &mut explained.candidates {
        cut(&mut candidate.engine);
        cut(&mut candidate.what);
    }
    cut(&mut explained.because);
}

fn cut_fault(fault: &mut Fault) {
    fault.path.truncate(limits::NAME_BYTES_MAX);
    for text in [&mut fault.what, &mut fault.needs, &mut fault.found, &mut fault.hint] {
        cut(text);
    }
}

/// Cuts a name of what is there to the directories that can be said, and `...` for what is below: a
/// path may be longer than a program may name it.
fn cut_name(name: &mut Vec<u8>) {
    const BELOW: &[u8] = b"...";
    if name::check_relative_name(name).is_ok() {
        return;
    }
    let mut said = Vec::new();
    for component in name.split(|&byte| byte == b'/') {
        let len = said.len() + component.len() + 1 + BELOW.len();
        if name::check_relative_name(component).is_err() || len > limits::NAME_BYTES_MAX {
            break;
        }
        said.extend_from_slice(component);
        said.push(b'/');
    }
    said.extend_from_slice(BELOW);
    *name = said;
}

fn cut(text: &mut String) {
    let mut len = text.len().min(limits::TEXT_BYTES_MAX);
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    text.truncate(len);
}

/// Memory that an offer takes on a side until its file is settled, in bytes: its name and link, 16
/// for each hole, 64 for each extended attribute beside what it holds, and 256 for all else that is
/// kept of a file.
#[must_use]
pub fn offer_bytes(offer: &FileOffer) -> u64 {
    let names = offer.name.len() + offer.link_target.len();
    let xattrs: usize = offer.xattrs.iter().map(|x| 64 + x.name.len() + x.value.len()).sum();
    (256 + names + 16 * offer.holes.len() + xattrs) as u64
}

fn ensure(holds: bool, what: &str) -> Result<(), ProtocolError> {
    if holds { Ok(()) } else { Err(ProtocolError::new(what)) }
}

/// Checks every length and number that the state machines rely on. The lists of the message itself
/// have as many items as they may: [`check_fields`] counted them.
fn check(message: &Message) -> Result<(), ProtocolError> {
    match message {
        Message::Hello(hello) => {
            check_text(&hello.software)?;
            let few = hello.capabilities.len() <= limits::CAPABILITIES_MAX;
            ensure(few, "more than 256 capabilities")
        }
        Message::HelloReply(reply) => {
            check_text(&reply.software)?;
            let few = reply.capabilities.len() <= limits::CAPABILITIES_MAX;
            ensure(few, "more than 256 capabilities")
        }
        Message::Open(open) => check_open(open),
        Message::Opened(opened) => {
            ensure((1..=limits::STREAMS_MAX).contains(&opened.streams), "a number of streams")?;
            ensure((1..=limits::OFFERS_MAX).contains(&opened.offers_max), "an offer limit")?;
            let allowed = limits::OFFER_BYTES_MIN..=limits::OFFER_BYTES_MAX;
            ensure(allowed.contains(&opened.offer_bytes_max), "a limit of the offers' bytes")?;
            check_text(&opened.fabric)?;
            check_text(&opened.fabric_refused)
        }
        Message::Refused(fault) => check_fault(fault),
        Message::FileOffer(offer) => check_offer(offer),
        Message::FileAnswer(answer) => check_answer(answer),
        Message::StreamDrop(drop) => check_text(&drop.why),
        Message::FileConfirm(confirm) => confirm.fault.as_ref().map_or(Ok(()), check_fault),
        Message::FileSettled(settled) => settled.fault.as_ref().map_or(Ok(()), check_fault),
        Message::Finish(finish) => check_report(finish),
        Message::Notice(notice) => {
            check_text(&notice.what)?;
            check_text(&notice.why)?;
            notice.fault.as_ref().map_or(Ok(()), check_fault)
        }
        Message::Selection(selection) => check_selection(selection),
        Message::Facts(facts) => {
            check_text(&facts.kernel)?;
            check_text(&facts.congestion)?;
            facts.target.as_ref().map_or(Ok(()), |target| check_text(&target.file_system))
        }
        Message::Explained(explained) => check_explained(explained),
        Message::Removed(removed) => removed.names.iter().try_for_each(|name| check_name(name)),
        Message::Probe(probe) => check_probe(probe),
        Message::Audit(audit) => check_text(&audit.role),
        Message::Audited(audited) => check_audited(audited),
        Message::ProbeFigures(figures) => check_probe_streams(&figures.streams),
        Message::ProbeResult(result) => {
            check_probe_streams(&result.streams)?;
            result.fault.as_ref().map_or(Ok(()), check_fault)
        }
        Message::OffersEnd(_)
        | Message::ProbeReady(_)
        | Message::ProbeStep(_)
        | Message::Progress(_)
        | Message::Figures(_)
        | Message::SpansVerified(_)
        | Message::SpansLost(_)
        | Message::SpanBad(_)
        | Message::StreamClosed(_)
        | Message::Ping(_)
        | Message::Pong(_) => Ok(()),
    }
}

fn check_explained(explained: &Explained) -> Result<(), ProtocolError> {
    let Explained { facts, candidates, because } = explained;
    facts.iter().try_for_each(|fact| check_text(fact))?;
    let engines = candidates.iter().map(|candidate| &candidate.engine);
    let texts = candidates.iter().map(|candidate| &candidate.what).chain([because]);
    engines.chain(texts).try_for_each(|text| check_text(text))
}

fn check_open(open: &Open) -> Result<(), ProtocolError> {
    let short = open.paths.iter().all(|path| path.len() <= limits::NAME_BYTES_MAX);
    ensure(short, "a path longer than 4095 bytes")?;
    ensure(open.streams <= limits::STREAMS_MAX, "more than 64 streams")?;
    let span = open.span_bytes;
    ensure(span == 0 || crate::SpanGrid::new(0, span).is_ok(), "a span size")?;
    check_text(&open.peer_engine)?;
    open.fabrics.iter().try_for_each(|name| check_text(name))?;
    open.file_options.as_ref().map_or(Ok(()), |file_options| check_discard(open, file_options))
}

/// Refuses a push to be discarded that asks for more: a file without a name can be neither skipped
/// nor kept, and nothing may be removed for its sake.
fn check_discard(open: &Open, file_options: &FileOptions) -> Result<(), ProtocolError> {
    let keeps = open.direction == Direction::Pull
        || open.verify_target
        || file_options.remove_extra
        || file_options.dry_run
        || file_options.move_sources
        || file_options.follow
        || file_options.watch;
    ensure(!(file_options.discard && keeps), "a push to be discarded that asks for more")
}

fn check_name(name: &[u8]) -> Result<(), ProtocolError> {
    name::check_relative_name(name)
        .map_err(|why| ProtocolError::new(format!("a file name is refused: {why}")))
}

fn check_selection(selection: &Selection) -> Result<(), ProtocolError> {
    selection.names.iter().try_for_each(|name| check_name(name))?;
    let short = |rule: &FilterRule| rule.pattern.len() <= limits::NAME_BYTES_MAX;
    ensure(selection.rules.iter().all(short), "a pattern longer than 4095 bytes")
}

fn check_offer(offer: &FileOffer) -> Result<(), ProtocolError> {
    check_name(&offer.name)?;
    ensure(offer.size_bytes <= limits::FILE_BYTES_MAX, "a file larger than 2^50 bytes")?;
    let may_hold = matches!(offer.kind, FileKind::Regular | FileKind::Unknown);
    let hollow = may_hold || offer.size_bytes == 0;
    ensure(hollow, "bytes of what is no file")?;
    ensure(offer.link_target.len() <= limits::NAME_BYTES_MAX, "a link longer than 4095 bytes")?;
    match offer.kind {
        FileKind::Symlink => {}
        FileKind::HardLink => check_name(&offer.link_target)?,
        _ => ensure(offer.link_target.is_empty(), "a link target of what is no link")?,
    }
    let may_grow = offer.kind == FileKind::Regular;
    ensure(may_grow || offer.growth == Growth::NotGrowing, "growth of what is no file")?;
    offer.range.as_ref().map_or(Ok(()), |range| check_range(offer, range))?;
    check_holes(offer)?;
    check_attributes(offer)?;
    let times = [offer.mtime_ns, offer.ctime_ns];
    let are_times = times.iter().all(|ns| *ns < 1_000_000_000);
    ensure(are_times, "a time with more than a second of nanoseconds")?;
    ensure(offer.mode & !0o7777 == 0, "a mode with more than permission bits")
}

/// Checks where a range lies in its file: at a place where spans of any size could begin.
fn check_range(offer: &FileOffer, range: &FileRange) -> Result<(), ProtocolError> {
    let may_be_one = offer.kind == FileKind::Regular
        && offer.growth == Growth::NotGrowing
        && offer.compared == Compared::NotCompared;
    ensure(may_be_one, "a range of what is no whole file")?;
    let is_placed = range.offset_bytes.is_multiple_of(limits::SPAN_BYTES_MIN);
    ensure(is_placed, "a range that begins at no multiple of 65536 bytes")?;
    let end = range.offset_bytes.checked_add(offer.size_bytes);
    let is_within = end.is_some_and(|end| end <= range.file_bytes) && offer.size_bytes > 0;
    let is_within = is_within && range.file_bytes <= limits::FILE_BYTES_MAX;
    ensure(is_within, "a range that is not within its file")
}

/// Checks the holes of an offer: in order, apart from each other, within the file.
fn check_holes(offer: &FileOffer) -> Result<(), ProtocolError> {
    let mut end = None;
    for hole in &offer.holes {
        let begins_behind = end.is_none_or(|end| hole.offset_bytes > end);
        let hole_end = hole.offset_bytes.checked_add(hole.len_bytes);
        let hole_end = hole_end.filter(|end| hole.len_bytes > 0 && *end <= offer.size_bytes);
        ensure(begins_behind && hole_end.is_some(), "a hole out of order or out of its file")?;
        end = hole_end;
    }
    Ok(())
}

fn check_attributes(offer: &FileOffer) -> Result<(), ProtocolError> {
    let is_short = |name: &[u8]| name.len() <= limits::SHORT_NAME_BYTES_MAX;
    if let Some(owner) = &offer.owner {
        ensure(is_short(&owner.user) && is_short(&owner.group), "a long name of a user or group")?;
    }
    ensure(offer.xattrs.len() <= limits::XATTRS_MAX, "more than 1024 extended attributes")?;
    let well_named = offer
        .xattrs
        .iter()
        .all(|xattr| is_short(&xattr.name) && !xattr.name.is_empty() && !xattr.name.contains(&0));
    ensure(well_named, "a name of an extended attribute")?;
    let bytes: usize = offer.xattrs.iter().map(|xattr| xattr.name.len() + xattr.value.len()).sum();
    ensure(bytes <= limits::XATTR_BYTES_MAX, "more than 256 KiB of extended attributes")
}

fn check_answer(answer: &FileAnswer) -> Result<(), ProtocolError> {
    match &answer.answer {
        Answer::Need(need) => {
            ensure(need.durable.len() <= limits::RANGES_MAX, "too many ranges of spans")?;
            ensure(need.ctime_ns < 1_000_000_000, "a time with more than a second of nanoseconds")?;
            check_stored_as(&need.stored_as)
        }
        Answer::Plan(plan) => check_stored_as(&plan.stored_as),
        Answer::Fault(fault) => check_fault(fault),
        Answer::Compare(_) | Answer::Skip => Ok(()),
    }
}

fn check_stored_as(name: &[u8]) -> Result<(), ProtocolError> {
    if name.is_empty() { Ok(()) } else { check_name(name) }
}

fn check_fault(fault: &Fault) -> Result<(), ProtocolError> {
    ensure(fault.path.len() <= limits::NAME_BYTES_MAX, "a path longer than 4095 bytes")?;
    for text in [&fault.what, &fault.needs, &fault.found, &fault.hint] {
        check_text(text)?;
    }
    Ok(())
}

fn check_report(finish: &Finish) -> Result<(), ProtocolError> {
    let Some(report) = &finish.report else { return Ok(()) };
    ensure(report.stages.len() <= limits::STAGES_MAX, "too many stages in a report")?;
    check_text(&report.engine)?;
    check_text(&report.because)?;
    check_text(&report.read_back)?;
    let Some(rdma) = &report.rdma else { return Ok(()) };
    [&rdma.provider, &rdma.port, &rdma.refused].into_iter().try_for_each(|text| check_text(text))
}

fn rdma_texts(rdma: &mut RdmaFigures) -> [&mut String; 3] {
    [&mut rdma.provider, &mut rdma.port, &mut rdma.refused]
}

fn texts_of(finding: &mut AuditFinding) -> [&mut String; 10] {
    let AuditFinding { group, check, subject, state, weight, found, wanted, note, command, needs } =
        finding;
    [group, check, subject, state, weight, found, wanted, note, command, needs]
}

fn check_audited(audited: &Audited) -> Result<(), ProtocolError> {
    check_text(&audited.goal)?;
    let mut findings = audited.findings.clone();
    findings.iter_mut().flat_map(texts_of).try_for_each(|text| check_text(text))
}

fn check_probe(probe: &Probe) -> Result<(), ProtocolError> {
    let rounds = 1..=limits::PROBE_ROUNDS_MAX;
    ensure(rounds.contains(&probe.round), "a round of a probe")?;
    ensure(probe.kind != ProbeKind::Unknown, "a probe of unknown kind")?;
    ensure(probe.to_server || probe.to_client, "a probe of no direction")?;
    ensure((1..=limits::STREAMS_MAX).contains(&probe.streams), "a number of streams")?;
    let echoes = probe.to_server && probe.to_client && probe.streams == 1;
    ensure(probe.kind != ProbeKind::EndpointPings || echoes, "pings that nobody echoes")?;
    let blocks = limits::PROBE_BLOCK_BYTES_MIN..=limits::PROBE_BLOCK_BYTES_MAX;
    ensure(blocks.contains(&probe.block_bytes), "a block of a probe")?;
    let is_udp = probe.kind == ProbeKind::Datagrams;
    let carried = !is_udp || probe.block_bytes <= limits::PROBE_DATAGRAM_BYTES_MAX;
    ensure(carried, "a datagram that no packet carries")?;
    let time_ms = probe.time_ms.checked_add(probe.omit_ms);
    let fits = time_ms.is_some_and(|time_ms| time_ms <= limits::PROBE_MS_MAX);
    ensure(fits && probe.time_ms > 0, "a time of a probe")?;
    let slow = probe.interval_ms >= limits::PROBE_INTERVAL_MS_MIN;
    ensure(slow, "an interval shorter than 50 ms")?;
    let last = probe.first_stream.0.checked_add(2 * probe.streams);
    ensure(last.is_some(), "a number of a stream")?;
    check_text(&probe.congestion)
}

fn check_probe_streams(streams: &[ProbeStream]) -> Result<(), ProtocolError> {
    streams.iter().try_for_each(|stream| check_text(&stream.congestion))
}

fn check_text(text: &str) -> Result<(), ProtocolError> {
    ensure(text.len() <= limits::TEXT_BYTES_MAX, "a text longer than 4096 bytes")
}
