//! Clients that take more rights than their token gives.
//!
//! What a session tells and gives goes by the token, whatever its client says.

use crate::harness::{
    Place,
    peer::{Peer, offer},
    server::{Server, ServerSetup},
};
use haul_protocol::{
    FileId, Message,
    message::{
        self, Answer, Compared, Direction, FaultCode, FileKind, FileOffer, FileOptions, Growth,
        Need, OnConflict,
    },
};
use haul_testkit::{mount::Mount, skip::skip};
use haul_transfer::{NewToken, Rights, ServedRoot, StateDirectory};
use std::{fs, os::unix::fs::MetadataExt};

const WRITE: Rights = Rights { write: true, ..Rights::NONE };
const LIST: Rights = Rights { list: true, ..Rights::NONE };
const SPAN: u64 = 64 << 10;

/// Opens a session by a token with these rights, which asks with these options.
fn session(
    (place, server): (&Place, &Server),
    rights: Rights,
    direction: Direction,
    file_options: FileOptions,
) -> Peer {
    let state = StateDirectory::open(&place.path("state")).unwrap();
    let new = NewToken::new(ServedRoot::at(&place.path("root")).unwrap(), rights);
    let (token, _) = state.new_token(&new).unwrap();
    let open = message::Open {
        token_secret: message::Secret(token.secret),
        file_options: Some(FileOptions { preserve: 3, ..file_options }),
        ..Peer::asks(server, direction, b"")
    };
    Peer::with_session_of(server, open).0
}

#[track_caller]
fn answer_to(peer: &mut Peer, offer: FileOffer) -> Answer {
    let file = offer.file;
    peer.say(Message::FileOffer(offer));
    let heard = peer.hear(|message| match message {
        Message::FileAnswer(answer) if answer.file == file => Some(answer.answer.clone()),
        _ => None,
    });
    heard.unwrap()
}

#[track_caller]
fn fault_of(answer: Answer) -> message::Fault {
    let Answer::Fault(fault) = answer else { panic!("no fault: {answer:?}") };
    fault
}

/// A listing by a dry run, which moves no byte whatever the client answers.
#[test]
fn a_listing_gives_neither_bytes_nor_comparisons_of_what_is_listed() {
    let answers = [
        ("bytes", Answer::Need(Need { span_bytes: SPAN, ..Need::default() })),
        ("a comparison", Answer::Compare(message::Compare { blake3: [0; 32] })),
    ];
    for (what, answer) in answers {
        for kind in [FileKind::Regular, FileKind::HardLink] {
            let place = Place::new();
            fs::write(place.root("a"), b"secret").unwrap();
            fs::hard_link(place.root("a"), place.root("b")).unwrap();
            let server = Server::start(&place);
            let dry_run = FileOptions { dry_run: true, ..FileOptions::default() };
            let mut peer = session((&place, &server), LIST, Direction::Pull, dry_run);
            let mut next = |fits: FileKind| {
                let offered = peer.hear(|message| match message {
                    Message::FileOffer(offer) if offer.kind == fits => Some(offer.clone()),
                    _ => None,
                });
                offered.unwrap()
            };
            let mut file = next(FileKind::Regular).file;
            if kind == FileKind::HardLink {
                let plan = Answer::Plan(message::Plan::default());
                peer.say(Message::FileAnswer(message::FileAnswer { file, answer: plan }));
                let offered = peer.hear(|message| match message {
                    Message::FileOffer(offer) => Some(offer.file),
                    _ => None,
                });
                file = offered.unwrap();
            }
            peer.say(Message::FileAnswer(message::FileAnswer { file, answer: answer.clone() }));
            let fault = peer.hear_refusal();
            assert_eq!(fault.code, FaultCode::ProtocolViolation, "{what} of {kind:?}: {fault:?}");
            server.still_serves(&place);
        }
    }
}

#[test]
fn a_client_that_may_not_read_makes_no_link_to_what_is_there() {
    let place = Place::new();
    fs::write(place.root("secret"), b"secret").unwrap();
    let server = Server::start(&place);
    let mut peer = session((&place, &server), WRITE, Direction::Push, FileOptions::default());
    let link = |file: u32, name: &[u8], to: &[u8]| FileOffer {
        link_target: to.to_vec(),
        ..offer(file, name, FileKind::HardLink)
    };
    let fault = fault_of(answer_to(&mut peer, link(0, b"mine", b"secret")));
    assert_eq!(fault.code, FaultCode::KindUnsupported);
    // An offer that nobody has brought yet puts nothing in place.
    let pending = FileOffer { size_bytes: 9, ..offer(1, b"secret", FileKind::Regular) };
    assert!(matches!(answer_to(&mut peer, pending), Answer::Need(_)));
    let fault = fault_of(answer_to(&mut peer, link(2, b"mine", b"secret")));
    assert_eq!(fault.code, FaultCode::KindUnsupported);
    // What it brought itself it may link to.
    assert_eq!(peer.offer(offer(3, b"own", FileKind::Regular)).unwrap(), None);
    assert_eq!(peer.offer(link(4, b"other-name", b"own")).unwrap(), None);
    assert!(place.root("other-name").exists() && !place.root("mine").exists());
    assert_eq!(fs::metadata(place.root("secret")).unwrap().nlink(), 1);
}

