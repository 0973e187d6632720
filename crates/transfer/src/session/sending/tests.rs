//! Tests of a sending role as a whole, of which the test is the receiver.

use super::{
    start::SendingOptions,
    without_peer::{self, SPAN_BYTES, become_client, offers, pumped},
    *,
};
use crate::{
    file_options::{FileOptions, Removal},
    file_status::FileStatus,
    session::reported::Reported,
    storage::{
        root::Root,
        tree::Tree,
        walk::{Top, WalkOptions},
    },
};
use haul_protocol::{
    SpanIndex, SpanRange, StreamId,
    message::{
        Answer, Extent, FaultCode, FileAnswer, FileSettled, Finish, Need, Notice, Progress,
        Removed, Side as MessageSide, SideReport, SpanBad, StreamProgress,
    },
};
use std::{fs, io::Write, path::Path};

const SECOND: Duration = Duration::from_secs(1);

fn begin<'a>(
    directory: &Path,
    file_options: FileOptions,
    hear: &'a mut dyn FnMut(Event),
) -> Sending<'a> {
    let walk = without_peer::walk_in(directory, WalkOptions::default());
    without_peer::sending(walk, without_peer::options(file_options), hear)
}

/// Makes a directory of files with so many bytes each.
fn files(files: &[(&str, usize)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, len_bytes) in files {
        fs::write(directory.path().join(name), vec![7; *len_bytes]).unwrap();
    }
    directory
}

fn answer(file: u32, answer: Answer) -> Message {
    Message::FileAnswer(FileAnswer { file: FileId(file), answer })
}

fn hear(sending: &mut Sending<'_>, message: Message) {
    sending.handle(message).expect("an honest message");
}

fn need(need: Need) -> Answer {
    Answer::Need(Need { span_bytes: SPAN_BYTES, ..need })
}

fn fault() -> Fault {
    Fault::new(FaultCode::NoSpace, MessageSide::Target, "the disk is full")
}

fn said_goodbye(messages: &[Message]) -> bool {
    messages.iter().any(|message| matches!(message, Message::Finish(_)))
}

#[test]
fn a_session_says_goodbye_when_all_is_settled_and_ends_when_the_receiver_did() {
    let directory = files(&[("a", 10), ("b", 20)]);
    let mut hear_nothing = |_| {};
    let mut sending = begin(directory.path(), FileOptions::default(), &mut hear_nothing);
    let now = Instant::now();
    let messages = pumped(&mut sending, now);
    let names: Vec<_> = offers(&messages).iter().map(|offer| offer.name.clone()).collect();
    assert_eq!(names, [b"a", b"b"]);
    assert!(matches!(messages.last(), Some(Message::OffersEnd(end)) if end.bytes == 30));
    assert!(sending.tally().total_known && sending.tally().offered_files == 2);
    hear(&mut sending, answer(0, Answer::Skip));
    assert!(!said_goodbye(&pumped(&mut sending, now)), "the other is under way");
    assert!(!sending.context.shared.streams.stopping());
    hear(&mut sending, answer(1, Answer::Skip));
    assert!(said_goodbye(&pumped(&mut sending, now)));
    assert!(sending.context.shared.streams.stopping());
    assert!(!said_goodbye(&pumped(&mut sending, now)), "once");
    let report = SideReport { bad_spans: 3, ..SideReport::default() };
    hear(&mut sending, Message::Finish(Finish { report: Some(report.clone()) }));
    let ended = sending.pump(now);
    assert!(matches!(ended, Ok(Pumped::Ended(SessionEnd::Finished))), "{ended:?}");
    assert_eq!(sending.peer_report, Some(report));
    assert_eq!(sending.tally().skipped_files, 2);
}

