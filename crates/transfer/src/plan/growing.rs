//! Plan that grows: each shard is there as soon as it is full, while the source is still walked.

use super::{
    cutting::{LargeFiles, STRIPES_MIN, stripe_of},
    line::{Head, Kind, Line, LineRange, Sink},
    plan_file::{Growth, Plan, SHARDS_MAX, VERSION, VERSION_WITH_RANGES, create_anew, shard_path},
    shard::ShardLoad,
};
use crate::locks::{Lock, lock};
use std::{
    fs::{self, File},
    io::{self, BufWriter, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Time between two signs that the plan is still made.
pub(super) const BEAT: Duration = Duration::from_secs(10);
/// Bytes that the first line of a shard has: what it says is known when the shard is full.
const HEAD_BYTES: usize = 512;
/// Part of a shard from which on a file is cut.
const LARGE_OF_SHARD: u64 = 10;

/// Size at which a shard is full: that of its files, or their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardSize {
    /// Bytes of the files.
    pub bytes: u64,
    /// Number of files, links and empty directories.
    pub files: u64,
}

/// The shards of a plan that grows.
pub(super) struct Growing {
    size: ShardSize,
    large_files: LargeFiles,
    source: PathBuf,
    open: Option<Open>,
    loads: Vec<ShardLoad>,
    /// Most shards that may come.
    shards_max: usize,
    shown: Shown,
}

/// A shard that is not full yet, under a hidden name.
struct Open {
    file: BufWriter<File>,
    load: ShardLoad,
    /// Number of the names that count in this shard.
    names: u64,
    has_ranges: bool,
}

impl Growing {
    /// Shows a plan without shards.
    pub fn begin(
        plan: Plan,
        source: &Path,
        (size, large_files): (ShardSize, LargeFiles),
    ) -> io::Result<Self> {
        let (open, loads) = (None, Vec::new());
        let (source, shards_max) = (source.to_owned(), SHARDS_MAX as usize);
        let shown = Shown::begin(plan)?;
        Ok(Self { size, large_files, source, open, loads, shards_max, shown })
    }

    /// Ends the last shard, and says that the plan is whole, but for so many entries that could not
    /// be listed.
    pub fn finish(mut self, failed: u64) -> io::Result<(Plan, Vec<ShardLoad>)> {
        if self.open.is_some() || self.loads.is_empty() {
            self.close()?;
        }
        let plan = self.shown.finish(failed)?;
        Ok((plan, std::mem::take(&mut self.loads)))
    }

    /// Room of the shard that is open, in bytes.
    fn room_bytes(&self) -> u64 {
        let taken = self.open.as_ref().map_or(0, |open| open.load.bytes);
        if self.is_last() { u64::MAX } else { self.size.bytes.saturating_sub(taken) }
    }

    /// Whether no further shard may come: the last one takes all that is left.
    fn is_last(&self) -> bool {
        self.loads.len() + 1 >= self.shards_max
    }

    /// Puts a file that is not cut into this shard or the next one, whichever leaves this one
    /// nearer to its size.
    fn whole(&mut self, line: &Line) -> io::Result<()> {
        let room = self.room_bytes();
        if self.open.is_some() && line.bytes > room && line.bytes - room > room {
            self.close()?;
        }
        self.put(line)?;
        let files = self.open.as_ref().map_or(0, |open| open.load.files);
        let is_full = self.room_bytes() == 0 || files >= self.size.files;
        if is_full && !self.is_last() { self.close() } else { Ok(()) }
    }

    /// Cuts a file at multiples of a stripe, so that each shard is as near to its size as can be.
    fn ranges(&mut self, line: &Line, stripe_bytes: u64) -> io::Result<()> {
        let (mut begin, file_bytes) = (0, line.bytes);
        while begin < file_bytes {
            let room = self.room_bytes();
            let mut due = room.saturating_add(stripe_bytes / 2) / stripe_bytes * stripe_bytes;
            if due == 0 && self.open.is_some() {
                self.close()?;
                continue;
            }
            // A shard that is smaller than a stripe has one.
            due = due.max(stripe_bytes);
            let end = begin.saturating_add(due).min(file_bytes);
            let is_cut = end - begin < file_bytes;
            let range = is_cut.then_some(LineRange { range_begin: begin, file_bytes });
            self.put(&Line { bytes: end - begin, ..line.clone() }.with_range(range))?;
            begin = end;
        }
        if self.room_bytes() == 0 { self.close() } else { Ok(()) }
    }

    fn put(&mut self, line: &Line) -> io::Result<()> {
        if self.open.is_none() {
            self.open = Some(Open::new(&self.hidden_path())?);
        }
        let open = self.open.as_mut().expect("just made");
        serde_json::to_writer(&mut open.file, line)?;
        open.file.write_all(b"\n")?;
        open.load.files += 1;
        open.load.bytes += line.bytes;
        open.names += u64::from(line.begins_name());
        open.has_ranges |= line.range_begin.is_some();
        Ok(())
    }

    /// Gives the open shard its name, and shows it.
    fn close(&mut self) -> io::Result<()> {
        let open = match self.open.take() {
            Some(open) => open,
            None => Open::new(&self.hidden_path())?,
        };
        let number = u32::try_from(self.loads.len() + 1).expect("at most SHARDS_MAX");
        let (load, names) = (open.load, open.names);
        let hidden = self.hidden_path();
        let closed = open.finish(&self.shown.id, number);
        closed
            .and_then(|()| fs::rename(&hidden, shard_path(&self.shown.place, number)))
            // The plan takes its room to say that it is given up.
            .inspect_err(|_| drop(fs::remove_file(&hidden)))?;
        self.loads.push(load);
        self.shown.add(names, load.bytes)
    }

    fn hidden_path(&self) -> PathBuf {
        self.shown.place.join(".shard.jsonl.new")
    }
}

impl Drop for Growing {
    /// Removes the shard that did not come to its end, before the plan says that it was given up:
    /// on a full disk that takes the room which the shard had.
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            // Nothing more is written.
            drop(open.file.into_parts());
            fs::remove_file(self.hidden_path()).ok();
        }
    }
}

