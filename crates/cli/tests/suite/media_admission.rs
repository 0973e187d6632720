//! Admission to `haul media`: who comes in, at which rate, and what the others are told.

use crate::harness::{
    Place,
    http::{Answer, Body, Client},
    media::Media,
    wait_until,
};
use rustix::process::Signal;
use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Asks for a stream, and reads the head of its answer alone.
fn stream(media: &Media, target: &str) -> (Client, Answer) {
    let mut client = media.client();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    let answer = client.answer(Body::None).unwrap();
    (client, answer)
}

fn place() -> Place {
    let place = Place::new();
    place.file(&place.root("film.mp4"), 3_000_000);
    fs::create_dir(place.root("lectures")).unwrap();
    place.file(&place.root("lectures/one.mp4"), 3_000_000);
    place
}

#[test]
fn who_finds_no_place_is_told_at_once_and_when_to_ask_again() {
    let place = place();
    let periods = ["--period", "500ms", "--start-up", "500ms"];
    let words = [&["--rate", "1M", "--max-streams", "2"][..], &periods].concat();
    let media = Media::start(&place, &words);
    let first = stream(&media, "/film.mp4");
    let second = stream(&media, "/film.mp4?rate=500k");
    assert_eq!((first.1.status, second.1.status), (200, 200));
    let (_, refused) = stream(&media, "/film.mp4");
    assert_eq!((refused.status, refused.field("retry-after")), (503, Some("1")), "{refused:?}");
    // What is not paced takes no place.
    assert_eq!(stream(&media, "/lectures/").1.status, 200);
    drop(first);
    // The place is its viewer's for two periods, then anybody's; here all are one viewer.
    wait_until("a place", || stream(&media, "/film.mp4").1.status == 200);
    // Its end would wait for whoever is connected.
    drop(second);
    let ran = media.end();
    let ended = ran.named("ended")[0];
    assert!(ended["refused"].as_u64().unwrap() >= 1, "{ran:?}");
}

#[test]
fn nobody_goes_past_the_door_by_asking_for_no_rate_at_all() {
    let place = place();
    let media = Media::start(&place, &["--rate", "1M", "--max-streams", "1"]);
    let (_watching, answer) = stream(&media, "/film.mp4?rate=max");
    assert_eq!(answer.status, 200);
    assert_eq!(stream(&media, "/lectures/one.mp4?rate=max").1.status, 503);
}

/// Parts of a film, each of which was sent at once, so that a place had no bound.
#[test]
fn who_takes_part_after_part_takes_no_more_than_the_rate_in_the_long_run() {
    let place = place();
    let periods = ["--period", "200ms", "--start-up", "400ms"];
    let media =
        Media::start(&place, &[&["--rate", "8M", "--max-streams", "1"][..], &periods].concat());
    let mut client = media.client();
    let begun = Instant::now();
    // Parts of 300 ms; three start-ups with their periods are 1.8 s.
    for from in (0..3_000_000).step_by(300_000) {
        let range = format!("Range: bytes={from}-{}\r\n", from + 299_999);
        let answer = client.get("/film.mp4", &range);
        assert_eq!((answer.status, answer.body.len()), (206, 300_000), "{from}");
    }
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    let ran = media.end();
    let ended = ran.named("ended")[0];
    assert_eq!((&ended["misses"], &ended["refused"]), (&0.into(), &0.into()), "{ran:?}");
}

#[test]
fn a_network_carries_so_many_streams_and_no_more() {
    let place = place();
    // 10 Mbit/s less a tenth, of streams of 1 Mbit/s and what lower layers add; each counts twice
    // in its first period.
    let periods = ["--period", "8s", "--start-up", "8s"];
    let words = [&["--rate", "1M", "--network", "10M"][..], &periods].concat();
    let media = Media::start(&place, &words);
    let mut streams = Vec::new();
    for _ in 0..30 {
        streams.push(stream(&media, "/film.mp4"));
    }
    let admitted = streams.iter().filter(|(_, answer)| answer.status == 200).count();
    assert_eq!(admitted, 4, "{admitted}");
    let refused = streams.iter().filter(|(_, answer)| answer.status == 503).count();
    assert_eq!(refused, 26);
}

#[test]
fn those_without_a_place_are_sent_elsewhere_but_not_in_a_circle() {
    let place = place();
    let words = ["--rate", "1M", "--max-streams", "1"];
    let elsewhere =
        ["--elsewhere", "http://b.example.org/", "--elsewhere", "https://c.example.org"];
    let media = Media::start(&place, &[&words[..], &elsewhere].concat());
    let _first = stream(&media, "/film.mp4");
    let (_, second) = stream(&media, "/film.mp4");
    let to = "http://b.example.org/film.mp4?haul-from=1";
    assert_eq!((second.status, second.field("location")), (307, Some(to)));
    let (_, third) = stream(&media, "/film.mp4?rate=2M");
    let to = "https://c.example.org/film.mp4?rate=2M&haul-from=1";
    assert_eq!((third.status, third.field("location")), (307, Some(to)));
    assert_eq!(stream(&media, "/film.mp4?haul-from=1").1.status, 503);
}

