//! Lists of several shards together have the order and limit of a node with one shard.

use super::*;

use underpass_cla::{Down, Outcome};
use underpass_plans::Plan;

/// More than are read under one lock.
const MANY: u64 = 200;

fn many() -> Vec<u64> {
    // Intentionally not in numerical order.
    (0..MANY).map(|place| 10 + place * 77 % MANY).collect()
}

#[test]
fn hops_come_in_the_order_of_the_configuration() {
    for count in COUNTS {
        let (shell, _inbound) = shell(&hub(&many()), count);
        let listed: Vec<u64> = shell.hops().iter().map(|hop| hop.neighbour).collect();
        assert_eq!(listed, many());
        let portions = shell.portions_of_hops();
        assert!(
            portions
                .iter()
                .all(|(_, hops)| hops.len() <= super::super::PORTION)
        );
        let hops: usize = portions.iter().map(|(_, hops)| hops.len()).sum();
        assert_eq!(hops, many().len());
    }
}

#[test]
fn bundles_are_listed_by_number_up_to_the_limit() {
    for count in COUNTS {
        let (shell, _inbound) = shell(&hub(&many()), count);
        for peer in many() {
            let lifetime = Duration::from_secs(60);
            let sent = shell.send_message(message(peer, b"to you"), lifetime, None);
            sent.expect("room for it");
        }
        let now = Instant::now();
        let all = shell.stored_bundles(now, usize::MAX);
        assert_eq!(all.len(), many().len());
        assert!(all.is_sorted_by_key(|bundle| bundle.id));
        let ids = |bundles: &[underpass_bundle::BundleInfo]| -> Vec<_> {
            bundles.iter().map(|bundle| bundle.id).collect()
        };
        for limit in [0, 1, 70] {
            let some = shell.stored_bundles(now, limit);
            assert_eq!(ids(&some), ids(&all[..limit]));
        }
        let figures = shell.custody(now);
        assert_eq!(figures.bundles, all.len());
        let of_class = figures.classes[&Class(2)];
        assert_eq!(of_class.bundles, all.len() as u64);
        assert_eq!(
            of_class.bytes,
            all.iter().map(|bundle| bundle.bytes).sum::<u64>()
        );
    }
}

#[test]
fn sums_and_listings_of_streams_are_those_of_one_shard() {
    for count in COUNTS {
        let (shell, _inbound) = shell(&hub(&many()), count);
        for peer in many() {
            let shard = shard_of(&shell, peer);
            shell.with_inner(shard, |inner, now| {
                let open = underpass_streams::Open::new(
                    Class(2),
                    underpass_streams::Target::Address(([198, 51, 100, 7], 80).into()),
                );
                inner.engine.open(now, peer, open).expect("room")
            });
        }
        assert_eq!(shell.streams(usize::MAX).len(), many().len());
        assert_eq!(shell.streams(70).len(), 70);
        let totals = shell.stream_totals();
        let open: u64 = totals.iter().map(|(_, total)| total.open).sum();
        assert_eq!(open, MANY);
        assert_eq!(shell.stream_events().opened, MANY);
    }
}

