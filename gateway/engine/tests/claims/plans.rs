//! Links that follow plans: a beam with two terminals, all of them busy, in virtual time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use underpass_engine::{
    EngineConfig, HopConfig, HopId, LinkChange, PlanLine, Sign, Source, StreamKey,
};
use underpass_plans::{Direction, Plan, Refused, State};

use crate::bench::{BULK, Node, config};

const NOON: u64 = 1_800_000_000_000;
const KBIT: u64 = 1_000;
const CAPACITY: u64 = 8_000 * KBIT;
const GUARANTEED: u64 = 1_000 * KBIT;
const TERMINALS: [u64; 2] = [10, 11];
const MS: Duration = Duration::from_millis(1);
/// A terminal's one hop.
const HOP: HopId = HopId(0);

/// The end of a segment in s from noon, its rate in kbit/s, and its state.
type Part = (u64, u64, State);

/// A plan from noon on, with the lines of terminals 10 and 11.
fn plan(link: Direction, version: u64, lines: &[&[Part]]) -> Arc<Plan> {
    plan_of(version, link, lines, CAPACITY, |_| {})
}

fn plan_of(
    version: u64,
    link: Direction,
    lines: &[&[Part]],
    capacity_bps: u64,
    change: impl FnOnce(&mut serde_json::Value),
) -> Arc<Plan> {
    let at = |s: u64| NOON + s * 1000;
    let lines = lines.iter().zip(TERMINALS).map(|(parts, terminal)| {
        let begins = [0]
            .into_iter()
            .chain(parts.iter().map(|(until, ..)| *until));
        let segments = begins.zip(*parts).map(|(begin, (until, kbps, state))| {
            serde_json::json!({
                "start_ms": at(begin), "end_ms": at(*until),
                "rate_bps": kbps * KBIT, "state": state,
            })
        });
        serde_json::json!({
            "terminals": [terminal], "guaranteed_bps": GUARANTEED,
            "segments": segments.collect::<Vec<_>>(),
        })
    });
    let lines: Vec<serde_json::Value> = lines.collect();
    let end = lines[0]["segments"].as_array().unwrap().last().unwrap()["end_ms"].clone();
    let mut document = serde_json::json!({
        "version": 1, "beam": "east", "link": link, "plan": version,
        "issued_ms": NOON, "start_ms": NOON, "end_ms": end, "lines": lines,
        "capacity": [{ "from_ms": NOON, "rate_bps": capacity_bps }],
    });
    change(&mut document);
    Arc::new(Plan::decode(document.to_string().as_bytes()).unwrap())
}

/// A hub and its terminals on a line without delay; the time starts at noon.
struct Beam {
    noon: Instant,
    hub: Node,
    terminals: Vec<Node>,
    /// The streams that keep the hub busy for each terminal, and each terminal busy.
    busy: Vec<Option<StreamKey>>,
    /// Bytes of bundles since the last look, by the hub's hop: the one of each terminal, and the
    /// first terminal's other one.
    forward: Vec<u64>,
    /// The same by terminal.
    back: Vec<u64>,
}

impl Beam {
    fn new(change: impl Fn(&mut EngineConfig)) -> Beam {
        let node = |number: u64, neighbours: &[u64], link: Direction| {
            let mut config = config(number, neighbours);
            config.window_bytes = Some(64 << 20);
            // So the bytes of an application that has ended are soon gone.
            config.send_buffer_bytes = Some(100_000);
            for hop in &mut config.hops {
                let terminal = number.max(hop.neighbour);
                hop.line = Some(PlanLine { link, terminal });
            }
            change(&mut config);
            Node::new(Instant::now(), config)
        };
        let mut hub = node(1, &TERMINALS, Direction::Forward);
        let mut terminals: Vec<Node> = TERMINALS
            .iter()
            .map(|number| node(*number, &[1], Direction::Return))
            .collect();
        for (hop, terminal) in terminals.iter_mut().enumerate() {
            let base = 100 * (hop as u64 + 1);
            hub.up(hop as u64, base);
            terminal.now = hub.now;
            terminal.up(0, base);
        }
        let mut beam = Beam {
            noon: hub.now,
            hub,
            terminals,
            busy: vec![None; 4],
            forward: vec![0; 3],
            back: vec![0; 2],
        };
        beam.pass(500 * MS);
        // Noon is when they have greeted each other.
        beam.noon = beam.hub.now;
        beam.set_utc(NOON);
        beam
    }

