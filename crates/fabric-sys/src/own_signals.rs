//! Signals stay this program's: handlers that libraries set before `main` are taken away.
//!
//! libfabric of a distribution comes with libpsm2, which handles SIGINT, SIGTERM and four more as
//! soon as it is loaded, whatever the parent ignored (a shell's `&` ignores SIGINT), and ends the
//! process with a file of a backtrace. So what each signal did is noted before any library's own
//! beginning, and set again behind all of them.

use core::{cell::UnsafeCell, mem::MaybeUninit, ptr};

/// Signals that libpsm2 takes.
const TAKEN: [libc::c_int; 6] =
    [libc::SIGINT, libc::SIGILL, libc::SIGABRT, libc::SIGBUS, libc::SIGSEGV, libc::SIGTERM];

/// Actions as they were before any library's own beginning.
struct Noted(UnsafeCell<MaybeUninit<[libc::sigaction; TAKEN.len()]>>);

// SAFETY: only the two functions below use it, one after the other, in the process's one thread.
unsafe impl Sync for Noted {}

static NOTED: Noted = Noted(UnsafeCell::new(MaybeUninit::zeroed()));

/// Called by the loader before any library begins.
// SAFETY: the section holds pointers to functions of this kind, of the program alone (System V ABI,
// "Initialization and Termination Functions"); this one needs nothing that others prepare.
#[unsafe(link_section = ".preinit_array")]
#[used]
static NOTE: extern "C" fn() = note;

/// Called by the loader when all libraries have begun, before `main`.
// SAFETY: as above.
#[unsafe(link_section = ".init_array")]
#[used]
static RESTORE: extern "C" fn() = restore;

/// Has the linker take this module, with its entries for the loader, wherever it is called.
pub(crate) fn keep() {
    core::hint::black_box((&raw const NOTE, &raw const RESTORE));
}

fn noted() -> *mut libc::sigaction {
    NOTED.0.get().cast()
}

extern "C" fn note() {
    for (at, signal) in TAKEN.into_iter().enumerate() {
        let place = noted().wrapping_add(at);
        // SAFETY: the place is one of the array's, and no other thread is there.
        unsafe { libc::sigaction(signal, ptr::null(), place) };
    }
}

extern "C" fn restore() {
    for (at, signal) in TAKEN.into_iter().enumerate() {
        let place = noted().wrapping_add(at);
        // SAFETY: the place is one of the array's, which `note` has written; where it was not
        // called, zeros stand for the default action.
        unsafe { libc::sigaction(signal, place, ptr::null_mut()) };
    }
}
