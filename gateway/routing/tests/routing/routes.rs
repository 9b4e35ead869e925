//! Routes, checked against two independent searches.

use std::collections::{BTreeMap, BTreeSet};

use underpass_routing::{Contact, ContactId, Node, Route, Router};

fn contact(from: Node, to: Node, (start_ms, end_ms): (u64, u64), owlt_ms: u64) -> Contact {
    Contact {
        from,
        to,
        start_ms,
        end_ms,
        rate_bytes_per_s: 1_000,
        owlt_ms,
        booked_bytes: 0,
    }
}

fn random_contact(random: &mut fastrand::Rng, nodes: u64) -> Contact {
    let from = random.u64(1..=nodes);
    let to = 1 + (from + random.u64(0..nodes - 1)) % nodes;
    let start_ms = random.u64(0..20) * 100;
    Contact {
        rate_bytes_per_s: [1_000, 2_000, 10_000][random.usize(0..3)],
        booked_bytes: [0, 0, 100][random.usize(0..3)],
        ..contact(
            from,
            to,
            (start_ms, start_ms + random.u64(1..12) * 100),
            random.u64(0..4) * 50,
        )
    }
}

fn plan(
    random: &mut fastrand::Rng,
    count: usize,
    nodes: u64,
) -> (Router, Vec<(ContactId, Contact)>) {
    let mut router = Router::new(1);
    let contacts = (0..count).map(|_| random_contact(random, nodes));
    let contacts: Vec<_> = contacts.collect();
    let contacts = contacts.into_iter().map(|c| (router.add(c.clone()), c));
    let contacts = contacts.collect();
    (router, contacts)
}

/// The order of routes: the least is the best.
type Rank = (u64, usize, std::cmp::Reverse<u64>, Node);

fn rank(route: &Route) -> Rank {
    let end = std::cmp::Reverse(route.termination_ms);
    (route.arrival_ms, route.contacts.len(), end, route.entry)
}

/// Every sequence of consecutive contacts that visits no node twice.
fn enumerate(contacts: &[(ContactId, Contact)], to: Node, bytes: u64, at_ms: u64) -> Option<Rank> {
    struct Way {
        node: Node,
        ready_ms: u64,
        hops: usize,
        end_ms: u64,
        entry: Node,
        seen: BTreeSet<Node>,
    }
    let start = Way {
        node: 1,
        ready_ms: at_ms,
        hops: 0,
        end_ms: u64::MAX,
        entry: 0,
        seen: BTreeSet::from([1]),
    };
    let (mut ways, mut best) = (vec![start], None::<Rank>);
    while let Some(way) = ways.pop() {
        if way.node == to && way.hops > 0 {
            let rank = (
                way.ready_ms,
                way.hops,
                std::cmp::Reverse(way.end_ms),
                way.entry,
            );
            best = Some(best.map_or(rank, |best| best.min(rank)));
            continue;
        }
        for (_, contact) in contacts
            .iter()
            .filter(|(_, c)| c.from == way.node && !way.seen.contains(&c.to))
        {
            let Some(ready_ms) = contact.arrival_ms(way.ready_ms, bytes) else {
                continue;
            };
            let mut seen = way.seen.clone();
            seen.insert(contact.to);
            ways.push(Way {
                node: contact.to,
                ready_ms,
                hops: way.hops + 1,
                end_ms: way.end_ms.min(contact.end_ms),
                entry: if way.hops == 0 { contact.to } else { way.entry },
                seen,
            });
        }
    }
    best
}

