//! Another process takes over a node while clients are served.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::node::{Node, copy_program, free_port};

const HUB: &str = r#"
[node]
number = 1
role = "hub"
state_dir = "@/state"
shards = 2
upgrade_patience_s = PATIENCE
[api]
socket = "@/run/api.sock"
[tls]
plain = true
[custody]
durability = "DURABILITY"
[[listener]]
name = "sat"
listen = "127.0.0.1:PORT"
[[terminal]]
node = 10
send_rate_bps = 16_000_000
rtt_ms = 20
[edge.dial]
allow_networks = ["127.0.0.0/8"]
"#;

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
durability = "DURABILITY"
[tcp]
backoff_min_s = 0.1
backoff_max_s = 0.5
[[path]]
name = "sat"
neighbour = 1
remote = "127.0.0.1:PORT"
send_rate_bps = 16_000_000
receive_rate_bps = 16_000_000
rtt_ms = 20
[[outlet]]
node = 1
[edge]
client_networks = ["127.0.0.0/8"]
[[edge.listener]]
name = "socks"
protocol = "socks5"
address = "127.0.0.1:SOCKS"
[[edge.listener]]
name = "http"
protocol = "http"
address = "127.0.0.1:HTTP"
"#;

/// The bytes of each transfer.
const BYTES: usize = 5 * PART;
/// A part of a transfer: at 16 Mbit/s the parts of all transfers take about a second.
const PART: usize = 700_000;

/// Of a hub and a terminal: each of the four default classes has one session and a standby.
const SESSIONS: usize = 8;

/// What the former process logs about the one that takes over.
const GOES_ON: &str = "another process goes on process=";

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8)
        .collect()
}

/// How many parts may be sent: so a test decides when bytes are in transit.
#[derive(Clone, Default)]
struct Gate(Arc<AtomicUsize>);

impl Gate {
    fn open(&self, parts: usize) {
        self.0.fetch_add(parts, Ordering::SeqCst);
    }

    /// Sends the content, part by part.
    fn send(&self, socket: &mut TcpStream) -> std::io::Result<()> {
        for (number, part) in content(BYTES).chunks(PART).enumerate() {
            while self.0.load(Ordering::SeqCst) <= number {
                std::thread::sleep(Duration::from_millis(2));
            }
            socket.write_all(part)?;
        }
        Ok(())
    }
}

/// Answers "GET" with the content, also over HTTP, and "PUT" with what it received.
fn origin(gate: &Gate) -> u16 {
    let gate = gate.clone();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let gate = gate.clone();
            std::thread::spawn(move || serve(socket.unwrap(), &gate));
        }
    });
    port
}

