//! Many light terminals, or one hostile one, against a real hub.

mod attacks;
mod fleet;
mod forge;
mod hop;
mod identity;
mod line;
mod load;
mod raw;
mod terminal;
mod usage;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Parser, Subcommand};

use attacks::{Attack, Attacker, Cast};
use fleet::Fleet;
use terminal::{Config, TerminalError};

/// Plays terminals against a hub.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Issues certificates for many nodes at once.
    Certificates {
        /// Folder of the new authority.
        #[arg(long)]
        pki: PathBuf,
        /// The first node number.
        #[arg(long, default_value_t = 1)]
        first_node: u64,
        /// How many.
        #[arg(long)]
        count: usize,
    },
    /// Plays light terminals; prints what came of it as JSON.
    Terminals(Terminals),
    /// Plays light terminals with paced streams, some of them blocked at any
    /// time; prints what came of it as JSON.
    Streams(Streams),
    /// Tries attacks on a hub; prints a JSON object for each.
    Hostile(Hostile),
}

#[derive(Args)]
struct FleetArguments {
    /// Where the hub listens.
    #[arg(long)]
    hub: SocketAddr,
    /// Folder of the authority.
    #[arg(long)]
    pki: PathBuf,
    /// Node number of the hub.
    #[arg(long, default_value_t = 1)]
    hub_node: u64,
    /// How many terminals.
    #[arg(long, default_value_t = 100)]
    count: usize,
    /// Node number of the first; the others follow.
    #[arg(long, default_value_t = 10)]
    first_node: u64,
    /// Round-trip time of the hop, as the terminals take it, ms.
    #[arg(long, default_value_t = 600)]
    rtt_ms: u64,
    /// How much later than at the sockets bundles and beacons come to the
    /// terminal's protocol and leave it, one way, ms.
    #[arg(long, default_value_t = 0)]
    delay_ms: u64,
    /// Rate from the hub to each terminal, bit/s.
    #[arg(long)]
    receive_rate_bps: Option<u64>,
    /// Rate from each terminal, bit/s.
    #[arg(long)]
    send_rate_bps: Option<u64>,
    /// Terminals that begin to dial in a second.
    #[arg(long, default_value_t = 20.0)]
    per_s: f64,
    /// How long all of them may take to be connected, s.
    #[arg(long, default_value_t = 300.0)]
    patience_s: f64,
    /// How long the hub is left alone before it is measured, s.
    #[arg(long, default_value_t = 10.0)]
    settle_s: f64,
    /// The hub's process, to tell what it uses.
    #[arg(long)]
    hub_pid: Option<u32>,
}

impl FleetArguments {
    fn fleet(&self, first_address: Option<Ipv4Addr>) -> Result<Fleet, String> {
        Ok(Fleet {
            terminals: self.count,
            config: Config {
                hub: self.hub,
                hub_node: self.hub_node,
                pki: self.pki.clone(),
                rtt: Duration::from_millis(self.rtt_ms),
                delay: Duration::from_millis(self.delay_ms),
                receive_rate_bps: self.receive_rate_bps,
                send_rate_bps: self.send_rate_bps,
                first_address,
                first_node: self.first_node,
                run: this_run(),
            },
            per_s: self.per_s.max(f64::MIN_POSITIVE),
            patience: seconds(self.patience_s)?,
            settle: seconds(self.settle_s)?,
        })
    }
}

#[derive(Args)]
struct Terminals {
    #[command(flatten)]
    fleet: FleetArguments,
    /// For how long it is measured at most, s; less where all downloads are
    /// over.
    #[arg(long, default_value_t = 60.0)]
    measure_s: f64,
    /// An HTTP origin from which each terminal downloads once.
    #[arg(long)]
    origin: Option<SocketAddr>,
    /// Bytes of each download.
    #[arg(long, default_value_t = 5_000_000)]
    bytes: u64,
}

#[derive(Args)]
struct Streams {
    #[command(flatten)]
    fleet: FleetArguments,
    /// Address of the first terminal; the others have the next ones. All have
    /// to be local.
    #[arg(long)]
    first_address: Ipv4Addr,
    /// Where the origin listens, in this process.
    #[arg(long)]
    origin: SocketAddr,
    /// Streams of each terminal.
    #[arg(long, default_value_t = 5)]
    streams: usize,
    /// Payload that the origin offers on all streams together, bit/s.
    #[arg(long)]
    offered_bps: f64,
    /// Bytes of a chunk: what a stream is offered at once. By default ten
    /// segments, the initial window of a server's TCP (RFC 6928).
    #[arg(long, default_value_t = 14_600)]
    chunk_bytes: usize,
    /// The hub's beam, for the ideal queue, bit/s.
    #[arg(long)]
    beam_bps: f64,
    /// Terminals that are blocked at any time; at most a quarter of all.
    #[arg(long, default_value_t = 0)]
    blocked: usize,
    /// How long each of them is, s; 2 at least.
    #[arg(long, default_value_t = 5.0)]
    blockage_s: f64,
    /// For how long the streams run before they are measured, s.
    #[arg(long, default_value_t = 10.0)]
    warm_up_s: f64,
    /// For how long they are measured, s.
    #[arg(long, default_value_t = 60.0)]
    measure_s: f64,
    /// For how long they go on behind it, s.
    #[arg(long, default_value_t = 3.0)]
    drain_s: f64,
}

