//! Data by RDMA endpoints: the same promises as by TCP, by the providers that every machine has.

use crate::harness::{
    Place, assert_no_temporaries, assert_same_files, assert_same_trees,
    process::{Haul, behind},
    server::{Server, ServerSetup},
};
use haul_testkit::{skip, strace::Strace};
use serde_json::Value;
use std::{ffi::OsString, fs::File};

const MIB: u64 = 1 << 20;
/// Length of a file whose transfer is interrupted: four seconds at the rate it is given.
const LEN: u64 = 24 * MIB;

/// Whether this build has libfabric; where not, the test is skipped.
pub fn has_fabric() -> bool {
    if !cfg!(feature = "fabric") {
        haul_testkit::skip::skip("libfabric-dev 1.17 or newer, and pkg-config", "a build without");
    }
    cfg!(feature = "fabric")
}

fn server(place: &Place) -> Server {
    ServerSetup::new(place).options(&["--fabric"]).start(place)
}

#[test]
fn trees_and_large_files_arrive_pushed_and_pulled_by_either_provider() {
    if !has_fabric() {
        return;
    }
    for provider in ["--fabric=shm", "--fabric=tcp"] {
        let place = Place::new();
        let server = server(&place);
        place.tree(&place.source("tree"), 3, 40);
        place.file(&place.source("tree/large"), 33 * MIB + 4321);
        let ran = place.push(&words![place.source("tree"), server.url(""), provider]);
        let report = ran.ok();
        assert_eq!(
            (&report["send_engine"], &report["receive_engine"]),
            (&"fabric".into(), &"fabric".into())
        );
        for side in ["source", "target"] {
            let memory = report[side]["max_rss_bytes"].as_u64().unwrap();
            assert!(memory <= 64 * MIB, "{provider}: the {side} took {memory} bytes of memory");
        }
        assert_same_trees(&place.source("tree"), &place.root("tree"));
        let words = words![server.url("tree"), place.target(""), provider, "--protection", "clear"];
        let ran = place.pull(&words);
        assert_eq!(ran.ok()["receive_engine"], "fabric");
        assert_same_trees(&place.root("tree"), &place.target("tree"));
        assert_no_temporaries(&place.path(""));
    }
}

/// Case of 8 streams, which took 104 MiB by shm: the file is longer than all that may be under way.
#[test]
fn no_number_of_streams_takes_more_memory_than_is_promised() {
    if !has_fabric() {
        return;
    }
    for (provider, asked) in [("shm", 1), ("shm", 4), ("shm", 64), ("tcp", 64)] {
        let place = Place::new();
        let server = server(&place);
        place.file(&place.source("data"), 96 * MIB);
        let [provider, asked] = [format!("--fabric={provider}"), asked.to_string()];
        let words = words![place.source("data"), server.url(""), &provider, "--streams", &asked];
        let ran = place.push(&words);
        let report = ran.ok();
        assert_eq!(report["streams"].as_u64(), Some(asked.parse::<u64>().unwrap().min(4)));
        for side in ["source", "target"] {
            let memory = report[side]["max_rss_bytes"].as_u64().unwrap();
            assert!(memory <= 64 * MIB, "{provider} {asked}: the {side} took {memory} bytes");
        }
        assert_same_files(&place.source("data"), &place.root("data"));
    }
}

#[test]
fn the_report_says_what_the_endpoints_did_on_both_sides() {
    if !has_fabric() {
        return;
    }
    for (provider, port) in [("shm", "shm"), ("tcp", "lo")] {
        let place = Place::new();
        let server = server(&place);
        place.file(&place.source("data"), 20 * MIB);
        let fabric = format!("--fabric={provider}");
        let one = ["--streams", "1", "--explain"];
        let words = words![place.source("data"), server.url(""), fabric, one[0], one[1], one[2]];
        let ran = place.push(&words);
        let rdma = &ran.ok()["rdma"];
        println!("{rdma}");
        let [source, target] = ["source", "target"].map(|side| &rdma[side]);
        let count = |of: &Value, key: &str| of[key].as_u64().unwrap_or_else(|| panic!("{key}"));
        assert_eq!(rdma["provider"], provider);
        for side in [source, target] {
            assert_eq!(side["port"], port);
            assert!(
                count(side, "streams") >= 1 && side["registering_seconds"].as_f64() > Some(0.0)
            );
        }
        assert_eq!(count(source, "window_bytes"), 20 * MIB);
        assert!((1..MIB).contains(&count(source, "buffered_bytes")), "headers and trailers");
        // One stream has windows of 4 MiB: a span of 8 MiB has two, the last one of 4 MiB has one.
        assert_eq!((count(source, "windows"), &source["refused"]), (5, &Value::Null));
        assert!(count(source, "registrations") > 5 && source["waits_for_room"].is_u64());
        let written = count(target, "direct_bytes") + count(target, "cached_bytes");
        assert_eq!(written, 20 * MIB);
        assert_eq!(ran.ok()["tcp_because"], Value::Null);
        let said = format!("data goes by RDMA endpoints, {provider} at {port}");
        assert!(ran.named("explained").iter().any(|event| event.to_string().contains(&said)));
    }
}

