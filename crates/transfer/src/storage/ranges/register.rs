//! Register of a file that several sessions bring in ranges: the bytes of `.NAME.haul-ranges`.
//!
//! A header says which file it is and into which temporary it comes; a record says that a range was
//! begun, or that it is durable and verified. Header and records carry a CRC-32C, and records the
//! header's random number, so that a torn tail, and what a run before has left, is never believed.

use super::byte_set::ByteSet;
use std::{collections::HashSet, ops::Range};

const MAGIC: [u8; 8] = *b"haul-rg2";
const HEADER_BYTES: usize = 96;
const RECORD_BYTES: usize = 52;
/// Most bytes of a register, and so most records of a file.
pub const REGISTER_BYTES_MAX: u64 = (HEADER_BYTES + 65_536 * RECORD_BYTES) as u64;

/// Number that no inode has.
pub const NO_INODE: u64 = 0;

/// The file that ranges are of: another size, time, inode or name is another file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Whole {
    /// Length of the source.
    pub size_bytes: u64,
    /// Modification time of the source, in seconds since 1970.
    pub mtime_s: i64,
    /// Nanoseconds of the modification time.
    pub mtime_ns: u32,
    /// Inode of the source.
    pub source_inode: u64,
    /// Device of the source.
    pub source_device: u64,
    /// The first half of the SHA-256 of the target's name in its directory.
    pub name_hash: [u8; 16],
}

/// First part of a register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The file that ranges are of.
    pub whole: Whole,
    /// Inode of the temporary.
    pub temporary: u64,
    /// Number that binds records and journals to this header.
    pub number: u64,
    /// Marks of sources of which durable ranges were thrown away.
    pub lost: u64,
}

/// State of a range, as a record says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The range has a journal from now on.
    Begun = 1,
    /// The range is durable and verified.
    Done = 2,
    /// The range is not believed any more: it is to be read back.
    Reopened = 3,
}

/// Clock of the host that says a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// First half of the number of its start of the kernel; 0: not known.
    pub boot: u64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
}

/// Clock of the host that reads records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Now.
    pub now: Said,
    /// Milliseconds since the host was started.
    pub up_ms: u64,
}

impl Clock {
    /// Whether the host was started anew since a record was said, by whichever host. Hosts of one
    /// file system are of different boots, so that the time decides there: by as much as their
    /// clocks are apart, what another host said may wrongly be of before, and wrongly not.
    #[must_use]
    pub fn is_started_since(&self, said: Said) -> bool {
        let is_of_this_boot = said.boot != 0 && said.boot == self.now.boot;
        !is_of_this_boot && said.at_ms < self.now.at_ms.saturating_sub(self.up_ms)
    }
}

/// Records that count for a question; by default all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting {
    /// Change time of the source's inode; `None`: whichever.
    pub ctime: Option<(i64, u32)>,
    /// Clock of the host, where what was said before its start does not count.
    pub clock: Option<Clock>,
    /// Boot that is known, where only what was said in it counts.
    pub boot: Option<u64>,
}

impl Counting {
    /// All records of a source of this change time.
    #[must_use]
    pub fn of(ctime: (i64, u32)) -> Self {
        Self { ctime: Some(ctime), ..Self::default() }
    }

    /// The records that were said in this boot, which must be known, of these.
    #[must_use]
    pub fn of_boot(self, boot: u64) -> Self {
        Self { boot: Some(boot), ..self }
    }

    /// The records that were said since this host was started, of these.
    #[must_use]
    pub fn since_start(self, clock: Clock) -> Self {
        Self { clock: Some(clock), ..self }
    }

    fn counts(&self, record: &Record) -> bool {
        self.ctime.is_none_or(|ctime| record.agrees(ctime))
            && self.clock.is_none_or(|clock| !clock.is_started_since(record.said))
            && self.boot.is_none_or(|boot| boot != 0 && boot == record.said.boot)
    }
}

/// A record: what is said of a range, the change time of the source's inode at that, and when it
/// was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// State of the range from this record on.
    pub state: State,
    /// Bytes of the file.
    pub range: Range<u64>,
    /// Seconds and nanoseconds; zeros: not known.
    pub ctime: (i64, u32),
    /// Clock of the host that says so.
    pub said: Said,
}