/// The best ways from node 1 to all others of `nodes`, by a search over every node at every
/// time at which it can be reached. Ways that are at a node at the same time with as few hops
/// as possible all count: of those with the same first hop, the one whose first contact to end
/// ends last.
fn time_expanded(
    contacts: &[(ContactId, Contact)],
    nodes: usize,
    bytes: u64,
    at_ms: u64,
) -> BTreeMap<Node, Rank> {
    let mut leaving: BTreeMap<Node, Vec<&Contact>> = BTreeMap::new();
    for (_, contact) in contacts {
        leaving.entry(contact.from).or_default().push(contact);
    }
    // By time, hops and node: the latest end for each first hop.
    let mut ways: BTreeMap<(u64, usize, Node), BTreeMap<Node, u64>> = BTreeMap::new();
    ways.insert((at_ms, 0, 1), BTreeMap::new());
    let mut done: BTreeSet<(u64, Node)> = BTreeSet::new();
    let mut best: BTreeMap<Node, Rank> = BTreeMap::new();
    while let Some(((ready_ms, hops, node), ends)) = ways.pop_first() {
        // The queue is ordered by time and then by hops, so the first entry for a node at
        // a time has the fewest hops.
        if !done.insert((ready_ms, node)) {
            continue;
        }
        let ranks = ends.iter();
        let ranks = ranks.map(|(entry, end)| (ready_ms, hops, std::cmp::Reverse(*end), *entry));
        if let Some(rank) = ranks.min().filter(|_| node != 1) {
            best.entry(node).or_insert(rank);
        }
        if best.len() + 1 == nodes {
            break;
        }
        for contact in leaving.get(&node).into_iter().flatten() {
            let Some(arrival_ms) = contact.arrival_ms(ready_ms, bytes) else {
                continue;
            };
            let first = BTreeMap::from([(contact.to, u64::MAX)]);
            let before = if hops == 0 { &first } else { &ends };
            let next = ways.entry((arrival_ms, hops + 1, contact.to)).or_default();
            for (entry, end) in before {
                let latest = next.entry(*entry).or_insert(0);
                *latest = (*latest).max(contact.end_ms.min(*end));
            }
        }
    }
    best
}

#[test]
fn the_route_is_the_best_of_all_that_there_are() {
    let mut found = 0;
    for seed in 0..3_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let count = random.usize(1..=12);
        let (mut router, contacts) = plan(&mut random, count, 6);
        for to in 2..=6 {
            let (bytes, at_ms) = (random.u64(0..500), random.u64(0..1_000));
            let route = router.route(to, bytes, at_ms);
            let expected = enumerate(&contacts, to, bytes, at_ms);
            assert_eq!(route.as_ref().map(rank), expected, "seed {seed}, to {to}");
            found += usize::from(route.is_some());
        }
    }
    assert!(found > 2_000, "{found}");
}

#[test]
fn in_plans_of_a_thousand_contacts_routes_are_those_of_a_search_over_all_times() {
    const NODES: u64 = 101;
    let (mut asked, mut found) = (0, 0);
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut router, contacts) = plan(&mut random, 1_000, NODES);
        // Few different times, so that many ways arrive equally early.
        let (bytes, at_ms) = (random.u64(1..=5) * 100, random.u64(0..50) * 10);
        let expected = time_expanded(&contacts, NODES as usize, bytes, at_ms);
        for to in 2..=NODES {
            let ours = router.route(to, bytes, at_ms).as_ref().map(rank);
            assert_eq!(ours, expected.get(&to).copied(), "seed {seed}, to {to}");
            asked += 1;
            found += usize::from(ours.is_some());
        }
    }
    assert_eq!(asked, 4_000);
    assert!(found > 3_000, "{found}");
}

