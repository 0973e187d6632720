//! The study's figures 7 and 8: files from two disks by tuning, and the delays of both disks.
//!
//! The disks are two that the user names, or two image files. Of these one is bound to half of what
//! the long path carries, by a control group: the slow disk's figures are this bench's doing, and
//! what they say is how a slow disk and a tuned network go together.

use super::{Bench, START_MAX, Step};
use crate::{
    GROUP_PREFIX,
    mounts::ImageMount,
    requests::{BenchTuning, StoragePlan},
    workshop::{Residency, Workshop},
};
use anyhow::{Context, Result, bail};
use haul_emulator::Hosts;
use haul_host::control_group::{ControlGroup, DeviceNumber, ReadLimit, WriteLimit};
use haul_scratch::{
    child::{Child, Wanted},
    data_file,
};
use haul_transfer::TOKEN_VARIABLE;
use serde::Serialize;
use serde_json::Value;
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

const KIND: &str = "ext4";
/// Room in an image for the file system itself, in bytes.
const IMAGE_ROOM_BYTES: u64 = 128 << 20;
/// Bytes that the kernel reads ahead at once by default.
const READ_BYTES: u64 = 128 << 10;
const SOURCE: &str = "source.bin";
/// Rate below which a push is given up, in bytes a second.
const RATE_BYTES_PER_S_MIN: u64 = 2 << 20;
/// The steps before and after tuning.
pub(super) const STEPS: [Step; 2] = [Step::Default, Step::Buffers];

/// A disk of the comparison.
struct Disk {
    name: String,
    directory: PathBuf,
    /// Words that bind a program's use of this disk.
    words: Vec<OsString>,
    _group: Option<ControlGroup>,
    // After its group, whose processes are gone by then.
    _mount: Option<ImageMount>,
}

/// A push from one disk after one step, all rounds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Push {
    event: &'static str,
    table: &'static str,
    pub disk: String,
    pub step: Step,
    pub bytes: u64,
    /// Rates of the rounds, in their order.
    pub rounds_gbit_per_s: Vec<f64>,
    pub refused: Option<String>,
}

/// An interval of a disk's course.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Interval {
    pub seconds: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

/// Delays of one direction of a disk over time.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Delays {
    event: &'static str,
    table: &'static str,
    pub disk: String,
    pub operation: &'static str,
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub gbit_per_s: Option<f64>,
    pub intervals: Vec<Interval>,
    pub refused: Option<String>,
}

/// Findings of both figures.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The disks' names, the slow one first where this bench made them.
    pub disks: Vec<String>,
    /// Whether the bench made the disks and bound one of them.
    pub is_made: bool,
    pub pushes: Vec<Push>,
    pub delays: Vec<Delays>,
    pub refused: Option<String>,
}

/// Bytes a second of the slow disk: half of what the link carries.
pub(super) fn slow_bytes_per_s(rate_bits_per_s: u64) -> u64 {
    rate_bits_per_s / 8 / 2
}

/// Measures both figures; a disk that cannot be made is said in the findings.
pub(super) fn measure(
    bench: &Bench<'_>,
    storage: &StoragePlan,
    hosts: &Hosts<'_>,
) -> Result<Found> {
    let mut found = Found { is_made: storage.disks.is_empty(), ..Found::default() };
    let disks = match disks(bench.plan, storage, bench.workshop) {
        Ok(disks) => disks,
        Err(error) => {
            found.refused = Some(format!("{error:#}"));
            return Ok(found);
        }
    };
    found.disks = disks.iter().map(|disk| disk.name.clone()).collect();
    for disk in &disks {
        bench.steps.begin(&format!("delays of the {}", disk.name));
        found.delays.extend(delays(bench, storage, disk)?);
    }
    found.pushes =
        disks.iter().flat_map(|disk| STEPS.map(|step| push(disk, step, storage))).collect();
    for disk in &disks {
        let source = disk.directory.join(SOURCE);
        data_file::make(&source, storage.file_bytes, None, || bench.workshop.go_on())?;
    }
    for _ in 0..bench.plan.rounds {
        for (at, cell) in found.pushes.iter_mut().enumerate() {
            let disk = &disks[at / STEPS.len()];
            bench.steps.begin(&format!("{}, {}", disk.name, cell.step.name()));
            if cell.refused.is_some() {
                continue;
            }
            match one_push(bench, hosts, disk, cell) {
                Ok(rate) => cell.rounds_gbit_per_s.push(rate),
                Err(error) => {
                    bench.workshop.go_on()?;
                    cell.refused = Some(format!("{error:#}"));
                }
            }
        }
    }
    for disk in &disks {
        let _ = fs::remove_file(disk.directory.join(SOURCE));
    }
    Ok(found)
}