impl Record {
    /// Whether the source was the same inode, unchanged, as far as the change times tell.
    fn agrees(&self, ctime: (i64, u32)) -> bool {
        self.ctime == ctime || self.ctime == (0, 0) || ctime == (0, 0)
    }
}

/// Contents of a register.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Register {
    /// First part of the register.
    pub header: Header,
    records: Vec<Record>,
    /// Bytes that are whole: header and records.
    pub whole_bytes: u64,
}

impl Whole {
    /// Whether this is the same file. Hosts number devices each for itself, so that counts only
    /// where no change time tells another source.
    #[must_use]
    pub fn is_same(&self, other: &Self, ctime: (i64, u32)) -> bool {
        let source_device = if ctime == (0, 0) { self.source_device } else { other.source_device };
        Self { source_device, ..*self } == Self { source_device: other.source_device, ..*other }
    }

    /// The bit that stands for this source among those whose ranges were thrown away. Two sources
    /// may have one: then a run is told to come again that need not.
    #[must_use]
    pub fn mark(&self) -> u64 {
        let Self { size_bytes, mtime_s, mtime_ns, source_inode, .. } = self;
        let numbers = [*size_bytes, mtime_s.cast_unsigned(), (*mtime_ns).into(), *source_inode];
        let bytes = numbers.map(u64::to_le_bytes).concat();
        1 << (crc_fast::crc32_iscsi(&bytes) % u64::BITS)
    }
}

impl Register {
    /// A register that says nothing of any range.
    #[must_use]
    pub fn new(header: Header) -> Self {
        Self { header, records: Vec::new(), whole_bytes: HEADER_BYTES as u64 }
    }

