//! Whether all that was written to a file in the background reached the disk (sync_file_range(2)).

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd},
};

/// Waits for writes that are under way, and tells of each failure since the file was opened, or
/// since it was told last. Starts nothing and flushes nothing: what is dirty stays so.
///
/// # Errors
/// That of the write which failed.
pub fn check(file: &File) -> io::Result<()> {
    let descriptor = file.as_fd().as_raw_fd();
    // SAFETY: only numbers go in.
    let result =
        unsafe { libc::sync_file_range(descriptor, 0, 0, libc::SYNC_FILE_RANGE_WAIT_BEFORE) };
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
        let (reader, _writer) = io::pipe().unwrap();
        let reader = File::from(std::os::fd::OwnedFd::from(reader));
        assert_eq!(check(&reader).unwrap_err().raw_os_error(), Some(libc::ESPIPE));
    }
}
