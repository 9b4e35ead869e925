//! What store-and-forward promises, in spite of loss, duplicates and restarts.

mod bounded;
mod memory;
mod shares;
mod world;

use proptest::prelude::*;
use underpass_deferred::wire::Key;
use underpass_deferred::{Id, Refusal, State};
use world::{CLIENT, HUB, LIFETIME_MS, LIMITS, TERMINAL, World, body_of, response_length};

/// Times each attempt of a request was sent to the origin.
fn sent(world: &World, id: Id, attempt: u32) -> u32 {
    let key = Key { id, attempt };
    world.sent.get(&key).copied().unwrap_or(0)
}

#[test]
fn a_request_is_answered_and_its_response_whole() {
    let mut world = World::new(1);
    let id = world.submit(false);
    assert_eq!(world.state(id), State::Stored);
    world.pass(10_000, 0);
    assert_eq!(world.state(id), State::Answered);
    assert_eq!(world.response(id), body_of(id, 77, response_length(id)));
    assert_eq!(sent(&world, id, 1), 1);
}

#[test]
fn a_request_waits_for_the_link() {
    let mut world = World::new(2);
    world.loss = 100;
    let id = world.submit(false);
    world.pass(600_000, 0);
    assert_eq!(world.state(id), State::Stored);
    world.loss = 0;
    world.pass(1_200_000, 0);
    assert_eq!(world.state(id), State::Answered);
}

#[test]
fn a_crash_amid_the_exchange_makes_the_outcome_unknown_and_the_client_may_repeat() {
    let mut world = World::new(3);
    let id = world.submit(false);
    while sent(&world, id, 1) == 0 {
        let at = world.now + 1;
        world.pass(at, 0);
    }
    world.crash(HUB);
    let at = world.now + 10_000;
    world.pass(at, 0);
    assert_eq!(world.state(id), State::Unknown);
    let now = world.now;
    world.terminal().repeat(now, id, None).unwrap().unwrap();
    world.commit(TERMINAL, false);
    world.pass(now + 10_000, 0);
    assert_eq!(world.state(id), State::Answered);
    assert_eq!((sent(&world, id, 1), sent(&world, id, 2)), (1, 1));
}

#[test]
fn a_repeatable_one_is_repeated_until_answered() {
    let mut world = World::new(4);
    world.trouble = 100;
    let id = world.submit(true);
    world.pass(1_000_000, 0);
    assert!(!world.state(id).is_final());
    world.trouble = 0;
    world.pass(2_000_000, 0);
    assert_eq!(world.state(id), State::Answered);
}

#[test]
fn an_origin_that_cannot_be_reached_fails_what_is_not_repeatable() {
    let mut world = World::new(5);
    world.trouble = 100;
    let id = world.submit(false);
    world.pass(10_000, 0);
    assert_eq!(world.state(id), State::Failed);
    let text = String::from_utf8(world.response(id)).unwrap();
    assert!(text.starts_with("HTTP/1.1 502 \r\n"), "{text}");
    assert!(text.contains("proxy-status: underpass; error=connection_refused"));
    assert_eq!(sent(&world, id, 1), 0);
}

#[test]
fn what_is_cancelled_in_time_is_not_sent() {
    let mut world = World::new(6);
    world.loss = 100;
    let id = world.submit(false);
    let now = world.now;
    world.terminal().cancel(now, id, None).unwrap().unwrap();
    world.commit(TERMINAL, false);
    world.loss = 0;
    world.pass(600_000, 0);
    assert_eq!(world.state(id), State::Cancelled);
    assert_eq!(sent(&world, id, 1), 0);
    let refused = world.terminal().repeat(now, id, None).unwrap();
    assert_eq!(refused.unwrap_err(), Refusal::State);
}

#[test]
fn what_does_not_get_through_expires() {
    let mut world = World::new(7);
    world.loss = 100;
    let id = world.submit(false);
    world.crash(TERMINAL);
    world.pass(LIFETIME_MS, 0);
    // The request had left the terminal completely: the terminal cannot know that it did
    // not arrive.
    assert_eq!(world.state(id), State::Unknown);
    let id = world.submit(true);
    let end = world.now + LIFETIME_MS;
    world.pass(end, 0);
    assert_eq!(world.state(id), State::Expired);
}

