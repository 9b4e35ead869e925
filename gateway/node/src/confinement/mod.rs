//! Restricts what the process that parses input may do after its start.
//!
//! It keeps the capabilities that its configuration needs at run time, may read and write only the
//! folders that the configuration names (Landlock), and is refused the system calls of
//! administration (seccomp). These restrictions apply to a thread and the threads that it starts,
//! so [`confine`] is called before the first. A refused call never kills the process: it returns an
//! error and writes a line to the kernel's audit log. The helper of [`crate::privileged`], which is
//! started before, does what needs more rights.

mod capabilities;
mod files;
mod system_calls;

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::config::Config;

pub use capabilities::{limit_to, raise_ambient};

/// What was found and done at the start, as the local API shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Confinement {
    /// Whether it is wanted (`node.confine`).
    pub wanted: bool,
    /// Capabilities that the process has, as `CAP_NET_ADMIN`.
    pub capabilities: Vec<String>,
    /// Whether programs that it starts cannot gain more.
    pub no_new_privileges: bool,
    /// `full`, `partly` or `none`: files by Landlock.
    pub files: String,
    pub system_calls: bool,
    /// Whether a helper does what needs more.
    pub helper: bool,
    /// What this machine lacks for it.
    pub missing: Vec<String>,
}

/// Takes rights that this configuration does not need from this thread, and from those that it
/// starts. Rights that cannot be taken are logged.
pub fn confine(config: &Config, file: &Path, helper: bool) -> Confinement {
    let mut done = Confinement {
        wanted: config.node.confine,
        files: "none".to_owned(),
        helper,
        ..Confinement::default()
    };
    if !done.wanted {
        tracing::warn!(
            "node.confine = false: the process keeps all rights that it was started with"
        );
        done.capabilities = capabilities::permitted();
        return done;
    }
    done.no_new_privileges = match capabilities::forbid_new() {
        Ok(()) => true,
        Err(error) => {
            done.lacks(format!("no_new_privs: {error}"));
            false
        }
    };
    if let Err(error) = limit_to(&capabilities::needed(config)) {
        done.lacks(format!("dropping capabilities: {error}"));
    }
    done.capabilities = capabilities::permitted();
    match files::restrict(config, file) {
        Ok(files::Reach::Full) => done.files = "full".to_owned(),
        Ok(files::Reach::Partly) => {
            done.files = "partly".to_owned();
            done.lacks("Landlock of this kernel is an older one (Linux 6.12 has all)".to_owned());
        }
        Ok(files::Reach::None) => done.lacks("this kernel has no Landlock".to_owned()),
        Err(error) => done.lacks(format!("Landlock: {error}")),
    }
    match system_calls::restrict() {
        Ok(()) => done.system_calls = true,
        Err(error) => done.lacks(format!("seccomp: {error}")),
    }
    tracing::info!(
        capabilities = done.capabilities.join(" "),
        files = done.files,
        system_calls = done.system_calls,
        helper,
        "confined"
    );
    done
}

impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.wanted {
            return f.write_str("none (node.confine = false)");
        }
        let capabilities = match &self.capabilities[..] {
            [] => "no capabilities".to_owned(),
            some => some.join(" "),
        };
        let system_calls = if self.system_calls { "filtered" } else { "all" };
        let files = &self.files;
        write!(
            f,
            "{capabilities}; files by Landlock: {files}; system calls: {system_calls}"
        )?;
        self.missing
            .iter()
            .try_for_each(|what| write!(f, "; {what}"))
    }
}

impl Confinement {
    fn lacks(&mut self, what: String) {
        tracing::warn!(what, "confinement is not complete");
        self.missing.push(what);
    }
}
