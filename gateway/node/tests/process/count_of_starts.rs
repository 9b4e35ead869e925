//! The count of starts, if it cannot be saved.

use std::fs;

use crate::node::{HUB, LISTENER, Node};

const CUSTODY: &str = r#"
[custody]
durability = "memory"
"#;

#[test]
fn without_it_a_node_is_not_given_to_another_process() {
    let node = Node::start(&[HUB, CUSTODY, LISTENER].concat(), |_| {});
    let path = node.path().join("state/incarnation");
    fs::write(&path, "x").unwrap();
    let answer = node.ask("POST", "/v1/upgrade", "");
    assert_eq!(answer.status, 409, "{}\n{}", answer.body, node.log());
    let told = answer.body.contains("is no count of starts");
    assert!(told, "{}", answer.body);
    assert_eq!(node.ask("GET", "/v1/status", "").status, 200);
}
