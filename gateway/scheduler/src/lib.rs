//! The link scheduler: what leaves a node, and when.
//!
//! A [`LinkScheduler`] is a tree. At a hub its root is the beam, and below it are the terminals and
//! their classes; at a terminal the children of the root are its paths. (Streams, the last level,
//! take turns inside the stream layer, when a bundle is sealed.) It owns no socket and no clock:
//! the node says which leaves are backlogged ([`LinkScheduler::set_ready`]), asks what may be sent
//! ([`LinkScheduler::next`]) and reports what was sent ([`LinkScheduler::sent`]).
//!
//! Several schedulers, each with terminals of its own and on a thread of its own, may share one
//! root, a [`Beam`]: they are its shards. A shard asks the beam for a quantum: one bundle if no
//! other shard wants to send, else 2 ms of the beam's rate and at least one bundle. The bytes that
//! it has really sent are charged when the quantum ends; what it does not need it gives back. Only
//! these calls take the beam's lock, and without a rate nothing does.
//!
//! A child may be *beside* the root ([`LinkScheduler::set_beside`]): a hub reaches some terminals
//! by another link than its beam as well. Such children are granted bundles in an order of their
//! own, in which each keeps to its own rate alone. They and those that share the root take turns.
//!
//! Invariants:
//! - **Rate.** The root and each child have a debt bucket: a bundle may leave while the level is
//!   not negative, and is charged with what was really sent. So in any window a child sends at most
//!   rate × time and two bundles, one of them saved up before. The root sends at most as much, and
//!   a quantum and a bundle more for each shard that sends at the same time. Over long times each
//!   has exactly its rate. A debt is paid at the rate in force: what left before a cut of the rate
//!   is still on the line.
//! - **Debts.** A child's debt delays every priority by at most the time of a bundle that suits the
//!   rate (60 ms, or 4 KiB, and a quarter for headers). The priority that made a longer debt
//!   *carries* the rest, which delays only that priority and those below. A longer debt comes from
//!   a bundle that was granted at a higher rate or sealed for one, from what the transports have
//!   not sent when the rate falls ([`LinkScheduler::wait_for_unsent`]), and from what was sent too
//!   fast ([`LinkScheduler::make_up_for`]). Higher priorities go ahead, and what they send is taken
//!   from what the priorities that carry the debt may send. So over long times the child still has
//!   exactly its rate. In a window with a cut of the rate or a bundle that does not suit it, the
//!   child sends at most two bundles more for each priority, since a priority that carries a debt
//!   is granted nothing, however often the rate changes. (Two, since the sparse bundles of a
//!   priority count as a priority of their own, before the rest: they had no part in the debt.) The
//!   root's debt delays all.
//! - **Work conservation.** If some unblocked child's next bundle is not delayed by a debt, and the
//!   root's level is not negative or the child is beside the root, something is granted. A shard
//!   may be late for its turn: the others wait for it until the root has saved up 10 ms of its
//!   rate. This time is not lost, since the root saves up to 60 ms.
//! - **Shares.** Children share the root, and classes of one priority share their child, by
//!   start-time fair queueing over weights (Goyal, Vin and Cheng 1996): two that stay backlogged
//!   differ from their weights' ratio by at most one bundle each. Deficit round robin has the same
//!   long-run shares, but a bundle may be 250 times the smallest, so its rounds would either scan
//!   debtors or burst. Shards keep to one virtual time, and the shard whose first child starts
//!   first has the turn: children share as if they were all on one shard, except for what their
//!   shard sends in a round of quanta. A shard that is too late for its turn makes up for at most
//!   60 ms.
//! - **Sparse bundles.** With many children rounds are long: of 250, each has a turn every half
//!   second, for a bundle long enough to be cheap. Bundles of streams that begin or send seldom
//!   ([`LinkScheduler::set_sparse`]) do not wait for that turn. They are charged like all others,
//!   and a child that is ahead of its share by two bundles waits for its turn again, whatever it
//!   calls sparse.
//! - **Priority.** A class is never granted while one of a higher priority of the same child is
//!   ready. Class 0, signalling, goes before every other class of *all* children: custody signals
//!   free memory at the peer and plans free capacity, and what is charged for them still counts
//!   against their child's share and rate. A shard that asks for signalling, or for a sparse
//!   bundle, waits for no other shard's turn, only for the root's level; and the others wait for it
//!   as for a shard whose turn it is.
//!
//! Every operation costs O(log n) in the number of children, and a question to
//! the beam O(log n) in the number of shards.

mod beam;
mod bucket;
mod classes;
mod fair;
mod link;
mod queues;
mod recent;
mod shaper;
mod shard;
mod terminal;
mod unscheduled;
mod utilisation;
mod wire_size;

pub use beam::Beam;
pub use classes::{ClassConfig, ClassError};
pub use link::{Config, ConfigError, Decision, LinkScheduler, UnknownLeaf};
pub use terminal::{Leaf, TerminalId};
pub use unscheduled::UnscheduledTraffic;
pub use wire_size::TcpWire;
