//! Stores, and transactions over several things of one store.

use std::ffi::{CStr, CString};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use memlith_sys as sys;

use crate::applog::{AppLog, Reader};
use crate::error::{check, found, Error, Result};
use crate::{heap, kv, region};

/// A C string of a name; one with a zero byte is refused.
pub(crate) fn c_string(name: impl Into<Vec<u8>>) -> Result<CString> {
    CString::new(name).map_err(|_| Error::invalid("a name or a path has no zero byte"))
}

/// Rounded up, so that a short time does not become none.
pub(crate) fn milliseconds(of: Duration) -> u64 {
    u64::try_from(of.as_nanos().saturating_add(999_999) / 1_000_000).unwrap_or(u64::MAX)
}

pub(crate) fn c_path(path: &Path) -> Result<CString> {
    c_string(path.as_os_str().as_bytes())
}

/// The C handle, which closes with the last thing that uses it.
pub(crate) struct Handle {
    raw: *mut sys::memlith_store,
    users: Option<Users>, // of a store that follows the newest commit
}

/// Those that keep the view of a store where it is.
#[derive(Default)]
struct Users {
    state: Mutex<UsersState>,
    left: Condvar, // the last of them has
}

#[derive(Default)]
struct UsersState {
    count: u64,
    moved: Option<Instant>,        // the view has
    patience: Option<Duration>,    // how long a read waits next for those before it to leave
    patient_from: Option<Instant>, // and not before then
}

/// A view that stands longer than this is old: a read waits for those that keep it. Where these overlap for ever, no
/// more than one part in twenty of the time goes into such waits.
const OLD: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_millis(5);
const PATIENCE_MAX: Duration = Duration::from_secs(1);

// SAFETY: any thread may call any function of the library; closing takes the last Arc, so no thread uses it meanwhile.
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and nothing uses it any more. Null after close().
        unsafe { sys::memlith_store_close(self.raw) };
    }
}

impl Handle {
    fn users(&self) -> Option<MutexGuard<'_, UsersState>> {
        self.users.as_ref().map(|users| users.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Users {
    /// If the view is old, waits until the reads before this one have ended; those that come meanwhile wait, too, so
    /// that reads which overlap do not keep the view where it is. Not for long: a snapshot may live for hours, and the
    /// calling thread may have it.
    fn wait_for_those_before<'u>(&'u self, mut state: MutexGuard<'u, UsersState>) -> MutexGuard<'u, UsersState> {
        let now = Instant::now();
        let old = state.moved.is_some_and(|moved| now.duration_since(moved) > OLD);
        if state.count == 0 || !old || state.patient_from.is_some_and(|from| now < from) {
            return state;
        }
        let patience = state.patience.unwrap_or(PATIENCE);
        let waited = self.left.wait_timeout_while(state, patience, |state| state.count > 0);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if state.count == 0 {
            (state.patience, state.patient_from) = (None, None);
        } else if state.patient_from.map_or(true, |from| from < now) {
            state.patience = Some((patience * 2).min(PATIENCE_MAX));
            state.patient_from = Some(Instant::now() + patience * 20);
        }
        state
    }
}

/// Keeps the view of a store that follows the newest commit where it is: during a call, or longer.
pub(crate) struct View<'s>(&'s Handle);

impl Drop for View<'_> {
    fn drop(&mut self) {
        if let (Some(users), Some(mut state)) = (&self.0.users, self.0.users()) {
            state.count -= 1;
            if state.count == 0 {
                users.left.notify_all();
            }
        }
    }
}

/// A store, open in this process. Clones are the same store.
#[derive(Clone)]
pub struct Store {
    pub(crate) handle: Arc<Handle>,
}

/// How to open a store. The defaults open one that exists, for reading and writing.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct StoreOptions {
    flags: u32,
    newest: bool,
    log_bytes: u64,
    log_max_bytes: u64,
    memory_max_bytes: u64,
    open_wait_ms: u64,
    window_ms: u64,
    window_bytes: u64,
}

impl StoreOptions {
    fn flag(mut self, flag: u32, set: bool) -> Self {
        self.flags = if set { self.flags | flag } else { self.flags & !flag };
        self
    }

    /// Makes the store if it does not exist.
    pub fn create(self, set: bool) -> Self {
        self.flag(sys::MEMLITH_OPEN_CREATE, set)
    }

    /// Fails if the store exists.
    pub fn create_new(self, set: bool) -> Self {
        self.flag(sys::MEMLITH_OPEN_CREATE | sys::MEMLITH_OPEN_EXCLUSIVE, set)
    }

    pub fn read_only(self, set: bool) -> Self {
        self.flag(sys::MEMLITH_OPEN_READ_ONLY, set)
    }

