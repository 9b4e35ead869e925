//! The bundles that wait for their applications, as an SQLite database.
//!
//! With WAL and `synchronous = FULL`, a commit is on stable storage when it returns.
//! Times are those of the mailbox's own clock, which runs only while the node runs: the
//! time of day may step, and may be unknown after a start.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};
use thiserror::Error;
use underpass_bundle::Delivery;
use underpass_bundle::wire::is_null;
use underpass_payloads::PayloadFile;

use crate::desk::Item;

/// The layout below, as `user_version`.
const FORMAT: i64 = 2;
const LAYOUT: &str = "
    CREATE TABLE waiting (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT UNIQUE,
        service INTEGER NOT NULL,
        source TEXT NOT NULL, node INTEGER NOT NULL,
        time_ms INTEGER NOT NULL, sequence INTEGER NOT NULL,
        age_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL,
        payload BLOB NOT NULL
    );
    CREATE TABLE clock (now_ms INTEGER NOT NULL);
    INSERT INTO clock VALUES (0);";
/// What format 2 adds: payloads that are files.
const FILES: &str = "
    CREATE TABLE files (
        number INTEGER PRIMARY KEY REFERENCES waiting(number),
        name TEXT NOT NULL, bytes INTEGER NOT NULL
    );
    PRAGMA user_version = 2;";

/// The record for which a payload's file gets its name: one constant stands for any row
/// of the mailbox, since the row's number is not known in time.
pub(crate) const FILE_RECORD: u64 = 0;

/// Why the mailbox cannot be used.
#[derive(Debug, Error)]
pub enum MailboxError {
    /// The database fails.
    #[error("the mailbox of applications: {0}")]
    Database(#[from] rusqlite::Error),
    /// Its folder, or a payload's file, cannot be created.
    #[error("the mailbox of applications: {0}")]
    Folder(#[from] std::io::Error),
    /// The mailbox has the format of another version.
    #[error("the mailbox of applications has format {0}, which this version does not know")]
    Format(i64),
}

/// A bundle as it is stored.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The service that it is for.
    pub service: u64,
    /// Who sent it.
    pub source: String,
    /// Its creation timestamp, DTN time, ms.
    pub time_ms: u64,
    /// The timestamp's sequence number.
    pub sequence: u64,
    /// Its age when it came, ms.
    pub age_ms: u64,
    /// Its payload, if that is in memory.
    pub payload: Bytes,
    /// Its payload, if that is on disk.
    pub file: Option<Arc<PayloadFile>>,
}

/// A payload that is a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// Its bundle's number.
    pub number: u64,
    /// The number of the node that it counts for.
    pub node: u64,
    /// Its name in the folder of payloads.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

/// A database file; one process opens it at a time.
#[derive(Debug)]
pub struct Mailbox {
    connection: Connection,
    /// The clock at opening, ms, and the instant from which it runs on.
    opened: (u64, Instant),
    is_changing: bool,
}

impl Mailbox {
    /// Opens or creates the database at `now`.
    ///
    /// # Errors
    /// When the file is not a database of this format, or is in use.
    pub fn open(path: &Path, now: Instant) -> Result<Mailbox, MailboxError> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        // The process may have no other folder that it can write to.
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        match connection.pragma_query_value(None, "user_version", |row| row.get(0))? {
            0 => connection.execute_batch(&format!("BEGIN; {LAYOUT} {FILES} COMMIT;"))?,
            1 => connection.execute_batch(&format!("BEGIN; {FILES} COMMIT;"))?,
            FORMAT => {}
            other => return Err(MailboxError::Format(other)),
        }
        let saved: i64 = connection.query_row("SELECT now_ms FROM clock", [], |row| row.get(0))?;
        Ok(Mailbox {
            connection,
            opened: (saved.cast_unsigned(), now),
            is_changing: false,
        })
    }

