//! IPv6 flow labels of a connection (RFC 6437): one that is chosen, and the peer's, given back.

use rustix::io::Errno;
use std::{
    io, mem,
    net::SocketAddrV6,
    os::fd::{AsFd, AsRawFd, RawFd},
};

/// Bits of a flow label.
pub const LABEL_BITS: u32 = 20;

/// `in6_flowlabel_req` of linux/in6.h, which libc does not have.
#[repr(C)]
struct Request {
    destination: [u8; 16],
    label: u32,
    action: u8,
    share: u8,
    flags: u16,
    expires_s: u16,
    linger_s: u16,
    pad: u32,
}

/// `IPV6_FL_A_GET`.
const GET: u8 = 0;
/// `IPV6_FL_S_ANY`: others of this host may use the label, too.
const SHARED_BY_ALL: u8 = 255;
/// `IPV6_FL_F_CREATE`.
const CREATE: u16 = 1;
/// `IPV6_FL_F_REFLECT`.
const REFLECT: u16 = 4;

/// Has a socket of IPv6 that is not connected yet send its packets to `peer` with this label: gives
/// the address to connect to by rustix, which has the label in the host's byte order.
///
/// # Errors
/// What setsockopt(2) says.
pub fn with_label(socket: impl AsFd, peer: SocketAddrV6, label: u32) -> io::Result<SocketAddrV6> {
    let label = label & ((1 << LABEL_BITS) - 1);
    let request = Request {
        destination: peer.ip().octets(),
        label: label.to_be(),
        action: GET,
        share: SHARED_BY_ALL,
        flags: CREATE,
        ..nothing()
    };
    let socket = socket.as_fd().as_raw_fd();
    manage(socket, &request)?;
    set(socket, libc::IPV6_FLOWINFO_SEND, &1_i32)?;
    Ok(SocketAddrV6::new(*peer.ip(), peer.port(), label, peer.scope_id()))
}

/// Has the connections that a listener accepts send the label that their peer has sent.
///
/// # Errors
/// What setsockopt(2) says: `EPERM` while `net.ipv6.flowlabel_consistency` is 1, as it is by
/// default (ip-sysctl.rst), and of a socket of IPv4 that it has no label.
pub fn reflect(listener: impl AsFd) -> io::Result<()> {
    manage(listener.as_fd().as_raw_fd(), &Request { action: GET, flags: REFLECT, ..nothing() })
}

fn nothing() -> Request {
    Request {
        destination: [0; 16],
        label: 0,
        action: GET,
        share: 0,
        flags: 0,
        expires_s: 0,
        linger_s: 0,
        pad: 0,
    }
}

fn manage(socket: RawFd, request: &Request) -> io::Result<()> {
    set(socket, libc::IPV6_FLOWLABEL_MGR, request)
}

fn set<T>(socket: RawFd, option: i32, value: &T) -> io::Result<()> {
    let len = libc::socklen_t::try_from(mem::size_of::<T>()).map_err(|_| Errno::INVAL)?;
    // SAFETY: `value` lives across the call and the length given is its own.
    let result = unsafe {
        libc::setsockopt(socket, libc::IPPROTO_IPV6, option, (&raw const *value).cast(), len)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `IPV6_FLOWINFO` of linux/in6.h.
const FLOWINFO: i32 = 11;

/// Has a socket that connects note the labels that come, for [`of_peer`]. One that was accepted
/// knows that of the connection's first packet.
///
/// # Errors
/// What setsockopt(2) says.
pub fn note_labels(socket: impl AsFd) -> io::Result<()> {
    set(socket.as_fd().as_raw_fd(), FLOWINFO, &1_i32)
}

/// The label of the packets that a peer has sent.
///
/// # Errors
/// What getsockopt(2) says.
pub fn of_peer(socket: impl AsFd) -> io::Result<u32> {
    let mut request = Request { flags: REMOTE, ..nothing() };
    let mut len = libc::socklen_t::try_from(mem::size_of::<Request>()).map_err(|_| Errno::INVAL)?;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: `request` and `len` live across the call and the length given is that of `request`.
    let result = unsafe {
        libc::getsockopt(
            socket,
            libc::IPPROTO_IPV6,
            libc::IPV6_FLOWLABEL_MGR,
            (&raw mut request).cast(),
            &raw mut len,
        )
    };
    if result == 0 { Ok(u32::from_be(request.label)) } else { Err(io::Error::last_os_error()) }
}

/// `IPV6_FL_F_REMOTE`.
const REMOTE: u16 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, connect, socket};
    use std::{
        io::Write,
        net::{SocketAddr, TcpListener},
    };

    #[test]
    fn both_sides_of_a_connection_send_the_label_that_its_client_chose() {
        // A host without IPv6 has no labels.
        let Ok(listener) = TcpListener::bind("[::1]:0") else { return };
        let reflects = match reflect(&listener) {
            // By default the kernel keeps labels to those who have taken them.
            Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => false,
            result => result.map(|()| true).unwrap(),
        };
        let SocketAddr::V6(address) = listener.local_addr().unwrap() else { unreachable!() };
        let near = socket(AddressFamily::INET6, SocketType::STREAM, None).unwrap();
        let address = with_label(&near, address, 0xabcde).unwrap();
        connect(&near, &address).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        assert_eq!(of_peer(&far).unwrap(), 0xabcde);
        note_labels(&near).unwrap();
        far.write_all(b"x").unwrap();
        rustix::io::read(&near, &mut [0]).unwrap();
        assert_eq!(of_peer(&near).unwrap() == 0xabcde, reflects, "what the listener gives back");
        let plain = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        assert_ne!(of_peer(&far).unwrap(), 0xabcde);
        drop(plain);
    }
}
