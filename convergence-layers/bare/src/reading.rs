//! What the neighbour sends on connections that it has made.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::{AbortHandle, JoinSet};
use tracing::{info, warn};

use crate::coming::{Coming, Parts};
use crate::config::Config;
use crate::framing::{Decoder, Frame, Framing};
use crate::socket;

/// Connections of one neighbour at once: a new one ends the oldest, so that
/// those of a run that has ended hold up nobody.
const CONNECTIONS: usize = 4;

/// Longer bundles are handed on as they come, bytes.
const LONG_BYTES: u64 = 16 << 20;

/// Pieces of one that wait to be taken.
const PIECES: usize = 2;

/// Between attempts to listen where the address is taken.
const RETRY: Duration = Duration::from_secs(1);

/// Accepts the neighbour's connections and takes the bundles off them.
pub(crate) async fn accept(config: Arc<Config>, framing: Framing, bundles: Sender<Coming>) {
    let listener = loop {
        match socket::listen(&config) {
            Ok(listener) => break listener,
            Err(error) => {
                let (path, address) = (&config.path, config.listen);
                warn!(path, %address, %error, "not listening");
                tokio::time::sleep(RETRY).await;
            }
        }
    };
    let mut readers = JoinSet::new();
    let mut order: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        while readers.try_join_next().is_some() {}
        let Ok((stream, source)) = listener.accept().await else {
            // Out of descriptors, for a moment.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        if !config.is_from_peer(source) {
            info!(path = config.path, %source, "not the neighbour's address: refused");
            continue;
        }
        order.retain(|reader| !reader.is_finished());
        if order.len() >= CONNECTIONS
            && let Some(oldest) = order.pop_front()
        {
            oldest.abort();
        }
        let reader = read(config.clone(), framing, stream, source, bundles.clone());
        order.push_back(readers.spawn(reader));
    }
}

async fn read(
    config: Arc<Config>,
    framing: Framing,
    mut stream: TcpStream,
    source: SocketAddr,
    bundles: Sender<Coming>,
) {
    let most_whole = config.transfer_mru_bytes.min(LONG_BYTES);
    let mut decoder = Decoder::new(framing, most_whole).in_parts(config.long_mru_bytes);
    let mut parts = None;
    let mut buffer = vec![0; 64 << 10];
    let reason = 'connection: {
        if let Err(error) = socket::expect_life(&stream) {
            break 'connection error.to_string();
        }
        loop {
            let count = match stream.read(&mut buffer).await {
                Ok(0) => break 'connection "closed".to_owned(),
                Ok(count) => count,
                Err(error) => break 'connection error.to_string(),
            };
            let mut input = &buffer[..count];
            while !input.is_empty() {
                match decoder.take(&mut input) {
                    Ok(Some(Frame::Bundle(bundle))) => {
                        if bundles.send(Coming::Whole(bundle)).await.is_err() {
                            return;
                        }
                    }
                    Ok(Some(Frame::Begin(length))) => {
                        let (sender, pieces) = channel(PIECES);
                        let begun = Coming::InParts(Parts { length, pieces });
                        if bundles.send(begun).await.is_err() {
                            return;
                        }
                        parts = Some(sender);
                    }
                    Ok(Some(Frame::Part { bytes, last })) => {
                        let taken = match &parts {
                            Some(parts) => parts.send(bytes).await.is_ok(),
                            None => false,
                        };
                        if !taken {
                            break 'connection "the session that took a bundle is over".to_owned();
                        }
                        if last {
                            parts = None;
                        }
                    }
                    Ok(Some(Frame::Keepalive) | None) => {}
                    Err(error) => break 'connection error.to_string(),
                }
            }
        }
    };
    info!(path = config.path, %source, reason, "connection of the neighbour is over");
}
