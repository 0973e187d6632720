//! Check of the names that a peer may ask for.
//!
//! They are relative, without `.` and `..`, and within the file system's lengths.

use crate::limits::{COMPONENT_BYTES_MAX, NAME_BYTES_MAX};

/// Checks a name that a peer asks for, and says in words why it is refused.
///
/// # Errors
/// Says which rule the name breaks.
pub fn check_relative_name(name: &[u8]) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("the name is empty");
    }
    if name.len() > NAME_BYTES_MAX {
        return Err("the name is longer than 4095 bytes");
    }
    if name[0] == b'/' {
        return Err("the name is absolute");
    }
    if name.contains(&0) {
        return Err("the name holds a zero byte");
    }
    for component in name.split(|&byte| byte == b'/') {
        match component {
            b"" => return Err("the name has an empty component"),
            b"." | b".." => return Err("the name has a `.` or `..` component"),
            long if long.len() > COMPONENT_BYTES_MAX => {
                return Err("a component of the name is longer than 255 bytes");
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    /// A name of this many bytes, of components of at most 200 bytes.
    fn name_of(len_bytes: usize) -> vec::Vec<u8> {
        let is_slash = |at: &usize| at % 200 == 199;
        (0..len_bytes).map(|at| if is_slash(&at) { b'/' } else { b'x' }).collect()
    }

    #[test]
    fn a_name_is_as_long_as_the_limit_says_and_no_longer() {
        assert_eq!(check_relative_name(&name_of(NAME_BYTES_MAX)), Ok(()));
        let longer = check_relative_name(&name_of(NAME_BYTES_MAX + 1)).unwrap_err();
        assert_eq!(longer, "the name is longer than 4095 bytes");
    }

    #[test]
    fn names_that_could_leave_the_root_are_refused() {
        for bad in [
            &b""[..],
            b"/etc/passwd",
            b"..",
            b"a/../b",
            b"./a",
            b"a//b",
            b"a/",
            b"a\0b",
            &vec![b'x'; 256],
            &vec![b'x'; 5000],
        ] {
            assert!(check_relative_name(bad).is_err(), "{bad:?}");
        }
        for good in [&b"a"[..], b"a/b", b"...", b"a\nb", b"\xff\xfe", &vec![b'x'; 255]] {
            assert_eq!(check_relative_name(good), Ok(()), "{good:?}");
        }
    }
}
