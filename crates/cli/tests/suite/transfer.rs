//! Correctness: whatever is pushed or pulled by the real `haul` arrives as it was.

use crate::harness::{
    Place, assert_no_temporaries, assert_same_files, assert_same_trees, is_long, is_root,
    process::{Haul, Ran},
    server::{Server, ServerSetup},
    skip_long,
};
use haul_datapath::{EngineInfo, Host, Verdict, engines::ENGINES};
use haul_transfer::{Protection, TransferOptions};
use rustix::process::Signal;
use serde_json::Value;
use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, FileTimes, Permissions},
    io::{Read, Write},
    net::TcpStream,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::Path,
    time::{Duration, Instant, UNIX_EPOCH},
};

const MIB: u64 = 1 << 20;

/// Sets a time that is no whole second, before 1970 when `seconds` is negative.
fn set_time(path: &Path, seconds: i64, ns: u32) {
    let away = Duration::from_secs(seconds.unsigned_abs());
    let second = if seconds < 0 { UNIX_EPOCH - away } else { UNIX_EPOCH + away };
    let times = FileTimes::new().set_modified(second + Duration::from_nanos(ns.into()));
    File::open(path).unwrap().set_times(times).unwrap();
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Checks that neither side takes more than 64 MiB, however large the file is.
#[track_caller]
fn assert_small(ran: &Ran) {
    for side in ["source", "target"] {
        let memory = ran.report()[side]["max_rss_bytes"].as_u64().unwrap();
        assert!(memory <= 64 * MIB, "the {side} took {memory} bytes of memory");
    }
}

#[test]
fn a_dense_file_arrives_pushed_and_pulled_with_mode_and_time() {
    let place = Place::new();
    let server = Server::start(&place);
    let len = if is_long() { 20_000 * MIB } else { 48 * MIB };
    if !is_long() {
        skip_long("a file of 20 GB");
    }
    let source = place.source("data.bin");
    place.file(&source, len + 12_345);
    set_mode(&source, 0o640);
    set_time(&source, 1_600_000_000, 123_456_789);
    let ran = place.push(&words![source, server.url("")]);
    let report = ran.ok();
    assert_eq!(report["bytes"], len + 12_345);
    assert_eq!(report["moved_bytes"], len + 12_345);
    assert_eq!((&report["resumed_bytes"], &report["protection"]), (&0.into(), &"safe".into()));
    assert_small(&ran);
    assert_same_files(&source, &place.root("data.bin"));
    // Two of them are enough for a small disk.
    fs::remove_file(&source).unwrap();
    let words = words![server.url("data.bin"), place.target(""), "--protection", "clear"];
    let ran = place.pull(&words);
    assert_eq!(ran.ok()["moved_bytes"], len + 12_345);
    assert_small(&ran);
    assert_same_files(&place.root("data.bin"), &place.target("data.bin"));
    assert_no_temporaries(&place.path(""));
}

#[test]
fn several_sources_arrive_under_their_names_and_a_slash_means_the_contents() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("a"), MIB + 1);
    place.file(&place.source("b"), 17);
    place.tree(&place.source("dir"), 3, 7);
    let (a, b) = (place.source("a"), place.source("b"));
    place.push(&words![a, b, place.source("dir"), server.url("")]).ok();
    assert_same_trees(&place.path("source"), &place.path("root"));
    place.push(&words![place.source("dir/"), server.url("into/deep/")]).ok();
    assert_same_trees(&place.source("dir"), &place.root("into/deep"));
    // The same rule the other way round.
    place.pull(&words![server.url("a"), server.url("b"), server.url("dir"), place.target("")]).ok();
    assert_same_trees(&place.path("source"), &place.path("target"));
    place.pull(&words![server.url("dir/"), place.target("contents")]).ok();
    assert_same_trees(&place.source("dir"), &place.target("contents"));
    assert_no_temporaries(&place.path(""));
}

#[test]
fn a_whole_tree_of_the_system_arrives() {
    if !is_long() {
        return skip_long("a copy of /usr/share and /usr/lib");
    }
    let place = Place::new();
    let server = Server::start(&place);
    for (name, tree) in [("share", "/usr/share"), ("lib", "/usr/lib")] {
        place.push(&words![tree, server.url("")]).ok();
        assert_same_trees(Path::new(tree), &place.root(name));
        place.pull(&words![server.url(name), place.target("")]).ok();
        assert_same_trees(Path::new(tree), &place.target(name));
    }
}