    fn set_utc(&mut self, ms: u64) {
        for node in self.terminals.iter_mut().chain([&mut self.hub]) {
            node.engine.set_utc(node.now, Some(ms));
        }
    }

    /// Keeps the hub busy for a terminal.
    fn busy_forward(&mut self, terminal: usize) {
        self.busy[terminal] = Some(self.hub.open(TERMINALS[terminal], BULK));
    }

    fn busy_back(&mut self, terminal: usize) {
        self.busy[2 + terminal] = Some(self.terminals[terminal].open(1, BULK));
    }

    fn follow_forward(&mut self, plan: Arc<Plan>) {
        let now = self.hub.now;
        self.hub.engine.follow_forward(now, plan).unwrap();
    }

    fn follow_return(&mut self, plan: &Arc<Plan>) {
        for node in &mut self.terminals {
            node.engine
                .follow_return(node.now, HOP, plan.clone())
                .unwrap();
        }
    }

    fn pass(&mut self, until: Duration) {
        while self.hub.now < self.noon + until {
            self.fill();
            self.exchange();
            let at = (self.hub.now + 5 * MS).min(self.noon + until);
            self.hub.pass(at);
            self.terminals.iter_mut().for_each(|node| node.pass(at));
        }
    }

    fn fill(&mut self) {
        for (place, key) in self.busy.iter().enumerate() {
            let node = match place {
                0 | 1 => &mut self.hub,
                _ => &mut self.terminals[place - 2],
            };
            if let Some(key) = key {
                let room = node.engine.send_capacity(*key);
                if room > 0 {
                    node.write(*key, room);
                }
            }
        }
    }

    fn exchange(&mut self) {
        for offered in self.hub.offers() {
            let hop = (offered.0.0 / 100 - 1) as usize;
            self.forward[hop] += offered.1.len();
            self.hub.carry(offered, &mut self.terminals[hop % 2]);
        }
        for (terminal, node) in self.terminals.iter_mut().enumerate() {
            for offered in node.offers() {
                self.back[terminal] += offered.1.len();
                node.carry(offered, &mut self.hub);
            }
        }
    }

    /// The rates of each terminal's link until then, in kbit/s: forward, return.
    fn rates(&mut self, until: Duration) -> [u64; 4] {
        let begun = self.hub.now;
        (self.forward, self.back) = (vec![0; 3], vec![0; 2]);
        self.pass(until);
        let passed_ms = (self.hub.now - begun).as_millis() as u64;
        let kbps = |bytes: u64| bytes * 8 / passed_ms;
        let [a, b, c, d] = [self.forward[0], self.forward[1], self.back[0], self.back[1]];
        [kbps(a), kbps(b), kbps(c), kbps(d)]
    }

    #[track_caller]
    fn assert_rates(&mut self, until_s: u64, expected: [u64; 2]) {
        let rates = self.rates(Duration::from_secs(until_s));
        for (rate, expected) in rates[..2].iter().zip(expected) {
            assert_near(*rate, expected, &rates);
        }
    }

    #[track_caller]
    fn assert_back(&mut self, until_s: u64, expected: [u64; 2]) {
        let rates = self.rates(Duration::from_secs(until_s));
        for (rate, expected) in rates[2..].iter().zip(expected) {
            assert_near(*rate, expected, &rates);
        }
    }
}

/// The bytes of bundles are a little fewer than what they cost on the hop.
#[track_caller]
fn assert_near(rate: u64, expected: u64, all: &[u64]) {
    let (least, most) = (expected * 92 / 100, expected * 102 / 100 + 30);
    assert!((least..=most).contains(&rate), "{all:?} kbit/s");
}

use State::{Blocked, Borrowing, Fair, Lending, Repaid};

/// The first terminal borrows, is blocked, and then has its former rate again.
const BORROWER: [Part; 3] = [(10, 6_000, Borrowing), (15, 0, Blocked), (20, 4_000, Fair)];
const LENDER: [Part; 3] = [(10, 2_000, Lending), (15, 8_000, Repaid), (20, 4_000, Fair)];

