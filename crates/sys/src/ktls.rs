//! Kernel TLS (`TCP_ULP` "tls"). The kernel encrypts what is written to a socket, and sendfile(2)
//! goes right into it.
//!
//! The handshake is done in user space, which then gives its keys away
//! (Documentation/networking/tls.rst). It needs the module `tls`, Linux 4.17 for both directions
//! and 5.1 for TLS 1.3.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    time::Duration,
};

use crate::counted;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Tls12,
    Tls13,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    Aes128Gcm,
    Aes256Gcm,
    /// ChaCha20-Poly1305, which the kernel takes since Linux 5.11.
    ChaCha20Poly1305,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Send,
    Receive,
}

/// The key of one direction.
pub struct Key<'a> {
    pub version: Version,
    pub cipher: Cipher,
    /// The key, as long as the cipher wants it.
    pub key: &'a [u8],
    pub iv: &'a [u8; IV_BYTES],
    /// Sequence number of the next record.
    pub sequence: u64,
}

pub const IV_BYTES: usize = 12;
/// Room for the head of `struct tls_crypto_info`, the longest key, an IV and a number
/// (linux/tls.h).
const INFO_BYTES_MAX: usize = 4 + 32 + IV_BYTES + 8;

/// The content type of a record that holds an alert (RFC 8446, 5.1).
pub const ALERT: u8 = 21;
pub const APPLICATION_DATA: u8 = 23;

impl Cipher {
    fn number(self) -> u16 {
        match self {
            Self::Aes128Gcm => libc::TLS_CIPHER_AES_GCM_128,
            Self::Aes256Gcm => libc::TLS_CIPHER_AES_GCM_256,
            Self::ChaCha20Poly1305 => libc::TLS_CIPHER_CHACHA20_POLY1305,
        }
    }

    /// The cipher's name in RFC 5116 and RFC 8439, as a user reads it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "AES-128-GCM",
            Self::Aes256Gcm => "AES-256-GCM",
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        }
    }

    #[must_use]
    pub fn key_bytes(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }

    fn info_bytes(self) -> usize {
        4 + self.key_bytes() + IV_BYTES + 8
    }
}

/// Lays a key out as the kernel's `struct tls12_crypto_info_*`, which has no padding; `None` for a
/// key of a wrong length.
fn crypto_info(key: &Key<'_>) -> Option<([u8; INFO_BYTES_MAX], usize)> {
    if key.key.len() != key.cipher.key_bytes() {
        return None;
    }
    let version = match key.version {
        Version::Tls12 => libc::TLS_1_2_VERSION,
        Version::Tls13 => libc::TLS_1_3_VERSION,
    };
    // The first four bytes of AES-GCM's are the salt, which stands behind the key.
    let salt_bytes = if key.cipher == Cipher::ChaCha20Poly1305 { 0 } else { 4 };
    let (salt, iv) = key.iv.split_at(salt_bytes);
    let parts = [
        &version.to_ne_bytes()[..],
        &key.cipher.number().to_ne_bytes(),
        iv,
        key.key,
        salt,
        &key.sequence.to_be_bytes(),
    ];
    let mut info = [0; INFO_BYTES_MAX];
    let mut len_bytes = 0;
    for part in parts {
        info[len_bytes..len_bytes + part.len()].copy_from_slice(part);
        len_bytes += part.len();
    }
    Some((info, len_bytes))
}

fn set(socket: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: `value` is readable for its length and lives across the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Prepares the socket for keys; without them it is as it was.
///
/// # Errors
/// `ENOENT` where the kernel has no `tls`, `ENOTCONN` where the peer has closed.
pub fn attach(socket: impl AsFd) -> io::Result<()> {
    set(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_ULP, b"tls")
}

/// Gives the kernel the key of one direction.
///
/// # Errors
/// `InvalidInput` for a key of a wrong length; what setsockopt(2) says where the kernel lacks the
/// cipher or the version.
pub fn set_key(socket: impl AsFd, direction: Direction, key: &Key<'_>) -> io::Result<()> {
    let (mut info, len_bytes) = crypto_info(key).ok_or(io::ErrorKind::InvalidInput)?;
    let set = set(socket.as_fd(), libc::SOL_TLS, name(direction), &info[..len_bytes]);
    // No copy of the key stays on the stack.
    info.fill(0);
    std::hint::black_box(&info);
    set
}

fn name(direction: Direction) -> i32 {
    match direction {
        Direction::Send => libc::TLS_TX,
        Direction::Receive => libc::TLS_RX,
    }
}

/// The number of the next record that the kernel sends.
///
/// # Errors
/// What getsockopt(2) says.
pub fn next_record(socket: impl AsFd, cipher: Cipher) -> io::Result<u64> {
    let mut info = [0_u8; INFO_BYTES_MAX];
    let mut len_bytes = cipher.info_bytes() as libc::socklen_t;
    // SAFETY: `info` is writable for `len_bytes` bytes and both live across the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_TLS,
            libc::TLS_TX,
            info.as_mut_ptr().cast(),
            &raw mut len_bytes,
        )
    };
    let number = info[..cipher.info_bytes()].last_chunk().map_or(0, |at| u64::from_be_bytes(*at));
    info.fill(0);
    std::hint::black_box(&info);
    if result == 0 { Ok(number) } else { Err(io::Error::last_os_error()) }
}

