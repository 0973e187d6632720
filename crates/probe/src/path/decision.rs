//! Decision which stage of a path limits, and what a change would bring. It says what the other
//! stages could carry, too, from the rates of the four runs and the shares that their stages took.
//!
//! Nothing is measured here. A run between memories says what the network and the processors carry
//! together; one that reads or writes a disk is slower only where that disk is. What never limited
//! is known to carry at least what went through it.

use haul_transfer::{Bottleneck, internals::round};
use serde::Serialize;

/// The share of the rate without a disk from which the disk does not limit.
const AS_FAST_SHARE: f64 = 0.9;
/// The share of the slower disk's own rate below which both at once hold each other up.
const TOGETHER_SHARE: f64 = 0.8;
/// The share from which two disks are nearly alike, and the one that took more of the time is
/// named.
const ALIKE_SHARE: f64 = 0.9;
/// The least ratio of rates that counts as faster.
const FASTER_MIN: f64 = 1.05;
/// Digits behind the point of a rate in Gbit/s: kilobits are told.
const RATE_DIGITS: i32 = 6;
/// The least share of the time that tells what a stage would allow by itself.
const SHARE_TOLD_MIN: f64 = 0.02;

/// A part of the way from disk to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PathStage {
    SourceDisk,
    /// The processors of the sender: digests and all else that they do.
    SourceProcessor,
    /// The network: the link, and what the TCP windows of both hosts let onto it.
    Network,
    TargetProcessor,
    TargetDisk,
}

/// All stages, in the order in which a byte passes them.
pub const STAGES: [PathStage; 5] = [
    PathStage::SourceDisk,
    PathStage::SourceProcessor,
    PathStage::Network,
    PathStage::TargetProcessor,
    PathStage::TargetDisk,
];

impl PathStage {
    /// The stage as part of a sentence.
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            Self::SourceDisk => "the source disk",
            Self::SourceProcessor => "the sender's processor",
            Self::Network => "the network",
            Self::TargetProcessor => "the receiver's processor",
            Self::TargetDisk => "the target disk",
        }
    }

    /// Names of the stages of a transfer's report that belong to this one.
    fn parts(self) -> &'static [&'static str] {
        match self {
            Self::SourceDisk => &["source_disk"],
            Self::SourceProcessor => &["source_digest", "source_processor", "source_run_queue"],
            Self::Network => &["network", "receiver_window", "send_buffer", "limit"],
            Self::TargetProcessor => &["target_digest", "target_processor", "target_run_queue"],
            Self::TargetDisk => &["target_disk", "sync"],
        }
    }

    fn is_disk(self) -> bool {
        matches!(self, Self::SourceDisk | Self::TargetDisk)
    }

    fn better(self) -> &'static str {
        match self {
            Self::SourceDisk => "with a faster source disk",
            Self::SourceProcessor => "with a faster sender",
            Self::Network => "with a faster or better tuned network",
            Self::TargetProcessor => "with a faster receiver",
            Self::TargetDisk => "with a faster target disk",
        }
    }

    /// Advice on this stage where no run's report has any.
    fn remedy(self) -> &'static str {
        match self {
            Self::SourceDisk => "a faster source disk, or several (RAID 0)",
            Self::SourceProcessor | Self::TargetProcessor => {
                "more streams (--streams) if cores are idle, or a digest that costs less \
                 (--protection clear)"
            }
            Self::Network => "a faster link; if it is not full, more streams (--streams)",
            Self::TargetDisk => "a faster target disk, or several (RAID 0, one server a disk)",
        }
    }
}

/// Facts of a run that a decision needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFacts {
    pub gbit_per_s: f64,
    /// Share of the streams' time by stage, as the transfer reports it.
    pub stages: Vec<(String, f64)>,
    pub bottleneck: Bottleneck,
}

/// The four runs of a probe, between memories and disks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FourRuns {
    pub memory_to_memory: RunFacts,
    pub disk_to_memory: RunFacts,
    pub memory_to_disk: RunFacts,
    pub disk_to_disk: RunFacts,
}

