//! Bytes in and out of one socket: reads into a buffer shared by all connections of a thread, writes that gather.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Bytes one read takes. Larger ones halve the rate of connections that send one message at a time.
pub(super) const READ_BYTES: usize = 16 * 1024;
/// Buffers gathered into one write.
const SLICES_MAX: usize = 64;
/// An emptied buffer larger than this is given back rather than kept for the next answers.
const KEPT_BYTES_MAX: usize = 8 * 1024;

pub(super) struct Socket {
    stream: TcpStream,
    /// Shared frames, and own ones that must go before them.
    queue: VecDeque<Bytes>,
    /// Own frames that go after the queue.
    tail: Vec<u8>,
    /// Bytes of `tail` that are written already.
    written: usize,
    queued_bytes: usize,
}

impl Socket {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, queue: VecDeque::new(), tail: Vec::new(), written: 0, queued_bytes: 0 }
    }

    /// The buffer to which own frames are appended.
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }

    /// Adds frames that are shared with other connections.
    pub(super) fn push(&mut self, frames: Bytes) {
        self.seal_tail();
        self.queued_bytes += frames.len();
        self.queue.push_back(frames);
    }

    fn seal_tail(&mut self) {
        if self.tail.len() > self.written {
            let own = Bytes::from(std::mem::take(&mut self.tail)).slice(self.written..);
            self.queued_bytes += own.len();
            self.queue.push_back(own);
        }
        self.tail.clear();
        self.written = 0;
    }

    /// Bytes that wait for the peer.
    pub(super) fn backlog_bytes(&self) -> usize {
        self.queued_bytes + self.tail.len() - self.written
    }

    /// Forgets all whole parcels but the first, which may be written in part, to make place for a last word.
    pub(super) fn drop_queue(&mut self) {
        self.queue.truncate(1);
        self.queued_bytes = self.queue.front().map_or(0, Bytes::len);
    }

    /// Writes until nothing is left or the peer takes no more.
    pub(super) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.backlog_bytes() > 0 {
            let count = ready!(self.poll_write(context))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(count);
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
        let buffers = self.queue.iter().map(|frames| &frames[..]).chain([tail]);
        for (slice, buffer) in slices.iter_mut().zip(buffers) {
            *slice = IoSlice::new(buffer);
            used += 1;
        }
        stream.poll_write_vectored(context, slices.get(..used).unwrap_or_default())
    }

    fn advance(&mut self, mut count: usize) {
        while let Some(front) = self.queue.front_mut() {
            if count < front.len() {
                front.advance(count);
                self.queued_bytes -= count;
                return;
            }
            count -= front.len();
            self.queued_bytes -= front.len();
            self.queue.pop_front();
        }
        self.written += count;
        if self.written >= self.tail.len() {
            self.tail.clear();
            self.written = 0;
            if self.tail.capacity() > KEPT_BYTES_MAX {
                self.tail = Vec::new();
            }
        }
    }

    /// Reads into `buffer`; `Ok(0)` when the peer has finished.
    pub(super) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Tells the peer that nothing more comes.
    pub(super) fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    /// Gives memory back; for connections that fall idle.
    pub(super) fn release(&mut self) {
        if self.backlog_bytes() == 0 {
            self.tail = Vec::new();
            self.queue = VecDeque::new();
        }
    }
}
