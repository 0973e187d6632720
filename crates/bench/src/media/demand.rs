//! The bytes that a crowd asks for, and the disk that a server gets for it.
//!
//! The disk's bound follows from the crowd by a rule, so that nobody seeks a bound at which a
//! method looks well.

use super::request::{CrowdPlan, DiskBound, READ_AHEAD_BYTES};
use haul_host::control_group::ReadLimit;
use haul_media::viewers::arrivals::Arrival;
use std::time::Duration;

/// Bytes a second that a crowd plays when most of it watches.
pub(super) fn asked_bytes_per_s(crowd: &CrowdPlan, arrivals: &[Arrival]) -> u64 {
    let film_s = crowd.film_bytes as f64 * 8.0 / crowd.rate.bits_per_s as f64;
    let viewers = most_at_once(arrivals, Duration::from_secs_f64(film_s)) as u64;
    viewers * crowd.rate.bits_per_s / 8
}

/// The most viewers who watch at one time, each for as long as a film plays. They come one after
/// the other.
fn most_at_once(arrivals: &[Arrival], plays: Duration) -> usize {
    let (mut most, mut first) = (0, 0);
    for (last, arrival) in arrivals.iter().enumerate() {
        while first < last && arrivals[first].at + plays <= arrival.at {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most
}

impl DiskBound {
    /// The reads that the disk gives to a crowd that asks for so many bytes a second.
    pub(super) fn reads(self, asked_bytes_per_s: u64) -> ReadLimit {
        match self {
            Self::Rates(limit) => limit,
            Self::Share(share) => {
                let bytes_per_s = ((asked_bytes_per_s as f64 * share) as u64).max(1);
                let reads_per_s = (bytes_per_s / READ_AHEAD_BYTES).max(1);
                ReadLimit { bytes_per_s: Some(bytes_per_s), reads_per_s: Some(reads_per_s) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_media::pace::Rate;

    fn arrivals(seconds: &[u64]) -> Vec<Arrival> {
        seconds.iter().map(|at| Arrival { at: Duration::from_secs(*at), film: 0 }).collect()
    }

    #[test]
    fn the_most_who_watch_at_once_are_those_whose_films_still_play() {
        let most = |seconds: &[u64]| most_at_once(&arrivals(seconds), Duration::from_secs(10));
        assert_eq!(most(&[]), 0);
        assert_eq!(most(&[0, 10, 20]), 1, "one leaves as the next comes");
        assert_eq!(most(&[0, 9, 18]), 2);
        assert_eq!(most(&[0, 1, 2, 11, 30]), 3);
    }

    #[test]
    fn the_disk_gives_a_share_of_what_its_crowd_asks() {
        let crowd = CrowdPlan {
            users: 3,
            mean_gap: Duration::from_secs(1),
            films: 1,
            film_bytes: 1_500_000,
            rate: Rate { bits_per_s: 1_200_000 },
            theta: 0.0,
            periods: 100,
            period: Duration::from_secs(1),
            seed: 1,
        };
        // A film plays 10 s, and two play at once.
        let asked = asked_bytes_per_s(&crowd, &arrivals(&[0, 9, 18]));
        assert_eq!(asked, 300_000);
        let limit = DiskBound::Share(0.9).reads(asked);
        assert_eq!((limit.bytes_per_s, limit.reads_per_s), (Some(270_000), Some(2)));
        let own = ReadLimit { bytes_per_s: None, reads_per_s: Some(7) };
        assert_eq!(DiskBound::Rates(own).reads(asked), own);
    }
}
