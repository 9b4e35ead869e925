//! What operators do to single streams.

use underpass_edge::stream::{Failure, FailureCode};
use underpass_engine::StreamKey;
use underpass_streams::{ResetCode, StreamError};

use super::Shell;

impl Shell {
    /// Resets a stream for both applications.
    ///
    /// # Errors
    /// When there is no such stream.
    pub fn reset_stream(&self, key: StreamKey) -> Result<(), StreamError> {
        const TEXT: &str = "reset by an operator";
        let shard = self.directory().of_peer(key.peer);
        let waker = self.with_inner(shard, |inner, now| {
            inner.engine.reset(now, key, ResetCode::Cancelled, TEXT)?;
            let Some(entry) = inner.streams.get_mut(key) else {
                return Ok(None);
            };
            // The stream layer does not report a reset to the caller that made it.
            entry.failure = Some(Failure::new(FailureCode::Reset, TEXT));
            Ok(entry.waker.take())
        })?;
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }
}
