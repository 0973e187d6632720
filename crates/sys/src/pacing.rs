//! `SO_MAX_PACING_RATE`: the most bytes a second that the kernel sends on one connection.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// The socket option of the rate (include/uapi/asm-generic/socket.h), one on x86-64 and aarch64.
const SO_MAX_PACING_RATE: libc::c_int = 47;

/// Sets the most bytes a second that the socket sends; `u64::MAX` is no limit.
///
/// The kernel takes 64 bits since Linux 4.20. An older one would read half of them, so a rate that
/// it does not know is given to it in 32 bits, the largest then being 34 Gbit/s.
///
/// # Errors
/// What setsockopt(2) says.
pub fn set_max_pacing_rate(socket: impl AsFd, rate_bytes_per_s: u64) -> io::Result<()> {
    let socket = socket.as_fd();
    set(socket, &rate_bytes_per_s.to_ne_bytes())?;
    if max_pacing_rate(socket)? == rate_bytes_per_s {
        return Ok(());
    }
    // All ones mean no limit in 32 bits too.
    let narrow = u32::try_from(rate_bytes_per_s).unwrap_or(match rate_bytes_per_s {
        u64::MAX => u32::MAX,
        _ => u32::MAX - 1,
    });
    set(socket, &narrow.to_ne_bytes())
}

/// The limit in force; `u64::MAX` is none.
///
/// # Errors
/// What getsockopt(2) says.
pub fn max_pacing_rate(socket: impl AsFd) -> io::Result<u64> {
    let mut bytes = [0_u8; 8];
    let mut len_bytes = 8;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: `bytes` is writable for `len_bytes` bytes and both live across the call.
    let result = unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            SO_MAX_PACING_RATE,
            bytes.as_mut_ptr().cast(),
            &raw mut len_bytes,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if len_bytes == 8 {
        return Ok(u64::from_ne_bytes(bytes));
    }
    let [a, b, c, d, ..] = bytes;
    Ok(match u32::from_ne_bytes([a, b, c, d]) {
        u32::MAX => u64::MAX,
        rate => u64::from(rate),
    })
}

fn set(socket: impl AsFd, value: &[u8]) -> io::Result<()> {
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: `value` lives across the call and the length given is its own.
    let result = unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            SO_MAX_PACING_RATE,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn rates_beyond_32_bits_are_kept() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(max_pacing_rate(&socket).unwrap(), u64::MAX);
        for rate in [187_500, 12_500_000_000, u64::MAX] {
            set_max_pacing_rate(&socket, rate).unwrap();
            assert_eq!(max_pacing_rate(&socket).unwrap(), rate);
        }
    }
}
