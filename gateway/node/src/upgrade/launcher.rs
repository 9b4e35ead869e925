//! Starts the next program: a process with the rights that the node was started with, since the
//! node itself has dropped them.
//!
//! It is the same program, started before the node confines itself. It reads only two requests, and
//! only from the node: to start the node's program, from the path and with the arguments of the
//! node's own start, and to end what it has started. So an attacker who controls the node can run
//! no other program, and no more than one at a time; and that program confines itself before it
//! reads a byte from the node.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::dup2_stdin;
use serde::{Deserialize, Serialize};

use super::channel::Channel;
use crate::cli::{LAUNCHER, TAKE_OVER};

/// Starting a program takes some milliseconds, on a loaded machine more.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the program may take to end by itself, which lets it tell the peers of its sessions.
const OWN_END: Duration = Duration::from_secs(1);
/// How often this checks whether it has.
const GLANCE: Duration = Duration::from_millis(5);

#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// Starts the program; one open file follows, for its standard input.
    Start,
    /// Waits for its end, and kills it if that does not come soon.
    Kill,
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Started(u32),
    Killed,
    Failed(String),
}

/// A request or its answer, with the request's number: the answer to an abandoned request may still
/// come.
#[derive(Debug, Serialize, Deserialize)]
struct Numbered<T> {
    number: u64,
    content: T,
}

/// The running launcher; it ends when this is dropped.
#[derive(Debug)]
pub struct Launcher {
    /// None once it has been ended.
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    channel: Channel,
    child: Child,
    /// The number of the last request.
    asked: u64,
}

