//! The messages on a session's control stream, and the head of each bundle.
//!
//! The dialling side opens the control stream, the only bidirectional one. The first message of
//! either side is [`Message::Hello`]; all others follow in any order. Numbers are big-endian.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;
use underpass_cla::{Class, Refusal};
use underpass_coded::message::{FIRST_KIND, LAST_KIND, MessageError};

/// The only version there is.
pub const VERSION: u8 = 1;

/// The application protocol that both sides have to name in the TLS handshake.
pub const ALPN: &[u8] = b"underpass-bundles/1";

/// The head of each bundle on its stream: its length.
pub const LENGTH_BYTES: usize = 8;

/// The longest node id, bytes.
pub const MOST_NODE_ID_BYTES: usize = 255;

/// The class byte of a session that carries all classes.
const ALL_CLASSES: u8 = 0xff;
const STANDBY: u8 = 1;
const CODED: u8 = 2;

const HELLO: u8 = 1;
const PROGRESS: u8 = 2;
const TAKEN: u8 = 3;
const REFUSED: u8 = 4;
const PING: u8 = 5;
const BYE: u8 = 6;

/// Bytes of a HELLO before the node id.
const HELLO_BYTES: usize = 1 + 1 + 1 + 1 + 8 + 8 + 1;

/// Who a side is and what the session is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Its node id, which its certificate has to name.
    pub node_id: String,
    /// The class that the session carries; `None` for all of them.
    pub class: Option<Class>,
    /// Whether the session is a standby.
    pub standby: bool,
    /// Whether it supports coded datagrams: only then does it get messages about them.
    pub coded: bool,
    /// The number of its run, greater than that of every earlier one.
    pub incarnation: u64,
    /// The largest bundle that it takes, bytes.
    pub transfer_mru_bytes: u64,
}

/// A message. A bundle is named by the number of its stream among those that
/// its sender has opened, from 0 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The first one of either side.
    Hello(Hello),
    /// So many bytes of a bundle have come.
    Progress {
        /// The bundle.
        stream: u64,
        /// Bytes of it.
        bytes: u64,
    },
    /// The receiver's node has the bundle.
    Taken {
        /// The bundle.
        stream: u64,
    },
    /// The receiver's node does not take the bundle.
    Refused {
        /// The bundle.
        stream: u64,
        /// Why.
        refusal: Refusal,
    },
    /// No content: its acknowledgement by QUIC shows that the peer is alive and, after a blockage,
    /// what was lost before.
    Ping,
    /// The sender begins no more bundles and has none in transfer.
    Bye,
    /// What is said beside coded datagrams.
    Coded(underpass_coded::Message),
}

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// Another version.
    #[error("version {0} of the protocol is not known here")]
    Version(u8),
    /// No message begins so.
    #[error("message {0} is not known")]
    Unknown(u8),
    /// A reason to refuse that is not defined.
    #[error("reason {0} to refuse a bundle is not known")]
    Reason(u8),
    /// A node id that is no text.
    #[error("the node id is not UTF-8")]
    NodeId,
    /// Nothing that is said beside coded datagrams.
    #[error("{0}")]
    Coded(#[from] MessageError),
}

impl Message {
    /// Appends the message.
    pub fn encode(&self, to: &mut BytesMut) {
        match self {
            Message::Hello(hello) => hello.encode(to),
            Message::Progress { stream, bytes } => {
                to.put_u8(PROGRESS);
                to.put_u64(*stream);
                to.put_u64(*bytes);
            }
            Message::Taken { stream } => {
                to.put_u8(TAKEN);
                to.put_u64(*stream);
            }
            Message::Refused { stream, refusal } => {
                to.put_u8(REFUSED);
                to.put_u64(*stream);
                to.put_u8(refusal.number());
            }
            Message::Ping => to.put_u8(PING),
            Message::Bye => to.put_u8(BYE),
            Message::Coded(message) => message.encode(to),
        }
    }

    /// Takes one message from the beginning of `from`; `None` if more bytes
    /// are needed, fewer than 300 in all.
    ///
    /// # Errors
    /// When the bytes are no message.
    pub fn decode(from: &mut BytesMut) -> Result<Option<Message>, WireError> {
        let Some(kind) = from.first().copied() else {
            return Ok(None);
        };
        let length = match kind {
            FIRST_KIND..=LAST_KIND => {
                let message = underpass_coded::Message::decode(from)?;
                return Ok(message.map(Message::Coded));
            }
            HELLO => match Hello::length(from)? {
                Some(length) => length,
                None => return Ok(None),
            },
            PROGRESS => 17,
            TAKEN => 9,
            REFUSED => 10,
            PING | BYE => 1,
            unknown => return Err(WireError::Unknown(unknown)),
        };
        if from.len() < length {
            return Ok(None);
        }
        let mut message = from.split_to(length).freeze();
        message.advance(1);
        Ok(Some(match kind {
            HELLO => Message::Hello(Hello::decode(message)?),
            PROGRESS => Message::Progress {
                stream: message.get_u64(),
                bytes: message.get_u64(),
            },
            TAKEN => Message::Taken {
                stream: message.get_u64(),
            },
            REFUSED => Message::Refused {
                stream: message.get_u64(),
                refusal: refusal_of(message.get_u8())?,
            },
            PING => Message::Ping,
            _ => Message::Bye,
        }))
    }
}