#[test]
fn a_client_that_dies_in_mid_request_leaves_nothing() {
    let mut world = World::new(8);
    let id = Id([9; 16]);
    world.terminal().begin_upload(id, CLIENT).unwrap();
    world.terminal().upload(id, &[0; 1024]).unwrap().unwrap();
    world.commit(TERMINAL, false);
    assert_eq!(world.terminal().bytes(), 1024);
    world.crash(TERMINAL);
    assert_eq!(world.terminal().bytes(), 0);
    assert_eq!(world.terminal().request(id, None), Err(Refusal::Unknown));
}

#[test]
fn what_is_beyond_the_bounds_is_refused_and_leaves_nothing() {
    let mut world = World::new(9);
    let part = vec![0; 1024];
    let mut id = Id([1; 16]);
    world.terminal().begin_upload(id, CLIENT).unwrap();
    for _ in 0..LIMITS.request_bytes / 1024 {
        world.terminal().upload(id, &part).unwrap().unwrap();
    }
    let too_large = world.terminal().upload(id, &part).unwrap();
    assert_eq!(too_large, Err(Refusal::TooLarge(LIMITS.request_bytes)));
    world.terminal().abandon(id).unwrap();
    assert_eq!(world.terminal().bytes(), 0);
    // The requests of many clients fill half of the quota.
    let largest = vec![0; 1 << 20];
    for number in 0..(LIMITS.quota_bytes / 2) >> 20 {
        id = Id((number as u128 + 7).to_be_bytes());
        let client = [192, 0, 2, number as u8].into();
        world.terminal().begin_upload(id, client).unwrap();
        world.terminal().upload(id, &largest).unwrap().unwrap();
    }
    id = Id([2; 16]);
    world.terminal().begin_upload(id, CLIENT).unwrap();
    let full = world.terminal().upload(id, &part).unwrap();
    assert_eq!(full, Err(Refusal::Full));
}

#[test]
fn a_request_is_forgotten_after_its_time_on_both_nodes() {
    let mut world = World::new(10);
    let id = world.submit(false);
    world.pass(10_000, 0);
    let now = world.now;
    world.terminal().fetched(now, id).unwrap();
    world.commit(TERMINAL, false);
    world.pass(now + LIMITS.keep_fetched_ms + 1, 0);
    assert_eq!(world.terminal().request(id, None), Err(Refusal::Unknown));
    assert_eq!(world.terminal().bytes(), 0);
    assert_eq!(world.hub().figures().dispatching, 0);
    assert_eq!(world.hub().bytes(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever is lost, duplicated or reordered, and whichever node crashes when: the
    /// origin gets a request at most once unless the request is repeatable, every request
    /// comes to an end, and the reported end is true.
    #[test]
    fn every_request_ends_truly_and_none_is_sent_twice(seed: u64) {
        let mut world = World::new(seed);
        world.loss = world.random.below(40);
        world.trouble = world.random.below(40);
        for _ in 0..12 {
            let repeatable = world.random.percent(50);
            let id = world.submit(repeatable);
            if world.random.percent(20) {
                let now = world.now;
                world.terminal().cancel(now, id, None).unwrap().unwrap();
                world.commit(TERMINAL, false);
            }
            let end = world.now + world.random.below(30_000);
            world.pass(end, 3);
        }
        world.loss = 0;
        let end = world.now + LIFETIME_MS + 1;
        world.pass(end, 0);
        for (id, repeatable) in world.ids.clone() {
            let times = sent(&world, id, 1);
            prop_assert!(repeatable || times <= 1, "{id} was sent {times} times");
            match world.state(id) {
                State::Answered => {
                    prop_assert!(times >= 1);
                    prop_assert_eq!(world.response(id), body_of(id, 77, response_length(id)));
                }
                State::Failed => prop_assert_eq!(times, 0),
                State::Expired => prop_assert!(repeatable || times == 0),
                // A hub may crash between its decision to send and the first byte.
                State::Unknown => prop_assert!(!repeatable && times <= 1),
                State::Cancelled => {}
                unfinished => prop_assert!(false, "{} is {:?}", id, unfinished),
            }
        }
    }
}
