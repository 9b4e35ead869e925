//! Checks the books of a [`Mux`], for its laws.

use super::Mux;
use crate::stream::{Life, Receiving, Sending, Stream};
use crate::wire::StreamId;

impl Mux {
    /// Streams whose OPEN waits, or is withheld and can be sent anew, and that no payload can bring
    /// to a later run of the peer.
    pub(crate) fn unheard(&self) -> impl Iterator<Item = StreamId> + '_ {
        let streams = self.streams.iter();
        let begins = |s: &Stream| match &s.send.beginning {
            Some(beginning) => beginning.is_unheard(None),
            None => s.open.is_some(),
        };
        let unheard = streams.filter(move |(id, s)| begins(s) && **id >= self.unaddressed_below);
        unheard.map(|(id, _)| *id)
    }

    /// Asserts that every sum is right.
    pub(crate) fn check(&self) {
        let floor = self.peer_credit.floor;
        let beyond = |bytes: u64, floor: u64| bytes.saturating_sub(floor);
        let streams = || self.streams.values();
        let charged: u64 = streams().map(|s| beyond(s.send.outstanding(), floor)).sum();
        assert_eq!(self.charged, charged);
        let under_way: u64 = streams().map(|s| u64::from(s.unacknowledged)).sum();
        assert_eq!(self.under_way, under_way);
        let excess: u64 = streams()
            .map(|s| beyond(s.recv.in_use().received, self.floor()))
            .sum();
        assert_eq!(self.excess, excess);
        let promised: u64 = streams()
            .map(|s| beyond(s.recv.in_use().promised, self.floor()))
            .sum();
        assert_eq!(self.promised_excess, promised);
        let early = streams().filter(|s| s.life == Life::Early).count();
        assert_eq!(self.early, early);
        assert_eq!(self.by_age.len(), self.streams.len());
        assert!(excess <= self.granted.peer_window_bytes);
        let untold: u64 = streams()
            .filter(|s| !self.former && !s.control.credit)
            .map(|s| s.recv.unreturned())
            .filter(|untold| *untold >= self.floor() / 2)
            .sum();
        assert_eq!(self.untold, untold);
        let buffered: usize = streams().map(|s| s.send.pieces.len()).sum();
        assert_eq!(self.buffered, buffered);
        let beginnings = || streams().filter_map(|s| Some((s, s.send.beginning.as_ref()?)));
        let copied: usize = beginnings().map(|(_, begins)| begins.bytes.len()).sum();
        assert_eq!(self.beginning_bytes, copied);
        for (stream, begins) in beginnings() {
            assert!(stream.open.is_none());
            assert_eq!(stream.send.ahead.opens(), begins.left.is_none());
            assert!(begins.left.is_some() || stream.send.released() == 0);
            assert_eq!(stream.send.sent, begins.bytes.len() as u64);
            assert_eq!(stream.send.state == Sending::Done, begins.fin);
        }
        let runs: usize = streams().map(|s| s.recv.assembler.runs()).sum();
        assert_eq!(self.runs, runs);
        assert!(self.streams.len() <= self.config.max_streams);
        for (class, queue) in self.classes.iter().enumerate() {
            let queued =
                || streams().filter(|s| s.queued.is_some_and(|q| q.class.0 as usize == class));
            let sparse = queued().filter(|s| s.sparse).count();
            assert_eq!(queue.flows, queued().count());
            assert_eq!(queue.sparse_flows, sparse);
            assert_eq!(queue.light_flows, queued().filter(|s| s.light).count());
            assert_eq!(queue.opening, queued().filter(|s| s.open.is_some()).count());
            let bytes = |s: &Stream| s.send.pieces.len() as u64 + s.send.ahead.bytes();
            assert_eq!(queue.bytes, queued().map(bytes).sum::<u64>());
            let mut load = underpass_completion::Load::default();
            if super::lane::is_lane(underpass_cla::Class(class as u8)) {
                let left = |s: &Stream| s.queued.map_or(0, |queued| queued.left_bytes);
                queued().for_each(|s| load.add(left(s)));
            }
            assert_eq!(queue.load, load);
        }
        let blocked = streams().filter(|s| s.blocked.is_some()).count();
        assert_eq!(self.blocked.len(), blocked);
        for (class, _, id) in &self.blocked {
            let goes_on = self.waits_for_credit(*id) || self.has_pending(*class);
            assert!(goes_on, "{id} waits for nothing");
        }
        for (id, stream) in &self.streams {
            assert_eq!(self.unsealed.contains(id), stream.has_output(), "{id}");
        }
        let writers = streams().filter(|s| s.writer.place.is_some()).count();
        assert_eq!(self.writers.len(), writers);
        for (id, stream) in &self.streams {
            assert_eq!(stream.control.listed, self.control.contains(id));
            let gathers = stream.unacknowledged >= self.least_gathering();
            let waits = stream.queued.is_some() || stream.blocked.is_some() || gathers;
            assert!(waits || !stream.has_output(), "{id} forgotten: {stream:?}");
            if self.former {
                assert_eq!(stream.send.state, Sending::Done);
                assert!(self.control.is_empty() && self.loose.is_empty());
            }
            if stream.life == Life::Draining {
                // The rest of a stream that begins anew is sealed again.
                assert_ne!(stream.send.state, Sending::Open);
                assert_eq!(stream.recv.state, Receiving::Done);
            }
        }
    }
}
