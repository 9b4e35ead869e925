//! Bundles in BPDUs that came in fragments.

use std::ops::Range;

use underpass_bundle::wire::{
    ARRAY, BYTES, Eid, Extension, UNSIGNED, block_type, ipn, write_eid, write_head,
};
use underpass_cla::Refusal;

use super::*;

/// A BPDU's content; transmission 0 asks for no custody.
pub fn bpdu(transmission: u64, inside: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (major, argument) in [
        (ARRAY, 2),
        (UNSIGNED, 7),
        (ARRAY, 3),
        (UNSIGNED, transmission),
        (UNSIGNED, 0),
        (BYTES, inside.len() as u64),
    ] {
        write_head(&mut out, major, argument);
    }
    out.extend(inside);
    out
}

/// A fragment of a terminal's administrative bundle of this number to the hub, with this range of
/// its content.
pub fn part((terminal, number): (u64, u64), content: &[u8], range: Range<usize>) -> Bytes {
    let mut raw = vec![0x9F];
    write_head(&mut raw, ARRAY, 10);
    // Version 7, a fragment of an administrative record, no CRC.
    for value in [7, 0x3, 0] {
        write_head(&mut raw, UNSIGNED, value);
    }
    for endpoint in [ipn(HUB, 0), ipn(terminal, 0), Eid::none()] {
        write_eid(&mut raw, &endpoint);
    }
    write_head(&mut raw, ARRAY, 2);
    // Creation time and number, lifetime, offset and length of the whole.
    let (offset, total) = (range.start as u64, content.len() as u64);
    for value in [1_000, number, 60_000, offset, total] {
        write_head(&mut raw, UNSIGNED, value);
    }
    raw.extend(Extension::new(block_type::PAYLOAD, 1, 0, &content[range]).raw);
    raw.push(0xFF);
    raw.into()
}

#[test]
fn a_bpdu_is_opened_by_the_session_that_brings_its_last_fragment() {
    for count in COUNTS {
        let terminals = terminals();
        let (shell, _inbound) = shell(&hub(&terminals), count);
        let service = Arc::new(Kept::default());
        shell.register(SERVICE, service.clone());
        for (number, node) in (0..).zip(&terminals) {
            let (id, _recorded) = session(&shell, number, *node);
            let content = bpdu(5, &bundle_of(*node, b"in fragments"));
            let middle = content.len() / 2;
            let first = part((*node, 1), &content, 0..middle);
            assert_eq!(shell.received(id, first), Ok(()));
            assert_eq!(service.messages.lock().unwrap().len(), 0);
            let last = part((*node, 1), &content, middle..content.len());
            assert_eq!(shell.received(id, last), Ok(()));
            let came = std::mem::take(&mut *service.messages.lock().unwrap());
            let came: Vec<(u64, Bytes)> = came
                .into_iter()
                .map(|message| (message.peer, message.payload))
                .collect();
            assert_eq!(came, [(*node, Bytes::from_static(b"in fragments"))]);
            // What is in it is judged like any other bundle.
            let malformed = bpdu(5, b"no bundle");
            let whole = 0..malformed.len();
            let refused = shell.received(id, part((*node, 2), &malformed, whole));
            assert_eq!(refused, Err(Refusal::NotAcceptable));
        }
    }
}
