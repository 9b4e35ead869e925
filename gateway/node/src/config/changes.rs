//! The differences between two configurations as they are written, and whether a running node can
//! apply them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use toml::{Table, Value};

use super::default_class_tables;

/// Most characters of a value that are shown.
const SHOWN: usize = 80;

/// Arrays of tables whose entries have a name of their own, and the key that
/// holds it.
const NAMED: [(&[&str], &str); 6] = [
    (&["class"], "name"),
    (&["path"], "name"),
    (&["listener"], "name"),
    (&["terminal"], "node"),
    (&["modem"], "path"),
    (&["edge", "listener"], "name"),
];

/// A key and what has become of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The tables it is in, names of entries among them, and the key.
    place: Vec<String>,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Added,
    Removed,
    Changed {
        from: String,
        to: String,
    },
    /// The values must not be shown.
    Secret,
}

impl Change {
    /// Whether a running node takes it over.
    pub fn is_live(&self) -> bool {
        let place: Vec<&str> = self.place.iter().map(String::as_str).collect();
        match place[..] {
            [
                "terminal" | "path" | "route" | "routing" | "relay" | "outlet" | "beam" | "streams"
                | "bpsec" | "provider",
                ..,
            ]
            | ["node", "name"]
            | ["log", "level"]
            | [
                "class",
                _,
                "weight" | "policy" | "paths" | "migrate" | "estimate" | "metered" | "coded",
                ..,
            ]
            | ["edge", "client_networks" | "rule"] => true,
            ["custody", key] => [
                "quota_bytes",
                "quota_bundles",
                "guaranteed_percent",
                "foreign_lifetime_s",
                "hop_limit",
            ]
            .contains(&key),
            ["edge", "listener", _, key] => [
                "answer",
                "client_networks",
                "users",
                "max_connections",
                "handshake_timeout_s",
            ]
            .contains(&key),
            ["edge", "dial", key] => [
                "allow_networks",
                "own_addresses",
                "deny_networks",
                "deny_ports",
                "connect_timeout_s",
                "guaranteed_dials",
                "common_dials",
                "families",
            ]
            .contains(&key),
            _ => false,
        }
    }

    /// The path that it is of, by name.
    pub fn path(&self) -> Option<&str> {
        match &self.place[..] {
            [table, name, ..] if table == "path" => Some(name),
            _ => None,
        }
    }

    pub fn terminal(&self) -> Option<u64> {
        match &self.place[..] {
            [table, node, ..] if table == "terminal" => node.parse().ok(),
            _ => None,
        }
    }

    /// The class that it is of, by name.
    pub fn class(&self) -> Option<&str> {
        match &self.place[..] {
            [table, name, ..] if table == "class" => Some(name),
            _ => None,
        }
    }

    /// The key, as an operator knows it.
    pub fn key(&self) -> String {
        self.place.join(".")
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key();
        match &self.what {
            What::Added => write!(f, "{key} added"),
            What::Removed => write!(f, "{key} removed"),
            What::Secret => write!(f, "{key} changed"),
            What::Changed { from, to } => write!(f, "{key}: {from} is now {to}"),
        }
    }
}

/// All that differs.
pub fn between(before: &Table, after: &Table) -> Vec<Change> {
    let mut changes = Vec::new();
    let [before, after] = [before, after].map(with_classes);
    compare_tables(&mut Vec::new(), &before, &after, &mut changes);
    changes
}

/// If no classes are written, the default ones are in force, and later written classes of the same
/// names count as changes of these.
fn with_classes(table: &Table) -> Table {
    let mut table = table.clone();
    table.entry("class").or_insert_with(|| {
        let classes = default_class_tables().into_iter();
        Value::Array(classes.map(Value::Table).collect())
    });
    table
}

fn compare_tables(
    place: &mut Vec<String>,
    before: &Table,
    after: &Table,
    changes: &mut Vec<Change>,
) {
    let empty = Value::Table(Table::new());
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for key in keys {
        place.push(key.clone());
        match (before.get(key), after.get(key)) {
            (Some(before), Some(after)) => compare(place, before, after, changes),
            // A missing table counts as one without keys.
            (Some(before @ Value::Table(_)), None) => compare(place, before, &empty, changes),
            (None, Some(after @ Value::Table(_))) => compare(place, &empty, after, changes),
            (Some(before), None) => one_sided(place, before, true, changes),
            (None, Some(after)) => one_sided(place, after, false, changes),
            (None, None) => {}
        }
        place.pop();
    }
}

