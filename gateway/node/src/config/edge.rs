//! Checks of `[edge]` beyond its grammar.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use underpass_edge::config::{
    ClassRule, DialConfig, EdgeConfig, InterceptionConfig, ListenerConfig, ListenerProtocol, User,
};
use underpass_edge::password::{self, CREDENTIAL_BYTES};

use super::bounds::check_within;
use super::traffic::{ClassSettings, class_named};

/// Times of a handshake or dial, s.
const TIMEOUTS_S: std::ops::RangeInclusive<f64> = 0.1..=600.0;

/// Each flow is held against all rules.
const MOST_RULES: usize = 1_000;
const MOST_NAME_BYTES: usize = 64;

/// An interface's name in Linux, without its final NUL.
const INTERFACE_BYTES: usize = 15;

pub(super) fn check(edge: &EdgeConfig, classes: &[ClassSettings], problems: &mut Vec<String>) {
    check_listeners(edge, problems);
    for (rule, number) in edge.rule.iter().zip(1..) {
        check_rule(
            &format!("edge.rule {number}"),
            rule,
            edge,
            classes,
            problems,
        );
    }
    check_order(&edge.rule, problems);
    check_dial(&edge.dial, problems);
    check_interception(edge, problems);
}

/// Rules that nothing can reach are mistakes, and so are two of one name.
fn check_order(rules: &[ClassRule], problems: &mut Vec<String>) {
    if rules.len() > MOST_RULES {
        problems.push(format!(
            "edge.rule: {} rules; there may be {MOST_RULES} at most",
            rules.len()
        ));
    }
    let all = rules.iter().position(ClassRule::matches_all);
    // Rules with keys for flows are applied again when flows begin, without earlier rules that
    // concern connections.
    let is_dead = |rule: &ClassRule| !rule.is_of_flows() && rule.hosts.is_none();
    if let Some(all) = all
        && let Some(dead) = rules[all + 1..].iter().position(is_dead)
    {
        problems.push(format!(
            "edge.rule {}: rule {} before it matches every connection",
            all + dead + 2,
            all + 1
        ));
    }
    let mut names = BTreeSet::new();
    for name in rules.iter().filter_map(|rule| rule.name.as_ref()) {
        if name.is_empty() || name.len() > MOST_NAME_BYTES {
            problems.push(format!(
                "edge.rule {name:?}: a name has 1 to {MOST_NAME_BYTES} bytes"
            ));
        }
        if !names.insert(name) {
            problems.push(format!("edge.rule {name:?} is there twice"));
        }
    }
}

fn check_listeners(edge: &EdgeConfig, problems: &mut Vec<String>) {
    let mut names = BTreeSet::new();
    let mut addresses: BTreeSet<SocketAddr> = BTreeSet::new();
    for listener in &edge.listener {
        let at = format!("edge.listener {:?}", listener.name);
        if listener.name.is_empty() {
            problems.push("edge.listener: a name must not be empty".to_owned());
        }
        if !names.insert(&listener.name) {
            problems.push(format!("{at} is there twice"));
        }
        // The system gives each port 0 another port.
        if listener.address.port() != 0 && !addresses.insert(listener.address) {
            problems.push(format!(
                "{at}: another listener has {} too",
                listener.address
            ));
        }
        check_listener(&at, listener, edge, problems);
    }
}

fn check_listener(
    at: &str,
    listener: &ListenerConfig,
    edge: &EdgeConfig,
    problems: &mut Vec<String>,
) {
    let own = listener.client_networks.as_ref();
    if own.unwrap_or(&edge.client_networks).is_empty() {
        problems.push(format!(
            "{at}: nobody may enter; set client_networks, here or in [edge]"
        ));
    }
    let key = format!("{at}: max_connections");
    check_within(
        &key,
        listener.max_connections as u64,
        1..=1_048_576,
        problems,
    );
    check_timeout(
        &format!("{at}: handshake_timeout_s"),
        listener.handshake_timeout_s,
        problems,
    );
    if let Some(name) = &listener.interface {
        check_interface(&format!("{at}: interface"), name, problems);
    }
    if listener.protocol == ListenerProtocol::Transparent && !listener.users.is_empty() {
        problems.push(format!("{at}: a transparent listener cannot ask for users"));
    }
    let mut names = BTreeSet::new();
    for user in &listener.users {
        check_user(at, user, problems);
        if !names.insert(&user.name) {
            problems.push(format!("{at}: user {:?} is there twice", user.name));
        }
    }
}

fn check_user(at: &str, user: &User, problems: &mut Vec<String>) {
    let ways = [
        user.password.is_some(),
        user.password_hash.is_some(),
        user.password_file.is_some(),
    ];
    if ways.into_iter().filter(|is_there| *is_there).count() != 1 {
        problems.push(format!(
            "{at}: user {:?}: needs one of password_hash, password_file and password",
            user.name
        ));
    }
    if let Some(Err(error)) = user.password_hash.as_deref().map(password::check) {
        let name = &user.name;
        problems.push(format!("{at}: user {name:?}: password_hash {error}"));
    }
    let length = user.password.as_ref().map_or(1, String::len);
    if !CREDENTIAL_BYTES.contains(&user.name.len()) || !CREDENTIAL_BYTES.contains(&length) {
        problems.push(format!(
            "{at}: user {:?}: name and password must have 1 to 255 bytes",
            user.name
        ));
    }
    // HTTP Basic divides name and password at the first colon (RFC 7617 § 2).
    if user.name.contains(':') {
        problems.push(format!(
            "{at}: user {:?}: a name must not have a colon",
            user.name
        ));
    }
}

