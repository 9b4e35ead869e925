//! Three namespaces in a row: client, gateway, origin, dual-stack.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

static NEXT: AtomicU32 = AtomicU32::new(0);

pub const CLIENT: [&str; 2] = ["10.77.1.2", "fd77:1::2"];
pub const GATEWAY: [&str; 2] = ["10.77.2.1", "fd77:2::1"];
pub const ORIGIN: [&str; 2] = ["10.77.2.2", "fd77:2::2"];
pub const PORT: u16 = 7000;

/// An event that takes longer than this never comes, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct World {
    prefix: String,
}

/// Whether the tests can run here; prints a message if not.
#[track_caller]
pub fn able() -> bool {
    // SAFETY: geteuid takes nothing and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    let tools = ["ip", "nft"]
        .iter()
        .all(|tool| Command::new(tool).arg("-V").output().is_ok());
    if !(root && tools) {
        skipped::because("needs root, ip and nft");
    }
    root && tools
}

pub fn sh(script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{errors}");
    String::from_utf8(output.stdout).unwrap()
}

impl World {
    pub fn new() -> World {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("ue{}x{number}", std::process::id());
        let world = World { prefix };
        let (c, g, o) = (world.ns('c'), world.ns('g'), world.ns('o'));
        sh(&format!(
            "for n in {c} {g} {o}; do ip netns add $n; ip -n $n link set lo up
               ip netns exec $n sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.accept_dad=0
             done
             ip -n {g} link add toc type veth peer name eth0 netns {c}
             ip -n {g} link add too type veth peer name eth0 netns {o}
             ip netns exec {g} sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
             ip -n {g} addr add 10.77.1.1/24 dev toc; ip -n {g} addr add fd77:1::1/64 dev toc nodad
             ip -n {g} addr add 10.77.2.1/24 dev too; ip -n {g} addr add fd77:2::1/64 dev too nodad
             ip -n {c} addr add 10.77.1.2/24 dev eth0; ip -n {c} addr add fd77:1::2/64 dev eth0 nodad
             ip -n {o} addr add 10.77.2.2/24 dev eth0; ip -n {o} addr add fd77:2::2/64 dev eth0 nodad
             ip -n {g} link set toc up; ip -n {g} link set too up
             for n in {c} {o}; do ip -n $n link set eth0 up; done
             ip -n {c} route add default via 10.77.1.1; ip -n {c} -6 route add default via fd77:1::1
             ip -n {o} route add default via 10.77.2.1; ip -n {o} -6 route add default via fd77:2::1"
        ));
        let listener = world.inside('o', || TcpListener::bind(("::", PORT)).unwrap());
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                thread::spawn(move || serve(socket));
            }
        });
        world
    }

    pub fn ns(&self, which: char) -> String {
        format!("{}{which}", self.prefix)
    }

    /// Runs `work` on a thread inside a namespace.
    pub fn inside<T: Send + 'static>(
        &self,
        which: char,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let file = File::open(format!("/run/netns/{}", self.ns(which))).unwrap();
        let thread = thread::spawn(move || {
            // SAFETY: setns affects this thread alone; the descriptor is open.
            let entered = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
            assert_eq!(entered, 0);
            work()
        });
        thread.join().unwrap()
    }

    /// Connects from the client; returns the source address that the origin sees.
    pub fn connect(&self, origin: &str) -> std::io::Result<(TcpStream, IpAddr)> {
        let address = SocketAddr::new(origin.parse().unwrap(), PORT);
        let mut socket =
            self.inside('c', move || TcpStream::connect_timeout(&address, PATIENCE))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let source = line(&mut socket)?.parse().unwrap();
        Ok((socket, source))
    }

    pub fn nft(&self, arguments: &str) -> String {
        sh(&format!("ip netns exec {} nft {arguments}", self.ns('g')))
    }

    /// The gateway's routing rules, of both families.
    pub fn ip_rules(&self) -> String {
        sh(&format!("ip -n {0} rule; ip -n {0} -6 rule", self.ns('g')))
    }

    /// Starts an edge in the gateway's namespace.
    pub fn gateway(&self, config: &str) -> Gateway {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.ns('g')])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "gateway::process", "--nocapture"])
            .env("UNDERPASS_EDGE_TEST", config)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut gateway = Gateway {
            namespace: self.ns('g'),
            child,
            input: Some(input),
            output,
        };
        gateway.answer();
        gateway
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for which in ['c', 'g', 'o'] {
            let _ = Command::new("ip")
                .args(["netns", "del", &self.ns(which)])
                .output();
        }
    }
}

/// Sends the client its address, then echoes its bytes.
fn serve(mut socket: TcpStream) {
    let source = socket.peer_addr().unwrap().ip().to_canonical();
    let _ = socket.write_all(format!("{source}\n").as_bytes());
    let mut block = [0; 1024];
    while let Ok(count @ 1..) = socket.read(&mut block) {
        let _ = socket.write_all(&block[..count]);
    }
}

pub fn line(socket: &mut TcpStream) -> std::io::Result<String> {
    let mut read = String::new();
    loop {
        let mut octet = [0];
        socket.read_exact(&mut octet)?;
        if octet[0] == b'\n' {
            return Ok(read);
        }
        read.push(octet[0].into());
    }
}

/// The edge's process.
pub struct Gateway {
    namespace: String,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Gateway {
    /// Sends a command and waits for its answer.
    pub fn command(&mut self, command: &str) -> String {
        writeln!(self.input.as_mut().unwrap(), "{command}").unwrap();
        self.answer()
    }

    fn answer(&mut self) -> String {
        for line in self.output.by_ref().lines() {
            if let Some((_, answer)) = line.unwrap().split_once("answer: ") {
                return answer.to_owned();
            }
        }
        panic!("the gateway has ended");
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        // The owner of the rules sees the end of its input, and removes them.
        let list = format!("ip netns exec {} nft list ruleset", self.namespace);
        let killed = Instant::now();
        while sh(&list).contains("flags owner") {
            assert!(killed.elapsed() < PATIENCE, "the rules stay");
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn end(mut self) {
        self.input = None;
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
