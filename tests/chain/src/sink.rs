//! Receives what the last node sends.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::wire::{CodePoints, Cteb, DecodeLimits, decode, ipn_parts};
use underpass_tcpcl::wire::{Frame, XferAck, emit_ack, emit_segment_header, segment_flag};

use crate::bundle::{number_of, signal};
use crate::session::{self, Error, Session};

/// Custody is signalled at this interval, or after this many bundles.
const SIGNALLED_EACH: Duration = Duration::from_millis(20);
const MANY: usize = 1000;
const READ_AT_ONCE: usize = 256 << 10;

/// The bundles that have arrived.
#[derive(Debug)]
pub struct Received {
    node: u64,
    payload: Vec<u8>,
    reached: AtomicBool,
    bundles: AtomicU64,
    doubled: AtomicU64,
    /// Bundles whose custodian waits for a signal.
    unsignalled: AtomicU64,
    /// One bit for each number.
    seen: Mutex<Vec<u64>>,
    failure: Mutex<Option<String>>,
}

impl Received {
    pub fn new(node: u64, payload: Vec<u8>) -> Received {
        Received {
            node,
            payload,
            reached: AtomicBool::new(false),
            bundles: AtomicU64::new(0),
            doubled: AtomicU64::new(0),
            unsignalled: AtomicU64::new(0),
            seen: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    /// Whether a node has had a session with the sink.
    pub fn is_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }

    /// The number of different bundles that have arrived.
    pub fn bundles(&self) -> u64 {
        self.bundles.load(Ordering::Relaxed)
    }

    pub fn unsignalled(&self) -> u64 {
        self.unsignalled.load(Ordering::Relaxed)
    }

    pub fn doubled(&self) -> u64 {
        self.doubled.load(Ordering::Relaxed)
    }

    pub fn failed(&self) -> Result<(), Error> {
        let failure = self.failure.lock().expect("no thread panics with it");
        failure
            .clone()
            .map_or(Ok(()), |why| Err(Error::Foreign(why)))
    }

    fn fail(&self, why: String) {
        let mut failure = self.failure.lock().expect("no thread panics with it");
        failure.get_or_insert(why);
    }

    /// Takes a bundle, and returns the custodian to signal, if any.
    fn take(&self, raw: Bytes) -> Result<Option<Cteb>, String> {
        let bundle = decode(&raw, &DecodeLimits::default(), &CodePoints::default())
            .map_err(|error| error.to_string())?;
        if bundle.payload != self.payload {
            return Err(format!("a payload of {} bytes", bundle.payload.len()));
        }
        let sequence = bundle.primary.creation_timestamp.seqno();
        let number = number_of(sequence).ok_or_else(|| format!("sequence number {sequence}"))?;
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        let mut seen = self.seen.lock().expect("no thread panics with it");
        if seen.len() <= word {
            seen.resize(word + 1, 0);
        }
        if seen[word] & bit != 0 {
            self.doubled.fetch_add(1, Ordering::Relaxed);
        } else {
            seen[word] |= bit;
            self.bundles.fetch_add(1, Ordering::Relaxed);
        }
        let cteb = bundle.cteb.map(|(_, cteb)| cteb);
        let waits = u64::from(cteb.is_some());
        self.unsignalled.fetch_add(waits, Ordering::Relaxed);
        Ok(cteb)
    }
}

/// Accepts sessions, each on a thread.
pub fn accept(listener: &TcpListener, received: &Arc<Received>) {
    for stream in listener.incoming() {
        let received = received.clone();
        thread::spawn(move || {
            // A session that the node ends, such as a standby, is not a failure.
            if let Ok(stream) = stream
                && let Err(error @ (Error::Foreign(_) | Error::Messages(_))) =
                    take_session(stream, &received)
            {
                received.fail(error.to_string());
            }
        });
    }
}

fn take_session(stream: TcpStream, received: &Received) -> Result<(), Error> {
    let Session {
        mut stream,
        mut decoder,
        input,
        ..
    } = session::begin(stream, received.node)?;
    received.reached.store(true, Ordering::Relaxed);
    let (mut bundle, mut acks) = (Vec::new(), Vec::new());
    let mut segment = None;
    // Bundles that are not signalled yet: custodian, sequence and number.
    let mut signals: Vec<(u64, u64, u64)> = Vec::new();
    let (mut transfer, mut signalled) = (0, Instant::now());
    stream.set_read_timeout(Some(SIGNALLED_EACH))?;
    let mut buffer = vec![0; input.len() + READ_AT_ONCE];
    let mut filled = input.len();
    buffer[..filled].copy_from_slice(&input);
    loop {
        let mut taken = 0;
        while let Some((frame, length)) = decoder.next(&buffer[taken..filled])? {
            match frame {
                Frame::Segment(header) => {
                    if header.is_start() {
                        bundle = Vec::with_capacity(header.data_bytes.min(1 << 24) as usize);
                    }
                    segment = Some(header);
                }
                Frame::Data(data) => bundle.extend_from_slice(data),
                Frame::Term { .. } => return Ok(()),
                _ => {}
            }
            taken += length;
            if decoder.data_left() == 0
                && let Some(header) = segment.take()
            {
                let ack = XferAck {
                    flags: header.flags,
                    transfer_id: header.transfer_id,
                    acknowledged: bundle.len() as u64,
                };
                emit_ack(&ack, &mut acks);
                if header.is_end() {
                    let raw = Bytes::from(std::mem::take(&mut bundle));
                    let cteb = received.take(raw).map_err(Error::Foreign)?;
                    signals.extend(cteb.map(|cteb| gather(&cteb)).transpose()?);
                }
            }
        }
        // The rest is the start of a message without its data.
        buffer.copy_within(taken..filled, 0);
        filled -= taken;
        let due = signals.len() >= MANY || signalled.elapsed() >= SIGNALLED_EACH;
        let mut told = 0;
        if due && !signals.is_empty() {
            told = signals.len() as u64;
            emit_signals(received.node, &mut signals, &mut transfer, &mut acks);
            signalled = Instant::now();
        }
        stream.write_all(&acks)?;
        acks.clear();
        received.unsignalled.fetch_sub(told, Ordering::Relaxed);
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => return Ok(()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn gather(cteb: &Cteb) -> Result<(u64, u64, u64), Error> {
    let (custodian, _) = ipn_parts(&cteb.custodian)
        .ok_or_else(|| Error::Foreign("a custodian of another scheme".to_owned()))?;
    Ok((custodian, cteb.sequence, cteb.number))
}

/// Appends a signal for each of the gathered custodians to `out`, as one transfer each.
fn emit_signals(
    node: u64,
    gathered: &mut Vec<(u64, u64, u64)>,
    transfer: &mut u64,
    out: &mut Vec<u8>,
) {
    gathered.sort_unstable();
    gathered.dedup();
    for of_one in gathered.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (.., number) in of_one {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == *number => *last = *number,
                _ => ranges.push((*number, *number)),
            }
        }
        let (custodian, sequence, _) = of_one[0];
        let bundle = signal(node, custodian, sequence, &ranges);
        let flags = segment_flag::START | segment_flag::END;
        let length = bundle.len() as u64;
        emit_segment_header(flags, *transfer, length, length, None, out);
        out.extend(bundle);
        *transfer += 1;
    }
    gathered.clear();
}