/// A key that is written on one side only.
fn one_sided(place: &mut Vec<String>, value: &Value, was: bool, changes: &mut Vec<Change>) {
    let empty = Value::Array(Vec::new());
    match (identity(place), was) {
        (Some(_), true) => compare(place, value, &empty, changes),
        (Some(_), false) => compare(place, &empty, value, changes),
        (None, true) => changes.push(change(place, Some(value), None)),
        (None, false) => changes.push(change(place, None, Some(value))),
    }
}

fn compare(place: &mut Vec<String>, before: &Value, after: &Value, changes: &mut Vec<Change>) {
    match (before, after) {
        _ if before == after => {}
        (Value::Table(before), Value::Table(after)) => {
            compare_tables(place, before, after, changes);
        }
        (Value::Array(before), Value::Array(after))
            if let Some(key) = identity(place)
                && let (Some(before), Some(after)) =
                    (entries(before, key), entries(after, key)) =>
        {
            compare_entries(place, &before, &after, changes);
        }
        _ => changes.push(change(place, Some(before), Some(after))),
    }
}

/// Compares arrays whose entries have names: by these, and their order.
fn compare_entries(
    place: &mut Vec<String>,
    before: &[(String, &Table)],
    after: &[(String, &Table)],
    changes: &mut Vec<Change>,
) {
    let [old, new]: [BTreeMap<&String, &Table>; 2] =
        [before, after].map(|list| list.iter().map(|(name, table)| (name, *table)).collect());
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).copied().collect();
    for name in names {
        place.push(name.clone());
        let what = match (old.get(name), new.get(name)) {
            (Some(before), Some(after)) => {
                compare_tables(place, before, after, changes);
                None
            }
            (None, _) => Some(What::Added),
            (_, None) => Some(What::Removed),
        };
        changes.extend(what.map(|what| Change {
            place: place.clone(),
            what,
        }));
        place.pop();
    }
    // Classes are numbered by their order.
    let order = |list: &[(String, &Table)]| -> Vec<String> {
        list.iter().map(|(name, _)| name.clone()).collect()
    };
    let (before, after) = (order(before), order(after));
    if place == &["class"] && before != after && old.len() == new.len() {
        changes.push(Change {
            place: place.clone(),
            what: What::Changed {
                from: before.join(", "),
                to: after.join(", "),
            },
        });
    }
}

fn identity(place: &[String]) -> Option<&'static str> {
    let named = NAMED.iter().find(|(at, _)| place == *at);
    named.map(|(_, key)| *key)
}

/// The entries of an array of tables by their names, if all have unique ones.
fn entries<'a>(array: &'a [Value], key: &str) -> Option<Vec<(String, &'a Table)>> {
    let named = array.iter().map(|value| {
        let table = value.as_table()?;
        let name = match table.get(key)? {
            Value::String(name) => name.clone(),
            other => other.to_string(),
        };
        Some((name, table))
    });
    let named: Vec<_> = named.collect::<Option<_>>()?;
    let names: BTreeSet<&String> = named.iter().map(|(name, _)| name).collect();
    (names.len() == named.len()).then_some(named)
}

fn change(place: &[String], before: Option<&Value>, after: Option<&Value>) -> Change {
    let secret = place.iter().any(|part| part == "users" || part == "user");
    let shown = |value: Option<&Value>| value.map_or("the default".to_owned(), shown);
    let what = match secret {
        true => What::Secret,
        false => What::Changed {
            from: shown(before),
            to: shown(after),
        },
    };
    Change {
        place: place.to_vec(),
        what,
    }
}