#[test]
fn a_configuration_is_read_again_and_a_broken_one_changes_nothing() {
    let place = place();
    let path = place.path("media.toml");
    let write = |text: &str| fs::write(&path, text).unwrap();
    write(
        "rate = '800k'\nmax-streams = 2\nreserve = 0\n\n\
        [[paths]]\nmatch = '/lectures/**'\nrate = 'max'\npriority = 'high'\n",
    );
    let media = Media::start(&place, &["--config", path.to_str().unwrap()]);
    let _streams = [stream(&media, "/film.mp4"), stream(&media, "/film.mp4")];
    assert_eq!(stream(&media, "/film.mp4").1.status, 503);
    assert_eq!(stream(&media, "/lectures/one.mp4").1.status, 200);
    write("max-streams = 3\nno-such-key = 1\n");
    media.signal(Signal::HUP);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(stream(&media, "/film.mp4").1.status, 503);
    write("rate = '800k'\nmax-streams = 3\n");
    media.signal(Signal::HUP);
    wait_until("a third place", || stream(&media, "/film.mp4").1.status == 200);
}

/// A reserve for a high priority: half is kept for those whose path has it, and a link cannot give
/// it to itself.
#[test]
fn who_has_a_higher_priority_finds_what_is_kept_for_him() {
    let place = place();
    let path = place.path("media.toml");
    let text = "rate = '800k'\nmax-streams = 2\nreserve = 50\n\n\
        [[paths]]\nmatch = '/lectures/**'\npriority = 'high'\n";
    fs::write(&path, text).unwrap();
    let media = Media::start(&place, &["--config", path.to_str().unwrap()]);
    let watching = stream(&media, "/film.mp4");
    assert_eq!(watching.1.status, 200);
    assert_eq!(stream(&media, "/film.mp4").1.status, 503);
    assert_eq!(stream(&media, "/film.mp4?priority=high").1.status, 503);
    assert_eq!(stream(&media, "/lectures/one.mp4?priority=low").1.status, 503);
    assert_eq!(stream(&media, "/lectures/one.mp4").1.status, 200);
}

#[test]
fn what_was_measured_is_told_and_used() {
    let place = place();
    let state = place.path("state");
    let root = place.path("root");
    let none = place.run(&words!["media", "capacity", &root, "--state", &state]);
    assert_eq!(none.status, 2, "{none:?}");
    assert!(format!("{none:?}").contains("--measure"), "{none:?}");
    place.file(&place.root("large.mp4"), 32 << 20);
    // It began before, and has no file to read again but what will be measured.
    let options = ["--rate", "500M", "--state", state.to_str().unwrap()];
    let early = Media::start(&place, &options);
    let network = ["--network", "1G"];
    let mut words = words!["media", &root, "--measure", "--state", &state];
    words.extend(network.iter().map(Into::into));
    let measured = place.run(&words);
    let found = measured.named("measured");
    // Where io_uring or O_DIRECT are not to be had the disk is no limit, and that is said.
    let disk_is_known = measured.named("not_measured").is_empty();
    assert_eq!(found[0]["capacity"]["disk"].is_null(), !disk_is_known, "{measured:?}");
    assert!(found[0]["capacity"]["processors"]["per_period_s"].as_f64().unwrap() > 0.0);
    assert!(Path::new(found[0]["stored"].as_str().unwrap()).exists());
    let words = words!["media", "capacity", &root, "--state", &state, "--rate", "2M,20M"];
    let told = place.run(&words);
    let streams = told.named("capacity")[0]["streams"].as_array().unwrap().clone();
    let of = |at: usize| streams[at]["streams"].as_u64().unwrap();
    assert!(of(0) > of(1) && of(1) >= 1, "{told:?}");
    assert!(of(0) <= streams[0]["by"]["network"].as_u64().unwrap());
    // 0.9 of 1 Gbit/s, of 2 Mbit/s and 6.2 % more.
    assert_eq!(streams[0]["by"]["network"], 423);
    let of_three = |media: &Media| {
        let streams: Vec<(Client, Answer)> = (0..3).map(|_| stream(media, "/large.mp4")).collect();
        streams.iter().map(|(_, answer)| answer.status).collect::<Vec<u16>>()
    };
    assert_eq!(of_three(&early), [200, 200, 200]);
    early.signal(Signal::HUP);
    wait_until("what was measured", || of_three(&early).last() == Some(&503));
    let media = Media::start(&place, &options);
    assert_eq!(of_three(&media).last(), Some(&503));
}
