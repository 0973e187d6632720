//! The library itself, loaded at its first use: a program without RDMA pays nothing for it.
//!
//! Debian's libfabric brings libpsm2, which measures the processor's clock for 0.2 s while it is
//! loaded, whoever loads it (Debian 12; strace(1) shows 900 sleeps). So it is no part of the
//! program, and a program that was built with it also starts where it is missing. All other calls
//! go by tables that the library's objects hold.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::{
    bindings::{fi_fabric_attr, fi_info, fid_fabric},
    own_signals, variables,
};

/// Name that the loader looks for; versions 1 and 2 of libfabric have it (fabric(7)).
const NAME: &CStr = c"libfabric.so.1";

type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const fi_info,
    *mut *mut fi_info,
) -> c_int;
type FreeInfo = unsafe extern "C" fn(*mut fi_info);
type DupInfo = unsafe extern "C" fn(*const fi_info) -> *mut fi_info;
type Fabric = unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int;
type StrError = unsafe extern "C" fn(c_int) -> *const c_char;

/// Functions that are found by name, of the versions whose structures the bindings hold: a later
/// library keeps them beside its own.
#[derive(Debug)]
pub(crate) struct Library {
    pub getinfo: GetInfo,
    pub freeinfo: FreeInfo,
    pub dupinfo: DupInfo,
    pub fabric: Fabric,
    pub strerror: StrError,
}

/// The loader's words where the library is not there, or lacks a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoLibrary(pub String);

static LIBRARY: OnceLock<Result<Library, NoLibrary>> = OnceLock::new();

/// Loads the library, once for the process.
///
/// # Errors
/// Where it is not there, or lacks a function.
pub fn load() -> Result<(), NoLibrary> {
    library().map(drop).map_err(Clone::clone)
}

/// The library, loaded where it is not yet.
pub(crate) fn library() -> Result<&'static Library, &'static NoLibrary> {
    variables::keep();
    LIBRARY.get_or_init(|| own_signals::kept(open)).as_ref()
}

fn open() -> Result<Library, NoLibrary> {
    // SAFETY: the name ends with a zero. What the library does as it is loaded is its own affair,
    // as with a library that is linked.
    let handle = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW) };
    if handle.is_null() {
        return Err(last_error());
    }
    let find = |name: &CStr, version: &CStr| {
        // SAFETY: the handle is open, and is never closed; both texts end with a zero.
        let found = unsafe { libc::dlvsym(handle, name.as_ptr(), version.as_ptr()) };
        if found.is_null() { Err(last_error()) } else { Ok(found) }
    };
    let (getinfo, freeinfo, dupinfo, fabric, strerror) = (
        find(c"fi_getinfo", c"FABRIC_1.3")?,
        find(c"fi_freeinfo", c"FABRIC_1.3")?,
        find(c"fi_dupinfo", c"FABRIC_1.3")?,
        find(c"fi_fabric", c"FABRIC_1.1")?,
        find(c"fi_strerror", c"FABRIC_1.0")?,
    );
    Ok(Library {
        // SAFETY: functions of this name and version have these arguments (fabric.h), and the
        // library is never unloaded.
        getinfo: unsafe { core::mem::transmute::<*mut c_void, GetInfo>(getinfo) },
        // SAFETY: as above.
        freeinfo: unsafe { core::mem::transmute::<*mut c_void, FreeInfo>(freeinfo) },
        // SAFETY: as above.
        dupinfo: unsafe { core::mem::transmute::<*mut c_void, DupInfo>(dupinfo) },
        // SAFETY: as above.
        fabric: unsafe { core::mem::transmute::<*mut c_void, Fabric>(fabric) },
        // SAFETY: as above.
        strerror: unsafe { core::mem::transmute::<*mut c_void, StrError>(strerror) },
    })
}

/// The loader's last failure in this thread.
fn last_error() -> NoLibrary {
    // SAFETY: takes nothing; the text stays until this thread's next call of the loader.
    let words = unsafe { libc::dlerror() };
    if words.is_null() {
        return NoLibrary("no reason".to_owned());
    }
    // SAFETY: it is not null and ends with a zero.
    NoLibrary(unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned())
}
