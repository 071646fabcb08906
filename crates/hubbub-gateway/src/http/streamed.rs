//! A body that is sent while it is still being written.
//!
//! Not `http_body_util::channel`: that (0.1.5) looks for a piece first and whether the writer is gone afterwards, so the
//! last piece is lost when it comes, and the writer goes, in between; the answer then ends too early without an error.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::{mpsc, oneshot};

/// Nobody reads the body any more.
#[derive(Debug)]
pub(crate) struct Gone;

/// Where pieces of a body are written to. The body ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Writer {
    pieces: mpsc::Sender<Bytes>,
    broken: oneshot::Sender<io::Error>,
}

#[derive(Debug)]
pub(crate) struct Streamed {
    pieces: mpsc::Receiver<Bytes>,
    broken: oneshot::Receiver<io::Error>,
}

/// A body of which up to `pieces_max` pieces, 1 at least, wait to be sent.
pub(crate) fn streamed(pieces_max: usize) -> (Writer, Streamed) {
    let (pieces, written) = mpsc::channel(pieces_max);
    let (broken, noted) = oneshot::channel();
    (Writer { pieces, broken }, Streamed { pieces: written, broken: noted })
}

impl Writer {
    /// Appends the first piece, for which there is room.
    pub(crate) fn begin(&self, piece: &'static [u8]) {
        let _ = self.pieces.try_send(Bytes::from_static(piece));
    }

    /// Appends a piece; waits while too many are to be sent.
    pub(crate) async fn write(&self, piece: impl Into<Bytes>) -> Result<(), Gone> {
        self.pieces.send(piece.into()).await.map_err(|_| Gone)
    }

    /// The same; a reader that takes nothing for `patience` is as good as gone.
    pub(crate) async fn write_within(&self, patience: Duration, piece: impl Into<Bytes>) -> Result<(), Gone> {
        tokio::time::timeout(patience, self.write(piece)).await.unwrap_or(Err(Gone))
    }

    /// Resolves when nobody reads the body any more: the client gave it up, over HTTP/2 perhaps on a connection that stays.
    pub(crate) async fn gone(&self) {
        self.pieces.closed().await;
    }

    /// Breaks the body off behind what is written, so that its reader knows that it is not whole.
    pub(crate) fn abort(self, error: io::Error) {
        // Before the pieces end; a reader that is gone needs no reason.
        let _ = self.broken.send(error);
        drop(self.pieces);
    }
}

impl Body for Streamed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(match ready!(self.pieces.poll_recv(context)) {
            Some(piece) => Some(Ok(Frame::data(piece))),
            None => self.broken.try_recv().ok().map(Err),
        })
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn the_last_piece_arrives_however_fast_the_writer_goes() {
        for _ in 0..50_000 {
            let (writer, body) = streamed(1);
            let writing =
                std::thread::spawn(move || futures_util::FutureExt::now_or_never(writer.write("all")));
            let whole = body.collect().await.unwrap().to_bytes();
            assert!(writing.join().unwrap().is_some_and(|written| written.is_ok()));
            assert_eq!(whole, "all");
        }
    }

    #[tokio::test]
    async fn what_was_written_comes_before_the_break() {
        let (writer, mut body) = streamed(2);
        writer.write("one").await.unwrap();
        writer.abort(io::Error::other("no more"));
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "one");
        assert_eq!(body.frame().await.unwrap().unwrap_err().to_string(), "no more");
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn a_writer_hears_that_nobody_reads() {
        let (writer, body) = streamed(1);
        drop(body);
        assert!(writer.write("one").await.is_err());
    }
}
