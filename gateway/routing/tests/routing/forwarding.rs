//! Where bundles go next as time goes on, links are blocked and queues fill.

use std::collections::{BTreeMap, BTreeSet};

use underpass_routing::{Blocked, Contact, Forwarding, Node};

const OWN: Node = 1;
const SMALL: u64 = 1_000;
const LARGE: u64 = 10_000_000;

fn contact(from: Node, to: Node, (start_s, end_s): (u64, u64)) -> Contact {
    Contact {
        from,
        to,
        start_ms: start_s * 1_000,
        end_ms: end_s * 1_000,
        rate_bytes_per_s: 1_000_000,
        owlt_ms: 10,
        booked_bytes: 0,
    }
}

fn following(plan: &[Contact], neighbours: &[Node]) -> Forwarding {
    let neighbours = neighbours.iter().copied().collect();
    Forwarding::new(OWN, plan.to_vec(), &neighbours, SMALL)
}

/// Two routes to 4: one through 2, and one through 3, whose contact with 4 is slower.
fn two_ways(end_s: u64, slow_ms: u64) -> [Contact; 4] {
    let to = |from, to| contact(from, to, (0, end_s));
    let slow = Contact {
        owlt_ms: slow_ms,
        ..to(3, 4)
    };
    [to(OWN, 2), to(OWN, 3), to(2, 4), slow]
}

fn none() -> BTreeMap<Node, Vec<Blocked>> {
    BTreeMap::new()
}

fn blocked(neighbour: Node, from_s: u64, until_s: u64) -> BTreeMap<Node, Vec<Blocked>> {
    let blocked = Blocked {
        from_ms: from_s * 1_000,
        until_ms: until_s * 1_000,
    };
    BTreeMap::from([(neighbour, vec![blocked])])
}

fn via(forwarding: &Forwarding, node: Node) -> Option<Node> {
    via_of(forwarding, node, SMALL)
}

fn via_of(forwarding: &Forwarding, node: Node, bytes: u64) -> Option<Node> {
    let next = forwarding.table().next.get(&bytes)?;
    next.get(&node).map(|next| next.via)
}

fn small(nodes: &[Node]) -> BTreeSet<(Node, u64)> {
    nodes.iter().map(|node| (*node, SMALL)).collect()
}

fn speaks_for(forwarding: &Forwarding, neighbour: Node, node: Node) -> bool {
    let speakers = forwarding.table().speakers.get(&node);
    speakers.is_some_and(|speakers| speakers.contains(&neighbour))
}

#[test]
fn a_neighbour_speaks_only_for_nodes_from_which_contacts_lead_by_it() {
    let plan = [
        // 4 reaches this node through 2; 3 sends to 4, but 4 does not send to 3.
        contact(4, 2, (0, 50)),
        contact(2, OWN, (0, 100)),
        contact(3, 4, (60, 100)),
        contact(3, OWN, (0, 100)),
        contact(OWN, 3, (0, 100)),
        // 5 hears this node, but never sends.
        contact(OWN, 5, (0, 100)),
        // 6 could come only through 3, but 3's last contact with this node is over
        // before.
        contact(6, 3, (100, 200)),
        // 7 reaches 2 only through this node.
        contact(7, OWN, (0, 100)),
        contact(OWN, 2, (0, 100)),
    ];
    let forwarding = following(&plan, &[2, 3, 5, 7]);
    let mut allowed = BTreeSet::new();
    for neighbour in 1..=8 {
        for node in 1..=8 {
            if speaks_for(&forwarding, neighbour, node) {
                allowed.insert((neighbour, node));
            }
        }
    }
    let expected = [(2, 2), (2, 4), (3, 3), (7, 7)];
    assert_eq!(allowed, BTreeSet::from(expected));
}

