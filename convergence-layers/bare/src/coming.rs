//! A bundle that comes over TCP: whole, or in parts if it is long.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc::Receiver;
use underpass_cla::{Node, Refusal, SessionId};

/// A bundle of the neighbour.
#[derive(Debug)]
pub(crate) enum Coming {
    /// All of it is here.
    Whole(Bytes),
    /// It is being read.
    InParts(Parts),
}

/// A long bundle that is being read from a connection. If this is dropped, the
/// connection ends.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Its length as its head tells it, bytes.
    pub(crate) length: u64,
    /// Its bytes. They end before if the connection does.
    pub(crate) pieces: Receiver<Bytes>,
}

impl Parts {
    /// Gives the node the bundle, of which at most `most_whole` bytes are kept in
    /// memory. What it does not take is read to its end, and so lost: there is nobody
    /// to tell.
    pub(crate) async fn take(
        mut self,
        node: Arc<dyn Node>,
        id: SessionId,
        most_whole: u64,
    ) -> (u64, Result<(), Refusal>) {
        let taken = self.give(&node, id, most_whole).await;
        while self.pieces.recv().await.is_some() {}
        (self.length, taken)
    }

    async fn give(
        &mut self,
        node: &Arc<dyn Node>,
        id: SessionId,
        most_whole: u64,
    ) -> Result<(), Refusal> {
        let Some(mut intake) = node.intake(id, self.length)? else {
            let whole = self.gather(most_whole).await?;
            return node.received(id, whole);
        };
        while let Some(piece) = self.pieces.recv().await {
            poll_fn(|cx| intake.poll_ready(cx)).await?;
            intake.take(piece);
        }
        poll_fn(|cx| intake.poll_end(cx)).await
    }

    async fn gather(&mut self, most_whole: u64) -> Result<Bytes, Refusal> {
        if self.length > most_whole {
            return Err(Refusal::NotAcceptable);
        }
        let mut whole = BytesMut::new();
        while let Some(piece) = self.pieces.recv().await {
            whole.extend_from_slice(&piece);
        }
        match whole.len() as u64 == self.length {
            true => Ok(whole.freeze()),
            false => Err(Refusal::NotAcceptable),
        }
    }
}
