//! WebSockets: `/v1/ws`, many rooms over one socket, and `/chat/{room}`, one room for simple clients.
//!
//! The way of a frame: [`crate::connection`] reads into a buffer that all connections of a thread share → [`protocol`]
//! unmasks in place and passes each text to the socket's dialect ([`chat`] or [`api`]) → a checked message joins the batch
//! of this read in [`answers`], which submits it once for each read → when its batch is committed, the connection is woken
//! and writes all finished answers, in order, with one write. Live messages come encoded from the hub's outbox;
//! [`subscriptions`] reads what a subscriber missed.

mod align;
mod all_rooms;
mod answers;
mod api;
mod chat;
mod chats;
mod close;
mod frames;
mod heartbeat;
mod peer;
pub(crate) mod permission;
mod protocol;
mod refusing;
mod request_queue;
mod subscriptions;

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hubbub_core::{ErrorCode, Message, ReadMark};
use hubbub_pipeline::Waiter;
use hubbub_pipeline::hub::{FrameEncoder, Notice};
use hubbub_ws::{handshake, write};
use hyper::header::{
    CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;

use crate::auth::caller::{Caller, Identity, name_of};
use crate::auth::request_token::{chosen_protocol, is_offered};
use crate::connection::Connection;
use crate::connection::patient::PatientStream;
use crate::connection::socket::Socket;
use crate::http::endpoint::Call;
use crate::http::{Answer, Body, RequestBody, refuse};
use crate::json::{write_flag, write_number, write_plain};
use crate::problem::Problem;
use crate::rates::Charged;
use crate::server::Peer;
use api::Api;
use chat::Chat;
use chats::Chats;
pub(crate) use close::CLOSE_CODES;
use peer::Opening;
use protocol::{Dialect, WebSocket};

/// Encodes what happens in a room for the hub, as frames of `/v1/ws`.
pub const ENCODE: FrameEncoder = FrameEncoder { message: encode_live, notice: encode_notice };

fn encode_notice(notice: &Notice<'_>, out: &mut Vec<u8>) {
    let start = write::begin_text(out);
    // Ids are ASCII without anything to escape.
    let mut begin = |kind: &str, room: &str, user: &str| {
        for part in ["{\"type\":\"", kind, "\",\"roomId\":\"", room, "\",\"userId\":\"", user, "\""] {
            out.extend_from_slice(part.as_bytes());
        }
    };
    match notice {
        Notice::Presence { room, user, is_online } => {
            begin("presence", room, user);
            write_flag(",\"online\":", *is_online, out);
        }
        Notice::Typing { room, user } => begin("typing", room, user),
        Notice::Read { room, user, mark } => {
            begin("read", room, user);
            write_mark(mark, out);
        }
        Notice::Removed { room } => {
            write_plain("{\"type\":\"error\",\"roomId\":\"", room, out);
            out.push(b',');
            Problem::removed().write_members(out);
        }
    }
    out.push(b'}');
    write::end_text(out, start);
}

fn write_mark(mark: &ReadMark, out: &mut Vec<u8>) {
    write_number(",\"seq\":", mark.seq, out);
    write_number(",\"unread\":", mark.unread, out);
    write_number(",\"head\":", mark.head, out);
}

fn encode_live(message: &Message<'_>, out: &mut Vec<u8>) {
    let start = write::begin_text(out);
    out.extend_from_slice(LIVE_PREFIX);
    message.write_json_members(out);
    out.push(b'}');
    write::end_text(out, start);
}

const LIVE_PREFIX: &[u8] = b"{\"type\":\"message\",";

/// The members of the message in a live frame, and the closing brace, without frame header and type.
pub(crate) fn live_members(frame: &[u8]) -> &[u8] {
    let header_bytes = match frame.get(1) {
        Some(126) => 4,
        Some(127) => 10,
        _ => 2,
    };
    frame.get(header_bytes + LIVE_PREFIX.len()..).unwrap_or_default()
}

pub(crate) async fn upgrade_api(call: Call) -> Answer {
    let opening = match call.caller() {
        Ok(caller) => Opening::Known(caller),
        Err(problem) if problem.code != ErrorCode::Unauthorized => return Err(problem),
        Err(problem) => match call.is_without_token() {
            true => Opening::Unknown(name_of(call.request.headers(), &call.query)?),
            false if is_offered(call.request.headers()) => {
                call.peer.gateway.metrics.reject(problem.code, 1);
                Opening::Refused(problem)
            }
            false => return Err(problem),
        },
    };
    let charged = call.charged();
    upgrade(&call.peer, Api, opening, call.request, charged)
}

pub(crate) async fn upgrade_chat(call: Call) -> Answer {
    let (room, query) = (call.room()?, &call.query);
    let caller = call.caller()?;
    permission::check_chat(&caller, &room, query.is_set("live"))?;
    let (echo, live) = (query.is_set("echo"), query.is_set("live"));
    let pad = query.get("pad").is_none_or(|pad| pad != "0");
    let charged = call.charged();
    upgrade(&call.peer, Chat { room, echo, live, pad }, Opening::Known(caller), call.request, charged)
}

pub(crate) async fn upgrade_chats(call: Call) -> Answer {
    // The form interface is not served where callers have to prove who they are.
    let caller = Caller::named(Identity::Anyone, Some(call.user()?))?;
    let charged = call.charged();
    upgrade(&call.peer, Chats, Opening::Known(caller), call.request, charged)
}

fn upgrade<D>(
    peer: &Arc<Peer>,
    dialect: D,
    opening: Opening,
    mut request: Request<RequestBody>,
    charged: Charged,
) -> Answer
where
    D: Dialect + Send + 'static,
{
    let key = match check_handshake(request.headers()) {
        Ok(key) => key,
        Err(problem) => {
            let mut refused = refuse(&peer.gateway, &problem);
            refused.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
            return Ok(refused);
        }
    };
    let accept = handshake::accept_key(key);
    let protocol = chosen_protocol(request.headers()).and_then(|one| HeaderValue::from_str(one).ok());
    let upgrade = hyper::upgrade::on(&mut request);
    let address = peer.gateway.rates.client_address(peer.address, request.headers());
    drop(request);
    let peer = peer.clone();
    let response = switching_protocols(&accept, protocol);
    let sent = response_bytes(&response);
    tokio::spawn(async move {
        let gateway = &peer.gateway;
        match upgrade.await.map(|upgraded| upgraded.downcast::<TokioIo<PatientStream>>()) {
            Ok(Ok(parts)) => {
                let stream = parts.io.into_inner().into_stream();
                gateway.metrics.websockets.inc();
                let socket = Socket::upgraded(stream, parts.read_buf, sent);
                let waiter = Arc::new(Waiter::ordered());
                let from = (address, charged);
                let protocol = WebSocket::new(gateway.clone(), waiter.clone(), dialect, opening, from);
                Connection::new(socket, waiter, peer.reader.clone(), protocol).run(&peer.shutdown).await;
                gateway.metrics.websockets.dec();
            }
            Ok(Err(_)) => tracing::error!(
                "upgrading a connection to WebSocket failed: it is not the stream it began as; dropped"
            ),
            Err(error) => tracing::debug!(%error, "upgrading a connection to WebSocket failed"),
        }
    });
    Ok(response)
}

fn switching_protocols(accept: &str, protocol: Option<HeaderValue>) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::new())));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Ok(accept) = HeaderValue::from_str(accept) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    if let Some(protocol) = protocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    response
}