#[test]
fn a_client_that_may_not_read_is_told_neither_size_nor_hash_of_what_is_there() {
    let place = Place::new();
    fs::write(place.root("there"), [7; 1234]).unwrap();
    let server = Server::start(&place);
    let fail = FileOptions { on_conflict: OnConflict::Fail, ..FileOptions::default() };
    let asked = FileOffer { size_bytes: 5, ..offer(0, b"there", FileKind::Regular) };
    let mut peer = session((&place, &server), WRITE, Direction::Push, fail);
    let fault = fault_of(answer_to(&mut peer, asked.clone()));
    assert_eq!((fault.code, &*fault.found), (FaultCode::Exists, ""));
    drop(peer);
    let mut peer = session((&place, &server), Rights::ALL, Direction::Push, fail);
    assert!(fault_of(answer_to(&mut peer, asked)).found.contains("1234"));
    drop(peer);

    // A recording that somebody else has not brought to its end.
    let follow = FileOptions { follow: true, ..FileOptions::default() };
    let grown = FileOffer {
        size_bytes: SPAN,
        inode: 1,
        growth: Growth::Grown,
        ..offer(0, b"recording", FileKind::Regular)
    };
    left_by_another(&server);
    let kept = fs::read(place.root(".recording.haul-part")).unwrap();
    assert_eq!(kept.len() as u64, SPAN);
    let mut peer = session((&place, &server), Rights::ALL, Direction::Push, follow);
    assert!(matches!(answer_to(&mut peer, grown.clone()), Answer::Compare(_)), "it is there");
    drop(peer);
    server.wait_for_sessions(4);
    let mut peer = session((&place, &server), WRITE, Direction::Push, follow);
    let Answer::Need(need) = answer_to(&mut peer, grown) else { panic!("it is compared") };
    assert_eq!(need.durable, [], "all of it comes again");
}

/// Leaves one round of a recording, made durable, and no end of it.
fn left_by_another(server: &Server) {
    use crate::harness::frames::{Frame, header, open_stream};
    use haul_protocol::{frame::PayloadStatus, message::Digest};
    use std::io::Write;
    let follow = FileOptions { follow: true, preserve: 3, ..FileOptions::default() };
    let open = message::Open {
        file_options: Some(follow),
        span_bytes: SPAN,
        ..Peer::asks(server, Direction::Push, b"")
    };
    let (mut peer, session) = Peer::with_session_of(server, open);
    let keys = std::sync::Arc::new(peer.control.session_keys(&session).unwrap());
    let round = FileOffer {
        size_bytes: SPAN,
        inode: 1,
        growth: Growth::Growing,
        compared: Compared::NotCompared,
        ..offer(0, b"recording", FileKind::Regular)
    };
    assert!(matches!(answer_to(&mut peer, round), Answer::Need(_)));
    let mut stream = open_stream(server.address(), &keys, session, 0);
    let payload = vec![5; SPAN.try_into().unwrap()];
    let header = header(0, 0, 0, 0, SPAN);
    let frame = Frame::new(&keys, Digest::Crc32c, header, &payload, PayloadStatus::Whole);
    stream.write_all(&frame.encode()).unwrap();
    let verified = peer.hear(|message| matches!(message, Message::SpansVerified(_)).then_some(()));
    verified.unwrap();
    peer.say(Message::FileConfirm(message::FileConfirm { file: FileId(0), fault: None }));
    peer.hear(|message| matches!(message, Message::FileSettled(_)).then_some(())).unwrap();
    drop(peer);
    server.wait_for_sessions(3);
}

