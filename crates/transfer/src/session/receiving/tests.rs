//! Tests of a whole receiving role: answers, faults, notices, counts and the goodbye.

use super::*;
use crate::{
    file_options::{FileOptions, OnConflict, Preserve, Recording, Removal},
    file_status::FileStatus,
    session::{disclosure::Telling, reported::Reported, role::SessionEnd},
    storage::{root::Root, target_place::PathMeans},
};
use haul_protocol::{
    FileId,
    frame::PayloadStatus,
    message::{
        Answer, Compared, FileConfirm, FileKind, FileOffer, Finish, Growth, Notice, OffersEnd,
        Side as Where,
    },
};
use haul_testkit::{mount::Mount, skip::skip};
use std::{fs, os::unix::fs::MetadataExt, path::Path, time::Duration};
use with_sender::{SPAN, Session, directory, offer};

/// Events of a session that a test asks about.
#[derive(Debug, Default, PartialEq)]
struct Told {
    files: Vec<(String, FileStatus)>,
    directories: Vec<String>,
    errors: Vec<String>,
    left_out: Vec<String>,
    fallbacks: Vec<String>,
    resumed: Vec<u64>,
    explained: usize,
}

impl Told {
    fn hear(&mut self, event: Event) {
        match event {
            Event::File(file) => {
                let name = String::from_utf8(file.path.0).unwrap();
                self.directories.extend(file.is_directory.then(|| name.clone()));
                self.files.push((name, file.status));
            }
            Event::Error(problem) => self.errors.push(problem.what),
            Event::LeftOut(problem) => self.left_out.push(problem.what),
            Event::Fallback { from_to, .. } => self.fallbacks.push(from_to),
            Event::Resume { bytes, .. } => self.resumed.push(bytes),
            Event::Explained(_) => self.explained += 1,
            _ => {}
        }
    }
}

fn options() -> ReceivingOptions {
    ReceivingOptions { span_bytes: Some(SPAN), ..without_peer::options() }
}

