//! Heaps: places are checked at each access, changes are durable or undone, and a program that is killed leaves the
//! blocks of one persist.

mod support;

use memlith::heap::{Heap, Options, Ptr, Slice};
use memlith::kv::{Durability, Kv};
use memlith::region::{Plain, Region, Tracker};
use memlith::{Category, Result, Store};
use support::{killed, made, store_of_child, Folder, KILLS};

#[derive(Clone, Copy)]
#[repr(C)]
struct Node {
    value: u64,
    next: Ptr<Node>,
    name: Slice<u8>,
}

// SAFETY: numbers in C's layout.
unsafe impl Plain for Node {}

fn heap_in(store: &Store) -> Result<Heap> {
    Heap::open(store, "heap", Options { create: true, ..Default::default() })
}

fn first(heap: &mut Heap) -> Result<Ptr<Ptr<Node>>> {
    heap.root(1)
}

/// Puts a node in front of the list.
fn push(heap: &mut Heap, value: u64) -> Result<Ptr<Node>> {
    let first = first(heap)?;
    let name = heap.allocate_slice(format!("node {value}").as_bytes())?;
    let next = *heap.get(first)?;
    let node = heap.allocate(Node { value, next, name })?;
    *heap.get_mut(first)? = node;
    Ok(node)
}

fn pop(heap: &mut Heap) -> Result<Option<u64>> {
    let first = first(heap)?;
    let place = *heap.get(first)?;
    if place.is_null() {
        return Ok(None);
    }
    let node = *heap.get(place)?;
    *heap.get_mut(first)? = node.next;
    heap.free_slice(node.name)?;
    heap.free(place)?;
    Ok(Some(node.value))
}

fn list(heap: &mut Heap) -> Result<Vec<u64>> {
    let first = first(heap)?;
    let (mut all, mut place) = (Vec::new(), *heap.get(first)?);
    while !place.is_null() {
        let node = heap.get(place)?;
        assert_eq!(heap.slice(node.name)?, format!("node {}", node.value).as_bytes());
        all.push(node.value);
        place = node.next;
    }
    Ok(all)
}

fn category<T>(result: Result<T>) -> Option<Category> {
    result.err().map(|error| error.category())
}

#[test]
fn blocks_lead_to_each_other_in_every_run() -> Result<()> {
    let folder = Folder::new("blocks");
    let path = folder.0.join("s");
    {
        let store = made(&path)?;
        assert_eq!(category(Heap::open(&store, "heap", Options::default())), Some(Category::NotFound));
        let mut heap = heap_in(&store)?;
        assert_eq!(pop(&mut heap)?, None);
        for value in 1..=3 {
            push(&mut heap, value)?;
        }
        heap.persist()?;
        push(&mut heap, 4)?;
        heap.rollback()?;
        assert_eq!(list(&mut heap)?, [3, 2, 1]);
        push(&mut heap, 5)?;
        store.wait(heap.persist_async()?)?;
        push(&mut heap, 6)?; // never persisted
        assert_eq!(category(store.clone().close()), Some(Category::Invalid), "the heap is open");
    }
    let mut heap = heap_in(&Store::open(&path)?)?;
    assert_eq!(list(&mut heap)?, [5, 3, 2, 1]);
    let before = heap.verify()?;
    push(&mut heap, 7)?;
    assert_eq!(heap.verify()?.blocks, before.blocks + 2);
    assert_eq!(pop(&mut heap)?, Some(7));
    assert_eq!(heap.verify()?.blocks, before.blocks);
    Ok(())
}

