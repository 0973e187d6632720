//! The dirty pages of a file, on their way to the disk or to be sent there (sync_file_range(2)).

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd},
};

/// Waits for writes that are under way, and tells of each failure since the file was opened, or
/// since it was told last. Starts nothing and flushes nothing: dirty pages stay so.
///
/// # Errors
/// That of the write which failed.
pub fn check(file: &File) -> io::Result<()> {
    call(file, libc::SYNC_FILE_RANGE_WAIT_BEFORE)
}

/// Writes out all dirty pages, and waits for them; nothing else of the file, and no cache of a
/// disk. A clean page is written through a mapping only after a fault, which changes the file's
/// mtime and ctime; a dirty one without.
///
/// # Errors
/// That of a write which failed.
pub fn write_out(file: &File) -> io::Result<()> {
    call(
        file,
        libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER,
    )
}

fn call(file: &File, flags: libc::c_uint) -> io::Result<()> {
    let descriptor = file.as_fd().as_raw_fd();
    // SAFETY: only numbers go in.
    let result = unsafe { libc::sync_file_range(descriptor, 0, 0, flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_whose_bytes_are_on_their_way_is_well_and_a_pipe_cannot_be_asked() {
        let file = tempfile::tempfile().unwrap();
        rustix::io::write(&file, &[1; 100_000]).unwrap();
        check(&file).unwrap();
        write_out(&file).unwrap();
        let (reader, _writer) = io::pipe().unwrap();
        let reader = File::from(std::os::fd::OwnedFd::from(reader));
        assert_eq!(check(&reader).unwrap_err().raw_os_error(), Some(libc::ESPIPE));
    }
}
