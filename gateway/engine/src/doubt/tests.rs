//! The rules of doubt, without an engine.

use super::*;

const MS: Duration = Duration::from_millis(1);

#[test]
fn each_false_alarm_makes_the_next_one_later_for_a_while() {
    let (mut doubt, mut now) = (Doubt::default(), Instant::now());
    for patience in [100_u32, 200, 400, 400] {
        assert_eq!(doubt.patience(now), patience * MS);
        doubt.was_false(now);
        now += 1_000 * MS;
    }
    now += FORGOTTEN;
    assert_eq!(doubt.patience(now), PATIENCE);
    doubt.was_false(now);
    assert_eq!(doubt.patience(now), 2 * PATIENCE);
}

#[test]
fn each_word_in_vain_makes_the_next_one_count_later() {
    let (mut doubt, mut now) = (Doubt::default(), Instant::now());
    let in_vain = |doubt: &mut Doubt, now: Instant, by_word: bool| {
        doubt.begin(now, by_word);
        doubt.was_false(now);
    };
    for seconds in [1, 2, 4, 8, 16, 32, 64, 64] {
        // This end's own doubt changes nothing.
        in_vain(&mut doubt, now, false);
        assert!(doubt.heeds_word(now));
        in_vain(&mut doubt, now, true);
        now += Duration::from_secs(seconds);
        assert!(!doubt.heeds_word(now - MS));
    }
    in_vain(&mut doubt, now, true);
    doubt.begin(now, false);
    doubt.was_right();
    assert!(doubt.heeds_word(now));
    for _ in 0..2 {
        in_vain(&mut doubt, now, true);
        assert!(!doubt.heeds_word(now + UNHEEDED - MS));
        assert!(doubt.heeds_word(now + UNHEEDED));
        now += WORDS_FORGOTTEN;
    }
}

#[test]
fn a_word_that_was_right_makes_the_next_doubt_no_later() {
    let (mut doubt, now) = (Doubt::default(), Instant::now());
    for _ in 0..3 {
        doubt.begin(now, true);
        doubt.answers_are_late();
        doubt.was_false(now);
        assert!(!doubt.is_on() && doubt.heeds_word(now) && doubt.unheard.is_none());
        assert_eq!(doubt.patience(now), PATIENCE);
    }
    let (offered, beacon) = (now, now);
    doubt.begin(now, false);
    doubt.confirm(Unheard { offered, beacon });
    doubt.was_false(now);
    assert_eq!(doubt.patience(now), PATIENCE);
    doubt.begin(now, false);
    doubt.answers_are_late();
    doubt.was_false(now);
    assert_eq!(doubt.patience(now), 2 * PATIENCE);
}

#[test]
fn only_what_a_deaf_peer_would_not_give_tells_that_it_hears() {
    let begin = Instant::now();
    for (sign, last_ms) in [
        (Sign::Beacon, Some(650)),
        (Sign::Resting, Some(650)),
        (Sign::Session, Some(2_650)),
        (Sign::Deaf, None),
    ] {
        let mut doubt = Doubt::default();
        doubt.begin(begin, true);
        let (offered, beacon) = (begin, begin + 650 * MS);
        doubt.unheard = Some(Unheard { offered, beacon });
        doubt.answered(begin);
        let unheard = (0..10_000_u32).take_while(|ms| {
            doubt.heard(begin + *ms * MS, sign);
            doubt.unheard.is_some()
        });
        let last = unheard.last();
        assert_eq!(last.filter(|ms| *ms < 9_999), last_ms, "{sign:?}");
        doubt.unheard = Some(Unheard { offered, beacon });
        doubt.answered(begin + MS);
        assert!(doubt.unheard.is_none());
    }
}

#[test]
fn the_peer_is_told_of_one_silence_a_few_times() {
    let (mut doubt, sign) = (Doubt::default(), Instant::now());
    let told = (100..2_000_u32).filter(|ms| doubt.tells(sign, *ms * MS));
    assert_eq!(told.collect::<Vec<_>>(), [100, 200, 400, 800, 1_600]);
    // The next silence is a new one.
    assert!(doubt.tells(sign + 200 * MS, 100 * MS));
}