#[test]
fn a_target_is_a_directory_or_a_new_name() {
    let place = Place::new();
    let server = Server::start(&place);
    let source = place.source("file");
    place.file(&source, 100_000);
    fs::create_dir(place.root("there")).unwrap();
    for (path, arrives) in [
        ("", "file"),
        ("new/dir/", "new/dir/file"),
        ("newname", "newname"),
        ("there", "there/file"),
        ("new/dir/other", "new/dir/other"),
        ("with%20blank", "with blank"),
    ] {
        place.push(&words![source, server.url(path)]).ok();
        assert_same_files(&source, &place.root(arrives));
    }
    fs::create_dir(place.target("there")).unwrap();
    for (target, arrives) in [
        ("", "file"),
        ("new/dir/", "new/dir/file"),
        ("there", "there/file"),
        ("new/dir/name", "new/dir/name"),
    ] {
        place.pull(&words![server.url("file"), place.target(target)]).ok();
        assert_same_files(&source, &place.target(arrives));
    }
    place.pull(&words![server.url("new/dir/other"), "."]).ok();
    assert_same_files(&source, &place.path("other"));
}

/// Makes a tree of names, kinds, modes and times that tools like to lose.
fn odd_tree(place: &Place, root: &Path) {
    let at = |name: &[u8]| root.join(OsStr::from_bytes(name));
    place.file(&at(b"empty"), 0);
    place.file(&at(b"one byte"), 1);
    for name in [&b" leading and trailing "[..], b"a\nline", b"\xff\xfe\x80", b"-rf", b"%41", b"*"]
    {
        place.file(&at(name), 1000);
    }
    place.file(&at(&[b'x'; 255]), 70_000);
    place.file(&at(&[b"deep/".repeat(60), b"\xc3\xa4".to_vec()].concat()), 10);
    fs::create_dir_all(at(b"empty directory/\x01")).unwrap();
    for (mode, seconds, ns) in
        [(0o600, -5, 500_000_000), (0o755, 1, 1), (0o444, 4_102_444_800, 999_999_999)]
    {
        let path = at(format!("modes/{mode:o}").as_bytes());
        place.file(&path, 200_000);
        set_mode(&path, mode);
        set_time(&path, seconds, ns);
    }
    place.file(&at(b"closed/inside"), 10);
    symlink("one byte", at(b"link")).unwrap();
    symlink("empty directory", at(b"link to directory")).unwrap();
    symlink("/nowhere/at all", at(b"dangling")).unwrap();
    symlink(OsStr::from_bytes(&[b'y'; 4000]), at(b"long link")).unwrap();
    for (name, mode) in [(&b"closed"[..], 0o555), (b"modes", 0o700), (b"empty directory", 0o1777)] {
        set_mode(&at(name), mode);
        set_time(&at(name), 1_500_000_000, 5);
    }
}

#[test]
fn odd_names_links_modes_times_and_empty_things_arrive() {
    let place = Place::new();
    let server = Server::start(&place);
    let source = place.source("odd");
    fs::create_dir(&source).unwrap();
    odd_tree(&place, &source);
    place.push(&words![source, server.url("")]).ok();
    assert_same_trees(&place.path("source"), &place.path("root"));
    place.pull(&words![server.url("odd"), place.target("")]).ok();
    assert_same_trees(&place.path("source"), &place.path("target"));
    assert_no_temporaries(&place.path(""));
    // Single odd names, too.
    for name in [&b"\xff\xfe\x80"[..], b"a\nline", b"%41", &[b'x'; 255]] {
        let file = source.join(OsStr::from_bytes(name));
        place.push(&words![file, server.url("single/")]).ok();
        assert_same_files(&file, &place.root("single").join(OsStr::from_bytes(name)));
        let path = format!("single/{}", Server::escaped(name));
        place.pull(&words![server.url(path), place.target("single/")]).ok();
        assert_same_files(&file, &place.target("single").join(OsStr::from_bytes(name)));
    }
    set_mode(&source.join("closed"), 0o755);
    set_mode(&place.root("odd/closed"), 0o755);
    set_mode(&place.target("odd/closed"), 0o755);
}