fn serve(mut socket: TcpStream, gate: &Gate) {
    let mut lines = BufReader::new(socket.try_clone().unwrap());
    let mut line = String::new();
    if lines.read_line(&mut line).is_err() {
        return;
    }
    if line.starts_with("PUT") {
        let mut got = Vec::new();
        lines.read_to_end(&mut got).unwrap();
        let verdict: &[u8] = match got == content(BYTES) {
            true => b"same",
            false => b"other",
        };
        let _ = socket.write_all(verdict);
        return;
    }
    if line.contains("HTTP/1.1") {
        while line.trim() != "" {
            line.clear();
            lines.read_line(&mut line).unwrap();
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n");
        socket.write_all(head.as_bytes()).unwrap();
    }
    let _ = gate.send(&mut socket);
}

/// A hub, a terminal, and an origin beyond the hub.
struct World {
    hub: Node,
    terminal: Node,
    origin: u16,
    socks: u16,
    http: u16,
    gate: Gate,
}

impl World {
    fn new(durability: &str) -> World {
        World::with(durability, "")
    }

    /// The same, with more tables in the terminal's configuration.
    fn with(durability: &str, tables: &str) -> World {
        let (port, socks, http) = (free_port(), free_port(), free_port());
        let filled = |text: &str| {
            text.replace("PORT", &port.to_string())
                .replace("SOCKS", &socks.to_string())
                .replace("HTTP", &http.to_string())
                .replace("DURABILITY", durability)
                .replace("PATIENCE", "60")
        };
        let hub = Node::start(&filled(HUB), |_| {});
        let terminal = Node::start(&filled(&format!("{TERMINAL}{tables}")), |_| {});
        let all = |node: &Node| node.log().matches("session up").count() >= SESSIONS;
        hub.until("had all sessions", all);
        terminal.until("had all sessions", all);
        let gate = Gate::default();
        World {
            hub,
            terminal,
            origin: origin(&gate),
            socks,
            http,
            gate,
        }
    }

    fn connect(&self) -> TcpStream {
        let mut socket = TcpStream::connect(("127.0.0.1", self.socks)).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(120)))
            .unwrap();
        socket.write_all(b"\x05\x01\x00").unwrap();
        let mut answer = [0; 10];
        socket.read_exact(&mut answer[..2]).unwrap();
        let port = self.origin.to_be_bytes();
        let request = [&b"\x05\x01\x00\x01\x7f\x00\x00\x01"[..], &port].concat();
        socket.write_all(&request).unwrap();
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(answer[1], 0, "{answer:?}");
        socket
    }

    fn download(&self) -> JoinHandle<bool> {
        let mut socket = self.connect();
        std::thread::spawn(move || {
            socket.write_all(b"GET\n").unwrap();
            let mut got = Vec::new();
            let ended = socket.read_to_end(&mut got);
            ended.is_ok() && got == content(BYTES)
        })
    }

    fn upload(&self) -> JoinHandle<bool> {
        let (mut socket, gate) = (self.connect(), self.gate.clone());
        std::thread::spawn(move || {
            socket.write_all(b"PUT\n").unwrap();
            if gate.send(&mut socket).is_err() {
                return false;
            }
            socket.shutdown(Shutdown::Write).unwrap();
            let mut verdict = String::new();
            socket.read_to_string(&mut verdict).is_ok() && verdict == "same"
        })
    }

    /// A transfer through the HTTP proxy, whose parser has the connection.
    fn exchange(&self) -> JoinHandle<bool> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.http)).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(120)))
            .unwrap();
        let origin = self.origin;
        std::thread::spawn(move || {
            write!(
                socket,
                "GET http://127.0.0.1:{origin}/ HTTP/1.1\r\nHost: 127.0.0.1:{origin}\r\n\
                 Connection: close\r\n\r\n"
            )
            .unwrap();
            let mut got = Vec::new();
            let ended = socket.read_to_end(&mut got);
            ended.is_ok() && got.ends_with(&content(BYTES))
        })
    }

    fn transfers(&self) -> Vec<JoinHandle<bool>> {
        vec![
            self.download(),
            self.upload(),
            self.exchange(),
            self.download(),
            self.upload(),
        ]
    }

    fn logs(&self) -> String {
        format!(
            "hub:\n{}\nterminal:\n{}",
            self.hub.log(),
            self.terminal.log()
        )
    }

    /// Lets the transfers complete, and checks that they are whole.
    fn assert_whole(&self, transfers: Vec<JoinHandle<bool>>) {
        self.gate.open(BYTES / PART);
        for (number, transfer) in transfers.into_iter().enumerate() {
            let same = transfer.join();
            assert!(
                matches!(same, Ok(true)),
                "transfer {number}: {}",
                self.logs()
            );
        }
    }
}

/// Time to send some of what may be sent.
fn pause() {
    std::thread::sleep(Duration::from_millis(300));
}

/// Asserts that in every upgrade of this node so far, sessions with all peers came up beforehand.
fn assert_met(node: &Node, upgrades: usize) {
    let log = node.log();
    let met = log
        .lines()
        .filter(|line| line.contains("set up beforehand"));
    let met: Vec<&str> = met.collect();
    assert_eq!(met.len(), upgrades, "{log}");
    assert!(met.iter().all(|line| line.contains("missing=0")), "{log}");
}

fn goes_on(durability: &str) {
    let mut world = World::new(durability);
    let transfers = world.transfers();
    for _ in 0..2 {
        let before = (world.hub.id(), world.terminal.id());
        world.gate.open(1);
        pause();
        world.hub.upgrade();
        world.gate.open(1);
        pause();
        world.terminal.upgrade();
        assert_ne!(world.hub.id(), before.0);
        assert_ne!(world.terminal.id(), before.1);
    }
    // One transfer begins with the last processes.
    let late = world.download();
    world.assert_whole(transfers);
    world.assert_whole(vec![late]);
    for node in [&world.hub, &world.terminal] {
        assert_met(node, 2);
        let gone = "nothing is left of this process' node";
        node.until("let the former processes go", |node| {
            node.log().matches(gone).count() == 2
        });
        assert_eq!(node.ask("GET", "/v1/status", "").status, 200);
    }
}

#[test]
fn transfers_go_on_byte_by_byte_through_upgrades_of_both_ends() {
    goes_on("memory");
}

#[test]
fn so_they_do_with_custody_on_a_disk() {
    goes_on("disk");
}

