//! Tests of a session's data streams: which are opened, missed, given up and told of.

use super::*;
use crate::{
    problem::Problem,
    session::{
        receiving::{
            ReceivingOptions,
            with_sender::{SPAN, Session, offer},
            without_peer,
        },
        role::Role,
        streams::StreamSetup,
    },
    storage::target_place::TargetPlace,
};
use haul_protocol::{
    FileId, Message,
    frame::{HEADER_BYTES, PayloadStatus},
    message::{FileConfirm, Stage, StageTime},
};
use std::{
    io::{Read, Write},
    net::Shutdown,
};

fn figures(bytes_received: u64, in_span: bool) -> StreamFigures {
    let mut figures = StreamFigures { in_span, ..StreamFigures::default() };
    figures.tcp.bytes_received = bytes_received;
    figures
}

const STALL: Duration = Duration::from_secs(10);
const MOMENT: Duration = Duration::from_nanos(1);

#[test]
fn nothing_is_missed_on_all_streams_before_its_time_nor_where_nothing_is_to_come() {
    let begun = Instant::now();
    let open = [(StreamId(0), figures(70, false)), (StreamId(1), figures(30, false))];
    let none = Still::These(Vec::new());
    let mut still = Stillness::new(begun);
    let mut look = |after: Duration, open: &[_], reads, lacks| {
        still.look(begun + after, open, STALL, reads, || lacks)
    };
    assert_eq!(look(STALL * 2, &open, false, true), none, "what was brought by then is news");
    assert_eq!(look(STALL * 3, &open, false, true), none);
    assert_eq!(look(STALL * 3 + MOMENT, &open, false, true), Still::All(STALL + MOMENT));
    // From then on it has its time again.
    assert_eq!(look(STALL * 4 + MOMENT, &open, false, true), none);
    assert_eq!(look(STALL * 5, &open, true, true), none, "this side reads");
    assert_eq!(look(STALL * 6 + MOMENT, &open, false, false), none, "nothing is to come");
    assert_eq!(look(STALL * 7 + MOMENT * 2, &open[..1], false, true), none, "one has ended");
    assert_eq!(look(STALL * 8 + MOMENT * 3, &open[..1], false, true), Still::All(STALL + MOMENT));
}

#[test]
fn whether_spans_are_to_come_is_asked_ten_times_a_second() {
    let begun = Instant::now();
    let mut still = Stillness::new(begun);
    let mut asked = Vec::new();
    for ms in [0, 50, 99, 100, 150, 199, 200, 900] {
        let now = begun + Duration::from_millis(ms);
        still.look(now, &[], STALL, false, || {
            asked.push(ms);
            false
        });
    }
    assert_eq!(asked, [0, 100, 200, 900]);
}

#[test]
fn a_stream_that_brings_nothing_in_the_middle_of_a_span_is_missed_alone() {
    let begun = Instant::now();
    let mut still = Stillness::new(begun);
    let mut look = |after: Duration, moved: u64, in_span| {
        let mut waits = figures(30, true);
        waits.unread_bytes = 5;
        let open = [
            (StreamId(0), figures(moved, true)),
            (StreamId(1), figures(30, in_span)),
            (StreamId(2), waits),
        ];
        still.look(begun + after, &open, STALL, false, || true)
    };
    let both = |still| Still::These(vec![(StreamId(1), still, false), (StreamId(2), still, true)]);
    let none = Still::These(Vec::new());
    assert_eq!(look(Duration::ZERO, 1, true), none);
    assert_eq!(look(STALL, 2, true), none);
    assert_eq!(look(STALL + MOMENT, 3, true), both(STALL + MOMENT));
    assert_eq!(look(STALL * 2 + MOMENT, 4, false), none, "each has its time again");
    let alone = Still::These(vec![(StreamId(2), STALL + MOMENT, true)]);
    assert_eq!(look(STALL * 2 + MOMENT * 2, 5, false), alone, "the other is at no span");
}

#[test]
fn the_network_holds_a_sender_that_waits_for_it_most_of_its_busy_time() {
    let told = |stages: &[(Stage, u64)]| {
        let stages = stages.iter().map(|(stage, ns)| StageTime { stage: *stage, ns: *ns });
        network_holds(&message::Figures { streams_ns: 1000, stages: stages.collect() })
    };
    assert!(!told(&[]) && !told(&[(Stage::SendCongestionWindow, 500)]));
    assert!(told(&[(Stage::SendCongestionWindow, 501)]));
    let three = [Stage::SendCongestionWindow, Stage::SendReceiverWindow, Stage::SendBuffer];
    assert!(told(&three.map(|stage| (stage, 167))) && !told(&three.map(|stage| (stage, 166))));
    // Those without work do not count.
    assert!(told(&[(Stage::SendBuffer, 201), (Stage::Idle, 600), (Stage::SourceDisk, 199)]));
    assert!(!told(&[(Stage::SendBuffer, 200), (Stage::Idle, 600)]));
    assert!(!told(&[(Stage::Idle, 900), (Stage::SourceDisk, 1000)]));
}