#[test]
fn pages_that_cannot_be_registered_are_copied_and_the_report_says_why() {
    if !has_fabric() {
        return;
    }
    for provider in ["--fabric=shm", "--fabric=tcp"] {
        let place = Place::new();
        let server = server(&place);
        let source = place.source("data");
        place.file(&source, LEN);
        let words = words!["push", source, server.url(""), provider, "--bwlimit", "6M"];
        let client = place.start(&words);
        client.wait_for_bytes("bytes_received", 2 * MIB);
        let (fault, log) = ("mmap:error=EACCES", place.path("strace"));
        let _refusing = match Strace::attach(client.id(), fault, Some(&source), &log) {
            Ok(strace) => strace,
            Err(why) => return skip::skip("strace(1) that may trace", why.to_string()),
        };
        let ran = client.finish();
        let report = ran.ok();
        assert_same_files(&source, &place.root("data"));
        let of = &report["rdma"]["source"];
        let [windows, buffers] = ["window_bytes", "buffered_bytes"].map(|key| of[key].as_u64());
        assert!(windows > Some(0) && buffers > Some(MIB), "{provider}: {of}");
        assert!(windows.zip(buffers).is_some_and(|(one, other)| one + other >= LEN), "{of}");
        let why = of["refused"].as_str().unwrap();
        assert!(why.starts_with("needs a file that can be mapped, found Permission"), "{why}");
        let told = ran.named("fallback");
        let [told] = &told[..] else { panic!("told once: {told:?}") };
        assert_eq!(
            (&told["from_to"], &told["why"]),
            (&"registered pages -> registered buffers".into(), &Value::from(why))
        );
        // A payload that is copied begins a message, too: it lies at a page for the disk.
        let direct_bytes = report["rdma"]["target"]["direct_bytes"].as_u64();
        assert!(direct_bytes > Some(LEN - 2 * MIB), "{report}");
        assert!(report["copied_bytes"].as_u64() >= buffers, "{report}");
    }
}

/// The providers tcp and shm pin nothing, so that all is as without the limit.
#[test]
fn what_moves_no_bytes_by_a_card_needs_no_locked_memory() {
    if !has_fabric() {
        return;
    }
    for provider in ["--fabric=shm", "--fabric=tcp"] {
        let place = Place::new();
        let server = server(&place);
        place.file(&place.source("data"), 9 * MIB);
        let words = words!["push", place.source("data"), server.url(""), provider, "--json"];
        let prefix = words!["prlimit", "--memlock=4096:4096"];
        let ran = Haul::start(behind(&prefix, place.command(&words))).finish();
        assert_eq!(ran.ok()["rdma"]["source"]["refused"], Value::Null, "{provider}");
        assert_same_files(&place.source("data"), &place.root("data"));
    }
}

#[test]
fn a_transfer_that_is_killed_on_either_side_goes_on_where_it_was() {
    if !has_fabric() {
        return;
    }
    for (provider, is_push) in [
        ("--fabric=shm", true),
        ("--fabric=shm", false),
        ("--fabric=tcp", true),
        ("--fabric=tcp", false),
    ] {
        let place = Place::new();
        let mut server = server(&place);
        let (source, target, words) = if is_push {
            let (source, target) = (place.source("data"), place.root("data"));
            (source.clone(), target, words!["push", source, server.url("")])
        } else {
            let (source, target) = (place.root("data"), place.target("data"));
            (source, target, words!["pull", server.url("data"), place.target("")])
        };
        place.file(&source, LEN);
        let slow = words![provider, "--span-size", "256K", "--bwlimit", "6M"];
        let slow = [words, slow].concat();
        let mut client = place.start(&slow);
        client.wait_for_bytes("bytes_durable", 2 * MIB);
        client.kill();
        assert!(!target.exists());
        let client = place.start(&slow);
        client.wait_for_bytes("bytes_durable", 8 * MIB);
        server.restart(&place);
        let ran = client.finish();
        assert_eq!(ran.ok()["receive_engine"], "fabric");
        assert!(ran.gone_on_from() >= 8 * MIB, "{provider} {is_push}: {ran:?}");
        assert_same_files(&source, &target);
    }
}

