//! Each thing of the crate, used as its documentation says, and killed with SIGKILL at random moments: what was
//! acknowledged is there, and every state is whole.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use memlith::applog::{self, AppLog, WhenFull};
use memlith::kv::{Durability, Kv, Map};
use memlith::region::{Plain, Region, Tracker};
use memlith::{Category, Result, Store};

const KILLS: u64 = 12;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
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

fn made(path: &Path) -> Result<Store> {
    Store::options().create(true).open(path)
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

// ---- the interface -------------------------------------------------------------------------------------------------

#[test]
fn records_and_ranges() -> Result<()> {
    let folder = Folder::new("records");
    let store = made(&folder.0.join("s"))?;
    let kv = Kv::open(&store, "kv")?;
    assert_eq!(kv.find_map("m")?, None);
    let map = kv.map("m")?;
    assert_eq!(kv.find_map("m")?, Some(map));
    assert_eq!(kv.maps()?, ["m"]);
    kv.transact(|txn| {
        for key in [&b"a"[..], b"b", b"b\0", b"c", b"d"] {
            txn.put(map, key, &[key, b"!"].concat())?;
        }
        txn.put(map, b"empty", b"")
    })?;
    let failed: Result<()> = kv.transact(|txn| {
        txn.put(map, b"a", b"never")?;
        txn.put(map, b"", b"a key of no bytes")
    });
    assert_eq!(failed.unwrap_err().category(), Category::Invalid);

    let read = kv.read()?;
    assert_eq!(read.get(map, b"a")?, Some(&b"a!"[..]));
    assert_eq!(read.get(map, b"empty")?, Some(&b""[..]));
    assert_eq!(read.get(map, b"no")?, None);
    let keys = |records: memlith::kv::Records<'_>| -> Result<Vec<String>> {
        records.map(|record| Ok(String::from_utf8(record?.0).expect("text"))).collect()
    };
    assert_eq!(keys(read.range::<&str>(map, ..)?)?, ["a", "b", "b\0", "c", "d", "empty"]);
    assert_eq!(keys(read.range(map, "b".."d")?)?, ["b", "b\0", "c"]);
    assert_eq!(keys(read.range(map, "b"..="d")?)?, ["b", "b\0", "c", "d"]);
    let behind = (std::ops::Bound::Excluded("b"), std::ops::Bound::Unbounded);
    assert_eq!(keys(read.range::<&str>(map, behind)?)?[0], "b\0");
    assert_eq!(keys(read.range(map, "x"..)?)?, Vec::<String>::new());
    let backwards: Vec<_> = read.range(map, "a"..="c")?.rev().map(|record| record.map(|each| each.0)).collect();
    assert_eq!(backwards.into_iter().collect::<Result<Vec<_>>>()?, [&b"c"[..], b"b\0", b"b", b"a"]);
    let mut both = read.range(map, "a".."d")?;
    let (mut seen, mut front) = (Vec::new(), true);
    while let Some(record) = if front { both.next() } else { both.next_back() } {
        seen.push(record?.0);
        front = !front;
    }
    assert_eq!(seen, [&b"a"[..], b"c", b"b", b"b\0"], "the two ends meet, and each record comes once");
    assert!(both.next().is_none() && both.next_back().is_none());
    drop(both);

    assert!(kv.transact(|txn| txn.remove(map, b"a"))?);
    assert!(!kv.transact(|txn| txn.remove(map, b"a"))?);
    assert_eq!(read.get(map, b"a")?, Some(&b"a!"[..]), "the snapshot stays");
    drop(read);
    assert_eq!(kv.read()?.get(map, b"a")?, None);
    kv.verify()?;
    assert_eq!(store.clone().close().unwrap_err().category(), Category::Invalid, "the kv store is open");
    kv.close()?;
    store.close()
}

