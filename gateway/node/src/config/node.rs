//! Who the node is, and what it logs.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use underpass_bundle::wire::MOST_NAME_BYTES;

use super::bounds::{MOST_BYTES, check_within};

/// What a node is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// At the vehicle: dials the hub, takes in the clients' connections.
    Terminal,
    /// At the ground station: accepts terminals, dials origins.
    Hub,
    /// Between nodes: forwards bundles, has no edge.
    Relay,
}

impl Role {
    /// The role's name in configuration, API and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Role::Terminal => "terminal",
            Role::Hub => "hub",
            Role::Relay => "relay",
        }
    }
}

/// Most shards by default; more would leave each little to do.
const MOST_SHARDS: usize = 16;
/// Characters of this node's name at most.
const MOST_NAME_CHARACTERS: usize = 64;
/// Characters of any node's name at most: dtn://NAME/ is taken from a neighbour.
const MOST_CHARACTERS_OF_OTHERS: usize = MOST_NAME_BYTES - "///".len();
/// An access log that is begun again more often keeps too little.
const LEAST_ACCESS_BYTES: u64 = 64 << 10;

/// Whether a text is the name of a node in the dtn scheme (RFC 9171 §4.2.5.1.1), of
/// characters that mean themselves everywhere (RFC 3986 §2.3).
pub fn is_node_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    // dtn:none is nobody, and is written dtn://none/ by some.
    let names_nobody = text.eq_ignore_ascii_case("none");
    let fits = (1..=MOST_CHARACTERS_OF_OTHERS).contains(&text.len());
    fits && text.bytes().all(plain) && !names_nobody
}

/// Who this node is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// ipn node number, 1 to 2³²−2 (RFC 9758).
    pub number: u64,
    /// Its name in the dtn scheme beside the number, 1 to 64 letters, digits and -._~:
    /// of "edge-7" the node ID is dtn://edge-7/. Default: none.
    pub name: Option<String>,
    /// terminal, hub or relay.
    pub role: Role,
    /// Folder for what must survive a restart. Default /var/lib/underpass.
    #[serde(default = "default_state_dir")]
    pub state_dir: PathBuf,
    /// How long SIGTERM waits for open streams to end, s. Default 10.
    #[serde(default = "default_drain_s")]
    pub drain_s: u64,
    /// How long the process before an upgrade may go on with what does not move
    /// to the next one, s. Default 3600.
    #[serde(default = "default_upgrade_s")]
    pub upgrade_s: u64,
    /// How long the program that is to go on may take for each step, s, 1 to
    /// 600. Default 60.
    #[serde(default = "default_upgrade_patience_s")]
    pub upgrade_patience_s: u64,
    /// Worker threads. Default: one per core.
    pub threads: Option<usize>,
    /// Parts of the node that work at once, each for some of its neighbours,
    /// 1 to 64. Default: at terminals 1, else one per core, 16 at most.
    pub shards: Option<usize>,
    /// Whether the process gives away, at its start, the rights that it does
    /// not need. Default true.
    #[serde(default = "default_confine")]
    pub confine: bool,
}

pub(super) fn default_state_dir() -> PathBuf {
    PathBuf::from("/var/lib/underpass")
}

fn default_confine() -> bool {
    true
}

fn default_upgrade_s() -> u64 {
    3_600
}

fn default_upgrade_patience_s() -> u64 {
    60
}

fn default_drain_s() -> u64 {
    10
}

impl NodeConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        // RFC 9758 § 3.4.3 reserves 0 and keeps 2³²−1 for the node itself.
        if self.number == 0 || self.number >= u64::from(u32::MAX) {
            problems.push(format!(
                "node.number = {}: must be 1 to 4294967294",
                self.number
            ));
        }
        if let Some(name) = &self.name
            && (name.len() > MOST_NAME_CHARACTERS || !is_node_name(name))
        {
            problems.push(format!(
                "node.name = {name:?}: must be 1 to {MOST_NAME_CHARACTERS} letters, digits and -._~, and not \"none\""
            ));
        }
        let mut within = |key: &str, value, bounds| {
            check_within(&format!("node.{key}"), value, bounds, problems)
        };
        within("drain_s", self.drain_s, 0..=86_400);
        within("upgrade_s", self.upgrade_s, 0..=7 * 86_400);
        within("upgrade_patience_s", self.upgrade_patience_s, 1..=600);
        within("threads", self.threads.unwrap_or(1) as u64, 1..=1_024);
        within("shards", self.shards.unwrap_or(1) as u64, 1..=64);
    }

    /// The parts of the node that work at once.
    pub fn shards(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.shards.unwrap_or_else(|| match self.role {
            Role::Terminal => 1,
            Role::Hub | Role::Relay => cores().min(MOST_SHARDS),
        })
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// What is logged, and how.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// A level (error, warn, info, debug, trace) or tracing's filter
    /// directives, e.g. "info,underpass_tcpcl=debug". Default "info".
    pub level: String,
    /// text or json. Default text.
    pub format: LogFormat,
    /// A file with a line for each connection and exchange of a client. Default none.
    pub access: Option<AccessLogConfig>,
}