/// The first second of 1970, which archives and reproducible builds give every file.
#[test]
fn a_file_of_the_first_second_of_1970_keeps_its_time_and_is_skipped_the_second_time() {
    let place = Place::new();
    let server = Server::start(&place);
    let source = place.source("old");
    place.file(&source, 3000);
    set_time(&source, 0, 0);
    place.push(&words![source, server.url("")]).ok();
    assert_same_files(&source, &place.root("old"));
    let again = place.push(&words![source, server.url("")]);
    assert_eq!(again.ok()["files"]["skipped"], 1);
}

#[test]
fn a_sparse_file_and_one_that_replaces_another_arrive() {
    let place = Place::new();
    let server = Server::start(&place);
    let sparse = place.source("sparse");
    place.file(&sparse, 4097);
    let file = File::options().write(true).open(&sparse).unwrap();
    file.set_len(9 * MIB).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", 9 * MIB - 3).unwrap();
    place.file(&place.root("sparse"), 5 * MIB);
    place.push(&words![sparse, server.url("")]).ok();
    assert_same_files(&sparse, &place.root("sparse"));
    // Set-user-id from elsewhere would be a way in.
    let program = place.source("program");
    place.file(&program, 10);
    set_mode(&program, 0o6755);
    place.push(&words![program, server.url("")]).ok();
    assert_eq!(place.root("program").metadata().unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn every_protection_and_digest_moves_the_same_bytes_and_is_named() {
    let place = Place::new();
    let server = Server::start(&place);
    let source = place.source("data");
    place.file(&source, 5 * MIB + 17);
    let mut clear = TransferOptions::default();
    clear.protection = Protection::Clear;
    let default = clear.digest_name();
    for (words, protection, digest) in [
        (words![], "safe", "aes-gmac"),
        (words!["--protection", "safe"], "safe", "aes-gmac"),
        (words!["--protection", "clear"], "clear", default),
        (words!["--protection", "clear", "--digest", "xxh3-128"], "clear", "xxh3-128"),
        (words!["--protection", "clear", "--digest", "crc32c"], "clear", "crc32c"),
        (words!["--protection", "clear", "--digest", "none"], "clear", "none"),
    ] {
        let target = place.target(digest);
        let url = server.url(format!("{digest}/"));
        let pushed = place.push(&[words![source, url], words.clone()].concat());
        let _ = fs::remove_file(&target);
        let pulled =
            place.pull(&[words![server.url(format!("{digest}/data")), target], words].concat());
        for ran in [&pushed, &pulled] {
            let named = (&ran.ok()["protection"], &ran.report()["digest"]);
            assert_eq!(named, (&protection.into(), &digest.into()));
        }
        assert_same_files(&source, &place.root(digest).join("data"));
        assert_same_files(&source, &target);
        fs::remove_dir_all(place.root(digest)).unwrap();
    }
}

#[test]
fn a_server_that_wants_safe_refuses_clear_and_says_what_to_do() {
    let place = Place::new();
    let server = ServerSetup::new(&place).options(&["--protection-min", "safe"]).start(&place);
    place.file(&place.source("data"), 1000);
    let words = words![place.source("data"), server.url(""), "--protection", "clear"];
    place.push(&words).refused(&["protection", "--protection safe"]);
    assert!(!place.root("data").exists());
    server.still_serves(&place);
}

fn usable(able: impl Fn(&EngineInfo) -> bool) -> Vec<&'static EngineInfo> {
    let host = Host::read(Path::new("/"));
    let able = ENGINES.iter().copied().filter(|engine| engine.takes_tcp() && able(engine));
    able.filter(|engine| match (engine.probe)(&host) {
        Verdict::Usable => true,
        Verdict::Refused { needs, found } => {
            haul_testkit::skip::skip(&format!("{needs} for engine {}", engine.name), &found);
            false
        }
    })
    .collect()
}

/// Checks that the engines of the report are those that were asked for, unless one fell back and
/// said so.
#[track_caller]
fn assert_engines(ran: &Ran, send: &str, receive: &str) {
    let report = ran.ok();
    let fell_back = !ran.named("fallback").is_empty();
    let told = (&report["send_engine"], &report["receive_engine"]);
    assert!(fell_back || told == (&send.into(), &receive.into()), "{ran:?}");
}

#[test]
fn every_engine_pair_moves_the_same_bytes_both_ways() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("tree/large"), 3 * MIB + 4097);
    place.file(&place.source("tree/page"), 4096);
    place.file(&place.source("tree/byte"), 1);
    place.file(&place.source("tree/none"), 0);
    let receivers = usable(|engine| engine.open_receive.is_some() && engine.name != "discard");
    let mut pairs = 0;
    for send in usable(|engine| engine.open_send.is_some()) {
        for receive in &receivers {
            let (send, receive) = (send.name, receive.name);
            let engines = words!["--send-engine", send, "--receive-engine", receive];
            let clear = words!["--protection", "clear", "--span-size", "1M"];
            let pair = format!("{send}-{receive}");
            let words = words![place.source("tree/"), server.url(format!("{pair}/"))];
            assert_engines(&place.push(&[words, engines.clone()].concat()), send, receive);
            assert_same_trees(&place.source("tree"), &place.root(&pair));
            let words = words![server.url(format!("{pair}/")), place.target(&pair)];
            assert_engines(&place.pull(&[words, engines, clear].concat()), send, receive);
            assert_same_trees(&place.source("tree"), &place.target(&pair));
            fs::remove_dir_all(place.root(&pair)).unwrap();
            fs::remove_dir_all(place.target(&pair)).unwrap();
            pairs += 1;
        }
    }
    println!("{pairs} pairs of engines, both ways");
}

