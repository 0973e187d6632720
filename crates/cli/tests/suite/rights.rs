//! Every message of the protocol, said by every kind of peer that has no right to it.
//!
//! The rows are the protocol's own list of messages: one without a row does not compile. The
//! columns are the ways to lack a right. Whatever is said, and whether or not the thing is there,
//! the answer is one and the same refusal, nothing is written, and neither byte nor name leaves.
//! rights_lost.rs has the rights that end in mid-session, and those of other sessions.
//!
//! Shown elsewhere, and not tried again here: the words of the program for each kind of token
//! (bad_input.rs), what a session tells by its rights (hostile_rights.rs), frames and MACs that are
//! replayed (hostile_lies.rs: `frames_replayed_...`; hostile.rs: `a_preface_said_again_...`),
//! private streams and proofs (private.rs), told keys (told_keys.rs), datagrams of probes and their
//! rights (probe_net.rs), a server that grants less protection (hostile_server.rs), keys of ssh for
//! one directory (ssh.rs, ssh_copy.rs), and strangers' bytes before TLS (hostile_lies.rs).

use crate::harness::{
    PATIENCE, Place,
    peer::{Peer, hello, offer},
    server::{Server, ServerSetup},
};
use haul_protocol::{
    CAPABILITY_PRIVATE, FileId, Message, SpanIndex, StreamId, decode_message, encode_message,
    limits,
    message::{
        self, Answer, Digest, Direction, Fault, FaultCode, FileKind, FileOffer, FileOptions,
        OnConflict, ProbeKind, Protection,
    },
};
use haul_testkit::{skip::skip, strace::Strace};
use haul_transfer::{NewToken, Rights, ServedRoot, StateDirectory, Token};
use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant, SystemTime},
};

const TURN: Duration = Duration::from_millis(50);
/// Name and bytes in the served directory that no test says: who knows them was told.
const UNSAID_NAME: &str = "unsaid-name";
const UNSAID_BYTES: &[u8] = b"unsaid bytes of a file";
/// Names that peers say: of a file that is there, and of none.
const NAMES: [&[u8]; 2] = [b"there", b"nowhere"];

/// Side of a session that may say a message (SPEC 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A client, where a session begins.
    Opening,
    Server,
    Sender,
    Receiver,
    Both,
    /// The client of a probe.
    Prober,
}

/// Declares one of each message, which speaks of the file of a name, and who may say it. Neither
/// has a row for "any other": a message that the protocol gets does not compile without its own.
macro_rules! rows {
    (|$name:ident| $($kind:ident by $by:ident: $specimen:expr;)*) => {
        pub fn every_message($name: &[u8]) -> Vec<Message> {
            vec![$(Message::$kind($specimen)),*]
        }

        pub fn said_by(message: &Message) -> By {
            match message {
                $(Message::$kind(_) => By::$by,)*
            }
        }
    };
}

rows! { |name|
    Hello by Opening: message::Hello { version_min: 1, version_max: 1, ..Default::default() };
    HelloReply by Server: message::HelloReply { version: 1, ..Default::default() };
    Open by Opening: message::Open {
        direction: Direction::Pull,
        paths: vec![name.to_vec()],
        ..Default::default()
    };
    Opened by Server: message::Opened {
        streams: 1,
        offers_max: 1,
        offer_bytes_max: limits::OFFER_BYTES_MIN,
        ..Default::default()
    };
    Refused by Both: Fault::default();
    FileOffer by Sender: FileOffer { size_bytes: 5, ..offer(0, name, FileKind::Regular) };
    OffersEnd by Sender: message::OffersEnd::default();
    FileAnswer by Receiver: need();
    SpansVerified by Receiver: message::SpansVerified { file: FileId(0), spans: one_span() };
    SpanBad by Receiver: message::SpanBad {
        file: FileId(0),
        span: SpanIndex(0),
        stream: StreamId(0),
    };
    StreamDrop by Sender: message::StreamDrop { stream: StreamId(0), why: String::new() };
    StreamClosed by Receiver: message::StreamClosed { stream: StreamId(0) };
    FileConfirm by Sender: message::FileConfirm { file: FileId(0), fault: None };
    FileSettled by Receiver: message::FileSettled { file: FileId(0), fault: None };
    Progress by Receiver: message::Progress::default();
    Finish by Both: message::Finish::default();
    Notice by Both: message::Notice::default();
    Ping by Both: message::Ping { number: 1 };
    Pong by Both: message::Ping { number: 1 };
    Selection by Opening: message::Selection {
        names: vec![name.to_vec()],
        names_given: true,
        ..Default::default()
    };
    Removed by Receiver: message::Removed { names: vec![name.to_vec()] };
    Facts by Server: message::HostFacts::default();
    Explained by Server: message::Explained::default();
    Figures by Server: message::Figures::default();
    Probe by Prober: round();
    ProbeReady by Server: message::ProbeReady { round: 1, ..Default::default() };
    ProbeStep by Prober: message::ProbeStep { round: 1, over: true };
    ProbeFigures by Server: message::ProbeFigures { round: 1, ..Default::default() };
    ProbeResult by Server: message::ProbeResult { round: 1, ..Default::default() };
    SpansLost by Receiver: message::SpansLost { file: FileId(0), spans: one_span() };
    Audit by Prober: message::Audit::default();
    Audited by Server: message::Audited::default();
}

