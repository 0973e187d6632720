//! Fuzzes the decoder of span trailers.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::bodies::span_trailer(data));
