//! Bad networks: the real `haul` by way of a proxy that resets, stalls, goes silent, flips bits.

use crate::harness::{
    Place, assert_no_temporaries, assert_same_files, assert_same_trees,
    journey::{WAYS, Way},
    process::Ran,
    server::Server,
};
use haul_testkit::faulty_proxy::{Arrival, Direction, Fault, FaultyProxy, Kind};
use std::{
    ffi::OsString,
    fs, thread,
    time::{Duration, Instant},
};

const MIB: u64 = 1 << 20;
const SPAN: u64 = 64 << 10;
/// Bytes before the first frame of a stream, in the direction of the client's bytes.
const PREFACE: u64 = haul_protocol::frame::PREFACE_BYTES as u64;
const HEADER: u64 = haul_protocol::frame::HEADER_BYTES as u64;
const TRAILER: u64 = haul_protocol::frame::TRAILER_BYTES as u64;

/// A server behind a proxy, and a file to move.
struct Path {
    server: Server,
    proxy: FaultyProxy,
    place: Place,
}

impl Path {
    fn new(len_bytes: u64, plan: impl FnMut(Arrival) -> Fault + Send + 'static) -> Self {
        let place = Place::new();
        let server = Server::start(&place);
        let proxy = FaultyProxy::start(server.address(), plan).unwrap();
        place.file(&place.source("data"), len_bytes);
        fs::copy(place.source("data"), place.root("served")).unwrap();
        Self { place, server, proxy }
    }

    fn words(&self, way: Way, options: &[OsString]) -> Vec<OsString> {
        let by = |path: &str| self.server.url_by(self.proxy.address(), path);
        let words = match way {
            Way::Push => words!["push", self.place.source("data"), by("pushed")],
            Way::Pull => words!["pull", by("served"), self.place.target("pulled")],
        };
        [words, options.to_vec()].concat()
    }

    fn run(&self, way: Way, options: &[OsString]) -> Ran {
        self.place.run(&self.words(way, options))
    }

    #[track_caller]
    fn assert_arrived(&self, way: Way) {
        let place = &self.place;
        match way {
            Way::Push => assert_same_files(&place.source("data"), &place.root("pushed")),
            Way::Pull => assert_same_files(&place.root("served"), &place.target("pulled")),
        }
        assert_no_temporaries(&place.path(""));
    }
}

/// The direction that a transfer's payload goes.
fn payload(way: Way) -> Direction {
    match way {
        Way::Push => Direction::ToServer,
        Way::Pull => Direction::ToClient,
    }
}

/// Offset of the first payload byte of a stream in its direction.
fn first_payload(way: Way) -> u64 {
    HEADER + if way == Way::Push { PREFACE } else { 0 }
}

#[test]
fn streams_reset_at_random_bytes_are_opened_again_and_all_arrives() {
    for way in WAYS {
        let mut random = haul_testkit::seed::Seed::from_env_or_random().random();
        let path = Path::new(24 * MIB, move |arrival| match arrival {
            Arrival { kind: Kind::Data, number: 0..8 } => {
                Fault::ResetAfter(PREFACE + random.below(3 * MIB))
            }
            _ => Fault::None,
        });
        let ran = path.run(way, &words!["--span-size", "256K", "--streams", "2"]);
        assert!(ran.ok()["reconnections"].as_u64() >= Some(1), "{ran:?}");
        assert!(path.proxy.connections().1 > 2);
        path.assert_arrived(way);
    }
}

#[test]
fn a_control_connection_that_is_reset_comes_back_by_itself() {
    for way in WAYS {
        let mut random = haul_testkit::seed::Seed::from_env_or_random().random();
        // Beyond the handshake of some 3 KB, within the messages of a transfer or its end.
        let path = Path::new(16 * MIB, move |arrival| match arrival {
            Arrival { kind: Kind::Control, number: 0..3 } => {
                Fault::ResetAfter(2500 + random.below(2500))
            }
            _ => Fault::None,
        });
        let ran = path.run(way, &words!["--span-size", "64K", "--bwlimit", "16M"]);
        ran.ok();
        path.assert_arrived(way);
    }
}

/// First bytes of a connection that are lost.
#[test]
fn a_first_handshake_that_is_cut_is_begun_again() {
    for after in [0, 1, 100, 1000, 2000, 2600] {
        let path = Path::new(MIB, move |arrival| match arrival {
            Arrival { kind: Kind::Control, number: 0 | 1 } => Fault::ResetAfter(after),
            _ => Fault::None,
        });
        path.run(Way::Push, &[]).ok();
        path.assert_arrived(Way::Push);
    }
}

