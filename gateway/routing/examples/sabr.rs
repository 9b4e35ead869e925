//! Measures how long routes take: 4,000 queries in a plan of 1,000 contacts, and single
//! changes in a plan of 100,000 contacts.
//!
//! `cargo run --release -p underpass-routing --example sabr` prints one line of JSON.
//! `queries_s` is the time of all queries, none of which has a known route. `changes`
//! has, for each kind of change, the sorted times in ms of a change together with the
//! queries for routes to all 499 other nodes. A `cut` ends a contact earlier, as a
//! blockage does; `restored` gives the time back; a `booking` fills a contact that a
//! route uses; a `new` contact is added.

use std::time::Instant;

use underpass_routing::{Contact, ContactId, Router};

const DAY_MS: u64 = 86_400_000;
const NODES: u64 = 500;
const BYTES: u64 = 100_000;
const CHANGES: usize = 250;

fn contact(random: &mut fastrand::Rng, nodes: u64) -> Contact {
    let from = random.u64(1..=nodes);
    let start_ms = random.u64(..DAY_MS);
    Contact {
        from,
        to: 1 + (from + random.u64(0..nodes - 1)) % nodes,
        start_ms,
        end_ms: start_ms + random.u64(60_000..600_000),
        rate_bytes_per_s: random.u64(10_000..10_000_000),
        owlt_ms: random.u64(1..500),
        booked_bytes: 0,
    }
}

fn plan(contacts: usize, nodes: u64) -> (Router, Vec<ContactId>) {
    let mut random = fastrand::Rng::with_seed(1);
    let mut router = Router::new(1);
    let ids = (0..contacts).map(|_| router.add(contact(&mut random, nodes)));
    let ids = ids.collect();
    (router, ids)
}

/// The seconds that 4,000 queries take in a plan of 1,000 contacts, and how many of them
/// find a route.
fn queries() -> (f64, usize) {
    let mut random = fastrand::Rng::with_seed(2);
    let (mut router, _) = plan(1_000, 50);
    let begun = Instant::now();
    let mut found = 0;
    for query in 0..4_000 {
        let (to, at_ms) = (random.u64(2..=50), random.u64(..DAY_MS));
        found += usize::from(router.route(to, 1_000 + query, at_ms).is_some());
    }
    (begun.elapsed().as_secs_f64(), found)
}

fn find_all(router: &mut Router) {
    for to in 2..=NODES {
        router.route(to, BYTES, 0);
    }
}

/// Sorted times of changes of one kind, ms, and the number of searches that they need.
fn timed(router: &mut Router, mut change: impl FnMut(&mut Router)) -> String {
    let searches = router.searches();
    let mut times: Vec<f64> = (0..CHANGES)
        .map(|_| {
            let begun = Instant::now();
            change(router);
            find_all(router);
            begun.elapsed().as_secs_f64() * 1_000.0
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let times: Vec<String> = times.iter().map(|ms| format!("{ms:.3}")).collect();
    let searches = router.searches() - searches;
    format!(
        "{{\"searches\": {searches}, \"ms\": [{}]}}",
        times.join(", ")
    )
}

fn main() {
    let (queries_s, found) = queries();
    let (mut router, ids) = plan(100_000, NODES);
    find_all(&mut router);
    let mut random = fastrand::Rng::with_seed(2);
    let drawn: Vec<ContactId> = (0..CHANGES)
        .map(|_| ids[random.usize(..ids.len())])
        .collect();
    let mut each = drawn.iter();
    let cut = timed(&mut router, |router| {
        let id = each.next().expect("as many as there are changes");
        router.change(*id, |contact| contact.end_ms -= 30_000);
    });
    let mut each = drawn.iter();
    let restored = timed(&mut router, |router| {
        let id = each.next().expect("as many as there are changes");
        router.change(*id, |contact| contact.end_ms += 30_000);
    });
    let booking = timed(&mut router, |router| {
        if let Some(route) = router.route(random.u64(2..=NODES), BYTES, 0) {
            for id in &route.contacts {
                router.change(*id, |contact| contact.book(10_000_000, 0));
            }
        }
    });
    let new = timed(&mut router, |router| {
        router.add(contact(&mut random, NODES));
    });
    println!(
        "{{\"queries\": 4000, \"found\": {found}, \"queries_s\": {queries_s:.3}, \"changes\": \
         {{\"cut\": {cut}, \"restored\": {restored}, \"booking\": {booking}, \"new\": {new}}}}}"
    );
}