/// Runs a session that receives to a place, and returns what it told.
fn session_to(
    place: TargetPlace,
    options: ReceivingOptions,
    test: impl FnOnce(&mut Session<'_>),
) -> Told {
    let mut told = Told::default();
    let mut hear = |event| told.hear(event);
    let mut session = Session::begin(place, options, StreamSetup::of_nobody(), &mut hear);
    test(&mut session);
    session.role.stop();
    drop(session);
    told
}

fn session(at: &Path, file_options: FileOptions, test: impl FnOnce(&mut Session<'_>)) -> Told {
    session_to(without_peer::place(at, file_options), options(), test)
}

/// Says an offer, and waits for its answer.
fn ask(session: &mut Session<'_>, offer: FileOffer) -> Answer {
    let file = offer.file.0;
    session.say(Message::FileOffer(offer));
    session.until("an answer", |it| it.answer_to(file).is_some());
    session.answer_to(file).expect("it was waited for")
}

fn confirm(session: &mut Session<'_>, file: u32, fault: Option<Fault>) {
    session.say(Message::FileConfirm(FileConfirm { file: FileId(file), fault }));
}

fn source_fault(code: FaultCode) -> Fault {
    Fault::new(code, Where::Source, "cannot be read").at("x")
}

/// Sends the first spans of a file, and waits until they are verified.
fn send_spans(session: &mut Session<'_>, file: u32, spans: u64) {
    let verified = |it: &Session<'_>| it.role.context.shared.verified_bytes.load(Ordering::Relaxed);
    let (mut stream, before) = (session.stream(), verified(session));
    for span in 0..spans {
        let span = stream.span(file, span * SPAN, &[7; SPAN as usize], PayloadStatus::Whole);
        stream.write(&span);
    }
    stream.end();
    session.until("spans", |it| verified(it) == before + spans * SPAN);
}

fn watching() -> FileOptions {
    let recording = Recording { watch: true, ..Recording::default() };
    FileOptions { recording, ..FileOptions::default() }
}

fn following() -> FileOptions {
    let recording = Recording { follow: true, ..Recording::default() };
    FileOptions { recording, ..FileOptions::default() }
}

#[test]
fn a_second_file_of_a_name_fails_and_the_first_stands() {
    let place = tempfile::tempdir().unwrap();
    let told = session(place.path(), FileOptions::default(), |session| {
        assert!(matches!(ask(session, offer(0, "x", 10)), Answer::Need(_)));
        assert!(matches!(ask(session, offer(1, "x", 10)), Answer::Fault(_)));
        let tally = session.role.tally();
        assert_eq!((tally.failed_files, tally.first_problem.is_some()), (1, true));
        assert_eq!(session.role.current(), Some(Name(b"x".to_vec())));
        assert_eq!(Reported::current(&session.role), Some(Name(b"x".to_vec())));
    });
    assert_eq!(told.files, [("x".to_owned(), FileStatus::Failed)]);
    assert_eq!(told.errors.len(), 1);
}

#[test]
fn what_a_sender_gives_up_fails_and_only_bytes_of_a_source_that_stayed_the_same_are_kept() {
    for (code, stays) in [(FaultCode::SourceChanged, false), (FaultCode::IoFailed, true)] {
        let place = tempfile::tempdir().unwrap();
        let told = session(place.path(), FileOptions::default(), |session| {
            ask(session, offer(0, "x", 3 * SPAN));
            send_spans(session, 0, 2);
            session.until("durable", |it| it.role.context.shared.committer.durable_bytes() > 0);
            confirm(session, 0, Some(source_fault(code)));
            assert_eq!(session.settled([0]), [Some(source_fault(code))]);
            assert_eq!(session.role.tally().failed_files, 1);
        });
        assert_eq!(place.path().join(".x.haul-part").exists(), stays, "{code:?}");
        assert_eq!(told.files, [("x".to_owned(), FileStatus::Failed)]);
        assert_eq!(told.errors.len(), 1);
    }
}

#[test]
fn a_source_that_changed_comes_later_in_a_watch_and_fails_otherwise() {
    for (file_options, code, comes_later) in [
        (watching(), FaultCode::SourceChanged, true),
        (watching(), FaultCode::IoFailed, false),
        (FileOptions::default(), FaultCode::NotFound, false),
    ] {
        let place = tempfile::tempdir().unwrap();
        let told = session(place.path(), file_options, |session| {
            ask(session, offer(0, "x", 10));
            assert_eq!(session.role.tally().offered_files, 1);
            confirm(session, 0, Some(source_fault(code)));
            session.turn();
            let tally = session.role.tally();
            let expected = if comes_later { (0, 0) } else { (1, 1) };
            assert_eq!((tally.failed_files, tally.offered_files), expected, "{code:?}");
            assert!(session.role.context.open.is_empty());
        });
        assert_eq!(told.files.len(), usize::from(!comes_later));
        assert_eq!(told.errors.len(), usize::from(!comes_later));
    }
}

#[test]
fn a_round_of_a_file_that_changes_as_it_shall_is_no_failure() {
    for (code, goes_on) in [(FaultCode::SourceChanged, true), (FaultCode::IoFailed, false)] {
        let place = tempfile::tempdir().unwrap();
        let told = session(place.path(), following(), |session| {
            let round = FileOffer { growth: Growth::Growing, ..offer(0, "x", 2 * SPAN) };
            ask(session, round);
            confirm(session, 0, Some(source_fault(code)));
            session.turn();
            assert_eq!(session.role.tally().failed_files, u64::from(!goes_on));
            assert_eq!(session.role.tally().offered_files, 1);
        });
        assert_eq!(told.files.len(), usize::from(!goes_on), "{told:?}");
    }
}

#[test]
fn a_round_that_is_durable_is_no_file_that_ended() {
    let place = tempfile::tempdir().unwrap();
    let told = session(place.path(), following(), |session| {
        assert!(session.role.largest_lag().is_none());
        ask(session, FileOffer { growth: Growth::Growing, ..offer(0, "x", 2 * SPAN) });
        send_spans(session, 0, 2);
        confirm(session, 0, None);
        assert_eq!(session.settled([0]), [None]);
        assert_eq!(session.role.tally().done_files, 0);
        let lag = Reported::largest_lag(&session.role);
        assert_eq!(lag.map(|lag| lag.path), Some(Name(b"x".to_vec())));
    });
    assert_eq!(told.files, []);
    assert!(place.path().join(".x.haul-part").exists() && !place.path().join("x").exists());
}

#[test]
fn files_that_grow_are_taken_only_where_they_are_followed() {
    for (file_options, growth, is_refused) in [
        (FileOptions::default(), Growth::Growing, true),
        (FileOptions::default(), Growth::NotGrowing, false),
        (following(), Growth::Growing, false),
    ] {
        let place = tempfile::tempdir().unwrap();
        session(place.path(), file_options, |session| {
            let offer = FileOffer { growth, ..offer(0, "x", 2 * SPAN) };
            let handled = session.role.handle(Message::FileOffer(offer));
            assert_eq!(handled.is_err(), is_refused);
        });
    }
}

#[test]
fn no_more_large_files_are_open_than_may_and_small_ones_wait_for_none() {
    let mut options = options();
    options.offers.files = 200;
    session_to(TargetPlace::Null, options, |session| {
        let mut number = 0;
        // The first is answered at once, and others until there are too many.
        session.say(Message::FileOffer(offer(0, "0", 2 * SPAN)));
        assert!(session.role.context.open[&FileId(0)].pass.is_some());
        while session.role.context.open[&FileId(number)].pass.is_some() {
            number += 1;
            assert!(number < 100, "no end of large files");
            session.say(Message::FileOffer(offer(number, &number.to_string(), 2 * SPAN)));
        }
        let [waits, small, large] = [number, number + 1, number + 2];
        session.say(Message::FileOffer(offer(small, "small", SPAN)));
        session.say(Message::FileOffer(offer(large, "large", SPAN + 1)));
        session.turn();
        assert!(session.answer_to(waits).is_none() && session.answer_to(large).is_none());
        assert!(session.answer_to(small).is_some());
        assert!(session.role.context.open[&FileId(small)].pass.is_none());
        session.role.context.fail(FileId(0), Fault::default());
        session.until("room", |it| it.answer_to(waits).is_some());
        assert!(session.answer_to(large).is_none());
        // One that was given up while it waited holds up nobody.
        session.role.context.fail(FileId(large), Fault::default());
        session.role.context.fail(FileId(1), Fault::default());
        session.turn();
        assert!(session.answer_to(large).is_none());
        session.say(Message::FileOffer(offer(number + 3, "last", 2 * SPAN)));
        session.until("room", |it| it.answer_to(number + 3).is_some());
    });
}

fn renamed(at: &Path, file_options: FileOptions) -> TargetPlace {
    let root = Root::open(at).unwrap();
    TargetPlace::resolve(&root, b"new", PathMeans::Name, file_options).unwrap()
}

#[test]
fn the_one_source_gets_the_name_that_was_asked_for_unless_it_is_a_directory() {
    for is_directory in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let removal = Some(Removal::new(None));
        let file_options = FileOptions { removal, ..FileOptions::default() };
        session_to(renamed(place.path(), file_options), options(), |session| {
            let first = if is_directory { directory(0, "x") } else { offer(0, "x", 0) };
            ask(session, first);
            assert_eq!(session.role.tally().keeps_source_name, is_directory);
            confirm(session, 0, None);
            assert_eq!(session.settled([0]), [None]);
            session.offers_end();
            session.until("its goodbye", says_goodbye);
        });
        assert_eq!(place.path().join("new").is_file(), !is_directory);
        assert_eq!(place.path().join("new/x").is_dir(), is_directory);
    }
}

fn says_goodbye(session: &mut Session<'_>) -> bool {
    session.said.iter().any(|message| matches!(message, Message::Finish(_)))
}

fn link(number: u32, name: &str, to: &str) -> FileOffer {
    let link_target = to.as_bytes().to_vec();
    FileOffer { kind: FileKind::HardLink, link_target, ..offer(number, name, 0) }
}

#[test]
fn a_hard_link_that_cannot_be_made_is_offered_again_as_a_file_and_nothing_else_is() {
    let place = tempfile::tempdir().unwrap();
    let mut options = options();
    let (name, has_come) = (b"expected".to_vec(), false);
    options.expected = Some(vec![Expected { name, has_come }]);
    let target = without_peer::place(place.path(), FileOptions::default());
    let told = session_to(target, options, |session| {
        let code = |answer| match answer {
            Answer::Fault(fault) => fault.code,
            other => panic!("{other:?}"),
        };
        let linked = ask(session, link(0, "expected/link", "expected/gone"));
        assert_eq!(code(linked), FaultCode::KindUnsupported);
        let tally = session.role.tally();
        assert_eq!((tally.offered_files, tally.failed_files), (0, 0));
        assert!(session.role.context.open.is_empty());
        let unasked = ask(session, link(1, "unasked/link", "unasked/gone"));
        assert_eq!(code(unasked), FaultCode::NameRefused);
        let unknown = FileOffer { kind: FileKind::Unknown, ..offer(2, "expected/unknown", 0) };
        assert_eq!(code(ask(session, unknown)), FaultCode::KindUnsupported);
        let tally = session.role.tally();
        assert_eq!((tally.offered_files, tally.failed_files), (2, 2));
    });
    let failed = ["unasked/link", "expected/unknown"];
    assert_eq!(told.files, failed.map(|name| (name.to_owned(), FileStatus::Failed)));
}

#[test]
fn a_directory_in_the_way_of_a_file_goes_with_what_was_not_offered() {
    for (is_expected, goes) in [(true, true), (false, false)] {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("x/in-it")).unwrap();
        let removal = Some(Removal { names_max: None, of_base: true });
        let file_options = FileOptions { removal, ..FileOptions::default() };
        let mut options = options();
        let name = if is_expected { b"x".to_vec() } else { b"y".to_vec() };
        options.expected = Some(vec![Expected { name, has_come: true }]);
        session_to(without_peer::place(place.path(), file_options), options, |session| {
            // Where it was not asked for, the fault is that alone.
            if !is_expected {
                fs::remove_dir_all(place.path().join("x")).unwrap();
                fs::create_dir(place.path().join("other")).unwrap();
            }
            let Answer::Fault(fault) = ask(session, offer(0, "x", 10)) else { panic!("taken") };
            assert_eq!(fault.code, FaultCode::NameRefused);
            session.offers_end();
            session.until("its goodbye", says_goodbye);
        });
        let left = if is_expected { "x" } else { "other" };
        assert_eq!(place.path().join(left).exists(), !goes);
    }
}

