//! Payloads that are expensive to process, or declare what they do not contain.

use underpass_bundle::wire::{
    CodePoints, Disposition, MAX_RECORD_BYTES, REFUSED, Sequence, SequenceName, encode_signal,
};
use underpass_deferred::wire as deferred;
use underpass_deferred::{Id, wire::Message};

use super::{Attacker, Build, NORMAL};
use crate::forge::{Endpoint, Forged, FrameBuilder, MOST, kind};

/// A payload of many frames is filled up to this many bytes.
const FULL_BYTES: usize = 1 << 20;

pub const ALL: &[(&str, Build)] = &[
    ("hellos", hellos),
    ("data-without-open", data_without_open),
    ("opens", opens),
    ("black-hole", black_hole),
    ("foreign-clients", foreign_clients),
    ("names", names),
    ("refused-record", refused_record),
    ("signals", signals),
    ("cancels", cancels),
    ("overruns", overruns),
    ("offsets", offsets),
    ("lengths", lengths),
    ("gaps", gaps),
    ("runs", runs),
    ("held", held),
    ("credits", credits),
];

impl Attacker {
    fn payload(&self) -> FrameBuilder {
        FrameBuilder::new(self.cast.run, self.line.hub_run())
    }

    /// The `n`th stream that this terminal, whose number is above the hub's,
    /// opens; those of another attack have other ids.
    fn stream(&self, n: u64) -> u64 {
        (self.next() << 20) + 2 * n + 1
    }

    /// As many payloads as it takes for `count` frames.
    fn payloads(&self, count: u64, add: impl Fn(&mut FrameBuilder, u64)) -> Vec<Forged> {
        let mut bundles = Vec::new();
        let mut payload = self.payload();
        for n in 0..count {
            add(&mut payload, n);
            if payload.len() >= FULL_BYTES {
                bundles.push(self.to_streams(payload.finish()));
                payload = self.payload();
            }
        }
        bundles.push(self.to_streams(payload.finish()));
        bundles
    }
}

/// Each HELLO is newer than the last, and changes every window.
fn hellos(at: &Attacker) -> Vec<Forged> {
    let base = at.next() << 32;
    at.payloads(40_000, |payload, n| {
        payload.hello(base + n, (64 << 10) + n);
    })
}

fn data_without_open(at: &Attacker) -> Vec<Forged> {
    let first = at.stream(0);
    at.payloads(50_000, |payload, n| {
        payload.data(first + 2 * n, 0, b"nobody has opened this");
    })
}

/// Streams to a port where nobody listens, as fast as they can be asked for.
fn opens(at: &Attacker) -> Vec<Forged> {
    let mut target = at.cast.origin;
    target.set_port(1);
    let first = at.stream(0);
    at.payloads(10_000, |payload, n| {
        payload.open(first + 2 * n, NORMAL.0, target);
    })
}

/// Dials that nobody answers.
fn black_hole(at: &Attacker) -> Vec<Forged> {
    let first = at.stream(0);
    at.payloads(3_000, |payload, n| {
        payload.open(first + 2 * n, NORMAL.0, at.cast.black_hole);
    })
}

/// Streams for a client of another terminal, whose address the origin would see or be told. They
/// are to a port where nobody listens.
fn foreign_clients(at: &Attacker) -> Vec<Forged> {
    let mut target = at.cast.origin;
    target.set_port(1);
    let first = at.stream(0);
    at.payloads(1_000, |payload, n| {
        let client = Some(at.cast.foreign_client);
        payload.open_for(first + 2 * n, NORMAL.0, target, client);
    })
}

/// Look-ups of names that do not exist.
fn names(at: &Attacker) -> Vec<Forged> {
    let first = at.stream(0);
    at.payloads(3_000, |payload, n| {
        let host = format!("h{n}.invalid");
        payload.open_name(first + 2 * n, NORMAL.0, &host, 80);
    })
}

fn record(at: &Attacker, sequences: Vec<Sequence>) -> Vec<Forged> {
    let codes = CodePoints::default();
    let disposition = Disposition {
        code: REFUSED,
        sequences,
    };
    let records = encode_signal(codes.ccs_record, codes.dialect, &[disposition]).into_iter();
    let bundles = records.map(|record| {
        assert!(
            record.len() <= MAX_RECORD_BYTES,
            "the hub would not read it"
        );
        let source = Endpoint::Ipn(at.cast.node, 0);
        let destination = Endpoint::Ipn(at.cast.hub_node, 0);
        Forged::new(source, destination, at.next())
            .payload(record)
            .administrative()
    });
    bundles.collect()
}

/// One sequence, named as often as a record allows, each time in full.
fn refused_record(at: &Attacker) -> Vec<Forged> {
    let known = at.line.custody();
    let id = known.last().map_or(1, |(id, _)| *id);
    let repeated = Sequence {
        name: SequenceName::Id(id),
        first: 0,
        runs: vec![1 << 40],
    };
    (0..20)
        .flat_map(|_| record(at, vec![repeated.clone(); 3_000]))
        .collect()
}

