//! Tests of both state machines against a peer that says anything, in any order.
//!
//! The operations and the models that judge them are shared with the fuzz targets `sender` and
//! `receiver`; here proptest makes the operations and shrinks what fails.

#[allow(dead_code)]
#[path = "../../../fuzz/src/bodies/mod.rs"]
mod bodies;

use bodies::{
    ranges::{self, RangeBytes, RangeReceiverOperation, RangeSenderOperation},
    receiver_machine::{self, ReceiverOperation},
    sender_machine::{self, SenderOperation},
};
use haul_protocol::{
    FileId, Message, Receiver, ReceiverEvent, Sender, SenderEvent, SpanIndex, SpanSet, StreamId,
    frame::SpanHeader,
    limits::{self, OFFER_BYTES_MAX},
    message::{self, FaultCode},
    receiver::{Answer, Earlier, Permit, SpanEnd},
    taken_names::{Repeats, TargetPath},
};
use proptest::{collection::vec, prelude::*};

fn span_ranges() -> impl Strategy<Value = Vec<(u8, u8)>> {
    vec((any::<u8>(), any::<u8>()), 0..3)
}

fn sender_operation() -> impl Strategy<Value = SenderOperation> {
    use SenderOperation as Op;
    let bytes = (any::<u8>(), any::<u8>(), any::<u8>());
    prop_oneof![
        40 => any::<u8>().prop_map(|size| Op::Offer { size }),
        30 => any::<u8>().prop_map(Op::OpenStream),
        90 => any::<u8>().prop_map(Op::NextSpan),
        60 => any::<u8>().prop_map(Op::AcknowledgeSent),
        10 => any::<u8>().prop_map(Op::DamageSent),
        10 => any::<u8>().prop_map(Op::LoseDurable),
        1 => (any::<u8>(), span_ranges()).prop_map(|(file, spans)| Op::Lost { file, spans }),
        40 => (any::<u8>(), 0..4u8).prop_map(|(nth, durable)| Op::AnswerOffered { nth, durable }),
        10 => any::<u8>().prop_map(Op::CloseOpened),
        20 => any::<u8>().prop_map(Op::SettleConfirmed),
        20 => any::<u8>().prop_map(Op::ConfirmWithSpan),
        10 => any::<u8>().prop_map(Op::DropStream),
        1 => (0..8u8, span_ranges()).prop_map(|(file, durable)| {
            Op::Need { file, span_bytes: 0, durable }
        }),
        40 => (any::<u8>(), any::<bool>()).prop_map(|(file, is_same)| {
            Op::SourceChecked { file, is_same }
        }),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(file, is_durable)| {
            Op::Settled { file, is_durable }
        }),
        1 => (any::<u8>(), any::<u8>(), span_ranges()).prop_map(|(file, span_bytes, durable)| {
            Op::Need { file, span_bytes, durable }
        }),
        1 => (any::<u8>(), span_ranges()).prop_map(|(file, spans)| Op::Verified { file, spans }),
        1 => bytes.prop_map(|(file, span, stream)| Op::Bad { file, span, stream }),
        1 => any::<u8>().prop_map(Op::Closed),
        1 => any::<u8>().prop_map(Op::SourceFailed),
        1 => any::<u8>().prop_map(Op::Skip),
        1 => any::<u8>().prop_map(Op::AnswerFault),
        1 => any::<u8>().prop_map(Op::AnswerNothing),
        1 => any::<u8>().prop_map(Op::Stray),
        1 => prop_oneof![
            Just(Op::EndOffers), Just(Op::Finish), Just(Op::Progress), Just(Op::Notice),
            Just(Op::PeerFinish), Just(Op::Refused),
        ],
    ]
}

