//! `haul media` as a process of its own, bound as asked, and what it uses.

use super::bed::Bed;
use crate::{GROUP_PREFIX, media::request::Variant, workshop::Workshop};
use anyhow::{Context, Result, bail};
use haul_host::control_group::{ControlGroup, ControlGroupError, DeviceNumber, ReadLimit};
use haul_media::delivery::Readahead;
use haul_scratch::child::{Child, Wanted};
use haul_sys::process_clock::cpu_time_of;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{fs, net::SocketAddr, time::Duration};

/// Longest time that a server may take to start.
const START_MAX: Duration = Duration::from_secs(30);
const END_MAX: Duration = Duration::from_secs(2);

/// Resources that processes have used since they began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Used {
    pub cpu_s: f64,
    /// Bytes read from disks; what the page cache had does not count (proc_pid_io(5)).
    pub read_bytes: u64,
    /// Requests to the disk; `None` where they are not counted.
    pub reads: Option<u64>,
}

impl Used {
    /// Resources that running processes have used, summed up.
    pub fn of(processes: &[u32]) -> Result<Self> {
        let mut used = Self::default();
        for process in processes {
            let cpu = cpu_time_of(*process);
            let cpu = cpu.with_context(|| format!("process {process} has no clock"))?;
            used.cpu_s += cpu.as_secs_f64();
            let io = fs::read_to_string(format!("/proc/{process}/io")).unwrap_or_default();
            used.read_bytes += number_after(&io, "read_bytes:").unwrap_or(0);
        }
        Ok(used)
    }

    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            cpu_s: self.cpu_s - before.cpu_s,
            read_bytes: self.read_bytes - before.read_bytes,
            reads: self.reads.zip(before.reads).map(|(after, before)| after - before),
        }
    }
}

/// Most memory that the processes have had, each for itself, summed up in bytes (VmHWM,
/// proc_pid_status(5)).
pub(super) fn memory_bytes(processes: &[u32]) -> u64 {
    let of = |process: &u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        number_after(&status, "VmHWM:")
    };
    processes.iter().filter_map(of).sum::<u64>() << 10
}

fn number_after(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Figures that the server itself counted.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Counted {
    pub requests: u64,
    pub sent_bytes: u64,
    pub streams: u64,
    pub periods: u64,
    pub misses: u64,
}

/// Limits of one server's disk and memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub reads: ReadLimit,
    pub memory_bytes: u64,
}

#[derive(Debug)]
pub(super) struct MediaServer {
    // Ended before its group can go.
    child: Child,
    group: ControlGroup,
    device: Option<DeviceNumber>,
    pub address: SocketAddr,
}

impl MediaServer {
    /// Starts a server of the bed's directory; what could not be bound is said in `notes`.
    pub fn start(
        workshop: &Workshop,
        bed: &Bed,
        variant: Variant,
        period: Duration,
        limits: Option<&Limits>,
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        let mut group = ControlGroup::new(GROUP_PREFIX);
        let mut device = None;
        if let Some(limits) = limits {
            if let Err(why) = group.limit_memory(limits.memory_bytes) {
                notes.push(format!("The servers' memory was not bound: {why}."));
            }
            let mut not_bound = |why: &ControlGroupError| {
                notes.push(format!("The disk was not bound: {why}."));
            };
            match &bed.device {
                Ok(disk) => match group.limit_reads(*disk, limits.reads) {
                    Ok(()) => device = Some(*disk),
                    Err(why) => not_bound(&why),
                },
                Err(why) => not_bound(why),
            }
        }
        let mut child = Child::start_behind(&group.words(), workshop.path(), "media", |command| {
            command.arg("media").arg(&bed.directory);
            command.args(["--listen", "127.0.0.1:0", "--json", "--drain-time", "0s"]);
            command.args(["--method", variant.method.name()]);
            if variant.readahead == Readahead::Off {
                command.arg("--no-readahead");
            }
            // Half a period at once: the player's own lead begins at its first byte, and the
            // head of the answer must not be taken from it.
            let ms = |time: Duration| format!("{}ms", time.as_millis().max(1));
            command.args(["--period", &ms(period), "--start-up", &ms(period / 2)]);
        })?;
        let listening = |line: &Value| match line["url"].as_str() {
            Some(url) => Wanted::This(url.to_owned()),
            None => Wanted::Never,
        };
        let url = child.wait_for(START_MAX, || workshop.go_on(), listening)?;
        let Some(url) = url else { bail!("the server did not start: {}", child.errors()) };
        let address = url.trim_start_matches("http://").trim_end_matches('/').parse();
        let address = address.context("the server printed an odd URL")?;
        Ok(Self { child, group, device, address })
    }

    pub fn used(&self) -> Result<Used> {
        let mut used = Used::of(&[self.child.id()])?;
        used.reads = self.device.and_then(|device| self.group.reads(device));
        Ok(used)
    }

    pub fn memory_bytes(&self) -> u64 {
        memory_bytes(&[self.child.id()])
    }

    pub fn is_disk_bound(&self) -> bool {
        self.device.is_some()
    }

    /// The reason why the server is gone.
    pub fn loss(&self) -> String {
        match self.group.killed() {
            0 => format!("the server is gone: {}", self.child.errors()),
            _ => "the kernel killed the server for want of memory; give it more by --memory"
                .to_owned(),
        }
    }

    /// Ends the server, and reads what it counted.
    pub fn end(mut self) -> Option<Counted> {
        self.child.end();
        let ended = |line: &Value| match line["event"].as_str() {
            Some("ended") => Wanted::This(serde_json::from_value(line.clone()).ok()),
            _ => Wanted::More,
        };
        self.child.wait_for(END_MAX, || Ok(()), ended).ok().flatten().flatten()
    }
}
