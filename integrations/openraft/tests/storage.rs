//! openraft's own suite of any storage; streams of a state; and a node that is killed with SIGKILL while it appends,
//! and while it installs snapshots. MEMLITH_KILLS says how often.

#[path = "../../../bindings/rust/memlith/tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::io::{self, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use memlith::kv::{Map, Transaction};
use memlith::Store;
use memlith_openraft::{Log, Machine, SnapshotStream, State};
use openraft::error::{InstallSnapshotError, NetworkError, RPCError, RaftError};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse, VoteRequest,
    VoteResponse,
};
use openraft::storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use openraft::testing::{blank_ent, log_id, membership_ent, StoreBuilder, Suite};
use openraft::{
    AnyError, BasicNode, Config, Entry, EntryPayload, LogId, RaftLogReader, RaftSnapshotBuilder, SnapshotPolicy,
    StorageError, Vote,
};
use support::{killed, made, Folder};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

openraft::declare_raft_types!(Types: D = Vec<u8>, R = u64, SnapshotData = SnapshotStream);
type Raft = openraft::Raft<Types>;

/// Counts commands by their content, which is a key.
struct Counts;

impl Machine<Types> for Counts {
    fn maps(&self) -> &[&str] {
        &["counts"]
    }

    fn apply(&self, txn: &mut Transaction<'_>, maps: &[Map], _: &LogId<u64>, name: &Vec<u8>) -> memlith::Result<u64> {
        let count = txn.get(maps[0], name)?.map_or(0, number) + 1;
        txn.put(maps[0], name, &count.to_le_bytes())?;
        Ok(count)
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("a number"))
}

fn opened(store: &Store) -> io::Result<(Log<Types>, State<Types, Counts>)> {
    memlith_openraft::open(store, Counts)
}

fn counts(state: &State<Types, Counts>) -> BTreeMap<Vec<u8>, u64> {
    let read = state.view(|snapshot, maps| {
        snapshot.range::<&[u8]>(maps[0], ..)?.map(|record| record.map(|(key, value)| (key, number(&value)))).collect()
    });
    read.expect("a read")
}

fn command(index: u64, name: &str) -> Entry<Types> {
    Entry { log_id: log_id(1, 0, index), payload: EntryPayload::Normal(name.into()) }
}

/// Opens a store whose threads may be about to end, or whose process.
fn again(path: &Path) -> Store {
    Store::options().open_wait(Duration::from_secs(60)).open(path).expect("the store")
}

fn kills() -> u64 {
    std::env::var("MEMLITH_KILLS").map_or(4, |kills| kills.parse().expect("MEMLITH_KILLS is a number"))
}

// ---- openraft's suite ----------------------------------------------------------------------------------------------

struct Builder;

impl StoreBuilder<Types, Log<Types>, State<Types, Counts>, Folder> for Builder {
    async fn build(&self) -> Result<(Folder, Log<Types>, State<Types, Counts>), StorageError<u64>> {
        use std::sync::atomic::{AtomicU64, Ordering};
        static BUILT: AtomicU64 = AtomicU64::new(0);
        let folder = Folder::new(&format!("openraft-suite-{}", BUILT.fetch_add(1, Ordering::Relaxed)));
        let (log, state) = opened(&made(&folder.0.join("s")).expect("a store")).expect("a storage");
        Ok((folder, log, state))
    }
}

#[test]
fn the_suite_of_openraft() {
    Suite::test_all(Builder).expect("no error of the storage");
}

// ---- the log -------------------------------------------------------------------------------------------------------

async fn found(log: &mut Log<Types>) -> Vec<LogId<u64>> {
    log.try_get_log_entries(..).await.expect("entries").into_iter().map(|entry| entry.log_id).collect()
}

