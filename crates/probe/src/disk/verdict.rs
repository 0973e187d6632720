//! The verdict on a disk: how it is written and read best, what haul takes, what to do.

use super::{plan::Plan, run::Ended, series::Delays};
use crate::{
    disk::{
        report::{Cell, Profile, Profiled},
        setting::{Method, Operation, Setting},
    },
    words,
};
use haul_datapath::{
    WireKind,
    choose::{ReceiveFacts, SendFacts, Source, Target, receive_engine, send_engine},
};
use haul_host::{
    FileSystem, Host,
    block_device::{BlockDevice, Place, Storage},
};
use serde::Serialize;

/// The share of the fastest rate from which a setting is as good: the one with the least memory is
/// named.
const AS_GOOD: f64 = 0.97;
/// The share of the best rate from which another setting is not worth a word.
const NEAR_BEST: f64 = 0.87;
/// The largest share in the page cache with which a read is one of the disk.
const COLD_SHARE_MAX: f64 = 0.1;
/// A delay that a live stream has to bridge, in microseconds.
const STALL_US: f64 = 100_000.0;
/// Block size and depth of haul's own engine (engines/io_uring.rs).
const OWN_RING: (usize, u32) = (1 << 20, 8);
const OWN_DIRECT_BLOCK_BYTES: usize = 4 << 20;

/// The best setting, and how fast it was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Best {
    #[serde(flatten)]
    pub setting: Setting,
    pub bytes_per_s: f64,
    /// Rate that goes on for ever, where a long run fell below its first rate.
    pub sustained_bytes_per_s: Option<f64>,
}

impl Best {
    /// Rate that a long transfer gets.
    #[must_use]
    pub fn lasting_bytes_per_s(&self) -> f64 {
        self.sustained_bytes_per_s.map_or(self.bytes_per_s, |rate| rate.min(self.bytes_per_s))
    }
}

/// The engine that haul takes here by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OwnChoice {
    pub engine: &'static str,
    pub because: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    pub write: Option<Best>,
    pub read: Option<Best>,
    pub haul_writes_by: Option<OwnChoice>,
    pub haul_reads_by: Option<OwnChoice>,
    /// Sentences for the user: the first says it all; the others why, and what to do.
    pub sentences: Vec<String>,
}

/// Findings that a verdict is made of.
#[derive(Clone, Copy, Debug)]
pub struct Found<'found> {
    pub host: &'found Host,
    pub storage: &'found Storage,
    pub file_system: &'found FileSystem,
    pub plan: &'found Plan,
    pub refused: &'found [(Method, String)],
    pub profiles: &'found [Profile],
    pub cells: &'found [Cell],
}

#[must_use]
pub fn of(found: &Found<'_>) -> Verdict {
    let write = found.best(Operation::Write);
    let read = found.best(Operation::Read);
    let (haul_writes_by, haul_reads_by) = (found.haul_writes_by(), found.haul_reads_by());
    let mut sentences = vec![first_sentence(write.as_ref(), read.as_ref(), found)];
    let explained = found.profiled().filter_map(|(_, _, done)| done.explanation.as_ref());
    sentences.extend(explained.map(|explanation| explanation.words.clone()));
    sentences.extend(network_sentence(write.as_ref(), read.as_ref()));
    let choices = [(&write, &haul_writes_by, "write"), (&read, &haul_reads_by, "read")];
    for (best, choice, verb) in choices {
        if let (Some(best), Some(choice)) = (best, choice) {
            sentences.push(choice_sentence(found, best, choice, verb));
        }
    }
    sentences.extend(found.cache_sentences(write.as_ref()));
    sentences.extend(found.stall_sentence(write.as_ref()));
    sentences.extend(found.device_sentences());
    Verdict { write, read, haul_writes_by, haul_reads_by, sentences }
}

