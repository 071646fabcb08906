//! Bytes in and out of one stream: reads into a buffer that the caller shares between connections, writes that gather.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stream::Stream;

/// Bytes that may wait for the peer. With more, nothing is read, and nothing more is encoded.
pub(crate) const BACKLOG_BYTES_MAX: usize = 256 * 1024;
const SLICES_MAX: usize = 64;
/// A lent buffer that grew beyond this is freed rather than given back.
const SPARE_BYTES_MAX: usize = 4 * BACKLOG_BYTES_MAX;

/// A buffer that waits for the peer.
struct Queued {
    bytes: Bytes,
    /// Whether no other connection has it.
    is_own: bool,
}

pub(crate) struct Socket {
    stream: Stream,
    /// What the peer sent together with its handshake.
    early: Bytes,
    /// Shared buffers, and own ones that must go before them.
    queue: VecDeque<Queued>,
    /// Own bytes that go after the queue.
    tail: Vec<u8>,
    written: usize,
    queued_bytes: usize,
    /// Those of them that are not shared.
    own_queued_bytes: usize,
    /// Bytes of the connection's stream before `tail`.
    before_tail: u64,
    /// Whether `tail` is a buffer that other connections use, too.
    is_lent: bool,
    is_held_back: bool,
    /// Whether the peer took something since that was asked last.
    has_taken: bool,
}

impl Socket {
    pub(crate) fn new(stream: impl Into<Stream>) -> Self {
        Self::upgraded(stream.into(), Bytes::new(), 0)
    }

    /// A stream on which the peer has sent `early`, and the server `sent_bytes`.
    pub(crate) fn upgraded(stream: Stream, early: Bytes, sent_bytes: u64) -> Self {
        Self {
            stream,
            early,
            queue: VecDeque::new(),
            tail: Vec::new(),
            written: 0,
            queued_bytes: 0,
            own_queued_bytes: 0,
            before_tail: sent_bytes,
            is_lent: false,
            is_held_back: false,
            has_taken: false,
        }
    }

    /// Uses `spare` for what is appended until [`Self::reclaim`], unless something waits for the peer already.
    pub(crate) fn lend(&mut self, spare: &mut Vec<u8>) {
        self.is_lent = self.tail.is_empty();
        if self.is_lent {
            std::mem::swap(&mut self.tail, spare);
        }
    }

    /// Gives the buffer back. What the peer has not taken moves to one of the connection's own.
    pub(crate) fn reclaim(&mut self, spare: &mut Vec<u8>) {
        if self.is_lent {
            std::mem::swap(&mut self.tail, spare);
            self.tail = spare.get(self.written..).unwrap_or_default().to_vec();
            self.before_tail += self.written as u64;
            self.written = 0;
            spare.clear();
            if spare.capacity() > SPARE_BYTES_MAX {
                *spare = Vec::new();
            }
        } else if self.tail.is_empty() {
            self.tail = Vec::new();
        } else if self.written > BACKLOG_BYTES_MAX {
            // A peer that always takes something, and never all of it, would have everything kept that it was ever sent.
            self.tail.drain(..self.written);
            self.before_tail += self.written as u64;
            self.written = 0;
        }
    }

