//! Fuzzes the receiver against a hostile sender.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::counted(haul_fuzz::bodies::receiver, data));
