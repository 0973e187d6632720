//! Fuzzes the reading of a manifest's lines.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::transfer_bodies::manifest_line(data));
