//! Exchanges with origins: when one begins, how it reads the request and stores the response, what
//! its end means, and this node's own answer if the origin gives none.

use bytes::Bytes;

use super::job::{JobKey, Stage};
use crate::agenda::Party;
use crate::node::{NameKind, Node, Order, Output, Refusal};
use crate::object::Object;
use crate::store::{Kind, Store, StoreError};
use crate::transfer::Outgoing;
use crate::wire::Fate;

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
    /// The request was sent, at least in part, and no complete response came.
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

impl<S: Store> Node<S> {
    pub(super) fn start_exchanges(&mut self, peer: u64) -> Result<(), StoreError> {
        let startable = self.jobs.startable(peer, self.limits.exchanges);
        startable
            .into_iter()
            .try_for_each(|key| self.start_exchange(key))
    }

    fn start_exchange(&mut self, key: JobKey) -> Result<(), StoreError> {
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
        }
        self.outputs.push(Output::Order(Order::Connect {
            job: key,
            head: head.into(),
            body_bytes: object.body_bytes(),
        }));
        Ok(())
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
    /// When the store fails; inside, when it is too much or no longer wanted.
    pub fn answer_part(
        &mut self,
        key: JobKey,
        data: &[u8],
    ) -> Result<Result<(), Refusal>, StoreError> {
        let room = self.room(Party::Peer(key.peer), data.len() as u64);
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
            // It was cancelled: the received part of the response is deleted.
            _ => {
                job.running = false;
                self.store
                    .delete_object(&key.record().object(Kind::Response))
            }
        }
    }

    /// It was sent, and no response is known.
    pub(super) fn break_off(
        &mut self,
        now_ms: u64,
        key: JobKey,
        text: &str,
    ) -> Result<(), StoreError> {
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

    /// Answers in the origin's stead.
    pub(super) fn answer(&mut self, key: JobKey, answer: &Answer) -> Result<(), StoreError> {
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
}
