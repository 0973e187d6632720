//! A crowd of viewers against any HTTP server, and what it cost the server.
//!
//!     cargo run --release -p haul-media --example viewers -- 127.0.0.1:80 /a.mp4 10000 1.5M 30 PID
//!
//! ADDRESS TARGET VIEWERS RATE SECONDS, and the server's process numbers.
//! The players begin after one period of 3 s. With the process numbers of the server it also tells
//! its processor time, from when all viewers have come, and its memory.

use haul_media::{
    pace::Rate,
    viewers::{Crowd, arrivals::evenly, watch},
};
use std::{error::Error, thread, time::Duration};

const PERIOD: Duration = Duration::from_secs(3);
/// Viewers begin spread over some periods.
const RAMP: Duration = Duration::from_secs(6);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, target, viewers, rate, seconds, pids @ ..] = &words[..] else {
        return Err("needs ADDRESS TARGET VIEWERS RATE SECONDS [PID..]".into());
    };
    let time = Duration::from_secs(seconds.parse()?);
    let crowd = Crowd {
        address: address.parse()?,
        targets: vec![target.clone()],
        arrivals: evenly(viewers.parse()?, RAMP, 1),
        rate: Rate::parse(rate).ok_or("needs a rate, such as 1.5M")?,
        period: PERIOD,
        prebuffer: PERIOD,
        buffer: None,
        time,
        until: Duration::MAX,
    };
    let watched = thread::spawn({
        let pids = pids.to_vec();
        let steady = time.saturating_sub(RAMP);
        move || {
            thread::sleep(RAMP);
            let before = cpu_s(&pids);
            thread::sleep(steady.mul_f64(0.9));
            (cpu_s(&pids) - before, steady.mul_f64(0.9), rss_kib(&pids))
        }
    });
    let seen = watch(&crowd)?;
    let (cpu, over, rss_kib) = watched.join().map_err(|_| "the watch of the server broke")?;
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
    }
    Ok(())
}

/// Of all threads, in user and kernel mode (proc_pid_stat(5)).
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

fn rss_kib(pids: &[String]) -> f64 {
    let of = |pid: &String| -> Option<f64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    pids.iter().filter_map(of).sum()
}
