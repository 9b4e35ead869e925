//! Paths that are up only while they are needed.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use underpass_engine::{LONGEST_NAME, OnDemand};

use crate::privileged::PathCommands;

/// A path that this node brings up when it is needed, and releases.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OnDemandSettings {
    /// The other paths are to carry what waits within this time; a backlog that
    /// lasts longer brings the path up, s. Default 10.
    pub within_s: Seconds<10>,
    /// Where the other paths can carry nothing for so long, it is brought up, s.
    /// Default 1.
    pub others_down_s: Seconds<1>,
    /// It is released when it has not been needed for so long, s. Default 60.
    pub idle_s: Seconds<60>,
    /// It stays up for so long at least, s. Default 60.
    pub least_up_s: Seconds<60>,
    /// It stays down for so long before a backlog brings it up again, s; after a
    /// failure for all, and twice as long each time. Default 10.
    pub least_down_s: Seconds<10>,
    /// It is to have a session within this time, or it is released, s. Default 60.
    pub connect_s: Seconds<60>,
    /// Whether the neighbour may have it brought up. Default true.
    pub neighbour_asks: Asks,
    /// Program and arguments that bring it up, before it is dialled. Default: none.
    pub raise: Vec<String>,
    /// Program and arguments that release it, after its sessions have ended.
    /// Default: none.
    pub release: Vec<String>,
    /// Each of them is ended when it takes longer, s. Default 30.
    pub command_s: Seconds<30>,
}

/// A time in seconds, with its default.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Seconds<const DEFAULT: u32>(pub f64);

impl<const DEFAULT: u32> Default for Seconds<DEFAULT> {
    fn default() -> Self {
        Seconds(f64::from(DEFAULT))
    }
}

impl<const DEFAULT: u32> Seconds<DEFAULT> {
    /// As a duration; the configuration's check has bounded it.
    pub fn time(self) -> Duration {
        Duration::try_from_secs_f64(self.0).unwrap_or_default()
    }
}

/// Whether the neighbour may ask; it may by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Asks(pub bool);

impl Default for Asks {
    fn default() -> Self {
        Asks(true)
    }
}

/// A path that the terminal brings up when it is needed, as its hub knows it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedSettings {
    /// The path's name at the terminal.
    pub path: String,
    /// The other paths are to carry what waits within this time; for a backlog
    /// that lasts longer the terminal is asked to bring the path up, s. Default 10.
    #[serde(default)]
    pub within_s: Seconds<10>,
    /// Where the other paths can carry nothing for so long, it is asked to keep it
    /// up, s. Default 1.
    #[serde(default)]
    pub others_down_s: Seconds<1>,
}

/// The longest of these times: a day, s.
const LONGEST_S: f64 = 86_400.0;
/// The shortest pauses, s: with shorter ones the path would flap.
const LEAST_PAUSE_S: f64 = 1.0;
/// The longest time of a command, s: the helper must answer each request.
const LONGEST_COMMAND_S: f64 = 600.0;

fn check_time(
    at: &str,
    key: &str,
    seconds: f64,
    least: f64,
    most: f64,
    problems: &mut Vec<String>,
) {
    if !(least..=most).contains(&seconds) {
        problems.push(format!("{at}: on_demand.{key} must be {least} to {most}"));
    }
}

fn check_name(at: &str, name: &str, problems: &mut Vec<String>) {
    if name.is_empty() || name.len() > LONGEST_NAME {
        problems.push(format!(
            "{at}: a path with on_demand needs a name of 1 to {LONGEST_NAME} bytes"
        ));
    }
}