#[test]
fn terminals_of_a_busy_beam_have_what_the_plan_gives_each() {
    let mut beam = Beam::new(|config| config.beam_rate_bps = Some(CAPACITY));
    (0..2).for_each(|terminal| beam.busy_forward(terminal));
    beam.assert_rates(5, [4_000, 4_000]);
    beam.follow_forward(plan(Direction::Forward, 1, &[&BORROWER, &LENDER]));
    beam.assert_rates(10, [6_000, 2_000]);
    beam.assert_rates(15, [0, 8_000]);
    beam.assert_rates(20, [4_000, 4_000]);
    // After the plan's end the configured weights apply.
    beam.assert_rates(25, [4_000, 4_000]);
}

#[test]
fn rate_that_a_terminal_leaves_unused_goes_to_the_other_at_once() {
    let mut beam = Beam::new(|_| {});
    beam.follow_forward(plan(Direction::Forward, 1, &[&BORROWER, &LENDER]));
    beam.busy_forward(1);
    beam.assert_rates(3, [0, 8_000]);
    beam.busy_forward(0);
    beam.assert_rates(6, [6_000, 2_000]);
    beam.busy[1] = None;
    beam.pass(7_000 * MS);
    beam.assert_rates(9, [8_000, 0]);
}

#[test]
fn a_terminal_is_never_above_its_own_bound() {
    let mut beam = Beam::new(|config| {
        for hop in config.hops.iter_mut().filter(|hop| hop.neighbour == 10) {
            hop.send_rate_bps = Some(5_000 * KBIT);
        }
    });
    beam.follow_forward(plan(Direction::Forward, 1, &[&BORROWER, &LENDER]));
    (0..2).for_each(|terminal| beam.busy_forward(terminal));
    beam.assert_rates(5, [5_000, 3_000]);
}

#[test]
fn a_path_that_is_no_part_of_the_beam_keeps_its_own_rate_while_the_beam_is_full() {
    let lte_bps = 1_000 * KBIT;
    let mut beam = Beam::new(|config| {
        config.beam_rate_bps = Some(CAPACITY);
        // Enough waits for both paths of a terminal.
        config.send_buffer_bytes = Some(1_000_000);
        let hub = config.node == 1;
        let (id, neighbour) = if hub { (2, 10) } else { (1, 1) };
        if hub || config.node == 10 {
            config.hops[0].send_rate_bps = Some(CAPACITY);
            config.hops.push(HopConfig {
                send_rate_bps: Some(lte_bps),
                on_beam: false,
                ..HopConfig::new(HopId(id), "lte".to_owned(), neighbour)
            });
        }
    });
    beam.hub.up(2, 300);
    beam.terminals[0].up(1, 300);
    (0..2).for_each(|terminal| beam.busy_forward(terminal));
    // Before a planned blockage the beam's path would leave all to the other one.
    let lines: [&[Part]; 2] = [&[(20, 6_000, Borrowing)], &[(20, 2_000, Lending)]];
    for (until_s, expected) in [(5, [4_000, 4_000]), (10, [6_000, 2_000])] {
        beam.assert_rates(until_s, expected);
        let by_lte = beam.forward[2] * 8 / 5_000;
        assert_near(by_lte, lte_bps / KBIT, &[by_lte]);
        beam.follow_forward(plan(Direction::Forward, until_s, &lines));
    }
}

#[test]
fn capacity_changes_at_its_steps() {
    let mut beam = Beam::new(|_| {});
    let lines: [&[Part]; 2] = [&[(20, 1_000, Fair)], &[(20, 3_000, Fair)]];
    let weather = |document: &mut serde_json::Value| {
        let step = serde_json::json!({ "from_ms": NOON + 5_000, "rate_bps": 4_000 * KBIT });
        document["capacity"].as_array_mut().unwrap().push(step);
    };
    beam.follow_forward(plan_of(1, Direction::Forward, &lines, CAPACITY, weather));
    (0..2).for_each(|terminal| beam.busy_forward(terminal));
    beam.assert_rates(5, [2_000, 6_000]);
    beam.assert_rates(10, [1_000, 3_000]);
    beam.pass(20_000 * MS);
    // The beam's capacity is not configured: the last known one applies.
    beam.assert_rates(25, [2_000, 2_000]);
}