#[test]
fn a_nodes_streams_are_listed_by_size_with_where_they_lead_and_their_paths() {
    for count in COUNTS {
        let terminals = terminals();
        let (shell, _inbound) = shell(&hub(&terminals), count);
        let (peer, other) = (terminals[0], terminals[1]);
        let stream = |peer, host: &str| {
            let host = host.to_owned();
            let target = underpass_streams::Target::Name { host, port: 443 };
            let open = underpass_streams::Open::new(Class(2), target);
            let name = shell.open_stream(peer, open).expect("room");
            shell.conduit_again(name, false)
        };
        let _small = stream(peer, "small.example");
        let mut large = stream(peer, "large.example");
        let _other = stream(other, "other.example");
        let waiting = shell.streams_with(peer, 5);
        assert_eq!((waiting.open, waiting.largest.len()), (2, 2));
        assert!(waiting.paths[&Class(2)].is_empty(), "all are down");
        let (id, recorded) = session(&shell, 0, peer);
        large.send(Bytes::from_static(b"an uncommon text"));
        let mut sent = Vec::new();
        while !sent.windows(16).any(|part| part == b"an uncommon text") {
            shell.ready(id);
            for offer in recorded.offers() {
                sent.extend(offer.chunks.concat());
                shell.finished(id, offer.key, Outcome::Acknowledged);
            }
        }
        let listed = shell.streams_with(peer, 1);
        assert_eq!(listed.open, 2);
        let [first] = &listed.largest[..] else {
            panic!("{} streams", listed.largest.len());
        };
        assert_eq!(first.target.as_deref(), Some("large.example:443"));
        assert_eq!(first.info.sent_bytes, 16);
        assert_eq!(listed.paths[&Class(2)], [format!("terminal-{peer}")]);
        let rest = shell.streams_with(terminals[2], 5);
        assert_eq!((rest.open, rest.largest.len()), (0, 0));
    }
}

#[test]
fn what_transports_have_moved_outlives_their_sessions_in_each_shard() {
    for count in COUNTS {
        let terminals = terminals();
        let (shell, _inbound) = shell(&hub(&terminals), count);
        let mut ids = Vec::new();
        for (number, node) in (0..).zip(&terminals) {
            ids.push(session(&shell, number, *node).0);
        }
        let readings = shell.session_figures();
        assert_eq!(readings.len(), terminals.len());
        for id in ids {
            shell.session_down(id, Down::Closed);
        }
        let totals = shell.transport_totals();
        assert_eq!(totals.len(), terminals.len());
        assert!(totals.values().all(|total| total.sent_bytes == 1_000));
        assert!(shell.session_figures().is_empty());
        assert_eq!(shell.counts().refused_bundles, 0);
    }
}

/// A plan of the forward link with a line for each terminal.
fn forward_plan(version: u64, rate_bps: u64, terminals: &[u64]) -> Arc<Plan> {
    let lines = terminals.iter().map(|terminal| {
        serde_json::json!({
            "terminals": [terminal], "guaranteed_bps": 100_000,
            "segments": [{
                "start_ms": 0, "end_ms": 60_000, "rate_bps": rate_bps, "state": "borrowing",
            }],
        })
    });
    let plan = serde_json::json!({
        "version": 1, "beam": "east", "link": "forward", "plan": version,
        "issued_ms": 0, "start_ms": 0, "end_ms": 60_000,
        "capacity": [{ "from_ms": 0, "rate_bps": 9_000_000 }],
        "lines": lines.collect::<Vec<_>>(),
    });
    Arc::new(Plan::decode(plan.to_string().as_bytes()).expect("a plan"))
}

#[test]
fn a_plan_of_the_beam_is_followed_by_every_hop_and_shown_once() {
    for count in COUNTS {
        let terminals = terminals();
        let (shell, _inbound) = shell(&hub(&terminals), count);
        shell.with_each(|engine, now| engine.set_utc(now, Some(1_000)));
        let plan = forward_plan(2, 1_000_000, &terminals);
        shell.follow_forward(&plan).expect("the first one");
        let older = forward_plan(1, 500_000, &terminals);
        shell.follow_forward(&older).expect_err("it is older");
        let shown = shell.plans(Instant::now());
        let [shown] = &shown[..] else {
            panic!("{} plans", shown.len());
        };
        let all: Vec<HopId> = (0..terminals.len() as u64).map(HopId).collect();
        assert_eq!(shown.hops, all);
        assert_eq!(shown.capacity_bps, Some(9_000_000));
        for hop in shell.hops() {
            let followed = hop.plan.expect("its line");
            assert_eq!(followed.planned_bps, Some(1_000_000));
        }
        assert_eq!(
            shell.read_each(Engine::beam_rate_bps),
            vec![Some(9_000_000); count]
        );
    }
}
