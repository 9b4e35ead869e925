use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::document::MAX_REPORTS;

const LIMITS: Limits = Limits {
    durable: true,
    bytes: 64 << 20,
    interval: Duration::from_secs(1),
};

const ALL: Outcome = Outcome::Answered { refused: 0 };

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Gives the queue a report.
fn take(queue: &mut Queue, now: Instant, lane: Lane, text: &str, ticket: Option<u64>) {
    take_all(queue, now, lane, vec![text.into()], ticket);
}

fn take_all(queue: &mut Queue, now: Instant, lane: Lane, texts: Vec<String>, ticket: Option<u64>) {
    let taken = texts.into_iter().map(|text| Taken {
        lane,
        made: now,
        report: text.into(),
    });
    queue.take(now, 10, taken.collect(), ticket);
}

/// All actions that the queue wants now.
fn actions(queue: &mut Queue, now: Instant) -> Vec<Action> {
    std::iter::from_fn(|| queue.poll(now)).collect()
}

/// The post among some actions.
fn post(actions: &[Action]) -> Option<(Lane, Vec<&str>)> {
    actions.iter().find_map(|action| match action {
        Action::Post(lane, entries) => Some((*lane, entries.iter().map(|e| &*e.report).collect())),
        _ => None,
    })
}

#[test]
fn what_is_urgent_goes_at_once_with_others_of_its_moment() {
    let start = Instant::now();
    let mut queue = Queue::new(start, LIMITS, []);
    take(&mut queue, start, Lane::Urgent, "a", None);
    take(&mut queue, start + ms(5), Lane::Urgent, "b", None);
    assert_eq!(actions(&mut queue, start + ms(5)), []);
    assert_eq!(queue.next_timeout(), Some(start + ms(10)));
    let done = actions(&mut queue, start + ms(10));
    assert_eq!(post(&done), Some((Lane::Urgent, vec!["a", "b"])));
    // Reports that arrive meanwhile follow once the answer has come.
    take(&mut queue, start + ms(12), Lane::Urgent, "c", None);
    assert_eq!(actions(&mut queue, start + ms(40)), []);
    queue.posted(start + ms(40), Lane::Urgent, &ALL, 1.0);
    let done = actions(&mut queue, start + ms(40));
    assert_eq!(post(&done), Some((Lane::Urgent, vec!["c"])));
}

#[test]
fn the_rest_goes_once_in_each_interval_and_holds_up_nothing_urgent() {
    let start = Instant::now();
    let mut queue = Queue::new(start, LIMITS, []);
    take(&mut queue, start, Lane::Routine, "a", None);
    let done = actions(&mut queue, start);
    assert_eq!(post(&done), Some((Lane::Routine, vec!["a"])));
    take(&mut queue, start + ms(100), Lane::Routine, "b", None);
    take(&mut queue, start + ms(100), Lane::Urgent, "u", None);
    let done = actions(&mut queue, start + ms(110));
    assert_eq!(post(&done), Some((Lane::Urgent, vec!["u"])));
    queue.posted(start + ms(120), Lane::Routine, &ALL, 1.0);
    assert_eq!(post(&actions(&mut queue, start + ms(200))), None);
    let done = actions(&mut queue, start + ms(1000));
    assert_eq!(post(&done), Some((Lane::Routine, vec!["b"])));
}

#[test]
fn while_the_service_answers_the_disk_is_left_alone() {
    let start = Instant::now();
    let mut queue = Queue::new(start, LIMITS, []);
    take(&mut queue, start, Lane::Urgent, "a", Some(7));
    actions(&mut queue, start + ms(10));
    queue.posted(start + ms(200), Lane::Urgent, &ALL, 1.0);
    let done = actions(&mut queue, start + ms(300));
    assert_eq!(done, [Action::Release(7)]);
    assert_eq!(queue.next_timeout(), None);
    let figures = queue.figures();
    assert_eq!(
        (figures.accepted, figures.waiting, figures.waiting_bytes),
        (1, 0, 0)
    );
}