#[test]
fn a_receiver_that_refuses_ends_the_session_and_after_the_goodbye_is_no_fault() {
    for is_finishing in [false, true] {
        let directory = files(&[("a", 10)]);
        let mut hear_nothing = |_| {};
        let mut sending = begin(directory.path(), FileOptions::default(), &mut hear_nothing);
        let now = Instant::now();
        pumped(&mut sending, now);
        if is_finishing {
            hear(&mut sending, answer(0, Answer::Skip));
            pumped(&mut sending, now);
        }
        hear(&mut sending, Message::Refused(fault()));
        match sending.pump(now) {
            Err(refused) => assert!(!is_finishing && refused == fault()),
            Ok(Pumped::Ended(SessionEnd::Refused(refused))) => {
                assert!(is_finishing && refused == fault());
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_receiver_that_may_only_list_gets_no_file() {
    let directory = files(&[("a", 10)]);
    for giving in [Giving::Files, Giving::Listing] {
        let mut hear_nothing = |_| {};
        let walk = without_peer::walk_in(directory.path(), WalkOptions::default());
        let options = without_peer::options(FileOptions::default());
        let options = SendingOptions { giving, ..options };
        let mut sending = without_peer::sending(walk, options, &mut hear_nothing);
        pumped(&mut sending, Instant::now());
        let handled = sending.handle(answer(0, need(Need::default())));
        assert_eq!(handled.is_ok(), giving == Giving::Files, "{giving:?}");
        if giving == Giving::Listing {
            hear(&mut sending, answer(0, Answer::Skip));
        }
    }
}

/// A role whose client has yet to select files of a directory.
fn awaited<'a>(directory: &Path, hear_nothing: &'a mut dyn FnMut(Event)) -> Sending<'a> {
    let mut sending = begin(directory, FileOptions::default(), hear_nothing);
    let root = Root::open_without(directory, &[]).unwrap();
    let top = vec![Top::Tree(Tree { root, path: Vec::new(), name: Vec::new() })];
    let (options, arriving) = Default::default();
    sending.sources = Sources::AwaitSelection { top, options, arriving };
    sending
}

#[test]
fn files_that_the_client_selects_are_sent_and_a_fault_of_its_user_ends_the_session() {
    let selection = |pattern: &[u8]| {
        let rule = message::FilterRule { include: false, pattern: pattern.into() };
        Message::Selection(message::Selection { rules: vec![rule], ..Default::default() })
    };
    let directory = files(&[("a", 10), ("b", 10)]);
    let (mut one, mut other) = (|_| {}, |_| {});
    let now = Instant::now();
    let mut sending = awaited(directory.path(), &mut one);
    assert_eq!(pumped(&mut sending, now), [], "nothing is known to be sent");
    hear(&mut sending, selection(b"a"));
    let messages = pumped(&mut sending, now);
    assert_eq!(offers(&messages)[0].name, b"b");
    assert!(sending.handle(selection(b"a")).is_err(), "it was announced once");
    let mut sending = awaited(directory.path(), &mut other);
    hear(&mut sending, selection(b"["));
    assert_eq!(sending.pump(now).unwrap_err().code, FaultCode::NameRefused);
}

#[test]
fn a_sender_tells_what_the_receiver_says() {
    let directory = files(&[("a", 3 * SPAN_BYTES as usize)]);
    let mut told = Vec::new();
    let mut hear_all = |event| told.push(event);
    let mut sending = begin(directory.path(), FileOptions::default(), &mut hear_all);
    let now = Instant::now();
    pumped(&mut sending, now);
    let stored_as = b"other".to_vec();
    hear(&mut sending, answer(0, need(Need { stored_as, ..Need::default() })));
    let notice = |fault| {
        let (what, why) = ("splice -> read-write".into(), "no pipe".into());
        Message::Notice(Notice { what, why, stream: StreamId(0), fault })
    };
    hear(&mut sending, notice(None));
    hear(&mut sending, notice(Some(fault())));
    let streams = vec![StreamProgress { stream: StreamId(4), received_bytes: 9, on_storage: true }];
    for (received_bytes, durable_bytes) in [(100, 7), (u64::MAX, 5), (90, 80)] {
        let streams = streams.clone();
        hear(&mut sending, Message::Progress(Progress { received_bytes, durable_bytes, streams }));
    }
    pumped(&mut sending, now);
    assert_eq!(sending.tally().failed_files, 1);
    let tally = sending.tally();
    assert_eq!((tally.received_bytes, tally.durable_bytes), (3 * SPAN_BYTES, 80));
    assert_eq!(sending.streams.watch.receiver[&StreamId(4)], streams[0]);
    let sources = lock(&sending.context.shared.sources);
    assert_eq!(sources[&FileId(0)].stored_as, Some(Name(b"other".to_vec())));
    drop(sources);
    let at = now + SECOND;
    sending.heard(at);
    assert_eq!(sending.streams.watch.heard_at, at);
    sending.tell(Event::Waiting { server: "it".into(), seconds: 1.0, why: String::new() });
    drop(sending);
    let [Event::Fallback { side, why, .. }, Event::Error(problem), Event::Waiting { .. }] =
        &told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!((*side, &**why, &*problem.what), (Side::Target, "no pipe", "the disk is full"));
}

#[test]
fn bytes_cannot_be_durable_before_they_are_received() {
    let directory = files(&[("a", 100)]);
    let mut hear_nothing = |_| {};
    let mut sending = begin(directory.path(), FileOptions::default(), &mut hear_nothing);
    pumped(&mut sending, Instant::now());
    let progress = Progress { received_bytes: 60, durable_bytes: 70, streams: Vec::new() };
    hear(&mut sending, Message::Progress(progress));
    pumped(&mut sending, Instant::now());
    assert_eq!(sending.tally().durable_bytes, 60);
}

#[test]
fn a_damaged_span_is_counted_and_a_closed_stream_is_shut() {
    let directory = files(&[("a", 3 * SPAN_BYTES as usize)]);
    let mut hear_nothing = |_| {};
    let mut sending = begin(directory.path(), FileOptions::default(), &mut hear_nothing);
    let now = Instant::now();
    pumped(&mut sending, now);
    let (near, mut far) = without_peer::open_stream(&sending.context, StreamId(0));
    hear(&mut sending, answer(0, need(Need::default())));
    lock(&sending.context.shared.machine).next_span(StreamId(0)).unwrap();
    for _ in 0..2 {
        let (file, span, stream) = (FileId(0), SpanIndex(0), StreamId(0));
        hear(&mut sending, Message::SpanBad(SpanBad { file, span, stream }));
    }
    let closed = message::StreamClosed { stream: StreamId(0) };
    hear(&mut sending, Message::StreamClosed(closed));
    pumped(&mut sending, now);
    assert_eq!(sending.tally().resent_spans, 2);
    assert_eq!(std::io::Read::read(&mut far, &mut [0]).unwrap(), 0);
    drop(near);
    sending.stop();
}

/// Offers a file of four spans, of which the receiver has the first `durable`. The first is a hole.
fn resumed(durable: u32, hear_all: &mut dyn FnMut(Event)) -> (u64, u64) {
    let directory = files(&[("a", 4 * SPAN_BYTES as usize)]);
    let mut sending = begin(directory.path(), FileOptions::default(), hear_all);
    pumped(&mut sending, Instant::now());
    let mut sources = lock(&sending.context.shared.sources);
    let entry = Arc::make_mut(&mut sources.get_mut(&FileId(0)).unwrap().entry);
    entry.offer.holes = vec![Extent { offset_bytes: 0, len_bytes: SPAN_BYTES }];
    drop(sources);
    let durable = vec![SpanRange { first: SpanIndex(0), count: durable }];
    hear(&mut sending, answer(0, need(Need { durable, ..Need::default() })));
    pumped(&mut sending, Instant::now());
    let tally = sending.tally();
    let counted = (tally.resumed_bytes, tally.hole_bytes);
    // What is lost goes out again.
    let spans = vec![SpanRange { first: SpanIndex(0), count: 1 }];
    hear(&mut sending, Message::SpansLost(message::SpansLost { file: FileId(0), spans }));
    pumped(&mut sending, Instant::now());
    assert_eq!(sending.tally().resumed_bytes, counted.0.saturating_sub(SPAN_BYTES));
    counted
}

#[test]
fn bytes_of_an_earlier_run_are_told_and_those_of_holes_are_not() {
    for (durable, bytes) in [(3, 2 * SPAN_BYTES), (1, 0)] {
        let mut told = Vec::new();
        let counted = resumed(durable, &mut |event| told.push(event));
        assert_eq!(counted, (bytes, SPAN_BYTES));
        let resumes = told.iter().filter_map(|event| match event {
            Event::Resume { bytes, .. } => Some(*bytes),
            _ => None,
        });
        assert_eq!(resumes.collect::<Vec<_>>(), [bytes][..usize::from(bytes > 0)]);
    }
}

#[test]
fn names_that_are_removed_at_the_target_are_told_and_counted() {
    for (dry_run, status) in [(false, FileStatus::Removed), (true, FileStatus::WouldRemove)] {
        let directory = files(&[]);
        let mut told = Vec::new();
        let mut hear_all = |event| told.push(event);
        let removal = Some(Removal::new(None));
        let file_options = FileOptions { dry_run, removal, ..FileOptions::default() };
        let mut sending = begin(directory.path(), file_options, &mut hear_all);
        pumped(&mut sending, Instant::now());
        for names in [vec![b"x".to_vec(), b"y".to_vec()], vec![b"z".to_vec()]] {
            hear(&mut sending, Message::Removed(Removed { names }));
        }
        pumped(&mut sending, Instant::now());
        assert_eq!(sending.tally().removed_files, 3);
        drop(sending);
        let removed = told.iter().map(|event| match event {
            Event::File(file) => (file.path.0.clone(), file.status.clone()),
            other => panic!("{other:?}"),
        });
        let expected = [b"x", b"y", b"z"].map(|name| (name.to_vec(), status.clone()));
        assert_eq!(removed.collect::<Vec<_>>(), expected);
    }
}

/// The peer of a server may wait for its user: it has 360 stall timeouts.
#[test]
fn only_what_brings_the_transfer_on_counts_as_something_done() {
    for (says, is_patient) in [(0, false), (1, false), (2, true)] {
        let directory = files(&[("a", 10), ("b", 10)]);
        let mut hear_nothing = |_| {};
        let walk = without_peer::walk_in(directory.path(), WalkOptions::default());
        let options = without_peer::options(FileOptions::default());
        let options = SendingOptions { stall_after: SECOND, ..options };
        let mut sending = without_peer::sending(walk, options, &mut hear_nothing);
        let begun = Instant::now();
        pumped(&mut sending, begun);
        pumped(&mut sending, begun + SECOND * 2);
        match says {
            0 => hear(&mut sending, Message::Progress(Progress::default())),
            1 => hear(&mut sending, Message::Notice(Notice::default())),
            _ => hear(&mut sending, answer(0, Answer::Skip)),
        }
        pumped(&mut sending, begun + SECOND * 350);
        assert_eq!(sending.pump(begun + SECOND * 400).is_ok(), is_patient, "{says}");
    }
}

/// A role that watches a directory in which nothing is.
fn watch<'a>(directory: &Path, hear_nothing: &'a mut dyn FnMut(Event)) -> Sending<'a> {
    let mut file_options = FileOptions::default();
    file_options.recording.watch = true;
    let watch = Some(Arc::default());
    let walk = without_peer::walk_in(directory, WalkOptions { watch, ..WalkOptions::default() });
    without_peer::sending(walk, without_peer::options(file_options), hear_nothing)
}

