//! A conduit as hyper's connection to an origin.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use hyper::rt::{Read, ReadBufCursor, Write};

use crate::stream::{Conduit, Failure};

/// Why a connection broke; hyper's own errors do not always say.
pub(super) type Cause = Arc<OnceLock<Failure>>;

/// Reads from and writes to a conduit. hyper owns it in one task, as a
/// conduit asks for.
pub(super) struct ConduitIo {
    conduit: Box<dyn Conduit>,
    cause: Cause,
}

impl ConduitIo {
    pub fn new(conduit: Box<dyn Conduit>, cause: Cause) -> ConduitIo {
        ConduitIo { conduit, cause }
    }

    pub fn into_conduit(self) -> Box<dyn Conduit> {
        self.conduit
    }

    fn broken(&self, failure: Failure) -> io::Error {
        let _ = self.cause.set(failure.clone());
        failure.into()
    }

    fn poll_capacity(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let capacity = ready!(self.conduit.poll_send_capacity(cx));
        Poll::Ready(capacity.map_err(|failure| self.broken(failure)))
    }
}

impl Read for ConduitIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        match ready!(self.conduit.poll_receive(cx, buffer.remaining())) {
            Ok(Some(data)) => buffer.put_slice(&data),
            Ok(None) => {}
            Err(failure) => return Poll::Ready(Err(self.broken(failure))),
        }
        Poll::Ready(Ok(()))
    }
}

impl Write for ConduitIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(self.poll_capacity(cx))?.min(data.len());
        self.conduit.send(Bytes::copy_from_slice(&data[..count]));
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        let count = ready!(self.poll_capacity(cx))?.min(total);
        let mut data = BytesMut::with_capacity(count);
        for slice in slices {
            let room = count - data.len();
            data.put_slice(&slice[..slice.len().min(room)]);
        }
        self.conduit.send(data.freeze());
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A conduit sends by itself, but may do so in its polls.
        let _ = self.poll_capacity(cx);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.conduit.finish();
        Poll::Ready(Ok(()))
    }
}
