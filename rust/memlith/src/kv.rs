//! Key-value stores: ordered maps with serialisable transactions. The manual is `docs/kv.md`.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::ptr;
use std::time::Duration;

use memlith_sys as sys;

use crate::error::{check, found, still_open, Category, Result};
use crate::store::{c_string, Store};

/// When a commit is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// On return.
    #[default]
    Sync,
    /// Within the window of the kv store, or with the next sync commit. A crash loses the newest of them.
    Weak,
}

/// A map of a kv store: its number in this kv store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Map(sys::memlith_kv_map);

/// A kv store, open in this process. Threads share it.
pub struct Kv {
    raw: *mut sys::memlith_kv,
    _store: Store, // behind the handle, which closes first
}

// SAFETY: any number of threads use a kv store; opening and closing take it alone, as `open` and `drop` do.
unsafe impl Send for Kv {}
unsafe impl Sync for Kv {}

impl Kv {
    /// Opens the kv store in region `name`, and makes it if it does not exist and the store may be written.
    pub fn open(store: &Store, name: &str) -> Result<Self> {
        match Self::open_with(store, name, sys::MEMLITH_REGION_CREATE) {
            Err(error) if error.category() == Category::ReadOnly => Self::open_existing(store, name),
            opened => opened,
        }
    }

    /// Opens one that exists.
    pub fn open_existing(store: &Store, name: &str) -> Result<Self> {
        Self::open_with(store, name, 0)
    }

    fn open_with(store: &Store, name: &str, flags: u32) -> Result<Self> {
        let name = c_string(name)?;
        // SAFETY: a struct of numbers, whose zeros are the defaults.
        let mut options: sys::memlith_kv_options = unsafe { std::mem::zeroed() };
        options.struct_size = std::mem::size_of_val(&options) as u64;
        options.flags = flags;
        let mut raw = ptr::null_mut();
        // SAFETY: the arguments live during the call.
        check(unsafe { sys::memlith_kv_open(store.raw(), name.as_ptr(), &options, &mut raw) })?;
        Ok(Self { raw, _store: store.clone() })
    }

    /// The map of that name, which is made, durably, if it does not exist.
    pub fn map(&self, name: &str) -> Result<Map> {
        let (name, mut number) = (c_string(name)?, 0);
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_kv_map_open(self.raw, name.as_ptr(), sys::MEMLITH_REGION_CREATE, &mut number) })?;
        Ok(Map(number))
    }

    /// The map of that name, if there is one.
    pub fn find_map(&self, name: &str) -> Result<Option<Map>> {
        let (name, mut number) = (c_string(name)?, 0);
        // SAFETY: the handle is open.
        let there = found(unsafe { sys::memlith_kv_map_open(self.raw, name.as_ptr(), 0, &mut number) })?;
        Ok(there.then_some(Map(number)))
    }

    /// Removes a map with its records, durably. False: there was none.
    pub fn remove_map(&self, name: &str) -> Result<bool> {
        let name = c_string(name)?;
        // SAFETY: the handle is open.
        found(unsafe { sys::memlith_kv_map_remove(self.raw, name.as_ptr()) })
    }

    /// The names of the maps, in order.
    pub fn maps(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        loop {
            let mut name = [0u8; sys::MEMLITH_KV_NAME_BYTES_MAX as usize + 1];
            // SAFETY: the buffer is as long as said.
            let code =
                unsafe { sys::memlith_kv_map_at(self.raw, names.len() as u64, name.as_mut_ptr().cast(), name.len()) };
            if !found(code)? {
                return Ok(names);
            }
            let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
            names.push(String::from_utf8_lossy(&name[..end]).into_owned());
        }
    }

    /// Begins a transaction that writes. A call that meets a lock of another one fails with [`Category::Conflict`], and
    /// the transaction has ended then: [`Kv::transact`] begins it again.
    pub fn begin(&self) -> Result<Transaction<'_>> {
        let mut raw = ptr::null_mut();
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_kv_begin(self.raw, 0, &mut raw) })?;
        Ok(Transaction { raw, kv: PhantomData })
    }

    /// A snapshot, which takes no locks and meets no conflict.
    pub fn read(&self) -> Result<Snapshot<'_>> {
        let mut raw = ptr::null_mut();
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_kv_begin(self.raw, sys::MEMLITH_KV_READ_ONLY, &mut raw) })?;
        Ok(Snapshot { raw, kv: PhantomData })
    }

    /// Runs `work` in a transaction, and commits it durably. After a conflict `work` runs again, in a new transaction.
    /// If `work` fails, nothing has happened.
    pub fn transact<T>(&self, work: impl FnMut(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        self.transact_with(Durability::Sync, work)
    }

    pub fn transact_with<T>(
        &self,
        durability: Durability,
        mut work: impl FnMut(&mut Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut pause = Duration::from_micros(10);
        loop {
            let mut txn = self.begin()?;
            let done = work(&mut txn).and_then(|value| txn.commit(durability).map(|_| value));
            match done {
                Err(error) if error.category() == Category::Conflict => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(10));
                }
                done => return done,
            }
        }
    }

    /// Makes every commit that has returned durable.
    pub fn persist(&self) -> Result<()> {
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_kv_persist(self.raw) })
    }

    /// Returns when the commit of this number is durable.
    pub fn wait(&self, ticket: u64) -> Result<()> {
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_kv_wait(self.raw, ticket) })
    }

    /// Every commit up to this number is durable.
    #[must_use]
    pub fn durable(&self) -> u64 {
        // SAFETY: the handle is open.
        unsafe { sys::memlith_kv_durable(self.raw) }
    }

    /// Checks every page. Fails with [`Category::Corrupt`] and the page's number.
    pub fn verify(&self) -> Result<()> {
        // SAFETY: the handle is open; the report may be null.
        check(unsafe { sys::memlith_kv_verify(self.raw, ptr::null_mut()) })
    }

    /// Makes weak commits durable, closes the kv store, and says whether that worked.
    pub fn close(mut self) -> Result<()> {
        // SAFETY: no transaction borrows it. Where it stays open (no room for weak commits), drop() tries once more.
        let code = unsafe { sys::memlith_kv_close(self.raw) };
        if !still_open(code) {
            self.raw = ptr::null_mut();
        }
        check(code)
    }
}

