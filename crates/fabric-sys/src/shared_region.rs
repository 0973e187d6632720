//! Regions of shared memory of the provider shm: their layout, and how long they have a name.
//!
//! Each endpoint has a region with a name, as `/dev/shm/PID:0:0`, by which its peer maps it. A
//! process that is killed leaves the name, and 16 MiB of memory with it; the next one that gets its
//! number cannot open an endpoint (EBUSY). So a name goes as soon as the peer has mapped the
//! region; what both have mapped goes with them.
//!
//! The provider maps the peer's region as if its own library had made it: a client with
//! libfabric 1.17 was ended by SIGSEGV at a server with 2.1. A region begins with the version of
//! its layout (`struct smr_region`, `SMR_VERSION` of libfabric), which nobody there looks at.

use core::ops::Range;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

use crate::error::Error;

/// The place of the names, where glibc's `shm_open(3)` has them.
const REGIONS: &str = "/dev/shm";
/// Length of the pages that memory is given back by.
const PAGE_BYTES: u64 = 4096;
/// The begin of an address of the provider shm (fi_shm(7)), behind which the region's name stands.
const PREFIX: &[u8] = b"fi_shm://";

/// Checks that an endpoint and its peer have regions of one layout. What is no address of shm, or a
/// region that cannot be read, is left to the provider.
///
/// # Errors
/// EPROTONOSUPPORT where the layouts differ.
pub(crate) fn check(own: &[u8], peer: &[u8]) -> Result<(), Error> {
    check_below(Path::new(REGIONS), own, peer)
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

/// Takes the name off the region of this process's endpoint with this address, once its peer has
/// mapped it. An address of another provider has none.
pub(crate) fn forget_name(own: &[u8]) {
    if let Some(region) = region(Path::new(REGIONS), own) {
        // A name that is not there is as good; the provider does not miss it when it closes.
        drop(fs::remove_file(region));
    }
}

/// Waits until no other endpoint of this process makes its region: its padding takes memory until
/// it is given back, which endpoints that are made at once would take together.
pub(crate) fn begin() -> MutexGuard<'static, ()> {
    static MAKING: Mutex<()> = Mutex::new(());
    MAKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives back the memory of the pages of this process's region that hold nothing, right after the
/// endpoint was opened. The provider pads the region's name with zeros to the end of the region,
/// which has a power of two bytes (`smr_create` of libfabric 1.17 and 2.1): 4 MiB of memory.
pub(crate) fn give_back_padding(own: &[u8]) {
    if let Some(region) = region(Path::new(REGIONS), own) {
        // Without it there is more memory taken, and nothing else.
        let opened = OpenOptions::new().read(true).write(true).open(region);
        drop(opened.and_then(|region| give_back_zeros(&region)));
    }
}

/// Punches holes where pages are zeros: they are read as before.
fn give_back_zeros(file: &File) -> io::Result<()> {
    let end = file.metadata()?.len();
    let mut page = [0; PAGE_BYTES as usize];
    let mut at = 0;
    while at < end {
        // ENXIO: there is nothing but a hole up to the end.
        let Ok(data) = seek(file, SeekFrom::Data(at)) else { return Ok(()) };
        at = data / PAGE_BYTES * PAGE_BYTES;
        let hole = seek(file, SeekFrom::Hole(data))?;
        let mut zeros_from = at;
        while at < hole {
            let len = PAGE_BYTES.min(end - at);
            let page = &mut page[..len as usize];
            file.read_exact_at(page, at)?;
            if page.iter().any(|byte| *byte != 0) {
                punch(file, zeros_from..at)?;
                zeros_from = at + len;
            }
            at += len;
        }
        punch(file, zeros_from..at)?;
    }
    Ok(())
}

fn punch(file: &File, range: Range<u64>) -> io::Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(file, mode, range.start, range.end - range.start)?)
}

fn version(regions: &Path, address: &[u8]) -> Option<u8> {
    // The peer says the name: one of a FIFO is not waited for.
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let mut version = [0];
    options.open(region(regions, address)?).ok()?.read_exact(&mut version).ok()?;
    Some(version[0])
}

fn region(regions: &Path, address: &[u8]) -> Option<PathBuf> {
    let name = address.strip_prefix(PREFIX)?;
    let name = str::from_utf8(name.split(|byte| *byte == 0).next()?).ok()?;
    (!name.is_empty() && !name.contains('/')).then(|| regions.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Channel, Domain, EndpointKind, Info, Listener, Patience, Queue, connect};
    use std::{process::Command, thread, time::Duration};

    #[test]
    fn a_region_has_no_name_once_both_ends_have_met() {
        let open = || {
            let info = Info::find("shm", EndpointKind::ReliableDatagrams, None).unwrap();
            Domain::open(info).unwrap()
        };
        let patience = || Patience::new(Duration::from_secs(20), &|| false);
        let is_named = |address: &[u8]| region(Path::new(REGIONS), address).unwrap().exists();
        let ticket = [7; 16];
        let mut listener = Listener::new(&open(), ticket, Queue::CanSleep).unwrap();
        let address = listener.address().unwrap();
        assert!(is_named(&address.bytes));
        let accepted = thread::spawn(move || listener.accept(patience()).unwrap());
        let mut near = connect(&open(), &address, &ticket, Queue::CanSleep, patience()).unwrap();
        let mut far = accepted.join().unwrap();
        let own = |channel: &mut Channel| channel.parts().names.clone().unwrap().own;
        assert_eq!(own(&mut far), address.bytes);
        assert_ne!(own(&mut near), own(&mut far));
        assert!(!is_named(&own(&mut near)) && !is_named(&own(&mut far)));
    }

    /// Case of a region that took 4 MiB in each process for each pair: the zeros behind its name.
    #[test]
    fn a_region_takes_a_small_part_of_its_length() {
        use std::os::unix::fs::MetadataExt;
        let info = Info::find("shm", EndpointKind::ReliableDatagrams, None).unwrap();
        let mut listener =
            Listener::new(&Domain::open(info).unwrap(), [7; 16], Queue::CanSleep).unwrap();
        let address = listener.address().unwrap();
        let found = region(Path::new(REGIONS), &address.bytes).unwrap().metadata().unwrap();
        assert!(found.len() >= 8 << 20, "{found:?}");
        assert!(found.blocks() * 512 <= 1 << 20, "{} bytes of memory", found.blocks() * 512);
    }

    #[test]
    fn pages_of_zeros_are_given_back_and_every_byte_stays() {
        use std::{io::Write, os::unix::fs::MetadataExt};
        let mut content = vec![0; 40 * 4096 + 100];
        for at in [5, 3 * 4096 - 1, 20 * 4096, 40 * 4096 + 99] {
            content[at] = 7;
        }
        let mut file = tempfile::tempfile_in(REGIONS).unwrap();
        file.write_all(&content).unwrap();
        give_back_zeros(&file).unwrap();
        let mut found = vec![1; content.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == content);
        assert_eq!(file.metadata().unwrap().blocks() * 512, 4 * 4096);
    }

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