#[test]
fn every_access_is_checked() -> Result<()> {
    let folder = Folder::new("checked");
    let store = made(&folder.0.join("s"))?;
    let mut heap = heap_in(&store)?;
    let number = heap.allocate(7u64)?;
    let numbers = heap.allocate_slice(&[1u32, 2, 3])?;
    let none = heap.allocate_slice::<u64>(&[])?;
    assert!(none.is_empty() && heap.slice(none)?.is_empty() && heap.slice_mut(none)?.is_empty());
    heap.free_slice(none)?;
    *heap.get_mut(number)? += 1;
    heap.slice_mut(numbers)?[2] = 9;
    assert_eq!((*heap.get(number)?, heap.slice(numbers)?), (8, &[1u32, 2, 9][..]));

    // A place may be any number: the bits of another one, as a program might find them in a block.
    let forged = |heap: &mut Heap, bits: [u64; 2]| -> Result<Slice<u64>> {
        let place = heap.allocate(bits)?;
        let holder = heap.allocate(Slice::<u64>::empty())?;
        let bytes = *heap.get(place)?;
        // SAFETY: two numbers, as Slice has them.
        *heap.get_mut(holder)? = unsafe { std::mem::transmute::<[u64; 2], Slice<u64>>(bytes) };
        Ok(*heap.get(holder)?)
    };
    let address = u64::from_str_radix(format!("{number:?}").trim_start_matches("Ptr(0x").trim_end_matches(')'), 16)
        .expect("the place in words");
    for bits in [[8, 1], [u64::MAX, 1], [address + 8, 1], [address + 1, 1], [address, 1 << 40], [address, 1 << 61]] {
        let wild = forged(&mut heap, bits)?;
        assert_eq!(category(heap.slice(wild)), Some(Category::Invalid), "{bits:?}");
        assert_eq!(category(heap.slice_mut(wild)), Some(Category::Invalid), "{bits:?}");
    }
    let fine = forged(&mut heap, [address, 1])?;
    assert_eq!(heap.slice(fine)?, [8]);
    assert_eq!(category(heap.get(Ptr::<u64>::null())), Some(Category::Invalid));
    heap.free(Ptr::<u64>::null())?;
    heap.free(number)?;
    assert_eq!(category(heap.get(number)), Some(Category::Invalid), "it is free");
    assert_eq!(category(heap.free(number)), Some(Category::Invalid), "it was freed before");
    heap.verify()?;
    Ok(())
}

#[test]
fn names_and_versions() -> Result<()> {
    let folder = Folder::new("names");
    let path = folder.0.join("s");
    let store = made(&path)?;
    {
        let mut heap = heap_in(&store)?;
        let place = heap.allocate(5u64)?;
        heap.set_name("five", place, 1)?;
        assert_eq!(category(heap.set_name("five", place, 1)), Some(Category::Exists));
        assert_eq!(category(heap.set_name("large", Ptr::<[u64; 99]>::null(), 1)), Some(Category::Invalid));
        assert_eq!(heap.find("five", 1)?, Some(place));
        assert_eq!(heap.find::<u64>("six", 1)?, None);
        assert_eq!(category(heap.find::<u64>("five", 2)), Some(Category::Incompatible));
        assert_eq!(category(heap.find::<u32>("five", 1)), Some(Category::Incompatible));
        heap.root::<u64>(1)?;
        assert_eq!(category(heap.root::<u64>(2)), Some(Category::Incompatible));
        heap.persist()?;
    }
    let mut heap = heap_in(&store)?;
    let place = heap.find::<u64>("five", 1)?.expect("it was persisted");
    assert_eq!(*heap.get(place)?, 5);
    assert!(heap.remove_name("five")?);
    assert!(!heap.remove_name("five")?);
    assert_eq!(*heap.get(place)?, 5, "the value stays");
    Ok(())
}

