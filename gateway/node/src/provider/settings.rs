//! Settings, and how they change the text of a configuration.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use toml::{Table, Value};

use crate::config::{Config, ConfigError, Document, Settable, default_class_tables};

/// The ipn service of settings; 1 to 127 are for private use.
pub const SERVICE: u64 = 85;

/// The largest document, bytes.
pub const MAX_BYTES: usize = 64 << 10;

/// The highest version: a double holds every integer up to it.
pub const MOST_VERSION: u64 = (1 << 53) - 1;

/// The version of the format.
const FORMAT: u64 = 1;

/// What may be set of a class.
const OF_CLASS: [&str; 7] = [
    "weight", "policy", "paths", "migrate", "estimate", "metered", "coded",
];
/// What may be set of a path.
const OF_PATH: [&str; 8] = [
    "send_rate_bps",
    "rate_hint_bps",
    "receive_rate_bps",
    "rtt_ms",
    "mtu_bytes",
    "direction",
    "meter",
    "on_demand",
];
/// Further keys that may be set for a terminal at its hub.
const OF_TERMINAL: [&str; 1] = ["weight"];
/// Keys for a path that the node's own configuration does not have.
const OF_NEW_PATH: [&str; 5] = [
    "neighbour",
    "remote",
    "convergence_layer",
    "local",
    "interface",
];
/// Programs are the node's own to name.
const PROGRAMS: [&str; 3] = ["raise", "release", "command_s"];

/// What a provider sets of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Of the format.
    version: u64,
    /// Their version: newer settings have a higher one.
    pub settings: u64,
    /// The node, by its ipn number.
    pub node: u64,
    /// Keys of classes, each with the class' name.
    #[serde(default)]
    pub class: Vec<Table>,
    /// Keys of paths, each with the path's name.
    #[serde(default)]
    pub path: Vec<Table>,
    /// At a hub: keys of its terminals, each with the terminal's node, and of their
    /// other paths, each with its listener.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub terminal: Vec<Table>,
}

