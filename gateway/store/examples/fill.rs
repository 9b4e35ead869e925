//! What durable custody costs: fills a directory with bundles for a node that
//! is out of reach, and opens it again.
//!
//! `cargo run --release -p underpass-store --example fill -- DIR NODE TO MIB KIB`
//! puts MIB mebibytes of bundles of KIB kibibytes into custody of node NODE,
//! all for node TO; a node started with this directory hands them on.

use std::error::Error;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::wire::ipn;
use underpass_bundle::{Agent, Config, NeighbourId, Route, Send, SendError};
use underpass_cla::Class;
use underpass_store::{Limits, open};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, node, to, mib, kib] = &arguments[..] else {
        return Err("usage: fill DIR NODE TO MIB KIB".into());
    };
    let (dir, node, to) = (Path::new(dir), node.parse()?, to.parse()?);
    let (mib, kib): (usize, usize) = (mib.parse()?, kib.parse()?);
    let idle = resident_bytes();
    let (notify, moved) = mpsc::channel();
    let opened = open(dir, node, Limits::default(), Instant::now(), move || {
        let _ = notify.send(());
    });
    let (store, handle, _) = opened?;
    let mut agent = Agent::with_store(config(node, to), Box::new(store));
    let start = Instant::now();
    for number in 0..mib * 1024 / kib {
        let payload = Bytes::from(vec![number as u8; kib * 1024]);
        while agent.send(Instant::now(), send(to, &payload)) == Err(SendError::NoRoom) {
            moved.recv()?;
            agent.handle_store(Instant::now());
        }
    }
    agent.flush_store();
    handle.close();
    let took = start.elapsed().as_secs_f64();
    agent.handle_store(Instant::now());
    println!("filled: {:.0} MB/s", mib as f64 * 1.048_576 / took);
    println!("memory above idle: {} MiB", (resident_bytes() - idle) >> 20);
    drop(agent);

    let start = Instant::now();
    let (store, handle, report) = open(dir, node, Limits::default(), start, || {})?;
    let mut agent = Agent::with_store(config(node, to), Box::new(store));
    agent.restore(Instant::now());
    println!(
        "opened again: {} bundles, {} MiB, {} ms",
        report.bundles,
        report.bytes >> 20,
        start.elapsed().as_millis()
    );
    handle.close();
    Ok(())
}

fn config(node: u64, to: u64) -> Config {
    let mut config = Config::new(node, 1);
    config.store_bytes = u64::MAX;
    config.store_bundles = usize::MAX;
    config.routes.push(Route {
        nodes: to..=to,
        neighbour: NeighbourId(to),
        take_custody: true,
    });
    config
}

fn send(to: u64, payload: &Bytes) -> Send {
    Send {
        lifetime: Some(Duration::from_secs(3600)),
        ..Send::new(ipn(to, 64), 64, Class(2), vec![payload.clone()])
    }
}

/// Memory that is this process' own.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
