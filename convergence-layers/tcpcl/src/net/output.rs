//! Bytes on their way from a session to its transport.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Buf, Bytes};

use super::transport::Transport;
use crate::session::SessionCore;

/// Pieces written at once.
const MAX_SLICES: usize = 64;
/// Most bytes that are taken from the session before the socket has room for them. Acknowledgements
/// queue behind them.
const MAX_BYTES: usize = 512 << 10;

/// A bounded queue of pieces, which are written without being copied.
#[derive(Debug, Default)]
pub(super) struct Output {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    unflushed: bool,
}

impl Output {
    /// Whether all is with the kernel.
    pub(super) fn is_drained(&self) -> bool {
        self.pieces.is_empty() && !self.unflushed
    }

    /// What is not with the kernel yet, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the session's output, up to the bound.
    pub(super) fn fetch(&mut self, core: &mut SessionCore, now: Instant) {
        while self.bytes < MAX_BYTES && self.pieces.len() < MAX_SLICES {
            let Some(piece) = core.poll_output(now) else {
                break;
            };
            self.bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Writes at most `most` bytes, and flushes after the last of them. Returns whether there was
    /// progress.
    pub(super) fn write(
        &mut self,
        transport: &mut impl Transport,
        cx: &mut Context<'_>,
        most: usize,
    ) -> io::Result<bool> {
        if self.pieces.is_empty() {
            return self.flush(transport, cx);
        }
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let (mut count, mut room) = (0, most);
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            if room == 0 {
                break;
            }
            let part = &piece[..piece.len().min(room)];
            *slice = IoSlice::new(part);
            room -= part.len();
            count += 1;
        }
        match Pin::new(&mut *transport).poll_write_vectored(cx, &slices[..count])? {
            Poll::Ready(0) => Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(written) => {
                self.written(written);
                if self.pieces.is_empty() {
                    self.flush(transport, cx)?;
                }
                Ok(true)
            }
            Poll::Pending => Ok(false),
        }
    }

    /// Flushes once, if there is anything to flush. Returns whether the kernel has all of it.
    fn flush(&mut self, transport: &mut impl Transport, cx: &mut Context<'_>) -> io::Result<bool> {
        let flushed = self.unflushed && Pin::new(transport).poll_flush(cx)?.is_ready();
        self.unflushed &= !flushed;
        Ok(flushed)
    }

    fn written(&mut self, mut written: usize) {
        self.unflushed = true;
        self.bytes -= written;
        while let Some(front) = self.pieces.front_mut() {
            if front.len() > written {
                front.advance(written);
                break;
            }
            written -= front.len();
            self.pieces.pop_front();
        }
    }

    /// Writes all that is left and ends our direction.
    pub(super) fn poll_shutdown(
        &mut self,
        transport: &mut impl Transport,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.pieces.is_empty() {
            if !self.write(transport, cx, usize::MAX)? {
                return Poll::Pending;
            }
        }
        Pin::new(transport).poll_shutdown(cx)
    }
}
