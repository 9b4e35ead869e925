//! One live run: the program between two network namespaces.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, gettid};
use satlink::control::{BeamStatistics, Request, send};

/// What takes longer than this never comes, however loaded the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `work` on a thread in a namespace of its own; gives the namespace's
/// path once it is made, if it may be made.
fn in_namespace<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<(String, thread::JoinHandle<Option<T>>)> {
    let (sender, path) = mpsc::channel();
    let handle = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).ok()?;
        let path = format!("/proc/{}/task/{}/ns/net", std::process::id(), gettid());
        sender.send(path).ok()?;
        Some(work())
    });
    path.recv().ok().map(|path| (path, handle))
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn stats(socket: &Path) -> BeamStatistics {
    send(socket, &Request::Stats {}).unwrap().stats.unwrap()
}

fn devices() -> String {
    fs::read_to_string("/proc/thread-self/net/dev").unwrap()
}

/// Waits for a socket bound to an address that comes with the device.
fn bind(address: &str) -> UdpSocket {
    let begin = Instant::now();
    loop {
        match UdpSocket::bind(address) {
            Ok(socket) => {
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                return socket;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::AddrNotAvailable),
        }
        assert!(begin.elapsed() < PATIENCE, "no device came up");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Echoes until it gets an empty datagram; says what devices are left when
/// the emulator has ended.
fn echo_then_watch_devices_go() -> String {
    let socket = bind("[fd77::1]:7000");
    let mut buffer = [0; 2000];
    loop {
        let (bytes, from) = socket.recv_from(&mut buffer).unwrap();
        if bytes == 0 {
            break;
        }
        socket.send_to(&buffer[..bytes], from).unwrap();
    }
    let begin = Instant::now();
    while devices().contains("sat0") && begin.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(5));
    }
    devices()
}

/// Two echoes with a blockage between them, then the end.
fn probe(orders: mpsc::Receiver<&'static [u8]>, echoes: mpsc::Sender<Duration>) {
    let socket = bind("[fd77::2]:7001");
    for order in orders {
        let begin = Instant::now();
        socket.send_to(order, "[fd77::1]:7000").unwrap();
        if order.starts_with(b"echo") {
            socket.recv_from(&mut [0; 2000]).unwrap();
            echoes.send(begin.elapsed()).unwrap();
        }
    }
}

#[test]
fn packets_cross_namespaces_with_delay_and_blockage_and_nothing_stays_behind() {
    let (orders, take_orders) = mpsc::channel();
    let (put_echoes, echoes) = mpsc::channel();
    let hub = in_namespace(echo_then_watch_devices_go);
    let terminal = in_namespace(move || probe(take_orders, put_echoes));
    let (Some((hub, watch)), Some((terminal, _))) = (hub, terminal) else {
        skipped::because("network namespaces cannot be made here (root needed)");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let config = directory.path().join("beam.toml");
    let text = format!(
        "socket = {socket:?}\nrealtime = false\n\
         [hub]\nnetns = {hub:?}\ndevice = \"sat0\"\naddresses = [\"10.77.0.1/24\", \"fd77::1/64\"]\n\
         [[terminal]]\nname = \"t1\"\nnetns = {terminal:?}\ndevice = \"sat0\"\n\
         addresses = [\"fd77::2/64\"]\nroutes = [\"0.0.0.0/0\", \"::/0\"]\n\
         forward = {{ delay_ms = 100 }}\nreturn = {{ delay_ms = 150, rate_bps = 10000000 }}\n"
    );
    fs::write(&config, text).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_satlink"))
        .args(["run", "--config"])
        .arg(&config)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut running = Running(child);
    let mut ready = String::new();
    let output = running.0.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut ready).unwrap();
    assert!(ready.starts_with("ready"), "{ready:?}");

    orders.send(b"echo one").unwrap();
    let first = echoes.recv_timeout(PATIENCE).unwrap();
    assert!(first >= Duration::from_millis(250), "{first:?}");

    let ask = |request| assert!(send(&socket, &request).unwrap().ok);
    let terminal = || Some("t1".to_owned());
    ask(Request::Block {
        terminal: terminal(),
        for_s: None,
    });
    orders.send(b"into the tunnel").unwrap();
    let begin = Instant::now();
    while stats(&socket).terminals["t1"].ret.counts.blocked_packets == 0 {
        assert!(begin.elapsed() < PATIENCE, "the packet was not dropped");
        thread::sleep(Duration::from_millis(5));
    }
    ask(Request::Unblock {
        terminal: terminal(),
    });
    orders.send(b"echo two").unwrap();
    echoes.recv_timeout(PATIENCE).unwrap();

    let seen = stats(&socket);
    let counts = |link: &satlink::control::LinkReport| {
        (
            link.counts.packets_in,
            link.counts.packets_out,
            link.counts.blocked_packets,
        )
    };
    assert_eq!(counts(&seen.terminals["t1"].ret), (3, 2, 1));
    assert_eq!(counts(&seen.terminals["t1"].forward), (2, 2, 0));
    assert_eq!(seen.unread_packets, 0);

    orders.send(b"").unwrap();
    let begin = Instant::now();
    while stats(&socket).terminals["t1"].ret.counts.packets_out < 3 {
        assert!(begin.elapsed() < PATIENCE, "the last packet did not arrive");
        thread::sleep(Duration::from_millis(5));
    }
    kill(Pid::from_raw(running.0.id() as i32), Signal::SIGTERM).unwrap();
    assert!(running.0.wait().unwrap().success());
    assert!(!socket.exists());
    let left = watch.join().unwrap().unwrap();
    assert!(!left.contains("sat0"), "{left}");
}
