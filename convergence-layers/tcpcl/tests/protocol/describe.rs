//! Describes a stream in the words of the list of recorded sessions.

use underpass_tcpcl::wire::{ContactHeader, Decoder, ExtensionList, Frame, Limits};

/// The messages of `bytes`, which begin with a contact header if `contact` is set, and
/// the remaining bytes.
pub fn describe(bytes: &[u8], contact: bool) -> (Vec<String>, usize) {
    let mut words = Vec::new();
    let mut rest = bytes;
    if contact {
        let (header, after) = rest.split_first_chunk().expect("a contact header");
        let header = ContactHeader::parse(header).expect("version 4");
        words.push(format!("contact v4 flags {:#x}", u8::from(header.can_tls)));
        rest = after;
    }
    let mut decoder = Decoder::new(Limits::default());
    while let Some((frame, taken)) = decoder.next(rest).expect("known messages") {
        words.extend(word(&frame));
        rest = &rest[taken..];
    }
    (words, rest.len() + decoder.data_left() as usize)
}

fn word(frame: &Frame<'_>) -> Option<String> {
    Some(match frame {
        Frame::Data(_) => return None,
        Frame::Init(init) => format!(
            "SESS_INIT ka {} segMRU {} xferMRU {} node {}{}",
            init.keepalive_s,
            init.segment_mru_bytes,
            init.transfer_mru_bytes,
            init.node_id,
            list(init.extensions.as_ref().expect("well-formed")),
        ),
        Frame::Segment(header) => format!(
            "SEG flags {} id {}{} len {}",
            header.flags,
            header.transfer_id,
            list(header.extensions.as_ref().expect("well-formed")),
            header.data_bytes,
        ),
        Frame::Ack(ack) => format!(
            "ACK flags {} id {} len {}",
            ack.flags, ack.transfer_id, ack.acknowledged
        ),
        Frame::Refuse {
            reason,
            transfer_id,
        } => format!("REFUSE reason {} id {transfer_id}", reason.code()),
        Frame::Keepalive => "KEEPALIVE".into(),
        Frame::Term { reply, reason } => format!(
            "SESS_TERM flags {} reason {}",
            u8::from(*reply),
            reason.code()
        ),
        Frame::Reject { reason, rejected } => {
            format!("MSG_REJECT reason {} header {rejected:#04x}", reason.code())
        }
    })
}

fn list(extensions: &ExtensionList) -> String {
    if extensions.0.is_empty() {
        return String::new();
    }
    let mut bytes = Vec::new();
    extensions.emit(&mut bytes);
    let items: String = bytes[4..]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!(" extlen {} {items}", extensions.encoded_len())
}
