//! Ends connections of clients that have been answered.

use std::future::poll_fn;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::relay::poll_read_bytes;

/// How long a client that has been answered may be silent, and how long it may go on sending,
/// before its connection is closed even if it has not ended its side.
const SILENCE: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(30);

/// Ends a connection, and reads what the client still sends until it has ended its side, too. If a
/// socket is closed while bytes arrive, the kernel resets it, and the client may lose the answer
/// that it has yet to read (RFC 9112 §9.6). A node that is about to `stop` does not wait.
pub(crate) async fn leave(mut socket: TcpStream, stop: &CancellationToken) {
    let _ = socket.shutdown().await;
    stop.run_until_cancelled(hear_out(socket)).await;
}

/// Takes what the client still sends.
async fn hear_out(mut socket: TcpStream) {
    let end = Instant::now() + LONGEST;
    while Instant::now() < end {
        let next = poll_fn(|cx| poll_read_bytes(&mut socket, cx, usize::MAX));
        match timeout_at(end.min(Instant::now() + SILENCE), next).await {
            Ok(Ok(data)) if !data.is_empty() => {}
            _ => return,
        }
    }
}
