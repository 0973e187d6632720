//! Figures of Park, Noh et al.'s study of tuned hosts, and the rules that decide if they came out.

use super::{Figure, MeasuredBy, Study, missing};
use haul_report::study_figure::{Judgement, StudyName};

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
    rule: "After tuning both kinds of disk are faster.",
    theirs: "Theirs: a hard disk from 3 to 5.6 Gbit/s, NVMe from 7 to 11.6.",
    command: "",
    by: MeasuredBy::Nothing("needs two hosts with both kinds of disk; no bench does that yet"),
};

pub const DELAYS: Figure = Figure {
    study: NAME,
    number: "figure 8",
    shows: "the delay of reads and writes of a hard disk and of NVMe over time",
    rule: "The delays of NVMe are less than those of the hard disk.",
    theirs: "Theirs are curves; the numbers behind them are not told.",
    command: "",
    by: MeasuredBy::Nothing(
        "needs both kinds of disk; haul probe disk DIR measures the one that is there",
    ),
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

#[cfg(test)]
mod tests {
    use super::*;
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
