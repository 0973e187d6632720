//! Figures of Park, Chung et al.'s study of user-level networking, and the rules of their verdicts.
//!
//! The study's figures 8 to 14 are curves; of the numbers behind them those are told here that its
//! text has.

use super::{Figure, MeasuredBy, Study, missing};
use haul_report::{
    study_figure::{Judgement, StudyName},
    units,
};

const NAME: StudyName = StudyName {
    id: "user-level-networking",
    title: "A file send for user-level networking (2005)",
};

pub const STUDY: Study = Study {
    name: NAME,
    source: "Park, Chung et al., Zero-copy file transfer for VIA-based PC clusters (KIISE 2005)",
    words: "The Virtual Interface Architecture, the forerunner of today's RDMA, let programs use a \
            network card without the kernel, but a file had to be copied into the program's memory \
            first. The study adds one call, VipSendFile, with which the card reads the kernel's \
            page cache itself. It took about half the time of TCP's sendfile for files of 1 KB to \
            256 KB, and 0.3 to 0.4 of the processor time of a send with one copy.",
    figures: &[&LATENCY, &BANDWIDTH, &PROCESSOR, &FILE_LATENCY, &FILE_PROCESSOR],
};

const COMMAND_MESSAGES: &str = "haul bench fabric --only messages";
const COMMAND_FILES: &str = "haul bench fabric --only files";

/// Largest file of the study's comparison by size, in bytes.
pub const FILE_BYTES_MAX: u64 = 256 << 10;

pub const LATENCY: Figure = Figure {
    study: NAME,
    number: "latency",
    shows: "the latency of one message by endpoints and by TCP",
    rule: "Endpoints that poll have less latency than TCP at the smallest message.",
    theirs: "Theirs: 8.2 us by hardware VIA, 27 us by TCP, 21.3 us by software VIA.",
    command: COMMAND_MESSAGES,
    by: MeasuredBy::Fabric,
};

pub const BANDWIDTH: Figure = Figure {
    study: NAME,
    number: "bandwidth",
    shows: "the bandwidth of messages by endpoints and by TCP",
    rule: "The best bandwidth of endpoints is higher than TCP's.",
    theirs: "Theirs, on a gigabit network: 112.1 MB/s by hardware VIA, 72.5 by TCP, 90.5 by \
             software VIA.",
    command: COMMAND_MESSAGES,
    by: MeasuredBy::Fabric,
};

pub const PROCESSOR: Figure = Figure {
    study: NAME,
    number: "processor use by message size",
    shows: "the sender's processor time for a message, by its length",
    rule: "Endpoints that sleep take less processor time for a message than TCP at each length.",
    theirs: "Theirs are curves; the numbers behind them are not told.",
    command: COMMAND_MESSAGES,
    by: MeasuredBy::Fabric,
};

pub const FILE_LATENCY: Figure = Figure {
    study: NAME,
    number: "file latency by size",
    shows: "the sender's latency for files by TCP's sendfile, by an endpoint with one copy, and by \
            send_file, which is VipSendFile",
    rule: "send_file takes less time than TCP's sendfile at each size up to 256 KiB.",
    theirs: "Theirs: VipSendFile takes 47 to 52 % less time than TCP's sendfile.",
    command: COMMAND_FILES,
    by: MeasuredBy::Fabric,
};

pub const FILE_PROCESSOR: Figure = Figure {
    study: NAME,
    number: "file processor time by size",
    shows: "the sender's processor time for files by the same three ways",
    rule: "send_file takes less processor time than an endpoint with one copy at each size up to \
           256 KiB.",
    theirs: "Theirs: VipSendFile takes 30 to 40 % of the processor time of VI send and receive, \
             and hardly more for larger files.",
    command: COMMAND_FILES,
    by: MeasuredBy::Fabric,
};

/// A value of endpoints and one of another way, by length in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beside {
    pub len_bytes: u64,
    pub ours: f64,
    pub other: f64,
}

impl Beside {
    fn ratio(&self) -> f64 {
        self.ours / self.other
    }
}

/// Judges the latency, in microseconds.
#[must_use]
pub fn judge_latency(provider: &str, all: &[Beside], because: Option<&str>) -> Judgement {
    let Some(least) = all.iter().min_by_key(|beside| beside.len_bytes) else {
        return missing(because);
    };
    let Beside { len_bytes, ours, other } = *least;
    let sentence = format!(
        "by {provider}, {} take {ours:.2} us by endpoints and {other:.2} us by TCP, {:.2} of it \
         (theirs {:.2})",
        units::bytes_in_words(len_bytes),
        ours / other,
        8.2 / 27.0,
    );
    Judgement::of_rule(ours < other, sentence)
}

/// Judges the bandwidth, in MB/s: the best of each.
#[must_use]
pub fn judge_bandwidth(provider: &str, all: &[Beside], because: Option<&str>) -> Judgement {
    let best = |value: fn(&Beside) -> f64| all.iter().map(value).reduce(f64::max);
    let (Some(ours), Some(other)) = (best(|one| one.ours), best(|one| one.other)) else {
        return missing(because);
    };
    let sentence = format!(
        "by {provider}, at best {ours:.0} MB/s by endpoints and {other:.0} by TCP, {:.2} times as \
         much (theirs {:.2})",
        ours / other,
        112.1 / 72.5,
    );
    Judgement::of_rule(ours > other, sentence)
}

