//! A peer that sends any frames it likes.

use std::time::Instant;

use bytes::Bytes;
use proptest::prelude::*;
use underpass_cla::Class;

use super::super::Peer;
use super::{CONFIG, Key, Step, step};
use crate::mux::{self, Side};
use crate::wire::{Open, Target};

proptest! {
    #[test]
    fn no_peer_can_unbalance_the_books(
        frames in prop::collection::vec(hostile_frame(), 1..60),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut peer = Peer::new(CONFIG, Side::Lower, 1);
        let now = Instant::now();
        let mut steps = steps.into_iter();
        for (body, sender) in frames {
            let mut payload = vec![1];
            payload.extend(sender.to_be_bytes());
            payload.extend(1u64.to_be_bytes());
            payload.extend(body);
            let _ = peer.handle_payload(now, Class(1), payload.into());
            peer.check();
            if let Some(step) = steps.next() {
                disturb(&mut peer, now, step);
            }
            peer.check();
            while peer.poll_event().is_some() {}
        }
    }
}

/// An application's call, on whatever stream there is.
fn disturb(peer: &mut Peer, now: Instant, step: Step) {
    let ids: Vec<Key> = peer
        .streams()
        .map(|(epoch, info)| (epoch, info.id))
        .collect();
    let pick = |number: usize| ids[number % ids.len()];
    match step {
        Step::Open(_, class) => {
            let open = Open {
                report_connected: true,
                ..Open::new(Class(class), Target::Address(([192, 0, 2, 1], 80).into()))
            };
            let _ = peer.open(now, open);
        }
        Step::Write(_, stream, length) if !ids.is_empty() => {
            let (epoch, id) = pick(stream);
            let _ = peer
                .streams_of(epoch, id)
                .unwrap()
                .write(id, vec![0; length].into());
        }
        Step::Read(_, stream, limit) if !ids.is_empty() => {
            let (epoch, id) = pick(stream);
            peer.streams_of(epoch, id).unwrap().read(id, limit);
        }
        Step::Finish(_, stream) if !ids.is_empty() => {
            let (epoch, id) = pick(stream);
            let _ = peer.streams_of(epoch, id).unwrap().finish(id);
        }
        Step::SealAhead(_, stream, max_bytes) if !ids.is_empty() => {
            let (epoch, id) = pick(stream);
            if peer.current.has(id) && epoch == peer.epoch_of(id) {
                peer.current().seal_ahead(id, max_bytes);
            }
        }
        Step::Seal(_, class, max_bytes) => {
            if let Some(mux::Sealed::Payload { parts, streams }) =
                peer.poll_payload(now, Class(class), max_bytes)
            {
                peer.current().acknowledged(&streams);
                let payload: Bytes = parts.concat().into();
                crate::wire::decode_frames(&payload).unwrap();
                if max_bytes % 8 == 0 {
                    peer.handle_expired(payload).unwrap();
                }
            }
        }
        _ => {}
    }
}

/// A frame that decodes, with numbers as a hostile peer would choose them;
/// and the run of the peer that it comes from.
fn hostile_frame() -> impl Strategy<Value = (Vec<u8>, u64)> {
    let number = || {
        prop_oneof![
            0u64..6,
            0u64..300_000,
            Just(crate::wire::VARINT_MAX),
            Just(65_536),
        ]
    };
    let frame = (1u64..10, 0u64..6, number(), number(), number(), number());
    let sender = prop_oneof![95 => Just(9u64), 4 => 7u64..12, 1 => 1u64..40];
    (frame, sender).prop_map(|((kind, id, a, b, c, d), sender)| {
        let numbers: Vec<u64> = match kind {
            1 => vec![a, b, c, d.max(65_536), id, 3],
            4 => vec![id, a],
            5 => vec![id, a, b, c, 0],
            _ => vec![id, a],
        };
        let mut body = Vec::new();
        for number in numbers {
            body.extend((number | 0xc000_0000_0000_0000).to_be_bytes());
        }
        if kind == 2 {
            body.truncate(8);
            body.extend([1, 0, 4, 0, 80, 192, 0, 2, 1, 0]);
        } else if kind > 6 {
            body.extend(vec![0; (b % 20_000) as usize]);
        }
        let mut frame = vec![kind as u8];
        frame.extend((body.len() as u32 | 0x8000_0000).to_be_bytes());
        frame.extend(body);
        (frame, sender)
    })
}