#[test]
fn a_store_that_follows_shows_the_newest_commit_after_refresh() -> Result<()> {
    let folder = Folder::new("refresh");
    let writer = made(&folder.0.join("s"))?;
    let kv = Kv::open(&writer, "kv")?;
    let map = kv.map("m")?;
    let log = AppLog::open(&writer, "log", applog::Options { create: true, ..Default::default() })?;
    let mut follower = Store::options().follow(true).open(folder.0.join("s"))?;
    let mut copied = Kv::open(&follower, "kv")?;
    let mut entries = AppLog::open(&follower, "log", applog::Options::default())?;
    let seen = copied.find_map("m")?.expect("the map is durable");

    kv.transact(|txn| txn.put(map, b"key", b"new"))?;
    log.append(b"entry")?;
    log.write()?;
    assert_eq!(copied.read()?.get(seen, b"key")?, None, "the view has moved without refresh");
    let refused = follower.refresh(&mut [&mut copied]).unwrap_err();
    assert_eq!(refused.category(), Category::Invalid, "the log could be in use");
    let clone = follower.clone();
    assert!(follower.refresh(&mut [&mut copied, &mut entries]).is_err(), "the clone could be in use");
    drop(clone);
    assert!(follower.refresh(&mut [&mut copied, &mut entries])? >= kv.durable());
    assert_eq!(copied.read()?.get(seen, b"key")?, Some(&b"new"[..]));
    let mut reader = entries.reader()?;
    assert_eq!(reader.read(Duration::ZERO)?.map(|entry| entry.content.to_vec()), Some(b"entry".to_vec()));
    Ok(())
}

fn names(records: memlith::kv::Records<'_>) -> Result<Vec<Vec<u8>>> {
    records.map(|record| Ok(record?.0)).collect()
}

#[test]
fn one_wait_for_all_structures() -> Result<()> {
    let folder = Folder::new("tickets");
    let store = made(&folder.0.join("s"))?;
    let kv = Kv::open(&store, "kv")?;
    let map = kv.map("m")?;
    let log = AppLog::open(&store, "log", applog::Options { create: true, ..Default::default() })?;
    let mut txn = kv.begin()?;
    txn.put(map, b"a", b"1")?;
    let ticket = txn.commit(Durability::Weak)?;
    let entry = log.append(b"entry")?;
    assert!(store.newest() >= ticket);
    store.wait(store.newest())?;
    assert!(store.durable() >= ticket && kv.durable() >= ticket && log.durable() >= entry);
    Ok(())
}

#[test]
fn compare_and_swap() -> Result<()> {
    let folder = Folder::new("swap");
    let kv = Kv::open(&made(&folder.0.join("s"))?, "kv")?;
    let map = kv.map("m")?;
    kv.transact(|txn| {
        assert!(!txn.put_if(map, b"k", Some(b""), Some(b"never"))?);
        assert!(txn.put_if(map, b"k", None, Some(b""))?);
        assert!(!txn.put_if(map, b"k", None, Some(b"never"))?);
        assert!(txn.put_if(map, b"k", Some(b""), Some(b"1"))?);
        assert!(!txn.put_if(map, b"k", Some(b"2"), None)?);
        assert_eq!(txn.get(map, b"k")?, Some(&b"1"[..]));
        assert!(txn.put_if(map, b"k", Some(b"1"), None)?);
        assert_eq!(txn.get(map, b"k")?, None);
        Ok(())
    })?;
    let mut one = kv.begin()?;
    assert!(!one.put_if(map, b"k", Some(b"1"), None)?, "read, and so locked");
    let mut two = kv.begin()?;
    assert_eq!(two.put(map, b"k", b"two").unwrap_err().category(), Category::Conflict);
    Ok(())
}