#[test]
fn custody_is_released_when_all_of_a_bundle_is_on_the_disk() {
    let start = Instant::now();
    let mut queue = Queue::new(start, LIMITS, []);
    let texts = vec!["a".to_owned(), "b".to_owned()];
    take_all(&mut queue, start, Lane::Urgent, texts, Some(7));
    actions(&mut queue, start + ms(10));
    queue.posted(start + ms(20), Lane::Urgent, &Outcome::Unavailable, 1.0);
    let done = actions(&mut queue, start + ms(250));
    assert!(
        matches!(&done[..], [Action::Save(entries)] if entries.len() == 2),
        "{done:?}"
    );
    // A disk that cannot write is tried again.
    queue.saved(start + ms(300), false);
    assert_eq!(actions(&mut queue, start + ms(400)), []);
    let done = actions(&mut queue, start + ms(5300));
    assert!(
        done.iter().any(|action| matches!(action, Action::Save(_))),
        "{done:?}"
    );
    queue.saved(start + ms(5400), true);
    let done = actions(&mut queue, start + ms(5400));
    assert_eq!(done, [Action::Release(7)]);
    // Once accepted, a report is deleted from the disk.
    queue.posted(start + ms(5500), Lane::Urgent, &ALL, 1.0);
    assert_eq!(
        actions(&mut queue, start + ms(5500)),
        [Action::Forget(vec![0, 1])]
    );
}

#[test]
fn what_an_earlier_run_has_left_is_posted_when_the_service_answers() {
    let start = Instant::now();
    let mut queue = Queue::new(start, LIMITS, [(3, 10, 10), (4, 10, 10)]);
    let done = actions(&mut queue, start);
    assert_eq!(done, [Action::Load(vec![3, 4])]);
    let entry = |id| Entry {
        id,
        node: 10,
        made_ms: -5000,
        report: format!("{id}").into(),
    };
    // The disk has lost one of them.
    queue.loaded(start, Some(vec![entry(4)]));
    let done = actions(&mut queue, start);
    assert_eq!(done[0], Action::Forget(vec![3]));
    assert_eq!(post(&done), Some((Lane::Routine, vec!["4"])));
    assert_eq!(queue.age_ms(start + ms(1000), &entry(4)), 6000);
    queue.posted(start + ms(20), Lane::Routine, &ALL, 1.0);
    assert_eq!(
        actions(&mut queue, start + ms(20)),
        [Action::Forget(vec![4])]
    );
    // New reports go behind all others.
    take(&mut queue, start, Lane::Routine, "n", None);
    assert_eq!(queue.figures().dropped, 1);
    assert_eq!(queue.next_id, 6);
}

#[test]
fn pauses_of_an_absent_service_hold_both_lanes() {
    let start = Instant::now();
    let mut queue = Queue::new(start, LIMITS, []);
    take(&mut queue, start, Lane::Urgent, "a", None);
    actions(&mut queue, start + ms(10));
    queue.posted(start + ms(10), Lane::Urgent, &Outcome::Unavailable, 1.0);
    take(&mut queue, start + ms(20), Lane::Routine, "r", None);
    assert_eq!(post(&actions(&mut queue, start + ms(500))), None);
    assert!(post(&actions(&mut queue, start + ms(510))).is_some());
    queue.posted(start + ms(520), Lane::Urgent, &Outcome::Denied, 1.0);
    assert_eq!(post(&actions(&mut queue, start + ms(15_000))), None);
    assert!(post(&actions(&mut queue, start + ms(15_520))).is_some());
}

#[test]
fn one_report_that_the_service_cannot_bear_is_found_and_given_up() {
    let mut now = Instant::now();
    let mut queue = Queue::new(now, LIMITS, []);
    let texts = (0..300).map(|n| n.to_string()).collect();
    take_all(&mut queue, now, Lane::Routine, texts, None);
    for _ in 0..100 {
        let done = actions(&mut queue, now);
        let Some((lane, texts)) = post(&done) else {
            break;
        };
        let outcome = match texts.contains(&"123") {
            true => Outcome::Rejected,
            false => ALL,
        };
        queue.posted(now, lane, &outcome, 1.0);
        now += ms(1000);
    }
    let figures = queue.figures();
    assert_eq!(
        (figures.accepted, figures.refused, figures.waiting),
        (299, 1, 0)
    );
}

