use std::sync::Arc;

use underpass_cla::{Class, Outcome, Resume, Session, SessionId};
use underpass_tcpcl::{Dialer, Listener};

use super::{hub, terminal};
use underpass_cla_testing::node::{TestNode, transfer};

const BYTES: usize = 5 << 20;
/// At this rate the whole bundle takes 2.5 s: when its first part has arrived, the rest
/// is still to come, even if other programs delay this one.
const RATE: u64 = 16_000_000;

/// A hub and a terminal with an active and a standby session.
struct Sessions {
    at_hub: TestNode,
    at_terminal: TestNode,
    active: Arc<dyn Session>,
    standby: Arc<dyn Session>,
    standby_at_hub: SessionId,
    _running: (Listener, Dialer),
}

async fn sessions() -> Sessions {
    let (mut at_hub, mut at_terminal) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(hub(), at_hub.node.clone()).expect("a free port");
    let mut config = terminal(listener.local_addr());
    config.classes = vec![Class(1)];
    config.standby = true;
    let dialer = Dialer::spawn(config, at_terminal.node.clone());
    let (_, info, active) = at_terminal.up().await;
    assert!(info.resumes);
    let (_, _, standby) = at_terminal.up().await;
    at_hub.up().await;
    let (standby_at_hub, ..) = at_hub.up().await;
    Sessions {
        at_hub,
        at_terminal,
        active,
        standby,
        standby_at_hub,
        _running: (listener, dialer),
    }
}

#[tokio::test]
async fn a_broken_transfer_goes_on_on_the_standby() {
    let mut s = sessions().await;
    let (out, whole) = transfer(1, BYTES);
    s.active.set_rate(Some(RATE));
    s.active.offer(out);
    while s.at_terminal.progress().await < 1 << 20 {}
    s.active.abort("the test breaks it");
    let (_, outcome) = s.at_terminal.finished().await;
    let Outcome::Broken { acknowledged } = outcome else {
        panic!("{outcome:?}");
    };
    assert!(acknowledged >= 1 << 20);
    let (mut out, _) = transfer(2, BYTES);
    out.resume = Some(Resume {
        key: 1,
        offset: acknowledged,
    });
    s.standby.offer(out);
    assert_eq!(s.at_terminal.finished().await, (2, Outcome::Acknowledged));
    assert!(s.at_hub.received().await == (s.standby_at_hub, whole));
    let figures = s.standby.figures();
    let sent = figures.sent_bytes - figures.retransmitted_bytes;
    let rest = BYTES as u64 - acknowledged;
    assert!(sent < rest + 4096, "{sent} bytes for {rest}");
}

#[tokio::test]
async fn a_transfer_goes_on_before_its_session_is_known_to_be_dead() {
    let mut s = sessions().await;
    let (out, whole) = transfer(1, BYTES);
    s.active.set_rate(Some(RATE));
    s.active.offer(out);
    let mut offset = 0;
    while offset < 1 << 20 {
        offset = s.at_terminal.progress().await;
    }
    let (mut out, _) = transfer(2, BYTES);
    out.resume = Some(Resume { key: 1, offset });
    s.standby.offer(out);
    let mut finished = [
        s.at_terminal.finished().await,
        s.at_terminal.finished().await,
    ];
    finished.sort_by_key(|(key, _)| *key);
    let [first, second] = finished;
    assert!(matches!(first, (1, Outcome::Broken { .. })), "{first:?}");
    assert_eq!(second, (2, Outcome::Acknowledged));
    assert!(s.at_hub.received().await == (s.standby_at_hub, whole));
}
