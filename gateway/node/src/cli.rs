//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use ipnet::IpNet;
use underpass_edge::config::PortRange;
use underpass_pki::Authority;

use crate::bp::BpCommand;

/// The command that a node starts itself.
pub const HELPER: &str = "privileged-helper";

/// Another command that it starts itself.
pub const LAUNCHER: &str = "program-launcher";

/// How it starts the program that is to take its place.
pub const TAKE_OVER: &str = "--take-over";

/// A DTN gateway for satellite terminals on the move.
#[derive(Debug, Parser)]
#[command(version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a node until SIGTERM or SIGINT.
    Run {
        /// The node's configuration.
        #[arg(long, default_value = "/etc/underpass/node.toml")]
        config: PathBuf,
        /// Go on for the node at the other end of standard input.
        #[arg(long, hide = true)]
        take_over: bool,
    },
    /// Read and validate a configuration, and say what this machine lacks for it.
    CheckConfig {
        /// The node's configuration.
        #[arg(long, default_value = "/etc/underpass/node.toml")]
        config: PathBuf,
    },
    /// Show what a running node does.
    Status {
        /// The node's local API.
        #[arg(long, default_value = "/run/underpass/api.sock")]
        socket: PathBuf,
        /// Print the API's JSON.
        #[arg(long)]
        json: bool,
    },
    /// Watch a running node in the terminal: links, traffic, custody, events.
    Top(TopCommand),
    /// Explain where a running node sends bundles to a node.
    Route(RouteCommand),
    /// Have a running node read its configuration again: all of it, or nothing.
    Reload {
        /// The node's local API.
        #[arg(long, default_value = "/run/underpass/api.sock")]
        socket: PathBuf,
    },
    /// Have the program that is installed now go on for a running node.
    Upgrade {
        /// The node's local API.
        #[arg(long, default_value = "/run/underpass/api.sock")]
        socket: PathBuf,
    },
    /// Switch on or off what a running node takes in; open streams live on.
    Switch(SwitchCommand),
    /// Have a class of a running node go by another of its paths; streams live on.
    Migrate(MigrateCommand),
    /// Show decisions of a running node about flows, as it makes them.
    Decisions(DecisionsCommand),
    /// Show what operators have set on a running node, or release it.
    Holds(HoldsCommand),
    /// Add to the budget of a running node's metered path, or begin it anew.
    Budget(BudgetCommand),
    /// Bring a running node's path on demand up, release it, or leave it to what needs it.
    BringUp(BringUpCommand),
    /// Have a running node test its hop: round trips, download, upload. All of it
    /// counts as traffic, also on a metered path.
    SpeedTest(SpeedTestCommand),
    /// What `underpass run` starts for what needs more rights than it keeps.
    #[command(name = HELPER, hide = true)]
    Helper,
    /// What `underpass run` starts to have the next program started.
    #[command(name = LAUNCHER, hide = true)]
    Launcher {
        /// The program.
        program: PathBuf,
        /// What it is started with.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Send, receive and look at bundles.
    #[command(subcommand)]
    Bp(BpCommand),
    /// Read a password from standard input, and print its hash for the configuration.
    HashPassword,
    /// Have a bare node enrolled by the control service: key, certificates, configuration.
    Enroll(EnrollCommand),
    /// Make and manage the nodes' certificates.
    #[command(subcommand)]
    Pki(PkiCommand),
    /// Print what a shell needs to complete this command line.
    Completion {
        /// The shell.
        shell: Shell,
    },
    /// Write a manual page for each command; packages are made with it.
    #[command(hide = true)]
    ManualPages {
        /// The folder, which has to exist.
        dir: PathBuf,
    },
}

/// Where, and by which token.
#[derive(Debug, Args)]
pub struct EnrollCommand {
    /// The control service: https://HOST[:PORT][/PREFIX].
    pub url: String,
    /// The token that the operator has made; it is good for one key. While the
    /// command runs, other users of the machine can see it: see --token-file.
    #[arg(long, required_unless_present = "token_file")]
    pub token: Option<String>,
    /// File with the token; "-" is standard input.
    #[arg(long, conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
    /// Where the configuration is written.
    #[arg(long, default_value = "/etc/underpass/node.toml")]
    pub config: PathBuf,
    /// Replace a configuration and certificates that are there.
    #[arg(long)]
    pub force: bool,
}

