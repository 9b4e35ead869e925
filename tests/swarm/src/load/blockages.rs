//! Blockages as on a real link: the kernel silently drops packets to and from a terminal.
//!
//! The rules apply at the hub's end. So the forward link is cut a hop's delay before the terminal
//! enters, and the return link that much after. Bundles that the hub sends within the last delay
//! before the entry are lost; all that the terminal sends before the entry still arrives.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::chunks::nanos_between;
use super::ideal::Blocked;
use crate::hop::SentBeacons;

/// Most groups in which terminals enter and leave within the time of a blockage.
const GROUPS: usize = 16;
/// How often the thread checks whether it should end.
const GLANCE: Duration = Duration::from_millis(50);

const TABLE: &str = "table ip swarm {
    set forward_link { type ipv4_addr; }
    set return_link { type ipv4_addr; }
    chain hop {
        type filter hook input priority -300; policy accept;
        ip daddr @forward_link drop
        ip saddr @return_link drop
    }
}
";

/// Which terminals are blocked, and when.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    pub terminals: usize,
    /// Terminals that are blocked at any time, once the first have all begun;
    /// a quarter of all at most.
    pub blocked: usize,
    /// How long each is.
    pub length: Duration,
}

impl Turns {
    fn groups(&self) -> usize {
        // A divisor, so that all groups are of one size.
        let mut groups = (1..=GROUPS.min(self.blocked)).rev();
        let divisor = groups.find(|groups| self.blocked.is_multiple_of(*groups));
        divisor.unwrap_or(1)
    }

    /// From one group's entry to the next one's.
    fn step(&self) -> Duration {
        self.length / self.groups() as u32
    }

    /// The terminals of the group that enters as the `turn`th. All have had
    /// their turn before one has its next.
    fn members(&self, turn: usize) -> impl Iterator<Item = usize> {
        let size = self.blocked / self.groups();
        let (first, terminals) = (turn * size, self.terminals);
        (first..first + size).map(move |place| place % terminals)
    }

    /// Who enters at the `turn`th step, and who leaves.
    fn change(&self, turn: usize) -> (Vec<usize>, Vec<usize>) {
        let leave = turn.checked_sub(self.groups());
        let leave = leave.map_or(Vec::new(), |turn| self.members(turn).collect());
        (self.members(turn).collect(), leave)
    }
}

/// A terminal as far as blockages go.
#[derive(Clone)]
pub struct Place {
    pub address: Ipv4Addr,
    pub beacons: Arc<SentBeacons>,
}

/// The thread that makes the blockages.
pub struct Blocker {
    stopped: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Vec<Blocked>>>,
}

impl Blocker {
    /// Begins with the turns. `delay` is the hop's, one way; `epoch` the swarm's
    /// beginning.
    ///
    /// # Errors
    /// When the rules cannot be set in this network namespace.
    pub fn start(
        turns: Turns,
        places: Vec<Place>,
        delay: Duration,
        epoch: Instant,
    ) -> io::Result<Blocker> {
        nft(TABLE)?;
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = stopped.clone();
        let mut work = Work {
            turns,
            places,
            latest: HashMap::new(),
            entries: Vec::new(),
        };
        let thread = thread::spawn(move || {
            work.run(2 * delay, &stop)?;
            Ok(work.blocked(epoch))
        });
        Ok(Blocker { stopped, thread })
    }

    /// Ends all blockages; says which there were. One has ended for the hub
    /// when the terminal's first beacon gets through to it.
    ///
    /// # Errors
    /// When the rules could not be changed.
    pub fn stop(self) -> io::Result<Vec<Blocked>> {
        self.stopped.store(true, Ordering::Relaxed);
        let done = self.thread.join();
        let done = done.map_err(|_| io::Error::other("the blockages' thread has panicked"))?;
        nft("delete table ip swarm")?;
        done
    }
}

struct Work {
    turns: Turns,
    places: Vec<Place>,
    /// Each terminal's latest entry.
    latest: HashMap<usize, usize>,
    entries: Vec<Entry>,
}