impl Sink for Growing {
    fn take(&mut self, line: &Line, _: Option<u32>) -> io::Result<()> {
        let is_large = line.kind == Kind::File && line.bytes > self.size.bytes / LARGE_OF_SHARD;
        if let LargeFiles::Cut { stripe_bytes } = self.large_files
            && is_large
        {
            let stripe_bytes = stripe_bytes.unwrap_or_else(|| stripe_of(&self.source, line));
            if line.bytes >= STRIPES_MIN.saturating_mul(stripe_bytes) {
                return self.ranges(line, stripe_bytes);
            }
        }
        self.whole(line)
    }
}

impl Open {
    fn new(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::new(create_anew(path)?);
        file.write_all(&[b' '; HEAD_BYTES])?;
        Ok(Self { file, load: ShardLoad::default(), names: 0, has_ranges: false })
    }

    /// Writes the first line, and makes the shard durable.
    fn finish(self, plan: &str, shard: u32) -> io::Result<()> {
        let ShardLoad { files, bytes } = self.load;
        let haul_shard = if self.has_ranges { VERSION_WITH_RANGES } else { VERSION };
        let names = (self.names != files).then_some(self.names);
        let head = Head { haul_shard, plan: plan.to_owned(), shard, of: 0, files, bytes, names };
        let mut file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        let mut text = serde_json::to_vec(&head)?;
        assert!(text.len() < HEAD_BYTES, "a first line of {} bytes", text.len());
        // JSON may end in blanks.
        text.resize(HEAD_BYTES - 1, b' ');
        text.push(b'\n');
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&text)?;
        file.sync_all()
    }
}

/// The plan's file, which a thread keeps alive while the plan is made.
struct Shown {
    plan: Arc<Lock<Plan>>,
    id: String,
    place: PathBuf,
    beating: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Shown {
    fn begin(mut plan: Plan) -> io::Result<Self> {
        plan.growing = Some(Growth::default());
        plan.write()?;
        let (id, place) = (plan.id.clone(), plan.place.clone());
        let plan = Arc::new(Lock::new(plan));
        let (alive, is_over) = mpsc::channel::<()>();
        let beaten = Arc::clone(&plan);
        let beat = move || {
            while is_over.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                let mut plan = lock(&beaten);
                if let Some(growth) = &mut plan.growing {
                    growth.beats += 1;
                }
                // Where it cannot be written, the shard that comes next tells so.
                plan.write().ok();
            }
        };
        let thread = thread::Builder::new().name("plan".into()).spawn(beat)?;
        Ok(Self { plan, id, place, beating: Some((alive, thread)) })
    }

