//! A stream of the engine as the edge sees it.

use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use underpass_cla::Class;
use underpass_edge::stream::{
    ComparedPath, Conduit, Connected, Failure, FailureCode, FlowPath, PathChoice, Received,
    StreamName, StreamTimes,
};
use underpass_engine::{Engine, Estimate, FlowChoice, StreamKey};
use underpass_streams::{Epoch, ResetCode, StreamId};

use super::Shell;
use super::shard::Inner;
use super::streams::{Entry, code_of};

/// One stream. Dropping this before this side has finished resets it; afterwards the stream drains
/// by itself.
pub struct StreamConduit {
    shell: Arc<Shell>,
    shard: usize,
    key: StreamKey,
    finished: bool,
    /// Another conduit takes the stream up.
    left: bool,
}

impl StreamConduit {
    pub(super) fn new(shell: Arc<Shell>, shard: usize, key: StreamKey) -> StreamConduit {
        StreamConduit::of(shell, shard, key, false)
    }

    /// The conduit of a stream that another conduit has left.
    pub(super) fn of(
        shell: Arc<Shell>,
        shard: usize,
        key: StreamKey,
        finished: bool,
    ) -> StreamConduit {
        StreamConduit {
            shell,
            shard,
            key,
            finished,
            left: false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.shell.lock(self.shard)
    }

    fn with_inner<R>(&self, call: impl FnOnce(&mut Inner, Instant) -> R) -> R {
        self.shell.with_inner(self.shard, call)
    }
}

/// The edge's name for a stream.
pub(super) fn name_of(key: StreamKey) -> StreamName {
    StreamName {
        peer: key.peer,
        epoch: key.epoch.0,
        id: key.id.0,
    }
}

/// The engine's name for a stream.
pub(super) fn key_of(name: StreamName) -> StreamKey {
    StreamKey {
        peer: name.peer,
        epoch: Epoch(name.epoch),
        id: StreamId(name.id),
    }
}

/// Most bytes taken at once, and discarded, that the peer does not want.
const UNWANTED_BYTES: usize = 64 * 1024;

fn gone() -> Failure {
    Failure::new(FailureCode::Reset, "the stream is gone")
}

impl Inner {
    fn entry(&mut self, key: StreamKey) -> Result<&mut Entry, Failure> {
        self.streams.get_mut(key).ok_or_else(gone)
    }

    /// Leads to a stream that another process has by now.
    fn bridge(&mut self, key: StreamKey) -> Option<&mut Box<dyn Conduit>> {
        self.streams.get_mut(key)?.bridge.as_mut()
    }

    /// Remembers whom to wake.
    fn remember(&mut self, key: StreamKey, cx: &Context<'_>) -> Result<(), Failure> {
        let entry = self.entry(key)?;
        match &mut entry.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Ok(())
    }

    fn park<T>(&mut self, key: StreamKey, cx: &Context<'_>) -> Poll<Result<T, Failure>> {
        self.remember(key, cx)?;
        Poll::Pending
    }

