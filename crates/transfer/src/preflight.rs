//! Checks before the first byte (`--preflight`). They look at room, rights, names, limits, the
//! port, clocks, and how both hosts are tuned for the path between them.

use crate::{
    clocks::now_ms,
    events::{Check, CheckVerdict, files_and_directories},
    session::{stages::round, tally::Tally},
    storage::{
        free_space::{free_bytes, target_facts},
        target_place::TargetPlace,
    },
};
use haul_datapath::Host;
use haul_protocol::message::{HostFacts, TargetFacts};
use std::{io, time::Duration};

/// Number of open files below which small files wait for each other.
const OPEN_FILES_MIN: u64 = 1024;
/// Offset between clocks beyond which comparisons of times mislead, and tokens expire early or
/// late.
const CLOCK_OFFSET_MS_MAX: u64 = 2000;
/// Rate that a stream's window should allow; it is likely to be held back by less.
const STREAM_BITS_PER_S_MIN: f64 = 1e9;
/// Share of the free space below which what is left over is worth a word.
const SPACE_LEFT_SHARE_MIN: f64 = 0.05;

/// Facts of a host, as they are now.
#[must_use]
pub fn facts(host: &Host, place: Option<&TargetPlace>) -> HostFacts {
    HostFacts {
        clock_ms: now_ms(),
        kernel: format!("{}.{}", host.kernel.0, host.kernel.1),
        cores: host.cores,
        memory_bytes: host.memory_bytes,
        open_files_max: host.open_files_max,
        locked_bytes_max: host.memlock_limit_bytes,
        receive_buffer_bytes_max: host.receive_buffer_bytes_max,
        send_buffer_bytes_max: host.send_buffer_bytes_max,
        congestion: host.congestion_default.clone(),
        target: place.and_then(target_facts),
    }
}

/// Findings of a client before the first byte.
pub struct Findings<'a> {
    pub sends: bool,
    pub mine: &'a HostFacts,
    /// Facts of the peer's host, with its clock as it was when `heard_ms` stood on this one.
    pub theirs: &'a HostFacts,
    pub heard_ms: u64,
    pub rtt: Duration,
    pub streams: u32,
    /// Time that another connection took to open, as data streams are, or why it failed.
    pub port: &'a io::Result<Duration>,
    pub tally: &'a Tally,
    /// Files that would be replaced.
    pub replaced: u64,
}

