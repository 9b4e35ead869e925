//! Trials in virtual time, alone and in a node that restarts, beside a hub that lies.

use std::sync::Arc;

use super::*;
use crate::provider::{KeptSettings, Settings, Verdict};

const LIMIT: Duration = Duration::from_secs(180);
const STEP: Duration = Duration::from_secs(1);

fn path(name: &str, contact: Contact) -> PathContact {
    PathContact {
        name: name.to_owned(),
        contact,
    }
}

/// Concerns for these paths; without any, for no path in particular.
fn named(names: &[&str]) -> Vec<Concern> {
    let paths = names.iter().map(|name| Concern::Path((*name).to_owned()));
    match names.is_empty() {
        true => vec![Concern::Any],
        false => paths.collect(),
    }
}

/// Checks the paths, as `at` gives them, once a second. Returns the judgement, and after how many
/// seconds it came.
fn run(
    trial: &mut Trial,
    begun: Instant,
    seconds: u64,
    at: impl Fn(u64, Instant) -> Vec<PathContact>,
) -> (Judgement, u64) {
    for second in 1..=seconds {
        let now = begun + STEP * u32::try_from(second).expect("small");
        let judged = trial.look(now, &at(second, now));
        if judged != Judgement::Open {
            return (judged, second);
        }
    }
    (Judgement::Open, seconds)
}

fn trial(begun: Instant, changed: &[&str], before: &[PathContact]) -> Trial {
    Trial::new(begun, LIMIT, named(changed), before.to_vec())
}

fn lost(judged: &Judgement) -> bool {
    matches!(judged, Judgement::Lost(_))
}

#[test]
fn a_hub_that_is_heard_confirms_and_not_by_what_it_said_before() {
    let begun = Instant::now();
    let mut trial = trial(begun, &["lte"], &[path("lte", Contact::Up(Some(begun)))]);
    let (judged, after) = run(&mut trial, begun, 60, |second, now| {
        // For 20 seconds its last sign dates from before the change.
        let heard = if second < 20 { begun + STEP } else { now };
        vec![path("lte", Contact::Up(Some(heard)))]
    });
    assert_eq!((judged, after), (Judgement::Confirmed, 20));
}

#[test]
fn contact_that_is_lost_by_the_changed_path_counts_though_another_is_up() {
    let begun = Instant::now();
    let before = ["lte", "satellite"].map(|name| path(name, Contact::Up(Some(begun))));
    let mut trial = trial(begun, &["lte"], &before);
    let (judged, after) = run(&mut trial, begun, 1_000, |_, now| {
        vec![
            path("lte", Contact::Silent),
            path("satellite", Contact::Up(Some(now))),
        ]
    });
    assert_eq!(after, LIMIT.as_secs());
    let Judgement::Lost(reason) = judged else {
        panic!("{judged:?}");
    };
    assert!(
        reason.contains("\"lte\"") && reason.contains("180 s"),
        "{reason}"
    );
}

#[test]
fn every_changed_path_must_be_heard() {
    let begun = Instant::now();
    let mut trial = trial(begun, &["lte", "satellite"], &[]);
    let (judged, _) = run(&mut trial, begun, 1_000, |_, now| {
        vec![
            path("lte", Contact::Up(Some(now))),
            path("satellite", Contact::Up(Some(begun))),
        ]
    });
    let Judgement::Lost(reason) = judged else {
        panic!("{judged:?}");
    };
    assert!(reason.contains("satellite"), "{reason}");
}

#[test]
fn a_blockage_that_is_known_does_not_count_however_long_it_lasts() {
    let begun = Instant::now();
    let mut trial = trial(begun, &["satellite"], &[]);
    let (judged, after) = run(&mut trial, begun, 20_000, |second, now| {
        let contact = match second {
            100..10_000 => Contact::Blocked,
            10_010.. => Contact::Up(Some(now)),
            _ => Contact::Silent,
        };
        vec![path("satellite", contact)]
    });
    assert_eq!((judged, after), (Judgement::Confirmed, 10_010));
}

#[test]
fn a_silence_of_before_is_excused_for_an_hour_and_not_for_ever() {
    let begun = Instant::now();
    let silent = || vec![path("satellite", Contact::Silent)];
    let mut excused = trial(begun, &["satellite"], &silent());
    let (judged, after) = run(&mut excused, begun, 20_000, |_, _| silent());
    assert!(lost(&judged));
    assert_eq!(after, EXCUSED.as_secs() + LIMIT.as_secs());
    // Once it is back, a later silence began after the change.
    let mut back = trial(begun, &["satellite"], &silent());
    let (judged, after) = run(&mut back, begun, 20_000, |second, _| match second {
        50 => vec![path("satellite", Contact::Up(None))],
        _ => silent(),
    });
    assert!(lost(&judged));
    assert!(
        (LIMIT.as_secs()..=LIMIT.as_secs() + 50).contains(&after),
        "{after}"
    );
}

