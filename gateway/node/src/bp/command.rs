//! The commands and their options.

use std::num::ParseIntError;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use underpass_applications::wire::Reported;

/// Send, receive and look at bundles.
#[derive(Debug, Subcommand)]
pub enum BpCommand {
    /// Send a file, or standard input, as one bundle.
    Send(SendCommand),
    /// Receive bundles for a service of this node.
    Receive(ReceiveCommand),
    /// Send bundles to another node's echo service, and wait for them to come back.
    Ping(PingCommand),
    /// Answer bundles for a service of this node by sending them back.
    Echo(EchoCommand),
    /// Send a bundle, and show which nodes report what of it.
    Trace(TraceCommand),
    /// Show the blocks of a bundle in a file or on standard input.
    Inspect(InspectCommand),
}

/// A service of this node: its number, or its name in the dtn scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceName {
    /// Of the ipn scheme.
    Number(u64),
    /// Of the dtn scheme.
    Name(String),
}

impl FromStr for ServiceName {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<ServiceName, ParseIntError> {
        match text.starts_with(|first: char| first.is_ascii_alphabetic()) {
            true => Ok(ServiceName::Name(text.to_owned())),
            false => text.parse().map(ServiceName::Number),
        }
    }
}

/// Where the node is, and the form of the output.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// The node's socket of applications.
    #[arg(long, default_value = "/run/underpass/applications.sock")]
    pub socket: PathBuf,
    /// Print JSON, one document a line.
    #[arg(long)]
    pub json: bool,
}

/// An event that is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportOn {
    /// A node has received the bundle.
    Received,
    /// A node has forwarded it.
    Forwarded,
    /// It was delivered.
    Delivered,
    /// It was deleted.
    Deleted,
}

impl From<ReportOn> for Reported {
    fn from(on: ReportOn) -> Reported {
        match on {
            ReportOn::Received => Reported::Received,
            ReportOn::Forwarded => Reported::Forwarded,
            ReportOn::Delivered => Reported::Delivered,
            ReportOn::Deleted => Reported::Deleted,
        }
    }
}

/// How a bundle is sent.
#[derive(Clone, Debug, Args)]
pub struct Sending {
    /// The service of this node that sends it, by number or name. Default: one that is
    /// free.
    #[arg(long)]
    pub service: Option<ServiceName>,
    /// For how long it is of use, s. Default: 3600; of pings and traces, how long
    /// they are waited for.
    #[arg(long)]
    pub lifetime: Option<f64>,
    /// Send it without custody.
    #[arg(long)]
    pub no_custody: bool,
    /// How long to wait for room in the node's store, s.
    #[arg(long, default_value_t = 60.0)]
    pub wait: f64,
}

/// `underpass bp send`.
#[derive(Clone, Debug, Args)]
pub struct SendCommand {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub sending: Sending,
    /// Have this service sent status reports of these events; `bp trace` shows
    /// them.
    #[arg(long = "report", value_delimiter = ',')]
    pub reports: Vec<ReportOn>,
    /// The destination, ipn:NODE.SERVICE or dtn://NODE/SERVICE.
    pub destination: String,
    /// The file; standard input if it is left out or `-`.
    pub file: Option<PathBuf>,
}

/// `underpass bp receive`.
#[derive(Clone, Debug, Args)]
pub struct ReceiveCommand {
    #[command(flatten)]
    pub common: Common,
    /// The service of this node, by number or name.
    #[arg(long)]
    pub service: ServiceName,
    /// End after so many bundles.
    #[arg(long)]
    pub count: Option<u64>,
    /// End when nothing has come for so long, s.
    #[arg(long)]
    pub timeout: Option<f64>,
    /// Write each payload to a file of its own in this folder; no file that is there
    /// is overwritten. Default:
    /// payloads are written to standard output, one after the other; with
    /// --json they are not.
    #[arg(long)]
    pub folder: Option<PathBuf>,
}

/// `underpass bp ping`.
#[derive(Clone, Debug, Args)]
pub struct PingCommand {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub sending: Sending,
    /// How many.
    #[arg(long, short, default_value_t = 4)]
    pub count: u32,
    /// Time between two, s.
    #[arg(long, short, default_value_t = 1.0)]
    pub interval: f64,
    /// Bytes of each payload, 16 at least.
    #[arg(long, short, default_value_t = 64)]
    pub size: usize,
    /// How long to wait for the last one, s.
    #[arg(long, short, default_value_t = 10.0)]
    pub timeout: f64,
    /// The echo service, ipn:NODE.SERVICE or dtn://NODE/SERVICE; 7 or echo by custom.
    pub destination: String,
}

/// `underpass bp echo`.
#[derive(Clone, Debug, Args)]
pub struct EchoCommand {
    #[command(flatten)]
    pub common: Common,
    /// The service of this node, by number or name.
    #[arg(long)]
    pub service: ServiceName,
    /// End after so many bundles.
    #[arg(long)]
    pub count: Option<u64>,
}

/// `underpass bp trace`.
#[derive(Clone, Debug, Args)]
pub struct TraceCommand {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub sending: Sending,
    /// How long to wait for reports, s; it ends once delivery is reported.
    #[arg(long, short, default_value_t = 10.0)]
    pub timeout: f64,
    /// The destination, ipn:NODE.SERVICE or dtn://NODE/SERVICE.
    pub destination: String,
}

/// `underpass bp inspect`.
#[derive(Clone, Debug, Args)]
pub struct InspectCommand {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The file; standard input if it is left out or `-`.
    pub file: Option<PathBuf>,
}
