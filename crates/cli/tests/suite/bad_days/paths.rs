//! Connections of which one end is gone and the other does not know.
//!
//! A NAT forgets them, or hosts vanish without a word; and a server dies under fifty clients.

use super::{MIB, Way};
use crate::harness::{
    PATIENCE, Place, assert_no_temporaries, assert_same_files,
    far::Far,
    process::{Haul, Ran},
    server::Server,
};
use haul_testkit::wan::Path;
use std::{
    ffi::OsString,
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

const RTT: Duration = Duration::from_millis(20);
const BITS_PER_S: u64 = 80_000_000;
const LEN: u64 = 32 * MIB;

/// A long path and a file to move over it.
struct LongWay {
    far: Far,
    way: Way,
    place: Place,
}

impl LongWay {
    fn new(way: Way) -> Option<Self> {
        let place = Place::new();
        let far = Far::start(&place, Path::new(RTT, BITS_PER_S, 0.0))?;
        let this = Self { place, far, way };
        let (from, _) = this.ends();
        this.place.file(&from, LEN);
        Some(this)
    }

    fn ends(&self) -> (PathBuf, PathBuf) {
        match self.way {
            Way::Push => (self.place.source("data"), self.place.root("data")),
            Way::Pull => (self.place.root("data"), self.place.target("data")),
        }
    }

    fn start(&self, options: &[OsString]) -> Haul {
        let words = match self.way {
            Way::Push => words!["push", self.place.source("data"), self.far.url()],
            Way::Pull => {
                words!["pull", format!("{}data", self.far.url()), self.place.target("")]
            }
        };
        self.far.start_haul(&self.place, &[words, options.to_vec()].concat())
    }

    #[track_caller]
    fn assert_arrived(&self, ran: &Ran) {
        ran.ok();
        let (from, to) = self.ends();
        assert_same_files(&from, &to);
        assert_no_temporaries(to.parent().unwrap());
    }
}

/// Options that make a transfer slower than the path, in small spans, and soon impatient.
fn options() -> Vec<OsString> {
    words!["--bwlimit", "4M", "--span-size", "256K", "--stall-timeout", "3s"]
}

fn nat_forgets(way: Way) {
    let Some(long) = LongWay::new(way) else { return };
    let client = long.start(&options());
    let durable = client.wait_for_bytes("bytes_durable", MIB);
    long.far.wan.rebind();
    client.wait_for_bytes("bytes_durable", durable + MIB);
    long.far.wan.rebind();
    let ran = client.finish();
    long.assert_arrived(&ran);
    assert!(ran.number("reconnections") >= 2, "{ran:?}");
    // What is on its way is sent twice, what was there is not.
    assert!(ran.number("moved_bytes") < 2 * LEN, "{ran:?}");
}

#[test]
fn a_push_comes_back_when_a_nat_forgets_its_connections() {
    nat_forgets(Way::Push);
}

#[test]
fn a_pull_comes_back_when_a_nat_forgets_its_connections() {
    nat_forgets(Way::Pull);
}

fn client_vanishes(way: Way) {
    let Some(long) = LongWay::new(way) else { return };
    let mut client = long.start(&options());
    let durable = client.wait_for_bytes("bytes_durable", MIB);
    // Its last words get lost, and the server's reach nobody.
    long.far.wan.cut(true);
    client.kill();
    long.far.wan.rebind();
    long.far.wan.cut(false);
    let begun = Instant::now();
    let ended = |event: &serde_json::Value| event["event"] == "session_ended";
    long.far.server.look_for(PATIENCE, ended).expect("the server lets go of it");
    println!("{way:?}: the server let go after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let ran = long.start(&words!["--span-size", "256K"]).finish();
    long.assert_arrived(&ran);
    assert!(ran.number("resumed_bytes") >= durable, "{durable} were durable: {ran:?}");
}

#[test]
fn a_client_that_vanishes_in_a_push_holds_nobody_up_for_long() {
    client_vanishes(Way::Push);
}

#[test]
fn a_client_that_vanishes_in_a_pull_holds_nobody_up_for_long() {
    client_vanishes(Way::Pull);
}

fn server_vanishes(way: Way) {
    let Some(mut long) = LongWay::new(way) else { return };
    let client = long.start(&options());
    let durable = client.wait_for_bytes("bytes_durable", MIB);
    long.far.wan.cut(true);
    let (far, place) = (&mut long.far, &long.place);
    far.restart(place);
    thread::sleep(Duration::from_secs(2));
    long.far.wan.cut(false);
    let ran = client.finish();
    long.assert_arrived(&ran);
    assert!(ran.gone_on_from() >= durable, "{durable} were durable: {ran:?}");
    assert!(ran.number("reconnections") >= 1, "{ran:?}");
}

#[test]
fn a_push_goes_on_when_its_server_vanished_without_a_word() {
    server_vanishes(Way::Push);
}

#[test]
fn a_pull_goes_on_when_its_server_vanished_without_a_word() {
    server_vanishes(Way::Pull);
}

#[test]
fn a_server_that_dies_under_fifty_clients_has_them_all_back() {
    const CLIENTS: u32 = 50;
    let place = Place::new();
    let mut server = Server::start(&place);
    place.file(&place.source("data"), 2 * MIB);
    place.file(&place.root("served"), 2 * MIB);
    let slow = words!["--bwlimit", "400K", "--span-size", "64K", "--retry-for", "120s"];
    let start = |number: u32| {
        let words = if number.is_multiple_of(2) {
            words!["push", place.source("data"), server.url(format!("n{number}/"))]
        } else {
            words!["pull", server.url("served"), place.target(format!("n{number}/"))]
        };
        place.start(&[words, slow.clone()].concat())
    };
    let running: Vec<Haul> = (0..CLIENTS).map(start).collect();
    for client in &running {
        client.wait_for("session", |event| event["event"] == "session");
    }
    running[0].wait_for_bytes("bytes_received", 100_000);
    for _ in 0..2 {
        server.restart(&place);
        thread::sleep(Duration::from_millis(1500));
    }
    let mut came_back = 0;
    for (number, client) in running.into_iter().enumerate() {
        let ran = client.finish();
        ran.ok();
        came_back += u32::from(ran.number("reconnections") >= 1);
        let (from, to) = match number % 2 {
            0 => (place.source("data"), place.root(format!("n{number}/data"))),
            _ => (place.root("served"), place.target(format!("n{number}/served"))),
        };
        assert_same_files(&from, &to);
    }
    // On a busy machine the first ones may be done when the last ones begin.
    assert!(came_back >= CLIENTS / 2, "only {came_back} lost their connection");
    println!("soak: {came_back} of {CLIENTS} clients lost their server and came back");
    assert_no_temporaries(&place.path(""));
    assert_eq!(fs::read_dir(place.path("target")).unwrap().count(), CLIENTS as usize / 2);
    server.still_serves(&place);
}
