//! Example of a server's figures, for tests.

use super::{figures::Figures, process::Process};
use crate::{
    admission::{
        Door, Refusals, Why,
        capacity::{Resource, Share},
    },
    delivery::Reads,
    server::{Session, Snapshot, State, Totals},
    slack::SlackHistogram,
};
use haul_host::DiskUse;
use std::{
    net::IpAddr,
    time::{Duration, Instant, UNIX_EPOCH},
};

/// A server with several streams, two seconds and many bytes after another one.
pub fn example(later: u32) -> Figures {
    let later = u64::from(later);
    let mut slack = SlackHistogram::default();
    for slack_ms in [-5_000, -50, 10, 2_700, 2_900, 20_000] {
        (0..=later).for_each(|_| slack.tell(slack_ms));
    }
    let totals = Totals {
        connections: 3,
        accepted: 7 + later,
        turned_away: 1,
        requests: 9 + later,
        sent_bytes: 1_000_000 * (1 + later),
        streams: 5,
        periods: 6 * (1 + later),
        misses: 2 * (1 + later),
        misses_here: 1,
        held_back: 1,
        refused: 3,
        rings_lost: 1,
    };
    let reads = Reads {
        waiting: 1,
        in_flight: 2,
        finished: 100,
        read_bytes: 100 << 20,
        late: 3,
        time: Duration::from_millis(2_500),
    };
    let disk = DiskUse {
        reads: 10,
        read_bytes: 5_000_000 * (1 + later),
        written_bytes: 0,
        busy: Duration::from_millis(500 * (1 + later)),
    };
    let process = Process {
        cpu: Duration::from_millis(300 * (1 + later)),
        open_files: 12,
        open_files_max: Some(1024),
        resident_bytes: 8 << 20,
    };
    Figures {
        taken: Instant::now() + Duration::from_secs(2 * later),
        snapshot: Snapshot {
            time: UNIX_EPOCH + Duration::from_secs(1_000_000 + 2 * later),
            up_time: Duration::from_secs(60 + 2 * later),
            totals,
            slack,
            reads,
            door: Door {
                is_limited: true,
                admitted: 5,
                refused: refusals(),
                streams: 4,
                taken: Share { disk: 0.5, processors: 0.25, network: 0.0 },
                limit: Share { disk: 0.75, processors: 0.9, network: 0.9 },
                streams_max: Some(10),
                is_shut: false,
            },
            sessions_count: 3,
            sessions: vec![session(1, 0.0, 0), session(2, 0.9, 4), session(3, 0.2, 4)],
            loops: 2,
            loops_missing: 0,
        },
        process,
        disk: Some(("nvme0n1".to_owned(), disk)),
        started: UNIX_EPOCH + Duration::from_millis(999_940_250),
    }
}

fn refusals() -> Refusals {
    let mut refusals = Refusals::default();
    for why in [Why::Full(Resource::Disk), Why::Full(Resource::Disk), Why::Late] {
        refusals.count(why);
    }
    refusals
}

pub fn session(id: u64, rebuffer_risk: f32, periods: u64) -> Session {
    Session {
        id,
        peer: IpAddr::from([192, 0, 2, 7]),
        target: "/<b>film</b>.mp4?rate=2M".to_owned(),
        user_agent: Some("VLC \"3\"\n".to_owned()),
        since: UNIX_EPOCH + Duration::from_secs(999_990),
        rate_bits_per_s: Some(2_000_000),
        state: State::Waiting,
        len_bytes: 4_000_000,
        sent_bytes: 1_000_000,
        periods,
        misses: 1,
        held_back: 0,
        slack: SlackHistogram::default(),
        slack_ms: (periods > 0).then_some(-20),
        buffer_s: 1.25,
        rebuffer_risk,
    }
}
