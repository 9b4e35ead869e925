//! Blocks of LTP that are too long for memory: their parts wait on disk until they are complete,
//! and go to the node from there.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use tokio::task::{JoinSet, spawn_blocking};
use tracing::warn;
use underpass_cla::{Node, Refusal, SessionId};
use underpass_ltp::{Reason, SessionId as BlockId};
use underpass_payloads::{Refused, Spool};

use crate::aggregated::{HEAD_BYTES, next_bytes};
use crate::handle::{self, PIECE_BYTES};

/// Most incomplete blocks on disk at once.
const MOST_BLOCKS: usize = 16;

/// Bytes that are read at once to find a bundle's end; its payload, which is most of it, is
/// skipped.
const HEADS_BYTES: u64 = 4 << 10;

/// The long blocks of a session that are not complete.
#[derive(Default)]
pub(crate) struct Spools {
    blocks: HashMap<BlockId, Spooling>,
    /// Pieces that are being written to disk: some of each block at a time, in order.
    pub(crate) writing: JoinSet<Wrote>,
    begun: u64,
}

struct Spooling {
    /// A peer may use the number of a session again.
    number: u64,
    /// None before the first pieces are there.
    spool: Option<Arc<Spool>>,
    is_writing: bool,
    waiting: Vec<(u64, Bytes)>,
    /// The block's length, once all of it has come.
    bytes: Option<u64>,
}

/// What has become of pieces of a block.
pub(crate) struct Wrote {
    pub(crate) block: BlockId,
    /// How many they are, and their bytes.
    pub(crate) pieces: (usize, usize),
    number: u64,
    spool: Result<Arc<Spool>, Refusal>,
}

impl Spools {
    /// Has a piece of a block written.
    pub(crate) fn keep(
        &mut self,
        node: &Arc<dyn Node>,
        id: SessionId,
        block: BlockId,
        piece: (u64, Bytes),
    ) {
        let spooling = self.blocks.entry(block).or_insert_with(|| {
            self.begun += 1;
            Spooling {
                number: self.begun,
                spool: None,
                is_writing: false,
                waiting: Vec::new(),
                bytes: None,
            }
        });
        spooling.waiting.push(piece);
        self.write(node, id, block);
    }

    /// Writes the waiting pieces of a block, once earlier ones are written.
    pub(crate) fn write(&mut self, node: &Arc<dyn Node>, id: SessionId, block: BlockId) {
        let has_place = self.blocks.len() <= MOST_BLOCKS;
        let spooling = self.blocks.get_mut(&block);
        let ready = spooling.filter(|one| !one.is_writing && !one.waiting.is_empty());
        let Some(spooling) = ready else {
            return;
        };
        spooling.is_writing = true;
        let waiting = std::mem::take(&mut spooling.waiting);
        let (number, spool, node) = (spooling.number, spooling.spool.clone(), node.clone());
        self.writing.spawn_blocking(move || {
            let spool = match spool {
                Some(spool) => Ok(spool),
                None if has_place => node.spool(id).map(Arc::new),
                None => Err(Refusal::NoResources),
            };
            let spool = spool.and_then(|spool| {
                let written = write(&spool, &waiting);
                written.map(|()| spool).map_err(|error| {
                    warn!(%error, "a block cannot be kept");
                    Refusal::NoResources
                })
            });
            Wrote {
                block,
                pieces: count(&waiting),
                number,
                spool,
            }
        });
    }

    /// Pieces were written, or could not be.
    ///
    /// # Errors
    /// When their block is to be cancelled for this reason.
    pub(crate) fn wrote(&mut self, wrote: Wrote) -> Result<(), Reason> {
        let spooling = self.blocks.get_mut(&wrote.block);
        let Some(spooling) = spooling.filter(|one| one.number == wrote.number) else {
            return Ok(());
        };
        spooling.is_writing = false;
        spooling.spool = Some(wrote.spool.map_err(|_| Reason::System)?);
        Ok(())
    }

    /// All of a block has come, of so many bytes.
    pub(crate) fn whole(&mut self, block: BlockId, bytes: u64) {
        if let Some(spooling) = self.blocks.get_mut(&block) {
            spooling.bytes = Some(bytes);
        }
    }

