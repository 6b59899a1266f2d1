//! The storage of [openraft](openraft) on memlith: log, vote and state machine of one node in one memlith store. The
//! manual is `docs/replication.md`.
//!
//! ```no_run
//! use memlith::kv::{Map, Transaction};
//! use openraft::LogId;
//!
//! openraft::declare_raft_types!(pub Types: D = String, R = u64, SnapshotData = memlith_openraft::SnapshotStream);
//!
//! struct Counts;
//!
//! impl memlith_openraft::Machine<Types> for Counts {
//!     fn maps(&self) -> &[&str] {
//!         &["counts"]
//!     }
//!
//!     fn apply(
//!         &self,
//!         txn: &mut Transaction<'_>,
//!         maps: &[Map],
//!         _at: &LogId<u64>,
//!         name: &String,
//!     ) -> memlith::Result<u64> {
//!         let known = txn.get(maps[0], name.as_bytes())?;
//!         let count = known.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap())) + 1;
//!         txn.put(maps[0], name.as_bytes(), &count.to_le_bytes())?;
//!         Ok(count)
//!     }
//! }
//!
//! # fn main() -> std::io::Result<()> {
//! let store = memlith::Store::options().create(true).open("node")?;
//! let (log, state) = memlith_openraft::open::<Types, _>(&store, Counts)?;
//! // openraft::Raft::new(1, config, network, log, state.clone()).await, and state.view(...) for reads
//! # Ok(())
//! # }
//! ```

mod log;
mod node;
mod state;
mod stream;

use std::io;

use memlith::kv::{Map, Transaction};
use memlith::Store;
use openraft::{Entry, LogId, RaftTypeConfig};

pub use log::{Log, LogReader};
pub use state::{SnapshotBuilder, State};
pub use stream::SnapshotStream;

/// How a committed command changes the state, which is ordered maps of a kv store.
pub trait Machine<C: RaftTypeConfig>: Send + Sync + 'static {
    /// The names of the maps, always in the same order. The name "openraft" is taken.
    fn maps(&self) -> &[&str];

    /// Changes the state by one command, with nothing but the transaction; `maps` are those of [`Machine::maps`], and
    /// `at` is the place of the command in the log. What this does depends on the state, `at` and `command` alone, so
    /// that all nodes do the same. An error is one of the transaction's calls: it stops the node.
    fn apply(
        &self,
        txn: &mut Transaction<'_>,
        maps: &[Map],
        at: &LogId<C::NodeId>,
        command: &C::D,
    ) -> memlith::Result<C::R>;
}

/// The storage of a node: what `openraft::Raft::new` takes. The store has one node, and is opened by one process. The
/// names of its structures begin with "openraft"; a program may have others in it.
///
/// Errors: those of the store; `InvalidData`, if what is found was not written by this crate with these types.
pub fn open<C, M>(store: &Store, machine: M) -> io::Result<(Log<C>, State<C, M>)>
where
    C: RaftTypeConfig<Entry = Entry<C>, SnapshotData = SnapshotStream>,
    C::R: Default,
    M: Machine<C>,
{
    let node = std::sync::Arc::new(node::Node::open(store)?);
    let state = State::open(store, node.clone(), machine)?;
    Ok((Log::open(store, node)?, state))
}

/// The error of bytes that are not as this crate writes them.
fn damaged(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}
