//! A peer that uses up its share does not affect others.

use std::net::IpAddr;

use bytes::Bytes;
use underpass_deferred::wire::{Body, Key, Message, Part};
use underpass_deferred::{Answer, Dispatched, Id, Node, Object, Order, Output, Refusal};

use crate::memory::MemoryStore;
use crate::world::{CLIENT, LIFETIME_MS, LIMITS};

const HOSTILE: u64 = 66;
const HONEST: u64 = 10;

fn node() -> Node<MemoryStore> {
    Node::open(0, LIMITS, MemoryStore::default()).unwrap()
}

fn key(number: u128) -> Key {
    Key {
        id: Id(number.to_be_bytes()),
        attempt: 1,
    }
}

/// What the node answers to a message at once.
fn send(node: &mut Node<MemoryStore>, peer: u64, number: u128, body: Body) -> Vec<Output> {
    let message = Message {
        key: key(number),
        body,
    };
    node.message(1, peer, 2, message).unwrap();
    node.commit(1).unwrap()
}

fn cancel(node: &mut Node<MemoryStore>, peer: u64, number: u128) -> Vec<Output> {
    let lifetime_ms = 1 << 40;
    send(node, peer, number, Body::Cancel { lifetime_ms })
}

/// A whole small request.
fn request(node: &mut Node<MemoryStore>, peer: u64, number: u128) -> Vec<Output> {
    first_part(node, peer, number, 50)
}

/// The first part of a request of `bytes`.
fn first_part(
    node: &mut Node<MemoryStore>,
    peer: u64,
    number: u128,
    total_bytes: u64,
) -> Vec<Output> {
    let object = Object {
        total_bytes,
        head_bytes: 40,
        part_bytes: 1024,
    };
    let part = Part {
        object,
        index: 0,
        data: Bytes::from(vec![7; object.part_len(0) as usize]),
    };
    let body = Body::Request {
        repeatable: false,
        lifetime_ms: LIFETIME_MS,
        part,
    };
    send(node, peer, number, body)
}

fn is_taken(outputs: &[Output]) -> bool {
    let acknowledges = |output: &Output| {
        let Output::Send { message, .. } = output else {
            return false;
        };
        matches!(message.body, Body::Ack { next: 1, .. })
    };
    outputs.iter().any(acknowledges)
}

#[test]
fn cancels_of_what_never_came_leave_little_and_are_no_burden_to_others() {
    let mut node = node();
    for number in 0..10_000 {
        cancel(&mut node, HOSTILE, number);
    }
    assert!(node.figures().dispatching <= 64, "{:?}", node.figures());
    for number in 0..500 {
        assert!(is_taken(&request(&mut node, HONEST, number)), "{number}");
    }
    // A restart changes nothing about this.
    let mut node = node.reopen(2).unwrap();
    cancel(&mut node, HOSTILE, 10_001);
    assert!(node.figures().dispatching <= 564);
}

#[test]
fn cancels_that_are_acknowledged_make_room_for_others() {
    let mut node = node();
    for number in 0..1000 {
        let told = cancel(&mut node, HONEST, number);
        let notice = |output: &Output| match output {
            Output::Send { message, .. } => {
                message.key == key(number) && matches!(message.body, Body::Notice { .. })
            }
            Output::Order(_) => false,
        };
        assert!(told.iter().any(notice), "cancel {number} is not answered");
        let body = Body::Ack {
            of: underpass_deferred::wire::Of::Response,
            next: 1,
        };
        send(&mut node, HONEST, number, body);
    }
    assert!(node.figures().dispatching <= 64);
    // Late parts find that the request has ended.
    request(&mut node, HONEST, 999);
    let orders = node.commit(1).unwrap();
    assert!(!orders.iter().any(|o| matches!(o, Output::Order(_))));
    assert_eq!(node.bytes(), 0);
}

#[test]
fn a_peer_that_fills_its_share_leaves_room_for_all_others() {
    let mut node = node();
    for number in 0..2000 {
        request(&mut node, HOSTILE, number);
    }
    let taken = node.figures().dispatching;
    assert!(
        taken >= 300,
        "a lone peer has {taken} of {}",
        LIMITS.requests
    );
    for peer in 100..164 {
        for number in 0..16 {
            assert!(is_taken(&request(&mut node, peer, number)), "{peer}");
        }
    }
    assert!(!is_taken(&request(&mut node, HOSTILE, 5000)));
}

