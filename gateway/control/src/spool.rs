//! Reports on the disk while the control service is away: an SQLite database
//! and the thread that has it.
//!
//! All that waits when the thread looks is one transaction; with WAL and
//! `synchronous = FULL` it is on stable storage when that is committed.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, params};
use thiserror::Error;

use crate::queue::{Entry, Left};

/// The layout below, as `user_version`. A start that was interrupted while it made the table is
/// completed by the next one.
const FORMAT: i64 = 1;
const LAYOUT: &str = "
    CREATE TABLE IF NOT EXISTS report (
        id INTEGER PRIMARY KEY,
        node INTEGER NOT NULL,
        made_ms INTEGER NOT NULL,
        report TEXT NOT NULL
    );
    PRAGMA user_version = 1;";

/// The spool cannot be used.
#[derive(Debug, Error)]
pub enum SpoolError {
    /// The database says so.
    #[error("the database: {0}")]
    Database(#[from] rusqlite::Error),
    /// The folder, file or thread cannot be made.
    #[error(transparent)]
    System(#[from] std::io::Error),
    /// It was made by a later version of this program.
    #[error("it has format {0}, which is not understood")]
    Format(i64),
}

/// What the spool has done.
#[derive(Debug)]
pub enum Done {
    /// The entries to save are durable, or the reason why not.
    Saved(Result<(), SpoolError>),
    /// What was asked for, as far as it is there.
    Loaded(Result<Vec<Entry>, SpoolError>),
}

enum Order {
    Save(Vec<Arc<Entry>>),
    Load(Vec<u64>),
    Forget(Vec<u64>),
}

/// The spool, seen from outside its thread.
#[derive(Debug)]
pub struct Spool {
    orders: mpsc::Sender<Order>,
    thread: JoinHandle<()>,
}

impl Spool {
    /// Opens or makes the database; also the ids of what it holds, with node and
    /// bytes of each.
    /// `made_ms` of entries counts from `origin`. `done` is called on the
    /// spool's thread.
    ///
    /// # Errors
    /// When the file is no database of this format, or in use.
    pub fn open(
        path: &Path,
        origin: Instant,
        done: impl Fn(Done) + Send + 'static,
    ) -> Result<(Spool, Vec<Left>), SpoolError> {
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
            other => return Err(SpoolError::Format(other)),
        }
        let left = left(&connection)?;
        let (orders, taken) = mpsc::channel();
        let mut database = Database { connection, origin };
        let thread = std::thread::Builder::new()
            .name("control-spool".to_owned())
            .spawn(move || database.serve(&taken, done))?;
        Ok((Spool { orders, thread }, left))
    }

    /// Has entries made durable.
    pub fn save(&self, entries: Vec<Arc<Entry>>) {
        self.order(Order::Save(entries));
    }

    /// Fetches entries.
    pub fn load(&self, ids: Vec<u64>) {
        self.order(Order::Load(ids));
    }

    /// Forgets entries.
    pub fn forget(&self, ids: Vec<u64>) {
        self.order(Order::Forget(ids));
    }

    /// Waits until everything ordered is done.
    pub fn close(self) {
        drop(self.orders);
        let _ = self.thread.join();
    }

    fn order(&self, order: Order) {
        // The thread lives as long as this.
        let _ = self.orders.send(order);
    }
}

fn left(connection: &Connection) -> Result<Vec<Left>, SpoolError> {
    let sizes = "SELECT id, node, length(CAST(report AS BLOB)) FROM report";
    let mut statement = connection.prepare(sizes)?;
    let rows = statement.query_map([], |row| {
        let column = |place: usize| row.get(place).map(number);
        Ok((column(0)?, column(1)?, column(2)?))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn number(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

struct Database {
    connection: Connection,
    origin: Instant,
}

impl Database {
    /// Carries out orders until no more can come.
    fn serve(&mut self, orders: &mpsc::Receiver<Order>, done: impl Fn(Done)) {
        while let Ok(first) = orders.recv() {
            let mut answers = Vec::new();
            let mut written = Vec::new();
            for order in std::iter::once(first).chain(orders.try_iter()) {
                match order {
                    Order::Load(ids) => answers.push(self.load(&ids)),
                    other => written.push(other),
                }
            }
            let saves = written.iter().any(|order| matches!(order, Order::Save(_)));
            let result = self.write(&written);
            if let Err(error) = &result {
                tracing::error!(%error, "reports cannot be kept on the disk (control.spool_file)");
            }
            if saves {
                done(Done::Saved(result));
            }
            for answer in answers {
                done(Done::Loaded(answer));
            }
        }
    }

    fn write(&mut self, orders: &[Order]) -> Result<(), SpoolError> {
        let utc_ms = self.utc_origin_ms();
        let transaction = self.connection.transaction()?;
        for order in orders {
            match order {
                Order::Save(entries) => {
                    let insert = "INSERT OR REPLACE INTO report VALUES (?1, ?2, ?3, ?4)";
                    let mut insert = transaction.prepare_cached(insert)?;
                    for entry in entries {
                        let made_ms = utc_ms.saturating_add(entry.made_ms);
                        let (id, node) = (entry.id.cast_signed(), entry.node.cast_signed());
                        insert.execute(params![id, node, made_ms, &*entry.report])?;
                    }
                }
                Order::Forget(ids) => {
                    let mut delete =
                        transaction.prepare_cached("DELETE FROM report WHERE id = ?1")?;
                    for id in ids {
                        delete.execute([id.cast_signed()])?;
                    }
                }
                Order::Load(_) => {}
            }
        }
        Ok(transaction.commit()?)
    }

    fn load(&self, ids: &[u64]) -> Result<Vec<Entry>, SpoolError> {
        let utc_ms = self.utc_origin_ms();
        let select = "SELECT node, made_ms, report FROM report WHERE id = ?1";
        let mut select = self.connection.prepare_cached(select)?;
        let mut entries = Vec::with_capacity(ids.len());
        for id in ids {
            let mut rows = select.query([id.cast_signed()])?;
            if let Some(row) = rows.next()? {
                let made_ms: i64 = row.get(1)?;
                entries.push(Entry {
                    id: *id,
                    node: number(row.get(0)?),
                    made_ms: made_ms.saturating_sub(utc_ms),
                    report: row.get::<_, String>(2)?.into(),
                });
            }
        }
        Ok(entries)
    }

    /// The origin by this machine's clock, ms since the Unix epoch: the only clock that an earlier
    /// run shares.
    fn utc_origin_ms(&self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_millis());
        let origin = now.saturating_sub(self.origin.elapsed().as_millis());
        i64::try_from(origin).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use super::*;

    fn open(path: &Path, origin: Instant) -> (Spool, Vec<Left>, Receiver<Done>) {
        let (done, seen) = mpsc::channel();
        let (spool, left) = Spool::open(path, origin, move |what| {
            let _ = done.send(what);
        })
        .unwrap();
        (spool, left, seen)
    }

    fn entry(id: u64, made_ms: i64) -> Arc<Entry> {
        Arc::new(Entry {
            id,
            node: 10,
            made_ms,
            report: format!(r#"{{"name":"Tunnel {id} ä"}}"#).into(),
        })
    }

    #[test]
    fn what_is_saved_is_there_in_the_next_run_with_its_age() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/control.sqlite");
        let start = Instant::now();
        let (spool, left, seen) = open(&path, start);
        assert_eq!(left, []);
        spool.save(vec![entry(1, 0), entry(2, 50), entry(3, 60)]);
        assert!(matches!(seen.recv().unwrap(), Done::Saved(Ok(()))));
        spool.forget(vec![1]);
        spool.close();
        let (spool, left, seen) = open(&path, start);
        assert_eq!(left, [(2, 10, 22), (3, 10, 22)]);
        spool.load(vec![2, 9]);
        let Done::Loaded(Ok(entries)) = seen.recv().unwrap() else {
            panic!("not loaded");
        };
        assert_eq!((entries.len(), entries[0].id), (1, 2));
        assert_eq!(entries[0].report, entry(2, 0).report);
        assert!(entries[0].made_ms.abs_diff(50) < 50, "{entries:?}");
        spool.close();
    }

    #[test]
    fn a_database_without_its_version_yet_is_completed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sqlite");
        let (table, _) = LAYOUT.split_once(';').unwrap();
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(table).unwrap();
        drop(connection);
        let (spool, left, seen) = open(&path, Instant::now());
        assert_eq!(left, []);
        spool.save(vec![entry(1, 0)]);
        assert!(matches!(seen.recv().unwrap(), Done::Saved(Ok(()))));
        spool.close();
    }

    #[test]
    fn a_file_of_another_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sqlite");
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "user_version", 7).unwrap();
        drop(connection);
        let opened = Spool::open(&path, Instant::now(), |_| {});
        assert!(matches!(opened, Err(SpoolError::Format(7))));
        std::fs::write(&path, "no database at all, but long enough to look").unwrap();
        let opened = Spool::open(&path, Instant::now(), |_| {});
        assert!(matches!(opened, Err(SpoolError::Database(_))));
    }
}