/// Why settings are not taken.
#[derive(Debug, Error)]
pub enum SettingsError {
    #[error("settings of {0} bytes are more than {MAX_BYTES}")]
    Large(usize),
    #[error("malformed settings: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("settings of format {0}, not {FORMAT}")]
    Format(u64),
    #[error("settings: must be 1 to {MOST_VERSION}")]
    Version,
    #[error("this node lets nobody set {0:?} from afar: provider.may_set does not name it")]
    Forbidden(&'static str),
    #[error("each {0} needs a name of its own")]
    Name(&'static str),
    #[error("there is no class {0:?}")]
    Class(String),
    #[error("there is no terminal {0}")]
    Terminal(i64),
    #[error("each terminal needs a node of its own")]
    Node,
    #[error("{what} {name:?}: {key} cannot be set from afar")]
    Key {
        /// class, path or terminal.
        what: &'static str,
        name: String,
        key: String,
    },
    #[error("path {0:?}: neighbour must be one that this node has already")]
    Neighbour(String),
    /// What comes of it is no configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It cannot be written as TOML.
    #[error("{0}")]
    Unwritable(#[from] toml::ser::Error),
}

/// Read before the rest, to distinguish a later format from invalid data.
#[derive(Deserialize)]
struct Head {
    version: u64,
}

impl Settings {
    pub fn new(settings: u64, node: u64, class: Vec<Table>, path: Vec<Table>) -> Settings {
        Settings {
            version: FORMAT,
            settings,
            node,
            class,
            path,
            terminal: Vec::new(),
        }
    }

    /// Adds the settings that a hub has for its terminals.
    pub fn with_terminals(mut self, terminal: Vec<Table>) -> Settings {
        self.terminal = terminal;
        self
    }

    /// Parses a document. Unknown keys are refused: settings that are only partly understood must
    /// not be reported as in force.
    ///
    /// # Errors
    /// When it is not valid.
    pub fn decode(document: &[u8]) -> Result<Settings, SettingsError> {
        if document.len() > MAX_BYTES {
            return Err(SettingsError::Large(document.len()));
        }
        let head: Head = serde_json::from_slice(document)?;
        if head.version != FORMAT {
            return Err(SettingsError::Format(head.version));
        }
        let settings: Settings = serde_json::from_slice(document)?;
        match settings.settings {
            1..=MOST_VERSION => Ok(settings),
            _ => Err(SettingsError::Version),
        }
    }

    /// As a document.
    ///
    /// # Errors
    /// When they are too large for a document.
    pub fn encode(&self) -> Result<Vec<u8>, SettingsError> {
        let document = serde_json::to_vec(self)?;
        match document.len() {
            0..=MAX_BYTES => Ok(document),
            length => Err(SettingsError::Large(length)),
        }
    }

    /// The node's own configuration with these settings laid over it.
    ///
    /// # Errors
    /// When it does not allow them to be set, or they do not fit it.
    pub fn over(&self, own: &Document) -> Result<Document, SettingsError> {
        let mut table = own.table().clone();
        let allowed = own.parse::<Config>()?.provider.may_set;
        if !self.class.is_empty() {
            permit(&allowed, Settable::Class, "class")?;
            self.set_classes(&mut table)?;
        }
        if !self.path.is_empty() {
            permit(&allowed, Settable::Path, "path")?;
            self.set_paths(&mut table)?;
        }
        if !self.terminal.is_empty() {
            permit(&allowed, Settable::Terminal, "terminal")?;
            self.set_terminals(&mut table)?;
        }
        let text = toml::to_string(&table)?;
        Ok(Document::merge(vec![(own.path().to_owned(), text)])?)
    }

    fn set_classes(&self, table: &mut Table) -> Result<(), SettingsError> {
        let classes = table.entry("class").or_insert_with(|| {
            let classes = default_class_tables().into_iter();
            Value::Array(classes.map(Value::Table).collect())
        });
        let mut names = BTreeSet::new();
        for set in &self.class {
            let name = name_of(set, "class", &mut names)?;
            let class = named(classes, name);
            let class = class.ok_or_else(|| SettingsError::Class(name.to_owned()))?;
            lay(set, class, "class", name, &|key| OF_CLASS.contains(&key))?;
        }
        Ok(())
    }

    fn set_paths(&self, table: &mut Table) -> Result<(), SettingsError> {
        let neighbours = neighbours_of(table);
        let paths = table
            .entry("path")
            .or_insert_with(|| Value::Array(Vec::new()));
        let mut names = BTreeSet::new();
        for set in &self.path {
            let name = name_of(set, "path", &mut names)?;
            if let Some(path) = named(paths, name) {
                let known = |key: &str| OF_PATH.contains(&key);
                lay(set, path, "path", name, &known)?;
                continue;
            }
            let neighbour = set.get("neighbour").and_then(Value::as_integer);
            if !neighbour.is_some_and(|node| neighbours.contains(&node)) {
                return Err(SettingsError::Neighbour(name.to_owned()));
            }
            let mut path = Table::from_iter([("name".to_owned(), Value::from(name))]);
            let known = |key: &str| OF_PATH.contains(&key) || OF_NEW_PATH.contains(&key);
            lay(set, &mut path, "path", name, &known)?;
            if let Value::Array(paths) = paths {
                paths.push(Value::Table(path));
            }
        }
        Ok(())
    }

    /// Sets keys of a hub's terminals. A further path must use a listener that the hub already has;
    /// the check of the whole configuration ensures that.
    fn set_terminals(&self, table: &mut Table) -> Result<(), SettingsError> {
        let none = || Value::Array(Vec::new());
        let terminals = table.entry("terminal").or_insert_with(none);
        let mut nodes = BTreeSet::new();
        for set in &self.terminal {
            let node = set.get("node").and_then(Value::as_integer);
            let node = node.filter(|node| nodes.insert(*node));
            let node = node.ok_or(SettingsError::Node)?;
            let terminal = entry(terminals, "node", &Value::from(node));
            let terminal = terminal.ok_or(SettingsError::Terminal(node))?;
            let mut keys = set.clone();
            keys.remove("node");
            let paths = keys.remove("path");
            let known = |key: &str| OF_PATH.contains(&key) || OF_TERMINAL.contains(&key);
            lay(&keys, terminal, "terminal", &node.to_string(), &known)?;
            if let Some(paths) = paths {
                set_paths_of(terminal, node, paths)?;
            }
        }
        Ok(())
    }
}

/// Sets keys of a terminal's other paths.
fn set_paths_of(terminal: &mut Table, node: i64, set: Value) -> Result<(), SettingsError> {
    let refused = |key: &str| SettingsError::Key {
        what: "terminal",
        name: node.to_string(),
        key: key.to_owned(),
    };
    let Value::Array(set) = set else {
        return Err(refused("path"));
    };
    let none = || Value::Array(Vec::new());
    let paths = terminal.entry("path").or_insert_with(none);
    let mut listeners = BTreeSet::new();
    for set in &set {
        let set = set.as_table().ok_or_else(|| refused("path"))?;
        let listener = set.get("listener").and_then(Value::as_str);
        let listener = listener.filter(|name| listeners.insert(*name));
        let listener = listener.ok_or(SettingsError::Name("path of a terminal"))?;
        let mut keys = set.clone();
        let named = keys.remove("listener").expect("it has one");
        if entry(paths, "listener", &named).is_none()
            && let Value::Array(paths) = paths
        {
            let further = Table::from_iter([("listener".to_owned(), named.clone())]);
            paths.push(Value::Table(further));
        }
        let path = entry(paths, "listener", &named).ok_or_else(|| refused("path"))?;
        let name = format!("{node} by {listener}");
        lay(&keys, path, "terminal", &name, &|key| {
            OF_PATH.contains(&key)
        })?;
    }
    Ok(())
}

fn permit(allowed: &[Settable], wanted: Settable, name: &'static str) -> Result<(), SettingsError> {
    match allowed.contains(&wanted) {
        true => Ok(()),
        false => Err(SettingsError::Forbidden(name)),
    }
}

fn name_of<'a>(
    set: &'a Table,
    what: &'static str,
    names: &mut BTreeSet<&'a str>,
) -> Result<&'a str, SettingsError> {
    let name = set.get("name").and_then(Value::as_str);
    let name = name.filter(|name| !name.is_empty() && names.insert(name));
    name.ok_or(SettingsError::Name(what))
}

fn named<'a>(entries: &'a mut Value, name: &str) -> Option<&'a mut Table> {
    entry(entries, "name", &Value::from(name))
}