pub fn need() -> message::FileAnswer {
    let need = message::Need { span_bytes: limits::SPAN_BYTES_MIN, ..Default::default() };
    message::FileAnswer { file: FileId(0), answer: Answer::Need(need) }
}

fn one_span() -> Vec<message::SpanRange> {
    vec![message::SpanRange { first: SpanIndex(0), count: 1 }]
}

/// A round of a probe, which brings bytes to the client and to the server.
fn round() -> message::Probe {
    message::Probe {
        round: 1,
        kind: ProbeKind::Streams,
        to_server: true,
        to_client: true,
        streams: 1,
        block_bytes: 1024,
        time_ms: 100,
        interval_ms: 100,
        ..Default::default()
    }
}

/// A served directory, and all that is there.
struct Served {
    server: Server,
    before: Vec<(PathBuf, SystemTime, Vec<u8>)>,
    place: Place,
}

impl Served {
    fn start(options: &[&str]) -> Self {
        let place = Place::new();
        fs::write(place.root("there"), UNSAID_BYTES).unwrap();
        fs::create_dir(place.root("kept")).unwrap();
        fs::write(place.root("kept").join(UNSAID_NAME), UNSAID_BYTES).unwrap();
        let server = ServerSetup::new(&place).options(options).start(&place);
        Self { server, before: all_of(&place), place }
    }

    fn token(&self, rights: Rights) -> Token {
        token(&self.place, |new| new.rights = rights).0
    }

    #[track_caller]
    fn is_as_before(&self) {
        assert_eq!(all_of(&self.place), self.before);
    }
}

fn all_of(place: &Place) -> Vec<(PathBuf, SystemTime, Vec<u8>)> {
    let names = haul_testkit::tree::names(&place.path("root")).unwrap();
    let one = |name: PathBuf| {
        let path = place.root(&name);
        let modified = fs::symlink_metadata(&path).unwrap().modified().unwrap();
        (name, modified, fs::read(&path).unwrap_or_default())
    };
    names.into_iter().map(one).collect()
}

/// Makes a token of the served directory that is changed as the test wants; gives its id, too.
pub fn token(place: &Place, change: impl FnOnce(&mut NewToken)) -> (Token, String) {
    let served = ServedRoot::at(&place.path("root")).unwrap();
    let mut new = NewToken::new(served, Rights::ALL);
    change(&mut new);
    let state = StateDirectory::open(&place.path("state")).unwrap();
    let (token, record) = state.new_token(&new).unwrap();
    (token, record.id)
}

pub fn asks(server: &Server, token: &Token, direction: Direction, path: &[u8]) -> message::Open {
    let token_secret = message::Secret(token.secret);
    message::Open { token_secret, ..Peer::asks(server, direction, path) }
}

fn listing(open: message::Open) -> message::Open {
    let file_options = FileOptions { dry_run: true, preserve: 3, ..FileOptions::default() };
    message::Open { file_options: Some(file_options), ..open }
}

