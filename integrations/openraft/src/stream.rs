//! A state on its way to another node: a stream, which the sender makes of a snapshot of its kv store while it is read,
//! and of which the receiver fills a kv store while it is written. No copy lies between.
//!
//! A stream has all maps of a state: MAGIC; of each map its name, and its records; an empty name; and the checksum
//! (CRC-32C) of everything before it. Strings have their size before them, 4 bytes, little-endian. Behind the records
//! of a map stands the size NO_MORE.

use std::future::Future;
use std::io::{self, Read, SeekFrom};
use std::pin::Pin;
use std::sync::{mpsc, Arc};
use std::task::{ready, Context, Poll};

use memlith::kv::{Kv, Map, Record, Records, Snapshot};
use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use crate::damaged;
use crate::state::Generation;

const MAGIC: &[u8] = b"MLOPNR1\n";
const NO_MORE: u32 = u32::MAX;
const KEY_BYTES_MAX: u32 = 1024;
const VALUE_BYTES_MAX: u32 = 16 << 20;
const PIECE_BYTES: usize = 64 << 10;

/// The state of a node as openraft sends it: `SnapshotData` of the types.
///
/// One that is sent is read and sought, as often as needed; it shows one moment, while commits go on. One that is
/// received is written in order; what was written before may be written again. It works with openraft's own transport
/// in chunks, and with any other that reads here and writes there.
pub struct SnapshotStream(Way);

enum Way {
    Sent(Sent),
    Received(Received),
}

impl SnapshotStream {
    pub(crate) async fn sent(generation: Arc<Generation>) -> io::Result<(Vec<u8>, Self)> {
        let (orders, todo) = mpsc::channel();
        let (tell, told) = oneshot::channel();
        std::thread::Builder::new().name("memlith-snapshot".into()).spawn(move || serve(&generation, tell, &todo))?;
        let position = told.await.map_err(|_| ended())??;
        Ok((position, Self(Way::Sent(Sent { orders, at: 0, piece: Piece::None, size: None }))))
    }

    pub(crate) fn received(make: impl FnOnce() -> io::Result<Generation> + Send + 'static) -> io::Result<Self> {
        let (pieces, arriving) = mpsc::channel();
        let (tell, done) = oneshot::channel();
        std::thread::Builder::new().name("memlith-snapshot".into()).spawn(move || {
            let filled =
                make().and_then(|made| match fill(Arriving { arriving, piece: Vec::new(), at: 0 }, &made.kv) {
                    Ok(()) => Ok(made),
                    Err(error) => {
                        made.remove();
                        Err(error)
                    }
                });
            if let Err(Ok(unwanted)) = tell.send(filled) {
                unwanted.remove();
            }
        })?;
        Ok(Self(Way::Received(Received { pieces: Some(pieces), done, at: 0, end: 0, taken: None })))
    }

    pub(crate) fn is_sent(&self) -> bool {
        matches!(self.0, Way::Sent(_))
    }

    /// The state that was received, when all of it is there.
    pub(crate) async fn finish(self) -> io::Result<Generation> {
        let Way::Received(mut received) = self.0 else { return Err(one_way()) };
        drop(received.pieces.take());
        received.done.await.unwrap_or_else(|_| Err(ended()))
    }
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the thread of this snapshot has ended")
}

fn one_way() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "a snapshot is read where it is sent, and written where it is received")
}

// ---- sending -------------------------------------------------------------------------------------------------------

enum Order {
    /// The bytes from an offset on, at the end none.
    Read(u64, oneshot::Sender<io::Result<Vec<u8>>>),
    Size(oneshot::Sender<io::Result<u64>>),
}

struct Sent {
    orders: mpsc::Sender<Order>,
    at: u64,
    piece: Piece,
    size: Option<(oneshot::Receiver<io::Result<u64>>, i64)>, // of a seek from the end, and by how much
}

enum Piece {
    None,
    Asked(oneshot::Receiver<io::Result<Vec<u8>>>),
    There(Vec<u8>, u64), // and its offset
}

