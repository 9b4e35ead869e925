//! A session of LTP over UDP (RFC 7122): a segment in each datagram, a bundle in each block that is
//! sent, all of it red, or green if it is configured and nobody has custody of the bundle. A
//! received block may contain several.

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio::sync::Mutex;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use underpass_cla::{Down, LtpFigures, Node, Outcome, PathFigures, Refusal, SessionId, Transfer};
use underpass_ltp::{BUNDLE_PROTOCOL, Event, Figures, Piece, Reason, SessionId as BlockId, Span};
use underpass_payloads::{PayloadFile, Spool};

use crate::aggregated::Bundles;
use crate::config::Config;
use crate::datagrams::HEADER_BYTES;
use crate::handle::{self, Command, Orders};
use crate::pace::Pace;
use crate::reading::LONG_BYTES;
use crate::socket;
use crate::spooled::{SpooledBundles, Spools, Wrote, let_go};

/// How long nothing is done at most.
const PAUSE: Duration = Duration::from_secs(3600);

/// How long bundles in transfer may take to complete when the session closes.
const ENDING: Duration = Duration::from_secs(10);

/// A bundle is about this much line time; when less is waiting here, another bundle is requested.
const READY_TIME_S: f64 = 0.05;
const READY_BYTES: std::ops::RangeInclusive<u64> = 8 << 10..=512 << 10;

/// Datagrams that are taken before anything else has its turn.
const AT_ONCE: usize = 64;

/// Longer blocks are given to the node in a separate task: it may write their bundles to disk, or
/// there may be thousands of them.
const LONG_BLOCK_BYTES: usize = 128 << 10;

/// Bundles of such a block after which other tasks have their turn.
const BUNDLES_AT_ONCE: usize = 32;

/// Blocks for which the node has no room wait here, up to this many bytes in all, and are tried
/// again `HELD_TRIES` times before they are cancelled. Their sender has only a bounded number of
/// blocks in transfer, so it waits, too.
const HELD_BYTES: u64 = 16 << 20;
const HELD_TRIES: u32 = 20;
const HELD_PAUSE: Duration = Duration::from_millis(500);

/// A block, its length (bytes), and whether it is taken, or why it is refused.
type Taken = (BlockId, usize, Result<(), Reason>);

/// A payload on disk, and where it begins in its block.
type OnDisk = (Arc<PayloadFile>, u64);

/// A part of a payload that was read.
struct Read {
    block: BlockId,
    /// The bundle's transfer.
    key: u64,
    /// Where the part begins in the block.
    offset: u64,
    bytes: io::Result<Bytes>,
}

struct Session<'a> {
    config: &'a Config,
    node: &'a Arc<dyn Node>,
    socket: UdpSocket,
    span: Span,
    pace: Pace,
    /// Bundles under way, by their transfers' keys.
    sent: HashSet<u64>,
    /// Of these, those with payloads on disk.
    from_disk: HashMap<u64, OnDisk>,
    /// Parts of payloads that are being read.
    reading: JoinSet<Read>,
    /// Blocks that are long, or found no room, which the node is taking in separate tasks; and
    /// their bytes.
    taking: JoinSet<Taken>,
    taking_bytes: usize,
    /// Blocks that are too long for memory, until they are complete. They then go to the node one
    /// after the other, since each may need a bundle in memory.
    spools: Spools,
    turn: Arc<Mutex<()>>,
    closing: Option<Instant>,
    told_ready: bool,
}