/// The four kinds of sessions, asked for with a token.
fn requests(server: &Server, token: &Token, path: &[u8]) -> [(&'static str, message::Open); 4] {
    let open = |direction| asks(server, token, direction, path);
    [
        ("push", open(Direction::Push)),
        ("pull", open(Direction::Pull)),
        ("listing", listing(open(Direction::Pull))),
        ("probe", open(Direction::Probe)),
    ]
}

/// Hears all until the other side closes the connection.
#[track_caller]
pub fn hear_out(peer: &mut Peer) -> Vec<Message> {
    let deadline = Instant::now() + PATIENCE;
    let mut heard = Vec::new();
    while let Ok(messages) = peer.control.turn(TURN, None) {
        assert!(Instant::now() < deadline, "it is not closed: {heard:?}");
        heard.extend(messages);
    }
    heard
}

fn holds(messages: &[Message], words: &[u8]) -> bool {
    let mut bytes = Vec::new();
    messages.iter().for_each(|message| encode_message(message.clone(), &mut bytes));
    bytes.windows(words.len()).any(|window| window == words)
}

#[track_caller]
fn tells_nothing(heard: &[Message]) {
    for words in [UNSAID_NAME.as_bytes(), UNSAID_BYTES] {
        assert!(!holds(heard, words), "it was told: {heard:?}");
    }
}

/// A greeting, which goes to anybody: a version, what the other side can, and its software.
#[track_caller]
fn is_greeting(message: &Message) {
    let Message::HelloReply(reply) = message else { panic!("no greeting: {message:?}") };
    // All of its fields: one that it gets is thought of.
    let message::HelloReply { version, capabilities, software } = reply;
    assert_eq!((*version, capabilities.as_slice()), (1, &[][..]), "what was not listed");
    assert!(software.starts_with("haul "), "{software}");
}

/// Says these words to a server, and gives the refusal that is all of its answer.
#[track_caller]
fn one_refusal(server: &Server, words: &[Message]) -> Fault {
    let mut peer = Peer::connect(server);
    words.iter().for_each(|message| peer.say(message.clone()));
    let heard = hear_out(&mut peer);
    tells_nothing(&heard);
    let rest = match words.first() {
        Some(Message::Hello(_)) => {
            is_greeting(&heard[0]);
            &heard[1..]
        }
        _ => &heard[..],
    };
    let [Message::Refused(fault)] = rest else { panic!("{words:?}: {heard:?}") };
    fault.clone()
}

/// A way to lack a right: who says what before the message, and the code of the refusal.
struct Lack<'a> {
    who: String,
    server: &'a Server,
    /// Words for a path that is there, and for one that is not.
    says: [Vec<Message>; 2],
    code: FaultCode,
}

impl<'a> Lack<'a> {
    fn new(
        who: impl Into<String>,
        server: &'a Server,
        code: FaultCode,
        says: impl Fn(&[u8]) -> Vec<Message>,
    ) -> Self {
        Self { who: who.into(), server, says: NAMES.map(says), code }
    }

    /// Whether the message goes on with what was said, so that it is no breach.
    fn goes_on_with(&self, message: &Message) -> bool {
        matches!(
            (self.says[0].as_slice(), message),
            ([], Message::Hello(_)) | ([Message::Hello(_)], Message::Open(_))
        )
    }

    /// Tries each message behind the words, of both names in turn.
    #[track_caller]
    fn try_all(&self) {
        let first =
            one_refusal(self.server, &[&self.says[0][..], &[Message::Pong(ping())]].concat());
        assert_eq!(first.code, self.code, "{}: {first:?}", self.who);
        let [there, nowhere] = NAMES.map(every_message);
        for (number, rows) in there.iter().zip(&nowhere).enumerate() {
            // Each row with one of the names, so that both are in each column.
            let (which, message) = if number % 2 == 0 { (0, rows.0) } else { (1, rows.1) };
            if !self.goes_on_with(message) {
                let words = [&self.says[which][..], std::slice::from_ref(message)].concat();
                let fault = one_refusal(self.server, &words);
                assert_eq!(fault, first, "{}, {message:?}", self.who);
            }
        }
    }
}

fn ping() -> message::Ping {
    message::Ping { number: 7 }
}

fn opens(open: message::Open) -> Vec<Message> {
    vec![hello(1, 1), Message::Open(open)]
}