#[test]
fn a_user_s_end_of_a_watch_is_in_order_where_nothing_is_under_way() {
    let directory = files(&[]);
    let mut hear_nothing = |_| {};
    let mut sending = watch(directory.path(), &mut hear_nothing);
    let now = Instant::now();
    assert_eq!(pumped(&mut sending, now), []);
    assert!(!sending.ends_in_order(now), "a server has no user");
    sending.interrupted_at = None;
    become_client(&mut sending);
    let moment = Duration::from_nanos(1);
    let times = [Duration::ZERO, GOODBYE_PATIENCE - moment, GOODBYE_PATIENCE];
    assert_eq!(times.map(|after| sending.ends_in_order(now + after)), [true, true, false]);
    let messages = pumped(&mut sending, now);
    assert!(said_goodbye(&messages), "{messages:?}");
    let mut nobody = |_| {};
    let mut no_watch = begin(directory.path(), FileOptions::default(), &mut nobody);
    become_client(&mut no_watch);
    assert!(!no_watch.ends_in_order(now), "it has an end of its own");
}

#[test]
fn a_user_s_end_of_a_watch_while_files_are_under_way_is_an_interruption() {
    let directory = files(&[("a", 10)]);
    let long_ago = std::time::SystemTime::UNIX_EPOCH + SECOND;
    fs::File::open(directory.path().join("a")).unwrap().set_modified(long_ago).unwrap();
    let mut hear_nothing = |_| {};
    let mut sending = watch(directory.path(), &mut hear_nothing);
    become_client(&mut sending);
    let now = Instant::now();
    assert_eq!(offers(&pumped(&mut sending, now)).len(), 1);
    assert!(!sending.ends_in_order(now) && sending.interrupted_at.is_none());
    sending.context.finishing = true;
    assert!(sending.ends_in_order(now), "the goodbye is under way already");
}