/// Carries bundles both ways for as long as the socket lives. Refuses the neighbour's sessions that
/// are `unfinished` since the session before, and leaves its own there.
pub(crate) async fn run(
    config: &Config,
    node: &Arc<dyn Node>,
    socket: UdpSocket,
    (local, remote): (u64, u64),
    unfinished: &std::sync::Mutex<Vec<u64>>,
    stop: &CancellationToken,
) -> Down {
    let now = Instant::now();
    let mut ltp = underpass_ltp::Config::within(config.ltp, local, remote, fastrand::u64(..));
    let headers = (config.ip_header_bytes() + HEADER_BYTES) as usize;
    ltp.segment_bytes = (config.mtu_bytes as usize).saturating_sub(headers);
    ltp.rtt = config.rtt;
    ltp.block_bytes = config.transfer_mru_bytes;
    if config.spools {
        ltp.block_bytes = config.long_mru_bytes;
        ltp.in_memory_bytes = config.transfer_mru_bytes.min(LONG_BYTES) as usize;
    }
    // The configured bound is this neighbour's own part; the rest comes from the common memory.
    ltp.common = Some((ltp.receive_bytes, config.ltp_memory.clone()));
    ltp.receive_bytes = ltp
        .receive_bytes
        .max(config.transfer_mru_bytes as usize * 2);
    let (handle, mut orders) = handle::pair();
    let id = node.session_up(config.next_id(), config.info(), handle);
    let mut session = Session {
        config,
        node,
        socket,
        span: Span::new(ltp, now),
        pace: Pace::new(config.ceiling_bps, now),
        sent: HashSet::new(),
        from_disk: HashMap::new(),
        reading: JoinSet::new(),
        taking: JoinSet::new(),
        taking_bytes: 0,
        spools: Spools::default(),
        turn: Arc::default(),
        closing: None,
        told_ready: false,
    };
    let (id, down) = match handle::in_use(node, id, stop).await {
        Ok(id) => {
            let numbers = std::mem::take(&mut *unfinished.lock().unwrap());
            session.span.refuse(numbers);
            let down = session.carry(id, &mut orders, stop).await;
            // The peer has no answer for these, and sends them again.
            session.taking.shutdown().await;
            unfinished.lock().unwrap().extend(session.end_blocks());
            (id, down)
        }
        Err(id) => (id, Down::Closed),
    };
    orders.end(&**node, id, session.sent, down.clone());
    down
}

