//! Fuzzes the reading of registers of ranges.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::transfer_bodies::register(data));
