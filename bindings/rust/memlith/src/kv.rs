//! Key-value stores: ordered maps with serialisable transactions. The manual is `docs/kv.md`.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::os::raw::{c_int, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::Duration;

use memlith_sys as sys;

use crate::error::{check, found, still_open, Category, Error, Result};
use crate::store::{c_path, c_string, milliseconds, sealed::InStore, Store, View};

/// When a commit is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// On return.
    #[default]
    Sync,
    /// Within the window of the kv store, or with the next sync commit. A crash loses the newest of them.
    Weak,
}

impl Durability {
    pub(crate) fn mode(self) -> u32 {
        match self {
            Durability::Sync => sys::MEMLITH_COMMIT_SYNC,
            Durability::Weak => sys::MEMLITH_COMMIT_WEAK,
        }
    }
}

/// A map of a kv store: its number in this kv store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Map(sys::memlith_kv_map);

/// How to open a kv store of several processes. The defaults open one that exists.
#[derive(Clone, Debug, Default)]
pub struct SharedOptions {
    /// Makes the store, and the kv store in it, if they do not exist.
    pub create: bool,
    /// With `create`: fails with [`Category::Exists`] if the kv store exists.
    pub exclusive: bool,
    /// The largest size of a new kv store, in bytes; takes addresses only. 0: 1 TiB.
    pub max_size: u64,
    /// The command `memlith`, if the keeper has to be started. None: it is looked for near the library, near the
    /// program, and in `PATH`.
    pub program: Option<PathBuf>,
    /// How long to wait for a keeper that begins or ends. Zero: a minute.
    pub patience: Duration,
}

/// A kv store, open in this process. Threads share it.
pub struct Kv {
    raw: *mut sys::memlith_kv,
    store: Option<Store>, // behind the handle, which closes first; none: it is open for several processes
}

// SAFETY: any number of threads use a kv store; opening and closing take it alone, as `open` and `drop` do.
unsafe impl Send for Kv {}
unsafe impl Sync for Kv {}

impl Kv {
    /// Opens the kv store in region `name`, and makes it if it does not exist and the store may be written.
    pub fn open(store: &Store, name: &str) -> Result<Self> {
        match Self::open_with(store, name, sys::MEMLITH_CREATE) {
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
        let mut options = sized!(sys::memlith_kv_options);
        options.flags = flags;
        let mut raw = ptr::null_mut();
        // SAFETY: the arguments live during the call.
        store.opening(|| unsafe { sys::memlith_kv_open(store.raw(), name.as_ptr(), &options, &mut raw) })?;
        Ok(Self { raw, store: Some(store.clone()) })
    }

    /// Opens the kv store `name` of the store in folder `store` for this process and others: any number of processes
    /// read and write it, each with a handle of its own. The manual is `docs/several-processes.md`.
    ///
    /// Reads send no message and wait for no other process. A transaction that writes takes no locks: its commit fails
    /// with [`Category::Conflict`], and has no effect, if what it read is not as it was; [`Kv::transact`] begins again.
    /// A process that is killed or stopped is in no other's way. When the keeper has died, every call fails with
    /// [`Category::Poisoned`], and a commit that was under way with [`Category::Io`]: it may be durable or not. Drop
    /// the handle then, and open the kv store again. A forked child opens its own handle; its parent's is
    /// [`Category::Invalid`] there. [`Category::Unsupported`] here: [`crate::Transaction::join`],
    /// [`Kv::on_durable`]. A handle has at most 128 transactions and snapshots at a time ([`Category::Busy`]).
    ///
    /// Fails with [`Category::NotFound`] without the store, the kv store, or the command `memlith`, and with
    /// [`Category::Busy`] while a program has the store open for itself.
    pub fn open_shared(store: impl AsRef<Path>, name: &str, options: SharedOptions) -> Result<Self> {
        let (store, name) = (c_path(store.as_ref())?, c_string(name)?);
        let program = options.program.as_deref().map(c_path).transpose()?;
        let mut plain = sized!(sys::memlith_kv_options);
        plain.flags |= if options.create { sys::MEMLITH_CREATE } else { 0 };
        plain.flags |= if options.exclusive { sys::MEMLITH_EXCLUSIVE } else { 0 };
        plain.max_size = options.max_size;
        plain.program = program.as_ref().map_or(ptr::null(), |path| path.as_ptr());
        plain.patience_ms = milliseconds(options.patience);
        let mut raw = ptr::null_mut();
        // SAFETY: the arguments live during the call.
        check(unsafe { sys::memlith_kv_open_shared(store.as_ptr(), name.as_ptr(), &plain, &mut raw) })?;
        Ok(Self { raw, store: None })
    }

    fn view(&self) -> Result<Option<View<'_>>> {
        self.store.as_ref().map(Store::view).transpose()
    }

