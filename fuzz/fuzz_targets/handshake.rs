//! Fuzzes both sides of the handshake.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::bodies::handshake(data));
