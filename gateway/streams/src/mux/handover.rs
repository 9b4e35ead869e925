//! The streams between two runs, as one process hands them over to the next.
//!
//! What waits in queues is queued anew: only the order of turns is lost.

use std::time::Instant;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use underpass_cla::Class;
use underpass_handover::{HandoverError, ensure};
use underpass_work::each;

use super::credit::PeerCredit;
use super::indices::Indices;
use super::queue::Place;
use super::{Config, Counters, Mux, Side, Windows};
use crate::stream::{InUse, Receiving, Sending, StreamState, sum};
use crate::wire::{Announcement, StreamId, VARINT_MAX, frames_of, packed};

/// All of a [`Mux`] that does not follow from the configuration or from the other fields.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MuxState {
    incarnation: u64,
    peer_incarnation: Option<u64>,
    former: bool,
    announcement: (bool, bool),
    peer_announcement: Option<(bool, bool)>,
    hello_sequence: u64,
    hello_due: bool,

    next_id: u64,
    first_valid: u64,
    /// Absent in the form before: all streams so far.
    unaddressed_below: Option<u64>,
    peer_first_valid: u64,
    peer_first_valid_is_final: bool,
    closed: Vec<(u64, u64)>,
    refused: Vec<(u64, u64)>,
    streams: Vec<StreamState>,

    /// Run, stream, class and payloads.
    restored: Vec<(u64, u64, u8, u64)>,
    /// A payload with the control frames about no stream.
    loose: Bytes,

    credit_sequence: Option<u64>,
    credit_stream_window: u64,
    credit_peer_window: u64,
    credit_floor: u64,
    window_stream: u64,
    window_peer: u64,
    granted_stream: u64,
    granted_peer: u64,
    floor: u64,
    counters: Counters,
}

fn families(announcement: Announcement) -> (bool, bool) {
    (announcement.ipv4, announcement.ipv6)
}

fn announced((ipv4, ipv6): (bool, bool)) -> Announcement {
    Announcement { ipv4, ipv6 }
}

fn ranges(indices: &Indices) -> Vec<(u64, u64)> {
    let ranges = each(indices.iter());
    ranges.map(|range| (*range.start(), *range.end())).collect()
}

fn indices(ranges: Vec<(u64, u64)>) -> Result<Indices, HandoverError> {
    let forward = ranges.iter().all(|(first, last)| first <= last);
    ensure(forward, "a range of streams runs backwards")?;
    Ok(ranges
        .into_iter()
        .map(|(first, last)| first..=last)
        .collect())
}

impl Mux {
    /// Events and all that is polled for must have been taken.
    pub(crate) fn hand_over(mut self, now: Instant) -> MuxState {
        debug_assert!(self.events.is_empty() && self.limits.is_empty());
        let ids = self.sorted_ids();
        let mut restored: Vec<_> = self
            .restored
            .iter()
            .map(|((run, id), flow)| (*run, id.0, flow.class.0, flow.payloads as u64))
            .collect();
        restored.sort_unstable();
        let streams = ids.into_iter().filter_map(|id| {
            let stream = self.streams.remove(&id)?;
            Some(stream.hand_over(id, now))
        });
        MuxState {
            streams: streams.collect(),
            incarnation: self.incarnation,
            peer_incarnation: self.peer_incarnation,
            former: self.former,
            announcement: families(self.announcement),
            peer_announcement: self.peer_announcement.map(families),
            hello_sequence: self.hello_sequence,
            hello_due: self.hello_due,
            next_id: self.next_id.0,
            first_valid: self.first_valid.0,
            unaddressed_below: Some(self.unaddressed_below.0),
            peer_first_valid: self.peer_first_valid.0,
            peer_first_valid_is_final: self.peer_first_valid_is_final,
            closed: ranges(&self.closed),
            refused: ranges(&self.refused),
            restored,
            loose: packed(&self.loose),
            credit_sequence: self.peer_credit.sequence,
            credit_stream_window: self.peer_credit.stream_window,
            credit_peer_window: self.peer_credit.peer_window,
            credit_floor: self.peer_credit.floor,
            window_stream: self.config.windows.stream_window_bytes,
            window_peer: self.config.windows.peer_window_bytes,
            granted_stream: self.granted.stream_window_bytes,
            granted_peer: self.granted.peer_window_bytes,
            floor: self.config.floor_bytes,
            counters: self.counters,
        }
    }