impl Session<'_> {
    async fn carry(
        &mut self,
        id: SessionId,
        orders: &mut Orders,
        stop: &CancellationToken,
    ) -> Down {
        let mut buffer = vec![0; 1 << 16];
        loop {
            self.span.handle_timeout(Instant::now());
            self.tell(id);
            self.send();
            self.tell(id);
            orders.show(self.figures());
            let now = Instant::now();
            if self
                .closing
                .is_some_and(|until| self.sent.is_empty() || until <= now)
            {
                return Down::Closed;
            }
            if !self.told_ready && self.closing.is_none() && self.takes_more() {
                self.told_ready = true;
                self.node.ready(id);
            }
            let due = self.span.poll_timeout();
            let paced = self.pace.next().filter(|_| self.span.may_transmit());
            let wakes = [due, paced, self.closing];
            let wake = wakes.into_iter().flatten().min().unwrap_or(now + PAUSE);
            tokio::select! {
                () = stop.cancelled() => return Down::Closed,
                command = orders.commands.recv() => match command {
                    Some(Command::Abort(reason)) => return Down::Broken(reason),
                    Some(command) => self.order(id, command),
                    None => return Down::Closed,
                },
                Some(read) = self.reading.join_next() => match read {
                    Ok(read) => self.supply(id, read),
                    Err(error) => return Down::Broken(error.to_string()),
                },
                Some(taken) = self.taking.join_next() => match taken {
                    Ok((block, bytes, verdict)) => {
                        self.taking_bytes -= bytes;
                        self.span.answer(Instant::now(), block, verdict);
                    }
                    Err(error) => return Down::Broken(error.to_string()),
                },
                Some(wrote) = self.spools.writing.join_next() => match wrote {
                    Ok(wrote) => self.wrote(id, wrote),
                    Err(error) => return Down::Broken(error.to_string()),
                },
                // Datagrams for which the disk is too slow are lost, as on the link.
                received = self.socket.recv_from(&mut buffer), if self.has_room() => {
                    let mut received = received;
                    for _ in 0..AT_ONCE {
                        match received {
                            Ok((count, source)) if self.config.is_from_peer(source) => {
                                self.span.handle_input(Instant::now(), &buffer[..count]);
                            }
                            Ok((_, source)) => {
                                debug!(path = self.config.path, %source, "not the neighbour's address");
                            }
                            Err(_) => break,
                        }
                        received = self.socket.try_recv_from(&mut buffer);
                    }
                }
                () = sleep_until(wake.into()) => {}
            }
        }
    }

    /// Whether the waiting blocks still fit into the memory for them.
    fn has_room(&self) -> bool {
        self.taking_bytes as u64 <= self.config.transfer_mru_bytes
    }

    fn takes_more(&self) -> bool {
        let line = self.pace.rate_bps().map_or(*READY_BYTES.end(), |rate| {
            (rate as f64 / 8.0 * READY_TIME_S) as u64
        });
        let most = line.clamp(*READY_BYTES.start(), *READY_BYTES.end());
        self.span.unsent_bytes() <= most && self.span.takes_more()
    }

    fn order(&mut self, id: SessionId, command: Command) {
        let now = Instant::now();
        match command {
            Command::Offer(transfer) => {
                self.told_ready = false;
                self.begin(id, transfer);
            }
            Command::Rate(rate) => self.pace.set(now, rate),
            Command::Suspend(blocked) => self.span.block_link(now, blocked),
            Command::Close => self.closing = Some(now + ENDING),
            Command::Abort(_) => {}
        }
    }

    /// Begins to send a bundle. A payload on disk is read as it is sent.
    fn begin(&mut self, id: SessionId, transfer: Transfer) {
        let key = transfer.key;
        self.sent.insert(key);
        let mut pieces: Vec<Piece> = transfer.chunks.into_iter().map(Piece::Here).collect();
        if let Some(file) = transfer.file {
            let (place, start) = match pieces.first() {
                Some(Piece::Here(first)) => (1, first.len() as u64),
                _ => (0, 0),
            };
            pieces.insert(place, Piece::Elsewhere(file.len()));
            self.from_disk.insert(key, (file, start));
        }
        let red_bytes = (self.config.green && !transfer.reliable).then_some(0);
        let sent = self
            .span
            .send_pieces(key, BUNDLE_PROTOCOL, pieces, red_bytes);
        if let Err(error) = sent {
            debug!(path = self.config.path, %error, "a bundle is not sent");
            self.end(id, key, Outcome::Refused(Refusal::NoResources));
        }
    }

    /// Reads a part of a payload that is to be sent.
    fn read(&mut self, block: BlockId, key: u64, range: Range<u64>) {
        let Some((file, start)) = self.from_disk.get(&key) else {
            return;
        };
        let (file, start, offset) = (file.clone(), *start, range.start);
        self.reading.spawn_blocking(move || {
            let bytes = read(&file, range.start - start, range.end - range.start);
            Read {
                block,
                key,
                offset,
                bytes,
            }
        });
    }

    /// Continues a block after a part of it was read.
    fn supply(&mut self, id: SessionId, read: Read) {
        match read.bytes {
            Ok(bytes) => self.span.supply(read.block, read.offset, bytes),
            Err(error) => {
                let path = &self.config.path;
                warn!(path, %error, "a payload cannot be read");
                self.end(id, read.key, Outcome::Refused(Refusal::NoResources));
                self.span.cancel(read.block);
            }
        }
    }

    /// Sends what the pace allows.
    fn send(&mut self) {
        let mut segment = Vec::with_capacity(self.config.mtu_bytes as usize);
        let headers = self.config.ip_header_bytes() + HEADER_BYTES;
        let now = Instant::now();
        while self.pace.is_open(now) && self.span.poll_transmit(now, &mut segment) {
            self.pace.sent(now, segment.len() as u64 + headers);
            // A segment that finds no room in the kernel is lost, as on the link.
            if let Err(error) = socket::send_now(&self.socket, &segment, self.config.remote) {
                debug!(path = self.config.path, %error, "not sent");
            }
            segment.clear();
        }
    }

    /// Gives up all blocks under way and tells the neighbour once. Returns the numbers of those
    /// from it that were not received to the end.
    fn end_blocks(&mut self) -> Vec<u64> {
        let unfinished = self.span.end();
        let (now, mut segment) = (Instant::now(), Vec::new());
        let may_send = self.pace.next().is_some();
        while may_send && self.span.poll_transmit(now, &mut segment) {
            if let Err(error) = socket::send_now(&self.socket, &segment, self.config.remote) {
                debug!(path = self.config.path, %error, "not sent");
            }
            segment.clear();
        }
        unfinished
    }

    /// Tells the node what has become of bundles.
    fn tell(&mut self, id: SessionId) {
        while let Some(event) = self.span.poll_event() {
            match event {
                Event::Progress { key, bytes } => self.node.progress(id, key, bytes),
                Event::Wanted {
                    session,
                    key,
                    range,
                } => self.read(session, key, range),
                Event::Sent { key } => self.end(id, key, Outcome::Acknowledged),
                Event::Cancelled {
                    key,
                    reason,
                    by_peer,
                } => {
                    debug!(
                        path = self.config.path,
                        ?reason,
                        by_peer,
                        "a block is cancelled"
                    );
                    self.end(id, key, outcome(reason, by_peer));
                }
                Event::Received { session, block, .. } => self.take(id, session, block),
                Event::Keep {
                    session,
                    offset,
                    bytes,
                } => self.spools.keep(self.node, id, session, (offset, bytes)),
                Event::ReceivedElsewhere { session, bytes, .. } => {
                    self.spools.whole(session, bytes);
                    self.take_spooled(id, session);
                }
                Event::ReceptionCancelled { session, reason } => {
                    let pieces = self.spools.forget(session);
                    self.span.kept(session, pieces, Ok(()));
                    debug!(
                        path = self.config.path,
                        ?session,
                        ?reason,
                        "a block does not come"
                    );
                }
            }
        }
    }

    /// Gives the node the bundles of a block.
    fn take(&mut self, id: SessionId, block: BlockId, bytes: Bytes) {
        let held = (self.taking_bytes + bytes.len()) as u64;
        let most = HELD_BYTES.min(self.config.transfer_mru_bytes / 2);
        let tries = if held <= most { HELD_TRIES } else { 0 };
        let mut done = 0;
        if bytes.len() <= LONG_BLOCK_BYTES {
            let mut verdict = Ok(());
            for bundle in Bundles::of(bytes.clone()) {
                let taken = self.node.received(id, bundle);
                if !judge(&mut verdict, taken, &self.config.path) {
                    break;
                }
                done += 1;
            }
            if verdict.is_ok() || tries == 0 {
                self.span.answer(Instant::now(), block, verdict);
                return;
            }
        }
        self.taking_bytes += bytes.len();
        let node = self.node.clone();
        let path = self.config.path.clone();
        self.taking
            .spawn(take_beside(node, path, id, (block, bytes, done), tries));
    }

    /// Pieces of a long block were written to disk, or could not be.
    fn wrote(&mut self, id: SessionId, wrote: Wrote) {
        let (block, pieces) = (wrote.block, wrote.pieces);
        let kept = self.spools.wrote(wrote);
        self.span.kept(block, pieces, kept);
        if kept.is_ok() {
            self.spools.write(self.node, id, block);
            self.take_spooled(id, block);
        }
    }

    /// Gives the node the bundles of a long block, once it is complete and on disk.
    fn take_spooled(&mut self, id: SessionId, block: BlockId) {
        let Some((spool, bytes)) = self.spools.take(block) else {
            return;
        };
        let (node, path, turn) = (
            self.node.clone(),
            self.config.path.clone(),
            self.turn.clone(),
        );
        let whole_bytes = self.config.transfer_mru_bytes;
        self.taking.spawn(async move {
            let _turn = turn.lock().await;
            let verdict = take_from_disk(&node, &path, id, (&spool, bytes), whole_bytes).await;
            let_go(Some(spool));
            (block, 0, verdict)
        });
    }

    fn end(&mut self, id: SessionId, key: u64, outcome: Outcome) {
        self.from_disk.remove(&key);
        if self.sent.remove(&key) {
            self.node.finished(id, key, outcome);
        }
    }

    fn figures(&self) -> PathFigures {
        let figures = self.span.figures();
        PathFigures {
            rtt: figures.rtt,
            min_rtt: figures.min_rtt,
            unsent_bytes: self.span.unsent_bytes(),
            sent_bytes: figures.sent_bytes,
            retransmitted_bytes: figures.resent_bytes,
            delivered_bytes: figures.delivered_bytes,
            segment_bytes: self.config.mtu_bytes,
            segments_sent: figures.sent_segments,
            data_segments_sent: figures.sent_data_segments,
            received_bytes: figures.received_bytes,
            ltp: self.ltp_figures(figures),
            ..PathFigures::default()
        }
    }

    fn ltp_figures(&self, figures: Figures) -> LtpFigures {
        let (sending, receiving) = self.span.sessions();
        let refused = self.span.refused();
        LtpFigures {
            sending_blocks: sending as u64,
            receiving_blocks: receiving as u64,
            receiving_bytes: self.span.receive_bytes() as u64,
            cancelled_sent_blocks: figures.cancelled_sent,
            cancelled_received_blocks: figures.cancelled_received,
            malformed_segments: refused.malformed,
            foreign_segments: refused.foreign,
            closed_segments: refused.closed,
            impossible_segments: refused.impossible,
            no_room_segments: refused.no_room,
        }
    }
}

