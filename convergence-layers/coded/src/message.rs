//! The messages between the two sides beside the datagrams, reliable and in order. Numbers are
//! big-endian.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;
use underpass_cla::Refusal;

use crate::{Losses, MOST_SYMBOLS};

/// The first byte of each message: those of [`Message`] in their order.
pub const FIRST_KIND: u8 = 7;
/// The first byte of the last of them.
pub const LAST_KIND: u8 = FIRST_KIND + 5;

const OPEN: u8 = FIRST_KIND;
const SENT: u8 = FIRST_KIND + 1;
const WANTED: u8 = FIRST_KIND + 2;
const TAKEN: u8 = FIRST_KIND + 3;
const REFUSED: u8 = FIRST_KIND + 4;
const LOSSES: u8 = LAST_KIND;

/// Bytes of a WANTED before the missing symbols.
const WANTED_BYTES: usize = 1 + 8 + 8 + 2 + 1;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The side that says it takes symbols.
    Open {
        /// The version that it speaks.
        version: u8,
        /// Bundles of together this many bytes may be in transfer to it.
        room_bytes: u64,
    },
    /// All symbols of a block that are sent without a request have left, or all that were
    /// requested.
    Sent {
        /// The block.
        block: u64,
        /// The number of its own symbols; 0 if the receiver should forget it.
        symbols: u16,
        /// Datagrams that have left until then.
        datagrams: u64,
    },
    /// A block lacks symbols.
    Wanted {
        /// The block.
        block: u64,
        /// The `datagrams` of the SENT that this answers.
        datagrams: u64,
        /// How many of them are enough.
        count: u16,
        /// The own symbols that are missing, at least `count`.
        missing: Missing,
    },
    /// The receiver's node has the bundle.
    Taken {
        /// The bundle.
        bundle: u64,
    },
    /// The receiver's node does not take the bundle.
    Refused {
        /// The bundle.
        bundle: u64,
        /// Why.
        refusal: Refusal,
    },
    /// Counts of what has arrived and what was lost, since the beginning.
    Losses(Losses),
}

/// Symbols of a block that are missing: bit 7 of the first byte is number 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing(Bytes);

impl Missing {
    /// These of a block's symbols.
    pub fn new(symbols: u16, missing: impl Iterator<Item = u16>) -> Missing {
        let mut bits = vec![0u8; usize::from(symbols).div_ceil(8)];
        for number in missing {
            if let Some(byte) = bits.get_mut(usize::from(number / 8)) {
                *byte |= 0x80 >> (number % 8);
            }
        }
        Missing(bits.into())
    }

    /// Their numbers.
    pub fn numbers(&self) -> impl Iterator<Item = u16> + '_ {
        let bytes = self.0.iter().zip((0u16..).step_by(8));
        bytes.flat_map(|(byte, first)| {
            (0..8)
                .filter(move |bit| byte & (0x80 >> bit) != 0)
                .map(move |bit| first + bit)
        })
    }
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// Another kind.
    #[error("message {0} is not known")]
    Unknown(u8),
    /// A reason to refuse that is not defined.
    #[error("reason {0} to refuse a bundle is not known")]
    Reason(u8),
    /// More symbols than a block has.
    #[error("a block has no such symbols")]
    Symbols,
}

impl Message {
    /// Appends the message.
    pub fn encode(&self, to: &mut BytesMut) {
        match self {
            Message::Open {
                version,
                room_bytes,
            } => {
                to.put_u8(OPEN);
                to.put_u8(*version);
                to.put_u64(*room_bytes);
            }
            Message::Sent {
                block,
                symbols,
                datagrams,
            } => {
                to.put_u8(SENT);
                to.put_u64(*block);
                to.put_u64(*datagrams);
                to.put_u16(*symbols);
            }
            Message::Wanted {
                block,
                datagrams,
                count,
                missing,
            } => {
                to.put_u8(WANTED);
                to.put_u64(*block);
                to.put_u64(*datagrams);
                to.put_u16(*count);
                to.put_u8(u8::try_from(missing.0.len()).unwrap_or(u8::MAX));
                to.put_slice(&missing.0);
            }
            Message::Taken { bundle } => {
                to.put_u8(TAKEN);
                to.put_u64(*bundle);
            }
            Message::Refused { bundle, refusal } => {
                to.put_u8(REFUSED);
                to.put_u64(*bundle);
                to.put_u8(refusal.number());
            }
            Message::Losses(losses) => {
                to.put_u8(LOSSES);
                to.put_u64(losses.received);
                to.put_u64(losses.lost);
                to.put_u64(losses.bursts);
            }
        }
    }

    /// Takes one message from the beginning of `from`; `None` if more bytes
    /// are needed, fewer than 150 in all.
    ///
    /// # Errors
    /// When the bytes are no message.
    pub fn decode(from: &mut BytesMut) -> Result<Option<Message>, MessageError> {
        let Some(kind) = from.first().copied() else {
            return Ok(None);
        };
        let length = match kind {
            OPEN => 10,
            SENT => 19,
            WANTED => match from.get(WANTED_BYTES - 1) {
                None => return Ok(None),
                Some(&bytes) if u16::from(bytes) > MOST_SYMBOLS / 8 => {
                    return Err(MessageError::Symbols);
                }
                Some(&bytes) => WANTED_BYTES + usize::from(bytes),
            },
            TAKEN => 9,
            REFUSED => 10,
            LOSSES => 25,
            unknown => return Err(MessageError::Unknown(unknown)),
        };
        if from.len() < length {
            return Ok(None);
        }
        let mut message = from.split_to(length).freeze();
        message.advance(1);
        read(kind, message).map(Some)
    }
}

