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
        // A range from the smaller number holds in both directions.
        (3, 2, 0, 3_600_000, 100_000, 1_000),
        (3, 4, 3_600_000, 7_200_000, 50_000, 2_000),
    ];
    assert_eq!(
        told, expected,
        "registrations, hypothetical contacts and those of confidence 0 are none"
    );
}

/// Sender, receiver, start and end in s, and light time in s.
fn told(text: &str) -> Vec<(u64, u64, u64, u64, u64)> {
    let contacts = read_ion(text, 0).expect("a plan");
    let told = |c: &underpass_routing::Contact| {
        let [start, end, light] = [c.start_ms, c.end_ms, c.owlt_ms].map(|ms| ms / 1_000);
        (c.from, c.to, start, end, light)
    };
    contacts.iter().map(told).collect()
}

#[test]
fn a_contact_has_a_part_for_each_light_time_that_holds_during_it() {
    let ranges = "a range +10 +50 2 3 1\na range +50 +80 2 3 1\na range +80 +90 2 3 4\n";
    assert_eq!(
        told(&format!("a contact +0 +100 2 3 8\n{ranges}")),
        [(2, 3, 10, 80, 1), (2, 3, 80, 90, 4)]
    );
    assert_eq!(
        told(&format!(
            "a contact +20 +30 3 2 8\n{ranges}a range +25 +99 3 2 7\n"
        )),
        [(3, 2, 20, 25, 1), (3, 2, 25, 30, 7)]
    );
}

#[test]
fn a_range_from_the_larger_number_says_nothing_of_the_way_back() {
    let range = "a range +0 +9 3 2 1\n";
    assert_eq!(
        told(&format!("a contact +0 +9 3 2 8\n{range}")),
        [(3, 2, 0, 9, 1)]
    );
    let error = read_ion(&format!("{range}a contact +0 +9 2 3 8"), 0).expect_err("no range");
    assert_eq!(error.line, 2);
}

#[test]
fn contacts_and_ranges_are_changed_and_deleted() {
    let plan = "a contact +0 +9 2 3 8\na contact +0 +9 3 2 8\na contact +20 +30 2 3 8\n\
                a contact +40 +50 2 3 8\na contact +60 +70 2 3 8\n\
                a range +0 +99 2 3 1\na range +0 +99 2 3 1\n";
    assert_eq!(told(plan).len(), 5, "the same range twice is the same");
    assert_eq!(told(&[plan, plan].concat()).len(), 5, "and so is a contact");
    let changed = format!(
        "{plan}d contact +20 2 3\nc contact +40 2 3 900\nc contact +60 2 3 8 0\n\
         d contact +77 2 3\nd contact -1 2 2\nd contact 0 2 9\n\
         d range +0 2 3\na range +0 +45 2 3 2\nd range * 3 2\n"
    );
    assert_eq!(
        told(&changed),
        [(2, 3, 0, 9, 2), (3, 2, 0, 9, 2), (2, 3, 40, 45, 2)]
    );
    let contacts = read_ion(&changed, 0).expect("a plan");
    assert_eq!(contacts[2].rate_bytes_per_s, 900);
    assert_eq!(told(&format!("{plan}d contact * 2 3\n")), [(3, 2, 0, 9, 1)]);
}

#[test]
fn what_else_a_nodes_file_has_is_passed_over() {
    let text = "## begin ionadmin\n\
                e 1\nv\n1 2 ''\ns\n^ 1\n\
                a contact +0 +9 2 3 8\r\n\
                a range +0 +9 2 3 1\n\
                m production 1000000\nm consumption -1\nm horizon +0\n\
                m alarm 'mail -s full'\nl contact\ni range +0 2 3\nr 'ipnadmin x'\n\
                ## end ionadmin\n\
                ## begin ltpadmin\n\
                1 32\na span 3 16 64 1400 100000 1 'udplso 192.0.2.1:1113'\n\
                ## end ltpadmin\n\
                a contact +0 +9 3 2 8\n";
    assert_eq!(told(text), [(2, 3, 0, 9, 1), (3, 2, 0, 9, 1)]);
}

#[test]
fn what_ionadmin_takes_and_does_not_use_is_passed_over() {
    let text = "a contact 0 +9 2 3 8\n\
                a contact +0 +9 2 3 8\n\
                a range +0 +9 2 3 1 0.5\n";
    assert_eq!(told(text), [(2, 3, 0, 9, 1)]);
    let error = read_ion("a range +0 +9 2 3 1 7", 0).expect_err("no confidence");
    assert!(error.problem.contains("between 0 and 1"), "{error}");
}

#[test]
fn a_time_that_is_set_moves_what_follows() {
    let text = "a range +0 +9 1 2 0\na contact +0 +1 1 2 8\n@ +5\na contact +0 +1 1 2 8\n";
    let contacts = read_ion(text, 0).expect("a plan");
    let starts: Vec<_> = contacts.iter().map(|contact| contact.start_ms).collect();
    assert_eq!(starts, [0, 5_000]);
    let text = "a range +0 +30 1 2 0\n@ +5\na contact +0 +1 1 2 8\n@ +5\n\
                a contact +0 +1 1 2 8\n@ 0\na contact +20 +21 1 2 8\n";
    let contacts = read_ion(text, 1_000).expect("a plan");
    let starts: Vec<_> = contacts.iter().map(|contact| contact.start_ms).collect();
    assert_eq!(starts, [6_000, 11_000, 21_000], "the present again");
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
        ("a kontakt +0 +1 2 3", 1, "expected"),
        ("d contact soon 2 3", 1, "neither +SECONDS"),
        (
            "a contact +0 +9 2 3 8\na contact +5 +12 2 3 8",
            2,
            "another contact",
        ),
        (
            "a contact +0 +9 2 3 8\na contact +0 +9 2 3 9",
            2,
            "another contact",
        ),
        ("c contact +0 2 3 100", 1, "no contact of 2 to 3 begins"),
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
    // To compare each with each would take 45 thousand million comparisons.
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