#[derive(Args)]
struct Hostile {
    /// Lists the attacks, and does nothing.
    #[arg(long)]
    list: bool,
    /// Where the hub listens.
    #[arg(long, required_unless_present = "list")]
    hub: Option<SocketAddr>,
    /// Folder of the authority.
    #[arg(long, required_unless_present = "list")]
    pki: Option<PathBuf>,
    /// Node number of the hub.
    #[arg(long, default_value_t = 1)]
    hub_node: u64,
    /// Node number of this terminal.
    #[arg(long, default_value_t = 10)]
    node: u64,
    /// Node number of an honest terminal.
    #[arg(long, default_value_t = 11)]
    victim: u64,
    /// Node number of a terminal that is switched off.
    #[arg(long, default_value_t = 12)]
    absent: u64,
    /// An HTTP origin.
    #[arg(long, default_value = "198.18.0.2:80")]
    origin: SocketAddr,
    /// An address behind the hub where nobody answers.
    #[arg(long, default_value = "198.18.0.250:80")]
    black_hole: SocketAddr,
    /// A client of the honest terminal.
    #[arg(long, default_value = "10.1.1.2:40000")]
    foreign_client: SocketAddr,
    /// Goes on with all attacks in turn for so long, s.
    #[arg(long, default_value_t = 0.0)]
    seconds: f64,
    /// The attacks; none are all.
    attacks: Vec<String>,
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let done = match Arguments::parse().command {
        Command::Certificates {
            pki,
            first_node,
            count,
        } => {
            let nodes = (first_node..).take(count);
            identity::issue(&pki, nodes).map_err(|error| error.to_string())
        }
        Command::Terminals(terminals) => run_terminals(&terminals),
        Command::Streams(streams) => run_streams(&streams),
        Command::Hostile(hostile) => run_hostile(hostile),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("swarm: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_terminals(arguments: &Terminals) -> Result<(), String> {
    let plan = fleet::Plan {
        fleet: arguments.fleet.fleet(None)?,
        measure: seconds(arguments.measure_s)?,
        download: arguments.origin.map(|origin| (origin, arguments.bytes)),
        hub_pid: arguments.fleet.hub_pid,
    };
    tell(fleet::play(&plan))
}

fn run_streams(arguments: &Streams) -> Result<(), String> {
    let (count, blocked) = (arguments.fleet.count, arguments.blocked);
    if 4 * blocked > count {
        return Err(format!("{blocked} of {count} terminals cannot be blocked"));
    }
    if arguments.blockage_s < 2.0 {
        return Err("a blockage of less than 2 s is hardly noticed".to_owned());
    }
    let plan = load::Plan {
        fleet: arguments.fleet.fleet(Some(arguments.first_address))?,
        origin: arguments.origin,
        streams: arguments.streams.max(1),
        offered_bps: arguments.offered_bps.max(1.0),
        chunk_bytes: arguments.chunk_bytes.max(load::chunks::STAMP_BYTES),
        beam_bps: arguments.beam_bps.max(1.0),
        blocked,
        blockage: seconds(arguments.blockage_s)?,
        warm_up: seconds(arguments.warm_up_s)?,
        measure: seconds(arguments.measure_s)?,
        drain: seconds(arguments.drain_s)?,
        hub_pid: arguments.fleet.hub_pid,
    };
    tell(load::play(&plan))
}

/// Plays to the end, and prints what came of it as JSON.
fn tell<O: serde::Serialize>(
    play: impl Future<Output = Result<O, TerminalError>>,
) -> Result<(), String> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    let outcome = runtime.block_on(play).map_err(|error| error.to_string())?;
    let text = serde_json::to_string(&outcome).map_err(|error| error.to_string())?;
    println!("{text}");
    // Thousands of sessions need no orderly end here.
    runtime.shutdown_background();
    Ok(())
}

fn seconds(s: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(s).map_err(|error| error.to_string())
}

fn run_hostile(arguments: Hostile) -> Result<(), String> {
    let chosen = chosen(&arguments.attacks)?;
    let (Some(hub), Some(pki), false) = (arguments.hub, arguments.pki, arguments.list) else {
        for attack in chosen {
            println!("{}\t{:?}", attack.name, attack.expected);
        }
        return Ok(());
    };
    let cast = Cast {
        hub,
        pki,
        node: arguments.node,
        victim: arguments.victim,
        absent: arguments.absent,
        hub_node: arguments.hub_node,
        origin: arguments.origin,
        black_hole: arguments.black_hole,
        foreign_client: arguments.foreign_client,
        run: this_run(),
    };
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    let least =
        Duration::try_from_secs_f64(arguments.seconds).map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let attacker = Attacker::connect(cast).await.map_err(|e| e.to_string())?;
        let start = std::time::Instant::now();
        loop {
            for attack in &chosen {
                if !attacker.is_connected().await {
                    return Err(format!("no sessions with the hub before {}", attack.name));
                }
                let report = attacker.run(attack).await;
                let line = serde_json::to_string(&report).map_err(|error| error.to_string())?;
                println!("{line}");
            }
            if start.elapsed() >= least {
                return Ok(());
            }
        }
    })
}

fn chosen(names: &[String]) -> Result<Vec<Attack>, String> {
    if names.is_empty() {
        return Ok(attacks::all().collect());
    }
    let find = |name: &String| {
        let mut all = attacks::all();
        all.find(|attack| attack.name == name)
            .ok_or_else(|| format!("there is no attack {name:?}"))
    };
    names.iter().map(find).collect()
}

/// Greater at each start.
fn this_run() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(1, |since| u64::try_from(since.as_millis()).unwrap_or(1))
}
