//! The published studies that these benches repeat, with their own figures.
//!
//! Theirs were measured on other hardware, years ago, over a network: they are the shape of a
//! result, to be looked at beside ours and never mixed with them.

/// Song et al., "Zero-copy for transmission and recording of massive data", JKIECS 2021.
pub const MASSIVE_DATA: &str =
    "Song et al., Zero-copy for transmission and recording of massive data (JKIECS 2021)";

/// Palaniappan and Nagaraja, "Efficient data transfer through zero copy", IBM developerWorks.
pub const EFFICIENT_TRANSFER: &str =
    "Palaniappan and Nagaraja, Efficient data transfer through zero copy (IBM developerWorks)";

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

/// Song et al., table 3 (inside one machine) and figures 12 to 15: what was sent over a network and
/// recorded.
#[derive(Clone, Copy, Debug)]
pub struct Recording {
    pub what: &'static str,
    pub sent_gbit_per_s: Option<f64>,
    pub recorded_gbit_per_s: Option<f64>,
    pub seconds: Option<f64>,
    /// Time after which all had left the sender.
    pub sent_seconds: Option<f64>,
}

pub const RECORDINGS: [Recording; 7] = [
    Recording {
        what: "10 GB, zero-copy, inside one machine",
        sent_gbit_per_s: None,
        recorded_gbit_per_s: None,
        seconds: Some(1.66),
        sent_seconds: None,
    },
    Recording {
        what: "10 GB, read-write, inside one machine",
        sent_gbit_per_s: None,
        recorded_gbit_per_s: None,
        seconds: Some(3.48),
        sent_seconds: None,
    },
    Recording {
        what: "10 GB, read-write, recorded",
        sent_gbit_per_s: Some(42.7),
        recorded_gbit_per_s: Some(13.1),
        seconds: Some(6.54),
        sent_seconds: Some(2.01),
    },
    Recording {
        what: "100 GB, read-write, recorded",
        sent_gbit_per_s: Some(10.2),
        recorded_gbit_per_s: Some(10.3),
        seconds: Some(84.0),
        sent_seconds: None,
    },
    Recording {
        what: "100 GB, zero-copy, recorded",
        sent_gbit_per_s: None,
        recorded_gbit_per_s: Some(11.2),
        seconds: Some(76.9),
        sent_seconds: None,
    },
    Recording {
        what: "100 GB, read-write, to memory only",
        sent_gbit_per_s: None,
        recorded_gbit_per_s: Some(10.3),
        seconds: Some(83.5),
        sent_seconds: None,
    },
    Recording {
        what: "100 GB, zero-copy, to memory only",
        sent_gbit_per_s: None,
        recorded_gbit_per_s: Some(14.2),
        seconds: Some(60.5),
        sent_seconds: None,
    },
];

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

/// Kim, "Memory-copy reduction for networked multimedia in Linux", KICS 2002.
pub const MEDIA_ON_DEMAND: &str =
    "Kim, Memory-copy reduction for networked multimedia in Linux (KICS 2002)";

/// The ways of sending of Kim's figure 11, from the fewest deadlines missed by 100 viewers. Its
/// read-and-write without read-ahead is our method `normal` with `--no-readahead`.
pub const MISSES_ORDER: [&str; 4] = ["one-copy", "direct", "normal", "normal-no-readahead"];

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
