//! The control stream: the outcome of bundles, and the end of a session.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use bytes::BytesMut;
use quinn::{RecvStream, SendStream};
use tokio::sync::mpsc;
use underpass_cla::{Down, Outcome};

use super::Link;
use crate::code;
use crate::outgoing::{Name, Violation};
use crate::wire::Message;

/// Bytes read, and bytes of messages written, at once.
const BYTES: usize = 16 << 10;

/// The stream to write to, and the messages for it.
pub(super) type Saying = (SendStream, mpsc::Receiver<Message>);
/// The stream to read from, and what was read of it before.
pub(super) type Hearing = (RecvStream, BytesMut);

impl Link {
    pub(super) async fn say(&self, (mut stream, mut messages): Saying) -> Down {
        let mut bytes = BytesMut::new();
        while let Some(message) = messages.recv().await {
            message.encode(&mut bytes);
            while bytes.len() < BYTES
                && let Ok(message) = messages.try_recv()
            {
                message.encode(&mut bytes);
            }
            if let Err(error) = stream.write_chunk(bytes.split().freeze()).await {
                return match error {
                    quinn::WriteError::ConnectionLost(error) => self.down(&error),
                    _ => Down::Protocol("the peer has ended the control stream".into()),
                };
            }
        }
        Down::Closed
    }

    /// Hears what the peer says.
    pub(super) async fn hear(&self, (mut stream, mut unread): Hearing) -> Down {
        loop {
            match Message::decode(&mut unread) {
                Ok(Some(message)) => match self.heard(message) {
                    Ok(None) => {}
                    Ok(Some(down)) => return down,
                    Err(violation) => return Down::Protocol(violation.to_string()),
                },
                Ok(None) => {
                    let chunk = match stream.read_chunk(BYTES, true).await {
                        Ok(Some(chunk)) => chunk.bytes,
                        Err(quinn::ReadError::ConnectionLost(error)) => return self.down(&error),
                        Ok(None) | Err(_) => {
                            return Down::Protocol("the peer has ended the control stream".into());
                        }
                    };
                    let bytes = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
                    self.flow.received(Instant::now(), bytes);
                    unread.extend_from_slice(&chunk);
                }
                Err(error) => return Down::Protocol(error.to_string()),
            }
        }
    }

    /// Acts on a message. Returns a value if it ends the session.
    fn heard(&self, message: Message) -> Result<Option<Down>, Violation> {
        match message {
            Message::Ping => {
                self.pings_received.fetch_add(1, Relaxed);
            }
            Message::Progress { stream, bytes } => {
                let news = self.outgoing().progress(stream, bytes)?;
                if let Some(news) = news {
                    self.node.progress(self.id(), news.key, news.acknowledged);
                }
            }
            Message::Taken { stream } => {
                self.bundle_ended(Name::Stream(stream), Outcome::Acknowledged)?;
            }
            Message::Refused { stream, refusal } => {
                self.bundle_ended(Name::Stream(stream), Outcome::Refused(refusal))?;
            }
            Message::Coded(message) => return self.heard_of_coded(message),
            Message::Bye => {
                self.outgoing().close();
                self.closing.notify_one();
                self.say_bye();
                if self.outgoing().has_said_bye() {
                    // The peer has all earlier messages; closing informs it of the end.
                    self.connection.close(code::CLOSED, b"");
                    return Ok(Some(Down::Closed));
                }
            }
            Message::Hello(_) => {
                let down = Down::Protocol("the peer says HELLO twice".into());
                return Ok(Some(down));
            }
        }
        Ok(None)
    }

    pub(super) fn bundle_ended(&self, name: Name, outcome: Outcome) -> Result<(), Violation> {
        let key = self.outgoing().ended(name)?;
        self.node.finished(self.id(), key, outcome);
        self.say_bye();
        Ok(())
    }

    /// Tells the peer that nothing more comes, once that is so.
    pub(super) fn say_bye(&self) {
        if self.outgoing().says_bye() {
            // Where it does not fit, the time for the end runs out.
            let _ = self.messages.try_send(Message::Bye);
        }
    }
}
