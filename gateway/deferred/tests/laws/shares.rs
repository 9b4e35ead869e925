//! One peer takes what is its own, and nobody else notices.

use bytes::Bytes;
use underpass_deferred::wire::{Body, Key, Message, Part};
use underpass_deferred::{Id, Node, Object, Output};

use crate::memory::MemoryStore;
use crate::world::{LIFETIME_MS, LIMITS};

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

/// What the node says to a message at once.
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
    let part = Part {
        object: Object {
            total_bytes: 50,
            head_bytes: 40,
            part_bytes: 1024,
        },
        index: 0,
        data: Bytes::from(vec![7; 50]),
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
    // A restart changes nothing of it.
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
    // Parts that come late find that it is over.
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
    // What waits for its origin has the exchange's own time limit.
    assert_eq!(node.figures().dispatching, LIMITS.exchanges as u64);
    assert!(is_taken(&request(&mut node, HOSTILE, 5001)));
}
