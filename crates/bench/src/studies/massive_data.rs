//! Figures of Song et al.'s study of massive data, and what decides whether they came out.

use super::{Figure, MeasuredBy, Study, missing};
use haul_report::{
    spread::Spread,
    study_figure::{Judgement, StudyName},
    units,
};
use std::fmt;

/// Song et al., "Zero-copy for transmission and recording of massive data", JKIECS 2021.
pub const MASSIVE_DATA: &str =
    "Song et al., Zero-copy for transmission and recording of massive data (JKIECS 2021)";

const NAME: StudyName =
    StudyName { id: "massive-data", title: "Zero-copy for massive data (2021)" };

pub const STUDY: Study = Study {
    name: NAME,
    source: MASSIVE_DATA,
    words: "Radio telescopes record 100 GB and more, which go over a network of 100 Gbit/s to a \
            correlator. The study asks what sendfile, which hands pages of the page cache to the \
            network card, gains over read and write, which copy each byte twice. It measures the \
            network alone, then the disk alone, then both, so that the bottleneck is known before \
            it is blamed.",
    figures: &[&NETWORK, &STORAGE, &OFFSETS, &TIMES, &CACHED, &RECORDED, &IN_MEMORY],
};

const NETWORK: Figure = Figure {
    study: NAME,
    number: "network profile",
    shows: "the network alone, from memory to memory, by number of streams",
    rule: "Three streams are faster than one.",
    theirs: "Theirs: about 40 Gbit/s with one stream, as much as one core can do, and more than 90 \
             with three, on a network of 100 Gbit/s.",
    command: "",
    by: MeasuredBy::Nothing(
        "needs two hosts and a network of 100 Gbit/s between them; haul probe net and haul bench \
         engines URL measure the network that is there",
    ),
};

const STORAGE: Figure = Figure {
    study: NAME,
    number: "storage profile",
    shows: "the disk alone, written over time",
    rule: "The disk alone writes less than one stream moves through memory.",
    theirs: "Theirs: 14 to 16 Gbit/s.",
    command: "",
    by: MeasuredBy::Nothing(
        "needs a disk with nothing else on it for minutes; haul probe disk DIR measures yours over \
         time",
    ),
};

pub const OFFSETS: Figure = Figure {
    study: NAME,
    number: "table 2",
    shows: "sendfile and read-write inside one machine, with a fixed offset and an advancing one",
    rule: "The four rates have the study's order, by their medians and in most rounds: sendfile \
           fixed, sendfile advancing, read-write fixed, read-write advancing.",
    theirs: "Theirs: sendfile 73.7 Gbit/s with a fixed offset and 51.5 with an advancing one, \
             read-write 29.2 and 24.7.",
    command: "haul bench engines --only offsets",
    by: MeasuredBy::Engines,
};

pub const TIMES: Figure = Figure {
    study: NAME,
    number: "table 3",
    shows: "the time of one large file inside one machine, without and with a copy",
    rule: "Zero-copy takes less time than read-write, by the medians and in most rounds.",
    theirs: "Theirs: 10 GB in 1.66 s by zero-copy, in 3.48 s by read-write.",
    command: "haul bench files --only recordings",
    by: MeasuredBy::Files,
};

pub const CACHED: Figure = Figure {
    study: NAME,
    number: "figures 12 to 15, 10 GB recorded",
    shows: "a file that fits into the receiver's page cache, sent and recorded by read-write",
    rule: "A file that the page cache absorbs is sent within a smaller part of its recording's \
           time than one that is larger, by the medians and in most rounds.",
    theirs: "Theirs: 10 GB sent at 42.7 Gbit/s within 2.01 s, recorded at 13.1 Gbit/s within 6.54 \
             s; 100 GB sent at 10.2 and recorded at 10.3.",
    command: "haul bench files --only recordings",
    by: MeasuredBy::Files,
};

pub const RECORDED: Figure = Figure {
    study: NAME,
    number: "figures 12 to 15, 100 GB recorded",
    shows: "a large file, sent and recorded, without and with a copy",
    rule: "Zero-copy records the file in less time than read-write, by the medians and in most \
           rounds.",
    theirs: "Theirs: recorded at 11.2 Gbit/s within 76.9 s by zero-copy, at 10.3 within 84 s by \
             read-write.",
    command: "haul bench files --only recordings",
    by: MeasuredBy::Files,
};

