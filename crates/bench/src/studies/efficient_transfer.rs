//! Tables of Palaniappan and Nagaraja's study of transferTo(), and what decides if they came out.

use super::{Figure, MeasuredBy, Study, missing};
use haul_report::{
    chart::{Bar, BarValue, bars},
    study_figure::{Judgement, StudyName},
};

/// Palaniappan and Nagaraja, "Efficient data transfer through zero copy", IBM developerWorks.
pub const EFFICIENT_TRANSFER: &str =
    "Palaniappan and Nagaraja, Efficient data transfer through zero copy (IBM developerWorks)";

const NAME: StudyName =
    StudyName { id: "efficient-transfer", title: "Efficient data transfer through zero copy" };

pub const STUDY: Study = Study {
    name: NAME,
    source: EFFICIENT_TRANSFER,
    words: "Java's FileChannel.transferTo calls sendfile: two copies and two switches between user \
            and kernel mode in place of four each.",
    figures: &[&SWITCHES, &TIMES, &JAVA_TIMES],
};

pub const SWITCHES: Figure = Figure {
    study: NAME,
    number: "copies and switches",
    shows: "copies of each byte, and switches of the sender between user and kernel mode",
    rule: "sendfile copies fewer bytes through user space, and switches modes less often, than \
           reading and sending 4 KiB at a time.",
    theirs: "Theirs: four switches and four copies of each block become two and two.",
    command: "haul bench files --only times",
    by: MeasuredBy::Files,
};

pub const TIMES: Figure = Figure {
    study: NAME,
    number: "table 1",
    shows: "the time of files from 7 MB to 1 GB by reading and sending 4 KiB at a time, and by \
            transferTo(), which is sendfile",
    rule: "sendfile takes less time at each size.",
    theirs: "Theirs: 7 MB in 156 and 45 ms, 1 GB in 18399 and 8537 ms; about 65 % less, they say.",
    command: "haul bench files --only times",
    by: MeasuredBy::Files,
};

pub const JAVA_TIMES: Figure = Figure {
    study: NAME,
    number: "table 1, by the JVM",
    shows: "the same files, sent by a program in Java",
    rule: "transferTo() takes less time at each size.",
    theirs: "Theirs are those of table 1: the study's programs are in Java.",
    command: "haul bench studies --only=java --jar=haul.jar",
    by: MeasuredBy::Java,
};

/// A line of Palaniappan and Nagaraja, table 1.
#[derive(Clone, Copy, Debug)]
pub struct FileTime {
    pub name: &'static str,
    pub len_bytes: u64,
    pub traditional_ms: u32,
    pub zero_copy_ms: u32,
}

const fn file_time(
    name: &'static str,
    megabytes: u64,
    traditional_ms: u32,
    zero_copy_ms: u32,
) -> FileTime {
    FileTime { name, len_bytes: megabytes * 1_000_000, traditional_ms, zero_copy_ms }
}

/// Palaniappan and Nagaraja, table 1: a file sent by reading and writing 4 KiB at a time, and by
/// transferTo(), which is sendfile(2).
pub const FILE_TIMES: [FileTime; 8] = [
    file_time("7 MB", 7, 156, 45),
    file_time("21 MB", 21, 337, 128),
    file_time("63 MB", 63, 843, 387),
    file_time("98 MB", 98, 1320, 617),
    file_time("200 MB", 200, 2124, 1150),
    file_time("350 MB", 350, 3631, 1762),
    file_time("700 MB", 700, 13_498, 4422),
    file_time("1 GB", 1000, 18_399, 8537),
];

/// Bytes that the traditional program of Palaniappan and Nagaraja moves at once.
pub const TRADITIONAL_BLOCK_BYTES: usize = 4096;

/// A file of table 1 with the times that were measured, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredTime {
    pub file: FileTime,
    pub traditional_ms: f64,
    pub zero_copy_ms: f64,
}

