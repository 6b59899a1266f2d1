//! One node of a replicated key-value service with transactions: openraft on memlith-openraft. It takes the flags and
//! requests of the program kvnode in integrations/raft, and is tested by the same clients and faults.
//! docs/replication.md shows how to start three.
//!
//!     POST /transaction  a transaction of txn.rs; answered when a majority has it on the disk and it was validated
//!     POST /read         the newest values of keys, as of one moment (linearizable)
//!     PUT /k/KEY         a transaction that writes one key: the body is the value
//!     GET /k/KEY         the newest value (linearizable); 404: there is none
//!     GET /status        this node's role, and the indexes of its log and state
//!     PUT /servers/NAME  adds a node with a vote, which was started with -join: the body is its raft address
//!     DELETE /servers/NAME  removes a node
//!
//! A node that does not lead answers 421 with the leader's HTTP address. After 503 it is not known whether a
//! transaction took effect: the client sends it again with the same number. A node ends when its disk has failed.

mod http;
mod network;
mod txn;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use memlith_openraft::{SnapshotStream, State};
use openraft::error::{CheckIsLeaderError, ClientWriteError, ForwardToLeader, InitializeError, RaftError};
use openraft::{BasicNode, ChangeMembers, Config, SnapshotPolicy};
use tokio::net::TcpListener;

use http::{Answer, Request};
use txn::{Outcome, Records, Status};

openraft::declare_raft_types!(pub Types: D = Vec<u8>, R = Outcome, SnapshotData = SnapshotStream);
pub type Raft = openraft::Raft<Types>;

const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Settings {
    folder: String,
    id: String,
    peers: String,
    via: String,
    planted: String,
    join: bool,
    quick: bool,
    election: Option<Duration>,
}

fn settings() -> Result<Settings, Box<dyn Error>> {
    let mut settings = Settings::default();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "-dir" => settings.folder = value()?,
            "-id" => settings.id = value()?,
            "-peers" => settings.peers = value()?, // NAME=RAFT-ADDRESS=HTTP-ADDRESS,...
            "-via" => settings.via = value()?,     // RAFT-ADDRESS=ADDRESS,...
            "-planted" => settings.planted = value()?, // a fault for tests: stale-reads, lost-sessions
            "-election" => {
                let milliseconds = value()?;
                let digits = milliseconds.strip_suffix("ms").ok_or("-election takes milliseconds: 1500ms")?;
                settings.election = Some(Duration::from_millis(digits.parse()?));
            }
            "-join" => settings.join = true, // a new node waits until the others add it, and does not found a group
            "-quick" => settings.quick = true, // short timeouts and logs, as tests on one machine want them
            _ => return Err(format!("there is no flag {word}").into()),
        }
    }
    Ok(settings)
}

