//! The simulation beside answers that are known, and what holds for any fleet.

use super::*;
use std::collections::BTreeMap;

fn loads(bytes: &[u64]) -> Vec<ShardLoad> {
    bytes.iter().map(|bytes| ShardLoad { files: 1, bytes: *bytes }).collect()
}

/// Nodes and servers whose runs begin at once; rates are those of a resource each.
fn fleet(nodes: u32, servers: u32, rates: &[(Resource, f64)]) -> SimulatedFleet {
    let mut fleet = SimulatedFleet { start_s: 0.0, ..SimulatedFleet::new(nodes, servers) };
    for (resource, rate) in rates {
        let rates = ResourceRates { each: Some(*rate), single: BTreeMap::new() };
        fleet.rates.insert(*resource, rates);
    }
    fleet
}

fn predicted(fleet: &SimulatedFleet, loads: &[ShardLoad]) -> Prediction {
    simulate(fleet, loads, &Interrupt::default()).unwrap()
}

fn course_of(fleet: &SimulatedFleet, loads: &[ShardLoad], seed: u64) -> Tally {
    let patience = &mut Patience { looks: u64::MAX, interrupt: &Interrupt::default() };
    course::run(fleet, loads, seed, patience).unwrap()
}

#[track_caller]
fn assert_near(found: f64, wanted: f64) {
    assert!((found - wanted).abs() <= 1e-6 * wanted.abs().max(1.0), "{found}, not {wanted}");
}

#[test]
fn what_all_runs_share_is_full_until_the_end() {
    let fleet = fleet(2, 1, &[(Resource::SharedSource, 100.0), (Resource::NodeDisk, 80.0)]);
    let prediction = predicted(&fleet, &loads(&[1000; 4]));
    assert_near(prediction.seconds, 40.0);
    assert_eq!(prediction.causes, [(Cause::Resource(Resource::SharedSource), 1.0)]);
    let uses: Vec<_> =
        prediction.resources.iter().map(|it| (it.resource, it.number, it.used)).collect();
    assert_eq!(
        uses,
        [
            (Resource::SharedSource, 1, 1.0),
            (Resource::NodeDisk, 1, 0.625),
            (Resource::NodeDisk, 2, 0.625)
        ]
    );
    assert_eq!(prediction.load, ShardLoad { files: 4, bytes: 4000 });
}

/// Shards go to the servers in turn, so one slow server has half of them.
#[test]
fn a_slow_machine_of_either_side_takes_what_it_can() {
    let mut slow_node = fleet(2, 1, &[(Resource::NodeDisk, 100.0)]);
    slow_node.rates.get_mut(&Resource::NodeDisk).unwrap().single.insert(2, 50.0);
    // The first node moves two shards while the second moves one.
    assert_near(predicted(&slow_node, &loads(&[1000; 3])).seconds, 20.0);
    let mut slow_server = fleet(4, 2, &[(Resource::ServerDisk, 100.0)]);
    slow_server.rates.get_mut(&Resource::ServerDisk).unwrap().single.insert(2, 50.0);
    let prediction = predicted(&slow_server, &loads(&[1000; 4]));
    assert_near(prediction.seconds, 40.0);
    let held: Vec<f64> = prediction.resources.iter().map(|it| it.held).collect();
    assert_near(held[0], 0.25);
    assert_near(held[1], 0.5);
}

#[test]
fn runs_that_find_no_shard_wait_for_the_last_and_more_shards_are_named() {
    let fleet = fleet(2, 1, &[(Resource::NodeDisk, 100.0)]);
    let prediction = predicted(&fleet, &loads(&[1000; 3]));
    assert_near(prediction.seconds, 20.0);
    let shares = [(Cause::Resource(Resource::NodeDisk), 0.75), (Cause::NoShard, 0.25)];
    assert_eq!(prediction.causes, shares);
    let found = prediction.changes.iter().find(|it| it.change == Change::Shards).unwrap();
    assert_near(found.seconds, 15.0);
    // Four nodes would have one shard too few from the beginning.
    let four = SimulatedFleet { nodes: 4, ..fleet };
    let prediction = predicted(&four, &loads(&[1000; 3]));
    assert_near(prediction.seconds, 10.0);
    assert_eq!(prediction.causes[1], (Cause::NoShard, 0.25));
}

