//! Fuzzes the sender of ranges against a hostile receiver.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::counted(
    haul_fuzz::bodies::range_sender,
    data
));