impl Launcher {
    /// Starts it, with the rights of this thread.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start() -> io::Result<Launcher> {
        let (channel, its) = Channel::pair()?;
        channel.set_patience(Some(PATIENCE))?;
        // The next program will have this name, too.
        let program = std::env::current_exe()?;
        let child = Command::new("/proc/self/exe")
            .arg(LAUNCHER)
            .arg(program)
            .args(own_arguments())
            .stdin(Stdio::from(OwnedFd::from(its)))
            .spawn()?;
        Ok(Launcher {
            running: Mutex::new(Some(Running {
                channel,
                child,
                asked: 0,
            })),
        })
    }

    /// Starts the program that is at this one's path now, with `input` as its
    /// standard input; its process.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn launch(&self, input: UnixStream) -> io::Result<u32> {
        match self.ask(Request::Start, Some(&input))? {
            Answer::Started(id) => Ok(id),
            Answer::Failed(reason) => Err(io::Error::other(reason)),
            Answer::Killed => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Waits for the end of the program that was started last, and kills it if it is still there
    /// after a second.
    ///
    /// # Errors
    /// When the launcher has ended; then the program may be running.
    pub fn kill(&self) -> io::Result<()> {
        match self.ask(Request::Kill, None)? {
            Answer::Killed => Ok(()),
            Answer::Failed(reason) => Err(io::Error::other(reason)),
            Answer::Started(_) => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Ends the launcher, but not the program that it has started.
    pub fn end(&self) {
        let running = self.running.lock().unwrap().take();
        if let Some(Running {
            channel, mut child, ..
        }) = running
        {
            drop(channel);
            let _ = child.wait();
        }
    }

    fn ask(&self, request: Request, input: Option<&UnixStream>) -> io::Result<Answer> {
        let mut running = self.running.lock().unwrap();
        let gone = || io::Error::other("the launcher has ended");
        let Running { channel, asked, .. } = running.as_mut().ok_or_else(gone)?;
        *asked += 1;
        channel.send(&Numbered {
            number: *asked,
            content: request,
        })?;
        if let Some(input) = input {
            channel.send_files(&[input.as_fd()])?;
        }
        loop {
            let answer: Numbered<Answer> = channel.receive()?;
            if answer.number == *asked {
                return Ok(answer.content);
            }
        }
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        self.end();
    }
}

/// The arguments of this process, except those that say how it was started.
fn own_arguments() -> impl Iterator<Item = OsString> {
    let arguments = std::env::args_os().skip(1);
    arguments.filter(|argument| argument != TAKE_OVER)
}

/// Serves the node at the other end of standard input until it ends, in
/// whatever way.
///
/// # Errors
/// When it was not started by a node.
pub fn serve(program: &Path, arguments: &[OsString]) -> io::Result<()> {
    // systemd and a terminal signal the whole group; the node decides when
    // this ends.
    set_signals(SigHandler::SigIgn);
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    socket.peer_addr()?;
    // Other processes must not inherit it.
    dup2_stdin(File::open("/dev/null")?).map_err(io::Error::from)?;
    let mut channel = Channel::of(socket);
    let mut started: Option<Child> = None;
    while let Ok(request) = channel.receive::<Numbered<Request>>() {
        let answer = match request.content {
            Request::Start => {
                let mut input = channel.receive_files(1)?;
                match (input.pop(), is_running(&mut started)) {
                    (Some(input), false) => launch(program, arguments, input, &mut started),
                    _ => Answer::Failed("the program before is still running".to_owned()),
                }
            }
            Request::Kill => {
                if let Some(child) = started.take() {
                    end(child, OWN_END)?;
                }
                Answer::Killed
            }
        };
        let answer = Numbered {
            number: request.number,
            content: answer,
        };
        if channel.send(&answer).is_err() {
            break;
        }
    }
    Ok(())
}

/// Sets the handler of the signals that stop, reload and upgrade a node.
fn set_signals(handler: SigHandler) {
    let ours = [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGUSR2,
    ];
    for ours in ours {
        // SAFETY: neither to ignore a signal nor its default runs any code.
        let _ = unsafe { signal(ours, handler) };
    }
}

fn is_running(started: &mut Option<Child>) -> bool {
    let ended = started.as_mut().map(Child::try_wait);
    matches!(ended, Some(Ok(None)))
}

/// Kills a process that does not end by itself within `patience`.
fn end(mut child: Child, patience: Duration) -> io::Result<ExitStatus> {
    let until = Instant::now() + patience;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
        std::thread::sleep(GLANCE);
    }
    // This does nothing to one that has ended.
    let _ = child.kill();
    child.wait()
}

fn launch(
    program: &Path,
    arguments: &[OsString],
    input: OwnedFd,
    started: &mut Option<Child>,
) -> Answer {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .arg(TAKE_OVER)
        .stdin(Stdio::from(input));
    // SAFETY: between fork and exec, this makes system calls alone.
    unsafe {
        command.pre_exec(|| {
            set_signals(SigHandler::SigDfl);
            Ok(())
        });
    }
    match command.spawn() {
        Ok(child) => {
            let id = child.id();
            *started = Some(child);
            Answer::Started(id)
        }
        Err(error) => Answer::Failed(format!("{}: {error}", program.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_program_that_ends_by_itself_is_not_killed_and_any_other_is() {
        let run = |script: &str, patience| {
            let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
            let status = end(child, patience).unwrap();
            (status.code(), status.signal())
        };
        let ended = run("sleep 0.2; exit 7", Duration::from_secs(60));
        assert_eq!(ended, (Some(7), None));
        let killed = run("exec sleep 1000", Duration::ZERO);
        assert_eq!(killed, (None, Some(Signal::SIGKILL as i32)));
    }

    #[test]
    fn an_answer_that_comes_too_late_is_not_taken_for_that_to_the_next_request() {
        let (channel, its) = Channel::pair().unwrap();
        let patience = Duration::from_millis(500);
        channel.set_patience(Some(patience)).unwrap();
        let running = Running {
            channel,
            child: Command::new("true").spawn().unwrap(),
            asked: 0,
        };
        let launcher = Launcher {
            running: Mutex::new(Some(running)),
        };
        let (input, _other) = UnixStream::pair().unwrap();
        assert!(launcher.launch(input).is_err(), "nobody answers");
        let mut its = Channel::of(its);
        let late: Numbered<Request> = its.receive().unwrap();
        its.receive_files(1).unwrap();
        let mut answer = |number: u64, content: Answer| {
            its.send(&Numbered { number, content }).unwrap();
        };
        answer(late.number, Answer::Started(7));
        answer(late.number + 1, Answer::Killed);
        launcher.kill().unwrap();
    }
}