/// The part of the time that the other way saves, in percent.
#[must_use]
pub fn saved_percent(traditional_ms: f64, zero_copy_ms: f64) -> f64 {
    100.0 * (1.0 - zero_copy_ms / traditional_ms)
}

/// Chart of how many times the other way, called `way`, is as fast: ours beside theirs.
#[must_use]
pub fn ratio_chart(way: &str, ours: &[MeasuredTime]) -> String {
    let drawn = ours.iter().map(|time| {
        let ours = time.traditional_ms / time.zero_copy_ms;
        let theirs = f64::from(time.file.traditional_ms) / f64::from(time.file.zero_copy_ms);
        let values = [ours, theirs].map(|value| Some(BarValue::from(value))).into();
        Bar { label: time.file.name.to_owned(), values }
    });
    let drawn: Vec<Bar> = drawn.collect();
    bars(&format!("How many times {way} is as fast"), "ratio", &["ours", "theirs"], &drawn)
}

/// Judges table 1 by the files that were measured; `because` is the reason why one is missing.
#[must_use]
pub fn judge_times(ours: &[MeasuredTime], because: Option<&str>) -> Judgement {
    judge_times_of("sendfile", ours, because)
}

/// Judges table 1 in the JVM itself.
#[must_use]
pub fn judge_java_times(ours: &[MeasuredTime]) -> Judgement {
    judge_times_of("transferTo()", ours, None)
}

fn judge_times_of(way: &str, ours: &[MeasuredTime], because: Option<&str>) -> Judgement {
    if ours.is_empty() {
        return missing(because);
    }
    let slower = ours.iter().filter(|time| time.zero_copy_ms >= time.traditional_ms);
    let slower: Vec<&str> = slower.map(|time| time.file.name).collect();
    let saved = ours.iter().map(|time| saved_percent(time.traditional_ms, time.zero_copy_ms));
    let theirs = ours.iter().map(|MeasuredTime { file, .. }| {
        saved_percent(f64::from(file.traditional_ms), f64::from(file.zero_copy_ms))
    });
    let range = |percents: Vec<f64>| {
        let lowest = percents.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = percents.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        format!("{lowest:.0} to {highest:.0} %")
    };
    let (saved, theirs) = (range(saved.collect()), range(theirs.collect()));
    let which = if slower.is_empty() {
        format!("{way} takes less time at each")
    } else {
        format!("{way} takes no less time at {}", slower.join(", "))
    };
    let sentence = format!(
        "{which} of the {} sizes that were measured, of {} in the study: {saved} less (theirs \
         {theirs})",
        ours.len(),
        FILE_TIMES.len(),
    );
    Judgement::of_rule(slower.is_empty(), sentence)
}

/// Costs of the sender for the largest file by one way.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredSwitches {
    pub copies_per_byte: f64,
    /// Switches between user and kernel mode for each MB; `None` where they cannot be counted.
    pub switches_per_mb: Option<f64>,
}

