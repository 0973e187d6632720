//! Fuzzes the reader of packs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::bodies::pack(data));
