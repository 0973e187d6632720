//! Errors of libfabric: its codes are those of errno(3), and some of its own.

use core::ffi::CStr;
use std::fmt;

use crate::library::{NoLibrary, library};

/// A call of libfabric that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// Name of the call.
    pub call: &'static str,
    /// The code, positive: an errno(3), or one of libfabric's own (fi_errno(3)).
    pub code: i32,
}

impl Error {
    /// The error behind a negative result of `call`.
    pub(crate) fn of(call: &'static str, result: isize) -> Self {
        Self { call, code: i32::try_from(-result).unwrap_or(libc::EIO) }
    }

    /// Turns the result of `call` into a count.
    pub(crate) fn check(call: &'static str, result: isize) -> Result<usize, Self> {
        usize::try_from(result).map_err(|_| Self::of(call, result))
    }

    /// Whether nothing is wrong: a queue is full, or an empty one was asked.
    #[must_use]
    pub fn is_again(&self) -> bool {
        self.code == libc::EAGAIN
    }

    /// The code in libfabric's words.
    #[must_use]
    pub fn words(&self) -> String {
        let Ok(library) = library() else {
            return std::io::Error::from_raw_os_error(self.code).to_string();
        };
        // SAFETY: takes any number and returns a text that stays until the end of the process.
        let words = unsafe { (library.strerror)(self.code) };
        if words.is_null() {
            return format!("error {}", self.code);
        }
        // SAFETY: it is not null, ends with a zero and is never changed.
        unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
    }
}

impl From<&NoLibrary> for Error {
    fn from(_: &NoLibrary) -> Self {
        Self { call: "dlopen", code: libc::ELIBACC }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {} ({})", self.call, self.words(), self.code)
    }
}

impl std::error::Error for Error {}
