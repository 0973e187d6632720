//! `haul bench tuning`: what each change of two hosts' networks brings, with 1 to 8 streams.
//!
//! Steps add up, one change at a time. Rates are those between two looks at a push that goes on:
//! what came before, while windows grow, is left out, as iperf does with --omit. A rate is that at
//! which bytes came out of the network, by the count of the receiver's interface and this bench's
//! clock. What a program was given is no measure of a link: behind a lost segment much waits in the
//! kernel, and comes at once later.

mod storage;
mod storage_tables;
mod tables;

use crate::{
    BenchError, Caller,
    requests::{BenchTuning, TuningPath},
    workshop::Workshop,
};
use anyhow::{Context, Result, bail};
use haul_emulator::{
    EmulatorError, Hosts,
    counters::Received,
    namespace::{Namespace, remove_leftovers},
    veth::Veth,
    wan::{Path, Wan},
};
use haul_report::{results::Results, spread::Spread, steps::Steps};
use haul_scratch::child::{Child, Wanted};
use haul_transfer::{HaulUrl, Problem, TOKEN_VARIABLE};
use serde::Serialize;
use serde_json::Value;
use std::{
    ffi::OsStr,
    time::{Duration, Instant},
};

/// Longest time that a server may take to start, and a push to move its first bytes.
const START_MAX: Duration = Duration::from_secs(20);
/// The source, larger than what any rate moves in the time.
const SOURCE: &str = "zero:256G";
/// Largest receive buffer that distributions allow: the last number of tcp_rmem; that of tcp_wmem
/// is below (tcp(7)).
const RECEIVE_BYTES_MAX_DEFAULT: u64 = 6 << 20;
const SEND_BYTES_MAX_DEFAULT: u64 = 4 << 20;
/// Smallest buffer of a data transfer node of 10 Gbit/s (fasterdata.es.net).
const BUFFER_BYTES_MIN: u64 = 32 << 20;
const MTU_BYTES: usize = 1500;
const MTU_BYTES_JUMBO: usize = 9000;
/// Most segments that the kernel hands to an interface as one (GSO_MAX_SEGS of Linux).
const SEGMENTS_MAX: u32 = 65_535;
/// Headers of IP and TCP with the option of timestamps, in bytes.
const IP_HEADER_BYTES: u64 = 20 + 32;
/// Header of Ethernet, in bytes, which an interface counts that has one.
const ETHERNET_HEADER_BYTES: u64 = 14;
/// Seed of the packets that a path loses: none, but its queue may be full.
const SEED: u64 = 1;

/// A change of both hosts, with those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    Default,
    Jumbo,
    Buffers,
    /// Segmentation offload, which is off before this step over interfaces without a wire.
    Offload,
    Bbr,
    Pacing,
}

impl Step {
    /// The step's name in a table: what it adds.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Jumbo => "MTU 9000",
            Self::Buffers => "+ buffers",
            Self::Bbr => "+ BBR",
            Self::Offload => "+ offload",
            Self::Pacing => "+ fq",
        }
    }
}

/// The steps that are measured on a path: on a short one haul chooses the congestion control
/// itself, and no step changes it there.
fn steps_of(path: TuningPath) -> &'static [Step] {
    match path {
        TuningPath::Veth => {
            &[Step::Default, Step::Jumbo, Step::Buffers, Step::Offload, Step::Pacing]
        }
        TuningPath::Wan => &[Step::Default, Step::Jumbo, Step::Buffers, Step::Bbr, Step::Pacing],
    }
}

/// The measurement of one step with a number of streams.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    event: &'static str,
    table: &'static str,
    pub path: &'static str,
    pub step: Step,
    /// The hosts' settings in words.
    pub setting: String,
    pub streams: u32,
    pub rounds: usize,
    pub gbit_per_s: Option<Spread>,
    /// Segments sent again in the measured time of the last round.
    pub retransmits: u64,
    /// The stage that held the last interval back.
    pub limiting: String,
    pub refused: Option<String>,
    #[serde(skip)]
    rates: Vec<f64>,
}

/// An emulated network, gone when dropped.
enum Network {
    Veth(Veth),
    Wan(Wan),
}