impl FourRuns {
    /// The fastest rate: on a path whose rate changes any run may have it.
    fn best(&self) -> f64 {
        let Self { memory_to_memory, disk_to_memory, memory_to_disk, disk_to_disk } = self;
        let all = [memory_to_memory, disk_to_memory, memory_to_disk, disk_to_disk];
        all.map(|run| run.gbit_per_s).into_iter().fold(0.0, f64::max)
    }
}

/// The way in which a rate is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    /// The rate at which this stage held a run back.
    Measured,
    /// A rate computed from the share that the stage took of a run's time.
    About,
    /// A rate that went through the stage while something else was slower.
    AtLeast,
}

/// Capacity of a stage by itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Capacity {
    pub stage: PathStage,
    pub gbit_per_s: f64,
    pub known: Known,
    /// Share of the time from disk to disk, 0 to 1.
    pub share: f64,
}

/// The decision: which stage limits, and what would come of a change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    pub limiting: PathStage,
    /// The rate from disk to disk.
    pub gbit_per_s: f64,
    /// Share of the limiting stage, from disk to disk.
    pub share: f64,
    /// Whether both disks at once are slower than each of them alone.
    pub together: bool,
    /// Capacities in the order in which a byte passes the stages.
    pub capacities: Vec<Capacity>,
    /// The stage that would limit next, and the rate that it lets through.
    pub next: PathStage,
    pub next_gbit_per_s: f64,
    pub remedy: String,
    /// The whole decision in one sentence.
    pub verdict: String,
}

impl RunFacts {
    fn share(&self, stage: PathStage) -> f64 {
        let of_stage = self.stages.iter().filter(|(name, _)| stage.parts().contains(&&**name));
        of_stage.fold(0.0, |sum: f64, (_, share)| sum + share).clamp(0.0, 1.0)
    }

    /// The stage that took most of the time, among these.
    fn first_of(&self, stages: &[PathStage]) -> PathStage {
        let most = |one: &&PathStage, other: &&PathStage| {
            self.share(**one).total_cmp(&self.share(**other))
        };
        stages.iter().max_by(most).copied().unwrap_or(PathStage::Network)
    }

    fn remedy_for(&self, stage: PathStage) -> Option<&str> {
        let is_same = stage.parts().contains(&self.bottleneck.stage.as_str());
        Some(&*self.bottleneck.remedy).filter(|remedy| is_same && !remedy.is_empty())
    }
}

/// Decides which stage limits, and what else the four runs say.
#[must_use]
pub fn decide(runs: &FourRuns) -> Decision {
    let capacities: Vec<Capacity> = STAGES.iter().map(|stage| capacity(runs, *stage)).collect();
    let gbit_per_s = runs.disk_to_disk.gbit_per_s;
    let disks = || capacities.iter().filter(|capacity| capacity.stage.is_disk());
    let alone = disks().min_by(|one, other| one.gbit_per_s.total_cmp(&other.gbit_per_s)).copied();
    let alone = alone.filter(|slower| gbit_per_s < slower.gbit_per_s * TOGETHER_SHARE);
    let limiting = limiting(runs, &capacities, alone.is_some());
    let others = capacities.iter().filter(|capacity| capacity.stage != limiting);
    let next = others.min_by(|one, other| one.gbit_per_s.total_cmp(&other.gbit_per_s)).copied();
    // Where the disks hold each other up, the slower one alone is what can be hoped for.
    let next = alone.or(next);
    let (next, next_gbit_per_s) = next.map_or((PathStage::Network, gbit_per_s), |next| {
        (next.stage, next.gbit_per_s.max(gbit_per_s))
    });
    let mut decision = Decision {
        limiting,
        gbit_per_s: round(gbit_per_s, RATE_DIGITS),
        share: round(runs.disk_to_disk.share(limiting), 3),
        together: alone.is_some(),
        capacities,
        next,
        next_gbit_per_s: round(next_gbit_per_s, RATE_DIGITS),
        remedy: remedy(runs, limiting),
        verdict: String::new(),
    };
    decision.verdict = verdict(&decision);
    decision
}