#[test]
fn a_sender_that_may_only_write_learns_little_of_what_is_there() {
    for (telling, found) in [(Telling::All, true), (Telling::Little, false)] {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("x"), "other").unwrap();
        let on_conflict = OnConflict::Fail;
        let file_options = FileOptions { on_conflict, ..FileOptions::default() };
        let mut options = options();
        options.telling = telling;
        session_to(without_peer::place(place.path(), file_options), options, |session| {
            let Answer::Fault(fault) = ask(session, offer(0, "x", 10)) else { panic!("taken") };
            assert_eq!((fault.code, fault.found.is_empty()), (FaultCode::Exists, !found));
            // A link to a file that this session did not bring would tell that it is there.
            let linked = ask(session, link(1, "link", "x"));
            assert_eq!(matches!(linked, Answer::Need(_)), found, "{linked:?}");
            // To one that it brought it may be made.
            ask(session, offer(2, "ours", 0));
            confirm(session, 2, None);
            assert_eq!(session.settled([2]), [None]);
            assert!(matches!(ask(session, link(3, "own", "ours")), Answer::Need(_)));
            // Another fault says all.
            let bad = ask(session, offer(4, ".y.haul-part", 10));
            let Answer::Fault(bad) = bad else { panic!("{bad:?}") };
            assert!(!bad.found.is_empty());
        });
    }
}

