//! A terminal's certificate is renewed in spite of faults: the real authority, a
//! terminal's real folder and the hub's desk, in virtual time, over a link that blocks,
//! with a hub and a service that are killed.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use tempfile::TempDir;
use underpass_pki::{
    Authority, CertificateRequest, Credentials, Delivered, NodeKey, PkiError, Signed,
    continue_with, install, renewal_due, replace_revocation_list, revocation_list,
};
use underpass_provision::{Answer, Certificate, Desk, Pending, Question};

const NODE: u64 = 10;
const DAYS: u64 = 9;
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const INTERVAL: Duration = Duration::from_secs(600);
const ONE_WAY: Duration = Duration::from_millis(300);

/// Intervals during which something does not work, since the start.
type Faults = Vec<(Duration, Duration)>;

fn works(faults: &Faults, at: Duration) -> bool {
    !faults.iter().any(|(from, to)| (*from..*to).contains(&at))
}

#[derive(Default)]
struct Trouble {
    /// Nothing leaves on the hop; custody keeps the messages.
    blocked: Faults,
    /// The service does not answer.
    away: Faults,
    /// The service is killed while it answers: the authority has signed.
    answers_lost: Faults,
    /// The hub is killed: it loses what it has in memory.
    hub_killed: Vec<Duration>,
    /// Each message arrives twice, as after a restart.
    twice: bool,
}

/// A hop under custody: messages arrive late and perhaps twice, but are not lost.
struct Hop<T> {
    on_way: Vec<(Duration, T)>,
}

impl<T: Clone> Hop<T> {
    fn send(&mut self, now: Duration, message: T, twice: bool) {
        if twice {
            self.on_way.push((now + 5 * SECOND, message.clone()));
        }
        self.on_way.push((now + ONE_WAY, message));
    }

    fn arrived(&mut self, now: Duration, blocked: &Faults) -> Vec<T> {
        let mut arrived = Vec::new();
        self.on_way.retain(|(at, message)| {
            let is_there = *at <= now && works(blocked, now);
            if is_there {
                arrived.push(message.clone());
            }
            !is_there
        });
        arrived
    }
}

struct World {
    _dir: TempDir,
    authority: Authority,
    terminal: PathBuf,
    hub: PathBuf,
    start: SystemTime,
    origin: Instant,
    trouble: Trouble,
    desk: Desk,
    up: Hop<Vec<u8>>,
    down: Hop<Vec<u8>>,
    /// The times when the terminal asked, and when it got a certificate.
    asked: Vec<Duration>,
    taken: Vec<Duration>,
    issued: Vec<Duration>,
    refused: usize,
}

fn delivered(signed: &Signed) -> Delivered {
    Delivered {
        certificate: signed.certificate.clone(),
        authority: signed.authority.clone(),
        revocations: signed.revocations.clone(),
    }
}

impl World {
    fn new(trouble: Trouble) -> World {
        let dir = TempDir::new().unwrap();
        let start = SystemTime::now();
        let mut authority = Authority::init(&dir.path().join("pki"), "Test", 3650, start).unwrap();
        let key = NodeKey::load_or_make(dir.path(), "key").unwrap();
        let request = CertificateRequest::parse(&key.request(NODE).unwrap()).unwrap();
        let first = authority.sign(NODE, &request, DAYS, start).unwrap();
        let terminal = dir.path().join("terminal");
        install(&terminal, NODE, &key, &delivered(&first), false).unwrap();
        let hub = authority.issue(1, 365, start).unwrap().dir;
        World {
            _dir: dir,
            authority,
            terminal,
            hub,
            start,
            origin: Instant::now(),
            trouble,
            desk: Desk::default(),
            up: Hop { on_way: Vec::new() },
            down: Hop { on_way: Vec::new() },
            asked: Vec::new(),
            taken: Vec::new(),
            issued: Vec::new(),
            refused: 0,
        }
    }