#[test]
fn what_is_forgotten_gives_its_room_back() {
    let mut node = node();
    for number in 0..2000 {
        request(&mut node, HOSTILE, number);
    }
    assert!(!is_taken(&request(&mut node, HOSTILE, 5000)));
    node.handle_timeout(LIFETIME_MS + 2).unwrap();
    node.handle_timeout(LIMITS.keep_ms * 2).unwrap();
    // Requests that wait for their origin have the exchange's own time limit.
    assert_eq!(node.figures().dispatching, LIMITS.exchanges as u64);
    assert!(is_taken(&request(&mut node, HOSTILE, 5001)));
}

#[test]
fn bytes_that_a_peer_announces_are_of_its_share() {
    let mut node = node();
    let largest = LIMITS.request_bytes;
    let taken = |node: &mut Node<MemoryStore>, peer, number| {
        is_taken(&first_part(node, peer, number, largest))
    };
    let begun = (0..100).filter(|number| taken(&mut node, HOSTILE, *number));
    assert_eq!(begun.count(), 16, "half of what requests find, in MiB");
    for number in 0..4 {
        assert!(taken(&mut node, HONEST, number), "{number}");
        assert!(taken(&mut node, HONEST + 1, number), "{number}");
    }
    assert!(!taken(&mut node, HOSTILE, 100));
}

/// Answers the requests that go to their origins; returns how many of the answers, all of
/// the largest size, found room.
fn answer(node: &mut Node<MemoryStore>, outputs: Vec<Output>) -> usize {
    let object = Object {
        total_bytes: LIMITS.response_bytes,
        head_bytes: 40,
        part_bytes: LIMITS.response_bytes as u32,
    };
    let body = vec![7; LIMITS.response_bytes as usize];
    let mut answered = 0;
    for output in outputs {
        let Output::Order(Order::Connect { job, .. }) = output else {
            continue;
        };
        node.dispatched(1, job, Dispatched::Connected).unwrap();
        let what = match node.answer_part(job, &body).unwrap() {
            Ok(()) => Dispatched::Answered(object),
            Err(refusal) => {
                assert_eq!(refusal, Refusal::Full);
                Dispatched::Unusable(Answer::new(507, "proxy_internal_error", "no room"))
            }
        };
        answered += usize::from(matches!(what, Dispatched::Answered(_)));
        node.dispatched(1, job, what).unwrap();
    }
    answered
}

#[test]
fn a_peer_that_never_acknowledges_leaves_room_for_others() {
    let mut node = node();
    let mut answered = 0;
    for number in 0..100 {
        let outputs = request(&mut node, HOSTILE, number);
        answered += answer(&mut node, outputs);
    }
    assert_eq!(answered, 32, "half of the quota, in MiB");
    for number in 0..4 {
        let outputs = request(&mut node, HONEST, number);
        assert!(is_taken(&outputs), "{number}");
        assert_eq!(answer(&mut node, outputs), 1, "{number}");
    }
}

#[test]
fn a_client_that_fills_its_share_leaves_room_for_others() {
    let mut node = node();
    let [hostile, honest] = [1, 2].map(|host| IpAddr::from([192, 0, 2, host]));
    let id = |number: u128| Id(number.to_be_bytes());
    let begun = (0..2000).filter(|number| node.begin_upload(id(*number), hostile).is_ok());
    assert_eq!(begun.count(), LIMITS.requests / 2);
    for number in 2000..2100 {
        node.begin_upload(id(number), honest).unwrap();
        node.upload(id(number), &[7; 50]).unwrap().unwrap();
    }
    // A request that is abandoned frees its room.
    node.abandon(id(0)).unwrap();
    for number in 2000..2100 {
        node.abandon(id(number)).unwrap();
    }
    node.begin_upload(id(2101), hostile).unwrap();
}

#[test]
fn the_bytes_of_a_client_are_shared_too() {
    let mut node = node();
    let largest = vec![7; LIMITS.request_bytes as usize];
    // One customer has a whole IPv6 network of addresses.
    let hostile = |number: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, number]);
    let mut upload = |number: u16, client: IpAddr| {
        let id = Id(u128::from(number).to_be_bytes());
        node.begin_upload(id, client).unwrap();
        node.upload(id, &largest).unwrap()
    };
    let taken = (0..100).filter(|number| upload(*number, hostile(*number)).is_ok());
    assert_eq!(taken.count(), 16, "half of what requests find, in MiB");
    for number in 200..204 {
        upload(number, CLIENT).unwrap();
    }
}
