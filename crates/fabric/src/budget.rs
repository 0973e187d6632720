//! Memory of a session's pairs: how many there may be, and what each of them takes.
//!
//! A session gives all its pairs one amount of memory, in equal shares. What a share is cut into
//! is decided here for both ends, so that the sum holds whatever the number of pairs: the buffers
//! of a receiver, and of a sender the pages of files that are under way, the window that is cut by
//! the last message, the next one, and its own buffers.

/// Longest message: what is registered, posted and completed as one.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Longest window on a file: registering one takes some microseconds for each megabyte.
const WINDOW_BYTES_MAX: usize = 4 << 20;
/// Shortest window of a share of a few megabytes: below it a copy is cheaper (docs/rdma.md).
const WINDOW_BYTES_MIN: usize = 256 << 10;
/// Length of a page, of which messages have a whole number.
const PAGE_BYTES: usize = 4096;
/// Buffers of a receiver: messages that wait, are filled, or are held by who takes them. No more
/// messages are under way.
pub(crate) const RECEIVE_BUFFERS: usize = 8;
/// Buffers of a sender, for frames and for what cannot be sent out of the page cache.
pub(crate) const SEND_BUFFERS: usize = 3;
/// Windows of a sender beside what is under way: the one that its last message is a part of, and
/// the next one.
const WINDOWS_BESIDE: usize = 2;
/// Parts of a share, each as long as a message; what a sender's windows have beside are 5 of them.
const PARTS: usize = 16;

/// The share of one pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub message_bytes: usize,
    pub window_bytes: usize,
}

impl Share {
    /// Cuts this many bytes up.
    pub fn of(bytes: usize) -> Self {
        let message_bytes =
            (bytes / PARTS / PAGE_BYTES * PAGE_BYTES).clamp(PAGE_BYTES, MESSAGE_BYTES_MAX);
        let taken_bytes = (RECEIVE_BUFFERS + SEND_BUFFERS) * message_bytes;
        let window_bytes = bytes.saturating_sub(taken_bytes) / WINDOWS_BESIDE;
        let window_bytes = window_bytes.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
        let messages = (window_bytes / message_bytes).max(1);
        Self { message_bytes, window_bytes: messages * message_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn neither_end_takes_more_than_its_share_and_windows_are_whole_messages() {
        for bytes in (2 << 8..=32 << 8).map(|pages| pages * PAGE_BYTES) {
            let Share { message_bytes, window_bytes } = Share::of(bytes);
            let sender = (RECEIVE_BUFFERS + SEND_BUFFERS) * message_bytes + 2 * window_bytes;
            assert!(sender <= bytes && RECEIVE_BUFFERS * message_bytes <= bytes, "{bytes}");
            assert_eq!(window_bytes % message_bytes, 0, "{bytes}");
        }
    }

    #[test]
    fn one_pair_has_the_longest_messages_and_windows_and_four_still_have_large_ones() {
        let share = |pairs| Share::of(32 * MIB / pairs);
        assert_eq!(share(1), Share { message_bytes: MIB, window_bytes: 4 * MIB });
        assert_eq!(share(2), Share { message_bytes: MIB, window_bytes: 2 * MIB });
        assert_eq!(share(4), Share { message_bytes: MIB / 2, window_bytes: MIB });
    }
}
