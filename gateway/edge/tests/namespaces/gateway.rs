//! The edge as a process of its own, which a test can kill.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::Arc;

use underpass_cla::Class;
use underpass_edge::classify::Classifier;
use underpass_edge::config::EdgeConfig;
use underpass_edge::dial::{Dialler, Families};
use underpass_edge::direct::DirectOutlet;
use underpass_edge::transparent::Interception;
use underpass_edge::{Edge, Switch};

/// Not a test of its own: `World::gateway` starts it. It does nothing in a plain test
/// run.
#[test]
fn process() {
    let Ok(config) = std::env::var("UNDERPASS_EDGE_TEST") else {
        return;
    };
    let config: EdgeConfig = toml::from_str(&config).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    let dialler = Arc::new(Dialler::new(config.dial.clone()));
    let classifier = Classifier::new(&config.rule, Class(0), |_| None).unwrap();
    let outlet = Arc::new(DirectOutlet::new(dialler));
    let edge = Edge::start(&config, classifier, outlet).unwrap();
    let port = edge.addresses()[0].1.port();
    let mut switch = Switch::default();
    let mut families = Families::BOTH;
    let interception = config.interception.unwrap();
    let mut interception =
        Interception::install(interception, Some(port), &switch, families, BTreeMap::new())
            .unwrap();
    println!("answer: ready");
    for command in std::io::stdin().lock().lines() {
        match command.unwrap().as_str() {
            "on" => switch.enabled = true,
            "off" => switch.enabled = false,
            "ipv4 only" => {
                families = Families {
                    ipv4: true,
                    ipv6: false,
                }
            }
            "not this port" => switch.off_ports = vec![toml_port(crate::world::PORT)],
            _ => {}
        }
        interception.set(&switch, families).unwrap();
        assert!(interception.is_in_force());
        let plain = interception.plain_ip_bytes().unwrap();
        println!("answer: {} {}", plain.up, plain.down);
    }
}

fn toml_port(port: u16) -> underpass_edge::config::PortRange {
    underpass_edge::config::PortRange {
        first: port,
        last: port,
    }
}
