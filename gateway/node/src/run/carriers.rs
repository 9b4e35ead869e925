//! Dialers and listeners of any convergence layer, for [`super::links`].

use std::net::SocketAddr;
use std::sync::Arc;

use underpass_identity::Registry;

/// What keeps the sessions of a path.
#[derive(Clone)]
pub(super) enum PathDialer {
    Tcpcl(Arc<underpass_tcpcl::Dialer>),
    Quic(Arc<underpass_quic::Dialer>),
    Bare(Arc<underpass_bare::Neighbour>),
}

pub(super) enum SessionListener {
    Tcpcl(underpass_tcpcl::Listener),
    Quic(underpass_quic::Listener),
}

impl PathDialer {
    pub fn hold(&self, held: bool) {
        match self {
            PathDialer::Tcpcl(dialer) => dialer.hold(held),
            PathDialer::Quic(dialer) => dialer.hold(held),
            PathDialer::Bare(neighbour) => neighbour.hold(held),
        }
    }

    /// Whether it offers no extension items, since the peer ends sessions that
    /// do.
    pub fn is_without_items(&self) -> bool {
        match self {
            PathDialer::Tcpcl(dialer) => dialer.status().without_items,
            PathDialer::Quic(_) | PathDialer::Bare(_) => false,
        }
    }

    /// Its sessions by their certificates, if they have any.
    pub fn registry(&self) -> Option<&Registry> {
        match self {
            PathDialer::Tcpcl(dialer) => Some(dialer.registry()),
            PathDialer::Quic(dialer) => Some(dialer.registry()),
            PathDialer::Bare(_) => None,
        }
    }

    pub async fn shutdown(&self) {
        match self {
            PathDialer::Tcpcl(dialer) => dialer.shutdown().await,
            PathDialer::Quic(dialer) => dialer.shutdown().await,
            PathDialer::Bare(neighbour) => neighbour.shutdown().await,
        }
    }
}

impl SessionListener {
    pub fn local_addr(&self) -> SocketAddr {
        match self {
            SessionListener::Tcpcl(listener) => listener.local_addr(),
            SessionListener::Quic(listener) => listener.local_addr(),
        }
    }

    /// While held, accepts nothing more. Not over QUIC, where [`Self::read`] decides.
    pub fn hold(&self, held: bool) {
        if let SessionListener::Tcpcl(listener) = self {
            listener.hold(held);
        }
    }

    /// Over QUIC: whether this process has what comes to the port.
    pub fn read(&self, reads: bool) {
        if let SessionListener::Quic(listener) = self {
            listener.read(reads);
        }
    }

    pub fn add_connections(&self, more: usize) {
        match self {
            SessionListener::Tcpcl(listener) => listener.add_connections(more),
            SessionListener::Quic(listener) => listener.add_connections(more),
        }
    }

    pub fn registry(&self) -> &Registry {
        match self {
            SessionListener::Tcpcl(listener) => listener.registry(),
            SessionListener::Quic(listener) => listener.registry(),
        }
    }

    pub fn shutdown(&self) {
        match self {
            SessionListener::Tcpcl(listener) => listener.shutdown(),
            SessionListener::Quic(listener) => listener.shutdown(),
        }
    }
}
