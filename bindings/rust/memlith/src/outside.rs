//! Looking at a store from outside, also while a process uses it: copies and checks.

use std::ffi::{c_char, c_void, CStr};
use std::path::Path;
use std::ptr;

use memlith_sys as sys;

use crate::error::{check, Result};
use crate::store::{c_path, Store};

/// Counters and latencies of a store; `memlith_stats` of `memlith/store.h`.
pub type Stats = sys::memlith_stats;

/// Facts and counters of a store; `memlith_store_info` of `memlith/store.h`.
pub type Info = sys::memlith_store_info;

/// The findings of [`verify`]; `memlith_report` of `memlith/store.h`.
pub type Report = sys::memlith_report;

/// A copy that was made; `memlith_copy_report` of `memlith/copy.h`.
pub type CopyReport = sys::memlith_copy_report;

impl Store {
    /// Counters and latencies since opening. [`Category::ReadOnly`](crate::Category::ReadOnly): the store is only read.
    pub fn stats(&self) -> Result<Stats> {
        let _view = self.same_view();
        let mut stats = sized!(Stats);
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_store_get_stats(self.raw(), &mut stats) })?;
        Ok(stats)
    }

    pub fn info(&self) -> Result<Info> {
        let _view = self.same_view();
        let mut info = sized!(Info);
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_store_get_info(self.raw(), &mut info) })?;
        Ok(info)
    }
}

/// Checks every structure of the store at `path` on the disk, and changes nothing. The error is the first fault.
pub fn verify(path: impl AsRef<Path>) -> Result<Report> {
    let path = c_path(path.as_ref())?;
    let mut report = sized!(Report);
    // SAFETY: the arguments live during the call.
    check(unsafe { sys::memlith_verify(path.as_ptr(), &mut report) })?;
    Ok(report)
}

/// Copies a whole store, as one durable commit left it, to a name that does not exist yet. The copy appears when it is
/// whole and durable, or not at all. See `memlith/copy.h`.
pub fn copy_store(path: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<CopyReport> {
    let (path, target) = (c_path(path.as_ref())?, c_path(target.as_ref())?);
    let mut report = sized!(CopyReport);
    // SAFETY: the arguments live during the call; the options may be null.
    check(unsafe { sys::memlith_store_copy(path.as_ptr(), target.as_ptr(), ptr::null(), &mut report) })?;
    Ok(report)
}

/// The findings of [`check_data`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataReport {
    /// Every commit before it was looked at.
    pub ticket: u64,
    /// Blocks of 4096 bytes that were read.
    pub blocks: u64,
    /// Blocks without a known checksum.
    pub blocks_unknown: u64,
    /// Blocks that are not as they were written.
    pub blocks_damaged: u64,
    /// A sentence for each run of damaged blocks.
    pub damaged: Vec<String>,
}

/// Compares the data of the folder store at `path` with the checksums that are kept of it. Changes nothing.
pub fn check_data(path: impl AsRef<Path>) -> Result<DataReport> {
    let path = c_path(path.as_ref())?;
    let mut damaged: Vec<String> = Vec::new();
    let mut report = sized!(sys::memlith_data_report);
    let context = ptr::addr_of_mut!(damaged).cast();
    // SAFETY: the context is what `note` takes it for; there is no progress.
    let code =
        unsafe { sys::memlith_check_data(path.as_ptr(), Some(note), context, None, ptr::null_mut(), &mut report) };
    check(code)?;
    let sys::memlith_data_report { ticket, blocks, blocks_unknown, blocks_damaged, .. } = report;
    Ok(DataReport { ticket, blocks, blocks_unknown, blocks_damaged, damaged })
}

/// # Safety
/// The context is a vector of sentences; the sentence is valid during the call.
unsafe extern "C" fn note(context: *mut c_void, sentence: *const c_char) {
    let all = &mut *context.cast::<Vec<String>>();
    all.push(CStr::from_ptr(sentence).to_string_lossy().into_owned());
}
