//! Arguments of `haul bench media`, and their check.

use crate::args::{
    results::LowResults,
    usage_problem,
    values::{Period, parse_rate},
};
use clap::{Args, ValueEnum};
use haul_bench::{
    media::request::{
        Against, BenchMedia, Bounds, CrowdPlan, DISK_SHARES, DiskBound, MediaPart, Variant,
    },
    studies,
};
use haul_host::control_group::ReadLimit;
use haul_media::pace::Rate;
use haul_transfer::{Problem, internals::parse_size};
use std::{path::PathBuf, time::Duration};

/// The study's crowd, made smaller: all that happens in a sixth of the time at six times the
/// rate, so that a period has as many bytes, and for fewer periods.
const PERIOD: Duration = Duration::from_millis(500);
const RATE: Rate = Rate { bits_per_s: 6 * studies::CROWD_RATE_BITS_PER_S };
const PERIODS: u32 = 32;
const USERS: u32 = 100;
const MEAN_GAP: Duration = Duration::from_millis(180);
/// About half of what plays in all periods, as in the study.
const FILM_BYTES: u64 = 10 << 20;
/// Memory of the server with its page cache, in bytes: little beside all films.
const MEMORY_BYTES: u64 = 48 << 20;
/// Memory of the server for the study's own crowd, whose films are 9 GB.
const PAPER_MEMORY_BYTES: u64 = 256 << 20;
/// Less than a server needs to start, in bytes.
const MEMORY_BYTES_MIN: u64 = 16 << 20;
/// The file that is read whole, and that is sent in small requests, in bytes.
const FILE_BYTES: u64 = 256 << 20;
/// The study's figure 9, in bytes.
const SIZES: [u64; 6] = [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];
/// Crowds that each method meets, for a median.
const ROUNDS: u32 = 3;
/// Rounds of what takes little time, for a median.
const SMALL_ROUNDS: u32 = 3;
/// Repeats a study of media on demand: a crowd of viewers, by each way of sending
///
/// Viewers come as a Poisson process, choose films by Zipf's law, and play them at their rate: what
/// is not there when it is to be played is a deadline missed. Each method serves the same crowd
/// from a process of its own, whose disk and memory are bounded (a control group; needs root), so
/// that it is the disk that limits. So did "Memory-copy reduction for networked multimedia in
/// Linux", whose other figures follow: the processor time of reading one file, response times by
/// the file's size, and small requests by each engine.
///
/// Films are random bytes in an image file, made once and removed at the end.
#[derive(Debug, Args)]
pub struct LowBenchMedia {
    /// Only these parts
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub only: Vec<LowMediaPart>,
    /// The study's own crowd: 100 users an hour, 30 films of 300 MB at 1.5 Mbit/s, 1000 periods of
    /// 3 s; a method takes 50 minutes
    #[arg(long)]
    pub paper: bool,
    /// Most viewers that come
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub users: Option<u32>,
    /// Viewers that come in an hour, on average
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub per_hour: Option<u32>,
    /// The time between two viewers, on average; without it 180ms
    #[arg(long, value_name = "TIME", conflicts_with = "per_hour")]
    pub mean_gap: Option<Period>,
    /// How many films there are; without it 30
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub films: Option<u32>,
    /// Bytes of a film; without it 10M
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub film_size: Option<u64>,
    /// Rate that a film plays at, in bits a second; without it 9M
    #[arg(long, value_name = "RATE", value_parser = media_rate)]
    pub rate: Option<Rate>,
    /// How popular films are: the i-th as 1 / i^(1 - THETA); 0 is Zipf's law, 1 makes all alike
    #[arg(long, value_name = "THETA", default_value_t = studies::CROWD_THETA)]
    pub theta: f64,
    /// Periods for which the crowd watches; without it 32
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub periods: Option<u32>,
    /// A period: what a player plays in one has to be there when it begins; without it 500ms
    #[arg(long, value_name = "TIME")]
    pub period: Option<Period>,
    /// Only these methods, such as one-copy,normal-no-readahead; without it those of the study
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub methods: Vec<Variant>,
    /// How often each method meets a crowd; each round has another seed, the same for all methods
    #[arg(long, value_name = "N", default_value_t = ROUNDS)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// The bound of the disk: the share of the bytes that a crowd plays when most of it watches, in
    /// as many reads as these are at the kernel's 128 KiB of read-ahead
    ///
    /// A crowd meets each method once for each share, and what it missed is summed up.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = DISK_SHARES)]
    #[arg(conflicts_with_all = ["read_rate", "reads"])]
    pub disk_share: Vec<f64>,
    /// Bind the disk to these bytes a second and not by a share
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub read_rate: Option<u64>,
    /// Bind the disk to these reads a second, as seeks cost, and not by a share
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub reads: Option<u64>,
    /// The memory of a server with its page cache; without it 48M
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,
    /// Bound neither disk nor memory
    #[arg(long, conflicts_with_all = ["disk_share", "read_rate", "reads", "memory"])]
    pub unbound: bool,
    /// Seed of the random numbers: the same seed is the same crowd
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The file that is read whole; without it 256M
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub file_size: Option<u64>,
    /// Sizes of files for response times, like 64K,1M; without it 64K to 64M
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_size)]
    pub sizes: Vec<u64>,
    /// Directory for the films; without it the current one
    #[arg(long = "dir", value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Take the crowd to another HTTP server: the URL of a page with links to films, or of a film
    ///
    /// Players then hold what they play in three periods, and take no more. Only what viewers see
    /// is told; nothing is bound.
    #[arg(long, value_name = "URL")]
    #[arg(conflicts_with_all = ["methods", "read_rate", "reads", "memory", "unbound", "only"])]
    pub against: Option<String>,
    /// Processes of the server of --against on this host, for their processor time
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "against")]
    pub pid: Vec<u32>,
    #[command(flatten)]
    pub output: LowResults,
}

