//! Log and vote. Entry `index` of openraft is entry `index + 1` of an application log. One thread makes durable what
//! was appended, and what else waits for the disk, in the order of the calls; entries that come meanwhile share the
//! next flush.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::{mpsc, Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use memlith::applog::{AppLog, Options, WhenFull};
use memlith::kv::Durability;
use memlith::Store;
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{
    AnyError, Entry, LogId, LogState, OptionalSend, RaftLogReader, RaftTypeConfig, StorageError, StorageIOError, Vote,
};
use tokio::sync::oneshot;

use crate::damaged;
use crate::node::{decode, encode, Node, COMMITTED, PURGED, VOTE};

/// About so much does a leader read at once for a node that lags.
const READ_BYTES: usize = 4 << 20;

/// Log and vote of a node, for `openraft::Raft::new`.
pub struct Log<C: RaftTypeConfig> {
    shared: Arc<Shared>,
    voted: bool, // since it was opened
    jobs: Option<mpsc::Sender<Job<C>>>,
    worker: Option<JoinHandle<()>>,
}

/// Reads the entries of a [`Log`].
pub struct LogReader<C> {
    shared: Arc<Shared>,
    types: PhantomData<fn() -> C>,
}

struct Shared {
    log: AppLog,
    node: Arc<Node>,
    waiting: Mutex<Waiting>,
}

/// Entries are appended with the lock held.
struct Waiting {
    next: u64,                           // the number of the entry that is appended next
    entries: VecDeque<(u64, Arc<[u8]>)>, // the newest, which may not be durable: the application log has the others
}

enum Job<C: RaftTypeConfig> {
    /// Makes durable what was appended before, and tells openraft.
    Flush(LogFlushed<C>),
    Run(Box<dyn FnOnce() + Send>),
}

/// The number of an entry.
fn number(index: u64) -> u64 {
    index + 1
}

