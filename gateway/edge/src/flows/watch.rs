//! Where flows begin and end in the bytes of one direction, without I/O and
//! clock.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::decisions::SizeSource;
use super::head::{self, Beginning, Head, MOST_HEAD_BYTES};
use super::hello::ClientHello;
use super::sizes::{Kind, Sizes};
use super::{ObjectSizes, Owner};
use crate::stream::Target;

/// The assumed size of an unknown flow: some 20 segments, as most objects of the web have.
const UNKNOWN_BYTES: u64 = 32 * 1024;
/// A burst ends after this much silence, until a round trip is known.
const SILENCE: Duration = Duration::from_millis(600);
/// The first burst of a TLS stream is remembered under this type, which no message has: its size
/// does not predict what the host sends later.
const HANDSHAKE: &str = "TLS handshake";

/// A flow begins, or one has become larger than expected and begins again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStart {
    /// What remains of it, declared or expected, including the bytes with which it begins.
    pub size_bytes: u64,
    /// Whether it says so itself.
    pub told: bool,
    /// From where that is known.
    pub size_from: SizeSource,
    /// The host's name, if it is known.
    pub host: Option<Arc<str>>,
    /// Type and subtype, in lower case; empty if that is not known.
    pub content_type: Arc<str>,
}

/// Follows what is sent in one direction of a stream.
#[derive(Debug)]
pub struct Watch {
    owner: Owner,
    /// By which sizes are remembered.
    place: Arc<str>,
    host: Option<Arc<str>>,
    hello: ClientHello,
    /// Whether the next burst is the first one of a TLS stream.
    handshake_next: bool,
    sizes: Arc<Mutex<Sizes>>,
    objects: Option<Arc<dyn ObjectSizes>>,
    /// The part of a request's head that has arrived in the other direction.
    asked: Vec<u8>,
    /// The size of the object that was last requested, if it is known.
    asked_bytes: Option<u64>,
    /// The last request was HEAD: its answer gives a length and has no body (RFC 9110, 9.3.2).
    asked_head: bool,
    state: State,
    flow: Option<Flow>,
    silence: Duration,
    last_sent: Option<Instant>,
    total_bytes: u64,
}

#[derive(Debug)]
enum State {
    /// The next byte begins a flow.
    Start,
    /// What has come of a head.
    Head(Vec<u8>),
    /// Bytes of a body that are to come.
    Body(u64),
    /// A flow that ends by silence.
    Burst,
    /// A flow whose beginning was not seen; it ends as a burst does.
    Midway,
}

#[derive(Debug)]
struct Flow {
    content_type: Arc<str>,
    handshake: bool,
    sent_bytes: u64,
    expected_bytes: u64,
    told: bool,
    size_from: SizeSource,
}

impl Watch {
    /// For a stream to a target that was just opened.
    pub fn new(owner: Owner, target: &Target, sizes: Arc<Mutex<Sizes>>) -> Watch {
        let (place, host) = match target {
            Target::Name { host, .. } => {
                let name: Arc<str> = host.as_str().into();
                (name.clone(), Some(name))
            }
            Target::Address(address) => {
                let ip: IpAddr = address.ip().to_canonical();
                (ip.to_string().into(), None)
            }
        };
        Watch {
            owner,
            place,
            host,
            hello: ClientHello::Awaited,
            handshake_next: false,
            sizes,
            objects: None,
            asked: Vec::new(),
            asked_bytes: None,
            asked_head: false,
            state: State::Start,
            flow: None,
            silence: SILENCE,
            last_sent: None,
            total_bytes: 0,
        }
    }

    /// For a stream that was opened before and may be inside a flow: flows are found after the next
    /// silence or request.
    pub fn midway(now: Instant, owner: Owner, target: &Target, sizes: Arc<Mutex<Sizes>>) -> Watch {
        let mut watch = Watch::new(owner, target, sizes);
        watch.state = State::Midway;
        watch.hello = ClientHello::Over;
        watch.last_sent = Some(now);
        watch
    }

    /// Asks this one for sizes of objects.
    pub fn asking(mut self, objects: Option<Arc<dyn ObjectSizes>>) -> Watch {
        self.objects = objects;
        self
    }

    /// Sets the round trip: a silence of this length separates bursts.
    pub fn set_round_trip(&mut self, rtt: Duration) {
        self.silence = rtt;
    }

    /// Nothing could be sent until now, so there was no silence.
    pub fn was_held_up(&mut self, now: Instant) {
        self.last_sent = self.last_sent.map(|_| now);
    }

    /// What was sent so far, bytes.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// The present flow, with its whole size.
    pub fn present(&self) -> Option<FlowStart> {
        let flow = self.flow.as_ref()?;
        Some(FlowStart {
            size_bytes: flow.expected_bytes,
            ..self.start_of(flow)
        })
    }

