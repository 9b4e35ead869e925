//! Blocks that are too long for memory: the client keeps their bytes as they arrive.

use std::time::Duration;

use underpass_ltp::segment::{Body, Data};
use underpass_ltp::{Event, Reason};

use crate::hostile::{bytes, end, peers, red};
use crate::world::{Link, World, block};

const S: fn(u64) -> Duration = Duration::from_secs;

#[test]
fn a_block_that_is_longer_than_memory_comes_through_whatever_the_link_does() {
    for seed in 0..10 {
        let link = Link {
            loss: 0.1,
            duplicates: 0.1,
            jitter: Duration::from_millis(50),
            ..Link::clean()
        };
        let mut world = World::new(link, seed, |config| {
            config.receive_bytes = 300_000;
            config.in_memory_bytes = 100_000;
        });
        let (long, short) = (block(seed, 2_000_000), block(seed + 100, 50_000));
        world.send(0, 1, &long, None);
        world.send(0, 2, &short, None);
        world.run(S(100_000));
        let received = &world.ends[1].received;
        assert_eq!(received.len(), 2, "seed {seed}");
        for whole in [&long, &short] {
            assert!(received.iter().any(|(block, _)| block == whole));
        }
        // What was in memory is handed over in pages, and each later byte once.
        let kept = world.ends[1].kept_bytes;
        assert!((2_000_000..2_150_000).contains(&kept), "{kept}");
        assert_eq!(world.ends[0].cancelled, []);
        world.assert_idle();
    }
}

#[test]
fn a_green_end_of_a_long_block_is_kept_with_its_red_part() {
    let mut world = World::new(Link::clean(), 1, |config| config.in_memory_bytes = 10_000);
    let whole = block(1, 200_000);
    world.send(0, 1, &whole, Some(120_000));
    world.run(S(100));
    assert!(world.ends[1].received == [(whole, 120_000)]);
    assert!(world.ends[1].kept_bytes > 0);
    world.assert_idle();
}

#[test]
fn of_bytes_that_come_again_the_first_are_kept_and_none_twice() {
    let mut world = World::new(Link::clean(), 1, |config| config.in_memory_bytes = 0);
    let whole = block(1, 20_000);
    let part = |from: usize, to: usize| red(from as u64, &whole[from..to]);
    let mut take = |data: Data<'_>| world.inject(0, bytes(peers(1), Body::Data(data)));
    // This part goes to the client as a page.
    take(part(0, 1_000));
    take(part(9_000, 10_000));
    take(part(9_000, 10_000));
    // The overlapping parts differ.
    let mut other = [0x55; 3_000];
    other[..1_000].copy_from_slice(&whole[8_000..9_000]);
    other[2_000..].copy_from_slice(&whole[10_000..11_000]);
    take(red(8_000, &other));
    take(end(red(15_000, &whole[15_000..]), 1));
    for from in (0..16_000).step_by(800) {
        take(part(from, from + 800));
    }
    assert!(world.ends[0].received == [(whole.clone(), 20_000)]);
    assert_eq!(world.ends[0].kept_bytes, 4_096 + 19_000);
    assert_eq!(world.ends[0].span.receive_bytes(), 0);
}

#[test]
fn a_block_that_the_client_cannot_keep_is_cancelled_and_nothing_of_it_stays() {
    let mut world = World::new(Link::clean(), 1, |config| config.in_memory_bytes = 50_000);
    world.ends[1].keeps = Err(Reason::System);
    world.send(0, 1, &block(1, 2_000_000), None);
    world.send(0, 2, &block(2, 30_000), None);
    world.run(S(1_000));
    assert_eq!(world.ends[0].cancelled, [(1, Reason::System, true)]);
    assert_eq!(world.ends[1].lost.len(), 1);
    assert!(world.ends[1].kept.is_empty());
    // A block that fits in memory needs no other place.
    assert_eq!(world.ends[0].sent, [2]);
    world.assert_idle();
}

#[test]
fn pieces_have_their_memory_until_they_are_kept_and_what_finds_none_comes_again() {
    let mut world = World::new(Link::clean(), 1, |config| {
        config.receive_bytes = 250_000;
        config.in_memory_bytes = 0;
    });
    let whole = block(1, 400_000);
    let now = world.instant();
    let mut lengths = 0;
    for _ in 0..2 {
        for offset in (0..400_000).step_by(1_000) {
            let part = &whole[offset..offset + 1_000];
            let data = match offset {
                399_000 => end(red(399_000, part), 1),
                _ => red(offset as u64, part),
            };
            let segment = bytes(peers(1), Body::Data(data));
            world.ends[0].span.handle_input(now, &segment);
        }
        let span = &mut world.ends[0].span;
        assert!((100_000..=250_000).contains(&span.receive_bytes()));
        // The client is slow.
        while let Some(event) = span.poll_event() {
            match event {
                Event::Keep { session, bytes, .. } => {
                    span.kept(session, (1, bytes.len()), Ok(()));
                }
                Event::ReceivedElsewhere { bytes, .. } => lengths += bytes,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(span.receive_bytes(), 0);
    }
    assert!(world.ends[0].span.refused().no_room > 0);
    assert_eq!(lengths, 400_000);
}

#[test]
fn pieces_of_a_block_that_is_over_give_their_memory_back_once_the_client_has_spoken() {
    let mut world = World::new(Link::clean(), 1, |config| config.in_memory_bytes = 0);
    let now = world.instant();
    let segment = bytes(peers(1), Body::Data(red(0, &[7; 1_000])));
    world.ends[0].span.handle_input(now, &segment);
    let cancel = bytes(peers(1), Body::CancelBySender(Reason::Client));
    world.ends[0].span.handle_input(now, &cancel);
    let span = &mut world.ends[0].span;
    assert!(span.receive_bytes() > 0);
    let Some(Event::Keep { session, bytes, .. }) = span.poll_event() else {
        panic!("it is to be kept");
    };
    // This comes too late to cancel the block.
    span.kept(session, (1, bytes.len()), Err(Reason::System));
    assert_eq!(span.receive_bytes(), 0);
    let over = Event::ReceptionCancelled {
        session,
        reason: Reason::Client,
    };
    assert_eq!(span.poll_event(), Some(over));
    assert_eq!(span.poll_event(), None);
}
