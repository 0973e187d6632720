//! The real `haul probe net`: what it measures and tells, and what it may not.
//!
//! Neither side is hurt when the other goes away.
//!
//! No test looks at how fast anything is: only that it was measured, or why it was not.

use crate::harness::{
    Place,
    far::Far,
    peer::{FakeServer, Peer},
    process::{Haul, Ran},
    server::{IDLE_THREADS, Server, ServerSetup},
    wait_until,
};
use haul_protocol::{
    Message, StreamId,
    message::{self, Direction, FaultCode, ProbeKind},
};
use haul_testkit::{skip::skip, wan::Path};
use serde_json::Value;
use std::{
    ffi::OsString,
    net::{IpAddr, UdpSocket},
    process::Command,
    time::Duration,
};

/// Options for rounds as short as they may be.
const SHORT: [&str; 6] = ["--time", "300ms", "--omit", "100ms", "--interval", "100ms"];

fn probe(place: &Place, url: OsString, options: &[&str]) -> Ran {
    place.run(&words_of(url, options))
}

fn words_of(url: OsString, options: &[&str]) -> Vec<OsString> {
    let own = options.iter().map(OsString::from);
    words!["probe", "net", url].into_iter().chain(own).collect()
}

/// Rounds of a probe that was measured.
#[track_caller]
fn rounds(ran: &Ran) -> Vec<&Value> {
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.report()["ok"], true, "{ran:?}");
    assert_eq!(ran.events[0]["event"], "host");
    let rounds = ran.named("round");
    assert!(!rounds.is_empty(), "{ran:?}");
    for round in &rounds {
        for way in round["ways"].as_array().unwrap() {
            assert!(way["bytes"].as_u64().unwrap() > 0, "{way}");
            assert!(way["gbit_per_s"].as_f64().unwrap() > 0.0, "{way}");
            assert!(!way["verdict"]["limit"].as_str().unwrap().is_empty(), "{way}");
            assert!(!way["verdict"]["advice"].as_str().unwrap().is_empty(), "{way}");
        }
    }
    rounds
}

fn ways(round: &Value) -> Vec<&str> {
    let ways = round["ways"].as_array().unwrap().iter();
    ways.map(|way| way["direction"].as_str().unwrap()).collect()
}

/// URL with a new token of one right.
fn url_with_right(place: &Place, server: &Server, right: &str) -> OsString {
    let mut command = place.command(&words!["token", "new", right, "--json"]);
    command.env("HAUL_STATE", place.path("state"));
    let output = command.output().unwrap();
    let made: Value = serde_json::from_slice(&output.stdout).unwrap();
    server.url_with(made["token"].as_str().unwrap(), server.address(), "")
}

#[test]
fn a_sweep_tells_of_each_number_of_streams_over_time() {
    let place = Place::new();
    let server = Server::start(&place);
    let page = place.path("page.html");
    let options = [&SHORT[..], &["--streams", "1,3", "--html", page.to_str().unwrap()]].concat();
    let ran = probe(&place, server.url(""), &options);
    let rounds = rounds(&ran);
    assert_eq!(rounds.len(), 2);
    for (round, streams) in rounds.iter().zip([1_usize, 3]) {
        assert_eq!(
            (round["streams"].as_u64(), ways(round)),
            (Some(streams as u64), vec!["to_server"])
        );
        let way = &round["ways"][0];
        assert_eq!(way["streams"].as_array().unwrap().len(), streams);
        for side in ["sender", "receiver"] {
            assert!(way[side]["cores"].as_f64().unwrap() > 0.0, "{way}");
            assert!(way[side]["cores_max"].as_u64().unwrap() > 0, "{way}");
        }
        let limited = way["limited"].as_object().unwrap();
        let sum: f64 = limited.values().map(|share| share.as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 0.01, "shares of all the time: {way}");
        let intervals = way["intervals"].as_array().unwrap();
        let omitted: Vec<bool> =
            intervals.iter().map(|interval| interval["omitted"].as_bool().unwrap()).collect();
        assert_eq!(omitted, [true, false, false, false]);
        for interval in intervals {
            assert_eq!(interval["streams"].as_array().unwrap().len(), streams);
            assert!(interval["streams"][0]["cwnd_bytes"].as_u64().unwrap() > 0, "{interval}");
        }
    }
    let report = ran.report();
    assert_eq!(report["loopback"], true);
    assert!(report["path"]["passes_to_server_bytes"].as_u64().unwrap() >= 1500, "{report}");
    assert_eq!(report["path"]["black_hole"], Value::Null);
    assert!(report["buffers"][0]["bdp_bytes"].is_u64(), "{report}");
    assert!(report["verdict"]["sentence"].as_str().unwrap().contains("loopback"), "{report}");
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("<svg").count(), 2, "a sweep, and rates over time");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    server.wait_for_sessions(1);
    let ended = server.process.wait_for("session end", |line| line["event"] == "session_ended");
    assert_eq!((&ended["ok"], &ended["why"]), (&true.into(), &"".into()), "{ended}");
}