fn first_sentence(write: Option<&Best>, read: Option<&Best>, found: &Found<'_>) -> String {
    let subject = match &found.storage.place {
        Place::Memory => "This memory",
        Place::Network => "This network file system",
        Place::Device(_) | Place::Overlay { .. } | Place::Hidden => "This disk",
    };
    let best =
        |best: &Best| format!("{} by {}", words::rate(best.bytes_per_s), best.setting.in_words());
    match (write, read) {
        (Some(write), Some(read)) if write.setting == read.setting => format!(
            "{subject} writes best at {} and reads best at {}, both by {}.",
            words::rate(write.bytes_per_s),
            words::rate(read.bytes_per_s),
            write.setting.in_words()
        ),
        (Some(write), Some(read)) => {
            format!("{subject} writes best at {}, and reads best at {}.", best(write), best(read))
        }
        (Some(write), None) => format!("{subject} writes best at {}.", best(write)),
        (None, Some(read)) => format!("{subject} reads best at {}.", best(read)),
        (None, None) => {
            let why = found.refused.iter().map(|(method, why)| format!("{} {why}", method.name()));
            let failed = found.profiles.iter().filter_map(|profile| {
                Some(format!(
                    "{} {}",
                    profile.setting.method.name(),
                    profile.outcome.as_ref().err()?
                ))
            });
            let why: Vec<String> = why.chain(failed).collect();
            format!("Nothing could be measured: {}.", why.join("; "))
        }
    }
}

fn network_sentence(write: Option<&Best>, read: Option<&Best>) -> Option<String> {
    let bits = |best: &Best| words::bits(best.lasting_bytes_per_s());
    match (write.map(bits), read.map(bits)) {
        (Some(write), Some(read)) => Some(format!(
            "A network faster than {write} waits for it at the receiving end, one faster than \
             {read} at the sending end."
        )),
        (Some(write), None) => {
            Some(format!("A network faster than {write} waits for it at the receiving end."))
        }
        (None, Some(read)) => {
            Some(format!("A network faster than {read} waits for it at the sending end."))
        }
        (None, None) => None,
    }
}

fn choice_sentence(found: &Found<'_>, best: &Best, choice: &OwnChoice, verb: &str) -> String {
    let OwnChoice { engine, because } = choice;
    let operation = if verb == "write" { Operation::Write } else { Operation::Read };
    let mut sentence = format!("haul takes the engine {engine} to {verb} here ({because})");
    if let Some(own) = found.own_rate(operation, engine) {
        let share = own / best.bytes_per_s;
        let percent = (share * 100.0).round();
        sentence += &format!("; the same way was measured at {}", words::gb_per_s(own));
        if share < 1.0 {
            sentence += &format!(", {percent} % of the best");
        }
        if share < NEAR_BEST && best.setting.method != Method::Buffered {
            sentence += ": more streams put more blocks under way (--streams 4)";
        }
    }
    sentence + "."
}