pub const IN_MEMORY: Figure = Figure {
    study: NAME,
    number: "figures 12 to 15, to memory only",
    shows: "a large file to the receiver's memory only, without and with a copy",
    rule: "Zero-copy takes less time to memory, and gains more there than to the disk, by the \
           medians and in most rounds: the disk is the bottleneck.",
    theirs: "Theirs: 14.2 Gbit/s within 60.5 s by zero-copy, 10.3 within 83.5 s by read-write: 1.4 \
             times, and 1.1 times to the disk.",
    command: "haul bench files --only recordings",
    by: MeasuredBy::Files,
};

/// Bytes that both methods move by a call: sendfile(2) never hands over more at once, as they go
/// through a pipe of 16 pages (fs/splice.c, splice_direct_to_actor). So the copy is the only
/// difference. The study's own block is not told.
pub const BLOCK_BYTES: usize = 64 << 10;

/// A rate of Song et al., table 2: inside one machine, one stream, 10 GB.
#[derive(Clone, Copy, Debug)]
pub struct OffsetRate {
    pub engine: &'static str,
    pub fixed_gbit_per_s: f64,
    pub advancing_gbit_per_s: f64,
}

/// The rates of Song et al., table 2, by engine and offset.
pub const OFFSET_RATES: [OffsetRate; 2] = [
    OffsetRate { engine: "sendfile", fixed_gbit_per_s: 73.7, advancing_gbit_per_s: 51.5 },
    OffsetRate { engine: "read-write", fixed_gbit_per_s: 29.2, advancing_gbit_per_s: 24.7 },
];

/// A file of Song et al.: table 3 (inside one machine), and figures 12 to 15 (over a network).
#[derive(Clone, Copy, Debug, Default)]
pub struct Recording {
    pub what: &'static str,
    pub sent_gbit_per_s: Option<f64>,
    pub recorded_gbit_per_s: Option<f64>,
    pub seconds: Option<f64>,
    /// Time after which all had left the sender.
    pub sent_seconds: Option<f64>,
}

const NOT_TOLD: Recording = Recording {
    what: "",
    sent_gbit_per_s: None,
    recorded_gbit_per_s: None,
    seconds: None,
    sent_seconds: None,
};

/// Table 3: zero-copy, then read-write.
pub const STUDY_TIMES: [Recording; 2] = [
    Recording { what: "10 GB, zero-copy", seconds: Some(1.66), ..NOT_TOLD },
    Recording { what: "10 GB, read-write", seconds: Some(3.48), ..NOT_TOLD },
];

/// The file that the receiver's page cache absorbs, by read-write.
pub const STUDY_CACHED: Recording = Recording {
    what: "10 GB, read-write, recorded",
    sent_gbit_per_s: Some(42.7),
    recorded_gbit_per_s: Some(13.1),
    seconds: Some(6.54),
    sent_seconds: Some(2.01),
};

/// The large file on the disk: zero-copy, then read-write.
pub const STUDY_RECORDED: [Recording; 2] = [
    Recording {
        what: "100 GB, zero-copy, recorded",
        recorded_gbit_per_s: Some(11.2),
        seconds: Some(76.9),
        ..NOT_TOLD
    },
    Recording {
        what: "100 GB, read-write, recorded",
        sent_gbit_per_s: Some(10.2),
        recorded_gbit_per_s: Some(10.3),
        seconds: Some(84.0),
        ..NOT_TOLD
    },
];

/// The large file in the receiver's memory: zero-copy, then read-write.
pub const STUDY_IN_MEMORY: [Recording; 2] = [
    Recording {
        what: "100 GB, zero-copy, to memory only",
        recorded_gbit_per_s: Some(14.2),
        seconds: Some(60.5),
        ..NOT_TOLD
    },
    Recording {
        what: "100 GB, read-write, to memory only",
        recorded_gbit_per_s: Some(10.3),
        seconds: Some(83.5),
        ..NOT_TOLD
    },
];

/// Rates that were measured for table 2, in Gbit/s, those of each round: fixed, then advancing.
#[derive(Clone, Debug, Default)]
pub struct MeasuredOffsets {
    pub sendfile: [Vec<f64>; 2],
    pub read_write: [Vec<f64>; 2],
}

impl MeasuredOffsets {
    /// The medians of sendfile and of read-write.
    #[must_use]
    pub fn medians(&self) -> [[Option<f64>; 2]; 2] {
        let of = |rates: &[Vec<f64>; 2]| [median(&rates[0]), median(&rates[1])];
        [of(&self.sendfile), of(&self.read_write)]
    }

