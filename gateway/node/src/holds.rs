//! Keeps what operators have set by the local API over restarts: a blocked path, a rate, a class
//! that is kept on a path. Each hold lasts until it is released.
//!
//! The file is written before the caller gets its answer, so a confirmed hold is in force after a
//! `kill -9`, too. A hold on a path that the configuration does not name waits until that path is
//! configured again.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};
use underpass_engine::HopId;

use crate::clock;
use crate::config::{Config, RATES_BPS, class_named};
use crate::shell::Shell;
use crate::state_files;

const FILE: &str = "holds.json";
/// A file of more is not one of this node.
const MOST_BYTES: usize = 16 << 20;

/// Kind, path or class, and neighbour.
type Place = (&'static str, String, u64);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Held {
    /// Nothing is sent by a path.
    Blocked {
        /// The path's or terminal's name.
        path: String,
    },
    /// The rate from this node; it overrides plan and configuration.
    Rate {
        /// The path's or terminal's name.
        path: String,
        /// bit/s of IP bytes; null is unlimited.
        rate_bps: Option<u64>,
    },
    /// The rate to this node, which determines the size of windows.
    ReceiveRate {
        /// The path's or terminal's name.
        path: String,
        /// bit/s of IP bytes; null is unlimited.
        rate_bps: Option<u64>,
    },
    /// The capacity of the beam; it overrides plan and configuration.
    BeamRate {
        /// bit/s of IP bytes; null is unlimited.
        rate_bps: Option<u64>,
    },
    /// A path on demand is up or released, whether or not anything needs it.
    BroughtUp {
        /// The path's name.
        path: String,
        up: bool,
    },
    /// A class uses a path while that can carry it.
    Migration {
        /// The class by name.
        class: String,
        /// The neighbour's ipn node number.
        neighbour: u64,
        /// The path's or terminal's name.
        path: String,
    },
}

impl Held {
    /// Its name in API and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Held::Blocked { .. } => "blocked",
            Held::Rate { .. } => "rate",
            Held::ReceiveRate { .. } => "receive-rate",
            Held::BeamRate { .. } => "beam-rate",
            Held::BroughtUp { .. } => "brought-up",
            Held::Migration { .. } => "migration",
        }
    }

    /// What it applies to: a later hold of the same place replaces an earlier one.
    fn place(&self) -> Place {
        let (name, neighbour) = match self {
            Held::Blocked { path }
            | Held::Rate { path, .. }
            | Held::ReceiveRate { path, .. }
            | Held::BroughtUp { path, .. } => (path.clone(), 0),
            Held::BeamRate { .. } => (String::new(), 0),
            Held::Migration {
                class, neighbour, ..
            } => (class.clone(), *neighbour),
        };
        (self.name(), name, neighbour)
    }

    fn path(&self) -> Option<&str> {
        match self {
            Held::Blocked { path }
            | Held::Rate { path, .. }
            | Held::ReceiveRate { path, .. }
            | Held::BroughtUp { path, .. }
            | Held::Migration { path, .. } => Some(path),
            Held::BeamRate { .. } => None,
        }
    }

    fn is_possible(&self) -> bool {
        match self {
            Held::Rate { rate_bps, .. }
            | Held::ReceiveRate { rate_bps, .. }
            | Held::BeamRate { rate_bps } => rate_bps.is_none_or(|bps| RATES_BPS.contains(&bps)),
            Held::Blocked { .. } | Held::BroughtUp { .. } | Held::Migration { .. } => true,
        }
    }
}

/// What is held, since when and by whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Its number, by which it is released; none is used twice.
    pub id: u64,
    #[serde(flatten)]
    pub held: Held,
    /// ms since 1970-01-01 UTC; null where the time was not known.
    pub since_ms: Option<u64>,
    /// The caller that has set it: `uid 1000` at the socket, `token NAME` over TCP.
    pub by: String,
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    next_id: u64,
    by_place: BTreeMap<Place, Hold>,
}

/// As they are in the file, by number.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Written {
    next_id: u64,
    holds: Vec<Hold>,
}