#[tokio::test]
async fn a_log_that_is_opened_again_is_as_it_was() {
    let folder = Folder::new("openraft-again");
    let path = folder.0.join("s");
    let saved = Vote::new_committed(3, 7);
    {
        let (mut log, _state) = opened(&made(&path).expect("a store")).expect("a storage");
        assert_eq!(log.read_vote().await.expect("a vote"), None);
        log.save_vote(&saved).await.expect("a vote");
        assert_eq!(log.read_vote().await.expect("a vote"), Some(saved));
        log.blocking_append((0..50).map(|index| blank_ent::<Types>(1, 0, index))).await.expect("entries");
        log.truncate(log_id(1, 0, 40)).await.expect("a cut");
        log.blocking_append([blank_ent::<Types>(3, 7, 40)]).await.expect("an entry");
        log.purge(log_id(1, 0, 9)).await.expect("a cut");
        log.save_committed(Some(log_id(1, 0, 30))).await.expect("a record");
        assert!(log.blocking_append([blank_ent::<Types>(3, 7, 45)]).await.is_err(), "a hole");
    }
    {
        let (mut log, _state) = opened(&again(&path)).expect("a storage");
        // The term of a leader ends with its process.
        assert_eq!(log.read_vote().await.expect("a vote"), Some(Vote::new(3, 7)));
        let state = log.get_log_state().await.expect("a state");
        assert_eq!((state.last_purged_log_id, state.last_log_id), (Some(log_id(1, 0, 9)), Some(log_id(3, 7, 40))));
        assert_eq!(found(&mut log).await.len(), 31);
        assert_eq!(log.read_committed().await.expect("a record"), Some(log_id(1, 0, 30)));
        log.truncate(log_id(1, 0, 20)).await.expect("a cut");
        assert_eq!(log.read_committed().await.expect("a record"), None, "the log has lost what was committed");
        log.purge(log_id(5, 0, 100)).await.expect("a cut"); // of a snapshot that was installed
        assert!(found(&mut log).await.is_empty());
    }
    let (mut log, _state) = opened(&again(&path)).expect("a storage");
    let state = log.get_log_state().await.expect("a state");
    assert_eq!((state.last_purged_log_id, state.last_log_id), (Some(log_id(5, 0, 100)), Some(log_id(5, 0, 100))));
    log.blocking_append([blank_ent::<Types>(5, 0, 101)]).await.expect("an entry");
    assert_eq!(found(&mut log).await, [log_id(5, 0, 101)]);
}

#[tokio::test]
async fn what_was_appended_is_read_at_once_and_by_parts() {
    let folder = Folder::new("openraft-read");
    let (mut log, _state) = opened(&made(&folder.0.join("s")).expect("a store")).expect("a storage");
    let mut reader = log.get_log_reader().await;
    for index in 0..200 {
        let appended = log.blocking_append([command(index, &"x".repeat(100_000))]);
        tokio::pin!(appended);
        let flushed = tokio::time::timeout(Duration::ZERO, &mut appended).await;
        let there = reader.try_get_log_entries(index..index + 1).await.expect("entries");
        assert_eq!(there.first().map(|entry| entry.log_id), Some(log_id(1, 0, index)));
        match flushed {
            Ok(done) => done.expect("an entry"),
            Err(_) => appended.await.expect("an entry"),
        }
    }
    let (mut from, mut reads) = (0, 0);
    while from < 200 {
        let some = reader.limited_get_log_entries(from, 200).await.expect("entries");
        assert_eq!(some[0].log_id.index, from);
        from += some.len() as u64;
        reads += 1;
    }
    assert!((2..50).contains(&reads), "{reads} reads of 20 MB");
}

// ---- the state -----------------------------------------------------------------------------------------------------

async fn state_of(folder: &Folder, name: &str, records: u64) -> State<Types, Counts> {
    let (_log, mut state) = opened(&made(&folder.0.join(name)).expect("a store")).expect("a storage");
    let members = membership_ent::<Types>(1, 0, 0, vec![[0].into()]);
    let commands = (1..=records).map(|index| command(index, &format!("{name} {index}")));
    state.apply(std::iter::once(members).chain(commands)).await.expect("a state");
    state
}

async fn bytes_of(state: &State<Types, Counts>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut sent = state.clone().get_current_snapshot().await.expect("a snapshot").expect("a state").snapshot;
    sent.read_to_end(&mut bytes).await.expect("a stream");
    bytes
}

