//! The worker's work for each shard, and its results.

use std::collections::VecDeque;

use crate::log::Put;
use crate::pending::Pending;
use crate::queue::{Done, Jobs};
use crate::turns::Turns;

/// A read at a random place takes a disk as long as reading so many bytes in a row.
const LEAST_READ_BYTES: u64 = 64 << 10;

/// The work for one shard.
#[derive(Debug, Default)]
struct Tasks {
    /// What is to be written.
    pending: Pending,
    /// What is to be read.
    reads: VecDeque<u64>,
    done: Vec<Done>,
}

/// The work for all shards. What is done in one step has a part of each.
#[derive(Debug)]
pub struct AllTasks {
    shards: Vec<Tasks>,
    /// Which shard's puts and which shard's reads come next.
    writing: Turns,
    reading: Turns,
}

/// Puts that are written together.
#[derive(Debug, Default)]
pub struct Taken {
    /// The shard of each, and its place among those of the shard.
    places: Vec<(usize, u64)>,
    pub puts: Vec<Put>,
}

impl AllTasks {
    pub fn new(shards: usize) -> AllTasks {
        AllTasks {
            shards: (0..shards).map(|_| Tasks::default()).collect(),
            writing: Turns::default(),
            reading: Turns::default(),
        }
    }

    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let AllTasks {
            shards,
            writing: _,
            reading: _,
        } = self;
        for Tasks {
            pending,
            reads,
            done,
        } in shards
        {
            pending.footprint(tell);
            tell("pending reads", reads.len());
            tell("work done", done.len());
        }
    }

    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    pub fn has_puts(&self) -> bool {
        self.shards.iter().any(|tasks| !tasks.pending.is_empty())
    }

    pub fn has_reads(&self) -> bool {
        self.shards.iter().any(|tasks| !tasks.reads.is_empty())
    }

    /// Takes a shard's requests to write and read. A bundle that is released before it was written
    /// is never written.
    pub fn add(&mut self, shard: usize, jobs: &mut Jobs) {
        let tasks = &mut self.shards[shard];
        for put in jobs.puts.drain(..) {
            tasks.pending.push(put);
        }
        for id in &jobs.releases {
            tasks.pending.withdraw(*id);
        }
        tasks.reads.append(&mut jobs.reads);
    }

    /// The shards that have work of a kind.
    fn busy(&self, has: impl Fn(&Tasks) -> bool) -> Vec<usize> {
        let shards = 0..self.shards.len();
        shards.filter(|shard| has(&self.shards[*shard])).collect()
    }

    /// Takes about `most` bytes of puts, to be written next.
    pub fn take_puts(&mut self, most: u64) -> Taken {
        let busy = self.busy(|tasks| !tasks.pending.is_empty());
        let mut taken = Taken::default();
        self.writing.share(&busy, most, |shard, most| {
            let mut bytes = 0;
            for (place, put) in self.shards[shard].pending.take(most) {
                bytes += put.bytes();
                taken.places.push((shard, place));
                taken.puts.push(put);
            }
            bytes
        });
        taken
    }

    /// Takes back what could not be written.
    pub fn put_back(&mut self, taken: Taken) {
        for ((shard, place), put) in taken.places.into_iter().zip(taken.puts) {
            self.shards[shard].pending.put_back(place, put);
        }
    }

    /// Reports to each shard which of its bundles are written.
    pub fn committed(&mut self, taken: &Taken) {
        let mut committed = vec![Vec::new(); self.shards.len()];
        for ((shard, _), put) in taken.places.iter().zip(&taken.puts) {
            committed[*shard].push(put.id);
        }
        for (shard, ids) in committed.into_iter().enumerate() {
            if !ids.is_empty() {
                self.tell(shard, Done::Committed(ids));
            }
        }
    }

    /// Takes about `most` bytes of payloads to be read next, each with its shard. `bytes_of` says
    /// how long a payload is, if it is still there.
    pub fn take_reads(
        &mut self,
        most: u64,
        bytes_of: impl Fn(u64) -> Option<u64>,
    ) -> Vec<(usize, u64)> {
        let busy = self.busy(|tasks| !tasks.reads.is_empty());
        let mut taken = Vec::new();
        self.reading.share(&busy, most, |shard, most| {
            let mut bytes = 0;
            while bytes < most
                && let Some(id) = self.shards[shard].reads.pop_front()
            {
                if let Some(payload) = bytes_of(id) {
                    bytes += payload.max(LEAST_READ_BYTES);
                    taken.push((shard, id));
                }
            }
            bytes
        });
        taken
    }

    /// Reports a result to a shard.
    pub fn tell(&mut self, shard: usize, done: Done) {
        self.shards[shard].done.push(done);
    }

    pub fn tell_all(&mut self, done: &Done) {
        for shard in 0..self.shards.len() {
            self.tell(shard, done.clone());
        }
    }

    /// The results for each shard, from the first to the last.
    pub fn take_done(&mut self) -> impl Iterator<Item = Vec<Done>> {
        let shards = self.shards.iter_mut();
        shards.map(|tasks| std::mem::take(&mut tasks.done))
    }
}
