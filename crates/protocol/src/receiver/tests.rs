//! Tests of the receiving machine that hold its limits and orders one by one.
//!
//! The operations of `tests/` try any order; what only one order shows stands here.

use super::*;
use alloc::vec;

const SPAN: u64 = limits::SPAN_BYTES_MIN;

fn receiver() -> Receiver {
    Receiver::new(100, limits::OFFER_BYTES_MAX)
}

fn offer(file: u32, size_bytes: u64) -> Message {
    let name = format!("file-{file}").into_bytes();
    let offer = FileOffer { file: FileId(file), name, size_bytes, ..FileOffer::default() };
    Message::FileOffer(offer)
}

fn need(span_bytes: u64, durable: SpanSet, earlier: Earlier) -> Answer {
    Answer::Need { span_bytes, durable, stored_as: Vec::new(), earlier }
}

/// Makes a receiver of one file that was asked for, with stream 0 open.
fn receiving(spans: u32, span_bytes: u64) -> Receiver {
    let mut receiver = receiver();
    receiver.handle(offer(0, u64::from(spans) * span_bytes)).expect("an honest offer");
    let all = need(span_bytes, SpanSet::new(spans), Earlier::default());
    receiver.answer(FileId(0), all).expect("a fitting answer");
    receiver.stream_opened(StreamId(0)).expect("a new stream");
    polled(&mut receiver);
    while receiver.poll_event().is_some() {}
    receiver
}

fn polled(receiver: &mut Receiver) -> Vec<Message> {
    core::iter::from_fn(|| receiver.poll_message()).collect()
}

fn header(sequence: u64, offset_bytes: u64, len_bytes: u64) -> SpanHeader {
    SpanHeader { file: FileId(0), offset_bytes, len_bytes, sequence, stream: StreamId(0) }
}

fn confirm(file: u32) -> Message {
    Message::FileConfirm(FileConfirm { file: FileId(file), fault: None })
}

#[test]
fn the_digest_of_what_is_durable_goes_out_only_with_all_of_its_spans() {
    for (runs, is_told) in [(1, true), (limits::RANGES_MAX, true), (limits::RANGES_MAX + 1, false)]
    {
        let spans = u32::try_from(2 * runs).expect("few spans");
        let mut receiver = receiver();
        receiver.handle(offer(0, u64::from(spans) * SPAN)).expect("an honest offer");
        let mut durable = SpanSet::new(spans);
        (0..spans).step_by(2).for_each(|span| {
            durable.insert(SpanIndex(span));
        });
        let earlier = Earlier { digest: Some([7; 16]), ..Earlier::default() };
        receiver.answer(FileId(0), need(SPAN, durable, earlier)).expect("a fitting answer");
        let Some(Message::FileAnswer(reply)) = receiver.poll_message() else {
            panic!("no answer");
        };
        let message::Answer::Need(need) = reply.answer else { panic!("another answer") };
        assert_eq!(need.durable_digest.is_some(), is_told, "{runs} runs");
    }
}

/// A hard link is made only to a file that this session has put in place.
#[test]
fn a_name_is_in_place_when_its_file_is_committed_and_not_before() {
    let mut receiver = receiving(0, SPAN);
    assert!(!receiver.has_in_place(b"file-9"), "never offered");
    assert!(!receiver.has_in_place(b"file-0"), "open");
    receiver.handle(offer(1, 0)).expect("an honest offer");
    receiver.handle(confirm(0)).expect("a confirmation");
    receiver.committed(FileId(0), Ok(()));
    assert!(receiver.has_in_place(b"file-0"), "while another is open");
    assert!(!receiver.has_in_place(b"file-1"));
    let fault = Fault::new(FaultCode::IoFailed, Side::Target, "the disk fails");
    receiver.committed(FileId(1), Err(fault));
    assert!(!receiver.has_in_place(b"file-1"), "not committed");
}

#[test]
fn a_pack_belongs_to_an_open_stream_and_is_its_next_frame() {
    let receiver = receiving(3, SPAN);
    let pack = |sequence, stream| PackHeader {
        spans: 1,
        len_bytes: 1 << 10,
        sequence,
        stream: StreamId(stream),
    };
    assert_eq!(receiver.pack_starts(StreamId(0), &pack(0, 0)), Ok(()));
    assert!(receiver.pack_starts(StreamId(0), &pack(1, 0)).is_err(), "a jump");
    assert!(receiver.pack_starts(StreamId(0), &pack(0, 1)).is_err(), "of another stream");
    assert!(receiver.pack_starts(StreamId(1), &pack(0, 1)).is_err(), "not open");
}