    /// Reads beside a process that writes; [`Store::refresh`] moves on to its newest durable commit.
    pub fn follow(self, set: bool) -> Self {
        self.flag(sys::MEMLITH_OPEN_FOLLOW, set)
    }

    /// The same without `refresh`: each read moves on by itself, to the newest durable commit, if no snapshot and no
    /// other call uses the store at that moment; else it shows the same commit as these. Where reads of several threads
    /// overlap, one that finds a view older than 10 ms waits for those before it to end, so that the view moves on; not
    /// where they take longer than a second, or where the calling thread itself has a snapshot. Reads are
    /// [`Kv::read`](crate::kv::Kv::read), and the calls of a kv store, a log and its reader that are made outside of a
    /// snapshot. Their errors are also those of `refresh`. For kv stores and logs: regions and heaps, whose bytes would
    /// change under the program, are refused.
    pub fn follow_newest(mut self, set: bool) -> Self {
        self.newest = set;
        self.follow(set)
    }

    /// Size of a new store's log.
    pub fn log_bytes(mut self, bytes: u64) -> Self {
        self.log_bytes = bytes;
        self
    }

    /// The largest size that the log may grow to.
    pub fn log_max_bytes(mut self, bytes: u64) -> Self {
        self.log_max_bytes = bytes;
        self
    }

    /// How much memory changed pages may take before they are written home.
    pub fn memory_max_bytes(mut self, bytes: u64) -> Self {
        self.memory_max_bytes = bytes;
        self
    }

    /// The flush window of weak commits; see [`Store::set_window`].
    pub fn window(mut self, most: Duration, bytes: u64) -> Self {
        (self.window_ms, self.window_bytes) = (milliseconds(most), bytes);
        self
    }

    /// How long opening waits for another process to close the store, before it is `Busy`. At most a day.
    pub fn open_wait(mut self, wait: Duration) -> Self {
        self.open_wait_ms = milliseconds(wait);
        self
    }

    /// Opens the store in a folder or on a block device. Recovers it after a crash.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Store> {
        self.open_with(path.as_ref(), sys::memlith_store_open)
    }

    /// Opens one file of your own as a store with a single region or structure.
    pub fn open_file(self, path: impl AsRef<Path>) -> Result<Store> {
        self.open_with(path.as_ref(), sys::memlith_file_open)
    }

    fn open_with(
        self,
        path: &Path,
        open: unsafe extern "C" fn(
            *const std::ffi::c_char,
            *const sys::memlith_store_options,
            *mut *mut sys::memlith_store,
        ) -> i32,
    ) -> Result<Store> {
        let path = c_path(path)?;
        let mut options = sized!(sys::memlith_store_options);
        options.flags = self.flags;
        options.log_bytes = self.log_bytes;
        options.log_max_bytes = self.log_max_bytes;
        options.memory_max_bytes = self.memory_max_bytes;
        options.open_wait_ms = self.open_wait_ms;
        options.window_ms = self.window_ms;
        options.window_bytes = self.window_bytes;
        let mut handle = ptr::null_mut();
        // SAFETY: the arguments live during the call.
        check(unsafe { open(path.as_ptr(), &options, &mut handle) })?;
        Ok(Store { handle: Arc::new(Handle { raw: handle, users: self.newest.then(Users::default) }) })
    }
}

impl Store {
    pub fn options() -> StoreOptions {
        StoreOptions::default()
    }