#[test]
fn after_every_change_routes_are_those_of_a_fresh_router() {
    for seed in 0..100 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut router, mut contacts) = plan(&mut random, 60, 10);
        let sizes = [50, 400];
        let mut at_ms = 0;
        for step in 0..60 {
            let index = random.usize(..contacts.len());
            let id = contacts[index].0;
            match random.u8(0..4) {
                0 => {
                    assert!(router.remove(id).is_some());
                    contacts.remove(index);
                }
                1 => {
                    let new = random_contact(&mut random, 10);
                    contacts.push((router.add(new.clone()), new));
                }
                2 => {
                    // A blockage cuts a contact short.
                    let end_ms = contacts[index].1.start_ms + 50;
                    assert!(router.change(id, |contact| contact.end_ms = end_ms));
                    contacts[index].1.end_ms = end_ms;
                }
                _ => {
                    assert!(router.change(id, |contact| contact.booked_bytes += 70));
                    contacts[index].1.booked_bytes += 70;
                }
            }
            at_ms += random.u64(0..40);
            let mut fresh = Router::new(1);
            for (_, contact) in &contacts {
                fresh.add(contact.clone());
            }
            for (to, bytes) in (2..=10).flat_map(|to| sizes.map(|bytes| (to, bytes))) {
                let ours = router.route(to, bytes, at_ms).as_ref().map(rank);
                let theirs = fresh.route(to, bytes, at_ms).as_ref().map(rank);
                assert_eq!(
                    ours, theirs,
                    "seed {seed}, step {step}, to {to}, {bytes} bytes"
                );
            }
        }
    }
}

#[test]
fn a_change_that_concerns_no_route_costs_no_search() {
    let mut router = Router::new(1);
    router.add(contact(1, 2, (0, 1_000), 10));
    let late = router.add(contact(2, 3, (5_000, 9_000), 10));
    let first = router.route(2, 10, 0);
    assert_eq!(router.searches(), 1);
    router.change(late, |contact| contact.end_ms = 8_000);
    router.add(contact(1, 2, (4_000, 5_000), 0));
    assert_eq!(router.route(2, 10, 0), first);
    assert_eq!(router.searches(), 1);
    let better = router.add(contact(1, 2, (0, 1_000), 0));
    assert_eq!(
        router.route(2, 10, 0).map(|route| route.contacts),
        Some(vec![better])
    );
    assert_eq!(router.searches(), 2);
}

#[test]
fn booked_volume_moves_what_follows_and_what_does_not_fit_goes_another_way() {
    let mut router = Router::new(1);
    let near = router.add(contact(1, 2, (0, 1_000), 0));
    let far = router.add(contact(1, 2, (2_000, 3_000), 0));
    let first = router.route(2, 600, 0).expect("a route");
    assert_eq!(
        (first.contacts.clone(), first.arrival_ms),
        (vec![near], 600)
    );
    router.change(near, |contact| contact.book(600, 0));
    let second = router.route(2, 300, 0).expect("a route");
    assert_eq!((second.contacts, second.arrival_ms), (vec![near], 900));
    let third = router.route(2, 600, 0).expect("a route");
    assert_eq!((third.contacts, third.arrival_ms), (vec![far], 2_600));
    assert_eq!(router.route(2, 1_001, 0), None, "it fits no contact");

    // What was booked long ago is sent by now, and what is given back is free again.
    router.change(near, |contact| contact.book(300, 700));
    let after = |router: &mut Router| router.route(2, 100, 700).map(|route| route.arrival_ms);
    assert_eq!(after(&mut router), Some(2_100), "the near one is full");
    router.change(near, |contact| contact.book(-200, 700));
    assert_eq!(after(&mut router), Some(900));
}

#[test]
fn cycles_and_contradictions_in_a_plan_end_no_search() {
    let mut router = Router::new(1);
    for (from, to) in [(1, 2), (2, 1), (2, 3), (3, 2), (3, 1), (1, 1)] {
        router.add(contact(from, to, (0, 1_000), 0));
        // The same pair twice at once, and a contact that ends before it begins.
        router.add(contact(from, to, (0, 1_000), 0));
        router.add(contact(from, to, (900, 100), 0));
    }
    assert_eq!(
        router.route(3, 10, 0).map(|route| route.contacts.len()),
        Some(2)
    );
    assert_eq!(router.route(4, 10, 0), None);
    assert_eq!(router.route(1, 10, 0), None, "this node itself");
    router.add(Contact {
        rate_bytes_per_s: 0,
        booked_bytes: u64::MAX,
        owlt_ms: u64::MAX,
        ..contact(1, 5, (0, u64::MAX), 0)
    });
    assert_eq!(router.route(5, u64::MAX, u64::MAX), None);
}