#[test]
fn streams_have_brought_nothing_where_a_while_after_their_opening_there_is_a_header_at_most() {
    let now = Instant::now() + Duration::from_secs(100);
    let header = HEADER_BYTES as u64;
    let stream = |bytes_received, opened: Option<Duration>| {
        let opened_at = opened.map(|ago| now - ago);
        (StreamId(0), StreamFigures { opened_at, ..figures(bytes_received, false) })
    };
    let old = Some(segments::NOTHING_AFTER);
    let nothing = |open: &[_]| have_brought_nothing(open, now);
    assert!(!nothing(&[]));
    assert!(nothing(&[stream(header, old), stream(0, old)]));
    assert!(!nothing(&[stream(header + 1, old), stream(0, old)]));
    assert!(!nothing(&[stream(0, Some(segments::NOTHING_AFTER - MOMENT)), stream(0, old)]));
    assert!(!nothing(&[stream(0, None)]));
}

/// Words of the events that a test is about.
fn words(event: &Event) -> Option<String> {
    match event {
        Event::Error(problem) => Some(problem.what.clone()),
        Event::Stall { stage, what, .. } => Some(format!("{stage}: {what}")),
        Event::Fallback { from_to, .. } => Some(from_to.clone()),
        _ => None,
    }
}

fn options(stall_after: Duration) -> ReceivingOptions {
    ReceivingOptions { span_bytes: Some(SPAN), stall_after, ..without_peer::options() }
}

