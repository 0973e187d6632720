//! Long, lossy paths: the real `haul` between two network namespaces. Needs root and TUN devices.

use crate::harness::{
    Place, assert_no_temporaries, assert_same_trees, far::Far, is_long, process::Ran,
};
use haul_testkit::wan::Path;
use std::{
    thread,
    time::{Duration, Instant},
};

const MIB: u64 = 1 << 20;
const RTT: Duration = Duration::from_millis(100);

/// Pushes and pulls a tree, and checks that both arrive.
fn move_both_ways(far: &Far, place: &Place) -> [Ran; 2] {
    let pushed = far.run(place, &words!["push", place.source("tree"), far.url()]);
    pushed.ok();
    assert_same_trees(&place.source("tree"), &place.root("tree"));
    let url = format!("{}tree", far.url());
    let pulled = far.run(place, &words!["pull", url, place.target("")]);
    pulled.ok();
    assert_same_trees(&place.source("tree"), &place.target("tree"));
    assert_no_temporaries(&place.path(""));
    [pushed, pulled]
}

#[test]
fn a_tree_and_a_file_cross_a_long_path_and_the_report_names_its_congestion_control() {
    let place = Place::new();
    let Some(far) = Far::start(&place, Path::new(RTT, 1_000_000_000, 0.0)) else { return };
    place.tree(&place.source("tree"), 4, 60);
    place.file(&place.source("tree/large"), 24 * MIB);
    for ran in move_both_ways(&far, &place) {
        let why = ran.report()["chosen_because"].as_str().unwrap();
        assert!(why.contains("congestion control") && why.contains("round trip takes"), "{why}");
        assert!(ran.number("streams") >= 4, "each stream has its own window: {ran:?}");
    }
}

/// A loss of 1.5 %, at which a user of FDT saw it hang (FDT issue 54).
#[test]
fn a_path_that_loses_much_is_slow_and_never_stuck_or_wrong() {
    let place = Place::new();
    let Some(far) = Far::start(&place, Path::new(RTT / 2, 100_000_000, 0.015)) else { return };
    place.tree(&place.source("tree"), 2, 30);
    place.file(&place.source("tree/large"), 3 * MIB);
    for ran in move_both_ways(&far, &place) {
        assert_eq!(ran.number("resent_spans"), 0, "TCP repairs loss by itself: {ran:?}");
    }
    assert!(far.wan.counts().lost > 0);
}

#[test]
fn an_outage_is_waited_for_or_come_back_from() {
    let outage = if is_long() { 30 } else { 6 };
    let place = Place::new();
    let Some(far) = Far::start(&place, Path::new(RTT / 5, 80_000_000, 0.0)) else { return };
    place.file(&place.source("tree/large"), 24 * MIB);
    let words = words!["push", place.source("tree"), far.url(), "--span-size", "256K"];
    let client = far.start_haul(&place, &[words, words!["--stall-timeout", "3s"]].concat());
    let durable = client.wait_for_bytes("bytes_durable", MIB);
    far.wan.cut(true);
    thread::sleep(Duration::from_secs(outage));
    far.wan.cut(false);
    let ran = client.finish();
    ran.ok();
    assert!(ran.gone_on_from() == 0 || ran.gone_on_from() >= durable, "{ran:?}");
    assert_same_trees(&place.source("tree"), &place.root("tree"));
    assert_no_temporaries(&place.path(""));
}

/// Moves a file both ways over a path that swallows packets of more than `packet_bytes`.
fn cross_a_narrow_path(packet_bytes: usize, segments: &str) {
    let place = Place::new();
    let Some(far) = Far::start(&place, Path::new(RTT / 5, 200_000_000, 0.0)) else { return };
    far.wan.swallow_over(packet_bytes);
    place.file(&place.source("tree/large"), 12 * MIB);
    let begun = Instant::now();
    for ran in move_both_ways(&far, &place) {
        let said = ran.named("fallback");
        let of_path = said.iter().filter(|said| said["side"] == "path").collect::<Vec<_>>();
        assert_eq!(of_path.len(), 1, "once: {ran:?}");
        assert_eq!(of_path[0]["from_to"], segments, "{ran:?}");
        let why = of_path[0]["why"].as_str().unwrap();
        assert!(why.contains("packets of 1500 bytes"), "{why}");
        let chosen = ran.report()["chosen_because"].as_str().unwrap();
        assert!(chosen.ends_with(why), "{chosen}");
    }
    assert!(far.wan.counts().swallowed > 0);
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
}

/// A tunnel that is narrower than its ends, and a firewall that takes the ICMP messages.
#[test]
fn a_path_that_swallows_large_packets_is_crossed_in_smaller_segments() {
    cross_a_narrow_path(1400, "segments of 1448 -> 1200 bytes");
}

/// A path on which the control connection does not get through with segments of 1200 bytes either.
#[test]
fn a_path_that_swallows_all_but_the_smallest_packets_is_crossed_too() {
    cross_a_narrow_path(600, "segments of 1448 -> 536 bytes");
}