#[test]
fn each_run_costs_its_start_and_each_file_its_time() {
    let mut one = fleet(1, 1, &[(Resource::NodeDisk, 100.0)]);
    one.start_s = 3.0;
    let prediction = predicted(&one, &loads(&[1000; 2]));
    assert_near(prediction.seconds, 26.0);
    assert_eq!(prediction.causes[1].0, Cause::Start);
    assert_near(prediction.causes[1].1, 6.0 / 26.0);
    one.start_s = 0.0;
    one.run_files_per_s = 10.0;
    // Files and bytes go side by side: the slower of both counts.
    for (files, bytes, seconds, cause) in [
        (100, 0, 10.0, Cause::Files),
        (100, 500, 10.0, Cause::Files),
        (100, 5000, 50.0, Cause::Resource(Resource::NodeDisk)),
    ] {
        let prediction = predicted(&one, &[ShardLoad { files, bytes }]);
        assert_near(prediction.seconds, seconds);
        assert_eq!(prediction.causes, [(cause, 1.0)], "{files} {bytes}");
    }
    one.run_bytes_per_s = Some(20.0);
    let prediction = predicted(&one, &loads(&[1000]));
    assert_near(prediction.seconds, 50.0);
    assert_eq!(prediction.causes[0].0, Cause::Run);
    assert_near(predicted(&one, &[ShardLoad::default()]).seconds, 0.0);
}

/// The journal's bytes are kept, and the shard goes on after both waits.
#[test]
fn a_run_that_is_lost_goes_on_behind_what_is_durable() {
    for (requeue_s, repair_s) in [(20.0, 5.0), (5.0, 20.0)] {
        let mut one = fleet(1, 1, &[(Resource::NodeDisk, 100.0)]);
        one.start_s = 1.0;
        let mean_up_s = 1000.0;
        one.failures = Some(NodeFailures { mean_up_s, requeue_s, repair_s });
        // A seed whose node fails after some seconds, and then not for long.
        let seed = (0..10_000).find(|seed| {
            let mut random = fastrand::Rng::with_seed(*seed);
            let mut up_s = || -(1.0 - random.f64()).ln() * mean_up_s;
            (5.0..30.0).contains(&up_s()) && up_s() > 500.0
        });
        let seed = seed.unwrap();
        let fails_s = -(1.0 - fastrand::Rng::with_seed(seed).f64()).ln() * mean_up_s;
        let tally = course_of(&one, &loads(&[10_000]), seed);
        let durable = (fails_s - 1.0).floor() * 100.0;
        let again_s = fails_s + f64::max(requeue_s, repair_s) + 1.0;
        assert_near(tally.seconds, again_s + (10_000.0 - durable) / 100.0);
        assert_near(tally.lost_bytes, (fails_s - 1.0) * 100.0 - durable);
        assert_eq!((tally.failures, tally.moved_bytes), (1, 10_000.0));
        assert_near(tally.held_s[&Cause::Failures], f64::max(requeue_s, repair_s));
    }
}

