//! A session's task from contact to end.

use std::sync::Arc;

use super::contact::Contact;
use super::driver::{Driver, Ended, Surroundings, command_channel};
use super::registry::Registry;
use crate::session::SessionCore;

/// Runs the session on `contact`, known to `registry` meanwhile.
pub(super) async fn run(
    contact: Contact,
    core: SessionCore,
    around: Surroundings,
    registry: &Arc<Registry>,
) -> Ended {
    let (sender, commands) = command_channel();
    let id = around.id;
    let ended = match contact {
        Contact::Plain(tcp) => {
            registry.insert(id, None, sender.clone());
            Driver::new(tcp, core, around, sender, commands).run().await
        }
        Contact::Tls {
            stream,
            peer,
            is_revoked,
            ..
        } => {
            registry.insert(id, Some(peer.into()), sender.clone());
            // It may have been revoked since the handshake.
            registry.close_if(id, &*is_revoked);
            Driver::new(*stream, core, around, sender, commands)
                .run()
                .await
        }
    };
    registry.remove(id);
    ended
}