    fn same_view(&self) -> Option<View<'_>> {
        self.store.as_ref().map(Store::same_view)
    }

    /// The map of that name, which is made, durably, if it does not exist.
    pub fn map(&self, name: &str) -> Result<Map> {
        let _view = self.view()?;
        let (name, mut number) = (c_string(name)?, 0);
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_kv_map_open(self.raw, name.as_ptr(), sys::MEMLITH_CREATE, &mut number) })?;
        Ok(Map(number))
    }

    /// The map of that name, if there is one.
    pub fn find_map(&self, name: &str) -> Result<Option<Map>> {
        let _view = self.view()?;
        let (name, mut number) = (c_string(name)?, 0);
        // SAFETY: the handle is open.
        let there = found(unsafe { sys::memlith_kv_map_open(self.raw, name.as_ptr(), 0, &mut number) })?;
        Ok(there.then_some(Map(number)))
    }

    /// Removes a map with its records, durably. False: there was none.
    pub fn remove_map(&self, name: &str) -> Result<bool> {
        let _view = self.same_view();
        let name = c_string(name)?;
        // SAFETY: the handle is open.
        found(unsafe { sys::memlith_kv_map_remove(self.raw, name.as_ptr()) })
    }

    /// Fills a map quickly: puts records behind all that it has, in the order of their keys, in commits of their own,
    /// durable on return. Returns how many. The iterator may not use the kv store. After an error, or a crash, the
    /// first of them are there. [`Category::Invalid`]: a key is not above the one before; [`Category::Conflict`]: a
    /// transaction uses the map.
    pub fn append<K, V, I>(&self, map: Map, records: I) -> Result<u64>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
        I: IntoIterator<Item = (K, V)>,
    {
        let _view = self.same_view();
        let mut source: Source<K, V, I::IntoIter> = Source { records: records.into_iter(), current: None, panic: None };
        let mut count = 0;
        let next = next_record::<K, V, I::IntoIter>;
        // SAFETY: the context is what `next` takes it for, and lives during the call.
        let code = unsafe {
            sys::memlith_kv_map_append(self.raw, map.0, Some(next), ptr::addr_of_mut!(source).cast(), &mut count)
        };
        if let Some(panic) = source.panic {
            std::panic::resume_unwind(panic);
        }
        check(code).map(|()| count)
    }

    /// The names of the maps, in order.
    pub fn maps(&self) -> Result<Vec<String>> {
        let _view = self.view()?;
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
        let _view = self.same_view(); // a store that is only read begins none
        let mut raw = ptr::null_mut();
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_kv_begin(self.raw, 0, &mut raw) })?;
        Ok(Transaction { raw, kv: PhantomData })
    }

    /// A snapshot, which takes no locks and meets no conflict.
    pub fn read(&self) -> Result<Snapshot<'_>> {
        let view = self.view()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_kv_begin(self.raw, sys::MEMLITH_KV_READ_ONLY, &mut raw) })?;
        Ok(Snapshot { raw, _view: view, kv: PhantomData })
    }

    /// Runs `work` in a transaction, and commits it durably. After a conflict `work` runs again, in a new transaction.
    /// If `work` fails, nothing has happened.
    pub fn transact<T>(&self, work: impl FnMut(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        self.transact_with(Durability::Sync, work).map(|(value, _)| value)
    }

    /// The same with a choice of when the commit is durable, its ticket, and an error of the caller's own: it comes
    /// back as `work` returned it, unless a conflict had ended the transaction. The ticket is for [`Kv::wait`] and
    /// [`Kv::on_durable`].
    pub fn transact_with<T, E: From<Error>>(
        &self,
        durability: Durability,
        mut work: impl FnMut(&mut Transaction<'_>) -> std::result::Result<T, E>,
    ) -> std::result::Result<(T, u64), E> {
        let mut pause = Duration::from_micros(10);
        loop {
            let mut txn = self.begin()?;
            let done = work(&mut txn);
            if txn.active() {
                let value = done?;
                match txn.commit(durability) {
                    Err(error) if error.category() == Category::Conflict => {}
                    committed => return Ok((value, committed?)),
                }
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

    /// Calls `done` once, from a thread of the library, when the commit with that ticket is durable, or will not be.
    /// Does not hurry the commit. `done` may not close the kv store, nor drop the last owner of it. Calls come in the
    /// order of the tickets, one at a time: a slow one delays those behind it, and nothing else; a panic ends with it.
    /// [`Category::Invalid`]: there is no such ticket yet, and `done` is not called.
    pub fn on_durable(&self, ticket: u64, done: impl FnOnce(Result<()>) + Send + 'static) -> Result<()> {
        let _view = self.same_view();
        let context: *mut Durable = Box::into_raw(Box::new(Box::new(done)));
        // SAFETY: the context is what `durable` takes it for; the library calls that once, if the call worked.
        check(unsafe { sys::memlith_kv_on_durable(self.raw, ticket, Some(durable), context.cast()) }).map_err(|error| {
            // SAFETY: it was made above, and the library has not kept it.
            drop(unsafe { Box::from_raw(context) });
            error
        })
    }

    /// The window of weak commits: each is durable at most `most` after it returned, or as soon as `bytes` of log wait.
    /// Zero: 100 ms; 0 bytes: 16 MiB.
    pub fn set_window(&self, most: Duration, bytes: u64) -> Result<()> {
        let _view = self.same_view();
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_kv_set_window(self.raw, milliseconds(most), bytes) })
    }

    /// Returns when the commit of this kv store with that ticket is durable. [`Category::Invalid`]: there is no such
    /// ticket yet.
    pub fn wait(&self, ticket: u64) -> Result<()> {
        let _view = self.same_view();
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_kv_wait(self.raw, ticket) })
    }

    /// Makes every commit that has returned durable.
    pub fn persist(&self) -> Result<()> {
        let _view = self.same_view();
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_kv_persist(self.raw) })
    }

    /// Every commit of this kv store up to this ticket is durable.
    #[must_use]
    pub fn durable(&self) -> u64 {
        let _view = self.same_view();
        // SAFETY: the handle is open.
        unsafe { sys::memlith_kv_durable(self.raw) }
    }

    /// Checks every page. Fails with [`Category::Corrupt`] and the page's number.
    pub fn verify(&self) -> Result<()> {
        let _view = self.view()?;
        // SAFETY: the handle is open; the report may be null.
        check(unsafe { sys::memlith_kv_verify(self.raw, ptr::null_mut()) })
    }

    /// Makes weak commits durable, closes the kv store, and says whether that worked.
    pub fn close(mut self) -> Result<()> {
        // SAFETY: no transaction borrows it. Where it stays open (no room for weak commits), drop() tries once more.
        let code = {
            let _view = self.same_view();
            unsafe { sys::memlith_kv_close(self.raw) }
        };
        if !still_open(code) {
            self.raw = ptr::null_mut();
        }
        check(code)
    }
}

