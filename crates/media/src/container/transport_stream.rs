//! MPEG transport streams: the program clock of the first program that has one.
//!
//! A packet is 188 bytes that begin with 0x47, and may carry a program clock reference in its
//! adaptation field (ISO/IEC 13818-1, 2.4.3.2 to 2.4.3.5). Discs and cameras put a time of 4 bytes
//! before each (M2TS), broadcasters 16 bytes of error correction behind.

use std::time::Duration;

use super::{
    clock::{self, Reading},
    excerpts::{EXCERPT_BYTES_MAX, Excerpts},
};

const SYNC: u8 = 0x47;
const PACKET_BYTES: usize = 188;
/// Bytes from one packet to the next, in each kind of stream.
const STRIDES: [usize; 3] = [188, 192, 204];
/// Packets that have to stand where they should, or all where there are fewer.
const PROVEN_PACKETS: usize = 8;
const PROVEN_PACKETS_MIN: usize = 3;
/// Most bytes searched for a clock reference, which comes at least every 100 ms (2.7.2): so far a
/// stream of 30 Mbit/s needs.
const LOOK_BYTES_MAX: u64 = 384 << 10;

/// Places of the packets in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grid {
    begin: u64,
    stride: usize,
}

pub fn play_time(excerpts: &mut Excerpts) -> Option<Duration> {
    let grid = grid(excerpts)?;
    // The clock of one program: those of others may show another time.
    let mut program = None;
    let (pid, _) = look(excerpts, grid, grid.begin, LOOK_BYTES_MAX, &mut program)?;
    let begin = grid.begin;
    clock::play_time(
        excerpts,
        begin,
        |excerpts, at| {
            let at = grid.at_or_behind(at);
            look(excerpts, grid, at, LOOK_BYTES_MAX, &mut Some(pid)).map(|(_, reading)| reading)
        },
        |excerpts| last(excerpts, grid, pid),
    )
}

impl Grid {
    /// The beginning of the first packet from `at` on.
    fn at_or_behind(self, at: u64) -> u64 {
        let stride = self.stride as u64;
        self.begin + at.saturating_sub(self.begin).div_ceil(stride) * stride
    }
}

/// Finds the packets, of which the first may be cut.
fn grid(excerpts: &mut Excerpts) -> Option<Grid> {
    let head = excerpts.get_up_to(0, 16 << 10)?;
    for begin in 0..STRIDES[2] {
        for stride in STRIDES {
            let mut bytes = head.iter().skip(begin).step_by(stride);
            let packets = (head.len().saturating_sub(begin)).div_ceil(stride);
            let proven = packets.min(PROVEN_PACKETS);
            if proven >= PROVEN_PACKETS_MIN && bytes.by_ref().take(proven).all(|it| *it == SYNC) {
                return Some(Grid { begin: begin as u64, stride });
            }
        }
    }
    None
}

/// The first clock reference of a program, or of any, from the packet at `at` on.
fn look(
    excerpts: &mut Excerpts,
    grid: Grid,
    at: u64,
    look_bytes: u64,
    program: &mut Option<u16>,
) -> Option<(u16, Reading)> {
    let end = at.saturating_add(look_bytes);
    let mut at = at;
    while at < end {
        let chunk = excerpts.get_up_to(at, whole_packets(grid))?;
        if let Some((offset, pid, ticks)) = references(chunk, grid, *program).next() {
            *program = Some(pid);
            return Some((pid, Reading { at: at + offset as u64, ticks }));
        }
        at += whole_packets(grid) as u64;
    }
    None
}

/// The last clock reference of the file.
fn last(excerpts: &mut Excerpts, grid: Grid, pid: u16) -> Option<Reading> {
    let step = whole_packets(grid) as u64;
    let len_bytes = excerpts.len_bytes();
    let first = len_bytes.saturating_sub(LOOK_BYTES_MAX).max(grid.begin);
    let mut end = len_bytes;
    while end > first {
        let at = grid.at_or_behind(end.saturating_sub(step).max(grid.begin));
        let chunk = excerpts.get_up_to(at, usize::try_from(end.saturating_sub(at)).ok()?)?;
        if let Some((offset, _, ticks)) = references(chunk, grid, Some(pid)).last() {
            return Some(Reading { at: at + offset as u64, ticks });
        }
        end = at.min(end - 1);
    }
    None
}

/// Bytes of as many packets as are read at once.
fn whole_packets(grid: Grid) -> usize {
    EXCERPT_BYTES_MAX / grid.stride * grid.stride
}

/// Clock references in `chunk`: offset, packet identifier and ticks.
fn references(
    chunk: &[u8],
    grid: Grid,
    program: Option<u16>,
) -> impl Iterator<Item = (usize, u16, u64)> {
    chunk.chunks(grid.stride).enumerate().filter_map(move |(number, packet)| {
        let (pid, ticks) = reference(packet)?;
        let is_meant = program.is_none_or(|program| program == pid);
        is_meant.then_some((number * grid.stride, pid, ticks))
    })
}

