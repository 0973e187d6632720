//! Figures of Park, Noh et al.'s study of tuned hosts, and the rules that decide if they came out.

use super::{Figure, MeasuredBy, Study, missing};
use haul_report::{
    spread::Spread,
    study_figure::{Judgement, StudyName},
};

const NAME: StudyName =
    StudyName { id: "node-tuning", title: "Tuning a data transfer node (2018)" };

pub const STUDY: Study = Study {
    name: NAME,
    source: "Park, Noh et al., Science DMZ data transfer node tuning (KIPS 2018)",
    words: "A host on 100 Gbit/s reaches its network only once it is tuned: ring buffers, CPU \
            governor, interrupts near the card, socket buffers for the bandwidth-delay product, \
            congestion control, jumbo frames, NVMe.",
    figures: &[&CHANGES, &GOVERNOR, &STORAGE, &DELAYS, &UDP_TRANSPORTS],
};

pub const CHANGES: Figure = Figure {
    study: NAME,
    number: "figure 6",
    shows: "the rate of 1 to 8 streams, with one change of both hosts at a time",
    rule: "Between interfaces without a wire and without segmentation offload, MTU 9000 is faster \
           than the default with one stream, and with the most streams faster than with one.",
    theirs: "Theirs: 10 Gbit/s with one stream by default, 36 with MTU 9000, 98 with MTU 9000 and \
             eight streams.",
    command: "haul bench tuning",
    by: MeasuredBy::Tuning,
};

pub const GOVERNOR: Figure = Figure {
    study: NAME,
    number: "figure 6, the governor",
    shows: "the same with the processors' governor `performance`",
    rule: "The governor `performance` is faster than the one before.",
    theirs: "Theirs: the link of 100 Gbit/s is full with four streams.",
    command: "",
    by: MeasuredBy::Nothing(
        "needs processors whose clock the host may set; haul tune sets the governor where it can",
    ),
};

pub const STORAGE: Figure = Figure {
    study: NAME,
    number: "figure 7",
    shows: "files of 100 GB by a parallel tool (FDT), before and after tuning",
    rule: "After tuning, a file leaves either disk faster than before, in each round.",
    theirs: "Theirs: a hard disk from 3 to 5.6 Gbit/s, NVMe from 7 to 11.6.",
    command: "haul bench tuning --only storage",
    by: MeasuredBy::Tuning,
};

pub const DELAYS: Figure = Figure {
    study: NAME,
    number: "figure 8",
    shows: "the delay of reads and writes of a hard disk and of NVMe over time",
    rule: "The faster disk has less delay than the slower one, at the median, for writes and for \
           reads.",
    theirs: "Theirs are curves; the numbers behind them are not told.",
    command: "haul bench tuning --only storage",
    by: MeasuredBy::Tuning,
};

const UDP_TRANSPORTS: Figure = Figure {
    study: NAME,
    number: "related transports",
    shows: "parallel TCP beside reliable UDP (RBUDP, Tsunami, SABUL and UDT)",
    rule: "Reliable UDP is faster than one stream of TCP on a long path.",
    theirs: "Theirs are named only, without numbers.",
    command: "",
    by: MeasuredBy::Nothing("needs a transport over UDP, which haul does not have yet"),
};

/// Rates of the first change, as they were measured here, in Gbit/s.
#[derive(Clone, Copy, Debug, Default)]
pub struct MeasuredChange {
    pub default_one_stream: Option<f64>,
    pub jumbo_one_stream: Option<f64>,
    /// MTU 9000 with the most streams.
    pub jumbo_most_streams: Option<f64>,
    pub most_streams: u32,
    /// Processors that both hosts share.
    pub cores: u32,
}