#[test]
fn a_handshake_of_a_probe_that_is_cut_is_begun_again() {
    for after in [0, 1, 100] {
        let path = Path::new(MIB, move |arrival| match arrival {
            Arrival { kind: Kind::Control, number: 0 | 1 } => Fault::ResetAfter(after),
            _ => Fault::None,
        });
        let url = path.server.url_by(path.proxy.address(), "");
        let options = words!["--streams", "1", "--time", "200ms", "--omit", "0s"];
        let words = [words!["probe", "net", url, "--no-path-mtu"], options].concat();
        let ran = path.place.run(&words);
        assert_eq!((ran.status, &ran.report()["ok"]), (0, &true.into()), "{ran:?}");
    }
}

#[test]
fn a_first_handshake_that_is_always_cut_is_told_in_time() {
    let path = Path::new(MIB, |_| Fault::ResetAfter(100));
    let begun = Instant::now();
    let ran = path.run(Way::Push, &[]);
    ran.refused(&[&path.proxy.address().to_string(), "does not open a session"]);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}: {ran:?}", begun.elapsed());
    path.server.still_serves(&path.place);
}

#[test]
fn a_stream_that_stalls_for_good_is_replaced_in_time() {
    for way in WAYS {
        let path = Path::new(24 * MIB, |arrival| match arrival {
            Arrival { kind: Kind::Data, number: 1 } => Fault::StallAfter(MIB),
            _ => Fault::None,
        });
        let options = words!["--streams", "2", "--stall-timeout", "2s", "--span-size", "1M"];
        let ran = path.run(way, &options);
        ran.ok();
        let stalls = ran.named("stall");
        assert!(!stalls.is_empty(), "{ran:?}");
        assert!(stalls.iter().all(|stall| stall["stage"] == "network"), "{ran:?}");
        assert!(stalls.iter().any(|stall| stall["seconds"].as_f64() >= Some(1.9)), "{ran:?}");
        assert!(ran.number("reconnections") >= 1, "{ran:?}");
        path.assert_arrived(way);
    }
}

#[test]
fn all_streams_that_stall_for_good_are_replaced_too() {
    for way in WAYS {
        let path = Path::new(8 * MIB, |arrival| match arrival {
            Arrival { kind: Kind::Data, number: 0 | 1 } => Fault::StallAfter(MIB),
            _ => Fault::None,
        });
        let options = words!["--streams", "2", "--stall-timeout", "2s", "--span-size", "1M"];
        path.run(way, &options).ok();
        path.assert_arrived(way);
    }
}

/// A stream that stalls below the receiver's wake-up: it sleeps until there is enough to be worth
/// waking for, and what waits until then has not been held up by its disk.
#[test]
fn a_stream_that_stalls_after_a_few_bytes_of_a_large_span_is_replaced_too() {
    for way in WAYS {
        let path = Path::new(5 * MIB, move |arrival| match arrival {
            Arrival { kind: Kind::Data, number: 0..2 } => {
                Fault::StallAfter(first_payload(way) + 50_000)
            }
            _ => Fault::None,
        });
        let options = words!["--streams", "2", "--stall-timeout", "2s", "--span-size", "1M"];
        path.run(way, &options).ok();
        path.assert_arrived(way);
    }
}

/// Breaks sixteen streams at once: one outage is one break, however many streams it hits.
fn sixteen_streams_break_at_once(way: Way, fault: Fault) {
    let path = Path::new(48 * MIB, move |arrival| match arrival {
        Arrival { kind: Kind::Data, number: 0..16 } => fault,
        _ => Fault::None,
    });
    let options = words!["--streams", "16", "--stall-timeout", "2s", "--span-size", "1M"];
    path.run(way, &options).ok();
    path.assert_arrived(way);
}

#[test]
fn a_push_survives_sixteen_streams_that_break_at_once() {
    sixteen_streams_break_at_once(Way::Push, Fault::StallAfter(MIB));
    sixteen_streams_break_at_once(Way::Push, Fault::ResetAfter(MIB));
}

#[test]
fn a_pull_survives_sixteen_streams_that_stall_at_once() {
    sixteen_streams_break_at_once(Way::Pull, Fault::StallAfter(MIB));
}

#[test]
fn a_pull_survives_sixteen_streams_that_are_reset_at_once() {
    sixteen_streams_break_at_once(Way::Pull, Fault::ResetAfter(MIB));
}