    /// Opens the store in `path`, which exists, for reading and writing.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(path)
    }

    pub(crate) fn raw(&self) -> *mut sys::memlith_store {
        self.handle.raw
    }

    /// For memory of which the program has references.
    pub(crate) fn need_still_view(&self) -> Result<()> {
        if self.follows_newest() {
            return Err(Error::invalid("memory would change under the program; open the store with follow"));
        }
        Ok(())
    }

    pub(crate) fn follows_newest(&self) -> bool {
        self.handle.users.is_some()
    }

    /// The view, for a call and for what uses it behind the call. If nothing keeps the view of a store that follows the
    /// newest commit, it moves on before.
    pub(crate) fn view(&self) -> Result<View<'_>> {
        if let (Some(users), Some(state)) = (&self.handle.users, self.handle.users()) {
            let mut state = users.wait_for_those_before(state);
            if state.count == 0 {
                // SAFETY: the handle is open, and nothing uses the store: what does has a view, or the lock of `users`.
                check(unsafe { sys::memlith_store_refresh(self.raw(), ptr::null_mut()) })?;
                state.moved = Some(Instant::now());
            }
            state.count += 1;
        }
        Ok(View(&self.handle))
    }

    /// The view as it is.
    pub(crate) fn same_view(&self) -> View<'_> {
        if let Some(mut state) = self.handle.users() {
            state.count += 1;
        }
        View(&self.handle)
    }

    /// For a call that opens something, which moves the view.
    pub(crate) fn opening(&self, call: impl FnOnce() -> i32) -> Result<()> {
        let users = self.handle.users();
        if users.as_deref().is_some_and(|users| users.count > 0) {
            return Err(Error::invalid(
                "a snapshot or a call uses the view of the store, which an opening moves; open first, then read",
            ));
        }
        check(call())
    }

    /// Every commit up to this ticket is durable.
    #[must_use]
    pub fn durable(&self) -> u64 {
        let _view = self.same_view();
        // SAFETY: the handle is open.
        unsafe { sys::memlith_store_durable(self.raw()) }
    }

    /// A ticket of everything that was committed or appended before, in whatever structure.
    #[must_use]
    pub fn newest(&self) -> u64 {
        let _view = self.same_view();
        // SAFETY: the handle is open.
        unsafe { sys::memlith_store_newest(self.raw()) }
    }

    /// Returns when everything up to that ticket is durable: tickets of [`Kv`](crate::kv::Kv), too.
    pub fn wait(&self, ticket: u64) -> Result<()> {
        let _view = self.same_view();
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_wait(self.raw(), ticket) })
    }

    /// From now on an asynchronous persist or a weak commit is durable at most `most` after it returned, or as soon as
    /// `bytes` of log wait, always in order. None, the default: only while the flush before it is under way. 0
    /// bytes: 16 MiB. A kv store has a window of its own: [`Kv::set_window`](crate::kv::Kv::set_window).
    pub fn set_window(&self, most: Duration, bytes: u64) -> Result<()> {
        let _view = self.same_view();
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_store_set_window(self.raw(), milliseconds(most), bytes) })
    }

    /// Lets the log grow to `bytes` from now on, for example after a commit that was
    /// [`Category::Full`](crate::Category::Full), which can then be tried again.
    pub fn set_log_max(&self, bytes: u64) -> Result<()> {
        let _view = self.same_view();
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_store_set_log_max(self.raw(), bytes) })
    }

    /// The names of the store's regions: kv stores, logs and heaps are regions, too.
    pub fn regions(&self) -> Result<Vec<String>> {
        let _view = self.view()?;
        let mut names = Vec::new();
        loop {
            let mut info = sized!(sys::memlith_region_info);
            // SAFETY: the handle is open.
            if !found(unsafe { sys::memlith_store_region_at(self.raw(), names.len() as u64, &mut info) })? {
                return Ok(names);
            }
            // SAFETY: the library ends the name with a zero.
            let name = unsafe { CStr::from_ptr(info.name.as_ptr()) };
            names.push(name.to_string_lossy().into_owned());
        }
    }

    /// Removes a region, or what lies in one, that is not open; durable on return. False: there was none.
    pub fn remove(&self, name: &str) -> Result<bool> {
        let _view = self.same_view();
        let name = c_string(name)?;
        // SAFETY: the handle is open.
        found(unsafe { sys::memlith_region_remove(self.raw(), name.as_ptr()) })
    }

    /// Writes everything durable to the home files.
    pub fn checkpoint(&self) -> Result<()> {
        let _view = self.same_view();
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_store_checkpoint(self.raw()) })
    }

    /// Moves a store that was opened with [`StoreOptions::follow`] on to the newest durable commit, and returns its
    /// ticket. `opened` names everything that is open in the store, and stays open: nothing else may use the store
    /// meanwhile, so that there must be no clone of it. After an error everything is as before.
    pub fn refresh(&mut self, opened: &mut [&mut dyn Opened]) -> Result<u64> {
        let ours = opened
            .iter()
            .filter_map(|each| each.store())
            .filter(|each| Arc::ptr_eq(&each.handle, &self.handle))
            .count();
        if ours != opened.len() || Arc::strong_count(&self.handle) != 1 + ours {
            return Err(Error::invalid(
                "refresh names each kv store, log, heap and region that is open in the store, none of another store, \
                 and the store has no clone",
            ));
        }
        let mut ticket = 0;
        // SAFETY: all that uses the handle is borrowed mutably here: no other thread is in a call, and no reference
        // into the memory of the store lives.
        check(unsafe { sys::memlith_store_refresh(self.raw(), &mut ticket) })?;
        Ok(ticket)
    }

    /// Begins a transaction whose parts take effect and become durable together, or not at all.
    pub fn begin(&self) -> Result<Transaction<'_>> {
        let _view = self.same_view();
        let mut raw = ptr::null_mut();
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_begin(self.raw(), &mut raw) })?;
        Ok(Transaction { raw, parts: Vec::new(), store: PhantomData })
    }

    /// Closes the store, and says whether that worked. Fails, and closes nothing, while a kv store, a log, a heap, a
    /// region or a clone of the store is open.
    pub fn close(self) -> Result<()> {
        match Arc::try_unwrap(self.handle) {
            Ok(mut handle) => {
                let raw = std::mem::replace(&mut handle.raw, ptr::null_mut());
                // SAFETY: nothing else uses the handle, which is freed, also on error.
                check(unsafe { sys::memlith_store_close(raw) })
            }
            Err(_) => Err(Error::invalid(
                "the store is in use by a kv store, a log, a heap, a region or a clone; close it first",
            )),
        }
    }
}

