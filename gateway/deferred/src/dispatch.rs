//! The dispatching side: requests of peers' clients, sent to their origins.
//!
//! What keeps a request from being sent twice: that it is being sent is
//! committed before its first byte goes ([`Dispatched::Connected`] to
//! [`Order::Transmit`]), and its key is remembered for longer than any message
//! can be under way that would make it anew.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::node::{ACTIVE, Name, NameKind, Node, Order, Output, Refusal};
use crate::object::Object;
use crate::store::{Kind, RecordKey, Side, Store, StoreError};
use crate::transfer::{Incoming, Outgoing};
use crate::wire::{Body, Fate, Key, Message, Of, Part, shortened};

/// A key is remembered for so long past its lifetime, ms: clocks run apart.
const MARGIN_MS: u64 = 3_600_000;
/// Pauses between attempts on an origin, ms, doubled each time.
const FIRST_RETRY_MS: u64 = 1_000;
const LAST_RETRY_MS: u64 = 300_000;
/// No request waits longer than this, whatever the peer says, ms.
const MAX_LIFETIME_MS: u64 = 30 * 24 * 3_600_000;

/// Names a request of a peer's client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobKey {
    /// The client's node.
    pub peer: u64,
    /// The request and attempt.
    pub key: Key,
}

impl JobKey {
    pub(crate) fn of(record: &RecordKey) -> JobKey {
        JobKey {
            peer: record.peer,
            key: record.key,
        }
    }

    fn record(self) -> RecordKey {
        RecordKey {
            side: Side::Dispatch,
            peer: self.peer,
            key: self.key,
        }
    }
}

/// What an exchange with an origin has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dispatched {
    /// The origin is connected; nothing has been sent.
    Connected,
    /// Nothing could be sent.
    Unreachable {
        /// An answer in the origin's stead, as `message/http`.
        answer: Answer,
        /// Whether it would be of no use to try again.
        lasting: bool,
    },
    /// It was sent, or part of it, and no whole response came.
    Broken(String),
    /// The whole response is stored.
    Answered(Object),
    /// A response came that cannot be passed on.
    Unusable(Answer),
}

/// A response of this node's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status code.
    pub status: u16,
    /// The error in the words of RFC 9209, for `Proxy-Status`.
    pub error: &'static str,
    /// What happened, in words.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Stage {
    Receiving,
    Stored,
    Sent,
    Answered,
    Unknown,
    Expired,
    Cancelled,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    class: u8,
    repeatable: bool,
    stage: Stage,
    /// None if it was cancelled before it came.
    request: Option<Object>,
    response: Option<Object>,
    /// Whether the response is this node's own.
    own: bool,
    reason: String,
    expires_ms: u64,
    /// How often it was sent to the origin.
    sent: u32,
    /// The client's node has the response or knows that there is none.
    told: bool,
}

/// A request of a peer's client, and what is under way for it.
pub(crate) struct Job {
    number: u64,
    record: Record,
    incoming: Incoming,
    /// The response, until the client's node has it.
    pub parts: Option<Outgoing>,
    /// The notice of its end, until the client's node has it.
    pub word: Option<Outgoing>,
    /// An exchange with the origin is under way.
    running: bool,
    retry_at_ms: u64,
    retry_ms: u64,
    /// Parts of the response so far.
    answered_parts: u32,
    answered_bytes: u64,
}

impl Job {
    fn new(number: u64, record: Record) -> Job {
        Job {
            number,
            record,
            incoming: Incoming::default(),
            parts: None,
            word: None,
            running: false,
            retry_at_ms: 0,
            retry_ms: FIRST_RETRY_MS,
            answered_parts: 0,
            answered_bytes: 0,
        }
    }

    pub fn transfers(&mut self) -> impl Iterator<Item = &mut Outgoing> {
        self.parts.iter_mut().chain(&mut self.word)
    }

    pub fn keeps_request(&self) -> bool {
        matches!(
            self.record.stage,
            Stage::Receiving | Stage::Stored | Stage::Sent
        )
    }