/// The number of records that the kernel has sent on a socket with a key, whatever its cipher is;
/// those that were counted before it got the key are in it.
///
/// # Errors
/// What getsockopt(2) says; `Unsupported` for a cipher that is not here.
pub fn records_sent(socket: impl AsFd) -> io::Result<u64> {
    let socket = socket.as_fd();
    // The head of `struct tls_crypto_info` alone: version and cipher.
    let mut head = [0_u8; 4];
    let mut len_bytes = head.len() as libc::socklen_t;
    // SAFETY: `head` is writable for `len_bytes` bytes and both live across the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_TLS,
            libc::TLS_TX,
            head.as_mut_ptr().cast(),
            &raw mut len_bytes,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let number = u16::from_ne_bytes([head[2], head[3]]);
    let ciphers = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305];
    let cipher = ciphers.into_iter().find(|cipher| cipher.number() == number);
    next_record(socket, cipher.ok_or(io::ErrorKind::Unsupported)?)
}

/// Longest wait for what a connection of this host with itself carries.
const CHECK_PATIENCE: Duration = Duration::from_secs(2);
/// Bytes that are sent to see whether they are encrypted.
const CHECK_BYTES: [u8; 32] = [0x5a; 32];
/// Bytes of a record of TLS 1.3 beside its data: header, kind and tag (RFC 8446, 5.2).
const OVERHEAD_BYTES_13: usize = 5 + 1 + 16;
/// Bytes of a record of TLS 1.2 beside its data: header, an explicit nonce of AES-GCM, and tag.
const OVERHEAD_BYTES_12: usize = 5 + 8 + 16;

fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    far.set_read_timeout(Some(CHECK_PATIENCE))?;
    Ok((near, far))
}