#[test]
fn a_terminal_sees_the_verdict_first() {
    let place = Place::new();
    let server = Server::start(&place);
    let options = [&SHORT[..], &["--streams", "1", "--no-path-mtu"]].concat();
    let output = place.command(&words_of(server.url(""), &options)).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let first = text.lines().next().unwrap();
    assert!(first.starts_with("This host's loopback carries ") && first.ends_with('.'), "{text}");
    for part in ["To do: ", "== Rounds ==", "== Over time ==", "What passes was not measured"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn both_ways_are_measured_alone_and_together_and_receivers_may_throw_away() {
    let place = Place::new();
    let server = Server::start(&place);
    let with = |more: &[&str]| {
        let options = [&SHORT[..], &["--streams", "2", "--no-path-mtu"], more].concat();
        probe(&place, server.url(""), &options)
    };
    let ran = with(&["--reverse", "--receive", "copy,discard"]);
    let reverse = rounds(&ran);
    let receive: Vec<_> = reverse.iter().map(|round| round["receive"].as_str().unwrap()).collect();
    assert_eq!(receive, ["copy", "discard"]);
    assert!(reverse.iter().all(|round| ways(round) == ["to_client"]));
    let ran = with(&["--bidir"]);
    assert_eq!(ways(rounds(&ran)[0]), ["to_server", "to_client"]);
    let streams = |way: usize| {
        let streams = ran.named("round")[0]["ways"][way]["streams"].as_array().unwrap().iter();
        streams.map(|stream| stream["stream"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert!(streams(0).iter().all(|stream| !streams(1).contains(stream)), "{ran:?}");
}

#[test]
fn congestion_controls_take_turns_and_one_that_is_not_there_is_named() {
    let place = Place::new();
    let server = Server::start(&place);
    let options = ["--streams", "1", "--rounds", "2", "--congestion", "reno,no-such"];
    let ran = probe(&place, server.url(""), &[&SHORT[..], &options].concat());
    assert_eq!(ran.status, 0, "{ran:?}");
    let rounds = ran.named("round");
    assert_eq!(rounds.len(), 2, "{ran:?}");
    assert!(rounds.iter().all(|round| round["ways"][0]["congestion"] == "reno"), "{ran:?}");
    let refused = ran.report()["refused"].as_array().unwrap();
    assert_eq!(refused.len(), 2);
    assert!(refused[0]["why"].as_str().unwrap().contains("no-such"), "{ran:?}");
    assert!(ran.err.contains("no-such"), "{}", ran.err);
}

#[test]
fn a_rate_is_kept_to_and_said_to_be_the_limit() {
    let place = Place::new();
    let server = Server::start(&place);
    let options = ["--streams", "2", "--rate", "80Mbit", "--time", "1s", "--no-path-mtu"];
    let ran = probe(&place, server.url(""), &options);
    let round = rounds(&ran)[0];
    let rate = round["gbit_per_s"].as_f64().unwrap();
    assert!(rate < 0.12, "paced by the kernel: {round}");
    if rate > 0.072 {
        assert_eq!(round["ways"][0]["verdict"]["limit"], "pacing", "{round}");
    }
}

#[test]
fn datagrams_go_both_ways_and_are_counted_once() {
    let place = Place::new();
    let server = Server::start(&place);
    let options = ["--udp", "--rate", "40Mbit", "--streams", "2", "--bidir", "--datagram", "1200"];
    let ran = probe(&place, server.url(""), &[&SHORT[..], &options].concat());
    for way in rounds(&ran)[0]["ways"].as_array().unwrap() {
        let datagrams = &way["datagrams"];
        let number = |key: &str| datagrams[key].as_u64().unwrap();
        assert!(number("sent") > 0, "{way}");
        assert_eq!(number("sent"), number("received") + number("lost"), "{way}");
        assert_eq!((number("duplicates"), number("datagram_bytes")), (0, 1200), "{way}");
        assert!(datagrams["jitter_us"].is_f64(), "{way}");
    }
}

/// Probes again, a few times, where other tests held the processor: then that was the limit.
fn probed_by_itself(far: &Far, place: &Place, options: &[&str]) -> Ran {
    let mut ran = far.run(place, &words_of(far.url().into(), options));
    for _ in 0..4 {
        let limit = rounds(&ran)[0]["ways"][0]["verdict"]["limit"].clone();
        if !limit.as_str().unwrap().ends_with("processor") {
            break;
        }
        ran = far.run(place, &words_of(far.url().into(), options));
    }
    ran
}

#[test]
fn lost_datagrams_and_a_long_path_are_told() {
    let place = Place::new();
    let path = Path::new(Duration::from_millis(40), 200_000_000, 0.1);
    let Some(far) = Far::start(&place, path) else { return };
    let udp = ["--udp", "--rate", "20Mbit", "--time", "2s", "--omit", "200ms"];
    let ran = probed_by_itself(&far, &place, &udp);
    let round = rounds(&ran)[0];
    let way = &round["ways"][0];
    let share = way["datagrams"]["lost_share"].as_f64().unwrap();
    assert!((0.04..0.25).contains(&share), "a tenth is lost: {way}");
    assert_eq!(way["verdict"]["limit"], "loss", "{way}");
    assert_eq!(round["block_bytes"], 1472, "what an MTU of 1500 takes whole");
    let report = ran.report();
    assert_eq!(report["loopback"], false);
    assert_eq!(report["path"]["passes_to_server_bytes"], 1500, "{report}");
    let rtt_us = report["path"]["min_rtt_us"].as_u64().unwrap();
    assert!((40_000..400_000).contains(&rtt_us), "{report}");
    // What has to be cut on its way cannot be cut by UDP_SEGMENT too.
    let large = [&udp[..], &["--datagram", "4000", "--no-path-mtu"]].concat();
    let ran = far.run(&place, &words_of(far.url().into(), &large));
    assert_eq!(rounds(&ran)[0]["block_bytes"], 4000);
    let streams = ["--streams", "1", "--time", "1s", "--omit", "500ms", "--no-path-mtu"];
    let ran = probed_by_itself(&far, &place, &streams);
    let way = &rounds(&ran)[0]["ways"][0];
    assert!(way["retransmits"].as_u64().unwrap() > 0, "{way}");
    assert_eq!(way["verdict"]["limit"], "loss", "{way}");
    let buffers = &ran.report()["buffers"][0];
    assert!(buffers["rtt_us"].as_u64().unwrap() >= 40_000, "{buffers}");
}

/// Checks what a probe says of a path that swallows packets of more than `packet_bytes`: of its
/// largest packet, and with a rate, whichever way.
fn narrow(packet_bytes: usize, passes_bytes: u64, options: &[&str]) {
    let place = Place::new();
    let path = Path::new(Duration::from_millis(20), 200_000_000, 0.0);
    let Some(far) = Far::start(&place, path) else { return };
    far.wan.swallow_over(packet_bytes);
    let time = ["--streams", "2", "--time", "5s", "--omit", "100ms"];
    let ran = far.run(&place, &words_of(far.url().into(), &[&time[..], options].concat()));
    rounds(&ran);
    let report = ran.report();
    let hole = &report["path"]["black_hole"];
    assert_eq!(hole["passes_bytes"].as_u64(), Some(passes_bytes), "{report}");
    assert_eq!(report["verdict"]["limit"], "black_hole", "{report}");
    let sentence = report["verdict"]["sentence"].as_str().unwrap();
    assert!(sentence.contains(&format!("while {passes_bytes} pass")), "{sentence}");
    assert!(!sentence.contains(" 0.0 Mbit/s"), "{sentence}");
}

/// A probe that said 0.0 Mbit/s, and nothing of the path's MTU.
#[test]
fn streams_of_a_probe_get_through_where_large_packets_are_swallowed() {
    narrow(1400, 1240, &["--no-path-mtu"]);
}

#[test]
fn a_probe_from_the_server_gets_through_where_all_but_the_smallest_are_swallowed() {
    narrow(600, 576, &["--no-path-mtu", "--reverse"]);
}

/// A token bucket that holds less than a packet, on the sending host.
#[test]
fn a_probe_names_the_own_queue_that_drops_large_packets() {
    let place = Place::new();
    let path = Path::new(Duration::from_millis(20), 200_000_000, 0.0);
    let Some(far) = Far::start(&place, path) else { return };
    let hosts = far.wan.hosts();
    let tbf = ["root", "tbf", "rate", "1gbit", "burst", "1000", "latency", "50ms"];
    let add = [&["qdisc", "add", "dev", hosts.device], &tbf[..]].concat();
    if let Err(why) = hosts.near.run("tc", &add) {
        return skip("tc(8) and tbf", why.to_string());
    }
    let options = ["--streams", "2", "--time", "3s", "--omit", "100ms", "--no-path-mtu"];
    let ran = far.run(&place, &words_of(far.url().into(), &options));
    rounds(&ran);
    let report = ran.report();
    assert_eq!(report["path"]["black_hole"]["own_queue"], true, "{report}");
    assert_eq!(report["path"]["passes_to_server_bytes"], 576, "{report}");
    let advice = report["verdict"]["advice"].as_str().unwrap();
    assert!(advice.contains("tc -s qdisc"), "{advice}");
}

/// Two network namespaces and a bridge between them, which drops what is larger than one of its
/// ports and tells nobody.
struct Hole(Vec<String>);

impl Hole {
    const FAR: &str = "10.97.0.2";

    fn make() -> Result<Self, String> {
        let name = |side: &str| format!("haul-hole-{}-{side}", std::process::id());
        let [near, middle, far] = ["near", "middle", "far"].map(name);
        let mut hole = Self(Vec::new());
        for name in [&near, &middle, &far] {
            ip(&["netns", "add", name])?;
            hole.0.push(name.clone());
        }
        ip(&["-n", &middle, "link", "add", "br0", "type", "bridge"])?;
        for (side, port, address) in [(&near, "p0", "10.97.0.1/24"), (&far, "p1", "10.97.0.2/24")] {
            let pair = ["link", "add", "eth0", "type", "veth", "peer", port, "netns", &middle];
            ip(&[&["-n", side][..], &pair].concat())?;
            ip(&["-n", side, "address", "add", address, "dev", "eth0"])?;
            ip(&["-n", side, "link", "set", "eth0", "up"])?;
            ip(&["-n", side, "link", "set", "lo", "up"])?;
            ip(&["-n", &middle, "link", "set", port, "master", "br0"])?;
            ip(&["-n", &middle, "link", "set", port, "up"])?;
        }
        ip(&["-n", &middle, "link", "set", "p1", "mtu", "1300"])?;
        ip(&["-n", &middle, "link", "set", "br0", "up"])?;
        Ok(hole)
    }

    fn within(&self, at: usize, command: &Command) -> Command {
        let enter = format!("--net=/run/netns/{}", self.0[at]);
        crate::harness::process::behind(&words!["nsenter", enter], {
            let mut same = Command::new(command.get_program());
            same.args(command.get_args());
            same.current_dir(command.get_current_dir().unwrap());
            same.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            same
        })
    }
}

impl Drop for Hole {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

fn ip(words: &[&str]) -> Result<(), String> {
    let ran = Command::new("ip").args(words).output().map_err(|error| error.to_string())?;
    if ran.status.success() {
        return Ok(());
    }
    Err(format!("ip {}: {}", words.join(" "), String::from_utf8_lossy(&ran.stderr).trim()))
}

#[test]
fn a_black_hole_is_found_and_the_size_that_passes_is_named() {
    let hole = match Hole::make() {
        Ok(hole) => hole,
        Err(why) => return skip("root and ip(8) with bridges", &why),
    };
    let place = Place::new();
    let listen = format!("{}:0", Hole::FAR);
    let words = words!["serve", place.path("root"), "--listen", listen, "--json"];
    let mut serve = place.command(&words);
    serve.env("HAUL_STATE", place.path("state"));
    let server = Haul::start(hole.within(2, &serve));
    let line = server.wait_for("listening line", |_| true);
    let url = OsString::from(line["url"].as_str().unwrap());
    let options = [&SHORT[..], &["--udp", "--rate", "8Mbit", "--json"]].concat();
    let ran = Haul::start(hole.within(0, &place.command(&words_of(url, &options)))).finish();
    let round = rounds(&ran)[0];
    assert!(round["block_bytes"].as_u64().unwrap() <= 1300 - 28, "what passes: {round}");
    let report = ran.report();
    let hole = &report["path"]["black_hole"];
    let passes = hole["passes_bytes"].as_u64().unwrap();
    let vanishes = hole["vanishes_bytes"].as_u64().unwrap();
    // A bridge lets the header of a VLAN pass on top.
    assert!((1290..=1304).contains(&passes) && vanishes > passes && vanishes <= 1310, "{report}");
    assert_eq!(report["path"]["believed_mtu_bytes"], 1500);
    assert_eq!(report["verdict"]["limit"], "black_hole");
    let sentence = report["verdict"]["sentence"].as_str().unwrap();
    assert!(sentence.contains(&format!("{passes} pass")), "{sentence}");
}

#[test]
fn a_wrong_token_is_refused_and_no_right_is_lent() {
    let place = Place::new();
    let server = Server::start(&place);
    let stray = haul_transfer::Token::generate(server.token().fingerprint).unwrap().reveal();
    let wrong = server.url_with(&stray, server.address(), "");
    probe(&place, wrong, &SHORT).refused(&["does not know the token"]);
    let reads = url_with_right(&place, &server, "--read");
    let short = [&SHORT[..], &["--streams", "1", "--no-path-mtu"]].concat();
    probe(&place, reads.clone(), &short).refused(&["no right to write"]);
    probe(&place, reads.clone(), &[&short[..], &["--bidir"]].concat()).refused(&["to write"]);
    rounds(&probe(&place, reads, &[&short[..], &["--reverse"]].concat()));
    let writes = url_with_right(&place, &server, "--write");
    let back = [&short[..], &["--reverse"]].concat();
    probe(&place, writes.clone(), &back).refused(&["no right to read"]);
    rounds(&probe(&place, writes, &short));
    let read_only = ServerSetup::new(&place).options(&["--read-only"]).start(&place);
    probe(&place, read_only.url(""), &short).refused(&["read-only", "--reverse"]);
    // No token would help, whatever its rights.
    place.file(&place.source("file"), 1000);
    let pushed = place.push(&words![place.source("file"), read_only.url("")]);
    assert!(pushed.err.contains("the server is read-only") && !pushed.err.contains("token new"));
    read_only.wait_for_sessions(1);
    let ended = |event: &&Value| event["event"] == "session_ended";
    let ended = read_only.process.events().iter().find(ended).cloned().unwrap();
    assert!(ended["ok"] == false && ended["why"].to_string().contains("read-only"), "{ended}");
}

#[test]
fn a_single_use_token_is_not_used_up_by_a_probe() {
    let place = Place::new();
    let server = Server::start(&place);
    let mut command = place.command(&words!["token", "new", "--write", "--single-use", "--json"]);
    command.env("HAUL_STATE", place.path("state"));
    let made: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    let url = server.url_with(made["token"].as_str().unwrap(), server.address(), "");
    let short = [&SHORT[..], &["--streams", "1", "--no-path-mtu"]].concat();
    rounds(&probe(&place, url.clone(), &short));
    place.file(&place.source("file"), 1000);
    place.push(&words![place.source("file"), url.clone()]).ok();
    // The client may end before the server has written down that it did.
    server.wait_for_sessions(2);
    probe(&place, url, &short).refused(&["is used"]);
}

#[test]
fn a_server_that_has_as_many_probes_as_it_may_says_so_and_serves_transfers() {
    let place = Place::new();
    let server = ServerSetup::new(&place).options(&["--max-probes", "1"]).start(&place);
    let long = ["--streams", "1", "--time", "60s", "--rate", "1M", "--no-path-mtu"];
    let mut first = place.start(&words_of(server.url(""), &long));
    let is_probe = |line: &Value| line["direction"] == "probe";
    server.process.wait_for("probe", is_probe);
    probe(&place, server.url(""), &SHORT).refused(&["as many probes", "--max-probes"]);
    server.still_serves(&place);
    first.kill();
    server.wait_for_sessions(3);
    rounds(&probe(&place, server.url(""), &[&SHORT[..], &["--streams", "1"]].concat()));
}

#[test]
fn more_streams_than_the_server_takes_are_refused_and_the_other_rounds_go_on() {
    let place = Place::new();
    let server = ServerSetup::new(&place).options(&["--max-streams", "2"]).start(&place);
    let options = [&SHORT[..], &["--streams", "2,4", "--no-path-mtu"]].concat();
    let ran = probe(&place, server.url(""), &options);
    assert_eq!((ran.status, ran.named("round").len()), (0, 1), "{ran:?}");
    assert!(ran.err.contains("at most 2") && ran.err.contains("--max-streams"), "{}", ran.err);
}

#[test]
fn a_server_that_is_killed_in_the_middle_is_a_clear_error() {
    for options in [&["--streams", "2"][..], &["--reverse", "--streams", "2"], &["--udp"]] {
        let place = Place::new();
        let mut server = Server::start(&place);
        let all = [options, &["--time", "60s", "--no-path-mtu", "--rate", "80Mbit"]].concat();
        let client = place.start(&words_of(server.url(""), &all));
        server.process.wait_for("probe", |line| line["event"] == "session");
        std::thread::sleep(Duration::from_millis(500));
        server.process.kill();
        let ran = client.finish();
        assert_eq!(ran.status, 1, "{ran:?}");
        ran.says(&["connection", "lost in the middle of a probe"]);
    }
}

#[test]
fn a_client_that_is_killed_in_the_middle_leaves_the_server_serving() {
    let place = Place::new();
    let server = Server::start(&place);
    for (at, options) in
        [&["--streams", "4"][..], &["--bidir", "--streams", "2"], &["--udp", "--bidir"]]
            .into_iter()
            .enumerate()
    {
        let all = [options, &["--time", "60s", "--no-path-mtu", "--rate", "80Mbit"]].concat();
        let mut client = place.start(&words_of(server.url(""), &all));
        let begun = |line: &&Value| line["event"] == "session";
        wait_until("let in", || server.process.events().iter().filter(begun).count() == at + 1);
        std::thread::sleep(Duration::from_millis(500));
        client.kill();
        server.wait_for_sessions(at + 1);
    }
    wait_until("back to its own threads", || server.threads() == IDLE_THREADS);
    server.still_serves(&place);
}

#[test]
fn a_server_that_ends_in_the_middle_says_so() {
    let place = Place::new();
    let server = Server::start(&place);
    let long = ["--streams", "1", "--time", "60s", "--rate", "1M", "--no-path-mtu"];
    let client = place.start(&words_of(server.url(""), &long));
    server.process.wait_for("probe", |line| line["event"] == "session");
    std::thread::sleep(Duration::from_millis(300));
    server.process.signal(rustix::process::Signal::TERM);
    let ran = client.finish();
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.says(&["the server ends"]);
}

#[test]
fn an_older_server_is_told_from_its_reply() {
    let place = Place::new();
    let fake = FakeServer::start(&place.path("fake"), |mut peer: Peer| {
        let hello = |message: &Message| matches!(message, Message::Hello(_)).then_some(());
        if peer.hear(hello).is_err() {
            return;
        }
        let software = "haul 0.0.9".into();
        let reply = message::HelloReply { version: 1, software, ..Default::default() };
        peer.say(Message::HelloReply(reply));
        peer.hear_close();
    });
    let ran = probe(&place, fake.url("").into(), &SHORT);
    ran.refused(&["cannot be probed", "haul 0.0.9", "same haul version"]);
}

#[test]
fn a_probe_of_more_memory_than_a_session_may_have_is_refused() {
    let place = Place::new();
    let server = Server::start(&place);
    let options = [&SHORT[..], &["--streams", "8", "--block", "16M", "--no-path-mtu"]].concat();
    probe(&place, server.url(""), &options).refused(&["memory", "--block"]);
}

fn asked(round: u32) -> message::Probe {
    message::Probe {
        round,
        kind: ProbeKind::Datagrams,
        to_client: true,
        streams: 1,
        block_bytes: 100,
        time_ms: 200,
        interval_ms: 100,
        rate_bytes_per_s: 100_000,
        ..message::Probe::default()
    }
}

fn datagram(key: &[u8], kind: u8, value: u64) -> Vec<u8> {
    let mut bytes = key.to_vec();
    bytes.extend([kind, 0, 0, 0]);
    bytes.extend([0; 20]);
    bytes.extend(value.to_le_bytes());
    bytes
}

#[test]
fn a_server_sends_datagrams_to_nobody_who_did_not_prove_his_address() {
    let place = Place::new();
    let server = Server::start(&place);
    let open = Peer::asks(&server, Direction::Probe, b"");
    let (mut peer, _) = Peer::with_session_of(&server, open);
    peer.say(Message::Probe(asked(1)));
    let ready = peer.hear(|message| match message {
        Message::ProbeReady(ready) => Some(ready.clone()),
        _ => None,
    });
    let ready = ready.unwrap();
    let target = (server.address().ip(), ready.udp_port);
    let socket = UdpSocket::bind((IpAddr::from([127, 0, 0, 1]), 0)).unwrap();
    let heard = |patience_ms: u64| {
        socket.set_read_timeout(Some(Duration::from_millis(patience_ms))).unwrap();
        let mut bytes = [0; 2048];
        socket.recv(&mut bytes).ok().map(|len| bytes[..len].to_vec())
    };
    let key = &ready.datagram_key.unwrap().0;
    // Another key, half a header, data, a proof of nothing.
    socket.send_to(&datagram(&[0; 16], 1, 0), target).unwrap();
    socket.send_to(&datagram(key, 1, 0)[..40], target).unwrap();
    for kind in [3, 4, 6, 9] {
        socket.send_to(&datagram(key, kind, 7), target).unwrap();
    }
    assert_eq!(heard(300), None);
    let hello = datagram(key, 1, 0);
    socket.send_to(&hello, target).unwrap();
    let challenge = heard(10_000).unwrap();
    assert_eq!((challenge.len(), challenge[16]), (hello.len(), 2), "no longer than what asked");
    // Without the proof the round does not begin.
    assert_eq!(heard(300), None);
    let value = u64::from_le_bytes(challenge[40..48].try_into().unwrap());
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    other.send_to(&datagram(key, 3, value ^ 1), target).unwrap();
    socket.send_to(&datagram(key, 3, value), target).unwrap();
    let data = heard(10_000).unwrap();
    assert_eq!((data.len(), data[16]), (100, 4));
    let result = peer.hear(|message| match message {
        Message::ProbeResult(result) => Some(result.clone()),
        _ => None,
    });
    let result = result.unwrap();
    assert!(result.fault.is_none() && result.streams[0].datagrams > 0, "{result:?}");
}

#[test]
fn a_client_that_breaks_the_rules_of_a_probe_is_told_so() {
    let place = Place::new();
    let server = Server::start(&place);
    type Says = fn(&mut Peer);
    let second_first: Says = |peer| peer.say(Message::Probe(asked(2)));
    let offers: Says = |peer| {
        let file = crate::harness::peer::offer(0, b"a", message::FileKind::Regular);
        peer.say(Message::FileOffer(file));
    };
    let over_each_other: Says = |peer| {
        peer.say(Message::Probe(asked(1)));
        peer.say(Message::Probe(asked(2)));
    };
    for says in [second_first, offers, over_each_other] {
        let open = Peer::asks(&server, Direction::Probe, b"");
        let (mut peer, _) = Peer::with_session_of(&server, open);
        says(&mut peer);
        assert_eq!(peer.hear_refusal().code, FaultCode::ProtocolViolation);
    }
    server.still_serves(&place);
}

#[test]
fn datagrams_that_never_come_end_the_round_and_not_the_session() {
    let place = Place::new();
    let server = Server::start(&place);
    let open = Peer::asks(&server, Direction::Probe, b"");
    let (mut peer, _) = Peer::with_session_of(&server, open);
    for round in [1, 2] {
        let first_stream = (round - 1) * 2;
        peer.say(Message::Probe(message::Probe {
            first_stream: StreamId(first_stream),
            ..asked(round)
        }));
        let result = peer.hear(|message| match message {
            Message::ProbeResult(result) => Some(result.clone()),
            _ => None,
        });
        let fault = result.unwrap().fault.unwrap();
        assert_eq!(fault.code, FaultCode::Stalled);
        assert!(fault.hint.contains("UDP"), "{fault:?}");
    }
}