    /// A block that is on disk as a whole, with its length.
    pub(crate) fn take(&mut self, block: BlockId) -> Option<(Arc<Spool>, u64)> {
        let spooling = self.blocks.get(&block)?;
        let bytes = spooling.bytes?;
        if spooling.is_writing || !spooling.waiting.is_empty() {
            return None;
        }
        let spool = spooling.spool.clone()?;
        self.blocks.remove(&block);
        Some((spool, bytes))
    }

    /// Forgets a block that will not become complete. Returns how many of its pieces were waiting,
    /// and their bytes.
    pub(crate) fn forget(&mut self, block: BlockId) -> (usize, usize) {
        let Some(forgotten) = self.blocks.remove(&block) else {
            return (0, 0);
        };
        let_go(forgotten.spool);
        count(&forgotten.waiting)
    }
}

/// Deletes a block from disk, in a separate task, since the disk needs some time for it.
pub(crate) fn let_go(spool: Option<Arc<Spool>>) {
    spawn_blocking(move || drop(spool));
}

fn count(pieces: &[(u64, Bytes)]) -> (usize, usize) {
    let bytes = pieces.iter().map(|(_, bytes)| bytes.len());
    (pieces.len(), bytes.sum())
}

/// Writes pieces in order. Each call has a fixed cost, whatever its length, so adjacent pieces are
/// written together. Waits for the disk.
fn write(spool: &Spool, pieces: &[(u64, Bytes)]) -> Result<(), Refused> {
    let (mut start, mut run) = (0, Vec::new());
    for (offset, bytes) in pieces {
        let goes_on = *offset == start + run.len() as u64 && run.len() < PIECE_BYTES;
        if !goes_on && !run.is_empty() {
            spool.write_at(&run, start)?;
            run.clear();
        }
        if run.is_empty() {
            start = *offset;
        }
        run.extend_from_slice(bytes);
    }
    spool.write_at(&run, start)
}

/// The bundles of a block on disk, in order.
pub(crate) struct SpooledBundles {
    spool: Arc<Spool>,
    /// Where the next one begins.
    at: u64,
    /// The block's length.
    bytes: u64,
    /// The bytes read from there on: many short bundles are read at once, so that a block with very
    /// many costs little more than its bytes.
    read: Bytes,
}

/// A bundle of such a block.
pub(crate) enum Found {
    /// A short one.
    InMemory(Bytes),
    /// One that is read as the node takes it.
    OnDisk(SpooledBundle),
}

/// More has to be read to find a bundle's end.
struct Unread;

impl SpooledBundles {
    /// Those of a block of so many bytes.
    pub(crate) fn of(spool: Arc<Spool>, bytes: u64) -> SpooledBundles {
        SpooledBundles {
            spool,
            at: 0,
            bytes,
            read: Bytes::new(),
        }
    }

    /// The next one, if there is any.
    ///
    /// # Errors
    /// When the disk fails.
    pub(crate) async fn next(&mut self) -> Result<Option<Found>, Refusal> {
        let rest = self.bytes - self.at;
        if rest == 0 {
            return Ok(None);
        }
        if let Some(bundle) = self.next_in_memory() {
            return Ok(Some(Found::InMemory(bundle)));
        }
        let at_once = rest.min(PIECE_BYTES as u64);
        if (self.read.len() as u64) < at_once {
            self.read = read(self.spool.clone(), self.at, at_once).await?;
            if let Some(bundle) = self.next_in_memory() {
                return Ok(Some(Found::InMemory(bundle)));
            }
        }
        let found = SpooledBundle::find(self.spool.clone(), self.at, self.bytes).await?;
        self.at += found.bytes;
        self.read = Bytes::new();
        Ok(Some(Found::OnDisk(found)))
    }

    /// The next one, if all of it was read.
    fn next_in_memory(&mut self) -> Option<Bytes> {
        let rest = self.bytes - self.at;
        let known = &self.read;
        let head_at = |at: u64, head: &mut [u8; HEAD_BYTES]| -> Result<usize, Unread> {
            let count = rest.saturating_sub(at).min(HEAD_BYTES as u64) as usize;
            let from = usize::try_from(at).map_err(|_| Unread)?;
            let there = known.get(from..).and_then(|there| there.get(..count));
            head[..count].copy_from_slice(there.ok_or(Unread)?);
            Ok(count)
        };
        let length = next_bytes(rest, head_at).ok()?;
        let length = usize::try_from(length).ok()?;
        // A bundle that is kept must not keep the others in memory.
        let bundle = Bytes::copy_from_slice(self.read.get(..length)?);
        self.read.advance(length);
        self.at += length as u64;
        Some(bundle)
    }
}