/// A part of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LowMediaPart {
    /// Deadlines of a crowd of viewers
    Crowd,
    /// Processor time of one file that is read whole
    SingleFile,
    /// Response times by the file's size
    Response,
    /// Small requests, by each engine that sends
    Combinations,
}

impl From<LowMediaPart> for MediaPart {
    fn from(part: LowMediaPart) -> Self {
        match part {
            LowMediaPart::Crowd => Self::Crowd,
            LowMediaPart::SingleFile => Self::SingleFile,
            LowMediaPart::Response => Self::Response,
            LowMediaPart::Combinations => Self::Combinations,
        }
    }
}

impl LowBenchMedia {
    /// Checks the words of `haul bench media`.
    ///
    /// # Errors
    /// Says which argument cannot be taken and why.
    pub fn checked(&self) -> Result<BenchMedia, Problem> {
        let crowd = self.crowd()?;
        let all = LowMediaPart::value_variants();
        let only = if self.only.is_empty() { all } else { &self.only };
        let own_memory = self.or_paper(PAPER_MEMORY_BYTES, MEMORY_BYTES);
        let memory_bytes = self.memory.unwrap_or(own_memory);
        if memory_bytes < MEMORY_BYTES_MIN {
            let needs = format!("{} MiB or more", MEMORY_BYTES_MIN >> 20);
            let hint = "no server starts in less; write it like --memory 48M";
            return Err(usage_problem("cannot take --memory", &needs, "less", hint));
        }
        let bounds = self.bounds(memory_bytes)?;
        let variants =
            if self.methods.is_empty() { Variant::of_study() } else { self.methods.clone() };
        let sizes = if self.sizes.is_empty() { SIZES.to_vec() } else { self.sizes.clone() };
        let file_bytes = self.file_size.unwrap_or(FILE_BYTES);
        if sizes.contains(&0) || file_bytes == 0 {
            let hint = "write them like --sizes 64K,1M and --file-size 256M";
            return Err(usage_problem("cannot take a file", "some bytes", "none", hint));
        }
        Ok(BenchMedia {
            parts: only.iter().copied().map(MediaPart::from).collect(),
            crowd,
            variants,
            rounds: self.rounds,
            small_rounds: self.rounds.max(SMALL_ROUNDS),
            bounds: (!self.unbound).then_some(bounds),
            file_bytes,
            sizes,
            directory: self.directory.clone().unwrap_or_else(|| ".".into()),
            against: self.against.as_deref().map(|url| self.other(url)).transpose()?,
        })
    }

