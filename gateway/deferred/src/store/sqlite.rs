//! The store as an SQLite database.
//!
//! With WAL and `synchronous = FULL` a commit is on stable storage when it
//! returns, at the cost of one sync of the log; pages carry no checksum of
//! SQLite's own, the log does.

use std::path::Path;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{Kind, ObjectKey, RecordKey, Side, Store, StoreError};
use crate::id::Id;
use crate::wire::Key;

/// The layout below, as `user_version`. A start that was interrupted while it made the tables is
/// completed by the next one.
const FORMAT: i64 = 1;
const LAYOUT: &str = "
    CREATE TABLE IF NOT EXISTS record (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        side INTEGER NOT NULL, peer INTEGER NOT NULL,
        id BLOB NOT NULL, attempt INTEGER NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (side, peer, id, attempt)
    );
    CREATE TABLE IF NOT EXISTS part (
        side INTEGER NOT NULL, peer INTEGER NOT NULL,
        id BLOB NOT NULL, attempt INTEGER NOT NULL,
        kind INTEGER NOT NULL, number INTEGER NOT NULL,
        data BLOB NOT NULL,
        UNIQUE (side, peer, id, attempt, kind, number)
    );
    PRAGMA user_version = 1;";
const OF_RECORD: &str = "side = ?1 AND peer = ?2 AND id = ?3 AND attempt = ?4";

/// A database file. One process opens it at a time.
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    bytes: u64,
    /// Whether a transaction is open.
    changed: bool,
}

impl SqliteStore {
    /// Opens or makes the database.
    ///
    /// # Errors
    /// When the file is no database of this format, or in use.
    pub fn open(path: &Path) -> Result<SqliteStore, StoreError> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        // It may have no other folder to write in.
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        match connection.pragma_query_value(None, "user_version", |row| row.get(0))? {
            0 => connection.execute_batch(LAYOUT)?,
            FORMAT => {}
            other => return Err(StoreError::Format(other)),
        }
        let mut store = SqliteStore {
            connection,
            bytes: 0,
            changed: false,
        };
        store.count()?;
        Ok(store)
    }

    fn count(&mut self) -> Result<(), StoreError> {
        let sum = "SELECT coalesce(sum(length(data)), 0) FROM part";
        let bytes: i64 = self.connection.query_row(sum, [], |row| row.get(0))?;
        self.bytes = bytes.unsigned_abs();
        Ok(())
    }

    fn change(&mut self, sql: &str, values: impl rusqlite::Params) -> Result<usize, StoreError> {
        if !self.changed {
            self.connection.execute_batch("BEGIN IMMEDIATE")?;
            self.changed = true;
        }
        Ok(self.connection.prepare_cached(sql)?.execute(values)?)
    }
}

/// What a record is found by. Node numbers are below 2⁶³ by RFC 9758's
/// allocators of 32 bits each in practice; as SQLite's integers are signed, they
/// are stored bit by bit.
fn of_record(record: &RecordKey) -> (u8, i64, [u8; 16], u32) {
    let RecordKey { side, peer, key } = record;
    (*side as u8, peer.cast_signed(), key.id.0, key.attempt)
}

/// What the parts of an object are found by.
fn of_object(object: &ObjectKey) -> (u8, i64, [u8; 16], u32, u8) {
    let (side, peer, id, attempt) = of_record(&object.record);
    (side, peer, id, attempt, object.kind as u8)
}

fn read_key(row: &Row<'_>, first: usize) -> rusqlite::Result<RecordKey> {
    let peer: i64 = row.get(first + 1)?;
    Ok(RecordKey {
        side: match row.get(first)? {
            1 => Side::Queue,
            2 => Side::Dispatch,
            other => return Err(rusqlite::Error::IntegralValueOutOfRange(first, other)),
        },
        peer: peer.cast_unsigned(),
        key: Key {
            id: Id(row.get(first + 2)?),
            attempt: row.get(first + 3)?,
        },
    })
}

