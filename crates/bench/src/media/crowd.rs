//! The study's figure 11: deadlines that a crowd of viewers saw missed, by each way of sending.

use super::{
    bed::Bed,
    demand,
    server::{Counted, Limits, MediaServer, Used},
};
use crate::{
    media::request::{BenchMedia, CrowdPlan, DiskBound, Variant},
    workshop::{Residency, Workshop},
};
use anyhow::{Context, Result, bail};
use haul_emulator::random::Random;
use haul_host::control_group::ReadLimit;
use haul_media::viewers::{
    Crowd, Seen,
    arrivals::{Arrival, Zipf, poisson},
    watch_unless,
};
use haul_report::spread::Spread;
use haul_transfer::Interrupt;
use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

/// Interval between two samples of what a server uses.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);
/// Length of a run's busiest time, in seconds: a shorter burst is no limit.
const BUSIEST_S: f64 = 5.0;
/// Share of a resource from which it counts as used up: a limit is met in slices of time, and a
/// crowd leaves some of each.
pub(super) const EXHAUSTED_SHARE: f64 = 0.9;
/// The name of the processors among what a server can use up.
pub(super) const PROCESSORS: &str = "processors";

/// Resources that a server had used by a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub at_s: f64,
    pub used: Used,
}

/// A run of a crowd at a server with one method.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub seen: Seen,
    pub used: Option<Used>,
    pub memory_bytes: u64,
    pub samples: Vec<Sample>,
    pub counted: Option<Counted>,
    /// Bytes a second that this crowd asked for when most of it watched.
    pub asked_bytes_per_s: u64,
    /// Bound of the server's disk; `None` where it could not be bound, or was not to be.
    pub disk: Option<ReadLimit>,
}

impl Run {
    /// Share of all periods that were missed; `None` where no film was ever played.
    pub fn miss_share(&self) -> Option<f64> {
        let is_played = self.seen.streams > 0 && self.seen.periods > 0;
        is_played.then(|| self.seen.misses as f64 / self.seen.periods as f64)
    }

    pub fn cpu_us_per_stream_s(&self) -> Option<f64> {
        let watched_s = self.seen.watched.as_secs_f64();
        let used = self.used.filter(|_| watched_s > 0.0)?;
        Some(used.cpu_s * 1e6 / watched_s)
    }

    /// The fastest growth of a figure, a second, over a run's busiest seconds.
    pub fn busiest(&self, of: impl Fn(&Used) -> f64) -> f64 {
        let mut most: f64 = 0.0;
        let mut first = 0;
        for sample in &self.samples {
            while sample.at_s - self.samples[first].at_s > BUSIEST_S {
                first += 1;
            }
            let from = &self.samples[first.saturating_sub(1)];
            let over_s = sample.at_s - from.at_s;
            if over_s >= BUSIEST_S / 2.0 {
                most = most.max((of(&sample.used) - of(&from.used)) / over_s);
            }
        }
        most
    }

    /// Share of each bound that was used in the busiest time, with the bound's name.
    pub fn shares(&self, cores: u32) -> Vec<(&'static str, f64)> {
        let mut shares = Vec::new();
        if let Some(limit) = self.disk {
            if let Some(most) = limit.bytes_per_s {
                let rate = self.busiest(|used| used.read_bytes as f64);
                shares.push(("disk's bytes", rate / most as f64));
            }
            if let Some(most) = limit.reads_per_s {
                let rate = self.busiest(|used| used.reads.unwrap_or(0) as f64);
                shares.push(("disk's reads", rate / most as f64));
            }
        }
        let cpu = self.busiest(|used| used.cpu_s) / f64::from(cores.max(1));
        shares.push((PROCESSORS, cpu));
        shares
    }
}

/// A method with its rounds.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub name: String,
    /// Bound of the disk that was asked for.
    pub disk: Option<DiskBound>,
    pub runs: Vec<Run>,
    pub refused: Option<String>,
    pub notes: Vec<String>,
}

impl Cell {
    pub fn new(name: String, disk: Option<DiskBound>) -> Self {
        Self { name, disk, runs: Vec::new(), refused: None, notes: Vec::new() }
    }

