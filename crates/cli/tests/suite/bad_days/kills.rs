//! Kill -9 of either side or both, again and again, over one file and over a tree.
//!
//! At any moment what is under a final name is whole, and every transfer arrives in the end.
//!
//! `HAUL_TEST_KILLS=1000` sets the number of kills of each test. Here they come fast and the
//! transfer is begun anew when it is over; `crash.rs` kills one long transfer.

use super::{Journey, MIB, Way, assert_nothing_wrong, mixed_tree};
use crate::harness::{is_long, process::Haul};
use haul_testkit::seed::Random;
use std::{
    ffi::OsString,
    fmt, fs, thread,
    time::{Duration, Instant},
};

const KILLS: u32 = 8;
const KILLS_LONG: u32 = 500;
/// Rate at which a transfer takes several kills.
const RATE: &str = "24M";
/// Longest wait for the end of a transfer: beyond, something hangs.
const COMPLETION_MAX: Duration = Duration::from_secs(300);

fn kills() -> u32 {
    let asked = std::env::var("HAUL_TEST_KILLS").ok();
    let by_length = if is_long() { KILLS_LONG } else { KILLS };
    asked.map_or(by_length, |text| text.trim().parse().expect("HAUL_TEST_KILLS is a number"))
}

/// Numbers of kills so far, and of what came of them.
#[derive(Debug, Default)]
struct Count {
    server: u32,
    client: u32,
    both: u32,
    completed: u32,
    /// Kills of the server before the client had reached it: there was nothing to go on with.
    never_began: u32,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, client, both, completed, never_began } = self;
        write!(
            f,
            "{server} of the server, {client} of the client, {both} of both; transfers completed: \
             {completed}, never begun: {never_began}"
        )
    }
}

struct Victim {
    journey: Journey,
    name: &'static str,
    count: Count,
    /// Most bytes that were ever told as durable of the transfer under way.
    durable: u64,
}

impl Victim {
    fn start(&self, random: &mut Random) -> Haul {
        let mut options = words!["--bwlimit", RATE, "--span-size", "64K", "--retry-for", "60s"];
        if random.below(3) == 0 {
            options.extend(words!["--receive-engine", "read-write", "--streams", "3"]);
        }
        self.start_with(&options)
    }

    fn start_with(&self, options: &[OsString]) -> Haul {
        self.journey.start(self.name, "", options)
    }

    #[track_caller]
    fn look(&self) {
        let (from, to) = (self.journey.from(self.name), self.journey.to(self.name));
        if from.is_dir() {
            assert_nothing_wrong(&from, &to);
        } else if to.exists() {
            crate::harness::assert_same_files(&from, &to);
        }
    }

    /// Kills one side or both, looks at the target, and starts again what was killed.
    fn kill(&mut self, client: &mut Haul, random: &mut Random) {
        let which = random.below(3);
        let (server_dies, client_dies) = (which != 1, which != 0);
        if server_dies {
            self.journey.server.process.kill();
        }
        if client_dies {
            client.kill();
        }
        self.durable = self.durable.max(client.progress("bytes_durable"));
        self.look();
        match which {
            0 => self.count.server += 1,
            1 => self.count.client += 1,
            _ => self.count.both += 1,
        }
        if server_dies {
            let place = &self.journey.place;
            self.journey.server.restart(place);
        }
        if client_dies {
            *client = self.start(random);
        }
    }

    /// Waits for the end of a transfer: all is there, and nothing is left for the next one. False
    /// when it had never begun.
    #[track_caller]
    fn complete(&mut self, client: Haul) -> bool {
        let ran = client.finish();
        if ran.status == 2 && ran.named("session").is_empty() {
            ran.says(&[&self.journey.server.address().to_string()]);
            self.count.never_began += 1;
            return false;
        }
        ran.ok();
        self.journey.assert_arrived(self.name, "");
        if self.journey.from(self.name).is_file() {
            let resumed = ran.gone_on_from();
            assert!(resumed >= self.durable, "{} were durable: {ran:?}", self.durable);
        }
        self.count.completed += 1;
        self.durable = 0;
        let to = self.journey.to(self.name);
        if to.is_dir() { fs::remove_dir_all(to) } else { fs::remove_file(to) }.unwrap();
        true
    }

    fn suffer(&mut self, kills: u32, random: &mut Random) {
        let (mut killed, mut arrived) = (0, false);
        while killed < kills || !arrived {
            let mut client = self.start(random);
            let begun = Instant::now();
            loop {
                thread::sleep(Duration::from_millis(5 + random.below(400)));
                if killed == kills || !client.is_running() {
                    arrived = self.complete(client);
                    break;
                }
                self.kill(&mut client, random);
                killed += 1;
                assert!(begun.elapsed() < COMPLETION_MAX, "it hangs: {:?}", self.count);
            }
        }
    }
}

fn killed(way: Way, name: &'static str, make: impl Fn(&Journey)) {
    let journey = Journey::new(way);
    make(&journey);
    let mut random = journey.place.seed.random();
    let mut victim = Victim { journey, name, count: Count::default(), durable: 0 };
    victim.suffer(kills(), &mut random);
    println!("soak: {way:?} of a {name}: {} kills, {}", kills(), victim.count);
    victim.journey.server.still_serves(&victim.journey.place);
}

fn make_file(journey: &Journey) {
    journey.place.file(&journey.from("file"), 20 * MIB + 3);
}

fn make_tree(journey: &Journey) {
    let tree = journey.from("tree");
    mixed_tree(&journey.place, &tree.join("mixed"));
    journey.place.tree(&tree, 12, 30);
    for number in 0..3 {
        journey.place.file(&tree.join(format!("large{number}")), 3 * MIB + number);
    }
}

#[test]
fn a_pushed_file_survives_any_number_of_kills() {
    killed(Way::Push, "file", make_file);
}

#[test]
fn a_pulled_file_survives_any_number_of_kills() {
    killed(Way::Pull, "file", make_file);
}

#[test]
fn a_pushed_tree_survives_any_number_of_kills() {
    killed(Way::Push, "tree", make_tree);
}

#[test]
fn a_pulled_tree_survives_any_number_of_kills() {
    killed(Way::Pull, "tree", make_tree);
}
