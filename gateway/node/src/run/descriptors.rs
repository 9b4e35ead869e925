//! Open files: each taken-in connection is one, and so is each dialled one.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::links::connections;
use super::origins;
use crate::config::Config;

/// What any gateway can do with.
const AMPLE: u64 = 65_536;
/// Of clients' connections: what sixteen clients have, whatever others do.
const CLIENTS: usize = 4_096;
/// Of all else: sessions that the node dials, files, its local API.
const OTHERS: usize = 1_024;

/// Raises the limit of open files to what the system allows this process, and returns it. The soft
/// limit is usually 1,024, for programs that use select(2).
///
/// # Errors
/// When the system does not show or change the limit.
pub(super) fn raise_limit() -> nix::Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}

/// Raises the limit, and logs a warning if it stays too low for this configuration.
pub(super) fn prepare(config: &Config) {
    let needed = needed(config);
    match raise_limit() {
        Ok(limit) if limit < needed => tracing::warn!(
            limit,
            needed,
            "few open files are allowed (LimitNOFILE in systemd): they bound the connections"
        ),
        Ok(limit) => tracing::debug!(limit, "open files"),
        Err(error) => tracing::warn!(%error, "the limit of open files stays as it is"),
    }
}

/// The files with which each peer can have the connections to origins that it always may, and some
/// clients theirs.
fn needed(config: &Config) -> u64 {
    let clients = config.edge.listener.iter().map(|one| one.max_connections);
    let clients = clients.sum::<usize>().min(CLIENTS);
    // A terminal dials for its hub.
    let peers = config.terminals.len().max(1);
    let all = peers * origins::GUARANTEED + connections(config) + clients + OTHERS;
    AMPLE.min(all as u64)
}

/// Files that this process may have open.
pub(super) fn limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(AMPLE, |(soft, _)| soft)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn needs(text: &str) -> u64 {
        let common = "[tls]\nplain = true\n[beacons]\nkey_file = \"/beacons.key\"\n";
        let config = Config::parse(&format!("{text}{common}"), Path::new("node.toml"));
        needed(&config.unwrap())
    }

    #[test]
    fn a_node_of_few_needs_few_files_and_a_hub_of_many_needs_many() {
        let terminal = "[node]\nnumber = 10\nrole = \"terminal\"\n\
             [[path]]\nname = \"sat\"\nneighbour = 1\nremote = \"192.0.2.1:4556\"\n\
             send_rate_bps = 2_000_000\n[edge]\nclient_networks = [\"10.0.0.0/8\"]\n\
             [[edge.listener]]\nname = \"socks\"\nprotocol = \"socks5\"\n\
             address = \"127.0.0.1:1080\"\n";
        assert!(needs(terminal) < 20_000);
        let hub = |terminals| {
            let terminals =
                (10..10 + terminals).map(|node| format!("[[terminal]]\nnode = {node}\n"));
            let terminals: String = terminals.collect();
            needs(&format!(
                "[node]\nnumber = 1\nrole = \"hub\"\n\
                 [[listener]]\nname = \"beam\"\nlisten = \"[::]:4556\"\n{terminals}"
            ))
        };
        assert!(hub(2) < 20_000);
        assert!(hub(40) > 40 * origins::GUARANTEED as u64);
        assert_eq!(hub(100), AMPLE);
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let limit = raise_limit().unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (limit, limit));
    }
}
