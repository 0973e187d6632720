//! Fuzzes the datagrams of a probe.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haul_fuzz::transfer_bodies::datagram(data));