#[test]
fn a_dry_run_to_nowhere_plans_and_asks_for_nothing() {
    let mut options = options();
    options.dry_run = true;
    let told = session_to(TargetPlace::Null, options, |session| {
        assert!(matches!(ask(session, offer(0, "x", 10)), Answer::Plan(_)));
        let tally = session.role.tally();
        assert_eq!((tally.planned_files, tally.replaced_files), (1, 0));
    });
    assert_eq!(told.files, [("x".to_owned(), FileStatus::WouldCopy)]);
    session_to(TargetPlace::Null, self::options(), |session| {
        assert!(matches!(ask(session, offer(0, "x", 10)), Answer::Need(_)));
    });
}

#[test]
fn holes_are_neither_sent_nor_taken_for_what_an_earlier_run_left() {
    let place = tempfile::tempdir().unwrap();
    let hole = message::Extent { offset_bytes: 3 * SPAN, len_bytes: SPAN };
    let with_hole = || FileOffer { holes: vec![hole], ..offer(0, "x", 4 * SPAN) };
    let told = session(place.path(), FileOptions::default(), |session| {
        let Answer::Need(need) = ask(session, with_hole()) else { panic!("it is needed") };
        assert_eq!(need.durable.len(), 1);
        let tally = session.role.tally();
        assert_eq!((tally.hole_bytes, tally.resumed_bytes, tally.span_bytes), (SPAN, 0, SPAN));
        send_spans(session, 0, 2);
    });
    assert_eq!(told.resumed, [0; 0]);
    let told = session(place.path(), FileOptions::default(), |session| {
        ask(session, with_hole());
        let tally = session.role.tally();
        assert_eq!((tally.hole_bytes, tally.resumed_bytes), (SPAN, 2 * SPAN));
        // Nothing of a file that fails is in place.
        confirm(session, 0, Some(source_fault(FaultCode::IoFailed)));
        session.turn();
        let tally = session.role.tally();
        assert_eq!((tally.hole_bytes, tally.resumed_bytes), (0, 0));
    });
    assert_eq!(told.resumed, [2 * SPAN]);
}

