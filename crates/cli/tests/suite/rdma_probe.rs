//! The real `haul probe net --fabric`: RDMA endpoints are measured beside TCP, without a card.
//!
//! No test looks at how fast anything is.

use crate::{
    harness::{
        Place,
        peer::FakeServer,
        process::Ran,
        server::{Server, ServerSetup},
    },
    rdma::has_fabric,
};
use haul_protocol::{CAPABILITY_PROBE, CAPABILITY_RECHECK, Message, limits, message};
use serde_json::Value;
use std::ffi::OsString;

const SHORT: [&str; 8] =
    ["--time", "400ms", "--omit", "200ms", "--interval", "100ms", "--streams", "1,2"];

fn probe(place: &Place, server: &Server, options: &[&str]) -> Ran {
    probe_url(place, server.url(""), options)
}

fn probe_url(place: &Place, url: OsString, options: &[&str]) -> Ran {
    let own = SHORT.iter().chain(options).map(OsString::from);
    let words: Vec<OsString> =
        words!["probe", "net", url, "--no-path-mtu"].into_iter().chain(own).collect();
    place.run(&words)
}

fn by_rdma<'ran>(ran: &'ran Ran, transport: &str) -> Vec<&'ran Value> {
    ran.named("round").into_iter().filter(|round| round["transport"] == transport).collect()
}

/// The verdict that a way's own figures give, from the places where nobody else is the limit.
fn limit_of(way: &Value) -> Option<&'static str> {
    let waited = way["limited"]["receiver_window"].as_f64().unwrap();
    match way["verdict"]["limit"].as_str().unwrap() {
        "receiver_buffers" => Some(if waited >= 0.3 { "receiver_buffers" } else { "path" }),
        "path" => Some(if waited < 0.3 { "path" } else { "receiver_buffers" }),
        // A processor comes first, whatever else is full; loopback tells no link's rate.
        _ => None,
    }
}

#[test]
fn endpoints_are_measured_beside_tcp_with_their_latency_and_what_limits_them() {
    if !has_fabric() {
        return;
    }
    for provider in ["shm", "tcp"] {
        let place = Place::new();
        let server = ServerSetup::new(&place).options(&["--fabric"]).start(&place);
        let ran = probe(&place, &server, &[&format!("--fabric={provider}"), "--bidir"]);
        assert_eq!(ran.status, 0, "{ran:?}");
        let report = ran.report();
        assert_eq!(report["ok"], true, "{report}");
        let (tcp, rdma) = (by_rdma(&ran, "tcp"), by_rdma(&ran, &format!("rdma-{provider}")));
        assert_eq!((tcp.len(), rdma.len()), (2, 2), "{ran:?}");
        for way in rdma.iter().flat_map(|round| round["ways"].as_array().unwrap()) {
            assert!(way["bytes"].as_u64().unwrap() > 0, "{way}");
            for side in ["sender", "receiver"] {
                assert!(way[side]["cores"].as_f64().unwrap() > 0.0, "{way}");
            }
            let waits = way["room_waits"].as_u64().unwrap();
            let waited = way["limited"]["receiver_window"].as_f64().unwrap();
            assert!(waits > 0 || waited == 0.0, "{way}");
            let limit = way["verdict"]["limit"].as_str().unwrap();
            assert_eq!(limit_of(way).unwrap_or(limit), limit, "{way}");
        }
        let facts = &report["rdma"];
        assert_eq!(facts["provider"], provider, "{facts}");
        assert!(!facts["device"].as_str().unwrap().is_empty(), "{facts}");
        assert_eq!(facts["link_gbit_per_s"], Value::Null, "neither is a card: {facts}");
        let ping = |name: &str| facts["ping"][name].as_f64().unwrap();
        assert!(ping("count") > 0.0 && ping("min_us") > 0.0, "{facts}");
        assert!(ping("min_us") <= ping("median_us"), "{facts}");
        assert!(ping("median_us") <= ping("p99_us"), "{facts}");
        let sentence = report["verdict"]["sentence"].as_str().unwrap();
        assert!(sentence.starts_with(&format!("RDMA endpoints ({provider} at ")), "{sentence}");
        assert!(sentence.contains("; TCP carries "), "{sentence}");
        server.wait_for_sessions(1);
    }
}

#[test]
fn a_server_without_fabric_is_named_and_so_is_a_provider_that_is_not_here() {
    if !has_fabric() {
        return;
    }
    let place = Place::new();
    let server = Server::start(&place);
    let ran = probe(&place, &server, &["--fabric=shm"]);
    ran.refused(&["RDMA endpoints cannot be probed", "the server was started without --fabric"]);
    let ran = probe(&place, &server, &["--fabric=cxi"]);
    ran.refused(&["RDMA endpoints cannot be probed", "Slingshot"]);
}

/// A haul of before RDMA grants the probe and says nothing of endpoints.
#[test]
fn a_server_that_knows_probes_and_not_rdma_is_named_and_nothing_is_measured() {
    if !has_fabric() {
        return;
    }
    let place = Place::new();
    let fake = FakeServer::start(&place.path("fake"), |mut peer| {
        let hello = |message: &Message| matches!(message, Message::Hello(_)).then_some(());
        if peer.hear(hello).is_err() {
            return;
        }
        peer.say(Message::HelloReply(message::HelloReply {
            version: 1,
            software: "haul 0.0.9".into(),
            capabilities: vec![CAPABILITY_PROBE, CAPABILITY_RECHECK],
        }));
        let open = peer.hear(|message| match message {
            Message::Open(open) => Some(open.clone()),
            _ => None,
        });
        let open = open.expect("it is asked for a probe");
        assert_eq!(open.direction, message::Direction::Probe);
        assert!(open.fabrics.contains(&"shm".into()), "{:?}", open.fabrics);
        peer.say(Message::Opened(message::Opened {
            session: [7; 16],
            streams: 1,
            offers_max: 1,
            offer_bytes_max: limits::OFFER_BYTES_MIN,
            ..Default::default()
        }));
        peer.hear_close();
    });
    for fabric in ["--fabric", "--fabric=shm"] {
        let ran = probe_url(&place, fake.url("").into(), &[fabric]);
        let found = "haul 0.0.9, which does not know `haul probe net --fabric`";
        ran.refused(&["RDMA endpoints cannot be probed", found, "leave --fabric out"]);
        assert!(ran.named("round").is_empty(), "{ran:?}");
    }
}

#[cfg(not(feature = "fabric"))]
#[test]
fn a_probe_of_rdma_by_a_build_without_libfabric_says_how_to_get_one_that_has_it() {
    let place = Place::new();
    let server = Server::start(&place);
    let ran = probe(&place, &server, &["--fabric=shm"]);
    ran.refused(&["RDMA endpoints cannot be probed", "libfabric-dev"]);
}