    pub fn spread(&self, of: impl Fn(&Run) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.runs.iter().filter_map(of))
    }

    pub fn miss_share(&self) -> Option<Spread> {
        self.spread(Run::miss_share)
    }
}

/// Measures each method with the same crowds, round after round, on each disk.
pub(super) fn measure(plan: &BenchMedia, workshop: &Workshop, bed: &Bed) -> Result<Vec<Cell>> {
    let disks = plan
        .bounds
        .as_ref()
        .map_or(vec![None], |bounds| bounds.disks.iter().copied().map(Some).collect());
    let pairs = disks.iter().flat_map(|disk| plan.variants.iter().map(|one| (*one, *disk)));
    let mut meetings: Vec<(Variant, Cell)> =
        pairs.map(|(variant, disk)| (variant, Cell::new(variant.name(), disk))).collect();
    let steps = workshop.steps(meetings.len() * plan.rounds as usize);
    for round in 0..plan.rounds {
        let arrivals = arrivals(&plan.crowd, round, plan.crowd.films as usize);
        for (variant, cell) in &mut meetings {
            steps.begin(&format!("a crowd, {}", cell.name));
            if cell.refused.is_none() {
                let one = Meeting { plan, workshop, bed, variant: *variant };
                one.hold(&arrivals, cell)?;
            }
        }
    }
    Ok(meetings.into_iter().map(|(_, cell)| cell).collect())
}

/// Arrivals of the viewers of one round: other ones in each round, the same for each method.
pub(super) fn arrivals(plan: &CrowdPlan, round: u32, films: usize) -> Vec<Arrival> {
    let mut random = Random::from_seed(plan.seed.wrapping_add(u64::from(round)));
    let popularity = Zipf::new(films, plan.theta);
    let users = plan.users as usize;
    poisson(plan.mean_gap, users, plan.time(), &popularity, &mut || random.number())
}

struct Meeting<'a> {
    plan: &'a BenchMedia,
    workshop: &'a Workshop,
    bed: &'a Bed,
    variant: Variant,
}

impl Meeting<'_> {
    fn hold(&self, arrivals: &[Arrival], cell: &mut Cell) -> Result<()> {
        for film in &self.bed.films {
            if let Some(why) = self.bed.bring(self.workshop, film, Residency::Cold)? {
                cell.notes.push(format!("The films were not cold: {why}."));
                break;
            }
        }
        let crowd = &self.plan.crowd;
        let asked_bytes_per_s = demand::asked_bytes_per_s(crowd, arrivals);
        let limits = self.plan.bounds.as_ref().zip(cell.disk).map(|(bounds, disk)| Limits {
            reads: disk.reads(asked_bytes_per_s),
            memory_bytes: bounds.memory_bytes,
        });
        let server = MediaServer::start(
            self.workshop,
            self.bed,
            self.variant,
            crowd.period,
            limits.as_ref(),
            &mut cell.notes,
        );
        let server = match server {
            Ok(server) => server,
            Err(error) => {
                self.workshop.go_on()?;
                cell.refused = Some(format!("{error:#}"));
                return Ok(());
            }
        };
        let rate = crowd.rate.bits_per_s;
        let targets = self.bed.films.iter().map(|film| format!("/{film}?rate={rate}")).collect();
        let crowd = Crowd {
            address: server.address,
            targets,
            arrivals: arrivals.to_vec(),
            rate: crowd.rate,
            period: crowd.period,
            prebuffer: crowd.period,
            start_up: Duration::ZERO,
            asks_again: None,
            buffer: None,
            time: Duration::MAX,
            until: crowd.time(),
        };
        let before = server.used()?;
        let watched = watched(crowd, self.workshop, || Some(server.used().ok()?.since(before)))?;
        let Some(used) = server.used().ok() else {
            cell.refused = Some(server.loss());
            return Ok(());
        };
        let memory_bytes = server.memory_bytes();
        let disk = limits.filter(|_| server.is_disk_bound()).map(|limits| limits.reads);
        cell.runs.push(Run {
            seen: watched.seen,
            used: Some(used.since(before)),
            memory_bytes,
            samples: watched.samples,
            counted: server.end(),
            asked_bytes_per_s,
            disk,
        });
        Ok(())
    }
}

