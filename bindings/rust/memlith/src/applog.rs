//! Application logs: operations that are on the disk before a server answers. The manual is `docs/applog.md`.

use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use memlith_sys as sys;

use crate::error::{check, found, still_open, Error, Result};
use crate::kv::slice;
use crate::store::{c_path, c_string, milliseconds, sealed::InStore, Store, View};

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

impl Options {
    fn plain(self) -> sys::memlith_applog_options {
        let mut plain = sized!(sys::memlith_applog_options);
        plain.flags = if self.create { sys::MEMLITH_CREATE } else { 0 };
        plain.when_full = match self.when_full {
            WhenFull::Block => sys::MEMLITH_APPLOG_BLOCK,
            WhenFull::Fail => sys::MEMLITH_APPLOG_FAIL,
            WhenFull::Grow => sys::MEMLITH_APPLOG_GROW,
        };
        plain.size = self.size;
        plain.max_size = self.max_size;
        plain
    }
}

/// How to open a log of several processes. The defaults open one that exists.
#[derive(Clone, Debug, Default)]
pub struct SharedOptions {
    /// Those of the log. `create` makes the store, too.
    pub log: Options,
    /// The command `memlith`, if the keeper has to be started. None: it is looked for near the library, near the
    /// program, and in `PATH`.
    pub program: Option<PathBuf>,
    /// How long to wait for a keeper that begins or ends. Zero: a minute.
    pub patience: Duration,
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
    store: Option<Store>, // behind the handle, which closes first; none: it is open for several processes
}

// SAFETY: any number of threads append, write, get and wait; `reader` hands out one reader at a time, and what cannot
// be beside one holds the lock of `has_reader`.
unsafe impl Send for AppLog {}
unsafe impl Sync for AppLog {}

impl AppLog {
    pub fn open(store: &Store, name: &str, options: Options) -> Result<Self> {
        let name = c_string(name)?;
        let plain = options.plain();
        let mut raw = ptr::null_mut();
        // SAFETY: the arguments live during the call.
        store.opening(|| unsafe { sys::memlith_applog_open(store.raw(), name.as_ptr(), &plain, &mut raw) })?;
        Ok(Self { raw, has_reader: Mutex::new(false), store: Some(store.clone()) })
    }

    /// Opens the log `name` of the store in folder `store` for this process and others: any number of processes append,
    /// write and read it, each with a handle of its own. The manual is `docs/several-processes.md`.
    ///
    /// Each reader reads all entries from a place of its own; what one consumes is consumed for all. When the keeper
    /// has died, every call fails with [`crate::Category::Poisoned`], and one that was under way with
    /// [`crate::Category::Io`]: drop the handle then, and open the log again, which is as the last durable write left
    /// it. A forked child opens its own handle. [`crate::Category::Unsupported`] here: transactions of a store.
    pub fn open_shared(store: impl AsRef<Path>, name: &str, options: SharedOptions) -> Result<Self> {
        let (store, name) = (c_path(store.as_ref())?, c_string(name)?);
        let program = options.program.as_deref().map(c_path).transpose()?;
        let mut plain = options.log.plain();
        plain.program = program.as_ref().map_or(ptr::null(), |path| path.as_ptr());
        plain.patience_ms = milliseconds(options.patience);
        let mut raw = ptr::null_mut();
        // SAFETY: the arguments live during the call.
        check(unsafe { sys::memlith_applog_open_shared(store.as_ptr(), name.as_ptr(), &plain, &mut raw) })?;
        Ok(Self { raw, has_reader: Mutex::new(false), store: None })
    }

    fn view(&self) -> Result<Option<View<'_>>> {
        self.store.as_ref().map(Store::view).transpose()
    }

    fn same_view(&self) -> Option<View<'_>> {
        self.store.as_ref().map(Store::same_view)
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
        let _view = self.same_view();
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
        let _view = self.same_view();
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_applog_write(self.raw, sys::MEMLITH_COMMIT_SYNC, ptr::null_mut()) })
    }

    /// The same, but returns when it is on its way. [`AppLog::wait`] waits for the returned ticket.
    pub fn write_weak(&self) -> Result<u64> {
        let _view = self.same_view();
        let mut ticket = 0;
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_applog_write(self.raw, sys::MEMLITH_COMMIT_WEAK, &mut ticket) })?;
        Ok(ticket)
    }

    /// Returns when everything up to the ticket of a weak write is durable. [`crate::Category::Invalid`]: there is no
    /// such ticket yet.
    pub fn wait(&self, ticket: u64) -> Result<()> {
        let _view = self.same_view();
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_applog_wait(self.raw, ticket) })
    }

    /// The number of the newest durable entry; 0: none.
    #[must_use]
    pub fn durable(&self) -> u64 {
        let _view = self.same_view();
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
        let _view = self.view()?;
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
        let _view = self.view()?;
        let mut info = sized!(sys::memlith_applog_info);
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_applog_get_info(self.raw, &mut info) })?;
        let sys::memlith_applog_info { size, room, newest, durable, read, consumed, .. } = info;
        Ok(Info { size, room, newest, durable, read, consumed })
    }

    fn without_reader(&self) -> Result<(Option<View<'_>>, MutexGuard<'_, bool>)> {
        let has_reader = self.has_reader.lock().unwrap_or_else(PoisonError::into_inner);
        if *has_reader {
            return Err(Error::invalid("the log has a reader; drop it first"));
        }
        Ok((self.same_view(), has_reader))
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
            let _view = self.same_view();
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
        self.store.as_ref()
    }
}

impl Drop for AppLog {
    fn drop(&mut self) {
        let _view = self.same_view();
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
        if self.log.store.as_ref().is_some_and(Store::follows_newest) {
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
            let view = self.log.view()?;
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
        let _view = self.log.same_view();
        // SAFETY: the handle is open, and this is the only reader.
        check(unsafe { sys::memlith_applog_consume(self.log.raw, number) })
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        *self.log.has_reader.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }
}