    /// Reads a register; `None` where its header is not whole.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, mut rest) = bytes.split_at_checked(HEADER_BYTES)?;
        let header = Header {
            whole: Whole {
                size_bytes: u64_at(head, 8),
                mtime_s: u64_at(head, 16).cast_signed(),
                mtime_ns: u32_at(head, 24),
                source_inode: u64_at(head, 32),
                source_device: u64_at(head, 40),
                name_hash: head[48..64].try_into().expect("sixteen bytes"),
            },
            temporary: u64_at(head, 64),
            number: u64_at(head, 72),
            lost: u64_at(head, 80),
        };
        if header.encode() != head {
            return None;
        }
        let (mut records, mut whole_bytes) = (Vec::new(), HEADER_BYTES as u64);
        while let Some((record, behind)) = rest.split_at_checked(RECORD_BYTES) {
            let state = match u32_at(record, 0) {
                1 => State::Begun,
                2 => State::Done,
                3 => State::Reopened,
                _ => break,
            };
            let range = u64_at(record, 4)..u64_at(record, 12);
            let is_within = range.start < range.end && range.end <= header.whole.size_bytes;
            let ctime = (u64_at(record, 20).cast_signed(), u32_at(record, 28));
            let said = Said { boot: u64_at(record, 32), at_ms: u64_at(record, 40) };
            let read = Record { state, range, ctime, said };
            if !is_within || header.record(&read) != record {
                break;
            }
            records.push(read);
            whole_bytes += RECORD_BYTES as u64;
            rest = behind;
        }
        Some(Self { header, records, whole_bytes })
    }

    /// Whether every byte of the range is durable and verified, by whichever of the records that
    /// count.
    #[must_use]
    pub fn covers(&self, range: &Range<u64>, counting: Counting) -> bool {
        self.durable(counting).covers(range)
    }

    /// Whether all of the file is durable and verified, as [`Register::covers`] says.
    #[must_use]
    pub fn is_complete(&self, counting: Counting) -> bool {
        self.covers(&(0..self.header.whole.size_bytes), counting)
    }

    /// Whether no session was ever told that a range is durable.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lost() == 0
    }

    /// Whether it says nothing of any range or temporary: only which sources lost theirs.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        self.header.temporary == NO_INODE && self.records.is_empty()
    }

    /// Marks of the sources of which durable ranges are thrown away where this register is.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let was_told = self.records.iter().any(|record| record.state != State::Begun);
        self.header.lost | if was_told { self.header.whole.mark() } else { 0 }
    }

    /// Whether bytes of this source that were told as durable were thrown away.
    #[must_use]
    pub fn is_marked_lost(&self) -> bool {
        self.header.lost & self.header.whole.mark() != 0
    }

    /// Whether a range that was told as durable is read back, or comes again, and is not through.
    #[must_use]
    pub fn is_reopened(&self) -> bool {
        self.is_doubted(&(0..self.header.whole.size_bytes))
    }

    /// Whether bytes of the range were to be read back, or found lost, and are not durable since.
    #[must_use]
    pub fn is_doubted(&self, range: &Range<u64>) -> bool {
        let durable = self.durable(Counting::default());
        let is_open = |it: &Record| {
            let part = it.range.start.max(range.start)..it.range.end.min(range.end);
            it.state == State::Reopened && !durable.covers(&part)
        };
        self.records.iter().any(is_open)
    }

    /// Whether some byte of the range is durable, of a source of whichever change time.
    #[must_use]
    pub fn touches(&self, range: &Range<u64>) -> bool {
        self.durable(Counting::default()).touches(range)
    }

    /// Records of ranges that are durable by `all` and not by `fewer`, of each range the last one,
    /// and the last of all first.
    #[must_use]
    pub fn durable_only_by(&self, all: Counting, fewer: Counting) -> Vec<Record> {
        let (by_all, by_fewer) = (self.durable(all), self.durable(fewer));
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        for record in self.records.iter().rev() {
            let range = &record.range;
            let counts = record.state == State::Done && all.counts(record);
            let is_only_by_all = by_all.covers(range) && !by_fewer.covers(range);
            if counts && is_only_by_all && seen.insert(range.clone()) {
                found.push(record.clone());
            }
        }
        found
    }

    /// Number of records.
    #[must_use]
    pub fn records(&self) -> usize {
        self.records.len()
    }

    /// Bytes of which a record behind the first so many says anything.
    #[must_use]
    pub fn told_since(&self, records: usize) -> ByteSet {
        let mut told = ByteSet::default();
        self.records.iter().skip(records).for_each(|record| told.insert(&record.range));
        told
    }

    /// Whether so many further records have room.
    #[must_use]
    pub fn has_room(&self, records: usize, bytes_max: u64) -> bool {
        self.whole_bytes + (records * RECORD_BYTES) as u64 <= bytes_max
    }

    /// Bytes that are durable and verified by the records that count. What is to be read back is
    /// durable by none of before.
    #[must_use]
    pub fn durable(&self, counting: Counting) -> ByteSet {
        let mut durable = ByteSet::default();
        for record in &self.records {
            match record.state {
                State::Begun => {}
                State::Done if counting.counts(record) => durable.insert(&record.range),
                State::Done => {}
                State::Reopened => durable.remove(&record.range),
            }
        }
        durable
    }

    /// Begins of all ranges that may have a journal, each once.
    #[must_use]
    pub fn begun(&self) -> Vec<u64> {
        let mut begun: Vec<u64> = self.records.iter().map(|record| record.range.start).collect();
        begun.sort_unstable();
        begun.dedup();
        begun
    }

    /// Begins of the ranges that have bytes of this one and begin elsewhere: their journals may
    /// tell of those. Another range that begins at the same byte has the same journal, which is
    /// begun anew.
    #[must_use]
    pub fn cut_otherwise(&self, range: &Range<u64>) -> Vec<u64> {
        let overlaps = |it: &&Record| it.range.start < range.end && range.start < it.range.end;
        let records = self.records.iter().filter(overlaps);
        let mut begins: Vec<u64> = records.map(|record| record.range.start).collect();
        begins.retain(|begin| *begin != range.start);
        begins.sort_unstable();
        begins.dedup();
        begins
    }

    /// Whether a record says this already.
    #[must_use]
    pub fn says(&self, state: State, range: &Range<u64>) -> bool {
        self.records.iter().any(|record| record.state == state && record.range == *range)
    }

    /// Takes in a record that was written behind the others.
    pub fn push(&mut self, record: Record) {
        self.records.push(record);
        self.whole_bytes += RECORD_BYTES as u64;
    }
}

