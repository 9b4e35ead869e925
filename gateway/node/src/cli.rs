//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use underpass_pki::Authority;

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
    /// Make and manage the nodes' certificates.
    #[command(subcommand)]
    Pki(PkiCommand),
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
    },
}
