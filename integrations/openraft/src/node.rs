//! The few records of a node: vote, committed and purged log id, and which kv store is the state.

use std::io;

use memlith::kv::{Durability, Kv, Map};
use memlith::Store;
use serde::{de::DeserializeOwned, Serialize};

use crate::damaged;

pub const VOTE: &str = "vote";
pub const COMMITTED: &str = "committed";
pub const PURGED: &str = "purged";
pub const STATE: &str = "state";

pub struct Node {
    kv: Kv,
    map: Map,
}

impl Node {
    pub fn open(store: &Store) -> io::Result<Self> {
        let kv = Kv::open(store, "openraft")?;
        let map = kv.map("node")?;
        Ok(Self { kv, map })
    }

    pub fn get<T: DeserializeOwned>(&self, key: &str) -> io::Result<Option<T>> {
        self.kv.read()?.get(self.map, key.as_bytes())?.map(decode).transpose()
    }

    pub fn put<T: Serialize>(&self, key: &str, value: &T, durability: Durability) -> io::Result<()> {
        let bytes = encode(value)?;
        self.kv.transact_with(durability, |txn| txn.put(self.map, key.as_bytes(), &bytes))?;
        Ok(())
    }
}

pub fn encode<T: Serialize + ?Sized>(value: &T) -> io::Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    postcard::from_bytes(bytes).map_err(|error| damaged(format!("a record of openraft's storage: {error}")))
}
