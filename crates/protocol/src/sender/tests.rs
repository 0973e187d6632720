//! Tests of the sending machine that hold its limits and orders one by one.
//!
//! The operations of `tests/` try any order; what only one order shows stands here.

use super::*;
use crate::{
    SpanRange,
    message::{Need, Removed, StreamClosed},
};
use alloc::vec;

const SPAN: u64 = limits::SPAN_BYTES_MIN;

fn sender() -> Sender {
    Sender::new(100, limits::OFFER_BYTES_MAX)
}

fn file_offer(size_bytes: u64) -> FileOffer {
    FileOffer { name: b"file".to_vec(), size_bytes, ..FileOffer::default() }
}

fn answer(file: FileId, answer: Answer) -> Message {
    Message::FileAnswer(FileAnswer { file, answer })
}

fn need(file: FileId, durable: Vec<SpanRange>) -> Message {
    answer(file, Answer::Need(Need { span_bytes: SPAN, durable, ..Need::default() }))
}

fn run(first: u32, count: u32) -> SpanRange {
    SpanRange { first: SpanIndex(first), count }
}

fn verified(file: FileId, spans: SpanRange) -> Message {
    Message::SpansVerified(SpansVerified { file, spans: vec![spans] })
}

fn lost(file: FileId, spans: SpanRange) -> Message {
    Message::SpansLost(SpansLost { file, spans: vec![spans] })
}

fn bad(file: FileId, span: u32, stream: StreamId) -> Message {
    Message::SpanBad(SpanBad { file, span: SpanIndex(span), stream })
}

fn closed(stream: StreamId) -> Message {
    Message::StreamClosed(StreamClosed { stream })
}

fn settled(file: FileId, fault: Option<Fault>) -> Message {
    Message::FileSettled(FileSettled { file, fault })
}

fn goodbye() -> Message {
    Message::Finish(Finish { report: None })
}

fn disk_fault() -> Fault {
    Fault::new(FaultCode::IoFailed, Side::Target, "the disk fails")
}

fn hear(sender: &mut Sender, message: Message) {
    sender.handle(message).expect("an honest message");
}

fn messages(sender: &mut Sender) -> Vec<Message> {
    core::iter::from_fn(|| sender.poll_message()).collect()
}

fn events(sender: &mut Sender) -> Vec<SenderEvent> {
    core::iter::from_fn(|| sender.poll_event()).collect()
}

/// Makes a sender of one file that is needed, with stream 0 open.
fn sending(size_bytes: u64) -> (Sender, FileId) {
    let mut sender = sender();
    let file = sender.offer(file_offer(size_bytes));
    hear(&mut sender, need(file, vec![]));
    sender.stream_opened(StreamId(0)).expect("a new stream");
    messages(&mut sender);
    (sender, file)
}

#[test]
fn what_the_sender_waits_for_follows_the_life_of_a_file() {
    let mut sender = sender();
    assert_eq!(sender.awaits(), None, "an offer is due from this side");
    assert!(!sender.has_files());
    let file = sender.offer(file_offer(2 * SPAN));
    let other = sender.offer(file_offer(0));
    assert_eq!(sender.awaits(), Some(Awaited::Answer));
    assert!(sender.has_files() && !sender.has_pending());
    hear(&mut sender, need(file, vec![]));
    assert_eq!(sender.awaits(), None, "spans wait for a stream");
    assert!(sender.has_pending());
    sender.stream_opened(StreamId(0)).expect("a new stream");
    for _ in 0..2 {
        sender.next_span(StreamId(0)).expect("a span that waits");
    }
    assert_eq!(sender.awaits(), None, "spans are on their way");
    assert!(!sender.has_pending());
    hear(&mut sender, verified(file, run(0, 1)));
    sender.drop_stream(StreamId(0), "nothing moved");
    assert_eq!(sender.awaits(), Some(Awaited::StreamEnd));
    hear(&mut sender, closed(StreamId(0)));
    assert_eq!(sender.awaits(), None, "a span goes out again");
    sender.stream_opened(StreamId(1)).expect("a new stream");
    sender.next_span(StreamId(1)).expect("the span that was lost");
    hear(&mut sender, verified(file, run(1, 1)));
    assert_eq!(sender.awaits(), None, "the look at the source is due from this side");
    sender.source_checked(file, Ok(()));
    assert_eq!(sender.awaits(), Some(Awaited::Settlement));
    hear(&mut sender, settled(file, None));
    assert_eq!(sender.awaits(), Some(Awaited::Answer), "of the other file");
    sender.source_failed(other, disk_fault());
    assert_eq!(sender.awaits(), Some(Awaited::Settlement), "of a file that was given up");
    hear(&mut sender, settled(other, Some(disk_fault())));
    sender.end_offers(2, 2 * SPAN);
    assert_eq!(sender.awaits(), None, "the goodbye is due from this side first");
    sender.finish(SideReport::default());
    assert_eq!(sender.awaits(), Some(Awaited::Goodbye));
    hear(&mut sender, goodbye());
    assert_eq!(sender.awaits(), None);
}