#[test]
fn each_row_is_a_message_that_a_peer_may_say() {
    for message in NAMES.into_iter().flat_map(every_message) {
        let mut bytes = Vec::new();
        encode_message(message.clone(), &mut bytes);
        let decoded = decode_message(&bytes, limits::MESSAGE_BYTES_MAX_UNKNOWN);
        assert_eq!(decoded, Ok(Some((message, bytes.len()))), "it is refused for what it is");
    }
}

#[test]
fn a_stranger_is_greeted_and_gets_one_refusal_for_whatever_it_says() {
    let served = Served::start(&[]);
    let server = &served.server;
    Lack::new("before hello", server, FaultCode::ProtocolViolation, |_| Vec::new()).try_all();
    let greets = |_: &[u8]| vec![hello(1, 1)];
    Lack::new("behind hello", server, FaultCode::ProtocolViolation, greets).try_all();
    // A greeting alone is answered by one.
    let mut peer = Peer::connect(server);
    peer.say(hello(1, 1));
    let greeting = peer.hear(|message| Some(message.clone())).unwrap();
    is_greeting(&greeting);
    peer.say(Message::Open(message::Open::default()));
    let heard = hear_out(&mut peer);
    let [Message::Refused(fault)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(fault.code, FaultCode::TokenWrong);
    served.is_as_before();
    server.still_serves(&served.place);
}

/// Tokens that open nothing here, each asking for each kind of session.
#[test]
fn a_token_that_is_not_good_here_gets_one_refusal_for_whatever_is_asked_and_said() {
    let served = Served::start(&[]);
    let (server, place) = (&served.server, &served.place);
    let unknown = Token::generate(server.token().fingerprint).unwrap();
    let expired = token(place, |new| new.valid_for = Some(Duration::ZERO)).0;
    let (revoked, id) = token(place, |_| {});
    StateDirectory::open(&place.path("state")).unwrap().revoke(&id).unwrap();
    fs::create_dir(place.path("other")).unwrap();
    let used = token(place, |new| new.single_use = true).0;
    let url = server.url_with(&used.reveal(), server.address(), "there");
    place.pull(&words![url, place.target("")]).ok();
    server.wait_for_sessions(1);
    let elsewhere =
        token(place, |new| new.served = ServedRoot::at(&place.path("other")).unwrap()).0;
    for (who, token, code) in [
        ("an unknown token", unknown, FaultCode::TokenWrong),
        ("an expired token", expired, FaultCode::TokenExpired),
        ("a revoked token", revoked, FaultCode::TokenRevoked),
        ("a token that is used up", used, FaultCode::TokenUsed),
        ("a token of another root", elsewhere, FaultCode::RightMissing),
    ] {
        for number in 0..4 {
            let name = requests(server, &token, b"")[number].0;
            let says = |path: &[u8]| opens(requests(server, &token, path)[number].1.clone());
            Lack::new(format!("{who}, {name}"), server, code, says).try_all();
        }
    }
    served.is_as_before();
}

/// Calls by which a server looks at files, in a refused session; `None` without strace(1).
fn calls_for(served: &Served, number: usize, says: &[Message]) -> Option<Vec<String>> {
    let log = served.place.path(format!("calls-{number}"));
    let pid = served.server.process.id();
    let strace = match Strace::watch(pid, "%file,getdents64,read,pread64,fstat", &log) {
        Ok(strace) => strace,
        Err(why) => {
            skip("strace and the right to trace", why.to_string());
            return None;
        }
    };
    one_refusal(&served.server, says);
    // Descriptors, addresses and the time differ from session to session, names of calls do not.
    let calls = strace.log();
    let calls = calls.lines().filter_map(|line| line.split_once(' ')?.1.trim().split_once('('));
    let calls = calls.filter(|(_, rest)| !rest.contains("socket:") && !rest.contains("eventfd"));
    Some(calls.map(|(name, _)| name.to_owned()).collect())
}

/// Time is not measured but counted: what a server does for one that it turns away is the same
/// whether or not what is asked for is there, so there is nothing that a clock could tell.
#[test]
fn a_refusal_costs_as_many_calls_whether_or_not_what_is_asked_for_is_there() {
    let served = Served::start(&[]);
    let (server, place) = (&served.server, &served.place);
    let good = server.token();
    // Half of the secret that counts, and nothing of it.
    let mut half = good.clone();
    half.secret[8..].copy_from_slice(&[0; 8]);
    let unknown = Token::generate(good.fingerprint).unwrap();
    let (revoked, id) = token(place, |_| {});
    StateDirectory::open(&place.path("state")).unwrap().revoke(&id).unwrap();
    fs::create_dir(place.path("other")).unwrap();
    let elsewhere =
        token(place, |new| new.served = ServedRoot::at(&place.path("other")).unwrap()).0;
    let mut count = 0;
    // The list of tokens is read anew once it has changed.
    one_refusal(server, &opens(requests(server, &unknown, b"")[1].1.clone()));
    let mut calls = |token: &Token, path: &[u8]| {
        count += 1;
        calls_for(&served, count, &opens(requests(server, token, path)[1].1.clone()))
    };
    let Some(first) = calls(&unknown, NAMES[0]) else { return };
    for (who, token) in [("unknown", &unknown), ("half", &half)] {
        for path in NAMES {
            assert_eq!(calls(token, path).as_ref(), Some(&first), "{who}, {path:?}");
        }
    }
    for (who, token) in [("revoked", &revoked), ("elsewhere", &elsewhere)] {
        let [there, nowhere] = NAMES.map(|path| calls(token, path));
        assert_eq!(there, nowhere, "{who}");
    }
}

/// A server told everybody with a token of another of its user's directories that it is read-only.
#[test]
fn a_token_of_another_root_is_not_told_what_a_server_is_for() {
    let served = Served::start(&["--read-only"]);
    fs::create_dir(served.place.path("other")).unwrap();
    let other = ServedRoot::at(&served.place.path("other")).unwrap();
    let elsewhere = token(&served.place, |new| new.served = other).0;
    let faults = requests(&served.server, &elsewhere, b"there")
        .map(|(_, open)| one_refusal(&served.server, &opens(open)));
    assert!(faults[0].what.contains("another directory"), "{:?}", faults[0]);
    assert!(faults.iter().all(|fault| *fault == faults[0]), "{faults:?}");
}

#[test]
fn a_token_without_the_right_gets_one_refusal_for_whatever_it_says() {
    let served = Served::start(&[]);
    let read_only = ServerSetup::new(&served.place).options(&["--read-only"]).start(&served.place);
    let server = &served.server;
    let (all, none) = (Rights::ALL, Rights::NONE);
    for (who, server, rights, asked) in [
        ("a token that reads", server, Rights::READ_ONLY, &["push"][..]),
        ("a token that writes", server, Rights { write: true, ..none }, &["pull", "listing"]),
        ("a token that lists", server, Rights { list: true, ..none }, &["push", "pull", "probe"]),
        (
            "a token that removes",
            server,
            Rights { delete: true, ..none },
            &["push", "pull", "listing", "probe"],
        ),
        ("a server that only reads", &read_only, all, &["push"]),
    ] {
        let token = served.token(rights);
        for name in asked {
            let says = |path: &[u8]| {
                let mut all = requests(server, &token, path).into_iter();
                opens(all.find(|(request, _)| request == name).unwrap().1)
            };
            let who = format!("{who}, {name}");
            Lack::new(who, server, FaultCode::RightMissing, says).try_all();
        }
    }
    served.is_as_before();
}

/// A good token with less protection than the server wants.
#[test]
fn less_protection_than_is_wanted_gets_one_refusal_for_whatever_is_said() {
    use Digest::{AesGmac, Crc32c, None as NoDigest};
    use Protection::{Clear, Private, Safe, Unknown};
    for (least, asked) in [
        ("safe", &[(Clear, Crc32c), (Clear, NoDigest), (Safe, Crc32c), (Unknown, AesGmac)][..]),
        ("private", &[(Safe, AesGmac), (Clear, Crc32c), (Private, NoDigest)]),
    ] {
        let served = Served::start(&["--protection-min", least]);
        let token = served.token(Rights::ALL);
        for &(protection, digest) in asked {
            for direction in [Direction::Push, Direction::Pull] {
                let says = |path: &[u8]| {
                    let open = asks(&served.server, &token, direction, path);
                    opens(message::Open { protection, digest, ..open })
                };
                let who = format!("{protection:?} with {digest:?} where {least} is wanted");
                Lack::new(who, &served.server, FaultCode::ProtectionTooLow, says).try_all();
            }
        }
        // Private streams, by a client that has not listed them.
        let open = asks(&served.server, &token, Direction::Pull, b"there");
        let private = message::Open { protection: Private, digest: Crc32c, ..open };
        let refused = one_refusal(&served.server, &opens(private.clone()));
        assert_eq!(refused.code, FaultCode::ProtectionTooLow);
        let mut peer = Peer::connect(&served.server);
        let Message::Hello(mut lists) = hello(1, 1) else { panic!("a hello") };
        lists.capabilities.push(CAPABILITY_PRIVATE);
        peer.say(Message::Hello(lists));
        peer.say(Message::Open(private));
        peer.hear(|message| matches!(message, Message::Opened(_)).then_some(())).unwrap();
        served.is_as_before();
    }
}

/// Says a message in an open session, and hears all until it is handled.
fn say_in_session(server: &Server, open: message::Open, message: Message) -> Vec<Message> {
    const LAST: u64 = u64::MAX;
    let (mut peer, _) = Peer::with_session_of(server, open);
    peer.say(message);
    peer.say(Message::Ping(message::Ping { number: LAST }));
    let deadline = Instant::now() + PATIENCE;
    let mut heard = Vec::new();
    while let Ok(messages) = peer.control.turn(TURN, None) {
        assert!(Instant::now() < deadline, "{heard:?}");
        heard.extend(messages);
        let last =
            |message: &Message| matches!(message, Message::Pong(pong) if pong.number == LAST);
        if heard.iter().any(last) {
            break;
        }
    }
    heard
}

/// Sessions that were let in by the right that they need, and go on with what needs another one.
#[test]
fn a_session_does_and_tells_nothing_but_what_its_right_is_for() {
    let served = Served::start(&["--max-sessions", "500"]);
    let server = &served.server;
    let (none, path) = (Rights::NONE, b"there");
    let (write, list) = (Rights { write: true, ..none }, Rights { list: true, ..none });
    for (rights, number, by) in [
        (Rights::READ_ONLY, 1, By::Receiver),
        (list, 2, By::Receiver),
        (write, 0, By::Sender),
        (write, 3, By::Prober),
        (Rights::READ_ONLY, 3, By::Prober),
    ] {
        let token = served.token(rights);
        for message in NAMES.into_iter().flat_map(every_message) {
            // A target has a directory's path.
            let path = if number == 0 { &b""[..] } else { path };
            let (name, open) = requests(server, &token, path)[number].clone();
            let heard = say_in_session(server, open, message.clone());
            let cell = format!("{name}, {message:?}: {heard:?}");
            let may_say = [by, By::Both].contains(&said_by(&message));
            let refused = heard.iter().find_map(|message| match message {
                Message::Refused(fault) => Some(fault.code),
                _ => None,
            });
            assert!(may_say || refused == Some(FaultCode::ProtocolViolation), "{cell}");
            tells_nothing(&heard);
            let gets_bytes = heard.iter().any(|message| matches!(message, Message::ProbeReady(_)));
            assert!(!gets_bytes, "a round both ways needs both rights: {cell}");
            if matches!((number, &message), (2, Message::FileAnswer(_))) {
                assert_eq!(refused, Some(FaultCode::ProtocolViolation), "a byte: {cell}");
            }
        }
    }
    // What was offered and never came has no name, and what is there is as it was.
    let mut left = all_of(&served.place);
    left.retain(|(name, ..)| !crate::harness::is_temporary(name));
    assert_eq!(left, served.before);
    server.still_serves(&served.place);
}

/// A request, and the rights that it needs.
type Request = (Direction, FileOptions, &'static [&'static str]);

