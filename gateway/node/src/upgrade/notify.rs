//! Notifies systemd (sd_notify(3)), if it has started the node.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The node takes connections in.
pub fn ready() {
    tell("READY=1");
}

/// The process of this number is the service's main one from now on.
pub fn main_process(id: u32) {
    tell(&format!("MAINPID={id}\nREADY=1"));
}

fn tell(text: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(name.as_bytes(), text) {
        tracing::warn!(%error, "systemd is not told how the node is");
    }
}

fn send(name: &[u8], text: &str) -> io::Result<()> {
    let address = match name {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?
        .send_to_addr(text.as_bytes(), &address)
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_at_a_path_and_at_an_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let at_path = UnixDatagram::bind(&path).unwrap();
        let abstract_name = format!("underpass-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let at_name = UnixDatagram::bind_addr(&address).unwrap();
        let name = format!("@{abstract_name}");
        for (name, socket) in [
            (path.as_os_str().as_bytes(), at_path),
            (name.as_bytes(), at_name),
        ] {
            send(name, "READY=1").unwrap();
            let mut text = [0; 64];
            let length = socket.recv(&mut text).unwrap();
            assert_eq!(&text[..length], b"READY=1");
        }
        assert!(send(b"/nowhere/notify", "READY=1").is_err());
    }
}
