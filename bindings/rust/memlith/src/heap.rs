//! Heaps: blocks of memory that lead to each other, at fixed addresses. The manual is `docs/heap.md`.
//!
//! ```no_run
//! use memlith::heap::{self, Heap, Ptr};
//! use memlith::{region::Plain, Store};
//!
//! #[derive(Clone, Copy)]
//! #[repr(C)]
//! struct Node {
//!     value: u64,
//!     next: Ptr<Node>, // zeros are null
//! }
//! // SAFETY: numbers in C's layout.
//! unsafe impl Plain for Node {}
//!
//! fn main() -> memlith::Result<()> {
//!     let store = Store::options().create(true).open("list")?;
//!     let mut heap = Heap::open(&store, "heap", heap::Options { create: true, ..Default::default() })?;
//!     let first = heap.root::<Ptr<Node>>(1)?; // null in the first run, found again in every later one
//!     let next = *heap.get(first)?;
//!     let node = heap.allocate(Node { value: 7, next })?;
//!     *heap.get_mut(first)? = node;
//!     heap.persist() // durable, all or nothing
//! }
//! ```

use std::fmt;
use std::marker::PhantomData;
use std::mem::{align_of, size_of};
use std::ptr;

use memlith_sys as sys;

use crate::error::{check, found, Error, Result};
use crate::kv::Durability;
use crate::region::{undoing, Plain};
use crate::store::{c_string, sealed::InStore, Store};

/// How to open a heap.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Makes the heap if it does not exist.
    pub create: bool,
    /// How large the heap may grow; 0: as it is, or of a new one at least 1 GiB. It takes addresses only.
    pub max_size: u64,
}

/// The place of a value in a heap, or null. It may lie in a heap itself, and stays right in every run. The heap looks
/// whether a block in use begins there that is large enough, before it gives access to it.
#[repr(transparent)]
pub struct Ptr<T> {
    address: u64,
    of: PhantomData<fn() -> T>,
}

impl<T> Ptr<T> {
    #[must_use]
    pub const fn null() -> Self {
        Self { address: 0, of: PhantomData }
    }

    #[must_use]
    pub fn is_null(self) -> bool {
        self.address == 0
    }

    fn at(address: *mut std::ffi::c_void) -> Self {
        Self { address: address as u64, of: PhantomData }
    }
}

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Ptr<T> {}
impl<T> Default for Ptr<T> {
    fn default() -> Self {
        Self::null()
    }
}
impl<T> PartialEq for Ptr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}
impl<T> Eq for Ptr<T> {}
impl<T> fmt::Debug for Ptr<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Ptr({:#x})", self.address)
    }
}

// SAFETY: a number, which the heap checks before it is followed.
unsafe impl<T: 'static> Plain for Ptr<T> {}

/// The place of several values, one behind the other; zeros are none.
#[repr(C)]
pub struct Slice<T> {
    first: Ptr<T>,
    len: u64,
}

impl<T> Slice<T> {
    #[must_use]
    pub const fn empty() -> Self {
        Self { first: Ptr::null(), len: 0 }
    }

    #[must_use]
    pub fn len(self) -> u64 {
        self.len
    }

    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }
}

impl<T> Clone for Slice<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Slice<T> {}
impl<T> Default for Slice<T> {
    fn default() -> Self {
        Self::empty()
    }
}
impl<T> PartialEq for Slice<T> {
    fn eq(&self, other: &Self) -> bool {
        self.first == other.first && self.len == other.len
    }
}
impl<T> Eq for Slice<T> {}
impl<T> fmt::Debug for Slice<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Slice({:#x}, {})", self.first.address, self.len)
    }
}

// SAFETY: two numbers, which the heap checks before they are followed.
unsafe impl<T: 'static> Plain for Slice<T> {}

/// Where the bytes of a heap are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub region_bytes: u64,
    /// Blocks in use, those that hold names included.
    pub blocks: u64,
    pub block_bytes: u64,
    pub free_bytes: u64,
    pub names: u64,
}

/// A heap, open in this process. Whatever is stored in it, and each allocation, is durable after a persist: all of it
/// or none. Threads may read it together.
pub struct Heap {
    raw: *mut sys::memlith_heap,
    read_only: bool,
    store: Store,
}

// SAFETY: any thread may call any function of a heap; the methods that change its memory take it mutably.
unsafe impl Send for Heap {}
unsafe impl Sync for Heap {}