impl Found<'_> {
    fn profiled(&self) -> impl Iterator<Item = (Operation, Setting, &Profiled)> {
        self.profiles.iter().filter_map(|profile| {
            Some((profile.operation, profile.setting, profile.outcome.as_ref().ok()?))
        })
    }

    /// Rates that the settings were measured at.
    fn rates(&self, operation: Operation) -> Vec<(Setting, f64)> {
        let cells = self.cells.iter().filter(|cell| cell.operation == operation);
        let mut rates: Vec<(Setting, f64)> =
            cells.filter_map(|cell| Some((cell.setting, cell.median_bytes_per_s()?))).collect();
        for (of, setting, profiled) in self.profiled() {
            let has_cells = rates.iter().any(|(known, _)| known.method == setting.method);
            let is_cached = profiled.run.cached_share.is_some_and(|share| share > COLD_SHARE_MAX);
            // Memory is all there is of a tmpfs.
            let counts = !is_cached || self.storage.place == Place::Memory;
            if of == operation && !has_cells && counts {
                let run = &profiled.run;
                rates.push(match setting.method {
                    Method::Buffered => (setting, run.durable_bytes_per_s()),
                    Method::IoUring | Method::Direct => (setting, run.bytes_per_s()),
                });
            }
        }
        rates
    }

    fn best(&self, operation: Operation) -> Option<Best> {
        let rates = self.rates(operation);
        let fastest = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let as_good = rates.into_iter().filter(|(_, rate)| *rate >= AS_GOOD * fastest);
        let (setting, bytes_per_s) = as_good.min_by_key(|(setting, _)| cost(setting))?;
        let sustained_bytes_per_s = self.profiled().find_map(|(of, profile, profiled)| {
            let is_same = of == operation && past_cache(profile) == past_cache(setting);
            profiled.course.sustained_bytes_per_s().filter(|_| is_same)
        });
        Some(Best { setting, bytes_per_s, sustained_bytes_per_s })
    }

    /// The rate that was measured of the way that an engine of haul goes.
    fn own_rate(&self, operation: Operation, engine: &str) -> Option<f64> {
        let is_own = |setting: &Setting| match (engine, setting.method) {
            ("io-uring", Method::IoUring) => (setting.block_bytes, setting.depth) == OWN_RING,
            ("direct", Method::Direct) => setting.block_bytes == OWN_DIRECT_BLOCK_BYTES,
            ("io-uring" | "direct", _) => false,
            (_, method) => method == Method::Buffered,
        };
        self.rates(operation).into_iter().find(|(setting, _)| is_own(setting)).map(|found| found.1)
    }

    fn haul_writes_by(&self) -> Option<OwnChoice> {
        let choice = receive_engine(&ReceiveFacts {
            host: self.host,
            wire: WireKind::Tcp,
            target: Target::File(self.file_system.kind),
            size_bytes: self.plan.len_bytes,
            durable: true,
            grows: false,
            digest: true,
            rotational: self.storage.device().and_then(|device| device.rotational),
            forced: None,
        });
        let choice = choice.ok()?;
        Some(OwnChoice { engine: choice.candidates.first()?.name, because: choice.because })
    }

    fn haul_reads_by(&self) -> Option<OwnChoice> {
        let choice = send_engine(&SendFacts {
            host: self.host,
            wire: WireKind::Tcp,
            source: Source::File(self.file_system.kind),
            size_bytes: self.plan.len_bytes,
            resident_share: if self.storage.place == Place::Memory { 1.0 } else { 0.0 },
            digest: true,
            forced: None,
        });
        let choice = choice.ok()?;
        Some(OwnChoice { engine: choice.candidates.first()?.name, because: choice.because })
    }

    /// Sentences about what the page cache makes of the rates.
    fn cache_sentences(&self, write: Option<&Best>) -> Vec<String> {
        let mut sentences = Vec::new();
        let buffered = self.profiled().find(|(operation, setting, _)| {
            *operation == Operation::Write && setting.method == Method::Buffered
        });
        if let (Some((_, _, profiled)), Some(write)) = (buffered, write)
            && write.setting.method != Method::Buffered
        {
            let (rate, sync_s) = (profiled.run.durable_bytes_per_s(), profiled.run.sync_s);
            if rate < NEAR_BEST * write.bytes_per_s {
                sentences.push(format!(
                    "By way of the page cache, with {} of sync at the end, writes reach {}: \
                     programs that write so get no more.",
                    words::seconds(sync_s.unwrap_or(0.0)),
                    words::rate(rate)
                ));
            }
        }
        let is_cached = buffered.is_some() && self.storage.place != Place::Memory;
        if is_cached && self.plan.fits_the_cache() {
            sentences.push(format!(
                "The file of {} fits into the {} of memory that could cache it: without its sync a \
                 rate by way of the page cache may be the memory's. Name a larger --size.",
                words::bytes(self.plan.len_bytes),
                words::bytes(self.plan.cache_bytes)
            ));
        }
        let full = self.profiled().any(|(_, _, profiled)| profiled.run.ended == Ended::DiskFull);
        if full {
            sentences.push(
                "The disk became full before the file was: others write to it too, or it promised \
                 more than it has."
                    .to_owned(),
            );
        }
        sentences
    }

    fn stall_sentence(&self, write: Option<&Best>) -> Option<String> {
        let write = write?;
        let (_, _, profiled) = self.profiled().find(|(operation, setting, _)| {
            *operation == Operation::Write && past_cache(*setting) == past_cache(write.setting)
        })?;
        let longest_us = Delays::of(&profiled.run.series.delays)?.max_us;
        if longest_us < STALL_US {
            return None;
        }
        let arrives = write.lasting_bytes_per_s() * longest_us / 1e6;
        Some(format!(
            "The slowest write took {}, in which {} would arrive at that rate: a live stream needs \
             as much buffer.",
            words::seconds(longest_us / 1e6),
            words::bytes(arrives as u64)
        ))
    }

    fn device_sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        if self.storage.place == Place::Memory {
            sentences.push(
                "There is no disk below: what is written here is gone when the power is."
                    .to_owned(),
            );
        }
        let mut devices: Vec<&BlockDevice> = self.storage.device().into_iter().collect();
        while let Some(device) = devices.pop() {
            if let Some(lost) = device.degraded.filter(|lost| *lost > 0) {
                sentences.push(format!(
                    "The RAID {} lacks {lost} of its disks: it is slower than it could be until \
                     they are replaced.",
                    device.name
                ));
            }
            devices.extend(&device.members);
        }
        sentences
    }
}