#[test]
fn a_source_may_come_by_every_way_that_the_plan_has_whatever_is_blocked() {
    let plan = [
        contact(4, 2, (0, 50)),
        contact(4, 3, (0, 50)),
        contact(2, OWN, (60, 100)),
        contact(3, OWN, (60, 100)),
        contact(OWN, 2, (60, 100)),
    ];
    let mut forwarding = following(&plan, &[2, 3]);
    forwarding.advance(500_000, &blocked(2, 0, 1_000));
    assert!(speaks_for(&forwarding, 2, 4) && speaks_for(&forwarding, 3, 4));
}

#[test]
fn a_contact_that_begins_and_ends_moves_what_waits() {
    let plan = [
        contact(OWN, 2, (0, 10)),
        contact(OWN, 3, (20, 30)),
        contact(2, 4, (0, 100)),
        contact(3, 4, (0, 100)),
    ];
    let mut forwarding = following(&plan, &[2, 3]);
    let change = forwarding.advance(0, &none()).expect("a change");
    assert_eq!(via(&forwarding, 4), Some(2));
    assert_eq!(change.table.open, BTreeMap::from([(2, true), (3, false)]));
    assert_eq!(forwarding.next_ms(0), Some(10_000));
    assert!(
        forwarding.advance(5_000, &none()).is_none(),
        "nothing has changed"
    );

    // Bundles that still wait for 2 go by the next contact.
    let change = forwarding.advance(10_000, &none()).expect("a change");
    assert_eq!(via(&forwarding, 4), Some(3));
    assert_eq!(change.lost, BTreeSet::from([2]));
    assert_eq!(change.moved, small(&[2, 4]), "2 has no contact any more");

    let change = forwarding.advance(20_000, &none()).expect("a change");
    assert_eq!(change.table.open, BTreeMap::from([(2, false), (3, true)]));
    forwarding.advance(30_000, &none());
    assert_eq!(via(&forwarding, 4), None);
    assert_eq!(forwarding.next_ms(30_000), None);
}

#[test]
fn a_contact_further_on_that_ends_moves_what_waits() {
    let mut plan = two_ways(100, 500);
    plan[2].end_ms = 30_000;
    let mut forwarding = following(&plan, &[2, 3]);
    forwarding.advance(0, &none());
    assert_eq!(via(&forwarding, 4), Some(2));
    let change = forwarding.advance(30_000, &none()).expect("a change");
    assert_eq!(via(&forwarding, 4), Some(3));
    assert_eq!(change.moved, small(&[4]));
    assert!(change.lost.is_empty());
}

#[test]
fn a_blockage_moves_bundles_to_another_way_and_back() {
    let mut forwarding = following(&two_ways(100, 500), &[2, 3]);
    forwarding.advance(0, &none());
    assert_eq!(via(&forwarding, 4), Some(2));

    // The blockage is only predicted: a small bundle arrives before it begins.
    forwarding.advance(1_000, &blocked(2, 40, 60));
    assert_eq!(via(&forwarding, 4), Some(2));
    let change = forwarding.advance(40_000, &blocked(2, 40, 60));
    let change = change.expect("a change");
    assert_eq!(via(&forwarding, 4), Some(3));
    assert!(change.lost.contains(&2) && change.moved.contains(&(4, SMALL)));
    assert_eq!(
        via(&forwarding, 2),
        Some(2),
        "there is no other way to 2 itself"
    );
    assert!(
        change.table.open[&2],
        "the contact is there, though it is blocked"
    );

    // Just before the blockage ends, waiting for its end is quicker than the long route.
    // Bundles that already go by the long route stay there.
    let change = forwarding.advance(59_700, &blocked(2, 40, 60));
    assert!(change.expect("a change").moved.is_empty());
    assert_eq!(via(&forwarding, 4), Some(2));

    // A blockage that ends earlier than predicted gives the contact back.
    forwarding.advance(41_000, &blocked(2, 40, 60));
    assert_eq!(via(&forwarding, 4), Some(3));
    let change = forwarding.advance(42_000, &none()).expect("a change");
    assert_eq!(via(&forwarding, 4), Some(2));
    assert!(change.moved.contains(&(4, SMALL)));
}

