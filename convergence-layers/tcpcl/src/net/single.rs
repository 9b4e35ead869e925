//! One session over an already connected stream, without TLS.

use std::sync::Arc;

use underpass_cla::{Class, Down, Node};

use super::contact::{self, ContactFailure};
use super::driver::{Driver, Surroundings, command_channel};
use super::transport::Transport;
use super::{SessionDefaults, now};
use crate::session::{Role, SessionCore};

/// Which end of the stream this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It has dialled, for this class, and whether as a standby; `None` for
    /// all classes.
    Dialled(Option<(Class, bool)>),
    /// It has accepted what the other end asks for.
    Accepted,
}

/// Runs a session from the contact headers to its end. Returns how it ended.
pub async fn run_session<T: Transport>(
    mut transport: T,
    side: Side,
    defaults: &SessionDefaults,
    node: Arc<dyn Node>,
) -> Down {
    let mut config = match side {
        Side::Dialled(_) => defaults.session_config(Role::Active, false),
        Side::Accepted => defaults.session_config(Role::Passive, false),
    };
    if let Side::Dialled(class) = side {
        config.class = class;
    }
    let mut core = SessionCore::new(config, now());
    match contact::make_plain(&mut transport, &mut core).await {
        Ok(()) => {}
        Err(ContactFailure::Refused(down)) => return down,
        Err(failure) => return Down::Broken(failure.to_string()),
    }
    let around = Surroundings::new(defaults, node, None, Box::new(|_| Ok(())));
    let (sender, commands) = command_channel();
    let driver = Driver::new(transport, core, around, sender, commands);
    driver.run().await.down
}
