//! The sender's side of files that are sent while they are written.
//!
//! Looks at each several times a second, offers what it has grown by as a round, and all of it once
//! nothing more is written.
//!
//! A file ends when its writer closes or renames it (inotify(7)), or when nothing was written to it
//! for `--idle`. It is held open from the first look on, so a new name does not lose it. What
//! another host writes to a network file system shows in its size and time only.

use super::{
    context::Context,
    stage::{Found, Offered, Settled, Stage},
};
use crate::{
    events::{Event, FileEnded, Lag},
    file_options::{FileOptions, Recording},
    file_status::FileStatus,
    name::Name,
    problem::Side,
    session::{lag::LagMeter, stages},
    storage::{
        attributes::Attributes,
        source::{Location, SourceEntry, removed_fault},
        temporary::growing::growing_span_bytes,
    },
};
use haul_protocol::{
    FileId,
    file_life::NextStep,
    message::{self, Compared, Fault, FileKind, FileOffer, Growth},
};
use rustix::{
    fs::{Stat, inotify},
    io::Errno,
};
use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    mem::MaybeUninit,
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

/// The most files that are followed at a time; others wait until one of these has ended.
const FILES_MAX: usize = 64;
/// Interval between two looks at the followed files.
const LOOK_EVERY: Duration = Duration::from_millis(80);
/// Longest wait of bytes that fill no span before they go out: they come again with the next that
/// do.
const TAIL_AFTER: Duration = Duration::from_secs(1);
/// The most sizes remembered of a file, for its lag; of more every second one is forgotten.
const SAMPLES_MAX: usize = 512;

/// A step for a file that is followed.
enum Step {
    Offer(Box<SourceEntry>),
    Failed(Fault),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waits for more bytes, or for the file's end.
    Resting,
    /// An offer was asked for, which has no number yet.
    Offering,
    Offered(FileId),
    /// All of the file is read, to be compared with what came.
    Comparing(FileId),
}

struct Followed {
    /// The source as the walk found it: its name, and what comes with it.
    entry: SourceEntry,
    file: Arc<File>,
    /// The watch descriptor of inotify.
    watch: Option<i32>,
    span_bytes: u64,
    size_bytes: u64,
    mtime: (i64, u32),
    changed_at: Instant,
    /// Size of the file at its last settled round; `None`: none has been.
    settled_bytes: Option<u64>,
    /// The file became shorter: what came before is not to be believed.
    anew: bool,
    /// The file's writer closed it, or it has another name.
    ended: bool,
    phase: Phase,
    /// Size of the file in the offer that is out just now.
    offered_bytes: u64,
    growth: Growth,
    /// Bytes counted of the file, as offered and as there from an earlier run.
    counted_bytes: Option<u64>,
    resumed_bytes: Option<u64>,
    /// The receiver's durable bytes, of all files, when the round began.
    durable_before: u64,
    looked_at: Instant,
    /// Sizes of the file, each with the earliest time it may have had it: the look before it was
    /// seen. None is larger than the file is now.
    samples: VecDeque<(Instant, u64)>,
}

/// Memory that a session leaves to the next one of the same run: when each file was looked at last,
/// and the sizes that it had. What is not durable yet was written before the next session began.
pub type Written = BTreeMap<Vec<u8>, (Instant, VecDeque<(Instant, u64)>)>;

pub struct Following {
    recording: Recording,
    attributes: Attributes,
    span_bytes: Option<u64>,
    notify: Option<OwnedFd>,
    files: Vec<Followed>,
    looked_at: Option<Instant>,
    /// The reason why ends are not heard of, until it was told.
    deaf: Option<String>,
    written: Written,
    pub lag: LagMeter,
}

impl Following {
    #[must_use]
    pub fn new(file_options: FileOptions, span_bytes: Option<u64>, written: Written) -> Self {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let notify = inotify::init(flags);
        let deaf = notify.as_ref().err().map(ToString::to_string);
        Self {
            recording: file_options.recording,
            attributes: Attributes::new(file_options.preserve),
            span_bytes,
            notify: notify.ok(),
            files: Vec::new(),
            looked_at: None,
            deaf,
            written,
            lag: LagMeter::default(),
        }
    }

