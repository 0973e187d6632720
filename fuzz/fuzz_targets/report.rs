//! Fuzzes the reports of runs, as they are added up.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::transfer_bodies::report(data));
