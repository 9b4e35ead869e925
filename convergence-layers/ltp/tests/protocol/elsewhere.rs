//! Blocks whose bytes the client supplies at the time of sending.

use std::time::Duration;

use bytes::Bytes;
use underpass_ltp::segment::{Body, Report};
use underpass_ltp::{Piece, Reason, SessionId};

use crate::hostile::bytes;
use crate::world::{Link, World, block};

const S: fn(u64) -> Duration = Duration::from_secs;

/// The client supplies all but the first and last bytes of the block.
fn send_from_elsewhere(world: &mut World, key: u64, whole: &Bytes) -> SessionId {
    let (head, tail) = (100, whole.len() - 50);
    let pieces = vec![
        Piece::Here(whole.slice(..head)),
        Piece::Elsewhere((tail - head) as u64),
        Piece::Here(whole.slice(tail..)),
    ];
    let sent = world.ends[0].span.send_pieces(key, 1, pieces, None);
    sent.expect("the block is taken")
}

#[test]
fn a_block_that_is_elsewhere_comes_through_losses_in_bounded_memory() {
    let mut link = Link::clean();
    link.loss = 0.01;
    let mut world = World::new(link, 5, |_| {});
    let blocks = [block(1, 12 << 20), block(2, 12 << 20), block(3, 100_001)];
    for (key, whole) in (1..).zip(&blocks) {
        world.ends[0].elsewhere.insert(key, whole.clone());
        send_from_elsewhere(&mut world, key, whole);
    }
    world.run(S(10_000));
    let received = &world.ends[1].received;
    assert_eq!(received.len(), 3);
    for whole in &blocks {
        assert!(received.iter().any(|(block, _)| block == whole));
    }
    // 16 MiB.
    assert_eq!(world.ends[0].most_windows, 64);
    assert_eq!(world.ends[0].span.supplied_windows(), 0);
    world.assert_idle();
}

#[test]
fn a_block_that_is_elsewhere_comes_through_heavy_losses() {
    let mut link = Link::clean();
    link.loss = 0.3;
    let mut world = World::new(link, 7, |config| config.block_bytes = 32 << 20);
    // More is supplied than the span keeps: each round reads much of it again.
    let whole = block(1, 24 << 20);
    world.ends[0].elsewhere.insert(1, whole.clone());
    send_from_elsewhere(&mut world, 1, &whole);
    world.run(S(10_000));
    assert_eq!(world.ends[0].cancelled, []);
    assert_eq!(world.ends[0].sent, [1]);
    assert!(world.ends[1].received[0].0 == whole);
    // Half of the bound.
    let read = world.ends[0].supplied_bytes;
    assert!(read <= 10 * whole.len() as u64, "{read}");
    world.assert_idle();
}

#[test]
fn a_peer_that_lacks_a_byte_here_and_there_has_a_block_read_a_bounded_number_of_times() {
    let mut link = Link::clean();
    link.loss = 1.0;
    let mut world = World::new(link, 1, |config| config.cycles = 3);
    let whole = block(1, 20 << 20);
    let bytes_in_all = whole.len() as u64;
    world.ends[0].elsewhere.insert(1, whole.clone());
    let session = send_from_elsewhere(&mut world, 1, &whole);
    world.run(S(3));
    // One byte is missing in each part that is read at once.
    let lacking: Vec<u64> = (100..bytes_in_all).step_by(256 << 10).collect();
    let starts = [0].into_iter().chain(lacking.iter().map(|at| at + 1));
    let ends = lacking.iter().copied().chain([bytes_in_all]);
    let claims: Vec<(u64, u64)> = starts.zip(ends).collect();
    for serial in 1..=50 {
        let report = Report {
            serial,
            checkpoint: 0,
            lower: 0,
            upper: bytes_in_all,
            claims: claims.clone(),
        };
        world.inject(0, bytes(session, Body::Report(report)));
        world.run(world.now + Duration::from_millis(100));
    }
    assert_eq!(world.ends[0].cancelled, [(1, Reason::Cycles, false)]);
    let read = world.ends[0].supplied_bytes;
    assert!(read <= 4 * bytes_in_all, "{read}");
    assert_eq!(world.ends[0].span.supplied_windows(), 0);
}

#[test]
fn a_block_whose_bytes_are_not_to_be_had_holds_up_no_other_once_it_is_cancelled() {
    let mut world = World::new(Link::clean(), 1, |_| {});
    let session = send_from_elsewhere(&mut world, 1, &block(1, 5_000));
    world.send(0, 2, &block(2, 5_000), None);
    world.run(S(5));
    assert!(!world.ends[0].span.has_output());
    assert!(world.ends[0].sent.is_empty());
    world.ends[0].span.cancel(session);
    // Bytes that come too late are ignored.
    world.ends[0]
        .span
        .supply(session, 100, Bytes::from(vec![0; 4_850]));
    assert_eq!(world.ends[0].span.supplied_windows(), 0);
    world.run(S(100));
    assert_eq!(world.ends[0].sent, [2]);
    assert_eq!(world.ends[0].cancelled, [(1, Reason::Client, false)]);
    world.assert_idle();
}

#[test]
fn nothing_is_kept_of_a_cancelled_block_until_the_peer_has_heard_of_it() {
    let mut link = Link::clean();
    link.loss = 1.0;
    let mut world = World::new(link, 1, |_| {});
    let whole = block(1, 2 << 20);
    world.ends[0].elsewhere.insert(1, whole.clone());
    let session = send_from_elsewhere(&mut world, 1, &whole);
    world.run(Duration::from_millis(50));
    world.ends[0].elsewhere.clear();
    assert!(!whole.is_unique());
    world.ends[0].span.cancel(session);
    world.run(S(10));
    assert_eq!(world.ends[0].span.sessions(), (1, 0));
    assert_eq!(world.ends[0].span.supplied_windows(), 0);
    assert!(whole.is_unique());
    world.run(S(100_000));
    world.assert_idle();
}
