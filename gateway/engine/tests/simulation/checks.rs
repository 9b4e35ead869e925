//! Conditions at any time, and at the end.

use std::collections::BTreeSet;

use underpass_bundle::CustodyFigures;
use underpass_engine::Engine;

use crate::apps::{Ended, StreamRun};
use crate::custody::{Name, custody_of};
use crate::line::Pair;
use crate::world::World;

/// The floor of credit that every stream may use, whatever its window.
const FLOOR_BYTES: u64 = 64 << 10;
/// Administrative records may exceed the store's quota by an eighth.
const RECORDS: u64 = 8;
/// The bytes that some simultaneous signal bundles count for in the quota.
const SIGNALS_BYTES: u64 = 64 << 10;
/// The number of these at once: as many as a transport with large buffers takes.
const SIGNALS: usize = 64;

impl World {
    /// Checks what must hold at any time.
    pub fn check(&mut self) {
        let now = self.instant();
        let nodes = self.nodes.iter();
        // Once for all checks: it decodes the head of every stored bundle.
        let custody = nodes.map(|node| custody_of(&node.engines, now));
        let custody: Vec<BTreeSet<Name>> = custody.collect();
        self.check_stores();
        self.check_windows();
        self.check_custody(&custody);
        for (node, custody) in custody.into_iter().enumerate() {
            self.note_durable(node, custody);
        }
    }

    fn check_stores(&self) {
        let now = self.instant();
        for (number, node) in self.nodes.iter().enumerate() {
            let custody = node.engines.iter().map(|engine| engine.custody(now));
            let custody: Vec<CustodyFigures> = custody.collect();
            let used: u64 = custody.iter().map(|custody| custody.used_bytes).sum();
            let quota = self.schedule.nodes[number].store_bytes;
            let most = quota + quota / RECORDS + SIGNALS_BYTES;
            assert!(used <= most, "node {number} keeps {used} bytes of {quota}");
            let undelivered = custody.iter().map(|custody| custody.undelivered_bytes);
            let undelivered: u64 = undelivered.sum();
            assert!(undelivered <= quota, "{undelivered} wait at node {number}");
            let count = self.schedule.nodes[number].store_bundles;
            let most = count + count / RECORDS as usize + SIGNALS;
            let bundles: usize = custody.iter().map(|custody| custody.bundles).sum();
            assert!(bundles <= most, "node {number}: {custody:?}");
        }
    }

    fn check_windows(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            let plan = &self.schedule.nodes[number];
            let most = plan.window_bytes.max(FLOOR_BYTES);
            let streams = node.engines.iter();
            for (_, _, info) in streams.flat_map(|engine| engine.streams(usize::MAX)) {
                assert!(info.unread_bytes <= most, "node {number}: {info:?}");
                assert!(
                    info.send_buffered_bytes <= plan.send_buffer_bytes,
                    "{info:?}"
                );
            }
        }
    }

    /// Whether faults have ceased and everything has been carried. The run looks only now
    /// and then.
    pub fn is_drained(&self) -> bool {
        if !self.calm || !self.happened.is_multiple_of(16) {
            return false;
        }
        let now = self.instant();
        let unfinished = |pair: &Pair| {
            let mut ends = pair.up.iter().zip(&pair.flows);
            ends.any(|(up, flow)| *up && !flow.unfinished.is_empty())
        };
        let empty = |engine: &Engine| {
            engine.stored_bundles(now, 1).is_empty() && engine.streams(1).is_empty()
        };
        let sent = self.messages.iter().all(|run| run.taken.is_some());
        let ended = |run: &StreamRun| run.ends[0].ended.is_some();
        sent && self.streams.iter().all(ended)
            && !self.pairs.iter().any(unfinished)
            && self
                .nodes
                .iter()
                .all(|node| node.is_up() && !node.is_passing() && node.engines.iter().all(empty))
    }

    /// Checks what must hold when nothing happens any more.
    pub fn check_end(&self) {
        let now = self.instant();
        for (number, node) in self.nodes.iter().enumerate() {
            assert!(node.is_up(), "node {number} was not started again");
            for engine in &node.engines {
                let stored = engine.stored_bundles(now, 10);
                assert!(stored.is_empty(), "node {number} still has {stored:?}");
                let used = engine.custody(now).used_bytes;
                assert_eq!(used, 0, "node {number} counts what it does not have");
                let streams = engine.streams(10);
                assert!(
                    streams.is_empty(),
                    "node {number} still has {streams:?}: {}",
                    self.describe()
                );
            }
        }
        for serial in 0..self.streams.len() {
            self.check_stream_end(serial);
        }
        self.check_messages();
    }

    fn check_stream_end(&self, serial: usize) {
        let stream = &self.streams[serial];
        let [opener, acceptor] = &stream.ends;
        assert!(
            opener.ended.is_some(),
            "stream {serial} hangs: {}",
            self.describe()
        );
        assert!(
            acceptor.ended.is_some() || acceptor.key.is_none(),
            "stream {serial} hangs at its acceptor: {}",
            self.describe()
        );
        for end in 0..2 {
            let own = &stream.ends[end];
            // Applications that have given up, and nodes that have stopped, are owed
            // nothing.
            let lives = matches!(own.ended, Some(Ended::Closed | Ended::Reset(_)));
            assert!(
                !lives || stream.unheard || self.schedule.flips() || own.received >= own.promised,
                "stream {serial} end {end}: custody of {} bytes is not kept: {}",
                own.promised,
                self.describe()
            );
        }
        let given = stream.plan.ends.iter().any(|end| end.reset_after.is_some());
        let died = (0..2).any(|end| self.schedule.restarts(stream.node_of(end)));
        if given || died || self.schedule.flips() || self.is_tight(serial) {
            return;
        }
        for end in 0..2 {
            let (own, peer) = (&stream.ends[end], &stream.plan.ends[1 - end]);
            assert_eq!(
                own.ended,
                Some(Ended::Closed),
                "stream {serial}: {}",
                self.describe()
            );
            assert_eq!(
                own.received, peer.send_bytes,
                "stream {serial} is not whole"
            );
        }
    }

    /// The description of the run in a failure's message.
    pub fn describe(&self) -> String {
        let mut text = format!("at {:?}\n", self.now);
        for (serial, stream) in self.streams.iter().enumerate() {
            text += &format!("stream {serial}: {stream:?}\n");
        }
        for (number, node) in self.nodes.iter().enumerate() {
            let now = self.instant();
            for (shard, engine) in node.engines.iter().enumerate() {
                text += &format!("node {number}, shard {shard}: {:?}\n", engine.custody(now));
                for stored in engine.stored_bundles(now, 20) {
                    text += &format!("  {stored:?}\n");
                }
                for info in engine.streams(20) {
                    text += &format!("  {info:?}\n");
                }
                text += &format!("  {:?}\n", engine.hops());
            }
        }
        text + &format!("{:#?}", self.schedule)
    }
}
