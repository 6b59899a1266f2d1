//! memlith for Rust: data that survives kill -9, kernel crashes and power loss.
//!
//! ```no_run
//! use memlith::{kv::Kv, Store};
//!
//! fn main() -> memlith::Result<()> {
//!     let store = Store::options().create(true).open("app-store")?;
//!     let kv = Kv::open(&store, "kv")?;
//!     let runs = kv.map("runs")?;
//!     let count = kv.transact(|txn| {
//!         let count = txn.get(runs, b"count")?.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap())) + 1;
//!         txn.put(runs, b"count", &count.to_le_bytes())?;
//!         Ok(count)
//!     })?; // durable here
//!     println!("run {count}");
//!     Ok(())
//! }
//! ```
//!
//! - [`Store`] keeps everything else: a folder, or one file.
//! - [`kv::Kv`] is an ordered key-value store with serialisable transactions.
//! - [`applog::AppLog`] is a log of operations, on the disk before a server answers.
//! - [`heap::Heap`] is memory in blocks that lead to each other, checked at each access.
//! - [`region::Region`] is plain memory at a fixed address, with a typed root, which is `unsafe`.
//!
//! [`archive`], [`copy_store`], [`verify`] and [`check_data`] look at a store from outside, also while a process uses
//! it.
//!
//! Each of the structures keeps its store open. The store closes when the last of them is dropped; to learn whether
//! that worked, call `close` of each, and of the store last. What is promised, call by call, is in
//! `docs/guarantees.md`.

/// A struct of the library that tells its size, and is zeros else.
macro_rules! sized {
    ($type:ty) => {{
        // SAFETY: a struct of numbers, letters and pointers that may be null.
        let mut plain: $type = unsafe { std::mem::zeroed() };
        plain.struct_size = std::mem::size_of_val(&plain) as u64;
        plain
    }};
}

mod error;
mod outside;
mod store;

pub mod applog;
pub mod archive;
pub mod heap;
pub mod kv;
pub mod region;

pub use error::{Category, Error, Result};
pub use outside::{check_data, copy_store, verify, CopyReport, DataReport, Info, Report, Stats};
pub use store::{Opened, Store, StoreOptions, Transaction};

/// The version of the library, such as "0.1.0".
#[must_use]
pub fn version() -> &'static str {
    // SAFETY: the library returns a constant string.
    unsafe { std::ffi::CStr::from_ptr(memlith_sys::memlith_version()) }.to_str().unwrap_or("?")
}
