//! The bundles that a session has to send, from the offer to their end.

use std::collections::{HashMap, VecDeque};

use thiserror::Error;
use underpass_cla::Transfer;

/// The peer's message about a bundle is impossible.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Violation {
    #[error("it tells of a bundle that it was not sent, or has told the end of")]
    Unknown,
    #[error("it acknowledges more than was sent")]
    TooMuch,
    #[error("it tells of coded datagrams, and was told that they are not known")]
    NotCoded,
    #[error("{0}")]
    Coded(#[from] underpass_coded::Violation),
}

/// What names a bundle that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Name {
    /// The number of its stream.
    Stream(u64),
    /// Its number among those that go as symbols.
    Coded(u64),
}

/// A transfer that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unended {
    pub(crate) key: u64,
    /// Bytes that the peer has acknowledged.
    pub(crate) acknowledged: u64,
}

#[derive(Debug)]
struct Sent {
    key: u64,
    length: u64,
    acknowledged: u64,
}

/// Every transfer is in exactly one of these places until its end is reported.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    waiting: VecDeque<Transfer>,
    /// It is about to be named.
    opening: Option<(u64, u64)>,
    sent: HashMap<Name, Sent>,
    /// Bytes that are not with QUIC yet.
    unwritten_bytes: u64,
    /// The node was told that the session is ready and has not offered since.
    told_ready: bool,
    closing: bool,
    said_bye: bool,
    /// Whether the session is over.
    over: bool,
}

impl Outgoing {
    /// Takes a bundle; one that comes after the session's end is dropped.
    pub(crate) fn offer(&mut self, transfer: Transfer) {
        if self.over {
            return;
        }
        self.told_ready = false;
        self.unwritten_bytes += transfer.len();
        self.waiting.push_back(transfer);
    }

    /// Whether to tell the node that the session is ready, since no more than `most_bytes` wait;
    /// true once for each offer.
    pub(crate) fn gets_ready(&mut self, most_bytes: u64) -> bool {
        let ready = !self.told_ready
            && !self.closing
            && !self.over
            && self.waiting.is_empty()
            && self.unwritten_bytes <= most_bytes;
        self.told_ready |= ready;
        ready
    }

    /// The length of the next bundle, if one waits.
    pub(crate) fn next_bytes_in_memory(&self) -> Option<u64> {
        let next = self.waiting.front();
        next.filter(|next| next.file.is_none()).map(Transfer::len)
    }

    /// The next bundle, which is to be named.
    pub(crate) fn next(&mut self) -> Option<Transfer> {
        let transfer = self.waiting.pop_front()?;
        self.opening = Some((transfer.key, transfer.len()));
        Some(transfer)
    }

    /// It goes under this name.
    pub(crate) fn begin(&mut self, name: Name) {
        if let Some((key, length)) = self.opening.take() {
            let sent = Sent {
                key,
                length,
                acknowledged: 0,
            };
            self.sent.insert(name, sent);
        }
    }

    /// QUIC has taken this many further bytes, or the peer does not want them.
    pub(crate) fn wrote(&mut self, bytes: u64) {
        self.unwritten_bytes = self.unwritten_bytes.saturating_sub(bytes);
    }

    /// Bytes that are not with QUIC yet.
    pub(crate) fn unwritten_bytes(&self) -> u64 {
        self.unwritten_bytes
    }

    /// The peer has this many bytes of a bundle. Returns the transfer, if that is more than before.
    pub(crate) fn progress(
        &mut self,
        stream: u64,
        bytes: u64,
    ) -> Result<Option<Unended>, Violation> {
        let name = Name::Stream(stream);
        let sent = self.sent.get_mut(&name).ok_or(Violation::Unknown)?;
        if bytes > sent.length {
            return Err(Violation::TooMuch);
        }
        let news = bytes > sent.acknowledged;
        sent.acknowledged = sent.acknowledged.max(bytes);
        Ok(news.then_some(Unended {
            key: sent.key,
            acknowledged: bytes,
        }))
    }

    /// The peer has reported the end of a bundle. Returns its transfer's key.
    pub(crate) fn ended(&mut self, name: Name) -> Result<u64, Violation> {
        let sent = self.sent.remove(&name).ok_or(Violation::Unknown)?;
        Ok(sent.key)
    }

