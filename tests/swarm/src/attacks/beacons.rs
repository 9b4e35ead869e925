//! Replayed beacons, and datagrams that are no beacons.

use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::sleep;
use underpass_beacon::{BEACON_BYTES, Beacon, Key, Sequence};

use super::{Answers, Attacker};

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Replay,
    OfAnother,
    UnknownKeys,
    Garbage,
}

pub const ALL: &[(&str, Kind)] = &[
    ("beacon-replay", Kind::Replay),
    ("beacon-of-another", Kind::OfAnother),
    ("beacon-unknown-keys", Kind::UnknownKeys),
    ("beacon-garbage", Kind::Garbage),
];

const COUNT: u64 = 50_000;

pub async fn run(at: &Attacker, kind: Kind, answers: &mut Answers) {
    let Ok(socket) = UdpSocket::bind("0.0.0.0:0").await else {
        return answers.note("no-socket");
    };
    let Some(secret) = at.line.keys().pop() else {
        return answers.note("no-key");
    };
    let own = Key::new(&secret.0);
    let beacon = |node: u64, counter: u64| Beacon {
        deaf: true,
        wants: true,
        rests: false,
        late: None,
        key: own.id(),
        node: u32::try_from(node).unwrap_or_default(),
        sequence: Sequence {
            incarnation: at.cast.run,
            counter: u32::try_from(counter).unwrap_or_default(),
        },
    };
    let once = own.seal(&beacon(at.cast.node, 0));
    for n in 0..COUNT {
        let datagram = match kind {
            Kind::Replay => once,
            // With its own key, in another's name.
            Kind::OfAnother => own.seal(&beacon(at.cast.victim, n)),
            Kind::UnknownKeys => {
                let mut secret = [7; 32];
                secret[..8].copy_from_slice(&n.to_be_bytes());
                let key = Key::new(&secret);
                key.seal(&Beacon {
                    key: key.id(),
                    ..beacon(at.cast.victim, n)
                })
            }
            Kind::Garbage => [n as u8; BEACON_BYTES],
        };
        let sent = socket.send_to(&datagram, at.cast.hub).await;
        answers.note(if sent.is_ok() { "sent" } else { "not-sent" });
        if n % 1_000 == 999 {
            // The machine is to be the hub's, too.
            sleep(Duration::from_millis(20)).await;
        }
    }
}