impl InStore for Kv {
    fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }
}

impl Drop for Kv {
    fn drop(&mut self) {
        let _view = self.same_view();
        // SAFETY: no transaction borrows it; null is ignored.
        unsafe { sys::memlith_kv_close(self.raw) };
    }
}

/// The closure that `on_durable` gives to the library.
type Durable = Box<dyn FnOnce(Result<()>) + Send>;

/// # Safety
/// The context is a `Durable` in a box, which this call takes.
unsafe extern "C" fn durable(context: *mut c_void, _ticket: u64, code: i32) {
    let done = Box::from_raw(context.cast::<Durable>());
    let result = if code == 0 { Ok(()) } else { Err(Error::of_code(code, "the commit is not durable")) };
    // A panic, which has been printed, may not unwind into the library.
    drop(catch_unwind(AssertUnwindSafe(|| done(result))));
}

/// The records that `append` gives to the library, which reads a record's bytes before it asks for the next one.
struct Source<K, V, I> {
    records: I,
    current: Option<(K, V)>,
    panic: Option<Box<dyn std::any::Any + Send>>,
}

/// # Safety
/// The context is a `Source` of these types.
unsafe extern "C" fn next_record<K: AsRef<[u8]>, V: AsRef<[u8]>, I: Iterator<Item = (K, V)>>(
    context: *mut c_void,
    key: *mut sys::memlith_bytes,
    value: *mut sys::memlith_bytes,
) -> c_int {
    let source = &mut *context.cast::<Source<K, V, I>>();
    // A panic may not unwind into the library: it goes on when the call has returned.
    match catch_unwind(AssertUnwindSafe(|| source.records.next())) {
        Ok(next) => source.current = next,
        Err(panic) => {
            (source.current, source.panic) = (None, Some(panic));
        }
    }
    let Some((name, content)) = &source.current else { return 1 };
    *key = bytes_of(name.as_ref());
    *value = bytes_of(content.as_ref());
    0
}

