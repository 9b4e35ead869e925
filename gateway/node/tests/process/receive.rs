//! `underpass bp receive` as its users see it.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::node::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(60);

/// The applications' socket, with the test in the role of the node.
struct Desk(UnixStream);

impl Desk {
    /// Accepts a client and gives it its service.
    fn open(listener: &UnixListener) -> Desk {
        let mut desk = Desk(listener.accept().unwrap().0);
        let hello = json!({
            "type": "hello", "version": 1, "node": 1,
            "max_payload_bytes": 1_000, "max_file_bytes": 1_000_000,
        });
        desk.tell(&hello, b"");
        let id = desk.hear("register");
        let registered = json!({
            "type": "registered", "id": id, "service": 40, "endpoint": "ipn:1.40",
        });
        desk.tell(&registered, b"");
        desk
    }

    fn tell(&mut self, head: &Value, payload: &[u8]) {
        let head = head.to_string();
        let length = |bytes: usize| u32::try_from(bytes).unwrap().to_be_bytes();
        let lengths = [length(head.len()), length(payload.len())].concat();
        let frame = [&lengths[..], head.as_bytes(), payload].concat();
        self.0.write_all(&frame).unwrap();
    }

    /// The client's next request, which has no payload; returns its `id`.
    fn hear(&mut self, kind: &str) -> Value {
        let mut lengths = [0; 8];
        self.0.read_exact(&mut lengths).unwrap();
        let [a, b, c, d, ..] = lengths;
        let bytes = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap();
        let mut head = vec![0; bytes];
        self.0.read_exact(&mut head).unwrap();
        let head: Value = serde_json::from_slice(&head).unwrap();
        assert_eq!(head["type"], kind);
        head["id"].clone()
    }
}

fn receiving(socket: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["bp", "receive", "--service", "40", "--socket"]);
    command.arg(socket).stderr(Stdio::null());
    command
}

/// Waits until the client has ended.
fn ended(mut child: Child) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it goes on");
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_signal_ends_it_in_and_behind_a_long_payload_and_leaves_no_part() {
    let signals = [Signal::SIGINT, Signal::SIGTERM].into_iter();
    for (signal, whole) in signals.flat_map(|signal| [(signal, false), (signal, true)]) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("applications.sock");
        let received = folder.path().join("received");
        let listener = UnixListener::bind(&socket).unwrap();
        let mut command = receiving(&socket);
        command.arg("--folder").arg(&received);
        command.stdout(Stdio::null());
        let child = command.spawn().unwrap();
        let mut desk = Desk::open(&listener);
        let bundle = json!({
            "type": "bundle", "delivery": 9, "service": 40, "source": "ipn:2.40",
            "time_ms": 1, "sequence": 2, "age_ms": 3, "file_bytes": 4,
        });
        desk.tell(&bundle, b"");
        let id = desk.hear("read");
        if whole {
            desk.tell(&json!({"type": "data", "id": id}), b"long");
            desk.hear("acknowledge");
        }
        let process = Pid::from_raw(i32::try_from(child.id()).unwrap());
        kill(process, signal).unwrap();
        assert_eq!(ended(child).code(), Some(1));
        let files = fs::read_dir(&received).unwrap();
        let files: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        let expected: &[&str] = if whole { &["bundle-9"] } else { &[] };
        assert_eq!(files, expected);
    }
}

#[test]
fn a_bundle_that_nobody_is_told_of_is_not_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("applications.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    // Not a pipe: a process that another test starts at this moment would also have its
    // reader open.
    let (reader, output) = UnixStream::pair().unwrap();
    let mut command = receiving(&socket);
    command.arg("--json").stdout(OwnedFd::from(output));
    let child = command.spawn().unwrap();
    let mut desk = Desk::open(&listener);
    reader.shutdown(Shutdown::Both).unwrap();
    let bundle = json!({
        "type": "bundle", "delivery": 9, "service": 40, "source": "ipn:2.40",
        "time_ms": 1, "sequence": 2, "age_ms": 3,
    });
    desk.tell(&bundle, b"short");
    desk.0.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut said = Vec::new();
    desk.0.read_to_end(&mut said).unwrap();
    assert_eq!(String::from_utf8_lossy(&said), "");
    assert_eq!(ended(child).code(), Some(1));
}