fn push(disk: &Disk, step: Step, storage: &StoragePlan) -> Push {
    Push {
        event: "cell",
        table: "storage",
        disk: disk.name.clone(),
        step,
        bytes: storage.file_bytes,
        rounds_gbit_per_s: Vec::new(),
        refused: None,
    }
}

/// The number of pushes and profiles, for the steps that are shown.
pub(super) fn count(plan: &BenchTuning) -> usize {
    plan.storage.as_ref().map_or(0, |_| 2 + 2 * STEPS.len() * plan.rounds as usize)
}

fn disks(plan: &BenchTuning, storage: &StoragePlan, workshop: &Workshop) -> Result<Vec<Disk>> {
    if !storage.disks.is_empty() {
        let named = |directory: &PathBuf| Disk {
            name: directory.display().to_string(),
            directory: directory.clone(),
            words: Vec::new(),
            _group: None,
            _mount: None,
        };
        return Ok(storage.disks.iter().map(named).collect());
    }
    let made = |name: &str, limit: Option<u64>| -> Result<Disk> {
        let place = workshop.path().join(name);
        fs::create_dir(&place)?;
        let mount = ImageMount::new(&place, KIND, 2 * storage.file_bytes + IMAGE_ROOM_BYTES)
            .map_err(|why| anyhow::anyhow!("a disk in an image {why}"))?;
        let directory = mount.path().to_owned();
        let group = limit.map(|limit| bound(&directory, limit)).transpose()?;
        Ok(Disk {
            name: format!("{name} disk"),
            words: group.as_ref().map(ControlGroup::words).unwrap_or_default(),
            directory,
            _group: group,
            _mount: Some(mount),
        })
    };
    let slow = slow_bytes_per_s(plan.rate_bits_per_s);
    Ok(vec![made("slow", Some(slow))?, made("fast", None)?])
}

/// A group whose reads and writes of the disk below `directory` are bound.
fn bound(directory: &Path, bytes_per_s: u64) -> Result<ControlGroup> {
    let device = DeviceNumber::below(Path::new("/"), directory)?;
    let mut group = ControlGroup::new(GROUP_PREFIX);
    let requests = Some((bytes_per_s / READ_BYTES).max(1));
    let reads = ReadLimit { bytes_per_s: Some(bytes_per_s), reads_per_s: requests };
    group.limit_reads(device, reads)?;
    let writes = WriteLimit { bytes_per_s: Some(bytes_per_s), writes_per_s: requests };
    group.limit_writes(device, writes)?;
    Ok(group)
}

/// Delays of writes and of reads, by a probe of the disk.
fn delays(bench: &Bench<'_>, storage: &StoragePlan, disk: &Disk) -> Result<Vec<Delays>> {
    let workshop = bench.workshop;
    let time = format!("{}ms", bench.plan.time.as_millis());
    let mut child = Child::start_behind(&disk.words, workshop.path(), "probe", |command| {
        command.args(["probe", "disk"]).arg(&disk.directory);
        command.args(["--json", "--rounds", "0", "--methods", "direct", "--time", &time]);
        command.args(["--size", &storage.file_bytes.to_string()]);
    })?;
    let mut profiles = Vec::new();
    let time_max = START_MAX + 4 * bench.plan.time;
    for operation in ["write", "read"] {
        let is_it = |line: &Value| {
            if line["event"] == "profile" && line["operation"] == operation {
                return Wanted::This(line.clone());
            }
            if line["event"] == "error" { Wanted::Never } else { Wanted::More }
        };
        let line = child.wait_for(time_max, || workshop.go_on(), is_it)?;
        let refused = line.is_none().then(|| format!("it was not measured: {}", child.errors()));
        profiles.push(read_profile(disk, operation, &line.unwrap_or_default(), refused));
    }
    child.end();
    Ok(profiles)
}

