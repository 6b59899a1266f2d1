//! As much of HTTP/1.1 as the clients of kvnode need.

use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const HEAD_BYTES_MAX: u64 = 16 << 10;
const BODY_BYTES_MAX: usize = 16 << 20;

pub struct Request {
    pub method: String,
    pub path: String,
    pub body: Vec<u8>,
}

pub struct Answer {
    pub status: &'static str,
    pub leader: Option<String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn new(status: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, leader: None, body: body.into() }
    }
}

/// Answers requests until the listener fails.
pub async fn serve<A, F>(listener: TcpListener, answer: A) -> io::Result<()>
where
    A: Fn(Request) -> F + Send + Sync + 'static,
    F: Future<Output = Answer> + Send,
{
    let answer = Arc::new(answer);
    loop {
        let (connection, _) = listener.accept().await?;
        let answer = answer.clone();
        tokio::spawn(async move { converse(connection, &*answer).await });
    }
}

/// Until the client closes the connection, or sends what this is not for.
async fn converse<A, F>(connection: TcpStream, answer: &A) -> io::Result<()>
where
    A: Fn(Request) -> F,
    F: Future<Output = Answer>,
{
    connection.set_nodelay(true)?;
    let mut connection = BufReader::new(connection);
    while let Some(request) = receive(&mut connection).await? {
        let Answer { status, leader, body } = answer(request).await;
        let leader = leader.map_or(String::new(), |leader| format!("X-Leader: {leader}\r\n"));
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{leader}\r\n", body.len());
        connection.write_all(&[head.as_bytes(), &body].concat()).await?;
    }
    Ok(())
}

async fn receive(connection: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "this is no request");
    let mut head = (&mut *connection).take(HEAD_BYTES_MAX);
    let mut line = String::new();
    head.read_line(&mut line).await?;
    let mut words = line.split_ascii_whitespace();
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(None) };
    let (method, path, mut size) = (method.to_owned(), path.to_owned(), 0);
    loop {
        line.clear();
        if head.read_line(&mut line).await? == 0 {
            return Err(bad());
        }
        let Some((name, value)) = line.split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            size = value.trim().parse().ok().filter(|size| *size <= BODY_BYTES_MAX).ok_or_else(bad)?;
        }
    }
    let mut body = vec![0; size];
    connection.read_exact(&mut body).await?;
    Ok(Some(Request { method, path, body }))
}