#[test]
fn what_is_said_to_the_user_of_the_other_side_is_handed_on() {
    let mut sender = sender();
    let progress = Progress { received_bytes: 5, ..Progress::default() };
    let notice = Notice { what: "splice fell back".into(), ..Notice::default() };
    for (message, event) in [
        (Message::Progress(progress.clone()), SenderEvent::Progress(progress)),
        (Message::Notice(notice.clone()), SenderEvent::Notice(notice.clone())),
        (Message::Refused(disk_fault()), SenderEvent::Refused(disk_fault())),
    ] {
        assert_eq!(sender.handle(message), Ok(()));
        assert_eq!(events(&mut sender), [event]);
    }
    sender.notice(notice.clone());
    assert_eq!(messages(&mut sender), [Message::Notice(notice)]);
}

#[test]
fn a_receiver_tells_what_it_removed_and_says_goodbye_when_every_file_is_settled() {
    let names = vec![b"old".to_vec()];
    let removed = || Message::Removed(Removed { names: names.clone() });
    let mut sender = sender();
    for early in [removed(), goodbye()] {
        assert!(sender.handle(early).is_err(), "more offers may come");
    }
    let file = sender.offer(file_offer(SPAN));
    sender.end_offers(1, SPAN);
    sender.finish(SideReport::default());
    for early in [removed(), goodbye()] {
        assert!(sender.handle(early).is_err(), "a file is not settled");
    }
    hear(&mut sender, answer(file, Answer::Skip));
    events(&mut sender);
    hear(&mut sender, removed());
    hear(&mut sender, goodbye());
    let told = [SenderEvent::Removed(names.clone()), SenderEvent::Finished(SideReport::default())];
    assert_eq!(events(&mut sender), told);
    for late in [removed(), goodbye()] {
        assert!(sender.handle(late).is_err(), "the goodbye was the last word");
    }
}

#[test]
fn files_are_offered_while_those_that_are_open_take_less_memory_than_the_limit() {
    let mut sender = Sender::new(100, 2 * offer_bytes(&file_offer(0)));
    let first = sender.offer(file_offer(0));
    assert!(sender.may_offer());
    sender.offer(file_offer(0));
    assert!(!sender.may_offer(), "the limit is reached");
    hear(&mut sender, answer(first, Answer::Skip));
    assert!(sender.may_offer(), "there is room again");
    let mut sender = Sender::new(100, 0);
    assert!(sender.may_offer(), "one that is alone may always be made");
    sender.offer(file_offer(0));
    assert!(!sender.may_offer());
}

#[test]
fn no_file_has_a_number_beyond_the_limit() {
    let mut sender = sender();
    sender.next_file = limits::FILES_MAX - 1;
    assert_eq!(sender.offer(file_offer(0)), FileId(limits::FILES_MAX - 1));
    assert!(!sender.may_offer());
}

#[test]
fn as_many_spans_are_asked_for_at_a_time_as_the_limit_says() {
    let mut sender = sender();
    for _ in 0..limits::SPANS_OPEN_MAX / limits::SPANS_MAX {
        let largest = sender.offer(file_offer(limits::SPANS_MAX * SPAN));
        hear(&mut sender, need(largest, vec![]));
    }
    let one = sender.offer(file_offer(SPAN));
    assert!(sender.handle(need(one, vec![])).is_err(), "a span more than the limit");
    hear(&mut sender, settled(FileId(0), Some(disk_fault())));
    assert_eq!(sender.handle(need(one, vec![])), Ok(()), "there is room again");
}

#[test]
fn what_an_earlier_session_left_is_told_and_does_not_go_out() {
    let size_bytes = 2 * SPAN + 10;
    for (durable, bytes) in [(vec![], None), (vec![run(0, 1), run(2, 1)], Some(SPAN + 10))] {
        let mut sender = sender();
        let file = sender.offer(file_offer(size_bytes));
        hear(&mut sender, need(file, durable));
        let resumed = events(&mut sender).into_iter().find_map(|event| match event {
            SenderEvent::Resumed { bytes, .. } => Some(bytes),
            _ => None,
        });
        assert_eq!(resumed, bytes);
        sender.stream_opened(StreamId(0)).expect("a new stream");
        let sent = core::iter::from_fn(|| sender.next_span(StreamId(0)));
        let sent_bytes: u64 = sent.map(|next| next.len_bytes).sum();
        assert_eq!(sent_bytes, size_bytes - bytes.unwrap_or(0));
    }
}

