//! Data by RDMA endpoints: the same promises as by TCP, by the providers that every machine has.

use crate::harness::{
    Place, assert_no_temporaries, assert_same_files, assert_same_trees,
    server::{Server, ServerSetup},
};
use std::fs::File;

const MIB: u64 = 1 << 20;
/// Length of a file whose transfer is interrupted: four seconds at the rate it is given.
const LEN: u64 = 24 * MIB;

/// Whether this build has libfabric; where not, the test is skipped.
fn has_fabric() -> bool {
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

#[test]
fn a_transfer_that_is_killed_on_either_side_goes_on_where_it_was() {
    if !has_fabric() {
        return;
    }
    for provider in ["--fabric=shm", "--fabric=tcp"] {
        let place = Place::new();
        let mut server = server(&place);
        let (source, target) = (place.source("data"), place.root("data"));
        place.file(&source, LEN);
        let words = words!["push", source, server.url(""), provider, "--span-size", "256K"];
        let slow = [words.clone(), words!["--bwlimit", "6M"]].concat();
        let mut client = place.start(&slow);
        client.wait_for_bytes("bytes_durable", 2 * MIB);
        client.kill();
        assert!(!target.exists());
        let client = place.start(&slow);
        client.wait_for_bytes("bytes_durable", 8 * MIB);
        server.restart(&place);
        let ran = client.finish();
        ran.ok();
        assert!(ran.gone_on_from() >= 8 * MIB, "{provider}: {ran:?}");
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
