//! Regions of shared memory that two libraries of libfabric would read differently.
//!
//! The provider shm maps the peer's region as if its own library had made it: a client with
//! libfabric 1.17 was ended by SIGSEGV at a server with 2.1. A region begins with the version of
//! its layout (`struct smr_region`, `SMR_VERSION` of libfabric), which nobody there looks at.

use std::{fs::OpenOptions, io::Read, os::unix::fs::OpenOptionsExt, path::Path};

use crate::error::Error;

/// The begin of an address of the provider shm (fi_shm(7)), behind which the region's name stands.
const PREFIX: &[u8] = b"fi_shm://";

/// Checks that an endpoint and its peer have regions of one layout. What is no address of shm, or a
/// region that cannot be read, is left to the provider.
///
/// # Errors
/// EPROTONOSUPPORT where the layouts differ.
pub(crate) fn check(own: &[u8], peer: &[u8]) -> Result<(), Error> {
    check_below(Path::new("/dev/shm"), own, peer)
}

fn check_below(regions: &Path, own: &[u8], peer: &[u8]) -> Result<(), Error> {
    match (version(regions, own), version(regions, peer)) {
        (Some(own), Some(peer)) if own != peer => Err(Error {
            call: "shm, whose peer has another version of libfabric",
            code: libc::EPROTONOSUPPORT,
        }),
        _ => Ok(()),
    }
}

fn version(regions: &Path, address: &[u8]) -> Option<u8> {
    let name = address.strip_prefix(PREFIX)?;
    let name = str::from_utf8(name.split(|byte| *byte == 0).next()?).ok()?;
    if name.contains('/') {
        return None;
    }
    // The peer says the name: one of a FIFO is not waited for.
    let mut region = OpenOptions::new();
    region.read(true).custom_flags(libc::O_NONBLOCK);
    let mut version = [0];
    region.open(regions.join(name)).ok()?.read_exact(&mut version).ok()?;
    Some(version[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn regions_of_two_layouts_are_refused_and_what_cannot_be_read_is_not() {
        let place = tempfile::tempdir().unwrap();
        for (name, version) in [("1:0:0", 4), ("1:0:1", 4), ("2:0:0", 8)] {
            std::fs::write(place.path().join(name), [version, 0, 0]).unwrap();
        }
        std::fs::write(place.path().join("empty"), []).unwrap();
        let checked = |own: &str, peer: &[u8]| check_below(place.path(), own.as_bytes(), peer);
        assert_eq!(checked("fi_shm://1:0:0", b"fi_shm://1:0:1\0\0"), Ok(()));
        let error = checked("fi_shm://1:0:0", b"fi_shm://2:0:0\0").unwrap_err();
        assert_eq!(error.code, libc::EPROTONOSUPPORT);
        assert!(checked("fi_shm://2:0:0", b"fi_shm://1:0:1").is_err());
        let made = Command::new("mkfifo").arg(place.path().join("fifo")).status().unwrap();
        assert!(made.success());
        for unread in
            ["fi_shm://fifo", "fi_shm://3:0:0", "fi_shm://empty", "fi_shm://../2:0:0", "2:0:0", ""]
        {
            assert_eq!(checked("fi_shm://1:0:0", unread.as_bytes()), Ok(()), "{unread}");
        }
    }
}
