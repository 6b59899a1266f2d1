//! Each thing of the crate, used as its documentation says, and killed with SIGKILL at random moments: what was
//! acknowledged is there, and every state is whole.

mod support;

use std::time::Duration;

use memlith::applog::{self, AppLog, WhenFull};
use memlith::kv::{Durability, Kv, Map};
use memlith::region::{Plain, Region, Tracker};
use memlith::{Category, Result, Store};
use support::{killed, made, store_of_child, Folder, KILLS};

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

#[test]
fn a_store_that_follows_the_newest_commit_needs_no_refresh() -> Result<()> {
    let folder = Folder::new("newest");
    let writer = made(&folder.0.join("s"))?;
    let kv = Kv::open(&writer, "kv")?;
    let map = kv.map("m")?;
    let log = AppLog::open(&writer, "log", applog::Options { create: true, ..Default::default() })?;
    let _region = Region::open(&writer, "r", 1 << 16, Tracker::Auto)?;
    let follower = Store::options().follow_newest(true).open(folder.0.join("s"))?;
    let copied = Kv::open(&follower, "kv")?;
    let entries = AppLog::open(&follower, "log", applog::Options::default())?;
    let seen = copied.find_map("m")?.expect("the map is durable");
    assert_eq!(Region::open(&follower, "r", 0, Tracker::Auto).err().map(|e| e.category()), Some(Category::Invalid));

    let put = |value: u64| kv.transact(|txn| txn.put(map, b"key", &value.to_le_bytes()));
    for value in 0..20 {
        put(value)?;
        assert_eq!(copied.read()?.get(seen, b"key")?.map(number), Some(value));
    }
    let snapshot = copied.read()?;
    put(100)?;
    assert_eq!(copied.read()?.get(seen, b"key")?.map(number), Some(19), "a snapshot keeps the view");
    assert_eq!(snapshot.get(seen, b"key")?.map(number), Some(19));
    let refused = Kv::open_existing(&follower, "kv").err().map(|error| error.category());
    assert_eq!(refused, Some(Category::Invalid), "an opening would move the view of the snapshot");
    drop(snapshot);
    assert_eq!(copied.read()?.get(seen, b"key")?.map(number), Some(100));
    kv.map("later")?;
    assert!(copied.find_map("later")?.is_some());

    let mut reader = entries.reader()?;
    assert_eq!(reader.read(Duration::ZERO)?, None);
    log.append_all(&[b"one", b"two"])?;
    log.write()?;
    assert_eq!(reader.read(Duration::ZERO)?.map(|entry| entry.content.to_vec()), Some(b"one".to_vec()));
    assert_eq!(entries.get(2)?, Some(b"two".to_vec()));
    assert_eq!(entries.info()?.newest, 2);
    assert_eq!(reader.read(Duration::ZERO)?.map(|entry| entry.number), Some(2));

    // Threads that read beside the writer see counts that rise; a reader of the log waits for entries that come.
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| -> Result<()> {
        for _ in 0..4 {
            threads.spawn(|| {
                let mut last = 100;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let read = copied.read().expect("a snapshot");
                    let value = read.get(seen, b"key").expect("a read").map_or(0, number);
                    assert!(value >= last, "{value} after {last}");
                    last = value;
                }
            });
        }
        let waits = threads.spawn(move || reader.read(Duration::from_secs(600)).map(|e| e.map(|e| e.number)));
        for value in 101..300 {
            put(value)?;
        }
        log.append(b"three")?;
        log.write()?;
        assert_eq!(waits.join().expect("no panic")?, Some(3));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    })?;
    assert_eq!(copied.read()?.get(seen, b"key")?.map(number), Some(299));
    copied.close()?;
    entries.close()?;
    follower.close()
}