impl Network {
    fn start(plan: &BenchTuning, path: TuningPath) -> Result<Self, EmulatorError> {
        Ok(match path {
            TuningPath::Veth => Self::Veth(Veth::start()?),
            TuningPath::Wan => {
                let path = Path::new(plan.round_trip, plan.rate_bits_per_s, 0.0);
                Self::Wan(Wan::start(path, SEED)?)
            }
        })
    }

    fn hosts(&self) -> Hosts<'_> {
        match self {
            Self::Veth(veth) => veth.hosts(),
            Self::Wan(wan) => wan.hosts(),
        }
    }
}

/// Measures what each change of two hosts' networks brings.
///
/// # Errors
/// If nothing could start, or it was interrupted.
pub fn run(plan: &BenchTuning, caller: &Caller) -> Result<Results, BenchError> {
    let workshop = Workshop::new(&plan.directory, caller)?;
    let removed = remove_leftovers();
    let mut cells = Vec::new();
    let pushes = plan.rounds as usize * plan.streams.len() * count_steps(plan);
    let steps = workshop.steps(pushes + storage::count(plan));
    for path in &plan.paths {
        let network = Network::start(plan, *path).map_err(|error| unable(&error))?;
        let bench = Bench { plan, workshop: &workshop, path: *path, steps: &steps };
        let measured = bench.measure(&network.hosts());
        cells.extend(measured.map_err(|error| BenchError::broke_off("tuning", &error))?);
    }
    let mut stored = None;
    if let Some(storage) = &plan.storage {
        let network = Network::start(plan, TuningPath::Wan).map_err(|error| unable(&error))?;
        let bench = Bench { plan, workshop: &workshop, path: TuningPath::Wan, steps: &steps };
        let found = storage::measure(&bench, storage, &network.hosts());
        stored = Some(found.map_err(|error| BenchError::broke_off("tuning", &error))?);
    }
    drop(steps);
    Ok(tables::results(plan, &workshop, &cells, stored.as_ref(), &removed))
}

fn count_steps(plan: &BenchTuning) -> usize {
    plan.paths.iter().map(|path| steps_of(*path).len()).sum()
}

fn unable(error: &EmulatorError) -> BenchError {
    let what = "haul bench tuning cannot make its network";
    let hint = "run it as root (sudo) on a host that lets root make network namespaces";
    match error {
        EmulatorError::Unable { what: part, needs, found } => {
            Problem::in_general(&format!("{what}: {part}"), needs, found, hint).into()
        }
        EmulatorError::Failed { .. } => {
            Problem::in_general(what, "", &error.to_string(), "see the kernel's log").into()
        }
    }
}

/// The measurement of one path.
struct Bench<'a> {
    plan: &'a BenchTuning,
    workshop: &'a Workshop,
    path: TuningPath,
    steps: &'a Steps,
}

