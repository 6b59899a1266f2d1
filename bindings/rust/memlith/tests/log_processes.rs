//! An application log of several processes: children of this program append to it beside this one, and are killed.

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use memlith::applog::{AppLog, Options, SharedOptions, WhenFull};
use memlith::{Category, Result, Store};
use support::{killed, Folder, KILLS};

/// The command `memlith`, which is the keeper. Without it there is nothing to test.
fn program() -> Option<PathBuf> {
    let named = std::env::var_os("MEMLITH_COMMAND").map(PathBuf::from);
    if named.is_none() {
        println!("skipped: MEMLITH_COMMAND does not name the command memlith, which is the keeper");
    }
    named
}

fn open(path: &Path, program: PathBuf) -> Result<AppLog> {
    let log = Options { create: true, when_full: WhenFull::Grow, ..Default::default() };
    AppLog::open_shared(path, "log", SharedOptions { log, program: Some(program), ..Default::default() })
}

#[test]
#[ignore = "a child, which another test kills"]
fn child_of_several() {
    let path = std::env::var_os("MEMLITH_RUST_STORE").expect("this test is run by another one, which kills it");
    let log = open(Path::new(&path), program().expect("the keeper")).expect("a log");
    for entry in 1..=1_000_000 {
        log.append(b"of a child").expect("room");
        log.write().expect("a write");
        println!("durable {entry}");
    }
}

#[test]
fn processes_append_to_one_log_and_survive_kills() -> Result<()> {
    let Some(program) = program() else { return Ok(()) };
    let folder = Folder::new("log-processes");
    let path = folder.0.join("s");
    let log = open(&path, program.clone())?;
    let theirs = std::thread::scope(|threads| -> Result<u64> {
        let child =
            threads.spawn(|| (1..=KILLS / 2).map(|kill| killed("child_of_several", &path, 3 * kill)).sum::<u64>());
        for _ in 0..50 {
            log.append(b"own")?;
            let ticket = log.write_weak()?;
            log.wait(ticket)?;
        }
        Ok(child.join().expect("no panic"))
    })?;
    log.write()?;
    let (mut own, mut of_children) = (0, 0);
    let mut reader = log.reader()?;
    while let Some(entry) = reader.read(Duration::ZERO)? {
        match entry.content {
            b"own" => own += 1,
            b"of a child" => of_children += 1,
            other => panic!("{other:?}"),
        }
    }
    reader.consume(1)?;
    drop(reader);
    assert_eq!(own, 50);
    assert!((theirs..=theirs + KILLS / 2).contains(&of_children), "{of_children}, and {theirs} were acknowledged");
    assert_eq!(open(&path, program)?.info()?.consumed, 1);
    assert_eq!(log.wait(u64::MAX).unwrap_err().category(), Category::Invalid);
    log.close()?;

    // The keeper ends, and the store is an ordinary one.
    let store = Store::options().open_wait(Duration::from_secs(600)).open(&path)?;
    let log = AppLog::open(&store, "log", Options::default())?;
    assert_eq!(log.info()?.newest, own + of_children);
    Ok(())
}