// Threads whose snapshots overlap all the time do not keep the view where it is.
#[test]
fn snapshots_that_overlap_let_the_view_move_on() -> Result<()> {
    use std::sync::atomic::{AtomicU64, Ordering};
    let folder = Folder::new("overlap");
    let writer = made(&folder.0.join("s"))?;
    let kv = Kv::open(&writer, "kv")?;
    let map = kv.map("m")?;
    let put = |value: u64| kv.transact(|txn| txn.put(map, b"key", &value.to_le_bytes()));
    put(0)?;
    let follower = Store::options().follow_newest(true).open(folder.0.join("s"))?;
    let copied = Kv::open(&follower, "kv")?;
    let seen = copied.find_map("m")?.expect("the map is durable");
    let (newest, stop) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|threads| -> Result<()> {
        for _ in 0..6 {
            threads.spawn(|| {
                while stop.load(Ordering::Relaxed) == 0 {
                    let read = copied.read().expect("a snapshot");
                    newest.fetch_max(read.get(seen, b"key").expect("a read").map_or(0, number), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        }
        let mut late = false;
        for value in 1..=20 {
            put(value)?;
            let end = std::time::Instant::now() + Duration::from_secs(60);
            while newest.load(Ordering::Relaxed) < value && !late {
                late = std::time::Instant::now() > end;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        stop.store(1, Ordering::Relaxed);
        assert!(!late, "the view stands still at {} of 20", newest.load(Ordering::Relaxed));
        Ok(())
    })?;
    copied.close()?;
    follower.close()
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

// docs/guarantees.md, "Kv transaction": what was read is durable when the commit has returned.
#[test]
fn a_read_that_was_committed_is_durable() -> Result<()> {
    let folder = Folder::new("seen");
    let store = made(&folder.0.join("s"))?;
    let kv = Kv::open(&store, "kv")?;
    let map = kv.map("m")?;
    let put = |value: &[u8]| kv.transact_with(Durability::Weak, |txn| txn.put(map, b"a", value));
    put(b"1")?;
    let newest = kv.read()?.commit(Durability::Weak)?;
    assert!(kv.durable() < newest);
    let snapshot = kv.read()?;
    assert_eq!(snapshot.get(map, b"a")?, Some(b"1".as_slice()));
    assert!(snapshot.commit(Durability::Sync)? <= kv.durable());
    put(b"2")?;
    let newest = kv.read()?.commit(Durability::Weak)?;
    assert_eq!(kv.transact(|txn| Ok(txn.get(map, b"a")?.map(<[u8]>::to_vec)))?, Some(b"2".to_vec()));
    assert!(kv.durable() >= newest);
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

/// An error of a program.
#[derive(Debug)]
enum Refused {
    TooPoor(u64),
    Store(memlith::Error),
}

impl From<memlith::Error> for Refused {
    fn from(error: memlith::Error) -> Self {
        Refused::Store(error)
    }
}

#[test]
fn a_transaction_keeps_the_ticket_and_the_callers_error() -> Result<()> {
    let folder = Folder::new("ticket");
    let store = made(&folder.0.join("s"))?;
    let kv = Kv::open(&store, "kv")?;
    let map = kv.map("m")?;
    let (count, ticket) = kv
        .transact_with(Durability::Weak, |txn| {
            txn.put(map, b"k", b"v")?;
            Ok::<_, Refused>(7)
        })
        .expect("a commit");
    assert_eq!(count, 7);
    store.wait(ticket)?;
    assert!(kv.durable() >= ticket);
    let refused = kv.transact_with(Durability::Sync, |txn| {
        txn.put(map, b"k", b"never")?;
        Err::<(), _>(Refused::TooPoor(3))
    });
    assert!(matches!(refused, Err(Refused::TooPoor(3))), "{refused:?}");
    assert_eq!(kv.read()?.get(map, b"k")?, Some(&b"v"[..]));
    let failed = kv.transact_with(Durability::Sync, |txn| Ok::<_, Refused>(txn.put(map, b"", b"a key of no bytes")?));
    assert!(matches!(failed, Err(Refused::Store(error)) if error.category() == Category::Invalid));

    // A conflict begins again, also where it comes back as an error of the caller's, or does not come back.
    for passed_on in [true, false] {
        let mut other = Some(kv.begin()?);
        other.as_mut().expect("open").put(map, b"k", b"other")?;
        let mut runs = 0;
        let (_, _) = kv
            .transact_with(Durability::Sync, |txn| {
                runs += 1;
                if runs == 2 {
                    other.take().map(|other| other.commit(Durability::Weak)).transpose()?;
                }
                match txn.put(map, b"k", b"mine") {
                    Err(_) if passed_on => Err(Refused::TooPoor(0)),
                    _ => Ok(()),
                }
            })
            .expect("a commit");
        assert!(runs >= 2);
        assert_eq!(kv.read()?.get(map, b"k")?, Some(&b"mine"[..]));
    }
    Ok(())
}

#[test]
fn a_callback_tells_that_a_commit_is_durable() -> Result<()> {
    let folder = Folder::new("callback");
    let store = made(&folder.0.join("s"))?;
    let kv = Kv::open(&store, "kv")?;
    let map = kv.map("m")?;
    let (tell, told) = std::sync::mpsc::channel();
    for value in 0..3u8 {
        let ((), ticket) = kv.transact_with(Durability::Weak, |txn| txn.put(map, b"k", &[value]))?;
        let tell = tell.clone();
        kv.on_durable(ticket, move |result| tell.send((value, result)).expect("a receiver"))?;
    }
    let panics = kv.transact_with(Durability::Weak, |txn| txn.put(map, b"k", b"4"))?.1;
    kv.on_durable(panics, |_| panic!("of a callback, which ends here"))?;
    let behind = tell.clone();
    kv.on_durable(panics, move |result| behind.send((4, result)).expect("a receiver"))?;
    kv.persist()?;
    for value in [0, 1, 2, 4] {
        assert_eq!(told.recv().expect("a call"), (value, Ok(())));
    }
    let owned = tell.clone();
    let refused = kv.on_durable(u64::MAX, move |result| owned.send((9, result)).expect("a receiver"));
    assert_eq!(refused.unwrap_err().category(), Category::Invalid);
    drop(tell);
    assert!(told.recv().is_err(), "the refused callback is gone, and was not called");
    Ok(())
}

#[test]
fn entries_by_number() -> Result<()> {
    let folder = Folder::new("numbers");
    let store = made(&folder.0.join("s"))?;
    let options = applog::Options { create: true, size: 1 << 20, ..Default::default() };
    let log = AppLog::open(&store, "log", options)?;
    let long = vec![b'l'; 5000];
    log.append_all(&[b"one", &long, b"", b"four"])?;
    assert_eq!(log.get(1)?, None, "not durable yet");
    let ticket = log.write_weak()?;
    store.wait(ticket)?;
    assert_eq!(log.get(1)?, Some(b"one".to_vec()));
    assert_eq!(log.get(2)?.as_ref(), Some(&long));
    assert_eq!(log.get(3)?, Some(Vec::new()));
    let mut buffer = Vec::new();
    assert!(log.get_into(2, &mut buffer)? && buffer == long);
    assert!(log.get_into(4, &mut buffer)? && buffer == b"four");
    assert!(!log.get_into(5, &mut buffer)? && buffer.is_empty());

    let mut reader = log.reader()?;
    assert_eq!(reader.read(Duration::ZERO)?.map(|entry| entry.number), Some(1));
    for refused in [log.truncate_after(3), log.truncate_before(2), log.restart(7)] {
        assert_eq!(refused.unwrap_err().category(), Category::Invalid, "the log has a reader");
    }
    drop(reader);
    log.truncate_after(3)?;
    assert_eq!(log.append(b"another four")?, 4);
    log.truncate_before(3)?;
    log.write()?;
    assert_eq!(log.get(2)?, None);
    assert_eq!(log.get(4)?, Some(b"another four".to_vec()));
    let info = log.info()?;
    assert_eq!((info.newest, info.durable, info.consumed), (4, 4, 2));
    assert!(info.room < info.size);
    assert_eq!(log.truncate_after(1).unwrap_err().category(), Category::Invalid, "entry 2 was consumed");
    assert_eq!(log.truncate_before(9).unwrap_err().category(), Category::Invalid, "entry 8 was not appended");
    log.restart(100)?;
    assert_eq!(log.append(b"hundred")?, 100);
    log.close()?;
    let log = AppLog::open(&store, "log", applog::Options::default())?;
    assert_eq!(log.reader()?.read(Duration::ZERO)?.map(|entry| entry.number), Some(100));
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
    for tracker in [Tracker::Auto, Tracker::Scan, Tracker::Explicit, Tracker::Fault] {
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

/// The same, touched.
fn set(region: &mut Region, value: u64) -> Result<()> {
    // SAFETY: the region has never held another type.
    unsafe { region.root::<Counters>() }?.runs = value;
    region.touch(0, 8)
}

fn runs(region: &mut Region) -> u64 {
    // SAFETY: as in set().
    unsafe { region.root::<Counters>() }.expect("a root").runs
}

#[test]
fn a_change_of_a_region_is_durable_or_undone() -> Result<()> {
    let folder = Folder::new("undo");
    for tracker in [Tracker::Auto, Tracker::Scan, Tracker::Explicit, Tracker::Fault] {
        let path = folder.0.join(format!("{tracker:?}"));
        let store = made(&path)?;
        let mut region = Region::open(&store, "r", 1 << 16, tracker)?;
        region.transact(|region| set(region, 1))?;
        set(&mut region, 2)?; // becomes durable with the change that follows, which is undone
        let refused = region.transact_with(Durability::Sync, |region| {
            set(region, 3)?;
            assert_eq!(region.persist().unwrap_err().category(), Category::Busy);
            Err::<(), _>(Refused::TooPoor(3))
        });
        assert!(matches!(refused, Err(Refused::TooPoor(3))), "{refused:?}");
        assert_eq!(runs(&mut region), 2, "{tracker:?}");
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            region.transact(|region| -> Result<()> {
                set(region, 4)?;
                panic!("of the program")
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(runs(&mut region), 2, "{tracker:?}");
        let (value, ticket) = region
            .transact_with(Durability::Weak, |region| set(region, 5).map(|()| "five").map_err(Refused::Store))
            .expect("a commit");
        assert_eq!(value, "five");
        store.wait(ticket)?;
        drop(region);
        store.close()?;
        let mut region = Region::open(&Store::open(&path)?, "r", 0, tracker)?;
        assert_eq!(runs(&mut region), 5, "{tracker:?}");
    }
    Ok(())
}

#[test]
fn an_abort_undoes_all_parts() -> Result<()> {
    let folder = Folder::new("abort");
    let store = made(&folder.0.join("s"))?;
    let kv = Kv::open(&store, "kv")?;
    let map = kv.map("m")?;
    let log = AppLog::open(&store, "log", applog::Options { create: true, ..Default::default() })?;
    let region = Region::open(&store, "r", 1 << 16, Tracker::Auto)?;
    let word = region.address().cast::<u64>();
    for aborts in [true, false] {
        let mut txn = store.begin()?;
        txn.join_region_undoing(&region)?;
        // SAFETY: the region is open, and nothing else refers to the word.
        unsafe { word.write(8) };
        let mut records = kv.begin()?;
        records.put(map, b"k", b"v")?;
        txn.join(records)?;
        txn.append(&log, b"entry")?;
        if aborts {
            txn.abort()?;
        } else {
            txn.commit()?;
        }
        // SAFETY: as above.
        assert_eq!(unsafe { word.read() }, if aborts { 0 } else { 8 });
        assert_eq!(kv.read()?.get(map, b"k")?.is_some(), !aborts);
        assert_eq!(log.info()?.newest, u64::from(!aborts));
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
    let waits = std::thread::spawn(move || Store::options().open_wait(Duration::from_secs(600)).open(path).map(drop));
    drop(store);
    assert!(waits.join().expect("no panic").is_ok(), "an opening waits until the last handle is dropped");
    assert!(made(&folder.0.join("s")).is_ok(), "dropping the last handle closes the store");
    assert_eq!(memlith::version(), env!("CARGO_PKG_VERSION"));
}

// ---- under kill -9 -------------------------------------------------------------------------------------------------

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
fn threads_persist_their_own_pages() -> Result<()> {
    const PAGE: usize = 4096;
    let folder = Folder::new("own");
    let path = folder.0.join("s");
    {
        let store = made(&path)?;
        let shared = Region::open(&store, "shared", 1 << 16, Tracker::Auto)?;
        assert_eq!(shared.persist_own().unwrap_err().category(), Category::Unsupported);
        let region = Region::open_for_threads(&store, "r", 1 << 16, Tracker::Auto)?;
        let region = &region;
        // SAFETY: each thread stores to a page of its own.
        let put = |page: usize, value: u8| unsafe { region.address().add(page * PAGE).write_volatile(value) };
        put(0, 1); // is in no persist
        std::thread::scope(|scope| {
            for page in 1..4 {
                scope.spawn(move || {
                    put(page, 7);
                    region.persist_own().expect("a persist");
                });
            }
        });
    }
    let region = Region::open_for_threads(&Store::open(&path)?, "r", 0, Tracker::Auto)?;
    // SAFETY: no thread stores to the region.
    let found: Vec<u8> = (0..4).map(|page| unsafe { region.address().add(page * PAGE).read() }).collect();
    assert_eq!(found, [0, 7, 7, 7]);
    Ok(())
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
