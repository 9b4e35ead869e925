//! Laws of the link scheduler under arbitrary changes.

use std::time::Duration;

use crate::line::{Line, Sent};
use proptest::prelude::*;
use underpass_scheduler::{Decision, Leaf, TerminalId};

const TERMINALS: u64 = 4;
const CLASSES: u8 = 5;
/// The priority of each class.
const PRIORITIES: [usize; CLASSES as usize] = [0, 1, 2, 2, 3];
const MOST_BPS: u64 = 20_000_000;

#[derive(Clone, Debug)]
enum Change {
    Ready(u64, u8, bool),
    Blocked(u64, bool),
    Rate(u64, Option<u64>),
    Root(Option<u64>),
    Run(u64),
}

fn rate() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![
        1 => Just(None),
        1 => Just(Some(0)),
        6 => (10_000..MOST_BPS).prop_map(Some),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let id = 0..TERMINALS;
    prop_oneof![
        6 => (id.clone(), 0..CLASSES, any::<bool>())
            .prop_map(|(id, class, ready)| Change::Ready(id, class, ready)),
        2 => (id.clone(), any::<bool>()).prop_map(|(id, blocked)| Change::Blocked(id, blocked)),
        2 => (id, rate()).prop_map(|(id, rate)| Change::Rate(id, rate)),
        1 => rate().prop_map(Change::Root),
        6 => (1..300_u64).prop_map(Change::Run),
    ]
}

/// What the scheduler was told, and the bits that its rates have allowed so far.
#[derive(Default)]
struct Told {
    ready: [[bool; CLASSES as usize]; TERMINALS as usize],
    blocked: [bool; TERMINALS as usize],
    /// The rate of each terminal, and of the root as the last one.
    rates: [Option<u64>; TERMINALS as usize + 1],
    /// Intervals of constant rates: their ends, and the rates.
    past: Vec<(Duration, [Option<u64>; TERMINALS as usize + 1])>,
}

impl Told {
    /// The bits that `who` may send from `from` to `to`; `None` if unlimited.
    fn allowed(&self, who: usize, from: Duration, to: Duration) -> Option<f64> {
        let mut bits = 0.0;
        let mut begin = Duration::ZERO;
        for (end, rates) in &self.past {
            let (start, stop) = (begin.max(from), (*end).min(to));
            // A change at the window's very edge counts as inside.
            if start <= stop {
                bits += rates[who]? as f64 * (stop - start).as_secs_f64();
            }
            begin = *end;
        }
        Some(bits)
    }

    fn was_lowered(&self, who: usize, from: Duration, to: Duration) -> bool {
        let mut begin = Duration::ZERO;
        let mut before: Option<u64> = None;
        for (end, rates) in &self.past {
            // As in `allowed`.
            if begin.max(from) <= (*end).min(to) {
                if before.zip(rates[who]).is_some_and(|(old, new)| new < old) {
                    return true;
                }
                before = rates[who];
            }
            begin = *end;
        }
        false
    }

    fn may_send(&self, leaf: Leaf) -> bool {
        let id = leaf.terminal.0 as usize;
        let class = usize::from(leaf.class.0);
        // Classes 2 and 3 have equal priority; any other lower number is a higher
        // priority.
        let above = if class == 3 { 2 } else { class };
        let higher = self.ready[id][..above].iter().any(|&ready| ready);
        let signalling = (0..TERMINALS as usize).any(|other| {
            let free = !self.blocked[other] && self.rates[other].is_none();
            self.ready[other][0] && free
        });
        self.ready[id][class] && !self.blocked[id] && !higher && (class == 0 || !signalling)
    }
}

/// Sends what is granted for `time`, while the rate holds something back.
fn run(line: &mut Line, told: &Told, time: Duration) -> Result<(), TestCaseError> {
    let end = line.elapsed() + time;
    loop {
        match line.next() {
            Decision::Send { leaf, max_bytes } => {
                prop_assert!(told.may_send(leaf), "{leaf:?}");
                line.send(leaf, max_bytes);
                let own = told.rates[leaf.terminal.0 as usize];
                if own.or(told.rates[TERMINALS as usize]).is_none() {
                    break;
                }
            }
            Decision::Wait(until) => {
                let pause = until - line.now();
                prop_assert!(pause > Duration::ZERO, "a wait leads onwards");
                if line.elapsed() + pause > end {
                    break;
                }
                line.pass(pause);
            }
            Decision::Idle => break,
        }
    }
    line.pass(end - line.elapsed());
    Ok(())
}

/// Asserts that no window of `log` has more than its rate, `credit` bits and one bundle;
/// and `ahead` bits if the rate was lowered, since higher priorities do not wait for the
/// debt.
fn assert_within_rate(
    log: &[Sent],
    told: &Told,
    who: usize,
    credit: f64,
    ahead: f64,
) -> Result<(), TestCaseError> {
    for (first, begin) in log.iter().enumerate() {
        let mut before_last = 0.0;
        for end in &log[first..] {
            let Some(allowed) = told.allowed(who, begin.at, end.at) else {
                break;
            };
            let within = before_last <= allowed + credit + 1.0;
            prop_assert!(
                within
                    || before_last <= allowed + credit + ahead + 1.0
                        && told.was_lowered(who, begin.at, end.at),
                "{who}: {begin:?} to {end:?}"
            );
            before_last += end.bytes as f64 * 8.0;
        }
    }
    Ok(())
}

