//! Simulation of both state machines over a link that delays, cuts, stalls and damages.
//!
//! A run is made of one seed: what is moved, over what, and what goes wrong when. A failing run
//! prints its seed; `HAUL_TEST_SEED=SEED cargo test -p haul-protocol --test simulation` runs it
//! alone. `HAUL_TEST_SEEDS=NUMBER` runs that many instead of the usual ones.

mod link;
mod model;
mod random;
mod receiving;
mod sending;
mod session;
mod witness;

use haul_protocol::message::FaultCode;
use model::{Outcome, Plan, Target, Trouble};
use random::Random;
use session::{Ended, Session};
use std::collections::{BTreeMap, BTreeSet};
use witness::{Counts, Witness};

/// Count of the seeds of the normal test, which take about two seconds.
const SEEDS: u64 = 5000;
/// The most sessions of one run: the cuts of a plan and a whole one.
const SESSIONS_MAX: u32 = 8;

/// Guard that says which seed failed.
struct SeedOnFailure(u64);

impl Drop for SeedOnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the simulation failed: HAUL_TEST_SEED={}", self.0);
        }
    }
}

/// Runs a seed: moves a plan's files, over as many sessions as it takes.
fn run(seed: u64) -> Counts {
    let _seed = SeedOnFailure(seed);
    let mut random = Random::new(seed);
    let mut plan = Plan::new(&mut random);
    let mut target = Target::new(&plan);
    let mut witness = Witness::default();
    let mut outcomes: BTreeMap<usize, Outcome> = BTreeMap::new();
    let mut removed: BTreeSet<usize> = BTreeSet::new();
    let mut now = 0;
    for _ in 0..SESSIONS_MAX {
        let again = plan.offers_settled_again;
        let to_offer = (0..plan.files.len()).filter(|file| again || !outcomes.contains_key(file));
        let to_offer: Vec<usize> = to_offer.filter(|file| !removed.contains(file)).collect();
        let mut session =
            Session::new(&mut plan, &mut target, &mut random, &mut witness, to_offer, now);
        let (ended, end) = session.run();
        now = end;
        let (sent, received) = (session.sending.outcomes, session.receiving.outcomes);
        for (index, version) in session.sending.freed {
            let there = target.files[index].committed;
            assert_eq!(there, Some(version), "the source of file {index} is removed");
            removed.insert(index);
            witness.counts.removed += 1;
        }
        check_agreement(ended, &sent, &received);
        for (index, outcome) in sent.into_values() {
            let another_follows =
                [Outcome::Compared, Outcome::Failed(FaultCode::KindUnsupported)].contains(&outcome);
            if another_follows {
                continue;
            }
            // What was done is found to be there in the next session.
            if outcome != Outcome::Skipped || !outcomes.contains_key(&index) {
                outcomes.insert(index, outcome);
            }
        }
        if ended == Ended::Finished {
            check_end(&plan, &target, &outcomes, &mut witness);
            return witness.counts;
        }
        witness.counts.cut_sessions += 1;
    }
    panic!("more sessions than the plan has cuts");
}

type Settled = BTreeMap<haul_protocol::FileId, (usize, Outcome)>;

/// Checks that both sides settled the same; the sender may have heard less when the connection
/// broke.
fn check_agreement(ended: Ended, sent: &Settled, received: &Settled) {
    for (file, (_, outcome)) in sent {
        let at_receiver = received.get(file).map(|(_, outcome)| outcome);
        assert_eq!(at_receiver, Some(outcome), "{file:?}");
    }
    assert!(ended == Ended::Cut || sent.len() == received.len());
}

/// Checks that every file ended as its trouble allows, and that those said to be there are there.
fn check_end(
    plan: &Plan,
    target: &Target,
    outcomes: &BTreeMap<usize, Outcome>,
    witness: &mut Witness,
) {
    assert_eq!(outcomes.len(), plan.files.len(), "every file is settled");
    for (index, outcome) in outcomes {
        let trouble = plan.files[*index].trouble;
        let is_there = matches!(outcome, Outcome::Done | Outcome::Skipped);
        match trouble {
            Trouble::None | Trouble::Present | Trouble::NoLinks => assert!(is_there, "{outcome:?}"),
            Trouble::ChangesAt(_) => {
                assert!(is_there || *outcome == Outcome::Failed(FaultCode::SourceChanged));
            }
            Trouble::Vanishes { .. } => {
                assert!(is_there || *outcome == Outcome::Failed(FaultCode::NotFound));
            }
            Trouble::AlwaysDamaged(_) => {
                assert_eq!(*outcome, Outcome::Failed(FaultCode::DataDamaged));
            }
            Trouble::NoSpaceAtOnce | Trouble::NoSpaceAt(_) => {
                assert_eq!(*outcome, Outcome::Failed(FaultCode::NoSpace));
            }
            Trouble::Unreadable(_) | Trouble::CommitFails => {
                assert_eq!(*outcome, Outcome::Failed(FaultCode::IoFailed));
            }
        }
        assert!(!is_there || target.files[*index].committed.is_some(), "file {index}");
        if is_there {
            witness.counts.done += 1;
        } else {
            witness.counts.failed += 1;
        }
    }
}

fn number_of(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}")))
}

#[test]
fn whatever_the_link_does_every_file_arrives_whole_or_is_named() {
    if let Some(seed) = number_of("HAUL_TEST_SEED") {
        println!("{:?}", run(seed));
        return;
    }
    let mut counts = Counts::default();
    for seed in 0..number_of("HAUL_TEST_SEEDS").unwrap_or(SEEDS) {
        counts += run(seed);
    }
    println!("{counts:?}");
    for (what, count) in [
        ("cut sessions", counts.cut_sessions),
        ("resumed files", counts.resumed),
        ("damaged spans", counts.damaged),
        ("spans called damaged where they were not sent", counts.forged),
        ("dropped streams", counts.dropped),
        ("streams refused after their number was closed", counts.refused_streams),
        ("discarded spans", counts.discarded),
        ("files that their span confirms", counts.confirmed_with_span),
        ("streams that lost their framing", counts.broken_framing),
        ("durable spans that were lost", counts.lost),
        ("contents compared", counts.compared),
        ("hard links sent as files", counts.links_as_files),
        ("sources removed", counts.removed),
        ("files done", counts.done),
        ("files failed", counts.failed),
    ] {
        assert!(count > 0, "no seed met {what}");
    }
}

#[test]
fn a_seed_makes_the_same_run_again() {
    assert_eq!(format!("{:?}", run(7)), format!("{:?}", run(7)));
}