/// How lines of the access log look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessFormat {
    /// The Common Log Format.
    #[default]
    Common,
    /// One JSON object per line, with all that is known.
    Json,
}

/// `[log.access]`: what clients reached.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLogConfig {
    /// Default `access.log` in `node.state_dir`.
    pub file: Option<PathBuf>,
    /// common or json. Default common.
    pub format: AccessFormat,
    /// The file begins anew at this size, bytes, and the one before is kept as
    /// `FILE.1`. Default 64 MiB.
    pub max_bytes: u64,
}

impl Default for AccessLogConfig {
    fn default() -> Self {
        AccessLogConfig {
            file: None,
            format: AccessFormat::Common,
            max_bytes: 64 << 20,
        }
    }
}

impl AccessLogConfig {
    /// Where it is written.
    pub fn file(&self, state_dir: &Path) -> PathBuf {
        let file = self.file.as_deref();
        state_dir.join(file.unwrap_or(Path::new("access.log")))
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig {
            level: "info".to_owned(),
            format: LogFormat::Text,
            access: None,
        }
    }
}

impl LogConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        // A word that is no level would name a part of the program, and all other parts would log
        // nothing.
        let is_level = |word: &str| word.contains('=') || word.parse::<LevelFilter>().is_ok();
        let wrong = self.level.split(',').find(|word| !is_level(word));
        if let Some(word) = wrong {
            problems.push(format!(
                "log.level: {word:?} is neither a level (error, warn, info, debug, trace, off) nor \
                 PART=LEVEL"
            ));
        } else if let Err(error) = EnvFilter::builder().parse(&self.level) {
            problems.push(format!("log.level: {error}"));
        }
        if let Some(access) = &self.access {
            let bounds = LEAST_ACCESS_BYTES..=MOST_BYTES;
            check_within("log.access.max_bytes", access.max_bytes, bounds, problems);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_few_by_default_and_bounded() {
        let problems = |keys: &str| {
            let text = format!("number = 1\nrole = \"hub\"\n{keys}");
            let node: NodeConfig = toml::from_str(&text).expect("all keys are known");
            let mut problems = Vec::new();
            node.check(&mut problems);
            (node.shards(), problems)
        };
        let (shards, problems_found) = problems("");
        assert!((1..=MOST_SHARDS).contains(&shards) && problems_found.is_empty());
        assert_eq!(problems("shards = 64"), (64, vec![]));
        let terminal: NodeConfig = toml::from_str("number = 10\nrole = \"terminal\"").unwrap();
        assert_eq!(terminal.shards(), 1);
        for wrong in [0, 65] {
            let told = format!("node.shards = {wrong}: must be 1 to 64");
            assert_eq!(problems(&format!("shards = {wrong}")), (wrong, vec![told]));
        }
    }

    #[test]
    fn a_name_is_plain_and_not_long() {
        let problems = |name: &str| {
            let text = format!("number = 1\nrole = \"hub\"\nname = {name:?}");
            let node: NodeConfig = toml::from_str(&text).expect("all keys are known");
            let mut problems = Vec::new();
            node.check(&mut problems);
            problems
        };
        for name in ["edge-7", "7", "Rover_1.example~x", &"n".repeat(64)] {
            assert_eq!(problems(name), Vec::<String>::new(), "{name}");
        }
        for name in [
            "",
            "dtn://edge-7/",
            "edge 7",
            "a/b",
            "none",
            "é",
            &"n".repeat(65),
        ] {
            let problems = problems(name);
            assert_eq!(problems.len(), 1, "{name}");
            assert!(problems[0].contains("node.name"), "{problems:?}");
        }
    }

    #[test]
    fn a_level_that_is_none_does_not_silence_the_log() {
        let problems = |level: &str| {
            let log = LogConfig {
                level: level.to_owned(),
                ..LogConfig::default()
            };
            let mut problems = Vec::new();
            log.check(&mut problems);
            problems
        };
        for right in ["info", "off", "WARN,underpass_tcpcl=debug", "a=info,b=off"] {
            assert_eq!(problems(right), Vec::<String>::new(), "{right}");
        }
        for wrong in ["inof", "info,underpass_tcpcl", "a=inof"] {
            assert_eq!(problems(wrong).len(), 1, "{wrong}: {:?}", problems(wrong));
        }
    }

    #[test]
    fn an_access_log_is_in_the_state_folder_and_has_a_least_size() {
        let problems = |keys: &str| {
            let log: LogConfig = toml::from_str(&format!("[access]\n{keys}")).unwrap();
            let mut problems = Vec::new();
            log.check(&mut problems);
            (log.access.unwrap().file(Path::new("/state")), problems)
        };
        let (usual, none) = problems("");
        assert_eq!((usual, none), ("/state/access.log".into(), vec![]));
        let (elsewhere, _) = problems("file = \"/var/log/underpass/access.log\"");
        assert_eq!(elsewhere, Path::new("/var/log/underpass/access.log"));
        let (_, small) = problems("max_bytes = 1000");
        assert_eq!(
            small,
            ["log.access.max_bytes = 1000: must be 65536 to 1125899906842624"]
        );
    }
}