pub(super) struct Watched {
    pub seen: Seen,
    pub samples: Vec<Sample>,
}

/// Runs the crowd on a thread of its own, and samples meanwhile what the server uses.
pub(super) fn watched(
    crowd: Crowd,
    workshop: &Workshop,
    used: impl Fn() -> Option<Used>,
) -> Result<Watched> {
    // A viewer that leaves at a time that no clock has never leaves.
    let crowd = Crowd { time: crowd.time.min(crowd.until), ..crowd };
    let stops = Interrupt::default();
    let stopped = Arc::clone(&stops);
    let begun = Instant::now();
    let viewers = thread::spawn(move || watch_unless(&crowd, &stopped));
    let mut samples = Vec::new();
    while !viewers.is_finished() {
        if workshop.go_on().is_err() {
            stops.store(true, Ordering::Relaxed);
        }
        if let Some(used) = used() {
            samples.push(Sample { at_s: begun.elapsed().as_secs_f64(), used });
        }
        thread::sleep(SAMPLE_EVERY);
    }
    let Ok(seen) = viewers.join() else { bail!("the crowd's thread panicked") };
    workshop.go_on()?;
    Ok(Watched { seen: seen.context("the crowd cannot watch")?, samples })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(samples: Vec<Sample>) -> Run {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let nobody = Crowd {
            address: silent.local_addr().unwrap(),
            targets: Vec::new(),
            arrivals: Vec::new(),
            rate: haul_media::pace::Rate { bits_per_s: 1_000 },
            period: Duration::from_secs(1),
            prebuffer: Duration::ZERO,
            start_up: Duration::ZERO,
            asks_again: None,
            buffer: None,
            time: Duration::ZERO,
            until: Duration::ZERO,
        };
        let seen = haul_media::viewers::watch(&nobody).unwrap();
        let (used, counted) = (Some(Used::default()), None);
        let disk = Some(ReadLimit { bytes_per_s: Some(200), reads_per_s: Some(1) });
        Run { seen, used, memory_bytes: 0, samples, counted, asked_bytes_per_s: 0, disk }
    }

    #[test]
    fn a_crowd_that_played_nothing_has_no_share_of_misses() {
        let run = run(Vec::new());
        assert_eq!((run.miss_share(), run.cpu_us_per_stream_s()), (None, None));
        assert_eq!(run.busiest(|used| used.cpu_s), 0.0);
    }

    #[test]
    fn the_busiest_seconds_are_found_and_compared_with_the_bounds() {
        // 10 bytes a second, then 100 for ten seconds, then nothing.
        let read = |at: u64| 10 * at.min(20) + 90 * at.saturating_sub(10).min(10);
        let used = |at: u64| Used { cpu_s: at as f64, read_bytes: read(at), reads: Some(at) };
        let samples = (0..40).map(|at| Sample { at_s: at as f64, used: used(at) }).collect();
        let run = run(samples);
        assert!((run.busiest(|used| used.read_bytes as f64) - 100.0).abs() < 1.0);
        let shares = run.shares(4);
        let near = |at: usize, share: f64| (shares[at].1 - share).abs() < 0.01;
        assert!(near(0, 0.5) && near(1, 1.0) && near(2, 0.25), "{shares:?}");
        assert_eq!(Run { disk: None, ..run }.shares(4).len(), 1);
    }

    #[test]
    fn each_round_has_its_own_crowd_and_each_method_the_same() {
        let plan = CrowdPlan {
            users: 50,
            mean_gap: Duration::from_millis(10),
            films: 5,
            film_bytes: 1,
            rate: haul_media::pace::Rate { bits_per_s: 1_000 },
            theta: 0.271,
            periods: 10,
            period: Duration::from_secs(1),
            seed: 3,
        };
        assert_eq!(arrivals(&plan, 0, 5), arrivals(&plan, 0, 5));
        assert_ne!(arrivals(&plan, 0, 5), arrivals(&plan, 1, 5));
        assert!(arrivals(&plan, 0, 1).iter().all(|one| one.film == 0));
    }
}