#[test]
fn notices_of_a_sender_say_what_it_left_out_what_failed_and_what_it_does_otherwise() {
    let place = tempfile::tempdir().unwrap();
    let told = session(place.path(), FileOptions::default(), |session| {
        let notice = |fault| Message::Notice(Notice { fault, ..Notice::default() });
        session.say(notice(Some(source_fault(FaultCode::KindUnsupported))));
        let tally = session.role.tally();
        assert_eq!((tally.left_out_files, tally.failed_files), (1, 0));
        session.say(notice(Some(source_fault(FaultCode::NotFound))));
        let tally = session.role.tally();
        assert_eq!((tally.left_out_files, tally.failed_files), (1, 1));
        let (what, why) = ("one -> other".into(), "it cannot".into());
        session.say(Message::Notice(Notice { what, why, ..Notice::default() }));
    });
    assert_eq!((told.left_out.len(), told.errors.len()), (1, 1));
    assert_eq!(told.fallbacks, ["one -> other"]);
}

#[test]
fn what_the_source_has_and_cannot_send_is_not_removed() {
    let place = tempfile::tempdir().unwrap();
    for name in ["fifo", "gone"] {
        fs::write(place.path().join(name), "").unwrap();
    }
    let removal = Some(Removal { names_max: None, of_base: true });
    let file_options = FileOptions { removal, ..FileOptions::default() };
    session(place.path(), file_options, |session| {
        let fault = Fault::new(FaultCode::KindUnsupported, Where::Source, "a FIFO").at("fifo");
        session.say(Message::Notice(Notice { fault: Some(fault), ..Notice::default() }));
        session.offers_end();
        session.until("its goodbye", says_goodbye);
        assert_eq!(session.role.tally().removed_files, 1);
    });
    assert!(place.path().join("fifo").exists() && !place.path().join("gone").exists());
}

#[test]
fn a_session_ends_when_both_have_said_goodbye_in_either_order() {
    let finish = || Message::Finish(Finish { report: Some(Default::default()) });
    session_to(TargetPlace::Null, options(), |session| {
        session.for_a_while(Duration::from_millis(20));
        assert!(!says_goodbye(session), "an offer may come");
        session.offers_end();
        assert!(session.role.tally().total_known);
        session.for_a_while(Duration::from_millis(20));
        assert!(says_goodbye(session) && session.ended.is_none());
        assert!(!session.role.has_last_word());
        session.say(finish());
        session.turn();
        assert!(matches!(session.ended, Some(Ok(SessionEnd::Finished))), "{:?}", session.ended);
        let goodbyes = session.said.iter().filter(|it| matches!(it, Message::Finish(_)));
        assert_eq!(goodbyes.count(), 1);
        assert!(Reported::take_peer_report(&mut session.role).is_some());
    });
    // The sender may be first, while this side still removes what was not offered.
    let place = tempfile::tempdir().unwrap();
    let removal = Some(Removal { names_max: None, of_base: true });
    let file_options = FileOptions { removal, ..FileOptions::default() };
    session(place.path(), file_options, |session| {
        session.role.handle(Message::OffersEnd(OffersEnd::default())).unwrap();
        session.role.handle(finish()).unwrap();
        session.until("the end", |it| it.ended.is_some());
        assert!(matches!(session.ended, Some(Ok(SessionEnd::Finished))), "{:?}", session.ended);
        assert!(says_goodbye(session));
    });
}

#[test]
fn a_fault_of_the_peer_ends_the_session() {
    session_to(TargetPlace::Null, options(), |session| {
        session.say(Message::Refused(source_fault(FaultCode::IoFailed)));
        session.turn();
        let Some(Err(fault)) = &session.ended else { panic!("{:?}", session.ended) };
        assert_eq!(*fault, source_fault(FaultCode::IoFailed));
    });
}

#[test]
fn a_stream_that_the_sender_drops_is_closed() {
    session_to(TargetPlace::Null, options(), |session| {
        ask(session, offer(0, "x", 2 * SPAN));
        let stream = session.stream();
        session.until("a stream", |it| it.role.context.shared.streams.open_count() == 1);
        let (stream, why) = (stream.stream, "it stalls".into());
        session.say(Message::StreamDrop(message::StreamDrop { stream, why }));
        session
            .until("its end", |it| it.said.iter().any(|it| matches!(it, Message::StreamClosed(_))));
    });
}