/// Judges copies and switches; `because` is the reason why they could not be counted.
#[must_use]
pub fn judge_switches(
    traditional: Option<MeasuredSwitches>,
    zero_copy: Option<MeasuredSwitches>,
    because: Option<&str>,
) -> Judgement {
    let (Some(traditional), Some(zero_copy)) = (traditional, zero_copy) else {
        return missing(because);
    };
    let (Some(switches), Some(fewer)) = (traditional.switches_per_mb, zero_copy.switches_per_mb)
    else {
        return missing(because);
    };
    let holds = zero_copy.copies_per_byte < traditional.copies_per_byte && fewer < switches;
    Judgement::of_rule(
        holds,
        format!(
            "the sender switches modes {fewer:.1} times for each MB by sendfile and {switches:.1} \
             times by 4 KiB, and {:.0} and {:.0} % of the bytes pass through user space (theirs: \
             half the switches, and half of all copies, also those of the hardware)",
            100.0 * zero_copy.copies_per_byte,
            100.0 * traditional.copies_per_byte,
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_report::study_figure::Verdict::{CameOut, DidNotComeOut, NotMeasured};

    fn measured(file: FileTime, traditional_ms: f64, zero_copy_ms: f64) -> MeasuredTime {
        MeasuredTime { file, traditional_ms, zero_copy_ms }
    }

    #[test]
    fn theirs_are_the_study_s() {
        let shown = FILE_TIMES.map(|file| {
            assert_eq!(file.len_bytes % 1_000_000, 0);
            let megabytes = file.len_bytes / 1_000_000;
            format!("{megabytes} {}/{}", file.traditional_ms, file.zero_copy_ms)
        });
        let expected = "7 156/45; 21 337/128; 63 843/387; 98 1320/617; 200 2124/1150; \
                        350 3631/1762; 700 13498/4422; 1000 18399/8537";
        assert_eq!(shown.join("; "), expected);
    }

    #[test]
    fn table_1_came_out_where_sendfile_takes_less_time_at_each_size() {
        let theirs = FILE_TIMES.map(|file| {
            measured(file, f64::from(file.traditional_ms), f64::from(file.zero_copy_ms))
        });
        let judged = judge_times(&theirs, None);
        assert_eq!(judged.verdict, CameOut);
        let says = "at each of the 8 sizes that were measured, of 8 in the study: 46 to 71 % less \
                    (theirs 46 to 71 %)";
        assert!(judged.sentence.ends_with(says), "{}", judged.sentence);
        let ours = [measured(FILE_TIMES[0], 20.0, 5.0), measured(FILE_TIMES[1], 10.0, 10.0)];
        let judged = judge_times(&ours, None);
        assert_eq!(judged.verdict, DidNotComeOut, "one size is enough");
        let says = "no less time at 21 MB of the 2 sizes that were measured, of 8 in the study: 0 \
                    to 75 % less (theirs 62 to 71 %)";
        assert!(judged.sentence.ends_with(says), "{}", judged.sentence);
        let slower = [measured(FILE_TIMES[0], 5.0, 20.0)];
        assert_eq!(judge_times(&slower, None).verdict, DidNotComeOut);
    }

    #[test]
    fn table_1_without_a_file_is_not_measured() {
        let judged = judge_times(&[], Some("sendfile: no such call"));
        assert_eq!(judged, Judgement::not_measured("sendfile: no such call"));
    }

    #[test]
    fn both_copies_and_switches_have_to_be_fewer() {
        let of = |copies_per_byte, switches| {
            Some(MeasuredSwitches { copies_per_byte, switches_per_mb: Some(switches) })
        };
        let judged = judge_switches(of(1.0, 976.6), of(0.0, 2.0), None);
        assert_eq!(judged.verdict, CameOut);
        let says = "2.0 times for each MB by sendfile and 976.6 times by 4 KiB, and 0 and 100 %";
        assert!(judged.sentence.contains(says), "{}", judged.sentence);
        let did_not = |one, other| judge_switches(one, other, None).verdict == DidNotComeOut;
        assert!(did_not(of(0.0, 976.6), of(0.0, 2.0)), "as many copies");
        assert!(did_not(of(1.0, 2.0), of(0.0, 2.0)), "as many switches");
        assert!(did_not(of(0.0, 9.0), of(1.0, 2.0)), "more copies");
        assert!(did_not(of(1.0, 2.0), of(0.0, 9.0)), "more switches");
        let uncounted = Some(MeasuredSwitches { copies_per_byte: 0.0, switches_per_mb: None });
        let judged = judge_switches(of(1.0, 9.0), uncounted, Some("needs a tracepoint"));
        assert_eq!((judged.verdict, &judged.sentence[..]), (NotMeasured, "needs a tracepoint"));
        assert_eq!(judge_switches(uncounted, of(1.0, 9.0), None).verdict, NotMeasured);
        assert_eq!(judge_switches(None, of(1.0, 9.0), None).verdict, NotMeasured);
    }
}
