//! Between the modem and the antenna's controller.

use std::net::SocketAddr;
use std::sync::Arc;

use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::lock::{Lock, LockReader};
use crate::config::ModemConfig;

/// Why a modem cannot be waited for.
#[derive(Debug, Error)]
#[error("modem of {path:?}: cannot listen on {address}: {source}")]
pub struct ModemError {
    /// The path.
    path: String,
    /// The address.
    address: SocketAddr,
    /// The system's reason.
    source: std::io::Error,
}

/// Binds the address to which the modem connects.
///
/// # Errors
/// When it is taken.
pub async fn listen(config: &ModemConfig) -> Result<TcpListener, ModemError> {
    let bound = TcpListener::bind(config.listen).await;
    bound.map_err(|source| ModemError {
        path: config.path.clone(),
        address: config.listen,
        source,
    })
}

/// Serves the modem that connects, one after the other, and tells by `said`
/// whether it says that the link is blocked. A modem that is not connected
/// says nothing, so nothing is blocked by it. Runs until dropped.
pub async fn serve(
    listener: TcpListener,
    config: ModemConfig,
    said: impl Fn(bool) + Send + Sync + 'static,
) {
    let said = Arc::new(said);
    loop {
        let Ok((modem, remote)) = listener.accept().await else {
            // Out of descriptors: they come back.
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            continue;
        };
        let antenna = match TcpStream::connect(config.antenna).await {
            Ok(antenna) => antenna,
            Err(error) => {
                tracing::warn!(path = config.path, antenna = %config.antenna, %error, "the antenna's controller is out of reach");
                continue;
            }
        };
        tracing::info!(path = config.path, %remote, "modem connected");
        let ended = pass_on(modem, antenna, &*said).await;
        said(false);
        let reason = ended.err().map(|error| error.to_string());
        tracing::info!(path = config.path, reason, "modem disconnected");
    }
}

/// Passes everything on until one side ends, and heeds the modem's lock.
async fn pass_on(
    modem: TcpStream,
    antenna: TcpStream,
    said: &(impl Fn(bool) + Sync),
) -> std::io::Result<()> {
    let (mut from_modem, mut to_modem) = modem.into_split();
    let (mut from_antenna, mut to_antenna) = antenna.into_split();
    let up = async {
        let (mut reader, mut last) = (LockReader::default(), None);
        let mut buffer = [0; 4096];
        loop {
            let count = from_modem.read(&mut buffer).await?;
            if count == 0 {
                return Ok(());
            }
            let lock = reader.read(&buffer[..count]);
            if lock.is_some() && lock != last {
                last = lock;
                said(lock.is_some_and(is_blocked));
            }
            to_antenna.write_all(&buffer[..count]).await?;
        }
    };
    let down = async {
        tokio::io::copy(&mut from_antenna, &mut to_modem).await?;
        Ok(())
    };
    tokio::select! {
        ended = up => ended,
        ended = down => ended,
    }
}

/// Nothing can be sent without a lock, nor while it may not transmit.
fn is_blocked(lock: Lock) -> bool {
    !lock.receives || !lock.transmits
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn the_modems_lock_is_told_and_both_sides_hear_each_other() {
        let antenna = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = ModemConfig {
            path: "sat".to_owned(),
            listen: "127.0.0.1:0".parse().unwrap(),
            antenna: antenna.local_addr().unwrap(),
        };
        let listener = listen(&config).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, mut said) = mpsc::unbounded_channel();
        let served = tokio::spawn(serve(listener, config, move |blocked| {
            let _ = sender.send(blocked);
        }));

        let mut modem = TcpStream::connect(address).await.unwrap();
        let (mut controller, _) = antenna.accept().await.unwrap();
        modem.write_all(b"A 15\nL 1 1\n").await.unwrap();
        let mut heard = [0; 11];
        controller.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"A 15\nL 1 1\n");
        controller.write_all(b"s 1 1\n").await.unwrap();
        let mut answer = [0; 6];
        modem.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"s 1 1\n");

        let mut next = async || timeout(PATIENCE, said.recv()).await.unwrap();
        assert_eq!(next().await, Some(false));
        for (line, blocked) in [("L 0 0\n", true), ("L 1 1\n", false), ("L 1 0\n", true)] {
            modem.write_all(line.as_bytes()).await.unwrap();
            assert_eq!(next().await, Some(blocked), "{line}");
        }
        // A modem that is gone blocks nothing.
        drop(modem);
        assert_eq!(next().await, Some(false));
        served.abort();
    }
}