#[tokio::test]
async fn a_stream_is_of_one_moment_and_is_sought() {
    let folder = Folder::new("openraft-stream");
    let mut state = state_of(&folder, "a", 10_000).await;
    let snapshot = state.get_current_snapshot().await.expect("a snapshot").expect("a state");
    let (id, mut sent) = (snapshot.meta.snapshot_id, snapshot.snapshot);
    let whole = bytes_of(&state).await;
    assert!(whole.len() > 200_000);
    state.apply([command(10_001, "later")]).await.expect("a state");
    assert_ne!(state.get_current_snapshot().await.expect("a snapshot").expect("a state").meta.snapshot_id, id);
    assert_eq!(sent.seek(SeekFrom::End(0)).await.expect("a size"), whole.len() as u64);
    for offset in [0, 1, 100_000, 65_536, 10, whole.len() - 1, whole.len(), 5] {
        sent.seek(SeekFrom::Start(offset as u64)).await.expect("a place");
        let mut part = vec![0; 1000.min(whole.len() - offset)];
        sent.read_exact(&mut part).await.expect("bytes");
        assert_eq!(part, whole[offset..offset + part.len()]);
    }
    assert!(sent.write_all(b"x").await.is_err(), "a snapshot that is sent is not written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_is_replaced_by_one_that_arrives() {
    let folder = Folder::new("openraft-install");
    let (mut from, mut to) = (state_of(&folder, "a", 5000).await, state_of(&folder, "b", 50).await);
    let built = from.get_snapshot_builder().await.build_snapshot().await.expect("a snapshot");
    let (meta, bytes) = (built.meta, bytes_of(&from).await);
    let mut received = to.begin_receiving_snapshot().await.expect("a stream");
    for (at, part) in bytes.chunks(1000).enumerate() {
        received.write_all(part).await.expect("a part");
        if at % 7 == 0 {
            // Sent again, as after an answer that was lost.
            received.seek(SeekFrom::Start(1000 * at as u64)).await.expect("a place");
            received.write_all(part).await.expect("a part");
        }
    }
    assert!(received.seek(SeekFrom::Start(bytes.len() as u64 + 1)).await.is_err(), "a part was left out");
    assert!(received.read_u8().await.is_err(), "a snapshot that is received is not read");
    let reader = to.clone();
    let before = reader.view(|snapshot, maps| {
        // A read sees one state, also while it is replaced.
        let first = snapshot.range::<&[u8]>(maps[0], ..)?.next().expect("a record")?;
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(to.install_snapshot(&meta, received)).expect("an installation");
        });
        assert_eq!(snapshot.range::<&[u8]>(maps[0], ..)?.next().expect("a record")?, first);
        Ok(first.0)
    });
    assert!(before.expect("a read").starts_with(b"b "));
    assert_eq!(counts(&reader), counts(&from));
    assert_eq!(to.applied_state().await.expect("a place"), from.applied_state().await.expect("a place"));
    assert_eq!(to.get_current_snapshot().await.expect("a snapshot").expect("a state").meta, meta);
    to.apply([command(5001, "a 1")]).await.expect("a state");
    drop((to, reader));

    let store = again(&folder.0.join("b"));
    let (_log, state) = opened(&store).expect("a storage");
    assert_eq!(counts(&state).get(&b"a 1"[..]), Some(&2));
    assert_eq!(store.regions().expect("names").iter().filter(|name| name.starts_with("openraft-state")).count(), 1);
}

#[tokio::test]
async fn a_damaged_stream_changes_nothing() {
    let folder = Folder::new("openraft-damage");
    let (mut from, mut to) = (state_of(&folder, "a", 500).await, state_of(&folder, "b", 5).await);
    let (meta, bytes) =
        (from.get_current_snapshot().await.expect("a snapshot").expect("a state").meta, bytes_of(&from).await);
    let before = counts(&to);
    for damage in 0..60 {
        let mut bad = bytes.clone();
        if damage % 3 == 0 {
            bad.truncate(bytes.len() * damage / 60);
        } else {
            bad[(damage * 7919) % bytes.len()] ^= 1 << (damage % 8);
        }
        let mut received = to.begin_receiving_snapshot().await.expect("a stream");
        let _ = received.write_all(&bad).await; // the rest is refused, once the damage was seen
        assert!(to.install_snapshot(&meta, received).await.is_err(), "damage {damage} was not seen");
        assert_eq!(counts(&to), before);
    }
    let mut other = meta.clone();
    other.last_log_id = Some(log_id(2, 0, 9));
    let mut received = to.begin_receiving_snapshot().await.expect("a stream");
    received.write_all(&bytes).await.expect("a stream");
    assert!(to.install_snapshot(&other, received).await.is_err(), "a stream of another state than was announced");
}

// ---- under kill -9 -------------------------------------------------------------------------------------------------

/// No other node is there.
struct Alone;

type Failure<E = RaftError<u64>> = RPCError<u64, BasicNode, E>;

fn alone<T, E: std::error::Error>() -> Result<T, Failure<E>> {
    let error = io::Error::new(io::ErrorKind::NotConnected, "there is one node");
    Err(RPCError::Network(NetworkError::new(&AnyError::new(&error))))
}

impl RaftNetworkFactory<Types> for Alone {
    type Network = Alone;

    async fn new_client(&mut self, _: u64, _: &BasicNode) -> Alone {
        Alone
    }
}