#[test]
fn full_queue_gives_up_the_oldest_and_counts_them() {
    let start = Instant::now();
    let limits = Limits {
        durable: false,
        bytes: 10 * (OVERHEAD_BYTES + 1),
        ..LIMITS
    };
    let mut queue = Queue::new(start, limits, []);
    for text in ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b"] {
        take(
            &mut queue,
            start,
            Lane::Routine,
            text,
            Some(u64::from(text == "0")),
        );
    }
    assert_eq!(queue.figures().dropped, 2);
    let done = actions(&mut queue, start);
    let (_, texts) = post(&done).unwrap();
    assert_eq!((texts[0], texts.len()), ("2", 10));
    // Custody of a report that is given up is released.
    assert!(done.contains(&Action::Release(1)));
}

/// How many reports of a node wait in memory.
fn waiting(queue: &Queue, node: u64) -> usize {
    let queued = queue.in_memory.values();
    queued.filter(|queued| queued.entry.node == node).count()
}

#[test]
fn a_node_that_floods_a_full_queue_pushes_out_its_own_reports() {
    let start = Instant::now();
    let limits = Limits {
        durable: false,
        bytes: 100 * (OVERHEAD_BYTES + 1),
        ..LIMITS
    };
    let mut queue = Queue::new(start, limits, []);
    let take = |queue: &mut Queue, node| {
        let report = Taken {
            lane: Lane::Routine,
            made: start,
            report: "x".into(),
        };
        queue.take(start, node, vec![report], None);
    };
    for node in 1..=10 {
        (0..4).for_each(|_| take(&mut queue, node));
    }
    (0..1000).for_each(|_| take(&mut queue, 66));
    for node in 1..=10 {
        assert_eq!(waiting(&queue, node), 4, "{node}");
    }
    assert_eq!(waiting(&queue, 66), 60);
    assert_eq!(queue.figures().dropped, 940);
}

#[test]
fn what_an_earlier_run_has_left_counts_for_its_node() {
    let start = Instant::now();
    let limits = Limits {
        bytes: 20 * (OVERHEAD_BYTES + 1),
        ..LIMITS
    };
    let flood = (0..30).map(|id| (id, 66, 1));
    let left = flood.chain([(30, 7, 1)]).collect::<Vec<_>>();
    let mut queue = Queue::new(start, limits, left);
    let done = actions(&mut queue, start);
    let forgotten: Vec<u64> = (0..11).collect();
    assert_eq!(done[0], Action::Forget(forgotten));
    assert_eq!(done[1], Action::Load((11..=30).collect()));
}

#[test]
fn memory_holds_what_it_may_and_the_disk_the_rest() {
    let mut now = Instant::now();
    let mut queue = Queue::new(now, LIMITS, []);
    let long = "x".repeat(1 << 20);
    take(&mut queue, now, Lane::Urgent, &long, None);
    actions(&mut queue, now + ms(10));
    queue.posted(now + ms(10), Lane::Urgent, &Outcome::Denied, 1.0);
    for _ in 0..30 {
        take(&mut queue, now, Lane::Urgent, &long, None);
        now += ms(300);
        actions(&mut queue, now);
        queue.saved(now, true);
    }
    assert!(queue.memory_bytes <= MEMORY_BYTES);
    let figures = queue.figures();
    assert_eq!(
        (figures.waiting, figures.spooled, figures.dropped),
        (31, 31, 0)
    );
}

/// The service and the disk of a queue with random events.
struct World {
    queue: Queue,
    now: Instant,
    /// Reports on the disk, by their ids.
    disk: BTreeMap<u64, Entry>,
    accepted: HashSet<String>,
    /// The reports of each ticket that is not released.
    custody: BTreeMap<u64, Vec<String>>,
    saving: Option<Vec<Arc<Entry>>>,
    in_flight: Vec<(Lane, Vec<Arc<Entry>>)>,
}

