//! Tests of channels: two ends with pipes between them, and ends that lie.

use super::{frames::HEADER_BYTES, *};
use haul_transfer::{Interrupt, ServeOptions, ServeRoot, Server};
use std::{
    io::{PipeReader, PipeWriter},
    time::{Duration, Instant},
};

/// A near end, and what the other end hears and says.
fn near() -> (Arc<Channels>, PipeReader, PipeWriter, thread::JoinHandle<Ended>) {
    let (heard, writer) = io::pipe().unwrap();
    let (mut input, says) = io::pipe().unwrap();
    let near = Channels::new(writer.into());
    let reading = near.clone();
    let reads = thread::spawn(move || reading.read_from(&mut input, None));
    (near, heard, says, reads)
}

fn frame(kind: u8, number: u32, value: u32, bytes: &[u8]) -> Vec<u8> {
    [&[kind][..], &number.to_be_bytes(), &value.to_be_bytes(), bytes].concat()
}

fn hear(heard: &mut impl Read) -> (u8, u32, u32, Vec<u8>) {
    let mut header = [0; HEADER_BYTES];
    heard.read_exact(&mut header).unwrap();
    let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
    let len = if header[0] == DATA { word(5) as usize } else { 0 };
    let mut bytes = vec![0; len];
    heard.read_exact(&mut bytes).unwrap();
    (header[0], word(1), word(5), bytes)
}

#[test]
fn bytes_go_both_ways_and_each_way_ends_by_itself() {
    let (near, mut heard, mut says, reads) = near();
    let mut socket = near.connect().unwrap();
    assert_eq!(hear(&mut heard), (OPEN, 1, 0, vec![]));
    socket.write_all(b"to there").unwrap();
    assert_eq!(hear(&mut heard), (DATA, 1, 8, b"to there".to_vec()));
    socket.shutdown(Shutdown::Write).unwrap();
    assert_eq!(hear(&mut heard), (END, 1, 0, vec![]));
    says.write_all(&frame(DATA, 1, 4, b"back")).unwrap();
    says.write_all(&frame(END, 1, 0, &[])).unwrap();
    let mut back = Vec::new();
    socket.read_to_end(&mut back).unwrap();
    assert_eq!(back, b"back");
    assert_eq!(hear(&mut heard), (CREDIT, 1, 4, vec![]));
    assert_eq!(near.carried_bytes(), 12);
    says.write_all(&[THROUGH]).unwrap();
    assert_eq!(reads.join().unwrap(), Ended::Through);
    assert!(near.connect().is_err(), "the other end is through");
}

/// A sender stops at its credit while its reader is slow; another channel goes on beside it.
#[test]
fn a_channel_without_credit_waits_and_holds_up_no_other() {
    let (near, mut heard, mut says, _reads) = near();
    let (mut slow, mut other) = (near.connect().unwrap(), near.connect().unwrap());
    assert_eq!([hear(&mut heard).0, hear(&mut heard).0], [OPEN, OPEN]);
    let writes = thread::spawn(move || {
        let all = vec![7; 2 * CREDIT_BYTES as usize];
        slow.write_all(&all).map(|()| slow)
    });
    let mut sent = 0;
    while sent < CREDIT_BYTES {
        let (kind, number, len, _) = hear(&mut heard);
        assert_eq!((kind, number), (DATA, 1));
        sent += len;
    }
    assert_eq!(sent, CREDIT_BYTES);
    other.write_all(b"x").unwrap();
    assert_eq!(hear(&mut heard), (DATA, 2, 1, b"x".to_vec()), "and nothing of the first");
    says.write_all(&frame(CREDIT, 1, 10, &[])).unwrap();
    assert_eq!(hear(&mut heard), (DATA, 1, 10, vec![7; 10]));
    says.write_all(&frame(RESET, 1, 0, &[])).unwrap();
    assert!(writes.join().unwrap().is_err() || near.over().is_none());
}

#[test]
fn who_says_what_no_end_may_say_ends_all_channels() {
    let too_much = frame(DATA, 1, DATA_BYTES_MAX as u32, &[0; DATA_BYTES_MAX]);
    let beyond = CREDIT_BYTES as usize / DATA_BYTES_MAX + 1;
    for (said, why) in [
        (frame(OPEN, 9, 0, &[]), "only a client"),
        (frame(DATA, 1, DATA_BYTES_MAX as u32 + 1, &[]), "frame of"),
        (frame(b'?', 1, 0, &[]), "kind 63"),
        (frame(OPEN, 1, 0, &[]), "kind 79"),
        (too_much.repeat(32 * beyond), "credit"),
    ] {
        let (near, heard, mut says, reads) = near();
        let socket = near.connect().unwrap();
        // Nobody reads the socket: what comes stays in its buffers and then with the channel.
        let _ = says.write_all(&said);
        let Ended::Violated(found) = reads.join().unwrap() else { panic!("{why}") };
        assert!(found.contains(why), "{found}");
        let mut rest = Vec::new();
        let _ = (&socket).read_to_end(&mut rest);
        assert!(near.over().unwrap().contains(why));
        drop(heard);
    }
}