    /// The clock that lifetimes are judged by, ms.
    pub fn clock_ms(&self, now: Instant) -> u64 {
        let (at, since) = self.opened;
        let passed = now.saturating_duration_since(since).as_millis();
        at.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    /// All bundles that wait, each with the number of the node that it counts for.
    ///
    /// # Errors
    /// When the database fails.
    pub fn items(&self) -> Result<Vec<(Item, u64)>, MailboxError> {
        let all = "SELECT number, service, length(payload), expires_ms, node FROM waiting \
                   ORDER BY number";
        let mut all = self.connection.prepare(all)?;
        let items = all.query_map([], |row| {
            let unsigned = |column| row.get(column).map(i64::cast_unsigned);
            let item = Item {
                number: unsigned(0)?,
                service: unsigned(1)?,
                bytes: unsigned(2)?,
                expires_ms: unsigned(3)?,
            };
            Ok((item, unsigned(4)?))
        })?;
        Ok(items.collect::<Result<_, _>>()?)
    }

    /// The payloads that are files.
    ///
    /// # Errors
    /// When the database fails.
    pub fn files(&self) -> Result<Vec<NamedFile>, MailboxError> {
        let all = "SELECT number, node, files.name, bytes FROM files JOIN waiting USING (number)";
        let mut all = self.connection.prepare(all)?;
        let files = all.query_map([], |row| {
            let unsigned = |column| row.get(column).map(i64::cast_unsigned);
            Ok(NamedFile {
                number: unsigned(0)?,
                node: unsigned(1)?,
                name: row.get(2)?,
                bytes: unsigned(3)?,
            })
        })?;
        Ok(files.collect::<Result<_, _>>()?)
    }

    /// Stores a bundle, with its payload's file if it has one; [`Mailbox::commit`] makes
    /// that durable. None if the bundle is there already.
    ///
    /// # Errors
    /// When the database fails.
    pub fn add(&mut self, now: Instant, bundle: &Delivery) -> Result<Option<Item>, MailboxError> {
        let source = bundle.source.to_string();
        let (time_ms, sequence) = (bundle.timestamp.dtntime(), bundle.timestamp.seqno());
        // Bundles without a source have no name by which a duplicate could be recognised.
        let named = !is_null(&bundle.source);
        let service = bundle.service;
        let name = named.then(|| format!("{source} {time_ms} {sequence} {service}"));
        let left_ms = u64::try_from(bundle.left.as_millis()).unwrap_or(u64::MAX);
        let most = i64::MAX.cast_unsigned();
        let expires_ms = self.clock_ms(now).saturating_add(left_ms).min(most);
        let age_ms = u64::try_from(bundle.age.as_millis()).unwrap_or(u64::MAX);
        let node = bundle.counted_node();
        let sql = "INSERT OR IGNORE INTO waiting (name, service, source, node, time_ms, \
                   sequence, age_ms, expires_ms, payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        self.begin()?;
        let added = self.connection.prepare_cached(sql)?.execute(params![
            name,
            service.cast_signed(),
            source,
            node.cast_signed(),
            time_ms.cast_signed(),
            sequence.cast_signed(),
            age_ms.cast_signed(),
            expires_ms.cast_signed(),
            &bundle.payload[..],
        ])?;
        let number = self.connection.last_insert_rowid().cast_unsigned();
        // A duplicate's file is not saved.
        if added > 0
            && let Some(file) = &bundle.file
        {
            let sql = "INSERT INTO files (number, name, bytes) VALUES (?1, ?2, ?3)";
            file.save(FILE_RECORD)?;
            let (name, bytes) = (file.name(), file.len().cast_signed());
            let mut files = self.connection.prepare_cached(sql)?;
            files.execute(params![number.cast_signed(), name, bytes])?;
        }
        Ok((added > 0).then_some(Item {
            number,
            service,
            bytes: bundle.payload.len() as u64,
            expires_ms,
        }))
    }

    /// A stored bundle.
    ///
    /// # Errors
    /// When the database fails.
    pub fn load(&self, number: u64) -> Result<Option<Stored>, MailboxError> {
        let sql = "SELECT service, source, time_ms, sequence, age_ms, payload FROM waiting \
                   WHERE number = ?1";
        let mut one = self.connection.prepare_cached(sql)?;
        let stored = one.query_row([number.cast_signed()], |row| {
            let unsigned = |column| row.get(column).map(i64::cast_unsigned);
            Ok(Stored {
                service: unsigned(0)?,
                source: row.get(1)?,
                time_ms: unsigned(2)?,
                sequence: unsigned(3)?,
                age_ms: unsigned(4)?,
                payload: row.get::<_, Vec<u8>>(5)?.into(),
                file: None,
            })
        });
        Ok(stored.optional()?)
    }

    /// Forgets a bundle; [`Mailbox::commit`] makes that durable. Returns the service, the
    /// node that it counts for and the payload's bytes, if the bundle was there.
    ///
    /// # Errors
    /// When the database fails.
    pub fn remove(&mut self, number: u64) -> Result<Option<(u64, u64, u64)>, MailboxError> {
        self.begin()?;
        let sql = "DELETE FROM files WHERE number = ?1";
        let mut file = self.connection.prepare_cached(sql)?;
        file.execute([number.cast_signed()])?;
        let sql = "DELETE FROM waiting WHERE number = ?1 RETURNING service, node, length(payload)";
        let mut one = self.connection.prepare_cached(sql)?;
        let removed = one.query_row([number.cast_signed()], |row| {
            let unsigned = |column| row.get(column).map(i64::cast_unsigned);
            Ok((unsigned(0)?, unsigned(1)?, unsigned(2)?))
        });
        Ok(removed.optional()?)
    }

    /// Makes all changes durable, and saves the clock with them.
    ///
    /// # Errors
    /// When the database fails; the changes may be lost.
    pub fn commit(&mut self, now: Instant) -> Result<(), MailboxError> {
        let clock_ms = self.clock_ms(now).cast_signed();
        self.begin()?;
        let sql = "UPDATE clock SET now_ms = ?1";
        self.connection.prepare_cached(sql)?.execute([clock_ms])?;
        self.is_changing = false;
        Ok(self.connection.execute_batch("COMMIT")?)
    }

    /// Undoes all changes that are not committed.
    pub fn roll_back(&mut self) {
        self.is_changing = false;
        // Fails if the database has rolled back by itself.
        let _ = self.connection.execute_batch("ROLLBACK");
    }

    fn begin(&mut self) -> Result<(), MailboxError> {
        if !self.is_changing {
            self.connection.execute_batch("BEGIN IMMEDIATE")?;
            self.is_changing = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use underpass_bundle::NeighbourId;
    use underpass_bundle::wire::{Eid, ipn};

    use super::*;
    use crate::service::tests::delivery;

    #[test]
    fn what_is_committed_survives_and_the_clock_does_not_run_while_it_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("applications.sqlite");
        let now = Instant::now();
        let mut mailbox = Mailbox::open(&path, now).unwrap();
        let later = now + Duration::from_secs(5);
        let bundle = delivery(ipn(10, 40), 1, b"hello");
        let item = mailbox.add(later, &bundle).unwrap().unwrap();
        // A duplicate, and two bundles without a name, one of them by a neighbour.
        assert_eq!(mailbox.add(later, &bundle).unwrap(), None);
        for from in [None, Some(NeighbourId(20))] {
            let nobody = Delivery {
                from,
                ..delivery(Eid::none(), 1, b"hello")
            };
            assert!(mailbox.add(later, &nobody).unwrap().is_some());
        }
        mailbox.commit(later).unwrap();
        let lost = delivery(ipn(10, 40), 2, b"lost");
        mailbox.add(later, &lost).unwrap();
        drop(mailbox);
        let reopened = later + Duration::from_secs(3600);
        let mut mailbox = Mailbox::open(&path, reopened).unwrap();
        assert_eq!(mailbox.clock_ms(reopened), 5_000);
        let items = mailbox.items().unwrap();
        let nodes: Vec<u64> = items.iter().map(|(_, node)| *node).collect();
        assert_eq!(nodes, [10, 0, 20]);
        assert_eq!(items[0].0, item);
        let stored = mailbox.load(item.number).unwrap().unwrap();
        assert_eq!(stored.source, "ipn:10.40");
        assert_eq!(&stored.payload[..], b"hello");
        assert_eq!(mailbox.remove(item.number).unwrap(), Some((9, 10, 5)));
        assert_eq!(mailbox.remove(item.number).unwrap(), None);
        mailbox.roll_back();
        assert!(mailbox.load(item.number).unwrap().is_some());
    }

    #[test]
    fn a_mailbox_of_the_first_format_is_taken_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("applications.sqlite");
        let first = Connection::open(&path).unwrap();
        first.execute_batch(LAYOUT).unwrap();
        first.pragma_update(None, "user_version", 1).unwrap();
        let row =
            "INSERT INTO waiting VALUES (5, 'name', 9, 'ipn:10.40', 10, 1, 2, 3, 9000, 'old')";
        first.execute(row, []).unwrap();
        drop(first);
        let mailbox = Mailbox::open(&path, Instant::now()).unwrap();
        assert_eq!(mailbox.items().unwrap().len(), 1);
        assert_eq!(mailbox.files().unwrap(), []);
    }

    #[test]
    fn a_file_of_another_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("applications.sqlite");
        let other = Connection::open(&path).unwrap();
        other.pragma_update(None, "user_version", 7).unwrap();
        drop(other);
        let opened = Mailbox::open(&path, Instant::now());
        assert!(matches!(opened, Err(MailboxError::Format(7))));
    }
}
