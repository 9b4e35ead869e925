//! A node as a process of its own, on the loopback.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

/// The start of a hub's configuration; keys of `[node]` may follow.
pub const HUB: &str = r#"
[api]
socket = "@/run/api.sock"
[tls]
plain = true
[node]
number = 1
role = "hub"
state_dir = "@/state"
"#;

/// A running node; it is killed when this is dropped.
pub struct Node {
    child: Child,
    folder: TempDir,
}

/// A response of the local API.
pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Node {
    /// Starts a node with the umask 000 and waits until its local API answers
    /// at `@/run/api.sock`. `prepare` is given its folder, which `@` stands
    /// for in `config`.
    pub fn start(config: &str, prepare: impl FnOnce(&Path)) -> Node {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().to_str().unwrap();
        std::fs::write(folder.path().join("node.toml"), config.replace('@', at)).unwrap();
        prepare(folder.path());
        let log = File::create(folder.path().join("log")).unwrap();
        let child = Command::new("sh")
            .args(["-c", "umask 000; exec \"$0\" run --config \"$1\""])
            .arg(env!("CARGO_BIN_EXE_underpass"))
            .arg(folder.path().join("node.toml"))
            .stderr(log)
            .spawn()
            .unwrap();
        let mut node = Node { child, folder };
        let started = Instant::now();
        while !node.answers() {
            let ended = node.child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended: {}", node.log());
            assert!(started.elapsed() < PATIENCE, "no answer: {}", node.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        node
    }

    fn answers(&self) -> bool {
        UnixStream::connect(self.socket()).is_ok()
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn socket(&self) -> PathBuf {
        self.path().join("run/api.sock")
    }

    /// What it has logged, at most a MiB.
    pub fn log(&self) -> String {
        let log = File::open(self.path().join("log")).unwrap();
        let mut text = String::new();
        log.take(1 << 20).read_to_string(&mut text).unwrap();
        text
    }

    /// Asks its local API.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        let mut socket = UnixStream::connect(self.socket()).unwrap();
        write!(
            socket,
            "{method} {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap();
        Answer {
            status: status.parse().unwrap(),
            body: body.to_owned(),
        }
    }

    /// Waits until `condition` holds.
    pub fn until(&self, what: &str, condition: impl Fn(&Node) -> bool) {
        let started = Instant::now();
        while !condition(self) {
            assert!(started.elapsed() < PATIENCE, "never {what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
