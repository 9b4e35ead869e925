use super::*;

fn settings(version: u64) -> Arc<Settings> {
    Arc::new(Settings::new(version, 10, Vec::new(), Vec::new()))
}

fn concerns() -> Vec<Concern> {
    let listener = Concern::Listener {
        name: "beam".to_owned(),
        paths: BTreeSet::from(["terminal-10".to_owned()]),
    };
    vec![Concern::Path("lte".to_owned()), listener]
}

fn begin(kept: &KeptSettings, version: u64) {
    kept.begin_trial(settings(version), concerns())
        .expect("written");
}

fn restarted(folder: &Path) -> KeptSettings {
    let (kept, error) = KeptSettings::load(folder);
    assert!(error.is_none(), "{error:?}");
    kept.count_start().expect("written");
    kept
}

fn version_in_force(kept: &KeptSettings) -> Option<u64> {
    kept.in_force().map(|settings| settings.settings)
}

#[test]
fn what_is_in_force_is_there_for_the_next_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let (kept, error) = KeptSettings::load(folder.path());
    assert!(error.is_none() && kept.in_force().is_none());
    assert_eq!(kept.verdict(1), None);
    kept.keep(settings(5)).expect("written");
    kept.refuse(8, "no such class");
    assert_eq!(kept.verdict(5), Some(Verdict::Confirmed));
    let refused = Verdict::Refused("no such class".to_owned());
    assert_eq!(kept.verdict(8), Some(refused));
    for old in [4, 7] {
        assert_eq!(kept.verdict(old), Some(Verdict::Old));
    }
    assert_eq!(kept.verdict(9), None);
    let (next, _) = KeptSettings::load(folder.path());
    assert_eq!(next.in_force(), Some(settings(5)));
    // Refused settings may fit by now.
    assert_eq!(next.verdict(8), None);
}

#[test]
fn nonsense_in_a_file_sets_nothing() {
    for file in [CONFIRMED_FILE, TRIAL_FILE] {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(file), "{").expect("written");
        let (kept, error) = KeptSettings::load(folder.path());
        assert!(error.is_some() && kept.in_force().is_none());
    }
}

#[test]
fn nonsense_in_the_trials_file_leaves_the_confirmed_settings() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = restarted(folder.path());
    kept.keep(settings(5)).expect("written");
    let other = r#"{"trial":{"settings":{"version":9},"paths":[],"starts":0}}"#;
    fs::write(folder.path().join(TRIAL_FILE), other).expect("written");
    let (next, error) = KeptSettings::load(folder.path());
    assert!(error.is_some());
    assert_eq!(version_in_force(&next), Some(5));
}

#[test]
fn what_was_taken_back_stays_so_over_restarts() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = restarted(folder.path());
    kept.keep(settings(5)).expect("written");
    begin(&kept, 6);
    assert_eq!(version_in_force(&kept), Some(6));
    assert_eq!(kept.verdict(6), Some(Verdict::OnTrial));
    kept.roll_back("not heard");
    for kept in [kept, restarted(folder.path())] {
        assert_eq!(version_in_force(&kept), Some(5));
        assert_eq!(kept.rolled_back(), Some((6, "not heard".to_owned())));
        let back = Verdict::RolledBack("not heard".to_owned());
        assert_eq!(kept.verdict(6), Some(back));
        assert_eq!(kept.verdict(7), None);
    }
}

#[test]
fn a_change_that_ends_the_node_again_and_again_is_taken_back() {
    let folder = tempfile::tempdir().expect("a folder");
    begin(&restarted(folder.path()), 6);
    for _ in 1..MOST_STARTS {
        let kept = restarted(folder.path());
        assert_eq!(version_in_force(&kept), Some(6));
        assert_eq!(kept.trial().expect("on trial").concerns, concerns());
    }
    for _ in 0..2 {
        let kept = restarted(folder.path());
        assert_eq!(version_in_force(&kept), None);
        let (version, reason) = kept.rolled_back().expect("it was taken back");
        assert!(version == 6 && reason.contains("3 times"), "{reason}");
    }
}

#[test]
fn of_two_changes_in_a_row_the_confirmed_settings_before_both_come_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = restarted(folder.path());
    kept.keep(settings(5)).expect("written");
    begin(&kept, 6);
    let before = kept.trial();
    begin(&kept, 7);
    // The second turns out not to fit: the trial of the first continues.
    kept.abandon_trial(before);
    kept.refuse(7, "it does not fit");
    assert_eq!(kept.verdict(6), Some(Verdict::OnTrial));
    let refused = Verdict::Refused("it does not fit".to_owned());
    assert_eq!(kept.verdict(7), Some(refused));
    begin(&kept, 8);
    kept.roll_back("not heard");
    assert_eq!(version_in_force(&kept), Some(5));
    assert_eq!(kept.verdict(6), Some(Verdict::Old));
    begin(&kept, 9);
    kept.confirm().expect("written");
    assert_eq!(kept.rolled_back(), None);
    assert_eq!(version_in_force(&restarted(folder.path())), Some(9));
}

#[test]
fn a_trial_that_was_confirmed_when_power_was_lost_is_no_trial() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = restarted(folder.path());
    begin(&kept, 6);
    let on_trial = fs::read(folder.path().join(TRIAL_FILE)).expect("there");
    kept.confirm().expect("written");
    // The first file was replaced, and the second not yet.
    fs::write(folder.path().join(TRIAL_FILE), on_trial).expect("written");
    let next = restarted(folder.path());
    assert_eq!(next.trial(), None);
    assert_eq!(next.verdict(6), Some(Verdict::Confirmed));
}

#[test]
fn without_a_place_for_it_no_trial_begins() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = restarted(folder.path());
    let path = folder.path().to_owned();
    folder.close().expect("removed");
    assert!(kept.begin_trial(settings(6), concerns()).is_err());
    assert!(kept.in_force().is_none() && !path.exists());
}
