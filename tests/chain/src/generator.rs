//! Sends bundles to the first node.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use underpass_bundle::wire::{ACCEPTED, CodePoints, DecodeLimits, Record, decode, decode_record};
use underpass_tcpcl::wire::{Frame, XferAck, emit_ack, emit_segment_header, segment_flag};

use crate::Cli;
use crate::bundle::{self, Template};
use crate::session::{self, Error, Session};

/// Bytes that are written at once, unless one bundle is longer.
const WRITTEN_AT_ONCE: usize = 256 << 10;
const READ_AT_ONCE: usize = 64 << 10;

/// The state of the sent bundles.
#[derive(Debug, Default)]
pub struct Sent {
    written: AtomicU64,
    acknowledged: AtomicU64,
    released: AtomicU64,
    failure: Mutex<Option<String>>,
    /// Acknowledgements of the first node's bundles, still to be written.
    acks: Mutex<Vec<u8>>,
}

impl Sent {
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// The number of bundles that the first node has signalled custody of.
    pub fn released(&self) -> u64 {
        self.released.load(Ordering::Relaxed)
    }

    /// Takes a custody signal.
    fn take(&self, raw: Vec<u8>) -> Result<(), Error> {
        let codes = CodePoints::default();
        let bundle = decode(&Bytes::from(raw), &DecodeLimits::default(), &codes)
            .map_err(|error| Error::Foreign(error.to_string()))?;
        let Ok(Record::Custody(said)) = decode_record(&bundle.payload, &codes) else {
            return Err(Error::Foreign("a bundle without custody signal".to_owned()));
        };
        if said.iter().any(|one| one.code != ACCEPTED) {
            return Err(Error::Foreign("custody was refused".to_owned()));
        }
        let sequences = said.iter().flat_map(|one| &one.sequences);
        let ranges = sequences.flat_map(|sequence| sequence.ranges());
        let released = ranges.map(|(first, last)| last - first + 1).sum();
        self.released.fetch_add(released, Ordering::Relaxed);
        Ok(())
    }

    /// Bundles that have been written, or are about to be.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    pub fn failed(&self) -> Result<(), Error> {
        let failure = self.failure.lock().expect("no thread panics with it");
        failure.clone().map_or(Ok(()), |why| Err(Error::Ended(why)))
    }

    fn fail(&self, error: &Error) {
        let mut failure = self.failure.lock().expect("no thread panics with it");
        failure.get_or_insert(format!("the generator: {error}"));
    }
}

/// Sends until all of `--count` are sent or it is over.
///
/// `arrived` returns how many bundles are no longer in flight.
pub fn run(cli: &Cli, sent: &Sent, arrived: &dyn Fn() -> u64, over: &AtomicBool) {
    if let Err(error) = send(cli, sent, arrived, over)
        && !over.load(Ordering::Relaxed)
    {
        sent.fail(&error);
    }
}

fn send(cli: &Cli, sent: &Sent, arrived: &dyn Fn() -> u64, over: &AtomicBool) -> Result<(), Error> {
    let Session {
        mut stream,
        segment_mru,
        decoder,
        input,
    } = session::begin(TcpStream::connect(cli.to)?, cli.source)?;
    let mut batch = Batch::new(cli, segment_mru);
    let window = (cli.window / cli.bytes.max(1)).max(batch.bundles) as u64;
    let count = cli.count.unwrap_or(u64::MAX);
    let acks = stream.try_clone()?;
    thread::scope(|scope| {
        scope.spawn(move || {
            let result = take_acks(acks, decoder, input, sent, cli.custody, over);
            if let Err(error) = result
                && !over.load(Ordering::Relaxed)
            {
                sent.fail(&error);
            }
        });
        let mut number = 0;
        while !over.load(Ordering::Relaxed) && sent.failed().is_ok() {
            let acks = std::mem::take(&mut *sent.acks.lock().expect("no thread panics with it"));
            stream.write_all(&acks)?;
            if number >= count || number + batch.bundles as u64 > arrived() + window {
                thread::sleep(Duration::from_micros(50));
                continue;
            }
            let (made, bytes) = batch.make(number, count);
            number += made;
            sent.written.store(number, Ordering::Relaxed);
            stream.write_all(bytes)?;
        }
        // Bundles in flight would mix with those of the next run.
        let is_over =
            || sent.acknowledged() >= number && (!cli.custody || sent.released() >= number);
        while !is_over() && sent.failed().is_ok() {
            let acks = std::mem::take(&mut *sent.acks.lock().expect("no thread panics with it"));
            stream.write_all(&acks)?;
            thread::sleep(Duration::from_millis(1));
        }
        // The reader ends with it.
        let _ = stream.shutdown(std::net::Shutdown::Both);
        Ok(())
    })
}

