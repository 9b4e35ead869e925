//! A session's task from contact to end.

use std::sync::Arc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use underpass_identity::{End, Ending, Registry};

use super::contact::Contact;
use super::driver::{Driver, Ended, Surroundings, command_channel};
use super::handle::Command;
use crate::session::SessionCore;

/// Runs the session on `contact`, registered in `registry` meanwhile, until it ends, or until
/// `lost` gives a reason to abort it.
pub(super) async fn run(
    contact: Contact,
    core: SessionCore,
    around: Surroundings,
    registry: &Arc<Registry>,
    lost: impl Future<Output = String>,
) -> Ended {
    let (sender, commands) = command_channel();
    let id = around.id;
    let losing = sender.clone();
    let lost = async move {
        // A task that is gone has ended its session.
        let _ = losing.send(Command::Abort(lost.await));
        std::future::pending().await
    };
    let session = drive(contact, core, around, registry, (sender, commands));
    let ended = tokio::select! {
        ended = session => ended,
        never = lost => never,
    };
    registry.remove(id);
    ended
}

async fn drive(
    contact: Contact,
    core: SessionCore,
    around: Surroundings,
    registry: &Arc<Registry>,
    (sender, commands): (UnboundedSender<Command>, UnboundedReceiver<Command>),
) -> Ended {
    let id = around.id;
    match contact {
        Contact::Plain(tcp) => {
            registry.insert(id, None, end_of(&sender));
            Driver::new(tcp, core, around, sender, commands).run().await
        }
        Contact::Tls {
            stream,
            peer,
            is_revoked,
            ..
        } => {
            registry.insert(id, Some(peer.into()), end_of(&sender));
            // It may have been revoked since the handshake.
            registry.close_if(id, &*is_revoked);
            Driver::new(*stream, core, around, sender, commands)
                .run()
                .await
        }
    }
}

/// How a session is ended from outside.
fn end_of(sender: &UnboundedSender<Command>) -> End {
    let sender = sender.clone();
    Box::new(move |ending| {
        let command = match ending {
            Ending::InOrder => Command::Close,
            Ending::AtOnce(reason) => Command::Abort(reason.to_owned()),
        };
        // A task that is gone has ended its session.
        let _ = sender.send(command);
    })
}
