//! A watch on zero-copy calls: whether they really copy nothing here, counted while they are made.
//!
//! A kernel that takes zero-copy calls may still copy: what a wire does shows only in what becomes
//! of the bytes. An engine that finds this out gives up within [`WINDOW_BYTES`] and what is under
//! way, so that the price of trying is bounded.

use std::io;

/// The reaction to bytes that go another way than the engine's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfCopied {
    /// Give up for another engine, which does the same with less work.
    #[default]
    GiveUp,
    /// Go on, and count the bytes as copied: a study wants to see what it costs.
    GoOn,
}

/// Bytes of a window: enough to be past the first segments of a connection, and over in a moment.
pub const WINDOW_BYTES: u64 = 4 << 20;

/// Counts how many bytes the kernel copied, one window after the other.
#[derive(Debug)]
pub(crate) struct CopyWatch {
    if_copied: IfCopied,
    bytes: u64,
    copied_bytes: u64,
    /// Copied bytes and all bytes of the last window that is over and in which half or more were
    /// copied.
    verdict: Option<(u64, u64)>,
}

impl CopyWatch {
    pub(crate) fn new(if_copied: IfCopied) -> Self {
        Self { if_copied, bytes: 0, copied_bytes: 0, verdict: None }
    }

    /// Counts `bytes` that have gone, `copied_bytes` of them another way than the engine's own.
    pub(crate) fn count(&mut self, bytes: u64, copied_bytes: u64) {
        self.bytes += bytes;
        self.copied_bytes += copied_bytes;
        if self.bytes >= WINDOW_BYTES {
            if self.copied_bytes >= self.bytes / 2 {
                self.verdict = Some((self.copied_bytes, self.bytes));
            }
            (self.bytes, self.copied_bytes) = (0, 0);
        }
    }

    pub(crate) fn may_give_up(&self) -> bool {
        self.if_copied == IfCopied::GiveUp
    }

    /// Fails where the engine is to give up: `in_words` puts copied bytes, and all, into a
    /// sentence.
    pub(crate) fn check(&self, in_words: impl FnOnce(u64, u64) -> String) -> io::Result<()> {
        match self.verdict {
            Some((copied, all)) if self.may_give_up() => {
                Err(io::Error::new(io::ErrorKind::Unsupported, in_words(copied, all)))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(watch: &CopyWatch) -> Option<String> {
        watch.check(|vain, all| format!("{vain} of {all}")).err().map(|error| error.to_string())
    }

    #[test]
    fn a_window_with_half_of_it_in_vain_is_a_reason_to_give_up() {
        let mut watch = CopyWatch::new(IfCopied::GiveUp);
        watch.count(WINDOW_BYTES - 1, WINDOW_BYTES - 1);
        assert_eq!(verdict(&watch), None, "the window is not over");
        watch.count(1, 0);
        assert_eq!(verdict(&watch), Some(format!("{} of {WINDOW_BYTES}", WINDOW_BYTES - 1)));
    }

    #[test]
    fn less_than_half_is_none_and_a_later_window_may_be() {
        let mut watch = CopyWatch::new(IfCopied::GiveUp);
        for _ in 0..3 {
            watch.count(WINDOW_BYTES, WINDOW_BYTES / 2 - 1);
            assert_eq!(verdict(&watch), None);
        }
        watch.count(WINDOW_BYTES, WINDOW_BYTES / 2);
        assert!(verdict(&watch).is_some());
    }

    #[test]
    fn a_study_goes_on() {
        let mut watch = CopyWatch::new(IfCopied::GoOn);
        watch.count(WINDOW_BYTES, WINDOW_BYTES);
        assert_eq!(verdict(&watch), None);
    }
}