#[test]
fn removed_ranges_prefixes_and_estimates() -> Result<()> {
    let folder = Folder::new("ranges");
    let kv = Kv::open(&made(&folder.0.join("s"))?, "kv")?;
    let map = kv.map("m")?;
    let all: [&[u8]; 7] = [b"a", b"a\0", b"a\xff", b"a\xff\xff", b"ab", b"b", b"c"];
    kv.transact(|txn| all.iter().try_for_each(|key| txn.put(map, key, b"value")))?;

    let read = kv.read()?;
    assert_eq!(names(read.prefix(map, b"a")?)?, [&b"a"[..], b"a\0", b"ab", b"a\xff", b"a\xff\xff"]);
    assert_eq!(names(read.prefix(map, b"a\xff")?)?, [&b"a\xff"[..], b"a\xff\xff"]);
    assert_eq!(names(read.prefix(map, b"")?)?.len(), 7);
    assert!(names(read.prefix(map, b"d")?)?.is_empty());
    let last = read.prefix(map, b"a")?.next_back().expect("a record")?;
    assert_eq!(last.0, b"a\xff\xff");
    assert!(names(read.range(map, "c".."a")?)?.is_empty());
    assert!(names(read.range(map, ..="")?)?.is_empty());
    assert_eq!(read.estimate::<&str>(map, ..)?.records, 7);
    assert_eq!(read.estimate(map, "b"..="c")?, memlith::kv::Estimate { records: 2, bytes: 12 });

    let mut one = kv.begin()?;
    assert_eq!(one.remove_range(map, "a".."b")?, 5);
    assert_eq!(names(one.range::<&str>(map, ..)?)?, [b"b", b"c"]);
    let mut two = kv.begin()?;
    let met = two.put(map, b"aa", b"a phantom").unwrap_err();
    assert_eq!(met.category(), Category::Conflict);
    one.commit(Durability::Weak)?;
    let mut three = kv.begin()?;
    assert_eq!(names(three.prefix(map, b"b")?)?, [b"b"]);
    kv.transact(|txn| txn.put(map, b"d", b"outside of what is locked"))?;
    assert_eq!(three.estimate::<&str>(map, ..)?.records, 3);
    let behind = (std::ops::Bound::Excluded("b"), std::ops::Bound::Unbounded);
    assert_eq!(three.remove_range::<&str>(map, behind)?, 2);
    three.abort();
    assert_eq!(kv.transact(|txn| txn.remove_range::<&str>(map, ..))?, 3);
    Ok(())
}

#[test]
fn maps_are_filled_in_order() -> Result<()> {
    let folder = Folder::new("append");
    let kv = Kv::open(&made(&folder.0.join("s"))?, "kv")?;
    let map = kv.map("m")?;
    let record = |i: u32| (i.to_be_bytes(), vec![b'v'; (i % 300) as usize]);
    assert_eq!(kv.append(map, (0..5000).map(record))?, 5000);
    assert_eq!(kv.append(map, Vec::<(Vec<u8>, Vec<u8>)>::new())?, 0);
    assert_eq!(kv.append(map, [("x", "1"), ("y", "2")])?, 2);
    assert_eq!(kv.append(map, [("z", "3"), ("a", "4")]).unwrap_err().category(), Category::Invalid);
    let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        kv.append(map, [5u8].iter().map(|_| -> ([u8; 1], [u8; 1]) { panic!("the program's") }))
    }));
    assert_eq!(stopped.unwrap_err().downcast_ref::<&str>(), Some(&"the program's"));
    let mut user = kv.begin()?;
    user.put(map, b"0", b"")?;
    assert_eq!(kv.append(map, [("zz", "")]).unwrap_err().category(), Category::Conflict);
    user.abort();

    let read = kv.read()?;
    for i in [0, 1, 299, 300, 4999] {
        let (key, value) = record(i);
        assert_eq!(read.get(map, &key)?, Some(&value[..]));
    }
    assert_eq!(read.get(map, b"y")?, Some(&b"2"[..]));
    kv.verify()
}

#[test]
fn conflicts_are_tried_again() -> Result<()> {
    let folder = Folder::new("conflicts");
    let kv = Kv::open(&made(&folder.0.join("s"))?, "kv")?;
    let map = kv.map("m")?;
    let mut one = kv.begin()?;
    one.put(map, b"k", b"one")?;
    let mut two = kv.begin()?;
    assert_eq!(two.put(map, b"k", b"two").unwrap_err().category(), Category::Conflict);
    drop(two);
    one.abort();
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..25 {
                    kv.transact_with(Durability::Weak, |txn| {
                        let count = txn.get(map, b"count")?.map_or(0, number);
                        txn.put(map, b"count", &(count + 1).to_le_bytes())
                    })
                    .expect("a commit");
                }
            });
        }
    });
    kv.persist()?;
    assert_eq!(kv.read()?.get(map, b"count")?.map(number), Some(100));
    Ok(())
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Counters {
    runs: u64,
    rows: [u64; 512], // two pages: each as the other in every persisted state
}

