//! A request's body that is still arriving when the request has been answered.
//!
//! An origin may answer before it has all of the body, and the client may go on sending it. A
//! client that stops sending would hold its connection, and the origin's, for ever.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::task::AbortHandle;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::reply::Body;

/// How long a client may be silent when the answer is over and its body is incomplete.
const SILENCE: Duration = Duration::from_secs(60);

/// A body that ends the connection to its origin if it stops arriving. It cannot return an error
/// instead, since only hyper can make hyper's errors, and a body that just ends looks complete.
pub(super) struct LateBody {
    body: Body,
    /// `None` once the answer is over.
    answering: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    silence: Option<Pin<Box<Sleep>>>,
    origin: AbortHandle,
}

impl LateBody {
    /// `over` is cancelled when the answer is over; `origin` is the connection on
    /// which the body is sent.
    pub fn new(body: Body, over: CancellationToken, origin: AbortHandle) -> LateBody {
        LateBody {
            body,
            answering: Some(Box::pin(over.cancelled_owned())),
            silence: None,
            origin,
        }
    }
}

impl hyper::body::Body for LateBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.silence = None;
            return Poll::Ready(frame);
        }
        if let Some(answering) = &mut self.answering {
            ready!(answering.as_mut().poll(cx));
            self.answering = None;
        }
        let silence = self.silence.get_or_insert_with(|| Box::pin(sleep(SILENCE)));
        ready!(silence.as_mut().poll(cx));
        self.origin.abort();
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use http_body_util::BodyExt;
    use http_body_util::channel::Channel;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_ends_its_connection_once_the_answer_is_over() {
        let over = CancellationToken::new();
        let origin = tokio::spawn(pending::<()>());
        let (mut client, channel) = Channel::<Bytes, hyper::Error>::new(1);
        let mut body = LateBody::new(channel.boxed(), over.clone(), origin.abort_handle());
        assert!(timeout(10 * SILENCE, body.frame()).await.is_err());
        over.cancel();
        // A client that sends now and then does not count as silent.
        for _ in 0..3 {
            assert!(timeout(SILENCE / 2, body.frame()).await.is_err());
            client.send_data(Bytes::from_static(b"x")).await.unwrap();
            assert!(body.frame().await.unwrap().is_ok());
        }
        assert!(timeout(SILENCE / 2, body.frame()).await.is_err());
        assert!(!origin.is_finished());
        assert!(timeout(SILENCE, body.frame()).await.is_err());
        assert!(origin.await.unwrap_err().is_cancelled());
    }
}
