//! The vectors of `docs/vectors/control/report-*.json` in both directions, and invalid
//! messages.

use serde_json::Value;
use underpass_plans::Direction;

use super::*;
use crate::kinds::*;
use crate::report::Body;

fn status(uptime_ms: u64) -> Report {
    let body = Body::Status(Status {
        time_ms: Some(1_795_230_000_123),
        clock_offset_ms: Some(-12),
        synchronised: true,
        node: Some(NodeReport {
            version: "0.1.0".into(),
            certificate_end_ms: Some(1_803_006_000_000),
        }),
        proof: None,
        links: vec![LinkReport {
            terminal: 10,
            path: "satellite".into(),
            direction: Direction::Return,
            state: LinkState::Blocked,
            offered_bytes: 1000,
            backlogged_bytes: 400,
            sent_bytes: 655,
            streams: 2,
            rate_bps: Some(2_000_000),
            plan_version: Some(42),
            efficiency: Some(1.5),
            measured: Some(MeasuredCapacity {
                capacity_bps: 655_000,
                reason: CapacityReason::Limit,
            }),
            figures: Some(LinkFigures {
                rtt_ms: Some(652),
                queue_ms: 40,
                loss: 0.005,
                stored_bundles: 3,
                stored_bytes: 12_000,
                classes: vec![
                    ClassFigures {
                        name: "interactive".into(),
                        streams: Some(2),
                        backlogged_bytes: 400,
                    },
                    ClassFigures {
                        name: "bulk".into(),
                        streams: None,
                        backlogged_bytes: 0,
                    },
                ],
            }),
        }],
    });
    of_run(body, uptime_ms)
}

fn of_run(body: Body, uptime_ms: u64) -> Report {
    Report {
        body,
        uptime_ms,
        incarnation: 7,
    }
}