#[test]
fn a_selection_comes_only_where_it_was_announced_and_a_bad_one_ends_the_session() {
    let part = || message::Selection::default();
    session_to(TargetPlace::Null, options(), |session| {
        assert!(session.role.handle(Message::Selection(part())).is_err());
    });
    let announced = || ReceivingOptions { selection: Some(Arriving::default()), ..options() };
    session_to(TargetPlace::Null, announced(), |session| {
        let more_follows = true;
        session.say(Message::Selection(message::Selection { more_follows, ..part() }));
        assert!(session.role.context.matcher.is_none());
        session.say(Message::Selection(part()));
        assert!(session.role.context.matcher.is_some());
        assert!(session.role.handle(Message::Selection(part())).is_err(), "it is over");
    });
    session_to(TargetPlace::Null, announced(), |session| {
        let rule = message::FilterRule { include: false, pattern: b"[".to_vec() };
        session.say(Message::Selection(message::Selection { rules: vec![rule], ..part() }));
        session.turn();
        let Some(Err(fault)) = &session.ended else { panic!("{:?}", session.ended) };
        assert_eq!(fault.code, FaultCode::NameRefused);
    });
}

const STALL: Duration = Duration::from_secs(1);

fn stalling() -> ReceivingOptions {
    ReceivingOptions { stall_after: STALL, ..options() }
}

/// Whether the patience with a peer is over at this time.
fn is_over(session: &mut Session<'_>, at: Instant) -> bool {
    session.role.pump(at).is_err_and(|fault| fault.code == FaultCode::Stalled)
}

#[test]
fn a_peer_that_does_nothing_but_tell_is_given_up_and_one_that_does_something_is_not() {
    let drop = |stream| {
        let stream = haul_protocol::StreamId(stream);
        Message::StreamDrop(message::StreamDrop { stream, why: String::new() })
    };
    for (message, is_given_up) in
        [(None, true), (Some(Message::Notice(Notice::default())), true), (Some(drop(3)), false)]
    {
        session_to(TargetPlace::Null, stalling(), |session| {
            let begun = Instant::now() + STALL * 2;
            assert!(!is_over(session, begun));
            // Something was handled before.
            session.say(drop(2));
            assert!(!is_over(session, begun + STALL));
            if let Some(message) = message {
                session.say(message);
            }
            assert!(!is_over(session, begun + STALL * 360));
            assert_eq!(is_over(session, begun + STALL * 363), is_given_up);
        });
    }
}

#[test]
fn who_follows_or_watches_waits_for_the_next_offer_but_not_for_a_goodbye() {
    for file_options in [following(), watching()] {
        let place = tempfile::tempdir().unwrap();
        let target = without_peer::place(place.path(), file_options);
        session_to(target, stalling(), |session| {
            let begun = Instant::now() + STALL * 2;
            assert!(!is_over(session, begun) && !is_over(session, begun + STALL * 4000));
            session.offers_end();
            assert!(!is_over(session, begun + STALL * 4001));
            assert!(is_over(session, begun + STALL * 4400));
        });
    }
}

#[test]
fn a_server_is_given_up_sooner_where_nothing_that_was_asked_of_it_takes_long() {
    for (compare_content, stalls, is_given_up) in [(false, 13, true), (true, 13, false)] {
        let place = tempfile::tempdir().unwrap();
        let file_options = FileOptions { compare_content, ..FileOptions::default() };
        let target = without_peer::place(place.path(), file_options);
        let mut hear = |_| {};
        let mut session = Session::begin_client(target, stalling(), 1, &mut hear);
        let begun = Instant::now() + STALL * 2;
        assert!(!is_over(&mut session, begun));
        assert_eq!(is_over(&mut session, begun + STALL * stalls), is_given_up);
    }
    // A client may be waiting for its user.
    session_to(TargetPlace::Null, stalling(), |session| {
        let begun = Instant::now() + STALL * 2;
        assert!(!is_over(session, begun) && !is_over(session, begun + STALL * 13));
    });
}

#[test]
fn the_lock_of_a_hidden_directory_is_known() {
    let place = tempfile::tempdir().unwrap();
    session(place.path(), FileOptions::default(), |session| {
        ask(session, directory(0, "tree"));
        let list = fs::metadata(place.path().join(".tree.haul-durable")).unwrap();
        assert!(session.role.holds(&Held::File(list.ino(), list.dev())));
        assert!(!session.role.holds(&Held::File(list.ino() + 1, list.dev())));
    });
}