/// Which node to watch, and how.
#[derive(Debug, Args)]
pub struct TopCommand {
    /// The node's local API.
    #[arg(long, default_value = "/run/underpass/api.sock")]
    pub socket: PathBuf,
    /// How often the node is asked, s (0.2 to 60).
    #[arg(long, default_value = "1", value_parser = interval)]
    pub interval_s: f64,
    /// Print one table, without colours and without a terminal, and end.
    #[arg(long)]
    pub once: bool,
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.2..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("give 0.2 to 60 seconds".to_owned()),
    }
}

/// To which node.
#[derive(Debug, Args)]
pub struct RouteCommand {
    /// Its ipn node number, or its name in the dtn scheme: rover of dtn://rover/.
    /// A name of digits alone is given as dtn://7/.
    pub node: String,
    /// The node's local API.
    #[arg(long, default_value = "/run/underpass/api.sock")]
    pub socket: PathBuf,
    /// Print the API's JSON.
    #[arg(long)]
    pub json: bool,
}

/// Which class, and where to.
#[derive(Debug, Args)]
pub struct MigrateCommand {
    /// The class, whose policy is "migrate".
    pub class: String,
    /// The path or terminal by which it goes from now on.
    pub path: String,
    /// Let the rule decide from then on; else it stays there.
    #[arg(long)]
    pub by_rule: bool,
    /// The node's local API.
    #[arg(long, default_value = "/run/underpass/api.sock")]
    pub socket: PathBuf,
}

/// Which flows are meant.
#[derive(Debug, Args)]
pub struct DecisionsCommand {
    /// Those of clients with this address or in this network.
    #[arg(long)]
    pub client: Option<String>,
    /// Those to this address, network or host; *.NAME is all below a name.
    #[arg(long)]
    pub destination: Option<String>,
    /// Those whose class this rule has given.
    #[arg(long)]
    pub rule: Option<String>,
    /// For so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub r#for: u64,
    /// The node's local API.
    #[arg(long, default_value = "/run/underpass/api.sock")]
    pub socket: PathBuf,
    /// Print the API's JSON.
    #[arg(long)]
    pub json: bool,
}

/// What of it is released.
#[derive(Debug, Args)]
pub struct HoldsCommand {
    /// Have this one hold no longer, by its number; may be repeated.
    #[arg(long, value_name = "NUMBER")]
    pub release: Vec<u64>,
    /// The node's local API.
    #[arg(long, default_value = "/run/underpass/api.sock")]
    pub socket: PathBuf,
}

/// Which path, and what becomes of its budget.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("change").required(true).args(["add_bytes", "reset"])))]
pub struct BudgetCommand {
    /// The metered path.
    pub path: String,
    /// Let so many bytes more be spent in this period.
    #[arg(long)]
    pub add_bytes: Option<u64>,
    /// Forget what was spent and added in this period.
    #[arg(long)]
    pub reset: bool,
    /// The node's local API.
    #[arg(long, default_value = "/run/underpass/api.sock")]
    pub socket: PathBuf,
}

/// For how long, and in which class.
#[derive(Debug, Args)]
pub struct SpeedTestCommand {
    /// How long each direction is loaded, 1 to 30 s.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=30))]
    pub seconds: u64,
    /// Default: that of connections which no rule names.
    #[arg(long)]
    pub class: Option<String>,
    /// The node's local API.
    #[arg(long, default_value = "/run/underpass/api.sock")]
    pub socket: PathBuf,
    /// Print the API's JSON.
    #[arg(long)]
    pub json: bool,
}

/// Which path on demand, and what becomes of it; without a word, it is brought up.
#[derive(Debug, Args)]
pub struct BringUpCommand {
    /// The path.
    pub path: String,
    /// Release it, and keep it released.
    #[arg(long, conflicts_with = "as_needed")]
    pub release: bool,
    /// Leave it to what needs it.
    #[arg(long)]
    pub as_needed: bool,
    /// The node's local API.
    #[arg(long, default_value = "/run/underpass/api.sock")]
    pub socket: PathBuf,
}

/// On or off, for everything or for what is named.
#[derive(Debug, Args)]
pub struct SwitchCommand {
    /// Whether it is taken in from now on.
    pub state: OnOff,
    /// Only these clients, as CIDR; may be repeated.
    #[arg(long = "client", value_name = "NETWORK")]
    pub clients: Vec<IpNet>,
    /// Only these destinations, as CIDR; may be repeated.
    #[arg(long = "network", value_name = "NETWORK")]
    pub networks: Vec<IpNet>,
    /// Only these destination ports, as 443 or 5000-5100; may be repeated.
    #[arg(long = "port", value_name = "PORTS")]
    pub ports: Vec<PortRange>,
    /// Only the SOCKS and HTTP proxies, or only transparent interception.
    #[arg(long)]
    pub part: Option<Part>,
    /// The node's local API.
    #[arg(long, default_value = "/run/underpass/api.sock")]
    pub socket: PathBuf,
}

