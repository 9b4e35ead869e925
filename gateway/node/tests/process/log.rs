//! A node does not depend on its log.

use std::os::unix::fs::symlink;

use crate::node::{HUB, LISTENER, Node};

#[test]
fn node_whose_log_takes_nothing_serves() {
    let node = Node::start(&[HUB, LISTENER].concat(), |folder| {
        symlink("/dev/full", folder.join("log")).unwrap();
    });
    // Each reload is logged.
    assert_eq!(node.ask("POST", "/v1/reload", "").status, 200);
    assert_eq!(node.ask("GET", "/v1/status", "").status, 200);
}
