//! What origins and clients send on a stream whose flows are watched.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| underpass_edge::flows::fuzz(data));
