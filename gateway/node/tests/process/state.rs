//! Only the owner may read a node's files.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::node::{HUB, Node};

const TERMINAL: &str = r#"
[node]
number = 10
role = "terminal"
state_dir = "@/state"
[api]
socket = "@/run/api.sock"
[tls]
plain = true
[custody]
durability = "disk"
[[path]]
name = "sat"
neighbour = 1
remote = "127.0.0.1:9"
send_rate_bps = 2_000_000
[[outlet]]
node = 1
[reports]
to = 1
"#;

const STATE_ELSEWHERE: &str = r#"
[custody]
durability = "disk"
dir = "@/elsewhere/custody"
[deferred]
file = "@/elsewhere/deferred.sqlite"
[[listener]]
name = "sat"
listen = "127.0.0.1:0"
[[terminal]]
node = 10
[control]
url = "http://127.0.0.1:9"
token_file = "@/token"
"#;

/// All files and folders below and including `folder`, with their modes. Files that are
/// renamed during the listing appear under the new name only.
fn modes(folder: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = vec![(folder.to_owned(), mode(folder).unwrap())];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(modes(&path));
        } else if let Some(mode) = mode(&path) {
            found.push((path, mode));
        }
    }
    found
}

fn mode(path: &Path) -> Option<u32> {
    match fs::metadata(path) {
        Ok(found) => Some(found.permissions().mode() & 0o7777),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

/// Asserts that `folder` is private to its owner, and has all of `names` in it.
fn assert_private(folder: &Path, names: &[&str]) {
    let found = modes(folder);
    for (path, mode) in &found {
        let wanted = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(*mode, wanted, "{}: {mode:04o}", path.display());
    }
    for name in names {
        let there = found.iter().any(|(path, _)| path.ends_with(name));
        assert!(there, "no {name} among {found:?}");
    }
}

fn now_ms() -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap().as_millis()
}

#[test]
fn a_terminals_state_is_its_owners_alone_under_a_umask_of_0() {
    let node = Node::start(TERMINAL, |_| {});
    let now = now_ms();
    let plan = format!(
        r#"{{"version":1,"beam":"east","link":"return","plan":1,"issued_ms":{now},
        "start_ms":{now},"end_ms":{end},"capacity":[{{"from_ms":{now},"rate_bps":8000000}}],
        "lines":[{{"terminals":[10],"guaranteed_bps":2000000,"segments":[
        {{"start_ms":{now},"end_ms":{end},"rate_bps":2000000,"state":"fair"}}]}}]}}"#,
        end = now + 600_000
    );
    let taken = node.ask("PUT", "/v1/plans", &plan);
    assert_eq!(taken.status, 200, "{}", taken.body);
    let kept = node.path().join("state/plans.json");
    node.until("kept the plan", |_| kept.exists());
    let names = [
        "incarnation",
        "plans.json",
        "deferred.sqlite",
        "custody/lock",
    ];
    assert_private(&node.path().join("state"), &names);
    assert!(!node.log().contains("others could use"), "{}", node.log());
}

#[test]
fn state_outside_the_state_folder_is_its_owners_alone_too() {
    let node = Node::start(&[HUB, STATE_ELSEWHERE].concat(), |folder| {
        fs::write(folder.join("token"), "0123456789abcdef").unwrap();
    });
    assert_private(
        &node.path().join("state"),
        &["incarnation", "control.sqlite"],
    );
    let names = ["custody/lock", "deferred.sqlite", "deferred.sqlite-wal"];
    assert_private(&node.path().join("elsewhere"), &names);
}

#[test]
fn what_a_former_run_left_open_is_closed_and_told() {
    let node = Node::start(TERMINAL, |folder| {
        for name in ["state", "state/custody"] {
            fs::create_dir(folder.join(name)).unwrap();
            fs::set_permissions(folder.join(name), Permissions::from_mode(0o755)).unwrap();
        }
        for (name, text) in [("incarnation", "5\n"), ("custody/lock", "")] {
            let path = folder.join("state").join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o664)).unwrap();
        }
    });
    assert_private(&node.path().join("state"), &["incarnation", "custody/lock"]);
    let log = node.log();
    for part in ["others could use", "0755", "0664", "custody/lock"] {
        assert!(log.contains(part), "no {part} in {log}");
    }
}

#[test]
fn the_group_may_use_the_local_api_and_nobody_else() {
    let node = Node::start(TERMINAL, |_| {});
    assert!(fs::metadata(node.socket()).unwrap().file_type().is_socket());
    node.until("let the group in", |node| {
        mode(&node.socket()) == Some(0o660)
    });
    assert_eq!(mode(node.socket().parent().unwrap()), Some(0o750));
}
