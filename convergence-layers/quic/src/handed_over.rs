//! What the processes of a node have in common that have a listener one after the other: its
//! socket, of which one at a time reads, and the key by which a peer believes that a connection of
//! the former process is over.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, EndpointConfig, Runtime, TokioRuntime, UdpPoller};
use quinn_proto::{ConnectionIdGenerator, HashedConnectionIdGenerator};
use ring::hmac;

/// The key of connection ids is the HMAC of this, shortened.
const IDS_LABEL: &[u8] = b"underpass connection ids";
/// The key of a listener is the HMAC of this and its name.
const LISTENER_LABEL: &[u8] = b"underpass listener ";

/// A secret of the processes of a run, from which the tokens of stateless resets follow (RFC 9000,
/// 10.3). Who has it can end the listener's connections. It is not shown in logs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ListenerKey(pub [u8; 32]);

impl fmt::Debug for ListenerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ListenerKey(..)")
    }
}

impl ListenerKey {
    /// The key of one of the listeners for which this is their run's. No two may have the same: to
    /// a packet with a connection id of the other, one would answer with the token that ends that
    /// connection (RFC 9000, 10.3.2).
    pub fn of_listener(self, name: &str) -> ListenerKey {
        let run = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let mut context = hmac::Context::with_key(&run);
        context.update(LISTENER_LABEL);
        context.update(name.as_bytes());
        let mut key = [0; 32];
        key.copy_from_slice(context.sign().as_ref());
        ListenerKey(key)
    }

    /// An endpoint that knows the connection ids of other processes with this key, and ends their
    /// connections.
    pub(crate) fn endpoint(self) -> EndpointConfig {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        // An id shows this to whoever sees a few of them, so it must not reveal the key.
        let mut ids = [0; 8];
        ids.copy_from_slice(&hmac::sign(&key, IDS_LABEL).as_ref()[..8]);
        let ids = u64::from_be_bytes(ids);
        let mut config = EndpointConfig::new(Arc::new(key));
        config.cid_generator(move || {
            let generator = HashedConnectionIdGenerator::from_key(ids);
            Box::new(generator) as Box<dyn ConnectionIdGenerator>
        });
        config
    }
}

/// A socket that two processes have, one of which reads.
#[derive(Debug)]
pub(crate) struct SharedSocket {
    socket: Arc<dyn AsyncUdpSocket>,
    reads: AtomicBool,
    /// The task that waits until this process reads.
    waiting: Mutex<Option<Waker>>,
}

impl SharedSocket {
    pub(crate) fn new(socket: UdpSocket, reads: bool) -> io::Result<Arc<SharedSocket>> {
        Ok(Arc::new(SharedSocket {
            socket: TokioRuntime.wrap_udp_socket(socket)?,
            reads: AtomicBool::new(reads),
            waiting: Mutex::default(),
        }))
    }

    /// Whether this process reads; what it leaves waits in the kernel.
    pub(crate) fn read(&self, reads: bool) {
        self.reads.store(reads, Ordering::SeqCst);
        let waiting = match reads {
            true => self.waiting.lock().unwrap().take(),
            false => None,
        };
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }

    fn reads(&self) -> bool {
        self.reads.load(Ordering::SeqCst)
    }
}

impl AsyncUdpSocket for SharedSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.socket.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        if !self.reads() {
            *self.waiting.lock().unwrap() = Some(cx.waker().clone());
            // It may have begun to read before the task was there to be woken.
            if !self.reads() {
                return Poll::Pending;
            }
        }
        self.socket.poll_recv(cx, bufs, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.socket.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.socket.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.socket.may_fragment()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_has_its_key_in_all_processes_and_shares_it_with_no_other() {
        let run = ListenerKey([7; 32]);
        let key = run.of_listener("beam");
        assert_eq!(key, ListenerKey([7; 32]).of_listener("beam"));
        let others = [
            run,
            run.of_listener("lte"),
            ListenerKey([8; 32]).of_listener("beam"),
        ];
        assert!(!others.contains(&key));
    }
}
