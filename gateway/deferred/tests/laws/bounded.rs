//! The work for one request looks at no other request.

use bytes::Bytes;
use underpass_deferred::wire::{Body, Key, Message, Of, Part};
use underpass_deferred::{
    Dispatched, Id, JobKey, Limits, Node, Object, Order, Output, Owner, Submission,
};
use underpass_work::{assert_bounded, of};

use crate::memory::MemoryStore;
use crate::world::{CLIENT, LIMITS};

const PEER: u64 = 5;
const OBJECT: Object = Object {
    total_bytes: 50,
    head_bytes: 40,
    part_bytes: 1024,
};

fn key(number: u64) -> Key {
    Key {
        id: Id(u128::from(number).to_be_bytes()),
        attempt: 1,
    }
}

fn part() -> Part {
    Part {
        object: OBJECT,
        index: 0,
        data: Bytes::from(vec![7; 50]),
    }
}

fn request(node: &mut Node<MemoryStore>, peer: u64, number: u64) {
    let body = Body::Request {
        repeatable: true,
        lifetime_ms: 1 << 40,
        part: part(),
    };
    let message = Message {
        key: key(number),
        body,
    };
    node.message(1, peer, 2, message).unwrap();
}

/// Queues a request of a client of this node for `peer`.
fn submit(node: &mut Node<MemoryStore>, peer: u64, number: u64) {
    let id = key(number).id;
    node.begin_upload(id, CLIENT).unwrap();
    node.upload(id, &[7; 50]).unwrap().unwrap();
    let submission = Submission {
        id,
        peer,
        class: 2,
        repeatable: true,
        owner: Owner {
            client: CLIENT,
            user: None,
        },
        method: "POST".to_owned(),
        target: "http://origin/".to_owned(),
        head_bytes: 40,
    };
    node.submit(1, submission).unwrap().unwrap();
}

/// A node with requests to and from this many peers, eight each: at their origins,
/// waiting, answered, unacknowledged.
fn node(peers: u64) -> Node<MemoryStore> {
    let limits = Limits {
        requests: 1 << 20,
        keep_ms: 1 << 41,
        lifetime_ms: 1 << 40,
        exchanges: 2,
        ..LIMITS
    };
    let mut node = Node::open(0, limits, MemoryStore::default()).unwrap();
    for peer in 100..100 + peers {
        for number in 0..8 {
            request(&mut node, peer, peer << 8 | number);
            submit(&mut node, peer, 1 << 40 | peer << 8 | number);
        }
    }
    let outputs = node.commit(1).unwrap();
    let connects = outputs.into_iter().filter_map(|output| match output {
        Output::Order(Order::Connect { job, .. }) => Some(job),
        _ => None,
    });
    for job in connects.step_by(2).collect::<Vec<_>>() {
        answer(&mut node, job);
    }
    node.commit(2).unwrap();
    node
}

fn answer(node: &mut Node<MemoryStore>, job: JobKey) {
    node.dispatched(2, job, Dispatched::Connected).unwrap();
    node.answer_part(job, &[7; 50]).unwrap().unwrap();
    let answered = Dispatched::Answered(OBJECT);
    node.dispatched(2, job, answered).unwrap();
}

/// The cost of each step in a request's life, with commits and timers.
fn costs(peers: u64) -> Vec<(&'static str, u64)> {
    let mut node = node(peers);
    let mut costs = Vec::new();
    let mut cost = |what, node: &mut Node<MemoryStore>, step: &dyn Fn(&mut Node<MemoryStore>)| {
        let steps = of(|| {
            step(node);
            node.handle_timeout(3).unwrap();
            node.commit(3).unwrap();
            node.next_timeout();
        });
        costs.push((what, steps));
    };
    let say = |node: &mut Node<MemoryStore>, number, body| {
        let message = Message {
            key: key(number),
            body,
        };
        node.message(3, PEER, 2, message).unwrap();
    };
    let job = JobKey {
        peer: PEER,
        key: key(1),
    };
    let ack = |of| Body::Ack { of, next: 1 };
    cost("a request comes", &mut node, &|node| request(node, PEER, 1));
    cost("its origin answers", &mut node, &|node| answer(node, job));
    cost("its answer is acknowledged", &mut node, &|node| {
        say(node, 1, ack(Of::Response));
    });
    cost("a request is cancelled", &mut node, &|node| {
        say(node, 2, Body::Cancel { lifetime_ms: 9 });
    });
    cost("a peer restarts", &mut node, &|node| {
        node.peer_restarted(PEER)
    });
    cost("a client queues a request", &mut node, &|node| {
        submit(node, PEER, 3)
    });
    cost("it is acknowledged", &mut node, &|node| {
        say(node, 3, ack(Of::Request));
    });
    cost("its response comes", &mut node, &|node| {
        let own = false;
        say(node, 3, Body::Response { own, part: part() });
    });
    costs
}

#[test]
fn a_request_costs_the_same_among_few_and_among_many() {
    for ((what, few), (_, many)) in costs(10).into_iter().zip(costs(200)) {
        assert!(few > 1, "{what} is not counted");
        assert_bounded(what, few, many);
    }
}
