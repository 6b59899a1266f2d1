//! Archives of a store, restoring from them, and warm standbys, all beside the process that writes. The manual is
//! `docs/backup.md`; `memlith/archive.h` states the contract of each call.
//!
//! ```no_run
//! use memlith::archive::{self, Archive, Target};
//!
//! fn main() -> memlith::Result<()> {
//!     let target = Target::folder("shop-archive")?;
//!     let mut archive = Archive::open("shop", &target, &archive::Options::default())?;
//!     for _ in 0..100 {
//!         archive.step()?; // an error loses nothing: the next step tries again
//!         std::thread::sleep(std::time::Duration::from_millis(200));
//!     }
//!     archive.close()?; // what was durable when the call began is in the archive
//!     archive::restore(&target, "shop-again", &archive::RestoreOptions::default())?;
//!     Ok(())
//! }
//! ```

use std::ffi::{c_char, c_void, CStr, CString};
use std::path::Path;
use std::ptr;
use std::time::Duration;

use memlith_sys as sys;

use crate::error::{check, Result};
use crate::store::{c_path, c_string, milliseconds};

/// Where an archive lies.
#[derive(Clone, Debug)]
pub struct Target {
    folder: Option<CString>,
    commands: [Option<CString>; 3],
}

impl Target {
    /// A folder, which is made if it is missing.
    pub fn folder(path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self { folder: Some(c_path(path.as_ref())?), commands: [None, None, None] })
    }

    /// Commands of the shell, in which %n stands for the name of an object: `put` gets the object as its input, `get`
    /// writes the object to its output, `remove` removes the object.
    pub fn commands(put: &str, get: &str, remove: Option<&str>) -> Result<Self> {
        let commands = [Some(c_string(put)?), Some(c_string(get)?), remove.map(c_string).transpose()?];
        Ok(Self { folder: None, commands })
    }

    /// The strings stay those of the target.
    fn plain(&self) -> sys::memlith_archive_target {
        let given = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        sys::memlith_archive_target {
            struct_size: std::mem::size_of::<sys::memlith_archive_target>() as u64,
            folder: given(&self.folder),
            put_command: given(&self.commands[0]),
            get_command: given(&self.commands[1]),
            remove_command: given(&self.commands[2]),
        }
    }
}

/// How to archive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// No archive is at the target yet, although no command says so: begin one.
    pub begin_new: bool,
    /// Full copies are made of damaged data, too.
    pub damaged: bool,
    /// How long frames wait to share a segment; 0: 500 ms.
    pub wait: Duration,
    /// Between full copies; 0: a day; [`NEVER`]: only where they are needed.
    pub full_every: Duration,
    /// How far back states stay restorable; 0: a week; [`NEVER`]: all.
    pub keep: Duration,
    /// Up to this size the store's log waits for the archive; 0: it does not.
    pub keep_log_bytes: u64,
}

/// For the times of [`Options`].
pub const NEVER: Duration = Duration::MAX;

/// The content of an archive; `memlith_archive_progress` of `memlith/archive.h`.
pub type Progress = sys::memlith_archive_progress;

/// An archiver of a store. One thread at a time uses it; dropping it archives what is durable, and drops errors.
pub struct Archive {
    raw: *mut sys::memlith_archive,
}

// SAFETY: any thread may call the functions, one at a time.
unsafe impl Send for Archive {}

impl Archive {
    /// Goes on with the archive of the store at that path, or begins one with a full copy.
    pub fn open(store: impl AsRef<Path>, target: &Target, options: &Options) -> Result<Self> {
        let path = c_path(store.as_ref())?;
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        let seconds = |time: Duration| if time == NEVER { u64::MAX } else { time.as_secs() };
        let plain = sys::memlith_archive_options {
            struct_size: std::mem::size_of::<sys::memlith_archive_options>() as u64,
            flags: flag(options.begin_new, sys::MEMLITH_ARCHIVE_NEW)
                | flag(options.damaged, sys::MEMLITH_ARCHIVE_DAMAGED),
            reserved: 0,
            wait_ms: milliseconds(options.wait),
            full_every_s: seconds(options.full_every),
            keep_s: seconds(options.keep),
            keep_log_bytes: options.keep_log_bytes,
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the arguments live during the call.
        check(unsafe { sys::memlith_archive_open(path.as_ptr(), &target.plain(), &plain, &mut raw) })?;
        Ok(Self { raw })
    }

    /// Looks at the store once, and archives what is due. To be called several times a second.
    pub fn step(&mut self) -> Result<Progress> {
        self.look(sys::memlith_archive_step)
    }

    /// Archives what was durable when the call began.
    pub fn flush(&mut self) -> Result<Progress> {
        self.look(sys::memlith_archive_flush)
    }

    fn look(
        &mut self,
        call: unsafe extern "C" fn(*mut sys::memlith_archive, *mut Progress) -> i32,
    ) -> Result<Progress> {
        let mut progress = sized!(Progress);
        // SAFETY: the handle is open.
        check(unsafe { call(self.raw, &mut progress) })?;
        Ok(progress)
    }

    /// Makes a full copy now.
    pub fn copy(&mut self) -> Result<()> {
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_archive_copy(self.raw) })
    }

    /// As [`Archive::flush`], and closes, whatever the result.
    pub fn close(mut self) -> Result<()> {
        // SAFETY: the handle is open, and is freed in every case.
        check(unsafe { sys::memlith_archive_close(std::mem::replace(&mut self.raw, ptr::null_mut())) })
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        // SAFETY: null is ignored.
        unsafe { sys::memlith_archive_close(self.raw) };
    }
}

