//! Payloads that a node's former runs have sealed ahead: its present run asks about them, and the
//! peer, whose streams are still open, answers.

use std::time::Instant;

use underpass_cla::Class;

use super::Peer;
use crate::wire::{Frame, Header, StreamId};

/// The peer's answer about a stream of a former run of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormerLimit {
    /// That run's incarnation.
    pub run: u64,
    /// The stream.
    pub id: StreamId,
    /// Payloads with bytes up to this offset may leave; `None` if the peer
    /// wants none of the stream.
    pub below: Option<u64>,
}

impl Peer {
    /// Asks the peer's present run how much may leave of a stream that a former run of this node
    /// has sealed ahead. The answers come by [`Peer::poll_limit`]: one soon, more as the stream's
    /// bytes are consumed.
    pub fn ask(&mut self, run: u64, id: StreamId) {
        self.current.send_loose(Frame::Held { run, id });
    }

    /// An answer to [`Peer::ask`].
    pub fn poll_limit(&mut self) -> Option<FormerLimit> {
        self.limits.pop_front()
    }

    pub(super) fn handle_former(
        &mut self,
        now: Instant,
        class: Class,
        header: Header,
        frame: Frame,
    ) {
        match frame {
            // An answer to a question of an earlier run would be of no use to the present one.
            Frame::Held { run, id } if self.peer_incarnation() == Some(header.sender) => {
                let below = match run < header.sender && run >= self.settled_below {
                    true => self
                        .former_run(now, run)
                        .and_then(|former| former.limit(now, class, id)),
                    false => None,
                };
                self.current.send_loose(Frame::Limit { run, id, below });
            }
            Frame::Limit { run, id, below } if header.receiver == self.incarnation() => {
                self.limits.push_back(FormerLimit { run, id, below });
            }
            _ => {}
        }
    }

    /// Reports what more of former runs may leave.
    pub(super) fn send_raised_limits(&mut self) {
        let former_runs = self.former_runs.iter_mut();
        let found = former_runs.map(|(run, former)| (*run, former.mux.take_limits()));
        let found: Vec<_> = found.filter(|(_, limits)| !limits.is_empty()).collect();
        for (run, limits) in found {
            self.send_limits(run, limits);
        }
    }

    pub(super) fn send_limits(&mut self, run: u64, limits: Vec<(StreamId, Option<u64>)>) {
        for (id, below) in limits {
            self.current.send_loose(Frame::Limit { run, id, below });
        }
    }
}