fn vectors() -> [(&'static str, Vec<Report>); 7] {
    let position = Position {
        longitude: 8.6821,
        latitude: 50.1109,
        altitude_m: Some(112.5),
        speed_mps: Some(22.2),
        heading_deg: Some(271.0),
        accuracy_m: Some(3.0),
        gnss_time_ms: Some(1_795_230_000_000),
        node_time_ms: Some(1_795_230_000_140),
        synchronised: true,
    };
    let announcement = Announcement {
        announced_ms: 1_795_230_000_000,
        entry_ms: 1_795_230_045_000,
        duration_ms: 60_000,
        confidence: 0.9,
        obstruction: Some("Elbe tunnel".into()),
    };
    let blockage = |exit_ms| Blockage {
        terminal: 10,
        path: "satellite".into(),
        direction: Direction::Return,
        entry_ms: 1_795_230_045_210,
        source: BlockageSource::Probing,
        unheard: false,
        exit_ms,
    };
    let unheard = Blockage {
        source: BlockageSource::Plan,
        unheard: true,
        ..blockage(None)
    };
    let plan = |terminal, link| PlanAcknowledgement {
        beam: "east".into(),
        link,
        plan: 42,
        applied_ms: 1_795_230_001_017,
        terminal,
    };
    let refused = SettingsOutcome::refused(1_795_230_000_000, "there is no class \"gold\"");
    let lost = "the hub was not heard in 180 s of clear link time";
    let outcomes = [
        refused,
        SettingsOutcome::on_trial(1_795_230_000_001),
        SettingsOutcome::confirmed(1_795_230_000_001),
        SettingsOutcome::rolled_back(1_795_230_000_002, lost),
        // In the form of earlier versions.
        SettingsOutcome {
            state: None,
            ..SettingsOutcome::confirmed(1_795_230_000_003)
        },
    ];
    let bare_link = LinkReport {
        terminal: 11,
        path: "terminal-11".into(),
        direction: Direction::Forward,
        state: LinkState::Down,
        offered_bytes: 0,
        backlogged_bytes: 0,
        sent_bytes: 0,
        streams: 0,
        rate_bps: None,
        plan_version: None,
        efficiency: None,
        measured: None,
        figures: None,
    };
    let bare_status = Status {
        links: vec![bare_link],
        ..Status::default()
    };
    let bare_position = Position::at(-180.0, -90.0);
    [
        (
            include_str!("../../../../docs/vectors/control/report-status.json"),
            vec![status(5000)],
        ),
        (
            include_str!("../../../../docs/vectors/control/report-position.json"),
            vec![of_run(Body::Position(position), 5140)],
        ),
        (
            include_str!("../../../../docs/vectors/control/report-announcement.json"),
            vec![of_run(Body::Announcement(announcement), 5200)],
        ),
        (
            include_str!("../../../../docs/vectors/control/report-blockage.json"),
            vec![
                of_run(Body::Blockage(blockage(None)), 50_312),
                of_run(Body::Blockage(blockage(Some(1_795_230_106_000))), 111_001),
                of_run(Body::Blockage(unheard), 111_002),
            ],
        ),
        (
            include_str!("../../../../docs/vectors/control/report-plan.json"),
            vec![
                of_run(Body::Plan(plan(Some(10), Direction::Return)), 6017),
                of_run(Body::Plan(plan(None, Direction::Forward)), 6018),
            ],
        ),
        (
            include_str!("../../../../docs/vectors/control/report-settings.json"),
            outcomes
                .map(Body::Settings)
                .into_iter()
                .zip(6017..)
                .map(|(body, uptime_ms)| of_run(body, uptime_ms))
                .collect(),
        ),
        (
            include_str!("../../../../docs/vectors/control/report-bare.json"),
            vec![
                of_run(Body::Status(bare_status), 0),
                of_run(Body::Position(bare_position), 1),
            ],
        ),
    ]
}

#[test]
fn messages_are_what_the_vectors_show() {
    for (text, reports) in vectors() {
        let message = Message::new(reports);
        assert_eq!(Message::decode(text.as_bytes()).unwrap(), message);
        let written: Value = serde_json::from_slice(&message.encode().unwrap()).unwrap();
        let vector: Value = serde_json::from_str(text).unwrap();
        assert_eq!(written, vector);
        for report in &message.reports {
            report.body.check().unwrap();
        }
    }
}

#[test]
fn specification_shows_each_kind_as_it_is_written() {
    let document = include_str!("../../../../docs/control-protocol.md");
    for (_, reports) in &vectors()[..6] {
        let text = serde_json::to_string(&reports[0]).unwrap();
        assert!(document.contains(&text), "the document shows {text}");
    }
}

#[test]
fn what_is_no_message_is_refused() {
    let text = include_str!("../../../../docs/vectors/control/report-refused.json");
    let refused: Vec<Value> = serde_json::from_str(text).unwrap();
    assert!(refused.len() >= 8);
    for vector in refused {
        let (why, message) = (&vector["why"], vector["message"].to_string());
        assert!(Message::decode(message.as_bytes()).is_err(), "{why}");
    }
    for nonsense in [&b"\xff"[..], b"", b"{"] {
        let read = Message::decode(nonsense);
        assert!(matches!(read, Err(MessageError::Malformed(_))), "{read:?}");
    }
}

#[test]
fn later_versions_are_told_from_nonsense() {
    let later = Message::decode(br#"{"version":2,"something":{}}"#);
    assert!(matches!(later, Err(MessageError::Version(2))));
    let more = br#"{"version":1,"reports":[],"new":true}"#;
    assert!(Message::decode(more).unwrap().reports.is_empty());
}

#[test]
fn members_of_a_later_version_go_on_with_the_report() {
    let report = r#"{"kind":"plan","beam":"east","link":"return","plan":42,"applied_ms":1,"terminal":10,"uptime_ms":1,"incarnation":7,"later": {"a" : 1}}"#;
    let payload = format!(r#"{{"version":1,"reports":[{report}]}}"#);
    assert_eq!(
        Message::decode(payload.as_bytes()).unwrap().reports.len(),
        1
    );
    assert_eq!(Message::texts(payload.as_bytes()).unwrap(), [report]);
}

#[test]
fn reasons_of_a_later_version_go_on_with_the_report() {
    let text = include_str!("../../../../docs/vectors/control/report-status.json");
    let later = text.replace("\"limit\"", "\"oracle\"");
    let Body::Status(read) = &Message::decode(later.as_bytes()).unwrap().reports[0].body else {
        panic!("a status");
    };
    let measured = read.links[0].measured.unwrap();
    assert_eq!(measured.reason, CapacityReason::Other);
    assert_eq!(measured.capacity_bps, 655_000);
    assert!(Message::texts(later.as_bytes()).unwrap()[0].contains("oracle"));
}

#[test]
fn a_capacity_is_a_whole_number_of_bits_and_has_a_reason() {
    let text = include_str!("../../../../docs/vectors/control/report-status.json");
    for nonsense in ["-1", "0.5", "1e999", "null", "\"much\"", "NaN"] {
        let wrong = text.replace("655000", nonsense);
        assert!(Message::decode(wrong.as_bytes()).is_err(), "{nonsense}");
    }
    let bare = text.replace(", \"reason\": \"limit\"", "");
    assert!(Message::decode(bare.as_bytes()).is_err());
}

#[test]
fn no_message_exceeds_its_bounds() {
    let many = Message::new(vec![status(0); MAX_REPORTS + 1]);
    assert!(matches!(many.encode(), Err(MessageError::Many(_))));
    let large = vec![b' '; MAX_MESSAGE_BYTES + 1];
    assert!(matches!(
        Message::decode(&large),
        Err(MessageError::Large(_))
    ));
    let reports: Vec<_> =
        std::iter::repeat_n(serde_json::to_value(status(0)).unwrap(), 65).collect();
    let text = serde_json::json!({ "version": 1, "reports": reports }).to_string();
    assert!(matches!(
        Message::decode(text.as_bytes()),
        Err(MessageError::Many(65))
    ));
}
