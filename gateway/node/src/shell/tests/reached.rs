//! Each call reaches the right shard.

use super::*;

use ipnet::IpNet;
use underpass_cla::Outcome;
use underpass_edge::config::DialConfig;
use underpass_edge::dial::Dialler;
use underpass_edge::direct::DirectOutlet;
use underpass_edge::stream::{Conduit, OpenRequest, Outlet, Protocol, Target};
use underpass_engine::{LinkChange, StreamKey};

use super::super::directory::{inside, outside};
use super::super::{StreamOutlet, drivers};

/// The shards whose engines satisfy `has`.
fn shards_with(shell: &Shell, has: impl Fn(&Engine) -> bool) -> Vec<usize> {
    let each = shell.read_each(has).into_iter().enumerate();
    each.filter_map(|(shard, has)| has.then_some(shard))
        .collect()
}

pub(super) fn open(shell: &Arc<Shell>, peer: u64) -> Box<dyn Conduit> {
    let dialler = Arc::new(Dialler::new(DialConfig::default()));
    let outlets: [(u64, Vec<IpNet>); 1] = [(peer, Vec::new())];
    let direct = DirectOutlet::new(dialler);
    let outlet = StreamOutlet::new(shell.clone(), outlets, direct, None);
    let opened = outlet.open(OpenRequest {
        target: Target::Address(([198, 51, 100, 7], 80).into()),
        client: ([203, 0, 113, 1], 5000).into(),
        listener: "test".into(),
        protocol: Protocol::Transparent,
        class: Class(2),
        awaits_outcome: false,
        trace: None,
    });
    opened.expect("room for a stream")
}

#[test]
fn numbers_tell_their_shard_and_are_unique() {
    let mut given = std::collections::HashSet::new();
    for shard in Sharding::all(3) {
        for number in 0..100 {
            let outside = outside(shard, number);
            assert_eq!(inside(3, outside), (shard.own, number));
            assert!(given.insert(outside));
        }
    }
    assert_eq!(outside(Sharding { own: 0, count: 1 }, 7), 7);
}

#[test]
fn sessions_belong_to_the_shard_of_their_peer() {
    for count in COUNTS {
        let terminals = terminals();
        let (shell, _inbound) = shell(&hub(&terminals), count);
        for (number, node) in (0..).zip(&terminals) {
            let (id, recorded) = session(&shell, number, *node);
            let own = shard_of(&shell, *node);
            assert_eq!(
                shards_with(&shell, |engine| engine.session_place(id).is_some()),
                [own]
            );
            assert!(shell.lock(own).sessions.contains_key(&id));
            shell.ready(id);
            let hub_says = shell.with_each(|engine, now| {
                let sent = engine.send_message(now, message(*node, b"to you"), Duration::MAX / 4);
                sent.is_ok()
            });
            let took = hub_says.iter().position(|took| *took);
            assert_eq!(took, Some(own), "only its shard has the way");
            while recorded.offers().is_empty() {
                shell.ready(id);
            }
            shell.session_down(id, underpass_cla::Down::Closed);
            assert_eq!(
                shards_with(&shell, |engine| engine.session_place(id).is_some()),
                [0; 0]
            );
        }
    }
}

#[test]
fn a_session_of_nobody_known_is_aborted_and_of_no_account() {
    for count in COUNTS {
        let (shell, _inbound) = shell(&hub(&terminals()), count);
        let (id, recorded) = session(&shell, 7, 5);
        assert!(matches!(recorded.take()[..], [Told::Abort]));
        shell.ready(id);
        shell.finished(id, 0, Outcome::Broken { acknowledged: 0 });
        assert!(shell.received(id, bundle_of(10, b"to you")).is_err());
        shell.session_down(id, underpass_cla::Down::Closed);
    }
}

#[test]
fn streams_go_by_the_shard_of_the_way_to_their_peer() {
    for count in COUNTS {
        let terminals = terminals();
        let (shell, _inbound) = shell(&hub(&terminals), count);
        let mut ways: Vec<(u64, u64)> = terminals.iter().map(|node| (*node, *node)).collect();
        ways.push((BEYOND, terminals[0]));
        for (number, (peer, by)) in (0..).zip(ways) {
            let own = shard_of(&shell, by);
            let (id, recorded) = session(&shell, number, by);
            let mut conduit = open(&shell, peer);
            let with = |engine: &Engine| engine.peers().contains(&peer);
            assert_eq!(shards_with(&shell, with), [own], "node {peer}");
            conduit.send(Bytes::from_static(b"an uncommon text"));
            let mut sent = Vec::new();
            while !sent.windows(16).any(|part| part == b"an uncommon text") {
                shell.ready(id);
                for offer in recorded.offers() {
                    sent.extend(offer.chunks.concat());
                    shell.finished(id, offer.key, Outcome::Acknowledged);
                }
            }
            drop(conduit);
            let open = shell.stream_totals();
            assert!(open.iter().all(|(_, total)| total.open == 0), "node {peer}");
            shell.session_down(id, underpass_cla::Down::Closed);
        }
    }
}