    /// The four rates of a round, in the study's order.
    fn round(&self, round: usize) -> Option<[f64; 4]> {
        let [fixed, advancing] = &self.sendfile;
        let [copied_fixed, copied_advancing] = &self.read_write;
        let [one, two, three, four] =
            [fixed, advancing, copied_fixed, copied_advancing].map(|rates| rates.get(round));
        Some([*one?, *two?, *three?, *four?])
    }
}

fn median(values: &[f64]) -> Option<f64> {
    Spread::of(values.iter().copied()).map(|spread| spread.median)
}

/// Rounds of a comparison, and whether it holds in each.
struct Rounds(Vec<bool>);

impl Rounds {
    fn count(&self) -> usize {
        self.0.iter().filter(|holds| **holds).count()
    }

    fn most(&self) -> bool {
        2 * self.count() > self.0.len()
    }
}

impl fmt::Display for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in {} of {}", self.count(), units::count(self.0.len() as u64, "round"))
    }
}

/// Judges table 2 by the medians; `because` is the reason why a rate is missing, where there is
/// one.
#[must_use]
pub fn judge_offsets(ours: &MeasuredOffsets, because: Option<&str>) -> Judgement {
    let [[Some(fixed), Some(advancing)], [Some(copied_fixed), Some(copied_advancing)]] =
        ours.medians()
    else {
        return missing(because);
    };
    let mut order = [
        ("sendfile fixed", fixed),
        ("sendfile advancing", advancing),
        ("read-write fixed", copied_fixed),
        ("read-write advancing", copied_advancing),
    ];
    let descends = |rates: [f64; 4]| rates.windows(2).all(|two| two[0] > two[1]);
    let rounds = (0..).map_while(|round| ours.round(round)).map(descends);
    let rounds = Rounds(rounds.collect());
    let holds = descends(order.map(|(_, rate)| rate));
    let [theirs, theirs_copied] = OFFSET_RATES;
    let mut sentence = format!(
        "with a fixed offset sendfile moves {:.1} times what read-write does (theirs {:.1}), with \
         an advancing one {:.1} times (theirs {:.1})",
        fixed / copied_fixed,
        theirs.fixed_gbit_per_s / theirs_copied.fixed_gbit_per_s,
        advancing / copied_advancing,
        theirs.advancing_gbit_per_s / theirs_copied.advancing_gbit_per_s,
    );
    if !holds {
        order.sort_by(|one, other| other.1.total_cmp(&one.1));
        let [first, rest @ ..] = order.map(|(name, _)| name);
        sentence += &format!("; fastest is {first}, then {}", rest.join(", "));
    }
    sentence += &format!("; the order is theirs {rounds}");
    Judgement::of_rule(holds && rounds.most(), sentence)
}

/// Judges table 3 by the seconds of each round, of zero-copy and of read-write.
#[must_use]
pub fn judge_times(rounds: [&[f64]; 2], because: Option<&str>) -> Judgement {
    judge_seconds("the file takes", rounds, STUDY_TIMES, because)
}

/// Judges the recording of a large file by the seconds of each round, of zero-copy and of
/// read-write.
#[must_use]
pub fn judge_recorded(rounds: [&[f64]; 2], because: Option<&str>) -> Judgement {
    judge_seconds("the file is on the disk after", rounds, STUDY_RECORDED, because)
}

fn judge_seconds(
    what: &str,
    rounds: [&[f64]; 2],
    theirs: [Recording; 2],
    because: Option<&str>,
) -> Judgement {
    let [Some(zero_copy), Some(copying)] = rounds.map(median) else { return missing(because) };
    let mut sentence = format!(
        "{what} {zero_copy:.2} s by zero-copy and {copying:.2} s by read-write, {:.2} times as \
         long",
        copying / zero_copy
    );
    if let [Some(theirs), Some(theirs_copying)] = theirs.map(|recording| recording.seconds) {
        sentence += &format!(
            " (theirs {theirs} s and {theirs_copying} s, {:.2} times)",
            theirs_copying / theirs
        );
    }
    let less = rounds[0].iter().zip(rounds[1]).map(|(zero_copy, copying)| zero_copy < copying);
    let less = Rounds(less.collect());
    sentence += &format!("; zero-copy takes less {less}");
    Judgement::of_rule(zero_copy < copying && less.most(), sentence)
}

/// A round of one file by read-write, in seconds: until all was sent, and until all was recorded.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredRecording {
    pub sent_s: f64,
    pub recorded_s: f64,
}

