//! Copies, archives and checks of a store in use.

mod support;

use memlith::archive::{self, Archive, At, RestoreOptions, Standby, Target};
use memlith::kv::Kv;
use memlith::region::{Region, Tracker};
use memlith::{check_data, copy_store, verify, Category, Result, Store};
use std::path::Path;
use support::{made, Folder};

fn put(kv: &Kv, value: &[u8]) -> Result<u64> {
    let map = kv.map("m")?;
    let mut txn = kv.begin()?;
    txn.put(map, b"k", value)?;
    txn.commit(memlith::kv::Durability::Sync)
}

fn found(path: &Path) -> Result<Vec<u8>> {
    let kv = Kv::open_existing(&Store::open(path)?, "kv")?;
    let map = kv.find_map("m")?.expect("the map");
    let read = kv.read()?;
    Ok(read.get(map, b"k")?.expect("the record").to_vec())
}

fn category<T>(result: Result<T>) -> Option<Category> {
    result.err().map(|error| error.category())
}

#[test]
fn a_copy_of_a_store_in_use_and_its_checks() -> Result<()> {
    let folder = Folder::new("copy");
    let (path, copy) = (folder.0.join("s"), folder.0.join("copy"));
    assert_eq!(category(verify(&path)), Some(Category::NotFound));
    let store = made(&path)?;
    let kv = Kv::open(&store, "kv")?;
    let ticket = put(&kv, b"one")?;
    let report = copy_store(&path, &copy)?;
    assert!(report.ticket >= ticket && report.bytes > 0, "{report:?}");
    assert_eq!(category(copy_store(&path, &copy)), Some(Category::Exists));
    put(&kv, b"two")?;
    assert_eq!(found(&copy)?, b"one");
    let (stats, info) = (store.stats()?, store.info()?);
    assert_eq!((stats.kv_commits, stats.alive, info.region_count), (2, 1, 1), "{stats:?}");
    let seen = verify(&path)?;
    assert_eq!((seen.kvs, seen.regions, seen.clean), (1, 1, 0));
    let data = check_data(&path)?;
    assert!(data.blocks > 0 && data.damaged.is_empty(), "{data:?}");
    Ok(())
}

#[test]
fn windows_and_names_of_a_store() -> Result<()> {
    let folder = Folder::new("windows");
    let hour = std::time::Duration::from_secs(3600);
    let store = Store::options().create(true).window(hour, 0).open(folder.0.join("s"))?;
    let kv = Kv::open(&store, "kv")?;
    let map = kv.map("m")?;
    let weak = |value: &[u8]| kv.transact_with(memlith::kv::Durability::Weak, |txn| txn.put(map, b"k", value));
    kv.set_window(hour, 0)?;
    let ((), waits) = weak(b"an hour")?;
    assert!(kv.durable() < waits);
    kv.set_window(hour, 1)?;
    let ((), hurries) = weak(b"a byte")?;
    store.wait(hurries)?;
    store.set_window(std::time::Duration::ZERO, 0)?;
    assert_eq!(category(kv.set_window(hour * 25, 0)), Some(Category::Invalid), "more than a day");
    store.set_log_max(1 << 31)?;
    assert_eq!(category(store.set_log_max(1)), Some(Category::Invalid), "the log is larger");
    drop(Region::open(&store, "r", 4096, Tracker::Auto)?);
    assert_eq!(store.regions()?, ["kv", "r"]);
    assert_eq!(category(store.remove("kv")), Some(Category::Busy));
    assert!(store.remove("r")?);
    assert!(!store.remove("r")?);
    assert_eq!(store.regions()?, ["kv"]);
    Ok(())
}

#[test]
fn rot_is_named() -> Result<()> {
    let folder = Folder::new("rot");
    let path = folder.0.join("s");
    let store = made(&path)?;
    let mut region = Region::open(&store, "r", 1 << 16, Tracker::Auto)?;
    // SAFETY: the region has never held another type.
    unsafe { region.root::<[u64; 512]>() }?.fill(7);
    region.persist()?;
    drop(region);
    store.close()?;
    let home = path.join("objects/1");
    let mut bytes = std::fs::read(&home).expect("the region's file");
    bytes[100] ^= 1;
    std::fs::write(&home, bytes).expect("the region's file");
    let data = check_data(&path)?;
    assert_eq!((data.blocks_damaged, data.damaged.len()), (1, 1), "{data:?}");
    assert!(data.damaged[0].contains("region \"r\""), "{data:?}");
    assert_eq!(category(copy_store(&path, folder.0.join("copy"))), Some(Category::Corrupt));
    Ok(())
}

#[test]
fn an_archive_restores_each_state_and_feeds_a_standby() -> Result<()> {
    let folder = Folder::new("archive");
    let path = folder.0.join("s");
    let target = Target::folder(folder.0.join("target"))?;
    assert_eq!(category(archive::runs(&target)), Some(Category::NotFound));
    let store = made(&path)?;
    let kv = Kv::open(&store, "kv")?;
    put(&kv, b"one")?;
    let mut archive = Archive::open(&path, &target, &archive::Options::default())?;
    let first = archive.flush()?.archived_lsn; // an idle log gets one more frame, maybe before the archive begins
    let standby_path = folder.0.join("standby");
    let mut standby = Standby::open(&target, &standby_path)?;
    standby.step()?;
    let second = put(&kv, b"two")?;
    archive.copy()?;
    archive.step()?;
    let progress = archive.flush()?;
    assert!(progress.archived_lsn >= second && progress.full_copies == 2, "{progress:?}");
    archive.close()?;
    assert!(standby.step()? >= second);
    drop(standby);

    let runs = archive::runs(&target)?;
    assert_eq!((runs.len(), runs[0].why.as_str(), runs[0].full_copies), (1, "first", 2), "{runs:?}");
    let restored = archive::restore(&target, folder.0.join("newest"), &RestoreOptions::default())?;
    assert!(restored.lsn >= second);
    assert_eq!(found(&folder.0.join("newest"))?, b"two");
    let at = RestoreOptions { at: At::Lsn(first), ..Default::default() };
    archive::restore(&target, folder.0.join("earlier"), &at)?;
    assert_eq!(found(&folder.0.join("earlier"))?, b"one");
    let dry = RestoreOptions { dry: true, run: runs[0].number, ..at };
    archive::restore(&target, folder.0.join("none"), &dry)?;
    assert!(!folder.0.join("none").exists());
    let long_ago = RestoreOptions { at: At::Time(1), ..Default::default() };
    assert_eq!(category(archive::restore(&target, folder.0.join("none"), &long_ago)), Some(Category::NotFound));
    assert!(Store::open(&standby_path).is_err(), "a standby is not for writing");
    archive::promote(&standby_path)?;
    assert_eq!(found(&standby_path)?, b"two");

    // The same through commands.
    let objects = folder.0.join("objects");
    std::fs::create_dir(&objects).expect("a folder");
    let at = objects.display();
    let commands = Target::commands(&format!("cat > '{at}/%n'"), &format!("cat '{at}/%n'"), None)?;
    let options = archive::Options { begin_new: true, keep: archive::NEVER, ..Default::default() };
    Archive::open(&path, &commands, &options)?.close()?;
    archive::restore(&commands, folder.0.join("by command"), &RestoreOptions::default())?;
    assert_eq!(found(&folder.0.join("by command"))?, b"two");
    Ok(())
}
