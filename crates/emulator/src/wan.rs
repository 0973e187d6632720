//! A long path on one machine: two network namespaces with delay, rate, queue and loss between.
//!
//! Threads carry packets between a TUN device in each. Needs root; gone when dropped.
//!
//! Packets are carried one by one as the interfaces give them (no segmentation offload), so loss is
//! that of segments. The MTU is 1500 and may be changed up to 9000.

use crate::{
    EmulatorError, Hosts,
    namespace::Namespace,
    nat::{self, Nat},
    random::Random,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use std::{
    collections::VecDeque,
    os::fd::OwnedFd,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

const DEVICE: &str = "wan";
const MTU_BYTES: usize = 1500;
const MTU_BYTES_MAX: usize = 9000;
/// Most packets read from a host before those that are due are delivered.
const READS_A_TURN: usize = 64;
/// Longest sleep of a thread before it checks whether the path is over.
const IDLE: Duration = Duration::from_millis(50);

/// Behaviour of a path, alike in both directions.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Delay of one direction.
    pub delay: Duration,
    pub bits_per_s: u64,
    /// The share of packets that is lost, 0 to 1.
    pub loss: f64,
    /// Most bytes that wait for the link: more is dropped.
    pub queue_bytes: u64,
}

impl Path {
    /// A path of a given round trip, rate and loss, with a queue of one bandwidth-delay product.
    #[must_use]
    pub fn new(round_trip: Duration, bits_per_s: u64, loss: f64) -> Self {
        let queue_bytes = (bits_per_s as f64 / 8.0 * round_trip.as_secs_f64()) as u64;
        Self { delay: round_trip / 2, bits_per_s, loss, queue_bytes: queue_bytes.max(64 << 10) }
    }
}

/// Number of packets of both directions, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub carried: u64,
    pub lost: u64,
    /// Packets dropped because the queue was full.
    pub dropped: u64,
    /// Packets dropped because they were too long, see [`Wan::swallow_over`].
    pub swallowed: u64,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// The path is cut: nothing is carried meanwhile.
    cut: AtomicBool,
    /// Longest packet that passes, in bytes; 0: all pass.
    packet_bytes_max: AtomicUsize,
    /// NAT before the near host.
    nat: Nat,
    carried: AtomicU64,
    lost: AtomicU64,
    dropped: AtomicU64,
    swallowed: AtomicU64,
}

/// Two hosts and the path between them.
#[derive(Debug)]
pub struct Wan {
    near: Namespace,
    far: Namespace,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Wan {
    /// Starts a path; which packets are lost depends on the seed alone.
    ///
    /// # Errors
    /// Without root, ip(8) or TUN devices.
    pub fn start(path: Path, seed: u64) -> Result<Self, EmulatorError> {
        let (near, near_device) = make_host("near", NEAR, FAR)?;
        let (far, far_device) = make_host("far", FAR, NEAR)?;
        let shared = Arc::new(Shared::default());
        let (near_device, far_device) = (Arc::new(near_device), Arc::new(far_device));
        let ways = [
            (&near_device, &far_device, nat::Way::Out, 1),
            (&far_device, &near_device, nat::Way::In, 2),
        ];
        let threads = ways.map(|(from, to, of_nat, salt)| {
            let mut way = Way {
                from: from.clone(),
                to: to.clone(),
                of_nat,
                path,
                random: Random::from_seed(seed.wrapping_mul(salt)),
                shared: shared.clone(),
                packets: VecDeque::new(),
                free_at: Instant::now(),
            };
            thread::spawn(move || way.carry())
        });
        Ok(Self { near, far, shared, threads: threads.into() })
    }

    #[must_use]
    pub fn hosts(&self) -> Hosts<'_> {
        Hosts { near: &self.near, far: &self.far, device: DEVICE, far_address: FAR }
    }

    /// The address of the far host, for the near one.
    #[must_use]
    pub fn far_address(&self) -> &'static str {
        FAR
    }

    /// The names of both namespaces, the near one first.
    #[must_use]
    pub fn namespaces(&self) -> (&str, &str) {
        (self.near.name(), self.far.name())
    }

    /// Wraps a command so that it runs on the near host.
    #[must_use]
    pub fn near(&self, command: &Command) -> Command {
        self.near.wrap(command)
    }

    /// Wraps a command so that it runs on the far host.
    #[must_use]
    pub fn far(&self, command: &Command) -> Command {
        self.far.wrap(command)
    }

    /// Cuts the path, or mends it: what is sent meanwhile is lost, and nobody is told.
    pub fn cut(&self, is_cut: bool) {
        self.shared.cut.store(is_cut, Ordering::Relaxed);
    }

    /// Drops packets of more bytes, IP header included, from now on, and tells nobody: as where a
    /// tunnel is narrower than its ends and a firewall takes the ICMP messages that say so.
    pub fn swallow_over(&self, packet_bytes: usize) {
        self.shared.packet_bytes_max.store(packet_bytes, Ordering::Relaxed);
    }

    /// A NAT before the near host forgets its connections: they seem to come from elsewhere now.
    pub fn rebind(&self) {
        self.shared.nat.rebind();
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Shared { carried, lost, dropped, swallowed, .. } = &*self.shared;
        Counts {
            carried: of(carried),
            lost: of(lost),
            dropped: of(dropped),
            swallowed: of(swallowed),
        }
    }
}