    pub fn keeps_response(&self) -> bool {
        self.record.stage == Stage::Answered && !self.record.told
    }

    fn retry_later(&mut self, now_ms: u64) {
        self.record.stage = Stage::Stored;
        self.retry_at_ms = now_ms + self.retry_ms;
        self.retry_ms = (self.retry_ms * 2).min(LAST_RETRY_MS);
    }

    fn fate(&self) -> Option<Fate> {
        match self.record.stage {
            Stage::Unknown => Some(Fate::Unknown),
            Stage::Expired => Some(Fate::Expired),
            Stage::Cancelled => Some(Fate::Cancelled),
            Stage::Receiving | Stage::Stored | Stage::Sent | Stage::Answered => None,
        }
    }
}

impl<S: Store> Node<S> {
    pub(crate) fn load_jobs(&mut self, now_ms: u64) -> Result<(), StoreError> {
        for (key, text) in self.store.records(Side::Dispatch)? {
            let number = self.next_number;
            self.next_number += 1;
            let mut job = Job::new(number, serde_json::from_str(&text)?);
            if job.record.stage == Stage::Receiving {
                job.incoming = Incoming::of(self.store.parts(&key.object(Kind::Request))?);
            }
            let interrupted = job.record.stage == Stage::Sent;
            self.jobs.insert(JobKey::of(&key), job);
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

    fn new_job(&mut self, key: JobKey, record: Record) -> bool {
        if self.jobs.len() >= self.limits.requests {
            return false;
        }
        let number = self.next_number;
        self.next_number += 1;
        self.jobs.insert(key, Job::new(number, record));
        true
    }

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
            // A request that has begun has its room: none waits half here for
            // the room that another half one has.
            let room = total > most || self.request_room(self.awaited_job_bytes() + total);
            if lifetime_ms == 0 || !room || !self.new_job(key, record) {
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

    /// Bytes of requests that have begun to come and are not here.
    fn awaited_job_bytes(&self) -> u64 {
        let receiving = self
            .jobs
            .values()
            .filter(|job| job.record.stage == Stage::Receiving);
        let awaited = receiving.filter_map(|job| {
            let object = job.record.request?;
            let here = u64::from(job.incoming.next()) * u64::from(object.part_bytes);
            Some(object.total_bytes.saturating_sub(here))
        });
        awaited.sum()
    }

    /// Keeps a part; tells the lowest one that is missing, or nothing where
    /// it is of another object.
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
            // Its parts may still come: they must find that it is over.
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
            if self.new_job(key, record) {
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

    pub(crate) fn take_dispatched(
        &mut self,
        now_ms: u64,
        key: JobKey,
        what: Dispatched,
    ) -> Result<(), StoreError> {
        let Some(job) = self.jobs.get_mut(&key).filter(|job| job.running) else {
            // It was cancelled or has expired.
            self.outputs.push(Output::Order(Order::Abort(key)));
            return Ok(());
        };
        job.running = what == Dispatched::Connected;
        match (job.record.stage, what) {
            (Stage::Stored, Dispatched::Connected) => {
                job.record.stage = Stage::Sent;
                job.record.sent += 1;
                self.outputs.push(Output::Order(Order::Transmit(key)));
                self.tell(now_ms, key, Fate::Sent, NameKind::Sent);
                self.put_job(key)
            }
            (Stage::Stored, Dispatched::Unreachable { answer, lasting }) => {
                if job.record.repeatable && !lasting {
                    job.retry_later(now_ms);
                    return Ok(());
                }
                self.answer(key, &answer)
            }
            (Stage::Sent, Dispatched::Broken(text)) => self.break_off(now_ms, key, &text),
            (Stage::Sent, Dispatched::Answered(object)) => {
                job.record.stage = Stage::Answered;
                job.record.response = Some(object);
                job.parts = Some(Outgoing::fresh(object.parts()));
                self.store
                    .delete_object(&key.record().object(Kind::Request))?;
                self.put_job(key)
            }
            (Stage::Sent, Dispatched::Unusable(answer)) => self.answer(key, &answer),
            // It was cancelled: what has come of the response goes.
            _ => {
                job.running = false;
                self.store
                    .delete_object(&key.record().object(Kind::Response))
            }
        }
    }

    /// It was sent, and no response is known.
    fn break_off(&mut self, now_ms: u64, key: JobKey, text: &str) -> Result<(), StoreError> {
        self.store
            .delete_object(&key.record().object(Kind::Response))?;
        let Some(job) = self.jobs.get_mut(&key) else {
            return Ok(());
        };
        job.answered_parts = 0;
        job.answered_bytes = 0;
        if job.record.repeatable {
            job.retry_later(now_ms);
            return self.put_job(key);
        }
        self.end(key, Stage::Unknown, text)
    }

    /// Part of a request's body or head, for the exchange.
    ///
    /// # Errors
    /// When the store fails.
    pub fn job_part(&self, key: JobKey, index: u32) -> Result<Option<Bytes>, StoreError> {
        self.store.part(&key.record().object(Kind::Request), index)
    }

    /// The shape of a request.
    pub fn job_object(&self, key: JobKey) -> Option<Object> {
        self.jobs.get(&key)?.record.request
    }

    /// The next part of the response, of the length of
    /// [`crate::Limits::part_bytes`] but for the last.
    ///
    /// # Errors
    /// When the store fails; inside, when it is too much or not wanted any
    /// more.
    pub fn answer_part(
        &mut self,
        key: JobKey,
        data: &[u8],
    ) -> Result<Result<(), Refusal>, StoreError> {
        let room = self.response_room(data.len() as u64);
        let most = self.limits.response_bytes;
        let job = self.jobs.get_mut(&key);
        let Some(job) = job.filter(|job| job.running && job.record.stage == Stage::Sent) else {
            return Ok(Err(Refusal::Unknown));
        };
        if job.answered_bytes + data.len() as u64 > most {
            return Ok(Err(Refusal::TooLarge(most)));
        }
        if !room {
            return Ok(Err(Refusal::Full));
        }
        let index = job.answered_parts;
        job.answered_parts += 1;
        job.answered_bytes += data.len() as u64;
        let object = key.record().object(Kind::Response);
        self.store.put_part(&object, index, data)?;
        Ok(Ok(()))
    }

    /// Answers in the origin's stead.
    fn answer(&mut self, key: JobKey, answer: &Answer) -> Result<(), StoreError> {
        let (head, body) = answer.message();
        let object = Object {
            total_bytes: (head.len() + body.len()) as u64,
            head_bytes: u32::try_from(head.len()).unwrap_or(u32::MAX),
            part_bytes: self.limits.part_bytes,
        };
        let stored = key.record().object(Kind::Response);
        self.store.delete_object(&stored)?;
        self.store
            .delete_object(&key.record().object(Kind::Request))?;
        let whole = [head, body].concat();
        let parts = whole.as_bytes().chunks(self.limits.part_bytes as usize);
        for (part, index) in parts.zip(0..) {
            self.store.put_part(&stored, index, part)?;
        }
        if let Some(job) = self.jobs.get_mut(&key) {
            job.record.stage = Stage::Answered;
            job.record.own = true;
            job.record.response = Some(object);
            job.parts = Some(Outgoing::fresh(object.parts()));
        }
        self.put_job(key)
    }

    pub(crate) fn expire_jobs(&mut self, now_ms: u64) -> Result<(), StoreError> {
        let mut over = Vec::new();
        let mut gone = Vec::new();
        for (key, job) in &mut self.jobs {
            job.transfers()
                .for_each(|transfer| transfer.handle_timeout(now_ms));
            if job.ends_ms(&self.limits) > now_ms {
                continue;
            }
            match job.record.stage {
                Stage::Receiving => over.push((*key, "it did not come whole")),
                Stage::Stored if job.record.sent == 0 => over.push((*key, "it was not sent")),
                Stage::Stored => over.push((*key, "it was sent, and no answer came")),
                _ => gone.push(*key),
            }
        }
        for (key, text) in over {
            self.end(key, Stage::Expired, text)?;
        }
        for key in gone {
            self.jobs.remove(&key);
            self.store.delete_record(&key.record())?;
            for kind in [Kind::Request, Kind::Response] {
                self.store.delete_object(&key.record().object(kind))?;
            }
        }
        Ok(())
    }

    pub(crate) fn jobs_timeout(&self) -> Option<u64> {
        let due = |job: &Job| {
            let transfers = job.parts.iter().chain(&job.word);
            let repeat = transfers.filter_map(Outgoing::due_ms).min();
            let waits = job.record.stage == Stage::Stored && !job.running;
            let retry = (waits && job.retry_at_ms > 0).then_some(job.retry_at_ms);
            let ends = job.ends_ms(&self.limits);
            [repeat, retry, Some(ends)].into_iter().flatten().min()
        };
        self.jobs.values().filter_map(due).min()
    }

    pub(crate) fn start_exchanges(&mut self, now_ms: u64) -> Result<(), StoreError> {
        let mut running: BTreeMap<u64, usize> = BTreeMap::new();
        let mut waiting = Vec::new();
        for (key, job) in &self.jobs {
            if job.running {
                *running.entry(key.peer).or_default() += 1;
            } else if job.record.stage == Stage::Stored && job.retry_at_ms <= now_ms {
                waiting.push((job.number, *key));
            }
        }
        waiting.sort_unstable();
        for (_, key) in waiting {
            let count = running.entry(key.peer).or_default();
            if *count < self.limits.exchanges {
                *count += 1;
                self.start_exchange(now_ms, key)?;
            } else if let Some(job) = self.jobs.get_mut(&key) {
                // It waits for another's end, not for a time.
                job.retry_at_ms = 0;
            }
        }
        Ok(())
    }

    fn start_exchange(&mut self, now_ms: u64, key: JobKey) -> Result<(), StoreError> {
        let Some(object) = self.job_object(key) else {
            return Ok(());
        };
        let mut head = Vec::new();
        for index in 0..object.parts() {
            head.extend(self.job_part(key, index)?.unwrap_or_default());
            if head.len() >= object.head_bytes as usize {
                break;
            }
        }
        head.truncate(object.head_bytes as usize);
        if let Some(job) = self.jobs.get_mut(&key) {
            job.running = true;
            job.retry_at_ms = now_ms;
        }
        self.outputs.push(Output::Order(Order::Connect {
            job: key,
            head: head.into(),
            body_bytes: object.body_bytes(),
        }));
        Ok(())
    }

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

    fn tell(&mut self, now_ms: u64, key: JobKey, fate: Fate, kind: NameKind) {
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
}

impl Job {
    /// Until when the end of it is told, ms.
    fn kept_until_ms(&self, limits: &crate::Limits) -> u64 {
        self.record.expires_ms.saturating_add(limits.keep_ms)
    }

    /// When time ends its present stage, ms.
    fn ends_ms(&self, limits: &crate::Limits) -> u64 {
        match self.record.stage {
            // The exchange has its own time limit.
            Stage::Sent => u64::MAX,
            Stage::Stored if self.running => u64::MAX,
            Stage::Receiving | Stage::Stored => self.record.expires_ms,
            _ if self.record.told => self.record.expires_ms.saturating_add(MARGIN_MS),
            _ => self
                .kept_until_ms(limits)
                .max(self.record.expires_ms.saturating_add(MARGIN_MS)),
        }
    }
}

impl Answer {
    /// An answer of this node's own.
    pub fn new(status: u16, error: &'static str, text: impl Into<String>) -> Answer {
        Answer {
            status,
            error,
            text: text.into(),
        }
    }

    fn message(&self) -> (String, String) {
        let Answer {
            status,
            error,
            text,
        } = self;
        let head = format!(
            "HTTP/1.1 {status} \r\ncontent-type: text/plain; charset=utf-8\r\nproxy-status: underpass; error={error}\r\n\r\n"
        );
        (head, format!("underpass: {status}: {text}\n"))
    }
}