    /// What remains of the present flow, as far as that is known, including the `last` bytes that
    /// were just sent.
    pub fn rest(&self, last: usize) -> Option<u64> {
        let flow = self.flow.as_ref()?;
        let left = flow.expected_bytes.saturating_sub(flow.sent_bytes);
        Some(left.saturating_add(last as u64))
    }

    /// These bytes are about to be sent. Returns the flow that they begin, or the one that they
    /// make larger than expected.
    pub fn sends(&mut self, now: Instant, data: &[u8]) -> Option<FlowStart> {
        let paused = self
            .last_sent
            .is_some_and(|at| now.saturating_duration_since(at) >= self.silence);
        if paused && matches!(self.state, State::Burst | State::Midway) {
            self.end(now);
        }
        self.last_sent = Some(now);
        self.total_bytes = self.total_bytes.saturating_add(data.len() as u64);
        let (mut rest, mut start) = (data, None);
        if matches!(self.owner, Owner::Client(_)) && self.is_named_by(data) {
            start = self.begin_named(data);
            if start.is_some() {
                return start;
            }
        }
        while !rest.is_empty() {
            let (taken, begins) = self.take(now, rest);
            rest = &rest[taken..];
            start = begins.or(start);
        }
        start
    }

    /// Takes bytes of the other direction: a request ends the previous answer.
    pub fn receives(&mut self, now: Instant, data: &[u8]) {
        // The bytes sent to a peer's client answer that client's ClientHello.
        if matches!(self.owner, Owner::Peer(_)) {
            self.is_named_by(data);
        }
        let under_way = matches!(self.state, State::Body(_) | State::Burst);
        let answers = self.flow.is_some() && self.total_bytes > 0;
        let midway = matches!(self.state, State::Midway);
        if head::begins_request(data) {
            if under_way && answers || midway {
                self.end(now);
            }
            self.asked_head = data.starts_with(b"HEAD ");
        }
        self.hears(data);
    }

    /// Once the head of a request in the other direction is complete, takes its host's name and
    /// looks up the size of the requested object.
    fn hears(&mut self, data: &[u8]) {
        // The bytes of an origin name no host.
        let from_client = matches!(self.owner, Owner::Peer(_));
        if !from_client && self.objects.is_none() {
            return;
        }
        if head::begins_request(data) {
            self.asked.clear();
            self.asked_bytes = None;
        } else if self.asked.is_empty() {
            return;
        }
        let before = self.asked.len();
        let more = &data[..data.len().min(MOST_HEAD_BYTES - before)];
        self.asked.extend_from_slice(more);
        if head::ends_within(&self.asked, before) {
            if let Beginning::Message(head) = head::parse(&self.asked)
                && let Some(host) = head.host
            {
                if let Some((objects, target)) = self.objects.as_ref().zip(head.target) {
                    self.asked_bytes = objects.size_bytes(&host, &target);
                }
                if from_client {
                    self.host = Some(host);
                }
            }
        } else if self.asked.len() < MOST_HEAD_BYTES {
            return;
        }
        // A head is parsed only once, and idle streams keep none.
        self.asked = Vec::new();
    }

    /// Takes bytes of the client. If they complete a ClientHello with a name, that becomes the
    /// stream's name. Returns whether they do.
    fn is_named_by(&mut self, data: &[u8]) -> bool {
        let Some(name) = self.hello.read(data) else {
            return false;
        };
        self.place = name.clone();
        self.host = Some(name);
        self.handshake_next = true;
        true
    }

    /// These bytes complete the ClientHello. The burst that began with it begins again under the
    /// name, which was not known before.
    fn begin_named(&mut self, data: &[u8]) -> Option<FlowStart> {
        let flow = self.flow.take_if(|flow| !flow.told)?;
        let before = usize::try_from(flow.sent_bytes).unwrap_or(usize::MAX);
        self.begin_burst(flow.content_type, before, data.len())
    }

    /// Takes some of the first of these bytes. Returns how many, and the flow that begins with
    /// them.
    fn take(&mut self, now: Instant, data: &[u8]) -> (usize, Option<FlowStart>) {
        match &mut self.state {
            State::Start if head::may_begin(data) => {
                self.state = State::Head(Vec::new());
                self.take(now, data)
            }
            State::Start => {
                let begins = self.begin_burst(Arc::default(), 0, data.len());
                (data.len(), begins)
            }
            State::Head(known) => {
                let before = known.len();
                known.extend_from_slice(&data[..data.len().min(MOST_HEAD_BYTES - before)]);
                // Parsed once, when it seems whole: a head that comes byte by byte
                // costs no more than another.
                let beginning = match head::ends_within(known, before) {
                    true => head::parse(known),
                    false => Beginning::Partial,
                };
                match beginning {
                    Beginning::Message(head) => {
                        let taken = head.head_bytes - before;
                        (taken, self.begin_message(now, head, before, data.len()))
                    }
                    Beginning::Partial if known.len() < MOST_HEAD_BYTES => (data.len(), None),
                    _ => {
                        let begins = self.begin_burst(Arc::default(), before, data.len());
                        (data.len(), begins)
                    }
                }
            }
            State::Body(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(data.len());
                *left -= taken as u64;
                let over = *left == 0;
                if let Some(flow) = &mut self.flow {
                    flow.sent_bytes += taken as u64;
                }
                if over {
                    self.end(now);
                }
                (taken, None)
            }
            State::Burst => (data.len(), self.go_on(data.len())),
            State::Midway => (data.len(), None),
        }
    }

