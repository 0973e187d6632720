//! `FS_IOC_FIEMAP`: where on its disk a file lies, told by its file system.
//!
//! File systems without a disk, and those that do not tell, answer with an error.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// The request that asks for a file's extents (include/uapi/linux/fs.h): `_IOWR('f', 11, ...)` of a
/// header of 32 bytes.
const FIEMAP: libc::Ioctl = rustix::ioctl::opcode::read_write::<Header>(b'f', 11) as libc::Ioctl;

/// Flags of an extent that has no place yet, or whose place means nothing
/// (Documentation/filesystems/fiemap.rst): UNKNOWN, DELALLOC.
const WITHOUT_PLACE: u32 = 0x2 | 0x4;

/// The request's header: `struct fiemap` of include/uapi/linux/fiemap.h.
#[repr(C)]
#[derive(Default)]
struct Header {
    start_bytes: u64,
    len_bytes: u64,
    flags: u32,
    mapped_extents: u32,
    extents_max: u32,
    reserved: u32,
}

/// A part of a file that lies in one piece: `struct fiemap_extent`.
#[repr(C)]
#[derive(Default)]
struct Extent {
    logical_bytes: u64,
    physical_bytes: u64,
    len_bytes: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

/// A request with room for one extent.
#[repr(C)]
#[derive(Default)]
struct Request {
    header: Header,
    extent: Extent,
}

/// Place on the disk of a file's first bytes, in bytes from the begin of its file system's device;
/// `None` where the file has none yet.
///
/// # Errors
/// EOPNOTSUPP and ENOTTY where the file system does not tell.
pub fn first_place(file: impl AsFd) -> io::Result<Option<u64>> {
    let header = Header { len_bytes: u64::MAX, extents_max: 1, ..Header::default() };
    let mut request = Request { header, extent: Extent::default() };
    let descriptor = file.as_fd().as_raw_fd();
    // SAFETY: the kernel reads the header and writes it and at most `extents_max` extents behind
    // it, for which the structure has room.
    let result = unsafe { libc::ioctl(descriptor, FIEMAP, &raw mut request) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let Request { header, extent } = request;
    let has_place = header.mapped_extents > 0 && extent.flags & WITHOUT_PLACE == 0;
    Ok(has_place.then_some(extent.physical_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, io::Write};

    #[test]
    fn the_structures_are_the_kernels() {
        assert_eq!((size_of::<Header>(), size_of::<Extent>()), (32, 56));
        assert_eq!(std::mem::offset_of!(Request, extent), 32);
    }

    #[test]
    fn files_have_different_places_and_an_empty_one_has_none() {
        assert!(first_place(File::open("/proc/self/status").unwrap()).is_err());
        let directory = tempfile::tempdir_in(".").unwrap();
        let place = |name: &str, bytes: &[u8]| {
            let path = directory.path().join(name);
            let mut file = File::create(&path).unwrap();
            file.write_all(bytes).unwrap();
            file.sync_all().unwrap();
            first_place(&file)
        };
        let (one, other) = match (place("one", &[1; 9000]), place("other", &[2; 9000])) {
            (Ok(one), Ok(other)) => (one, other),
            told => {
                return haul_testkit::skip::skip("a file system that tells", format!("{told:?}"));
            }
        };
        assert!(one != other && one.is_some(), "{one:?} {other:?}");
        assert_eq!(place("empty", &[]).unwrap(), None);
    }
}
