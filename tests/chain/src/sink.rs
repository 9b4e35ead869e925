//! Takes what the last node sends.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use bytes::Bytes;
use underpass_bundle::wire::{CodePoints, DecodeLimits, decode};
use underpass_tcpcl::wire::{Frame, XferAck, emit_ack};

use crate::bundle::number_of;
use crate::session::{self, Error, Session};

const READ_AT_ONCE: usize = 256 << 10;

/// What has come.
#[derive(Debug)]
pub struct Received {
    node: u64,
    payload: Vec<u8>,
    reached: AtomicBool,
    bundles: AtomicU64,
    doubled: AtomicU64,
    /// A bit for each number.
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
            seen: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    /// Whether a node has had a session.
    pub fn is_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }

    /// Different bundles that have come.
    pub fn bundles(&self) -> u64 {
        self.bundles.load(Ordering::Relaxed)
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

    fn take(&self, raw: Bytes) -> Result<(), String> {
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
        Ok(())
    }
}

/// Takes sessions, each in a thread.
pub fn accept(listener: &TcpListener, received: &Arc<Received>) {
    for stream in listener.incoming() {
        let received = received.clone();
        thread::spawn(move || {
            // A session that the node ends, a standby for one, is no failure.
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
                    received.take(raw).map_err(Error::Foreign)?;
                }
            }
        }
        // What is left is a part of a message without its data.
        buffer.copy_within(taken..filled, 0);
        filled -= taken;
        stream.write_all(&acks)?;
        acks.clear();
        match stream.read(&mut buffer[filled..])? {
            0 => return Ok(()),
            read => filled += read,
        }
    }
}
