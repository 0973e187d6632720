//! Reading of settings files, at the start and again on SIGHUP.
//!
//! That is while somebody's films are being sent, so nothing may be waited for.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use rustix::fs::{Mode, OFlags};

/// Reads all of a file, and never waits for one.
///
/// # Errors
/// What open(2) and read(2) say; where it is no regular file, as a pipe or a terminal would be
/// waited for; where it has more than `bytes_max`: somebody named a film by mistake.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file, which SIGHUP could read again"));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let why = format!("it has more than {bytes_max} bytes, which such a file never has");
        return Err(io::Error::other(why));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_is_read_to_its_bound_and_a_pipe_is_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        fs::write(&path, "rate = '2M'").unwrap();
        assert_eq!(read(&path, 100).unwrap(), b"rate = '2M'");
        assert_eq!(read(&path, 11).unwrap(), b"rate = '2M'");
        assert!(read(&path, 10).unwrap_err().to_string().contains("more than 10 bytes"));
        let pipe = place.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        assert!(read(&pipe, 100).unwrap_err().to_string().contains("regular"));
        assert!(read(place.path(), 100).is_err());
        assert_eq!(
            read(&place.path().join("none"), 1).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