/// Runs a session of a server, and returns what it told.
fn told_by_server(stall_after: Duration, test: impl FnOnce(&mut Session<'_>)) -> Vec<String> {
    let mut told = Vec::new();
    let mut hear = |event| told.extend(words(&event));
    let (place, setup) = (TargetPlace::Null, StreamSetup::of_nobody());
    let mut session = Session::begin(place, options(stall_after), setup, &mut hear);
    test(&mut session);
    assert!(session.ended.is_none(), "{:?}", session.ended);
    session.role.stop();
    drop(session);
    told
}

/// Runs a session of a client with two streams, and returns what it told.
fn told_by_client(stall_after: Duration, test: impl FnOnce(&mut Session<'_>)) -> Vec<String> {
    let mut told = Vec::new();
    let mut hear = |event| told.extend(words(&event));
    let place = TargetPlace::Null;
    let mut session = Session::begin_client(place, options(stall_after), 2, &mut hear);
    test(&mut session);
    assert!(session.ended.is_none(), "{:?}", session.ended);
    session.role.stop();
    drop(session);
    told
}

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);
const WHOLE: PayloadStatus = PayloadStatus::Whole;

fn open_count(session: &Session<'_>) -> u32 {
    session.role.context.shared.streams.open_count()
}

#[test]
fn a_server_tells_of_damage_once_and_of_what_breaks_the_protocol() {
    let told = told_by_server(LONG, |session| {
        session.say(Message::FileOffer(offer(0, "x", 2 * SPAN)));
        let mut stream = session.stream();
        for _ in 0..2 {
            let mut span = stream.span(0, 0, &[7; SPAN as usize], WHOLE);
            span[HEADER_BYTES] ^= 1;
            stream.write(&span);
            session.until("it is told", |it| {
                it.said.iter().any(|it| matches!(it, Message::SpanBad(_)))
            });
            session.said.clear();
        }
        stream.write(&[7; HEADER_BYTES]);
        session
            .until("its end", |it| it.said.iter().any(|it| matches!(it, Message::StreamClosed(_))));
    });
    let [damaged, broken] = &told[..] else { panic!("{told:?}") };
    assert!(damaged.contains("damaged or forged") && broken.contains("broke the protocol"));
}

#[test]
fn a_server_takes_streams_once_an_engine_is_chosen_and_misses_none() {
    let told = told_by_server(SHORT, |session| {
        let mut stream = session.stream();
        session.for_a_while(Duration::from_millis(60));
        assert_eq!(open_count(session), 0, "there is no file to choose by");
        session.say(Message::FileOffer(offer(0, "x", 2 * SPAN)));
        session.until("a stream", |it| open_count(it) == 1);
        // In the middle of a span for longer than a client would wait.
        let span = stream.span(0, 0, &[7; SPAN as usize], WHOLE);
        stream.write(&span[..100]);
        session.for_a_while(SHORT * 3);
        assert_eq!(open_count(session), 1);
        drop(stream);
        session.until("its end", |it| open_count(it) == 0);
        session.for_a_while(Duration::from_millis(30));
    });
    assert_eq!(told, [""; 0]);
}

#[test]
fn a_change_of_engines_is_told_to_both_sides_once() {
    let told = told_by_server(LONG, |session| {
        let streams = session.role.context.shared.streams.clone();
        for stream in [StreamId(1), StreamId(2)] {
            let (from_to, why) = ("one -> other".to_owned(), "it cannot".to_owned());
            streams.tell(StreamEvent::Fallback { from_to, why, stream });
        }
        session.turn();
        let notices = session.said.iter().filter(|it| matches!(it, Message::Notice(_)));
        assert_eq!(notices.count(), 1);
    });
    assert_eq!(told, ["one -> other"]);
}

#[test]
fn a_client_opens_its_streams_and_another_for_each_that_breaks() {
    let told = told_by_client(LONG, |session| {
        session.turn();
        assert!(session.accept().is_none(), "there is nothing to receive");
        session.say(Message::FileOffer(offer(0, "x", 2 * SPAN)));
        let (one, mut other) = (session.accepted(), session.accepted());
        let mut numbers = [one.stream.0, other.stream.0];
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1]);
        drop(one);
        let mut third = session.accepted();
        assert_eq!(third.stream, StreamId(2));
        // A damaged span is counted in its report, and not told of.
        let mut bad = other.span(0, 0, &[7; SPAN as usize], WHOLE);
        bad[HEADER_BYTES] ^= 1;
        let good = other.span(0, 0, &[7; SPAN as usize], WHOLE);
        other.write(&[bad, good].concat());
        session.until("a span", |it| it.role.tally().verified_bytes == SPAN);
        assert_eq!(session.role.report().bad_spans, 1);
        let span = third.span(0, SPAN, &[7; SPAN as usize], WHOLE);
        third.write(&span);
        // An orderly end is no break.
        [other, third].iter_mut().for_each(|stream| stream.end());
        session.until("the ends", |it| open_count(it) == 0);
        session.say(Message::FileConfirm(FileConfirm { file: FileId(0), fault: None }));
        assert_eq!(session.settled([0]), [None]);
        session.for_a_while(Duration::from_millis(100));
        assert!(session.accept().is_none());
    });
    assert_eq!(told, [""; 0]);
}

fn is_shut(stream: &mut crate::session::receiving::with_sender::DataStream) -> bool {
    stream.socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    matches!(stream.socket.read(&mut [0]), Ok(0))
}

#[test]
fn a_client_opens_others_where_nothing_comes_on_any_stream() {
    let told = told_by_client(SHORT, |session| {
        session.say(Message::FileOffer(offer(0, "x", 2 * SPAN)));
        let (mut one, mut other) = (session.accepted(), session.accepted());
        let again = [session.accepted(), session.accepted()];
        assert!(is_shut(&mut one) && is_shut(&mut other));
        // They end as if all had come, and it has not.
        for mut stream in again {
            stream.end();
        }
        session.until("their ends", |it| open_count(it) == 0);
        assert!(session.accept().is_none());
        session.accepted();
    });
    // Once, until something gets on.
    assert_eq!(told, ["network: nothing arrives on any stream; opening others"]);
}

#[test]
fn a_client_gives_up_a_stream_on_which_a_span_stops_while_others_go_on() {
    let told = told_by_client(SHORT, |session| {
        session.say(Message::FileOffer(offer(0, "x", 40 * SPAN)));
        let (mut one, mut other) = (session.accepted(), session.accepted());
        let span = one.span(0, 0, &[7; SPAN as usize], WHOLE);
        one.write(&span[..100]);
        let mut third = None;
        let rest = other.span(0, SPAN, &[7; SPAN as usize], WHOLE);
        let mut bytes = rest.iter();
        session.until("another stream", |it| {
            if let Some(byte) = bytes.next() {
                other.socket.write_all(&[*byte]).unwrap();
            }
            third = third.take().or_else(|| it.accept());
            third.is_some()
        });
        assert!(is_shut(&mut one));
        other.socket.shutdown(Shutdown::Write).unwrap();
    });
    assert_eq!(told[0], "network: nothing arrives on a stream; opening another");
}

