//! Memory is registered as it is asked for: libfabric's cache of registrations stays off.
//!
//! What the cache registers may be written locally and remotely, whatever access was asked for
//! (`vrb_mr_cache_add_region` of libfabric 1.17), so that the kernel refuses the pages of a file
//! that is only read, with EFAULT. The pages stay pinned behind the owner's back, too. The way to
//! turn it off is a variable that libfabric reads at its first call (fi_mr(3)).

use core::ffi::CStr;

/// Most registrations in the cache: with none there is no cache.
const VARIABLE: &CStr = c"FI_MR_CACHE_MAX_COUNT";

/// Called by the loader before `main`, while the process has one thread: later another thread might
/// read the environment at the same time.
// SAFETY: the section holds pointers to functions of this kind (System V ABI, "Initialization and
// Termination Functions"), and this one needs nothing that `main` prepares.
#[unsafe(link_section = ".init_array")]
#[used]
static TURN_OFF: extern "C" fn() = turn_off;

/// Has the linker take this module, with its entry for the loader, wherever it is called.
pub(crate) fn keep() {
    core::hint::black_box(&raw const TURN_OFF);
}

extern "C" fn turn_off() {
    // SAFETY: both texts end with a zero, and no other thread is there. A value of the user stays.
    unsafe { libc::setenv(VARIABLE.as_ptr(), c"0".as_ptr(), 0) };
}
