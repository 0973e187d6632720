//! Fuzzes the decoder of frame headers.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::bodies::frame_header(data));
