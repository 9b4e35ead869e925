//! Nodes with names of the dtn scheme, and their applications.

use std::fs;
use std::process::{Command, Output, Stdio};

use crate::node::{Node, free_port};

const TERMINAL: &str = r#"
[node]
number = 10
name = "edge-7"
role = "terminal"
state_dir = "@/state"
[api]
socket = "@/run/api.sock"
[tls]
plain = true
[tcp]
backoff_min_s = 0.1
[[path]]
name = "sat"
neighbour = 1
remote = "127.0.0.1:PORT"
send_rate_bps = 16_000_000
rtt_ms = 20
[[route]]
nodes = "dtn://ground/**"
via = 1
[applications]
socket = "@/run/applications.sock"
services = ["1-127", "incoming"]
"#;

const HUB: &str = r#"
[node]
number = 1
name = "ground"
role = "hub"
state_dir = "@/state"
shards = 2
[api]
socket = "@/run/api.sock"
[tls]
plain = true
[[listener]]
name = "sat"
listen = "127.0.0.1:PORT"
[[terminal]]
node = 10
send_rate_bps = 16_000_000
rtt_ms = 20
[[route]]
nodes = "dtn://edge-7/**"
via = 10
[applications]
socket = "@/run/applications.sock"
services = ["1-127", "incoming"]
"#;

fn command(node: &Node, words: &str) -> Command {
    let socket = node.path().join("run/applications.sock");
    let mut command = Command::new(node.program());
    let (what, options) = words.split_once(' ').unwrap();
    command.args(["bp", what, "--socket"]).arg(socket);
    command.args(options.split(' '));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(output: &Output) -> String {
    let shown = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&shown).into_owned()
}

fn bp(node: &Node, words: &str) -> String {
    let output = command(node, words).output().unwrap();
    let text = text(&output);
    assert!(output.status.success(), "{words}: {text}\n{}", node.log());
    text
}

#[test]
fn applications_of_two_nodes_reach_each_other_by_name() {
    let port = free_port().to_string();
    let hub = Node::start(&HUB.replace("PORT", &port), |_| {});
    let terminal = Node::start(&TERMINAL.replace("PORT", &port), |_| {});
    terminal.until("had a session", |node| node.log().contains("session up"));

    // The echo answers from the endpoint that was addressed, a name or a number.
    for service in ["incoming", "40"] {
        let shown = bp(
            &terminal,
            &format!("ping --count 1 --timeout 60 --service {service} dtn://ground/echo"),
        );
        let by_name = shown.contains("from dtn://ground/echo");
        assert!(by_name, "{shown}\n{}", hub.log());
    }

    // The delivering node reports to the name that has sent the bundle.
    let mut receiver = command(&terminal, "receive --service incoming --count 1 --folder");
    let folder = terminal.path().join("received");
    let receiver = receiver.arg(&folder).spawn().unwrap();
    let trace = "trace --service incoming --timeout 60 dtn://edge-7/incoming";
    let shown = bp(&hub, trace);
    assert!(shown.contains("dtn://edge-7/: delivered"), "{shown}");
    let received = receiver.wait_with_output().unwrap();
    assert!(received.status.success(), "{}", text(&received));
    let told = text(&received);
    assert!(told.contains("from dtn://ground/incoming: "), "{told}");
    let name = told.trim().rsplit(": ").next().unwrap();
    assert_eq!(fs::read(name).unwrap(), b"underpass bp trace");

    // A bundle to the node itself is delivered without a report.
    let shown = bp(&terminal, "trace --service incoming --timeout 60 ipn:10.41");
    assert!(shown.contains("ipn:10.41: delivered"), "{shown}");

    // Nobody has this service, and the node reports that.
    let refused = command(&terminal, "receive --service other --timeout 1").output();
    let refused = text(&refused.unwrap());
    assert!(refused.contains("applications.services"), "{refused}");

    // A reload puts another name in force.
    let path = hub.path().join("node.toml");
    let changed = fs::read_to_string(&path).unwrap();
    fs::write(&path, changed.replace("\"ground\"", "\"station\"")).unwrap();
    let answer = hub.ask("POST", "/v1/reload", "");
    assert_eq!(answer.status, 200, "{}", answer.body);
    let shown = command(&terminal, "ping --count 1 --timeout 1 dtn://ground/echo").output();
    assert!(!shown.unwrap().status.success());
    let sent = bp(
        &hub,
        "send --service incoming dtn://edge-7/incoming /dev/null",
    );
    assert!(sent.contains("from dtn://station/incoming"), "{sent}");
    let answer = hub.ask("GET", "/v1/routes/edge-7", "");
    assert!(answer.body.contains("\"via\":10"), "{}", answer.body);
}