/// Reads a range of a payload. Waits for the disk.
fn read(file: &PayloadFile, offset: u64, bytes: u64) -> io::Result<Bytes> {
    let length = usize::try_from(bytes).map_err(io::Error::other)?;
    let mut part = vec![0; length];
    file.read_at(&mut part, offset)?;
    Ok(part.into())
}

/// Gives the node the bundles of a block, after those that are done, in a separate task. If the
/// node has no room, tries again a bounded number of times.
async fn take_beside(
    node: Arc<dyn Node>,
    path: String,
    id: SessionId,
    (block, bytes, done): (BlockId, Bytes, usize),
    mut tries: u32,
) -> Taken {
    let length = bytes.len();
    let mut verdict = Ok(());
    for (number, bundle) in Bundles::of(bytes).enumerate().skip(done) {
        if number % BUNDLES_AT_ONCE == BUNDLES_AT_ONCE - 1 {
            yield_now().await;
        }
        let mut taken = handle::take(&node, id, bundle.clone()).await;
        while taken == Err(Refusal::NoResources) && tries > 0 {
            tries -= 1;
            sleep(HELD_PAUSE).await;
            taken = handle::take(&node, id, bundle.clone()).await;
        }
        if !judge(&mut verdict, taken, &path) {
            break;
        }
    }
    (block, length, verdict)
}