struct Entry {
    terminal: usize,
    from: Instant,
    /// Which of the terminal's awaited beacons ends it.
    beacon: Option<usize>,
}

impl Work {
    fn run(&mut self, between: Duration, stopped: &AtomicBool) -> io::Result<()> {
        let begun = Instant::now();
        let (mut forward, mut back) = (0, 0);
        while !stopped.load(Ordering::Relaxed) {
            let due = |turn: usize| begun + self.turns.step() * turn as u32;
            let (forward_due, back_due) = (due(forward), due(back) + between);
            let wait = forward_due
                .min(back_due)
                .checked_duration_since(Instant::now());
            if let Some(wait) = wait {
                thread::sleep(wait.min(GLANCE));
            } else if forward_due <= back_due {
                self.cut_forward(forward)?;
                forward += 1;
            } else {
                self.cut_return(back)?;
                back += 1;
            }
        }
        Ok(())
    }

    fn cut_forward(&mut self, turn: usize) -> io::Result<()> {
        let (enter, leave) = self.turns.change(turn);
        self.cut("forward_link", &enter, &leave)?;
        let from = Instant::now();
        for terminal in enter {
            self.latest.insert(terminal, self.entries.len());
            self.entries.push(Entry {
                terminal,
                from,
                beacon: None,
            });
        }
        Ok(())
    }

    fn cut_return(&mut self, turn: usize) -> io::Result<()> {
        let (enter, leave) = self.turns.change(turn);
        self.cut("return_link", &enter, &leave)?;
        for terminal in leave {
            if let Some(entry) = self.latest.get(&terminal) {
                self.entries[*entry].beacon = Some(self.places[terminal].beacons.expect());
            }
        }
        Ok(())
    }

    fn cut(&self, set: &str, enter: &[usize], leave: &[usize]) -> io::Result<()> {
        let mut text = String::new();
        for (verb, terminals) in [("add", enter), ("delete", leave)] {
            let addresses = terminals
                .iter()
                .map(|place| self.places[*place].address.to_string());
            let addresses: Vec<_> = addresses.collect();
            if !addresses.is_empty() {
                let list = addresses.join(", ");
                text += &format!("{verb} element ip swarm {set} {{ {list} }}\n");
            }
        }
        nft(&text)
    }

    fn blocked(&self, epoch: Instant) -> Vec<Blocked> {
        let blocked = self.entries.iter().map(|entry| {
            let beacons = &self.places[entry.terminal].beacons;
            let heard = entry.beacon.and_then(|number| beacons.sent(number));
            Blocked {
                terminal: entry.terminal,
                from_ns: nanos_between(epoch, entry.from),
                until_ns: heard.map_or(u64::MAX, |at| nanos_between(epoch, at)),
            }
        });
        blocked.collect()
    }
}

/// Runs nft with this text in the network namespace of this process.
fn nft(text: &str) -> io::Result<()> {
    let mut nft = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = nft.stdin.take() {
        input.write_all(text.as_bytes())?;
    }
    match nft.wait()?.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("nft refuses: {text}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn so_many_are_blocked_at_any_time_and_all_in_turn() {
        for (terminals, blocked) in [(1000, 64), (20, 3), (10, 4), (50, 17)] {
            let turns = Turns {
                terminals,
                blocked,
                length: Duration::from_secs(5),
            };
            let mut inside = BTreeSet::new();
            let mut entries = vec![0; terminals];
            for turn in 0..1000 {
                let (enter, leave) = turns.change(turn);
                assert!(leave.iter().all(|terminal| inside.remove(terminal)));
                for terminal in enter {
                    assert!(inside.insert(terminal), "{terminal} is inside");
                    entries[terminal] += 1;
                }
                if turn + 1 >= turns.groups() {
                    assert_eq!(inside.len(), blocked);
                }
            }
            let (least, most) = (entries.iter().min(), entries.iter().max());
            assert!(
                most.zip(least)
                    .is_some_and(|(most, least)| most - least <= 1)
            );
            let inside_for = turns.step() * turns.groups() as u32;
            assert!(turns.length - inside_for < Duration::from_micros(1));
        }
    }
}
