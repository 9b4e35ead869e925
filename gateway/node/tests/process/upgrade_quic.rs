//! Another process takes over a node whose sessions go over QUIC.

use std::time::SystemTime;

use underpass_pki::Authority;

use crate::echo::{connect, echo, exchange, exchange_long};
use crate::node::{HUB, Node, free_port};

const CLASSES: usize = 4;
/// Each of the default classes has one session and a standby.
const SESSIONS: usize = 2 * CLASSES;

/// A port of UDP that the system gives to nobody who asks for any; beacons use the one after it.
fn quic_port() -> u16 {
    let process = u16::try_from(std::process::id() % 10_000).unwrap();
    12_000 + 2 * process
}

#[test]
fn a_stream_goes_on_where_the_node_dials_and_where_it_listens() {
    let pki = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    let mut authority = Authority::init(pki.path(), "test", 30, now).unwrap();
    let mut tls = |node| {
        let issued = authority.issue(node, 30, now).unwrap();
        format!("pki_dir = {:?}", issued.dir)
    };
    let (port, socks) = (quic_port(), free_port());
    let hub = HUB.replace("plain = true", &tls(1));
    let mut hub = Node::start(
        &format!(
            "{hub}[[listener]]\nname = \"sat\"\nconvergence_layer = \"quic\"\n\
             listen = \"127.0.0.1:{port}\"\n\
             [[terminal]]\nnode = 10\nsend_rate_bps = 16_000_000\nrtt_ms = 20\n\
             [edge.dial]\nallow_networks = [\"127.0.0.0/8\"]\n"
        ),
        |_| {},
    );
    let own = tls(10);
    let mut terminal = Node::start(
        &format!(
            "[node]\nnumber = 10\nrole = \"terminal\"\nstate_dir = \"@/state\"\n\
             [api]\nsocket = \"@/run/api.sock\"\n[tls]\n{own}\n\
             [tcp]\nbackoff_min_s = 0.1\nbackoff_max_s = 0.5\n\
             [[path]]\nname = \"sat\"\nneighbour = 1\nconvergence_layer = \"quic\"\n\
             remote = \"127.0.0.1:{port}\"\nrtt_ms = 20\n\
             send_rate_bps = 16_000_000\nreceive_rate_bps = 16_000_000\n\
             [[outlet]]\nnode = 1\n[edge]\nclient_networks = [\"127.0.0.0/8\"]\n\
             [[edge.listener]]\nname = \"socks\"\nprotocol = \"socks5\"\n\
             address = \"127.0.0.1:{socks}\"\n"
        ),
        |_| {},
    );
    let all = |node: &Node| node.log().matches("session up").count() >= SESSIONS;
    hub.until("had all sessions", all);
    terminal.until("had all sessions", all);
    let mut socket = connect(socks, echo());
    exchange(&mut socket, 1);
    // The next process refuses the state, and its sessions do not stay behind at the hub.
    terminal.reconfigure("number = 10\n", "number = 10\nshards = 2\n");
    let answer = terminal.ask("POST", "/v1/upgrade", "");
    assert_eq!(answer.status, 409, "{}", answer.body);
    assert!(answer.body.contains("shards"), "{}", answer.body);
    hub.until("heard that they end", |hub| {
        hub.log().matches("another process keeps the node").count() >= CLASSES
    });
    exchange(&mut socket, 4);
    terminal.reconfigure("shards = 2\n", "");
    for round in [2, 3] {
        let before = terminal.id();
        terminal.upgrade();
        assert_ne!(terminal.id(), before);
        exchange(&mut socket, round);
    }
    let log = terminal.log();
    let met = log
        .lines()
        .filter(|line| line.contains("set up beforehand"));
    let met: Vec<&str> = met.collect();
    assert_eq!(met.len(), 3, "{log}");
    assert!(met.iter().all(|line| line.contains("missing=0")), "{log}");
    // Where it listens, sessions end before the next process refuses the state, or has it.
    hub.reconfigure("number = 1\n", "number = 1\nshards = 7\n");
    let answer = hub.ask("POST", "/v1/upgrade", "");
    assert_eq!(answer.status, 409, "{}", answer.body);
    assert!(answer.body.contains("shards"), "{}", answer.body);
    exchange(&mut socket, 5);
    hub.reconfigure("shards = 7\n", "");
    for round in [6, 7] {
        let before = hub.id();
        let transit = exchange_long(&socket, round);
        hub.upgrade();
        assert_ne!(hub.id(), before);
        let whole = transit.join().is_ok();
        assert!(whole, "round {round}: {}", hub.log());
    }
    exchange(&mut socket, 8);
}