#[test]
fn a_rate_holds_for_a_card_that_paces_nothing_by_itself() {
    if !has_fabric() {
        return;
    }
    let place = Place::new();
    let server = server(&place);
    place.file(&place.source("data"), 8 * MIB);
    let words = words![place.source("data"), server.url(""), "--fabric=shm", "--bwlimit", "8M"];
    let seconds = place.push(&words).ok()["seconds"].as_f64().unwrap();
    assert!(seconds > 0.8, "8 MiB in {seconds} s at 8 MB/s");
}

#[test]
fn a_source_that_is_cut_short_while_it_is_sent_is_an_error_and_no_signal() {
    if !has_fabric() {
        return;
    }
    let place = Place::new();
    let server = server(&place);
    let source = place.source("data");
    place.file(&source, LEN);
    let words = words!["push", source, server.url(""), "--fabric=shm", "--bwlimit", "6M"];
    let client = place.start(&[words, words!["--retry-for", "5s"]].concat());
    client.wait_for_bytes("bytes_received", 2 * MIB);
    File::options().write(true).open(&source).unwrap().set_len(MIB).unwrap();
    let ran = client.finish();
    ran.failed(1);
    ran.says(&["changed", "1048576 bytes", "again"]);
    assert!(!place.root("data").exists());
}

#[test]
fn a_server_that_does_not_do_it_is_told_of_and_auto_goes_on_by_tcp() {
    if !has_fabric() {
        return;
    }
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("data"), MIB);
    let ran = place.push(&words![place.source("data"), server.url(""), "--fabric=shm"]);
    ran.refused(&["data cannot go by RDMA", "the server was started without --fabric"]);
    let ran = place.push(&words![place.source("data"), server.url(""), "--fabric"]);
    assert_ne!(ran.ok()["send_engine"], "fabric");
    assert_same_files(&place.source("data"), &place.root("data"));
}

/// The server's network: one end of a wire, whose only address holds on that wire.
const FAR: &str = "ip link set lo up && ip link add far type veth peer name near && \
                   ip address add fe80::2/64 dev far nodad && ip link set far up && exec \"$@\"";
/// The client's: takes the other end from the server, whose process is the first word.
const NEAR: &str = "server=$1; shift; nsenter -n -t \"$server\" ip link set near netns $$ && \
                    ip address add fe80::1/64 dev near nodad && ip link set near up && \
                    exec \"$@\"";

/// Case of two hosts with link-local addresses alone: the wire is number 3 at the one and 2 at the
/// other, and neither the name of the interface nor its number was passed on.
#[test]
fn hosts_of_one_link_reach_each_other_by_the_names_of_their_interfaces() {
    let alone = |script: &str| words!["unshare", "--net", "sh", "-c", script, "sh"];
    let tried = behind(&alone(FAR), std::process::Command::new("true")).output();
    if !tried.as_ref().is_ok_and(|ran| ran.status.success()) {
        return skip::skip("root, ip(8) and veth", format!("{tried:?}"));
    }
    let by_rdma = cfg!(feature = "fabric").then_some(["--fabric", "--fabric=tcp"]);
    for by_rdma in [None, by_rdma] {
        let place = Place::new();
        place.file(&place.source("data"), 9 * MIB);
        let options = by_rdma.map(|[serve, _]| serve);
        let setup = ServerSetup::new(&place).options(options.as_slice()).behind(&alone(FAR));
        let server = setup.start_at(&place, "[fe80::2%far]:0");
        // Each host has a name of its own for the link: the server's says nothing to others.
        let url = server.url("").into_string().unwrap().replace("[fe80::2]", "[fe80::2%near]");
        let options = by_rdma.map(|[_, push]| push);
        let words = words!["push", place.source("data"), url, "--json"];
        let words = [words, options.iter().map(OsString::from).collect()].concat();
        let near = [alone(NEAR), words![server.process.id().to_string()]].concat();
        let ran = Haul::start(behind(&near, place.command(&words))).finish();
        let report = ran.ok();
        assert_eq!(report["send_engine"] == "fabric", by_rdma.is_some(), "{report}");
        assert_same_files(&place.source("data"), &place.root("data"));
    }
}

/// Words that run a program with a /dev/shm of its own, mounted with these options.
fn with_shm(options: &str) -> Vec<OsString> {
    let mount = format!("mount -t tmpfs -o {options} none /dev/shm && exec \"$@\"");
    words!["unshare", "--mount", "sh", "-c", mount, "sh"]
}

/// A /dev/shm where nothing can be made: shm opens, and makes no endpoint.
const READ_ONLY: &str = "ro";

