//! `haul media --measure` and `haul media capacity`: how many viewers there may be, and why.

use crate::{
    args::{
        LowState,
        media::{LowCapacity, LowMedia},
        usage_problem,
    },
    failure::{ExitStatus, Failure},
    ui,
};
use haul_host::tune::{goal::Goal, goal::Wanted, machine::Machine};
use haul_media::{
    admission::{
        MARGIN,
        capacity::{Capacity, Resource},
    },
    delivery::{METHODS, Method},
    measure::{self, DiskMeasured, MeasureError, ProcessorsMeasured},
    pace::{Pacing, Rate},
};
use haul_transfer::Problem;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// Rates that the report of a measurement names.
const RATES: [u64; 4] = [1_500_000, 4_000_000, 8_000_000, 25_000_000];

/// Bytes of films that a hard disk's cache cannot hold: such caches have up to 512 MB.
const DISK_CACHE_BYTES: u64 = 1 << 30;

/// A measurement as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    /// Path of the root in full: two long names may have the same end.
    root: String,
    method: String,
    /// Time of the measurement (RFC 3339).
    measured: String,
    capacity: Capacity,
}

/// Measures the disk and the processors, and stores the result.
///
/// # Errors
/// If the options make no sense, or the result cannot be stored.
pub(super) fn measure(low: &LowMedia, root: &Path) -> Result<ExitStatus, Failure> {
    let options = low.checked()?;
    let root = &in_full(root)?;
    let path = place(low.method, root, &low.state);
    tell(low, "Measuring the disk, with reads of 64 and 512 KiB beside each other ...");
    let disk = known(low, "disk", measure::disk(root, options.disk_depth));
    tell(low, "Measuring the processors, with 200 streams over loopback ...");
    let processors = known(low, "processors", measure::processors(&options));
    let processors = processors.filter(|found| {
        let is_sound = Capacity { processors: Some(found.cost), ..Capacity::default() }.is_sound();
        if !is_sound {
            not_known(low, "processors", "this system does not tell what time they took");
        }
        is_sound
    });
    let network = low.network.map(|rate| rate.bits_per_s).or_else(card_bits_per_s);
    let capacity = Capacity {
        disk: disk.as_ref().map(|disk| disk.cost),
        processors: processors.map(|found| found.cost),
        network_bits_per_s: network.map(|bits_per_s| bits_per_s as f64),
    };
    let stored = Stored {
        root: root.display().to_string(),
        method: low.method.name().to_owned(),
        measured: Timestamp::now().to_string(),
        capacity,
    };
    store(&path, &stored).map_err(|error| {
        let what = format!("cannot store what was measured in {}", path.display());
        usage_problem(&what, "", &error.to_string(), "name another --state")
    })?;
    let margin = low.margin.map_or(MARGIN, |percent| f64::from(percent) / 100.0);
    let rates = RATES.map(|bits_per_s| Rate { bits_per_s });
    if low.json {
        ui::json::print(&json!({
            "event": "measured", "stored": path, "capacity": capacity,
            "streams": streams_json(&capacity, &rates, options.pacing, margin),
        }));
        return Ok(ExitStatus::AllDone);
    }
    for line in found_words(disk.as_ref(), processors.as_ref(), network) {
        ui::print_to_stdout(&line);
    }
    tell_streams(&capacity, &rates, options.pacing, margin);
    let stored = format!("Stored in {}.", path.display());
    ui::print_to_stdout(&format!("\n{}", ui::printable(&stored)));
    Ok(ExitStatus::AllDone)
}

fn tell(low: &LowMedia, words: &str) {
    if !low.json {
        ui::print_to_stderr(words);
    }
}

/// Result of a part of the measurement; one that cannot be measured is no limit, and it is said
/// why.
fn known<T>(low: &LowMedia, what: &str, measured: Result<T, MeasureError>) -> Option<T> {
    match measured {
        Ok(found) => Some(found),
        Err(error) => {
            let hint = match error {
                MeasureError::TooLittle { .. } => "; 8 MiB of films are needed",
                MeasureError::Io { .. } => "",
            };
            not_known(low, what, &format!("{error}{hint}"));
            None
        }
    }
}

fn not_known(low: &LowMedia, what: &str, why: &str) {
    let why = format!("The {what} could not be measured, so no limit of it is known: {why}.");
    if low.json {
        ui::json::print(&json!({ "event": "not_measured", "what": what, "why": why }));
    } else {
        ui::print_to_stderr(&ui::printable(&why));
    }
}

/// The speed of the fastest card that is up.
fn card_bits_per_s() -> Option<u64> {
    let machine = Machine::live();
    let goal = Goal::of(&machine, &Wanted::default());
    let speeds = goal.cards.iter().filter_map(|card| haul_host::tune::goal::speed(&machine, card));
    speeds.max()
}