    /// Takes the memory that another session of this run goes on with.
    #[must_use]
    pub fn take_written(&mut self) -> Written {
        let each = |file: &mut Followed| {
            (file.entry.offer.name.clone(), (file.looked_at, std::mem::take(&mut file.samples)))
        };
        self.files.iter_mut().map(each).collect()
    }

    /// Whether a file of this name is followed.
    #[must_use]
    fn holds(&self, name: &[u8]) -> bool {
        self.files.iter().any(|file| file.entry.offer.name == name)
    }

    /// Notes that the writer of the file of this name has closed it.
    fn closed(&mut self, name: &[u8]) {
        let mut files = self.files.iter_mut();
        if let Some(file) = files.find(|file| file.entry.offer.name == name) {
            file.ended = true;
        }
    }

    /// Whether a file is over, by its writer or by idling for long enough, and so small that no
    /// earlier run can have left anything of it: it goes like any other.
    #[must_use]
    fn is_over(&self, entry: &SourceEntry, is_complete: bool) -> bool {
        let size_bytes = entry.offer.size_bytes;
        size_bytes <= growing_span_bytes(size_bytes, self.span_bytes)
            && (is_complete || age_of(mtime_of(entry)) >= self.recording.idle)
    }

    /// Begins to follow a file; `is_complete`: its writer closed it before.
    ///
    /// # Errors
    /// If it cannot be opened, or is another by now.
    fn begin(
        &mut self,
        mut entry: SourceEntry,
        is_complete: bool,
        now: Instant,
    ) -> Result<(), Fault> {
        let opened = entry.hold()?;
        let path = format!("/proc/self/fd/{}", opened.as_raw_fd());
        let flags = inotify::WatchFlags::CLOSE_WRITE | inotify::WatchFlags::MOVE_SELF;
        let watch = self.notify.as_ref().map(|notify| inotify::add_watch(notify, path, flags));
        if let Some(Err(errno)) = watch {
            self.deaf.get_or_insert_with(|| errno.to_string());
        }
        // A name of an inode that is followed under another.
        let watch = watch.and_then(Result::ok);
        entry.offer.holes.clear();
        let (size_bytes, mtime) = (entry.offer.size_bytes, mtime_of(&entry));
        let span_bytes = growing_span_bytes(size_bytes, self.span_bytes);
        let age = age_of(mtime).min(self.recording.idle);
        let changed_at = now.checked_sub(age).unwrap_or(now);
        let before = self.written.remove(&entry.offer.name);
        let (looked_at, mut samples) = before.unwrap_or((changed_at, VecDeque::new()));
        let largest = samples.back().map_or(0, |(_, size)| *size);
        if largest > size_bytes {
            samples.clear();
        }
        if largest != size_bytes {
            samples.push_back((looked_at, size_bytes));
        }
        self.files.push(Followed {
            file: opened,
            watch,
            span_bytes,
            size_bytes,
            mtime,
            changed_at,
            settled_bytes: None,
            anew: false,
            ended: is_complete,
            phase: Phase::Resting,
            offered_bytes: 0,
            growth: Growth::Growing,
            counted_bytes: None,
            resumed_bytes: None,
            durable_before: 0,
            looked_at: now,
            samples,
            entry,
        });
        Ok(())
    }

    /// Makes the event, once, that only silence shows the end of a file.
    fn take_deafness(&mut self) -> Option<Event> {
        let why = self.deaf.take()?;
        let from_to = "inotify -> --idle".into();
        Some(Event::Fallback { side: Side::Source, from_to, why })
    }

