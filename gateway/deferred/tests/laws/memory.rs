//! A store in memory that forgets what was not committed.

use std::collections::BTreeMap;

use bytes::Bytes;
use underpass_deferred::store::{ObjectKey, RecordKey, Side, Store, StoreError};

#[derive(Clone, Default)]
struct Content {
    next: u64,
    records: BTreeMap<RecordKey, (u64, String)>,
    parts: BTreeMap<(ObjectKey, u32), Bytes>,
}

/// The present contents, and the contents after a crash.
#[derive(Clone, Default)]
pub struct MemoryStore {
    now: Content,
    committed: Content,
}

impl Store for MemoryStore {
    fn records(&self, side: Side) -> Result<Vec<(RecordKey, String)>, StoreError> {
        let records = self.now.records.iter();
        let mut of_side: Vec<_> = records.filter(|(key, _)| key.side == side).collect();
        of_side.sort_by_key(|(_, (number, _))| *number);
        let named = of_side.into_iter();
        Ok(named.map(|(key, (_, text))| (*key, text.clone())).collect())
    }

    fn put_record(&mut self, key: &RecordKey, record: &str) -> Result<(), StoreError> {
        self.now.next += 1;
        let fresh = (self.now.next, String::new());
        let place = self.now.records.entry(*key).or_insert(fresh);
        record.clone_into(&mut place.1);
        Ok(())
    }

    fn delete_record(&mut self, key: &RecordKey) -> Result<(), StoreError> {
        self.now.records.remove(key);
        Ok(())
    }

    fn objects(&self) -> Result<Vec<ObjectKey>, StoreError> {
        let mut keys: Vec<ObjectKey> = self.now.parts.keys().map(|(key, _)| *key).collect();
        keys.dedup();
        Ok(keys)
    }

    fn parts(&self, object: &ObjectKey) -> Result<Vec<u32>, StoreError> {
        let of_object = self.now.parts.keys().filter(|(key, _)| key == object);
        Ok(of_object.map(|(_, index)| *index).collect())
    }

    fn part(&self, object: &ObjectKey, index: u32) -> Result<Option<Bytes>, StoreError> {
        Ok(self.now.parts.get(&(*object, index)).cloned())
    }

    fn put_part(&mut self, object: &ObjectKey, index: u32, data: &[u8]) -> Result<(), StoreError> {
        let data = Bytes::copy_from_slice(data);
        let before = self.now.parts.insert((*object, index), data);
        assert!(before.is_none(), "a part is written once");
        Ok(())
    }

    fn delete_object(&mut self, object: &ObjectKey) -> Result<(), StoreError> {
        self.now.parts.retain(|(key, _), _| key != object);
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.now.parts.values().map(|part| part.len() as u64).sum()
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        self.committed = self.now.clone();
        Ok(())
    }

    fn rollback(&mut self) -> Result<(), StoreError> {
        self.now = self.committed.clone();
        Ok(())
    }
}
