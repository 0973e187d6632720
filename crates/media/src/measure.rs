//! Measures what a stream costs here: the disk below a root, and the processors.
//!
//! Two sizes of reads and two rates of streams are enough, as both costs are a fixed part and one a
//! byte. Of several rounds the slowest counts: a promise is made of it.

use std::{
    fs::File,
    io,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{Mode, OFlags};

use crate::admission::capacity::{DiskCost, ProcessorCost};
use crate::{
    delivery::{DiskQueue, Due, Into, Shape},
    pace::{Pacing, Rate},
    policy::{Policy, RateChoice},
    server::{Options, READ_BYTES_MAX, Server},
    viewers::{Crowd, arrivals, watch},
};

const ALIGN_BYTES: u64 = 4096;
/// Bytes of the shorter reads; the longer are those of the server.
const SHORT_READ_BYTES: u64 = 64 << 10;
const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_secs(1);
/// Most directories in which files are looked for.
const DIRECTORIES_MAX: usize = 2_000;
/// Most files that are read, the largest first.
const FILES_MAX: usize = 64;
/// Least bytes of files to measure with: fewer may lie in the disk's own cache.
const BYTES_MIN: u64 = 8 << 20;

/// Outcome of measuring the disk by reads.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskMeasured {
    pub cost: DiskCost,
    pub files: usize,
    pub bytes: u64,
    /// Reads a second, of the short ones and of the long ones.
    pub short_reads_per_s: f64,
    pub long_reads_per_s: f64,
    pub short_bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    #[error("{bytes} bytes of files lie below {root}")]
    TooLittle { root: String, bytes: u64 },
    #[error("{what}: {source}")]
    Io { what: &'static str, source: io::Error },
}

fn io_error(what: &'static str) -> impl Fn(io::Error) -> MeasureError {
    move |source| MeasureError::Io { what, source }
}

/// Reads parts of the files below `root`, past the page cache, for several seconds.
///
/// # Errors
/// Where there is too little to read, or no O_DIRECT or io_uring.
pub fn disk(root: &Path, depth: usize) -> Result<DiskMeasured, MeasureError> {
    let files = largest_files(root);
    let bytes = files.iter().map(|(_, len_bytes)| len_bytes).sum();
    if bytes < BYTES_MIN {
        return Err(MeasureError::TooLittle { root: root.display().to_string(), bytes });
    }
    let open = |(path, len_bytes): &(PathBuf, u64)| {
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty())
            .map(|opened| (Arc::new(File::from(opened)), *len_bytes))
            .map_err(|errno| io_error("cannot open a file with O_DIRECT")(errno.into()))
    };
    let files = files.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let shape = Shape {
        slots: 2 * depth,
        slot_bytes: READ_BYTES_MAX,
        depth,
        quantum: Duration::from_secs(1),
    };
    let mut reader = Reader {
        queue: DiskQueue::new(Into::Slots, shape).map_err(io_error("cannot set up io_uring"))?,
        files,
        bytes,
        random: fastrand::Rng::with_seed(1),
    };
    let (mut short, mut long) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        short = short.min(reader.reads_per_s(SHORT_READ_BYTES)?);
        long = long.min(reader.reads_per_s(READ_BYTES_MAX)?);
    }
    let (per_read_s, per_byte_s) =
        line((SHORT_READ_BYTES as f64, 1.0 / short), (READ_BYTES_MAX as f64, 1.0 / long));
    Ok(DiskMeasured {
        cost: DiskCost {
            per_read_s,
            per_byte_s,
            read_bytes: READ_BYTES_MAX,
            depth: u32::try_from(depth).unwrap_or(u32::MAX),
        },
        files: reader.files.len(),
        bytes,
        short_reads_per_s: short,
        long_reads_per_s: long,
        short_bytes: SHORT_READ_BYTES,
    })
}

/// Line through two points: a fixed part, and one for each of x; neither is less than nothing.
fn line((x1, y1): (f64, f64), (x2, y2): (f64, f64)) -> (f64, f64) {
    let slope = ((y2 - y1) / (x2 - x1)).max(0.0);
    ((y1 - slope * x1).max(0.0), slope)
}

struct Reader {
    queue: DiskQueue,
    files: Vec<(Arc<File>, u64)>,
    bytes: u64,
    random: fastrand::Rng,
}

impl Reader {
    fn reads_per_s(&mut self, len_bytes: u64) -> Result<f64, MeasureError> {
        let failed = io_error("cannot read");
        let depth = self.queue.depth();
        let begun = Instant::now();
        let (mut wanted, mut finished) = (0_u64, 0_u64);
        while begun.elapsed() < ROUND || finished < wanted {
            while begun.elapsed() < ROUND && wanted - finished < depth as u64 {
                let (file, at) = self.somewhere(len_bytes);
                let range = at..at + len_bytes;
                let identity = (0, file.as_raw_fd() as u64);
                self.queue.want(0, &file, identity, range, Due::Sometime);
                wanted += 1;
            }
            self.queue.start().map_err(&failed)?;
            match self.queue.wait().map_err(&failed)? {
                Some(read) => {
                    self.queue.give_back(read.slot);
                    read.outcome.map_err(&failed)?;
                    finished += 1;
                }
                None => break,
            }
        }
        Ok(finished as f64 / begun.elapsed().as_secs_f64())
    }

    /// Random place to read at: each byte of all files is as likely as any other.
    fn somewhere(&mut self, len_bytes: u64) -> (Arc<File>, u64) {
        let mut at = self.random.u64(..self.bytes.max(1));
        for (file, file_bytes) in &self.files {
            if at < *file_bytes {
                let last = file_bytes.saturating_sub(len_bytes);
                let at = at.min(last);
                return (file.clone(), at - at % ALIGN_BYTES);
            }
            at -= file_bytes;
        }
        (self.files[0].0.clone(), 0)
    }
}

