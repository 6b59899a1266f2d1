//! Application logs: operations that are on the disk before a server answers. The manual is `docs/applog.md`.

use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use memlith_sys as sys;

use crate::error::{check, found, still_open, Error, Result};
use crate::kv::slice;
use crate::store::{c_string, milliseconds, sealed::InStore, Store, View};

/// The behaviour of an append that finds no room, because entries are not consumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It waits until entries are consumed.
    #[default]
    Block,
    /// It fails with [`crate::Category::Full`].
    Fail,
    /// The log grows, up to its `max_size`.
    Grow,
}

/// How to open a log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Makes the log if it does not exist.
    pub create: bool,
    pub when_full: WhenFull,
    /// Bytes of a new log; 0: 64 MiB.
    pub size: u64,
    /// The limit of a new log that may grow; 0: the size, or with [`WhenFull::Grow`] 1 TiB.
    pub max_size: u64,
}

/// How much a log has, and numbers of entries; 0: there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Bytes for entries that are not consumed, with 24 bytes and the rounding of each.
    pub size: u64,
    /// Free bytes of `size`.
    pub room: u64,
    /// The newest entry that was appended.
    pub newest: u64,
    /// The newest durable one.
    pub durable: u64,
    /// The newest that was read.
    pub read: u64,
    /// The newest that was consumed.
    pub consumed: u64,
}

/// An application log, open in this process. Any number of threads append, write and get; one at a time reads, or
/// truncates.
pub struct AppLog {
    raw: *mut sys::memlith_applog,
    has_reader: Mutex<bool>,
    store: Store,
}

// SAFETY: any number of threads append, write, get and wait; `reader` hands out one reader at a time, and what cannot
// be beside one holds the lock of `has_reader`.
unsafe impl Send for AppLog {}
unsafe impl Sync for AppLog {}

impl AppLog {
    pub fn open(store: &Store, name: &str, options: Options) -> Result<Self> {
        let name = c_string(name)?;
        let plain = sys::memlith_applog_options {
            struct_size: std::mem::size_of::<sys::memlith_applog_options>() as u64,
            flags: if options.create { sys::MEMLITH_CREATE } else { 0 },
            when_full: match options.when_full {
                WhenFull::Block => sys::MEMLITH_APPLOG_BLOCK,
                WhenFull::Fail => sys::MEMLITH_APPLOG_FAIL,
                WhenFull::Grow => sys::MEMLITH_APPLOG_GROW,
            },
            size: options.size,
            max_size: options.max_size,
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the arguments live during the call.
        store.opening(|| unsafe { sys::memlith_applog_open(store.raw(), name.as_ptr(), &plain, &mut raw) })?;
        Ok(Self { raw, has_reader: Mutex::new(false), store: store.clone() })
    }

    pub(crate) fn raw(&self) -> *mut sys::memlith_applog {
        self.raw
    }

    /// Copies an entry into the log in memory, and returns its number. [`AppLog::write`] makes it durable.
    pub fn append(&self, entry: &[u8]) -> Result<u64> {
        self.append_all(&[entry])
    }

    /// Entries that are all there after a crash or none. Returns the number of the last of them.
    pub fn append_all(&self, entries: &[&[u8]]) -> Result<u64> {
        let _view = self.store.same_view();
        let bytes: Vec<_> = entries
            .iter()
            .map(|entry| sys::memlith_bytes { data: entry.as_ptr().cast(), size: entry.len() as u64 })
            .collect();
        let mut number = 0;
        // SAFETY: the entries live during the call, which copies them.
        check(unsafe { sys::memlith_applog_append(self.raw, bytes.as_ptr(), bytes.len() as u64, &mut number) })?;
        Ok(number)
    }

    /// Makes durable what was appended before the call. Threads share flushes.
    pub fn write(&self) -> Result<()> {
        let _view = self.store.same_view();
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_applog_write(self.raw, sys::MEMLITH_COMMIT_SYNC, ptr::null_mut()) })
    }

    /// The same, but returns when it is on its way. [`Store::wait`] waits for the returned ticket.
    pub fn write_weak(&self) -> Result<u64> {
        let _view = self.store.same_view();
        let mut ticket = 0;
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_applog_write(self.raw, sys::MEMLITH_COMMIT_WEAK, &mut ticket) })?;
        Ok(ticket)
    }

    /// The number of the newest durable entry; 0: none.
    #[must_use]
    pub fn durable(&self) -> u64 {
        let _view = self.store.same_view();
        // SAFETY: the handle is open.
        unsafe { sys::memlith_applog_durable(self.raw) }
    }

    /// The durable entry of that number, read or not; none: there is no such entry, or it was consumed or truncated.
    pub fn get(&self, number: u64) -> Result<Option<Vec<u8>>> {
        let mut content = Vec::with_capacity(256);
        Ok(self.get_into(number, &mut content)?.then_some(content))
    }

    /// The same into a buffer, whose memory is used again. False: there is no such entry, and the buffer is empty.
    pub fn get_into(&self, number: u64, content: &mut Vec<u8>) -> Result<bool> {
        let _view = self.store.view()?;
        loop {
            content.clear();
            let room = content.capacity();
            let mut size = 0;
            let buffer = content.as_mut_ptr().cast();
            // SAFETY: the handle is open; the buffer has so much room.
            if !found(unsafe { sys::memlith_applog_get(self.raw, number, buffer, room as u64, &mut size) })? {
                return Ok(false);
            }
            if size <= room as u64 {
                // SAFETY: the call has filled so much.
                unsafe { content.set_len(size as usize) };
                return Ok(true);
            }
            content.reserve_exact(size as usize);
        }
    }

    /// Drops every entry behind entry `last`; the next one that is appended is number `last + 1`. This,
    /// [`AppLog::truncate_before`] and [`AppLog::restart`] take effect at once, and are durable at the latest with the
    /// next write. They fail while the log has a reader. No transaction in which the log takes part is committed beside
    /// them.
    pub fn truncate_after(&self, last: u64) -> Result<()> {
        let _alone = self.without_reader()?;
        // SAFETY: the handle is open, and there is no reader.
        check(unsafe { sys::memlith_applog_truncate_after(self.raw, last) })
    }

    /// Drops every entry before entry `first`, read or not.
    pub fn truncate_before(&self, first: u64) -> Result<()> {
        let _alone = self.without_reader()?;
        // SAFETY: the handle is open, and there is no reader.
        check(unsafe { sys::memlith_applog_truncate_before(self.raw, first) })
    }

    /// Drops all entries; the next one that is appended is number `next`.
    pub fn restart(&self, next: u64) -> Result<()> {
        let _alone = self.without_reader()?;
        // SAFETY: the handle is open, and there is no reader.
        check(unsafe { sys::memlith_applog_restart(self.raw, next) })
    }

    /// How much the log has, and the numbers of its entries.
    pub fn info(&self) -> Result<Info> {
        let _view = self.store.view()?;
        let mut info = sized!(sys::memlith_applog_info);
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_applog_get_info(self.raw, &mut info) })?;
        let sys::memlith_applog_info { size, room, newest, durable, read, consumed, .. } = info;
        Ok(Info { size, room, newest, durable, read, consumed })
    }

    fn without_reader(&self) -> Result<(View<'_>, MutexGuard<'_, bool>)> {
        let has_reader = self.has_reader.lock().unwrap_or_else(PoisonError::into_inner);
        if *has_reader {
            return Err(Error::invalid("the log has a reader; drop it first"));
        }
        Ok((self.store.same_view(), has_reader))
    }

    /// The reader, which begins with the first entry that is not consumed. Fails while there is another one.
    pub fn reader(&self) -> Result<Reader<'_>> {
        let (_view, mut has_reader) = self.without_reader()?;
        // SAFETY: the handle is open, and there is no reader.
        check(unsafe { sys::memlith_applog_rewind(self.raw) })?;
        *has_reader = true;
        Ok(Reader { log: self, content: Vec::new() })
    }

    /// Makes durable what was appended, closes the log, and says whether that worked.
    pub fn close(mut self) -> Result<()> {
        // SAFETY: nothing borrows it. Where it stays open (no room for entries), drop() tries once more.
        let code = {
            let _view = self.store.same_view();
            unsafe { sys::memlith_applog_close(self.raw) }
        };
        if !still_open(code) {
            self.raw = ptr::null_mut();
        }
        check(code)
    }
}

