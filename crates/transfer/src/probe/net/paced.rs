//! Sender of datagrams at a rate: as many at a time as one call takes, and no more than are due.

use super::datagram::{HEADER_BYTES, Header, KEY_BYTES, Kind};
use haul_protocol::StreamId;
use haul_sys::datagrams::cut_sends;
use rustix::{
    io::Errno,
    net::{MMsgHdr, SendAncillaryBuffer, SendFlags, addr::SocketAddrArg, sendmmsg, sendto},
};
use std::{
    io::{self, IoSlice},
    net::{SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Most datagrams that the kernel cuts a send into (UDP_MAX_SEGMENTS, include/linux/udp.h, before
/// 6.9).
const SEGMENTS_MAX: usize = 64;
/// Largest payload of a datagram by IPv4: what the kernel cuts must have fitted one.
const SEND_BYTES_MAX: usize = 65_507;
/// Most bytes that are made ready for one call which the kernel does not cut.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Shortest sleep: the kernel's timers have some slack.
const SLEEP_MIN: Duration = Duration::from_micros(100);
/// Longest sleep, after which the thread looks whether the round is over.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Longest pause of the host that is made up for: more would arrive as one burst.
const BEHIND_MAX: Duration = Duration::from_millis(20);

/// State that a sending thread and the round share.
#[derive(Debug, Default)]
pub struct Sent {
    pub datagrams: AtomicU64,
    pub bytes: AtomicU64,
}

/// The sends of one stream of datagrams.
pub struct Paced<'a> {
    pub socket: &'a UdpSocket,
    pub target: SocketAddr,
    pub key: [u8; KEY_BYTES],
    pub stream: StreamId,
    pub datagram_bytes: usize,
    pub rate_bytes_per_s: u64,
    /// Whether the kernel may cut one call's bytes into datagrams: no other stream uses this
    /// socket.
    pub may_cut: bool,
    pub sent: &'a Sent,
}

impl Paced<'_> {
    /// Sends datagrams until `over`.
    ///
    /// # Errors
    /// What sendto(2) says, but for errors that one datagram may have on its way.
    pub fn run(&self, over: &AtomicBool) -> io::Result<()> {
        let begun = Instant::now();
        let mut batch = (SEND_BYTES_MAX / self.datagram_bytes).clamp(1, SEGMENTS_MAX);
        let size = u16::try_from(self.datagram_bytes).unwrap_or(0);
        let mut cuts = self.may_cut && batch > 1 && cut_sends(self.socket, size).is_ok();
        if !cuts {
            batch = (BATCH_BYTES_MAX / self.datagram_bytes).clamp(1, SEGMENTS_MAX);
        }
        let mut bytes = super::streams::noise(self.datagram_bytes * batch);
        // What a pause of the host left undone, in datagrams.
        let mut forgiven = 0;
        let mut sequence = 0;
        while !over.load(Ordering::Relaxed) {
            let due: u64 = self.due(begun.elapsed()).saturating_sub(forgiven);
            let made_up_for = due.min(sequence + self.due(BEHIND_MAX).max(batch as u64));
            forgiven += due - made_up_for;
            let count = made_up_for.saturating_sub(sequence).min(batch as u64) as usize;
            if count == 0 {
                let next = self.time_of(sequence.saturating_add(forgiven).saturating_add(1));
                let next = next.saturating_sub(begun.elapsed());
                thread::sleep(next.clamp(SLEEP_MIN, SLEEP_MAX));
                continue;
            }
            let sent_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            for (at, datagram) in bytes.chunks_mut(self.datagram_bytes).take(count).enumerate() {
                let header = Header {
                    sequence: sequence + at as u64,
                    sent_ns,
                    ..Header::new(Kind::Data, self.stream)
                };
                datagram[..HEADER_BYTES].copy_from_slice(&header.encode(&self.key));
            }
            let out = &bytes[..count * self.datagram_bytes];
            let sent = if cuts { self.send_cut(out) } else { self.send_each(out) };
            let sent = match sent {
                // The kernel cuts nothing that it would have to cut again for the path, and nothing
                // for a device without checksums: it sends that one by one.
                Err(Errno::INVAL | Errno::MSGSIZE | Errno::IO) if cuts => {
                    cut_sends(self.socket, 0)?;
                    cuts = false;
                    0
                }
                Err(errno) if passes(errno) => 0,
                sent => sent?,
            };
            if sent == 0 {
                thread::sleep(SLEEP_MIN);
            }
            sequence += sent;
            self.sent.datagrams.store(sequence, Ordering::Relaxed);
            self.sent.bytes.store(sequence * self.datagram_bytes as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Datagrams that should have left after this time.
    fn due(&self, elapsed: Duration) -> u64 {
        let bytes = elapsed.as_nanos() * u128::from(self.rate_bytes_per_s) / 1_000_000_000;
        u64::try_from(bytes / self.datagram_bytes as u128).unwrap_or(u64::MAX)
    }

    /// Time after which this many datagrams should have left.
    fn time_of(&self, datagrams: u64) -> Duration {
        let bytes = u128::from(datagrams) * self.datagram_bytes as u128;
        let ns = bytes * 1_000_000_000 / u128::from(self.rate_bytes_per_s.max(1));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    fn send_cut(&self, out: &[u8]) -> rustix::io::Result<u64> {
        sendto(self.socket, out, SendFlags::NOSIGNAL, &self.target)?;
        Ok((out.len() / self.datagram_bytes) as u64)
    }

    fn send_each(&self, out: &[u8]) -> rustix::io::Result<u64> {
        let target = self.target.as_any();
        let slices: Vec<[IoSlice<'_>; 1]> =
            out.chunks(self.datagram_bytes).map(|datagram| [IoSlice::new(datagram)]).collect();
        let mut controls: Vec<SendAncillaryBuffer<'_, '_, '_>> =
            slices.iter().map(|_| SendAncillaryBuffer::default()).collect();
        let mut messages: Vec<MMsgHdr<'_>> = slices
            .iter()
            .zip(&mut controls)
            .map(|(slice, control)| MMsgHdr::new_with_addr(&target, slice, control))
            .collect();
        let sent = sendmmsg(self.socket, &mut messages, SendFlags::NOSIGNAL)?;
        Ok(sent as u64)
    }
}

/// Says whether an error is one datagram's, not the socket's: no room, or an ICMP answer to an
/// earlier one.
#[must_use]
pub fn passes(errno: Errno) -> bool {
    let passing = [
        Errno::AGAIN,
        Errno::INTR,
        Errno::NOBUFS,
        Errno::CONNREFUSED,
        Errno::HOSTUNREACH,
        Errno::NETUNREACH,
    ];
    passing.contains(&errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_does_not_cut_goes_out_one_by_one() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sent = Sent::default();
        let paced = Paced {
            socket: &socket,
            target: receiver.local_addr().unwrap(),
            key: [5; KEY_BYTES],
            stream: StreamId(3),
            datagram_bytes: 40_000,
            // More than is due in any time at all.
            rate_bytes_per_s: u64::MAX,
            may_cut: true,
            sent: &sent,
        };
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let run = scope.spawn(|| paced.run(&over));
            let mut bytes = vec![0; 65_536];
            for _ in 0..3 {
                assert_eq!(receiver.recv(&mut bytes).unwrap(), 40_000);
                let header = Header::decode(&bytes, &paced.key).unwrap();
                assert_eq!((header.kind, header.stream), (Kind::Data, StreamId(3)));
            }
            over.store(true, Ordering::Relaxed);
            run.join().unwrap().unwrap();
        });
        assert!(sent.datagrams.load(Ordering::Relaxed) >= 3);
    }

    #[test]
    fn datagrams_are_due_at_the_rate_and_not_before() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sent = Sent::default();
        let paced = Paced {
            socket: &socket,
            target: socket.local_addr().unwrap(),
            key: [0; KEY_BYTES],
            stream: StreamId(0),
            datagram_bytes: 1000,
            rate_bytes_per_s: 1_000_000,
            may_cut: true,
            sent: &sent,
        };
        assert_eq!(paced.due(Duration::from_micros(999)), 0);
        assert_eq!(paced.due(Duration::from_secs(2)), 2000);
        assert_eq!(paced.time_of(2000), Duration::from_secs(2));
        assert_eq!(paced.due(paced.time_of(12_345)), 12_345);
    }
}
