//! Figures of Park, Noh et al.'s study of tuned hosts, and the rules that decide if they came out.

use super::{Figure, MeasuredBy, Study};
use haul_report::study_figure::StudyName;

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
    rule: "MTU 9000 is faster than the default with one stream, and with the most streams faster \
           than with one.",
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
