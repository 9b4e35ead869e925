//! The paths that a change concerns: the node has to hear its neighbours on them again.

use std::collections::{BTreeMap, BTreeSet};

use super::trial::{Contact, PathContact};
use crate::config::{Change, Config};

/// Most terminals of a listener that a trial waits for.
const MOST_PATHS: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Concern {
    /// No path in particular: hearing the hub on any path counts.
    Any,
    /// A path, by name.
    Path(String),
    /// Paths of terminals that connect to a listener.
    Listener {
        name: String,
        /// Those that were up before the change.
        paths: BTreeSet<String>,
    },
}

impl Concern {
    pub fn has(&self, path: &str) -> bool {
        match self {
            Concern::Any => true,
            Concern::Path(name) => name == path,
            Concern::Listener { paths, .. } => paths.contains(path),
        }
    }

    /// How many of them have to be heard.
    pub fn wanted(&self) -> usize {
        match self {
            Concern::Any | Concern::Path(_) => 1,
            Concern::Listener { paths, .. } => paths.len().div_ceil(2),
        }
    }
}

/// What the changes between two configurations concern, given the node's paths before them; nothing
/// if no neighbour could be lost.
///
/// At a node that only dials, these are the paths that change; if none does, the hub may be heard
/// on any. At a hub, a change of a terminal concerns all paths of that terminal, and a change of a
/// class concerns the listeners that the class uses before or afterwards. Terminals that were away
/// before do not count.
pub fn concerns(
    changes: &[Change],
    before: &Config,
    after: &Config,
    paths: &[PathContact],
) -> Vec<Concern> {
    let dialled: BTreeSet<&str> = changes.iter().filter_map(Change::path).collect();
    let mut concerns: Vec<Concern> = dialled.iter().map(|name| path(name)).collect();
    if after.listeners.is_empty() {
        if concerns.is_empty() && !after.paths.is_empty() {
            concerns.push(Concern::Any);
        }
        return concerns;
    }
    let paths: BTreeMap<&str, Contact> = paths
        .iter()
        .map(|one| (one.name.as_str(), one.contact))
        .collect();
    let terminals: BTreeSet<u64> = changes.iter().filter_map(Change::terminal).collect();
    let of_terminals = after.accepted_hops().filter(|hop| {
        let contact = paths.get(hop.name.as_str());
        terminals.contains(&hop.node) && contact.is_some_and(|contact| !is_away(*contact))
    });
    concerns.extend(of_terminals.map(|hop| Concern::Path(hop.name)));
    for listener in listeners(changes, before, after) {
        let hops = after.accepted_hops().filter(|hop| hop.comes_by(listener));
        let is_up = |name: &String| matches!(paths.get(name.as_str()), Some(Contact::Up(_)));
        let up = hops.map(|hop| hop.name).filter(is_up);
        let up: BTreeSet<String> = up.take(MOST_PATHS).collect();
        if !up.is_empty() {
            concerns.push(Concern::Listener {
                name: listener.to_owned(),
                paths: up,
            });
        }
    }
    concerns
}

fn path(name: &str) -> Concern {
    Concern::Path(name.to_owned())
}

fn is_away(contact: Contact) -> bool {
    matches!(contact, Contact::Silent | Contact::Idle)
}

/// The listeners that changed classes use, before or afterwards.
fn listeners<'a>(
    changes: &[Change],
    before: &'a Config,
    after: &'a Config,
) -> impl Iterator<Item = &'a str> {
    let classes: BTreeSet<&str> = changes.iter().filter_map(Change::class).collect();
    let mut ways = BTreeSet::new();
    for class in before.classes.iter().chain(&after.classes) {
        match class.paths.is_empty() {
            _ if !classes.contains(class.name.as_str()) => {}
            true => ways.extend(names(after)),
            false => ways.extend(class.paths.iter().map(String::as_str)),
        }
    }
    names(after).filter(move |name| ways.contains(name))
}

