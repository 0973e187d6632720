//! A crowd of viewers against any HTTP server, and what it cost the server.
//!
//!     cargo run --release -p haul-media --example viewers -- 127.0.0.1:80 /a.mp4 10000 1.5M 30 PID
//!
//! ADDRESS TARGET VIEWERS RATE SECONDS, and the server's process numbers. Of several targets,
//! separated by commas, viewers take one after the other. The players begin after one period of
//! 3 s.
//!
//! With `--start-up 6` before all of it the server is held to 6 s of film that it gives at once:
//! each period is due so much earlier. With `--ask-again 3` who is refused comes again after 3 s,
//! and all leave together.
//!
//! With the process numbers of the server it also tells its processor time, once all viewers have
//! come and settled, and its memory; and the time of the whole machine, as what the kernel does in
//! interrupts is charged to whoever runs just then.

use haul_media::{
    pace::Rate,
    viewers::{Crowd, arrivals::evenly, watch},
};
use std::{
    error::Error,
    thread,
    time::{Duration, Instant},
};

const PERIOD: Duration = Duration::from_secs(3);
/// Time over which viewers begin.
const RAMP: Duration = Duration::from_secs(6);
/// Time until what the last viewers got to begin with is over.
const SETTLE: Duration = Duration::from_secs(6);

fn main() -> Result<(), Box<dyn Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let start_up = option(&mut words, "--start-up")?.unwrap_or_default();
    let asks_again = option(&mut words, "--ask-again")?;
    let [address, target, viewers, rate, seconds, pids @ ..] = &words[..] else {
        return Err("needs [--start-up SECONDS] [--ask-again SECONDS] \
            ADDRESS TARGET VIEWERS RATE SECONDS [PID..]"
            .into());
    };
    let time = Duration::from_secs(seconds.parse()?);
    let targets: Vec<String> = target.split(',').map(str::to_owned).collect();
    let crowd = Crowd {
        address: address.parse()?,
        arrivals: evenly(viewers.parse()?, RAMP, targets.len()),
        targets,
        rate: Rate::parse(rate).ok_or("needs a rate, such as 1.5M")?,
        period: PERIOD,
        prebuffer: PERIOD,
        start_up,
        asks_again,
        buffer: None,
        time,
        until: if asks_again.is_some() { time } else { Duration::MAX },
    };
    let cores = thread::available_parallelism()?.get() as f64;
    let watched = thread::spawn({
        let pids = pids.to_vec();
        let steady = time.saturating_sub(RAMP + SETTLE);
        move || {
            thread::sleep(RAMP + SETTLE);
            let (before, idle_before, begun) = (cpu_s(&pids), idle_s(), Instant::now());
            thread::sleep(steady.mul_f64(0.9));
            let over = begun.elapsed();
            let machine = over.as_secs_f64() * cores - (idle_s() - idle_before);
            (cpu_s(&pids) - before, machine, over, rss_kib(&pids))
        }
    });
    let seen = watch(&crowd)?;
    let (cpu, machine, over, rss_kib) =
        watched.join().map_err(|_| "the watch of the server broke")?;
    let late_ms = |share: f64| seen.lateness_us.value_at_quantile(share) as f64 / 1e3;
    let why = seen.why_failed.map(|why| format!(" ({why})")).unwrap_or_default();
    println!("{} streams, {} refused, {} failed{why}", seen.streams, seen.refused, seen.failed);
    println!(
        "{} periods, {} late: p50 {:.1} ms, p99 {:.1} ms, most {:.1} ms",
        seen.periods,
        seen.misses,
        late_ms(0.5),
        late_ms(0.99),
        seen.lateness_us.max() as f64 / 1e3,
    );
    println!("{:.2} GB taken", seen.received_bytes as f64 / 1e9);
    if !pids.is_empty() {
        let cores = cpu / over.as_secs_f64();
        let streams = seen.streams.max(1) as f64;
        println!(
            "the server: {:.1} % of a core, {:.1} us a stream and second, {:.1} KiB a stream",
            100.0 * cores,
            1e6 * cores / streams,
            rss_kib / streams,
        );
        println!("the machine: {:.1} % of a core", 100.0 * machine / over.as_secs_f64());
    }
    Ok(())
}

/// Takes out a word and the seconds behind it.
fn option(words: &mut Vec<String>, name: &str) -> Result<Option<Duration>, Box<dyn Error>> {
    let Some(at) = words.iter().position(|word| word == name) else { return Ok(None) };
    let end = words.len().min(at + 2);
    let seconds = words.drain(at..end).nth(1).ok_or_else(|| format!("{name} needs seconds"))?;
    Ok(Some(Duration::from_secs_f64(seconds.parse()?)))
}

/// Processor seconds of all threads, in user and kernel mode (proc_pid_stat(5)).
fn cpu_s(pids: &[String]) -> f64 {
    let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
    let of = |pid: &String| -> Option<f64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks: u64 =
            fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        Some(ticks as f64 / ticks_per_s)
    };
    pids.iter().filter_map(of).sum()
}

/// Time of all processors in which nothing ran here: idle and waiting for disks, which the kernel
/// measures, and what other machines took (proc_stat(5)). What it says of busy time are samples.
fn idle_s() -> f64 {
    let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let fields: Vec<u64> =
        line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    // User, nice, system, idle, iowait, irq, softirq, steal.
    [3, 4, 7].iter().filter_map(|&at| fields.get(at)).sum::<u64>() as f64 / ticks_per_s
}

fn rss_kib(pids: &[String]) -> f64 {
    let of = |pid: &String| -> Option<f64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    pids.iter().filter_map(of).sum()
}