/// The number of a node in the log: of its name (FNV-1a).
fn number(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn config(settings: &Settings) -> Result<Config, Box<dyn Error>> {
    let mut config = Config { heartbeat_interval: 200, election_timeout_min: 1000, ..Config::default() };
    if settings.quick {
        (config.heartbeat_interval, config.election_timeout_min) = (50, 200);
        config.snapshot_policy = SnapshotPolicy::LogsSinceLast(50);
        (config.max_in_snapshot_log_to_keep, config.purge_batch_size) = (20, 1);
        config.snapshot_max_chunk_size = 300; // so that a small state is several chunks
        config.replication_lag_threshold = 40;
    }
    if let Some(election) = settings.election {
        config.election_timeout_min = election.as_millis() as u64;
        config.heartbeat_interval = config.election_timeout_min / 4;
    }
    config.election_timeout_max = 2 * config.election_timeout_min;
    Ok(config.validate()?)
}

struct Node {
    raft: Raft,
    state: State<Types, Records>,
    http: HashMap<String, String>, // raft address: HTTP address
    stale_reads: bool,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let settings = settings()?;
    let mut members = BTreeMap::new();
    let (mut http, mut own) = (HashMap::new(), None);
    for peer in settings.peers.split(',') {
        let parts: Vec<_> = peer.split('=').collect();
        let [name, raft, web] = parts[..] else { return Err(format!("-peers: {peer:?} has not 3 parts").into()) };
        members.insert(number(name), BasicNode::new(raft));
        http.insert(raft.to_owned(), web.to_owned());
        if name == settings.id {
            own = Some((number(name), raft.to_owned(), web.to_owned()));
        }
    }
    let (own, raft_address, web_address) = own.ok_or("-dir and -id are needed, and -peers has to name this node")?;
    let ways: HashMap<_, _> =
        settings.via.split(',').filter_map(|way| way.split_once('=')).map(|(a, b)| (a.into(), b.into())).collect();

    std::fs::create_dir_all(&settings.folder)?;
    let store = memlith::Store::options().create(true).open(&settings.folder)?;
    let machine = Records { forget_sessions: settings.planted == "lost-sessions" };
    let (log, state) = memlith_openraft::open::<Types, _>(&store, machine)?;
    let network = network::Ways(Arc::new(ways));
    let raft = Raft::new(own, Arc::new(config(&settings)?), network, log, state.clone()).await?;
    let nodes = network::serve(TcpListener::bind(&raft_address).await?, own, raft.clone());
    let web = TcpListener::bind(&web_address).await?;
    if !settings.join {
        match raft.initialize(members).await {
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut metrics = raft.metrics();
    let node = Arc::new(Node { raft, state, http, stale_reads: settings.planted == "stale-reads" });
    let clients = http::serve(web, move |request| {
        let node = node.clone();
        async move { node.answer(request).await }
    });
    tokio::select! {
        ended = nodes => ended?,
        ended = clients => ended?,
        state = metrics.wait_for(|metrics| metrics.running_state.is_err()) => {
            state?.running_state.clone()?;
        }
    }
    Ok(())
}

// ---- requests ------------------------------------------------------------------------------------------------------

type Answered<T> = Result<T, Answer>;

impl Node {
    async fn answer(&self, request: Request) -> Answer {
        let Request { method, path, body } = request;
        let answered = match (method.as_str(), path.as_str()) {
            ("POST", "/transaction") => self.transaction(body).await,
            ("POST", "/read") => self.read(&body).await,
            ("GET", "/status") => Ok(self.status()),
            (_, path) => {
                if let Some(key) = path.strip_prefix("/k/").filter(|key| !key.is_empty()) {
                    self.record(&method, key, &body).await
                } else if let Some(name) = path.strip_prefix("/servers/").filter(|name| !name.is_empty()) {
                    self.servers(&method, name, &body).await
                } else {
                    Err(Answer::new("404 Not Found", "there is no such path\n"))
                }
            }
        };
        answered.map_or_else(|failed| failed, |body| Answer::new("200 OK", body))
    }

    /// The answer of a node that cannot say.
    fn unknown(error: impl ToString) -> Answer {
        Answer::new("503 Service Unavailable", error.to_string() + "\n")
    }

    fn elsewhere(&self, leader: &ForwardToLeader<u64, BasicNode>) -> Answer {
        let known = leader.leader_node.as_ref().and_then(|node| self.http.get(&node.addr)).cloned();
        let text = format!("the leader is {}\n", known.as_deref().unwrap_or("not known"));
        Answer { leader: known, ..Answer::new("421 Misdirected Request", text) }
    }

    async fn in_time<T>(work: impl std::future::Future<Output = T>) -> Answered<T> {
        tokio::time::timeout(TIMEOUT, work).await.map_err(Self::unknown)
    }

    /// Returns when a majority has the entry on the disk, and it was applied here.
    async fn commit(&self, entry: Vec<u8>) -> Answered<Outcome> {
        match Self::in_time(self.raft.client_write(entry)).await? {
            Ok(response) => Ok(response.data),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(leader))) => Err(self.elsewhere(&leader)),
            Err(error) => Err(Self::unknown(error)),
        }
    }

    async fn transaction(&self, body: Vec<u8>) -> Answered<Vec<u8>> {
        if txn::Command::decode(&body).is_none() {
            return Err(Answer::new("400 Bad Request", "this is no transaction\n"));
        }
        Ok(self.commit(body).await?.encode())
    }

    /// Versions and values of keys in one state, which has all that was answered before the call.
    async fn values(&self, keys: &[&[u8]]) -> Answered<Vec<(u64, Vec<u8>)>> {
        if !self.stale_reads {
            match Self::in_time(self.raft.ensure_linearizable()).await? {
                Ok(_) => {}
                Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(leader))) => {
                    return Err(self.elsewhere(&leader));
                }
                Err(error) => return Err(Self::unknown(error)),
            }
        }
        let read = self.state.view(|snapshot, maps| keys.iter().map(|key| txn::value(snapshot, maps, key)).collect());
        read.map_err(Self::unknown)
    }

    async fn read(&self, body: &[u8]) -> Answered<Vec<u8>> {
        let keys = txn::keys(body).ok_or_else(|| Answer::new("400 Bad Request", "these are no keys\n"))?;
        let values = self.values(&keys).await?;
        let encoded = values
            .into_iter()
            .map(|(version, value)| [&version.to_be_bytes()[..], &(value.len() as u32).to_be_bytes(), &value].concat());
        Ok(encoded.flatten().collect())
    }

    async fn record(&self, method: &str, key: &str, body: &[u8]) -> Answered<Vec<u8>> {
        match method {
            "PUT" => match self.commit(txn::put(key, body)).await?.status {
                Status::Committed => Ok(Vec::new()),
                _ => Err(Answer::new("400 Bad Request", "the key or the value is too long\n")),
            },
            "GET" => match self.values(&[key.as_bytes()]).await?.remove(0) {
                (0, _) => Err(Answer::new("404 Not Found", "there is no such key\n")),
                (_, value) => Ok(value),
            },
            _ => Err(Answer::new("405 Method Not Allowed", "PUT or GET\n")),
        }
    }

    /// Changes the group. Answers when a majority of the new one has the change on the disk.
    async fn servers(&self, method: &str, name: &str, body: &[u8]) -> Answered<Vec<u8>> {
        let nodes = BTreeSet::from([number(name)]);
        let changed = match method {
            "PUT" => {
                let address = BasicNode::new(String::from_utf8_lossy(body));
                match self.raft.add_learner(number(name), address, true).await {
                    Ok(_) => self.raft.change_membership(ChangeMembers::AddVoterIds(nodes), false).await,
                    failed => failed,
                }
            }
            "DELETE" => self.raft.change_membership(ChangeMembers::RemoveVoters(nodes), false).await,
            _ => return Err(Answer::new("405 Method Not Allowed", "PUT or DELETE\n")),
        };
        match changed {
            Ok(_) => Ok(Vec::new()),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(leader))) => Err(self.elsewhere(&leader)),
            Err(error) => Err(Self::unknown(error)),
        }
    }

    fn status(&self) -> Vec<u8> {
        let now = self.raft.metrics().borrow().clone();
        let first = now.purged.map_or(0, |purged| purged.index + 1);
        let (last, applied) = (now.last_log_index.unwrap_or(0), now.last_applied.map_or(0, |applied| applied.index));
        format!("{:?} log {first}-{last} applied {applied}\n", now.state).into_bytes()
    }
}
