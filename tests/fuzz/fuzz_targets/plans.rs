//! Plans from the control service, and a terminal's part of one from its hub.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use underpass_plans::{Message, Plan, Schedule};

fuzz_target!(|data: &[u8]| {
    if let Ok(message) = Message::decode(data) {
        let again = Message::decode(&message.encode()).expect("its own bytes");
        assert_eq!(again, message);
    }
    let Ok(plan) = Plan::decode(data) else {
        return;
    };
    assert_eq!(Plan::decode(&plan.encode()).expect("its own bytes"), plan);
    let plan = Arc::new(plan);
    let mut schedule = Schedule::default();
    schedule
        .take(plan.clone(), plan.start_ms())
        .expect("there is none yet");
    for terminal in plan.terminals() {
        assert!(plan.part(terminal).is_some());
        assert!(schedule.segment(terminal, plan.start_ms()).is_some());
        let _ = schedule.blockages(terminal);
    }
    // Each change is later than the one before, and the last is the end.
    let mut at_ms = plan.start_ms();
    while let Some(change) = schedule.next_change(at_ms) {
        assert!(at_ms < change && change <= plan.end_ms());
        at_ms = change;
    }
    assert_eq!(at_ms, plan.end_ms());
});
