//! Runs the same scripts over plain TCP, with several delays and buffers, since what an application
//! sees may depend on them.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::application::{Application, Seen};
use super::link::Blockage;
use super::random::Random;
use super::script::Script;
use super::tcp::{Census, Wire, connect};

/// Runs each script over each kind of connection. Returns, for each script, what was seen by
/// connection and side.
pub async fn perform(seed: u64, scripts: &[Script], blockages: &[Blockage]) -> Vec<Vec<[Seen; 2]>> {
    let wires = wires(seed, blockages);
    let at_once = wires.iter().map(|wire| (wire, Duration::ZERO));
    let later = LATER.map(|(place, ms)| (&wires[place], Duration::from_millis(ms)));
    let connections: Vec<(&Wire, Duration)> = at_once.chain(later).collect();
    let census = Census::default();
    let mut running = JoinSet::new();
    for (number, script) in scripts.iter().enumerate() {
        for (place, (wire, accepted)) in connections.iter().enumerate() {
            let (script, wire, census) = (script.clone(), (*wire).clone(), census.clone());
            let accepted = *accepted;
            running.spawn(async move {
                sleep(Duration::from_millis(script.begins)).await;
                let (client, origin) = connect(wire, &census);
                let client = Application::new(client, number as u64, 0);
                let origin = Application::new(origin, number as u64, 1);
                let origin = async {
                    sleep(accepted).await;
                    origin.perform(&script.parts[1]).await
                };
                let (client, origin) = tokio::join!(client.perform(&script.parts[0]), origin);
                (number, place, [client, origin])
            });
        }
    }
    let mut all = running.join_all().await;
    all.sort_by_key(|(number, place, _)| (*number, *place));
    let mut seen = vec![Vec::new(); scripts.len()];
    for (number, _, both) in all {
        seen[number].push(both);
    }
    sleep(Duration::from_secs(300)).await;
    assert_eq!(census.alive(), 0, "the model keeps connections");
    seen
}

/// On these wires each script also runs with an origin that accepts the connection this much later,
/// ms: through gateways a client's first bytes arrive before the accept.
const LATER: [(usize, u64); 4] = [(0, 5), (0, 20_000), (2, 20_000), (3, 20_000)];

/// 10 segments.
const FIRST_WINDOW: usize = 14_600;

fn wires(seed: u64, blockages: &[Blockage]) -> Vec<Wire> {
    let mut random = Random::new(seed ^ 0x7463_7000);
    let start = Instant::now();
    let wire = |delays: [u64; 2], buffers: [usize; 2]| Wire {
        delays: delays.map(Duration::from_millis),
        send_buffer: buffers[0],
        receive_buffers: [buffers[1]; 2],
        blockages: Arc::new([]),
    };
    const MIB: usize = 1 << 20;
    let mut wires = vec![
        wire([1, 1], [256 << 10, 256 << 10]),
        wire([1, 1], [4 << 10, 4 << 10]),
        wire([1, 1], [64 * MIB, 64 * MIB]),
        wire([300, 300], [MIB, MIB]),
        // No more in flight than TCP's initial window (RFC 6928).
        wire([300, 300], [64 << 10, FIRST_WINDOW]),
        wire([300, 300], [64 * MIB, FIRST_WINDOW]),
        wire([5_000, 5_000], [64 * MIB, FIRST_WINDOW]),
        wire([5_000, 5_000], [64 * MIB, 64 * MIB]),
        wire([1, 60_000], [64 * MIB, 64 * MIB]),
        wire([60_000, 1], [64 * MIB, 64 * MIB]),
    ];
    let real = blockages.iter().map(|blockage| {
        let from = start + Duration::from_millis(blockage.at);
        (from, from + Duration::from_millis(blockage.lasts))
    });
    // One direction is slower, also by a large factor.
    for delay in [300, 5_000] {
        for receive_buffers in [[FIRST_WINDOW, 64 * MIB], [64 * MIB, FIRST_WINDOW]] {
            wires.push(Wire {
                receive_buffers,
                ..wire([delay, delay], [64 * MIB, 0])
            });
        }
    }
    let mut blocked = wire([300, 300], [64 * MIB, 64 * MIB]);
    blocked.blockages = real.collect();
    wires.push(blocked);
    for _ in 0..2 {
        let mut at = start;
        let drawn = (0..4).map(|_| {
            let from = at + random.ms(0, 6_000);
            at = from + random.ms(10, 60_000);
            (from, at)
        });
        let blockages = drawn.collect();
        let delays = [random.between(1, 700), random.between(1, 700)];
        let mut drawn = wire(delays, [64 * MIB, 64 * MIB]);
        drawn.blockages = blockages;
        wires.push(drawn);
    }
    wires
}
