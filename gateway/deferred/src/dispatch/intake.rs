//! Messages from the client's node: parts of requests, and cancellations.

use super::exchange::Answer;
use super::job::{JobKey, MAX_LIFETIME_MS, Record, Stage};
use crate::agenda::Party;
use crate::node::{Node, Order, Output};
use crate::store::{Kind, Side, Store, StoreError};
use crate::transfer::Outgoing;
use crate::wire::{Of, Part};

impl<S: Store> Node<S> {
    pub(crate) fn take_request(
        &mut self,
        now_ms: u64,
        key: JobKey,
        class: u8,
        repeatable: bool,
        lifetime_ms: u64,
        part: Part,
    ) -> Result<(), StoreError> {
        if !self.jobs.contains_key(&key) {
            let record = Record {
                class,
                repeatable,
                stage: Stage::Receiving,
                request: Some(part.object),
                response: None,
                own: false,
                reason: String::new(),
                expires_ms: now_ms + lifetime_ms.min(MAX_LIFETIME_MS),
                sent: 0,
                told: false,
            };
            let total = part.object.total_bytes;
            let most = self.limits.request_bytes;
            // A request that has begun has its room, so no incomplete request waits for the room of
            // another one.
            let room = total > most || self.request_room(Party::Peer(key.peer), total);
            if lifetime_ms == 0 || !room || !self.new_job(key, record)? {
                return Ok(());
            }
            if total > most {
                let text = format!("the dispatching node takes {most} bytes at most");
                self.answer(key, &Answer::new(413, "http_request_error", text))?;
            }
            self.put_job(key)?;
        }
        let next = self.store_part(key, &part)?;
        if let Some(next) = next {
            let ack = (Side::Dispatch, class, next);
            self.acks.insert((key.peer, key.key, Of::Request), ack);
        }
        Ok(())
    }

    /// Stores a part. Returns the lowest missing one, or nothing if the part belongs to another
    /// object.
    fn store_part(&mut self, key: JobKey, part: &Part) -> Result<Option<u32>, StoreError> {
        let Some(job) = self.jobs.get_mut(&key) else {
            return Ok(None);
        };
        if job.record.stage != Stage::Receiving {
            return Ok(Some(part.object.parts()));
        }
        if job.record.request != Some(part.object) {
            return Ok(None);
        }
        if job.incoming.contains(part.index) {
            return Ok(Some(job.incoming.next()));
        }
        job.incoming.insert(part.index);
        let next = job.incoming.next();
        if next == part.object.parts() {
            job.record.stage = Stage::Stored;
        }
        let object = key.record().object(Kind::Request);
        self.store.put_part(&object, part.index, &part.data)?;
        if next == part.object.parts() {
            self.put_job(key)?;
        }
        Ok(Some(next))
    }

    pub(crate) fn take_cancel(
        &mut self,
        now_ms: u64,
        key: JobKey,
        class: u8,
        lifetime_ms: u64,
    ) -> Result<(), StoreError> {
        let Some(job) = self.jobs.get_mut(&key) else {
            // Its parts may still come, and must then find that it is over.
            let record = Record {
                class,
                repeatable: false,
                stage: Stage::Cancelled,
                request: None,
                response: None,
                own: false,
                reason: String::new(),
                expires_ms: now_ms + lifetime_ms.min(MAX_LIFETIME_MS),
                sent: 0,
                told: false,
            };
            if self.new_job(key, record)? {
                self.end(key, Stage::Cancelled, "")?;
            }
            return Ok(());
        };
        match job.record.stage {
            Stage::Receiving | Stage::Stored | Stage::Sent => {
                if job.running {
                    self.outputs.push(Output::Order(Order::Abort(key)));
                }
                let text = match job.record.sent {
                    0 => "",
                    _ => "it had been sent to the origin",
                };
                self.end(key, Stage::Cancelled, text)
            }
            Stage::Answered => {
                job.transfers().for_each(Outgoing::again);
                Ok(())
            }
            Stage::Unknown | Stage::Expired | Stage::Cancelled => {
                job.word = Some(Outgoing::fresh(1));
                Ok(())
            }
        }
    }
}
