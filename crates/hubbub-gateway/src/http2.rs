//! HTTP/2, for clients that choose it by ALPN: the same endpoints, many requests of one connection at a time.
//!
//! Requests of one connection are answered in any order. WebSockets stay on HTTP/1.1: browsers open a connection of their
//! own for them, as the server does not offer the extended CONNECT of RFC 8441.
//!
//! Invariants
//! - A connection without a request, and without an answer that is still being read, ends after the time a header may take,
//!   as an idle one does with HTTP/1.1. It needs no help from the client for that.
//! - Requests of one connection are bounded ([`STREAMS_MAX`]), and so is what is kept of their answers.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::header::CONTENT_LENGTH;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::connection::stream::Stream;
use crate::http;
use crate::outgoing_memory::Reader;
use crate::server::Peer;

/// Requests of one connection that are under way at once. The next ones wait at the client.
const STREAMS_MAX: u32 = 64;
/// Most bytes of a request's header, unpacked, and 32 for each of its lines (RFC 9113 §10.5.1).
const HEADER_BYTES_MAX: u32 = 16 * 1024;
/// Bytes of one answer that wait for the client to take them, beyond what is handed over at once.
const SEND_BUFFER: usize = 64 * 1024;
/// Bytes of a body that are handed over at once.
const PIECE_BYTES: usize = 16 * 1024;
/// Bytes of one request's body, and of all of a connection together, that wait for an endpoint to take them. One that takes
/// nothing leaves room for others. No budget of all connections counts them.
const RECEIVED_MAX: (u32, u32) = (256 * 1024, 512 * 1024);
/// Time for a connection on which nothing is under way to agree that it ends; and for what is on its way to the client then.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(3);

/// Requests and answers under way on a connection.
struct Streams {
    state: Mutex<StreamsState>,
}

struct StreamsState {
    under_way: usize,
    idle_since: Instant,
}

impl Streams {
    fn new() -> Self {
        Self { state: Mutex::new(StreamsState { under_way: 0, idle_since: Instant::now() }) }
    }

    fn begin(self: &Arc<Self>) -> UnderWay {
        self.state.lock().under_way += 1;
        UnderWay(self.clone())
    }

    /// Resolves when there has been nothing under way for `limit`.
    async fn idle(&self, limit: Duration) {
        loop {
            let ends_at = {
                let state = self.state.lock();
                let since = if state.under_way > 0 { Instant::now() } else { state.idle_since };
                since + limit
            };
            if ends_at <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(ends_at).await;
        }
    }
}

/// One request, until its answer was written or given up.
struct UnderWay(Arc<Streams>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.under_way -= 1;
        state.idle_since = Instant::now();
    }
}

/// The body of an answer, which is under way as long as it is there. It is handed over in pieces: the connection keeps what
/// it has of a body, and the body would be gone long before its reader has it.
struct Counted {
    body: http::Body,
    /// What is still to be handed over of a piece of the endpoint.
    rest: Bytes,
    /// Bytes that were handed over.
    handed: usize,
    reader: Arc<Reader>,
    _under_way: UnderWay,
}

impl HttpBody for Counted {
    type Data = <http::Body as HttpBody>::Data;
    type Error = <http::Body as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                other => return Poll::Ready(other),
            }
        }
        let length = self.rest.len().min(PIECE_BYTES);
        // The first ones are asked for before the client has taken anything.
        if self.handed > SEND_BUFFER + PIECE_BYTES {
            self.reader.touch();
        }
        self.handed += length;
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    /// Asked for before the first piece.
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// hyper leaves the body of an answer to HEAD out with HTTP/1.1 only.
fn without_body(answer: Response<http::Body>) -> Response<http::Body> {
    let (mut head, body) = answer.into_parts();
    if let Some(length) = body.size_hint().exact().filter(|length| *length > 0) {
        head.headers.entry(CONTENT_LENGTH).or_insert(length.into());
    }
    Response::from_parts(head, Either::Left(Full::default()))
}

/// Serves a connection until it ends, is idle for too long, or the server shuts down and its answers are written.
pub(crate) async fn serve(peer: Arc<Peer>, stream: Stream) -> hyper::Result<()> {
    let (mut shutdown, limits) = (peer.shutdown.clone(), peer.gateway.server);
    let reader = peer.reader.clone();
    let streams = Arc::new(Streams::new());
    let counted = streams.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (peer, under_way, is_head) = (peer.clone(), counted.begin(), *request.method() == Method::HEAD);
        async move {
            let answer = http::route(&peer, request).await;
            let answer = if is_head { without_body(answer) } else { answer };
            let reader = peer.reader.clone();
            Ok::<_, Infallible>(answer.map(|body| Counted {
                body,
                rest: Bytes::new(),
                handed: 0,
                reader,
                _under_way: under_way,
            }))
        }
    });
    let serving = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .max_send_buf_size(SEND_BUFFER)
        .initial_stream_window_size(RECEIVED_MAX.0)
        .initial_connection_window_size(RECEIVED_MAX.1)
        .keep_alive_interval(limits.ping_interval)
        .keep_alive_timeout(limits.pong_timeout)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    tokio::select! {
        result = serving.as_mut() => return result,
        () = reader.given_up() => return Ok(()),
        () = shutdown.requested() => {}
        () = streams.idle(limits.header_timeout) => {}
    }
    serving.as_mut().graceful_shutdown();
    let gave_up = async {
        tokio::time::sleep(GOODBYE_TIMEOUT).await;
        // Requests that came meanwhile are answered.
        streams.idle(GOODBYE_TIMEOUT).await;
    };
    tokio::select! {
        result = serving.as_mut() => result,
        () = reader.given_up() => Ok(()),
        () = gave_up => Ok(()),
    }
}