fn check_rule(
    at: &str,
    rule: &ClassRule,
    edge: &EdgeConfig,
    classes: &[ClassSettings],
    problems: &mut Vec<String>,
) {
    if class_named(classes, &rule.class).is_none() {
        problems.push(format!("{at}: there is no class {:?}", rule.class));
    }
    for name in rule.listeners.iter().flatten() {
        if !edge.listener.iter().any(|listener| listener.name == *name) {
            problems.push(format!("{at}: there is no listener {name:?}"));
        }
    }
    let lengths = [
        ("listeners", rule.listeners.as_ref().map(Vec::len)),
        ("protocols", rule.protocols.as_ref().map(Vec::len)),
        ("ports", rule.ports.as_ref().map(Vec::len)),
        ("destinations", rule.destinations.as_ref().map(Vec::len)),
        ("clients", rule.clients.as_ref().map(Vec::len)),
        ("dscp", rule.dscp.as_ref().map(Vec::len)),
        ("hosts", rule.hosts.as_ref().map(Vec::len)),
        ("content_types", rule.content_types.as_ref().map(Vec::len)),
    ];
    for (key, length) in lengths {
        if length == Some(0) {
            problems.push(format!("{at}: {key} is empty, so that nothing matches"));
        }
    }
    let sizes = (rule.min_size_bytes, rule.max_size_bytes);
    if let (Some(least), Some(most)) = sizes
        && least > most
    {
        problems.push(format!(
            "{at}: min_size_bytes is above max_size_bytes, so that nothing matches"
        ));
    }
    if rule.after_bytes == Some(0) {
        problems.push(format!("{at}: after_bytes must be at least 1"));
    }
    if rule.direct && rule.is_of_flows() {
        problems.push(format!(
            "{at}: direct is decided before a flow begins: it goes with none of \
             content_types, min_size_bytes, max_size_bytes and after_bytes"
        ));
    }
    if let Some(wrong) = rule.dscp.iter().flatten().find(|dscp| **dscp > 63) {
        problems.push(format!("{at}: dscp {wrong} must be 0 to 63"));
    }
}

fn check_dial(dial: &DialConfig, problems: &mut Vec<String>) {
    check_timeout(
        "edge.dial.connect_timeout_s",
        dial.connect_timeout_s,
        problems,
    );
    for (key, value, least) in [
        ("guaranteed_dials", dial.guaranteed_dials as u64, 1),
        ("common_dials", dial.common_dials as u64, 0),
        ("mark", dial.mark.unwrap_or(1).into(), 1),
    ] {
        let most = u64::from(u32::MAX);
        check_within(&format!("edge.dial.{key}"), value, least..=most, problems);
    }
    if dial.families.as_ref().is_some_and(Vec::is_empty) {
        problems.push("edge.dial.families is empty: no origin could be dialled".to_owned());
    }
}

fn check_interception(edge: &EdgeConfig, problems: &mut Vec<String>) {
    let transparent = edge
        .listener
        .iter()
        .filter(|listener| listener.protocol == ListenerProtocol::Transparent)
        .count();
    match (&edge.interception, transparent) {
        (None, 0) => {}
        (None, _) => problems.push(
            "a transparent listener needs [edge.interception], which diverts connections to it"
                .to_owned(),
        ),
        (Some(config), count) => {
            if count > 1 {
                problems.push("there must be one transparent listener at most".to_owned());
            }
            check_diversion(config, count == 1, problems);
        }
    }
}

fn check_diversion(config: &InterceptionConfig, diverts: bool, problems: &mut Vec<String>) {
    let at = "edge.interception";
    let word = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'_';
    if !(1..=32).contains(&config.name.len()) || !config.name.bytes().all(word) {
        problems.push(format!(
            "{at}.name: must be 1 to 32 letters, digits or underscores"
        ));
    }
    if diverts && config.client_networks.is_empty() {
        problems.push(format!(
            "{at}.client_networks is empty: nothing would be diverted"
        ));
    }
    for name in &config.interfaces {
        check_interface(&format!("{at}.interfaces"), name, problems);
    }
    for (key, number) in [
        ("mark", config.mark),
        ("routing_table", config.routing_table),
    ] {
        if number == 0 {
            problems.push(format!("{at}.{key} must not be 0"));
        }
    }
}

fn check_interface(at: &str, name: &str, problems: &mut Vec<String>) {
    let word = |octet: u8| octet.is_ascii_alphanumeric() || b"_-.@:".contains(&octet);
    if !(1..=INTERFACE_BYTES).contains(&name.len()) || !name.bytes().all(word) {
        problems.push(format!("{at}: {name:?} is no interface name"));
    }
}

fn check_timeout(at: &str, seconds: f64, problems: &mut Vec<String>) {
    if !TIMEOUTS_S.contains(&seconds) {
        problems.push(format!("{at}: must be 0.1 to 600"));
    }
}