impl InStore for AppLog {
    fn store(&self) -> Option<&Store> {
        Some(&self.store)
    }
}

impl Drop for AppLog {
    fn drop(&mut self) {
        let _view = self.store.same_view();
        // SAFETY: nothing borrows it; null is ignored.
        unsafe { sys::memlith_applog_close(self.raw) };
    }
}

/// An entry: its number, and its content until the next one is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'r> {
    pub number: u64,
    pub content: &'r [u8],
}

/// The one reader of a log.
pub struct Reader<'a> {
    log: &'a AppLog,
    content: Vec<u8>, // of the newest entry, where the view of the store moves by itself
}

/// The reader of a log whose view moves by itself looks so often for an entry.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl Reader<'_> {
    pub(crate) fn raw(&self) -> *mut sys::memlith_applog {
        self.log.raw
    }

    /// The next durable entry. If there is none, waits so long for one.
    pub fn read(&mut self, wait: Duration) -> Result<Option<Entry<'_>>> {
        if self.log.store.follows_newest() {
            return self.read_newest(wait);
        }
        Ok(self.next(milliseconds(wait))?.map(|entry| {
            // SAFETY: valid until the next read, which takes the reader mutably.
            Entry { number: entry.number, content: unsafe { slice(entry.content) } }
        }))
    }

    /// Moves on before each look, and copies the entry, because another thread may move on behind it.
    fn read_newest(&mut self, wait: Duration) -> Result<Option<Entry<'_>>> {
        let end = Instant::now().checked_add(wait);
        loop {
            let view = self.log.store.view()?;
            if let Some(entry) = self.next(0)? {
                self.content.clear();
                // SAFETY: the view stays until the content is copied.
                self.content.extend_from_slice(unsafe { slice(entry.content) });
                return Ok(Some(Entry { number: entry.number, content: &self.content }));
            }
            drop(view);
            let left = end.map_or(LOOK_AGAIN, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(left.min(LOOK_AGAIN));
        }
    }

    fn next(&self, wait_ms: u64) -> Result<Option<sys::memlith_applog_entry>> {
        let mut entry =
            sys::memlith_applog_entry { number: 0, content: sys::memlith_bytes { data: ptr::null(), size: 0 } };
        // SAFETY: the handle is open, and this is the only reader.
        let there = found(unsafe { sys::memlith_applog_read(self.log.raw, wait_ms, &mut entry) })?;
        Ok(there.then_some(entry))
    }

    /// Everything up to entry `number`, which was read, is consumed: durable with the next write. A transaction of the
    /// store ([`crate::Transaction::consume`]) does that together with what the entries led to.
    pub fn consume(&mut self, number: u64) -> Result<()> {
        let _view = self.log.store.same_view();
        // SAFETY: the handle is open, and this is the only reader.
        check(unsafe { sys::memlith_applog_consume(self.log.raw, number) })
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        *self.log.has_reader.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }
}
