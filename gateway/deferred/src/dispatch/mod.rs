//! The dispatching side: requests of peers' clients, sent to their origins.
//!
//! Two things prevent that a request is sent twice. The fact that it is being sent is committed
//! before its first byte is sent ([`Dispatched::Connected`] to
//! [`Order::Transmit`](crate::Order::Transmit)). And its key is remembered for longer than a
//! message that would create it again can be in transit.
//!
//! Here the node's jobs are loaded, kept, ended and forgotten. [`job`] is one of them, [`intake`]
//! takes requests and cancellations, [`shares`] bounds their number per peer, [`exchange`] handles
//! the origins, and [`outcome`] informs the client's node.

mod exchange;
mod intake;
mod job;
mod outcome;
mod shares;

use crate::node::Node;
use crate::store::{Kind, Side, Store, StoreError};
use crate::transfer::{Incoming, Outgoing};
use crate::wire::shortened;
use job::{Record, Stage};

pub use exchange::{Answer, Dispatched};
pub(crate) use job::Job;
pub use job::JobKey;
pub(crate) use shares::Shares;

impl<S: Store> Node<S> {
    pub(crate) fn load_jobs(&mut self, now_ms: u64) -> Result<(), StoreError> {
        for (key, text) in self.store.records(Side::Dispatch)? {
            let number = self.next_number;
            self.next_number += 1;
            let mut job = Job::new(number, key.peer, serde_json::from_str(&text)?);
            if job.record.stage == Stage::Receiving {
                job.incoming = Incoming::of(self.store.parts(&key.object(Kind::Request))?);
            }
            let interrupted = job.record.stage == Stage::Sent;
            self.add_job(JobKey::of(&key), job);
            if interrupted {
                let text = "the dispatching node stopped while the origin had it";
                self.break_off(now_ms, JobKey::of(&key), text)?;
            }
            let Some(job) = self.jobs.get_mut(&JobKey::of(&key)) else {
                continue;
            };
            if !job.record.told {
                job.word = job.fate().map(|_| Outgoing::resumed(1));
                let answered = job.record.response.filter(|_| job.keeps_response());
                job.parts = answered.map(|object| Outgoing::resumed(object.parts()));
            }
        }
        Ok(())
    }

    fn put_job(&mut self, key: JobKey) -> Result<(), StoreError> {
        let Some(job) = self.jobs.get(&key) else {
            return Ok(());
        };
        let text = serde_json::to_string(&job.record)?;
        self.store.put_record(&key.record(), &text)
    }

    /// Begins a job, if its peer may have one more.
    fn new_job(&mut self, key: JobKey, record: Record) -> Result<bool, StoreError> {
        let number = self.next_number;
        let job = Job::new(number, key.peer, record);
        let admitted = match job.is_early() {
            true => self.make_room_for_early(key.peer)?,
            false => self.shares.admits(key.peer, self.limits.requests),
        };
        if admitted {
            self.next_number += 1;
            self.add_job(key, job);
        }
        Ok(admitted)
    }

    fn add_job(&mut self, key: JobKey, job: Job) {
        match job.is_early() {
            true => self.shares.add_early(key, job.number),
            false => self.shares.add(key.peer),
        }
        self.jobs.insert(key, job);
    }

    fn forget_job(&mut self, key: JobKey) -> Result<(), StoreError> {
        if let Some(job) = self.jobs.remove(&key) {
            match job.is_early() {
                true => self.shares.remove_early(key, job.number),
                false => self.shares.remove(key.peer),
            }
        }
        self.store.delete_record(&key.record())?;
        for kind in [Kind::Request, Kind::Response] {
            self.store.delete_object(&key.record().object(kind))?;
        }
        Ok(())
    }

    /// If a peer has cancelled too many requests before they came, forgets the oldest one whose end
    /// the peer has acknowledged. A peer that never acknowledges gets no more of them.
    fn make_room_for_early(&mut self, peer: u64) -> Result<bool, StoreError> {
        if !self.shares.is_full_of_early(peer) {
            return Ok(true);
        }
        let told = |key: &JobKey| self.jobs.get(key).is_some_and(|job| job.record.told);
        let Some(oldest) = self.shares.early(peer).find(told) else {
            return Ok(false);
        };
        self.forget_job(oldest)?;
        Ok(true)
    }

    /// Ends a request without a response, and says so.
    fn end(&mut self, key: JobKey, stage: Stage, reason: &str) -> Result<(), StoreError> {
        if let Some(job) = self.jobs.get_mut(&key) {
            job.record.stage = stage;
            job.record.reason = shortened(reason).to_owned();
            job.word = Some(Outgoing::fresh(1));
            job.parts = None;
        }
        for kind in [Kind::Request, Kind::Response] {
            self.store.delete_object(&key.record().object(kind))?;
        }
        self.put_job(key)
    }

    pub(crate) fn expire_jobs(&mut self, now_ms: u64) -> Result<(), StoreError> {
        self.jobs.refresh(&self.limits);
        let mut over = Vec::new();
        let mut gone = Vec::new();
        for key in self.jobs.due(now_ms) {
            let Some(job) = self.jobs.get_mut(&key) else {
                continue;
            };
            if job.retry_at_ms <= now_ms {
                job.retry_at_ms = 0;
            }
            job.transfers()
                .for_each(|transfer| transfer.handle_timeout(now_ms));
            if job.ends_ms(&self.limits) > now_ms {
                continue;
            }
            match job.record.stage {
                Stage::Receiving => over.push((key, "it did not come whole")),
                Stage::Stored if job.record.sent == 0 => over.push((key, "it was not sent")),
                Stage::Stored => over.push((key, "it was sent, and no answer came")),
                _ => gone.push(key),
            }
        }
        for (key, text) in over {
            self.end(key, Stage::Expired, text)?;
        }
        for key in gone {
            self.forget_job(key)?;
        }
        Ok(())
    }
}
