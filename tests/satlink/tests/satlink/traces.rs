//! What a trace file may say, and how a wrong one is answered.

use std::fs;
use std::path::{Path, PathBuf};

use satlink::beam::{Beam, CapacityProfile, Direction, LinkProfile, TerminalProfile};
use satlink::control::{Request, execute};
use satlink::trace::TraceConfig;

fn load(text: &str) -> Result<satlink::beam::Trace, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.json");
    fs::write(&path, text).unwrap();
    let config = TraceConfig::load(&path).map_err(|error| error.to_string())?;
    config.trace().map_err(|error| error.to_string())
}

fn with(rest: &str) -> String {
    format!(r#"{{"name": "n", "source": "made up", "duration_s": 10{rest}}}"#)
}

#[test]
fn steps_are_taken_with_all_they_say() {
    let loss = r#"{"model": "independent", "probability": 0.01}"#;
    let trace = load(&with(&format!(
        r#", "forward": [{{"at_s": 0, "rate_bps": 1000}}, {{"at_s": 2.5, "delay_ms": 7, "loss": {loss}}}],
            "blockages": [{{"start_s": 1, "duration_s": 0.5}}]"#
    )))
    .unwrap();
    assert_eq!(trace.forward[0].rate_bps, Some(1000));
    assert_eq!(trace.forward[1].at, 2_500_000_000);
    assert_eq!(trace.forward[1].delay_ms, Some(7.0));
    assert!(trace.ret.is_empty());
    assert_eq!(trace.blockages[0].duration, 500_000_000);
}

#[test]
fn wrong_traces_say_where_and_what() {
    let step = |text: &str| with(&format!(r#", "return": [{{"at_s": 1}}, {text}]"#));
    for (text, wanted) in [
        (step(r#"{"at_s": 1}"#), "return[1]: at_s: 1 is not after"),
        (step(r#"{"at_s": -1}"#), "return[1]: at_s"),
        (step(r#"{"at_s": 11}"#), "behind the trace's duration_s"),
        (
            step(r#"{"at_s": 2, "delay_ms": -3}"#),
            "return[1]: delay_ms",
        ),
        (step(r#"{"at_s": 2, "delay_ms": 1e9}"#), "delay_ms"),
        (step(r#"{"at_s": 2, "rate_bps": -5}"#), "-5"),
        (step(r#"{"at_s": 2, "colour": 1}"#), "colour"),
        (
            step(r#"{"at_s": 2, "loss": {"model": "independent", "probability": 2}}"#),
            "loss.probability",
        ),
        (
            with(r#", "blockages": [{"start_s": 1, "duration_s": -1}]"#),
            "blockages[0]: duration_s",
        ),
        (with("").replace("10", "1e400"), "number"),
        (with("").replace("made up", " "), "source"),
        ("[1, 2".into(), "line 1"),
        ("\u{0}".into(), "line 1"),
        (String::new(), "EOF"),
    ] {
        let error = load(&text).unwrap_err();
        assert!(error.contains(wanted), "{error:?} does not say {wanted:?}");
    }
}

#[test]
fn a_trace_of_too_many_steps_or_bytes_is_refused() {
    let steps: Vec<String> = (0..100_001)
        .map(|place| format!(r#"{{"at_s": {}}}"#, f64::from(place) / 100_000.0))
        .collect();
    let text = with(&format!(r#", "forward": [{}]"#, steps.join(",")));
    assert!(load(&text).unwrap_err().contains("forward: more than"));
    let endless = with("").replace("made up", &"x".repeat(17 << 20));
    assert!(load(&endless).unwrap_err().contains("longer than"));
}

#[test]
fn a_missing_file_is_named() {
    let error = TraceConfig::load(Path::new("/nowhere/fade.json")).unwrap_err();
    assert!(error.to_string().contains("/nowhere/fade.json"));
}

#[test]
fn control_sets_a_trace_and_a_refused_one_changes_nothing() {
    let terminal = TerminalProfile {
        name: "t1".into(),
        forward: LinkProfile::default(),
        ret: LinkProfile::default(),
        blockages: Vec::new(),
    };
    let mut beam = Beam::new(0, 0, [CapacityProfile::default(); 2], vec![terminal]).unwrap();
    let ask = |beam: &mut Beam, trace: &str| {
        let line = format!(r#"{{"cmd": "trace", "terminal": "t1", "trace": {trace}}}"#);
        let request: Request = serde_json::from_str(&line).map_err(|error| error.to_string())?;
        execute(beam, 0, request)
    };
    let blocked = r#", "blockages": [{"start_s": 0, "duration_s": 1}]"#;
    let step = r#", "forward": [{"at_s": 0, "rate_bps": 4000}]"#;
    ask(&mut beam, &with(&format!("{step}{blocked}"))).unwrap();
    assert_eq!(beam.own_rate(0, Direction::Forward), Some(4000));
    assert!(beam.is_blocked(0, 0));
    ask(&mut beam, &with(r#", "forward": [{"at_s": 20}]"#)).unwrap_err();
    assert_eq!(beam.own_rate(0, Direction::Forward), Some(4000));
    ask(&mut beam, "null").unwrap();
    assert_eq!(beam.own_rate(0, Direction::Forward), None);
    assert!(!beam.is_blocked(0, 0));
}

fn made(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../traces/files")
        .join(name)
}

#[test]
fn made_traces_are_accepted() {
    let files = fs::read_dir(made("")).unwrap();
    let mut accepted = 0;
    for file in files {
        let config = TraceConfig::load(&file.unwrap().path()).unwrap();
        config.trace().unwrap();
        accepted += 1;
    }
    assert!(accepted >= 3, "{accepted}");
}

#[test]
fn a_link_in_full_use_carries_its_trace_to_the_packet() {
    const MS: u64 = 1_000_000;
    const END_S: u64 = 31;
    let config = TraceConfig::load(&made("leo.json")).unwrap();
    let mut profile = LinkProfile {
        rate_bps: Some(70_000_000),
        ..LinkProfile::default()
    };
    profile.queue.limit_ms = Some(100.0);
    let terminal = TerminalProfile {
        name: "t1".into(),
        forward: profile,
        ret: LinkProfile::default(),
        blockages: Vec::new(),
    };
    let mut beam = Beam::new(0, 0, [CapacityProfile::default(); 2], vec![terminal]).unwrap();
    beam.set_trace(0, 0, config.trace().unwrap());
    // 70 Mbit/s, so that something always waits.
    for tick in 0..END_S * 1000 {
        for _ in 0..6 {
            beam.enqueue(tick * MS, Direction::Forward, 0, vec![0; 1500]);
        }
        while beam.poll(tick * MS).is_some() {}
    }
    let sent = beam.statistics(END_S * 1000 * MS, 0, Direction::Forward);
    let steps = &config.forward;
    let mut bits = 0.0;
    for (place, step) in steps.iter().enumerate() {
        let end_s = steps.get(place + 1).map_or(f64::MAX, |next| next.at_s);
        let span_s = end_s.min(END_S as f64) - step.at_s;
        bits += span_s.max(0.0) * step.rate_bps.unwrap() as f64;
    }
    // At a change of rate a packet ends as it began: one packet each, and one at the end.
    let off = (sent.packets_sent as f64 - bits / 12_000.0).abs();
    assert!(off <= 5.0, "{off} of {} packets", sent.packets_sent);
    let queue = beam.queue_series(END_S * 1000 * MS, 0, Direction::Forward);
    let empty: u32 = queue
        .runs
        .iter()
        .filter(|run| run.0 == 0)
        .map(|run| run.1)
        .sum();
    assert!(empty <= 2, "the queue ran empty");
}
