//! The log is not what a node lives by.

use std::os::unix::fs::symlink;

use crate::node::Node;

const NODE: &str = r#"
[node]
number = 1
role = "hub"
state_dir = "@/state"
[api]
socket = "@/run/api.sock"
[tls]
plain = true
[[listener]]
name = "sat"
listen = "127.0.0.1:0"
[[terminal]]
node = 10
"#;

#[test]
fn node_whose_log_takes_nothing_serves() {
    let node = Node::start(NODE, |folder| {
        symlink("/dev/full", folder.join("log")).unwrap();
    });
    // Each reload is logged.
    assert_eq!(node.ask("POST", "/v1/reload", "").status, 200);
    assert_eq!(node.ask("GET", "/v1/status", "").status, 200);
}