/// Checks on connections of this host with itself that the kernel encrypts what is sent, and
/// decrypts it again. A sandbox may take the keys and do nothing with them.
///
/// # Errors
/// What the kernel says to the keys; `Unsupported` where it takes them and does not encrypt.
pub fn check(version: Version, cipher: Cipher) -> io::Result<()> {
    let bytes = [7; 32];
    let iv = [3; IV_BYTES];
    let key = Key { version, cipher, key: &bytes[..cipher.key_bytes()], iv: &iv, sequence: 0 };
    let (mut near, mut far) = pair()?;
    attach(&near)?;
    set_key(&near, Direction::Send, &key)?;
    next_record(&near, cipher)?;
    near.write_all(&CHECK_BYTES)?;
    drop(near);
    let mut on_the_wire = Vec::new();
    far.read_to_end(&mut on_the_wire)?;
    let is_12 = version == Version::Tls12 && cipher != Cipher::ChaCha20Poly1305;
    let overhead = match version {
        Version::Tls12 if is_12 => OVERHEAD_BYTES_12,
        Version::Tls12 => OVERHEAD_BYTES_13 - 1,
        Version::Tls13 => OVERHEAD_BYTES_13,
    };
    let is_record = on_the_wire.len() >= CHECK_BYTES.len() + overhead
        && on_the_wire.starts_with(&[APPLICATION_DATA, 3, 3]);
    if !is_record || on_the_wire.windows(8).any(|part| part == &CHECK_BYTES[..8]) {
        let why = "the kernel takes the keys of TLS and does not encrypt";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    let (mut near, mut far) = pair()?;
    attach(&far)?;
    set_key(&far, Direction::Receive, &key)?;
    near.write_all(&on_the_wire)?;
    let mut decrypted = [0; CHECK_BYTES.len()];
    far.read_exact(&mut decrypted)?;
    if decrypted != CHECK_BYTES {
        let why = "the kernel takes the keys of TLS and does not decrypt";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Ok(())
}

/// Bytes that TCP has and the peer has not acknowledged (tcp(7), SIOCOUTQ).
///
/// # Errors
/// What ioctl(2) says.
pub fn unacknowledged_bytes(socket: impl AsFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the call writes one int, which lives across it.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 {
        Ok(u64::try_from(bytes).unwrap_or(0))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A control message (cmsg(3)) of one byte, the kind of a record.
#[repr(C)]
struct Kind {
    head: libc::cmsghdr,
    kind: [u8; size_of::<usize>()],
}

impl Kind {
    fn new(kind: u8) -> Self {
        // SAFETY: a cmsghdr is numbers, which may be zero.
        let mut head: libc::cmsghdr = unsafe { std::mem::zeroed() };
        head.cmsg_len = (size_of::<libc::cmsghdr>() + 1) as _;
        head.cmsg_level = libc::SOL_TLS;
        head.cmsg_type = libc::TLS_SET_RECORD_TYPE;
        let mut bytes = [0; size_of::<usize>()];
        bytes[0] = kind;
        Self { head, kind: bytes }
    }
}

fn message(part: &mut libc::iovec, control: &mut Kind) -> libc::msghdr {
    // SAFETY: a msghdr is numbers and pointers, which may be zero.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = std::ptr::from_mut(control).cast();
    message.msg_controllen = size_of::<Kind>() as _;
    message
}

/// Sends a record of another kind than data.
///
/// # Errors
/// What sendmsg(2) says; `WouldBlock` where there is no room.
pub fn send_record(socket: impl AsFd, kind: u8, bytes: &[u8]) -> io::Result<usize> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = Kind::new(kind);
    let message = message(&mut part, &mut control);
    // SAFETY: what the message points to lives across the call, which only reads it.
    let sent = unsafe {
        libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    counted(sent)
}

/// Receives records, all of one kind; nothing of no kind where the peer has closed.
///
/// # Errors
/// What recvmsg(2) says; `EBADMSG` for a record that was not encrypted with the key.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Option<u8>)> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = Kind::new(0);
    control.head.cmsg_type = 0;
    let mut message = message(&mut part, &mut control);
    // SAFETY: what the message points to is writable for the lengths that it says, and lives across
    // the call.
    let received = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, 0) };
    let has_kind = message.msg_controllen > 0
        && control.head.cmsg_level == libc::SOL_TLS
        && control.head.cmsg_type == libc::TLS_GET_RECORD_TYPE;
    Ok((counted(received)?, has_kind.then_some(control.kind[0])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        super::pair().unwrap()
    }

    fn key<'a>(version: Version, cipher: Cipher, bytes: &'a [u8; 32]) -> Key<'a> {
        Key { version, cipher, key: &bytes[..cipher.key_bytes()], iv: &[3; 12], sequence: 5 }
    }

    #[test]
    fn the_kernels_structs_are_made_without_padding() {
        let iv = [1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2];
        let bytes = [9; 32];
        let info = |cipher: Cipher| {
            let key = Key { iv: &iv, ..key(Version::Tls13, cipher, &bytes) };
            let (info, len_bytes) = crypto_info(&key).unwrap();
            info[4..len_bytes].to_vec()
        };
        let number = [0, 0, 0, 0, 0, 0, 0, 5];
        let expected = [&[2; 8][..], &[9; 16], &[1; 4], &number].concat();
        assert_eq!(info(Cipher::Aes128Gcm), expected);
        assert_eq!(info(Cipher::ChaCha20Poly1305), [&iv[..], &[9; 32], &number].concat());
        let len_bytes = size_of::<libc::tls12_crypto_info_aes_gcm_256>() - 4;
        assert_eq!(info(Cipher::Aes256Gcm).len(), len_bytes);
        assert_eq!(
            size_of::<libc::tls12_crypto_info_aes_gcm_128>(),
            Cipher::Aes128Gcm.info_bytes()
        );
        let short = Key { key: &[0; 5], ..key(Version::Tls12, Cipher::Aes128Gcm, &bytes) };
        assert!(crypto_info(&short).is_none());
    }

    #[test]
    fn what_is_encrypted_by_one_kernel_is_decrypted_by_the_other() {
        for version in [Version::Tls12, Version::Tls13] {
            for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305] {
                let (mut near, mut far) = pair();
                if let Err(error) = attach(&near).and_then(|()| attach(&far)) {
                    // It stands as it did.
                    near.write_all(b"a").unwrap();
                    far.read_exact(&mut [0]).unwrap();
                    return haul_testkit::skip::skip("the kernel's tls", error.to_string());
                }
                let bytes = [7; 32];
                let key = key(version, cipher, &bytes);
                set_key(&near, Direction::Send, &key).unwrap();
                set_key(&far, Direction::Receive, &key).unwrap();
                near.write_all(b"hello").unwrap();
                assert_eq!(next_record(&near, cipher).unwrap(), 6);
                assert_eq!(send_record(&near, ALERT, &[1, 0]).unwrap(), 2);
                assert_eq!(next_record(&near, cipher).unwrap(), 7);
                assert_eq!(records_sent(&near).unwrap(), 7);
                let mut buffer = [0; 100];
                assert_eq!(receive(&far, &mut buffer).unwrap(), (5, Some(APPLICATION_DATA)));
                assert_eq!(&buffer[..5], b"hello");
                assert_eq!(receive(&far, &mut buffer).unwrap(), (2, Some(ALERT)));
                assert_eq!(buffer[..2], [1, 0]);
                drop(near);
                assert_eq!(receive(&far, &mut buffer).unwrap(), (0, None));
            }
        }
    }

    #[test]
    fn a_kernel_that_passes_the_check_encrypts_and_one_without_tls_does_not_pass() {
        let (near, _far) = pair();
        let has_tls = attach(&near).is_ok();
        for cipher in [Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305] {
            for version in [Version::Tls12, Version::Tls13] {
                let checked = check(version, cipher);
                assert_eq!(checked.is_ok(), has_tls, "{version:?} {cipher:?}: {checked:?}");
            }
        }
    }

    /// Lets calls that set or read an option of this level succeed for this thread, and do nothing;
    /// `name`: only those of this option.
    fn pretend(level: i32, name: Option<i32>) {
        let code = |code: u32| u16::try_from(code).unwrap();
        let load = |offset| libc::sock_filter {
            code: code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS),
            jt: 0,
            jf: 0,
            k: offset,
        };
        let jump = |value: u32, jt, jf| libc::sock_filter {
            code: code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K),
            jt,
            jf,
            k: value,
        };
        let end = |with| libc::sock_filter {
            code: code(libc::BPF_RET | libc::BPF_K),
            jt: 0,
            jf: 0,
            k: with,
        };
        // The number of the call, and its second and third argument (struct seccomp_data); of a
        // name that does not count, the level is compared again.
        let (at, value) = name.map_or((24, level), |name| (32, name));
        let filter = [
            load(0),
            jump(libc::SYS_setsockopt as u32, 1, 0),
            jump(libc::SYS_getsockopt as u32, 0, 5),
            load(24),
            jump(level.cast_unsigned(), 0, 3),
            load(at),
            jump(value.cast_unsigned(), 0, 1),
            end(libc::SECCOMP_RET_ERRNO),
            end(libc::SECCOMP_RET_ALLOW),
        ];
        let program =
            libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        // SAFETY: the call takes numbers alone.
        let set = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        assert_eq!(set, 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        // SAFETY: the program and its instructions live across the call, which copies them.
        let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
        assert_eq!(set, 0, "{}", io::Error::last_os_error());
    }

    /// Checks a kernel that takes what is set of these options and does nothing.
    fn check_where(pretended: &'static [(i32, Option<i32>)]) -> io::Result<()> {
        let checking = std::thread::spawn(|| {
            pretended.iter().for_each(|(level, name)| pretend(*level, *name));
            check(Version::Tls13, Cipher::Aes128Gcm)
        });
        checking.join().unwrap()
    }

    #[test]
    fn a_kernel_that_takes_the_keys_and_does_nothing_is_noticed() {
        const ULP: (i32, Option<i32>) = (libc::IPPROTO_TCP, Some(libc::TCP_ULP));
        let error = check_where(&[ULP, (libc::SOL_TLS, None)]).unwrap_err();
        let why = "the kernel takes the keys of TLS and does not encrypt";
        assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::Unsupported, why.to_owned()));
    }

    #[test]
    fn a_kernel_that_encrypts_and_does_not_decrypt_is_noticed() {
        if let Err(error) = check(Version::Tls13, Cipher::Aes128Gcm) {
            return haul_testkit::skip::skip("the kernel's tls", error.to_string());
        }
        let error = check_where(&[(libc::SOL_TLS, Some(libc::TLS_RX))]).unwrap_err();
        let why = "the kernel takes the keys of TLS and does not decrypt";
        assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::Unsupported, why.to_owned()));
    }

    #[test]
    fn what_waits_for_the_peer_is_counted() {
        let (mut near, _far) = pair();
        assert_eq!(unacknowledged_bytes(&near).unwrap(), 0);
        near.set_nonblocking(true).unwrap();
        while near.write(&[0; 1 << 20]).is_ok() {}
        assert!(unacknowledged_bytes(&near).unwrap() > 0);
    }
}