#[test]
fn a_backlog_sends_what_comes_another_way_and_moves_nothing() {
    let mut forwarding = following(&two_ways(100, 3_000), &[2, 3]);
    forwarding.advance(0, &none());
    let small = BTreeMap::from([(2, 2_000_000)]);
    assert!(forwarding.book(0, &small, &BTreeMap::new()).is_none());
    assert_eq!(via(&forwarding, 4), Some(2), "two seconds of line");
    let change = forwarding.book(0, &BTreeMap::from([(2, 20_000_000)]), &BTreeMap::new());
    let change = change.expect("a change");
    assert_eq!(via(&forwarding, 4), Some(3), "twenty");
    assert!(change.moved.is_empty() && change.lost.is_empty());

    // A backlog larger than the contact is booked in that contact only.
    forwarding.book(0, &BTreeMap::from([(2, 1 << 40)]), &BTreeMap::new());
    assert_eq!(via(&forwarding, 2), None, "nothing fits any more");
    assert_eq!(via(&forwarding, 4), Some(3));
    forwarding.book(1_000, &BTreeMap::new(), &BTreeMap::new());
    assert_eq!(
        (via(&forwarding, 2), via(&forwarding, 4)),
        (Some(2), Some(2))
    );
}

#[test]
fn a_backlog_that_stays_is_booked_anew_when_its_time_is_over() {
    let mut forwarding = following(&two_ways(1_000, 3_000), &[2, 3]);
    let backlog = BTreeMap::from([(2, 20_000_000)]);
    for second in 0..100 {
        let change = forwarding.advance(second * 1_000, &none());
        let moved = change.map(|change| change.moved).unwrap_or_default();
        assert!(
            second == 0 || moved.is_empty(),
            "second {second}: what waits stays"
        );
        forwarding.book(second * 1_000, &backlog, &BTreeMap::new());
        let waits = via(&forwarding, 4) == Some(3);
        // Only near the end of each round may the booked link look free.
        assert!(waits || second % 17 >= 13, "second {second}");
    }
}

#[test]
fn a_backlog_is_booked_anew_when_the_clock_was_set_back() {
    let mut forwarding = following(&two_ways(10_000, 2_000), &[2, 3]);
    let backlog = BTreeMap::from([(2, 1 << 20)]);
    for now_ms in [3_600_000, 60_000] {
        forwarding.advance(now_ms, &none());
        forwarding.book(now_ms, &backlog, &BTreeMap::new());
        assert_eq!(via(&forwarding, 4), Some(2), "at {now_ms} ms");
    }
}

#[test]
fn a_bundle_that_no_contact_of_the_quickest_way_can_finish_goes_by_one_that_can() {
    // 2 and 3 have contacts of 5 s in turn, at 1 MB/s; 4 has one always, at 200 kB/s.
    let mut plan: Vec<Contact> = (0..60)
        .map(|turn| contact(OWN, 2 + turn % 2, (turn * 5, turn * 5 + 5)))
        .collect();
    plan.push(Contact {
        rate_bytes_per_s: 200_000,
        ..contact(OWN, 4, (0, 300))
    });
    plan.extend([2, 3, 4].map(|relay| contact(relay, 5, (0, 400))));
    let mut forwarding = following(&plan, &[2, 3, 4]);
    forwarding.seek_for(0, &BTreeSet::from([LARGE]));
    for second in 0..250 {
        forwarding.advance(second * 1_000, &none());
        let quickest = 2 + second / 5 % 2;
        assert_eq!(via(&forwarding, 5), Some(quickest), "second {second}");
        assert_eq!(via_of(&forwarding, 5, LARGE), Some(4), "second {second}");
    }
    forwarding.advance(251_000, &none());
    assert_eq!(via_of(&forwarding, 5, LARGE), None, "nobody can finish it");
}