impl Bench<'_> {
    fn measure(&self, hosts: &Hosts<'_>) -> Result<Vec<Cell>> {
        let (_server, url) = self.serve(hosts, OsStr::new("null:"))?;
        // What one connection learnt must not slow the next (tcp_no_metrics_save, ip-sysctl.rst).
        hosts.set("ipv4/tcp_no_metrics_save", "1")?;
        let begun = Instant::now();
        let mut cells = Vec::new();
        for round in 0..self.plan.rounds {
            for (at, step) in steps_of(self.path).iter().enumerate() {
                if round > 0 && begun.elapsed() > self.plan.time_max {
                    return Ok(summed_up(cells));
                }
                let set = self.set(hosts, *step);
                for (column, streams) in self.plan.streams.iter().enumerate() {
                    let index = at * self.plan.streams.len() + column;
                    if round == 0 {
                        cells.push(self.cell(*step, *streams, &set));
                    }
                    self.steps.begin(&format!("{}, {streams} streams", step.name()));
                    if cells[index].refused.is_none() {
                        self.push(hosts, &url, &mut cells[index])?;
                    }
                }
            }
        }
        Ok(summed_up(cells))
    }

    fn serve(&self, hosts: &Hosts<'_>, root: &OsStr) -> Result<(Child, HaulUrl)> {
        let name = match self.path {
            TuningPath::Veth => "serve-veth",
            TuningPath::Wan => "serve-wan",
        };
        let words = hosts.far.words();
        let mut child = Child::start_behind(&words, self.workshop.path(), name, |command| {
            let listen = format!("{}:0", hosts.far_address);
            command.arg("serve").arg(root).args(["--listen", &listen, "--json"]);
        })?;
        let url = |line: &Value| {
            line["url"].as_str().map_or(Wanted::More, |url| Wanted::This(url.to_owned()))
        };
        let url = child.wait_for(START_MAX, || self.workshop.go_on(), url)?;
        let Some(url) = url else { bail!("the server did not start: {}", child.errors()) };
        Ok((child, url.parse::<HaulUrl>().context("the server printed an odd URL")?))
    }

    fn cell(&self, step: Step, streams: u32, set: &Result<String, EmulatorError>) -> Cell {
        Cell {
            event: "cell",
            table: "tuning",
            path: match self.path {
                TuningPath::Veth => "veth",
                TuningPath::Wan => "wan",
            },
            step,
            setting: set.as_ref().map_or_else(|_| String::new(), Clone::clone),
            streams,
            rounds: 0,
            gbit_per_s: None,
            retransmits: 0,
            limiting: String::new(),
            refused: set.as_ref().err().map(ToString::to_string),
            rates: Vec::new(),
        }
    }

    /// Sets both hosts to this step and those before; returns the settings in words.
    fn set(&self, hosts: &Hosts<'_>, step: Step) -> Result<String, EmulatorError> {
        let is_from = |from: Step| step as u8 >= from as u8;
        let mtu_bytes = if is_from(Step::Jumbo) { MTU_BYTES_JUMBO } else { MTU_BYTES };
        hosts.set_mtu(mtu_bytes)?;
        let (receive, send) = if is_from(Step::Buffers) {
            let bytes = self.buffer_bytes();
            (bytes, bytes)
        } else {
            (RECEIVE_BYTES_MAX_DEFAULT, SEND_BYTES_MAX_DEFAULT)
        };
        hosts.set("ipv4/tcp_rmem", &format!("4096 131072 {receive}"))?;
        hosts.set("ipv4/tcp_wmem", &format!("4096 16384 {send}"))?;
        let has_bbr = self.path == TuningPath::Wan && is_from(Step::Bbr);
        let control = if has_bbr { set_control(hosts, &["bbr"])? } else { by_loss(hosts)? };
        let is_paced = is_from(Step::Pacing);
        for host in [hosts.near, hosts.far] {
            if is_paced {
                pace(host, hosts.device)?;
            } else {
                // Of the round before; in the first there is none, which tc calls an error.
                let _ = host.run("tc", &["qdisc", "delete", "dev", hosts.device, "root"]);
            }
        }
        let queue = if is_paced { "fq" } else { "the kernel's own queue" };
        let offload = match self.path {
            // A TUN device takes one packet at a time anyway.
            TuningPath::Wan => "",
            TuningPath::Veth if is_from(Step::Offload) => {
                hosts.set_segments_max(SEGMENTS_MAX)?;
                ", segmentation offload on"
            }
            TuningPath::Veth => {
                hosts.set_segments_max(1)?;
                ", segmentation offload off"
            }
        };
        let (receive, send) = (receive >> 20, send >> 20);
        Ok(format!(
            "MTU {mtu_bytes}, buffers up to {receive} MiB (receive) and {send} MiB (send), \
             {control}, {queue}{offload}"
        ))
    }

    /// Bytes of a socket's buffer, which holds twice its window: half of it is the kernel's own.
    fn buffer_bytes(&self) -> u64 {
        let round_trip_s = match self.path {
            TuningPath::Veth => 0.0,
            TuningPath::Wan => self.plan.round_trip.as_secs_f64(),
        };
        let product = (self.plan.rate_bits_per_s as f64 / 8.0 * round_trip_s) as u64;
        (2 * product).max(BUFFER_BYTES_MIN)
    }

    /// Bytes of a packet that are not the stream's.
    fn header_bytes(&self) -> u64 {
        match self.path {
            TuningPath::Veth => IP_HEADER_BYTES + ETHERNET_HEADER_BYTES,
            TuningPath::Wan => IP_HEADER_BYTES,
        }
    }

    fn push(&self, hosts: &Hosts<'_>, server: &HaulUrl, cell: &mut Cell) -> Result<()> {
        let token = server.token.as_ref().context("the URL has no token")?.reveal();
        let url = HaulUrl { token: None, path: b"null:".to_vec(), ..server.clone() };
        let words = hosts.near.words();
        // Small, so that what is verified follows what has come; but not too many a second.
        let span = match self.path {
            TuningPath::Veth => "4M",
            TuningPath::Wan => "256K",
        };
        let mut child = Child::start_behind(&words, self.workshop.path(), "push", |command| {
            command.args(["push", SOURCE, &url.reveal(), "--json", "--retry-for", "0s"]);
            command.args(["--protection", "clear", "--digest", "none", "--span-size", span]);
            command.args(["--streams", &cell.streams.to_string()]).env(TOKEN_VARIABLE, &token);
        })?;
        let mut watch = Watch { plan: self.plan, first: None };
        let time_max = START_MAX + self.plan.omit + self.plan.time;
        let received = || hosts.far.received(hosts.device);
        let look = |line: &Value| watch.look(line, self.header_bytes(), received);
        let seen = child.wait_for(time_max, || self.workshop.go_on(), look)?;
        child.end();
        match seen {
            Some(Looked::Enough(seen)) => {
                cell.rates.push(seen.gbit_per_s);
                (cell.retransmits, cell.limiting) = (seen.retransmits, seen.limiting);
            }
            Some(Looked::Failed(why)) => cell.refused = Some(why),
            None => cell.refused = Some(format!("it moved too little: {}", child.errors())),
        }
        Ok(())
    }
}

