//! Servers that do nothing but speak the protocol: what this machine could do if storing cost nothing. They run as
//! processes of their own, like the real server, and answer with as many bytes as it does.

mod fanout;
mod http;
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

use crate::wire::Wire;

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
    /// Answers each PUT once a statement of its own has put it into PostgreSQL.
    #[cfg(feature = "postgres")]
    Upsert,
    /// Answers each GET with what a statement of its own selects from PostgreSQL.
    #[cfg(feature = "postgres")]
    Select,
}

/// Serves until the process ends; prints `ready http://ADDR` when it listens.
pub(crate) async fn serve(kind: Kind, listen: SocketAddr) -> anyhow::Result<()> {
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    let mut out = std::io::stdout();
    writeln!(out, "ready http://{}", listener.local_addr()?)?;
    out.flush()?;
    accept(kind, listener).await
}

/// Serves the connections of `listener`.
pub(crate) async fn accept(kind: Kind, listener: TcpListener) -> anyhow::Result<()> {
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
        // A connection that breaks is the client's to notice.
        match kind {
            Kind::WsEcho | Kind::WsAck => drop(tokio::spawn(ws::serve(stream, kind == Kind::WsEcho))),
            Kind::Http => drop(tokio::spawn(serve_http(stream, http::answer))),
            Kind::Line => drop(tokio::spawn(line::serve(stream))),
            Kind::Kv => drop(tokio::spawn(serve_http(stream, http::answer_kv))),
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

/// Answers what each read brings, in one write.
async fn converse(
    mut wire: Wire,
    mut answer: impl FnMut(&mut [u8], &mut Vec<u8>) -> io::Result<()>,
) -> anyhow::Result<()> {
    let Err(broken) = poll_fn(|cx| -> Poll<io::Result<Infallible>> {
        loop {
            ready!(wire.poll_flush(cx))?;
            ready!(wire.poll_read(cx, &mut answer))??;
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