impl Store for SqliteStore {
    fn records(&self, side: Side) -> Result<Vec<(RecordKey, String)>, StoreError> {
        let sql =
            "SELECT side, peer, id, attempt, body FROM record WHERE side = ?1 ORDER BY number";
        let mut query = self.connection.prepare_cached(sql)?;
        let rows = query.query_map([side as u8], |row| Ok((read_key(row, 0)?, row.get(4)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn put_record(&mut self, key: &RecordKey, record: &str) -> Result<(), StoreError> {
        let sql = "INSERT INTO record (side, peer, id, attempt, body) VALUES (?1, ?2, ?3, ?4, ?5)
            ON CONFLICT DO UPDATE SET body = excluded.body";
        let (side, peer, id, attempt) = of_record(key);
        let values = params![side, peer, id, attempt, record];
        self.change(sql, values)?;
        Ok(())
    }

    fn delete_record(&mut self, key: &RecordKey) -> Result<(), StoreError> {
        self.change(
            &format!("DELETE FROM record WHERE {OF_RECORD}"),
            of_record(key),
        )?;
        Ok(())
    }

    fn objects(&self) -> Result<Vec<ObjectKey>, StoreError> {
        let sql = "SELECT DISTINCT side, peer, id, attempt, kind FROM part";
        let mut query = self.connection.prepare_cached(sql)?;
        let rows = query.query_map([], |row| {
            let kind = match row.get(4)? {
                1 => Kind::Request,
                2 => Kind::Response,
                other => return Err(rusqlite::Error::IntegralValueOutOfRange(4, other)),
            };
            Ok(read_key(row, 0)?.object(kind))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn parts(&self, object: &ObjectKey) -> Result<Vec<u32>, StoreError> {
        let sql = format!("SELECT number FROM part WHERE {OF_RECORD} AND kind = ?5");
        let mut query = self.connection.prepare_cached(&sql)?;
        let rows = query.query_map(of_object(object), |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn part(&self, object: &ObjectKey, index: u32) -> Result<Option<Bytes>, StoreError> {
        let sql = format!("SELECT data FROM part WHERE {OF_RECORD} AND kind = ?5 AND number = ?6");
        let (side, peer, id, attempt, kind) = of_object(object);
        let values = params![side, peer, id, attempt, kind, index];
        let mut query = self.connection.prepare_cached(&sql)?;
        let data: Option<Vec<u8>> = query.query_row(values, |row| row.get(0)).optional()?;
        Ok(data.map(Bytes::from))
    }

    fn put_part(&mut self, object: &ObjectKey, index: u32, data: &[u8]) -> Result<(), StoreError> {
        let sql = "INSERT INTO part (side, peer, id, attempt, kind, number, data)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let (side, peer, id, attempt, kind) = of_object(object);
        let values = params![side, peer, id, attempt, kind, index, data];
        self.change(sql, values)?;
        self.bytes += data.len() as u64;
        Ok(())
    }

    fn delete_object(&mut self, object: &ObjectKey) -> Result<(), StoreError> {
        let values = of_object(object);
        let of_object = format!("FROM part WHERE {OF_RECORD} AND kind = ?5");
        let sum = format!("SELECT coalesce(sum(length(data)), 0) {of_object}");
        let mut query = self.connection.prepare_cached(&sum)?;
        let bytes: i64 = query.query_row(values, |row| row.get(0))?;
        drop(query);
        self.change(&format!("DELETE {of_object}"), values)?;
        self.bytes -= bytes.unsigned_abs();
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        if std::mem::take(&mut self.changed)
            && let Err(error) = self.connection.execute_batch("COMMIT")
        {
            self.changed = true;
            self.rollback()?;
            return Err(error.into());
        }
        Ok(())
    }

    fn rollback(&mut self) -> Result<(), StoreError> {
        // A failed statement may have ended the transaction by itself.
        if std::mem::take(&mut self.changed) && !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK")?;
        }
        self.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(number: u8) -> ObjectKey {
        RecordKey::own(Id([number; 16])).object(Kind::Request)
    }

    #[test]
    fn what_is_committed_stays_and_the_rest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deferred/requests.sqlite");
        let mut store = SqliteStore::open(&path).unwrap();
        store.put_record(&object(1).record, "one").unwrap();
        store.put_part(&object(1), 0, b"part").unwrap();
        store.commit().unwrap();
        store.put_record(&object(1).record, "changed").unwrap();
        store.put_part(&object(2), 7, b"lost").unwrap();
        assert_eq!(store.bytes(), 8);
        drop(store);
        let mut store = SqliteStore::open(&path).unwrap();
        assert_eq!(store.bytes(), 4);
        let records = store.records(Side::Queue).unwrap();
        assert_eq!(records, [(object(1).record, "one".to_owned())]);
        assert_eq!(store.objects().unwrap(), [object(1)]);
        assert_eq!(store.parts(&object(1)).unwrap(), [0]);
        assert_eq!(
            store.part(&object(1), 0).unwrap().as_deref(),
            Some(&b"part"[..])
        );
        store.delete_object(&object(1)).unwrap();
        assert_eq!(store.bytes(), 0);
        store.rollback().unwrap();
        assert_eq!(store.bytes(), 4);
        store.delete_record(&object(1).record).unwrap();
        store.commit().unwrap();
        assert!(store.records(Side::Queue).unwrap().is_empty());
    }

    #[test]
    fn a_database_of_which_only_a_part_was_made_is_completed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("requests.sqlite");
        let (first_table, _) = LAYOUT.split_once(';').unwrap();
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(first_table).unwrap();
        drop(connection);
        let mut store = SqliteStore::open(&path).unwrap();
        store.put_record(&object(1).record, "one").unwrap();
        store.put_part(&object(1), 0, b"part").unwrap();
        store.commit().unwrap();
        drop(store);
        assert_eq!(SqliteStore::open(&path).unwrap().bytes(), 4);
    }

    #[test]
    fn a_later_format_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("requests.sqlite");
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "user_version", 2).unwrap();
        drop(connection);
        let refused = SqliteStore::open(&path).unwrap_err();
        assert!(matches!(refused, StoreError::Format(2)));
    }
}
