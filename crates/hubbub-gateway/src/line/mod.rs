//! The line protocol: queues over TCP, simple enough for netcat. Its bytes are in `docs/line-protocol.md`.
//!
//! The way of a command: [`crate::connection`] reads into a buffer that all connections of a thread share → [`protocol`]
//! has [`parse`] cut whole commands out of it, and [`arguments`] read their second line → a change joins the batch of this
//! read in [`answers`], which submits it once for each read → when its batch is committed, the connection is woken and
//! writes all finished answers, in order, with one write; [`responses`] encodes them. A read ([`queries`]) begins once
//! everything before it is answered, and nothing behind it is decoded before it has ended.
//!
//! Invariants
//! - A connection is one task. While it is idle and known who it is, it keeps no buffer, and no timer.
//! - Nothing that is sent here closes the connection but `un_register` and the end of the stream. Where tokens are needed,
//!   so does the time for the first one.

mod answers;
mod arguments;
mod durations;
mod parse;
mod permission;
mod protocol;
mod queries;
mod responses;

use std::sync::Arc;

use hubbub_pipeline::Waiter;

use crate::connection::Connection;
use crate::connection::socket::Socket;
use crate::connection::stream::Stream;
use crate::server::Peer;

pub(crate) async fn serve(peer: &Peer, stream: Stream) {
    let metrics = peer.gateway.metrics.clone();
    metrics.line_connections.inc();
    let waiter = Arc::new(Waiter::ordered());
    let gateway = &peer.gateway;
    let charged = gateway.rates.charged(None, peer.address, gateway.clock.monotonic());
    let from = (peer.address, charged);
    let protocol = protocol::LineProtocol::new(peer.gateway.clone(), waiter.clone(), from);
    Connection::new(Socket::new(stream), waiter, peer.reader.clone(), protocol).run(&peer.shutdown).await;
    metrics.line_connections.dec();
}