#[test]
fn nodes_that_fail_too_often_are_an_error_and_others_cost_time() {
    let mut failing = fleet(4, 2, &[(Resource::NodeDisk, 100.0)]);
    let plan = loads(&[20_000; 8]);
    let sound = predicted(&failing, &plan);
    assert_eq!((sound.courses, sound.seconds_5_95), (1, (sound.seconds, sound.seconds)));
    let failures = |mean_up_s| NodeFailures { mean_up_s, requeue_s: 10.0, repair_s: 30.0 };
    failing.failures = Some(failures(400.0));
    let prediction = predicted(&failing, &plan);
    assert_eq!(prediction, predicted(&failing, &plan), "equal seeds give equal answers");
    assert_eq!(prediction.courses, 100);
    let (early, late) = prediction.seconds_5_95;
    assert!(sound.seconds < early && early < prediction.seconds && prediction.seconds < late);
    assert_eq!(prediction.sound_seconds, sound.seconds);
    // Four nodes for some 400 s, each up for 400 s in the mean.
    assert!((3.0..7.0).contains(&prediction.failures), "{}", prediction.failures);
    assert!(prediction.lost_bytes < prediction.failures * 100.0, "{}", prediction.lost_bytes);
    failing.start_s = 60.0;
    failing.failures = Some(failures(1.0));
    let problem = simulate(&failing, &plan, &Interrupt::default()).unwrap_err();
    assert!(problem.to_string().contains("never be through"), "{problem}");
}

/// Case of 4096 shards whose nodes fail every second: a thousand failures of each would take hours.
#[test]
fn a_fleet_that_fails_all_the_time_is_given_up_in_some_seconds_and_at_once_when_interrupted() {
    let rates = [(Resource::NodeDisk, 100.0)];
    let mut failing = SimulatedFleet { runs: 8, start_s: 60.0, ..fleet(512, 2, &rates) };
    let (requeue_s, repair_s) = (0.0, 0.0);
    failing.failures = Some(NodeFailures { mean_up_s: 1.0, requeue_s, repair_s });
    let plan = loads(&[20_000; 4096]);
    let problem = within(1_000_000, &failing, &plan, &Interrupt::default()).unwrap_err();
    assert!(problem.to_string().contains("fails too often to be simulated"), "{problem}");
    let patience = &mut Patience { looks: 10_000, interrupt: &Interrupt::default() };
    let given_up = course::run(&failing, &plan, 1, patience).unwrap_err();
    assert_eq!((given_up, patience.looks < 10_000), (GivenUp::TooLong, true));
    let interrupt = Interrupt::default();
    interrupt.store(true, std::sync::atomic::Ordering::Relaxed);
    let ended = simulate(&failing, &plan, &interrupt).unwrap_err();
    assert!(matches!(ended, TransferError::Interrupted { .. }), "{ended}");
}

/// Courses that were through count, where the rest of a hundred would take too long.
#[test]
fn fewer_courses_are_simulated_where_each_takes_long() {
    let rates = [(Resource::NodeDisk, 100.0)];
    let mut failing = fleet(4, 2, &rates);
    let (mean_up_s, requeue_s, repair_s) = (400.0, 5.0, 5.0);
    failing.failures = Some(NodeFailures { mean_up_s, requeue_s, repair_s });
    let plan = loads(&[20_000; 8]);
    let courses = |looks| within(looks, &failing, &plan, &Interrupt::default());
    let all = predicted(&failing, &plan);
    // Eight events at least, each a look at four slots and four nodes.
    let looks_of_course = (1..).map(|number| number * 8).find(|looks| {
        let patience = &mut Patience { looks: *looks, interrupt: &Interrupt::default() };
        course::run(&failing, &plan, 1, patience).is_ok()
    });
    let fewer = courses(looks_of_course.unwrap() * 50).unwrap();
    assert!((20..100).contains(&fewer.courses) && all.courses == 100, "{}", fewer.courses);
    assert!((fewer.seconds / all.seconds - 1.0).abs() < 0.2, "{} {}", fewer.seconds, all.seconds);
    courses(looks_of_course.unwrap() * 5).unwrap_err();
}