#[test]
fn a_terminal_that_no_line_names_has_what_the_others_leave() {
    let mut beam = Beam::new(|_| {});
    beam.follow_forward(plan(Direction::Forward, 1, &[&[(20, 8_000, Fair)]]));
    (0..2).for_each(|terminal| beam.busy_forward(terminal));
    let rates = beam.rates(5_000 * MS);
    assert!(rates[0] > 7_500 && (1..50).contains(&rates[1]), "{rates:?}");
    beam.busy[0] = None;
    beam.pass(6_000 * MS);
    beam.assert_rates(10, [0, 8_000]);
}

#[test]
fn terminals_send_exactly_at_their_planned_rates_by_absolute_time() {
    let mut beam = Beam::new(|config| {
        for hop in config.hops.iter_mut().filter(|hop| hop.neighbour == 1) {
            hop.send_rate_bps = Some(CAPACITY);
            hop.guaranteed_rate_bps = Some(500 * KBIT);
        }
    });
    (0..2).for_each(|terminal| beam.busy_back(terminal));
    beam.assert_back(3, [500, 500]);
    let plan = plan(Direction::Return, 1, &[&BORROWER, &LENDER]);
    beam.follow_return(&plan);
    beam.assert_back(10, [6_000, 2_000]);
    beam.assert_back(15, [0, 8_000]);
    beam.assert_back(20, [4_000, 4_000]);
    beam.assert_back(25, [1_000, 1_000]);
    let over = beam.terminals[0].engine.hops()[0].plan.clone().unwrap();
    assert_eq!(
        (over.in_force, over.guaranteed_bps),
        (false, Some(GUARANTEED))
    );
}

#[test]
fn no_plan_exceeds_what_the_path_is_configured_to_carry() {
    let mut beam = Beam::new(|config| {
        for hop in config.hops.iter_mut().filter(|hop| hop.neighbour == 1) {
            hop.send_rate_bps = Some(3_000 * KBIT);
        }
    });
    (0..2).for_each(|terminal| beam.busy_back(terminal));
    beam.follow_return(&plan(Direction::Return, 1, &[&BORROWER, &LENDER]));
    beam.assert_back(5, [3_000, 2_000]);
}

#[test]
fn an_operators_rate_counts_until_it_is_left_to_the_plan_again() {
    let mut beam = Beam::new(|config| config.beam_rate_bps = Some(CAPACITY));
    (0..2).for_each(|terminal| beam.busy_back(terminal));
    beam.follow_return(&plan(Direction::Return, 1, &[&BORROWER, &LENDER]));
    let node = &mut beam.terminals[0];
    node.engine.set_rate(node.now, HOP, Some(1_500 * KBIT));
    beam.assert_back(3, [1_500, 2_000]);
    let node = &mut beam.terminals[0];
    node.engine.reset_rate(node.now, HOP);
    beam.assert_back(6, [6_000, 2_000]);
    beam.hub
        .engine
        .set_beam_rate(beam.hub.now, Some(2_000 * KBIT));
    beam.follow_forward(plan(Direction::Forward, 1, &[&BORROWER, &LENDER]));
    assert_eq!(beam.hub.engine.beam_rate_bps(), Some(2_000 * KBIT));
    beam.hub.engine.reset_beam_rate(beam.hub.now);
    assert_eq!(beam.hub.engine.beam_rate_bps(), Some(CAPACITY));
}

#[test]
fn heard_in_its_blockage_a_link_goes_on_at_what_is_guaranteed() {
    let mut beam = Beam::new(|_| {});
    (0..2).for_each(|terminal| beam.busy_back(terminal));
    (0..2).for_each(|terminal| beam.busy_forward(terminal));
    beam.follow_return(&plan(Direction::Return, 1, &[&BORROWER, &LENDER]));
    beam.follow_forward(plan(Direction::Forward, 1, &[&BORROWER, &LENDER]));
    beam.pass(11_000 * MS);
    let now = beam.hub.now;
    let blocked = beam.terminals[0].engine.hops()[0].link.blocked;
    assert_eq!(blocked.map(|(source, _)| source), Some(Source::Plan));
    beam.terminals[0].engine.heard(now, HOP, now, Sign::Session);
    beam.hub.engine.heard(now, HOP, now, Sign::Session);
    let rates = beam.rates(14_900 * MS);
    assert_near(rates[2], 1_000, &rates);
    // At the hub it competes with guaranteed traffic.
    assert_near(rates[0], CAPACITY / KBIT / 9, &rates);
    let contradicted = |change: &&LinkChange| matches!(change, LinkChange::PlanContradicted(_));
    assert_eq!(beam.hub.changes.iter().filter(contradicted).count(), 1);
    // A later plan with the same blockage changes nothing.
    let later: [Part; 3] = [(10, 6_000, Borrowing), (16, 0, Blocked), (20, 4_000, Fair)];
    beam.follow_forward(plan(Direction::Forward, 2, &[&later, &LENDER]));
    beam.pass(15_500 * MS);
    assert_eq!(beam.hub.changes.iter().filter(contradicted).count(), 1);
}

