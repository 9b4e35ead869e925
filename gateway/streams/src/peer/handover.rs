//! All streams with a peer, as one process of the node hands them over to the next.
//!
//! The run of the node goes on: the incarnation stays, and the peer notices nothing.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use underpass_handover::{HandoverError, Moment, ensure};

use super::former_run::FormerRun;
use super::{Epoch, Peer};
use crate::mux::{Config, Counters, Mux, MuxState, Side};
use crate::wire::StreamId;

/// All streams with one peer, to be read and written by serde.
#[derive(Debug, Serialize, Deserialize)]
pub struct PeerState {
    current: MuxState,
    epoch: u64,
    next_epoch: u64,
    /// Empty in the form before: each run's streams are of its epoch.
    #[serde(default)]
    opened: Vec<(u64, u64)>,
    former_runs: Vec<FormerRunState>,
    settled_below: u64,
    look_at: Option<Moment>,
    settled_due: bool,
    past: Counters,
}

#[derive(Debug, Serialize, Deserialize)]
struct FormerRunState {
    incarnation: u64,
    epoch: u64,
    streams: MuxState,
    until: Moment,
}

impl Peer {
    /// Gives all streams to another process of this run of the node. Whatever
    /// can be polled for must have been taken, except for payloads.
    pub fn hand_over(self, now: Instant) -> PeerState {
        debug_assert!(self.events.is_empty() && self.limits.is_empty());
        let former_runs = self.former_runs.into_iter();
        let former_runs = former_runs.map(|(incarnation, former)| FormerRunState {
            incarnation,
            epoch: former.epoch.0,
            streams: former.mux.hand_over(now),
            until: Moment::of(former.until, now),
        });
        PeerState {
            former_runs: former_runs.collect(),
            current: self.current.hand_over(now),
            epoch: self.epoch.0,
            next_epoch: self.next_epoch.0,
            opened: self.opened.iter().map(|(id, of)| (id.0, of.0)).collect(),
            settled_below: self.settled_below,
            look_at: self.look_at.map(|at| Moment::of(at, now)),
            settled_due: self.settled_due,
            past: self.past,
        }
    }

    /// Takes over the streams of the process before. Events that a stream may be read or written
    /// are not repeated; the credit given to the peer is changed to that of `config`.
    ///
    /// # Errors
    /// When the state contradicts itself.
    pub fn take_over(
        config: Config,
        side: Side,
        now: Instant,
        state: PeerState,
    ) -> Result<Peer, HandoverError> {
        let current = Mux::take_over(config, side, now, state.current)?;
        let mut peer = Peer::new(config, side, current.incarnation());
        peer.current = current;
        (peer.epoch, peer.next_epoch) = (Epoch(state.epoch), Epoch(state.next_epoch));
        peer.settled_below = state.settled_below;
        peer.look_at = state.look_at.map(|at| at.instant(now));
        peer.settled_due = state.settled_due;
        peer.past = state.past;
        for former in state.former_runs {
            let FormerRunState {
                incarnation, epoch, ..
            } = former;
            let mux = Mux::take_over(config, side, now, former.streams)?;
            let earlier = Some(incarnation) < peer.peer_incarnation();
            ensure(earlier, "a former run of the peer is no earlier one")?;
            let run = FormerRun {
                epoch: Epoch(epoch),
                mux,
                until: former.until.instant(now),
            };
            peer.former_runs.insert(incarnation, run);
        }
        let own = |run: &Mux, epoch: Epoch| {
            let any = run.next_id() > run.first_valid();
            any.then_some((run.first_valid(), epoch))
        };
        peer.opened = match state.opened.is_empty() {
            true => {
                let runs = peer.former_runs.values();
                let former = runs.filter_map(|run| own(&run.mux, run.epoch));
                former
                    .chain([(peer.current.first_valid(), peer.epoch)])
                    .collect()
            }
            false => {
                let opened = state.opened.into_iter();
                opened.map(|(id, of)| (StreamId(id), Epoch(of))).collect()
            }
        };
        let runs = peer.former_runs.values();
        let mut epochs: Vec<Epoch> = runs.map(|run| run.epoch).chain([peer.epoch]).collect();
        epochs.sort_unstable();
        let distinct = epochs.windows(2).all(|two| two[0] < two[1]);
        let next = epochs.last() < Some(&peer.next_epoch);
        ensure(distinct && next, "two runs of the peer have one name")?;
        peer.current.set_windows(config.windows);
        Ok(peer)
    }
}