impl MeasuredRecording {
    /// The part of the recording's time within which all was sent.
    fn sent_part(self) -> f64 {
        self.sent_s / self.recorded_s
    }
}

/// Judges what the page cache absorbs, by the rounds of a file that it holds and of a larger one;
/// `because` is the reason why they are missing.
#[must_use]
pub fn judge_cached(
    small: &[MeasuredRecording],
    large: &[MeasuredRecording],
    because: Option<&str>,
) -> Judgement {
    let parts = |rounds: &[MeasuredRecording]| -> Vec<f64> {
        rounds.iter().map(|round| round.sent_part()).collect()
    };
    let (small_parts, large_parts) = (parts(small), parts(large));
    let (Some(small_part), Some(large_part)) = (median(&small_parts), median(&large_parts)) else {
        return missing(because);
    };
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    let mut sentence = format!(
        "the smaller file is sent within {} of the time until it is recorded, the large one within \
         {}",
        percent(small_part),
        percent(large_part),
    );
    // Of the same bytes, so times are to each other as rates are the other way round.
    let theirs =
        |recording: Recording| Some(recording.recorded_gbit_per_s? / recording.sent_gbit_per_s?);
    if let (Some(small), Some(large)) = (theirs(STUDY_CACHED), theirs(STUDY_RECORDED[1])) {
        sentence += &format!(" (theirs {} and {})", percent(small), percent(large));
    }
    let less = small_parts.iter().zip(&large_parts).map(|(small, large)| small < large);
    let less = Rounds(less.collect());
    sentence += &format!("; a smaller part {less}");
    Judgement::of_rule(small_part < large_part && less.most(), sentence)
}