impl Findings<'_> {
    /// All checks, in the order in which they matter.
    #[must_use]
    pub fn checks(&self) -> Vec<Check> {
        let target = if self.sends { self.theirs } else { self.mine };
        let mut checks = vec![self.sources()];
        if let Some(target) = &target.target {
            checks.extend([rights(target), self.space(target), self.inodes(target)]);
        }
        checks.extend([self.names(), self.limits(), self.port(), self.clock(), self.buffers()]);
        checks.push(self.congestion());
        checks
    }

    fn sources(&self) -> Check {
        let tally = self.tally;
        let found = files_and_directories(tally.files_total(), tally.offered_directories);
        if tally.failed_files > 0 {
            let failed = format!("{} of {found} would fail", tally.failed_files);
            return check("files", CheckVerdict::Failed, failed, "each is named above");
        }
        let found = match tally.left_out_files {
            0 => format!("{found} can be looked at"),
            left_out => format!("{found}, {left_out} of a kind that is not moved"),
        };
        check("files", CheckVerdict::Ok, found, "")
    }

    fn space(&self, target: &TargetFacts) -> Check {
        let needed = self.tally.planned_bytes;
        let to_write = amount(needed);
        let Some(free) = free_bytes(target) else {
            let system = &target.file_system;
            let found = format!("{to_write} to write; {system} does not say how much is free");
            return check("space", CheckVerdict::Ok, found, "");
        };
        let room = amount(free);
        let found = format!("{to_write} to write, {room} free on {}", target.file_system);
        if needed > free {
            let hint = "free space there, or move less; holes count in full here";
            return check("space", CheckVerdict::Failed, found, hint);
        }
        let left = (free - needed) as f64 / free.max(1) as f64;
        if needed > 0 && left < SPACE_LEFT_SHARE_MIN {
            return check("space", CheckVerdict::Warning, found, "the disk will be all but full");
        }
        check("space", CheckVerdict::Ok, found, "")
    }

    fn inodes(&self, target: &TargetFacts) -> Check {
        // What replaces a file takes one for a while.
        let needed = self.tally.planned_files;
        if target.free_inodes == u64::MAX {
            let found = format!("{} has no fixed number of them", target.file_system);
            return check("inodes", CheckVerdict::Ok, found, "");
        }
        let found = format!("{needed} to make, {} free", target.free_inodes);
        if needed > target.free_inodes {
            let hint = "remove files there, or choose another file system";
            return check("inodes", CheckVerdict::Failed, found, hint);
        }
        check("inodes", CheckVerdict::Ok, found, "")
    }

    fn names(&self) -> Check {
        if self.replaced == 0 {
            return check("names", CheckVerdict::Ok, "nothing would be replaced".into(), "");
        }
        let found = format!("{} would be replaced", counted(self.replaced, "file"));
        let hint = "--dry-run names them, --on-conflict chooses otherwise";
        check("names", CheckVerdict::Warning, found, hint)
    }

    fn limits(&self) -> Check {
        let (mine, theirs) = (self.mine.open_files_max, self.theirs.open_files_max);
        let found = format!("open files: {} here, {} there", limit(mine), limit(theirs));
        if mine.min(theirs) < OPEN_FILES_MIN {
            let hint = "raise it (ulimit -n 65536): small files wait for each other below 1024";
            return check("limits", CheckVerdict::Warning, found, hint);
        }
        check("limits", CheckVerdict::Ok, found, "")
    }

    fn port(&self) -> Check {
        match self.port {
            Ok(time) => {
                let ms = round(time.as_secs_f64() * 1e3, 2);
                let found = format!("a second connection was there in {ms} ms");
                check("port", CheckVerdict::Ok, found, "")
            }
            Err(error) => {
                let hint = "data streams come to the same port: let more than one connection in";
                let found = format!("no second connection: {error}");
                check("port", CheckVerdict::Failed, found, hint)
            }
        }
    }

    fn clock(&self) -> Check {
        let half = u64::try_from(self.rtt.as_millis() / 2).unwrap_or(u64::MAX);
        let theirs_then = self.theirs.clock_ms.saturating_add(half);
        let offset_ms = theirs_then.abs_diff(self.heard_ms);
        let ahead = if theirs_then > self.heard_ms { "ahead" } else { "behind" };
        let found = format!("the server's is {offset_ms} ms {ahead}");
        if offset_ms > CLOCK_OFFSET_MS_MAX {
            let hint = "set the clocks by NTP: times of files are compared";
            return check("clock", CheckVerdict::Warning, found, hint);
        }
        check("clock", CheckVerdict::Ok, found, "")
    }

    /// Check of the windows: one of the socket's buffers goes through in a round trip.
    fn buffers(&self) -> Check {
        let (sender, receiver) =
            if self.sends { (self.mine, self.theirs) } else { (self.theirs, self.mine) };
        let (send, receive) = (sender.send_buffer_bytes_max, receiver.receive_buffer_bytes_max);
        let window = send.min(receive);
        if window == 0 {
            return check("buffers", CheckVerdict::Ok, "not known".into(), "");
        }
        let rtt_s = self.rtt.as_secs_f64().max(1e-6);
        // Half of a buffer holds what is on the wire, the rest what the kernel needs for it.
        let stream = window as f64 / 2.0 * 8.0 / rtt_s;
        let all = stream * f64::from(self.streams.max(1));
        let found = format!(
            "windows of {} KiB and round trips of {} ms let a stream have {} Gbit/s, {} have {}",
            window >> 11,
            round(rtt_s * 1e3, 2),
            round(stream / 1e9, 2),
            self.streams,
            round(all / 1e9, 2),
        );
        if stream < STREAM_BITS_PER_S_MIN {
            let (knob, side) = if send <= receive {
                ("net.ipv4.tcp_wmem", if self.sends { "here" } else { "there" })
            } else {
                ("net.ipv4.tcp_rmem", if self.sends { "there" } else { "here" })
            };
            let hint = format!("raise the last number of {knob} {side}, or take more --streams");
            return check("buffers", CheckVerdict::Warning, found, &hint);
        }
        check("buffers", CheckVerdict::Ok, found, "")
    }

    fn congestion(&self) -> Check {
        let sender = if self.sends { self.mine } else { self.theirs };
        let found = format!("the sender's system has {}", sender.congestion);
        check("congestion", CheckVerdict::Ok, found, "")
    }
}

