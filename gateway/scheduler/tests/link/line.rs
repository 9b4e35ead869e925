//! A line in virtual time that asks its scheduler as often as it may.

use std::time::{Duration, Instant};

use underpass_cla::Class;
use underpass_scheduler::{ClassConfig, Config, Decision, Leaf, LinkScheduler, TerminalId};

pub const MBIT: u64 = 1_000_000;

/// One bundle that left.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub at: Duration,
    pub leaf: Leaf,
    pub bytes: u64,
}

pub struct Line {
    pub link: LinkScheduler,
    pub log: Vec<Sent>,
    start: Instant,
    now: Instant,
}

/// Class 0 is signalling; class 1 is alone; classes 2 and 3 have equal priority, 1 to 3;
/// class 4 is last.
pub fn config() -> Config {
    let class = |class, priority, weight| ClassConfig {
        class: Class(class),
        priority,
        weight,
    };
    let classes = vec![
        class(0, 0, 1),
        class(1, 1, 1),
        class(2, 2, 1),
        class(3, 2, 3),
        class(4, 9, 1),
    ];
    Config {
        classes,
        utilisation: 1.0,
    }
}

pub fn leaf(terminal: u64, class: u8) -> Leaf {
    Leaf {
        terminal: TerminalId(terminal),
        class: Class(class),
    }
}

impl Line {
    pub fn new(root_bps: Option<u64>) -> Self {
        let now = Instant::now();
        let mut link = LinkScheduler::new(&config()).unwrap();
        link.set_root_rate(now, root_bps);
        Line {
            link,
            log: Vec::new(),
            start: now,
            now,
        }
    }

    pub fn now(&self) -> Instant {
        self.now
    }

    pub fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    /// Lets time pass without asking.
    pub fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    pub fn terminal(&mut self, id: u64, weight: u64, rate_bps: Option<u64>) {
        self.link
            .add_terminal(self.now, TerminalId(id), weight, rate_bps);
    }

    /// Moves a terminal beside the root, or back to it.
    pub fn beside(&mut self, id: u64, beside: bool) {
        self.link.set_beside(self.now, TerminalId(id), beside);
    }

    /// A terminal with something to send in these classes.
    pub fn busy(&mut self, id: u64, weight: u64, rate_bps: Option<u64>, classes: &[u8]) {
        self.terminal(id, weight, rate_bps);
        for class in classes {
            self.ready(id, *class, true);
        }
    }

    pub fn rate(&mut self, id: u64, rate_bps: Option<u64>) {
        self.link.set_rate(self.now, TerminalId(id), rate_bps);
    }

    pub fn ready(&mut self, terminal: u64, class: u8, ready: bool) {
        self.link.set_ready(leaf(terminal, class), ready).unwrap();
    }

    pub fn blocked(&mut self, terminal: u64, blocked: bool) {
        self.link.set_blocked(TerminalId(terminal), blocked);
    }

    pub fn next(&mut self) -> Decision {
        self.link.next(self.now)
    }

    /// Sends what is granted for `time`; leaves stay backlogged.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            match self.link.next(self.now) {
                Decision::Send { leaf, max_bytes } => self.send(leaf, max_bytes),
                Decision::Wait(until) if until <= end => {
                    assert!(until > self.now, "a wait leads onwards");
                    self.now = until;
                }
                Decision::Wait(_) | Decision::Idle => break,
            }
        }
        self.now = end;
    }

    /// Passes time until something is granted.
    pub fn granted(&mut self) -> Leaf {
        loop {
            match self.link.next(self.now) {
                Decision::Send { leaf, .. } => return leaf,
                Decision::Wait(until) => self.now = until,
                Decision::Idle => panic!("nothing is ready"),
            }
        }
    }

    pub fn send(&mut self, leaf: Leaf, bytes: u64) {
        self.link.sent(self.now, leaf, bytes);
        self.log.push(Sent {
            at: self.elapsed(),
            leaf,
            bytes,
        });
    }

    pub fn bytes(&self, of: impl Fn(&Sent) -> bool) -> u64 {
        self.log
            .iter()
            .filter(|sent| of(sent))
            .map(|sent| sent.bytes)
            .sum()
    }

    pub fn bytes_of(&self, terminal: u64) -> u64 {
        self.bytes(|sent| sent.leaf.terminal == TerminalId(terminal))
    }
}
