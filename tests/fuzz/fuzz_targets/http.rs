//! The fields of any HTTP head, as the forward proxy treats them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| underpass_edge::http::fuzz(data));
