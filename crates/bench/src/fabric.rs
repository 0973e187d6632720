//! `haul bench fabric`: messages and files by RDMA endpoints, beside TCP and fi_pingpong.
//!
//! Two processes of this program on this host go through the same tasks in step, once a round for
//! each provider, so that what changes on the machine meets all alike. Times and processor time are
//! those of the process that sends.

mod card;
mod fi_pingpong;
mod pair;
mod tables;

use crate::{
    BenchError, Caller,
    error::Lack,
    fabric_side::{FileWay, MessageWay, Repeats, Task, TaskDone},
    host_facts,
    requests::{BenchFabric, FabricPart},
    workshop::Workshop,
};
use anyhow::Result;
use fi_pingpong::FiPingPong;
use haul_fabric::{Error, Fabric, Provider};
use haul_report::{host_facts::BenchWire, results::Results, steps::Steps};
use haul_scratch::data_file;
use haul_transfer::Problem;
use std::{
    net::IpAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

/// Providers that are measured where none is asked for.
const PROVIDERS: [Provider; 3] = [Provider::Verbs, Provider::Shm, Provider::Tcp];
/// Directory below the workshop of the files that are sent.
const FILES: &str = "files";
/// Messages of the comparison with fi_pingpong, in bytes: of its own list.
const PING_BYTES: [u64; 4] = [64, 4096, 64 << 10, 1 << 20];

/// A task with what it took in each round.
#[derive(Debug)]
struct Cell {
    task: Task,
    /// The rounds, in their order.
    runs: Vec<TaskDone>,
    /// The reason why there is no round, or no other.
    refused: Option<String>,
}

/// Messages to and fro by our endpoints and by fi_pingpong, in turns.
#[derive(Debug)]
struct Ping {
    message_bytes: u64,
    runs: Vec<TaskDone>,
    /// Latencies that fi_pingpong told, in microseconds.
    others_us: Vec<f64>,
    refused: Option<String>,
}

/// Findings with one provider.
#[derive(Debug)]
struct ProviderFound {
    provider: Provider,
    address: IpAddr,
    /// The name of the card's port.
    port: String,
    cells: Vec<Cell>,
    pings: Vec<Ping>,
}

/// A provider that this host does not have, with the reason.
#[derive(Debug)]
struct Missing {
    provider: Provider,
    why: String,
}

/// Findings of the bench.
#[derive(Debug)]
struct Found {
    rounds: u32,
    repeats: Repeats,
    providers: Vec<ProviderFound>,
    missing: Vec<Missing>,
    /// The reason why nothing stands beside fi_pingpong.
    no_fi_pingpong: Option<String>,
}

/// Measures messages and files by each provider.
///
/// # Errors
/// If no provider can be opened, nothing could start, or it was interrupted.
pub fn run(plan: &BenchFabric, caller: &Caller) -> Result<Results, BenchError> {
    let (providers, missing) = providers(plan)?;
    let workshop = Workshop::new(&plan.directory, caller)?;
    let found = find(plan, &workshop, providers, missing);
    let found = found.map_err(|error| BenchError::broke_off("fabric", &error))?;
    let facts = host_facts::of_workshop("fabric", &workshop, BenchWire::Loopback);
    Ok(tables::results(&found, facts.chosen_by_path()))
}

/// Opens each provider that is wanted; those that cannot be opened say why.
fn providers(plan: &BenchFabric) -> Result<(Vec<ProviderFound>, Vec<Missing>), BenchError> {
    let wanted = if plan.providers.is_empty() { &PROVIDERS[..] } else { &plan.providers[..] };
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for provider in wanted {
        match open(*provider, plan.address) {
            Ok((fabric, address)) => found.push(ProviderFound {
                provider: *provider,
                address,
                port: fabric.port(),
                cells: Vec::new(),
                pings: Vec::new(),
            }),
            Err(error @ Error::NotBuilt) => {
                let what = "haul bench fabric cannot start";
                return Err(Problem::in_general(what, "", &error.to_string(), "").into());
            }
            Err(error) => missing.push(Missing { provider: *provider, why: error.to_string() }),
        }
    }
    if found.is_empty() {
        let why: Vec<&str> = missing.iter().map(|missing| &missing.why[..]).collect();
        let what = "haul bench fabric found no provider";
        let hint = "name another one with --fabric, or its address with --address";
        return Err(Problem::in_general(what, "", &why.join("; "), hint).into());
    }
    Ok((found, missing))
}

/// Opens a provider: verbs at the address of a card, which is found where none is told, and the
/// others at loopback.
fn open(provider: Provider, address: Option<IpAddr>) -> Result<(Fabric, IpAddr), Error> {
    let loopback = IpAddr::from([127, 0, 0, 1]);
    let candidates = match (provider, address) {
        (Provider::Verbs, Some(address)) => vec![address],
        (Provider::Verbs, None) => card::addresses(),
        _ => Vec::new(),
    };
    let mut tried = candidates.into_iter();
    let mut address = tried.next().unwrap_or(loopback);
    loop {
        match (Fabric::open(provider, address), tried.next()) {
            (Ok(fabric), _) => return Ok((fabric, address)),
            (Err(error), None) => return Err(error),
            (Err(_), Some(next)) => address = next,
        }
    }
}

fn find(
    plan: &BenchFabric,
    workshop: &Workshop,
    mut providers: Vec<ProviderFound>,
    missing: Vec<Missing>,
) -> Result<Found> {
    let tasks = tasks(plan);
    let repeats = Repeats {
        least: plan.repeats.min(3),
        most: plan.repeats,
        time_ms: plan.task_time.map(|time| time.as_millis() as u64),
    };
    make_files(plan, workshop)?;
    let does_pings = plan.parts.contains(&FabricPart::PingPong);
    let pings: &[u64] = if does_pings { &PING_BYTES } else { &[] };
    for found in &mut providers {
        let cell = |task: &Task| Cell { task: *task, runs: Vec::new(), refused: None };
        found.cells = tasks.iter().map(cell).collect();
        let ping = |message_bytes: &u64| Ping {
            message_bytes: *message_bytes,
            runs: Vec::new(),
            others_us: Vec::new(),
            refused: None,
        };
        found.pings = pings.iter().map(ping).collect();
    }
    let other = FiPingPong::find();
    let steps =
        workshop.steps(plan.rounds as usize * providers.len() * (tasks.len() + pings.len()));
    let bench = Bench { workshop, steps: &steps, repeats, files: PathBuf::from(FILES) };
    let started = Instant::now();
    for round in 0..plan.rounds {
        for found in &mut providers {
            if round > 0 && started.elapsed() > plan.time_max {
                break;
            }
            bench.round(found)?;
            bench.ping_round(found, other.as_ref().ok())?;
        }
    }
    drop(steps);
    let no_fi_pingpong = other.err().map(|why: Lack| why.to_string());
    Ok(Found { rounds: plan.rounds, repeats, providers, missing, no_fi_pingpong })
}

/// The tasks of a round, in their order: what is compared stands side by side.
fn tasks(plan: &BenchFabric) -> Vec<Task> {
    let mut tasks = Vec::new();
    if plan.parts.contains(&FabricPart::Messages) {
        for &message_bytes in &plan.message_sizes {
            tasks.extend(MessageWay::ALL.map(|way| Task::Latency { way, message_bytes }));
        }
        for &message_bytes in &plan.message_sizes {
            tasks.extend(MessageWay::ALL.map(|way| Task::Bandwidth { way, message_bytes }));
        }
    }
    if plan.parts.contains(&FabricPart::Files) {
        for &file_bytes in &plan.file_sizes {
            tasks.extend(FileWay::ALL.map(|way| Task::File { way, file_bytes }));
        }
    }
    tasks
}

/// Makes the files that are sent, and brings them into the page cache.
fn make_files(plan: &BenchFabric, workshop: &Workshop) -> Result<()> {
    let directory = workshop.path().join(FILES);
    std::fs::create_dir(&directory)?;
    let sizes = if plan.parts.contains(&FabricPart::Files) { &plan.file_sizes[..] } else { &[] };
    for &file_bytes in sizes {
        let path = directory.join(file_bytes.to_string());
        workshop.has_room(file_bytes)?;
        data_file::make(&path, file_bytes, None, || workshop.go_on())?;
        crate::workshop::warm(&path, file_bytes, || workshop.go_on())?;
    }
    Ok(())
}

/// Facts that all rounds share.
struct Bench<'a> {
    workshop: &'a Workshop,
    steps: &'a Steps,
    repeats: Repeats,
    files: PathBuf,
}

