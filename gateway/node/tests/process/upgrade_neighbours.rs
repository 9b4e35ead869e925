//! Another process takes over a node whose neighbour is known by its address alone.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use crate::echo::{connect, echo, exchange, exchange_long};
use crate::node::{HUB, Node, free_port};

/// Marks the hub's addresses on the loopback, for this process.
const HUB_END: u8 = 64;
/// The same for the terminal.
const TERMINAL_END: u8 = 128;

/// The address at one end that no other process of tests has.
fn address(end: u8, port: u16) -> SocketAddr {
    // A process number has 22 bits at most.
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    SocketAddr::new(IpAddr::from([127, end | high, middle, low]), port)
}

fn path(layer: &str, neighbour: u64, [listen, remote]: [SocketAddr; 2]) -> String {
    format!(
        "[[path]]\nname = \"ion\"\nneighbour = {neighbour}\nconvergence_layer = \"{layer}\"\n\
         rtt_ms = 20\nlisten = \"{listen}\"\nremote = \"{remote}\"\n\
         send_rate_bps = 16_000_000\nreceive_rate_bps = 16_000_000\n\
         [tcp]\nbackoff_min_s = 0.1\nbackoff_max_s = 0.5\n"
    )
}

/// Asserts that in each of so many upgrades of a node its session was set up beforehand.
fn assert_met(node: &Node, upgrades: usize) {
    let log = node.log();
    let met = log
        .lines()
        .filter(|line| line.contains("set up beforehand"));
    let met: Vec<&str> = met.collect();
    assert_eq!(met.len(), upgrades, "{log}");
    assert!(met.iter().all(|line| line.contains("missing=0")), "{log}");
}

/// A stream goes on through upgrades of both ends, with bytes in transit, and through one that is
/// refused when the sessions have ended already.
fn goes_on_over(layer: &str, port: u16) {
    let (at_hub, at_terminal) = (address(HUB_END, port), address(TERMINAL_END, port));
    let socks = free_port();
    let mut hub = Node::start(
        &format!(
            "{HUB}{}[edge.dial]\nallow_networks = [\"127.0.0.0/8\"]\n",
            path(layer, 10, [at_hub, at_terminal])
        ),
        |_| {},
    );
    let mut terminal = Node::start(
        &format!(
            "[node]\nnumber = 10\nrole = \"terminal\"\nstate_dir = \"@/state\"\n\
             [api]\nsocket = \"@/run/api.sock\"\n[tls]\nplain = true\n{}\
             [[outlet]]\nnode = 1\n[edge]\nclient_networks = [\"127.0.0.0/8\"]\n\
             [[edge.listener]]\nname = \"socks\"\nprotocol = \"socks5\"\n\
             address = \"127.0.0.1:{socks}\"\n",
            path(layer, 1, [at_terminal, at_hub])
        ),
        |_| {},
    );
    for node in [&hub, &terminal] {
        node.until("up", |node| {
            node.log().contains("session up") && node.log().contains("receives_only=false")
        });
    }
    let mut socket = connect(socks, echo());
    exchange(&mut socket, 1);
    terminal.reconfigure("number = 10\n", "number = 10\nshards = 2\n");
    let answer = terminal.ask("POST", "/v1/upgrade", "");
    assert_eq!(answer.status, 409, "{}", answer.body);
    assert!(answer.body.contains("shards"), "{}", answer.body);
    exchange(&mut socket, 2);
    terminal.reconfigure("shards = 2\n", "");
    for round in [3, 4] {
        for node in [&mut hub, &mut terminal] {
            let before = node.id();
            let transit = exchange_long(&socket, round);
            node.upgrade();
            assert_ne!(node.id(), before);
            let whole = transit.join().is_ok();
            assert!(whole, "{layer}, round {round}: {}", node.log());
        }
    }
    assert_met(&hub, 2);
    assert_met(&terminal, 3);
}

#[test]
fn a_stream_over_stcp_goes_on() {
    goes_on_over("stcp", 4_701);
}

#[test]
fn a_stream_over_mtcp_goes_on() {
    goes_on_over("mtcp", 4_702);
}

#[test]
fn a_stream_over_udp_goes_on() {
    goes_on_over("udp", 4_703);
}

#[test]
fn a_stream_over_ltp_goes_on() {
    goes_on_over("ltp", 4_704);
}

#[test]
fn an_address_of_a_path_that_another_program_has_prevents_the_upgrade() {
    let (own, other) = (address(HUB_END, 4_705), address(HUB_END, 4_706));
    let neighbour = address(TERMINAL_END, 4_705);
    let mut node = Node::start(
        &format!("{HUB}{}", path("udp", 10, [own, neighbour])),
        |_| {},
    );
    let taken = UdpSocket::bind(other).unwrap();
    node.reconfigure(&own.to_string(), &other.to_string());
    let answer = node.ask("POST", "/v1/upgrade", "");
    assert_eq!(answer.status, 409, "{}\n{}", answer.body, node.log());
    assert!(answer.body.contains(&other.to_string()), "{}", answer.body);
    // The running process still has its own.
    assert!(UdpSocket::bind(own).is_err());
    drop(taken);
    node.upgrade();
    assert!(UdpSocket::bind(other).is_err());
}
