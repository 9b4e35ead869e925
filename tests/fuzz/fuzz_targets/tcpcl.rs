//! A TCPCLv4 session over the bytes of any peer.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| underpass_tcpcl::exercise(data));
