//! A window on a file that is opened while the library is loaded, in a process of its own.
#![cfg(feature = "libfabric")]

use haul_fabric_sys::load;
use haul_sys::Window;
use std::{io, thread};

fn is_mapped() -> bool {
    std::fs::read_to_string("/proc/self/maps").expect("of /proc").contains("/libfabric.so")
}

/// Loading sets the signals back to what they were; the windows' handler is among these.
#[test]
fn a_file_that_is_truncated_under_a_window_opened_meanwhile_is_an_error_and_no_crash() {
    let file = tempfile::tempfile().expect("a file");
    file.set_len(1 << 16).expect("its length");
    let loading = thread::spawn(load);
    while !is_mapped() && !loading.is_finished() {
        thread::yield_now();
    }
    let window = Window::open(&file, 0, 1 << 16).expect("a window");
    loading.join().expect("no panic").expect("built with its headers, so that it is here");
    file.set_len(0).expect("its length");
    let seen = window.see(0..1 << 16, |bytes| assert!(bytes.iter().all(|byte| *byte == 0)));
    assert_eq!(seen.expect_err("its pages are gone").kind(), io::ErrorKind::UnexpectedEof);
}