impl Sent {
    fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            match &mut self.piece {
                Piece::There(bytes, from) => {
                    let skipped = self.at.checked_sub(*from).map_or(usize::MAX, |skipped| skipped as usize);
                    if bytes.is_empty() && skipped == 0 {
                        return Poll::Ready(Ok(())); // the end
                    }
                    if skipped < bytes.len() {
                        let count = buffer.remaining().min(bytes.len() - skipped);
                        buffer.put_slice(&bytes[skipped..skipped + count]);
                        self.at += count as u64;
                        return Poll::Ready(Ok(()));
                    }
                    self.piece = Piece::None;
                }
                Piece::Asked(answer) => {
                    let bytes = ready!(Pin::new(answer).poll(context)).map_err(|_| ended())??;
                    self.piece = Piece::There(bytes, self.at);
                }
                Piece::None => {
                    let (tell, told) = oneshot::channel();
                    self.orders.send(Order::Read(self.at, tell)).map_err(|_| ended())?;
                    self.piece = Piece::Asked(told);
                }
            }
        }
    }

    fn start_seek(&mut self, to: SeekFrom) -> io::Result<()> {
        if let Piece::Asked(_) = self.piece {
            self.piece = Piece::None;
        }
        match to {
            SeekFrom::Start(at) => self.at = at,
            SeekFrom::Current(by) => self.at = moved(self.at, by)?,
            SeekFrom::End(by) => {
                let (tell, told) = oneshot::channel();
                self.orders.send(Order::Size(tell)).map_err(|_| ended())?;
                self.size = Some((told, by));
            }
        }
        Ok(())
    }

    fn poll_complete(&mut self, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
        if let Some((told, by)) = &mut self.size {
            let size = ready!(Pin::new(told).poll(context)).map_err(|_| ended())??;
            self.at = moved(size, *by)?;
            self.size = None;
        }
        Poll::Ready(Ok(self.at))
    }
}

fn moved(at: u64, by: i64) -> io::Result<u64> {
    at.checked_add_signed(by)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "an offset before the beginning"))
}

/// The thread of a state that is sent, which has the snapshot. Tells the records of the state's place, and then what it
/// is asked for.
fn serve(generation: &Generation, tell: oneshot::Sender<io::Result<Vec<u8>>>, todo: &mpsc::Receiver<Order>) {
    let begun = (|| -> io::Result<_> {
        let names = generation.kv.maps()?;
        let maps: Vec<_> = names
            .into_iter()
            .filter_map(|name| Some(generation.kv.find_map(&name).transpose()?.map(|map| (name, map))))
            .collect::<memlith::Result<_>>()?;
        let snapshot = generation.kv.read()?;
        let position = generation.position(&snapshot)?;
        Ok((maps, snapshot, position))
    })();
    let (maps, snapshot) = match begun {
        Ok((maps, snapshot, position)) => {
            drop(tell.send(Ok(position)));
            (maps, snapshot)
        }
        Err(error) => return drop(tell.send(Err(error))),
    };
    let mut pieces = Pieces::new(&snapshot, &maps);
    while let Ok(order) = todo.recv() {
        match order {
            Order::Read(offset, tell) => {
                if pieces.offset > offset {
                    pieces = Pieces::new(&snapshot, &maps);
                }
                drop(tell.send(pieces.from(offset)));
            }
            Order::Size(tell) => {
                let mut all = Pieces::new(&snapshot, &maps);
                drop(tell.send(all.from(u64::MAX).map(|_| all.offset)));
            }
        }
    }
}

/// The bytes of a stream, from the beginning to the end.
struct Pieces<'s> {
    snapshot: &'s Snapshot<'s>,
    maps: &'s [(String, Map)], // that are not begun
    records: Option<Records<'s>>,
    offset: u64, // of the next piece
    begun: bool,
    ended: bool,
    sum: Sum,
}