impl Hello {
    fn encode(&self, to: &mut BytesMut) {
        let node_id = self.node_id.as_bytes();
        let node_id = &node_id[..node_id.len().min(MOST_NODE_ID_BYTES)];
        to.put_u8(HELLO);
        to.put_u8(VERSION);
        to.put_u8(self.class.map_or(ALL_CLASSES, |class| class.0));
        let standby = if self.standby { STANDBY } else { 0 };
        to.put_u8(standby | if self.coded { CODED } else { 0 });
        to.put_u64(self.incarnation);
        to.put_u64(self.transfer_mru_bytes);
        to.put_u8(u8::try_from(node_id.len()).unwrap_or(u8::MAX));
        to.put_slice(node_id);
    }

    /// Bytes of the message, once that is known.
    fn length(from: &[u8]) -> Result<Option<usize>, WireError> {
        match from.get(1) {
            Some(&VERSION) | None => {}
            Some(other) => return Err(WireError::Version(*other)),
        }
        let node_id = from.get(HELLO_BYTES - 1);
        Ok(node_id.map(|length| HELLO_BYTES + usize::from(*length)))
    }

    /// What is behind the kind of a whole message.
    fn decode(mut from: Bytes) -> Result<Hello, WireError> {
        from.advance(1);
        let class = from.get_u8();
        let flags = from.get_u8();
        let incarnation = from.get_u64();
        let transfer_mru_bytes = from.get_u64();
        from.advance(1);
        Ok(Hello {
            node_id: String::from_utf8(from.to_vec()).map_err(|_| WireError::NodeId)?,
            class: (class != ALL_CLASSES).then_some(Class(class)),
            standby: flags & STANDBY != 0,
            coded: flags & CODED != 0,
            incarnation,
            transfer_mru_bytes,
        })
    }
}

fn refusal_of(number: u8) -> Result<Refusal, WireError> {
    Refusal::numbered(number).ok_or(WireError::Reason(number))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hello() -> Hello {
        Hello {
            node_id: "ipn:10.0".into(),
            class: Some(Class(3)),
            standby: true,
            coded: false,
            incarnation: 0x0102_0304_0506_0708,
            transfer_mru_bytes: 0x10_0000,
        }
    }

    fn encoded(messages: &[Message]) -> BytesMut {
        let mut bytes = BytesMut::new();
        messages
            .iter()
            .for_each(|message| message.encode(&mut bytes));
        bytes
    }

    #[test]
    fn a_hello_is_as_documented() {
        let bytes = encoded(&[Message::Hello(hello())]);
        let fixed = [
            1, 1, 3, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0x10, 0, 0, 8,
        ];
        assert_eq!(bytes[..], [&fixed[..], b"ipn:10.0"].concat());
    }

    #[test]
    fn messages_come_back_whatever_pieces_they_arrive_in() {
        let refusal = Refusal::NoResources;
        let messages = [
            Message::Hello(hello()),
            Message::Hello(Hello {
                class: None,
                standby: false,
                coded: true,
                ..hello()
            }),
            Message::Progress {
                stream: 7,
                bytes: 1 << 40,
            },
            Message::Taken { stream: 8 },
            Message::Refused { stream: 9, refusal },
            Message::Ping,
            Message::Coded(underpass_coded::Message::Taken { bundle: 9 }),
            Message::Bye,
        ];
        let (mut unread, mut back) = (BytesMut::new(), Vec::new());
        for byte in encoded(&messages) {
            unread.put_u8(byte);
            while let Some(message) = Message::decode(&mut unread).expect("messages") {
                back.push(message);
            }
        }
        assert_eq!(back, messages);
        assert!(unread.is_empty());
    }

    #[test]
    fn what_is_unknown_is_refused() {
        let decode = |bytes: &[u8]| Message::decode(&mut BytesMut::from(bytes));
        assert_eq!(decode(&[0]), Err(WireError::Unknown(0)));
        assert_eq!(decode(&[HELLO, 2]), Err(WireError::Version(2)));
        let mut refused = [0; 10];
        refused[0] = REFUSED;
        assert_eq!(decode(&refused), Err(WireError::Reason(0)));
        let mut hello = encoded(&[Message::Hello(hello())]);
        hello[HELLO_BYTES] = 0xff;
        assert_eq!(decode(&hello), Err(WireError::NodeId));
    }

    proptest! {
        #[test]
        fn no_bytes_keep_more_than_a_message_waiting(bytes: Vec<u8>) {
            let mut unread = BytesMut::from(&bytes[..]);
            loop {
                match Message::decode(&mut unread) {
                    Ok(Some(_)) => {}
                    Ok(None) => {
                        prop_assert!(unread.len() < HELLO_BYTES + MOST_NODE_ID_BYTES);
                        break;
                    }
                    Err(_) => break,
                }
            }
        }
    }
}
