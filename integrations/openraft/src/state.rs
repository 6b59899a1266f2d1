//! The state machine: a kv store in which the place of the newest applied entry commits with the changes of the entry.
//! The state is its own snapshot.

use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use memlith::kv::{Durability, Kv, Map, Snapshot};
use memlith::Store;
use openraft::storage::{RaftStateMachine, Snapshot as Moment};
use openraft::{
    AnyError, Entry, EntryPayload, LogId, OptionalSend, RaftSnapshotBuilder, RaftTypeConfig, SnapshotMeta,
    StorageError, StorageIOError, StoredMembership,
};
use tokio::sync::oneshot;

use crate::node::{decode, encode, Node, STATE};
use crate::stream::SnapshotStream;
use crate::{damaged, Machine};

const OWN_MAP: &str = "openraft";
const APPLIED: &[u8] = b"applied";
const MEMBERSHIP: &[u8] = b"membership";
const PREFIX: &str = "openraft-state-";

/// A kv store that is the state, was it, or will be.
pub struct Generation {
    pub kv: Kv,
    store: Store,
    name: String,
    own: Map,
}

/// The newest applied entry, and the membership: none before the first entry.
type Place<C> = (
    Option<LogId<<C as RaftTypeConfig>::NodeId>>,
    StoredMembership<<C as RaftTypeConfig>::NodeId, <C as RaftTypeConfig>::Node>,
);

impl Generation {
    fn open(store: &Store, number: u64) -> io::Result<Self> {
        let name = format!("{PREFIX}{number}");
        let kv = Kv::open(store, &name)?;
        let own = kv.map(OWN_MAP)?;
        Ok(Self { kv, store: store.clone(), name, own })
    }

    /// Closes and removes it. What cannot be removed now is at the next opening of the state.
    pub fn remove(self) {
        let Self { kv, store, name, .. } = self;
        if kv.close().is_ok() {
            let _ = store.remove(&name);
        }
    }

    /// The records of its place, encoded.
    pub fn position(&self, snapshot: &Snapshot<'_>) -> io::Result<Vec<u8>> {
        let record = |key| Ok::<_, memlith::Error>(snapshot.get(self.own, key)?.map(<[u8]>::to_vec));
        encode(&(record(APPLIED)?, record(MEMBERSHIP)?))
    }

    fn place<C: RaftTypeConfig>(&self) -> io::Result<Place<C>> {
        place_of::<C>(&self.position(&self.kv.read()?)?)
    }
}

fn place_of<C: RaftTypeConfig>(position: &[u8]) -> io::Result<Place<C>> {
    let (applied, membership): (Option<Vec<u8>>, Option<Vec<u8>>) = decode(position)?;
    Ok((
        applied.as_deref().map(decode).transpose()?,
        membership.as_deref().map(decode).transpose()?.unwrap_or_default(),
    ))
}

/// The state machine of a node, for `openraft::Raft::new`. Clones are the same state: one is openraft's, and others
/// read.
pub struct State<C, M> {
    inner: Arc<Inner<M>>,
    types: PhantomData<fn() -> C>,
}

struct Inner<M> {
    store: Store,
    node: Arc<Node>,
    machine: M,
    current: RwLock<(Arc<Generation>, Arc<[Map]>)>,
    next: AtomicU64, // the number of a generation that is not there yet
}

impl<C, M> Clone for State<C, M> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), types: PhantomData }
    }
}

fn maps_of<C: RaftTypeConfig, M: Machine<C>>(machine: &M, kv: &Kv) -> io::Result<Arc<[Map]>> {
    machine.maps().iter().map(|name| kv.map(name).map_err(io::Error::from)).collect()
}