impl Drop for Wan {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

const NEAR: &str = "10.79.0.1";
const FAR: &str = "10.79.0.2";

/// Makes a host with a device that packets are read from and written to.
fn make_host(side: &str, address: &str, peer: &str) -> Result<(Namespace, OwnedFd), EmulatorError> {
    let host = Namespace::make("wan", side)?;
    let device = host.within(|| haul_sys::tun::open(DEVICE))?.map_err(|error| {
        let (what, needs) = ("a long path".to_owned(), "TUN devices (/dev/net/tun)");
        EmulatorError::Unable { what, needs, found: error.to_string() }
    })?;
    host.ip(&["address", "add", address, "peer", peer, "dev", DEVICE])?;
    let mtu = MTU_BYTES.to_string();
    host.ip(&["link", "set", DEVICE, "mtu", &mtu, "txqueuelen", "10000", "up"])?;
    Ok((host, device))
}

struct Packet {
    due: Instant,
    bytes: Box<[u8]>,
}

/// One direction of a path.
struct Way {
    from: Arc<OwnedFd>,
    to: Arc<OwnedFd>,
    of_nat: nat::Way,
    path: Path,
    random: Random,
    shared: Arc<Shared>,
    packets: VecDeque<Packet>,
    /// Time at which the link has sent all that is queued.
    free_at: Instant,
}

impl Way {
    fn carry(&mut self) {
        while !self.shared.stop.load(Ordering::Relaxed) {
            self.deliver(Instant::now());
            if self.take() == 0 {
                self.sleep();
            }
        }
    }

    /// Hands the other host all packets that are due.
    fn deliver(&mut self, now: Instant) {
        while let Some(packet) = self.packets.front().filter(|packet| packet.due <= now) {
            match rustix::io::write(&*self.to, &packet.bytes) {
                Err(Errno::AGAIN) => return,
                // The interface is going away.
                Err(_) => {}
                Ok(_) => {
                    self.shared.carried.fetch_add(1, Ordering::Relaxed);
                }
            }
            self.packets.pop_front();
        }
    }

    /// Queues packets that the host sends, and counts them.
    fn take(&mut self) -> usize {
        let mut bytes = [0; MTU_BYTES_MAX + 64];
        for taken in 0..READS_A_TURN {
            match rustix::io::read(&*self.from, &mut bytes) {
                Ok(len) if len > 0 => self.queue(&mut bytes[..len]),
                _ => return taken,
            }
        }
        READS_A_TURN
    }

    fn queue(&mut self, bytes: &mut [u8]) {
        let packet_bytes_max = self.shared.packet_bytes_max.load(Ordering::Relaxed);
        if packet_bytes_max > 0 && bytes.len() > packet_bytes_max {
            self.shared.swallowed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let is_lost =
            self.random.below(1 << 32) as f64 / (1u64 << 32) as f64 >= 1.0 - self.path.loss;
        if is_lost
            || self.shared.cut.load(Ordering::Relaxed)
            || !self.shared.nat.translate(bytes, self.of_nat)
        {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let now = Instant::now();
        let free_at = self.free_at.max(now);
        let waiting_bytes = free_at.saturating_duration_since(now).as_secs_f64()
            * self.path.bits_per_s as f64
            / 8.0;
        if waiting_bytes > self.path.queue_bytes as f64 {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let takes = bytes.len() as f64 * 8.0 / self.path.bits_per_s as f64;
        self.free_at = free_at + Duration::from_secs_f64(takes);
        self.packets
            .push_back(Packet { due: self.free_at + self.path.delay, bytes: (&*bytes).into() });
    }

    /// Sleeps until a packet comes or is due.
    fn sleep(&self) {
        let due = self.packets.front().map(|packet| packet.due);
        let left = due.map_or(IDLE, |due| due.saturating_duration_since(Instant::now()).min(IDLE));
        let Ok(left) = Timespec::try_from(left) else { return };
        let _ = poll(&mut [PollFd::new(&*self.from, PollFlags::IN)], Some(&left));
    }
}
