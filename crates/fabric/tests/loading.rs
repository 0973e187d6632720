//! The library's loading by the call for it alone, in a process of its own.
#![cfg(feature = "libfabric")]

fn is_mapped() -> bool {
    std::fs::read_to_string("/proc/self/maps").expect("of /proc").contains("/libfabric.so")
}

#[test]
fn the_library_is_there_once_it_was_asked_for_and_before_a_provider_is_opened() {
    assert!(!is_mapped(), "a program that asks for nothing has it");
    haul_fabric::load().expect("built with its headers, so that it is here");
    assert!(is_mapped());
}