fn read_profile(
    disk: &Disk,
    operation: &'static str,
    line: &Value,
    refused: Option<String>,
) -> Delays {
    let interval = |interval: &Value| {
        let delay = |name: &str| interval["delays"][name].as_f64();
        let seconds = interval["seconds"].as_f64()?;
        Some(Interval { seconds, p50_us: delay("p50_us")?, p99_us: delay("p99_us")? })
    };
    let intervals = line["intervals"].as_array().into_iter().flatten().filter_map(interval);
    let said = line["refused"].as_str().map(str::to_owned);
    Delays {
        event: "cell",
        table: "delays",
        disk: disk.name.clone(),
        operation,
        p50_us: line["delays"]["p50_us"].as_f64(),
        p99_us: line["delays"]["p99_us"].as_f64(),
        gbit_per_s: line["gbit_per_s"].as_f64(),
        intervals: intervals.collect(),
        refused: refused.or(said),
    }
}

/// One push of the cold source over the long path, to a new file that is durable at the end: its
/// rate in Gbit/s.
fn one_push(bench: &Bench<'_>, hosts: &Hosts<'_>, disk: &Disk, cell: &Push) -> Result<f64> {
    let workshop = bench.workshop;
    bench.set(hosts, cell.step)?;
    let source = disk.directory.join(SOURCE);
    if let Some(why) = workshop.bring(&source, cell.bytes, Residency::Cold)? {
        bail!("the source is not cold: {why}");
    }
    let target = workshop.path().join("received");
    let _ = fs::remove_dir_all(&target);
    fs::create_dir(&target)?;
    let (_server, url) = bench.serve(hosts, target.as_os_str())?;
    let token = url.token.as_ref().context("the URL has no token")?.reveal();
    let url = haul_transfer::HaulUrl { token: None, ..url.clone() };
    let words = [hosts.near.words(), disk.words.clone()].concat();
    let mut child = Child::start_behind(&words, workshop.path(), "push", |command| {
        command.arg("push").arg(&source).arg(url.reveal());
        command.args(["--json", "--retry-for", "0s", "--streams", "1"]);
        command.env(TOKEN_VARIABLE, &token);
    })?;
    let time_max = START_MAX + Duration::from_secs(cell.bytes / RATE_BYTES_PER_S_MIN);
    let report = |line: &Value| match line["event"].as_str() {
        Some("report") => Wanted::This(line.clone()),
        Some("error") => Wanted::Never,
        _ => Wanted::More,
    };
    let report = child.wait_for(time_max, || workshop.go_on(), report)?;
    let Some(report) = report else { bail!("it did not arrive: {}", child.errors()) };
    child.end();
    let rate = report["gbit_per_s"].as_f64().filter(|_| report["ok"] == true);
    let rate = rate.context("the push failed")?;
    fs::remove_dir_all(&target).context("the target stays")?;
    Ok(rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn disk() -> Disk {
        let (name, directory) = ("slow disk".to_owned(), PathBuf::new());
        Disk { name, directory, words: Vec::new(), _group: None, _mount: None }
    }

    #[test]
    fn the_slow_disk_gives_half_of_the_link() {
        assert_eq!(slow_bytes_per_s(1_000_000_000), 62_500_000);
    }

    #[test]
    fn a_profile_has_its_delays_over_time_or_a_reason() {
        let delays = |p50: f64| json!({"p50_us": p50, "p99_us": 2.0 * p50, "max_us": 9.0 * p50});
        let line = json!({"delays": delays(30.0), "gbit_per_s": 4.0, "intervals": [
            {"seconds": 0.1, "delays": delays(20.0)}, {"seconds": 0.2, "delays": delays(40.0)}]});
        let read = read_profile(&disk(), "read", &line, None);
        assert_eq!(
            (read.p50_us, read.p99_us, read.gbit_per_s),
            (Some(30.0), Some(60.0), Some(4.0))
        );
        let points: Vec<_> = read.intervals.iter().map(|one| (one.seconds, one.p99_us)).collect();
        assert_eq!(points, [(0.1, 40.0), (0.2, 80.0)]);
        let none = read_profile(&disk(), "read", &Value::Null, Some("it was not".to_owned()));
        assert_eq!((none.p50_us, none.refused.as_deref()), (None, Some("it was not")));
        let refused = json!({"refused": "needs O_DIRECT"});
        let refused = read_profile(&disk(), "read", &refused, None);
        assert_eq!(refused.refused.as_deref(), Some("needs O_DIRECT"));
    }
}
