//! A request of this node's clients, as it is kept and shown.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::id::Id;
use crate::object::Object;

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Kept by the client's node.
    Stored,
    /// Kept by the dispatching node.
    Forwarded,
    /// The dispatching node has begun to send it to the origin.
    Sent,
    /// The origin's response is here.
    Answered,
    /// The dispatching node has answered in the origin's stead: its response
    /// says why.
    Failed,
    /// It may have been sent, and the origin's reaction is unknown.
    Unknown,
    /// Its lifetime ended before it was sent.
    Expired,
    /// The client or operator wanted it no more.
    Cancelled,
}

impl State {
    /// Every state.
    pub const ALL: [State; 8] = [
        State::Stored,
        State::Forwarded,
        State::Sent,
        State::Answered,
        State::Failed,
        State::Unknown,
        State::Expired,
        State::Cancelled,
    ];

    /// Its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            State::Stored => "stored",
            State::Forwarded => "forwarded",
            State::Sent => "sent",
            State::Answered => "answered",
            State::Failed => "failed",
            State::Unknown => "unknown",
            State::Expired => "expired",
            State::Cancelled => "cancelled",
        }
    }

    /// Whether nothing more will happen by itself.
    pub fn is_final(self) -> bool {
        !matches!(self, State::Stored | State::Forwarded | State::Sent)
    }

    /// Whether the client may repeat it; its parts are kept for that.
    pub fn may_repeat(self) -> bool {
        matches!(self, State::Failed | State::Unknown | State::Expired)
    }
}

/// Whose request it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The client's address.
    pub client: IpAddr,
    /// The user that it had logged in as at the proxy.
    pub user: Option<String>,
}

impl Owner {
    /// Whether `asking` may see and change requests of this owner: it is the same user or, without
    /// logins, the same address.
    pub fn admits(&self, asking: &Owner) -> bool {
        match (&self.user, &asking.user) {
            (None, None) => self.client == asking.client,
            (mine, theirs) => mine == theirs,
        }
    }
}

/// A request of this node's clients. Times are ms since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its name.
    pub id: Id,
    /// The number of the client's attempt, from 1.
    pub attempt: u32,
    /// The dispatching node.
    pub peer: u64,
    /// Its class.
    pub class: u8,
    /// Whether it may be sent to the origin more than once.
    pub repeatable: bool,
    /// Whose it is.
    pub owner: Owner,
    /// Its method.
    pub method: String,
    /// Its target URI.
    pub target: String,
    /// Where it stands.
    pub state: State,
    /// Why, in words.
    pub reason: String,
    /// It is to be cancelled; the dispatching node has not said yes.
    pub cancelling: bool,
    /// Whether all of it has left this node in this attempt at least once: from then on it may have
    /// been sent.
    pub offered: bool,
    /// When it was stored.
    pub created_ms: u64,
    /// When its lifetime ends.
    pub expires_ms: u64,
    /// When the dispatching node had it.
    pub forwarded_ms: Option<u64>,
    /// When this node heard that it was being sent.
    pub sent_ms: Option<u64>,
    /// When it came to its end.
    pub finished_ms: Option<u64>,
    /// When its response was fetched whole.
    pub fetched_ms: Option<u64>,
    /// The request's own shape.
    pub request: Object,
    /// The response's.
    pub response: Option<Object>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(client: [u8; 4], user: Option<&str>) -> Owner {
        Owner {
            client: client.into(),
            user: user.map(str::to_owned),
        }
    }

    #[test]
    fn a_request_is_its_user_s_and_without_users_its_address_s() {
        let (here, there) = ([192, 0, 2, 1], [192, 0, 2, 2]);
        assert!(owner(here, None).admits(&owner(here, None)));
        assert!(!owner(here, None).admits(&owner(there, None)));
        assert!(owner(here, Some("a")).admits(&owner(there, Some("a"))));
        assert!(!owner(here, Some("a")).admits(&owner(here, Some("b"))));
        assert!(!owner(here, Some("a")).admits(&owner(here, None)));
    }
}
