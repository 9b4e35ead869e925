//! Traffic classes and the flow control of streams.

use super::bounds::check_within;
use std::collections::BTreeSet;

use serde::Deserialize;
use toml::{Table, Value};
use underpass_cla::Class;
use underpass_engine::{MeteredUse, PathUse};

/// One traffic class; its place in the list is its number on the wire.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassSettings {
    /// Its name in rules, API and metrics.
    pub name: String,
    /// Strict priority: a lower number goes first.
    pub priority: u8,
    /// Share among classes of equal priority. Default 1.
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// What is done with several paths to a neighbour: bonded, failover, pinned,
    /// duplicated, migrate or minfct. Default bonded.
    #[serde(default)]
    pub policy: PathUse,
    /// The paths that it may use, by the names of `[[path]]`s, and where
    /// sessions are accepted of `[[listener]]`s; the preferred one first.
    /// Default: all, in their order.
    #[serde(default)]
    pub paths: Vec<String>,
    /// When it moves to another path, with policy = "migrate".
    #[serde(default)]
    pub migrate: MigrateSettings,
    /// How completion is estimated, with policy = "minfct": open-session or
    /// new-connection. Default open-session.
    #[serde(default)]
    pub estimate: FlowEstimate,
    /// When it goes by paths with a `meter`: never, last (while no other can
    /// carry it) or freely. Default last.
    #[serde(default)]
    pub metered: MeteredUse,
    /// How bundles go by paths with convergence_layer = "quic": never, tail or
    /// always as coded datagrams. Default: never for the first class, always
    /// for those that go before others, tail for the rest.
    pub coded: Option<Coded>,
}

/// How a class estimates when a flow is complete on a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowEstimate {
    /// As one of many flows on a session that is up.
    #[default]
    OpenSession,
    /// As a TCP connection that begins with the flow: the paper's equations.
    NewConnection,
}

/// Which bundles of a class go as coded datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Coded {
    /// None.
    Never,
    /// All, with repair for the last round trip of an object.
    Tail,
    /// All, with repair for all.
    Always,
}

/// Which bundles of each class go as coded datagrams.
pub fn coded(classes: &[ClassSettings]) -> Vec<Coded> {
    let last = classes.iter().map(|class| class.priority).max();
    let by_default = |place: usize, class: &ClassSettings| match place {
        // What is lost of signalling is soon said again.
        0 => Coded::Never,
        _ if Some(class.priority) < last => Coded::Always,
        _ => Coded::Tail,
    };
    let places = classes.iter().enumerate();
    places
        .map(|(place, class)| class.coded.unwrap_or_else(|| by_default(place, class)))
        .collect()
}

/// When a class moves to another path.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MigrateSettings {
    /// Whether congestion moves it; else only an operator and the loss of its
    /// path do. Default true.
    pub by_rule: bool,
    /// A path is in trouble for so long before the class leaves it, s. Default 5.
    pub after_s: f64,
    /// A path is full when this part of its rate is in use. Default 0.9.
    pub full_part: f64,
    /// Trouble is to be full while the delay, the class' own backlog included,
    /// is so many times the round trip without queues. Default 5.
    pub delay_factor: f64,
    /// Trouble is to lose this part of the packets. Default 0.1.
    pub loss: f64,
    /// Trouble is to be full at no more than this part of the best rate that the
    /// path has had meanwhile. Default 0.3.
    pub rate_part: f64,
    /// A better path has had room for so long before the class goes back, s.
    /// Default 10.
    pub back_after_s: f64,
    /// It goes only where what it sends and what the path carries fit into this
    /// part of the rate. Default 0.8.
    pub room_part: f64,
}

impl Default for MigrateSettings {
    fn default() -> Self {
        MigrateSettings {
            by_rule: true,
            after_s: 5.0,
            full_part: 0.9,
            delay_factor: 5.0,
            loss: 0.1,
            rate_part: 0.3,
            back_after_s: 10.0,
            room_part: 0.8,
        }
    }
}

impl MigrateSettings {
    fn check(&self, class: &str, problems: &mut Vec<String>) {
        let part = 0.001..=1.0;
        let values = [
            ("after_s", self.after_s, 0.5..=3_600.0),
            ("full_part", self.full_part, part.clone()),
            ("delay_factor", self.delay_factor, 1.0..=1_000.0),
            ("loss", self.loss, part.clone()),
            ("rate_part", self.rate_part, part.clone()),
            ("back_after_s", self.back_after_s, 1.0..=86_400.0),
            ("room_part", self.room_part, part),
        ];
        // What is no number lies in no range.
        for (key, value, range) in values
            .iter()
            .filter(|(_, value, range)| !range.contains(value))
        {
            let (least, most) = (range.start(), range.end());
            problems.push(format!(
                "class {class:?}: migrate.{key} = {value}: must be {least} to {most}"
            ));
        }
    }
}

/// Flows wait apart for so many paths.
const MOST_MINFCT_PATHS: usize = 4;

fn default_weight() -> u32 {
    1
}

/// Signalling, interactive, normal and bulk: normal and bulk share what the
/// others leave, four to one. Name, priority and weight of each.
const DEFAULT_CLASSES: [(&str, u8, u32); 4] = [
    ("signalling", 0, 1),
    ("interactive", 1, 1),
    ("normal", 2, 4),
    ("bulk", 2, 1),
];