/// The judgement of figure 6.
#[must_use]
pub fn judge_change(found: &MeasuredChange, because: Option<&str>) -> Judgement {
    let MeasuredChange { most_streams, cores, .. } = *found;
    let rates = (found.default_one_stream, found.jumbo_one_stream, found.jumbo_most_streams);
    let (Some(default), Some(one), Some(most)) = rates else { return missing(because) };
    if most_streams < 2 {
        return missing(Some("needs more than one stream"));
    }
    let [first, theirs, last] = &TUNED_RATES;
    let wider = format!(
        "With one stream MTU 9000 is {:.2} times as fast as 1500, {one:.2} beside {default:.2} \
         Gbit/s (theirs {:.1} times).",
        one / default,
        theirs.gbit_per_s / first.gbit_per_s
    );
    let more = format!(
        "{most_streams} streams are {:.2} times as fast as one, {most:.2} Gbit/s (theirs {:.1} \
         times).",
        most / one,
        last.gbit_per_s / theirs.gbit_per_s
    );
    let why = if most > one {
        String::new()
    } else {
        format!(" Both hosts share {cores} processors here, which one stream uses up.")
    };
    Judgement::of_rule(one > default && most > one, format!("{wider} {more}{why}"))
}

/// Park, Noh et al., "Science DMZ data transfer node tuning", KIPS 2018.
pub const NODE_TUNING: &str =
    "Park, Noh et al., Science DMZ data transfer node tuning (KIPS 2018), 100 Gbit/s, by iperf";

/// A rate of Park, Noh et al., figure 6: one change at a time, on a link of 100 Gbit/s.
#[derive(Clone, Copy, Debug)]
pub struct TunedRate {
    pub step: &'static str,
    pub streams: u32,
    pub gbit_per_s: f64,
}

/// The rates that the text of Park, Noh et al. names. With the governor `performance` as well, 4
/// streams filled the link.
pub const TUNED_RATES: [TunedRate; 3] = [
    TunedRate { step: "default", streams: 1, gbit_per_s: 10.0 },
    TunedRate { step: "MTU 9000", streams: 1, gbit_per_s: 36.0 },
    TunedRate { step: "MTU 9000", streams: 8, gbit_per_s: 98.0 },
];

/// Rates of a disk's file before and after tuning, a round each, in Gbit/s.
#[derive(Clone, Debug)]
pub struct MeasuredStorage {
    pub disk: String,
    pub before: Vec<f64>,
    pub after: Vec<f64>,
}

/// The judgement of figure 7.
#[must_use]
pub fn judge_storage(found: &[MeasuredStorage], because: Option<&str>) -> Judgement {
    let is_measured =
        |one: &MeasuredStorage| !one.before.is_empty() && one.before.len() == one.after.len();
    if found.len() < 2 || !found.iter().all(is_measured) {
        return missing(because);
    }
    let median = |rates: &[f64]| Spread::of(rates.iter().copied()).map_or(0.0, |one| one.median);
    let sentence = |one: &MeasuredStorage| {
        let (before, after) = (median(&one.before), median(&one.after));
        format!("{} {before:.3} to {after:.3} Gbit/s, {:.1} times", one.disk, after / before)
    };
    let sentences: Vec<String> = found.iter().map(sentence).collect();
    let is_faster = |one: &MeasuredStorage| {
        one.before.iter().zip(&one.after).all(|(before, after)| before < after)
    };
    let words =
        format!("Before and after tuning: {} (theirs 1.9 and 1.7 times).", sentences.join("; "));
    Judgement::of_rule(found.iter().all(is_faster), words)
}

/// Delays of two disks at the median, in microseconds: the slower one first.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredDelays {
    pub operation: &'static str,
    pub slower_us: f64,
    pub faster_us: f64,
}