    /// Looks at every file and returns the steps to take. `durable_bytes` is what the receiver says
    /// became durable in this session, of all files.
    fn look(&mut self, now: Instant, durable_bytes: u64) -> Vec<Step> {
        let early = |looked: Instant| now.saturating_duration_since(looked) < LOOK_EVERY;
        if self.files.is_empty() || self.looked_at.is_some_and(early) {
            return Vec::new();
        }
        self.looked_at = Some(now);
        self.hear();
        let mut steps = Vec::new();
        let recording = self.recording;
        let open = self.files.iter().filter(|file| matches!(file.phase, Phase::Offered(_))).count();
        let mut gone = Vec::new();
        for (at, file) in self.files.iter_mut().enumerate() {
            match file.look(now) {
                Ok(()) => {}
                // While it is offered, its round ends first.
                Err(_) if file.phase != Phase::Resting => continue,
                Err(fault) => {
                    steps.push(Step::Failed(fault));
                    gone.push(at);
                    continue;
                }
            }
            file.lag(now, durable_bytes, open == 1).into_iter().for_each(|lag| self.lag.see(lag));
            if file.phase == Phase::Resting
                && let Some(mut entry) = file.next_offer(now, recording)
            {
                if entry.offer.growth == Growth::Grown {
                    file.describe(&self.attributes, &mut entry.offer);
                }
                file.phase = Phase::Offering;
                file.durable_before = durable_bytes;
                steps.push(Step::Offer(Box::new(entry)));
            }
        }
        for at in gone.into_iter().rev() {
            let file = self.files.remove(at);
            self.unwatch(&file);
        }
        steps
    }

    /// Reads the pending events of inotify and marks the files that ended.
    fn hear(&mut self) {
        let Some(notify) = &self.notify else { return };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(notify, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    let ends = inotify::ReadFlags::CLOSE_WRITE | inotify::ReadFlags::MOVE_SELF;
                    let missed = event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW);
                    for file in &mut self.files {
                        let is_its = file.watch == Some(event.wd());
                        // What was missed may have been any file's end: the time will tell.
                        file.ended |= is_its && !missed && event.events().intersects(ends);
                    }
                }
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn unwatch(&self, file: &Followed) {
        let others = self.files.iter().any(|other| other.watch == file.watch);
        if let (Some(notify), Some(watch), false) = (&self.notify, file.watch, others) {
            // It may have gone with its file.
            let _ = inotify::remove_watch(notify, watch);
        }
    }

    /// Finds the file whose offer is out now under another number, or the first time.
    fn offered_by(&mut self, offered: &Offered<'_>) -> Option<&mut Followed> {
        let name = &offered.entry.offer.name;
        self.files.iter_mut().find(|followed| match offered.before {
            Some(before) => followed.phase == Phase::Comparing(before),
            None => followed.phase == Phase::Offering && followed.entry.offer.name == *name,
        })
    }

    fn of(&mut self, file: FileId) -> Option<(usize, &mut Followed)> {
        let is_it = |followed: &Followed| {
            [Phase::Offered(file), Phase::Comparing(file)].contains(&followed.phase)
        };
        let at = self.files.iter().position(is_it)?;
        Some((at, &mut self.files[at]))
    }

    /// Takes the bytes that the receiver has of a file before a round. `None` when it is not
    /// followed; else those of an earlier run, told once.
    pub fn resumed(&mut self, file: FileId, bytes: u64, span_bytes: u64) -> Option<u64> {
        let (_, followed) = self.of(file)?;
        followed.span_bytes = span_bytes;
        let is_first = followed.settled_bytes.is_none() && followed.resumed_bytes.is_none();
        if is_first {
            followed.resumed_bytes = Some(bytes);
        }
        Some(if is_first { bytes } else { 0 })
    }

    /// Whether an offer belongs to a file that is followed.
    #[must_use]
    pub fn follows(&self, file: FileId) -> bool {
        let phases = [Phase::Offered(file), Phase::Comparing(file)];
        self.files.iter().any(|followed| phases.contains(&followed.phase))
    }
}

impl Stage for Following {
    /// Takes a file to follow it, unless it is whole and small.
    fn met(&mut self, found: Found, context: &mut Context<'_>) -> Option<Found> {
        let offer = &found.entry.offer;
        if self.holds(&offer.name) {
            if found.is_complete {
                self.closed(&offer.name);
            }
            return None;
        }
        let is_file = offer.kind == FileKind::Regular && offer.device != 0;
        if !is_file || self.is_over(&found.entry, found.is_complete) {
            return Some(found);
        }
        if let Err(fault) = self.begin(*found.entry, found.is_complete, found.now) {
            context.not_offered(fault);
        }
        None
    }

