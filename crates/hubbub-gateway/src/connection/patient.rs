//! A stream of HTTP/1, given up once its client takes nothing of what is written for too long, or others need the memory.
//!
//! An answer is whole in memory until it is written, so a client that does not read keeps it. Sockets have pings and bounded
//! queues instead, HTTP/2 has pings; so a stream that is upgraded is taken out of here.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::stream::Stream;
use crate::outgoing_memory::Reader;

pub(crate) struct PatientStream {
    stream: Stream,
    patience: Duration,
    /// Ends when a write has waited for too long; `None` = none waits.
    waiting: Option<Pin<Box<Sleep>>>,
    reader: Arc<Reader>,
}

impl PatientStream {
    /// A stream on which a write may wait for `patience` until the client takes some of it.
    pub(crate) fn new(stream: Stream, patience: Duration, reader: Arc<Reader>) -> Self {
        Self { stream, patience, waiting: None, reader }
    }

    pub(crate) fn into_stream(self) -> Stream {
        self.stream
    }

    fn or_give_up<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            if self.waiting.take().is_some() {
                self.reader.touch();
            }
            return written;
        }
        self.reader.register(context);
        if self.reader.is_given_up() {
            let reason = "the client takes nothing of what is written, and others need the memory";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, reason)));
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.patience)));
        waiting.as_mut().poll(context).map(|()| {
            Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing of what is written"))
        })
    }
}

impl AsyncRead for PatientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for PatientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.or_give_up(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.or_give_up(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.or_give_up(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut_down = Pin::new(&mut self.stream).poll_shutdown(context);
        self.or_give_up(context, shut_down)
    }
}