impl Found {
    /// Hands the bundle to the node; in one piece, up to `whole_bytes`, if the node does not take
    /// it piece by piece.
    ///
    /// # Errors
    /// When the node does not take it.
    pub(crate) async fn take(
        &self,
        node: &Arc<dyn Node>,
        id: SessionId,
        whole_bytes: u64,
    ) -> Result<(), Refusal> {
        match self {
            Found::InMemory(bundle) => handle::take(node, id, bundle.clone()).await,
            Found::OnDisk(bundle) => bundle.take(node, id, whole_bytes).await,
        }
    }
}

/// A bundle of a block that is on the disk.
pub(crate) struct SpooledBundle {
    spool: Arc<Spool>,
    /// Where it begins.
    start: u64,
    bytes: u64,
}

impl SpooledBundle {
    /// The bundle that begins there, of a block of `block_bytes`.
    ///
    /// # Errors
    /// When the disk fails.
    async fn find(
        spool: Arc<Spool>,
        start: u64,
        block_bytes: u64,
    ) -> Result<SpooledBundle, Refusal> {
        let rest = block_bytes - start;
        let looking = spool.clone();
        let bytes = on_disk(move || {
            let mut heads = Heads {
                spool: &looking,
                start,
                rest,
                at: 0,
                read: Vec::new(),
            };
            next_bytes(rest, |at, head| heads.read(at, head))
        });
        let bytes = bytes.await?;
        Ok(SpooledBundle {
            spool,
            start,
            bytes,
        })
    }

    /// As [`Found::take`].
    async fn take(
        &self,
        node: &Arc<dyn Node>,
        id: SessionId,
        whole_bytes: u64,
    ) -> Result<(), Refusal> {
        let Some(mut intake) = node.intake(id, self.bytes)? else {
            if self.bytes > whole_bytes {
                return Err(Refusal::NotAcceptable);
            }
            let bundle = self.read(0, self.bytes).await?;
            return node.received(id, bundle);
        };
        let mut at = 0;
        while at < self.bytes {
            let piece = self.read(at, PIECE_BYTES as u64).await?;
            at += piece.len() as u64;
            poll_fn(|cx| intake.poll_ready(cx)).await?;
            intake.take(piece);
        }
        poll_fn(|cx| intake.poll_end(cx)).await
    }

    /// `bytes` bytes of it from a place on, or all that there are.
    async fn read(&self, at: u64, bytes: u64) -> Result<Bytes, Refusal> {
        let bytes = bytes.min(self.bytes - at);
        read(self.spool.clone(), self.start + at, bytes).await
    }
}

/// So many bytes from a place on.
async fn read(spool: Arc<Spool>, offset: u64, bytes: u64) -> Result<Bytes, Refusal> {
    let read = on_disk(move || {
        let mut piece = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
        spool.read_at(&mut piece, offset)?;
        Ok(Bytes::from(piece))
    });
    read.await
}

/// Does what waits for the disk.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Refusal> {
    let done = spawn_blocking(work).await;
    let done = done.unwrap_or_else(|_| Err(io::ErrorKind::Interrupted.into()));
    done.map_err(|error| {
        warn!(%error, "a block cannot be read");
        Refusal::NoResources
    })
}

/// The heads of a bundle's items, in the last `rest` bytes of a block.
struct Heads<'a> {
    spool: &'a Spool,
    start: u64,
    rest: u64,
    /// The last bytes read, and where they begin, counted from `start`.
    at: u64,
    read: Vec<u8>,
}