fn capacity(runs: &FourRuns, stage: PathStage) -> Capacity {
    let memory = &runs.memory_to_memory;
    let best = runs.best();
    let (gbit_per_s, known) = match stage {
        PathStage::SourceDisk => disk(stage, &[&runs.disk_to_memory, &runs.disk_to_disk], best),
        PathStage::TargetDisk => disk(stage, &[&runs.memory_to_disk, &runs.disk_to_disk], best),
        stage if memory.first_of(&NO_DISKS) == stage => (best, Known::Measured),
        // A full window says how fast the link is; less than that says nothing.
        PathStage::Network => (best, Known::AtLeast),
        stage => match memory.share(stage) {
            share if share < SHARE_TOLD_MIN => (best, Known::AtLeast),
            share => ((memory.gbit_per_s / share).max(best), Known::About),
        },
    };
    let share = round(runs.disk_to_disk.share(stage), 3);
    Capacity { stage, gbit_per_s: round(gbit_per_s, RATE_DIGITS), known, share }
}

const NO_DISKS: [PathStage; 3] =
    [PathStage::SourceProcessor, PathStage::Network, PathStage::TargetProcessor];

/// The most that went through a disk, beside the most that went over the path at all. The disk
/// carries no more only where nothing took more of that run's time.
fn disk(stage: PathStage, with: &[&RunFacts], best: f64) -> (f64, Known) {
    let most = with.iter().max_by(|one, other| one.gbit_per_s.total_cmp(&other.gbit_per_s));
    let Some(run) = most else { return (0.0, Known::AtLeast) };
    let is_slower = run.gbit_per_s < best * AS_FAST_SHARE;
    let is_largest = run.share(stage) >= run.share(run.first_of(&STAGES));
    let known = if is_slower && is_largest { Known::Measured } else { Known::AtLeast };
    (run.gbit_per_s, known)
}

fn limiting(runs: &FourRuns, capacities: &[Capacity], together: bool) -> PathStage {
    if together {
        return runs.disk_to_disk.first_of(&STAGES);
    }
    let disks = || capacities.iter().filter(|c| c.stage.is_disk() && c.known == Known::Measured);
    let slowest = disks().map(|disk| disk.gbit_per_s).fold(f64::INFINITY, f64::min);
    let alike = disks().filter(|disk| disk.gbit_per_s * ALIKE_SHARE <= slowest);
    let alike: Vec<PathStage> = alike.map(|disk| disk.stage).collect();
    if alike.is_empty() {
        return runs.memory_to_memory.first_of(&NO_DISKS);
    }
    runs.disk_to_disk.first_of(&alike)
}

/// The advice of a report that is about this stage, from disk to disk before all others.
fn remedy(runs: &FourRuns, stage: PathStage) -> String {
    let FourRuns { memory_to_memory, disk_to_memory, memory_to_disk, disk_to_disk } = runs;
    let order = [disk_to_disk, memory_to_disk, disk_to_memory, memory_to_memory];
    let said = order.iter().find_map(|run| run.remedy_for(stage));
    said.unwrap_or_else(|| stage.remedy()).to_owned()
}

fn verdict(decision: &Decision) -> String {
    let limiting = decision.limiting;
    let percent = (decision.share * 100.0).round();
    let others = decision.capacities.iter().filter(|capacity| {
        // With disks that hold each other up, what the limiting one does alone is news too.
        decision.together || capacity.stage != limiting
    });
    let carry = others.map(|capacity| {
        let known = match capacity.known {
            Known::Measured => "",
            Known::About => "about ",
            Known::AtLeast => "at least ",
        };
        format!("{} {known}{}", capacity.stage.noun(), rate(capacity.gbit_per_s))
    });
    let carry = carry.collect::<Vec<_>>().join(", ");
    format!(
        "{} limits at {} (at work {percent} % of the time); by themselves could carry: {carry}; \
         {}; to go faster: {}",
        limiting.noun(),
        rate(decision.gbit_per_s),
        gain(decision),
        decision.remedy
    )
}

