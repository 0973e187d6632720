//! `haul bench protection`: each protection of the data by real transfers, beside the bare cipher.
//!
//! `clear`, `safe` and `private` take turns over loopback, `private` by the kernel where it has TLS
//! and by this program. In each round AES-128-GCM alone is measured too, so that what changes on
//! the machine meets all alike.

mod cipher;
mod tables;

use crate::{
    BenchError, Caller, host_facts,
    requests::BenchProtection,
    transfers::{LoopbackServer, Push, PushReport, Pushed, PushedWith, ROOT},
    workshop::{SOURCE, Workshop},
};
use anyhow::Result;
use cipher::CipherRates;
use haul_report::{host_facts::BenchWire, results::Results, steps::Steps};
use haul_sys::ktls::{self, Cipher, Version};
use std::time::Instant;

/// A protection of the data, and who encrypts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Clear,
    Safe,
    PrivateByKernel,
    PrivateByProcess,
}

impl Way {
    const ALL: [Self; 4] = [Self::Clear, Self::Safe, Self::PrivateByKernel, Self::PrivateByProcess];

    fn protection(self) -> &'static str {
        match self {
            Self::Clear => "clear",
            Self::Safe => "safe",
            Self::PrivateByKernel | Self::PrivateByProcess => "private",
        }
    }

    fn encrypted_by(self) -> &'static str {
        match self {
            Self::Clear | Self::Safe => "nobody",
            Self::PrivateByKernel => "kernel",
            Self::PrivateByProcess => "process",
        }
    }

    /// The engine that both sides are told to use, so that the kernel does not encrypt where it
    /// would; else each side chooses, as it does for a user.
    fn engine(self, kernel_encrypts: bool) -> Option<&'static str> {
        (self == Self::PrivateByProcess && kernel_encrypts).then_some("tls")
    }
}

/// A place where the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Null,
    File,
}

impl Target {
    fn path(self) -> &'static str {
        match self {
            Self::Null => "null:",
            Self::File => "target",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Null => "null:",
            Self::File => "file",
        }
    }
}

/// A protection to one target, with its rounds in their order.
#[derive(Debug)]
struct Cell {
    way: Way,
    target: Target,
    /// The engine that both sides are told to use.
    engine: Option<&'static str>,
    runs: Vec<PushReport>,
    /// The reason why there is no round, or no other.
    refused: Option<String>,
}

/// Findings of the bench.
#[derive(Debug)]
struct Found {
    len_bytes: u64,
    rounds: u32,
    cores: u32,
    cells: Vec<Cell>,
    /// The bare cipher, a measurement a round.
    bare: Vec<CipherRates>,
}

/// Measures each protection.
///
/// # Errors
/// If nothing could start, or it was interrupted.
pub fn run(plan: &BenchProtection, caller: &Caller) -> Result<Results, BenchError> {
    let workshop = Workshop::new(&plan.directory, caller)?;
    let facts = host_facts::of_workshop("protection", &workshop, BenchWire::Loopback);
    let found = find(plan, &workshop);
    let found = found.map_err(|error| BenchError::broke_off("protection", &error))?;
    Ok(tables::results(&found, facts.chosen_by_path()))
}

fn find(plan: &BenchProtection, workshop: &Workshop) -> Result<Found> {
    workshop.make_source(plan.len_bytes, plan.len_bytes)?;
    let server = LoopbackServer::start(workshop, &[])?;
    let mut cells: Vec<Cell> = [Target::Null, Target::File]
        .into_iter()
        .flat_map(|target| Way::ALL.map(|way| Cell::new(way, target)))
        .collect();
    let steps = workshop.steps(cells.len() * plan.rounds as usize);
    let (started, mut bare) = (Instant::now(), Vec::new());
    for round in 0..plan.rounds {
        if round > 0 && started.elapsed() >= plan.time_max {
            break;
        }
        bare.push(cipher::rates(|| workshop.go_on())?);
        for cell in &mut cells {
            workshop.go_on()?;
            cell.measure(plan, workshop, &server, &steps)?;
        }
    }
    let cores = workshop.host.cores;
    Ok(Found { len_bytes: plan.len_bytes, rounds: plan.rounds, cores, cells, bare })
}

impl Cell {
    fn new(way: Way, target: Target) -> Self {
        let kernel = ktls::check(Version::Tls13, Cipher::Aes128Gcm);
        let engine = way.engine(kernel.is_ok());
        let refused = match (way, kernel) {
            (Way::PrivateByKernel, Err(error)) => {
                Some(format!("needs TLS in the kernel (module tls), found: {error}"))
            }
            _ => None,
        };
        Self { way, target, engine, runs: Vec::new(), refused }
    }

    fn measure(
        &mut self,
        plan: &BenchProtection,
        workshop: &Workshop,
        server: &LoopbackServer,
        steps: &Steps,
    ) -> Result<()> {
        let Self { way, target, engine, .. } = *self;
        steps.begin(&format!(
            "{} by {} to {}",
            way.protection(),
            way.encrypted_by(),
            target.name()
        ));
        if self.refused.is_some() {
            return Ok(());
        }
        let push = Push {
            source: SOURCE,
            len_bytes: plan.len_bytes,
            server: &server.url,
            target: target.path(),
            send_engine: engine,
            receive_engine: engine,
            streams: plan.streams,
            protection: PushedWith::Named(way.protection()),
            worth_waiting: None,
        };
        match push.run(workshop, &[])? {
            Pushed::Done(report) => self.runs.push(*report),
            Pushed::Refused(why) => self.refused = Some(why),
            Pushed::TooSlow => self.refused = Some("it took too long".into()),
        }
        let target = workshop.path().join(ROOT).join(target.path());
        match std::fs::remove_file(target) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}
