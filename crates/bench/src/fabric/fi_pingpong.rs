//! fi_pingpong, libfabric's own measurement, beside which our endpoints stand.

use crate::{error::Lack, fabric_side::processors, small_files::programs, workshop::Workshop};
use anyhow::{Context, Result};
use haul_fabric::Provider;
use rustix::process::Pid;
use std::{
    io::Read,
    net::{IpAddr, TcpListener},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Longest time of one run.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Time in which the side that answers begins to listen.
const START_MAX: Duration = Duration::from_secs(10);
/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The program, where it is installed.
#[derive(Debug)]
pub struct FiPingPong(PathBuf);

impl FiPingPong {
    pub fn find() -> Result<Self, Lack> {
        programs::find("fi_pingpong").map(Self)
    }

    /// Measures the latency of messages in microseconds.
    ///
    /// # Errors
    /// If the user wants to stop; within, why it measured nothing.
    pub fn run(
        &self,
        workshop: &Workshop,
        provider: Provider,
        address: IpAddr,
        message_bytes: u64,
        exchanges: u64,
    ) -> Result<Result<f64, Lack>> {
        let port = free_port(address)?;
        let sides = processors::of_sides();
        let start = |words: &[String], processor: Option<usize>| -> Result<Killed> {
            let kind = if provider == Provider::Shm { "rdm" } else { "msg" };
            let mut command = Command::new(&self.0);
            command.args(["-p", provider.name(), "-e", kind]);
            command.args(["-S", &message_bytes.to_string(), "-I", &exchanges.to_string()]);
            command.args(words).stdin(Stdio::null());
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let started = Killed(command.spawn().context("fi_pingpong")?);
            if let Some(processor) = processor {
                processors::keep_on(Some(Pid::from_child(&started.0)), processor)?;
            }
            Ok(started)
        };
        let answering = sides.map(|(_, answers)| answers);
        let mut answers = start(&["-B".to_owned(), port.to_string()], answering)?;
        let began = Instant::now();
        // It listens at once or never, and says nothing of that: the other one is tried until then.
        loop {
            let words = ["-P".to_owned(), port.to_string(), address.to_string()];
            let mut asks = start(&words, sides.map(|(asks, _)| asks))?;
            while began.elapsed() < TIME_MAX && asks.0.try_wait()?.is_none() {
                workshop.go_on()?;
                thread::sleep(LOOK_EVERY);
            }
            let said = asks.words();
            if let Some(us) = latency_us(&said, message_bytes) {
                return Ok(Ok(us));
            }
            let ended = answers.0.try_wait()?.is_some();
            if ended || began.elapsed() > START_MAX {
                let said = said + &answers.words();
                let program = "fi_pingpong".to_owned();
                return Ok(Err(Lack::Failed { program, said: said.trim().to_owned() }));
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

/// A port that nobody has at this moment.
fn free_port(address: IpAddr) -> Result<u16> {
    let listener = TcpListener::bind((address, 0)).context("cannot find a free port")?;
    Ok(listener.local_addr()?.port())
}

/// The latency in the line of its table that begins with the message's length.
fn latency_us(said: &str, message_bytes: u64) -> Option<f64> {
    const LATENCY_COLUMN: usize = 6;
    let columns: Vec<&str> =
        said.lines().find(|line| line.starts_with("bytes"))?.split_whitespace().collect();
    if columns.get(LATENCY_COLUMN) != Some(&"usec/xfer") {
        return None;
    }
    let mut rows = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let length = |row: &Vec<&str>| row.first().is_some_and(|first| is_length(first, message_bytes));
    rows.find(length)?.get(LATENCY_COLUMN)?.parse().ok()
}

/// Whether this is how fi_pingpong writes a length: `64`, `4k`, `1m`.
fn is_length(text: &str, bytes: u64) -> bool {
    let shift = match text.chars().last() {
        Some('k') => 10,
        Some('m') => 20,
        _ => 0,
    };
    let digits = text.trim_end_matches(['k', 'm']);
    digits.parse::<u64>().is_ok_and(|number| number << shift == bytes)
}

/// A process that is ended when it is of no more use.
struct Killed(Child);

impl Killed {
    /// All that it has said, once it has ended.
    fn words(&mut self) -> String {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let mut said = String::new();
        if let Some(output) = &mut self.0.stdout {
            let _ = output.read_to_string(&mut said);
        }
        if let Some(errors) = &mut self.0.stderr {
            let _ = errors.read_to_string(&mut said);
        }
        said
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latency_is_read_from_the_table() {
        let said = "bytes   #sent   #ack   total       time   MB/sec    usec/xfer   Mxfers/sec\n\
                    64      20k     =20k     2.4m        0.63s      4.05      15.81       0.06\n";
        assert_eq!(latency_us(said, 64), Some(15.81));
        assert_eq!(latency_us(said, 4096), None);
        assert_eq!(latency_us("fi_getinfo(): No data available", 64), None);
        assert!(is_length("4k", 4096) && is_length("1m", 1 << 20) && !is_length("4k", 4));
    }
}