fn bytes_of(slice: &[u8]) -> sys::memlith_bytes {
    sys::memlith_bytes { data: slice.as_ptr().cast(), size: slice.len() as u64 }
}

/// A null pointer where there is nothing.
fn pointer_to(bytes: &Option<sys::memlith_bytes>) -> *const sys::memlith_bytes {
    bytes.as_ref().map_or(ptr::null(), |bytes| bytes)
}

/// The keys from `.0` on and before `.1`, as the library has ranges.
struct Ends(Option<Vec<u8>>, Option<Vec<u8>>);

impl Ends {
    fn of<K: AsRef<[u8]>>(keys: &impl RangeBounds<K>) -> Self {
        let owned = |key: &K| key.as_ref().to_vec();
        let behind = |key: &K| [key.as_ref(), &[0]].concat(); // the least key that is greater
        let from = match keys.start_bound() {
            Bound::Included(key) => Some(owned(key)),
            Bound::Excluded(key) => Some(behind(key)),
            Bound::Unbounded => None,
        };
        let to = match keys.end_bound() {
            Bound::Included(key) => Some(behind(key)),
            Bound::Excluded(key) => Some(owned(key)),
            Bound::Unbounded => None,
        };
        Self(from, to)
    }

    fn bytes(&self) -> (Option<sys::memlith_bytes>, Option<sys::memlith_bytes>) {
        (self.0.as_deref().map(bytes_of), self.1.as_deref().map(bytes_of))
    }
}

/// About how much a range has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    pub records: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

fn estimate<K: AsRef<[u8]>>(txn: *mut sys::memlith_kv_txn, map: Map, keys: &impl RangeBounds<K>) -> Result<Estimate> {
    let (ends, mut found) = (Ends::of(keys), Estimate::default());
    let (from, to) = ends.bytes();
    // SAFETY: the transaction is open or has ended, which the call tells; the ends live during the call.
    check(unsafe {
        let (records, bytes) = (&mut found.records, &mut found.bytes);
        sys::memlith_kv_estimate(txn, map.0, pointer_to(&from), pointer_to(&to), records, bytes)
    })?;
    Ok(found)
}

fn get(txn: *mut sys::memlith_kv_txn, map: Map, key: &[u8]) -> Result<Option<sys::memlith_bytes>> {
    let mut value = sys::memlith_bytes { data: ptr::null(), size: 0 };
    // SAFETY: the transaction is open or has ended, which the call tells; the key lives during the call.
    let code = unsafe { sys::memlith_kv_get(txn, map.0, key.as_ptr().cast(), key.len() as u64, &mut value) };
    Ok(found(code)?.then_some(value))
}