#[test]
fn a_stream_is_reset_by_an_operator_wherever_it_is() {
    for count in COUNTS {
        let terminals = terminals();
        let (shell, _inbound) = shell(&hub(&terminals), count);
        for peer in terminals {
            let conduit = open(&shell, peer);
            let streams = shell.streams(99).into_iter();
            let mut streams = streams.filter(|(with, ..)| *with == peer);
            let (peer, epoch, info) = streams.next().expect("the one that was opened");
            let id = info.id;
            let key = StreamKey { peer, epoch, id };
            shell.reset_stream(key).expect("there is one");
            assert!(shell.reset_stream(key).is_err(), "only once");
            drop(conduit);
        }
    }
}

#[test]
fn hops_are_set_where_they_are() {
    for count in COUNTS {
        let terminals = terminals();
        let (shell, _inbound) = shell(&hub(&terminals), count);
        let mut events = shell.link_events();
        for (number, node) in terminals.iter().enumerate() {
            let name = format!("terminal-{node}");
            let hop = shell.hop_named(&name).expect("it is configured");
            assert_eq!(hop, HopId(number as u64));
            shell.modem_says(&name, true);
            let event = events.try_recv().expect("it is told");
            assert_eq!((event.hop, event.neighbour), (hop, *node));
            assert!(matches!(event.change, LinkChange::Blocked(_)));
            let blocked = shell.hops().into_iter().filter(|hop| hop.blocked);
            assert_eq!(
                blocked.map(|hop| hop.neighbour).collect::<Vec<_>>(),
                [*node]
            );
            shell.with_hop(hop, |engine, now| engine.block_by_modem(now, hop, false));
            assert!(events.try_recv().is_ok(), "it is free");
        }
        let totals = shell.link_totals();
        assert_eq!(totals.len(), terminals.len(), "each was blocked once");
        // A removed hop has nothing to read.
        let gone = HopId(1000);
        assert!(shell.read_hop(gone, |engine| engine.hop(gone)).is_none());
    }
}

#[test]
fn bundles_are_found_in_whichever_shard_they_are() {
    for count in COUNTS {
        let terminals = terminals();
        for peer in &terminals {
            let (shell, _inbound) = shell(&hub(&terminals), count);
            let lifetime = Duration::from_secs(60);
            let sent = shell.send_message(message(*peer, b"one"), lifetime, None);
            let one = sent.expect("room for it");
            let stored = |engine: &Engine| engine.has_bundle(one);
            assert_eq!(shards_with(&shell, stored), [shard_of(&shell, *peer)]);
            let sent = shell.send_message(message(*peer, b"two"), lifetime, Some(one));
            let two = sent.expect("room for it");
            assert!(!shell.has_bundle(one), "the other is in its place");
            assert!(shell.has_bundle(two));
            assert!(shell.cancel(two));
            assert!(!shell.cancel(two), "it is not there any more");
            assert_eq!(shell.custody(Instant::now()).bundles, 0);
        }
    }
}

#[test]
fn what_a_message_replaces_is_found_where_the_way_was_before() {
    let terminals = terminals();
    let mut config = hub(&terminals);
    let (shell, _inbound) = shell(&config, 3);
    let lifetime = Duration::from_secs(60);
    let sent = shell.send_message(message(BEYOND, b"one"), lifetime, None);
    let one = sent.expect("room for it");
    let before = shard_of(&shell, terminals[0]);
    let mut others = terminals.iter();
    let other = others.find(|node| shard_of(&shell, **node) != before);
    config.routes[0].via = *other.expect("one in another shard");
    // The route now leads through a neighbour of another shard.
    shell
        .reconfigure(&config)
        .expect("only a route has changed");
    let sent = shell.send_message(message(BEYOND, b"two"), lifetime, Some(one));
    assert!(sent.is_ok());
    assert_eq!(shell.custody(Instant::now()).bundles, 1);
}

#[tokio::test(start_paused = true)]
async fn messages_come_from_all_shards_and_are_confirmed_there() {
    for count in COUNTS {
        let terminals = terminals();
        let (shell, _inbound) = shell(&hub(&terminals), count);
        let tasks: Vec<_> = drivers(&shell).into_iter().map(tokio::spawn).collect();
        let service = Arc::new(Kept::default());
        shell.register(SERVICE, service.clone());
        let mut sessions = Vec::new();
        for (number, node) in (0..).zip(&terminals) {
            let (id, recorded) = session(&shell, number, *node);
            shell.ready(id);
            shell
                .received(id, bundle_of(*node, b"an uncommon text"))
                .expect("room");
            recorded.offers();
            sessions.push((id, recorded));
        }
        let came = std::mem::take(&mut *service.messages.lock().unwrap());
        let peers: Vec<u64> = came.iter().map(|message| message.peer).collect();
        assert_eq!(peers, terminals);
        // The hub's own announcement goes first.
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            for (id, recorded) in &sessions {
                shell.ready(*id);
                for offer in recorded.offers() {
                    shell.finished(*id, offer.key, Outcome::Acknowledged);
                }
            }
        }
        let tickets = came
            .iter()
            .map(|message| message.ticket.expect("it confirms"));
        for (ticket, place) in tickets.zip(0..) {
            shell.confirm(ticket);
            // Custody signals are gathered for 100 ms.
            tokio::time::sleep(Duration::from_millis(200)).await;
            for (other, (id, recorded)) in sessions.iter().enumerate() {
                shell.ready(*id);
                let signals = recorded.offers().len();
                assert_eq!(signals > 0, other == place, "of {other} for {place}");
            }
        }
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}