impl<C, M> State<C, M>
where
    C: RaftTypeConfig,
    M: Machine<C>,
{
    pub(crate) fn open(store: &Store, node: Arc<Node>, machine: M) -> io::Result<Self> {
        if machine.maps().contains(&OWN_MAP) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the map \"openraft\" belongs to memlith-openraft",
            ));
        }
        let number = node.get::<u64>(STATE)?;
        let current = Generation::open(store, number.unwrap_or(1))?;
        if number.is_none() {
            node.put(STATE, &1u64, Durability::Sync)?;
        }
        // The rest of a state that was being received, or had been replaced, at a crash.
        for name in store.regions()? {
            if name.starts_with(PREFIX) && name != current.name {
                store.remove(&name)?;
            }
        }
        let maps = maps_of::<C, M>(&machine, &current.kv)?;
        let (current, next) = (RwLock::new((Arc::new(current), maps)), AtomicU64::new(number.unwrap_or(1) + 1));
        Ok(Self { inner: Arc::new(Inner { store: store.clone(), node, machine, current, next }), types: PhantomData })
    }

    fn current(&self) -> (Arc<Generation>, Arc<[Map]>) {
        self.inner.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the state as of one moment, in the maps of [`Machine::maps`]. Entries are applied meanwhile. Nothing waits
    /// for a flush: what was applied is durable in the logs of a majority. A linearizable read calls
    /// `Raft::ensure_linearizable` before.
    pub fn view<T>(&self, read: impl FnOnce(&Snapshot<'_>, &[Map]) -> memlith::Result<T>) -> memlith::Result<T> {
        let (generation, maps) = self.current();
        let snapshot = generation.kv.read()?;
        read(&snapshot, &maps)
    }

    fn apply_all(&self, entries: &[Entry<C>]) -> io::Result<Vec<C::R>>
    where
        C: RaftTypeConfig<Entry = Entry<C>>,
        C::R: Default,
    {
        let (generation, maps) = self.current();
        let apply = |txn: &mut memlith::kv::Transaction<'_>, entry: &Entry<C>| -> io::Result<C::R> {
            match &entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Normal(command) => {
                    return Ok(self.inner.machine.apply(txn, &maps, &entry.log_id, command)?);
                }
                EntryPayload::Membership(members) => {
                    let stored = StoredMembership::new(Some(entry.log_id.clone()), members.clone());
                    txn.put(generation.own, MEMBERSHIP, &encode(&stored)?)?;
                }
            }
            Ok(C::R::default())
        };
        let Some(last) = entries.last() else { return Ok(Vec::new()) };
        // Weak: the entries are durable in the logs of a majority, and a crash takes this state back to entries that
        // its log still has.
        let (responses, _) = generation.kv.transact_with(Durability::Weak, |txn| -> io::Result<_> {
            let responses = entries.iter().map(|entry| apply(txn, entry)).collect::<io::Result<_>>()?;
            txn.put(generation.own, APPLIED, &encode(&last.log_id)?)?;
            Ok(responses)
        })?;
        Ok(responses)
    }

    fn receive(&self) -> io::Result<SnapshotStream> {
        let (store, number) = (self.inner.store.clone(), self.inner.next.fetch_add(1, Ordering::Relaxed));
        SnapshotStream::received(move || Generation::open(&store, number))
    }

    /// Replaces the state by one that was received. A crash leaves the one or the other.
    async fn install(&self, applied: Option<LogId<C::NodeId>>, mut stream: SnapshotStream) -> io::Result<()> {
        if stream.is_sent() {
            let mut copy = self.receive()?;
            tokio::io::copy(&mut stream, &mut copy).await?;
            stream = copy;
        }
        let received = stream.finish().await?;
        let state = self.clone();
        on_thread(move || {
            let (found, _) = received.place::<C>()?;
            if found != applied {
                received.remove();
                return Err(damaged(format!("the snapshot is of entry {found:?}, and {applied:?} was announced")));
            }
            let inner = &state.inner;
            let maps = maps_of::<C, M>(&inner.machine, &received.kv)?;
            received.kv.persist()?;
            let number: u64 = received.name[PREFIX.len()..].parse().expect("the number of a generation");
            inner.node.put(STATE, &number, Durability::Sync)?; // ORDER: a state is durable before its name
            let mut current = inner.current.write().unwrap_or_else(PoisonError::into_inner);
            let (before, _) = std::mem::replace(&mut *current, (Arc::new(received), maps));
            drop(current);
            if let Ok(unused) = Arc::try_unwrap(before) {
                unused.remove(); // else it is read, and is removed at the next opening
            }
            Ok(())
        })
        .await
    }

    async fn moment(&self) -> io::Result<Moment<C>>
    where
        C: RaftTypeConfig<SnapshotData = SnapshotStream>,
    {
        let generation = self.current().0;
        let (position, stream) = SnapshotStream::sent(generation.clone()).await?;
        on_thread(move || Ok(generation.kv.persist()?)).await?; // ORDER: openraft drops entries that a snapshot has
        let (last_log_id, last_membership) = place_of::<C>(&position)?;
        // The same state has the same stream, whichever node sends it.
        let applied = last_log_id.as_ref().map(|at| format!("{}-{}", at.leader_id, at.index));
        let snapshot_id = format!("memlith-1-{}", applied.as_deref().unwrap_or("empty"));
        let meta = SnapshotMeta { last_log_id, last_membership, snapshot_id };
        Ok(Moment { meta, snapshot: Box::new(stream) })
    }
}