    fn run(&mut self, from: Duration, until: Duration, step: Duration) {
        let mut now = from;
        let mut ask_at = from;
        let mut under_way: Option<(Duration, Pending)> = None;
        while now < until {
            if now >= ask_at {
                self.ask(now);
                ask_at = now + INTERVAL;
            }
            let killed = self.trouble.hub_killed.iter();
            if killed.clone().any(|at| (now..now + step).contains(at)) {
                self.desk = Desk::default();
                under_way = None;
            }
            for payload in self.up.arrived(now, &self.trouble.blocked) {
                self.at_hub(now, &payload);
            }
            if under_way.is_none() {
                let next = self.desk.next(self.origin + now);
                under_way = next.map(|asked| (now + SECOND, asked));
            }
            if under_way.as_ref().is_some_and(|(at, _)| *at <= now) {
                let asked = under_way.take().map(|(_, asked)| asked);
                self.at_service(now, &asked.unwrap());
            }
            for payload in self.down.arrived(now, &self.trouble.blocked) {
                self.at_terminal(now, &payload);
            }
            now += step;
        }
    }

    fn ask(&mut self, now: Duration) {
        let present = Credentials::load(&self.terminal).unwrap();
        let due = renewal_due(present.not_before, present.not_after);
        let key = NodeKey::load(&self.terminal.join("node.key")).unwrap();
        let is_due = due <= self.start + now;
        let list = revocation_list(&self.terminal).unwrap();
        let question = Question {
            revocations: list.map(|(_, digest)| digest),
            request: is_due.then(|| key.request(NODE).unwrap()),
        };
        if is_due {
            self.asked.push(now);
        }
        // It replaces the message before, if that has not left.
        if !works(&self.trouble.blocked, now) {
            self.up.on_way.clear();
        }
        let payload = question.encode().unwrap();
        self.up.send(now, payload, self.trouble.twice);
    }

    fn at_hub(&mut self, now: Duration, payload: &[u8]) {
        let question = Question::decode(payload).unwrap();
        if self.desk.admit(self.origin + now, NODE).is_err() {
            return;
        }
        let (list, digest) = revocation_list(&self.hub).unwrap().unwrap();
        if question.revocations.as_ref() != Some(&digest) {
            let answer = Answer {
                revocations: Some(list),
                ..Answer::default()
            };
            self.answer(now, &answer);
        }
        if let Some(request) = question.request {
            self.desk.request(self.origin + now, NODE, request);
        }
    }

    fn answer(&mut self, now: Duration, answer: &Answer) {
        let payload = answer.encode().unwrap();
        self.down.send(now, payload, self.trouble.twice);
    }

    fn at_service(&mut self, now: Duration, asked: &Pending) {
        if !works(&self.trouble.away, now) {
            self.desk.failed(self.origin + now, 0.5);
            return;
        }
        let request = CertificateRequest::parse(&asked.request).unwrap();
        let at = self.start + now;
        let signed = self.authority.renew_by_request(&request, DAYS, at);
        if signed.as_ref().is_ok_and(|signed| signed.is_new) {
            self.issued.push(now);
        }
        if !works(&self.trouble.answers_lost, now) {
            self.desk.failed(self.origin + now, 0.5);
            return;
        }
        self.desk.answered();
        let answer = match signed {
            Ok(signed) => Answer {
                certificate: Some(Certificate {
                    certificate: signed.certificate,
                    authority: signed.authority,
                    revocations: signed.revocations,
                }),
                ..Answer::default()
            },
            Err(error) => Answer::refusal(&error.to_string()),
        };
        self.answer(now, &answer);
    }

    fn at_terminal(&mut self, now: Duration, payload: &[u8]) {
        let answer = Answer::decode(payload).unwrap();
        if let Some(list) = answer.revocations {
            replace_revocation_list(&self.terminal, &list).unwrap();
        }
        if let Some(one) = answer.certificate {
            let delivered = Delivered {
                certificate: one.certificate,
                authority: one.authority,
                revocations: one.revocations,
            };
            if continue_with(&self.terminal, NODE, &delivered).unwrap() {
                self.taken.push(now);
            }
        }
        self.refused += usize::from(answer.refused.is_some());
    }

    /// Whether the terminal has the certificate that the authority issued last.
    fn agrees(&self) -> bool {
        let folder = self.hub.with_file_name(NODE.to_string());
        let [own, issued] =
            [&self.terminal, &folder].map(|dir| std::fs::read(dir.join("node.crt")).unwrap());
        own == issued
    }
}

/// Two thirds of nine days.
const DUE: Duration = Duration::from_secs(6 * 24 * 3600);