/// The notices of zero-copy sends are an error queue's (POLLERR), and were once taken for a reset.
#[test]
fn zero_copy_sends_break_no_stream_and_say_once_that_the_wire_copies() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("data"), 100 * MIB);
    let options = words!["--send-engine", "zerocopy-send", "--streams", "2"];
    for pass in 0..3 {
        let words = words![place.source("data"), server.url(format!("{pass}/"))];
        let ran = place.push(&[words, options.clone()].concat());
        assert_eq!((ran.number("reconnections"), ran.number("resent_spans")), (0, 0), "{ran:?}");
        let fallbacks = ran.named("fallback");
        assert!(fallbacks.len() <= 2, "one for each stream at most: {fallbacks:?}");
        fs::remove_dir_all(place.root(pass.to_string())).unwrap();
    }
}

#[test]
fn discard_is_for_null_only() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("data"), MIB);
    let discard = words!["--receive-engine", "discard"];
    let ran =
        place.push(&[words![place.source("data"), server.url("null:")], discard.clone()].concat());
    assert_engines(&ran, ran.report()["send_engine"].as_str().unwrap(), "discard");
    let ran = place.push(&[words![place.source("data"), server.url("")], discard].concat());
    assert_ne!(ran.status, 0, "a file was thrown away and called done: {ran:?}");
    ran.says(&["discard"]);
    assert!(!place.root("data").exists());
}

#[test]
fn streams_and_spans_of_every_number_and_size_move_the_same_bytes() {
    let place = Place::new();
    let server = Server::start(&place);
    let source = place.source("data");
    place.file(&source, 4 * MIB + 65_537);
    for streams in 1..=4_u32 {
        for (name, span_bytes) in [("64K", 65_536_u64), ("1M", MIB), ("1G", 1 << 30)] {
            let streams = streams.to_string();
            let options = words!["--streams", streams, "--span-size", name];
            let ran = place.push(&[words![source, server.url("pushed")], options.clone()].concat());
            let told = (&ran.ok()["streams"], &ran.report()["span_bytes"]);
            let asked = (streams.parse::<u64>().unwrap(), span_bytes);
            assert_eq!(told, (&asked.0.into(), &asked.1.into()));
            assert_same_files(&source, &place.root("pushed"));
            let ran =
                place.pull(&[words![server.url("pushed"), place.target("")], options].concat());
            assert_eq!(ran.ok()["streams"], asked.0);
            assert_same_files(&source, &place.target("pushed"));
            fs::remove_file(place.root("pushed")).unwrap();
            fs::remove_file(place.target("pushed")).unwrap();
        }
    }
}

