//! Figures of Kim's study of media on demand, and the rules that decide whether they came out.

pub mod costs;
pub mod misses;

use super::{Figure, MeasuredBy, Study};
use haul_report::study_figure::StudyName;

const NAME: StudyName =
    StudyName { id: "media-on-demand", title: "Memory-copy reduction for media on demand (2002)" };

pub const STUDY: Study = Study {
    name: NAME,
    source: MEDIA_ON_DEMAND,
    words: "A server of films must keep the deadline of every viewer. The study compares reading \
            through the page cache, with and without read-ahead, direct I/O, and sending the page \
            cache without a copy, which is sendfile today.",
    figures: &[&SINGLE_FILE, &RESPONSE, &SMALL_REQUESTS, &MISSES],
};

pub const SINGLE_FILE: Figure = Figure {
    study: NAME,
    number: "figure 8",
    shows: "the processor time of reading one file by each way of sending",
    rule: "One-copy takes less processor time than two-copy, which reads alike and sends by read \
           and send, warm and cold.",
    theirs: "Theirs is a curve; the numbers behind it are not told.",
    command: "haul bench media --only single-file",
    by: MeasuredBy::Media,
};

pub const RESPONSE: Figure = Figure {
    study: NAME,
    number: "figure 9",
    shows: "the response time by the file's size, by each way of sending",
    rule: "One-copy answers with the largest file before two-copy, which reads alike, warm and \
           cold.",
    theirs: "Theirs are curves; the numbers behind them are not told.",
    command: "haul bench media --only response",
    by: MeasuredBy::Media,
};

pub const SMALL_REQUESTS: Figure = Figure {
    study: NAME,
    number: "figure 10",
    shows: "the time from the disk to the network in requests of 32 KB, by each way of sending",
    rule: "One-copy, which is sendfile, takes less time than read and write, warm and cold.",
    theirs: "Theirs: one-copy takes 5 to 15 % less time.",
    command: "haul bench media --only combinations",
    by: MeasuredBy::Media,
};

pub const MISSES: Figure = Figure {
    study: NAME,
    number: "figure 11",
    shows: "the deadlines that a crowd of viewers saw missed, by each way of sending",
    rule: "In each crowd one-copy misses fewer deadlines than direct, and direct fewer than \
           two-copy, where all read alike; and normal misses fewer with the kernel's read-ahead \
           than without.",
    theirs: "Theirs is the order of the four ways, by 100 viewers within an hour.",
    command: "haul bench media --only crowd",
    by: MeasuredBy::Media,
};

/// Kim, "Memory-copy reduction for networked multimedia in Linux", KICS 2002.
pub const MEDIA_ON_DEMAND: &str =
    "Kim, Memory-copy reduction for networked multimedia in Linux (KICS 2002)";

/// Viewers of Kim's crowd that come in an hour.
pub const CROWD_PER_HOUR: u32 = 100;
pub const CROWD_FILMS: u32 = 30;
/// Bytes of a film of Kim's crowd (MPEG-1).
pub const CROWD_FILM_BYTES: u64 = 300_000_000;
pub const CROWD_RATE_BITS_PER_S: u64 = 1_500_000;
pub const CROWD_PERIOD_S: u64 = 3;
pub const CROWD_PERIODS: u32 = 1000;
/// Spread of the popularity of Kim's films (Zipf's theta).
pub const CROWD_THETA: f64 = 0.271;
/// Bytes that Kim's methods ask of the disk at once, in figure 10.
pub const REQUEST_BYTES: usize = 32 << 10;