impl Drop for Kv {
    fn drop(&mut self) {
        // SAFETY: no transaction borrows it; null is ignored.
        unsafe { sys::memlith_kv_close(self.raw) };
    }
}

fn get(txn: *mut sys::memlith_kv_txn, map: Map, key: &[u8]) -> Result<Option<sys::memlith_bytes>> {
    let mut value = sys::memlith_bytes { data: ptr::null(), size: 0 };
    // SAFETY: the transaction is open or has ended, which the call tells; the key lives during the call.
    let code = unsafe { sys::memlith_kv_get(txn, map.0, key.as_ptr().cast(), key.len() as u64, &mut value) };
    Ok(found(code)?.then_some(value))
}

/// # Safety
/// The bytes live and do not change as long as 'a.
unsafe fn slice<'a>(bytes: sys::memlith_bytes) -> &'a [u8] {
    if bytes.size == 0 {
        return &[];
    }
    std::slice::from_raw_parts(bytes.data.cast(), bytes.size as usize)
}

/// A transaction that writes. Dropping it aborts it.
///
/// Memory that a call returned is valid until the transaction ends, and a conflict ends it: so each call that can meet
/// one takes the transaction mutably.
pub struct Transaction<'kv> {
    raw: *mut sys::memlith_kv_txn,
    kv: PhantomData<&'kv Kv>,
}

impl<'kv> Transaction<'kv> {
    pub(crate) fn raw(&self) -> *mut sys::memlith_kv_txn {
        self.raw
    }

    pub(crate) fn into_raw(mut self) -> *mut sys::memlith_kv_txn {
        std::mem::replace(&mut self.raw, ptr::null_mut())
    }

