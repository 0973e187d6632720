//! The library's loading, in a process of its own.
#![cfg(feature = "libfabric")]

use haul_fabric_sys::{EndpointKind, Info, load};

fn is_mapped() -> bool {
    std::fs::read_to_string("/proc/self/maps").expect("of /proc").contains("/libfabric.so")
}

/// Signals that a set of /proc/self/status holds, by their numbers from 1 on.
fn signals(set: &str) -> Vec<u32> {
    let status = std::fs::read_to_string("/proc/self/status").expect("of /proc");
    let line = status.lines().find_map(|line| line.strip_prefix(set)).expect("of /proc");
    let set = u64::from_str_radix(line.trim(), 16).expect("of /proc");
    (1..=64).filter(|signal| set >> (signal - 1) & 1 == 1).collect()
}

/// libpsm2, which libfabric brings with it, was seen to take six signals and never give them back.
#[test]
fn the_library_comes_at_its_first_use_and_takes_no_signal() {
    assert!(!is_mapped(), "a program that asks for nothing has it");
    let (caught, ignored) = (signals("SigCgt:"), signals("SigIgn:"));
    load().expect("built with its headers, so that it is here");
    assert!(is_mapped());
    assert_eq!((signals("SigCgt:"), signals("SigIgn:")), (caught, ignored));
    assert_eq!(load(), Ok(()));
    Info::find("tcp", EndpointKind::Connected, Some("127.0.0.1")).expect("an offer");
}