fn take_acks(
    mut stream: TcpStream,
    mut decoder: underpass_tcpcl::wire::Decoder,
    mut input: Vec<u8>,
    sent: &Sent,
    custody: bool,
    over: &AtomicBool,
) -> Result<(), Error> {
    let mut piece = vec![0; READ_AT_ONCE];
    let is_over = || {
        let all = sent.written();
        sent.acknowledged() >= all && (!custody || sent.released() >= all)
    };
    let (mut signal, mut segment) = (Vec::new(), None);
    while !over.load(Ordering::Relaxed) || !is_over() {
        let mut taken = 0;
        while let Some((frame, length)) = decoder.next(&input[taken..])? {
            taken += length;
            match frame {
                Frame::Segment(header) => segment = Some(header),
                Frame::Data(data) => signal.extend_from_slice(data),
                Frame::Ack(ack) if ack.flags & segment_flag::END != 0 => {
                    sent.acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Frame::Ack(_) | Frame::Keepalive => {}
                other => return Err(Error::Ended(format!("{other:?}"))),
            }
            if decoder.data_left() == 0
                && let Some(header) = segment.take()
            {
                let ack = XferAck {
                    flags: header.flags,
                    transfer_id: header.transfer_id,
                    acknowledged: signal.len() as u64,
                };
                emit_ack(
                    &ack,
                    &mut *sent.acks.lock().expect("no thread panics with it"),
                );
                if header.is_end() {
                    sent.take(std::mem::take(&mut signal))?;
                }
            }
        }
        input.drain(..taken);
        match stream.read(&mut piece)? {
            0 => return Err(Error::Ended("the connection is closed".to_owned())),
            read => input.extend(&piece[..read]),
        }
    }
    Ok(())
}

/// Transfers that are written at once.
struct Batch {
    bytes: Vec<u8>,
    template: Template,
    /// For one bundle, the places from the transfer's first byte on: of the transfer id
    /// in each segment, and of the bundle's first bytes.
    ids_at: Vec<usize>,
    bundle_at: usize,
    transfer_bytes: usize,
    bundles: usize,
}

impl Batch {
    fn new(cli: &Cli, segment_mru: u64) -> Batch {
        let payload = bundle::payload(cli.bytes);
        let template = Template::new(cli.source, cli.sink, &payload, cli.custody);
        let total = template.bytes.len();
        let segment = usize::try_from(segment_mru).unwrap_or(usize::MAX);
        // The first segment holds every part of the bundle that changes.
        let segment = segment.max(template.head_bytes());
        let (mut transfer, mut ids_at, mut bundle_at) = (Vec::new(), Vec::new(), 0);
        for (index, data) in template.bytes.chunks(segment).enumerate() {
            let begin = index * segment;
            let mut flags = 0;
            if begin == 0 {
                flags |= segment_flag::START;
            }
            if begin + data.len() == total {
                flags |= segment_flag::END;
            }
            // After the type and the flags.
            ids_at.push(transfer.len() + 2);
            emit_segment_header(
                flags,
                0,
                total as u64,
                data.len() as u64,
                None,
                &mut transfer,
            );
            if begin == 0 {
                bundle_at = transfer.len();
            }
            transfer.extend(data);
        }
        let bundles = (WRITTEN_AT_ONCE / transfer.len()).max(1);
        Batch {
            bytes: transfer.repeat(bundles),
            template,
            ids_at,
            bundle_at,
            transfer_bytes: transfer.len(),
            bundles,
        }
    }

    /// The transfers from `number` on, at most up to `count`: their number and bytes.
    fn make(&mut self, number: u64, count: u64) -> (u64, &[u8]) {
        let made = self
            .bundles
            .min(usize::try_from(count - number).unwrap_or(usize::MAX));
        for index in 0..made {
            let begin = index * self.transfer_bytes;
            let transfer = &mut self.bytes[begin..begin + self.transfer_bytes];
            let number = number + index as u64;
            for at in &self.ids_at {
                transfer[*at..at + 8].copy_from_slice(&number.to_be_bytes());
            }
            self.template
                .number(&mut transfer[self.bundle_at..], number as u32);
        }
        (made as u64, &self.bytes[..made * self.transfer_bytes])
    }
}