    fn add(&mut self, names: u64, bytes: u64) -> io::Result<()> {
        let mut plan = lock(&self.plan);
        plan.shards += 1;
        plan.files += names;
        plan.bytes += bytes;
        plan.write()
    }

    fn finish(&mut self, failed: u64) -> io::Result<Plan> {
        self.stop();
        let mut plan = lock(&self.plan);
        plan.failed = failed;
        let growing = plan.growing.take();
        plan.write().inspect_err(|_| plan.growing = growing)?;
        Ok(plan.clone())
    }

    fn stop(&mut self) {
        if let Some((alive, thread)) = self.beating.take() {
            drop(alive);
            thread.join().ok();
        }
    }
}

impl Drop for Shown {
    /// Says that nobody makes the plan any more, unless it is whole.
    fn drop(&mut self) {
        self.stop();
        let mut plan = lock(&self.plan);
        if let Some(growth) = &mut plan.growing {
            growth.given_up = true;
            plan.write().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{name::Name, plan::plan_file::VERSION_GROWING};

    const MIB: u64 = 1 << 20;
    const CUT: LargeFiles = LargeFiles::Cut { stripe_bytes: Some(MIB) };

    fn plan(place: &Path) -> Plan {
        Plan {
            version: VERSION_GROWING,
            id: "0123456789abcdef".to_owned(),
            source: Name(b"/data".to_vec()),
            targets: vec!["haul://h/".to_owned()],
            shards: 0,
            files: 0,
            bytes: 0,
            rules: None,
            failed: 0,
            growing: None,
            place: place.to_owned(),
        }
    }

    fn file(number: u64, bytes: u64) -> Line {
        let (path, kind) = (Name(format!("f{number:09}").into_bytes()), Kind::File);
        let inode = Some(number);
        let (mtime_s, mtime_ns, ctime_s, ctime_ns) = (7, 9, Some(8), Some(0));
        let (range_begin, file_bytes) = (None, None);
        Line {
            path,
            kind,
            bytes,
            mtime_s,
            mtime_ns,
            ctime_s,
            ctime_ns,
            inode,
            range_begin,
            file_bytes,
        }
    }

    /// Shards of files of these sizes, as they are read back.
    fn grown(sizes: &[u64], size: (u64, u64), files: LargeFiles) -> (Vec<ShardLoad>, Vec<Line>) {
        let place = tempfile::tempdir().unwrap();
        let size = ShardSize { bytes: size.0, files: size.1 };
        let mut growing =
            Growing::begin(plan(place.path()), Path::new("/data"), (size, files)).unwrap();
        for (number, bytes) in (0..).zip(sizes) {
            growing.take(&file(number, *bytes), None).unwrap();
        }
        let (plan, loads) = growing.finish(0).unwrap();
        assert_eq!(Plan::open(place.path()).unwrap(), plan);
        assert_eq!(plan.loads().unwrap(), loads);
        let mut lines = Vec::new();
        for number in 1..=plan.shards {
            plan.shard(number).unwrap();
            let mut shard = crate::plan::shard::Lines::open(&plan, number).unwrap();
            while let Some(line) = shard.next().unwrap() {
                lines.push(line);
            }
        }
        assert_eq!(plan.files, sizes.len() as u64, "a file that is cut is one");
        let names: u64 = (1..=plan.shards).map(|number| plan.names_in(number).unwrap()).sum();
        assert_eq!(names, plan.files);
        assert_eq!(loads.iter().map(|load| load.files).sum::<u64>(), lines.len() as u64);
        assert_eq!(plan.bytes, sizes.iter().sum::<u64>());
        (loads, lines)
    }

    #[test]
    fn shards_are_full_within_five_percent_but_for_the_last() {
        let mixed: Vec<u64> =
            (0..2000).map(|n: u64| (n.wrapping_mul(0x9e37_79b9) >> 7) % (30 * MIB)).collect();
        let huge = [700 * MIB, 5, 4000 * MIB + 77, 3 * MIB, 999 * MIB];
        for sizes in [&mixed[..], &huge[..], &[64 * MIB; 100][..]] {
            let (loads, _) = grown(sizes, (640 * MIB, u64::MAX), CUT);
            assert!(loads.len() > 7, "{loads:?}");
            for load in &loads[..loads.len() - 1] {
                let part = load.bytes as f64 / (640 * MIB) as f64;
                assert!((part - 1.0).abs() < 0.05, "{part} of {loads:?}");
            }
        }
        let (loads, _) = grown(&[0; 1001], (MIB, 100), CUT);
        let files: Vec<u64> = loads.iter().map(|load| load.files).collect();
        assert_eq!(files, [[100; 10].as_slice(), &[1]].concat());
    }

    #[test]
    fn every_byte_is_in_one_shard_in_the_order_of_the_walk() {
        let sizes = [3 * MIB, 900 * MIB + 11, 0, 77, 64 * MIB];
        for (large, counts) in [(CUT, [1, 10, 1, 1, 1]), (LargeFiles::Whole, [1; 5])] {
            let (_, lines) = grown(&sizes, (100 * MIB, u64::MAX), large);
            let mut lines = lines.into_iter().peekable();
            for ((number, bytes), count) in (0..).zip(sizes).zip(counts) {
                let (mut at, mut ranges) = (0, 0);
                let path = file(number, bytes).path;
                while let Some(line) = lines.next_if(|line| line.path == path) {
                    if let Some(LineRange { range_begin, file_bytes }) = line.range() {
                        assert!(range_begin.is_multiple_of(MIB) && file_bytes == bytes, "{line:?}");
                        assert_eq!(range_begin, at);
                    }
                    (at, ranges) = (at + line.bytes, ranges + 1);
                }
                assert_eq!((at, ranges), (bytes, count), "{number} {large:?}");
            }
            assert!(lines.next().is_none());
        }
    }

    #[test]
    fn the_last_shard_that_may_be_takes_all_that_is_left() {
        for (large, sizes, last) in [
            (CUT, &[MIB; 12][..], ShardLoad { files: 9, bytes: 9 * MIB }),
            (CUT, &[MIB / 2, 90 * MIB], ShardLoad { files: 1, bytes: 87 * MIB }),
            (LargeFiles::Whole, &[MIB, MIB, 5, MIB], ShardLoad { files: 2, bytes: MIB + 5 }),
        ] {
            let place = tempfile::tempdir().unwrap();
            let how = (ShardSize { bytes: MIB, files: 100 }, large);
            let mut growing = Growing::begin(plan(place.path()), Path::new("/data"), how).unwrap();
            growing.shards_max = 4;
            for (number, bytes) in (0..).zip(sizes) {
                growing.take(&file(number, *bytes), None).unwrap();
            }
            let (plan, loads) = growing.finish(0).unwrap();
            assert_eq!(plan.bytes, sizes.iter().sum::<u64>());
            assert!(loads.len() <= 4, "{loads:?}");
            assert_eq!(*loads.last().unwrap(), last, "{loads:?}");
        }
    }

    #[test]
    fn a_plan_of_nothing_has_a_shard_and_one_that_is_given_up_says_so() {
        let (loads, _) = grown(&[], (MIB, 9), CUT);
        assert_eq!(loads, [ShardLoad::default()]);
        let place = tempfile::tempdir().unwrap();
        let how = (ShardSize { bytes: MIB, files: 2 }, CUT);
        let mut growing = Growing::begin(plan(place.path()), Path::new("/data"), how).unwrap();
        let state = || Plan::open(place.path()).unwrap();
        assert_eq!((state().shards, state().growing), (0, Some(Growth::default())));
        (0..3).for_each(|number| growing.take(&file(number, 9), None).unwrap());
        assert_eq!((state().shards, state().files), (1, 2));
        let hidden = growing.hidden_path();
        assert!(hidden.exists());
        assert!(state().shard(1).is_ok() && state().shard(2).is_err());
        assert!(state().check_whole().is_err());
        drop(growing);
        assert_eq!(state().growing, Some(Growth { beats: 0, given_up: true }));
        assert!(!hidden.exists(), "nobody ends that shard");
        assert!(state().shard(2).is_err(), "nobody knows what would be in it");
    }
}