fn largest_files(root: &Path) -> Vec<(PathBuf, u64)> {
    let (mut files, mut directories) = (Vec::new(), vec![root.to_owned()]);
    for _ in 0..DIRECTORIES_MAX {
        let Some(directory) = directories.pop() else { break };
        let Ok(entries) = std::fs::read_dir(directory) else { continue };
        for entry in entries.flatten() {
            // Links are not followed.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                directories.push(entry.path());
            } else if metadata.is_file() && metadata.len() > 0 {
                files.push((entry.path(), metadata.len()));
            }
        }
    }
    files.sort_by_key(|(_, len_bytes)| std::cmp::Reverse(*len_bytes));
    files.truncate(FILES_MAX);
    files
}

/// The cost of streams to the processors, by a crowd over loopback.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessorsMeasured {
    pub cost: ProcessorCost,
    pub streams: usize,
    /// Processor time a stream and period, of the slower streams.
    pub slow_s: f64,
    pub fast_s: f64,
}

const STREAMS: usize = 200;
const SLOW: Rate = Rate { bits_per_s: 1_500_000 };
const FAST: Rate = Rate { bits_per_s: 8_000_000 };
const PERIOD: Duration = Duration::from_millis(500);
const PERIODS: u32 = 8;
/// Bytes of the film, enough for the fast streams, start-up and all.
const FILM_BYTES: u64 = 64 << 20;

/// Lets a crowd watch a film for several seconds, by the method that is to be used.
///
/// The film lies in the page cache, or is a hole: a disk is not what is measured. What the client's
/// half of loopback costs is counted as well, so a network card needs less.
///
/// # Errors
/// If no server can be started, or no file made in the directory for temporary files.
pub fn processors(options: &Options) -> Result<ProcessorsMeasured, MeasureError> {
    let root = tempfile::tempdir().map_err(io_error("cannot make a directory"))?;
    let film = File::create(root.path().join("film.mp4"));
    film.and_then(|film| film.set_len(FILM_BYTES)).map_err(io_error("cannot make a film"))?;
    let of_period = |rate| cpu_of_period(root.path(), options, rate);
    let (slow_s, fast_s) = (of_period(SLOW)?, of_period(FAST)?);
    let bytes = |rate: Rate| rate.bytes_in(PERIOD) as f64;
    let (per_period_s, per_byte_s) = line((bytes(SLOW), slow_s), (bytes(FAST), fast_s));
    let processors = thread::available_parallelism().map_or(1, usize::from).min(options.loops);
    let cost = ProcessorCost { per_period_s, per_byte_s, processors: processors as f64 };
    Ok(ProcessorsMeasured { cost, streams: STREAMS, slow_s, fast_s })
}

fn cpu_of_period(root: &Path, options: &Options, rate: Rate) -> Result<f64, MeasureError> {
    let options = Options {
        listen: ([127, 0, 0, 1], 0).into(),
        pacing: Pacing { period: PERIOD, start_up: PERIOD },
        access_log: None,
        ..options.clone()
    };
    let policy = Policy { rate: RateChoice::Fixed(rate), ..Policy::default() };
    let server = Server::start(root, options, policy)
        .map_err(|error| io_error("cannot start a server")(io::Error::other(error)))?;
    let crowd = Crowd {
        address: server.local_addr(),
        targets: vec!["/film.mp4".to_owned()],
        arrivals: arrivals::evenly(STREAMS, PERIOD, 1),
        rate,
        period: PERIOD,
        prebuffer: PERIOD,
        start_up: Duration::ZERO,
        asks_again: None,
        buffer: None,
        time: PERIOD * (PERIODS + 2),
        until: Duration::MAX,
    };
    let watching = thread::spawn(move || watch(&crowd));
    // Not the start-up of those who come.
    thread::sleep(2 * PERIOD);
    let (before, begun) = (server.cpu_time(), Instant::now());
    thread::sleep(PERIOD * (PERIODS - 2));
    let cpu = server.cpu_time().saturating_sub(before).as_secs_f64();
    let periods = begun.elapsed().as_secs_f64() / PERIOD.as_secs_f64();
    let failed = io_error("the crowd failed");
    let seen =
        watching.join().map_err(|_| failed(io::Error::other("it panicked")))?.map_err(&failed)?;
    if seen.streams < STREAMS as u64 {
        return Err(failed(io::Error::other(format!("{} of {STREAMS} came", seen.streams))));
    }
    Ok(cpu / periods / STREAMS as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_its_points_and_not_below_nothing() {
        let (fixed, slope) = line((10.0, 3.0), (30.0, 7.0));
        assert!((fixed - 1.0).abs() < 1e-12 && (slope - 0.2).abs() < 1e-12);
        assert_eq!(line((10.0, 3.0), (30.0, 2.0)), (3.0, 0.0));
        assert_eq!(line((10.0, 1.0), (30.0, 7.0)).0, 0.0);
    }

    #[test]
    fn a_root_without_films_is_told() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("a"), "a").unwrap();
        let error = disk(root.path(), 4).unwrap_err();
        assert!(matches!(error, MeasureError::TooLittle { bytes: 1, .. }), "{error:?}");
    }

    #[test]
    fn larger_files_come_first_and_links_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("below")).unwrap();
        std::fs::write(root.path().join("small"), "a").unwrap();
        std::fs::write(root.path().join("below/large"), "abc").unwrap();
        std::os::unix::fs::symlink("/", root.path().join("out")).unwrap();
        let lens: Vec<u64> = largest_files(root.path()).into_iter().map(|(_, len)| len).collect();
        assert_eq!(lens, [3, 1]);
    }
}
