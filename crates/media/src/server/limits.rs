//! Limits on what a client may ask of the server, and on how long it may take.

use std::time::Duration;

/// Limits of a server, each a bound on what one stranger can cost the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most connections of one loop. With more, the one that waits longest between two requests is
    /// closed; where all are at work, the new one is.
    pub connections_max: usize,
    /// Most connections of one client's address, all loops together; of IPv6 of one /64. One more
    /// is closed at once. `None`: any number, as many may sit behind one address.
    pub connections_of_address_max: Option<u32>,
    /// Longest time from the first byte of a head to its last: one that comes byte by byte is cut
    /// off (slowloris).
    pub head_time_max: Duration,
    /// Longest time for which a connection may ask nothing.
    pub idle_time_max: Duration,
    /// Longest time for which a client may take nothing of its answer.
    pub stall_time_max: Duration,
    /// Most requests of one connection; then the client opens a new one, which may go to another
    /// loop.
    pub requests_max: u32,
    /// Longest body of a request that is read and thrown away; a longer one ends the connection.
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

/// Most bytes that one connection sends before the others have their turn.
pub(super) const TURN_BYTES_MAX: u64 = 2 << 20;
/// Bytes that a call costs of a turn at least, however little it sends: a part of one byte may need
/// a disk.
pub(super) const CALL_BYTES_MIN: u64 = 64 << 10;
/// Most reads of one connection before the others have their turn.
pub(super) const READS_A_TURN: u32 = 16;
/// Bytes of the parts in which decrypted bytes are taken that found no room.
pub(super) const TOP_UP_BYTES: usize = 4 << 10;
/// Most new connections before those that are there have their turn.
pub(super) const ACCEPTS_MAX: usize = 64;
/// Time to ask for a client that was let in just before the server drains.
pub(super) const DRAIN_GRACE: Duration = Duration::from_millis(500);
/// Time after the last answer, so that the client reads it before it hears that its bytes are
/// refused.
pub(super) const LINGER: Duration = Duration::from_secs(5);
/// Pause before a loop accepts again, where no descriptor is left.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Bytes at the beginning of a paced stream, for which its player waits: the disk reads them within
/// `RESPONSE` if it can.
pub(super) const FIRST_BYTES: u64 = 256 << 10;
pub(super) const RESPONSE: Duration = Duration::from_millis(500);
/// Periods that a player that seeks has to let go of the answer before, which is looked at every
/// `BORROWED_LOOK`.
pub(super) const BORROWED_PERIODS: u32 = 2;
pub(super) const BORROWED_LOOK: Duration = Duration::from_millis(20);
/// Interval between looks for memory that could be given up, where reads wait for some.
pub(super) const SHORT_LOOK: Duration = Duration::from_millis(250);
/// Speed at which a period's bytes go into the network, as a multiple of their rate: a start-up of
/// two periods and the period after it have to be there within one.
pub(super) const BURST_TIMES: u64 = 8;
/// Slowest speed at which a period's bytes go into the network. The kernel makes packets of what a
/// socket may send in about 1 ms (sk_pacing_shift, tcp_tso_autosize()), and small ones cost
/// processor time: 16 KiB.
pub(super) const BURST_BYTES_PER_S_MIN: u64 = 16 << 20;
/// Unit of the times at which periods are looked at.
pub(super) const TICK: Duration = Duration::from_millis(8);

/// Longest read: seconds of a film, and long enough that a disk's head mostly reads.
pub(crate) const READ_BYTES_MAX: u64 = 512 << 10;

pub(crate) const SLOTS_MIN: u64 = 4;

pub(crate) const SLOTS_MAX: u64 = 1 << 14;

/// Quanta of a period: deadlines within one count as one, and the disk reads them in its own order.
pub(crate) const QUANTA_A_PERIOD: u32 = 8;