/// Judges processor time or time by length: ours is to be less at each.
fn judge_less(
    all: &[Beside],
    because: Option<&str>,
    sentence: impl FnOnce(&str, f64, f64) -> String,
) -> Judgement {
    let ratios = || all.iter().map(Beside::ratio);
    let (Some(least), Some(most)) = (ratios().reduce(f64::min), ratios().reduce(f64::max)) else {
        return missing(because);
    };
    let not: Vec<String> = all
        .iter()
        .filter(|beside| beside.ours >= beside.other)
        .map(|beside| units::bytes_in_words(beside.len_bytes))
        .collect();
    let where_ = if not.is_empty() {
        format!("less at each of {} sizes", all.len())
    } else {
        format!("no less at {} of {} sizes ({})", not.len(), all.len(), not.join(", "))
    };
    Judgement::of_rule(not.is_empty(), sentence(&where_, least, most))
}

/// Judges the sender's processor time for a message.
#[must_use]
pub fn judge_processor(provider: &str, all: &[Beside], because: Option<&str>) -> Judgement {
    judge_less(all, because, |where_, least, most| {
        format!(
            "by {provider}, endpoints that sleep take {where_}, {least:.2} to {most:.2} of TCP's \
             processor time"
        )
    })
}

/// Judges the sender's time for files: ours is `send_file`, the other one TCP's sendfile.
#[must_use]
pub fn judge_file_latency(provider: &str, all: &[Beside], because: Option<&str>) -> Judgement {
    judge_less(all, because, |where_, least, most| {
        format!(
            "by {provider}, send_file takes {where_}, {least:.2} to {most:.2} of the time of TCP's \
             sendfile (theirs 0.48 to 0.53)"
        )
    })
}

/// Judges the sender's processor time for files: the other one is a send with one copy.
#[must_use]
pub fn judge_file_processor(
    provider: &str,
    all: &[Beside],
    copies: &str,
    because: Option<&str>,
) -> Judgement {
    let growth = all.first().zip(all.last()).map_or_else(String::new, |(first, last)| {
        format!(
            "; {} times as much for {} as for {}",
            units::three_digits(last.ours / first.ours),
            units::bytes_in_words(last.len_bytes),
            units::bytes_in_words(first.len_bytes),
        )
    });
    judge_less(all, because, |where_, least, most| {
        format!(
            "by {provider}, send_file takes {where_}, {least:.2} to {most:.2} of the processor \
             time of a send with one copy (theirs 0.3 to 0.4){growth}; {copies}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_report::study_figure::Verdict::{CameOut, DidNotComeOut, NotMeasured};

    fn beside(len_bytes: u64, ours: f64, other: f64) -> Beside {
        Beside { len_bytes, ours, other }
    }

    #[test]
    fn the_latency_is_judged_at_the_smallest_message() {
        let theirs = [beside(65_536, 9.0, 3.0), beside(4, 8.2, 27.0)];
        let judged = judge_latency("verbs", &theirs, None);
        assert_eq!(judged.verdict, CameOut);
        let says = "by verbs, 4 bytes take 8.20 us by endpoints and 27.00 us by TCP, 0.30 of it \
                    (theirs 0.30)";
        assert_eq!(judged.sentence, says);
        assert_eq!(judge_latency("shm", &[beside(4, 5.0, 5.0)], None).verdict, DidNotComeOut);
        assert_eq!(judge_latency("shm", &[], Some("so")), Judgement::not_measured("so"));
    }

    #[test]
    fn the_bandwidth_is_the_best_of_all_lengths() {
        let judged = judge_bandwidth("tcp", &[beside(4, 1.0, 2.0), beside(8, 112.1, 72.5)], None);
        assert_eq!(judged.verdict, CameOut);
        let says = "at best 112 MB/s by endpoints and 72 by TCP, 1.55 times as much (theirs 1.55)";
        assert!(judged.sentence.ends_with(says), "{}", judged.sentence);
        let judged = judge_bandwidth("tcp", &[beside(4, 3.0, 2.0), beside(8, 5.0, 6.0)], None);
        assert_eq!(judged.verdict, DidNotComeOut);
        assert_eq!(judge_bandwidth("tcp", &[], None).verdict, NotMeasured);
    }

    #[test]
    fn one_length_at_which_endpoints_take_no_less_is_enough() {
        let all = [beside(4, 1.0, 2.0), beside(4096, 3.0, 3.0)];
        for judge in [judge_processor, judge_file_latency] {
            let judged = judge("shm", &all, None);
            assert_eq!(judged.verdict, DidNotComeOut);
            let says = "no less at 1 of 2 sizes (4 KiB), 0.50 to 1.00 of ";
            assert!(judged.sentence.contains(says), "{}", judged.sentence);
            let judged = judge("shm", &all[..1], None);
            assert_eq!(judged.verdict, CameOut);
            assert!(judged.sentence.contains("less at each of 1 sizes"), "{}", judged.sentence);
            assert_eq!(judge("shm", &[], None).verdict, NotMeasured);
        }
    }

    #[test]
    fn the_processor_time_of_files_says_how_it_grows() {
        let all = [beside(1024, 2.0, 4.0), beside(262_144, 5.0, 20.0)];
        let judged = judge_file_processor("verbs", &all, "the card copies", None);
        assert_eq!(judged.verdict, CameOut);
        let says = "less at each of 2 sizes, 0.25 to 0.50 of the processor time of a send with one \
                    copy (theirs 0.3 to 0.4); 2.50 times as much for 256 KiB as for 1 KiB; the \
                    card copies";
        assert!(judged.sentence.ends_with(says), "{}", judged.sentence);
        assert_eq!(judge_file_processor("shm", &[], "", None).verdict, NotMeasured);
    }
}
