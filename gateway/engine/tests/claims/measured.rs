//! What a link was measured to carry is what is sent.

use std::time::Duration;

use underpass_engine::{HopId, MeasuredLink};

use crate::bench::{BULK, Node, pair};

const HOP: HopId = HopId(0);

fn measured(rate_bps: Option<u64>) -> MeasuredLink {
    MeasuredLink {
        rate_bps,
        capacity_bps: rate_bps,
        ..MeasuredLink::default()
    }
}

/// Bytes that are offered in so long while the stream has always more.
fn offered_in(node: &mut Node, time: Duration) -> u64 {
    let end = node.now + time;
    let mut bytes = 0;
    while node.now < end {
        for (session, transfer) in node.offers() {
            bytes += transfer.len();
            node.ready(session);
        }
        node.pass(node.now + Duration::from_millis(5));
    }
    bytes
}

#[test]
fn the_least_of_what_is_allowed_and_what_the_link_carries_is_sent() {
    let (mut terminal, _hub) = pair();
    let key = terminal.open(1, BULK);
    terminal.engine.set_rate(terminal.now, HOP, Some(8_000_000));
    terminal.write(key, 4_000_000);
    offered_in(&mut terminal, Duration::from_millis(500));
    let now = terminal.now;
    let rate = |node: &Node| node.engine.hop(HOP).and_then(|hop| hop.send_rate_bps);
    terminal
        .engine
        .measured(now, HOP, measured(Some(1_000_000)), 0);
    assert_eq!(rate(&terminal), Some(1_000_000));
    let bytes = offered_in(&mut terminal, Duration::from_secs(4));
    assert!((400_000..520_000).contains(&bytes), "{bytes}");
    terminal
        .engine
        .measured(terminal.now, HOP, measured(Some(20_000_000)), 0);
    assert_eq!(rate(&terminal), Some(8_000_000));
    terminal
        .engine
        .measured(terminal.now, HOP, measured(None), 0);
    assert_eq!(rate(&terminal), Some(8_000_000));
}

#[test]
fn what_was_sent_too_fast_is_made_up_for_before_more_is_sent() {
    let (mut terminal, _hub) = pair();
    let key = terminal.open(1, BULK);
    terminal.engine.set_rate(terminal.now, HOP, Some(8_000_000));
    terminal.write(key, 4_000_000);
    offered_in(&mut terminal, Duration::from_millis(500));
    let link = measured(Some(1_000_000));
    // Half a second of the link.
    terminal.engine.measured(terminal.now, HOP, link, 62_500);
    assert_eq!(offered_in(&mut terminal, Duration::from_millis(400)), 0);
    let after = offered_in(&mut terminal, Duration::from_secs(2));
    assert!((170_000..270_000).contains(&after), "{after}");
}