#[test]
fn a_bit_flipped_once_is_found_and_its_span_sent_again() {
    for (way, protection) in
        [(Way::Push, "safe"), (Way::Push, "clear"), (Way::Pull, "safe"), (Way::Pull, "clear")]
    {
        let path = Path::new(5 * MIB, move |arrival| match arrival {
            Arrival { kind: Kind::Data, number: 0 } => {
                Fault::Flip { direction: payload(way), at: first_payload(way) + 1000, every: None }
            }
            _ => Fault::None,
        });
        let options = words!["--protection", protection, "--span-size", "1M", "--streams", "1"];
        let ran = path.run(way, &options);
        ran.ok();
        assert_eq!(path.proxy.flipped_bits(), 1);
        assert!(ran.number("resent_spans") >= 1, "{way:?} {protection}: {ran:?}");
        path.assert_arrived(way);
    }
}

/// A flipped bit, wherever it falls: preface, header, payload, trailer.
#[test]
fn a_bit_flipped_anywhere_in_a_stream_never_shows_in_the_file() {
    for way in WAYS {
        let mut random = haul_testkit::seed::Seed::from_env_or_random().random();
        let frame = HEADER + SPAN + TRAILER;
        let path = Path::new(4 * MIB, move |arrival| match arrival.kind {
            Kind::Data if arrival.number < 6 => {
                let part = match arrival.number % 3 {
                    0 => random.below(PREFACE),
                    1 => PREFACE + frame * random.below(4) + random.below(HEADER),
                    _ => PREFACE + frame * random.below(4) - random.below(TRAILER),
                };
                Fault::Flip { direction: payload(way), at: part, every: None }
            }
            _ => Fault::None,
        });
        let options = words!["--streams", "2", "--span-size", "64K", "--stall-timeout", "2s"];
        path.run(way, &options).ok();
        path.assert_arrived(way);
    }
}

#[test]
fn bits_flipped_for_ever_end_with_an_error_that_names_file_and_network() {
    for way in WAYS {
        let path = Path::new(4 * MIB, move |arrival| match arrival.kind {
            Kind::Data => {
                let every = Some(HEADER + SPAN + TRAILER);
                Fault::Flip { direction: payload(way), at: first_payload(way) + 1000, every }
            }
            Kind::Control => Fault::None,
        });
        let ran = path.run(way, &words!["--span-size", "64K", "--streams", "1"]);
        ran.failed(1);
        let name = if way == Way::Push { "data" } else { "served" };
        let error = ran.says(&[name, "network"]);
        assert_eq!(error["side"], "path", "{error}");
        assert!(!error["hint"].as_str().unwrap().is_empty(), "no hint: {error}");
        assert!(!path.place.root("pushed").exists() && !path.place.target("pulled").exists());
        path.server.still_serves(&path.place);
    }
}

#[test]
fn a_network_that_is_silent_for_some_seconds_is_waited_for() {
    for way in WAYS {
        let path = Path::new(16 * MIB, |_| Fault::None);
        let options = words!["--bwlimit", "6M", "--stall-timeout", "2s", "--span-size", "256K"];
        let client = path.place.start(&path.words(way, &options));
        client.wait_for_bytes("bytes_received", MIB);
        path.proxy.silence(true);
        thread::sleep(Duration::from_secs(5));
        path.proxy.silence(false);
        let ran = client.finish();
        ran.ok();
        let told = ran.named("connection");
        assert_eq!(told[0]["state"], "silent", "{ran:?}");
        assert!(told[0]["seconds"].as_f64().unwrap() < 5.0, "told while it was so: {told:?}");
        assert_eq!(told[told.len() - 1]["state"], "back", "{told:?}");
        path.assert_arrived(way);
    }
}

/// A lost connection, of which it is told at once since when it is lost and how long it is waited
/// for; and a target that keeps nothing does not say that it goes on from somewhere.
#[test]
fn a_lost_connection_is_told_at_once_and_null_claims_nothing() {
    let place = Place::new();
    let mut server = Server::start(&place);
    place.file(&place.source("data"), 16 * MIB);
    let words = words!["push", place.source("data"), server.url("null:"), "--bwlimit", "6M"];
    let client = place.start(&words);
    client.wait_for_bytes("bytes_received", MIB);
    server.process.kill();
    server.restart(&place);
    let ran = client.finish();
    ran.ok();
    let told = ran.named("connection");
    assert_eq!(told[0]["state"], "lost", "{ran:?}");
    let seconds = |key: &str| told[0][key].as_f64().unwrap();
    assert!(seconds("seconds") < 1.0 && seconds("seconds_left") > 59.0, "{told:?}");
    assert!(told[0]["since_ms"].as_u64() > Some(0), "{told:?}");
    assert_eq!(told[told.len() - 1]["state"], "back", "{told:?}");
    assert_eq!(ran.number("reconnections"), 1);
    assert!(ran.named("resume").is_empty(), "nothing is kept there: {ran:?}");
    assert!(ran.report()["to"].as_str().unwrap().contains("null:"), "{ran:?}");
}