impl OnDemandSettings {
    pub(super) fn check(&self, at: &str, name: &str, problems: &mut Vec<String>) {
        check_name(at, name, problems);
        let pause = LEAST_PAUSE_S;
        for (key, seconds, least) in [
            ("within_s", self.within_s.0, 0.0),
            ("others_down_s", self.others_down_s.0, 0.0),
            ("idle_s", self.idle_s.0, pause),
            ("least_up_s", self.least_up_s.0, pause),
            ("least_down_s", self.least_down_s.0, pause),
            ("connect_s", self.connect_s.0, pause),
        ] {
            check_time(at, key, seconds, least, LONGEST_S, problems);
        }
        let command_s = self.command_s.0;
        check_time(
            at,
            "command_s",
            command_s,
            pause,
            LONGEST_COMMAND_S,
            problems,
        );
        for (key, command) in [("raise", &self.raise), ("release", &self.release)] {
            let Some(program) = command.first() else {
                continue;
            };
            if !Path::new(program).is_absolute() {
                problems.push(format!(
                    "{at}: on_demand.{key}: {program:?} must be the whole path of a program"
                ));
            }
            if command.iter().any(|word| word.contains('\0')) {
                problems.push(format!("{at}: on_demand.{key} must not contain NUL"));
            }
        }
    }

    /// As the engine has it, of the path of this name.
    pub fn on_demand(&self, name: &str) -> OnDemand {
        OnDemand {
            path: name.to_owned(),
            dials: true,
            neighbour_asks: self.neighbour_asks.0,
            within: self.within_s.time(),
            others_down: self.others_down_s.time(),
            idle: self.idle_s.time(),
            least_up: self.least_up_s.time(),
            least_down: self.least_down_s.time(),
            connect: self.connect_s.time(),
        }
    }
}

impl OnDemandSettings {
    /// The programs that the helper runs, if there are any.
    pub fn commands(&self) -> Option<PathCommands> {
        let has_any = !self.raise.is_empty() || !self.release.is_empty();
        has_any.then(|| PathCommands {
            raise: self.raise.clone(),
            release: self.release.clone(),
            within_ms: u64::try_from(self.command_s.time().as_millis()).unwrap_or(u64::MAX),
        })
    }
}

impl AskedSettings {
    pub(super) fn check(&self, at: &str, problems: &mut Vec<String>) {
        check_name(at, &self.path, problems);
        for (key, seconds) in [
            ("within_s", self.within_s.0),
            ("others_down_s", self.others_down_s.0),
        ] {
            check_time(at, key, seconds, 0.0, LONGEST_S, problems);
        }
    }

    pub fn on_demand(&self) -> OnDemand {
        OnDemand {
            path: self.path.clone(),
            dials: false,
            neighbour_asks: false,
            within: self.within_s.time(),
            others_down: self.others_down_s.time(),
            idle: Duration::ZERO,
            least_up: Duration::ZERO,
            least_down: Duration::ZERO,
            connect: Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    fn problems(on_demand: &str) -> String {
        let text = format!(
            "[node]\nnumber = 10\nrole = \"terminal\"\n[tls]\nplain = true\n\
             [[path]]\nname = \"sat\"\nneighbour = 1\nremote = \"192.0.2.1:4556\"\n\
             [path.on_demand]\n{on_demand}\n"
        );
        let parsed = Config::parse(&text, std::path::Path::new("node.toml"));
        parsed.map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn defaults_are_enough_and_nonsense_is_told() {
        assert_eq!(problems(""), "");
        let all =
            "within_s = 0\nidle_s = 5.5\nraise = [\"/bin/true\", \"up\"]\nneighbour_asks = false";
        assert_eq!(problems(all), "");
        for (wrong, said) in [
            ("idle_s = 0", "idle_s must be 1 to 86400"),
            ("least_up_s = 0.5", "least_up_s must be"),
            ("within_s = -1", "within_s must be 0 to 86400"),
            ("within_s = nan", "within_s must be"),
            ("others_down_s = inf", "others_down_s must be"),
            ("command_s = 3600", "command_s must be 1 to 600"),
            ("raise = [\"modem\", \"up\"]", "must be the whole path"),
            (
                "release = [\"/bin/modem\", \"a\\u0000b\"]",
                "must not contain NUL",
            ),
            ("raise = \"/bin/modem up\"", "invalid type"),
            ("when = 3", "unknown field"),
        ] {
            let told = problems(wrong);
            assert!(told.contains(said), "{wrong}: {told}");
        }
    }
}
