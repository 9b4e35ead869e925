//! What configuration accepts, and how it says no.

use std::fs;
use std::path::Path;

use satlink::config::Config;

fn load(text: &str) -> Result<Config, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("beam.toml");
    fs::write(&path, text).unwrap();
    Config::load(&path).map_err(|error| error.to_string())
}

fn with(extra: &str) -> String {
    format!(
        "socket = \"/run/s\"\n[hub]\ndevice = \"sat0\"\naddresses = [\"10.0.0.1/24\"]\n\
         [[terminal]]\nname = \"t1\"\ndevice = \"sat1\"\naddresses = [\"10.0.0.2/24\"]\n{extra}"
    )
}

#[track_caller]
fn refused(text: &str, wanted: &[&str]) {
    let error = load(text).unwrap_err();
    for part in wanted {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

#[test]
fn example_is_accepted() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/beam.toml");
    let config = Config::load(&example).unwrap();
    assert_eq!(config.terminals.len(), 2);
    assert_eq!(config.terminals[0].blockages[0].duration_s, 20.0);
}

#[test]
fn defaults_are_a_perfect_link() {
    let config = load(&with("")).unwrap();
    assert_eq!(config.terminals[0].forward, Default::default());
    assert_eq!(config.hub.mtu, 1500);
    assert!(config.realtime);
}

#[test]
fn unknown_keys_are_named() {
    refused(&with("colour = 1"), &["colour", "line 9"]);
    refused(&with("[terminal.forward]\nrate = 1"), &["rate", "rate_bps"]);
    refused(
        &with("[terminal.forward]\nloss = { model = \"independent\", p = 1 }"),
        &["`p`"],
    );
    refused(
        &with("[terminal.forward]\nloss = { model = \"bad\" }"),
        &["bad"],
    );
}

#[test]
fn impossible_values_name_terminal_and_key() {
    refused(
        &with("[terminal.return]\ndelay_ms = -1"),
        &["\"t1\", return", "delay_ms: -1"],
    );
    refused(
        &with("[terminal.return]\nqueue = { limit_ms = 1, limit_bytes = 1 }"),
        &["queue.limit_ms", "queue.limit_bytes"],
    );
    refused(
        &with("blockage = [{ start_s = -1, duration_s = 1 }]"),
        &["\"t1\", blockage", "start_s"],
    );
    refused(&with("mtu = 100"), &["mtu"]);
    refused(
        &with("[beam.forward]\ncapacity_bps = 0"),
        &["beam.forward", "capacity_bps"],
    );
}

#[test]
fn terminals_need_names_and_prefixes_of_their_own() {
    let second = |name: &str, address: &str| {
        with(&format!(
            "[[terminal]]\nname = {name:?}\ndevice = \"sat2\"\naddresses = [{address:?}]\n"
        ))
    };
    assert!(load(&second("t2", "10.0.0.3/24")).is_ok());
    refused(&second("t1", "10.0.0.3/24"), &["name", "twice"]);
    refused(&second("t2", "10.0.0.2/24"), &["prefixes", "\"t1\""]);
    refused(
        "socket = \"/s\"\n[hub]\ndevice = \"sat0\"\n",
        &["[[terminal]]"],
    );
}

#[test]
fn device_names_are_those_the_kernel_takes() {
    refused(
        &with("").replace("sat1", "a-name-much-too-long"),
        &["device"],
    );
    refused(&with("").replace("sat1", "sat%d"), &["device"]);
}

#[test]
fn a_trace_is_read_with_the_configuration() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/files/leo.json");
    let config = load(&with(&format!("trace = {file:?}"))).unwrap();
    let trace = config.terminals[0].load_trace().unwrap().unwrap();
    assert_eq!(trace.forward.len(), 40);
    refused(
        &with("trace = \"/nowhere/leo.json\""),
        &["\"t1\"", "/nowhere/leo.json"],
    );
    refused(
        &with("trace = \"Cargo.toml\""),
        &["\"t1\"", "Cargo.toml", "line 1"],
    );
    refused(
        &with("trace = \"x\"\nblockage = [{ start_s = 1, duration_s = 1 }]"),
        &["blockage", "trace"],
    );
}
