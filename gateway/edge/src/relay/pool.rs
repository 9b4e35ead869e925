//! Read buffers, lent for one call at a time.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};

/// Most bytes of one read.
const BUFFER: usize = 256 * 1024;
/// A read of at least this much hands its buffer over; a smaller one is
/// copied out, so that no byte keeps more than four bytes of memory alive.
const HAND_OVER: usize = BUFFER / 4;
/// So is what is read where no more than this may be: on a slow path it stays
/// for long, and every buffer would be as empty.
const LITTLE: usize = BUFFER / 2;
/// Buffers kept for reuse, so that bulk reads touch warm memory: 16 MiB.
const KEPT: usize = 64;

static FREE: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

thread_local! {
    static SCRATCH: RefCell<Option<Box<[u8]>>> = const { RefCell::new(None) };
}

/// A filled buffer that returns to the pool with its last reference.
struct Lent {
    memory: Option<Box<[u8]>>,
    filled: usize,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.memory.as_deref().map_or(&[], |m| &m[..self.filled])
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(memory), Ok(mut free)) = (self.memory.take(), FREE.lock())
            && free.len() < KEPT
        {
            free.push(memory);
        }
    }
}

fn take_buffer() -> Box<[u8]> {
    let pooled = FREE.lock().ok().and_then(|mut free| free.pop());
    pooled.unwrap_or_else(|| vec![0; BUFFER].into_boxed_slice())
}

/// Reads at most `max` bytes (above zero) from `socket`; empty at its end. No
/// buffer is held while the read is pending.
pub(crate) fn poll_read_bytes(
    socket: &mut (impl AsyncRead + Unpin),
    cx: &mut Context<'_>,
    max: usize,
) -> Poll<io::Result<Bytes>> {
    SCRATCH.with_borrow_mut(|scratch| {
        let memory = scratch.get_or_insert_with(take_buffer);
        let mut buffer = ReadBuf::new(&mut memory[..max.min(BUFFER)]);
        ready!(Pin::new(socket).poll_read(cx, &mut buffer))?;
        let filled = buffer.filled().len();
        Poll::Ready(Ok(if filled < HAND_OVER || max <= LITTLE {
            Bytes::copy_from_slice(buffer.filled())
        } else {
            Bytes::from_owner(Lent {
                memory: scratch.take(),
                filled,
            })
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn small_reads_do_not_pin_the_buffer_and_large_ones_are_handed_over() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        near.write_all(b"small").await.unwrap();
        let small = poll_fn(|cx| poll_read_bytes(&mut far, cx, usize::MAX))
            .await
            .unwrap();
        assert_eq!(&small[..], b"small");
        let scratch = SCRATCH.with_borrow(|s| s.as_ref().unwrap().as_ptr() as usize);
        assert!(!(scratch..scratch + BUFFER).contains(&(small.as_ptr() as usize)));

        near.write_all(&vec![7; LITTLE]).await.unwrap();
        let mut total = 0;
        while total < LITTLE {
            let read = poll_fn(|cx| poll_read_bytes(&mut far, cx, LITTLE - total))
                .await
                .unwrap();
            let memory = SCRATCH.with_borrow(|s| s.as_ref().unwrap().as_ptr() as usize);
            assert!(!(memory..memory + BUFFER).contains(&(read.as_ptr() as usize)));
            total += read.len();
        }

        let writer = tokio::spawn(async move {
            near.write_all(&vec![7; 4 * BUFFER]).await.unwrap();
        });
        let mut total = 0;
        while total < 4 * BUFFER {
            let read = poll_fn(|cx| poll_read_bytes(&mut far, cx, usize::MAX))
                .await
                .unwrap();
            assert!(!read.is_empty() && read.len() <= BUFFER && read.iter().all(|b| *b == 7));
            total += read.len();
        }
        writer.await.unwrap();
    }
}