/// Judges the bottleneck by the seconds of each round, of zero-copy and of read-write, to memory
/// and to the disk.
#[must_use]
pub fn judge_in_memory(memory: [&[f64]; 2], disk: [&[f64]; 2], because: Option<&str>) -> Judgement {
    let gains = |[zero_copy, copying]: [&[f64]; 2]| -> Vec<f64> {
        zero_copy.iter().zip(copying).map(|(zero_copy, copying)| copying / zero_copy).collect()
    };
    let (to_memory, to_disk) = (gains(memory), gains(disk));
    let (Some(memory_gain), Some(disk_gain)) = (median(&to_memory), median(&to_disk)) else {
        return missing(because);
    };
    let mut sentence = format!(
        "read-write takes {memory_gain:.2} times as long to memory and {disk_gain:.2} to disk"
    );
    let theirs = |[zero_copy, copying]: [Recording; 2]| Some(copying.seconds? / zero_copy.seconds?);
    if let (Some(memory), Some(disk)) = (theirs(STUDY_IN_MEMORY), theirs(STUDY_RECORDED)) {
        sentence += &format!(" (theirs {memory:.2} and {disk:.2})");
    }
    let holds = |memory: f64, disk: f64| memory > 1.0 && memory > disk;
    let rounds = to_memory.iter().zip(&to_disk).map(|(memory, disk)| holds(*memory, *disk));
    let rounds = Rounds(rounds.collect());
    sentence += &format!("; it gains more to memory {rounds}");
    Judgement::of_rule(holds(memory_gain, disk_gain) && rounds.most(), sentence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_report::study_figure::Verdict::{CameOut, DidNotComeOut, NotMeasured};

    #[test]
    fn theirs_are_the_study_s() {
        let rates = OFFSET_RATES.map(|rate| (rate.fixed_gbit_per_s, rate.advancing_gbit_per_s));
        assert_eq!(rates, [(73.7, 51.5), (29.2, 24.7)]);
        let all = [STUDY_TIMES, [STUDY_CACHED, NOT_TOLD], STUDY_RECORDED, STUDY_IN_MEMORY].concat();
        let shown = all.iter().map(|one| {
            [one.seconds, one.sent_seconds, one.sent_gbit_per_s, one.recorded_gbit_per_s]
                .map(|value| value.unwrap_or(0.0))
        });
        let expected = [
            [1.66, 0.0, 0.0, 0.0],
            [3.48, 0.0, 0.0, 0.0],
            [6.54, 2.01, 42.7, 13.1],
            [0.0; 4],
            [76.9, 0.0, 0.0, 11.2],
            [84.0, 0.0, 10.2, 10.3],
            [60.5, 0.0, 0.0, 14.2],
            [83.5, 0.0, 0.0, 10.3],
        ];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }

    fn offsets(sendfile: [f64; 2], read_write: [f64; 2]) -> Judgement {
        let [sendfile, read_write] =
            [sendfile, read_write].map(|rates| rates.map(|rate| vec![rate]));
        judge_offsets(&MeasuredOffsets { sendfile, read_write }, None)
    }

    #[test]
    fn table_2_came_out_in_the_study_s_own_order_only() {
        // The study's own.
        let theirs = offsets([73.7, 51.5], [29.2, 24.7]);
        assert_eq!(theirs.verdict, CameOut);
        let says = "a fixed offset sendfile moves 2.5 times what read-write does (theirs 2.5), \
                    with an advancing one 2.1 times (theirs 2.1); the order is theirs in 1 of 1 \
                    round";
        assert!(theirs.sentence.ends_with(says), "{}", theirs.sentence);
        // Each pair of neighbours the other way round.
        for (sendfile, read_write) in
            [([3.0, 4.0], [2.0, 1.0]), ([4.0, 2.0], [3.0, 1.0]), ([4.0, 3.0], [1.0, 2.0])]
        {
            let judged = offsets(sendfile, read_write);
            assert_eq!(judged.verdict, DidNotComeOut, "{sendfile:?} {read_write:?}");
        }
        let judged = offsets([4.0, 2.0], [3.0, 1.0]);
        let order = "; fastest is sendfile fixed, then read-write fixed, sendfile advancing, \
                     read-write advancing; the order is theirs in 0 of 1 round";
        assert!(judged.sentence.ends_with(order), "{}", judged.sentence);
        assert!(judged.sentence.contains("moves 1.3 times"), "{}", judged.sentence);
        assert!(judged.sentence.contains("one 2.0 times (theirs 2.1)"), "{}", judged.sentence);
    }

    #[test]
    fn table_2_without_one_rate_is_not_measured() {
        let [all, none] = [[vec![2.0], vec![1.0]], [vec![2.0], Vec::new()]];
        let whole = MeasuredOffsets { sendfile: all.clone(), read_write: all };
        for ours in [
            MeasuredOffsets { sendfile: none.clone(), ..whole.clone() },
            MeasuredOffsets { read_write: none, ..whole.clone() },
        ] {
            let judged = judge_offsets(&ours, Some("sendfile: no such call"));
            assert_eq!(judged, Judgement::not_measured("sendfile: no such call"));
        }
        assert_eq!(
            judge_offsets(&MeasuredOffsets::default(), None).sentence,
            super::super::NO_TIME
        );
    }

    #[test]
    fn less_time_by_zero_copy_came_out_and_the_same_time_did_not() {
        let theirs = judge_times([&[1.66], &[3.48]], None);
        assert_eq!(theirs.verdict, CameOut);
        let says = "1.66 s by zero-copy and 3.48 s by read-write, 2.10 times as long (theirs 1.66 \
                    s and 3.48 s, 2.10 times); zero-copy takes less in 1 of 1 round";
        assert!(theirs.sentence.ends_with(says), "{}", theirs.sentence);
        assert_eq!(judge_times([&[2.0], &[2.0]], None).verdict, DidNotComeOut);
        assert_eq!(judge_times([&[2.0], &[1.0]], None).verdict, DidNotComeOut);
        assert_eq!(judge_times([&[2.0], &[]], Some("why")).verdict, NotMeasured);
        let recorded = judge_recorded([&[76.9], &[84.0]], None);
        assert_eq!(recorded.verdict, CameOut);
        assert!(recorded.sentence.contains("theirs 76.9 s and 84 s, 1.09 times"));
        assert_eq!(judge_recorded([&[84.0], &[76.9]], None).verdict, DidNotComeOut);
        assert_eq!(judge_recorded([&[], &[1.0]], Some("why")).sentence, "why");
    }

    #[test]
    fn the_medians_decide_and_the_rounds_are_counted() {
        let judged = judge_times([&[1.0, 5.0, 2.0], &[3.0, 4.0, 3.0]], None);
        assert_eq!(judged.verdict, CameOut);
        assert!(judged.sentence.contains("takes 2.00 s by zero-copy and 3.00 s"), "{judged:?}");
        assert!(judged.sentence.ends_with("zero-copy takes less in 2 of 3 rounds"), "{judged:?}");
        let ours = MeasuredOffsets {
            sendfile: [vec![9.0, 9.0, 2.0], vec![8.0, 8.0, 8.0]],
            read_write: [vec![7.0, 7.0, 7.0], vec![6.0, 6.0, 6.0]],
        };
        let judged = judge_offsets(&ours, None);
        assert_eq!(judged.verdict, CameOut);
        assert!(judged.sentence.ends_with("order is theirs in 2 of 3 rounds"), "{judged:?}");
    }

    #[test]
    fn the_medians_alone_are_not_enough() {
        // The medians are in order, of which no round is.
        let ours = MeasuredOffsets {
            sendfile: [vec![9.0, 1.0, 8.0], vec![1.0, 9.0, 7.0]],
            read_write: [vec![6.0, 6.0, 1.0], vec![5.0, 5.0, 5.0]],
        };
        assert_eq!(judge_offsets(&ours, None).verdict, DidNotComeOut);
        let few = judge_times([&[1.0, 3.0, 2.0, 4.0], &[2.0, 2.9, 9.0, 3.9]], None);
        assert_eq!(few.verdict, DidNotComeOut, "in half of the rounds: {few:?}");
    }

    #[test]
    fn a_cache_absorbs_where_a_smaller_file_is_sent_in_a_smaller_part_of_the_time() {
        let of = |sent_s, recorded_s| [MeasuredRecording { sent_s, recorded_s }];
        let theirs = judge_cached(&of(2.01, 6.54), &of(84.0, 84.0), None);
        assert_eq!(theirs.verdict, CameOut);
        let says = "within 31 % of the time until it is recorded, the large one within 100 % \
                    (theirs 31 % and 101 %); a smaller part in 1 of 1 round";
        assert!(theirs.sentence.ends_with(says), "{}", theirs.sentence);
        let judge = |small: &[_], large: &[_]| judge_cached(small, large, None).verdict;
        assert_eq!(judge(&of(3.0, 3.0), &of(30.0, 30.0)), DidNotComeOut, "nothing is absorbed");
        assert_eq!(judge(&of(3.0, 4.0), &of(10.0, 20.0)), DidNotComeOut, "less is absorbed");
        assert_eq!(judge(&of(1.0, 2.0), &of(9.0, 10.0)), CameOut);
        let parts = |parts: [f64; 4]| parts.map(|part| of(part, 1.0)[0]);
        let half = judge(&parts([0.1, 0.6, 0.2, 0.9]), &parts([0.9, 0.5, 0.9, 0.8]));
        assert_eq!(half, DidNotComeOut, "in half of the rounds");
        let none = judge_cached(&[], &of(1.0, 1.0), Some("needs a warm source"));
        assert_eq!((none.verdict, none.sentence.as_str()), (NotMeasured, "needs a warm source"));
        assert_eq!(judge(&of(1.0, 2.0), &[]), NotMeasured);
    }

    #[test]
    fn the_disk_is_the_bottleneck_where_memory_gains_more() {
        let judge = |memory: [f64; 2], disk: [f64; 2]| {
            let [memory, disk] = [&memory, &disk].map(|[one, other]| [[*one], [*other]]);
            judge_in_memory([&memory[0], &memory[1]], [&disk[0], &disk[1]], None)
        };
        let theirs = judge([60.5, 83.5], [76.9, 84.0]);
        assert_eq!(theirs.verdict, CameOut);
        let says = "1.38 times as long to memory and 1.09 to disk (theirs 1.38 and 1.09); it gains \
                    more to memory in 1 of 1 round";
        assert!(theirs.sentence.ends_with(says), "{}", theirs.sentence);
        assert_eq!(judge([1.0, 1.1], [1.0, 1.4]).verdict, DidNotComeOut);
        assert_eq!(judge([1.0, 1.1], [1.0, 1.1]).verdict, DidNotComeOut, "as much");
        assert_eq!(judge([1.0, 0.9], [1.0, 0.8]).verdict, DidNotComeOut, "nothing is gained");
        let half = judge_in_memory(
            [&[1.0; 4], &[9.0, 1.2, 9.0, 1.2]],
            [&[1.0; 4], &[1.3, 1.4, 1.3, 1.4]],
            None,
        );
        assert_eq!(half.verdict, DidNotComeOut, "in half of the rounds: {half:?}");
        let all: [&[f64]; 2] = [&[1.0], &[2.0]];
        for none in [[&[1.0][..], &[]], [&[], &[1.0]]] {
            assert_eq!(judge_in_memory(none, all, None).verdict, NotMeasured);
            assert_eq!(judge_in_memory(all, none, None).verdict, NotMeasured);
        }
    }
}
