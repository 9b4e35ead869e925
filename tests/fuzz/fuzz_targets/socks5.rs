//! A SOCKS5 handshake over the bytes of any client.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| underpass_edge::socks5::fuzz(data));