impl<'s> Pieces<'s> {
    fn new(snapshot: &'s Snapshot<'s>, maps: &'s [(String, Map)]) -> Self {
        Self { snapshot, maps, records: None, offset: 0, begun: false, ended: false, sum: Sum::default() }
    }

    /// The bytes from an offset on, which is not before the next piece; none: the stream ends before it.
    fn from(&mut self, offset: u64) -> io::Result<Vec<u8>> {
        loop {
            let before = offset - self.offset;
            let mut piece = self.next()?;
            self.offset += piece.len() as u64;
            if piece.is_empty() || before < piece.len() as u64 {
                piece.drain(..(before as usize).min(piece.len()));
                return Ok(piece);
            }
        }
    }

    fn next(&mut self) -> io::Result<Vec<u8>> {
        let mut piece = Vec::new();
        if !self.begun {
            piece.extend_from_slice(MAGIC);
            self.begun = true;
        }
        while piece.len() < PIECE_BYTES && !self.ended {
            if let Some(records) = &mut self.records {
                if let Some((key, value)) = records.next().transpose()? {
                    put(&mut piece, &key);
                    put(&mut piece, &value);
                } else {
                    piece.extend_from_slice(&NO_MORE.to_le_bytes());
                    self.records = None;
                }
            } else if let Some(((name, map), others)) = self.maps.split_first() {
                put(&mut piece, name.as_bytes());
                self.records = Some(self.snapshot.range::<&[u8]>(*map, ..)?);
                self.maps = others;
            } else {
                put(&mut piece, b"");
                self.ended = true;
                self.sum.add(&piece);
                piece.extend_from_slice(&self.sum.value().to_le_bytes());
                return Ok(piece);
            }
        }
        self.sum.add(&piece);
        Ok(piece)
    }
}

fn put(piece: &mut Vec<u8>, bytes: &[u8]) {
    piece.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    piece.extend_from_slice(bytes);
}

// ---- receiving -----------------------------------------------------------------------------------------------------

type Taken = oneshot::Sender<()>;

struct Received {
    pieces: Option<mpsc::Sender<(Vec<u8>, Taken)>>,
    done: oneshot::Receiver<io::Result<Generation>>,
    at: u64,
    end: u64, // of what was written
    taken: Option<(usize, oneshot::Receiver<()>)>,
}

impl Received {
    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.taken.is_none() {
            let known = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(bytes.len());
            if known > 0 || bytes.is_empty() {
                self.at += known as u64; // sent again, after an answer that was lost
                return Poll::Ready(Ok(known));
            }
            let piece = bytes[..bytes.len().min(PIECE_BYTES)].to_vec();
            let (tell, told) = oneshot::channel();
            self.end += piece.len() as u64;
            self.taken = Some((piece.len(), told));
            let pieces = self.pieces.as_ref().ok_or_else(ended)?;
            pieces.send((piece, tell)).map_err(|_| ended())?;
        }
        let Some((count, told)) = &mut self.taken else { return Poll::Ready(Err(ended())) };
        let (count, result) = ((*count).min(bytes.len()), ready!(Pin::new(told).poll(context)));
        self.taken = None;
        self.at += count as u64;
        Poll::Ready(result.map(|()| count).map_err(|_| ended()))
    }

    fn start_seek(&mut self, to: SeekFrom) -> io::Result<()> {
        let at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::Current(by) => moved(self.at, by)?,
            SeekFrom::End(by) => moved(self.end, by)?,
        };
        if at > self.end {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a part of the snapshot was left out"));
        }
        self.at = at;
        Ok(())
    }
}

/// The bytes that arrive, as the receiving thread reads them.
struct Arriving {
    arriving: mpsc::Receiver<(Vec<u8>, Taken)>,
    piece: Vec<u8>,
    at: usize,
}