    /// From now on a call that meets a lock waits so long for the other transaction to end, before it is a conflict.
    pub fn set_wait(&mut self, most: Duration) -> Result<()> {
        let ms = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_kv_txn_set_wait(self.raw, ms) })
    }

    /// The value of a record.
    pub fn get(&mut self, map: Map, key: &[u8]) -> Result<Option<&[u8]>> {
        // SAFETY: the bytes are constant until the transaction ends, and no call can end it while they are borrowed.
        Ok(get(self.raw, map, key)?.map(|bytes| unsafe { slice(bytes) }))
    }

    /// Writes a record, a new one or over the old one.
    pub fn put(&mut self, map: Map, key: &[u8], value: &[u8]) -> Result<()> {
        // SAFETY: the arguments live during the call, which copies them.
        check(unsafe {
            let (key_bytes, value_bytes) = (key.len() as u64, value.len() as u64);
            sys::memlith_kv_put(self.raw, map.0, key.as_ptr().cast(), key_bytes, value.as_ptr().cast(), value_bytes)
        })
    }

    /// Removes a record. False: there was none.
    pub fn remove(&mut self, map: Map, key: &[u8]) -> Result<bool> {
        // SAFETY: the key lives during the call.
        found(unsafe { sys::memlith_kv_remove(self.raw, map.0, key.as_ptr().cast(), key.len() as u64) })
    }

    /// The records with keys in the range, in order; their gaps are locked, too.
    pub fn range<'t, K: AsRef<[u8]> + 't>(&'t mut self, map: Map, keys: impl RangeBounds<K>) -> Result<Records<'t>> {
        Records::new(self.raw, map, &keys)
    }

    /// Commits: everything the transaction wrote takes effect, or nothing. Returns the number of the commit.
    pub fn commit(self, durability: Durability) -> Result<u64> {
        let mode = match durability {
            Durability::Sync => sys::MEMLITH_COMMIT_SYNC,
            Durability::Weak => sys::MEMLITH_COMMIT_WEAK,
        };
        let mut ticket = 0;
        // SAFETY: the handle is open; drop() frees it.
        check(unsafe { sys::memlith_kv_commit(self.raw, mode, &mut ticket) })?;
        Ok(ticket)
    }

    /// Ends the transaction without any effect.
    pub fn abort(self) {}
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // SAFETY: aborts what has not ended; null is ignored.
        unsafe { sys::memlith_kv_txn_free(self.raw) };
    }
}

/// The kv store as of one commit.
pub struct Snapshot<'kv> {
    raw: *mut sys::memlith_kv_txn,
    kv: PhantomData<&'kv Kv>,
}

impl Snapshot<'_> {
    /// The value of a record.
    pub fn get(&self, map: Map, key: &[u8]) -> Result<Option<&[u8]>> {
        // SAFETY: a transaction that only reads meets no conflict: the bytes are constant until it is dropped.
        Ok(get(self.raw, map, key)?.map(|bytes| unsafe { slice(bytes) }))
    }

    /// The records with keys in the range, in order.
    pub fn range<'t, K: AsRef<[u8]> + 't>(&'t self, map: Map, keys: impl RangeBounds<K>) -> Result<Records<'t>> {
        Records::new(self.raw, map, &keys)
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        // SAFETY: its records do not live any more.
        unsafe { sys::memlith_kv_txn_free(self.raw) };
    }
}

/// Records of a map, in the order of the keys, or back from the end. Each is a copy.
pub struct Records<'t> {
    front: *mut sys::memlith_kv_cursor,
    back: *mut sys::memlith_kv_cursor,
    begin: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
    started: (bool, bool),
    last: (Option<Vec<u8>>, Option<Vec<u8>>), // the newest key from either side: the two meet there
    ended: bool,
    txn: PhantomData<&'t ()>,
}

/// Key and value.
pub type Record = (Vec<u8>, Vec<u8>);

