//! Fuzzes the decoder of data streams' prefaces.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::bodies::preface(data));
