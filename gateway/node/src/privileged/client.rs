//! The node's end of the helper.

use std::collections::BTreeMap;
use std::io::{self, BufReader};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use thiserror::Error;
use underpass_edge::Switch;
use underpass_edge::dial::Families;
use underpass_edge::transparent::{Beyond, PlainBytes};
use underpass_hybla::{Choice, Refused};

use super::requests::{Answer, Begin, Intercept, Request, receive, send};
use crate::cli::HELPER;
use crate::path_manager::Wanted;

/// nft waits for the kernel to take rules, and a BPF program is verified: some
/// seconds on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often the client asks whether a program has ended.
const GLANCE: Duration = Duration::from_millis(50);

/// Why the helper did not do it.
#[derive(Debug, Error)]
pub enum HelperError {
    #[error("the helper does not start: {0}")]
    Start(io::Error),
    /// It has ended, or does not answer.
    #[error("the helper has ended")]
    Lost,
    /// It tried.
    #[error("{0}")]
    Failed(String),
}

/// The running helper; it ends when this is dropped. Calls block for some
/// milliseconds.
#[derive(Debug)]
pub struct Helper {
    socket: Mutex<Option<BufReader<UnixStream>>>,
    /// None if another process has started it, or has it now.
    child: Mutex<Option<Child>>,
}

/// A helper that takes no requests until this is dropped.
#[derive(Debug)]
pub struct HeldHelper<'a> {
    helper: &'a Helper,
    socket: MutexGuard<'a, Option<BufReader<UnixStream>>>,
}

impl HeldHelper<'_> {
    /// Its socket.
    ///
    /// # Errors
    /// When it has ended.
    pub fn socket(&self) -> io::Result<BorrowedFd<'_>> {
        let socket = self.socket.as_ref();
        let socket = socket.ok_or_else(|| io::Error::other(HelperError::Lost))?;
        Ok(socket.get_ref().as_fd())
    }

    /// Leaves it to another process.
    pub fn leave(mut self) {
        *self.socket = None;
        *self.helper.child.lock().unwrap() = None;
    }
}

impl Helper {
    /// Starts it, with the rights of this thread.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(begin: Begin) -> Result<Helper, HelperError> {
        let (socket, its) = UnixStream::pair().map_err(HelperError::Start)?;
        let child = Command::new("/proc/self/exe")
            .arg(HELPER)
            .stdin(Stdio::from(OwnedFd::from(its)))
            .stdout(Stdio::null())
            .spawn()
            .map_err(HelperError::Start)?;
        socket
            .set_read_timeout(Some(PATIENCE))
            .map_err(HelperError::Start)?;
        let helper = Helper {
            socket: Mutex::new(Some(BufReader::new(socket))),
            child: Mutex::new(Some(child)),
        };
        helper.done(&Request::Begin(begin))?;
        Ok(helper)
    }

    /// The helper of another process of this node.
    pub fn of_predecessor(socket: UnixStream) -> Helper {
        Helper {
            socket: Mutex::new(Some(BufReader::new(socket))),
            child: Mutex::new(None),
        }
    }

    /// Stops it from serving this process, after its present request.
    pub fn hold(&self) -> HeldHelper<'_> {
        HeldHelper {
            helper: self,
            socket: self.socket.lock().unwrap(),
        }
    }

    /// Makes the first possible congestion control of `list` usable.
    ///
    /// # Errors
    /// When the helper has ended.
    pub fn choose(&self, list: &[String]) -> Result<Choice, HelperError> {
        match self.ask(&Request::Choose(list.to_vec()))? {
            Answer::Choice { name, refused } => {
                let refused = refused.into_iter();
                let refused = refused.map(|(name, reason)| Refused { name, reason });
                Ok(Choice {
                    name,
                    refused: refused.collect(),
                })
            }
            other => Err(unexpected(other)),
        }
    }

    /// Installs the interception rules.
    ///
    /// # Errors
    /// When nft or ip fail.
    pub fn intercept(&self, intercept: Intercept) -> Result<(), HelperError> {
        self.done(&Request::Intercept(Box::new(intercept)))
    }

    /// Changes what they take in.
    ///
    /// # Errors
    /// When nft refuses; what was in force then stays.
    pub fn switch(&self, switch: Switch, families: Families) -> Result<(), HelperError> {
        self.done(&Request::Switch { switch, families })
    }

    /// Changes the hops whose plain IP they count.
    ///
    /// # Errors
    /// When nft refuses; what was in force then stays.
    pub fn set_hops(
        &self,
        switch: Switch,
        families: Families,
        hops: BTreeMap<u64, Beyond>,
    ) -> Result<(), HelperError> {
        self.done(&Request::Hops {
            switch,
            families,
            hops,
        })
    }

    pub fn is_in_force(&self) -> bool {
        matches!(self.ask(&Request::InForce), Ok(Answer::InForce(true)))
    }

    /// What the rules have counted.
    ///
    /// # Errors
    /// When nft fails.
    pub fn count(&self) -> Result<PlainBytes, HelperError> {
        match self.ask(&Request::Count)? {
            Answer::Count(bytes) => Ok(bytes),
            other => Err(unexpected(other)),
        }
    }

    /// Removes the rules.
    ///
    /// # Errors
    /// When the helper has ended.
    pub fn release(&self) -> Result<(), HelperError> {
        self.done(&Request::Release)
    }

    /// Sets MPTCP endpoints and limits, until the helper ends. Returns what could not be set, for
    /// an operator to read.
    ///
    /// # Errors
    /// When the helper has ended, or was not started for that.
    pub fn manage_paths(&self, wanted: Wanted) -> Result<Vec<String>, HelperError> {
        match self.ask(&Request::ManagePaths(wanted))? {
            Answer::ManagedPaths(problems) => Ok(problems),
            other => Err(unexpected(other)),
        }
    }

    /// Runs the program that brings a path up, or releases it, until it ends.
    ///
    /// # Errors
    /// When there is none, or it fails or takes too long.
    pub fn run(&self, path: &str, raise: bool) -> Result<(), HelperError> {
        let path = path.to_owned();
        self.done(&Request::Run {
            path: path.clone(),
            raise,
        })?;
        loop {
            match self.ask(&Request::Ran { path: path.clone() })? {
                Answer::Done => return Ok(()),
                Answer::Running => std::thread::sleep(GLANCE),
                other => return Err(unexpected(other)),
            }
        }
    }

    fn done(&self, request: &Request) -> Result<(), HelperError> {
        match self.ask(request)? {
            Answer::Done => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    fn ask(&self, request: &Request) -> Result<Answer, HelperError> {
        let mut place = self.socket.lock().unwrap();
        let socket = place.as_mut().ok_or(HelperError::Lost)?;
        let sent = send(socket.get_mut(), request);
        match sent.and_then(|()| receive(socket)) {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) | Err(_) => {
                // A late answer would be taken for the answer to the next request.
                *place = None;
                tracing::error!("the helper has ended");
                Err(HelperError::Lost)
            }
        }
    }
}

fn unexpected(answer: Answer) -> HelperError {
    match answer {
        Answer::Failed(reason) => HelperError::Failed(reason),
        other => HelperError::Failed(format!("the helper's answer is {other:?}")),
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let place = self.socket.get_mut();
        if let Some(socket) = place.unwrap() {
            let _ = socket.get_ref().shutdown(Shutdown::Both);
        }
        let child = self.child.get_mut();
        if let Some(child) = child.unwrap() {
            let _ = child.wait();
        }
    }
}