fn found_words(
    disk: Option<&DiskMeasured>,
    processors: Option<&ProcessorsMeasured>,
    network: Option<u64>,
) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(disk) = disk {
        let of = |reads_per_s: f64, bytes: u64| {
            format!(
                "{reads_per_s:.0} reads of {} a second ({})",
                ui::units::bytes(bytes),
                ui::units::rate(reads_per_s * bytes as f64 * 8.0 / 1e9),
            )
        };
        lines.push(format!(
            "disk        {}, {}: {:.0} us a read and {:.2} ms a MiB",
            of(disk.short_reads_per_s, disk.short_bytes),
            of(disk.long_reads_per_s, disk.cost.read_bytes),
            disk.cost.per_read_s * 1e6,
            disk.cost.per_byte_s * 1e3 * f64::from(1 << 20),
        ));
        if disk.bytes < DISK_CACHE_BYTES {
            lines.push(format!(
                "            of {} in all: the disk's own cache may hold so little, and be faster \
                than the disk; measure again when there are more films",
                ui::units::bytes(disk.bytes),
            ));
        }
    }
    if let Some(found) = processors {
        lines.push(format!(
            "processors  {:.0} us a stream and period, and {:.0} us a MiB; {} of them",
            found.cost.per_period_s * 1e6,
            found.cost.per_byte_s * 1e6 * f64::from(1 << 20),
            found.cost.processors,
        ));
    }
    lines.push(match network {
        Some(bits_per_s) => {
            format!("network     {}", rate_words(Rate { bits_per_s }))
        }
        None => {
            "network     not known: no card tells its speed, so name it with --network".to_owned()
        }
    });
    lines
}

/// Tells what was measured of a directory.
///
/// # Errors
/// If nothing was measured.
pub(super) fn tell_capacity(low: &LowCapacity) -> Result<ExitStatus, Failure> {
    let Some(mut capacity) = stored(low.method, &low.root, &low.state)? else {
        let what = format!("cannot tell the capacity of {}", low.root.display());
        let needs = "a measurement of this directory by this method";
        let method = low.method.name();
        let hint = format!("run: haul media {} --method {method} --measure", low.root.display());
        return Err(usage_problem(&what, needs, "none", &hint).into());
    };
    if let Some(network) = low.network {
        capacity.network_bits_per_s = Some(network.bits_per_s as f64);
    }
    let pacing = Pacing { period: low.period.0, ..Pacing::default() };
    let margin = low.margin.map_or(MARGIN, |percent| f64::from(percent) / 100.0);
    if low.json {
        ui::json::print(&json!({
            "event": "capacity", "capacity": capacity,
            "streams": streams_json(&capacity, &low.rate, pacing, margin),
        }));
    } else {
        tell_streams(&capacity, &low.rate, pacing, margin);
    }
    Ok(ExitStatus::AllDone)
}

fn streams_json(
    capacity: &Capacity,
    rates: &[Rate],
    pacing: Pacing,
    margin: f64,
) -> Vec<serde_json::Value> {
    let of = |rate: &Rate| {
        let reasons = capacity.reasons(*rate, pacing, margin);
        let by: serde_json::Map<_, _> = reasons
            .iter()
            .map(|(streams, resource)| (resource.name().to_owned(), json!(streams)))
            .collect();
        let least = capacity.streams(*rate, pacing, margin);
        json!({
            "rate_bits_per_s": rate.bits_per_s,
            "streams": least.map(|(streams, _)| streams),
            "limited_by": least.map(|(_, resource)| resource.name()),
            "by": by,
        })
    };
    rates.iter().map(of).collect()
}

fn tell_streams(capacity: &Capacity, rates: &[Rate], pacing: Pacing, margin: f64) {
    ui::print_to_stdout(&format!(
        "\nViewers whose deadlines are kept, with periods of {:.1} s and {:.0} % in hand:\n",
        pacing.period.as_secs_f64(),
        margin * 100.0,
    ));
    ui::print_to_stdout("        rate   viewers  limited by   disk    processors  network");
    for rate in rates {
        let reasons = capacity.reasons(*rate, pacing, margin);
        let of = |wanted: Resource| {
            let found = reasons.iter().find(|(_, resource)| *resource == wanted);
            found.map_or_else(|| "-".to_owned(), |(streams, _)| streams.to_string())
        };
        let (streams, by) = capacity.streams(*rate, pacing, margin).map_or_else(
            || ("-".to_owned(), "nothing known"),
            |(streams, resource)| (streams.to_string(), resource.name()),
        );
        ui::print_to_stdout(&format!(
            "{:>12}  {streams:>8}  {by:<11}  {:<7} {:<11} {}",
            rate_words(*rate),
            of(Resource::Disk),
            of(Resource::Processors),
            of(Resource::Network),
        ));
    }
    ui::print_to_stdout(
        "\nRates are those of sending: a film goes at a quarter more than its average, so viewers \
        of films\nof 4 Mbit/s are those at 5. Each is counted with all reads from the disk; films \
        in the page\ncache cost it none, so there may be more. A viewer who begins needs room for \
        its start-up\nfor a period. What is not known (-) is no limit.",
    );
}

