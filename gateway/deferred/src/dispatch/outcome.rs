//! What the client's node is told: responses, part by part, notices of what
//! became of a request, and its word that it has them.

use std::collections::BTreeMap;

use super::job::{JobKey, Stage};
use crate::node::{ACTIVE, Name, NameKind, Node, Output};
use crate::store::{Kind, Side, Store, StoreError};
use crate::wire::{Body, Fate, Message, Part};

impl<S: Store> Node<S> {
    pub(crate) fn send_outcomes(&mut self, now_ms: u64) -> Result<(), StoreError> {
        let mut active: BTreeMap<u64, usize> = BTreeMap::new();
        let mut order: Vec<(u64, JobKey)> = self
            .jobs
            .iter()
            .filter(|(_, job)| job.parts.is_some() || job.word.is_some())
            .map(|(key, job)| (job.number, *key))
            .collect();
        order.sort_unstable();
        for (_, key) in order {
            if self.is_paused(key.peer) {
                continue;
            }
            self.send_notice(now_ms, key);
            let count = active.entry(key.peer).or_default();
            if *count < ACTIVE && self.jobs.get(&key).is_some_and(|job| job.parts.is_some()) {
                *count += 1;
                self.send_response(now_ms, key)?;
            }
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
