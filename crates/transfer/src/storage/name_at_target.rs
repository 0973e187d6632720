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