fn receiver_operation() -> impl Strategy<Value = ReceiverOperation> {
    use ReceiverOperation as Op;
    let header = (any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>());
    prop_oneof![
        60 => any::<u8>().prop_map(|size| Op::Offer { skew: 0, size }),
        60 => (0..8u8, any::<u8>()).prop_map(|(file, durable)| {
            Op::Need { file, span_bytes: 0, durable }
        }),
        40 => any::<u8>().prop_map(Op::OpenStream),
        30 => any::<u8>().prop_map(Op::ConfirmTold),
        30 => (any::<u8>(), any::<u8>()).prop_map(|(nth, lost)| Op::ReadBack { nth, lost }),
        90 => (any::<u8>(), any::<u8>()).prop_map(|(stream, nth)| Op::HonestHeader { stream, nth }),
        80 => (any::<u8>(), prop_oneof![0..8u8, any::<u8>()]).prop_map(|(nth, end)| {
            Op::SpanEnded { nth, end }
        }),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(file, is_whole)| {
            Op::Confirm { file, is_whole }
        }),
        20 => header.prop_map(|(stream, named, file, span, len, skew)| {
            Op::Header { stream, named, file, span, len, skew }
        }),
        20 => (any::<u8>(), any::<bool>()).prop_map(|(file, is_durable)| {
            Op::Committed { file, is_durable }
        }),
        1 => (any::<u8>(), any::<u8>(), any::<u8>()).prop_map(|(file, span_bytes, durable)| {
            Op::Need { file, span_bytes, durable }
        }),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(skew, size)| Op::Offer { skew, size }),
        10 => any::<u8>().prop_map(Op::CloseStream),
        5 => any::<u8>().prop_map(Op::Drop),
        1 => any::<u8>().prop_map(Op::FileFailed),
        1 => any::<u8>().prop_map(Op::Skip),
        1 => any::<u8>().prop_map(Op::AnswerFault),
        1 => any::<u8>().prop_map(Op::Stray),
        1 => prop_oneof![
            Just(Op::OffersEnd), Just(Op::Finish), Just(Op::Progress), Just(Op::Notice),
            Just(Op::PeerFinish), Just(Op::Refused),
        ],
    ]
}

fn range_bytes() -> impl Strategy<Value = RangeBytes> {
    let mostly_small = || prop_oneof![30 => 0..200u8, 1 => any::<u8>()];
    let bytes = (any::<u8>(), mostly_small(), mostly_small(), mostly_small(), mostly_small());
    bytes.prop_map(|(name, begin, size, behind, fault)| RangeBytes {
        name,
        begin,
        size,
        behind,
        fault,
    })
}

fn range_sender_operation() -> impl Strategy<Value = RangeSenderOperation> {
    use RangeSenderOperation::{Other, Range};
    prop_oneof![1 => range_bytes().prop_map(Range), 6 => sender_operation().prop_map(Other)]
}