    /// A head is complete. `before` bytes of it had been sent already, and `data` bytes are new.
    fn begin_message(
        &mut self,
        now: Instant,
        head: Head,
        before: usize,
        data: usize,
    ) -> Option<FlowStart> {
        if head.host.is_some() {
            self.host = head.host;
        }
        let body = match std::mem::take(&mut self.asked_head) {
            true => Some(0),
            false => head.body_bytes,
        };
        let Some(body) = body else {
            let object = self.asked_bytes.take().filter(|_| head.is_object);
            let size = object.map(|bytes| bytes.saturating_add(head.head_bytes as u64));
            return self.begin_burst_of(size, head.content_type, before, data);
        };
        let size = (head.head_bytes as u64).saturating_add(body);
        let flow = Flow {
            content_type: head.content_type,
            handshake: false,
            sent_bytes: before as u64,
            expected_bytes: size,
            told: true,
            size_from: SizeSource::Told,
        };
        let start = self.start_of(&flow);
        self.flow = Some(Flow {
            sent_bytes: head.head_bytes as u64,
            ..flow
        });
        self.state = State::Body(body);
        if body == 0 {
            self.end(now);
        }
        Some(start)
    }

    /// A flow of unknown size begins, of which `before` bytes had been sent
    /// already.
    fn begin_burst(
        &mut self,
        content_type: Arc<str>,
        before: usize,
        data: usize,
    ) -> Option<FlowStart> {
        self.begin_burst_of(None, content_type, before, data)
    }

    /// A flow begins that does not declare its size; `told_bytes` is the size from metadata, if
    /// known.
    fn begin_burst_of(
        &mut self,
        told_bytes: Option<u64>,
        content_type: Arc<str>,
        before: usize,
        data: usize,
    ) -> Option<FlowStart> {
        let there = (before + data) as u64;
        let mut flow = Flow {
            content_type,
            handshake: std::mem::take(&mut self.handshake_next),
            sent_bytes: before as u64,
            expected_bytes: there,
            told: false,
            size_from: SizeSource::Assumed,
        };
        let kind = self.kind_of(&flow);
        let learnt = || self.sizes.lock().unwrap().expected(self.owner, &kind);
        let told = told_bytes.map(|bytes| (bytes, SizeSource::Metadata));
        let known = told.or_else(|| Some((learnt()?, SizeSource::Learned)));
        if let Some((_, source)) = known {
            flow.size_from = source;
        }
        let expected = known.map_or(UNKNOWN_BYTES, |(bytes, _)| bytes);
        flow.expected_bytes = expected.max(there);
        let start = self.start_of(&flow);
        self.flow = Some(Flow {
            sent_bytes: there,
            ..flow
        });
        self.state = State::Burst;
        Some(start)
    }

    /// A burst continues. If it is larger than expected, it is assumed to be half complete.
    fn go_on(&mut self, data: usize) -> Option<FlowStart> {
        let flow = self.flow.as_mut()?;
        let before = flow.sent_bytes;
        flow.sent_bytes += data as u64;
        if flow.sent_bytes <= flow.expected_bytes {
            return None;
        }
        flow.expected_bytes = flow.sent_bytes.saturating_mul(2);
        flow.size_from = SizeSource::Doubled;
        let start = Flow {
            content_type: flow.content_type.clone(),
            sent_bytes: before,
            ..*flow
        };
        Some(self.start_of(&start))
    }

    /// The flow is over. Its size is remembered.
    fn end(&mut self, now: Instant) {
        self.state = State::Start;
        if let Some(flow) = self.flow.take()
            && flow.sent_bytes > 0
        {
            let kind = self.kind_of(&flow);
            let mut sizes = self.sizes.lock().unwrap();
            sizes.learn(now, self.owner, &kind, flow.sent_bytes);
        }
    }

    /// By what a flow's size is remembered.
    fn kind_of(&self, flow: &Flow) -> Kind {
        let content_type = match flow.handshake {
            true => HANDSHAKE.into(),
            false => flow.content_type.clone(),
        };
        (self.place.clone(), content_type)
    }

    fn start_of(&self, flow: &Flow) -> FlowStart {
        FlowStart {
            size_bytes: flow.expected_bytes - flow.sent_bytes,
            told: flow.told,
            size_from: flow.size_from,
            host: self.host.clone(),
            content_type: flow.content_type.clone(),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The end of the stream ended this burst.
        if let Some(now) = self.last_sent
            && matches!(self.state, State::Burst)
        {
            self.end(now);
        }
    }
}

#[cfg(test)]
mod tests;
