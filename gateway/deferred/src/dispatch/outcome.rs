//! Messages to the client's node: responses, part by part, and notices of a request's outcome; and
//! its acknowledgements of these.

use super::job::{JobKey, Stage};
use crate::node::{ACTIVE, Name, NameKind, Node, Output};
use crate::store::{Kind, Side, Store, StoreError};
use crate::wire::{Body, Fate, Message, Part};

impl<S: Store> Node<S> {
    /// Sends peers the outcome of their requests, and begins exchanges, where something has
    /// changed.
    pub(crate) fn go_on_with_jobs(&mut self, now_ms: u64) -> Result<(), StoreError> {
        self.jobs.refresh(&self.limits);
        for peer in self.jobs.take_touched() {
            if !self.is_paused(peer) {
                self.send_outcomes(now_ms, peer)?;
            }
            self.start_exchanges(peer)?;
        }
        self.jobs.refresh(&self.limits);
        // What was sent now needs no second look.
        self.jobs.take_touched();
        Ok(())
    }

    fn send_outcomes(&mut self, now_ms: u64, peer: u64) -> Result<(), StoreError> {
        for key in self.jobs.saying(peer) {
            self.send_notice(now_ms, key);
        }
        for key in self.jobs.sending(peer, ACTIVE) {
            self.send_response(now_ms, key)?;
        }
        Ok(())
    }

    fn send_notice(&mut self, now_ms: u64, key: JobKey) {
        let Some(job) = self.jobs.get_mut(&key) else {
            return;
        };
        let fate = job.fate();
        let word = job.word.as_mut().filter(|word| word.next().is_some());
        if let (Some(fate), Some(word)) = (fate, word) {
            word.sent(now_ms);
            self.tell(now_ms, key, fate, NameKind::Word);
        }
    }

    pub(super) fn tell(&mut self, now_ms: u64, key: JobKey, fate: Fate, kind: NameKind) {
        let Some(job) = self.jobs.get(&key) else {
            return;
        };
        self.outputs.push(Output::Send {
            peer: key.peer,
            class: job.record.class,
            lifetime_ms: job
                .kept_until_ms(&self.limits)
                .saturating_sub(now_ms)
                .max(1),
            name: Name {
                key: key.key,
                side: Side::Dispatch,
                kind,
            },
            message: Message {
                key: key.key,
                body: Body::Notice {
                    fate,
                    text: job.record.reason.clone(),
                },
            },
        });
    }

    fn send_response(&mut self, now_ms: u64, key: JobKey) -> Result<(), StoreError> {
        let Some(job) = self.jobs.get_mut(&key) else {
            return Ok(());
        };
        let lifetime_ms = job
            .kept_until_ms(&self.limits)
            .saturating_sub(now_ms)
            .max(1);
        let (Some(parts), Some(object)) = (&mut job.parts, job.record.response) else {
            return Ok(());
        };
        while let Some(index) = parts.next() {
            let stored = key.record().object(Kind::Response);
            let Some(data) = self.store.part(&stored, index)? else {
                break;
            };
            parts.sent(now_ms);
            let part = Part {
                object,
                index,
                data,
            };
            self.outputs.push(Output::Send {
                peer: key.peer,
                class: job.record.class,
                lifetime_ms,
                name: Name {
                    key: key.key,
                    side: Side::Dispatch,
                    kind: NameKind::Part(index),
                },
                message: Message {
                    key: key.key,
                    body: Body::Response {
                        own: job.record.own,
                        part,
                    },
                },
            });
        }
        Ok(())
    }

    pub(crate) fn take_outcome_ack(
        &mut self,
        now_ms: u64,
        key: JobKey,
        next: u32,
    ) -> Result<(), StoreError> {
        let Some(job) = self.jobs.get_mut(&key) else {
            return Ok(());
        };
        let waiting = match job.record.stage {
            Stage::Answered => &mut job.parts,
            _ => &mut job.word,
        };
        let Some(transfer) = waiting else {
            return Ok(());
        };
        transfer.acknowledge(now_ms, next);
        if !transfer.is_complete() {
            return Ok(());
        }
        *waiting = None;
        job.record.told = true;
        self.store
            .delete_object(&key.record().object(Kind::Response))?;
        self.put_job(key)
    }
}
