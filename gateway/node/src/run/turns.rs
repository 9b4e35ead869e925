//! Takes turns between peers that open streams.
//!
//! A connection to an origin takes some 50 µs until it first waits, and those of a peer begin in the
//! order in which they came. A peer that opens thousands of streams at once must not hold up those
//! of others for so long.

use std::collections::{HashMap, VecDeque};

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::yield_now;

/// Streams that begin before other tasks get their turn.
const AT_ONCE: usize = 32;

/// What has come and not begun, by peer.
#[derive(Debug)]
pub(super) struct Turns<T> {
    peer_of: fn(&T) -> u64,
    /// In the order in which they came; no queue is empty.
    waiting: HashMap<u64, VecDeque<T>>,
    /// The peers of these, the next one first.
    peers: VecDeque<u64>,
    /// How many have begun since other tasks had their turn.
    begun: usize,
}

impl<T> Turns<T> {
    pub fn new(peer_of: fn(&T) -> u64) -> Turns<T> {
        Turns {
            peer_of,
            waiting: HashMap::new(),
            peers: VecDeque::new(),
            begun: 0,
        }
    }

    /// The next one to begin of what comes out of `inbound`: the first of the peer whose turn it
    /// is. None when nothing waits and nothing more can come.
    pub async fn next(&mut self, inbound: &mut UnboundedReceiver<T>) -> Option<T> {
        if self.begun == AT_ONCE {
            self.begun = 0;
            yield_now().await;
        }
        if self.peers.is_empty() {
            let first = inbound.recv().await?;
            self.push(first);
        }
        while let Ok(one) = inbound.try_recv() {
            self.push(one);
        }
        self.begun += 1;
        self.pop()
    }

    fn push(&mut self, one: T) {
        let peer = (self.peer_of)(&one);
        let own = self.waiting.entry(peer).or_default();
        if own.is_empty() {
            self.peers.push_back(peer);
        }
        own.push_back(one);
    }

    fn pop(&mut self) -> Option<T> {
        let peer = self.peers.pop_front()?;
        let own = self.waiting.get_mut(&peer)?;
        let one = own.pop_front();
        if own.is_empty() {
            self.waiting.remove(&peer);
        } else {
            self.peers.push_back(peer);
        }
        one
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    /// A peer, and which of its streams.
    type Stream = (u64, usize);

    fn turns() -> Turns<Stream> {
        Turns::new(|stream| stream.0)
    }

    #[tokio::test]
    async fn a_burst_of_one_peer_holds_up_no_other_and_each_keeps_its_order() {
        let (sender, mut inbound) = unbounded_channel();
        for number in 0..1_000 {
            sender.send((10, number)).expect("it is received");
        }
        for number in 0..3 {
            sender.send((11, number)).expect("it is received");
        }
        let mut turns = turns();
        let mut begun = Vec::new();
        for _ in 0..6 {
            begun.extend(turns.next(&mut inbound).await);
        }
        assert_eq!(
            begun,
            [(10, 0), (11, 0), (10, 1), (11, 1), (10, 2), (11, 2)]
        );
        // Who comes later does not wait for the burst either.
        sender.send((12, 0)).expect("it is received");
        let soon = [
            turns.next(&mut inbound).await,
            turns.next(&mut inbound).await,
        ];
        assert!(soon.contains(&Some((12, 0))), "{soon:?}");
        drop(sender);
        let mut rest = 0;
        while turns.next(&mut inbound).await.is_some() {
            rest += 1;
        }
        assert_eq!(rest, 1_000 - 4);
        assert!(turns.waiting.is_empty() && turns.peers.is_empty());
    }

    #[tokio::test]
    async fn other_tasks_get_their_turn_in_a_burst() {
        let (sender, mut inbound) = unbounded_channel();
        for number in 0..2 * AT_ONCE {
            sender.send((10, number)).expect("it is received");
        }
        let other = Arc::new(AtomicBool::new(false));
        let ran = other.clone();
        tokio::spawn(async move { ran.store(true, Ordering::Relaxed) });
        let mut turns = turns();
        for _ in 0..AT_ONCE {
            turns.next(&mut inbound).await.expect("more has come");
        }
        assert!(!other.load(Ordering::Relaxed));
        turns.next(&mut inbound).await.expect("more has come");
        assert!(other.load(Ordering::Relaxed));
    }
}
