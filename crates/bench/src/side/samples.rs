//! Samples of how many bytes a side has moved, taken several times a second.

use crate::side::{Sample, now_ns};
use haul_datapath::SpanFile;
use haul_sys::TcpInfo;
use rustix::fs::{fstat, major, minor};
use std::{
    net::TcpStream,
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Most samples of a run: a day of them, ten a second.
const SAMPLES_MAX: usize = 864_000;
/// Size of the sectors that the kernel counts, whatever the disk has
/// (Documentation/block/stat.rst).
const SECTOR_BYTES: u64 = 512;
/// The place of "write sectors" in a disk's line of figures (Documentation/block/stat.rst).
const WRITE_SECTORS_FIELD: usize = 6;

/// Count of the bytes that a side has moved so far.
#[derive(Debug)]
pub struct Counted {
    /// Sockets of a sender: the kernel counts their bytes, also where no call returns for long.
    sockets: Vec<TcpStream>,
    /// Bytes of a receiver's spans that are in the file.
    done_bytes: AtomicU64,
    disk: Option<PathBuf>,
}

impl Counted {
    /// Counts the bytes that have left through these sockets.
    pub fn sockets(sockets: Vec<TcpStream>) -> Self {
        Self { sockets, done_bytes: AtomicU64::new(0), disk: None }
    }

    /// Counts the bytes that are told with [`Counted::add`], and those that the disk below has
    /// written.
    pub fn file(file: &SpanFile) -> Self {
        let disk = fstat(file.file()).ok().map(|stat| {
            let (major, minor) = (major(stat.st_dev), minor(stat.st_dev));
            PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"))
        });
        let disk = disk.filter(|_| !file.is_sink());
        Self { sockets: Vec::new(), done_bytes: AtomicU64::new(0), disk }
    }

    pub fn add(&self, bytes: u64) {
        self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn sample(&self) -> Sample {
        let sent = self.sockets.iter().filter_map(|socket| TcpInfo::of(socket).ok());
        let sent_bytes: u64 = sent.map(|info| info.bytes_sent).sum();
        let figures = self.disk.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        Sample {
            at_ns: now_ns(),
            bytes: sent_bytes + self.done_bytes.load(Ordering::Relaxed),
            disk_bytes: figures.as_deref().and_then(written_bytes),
        }
    }
}

fn written_bytes(figures: &str) -> Option<u64> {
    let sectors = figures.split_whitespace().nth(WRITE_SECTORS_FIELD)?.parse::<u64>().ok()?;
    Some(sectors * SECTOR_BYTES)
}

/// Takes samples of a run: at once, then at the interval until it is over, and once more at the
/// end.
pub fn sample_until(over: &AtomicBool, every: Duration, counted: &Counted) -> Vec<Sample> {
    let start = Instant::now();
    let mut samples = vec![counted.sample()];
    while !over.load(Ordering::Acquire) && samples.len() < SAMPLES_MAX {
        // Due times are counted from the start, so that they do not drift.
        let due = every * samples.len() as u32;
        let wait = due.saturating_sub(start.elapsed());
        // Short naps, so that the end is seen soon.
        thread::sleep(wait.min(NAP_MAX));
        if wait <= NAP_MAX {
            samples.push(counted.sample());
        }
    }
    samples.push(counted.sample());
    samples
}

const NAP_MAX: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_written_sectors_are_the_seventh_figure() {
        let figures = "  100 2 300 4  500 6 700 8 9 10 11 12 13 14 15 16 17\n";
        assert_eq!(written_bytes(figures), Some(700 * 512));
        assert_eq!(written_bytes("1 2 3"), None);
    }

    #[test]
    fn what_is_added_is_seen_by_the_next_look() {
        let counted = Counted::file(&SpanFile::sink().unwrap());
        let over = AtomicBool::new(false);
        let samples = thread::scope(|threads| {
            let looking = threads.spawn(|| sample_until(&over, Duration::from_millis(5), &counted));
            counted.add(1000);
            thread::sleep(Duration::from_millis(60));
            counted.add(1000);
            over.store(true, Ordering::Release);
            looking.join().unwrap()
        });
        assert!(samples.len() > 3, "{samples:?}");
        assert!(samples.windows(2).all(|two| two[0].bytes <= two[1].bytes), "{samples:?}");
        assert_eq!(samples.last().unwrap().bytes, 2000);
    }
}