#[test]
fn as_many_streams_open_as_the_limit_says_at_a_time_and_ever() {
    let mut receiver = receiver();
    for stream in 0..limits::STREAMS_MAX {
        assert_eq!(receiver.stream_opened(StreamId(stream)), Ok(()));
    }
    assert!(receiver.stream_opened(StreamId(limits::STREAMS_MAX)).is_err());
    for stream in 0..limits::STREAMS_MAX {
        receiver.stream_closed(StreamId(stream));
    }
    assert!(receiver.stream_opened(StreamId(0)).is_err(), "the number was used");
    for stream in limits::STREAMS_MAX..limits::STREAMS_EVER_MAX {
        assert_eq!(receiver.stream_opened(StreamId(stream)), Ok(()));
        receiver.stream_closed(StreamId(stream));
    }
    let beyond = StreamId(limits::STREAMS_EVER_MAX);
    assert!(receiver.stream_opened(beyond).is_err());
    polled(&mut receiver);
    let drop = message::StreamDrop { stream: beyond, why: String::new() };
    assert_eq!(receiver.handle(Message::StreamDrop(drop)), Ok(()));
    assert_eq!(polled(&mut receiver), [], "no number beyond the limit is kept");
}

#[test]
fn the_largest_span_is_taken_and_none_that_is_empty_or_larger() {
    let largest = limits::SPAN_BYTES_MAX;
    let starts = |len_bytes| {
        let mut receiver = receiving(1, largest);
        receiver.span_starts(StreamId(0), &header(0, 0, len_bytes))
    };
    assert_eq!(starts(largest), Ok(Permit::Write(SpanIndex(0))));
    for len_bytes in [0, largest + 1] {
        let error = starts(len_bytes).expect_err("no span").what;
        assert!(error.contains("no bytes or of more than 1 GiB"), "{error}");
    }
}

#[test]
fn a_frame_that_names_another_stream_is_refused_and_takes_no_number() {
    let mut receiver = receiving(1, SPAN);
    let other = SpanHeader { stream: StreamId(1), ..header(0, 0, SPAN) };
    assert!(receiver.span_starts(StreamId(0), &other).is_err());
    let first = receiver.span_starts(StreamId(0), &header(0, 0, SPAN));
    assert_eq!(first, Ok(Permit::Write(SpanIndex(0))));
}

#[test]
fn a_span_of_a_settled_file_is_thrown_away_and_of_one_never_offered_refused() {
    let mut receiver = receiving(1, SPAN);
    let fault = Fault::new(FaultCode::IoFailed, Side::Target, "the disk fails");
    receiver.file_failed(FileId(0), fault);
    let late = receiver.span_starts(StreamId(0), &header(0, 0, SPAN));
    assert_eq!(late, Ok(Permit::Discard));
    let never = SpanHeader { file: FileId(1), ..header(1, 0, SPAN) };
    assert!(receiver.span_starts(StreamId(0), &never).is_err());
    assert_eq!(receiver.handle(confirm(0)), Ok(()), "it crossed the settlement");
    assert!(receiver.handle(confirm(1)).is_err(), "never offered");
}

#[test]
fn a_span_that_always_arrives_damaged_is_asked_for_again_until_the_limit() {
    let mut receiver = receiving(1, SPAN);
    for time in 0..u64::from(limits::SPAN_RETRIES_MAX) + 1 {
        let permit = receiver.span_starts(StreamId(0), &header(time, 0, SPAN));
        assert_eq!(permit, Ok(Permit::Write(SpanIndex(0))), "time {time}");
        receiver.span_ended(StreamId(0), FileId(0), SpanIndex(0), SpanEnd::Damaged);
        let bad = polled(&mut receiver);
        assert!(matches!(bad[..], [Message::SpanBad(_)]), "time {time}: {bad:?}");
    }
    let last = u64::from(limits::SPAN_RETRIES_MAX) + 1;
    receiver.span_starts(StreamId(0), &header(last, 0, SPAN)).expect("it is missing");
    receiver.span_ended(StreamId(0), FileId(0), SpanIndex(0), SpanEnd::Damaged);
    assert!(matches!(receiver.poll_event(), Some(ReceiverEvent::GivenUp { .. })));
    assert!(!receiver.has_open_files());
}

#[test]
fn only_the_span_that_is_all_of_a_file_confirms_it() {
    for (spans, commits) in [(1, 1), (2, 0)] {
        let mut receiver = receiving(spans, SPAN);
        for span in 0..spans {
            assert!(receiver.lacks_spans());
            let next = header(span.into(), u64::from(span) * SPAN, SPAN);
            receiver.span_starts(StreamId(0), &next).expect("a missing span");
            receiver.span_ended(StreamId(0), FileId(0), SpanIndex(span), SpanEnd::Confirmed);
        }
        assert!(!receiver.lacks_spans());
        let events = core::iter::from_fn(|| receiver.poll_event());
        let count = events.filter(|event| matches!(event, ReceiverEvent::Commit(_))).count();
        assert_eq!(count, commits, "{spans} spans");
    }
}

