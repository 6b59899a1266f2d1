//! Transactions: what a client sends, what is an entry of the log, and how it changes the state. The bytes and the
//! rules are those of integrations/raft/internal/txn, so that the clients of both are the same. Keys have versions: the
//! index of the entry that wrote the key, 0 for a key that is not there.

use memlith::kv::{Map, Snapshot, Transaction};
use memlith_openraft::Machine;
use openraft::LogId;
use serde::{Deserialize, Serialize};

use crate::Types;

const KEY_BYTES_MAX: usize = 1000;
const VALUE_BYTES_MAX: usize = 1 << 20;
const RESULT_BYTES: usize = 9;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    Committed = 1,
    /// A key that was read has another version: nothing was changed.
    Conflict,
    /// A later number of this client was answered: the result is forgotten.
    Old,
    #[default]
    Malformed,
}

/// The outcome of a transaction, and the version of what it wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub status: Status,
    pub version: u64,
}

impl Outcome {
    pub fn encode(self) -> Vec<u8> {
        [&[self.status as u8][..], &self.version.to_be_bytes()].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (status, version) = bytes.split_first()?;
        let status = [Status::Committed, Status::Conflict, Status::Old, Status::Malformed]
            .into_iter()
            .find(|each| *each as u8 == *status)?;
        Some(Self { status, version: u64::from_be_bytes(version.try_into().ok()?) })
    }
}

/// Takes parts from the front of what a client sent; none: it ends before.
struct Parts<'b>(&'b [u8]);

impl<'b> Parts<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = (self.0.get(..count)?, &self.0[count..]);
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<usize> {
        Some(usize::from(u16::from_be_bytes(self.take(2)?.try_into().ok()?)))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    fn key(&mut self) -> Option<&'b [u8]> {
        let size = self.u16().filter(|size| (1..=KEY_BYTES_MAX).contains(size))?;
        self.take(size)
    }

    fn value(&mut self) -> Option<&'b [u8]> {
        let size = u32::from_be_bytes(self.take(4)?.try_into().ok()?) as usize;
        (size <= VALUE_BYTES_MAX).then(|| self.take(size))?
    }

    fn end<T>(self, result: T) -> Option<T> {
        self.0.is_empty().then_some(result)
    }
}

pub struct Command<'b> {
    client: u64,
    number: u64,
    reads: Vec<(&'b [u8], u64)>,
    writes: Vec<(&'b [u8], &'b [u8])>,
}

impl<'b> Command<'b> {
    pub fn decode(bytes: &'b [u8]) -> Option<Self> {
        let mut parts = Parts(bytes);
        let (client, number) = (parts.u64()?, parts.u64()?);
        let reads = (0..parts.u16()?).map(|_| Some((parts.key()?, parts.u64()?))).collect::<Option<_>>()?;
        let writes = (0..parts.u16()?).map(|_| Some((parts.key()?, parts.value()?))).collect::<Option<_>>()?;
        parts.end(Self { client, number, reads, writes })
    }
}

/// The transaction that writes one key, without a client.
pub fn put(key: &str, value: &[u8]) -> Vec<u8> {
    let head = [&[0; 18][..], &1u16.to_be_bytes(), &(key.len() as u16).to_be_bytes(), key.as_bytes()].concat();
    [&head[..], &(value.len() as u32).to_be_bytes(), value].concat()
}

/// The keys of a read.
pub fn keys(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut parts = Parts(bytes);
    let keys = (0..parts.u16()?).map(|_| parts.key()).collect::<Option<_>>()?;
    parts.end(keys)
}

/// Version and value of a key as a client gets them.
pub fn value(snapshot: &Snapshot<'_>, maps: &[Map], key: &[u8]) -> memlith::Result<(u64, Vec<u8>)> {
    Ok(snapshot.get(maps[VALUES], key)?.map_or((0, Vec::new()), |record| (version(record), record[8..].to_vec())))
}

fn version(record: &[u8]) -> u64 {
    u64::from_be_bytes(record[..8].try_into().expect("a version"))
}

const VALUES: usize = 0; // key: version and value
const SESSIONS: usize = 1; // client: the newest number and its result

/// The state of all nodes.
pub struct Records {
    /// A fault for tests: a transaction that is sent twice takes effect twice.
    pub forget_sessions: bool,
}

impl Machine<Types> for Records {
    fn maps(&self) -> &[&str] {
        &["values", "sessions"]
    }

    fn apply(
        &self,
        txn: &mut Transaction<'_>,
        maps: &[Map],
        at: &LogId<u64>,
        bytes: &Vec<u8>,
    ) -> memlith::Result<Outcome> {
        let Some(command) = Command::decode(bytes) else { return Ok(Outcome::default()) };
        let session = command.client.to_be_bytes();
        let remembers = command.client != 0 && !self.forget_sessions;
        let known = if remembers { txn.get(maps[SESSIONS], &session)? } else { None };
        if let Some(known) = known.filter(|known| known.len() == 8 + RESULT_BYTES) {
            match version(known) {
                newest if newest == command.number => return Ok(Outcome::decode(&known[8..]).unwrap_or_default()),
                newest if newest > command.number => return Ok(Outcome { status: Status::Old, version: 0 }),
                _ => {}
            }
        }
        let mut outcome = Outcome { status: Status::Committed, version: at.index };
        for (key, read) in command.reads {
            if txn.get(maps[VALUES], key)?.map_or(0, version) != read {
                outcome = Outcome { status: Status::Conflict, version: 0 };
            }
        }
        if outcome.status == Status::Committed {
            for (key, value) in command.writes {
                txn.put(maps[VALUES], key, &[&at.index.to_be_bytes(), value].concat())?;
            }
        }
        if remembers {
            txn.put(maps[SESSIONS], &session, &[&command.number.to_be_bytes()[..], &outcome.encode()].concat())?;
        }
        Ok(outcome)
    }
}