/// Options of a session and the rights that they need, by the table of the specification.
fn requests_by_options() -> Vec<Request> {
    use Direction::{Probe, Pull, Push};
    // By its fields: an option that the protocol gets is thought of here.
    let FileOptions {
        on_conflict: _,
        compare_content: _,
        remove_extra: _,
        removals_max: _,
        dry_run: _,
        move_sources: _,
        preserve: _,
        selection_follows: _,
        mirrors_base: _,
        follow: _,
        idle_ms: _,
        append_only: _,
        watch: _,
        watch_for_ms: _,
        preflight: _,
        explain: _,
        recheck: _,
        // What a range offers and is told of is what any file is.
        ranges: _,
        discard: _,
    } = FileOptions::default();
    let plain = FileOptions { preserve: 3, ..FileOptions::default() };
    let dry = FileOptions { dry_run: true, ..plain };
    let compare = FileOptions { compare_content: true, ..plain };
    let mirror = FileOptions { remove_extra: true, ..plain };
    let moving = FileOptions { move_sources: true, ..plain };
    vec![
        (Push, plain, &["write"]),
        (Push, FileOptions { preflight: true, explain: true, ..dry }, &["write"]),
        (Push, FileOptions { on_conflict: OnConflict::Fail, recheck: true, ..plain }, &["write"]),
        (Push, FileOptions { on_conflict: OnConflict::KeepBoth, ..plain }, &["write"]),
        (Push, FileOptions { follow: true, watch: true, append_only: true, ..plain }, &["write"]),
        (Push, FileOptions { discard: true, ..plain }, &["write"]),
        (Push, FileOptions { selection_follows: true, ..plain }, &["write"]),
        (Push, moving, &["write"]),
        (Push, mirror, &["write", "list", "delete"]),
        (
            Push,
            FileOptions { dry_run: true, mirrors_base: true, ..mirror },
            &["write", "list", "delete"],
        ),
        (Push, compare, &["write", "read"]),
        (Push, FileOptions { dry_run: true, ..compare }, &["write", "read"]),
        (Push, FileOptions { on_conflict: OnConflict::Replace, ..compare }, &["write"]),
        (Pull, plain, &["read"]),
        (Pull, dry, &["list"]),
        (Pull, FileOptions { preserve: 15, preflight: true, explain: true, ..dry }, &["list"]),
        (Pull, FileOptions { selection_follows: true, ..dry }, &["list"]),
        (Pull, FileOptions { preserve: 16, ..dry }, &["read"]),
        (Pull, FileOptions { preserve: 32, ..dry }, &["read"]),
        (Pull, FileOptions { compare_content: true, ..dry }, &["read"]),
        (Pull, FileOptions { follow: true, ..dry }, &["read"]),
        (Pull, FileOptions { watch: true, ..dry }, &["read"]),
        (Pull, moving, &["read", "delete"]),
        (Pull, FileOptions { dry_run: true, ..moving }, &["list", "delete"]),
        (Probe, plain, &[]),
    ]
}