impl Header {
    /// Bytes of a header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let Self { whole, temporary, number, lost } = self;
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&whole.size_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&whole.mtime_s.to_le_bytes());
        bytes[24..28].copy_from_slice(&whole.mtime_ns.to_le_bytes());
        bytes[32..40].copy_from_slice(&whole.source_inode.to_le_bytes());
        bytes[40..48].copy_from_slice(&whole.source_device.to_le_bytes());
        bytes[48..64].copy_from_slice(&whole.name_hash);
        bytes[64..72].copy_from_slice(&temporary.to_le_bytes());
        bytes[72..80].copy_from_slice(&number.to_le_bytes());
        bytes[80..88].copy_from_slice(&lost.to_le_bytes());
        let crc = crc_fast::crc32_iscsi(&bytes[..HEADER_BYTES - 4]);
        bytes[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Bytes of a record behind this header.
    #[must_use]
    pub fn record(&self, record: &Record) -> [u8; RECORD_BYTES] {
        let Record { state, range, ctime, said } = record;
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&(*state as u32).to_le_bytes());
        bytes[4..12].copy_from_slice(&range.start.to_le_bytes());
        bytes[12..20].copy_from_slice(&range.end.to_le_bytes());
        bytes[20..28].copy_from_slice(&ctime.0.to_le_bytes());
        bytes[28..32].copy_from_slice(&ctime.1.to_le_bytes());
        bytes[32..40].copy_from_slice(&said.boot.to_le_bytes());
        bytes[40..48].copy_from_slice(&said.at_ms.to_le_bytes());
        let mut covered = bytes[..48].to_vec();
        covered.extend_from_slice(&self.number.to_le_bytes());
        let crc = crc_fast::crc32_iscsi(&covered);
        bytes[48..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Counting = Counting { ctime: None, clock: None, boot: None };

    fn header() -> Header {
        let whole = Whole { size_bytes: 1000, mtime_s: -5, name_hash: [7; 16], ..Whole::default() };
        Header { whole, temporary: 9, number: 77, lost: 0 }
    }

    fn record(state: State, range: Range<u64>) -> Record {
        Record { state, range, ctime: (3, 0), said: Said::default() }
    }

    fn bytes(records: &[Record]) -> Vec<u8> {
        let mut bytes = header().encode().to_vec();
        for record in records {
            bytes.extend_from_slice(&header().record(record));
        }
        bytes
    }

    #[test]
    fn ranges_that_touch_or_overlap_cover_what_is_within_them_until_one_is_reopened() {
        use State::{Begun, Done, Reopened};
        let mut said = vec![record(Begun, 0..400), record(Done, 300..700), record(Done, 0..300)];
        let read = |said: &[_]| Register::decode(&bytes(said)).unwrap();
        let register = read(&said);
        assert!(register.covers(&(0..700), ALL) && register.covers(&(299..301), ALL));
        assert!(!register.covers(&(0..701), ALL) && !register.is_complete(ALL));
        assert_eq!(register.begun(), [0, 300]);
        assert!(register.says(Begun, &(0..400)) && !register.says(Done, &(0..400)));
        said.push(record(Done, 700..1000));
        assert!(read(&said).is_complete(ALL));
        said.push(record(Reopened, 0..300));
        let register = read(&said);
        assert!(!register.is_complete(ALL) && register.covers(&(300..1000), ALL));
        assert!(!register.touches(&(0..300)) && register.touches(&(0..301)));
        let part = [&said[..], &[record(Reopened, 400..500)]].concat();
        let register = read(&part);
        assert!(register.covers(&(300..400), ALL) && register.covers(&(500..700), ALL));
        assert!(!register.touches(&(400..500)));
        said.push(record(Done, 0..300));
        assert!(read(&said).is_complete(ALL) && !read(&said).is_empty());
        assert!(read(&said[..1]).is_empty());
        let mut pushed = read(&said[..1]);
        pushed.push(record(Done, 300..700));
        assert_eq!(pushed, read(&said[..2]));
    }

    #[test]
    fn ranges_that_were_told_as_durable_are_lost_until_they_are_durable_again() {
        use State::{Begun, Done, Reopened};
        let read = |said: &[_]| Register::decode(&bytes(said)).unwrap();
        let mut said = vec![record(Begun, 0..400)];
        assert!(read(&said).is_empty() && read(&said).lost() == 0);
        said.push(record(Done, 0..400));
        assert!(!read(&said).is_reopened() && !read(&said).is_empty());
        assert_eq!(read(&said).lost(), header().whole.mark());
        said.push(record(Reopened, 0..400));
        assert!(read(&said).is_reopened() && !read(&said).is_empty());
        said.push(record(Done, 0..300));
        assert!(read(&said).is_reopened());
        said.push(record(Done, 300..400));
        assert!(!read(&said).is_reopened());
        let mut register = Register::new(Header { lost: header().whole.mark(), ..header() });
        assert!(register.is_marked_lost() && !register.is_empty());
        let encoded = register.header.encode();
        assert_eq!(Register::decode(&encoded).unwrap().header, register.header);
        register.header.lost = !header().whole.mark();
        assert!(!register.is_marked_lost() && !register.is_empty());
        let whole = header().whole;
        let others = [
            Whole { size_bytes: 1, ..whole },
            Whole { mtime_s: 1, ..whole },
            Whole { mtime_ns: 1, ..whole },
            Whole { source_inode: 1, ..whole },
        ];
        assert!(others.iter().all(|other| other.mark() != whole.mark()));
        assert_eq!(Whole { source_device: 9, ..whole }.mark(), whole.mark());
    }

    #[test]
    fn what_was_said_before_the_host_was_started_counts_no_more_for_it() {
        let said = |boot, at_ms, range| Record {
            said: Said { boot, at_ms },
            ..record(State::Done, range)
        };
        let mine = 7;
        let clock = |up_ms| Clock { now: Said { boot: mine, at_ms: 9000 }, up_ms };
        let counts = |first: (u64, u64), up_ms| {
            let said = [said(first.0, first.1, 0..500), said(mine, 100, 500..1000)];
            let register = Register::decode(&bytes(&said)).unwrap();
            assert!(register.is_complete(ALL));
            register.is_complete(ALL.since_start(clock(up_ms)))
        };
        // Started at 8000.
        assert!(!counts((6, 7999), 1000) && counts((6, 8000), 1000));
        assert!(counts((mine, 10), 1000), "its clock was set since");
        // A host that does not know its boot goes by the time alone.
        assert!(!counts((0, 7999), 1000) && counts((0, 8000), 1000));
        let unknown = Clock { now: Said { boot: 0, at_ms: 9000 }, up_ms: 1000 };
        assert!(unknown.is_started_since(Said { boot: 0, at_ms: 7999 }));
        // Another host's clock that is ahead, and a host that is up for longer than its clock.
        assert!(counts((6, 20_000), 1000) && counts((6, 0), 10_000));
        let again = said(mine, 1, 0..1000);
        let reopened = [said(6, 1, 0..1000), record(State::Reopened, 0..1000), again];
        let register = Register::decode(&bytes(&reopened)).unwrap();
        assert!(register.is_complete(ALL.since_start(clock(1000))), "it was read back");
    }

    #[test]
    fn ranges_of_a_source_that_changed_between_them_make_no_whole_file() {
        let of = |ctime, range| Record { state: State::Done, range, ctime, said: Said::default() };
        let mut said = vec![of((3, 0), 0..500), of((4, 0), 500..1000)];
        let register = Register::decode(&bytes(&said)).unwrap();
        assert!(register.is_complete(ALL) && register.is_complete(Counting::of((0, 0))));
        assert!(
            !register.is_complete(Counting::of((3, 0)))
                && !register.is_complete(Counting::of((4, 0)))
        );
        said.push(of((4, 0), 0..500));
        let register = Register::decode(&bytes(&said)).unwrap();
        assert!(register.is_complete(Counting::of((4, 0))), "it was compared, and said anew");
    }

    #[test]
    fn a_register_that_was_cut_or_flipped_says_no_more_than_it_did() {
        let said = [record(State::Done, 0..500), record(State::Done, 500..1000)];
        let whole = bytes(&said);
        for cut in 0..whole.len() {
            let read = Register::decode(&whole[..cut]);
            let records = cut.saturating_sub(HEADER_BYTES) / RECORD_BYTES;
            assert_eq!(read.is_some(), cut >= HEADER_BYTES, "{cut}");
            assert!(read.is_none_or(|read| read.records == said[..records]), "{cut}");
        }
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let read = Register::decode(&flipped);
            assert!(read.is_none_or(|read| !read.is_complete(ALL)), "bit {bit}");
        }
        let mut other = bytes(&said[..1]);
        let foreign = Header { number: 78, ..header() };
        other.extend_from_slice(&foreign.record(&said[1]));
        let read = Register::decode(&other).unwrap();
        assert!(!read.is_complete(ALL), "a record of another header");
    }
}