    /// The bounds of a server: by the rule, unless the user named a rate.
    fn bounds(&self, memory_bytes: u64) -> Result<Bounds, Problem> {
        if self.read_rate.is_some() || self.reads.is_some() {
            let reads = ReadLimit { bytes_per_s: self.read_rate, reads_per_s: self.reads };
            return Ok(Bounds { disks: vec![DiskBound::Rates(reads)], memory_bytes });
        }
        let is_share = |share: &f64| share.is_finite() && *share > 0.0;
        if let Some(wrong) = self.disk_share.iter().find(|share| !is_share(share)) {
            let found = wrong.to_string();
            let hint = "write it like --disk-share 0.9; --unbound binds nothing";
            return Err(usage_problem("cannot take --disk-share", "more than 0", &found, hint));
        }
        let disks = self.disk_share.iter().copied().map(DiskBound::Share).collect();
        Ok(Bounds { disks, memory_bytes })
    }

    fn or_paper<T>(&self, paper: T, scaled: T) -> T {
        if self.paper { paper } else { scaled }
    }

    fn crowd(&self) -> Result<CrowdPlan, Problem> {
        let of_hour = |users: u32| Duration::from_secs(3600) / users.max(1);
        let own_gap = self.or_paper(of_hour(studies::CROWD_PER_HOUR), MEAN_GAP);
        let per_hour = self.per_hour.map(of_hour);
        let period = self.period.map(|period| period.0);
        let paper_rate = Rate { bits_per_s: studies::CROWD_RATE_BITS_PER_S };
        let paper_period = Duration::from_secs(studies::CROWD_PERIOD_S);
        let plan = CrowdPlan {
            users: self.users.unwrap_or(self.or_paper(studies::CROWD_PER_HOUR, USERS)),
            mean_gap: self.mean_gap.map(|gap| gap.0).or(per_hour).unwrap_or(own_gap),
            films: self.films.unwrap_or(studies::CROWD_FILMS),
            film_bytes: self
                .film_size
                .unwrap_or(self.or_paper(studies::CROWD_FILM_BYTES, FILM_BYTES)),
            rate: self.rate.unwrap_or(self.or_paper(paper_rate, RATE)),
            theta: self.theta,
            periods: self.periods.unwrap_or(self.or_paper(studies::CROWD_PERIODS, PERIODS)),
            period: period.unwrap_or(self.or_paper(paper_period, PERIOD)),
            seed: self.seed,
        };
        if plan.mean_gap.is_zero() || plan.period.is_zero() {
            let hint = "write them like --mean-gap 360ms and --period 1s";
            return Err(usage_problem("cannot take a time", "more than nothing", "0s", hint));
        }
        if !(0.0..=1.0).contains(&plan.theta) {
            let found = plan.theta.to_string();
            let hint = "0 is Zipf's law, with 1 all films are as popular";
            return Err(usage_problem("cannot take --theta", "0 to 1", &found, hint));
        }
        let of_period = plan.rate.bytes_in(plan.period);
        if plan.film_bytes < 2 * of_period {
            let needs = format!("two periods of {of_period} bytes or more");
            let found = format!("{} bytes", plan.film_bytes);
            let hint = "make films longer, or their --rate or the --period less";
            return Err(usage_problem("cannot take --film-size", &needs, &found, hint));
        }
        Ok(plan)
    }

    fn other(&self, url: &str) -> Result<Against, Problem> {
        let wrong = |found: &str| {
            let needs = "an address like http://host:8080/films/";
            usage_problem("cannot take --against", needs, found, "https is not spoken here")
        };
        let rest = url.strip_prefix("http://").ok_or_else(|| wrong(url))?;
        let (server, path) = rest.split_once('/').unwrap_or((rest, ""));
        if server.is_empty() || url.contains(|sign: char| sign.is_whitespace()) {
            return Err(wrong(url));
        }
        let has_port = server.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let server = if has_port { server.to_owned() } else { format!("{server}:80") };
        Ok(Against { server, path: format!("/{path}"), pids: self.pid.clone() })
    }
}