#[test]
fn zeros_come_from_no_disk_and_null_goes_to_none() {
    let place = Place::new();
    let server = Server::start(&place);
    let zeros = |path: &Path| fs::read(path).unwrap().iter().all(|byte| *byte == 0);
    let ran = place.push(&words!["zero:3M", server.url("zeros")]);
    assert_eq!(ran.ok()["bytes"], 3 * MIB);
    assert!(
        zeros(&place.root("zeros")) && place.root("zeros").metadata().unwrap().len() == 3 * MIB
    );
    place.pull(&words![server.url("zero:70000"), place.target("pulled")]).ok();
    assert!(zeros(&place.target("pulled")));
    assert_eq!(place.target("pulled").metadata().unwrap().len(), 70_000);
    place.file(&place.source("data"), 2 * MIB);
    let before = haul_testkit::tree::names(&place.path("")).unwrap();
    for ran in [
        place.push(&words!["zero:64M", server.url("null:")]),
        place.push(&words![place.source("data"), server.url("null:")]),
        place.pull(&words![server.url("zero:64M"), "null:"]),
        place.pull(&words![server.url("zeros"), "null:"]),
        place.push(&words!["zero:0", server.url("null:")]),
    ] {
        assert_eq!(ran.ok()["files"]["done"], 1);
    }
    let after = haul_testkit::tree::names(&place.path("")).unwrap();
    assert_eq!(before, after, "null: left something behind");
    let null = ServerSetup::new(&place).root("null:").state(place.path("null")).start(&place);
    assert_eq!(place.push(&words!["zero:5M", null.url("")]).ok()["bytes"], 5 * MIB);
    place.pull(&words![null.url("zero:5M"), "null:"]).ok();
}

#[test]
fn a_server_with_once_ends_after_one_session() {
    let place = Place::new();
    let server = ServerSetup::new(&place).options(&["--once"]).start(&place);
    place.file(&place.source("data"), MIB);
    // Somebody who looks in is no session.
    drop(std::net::TcpStream::connect(server.address()).unwrap());
    place.push(&words![place.source("data"), server.url("")]).ok();
    let Server { process, .. } = server;
    let ran = process.finish();
    assert_eq!((ran.status, ran.named("session_ended").len()), (0, 1), "{ran:?}");
    assert_same_files(&place.source("data"), &place.root("data"));
}

#[test]
fn the_same_command_again_moves_nothing_and_a_changed_file_is_moved_anew() {
    let place = Place::new();
    let server = Server::start(&place);
    place.tree(&place.source("dir"), 2, 10);
    place.file(&place.source("dir/large"), 4 * MIB);
    let words = words![place.source("dir"), server.url("")];
    let first = place.push(&words);
    let bytes = first.ok()["bytes"].as_u64().unwrap();
    assert_eq!((first.number("resumed_bytes"), first.number("moved_bytes")), (0, bytes));
    let again = place.push(&words);
    let report = again.ok();
    assert_eq!(report["files"]["done"], 0, "{report}");
    let figures = ["moved_bytes", "resumed_bytes", "bytes"].map(|key| again.number(key));
    assert_eq!(figures, [0, bytes, bytes]);
    let pulling = words![server.url("dir"), place.target("")];
    place.pull(&pulling).ok();
    let again = place.pull(&pulling);
    assert_eq!((again.ok()["files"]["done"].as_u64(), again.number("moved_bytes")), (Some(0), 0));
    // The same size, another content and time.
    place.file(&place.source("dir/large"), MIB);
    place.file(&place.source("dir/large"), 4 * MIB);
    fs::write(place.source("dir/d0/f0"), b"changed").unwrap();
    let third = place.push(&words);
    assert_eq!(third.ok()["files"]["done"], 2, "{third:?}");
    assert_eq!(third.number("moved_bytes"), 4 * MIB + 7);
    assert_same_trees(&place.path("source"), &place.path("root"));
}

#[test]
fn several_clients_are_served_at_once() {
    let place = Place::new();
    let server = Server::start(&place);
    place.tree(&place.source("tree"), 2, 20);
    place.file(&place.source("tree/large"), 5 * MIB);
    place.push(&words![place.source("tree"), server.url("")]).ok();
    let start = |number: u32| {
        let name = format!("n{number}/");
        if number.is_multiple_of(2) {
            place.start(&words!["push", place.source("tree"), server.url(name)])
        } else {
            place.start(&words!["pull", server.url("tree"), place.target(name)])
        }
    };
    let running: Vec<Haul> = (0..6).map(start).collect();
    for client in running {
        client.finish().ok();
    }
    for number in 0..6 {
        let side = place.path(if number % 2 == 0 { "root" } else { "target" });
        assert_same_trees(&place.source("tree"), &side.join(format!("n{number}/tree")));
    }
}

