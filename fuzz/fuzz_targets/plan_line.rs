//! Fuzzes the lines of plans.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::transfer_bodies::plan_line(data));