/// A queue that drops large packets, as of `tc qdisc add ... tbf ... burst 1000`, which TCP takes
/// for never sent.
#[test]
fn a_sender_whose_own_queue_drops_large_packets_takes_smaller_segments() {
    let place = Place::new();
    let Some(far) = Far::start(&place, Path::new(RTT / 5, 200_000_000, 0.0)) else { return };
    let hosts = far.wan.hosts();
    let tbf = ["rate", "1gbit", "burst", "1000", "latency", "50ms"];
    let add = [&["qdisc", "add", "dev", hosts.device, "root", "tbf"], &tbf[..]].concat();
    if let Err(why) = hosts.near.run("tc", &add) {
        return haul_testkit::skip::skip("tc(8) and tbf", why.to_string());
    }
    place.file(&place.source("large"), 12 * MIB);
    let words = words!["push", place.source("large"), far.url(), "--retry-for", "30s"];
    let ran = far.run(&place, &words);
    ran.ok();
    crate::harness::assert_same_files(&place.source("large"), &place.root("large"));
    let said = ran.named("fallback");
    let of_path = said.iter().filter(|said| said["side"] == "path").collect::<Vec<_>>();
    assert_eq!(of_path.len(), 1, "once: {ran:?}");
    assert_eq!(of_path[0]["from_to"], "segments of 1448 -> 536 bytes", "{ran:?}");
    let why = of_path[0]["why"].as_str().unwrap();
    assert!(why.contains("own queue") && why.contains("tc -s qdisc"), "{why}");
}

#[test]
fn a_path_that_begins_to_swallow_all_packets_of_data_ends_in_time() {
    let place = Place::new();
    let Some(far) = Far::start(&place, Path::new(RTT / 5, 200_000_000, 0.0)) else { return };
    place.file(&place.source("tree/large"), 24 * MIB);
    let words = words!["push", place.source("tree"), far.url(), "--bwlimit", "4M"];
    let options = words!["--retry-for", "15s", "--span-size", "256K"];
    let client = far.start_haul(&place, &[words, options].concat());
    client.wait_for_bytes("bytes_durable", MIB);
    far.wan.swallow_over(300);
    let begun = Instant::now();
    let ran = client.finish();
    assert_eq!(ran.status, 1, "{ran:?}");
    // A stall of 10 s comes before the first attempt.
    assert!(begun.elapsed() < Duration::from_secs(15 + 10 + 8), "{:?}: {ran:?}", begun.elapsed());
    ran.says(&["network", "--retry-for"]);
}

/// A silence of 20 s was longer than `--retry-for 10s`: no other connection was ever tried, and
/// what had no bytes was said to wait for a disk.
#[test]
fn a_short_time_for_coming_back_is_used_and_an_outage_is_no_stage_s() {
    let place = Place::new();
    let Some(far) = Far::start(&place, Path::new(RTT / 5, 80_000_000, 0.0)) else { return };
    place.file(&place.source("tree/large"), 48 * MIB);
    let words = words!["push", place.source("tree"), far.url(), "--span-size", "256K"];
    let client = far.start_haul(&place, &[words, words!["--retry-for", "10s"]].concat());
    client.wait_for_bytes("bytes_durable", MIB);
    far.wan.cut(true);
    thread::sleep(Duration::from_secs(8));
    far.wan.cut(false);
    let ran = client.finish();
    let report = ran.ok();
    assert_eq!(report["reconnections"], 1, "one outage: {ran:?}");
    assert!(report["seconds_without_server"].as_f64() >= Some(6.0), "{ran:?}");
    let told = ran.named("connection");
    let lost = told.iter().find(|told| told["state"] == "lost").unwrap();
    assert!(lost["seconds_left"].as_f64() > Some(5.0), "{ran:?}");
    let silent = told.iter().find(|told| told["state"] == "silent").unwrap();
    assert!(silent["seconds_left"].as_f64() > Some(10.0), "it is tried after that: {ran:?}");
    let intervals = ran.named("progress");
    let still = intervals.iter().filter(|interval| interval["interval_bytes"] == 0);
    // The first may hold the end of what moved.
    for interval in still.skip(1) {
        let stage = &interval["limiting"]["stage"];
        assert!(stage != "source_disk" && stage != "source_digest", "{interval}: {ran:?}");
    }
}

/// The handshake of 45 s was begun whatever the user allowed.
#[test]
fn a_first_connection_that_is_swallowed_is_given_up_in_the_time_for_coming_back() {
    let place = Place::new();
    let Some(far) = Far::start(&place, Path::new(RTT / 5, 80_000_000, 0.0)) else { return };
    // A SYN has 60 bytes, and nothing with a byte of data has so few.
    far.wan.swallow_over(60);
    place.file(&place.source("tree/large"), MIB);
    let begun = Instant::now();
    let words = words!["push", place.source("tree"), far.url(), "--retry-for", "5s"];
    let ran = far.run(&place, &words);
    ran.refused(&["does not open a session"]);
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}: {ran:?}", begun.elapsed());
}