impl Heap {
    /// Opens the heap in region `name`.
    pub fn open(store: &Store, name: &str, options: Options) -> Result<Self> {
        store.need_still_view()?;
        let name = c_string(name)?;
        let plain = sys::memlith_region_options {
            struct_size: size_of::<sys::memlith_region_options>() as u64,
            flags: if options.create { sys::MEMLITH_CREATE } else { 0 },
            tracker: sys::MEMLITH_TRACKER_AUTO,
            size: 0,
            max_size: options.max_size,
            address: 0,
        };
        let read_only = store.info()?.read_only != 0;
        let mut raw = ptr::null_mut();
        // SAFETY: the arguments live during the call.
        check(unsafe { sys::memlith_heap_open(store.raw(), name.as_ptr(), &plain, &mut raw) })?;
        Ok(Self { raw, read_only, store: store.clone() })
    }

    pub(crate) fn region(&self) -> *mut sys::memlith_region {
        // SAFETY: the handle is open.
        unsafe { sys::memlith_heap_region(self.raw) }
    }

    // ---- blocks

    /// A new block with this value. [`Heap::free`] frees it.
    pub fn allocate<T: Plain>(&mut self, value: T) -> Result<Ptr<T>> {
        Ok(self.allocate_slice(&[value])?.first)
    }

    /// A new block with these values, if there are any.
    pub fn allocate_slice<T: Plain>(&mut self, values: &[T]) -> Result<Slice<T>> {
        if values.is_empty() {
            return Ok(Slice::empty());
        }
        let mut block = ptr::null_mut();
        let bytes = std::mem::size_of_val(values) as u64;
        // SAFETY: the handle is open. The block has room for the values, and nothing refers to it yet.
        unsafe {
            check(sys::memlith_heap_allocate(self.raw, bytes, align_of::<T>() as u64, &mut block))?;
            ptr::copy_nonoverlapping(values.as_ptr(), block.cast::<T>(), values.len());
        }
        Ok(Slice { first: Ptr::at(block), len: values.len() as u64 })
    }

    /// Frees a block; null is ignored. Other places of it, and of what it leads to, stay as they are: access to a freed
    /// block is an error, until another block begins there.
    pub fn free<T>(&mut self, place: Ptr<T>) -> Result<()> {
        // SAFETY: the handle is open, and nothing is borrowed; the library looks whether there is a block.
        check(unsafe { sys::memlith_heap_free(self.raw, place.address as *mut _) })
    }

    pub fn free_slice<T>(&mut self, place: Slice<T>) -> Result<()> {
        self.free(place.first)
    }

    /// The value. [`Category::Invalid`](crate::Category::Invalid): no block in use begins there, or one that is too
    /// small.
    pub fn get<T: Plain>(&self, place: Ptr<T>) -> Result<&T> {
        // SAFETY: a block that is large enough, in which every pattern of bits is a value, and which no method changes
        // while the heap is borrowed.
        Ok(unsafe { &*self.block(place, 1)? })
    }

    pub fn get_mut<T: Plain>(&mut self, place: Ptr<T>) -> Result<&mut T> {
        self.need_writable()?;
        // SAFETY: as in get(), and nothing else borrows the heap.
        Ok(unsafe { &mut *self.block(place, 1)? })
    }

    /// The values, with errors as those of [`Heap::get`].
    pub fn slice<T: Plain>(&self, place: Slice<T>) -> Result<&[T]> {
        if place.is_empty() {
            return Ok(&[]);
        }
        // SAFETY: as in get().
        Ok(unsafe { std::slice::from_raw_parts(self.block(place.first, place.len)?, place.len as usize) })
    }

    pub fn slice_mut<T: Plain>(&mut self, place: Slice<T>) -> Result<&mut [T]> {
        self.need_writable()?;
        if place.is_empty() {
            return Ok(&mut []);
        }
        // SAFETY: as in get_mut().
        Ok(unsafe { std::slice::from_raw_parts_mut(self.block(place.first, place.len)?, place.len as usize) })
    }

    /// The address of `count` values, which lie in one block.
    fn block<T>(&self, place: Ptr<T>, count: u64) -> Result<*mut T> {
        let address = place.address as *mut T;
        let mut bytes = 0;
        // SAFETY: the handle is open; the library looks whether there is a block.
        check(unsafe { sys::memlith_heap_block_bytes(self.raw, address.cast(), &mut bytes) })?;
        let wanted = count.checked_mul(size_of::<T>() as u64).filter(|&wanted| wanted <= bytes);
        if wanted.is_none() || place.address % align_of::<T>() as u64 != 0 {
            return Err(Error::invalid(format!(
                "the block at {:#x} has {bytes} bytes, and holds no {count} of {}",
                place.address,
                std::any::type_name::<T>()
            )));
        }
        Ok(address)
    }

