//! A peer's messages on the control stream of a QUIC session.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use underpass_quic::wire::Message;

fuzz_target!(|data: &[u8]| {
    let mut unread = BytesMut::from(data);
    while let Ok(Some(message)) = Message::decode(&mut unread) {
        let mut again = BytesMut::new();
        message.encode(&mut again);
        assert_eq!(Message::decode(&mut again), Ok(Some(message)));
        assert!(again.is_empty());
    }
});