    /// The position in the connection's stream at which the buffer of [`Self::out`] begins.
    pub(crate) fn out_begins_at(&self) -> u64 {
        self.before_tail
    }

    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }

    /// Appends bytes that are shared with other connections.
    pub(crate) fn push(&mut self, shared: Bytes) {
        self.seal_tail();
        self.before_tail += shared.len() as u64;
        self.queued_bytes += shared.len();
        self.queue.push_back(Queued { bytes: shared, is_own: false });
    }

    fn seal_tail(&mut self) {
        self.before_tail += self.tail.len() as u64;
        if self.tail.len() > self.written {
            let own = Bytes::copy_from_slice(self.tail.get(self.written..).unwrap_or_default());
            self.queued_bytes += own.len();
            self.own_queued_bytes += own.len();
            self.queue.push_back(Queued { bytes: own, is_own: true });
        }
        self.tail.clear();
        self.written = 0;
    }

    pub(crate) fn backlog_bytes(&self) -> usize {
        self.queued_bytes + self.tail.len() - self.written
    }

    /// The position in the connection's stream up to which the system has taken it for the peer.
    pub(crate) fn taken_to(&self) -> u64 {
        self.ends_at().saturating_sub(self.backlog_bytes() as u64)
    }

    /// The position in the connection's stream behind what was appended.
    pub(crate) fn ends_at(&self) -> u64 {
        self.before_tail + self.tail.len() as u64
    }

    /// Whether so much waits that nothing is read before the peer has taken some of it.
    pub(crate) fn is_full(&self) -> bool {
        self.backlog_bytes() >= BACKLOG_BYTES_MAX
    }

    /// The bytes that wait and no other connection has.
    pub(crate) fn own_backlog_bytes(&self) -> usize {
        self.own_queued_bytes + self.tail.len() - self.written
    }

    /// Whether the system has everything that was appended.
    pub(crate) fn is_flushed(&self) -> bool {
        self.backlog_bytes() == 0 && !self.stream.may_hold_output()
    }

    /// Notes that there may be more for the peer than the backlog allows for.
    pub(crate) fn hold_back(&mut self) {
        self.is_held_back = true;
    }

    /// Whether something was held back; said once.
    pub(crate) fn take_held_back(&mut self) -> bool {
        std::mem::take(&mut self.is_held_back)
    }

    /// Forgets what waits behind the first buffer, which may be written in part, to make room for a close frame. What
    /// the peer gets is then a prefix of what it was to get: it resumes behind it.
    pub(crate) fn drop_backlog(&mut self) {
        let Some(first) = self.queue.front() else { return };
        self.queued_bytes = first.bytes.len();
        self.own_queued_bytes = if first.is_own { self.queued_bytes } else { 0 };
        self.queue.truncate(1);
        self.tail.clear();
        self.written = 0;
    }

    pub(crate) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.backlog_bytes() > 0 {
            let count = ready!(self.poll_write(context))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(count);
        }
        if self.stream.may_hold_output() {
            return Pin::new(&mut self.stream).poll_flush(context);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let tail = self.tail.get(self.written..).unwrap_or_default();
        let stream = Pin::new(&mut self.stream);
        if self.queue.is_empty() {
            return stream.poll_write(context, tail);
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut used = 0;
        let buffers = self.queue.iter().map(|queued| &queued.bytes[..]).chain([tail]);
        for (slice, buffer) in slices.iter_mut().zip(buffers) {
            *slice = IoSlice::new(buffer);
            used += 1;
        }
        stream.poll_write_vectored(context, slices.get(..used).unwrap_or_default())
    }

    /// Whether the peer has taken something; said once.
    pub(crate) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.has_taken)
    }

    fn advance(&mut self, mut count: usize) {
        self.has_taken = true;
        while let Some(front) = self.queue.front_mut() {
            let taken = count.min(front.bytes.len());
            front.bytes.advance(taken);
            self.queued_bytes -= taken;
            self.own_queued_bytes -= if front.is_own { taken } else { 0 };
            if !front.bytes.is_empty() {
                return;
            }
            count -= taken;
            self.queue.pop_front();
        }
        self.written += count;
        if self.written >= self.tail.len() {
            self.before_tail += self.tail.len() as u64;
            self.tail.clear();
            self.written = 0;
        }
    }

    /// Reads into `buffer`; `Ok(0)` when the peer has finished.
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if !self.early.is_empty() {
            let part = self.early.split_to(self.early.len().min(buffer.len()));
            buffer.get_mut(..part.len()).unwrap_or_default().copy_from_slice(&part);
            return Poll::Ready(Ok(part.len()));
        }
        let mut buffer = ReadBuf::new(buffer);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    pub(crate) fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    pub(crate) fn release(&mut self) {
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn what_was_taken_is_not_kept_while_something_waits() {
        const ALL: usize = 4 * 1024 * 1024;
        // The system takes far less at a time than may wait here.
        let [at, from] = [(); 2].map(|()| tokio::net::TcpSocket::new_v4().unwrap());
        at.set_send_buffer_size(16 * 1024).unwrap();
        from.set_recv_buffer_size(16 * 1024).unwrap();
        at.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = at.listen(1).unwrap();
        let mut peer = from.connect(listener.local_addr().unwrap()).await.unwrap();
        let mut socket = Socket::new(listener.accept().await.unwrap().0);
        let (mut sent, mut heard, mut spare) = (Vec::new(), Vec::new(), Vec::new());
        let mut buffer = vec![0; 8 * 1024];
        while heard.len() < ALL {
            socket.lend(&mut spare);
            while socket.backlog_bytes() < BACKLOG_BYTES_MAX {
                assert_eq!(socket.ends_at(), sent.len() as u64);
                let frame = (sent.len() as u32).to_be_bytes().repeat(1_000);
                socket.out().extend_from_slice(&frame);
                sent.extend_from_slice(&frame);
            }
            let flush = |context: &mut Context<'_>| Poll::Ready(socket.poll_flush(context).is_pending());
            assert!(std::future::poll_fn(flush).await, "something waits");
            assert_eq!(socket.taken_to() + socket.backlog_bytes() as u64, sent.len() as u64);
            socket.reclaim(&mut spare);
            assert!(socket.tail.len() <= 3 * BACKLOG_BYTES_MAX, "{} bytes", socket.tail.len());
            // What has come; for more the socket is to be flushed again.
            let reading = tokio::time::timeout(std::time::Duration::from_millis(1), peer.read(&mut buffer));
            if let Ok(count) = reading.await {
                heard.extend_from_slice(&buffer[..count.unwrap()]);
            }
        }
        assert!(sent.starts_with(&heard));
    }

    #[tokio::test]
    async fn what_is_left_after_dropping_the_backlog_is_a_prefix() {
        for (has_shared, has_own) in [(true, true), (true, false), (false, true)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let mut socket = Socket::new(listener.accept().await.unwrap().0);
            let (mut all, mut number) = (Vec::new(), 0_u64);
            // Until the peer takes no more, with much that is not even begun.
            let mut is_blocked = false;
            while !is_blocked || socket.backlog_bytes() < 1024 * 1024 {
                let frame: Vec<u8> = std::iter::repeat_n(number.to_be_bytes(), 4_000).flatten().collect();
                number += 1;
                all.extend_from_slice(&frame);
                if has_shared && (!has_own || number.is_multiple_of(2)) {
                    socket.push(Bytes::from(frame));
                } else {
                    socket.out().extend_from_slice(&frame);
                }
                let flush = |context: &mut Context<'_>| Poll::Ready(socket.poll_flush(context).is_pending());
                is_blocked = std::future::poll_fn(flush).await;
            }
            socket.drop_backlog();
            socket.out().extend_from_slice(b"close");
            let writing = tokio::spawn(async move {
                std::future::poll_fn(|context| socket.poll_flush(context)).await.unwrap();
            });
            let mut heard = Vec::new();
            peer.read_to_end(&mut heard).await.unwrap();
            writing.await.unwrap();
            let kept = heard.strip_suffix(b"close").unwrap();
            assert!(all.starts_with(kept), "{has_shared} {has_own}");
            assert_eq!(kept.len() % 32_000, 0, "a frame is whole");
        }
    }
}