#[test]
fn what_is_left_of_a_contact_behind_the_backlog_decides_for_large_bundles() {
    let mut plan = two_ways(100, 60_000);
    plan[0].end_ms = 20_000;
    let begin = || {
        let mut forwarding = following(&plan, &[2, 3]);
        forwarding.seek_for(0, &BTreeSet::from([LARGE]));
        forwarding.advance(0, &none());
        assert_eq!(via_of(&forwarding, 4, LARGE), Some(2));
        forwarding
    };
    let mut forwarding = begin();
    forwarding.book(0, &BTreeMap::from([(2, 9_000_000)]), &BTreeMap::new());
    assert_eq!(via_of(&forwarding, 4, LARGE), Some(2), "12 s are left");
    forwarding.book(0, &BTreeMap::from([(2, 20_000_000)]), &BTreeMap::new());
    assert_eq!(via_of(&forwarding, 4, LARGE), Some(3), "3 s are left");
    assert_eq!(via(&forwarding, 4), Some(2));

    let mut forwarding = begin();
    let change = forwarding.advance(11_000, &none()).expect("a change");
    assert_eq!(via_of(&forwarding, 4, LARGE), Some(3), "9 s are left");
    assert_eq!(change.moved, BTreeSet::from([(2, LARGE), (4, LARGE)]));
}

#[test]
fn sizes_below_the_first_one_have_no_table_of_their_own() {
    let mut forwarding = following(&two_ways(100, 500), &[2, 3]);
    forwarding.seek_for(0, &BTreeSet::from([1, SMALL, LARGE]));
    forwarding.advance(0, &none());
    let sizes: Vec<u64> = forwarding.table().next.keys().copied().collect();
    assert_eq!(sizes, [SMALL, LARGE]);
    let smallest = forwarding.table().of_smallest().map(BTreeMap::len);
    assert_eq!(smallest, Some(3));
}

#[test]
fn a_size_that_no_bundle_has_had_for_ten_minutes_is_forgotten() {
    let mut forwarding = following(&two_ways(2_000, 500), &[2, 3]);
    let mut at = |minute: u64, asked: &[u64]| -> (Vec<u64>, bool) {
        let now_ms = minute * 60_000;
        forwarding.seek_for(now_ms, &asked.iter().copied().collect());
        let change = forwarding.advance(now_ms, &none());
        let sizes = forwarding.table().next.keys().copied();
        (sizes.collect(), change.is_some())
    };
    assert_eq!(at(0, &[LARGE]), (vec![SMALL, LARGE], true));
    assert_eq!(at(5, &[LARGE]), (vec![SMALL, LARGE], false));
    assert_eq!(at(14, &[]), (vec![SMALL, LARGE], false));
    assert_eq!(at(15, &[]), (vec![SMALL], true), "the change is told");
    assert_eq!(at(16, &[LARGE]), (vec![SMALL, LARGE], true));
    // The clock was set back.
    assert_eq!(at(1, &[]), (vec![SMALL, LARGE], false));
    assert_eq!(at(11, &[]), (vec![SMALL], true));
}

/// 10 MB fit through 2 to 4 in all; the way by 3 has room, and takes long.
fn narrow() -> Forwarding {
    let mut plan = two_ways(1_000, 500_000);
    plan[0].rate_bytes_per_s = 100_000_000;
    plan[2].end_ms = 100_000;
    plan[2].rate_bytes_per_s = 100_000;
    following(&plan, &[2, 3])
}