/// SPEC.md, 7.6: a receiver that reads parts of a file calls all spans durable, and those it wants
/// lost.
#[test]
fn parts_of_a_file_go_out_as_they_are_asked_for_each_with_a_look_at_the_source() {
    let confirmed = |file| Message::FileConfirm(FileConfirm { file, fault: None });
    let mut sender = sender();
    let file = sender.offer(file_offer(8 * SPAN));
    sender.stream_opened(StreamId(0)).expect("a new stream");
    hear(&mut sender, need(file, vec![run(0, 8)]));
    assert!(sender.next_span(StreamId(0)).is_none(), "nothing is wanted yet");
    sender.source_checked(file, Ok(()));
    for (first, count) in [(3, 2), (0, 1), (7, 1)] {
        events(&mut sender);
        assert_eq!(messages(&mut sender).last(), Some(&confirmed(file)));
        hear(&mut sender, lost(file, run(first, count)));
        assert_eq!(sender.awaits(), None, "the spans are due from this side");
        let sent = core::iter::from_fn(|| sender.next_span(StreamId(0)));
        let offsets: Vec<u64> = sent.map(|next| next.offset_bytes / SPAN).collect();
        assert_eq!(offsets, (first..first + count).map(u64::from).collect::<Vec<_>>());
        hear(&mut sender, verified(file, run(first, count)));
        assert_eq!(messages(&mut sender), [], "the confirmation before is void");
        assert!(events(&mut sender).contains(&SenderEvent::CheckSource(file)));
        sender.source_checked(file, Ok(()));
    }
    let again = sender.handle(lost(file, run(3, 1)));
    assert!(again.is_err(), "a span is lost once, and this one was sent");
    hear(&mut sender, settled(file, None));
    let done = SenderEvent::Settled { file, outcome: FileOutcome::Done, source_failed: false };
    assert!(events(&mut sender).contains(&done), "with most of its spans never sent");
}

#[test]
fn the_bytes_of_each_span_count_once_it_is_verified() {
    let (mut sender, file) = sending(2 * SPAN + 10);
    while sender.next_span(StreamId(0)).is_some() {}
    assert_eq!(sender.verified_bytes(), 0);
    hear(&mut sender, verified(file, run(1, 1)));
    assert_eq!(sender.verified_bytes(), SPAN);
    hear(&mut sender, verified(file, run(2, 1)));
    assert_eq!(sender.verified_bytes(), SPAN + 10);
}

#[test]
fn a_span_that_always_arrives_damaged_goes_out_again_until_the_limit() {
    let (mut sender, file) = sending(SPAN);
    let damages = |sender: &mut Sender, stream| {
        let span = sender.next_span(stream).expect("it is missing").span;
        events(sender);
        hear(sender, bad(file, span.0, stream));
        assert_eq!(events(sender), [SenderEvent::SpanDamaged { file, span, stream }]);
        hear(sender, closed(stream));
        messages(sender)
    };
    for time in 0..limits::SPAN_RETRIES_MAX {
        damages(&mut sender, StreamId(time));
        assert!(sender.has_pending(), "time {time}");
        sender.stream_opened(StreamId(time + 1)).expect("a new stream");
    }
    let told = damages(&mut sender, StreamId(limits::SPAN_RETRIES_MAX));
    let given_up = told.iter().find_map(|message| match message {
        Message::FileConfirm(confirm) => confirm.fault.as_ref().map(|fault| fault.code),
        _ => None,
    });
    assert_eq!(given_up, Some(FaultCode::DataDamaged), "{told:?}");
    assert!(!sender.has_pending());
}

#[test]
fn a_span_called_damaged_is_one_of_its_file_and_counts_if_it_was_sent() {
    let (mut sender, file) = sending(2 * SPAN);
    sender.next_span(StreamId(0)).expect("the first span");
    events(&mut sender);
    assert!(sender.handle(bad(file, 2, StreamId(0))).is_err(), "the file has no such span");
    assert!(sender.handle(bad(file, 0, StreamId(1))).is_err(), "the stream is not open");
    hear(&mut sender, bad(file, 1, StreamId(0)));
    assert_eq!(events(&mut sender), [], "it was not sent");
    assert!(matches!(messages(&mut sender)[..], [Message::StreamDrop(_)]), "all the same");
}

#[test]
fn as_many_streams_come_in_a_session_as_the_limit_says() {
    let mut sender = sender();
    for stream in (0..limits::STREAMS_EVER_MAX).map(StreamId) {
        assert_eq!(sender.stream_opened(stream), Ok(()));
        hear(&mut sender, closed(stream));
    }
    let beyond = StreamId(limits::STREAMS_EVER_MAX);
    assert!(sender.stream_opened(beyond).is_err());
    assert!(sender.handle(closed(beyond)).is_err(), "no number beyond the limit is kept");
}

#[test]
fn only_the_span_that_is_all_of_a_file_confirms_it() {
    for (size_bytes, confirms) in [(SPAN, true), (10, true), (2 * SPAN, false)] {
        let (mut sender, file) = sending(size_bytes);
        let next = sender.next_span(StreamId(0)).expect("the first span");
        assert_eq!(next.whole_file, confirms, "{size_bytes} bytes");
        assert_eq!(sender.confirm_with_span(file), confirms, "{size_bytes} bytes");
    }
    let (mut sender, file) = sending(SPAN);
    sender.source_failed(file, disk_fault());
    assert!(!sender.confirm_with_span(file), "it was given up");
}
