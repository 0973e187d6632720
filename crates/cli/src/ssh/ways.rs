//! Ways that the data of a copy goes, beside the ssh that has started it.

use super::channels::Channels;
use haul_transfer::{ConnectOptions, Connector, Proxy};
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    net::TcpStream,
    sync::Arc,
    time::{Duration, Instant},
};

/// Choice of the user among the ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Connections to the other side; where none can be made, connections from there; where none
    /// comes, ssh itself.
    #[default]
    Any,
    /// Connections from the other side.
    Reverse,
    /// ssh itself.
    ThroughSsh,
}

impl Way {
    /// The option that names it; `None` where the user has named none.
    #[must_use]
    pub fn option(self) -> Option<&'static str> {
        match self {
            Self::Any => None,
            Self::Reverse => Some("--reverse"),
            Self::ThroughSsh => Some("--through-ssh"),
        }
    }
}

/// Names of the options among these that are for connections to the other side alone: no other way
/// has them.
#[must_use]
pub fn only_for_connections(connect: &ConnectOptions) -> Vec<&'static str> {
    let named = [
        ("--bind", !connect.local_ends.is_empty()),
        ("--dscp", connect.dscp.is_some()),
        ("--scitag", connect.scitag.is_some()),
    ];
    named.into_iter().filter_map(|(name, is_named)| is_named.then_some(name)).collect()
}

/// Whether no way is tried but connections to the other side: the user has named the path that they
/// take, by a proxy or by a local end, and other ways do not take it.
#[must_use]
pub fn has_named_path(proxy: Option<&Proxy>, connect: &ConnectOptions) -> bool {
    proxy.is_some() || !connect.local_ends.is_empty()
}

/// Words, behind those on why another way is taken, on options that it does not have; none where
/// there are no such options.
#[must_use]
pub fn left_out(connect: &ConnectOptions) -> String {
    match only_for_connections(connect)[..] {
        [] => String::new(),
        [name] => format!("; {name} does not count there"),
        [.., _] => format!("; {} do not count there", only_for_connections(connect).join(", ")),
    }
}

/// Connections that ssh carries.
#[derive(Debug)]
pub struct ThroughSsh {
    channels: Arc<Channels>,
    busy: ProcessorUse,
    why: String,
}

impl ThroughSsh {
    /// Connections by these channels, with the process of ssh where haul has started it; `why` says
    /// why there is no better way.
    #[must_use]
    pub fn new(channels: Arc<Channels>, process: Option<u32>, why: String) -> Self {
        let busy = ProcessorUse::begin(process.into_iter().collect());
        Self { channels, busy, why }
    }

    #[must_use]
    pub fn channels(&self) -> &Channels {
        &self.channels
    }
}

impl Connector for ThroughSsh {
    fn connect(&self, _: Duration, _: &dyn Fn() -> bool) -> io::Result<TcpStream> {
        self.channels.connect()
    }

    fn is_over(&self) -> Option<String> {
        self.channels.over()
    }

    fn is_through_ssh(&self) -> bool {
        true
    }

    fn in_words(&self) -> String {
        let mut text = format!("through ssh, {}", self.why);
        if let Some(share) = self.busy.in_words() {
            text += &format!("; ssh here used {share}");
        }
        text
    }
}

/// Processor time that some processes use from a time on.
#[derive(Debug)]
pub struct ProcessorUse {
    processes: Vec<u32>,
    begun: Instant,
    /// Time that they had used by then, as for keys.
    before: Duration,
}

impl ProcessorUse {
    #[must_use]
    pub fn begin(processes: Vec<u32>) -> Self {
        let before = used(&processes);
        Self { processes, begun: Instant::now(), before }
    }

    /// Says how much it is; `None` where it is nothing, as where a ControlMaster carries the bytes:
    /// the work is that of another process.
    #[must_use]
    pub fn in_words(&self) -> Option<String> {
        let busy = used(&self.processes).saturating_sub(self.before);
        let seconds = self.begun.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
        let share = busy.as_secs_f64() / seconds * 100.0;
        (!busy.is_zero()).then(|| format!("{share:.0} % of a processor"))
    }
}

fn used(processes: &[u32]) -> Duration {
    processes.iter().filter_map(|process| processor_time(*process)).sum()
}

/// Processor time that a process has used, in user space and in the kernel (proc(5), stat).
fn processor_time(process: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in brackets, may have blanks.
    let (_, behind_name) = text.rsplit_once(')')?;
    let mut fields = behind_name.split_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    let a_second = rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_secs_f64(ticks as f64 / a_second as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_time_of_a_process_grows_with_its_work() {
        let own = std::process::id();
        let before = processor_time(own).unwrap();
        let begun = Instant::now();
        let mut sum = 0_u64;
        while processor_time(own).unwrap() < before + Duration::from_millis(30) {
            sum = sum.wrapping_add(begun.elapsed().as_nanos() as u64);
            assert!(begun.elapsed() < Duration::from_secs(30), "{sum}");
        }
        assert!(processor_time(u32::MAX).is_none());
    }
}