pub(crate) mod sealed {
    /// Implemented by what holds one clone of its store, and nothing else that could use it.
    pub trait InStore {
        /// None of a kv store that is open for several processes.
        fn store(&self) -> Option<&super::Store>;
    }
}

/// Something that is open in a store: a kv store, a log, a heap or a region.
pub trait Opened: sealed::InStore {}
impl<T: sealed::InStore> Opened for T {}

/// A transaction of a store, with parts in kv stores, logs and regions. Dropping it aborts it.
pub struct Transaction<'a> {
    raw: *mut sys::memlith_txn,
    parts: Vec<*mut sys::memlith_kv_txn>, // which have ended with the transaction, and are freed behind it
    store: PhantomData<&'a Store>,
}

impl<'a> Transaction<'a> {
    /// Makes the writes of a kv store's transaction a part of this one.
    pub fn join(&mut self, part: kv::Transaction<'a>) -> Result<()> {
        // SAFETY: both are open, and belong to this thread.
        check(unsafe { sys::memlith_txn_add_kv(self.raw, part.raw()) })?;
        self.parts.push(part.into_raw());
        Ok(())
    }

    /// Makes the changes of a region a part.
    pub fn join_region(&mut self, part: &'a region::Region) -> Result<()> {
        self.add_region(part.raw(), 0)
    }

    /// Makes the changes and allocations of a heap a part.
    pub fn join_heap(&mut self, part: &'a heap::Heap) -> Result<()> {
        self.add_region(part.region(), 0)
    }

    /// Stores to the region from now on are a part, and are undone if the transaction is dropped.
    pub fn join_region_undoing(&mut self, part: &'a region::Region) -> Result<()> {
        self.add_region(part.raw(), sys::MEMLITH_UNDO)
    }

    pub(crate) fn add_region(&self, region: *mut sys::memlith_region, flags: u32) -> Result<()> {
        // SAFETY: both are open.
        check(unsafe { sys::memlith_txn_add_region(self.raw, region, flags) })
    }

    /// Everything in the log up to entry `number`, which was read, is consumed with this transaction.
    pub fn consume(&mut self, reader: &Reader<'a>, number: u64) -> Result<()> {
        // SAFETY: both are open.
        check(unsafe { sys::memlith_txn_consume(self.raw, reader.raw(), number) })
    }

    /// The entries, which are copied, are appended with this transaction.
    pub fn append(&mut self, log: &'a AppLog, entry: &[u8]) -> Result<()> {
        let bytes = sys::memlith_bytes { data: entry.as_ptr().cast(), size: entry.len() as u64 };
        // SAFETY: both are open; the entry lives during the call.
        check(unsafe { sys::memlith_txn_append(self.raw, log.raw(), &bytes, 1) })
    }

    /// Commits all parts, or none; durable on return.
    pub fn commit(self) -> Result<()> {
        self.end(sys::MEMLITH_COMMIT_SYNC).map(|_| ())
    }

    /// The same, but returns when the parts have taken effect. [`Store::wait`] waits for the returned ticket.
    pub fn commit_weak(self) -> Result<u64> {
        self.end(sys::MEMLITH_COMMIT_WEAK)
    }

    /// Ends the transaction without any effect, and says whether that worked: after an error, a region that joined with
    /// [`Transaction::join_region_undoing`] holds half of the change in memory, and is persisted no more until it is
    /// opened again.
    pub fn abort(mut self) -> Result<()> {
        let raw = std::mem::replace(&mut self.raw, ptr::null_mut());
        // SAFETY: the transaction is open, and has ended then.
        check(unsafe { sys::memlith_abort(raw) })
    }

    pub(crate) fn end(mut self, mode: u32) -> Result<u64> {
        let mut ticket = 0;
        // SAFETY: the transaction is open. After an error it still is, and drop() aborts it.
        check(unsafe { sys::memlith_commit(self.raw, mode, &mut ticket) })?;
        self.raw = ptr::null_mut();
        Ok(ticket)
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // SAFETY: a transaction that has not ended is aborted; its parts have ended then, and their handles are free.
        unsafe {
            if !self.raw.is_null() {
                sys::memlith_abort(self.raw);
            }
            for part in self.parts.drain(..) {
                sys::memlith_kv_txn_free(part);
            }
        }
    }
}