/// The judgement of figure 8; `made` says that the bench bound the slower disk itself.
#[must_use]
pub fn judge_delays(found: &[MeasuredDelays], made: bool, because: Option<&str>) -> Judgement {
    if found.len() < 2 {
        return missing(because);
    }
    let one = |one: &MeasuredDelays| {
        format!(
            "a {} of 1 MiB takes {:.0} us and {:.0} us",
            one.operation, one.slower_us, one.faster_us
        )
    };
    let mut words = format!(
        "On the slower and the faster disk {}.",
        found.iter().map(one).collect::<Vec<_>>().join(", ")
    );
    if made {
        words += " The slower is bound by this bench: two real disks, named by --disks, tell more.";
    }
    Judgement::of_rule(found.iter().all(|one| one.faster_us < one.slower_us), words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuning_helps_where_each_disk_is_faster_in_each_round() {
        let of = |before: &[f64], after: &[f64]| MeasuredStorage {
            disk: "a disk".to_owned(),
            before: before.to_vec(),
            after: after.to_vec(),
        };
        let good = of(&[1.0, 1.0], &[2.0, 2.0]);
        let said = judge_storage(&[good.clone(), good.clone()], None);
        assert_eq!(said.verdict, Verdict::CameOut);
        assert!(said.sentence.contains("a disk 1.000 to 2.000 Gbit/s, 2.0 times;"), "{said:?}");
        for bad in [of(&[1.0, 1.0], &[2.0, 1.0]), of(&[1.0, 3.0], &[2.0, 2.0])] {
            let both = [[good.clone(), bad.clone()], [bad, good.clone()]];
            assert!(
                both.iter().all(|two| judge_storage(two, None).verdict == Verdict::DidNotComeOut)
            );
        }
        let uneven = [of(&[1.0], &[]), of(&[], &[]), of(&[1.0], &[2.0, 3.0])];
        for missing in uneven {
            let said = judge_storage(&[good.clone(), missing], Some("needs root"));
            assert_eq!((said.verdict, &said.sentence[..]), (Verdict::NotMeasured, "needs root"));
        }
        assert_eq!(judge_storage(&[good], None).verdict, Verdict::NotMeasured);
    }

    #[test]
    fn the_faster_disk_has_less_delay_both_ways() {
        let of =
            |operation, slower_us, faster_us| MeasuredDelays { operation, slower_us, faster_us };
        let both = [of("write", 900.0, 80.0), of("read", 800.0, 90.0)];
        let said = judge_delays(&both, true, None);
        assert_eq!(said.verdict, Verdict::CameOut);
        assert!(said.sentence.contains("a read of 1 MiB takes 800 us and 90 us."), "{said:?}");
        assert!(said.sentence.contains("bound by this bench"), "{said:?}");
        assert!(!judge_delays(&both, false, None).sentence.contains("bound by"));
        for one in [of("read", 80.0, 80.0), of("read", 80.0, 90.0)] {
            for two in [[both[0], one], [one, both[0]]] {
                assert_eq!(judge_delays(&two, true, None).verdict, Verdict::DidNotComeOut);
            }
        }
        assert_eq!(judge_delays(&both[..1], true, None).verdict, Verdict::NotMeasured);
    }
    use haul_report::study_figure::Verdict;

    fn measured(default: f64, one: f64, most: f64) -> MeasuredChange {
        MeasuredChange {
            default_one_stream: Some(default),
            jumbo_one_stream: Some(one),
            jumbo_most_streams: Some(most),
            most_streams: 8,
            cores: 2,
        }
    }

    #[test]
    fn larger_packets_and_more_streams_are_both_faster_or_it_did_not_come_out() {
        let said = judge_change(&measured(2.0, 6.0, 9.0), None);
        assert_eq!(said.verdict, Verdict::CameOut);
        assert_eq!(
            said.sentence,
            "With one stream MTU 9000 is 3.00 times as fast as 1500, 6.00 beside 2.00 Gbit/s \
             (theirs 3.6 times). 8 streams are 1.50 times as fast as one, 9.00 Gbit/s (theirs 2.7 \
             times)."
        );
        for (default, one, most) in [(6.0, 6.0, 9.0), (7.0, 6.0, 9.0)] {
            let said = judge_change(&measured(default, one, most), None);
            assert_eq!(said.verdict, Verdict::DidNotComeOut);
            assert!(!said.sentence.contains("share"), "{}", said.sentence);
        }
        for most in [6.0, 5.0] {
            let said = judge_change(&measured(2.0, 6.0, most), None);
            assert_eq!(said.verdict, Verdict::DidNotComeOut);
            assert!(said.sentence.ends_with("share 2 processors here, which one stream uses up."));
        }
    }

    #[test]
    fn what_is_missing_is_not_measured() {
        let whole = measured(2.0, 6.0, 9.0);
        for one_is_missing in [
            MeasuredChange { default_one_stream: None, ..whole },
            MeasuredChange { jumbo_one_stream: None, ..whole },
            MeasuredChange { jumbo_most_streams: None, ..whole },
            MeasuredChange { most_streams: 1, ..whole },
        ] {
            let said = judge_change(&one_is_missing, Some("needs root"));
            assert_eq!(said.verdict, Verdict::NotMeasured);
            assert!(said.sentence.starts_with("needs "), "{}", said.sentence);
        }
    }
}