/// Replaces a node's program, as an installation does.
fn install(node: &Node, program: &[u8]) {
    use std::os::unix::fs::PermissionsExt;
    let path = node.program();
    let [written, fresh] = ["written", "new"].map(|name| path.with_extension(name));
    fs::write(&written, program).unwrap();
    fs::set_permissions(&written, fs::Permissions::from_mode(0o755)).unwrap();
    copy_program(&written, &fresh);
    fs::rename(&fresh, &path).unwrap();
}

fn descriptors(id: u32) -> usize {
    fs::read_dir(format!("/proc/{id}/fd")).unwrap().count()
}

#[test]
fn what_does_not_come_up_changes_nothing() {
    let world = World::new("disk");
    let transfers = world.transfers();
    world.gate.open(1);
    pause();
    let hub = &world.hub;
    let asked = |reason: &str| {
        let before = descriptors(hub.id());
        let answer = hub.ask("POST", "/v1/upgrade", "");
        assert_eq!(answer.status, 409, "{}", answer.body);
        assert!(
            answer.body.contains(reason),
            "{}\n{}",
            answer.body,
            hub.log()
        );
        // The connection of the local API may still be closing.
        hub.until("closed what it had opened", |hub| {
            descriptors(hub.id()) <= before + 8
        });
    };
    // It refuses at once, and also once it has the state.
    hub.reconfigure("number = 1\n", "number = 2\n");
    asked("node.number has changed");
    hub.reconfigure("number = 2\n", "number = 1\n");
    hub.reconfigure("shards = 2", "shards = 3");
    asked("more or fewer shards");
    hub.reconfigure("shards = 3", "shards = 2");
    // The next program is missing, ends, or answers something else.
    fs::remove_file(hub.program()).unwrap();
    asked("does not start");
    install(hub, b"#!/bin/sh\nexit 1\n");
    asked("does not answer");
    install(hub, b"#!/bin/sh\necho 12345678 >&0\nexec sleep 1000\n");
    asked("does not answer");
    world.assert_whole(transfers);
    let more = world.transfers();
    world.assert_whole(more);
}

#[test]
fn a_program_that_is_silent_is_killed_in_the_end() {
    let config = HUB
        .replace("PORT", "0")
        .replace("DURABILITY", "memory")
        .replace("PATIENCE", "5");
    let node = Node::start(&config, |_| {});
    install(
        &node,
        b"#!/bin/sh\necho $$ > ${0%/*}/silent\nexec sleep 1000\n",
    );
    let ask = || node.ask("POST", "/v1/upgrade", "");
    let answer = std::thread::scope(|scope| {
        let first = scope.spawn(ask);
        node.until("silent", |node| node.path().join("silent").exists());
        assert_eq!(ask().status, 409, "one at a time");
        first.join().unwrap()
    });
    assert_eq!(answer.status, 409, "{}", answer.body);
    let log = node.log();
    assert_eq!(log.matches("not upgraded").count(), 1, "{log}");
    let id = fs::read_to_string(node.path().join("silent")).unwrap();
    let gone = !Path::new("/proc").join(id.trim()).exists();
    assert!(gone, "it is still there");
    assert_eq!(node.ask("GET", "/v1/status", "").status, 200);
}

#[test]
fn a_process_that_is_killed_after_it_went_on_leaves_custody_to_the_next() {
    let mut world = World::new("disk");
    let transfers = world.transfers();
    world.gate.open(1);
    pause();
    world.hub.upgrade();
    world.hub.kill();
    world.hub.start_again();
    world.gate.open(BYTES / PART);
    for transfer in transfers {
        // Streams end with their process, and do not count as complete.
        let _ = transfer.join();
    }
    let more = world.transfers();
    world.assert_whole(more);
}

#[test]
fn a_stranger_can_neither_have_a_node_taken_over_nor_give_one() {
    // Standard input is not a socket.
    let node = Node::start(
        &HUB.replace("PORT", "0")
            .replace("DURABILITY", "memory")
            .replace("PATIENCE", "5"),
        |_| {},
    );
    let config = node.path().join("node.toml");
    let run = std::process::Command::new(node.program())
        .args(["run", "--take-over", "--config"])
        .arg(&config)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert!(!run.status.success());
    // It is a socket, and sends what no node sends.
    let (mut near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut child = std::process::Command::new(node.program())
        .args(["run", "--take-over", "--config"])
        .arg(&config)
        .stdin(std::os::fd::OwnedFd::from(far))
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    near.write_all(&[0, 0, 0, 2, b'{', b'}']).unwrap();
    assert!(!child.wait().unwrap().success());
    assert_eq!(node.ask("GET", "/v1/status", "").status, 200);
}

#[test]
fn the_next_process_has_no_file_open_that_it_does_not_need() {
    let mut world = World::new("memory");
    let download = world.download();
    world.gate.open(1);
    pause();
    let fresh = descriptors(world.hub.id());
    for _ in 0..3 {
        world.hub.upgrade();
    }
    world.hub.until("closed what it had opened", |hub| {
        descriptors(hub.id()) <= fresh + 6
    });
    world.assert_whole(vec![download]);
}

/// Sends a signal to a node's process.
fn send_signal(node: &Node, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(node.id()).unwrap()), signal).unwrap();
}

