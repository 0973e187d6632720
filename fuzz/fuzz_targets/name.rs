//! Fuzzes the check of names.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::bodies::name(data));
