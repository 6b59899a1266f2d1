//! Regions: plain memory at a fixed address, which the program changes in place.

use std::ptr;

use memlith_sys as sys;

use crate::error::{check, Error, Result};
use crate::kv::Durability;
use crate::store::{c_string, sealed::InStore, Store};

/// A type that may be the root of a region.
///
/// # Safety
/// The bytes outlive the program. So of a type that implements this trait:
/// - every pattern of bits is a value, zeros above all: a new region is zeros, and a crash can leave persisted states
///   of an older version of the program;
/// - the layout is fixed: `#[repr(C)]` or `#[repr(transparent)]`, and members of such types;
/// - it owns no memory of the process and no other resource: no `Box`, `Vec`, `String`, `Rc`, reference, file, lock;
/// - it has no pointer to code, no `dyn`, no enum with unused patterns, no `bool`, no `char`.
///
/// Raw pointers into the same region are fine: a region lies at the same address in every run.
pub unsafe trait Plain: Copy + 'static {}

macro_rules! plain {
    ($($type:ty)*) => { $(
        // SAFETY: numbers have a fixed layout, and every pattern is a number.
        unsafe impl Plain for $type {}
    )* };
}
plain!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

// SAFETY: as the elements.
unsafe impl<T: Plain, const COUNT: usize> Plain for [T; COUNT] {}

/// How memlith finds what was stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tracker {
    /// By asking the kernel or by page faults, whatever suits the size of the region.
    #[default]
    Auto,
    /// By asking the kernel which pages were written.
    Scan,
    /// The program names what it changed: [`Region::touch`].
    Explicit,
    /// By page faults. A thread that stores to the region must not block SIGSEGV or SIGBUS.
    Fault,
}

/// A region, open in this process.
pub struct Region {
    raw: *mut sys::memlith_region,
    store: Store,
}

// SAFETY: any thread may use a region; the methods that reach into its memory take it mutably, but for `persist_own`.
// That reads what the calling thread stored through raw pointers: who uses those answers for other threads.
unsafe impl Send for Region {}
unsafe impl Sync for Region {}

impl Region {
    /// Opens region `name`, and makes one of `size` bytes, all zeros, if it does not exist. A size of 0 makes none.
    pub fn open(store: &Store, name: &str, size: u64, tracker: Tracker) -> Result<Self> {
        Self::open_with(store, name, size, tracker, 0)
    }

    /// The same, for threads that persist their own stores: [`Region::persist_own`]. [`Tracker::Auto`] means a tracker
    /// that knows threads by page.
    pub fn open_for_threads(store: &Store, name: &str, size: u64, tracker: Tracker) -> Result<Self> {
        Self::open_with(store, name, size, tracker, sys::MEMLITH_REGION_THREAD_SCOPE)
    }