/// Words for what a change of the limiting stage would bring.
fn gain(decision: &Decision) -> String {
    let times = decision.next_gbit_per_s / decision.gbit_per_s.max(f64::MIN_POSITIVE);
    let (faster, next) = (rate(decision.next_gbit_per_s), decision.next.noun());
    if decision.together {
        return format!(
            "only where both disks are at work is it so slow: if they did not hold each other up, \
             it would go at {faster}, {times:.1} times as fast"
        );
    }
    let better = decision.limiting.better();
    let next_known = decision.capacities.iter().find(|capacity| capacity.stage == decision.next);
    if times < FASTER_MIN && next_known.is_some_and(|next| next.known == Known::AtLeast) {
        return format!(
            "{better} it would go faster, how much no run tells: no other stage limited"
        );
    }
    if times < FASTER_MIN {
        return format!("{better} it would go no faster: {next} is as slow");
    }
    format!("{better} it would go at {faster}, {times:.1} times as fast, until {next} limits")
}

fn rate(gbit_per_s: f64) -> String {
    match gbit_per_s {
        rate if rate >= 10.0 => format!("{rate:.0} Gbit/s"),
        rate if rate >= 1.0 => format!("{rate:.1} Gbit/s"),
        rate => format!("{:.1} Mbit/s", rate * 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(gbit_per_s: f64, stages: &[(&str, f64)]) -> RunFacts {
        let stages: Vec<_> = stages.iter().map(|(name, share)| ((*name).into(), *share)).collect();
        RunFacts { gbit_per_s, stages, bottleneck: Bottleneck::default() }
    }

    /// Four runs with these disks; memory to memory goes at 42 Gbit/s and is held back by the
    /// window.
    fn with_disks(source: f64, target: f64, both: RunFacts) -> FourRuns {
        FourRuns {
            memory_to_memory: run(42.0, &[("network", 0.8), ("source_processor", 0.15)]),
            disk_to_memory: run(source, &[("source_disk", 0.9)]),
            memory_to_disk: run(target, &[("target_disk", 0.8), ("sync", 0.1)]),
            disk_to_disk: both,
        }
    }

    fn of(decision: &Decision, stage: PathStage) -> (f64, Known) {
        let capacity = decision.capacities.iter().find(|c| c.stage == stage).unwrap();
        (capacity.gbit_per_s, capacity.known)
    }

    #[test]
    fn a_slow_target_disk_limits() {
        let both = run(11.2, &[("target_disk", 0.7), ("sync", 0.2), ("network", 0.1)]);
        let decision = decide(&with_disks(38.0, 11.5, both));
        assert_eq!((decision.limiting, decision.share), (PathStage::TargetDisk, 0.9));
        assert_eq!(of(&decision, PathStage::TargetDisk), (11.5, Known::Measured));
        assert_eq!(of(&decision, PathStage::SourceDisk), (38.0, Known::AtLeast));
        assert_eq!(of(&decision, PathStage::Network), (42.0, Known::Measured));
        assert_eq!((decision.next, decision.next_gbit_per_s), (PathStage::SourceDisk, 38.0));
        let verdict = &decision.verdict;
        assert!(verdict.starts_with("the target disk limits at 11 Gbit/s (at work 90 %"));
        assert!(verdict.contains("with a faster target disk it would go at 38 Gbit/s, 3.4 times"));
        assert!(verdict.ends_with(&decision.remedy), "{verdict}");
    }

    #[test]
    fn a_slow_source_disk_limits() {
        let both = run(4.9, &[("source_disk", 0.95)]);
        let decision = decide(&with_disks(5.0, 20.0, both));
        assert_eq!(decision.limiting, PathStage::SourceDisk);
        assert_eq!((decision.next, decision.next_gbit_per_s), (PathStage::TargetDisk, 20.0));
        assert!(!decision.together);
    }

    /// The figures are stored from a disk that `probe disk` reads at 27.9 Gbit/s:
    /// `source disk LIMITS measured 9.898`, while the processors took the time.
    #[test]
    fn a_disk_is_measured_only_in_a_run_that_it_held_back() {
        let busy = [("source_run_queue", 0.42), ("source_processor", 0.23), ("source_disk", 0.2)];
        let mut runs = with_disks(9.898, 15.0, run(9.5, &busy));
        runs.memory_to_memory = run(17.0, &[("source_processor", 0.5), ("target_run_queue", 0.3)]);
        runs.disk_to_memory = run(9.898, &busy);
        runs.memory_to_disk = run(15.0, &[("target_processor", 0.5), ("target_disk", 0.3)]);
        let decision = decide(&runs);
        assert_eq!(of(&decision, PathStage::SourceDisk), (9.898, Known::AtLeast));
        assert_eq!(of(&decision, PathStage::TargetDisk), (15.0, Known::AtLeast));
        assert_eq!(decision.limiting, PathStage::SourceProcessor);
        assert!(!decision.remedy.contains("disk"), "{}", decision.remedy);
    }

    #[test]
    fn a_slow_network_limits_what_disks_would_carry() {
        let mut runs = with_disks(41.0, 40.5, run(40.0, &[("network", 0.7)]));
        let window = ("receiver_window", 0.9);
        runs.memory_to_memory = run(42.0, &[window, ("source_processor", 0.05)]);
        runs.memory_to_memory.bottleneck.stage = "receiver_window".into();
        runs.memory_to_memory.bottleneck.remedy = "raise net.ipv4.tcp_rmem".into();
        let decision = decide(&runs);
        assert_eq!(decision.limiting, PathStage::Network);
        assert_eq!(decision.remedy, "raise net.ipv4.tcp_rmem");
        assert_eq!(of(&decision, PathStage::TargetDisk), (40.5, Known::AtLeast));
        assert_eq!(of(&decision, PathStage::SourceProcessor), (840.0, Known::About));
        let verdict = &decision.verdict;
        assert!(verdict.contains("how much no run tells: no other stage limited"), "{verdict}");
    }

    #[test]
    fn a_processor_limits_on_either_side() {
        for (part, stage) in [
            ("source_digest", PathStage::SourceProcessor),
            ("target_run_queue", PathStage::TargetProcessor),
        ] {
            let mut runs = with_disks(42.0, 42.0, run(41.0, &[(part, 0.9)]));
            runs.memory_to_memory = run(42.0, &[(part, 0.95), ("network", 0.0)]);
            let decision = decide(&runs);
            assert_eq!(decision.limiting, stage);
            assert_eq!(of(&decision, stage), (42.0, Known::Measured));
            assert_eq!(of(&decision, PathStage::Network), (42.0, Known::AtLeast));
            assert!(decision.remedy.contains("--streams"), "{}", decision.remedy);
        }
    }

    #[test]
    fn of_two_disks_that_are_alike_the_one_at_work_for_longer_is_named() {
        for (first, second, stage) in [
            ("source_disk", "target_disk", PathStage::SourceDisk),
            ("target_disk", "source_disk", PathStage::TargetDisk),
        ] {
            let both = run(9.0, &[(first, 0.6), (second, 0.3)]);
            let decision = decide(&with_disks(10.0, 10.2, both));
            assert_eq!(decision.limiting, stage);
            assert!(decision.verdict.contains("times as fast"), "{}", decision.verdict);
        }
    }

    #[test]
    fn disks_that_hold_each_other_up_are_told_apart_from_one_that_is_slow() {
        let both = run(6.0, &[("source_disk", 0.5), ("target_disk", 0.4)]);
        let decision = decide(&with_disks(12.0, 13.0, both));
        assert!(decision.together);
        assert_eq!(decision.limiting, PathStage::SourceDisk);
        assert_eq!((decision.next, decision.next_gbit_per_s), (PathStage::SourceDisk, 12.0));
        assert!(decision.verdict.contains("only where both disks are at work"));
        assert!(decision.verdict.contains("the source disk 12 Gbit/s, "), "{}", decision.verdict);
    }

    #[test]
    fn no_stage_is_said_to_carry_less_than_went_through_it() {
        let mut runs = with_disks(0.021, 0.301, run(0.116, &[("network", 0.5)]));
        runs.memory_to_memory.gbit_per_s = 0.017;
        let decision = decide(&runs);
        // The network took most of that run.
        assert_eq!(of(&decision, PathStage::SourceDisk), (0.116, Known::AtLeast));
        assert_eq!(of(&decision, PathStage::TargetDisk), (0.301, Known::AtLeast));
        assert_eq!(of(&decision, PathStage::Network), (0.301, Known::Measured));
    }

    #[test]
    fn runs_that_say_nothing_are_no_reason_to_fail() {
        let decision = decide(&FourRuns::default());
        assert!(!decision.verdict.contains("NaN") && !decision.verdict.contains("inf"));
    }
}
