//! The tree of a link, and the decisions it makes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;
use thiserror::Error;
use underpass_cla::Class;
use underpass_work::FastMap;

use crate::beam::{Beam, QUANTUM, Weights};
use crate::classes::{ClassConfig, ClassError, Classes};
use crate::fair::virtual_time;
use crate::queues::Queues;
use crate::shaper::{Shaper, shape};
use crate::shard::{Shard, Turn};
use crate::terminal::{Leaf, Standing, Terminal, TerminalId, debt_level, debt_levels};
use crate::utilisation::Utilisation;

/// The line time of a bundle: long enough to keep per-bundle costs small, short
/// enough that the delay behind bulk is small beside a satellite's round trip.
pub(crate) const BUNDLE_TIME: Duration = Duration::from_millis(60);
pub(crate) const LEAST_BUNDLE_BYTES: u64 = 4 << 10;
pub(crate) const MOST_BUNDLE_BYTES: u64 = 1 << 20;

/// How long a bundle may take at a terminal's share of the root's rate, if it takes little of the
/// root's line time: the share is low since many have one, and bundles of 60 ms of it would be
/// costly.
const SHARE_TIME: Duration = Duration::from_millis(500);

/// The configuration of a scheduler; only the classes' weights change later.
#[derive(Clone, Debug)]
pub struct Config {
    /// The classes; class 0 among them, above all others.
    pub classes: Vec<ClassConfig>,
    /// The part of every rate that is used, above 0 and at most 1. A path's
    /// queue stays empty only if slightly less arrives than it can carry;
    /// 0.985 is a good value.
    pub utilisation: f64,
}

/// What is wrong with a [`Config`].
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ConfigError {
    /// The classes contradict themselves.
    #[error(transparent)]
    Classes(#[from] ClassError),
    /// The utilisation is not above 0 and at most 1.
    #[error("utilisation is {0}; it must be above 0 and at most 1")]
    Utilisation(f64),
    /// The classes or priorities differ from those the queues were built for.
    #[error("classes and their priorities cannot change while they are in use")]
    OtherClasses,
}

/// The leaf's terminal has not been added, or its class is not configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the scheduler knows no class {} of terminal {}", .0.class, .0.terminal.0)]
pub struct UnknownLeaf(pub Leaf);

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Send one bundle of at most `max_bytes` from `leaf`, and report it by
    /// [`LinkScheduler::sent`]; or take the leaf back by
    /// [`LinkScheduler::set_ready`].
    Send {
        /// The leaf whose turn it is.
        leaf: Leaf,
        /// The largest bundle to seal, bytes; never below 4 KiB.
        max_bytes: u64,
    },
    /// Ask again at that time, or after a change.
    Wait(Instant),
    /// Nothing can be sent before a change.
    Idle,
}

/// Decides what leaves a node over one link, and when; or its shard's part, if
/// several share a [`Beam`].
#[derive(Debug)]
pub struct LinkScheduler {
    classes: Classes,
    utilisation: Utilisation,
    shard: Shard,
    numbers: FastMap<TerminalId, usize>,
    terminals: Slab<Terminal>,
    /// Those that share the root.
    sharing: Queues,
    /// Those beside it, see [`LinkScheduler::set_beside`].
    beside: Queues,
    /// It is the turn of those beside the root.
    beside_is_next: bool,
}

