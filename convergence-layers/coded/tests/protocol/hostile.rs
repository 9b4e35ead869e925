//! Peers that send what no node sends.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use underpass_cla::Refusal;
use underpass_coded::message::Missing;
use underpass_coded::symbol::{Body, Part, Symbol};
use underpass_coded::{Losses, Message, Protection, Receiver, Sender, Violation, WINDOW};

const ROOM: u64 = 1 << 20;

struct Attacker {
    receiver: Receiver,
    now: Instant,
    datagrams: u32,
}

impl Attacker {
    fn new() -> Attacker {
        Attacker {
            receiver: Receiver::new(ROOM),
            now: Instant::now(),
            datagrams: 0,
        }
    }

    fn send(&mut self, block: u64, number: u16, part: Part<'_>) -> Result<(), Violation> {
        let symbol = Symbol {
            datagram: self.datagrams,
            block: block as u16,
            number,
            part,
        };
        self.datagrams += 1;
        let bytes = symbol.emit();
        self.receiver.on_datagram(self.now, &bytes, &mut |_| Ok(()))
    }

    fn source(
        &mut self,
        block: u64,
        number: u16,
        (bundle, length, offset): (u64, u64, u64),
        bytes: &[u8],
    ) -> Result<(), Violation> {
        let mut body = BytesMut::new();
        Body::put_head(&mut body, bundle, length, offset);
        body.extend_from_slice(bytes);
        self.send(block, number, Part::Source(&body))
    }

    fn refused(&mut self) -> Vec<(u64, Refusal)> {
        let messages = std::iter::from_fn(|| self.receiver.poll_message());
        let refused = messages.filter_map(|message| match message {
            Message::Refused { bundle, refusal } => Some((bundle, refusal)),
            _ => None,
        });
        refused.collect()
    }
}

#[test]
fn lengths_are_judged_before_memory_is_taken() {
    let mut attacker = Attacker::new();
    for bundle in 0..100 {
        let of = (bundle, ROOM / 4, 0);
        attacker.source(bundle, 0, of, b"x").expect("a symbol");
    }
    assert!(attacker.receiver.memory_bytes() <= ROOM * 3 / 2);
    let refused = attacker.refused();
    assert_eq!(refused.len(), 96);
    assert!(refused.iter().all(|(_, why)| *why == Refusal::NoResources));
    let of = (100, (1 << 24) - 1, 0);
    attacker.source(100, 0, of, b"x").expect("a symbol");
    assert_eq!(attacker.refused().len(), 1, "larger than all room");
}

#[test]
fn floods_of_open_blocks_are_bounded() {
    let mut attacker = Attacker::new();
    let whole = [1; 1_200];
    let mut ended = None;
    // The symbols would fill a bundle that takes all the room; no block is ever complete.
    for symbol in 0..1_000_000u64 {
        let (block, number) = (symbol / 512, (symbol % 512) as u16);
        let of = (0, ROOM - 1, symbol % 1000);
        let sent = attacker.source(block, number, of, &whole);
        assert!(attacker.receiver.memory_bytes() <= 2 * ROOM);
        if let Err(violation) = sent {
            ended = Some(violation);
            break;
        }
    }
    assert_eq!(ended, Some(Violation::Room));
    let mut attacker = Attacker::new();
    let far = attacker.source(WINDOW, 0, (0, 9, 0), b"x");
    assert_eq!(far, Err(Violation::Window));
    let far = attacker.source(0, 0, (WINDOW, 9, 0), b"x");
    assert_eq!(far, Err(Violation::Window));
    let far = attacker.receiver.on_sent(attacker.now, u64::MAX, 1, 0);
    assert_eq!(far, Err(Violation::Window));
}

#[test]
fn a_block_that_never_ends_grows_old_without_harm() {
    let mut attacker = Attacker::new();
    attacker.source(0, 0, (0, 90, 0), b"x").expect("a symbol");
    for _ in 0..300 {
        attacker.receiver.look_for_stale();
    }
    assert_eq!(attacker.refused(), [(0, Refusal::NoResources)]);
    attacker.source(0, 1, (0, 90, 1), b"y").expect("a symbol");
}

