//! Counts of what a server has read from its disks.

use std::time::Duration;

/// Reads from the disk ahead of what is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Reads not yet given to the disk.
    pub waiting: u64,
    pub in_flight: u64,
    pub finished: u64,
    pub read_bytes: u64,
    /// Reads that were over after their deadline.
    pub late: u64,
    /// Time from when a read was wanted to when it was there, of all reads together.
    pub time: Duration,
}

impl Reads {
    pub(crate) fn add(&mut self, other: &Self) {
        self.waiting += other.waiting;
        self.in_flight += other.in_flight;
        self.finished += other.finished;
        self.read_bytes += other.read_bytes;
        self.late += other.late;
        self.time += other.time;
    }
}
