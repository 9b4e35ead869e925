//! A stream of the engine as the edge sees it.

use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use underpass_edge::stream::{Conduit, Connected, Failure, FailureCode};
use underpass_engine::StreamKey;
use underpass_streams::ResetCode;

use super::Shell;
use super::shard::Inner;
use super::streams::{Entry, code_of};

/// One stream. Dropped before this side has finished, it is reset; afterwards
/// the stream drains by itself.
pub struct StreamConduit {
    shell: Arc<Shell>,
    /// The shard that has it.
    shard: usize,
    key: StreamKey,
    finished: bool,
}

impl StreamConduit {
    /// The conduit of a stream that a shard has in its table.
    pub(super) fn new(shell: Arc<Shell>, shard: usize, key: StreamKey) -> StreamConduit {
        StreamConduit {
            shell,
            shard,
            key,
            finished: false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.shell.lock(self.shard)
    }

    fn with_inner<R>(&self, call: impl FnOnce(&mut Inner, Instant) -> R) -> R {
        self.shell.with_inner(self.shard, call)
    }
}

/// Bytes taken at once that the peer does not want.
const UNWANTED_BYTES: usize = 64 * 1024;

fn gone() -> Failure {
    Failure::new(FailureCode::Reset, "the stream is gone")
}

impl Inner {
    fn entry(&mut self, key: StreamKey) -> Result<&mut Entry, Failure> {
        self.streams.get_mut(key).ok_or_else(gone)
    }

    /// Remembers whom to wake.
    fn park<T>(&mut self, key: StreamKey, cx: &Context<'_>) -> Poll<Result<T, Failure>> {
        let entry = self.entry(key)?;
        match &mut entry.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    fn poll_capacity(&mut self, key: StreamKey, cx: &Context<'_>) -> Poll<Result<usize, Failure>> {
        let entry = self.entry(key)?;
        if let Some(failure) = &entry.failure {
            return Poll::Ready(Err(failure.clone()));
        }
        if entry.stopped {
            // As on a socket whose other end is closed, only bytes are an
            // error: this side may still end in order. They are one behind
            // what the peer has sent before, which may be an answer.
            if entry.refused && entry.end_told {
                let text = "the other side takes no more bytes";
                let failure = Failure::new(FailureCode::Reset, text);
                entry.failure = Some(failure.clone());
                return Poll::Ready(Err(failure));
            }
            return Poll::Ready(Ok(UNWANTED_BYTES));
        }
        match self.engine.send_capacity(key) {
            0 => self.park(key, cx),
            capacity => Poll::Ready(Ok(capacity)),
        }
    }
}

impl Conduit for StreamConduit {
    fn poll_send_capacity(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Failure>> {
        self.lock().poll_capacity(self.key, cx)
    }

    fn send(&mut self, data: Bytes) {
        let key = self.key;
        self.with_inner(|inner, now| {
            if let Some(entry) = inner.streams.get_mut(key)
                && entry.stopped
            {
                entry.refused = true;
            } else if let Err(error) = inner.engine.write(now, key, data) {
                // A reset that came in between; the next poll tells of it.
                tracing::debug!(stream = %key.id, %error, "bytes not taken");
            }
        });
    }

    fn finish(&mut self) {
        let key = self.key;
        self.finished = true;
        // A stream that is gone needs no end.
        let _ = self.with_inner(|inner, now| inner.engine.finish(now, key));
    }

    fn stop(&mut self) {
        let key = self.key;
        // A stream that is gone sends nothing more.
        let _ = self.with_inner(|inner, now| inner.engine.stop(now, key, ResetCode::Cancelled));
    }

    fn reset(&mut self, failure: Failure) {
        let key = self.key;
        let code = code_of(&failure);
        let text = &failure.text;
        let _ = self.with_inner(|inner, now| inner.engine.reset_behind(now, key, code, text));
    }

    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
    ) -> Poll<Result<Option<Bytes>, Failure>> {
        let key = self.key;
        // One lock for both: bytes that come between a vain read and the
        // parking of its waker would wake nobody.
        self.with_inner(|inner, now| {
            if let Some(data) = inner.engine.read(now, key, max) {
                return Poll::Ready(Ok(Some(data)));
            }
            let entry = inner.entry(key)?;
            if entry.peer_finished {
                entry.end_told = true;
                if entry.refused {
                    // The next poll for capacity tells of that.
                    cx.waker().wake_by_ref();
                }
                return Poll::Ready(Ok(None));
            }
            if let Some(failure) = &entry.failure {
                return Poll::Ready(Err(failure.clone()));
            }
            inner.park(key, cx)
        })
    }

    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Result<Connected, Failure>> {
        let mut inner = self.lock();
        let entry = inner.entry(self.key)?;
        if entry.connected {
            return Poll::Ready(Ok(Connected::default()));
        }
        if let Some(failure) = &entry.failure {
            return Poll::Ready(Err(failure.clone()));
        }
        inner.park(self.key, cx)
    }

    fn connected(&mut self, _connected: Connected) {
        let key = self.key;
        let _ = self.with_inner(|inner, now| inner.engine.connected(now, key));
    }
}

impl Drop for StreamConduit {
    fn drop(&mut self) {
        let (key, finished) = (self.key, self.finished);
        self.with_inner(|inner, now| {
            let Some(entry) = inner.streams.remove(key) else {
                return;
            };
            if entry.closed || entry.failure.is_some() {
                return;
            }
            // A stream that is gone needs no end.
            let _ = match (finished, entry.peer_finished) {
                // What is not sealed yet leaves in its time.
                (true, true) => Ok(()),
                (true, false) => inner.engine.stop(now, key, ResetCode::Cancelled),
                (false, _) => {
                    let text = "the connection was given up";
                    inner.engine.reset(now, key, ResetCode::Cancelled, text)
                }
            };
        });
    }
}