#[test]
fn the_rest_of_a_bundle_is_owed_while_symbols_of_a_block_come() {
    let mut attacker = Attacker::new();
    assert!(!attacker.receiver.is_owed());
    attacker.source(0, 0, (0, 3, 0), b"x").expect("a symbol");
    assert!(attacker.receiver.is_owed());
    let sent = |attacker: &mut Attacker, block, symbols, datagrams| {
        let now = attacker.now;
        let sent = attacker.receiver.on_sent(now, block, symbols, datagrams);
        sent.expect("it is possible");
    };
    // What is missing is to be asked for now.
    sent(&mut attacker, 0, 2, 2);
    assert!(!attacker.receiver.is_owed());
    attacker.source(1, 0, (0, 3, 1), b"y").expect("a symbol");
    assert!(attacker.receiver.is_owed());
    sent(&mut attacker, 1, 1, 3);
    assert!(!attacker.receiver.is_owed());
    attacker.source(0, 1, (0, 3, 2), b"z").expect("a symbol");
    assert!(!attacker.receiver.is_owed());
}

#[test]
fn symbols_that_contradict_each_other_end_the_session() {
    let contradicts = |second: fn(&mut Attacker) -> Result<(), Violation>| {
        let mut attacker = Attacker::new();
        attacker.source(0, 5, (0, 90, 0), b"x").expect("a symbol");
        assert_eq!(second(&mut attacker), Err(Violation::Contradiction));
    };
    contradicts(|attacker| attacker.source(0, 6, (0, 91, 1), b"x"));
    contradicts(|attacker| {
        let code = &[0; 20];
        attacker.send(0, 0, Part::Repair { symbols: 5, code })
    });
    contradicts(|attacker| {
        let code = &[0; 20];
        attacker.send(0, 0, Part::Repair { symbols: 9, code })?;
        let code = &[0; 22];
        attacker.send(0, 1, Part::Repair { symbols: 9, code })
    });
    contradicts(|attacker| {
        let code = &[0; 20];
        attacker.send(0, 0, Part::Repair { symbols: 9, code })?;
        attacker.source(0, 7, (0, 90, 1), &[0; 13])
    });
    contradicts(|attacker| {
        attacker.receiver.on_sent(attacker.now, 0, 9, 1)?;
        attacker.receiver.on_sent(attacker.now, 0, 10, 1)
    });
    contradicts(|attacker| attacker.receiver.on_sent(attacker.now, 0, 5, 1));
}

#[test]
fn a_code_that_gives_nonsense_ends_the_session() {
    let mut attacker = Attacker::new();
    attacker.source(0, 0, (0, 90, 0), b"x").expect("a symbol");
    let code = &[0xff; 30];
    let sent = attacker.send(0, 0, Part::Repair { symbols: 2, code });
    assert!(
        matches!(sent, Err(Violation::Symbol(_) | Violation::Window)),
        "{sent:?}"
    );
}

/// Makes the receiver decode a block of one symbol: its code is its body, padded.
fn decode_one(attacker: &mut Attacker, block: u64) {
    let mut code = BytesMut::new();
    Body::put_head(&mut code, block, 1, 0);
    code.extend_from_slice(b"xy");
    let repair = Part::Repair {
        symbols: 1,
        code: &code,
    };
    attacker.send(block, 0, repair).expect("a symbol");
    while attacker.receiver.poll_arrived().is_some() {}
}

#[test]
fn decoding_is_bounded_in_time() {
    let mut attacker = Attacker::new();
    for block in 0..2_000 {
        decode_one(&mut attacker, block);
    }
    assert_eq!(attacker.receiver.figures().recovered_symbols, 64);
    let begun = attacker.now;
    for block in 2_000..3_000 {
        attacker.now += Duration::from_millis(1);
        decode_one(&mut attacker, block);
    }
    assert_eq!(attacker.now - begun, Duration::from_secs(1));
    let recovered = attacker.receiver.figures().recovered_symbols;
    assert!((250..=64 + 250).contains(&recovered), "{recovered}");
    // The receiver asks for the other symbols.
    let told = attacker.receiver.on_sent(attacker.now, 100, 1, 7);
    assert_eq!(told, Ok(()));
    attacker.now += Duration::from_millis(20);
    let now = attacker.now;
    let done = attacker.receiver.handle_timeout(now, &mut |_| Ok(()));
    assert_eq!(done, Ok(()));
    assert!(attacker.receiver.poll_arrived().is_some(), "by then it may");
}