/// Gives the node the bundles of a block on disk. If the node has no room, tries again a bounded
/// number of times. Bundles that it does not take piece by piece may have at most `whole_bytes`.
async fn take_from_disk(
    node: &Arc<dyn Node>,
    path: &str,
    id: SessionId,
    (spool, bytes): (&Arc<Spool>, u64),
    whole_bytes: u64,
) -> Result<(), Reason> {
    let (mut verdict, mut tries, mut number) = (Ok(()), HELD_TRIES, 0_usize);
    let mut bundles = SpooledBundles::of(spool.clone(), bytes);
    while let Some(bundle) = bundles.next().await.map_err(|_| Reason::System)? {
        number += 1;
        if number.is_multiple_of(BUNDLES_AT_ONCE) {
            yield_now().await;
        }
        let mut taken = bundle.take(node, id, whole_bytes).await;
        while taken == Err(Refusal::NoResources) && tries > 0 {
            tries -= 1;
            sleep(HELD_PAUSE).await;
            taken = bundle.take(node, id, whole_bytes).await;
        }
        if !judge(&mut verdict, taken, path) {
            break;
        }
    }
    verdict
}

/// Adds the outcome of one of a block's bundles to the verdict. Returns whether to go on with the
/// next one. The peer gets one verdict for all of them: if there is no room for one, it sends the
/// block again, and the bundles that were taken are then known. An unacceptable bundle is dropped
/// without cancelling the block: ION-DTN would send a cancelled block again at once, for as long as
/// the bundle lives.
fn judge(verdict: &mut Result<(), Reason>, taken: Result<(), Refusal>, path: &str) -> bool {
    match taken {
        // A bundle that is here already counts as taken.
        Ok(()) | Err(Refusal::Completed) => {}
        Err(Refusal::NoResources) => {
            *verdict = Err(Reason::System);
            return false;
        }
        Err(refusal @ Refusal::NotAcceptable) => {
            info!(path, %refusal, "a bundle is not taken");
        }
    }
    true
}

fn outcome(reason: Reason, by_peer: bool) -> Outcome {
    match (by_peer, reason) {
        (true, Reason::Client) => Outcome::Refused(Refusal::NotAcceptable),
        // This includes Unreachable: the neighbour's bundle agent is down, or not up yet.
        (true, _) => Outcome::Refused(Refusal::NoResources),
        (false, _) => Outcome::Broken { acknowledged: 0 },
    }
}
