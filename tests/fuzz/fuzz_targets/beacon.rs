//! Datagrams from anybody, at an endpoint that knows one peer.
#![no_main]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use underpass_beacon::{BEACON_BYTES, Endpoint, Key, PeerConfig, PeerId};

fuzz_target!(|data: &[u8]| {
    let now = Instant::now();
    let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 4556));
    let mut endpoint = Endpoint::new(2, 1, now);
    let peer = PeerConfig {
        node: 1,
        rtt: Duration::from_millis(560),
        address: Some(from),
        patience: std::time::Duration::MAX,
    };
    endpoint.add_peer(now, PeerId(0), peer);
    endpoint.add_key(now, PeerId(0), Key::new(&[1; 32]));
    endpoint.handle_datagram(now, from, data);
    for datagram in data.chunks(BEACON_BYTES) {
        endpoint.handle_datagram(now, from, datagram);
        endpoint.handle_timeout(now);
        while endpoint.poll_transmit().is_some() {}
    }
    assert_eq!(endpoint.poll_event(), None, "nobody else has the key");
});