    fn need_writable(&self) -> Result<()> {
        if self.read_only {
            return Err(Error::of_code(sys::MEMLITH_READ_ONLY as i32, "the heap cannot be changed"));
        }
        Ok(())
    }

    // ---- names

    /// The value from which the program finds everything else: zeros when it is first asked for. Size, alignment and
    /// `version` are compared: raise the version when the meaning of the bytes changes.
    /// [`Category::Incompatible`](crate::Category::Incompatible): they are others.
    pub fn root<T: Plain>(&mut self, version: u32) -> Result<Ptr<T>> {
        let mut root = ptr::null_mut();
        // SAFETY: the arguments live during the call.
        check(unsafe { sys::memlith_heap_root(self.raw, &type_of::<T>(version), &mut root) })?;
        Ok(Ptr::at(root))
    }

    /// Gives the value a name, of up to 255 bytes.
    pub fn set_name<T: Plain>(&mut self, name: &str, place: Ptr<T>, version: u32) -> Result<()> {
        let (name, address) = (c_string(name)?, place.address as *const _);
        // SAFETY: the arguments live during the call; the library looks whether there is a block.
        check(unsafe { sys::memlith_heap_set_name(self.raw, name.as_ptr(), address, &type_of::<T>(version)) })
    }

    /// The value of that name. Errors: as those of [`Heap::root`].
    pub fn find<T: Plain>(&self, name: &str, version: u32) -> Result<Option<Ptr<T>>> {
        let (name, mut object) = (c_string(name)?, ptr::null_mut());
        // SAFETY: the arguments live during the call.
        let code = unsafe { sys::memlith_heap_find(self.raw, name.as_ptr(), &type_of::<T>(version), &mut object) };
        Ok(found(code)?.then(|| Ptr::at(object)))
    }

    /// Takes a name away; the value stays. False: there was none.
    pub fn remove_name(&mut self, name: &str) -> Result<bool> {
        let name = c_string(name)?;
        // SAFETY: the arguments live during the call.
        found(unsafe { sys::memlith_heap_remove_name(self.raw, name.as_ptr()) })
    }

    // ---- durability

    /// Makes all changes and allocations durable, or none.
    pub fn persist(&mut self) -> Result<()> {
        // SAFETY: the handle is open, and nothing is borrowed.
        check(unsafe { sys::memlith_heap_persist(self.raw) })
    }

    /// Captures the same. [`Store::wait`] waits until what the ticket stands for is durable.
    pub fn persist_async(&mut self) -> Result<u64> {
        let (region, mut ticket) = (self.region(), 0);
        // SAFETY: as persist().
        check(unsafe { sys::memlith_persist_async(&region, 1, sys::MEMLITH_SCOPE_PROCESS, &mut ticket) })?;
        Ok(ticket)
    }

    /// Puts the heap back to what was last persisted.
    pub fn rollback(&mut self) -> Result<()> {
        // SAFETY: as persist().
        check(unsafe { sys::memlith_rollback(&self.region(), 1, sys::MEMLITH_SCOPE_PROCESS) })
    }

    /// Runs `change`, and makes durable what it changed and allocated. If it fails or panics, or the change cannot be
    /// made durable, the heap is as it was before, with its blocks and names. See
    /// [`Region::transact`](crate::region::Region::transact).
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
        let (store, region) = (self.store.clone(), self.region());
        undoing(&store, region, durability, || change(self))
    }

    /// Checks every structure of the heap. Fails with [`Category::Corrupt`](crate::Category::Corrupt) and the place.
    pub fn verify(&self) -> Result<Report> {
        let mut report = sized!(sys::memlith_heap_report);
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_heap_verify(self.raw, &mut report) })?;
        let sys::memlith_heap_report { region_bytes, blocks, block_bytes, free_bytes, names, .. } = report;
        Ok(Report { region_bytes, blocks, block_bytes, free_bytes, names })
    }
}

fn type_of<T>(version: u32) -> sys::memlith_type {
    sys::memlith_type {
        struct_size: size_of::<sys::memlith_type>() as u64,
        name: b"Rust\0".as_ptr().cast(), // the compiler's name of a type may change from one compiler to the next
        size: size_of::<T>() as u64,
        alignment: align_of::<T>() as u32,
        layout: version,
    }
}

impl InStore for Heap {
    fn store(&self) -> Option<&Store> {
        Some(&self.store)
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: nothing borrows it.
        unsafe { sys::memlith_heap_close(self.raw) };
    }
}