/// A report that judges all sessions together: the intervals said `limit`, and the report the send
/// buffer, or nothing.
#[test]
fn a_rate_limit_is_the_verdict_across_a_restart_of_the_server() {
    for way in WAYS {
        let place = Place::new();
        let mut server = Server::start(&place);
        place.file(&place.source("data"), 40 * MIB);
        place.file(&place.root("served"), 40 * MIB);
        let words = match way {
            Way::Push => words!["push", place.source("data"), server.url("pushed")],
            Way::Pull => words!["pull", server.url("served"), place.target("pulled")],
        };
        let client = place.start(&[words, words!["--bwlimit", "8M", "--span-size", "1M"]].concat());
        client.wait_for_bytes("bytes_durable", 16 * MIB);
        server.process.kill();
        std::thread::sleep(Duration::from_secs(2));
        server.restart(&place);
        let ran = client.finish();
        let report = ran.ok();
        assert_eq!(report["bottleneck"]["stage"], "limit", "{ran:?}");
        assert_eq!(report["stages"][0][0], "limit", "{ran:?}");
        assert_eq!(report["reconnections"], 1, "{ran:?}");
        let away = report["seconds_without_server"].as_f64().unwrap();
        assert!((2.0..10.0).contains(&away), "{ran:?}");
    }
}

/// A session that is given up while the network is silent, and a new one that goes on.
#[test]
fn a_network_that_is_silent_for_long_is_come_back_to() {
    if !crate::harness::is_long() {
        return crate::harness::skip_long("a silence of 30 s");
    }
    for way in WAYS {
        let path = Path::new(16 * MIB, |_| Fault::None);
        let options = words!["--bwlimit", "6M", "--stall-timeout", "2s", "--span-size", "256K"];
        let client = path.place.start(&path.words(way, &options));
        let durable = client.wait_for_bytes("bytes_durable", MIB);
        path.proxy.silence(true);
        thread::sleep(Duration::from_secs(30));
        path.proxy.silence(false);
        let ran = client.finish();
        ran.ok();
        assert_eq!(ran.number("resumed_bytes"), 0, "nothing was there before the run: {ran:?}");
        let resumed: u64 = ran.named("resume").iter().filter_map(|r| r["bytes"].as_u64()).sum();
        assert!(resumed >= durable, "{durable} were durable: {ran:?}");
        path.assert_arrived(way);
    }
}

#[test]
fn a_tree_arrives_over_a_network_that_resets_everything_now_and_then() {
    let place = Place::new();
    let server = Server::start(&place);
    let mut random = place.seed.random();
    let proxy = FaultyProxy::start(server.address(), move |arrival| match arrival.kind {
        Kind::Control if arrival.number < 4 => Fault::ResetAfter(10_000 + random.below(60_000)),
        Kind::Data if arrival.number < 12 => Fault::ResetAfter(PREFACE + random.below(MIB)),
        _ => Fault::None,
    })
    .unwrap();
    place.tree(&place.source("tree"), 6, 40);
    let url = |path: &str| server.url_by(proxy.address(), path);
    place.push(&words![place.source("tree"), url("")]).ok();
    assert_same_trees(&place.source("tree"), &place.root("tree"));
    place.pull(&words![url("tree"), place.target("")]).ok();
    assert_same_trees(&place.source("tree"), &place.target("tree"));
    assert_no_temporaries(&place.path(""));
}

#[test]
fn streams_that_can_never_be_opened_end_with_an_error_that_names_the_network() {
    for way in WAYS {
        let path = Path::new(MIB, |arrival| match arrival.kind {
            Kind::Data => Fault::ResetAfter(0),
            Kind::Control => Fault::None,
        });
        let ran = path.run(way, &words!["--stall-timeout", "2s", "--retry-for", "5s"]);
        // Nothing could start, or the transfer broke: both are true.
        assert!(ran.status == 1 || ran.status == 2, "{ran:?}");
        ran.says(&["network"]);
        path.server.still_serves(&path.place);
    }
}

/// A path on which every data connection is cut after `bytes`.
fn cut_all_after(len_bytes: u64, bytes: u64) -> Path {
    Path::new(len_bytes, move |arrival| match arrival.kind {
        Kind::Data => Fault::ResetAfter(bytes),
        Kind::Control => Fault::None,
    })
}

