//! A node in a process of its own, on the loopback.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_underpass");

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

/// A possible rest of it: a listener, and a terminal that may connect.
pub const LISTENER: &str = r#"
[[listener]]
name = "sat"
listen = "127.0.0.1:0"
[[terminal]]
node = 10
"#;

/// Another possible rest of it: a client listener at a loopback port, and no sessions.
pub fn edge(port: u16) -> String {
    format!(
        r#"
[edge]
client_networks = ["127.0.0.0/8"]
[[edge.listener]]
name = "in"
protocol = "socks5"
address = "127.0.0.1:{port}"
"#
    )
}

/// A running node; dropping it kills the process.
pub struct Node {
    child: Child,
    /// The process that has taken it over.
    next: Option<u32>,
    folder: TempDir,
}

/// A response of the local API.
pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Node {
    /// Starts a node with the umask 000 and waits until its local API answers at
    /// `@/run/api.sock`. `prepare` gets the node's folder, for which `@` stands in
    /// `config`.
    pub fn start(config: &str, prepare: impl FnOnce(&Path)) -> Node {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().to_str().unwrap();
        std::fs::write(folder.path().join("node.toml"), config.replace('@', at)).unwrap();
        prepare(folder.path());
        // A path of its own, so that a test may put another program there.
        let program = folder.path().join("underpass");
        if std::fs::hard_link(PROGRAM, &program).is_err() {
            copy_program(Path::new(PROGRAM), &program);
        }
        let mut node = Node {
            child: spawn(folder.path()),
            next: None,
            folder,
        };
        node.wait();
        node
    }

    /// Starts the node again after it has ended.
    pub fn start_again(&mut self) {
        self.child = spawn(self.path());
        self.wait();
    }

    fn wait(&mut self) {
        let started = Instant::now();
        while !self.answers() {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended: {}", self.log());
            assert!(started.elapsed() < PATIENCE, "no answer: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Makes the program at its path take it over.
    pub fn upgrade(&mut self) {
        let answer = self.ask("POST", "/v1/upgrade", "");
        assert_eq!(answer.status, 200, "{}\n{}", answer.body, self.log());
        let digits: String = answer.body.chars().filter(char::is_ascii_digit).collect();
        self.next = Some(digits.parse().unwrap());
    }

    /// From now on its process is the one that the last line with `words` of its log
    /// names.
    pub fn goes_on_as(&mut self, words: &str) {
        let log = self.log();
        let line = log.lines().rfind(|line| line.contains(words)).unwrap();
        let id = line.split("process=").nth(1);
        let id = id.unwrap_or_else(|| panic!("no process: {log}"));
        let digits: String = id.chars().take_while(char::is_ascii_digit).collect();
        self.next = Some(digits.parse().unwrap());
    }

    /// Kills its present process.
    pub fn kill(&mut self) {
        let id = self.id();
        match self.next.take() {
            None => self.child.kill().unwrap(),
            Some(_) => {
                let next = Pid::from_raw(i32::try_from(id).unwrap());
                let _ = kill(next, Signal::SIGKILL);
                // The former process has nothing left to do.
                let _ = self.child.kill();
            }
        }
        let _ = self.child.wait();
        // Its files are then closed, and its addresses free.
        let started = Instant::now();
        while !is_gone(id) {
            assert!(started.elapsed() < PATIENCE, "{id} is still there");
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = std::fs::remove_file(self.socket());
    }

    /// Changes its configuration, which a reload or the next process reads.
    pub fn reconfigure(&self, from: &str, to: &str) {
        let path = self.path().join("node.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(&path, text.replace(from, to)).unwrap();
    }

    pub fn program(&self) -> PathBuf {
        self.path().join("underpass")
    }

    fn answers(&self) -> bool {
        UnixStream::connect(self.socket()).is_ok()
    }

    pub fn id(&self) -> u32 {
        self.next.unwrap_or_else(|| self.child.id())
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn socket(&self) -> PathBuf {
        self.path().join("run/api.sock")
    }

    /// Its log, at most 1 MiB.
    pub fn log(&self) -> String {
        let log = File::open(self.path().join("log")).unwrap();
        let mut text = String::new();
        log.take(1 << 20).read_to_string(&mut text).unwrap();
        text
    }

    /// Sends a request to its local API.
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
        if let Some(next) = self.next.and_then(|id| i32::try_from(id).ok()) {
            let _ = kill(Pid::from_raw(next), Signal::SIGKILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A loopback port that nobody else is given: a socket stays bound to it without
/// listening. A program that asks for the port by its number gets it.
pub fn free_port() -> u16 {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(&any.into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    // The socket stays for as long as this process lives.
    std::mem::forget(socket);
    address.port()
}

/// Copies a program in a process of its own. If this process wrote the copy, a process
/// that another test starts meanwhile would have the file open for writing until it runs
/// its own program; until then the kernel refuses to run the copy (ETXTBSY).
pub fn copy_program(from: &Path, to: &Path) {
    let mut copy = Command::new("cp");
    copy.arg("--preserve=mode").arg(from).arg(to);
    assert!(copy.status().unwrap().success());
}

/// Whether no thread of a killed process is left; perhaps nobody has waited for it yet.
fn is_gone(id: u32) -> bool {
    let folder = PathBuf::from(format!("/proc/{id}"));
    let Ok(status) = std::fs::read_to_string(folder.join("status")) else {
        return true;
    };
    let threads = std::fs::read_dir(folder.join("task")).map_or(0, Iterator::count);
    threads <= 1 && status.contains("State:\tZ")
}

/// Starts the program in a folder; its log is continued.
fn spawn(folder: &Path) -> Child {
    let mut log = OpenOptions::new();
    let log = log
        .create(true)
        .append(true)
        .open(folder.join("log"))
        .unwrap();
    Command::new("sh")
        .args(["-c", "umask 000; exec \"$0\" run --config \"$1\""])
        .arg(folder.join("underpass"))
        .arg(folder.join("node.toml"))
        .stderr(log)
        .spawn()
        .unwrap()
}