#[test]
fn words_about_channels_that_are_not_there_are_skipped() {
    let (near, mut heard, mut says, _reads) = near();
    for kind in [CREDIT, END, RESET, DATA] {
        says.write_all(&frame(kind, 77, 0, &[])).unwrap();
    }
    let _socket = near.connect().unwrap();
    assert_eq!(hear(&mut heard).0, OPEN);
    says.write_all(&frame(RESET, 1, 0, &[])).unwrap();
    drop(says);
}

/// Threads of channels in this process.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("haul-ssh-out")).count()
}

/// Opens and resets channels without reading: each would leave a thread that waits to say its end.
#[test]
fn a_near_end_that_opens_and_resets_without_reading_gathers_no_threads() {
    let (unread, writer) = io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    let (mut input, mut says) = io::pipe().unwrap();
    let far = Channels::new(writer.into());
    with_server(|inlet| {
        thread::scope(|scope| {
            let reads = scope.spawn(|| far.read_from(&mut input, Some(inlet)));
            let mut most = 0;
            for number in 1..=1000 {
                says.write_all(&frame(OPEN, number, 0, &[])).unwrap();
                says.write_all(&frame(RESET, number, 0, &[])).unwrap();
                if number % 32 > 0 {
                    continue;
                }
                // A byte for no channel shows how far the other end has come. No more are opened
                // at a time than there may be: those are refused, in words.
                says.write_all(&frame(DATA, 7777, 1, b"x")).unwrap();
                let heard_of = || far.carried_bytes() == u64::from(number) / 32;
                let until = Instant::now() + Duration::from_secs(10);
                while !(heard_of() && lock(&far.open).is_empty()) && Instant::now() < until {
                    thread::sleep(Duration::from_millis(1));
                }
                most = if Instant::now() < until { most.max(threads()) } else { usize::MAX };
                if most == usize::MAX {
                    break;
                }
            }
            drop((unread, says));
            assert_eq!(reads.join().unwrap(), Ended::Gone);
            assert!(most < 2 * CHANNELS_MAX, "{most} threads");
        });
    });
}

/// A client goes on when ssh takes nothing: it has its own time for an answer.
#[test]
fn opening_a_channel_waits_for_nobody_and_many_small_frames_are_few_in_memory() {
    let (near, heard, mut says, _reads) = near();
    let mut full = near.connect().unwrap();
    full.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    // Nobody reads what the pipe to ssh holds.
    while full.write(&[0; 4096]).is_ok() {}
    let begun = Instant::now();
    let _other = near.connect().unwrap();
    assert!(near.say_through().is_err());
    assert!(begun.elapsed() < Duration::from_secs(5));
    for _ in 0..10_000 {
        says.write_all(&frame(DATA, 1, 1, b"x")).unwrap();
    }
    // The reader of the socket is slow: its buffers take some, and the rest waits here.
    let state = || lock(&near.open)[&1].clone();
    let deadline = Instant::now() + Duration::from_secs(10);
    while near.carried_bytes() < 10_000 {
        assert!(Instant::now() < deadline, "{}", near.carried_bytes());
        thread::sleep(Duration::from_millis(5));
    }
    assert!(lock(&state().state).come.len() <= 2, "{}", lock(&state().state).come.len());
    near.end("the test is over".to_owned());
    drop(heard);
}

/// The far end gives what was opened to its server; more channels than it takes are reset.
#[test]
fn a_server_gets_the_channels_of_the_other_end_up_to_a_number() {
    let (mut heard, writer) = io::pipe().unwrap();
    let (mut input, mut says) = io::pipe().unwrap();
    let far = Channels::new(writer.into());
    with_server(|inlet| {
        thread::scope(|scope| {
            let reads = scope.spawn(|| far.read_from(&mut input, Some(inlet)));
            for number in 1..=CHANNELS_MAX as u32 + 1 {
                says.write_all(&frame(OPEN, number, 0, &[])).unwrap();
            }
            let refused = hear(&mut heard);
            assert_eq!((refused.0, refused.1), (RESET, CHANNELS_MAX as u32 + 1));
            says.write_all(&frame(DATA, 1, 18, b"GET / HTTP/1.1\r\n\r\n")).unwrap();
            let answer = loop {
                let (kind, number, _, bytes) = hear(&mut heard);
                if kind == DATA {
                    break (number, String::from_utf8(bytes).unwrap());
                }
            };
            assert_eq!(answer.0, 1);
            assert!(answer.1.contains("haul"), "{}", answer.1);
            drop(says);
            assert_eq!(reads.join().unwrap(), Ended::Gone);
        });
    });
}

/// Calls `act` with the inlet of a server that runs.
fn with_server(act: impl FnOnce(&Inlet)) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let state = directory.path().join("state");
    let mut options = ServeOptions::new(ServeRoot::Directory(root), state);
    options.listen = "127.0.0.1:0".into();
    let server = Server::bind(options).unwrap();
    let (inlet, stop) = (server.inlet(), Interrupt::default());
    thread::scope(|scope| {
        scope.spawn(|| server.run(&stop, &|_| {}).unwrap());
        act(&inlet);
        stop.store(true, Ordering::Relaxed);
    });
}
