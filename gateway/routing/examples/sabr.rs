//! How long routes take: a plan of 1,000 contacts and 4,000 queries, and one
//! change in a plan of 100,000 contacts.
//!
//! `cargo run --release -p underpass-routing --example sabr` prints one line of
//! JSON: `queries_s` for all queries without a known route; `change_ms`, a
//! change and the route to each of the nodes that it concerns, the longest of
//! 100 and their mean.

use std::time::Instant;

use underpass_routing::{Contact, ContactId, Router};

fn plan(contacts: usize, nodes: u64, span_ms: u64) -> (Router, Vec<ContactId>) {
    let mut random = fastrand::Rng::with_seed(1);
    let mut router = Router::new(1);
    let ids = (0..contacts).map(|_| {
        let from = random.u64(1..=nodes);
        let start_ms = random.u64(..span_ms);
        router.add(Contact {
            from,
            to: 1 + (from + random.u64(0..nodes - 1)) % nodes,
            start_ms,
            end_ms: start_ms + random.u64(60_000..600_000),
            rate_bytes_per_s: random.u64(10_000..10_000_000),
            owlt_ms: random.u64(1..500),
            booked_bytes: 0,
        })
    });
    let ids = ids.collect();
    (router, ids)
}

fn main() {
    const DAY_MS: u64 = 86_400_000;
    let mut random = fastrand::Rng::with_seed(2);
    let (mut router, _) = plan(1_000, 50, DAY_MS);
    let begun = Instant::now();
    let mut found = 0;
    for query in 0..4_000 {
        let (to, at_ms) = (random.u64(2..=50), random.u64(..DAY_MS));
        found += usize::from(router.route(to, 1_000 + query, at_ms).is_some());
    }
    let queries_s = begun.elapsed().as_secs_f64();

    let nodes = 500;
    let (mut router, ids) = plan(100_000, nodes, DAY_MS);
    for to in 2..=nodes {
        router.route(to, 100_000, 0);
    }
    let (mut longest, mut sum, mut searches) = (0.0_f64, 0.0, 0);
    for _ in 0..100 {
        let before = router.searches();
        let begun = Instant::now();
        let id = ids[random.usize(..ids.len())];
        router.change(id, |contact| contact.end_ms -= 30_000);
        for to in 2..=nodes {
            router.route(to, 100_000, 0);
        }
        let ms = begun.elapsed().as_secs_f64() * 1_000.0;
        (longest, sum) = (longest.max(ms), sum + ms);
        searches += router.searches() - before;
    }
    println!(
        "{{\"queries\": 4000, \"found\": {found}, \"queries_s\": {queries_s:.3}, \"change_ms\": {{\"longest\": {longest:.3}, \
         \"mean\": {:.3}}}, \"searches_after_100_changes\": {searches}}}",
        sum / 100.0
    );
}
