//! The sockets by which a node is reached: bound by this process, or by the previous one.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};

use socket2::SockRef;

/// Sockets by their names. Each is kept, so that the next process can have it.
#[derive(Debug, Default)]
pub struct Sockets {
    /// Of the process before, not in use yet.
    inherited: Mutex<BTreeMap<String, OwnedFd>>,
    /// In use.
    own: Mutex<BTreeMap<String, OwnedFd>>,
}

impl Sockets {
    /// Those of the process before.
    pub fn of(inherited: impl IntoIterator<Item = (String, OwnedFd)>) -> Sockets {
        Sockets {
            inherited: Mutex::new(inherited.into_iter().collect()),
            own: Mutex::default(),
        }
    }

    /// The existing socket of this name, if it has this address.
    ///
    /// # Errors
    /// When there are too many open files.
    pub fn bound(&self, name: &str, address: SocketAddr) -> io::Result<Option<OwnedFd>> {
        self.inherit(name)?;
        let own = self.own();
        // For port 0, the system has chosen one.
        let fits = |socket: &&OwnedFd| {
            let local = SockRef::from(*socket).local_addr().ok();
            local
                .and_then(|local| local.as_socket())
                .is_some_and(|local| {
                    local.ip() == address.ip() && [0, local.port()].contains(&address.port())
                })
        };
        let there = own.get(name).filter(fits);
        there.map(OwnedFd::try_clone).transpose()
    }

    /// The socket of this name: the existing one, otherwise a new one, which `bind` makes.
    ///
    /// # Errors
    /// Those of `bind`, or when there are too many open files.
    pub fn bind<S: AsFd + From<OwnedFd>>(
        &self,
        name: &str,
        address: SocketAddr,
        bind: impl FnOnce() -> io::Result<S>,
    ) -> io::Result<S> {
        if let Some(bound) = self.bound(name, address)? {
            return Ok(bound.into());
        }
        let socket = bind()?;
        self.keep(name, &socket)?;
        Ok(socket)
    }

    /// The existing socket of this name, wherever it is bound.
    ///
    /// # Errors
    /// When there are too many open files.
    pub fn inherit(&self, name: &str) -> io::Result<Option<OwnedFd>> {
        let inherited = self.inherited().remove(name);
        let mut own = self.own();
        if let Some(socket) = inherited {
            own.insert(name.to_owned(), socket);
        }
        own.get(name).map(OwnedFd::try_clone).transpose()
    }

    /// Keeps a socket that is in use.
    ///
    /// # Errors
    /// When there are too many open files.
    pub fn keep(&self, name: &str, socket: &impl AsFd) -> io::Result<()> {
        let socket = socket.as_fd().try_clone_to_owned()?;
        self.own().insert(name.to_owned(), socket);
        Ok(())
    }

    /// Lets one go that is not in use any more.
    pub fn forget(&self, name: &str) {
        self.own().remove(name);
    }

    /// Closes the sockets of the previous process that are not in use by now: the configuration has
    /// changed.
    pub fn forget_others(&self) {
        self.inherited().clear();
    }

    /// Closes all here, since the next process has them: an address that it gives up must not stay
    /// taken for as long as this process serves its last connections.
    pub fn leave(&self) {
        self.forget_others();
        self.own().clear();
    }

    /// All that are in use.
    ///
    /// # Errors
    /// When there are too many open files.
    pub fn all(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let own = self.own();
        let all = own.iter();
        all.map(|(name, socket)| Ok((name.clone(), socket.try_clone()?)))
            .collect()
    }

    fn inherited(&self) -> MutexGuard<'_, BTreeMap<String, OwnedFd>> {
        self.inherited.lock().unwrap()
    }

    fn own(&self) -> MutexGuard<'_, BTreeMap<String, OwnedFd>> {
        self.own.lock().unwrap()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_socket_goes_on_at_its_address_and_at_no_other() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let before = Sockets::default();
        assert!(before.bound("in", address).unwrap().is_none());
        before.keep("in", &listener).unwrap();
        let next = Sockets::of(before.all().unwrap());
        let other = SocketAddr::new("127.0.0.2".parse().unwrap(), address.port());
        assert!(next.bound("in", other).unwrap().is_none());
        assert!(next.bound("out", address).unwrap().is_none());
        for same in [address, SocketAddr::new(address.ip(), 0)] {
            let socket = next.bound("in", same).unwrap().unwrap();
            assert_eq!(TcpListener::from(socket).local_addr().unwrap(), address);
        }
        assert_eq!(next.all().unwrap().len(), 1);
        // A socket that was bound ahead is returned again at the next request.
        for _ in 0..2 {
            assert!(next.inherit("in").unwrap().is_some());
        }
        next.leave();
        assert!(next.inherit("in").unwrap().is_none());
        // A socket that nobody asks for is closed.
        let next = Sockets::of(before.all().unwrap());
        next.forget_others();
        assert!(next.inherit("in").unwrap().is_none());
        assert!(next.all().unwrap().is_empty());
    }
}
