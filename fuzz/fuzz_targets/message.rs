//! Fuzzes the decoder of control messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::bodies::message(data));
