//! A kv store of several processes: children of this program write it beside each other, and some of them are killed.

mod support;

use std::path::{Path, PathBuf};

use memlith::kv::{Durability, Kv, SharedOptions};
use memlith::{Category, Result, Store};
use support::{killed, made, Folder, KILLS};

/// The command `memlith`, which is the keeper. Without it there is nothing to test.
fn program() -> Option<PathBuf> {
    let named = std::env::var_os("MEMLITH_COMMAND").map(PathBuf::from);
    if named.is_none() {
        println!("skipped: MEMLITH_COMMAND does not name the command memlith, which is the keeper");
    }
    named
}

fn open(path: &Path, program: PathBuf) -> Result<Kv> {
    Kv::open_shared(path, "kv", SharedOptions { create: true, program: Some(program), ..Default::default() })
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("a number"))
}

/// A commit of one more, in all records: no process sees records that differ.
fn add_one(kv: &Kv, durability: Durability) -> Result<(u64, u64)> {
    let map = kv.map("m")?;
    kv.transact_with(durability, |txn| {
        let counts: Vec<u64> =
            (0..10u8).map(|key| Ok(txn.get(map, &[key])?.map_or(0, number))).collect::<Result<_>>()?;
        assert!(counts.iter().all(|&count| count == counts[0]), "half of a commit: {counts:?}");
        (0..10u8).try_for_each(|key| txn.put(map, &[key], &(counts[0] + 1).to_le_bytes()))?;
        Ok(counts[0] + 1)
    })
}

#[test]
#[ignore = "a child, which another test kills"]
fn child_of_several() {
    let path = std::env::var_os("MEMLITH_RUST_STORE").expect("this test is run by another one, which kills it");
    let kv = open(Path::new(&path), program().expect("the keeper")).expect("a kv store");
    for commit in 1..=1_000_000 {
        add_one(&kv, Durability::Sync).expect("a commit");
        println!("durable {commit}");
    }
}

#[test]
fn processes_lose_no_update_and_survive_kills() -> Result<()> {
    let Some(program) = program() else { return Ok(()) };
    let folder = Folder::new("processes");
    let path = folder.0.join("s");
    let kv = open(&path, program.clone())?;
    let mine = 50;
    let (theirs, kills) = std::thread::scope(|threads| -> Result<(u64, u64)> {
        let children: Vec<_> = (0..2)
            .map(|_| {
                threads.spawn(|| (1..=KILLS / 2).map(|kill| killed("child_of_several", &path, 3 * kill)).sum::<u64>())
            })
            .collect();
        for _ in 0..mine {
            let (_, ticket) = add_one(&kv, Durability::Weak)?;
            kv.wait(ticket)?;
        }
        Ok((children.into_iter().map(|child| child.join().expect("no panic")).sum(), KILLS / 2 * 2))
    })?;
    let least = mine + theirs;
    let counted = add_one(&kv, Durability::Sync)?.0 - 1;
    assert!(counted >= least, "{counted} of {least} acknowledged updates are there");
    assert!(counted <= least + kills, "{counted} updates of {least}, and a killed process has at most one more");
    kv.verify()?;
    kv.close()?;

    // The keeper ends, and the store is an ordinary one.
    let store = Store::options().open_wait(std::time::Duration::from_secs(600)).open(&path)?;
    let kv = Kv::open_existing(&store, "kv")?;
    assert_eq!(add_one(&kv, Durability::Sync)?.0, counted + 2);
    Ok(())
}

#[test]
fn the_second_of_two_that_change_the_same_has_a_conflict() -> Result<()> {
    let Some(program) = program() else { return Ok(()) };
    let folder = Folder::new("processes-two");
    let path = folder.0.join("s");
    let (one, two) = (open(&path, program.clone())?, open(&path, program)?);
    let (map, same) = (one.map("m")?, two.map("m")?);
    let mut first = one.begin()?;
    let mut second = two.begin()?;
    assert_eq!(first.get(map, b"k")?, None);
    assert_eq!(second.get(same, b"k")?, None);
    first.put(map, b"k", b"first")?;
    second.put(same, b"k", b"second")?;
    first.commit(Durability::Sync)?;
    assert_eq!(second.commit(Durability::Sync).unwrap_err().category(), Category::Conflict);
    let snapshot = two.read()?;
    one.transact(|txn| txn.put(map, b"k", b"later"))?;
    assert_eq!(snapshot.get(same, b"k")?, Some(&b"first"[..]), "a snapshot sees one commit");
    drop(snapshot);
    assert_eq!(two.read()?.get(same, b"k")?, Some(&b"later"[..]));
    assert_eq!(two.on_durable(1, |_| ()).unwrap_err().category(), Category::Unsupported);
    assert_eq!(two.wait(u64::MAX).unwrap_err().category(), Category::Invalid);
    two.close()
}

#[test]
fn openings_that_are_refused() -> Result<()> {
    let folder = Folder::new("processes-refused");
    let path = folder.0.join("s");
    let none = SharedOptions { program: Some(folder.0.join("no such program")), ..Default::default() };
    let missing = Kv::open_shared(&path, "kv", none).err().expect("there is no keeper");
    assert_eq!(missing.category(), Category::NotFound, "{missing}");
    let Some(program) = program() else { return Ok(()) };
    let existing = SharedOptions { program: Some(program.clone()), ..Default::default() };
    let missing = Kv::open_shared(&path, "kv", existing).err().expect("there is no store");
    assert_eq!(missing.category(), Category::NotFound, "{missing}");
    let alone = made(&path)?;
    let soon = SharedOptions {
        create: true,
        program: Some(program.clone()),
        patience: std::time::Duration::from_millis(1),
        ..Default::default()
    };
    let busy = Kv::open_shared(&path, "kv", soon).err().expect("a program has the store for itself");
    assert_eq!(busy.category(), Category::Busy, "{busy}");
    alone.close()?;
    let _kv = open(&path, program.clone())?;
    let again = SharedOptions { create: true, exclusive: true, program: Some(program), ..Default::default() };
    let exists = Kv::open_shared(&path, "kv", again).err().expect("the kv store exists");
    assert_eq!(exists.category(), Category::Exists, "{exists}");
    let beside = Store::open(&path).err().expect("the keeper has the store");
    assert_eq!(beside.category(), Category::Busy, "{beside}");
    let mut follower = Store::options().follow(true).open(&path)?;
    let refused = follower.refresh(&mut [&mut open(&path, std::env::var_os("MEMLITH_COMMAND").unwrap().into())?]);
    assert_eq!(refused.unwrap_err().category(), Category::Invalid, "a kv store of several processes is in no Store");
    Ok(())
}