impl LinkScheduler {
    /// A link without a rate and without terminals, on a beam of its own.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        LinkScheduler::on(config, Arc::new(Beam::new(config)?))
    }

    /// A shard of a beam, without terminals; it is one until it is dropped.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn on(config: &Config, beam: Arc<Beam>) -> Result<Self, ConfigError> {
        Ok(LinkScheduler {
            utilisation: Utilisation::new(config.utilisation)?,
            classes: Classes::new(&config.classes)?,
            shard: Shard::on(beam),
            numbers: FastMap::default(),
            terminals: Slab::new(),
            sharing: Queues::default(),
            beside: Queues::default(),
            beside_is_next: false,
        })
    }

    /// Tells how many entries each map, set and queue has, by a name, which may come more than
    /// once: for diagnostics and tests. Flows count as many as there ever were at once.
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let LinkScheduler {
            classes: _,
            utilisation: _,
            shard,
            numbers,
            terminals,
            sharing,
            beside,
            beside_is_next: _,
        } = self;
        shard.footprint(tell);
        tell("numbers of scheduled terminals", numbers.len());
        tell("scheduled terminals", terminals.len());
        for (_, terminal) in terminals {
            terminal.footprint(tell);
        }
        sharing.footprint(tell);
        beside.footprint(tell);
    }

    /// Adds a terminal with its share `weight` (at least 1) of the root and,
    /// if it is shaped, its own rate in bit/s of IP; one that is there already
    /// gets the new weight and rate and keeps all else.
    pub fn add_terminal(
        &mut self,
        now: Instant,
        id: TerminalId,
        weight: u64,
        rate_bps: Option<u64>,
    ) {
        let weight = weight.max(1);
        if self.numbers.contains_key(&id) {
            self.set_weight(id, weight);
        } else {
            let number = self
                .terminals
                .insert(Terminal::new(id, weight, &self.classes));
            self.numbers.insert(id, number);
            self.sharing.register(number, weight);
        }
        self.set_rate(now, id, rate_bps);
    }

    /// Gives the classes other weights, in force at once. Classes and priorities stay, since the
    /// queues of all terminals are built by them.
    ///
    /// # Errors
    /// When these are other classes or priorities, or contradict themselves;
    /// nothing has changed then.
    pub fn set_class_weights(&mut self, configs: &[ClassConfig]) -> Result<(), ConfigError> {
        let classes = Classes::new(configs)?;
        if !classes.is_ordered_as(&self.classes) {
            return Err(ConfigError::OtherClasses);
        }
        let numbers: Vec<usize> = self.terminals.iter().map(|(number, _)| number).collect();
        for number in numbers {
            self.update(number, |terminal| terminal.set_class_weights(&classes));
        }
        self.classes = classes;
        Ok(())
    }

    /// Forgets a terminal with all its leaves.
    pub fn remove_terminal(&mut self, now: Instant, id: TerminalId) {
        self.set_blocked(id, true);
        self.subtract(now, id, 0);
        if let Some(number) = self.numbers.remove(&id) {
            self.terminals.remove(number);
        }
    }

    /// Sets the rate of the beam or, at a terminal, of all paths together; bit/s of IP, `None` for
    /// no limit. In force at once, for all shards; those that wait have to be told as well, so that
    /// they ask again.
    pub fn set_root_rate(&mut self, now: Instant, rate_bps: Option<u64>) {
        self.shard.set_rate(now, rate_bps);
    }

    /// Sets a terminal's own rate, bit/s of IP, `None` for none but the
    /// root's. In force at once; 0 holds it.
    pub fn set_rate(&mut self, now: Instant, id: TerminalId, rate_bps: Option<u64>) {
        if let Some(&number) = self.numbers.get(&id) {
            self.terminals[number].rate_bps = rate_bps;
            self.reshape(now, number);
        }
    }

    /// Sets a terminal's share of the root among those that compete; at least
    /// 1, below 2³⁷. In force at once.
    pub fn set_weight(&mut self, id: TerminalId, weight: u64) {
        if let Some(&number) = self.numbers.get(&id) {
            let weight = weight.max(1);
            self.update(number, |terminal| terminal.weight = weight);
            self.queues_of(number).set_weight(number, weight);
        }
    }

    /// Tells whether a terminal is reached by a link of its own, beside the root: then the root's
    /// rate, shares and debts do not concern it, nor does it use any of them. Those beside the root
    /// and those that share it take turns, so that neither delay the others.
    pub fn set_beside(&mut self, now: Instant, id: TerminalId, beside: bool) {
        let Some(&number) = self.numbers.get(&id) else {
            return;
        };
        let terminal = &self.terminals[number];
        if terminal.beside == beside {
            return;
        }
        let (blocked, subtracted_bps) = (terminal.blocked, terminal.subtracted_bps);
        self.set_blocked(id, true);
        self.subtract(now, id, 0);
        let terminal = &mut self.terminals[number];
        terminal.beside = beside;
        let weight = terminal.weight;
        self.queues_of(number).register(number, weight);
        self.subtract(now, id, subtracted_bps);
        self.set_blocked(id, blocked);
    }

    /// Takes `bps` of traffic that the scheduler does not send (ACKs, plain
    /// IP: see [`crate::UnscheduledTraffic`]) from the terminal's rate and, if
    /// it shares it, the root's, in place of what was told before.
    pub fn subtract(&mut self, now: Instant, id: TerminalId, bps: u64) {
        let Some(&number) = self.numbers.get(&id) else {
            return;
        };
        let terminal = &mut self.terminals[number];
        let before = std::mem::replace(&mut terminal.subtracted_bps, bps);
        if !terminal.beside {
            self.shard.subtract(now, before, bps);
        }
        self.reshape(now, number);
    }

    /// A blocked terminal is granted nothing. When it is unblocked it goes on
    /// at once with its share and rate, and has saved up no more than any idle
    /// terminal.
    pub fn set_blocked(&mut self, id: TerminalId, blocked: bool) {
        if let Some(&number) = self.numbers.get(&id) {
            self.update(number, |terminal| terminal.blocked = blocked);
        }
    }

    /// Tells whether a leaf has something to send *and* a session that can
    /// take it.
    pub fn set_ready(&mut self, leaf: Leaf, ready: bool) -> Result<(), UnknownLeaf> {
        let (number, place) = self.find(leaf).ok_or(UnknownLeaf(leaf))?;
        let level = self.classes.level(place);
        self.update(number, |terminal| terminal.set_ready(level, ready));
        Ok(())
    }

    /// Tells whether what a leaf sends next is of streams that begin or send
    /// seldom. Where it is the terminal's next class, such a bundle does not wait
    /// for the terminal's turn among the others.
    pub fn set_sparse(&mut self, leaf: Leaf, sparse: bool) -> Result<(), UnknownLeaf> {
        let (number, place) = self.find(leaf).ok_or(UnknownLeaf(leaf))?;
        let level = self.classes.level(place);
        self.update(number, |terminal| terminal.set_sparse(level, sparse));
        Ok(())
    }

    /// Takes the IP bytes, by class, that a terminal's transports have not sent yet at `now`, after
    /// its rate was lowered: at the new rate they take longer. Except for sparse bundles, a class
    /// is granted nothing more until the unsent bytes of its own priority and above are paid.
    pub fn wait_for_unsent(&mut self, now: Instant, id: TerminalId, unsent: &[(Class, u64)]) {
        let mut by_level = vec![0_u64; debt_levels(self.classes.levels())];
        for &(class, ip_bytes) in unsent {
            let place = self.classes.place(class);
            // Bytes of no class known here delay all classes.
            let level = place.map_or(0, |place| debt_level(self.classes.level(place).0, false));
            by_level[level] = by_level[level].saturating_add(ip_bytes);
        }
        self.change_shaper(id, |shaper, _| shaper.wait_for(now, &by_level));
    }

    /// Lets a terminal with a rate of its own send `ip_bytes` at once, now and after silence,
    /// instead of the line time of a bundle; 0 is as usual.
    pub fn set_burst(&mut self, now: Instant, id: TerminalId, ip_bytes: u64) {
        self.change_shaper(id, |shaper, _| shaper.set_burst(now, ip_bytes));
    }

    /// Changes the amount that a terminal may send at once after silence. What was sent of it
    /// before is not granted again.
    pub fn resize_burst(&mut self, now: Instant, id: TerminalId, ip_bytes: u64) {
        self.change_shaper(id, |shaper, _| shaper.resize_burst(now, ip_bytes));
    }

    /// Notes that `ip_bytes` too many were sent to a terminal. Until they are made up for at its
    /// present rate, something is granted only to priorities above the debtor, the one that sent
    /// most of them: those above it sent less than half lately. The sparse bundles of a priority
    /// count as a priority of their own, before the rest.
    pub fn make_up_for(&mut self, now: Instant, id: TerminalId, ip_bytes: u64) {
        self.change_shaper(id, |shaper, debtor| shaper.owe(now, debtor, ip_bytes));
    }

    /// Whether a class of a terminal would wait then: it is of the priority that sent the excess,
    /// or of a lower one.
    pub fn makes_up_for(&self, id: TerminalId, class: Class) -> bool {
        let number = self.numbers.get(&id);
        let debtor = number.map_or(0, |&number| self.terminals[number].debtor());
        let place = self.classes.place(class);
        place.is_none_or(|place| debt_level(self.classes.level(place).0, false) >= debtor)
    }

    /// Notes that `ip_bytes` too many were sent to all terminals that share the root together:
    /// nothing more is granted to them until the root could have carried these bytes.
    pub fn make_up_for_all(&mut self, now: Instant, ip_bytes: u64) {
        self.shard.beam().make_up_for(now, ip_bytes);
    }

    /// What to do at `now`. Without a change in between, the answer to the
    /// same question is the same.
    pub fn next(&mut self, now: Instant) -> Decision {
        self.wake(now);
        let beside = self.beside.first();
        if let Some((number, early)) = beside.filter(|_| self.beside_is_next) {
            return self.grant(number, early);
        }
        match (self.next_of_root(now), beside, self.beside.next_at()) {
            (send @ Decision::Send { .. }, _, _) => send,
            (_, Some((number, early)), _) => self.grant(number, early),
            (Decision::Wait(at), None, Some(other)) => Decision::Wait(at.min(other)),
            (Decision::Idle, None, Some(at)) => Decision::Wait(at),
            (decision, None, None) => decision,
        }
    }

    /// The same for those that share the root alone.
    fn next_of_root(&mut self, now: Instant) -> Decision {
        let Some((number, early)) = self.sharing.first() else {
            let root = self.shard.leave(now, &mut self.sharing.eligible);
            return match (self.sharing.next_at(), root) {
                (None, _) | (_, Turn::Never) => Decision::Idle,
                (Some(at), Turn::Now) => Decision::Wait(at),
                (Some(at), Turn::At(root_at)) => Decision::Wait(root_at.max(at)),
            };
        };
        match self.shard.ask(now, early, &mut self.sharing.eligible) {
            Turn::Never => Decision::Idle,
            Turn::At(at) => Decision::Wait(at),
            Turn::Now => self.grant(number, early),
        }
    }

    fn grant(&self, number: usize, early: bool) -> Decision {
        let terminal = &self.terminals[number];
        let Some((level, member)) = terminal.first() else {
            return Decision::Idle;
        };
        let leaf = Leaf {
            terminal: terminal.id,
            class: self.classes.at(level, member),
        };
        let max_bytes = match early {
            true => self.short_bundle_bytes(number),
            false => self.bundle_bytes(number),
        };
        Decision::Send { leaf, max_bytes }
    }

    /// Charges `ip_bytes` that left for `leaf`: a bundle that was granted, or
    /// what its transport sent again by itself.
    pub fn sent(&mut self, now: Instant, leaf: Leaf, ip_bytes: u64) {
        let Some((number, place)) = self.find(leaf) else {
            // Bytes to a terminal that is gone have used the beam, too.
            return self.shard.sent(now, ip_bytes);
        };
        let level = self.classes.level(place);
        let is_beside = self.terminals[number].beside;
        if !is_beside {
            self.shard.sent(now, ip_bytes);
        }
        self.beside_is_next = !is_beside;
        let is_sparse = self.terminals[number].is_sparse(level);
        let queues = self.queues_of(number);
        let caught_up = queues.eligible.lead(number) == 0;
        queues.eligible.charge(number, ip_bytes);
        if leaf.class == Class::SIGNALLING {
            queues.signalling.charge(number, ip_bytes);
        } else if is_sparse {
            queues.sparse.charge(number, ip_bytes);
        }
        self.terminals[number].is_ahead &= !caught_up;
        self.update(number, |terminal| terminal.charge(now, level, ip_bytes));
    }

    /// The largest bundle to seal for a terminal, 4 KiB to 1 MiB: about 60 ms of its present rate,
    /// which is its own rate or its share of the root's among the terminals of all shards that
    /// compete now, whichever is less. If the share is less, a bundle may be up to 500 ms of it, as
    /// far as that takes no more than 2 ms at the root's rate.
    pub fn max_bundle_bytes(&self, id: TerminalId) -> u64 {
        self.numbers
            .get(&id)
            .map_or(LEAST_BUNDLE_BYTES, |&number| self.bundle_bytes(number))
    }

    /// The rate at which a terminal may be sent to at present, bit/s of IP: its own or its share of
    /// the root's, whichever is less; `None` without a limit.
    pub fn present_bps(&self, id: TerminalId) -> Option<u64> {
        let number = *self.numbers.get(&id)?;
        let own = self.usable_bps(&self.terminals[number]);
        own.into_iter().chain(self.share_of(number)).min()
    }

    /// The share of the root's rate that a terminal has for what it sends for longer, bit/s of IP:
    /// among itself and those that have more to send now than signalling and what is sparse. `None`
    /// if the root has no rate, or the terminal is beside it.
    pub fn share_bps(&self, id: TerminalId) -> Option<u64> {
        let number = *self.numbers.get(&id)?;
        self.share_among(number, |weights| weights.loading)
    }

    fn bundle_bytes(&self, number: usize) -> u64 {
        let root = self.shard.beam().usable_bps();
        let share = self.share_of(number).map(|share| {
            let short = bytes_in(share, BUNDLE_TIME);
            let long = bytes_in(share, SHARE_TIME);
            let line = bytes_in(root.unwrap_or(share), QUANTUM);
            short.max(long.min(line))
        });
        self.bundle_within(number, share)
    }

    /// The same without regard to costs per bundle: 60 ms of its present rate.
    fn short_bundle_bytes(&self, number: usize) -> u64 {
        let share = self.share_of(number);
        self.bundle_within(number, share.map(|share| bytes_in(share, BUNDLE_TIME)))
    }

    /// `share` bytes, or 60 ms of the terminal's own rate if that is less.
    fn bundle_within(&self, number: usize, share: Option<u64>) -> u64 {
        let own = self.usable_bps(&self.terminals[number]);
        let own = own.map(|own| bytes_in(own, BUNDLE_TIME));
        let least = own.into_iter().chain(share).min();
        let bytes = least.unwrap_or(MOST_BUNDLE_BYTES);
        bytes.clamp(LEAST_BUNDLE_BYTES, MOST_BUNDLE_BYTES)
    }

    /// A terminal's share of the root's rate among itself and those that compete now, bit/s of IP.
    fn share_of(&self, number: usize) -> Option<u64> {
        self.share_among(number, |weights| weights.active)
    }

    fn share_among(&self, number: usize, counted: impl Fn(Weights) -> u64) -> Option<u64> {
        let rate = self.shard.beam().usable_bps()?;
        let terminal = &self.terminals[number];
        if terminal.beside {
            return None;
        }
        let all = counted(self.shard.beam().weights());
        let others = all.saturating_sub(counted(terminal.weights()));
        let (weight, sum) = (terminal.weight, others + terminal.weight);
        Some((u128::from(rate) * u128::from(weight) / u128::from(sum)) as u64)
    }

    fn find(&self, leaf: Leaf) -> Option<(usize, usize)> {
        let &number = self.numbers.get(&leaf.terminal)?;
        Some((number, self.classes.place(leaf.class)?))
    }

    /// The part of a terminal's own rate that is used, bit/s.
    fn usable_bps(&self, terminal: &Terminal) -> Option<u64> {
        let rate = terminal.rate_bps?;
        Some(self.utilisation.of(rate, terminal.subtracted_bps.into()))
    }

    fn reshape(&mut self, now: Instant, number: usize) {
        let usable = self.usable_bps(&self.terminals[number]);
        self.update(number, |terminal| shape(&mut terminal.shaper, now, usable));
    }

    /// Changes the shaper of a terminal, if it has a rate. `change` also gets the level of debt
    /// that has to make up for an excess.
    fn change_shaper(&mut self, id: TerminalId, change: impl FnOnce(&mut Shaper, usize)) {
        if let Some(&number) = self.numbers.get(&id) {
            self.update(number, |terminal| {
                let debtor = terminal.debtor();
                if let Some(shaper) = &mut terminal.shaper {
                    change(shaper, debtor);
                }
            });
        }
    }

    /// Changes a terminal, and updates its place in the queues.
    fn update(&mut self, number: usize, change: impl FnOnce(&mut Terminal)) {
        let terminal = &mut self.terminals[number];
        let before = terminal.weights();
        change(terminal);
        self.shard.weigh(before, terminal.weights());
        let standing = terminal.present_standing();
        self.stand(number, standing);
    }

    fn stand(&mut self, number: usize, standing: Standing) {
        let terminal = &mut self.terminals[number];
        let before = std::mem::replace(&mut terminal.standing, standing);
        let eligible = standing == Standing::Eligible;
        let signalling = eligible && terminal.signalling_is_ready();
        let queues = self.queues_of(number);
        queues.wait(number, before, standing);
        queues.eligible.set_queued(number, eligible);
        queues.signalling.set_queued(number, signalling);
        let early = self.may_go_early(number);
        let queues = self.queues_of(number);
        queues.sparse.set_queued(number, eligible && early);
    }

    fn queues_of(&mut self, number: usize) -> &mut Queues {
        match self.terminals[number].beside {
            true => &mut self.beside,
            false => &mut self.sharing,
        }
    }

    /// Whether a terminal's next bundle need not wait for its turn: it is
    /// sparse, and since its last turn the terminal has never been ahead of its
    /// share by more than a bundle of its own and another of what is sparse.
    fn may_go_early(&mut self, number: usize) -> bool {
        let most = 2 * self.bundle_bytes(number);
        let lead = self.queues_of(number).eligible.lead(number);
        let terminal = &mut self.terminals[number];
        terminal.is_ahead |= lead > virtual_time(most, terminal.weight.into());
        let next = terminal.first();
        !terminal.is_ahead && next.is_some_and(|next| terminal.is_sparse(next))
    }

    /// Makes eligible every terminal that no debt delays any more.
    fn wake(&mut self, now: Instant) {
        while let Some(number) = self.sharing.due(now).or_else(|| self.beside.due(now)) {
            let standing = self.terminals[number].standing_at(now);
            self.stand(number, standing);
        }
    }
}

/// Bytes of a rate in bit/s in this time.
pub(crate) fn bytes_in(bps: u64, time: Duration) -> u64 {
    (u128::from(bps) * time.as_millis() / 8_000) as u64
}

#[cfg(test)]
mod tests;