impl Records<'_> {
    fn new<K: AsRef<[u8]>>(txn: *mut sys::memlith_kv_txn, map: Map, keys: &impl RangeBounds<K>) -> Result<Self> {
        let owned = |bound: Bound<&K>| match bound {
            Bound::Included(key) => Bound::Included(key.as_ref().to_vec()),
            Bound::Excluded(key) => Bound::Excluded(key.as_ref().to_vec()),
            Bound::Unbounded => Bound::Unbounded,
        };
        let mut records = Self {
            front: ptr::null_mut(),
            back: ptr::null_mut(),
            begin: owned(keys.start_bound()),
            end: owned(keys.end_bound()),
            started: (false, false),
            last: (None, None),
            ended: false,
            txn: PhantomData,
        };
        // SAFETY: the transaction is open and outlives the cursors, which drop() closes.
        check(unsafe { sys::memlith_kv_cursor_open(txn, map.0, &mut records.front) })?;
        check(unsafe { sys::memlith_kv_cursor_open(txn, map.0, &mut records.back) })?;
        Ok(records)
    }

    fn current(cursor: *mut sys::memlith_kv_cursor) -> Result<Record> {
        let mut bytes = [sys::memlith_bytes { data: ptr::null(), size: 0 }; 2];
        let (key, value) = bytes.split_at_mut(1);
        // SAFETY: the cursor is open; the bytes are copied before another call can end the transaction.
        check(unsafe { sys::memlith_kv_cursor_current(cursor, &mut key[0], &mut value[0]) })?;
        Ok(unsafe { (slice(key[0]).to_vec(), slice(value[0]).to_vec()) })
    }

    fn seek(cursor: *mut sys::memlith_kv_cursor, key: &[u8]) -> Result<bool> {
        if key.is_empty() {
            // SAFETY: the cursor is open. Every key is longer than none.
            return found(unsafe { sys::memlith_kv_cursor_first(cursor) });
        }
        // SAFETY: the cursor is open.
        found(unsafe { sys::memlith_kv_cursor_seek(cursor, key.as_ptr().cast(), key.len() as u64) })
    }

    /// Puts the front cursor on the next record, whatever its key.
    fn step_front(&mut self) -> Result<bool> {
        if std::mem::replace(&mut self.started.0, true) {
            // SAFETY: the cursor is open.
            return found(unsafe { sys::memlith_kv_cursor_next(self.front) });
        }
        match &self.begin {
            Bound::Unbounded => Self::seek(self.front, &[]),
            Bound::Included(key) => Self::seek(self.front, key),
            Bound::Excluded(key) => {
                let there = Self::seek(self.front, key)?;
                if there && Self::current(self.front)?.0 == *key {
                    // SAFETY: the cursor is open.
                    return found(unsafe { sys::memlith_kv_cursor_next(self.front) });
                }
                Ok(there)
            }
        }
    }

    /// Puts the back cursor on the record before, whatever its key.
    fn step_back(&mut self) -> Result<bool> {
        if std::mem::replace(&mut self.started.1, true) {
            // SAFETY: the cursor is open.
            return found(unsafe { sys::memlith_kv_cursor_prev(self.back) });
        }
        let (key, inclusive) = match &self.end {
            // SAFETY: the cursor is open.
            Bound::Unbounded => return found(unsafe { sys::memlith_kv_cursor_last(self.back) }),
            Bound::Included(key) => (key, true),
            Bound::Excluded(key) => (key, false),
        };
        if Self::seek(self.back, key)? && inclusive && Self::current(self.back)?.0 == *key {
            return Ok(true);
        }
        // Behind the last record, prev leads to the last one.
        // SAFETY: the cursor is open.
        found(unsafe { sys::memlith_kv_cursor_prev(self.back) })
    }

    fn within(&self, key: &[u8]) -> bool {
        let after = match &self.begin {
            Bound::Unbounded => true,
            Bound::Included(begin) => key >= begin.as_slice(),
            Bound::Excluded(begin) => key > begin.as_slice(),
        };
        let before = match &self.end {
            Bound::Unbounded => true,
            Bound::Included(end) => key <= end.as_slice(),
            Bound::Excluded(end) => key < end.as_slice(),
        };
        after && before
    }

    fn take(&mut self, stepped: Result<bool>, front: bool) -> Option<Result<Record>> {
        let cursor = if front { self.front } else { self.back };
        let record = match stepped.and_then(|there| if there { Self::current(cursor).map(Some) } else { Ok(None) }) {
            Ok(Some(record)) => record,
            Ok(None) => {
                self.ended = true;
                return None;
            }
            Err(error) => {
                self.ended = true;
                return Some(Err(error));
            }
        };
        let met = match (front, &self.last) {
            (true, (_, Some(other))) => record.0 >= *other,
            (false, (Some(other), _)) => record.0 <= *other,
            _ => false,
        };
        if met || !self.within(&record.0) {
            self.ended = true;
            return None;
        }
        if front {
            self.last.0 = Some(record.0.clone());
        } else {
            self.last.1 = Some(record.0.clone());
        }
        Some(Ok(record))
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let stepped = self.step_front();
        self.take(stepped, true)
    }
}

impl DoubleEndedIterator for Records<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let stepped = self.step_back();
        self.take(stepped, false)
    }
}

impl Drop for Records<'_> {
    fn drop(&mut self) {
        // SAFETY: the transaction, which owns the cursors, is borrowed.
        unsafe {
            sys::memlith_kv_cursor_close(self.front);
            sys::memlith_kv_cursor_close(self.back);
        }
    }
}

impl From<Map> for u32 {
    fn from(map: Map) -> u32 {
        map.0
    }
}