impl Holds {
    /// Adds a hold, in place of the previous one.
    pub fn set(&mut self, held: Held, by: &str) {
        let place = held.place();
        let before = self.by_place.get(&place);
        if before.is_some_and(|hold| hold.held == held) {
            // The same hold again: it keeps its first time.
            return;
        }
        let hold = Hold {
            id: self.next_id,
            held,
            since_ms: clock::utc_ms(),
            by: by.to_owned(),
        };
        self.by_place.insert(place, hold);
        self.next_id += 1;
    }

    /// Notes that a path is blocked, or no longer.
    pub fn block(&mut self, path: String, blocked: bool, by: &str) {
        let held = Held::Blocked { path };
        match blocked {
            true => self.set(held, by),
            false => self.release(&held),
        }
    }

    /// Forgets what is held in the place of `held`.
    pub fn release(&mut self, held: &Held) {
        self.by_place.remove(&held.place());
    }

    /// All of them, by number.
    pub fn by_number(&self) -> Vec<Hold> {
        let mut holds: Vec<Hold> = self.by_place.values().cloned().collect();
        holds.sort_by_key(|hold| hold.id);
        holds
    }
}

impl From<Written> for Holds {
    fn from(written: Written) -> Holds {
        let possible = written.holds.into_iter();
        let possible = possible.filter(|hold| hold.held.is_possible());
        let by_place: BTreeMap<Place, Hold> =
            possible.map(|hold| (hold.held.place(), hold)).collect();
        let highest = by_place.values().map(|hold| hold.id).max();
        let next_id = highest.map_or(0, |id| id.saturating_add(1));
        Holds {
            next_id: written.next_id.max(next_id),
            by_place,
        }
    }
}

/// The file, and what it says.
#[derive(Debug)]
pub struct KeptHolds {
    file: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    holds: Holds,
    /// The file says something else, since it could not be written.
    is_unwritten: bool,
}

impl KeptHolds {
    /// The holds of a node with this state folder. The file is read when no other process of the
    /// node runs.
    pub fn load(state_dir: &Path) -> KeptHolds {
        let file = state_dir.join(FILE);
        let state = State {
            holds: read(&file),
            is_unwritten: false,
        };
        KeptHolds {
            file,
            state: Mutex::new(state),
        }
    }

    pub fn all(&self) -> Vec<Hold> {
        self.lock().holds.by_number()
    }

    /// Lets `act` change what is in force and the holds, one caller at a time, and writes the holds
    /// to disk. What an earlier call could not write is written then, too, even if this one changes
    /// nothing or is refused: a caller who was told of a full disk repeats the request. Blocks.
    ///
    /// # Errors
    /// The outer error is that of `act`, which then must have changed nothing. The inner one says
    /// why the holds could not be written after `act` succeeded.
    pub fn change<R, E>(
        &self,
        act: impl FnOnce(&mut Holds) -> Result<R, E>,
    ) -> Result<(R, io::Result<()>), E> {
        let mut state = self.lock();
        let before = state.holds.clone();
        let done = act(&mut state.holds);
        let written = match state.is_unwritten || state.holds != before {
            true => write(&self.file, &state.holds),
            false => Ok(()),
        };
        state.is_unwritten = written.is_err();
        Ok((done?, written))
    }