impl World {
    fn new(disk: BTreeMap<u64, Entry>, now: Instant) -> World {
        let left = disk.iter();
        let left = left.map(|(id, e)| (*id, e.node, e.report.len() as u64));
        World {
            queue: Queue::new(now, LIMITS, left.collect::<Vec<_>>()),
            now,
            disk,
            accepted: HashSet::new(),
            custody: BTreeMap::new(),
            saving: None,
            in_flight: Vec::new(),
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.queue.poll(self.now) {
            match action {
                Action::Post(lane, entries) => {
                    assert!(entries.len() <= MAX_REPORTS && !entries.is_empty());
                    assert!(self.in_flight.iter().all(|(other, _)| *other != lane));
                    self.in_flight.push((lane, entries));
                }
                Action::Save(entries) => {
                    assert!(self.saving.replace(entries).is_none(), "one save at a time");
                }
                Action::Forget(ids) => {
                    // A write in progress ends before.
                    if let Some(entries) = self.saving.take() {
                        self.write(&entries);
                    }
                    for id in ids {
                        self.disk.remove(&id);
                    }
                }
                Action::Load(ids) => {
                    let found = ids.iter().filter_map(|id| self.disk.get(id).cloned());
                    let found = found.collect();
                    self.queue.loaded(self.now, Some(found));
                }
                Action::Release(ticket) => {
                    let safe = |text: &String| {
                        self.accepted.contains(text)
                            || self.disk.values().any(|entry| *entry.report == **text)
                    };
                    let reports = self.custody.remove(&ticket).unwrap();
                    assert!(reports.iter().all(safe), "released before it is safe");
                }
            }
        }
    }

    fn write(&mut self, entries: &[Arc<Entry>]) {
        for entry in entries {
            self.disk.insert(entry.id, (**entry).clone());
        }
        self.queue.saved(self.now, true);
    }

    fn answer(&mut self, outcome: &Outcome) {
        if self.in_flight.is_empty() {
            return;
        }
        let (lane, entries) = self.in_flight.remove(0);
        if let Outcome::Answered { .. } = outcome {
            let texts = entries.iter().map(|entry| entry.report.to_string());
            self.accepted.extend(texts);
        }
        self.queue.posted(self.now, lane, outcome, 1.0);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Take { urgent: bool, reports: usize },
    Answer(u8),
    Saved(bool),
    Wait(u64),
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (any::<bool>(), 0usize..4).prop_map(|(urgent, reports)| Step::Take { urgent, reports }),
        3 => (0u8..5).prop_map(Step::Answer),
        2 => prop::bool::weighted(0.8).prop_map(Step::Saved),
        3 => (0u64..2000).prop_map(Step::Wait),
        1 => Just(Step::Crash),
    ]
}

proptest! {
    #[test]
    fn every_report_is_accepted_or_still_in_custody_whatever_breaks(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut world = World::new(BTreeMap::new(), Instant::now());
        let (mut made, mut next_ticket) = (Vec::new(), 0);
        for step in steps {
            match step {
                Step::Take { urgent, reports } => {
                    let texts: Vec<String> =
                        (0..reports).map(|n| format!("{}", made.len() + n)).collect();
                    made.extend(texts.clone());
                    let lane = if urgent { Lane::Urgent } else { Lane::Routine };
                    world.custody.insert(next_ticket, texts.clone());
                    let now = world.now;
                    take_all(&mut world.queue, now, lane, texts, Some(next_ticket));
                    next_ticket += 1;
                }
                Step::Answer(0) => world.answer(&Outcome::Denied),
                Step::Answer(1) => world.answer(&Outcome::Unavailable),
                Step::Answer(_) => world.answer(&ALL),
                Step::Saved(true) => {
                    if let Some(entries) = world.saving.take() {
                        world.write(&entries);
                    }
                }
                Step::Saved(false) => {
                    if world.saving.take().is_some() {
                        world.queue.saved(world.now, false);
                    }
                }
                Step::Wait(ms) => world.now += Duration::from_millis(ms),
                Step::Crash => {
                    // Custodians send again what is not released.
                    let again = std::mem::take(&mut world.custody);
                    let accepted = std::mem::take(&mut world.accepted);
                    let disk = std::mem::take(&mut world.disk);
                    world = World::new(disk, world.now);
                    world.accepted = accepted;
                    for (ticket, texts) in again {
                        world.custody.insert(ticket, texts.clone());
                        let now = world.now;
                        take_all(&mut world.queue, now, Lane::Urgent, texts, Some(ticket));
                    }
                }
            }
            world.act();
        }
        // Once the service and the disk work, everything arrives.
        for _ in 0..200 {
            if let Some(entries) = world.saving.take() {
                world.write(&entries);
            }
            world.answer(&ALL);
            world.now += Duration::from_secs(1);
            world.act();
        }
        let figures = world.queue.figures();
        prop_assert_eq!((figures.waiting, figures.dropped), (0, 0));
        prop_assert!(world.custody.is_empty() && world.disk.is_empty());
        for text in &made {
            prop_assert!(world.accepted.contains(text));
        }
        prop_assert_eq!(world.queue.next_timeout(), None);
    }
}
