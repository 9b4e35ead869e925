//! Many light terminals, or one hostile one, against a real hub.

mod attacks;
mod fleet;
mod forge;
mod hop;
mod identity;
mod line;
mod raw;
mod terminal;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Parser, Subcommand};

use attacks::{Attack, Attacker, Cast};
use fleet::Plan;
use terminal::Config;

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
    /// Tries attacks on a hub; prints a JSON object for each.
    Hostile(Hostile),
}

#[derive(Args)]
struct Terminals {
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
    /// The hub's process, to tell what it uses.
    #[arg(long)]
    hub_pid: Option<u32>,
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
        Command::Terminals(terminals) => run_terminals(terminals),
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

fn run_terminals(arguments: Terminals) -> Result<(), String> {
    let time = |s| Duration::try_from_secs_f64(s).map_err(|error| error.to_string());
    let plan = Plan {
        terminals: arguments.count,
        first_node: arguments.first_node,
        config: Config {
            hub: arguments.hub,
            hub_node: arguments.hub_node,
            pki: arguments.pki,
            rtt: Duration::from_millis(arguments.rtt_ms),
            delay: Duration::from_millis(arguments.delay_ms),
            receive_rate_bps: arguments.receive_rate_bps,
            send_rate_bps: arguments.send_rate_bps,
            run: this_run(),
        },
        per_s: arguments.per_s.max(f64::MIN_POSITIVE),
        patience: time(arguments.patience_s)?,
        settle: time(arguments.settle_s)?,
        measure: time(arguments.measure_s)?,
        download: arguments.origin.map(|origin| (origin, arguments.bytes)),
        hub_pid: arguments.hub_pid,
    };
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    let outcome = runtime.block_on(fleet::play(&plan));
    let outcome = outcome.map_err(|error| error.to_string())?;
    let text = serde_json::to_string(&outcome).map_err(|error| error.to_string())?;
    println!("{text}");
    // Thousands of sessions need no orderly end here.
    runtime.shutdown_background();
    Ok(())
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
