//! What goes to the disk, and comes back from it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Action, Entry, Lane, Queue, Queued, Saved, newest};
use crate::document::{MAX_BYTES, MAX_REPORTS};

/// A report that was not accepted within this time is saved.
const WRITE_BEHIND: Duration = Duration::from_millis(250);

/// A disk that fails is asked again after this.
const DISK_PAUSE: Duration = Duration::from_secs(5);

impl Queue {
    /// The entries to save are on disk, or could not be written.
    pub fn saved(&mut self, now: Instant, written: bool) {
        for id in std::mem::take(&mut self.saving) {
            let Some(queued) = self.in_memory.get_mut(&id) else {
                continue;
            };
            if written {
                queued.saved = Saved::Yes;
                let ticket = queued.ticket.take();
                self.release(ticket);
            } else {
                queued.saved = Saved::No;
                self.unsaved.push_front((now, id));
            }
        }
        self.disk_at = (!written).then_some(now + DISK_PAUSE);
        self.bound();
    }

    /// The loaded entries, without those that the disk has lost; or none if the disk could not be
    /// read.
    pub fn loaded(&mut self, now: Instant, entries: Option<Vec<Entry>>) {
        let mut asked = std::mem::take(&mut self.loading);
        let Some(entries) = entries else {
            self.disk_bytes += asked.values().map(|(_, bytes)| bytes).sum::<u64>();
            self.disk.append(&mut asked);
            self.disk_at = Some(now + DISK_PAUSE);
            return;
        };
        for entry in entries {
            let Some((node, bytes)) = asked.remove(&entry.id) else {
                continue;
            };
            self.nodes.remove(node, entry.id, bytes);
            self.nodes.add(entry.node, entry.id, entry.bytes());
            self.routine.waiting.insert(entry.id);
            self.memory_bytes += entry.bytes();
            let queued = Queued {
                entry: Arc::new(entry),
                lane: Lane::Routine,
                saved: Saved::Yes,
                in_flight: false,
                ticket: None,
            };
            self.in_memory.insert(queued.entry.id, queued);
        }
        for (id, (node, bytes)) in &asked {
            self.nodes.remove(*node, *id, *bytes);
        }
        self.figures.dropped += asked.len() as u64;
        if !asked.is_empty() {
            let lost = asked.into_keys().collect();
            self.actions.push_back(Action::Forget(lost));
        }
        self.routine_at = self.routine_at.min(now);
    }

    /// Saves everything at once, since the node ends. Returns whether anything is not saved yet.
    pub fn flush(&mut self, now: Instant) -> bool {
        for (since, _) in &mut self.unsaved {
            *since = now.checked_sub(WRITE_BEHIND).unwrap_or(now);
        }
        let unsaved = |queued: &Queued| queued.saved != Saved::Yes;
        self.limits.durable && self.in_memory.values().any(unsaved)
    }

    pub(super) fn save_due(&mut self, now: Instant) {
        self.skip_done();
        let due = self.save_at().is_some_and(|at| at <= now);
        if !due || !self.saving.is_empty() {
            return;
        }
        let mut entries = Vec::new();
        for (_, id) in std::mem::take(&mut self.unsaved) {
            if let Some(queued) = self.in_memory.get_mut(&id) {
                queued.saved = Saved::Asked;
                entries.push(Arc::clone(&queued.entry));
                self.saving.push(id);
            }
        }
        self.actions.push_back(Action::Save(entries));
    }

    /// Loads entries that are only on disk, while the service answers.
    pub(super) fn load_due(&mut self, now: Instant) {
        if !self.wants_load() || self.disk_at.is_some_and(|at| now < at) {
            return;
        }
        let ids: BTreeSet<u64> = self.disk.keys().rev().take(MAX_REPORTS).copied().collect();
        let bytes_of = |id| self.disk.get(&id).map_or(0, |(_, bytes)| *bytes);
        let ids = newest(&ids, MAX_REPORTS, bytes_of, MAX_BYTES as u64);
        for id in &ids {
            if let Some((node, bytes)) = self.disk.remove(id) {
                self.disk_bytes -= bytes;
                self.loading.insert(*id, (node, bytes));
            }
        }
        self.actions.push_back(Action::Load(ids));
    }

    /// When the disk is to be asked for something.
    pub(super) fn disk_at(&self) -> Option<Instant> {
        let save = self.save_at().filter(|_| self.saving.is_empty());
        // Unless the disk pauses, the call that made room has done it.
        let load = self.disk_at.filter(|_| self.wants_load());
        save.into_iter().chain(load).min()
    }

    /// Leaves the oldest in memory to the disk; false if it cannot be.
    pub(super) fn evict_first(&mut self) -> bool {
        let first = self.in_memory.first_key_value();
        let first = first.filter(|(_, queued)| queued.saved == Saved::Yes && !queued.in_flight);
        let Some(id) = first.map(|(id, _)| *id) else {
            return false;
        };
        if let Some(queued) = self.in_memory.remove(&id) {
            let bytes = queued.entry.bytes();
            self.memory_bytes -= bytes;
            self.disk_bytes += bytes;
            self.disk.insert(id, (queued.entry.node, bytes));
            self.lane(queued.lane).waiting.remove(&id);
        }
        true
    }

    fn wants_load(&self) -> bool {
        let waiting = self.routine.waiting.len();
        let idle = self.routine.in_flight.is_empty() && waiting < MAX_REPORTS;
        idle && self.reachable && self.loading.is_empty() && !self.disk.is_empty()
    }

    fn save_at(&self) -> Option<Instant> {
        let (since, _) = self.unsaved.front()?;
        let due = *since + WRITE_BEHIND;
        Some(self.disk_at.map_or(due, |at| due.max(at)))
    }

    /// Those accepted before they had to be saved.
    fn skip_done(&mut self) {
        while let Some((_, id)) = self.unsaved.front()
            && !self.in_memory.contains_key(id)
        {
            self.unsaved.pop_front();
        }
    }
}
