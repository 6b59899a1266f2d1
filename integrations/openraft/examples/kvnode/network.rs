//! The nodes' way to each other: a connection for each pair and direction, with one request at a time on it. A frame
//! has its size, 4 bytes; a request begins with the number of the node that it is for, because a node that was replaced
//! has the address of the old one.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use openraft::error::{InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, Unreachable};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse, VoteRequest,
    VoteResponse,
};
use openraft::{AnyError, BasicNode};
use serde::{de::DeserializeOwned, Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::{Raft, Types};

const FRAME_BYTES_MAX: usize = 256 << 20;
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Serialize, Deserialize)]
enum Request {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<u64>),
    Snapshot(InstallSnapshotRequest<Types>),
}

type Answer<T, E = RaftError<u64>> = Result<T, E>;
type Failure<E = RaftError<u64>> = RPCError<u64, BasicNode, E>;

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

async fn send<T: Serialize>(connection: &mut TcpStream, content: &T) -> io::Result<()> {
    let bytes = postcard::to_stdvec(content).map_err(invalid)?;
    connection.write_all(&[&(bytes.len() as u32).to_be_bytes()[..], &bytes].concat()).await
}

async fn receive<T: DeserializeOwned>(connection: &mut TcpStream) -> io::Result<T> {
    let size = connection.read_u32().await? as usize;
    if size > FRAME_BYTES_MAX {
        return Err(invalid("a frame that is too long"));
    }
    let mut bytes = vec![0; size];
    connection.read_exact(&mut bytes).await?;
    postcard::from_bytes(&bytes).map_err(invalid)
}

// ---- the called node -----------------------------------------------------------------------------------------------

pub async fn serve(listener: TcpListener, own: u64, raft: Raft) -> io::Result<()> {
    loop {
        let (connection, _) = listener.accept().await?;
        let raft = raft.clone();
        tokio::spawn(async move { answer(connection, own, raft).await });
    }
}

async fn answer(mut connection: TcpStream, own: u64, raft: Raft) -> io::Result<()> {
    connection.set_nodelay(true)?;
    loop {
        let (target, request): (u64, Request) = receive(&mut connection).await?;
        if target != own {
            return Err(invalid("a request for another node"));
        }
        match request {
            Request::Append(request) => send(&mut connection, &raft.append_entries(request).await).await?,
            Request::Vote(request) => send(&mut connection, &raft.vote(request).await).await?,
            Request::Snapshot(request) => {
                let last = request.done.then(|| request.meta.snapshot_id.clone());
                let done = raft.install_snapshot(request).await;
                if let (Some(id), Ok(_)) = (last, &done) {
                    eprintln!("Installed remote snapshot {id}");
                }
                send(&mut connection, &done).await?;
            }
        }
    }
}

// ---- the calling node ----------------------------------------------------------------------------------------------

/// Other addresses to reach nodes by.
pub struct Ways(pub Arc<HashMap<String, String>>);

pub struct Peer {
    target: u64,
    node: BasicNode,
    address: String,
    connection: Option<TcpStream>,
}

impl RaftNetworkFactory<Types> for Ways {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Peer {
        let address = self.0.get(&node.addr).unwrap_or(&node.addr).clone();
        Peer { target, node: node.clone(), address, connection: None }
    }
}

impl Peer {
    /// A call that fails, or that its caller gives up, leaves no connection on which its answer could arrive later.
    async fn exchange<T: DeserializeOwned>(&mut self, request: Request) -> io::Result<T> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => TcpStream::connect(&self.address).await?,
        };
        connection.set_nodelay(true)?;
        send(&mut connection, &(self.target, request)).await?;
        let answer = receive(&mut connection).await?;
        self.connection = Some(connection);
        Ok(answer)
    }

    async fn call<T, E>(&mut self, request: Request) -> Result<T, Failure<E>>
    where
        T: DeserializeOwned,
        E: DeserializeOwned + std::error::Error,
    {
        match self.exchange::<Answer<T, E>>(request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                Err(RPCError::RemoteError(RemoteError::new_with_node(self.target, self.node.clone(), error)))
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Err(RPCError::Unreachable(Unreachable::new(&AnyError::new(&error))))
            }
            Err(error) => Err(RPCError::Network(NetworkError::new(&AnyError::new(&error)))),
        }
    }
}

impl RaftNetwork<Types> for Peer {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, Failure> {
        self.call(Request::Append(request)).await
    }

    async fn vote(&mut self, request: VoteRequest<u64>, _: RPCOption) -> Result<VoteResponse<u64>, Failure> {
        self.call(Request::Vote(request)).await
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<Types>,
        _: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, Failure<RaftError<u64, InstallSnapshotError>>> {
        self.call(Request::Snapshot(request)).await
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(PAUSE))
    }
}