/// The entry of an array of tables with this value of a key.
fn entry<'a>(entries: &'a mut Value, key: &str, value: &Value) -> Option<&'a mut Table> {
    let entries = entries.as_array_mut()?.iter_mut();
    let mut tables = entries.filter_map(Value::as_table_mut);
    tables.find(|entry| entry.get(key) == Some(value))
}

fn neighbours_of(table: &Table) -> BTreeSet<i64> {
    let paths = table.get("path").and_then(Value::as_array);
    let neighbours = paths.into_iter().flatten().filter_map(|path| {
        let neighbour = path.as_table()?.get("neighbour")?;
        neighbour.as_integer()
    });
    neighbours.collect()
}

/// Sets keys of an entry.
fn lay(
    set: &Table,
    over: &mut Table,
    what: &'static str,
    name: &str,
    is_known: &dyn Fn(&str) -> bool,
) -> Result<(), SettingsError> {
    let refused = |key: &str| SettingsError::Key {
        what,
        name: name.to_owned(),
        key: key.to_owned(),
    };
    for (key, value) in set.iter().filter(|(key, _)| *key != "name") {
        if !is_known(key) {
            return Err(refused(key));
        }
        let Value::Table(of_it) = value else {
            over.insert(key.clone(), value.clone());
            continue;
        };
        let mut laid = of_it.clone();
        if key == "on_demand" {
            if let Some(program) = PROGRAMS.iter().find(|key| of_it.contains_key(**key)) {
                return Err(refused(&format!("on_demand.{program}")));
            }
            let own = over.get(key).and_then(Value::as_table);
            for program in PROGRAMS {
                if let Some(value) = own.and_then(|own| own.get(program)) {
                    laid.insert(program.to_owned(), value.clone());
                }
            }
        }
        over.insert(key.clone(), Value::Table(laid));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