/// The list of tokens: whoever reads it has the rights of all of them, and whoever writes it gives
/// them.
#[test]
fn the_servers_own_state_is_served_to_nobody_though_it_lies_within_the_root() {
    let place = Place::new();
    place.file(&place.path("root/data"), 1000);
    place.file(&place.source("tokens.json"), 1000);
    std::os::unix::fs::symlink("state/tokens.json", place.path("link")).unwrap();
    let server = ServerSetup::new(&place).root(place.path(".")).start(&place);
    let kept = fs::read(place.path("state/tokens.json")).unwrap();
    for path in ["state/tokens.json", "state/", "state", "link", "root/../state/key.der"] {
        let ran = place.pull(&words![server.url(path), place.path("got/")]);
        assert_ne!(ran.status, 0, "{path}: {}", ran.err);
        assert!(!place.path("got/tokens.json").exists() && !place.path("got/key.der").exists());
    }
    for path in ["state/", "state/tokens.json", "state/new/deep/"] {
        let ran = place.push(&words![place.source("tokens.json"), server.url(path)]);
        assert_ne!(ran.status, 0, "{path}: {}", ran.err);
    }
    // All that is there comes, but for it.
    let ran = place.pull(&words![server.url("root/"), place.path("got/")]);
    ran.ok();
    let listed = place.command(&words!["ls", server.url("")]).output().unwrap().stdout;
    let listed = String::from_utf8(listed).unwrap();
    assert!(listed.contains("root") && !listed.contains("  state/"), "{listed}");
    assert_eq!(fs::read(place.path("state/tokens.json")).unwrap(), kept);
    let mut names: Vec<_> =
        fs::read_dir(place.path("state")).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.retain(|name| name == "new" || crate::harness::is_temporary(name.as_ref()));
    assert!(names.is_empty(), "{names:?}");
    // The same by another mount of it.
    fs::create_dir(place.path("mounted")).unwrap();
    match Mount::bind(&place.path("."), &place.path("mounted")) {
        Ok(_mount) => {
            let root = place.path("mounted");
            let server = ServerSetup::new(&place).root(root).start(&place);
            let ran = place.pull(&words![server.url("state/tokens.json"), place.path("got/")]);
            assert_ne!(ran.status, 0, "{}", ran.err);
            place.pull(&words![server.url("root/data"), place.path("got2/")]).ok();
            // And one of the state alone.
            fs::create_dir(place.path("root/bound")).unwrap();
            let _bound = Mount::bind(&place.path("state"), &place.path("root/bound")).unwrap();
            let server = ServerSetup::new(&place).start(&place);
            // Each server writes down its own token.
            let kept = fs::read(place.path("state/tokens.json")).unwrap();
            for path in ["bound/tokens.json", "bound/", "bound"] {
                let ran = place.pull(&words![server.url(path), place.path("got/")]);
                assert_ne!(ran.status, 0, "{path}: {}", ran.err);
                let ran = place.push(&words![place.source("tokens.json"), server.url(path)]);
                assert_ne!(ran.status, 0, "{path}: {}", ran.err);
            }
            assert_eq!(fs::read(place.path("state/tokens.json")).unwrap(), kept);
        }
        Err(why) => skip("a user who may mount (root)", &why),
    }
    // To everybody nothing of it may be served at all.
    let state = ["--state".into(), place.path("state").into_os_string()];
    let media = words!["media", place.path("."), "--listen", "127.0.0.1:0"];
    let ran = place.run(&[media, state.to_vec()].concat());
    assert_eq!(ran.status, 2, "{}", ran.err);
    assert!(ran.err.contains("without haul's own keys"), "{}", ran.err);
}

#[test]
fn a_mirror_of_what_holds_the_servers_state_lets_it_be_and_says_so_before() {
    let place = Place::new();
    place.file(&place.source("s/a"), 1000);
    place.file(&place.path("home/gone/x"), 1000);
    let state = place.path("home/.local/state/haul");
    fs::create_dir_all(place.path("home/.local/state")).unwrap();
    let server =
        ServerSetup::new(&place).root(place.path("home")).state(state.clone()).start(&place);
    let key = fs::read(state.join("key.der")).unwrap();
    let told: Vec<Vec<String>> = [true, false]
        .into_iter()
        .map(|dry_run| {
            let mut words = words![place.path("source/s/"), server.url(""), "--delete"];
            words.extend(dry_run.then(|| "-n".into()));
            let ran = place.push(&words);
            assert_eq!(ran.status, 0, "{ran:?}");
            let removed = ran.named("file").into_iter().map(|event| event["path"].to_string());
            removed.filter(|path| path.contains("gone") || path.contains("local")).collect()
        })
        .collect();
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0].len(), 2, "the directory and its file: {told:?}");
    assert_eq!(fs::read(state.join("key.der")).unwrap(), key);
    assert!(place.path("home/a").exists() && !place.path("home/gone").exists());
}

#[test]
fn no_client_sends_its_own_state_nor_removes_it() {
    let place = Place::new();
    let home = place.path("home");
    place.file(&home.join("a"), 1000);
    place.file(&home.join(".local/state/haul/key.der"), 100);
    place.file(&place.root("other/b"), 1000);
    let server = Server::start(&place);
    let run = |words: &[std::ffi::OsString]| {
        let mut command = place.command(words);
        command.env("HOME", &home).env_remove("HAUL_STATE").env_remove("XDG_STATE_HOME");
        crate::harness::process::Haul::start(command).finish()
    };
    let ran = run(&words!["push", &home, server.url("")]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    assert!(place.root("home/a").exists() && !place.root("home/.local/state/haul").exists());
    let ran = run(&words!["pull", server.url("other/"), &home, "--delete"]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    assert!(home.join("b").exists() && !home.join("a").exists());
    assert!(home.join(".local/state/haul/key.der").exists());
}