#[test]
fn the_change_that_helps_most_is_first_and_what_limits_then_is_told() {
    let rates = [(Resource::NodeNic, 100.0), (Resource::Core, 160.0), (Resource::ServerNic, 50.0)];
    let slow_servers = fleet(4, 2, &rates);
    let changes = predicted(&slow_servers, &loads(&[1000; 16])).changes;
    let told: Vec<_> = changes.iter().map(|it| (it.change, it.then)).collect();
    let core = Cause::Resource(Resource::Core);
    assert_eq!(told[0], (Change::Rate(Resource::ServerNic), core), "{told:?}");
    assert_eq!(told[1], (Change::Servers, core), "{told:?}");
    assert_eq!(told.len(), 2, "{told:?}");
    assert_near(changes[0].seconds, 16_000.0 / (160.0 * 1448.0 / 1538.0));
}

#[test]
fn numbers_that_no_fleet_has_are_refused() {
    for (nodes, servers) in [(0, 1), (1, 0), (5000, 1)] {
        let fleet = SimulatedFleet::new(nodes, servers);
        let problem = simulate(&fleet, &loads(&[1]), &Interrupt::default()).unwrap_err();
        assert!(problem.to_string().contains("from 1 to 4096"), "{problem}");
    }
}

/// Fleets by a seed: no resource moves more than it can, all bytes arrive once, and no plan is
/// through before each of its parts can be.
#[test]
fn no_seeded_fleet_is_faster_than_its_parts() {
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut fleet = fleet(random.u32(1..6), random.u32(1..4), &[]);
        fleet.runs = random.u32(1..4);
        fleet.start_s = random.f64() * 2.0;
        fleet.run_files_per_s = 50.0;
        for resource in Resource::ALL {
            if random.bool() {
                let each = Some(f64::from(random.u32(100..1000)));
                let single = [(1, f64::from(random.u32(50..500)))].into();
                fleet.rates.insert(resource, ResourceRates { each, single });
            }
        }
        if random.bool() {
            let (requeue_s, repair_s) = (random.f64() * 9.0, random.f64() * 9.0);
            fleet.failures = Some(NodeFailures { mean_up_s: 60.0, requeue_s, repair_s });
        }
        let mut load = || ShardLoad { files: random.u64(0..200), bytes: random.u64(0..5000) };
        let plan: Vec<_> = (0..1 + seed % 20).map(|_| load()).collect();
        let tally = course_of(&fleet, &plan, seed);
        let bytes: u64 = plan.iter().map(|load| load.bytes).sum();
        assert_near(tally.moved_bytes, bytes as f64);
        let sum: f64 = tally.shares().iter().map(|it| it.1).sum();
        assert_near(sum, 1.0);
        let slots = f64::from(fleet.nodes * fleet.runs);
        let files: u64 = plan.iter().map(|load| load.files).sum();
        assert!(tally.seconds * slots * 50.0 >= files as f64 * 0.999_999, "seed {seed}: files");
        let starts = plan.len() as f64 * fleet.start_s;
        assert!(tally.seconds * slots >= starts * 0.999_999, "seed {seed}: starts");
        for (at, (resource, number)) in tally.resources.iter().enumerate() {
            let most = tally.capacities[at] * tally.seconds * 1.000_001 + 1e-3;
            assert!(tally.used_bytes[at] <= most, "seed {seed}: {resource:?} {number}");
        }
        for resource in Resource::ALL.into_iter().filter(|it| fleet.rates.contains_key(it)) {
            let all = tally.resources.iter().zip(&tally.used_bytes);
            let used: f64 = all.filter(|it| it.0.0 == resource).map(|it| it.1).sum();
            // Files without bytes take some, too.
            let work: u64 = plan.iter().map(|load| load.bytes.max(load.files)).sum();
            let least = work as f64 * 0.999_999;
            assert!(used >= least, "seed {seed}: {resource:?} moved {used} of {work}");
            let lost = tally.lost_bytes > 0.0;
            assert!(lost || fleet.failures.is_some() || used <= work as f64 * 1.000_001 + 1e-3);
        }
    }
}
