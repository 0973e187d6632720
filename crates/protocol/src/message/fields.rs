//! Fields of an encoded protobuf message, one after the other, before anything is made of them.
//!
//! Only as much of the encoding is understood as it takes to count items
//! (<https://protobuf.dev/programming-guides/encoding/>). What is no protobuf ends the list: the decoder
//! says what is wrong with it.

/// Whether a tag begins or ends a group. No message has one, but a decoder passes over it.
pub fn is_group(tag: u64) -> bool {
    matches!(tag & 7, 3 | 4)
}

/// Iterates over the fields of `message`: each one's tag, and its bytes where it has a length. What
/// is in a group stands beside the others.
pub fn of(message: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut rest = message;
    core::iter::from_fn(move || {
        let tag = varint(&mut rest)?;
        let len = match tag & 7 {
            0 => {
                varint(&mut rest)?;
                return Some((tag, &message[..0]));
            }
            3 | 4 => return Some((tag, &message[..0])),
            1 => 8,
            2 => usize::try_from(varint(&mut rest)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (field, behind) = rest.split_at_checked(len)?;
        rest = behind;
        Some((tag, field))
    })
}

/// Takes a number off the front of `bytes`: seven bits in each byte, the lowest first.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = bytes.split_first()?;
        *bytes = behind;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn fields_of_each_encoding_are_found_and_rubbish_ends_them() {
        // 1: 150, 2: "ab", 3: fixed64, 4: fixed32, then a length beyond the end.
        let bytes = [
            &[0x08, 0x96, 0x01, 0x12, 2, b'a', b'b', 0x19][..],
            &[0; 8],
            &[0x25],
            &[1; 4],
            &[0x12, 9],
        ];
        let bytes = bytes.concat();
        let found: Vec<(u64, usize)> = of(&bytes).map(|(tag, field)| (tag, field.len())).collect();
        assert_eq!(found, [(0x08, 0), (0x12, 2), (0x19, 8), (0x25, 4)]);
        for rubbish in [&[0xff; 20][..], &[0x0e], &[0x12], &[]] {
            assert_eq!(of(rubbish).count(), 0, "{rubbish:?}");
        }
        // A group hides nothing of what is behind its begin.
        let groups: Vec<bool> =
            of(&[0x0b, 0x12, 1, b'a', 0x0c]).map(|(tag, _)| is_group(tag)).collect();
        assert_eq!(groups, [true, false, true]);
    }
}