fn range_receiver_operation() -> impl Strategy<Value = RangeReceiverOperation> {
    use RangeReceiverOperation::{Other, Range};
    prop_oneof![1 => range_bytes().prop_map(Range), 4 => receiver_operation().prop_map(Other)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_sender_keeps_its_promises_against_any_receiver(
        operations in vec(sender_operation(), 0..120),
    ) {
        sender_machine::run(&operations);
    }

    #[test]
    fn the_receiver_keeps_its_promises_against_any_sender(
        operations in vec(receiver_operation(), 0..120),
    ) {
        receiver_machine::run(&operations);
    }

    #[test]
    fn the_sender_of_ranges_keeps_its_promises_against_any_receiver(
        operations in vec(range_sender_operation(), 0..120),
    ) {
        ranges::run_sender(&operations);
    }

    #[test]
    fn the_receiver_of_ranges_keeps_its_promises_against_any_sender(
        operations in vec(range_receiver_operation(), 0..120),
    ) {
        ranges::run_receiver(&operations);
    }
}

const SPAN: u64 = limits::SPAN_BYTES_MIN;

fn offer(file: u32, spans: u64) -> message::FileOffer {
    let name = format!("file-{file}").into_bytes();
    message::FileOffer { file: FileId(file), name, size_bytes: spans * SPAN, ..Default::default() }
}

fn need(file: FileId, durable: Vec<message::SpanRange>) -> Message {
    let need = message::Need { span_bytes: SPAN, durable, ..Default::default() };
    let answer = message::Answer::Need(need);
    Message::FileAnswer(message::FileAnswer { file, answer })
}

fn sender_of(spans: u64) -> (Sender, FileId) {
    let mut sender = Sender::new(4, OFFER_BYTES_MAX);
    let file = sender.offer(offer(0, spans));
    sender.handle(need(file, vec![])).expect("an honest answer");
    sender.stream_opened(StreamId(0)).expect("a new stream");
    (sender, file)
}

fn receiver_of(spans: u32) -> (Receiver, FileId) {
    let mut receiver = Receiver::new(4, OFFER_BYTES_MAX);
    receiver.handle(Message::FileOffer(offer(0, spans.into()))).expect("an honest offer");
    let answer = Answer::Need {
        span_bytes: SPAN,
        durable: SpanSet::new(spans),
        stored_as: Vec::new(),
        earlier: Earlier::default(),
    };
    receiver.answer(FileId(0), answer).expect("a fitting answer");
    receiver.stream_opened(StreamId(0)).expect("a new stream");
    (receiver, FileId(0))
}

fn header(span: u64, sequence: u64) -> SpanHeader {
    let (file, stream) = (FileId(0), StreamId(0));
    SpanHeader { file, offset_bytes: span * SPAN, len_bytes: SPAN, sequence, stream }
}

fn messages(receiver: &mut Receiver) -> Vec<Message> {
    std::iter::from_fn(|| receiver.poll_message()).collect()
}

#[test]
fn a_span_is_acknowledged_only_if_it_was_sent() {
    let (mut sender, file) = sender_of(2);
    let one = message::SpanRange { first: SpanIndex(0), count: 1 };
    let verified = message::SpansVerified { file, spans: vec![one] };
    assert!(sender.handle(Message::SpansVerified(verified.clone())).is_err());
    let (mut sender, _) = sender_of(2);
    sender.next_span(StreamId(0)).expect("pending");
    assert_eq!(sender.handle(Message::SpansVerified(verified.clone())), Ok(()));
    assert!(sender.handle(Message::SpansVerified(verified)).is_err(), "not twice");
}

#[test]
fn files_wait_in_the_order_in_which_they_go_out() {
    let mut sender = Sender::new(4, OFFER_BYTES_MAX);
    let files: Vec<FileId> = (0..4).map(|file| sender.offer(offer(file, 1))).collect();
    sender.stream_opened(StreamId(0)).expect("a new stream");
    let waiting = |sender: &Sender, first| sender.waiting(first).collect::<Vec<_>>();
    assert_eq!(waiting(&sender, files[0]), [], "no answer came");
    for file in [3, 0, 2] {
        sender.handle(need(files[file], vec![])).expect("an honest answer");
    }
    assert_eq!(waiting(&sender, files[0]), [files[0], files[2], files[3]]);
    assert_eq!(waiting(&sender, files[1]), [files[2], files[3]]);
    assert_eq!(sender.next_span(StreamId(0)).map(|next| next.file), Some(files[0]));
    assert_eq!(waiting(&sender, files[0]), [files[2], files[3]]);
}

#[test]
fn ranges_stay_within_the_file() {
    for (first, count) in [(2, 1), (0, 3), (u32::MAX, 1), (u32::MAX, u32::MAX), (1, u32::MAX)] {
        let mut sender = Sender::new(1, OFFER_BYTES_MAX);
        let file = sender.offer(offer(0, 2));
        assert!(
            sender
                .handle(need(file, vec![message::SpanRange { first: SpanIndex(first), count }]))
                .is_err()
        );
    }
}

#[test]
fn an_offer_is_answered_once() {
    let (mut sender, file) = sender_of(2);
    assert!(sender.handle(need(file, vec![])).is_err());
    let (mut receiver, file) = receiver_of(2);
    assert!(receiver.answer(file, Answer::Skip).is_err());
}

#[test]
fn a_file_is_settled_as_durable_only_after_its_confirmation() {
    let settled = |file: FileId| Message::FileSettled(message::FileSettled { file, fault: None });
    let (mut sender, file) = sender_of(2);
    assert!(sender.handle(settled(file)).is_err());
    // A file that was given up before its answer had every span of its empty set.
    let mut sender = Sender::new(1, OFFER_BYTES_MAX);
    let file = sender.offer(offer(0, 2));
    sender.source_failed(file, message::Fault::default());
    assert!(sender.handle(settled(file)).is_err());
}

#[test]
fn offers_beyond_the_limit_end_the_session() {
    let mut receiver = Receiver::new(2, OFFER_BYTES_MAX);
    for file in 0..2 {
        assert_eq!(receiver.handle(Message::FileOffer(offer(file, 1))), Ok(()));
    }
    assert!(receiver.handle(Message::FileOffer(offer(2, 1))).is_err());
}

#[test]
fn frames_belong_to_open_streams_in_their_order() {
    let (mut receiver, _) = receiver_of(3);
    assert!(receiver.span_starts(StreamId(1), &header(0, 0)).is_err(), "not open");
    assert!(receiver.span_starts(StreamId(0), &header(0, 1)).is_err(), "a jump");
    assert_eq!(receiver.span_starts(StreamId(0), &header(0, 0)), Ok(Permit::Write(SpanIndex(0))));
    assert!(receiver.span_starts(StreamId(0), &header(1, 0)).is_err(), "the same number again");
}

/// Case of a replayed preface that reset the stream: its span was neither missing nor being written
/// for ever.
/// The second of two streams that bring one span is refused, whichever lies: what it brought would
/// be written beside the first, or be thrown away and missing if the first fails.
#[test]
fn a_span_is_brought_by_one_stream_at_a_time() {
    let (mut receiver, file) = receiver_of(2);
    let (first, second) = (StreamId(0), StreamId(1));
    receiver.stream_opened(second).expect("a new stream");
    let by = |stream, sequence| SpanHeader { stream, ..header(0, sequence) };
    assert_eq!(receiver.span_starts(first, &by(first, 0)), Ok(Permit::Write(SpanIndex(0))));
    receiver.span_starts(second, &by(second, 0)).expect_err("the first is bringing it");
    receiver.span_ended(first, file, SpanIndex(0), SpanEnd::Abandoned);
    assert_eq!(
        receiver.span_starts(second, &by(second, 1)),
        Ok(Permit::Write(SpanIndex(0))),
        "what nobody brings is missing"
    );
    receiver.span_ended(second, file, SpanIndex(0), SpanEnd::Verified);
    assert_eq!(receiver.span_starts(first, &by(first, 1)), Ok(Permit::Discard), "it is there");
}

#[test]
fn a_replayed_preface_does_not_touch_the_stream() {
    let (mut receiver, file) = receiver_of(1);
    let permit = receiver.span_starts(StreamId(0), &header(0, 0));
    assert_eq!(permit, Ok(Permit::Write(SpanIndex(0))));
    assert!(receiver.stream_opened(StreamId(0)).is_err());
    receiver.span_ended(StreamId(0), file, SpanIndex(0), SpanEnd::Verified);
    let told = messages(&mut receiver);
    assert!(told.iter().any(|message| matches!(message, Message::SpansVerified(_))), "{told:?}");
}

/// Case of a sender that waited for a `StreamClosed` that never came.
#[test]
fn a_dropped_stream_that_never_arrived_is_closed_for_good() {
    let (mut receiver, _) = receiver_of(1);
    messages(&mut receiver);
    let drop = message::StreamDrop { stream: StreamId(9), why: String::new() };
    assert_eq!(receiver.handle(Message::StreamDrop(drop.clone())), Ok(()));
    let closed = Message::StreamClosed(message::StreamClosed { stream: StreamId(9) });
    assert_eq!(messages(&mut receiver), [closed]);
    assert!(receiver.stream_opened(StreamId(9)).is_err());
    assert_eq!(receiver.handle(Message::StreamDrop(drop)), Ok(()));
    assert_eq!(messages(&mut receiver), []);
}

/// Case of a pulling client that lost a connection early and was called a liar.
#[test]
fn a_stream_may_be_closed_before_its_preface_arrives() {
    let (mut sender, _) = sender_of(1);
    let closed = || Message::StreamClosed(message::StreamClosed { stream: StreamId(9) });
    assert_eq!(sender.handle(closed()), Ok(()));
    assert!(sender.stream_opened(StreamId(9)).is_err());
    assert!(sender.handle(closed()).is_err(), "but once only");
}

/// Case of a file that stayed open for ever: the receiver had forgotten it and the sender awaited
/// the rest.
#[test]
fn an_answer_that_crosses_a_source_fault_settles_the_file_and_says_that_its_source_failed() {
    let answers = [
        message::Answer::Skip,
        message::Answer::Plan(message::Plan::default()),
        message::Answer::Compare(message::Compare::default()),
    ];
    for answer in answers {
        let mut sender = Sender::new(1, OFFER_BYTES_MAX);
        let file = sender.offer(offer(0, 1));
        let gone = message::Fault::new(message::FaultCode::NotFound, message::Side::Source, "gone");
        sender.source_failed(file, gone);
        let answer = message::FileAnswer { file, answer };
        assert_eq!(sender.handle(Message::FileAnswer(answer)), Ok(()));
        sender.end_offers(1, 0);
        assert!(sender.all_settled());
        let last = std::iter::from_fn(|| sender.poll_event()).last();
        let says = |event| matches!(event, SenderEvent::Settled { source_failed: true, .. });
        assert!(last.is_some_and(says), "a move would have taken the source for removed");
    }
}

/// Case of an empty set that made a file look complete: it would have been committed unwritten.
#[test]
fn a_set_of_another_file_is_no_answer() {
    let mut receiver = Receiver::new(1, OFFER_BYTES_MAX);
    receiver.handle(Message::FileOffer(offer(0, 2))).expect("an honest offer");
    for durable in [SpanSet::default(), SpanSet::full(1), SpanSet::full(3)] {
        let answer = Answer::Need {
            span_bytes: SPAN,
            durable,
            stored_as: Vec::new(),
            earlier: Earlier::default(),
        };
        assert!(receiver.answer(FileId(0), answer).is_err());
    }
    assert_eq!(messages(&mut receiver), []);
}

/// Case of a message that the peer refused, so that the transfer could never be resumed.
#[test]
fn a_set_of_very_many_runs_is_told_as_far_as_a_message_holds() {
    let spans = 4 * limits::RANGES_MAX as u32;
    let mut receiver = Receiver::new(1, OFFER_BYTES_MAX);
    receiver.handle(Message::FileOffer(offer(0, spans.into()))).expect("an honest offer");
    let mut durable = SpanSet::new(spans);
    for span in (0..spans).step_by(2) {
        durable.insert(SpanIndex(span));
    }
    let answer = Answer::Need {
        span_bytes: SPAN,
        durable,
        stored_as: Vec::new(),
        earlier: Earlier::default(),
    };
    receiver.answer(FileId(0), answer).expect("a fitting answer");
    let mut bytes = Vec::new();
    haul_protocol::encode_message(receiver.poll_message().expect("the answer"), &mut bytes);
    let decoded = haul_protocol::decode_message(&bytes, limits::MESSAGE_BYTES_MAX);
    assert!(matches!(decoded, Ok(Some(_))));
}

#[test]
fn a_file_is_confirmed_once() {
    let mut receiver = Receiver::new(1, OFFER_BYTES_MAX);
    receiver.handle(Message::FileOffer(offer(0, 0))).expect("an honest offer");
    let answer = Answer::Need {
        span_bytes: SPAN,
        durable: SpanSet::new(0),
        stored_as: Vec::new(),
        earlier: Earlier::default(),
    };
    receiver.answer(FileId(0), answer).expect("a fitting answer");
    let confirm = |fault| Message::FileConfirm(message::FileConfirm { file: FileId(0), fault });
    assert_eq!(receiver.handle(confirm(None)), Ok(()));
    assert!(receiver.handle(confirm(Some(message::Fault::default()))).is_err());
}

fn answered_with(receiver: &mut Receiver) -> Option<FaultCode> {
    messages(receiver).iter().rev().find_map(|message| match message {
        Message::FileAnswer(message::FileAnswer {
            answer: message::Answer::Fault(fault), ..
        }) => Some(fault.code),
        _ => None,
    })
}

fn offer_named(receiver: &mut Receiver, file: u32, name: &[u8]) -> Option<FaultCode> {
    let offer = message::FileOffer { name: name.to_vec(), ..offer(file, 0) };
    receiver.handle(Message::FileOffer(offer)).expect("an honest offer");
    answered_with(receiver)
}

/// Case of a client that gave all files of a directory the one name of the target: the last of them
/// was left.
#[test]
fn a_receiver_takes_one_file_for_a_name() {
    let mut receiver = Receiver::new(4, OFFER_BYTES_MAX);
    assert_eq!(offer_named(&mut receiver, 0, b"scan"), None);
    assert_eq!(offer_named(&mut receiver, 1, b"scan"), Some(FaultCode::NameTaken), "unsettled");
    receiver.answer(FileId(0), Answer::Skip).expect("an answer");
    assert_eq!(offer_named(&mut receiver, 2, b"scan"), Some(FaultCode::NameTaken), "in place");
    assert_eq!(offer_named(&mut receiver, 3, b"other"), None);
    let compare = Answer::Compare(message::Compare { blake3: [1; 32] });
    receiver.answer(FileId(3), compare).expect("an answer");
    assert_eq!(offer_named(&mut receiver, 4, b"other"), None, "offered again to be compared");
    let fault = message::Fault::new(FaultCode::IoFailed, message::Side::Target, "the disk fails");
    receiver.file_failed(FileId(4), fault);
    assert_eq!(offer_named(&mut receiver, 5, b"other"), None, "nothing is there");
}

#[test]
fn the_new_name_of_one_source_is_no_name_for_another() {
    let one = TargetPath::NameOfOneSource;
    let mut receiver = Receiver::new(8, OFFER_BYTES_MAX).naming(one, Repeats::OnceSettled);
    assert_eq!(offer_named(&mut receiver, 0, b"run7/a"), None);
    assert_eq!(offer_named(&mut receiver, 1, b"run7/b"), None);
    assert_eq!(offer_named(&mut receiver, 2, b"b"), Some(FaultCode::NameTaken));
    receiver.answer(FileId(0), Answer::Skip).expect("an answer");
    assert_eq!(offer_named(&mut receiver, 3, b"run7/a"), None, "a watch sends it again");
    assert_eq!(offer_named(&mut receiver, 4, b"run7/b"), Some(FaultCode::NameTaken), "unsettled");
}

fn lost(spans: Vec<message::SpanRange>) -> Message {
    Message::SpansLost(message::SpansLost { file: FileId(0), spans })
}

#[test]
fn what_was_durable_and_is_lost_goes_out_again_before_the_file_is_confirmed() {
    let both = message::SpanRange { first: SpanIndex(0), count: 2 };
    let first = || vec![message::SpanRange { first: SpanIndex(0), count: 1 }];
    let mut sender = Sender::new(4, OFFER_BYTES_MAX);
    let file = sender.offer(offer(0, 2));
    sender.handle(need(file, vec![both])).expect("an honest answer");
    sender.stream_opened(StreamId(0)).expect("a new stream");
    sender.source_checked(file, Ok(()));
    assert_eq!(sender.handle(lost(first())), Ok(()));
    let next = sender.next_span(StreamId(0)).expect("it is pending again");
    assert_eq!(next.span, SpanIndex(0));
    assert!(sender.handle(lost(first())).is_err(), "a span is lost once");
    let settled = message::FileSettled { file, fault: None };
    assert!(sender.handle(Message::FileSettled(settled)).is_err(), "the confirmation is void");
    let (mut sender, _) = sender_of(2);
    assert!(sender.handle(lost(first())).is_err(), "it was never called durable");
}

#[test]
fn a_file_that_is_read_back_is_committed_afterwards_and_confirmed_anew_when_something_is_lost() {
    for lost in [SpanSet::new(2), SpanSet::full(2)] {
        let mut receiver = Receiver::new(4, OFFER_BYTES_MAX);
        receiver.handle(Message::FileOffer(offer(0, 2))).expect("an honest offer");
        let earlier = Earlier { is_read_back: true, ..Earlier::default() };
        let (span_bytes, durable, stored_as) = (SPAN, SpanSet::full(2), Vec::new());
        let answer = Answer::Need { span_bytes, durable, stored_as, earlier };
        receiver.answer(FileId(0), answer).expect("a fitting answer");
        let confirm =
            || Message::FileConfirm(message::FileConfirm { file: FileId(0), fault: None });
        let commits = |receiver: &mut Receiver| {
            let events = std::iter::from_fn(|| receiver.poll_event());
            events.filter(|event| matches!(event, ReceiverEvent::Commit(_))).count()
        };
        assert_eq!(receiver.handle(confirm()), Ok(()));
        assert_eq!(commits(&mut receiver), 0, "it is still being read back");
        receiver.read_back(FileId(0), &lost);
        assert_eq!(commits(&mut receiver), usize::from(lost.is_empty()));
        if lost.is_empty() {
            assert!(receiver.handle(confirm()).is_err(), "a second one");
        } else {
            assert_eq!(receiver.handle(confirm()), Ok(()), "one that crossed is ignored");
            assert_eq!(commits(&mut receiver), 0);
        }
    }
}