fn media_rate(text: &str) -> Result<Rate, String> {
    Rate::parse(text).ok_or_else(|| "needs bits a second, such as 1500k or 4.5M".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{LowArgs, LowCommand, bench::LowBenchCommand};
    use clap::Parser;
    use haul_media::delivery::METHODS;

    fn media(words: &[&str]) -> Result<BenchMedia, String> {
        let words = [&["haul", "bench", "media"], words].concat();
        match LowArgs::try_parse_from(words).map_err(|error| error.to_string())?.command {
            LowCommand::Bench(low) => match low.command {
                LowBenchCommand::Media(low) => low.checked().map_err(|error| error.to_string()),
                other => panic!("not of media: {other:?}"),
            },
            other => panic!("not a bench: {other:?}"),
        }
    }

    #[test]
    fn the_paper_s_crowd_is_the_paper_s_and_each_knob_is_its_own() {
        let paper = media(&["--paper"]).unwrap().crowd;
        assert_eq!(paper.time(), Duration::from_secs(3000));
        assert_eq!((paper.mean_gap, paper.users), (Duration::from_secs(36), 100));
        assert_eq!((paper.films, paper.film_bytes), (30, 300_000_000));
        assert_eq!((paper.rate.bits_per_s, paper.theta), (1_500_000, 0.271));
        let own = media(&["--paper", "--films=3", "--per-hour=3600", "--period=2s"]).unwrap().crowd;
        assert_eq!((own.films, own.mean_gap), (3, Duration::from_secs(1)));
        assert_eq!((own.period, own.periods), (Duration::from_secs(2), 1000));
    }

    /// Bytes of a period: the scaled crowd asks for as many as the study's.
    #[test]
    fn a_period_of_the_scaled_crowd_has_as_many_bytes() {
        let (scaled, paper) = (media(&[]).unwrap().crowd, media(&["--paper"]).unwrap().crowd);
        let of_period = |plan: &CrowdPlan| plan.rate.bytes_in(plan.period);
        assert_eq!(of_period(&scaled), of_period(&paper));
    }

    #[test]
    fn every_method_takes_part_and_the_study_s_without_readahead() {
        let names = |words: &[&str]| -> Vec<String> {
            media(words).unwrap().variants.iter().map(|one| one.name()).collect()
        };
        let all = names(&[]);
        assert!(METHODS.iter().all(|method| all.contains(&method.name().to_owned())), "{all:?}");
        assert!(all.contains(&"normal-no-readahead".to_owned()));
        assert_eq!(names(&["--methods=one-copy-no-readahead"]), ["one-copy-no-readahead"]);
        assert!(media(&["--methods=fast"]).unwrap_err().contains("one-copy"));
    }

    #[test]
    fn another_server_has_a_host_a_port_and_a_path() {
        let of = |url: &str| media(&["--against", url]).map(|plan| plan.against.unwrap());
        let plain = of("http://host").unwrap();
        assert_eq!((plain.server.as_str(), plain.path.as_str()), ("host:80", "/"));
        let film = of("http://[::1]:8080/a/b.mp4?rate=2M").unwrap();
        assert_eq!((film.server.as_str(), film.path.as_str()), ("[::1]:8080", "/a/b.mp4?rate=2M"));
        for bad in ["https://host/", "host", "http://", "http://a b/"] {
            assert!(of(bad).is_err(), "{bad}");
        }
        assert!(media(&["--pid=1"]).is_err());
        assert!(media(&["--against=http://a/", "--methods=normal"]).is_err());
    }

    #[test]
    fn what_cannot_be_measured_is_said() {
        for (words, needs) in [
            (&["--theta=2"][..], "0 to 1"),
            (&["--memory=1M"], "16 MiB"),
            (&["--film-size=1M"], "two periods"),
            (&["--period=0s"], "more than nothing"),
            (&["--sizes=0"], "some bytes"),
        ] {
            let why = media(words).unwrap_err();
            assert!(why.contains(needs), "{why}");
        }
        assert_eq!(media(&["--unbound"]).unwrap().bounds, None);
        assert!(media(&["--disk-share=0"]).unwrap_err().contains("more than 0"));
        assert!(media(&["--disk-share=1", "--reads=9"]).is_err());
    }

    #[test]
    fn the_disk_is_bound_by_the_rule_unless_a_rate_is_named() {
        let disks = |words: &[&str]| media(words).unwrap().bounds.unwrap().disks;
        let shares = |shares: &[f64]| shares.iter().copied().map(DiskBound::Share).collect();
        let expected: Vec<DiskBound> = shares(&[0.5, 1.0]);
        assert_eq!(disks(&["--disk-share=0.5,1"]), expected);
        assert_eq!(disks(&[]), shares(&DISK_SHARES));
        let own = ReadLimit { bytes_per_s: None, reads_per_s: Some(9) };
        assert_eq!(disks(&["--reads=9"]), [DiskBound::Rates(own)]);
    }
}