// SAFETY: numbers in C's layout.
unsafe impl Plain for Counters {}

#[test]
fn regions_have_a_typed_root() -> Result<()> {
    let folder = Folder::new("regions");
    for tracker in [Tracker::Auto, Tracker::Explicit] {
        let path = folder.0.join(format!("{tracker:?}"));
        let address = {
            let mut region = Region::open(&made(&path)?, "r", 1 << 16, tracker)?;
            // SAFETY: the region has never held another type.
            unsafe { region.root::<Counters>() }?.runs = 7;
            region.touch(0, 8)?;
            region.persist()?;
            unsafe { region.root::<Counters>() }?.runs = 8;
            region.touch(0, 8)?;
            region.rollback()?;
            assert_eq!(unsafe { region.root::<Counters>() }?.runs, 7);
            region.address()
        };
        let mut region = Region::open(&Store::open(&path)?, "r", 0, tracker)?;
        assert_eq!(region.address(), address);
        assert_eq!(unsafe { region.root::<Counters>() }?.runs, 7);
        // SAFETY: refused before any byte is looked at.
        let too_large = unsafe { region.root::<[u64; 1 << 20]>() };
        assert_eq!(too_large.err().map(|error| error.category()), Some(Category::Invalid));
    }
    Ok(())
}

#[test]
fn errors_say_what_happened() {
    let folder = Folder::new("errors");
    let missing = Store::open(folder.0.join("none")).err().expect("there is no store");
    assert_eq!(missing.category(), Category::NotFound);
    assert!(missing.to_string().contains("none"), "{missing}");
    assert_eq!(std::io::Error::from(missing).kind(), std::io::ErrorKind::NotFound);
    let store = made(&folder.0.join("s")).expect("a store");
    let busy = made(&folder.0.join("s")).err().expect("the store is open");
    assert_eq!(busy.category(), Category::Busy);
    let path = folder.0.join("s");
    let waits = std::thread::spawn(move || {
        Store::options().open_wait(Duration::from_secs(600)).open(path).map(drop)
    });
    drop(store);
    assert!(waits.join().expect("no panic").is_ok(), "an opening waits until the last handle is dropped");
    assert!(made(&folder.0.join("s")).is_ok(), "dropping the last handle closes the store");
    assert_eq!(memlith::version(), env!("CARGO_PKG_VERSION"));
}

// ---- under kill -9 -------------------------------------------------------------------------------------------------