/// One stretch of a store's history, without a gap; `memlith_archive_run` of `memlith/archive.h`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    pub number: u64,
    /// "first", "gap", "history", "log" or "changed".
    pub why: String,
    /// The earliest state that can be restored, and the latest one; both 0: none can.
    pub begin_lsn: u64,
    pub end_lsn: u64,
    /// Since 1970.
    pub begin_ns: u64,
    pub end_ns: u64,
    pub segments: u64,
    pub segment_bytes: u64,
    pub full_copies: u64,
    pub full_bytes: u64,
}

/// The runs of an archive, in order.
pub fn runs(target: &Target) -> Result<Vec<Run>> {
    let mut all: Vec<Run> = Vec::new();
    // SAFETY: the context is what `note_run` takes it for.
    check(unsafe { sys::memlith_archive_list(&target.plain(), Some(note_run), ptr::addr_of_mut!(all).cast()) })?;
    Ok(all)
}

/// # Safety
/// The context is a vector of runs; the run is valid during the call.
unsafe extern "C" fn note_run(context: *mut c_void, run: *const sys::memlith_archive_run) {
    let (all, run) = (&mut *context.cast::<Vec<Run>>(), &*run);
    all.push(Run {
        number: run.number,
        why: CStr::from_ptr(run.why.cast::<c_char>()).to_string_lossy().into_owned(),
        begin_lsn: run.begin_lsn,
        end_lsn: run.end_lsn,
        begin_ns: run.begin_ns,
        end_ns: run.end_ns,
        segments: run.segments,
        segment_bytes: run.segment_bytes,
        full_copies: run.full_copies,
        full_bytes: run.full_bytes,
    });
}

/// Which state of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    #[default]
    Latest,
    /// Every commit whose frame begins before it; so a ticket stands for the state with its commit.
    Lsn(u64),
    /// Nanoseconds since 1970: what the store had by then.
    Time(u64),
}

/// How to restore.
#[derive(Clone, Copy, Debug, Default)]
pub struct RestoreOptions {
    pub at: At,
    /// In which an LSN or a time is looked for; 0: in all.
    pub run: u64,
    /// Read and check everything that is needed, and make nothing.
    pub dry: bool,
    /// Where a segment is missing or damaged: the last complete state before it.
    pub as_far_as_can: bool,
}

/// The outcome of a restore; `memlith_restored` of `memlith/archive.h`.
pub type Restored = sys::memlith_restored;

/// Restores a store to `dest`, which must not exist. It appears whole, as the last step, or not at all.
pub fn restore(target: &Target, dest: impl AsRef<Path>, options: &RestoreOptions) -> Result<Restored> {
    let path = c_path(dest.as_ref())?;
    let (at, value) = match options.at {
        At::Latest => (sys::MEMLITH_AT_LATEST, 0),
        At::Lsn(lsn) => (sys::MEMLITH_AT_LSN, lsn),
        At::Time(time) => (sys::MEMLITH_AT_TIME, time),
    };
    let plain = sys::memlith_restore_options {
        struct_size: std::mem::size_of::<sys::memlith_restore_options>() as u64,
        at,
        flags: if options.dry { sys::MEMLITH_RESTORE_DRY } else { 0 }
            | if options.as_far_as_can { sys::MEMLITH_RESTORE_AS_FAR_AS_CAN } else { 0 },
        value,
        run: options.run,
    };
    let mut restored = sized!(Restored);
    // SAFETY: the arguments live during the call.
    check(unsafe { sys::memlith_restore(&target.plain(), path.as_ptr(), &plain, &mut restored) })?;
    Ok(restored)
}

/// A store that follows an archive, until [`promote`] makes it one that can be written.
pub struct Standby {
    raw: *mut sys::memlith_standby,
}

// SAFETY: any thread may call the functions, one at a time.
unsafe impl Send for Standby {}

impl Standby {
    /// Makes the standby in the folder `dest`, or goes on with it.
    pub fn open(target: &Target, dest: impl AsRef<Path>) -> Result<Self> {
        let path = c_path(dest.as_ref())?;
        let mut raw = ptr::null_mut();
        // SAFETY: the arguments live during the call.
        check(unsafe { sys::memlith_standby_open(&target.plain(), path.as_ptr(), &mut raw) })?;
        Ok(Self { raw })
    }

    /// Adds what the archive has by now, and returns the LSN up to which the standby has everything. To be called
    /// about once a second.
    pub fn step(&mut self) -> Result<u64> {
        let mut lsn = 0;
        // SAFETY: the handle is open.
        check(unsafe { sys::memlith_standby_step(self.raw, &mut lsn) })?;
        Ok(lsn)
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        // SAFETY: the handle is open; the standby stays as it is.
        unsafe { sys::memlith_standby_close(self.raw) };
    }
}

/// Makes a standby that no [`Standby`] keeps up to date any more a store that can be written. `path` is the store's.
pub fn promote(path: impl AsRef<Path>) -> Result<()> {
    let path = c_path(path.as_ref())?;
    // SAFETY: the path lives during the call.
    check(unsafe { sys::memlith_promote(path.as_ptr()) })
}