#[test]
fn a_blockage_and_a_killed_service_neither_lose_nor_double_a_renewal() {
    let mut world = World::new(Trouble {
        blocked: vec![(DUE - MINUTE, DUE + 9 * MINUTE)],
        answers_lost: vec![(DUE + 9 * MINUTE, DUE + 11 * MINUTE)],
        away: vec![(DUE + 11 * MINUTE, DUE + 30 * MINUTE)],
        ..Trouble::default()
    });
    world.run(DUE - INTERVAL, DUE + 2 * HOUR, SECOND / 2);
    assert_eq!((world.issued.len(), world.taken.len()), (1, 1));
    assert!(world.agrees());
    assert!(world.issued[0] < DUE + 11 * MINUTE);
    let taken = world.taken[0];
    assert!(
        taken > DUE + 30 * MINUTE && taken < DUE + 32 * MINUTE,
        "{taken:?}"
    );
}

#[test]
fn a_service_that_is_away_for_a_week_costs_no_more_than_the_week() {
    let (from, back) = (DUE - HOUR, DUE + 2 * DAY);
    let mut world = World::new(Trouble {
        away: vec![(from, back)],
        // Three of the nine days are left then; the hub is restarted within them.
        hub_killed: vec![DUE + DAY],
        ..Trouble::default()
    });
    world.run(from, back + HOUR, 5 * SECOND);
    assert_eq!((world.issued.len(), world.taken.len()), (1, 1));
    assert!(world.taken[0] < back + 2 * MINUTE, "{:?}", world.taken);
    assert!(world.agrees());
}

#[test]
fn wherever_hub_service_and_link_fail_one_certificate_is_issued_and_taken() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..6 {
        let mut faults = |count: usize| -> Faults {
            let mut one = || {
                let from = DUE + MINUTE.mul_f64(random.f64() * 60.0) - 5 * MINUTE;
                (from, from + MINUTE.mul_f64(random.f64() * 10.0))
            };
            (0..count).map(|_| one()).collect()
        };
        let hub_killed = faults(4).into_iter().map(|(at, _)| at).collect();
        let mut world = World::new(Trouble {
            blocked: faults(3),
            away: faults(3),
            answers_lost: faults(4),
            hub_killed,
            twice: round % 2 == 0,
        });
        world.run(DUE - INTERVAL, DUE + 4 * HOUR, SECOND / 2);
        let counts = (world.issued.len(), world.taken.len(), world.agrees());
        assert_eq!(counts, (1, 1, true), "seed {seed}, round {round}");
    }
}

#[test]
fn a_revocation_reaches_a_terminal_behind_a_blockage_while_the_service_is_away() {
    let mut world = World::new(Trouble {
        blocked: vec![(SECOND, 10 * MINUTE)],
        away: vec![(SECOND, DAY)],
        ..Trouble::default()
    });
    world.authority.issue(11, 9, world.start).unwrap();
    let serials = world.authority.revoke(11, world.start).unwrap();
    let (list, _) = revocation_list(&world.hub.join("../..")).unwrap().unwrap();
    // The hub got it from an operator, or had it already.
    replace_revocation_list(&world.hub, &list).unwrap();
    world.run(Duration::ZERO, 21 * MINUTE, SECOND);
    let revoked = Credentials::load(&world.terminal).unwrap().revoked;
    assert!(serials.iter().all(|serial| revoked.contains(serial)));
    assert!(world.issued.is_empty() && world.asked.is_empty());
}

#[test]
fn a_revoked_terminal_is_told_why_and_gets_nothing() {
    let mut world = World::new(Trouble::default());
    world.authority.revoke(NODE, world.start).unwrap();
    world.run(DUE, DUE + MINUTE, SECOND);
    assert_eq!((world.issued.len(), world.taken.len()), (0, 0));
    assert_eq!(world.refused, 1);
    let key = NodeKey::load(&world.terminal.join("node.key")).unwrap();
    let request = CertificateRequest::parse(&key.request(NODE).unwrap()).unwrap();
    let refused = world
        .authority
        .renew_by_request(&request, DAYS, world.start + DUE);
    assert!(matches!(refused, Err(PkiError::NodeRevoked(NODE))));
}