impl RaftNetwork<Types> for Alone {
    async fn append_entries(
        &mut self,
        _: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, Failure> {
        alone()
    }

    async fn vote(&mut self, _: VoteRequest<u64>, _: RPCOption) -> Result<VoteResponse<u64>, Failure> {
        alone()
    }

    async fn install_snapshot(
        &mut self,
        _: InstallSnapshotRequest<Types>,
        _: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, Failure<RaftError<u64, InstallSnapshotError>>> {
        alone()
    }
}

async fn node(store: &Store) -> (Raft, State<Types, Counts>) {
    let config = Config {
        heartbeat_interval: 20,
        election_timeout_min: 50,
        election_timeout_max: 100,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(40),
        max_in_snapshot_log_to_keep: 10,
        purge_batch_size: 1,
        ..Config::default()
    };
    let (log, state) = opened(store).expect("a storage");
    let config = Arc::new(config.validate().expect("a configuration"));
    let raft = Raft::new(1, config, Alone, log, state.clone()).await.expect("a node");
    let _ = raft.initialize(std::collections::BTreeMap::from([(1, BasicNode::default())])).await; // the first time
    raft.wait(Some(Duration::from_secs(60))).current_leader(1, "the only node leads").await.expect("a leader");
    (raft, state)
}

const WRITERS: u64 = 4;

#[test]
#[ignore = "a child, which another test kills"]
fn child_appends() {
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let (raft, _state) = node(&support::store_of_child()).await;
        let term = raft.metrics().borrow().current_term;
        let writers = (0..WRITERS).map(|writer| {
            let raft = raft.clone();
            tokio::spawn(async move {
                loop {
                    let name = format!("{writer} in term {term}");
                    let count = raft.client_write(name.into_bytes()).await.expect("an entry").data;
                    // One word for the reader: term, count, writer.
                    println!("durable {}", (term << 32 | count) * WRITERS + writer);
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.expect("no end");
        }
    });
}

#[test]
fn entries_terms_and_votes_survive_kills() {
    let folder = Folder::new("openraft-kill");
    let path = folder.0.join("s");
    let (mut terms, mut snapshots) = (0, 0);
    for kill in 1..=kills() {
        let acknowledged = killed("child_appends", &path, 30 * kill % 400 + 1);
        let (term, count, writer) =
            (acknowledged / WRITERS >> 32, acknowledged / WRITERS & 0xffff_ffff, acknowledged % WRITERS);
        assert!(term > terms, "term {term} was used before a kill");
        terms = term;
        tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
            let store = again(&path);
            {
                let (mut log, _state) = opened(&store).expect("a storage");
                assert!(log.read_vote().await.expect("a vote").expect("a vote").leader_id().term >= term);
                let state = log.get_log_state().await.expect("a state");
                snapshots += u64::from(state.last_purged_log_id.is_some());
            }
            let (raft, state) = node(&store).await;
            raft.ensure_linearizable().await.expect("a leader");
            let name = format!("{writer} in term {term}").into_bytes();
            let there = counts(&state).get(&name).copied().unwrap_or(0);
            assert!(there >= count, "{there} of {count} acknowledged entries are there");
            assert!(there <= count + 1, "{there} entries are there, and {count} were acknowledged of one at a time");
            terms = raft.metrics().borrow().current_term;
            raft.shutdown().await.expect("an end");
        });
    }
    assert!(snapshots > 0, "no log was purged");
}

#[test]
#[ignore = "a child, which another test kills"]
fn child_installs() {
    let store = support::store_of_child();
    let folder = Folder::new("openraft-sources");
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let mut sources = [state_of(&folder, "a", 300).await, state_of(&folder, "b", 700).await];
        let (_log, mut state) = opened(&store).expect("a storage");
        for round in 1..=1_000_000 {
            let from = &mut sources[round % 2];
            let sent = from.get_current_snapshot().await.expect("a snapshot").expect("a state");
            state.install_snapshot(&sent.meta, sent.snapshot).await.expect("an installation");
            println!("durable {round}");
        }
    });
}

#[test]
fn a_kill_leaves_the_old_state_or_the_new_one() {
    let folder = Folder::new("openraft-kill-install");
    let path = folder.0.join("s");
    for kill in 1..=kills() {
        killed("child_installs", &path, kill % 5 + 1);
        let store = again(&path);
        let (_log, mut state) = opened(&store).expect("a storage");
        let applied = tokio::runtime::Runtime::new().expect("a runtime").block_on(state.applied_state());
        let records = applied.expect("a place").0.expect("a state").index;
        let name = if records == 300 { "a" } else { "b" };
        let wanted = (1..=records).map(|index| (format!("{name} {index}").into_bytes(), 1)).collect();
        assert_eq!(counts(&state), wanted);
    }
}
