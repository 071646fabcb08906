//! A socket driven by hand: reads go through one buffer shared by all connections of a thread, so that an idle
//! connection holds none; what is to be sent collects in one buffer and goes out in one write.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::client::stream::{Encryption, Stream, encrypted};

/// As much as one read takes. Larger ones cost more than they save.
const READ_BYTES: usize = 32 * 1024;
/// An empty output buffer larger than this is given back.
const KEPT_BYTES_MAX: usize = 256 * 1024;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// Shows `take` what earlier reads cut off and what came after it. `take` says how many bytes of it are done with; the
/// rest is held.
pub(crate) fn take_whole<E>(
    held: &mut Vec<u8>,
    bytes: &[u8],
    take: impl FnOnce(&[u8]) -> Result<usize, E>,
) -> Result<(), E> {
    if held.is_empty() {
        let used = take(bytes)?;
        held.extend_from_slice(bytes.get(used..).unwrap_or_default());
    } else {
        held.extend_from_slice(bytes);
        let used = take(held)?;
        held.drain(..used.min(held.len()));
    }
    Ok(())
}

/// One socket and what waits to be written to it.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: Stream,
    /// Append here, then [`Wire::poll_flush`].
    pub(crate) out: Vec<u8>,
    written: usize,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream: Stream::Left(stream), out: Vec::new(), written: 0 })
    }

    /// The same with TLS, if `encryption` says so.
    pub(crate) async fn connect(stream: TcpStream, encryption: Option<&Encryption>) -> io::Result<Self> {
        let stream = encrypted(stream, encryption).await?;
        Ok(Self { stream, out: Vec::new(), written: 0 })
    }

    pub(crate) fn stream(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// Shows `use_bytes` what arrived, and the output buffer for its answers. The end of the stream is an error.
    pub(crate) fn poll_read<R>(
        &mut self,
        cx: &mut Context<'_>,
        use_bytes: impl FnOnce(&mut [u8], &mut Vec<u8>) -> R,
    ) -> Poll<io::Result<R>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
            let bytes = buffer.filled_mut();
            if bytes.is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            Poll::Ready(Ok(use_bytes(bytes, &mut self.out)))
        })
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest @ [_, ..]) = self.out.get(self.written..) {
            let n = ready!(Pin::new(&mut self.stream).poll_write(cx, rest))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += n;
        }
        self.written = 0;
        self.out.clear();
        if self.out.capacity() > KEPT_BYTES_MAX {
            self.out = Vec::new();
        }
        // TLS may hold what the system did not take.
        Pin::new(&mut self.stream).poll_flush(cx)
    }
}