/// Packet identifier of a packet with a clock reference, and the reference without its part below
/// 90 kHz.
fn reference(packet: &[u8]) -> Option<(u16, u64)> {
    let packet = packet.get(..PACKET_BYTES)?;
    let is_damaged = packet[1] & 0x80 != 0;
    let has_adaptation_field = packet[3] & 0x20 != 0;
    // Its length counts what follows it: the flags, and 6 bytes of a clock reference.
    let has_room = (7..=183).contains(&packet[4]);
    let has_reference = packet[5] & 0x10 != 0;
    if packet[0] != SYNC || is_damaged || !has_adaptation_field || !has_room || !has_reference {
        return None;
    }
    let pid = u16::from_be_bytes([packet[1], packet[2]]) & 0x1fff;
    let high = u32::from_be_bytes([packet[6], packet[7], packet[8], packet[9]]);
    Some((pid, u64::from(high) << 1 | u64::from(packet[10] >> 7)))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::container::{excerpts::tests::Counted, play_time_of};

    const VIDEO: u16 = 0x100;

    fn packet(pid: u16, ticks: Option<u64>) -> [u8; PACKET_BYTES] {
        let mut packet = [0xff; PACKET_BYTES];
        packet[0] = SYNC;
        packet[1..3].copy_from_slice(&pid.to_be_bytes());
        packet[3] = 0x10;
        if let Some(ticks) = ticks {
            packet[3] = 0x30;
            packet[4] = 7;
            packet[5] = 0x10;
            packet[6..10].copy_from_slice(&u32::try_from(ticks >> 1).unwrap().to_be_bytes());
            packet[10] = ((ticks & 1) as u8 * 0x80) | 0x7e;
            packet[11] = 0;
        }
        packet
    }

    /// A clock that begins at `first`, read in each 20th packet, and 100 packets a second.
    pub fn stream(first: u64, seconds: u64) -> Vec<u8> {
        let packets = (0..seconds * 100).map(|number| {
            let ticks = (first + number * 900) % (1 << 33);
            // Another program with another time.
            let other = (number % 20 == 7).then_some((ticks + (1 << 32)) % (1 << 33));
            let pid = if other.is_some() { 0x200 } else { VIDEO };
            packet(pid, (number % 20 == 0).then_some(ticks).or(other))
        });
        packets.flatten().collect()
    }

    fn seconds(bytes: &[u8]) -> Option<u64> {
        let counted = Counted::new(bytes);
        let time = play_time_of(&counted, bytes.len() as u64);
        counted.assert_bounded();
        time.map(|time| time.as_secs_f64().round() as u64)
    }

    fn strided(stream: &[u8], before: usize, behind: usize) -> Vec<u8> {
        let packets = stream.chunks(PACKET_BYTES);
        let strided =
            packets.map(|packet| [&vec![9; before][..], packet, &vec![8; behind]].concat());
        strided.flatten().collect()
    }

    #[test]
    fn the_first_programs_clock_tells_the_time() {
        assert_eq!(seconds(&stream(0, 60)), Some(60));
        assert_eq!(seconds(&stream((1 << 33) - 5 * 90_000, 60)), Some(60));
        assert_eq!(seconds(&stream(0, 600)), Some(600));
    }

    #[test]
    fn packets_of_discs_and_of_broadcasters_are_found_and_cut_ones() {
        let stream = stream(77, 60);
        assert_eq!(seconds(&strided(&stream, 4, 0)), Some(60));
        assert_eq!(seconds(&strided(&stream, 0, 16)), Some(60));
        assert_eq!(seconds(&stream[100..]), Some(60));
        assert_eq!(seconds(&strided(&stream, 4, 0)[190..]), Some(60));
    }

    #[test]
    fn streams_that_were_joined_are_as_long_as_both() {
        let joined = [stream(5_000 * 90_000, 60), stream(40 * 90_000, 60)].concat();
        let time = seconds(&joined).unwrap();
        assert!((118..=122).contains(&time), "{time}");
        let joined = [stream(0, 60), stream(80_000 * 90_000, 60)].concat();
        let time = seconds(&joined).unwrap();
        assert!((118..=122).contains(&time), "{time}");
    }

    #[test]
    fn without_a_clock_nothing_is_told() {
        assert_eq!(seconds(&packet(VIDEO, None).repeat(1_000)), None);
        assert_eq!(seconds(&packet(VIDEO, Some(5)).repeat(1_000)), None);
        assert_eq!(seconds(&packet(VIDEO, Some(5)).repeat(2)), None);
        assert_eq!(seconds(&[SYNC; 100_000]), None);
        let empty = Counted::new(&[]);
        assert_eq!(play_time_of(&empty, 0), None);
        assert_eq!(play_time_of(&empty, u64::MAX), None);
        empty.assert_bounded();
        // Clocks only at the beginning, of a file of zeros.
        let begun = stream(0, 60);
        let counted = Counted::new(&begun);
        assert_eq!(play_time_of(&counted, 1 << 60), None);
        counted.assert_bounded();
    }

    #[test]
    fn adaptation_fields_that_lie_are_passed_over() {
        for (at, value) in [(0, 0x48), (1, 0x81), (3, 0x10), (4, 6), (4, 184), (5, 0)] {
            let mut bytes = packet(VIDEO, Some(5));
            assert!(reference(&bytes).is_some());
            bytes[at] = value;
            assert_eq!(reference(&bytes), None, "{at}");
        }
        assert_eq!(reference(&packet(VIDEO, Some(5))[..187]), None);
        let last = (1 << 33) - 1;
        assert_eq!(reference(&packet(VIDEO, Some(last))), Some((VIDEO, last)));
    }
}
