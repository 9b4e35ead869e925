//! These tests run in network namespaces of their own.

use nix::sched::{CloneFlags, unshare};

use super::*;

/// Runs in a new network namespace, which ends with its thread.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(move || {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            return skipped::because(format!("no network namespace: {error}"));
        }
        if let Err(error) = Netlink::open() {
            return skipped::because(format!("no MPTCP path manager: {error}"));
        }
        test();
    });
    thread.join().expect("no assertion failed");
}

fn endpoint(address: &str, kind: EndpointKind) -> Endpoint {
    Endpoint {
        address: address.parse().unwrap(),
        interface: None,
        backup: false,
        kind,
    }
}

/// The addresses that the kernel has now, with their flags.
fn there() -> Vec<(IpAddr, u32)> {
    let netlink = Netlink::open().unwrap();
    let listed = netlink.list(Message::new(Command::Get, Vec::new()));
    let attributes = listed.unwrap().into_iter().flat_map(|m| m.attributes);
    let mut found = Vec::new();
    for attribute in attributes {
        let Attribute::Endpoint(parts) = attribute else {
            panic!("an endpoint was asked for");
        };
        let address = parts.iter().find_map(|part| match part {
            EndpointAttribute::Address(address) => Some(*address),
            _ => None,
        });
        let flags = parts.iter().find_map(|part| match part {
            EndpointAttribute::Flags(flags) => Some(*flags),
            _ => None,
        });
        found.push((address.unwrap(), flags.unwrap()));
    }
    found
}

fn wanted(endpoints: Vec<Endpoint>) -> Wanted {
    Wanted {
        endpoints,
        subflows: 4,
        accepted_addresses: 3,
    }
}

#[test]
fn what_a_node_has_set_goes_with_it_and_nothing_else() {
    in_namespace(|| {
        let mut others = PathManager::default();
        let theirs = endpoint("192.0.2.9", EndpointKind::Subflow);
        let problems = others.set(&Wanted {
            endpoints: vec![theirs.clone()],
            ..Wanted::default()
        });
        assert_eq!(problems, Vec::<String>::new());
        let limits = others.limits().unwrap();

        let mut own = PathManager::default();
        let first = endpoint("192.0.2.1", EndpointKind::Subflow);
        let mut second = endpoint("2001:db8::1", EndpointKind::Signal(None));
        second.backup = true;
        let problems = own.set(&wanted(vec![first.clone(), second.clone()]));
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(
            there(),
            [
                (theirs.address, SUBFLOW),
                (first.address, SUBFLOW),
                (second.address, SIGNAL | BACKUP)
            ]
        );
        let raised = own.limits().unwrap();
        assert!(raised.subflows >= 4 && raised.accepted_addresses >= 3);
        // Another configuration; the system already has one of its addresses.
        let problems = own.set(&wanted(vec![second.clone(), theirs.clone()]));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("192.0.2.9"), "{problems:?}");
        assert_eq!(there().len(), 2);
        drop(own);
        assert_eq!(there(), [(theirs.address, SUBFLOW)]);
        assert_eq!(others.limits().unwrap(), limits);
    });
}

#[test]
fn an_interface_that_is_not_there_is_said() {
    in_namespace(|| {
        let mut own = PathManager::default();
        let mut there_is_none = endpoint("192.0.2.1", EndpointKind::Subflow);
        there_is_none.interface = Some("none0".to_owned());
        let problems = own.set(&wanted(vec![there_is_none]));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("192.0.2.1"), "{problems:?}");
        assert!(there().is_empty());
    });
}
