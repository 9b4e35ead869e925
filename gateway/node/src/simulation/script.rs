//! What the applications at both ends of a connection do.

use std::time::Duration;

use super::random::Random;

/// One step of an application; the next begins when it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writes so many bytes.
    Send(u64),
    /// Reads so many bytes, or all there are.
    Read(u64),
    /// Reads to the end.
    ReadOut,
    /// Reads to the end: bytes at a time, and the pause between reads, ms.
    ReadSlowly(u64, u64),
    /// Writes this many bytes while it reads to the end; then ends its side.
    Exchange(u64),
    /// Does nothing, ms.
    Pause(u64),
    /// Does nothing until this many ms after the connection began.
    Until(u64),
    /// Ends its side: shutdown(SHUT_WR).
    Shutdown,
}

/// How an application leaves its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// close(2).
    Close,
    /// close(2) with SO_LINGER of zero.
    Abort,
}

/// One application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub steps: Vec<Step>,
    pub leave: Leave,
}

/// Both applications of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// When the client connects, ms.
    pub begins: u64,
    /// How long the dial to the origin takes, ms.
    pub dial: u64,
    /// The client's, and the origin's.
    pub parts: [Part; 2],
}

/// How large the scripts of a run are.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Most bytes of one step.
    pub most_bytes: u64,
    /// The connections begin within this time, ms.
    pub spread: u64,
}

impl Script {
    pub fn draw(random: &mut Random, scale: Scale) -> Script {
        let parts = match random.next() % 8 {
            0 | 1 => request(random, scale),
            2 => brief(random),
            3 => one_way(random, scale),
            4 => exchange(random, scale),
            5 => deaf(random, scale),
            _ => [any(random, scale), any(random, scale)],
        };
        let mut parts = parts;
        for part in &mut parts {
            if random.chance(40) {
                part.steps.push(pause(random));
            }
        }
        if random.chance(50) {
            parts.reverse();
        }
        Script {
            begins: random.between(0, scale.spread),
            dial: random.between(1, 300),
            parts,
        }
    }
}

fn bytes(random: &mut Random, scale: Scale) -> u64 {
    let most = random.pick(&[1, 100, 4_000, 30_000, scale.most_bytes]);
    random.between(1, most.min(scale.most_bytes))
}

fn pause(random: &mut Random) -> Step {
    let most = random.pick(&[3, 100, 1_000, 6_000]);
    Step::Pause(random.between(1, most))
}

fn leave(random: &mut Random, aborts_percent: u64) -> Leave {
    match random.chance(aborts_percent) {
        true => Leave::Abort,
        false => Leave::Close,
    }
}

fn part(steps: Vec<Step>, leave: Leave) -> Part {
    Part { steps, leave }
}

/// A request and its answer.
fn request(random: &mut Random, scale: Scale) -> [Part; 2] {
    let (asked, answered) = (random.between(1, 2_000), bytes(random, scale));
    let mut client = vec![Step::Send(asked)];
    if random.chance(40) {
        client.push(Step::Shutdown);
    }
    client.push(match random.chance(15) {
        true => Step::ReadSlowly(random.between(500, 30_000), random.between(1, 200)),
        false => Step::ReadOut,
    });
    let mut origin = vec![Step::Read(asked)];
    if random.chance(40) {
        origin.push(pause(random));
    }
    origin.push(Step::Send(answered));
    if random.chance(20) {
        origin.push(Step::Shutdown);
        origin.push(Step::ReadOut);
    }
    let origin = part(origin, leave(random, 5));
    [part(client, Leave::Close), origin]
}

/// An end within the first packet.
fn brief(random: &mut Random) -> [Part; 2] {
    let mut first = Vec::new();
    if random.chance(80) {
        first.push(Step::Send(random.between(1, 200)));
    }
    if random.chance(30) {
        first.push(Step::Shutdown);
    }
    let second = match random.next() % 5 {
        0 => vec![],
        1 => vec![Step::ReadOut],
        2 => vec![Step::Send(random.between(1, 200)), Step::ReadOut],
        3 => vec![Step::ReadOut, Step::Send(random.between(1, 200))],
        _ => vec![pause(random), Step::Send(10), pause(random), Step::Send(10)],
    };
    let (first, second) = (
        part(first, leave(random, 30)),
        part(second, leave(random, 10)),
    );
    [first, second]
}

/// An upload or download.
fn one_way(random: &mut Random, scale: Scale) -> [Part; 2] {
    let mut sender = vec![Step::Send(bytes(random, scale))];
    if random.chance(40) {
        sender.push(Step::Shutdown);
        sender.push(match random.chance(50) {
            true => Step::ReadOut,
            false => pause(random),
        });
    }
    let mut reader = vec![Step::ReadOut];
    if random.chance(50) {
        reader.push(Step::Send(bytes(random, scale)));
    }
    let (sender, reader) = (
        part(sender, leave(random, 10)),
        part(reader, leave(random, 10)),
    );
    [sender, reader]
}

/// Both directions at once.
fn exchange(random: &mut Random, scale: Scale) -> [Part; 2] {
    [(); 2].map(|()| {
        let mut steps = Vec::new();
        if random.chance(30) {
            steps.push(pause(random));
        }
        steps.push(Step::Exchange(bytes(random, scale)));
        part(steps, leave(random, 20))
    })
}

/// One that never reads.
fn deaf(random: &mut Random, scale: Scale) -> [Part; 2] {
    let mut deaf = vec![pause(random)];
    if random.chance(50) {
        deaf.push(Step::Send(bytes(random, scale)));
    }
    deaf.push(pause(random));
    let other = vec![Step::Send(bytes(random, scale)), Step::ReadOut];
    let (deaf, other) = (
        part(deaf, leave(random, 30)),
        part(other, leave(random, 10)),
    );
    [deaf, other]
}

/// Anything.
fn any(random: &mut Random, scale: Scale) -> Part {
    let steps = random.between(0, 5);
    let steps = (0..steps).map(|_| match random.next() % 10 {
        0..=2 => Step::Send(bytes(random, scale)),
        3 | 4 => Step::Read(bytes(random, scale)),
        5 => Step::ReadOut,
        6 => Step::ReadSlowly(random.between(100, 20_000), random.between(1, 100)),
        7 => Step::Shutdown,
        8 => Step::Exchange(bytes(random, scale)),
        _ => pause(random),
    });
    let steps = steps.collect();
    part(steps, leave(random, 25))
}

/// How long a step may take before the client, or the origin, gives up. The two differ so much that
/// if both wait for each other, the same one always gives up first.
pub const PATIENCE: [Duration; 2] = [Duration::from_secs(3_000), Duration::from_secs(1_000)];
