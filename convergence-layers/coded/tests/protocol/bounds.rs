//! What a peer may have in flight.

use std::time::Duration;

use underpass_coded::Protection;

use crate::link::{Link, SATELLITE, World};

#[test]
fn no_more_is_under_way_than_the_receiver_has_room_for() {
    let link = Link {
        room_bytes: 1 << 20,
        loss: 0.05,
        burst: 10.0,
        ..SATELLITE
    };
    let mut world = World::new(link, Protection::Always);
    for _ in 0..20 {
        world.run_until_room(400_000);
        world.offer(400_000);
    }
    assert!(!world.sender.has_room(400_000));
    world.run();
    assert!(world.sender.has_room(1 << 20));
    assert!(!world.sender.has_room((1 << 20) + 1));
    // Half as much again for symbols beside the bundles.
    assert!(world.memory_bytes <= 3 << 19, "{}", world.memory_bytes);
}

#[test]
fn a_peer_that_has_not_said_so_gets_no_symbols() {
    let mut world = World::new(SATELLITE, Protection::Always);
    world.sender.opened(9, 1 << 30);
    assert!(
        world.sender.has_room(1 << 20),
        "of the first, whose version is known"
    );
    let mut sender = underpass_coded::Sender::new(Protection::Always, Default::default());
    sender.set_datagram_bytes(1_400);
    assert!(!sender.has_room(1));
    sender.opened(9, 1 << 30);
    assert!(!sender.has_room(1), "another version");
    sender.opened(1, 1 << 30);
    assert!(sender.has_room(1) && !sender.has_room(0) && !sender.has_room(1 << 24));
    sender.set_datagram_bytes(70);
    assert!(!sender.has_room(1), "no symbol fits");
}

#[test]
fn what_never_completes_is_given_up_and_reported() {
    let mut world = World::new(
        Link {
            loss: 0.5,
            burst: 3.0,
            ..SATELLITE
        },
        Protection::Tail,
    );
    let bundle = world.offer(100_000);
    // Some symbols have arrived, and the sender is cut off before it hears more.
    world.run_for(Duration::from_millis(305));
    assert!(world.receiver.memory_bytes() > 100_000);
    for _ in 0..6 {
        world.receiver.look_for_stale();
    }
    world.run();
    assert!(matches!(world.fates[&bundle].judged, Some(Err(_))));
    assert_eq!(world.receiver.memory_bytes(), 0);
}
