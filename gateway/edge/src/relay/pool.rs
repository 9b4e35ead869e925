//! Read buffers, lent for one call at a time.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes};
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::io::poll_read_buf;

/// Most bytes of one read.
const BUFFER: usize = 256 * 1024;
/// A read of at least this much hands its buffer over; a smaller one is
/// copied out, so that no byte keeps more than four bytes of memory alive.
const HAND_OVER: usize = BUFFER / 4;
/// A read of at most this much uses a buffer of its own length: on a slow path the bytes stay in
/// memory for long, and most of a large buffer would be empty.
const LITTLE: usize = BUFFER / 2;
/// A short buffer is handed over if at least this part (1/n) of it is filled.
const FILLED_PART: usize = 2;
/// Buffers kept for reuse, so that bulk reads touch warm memory: 16 MiB.
const KEPT: usize = 64;

static FREE: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

thread_local! {
    static SCRATCH: RefCell<Option<Box<[u8]>>> = const { RefCell::new(None) };
    /// For small reads: about as long as the last read that needed one.
    static FITTING: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
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
    if max <= LITTLE {
        return poll_read_little(socket, cx, max);
    }
    SCRATCH.with_borrow_mut(|scratch| {
        let memory = scratch.get_or_insert_with(take_buffer);
        let mut buffer = ReadBuf::new(&mut memory[..max.min(BUFFER)]);
        ready!(Pin::new(socket).poll_read(cx, &mut buffer))?;
        let filled = buffer.filled().len();
        Poll::Ready(Ok(if filled < HAND_OVER {
            Bytes::copy_from_slice(buffer.filled())
        } else {
            Bytes::from_owner(Lent {
                memory: scratch.take(),
                filled,
            })
        }))
    })
}

/// The same where `max` is little.
fn poll_read_little(
    socket: &mut (impl AsyncRead + Unpin),
    cx: &mut Context<'_>,
    max: usize,
) -> Poll<io::Result<Bytes>> {
    FITTING.with_borrow_mut(|memory| {
        if memory.capacity() < max || memory.capacity() / FILLED_PART > max {
            *memory = Vec::with_capacity(max);
        }
        let mut target = (&mut *memory).limit(max);
        let filled = ready!(poll_read_buf(Pin::new(socket), cx, &mut target))?;
        Poll::Ready(Ok(if filled < memory.capacity() / FILLED_PART {
            let copy = Bytes::copy_from_slice(memory);
            memory.clear();
            copy
        } else {
            std::mem::take(memory).into()
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpStream;

    async fn connection() -> (TcpStream, TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(near, listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    #[tokio::test]
    async fn what_fills_a_short_buffer_is_not_copied_out_of_it() {
        let (mut near, mut far) = connection().await;
        for (sent, max, handed_over) in [(5, 1000, false), (1000, 1000, true), (400, 500, true)] {
            near.write_all(&vec![7; sent]).await.unwrap();
            let mut memory = std::ptr::null();
            let read = poll_fn(|cx| {
                let read = poll_read_bytes(&mut far, cx, max);
                if read.is_pending() {
                    memory = FITTING.with_borrow(|memory| memory.as_ptr());
                }
                read
            });
            let read = read.await.unwrap();
            assert_eq!(&read[..], vec![7; sent]);
            // Without a pause before it, the buffer's memory was not recorded.
            assert!(memory.is_null() || (read.as_ptr() == memory) == handed_over);
        }
    }

    #[tokio::test]
    async fn small_reads_do_not_pin_the_buffer_and_large_ones_are_handed_over() {
        let (mut near, mut far) = connection().await;
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
