//! A TCP connection over loopback in a network namespace of its own, and the kernel's view of it.

use std::io::{self, Read, Write};
use std::mem;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread::{self, JoinHandle};

use nix::sched::{CloneFlags, unshare};
use socket2::{Domain, Socket, Type};

/// Moves this thread into a new network namespace, which ends with its threads and sockets.
pub fn enter_own_network() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    // Like a real path: Ethernet's MTU, and segments that are lost one by one.
    run(
        "ip",
        &[
            "link",
            "set",
            "lo",
            "mtu",
            "1500",
            "gso_max_segs",
            "1",
            "up",
        ],
    )
}

/// Drops this share of the segments that arrive, at random.
pub fn lose(percent: u32) -> io::Result<()> {
    drop_arrivals(&format!("numgen random mod 100 < {percent} drop"))
}

/// Starts or stops dropping everything that arrives, after the rule of [`lose`].
pub fn block(blocks: bool) -> io::Result<()> {
    match blocks {
        true => rule("drop"),
        false => run("nft", &["flush", "chain", "ip", "loss", "arrivals"]),
    }
}

/// Drops what exceeds a rate, kB/s, as a policer does.
pub fn police(kilobytes_per_s: u32) -> io::Result<()> {
    drop_arrivals(&format!(
        "limit rate over {kilobytes_per_s} kbytes/second burst 64 kbytes drop"
    ))
}

fn drop_arrivals(drop: &str) -> io::Result<()> {
    run("nft", &["add", "table", "ip", "loss"])?;
    run(
        "nft",
        &[
            "add",
            "chain",
            "ip",
            "loss",
            "arrivals",
            "{ type filter hook input priority 0; }",
        ],
    )?;
    rule(drop)
}

fn rule(drop: &str) -> io::Result<()> {
    run(
        "nft",
        &[
            "add", "rule", "ip", "loss", "arrivals", "tcp", "dport", "5001", drop,
        ],
    )
}

fn run(program: &str, arguments: &[&str]) -> io::Result<()> {
    let output = Command::new(program).args(arguments).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{program} {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

/// A sender under test and a receiver that reads until the end.
pub struct Connection {
    pub sender: TcpStream,
    receiver: JoinHandle<io::Result<Vec<u8>>>,
}

impl Connection {
    /// Sets the control and the rate before the connection is made, as a node does.
    pub fn open(control: &str, max_pacing_rate: Option<u64>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 5001))?;
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_tcp_congestion(control.as_bytes())?;
        if let Some(rate) = max_pacing_rate {
            set_max_pacing_rate(&socket, rate)?;
        }
        socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, 5001)).into())?;
        let (mut accepted, _) = listener.accept()?;
        let receiver = thread::spawn(move || {
            let mut bytes = Vec::new();
            accepted.read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        Ok(Self {
            sender: socket.into(),
            receiver,
        })
    }

    /// The kernel's figures of the sender.
    pub fn figures(&self) -> io::Result<libc::tcp_info> {
        // SAFETY: tcp_info holds integers only, for which zero is a value.
        let mut info: libc::tcp_info = unsafe { mem::zeroed() };
        let mut length = mem::size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: the pointers are to a live value and its length.
        let result = unsafe {
            libc::getsockopt(
                self.sender.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut info).cast(),
                &raw mut length,
            )
        };
        if result == 0 {
            Ok(info)
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Writes all of `bytes`, and passes the kernel's figures to `look` again and again until
    /// they are acknowledged.
    pub fn send(&self, bytes: &[u8], mut look: impl FnMut(libc::tcp_info)) -> io::Result<()> {
        self.sender.set_nonblocking(true)?;
        let mut rest = bytes;
        loop {
            match (&self.sender).write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            let info = self.figures()?;
            look(info);
            if rest.is_empty() && info.tcpi_unacked == 0 && info.tcpi_notsent_bytes == 0 {
                return Ok(());
            }
            thread::yield_now();
        }
    }

    /// Ends the connection and returns what has arrived.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        self.sender.shutdown(std::net::Shutdown::Write)?;
        self.receiver.join().expect("the receiver does not panic")
    }
}

/// SO_MAX_PACING_RATE, in bytes per second.
pub fn set_max_pacing_rate(socket: &impl AsRawFd, rate: u64) -> io::Result<()> {
    // SAFETY: the pointer is to a live integer of the length given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const rate).cast(),
            mem::size_of::<u64>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Bytes that reveal a gap or a repetition.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8)
        .collect()
}
