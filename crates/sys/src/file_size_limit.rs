//! The limit of file sizes (RLIMIT_FSIZE, `ulimit -f`): a write beyond it gets an error.
//!
//! The kernel sends SIGXFSZ beside EFBIG, and that signal ends a process that has not asked for
//! anything else (setrlimit(2)): one file too large would end a server with all of its sessions.

use std::{io, sync::Once};

/// Lets a write, an allocation or a new size beyond the limit fail with EFBIG and nothing else from
/// now on. A handler that the program has set itself stays.
///
/// A handler that does nothing, since an ignored signal would stay ignored in the programs that
/// this process starts (execve(2)).
pub fn survive() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // A kernel that refuses leaves the signal as it was.
        let _ = install();
    });
}

fn install() -> io::Result<()> {
    // SAFETY: all-zero is a valid sigaction: no flags, an empty mask, the default action.
    let mut before: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: no new action is given; the old one goes to a live structure.
    let asked = unsafe { libc::sigaction(libc::SIGXFSZ, core::ptr::null(), &raw mut before) };
    if asked != 0 {
        return Err(io::Error::last_os_error());
    }
    if before.sa_sigaction != libc::SIG_DFL {
        return Ok(());
    }
    before.sa_sigaction = do_nothing as extern "C" fn(_) as libc::sighandler_t;
    before.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the action is a live structure, and its handler does nothing.
    let set = unsafe { libc::sigaction(libc::SIGXFSZ, &raw const before, core::ptr::null_mut()) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

extern "C" fn do_nothing(_signal: libc::c_int) {}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::{fs::File, os::unix::fs::FileExt};

    /// The test runs in a process of its own, as the limit holds for all tests of this one.
    #[test]
    fn a_write_beyond_the_limit_is_an_error_and_the_process_lives() {
        const NAME: &str = "file_size_limit::tests::a_write_beyond_the_limit_is_an_error_and_the";
        if std::env::var_os("HAUL_TEST_FILE_SIZE_LIMIT").is_none() {
            let output = std::process::Command::new(std::env::current_exe().unwrap())
                .arg(NAME)
                .env("HAUL_TEST_FILE_SIZE_LIMIT", "1")
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let file = File::create(directory.path().join("file")).unwrap();
        survive();
        let limit = getrlimit(Resource::Fsize);
        setrlimit(Resource::Fsize, Rlimit { current: Some(10), maximum: limit.maximum }).unwrap();
        let beyond = [
            file.write_all_at(&[1; 11], 0),
            file.set_len(11),
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 11)
                .map_err(Into::into),
        ];
        let is_there = file.metadata().unwrap().len();
        setrlimit(Resource::Fsize, limit).unwrap();
        let errors = beyond.map(|outcome| outcome.unwrap_err().raw_os_error());
        assert_eq!((errors, is_there), ([Some(libc::EFBIG); 3], 10));
    }
}
