//! Servers that mean harm to their clients.
//!
//! A client gives them no byte that they may not have, takes no file that it did not ask for, and
//! ends.

use crate::harness::{
    PATIENCE, Place,
    peer::{FakeServer, Peer, offer},
    process::Ran,
};
use haul_protocol::{
    FileId, Message,
    frame::{FrameHeader, PREFACE_BYTES, Preface},
    message::{self, Answer, Digest, Fault, FaultCode, FileKind, Protection, Side},
};
use std::{
    fs::File,
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

const MIB: u64 = 1 << 20;
/// Time that is more than a client that is left alone needs to end, and far less than for ever.
const SOON: Duration = Duration::from_secs(20);

/// Whether a data stream came in.
fn got_stream(listener: &TcpListener) -> bool {
    listener.set_nonblocking(true).unwrap();
    let accepted = listener.accept();
    listener.set_nonblocking(false).unwrap();
    match accepted {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("{error}"),
    }
}

/// Runs a push and a pull with these options against a server that grants something else, and
/// offers files at once. Returns how each ended, and what the client said behind the handshake.
fn granted(change: fn(&mut message::Opened), options: &[&str]) -> Vec<(Ran, Vec<String>)> {
    let place = Place::new();
    place.file(&place.source("data"), 1000);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let of_thread = heard.clone();
    let serve = move |mut peer: Peer, listener: &TcpListener| {
        if let Ok(open) = peer.let_in_granting(change) {
            if open.direction == message::Direction::Pull {
                peer.say(Message::FileOffer(offer(0, b"data", FileKind::Regular)));
            }
            let heard = peer.hear(|message| Some(format!("{message:?}")));
            of_thread.lock().unwrap().extend(heard);
            if got_stream(listener) {
                of_thread.lock().unwrap().push("a data stream".to_owned());
            }
        }
    };
    let push = words!["push", place.source("data")];
    let pull = words!["pull"];
    let run = |(words, rest): (Vec<_>, Vec<_>)| {
        let fake = FakeServer::start_with_streams(&place.path("fake"), serve.clone());
        let options: Vec<_> = options.iter().map(std::ffi::OsString::from).collect();
        let retry = words!["--retry-for", "1s"];
        let ran = place.run(&[words, words![fake.url("data")], rest, options, retry].concat());
        drop(fake);
        (ran, std::mem::take(&mut *heard.lock().unwrap()))
    };
    let ran = [(push, words![]), (pull, words![place.target("")])].map(run);
    assert!(haul_testkit::tree::names(&place.path("target")).unwrap().is_empty());
    ran.into()
}

#[test]
fn a_server_that_grants_something_else_than_was_asked_gets_no_byte() {
    type Change = fn(&mut message::Opened);
    let clear: Change = |opened| {
        opened.protection = Protection::Clear;
        opened.digest = Digest::Crc32c;
    };
    let none: Change = |opened| opened.digest = Digest::None;
    let more: Change = |opened| opened.streams = 3;
    for (change, options, asked, granted_is) in [
        (clear, &[][..], "safe with aes-gmac", "clear with crc32c"),
        (none, &[][..], "safe with aes-gmac", "safe with none"),
        (none, &["--protection", "clear"][..], "clear with crc32c", "clear with none"),
        (more, &["--streams", "2"][..], "2 streams", "3 streams"),
    ] {
        for (ran, heard) in granted(change, options) {
            ran.refused(&["granted something else", asked, granted_is]);
            assert!(ran.named("session").is_empty(), "{ran:?}");
            assert!(heard.is_empty(), "the client went on: {heard:?}");
        }
    }
}

/// Says goodbye as a sender and hears the client's.
fn finish(peer: &mut Peer) {
    peer.say(Message::OffersEnd(message::OffersEnd::default()));
    peer.say(Message::Finish(message::Finish::default()));
    let finished = |message: &Message| matches!(message, Message::Finish(_)).then_some(());
    peer.hear(finished).unwrap();
}

/// A name that nobody asked for: `.bashrc` in a home directory would be run.
#[test]
fn a_server_that_offers_a_name_that_nobody_asked_for_writes_nothing() {
    let place = Place::new();
    let fake = FakeServer::start(&place.path("fake"), |mut peer| {
        if peer.let_in().is_err() {
            return;
        }
        let names = [&b".bashrc"[..], b"data2", b"Data", b"dat", b".bashrc/data", b"dir/data"];
        let kinds = [FileKind::Regular, FileKind::Directory, FileKind::Symlink];
        let others = names.into_iter().flat_map(|name| kinds.map(|kind| (name, kind)));
        let mut number = 0;
        for (name, kind) in others {
            let mut bad = offer(number, name, kind);
            if kind == FileKind::Symlink {
                bad.link_target = b"/".to_vec();
            }
            let fault = peer.offer(bad).unwrap().expect("it was taken");
            assert_eq!((fault.code, fault.side), (FaultCode::NameRefused, Side::Source));
            assert_eq!(fault.path, name, "{fault:?}");
            number += 1;
        }
        assert_eq!(peer.offer(offer(number, b"data", FileKind::Regular)).unwrap(), None);
        finish(&mut peer);
    });
    let ran = place.pull(&words![fake.url("dir/data"), place.target(""), "--retry-for", "1s"]);
    ran.failed(18);
    ran.says(&[".bashrc", "never asked for", "do not trust this server"]);
    // On the screen the others are counted; for programs each is told.
    for name in [".bashrc", "data2", "dir/data"] {
        let is_told = |error: &&serde_json::Value| {
            error["path"] == name && error["what"].as_str().unwrap().contains("never asked for")
        };
        assert!(ran.named("error").iter().any(is_told), "{name}: {ran:?}");
    }
    let written = haul_testkit::tree::names(&place.path("target")).unwrap();
    assert_eq!(written, [std::path::Path::new("data")]);
}

/// Takes the client's next data stream, and the first of its bytes but the preface.
fn take_stream(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_exact(&mut [0; PREFACE_BYTES]).unwrap();
    stream.peek(&mut [0]).unwrap();
    // The buffers of both ends fill up.
    thread::sleep(Duration::from_millis(500));
    stream
}

/// A stream that stays open with its window closed: what is under way can never be sent.
#[test]
fn a_server_that_takes_a_stream_and_reads_nothing_of_it_holds_no_client() {
    let place = Place::new();
    File::create(place.source("data")).unwrap().set_len(256 * MIB).unwrap();
    let fake = FakeServer::start_with_streams(&place.path("fake"), |mut peer, listener| {
        if peer.let_in().is_err() {
            return;
        }
        peer.hear(|message| matches!(message, Message::OffersEnd(_)).then_some(())).unwrap();
        let need = message::Need { span_bytes: 64 * MIB, ..message::Need::default() };
        let answer = message::FileAnswer { file: FileId(0), answer: Answer::Need(need) };
        peer.say(Message::FileAnswer(answer));
        peer.sync().unwrap();
        let stream = take_stream(listener);
        let fault = Fault::new(FaultCode::IoFailed, Side::Target, "the disk is gone");
        peer.say(Message::FileSettled(message::FileSettled {
            file: FileId(0),
            fault: Some(fault),
        }));
        peer.hear(|message| matches!(message, Message::Finish(_)).then_some(())).unwrap();
        peer.say(Message::Finish(message::Finish::default()));
        peer.hear_close();
        drop(stream);
    });
    let begun = Instant::now();
    let ran = place.push(&words![place.source("data"), fake.url(""), "--retry-for", "1s"]);
    ran.failed(1);
    ran.says(&["data", "target", "the disk is gone"]);
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}

/// Options with short times, after which a server is left that does not do what it owes.
const STALL: [&str; 4] = ["--stall-timeout", "500ms", "--retry-for", "1s"];

/// Runs `haul WORDS` against a server that goes on answering pings, and checks how it is left.
fn left_waiting(
    words: &[std::ffi::OsString],
    serve: impl FnMut(&mut Peer, &TcpListener) + Send + Clone + 'static,
    due: &str,
) -> Ran {
    let place = Place::new();
    place.file(&place.source("data"), 100_000);
    let mut serve = serve;
    let fake = FakeServer::start_with_streams(&place.path("fake"), move |mut peer, listener| {
        if peer.let_in().is_ok() {
            serve(&mut peer, listener);
            peer.hear_close();
        }
    });
    let push = words![place.source("data"), fake.url("")];
    let pull = words![fake.url("data"), place.target("")];
    let rest = if words[0] == "push" { push } else { pull };
    let begun = Instant::now();
    let stall: Vec<_> = STALL.iter().map(std::ffi::OsString::from).collect();
    let ran = place.run(&[words, &rest, &stall].concat());
    assert!(ran.status == 1 || ran.status == 2, "{ran:?}");
    ran.says(&["the other side is due", due, "answers to pings"]);
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    ran
}

fn hear_offers(peer: &mut Peer) {
    peer.hear(|message| matches!(message, Message::OffersEnd(_)).then_some(())).unwrap();
}

/// A server that answers pings, so it is there, and that the client waited for without end.
#[test]
fn a_server_that_never_says_goodbye_is_left_in_words() {
    let skips = |peer: &mut Peer, _: &TcpListener| {
        hear_offers(peer);
        let answer = Answer::Skip;
        peer.say(Message::FileAnswer(message::FileAnswer { file: FileId(0), answer }));
    };
    let ran = left_waiting(&words!["push"], skips, "the goodbye");
    assert_eq!(ran.named("file").len(), 1, "{ran:?}");
    let brings_nothing = |peer: &mut Peer, _: &TcpListener| {
        let fault = Fault::new(FaultCode::NotFound, Side::Source, "is not there");
        peer.say(Message::Notice(message::Notice { fault: Some(fault), ..Default::default() }));
        peer.say(Message::OffersEnd(message::OffersEnd::default()));
    };
    left_waiting(&words!["pull"], brings_nothing, "the goodbye");
}

#[test]
fn a_server_that_never_answers_or_offers_is_left_in_words() {
    left_waiting(&words!["push"], |peer, _| hear_offers(peer), "an answer to what was offered");
    let due = "an offer, or the end of the offers";
    left_waiting(&words!["pull"], |_, _| {}, due);
    // Progress that is none does not help.
    let says_progress = |peer: &mut Peer, _: &TcpListener| {
        hear_offers(peer);
        for _ in 0..100 {
            peer.say(Message::Progress(message::Progress::default()));
            if peer.sync().is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(200));
        }
    };
    left_waiting(&words!["push"], says_progress, "an answer to what was offered");
}

