//! Work of all processors of the host, for any program and for the kernel's threads.

use std::{fs, time::Duration};

/// The sum since the host began, in steps of a hundredth of a second; `None` where it is not told.
pub fn busy() -> Option<Duration> {
    let ticks = busy_ticks(&fs::read_to_string("/proc/stat").ok()?)?;
    let per_second = rustix::param::clock_ticks_per_second();
    Some(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// Tasks that ran or waited for a disk, on average of the last minute; `None` where it is not told.
pub fn load_of_a_minute() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// Ticks of the first line: user, nice, system, idle, iowait, irq and softirq, in this order
/// (proc_stat(5)).
fn busy_ticks(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = ticks[..] else { return None };
    Some(user + nice + system + irq + softirq)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_no_work() {
        let text = "cpu  1 2 4 1000 2000 8 16 32 0 0\ncpu0 1 2 4 1000 2000 8 16 32 0 0\n";
        assert_eq!(busy_ticks(text), Some(31));
        assert_eq!(busy_ticks("intr 5\n"), None);
        assert_eq!(busy_ticks("cpu  1 2 4\n"), None);
    }
}