fn shown(value: &Value) -> String {
    let text = value.to_string().replace('\n', " ");
    match text.char_indices().nth(SHOWN) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(before: &str, after: &str) -> Vec<String> {
        told(&of(before, after))
    }

    fn of(before: &str, after: &str) -> Vec<Change> {
        between(
            &toml::from_str(before).unwrap(),
            &toml::from_str(after).unwrap(),
        )
    }

    fn told(changes: &[Change]) -> Vec<String> {
        changes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_same_written_otherwise_is_no_change() {
        let one =
            "[log]\nlevel = 'info'\n[[terminal]]\nnode = 10\nweight = 2\n[[terminal]]\nnode = 11\n";
        let other =
            "terminal = [{ node = 11 }, { weight = 2, node = 10 }]\nlog.level = \"info\"\n[edge]\n";
        assert!(changes(one, other).is_empty(), "{:?}", changes(one, other));
    }

    #[test]
    fn default_classes_that_are_written_are_no_change_but_for_what_they_say() {
        let written: String = default_class_tables()
            .into_iter()
            .map(|class| format!("[[class]]\n{class}"))
            .collect();
        assert!(changes("", &written).is_empty());
        let migrating = format!("{written}policy = 'migrate'\n");
        let changes = of("", &migrating);
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert!(changes[0].is_live());
    }

    #[test]
    fn each_key_is_told_with_both_values() {
        let before =
            "log.level = 'info'\n[[terminal]]\nnode = 10\nweight = 2\n[[terminal]]\nnode = 11\n";
        let after = "[[terminal]]\nnode = 10\nweight = 3\nrtt_ms = 500\n[[terminal]]\nnode = 501\n";
        assert_eq!(
            changes(before, after),
            [
                "log.level: \"info\" is now the default",
                "terminal.10.rtt_ms: the default is now 500",
                "terminal.10.weight: 2 is now 3",
                "terminal.11 removed",
                "terminal.501 added",
            ]
        );
        let first = changes("", "terminal = [{ node = 1 }]");
        assert_eq!(first, ["terminal.1 added"]);
    }

    #[test]
    fn passwords_are_not_told() {
        let listener = |password: &str| {
            format!(
                "[[edge.listener]]\nname = 'in'\nusers = [{{ name = 'a', password = '{password}' }}]"
            )
        };
        let told = changes(&listener("first"), &listener("second"));
        assert_eq!(told, ["edge.listener.in.users changed"]);
    }

    #[test]
    fn what_a_running_node_takes_over_is_told_from_what_it_cannot() {
        for (before, after, live) in [
            ("", "terminal = [{ node = 501 }]", true),
            ("", "log.level = 'debug'", true),
            ("", "log.format = 'json'", false),
            ("node.number = 1", "node.number = 2", false),
            ("node.name = 'a'", "node.name = 'b'", true),
            ("", "api.listen = '127.0.0.1:1'", false),
            ("listener = [{ name = 'a' }]", "listener = []", false),
            (
                "listener = [{ name = 'a' }]",
                "listener = [{ name = 'a', max_pending = 512 }]",
                false,
            ),
            (
                "edge.listener = [{ name = 'a' }]",
                "edge.listener = [{ name = 'a', max_connections = 512 }]",
                true,
            ),
            (
                "edge.listener = [{ name = 'a' }]",
                "edge.listener = [{ name = 'a', answer = 'after-dial' }]",
                true,
            ),
            (
                "class = [{ name = 'a', weight = 1 }]",
                "class = [{ name = 'a', weight = 2 }]",
                true,
            ),
            (
                "class = [{ name = 'a' }]",
                "class = [{ name = 'a', policy = 'failover', paths = ['b', 'c'] }]",
                true,
            ),
            (
                "class = [{ name = 'a' }]",
                "class = [{ name = 'a', coded = 'never' }]",
                true,
            ),
            (
                "class = [{ name = 'a', priority = 1 }]",
                "class = [{ name = 'a', priority = 2 }]",
                false,
            ),
            (
                "class = [{ name = 'a' }, { name = 'b' }]",
                "class = [{ name = 'b' }, { name = 'a' }]",
                false,
            ),
            (
                "class = [{ name = 'a' }]",
                "class = [{ name = 'a' }, { name = 'b' }]",
                false,
            ),
            ("", "[[edge.rule]]\nclass = 'bulk'", true),
            ("", "edge.dial.deny_ports = [25]", true),
            ("", "edge.dial.own_addresses = ['192.0.2.1']", true),
            ("", "edge.dial.origin_source = 'client'", false),
            ("", "custody.quota_bytes = 5000000", true),
            ("", "custody.guaranteed_percent = 80", true),
            ("", "custody.dir = '/x'", false),
            ("", "[[bpsec.rule]]\nintegrity_keys = ['a']", true),
        ] {
            let changes = of(before, after);
            assert!(!changes.is_empty(), "{before} / {after}");
            assert!(
                changes.iter().all(|change| change.is_live() == live),
                "{before} / {after}: {:?}",
                told(&changes)
            );
        }
    }
}
