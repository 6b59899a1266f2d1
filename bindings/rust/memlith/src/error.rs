//! The error of a call that failed.

use std::{fmt, io};

use memlith_sys as sys;

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// The kind of a failure; `memlith.h` says what a program may do after each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Category {
    /// The call was wrong, or came at a wrong time. Nothing changed.
    Invalid,
    NotFound,
    Exists,
    /// Another process or handle uses the object.
    Busy,
    /// A read, write or flush failed; after a failed write or flush the store is poisoned.
    Io,
    Corrupt,
    /// Another format version, or another structure.
    Incompatible,
    /// More than the log may hold.
    Full,
    /// The file system is full.
    NoSpace,
    /// An earlier write or flush failed: reopen the store.
    Poisoned,
    Permission,
    ReadOnly,
    /// The addresses of a region are in use in this process.
    AddressTaken,
    Unsupported,
    NoMemory,
    TooManyFiles,
    /// Another transaction had a lock: begin anew.
    Conflict,
    /// One that this crate does not know.
    Other(u32),
}

/// A failure: its category, its code, and the sentence of the library, which says what was found and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    code: i32,
    message: String,
}

impl Error {
    #[must_use]
    pub fn category(&self) -> Category {
        match sys::memlith_category(self.code) {
            sys::MEMLITH_INVALID => Category::Invalid,
            sys::MEMLITH_NOT_FOUND => Category::NotFound,
            sys::MEMLITH_EXISTS => Category::Exists,
            sys::MEMLITH_BUSY => Category::Busy,
            sys::MEMLITH_IO => Category::Io,
            sys::MEMLITH_CORRUPT => Category::Corrupt,
            sys::MEMLITH_INCOMPATIBLE => Category::Incompatible,
            sys::MEMLITH_FULL => Category::Full,
            sys::MEMLITH_NO_SPACE => Category::NoSpace,
            sys::MEMLITH_POISONED => Category::Poisoned,
            sys::MEMLITH_PERMISSION => Category::Permission,
            sys::MEMLITH_READ_ONLY => Category::ReadOnly,
            sys::MEMLITH_ADDRESS_TAKEN => Category::AddressTaken,
            sys::MEMLITH_UNSUPPORTED => Category::Unsupported,
            sys::MEMLITH_NO_MEMORY => Category::NoMemory,
            sys::MEMLITH_TOO_MANY_FILES => Category::TooManyFiles,
            sys::MEMLITH_CONFLICT => Category::Conflict,
            other => Category::Other(other),
        }
    }

    /// Category and detail, as `memlith.h` has them.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.code
    }

    /// The error of a code that comes without a sentence.
    pub(crate) fn of_code(code: i32, what: &str) -> Self {
        // SAFETY: the library returns a constant string.
        let name = unsafe { std::ffi::CStr::from_ptr(sys::memlith_category_name(code)) };
        Self { code, message: format!("{what}: {}", name.to_string_lossy()) }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self { code: sys::MEMLITH_INVALID as i32, message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.category() {
            Category::Invalid => io::ErrorKind::InvalidInput,
            Category::NotFound => io::ErrorKind::NotFound,
            Category::Exists => io::ErrorKind::AlreadyExists,
            Category::Busy | Category::Conflict => io::ErrorKind::WouldBlock,
            Category::Corrupt | Category::Incompatible => io::ErrorKind::InvalidData,
            Category::Permission => io::ErrorKind::PermissionDenied,
            Category::Unsupported => io::ErrorKind::Unsupported,
            Category::NoMemory => io::ErrorKind::OutOfMemory,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

/// The error of a code that a function has just returned on this thread; its sentence is the thread's last one.
pub(crate) fn check(code: i32) -> Result<()> {
    if sys::memlith_category(code) == sys::MEMLITH_OK {
        return Ok(());
    }
    let mut text = [0u8; 1024];
    // SAFETY: the buffer is as long as said.
    unsafe { sys::memlith_last_error(text.as_mut_ptr().cast(), text.len()) };
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    Err(Error { code, message: String::from_utf8_lossy(&text[..end]).into_owned() })
}

/// True if a close that returned this code has closed nothing, so that the handle stays.
pub(crate) fn still_open(code: i32) -> bool {
    matches!(
        sys::memlith_category(code),
        sys::MEMLITH_BUSY
            | sys::MEMLITH_NO_SPACE
            | sys::MEMLITH_FULL
            | sys::MEMLITH_NO_MEMORY
            | sys::MEMLITH_TOO_MANY_FILES
    )
}

/// NOT_FOUND is no failure here.
pub(crate) fn found(code: i32) -> Result<bool> {
    if sys::memlith_category(code) == sys::MEMLITH_NOT_FOUND {
        return Ok(false);
    }
    check(code).map(|()| true)
}
