//! Bytes from origins and clients on a stream whose flows are observed.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| underpass_edge::flows::fuzz(data));
