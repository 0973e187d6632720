//! Fuzzes the lines of runs' reports.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::transfer_bodies::report_line(data));
