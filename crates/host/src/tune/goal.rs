//! The goal of tuning: a host's role, the rate it should reach, and how far its peers are.

use std::fmt;

use super::machine::Machine;

/// The rate that is assumed where no card tells its speed.
const RATE_ASSUMED_BITS_PER_S: u64 = 10_000_000_000;
/// The RTT that is assumed where none is given: a path across a continent.
pub const RTT_ASSUMED_MS: f64 = 50.0;
/// The largest buffer of a socket: to the kernel it is a signed 32-bit number of bytes
/// (net/core/sock.c).
pub const SOCKET_BUFFER_BYTES_MAX: u64 = i32::MAX as u64;
/// Streams over which a transfer node is expected to spread what one alone need not reach.
const STREAMS_OF_A_NODE: u64 = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A data transfer node: several streams share its buffers, so none takes a whole path's.
    #[default]
    Dtn,
    /// A host for measurements: one stream should fill the path.
    TestHost,
    /// A server of paced streams: thousands of connections, none of them fast.
    Media,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dtn => "data transfer node",
            Self::TestHost => "test host",
            Self::Media => "media server",
        })
    }
}

/// A range of speeds, a column of the table that sites tune by (ESnet's host tuning,
/// fasterdata.es.net).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Speed {
    UpTo10G,
    UpTo40G,
    Above40G,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    pub role: Role,
    pub rate_bits_per_s: u64,
    /// The origin of the rate, in words.
    pub rate_from: String,
    /// The round trip time to the peers; `None`: not given, so [`RTT_ASSUMED_MS`] where a number is
    /// needed.
    pub rtt_ms: Option<f64>,
    /// The network cards that are tuned.
    pub cards: Vec<String>,
}

/// Wishes of the user for the goal; missing ones are found out.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub role: Role,
    pub rate_bits_per_s: Option<u64>,
    pub rtt_ms: Option<f64>,
    pub card: Option<String>,
}

impl Goal {
    /// Makes the goal out of the user's wishes and the machine. Cards that are down do not count
    /// unless named.
    #[must_use]
    pub fn of(machine: &Machine, wanted: &Wanted) -> Self {
        let cards = wanted.card.clone().map_or_else(|| up(machine), |card| vec![card]);
        let fastest = cards.iter().filter_map(|card| Some((speed(machine, card)?, card))).max();
        let (rate_bits_per_s, rate_from) = match (wanted.rate_bits_per_s, fastest) {
            (Some(rate), _) => (rate, "as asked for".to_owned()),
            (None, Some((rate, card))) => (rate, format!("the speed of {card}")),
            (None, None) => {
                (RATE_ASSUMED_BITS_PER_S, "assumed: no card tells its speed".to_owned())
            }
        };
        Self { role: wanted.role, rate_bits_per_s, rate_from, rtt_ms: wanted.rtt_ms, cards }
    }

    #[must_use]
    pub fn speed(&self) -> Speed {
        match self.rate_bits_per_s {
            0..=10_000_000_000 => Speed::UpTo10G,
            10_000_000_001..=40_000_000_000 => Speed::UpTo40G,
            _ => Speed::Above40G,
        }
    }

    /// Bandwidth times delay: bytes on the way when the path is full. Needs an RTT that is given.
    #[must_use]
    pub fn bdp_bytes(&self) -> Option<u64> {
        Some((self.rate_bits_per_s as f64 * self.rtt_ms? / 8000.0) as u64)
    }

    /// The largest buffer that one stream needs: the table's, or more on a path that is given and
    /// longer. One stream of a node need not carry all of it.
    #[must_use]
    pub fn stream_buffer_bytes(&self, of_table: u64) -> u64 {
        let share = match self.role {
            Role::TestHost => self.bdp_bytes(),
            Role::Dtn => self.bdp_bytes().map(|bytes| bytes / STREAMS_OF_A_NODE),
            Role::Media => None,
        };
        // The kernel keeps as much room for its own records as for data (tcp_adv_win_scale).
        let needed = share.map_or(0, |bytes| {
            bytes.saturating_mul(2).min(SOCKET_BUFFER_BYTES_MAX).next_power_of_two()
        });
        of_table.max(needed).min(SOCKET_BUFFER_BYTES_MAX)
    }

