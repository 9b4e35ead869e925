//! Services that do not confirm that they have stored a bundle safely.

use underpass_bundle::NeighbourId;
use underpass_cla::Outcome;

use crate::net::{Net, SERVICE, node, payload};

/// A pair whose second node has two services that confirm.
fn pair() -> Net {
    let mut second = node(2);
    for service in [SERVICE, SERVICE + 1] {
        second.services.insert(service);
        second.confirming.insert(service);
    }
    Net::of([node(1), second])
}

/// The first node's next bundle for a service reaches the second one; returns whether it
/// is delivered. In either case the second node goes on with other bundles.
fn is_delivered(net: &mut Net, service: u64) -> bool {
    let piece = payload(b"data");
    net.send_pieces(0, 2, service, vec![piece]).unwrap();
    let offer = net.offer(0, 2).unwrap();
    assert_eq!(net.try_arrive(1, 1, &offer), Ok(()));
    net.finish(0, &offer, Outcome::Acknowledged);
    !net.deliveries(1).is_empty()
}

#[test]
fn a_service_that_confirms_nothing_holds_up_no_other() {
    let mut net = pair();
    let delivered = (0..9_000).filter(|_| is_delivered(&mut net, SERVICE));
    let delivered = delivered.count();
    assert!((4_000..5_000).contains(&delivered), "{delivered}");
    assert!(is_delivered(&mut net, SERVICE + 1));
    // Undelivered bundles are still in the first node's custody.
    net.signal(1, 0);
    assert_eq!(net.released(0), []);
    assert!(!net.agents[0].is_paused(NeighbourId(2)));
}