#[test]
fn a_change_of_no_path_is_confirmed_by_any_and_lost_with_all() {
    let begun = Instant::now();
    let mut heard = trial(begun, &[], &[]);
    let (judged, _) = run(&mut heard, begun, 60, |_, now| {
        vec![
            path("lte", Contact::Up(Some(now))),
            path("satellite", Contact::Silent),
        ]
    });
    assert_eq!(judged, Judgement::Confirmed);
    let mut silent = trial(begun, &[], &[]);
    let (judged, _) = run(&mut silent, begun, 1_000, |_, _| {
        vec![path("lte", Contact::Silent), path("spare", Contact::Idle)]
    });
    assert!(lost(&judged));
    // The satellite will be back, whatever happens to the other path.
    let mut in_tunnel = trial(begun, &[], &[]);
    let (judged, _) = run(&mut in_tunnel, begun, 1_000, |_, _| {
        vec![
            path("lte", Contact::Silent),
            path("satellite", Contact::Blocked),
        ]
    });
    assert_eq!(judged, Judgement::Open);
}

#[test]
fn paths_that_are_not_to_be_up_or_are_gone_hold_nothing_up() {
    let begun = Instant::now();
    let mut trial = trial(begun, &["lte", "gone"], &[]);
    let (judged, _) = run(&mut trial, begun, 10, |_, _| {
        vec![path("lte", Contact::Idle)]
    });
    assert_eq!(judged, Judgement::Confirmed);
}

#[test]
fn of_a_listeners_terminals_half_are_enough_and_fewer_are_not() {
    let begun = Instant::now();
    let names = ["terminal-10", "terminal-11", "terminal-12"];
    let listener = Concern::Listener {
        name: "beam".to_owned(),
        paths: names.map(str::to_owned).into(),
    };
    let before = names.map(|name| path(name, Contact::Up(Some(begun))));
    let on_trial = || Trial::new(begun, LIMIT, vec![listener.clone()], before.to_vec());
    // Two paths come back, one after the other; the third is in a road tunnel.
    let (judged, after) = run(&mut on_trial(), begun, 1_000, |second, now| {
        let first = if second < 20 {
            Contact::Silent
        } else {
            Contact::Up(Some(now))
        };
        let second = if second < 40 {
            Contact::Silent
        } else {
            Contact::Up(Some(now))
        };
        vec![
            path(names[0], first),
            path(names[1], second),
            path(names[2], Contact::Silent),
        ]
    });
    assert_eq!((judged, after), (Judgement::Confirmed, 40));
    let (judged, after) = run(&mut on_trial(), begun, 1_000, |_, now| {
        vec![
            path(names[0], Contact::Up(Some(now))),
            path(names[1], Contact::Silent),
            path(names[2], Contact::Silent),
            // This path belongs to another listener.
            path("terminal-10-lte", Contact::Up(Some(now))),
        ]
    });
    assert_eq!(after, LIMIT.as_secs());
    let Judgement::Lost(reason) = judged else {
        panic!("{judged:?}");
    };
    assert!(reason.contains("\"beam\", only 1 of 2"), "{reason}");
}

#[test]
fn while_the_node_stands_still_it_misses_nobody() {
    let begun = Instant::now();
    let mut trial = trial(begun, &["lte"], &[]);
    let silent = [path("lte", Contact::Silent)];
    assert_eq!(trial.look(begun + LIMIT * 20, &silent), Judgement::Open);
}

