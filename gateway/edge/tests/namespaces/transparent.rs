use std::io::{ErrorKind, Write};
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::world::{CLIENT, GATEWAY, ORIGIN, PATIENCE, World, able, line};

fn config(extra: &str) -> String {
    format!(
        "client_networks = ['10.77.1.0/24', 'fd77:1::/64']
         dial.allow_networks = ['10.77.0.0/16', 'fd77::/16']
         dial.families = ['ipv4', 'ipv6']
         interception.name = 'test'
         interception.client_networks = ['10.77.1.0/24', 'fd77:1::/64']
         {extra}
         [[listener]]
         name = 'transparent'\nprotocol = 'transparent'\naddress = '[::]:5555'"
    )
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Answers UDP port 443 at the origin for the duration of the test.
fn serve_quic(world: &World) {
    let socket = world.inside('o', || UdpSocket::bind("[::]:443").unwrap());
    std::thread::spawn(move || {
        let mut datagram = [0; 10];
        while let Ok((length, client)) = socket.recv_from(&mut datagram) {
            let _ = socket.send_to(&datagram[..length], client);
        }
    });
}

/// Whether a datagram to UDP 443 is answered.
fn quic(world: &World, origin: &'static str) -> Result<(), ErrorKind> {
    world.inside('c', move || {
        let any = if origin.contains(':') {
            "[::]:0"
        } else {
            "0.0.0.0:0"
        };
        let socket = UdpSocket::bind(any).unwrap();
        socket.connect((origin, 443)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send(b"hello").unwrap();
        let answered = socket.recv(&mut [0; 10]);
        answered.map(|_| ()).map_err(|error| error.kind())
    })
}

#[test]
fn connections_of_both_families_are_taken_in_and_rules_go_with_the_node() {
    if !able() {
        return;
    }
    let world = World::new();
    world.nft("add table inet foreign");
    let before = (world.nft("list ruleset"), world.ip_rules());
    let gateway = world.gateway(&config(""));
    for family in 0..2 {
        let (mut socket, source) = world.connect(ORIGIN[family]).unwrap();
        assert_eq!(source, ip(GATEWAY[family]));
        socket.write_all(b"echo\n").unwrap();
        assert_eq!(line(&mut socket).unwrap(), "echo");
    }
    gateway.end();
    assert_eq!((world.nft("list ruleset"), world.ip_rules()), before);
    let (_, source) = world.connect(ORIGIN[0]).unwrap();
    assert_eq!(source, ip(CLIENT[0]));
}

#[test]
fn switched_off_means_plain_ip_for_new_connections_only() {
    if !able() {
        return;
    }
    let world = World::new();
    let mut gateway = world.gateway(&config(""));
    for (off, on) in [("off", "on"), ("not this port", "")] {
        let (mut open, source) = world.connect(ORIGIN[0]).unwrap();
        assert_eq!(source, ip(GATEWAY[0]));
        gateway.command(off);
        let (mut plain, source) = world.connect(ORIGIN[0]).unwrap();
        assert_eq!(source, ip(CLIENT[0]));
        open.write_all(b"still here\n").unwrap();
        assert_eq!(line(&mut open).unwrap(), "still here");
        if !on.is_empty() {
            gateway.command(on);
            let (_, source) = world.connect(ORIGIN[0]).unwrap();
            assert_eq!(source, ip(GATEWAY[0]));
            plain.write_all(b"me too\n").unwrap();
            assert_eq!(line(&mut plain).unwrap(), "me too");
        }
    }
    let counted = gateway.command("count");
    let (up, down) = counted.split_once(' ').unwrap();
    assert!(up.parse::<u64>().unwrap() > 100 && down.parse::<u64>().unwrap() > 100);
}

#[test]
fn quic_and_families_out_of_reach_are_rejected_at_once() {
    if !able() {
        return;
    }
    let world = World::new();
    serve_quic(&world);
    let mut gateway = world.gateway(&config(""));
    for origin in ORIGIN {
        let refused = quic(&world, origin).unwrap_err();
        assert_eq!(refused, ErrorKind::ConnectionRefused, "{origin}");
    }
    gateway.command("ipv4 only");
    let start = Instant::now();
    assert!(world.connect(ORIGIN[1]).is_err());
    // Between namespaces the ICMP error arrives inside connect(2), where Linux notices it
    // only when it retransmits, after 1 s; on a real link it ends the attempt at once.
    // Without an answer the attempt would last for PATIENCE.
    assert!(start.elapsed() < Duration::from_secs(4));
    assert!(world.connect(ORIGIN[0]).is_ok());
}

#[test]
fn what_is_excluded_keeps_its_quic_and_is_of_no_family_out_of_reach() {
    if !able() {
        return;
    }
    let world = World::new();
    serve_quic(&world);
    let networks = "interception.exclude_networks = ['10.77.2.2/32', 'fd77:2::2/128']";
    let mut gateway = world.gateway(&config(networks));
    gateway.command("ipv4 only");
    for (family, origin) in ORIGIN.into_iter().enumerate() {
        assert_eq!(quic(&world, origin), Ok(()), "{origin}");
        assert_eq!(world.connect(origin).unwrap().1, ip(CLIENT[family]));
    }
    gateway.end();
    let ports = "interception.exclude_ports = ['440-450']";
    let gateway = world.gateway(&config(ports));
    for origin in ORIGIN {
        assert_eq!(quic(&world, origin), Ok(()), "{origin}");
    }
    gateway.end();
}

#[test]
fn a_killed_node_that_fails_open_leaves_plain_ip() {
    if !able() {
        return;
    }
    let world = World::new();
    world.nft("add table inet foreign");
    let before = world.nft("list ruleset");
    let mut gateway = world.gateway(&config(""));
    assert!(world.connect(ORIGIN[0]).is_ok());
    gateway.kill();
    assert_eq!(world.nft("list ruleset"), before);
    for family in 0..2 {
        let (_, source) = world.connect(ORIGIN[family]).unwrap();
        assert_eq!(source, ip(CLIENT[family]));
    }
    let restarted = world.gateway(&config(""));
    assert_eq!(world.ip_rules().matches("21840:").count(), 2);
    assert_eq!(world.connect(ORIGIN[1]).unwrap().1, ip(GATEWAY[1]));
    restarted.end();
    assert!(!world.ip_rules().contains("21840"));
}

#[test]
fn a_killed_node_that_fails_closed_rejects() {
    if !able() {
        return;
    }
    let world = World::new();
    let closed = config("interception.fail = 'closed'");
    let mut gateway = world.gateway(&closed);
    assert!(world.connect(ORIGIN[0]).is_ok());
    gateway.command("off");
    assert_eq!(world.connect(ORIGIN[0]).unwrap().1, ip(CLIENT[0]));
    gateway.command("on");
    gateway.kill();
    for origin in ORIGIN {
        assert!(world.connect(origin).is_err());
    }
    let restarted = world.gateway(&closed);
    assert!(world.connect(ORIGIN[0]).is_ok());
    restarted.end();
    assert_eq!(world.nft("list tables"), "");
}

#[test]
fn the_origin_sees_the_clients_own_address() {
    if !able() {
        return;
    }
    let world = World::new();
    let _gateway = world.gateway(&config("dial.origin_source = 'client'"));
    for family in 0..2 {
        let (mut socket, source) = world.connect(ORIGIN[family]).unwrap();
        assert_eq!(source, ip(CLIENT[family]));
        socket.write_all(b"echo\n").unwrap();
        assert_eq!(line(&mut socket).unwrap(), "echo");
        // It is intercepted all the same: the connection is the gateway's own.
        let gateway = world.ns('g');
        let sockets = crate::world::sh(&format!(
            "ip netns exec {gateway} ss -Htn state established"
        ));
        assert!(sockets.matches(":7000").count() >= 2, "{sockets}");
    }
}
