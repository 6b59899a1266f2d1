//! The C interface of memlith, as `memlith.h`, `kv.h`, `applog.h`, `heap.h`, `copy.h` and `archive.h` declare it: see
//! these headers for what each function promises. The crate `memlith` is the interface for Rust.
//!
//! Everything here is made of the installed headers when the crate is built.
#![no_std]
#![allow(non_camel_case_types, unused_parens)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

/// The category of a code: one of `MEMLITH_OK`, `MEMLITH_INVALID` and so on.
#[must_use]
pub const fn memlith_category(code: i32) -> u32 {
    (code & 0xff) as u32
}

/// The detail of a code: where in memlith it comes from.
#[must_use]
pub const fn memlith_detail(code: i32) -> u32 {
    ((code >> 8) & 0xff) as u32
}