#[test]
fn a_watch_that_ends_names_what_it_did_not_send() {
    let directory = files(&[("young", 10)]);
    let mut told = Vec::new();
    let mut hear_all = |event| told.push(event);
    let mut sending = watch(directory.path(), &mut hear_all);
    become_client(&mut sending);
    let now = Instant::now();
    assert_eq!(pumped(&mut sending, now), [], "its writer may not be done with it");
    assert!(sending.ends_in_order(now));
    assert_eq!(sending.tally().failed_files, 1);
    drop(sending);
    assert!(matches!(&told[..], [Event::Error(_)]), "{told:?}");
}

#[test]
fn a_role_says_what_is_under_way_and_what_its_streams_moved() {
    let directory = files(&[("b", 10), ("c", 10)]);
    fs::create_dir(directory.path().join("a")).unwrap();
    let mut hear_nothing = |_| {};
    let mut sending = begin(directory.path(), FileOptions::default(), &mut hear_nothing);
    assert_eq!(sending.current(), None);
    pumped(&mut sending, Instant::now());
    assert_eq!(sending.current(), Some(Name(b"b".to_vec())), "not a directory");
    assert_eq!(Reported::current(&sending), sending.current());
    let (mut near, _far) = without_peer::open_stream(&sending.context, StreamId(0));
    assert!(!sending.context.shared.streams.stopping());
    near.write_all(&[7; 1000]).unwrap();
    without_peer::wait_until("there", || sending.moved_bytes() >= 1000);
    let set = |figures: &mut super::super::streams::StreamFigures| figures.wall_ns = 5_000_000;
    sending.context.shared.streams.set_figures(StreamId(0), set);
    assert!(sending.figures().streams_ns > 0 && Reported::figures(&sending).streams_ns > 0);
    Reported::stop(&mut sending);
    assert!(sending.context.shared.streams.stopping());
}

