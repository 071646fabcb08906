//! Servers that do nothing but speak the protocol: what this machine could do if storing cost nothing. They run as
//! processes of their own, like the real server, and answer with as many bytes as it does.

mod fanout;
mod http;
pub(crate) mod journal;
mod line;
#[cfg(feature = "postgres")]
pub(crate) mod select;
#[cfg(feature = "postgres")]
pub(crate) mod upsert;
mod ws;

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::task::{Poll, ready};

use anyhow::Context;
use bytes::Bytes;
use clap::ValueEnum;
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::client::wire::Wire;
use journal::Journal;

/// What a bare server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Sends each WebSocket message back.
    WsEcho,
    /// Reads the JSON of each message and answers with an acknowledgement.
    WsAck,
    /// Reads the JSON of each POST and answers with a receipt.
    Http,
    /// Writes each message to all subscribers.
    Fanout,
    /// Reads each command of the line protocol and answers it.
    Line,
    /// Answers each GET with a value, and each PUT with its revision.
    Kv,
    /// The same as `ws-ack`, once the message is in a journal and synced together with what came meanwhile.
    DurableWs,
    /// The same as `http`, after such a sync.
    DurableHttp,
    /// The same as `line`, after such a sync.
    DurableLine,
    /// The same as `kv`; PUTs after such a sync.
    DurableKv,
    /// Answers each PUT once a statement of its own has put it into PostgreSQL.
    #[cfg(feature = "postgres")]
    Upsert,
    /// Answers each GET with what a statement of its own selects from PostgreSQL.
    #[cfg(feature = "postgres")]
    Select,
}

impl Kind {
    /// The same where an answer waits until what was sent is durable.
    pub(crate) fn durable(self) -> Option<Self> {
        match self {
            Self::WsAck => Some(Self::DurableWs),
            Self::Http => Some(Self::DurableHttp),
            Self::Line => Some(Self::DurableLine),
            Self::Kv => Some(Self::DurableKv),
            _ => None,
        }
    }

    fn is_durable(self) -> bool {
        matches!(self, Self::DurableWs | Self::DurableHttp | Self::DurableLine | Self::DurableKv)
    }
}

/// Serves until the process ends; prints `ready http://ADDR` when it listens. A journal goes into `dir`.
pub(crate) async fn serve(kind: Kind, listen: SocketAddr, dir: &Path) -> anyhow::Result<()> {
    let journal = if kind.is_durable() { Some(Arc::new(Journal::open(dir)?)) } else { None };
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    let mut out = std::io::stdout();
    writeln!(out, "ready http://{}", listener.local_addr()?)?;
    out.flush()?;
    accept(kind, listener, journal).await
}

/// Serves the connections of `listener`; what is durable goes into `journal`.
pub(crate) async fn accept(
    kind: Kind,
    listener: TcpListener,
    journal: Option<Arc<Journal>>,
) -> anyhow::Result<()> {
    let hub = Arc::new(fanout::Hub::default());
    #[cfg(feature = "postgres")]
    let prepared = match kind {
        Kind::Upsert => Some(upsert::open().await?),
        Kind::Select => Some(select::open().await?),
        _ => None,
    };
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let journal = journal.clone();
        // A connection that breaks is the client's to notice.
        match kind {
            Kind::WsEcho | Kind::WsAck | Kind::DurableWs => {
                drop(tokio::spawn(ws::serve(stream, kind == Kind::WsEcho, journal)));
            }
            Kind::Line | Kind::DurableLine => drop(tokio::spawn(line::serve(stream, journal))),
            Kind::Http | Kind::DurableHttp => {
                let answer = move |request| http::answer(request, journal.clone());
                drop(tokio::spawn(serve_http(stream, answer)));
            }
            Kind::Kv | Kind::DurableKv => {
                let answer = move |request| http::answer_kv(request, journal.clone());
                drop(tokio::spawn(serve_http(stream, answer)));
            }
            #[cfg(feature = "postgres")]
            Kind::Upsert => drop(prepared.clone().map(|upserts| {
                let answer = move |request| upsert::answer(request, Arc::clone(&upserts));
                tokio::spawn(serve_http(stream, answer))
            })),
            #[cfg(feature = "postgres")]
            Kind::Select => drop(prepared.clone().map(|selects| {
                let answer = move |request| select::answer(request, Arc::clone(&selects));
                tokio::spawn(serve_http(stream, answer))
            })),
            Kind::Fanout => drop(tokio::spawn(fanout::serve(stream, Arc::clone(&hub)))),
        }
    }
}

/// Answers what each read brings, in one write; where there is a journal, once what was read is durable.
async fn converse(
    mut wire: Wire,
    journal: Option<Arc<Journal>>,
    mut answer: impl FnMut(&mut [u8], &mut Vec<u8>) -> io::Result<()>,
) -> anyhow::Result<()> {
    let mut waits_for = None;
    let Err(broken) = poll_fn(|cx| -> Poll<io::Result<Infallible>> {
        loop {
            if let Some((journal, number)) = journal.as_ref().zip(waits_for) {
                ready!(journal.poll_durable(number))?;
                waits_for = None;
            }
            ready!(wire.poll_flush(cx))?;
            let kept = journal.as_ref().map(|journal| (journal, cx.waker().clone()));
            let read = |bytes: &mut [u8], out: &mut Vec<u8>| {
                answer(bytes, out)?;
                waits_for = kept.map(|(journal, waker)| journal.append(bytes, waker));
                io::Result::Ok(())
            };
            ready!(wire.poll_read(cx, read))??;
        }
    })
    .await;
    Err(broken.into())
}

/// hyper, as the real server has it.
async fn serve_http<B, F>(stream: TcpStream, answer: impl Fn(Request<Incoming>) -> F) -> anyhow::Result<()>
where
    B: Body<Data = Bytes, Error = Infallible> + 'static,
    F: Future<Output = Result<Response<B>, Infallible>>,
{
    let connection = hyper::server::conn::http1::Builder::new()
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    Ok(connection.await?)
}

const REQUEST_BYTES_MAX: usize = 8 * 1024;

/// Agrees to WebSocket; the answer is the path asked for.
pub(crate) async fn upgrade(mut stream: TcpStream) -> anyhow::Result<(Wire, String)> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        anyhow::ensure!(stream.read_buf(&mut request).await? > 0, "closed before the request was complete");
        anyhow::ensure!(request.len() <= REQUEST_BYTES_MAX, "request too long");
    }
    let request = std::str::from_utf8(&request)?;
    let path = request.split(' ').nth(1).context("no path")?.to_owned();
    let key = request
        .split("\r\n")
        .filter_map(|line| line.split_once(": "))
        .find(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-key"))
        .context("no key")?
        .1;
    let accept = hubbub_ws::handshake::accept_key(key);
    let response = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    stream.write_all(response.as_bytes()).await?;
    Ok((Wire::new(stream)?, path))
}