    /// No bundle is asked for any more.
    pub(crate) fn close(&mut self) {
        self.closing = true;
    }

    /// Whether to tell the peer that nothing more comes; true only once.
    pub(crate) fn says_bye(&mut self) -> bool {
        let idle = self.waiting.is_empty() && self.opening.is_none() && self.sent.is_empty();
        let says = self.closing && idle && !self.said_bye;
        self.said_bye |= says;
        says
    }

    pub(crate) fn has_said_bye(&self) -> bool {
        self.said_bye
    }

    /// The session is over: what has not ended.
    pub(crate) fn end(&mut self) -> Vec<Unended> {
        self.over = true;
        self.unwritten_bytes = 0;
        let waiting = self.waiting.drain(..).map(|transfer| transfer.key);
        let unsent = waiting.chain(self.opening.take().map(|(key, _)| key));
        let unsent = unsent.map(|key| Unended {
            key,
            acknowledged: 0,
        });
        let mut unended: Vec<Unended> = unsent.collect();
        unended.extend(self.sent.drain().map(|(_, sent)| Unended {
            key: sent.key,
            acknowledged: sent.acknowledged,
        }));
        unended
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn transfer(key: u64, length: usize) -> Transfer {
        Transfer::new(key, vec![Bytes::from(vec![0; length])])
    }

    fn under_way(keys: std::ops::Range<u64>) -> Outgoing {
        let mut outgoing = Outgoing::default();
        for key in keys {
            outgoing.offer(transfer(key, 100));
            assert!(outgoing.next().is_some());
            outgoing.begin(Name::Stream(key + 1000));
        }
        outgoing
    }

    #[test]
    fn the_node_is_told_once_for_each_offer_and_only_when_little_waits() {
        let mut outgoing = Outgoing::default();
        assert!(outgoing.gets_ready(50));
        assert!(!outgoing.gets_ready(50));
        outgoing.offer(transfer(1, 100));
        assert!(!outgoing.gets_ready(1000), "it is not being sent yet");
        outgoing.next();
        outgoing.begin(Name::Coded(0));
        assert!(!outgoing.gets_ready(50));
        outgoing.wrote(50);
        assert!(outgoing.gets_ready(50));
        outgoing.close();
        outgoing.offer(transfer(2, 0));
        outgoing.next();
        assert!(!outgoing.gets_ready(50));
    }

    #[test]
    fn bundles_end_in_any_order_and_each_once() {
        let mut outgoing = under_way(0..3);
        assert_eq!(outgoing.ended(Name::Stream(1002)), Ok(2));
        let progress = outgoing.progress(1000, 60).expect("it is under way");
        assert_eq!(progress.map(|unended| unended.key), Some(0));
        assert_eq!(outgoing.progress(1000, 60), Ok(None));
        assert_eq!(outgoing.ended(Name::Stream(1002)), Err(Violation::Unknown));
        assert_eq!(outgoing.progress(1002, 1), Err(Violation::Unknown));
        assert_eq!(outgoing.progress(1001, 101), Err(Violation::TooMuch));
    }

    #[test]
    fn whatever_has_not_ended_is_told_at_the_end() {
        let mut outgoing = under_way(0..2);
        outgoing.progress(1001, 40).expect("it is under way");
        outgoing.offer(transfer(2, 10));
        outgoing.next();
        outgoing.offer(transfer(3, 10));
        let mut unended = outgoing.end();
        unended.sort_by_key(|unended| unended.key);
        let told = unended.iter().map(|u| (u.key, u.acknowledged));
        assert_eq!(told.collect::<Vec<_>>(), [(0, 0), (1, 40), (2, 0), (3, 0)]);
        outgoing.offer(transfer(4, 10));
        assert!(outgoing.end().is_empty());
    }

    #[test]
    fn bye_is_said_once_when_nothing_is_under_way() {
        let mut outgoing = under_way(0..1);
        assert!(!outgoing.says_bye());
        outgoing.close();
        assert!(!outgoing.says_bye());
        outgoing.ended(Name::Stream(1000)).expect("it is under way");
        assert!(outgoing.says_bye() && !outgoing.says_bye());
        assert!(outgoing.has_said_bye());
    }
}