impl Read for Arriving {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.piece.len() {
            let Ok((piece, taken)) = self.arriving.recv() else { return Ok(0) };
            (self.piece, self.at) = (piece, 0);
            let _ = taken.send(()); // or the writer does not wait any more
        }
        let count = buffer.len().min(self.piece.len() - self.at);
        buffer[..count].copy_from_slice(&self.piece[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// Reads a stream, with its checksum.
struct Parts<R> {
    source: R,
    sum: Sum,
}

impl<R: Read> Parts<R> {
    fn bytes(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.source.read_exact(&mut bytes)?;
        self.sum.add(&bytes);
        Ok(bytes)
    }

    fn number(&mut self) -> io::Result<u32> {
        Ok(u32::from_le_bytes(self.bytes(4)?.try_into().expect("4 bytes")))
    }

    /// A string up to the given length; none: NO_MORE is in its place.
    fn string(&mut self, most: u32) -> io::Result<Option<Vec<u8>>> {
        match self.number()? {
            NO_MORE => Ok(None),
            size if size <= most => self.bytes(size as usize).map(Some),
            size => Err(damaged(format!("the snapshot is damaged: a string of {size} bytes"))),
        }
    }

    fn record(&mut self) -> io::Result<Option<Record>> {
        let Some(key) = self.string(KEY_BYTES_MAX)? else { return Ok(None) };
        let value =
            self.string(VALUE_BYTES_MAX)?.ok_or_else(|| damaged("the snapshot is damaged: a key without a value"))?;
        Ok(Some((key, value)))
    }
}

/// Fills an empty kv store.
fn fill(source: impl Read, kv: &Kv) -> io::Result<()> {
    let mut parts = Parts { source, sum: Sum::default() };
    if parts.bytes(MAGIC.len())? != MAGIC {
        return Err(damaged("this is no snapshot of memlith-openraft, or one of another version"));
    }
    loop {
        let name =
            parts.string(KEY_BYTES_MAX)?.ok_or_else(|| damaged("the snapshot is damaged: a map without a name"))?;
        if name.is_empty() {
            break;
        }
        let name = String::from_utf8(name).map_err(|_| damaged("the snapshot is damaged: the name of a map"))?;
        let (map, mut failed) = (kv.map(&name)?, None);
        kv.append(
            map,
            std::iter::from_fn(|| {
                parts.record().unwrap_or_else(|error| {
                    failed = Some(error);
                    None
                })
            }),
        )?;
        if let Some(error) = failed {
            return Err(error);
        }
    }
    let sum = parts.sum.value();
    if parts.number()? != sum {
        return Err(damaged("the snapshot is damaged: its checksum is another"));
    }
    Ok(())
}

// ---- tokio's traits ------------------------------------------------------------------------------------------------

impl AsyncRead for SnapshotStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Way::Sent(sent) => sent.poll_read(context, buffer),
            Way::Received(_) => Poll::Ready(Err(one_way())),
        }
    }
}

impl AsyncWrite for SnapshotStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            Way::Received(received) => received.poll_write(context, bytes),
            Way::Sent(_) => Poll::Ready(Err(one_way())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // durable when it is installed
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncSeek for SnapshotStream {
    fn start_seek(self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        match &mut self.get_mut().0 {
            Way::Sent(sent) => sent.start_seek(to),
            Way::Received(received) => received.start_seek(to),
        }
    }

    fn poll_complete(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
        match &mut self.get_mut().0 {
            Way::Sent(sent) => sent.poll_complete(context),
            Way::Received(received) => Poll::Ready(Ok(received.at)),
        }
    }
}

// ---- CRC-32C -------------------------------------------------------------------------------------------------------

#[derive(Default)]
struct Sum(u32);

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut sum, mut bit) = (byte as u32, 0);
        while bit < 8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 };
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
};

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        let sum = bytes.iter().fold(!self.0, |sum, byte| sum >> 8 ^ TABLE[((sum ^ u32::from(*byte)) & 0xff) as usize]);
        self.0 = !sum;
    }

    fn value(&self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Sum;

    #[test]
    fn checksum_of_the_standard() {
        let mut sum = Sum::default();
        sum.add(b"12345");
        sum.add(b"6789");
        assert_eq!(sum.value(), 0xe306_9283);
    }
}
