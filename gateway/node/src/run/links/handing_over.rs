//! What sessions do while a node goes from one process to another.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::Links;
use crate::run::carriers::PathDialer;

impl Links {
    /// While held, neither dials nor accepts, except over QUIC; sessions that are up continue.
    pub fn hold(&self, held: bool) {
        for dialer in self.dialers().values() {
            dialer.hold(held);
        }
        for (_, listener) in &*self.listeners() {
            listener.hold(held);
        }
    }

    /// Whether this process has what comes to the ports of listeners over QUIC. No two processes
    /// can read there at once, so sessions there end when another one begins.
    pub fn read(&self, reads: bool) {
        for (_, listener) in &*self.listeners() {
            listener.read(reads);
        }
    }

    /// This process has the node now: begins what it could not begin before.
    pub fn begin(&self) {
        self.is_early.store(false, Ordering::Relaxed);
        self.read(true);
        for dialer in self.dialers().values() {
            if let PathDialer::Bare(_) = dialer {
                dialer.hold(false);
            }
        }
    }

    /// Numbers of the sessions of LTP whose blocks were not received to the end, by path; none
    /// while a session over UDP or LTP is up.
    pub fn unfinished_blocks(&self) -> Option<BTreeMap<String, Vec<u64>>> {
        let dialers = self.dialers();
        let bare = dialers.iter().filter_map(|(path, dialer)| match dialer {
            PathDialer::Bare(neighbour) => Some((path, neighbour)),
            _ => None,
        });
        bare.map(|(path, neighbour)| Some((path.clone(), neighbour.unfinished()?)))
            .filter(|left| left.as_ref().is_none_or(|(_, blocks)| !blocks.is_empty()))
            .collect()
    }

    /// Refuses these sessions, which the previous process has not received to the end, once the
    /// node uses those of this process.
    pub fn refuse_blocks(&self, unfinished: BTreeMap<String, Vec<u64>>) {
        let dialers = self.dialers();
        for (path, blocks) in unfinished {
            if let Some(PathDialer::Bare(neighbour)) = dialers.get(&path) {
                neighbour.refuse(blocks);
            }
        }
    }

    /// Neither dials nor accepts ever again.
    pub fn leave(&self) {
        self.dialers().clear();
        self.listeners().clear();
    }
}
