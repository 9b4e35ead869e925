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

    /// How many bytes may be sent; none once the stream is broken. hyper gives a connection up when
    /// a write fails, but an origin may answer and then reset: so reads report the failure, after
    /// the answer.
    fn poll_capacity(&mut self, cx: &mut Context<'_>) -> Poll<Option<usize>> {
        let capacity = ready!(self.conduit.poll_send_capacity(cx));
        Poll::Ready(capacity.map_err(|failure| self.broken(failure)).ok())
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
        let Some(capacity) = ready!(self.poll_capacity(cx)) else {
            return Poll::Ready(Ok(data.len()));
        };
        let count = capacity.min(data.len());
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
        let Some(capacity) = ready!(self.poll_capacity(cx)) else {
            return Poll::Ready(Ok(total));
        };
        let count = capacity.min(total);
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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use hyper::rt::ReadBuf;

    use super::*;
    use crate::stream::{Connected, FailureCode};

    /// A conduit with an answer that is then reset.
    struct Answered(Option<Bytes>);

    fn reset() -> Failure {
        Failure::new(FailureCode::Reset, "the origin has closed")
    }

    impl Conduit for Answered {
        fn poll_send_capacity(&mut self, _: &mut Context<'_>) -> Poll<Result<usize, Failure>> {
            Poll::Ready(Err(reset()))
        }

        fn send(&mut self, _: Bytes) {
            panic!("nothing is sent on a broken stream");
        }

        fn finish(&mut self) {}

        fn stop(&mut self) {}

        fn reset(&mut self, _: Failure) {}

        fn poll_receive(
            &mut self,
            _: &mut Context<'_>,
            _: usize,
        ) -> Poll<Result<Option<Bytes>, Failure>> {
            Poll::Ready(self.0.take().map(Some).ok_or_else(reset))
        }

        fn poll_outcome(&mut self, _: &mut Context<'_>) -> Poll<Result<Connected, Failure>> {
            Poll::Pending
        }

        fn connected(&mut self, _: Connected) {}
    }

    #[test]
    fn an_answer_is_read_though_the_rest_of_the_request_cannot_be_written() {
        let cause = Cause::default();
        let conduit = Box::new(Answered(Some(Bytes::from_static(b"too large"))));
        let mut io = ConduitIo::new(conduit, cause.clone());
        let mut cx = Context::from_waker(Waker::noop());
        let written = Pin::new(&mut io).poll_write(&mut cx, b"more");
        assert!(matches!(written, Poll::Ready(Ok(4))), "{written:?}");
        let slices = [IoSlice::new(b"and"), IoSlice::new(b"more")];
        let written = Pin::new(&mut io).poll_write_vectored(&mut cx, &slices);
        assert!(matches!(written, Poll::Ready(Ok(7))), "{written:?}");
        let mut memory = [0u8; 100];
        let mut buffer = ReadBuf::new(&mut memory);
        let read = Pin::new(&mut io).poll_read(&mut cx, buffer.unfilled());
        assert!(matches!(read, Poll::Ready(Ok(()))), "{read:?}");
        assert_eq!(buffer.filled(), b"too large");
        let read = Pin::new(&mut io).poll_read(&mut cx, buffer.unfilled());
        assert!(matches!(read, Poll::Ready(Err(_))), "{read:?}");
        assert_eq!(cause.get(), Some(&reset()));
    }
}