    fn offered(&mut self, offered: &Offered<'_>, context: &mut Context<'_>) {
        let Some(followed) = self.offered_by(offered) else { return };
        let offer = &offered.entry.offer;
        followed.phase = Phase::Offered(offered.file);
        followed.growth = offer.growth;
        followed.offered_bytes = offer.size_bytes;
        if offer.compared == Compared::OtherContent {
            // All of it comes again, also what an earlier run left.
            let resumed = followed.resumed_bytes.as_mut().map_or(0, std::mem::take);
            context.tally.resumed_bytes = context.tally.resumed_bytes.saturating_sub(resumed);
        }
        if let Some(counted) = followed.counted_bytes.replace(offer.size_bytes) {
            context.tally.is_another_round(counted);
        }
    }

    fn settled(&mut self, settled: &mut Settled, context: &mut Context<'_>) {
        let Some((at, followed)) = self.of(settled.file) else { return };
        match &settled.step {
            NextStep::ChangedAgain => followed.changed_again(settled.now),
            NextStep::NextRound => {
                followed.settled_bytes = Some(followed.offered_bytes);
                followed.anew = false;
                followed.resumed_bytes.get_or_insert(0);
                followed.phase = Phase::Resting;
            }
            NextStep::Compare(_) => followed.phase = Phase::Comparing(settled.file),
            _ => {
                let ended = self.files.remove(at);
                self.unwatch(&ended);
                if let Some(lag) = self.lag.end(&settled.entry.offer.name) {
                    context.tell(Event::Lag(lag));
                }
            }
        }
    }

    /// Offers what the files have grown by, and tells the lag.
    fn tick(&mut self, now: Instant, context: &mut Context<'_>) {
        if let Some(deaf) = self.take_deafness() {
            context.tell(deaf);
        }
        // What an earlier run left is counted as durable, too.
        let durable = context.tally.durable_bytes.saturating_sub(context.tally.there_before());
        let steps = self.look(now, durable);
        for lag in self.lag.take(now) {
            context.tell(Event::Lag(lag));
        }
        for step in steps {
            match step {
                Step::Offer(entry) => context.offer(*entry, None),
                Step::Failed(fault) => {
                    let path = fault.path.clone();
                    context.source_failed(fault);
                    context.tell(Event::File(FileEnded::new(path, FileStatus::Failed, 0)));
                }
            }
        }
    }

    fn keeps_some(&self) -> bool {
        !self.files.is_empty()
    }

    fn is_full(&self) -> bool {
        self.files.len() >= FILES_MAX
    }
}

impl Followed {
    /// Looks at the open file: its size, its times, its name.
    ///
    /// # Errors
    /// If it is gone.
    fn look(&mut self, now: Instant) -> Result<(), Fault> {
        let name = &self.entry.offer.name;
        let stat = rustix::fs::fstat(&self.file).map_err(|errno| {
            let what = "cannot be looked at";
            crate::error::io_fault(message::Side::Source, name, what, &errno.into())
        })?;
        if stat.st_nlink == 0 {
            return Err(removed_fault(name));
        }
        self.see(&stat, now);
        self.looked_at = now;
        self.ended |= !self.entry.has_its_name(&stat);
        Ok(())
    }

