//! The routing table that delivers diverted packets to this host.

use std::io;
use std::process::Command;

use super::nft::succeeded;
use crate::config::InterceptionConfig;

/// Adds the rule and the route for one address family.
pub(super) fn install(config: &InterceptionConfig, six: bool) -> io::Result<()> {
    let table = config.routing_table.to_string();
    let mark = config.mark.to_string();
    let any = if six { "::/0" } else { "0.0.0.0/0" };
    ip(
        six,
        &[
            "route", "replace", "local", any, "dev", "lo", "table", &table,
        ],
    )?;
    ip(
        six,
        &[
            "rule", "add", "fwmark", &mark, "lookup", &table, "priority", &table,
        ],
    )
}

/// Removes both, of this run or a former one.
pub(super) fn remove(config: &InterceptionConfig, six: bool) {
    let table = config.routing_table.to_string();
    let mark = config.mark.to_string();
    let rule = [
        "rule", "del", "fwmark", &mark, "lookup", &table, "priority", &table,
    ];
    // Each run that was killed may have left one.
    for _ in 0..16 {
        if ip(six, &rule).is_err() {
            break;
        }
    }
    let any = if six { "::/0" } else { "0.0.0.0/0" };
    let _ = ip(
        six,
        &["route", "del", "local", any, "dev", "lo", "table", &table],
    );
}

fn ip(six: bool, arguments: &[&str]) -> io::Result<()> {
    let output = Command::new("ip")
        .arg(if six { "-6" } else { "-4" })
        .args(arguments)
        .output()?;
    succeeded("ip", output).map(|_| ())
}
