//! The ranges of a file that a request asks for (RFC 9110, 14.2).
//!
//! Where the RFC leaves a choice, it is nginx's, as players and caches were tried with it: a range
//! that makes no sense is 416 and not the whole file, ranges stay in their order and may overlap,
//! and where they add up to more than the file, the file is sent.

use std::ops::Range;

/// Most ranges that are answered, more than any player asks for. Beyond it the whole file is the
/// answer.
pub const RANGES_MAX: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// No range was asked for, or the file is the better answer.
    Whole,
    /// Ranges to send, at least one; none is empty, and each ends within the file.
    Parts(Vec<Range<u64>>),
    Unsatisfiable,
}

/// Selects the part of `len_bytes` that the value of a `Range` field asks for. Another unit than
/// bytes is ignored, as the RFC wants.
#[must_use]
pub fn select(value: &[u8], len_bytes: u64) -> Selection {
    let Some((unit, set)) = value.split_at_checked(6) else { return Selection::Whole };
    if !unit.eq_ignore_ascii_case(b"bytes=") || set.is_empty() {
        return Selection::Whole;
    }
    let (mut parts, mut sum_bytes) = (Vec::new(), 0_u64);
    for one in set.split(|&byte| byte == b',') {
        let Some(range) = resolve(one, len_bytes) else { return Selection::Unsatisfiable };
        if range.start < range.end {
            sum_bytes = sum_bytes.saturating_add(range.end - range.start);
            parts.push(range);
            if parts.len() > RANGES_MAX {
                return Selection::Whole;
            }
        } else if range.start == 0 {
            return Selection::Whole;
        }
    }
    match parts.len() {
        0 => Selection::Unsatisfiable,
        _ if sum_bytes > len_bytes => Selection::Whole,
        _ => Selection::Parts(parts),
    }
}

/// Range that `2-5`, `2-` or `-5` asks for, where it lies in the file; empty where it is behind its
/// end. `None` where it is none of these.
fn resolve(one: &[u8], len_bytes: u64) -> Option<Range<u64>> {
    let at = one.iter().position(|&byte| byte == b'-')?;
    // A blank is taken before and behind numbers, and no other white space.
    let (first, last) = (trimmed(&one[..at]), trimmed(&one[at + 1..]));
    if first.is_empty() {
        // `5 -` is a number with a blank; ` -5` is a suffix, and `- 5` is nothing.
        if one[..at].iter().any(|&byte| byte != b' ') || one.get(at + 1) == Some(&b' ') {
            return None;
        }
        let suffix_bytes = number(last)?;
        return Some(len_bytes.saturating_sub(suffix_bytes)..len_bytes);
    }
    let start = number(first)?;
    let end = match last {
        b"" => len_bytes,
        last => number(last)?.saturating_add(1).min(len_bytes),
    };
    Some(start..end)
}

fn trimmed(mut text: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] | [rest @ .., b' '] = text {
        text = rest;
    }
    text
}

/// Number of digits only, and no more than a file can have (off_t).
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (number <= i64::MAX as u64).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(ranges: &[(u64, u64)]) -> Selection {
        Selection::Parts(ranges.iter().map(|&(start, end)| start..end).collect())
    }

    #[test]
    fn the_forms_of_the_rfc_are_found_in_a_file_of_ten() {
        for (value, expected) in [
            ("bytes=0-4", parts(&[(0, 5)])),
            ("bytes=0-0", parts(&[(0, 1)])),
            ("bytes=9-", parts(&[(9, 10)])),
            ("bytes=-3", parts(&[(7, 10)])),
            ("bytes=-300", parts(&[(0, 10)])),
            ("bytes=4-100", parts(&[(4, 10)])),
            ("BYTES=4-5", parts(&[(4, 5 + 1)])),
            ("bytes= 1 - 2 , -1", parts(&[(1, 3), (9, 10)])),
            ("bytes=5-6,0-1", parts(&[(5, 7), (0, 2)])),
            ("bytes=0-4,10-,20-30", parts(&[(0, 5)])),
        ] {
            assert_eq!(select(value.as_bytes(), 10), expected, "{value}");
        }
    }

    #[test]
    fn what_cannot_be_is_told_and_what_is_no_range_is_ignored() {
        for value in [
            "bytes=10-",
            "bytes=10-20",
            "bytes=-0",
            "bytes=5-3",
            "bytes=a-b",
            "bytes=1-b",
            "bytes=-",
            "bytes=1",
            "bytes=1-2,",
            "bytes=,1-2",
            "bytes=- 3",
            "bytes=0-1,x",
            "bytes=1-9223372036854775808",
            "bytes=\t1-2",
            "bytes=+1-2",
            "bytes=1--2",
        ] {
            assert_eq!(select(value.as_bytes(), 10), Selection::Unsatisfiable, "{value}");
        }
        for value in ["", "bytes=", "bytes", "items=0-4", "bytes 0-4", "bytes=0-8,0-8"] {
            assert_eq!(select(value.as_bytes(), 10), Selection::Whole, "{value}");
        }
        for value in ["bytes=0-0", "bytes=0-", "bytes=-5"] {
            assert_eq!(select(value.as_bytes(), 0), Selection::Whole, "{value} of nothing");
        }
    }

    #[test]
    fn more_ranges_than_anybody_needs_give_the_whole_file() {
        let many = |count: usize| format!("bytes={}", vec!["1-1"; count].join(","));
        let len_bytes = 1 << 20;
        assert!(matches!(select(many(RANGES_MAX).as_bytes(), len_bytes), Selection::Parts(_)));
        assert_eq!(select(many(RANGES_MAX + 1).as_bytes(), len_bytes), Selection::Whole);
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_asked_parts_lie_within_the_file(
            value in "bytes=[-0-9 ,a]{0,20}", len_bytes in 0_u64..40,
        ) {
            if let Selection::Parts(ranges) = select(value.as_bytes(), len_bytes) {
                for range in ranges {
                    proptest::prop_assert!(range.start < range.end && range.end <= len_bytes);
                }
            }
        }
    }
}