/// Runs what waits for the disk on a thread of its own.
async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let (tell, told) = oneshot::channel();
    std::thread::Builder::new().name("memlith-openraft".into()).spawn(move || drop(tell.send(work())))?;
    told.await.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::Other, "a thread has panicked")))
}

// ---- what openraft calls -------------------------------------------------------------------------------------------

/// Makes the state durable, which is the snapshot; no copy is written.
pub struct SnapshotBuilder<C, M>(State<C, M>);

impl<C, M> RaftSnapshotBuilder<C> for SnapshotBuilder<C, M>
where
    C: RaftTypeConfig<Entry = Entry<C>, SnapshotData = SnapshotStream>,
    M: Machine<C>,
{
    async fn build_snapshot(&mut self) -> Result<Moment<C>, StorageError<C::NodeId>> {
        self.0.moment().await.map_err(|e| StorageIOError::write_snapshot(None, AnyError::new(&e)).into())
    }
}

impl<C, M> RaftStateMachine<C> for State<C, M>
where
    C: RaftTypeConfig<Entry = Entry<C>, SnapshotData = SnapshotStream>,
    C::R: Default,
    M: Machine<C>,
{
    type SnapshotBuilder = SnapshotBuilder<C, M>;

    async fn applied_state(&mut self) -> Result<Place<C>, StorageError<C::NodeId>> {
        self.current().0.place::<C>().map_err(|e| StorageIOError::read_state_machine(AnyError::new(&e)).into())
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<C::R>, StorageError<C::NodeId>>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.apply_all(&entries.into_iter().collect::<Vec<_>>())
            .map_err(|e| StorageIOError::write_state_machine(AnyError::new(&e)).into())
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        SnapshotBuilder(self.clone())
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<SnapshotStream>, StorageError<C::NodeId>> {
        self.receive().map(Box::new).map_err(|e| StorageIOError::write_snapshot(None, AnyError::new(&e)).into())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<C::NodeId, C::Node>,
        snapshot: Box<SnapshotStream>,
    ) -> Result<(), StorageError<C::NodeId>> {
        self.install(meta.last_log_id.clone(), *snapshot)
            .await
            .map_err(|e| StorageIOError::write_snapshot(Some(meta.signature()), AnyError::new(&e)).into())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Moment<C>>, StorageError<C::NodeId>> {
        let moment = self.moment().await.map_err(|e| StorageIOError::read_snapshot(None, AnyError::new(&e)))?;
        Ok(moment.meta.last_log_id.is_some().then_some(moment))
    }
}
