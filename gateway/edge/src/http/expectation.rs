//! `Expect: 100-continue` (RFC 9110 §10.1.1): the origin says whether it
//! wants the body.
//!
//! hyper's server tells the client to continue when the body is first asked for, so the body is not
//! read until the origin has asked for it. If the final response comes first, the client is never
//! asked for the body, and the connection to the origin, which still expects a body, ends with that
//! response.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::Version;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::EXPECT;
use hyper::http::request::Parts;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// How long to wait for the origin's interim response: some origins do not support expectations and
/// wait for the body. Five round trips by GEO.
const PATIENCE: Duration = Duration::from_secs(3);

/// Whether the origin wants the body, which is not read before.
pub(super) struct Expectation {
    wanted: CancellationToken,
}

impl Expectation {
    /// The expectation of a request, if it has one. That of an HTTP/1.0 client is ignored and not
    /// passed on.
    pub fn of(head: &mut Parts, body: &Incoming) -> Option<Expectation> {
        if head.version == Version::HTTP_10 {
            head.headers.remove(EXPECT);
        }
        let value = head.headers.get_all(EXPECT).iter().next_back()?;
        let expects = value.as_bytes().eq_ignore_ascii_case(b"100-continue");
        (expects && !body.is_end_stream()).then(|| Expectation {
            wanted: CancellationToken::new(),
        })
    }

    /// `body`, not read before [`Expectation::want`].
    pub fn gate(&self, body: Incoming) -> GatedBody {
        GatedBody {
            wanted: Some(Box::pin(self.wanted.clone().cancelled_owned())),
            body,
        }
    }

    /// Lets the client send.
    pub fn want(&self) {
        self.wanted.cancel();
    }

    /// Whether the client has been let send.
    pub fn is_wanted(&self) -> bool {
        self.wanted.is_cancelled()
    }

    /// Ends when the origin has been silent for too long.
    pub async fn patience(&self) {
        tokio::time::sleep(PATIENCE).await;
    }
}

/// A body that is not read before it is wanted.
pub(super) struct GatedBody {
    /// `None` once the body is wanted.
    wanted: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    body: Incoming,
}

impl Body for GatedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(wanted) = &mut self.wanted {
            ready!(wanted.as_mut().poll(cx));
            self.wanted = None;
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
