//! The helper's end: a process of its own.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use caps::Capability;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::dup2_stdin;
use thiserror::Error;
use underpass_edge::transparent::Interception;
use underpass_hybla::Loader;

use super::commands::Commands;
use super::requests::{Answer, Begin, Request, receive, send};
use crate::confinement;
use crate::path_manager::PathManager;

/// Why the helper ends before the node does.
#[derive(Debug, Error)]
pub enum ServeError {
    #[error("the helper is started by `underpass run` alone: {0}")]
    Socket(#[from] io::Error),
    /// The first message says nothing of use.
    #[error("the helper is not told what it is for")]
    Begin,
}

/// Serves the node at the other end of standard input until that ends, for whatever reason. Then
/// this process removes the MPTCP endpoints and ends at once, as if it were killed: rules that are
/// meant to stay without a node stay, and the others go with nft.
///
/// # Errors
/// When it was not started by a node.
pub fn serve() -> Result<(), ServeError> {
    // systemd and a terminal signal the whole group; the node decides when
    // this ends.
    let ours = [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGUSR2,
    ];
    for ignored in ours {
        // SAFETY: to ignore a signal runs no code.
        let _ = unsafe { signal(ignored, SigHandler::SigIgn) };
    }
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    socket.peer_addr()?;
    // Programs that are run here must not inherit it.
    dup2_stdin(File::open("/dev/null")?).map_err(io::Error::from)?;
    let mut from = BufReader::new(socket.try_clone()?);
    let mut to = socket;
    let Some(Request::Begin(begin)) = receive(&mut from)? else {
        return Err(ServeError::Begin);
    };
    let mut helper = HelperState::begin(begin);
    send(&mut to, &Answer::Done)?;
    while let Ok(Some(request)) = receive(&mut from) {
        if send(&mut to, &helper.answer(request)).is_err() {
            break;
        }
    }
    drop(helper.paths);
    std::process::exit(0);
}

struct HelperState {
    begin: Begin,
    loader: Loader,
    rules: Option<Interception>,
    paths: PathManager,
    commands: Commands,
}

impl HelperState {
    fn begin(begin: Begin) -> HelperState {
        let _ = crate::logging::start(&begin.log);
        let mut wanted = HashSet::from([Capability::CAP_NET_ADMIN]);
        if begin.loads {
            wanted.extend([Capability::CAP_BPF, Capability::CAP_PERFMON]);
        }
        let confined = confinement::limit_to(&wanted).and_then(|()| confinement::raise_ambient());
        if let Err(error) = confined {
            tracing::warn!(%error, "the helper keeps all rights that it was started with");
        }
        HelperState {
            commands: Commands::new(begin.commands.clone()),
            begin,
            loader: Loader::new(),
            rules: None,
            paths: PathManager::default(),
        }
    }

    fn answer(&mut self, request: Request) -> Answer {
        let result = match (request, &mut self.rules) {
            (Request::Choose(list), _) if self.begin.loads => return self.choose(&list),
            (Request::Intercept(new), None) if self.begin.intercepts => {
                let new = *new;
                Interception::install(new.config, new.port, &new.switch, new.families, new.hops)
                    .map(|rules| {
                        self.rules = Some(rules);
                        Answer::Done
                    })
            }
            (Request::Switch { switch, families }, Some(rules)) => {
                rules.set(&switch, families).map(|()| Answer::Done)
            }
            (
                Request::Hops {
                    switch,
                    families,
                    hops,
                },
                Some(rules),
            ) => {
                let set = rules.set_with_hops(&switch, families, hops);
                set.map(|()| Answer::Done)
            }
            (Request::InForce, rules) => {
                let is_in_force = rules.as_mut().is_some_and(Interception::is_in_force);
                Ok(Answer::InForce(is_in_force))
            }
            (Request::Count, Some(rules)) => rules.plain_ip_bytes().map(Answer::Count),
            (Request::ManagePaths(wanted), _) if self.begin.manages_paths => {
                Ok(Answer::ManagedPaths(self.paths.set(&wanted)))
            }
            (Request::Run { path, raise }, _) => {
                let begun = self.commands.begin(&path, raise);
                return begun.map_or_else(Answer::Failed, |()| Answer::Done);
            }
            (Request::Ran { path }, _) => {
                return match self.commands.ended(&path) {
                    None => Answer::Running,
                    Some(Ok(())) => Answer::Done,
                    Some(Err(reason)) => Answer::Failed(reason),
                };
            }
            (Request::Release, _) => {
                self.rules = None;
                Ok(Answer::Done)
            }
            _ => return Answer::Failed("the helper is not for that".to_owned()),
        };
        result.unwrap_or_else(|error| Answer::Failed(error.to_string()))
    }

    fn choose(&mut self, list: &[String]) -> Answer {
        let choice = self.loader.choose(list);
        let refused = choice.refused.into_iter();
        Answer::Choice {
            name: choice.name,
            refused: refused.map(|r| (r.name, r.reason)).collect(),
        }
    }
}