/// Sums up the rates of all cells; a step that no host can take keeps its reason.
fn summed_up(mut cells: Vec<Cell>) -> Vec<Cell> {
    for cell in &mut cells {
        cell.rounds = cell.rates.len();
        cell.gbit_per_s = Spread::of(cell.rates.iter().copied());
    }
    cells
}

/// Sets the congestion control that distributions have, or reno where the host does not allow cubic
/// in a namespace.
fn by_loss(hosts: &Hosts<'_>) -> Result<String, EmulatorError> {
    set_control(hosts, &["cubic", "reno"])
}

/// Lets packets leave at their connection's rate (tc-fq(8)), where the kernel has that.
fn pace(host: &Namespace, device: &str) -> Result<(), EmulatorError> {
    let paced = host.run("tc", &["qdisc", "replace", "dev", device, "root", "fq"]);
    paced.map_err(|error| EmulatorError::Unable {
        what: "pacing by fq".to_owned(),
        needs: "tc(8) and a kernel with sch_fq",
        found: error.to_string(),
    })
}

/// Sets the first of these congestion controls that may be set.
fn set_control(hosts: &Hosts<'_>, names: &[&str]) -> Result<String, EmulatorError> {
    let mut refused = None;
    for name in names {
        match hosts.set("ipv4/tcp_congestion_control", name) {
            Ok(()) => return Ok((*name).to_owned()),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.unwrap_or_else(|| EmulatorError::Failed {
        what: "a congestion control".to_owned(),
        found: "none was named".to_owned(),
    }))
}

/// Figures of a push between two looks.
#[derive(Debug, PartialEq)]
struct Seen {
    gbit_per_s: f64,
    retransmits: u64,
    limiting: String,
}

/// An end of looking at a push.
enum Looked {
    Enough(Seen),
    /// The push failed, in its words.
    Failed(String),
}

/// Waits until enough of a push was seen.
struct Watch<'a> {
    plan: &'a BenchTuning,
    /// The counts of what had come and gone out again when the measured time began.
    first: Option<(Received, u64)>,
}

