//! Signals stay this program's: handlers that a library sets while it is loaded are taken away.
//!
//! libfabric of a distribution comes with libpsm2, which handles SIGINT, SIGTERM and four more from
//! its loading on, whatever the program did with them before, and ends the process with a file of a
//! backtrace. It takes 0.2 s to load; a second thread sets the signals right meanwhile.

use core::{mem::MaybeUninit, ptr};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// Signals that libpsm2 takes.
const TAKEN: [libc::c_int; 6] =
    [libc::SIGINT, libc::SIGILL, libc::SIGABRT, libc::SIGBUS, libc::SIGSEGV, libc::SIGTERM];
/// Longest time for which a handler of the library stands.
const SLICE: Duration = Duration::from_millis(1);

type Actions = [libc::sigaction; TAKEN.len()];

/// Loads what sets handlers, and keeps the program's own.
pub(crate) fn kept<T>(load: impl FnOnce() -> T) -> T {
    // Another thread may open the first window on a file meanwhile.
    haul_sys::window::set_handler();
    let noted = noted();
    let is_loaded = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_loaded.load(Ordering::Acquire) {
                restore(&noted);
                thread::sleep(SLICE);
            }
        });
        let loaded = load();
        is_loaded.store(true, Ordering::Release);
        restore(&noted);
        loaded
    })
}

fn noted() -> Actions {
    TAKEN.map(|signal| {
        let mut action = MaybeUninit::zeroed();
        // SAFETY: the signal has an action, which goes to the place.
        unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
        // SAFETY: it was written, or is zeros: the default action.
        unsafe { action.assume_init() }
    })
}

fn restore(noted: &Actions) {
    for (signal, action) in TAKEN.into_iter().zip(noted) {
        // SAFETY: the action is one that was in force before, with a handler of this program.
        unsafe { libc::sigaction(signal, action, ptr::null_mut()) };
    }
}