    /// Takes streams over. Windows stay those that the peer was told;
    /// [`Mux::set_windows`] changes them.
    pub(crate) fn take_over(
        config: Config,
        side: Side,
        now: Instant,
        state: MuxState,
    ) -> Result<Mux, HandoverError> {
        let config = Config {
            windows: Windows {
                stream_window_bytes: state.window_stream,
                peer_window_bytes: state.window_peer,
            },
            floor_bytes: state.floor,
            ..config
        };
        let mut mux = Mux::new(config, side, state.incarnation);
        mux.peer_incarnation = state.peer_incarnation;
        mux.former = state.former;
        mux.announcement = announced(state.announcement);
        mux.peer_announcement = state.peer_announcement.map(announced);
        mux.hello_sequence = state.hello_sequence;
        mux.hello_due = state.hello_due;
        mux.next_id = StreamId(state.next_id);
        mux.first_valid = StreamId(state.first_valid);
        mux.peer_first_valid = StreamId(state.peer_first_valid);
        mux.peer_first_valid_is_final = state.peer_first_valid_is_final;
        mux.unaddressed_below = state.unaddressed_below.map_or(mux.next_id, StreamId);
        let mut ids = [mux.next_id, mux.first_valid, mux.unaddressed_below].into_iter();
        let own = ids.all(|id| mux.is_own(id));
        ensure(own, "the next stream would be the peer's")?;
        mux.closed = indices(state.closed)?;
        mux.refused = indices(state.refused)?;
        mux.loose = frames_of(&state.loose)?.into();
        mux.peer_credit = PeerCredit {
            sequence: state.credit_sequence,
            stream_window: state.credit_stream_window,
            peer_window: state.credit_peer_window,
            floor: state.credit_floor,
        };
        mux.granted = Windows {
            stream_window_bytes: state.granted_stream,
            peer_window_bytes: state.granted_peer,
        };
        mux.counters = state.counters;
        let windows = [
            mux.peer_credit.stream_window,
            mux.peer_credit.peer_window,
            mux.peer_credit.floor,
            mux.granted.stream_window_bytes,
            mux.granted.peer_window_bytes,
        ];
        let bounded = windows.iter().all(|window| *window <= VARINT_MAX);
        ensure(bounded, "a window is larger than there are offsets")?;
        mux.take_streams_over(now, state.streams)?;
        for (run, id, class, payloads) in state.restored {
            let payloads = usize::try_from(payloads).unwrap_or(usize::MAX);
            mux.let_restored_leave(run, StreamId(id), Class(class), payloads);
        }
        mux.writers_retry = true;
        Ok(mux)
    }

    fn is_own(&self, id: StreamId) -> bool {
        !self.is_peers(id) && id.0 <= VARINT_MAX
    }

    fn take_streams_over(
        &mut self,
        now: Instant,
        streams: Vec<StreamState>,
    ) -> Result<(), HandoverError> {
        let mut listed = Vec::new();
        let mut ids = Vec::with_capacity(streams.len());
        for state in streams {
            let id = StreamId(state.id);
            let (stream, is_listed) = state.take_over(now)?;
            let there = self.streams.contains_key(&id);
            ensure(!there && id.0 <= VARINT_MAX, "a stream is there twice")?;
            let quiet = stream.send.state == Sending::Done && stream.open.is_none();
            ensure(
                !self.former || quiet && !is_listed,
                "a run that is over sends",
            )?;
            self.insert_stream(id, stream);
            ids.push(id);
            if is_listed {
                listed.push(id);
            }
        }
        ids.sort_unstable();
        self.count_streams()?;
        for id in listed {
            self.list_control(id);
        }
        for id in ids {
            self.enqueue(id, Place::New);
            self.look_at_writer(id);
        }
        Ok(())
    }

    /// Counts anew what the streams have together.
    fn count_streams(&mut self) -> Result<(), HandoverError> {
        const MUCH: &str = "streams have more together than there can be";
        let streams = || self.streams.values();
        let outstanding = sum(streams().map(|stream| stream.send.outstanding()));
        let promised = sum(streams().map(|stream| stream.recv.in_use().promised));
        ensure(outstanding.is_some() && promised.is_some(), MUCH)?;
        self.recharge();
        let least = self.floor() / 2;
        let ids = self.sorted_ids();
        for id in ids {
            let former = self.former;
            let Some(stream) = self.streams.get_mut(&id) else {
                continue;
            };
            self.under_way += u64::from(stream.unacknowledged);
            self.buffered += stream.send.pieces.len();
            let beginning = stream.send.beginning.as_ref();
            self.beginning_bytes += beginning.map_or(0, |beginning| beginning.bytes.len());
            self.runs += stream.recv.assembler.runs();
            let untold = stream.recv.unreturned();
            let open = stream.recv.state == Receiving::Open;
            if open && !former && !stream.control.credit && untold >= least {
                stream.consumed_listed = true;
                self.untold += untold;
                self.untold_streams.push(id);
            }
            let in_use = stream.recv.in_use();
            self.recount(InUse::default(), in_use);
        }
        Ok(())
    }
}