/// Whether a program can have a /dev/shm of its own; where not, the test is skipped.
fn has_mounts() -> bool {
    let ran = behind(&with_shm(READ_ONLY), std::process::Command::new("true")).output();
    let has = ran.as_ref().is_ok_and(|ran| ran.status.success());
    if !has {
        skip::skip("root, to mount /dev/shm", format!("{ran:?}"));
    }
    has
}

#[test]
fn auto_goes_on_by_tcp_where_the_endpoints_of_a_session_cannot_be_made_by_either_side() {
    if !has_fabric() || !has_mounts() {
        return;
    }
    // With a /dev/shm that is its own, a container's client finds no peer there.
    let own = "size=64m";
    for (is_push, server_fails, options) in [
        (true, false, READ_ONLY),
        (false, false, READ_ONLY),
        (true, true, READ_ONLY),
        (false, true, READ_ONLY),
        (true, false, own),
    ] {
        let place = Place::new();
        let mut setup = ServerSetup::new(&place).options(&["--fabric"]);
        place.file(&place.source("data"), 9 * MIB);
        place.file(&place.root("there"), 9 * MIB);
        if server_fails {
            setup = setup.behind(&with_shm(options));
        }
        let server = setup.start(&place);
        let words = match is_push {
            true => words!["push", place.source("data"), server.url("")],
            false => words!["pull", server.url("there"), place.target("")],
        };
        let more = words!["--fabric", "--explain", "--json", "--streams", "2"];
        let command = place.command(&[words, more].concat());
        let prefix = if server_fails { Vec::new() } else { with_shm(options) };
        let ran = Haul::start(behind(&prefix, command)).finish();
        let report = ran.ok();
        let case = format!("push {is_push}, server {server_fails}, {options}: {report}");
        let told: Vec<_> = ran.named("fallback").into_iter().map(|told| &told["from_to"]).collect();
        assert_eq!(told, ["RDMA by shm -> TCP"], "{case}");
        assert!(report["tcp_because"].as_str().is_some_and(|why| !why.is_empty()), "{case}");
        println!("{} {}", report["seconds"], report["tcp_because"]);
        match is_push {
            true => assert_same_files(&place.source("data"), &place.root("data")),
            false => assert_same_files(&place.root("there"), &place.target("there")),
        }
    }
}

#[test]
fn a_provider_that_was_asked_for_by_name_has_nothing_in_its_place() {
    if !has_fabric() || !has_mounts() {
        return;
    }
    let place = Place::new();
    let server = server(&place);
    place.file(&place.source("data"), MIB);
    let words = words!["push", place.source("data"), server.url(""), "--fabric=shm", "--json"];
    let command = place.command(&[words, words!["--retry-for", "2s"]].concat());
    let ran = Haul::start(behind(&with_shm(READ_ONLY), command)).finish();
    assert_ne!(ran.status, 0);
    ran.says(&["data streams break", "fi_"]);
    assert!(!place.root("data").exists());
}

#[test]
fn a_wrong_token_is_refused_before_any_endpoint_is_made() {
    if !has_fabric() {
        return;
    }
    let place = Place::new();
    let server = server(&place);
    place.file(&place.source("data"), MIB);
    let wrong = haul_transfer::Token::generate(server.token().fingerprint).unwrap().reveal();
    let url = server.url_with(&wrong, server.address(), "");
    for provider in ["--fabric=shm", "--fabric=tcp", "--fabric"] {
        let ran = place.push(&words![place.source("data"), url, provider]);
        ran.refused(&["does not know the token"]);
    }
    assert!(!place.root("data").exists());
}

#[test]
fn a_card_that_is_not_there_says_what_it_needs() {
    if !has_fabric() {
        return;
    }
    let place = Place::new();
    let server = server(&place);
    place.file(&place.source("data"), MIB);
    let ran = place.push(&words![place.source("data"), server.url(""), "--fabric=cxi"]);
    ran.refused(&["data cannot go by RDMA", "needs a Slingshot card"]);
}

#[cfg(not(feature = "fabric"))]
#[test]
fn a_build_without_libfabric_says_how_to_get_one_that_has_it() {
    let place = Place::new();
    let server = Server::start(&place);
    std::fs::write(place.source("data"), "data").unwrap();
    let ran = place.push(&words![place.source("data"), server.url(""), "--fabric=shm"]);
    ran.refused(&["data cannot go by RDMA", "libfabric-dev"]);
    let ran = place.push(&words![place.source("data"), server.url(""), "--fabric"]);
    assert_eq!(ran.ok()["files"]["done"], 1);
}
