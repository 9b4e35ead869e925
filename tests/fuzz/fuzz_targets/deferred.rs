//! Messages about deferred requests: any payload is parsed or refused, and a parsed one
//! is encoded as it was.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use underpass_deferred::wire::Message;

fuzz_target!(|data: &[u8]| {
    let raw = Bytes::copy_from_slice(data);
    if let Ok(message) = Message::decode(raw.clone()) {
        assert_eq!(message.encode(), raw);
    }
});