#[test]
fn a_change_is_durable_or_undone() -> Result<()> {
    let folder = Folder::new("heap-undo");
    let path = folder.0.join("s");
    let store = made(&path)?;
    let mut heap = heap_in(&store)?;
    heap.transact(|heap| push(heap, 1))?;
    let blocks = heap.verify()?.blocks;
    let mut lost = Ptr::null();
    let refused = heap.transact_with(Durability::Sync, |heap| -> std::result::Result<(), Box<dyn std::error::Error>> {
        lost = push(heap, 2)?;
        Err("refused".into())
    });
    assert_eq!(refused.unwrap_err().to_string(), "refused");
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        heap.transact(|heap| -> Result<()> {
            pop(heap)?;
            panic!("of the program")
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(list(&mut heap)?, [1]);
    assert_eq!(heap.verify()?.blocks, blocks, "what was allocated is free");
    assert_eq!(category(heap.get(lost)), Some(Category::Invalid), "and its place leads nowhere");
    let (_, ticket) = heap.transact_with(Durability::Weak, |heap| push(heap, 3))?;
    store.wait(ticket)?;

    // One commit with records.
    let kv = Kv::open(&store, "kv")?;
    let map = kv.map("m")?;
    push(&mut heap, 4)?;
    let mut records = kv.begin()?;
    records.put(map, b"newest", b"4")?;
    let mut both = store.begin()?;
    both.join_heap(&heap)?;
    both.join(records)?;
    both.commit()?;
    drop((heap, kv));
    store.close()?;
    let store = Store::open(&path)?;
    assert_eq!(list(&mut heap_in(&store)?)?, [4, 3, 1]);
    let kv = Kv::open(&store, "kv")?;
    let map = kv.map("m")?;
    assert_eq!(kv.read()?.get(map, b"newest")?, Some(&b"4"[..]));
    Ok(())
}

#[test]
fn readers_see_and_change_nothing() -> Result<()> {
    let folder = Folder::new("heap-reader");
    let path = folder.0.join("s");
    let store = made(&path)?;
    let mut heap = heap_in(&store)?;
    push(&mut heap, 1)?;
    heap.persist()?;
    drop(heap);
    store.close()?;

    let read_only = Store::options().read_only(true).open(&path)?;
    let mut seen = Heap::open(&read_only, "heap", Options::default())?;
    assert_eq!(list(&mut seen)?, [1]);
    let root = first(&mut seen)?;
    assert_eq!(category(seen.get_mut(root)), Some(Category::ReadOnly));
    assert_eq!(category(seen.slice_mut(Slice::<u8>::empty())), Some(Category::ReadOnly));
    assert_eq!(category(seen.allocate(7u64)), Some(Category::ReadOnly));
    assert_eq!(category(seen.persist()), Some(Category::ReadOnly));
    seen.verify()?;
    drop(seen);
    read_only.close()?;

    let newest = Store::options().follow_newest(true).open(&path)?;
    assert_eq!(category(Heap::open(&newest, "heap", Options::default())), Some(Category::Invalid));
    newest.close()?;
    let store = made(&path)?;
    let _region = Region::open(&store, "r", 4096, Tracker::Auto)?;
    assert_eq!(
        category(heap_in(&store).and_then(|_heap| Region::open(&store, "heap", 0, Tracker::Auto))),
        Some(Category::Busy)
    );
    Ok(())
}

#[test]
#[ignore = "a child, which another test kills"]
fn child_changes_a_list() {
    let mut heap = heap_in(&store_of_child()).expect("a heap");
    let newest = list(&mut heap).expect("a list").first().copied().unwrap_or(0);
    for value in newest + 1.. {
        push(&mut heap, value).expect("a node");
        if value % 3 == 0 {
            pop(&mut heap).expect("a list");
            pop(&mut heap).expect("a list");
            push(&mut heap, value).expect("a node");
        }
        heap.persist().expect("a persist");
        println!("durable {value}");
    }
}

#[test]
fn heaps_survive_kill() -> Result<()> {
    let folder = Folder::new("kill-heap");
    let path = folder.0.join("s");
    for kill in 1..=KILLS {
        let acknowledged = killed("child_changes_a_list", &path, 3 * kill);
        let mut heap = heap_in(&Store::open(&path)?)?;
        let all = list(&mut heap)?;
        assert!([acknowledged, acknowledged + 1].contains(&all[0]), "{} after {acknowledged}", all[0]);
        assert!(all.windows(2).all(|pair| pair[0] > pair[1]), "half of a change: {all:?}");
        // Two blocks a node, that of the root, and those of names.
        assert_eq!(heap.verify()?.blocks - 2 * all.len() as u64, heap_blocks_of_none()?);
    }
    Ok(())
}

/// The blocks of a heap whose list is empty.
fn heap_blocks_of_none() -> Result<u64> {
    let folder = Folder::new("no-list");
    let mut heap = heap_in(&made(&folder.0.join("s"))?)?;
    first(&mut heap)?;
    Ok(heap.verify()?.blocks)
}
