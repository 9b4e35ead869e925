//! The privileges of a running node.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;

use crate::node::{HUB, Node, edge};

/// For a hub whose sessions use a congestion control of its own if they can.
const SESSIONS: &str = r#"
[tcp]
congestion_control = ["hybla_dama", "cubic"]
[[listener]]
name = "sat"
listen = "127.0.0.1:0"
[[terminal]]
node = 10
send_rate_bps = 2_000_000
"#;

const NET_ADMIN: u64 = 1 << 12;
const NET_BIND_SERVICE: u64 = 1 << 10;
const PERFMON: u64 = 1 << 38;
const BPF: u64 = 1 << 39;

/// The text of a status file; none if its thread has ended.
fn told(status: &Path) -> Option<String> {
    match fs::read_to_string(status) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        // The thread has ended since the file was opened.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => None,
        Err(error) => panic!("{}: {error}", status.display()),
    }
}

fn field(text: &str, name: &str) -> String {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let mut values = lines.filter(|(key, _)| *key == name);
    values.next().unwrap().1.trim().to_owned()
}

fn mask(text: &str, name: &str) -> u64 {
    u64::from_str_radix(&field(text, name), 16).unwrap()
}

/// The status of each thread of a process; some threads may end at any time.
fn threads(id: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{id}/task")).unwrap();
    tasks
        .filter_map(|task| told(&task.unwrap().path().join("status")))
        .collect()
}

/// Asserts that every thread has just these capabilities in every set, and can gain none.
fn assert_has(id: u32, capabilities: u64) {
    let threads = threads(id);
    assert!(threads.len() > 1);
    for thread in threads {
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            assert_eq!(mask(&thread, set), capabilities, "{set} of {thread}");
        }
        for set in ["CapInh", "CapAmb"] {
            assert_eq!(mask(&thread, set), 0, "{set} of {thread}");
        }
        assert_eq!(field(&thread, "NoNewPrivs"), "1");
        assert_eq!(field(&thread, "Seccomp"), "2");
    }
}

/// The helper processes that `id` has started.
fn helpers(id: u32) -> Vec<u32> {
    children(id, "privileged-helper")
}

/// The processes that `id` has started with this command.
fn children(id: u32, command: &str) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    let all = text.split_whitespace().map(|id| id.parse().unwrap());
    all.filter(|id: &u32| {
        let line = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap();
        line.split('\0').nth(1) == Some(command)
    })
    .collect()
}

#[track_caller]
fn is_privileged() -> bool {
    let privileged = nix::unistd::geteuid().is_root();
    if !privileged {
        skipped::because("only root has capabilities to give away");
    }
    privileged
}

#[test]
fn a_hub_keeps_what_its_sockets_need_and_its_helper_the_rest() {
    if !is_privileged() {
        return;
    }
    let node = Node::start(&[HUB, SESSIONS].concat(), |_| {});
    assert_has(node.id(), NET_ADMIN);
    let helpers = helpers(node.id());
    let [helper] = helpers[..] else {
        panic!("children: {helpers:?}");
    };
    for thread in threads(helper) {
        let kept = mask(&thread, "CapPrm");
        assert_eq!(kept & !(NET_ADMIN | BPF | PERFMON), 0, "{kept:x}");
        assert_eq!(kept & NET_ADMIN, NET_ADMIN);
    }
    let status = node.ask("GET", "/v1/status", "");
    for part in [r#""capabilities":["CAP_NET_ADMIN"]"#, r#""helper":true"#] {
        assert!(status.body.contains(part), "no {part} in {}", status.body);
    }
    // The controls are loaded if they can be.
    let log = node.log();
    assert!(log.contains("congestion control whom"), "{log}");
}

#[test]
fn the_helper_ends_with_a_node_that_is_killed() {
    if !is_privileged() {
        return;
    }
    let node = Node::start(&[HUB, SESSIONS].concat(), |_| {});
    let helper = helpers(node.id())[0];
    drop(node);
    let started = std::time::Instant::now();
    while Path::new(&format!("/proc/{helper}/exe")).exists() {
        assert!(started.elapsed() < std::time::Duration::from_secs(60));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn the_helper_outlives_a_next_process_that_does_not_get_the_node() {
    let mut node = Node::start(&[HUB, SESSIONS].concat(), |_| {});
    let asked = |node: &Node| node.log().matches("congestion control whom").count();
    node.until("asked its helper", |node| asked(node) > 0);
    let before = asked(&node);
    // The next process has the helper when it finds this.
    let starts = node.path().join("state/incarnation");
    let counted = fs::read(&starts).unwrap();
    fs::write(&starts, "none\n").unwrap();
    let answer = node.ask("POST", "/v1/upgrade", "");
    assert_eq!(answer.status, 409, "{}", answer.body);
    assert!(answer.body.contains("count of starts"), "{}", answer.body);
    fs::write(&starts, counted).unwrap();
    node.upgrade();
    node.until("asked its helper again", |node| asked(node) > before);
    let log = node.log();
    assert!(!log.contains("the helper has ended"), "{log}");
}

#[test]
fn a_node_whose_sockets_need_nothing_has_no_capability_and_no_helper() {
    if !is_privileged() {
        return;
    }
    let node = Node::start(&[HUB, &edge(0)].concat(), |_| {});
    assert_has(node.id(), 0);
    assert!(helpers(node.id()).is_empty());
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let low = (512..1024).rev().find(is_free).unwrap();
    let node = Node::start(&[HUB, &edge(low)].concat(), |_| {});
    assert_has(node.id(), NET_BIND_SERVICE);
}

#[test]
fn an_operator_may_leave_all_rights_to_a_node_and_is_told() {
    let node = Node::start(&[HUB, "confine = false", SESSIONS].concat(), |_| {});
    let status = fs::read_to_string(format!("/proc/{}/status", node.id())).unwrap();
    assert_eq!(field(&status, "Seccomp"), "0");
    assert!(
        node.log().contains("node.confine = false"),
        "{}",
        node.log()
    );
    let told = node.ask("GET", "/v1/status", "");
    assert!(told.body.contains(r#""wanted":false"#), "{}", told.body);
}

#[test]
fn the_launcher_has_no_file_but_the_way_to_its_node_and_ends_with_it() {
    let node = Node::start(&[HUB, SESSIONS].concat(), |_| {});
    let launchers = children(node.id(), "program-launcher");
    let [launcher] = launchers[..] else {
        panic!("launchers: {launchers:?}");
    };
    let files = fs::read_dir(format!("/proc/{launcher}/fd")).unwrap();
    let files = files.map(|file| fs::read_link(file.unwrap().path()).unwrap());
    let sockets = files.filter(|file| file.to_string_lossy().starts_with("socket:"));
    assert_eq!(sockets.count(), 1);
    drop(node);
    let started = std::time::Instant::now();
    while Path::new(&format!("/proc/{launcher}/exe")).exists() {
        assert!(started.elapsed() < std::time::Duration::from_secs(60));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