#[test]
fn a_watch_of_a_client_ends_in_order_once_nothing_is_under_way() {
    for (file_options, ends) in [(watching(), true), (FileOptions::default(), false)] {
        let place = tempfile::tempdir().unwrap();
        let target = without_peer::place(place.path(), file_options);
        let mut hear = |_| {};
        let mut session = Session::begin_client(target, options(), 1, &mut hear);
        let now = Instant::now();
        ask(&mut session, offer(0, "x", 10));
        assert!(!session.role.ends_in_order(now), "a file is under way");
        confirm(&mut session, 0, Some(source_fault(FaultCode::IoFailed)));
        session.turn();
        assert_eq!(session.role.ends_in_order(now), ends);
        session.turn();
        assert_eq!(matches!(session.ended, Some(Ok(SessionEnd::Finished))), ends);
    }
    let place = tempfile::tempdir().unwrap();
    session(place.path(), watching(), |session| {
        assert!(!session.role.ends_in_order(Instant::now()), "a server has no user");
    });
}

#[test]
fn what_was_moved_is_counted_and_shown() {
    let told = session_to(TargetPlace::Null, options(), |session| {
        ask(session, offer(0, "x", 3 * SPAN));
        let mut stream = session.stream();
        for span in 0..2 {
            let span = stream.span(0, span * SPAN, &[7; SPAN as usize], PayloadStatus::Whole);
            stream.write(&span);
        }
        session.until("both", |it| it.role.moved_bytes() > 2 * SPAN);
        session.role.tell(Event::Fallback {
            side: Side::Target,
            from_to: "one".into(),
            why: "it cannot".into(),
        });
        Reported::tell(&mut session.role, Event::Resume { bytes: 7, why: String::new() });
        let figures = Reported::figures(&session.role);
        assert!(figures.streams_ns > 0 && !figures.stages.is_empty());
        assert!(session.role.figures().streams_ns > 0);
        Reported::stop(&mut session.role);
        assert_eq!(session.role.tally().verified_bytes, 2 * SPAN);
        assert_eq!(Reported::tally(&session.role).verified_bytes, 2 * SPAN);
        assert!(Reported::report(&session.role).copied_bytes > 0);
        assert!(session.role.context.shared.streams.stopping());
    });
    assert_eq!((told.fallbacks, told.resumed), (vec!["one".to_owned()], vec![7]));
}

#[test]
fn attributes_that_were_brought_up_to_date_are_reported() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("x"), "").unwrap();
    let file = fs::File::open(place.path().join("x")).unwrap();
    let time = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    file.set_modified(time).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(place.path().join("x"), mode).unwrap();
    let told = session(place.path(), FileOptions::default(), |session| {
        assert!(matches!(ask(session, offer(0, "x", 0)), Answer::Skip));
        assert_eq!(session.role.report().updated_attributes, 1);
    });
    assert_eq!(told.files, [("x".to_owned(), FileStatus::Skipped)]);
    assert_eq!(Preserve::default(), Preserve { mode: true, mtime: true, ..Preserve::NOTHING });
}

#[test]
fn a_file_system_that_keeps_no_times_is_told_of_once_to_both_sides() {
    let place = tempfile::tempdir().unwrap();
    let (path, image) = (place.path().join("disk"), place.path().join("image"));
    fs::create_dir(&path).unwrap();
    let _disk = match Mount::ext2_of_whole_seconds(&path, &image, 8 << 20) {
        Ok(disk) => disk,
        Err(why) => return skip("root and mkfs.ext2", &why),
    };
    let told = session(&path, FileOptions::default(), |session| {
        for number in 0..2 {
            let name = number.to_string();
            ask(session, FileOffer { mtime_ns: 123_456_789, ..offer(number, &name, 0) });
            confirm(session, number, None);
            assert_eq!(session.settled([number]), [None]);
        }
        session.offers_end();
        session.until("its goodbye", says_goodbye);
    });
    assert_eq!(told.fallbacks, ["modification times"]);
}

#[test]
fn what_is_there_is_compared_and_the_sender_says_what_comes_of_it() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("x"), "some bytes").unwrap();
    let file_options = FileOptions { compare_content: true, ..FileOptions::default() };
    let told = session(place.path(), file_options, |session| {
        let Answer::Compare(compare) = ask(session, offer(0, "x", 10)) else { panic!("no hash") };
        assert_eq!(compare.blake3, *blake3::hash(b"some bytes").as_bytes());
        // Another offer of it follows, which counts.
        assert_eq!(session.role.tally().offered_files, 0);
        assert!(session.role.context.open.is_empty() && !session.role.stages.comparing.is_busy());
        session.say(Message::FileOffer(offer(1, "y", 10)));
        let unreadable = Box::new(|| Err(std::io::ErrorKind::NotFound.into()));
        session.role.stages.comparing.begin(FileId(1), unreadable, &mut session.role.context);
        assert!(session.role.stages.comparing.is_busy());
        session.until("it is read", |it| !it.role.stages.comparing.is_busy());
        assert_eq!(session.role.tally().failed_files, 1);
    });
    assert_eq!(told.files, [("y".to_owned(), FileStatus::Failed)]);
}