/// Bytes of the response as HTTP/1.1 writes it, with the `Date` it adds.
fn response_bytes(response: &Response<Body>) -> u64 {
    let header = |name: usize, value: usize| name + ": ".len() + value + "\r\n".len();
    let headers = response.headers().iter().map(|(name, value)| header(name.as_str().len(), value.len()));
    let date = header("date".len(), "Sun, 06 Nov 1994 08:49:37 GMT".len());
    let status = "HTTP/1.1 101 Switching Protocols\r\n".len();
    (status + headers.sum::<usize>() + date + "\r\n".len()) as u64
}

/// The version of WebSocket that is spoken. Clients with another one are told (RFC 6455 §4.4).
const VERSION: &str = "13";

/// The client's key, if the request is a WebSocket handshake (RFC 6455 §4.2.1).
fn check_handshake(headers: &HeaderMap) -> Result<&str, Problem> {
    let has_token = |name: HeaderName, token: &str| {
        let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(token))
    };
    let bad = |detail: &'static str| Problem::new(ErrorCode::Malformed, detail);
    if !has_token(UPGRADE, "websocket") || !has_token(CONNECTION, "upgrade") {
        return Err(bad(
            "this path speaks WebSocket: Connection: Upgrade and Upgrade: websocket are required",
        ));
    }
    if !has_token(SEC_WEBSOCKET_VERSION, VERSION) {
        return Err(bad("Sec-WebSocket-Version must be 13"));
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok());
    key.filter(|key| handshake::is_valid_key(key)).ok_or(bad("Sec-WebSocket-Key must be 16 bytes in base64"))
}