    fn open_with(store: &Store, name: &str, size: u64, tracker: Tracker, flags: u32) -> Result<Self> {
        store.need_still_view()?;
        let name = c_string(name)?;
        let options = sys::memlith_region_options {
            struct_size: std::mem::size_of::<sys::memlith_region_options>() as u64,
            flags: flags | if size == 0 { 0 } else { sys::MEMLITH_CREATE },
            tracker: match tracker {
                Tracker::Auto => sys::MEMLITH_TRACKER_AUTO,
                Tracker::Scan => sys::MEMLITH_TRACKER_SCAN,
                Tracker::Explicit => sys::MEMLITH_TRACKER_EXPLICIT,
                Tracker::Fault => sys::MEMLITH_TRACKER_FAULT,
            },
            size,
            max_size: 0,
            address: 0,
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the arguments live during the call.
        check(unsafe { sys::memlith_region_open(store.raw(), name.as_ptr(), &options, &mut raw) })?;
        Ok(Self { raw, store: store.clone() })
    }

    pub(crate) fn raw(&self) -> *mut sys::memlith_region {
        self.raw
    }

    /// Where the region lies: the same in every run.
    #[must_use]
    pub fn address(&self) -> *mut u8 {
        // SAFETY: the handle is open.
        unsafe { sys::memlith_region_address(self.raw) }.cast()
    }

    /// How many bytes may be used.
    #[must_use]
    pub fn size(&self) -> u64 {
        // SAFETY: the handle is open.
        unsafe { sys::memlith_region_size(self.raw) }
    }

    /// Grows the region, in place; the new bytes are zeros.
    pub fn grow(&mut self, size: u64) -> Result<()> {
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_region_grow(self.raw, size) })
    }

    /// The root: the value at the beginning of the region, to be changed in place. What was changed is durable after
    /// [`Region::persist`].
    ///
    /// # Safety
    /// - The store is open for writing: a store to a region that is only read ends the program.
    /// - Whatever has been written to the region before is a `T`: the same type, or one with the same layout, in every
    ///   run. memlith does not check that.
    /// - Nothing else refers to these bytes meanwhile: no other thread, and no raw pointer that is used.
    /// - A reference into the region ends before `persist`, `rollback`, `grow` and the end of the `Region`, as the
    ///   borrow of the region demands; pointers that were made of it, too.
    pub unsafe fn root<T: Plain>(&mut self) -> Result<&mut T> {
        if (std::mem::size_of::<T>() as u64) > self.size() {
            return Err(Error::invalid(format!(
                "a root of {} bytes does not fit into a region of {}",
                std::mem::size_of::<T>(),
                self.size()
            )));
        }
        // A region begins at a page, so every alignment fits.
        Ok(&mut *self.address().cast::<T>())
    }

    /// Says that the bytes were changed; for [`Tracker::Explicit`].
    pub fn touch(&self, offset: u64, bytes: u64) -> Result<()> {
        // SAFETY: the library checks that the range lies in the region.
        check(unsafe { sys::memlith_touch(self.raw, self.address().wrapping_add(offset as usize).cast(), bytes) })
    }

    /// Makes all changes durable, or none.
    pub fn persist(&mut self) -> Result<()> {
        // SAFETY: the handle is open, and no reference into the region lives.
        check(unsafe { sys::memlith_persist(&self.raw, 1, sys::MEMLITH_SCOPE_PROCESS) })
    }

    /// Runs `change`, and makes durable what it stored to the region, all or none. If `change` fails or panics, or the
    /// change cannot be made durable, everything that it stored is undone. What was stored before, and not persisted,
    /// becomes durable by itself. Meanwhile `persist` and `rollback` are [`Category::Busy`](crate::Category::Busy).
    /// With [`Tracker::Explicit`], what is not touched is neither committed nor undone. `docs/transactions.md`.
    pub fn transact<T>(&mut self, change: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.transact_with(Durability::Sync, change).map(|(value, _)| value)
    }

    /// The same with a choice of when it is durable, the ticket of the commit for [`Store::wait`], and an error of the
    /// caller's own.
    pub fn transact_with<T, E: From<Error>>(
        &mut self,
        durability: Durability,
        change: impl FnOnce(&mut Self) -> std::result::Result<T, E>,
    ) -> std::result::Result<(T, u64), E> {
        let store = self.store.clone();
        undoing(&store, self.raw, durability, || change(self))
    }

    /// Captures all changes. [`Store::wait`] waits until what the ticket stands for is durable.
    pub fn persist_async(&mut self) -> Result<u64> {
        let mut ticket = 0;
        // SAFETY: as persist().
        check(unsafe { sys::memlith_persist_async(&self.raw, 1, sys::MEMLITH_SCOPE_PROCESS, &mut ticket) })?;
        Ok(ticket)
    }

    /// Makes what this thread stored durable, all of it or none, and nothing that another thread has not persisted.
    ///
    /// For threads that work, through [`Region::address`], on parts of their own, of a region that was opened by
    /// [`Region::open_for_threads`]. With [`Tracker::Auto`], two threads must not store to the same page of 4 KiB
    /// between two persists: one of them would persist, or leave out, a store of the other.
    /// Fails with [`Category::Unsupported`](crate::Category::Unsupported) if the tracker does not know threads.
    pub fn persist_own(&self) -> Result<()> {
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_persist(&self.raw, 1, sys::MEMLITH_SCOPE_THREAD) })
    }

    /// Puts the region back to what was last persisted.
    pub fn rollback(&mut self) -> Result<()> {
        // SAFETY: as persist().
        check(unsafe { sys::memlith_rollback(&self.raw, 1, sys::MEMLITH_SCOPE_PROCESS) })
    }
}

/// Runs `change` in a transaction that commits what was stored to the region, or undoes it.
pub(crate) fn undoing<T, E: From<Error>>(
    store: &Store,
    region: *mut sys::memlith_region,
    durability: Durability,
    change: impl FnOnce() -> std::result::Result<T, E>,
) -> std::result::Result<(T, u64), E> {
    let txn = store.begin()?; // which undoes what ends without a commit
    txn.add_region(region, sys::MEMLITH_UNDO)?;
    match change() {
        Ok(value) => Ok((value, txn.end(durability.mode())?)),
        Err(error) => {
            txn.abort()?;
            Err(error)
        }
    }
}

impl InStore for Region {
    fn store(&self) -> Option<&Store> {
        Some(&self.store)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: nothing borrows it.
        unsafe { sys::memlith_region_close(self.raw) };
    }
}