/// The default classes, as they would be written.
pub fn default_class_tables() -> Vec<Table> {
    let classes = DEFAULT_CLASSES.into_iter();
    let tables = classes.map(|(name, priority, weight)| {
        Table::from_iter([
            ("name".to_owned(), Value::from(name)),
            ("priority".to_owned(), Value::from(priority)),
            ("weight".to_owned(), Value::from(weight)),
        ])
    });
    tables.collect()
}

pub(super) fn default_classes() -> Vec<ClassSettings> {
    DEFAULT_CLASSES
        .into_iter()
        .map(|(name, priority, weight)| ClassSettings {
            name: name.to_owned(),
            priority,
            weight,
            policy: PathUse::Bonded,
            paths: Vec::new(),
            migrate: MigrateSettings::default(),
            estimate: FlowEstimate::default(),
            metered: MeteredUse::default(),
            coded: None,
        })
        .collect()
}

/// Looks a class up by its name.
pub fn class_named(classes: &[ClassSettings], name: &str) -> Option<Class> {
    let place = classes.iter().position(|class| class.name == name)?;
    u8::try_from(place).ok().map(Class)
}

pub(super) fn check_classes(classes: &[ClassSettings], problems: &mut Vec<String>) {
    if !(2..=16).contains(&classes.len()) {
        problems.push(format!(
            "{} classes: there must be 2 to 16, the first for signalling",
            classes.len()
        ));
        return;
    }
    let mut names = BTreeSet::new();
    for class in classes {
        if !names.insert(&class.name) {
            problems.push(format!("class {:?} is there twice", class.name));
        }
        if class.weight == 0 {
            problems.push(format!("class {:?}: weight must be at least 1", class.name));
        }
        if class.priority < classes[0].priority {
            problems.push(format!(
                "class {:?} goes before the first class, which carries signalling",
                class.name
            ));
        }
    }
}

/// Checks the policies of classes against the names of what there is.
pub(super) fn check_policies(
    classes: &[ClassSettings],
    ways: &BTreeSet<&str>,
    problems: &mut Vec<String>,
) {
    for ClassSettings {
        name,
        policy,
        paths,
        migrate,
        estimate,
        ..
    } in classes
    {
        migrate.check(name, problems);
        if *policy != PathUse::Migrate && *migrate != MigrateSettings::default() {
            problems.push(format!(
                "class {name:?}: migrate is of no use without policy = \"migrate\""
            ));
        }
        if *policy != PathUse::MinFct && *estimate != FlowEstimate::default() {
            problems.push(format!(
                "class {name:?}: estimate is of no use without policy = \"minfct\""
            ));
        }
        if *policy == PathUse::MinFct && paths.len() > MOST_MINFCT_PATHS {
            problems.push(format!(
                "class {name:?}: policy = \"minfct\" takes {MOST_MINFCT_PATHS} paths at most"
            ));
        }
        let unknown = paths.iter().filter(|path| !ways.contains(path.as_str()));
        for path in unknown {
            problems.push(format!(
                "class {name:?}: paths: there is no [[path]] or [[listener]] {path:?}"
            ));
        }
        let named: BTreeSet<&String> = paths.iter().collect();
        if named.len() < paths.len() {
            problems.push(format!("class {name:?}: paths: one is there twice"));
        }
        if *policy == PathUse::Pinned && paths.len() != 1 {
            problems.push(format!(
                "class {name:?}: policy = \"pinned\" needs one path in paths"
            ));
        }
    }
}

/// Flow control of streams.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StreamsConfig {
    /// The class of connections that no `[[edge.rule]]` matches, and of
    /// bundles from peers that do not know classes. Default "normal".
    pub default_class: String,
    /// Streams open at once with one peer. Default 65536.
    pub max_streams: usize,
    /// Bytes kept per stream before the link takes them. Default: 100 ms of
    /// the path's rate, at least 64 KiB, at most 4 MiB.
    pub send_buffer_bytes: Option<u64>,
    /// Credit of a stream, bytes; all of a peer have twice that. Default: 4 ×
    /// rate × RTT of the path, at least 4 MiB.
    pub window_bytes: Option<u64>,
}

impl Default for StreamsConfig {
    fn default() -> Self {
        StreamsConfig {
            default_class: "normal".to_owned(),
            max_streams: 65_536,
            send_buffer_bytes: None,
            window_bytes: None,
        }
    }
}

impl StreamsConfig {
    pub(super) fn check(&self, classes: &[ClassSettings], problems: &mut Vec<String>) {
        if class_named(classes, &self.default_class).is_none() {
            problems.push(format!(
                "streams.default_class: there is no class {:?}",
                self.default_class
            ));
        }
        let (window, buffer) = (self.window_bytes, self.send_buffer_bytes);
        for (key, value, bounds) in [
            ("max_streams", self.max_streams as u64, 1..=16_777_216),
            ("window_bytes", window.unwrap_or(1 << 20), 65_536..=1 << 40),
            (
                "send_buffer_bytes",
                buffer.unwrap_or(1 << 20),
                16_384..=1 << 40,
            ),
        ] {
            check_within(&format!("streams.{key}"), value, bounds, problems);
        }
    }
}