#[test]
fn a_hidden_directory_is_shown_at_the_end_and_one_that_was_cut_short_is_told_of() {
    for cut_short in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let told = session(place.path(), FileOptions::default(), |session| {
            ask(session, directory(0, "tree"));
            let hidden = session.role.context.place.root().unwrap().hidden_directories();
            ask(session, offer(1, "tree/x", 0));
            if cut_short {
                hidden[0].cut_short();
            }
            confirm(session, 0, None);
            confirm(session, 1, None);
            assert_eq!(session.settled([0, 1]), [None, None]);
            assert!(!place.path().join("tree").exists());
            session.offers_end();
            session.until("its goodbye", says_goodbye);
            assert_eq!(session.role.tally().failed_files, u64::from(cut_short));
        });
        assert_eq!(place.path().join("tree/x").exists(), !cut_short);
        assert_eq!((told.directories, told.files.len()), (vec!["tree".to_owned()], 2));
        assert_eq!(told.errors.len(), usize::from(cut_short));
    }
}

#[test]
fn a_target_that_is_verified_says_how_it_was_read_back() {
    let place = tempfile::tempdir().unwrap();
    let mut told = Told::default();
    let mut hear = |event| told.hear(event);
    let setup = StreamSetup { content: true, ..StreamSetup::of_nobody() };
    let options = ReceivingOptions { verify_target: true, ..options() };
    let target = without_peer::place(place.path(), FileOptions::default());
    let mut session = Session::begin(target, options, setup, &mut hear);
    ask(&mut session, directory(0, "tree"));
    assert!(place.path().join("tree").exists(), "it is not hidden");
    ask(&mut session, offer(1, "tree/x", 2 * SPAN));
    send_spans(&mut session, 1, 2);
    session.turn();
    confirm(&mut session, 1, None);
    assert_eq!(session.settled([1]), [None]);
    assert!(!session.role.report().read_back.is_empty());
    drop(session);
    assert_eq!(fs::read(place.path().join("tree/x")).unwrap(), [7; 2 * SPAN as usize]);
}

#[test]
fn who_may_only_write_has_what_an_earlier_run_left_of_a_file_that_grew_come_again() {
    let growing =
        |number, growth, compared| FileOffer { growth, compared, ..offer(number, "x", 2 * SPAN) };
    let (new, same) = (Compared::NotCompared, Compared::SameContent);
    let words = |answer: Answer| match answer {
        Answer::Compare(_) => "compare".to_owned(),
        Answer::Need(need) => {
            format!("need, {} there", need.durable.iter().map(|run| run.count).sum::<u32>())
        }
        other => panic!("{other:?}"),
    };
    for (telling, growth, compared, is_of_session, answer) in [
        (Telling::All, Growth::Grown, new, false, "compare"),
        (Telling::Little, Growth::Grown, new, false, "need, 0 there"),
        (Telling::Little, Growth::Grown, new, true, "compare"),
        (Telling::Little, Growth::Grown, same, false, "need, 2 there"),
        (Telling::Little, Growth::Growing, new, false, "need, 2 there"),
    ] {
        let place = tempfile::tempdir().unwrap();
        let leave = |session: &mut Session<'_>| {
            ask(session, growing(0, Growth::Growing, new));
            send_spans(session, 0, 2);
            confirm(session, 0, None);
            assert_eq!(session.settled([0]), [None]);
        };
        if !is_of_session {
            session(place.path(), following(), leave);
        }
        let mut options = options();
        options.telling = telling;
        session_to(without_peer::place(place.path(), following()), options, |session| {
            if is_of_session {
                leave(session);
            }
            let number = u32::from(is_of_session);
            let found = words(ask(session, growing(number, growth, compared)));
            assert_eq!(found, answer, "{telling:?}, {growth:?}, {compared:?}, {is_of_session}");
        });
    }
}

#[test]
fn a_session_that_ends_waits_for_what_reads_its_files() {
    session_to(TargetPlace::Null, options(), |session| {
        let ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let told = ended.clone();
        let slow = Box::new(move || {
            std::thread::sleep(Duration::from_millis(80));
            told.store(true, Ordering::Relaxed);
            Err(std::io::ErrorKind::NotFound.into())
        });
        let role = &mut session.role;
        role.stages.comparing.begin(FileId(9), slow, &mut role.context);
        session.role.stop();
        assert!(ended.load(Ordering::Relaxed));
    });
}
