//! The vectors that this crate shares with the control service's tests.

use serde_json::{Value, json};
use underpass_plans::{Plan, Schedule};

fn vectors(text: &str) -> Vec<Value> {
    let document: Value = serde_json::from_str(text).unwrap();
    document["plans"].as_array().unwrap().clone()
}

/// What a reader finds in a plan, in the form of the vectors: a line for each terminal.
fn read(plan: &Plan) -> Value {
    let mut lines = Vec::new();
    for line in plan.lines() {
        let segments = line.segments.iter().map(|segment| {
            json!([
                segment.start_ms,
                segment.end_ms,
                segment.rate_bps,
                segment.state.name()
            ])
        });
        let segments: Vec<Value> = segments.collect();
        for terminal in &line.terminals {
            lines.push(json!({
                "terminal": terminal,
                "guaranteed_bps": line.guaranteed_bps,
                "segments": segments,
            }));
        }
    }
    let steps = plan.capacity().iter();
    let capacity: Vec<Value> = steps
        .map(|step| json!([step.from_ms, step.rate_bps]))
        .collect();
    json!({
        "beam": plan.beam(),
        "link": plan.link().name(),
        "plan": plan.version(),
        "issued_ms": plan.issued_ms(),
        "start_ms": plan.start_ms(),
        "end_ms": plan.end_ms(),
        "capacity": capacity,
        "lines": lines,
    })
}

#[test]
fn valid_plans_are_read_and_say_what_is_asked() {
    let vectors = vectors(include_str!(
        "../../../docs/vectors/control/plan-valid.json"
    ));
    assert!(!vectors.is_empty());
    for vector in vectors {
        let name = vector["name"].as_str().unwrap();
        let plan = Plan::decode(vector["text"].as_str().unwrap().as_bytes()).expect(name);
        assert_eq!(read(&plan), vector["read"], "{name}");
        let again = Plan::decode(&plan.encode()).expect(name);
        assert_eq!(again, plan, "{name}");
        for asked in vector["asked"].as_array().unwrap() {
            let at_ms = asked["at_ms"].as_u64().unwrap();
            let terminal = asked["terminal"].as_u64().unwrap();
            let mut schedule = Schedule::default();
            schedule.take(plan.clone().into(), at_ms).expect(name);
            let segment = schedule.segment(terminal, at_ms);
            let rate_bps = segment.map(|segment| segment.rate_bps);
            let state = segment.map(|segment| segment.state.name());
            assert_eq!(json!(rate_bps), asked["rate_bps"], "{name} at {at_ms}");
            assert_eq!(json!(state), asked["state"], "{name} at {at_ms}");
        }
    }
}

#[test]
fn invalid_plans_are_refused_for_their_reason() {
    let vectors = vectors(include_str!(
        "../../../docs/vectors/control/plan-invalid.json"
    ));
    assert!(!vectors.is_empty());
    for vector in vectors {
        let name = vector["name"].as_str().unwrap();
        let error = Plan::decode(vector["text"].as_str().unwrap().as_bytes()).expect_err(name);
        let (said, why) = (error.to_string(), vector["why"].as_str().unwrap());
        let about = said.to_lowercase().contains(&why.to_lowercase());
        assert!(about || why == "JSON", "{name}: {said}");
    }
}