impl SwitchCommand {
    /// Whether it switches on.
    pub fn on(&self) -> bool {
        self.state == OnOff::On
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnOff {
    /// New connections are carried by streams.
    On,
    /// New connections pass as plain IP.
    Off,
}

/// A part of the edge with a switch of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// SOCKS and HTTP listeners.
    Proxies,
    /// Connections that the kernel diverts.
    Interception,
}

/// Where the private CA lives.
#[derive(Clone, Debug, Args)]
pub struct PkiFolder {
    /// Folder of the CA.
    #[arg(long, default_value = "/etc/underpass/pki")]
    pub dir: PathBuf,
}

/// Certificates.
#[derive(Debug, Subcommand)]
pub enum PkiCommand {
    /// Make a private certificate authority.
    Init {
        #[command(flatten)]
        folder: PkiFolder,
        /// The authority's name.
        #[arg(long, default_value = "Underpass")]
        name: String,
        /// Instead of a new one: the certificate that another authority has issued
        /// to this one, PEM.
        #[arg(long, requires = "key", conflicts_with = "name")]
        certificate: Option<PathBuf>,
        /// Its private key, PEM.
        #[arg(long, requires = "certificate")]
        key: Option<PathBuf>,
    },
    /// Issue the certificate of a node.
    Issue {
        #[command(flatten)]
        folder: PkiFolder,
        /// The node's ipn node number.
        #[arg(long)]
        node: u64,
        /// Validity, days.
        #[arg(long, default_value_t = Authority::NODE_VALIDITY_DAYS)]
        days: u64,
    },
    /// Issue a node's certificate again, before it ends.
    Renew {
        #[command(flatten)]
        folder: PkiFolder,
        /// The node's ipn node number.
        #[arg(long)]
        node: u64,
        /// Validity, days.
        #[arg(long, default_value_t = Authority::NODE_VALIDITY_DAYS)]
        days: u64,
        /// Keep the private key.
        #[arg(long)]
        keep_key: bool,
    },
    /// Revoke a node's certificate; running nodes close its sessions.
    Revoke {
        #[command(flatten)]
        folder: PkiFolder,
        /// The node's ipn node number.
        #[arg(long)]
        node: u64,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Sign the request of a node that has made its own key (PEM on standard input).
    /// Prints JSON, as the control service uses it.
    Sign {
        #[command(flatten)]
        folder: PkiFolder,
        /// The node that may ask.
        #[arg(long, required_unless_present = "renewal")]
        node: Option<u64>,
        /// Sign for the key of the node's present certificate only.
        #[arg(long)]
        renewal: bool,
        /// Only say whose request it is, and whether the number may be enrolled.
        #[arg(long)]
        check: bool,
        /// Validity, days.
        #[arg(long, default_value_t = Authority::NODE_VALIDITY_DAYS)]
        days: u64,
    },
    /// Issue a certificate for HTTPS: of the control service, or of a node's API.
    IssueServer {
        #[command(flatten)]
        folder: PkiFolder,
        /// DNS name or IP address that clients use; may be repeated.
        #[arg(long = "name", required = true)]
        names: Vec<String>,
        /// Validity, days.
        #[arg(long, default_value_t = Authority::NODE_VALIDITY_DAYS)]
        days: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(arguments: &[&str]) -> Result<BudgetCommand, clap::Error> {
        let command = ["underpass", "budget"].iter().chain(arguments);
        match Cli::try_parse_from(command)?.command {
            Command::Budget(budget) => Ok(budget),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_budget_is_added_to_or_reset() {
        let added = budget(&["lte", "--add-bytes", "5", "--socket", "/tmp/api.sock"]).unwrap();
        assert_eq!((added.path.as_str(), added.add_bytes), ("lte", Some(5)));
        assert!(budget(&["lte", "--reset"]).unwrap().reset);
        for wrong in [
            &["lte"] as &[&str],
            &["--reset"],
            &["lte", "--reset", "--add-bytes", "5"],
        ] {
            budget(wrong).expect_err("it takes a path and one change");
        }
    }
}
