//! The contact plan by which bundles go.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use serde::Deserialize;
use underpass_routing::{Contact, text};

/// The largest file that is read: a million contacts of some 100 bytes.
const MOST_FILE_BYTES: u64 = 128 << 20;
/// What a route may be looked for, bytes.
const BUNDLE_BYTES: std::ops::RangeInclusive<u64> = 1..=1 << 40;

/// Routes by a contact plan.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RoutingConfig {
    /// The plan: JSON where its name ends in `.json`, else as `ionadmin` has
    /// it. Default: none.
    pub contact_plan: Option<PathBuf>,
    /// The smallest size of bundle that routes are looked for: a contact counts if one such bundle
    /// fits. Larger bundles get routes for their own size. Default 65536.
    pub bundle_bytes: u64,
    #[serde(skip)]
    pub plan: ContactPlan,
}

impl Default for RoutingConfig {
    fn default() -> RoutingConfig {
        RoutingConfig {
            contact_plan: None,
            bundle_bytes: 64 << 10,
            plan: ContactPlan::default(),
        }
    }
}

#[derive(Clone, Default, PartialEq, Eq)]
pub struct ContactPlan(pub Arc<Vec<Contact>>);

impl fmt::Debug for ContactPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} contacts", self.0.len())
    }
}

impl RoutingConfig {
    /// Reads the plan, if there is one.
    pub(super) fn read(&mut self, problems: &mut Vec<String>) {
        if !BUNDLE_BYTES.contains(&self.bundle_bytes) {
            let (least, most) = (BUNDLE_BYTES.start(), BUNDLE_BYTES.end());
            problems.push(format!("routing.bundle_bytes must be {least} to {most}"));
        }
        let Some(path) = &self.contact_plan else {
            return;
        };
        match read(path) {
            Ok(plan) => self.plan = ContactPlan(Arc::new(plan)),
            Err(problem) => {
                let path = path.display();
                problems.push(format!("routing.contact_plan: {path}: {problem}"));
            }
        }
    }
}

fn read(path: &Path) -> Result<Vec<Contact>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let about = file.metadata().map_err(|error| error.to_string())?;
    let mut plan = String::new();
    let read = file.take(MOST_FILE_BYTES + 1).read_to_string(&mut plan);
    let bytes = read.map_err(|error| error.to_string())?;
    if bytes as u64 > MOST_FILE_BYTES {
        return Err(format!("a plan may have {MOST_FILE_BYTES} bytes at most"));
    }
    // Relative times count from when the file was written: whenever it is read,
    // and by whichever node that has the same file, they are the same.
    let written = about.modified().ok();
    let written = written.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let written_ms = written.map_or(0, |since| since.as_millis());
    let contacts = match path
        .extension()
        .is_some_and(|extension| extension == "json")
    {
        true => text::read_json(&plan),
        false => text::read_ion(&plan, u64::try_from(written_ms).unwrap_or(u64::MAX)),
    };
    contacts.map_err(|error| match error.line {
        0 => error.problem,
        _ => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, plan: &str) -> (RoutingConfig, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, plan).unwrap();
        let mut config = RoutingConfig {
            contact_plan: Some(path),
            ..RoutingConfig::default()
        };
        let mut problems = Vec::new();
        config.read(&mut problems);
        (config, problems)
    }

    #[test]
    fn a_plan_is_read_in_both_forms() {
        let ion = "a contact 2026/11/25-00:00:00 2026/11/25-01:00:00 1 2 1000\n\
                   a range 2026/11/25-00:00:00 2026/11/25-01:00:00 1 2 1\n";
        let (config, problems) = of("plan.ionrc", ion);
        assert!(problems.is_empty(), "{problems:?}");
        let contact = config.plan.0[0].clone();
        assert_eq!(
            (contact.start_ms, contact.owlt_ms),
            (1_795_564_800_000, 1_000)
        );
        let json = serde_json::json!({ "contacts": [contact] }).to_string();
        let (other, problems) = of("plan.json", &json);
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(other.plan, config.plan);
    }

    #[test]
    fn what_is_wrong_is_told_with_file_and_line() {
        for (name, plan, part) in [
            ("plan", "\na contact 1 2", "plan: line 2: expected"),
            ("plan.json", "{\"contacts\": [}", "plan.json: line 1: "),
        ] {
            let (_, problems) = of(name, plan);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].contains(part), "{problems:?}");
        }
        let mut config = RoutingConfig {
            contact_plan: Some("/does/not/exist".into()),
            bundle_bytes: 0,
            ..RoutingConfig::default()
        };
        let mut problems = Vec::new();
        config.read(&mut problems);
        assert_eq!(problems.len(), 2, "{problems:?}");
    }
}