/// Asserts, whatever the rate does: in no window that ends with a bundle of some
/// priority, this priority and those above have more than the rate, `credit` bits and
/// that bundle.
fn assert_priorities_within_rate(
    log: &[Sent],
    told: &Told,
    who: usize,
    credit: f64,
) -> Result<(), TestCaseError> {
    let priority = |sent: &Sent| PRIORITIES[usize::from(sent.leaf.class.0)];
    for (first, begin) in log.iter().enumerate() {
        let mut before_last = [0.0; PRIORITIES.len()];
        for end in &log[first..] {
            let Some(allowed) = told.allowed(who, begin.at, end.at) else {
                break;
            };
            let own = priority(end);
            prop_assert!(
                before_last[own] <= allowed + credit + 1.0,
                "{who}: {begin:?} to {end:?}"
            );
            for sum in &mut before_last[own..] {
                *sum += end.bytes as f64 * 8.0;
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_change_makes_a_window_exceed_its_rate_or_order(
        changes in prop::collection::vec(change(), 1..80),
    ) {
        let mut line = Line::new(None);
        let mut told = Told::default();
        for id in 0..TERMINALS {
            line.terminal(id, 1 + id, None);
        }
        for change in changes {
            match change {
                Change::Ready(id, class, ready) => {
                    told.ready[id as usize][usize::from(class)] = ready;
                    line.ready(id, class, ready);
                }
                Change::Blocked(id, blocked) => {
                    told.blocked[id as usize] = blocked;
                    line.blocked(id, blocked);
                }
                Change::Rate(id, rate) => {
                    told.rates[id as usize] = rate;
                    line.rate(id, rate);
                    told.past.push((line.elapsed(), told.rates));
                }
                Change::Root(rate) => {
                    told.rates[TERMINALS as usize] = rate;
                    let now = line.now();
                    line.link.set_root_rate(now, rate);
                    told.past.push((line.elapsed(), told.rates));
                }
                Change::Run(millis) => {
                    run(&mut line, &told, Duration::from_millis(millis))?;
                    told.past.push((line.elapsed(), told.rates));
                }
            }
        }
        let bundle = MOST_BPS as f64 * 0.060;
        for id in 0..TERMINALS {
            let own: Vec<Sent> = line
                .log
                .iter()
                .copied()
                .filter(|sent| sent.leaf.terminal == TerminalId(id))
                .collect();
            // One bundle for each priority except the first.
            assert_within_rate(&own, &told, id as usize, bundle, 3.0 * bundle)?;
            assert_priorities_within_rate(&own, &told, id as usize, bundle)?;
        }
        assert_within_rate(&line.log, &told, TERMINALS as usize, bundle, 0.0)?;
    }

    #[test]
    fn beam_is_full_while_anybody_is_ready(
        changes in prop::collection::vec((1..TERMINALS, 0..CLASSES, any::<bool>()), 1..80),
        root_bps in 100_000..50_000_000_u64,
    ) {
        let mut line = Line::new(Some(root_bps));
        for id in 0..TERMINALS {
            line.terminal(id, 1 + id, None);
        }
        line.ready(0, 4, true);
        for (id, class, ready) in changes {
            line.ready(id, class, ready);
            line.run(Duration::from_millis(97));
        }
        let bytes = line.bytes(|_| true) as f64;
        let exact = root_bps as f64 * line.elapsed().as_secs_f64() / 8.0;
        let bundle = (root_bps as f64 * 0.060 / 8.0).max(4096.0);
        prop_assert!(bytes >= exact - 1.0 && bytes <= exact + bundle, "{bytes} of {exact}");
    }

    #[test]
    fn backlogged_terminals_differ_from_their_weights_by_a_bundle_each(
        weights in prop::collection::vec(1..20_u64, 2..6),
        sizes in prop::collection::vec(100..=1_u64 << 20, 1..300),
    ) {
        let mut line = Line::new(None);
        for (id, &weight) in weights.iter().enumerate() {
            line.terminal(id as u64, weight, None);
            line.ready(id as u64, 2, true);
        }
        for bytes in sizes {
            let Decision::Send { leaf, .. } = line.next() else {
                return Err(TestCaseError::fail("nothing holds it back"));
            };
            line.send(leaf, bytes);
            let normal = |id: usize| line.bytes_of(id as u64) as f64 / weights[id] as f64;
            for a in 0..weights.len() {
                for b in 0..a {
                    let bundles = 1.0 / weights[a] as f64 + 1.0 / weights[b] as f64;
                    let bound = (1 << 20) as f64 * bundles + 1.0;
                    prop_assert!((normal(a) - normal(b)).abs() <= bound);
                }
            }
        }
    }
}
