//! Fuzzes the receiver of ranges against a hostile sender.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::counted(
    haul_fuzz::bodies::range_receiver,
    data
));
