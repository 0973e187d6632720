//! Packets that an interface of a namespace has received, by the kernel's own count.

use crate::{EmulatorError, namespace::Namespace};
use std::{fs, time::Instant};

/// Packets that an interface had received by a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub at: Instant,
    /// Bytes of all packets, each with the headers that the interface counts.
    pub bytes: u64,
    pub packets: u64,
}

impl Received {
    /// Bytes a second of what is behind the headers, since an earlier time; `None` where no time
    /// passed.
    #[must_use]
    pub fn payload_rate_since(&self, before: &Self, header_bytes: u64) -> Option<f64> {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        let headers = header_bytes * (self.packets - before.packets);
        let payload = (self.bytes - before.bytes).saturating_sub(headers);
        (seconds > 0.0).then(|| payload as f64 / seconds)
    }
}

impl Namespace {
    /// The packets that an interface of this host has received so far.
    ///
    /// # Errors
    /// If there is no such interface, or the host is gone.
    pub fn received(&self, device: &str) -> Result<Received, EmulatorError> {
        let read = || (Instant::now(), fs::read_to_string("/proc/thread-self/net/dev"));
        let (at, text) = self.within(read)?;
        let failed = |found: String| EmulatorError::Failed {
            what: format!("the counters of {device}"),
            found,
        };
        let text = text.map_err(|error| failed(error.to_string()))?;
        let (bytes, packets) =
            counted(&text, device).ok_or_else(|| failed("it is not listed".to_owned()))?;
        Ok(Received { at, bytes, packets })
    }
}

/// Bytes and packets received, of a line of /proc/net/dev (proc_pid_net(5)).
fn counted(text: &str, device: &str) -> Option<(u64, u64)> {
    let of_device = |line: &'_ str| {
        let (name, counts) = line.split_once(':')?;
        (name.trim() == device).then(|| counts.to_owned())
    };
    let counts = text.lines().find_map(of_device)?;
    let mut counts = counts.split_whitespace().map(str::parse);
    Some((counts.next()?.ok()?, counts.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_counts_are_those_of_the_device() {
        let text = "Inter-|   Receive                            |  Transmit\n \
                    face |bytes    packets errs drop fifo frame|bytes\n    \
                    lo:     100       2    0    0    0     0      100       2\n   \
                    wan: 7000000    4700    0    0    0     0   123456    2000\n";
        assert_eq!(counted(text, "wan"), Some((7_000_000, 4700)));
        assert_eq!(counted(text, "lo"), Some((100, 2)));
        assert_eq!(counted(text, "w"), None);
    }

    #[test]
    fn a_rate_is_of_what_is_behind_the_headers_and_of_the_time_between() {
        let at = Instant::now();
        let before = Received { at, bytes: 500, packets: 5 };
        let after = Received { at: at + Duration::from_secs(2), bytes: 3_500, packets: 25 };
        assert_eq!(after.payload_rate_since(&before, 50), Some(1_000.0));
        assert_eq!(after.payload_rate_since(&after, 50), None);
    }
}
