//! Faults of entries that a walk comes to and that cannot be moved.

use crate::storage::source::changed_fault;
use haul_protocol::{
    limits::NAME_BYTES_MAX,
    message::{Fault, FaultCode, Side},
};

/// Fault of a name that no receiver takes, which would end the session for all that come after it.
pub fn too_long(name: &[u8], why: &str) -> Fault {
    Fault::new(FaultCode::NameRefused, Side::Source, "cannot be sent under its name")
        .at(&name[..name.len().min(NAME_BYTES_MAX)])
        .needs("a path of at most 4095 bytes, from the source as it is named")
        .found(why)
        .hint("move a directory nearer to it by a command of its own")
}

/// The fault of an entry of a tree that has no bytes of its own, which is no error.
pub fn unsupported(name: &[u8]) -> Fault {
    Fault::new(FaultCode::KindUnsupported, Side::Source, "is not moved")
        .at(name)
        .needs("a regular file, a directory or a symbolic link")
        .found("a FIFO, socket or device")
        .hint("make it anew on the other side, where it is of use")
}

/// The fault of a name of a plan under which something else is now that has no bytes of its own.
pub fn not_as_planned(name: &[u8]) -> Fault {
    let found = "is of another kind than when it was planned".to_owned();
    changed_fault(name, found).hint("plan what is there now, by `haul plan --again`")
}

/// Fault of a source that the user named and that is not moved, which is an error.
pub fn not_moved(name: &[u8]) -> Fault {
    Fault { code: FaultCode::NameRefused, ..unsupported(name) }
}