fn names(config: &Config) -> impl Iterator<Item = &str> {
    config
        .listeners
        .iter()
        .map(|listener| listener.name.as_str())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Instant;

    use super::*;
    use crate::config::{Document, between};

    const HUB: &str = r#"
        [node]
        number = 1
        role = "hub"
        [tls]
        plain = true
        [[listener]]
        name = "beam"
        listen = "192.0.2.1:4556"
        [[listener]]
        name = "lte"
        listen = "198.51.100.1:4566"
        [[terminal]]
        node = 10
        [[terminal.path]]
        listener = "lte"
        [[terminal]]
        node = 11
        [[class]]
        name = "signalling"
        priority = 0
        [[class]]
        name = "normal"
        priority = 1
        paths = ["beam"]
    "#;
    const TERMINAL: &str = r#"
        [node]
        number = 10
        role = "terminal"
        [tls]
        plain = true
        [[path]]
        name = "beam"
        neighbour = 1
        remote = "192.0.2.1:4556"
        [[class]]
        name = "signalling"
        priority = 0
        [[class]]
        name = "normal"
        priority = 1
    "#;

    fn of(before: &str, after: &str, paths: &[(&str, Contact)]) -> Vec<Concern> {
        let [before, after] = [before, after].map(|text| {
            let text = text.to_owned();
            Document::merge(vec![(PathBuf::from("node.toml"), text)]).expect("TOML")
        });
        let changes = between(before.table(), after.table());
        let [before, after] = [before, after].map(|one| Config::of(&one).expect("it fits"));
        let paths = paths.iter().map(|(name, contact)| PathContact {
            name: (*name).to_owned(),
            contact: *contact,
        });
        concerns(&changes, &before, &after, &paths.collect::<Vec<_>>())
    }

    fn up() -> Contact {
        Contact::Up(Some(Instant::now()))
    }

    fn listener(name: &str, paths: &[&str]) -> Concern {
        Concern::Listener {
            name: name.to_owned(),
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        }
    }

    #[test]
    fn a_terminals_change_is_missed_by_its_own_paths_alone() {
        let changed = HUB.replace(
            "listener = \"lte\"\n        [[terminal]]",
            "listener = \"lte\"\n        rtt_ms = 50\n        [[terminal]]",
        );
        let paths = [
            ("terminal-10", Contact::Blocked),
            ("terminal-10-lte", up()),
            ("terminal-11", up()),
        ];
        let concerns = of(HUB, &changed, &paths);
        assert_eq!(concerns, [path("terminal-10"), path("terminal-10-lte")]);
        let away = [("terminal-10", Contact::Silent), ("terminal-11", up())];
        assert!(of(HUB, &changed, &away).is_empty());
    }

    #[test]
    fn a_class_is_missed_by_who_comes_where_it_goes_before_and_afterwards() {
        let paths = [
            ("terminal-10", up()),
            ("terminal-10-lte", up()),
            ("terminal-11", up()),
        ];
        let weight = HUB.replace("paths = [\"beam\"]", "paths = [\"beam\"]\nweight = 2");
        let beam = listener("beam", &["terminal-10", "terminal-11"]);
        assert_eq!(of(HUB, &weight, &paths), std::slice::from_ref(&beam));
        let moved = HUB.replace("paths = [\"beam\"]", "paths = [\"lte\"]");
        // A terminal without a path of its own there may use any listener.
        let lte = listener("lte", &["terminal-10-lte", "terminal-11"]);
        let mut both = of(HUB, &moved, &paths);
        both.sort_by_key(|one| format!("{one:?}"));
        assert_eq!(both, [beam.clone(), lte]);
        // Half of those that were up are enough.
        assert_eq!((beam.wanted(), path("x").wanted()), (1, 1));
        let nobody = paths.map(|(name, _)| (name, Contact::Silent));
        assert!(of(HUB, &moved, &nobody).is_empty());
    }

    #[test]
    fn a_node_that_dials_hears_its_hub_by_what_it_changes_else_by_any() {
        let class = TERMINAL.replace("priority = 1", "priority = 1\nweight = 2");
        assert_eq!(of(TERMINAL, &class, &[]), [Concern::Any]);
        let rtt = TERMINAL.replace("neighbour = 1", "neighbour = 1\nrtt_ms = 50");
        assert_eq!(of(TERMINAL, &rtt, &[]), [path("beam")]);
    }
}
