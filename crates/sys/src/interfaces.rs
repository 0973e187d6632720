//! `getifaddrs(3)`: which network interface has an address.

use std::{
    ffi::CStr,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// The interface that has this address; `None` if none has.
///
/// # Errors
/// What getifaddrs(3) says.
pub fn name_of(address: IpAddr) -> io::Result<Option<String>> {
    let mut first = core::ptr::null_mut();
    // SAFETY: `first` is written with the head of a list, which is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut next = first;
    let mut found = None;
    while !next.is_null() && found.is_none() {
        // SAFETY: an element of the list, which lives until it is freed below.
        let entry = unsafe { &*next };
        if address_of(entry.ifa_addr) == Some(address) {
            // SAFETY: a name of an element is a string that ends with a zero.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            found = name.to_str().ok().map(str::to_owned);
        }
        next = entry.ifa_next;
    }
    // SAFETY: the head that getifaddrs(3) gave, freed once; nothing points into the list any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// `None` for what is no internet address, such as that of a link.
fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: it points to a socket address, which is as long as its family says.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: of this family, so it is a sockaddr_in; perhaps not aligned as one.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: of this family, so it is a sockaddr_in6; perhaps not aligned as one.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_its_address_and_nobody_that_of_the_documentation() {
        assert_eq!(name_of(Ipv4Addr::LOCALHOST.into()).unwrap().as_deref(), Some("lo"));
        assert_eq!(name_of("192.0.2.1".parse().unwrap()).unwrap(), None);
        let v6 = name_of(Ipv6Addr::LOCALHOST.into()).unwrap();
        assert!(v6.is_none_or(|name| name == "lo"));
    }
}