#[test]
fn a_peer_that_sets_no_session_up_holds_nothing_up_for_long() {
    let mut world = World::new("memory");
    let transfers = world.transfers();
    world.gate.open(1);
    pause();
    // It cannot dial while it is stopped; the longest wait is one of 10 s.
    send_signal(&world.terminal, Signal::SIGSTOP);
    world.hub.upgrade();
    send_signal(&world.terminal, Signal::SIGCONT);
    let log = world.hub.log();
    let met = log.lines().find(|line| line.contains("set up beforehand"));
    assert!(met.unwrap().contains("missing=1"), "{log}");
    world.assert_whole(transfers);
}

#[test]
fn a_daemon_is_served_by_the_process_that_goes_on() {
    let daemon = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = daemon.local_addr().unwrap();
    let (connected, connections) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for connection in daemon.incoming() {
            let _ = connected.send(connection.unwrap());
        }
    });
    let path = format!(
        "[[path]]\nname = \"dtnd\"\nneighbour = 20\nconvergence_layer = \"ecla\"\n\
         remote = \"{address}\"\nannounces = [21]\n"
    );
    let mut world = World::with("memory", &path);
    let next = || connections.recv_timeout(Duration::from_secs(60)).unwrap();
    let mut first = next();
    let transfers = world.transfers();
    world.gate.open(1);
    pause();
    world.terminal.upgrade();
    assert_met(&world.terminal, 1);
    let _second = next();
    // What was written there before the upgrade was kept.
    first.read_to_end(&mut Vec::new()).unwrap();
    world.assert_whole(transfers);
}

#[test]
fn a_signal_has_another_process_go_on() {
    let mut world = World::new("memory");
    let transfers = world.transfers();
    world.gate.open(1);
    pause();
    for _ in 0..2 {
        let before = world.terminal.id();
        let upgrades = world.terminal.log().matches(GOES_ON).count();
        send_signal(&world.terminal, Signal::SIGUSR2);
        world.terminal.until("gone on", |node| {
            node.log().matches(GOES_ON).count() > upgrades
        });
        world.terminal.goes_on_as(GOES_ON);
        assert_ne!(world.terminal.id(), before);
        world.gate.open(1);
        pause();
    }
    let late = world.download();
    world.assert_whole(transfers);
    world.assert_whole(vec![late]);
}

#[test]
fn a_handshake_that_is_half_done_goes_on() {
    let mut world = World::new("memory");
    // One connection has sent nothing, one has still to ask, and one is in the middle of that.
    let mut begun: Vec<TcpStream> = (0..3)
        .map(|_| TcpStream::connect(("127.0.0.1", world.socks)).unwrap())
        .collect();
    let greeting = b"\x05\x01\x00";
    let port = world.origin.to_be_bytes();
    let request = [&b"\x05\x01\x00\x01\x7f\x00\x00\x01"[..], &port].concat();
    for socket in &mut begun {
        socket
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
    }
    for socket in &mut begun[1..] {
        socket.write_all(greeting).unwrap();
        let mut answer = [0; 2];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [5, 0]);
    }
    begun[2].write_all(&request[..5]).unwrap();
    world.terminal.upgrade();
    world.gate.open(BYTES / PART);
    begun[0].write_all(greeting).unwrap();
    begun[0].read_exact(&mut [0; 2]).unwrap();
    begun[2].write_all(&request[5..]).unwrap();
    for socket in &mut begun[..2] {
        socket.write_all(&request).unwrap();
    }
    for (number, socket) in begun.iter_mut().enumerate() {
        let mut answer = [0; 10];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(answer[1], 0, "{number}: {}", world.logs());
        socket.write_all(b"GET\n").unwrap();
        let mut got = Vec::new();
        socket.read_to_end(&mut got).unwrap();
        assert!(got == content(BYTES), "{number}: {}", world.logs());
    }
}