#[test]
fn a_report_says_how_the_engine_was_chosen_and_what_was_removed() {
    let directory = files(&[("a", 10)]);
    let mut hear_nothing = |_| {};
    let mut sending = begin(directory.path(), FileOptions::default(), &mut hear_nothing);
    assert_eq!(sending.report().because, "");
    pumped(&mut sending, Instant::now());
    sending.context.tally.sources_removed = 3;
    let report = sending.report();
    assert_eq!(report.sources_removed, 3);
    assert!(report.because.ends_with("; ") && report.because.len() > 10, "{report:?}");
}

#[test]
fn only_a_server_has_the_last_word() {
    let directory = files(&[]);
    let mut hear_nothing = |_| {};
    let mut sending = begin(directory.path(), FileOptions::default(), &mut hear_nothing);
    assert!(sending.has_last_word());
    become_client(&mut sending);
    assert!(!sending.has_last_word());
}

#[test]
fn a_followed_file_leaves_its_lag_and_its_memory_to_the_next_session() {
    let directory = files(&[("a", 10)]);
    let mut file_options = FileOptions::default();
    file_options.recording.follow = true;
    let mut hear_nothing = |_| {};
    let mut sending = begin(directory.path(), file_options, &mut hear_nothing);
    pumped(&mut sending, Instant::now());
    assert_eq!(sending.largest_lag(), None);
    let lag = Lag { path: Name(b"a".to_vec()), bytes: 5, seconds: 1.0 };
    let following = sending.stages.following.as_mut().expect("it follows");
    following.lag.largest = Some(lag.clone());
    assert_eq!(sending.largest_lag(), Some(lag));
    assert_eq!(Reported::largest_lag(&sending), sending.largest_lag());
    assert!(Reported::take_written(&mut sending).contains_key(&b"a"[..]));
    let mut nobody = |_| {};
    let mut plain = begin(directory.path(), FileOptions::default(), &mut nobody);
    assert!(plain.largest_lag().is_none() && plain.take_written().is_empty());
}