#[test]
fn nobody_who_reads_what_it_says_is_no_reason_to_stop() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("data"), MIB);
    for words in [words!["--json"], words![]] {
        let url = server.url(format!("with{}/", words.len()));
        let words = [words!["push", place.source("data"), url], words].concat();
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = place.command(&words);
        let status = command.stdout(writer).stderr(std::process::Stdio::null()).status().unwrap();
        assert!(status.success());
    }
    assert_same_files(&place.source("data"), &place.root("with1/data"));
    assert_same_files(&place.source("data"), &place.root("with0/data"));
}

/// A server in `haul serve 2>&1 | PROGRAM`, where the program stands still.
#[test]
fn a_server_whose_words_nobody_reads_goes_on_and_ends_in_order() {
    let place = Place::new();
    let server = ServerSetup::new(&place).unread().start(&place);
    // More lines than the pipe and the server keep together.
    fs::create_dir(place.source("tree")).unwrap();
    for number in 0..6000 {
        symlink("somewhere", place.source(format!("tree/{number}"))).unwrap();
    }
    place.push(&words![place.source("tree"), server.url("")]).ok();
    assert_same_trees(&place.source("tree"), &place.root("tree"));
    for _ in 0..200 {
        let mut stranger = TcpStream::connect(server.address()).unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let _ = stranger.read_to_end(&mut Vec::new());
    }
    server.still_serves(&place);
    server.process.signal(Signal::TERM);
    let begun = Instant::now();
    assert_eq!(server.process.finish().status, 0);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// A limited rate, looked at loosely: a busy machine is slower, and the first bytes fill buffers.
#[test]
fn a_limited_rate_is_kept() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("data"), 16 * MIB);
    let pushed = place.push(&words![place.source("data"), server.url(""), "--bwlimit", "6M"]);
    let pulled = place.pull(&words![server.url("data"), place.target(""), "--bwlimit", "6M"]);
    for ran in [pushed, pulled] {
        let seconds = ran.ok()["seconds"].as_f64().unwrap();
        // 2.7 s at this rate; buffers on the way may hide some.
        assert!(seconds > 1.6, "16 MiB at 6 MiB/s took {seconds} s");
        assert!(seconds < 30.0, "16 MiB at 6 MiB/s took {seconds} s");
    }
}

#[track_caller]
fn assert_type(object: &Value, path: &str, kind: &str) {
    let pointer = format!("/{}", path.replace('.', "/"));
    let value = object.pointer(&pointer).unwrap_or_else(|| panic!("{path} is missing: {object}"));
    let fits = match kind {
        "bool" => value.is_boolean(),
        "count" => value.is_u64(),
        "number" => value.is_number(),
        "text" => value.is_string(),
        other => panic!("no kind {other}"),
    };
    assert!(fits, "{path} is no {kind}: {value}");
}

/// Output into a pipe, whatever the terminal is said to be: no escape sequence, three lines; with
/// `-q` nothing at all, and after a failure that alone.
#[test]
fn a_pipe_gets_three_plain_lines_and_quiet_is_silent() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("scan"), 3);
    let run = |words: &[OsString], terminal: &str| {
        let mut command = place.command(words);
        let output = command.env("TERM", terminal).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    for terminal in ["dumb", "xterm-256color"] {
        let url = server.url(terminal);
        let (status, out, err) = run(&words!["push", place.source("scan"), url], terminal);
        assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
        assert!(!out.contains('\x1b') && !out.contains("bit/s"), "{out:?}");
        let lines: Vec<&str> = out.lines().collect();
        let place_line = format!("/scan -> haul://{}/{terminal}", server.address());
        assert!(lines[0].ends_with(&place_line), "{out}");
        assert!(lines[1].starts_with("complete and verified: 3 B in "), "{out}");
        assert!(lines.len() == 3 && lines[2].contains("every span"), "{out}");
    }
    let quiet = words!["push", place.source("scan"), server.url("q"), "-q", "--digest", "none"];
    let (status, out, err) = run(&[quiet, words!["--protection", "clear"]].concat(), "dumb");
    assert_eq!((status, out.as_str(), err.as_str()), (Some(0), "", ""));
    let missing = words!["push", place.source("none"), server.url(""), "-q"];
    let (status, out, err) = run(&missing, "dumb");
    assert_eq!((status, out.as_str(), err.lines().count()), (Some(2), "", 1), "{err}");
}