impl Shared {
    fn open(store: &Store, node: Arc<Node>) -> io::Result<Self> {
        let options = Options { create: true, when_full: WhenFull::Grow, ..Options::default() };
        let log = AppLog::open(store, "openraft-log", options)?;
        let first = log.info().map(|info| info.newest.max(info.consumed) + 1)?;
        let waiting = Waiting { next: first, entries: VecDeque::new() };
        Ok(Self { log, node, waiting: Mutex::new(waiting) })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the entries before number `first`, and lets the log begin there.
    fn begin_at(&self, first: u64) -> io::Result<()> {
        let mut waiting = self.waiting();
        if waiting.next < first {
            self.log.restart(first)?;
            waiting.next = first;
        } else if self.log.info()?.consumed + 1 < first {
            self.log.truncate_before(first)?;
        }
        Ok(())
    }

    fn append<C: RaftTypeConfig<Entry = Entry<C>>>(&self, entries: impl Iterator<Item = Entry<C>>) -> io::Result<()> {
        let (mut first, mut encoded) = (None, Vec::<Arc<[u8]>>::new());
        for entry in entries {
            let expected = *first.get_or_insert(number(entry.log_id.index)) + encoded.len() as u64;
            if number(entry.log_id.index) != expected {
                return Err(damaged(format!("entry {} comes where entry {} belongs", entry.log_id, expected - 1)));
            }
            encoded.push(encode(&entry)?.into());
        }
        let Some(first) = first else { return Ok(()) };
        let mut waiting = self.waiting();
        if waiting.next != first {
            if waiting.next > self.log.info()?.consumed + 1 {
                return Err(damaged(format!("entry {} comes behind entry {}", first - 1, waiting.next - 2)));
            }
            self.log.restart(first)?;
            waiting.next = first;
        }
        self.log.append_all(&encoded.iter().map(AsRef::as_ref).collect::<Vec<_>>())?;
        waiting.next += encoded.len() as u64;
        waiting.entries.extend((first..).zip(encoded));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.log.write()?;
        let durable = self.log.durable();
        let entries = &mut self.waiting().entries;
        entries.drain(..entries.partition_point(|(number, _)| *number <= durable));
        Ok(())
    }

    /// The entries of these numbers, as far as they exist, until their bytes reach the limit.
    fn read<C: RaftTypeConfig<Entry = Entry<C>>>(&self, from: u64, to: u64, bytes: usize) -> io::Result<Vec<Entry<C>>> {
        let (newer, end) = {
            let waiting = self.waiting();
            (
                waiting.entries.iter().filter(|(at, _)| (from..to).contains(at)).cloned().collect::<Vec<_>>(),
                waiting.next,
            )
        };
        let (mut entries, mut found, mut content) = (Vec::new(), 0, Vec::new());
        let begin = from.max(self.log.info()?.consumed + 1);
        for at in begin..newer.first().map_or(to.min(end), |(first, _)| *first) {
            if !self.log.get_into(at, &mut content)? {
                return Ok(entries); // dropped by another thread
            }
            entries.push(decode(&content)?);
            found += content.len();
            if found >= bytes {
                return Ok(entries);
            }
        }
        for (_, content) in newer {
            if found >= bytes {
                break;
            }
            entries.push(decode(&content)?);
            found += content.len();
        }
        Ok(entries)
    }

    fn read_range<C>(&self, range: &impl RangeBounds<u64>, bytes: usize) -> io::Result<Vec<Entry<C>>>
    where
        C: RaftTypeConfig<Entry = Entry<C>>,
    {
        let from = match range.start_bound() {
            Bound::Included(index) => number(*index),
            Bound::Excluded(index) => number(*index) + 1,
            Bound::Unbounded => 1,
        };
        let to = match range.end_bound() {
            Bound::Included(index) => number(*index).saturating_add(1),
            Bound::Excluded(index) => number(*index),
            Bound::Unbounded => u64::MAX,
        };
        self.read(from, to, bytes)
    }

    fn log_id<C: RaftTypeConfig<Entry = Entry<C>>>(&self, at: u64) -> io::Result<Option<LogId<C::NodeId>>> {
        Ok(self.read::<C>(at, at + 1, 1)?.pop().map(|entry| entry.log_id))
    }

    fn state<C: RaftTypeConfig<Entry = Entry<C>>>(&self) -> io::Result<LogState<C>> {
        let last_purged_log_id: Option<LogId<C::NodeId>> = self.node.get(PURGED)?;
        let newest = self.waiting().next - 1;
        let last = if newest > self.log.info()?.consumed { self.log_id::<C>(newest)? } else { None };
        Ok(LogState { last_log_id: last.or_else(|| last_purged_log_id.clone()), last_purged_log_id })
    }

    /// The committed log id that was saved, if the log still has it or has purged it: it is saved without a flush.
    fn committed<C: RaftTypeConfig<Entry = Entry<C>>>(&self) -> io::Result<Option<LogId<C::NodeId>>> {
        let Some(saved) = self.node.get::<Option<LogId<C::NodeId>>>(COMMITTED)?.flatten() else { return Ok(None) };
        let purged: Option<LogId<C::NodeId>> = self.node.get(PURGED)?;
        let known = purged.is_some_and(|purged| saved <= purged)
            || self.log_id::<C>(number(saved.index))?.is_some_and(|found| found == saved);
        Ok(known.then_some(saved))
    }
}

impl<C> Log<C>
where
    C: RaftTypeConfig<Entry = Entry<C>>,
{
    pub(crate) fn open(store: &Store, node: Arc<Node>) -> io::Result<Self> {
        let shared = Arc::new(Shared::open(store, node)?);
        if let Some(purged) = shared.node.get::<LogId<C::NodeId>>(PURGED)? {
            shared.begin_at(number(purged.index) + 1)?; // if a crash came between the record and the log
        }
        let (jobs, todo) = mpsc::channel();
        let worker = std::thread::Builder::new().name("memlith-openraft".into()).spawn({
            let shared = shared.clone();
            move || work::<C>(&shared, &todo)
        })?;
        Ok(Self { shared, voted: false, jobs: Some(jobs), worker: Some(worker) })
    }

    fn send(&self, job: Job<C>) {
        // The worker ends behind this sender alone, or with a panic, which the callers' channels tell.
        let _ = self.jobs.as_ref().expect("a log that is not dropped").send(job);
    }

    /// Runs on the thread of the disk, behind everything that was sent to it before.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (tell, told) = oneshot::channel();
        let shared = self.shared.clone();
        self.send(Job::Run(Box::new(move || drop(tell.send(work(&shared))))));
        told.await
            .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::BrokenPipe, "the thread of the disk has ended")))
    }
}

impl<C: RaftTypeConfig> Drop for Log<C> {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(worker) = self.worker.take() {
            let _ = worker.join(); // what was appended is durable then
        }
    }
}