fn rights(target: &TargetFacts) -> Check {
    if target.read_only {
        let found = format!("the file system ({}) is read-only", target.file_system);
        return check(
            "rights",
            CheckVerdict::Failed,
            found,
            "remount it writable or choose another",
        );
    }
    if !target.may_write {
        let found = "the target directory may not be written by that user".into();
        return check("rights", CheckVerdict::Failed, found, "check its owner and mode");
    }
    check("rights", CheckVerdict::Ok, "the target directory may be written".into(), "")
}

fn check(name: &str, verdict: CheckVerdict, found: String, hint: &str) -> Check {
    Check { name: name.into(), verdict, found, hint: hint.into() }
}

/// Amount in powers of 1000, as disks are sold.
fn amount(bytes: u64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match units.iter().find(|(unit, _)| bytes as f64 >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / unit),
        None => format!("{bytes} bytes"),
    }
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn limit(number: u64) -> String {
    if number == u64::MAX { "no limit".into() } else { number.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::free_space::NOT_KNOWN;

    fn host() -> HostFacts {
        HostFacts {
            clock_ms: 1_000_000,
            open_files_max: 65_536,
            receive_buffer_bytes_max: 32 << 20,
            send_buffer_bytes_max: 4 << 20,
            target: Some(TargetFacts {
                file_system: "ext4".into(),
                free_bytes: 1000,
                free_inodes: 10,
                read_only: false,
                may_write: true,
            }),
            ..HostFacts::default()
        }
    }

    fn verdicts(
        change: impl Fn(&mut HostFacts, &mut Tally),
        rtt_ms: u64,
    ) -> Vec<(String, CheckVerdict)> {
        let (mut theirs, mut tally) = (host(), Tally::default());
        (tally.planned_bytes, tally.planned_files) = (900, 9);
        change(&mut theirs, &mut tally);
        let findings = Findings {
            sends: true,
            mine: &host(),
            theirs: &theirs,
            heard_ms: 1_000_000 + rtt_ms / 2,
            rtt: Duration::from_millis(rtt_ms),
            streams: 8,
            port: &Ok(Duration::from_millis(rtt_ms)),
            tally: &tally,
            replaced: 0,
        };
        let not_ok = |check: &Check| check.verdict != CheckVerdict::Ok;
        findings.checks().into_iter().filter(not_ok).map(|c| (c.name, c.verdict)).collect()
    }

    #[test]
    fn what_would_fail_and_what_could_be_better_is_found() {
        let target = |facts: &mut HostFacts, change: fn(&mut TargetFacts)| {
            change(facts.target.as_mut().unwrap());
        };
        let found = |name: &str, verdict| vec![(name.to_owned(), verdict)];
        assert_eq!(verdicts(|_, _| (), 1), []);
        let full = verdicts(|facts, _| target(facts, |t| t.free_bytes = 899), 1);
        assert_eq!(full, found("space", CheckVerdict::Failed));
        assert_eq!(verdicts(|facts, _| target(facts, |t| t.free_bytes = NOT_KNOWN), 1), []);
        let nearly = verdicts(|facts, _| target(facts, |t| t.free_bytes = 910), 1);
        assert_eq!(nearly, found("space", CheckVerdict::Warning));
        let inodes = verdicts(|facts, _| target(facts, |t| t.free_inodes = 8), 1);
        assert_eq!(inodes, found("inodes", CheckVerdict::Failed));
        let rights = verdicts(|facts, _| target(facts, |t| t.may_write = false), 1);
        assert_eq!(rights, found("rights", CheckVerdict::Failed));
        let clock = verdicts(|facts, _| facts.clock_ms += 3000, 1);
        assert_eq!(clock, found("clock", CheckVerdict::Warning));
        let files = verdicts(|_, tally| tally.failed_files = 1, 1);
        assert_eq!(files, found("files", CheckVerdict::Failed));
        let limits = verdicts(|facts, _| facts.open_files_max = 256, 1);
        assert_eq!(limits, found("limits", CheckVerdict::Warning));
        // 2 MiB in 100 ms are 0.17 Gbit/s.
        assert_eq!(verdicts(|_, _| (), 100), found("buffers", CheckVerdict::Warning));
    }
}