fn sending() -> (Sender, Instant) {
    let mut sender = Sender::new(Protection::Always, Default::default());
    sender.opened(1, 1 << 20);
    sender.set_datagram_bytes(1_000);
    let now = Instant::now();
    sender.push([vec![1; 10_000].into()]);
    while sender.poll_datagram(now).is_some() {}
    let later = now + Duration::from_secs(1);
    while sender.poll_datagram(later).is_some() {}
    (sender, later)
}

#[test]
fn verdicts_and_requests_on_what_was_not_sent_end_the_session() {
    let missing = |symbols, missing: &[u16]| Missing::new(symbols, missing.iter().copied());
    let (mut sender, _) = sending();
    let said = std::iter::from_fn(|| sender.poll_message()).last();
    let Some(Message::Sent {
        datagrams, symbols, ..
    }) = said
    else {
        panic!("{said:?}");
    };
    assert_eq!(symbols, 11);
    assert_eq!(sender.ended(1), Err(Violation::Unknown));
    let some = missing(11, &[3]);
    assert_eq!(
        sender.wanted(1, datagrams, 1, &some),
        Err(Violation::Unknown)
    );
    assert_eq!(sender.wanted(0, 99, 1, &some), Err(Violation::Excess));
    for (count, numbers) in [(0, &[3][..]), (2, &[3]), (1, &[11])] {
        let (mut sender, _) = sending();
        let missing = missing(16, numbers);
        let wanted = sender.wanted(0, datagrams, count, &missing);
        assert_eq!(wanted, Err(Violation::Excess), "{count} of {numbers:?}");
    }
    let mut counts = Losses {
        received: 11,
        ..Losses::default()
    };
    assert_eq!(sender.observe(counts), Ok(()));
    counts.lost = u64::MAX;
    assert_eq!(sender.observe(counts), Err(Violation::Excess));
    assert_eq!(sender.ended(0), Ok(0), "all of it has left");
    assert_eq!(sender.ended(0), Err(Violation::Unknown));
}

#[test]
fn a_bundle_that_is_refused_before_all_of_it_is_cut_leaves_no_more_bytes() {
    let mut sender = Sender::new(Protection::Always, Default::default());
    sender.opened(1, 1 << 20);
    sender.set_datagram_bytes(1_000);
    let now = Instant::now();
    sender.push([vec![1; 4_000].into(), vec![1; 6_000].into()]);
    sender.push([vec![2; 500].into()]);
    let first = sender.poll_datagram(now).expect("a symbol");
    assert_eq!(sender.ended(0), Ok(10_000 - first.new_bytes));
    let next = sender.poll_datagram(now).expect("a symbol");
    assert_eq!(next.new_bytes, 500);
    assert_eq!(sender.ended(1), Ok(0));
}

#[test]
fn requests_for_what_is_judged_are_bounded_while_nothing_can_be_said() {
    let (mut sender, _) = sending();
    assert_eq!(sender.ended(0), Ok(0));
    let missing = Missing::new(11, [3].into_iter());
    let mut answered = 0;
    let ended = loop {
        if let Err(violation) = sender.wanted(0, 1, 1, &missing) {
            break violation;
        }
        answered += 1;
        assert!(answered <= 10_000, "answers pile up");
    };
    assert_eq!(ended, Violation::Excess);
}

#[test]
fn a_request_is_answered_once_and_not_for_ever() {
    let (mut sender, now) = sending();
    let mut asked = 0;
    let ended = loop {
        let said = std::iter::from_fn(|| sender.poll_message()).last();
        let Some(Message::Sent { datagrams, .. }) = said else {
            panic!("it was not told that symbols have left: {said:?}");
        };
        let missing = Missing::new(11, [3].into_iter());
        if let Err(violation) = sender.wanted(0, datagrams, 1, &missing) {
            break violation;
        }
        assert_eq!(
            sender.wanted(0, datagrams, 1, &missing),
            Err(Violation::Excess),
            "a second time"
        );
        let mut left = 0;
        while sender.poll_datagram(now).is_some() {
            left += 1;
        }
        assert_eq!(left, 1);
        asked += 1;
    };
    assert_eq!((asked, ended), (100, Violation::Excess));
}
