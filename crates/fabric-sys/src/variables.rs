//! Variables that libfabric reads at its first call, set to what haul needs.
//!
//! Each stands for something that no hint of fi_getinfo(3) can say. A value that the user has set
//! stays.

use core::ffi::CStr;

/// Names and values.
const VARIABLES: [(&CStr, &CStr); 2] = [
    // Most registrations in the cache of registrations (fi_mr(3)): with none there is no cache, and
    // memory is registered as it is asked for. What the cache registers may be written locally and
    // remotely, whatever access was asked for (`vrb_mr_cache_add_region` of libfabric 1.17), so
    // that the kernel refuses the pages of a file that is only read, with EFAULT. The pages stay
    // pinned behind the owner's back, too.
    (c"FI_MR_CACHE_MAX_COUNT", c"0"),
    // Bytes of each of the 1024 buffers that the provider tcp makes at once for each domain, from
    // version 2 on (`xnet_buf_size`; fi_tcp(7)). It keeps messages in them that nobody has posted
    // a buffer for, which haul never lets happen; with the usual 16 KiB they take 17 MiB.
    (c"FI_TCP_MAX_RX_SIZE", c"512"),
];

/// Called by the loader before `main`, while the process has one thread: later another thread might
/// read the environment at the same time.
// SAFETY: the section holds pointers to functions of this kind (System V ABI, "Initialization and
// Termination Functions"), and this one needs nothing that `main` prepares.
#[unsafe(link_section = ".init_array")]
#[used]
static SET: extern "C" fn() = set;

/// Has the linker take this module, with its entry for the loader, wherever it is called.
pub(crate) fn keep() {
    core::hint::black_box(&raw const SET);
}

extern "C" fn set() {
    for (name, value) in VARIABLES {
        // SAFETY: both texts end with a zero, and no other thread is there. A value of the user
        // stays.
        unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 0) };
    }
}
