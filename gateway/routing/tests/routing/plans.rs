//! Contact plans as files.

use underpass_routing::text::{read_ion, read_json};

/// 2026-11-20 00:00:00 UTC.
const REFERENCE_MS: u64 = 1_795_132_800_000;

const PLAN: &str = "
# two nodes and a relay
a contact +0 +3600 2 3 100000
a contact +0 +3600 3 2 100000 0.5
a contact 2026/11/20-01:00:00 2026/11/20-02:00:00 3 4 50000   # later
a contact +0 +3600 2 2 100000
a contact +10 +20 2 4 1000 0
a contact -1 -1 3 3 0
a contact 0 0 2 9 0
a range +0 +7200 2 3 1
a range +0 +7200 3 4 2
a range +0 +7200 4 3 3
";

#[test]
fn contacts_have_the_ranges_that_hold_at_their_start() {
    let contacts = read_ion(PLAN, REFERENCE_MS).expect("a plan");
    let told: Vec<_> = contacts
        .iter()
        .map(|c| {
            (
                c.from,
                c.to,
                c.start_ms - REFERENCE_MS,
                c.end_ms - REFERENCE_MS,
                c.rate_bytes_per_s,
                c.owlt_ms,
            )
        })
        .collect();
    let expected = [
        (2, 3, 0, 3_600_000, 100_000, 1_000),
        // A range holds both ways.
        (3, 2, 0, 3_600_000, 100_000, 1_000),
        (3, 4, 3_600_000, 7_200_000, 50_000, 2_000),
    ];
    assert_eq!(
        told, expected,
        "registrations, hypothetical contacts and those of confidence 0 are none"
    );
}

#[test]
fn a_time_that_is_set_moves_what_follows() {
    let text = "a range +0 +9 1 2 0\na contact +0 +1 1 2 8\n@ +5\na contact +0 +1 1 2 8\n";
    let contacts = read_ion(text, 0).expect("a plan");
    let starts: Vec<_> = contacts.iter().map(|contact| contact.start_ms).collect();
    assert_eq!(starts, [0, 5_000]);
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let cases = [
        ("a contact +0 +1 2 3", 1, "all their values"),
        ("\na contact +0 +1 2 x 10", 2, "node \"x\""),
        ("a contact +9 +1 2 3 10", 1, "before it begins"),
        ("a contact +0 tomorrow 2 3 10", 1, "neither +SECONDS"),
        ("a contact +0 +1 2 3 0", 1, "must not be 0"),
        ("a contact +0 +1 2 3 10 7", 1, "between 0 and 1"),
        ("a contact +0 +1 2 3 10 1 1", 1, "too many"),
        (
            "a contact +0 +1 2 3 10",
            1,
            "no range from node 2 to node 3",
        ),
        (
            "a range +0 +9 2 3 1\na range +5 +12 2 3 2",
            2,
            "another range",
        ),
        (
            "a contact +99999999999999999999 +1 2 3 10",
            1,
            "no whole number",
        ),
        ("a contact +18446744073709551615 +1 2 3 10", 1, "too far"),
        ("d contact +0 2 3", 1, "expected"),
        ("a contact -1 -1 2 3 0", 1, "neither +SECONDS"),
        (
            "a range +5 +9 2 3 1\na range +0 +6 2 3 1",
            2,
            "another range",
        ),
        (
            "a range +5 +9 2 3 1\na range +4 +12 2 3 1",
            2,
            "another range",
        ),
    ];
    for (text, line, part) in cases {
        let error = read_ion(text, 0).expect_err(text);
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.problem.contains(part), "{text}: {error}");
    }
}

#[test]
fn a_pair_with_very_many_ranges_is_read_at_once() {
    use std::fmt::Write;

    const MANY: u64 = 300_000;
    let mut text = String::new();
    for at in 0..MANY {
        let end = at + 1;
        writeln!(
            text,
            "a contact +{at} +{end} 2 3 1000\na range +{at} +{end} 2 3 1"
        )
        .unwrap();
    }
    let before = std::time::Instant::now();
    let contacts = read_ion(&text, 0).expect("a plan");
    assert_eq!(contacts.len() as u64, MANY);
    // Each with each it would be 45 thousand million comparisons.
    assert!(before.elapsed() < std::time::Duration::from_secs(20));
}

#[test]
fn json_is_read_and_its_contradictions_are_told() {
    let contact = |end: u64, to: u64, rate: u64| {
        format!(
            r#"{{"contacts": [{{"from": 1, "to": {to}, "start_ms": 5, "end_ms": {end}, "rate_bytes_per_s": {rate}, "owlt_ms": 7}}]}}"#
        )
    };
    let plan = read_json(&contact(9, 2, 10)).expect("a plan");
    assert_eq!(
        (plan[0].to, plan[0].owlt_ms, plan[0].booked_bytes),
        (2, 7, 0)
    );
    for (text, part) in [
        (contact(5, 2, 10), "contact 1: it ends before"),
        (contact(9, 1, 10), "with itself"),
        (contact(9, 2, 0), "rate is 0"),
        (
            contact(9, 2, 10).replace("owlt_ms", "owlt"),
            "unknown field `owlt`",
        ),
        ("{".to_owned(), "EOF"),
    ] {
        let error = read_json(&text).expect_err(&text);
        assert!(error.problem.contains(part), "{error}");
    }
}