/// A server that reads every byte, acknowledges none, and never lets the stream go.
#[test]
fn a_server_that_acknowledges_nothing_of_what_it_reads_is_left_in_words() {
    let reads_only = |peer: &mut Peer, listener: &TcpListener| {
        hear_offers(peer);
        let need = message::Need { span_bytes: 64 << 10, ..message::Need::default() };
        let answer = Answer::Need(need);
        peer.say(Message::FileAnswer(message::FileAnswer { file: FileId(0), answer }));
        peer.sync().unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
    };
    left_waiting(&words!["push"], reads_only, "the end of a data stream");
}

/// Ends each data stream that comes in as if all had been sent, until it is told to stop; returns
/// the number of streams. Returns how many there were.
fn end_streams(listener: &TcpListener, stop: &AtomicBool) -> u32 {
    listener.set_nonblocking(true).unwrap();
    let mut ended = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let Ok((mut stream, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut preface = [0; PREFACE_BYTES];
        // Another is no data stream: the client tries to come back.
        if stream.read_exact(&mut preface).is_ok()
            && let Ok(preface) = Preface::decode(&preface)
        {
            let end = FrameHeader::End { stream: preface.stream, sequence: 0 };
            stream.write_all(&end.encode()).unwrap();
            ended.push(stream);
        }
    }
    listener.set_nonblocking(false).unwrap();
    u32::try_from(ended.len()).unwrap()
}

/// The orderly end of a stream is signed by nobody: whoever is on the path can forge it.
#[test]
fn streams_that_end_before_all_has_come_hold_no_pull() {
    let place = Place::new();
    let (tell, told) = mpsc::channel();
    let fake = FakeServer::start_with_streams(&place.path("fake"), move |mut peer, listener| {
        if peer.let_in().is_err() {
            return;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (streams, stopping) = (listener.try_clone().unwrap(), stop.clone());
        let ending = thread::spawn(move || end_streams(&streams, &stopping));
        let size_bytes = 8 * MIB;
        let offered = message::FileOffer { size_bytes, ..offer(0, b"data", FileKind::Regular) };
        peer.say(Message::FileOffer(offered));
        peer.say(Message::OffersEnd(message::OffersEnd { files: 1, bytes: size_bytes }));
        peer.hear_close();
        stop.store(true, Ordering::SeqCst);
        let _ = tell.send(ending.join().unwrap());
    });
    let begun = Instant::now();
    let stall: Vec<_> = STALL.iter().map(std::ffi::OsString::from).collect();
    let ran = place.pull(&[words![fake.url("data"), place.target("")], stall].concat());
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    // "Opening others" is what it says.
    assert!(told.recv_timeout(PATIENCE).unwrap() > 1, "{ran:?}");
}
