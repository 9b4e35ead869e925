//! The socket's side of the running program.
//!
//! Connections have threads of their own, so that a slow client delays no
//! packet; the emulation takes whole requests from a channel.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread;

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::{Reply, Request};

/// Bytes of the longest line that is taken.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Clients that are served at once.
const MAX_CLIENTS: usize = 64;

/// A request and where its reply goes.
#[derive(Debug)]
pub struct Command {
    /// What is asked.
    pub request: Request,
    /// For one reply.
    pub reply: SyncSender<Reply>,
}

/// A listening control socket; its file is removed when dropped.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    commands: Receiver<Command>,
    wake: Arc<EventFd>,
}

impl Server {
    /// Listens at `path`. A file left there by a program that has ended is
    /// replaced; one that answers is not.
    pub fn listen(path: &Path) -> io::Result<Self> {
        if UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another satlink answers there",
            ));
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let wake = Arc::new(EventFd::from_value_and_flags(0, flags)?);
        let (sender, commands) = mpsc::channel();
        let desk = Desk {
            sender,
            wake: Arc::clone(&wake),
        };
        thread::Builder::new()
            .name("control".into())
            .spawn(move || accept(&listener, &desk))?;
        Ok(Server {
            path: path.to_owned(),
            commands,
            wake,
        })
    }

    /// Readable when a command may be waiting.
    pub fn wake(&self) -> &EventFd {
        &self.wake
    }

    /// The next command, if one waits.
    pub fn next_command(&self) -> Option<Command> {
        // Cleared before the channel is read, so that no wake-up is missed.
        // An error means that it was clear already.
        let _ = self.wake.read();
        self.commands.try_recv().ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already, which is as well.
        let _ = fs::remove_file(&self.path);
    }
}

/// Where connections hand in commands.
#[derive(Clone)]
struct Desk {
    sender: Sender<Command>,
    wake: Arc<EventFd>,
}

impl Desk {
    /// Lets a request be carried out; `None` when the program is ending.
    fn ask(&self, request: Request) -> Option<Reply> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.sender.send(Command { request, reply }).ok()?;
        self.wake.write(1).ok()?;
        answer.recv().ok()
    }
}

fn accept(listener: &UnixListener, desk: &Desk) {
    let clients = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming().flatten() {
        if clients.fetch_add(1, Ordering::Relaxed) >= MAX_CLIENTS {
            clients.fetch_sub(1, Ordering::Relaxed);
            // Whether the client hears why is up to the client.
            let _ = answer(&stream, &Reply::refused("too many connections"));
            continue;
        }
        let (desk, clients) = (desk.clone(), Arc::clone(&clients));
        thread::spawn(move || {
            // A connection that breaks concerns its client alone.
            let _ = serve(&stream, &desk);
            clients.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn serve(stream: &UnixStream, desk: &Desk) -> io::Result<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        lines
            .by_ref()
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        if line.last() != Some(&b'\n') && line.len() as u64 == MAX_LINE_BYTES {
            return answer(stream, &Reply::refused("the line is too long"));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let reply = match serde_json::from_slice(&line) {
            Ok(request) => match desk.ask(request) {
                Some(reply) => reply,
                None => return Ok(()),
            },
            Err(error) => Reply::refused(format!("bad request: {error}")),
        };
        answer(stream, &reply)?;
    }
}

fn answer(mut stream: &UnixStream, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    stream.write_all(&line)
}
