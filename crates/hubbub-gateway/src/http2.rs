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
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::connection::stream::Stream;
use crate::http;
use crate::server::Peer;

/// Requests of one connection that are under way at once. The next ones wait at the client.
const STREAMS_MAX: u32 = 64;
/// Most bytes of a request's header, unpacked, and 32 for each of its lines (RFC 9113 §10.5.1).
const HEADER_BYTES_MAX: u32 = 16 * 1024;
/// Bytes of one answer that wait for the client to take them, beyond the piece that the endpoint wrote last.
const SEND_BUFFER: usize = 64 * 1024;
/// Time for an idle connection to agree that it ends.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

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

/// The body of an answer, which is under way as long as it is there.
struct Counted {
    body: http::Body,
    _under_way: UnderWay,
}

impl HttpBody for Counted {
    type Data = <http::Body as HttpBody>::Data;
    type Error = <http::Body as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Serves a connection until it ends, is idle for too long, or the server shuts down and its answers are written.
pub(crate) async fn serve(peer: Arc<Peer>, stream: Stream) -> hyper::Result<()> {
    let (mut shutdown, limits) = (peer.shutdown.clone(), peer.gateway.server);
    let streams = Arc::new(Streams::new());
    let counted = streams.clone();
    let service = service_fn(move |request| {
        let (peer, under_way) = (peer.clone(), counted.begin());
        async move {
            let answer = http::route(&peer, request).await;
            Ok::<_, Infallible>(answer.map(|body| Counted { body, _under_way: under_way }))
        }
    });
    let serving = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(limits.ping_interval)
        .keep_alive_timeout(limits.pong_timeout)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    tokio::select! {
        result = serving.as_mut() => return result,
        () = shutdown.requested() => {
            serving.as_mut().graceful_shutdown();
            return serving.await;
        }
        () = streams.idle(limits.header_timeout) => serving.as_mut().graceful_shutdown(),
    }
    let gave_up = async {
        tokio::time::sleep(GOODBYE_TIMEOUT).await;
        // Requests that came meanwhile are answered.
        streams.idle(GOODBYE_TIMEOUT).await;
    };
    tokio::select! {
        result = serving.as_mut() => result,
        () = gave_up => Ok(()),
    }
}