/// What is behind the kind of a whole message.
fn read(kind: u8, mut from: Bytes) -> Result<Message, MessageError> {
    Ok(match kind {
        OPEN => Message::Open {
            version: from.get_u8(),
            room_bytes: from.get_u64(),
        },
        SENT => {
            let (block, datagrams) = (from.get_u64(), from.get_u64());
            let symbols = from.get_u16();
            if symbols > MOST_SYMBOLS {
                return Err(MessageError::Symbols);
            }
            Message::Sent {
                block,
                symbols,
                datagrams,
            }
        }
        WANTED => {
            let (block, datagrams) = (from.get_u64(), from.get_u64());
            let count = from.get_u16();
            from.advance(1);
            Message::Wanted {
                block,
                datagrams,
                count,
                // It does not outlive the message.
                missing: Missing(from),
            }
        }
        TAKEN => Message::Taken {
            bundle: from.get_u64(),
        },
        REFUSED => Message::Refused {
            bundle: from.get_u64(),
            refusal: refusal_of(from.get_u8())?,
        },
        _ => Message::Losses(Losses {
            received: from.get_u64(),
            lost: from.get_u64(),
            bursts: from.get_u64(),
        }),
    })
}

fn refusal_of(number: u8) -> Result<Refusal, MessageError> {
    Refusal::numbered(number).ok_or(MessageError::Reason(number))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(message: &Message) -> BytesMut {
        let mut bytes = BytesMut::new();
        message.encode(&mut bytes);
        bytes
    }

    #[test]
    fn messages_are_as_documented() {
        let wanted = Message::Wanted {
            block: 1,
            datagrams: 2,
            count: 3,
            missing: Missing::new(12, [0, 1, 11].into_iter()),
        };
        let bytes = [
            9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 3, 2, 0xc0, 0x10,
        ];
        assert_eq!(encoded(&wanted)[..], bytes);
        let sent = Message::Sent {
            block: 5,
            symbols: 1024,
            datagrams: 6,
        };
        let bytes = [8, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, 4, 0];
        assert_eq!(encoded(&sent)[..], bytes);
    }

    #[test]
    fn messages_come_back_whatever_pieces_they_arrive_in() {
        let messages = [
            Message::Open {
                version: 1,
                room_bytes: 1 << 40,
            },
            Message::Sent {
                block: 1 << 33,
                symbols: 7,
                datagrams: 9,
            },
            Message::Wanted {
                block: 4,
                datagrams: 9,
                count: 2,
                missing: Missing::new(1024, [5, 1023].into_iter()),
            },
            Message::Taken { bundle: 8 },
            Message::Refused {
                bundle: 9,
                refusal: Refusal::NotAcceptable,
            },
            Message::Losses(Losses {
                received: 1,
                lost: 2,
                bursts: 3,
            }),
        ];
        let (mut unread, mut back) = (BytesMut::new(), Vec::new());
        for byte in messages.iter().flat_map(encoded) {
            unread.put_u8(byte);
            while let Some(message) = Message::decode(&mut unread).expect("messages") {
                back.push(message);
            }
        }
        assert_eq!(back, messages);
        assert!(unread.is_empty());
    }

    #[test]
    fn what_is_unknown_or_too_large_is_refused() {
        let decode = |bytes: &[u8]| Message::decode(&mut BytesMut::from(bytes));
        assert_eq!(decode(&[6]), Err(MessageError::Unknown(6)));
        let mut refused = [0; 10];
        refused[0] = REFUSED;
        assert_eq!(decode(&refused), Err(MessageError::Reason(0)));
        let mut sent = [0xff; 19];
        sent[0] = SENT;
        assert_eq!(decode(&sent), Err(MessageError::Symbols));
        let mut wanted = [0xff; WANTED_BYTES];
        wanted[0] = WANTED;
        assert_eq!(decode(&wanted), Err(MessageError::Symbols));
    }

    proptest! {
        #[test]
        fn no_bytes_keep_more_than_a_message_waiting(kind in 6u8..14, bytes: Vec<u8>) {
            let mut unread = BytesMut::from(&[kind][..]);
            unread.extend_from_slice(&bytes);
            loop {
                match Message::decode(&mut unread) {
                    Ok(Some(_)) => {}
                    Ok(None) => {
                        prop_assert!(unread.len() < 150);
                        break;
                    }
                    Err(_) => break,
                }
            }
        }

        #[test]
        fn missing_symbols_come_back(numbers in proptest::collection::btree_set(0u16..1024, 0..50)) {
            let missing = Missing::new(1024, numbers.iter().copied());
            prop_assert!(missing.numbers().eq(numbers));
        }
    }
}