/// Each request by a token of each set of rights.
#[test]
fn a_request_is_let_in_by_a_token_that_has_all_of_its_rights_and_by_no_other() {
    let served = Served::start(&["--max-sessions", "1000", "--max-probes", "1000"]);
    for bits in 0..16 {
        let has = |bit: u32| bits & bit != 0;
        let rights = Rights { read: has(1), write: has(2), list: has(4), delete: has(8) };
        let token = served.token(rights);
        let has_right = |right: &str| match right {
            "read" => rights.read,
            "write" => rights.write,
            "list" => rights.list || rights.read,
            "delete" => rights.delete,
            other => panic!("no right is called {other}"),
        };
        for (direction, file_options, needs) in requests_by_options() {
            let open = message::Open {
                file_options: Some(file_options),
                ..asks(&served.server, &token, direction, b"")
            };
            let is_let_in = match direction {
                Direction::Probe => rights.read || rights.write,
                _ => needs.iter().copied().all(has_right),
            };
            let mut peer = Peer::connect(&served.server);
            opens(open).into_iter().for_each(|message| peer.say(message));
            let answer = peer.hear(|message| match message {
                Message::Opened(_) | Message::Refused(_) => Some(message.clone()),
                _ => None,
            });
            let answer = answer.unwrap();
            let cell = format!("{rights:?}, {direction:?}, {file_options:?}: {answer:?}");
            match &answer {
                Message::Refused(fault) => {
                    assert!(!is_let_in && fault.code == FaultCode::RightMissing, "{cell}");
                }
                _ => assert!(is_let_in, "{cell}"),
            }
        }
    }
    served.is_as_before();
}