/// # Safety
/// The bytes live and do not change as long as 'a.
pub(crate) unsafe fn slice<'a>(bytes: sys::memlith_bytes) -> &'a [u8] {
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

    /// A conflict has not ended it.
    fn active(&self) -> bool {
        // SAFETY: the handle is open.
        unsafe { sys::memlith_kv_txn_active(self.raw) == 1 }
    }

    /// From now on a call that meets a lock waits so long for the other transaction to end, before it is a conflict.
    pub fn set_wait(&mut self, most: Duration) -> Result<()> {
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_kv_txn_set_wait(self.raw, milliseconds(most)) })
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

    /// Compares and swaps: if the record's value is `expected`, or without it there is no such record, it gets `value`,
    /// or without that is removed. Tells whether. The record was read in any case, and is locked.
    pub fn put_if(&mut self, map: Map, key: &[u8], expected: Option<&[u8]>, value: Option<&[u8]>) -> Result<bool> {
        let (before, after, mut done) = (expected.map(bytes_of), value.map(bytes_of), 0);
        // SAFETY: the arguments live during the call, which copies them.
        check(unsafe {
            let (key, key_bytes) = (key.as_ptr().cast(), key.len() as u64);
            let (before, after) = (pointer_to(&before), pointer_to(&after));
            sys::memlith_kv_put_if(self.raw, map.0, key, key_bytes, before, after, &mut done)
        })?;
        Ok(done != 0)
    }

    /// Removes the records with keys in the range, and returns how many there were. No other transaction puts a record
    /// there before this one has ended. After an error the first of the range were removed: abort.
    pub fn remove_range<K: AsRef<[u8]>>(&mut self, map: Map, keys: impl RangeBounds<K>) -> Result<u64> {
        let (ends, mut count) = (Ends::of(&keys), 0);
        let (from, to) = ends.bytes();
        // SAFETY: the ends live during the call.
        check(unsafe {
            sys::memlith_kv_remove_range(self.raw, map.0, pointer_to(&from), pointer_to(&to), &mut count)
        })?;
        Ok(count)
    }

    /// The records with keys in the range, in order; their gaps are locked, too, and nothing outside of the range but
    /// the key at its end.
    pub fn range<'t, K: AsRef<[u8]> + 't>(&'t mut self, map: Map, keys: impl RangeBounds<K>) -> Result<Records<'t>> {
        Records::in_range(self.raw, map, &keys)
    }

    /// The same of the records whose keys begin with these bytes.
    pub fn prefix(&mut self, map: Map, prefix: &[u8]) -> Result<Records<'_>> {
        Records::with_prefix(self.raw, map, prefix)
    }

    /// About how many records and bytes a range has, from a few pages, however long it is. Locks nothing, and does not
    /// see what the transaction has written.
    pub fn estimate<K: AsRef<[u8]>>(&mut self, map: Map, keys: impl RangeBounds<K>) -> Result<Estimate> {
        estimate(self.raw, map, &keys)
    }

    /// Commits: everything the transaction wrote takes effect, or nothing. Returns the ticket of the commit. With
    /// [`Durability::Sync`] what the transaction read is durable, too, also if it wrote nothing.
    pub fn commit(self, durability: Durability) -> Result<u64> {
        // SAFETY: drop() frees the handle.
        unsafe { commit(self.raw, durability) }
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

/// # Safety
/// The handle is open, and is not used afterwards but to be freed.
unsafe fn commit(raw: *mut sys::memlith_kv_txn, durability: Durability) -> Result<u64> {
    let mut ticket = 0;
    check(sys::memlith_kv_commit(raw, durability.mode(), &mut ticket))?;
    Ok(ticket)
}

/// The kv store as of one commit, which may not be durable yet: [`Snapshot::commit`] waits for that, dropping the
/// snapshot does not.
pub struct Snapshot<'kv> {
    raw: *mut sys::memlith_kv_txn,
    _view: Option<View<'kv>>, // of the kv store's store; behind the handle, which is freed first
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
        Records::in_range(self.raw, map, &keys)
    }

    /// The records whose keys begin with these bytes, in order.
    pub fn prefix(&self, map: Map, prefix: &[u8]) -> Result<Records<'_>> {
        Records::with_prefix(self.raw, map, prefix)
    }

    /// About how many records and bytes a range has, from a few pages, however long it is.
    pub fn estimate<K: AsRef<[u8]>>(&self, map: Map, keys: impl RangeBounds<K>) -> Result<Estimate> {
        estimate(self.raw, map, &keys)
    }

    /// Ends the snapshot. With [`Durability::Sync`] what it saw is durable when this returns, which takes no time if it
    /// was already; [`Durability::Weak`] returns at once the ticket to wait for.
    pub fn commit(self, durability: Durability) -> Result<u64> {
        // SAFETY: drop() frees the handle.
        unsafe { commit(self.raw, durability) }
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
    last: (Option<Vec<u8>>, Option<Vec<u8>>), // the newest key from either side: the two meet there
    ended: bool,
    txn: PhantomData<&'t ()>,
}