/// The surroundings of a node: settings of an even version break its path.
struct World {
    folder: tempfile::TempDir,
    kept: KeptSettings,
    trial: Option<Trial>,
    now: Instant,
    told: Vec<(u64, Verdict)>,
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let (kept, _) = KeptSettings::load(folder.path());
        World {
            folder,
            kept,
            trial: None,
            now: Instant::now(),
            told: Vec::new(),
        }
    }

    fn in_force(&self) -> u64 {
        self.kept.in_force().map_or(0, |known| known.settings)
    }

    fn paths(&self, blocked: bool) -> Vec<PathContact> {
        let contact = match (blocked, self.in_force() % 2) {
            (true, _) => Contact::Blocked,
            (false, 0) if self.in_force() > 0 => Contact::Silent,
            (false, _) => Contact::Up(Some(self.now)),
        };
        vec![path("satellite", contact)]
    }

    fn take(&mut self, version: u64, blocked: bool) {
        if let Some(known) = self.kept.verdict(version) {
            self.told.push((version, known));
            return;
        }
        let before = match &self.trial {
            Some(trial) => trial.before().to_vec(),
            None => self.paths(blocked),
        };
        let settings = Arc::new(Settings::new(version, 10, Vec::new(), Vec::new()));
        let begun = self.kept.begin_trial(settings, named(&["satellite"]));
        begun.expect("written");
        self.trial = Some(trial(self.now, &["satellite"], &before));
    }

    fn second(&mut self, blocked: bool) {
        self.now += STEP;
        let paths = self.paths(blocked);
        let Some(trial) = &mut self.trial else {
            return;
        };
        match trial.look(self.now, &paths) {
            Judgement::Open => return,
            Judgement::Confirmed => self.kept.confirm().expect("written"),
            Judgement::Lost(reason) => self.kept.roll_back(&reason),
        }
        self.trial = None;
    }

    /// The node is killed and starts again.
    fn kill(&mut self) {
        let (kept, error) = KeptSettings::load(self.folder.path());
        assert!(error.is_none(), "{error:?}");
        kept.count_start().expect("written");
        let on_trial = kept.trial();
        self.kept = kept;
        self.trial =
            on_trial.map(|on_trial| Trial::new(self.now, LIMIT, on_trial.concerns, Vec::new()));
    }
}

#[test]
fn a_node_that_is_killed_in_the_trial_takes_the_former_settings_back_all_the_same() {
    let mut world = World::new();
    world.take(1, false);
    (0..20).for_each(|_| world.second(false));
    assert_eq!(world.kept.verdict(1), Some(Verdict::Confirmed));
    world.take(2, false);
    (0..100).for_each(|_| world.second(false));
    world.kill();
    assert_eq!(world.in_force(), 2, "the trial goes on");
    (0..LIMIT.as_secs()).for_each(|_| world.second(false));
    assert_eq!(world.in_force(), 1);
    world.kill();
    assert_eq!(world.in_force(), 1);
}

#[test]
fn a_hub_that_says_old_things_again_changes_nothing() {
    let mut world = World::new();
    for version in [3, 4] {
        world.take(version, false);
        (0..200).for_each(|_| world.second(false));
    }
    assert_eq!(world.in_force(), 3);
    for _ in 0..3 {
        for version in [1, 2, 3, 4] {
            world.take(version, false);
            assert!(world.trial.is_none(), "{version} is not tried again");
        }
        world.kill();
    }
    assert_eq!(world.in_force(), 3);
    let back = world
        .told
        .iter()
        .filter(|(version, verdict)| *version == 4 && matches!(verdict, Verdict::RolledBack(_)));
    assert_eq!(back.count(), 3, "it is told so each time");
}

#[test]
fn a_hub_that_never_stops_changing_has_the_confirmed_settings_come_back() {
    let mut world = World::new();
    world.take(1, false);
    (0..20).for_each(|_| world.second(false));
    // Each change comes before the one before it is judged.
    for version in (2..40).step_by(2) {
        world.take(version, false);
        (0..10).for_each(|_| world.second(false));
        assert_eq!(world.kept.confirmed().map(|known| known.settings), Some(1));
    }
    (0..LIMIT.as_secs()).for_each(|_| world.second(false));
    assert_eq!(world.in_force(), 1);
}

/// Thousands of seconds of changes, tunnels and restarts, by seeds.
#[test]
fn whatever_happens_a_change_that_breaks_the_path_does_not_stay() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut world = World::new();
        let (mut version, mut tunnel) = (0, 0_u32);
        let mut good = 0;
        for _ in 0..400 {
            match random.u32(0..40) {
                0 => {
                    version += 1 + random.u64(0..2);
                    world.take(version, tunnel > 0);
                }
                1 => world.kill(),
                2 => tunnel = random.u32(1..300),
                3 => world.take(random.u64(1..version + 2).min(version.max(1)), tunnel > 0),
                _ => {}
            }
            version = version.max(world.in_force());
            tunnel = tunnel.saturating_sub(5);
            (0..5).for_each(|_| world.second(tunnel > 0));
            let confirmed = world.kept.confirmed().map_or(0, |known| known.settings);
            let works = confirmed == 0 || confirmed % 2 == 1;
            assert!(works, "seed {seed}: one that breaks is confirmed");
            assert!(confirmed >= good, "seed {seed}: {good} is lost");
            good = confirmed;
        }
        (0..2 * LIMIT.as_secs()).for_each(|_| world.second(false));
        assert!(world.trial.is_none(), "seed {seed}");
        assert!(
            world.in_force() == 0 || world.in_force() % 2 == 1,
            "seed {seed}"
        );
        assert!(world.in_force() >= good, "seed {seed}");
    }
}
