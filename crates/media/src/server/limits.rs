//! What a client may ask of the server, and how long it may take.

use std::time::Duration;

/// Every one of them is a bound on what one stranger can cost the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of one loop. With more, the one that waits longest between two requests is
    /// closed; where all are at work, the new one is.
    pub connections_max: usize,
    /// Connections of one client's address, all loops together; of IPv6 of one /64. One more is
    /// closed at once. `None`: any number, as many may sit behind one address.
    pub connections_of_address_max: Option<u32>,
    /// From the first byte of a head to its last: one that comes byte by byte is cut off
    /// (slowloris).
    pub head_time_max: Duration,
    /// A connection that asks nothing.
    pub idle_time_max: Duration,
    /// An answer of which the client takes nothing.
    pub stall_time_max: Duration,
    /// Then the client opens a new connection, which may go to another loop.
    pub requests_max: u32,
    /// A body of a request that is read and thrown away; a longer one ends the connection.
    pub body_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 20_000,
            connections_of_address_max: None,
            head_time_max: Duration::from_secs(10),
            idle_time_max: Duration::from_secs(75),
            stall_time_max: Duration::from_secs(60),
            requests_max: 100_000,
            body_bytes_max: 1 << 20,
        }
    }
}

/// One connection sends at most so much before the others have their turn.
pub(super) const TURN_BYTES_MAX: u64 = 2 << 20;
/// What a call costs of a turn at least, however little it sends: a part of one byte may need a
/// disk.
pub(super) const CALL_BYTES_MIN: u64 = 64 << 10;
/// Reads of one connection before the others have their turn.
pub(super) const READS_A_TURN: u32 = 16;
/// What is decrypted and found no room is taken in such parts.
pub(super) const TOP_UP_BYTES: usize = 4 << 10;
/// New connections before those that are there have their turn.
pub(super) const ACCEPTS_MAX: usize = 64;
/// While the server drains: who was let in just before has so long to ask.
pub(super) const DRAIN_GRACE: Duration = Duration::from_millis(500);
/// After the last answer, so that the client reads it before it hears that its bytes are refused.
pub(super) const LINGER: Duration = Duration::from_secs(5);
/// Where no descriptor is left, the loop accepts again after this.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Until so much is sent a paced stream has just begun, and its player waits for it: the disk reads
/// it within `RESPONSE` if it can.
pub(super) const FIRST_BYTES: u64 = 256 << 10;
pub(super) const RESPONSE: Duration = Duration::from_millis(500);
/// A player that seeks has so long to let go of the answer before, and it is looked this often
/// whether it has.
pub(super) const BORROWED_PERIODS: u32 = 2;
pub(super) const BORROWED_LOOK: Duration = Duration::from_millis(20);
/// Where reads wait for memory, it is looked this often who could give some.
pub(super) const SHORT_LOOK: Duration = Duration::from_millis(250);
/// A period's bytes go into the network this many times as fast as they play: a start-up of two
/// periods and the period after it have to be there within one.
pub(super) const BURST_TIMES: u64 = 8;
/// And never slower than this. The kernel makes packets of what a socket may send in about 1 ms
/// (sk_pacing_shift, tcp_tso_autosize()), and small ones cost processor time: 16 KiB.
pub(super) const BURST_BYTES_PER_S_MIN: u64 = 16 << 20;
/// Periods begin at multiples of this.
pub(super) const TICK: Duration = Duration::from_millis(8);

/// The longest read: some seconds of a film, and long enough that a disk's head mostly reads.
pub(crate) const READ_BYTES_MAX: u64 = 512 << 10;

pub(crate) const SLOTS_MIN: u64 = 4;

pub(crate) const SLOTS_MAX: u64 = 1 << 14;

/// Deadlines within one count as one: the disk reads them in its own order.
pub(crate) const QUANTA_A_PERIOD: u32 = 8;