    /// The goal as reports say it: `data transfer node, 100 Gbit/s, 80 ms`.
    #[must_use]
    pub fn words(&self) -> String {
        let rate = rate_words(self.rate_bits_per_s);
        match self.rtt_ms {
            Some(rtt) => format!("{}, {rate}, {rtt} ms", self.role),
            None => format!("{}, {rate}", self.role),
        }
    }
}

/// Writes a rate: `100 Gbit/s`, `2.5 Gbit/s`, `100 Mbit/s`.
#[must_use]
pub fn rate_words(bits_per_s: u64) -> String {
    if bits_per_s >= 1_000_000_000 {
        format!("{} Gbit/s", bits_per_s as f64 / 1e9)
    } else {
        format!("{} Mbit/s", bits_per_s as f64 / 1e6)
    }
}

/// Speed that a card says it has, in bits a second; virtual ones often say nothing, or -1.
#[must_use]
pub fn speed(machine: &Machine, card: &str) -> Option<u64> {
    let megabits = machine.number(&format!("/sys/class/net/{card}/speed")).ok()?;
    // SPEED_UNKNOWN is -1 (include/uapi/linux/ethtool.h); some drivers show it as unsigned.
    let megabits = u64::try_from(megabits).ok().filter(|speed| (1..10_000_000).contains(speed))?;
    Some(megabits * 1_000_000)
}

fn up(machine: &Machine) -> Vec<String> {
    let mut cards = machine.cards();
    cards.retain(|card| {
        let state = machine.text(&format!("/sys/class/net/{card}/operstate"));
        state.is_ok_and(|state| state != "down")
    });
    cards
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(role: Role, gigabits: u64, rtt_ms: Option<f64>) -> Goal {
        let rate_bits_per_s = gigabits * 1_000_000_000;
        Goal { role, rate_bits_per_s, rate_from: String::new(), rtt_ms, cards: vec![] }
    }

    #[test]
    fn a_hundred_gigabit_and_a_hundred_milliseconds_are_one_and_a_quarter_gigabytes() {
        assert_eq!(goal(Role::Dtn, 100, Some(100.0)).bdp_bytes(), Some(1_250_000_000));
        assert_eq!(goal(Role::Dtn, 10, Some(100.0)).bdp_bytes(), Some(125_000_000));
        assert_eq!(goal(Role::Dtn, 10, None).bdp_bytes(), None);
    }

    #[test]
    fn a_node_spreads_its_path_over_streams_and_a_test_host_does_not() {
        let of_table = 32 << 20;
        assert_eq!(goal(Role::Dtn, 10, None).stream_buffer_bytes(of_table), of_table);
        assert_eq!(goal(Role::Dtn, 10, Some(100.0)).stream_buffer_bytes(of_table), 64 << 20);
        assert_eq!(goal(Role::TestHost, 10, Some(100.0)).stream_buffer_bytes(of_table), 256 << 20);
        assert_eq!(goal(Role::Media, 10, Some(100.0)).stream_buffer_bytes(of_table), of_table);
        let far = goal(Role::TestHost, 400, Some(50.0));
        assert_eq!(far.stream_buffer_bytes(of_table), SOCKET_BUFFER_BYTES_MAX);
    }

    #[test]
    fn a_card_that_tells_no_speed_or_nonsense_has_none() {
        let root = tempfile::tempdir().unwrap();
        let machine = Machine::below(root.path());
        let directory = root.path().join("sys/class/net/eth0/device");
        std::fs::create_dir_all(&directory).unwrap();
        let speed_file = root.path().join("sys/class/net/eth0/speed");
        for (text, expected) in [
            ("-1\n", None),
            ("4294967295\n", None),
            ("0\n", None),
            ("fast\n", None),
            ("", None),
            ("25000\n", Some(25_000_000_000)),
        ] {
            std::fs::write(&speed_file, text).unwrap();
            assert_eq!(speed(&machine, "eth0"), expected, "{text:?}");
        }
        std::fs::write(root.path().join("sys/class/net/eth0/operstate"), "up\n").unwrap();
        let found = Goal::of(&machine, &Wanted::default());
        assert_eq!(found.words(), "data transfer node, 25 Gbit/s");
        assert_eq!(found.cards, ["eth0"]);
    }
}
