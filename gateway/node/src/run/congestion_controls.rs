//! The preferred congestion controls of sessions, clients and origins, kept usable.

use std::sync::Arc;
use std::time::Duration;

use underpass_hybla::{Choice, Control, Loader, Refused};

use super::advice::lacking_buffers;
use crate::config::Config;
use crate::privileged::Helper;

/// How often the preferred congestion control is looked for again: the one
/// registered by another process of this kernel ends with it.
const INTERVAL: Duration = Duration::from_secs(5);

/// The preference lists of a configuration, with whom they serve.
pub fn preferences(config: &Config) -> Vec<(String, Vec<String>)> {
    let sessions = !config.paths.is_empty() || !config.listeners.is_empty();
    let own = sessions.then(|| ("sessions".to_owned(), &config.tcp.congestion_control));
    let listeners = config.edge.listener.iter().map(|listener| {
        let whom = format!("clients of {:?}", listener.name);
        (whom, &listener.congestion_control)
    });
    let origins = ("origins".to_owned(), &config.edge.dial.congestion_control);
    own.into_iter()
        .chain(listeners)
        .chain([origins])
        .filter(|(_, list)| !list.is_empty())
        .map(|(whom, list)| (whom, list.clone()))
        .collect()
}

/// A task that keeps the preferred congestion controls usable. Also returns, for people, what was
/// found at the start about them and about other limits that slow sessions down.
pub(super) fn keep(
    config: &Config,
    helper: Option<Arc<Helper>>,
) -> (impl Future<Output = ()> + Send + 'static, Vec<String>) {
    let preferences = preferences(config);
    let mut found = Vec::new();
    for (whom, list) in &preferences {
        let choice = choose(helper.as_deref(), list);
        tracing::info!(whom, %choice, "congestion control");
        found.push(format!("for {whom}: {choice}"));
    }
    found.push(format!(
        "on this kernel: {}",
        underpass_hybla::available().join(", ")
    ));
    for line in lacking_buffers(config) {
        tracing::warn!("{line}");
        found.push(format!("with small buffers: {line}"));
    }
    let preferences = Arc::new(preferences);
    let watch = async move {
        loop {
            tokio::time::sleep(INTERVAL).await;
            let (helper, preferences) = (helper.clone(), preferences.clone());
            let look = tokio::task::spawn_blocking(move || {
                for (_, list) in &*preferences {
                    choose(helper.as_deref(), list);
                }
            });
            let _ = look.await;
        }
    };
    (watch, found)
}

/// Makes the first possible control of `list` usable. Only the helper may load one; without a
/// helper the list names none that must be loaded.
fn choose(helper: Option<&Helper>, list: &[String]) -> Choice {
    let Some(helper) = helper else {
        return Loader::new().choose(list);
    };
    helper.choose(list).unwrap_or_else(|error| {
        // Loaded controls end with the helper; others may still be available.
        let others = list
            .iter()
            .filter(|name| Control::from_name(name).is_none());
        let mut choice = Loader::new().choose(&others.collect::<Vec<_>>());
        let lost = list
            .iter()
            .filter(|name| Control::from_name(name).is_some());
        choice.refused.extend(lost.map(|name| Refused {
            name: name.clone(),
            reason: error.to_string(),
        }));
        choice
    })
}