    fn see(&mut self, stat: &Stat, now: Instant) {
        let size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
        let mtime = (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0));
        // Of its own: chmod(2) changes neither size nor time.
        self.entry.offer.mode = stat.st_mode & 0o7777;
        if (size_bytes, mtime) == (self.size_bytes, self.mtime) {
            return;
        }
        self.changed_at = now;
        if size_bytes < self.size_bytes {
            self.anew = true;
            self.samples.clear();
        }
        if size_bytes != self.size_bytes {
            if self.samples.len() >= SAMPLES_MAX {
                let mut at = 0;
                self.samples.retain(|_| {
                    at += 1;
                    at % 2 == 1
                });
            }
            self.samples.push_back((self.looked_at, size_bytes));
        }
        (self.size_bytes, self.mtime) = (size_bytes, mtime);
    }

    /// Describes a file anew for its last round: owner and extended attributes may have changed
    /// while it was written. Where they cannot be read now, they go as they were.
    fn describe(&self, attributes: &Attributes, offer: &mut FileOffer) {
        if let Ok(stat) = rustix::fs::fstat(&self.file) {
            attributes.describe_owner(&stat, offer);
        }
        if let Ok(xattrs) = attributes.read_xattrs(&self.file) {
            offer.xattrs = xattrs;
        }
    }

    /// Makes the file's next round, or its last, when it is time.
    fn next_offer(&self, now: Instant, recording: Recording) -> Option<SourceEntry> {
        let size_bytes = self.size_bytes;
        let settled = self.settled_bytes.filter(|_| !self.anew);
        let still = now.saturating_duration_since(self.changed_at);
        if self.ended || still >= recording.idle {
            // With every byte there once, what came can be compared; less than a span just comes.
            let is_there = settled == Some(size_bytes) || size_bytes <= self.span_bytes;
            return Some(self.offer(
                size_bytes,
                if is_there { Growth::Grown } else { Growth::Growing },
                recording,
            ));
        }
        let Some(settled) = settled else {
            // As much as there is: an earlier run may have left as much.
            return (size_bytes > 0).then(|| self.offer(size_bytes, Growth::Growing, recording));
        };
        let full_bytes = size_bytes / self.span_bytes * self.span_bytes;
        if full_bytes > settled {
            return Some(self.offer(full_bytes, Growth::Growing, recording));
        }
        let waited = self.first_after(settled).map(|at| now.saturating_duration_since(at));
        let is_due = waited.is_some_and(|waited| waited >= TAIL_AFTER);
        is_due.then(|| self.offer(size_bytes, Growth::Growing, recording))
    }

    fn offer(&self, size_bytes: u64, growth: Growth, recording: Recording) -> SourceEntry {
        let mut entry = self.entry.clone();
        entry.location = Location::Held(self.file.clone());
        entry.size_bytes = size_bytes;
        let offer = &mut entry.offer;
        (offer.size_bytes, offer.growth) = (size_bytes, growth);
        (offer.mtime_s, offer.mtime_ns) = self.mtime;
        let compared = match growth {
            Growth::Growing if self.anew => Compared::OtherContent,
            Growth::Grown if self.settled_bytes == Some(size_bytes) && recording.append_only => {
                Compared::SameContent
            }
            _ => Compared::NotCompared,
        };
        offer.compared = compared;
        entry
    }

    /// Goes on following a file that was written to at what seemed to be its end, or became
    /// shorter.
    fn changed_again(&mut self, now: Instant) {
        self.phase = Phase::Resting;
        self.ended = false;
        self.changed_at = now;
    }

    /// Finds the time when the file was seen with more bytes than these for the first time.
    fn first_after(&self, bytes: u64) -> Option<Instant> {
        self.samples.iter().find(|(_, size)| *size > bytes).map(|(at, _)| *at)
    }

    /// Lag of the file; `None` while the receiver has not said what it holds.
    fn lag(&mut self, now: Instant, durable_bytes: u64, is_alone: bool) -> Option<Lag> {
        let settled = self.settled_bytes.unwrap_or(0);
        let is_heard = self.settled_bytes.or(self.resumed_bytes).is_some()
            || (is_alone && durable_bytes > self.durable_before);
        if !is_heard {
            return None;
        }
        let durable = match self.phase {
            Phase::Offered(_) if is_alone => {
                let there = settled.max(self.resumed_bytes.unwrap_or(0));
                let came = durable_bytes.saturating_sub(self.durable_before);
                (there + came).min(self.offered_bytes).max(settled)
            }
            _ => settled,
        };
        while self.samples.front().is_some_and(|(_, size)| *size <= durable) {
            self.samples.pop_front();
        }
        let bytes = self.size_bytes.saturating_sub(durable);
        let since = self.first_after(durable);
        let seconds = since.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        let path = Name(self.entry.offer.name.clone());
        Some(Lag { path, bytes, seconds: stages::round(seconds, 2) })
    }
}

fn mtime_of(entry: &SourceEntry) -> (i64, u32) {
    (entry.offer.mtime_s, entry.offer.mtime_ns)
}

/// Age of a file's last write, by this host's clock; zero if it is in the future.
fn age_of((seconds, nanoseconds): (i64, u32)) -> Duration {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    let written = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
    SystemTime::now().duration_since(written).unwrap_or_default()
}

#[cfg(test)]
mod tests;