impl Bench<'_> {
    /// Does each task once with a provider. Where one fails, the others go on with new processes.
    fn round(&self, found: &mut ProviderFound) -> Result<()> {
        let mut left: Vec<usize> =
            (0..found.cells.len()).filter(|at| found.cells[*at].refused.is_none()).collect();
        while !left.is_empty() {
            let tasks: Vec<Task> = left.iter().map(|at| found.cells[*at].task).collect();
            let (done, refused) = self.pair(found.provider, found.address, tasks)?;
            let count = done.len();
            for (at, run) in left.iter().zip(done) {
                found.cells[*at].runs.push(run);
            }
            left.drain(..count);
            let Some(why) = refused else { break };
            match left.first() {
                Some(at) => found.cells[*at].refused = Some(why),
                None => break,
            }
            left.remove(0);
        }
        Ok(())
    }

    /// Measures messages to and fro in turns with fi_pingpong.
    fn ping_round(&self, found: &mut ProviderFound, other: Option<&FiPingPong>) -> Result<()> {
        let Some(other) = other else { return Ok(()) };
        let (provider, address) = (found.provider, found.address);
        for ping in found.pings.iter_mut().filter(|ping| ping.refused.is_none()) {
            let way = MessageWay::Poll;
            let task = Task::Latency { way, message_bytes: ping.message_bytes };
            let (done, refused) = self.pair(provider, address, vec![task])?;
            let Some(run) = done.first() else {
                ping.refused = refused;
                continue;
            };
            let told =
                other.run(self.workshop, provider, address, task.len_bytes(), run.repeats)?;
            match told {
                Ok(us) => {
                    ping.runs.push(*run);
                    ping.others_us.push(us);
                }
                Err(why) => ping.refused = Some(why.to_string()),
            }
        }
        Ok(())
    }
}

/// Longest time of a task beyond that of its repeats.
const TASK_TIME_MAX: Duration = Duration::from_secs(120);