#[test]
fn what_was_given_to_a_neighbour_takes_the_volume_of_contacts_behind_it() {
    let mut forwarding = narrow();
    let mut given: BTreeMap<Node, i64> = BTreeMap::new();
    let empty = BTreeMap::new();
    for second in 0..40 {
        let moved = forwarding.advance(second * 1_000, &none());
        let moved = moved.map(|change| change.moved).unwrap_or_default();
        assert!(second == 0 || moved.is_empty(), "what waits stays");
        let by = via(&forwarding, 4).expect("a way");
        *given.entry(by).or_default() += 2_000_000;
        // All is sent at once: nothing waits here.
        forwarding.book(
            second * 1_000,
            &empty,
            &BTreeMap::from([((4, by, SMALL), 2_000_000)]),
        );
    }
    assert_eq!(given, BTreeMap::from([(2, 10_000_000), (3, 70_000_000)]));
    assert_eq!(via(&forwarding, 2), Some(2), "the neighbour itself is near");

    let back = BTreeMap::from([((4, 2, SMALL), -8_000_000)]);
    let change = forwarding.book(40_000, &empty, &back).expect("a change");
    assert_eq!(via(&forwarding, 4), Some(2), "it was not taken after all");
    assert!(change.moved.is_empty());
    // The clock says that the rest could have been sent by now: 6 MB are left.
    forwarding.book(
        40_000,
        &empty,
        &BTreeMap::from([((4, 2, SMALL), 6_000_000)]),
    );
    assert_eq!(via(&forwarding, 4), Some(3));
}

#[test]
fn bundles_take_the_volume_of_contacts_on_the_route_of_their_size() {
    // What is large comes to 2 too late for its contact with 4.
    let plan = [
        contact(OWN, 2, (0, 1_000)),
        contact(2, 4, (0, 5)),
        contact(2, 3, (0, 1_000)),
        contact(3, 4, (0, 1_000)),
    ];
    let mut forwarding = following(&plan, &[2]);
    forwarding.seek_for(0, &BTreeSet::from([LARGE]));
    forwarding.advance(0, &none());
    let given = BTreeMap::from([((4, 2, LARGE), 20_000_000), ((4, 2, SMALL), 2_000_000)]);
    forwarding.book(0, &BTreeMap::new(), &given);
    let booked = |bytes: u64| -> Vec<u64> {
        let route = &forwarding.table().next[&bytes][&4].route;
        let contacts = forwarding.contacts_of(route, 0).into_iter();
        contacts.map(|contact| contact.booked_bytes).collect()
    };
    assert_eq!(booked(SMALL), [0, 2_000_000]);
    assert_eq!(booked(LARGE), [0, 20_000_000, 20_000_000]);
}

#[test]
fn steady_traffic_has_routes_sought_again_only_as_a_contact_fills() {
    // Both contacts begin later, so that the routes hold as time goes on.
    let plan = [(OWN, 2), (2, 4)].map(|(from, to)| contact(from, to, (500, 1_000)));
    let mut forwarding = following(&plan, &[2]);
    let given = BTreeMap::from([((4, 2, SMALL), 50_000)]);
    forwarding.advance(0, &none());
    let before = forwarding.searches();
    for second in 0..100 {
        forwarding.advance(second * 1_000, &none());
        forwarding.book(second * 1_000, &BTreeMap::new(), &given);
    }
    assert_eq!(
        forwarding.searches() - before,
        5,
        "once for each second of line"
    );
    let route = &forwarding.table().next[&SMALL][&4].route;
    let contacts = forwarding.contacts_of(route, 100_000);
    assert_eq!(
        contacts[1].booked_bytes,
        100 * 50_000,
        "nothing is forgotten"
    );
}

#[test]
fn what_a_contact_carries_as_it_comes_changes_no_route() {
    let mut forwarding = following(&two_ways(1_000, 500), &[2, 3]);
    let given = BTreeMap::from([((4, 2, SMALL), 900_000)]);
    for second in 0..100 {
        forwarding.advance(second * 1_000, &none());
        let before = forwarding.searches();
        let change = forwarding.book(second * 1_000, &BTreeMap::new(), &given);
        assert!(
            change.is_none() && forwarding.searches() == before,
            "{second}"
        );
    }
}

