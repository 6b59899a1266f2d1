//! A folder for each test, and children that are killed.
#![allow(dead_code)] // each program of tests uses a part

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use memlith::{Result, Store};

pub const KILLS: u64 = 12;

pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let base = std::env::var_os("MEMLITH_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let path = base.join(format!("memlith-rust-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn made(path: &Path) -> Result<Store> {
    Store::options().create(true).open(path)
}

/// Runs the test `role` of this program in another process, which prints what it has made durable, and kills it after
/// some of it. Returns the last number that the process acknowledged.
pub fn killed(role: &str, path: &Path, lines: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args([role, "--exact", "--nocapture", "--ignored"])
        .env("MEMLITH_RUST_STORE", path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let (mut last, mut line) = (0, String::new());
    for _ in 0..lines {
        loop {
            line.clear();
            assert_ne!(output.read_line(&mut line).expect("a line"), 0, "the child has ended by itself");
            if let Some(number) = line.strip_prefix("durable ") {
                last = number.trim().parse().expect("a number");
                break;
            }
        }
    }
    child.kill().expect("SIGKILL");
    child.wait().expect("its end");
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("what it had printed");
    let complete = rest.rfind('\n').map_or("", |end| &rest[..end]);
    complete.lines().filter_map(|line| line.strip_prefix("durable ")?.parse().ok()).fold(last, u64::max)
}

pub fn store_of_child() -> Store {
    let path = std::env::var_os("MEMLITH_RUST_STORE").expect("this test is run by another one, which kills it");
    made(Path::new(&path)).expect("the store")
}