pub(super) fn rate_words(rate: Rate) -> String {
    haul_host::tune::goal::rate_words(rate.bits_per_s)
}

/// Loads what was measured of this directory by this method, if anything was.
///
/// # Errors
/// If it is there and cannot be read.
pub(super) fn stored(
    method: Method,
    root: &Path,
    state: &LowState,
) -> Result<Option<Capacity>, Problem> {
    let root = &in_full(root)?;
    let path = place(method, root, state);
    let what = format!("cannot read what was measured, {}", path.display());
    let problem =
        |found: &str| usage_problem(&what, "", found, "measure again with --measure, or remove it");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let needs = "the right to read it: it is the user's who measured";
            let hint = "measure as the user that serves, or name another --state";
            return Err(usage_problem(&what, needs, &error.to_string(), hint));
        }
        Err(error) => return Err(problem(&error.to_string())),
    };
    let stored: Stored =
        serde_json::from_str(&text).map_err(|error| problem(&error.to_string()))?;
    if !stored.capacity.is_sound() {
        return Err(problem("costs that are negative, endless or nothing at all"));
    }
    Ok((stored.root == root.display().to_string()).then_some(stored.capacity))
}

/// Names of the other methods by which this directory was measured.
pub(super) fn other_methods(method: Method, root: &Path, state: &LowState) -> Vec<&'static str> {
    let others = METHODS.into_iter().filter(|other| *other != method);
    let is_there = |other: &Method| stored(*other, root, state).is_ok_and(|found| found.is_some());
    others.filter(is_there).map(Method::name).collect()
}

fn in_full(root: &Path) -> Result<PathBuf, Problem> {
    fs::canonicalize(root).map_err(|error| {
        let what = format!("cannot find {}", root.display());
        usage_problem(&what, "a directory", &error.to_string(), "")
    })
}

/// Path of the file for a directory and a method, by a name that tells both.
fn place(method: Method, root: &Path, state: &LowState) -> PathBuf {
    let name: String = root
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .copied()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' => char::from(byte).to_string(),
            b'/' => "_".to_owned(),
            byte => format!("%{byte:02x}"),
        })
        .collect();
    // The longest name that file systems take is 255 bytes: its end tells most.
    let start = name.len().saturating_sub(200);
    let directory = state.directory_or_default().join("media");
    directory.join(format!("{}.{}.json", &name[start..], method.name()))
}

fn store(path: &Path, stored: &Stored) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        // The server's key may come to lie beside it.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let text = serde_json::to_string_pretty(stored)? + "\n";
    let beside = path.with_extension("new");
    fs::write(&beside, text)?;
    fs::rename(beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_was_measured_of_a_root_is_not_taken_for_another_whose_long_name_ends_alike() {
        let directory = tempfile::tempdir().unwrap();
        let state = LowState { directory: Some(directory.path().join("state")) };
        let long = "a".repeat(210);
        let [first, second] = ["one", "two"].map(|name| {
            let root = directory.path().join(name).join(&long);
            fs::create_dir_all(&root).unwrap();
            in_full(&root).unwrap()
        });
        let capacity = Capacity { network_bits_per_s: Some(1e9), ..Capacity::default() };
        let method = Method::OneCopy;
        let kept = Stored {
            root: first.display().to_string(),
            method: method.name().to_owned(),
            measured: String::new(),
            capacity,
        };
        assert_eq!(place(method, &first, &state), place(method, &second, &state));
        store(&place(method, &first, &state), &kept).unwrap();
        let found = |root: &Path| stored(method, root, &state).unwrap();
        assert_eq!((found(&first), found(&second)), (Some(capacity), None));
        assert_eq!(other_methods(Method::Direct, &first, &state), ["one-copy"]);
        assert!(other_methods(method, &first, &state).is_empty());
        let mode = fs::metadata(state.directory_or_default()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert_eq!(stored(Method::Direct, &first, &state).unwrap(), None);
        let unsound = Capacity { network_bits_per_s: Some(-1e9), ..capacity };
        store(&place(method, &first, &state), &Stored { capacity: unsound, ..kept }).unwrap();
        assert!(stored(method, &first, &state).is_err());
    }
}