#[test]
fn no_more_is_given_back_than_was_booked_and_by_the_way_that_it_went() {
    let mut forwarding = narrow();
    forwarding.advance(0, &none());
    let empty = BTreeMap::new();
    for given in [
        BTreeMap::from([((4, 2, SMALL), 10_000_000), ((4, 3, SMALL), 1)]),
        // Nothing was booked by these ways.
        BTreeMap::from([
            ((4, 3, SMALL), -10_000_000),
            ((5, 2, SMALL), -10_000_000),
            ((5, 2, SMALL), 1),
        ]),
    ] {
        forwarding.book(0, &empty, &given);
        assert_eq!(via(&forwarding, 4), Some(3));
    }
    forwarding.book(0, &empty, &BTreeMap::from([((4, 2, SMALL), i64::MIN)]));
    assert_eq!(via(&forwarding, 4), Some(2));
    // It is as if nothing had been booked: a contact is full again after as much.
    forwarding.book(0, &empty, &BTreeMap::from([((4, 2, SMALL), 9_000_000)]));
    assert_eq!(via(&forwarding, 4), Some(2));
    forwarding.book(0, &empty, &BTreeMap::from([((4, 2, SMALL), 1_000_000)]));
    assert_eq!(via(&forwarding, 4), Some(3));
}

#[test]
fn contacts_with_strangers_are_told_and_not_used() {
    let plan = [contact(OWN, 9, (0, 100)), contact(9, 4, (0, 100))];
    let mut forwarding = following(&plan, &[2]);
    assert_eq!(forwarding.strangers(), &BTreeSet::from([9]));
    assert!(forwarding.advance(0, &none()).is_none());
    assert_eq!(via(&forwarding, 4), None);
    assert_eq!(forwarding.contacts(), 2);
}

#[test]
fn whatever_is_blocked_and_booked_the_table_is_that_of_a_fresh_start() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let neighbours = [2, 3, 4];
        let plan: Vec<Contact> = (0..60)
            .map(|_| {
                let from = random.u64(1..=8);
                let to = 1 + (from + random.u64(0..7)) % 8;
                let start = random.u64(0..50);
                contact(from, to, (start, start + random.u64(1..30)))
            })
            .collect();
        let larger = BTreeSet::from([500_000, 4_000_000]);
        let mut forwarding = following(&plan, &neighbours);
        forwarding.seek_for(0, &larger);
        let mut now_ms = 0;
        for step in 0..60 {
            now_ms += random.u64(0..2_000);
            let draw = |random: &mut fastrand::Rng| {
                let mut at_ms = 0;
                let mut all = Vec::new();
                for _ in 0..random.usize(0..4) {
                    let from_ms = at_ms + random.u64(1..20_000);
                    let until_ms = from_ms + random.u64(1..20_000);
                    all.push(Blocked { from_ms, until_ms });
                    at_ms = until_ms;
                }
                all
            };
            let blocked: BTreeMap<Node, Vec<Blocked>> =
                neighbours.iter().map(|n| (*n, draw(&mut random))).collect();
            let backlog: BTreeMap<Node, u64> = neighbours
                .iter()
                .map(|n| (*n, random.u64(0..30_000_000)))
                .collect();
            forwarding.book(now_ms, &BTreeMap::new(), &BTreeMap::new());
            forwarding.advance(now_ms, &blocked);
            forwarding.book(now_ms, &backlog, &BTreeMap::new());
            let mut fresh = following(&plan, &neighbours);
            fresh.seek_for(0, &larger);
            fresh.advance(now_ms, &blocked);
            fresh.book(now_ms, &backlog, &BTreeMap::new());
            let ways = |forwarding: &Forwarding| {
                let mut ways = Vec::new();
                for (bytes, next) in &forwarding.table().next {
                    let next = next.iter();
                    let of_size = next.map(|(node, hop)| (*node, hop.via, hop.route.arrival_ms));
                    ways.push((*bytes, of_size.collect::<Vec<_>>()));
                }
                ways
            };
            assert_eq!(ways(&forwarding), ways(&fresh), "seed {seed}, step {step}");
        }
    }
}
