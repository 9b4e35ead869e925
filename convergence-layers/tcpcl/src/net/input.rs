//! Bytes that were read and not yet taken. Sessions share buffers: most sessions of a hub are idle,
//! and an idle one has none.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// Bytes read at once.
const BYTES: usize = 256 << 10;
/// Buffers that a thread keeps for its next readers.
const SPARE: usize = 4;

thread_local! {
    static SPARES: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// What was read of one stream and not yet taken.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// Empty as long as nothing is unread.
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    /// What was read and not yet taken.
    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The first `bytes` of it are taken.
    pub(super) fn take(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start == self.end {
            self.give_back();
        }
    }

    /// Reads at most `most` bytes (not zero) once, and appends them to the unread ones. Returns how
    /// many came; 0 is the end of the stream.
    pub(super) fn poll_fill(
        &mut self,
        reader: Pin<&mut impl AsyncRead>,
        cx: &mut Context<'_>,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        if self.buffer.is_empty() {
            let spare = SPARES.with_borrow_mut(Vec::pop);
            self.buffer = spare.unwrap_or_else(|| vec![0; BYTES].into());
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let room = &mut self.buffer[self.end..];
        let most = most.min(room.len());
        let mut target = ReadBuf::new(&mut room[..most]);
        let read = reader.poll_read(cx, &mut target);
        let count = target.filled().len();
        self.end += count;
        if self.start == self.end {
            self.give_back();
        }
        ready!(read)?;
        Poll::Ready(Ok(count))
    }

    fn give_back(&mut self) {
        (self.start, self.end) = (0, 0);
        let buffer = std::mem::take(&mut self.buffer);
        if !buffer.is_empty() {
            // A thread that ends has no next reader.
            let _ = SPARES.try_with(|spares| {
                let mut spares = spares.borrow_mut();
                if spares.len() < SPARE {
                    spares.push(buffer);
                }
            });
        }
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn room_is_held_only_while_something_is_unread() {
        let (mut near, mut far) = tokio::io::duplex(64);
        let mut input = Input::default();
        let pending = poll_fn(|cx| {
            let read = input.poll_fill(Pin::new(&mut near), cx, usize::MAX);
            Poll::Ready(read.is_pending())
        });
        assert!(pending.await);
        assert!(input.buffer.is_empty());
        far.write_all(b"four").await.expect("room in the pipe");
        let count = poll_fn(|cx| input.poll_fill(Pin::new(&mut near), cx, 4)).await;
        assert_eq!(count.expect("bytes"), 4);
        input.take(1);
        assert_eq!(input.unread(), b"our");
        far.write_all(b"teen").await.expect("room in the pipe");
        for (most, expected) in [(3, 3), (9, 1)] {
            let count = poll_fn(|cx| input.poll_fill(Pin::new(&mut near), cx, most)).await;
            assert_eq!(count.expect("bytes"), expected);
        }
        assert_eq!(input.unread(), b"ourteen");
        input.take(7);
        assert!(input.buffer.is_empty());
        drop(far);
        let end = poll_fn(|cx| input.poll_fill(Pin::new(&mut near), cx, 4)).await;
        assert_eq!(end.expect("the end"), 0);
        assert!(input.buffer.is_empty());
    }
}
