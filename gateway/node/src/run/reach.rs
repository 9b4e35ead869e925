//! Which address families this node announces to its peers: those with a
//! route, as routes come and go.

use std::sync::Arc;
use std::time::Duration;

use underpass_edge::dial::{Dialler, RouteChanges};
use underpass_streams::Announcement;

use crate::shell::Shell;

/// Routes change in groups: they are read once nothing has changed for this long.
const SETTLED: Duration = Duration::from_millis(200);
/// They are read at least this often: a host may not let a process receive route changes.
const AT_LEAST: Duration = Duration::from_secs(30);

/// Follows the routes. Runs until dropped.
pub(super) async fn follow(dialler: Arc<Dialler>, shell: Arc<Shell>) {
    let mut changes = match RouteChanges::listen() {
        Ok(changes) => Some(changes),
        Err(error) => {
            tracing::warn!(%error, every_s = AT_LEAST.as_secs(), "changes of routes are not heard of, but looked for");
            None
        }
    };
    loop {
        let families = dialler.families();
        let reaches = Announcement {
            ipv4: families.ipv4,
            ipv6: families.ipv6,
        };
        let changed = shell.with_each(|engine, now| engine.set_reaches(now, reaches));
        if changed.contains(&true) {
            let (ipv4, ipv6) = (families.ipv4, families.ipv6);
            tracing::info!(ipv4, ipv6, "address families reached by this node's routes");
        }
        let changed = async {
            match &mut changes {
                Some(heard) => heard.changed().await,
                None => std::future::pending().await,
            }
        };
        match tokio::time::timeout(AT_LEAST, changed).await {
            Ok(Ok(())) => tokio::time::sleep(SETTLED).await,
            Ok(Err(error)) => {
                tracing::warn!(%error, "changes of routes are not heard of any more, but looked for");
                changes = None;
            }
            Err(_) => {}
        }
    }
}
