//! `TCP_INFO`: the state of one connection as the kernel knows it, and what holds it back.
//!
//! Older kernels fill in less; what is missing is 0.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// Room for `struct tcp_info`, longer than that of any kernel so far; the kernel cuts longer ones
/// off.
const INFO_BYTES_MAX: usize = 512;

/// The state of a TCP connection, in the units of the names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Tries to send since the last acknowledgement while nothing is in flight: into a window that
    /// is full, or of what this host's own queueing discipline drops.
    pub probes: u8,
    pub rtt_us: u32,
    pub rtt_variance_us: u32,
    pub min_rtt_us: u32,
    pub cwnd_segments: u32,
    pub ssthresh_segments: u32,
    /// Bytes that the kernel puts into one segment that it sends.
    pub mss_bytes: u32,
    /// The largest packet that the kernel believes the path takes whole.
    pub path_mtu_bytes: u32,
    pub unacked_segments: u32,
    /// Time since the peer acknowledged something last.
    pub last_ack_received_ms: u32,
    pub lost_segments: u32,
    /// Segments sent again since the connection began.
    pub total_retransmits: u32,
    /// Bytes in the send buffer that were not yet sent once.
    pub notsent_bytes: u32,
    /// The largest window that this side may offer now: it grows while the peer fills it.
    pub own_window_bytes: u32,
    /// The window the peer offers; 0 before Linux 5.4.
    pub peer_window_bytes: u32,
    pub bytes_sent: u64,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub bytes_retransmitted: u64,
    /// The rate at which the kernel paces the connection; `u64::MAX` is no pacing.
    pub pacing_rate_bytes_per_s: u64,
    pub max_pacing_rate_bytes_per_s: u64,
    pub delivery_rate_bytes_per_s: u64,
    /// Whether the delivery rate was measured while the application had nothing more to send.
    pub delivery_rate_app_limited: bool,
    /// Time with data in flight or waiting to be sent.
    pub busy_time_us: u64,
    /// Part of the busy time in which the peer's window was full.
    pub rwnd_limited_us: u64,
    /// Part of the busy time in which the own send buffer was the limit.
    pub sndbuf_limited_us: u64,
}

impl TcpInfo {
    /// The shortest round trip that the kernel knows, in microseconds; 0 if it knows none. It
    /// forgets one after net.ipv4.tcp_min_rtt_wlen, 300 s.
    #[must_use]
    pub fn shortest_rtt_us(&self) -> u32 {
        match self.min_rtt_us {
            0 | u32::MAX => self.rtt_us,
            shortest => shortest.min(self.rtt_us),
        }
    }

    /// Asks the kernel about a connection (tcp(7), `TCP_INFO`).
    ///
    /// # Errors
    /// What getsockopt(2) says, for example that this is no TCP socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let mut bytes = [0_u8; INFO_BYTES_MAX];
        let mut len_bytes = INFO_BYTES_MAX as libc::socklen_t;
        let socket = socket.as_fd().as_raw_fd();
        // SAFETY: `bytes` is writable for `len_bytes` bytes and both live across the call.
        let result = unsafe {
            libc::getsockopt(
                socket,
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                bytes.as_mut_ptr().cast(),
                &raw mut len_bytes,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self::parse(&bytes[..len_bytes as usize]))
    }

    /// Reads the fields at their offsets in `struct tcp_info` of include/uapi/linux/tcp.h: a stable
    /// layout that only ever grows at its end.
    fn parse(bytes: &[u8]) -> Self {
        Self {
            delivery_rate_app_limited: bytes.get(7).is_some_and(|flags| flags & 1 == 1),
            probes: bytes.get(3).copied().unwrap_or(0),
            mss_bytes: u32_at(bytes, 16),
            unacked_segments: u32_at(bytes, 24),
            lost_segments: u32_at(bytes, 32),
            last_ack_received_ms: u32_at(bytes, 56),
            path_mtu_bytes: u32_at(bytes, 60),
            own_window_bytes: u32_at(bytes, 64),
            rtt_us: u32_at(bytes, 68),
            rtt_variance_us: u32_at(bytes, 72),
            ssthresh_segments: u32_at(bytes, 76),
            cwnd_segments: u32_at(bytes, 80),
            total_retransmits: u32_at(bytes, 100),
            pacing_rate_bytes_per_s: u64_at(bytes, 104),
            max_pacing_rate_bytes_per_s: u64_at(bytes, 112),
            bytes_acked: u64_at(bytes, 120),
            bytes_received: u64_at(bytes, 128),
            notsent_bytes: u32_at(bytes, 144),
            min_rtt_us: u32_at(bytes, 148),
            delivery_rate_bytes_per_s: u64_at(bytes, 160),
            busy_time_us: u64_at(bytes, 168),
            rwnd_limited_us: u64_at(bytes, 176),
            sndbuf_limited_us: u64_at(bytes, 184),
            bytes_sent: u64_at(bytes, 200),
            bytes_retransmitted: u64_at(bytes, 208),
            peer_window_bytes: u32_at(bytes, 228),
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    #[test]
    fn a_connection_that_moved_bytes_says_how_many() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[7; 100_000]).unwrap();
        far.read_exact(&mut [0; 100_000]).unwrap();
        far.write_all(b"!").unwrap();
        near.read_exact(&mut [0]).unwrap();
        let info = TcpInfo::of(&near).unwrap();
        assert_eq!((info.bytes_acked, info.bytes_received), (100_001, 1), "the SYN counts as one");
        assert_eq!(TcpInfo::of(&far).unwrap().bytes_received, 100_000);
        assert!(info.mss_bytes > 500 && info.cwnd_segments > 0 && info.rtt_us > 0, "{info:?}");
        assert_eq!(info.notsent_bytes, 0);
        assert!(info.path_mtu_bytes > info.mss_bytes, "{info:?}");
        // A connection begins with a part of tcp_rmem's middle number.
        assert!((1000..64 << 20).contains(&info.own_window_bytes), "{info:?}");
    }

    #[test]
    fn an_older_kernels_shorter_answer_leaves_zeros() {
        let long = [0xff; 232];
        let info = TcpInfo::parse(&long[..104]);
        assert_eq!((info.total_retransmits, info.bytes_acked, info.peer_window_bytes), (!0, 0, 0));
        assert_eq!(TcpInfo::parse(&long).peer_window_bytes, u32::MAX);
        assert_eq!(TcpInfo::parse(&[]), TcpInfo::default());
    }

    #[test]
    fn a_file_is_no_connection() {
        assert!(TcpInfo::of(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