#[test]
fn files_that_a_stream_could_not_write_fail() {
    let told = told_by_server(LONG, |session| {
        session.say(Message::FileOffer(offer(0, "x", 2 * SPAN)));
        session.until("an answer", |it| it.answer_to(0).is_some());
        let fault = Fault::new(FaultCode::IoFailed, message::Side::Target, "cannot be written");
        lock(&session.role.context.shared.failed).push((FileId(0), fault.clone()));
        assert_eq!(session.settled([0]), [Some(fault)]);
        assert!(lock(&session.role.context.shared.failed).is_empty());
        assert_eq!(session.role.moved_bytes(), 0);
    });
    let what =
        Problem::of(&Fault::new(FaultCode::IoFailed, message::Side::Target, "cannot be written"));
    assert_eq!(told, [what.what]);
}

#[test]
fn figures_of_the_server_are_kept() {
    told_by_client(LONG, |session| {
        let stages = vec![StageTime { stage: Stage::SendBuffer, ns: 800 }];
        session.role.heard_figures(&message::Figures { streams_ns: 1000, stages });
        assert!(session.role.streams.network_holds_sender);
        let none = message::Figures { streams_ns: 1000, stages: Vec::new() };
        crate::session::reported::Reported::heard_figures(&mut session.role, &none);
        assert!(!session.role.streams.network_holds_sender);
    });
}

#[test]
fn streams_are_wanted_where_any_file_lacks_spans() {
    told_by_client(LONG, |session| {
        session.say(Message::FileOffer(offer(0, "empty", 0)));
        session.for_a_while(Duration::from_millis(50));
        assert!(session.accept().is_none());
        for (number, len_bytes) in [(1, SPAN), (2, 2 * SPAN), (3, 0)] {
            session.say(Message::FileOffer(offer(number, &number.to_string(), len_bytes)));
        }
        session.accepted();
    });
}

#[test]
fn nothing_is_missed_on_streams_while_this_side_reads() {
    let told = told_by_client(SHORT, |session| {
        session.say(Message::FileOffer(offer(0, "x", 2 * SPAN)));
        let _streams = [session.accepted(), session.accepted()];
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let read = Box::new(move || {
            let _ = ends.recv();
            Err(std::io::ErrorKind::NotFound.into())
        });
        let role = &mut session.role;
        // Given up before it is read.
        role.stages.comparing.begin(FileId(1), read, &mut role.context);
        session.for_a_while(SHORT * 3);
        assert!(session.accept().is_none());
        drop(end);
        session.accepted();
    });
    assert_eq!(told.last().map(|it| &it[..8]), Some("network:"), "{told:?}");
}

#[test]
fn after_the_goodbye_no_stream_is_opened_for_one_that_breaks() {
    told_by_client(LONG, |session| {
        session.say(Message::FileOffer(offer(0, "x", 2 * SPAN)));
        drop((session.accepted(), session.accepted()));
        session.role.context.finishing = true;
        session.until("their ends", |it| open_count(it) == 0);
        session.for_a_while(Duration::from_millis(300));
        assert!(session.accept().is_none());
    });
}

fn is_open(stream: &mut crate::session::receiving::with_sender::DataStream) -> bool {
    stream.socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    stream.socket.read(&mut [0]).is_err()
}

/// Case of a path that takes small packets only: the first full segment never comes.
#[test]
fn streams_are_opened_with_smaller_segments_where_the_server_sends_and_nothing_comes() {
    for (network_holds, wants_streams, opens) in
        [(true, true, true), (false, true, false), (true, false, false)]
    {
        told_by_client(LONG, |session| {
            session.say(Message::FileOffer(offer(0, "x", 2 * SPAN)));
            let (mut one, mut other) = (session.accepted(), session.accepted());
            session.until("both", |it| open_count(it) == 2);
            let ns = if network_holds { 900 } else { 100 };
            let stages = vec![StageTime { stage: Stage::SendBuffer, ns }];
            session.role.heard_figures(&message::Figures { streams_ns: 1000, stages });
            session.role.context.wants_streams = wants_streams;
            let later = Instant::now() + segments::NOTHING_AFTER;
            assert!(session.role.pump(later).is_ok());
            assert_eq!([is_open(&mut one), is_open(&mut other)], [!opens; 2]);
            if opens {
                session.accepted();
            }
        });
    }
}