/// Runs the test `role` of this program in another process, which prints what it has made durable, and kills it after
/// some of it. Returns the last number that the process acknowledged.
fn killed(role: &str, path: &Path, lines: u64) -> u64 {
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

fn store_of_child() -> Store {
    let path = std::env::var_os("MEMLITH_RUST_STORE").expect("this test is run by another one, which kills it");
    made(Path::new(&path)).expect("the store")
}

fn rows(txn: &memlith::kv::Snapshot<'_>, map: Map) -> Result<Vec<u64>> {
    txn.range::<&str>(map, ..)?.map(|record| Ok(number(&record?.1))).collect()
}

#[test]
#[ignore = "a child, which another test kills"]
fn child_commits() {
    let kv = Kv::open(&store_of_child(), "kv").expect("a kv store");
    let map = kv.map("m").expect("a map");
    let first = rows(&kv.read().expect("a snapshot"), map).expect("rows").first().copied().unwrap_or(0);
    for round in first + 1.. {
        kv.transact(|txn| (0..40u64).try_for_each(|row| txn.put(map, &row.to_be_bytes(), &round.to_le_bytes())))
            .expect("a commit");
        println!("durable {round}");
    }
}

#[test]
fn commits_survive_kill() -> Result<()> {
    let folder = Folder::new("kill-kv");
    let path = folder.0.join("s");
    for kill in 1..=KILLS {
        let acknowledged = killed("child_commits", &path, 3 * kill);
        let kv = Kv::open(&Store::open(&path)?, "kv")?;
        kv.verify()?;
        let rows = rows(&kv.read()?, kv.map("m")?)?;
        assert_eq!(rows.len(), 40);
        assert!(rows.iter().all(|&row| row == rows[0]), "half of a commit: {rows:?}");
        assert!(rows[0] == acknowledged || rows[0] == acknowledged + 1, "{} after {acknowledged}", rows[0]);
    }
    Ok(())
}

#[test]
#[ignore = "a child, which another test kills"]
fn child_persists() {
    let mut region = Region::open(&store_of_child(), "r", 1 << 16, Tracker::Auto).expect("a region");
    loop {
        // SAFETY: the region has never held another type.
        let counters = unsafe { region.root::<Counters>() }.expect("a root");
        counters.runs += 1;
        let runs = counters.runs;
        counters.rows.fill(runs);
        region.persist().expect("a persist");
        println!("durable {runs}");
    }
}

#[test]
fn regions_survive_kill() -> Result<()> {
    let folder = Folder::new("kill-region");
    let path = folder.0.join("s");
    for kill in 1..=KILLS {
        let acknowledged = killed("child_persists", &path, 3 * kill);
        let mut region = Region::open(&Store::open(&path)?, "r", 0, Tracker::Auto)?;
        // SAFETY: the child stored a Counters.
        let counters = unsafe { region.root::<Counters>() }?;
        assert!(counters.rows.iter().all(|&row| row == counters.runs), "half of a persist");
        assert!([acknowledged, acknowledged + 1].contains(&counters.runs), "{} after {acknowledged}", counters.runs);
    }
    Ok(())
}

/// Appends operations, and moves each into the kv store in one commit with the position in the log.
#[test]
#[ignore = "a child, which another test kills"]
fn child_moves_operations() {
    let store = store_of_child();
    let kv = Kv::open(&store, "kv").expect("a kv store");
    let map = kv.map("m").expect("a map");
    let options = applog::Options { create: true, when_full: WhenFull::Grow, size: 1 << 20, ..Default::default() };
    let log = AppLog::open(&store, "log", options).expect("a log");
    let mut reader = log.reader().expect("a reader");
    assert!(log.reader().is_err(), "one at a time reads");
    loop {
        let appended = log.append(b"one more").expect("an entry");
        log.write().expect("a write");
        println!("durable {appended}");
        while let Some(entry) = reader.read(Duration::ZERO).expect("an entry") {
            assert_eq!(entry.content, b"one more");
            let number_read = entry.number;
            let mut txn = kv.begin().expect("a transaction");
            let count = txn.get(map, b"count").expect("a record").map_or(0, number);
            txn.put(map, b"count", &(count + 1).to_le_bytes()).expect("a record");
            let mut both = store.begin().expect("a transaction of the store");
            both.join(txn).expect("a part");
            both.consume(&reader, number_read).expect("a part");
            both.commit().expect("a commit");
        }
    }
}

#[test]
fn each_operation_counts_once_under_kill() -> Result<()> {
    let folder = Folder::new("kill-log");
    let path = folder.0.join("s");
    for kill in 1..=KILLS {
        let acknowledged = killed("child_moves_operations", &path, 3 * kill);
        let store = Store::open(&path)?;
        let kv = Kv::open(&store, "kv")?;
        let map = kv.map("m")?;
        let counted = kv.read()?.get(map, b"count")?.map_or(0, number);
        let log = AppLog::open(&store, "log", applog::Options::default())?;
        let mut waiting = 0;
        let mut reader = log.reader()?;
        while let Some(entry) = reader.read(Duration::ZERO)? {
            waiting += 1;
            assert_eq!(entry.number, counted + waiting, "consumed and not counted, or the other way round");
        }
        assert!(counted + waiting >= acknowledged, "{counted} counted, {waiting} waiting, {acknowledged} acknowledged");
        assert!(counted + waiting <= acknowledged + 1);
    }
    Ok(())
}
