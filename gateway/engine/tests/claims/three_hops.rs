//! Doubt where more than two hops lead to one neighbour.

use std::time::{Duration, Instant};

use underpass_cla::{Class, ExportedKey, Outcome, SessionId};
use underpass_engine::{EngineConfig, HopId, PathUse, Policy, Sign};

use crate::bench::{BULK, CONTROL, Node, Offered, config, live};
use crate::paths::{FAR, MS, NEAR};

/// A third hop, slower to answer than the near one.
const THIRD: HopId = HopId(2);

/// A node with three hops to one neighbour; signalling goes by the far one.
fn three_hops(node: u64, neighbour: u64) -> EngineConfig {
    let mut all = config(node, &[neighbour; 3]);
    for (hop, (rate, rtt)) in all.hops.iter_mut().zip([(10, 30), (40, 530), (20, 60)]) {
        hop.send_rate_bps = Some(rate * 1_000_000);
        hop.receive_rate_bps = Some(rate * 1_000_000);
        hop.rtt = Duration::from_millis(rtt);
    }
    let by_far = Policy {
        uses: PathUse::Pinned,
        paths: vec!["hop1".to_owned()],
        ..Policy::default()
    };
    all.policies.insert(CONTROL, by_far);
    all
}

/// A terminal, 10, and a hub, 1, with all hops up, that have heard each other by each of them.
/// Sessions are numbered from 100, 200 and 300.
fn three_paths(secured: bool) -> (Node, Node) {
    let now = Instant::now();
    let mut terminal = Node::new(now, three_hops(10, 1));
    let mut hub = Node::new(now, three_hops(1, 10));
    for node in [&mut terminal, &mut hub] {
        for (hop, class) in (0..3_u8).flat_map(|hop| (0..3_u8).map(move |class| (hop, class))) {
            let id = 100 * (u64::from(hop) + 1) + u64::from(class);
            let key = ExportedKey([16 * hop + class; 32]);
            node.session_with(hop.into(), id, Some(Class(class)), |info| {
                info.exported_key = secured.then_some(key);
            });
        }
    }
    live(&mut terminal, &mut hub, Duration::from_millis(500));
    for node in [&mut terminal, &mut hub] {
        hear_all(node);
    }
    (terminal, hub)
}

fn hear_all(node: &mut Node) {
    for hop in [NEAR, FAR, THIRD] {
        node.engine.heard(node.now, hop, node.now, Sign::Beacon);
    }
}

/// The hops by which these offers carry data: a bundle may go by another class's session.
fn by_hop(offers: &[Offered]) -> Vec<HopId> {
    let sessions = offers.iter().map(|(session, _)| session.0);
    let of_data = sessions.filter(|session| session % 100 > 0);
    of_data
        .map(|session| HopId((session / 100 - 1) % 3))
        .collect()
}

/// A terminal that has sent a bundle by the near hop, and its hub, which has then told it that
/// nothing comes there.
fn said_to_be_unheard() -> (Node, Node) {
    let (mut terminal, mut hub) = three_paths(true);
    terminal.send(1, BULK, 5_000);
    assert_eq!(by_hop(&terminal.offers()), [NEAR]);
    hub.engine.misses(hub.now, NEAR, 150 * MS);
    let words = hub.offers();
    assert_eq!(words.len(), 1);
    for word in words {
        hub.carry(word, &mut terminal);
    }
    (terminal, hub)
}

/// The hops that a new bundle goes by, after the hub was heard on all hops for this time.
fn goes_behind_beacons(terminal: &mut Node, time: Duration) -> Vec<HopId> {
    let end = terminal.now + time;
    while terminal.now < end {
        terminal.pass(terminal.now + 20 * MS);
        hear_all(terminal);
    }
    terminal.offers();
    for session in [102, 202, 302, 402] {
        terminal.ready(SessionId(session));
    }
    terminal.send(1, BULK, 5_000);
    by_hop(&terminal.offers())
}

#[test]
fn a_word_names_the_hop_by_which_nothing_comes() {
    let (mut terminal, _hub) = said_to_be_unheard();
    assert_eq!(by_hop(&terminal.offers()), [THIRD], "a copy");
    // Neither is the third hop in doubt, nor does hearing the hub end the doubt.
    assert_eq!(goes_behind_beacons(&mut terminal, 100 * MS), [THIRD]);
    assert_eq!(terminal.changes, []);
}

#[test]
fn a_word_that_is_taken_back_counts_no_more_there() {
    let (mut terminal, mut hub) = said_to_be_unheard();
    terminal.offers();
    hub.pass(hub.now + 60 * MS);
    hear_all(&mut hub);
    hub.pass(hub.now + 20 * MS);
    let words = hub.offers();
    assert_eq!(words.len(), 1);
    for word in words {
        hub.carry(word, &mut terminal);
    }
    assert_eq!(goes_behind_beacons(&mut terminal, 100 * MS), [NEAR]);
}

#[test]
fn a_hop_that_has_no_name_at_the_neighbour_is_not_reported() {
    let (_terminal, mut hub) = three_paths(false);
    hub.engine.misses(hub.now, NEAR, 150 * MS);
    assert!(hub.offers().is_empty());
}

#[test]
fn an_acknowledgement_shows_that_the_neighbour_hears_though_its_session_resumes_nothing() {
    for (acknowledges, goes_by) in [(true, NEAR), (false, THIRD)] {
        let (mut terminal, mut hub) = three_paths(true);
        let now = terminal.now;
        terminal.engine.session_down(now, SessionId(102));
        terminal.session_with(0, 402, Some(BULK), |info| {
            info.resumes = false;
            info.acknowledges = acknowledges;
        });
        terminal.send(1, BULK, 5_000);
        let sent = terminal.offers();
        assert_eq!(by_hop(&sent), [NEAR]);
        hub.engine.misses(hub.now, NEAR, 150 * MS);
        for word in hub.offers() {
            hub.carry(word, &mut terminal);
        }
        terminal.finish(sent[0].1.key, Outcome::Acknowledged);
        assert_eq!(
            goes_behind_beacons(&mut terminal, 100 * MS),
            [goes_by],
            "{acknowledges}"
        );
    }
}
