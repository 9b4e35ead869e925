//! What is kept across restarts: records of requests, and parts of objects.

mod sqlite;

use bytes::Bytes;
use thiserror::Error;

use crate::id::Id;
use crate::wire::Key;

pub use sqlite::SqliteStore;

/// Which side of an exchange something belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Side {
    /// This node's clients sent the request.
    Queue = 1,
    /// This node dispatches it to the origin.
    Dispatch = 2,
}

/// Names a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordKey {
    /// The side.
    pub side: Side,
    /// The client's node; 0 for this node's own.
    pub peer: u64,
    /// The request and attempt. On the queue's side, where a request stays the same through all
    /// attempts, the attempt is 0.
    pub key: Key,
}

impl RecordKey {
    /// The record of a request of this node's clients.
    pub fn own(id: Id) -> RecordKey {
        RecordKey {
            side: Side::Queue,
            peer: 0,
            key: Key { id, attempt: 0 },
        }
    }

    /// The request or response that belongs to the record.
    pub fn object(self, kind: Kind) -> ObjectKey {
        ObjectKey { record: self, kind }
    }
}

/// Request or response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// The request.
    Request = 1,
    /// The response.
    Response = 2,
}

/// Names an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Whose.
    pub record: RecordKey,
    /// Which.
    pub kind: Kind,
}

/// The store has failed; all changes since the last commit are lost.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum StoreError {
    #[error("the store of deferred requests fails: {0}")]
    Database(#[from] rusqlite::Error),
    #[error("the store of deferred requests cannot be opened: {0}")]
    Open(#[from] std::io::Error),
    #[error("a record of a deferred request is damaged: {0}")]
    Record(#[from] serde_json::Error),
    #[error("the store of deferred requests has format {0}, which is not understood")]
    Format(i64),
}

/// Stores records and parts. Later calls see changes at once; [`Store::commit`] puts them on stable
/// storage.
pub trait Store {
    /// All records of a side, in the order of their creation.
    ///
    /// # Errors
    /// When the store fails, as all calls.
    fn records(&self, side: Side) -> Result<Vec<(RecordKey, String)>, StoreError>;

    /// Writes a record.
    ///
    /// # Errors
    /// When the store fails.
    fn put_record(&mut self, key: &RecordKey, record: &str) -> Result<(), StoreError>;

    /// Forgets a record.
    ///
    /// # Errors
    /// When the store fails.
    fn delete_record(&mut self, key: &RecordKey) -> Result<(), StoreError>;

    /// All objects with a part.
    ///
    /// # Errors
    /// When the store fails.
    fn objects(&self) -> Result<Vec<ObjectKey>, StoreError>;

    /// The numbers of an object's parts.
    ///
    /// # Errors
    /// When the store fails.
    fn parts(&self, object: &ObjectKey) -> Result<Vec<u32>, StoreError>;

    /// A part.
    ///
    /// # Errors
    /// When the store fails.
    fn part(&self, object: &ObjectKey, index: u32) -> Result<Option<Bytes>, StoreError>;

    /// Writes a part that is not there yet.
    ///
    /// # Errors
    /// When the store fails.
    fn put_part(&mut self, object: &ObjectKey, index: u32, data: &[u8]) -> Result<(), StoreError>;

    /// Forgets an object's parts.
    ///
    /// # Errors
    /// When the store fails.
    fn delete_object(&mut self, object: &ObjectKey) -> Result<(), StoreError>;

    /// Bytes in all parts.
    fn bytes(&self) -> u64;

    /// Makes all changes durable.
    ///
    /// # Errors
    /// When the store fails; the changes are then undone.
    fn commit(&mut self) -> Result<(), StoreError>;

    /// Undoes all changes since the last commit.
    ///
    /// # Errors
    /// When the store fails.
    fn rollback(&mut self) -> Result<(), StoreError>;
}
