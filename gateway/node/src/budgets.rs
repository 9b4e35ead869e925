//! What was spent of the budgets of metered paths, over restarts.
//!
//! While bytes flow, the file counts a little more than was spent: also what the next interval is
//! likely to spend. So a killed process may lose some of its budget, but never gains any.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use underpass_engine::{HopId, Spent};

use crate::shell::Shell;
use crate::state_files;

const FILE: &str = "budgets.json";
/// A file of more is not one of this node.
const MOST_BYTES: u64 = 4 << 20;
/// How often budgets are renewed, and the file written if it has to be.
const EVERY: Duration = Duration::from_secs(2);

/// Paths by their names.
type Budgets = BTreeMap<String, Spent>;
/// The same with the hops that count for them.
type Seen = BTreeMap<String, (HopId, Spent)>;

/// The file, and what this run has seen.
#[derive(Debug)]
pub struct KeptBudgets {
    file: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// What the file says.
    kept: Budgets,
    /// The last values of the engines, with the hops that count them; a path that is missing here,
    /// or that another hop counts by now, was not restored yet.
    seen: Seen,
    failed: bool,
}

impl State {
    /// Restores what was spent of paths whose meters have begun anew.
    fn restore(&mut self, shell: &Shell) {
        let mut seen = Seen::new();
        for (id, name, meter) in shell.meters() {
            let known = self.seen.get(&name).filter(|(hop, _)| *hop == id);
            let spent = match known {
                Some((_, spent)) => *spent,
                None => {
                    let before = self.before(&name);
                    if let Some(before) = before {
                        shell.with_hop(id, |engine, now| engine.restore_spent(now, id, before));
                    }
                    before.unwrap_or(meter.spent)
                }
            };
            seen.insert(name, (id, spent));
        }
        self.seen = seen;
    }

    /// What was spent of a path before its meter began. The file is ahead of the engines, unless it
    /// cannot be written.
    fn before(&self, name: &str) -> Option<Spent> {
        let kept = self.kept.get(name).copied();
        let seen = self.seen.get(name).map(|(_, spent)| *spent);
        match self.failed {
            true => seen.or(kept),
            false => kept.or(seen),
        }
    }
}

impl KeptBudgets {
    /// The budgets of a node with this state folder. The file is read when no other process of the
    /// node runs.
    pub fn load(state_dir: &Path) -> KeptBudgets {
        let file = state_dir.join(FILE);
        let state = State {
            kept: read(&file),
            seen: Seen::new(),
            failed: false,
        };
        KeptBudgets {
            file,
            state: Mutex::new(state),
        }
    }

    /// Renews, restores and keeps budgets from now on. Runs until dropped.
    pub async fn follow(self: Arc<Self>, shell: Arc<Shell>) {
        loop {
            tokio::time::sleep(EVERY).await;
            let (kept, shell) = (self.clone(), shell.clone());
            let _ = tokio::task::spawn_blocking(move || kept.step(&shell, true)).await;
        }
    }

    /// Restores what was spent of paths that another configuration has given new meters. It has to
    /// be called before anything goes by them.
    pub fn restore(&self, shell: &Shell) {
        self.state.lock().unwrap().restore(shell);
    }

    /// Restores what was spent of paths that are new to this run, renews budgets
    /// whose period is over, and writes down what was spent; with `ahead`, what
    /// the next interval is likely to spend, too.
    pub fn step(&self, shell: &Shell, ahead: bool) {
        let mut state = self.state.lock().unwrap();
        state.restore(shell);
        if state.seen.is_empty() {
            return;
        }
        shell.with_each(|engine, now| engine.renew_budgets(now));
        // Another configuration may have come into force since the paths were restored.
        let restored = |id: HopId, name: &str| {
            let seen = state.seen.get(name);
            seen.is_some_and(|(hop, _)| *hop == id)
        };
        let meters = shell.meters().into_iter();
        let meters = meters.filter(|(id, name, _)| restored(*id, name));
        let spent: Seen = meters
            .map(|(id, name, meter)| (name, (id, meter.spent)))
            .collect();
        let mut kept: Budgets = state.kept.clone();
        // The file keeps a path that is no longer metered, in case it is metered again.
        kept.retain(|name, _| shell.hop_named(name).is_some());
        for (name, (_, spent)) in &spent {
            let before = state.seen.get(name).filter(|_| ahead);
            let step = before.map_or(0, |(_, before)| {
                spent.spent_bytes.saturating_sub(before.spent_bytes)
            });
            let written = state.kept.get(name).copied();
            kept.insert(name.clone(), to_keep(written, *spent, step));
        }
        state.seen = spent;
        if kept == state.kept {
            return;
        }
        let written = serde_json::to_vec_pretty(&kept).map_err(io::Error::from);
        match written.and_then(|text| state_files::replace(&self.file, &text)) {
            Ok(()) => (state.kept, state.failed) = (kept, false),
            Err(error) => {
                if !std::mem::replace(&mut state.failed, true) {
                    let path = self.file.display();
                    tracing::error!(%path, %error, "what is spent of budgets is not kept");
                }
            }
        }
    }
}

/// The value for the file. It stays if it covers another interval like the last one; otherwise it
/// is set two such intervals ahead.
fn to_keep(written: Option<Spent>, spent: Spent, step: u64) -> Spent {
    let covers = |written: &Spent| {
        let same = Spent {
            spent_bytes: written.spent_bytes,
            ..spent
        } == *written;
        let next = spent.spent_bytes.saturating_add(step);
        same && step > 0 && written.spent_bytes >= next
    };
    written.filter(covers).unwrap_or(Spent {
        spent_bytes: spent.spent_bytes.saturating_add(step.saturating_mul(2)),
        ..spent
    })
}

fn read(file: &Path) -> Budgets {
    let read = state_files::read(file, MOST_BYTES).unwrap_or_else(|error| {
        let path = file.display();
        tracing::error!(%path, %error, "what was spent of budgets is not known: counted from 0");
        None
    });
    read.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn spent(spent_bytes: u64) -> Spent {
        Spent {
            spent_bytes,
            added_bytes: 7,
            begun_ms: Some(5),
        }
    }

    #[test]
    fn while_bytes_flow_the_file_is_ahead_and_at_rest_it_is_exact() {
        let first = to_keep(None, spent(1_000), 100);
        assert_eq!(first, spent(1_200));
        // It covers the next interval, and is not written again.
        assert_eq!(to_keep(Some(first), spent(1_100), 100), first);
        assert_eq!(to_keep(Some(first), spent(1_101), 100), spent(1_301));
        assert_eq!(to_keep(Some(first), spent(1_100), 0), spent(1_100));
        let added = Spent {
            added_bytes: 8,
            ..spent(1_100)
        };
        assert_eq!(to_keep(Some(first), added, 1).added_bytes, 8);
    }

    #[test]
    fn the_file_is_read_as_it_was_written_and_nonsense_is_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join(FILE);
        assert_eq!(read(&file), Budgets::new());
        let budgets = Budgets::from([("lte".to_owned(), spent(1_000))]);
        let text = serde_json::to_vec_pretty(&budgets).expect("JSON");
        state_files::replace(&file, &text).expect("written");
        assert_eq!(read(&file), budgets);
        for text in ["", "[]", r#"{"lte": {"spent_bytes": -1}}"#] {
            fs::write(&file, text).expect("written");
            assert_eq!(read(&file), Budgets::new(), "{text}");
        }
        fs::write(&file, vec![b' '; MOST_BYTES as usize + 1]).expect("written");
        assert_eq!(read(&file), Budgets::new());
    }
}