    /// Puts the holds into force, as far as the node has the paths and classes that they name.
    pub fn apply(&self, shell: &Shell, config: &Config) {
        let state = self.lock();
        for hold in state.holds.by_place.values() {
            let Held::BeamRate { rate_bps } = &hold.held else {
                apply_to_path(&hold.held, shell, config);
                continue;
            };
            shell.with_each(|engine, now| engine.set_beam_rate(now, *rate_bps));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

fn apply_to_path(held: &Held, shell: &Shell, config: &Config) {
    let Some(hop) = hop_of(held, shell) else {
        return;
    };
    shell.with_hop(hop, |engine, now| match held {
        Held::Blocked { .. } => engine.block(now, hop, true),
        Held::Rate { rate_bps, .. } => engine.set_rate(now, hop, *rate_bps),
        Held::ReceiveRate { rate_bps, .. } => engine.set_receive_rate(now, hop, *rate_bps),
        Held::BroughtUp { up, .. } => {
            engine.hold_up(now, hop, Some(*up));
        }
        Held::Migration { class, path, .. } => {
            let class = class_named(&config.classes, class);
            let kept = class.map(|class| engine.keep_class(now, class, hop));
            if let Some(Err(error)) = kept {
                tracing::warn!(path, %error, "a class is not kept where an operator wants it");
            }
        }
        Held::BeamRate { .. } => {}
    });
}

/// The hop of a hold. A class is kept on it only while it still leads to the same neighbour.
fn hop_of(held: &Held, shell: &Shell) -> Option<HopId> {
    let hop = shell.hop_named(held.path()?)?;
    let leads = |to| shell.read_hop(hop, |engine| engine.neighbour_of(hop)) == Some(to);
    match held {
        Held::Migration { neighbour, .. } if !leads(*neighbour) => None,
        _ => Some(hop),
    }
}

/// Whether a hold is in force: the node has the path and class that it names.
pub fn is_in_force(held: &Held, shell: &Shell, config: &Config) -> bool {
    match held {
        Held::BeamRate { .. } => true,
        Held::Migration {
            class, neighbour, ..
        } => {
            let class = class_named(&config.classes, class);
            let hop = hop_of(held, shell);
            let kept = |class, hop| {
                shell.read_hop(hop, |engine| engine.kept_on(class, *neighbour)) == Some(hop)
            };
            class.zip(hop).is_some_and(|(class, hop)| kept(class, hop))
        }
        Held::BroughtUp { up, .. } => {
            let hop = hop_of(held, shell);
            let snapshot = hop.and_then(|hop| shell.read_hop(hop, |engine| engine.hop(hop)));
            let on_demand = snapshot.and_then(|hop| hop.on_demand);
            on_demand.is_some_and(|of| of.held == Some(*up))
        }
        _ => hop_of(held, shell).is_some(),
    }
}

/// Ends a hold: what it overrode applies again.
pub fn lift(held: &Held, shell: &Shell, config: &Config) {
    if let Held::BeamRate { .. } = held {
        shell.with_each(|engine, now| engine.reset_beam_rate(now));
    }
    let Some(hop) = hop_of(held, shell) else {
        return;
    };
    shell.with_hop(hop, |engine, now| match held {
        Held::Blocked { .. } => engine.block(now, hop, false),
        Held::Rate { .. } => engine.reset_rate(now, hop),
        Held::BroughtUp { .. } => {
            engine.hold_up(now, hop, None);
        }
        Held::Migration {
            class, neighbour, ..
        } => {
            if let Some(class) = class_named(&config.classes, class) {
                engine.release_class(now, class, *neighbour);
            }
        }
        // Windows that are open do not shrink.
        Held::ReceiveRate { .. } | Held::BeamRate { .. } => {}
    });
}

fn write(file: &Path, holds: &Holds) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(&Written {
        next_id: holds.next_id,
        holds: holds.by_number(),
    })?;
    if text.len() > MOST_BYTES {
        return Err(io::Error::other("too much is held: release some of it"));
    }
    state_files::replace(file, &text)
}

fn read(file: &Path) -> Holds {
    let read = state_files::read::<Written>(file, MOST_BYTES as u64).unwrap_or_else(|error| {
        let path = file.display();
        tracing::error!(%path, %error, "what operators have set is not known: nothing is held");
        None
    });
    read.map(Holds::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn blocked(path: &str) -> Held {
        Held::Blocked {
            path: path.to_owned(),
        }
    }

    fn rate(path: &str, rate_bps: u64) -> Held {
        Held::Rate {
            path: path.to_owned(),
            rate_bps: Some(rate_bps),
        }
    }

    fn migration(neighbour: u64, path: &str) -> Held {
        Held::Migration {
            class: "bulk".to_owned(),
            neighbour,
            path: path.to_owned(),
        }
    }

    fn set(kept: &KeptHolds, held: Held, by: &str) {
        let done = kept.change(|holds| {
            holds.set(held, by);
            Ok::<_, ()>(())
        });
        let ((), written) = done.expect("it cannot fail");
        written.expect("written");
    }

    fn told(kept: &KeptHolds) -> Vec<(u64, Held, String)> {
        let all = kept.all().into_iter();
        all.map(|hold| (hold.id, hold.held, hold.by)).collect()
    }

    #[test]
    fn what_was_set_is_there_for_the_next_process_and_each_thing_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let kept = KeptHolds::load(folder.path());
        set(&kept, blocked("lte"), "uid 0");
        set(&kept, rate("lte", 8_000), "uid 0");
        set(&kept, rate("lte", 9_000), "token noc");
        set(&kept, migration(1, "lte"), "uid 0");
        set(&kept, migration(1, "sat"), "uid 0");
        set(&kept, migration(2, "sat"), "uid 0");
        // If another caller repeats it, it still belongs to the first one.
        set(&kept, blocked("lte"), "uid 5");
        let expected = [
            (0, blocked("lte"), "uid 0".to_owned()),
            (2, rate("lte", 9_000), "token noc".to_owned()),
            (4, migration(1, "sat"), "uid 0".to_owned()),
            (5, migration(2, "sat"), "uid 0".to_owned()),
        ];
        assert_eq!(told(&kept), expected);
        let next = KeptHolds::load(folder.path());
        assert_eq!(told(&next), expected);
        let released = next.change(|holds| {
            holds.release(&migration(1, "lte"));
            Ok::<_, ()>(())
        });
        released.expect("released").1.expect("written");
        // A number is never used again, not even in a later process.
        let last = KeptHolds::load(folder.path());
        set(&last, migration(1, "sat"), "uid 0");
        assert_eq!(told(&last).last().map(|(id, ..)| *id), Some(6));
    }

    #[test]
    fn what_is_refused_is_not_written_and_a_full_disk_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let kept = KeptHolds::load(folder.path());
        assert!(matches!(kept.change(|_| Err::<(), _>(7)), Err(7)));
        assert!(!folder.path().join(FILE).exists());
        let gone = KeptHolds::load(&folder.path().join("none"));
        let done = gone.change(|holds| {
            holds.set(blocked("lte"), "uid 0");
            Ok::<_, ()>(())
        });
        assert!(done.expect("done").1.is_err());
        assert_eq!(gone.all().len(), 1, "it is in force all the same");
    }

    #[test]
    fn what_a_full_disk_did_not_take_is_written_when_the_request_is_repeated() {
        let folder = tempfile::tempdir().expect("a folder");
        let state_dir = folder.path().join("state");
        let kept = KeptHolds::load(&state_dir);
        let block = |holds: &mut Holds| {
            holds.set(blocked("lte"), "uid 0");
            Ok::<_, ()>(())
        };
        assert!(kept.change(block).expect("done").1.is_err());
        assert!(kept.change(block).expect("done").1.is_err());
        fs::create_dir(&state_dir).expect("a folder");
        assert!(kept.change(block).expect("done").1.is_ok());
        assert_eq!(KeptHolds::load(&state_dir).all(), kept.all());
        // A release that was not written is, even if nothing is left to release.
        fs::rename(&state_dir, folder.path().join("away")).expect("renamed");
        let release = |holds: &mut Holds| {
            holds.release(&blocked("lte"));
            Ok::<_, ()>(())
        };
        assert!(kept.change(release).expect("done").1.is_err());
        fs::rename(folder.path().join("away"), &state_dir).expect("renamed");
        assert!(matches!(kept.change(|_| Err::<(), _>(7)), Err(7)));
        assert_eq!(told(&KeptHolds::load(&state_dir)), []);
    }

    #[test]
    fn nonsense_in_the_file_holds_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join(FILE);
        for text in [
            "",
            "[]",
            r#"{"next_id": 1, "holds": [{"id": 0, "what": "moon", "since_ms": null, "by": ""}]}"#,
            r#"{"next_id": 1, "holds": [{"id": 0, "what": "rate", "path": "a", "rate_bps": 7,
                "since_ms": null, "by": ""}]}"#,
        ] {
            fs::write(&file, text).expect("written");
            assert_eq!(told(&KeptHolds::load(folder.path())), [], "{text}");
        }
        fs::write(&file, vec![b' '; MOST_BYTES + 1]).expect("written");
        assert_eq!(told(&KeptHolds::load(folder.path())), []);
    }
}
