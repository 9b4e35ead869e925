//! Datagrams and messages of any peer, at both sides of coded datagrams.
#![no_main]

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use underpass_cla::Refusal;
use underpass_coded::parity::LossEstimate;
use underpass_coded::{Message, Protection, Receiver, Sender};

const ROOM: u64 = 1 << 16;

// Pieces behind their lengths of one octet each: messages if the first bit of the length
// is set, otherwise datagrams.
fuzz_target!(|data: &[u8]| {
    let mut now = Instant::now();
    let mut receiver = Receiver::new(ROOM);
    let mut sender = Sender::new(Protection::Always, LossEstimate::default());
    sender.opened(1, ROOM);
    sender.set_datagram_bytes(200);
    sender.push([Bytes::from_static(&[7; 3_000])]);
    let admit = &mut |length: u64| match length % 5 {
        0 => Err(Refusal::NoResources),
        _ => Ok(()),
    };
    let mut left = data;
    while let Some((&length, rest)) = left.split_first() {
        let (piece, rest) = rest.split_at(rest.len().min((length & 0x7f).into()));
        left = rest;
        now += Duration::from_millis(5);
        while sender.poll_datagram(now).is_some() {}
        while sender.poll_message().is_some() {}
        let done = if length < 0x80 {
            receiver.on_datagram(now, piece, admit).is_ok()
        } else {
            hear(&mut receiver, &mut sender, now, piece)
        };
        if !done || receiver.handle_timeout(now, admit).is_err() {
            return;
        }
        while let Some(arrived) = receiver.poll_arrived() {
            receiver.judge(arrived.bundle, Ok(()));
        }
        while receiver.poll_message().is_some() {}
        assert!(receiver.memory_bytes() <= 2 * ROOM);
    }
});

fn hear(receiver: &mut Receiver, sender: &mut Sender, now: Instant, piece: &[u8]) -> bool {
    let heard = match Message::decode(&mut BytesMut::from(piece)) {
        Ok(Some(Message::Sent {
            block,
            symbols,
            datagrams,
        })) => receiver.on_sent(now, block, symbols, datagrams),
        Ok(Some(Message::Wanted {
            block,
            datagrams,
            count,
            missing,
        })) => sender.wanted(block, datagrams, count, &missing),
        Ok(Some(Message::Taken { bundle } | Message::Refused { bundle, .. })) => {
            sender.ended(bundle).map(|_| ())
        }
        Ok(Some(Message::Losses(losses))) => sender.observe(losses),
        Ok(Some(Message::Open { .. }) | None) => Ok(()),
        Err(_) => return false,
    };
    heard.is_ok()
}
