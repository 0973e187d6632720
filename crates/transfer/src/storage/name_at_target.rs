//! Name that an offered file has at the target.

use crate::storage::root::join;
use haul_protocol::message::{Fault, FaultCode, Side};

/// Name below the root of what is offered.
pub fn final_name(base: &[u8], rename: Option<&[u8]>, offered: &[u8]) -> Vec<u8> {
    match rename {
        None => join(base, offered),
        Some(new) => match offered.iter().position(|&byte| byte == b'/') {
            Some(at) => join(&join(base, new), &offered[at + 1..]),
            None => join(base, new),
        },
    }
}

pub(super) fn name_refused(name: &[u8], why: &str) -> Fault {
    Fault::new(FaultCode::NameRefused, Side::Target, "the name is refused")
        .at(name)
        .needs("a name below the target's root, without `.` and `..`")
        .found(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_name_takes_the_place_of_the_first_component() {
        for (base, rename, offered, expected) in [
            (&b""[..], None, &b"a/b"[..], &b"a/b"[..]),
            (b"to", None, b"a/b", b"to/a/b"),
            (b"to", Some(&b"new"[..]), b"a", b"to/new"),
            (b"to", Some(b"new"), b"a/b/c", b"to/new/b/c"),
            (b"", Some(b"new"), b"a/b", b"new/b"),
        ] {
            assert_eq!(final_name(base, rename, offered), expected);
        }
        let fault = name_refused(b"../x", "it leads out");
        assert_eq!((fault.code, fault.side), (FaultCode::NameRefused, Side::Target));
        assert_eq!((&*fault.path, &*fault.found), (&b"../x"[..], "it leads out"));
    }
}