    fn poll_capacity(&mut self, key: StreamKey, cx: &Context<'_>) -> Poll<Result<usize, Failure>> {
        let entry = self.entry(key)?;
        if let Some(failure) = &entry.failure {
            return Poll::Ready(Err(failure.clone()));
        }
        if entry.stopped {
            // As on a socket whose other end is closed, only sending bytes is an error: this side
            // may still end in order. The error comes after all that the peer has sent before,
            // which may be an answer.
            if entry.refused && entry.end_told {
                let text = "the other side takes no more bytes";
                let failure = Failure::new(FailureCode::Reset, text);
                entry.failure = Some(failure.clone());
                return Poll::Ready(Err(failure));
            }
            return Poll::Ready(Ok(UNWANTED_BYTES));
        }
        let end_told = entry.end_told;
        match self.engine.send_capacity(key) {
            0 => self.park(key, cx),
            capacity => {
                // No receiver waits any more, but the peer may still reset or close the stream.
                if end_told {
                    self.remember(key, cx)?;
                }
                Poll::Ready(Ok(capacity))
            }
        }
    }
}

impl Conduit for StreamConduit {
    fn poll_send_capacity(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Failure>> {
        let mut inner = self.lock();
        match inner.bridge(self.key) {
            Some(bridge) => bridge.poll_send_capacity(cx),
            None => inner.poll_capacity(self.key, cx),
        }
    }

    fn send(&mut self, data: Bytes) {
        let key = self.key;
        self.with_inner(|inner, now| {
            if let Some(bridge) = inner.bridge(key) {
                bridge.send(data);
            } else if let Some(entry) = inner.streams.get_mut(key)
                && entry.stopped
            {
                entry.refused = true;
            } else if let Err(error) = inner.engine.write(now, key, data) {
                // A reset came in between; the next poll reports it.
                tracing::debug!(stream = %key.id, %error, "bytes not taken");
            }
        });
    }

    fn finish(&mut self) {
        let key = self.key;
        self.finished = true;
        self.with_inner(|inner, now| {
            if let Some(entry) = inner.streams.get_mut(key) {
                entry.finished = true;
            }
            match inner.bridge(key) {
                Some(bridge) => bridge.finish(),
                // A stream that no longer exists needs no end.
                None => {
                    let _ = inner.engine.finish(now, key);
                }
            }
        });
    }

    fn stop(&mut self) {
        let key = self.key;
        self.with_inner(|inner, now| match inner.bridge(key) {
            Some(bridge) => bridge.stop(),
            // A stream that is gone sends nothing more.
            None => {
                let _ = inner.engine.stop(now, key, ResetCode::Cancelled);
            }
        });
    }

    fn reset(&mut self, failure: Failure) {
        let key = self.key;
        self.with_inner(|inner, now| {
            if let Some(entry) = inner.streams.get_mut(key) {
                entry.dial = None;
            }
            match inner.bridge(key) {
                Some(bridge) => bridge.reset(failure),
                None => {
                    let (code, text) = (code_of(&failure), &failure.text);
                    let _ = inner.engine.reset_behind(now, key, code, text);
                }
            }
        });
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<Received> {
        let key = self.key;
        // One lock for both: bytes that come between a failed read and the storing of its waker
        // would wake nobody.
        self.with_inner(|inner, now| {
            if let Some(bridge) = inner.bridge(key) {
                return bridge.poll_receive(cx, max);
            }
            if let Some(data) = inner.engine.read(now, key, max) {
                return Poll::Ready(Ok(Some(data)));
            }
            let entry = inner.entry(key)?;
            if entry.peer_finished {
                entry.end_told = true;
                if entry.refused {
                    // The next poll for capacity reports that.
                    cx.waker().wake_by_ref();
                }
                inner.remember(key, cx)?;
                return Poll::Ready(Ok(None));
            }
            if let Some(failure) = &entry.failure {
                return Poll::Ready(Err(failure.clone()));
            }
            inner.park(key, cx)
        })
    }

    fn peer_has_closed(&self) -> bool {
        let mut inner = self.lock();
        if let Some(bridge) = inner.bridge(self.key) {
            return bridge.peer_has_closed();
        }
        let entry = inner.streams.get_mut(self.key);
        entry.is_some_and(|entry| entry.stopped && entry.end_told)
    }

    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Result<Connected, Failure>> {
        let mut inner = self.lock();
        if let Some(bridge) = inner.bridge(self.key) {
            return bridge.poll_outcome(cx);
        }
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
        self.with_inner(|inner, now| {
            if let Some(entry) = inner.streams.get_mut(key) {
                entry.dial = None;
            }
            let _ = inner.engine.connected(now, key);
        });
    }

    fn begin_flow(&mut self, size_bytes: u64, explain: bool) -> FlowPath {
        let key = self.key;
        self.with_inner(|inner, now| {
            if let Some(bridge) = inner.bridge(key) {
                return bridge.begin_flow(size_bytes, explain);
            }
            let begun = inner.engine.begin_flow(now, key, size_bytes, explain);
            FlowPath {
                round_trip: begun.round_trip,
                completes: begun.completes,
                why: begun.why.map(|why| choice(&inner.engine, why)),
            }
        })
    }

    fn set_class(&mut self, class: Class) {
        let key = self.key;
        self.with_inner(|inner, now| match inner.bridge(key) {
            Some(bridge) => bridge.set_class(class),
            None => inner.engine.set_class(now, key, class),
        });
    }

    fn stream(&self) -> Option<StreamName> {
        Some(name_of(self.key))
    }

    fn times(&self) -> StreamTimes {
        let mut inner = self.lock();
        let entry = inner.streams.get_mut(self.key);
        let times = entry.and_then(|entry| entry.times.as_deref().copied());
        times.unwrap_or_default()
    }

    fn leave(&mut self) {
        self.left = true;
    }
}

/// What the engine says of a choice, with the paths' names.
fn choice(engine: &Engine, why: FlowChoice) -> PathChoice {
    let name = |hop| engine.hop_name(hop).unwrap_or_default().to_owned();
    let compared = why.compared.iter();
    PathChoice {
        policy: why.uses.name(),
        estimate: why.estimate.map(|estimate| match estimate {
            Estimate::OpenSession => "open-session",
            Estimate::NewConnection => "new-connection",
        }),
        chosen: why.chosen.map(name),
        compared: compared
            .map(|one| ComparedPath {
                path: name(one.hop),
                delay: one.path.delay,
                capacity_bps: one.path.capacity_bps,
                loss: one.path.loss,
                busy: one.path.busy,
                flows: one.others.flows,
                competing_bytes: one.others.bytes,
                before_bytes: one.others.before_bytes,
                completes: one.completes,
                others_wait: one.others_wait,
            })
            .collect(),
    }
}

impl Drop for StreamConduit {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        let (key, finished) = (self.key, self.finished);
        self.with_inner(|inner, now| {
            let Some(entry) = inner.streams.remove(key) else {
                return;
            };
            // Dropping the entry ends the bridge in the same way.
            if entry.bridge.is_some() || entry.closed || entry.failure.is_some() {
                return;
            }
            // A stream that no longer exists needs no end.
            let _ = match (finished, entry.peer_finished) {
                // Bytes that are not sealed yet are still sent.
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
