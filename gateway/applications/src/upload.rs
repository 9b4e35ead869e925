//! Payloads on disk that a client sends or reads part by part.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::spawn_blocking;
use underpass_payloads::{PayloadFile, Refused, WriteError, Writer};

use crate::connection::{Client, ClientError, Outgoing};
use crate::wire::{ErrorCode, Event};

/// The most bytes of a payload that one answer has.
const READ_BYTES: u64 = 1 << 20;

/// The payload that a client is sending in parts.
#[derive(Debug, Default)]
pub(crate) enum Upload {
    /// No payload.
    #[default]
    Nothing,
    /// A payload that is being written.
    Open {
        id: u64,
        outgoing: Box<Outgoing>,
        writer: Writer,
    },
    /// The payload was refused: parts of it may still be on their way.
    Refused(u64),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<'_, S> {
    /// Reserves room for a payload that is to come in parts.
    pub(crate) async fn begin(
        &mut self,
        id: u64,
        outgoing: Outgoing,
        bytes: u64,
    ) -> Result<(), ClientError> {
        if !self.registered.contains(&outgoing.service) {
            let message = format!("service {} is not registered", outgoing.service);
            return self.refuse(Some(id), ErrorCode::NotAllowed, &message).await;
        }
        let Some(payloads) = self.payloads.clone() else {
            let message = "this node has no payloads on disk (payloads.quota_bytes)";
            return self.refuse(Some(id), ErrorCode::TooLarge, message).await;
        };
        let owner = self.node.number();
        let begun = waiting(move || payloads.reserve(owner, bytes)?.begin(bytes)).await?;
        let writer = match begun {
            Ok(writer) => writer,
            Err(refused) => {
                let code = match refused {
                    Refused::TooLong { .. } => ErrorCode::TooLarge,
                    Refused::Quota | Refused::Disk(_) => ErrorCode::NoRoom,
                };
                return self.refuse(Some(id), code, &refused.to_string()).await;
            }
        };
        self.tell(&Event::Begun { id }, b"").await?;
        let outgoing = Box::new(outgoing);
        self.upload = Upload::Open {
            id,
            outgoing,
            writer,
        };
        match bytes {
            0 => self.part(id, Bytes::new()).await,
            _ => Ok(()),
        }
    }

    /// Writes the next part; sends the bundle after the last one.
    pub(crate) async fn part(&mut self, id: u64, payload: Bytes) -> Result<(), ClientError> {
        let (outgoing, mut writer) = match std::mem::take(&mut self.upload) {
            Upload::Open {
                id: begun,
                outgoing,
                writer,
            } if begun == id => (outgoing, writer),
            Upload::Refused(refused) if refused == id => {
                self.upload = Upload::Refused(id);
                return Ok(());
            }
            other => {
                self.upload = other;
                let message = "no payload was begun with this id";
                return self.refuse(Some(id), ErrorCode::Unknown, message).await;
            }
        };
        let written = waiting(move || {
            writer.write(&payload)?;
            match writer.left() {
                0 => Ok(Written::Whole(writer.finish()?)),
                _ => Ok(Written::Part(writer)),
            }
        });
        match written.await? {
            Ok(Written::Part(writer)) => {
                self.upload = Upload::Open {
                    id,
                    outgoing,
                    writer,
                };
                Ok(())
            }
            Ok(Written::Whole(file)) => {
                let file = Some(file);
                self.send(id, Outgoing { file, ..*outgoing }).await
            }
            Err(error) => {
                self.upload = Upload::Refused(id);
                let code = match &error {
                    WriteError::Length { .. } => ErrorCode::TooLarge,
                    WriteError::Disk(_) => ErrorCode::NoRoom,
                };
                self.refuse(Some(id), code, &error.to_string()).await
            }
        }
    }

    /// Answers with the bytes of a payload from an offset on.
    pub(crate) async fn read(
        &mut self,
        id: u64,
        delivery: u64,
        offset: u64,
    ) -> Result<(), ClientError> {
        let Some(file) = self.files.get(&delivery).cloned() else {
            let message = "this client has no such bundle with its payload on disk";
            return self.refuse(Some(id), ErrorCode::Unknown, message).await;
        };
        let left = file.len().saturating_sub(offset);
        let bytes = usize::try_from(left.min(READ_BYTES)).unwrap_or_default();
        let read = waiting(move || {
            let mut part = vec![0; bytes];
            file.read_at(&mut part, offset).map(|()| part)
        });
        match read.await? {
            Ok(part) => self.tell(&Event::Data { id }, &part).await,
            Err(error) => {
                let message = format!("the payload cannot be read: {error}");
                self.refuse(Some(id), ErrorCode::Unknown, &message).await
            }
        }
    }
}

enum Written {
    Part(Writer),
    Whole(Arc<PayloadFile>),
}

/// Runs a call on a thread that may wait for the disk.
pub(crate) async fn waiting<R: Send + 'static>(
    call: impl FnOnce() -> R + Send + 'static,
) -> Result<R, io::Error> {
    spawn_blocking(call).await.map_err(io::Error::other)
}
