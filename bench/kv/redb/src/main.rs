//! A process of side redb in suite processes: memlith-bench-redb FILE WORKLOAD NUMBER RECORDS VALUE_BYTES
//!
//! Standard input is the socket of bench/kv/processes.cpp, whose head tells the messages.
use std::error::Error;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use redb::{Builder, ConcurrencyMode, Database, ReadableDatabase, TableDefinition};

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("map");
const SEED: u64 = 20240427;
const FILLED_AT_ONCE: usize = 1000;

/// As Random in bench/kit/random.hpp: the keys are the same.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e3779b97f4a7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d049bb133111eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

/// Durable when it returns; redb has nothing else where several processes write.
fn put(db: &Database, records: &[(&[u8], &[u8])]) -> Result<(), Box<dyn Error>> {
    let transaction = db.begin_write()?;
    {
        let mut table = transaction.open_table(TABLE)?;
        for (key, value) in records {
            table.insert(*key, *value)?;
        }
    }
    transaction.commit()?;
    Ok(())
}

fn get(db: &Database, key: &[u8], into: &mut Vec<u8>) -> Result<(), Box<dyn Error>> {
    let found = db.begin_read()?.open_table(TABLE)?.get(key)?.ok_or("a record is gone")?;
    into.clear();
    into.extend_from_slice(found.value());
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let (workload, number) = (words[2].as_str(), words[3].parse::<u64>()?);
    let (records, value_bytes) = (words[4].parse::<usize>()?, words[5].parse::<usize>()?);
    let db = Builder::new().set_concurrency_mode(ConcurrencyMode::MultiWriter).create(&words[1])?;
    let keys: Vec<String> = (0..records as u64).map(|each| format!("{:016x}", Random(each + 1).next())).collect();
    let mut pool = vec![0u8; value_bytes + 512];
    let mut random = Random(SEED);
    pool.iter_mut().for_each(|byte| *byte = random.next() as u8);
    if workload == "fill" {
        for some in keys.chunks(FILLED_AT_ONCE) {
            let all: Vec<(&[u8], &[u8])> = some.iter().map(|key| (key.as_bytes(), &pool[..value_bytes])).collect();
            put(&db, &all)?;
        }
    }
    // SAFETY: the parent has made standard input a socket, which nothing else in this process uses.
    let mut parent = unsafe { UnixStream::from_raw_fd(0) };
    let mut random = Random(SEED + number);
    let mut value = Vec::new();
    let mut answer = vec![0u64];
    loop {
        let bytes: Vec<u8> = answer.iter().flat_map(|each| each.to_ne_bytes()).collect();
        parent.write_all(&bytes)?;
        let mut turn = [0u8; 8];
        if parent.read_exact(&mut turn).is_err() {
            return Ok(());
        }
        let turn = Duration::from_nanos(u64::from_ne_bytes(turn));
        answer = vec![0, 0];
        let begin = Instant::now();
        let mut before = begin;
        while before - begin < turn {
            let key = keys[random.below(records)].as_bytes();
            if workload == "get" {
                get(&db, key, &mut value)?;
            } else {
                let at = random.next() as usize % 512;
                put(&db, &[(key, &pool[at..at + value_bytes])])?;
            }
            answer.push(before.elapsed().as_nanos() as u64);
            before = Instant::now();
        }
        answer[0] = begin.elapsed().as_nanos() as u64;
        answer[1] = answer.len() as u64 - 2;
    }
}
