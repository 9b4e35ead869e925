//! `underpass top` on a real terminal, with a node that comes and goes.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;

use crate::node::{HUB, LISTENER, Node, PROGRAM};

const PATIENCE: Duration = Duration::from_secs(60);

fn hub() -> Node {
    Node::start(&[HUB, LISTENER].concat(), |_| {})
}

/// The program on a terminal whose output is collected.
struct Top {
    child: Child,
    pty: OpenptyResult,
    output: Arc<Mutex<Vec<u8>>>,
}

impl Top {
    fn start(socket: &str) -> Top {
        let size = Winsize {
            ws_row: 40,
            ws_col: 150,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None).unwrap();
        let terminal = || Stdio::from(pty.slave.try_clone().unwrap());
        let child = Command::new(PROGRAM)
            .args(["top", "--interval-s", "0.2", "--socket", socket])
            .env("TERM", "xterm-256color")
            .stdin(terminal())
            .stdout(terminal())
            .stderr(terminal())
            .spawn()
            .unwrap();
        let output = Arc::new(Mutex::new(Vec::new()));
        let (mut master, gathered) = (File::from(pty.master.try_clone().unwrap()), output.clone());
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(length @ 1..) = master.read(&mut some) {
                gathered.lock().unwrap().extend(&some[..length]);
            }
        });
        Top { child, pty, output }
    }

    fn seen(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    /// Waits until `text` is drawn, at or after the output's offset `from`.
    fn until(&self, from: usize, text: &str) {
        let started = Instant::now();
        while !self
            .seen()
            .get(from..)
            .is_some_and(|new| new.contains(text))
        {
            assert!(started.elapsed() < PATIENCE, "no {text}: {:?}", self.seen());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn press(&self, keys: &str) {
        let mut master = File::from(self.pty.master.try_clone().unwrap());
        master.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for its end; the terminal must be in its original state.
    fn ends_well(mut self) {
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        let flags = tcgetattr(&self.pty.slave).unwrap().local_flags;
        assert!(flags.contains(LocalFlags::ECHO | LocalFlags::ICANON));
        self.until(0, "\x1b[?1049l");
        self.until(self.seen().rfind("\x1b[?1049l").unwrap(), "\x1b[?25h");
    }
}

#[test]
fn top_watches_a_node_that_goes_and_comes_back_and_ends_at_control_c() {
    let mut node = hub();
    let top = Top::start(node.socket().to_str().unwrap());
    top.until(0, "ipn:1.0");
    node.kill();
    top.until(0, "no node answers at");
    let before = top.seen().len();
    node.start_again();
    top.until(before, "the node has started again");
    top.press("\x03");
    top.ends_well();
}

#[test]
fn a_signal_gives_the_terminal_back() {
    let top = Top::start("/nonexistent/api.sock");
    top.until(0, "no node answers at");
    let id = Pid::from_raw(i32::try_from(top.child.id()).unwrap());
    kill(id, Signal::SIGTERM).unwrap();
    top.ends_well();
}

#[test]
fn without_a_terminal_it_says_what_to_do_and_once_prints_a_table() {
    let node = hub();
    let socket = node.socket();
    let top = |arguments: &[&str]| {
        let run = Command::new(PROGRAM)
            .arg("top")
            .args(arguments)
            .arg("--socket")
            .arg(&socket)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (run.status.success(), text(run.stdout), text(run.stderr))
    };
    let (well, table, complaint) = top(&[]);
    assert!(!well && table.is_empty());
    assert!(complaint.contains("top --once"), "{complaint}");
    let (well, table, complaint) = top(&["--once", "--interval-s", "0.2"]);
    assert!(well, "{complaint}");
    assert!(table.contains("PATH") && table.contains("CLASS"), "{table}");
    assert!(!table.contains('\x1b'), "{table:?}");
}
