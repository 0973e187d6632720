//! Ledger of a TLS stream: which of its bytes are in which bytes on the wire, records included.
//!
//! TCP tells how many bytes on the wire the client's kernel has. A player can use a record when all
//! of it is there, so what it has is what the whole records hold.

use std::collections::VecDeque;

/// Bytes that the longest record holds (RFC 8446, 5.1).
pub const RECORD_BYTES_MAX: u64 = 16 << 10;
/// Runs of full records that are remembered; more than a socket's buffer holds of a paced stream.
const RUNS_MAX: usize = 64;

#[derive(Debug, Default)]
pub struct Ledger {
    /// Bytes that a record has on the wire beside those of the stream.
    overhead_bytes: u64,
    /// Bytes of the stream, all together.
    plain_bytes: u64,
    /// Runs of records in their order; those that lie before what the client has are forgotten.
    runs: VecDeque<Run>,
}

/// Records one behind the other; all but the last are full.
#[derive(Clone, Copy, Debug)]
struct Run {
    wire_start: u64,
    plain_start: u64,
}

impl Ledger {
    pub fn set_overhead(&mut self, overhead_bytes: u64) {
        self.overhead_bytes = overhead_bytes;
    }

    /// Notes that a record of `len_bytes` begins at `wire_start` of the wire.
    pub fn tell(&mut self, wire_start: u64, len_bytes: u64) {
        let goes_on = self.runs.back().is_some_and(|run| {
            let so_far = self.plain_bytes - run.plain_start;
            so_far.is_multiple_of(RECORD_BYTES_MAX)
                && run.wire_start + self.on_the_wire(so_far) == wire_start
        });
        if !goes_on {
            if self.runs.len() == RUNS_MAX {
                self.runs.pop_front();
            }
            self.runs.push_back(Run { wire_start, plain_start: self.plain_bytes });
        }
        self.plain_bytes += len_bytes;
    }

    /// Bytes on the wire of `plain_bytes` in full records.
    fn on_the_wire(&self, plain_bytes: u64) -> u64 {
        plain_bytes + plain_bytes / RECORD_BYTES_MAX * self.overhead_bytes
    }

    /// Bytes of the stream that are whole among the first `wire_bytes`, of `sent_wire_bytes` that
    /// were written so far. What lies before them is forgotten: `wire_bytes` only grows.
    pub fn plain_among(&mut self, wire_bytes: u64, sent_wire_bytes: u64) -> u64 {
        if wire_bytes >= sent_wire_bytes {
            let end = self.plain_bytes;
            self.runs.drain(..self.runs.len().saturating_sub(1));
            return end;
        }
        while self.runs.get(1).is_some_and(|next| next.wire_start <= wire_bytes) {
            self.runs.pop_front();
        }
        let Some(run) = self.runs.front() else { return 0 };
        let Some(into) = wire_bytes.checked_sub(run.wire_start) else {
            // It is forgotten; records only make the wire longer than the stream, and one may be
            // there in part.
            let missing = run.wire_start - wire_bytes + RECORD_BYTES_MAX;
            return run.plain_start.saturating_sub(missing);
        };
        let records = into / (RECORD_BYTES_MAX + self.overhead_bytes);
        let end = self.runs.get(1).map_or(self.plain_bytes, |next| next.plain_start);
        (run.plain_start + records * RECORD_BYTES_MAX).min(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: u64 = RECORD_BYTES_MAX;

    fn ledger(records: &[u64]) -> (Ledger, u64) {
        let mut ledger = Ledger::default();
        ledger.set_overhead(22);
        // The handshake comes first.
        let mut wire = 3_000;
        for record in records {
            ledger.tell(wire, *record);
            wire += record + 22;
        }
        (ledger, wire)
    }

    #[test]
    fn a_record_counts_when_its_last_byte_is_there() {
        let records = [300, FULL, FULL, 1_000, FULL];
        let (_, sent) = ledger(&records);
        let among = |wire| ledger(&records).0.plain_among(wire, sent);
        let (mut wire, mut plain) = (3_000, 0);
        assert_eq!(among(0), 0);
        for record in records {
            assert_eq!((among(wire), among(wire + record + 21)), (plain, plain), "{record}");
            wire += record + 22;
            plain += record;
            assert_eq!(among(wire), plain, "{record}");
        }
    }

    #[test]
    fn full_records_take_one_place_and_old_ones_are_forgotten() {
        let (ledger, _) = self::ledger(&[FULL; 1000]);
        assert_eq!(ledger.runs.len(), 1);
        let (mut ledger, sent) = self::ledger(&[1_000; 1000]);
        assert_eq!(ledger.runs.len(), RUNS_MAX);
        // Far behind it says too little, by the overhead and a record.
        let among = ledger.plain_among(3_000 + 100 * 1_022, sent);
        assert!((50_000..=100_000).contains(&among), "{among}");
        assert_eq!(ledger.plain_among(3_000 + 990 * 1_022, sent), 990_000);
        assert_eq!(ledger.plain_among(sent, sent), 1_000_000);
        assert_eq!(ledger.runs.len(), 1);
    }

    proptest::proptest! {
        #[test]
        fn it_never_says_more_than_is_there(
            records in proptest::collection::vec(1_u64..=FULL, 1..100),
            share in 0_u64..=1000,
        ) {
            let (mut ledger, sent) = self::ledger(&records);
            let wire = sent * share / 1000;
            let (mut at, mut there) = (3_000, 0);
            for record in &records {
                at += record + 22;
                if at <= wire { there += record; }
            }
            let among = ledger.plain_among(wire, sent);
            proptest::prop_assert!(among <= there, "{among} of {there}");
        }
    }
}