/// Ranges of one bundle each, with gaps between.
fn signals(at: &Attacker) -> Vec<Forged> {
    let known = at.line.custody();
    let id = known.last().map_or(1, |(id, _)| *id);
    let comb = Sequence {
        name: SequenceName::Id(id),
        first: 0,
        runs: vec![1; 50_001],
    };
    (0..20)
        .flat_map(|_| record(at, vec![comb.clone()]))
        .collect()
}

/// Cancels of requests that nobody has made, to be remembered for a month.
fn cancels(at: &Attacker) -> Vec<Forged> {
    let cancel = |n: u64| {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&at.cast.run.to_be_bytes());
        id[8..].copy_from_slice(&n.to_be_bytes());
        let message = Message {
            key: deferred::Key {
                id: Id(id),
                attempt: 1,
            },
            body: deferred::Body::Cancel {
                lifetime_ms: 30 * 86_400_000,
            },
        };
        at.to_hub(deferred::SERVICE, message.encode().to_vec())
    };
    (0..10_000).map(cancel).collect()
}

/// Far more bytes than any credit, of streams that are read slowly or not at
/// all, since their dial is not answered.
fn overruns(at: &Attacker) -> Vec<Forged> {
    let first = at.stream(0);
    let bytes = vec![0x55; 256 << 10];
    let mut bundles = at.payloads(64, |payload, n| {
        payload.open(first + 2 * n, NORMAL.0, at.cast.black_hole);
    });
    bundles.extend(at.payloads(256, |payload, n| {
        let stream = first + 2 * (n % 64);
        payload.data(stream, n / 64 * (256 << 10), &bytes);
    }));
    bundles
}

/// Offsets at the end of a number's range, and beyond it.
fn offsets(at: &Attacker) -> Vec<Forged> {
    let first = at.stream(0);
    let mut bundles = at.payloads(2_000, |payload, n| {
        let stream = first + 2 * n;
        payload.open(stream, NORMAL.0, at.cast.black_hole);
        payload.data(stream, MOST - 6, b"beyond");
        payload.frame(kind::DATA_FIN, &[stream, MOST], b"");
        payload.frame(kind::CREDIT, &[stream, MOST], &[]);
        payload.frame(kind::EXPIRED, &[stream, MOST], &[]);
        payload.frame(kind::RESET, &[stream, 0, MOST, 0, 0], &[]);
        payload.frame(kind::STOP, &[MOST - n, MOST], &[]);
        payload.data(MOST - n, MOST - 4, b"last");
    });
    for n in 0..8 {
        let mut payload = at.payload();
        payload.data(first + 2 * n, MOST - n, b"behind the end");
        bundles.push(at.to_streams(payload.finish()));
    }
    bundles
}

/// Frames that declare the largest possible length.
fn lengths(at: &Attacker) -> Vec<Forged> {
    let lying = |kind, length| {
        let mut payload = at.payload();
        payload.lying(kind, length, b"short");
        at.to_streams(payload.finish())
    };
    let kinds = [
        kind::HELLO,
        kind::OPEN,
        kind::DATA,
        kind::RESET,
        kind::HELD,
        0x77,
    ];
    let bundles = kinds
        .into_iter()
        .flat_map(|kind| [6, 1 << 14, 1 << 32, MOST].map(|length| lying(kind, length)));
    bundles.collect()
}

/// Every other byte, so that what is missing is as much to remember as what
/// is there.
fn gaps(at: &Attacker) -> Vec<Forged> {
    let first = at.stream(0);
    at.payloads(100_000, |payload, n| {
        let stream = first + 2 * (n / 4_000);
        payload.data(stream, 2 * (n % 4_000) + 1, b"x");
    })
}

/// One terminal that restarts a thousand times, each time with streams of its
/// former run open.
fn runs(at: &Attacker) -> Vec<Forged> {
    let streams: Vec<u64> = (0..16).map(|n| at.stream(n)).collect();
    let run = |n: u64| {
        let mut payload = FrameBuilder::new(at.cast.run + n, at.line.hub_run());
        for stream in &streams {
            payload.open(*stream, NORMAL.0, at.cast.black_hole);
        }
        at.to_streams(payload.finish())
    };
    (1..=1_000).map(run).collect()
}

/// Questions and answers about runs that never existed.
fn held(at: &Attacker) -> Vec<Forged> {
    let first = at.stream(0);
    at.payloads(40_000, |payload, n| {
        let run = n.to_be_bytes();
        let mut body = run.to_vec();
        // A varint of eight bytes.
        body.extend(((first + 2 * n) | 0xc000_0000_0000_0000).to_be_bytes());
        payload.lying(kind::HELD, body.len() as u64, &body);
        body.extend((MOST | 0xc000_0000_0000_0000).to_be_bytes());
        payload.lying(kind::LIMIT, body.len() as u64, &body);
    })
}

/// Credit for streams of the hub's that do not exist.
fn credits(at: &Attacker) -> Vec<Forged> {
    at.payloads(100_000, |payload, n| {
        payload.frame(kind::CREDIT, &[2 * n, n], &[]);
    })
}
