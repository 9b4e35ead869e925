//! Single-box mode: streams that leave from this node itself.
//!
//! [`DirectOutlet`] takes the place of the stream layer. It splits TCP in the classic way: the
//! client leg and the origin leg each have their own congestion control (`congestion_control` of
//! `[[edge.listener]]` and of `[edge.dial]`), and no bundle is made.

mod conduit;

use std::sync::Arc;

use tokio::net::TcpStream;

use crate::dial::{Dialler, Party};
use crate::stream::{Conduit, Failure, OpenRequest, Outlet};
use conduit::DirectConduit;

/// An outlet that dials each destination from this host.
#[derive(Clone, Debug)]
pub struct DirectOutlet {
    dialler: Arc<Dialler>,
}

impl DirectOutlet {
    /// An outlet that dials with `dialler`; the congestion control of the
    /// origin leg is the dialler's.
    pub fn new(dialler: Arc<Dialler>) -> DirectOutlet {
        DirectOutlet { dialler }
    }
}

/// A conduit over a connection that is already established.
pub fn over(socket: TcpStream) -> Box<dyn Conduit> {
    Box::new(DirectConduit::new(Box::pin(std::future::ready(Ok(socket)))))
}

impl Outlet for DirectOutlet {
    fn open(&self, request: OpenRequest) -> Result<Box<dyn Conduit>, Failure> {
        let party = Party::Client(request.client.ip());
        self.dialler.admit(&request.target, party)?;
        let dialler = self.dialler.clone();
        let dial = async move {
            let dialled = dialler.dial(&request.target, request.client, party);
            Ok(dialled.await?.socket)
        };
        Ok(Box::new(DirectConduit::new(Box::pin(dial))))
    }
}
