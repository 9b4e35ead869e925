//! The node's handle of a session, and the commands that it has given.

use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;
use underpass_cla::{Down, Node, Outcome, PathFigures, Refusal, Session, SessionId, Transfer};
use underpass_payloads::PayloadFile;

/// Bytes of a long bundle that are handed to the node at once.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// What the node asks of a session.
#[derive(Debug)]
pub(crate) enum Command {
    Offer(Transfer),
    Rate(Option<u64>),
    Suspend(bool),
    Close,
    Abort(String),
}

/// Implements [`Session`]: passes commands to the session's task. No more bundles wait than the
/// session was ready for.
pub(crate) struct Handle {
    commands: UnboundedSender<Command>,
    figures: Arc<Mutex<PathFigures>>,
}

/// The task's end of it.
pub(crate) struct Orders {
    pub(crate) commands: UnboundedReceiver<Command>,
    figures: Arc<Mutex<PathFigures>>,
}

pub(crate) fn pair() -> (Arc<Handle>, Orders) {
    let (sender, commands) = unbounded_channel();
    let figures = Arc::<Mutex<PathFigures>>::default();
    let handle = Handle {
        commands: sender,
        figures: figures.clone(),
    };
    (Arc::new(handle), Orders { commands, figures })
}

impl Handle {
    fn tell(&self, command: Command) {
        // A session that is over has ended all its transfers.
        let _ = self.commands.send(command);
    }
}

impl Session for Handle {
    fn offer(&self, transfer: Transfer) {
        self.tell(Command::Offer(transfer));
    }

    fn set_rate(&self, ip_bps: Option<u64>) {
        self.tell(Command::Rate(ip_bps));
    }

    fn figures(&self) -> PathFigures {
        *self.figures.lock().unwrap()
    }

    fn suspend(&self, blocked: bool) {
        self.tell(Command::Suspend(blocked));
    }

    fn close(&self) {
        self.tell(Command::Close);
    }

    fn abort(&self, reason: &str) {
        self.tell(Command::Abort(reason.to_owned()));
    }
}

impl Orders {
    pub(crate) fn show(&self, figures: PathFigures) {
        *self.figures.lock().unwrap() = figures;
    }

    /// Ends a session, and with it its transfers of these keys and all offers that were not looked
    /// at yet.
    pub(crate) fn end(
        &mut self,
        node: &dyn Node,
        id: SessionId,
        keys: impl IntoIterator<Item = u64>,
        down: Down,
    ) {
        for key in keys {
            broken(node, id, key);
        }
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            if let Command::Offer(transfer) = command {
                broken(node, id, transfer.key);
            }
        }
        node.session_down(id, down);
    }
}

/// Waits until the node uses a session, and returns the node's id of it; an error if it has to stop
/// before.
pub(crate) async fn in_use(
    node: &Arc<dyn Node>,
    id: SessionId,
    stop: &CancellationToken,
) -> Result<SessionId, SessionId> {
    let in_use = poll_fn(|cx| node.poll_in_use(id, cx));
    stop.run_until_cancelled(in_use).await.ok_or(id)
}

/// Hands a bundle to the node; a long one piece by piece, as the node writes it to disk.
///
/// # Errors
/// When the node does not take it.
pub(crate) async fn take(
    node: &Arc<dyn Node>,
    id: SessionId,
    mut bundle: Bytes,
) -> Result<(), Refusal> {
    let Some(mut intake) = node.intake(id, bundle.len() as u64)? else {
        return node.received(id, bundle);
    };
    while !bundle.is_empty() {
        poll_fn(|cx| intake.poll_ready(cx)).await?;
        intake.take(bundle.split_to(bundle.len().min(PIECE_BYTES)));
    }
    poll_fn(|cx| intake.poll_end(cx)).await
}

/// The pieces of the transfer of this key, its payload among them.
pub(crate) type Read = (u64, io::Result<Vec<Bytes>>);

/// Reads the payload of a transfer, which follows its first piece. Waits for the disk.
pub(crate) fn read(key: u64, mut chunks: Vec<Bytes>, file: &PayloadFile) -> Read {
    let payload = usize::try_from(file.len())
        .map_err(io::Error::other)
        .and_then(|bytes| {
            let mut payload = vec![0; bytes];
            file.read_at(&mut payload, 0).map(|()| payload)
        });
    let chunks = payload.map(|payload| {
        chunks.insert(chunks.len().min(1), payload.into());
        chunks
    });
    (key, chunks)
}

/// A transfer ends with its session.
fn broken(node: &dyn Node, id: SessionId, key: u64) {
    let outcome = Outcome::Broken { acknowledged: 0 };
    node.finished(id, key, outcome);
}