impl Watch<'_> {
    fn look(
        &mut self,
        line: &Value,
        header_bytes: u64,
        received: impl Fn() -> Result<Received, EmulatorError>,
    ) -> Wanted<Looked> {
        match line["event"].as_str() {
            Some("error") => {
                let parts = ["what", "needs", "found"].map(|part| line[part].as_str());
                let parts: Vec<_> = parts.into_iter().flatten().filter(|p| !p.is_empty()).collect();
                return Wanted::This(Looked::Failed(parts.join(": ")));
            }
            Some("progress") => {}
            _ => return Wanted::More,
        }
        let seconds = line["seconds"].as_f64().unwrap_or(0.0);
        let retransmits = line["retransmits"].as_u64().unwrap_or(0);
        if seconds < self.plan.omit.as_secs_f64() {
            return Wanted::More;
        }
        let now = match received() {
            Ok(now) => now,
            Err(why) => return Wanted::This(Looked::Failed(why.to_string())),
        };
        let (before, again) = *self.first.get_or_insert((now, retransmits));
        if now.at - before.at < self.plan.time {
            return Wanted::More;
        }
        let Some(rate) = now.payload_rate_since(&before, header_bytes) else {
            return Wanted::More;
        };
        Wanted::This(Looked::Enough(Seen {
            gbit_per_s: rate * 8.0 / 1e9,
            retransmits: retransmits.saturating_sub(again),
            limiting: line["limiting"]["stage"].as_str().unwrap_or_default().to_owned(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn plan() -> BenchTuning {
        BenchTuning {
            paths: vec![TuningPath::Veth, TuningPath::Wan],
            storage: None,
            streams: vec![1],
            rate_bits_per_s: 10_000_000_000,
            round_trip: Duration::from_millis(100),
            time: Duration::from_secs(3),
            omit: Duration::from_secs(2),
            rounds: 1,
            time_max: Duration::from_secs(1),
            directory: std::env::temp_dir(),
        }
    }

    #[test]
    fn a_rate_is_that_of_the_time_behind_what_is_left_out() {
        let plan = plan();
        let mut watch = Watch { plan: &plan, first: None };
        let begun = Instant::now();
        // The client's own count runs ahead, as when what waited comes at once.
        let line = |seconds: f64, retransmits: u64| {
            json!({"event": "progress", "seconds": seconds, "bytes_received": 9e12,
                   "retransmits": retransmits, "limiting": {"stage": "network"}})
        };
        let received = |ms: u64, bytes: u64, packets: u64| {
            move || Ok(Received { at: begun + Duration::from_millis(ms), bytes, packets })
        };
        for (seconds, bytes) in [(1.0, 5), (2.0, 1_000_000), (3.0, 1_000_001), (4.9, 1_000_002)] {
            let received = received((seconds * 1e3) as u64, bytes, 1);
            assert!(matches!(watch.look(&line(seconds, 7), 52, received), Wanted::More));
        }
        let last = received(6_000, 501_052_000, 1_001);
        let Wanted::This(Looked::Enough(seen)) = watch.look(&line(5.9, 9), 52, last) else {
            panic!()
        };
        let limiting = "network".to_owned();
        assert_eq!(seen, Seen { gbit_per_s: 1.0, retransmits: 2, limiting });
        let error = json!({"event": "error", "what": "no way", "needs": "", "found": "a wall"});
        let gone = |what: &str, found: &str| EmulatorError::Failed {
            what: what.to_owned(),
            found: found.to_owned(),
        };
        let nothing = || Err(gone("the counters", "the host is gone"));
        let Wanted::This(Looked::Failed(why)) = watch.look(&error, 52, nothing) else { panic!() };
        assert_eq!(why, "no way: a wall");
        let Wanted::This(Looked::Failed(why)) = watch.look(&line(2.0, 0), 52, nothing) else {
            panic!()
        };
        assert_eq!(why, "the counters: the host is gone");
    }

    #[test]
    fn buffers_hold_twice_what_is_on_the_way() {
        let plan = plan();
        let workshop = Workshop::new(&std::env::temp_dir(), &Caller::default()).unwrap();
        let steps = workshop.steps(0);
        let bytes =
            |path| Bench { plan: &plan, workshop: &workshop, path, steps: &steps }.buffer_bytes();
        assert_eq!(bytes(TuningPath::Wan), 250_000_000);
        assert_eq!(bytes(TuningPath::Veth), BUFFER_BYTES_MIN);
    }
}