fn past_cache(setting: Setting) -> bool {
    setting.method != Method::Buffered
}

/// The cost of a setting: memory under way; the page cache costs a copy of each byte, so it comes
/// last.
fn cost(setting: &Setting) -> (bool, u64) {
    (!past_cache(*setting), setting.block_bytes as u64 * u64::from(setting.depth))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{
        course::{Cliff, Course},
        run::Run,
        series::Recorder,
    };
    use haul_host::FsKind;
    use std::time::Duration;

    const RING: Setting = Setting { method: Method::IoUring, block_bytes: 1 << 20, depth: 8 };
    const DEEP: Setting = Setting { method: Method::IoUring, block_bytes: 4 << 20, depth: 32 };
    const SINGLE: Setting = Setting { method: Method::Direct, block_bytes: 1 << 20, depth: 1 };
    const CACHED: Setting = Setting { method: Method::Buffered, block_bytes: 1 << 20, depth: 1 };

    struct Made {
        host: Host,
        storage: Storage,
        file_system: FileSystem,
        plan: Plan,
        refused: Vec<(Method, String)>,
        profiles: Vec<Profile>,
        cells: Vec<Cell>,
    }

    impl Made {
        fn new() -> Self {
            let file_system = FileSystem {
                kind: FsKind::Ext,
                block_bytes: 4096,
                free_bytes: Some(1 << 40),
                free_inodes: 1,
                read_only: false,
            };
            let storage = Storage {
                file_system: "ext4".to_owned(),
                source: String::new(),
                options: Vec::new(),
                place: Place::Hidden,
            };
            let plan = Plan {
                len_bytes: 10 << 30,
                because: String::new(),
                cache_bytes: 8 << 30,
                free_bytes: Some(1 << 40),
            };
            let (refused, profiles, cells) = (Vec::new(), Vec::new(), Vec::new());
            let host = Host::default();
            Self { host, storage, file_system, plan, refused, profiles, cells }
        }

        fn cell(&mut self, operation: Operation, setting: Setting, rates: &[f64]) {
            let mut cell = Cell::new(operation, setting);
            cell.rates = rates.to_vec();
            self.cells.push(cell);
        }

        /// Adds a profile of a gigabyte in this many seconds.
        fn profile(
            &mut self,
            operation: Operation,
            setting: Setting,
            seconds: f64,
            course: Course,
        ) {
            let mut recorder = Recorder::new(Duration::from_secs(1));
            let at = Duration::from_secs_f64(seconds);
            recorder.finished(at, Duration::from_millis(400), 1_000_000_000);
            let run = Run {
                series: recorder.end(),
                sync_s: (operation == Operation::Write).then_some(1.0),
                ended: Ended::Size,
                cpu_s: 0.1,
                cached_share: None,
            };
            let outcome = Ok(Profiled { run, course, explanation: None });
            self.profiles.push(Profile { operation, setting, outcome });
        }

        fn verdict(&self) -> Verdict {
            of(&Found {
                host: &self.host,
                storage: &self.storage,
                file_system: &self.file_system,
                plan: &self.plan,
                refused: &self.refused,
                profiles: &self.profiles,
                cells: &self.cells,
            })
        }
    }

    #[test]
    fn of_settings_that_are_as_good_the_one_with_the_least_memory_is_the_best() {
        let mut made = Made::new();
        made.cell(Operation::Write, DEEP, &[1.01e9, 1.0e9, 0.2e9]);
        made.cell(Operation::Write, RING, &[0.99e9]);
        made.cell(Operation::Write, SINGLE, &[0.7e9]);
        made.cell(Operation::Read, SINGLE, &[2.0e9]);
        let verdict = made.verdict();
        assert_eq!(verdict.write.unwrap().setting, RING);
        assert_eq!(verdict.read.unwrap().setting, SINGLE);
        let first = &verdict.sentences[0];
        assert!(
            first.starts_with("This disk writes best at 0.99 GB/s (7.92 Gbit/s) by"),
            "{first}"
        );
        assert!(first.contains("blocks of 1 MiB, 8 at a time"), "{first}");
        let network = &verdict.sentences[1];
        assert!(network.contains("faster than 7.92 Gbit/s waits"), "{network}");
        assert_eq!(verdict.haul_writes_by.unwrap().engine, "io-uring");
    }

    #[test]
    fn after_a_cliff_a_network_is_measured_by_what_stays() {
        let mut made = Made::new();
        made.cell(Operation::Write, RING, &[2e9]);
        let cliff = Cliff {
            at_s: 1.0,
            at_bytes: 2_000_000_000,
            before_bytes_per_s: 2e9,
            after_bytes_per_s: 0.5e9,
        };
        made.profile(Operation::Write, RING, 1.0, Course::Cliff(cliff));
        let verdict = made.verdict();
        let best = verdict.write.unwrap();
        assert!((best.lasting_bytes_per_s() - 0.5e9).abs() < 1.0);
        assert!(verdict.sentences[1].contains("4.00 Gbit/s"), "{:?}", verdict.sentences);
        let stall = verdict.sentences.iter().find(|words| words.contains("slowest")).unwrap();
        assert!(stall.contains("400 ms") && stall.contains("191 MiB"), "{stall}");
    }

    #[test]
    fn haul_is_told_where_more_would_be_better() {
        let mut made = Made::new();
        made.cell(Operation::Read, DEEP, &[3e9]);
        made.cell(Operation::Read, RING, &[1.5e9]);
        let sentences = made.verdict().sentences.join(" ");
        assert!(sentences.contains("50 % of the best: more streams"), "{sentences}");
    }

    #[test]
    fn the_page_cache_counts_with_its_sync_and_where_it_is_slower_that_is_said() {
        let mut made = Made::new();
        made.cell(Operation::Write, RING, &[1e9]);
        made.profile(Operation::Write, CACHED, 1.0, Course::Steady);
        let verdict = made.verdict();
        assert_eq!(verdict.write.unwrap().setting, RING);
        let sentences = verdict.sentences.join(" ");
        assert!(sentences.contains("1.00 s of sync at the end, writes reach 0.50 GB/s"));
    }

    #[test]
    fn where_nothing_was_measured_the_reasons_stand_in_the_first_sentence() {
        let mut made = Made::new();
        made.refused.push((Method::IoUring, "needs a disk, found tmpfs".to_owned()));
        let verdict = made.verdict();
        let expected = "Nothing could be measured: io-uring needs a disk, found tmpfs.";
        assert_eq!((verdict.sentences[0].as_str(), verdict.write), (expected, None));
    }

    #[test]
    fn a_raid_that_lost_disks_is_named() {
        let mut made = Made::new();
        let device = BlockDevice {
            name: "md0".to_owned(),
            kind: haul_host::block_device::DeviceKind::Raid,
            model: None,
            level: None,
            degraded: Some(1),
            size_bytes: None,
            rotational: None,
            scheduler: None,
            readahead_bytes: None,
            write_cache: None,
            request_bytes_max: None,
            requests_max: None,
            logical_block_bytes: None,
            members: Vec::new(),
        };
        made.storage.place = Place::Device(Box::new(device));
        let sentences = made.verdict().sentences.join(" ");
        assert!(sentences.contains("md0 lacks 1 of its disks"), "{sentences}");
    }
}