#[test]
fn the_newest_version_counts_from_its_start_on() {
    let mut beam = Beam::new(|_| {});
    beam.busy_forward(0);
    let at = |rate: u64| -> [Part; 1] { [(30, rate, Fair)] };
    let plan = |version: u64, kbps: u64, start_s: u64| {
        let lines: [&[Part]; 1] = [&at(kbps)];
        plan_of(
            version,
            Direction::Forward,
            &lines,
            kbps * KBIT,
            |document| {
                let start_ms = NOON + start_s * 1000;
                document["start_ms"] = start_ms.into();
                document["lines"][0]["segments"][0]["start_ms"] = start_ms.into();
            },
        )
    };
    beam.follow_forward(plan(5, 2_000, 0));
    beam.follow_forward(plan(7, 6_000, 10));
    beam.assert_rates(5, [2_000, 0]);
    let now = beam.hub.now;
    let old = beam.hub.engine.follow_forward(now, plan(6, 4_000, 4));
    assert_eq!(
        old,
        Err(Refused::Old {
            version: 6,
            known: 7
        })
    );
    beam.follow_forward(plan(8, 4_000, 8));
    beam.assert_rates(8, [2_000, 0]);
    beam.assert_rates(12, [4_000, 0]);
}

#[test]
fn a_clock_that_is_set_right_moves_the_plan_and_breaks_nothing() {
    let mut beam = Beam::new(|_| {});
    beam.busy_back(0);
    beam.follow_return(&plan(Direction::Return, 1, &[&BORROWER, &LENDER]));
    beam.assert_back(5, [6_000, 0]);
    // By the new time it is in the middle of its blockage, and was just heard.
    beam.set_utc(NOON + 12_000);
    beam.assert_back(7, [1_000, 0]);
    beam.set_utc(NOON + 1_000);
    beam.assert_back(9, [6_000, 0]);
    for node in &mut beam.terminals {
        node.engine.set_utc(node.now, None);
    }
    // Without the time no plan is in force, but its guaranteed rate is known. Bytes that
    // left before are paid for first.
    beam.pass(9_500 * MS);
    beam.assert_back(11, [1_000, 0]);
    beam.set_utc(NOON + 19_000);
    beam.assert_back(12, [4_000, 0]);
}

#[test]
fn plans_of_other_links_beams_and_terminals_are_refused() {
    let mut beam = Beam::new(|_| {});
    let now = beam.hub.now;
    let forward = plan(Direction::Forward, 1, &[&BORROWER, &LENDER]);
    let back = plan(Direction::Return, 1, &[&BORROWER]);
    let hub = &mut beam.hub.engine;
    assert_eq!(
        hub.follow_forward(now, back.clone()),
        Err(Refused::Link(Direction::Return))
    );
    assert_eq!(
        hub.follow_return(now, HOP, back.clone()),
        Err(Refused::Link(Direction::Return))
    );
    hub.follow_forward(now, forward.clone()).unwrap();
    let west = |document: &mut serde_json::Value| document["beam"] = "west".into();
    let west = plan_of(9, Direction::Forward, &[&BORROWER], CAPACITY, west);
    let refused = hub.follow_forward(now, west.clone());
    assert!(matches!(refused, Err(Refused::Beam { .. })), "{refused:?}");
    let other = &mut beam.terminals[1].engine;
    assert_eq!(
        other.follow_return(now, HOP, back),
        Err(Refused::Nobody(11))
    );
    assert_eq!(
        other.follow_return(now, HOP, forward),
        Err(Refused::Link(Direction::Forward))
    );
    // When the plan that was followed is over, the node may follow one of another beam.
    beam.pass(20_000 * MS);
    beam.follow_forward(west);
}