#[test]
fn an_explanation_goes_out_before_what_else_is_said() {
    let directory = files(&[("a", 10)]);
    let mut hear_nothing = |_| {};
    let file_options = FileOptions { explain: true, ..FileOptions::default() };
    let mut sending = begin(directory.path(), file_options, &mut hear_nothing);
    let messages = pumped(&mut sending, Instant::now());
    assert!(matches!(&messages[..], [Message::Explained(_), Message::FileOffer(_), ..]));
}

#[test]
fn a_file_that_is_durable_is_done() {
    let directory = files(&[("a", 0)]);
    let mut hear_nothing = |_| {};
    let mut sending = begin(directory.path(), FileOptions::default(), &mut hear_nothing);
    let now = Instant::now();
    pumped(&mut sending, now);
    hear(&mut sending, answer(0, need(Need::default())));
    let messages = pumped(&mut sending, now);
    assert!(matches!(&messages[..], [Message::FileConfirm(_)]), "{messages:?}");
    hear(&mut sending, Message::FileSettled(FileSettled { file: FileId(0), fault: None }));
    assert!(said_goodbye(&pumped(&mut sending, now)));
    assert_eq!(sending.tally().done_files, 1);
}

#[test]
fn bytes_of_an_earlier_run_count_for_nothing_where_their_file_fails() {
    let directory = files(&[("a", 3 * SPAN_BYTES as usize)]);
    let mut hear_nothing = |_| {};
    let mut sending = begin(directory.path(), FileOptions::default(), &mut hear_nothing);
    let now = Instant::now();
    pumped(&mut sending, now);
    let durable = vec![SpanRange { first: SpanIndex(0), count: 2 }];
    hear(&mut sending, answer(0, need(Need { durable, ..Need::default() })));
    pumped(&mut sending, now);
    assert_eq!(sending.tally().resumed_bytes, 2 * SPAN_BYTES);
    lock(&sending.context.shared.machine).source_failed(FileId(0), fault());
    let settled = FileSettled { file: FileId(0), fault: Some(fault()) };
    hear(&mut sending, Message::FileSettled(settled));
    pumped(&mut sending, now);
    assert_eq!((sending.tally().resumed_bytes, sending.tally().failed_files), (0, 1));
}

#[test]
fn a_side_s_report_has_its_sources_that_went_and_the_time_for_which_it_was_held() {
    let of_streams = SideReport { copied_bytes: 7, ..SideReport::default() };
    let report = of_role(of_streams.clone(), 5, 3);
    assert_eq!((report.throttled_ns, report.sources_removed), (5, 3));
    assert_eq!(report.copied_bytes, 7);
}