/// Until the log is dropped.
fn work<C: RaftTypeConfig>(shared: &Shared, todo: &mpsc::Receiver<Job<C>>) {
    let mut next = todo.recv().ok();
    while let Some(job) = next.take() {
        match job {
            Job::Run(work) => work(),
            Job::Flush(first) => {
                let mut flushed = vec![first];
                while let Ok(job) = todo.try_recv() {
                    match job {
                        Job::Flush(one) => flushed.push(one),
                        other => {
                            next = Some(other);
                            break;
                        }
                    }
                }
                let done = shared.flush();
                for one in flushed {
                    one.log_io_completed(
                        done.as_ref().map(|()| ()).map_err(|e| io::Error::new(e.kind(), e.to_string())),
                    );
                }
            }
        }
        next = next.or_else(|| todo.recv().ok());
    }
}

// ---- what openraft calls -------------------------------------------------------------------------------------------

impl<C> RaftLogReader<C> for LogReader<C>
where
    C: RaftTypeConfig<Entry = Entry<C>>,
{
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        self.shared.read_range::<C>(&range, usize::MAX).map_err(|e| StorageIOError::read_logs(AnyError::new(&e)).into())
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        self.shared
            .read_range::<C>(&(start..end), READ_BYTES)
            .map_err(|e| StorageIOError::read_logs(AnyError::new(&e)).into())
    }
}

impl<C> RaftLogReader<C> for Log<C>
where
    C: RaftTypeConfig<Entry = Entry<C>>,
{
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        self.get_log_reader().await.try_get_log_entries(range).await
    }
}

impl<C> RaftLogStorage<C> for Log<C>
where
    C: RaftTypeConfig<Entry = Entry<C>>,
{
    type LogReader = LogReader<C>;

    async fn get_log_state(&mut self) -> Result<LogState<C>, StorageError<C::NodeId>> {
        self.shared.state::<C>().map_err(|e| StorageIOError::read_logs(AnyError::new(&e)).into())
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        LogReader { shared: self.shared.clone(), types: PhantomData }
    }

    async fn save_vote(&mut self, vote: &Vote<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let vote = vote.clone();
        self.voted = true;
        self.run(move |shared| shared.node.put(VOTE, &vote, Durability::Sync))
            .await
            .map_err(|e| StorageIOError::write_vote(AnyError::new(&e)).into())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<C::NodeId>>, StorageError<C::NodeId>> {
        let vote: Option<Vote<C::NodeId>> =
            self.shared.node.get(VOTE).map_err(|e| StorageIOError::read_vote(AnyError::new(&e)))?;
        // ORDER: a leader that starts again is elected in a new term. openraft lets one whose vote is committed go on
        // in the old term. But entries are sent before they are durable here: other nodes may have some that a crash
        // took from this node, which would give their log ids to others.
        Ok(vote.map(|vote| Vote { committed: vote.committed && self.voted, ..vote }))
    }

    async fn save_committed(&mut self, committed: Option<LogId<C::NodeId>>) -> Result<(), StorageError<C::NodeId>> {
        self.shared
            .node
            .put(COMMITTED, &committed, Durability::Weak)
            .map_err(|e| StorageIOError::write(AnyError::new(&e)).into())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId<C::NodeId>>, StorageError<C::NodeId>> {
        self.shared.committed::<C>().map_err(|e| StorageIOError::read(AnyError::new(&e)).into())
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<C>) -> Result<(), StorageError<C::NodeId>>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.shared
            .append::<C>(entries.into_iter())
            .map_err(|e| StorageError::from(StorageIOError::write_logs(AnyError::new(&e))))?;
        self.send(Job::Flush(callback));
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let last = log_id.index;
        self.run(move |shared| {
            let mut waiting = shared.waiting();
            shared.log.truncate_after(last)?;
            let kept = waiting.entries.partition_point(|(number, _)| *number <= last);
            waiting.entries.truncate(kept);
            waiting.next = waiting.next.min(last + 1);
            Ok(())
        })
        .await
        .map_err(|e| StorageIOError::write_logs(AnyError::new(&e)).into())
    }

    async fn purge(&mut self, log_id: LogId<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        self.run(move |shared| {
            shared.node.put(PURGED, &log_id, Durability::Sync)?; // ORDER: no log that begins behind what nothing names
            shared.begin_at(number(log_id.index) + 1)
        })
        .await
        .map_err(|e| StorageIOError::write_logs(AnyError::new(&e)).into())
    }
}