#[test]
fn what_the_receiver_waits_for_follows_the_life_of_a_file() {
    let mut receiver = receiver();
    assert_eq!(receiver.awaits(), Some(Awaited::Offer));
    receiver.handle(offer(0, 0)).expect("an honest offer");
    assert_eq!(receiver.awaits(), None, "the answer is due from this side");
    assert!(receiver.has_open_files());
    receiver.answer(FileId(0), need(SPAN, SpanSet::new(0), Earlier::default())).expect("it fits");
    assert_eq!(receiver.awaits(), Some(Awaited::Confirmation));
    let end = message::OffersEnd { files: 1, bytes: 0 };
    receiver.handle(Message::OffersEnd(end)).expect("the only end");
    assert!(!receiver.is_all_confirmed() && !receiver.may_finish());
    receiver.handle(confirm(0)).expect("a confirmation");
    assert_eq!(receiver.awaits(), None, "the commit is due from this side");
    assert!(receiver.has_open_files() && !receiver.lacks_spans(), "nothing is due on a stream");
    assert!(receiver.is_all_confirmed() && !receiver.may_finish());
    receiver.committed(FileId(0), Ok(()));
    assert_eq!(receiver.awaits(), Some(Awaited::Goodbye));
    assert!(receiver.is_all_confirmed() && receiver.may_finish());
}

#[test]
fn neighbouring_spans_are_acknowledged_as_one_run() {
    let mut receiver = receiving(5, SPAN);
    assert!(receiver.lacks_spans());
    for (sequence, span) in [(0, 0), (1, 1), (2, 3)] {
        let next = header(sequence, u64::from(span) * SPAN, SPAN);
        receiver.span_starts(StreamId(0), &next).expect("a missing span");
        receiver.span_ended(StreamId(0), FileId(0), SpanIndex(span), SpanEnd::Verified);
    }
    assert!(!receiver.is_urgent(), "acknowledgements wait for others");
    let run = |first, count| SpanRange { first: SpanIndex(first), count };
    let spans = vec![run(0, 2), run(3, 1)];
    let told = Message::SpansVerified(SpansVerified { file: FileId(0), spans });
    assert_eq!(polled(&mut receiver), [told]);
    receiver.progress(Progress::default());
    assert!(receiver.is_urgent(), "a message");
    assert_eq!(polled(&mut receiver), [Message::Progress(Progress::default())]);
    receiver.notice(Notice::default());
    assert_eq!(polled(&mut receiver), [Message::Notice(Notice::default())]);
    receiver.handle(Message::Notice(Notice::default())).expect("a notice");
    assert!(receiver.is_urgent(), "an event");
}

#[test]
fn open_offers_take_as_much_memory_as_the_limit_says() {
    let size = |message: &Message| match message {
        Message::FileOffer(offer) => offer_bytes(offer),
        _ => 0,
    };
    let two = size(&offer(0, 0)) + size(&offer(1, 0));
    let mut receiver = Receiver::new(100, two);
    assert_eq!(receiver.handle(offer(0, 0)), Ok(()));
    assert_eq!(receiver.handle(offer(1, 0)), Ok(()), "one offer may pass the limit");
    assert!(receiver.handle(offer(2, 0)).is_err(), "the limit is reached");
    receiver.answer(FileId(0), Answer::Skip).expect("an answer");
    assert_eq!(receiver.handle(offer(2, 0)), Ok(()), "there is room again");
}

#[test]
fn the_names_that_were_removed_go_out_before_the_goodbye() {
    let mut receiver = receiver();
    let end = message::OffersEnd { files: 0, bytes: 0 };
    receiver.handle(Message::OffersEnd(end)).expect("the only end");
    let names = vec![b"old".to_vec(), b"older".to_vec()];
    receiver.removed(names.clone());
    receiver.finish(SideReport::default());
    receiver.finish(SideReport::default());
    let told = polled(&mut receiver);
    let goodbye = Message::Finish(Finish { report: Some(SideReport::default()) });
    assert_eq!(told, [Message::Removed(Removed { names }), goodbye], "said once");
    assert!(!receiver.may_finish());
}

#[test]
fn a_sender_says_goodbye_once() {
    let mut receiver = receiver();
    let end = message::OffersEnd { files: 0, bytes: 0 };
    let goodbye = || Message::Finish(Finish { report: None });
    assert!(receiver.handle(goodbye()).is_err(), "more offers may come");
    receiver.handle(Message::OffersEnd(end)).expect("the only end");
    assert_eq!(receiver.handle(goodbye()), Ok(()));
    assert_eq!(receiver.awaits(), None);
    assert!(receiver.handle(goodbye()).is_err(), "a second one");
}

#[test]
fn a_sender_that_refuses_the_session_is_heard() {
    let mut receiver = receiver();
    let fault = Fault::new(FaultCode::IoFailed, Side::Source, "the disk fails");
    assert_eq!(receiver.handle(Message::Refused(fault.clone())), Ok(()));
    assert_eq!(receiver.poll_event(), Some(ReceiverEvent::Refused(fault)));
}
