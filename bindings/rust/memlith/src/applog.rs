//! Application logs: operations that are on the disk before a server answers. The manual is `docs/applog.md`.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use memlith_sys as sys;

use crate::error::{check, found, still_open, Error, Result};
use crate::store::{c_string, sealed::InStore, Store};

/// What an append does that finds no room, because entries are not consumed.
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
    /// Of a new log; 0: 64 MiB.
    pub size: u64,
    /// Of a new log that may grow; 0: the size, or with [`WhenFull::Grow`] 1 TiB.
    pub max_size: u64,
}

/// An application log, open in this process. Any number of threads append and write; one at a time reads.
pub struct AppLog {
    raw: *mut sys::memlith_applog,
    reading: AtomicBool,
    store: Store,
}

// SAFETY: any number of threads append, write and wait; `reader` hands out one reader at a time.
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
        check(unsafe { sys::memlith_applog_open(store.raw(), name.as_ptr(), &plain, &mut raw) })?;
        Ok(Self { raw, reading: AtomicBool::new(false), store: store.clone() })
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
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_applog_write(self.raw, sys::MEMLITH_COMMIT_SYNC, std::ptr::null_mut()) })
    }

    /// The number of the newest durable entry; 0: none.
    #[must_use]
    pub fn durable(&self) -> u64 {
        // SAFETY: the handle is open.
        unsafe { sys::memlith_applog_durable(self.raw) }
    }

    /// The reader, which begins with the first entry that is not consumed. Fails while there is another one.
    pub fn reader(&self) -> Result<Reader<'_>> {
        if self.reading.swap(true, Ordering::Acquire) {
            return Err(Error::invalid("the log has a reader; one at a time reads"));
        }
        let reader = Reader { log: self };
        // SAFETY: the handle is open, and this is the only reader.
        check(unsafe { sys::memlith_applog_rewind(self.raw) })?;
        Ok(reader)
    }

    /// Makes durable what was appended, closes the log, and says whether that worked.
    pub fn close(mut self) -> Result<()> {
        // SAFETY: nothing borrows it. Where it stays open (no room for entries), drop() tries once more.
        let code = unsafe { sys::memlith_applog_close(self.raw) };
        if !still_open(code) {
            self.raw = ptr::null_mut();
        }
        check(code)
    }
}

impl InStore for AppLog {
    fn store(&self) -> &Store {
        &self.store
    }
}

impl Drop for AppLog {
    fn drop(&mut self) {
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
}

impl Reader<'_> {
    pub(crate) fn raw(&self) -> *mut sys::memlith_applog {
        self.log.raw
    }

    /// The next durable entry. If there is none, waits so long for one.
    pub fn read(&mut self, wait: Duration) -> Result<Option<Entry<'_>>> {
        let mut entry =
            sys::memlith_applog_entry { number: 0, content: sys::memlith_bytes { data: ptr::null(), size: 0 } };
        let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        // SAFETY: the handle is open, and this is the only reader.
        if !found(unsafe { sys::memlith_applog_read(self.log.raw, ms, &mut entry) })? {
            return Ok(None);
        }
        let content = if entry.content.size == 0 {
            &[][..]
        } else {
            // SAFETY: valid until the next read, which takes the reader mutably.
            unsafe { std::slice::from_raw_parts(entry.content.data.cast(), entry.content.size as usize) }
        };
        Ok(Some(Entry { number: entry.number, content }))
    }

    /// Everything up to entry `number`, which was read, is consumed: durable with the next write. A transaction of the
    /// store ([`crate::Transaction::consume`]) does that together with what the entries led to.
    pub fn consume(&mut self, number: u64) -> Result<()> {
        // SAFETY: the handle is open, and this is the only reader.
        check(unsafe { sys::memlith_applog_consume(self.log.raw, number) })
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.log.reading.store(false, Ordering::Release);
    }
}