/// Bytes that move without progress: a pull went on for ever, a push gave up.
#[test]
fn connections_that_are_all_cut_before_a_span_is_through_bring_the_file_in_smaller_spans() {
    for way in WAYS {
        let path = cut_all_after(12 * MIB, 256 << 10);
        let ran = path.run(way, &words!["--retry-for", "20s"]);
        ran.ok();
        path.assert_arrived(way);
        let said = ran.named("fallback");
        let smaller = said.iter().filter(|said| said["from_to"] == "spans of 8 MiB -> 1 MiB");
        assert_eq!(smaller.count(), 1, "{ran:?}");
        // A reset takes along what its receiver has not read: a smaller size may be needed.
        assert!(ran.number("span_bytes") <= 2 * SPAN, "{ran:?}");
    }
}

#[test]
fn connections_that_are_all_cut_before_the_smallest_span_is_through_are_an_error_that_says_so() {
    for way in WAYS {
        let path = cut_all_after(12 * MIB, 20 << 10);
        let begun = Instant::now();
        let ran = path.run(way, &words!["--retry-for", "6s"]);
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}: {ran:?}", begun.elapsed());
        assert_eq!(ran.status, 1, "{ran:?}");
        let error = ran.says(&["every data connection", "cut", "64 KiB", "6 s (--retry-for)"]);
        assert_eq!(error["side"], "path", "{error}");
        path.server.still_serves(&path.place);
    }
}

#[test]
fn what_larger_spans_brought_stays_when_spans_become_smaller() {
    for way in WAYS {
        let path = Path::new(32 * MIB, |arrival| match arrival {
            Arrival { kind: Kind::Data, number: 0 } => Fault::ResetAfter(20 * MIB),
            Arrival { kind: Kind::Data, number: 1..150 } => Fault::ResetAfter(256 << 10),
            _ => Fault::None,
        });
        let ran = path.run(way, &words!["--retry-for", "20s", "--streams", "1"]);
        ran.ok();
        path.assert_arrived(way);
        // A reset takes along what its receiver has not read: a smaller size may be needed.
        assert!(ran.number("span_bytes") <= 2 * SPAN, "{ran:?}");
        let there = ran.named("resume").into_iter().filter_map(|said| said["bytes"].as_u64());
        assert!(there.max() >= Some(16 * MIB), "{ran:?}");
    }
}

#[test]
fn a_server_that_is_not_there_yet_is_waited_for_where_that_was_asked() {
    let place = Place::new();
    let mut server = Server::start(&place);
    place.file(&place.source("data"), MIB);
    server.process.kill();
    let words = words!["push", place.source("data"), server.url("data")];
    place.run(&words).refused(&["cannot connect to"]);
    let short = words!["--wait", "--retry-for", "1s"];
    let ran = place.run(&[words.clone(), short].concat());
    ran.refused(&["cannot connect to", "for 1 s (--retry-for)"]);
    let begun = Instant::now();
    let client = place.start(&[words, words!["--wait"]].concat());
    let waiting = client.wait_for("waiting", |event| event["event"] == "waiting");
    assert_eq!(waiting["server"], server.address().to_string(), "{waiting}");
    // Several attempts fail, and one line says so.
    thread::sleep(Duration::from_secs(1));
    server.restart(&place);
    let ran = client.finish();
    let seconds = ran.ok()["seconds"].as_f64().unwrap();
    // The second that it waited is none of the transfer's.
    assert!(seconds < begun.elapsed().as_secs_f64() - 1.0, "{ran:?}");
    assert_eq!(ran.named("waiting").len(), 1, "{ran:?}");
    assert!(waiting["why"].as_str().unwrap().contains("refused"), "{waiting}");
    assert_same_files(&place.source("data"), &place.root("data"));
}

/// A connection that lives and moves bytes is not held against a slow path.
#[test]
fn a_span_that_takes_longer_than_the_time_for_coming_back_arrives_after_a_cut() {
    for way in WAYS {
        let path = Path::new(MIB + MIB / 2, |arrival| match arrival {
            Arrival { kind: Kind::Data, number: 0 } => Fault::ResetAfter(300 << 10),
            _ => Fault::None,
        });
        let options = words!["--span-size", "1M", "--streams", "1", "--bwlimit", "200K"];
        let ran = path.run(way, &[options, words!["--retry-for", "2s"]].concat());
        ran.ok();
        path.assert_arrived(way);
        assert_eq!(ran.number("span_bytes"), MIB, "{ran:?}");
    }
}