impl Heads<'_> {
    fn read(&mut self, at: u64, head: &mut [u8; HEAD_BYTES]) -> io::Result<usize> {
        let left = self.rest.saturating_sub(at);
        // Nine bytes at most.
        let count = left.min(HEAD_BYTES as u64) as usize;
        if count == 0 {
            return Ok(0);
        }
        let known = self.at..self.at + self.read.len() as u64;
        if !known.contains(&at) || known.end - at < count as u64 {
            self.read.resize(left.min(HEADS_BYTES) as usize, 0);
            self.spool.read_at(&mut self.read, self.start + at)?;
            self.at = at;
        }
        let from = (at - self.at) as usize;
        head[..count].copy_from_slice(&self.read[from..from + count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use underpass_payloads::{Limits, Payloads};

    use super::*;

    /// A bundle's outline: an array with a byte string of `bytes` bytes.
    fn outline(bytes: u32) -> Vec<u8> {
        let mut bundle = vec![0x9f, 0x5a];
        bundle.extend_from_slice(&bytes.to_be_bytes());
        bundle.resize(6 + bytes as usize, 7);
        bundle.push(0xff);
        bundle
    }

    fn payloads() -> (tempfile::TempDir, Arc<Payloads>) {
        let folder = tempfile::tempdir().expect("a folder");
        let limits = Limits {
            quota_bytes: 16 << 20,
            payload_bytes: 16 << 20,
            leave_free_bytes: 0,
        };
        let payloads = Payloads::open(folder.path(), limits).expect("a folder");
        (folder, payloads)
    }

    #[test]
    fn pieces_are_written_in_their_order_wherever_they_lie() {
        let (_folder, payloads) = payloads();
        let spool = payloads.spool(1).expect("there is room");
        let mut pieces = vec![
            (4, Bytes::from_static(b"ef__")),
            (0, Bytes::from_static(b"abc")),
            (3, Bytes::from_static(b"d")),
            (6, Bytes::from_static(b"gh")),
        ];
        // This is more than is written at once.
        let whole: Vec<u8> = (0..700_000_u32).map(|i| (i % 251) as u8).collect();
        let mut at = 8;
        for part in whole.chunks(1_400) {
            pieces.push((at, Bytes::copy_from_slice(part)));
            at += part.len() as u64;
        }
        write(&spool, &pieces).expect("there is room");
        let mut read = vec![0; 8 + whole.len()];
        spool.read_at(&mut read, 0).expect("all of it is there");
        assert_eq!(&read[..8], b"abcdefgh");
        assert!(read[8..] == whole);
        // Each takes room of its own, even beside another one.
        assert_eq!(payloads.used(), (1, 10 + whole.len() as u64));
    }

    #[tokio::test]
    async fn the_bundles_of_a_block_on_the_disk_are_told_apart() {
        let (_folder, payloads) = payloads();
        let bundles = [outline(300_000), outline(30), outline(4_096), vec![0; 99]];
        let whole = bundles.concat();
        let spool = Arc::new(payloads.spool(1).expect("there is room"));
        spool.write_at(&whole, 0).expect("there is room");
        // Bytes after the block do not belong to it.
        let end = whole.len() as u64;
        spool.write_at(&outline(40), end).expect("there is room");
        let mut found = SpooledBundles::of(spool, end);
        for bundle in &bundles {
            let next = found.next().await.expect("it can be read");
            let read = match next.expect("another one") {
                Found::InMemory(read) => read,
                Found::OnDisk(long) => {
                    assert_eq!(long.bytes, bundle.len() as u64);
                    long.read(0, u64::MAX).await.expect("it can be read")
                }
            };
            assert!(read == bundle[..]);
        }
        assert!(found.next().await.expect("it can be read").is_none());
    }

    #[tokio::test]
    async fn very_many_short_bundles_are_read_at_few_times() {
        let (_folder, payloads) = payloads();
        let bundles: Vec<Vec<u8>> = (0..10_000_u32).map(|i| outline(20 + i % 50)).collect();
        let whole = bundles.concat();
        let spool = Arc::new(payloads.spool(1).expect("there is room"));
        spool.write_at(&whole, 0).expect("there is room");
        let mut found = SpooledBundles::of(spool, whole.len() as u64);
        let mut reads = 0;
        for bundle in &bundles {
            let before = found.read.len();
            let next = found.next().await.expect("it can be read");
            let Some(Found::InMemory(read)) = next else {
                panic!("it is short");
            };
            assert!(read == bundle[..]);
            reads += usize::from(found.read.len() > before);
        }
        assert_eq!(reads, whole.len().div_ceil(PIECE_BYTES));
    }
}