/// Key and value.
pub type Record = (Vec<u8>, Vec<u8>);

impl Records<'_> {
    /// Both cursors without bounds.
    fn new(txn: *mut sys::memlith_kv_txn, map: Map) -> Result<Self> {
        let (front, back) = (ptr::null_mut(), ptr::null_mut());
        let mut records = Self { front, back, last: (None, None), ended: false, txn: PhantomData };
        // SAFETY: the transaction is open and outlives the cursors, which drop() closes.
        check(unsafe { sys::memlith_kv_cursor_open(txn, map.0, &mut records.front) })?;
        check(unsafe { sys::memlith_kv_cursor_open(txn, map.0, &mut records.back) })?;
        Ok(records)
    }

    fn in_range<K: AsRef<[u8]>>(txn: *mut sys::memlith_kv_txn, map: Map, keys: &impl RangeBounds<K>) -> Result<Self> {
        let (records, ends) = (Self::new(txn, map)?, Ends::of(keys));
        let (from, to) = ends.bytes();
        for cursor in [records.front, records.back] {
            // SAFETY: the cursor is open; the call copies the ends.
            check(unsafe { sys::memlith_kv_cursor_set_bounds(cursor, pointer_to(&from), pointer_to(&to)) })?;
        }
        Ok(records)
    }

    fn with_prefix(txn: *mut sys::memlith_kv_txn, map: Map, prefix: &[u8]) -> Result<Self> {
        let records = Self::new(txn, map)?;
        for cursor in [records.front, records.back] {
            // SAFETY: the cursor is open; the call copies the prefix.
            check(unsafe { sys::memlith_kv_cursor_set_prefix(cursor, prefix.as_ptr().cast(), prefix.len() as u64) })?;
        }
        Ok(records)
    }

    fn current(cursor: *mut sys::memlith_kv_cursor) -> Result<Record> {
        let mut bytes = [sys::memlith_bytes { data: ptr::null(), size: 0 }; 2];
        let (key, value) = bytes.split_at_mut(1);
        // SAFETY: the cursor is open; the bytes are copied before another call can end the transaction.
        check(unsafe { sys::memlith_kv_cursor_current(cursor, &mut key[0], &mut value[0]) })?;
        Ok(unsafe { (slice(key[0]).to_vec(), slice(value[0]).to_vec()) })
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
        if met {
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
        // SAFETY: the cursor is open. Of a new cursor next is the first record.
        let stepped = found(unsafe { sys::memlith_kv_cursor_next(self.front) });
        self.take(stepped, true)
    }
}

impl DoubleEndedIterator for Records<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        // SAFETY: the cursor is open. Of a new cursor prev is the last record.
        let stepped = found(unsafe { sys::memlith_kv_cursor_prev(self.back) });
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