/// Lines of JSON in the forms that other tools build on, as the documentation fixes them.
#[test]
fn the_lines_of_json_have_their_fixed_forms() {
    let place = Place::new();
    let server = Server::start(&place);
    let listening = &server.process.events()[0];
    assert_eq!(listening["event"], "listening");
    assert!(listening["url"].as_str().unwrap().starts_with("haul://"));
    place.file(&place.source("data"), 12 * MIB);
    let words = words![place.source("data"), server.url("")];
    let pushed = place.push(&[words, words!["--bwlimit", "6M"]].concat());
    let pulled = place.pull(&words![server.url("data"), place.target(""), "--bwlimit", "6M"]);
    for ran in [&pushed, &pulled] {
        let report = ran.ok();
        for (kind, keys) in [
            ("bool", "ok"),
            ("count", "bytes resumed_bytes files.done files.skipped files.failed streams"),
            ("count", "copied_bytes retransmits source.max_rss_bytes target.max_rss_bytes"),
            ("number", "seconds gbit_per_s source.cpu_s_per_gb target.cpu_s_per_gb"),
            ("number", "bottleneck.share bottleneck.gbit_per_s bottleneck.next_share"),
            ("text", "from to protection send_engine receive_engine chosen_because"),
            ("text", "bottleneck.stage bottleneck.next_stage"),
            ("text", "bottleneck.verdict bottleneck.remedy"),
        ] {
            for key in keys.split(' ') {
                assert_type(report, key, kind);
            }
        }
        let events: Vec<&str> =
            ran.events.iter().map(|line| line["event"].as_str().unwrap()).collect();
        let known = [
            "session",
            "progress",
            "connection",
            "file",
            "fallback",
            "stall",
            "resume",
            "error",
            "report",
        ];
        assert!(events.iter().all(|event| known.contains(event)), "{events:?}");
        assert_eq!(events[0], "session");
        let progress = ran.named("progress");
        assert!(!progress.is_empty(), "no progress in two seconds: {events:?}");
        let counts = ["bytes_received", "bytes_durable", "bytes_total", "streams"];
        for key in counts.iter().chain(&["files_done", "files_settled", "files_total"]) {
            assert_type(progress[0], key, "count");
        }
        assert_type(progress[0], "total_known", "bool");
        assert_eq!(progress[0]["current"], "data");
        assert_type(progress[0], "limiting.stage", "text");
        assert_type(progress[0], "limiting.share", "number");
        assert!(progress[0]["stages"][0][1].is_number(), "{}", progress[0]);
        for key in ["path", "status", "bytes"] {
            assert!(ran.named("file")[0].get(key).is_some(), "{:?}", ran.named("file")[0]);
        }
        let share = report["bottleneck"]["share"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&share), "{report}");
        assert!(report["target"]["max_rss_bytes"].as_u64() > Some(0), "{report}");
    }
}

#[test]
fn an_error_has_its_fixed_form_and_is_in_words_on_standard_error() {
    let place = Place::new();
    let server = Server::start(&place);
    let ran = place.pull(&words![server.url("no/such"), place.target("")]);
    assert!(ran.status == 1 || ran.status == 2, "{ran:?}");
    let error = ran.says(&["no/such", "source"]);
    for key in ["path", "what", "needs", "found", "hint"] {
        assert_type(error, key, "text");
    }
    assert!(ran.named("resume").is_empty());
    server.still_serves(&place);
}

/// A file without rights, which programs may not read but by name; root reads all.
#[test]
fn a_file_without_rights_arrives_when_root_sends_it() {
    if !is_root() {
        return haul_testkit::skip::skip("root", "another user");
    }
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("secret"), 1000);
    set_mode(&place.source("secret"), 0o000);
    place.push(&words![place.source("secret"), server.url("")]).ok();
    assert_same_files(&place.source("secret"), &place.root("secret"));
}
