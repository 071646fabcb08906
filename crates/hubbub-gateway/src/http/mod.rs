//! HTTP: the table of all paths, and what answers have in common.

mod assets;
mod backups;
mod consistency;
mod events;
mod health;
mod history;
mod kv;
mod many;
mod members;
pub(crate) mod query;
mod queues;
mod room;
mod rooms;
mod send;
mod spec;
mod stats;
mod streamed;
mod users;

pub(crate) use send::write_receipt as send_receipt;
pub use spec::Documents;
pub(crate) use stats::SAMPLE_INTERVAL;
pub use stats::{MetricsDefault, Statistics};

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use hubbub_core::id::ID_RULE;
use hubbub_core::message::write_u64;
use hubbub_core::{ErrorCode, Fault, RoomId, UserId};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, RETRY_AFTER, UPGRADE};
use hyper::{Method, Request, Response, StatusCode};

use crate::Gateway;
use crate::auth::{Caller, check_origin};
use crate::problem::Problem;
use crate::server::Peer;
use crate::ws;
use query::Query;
use streamed::Streamed;

/// The body of an answer: whole, or streamed.
pub(crate) type Body = Either<Full<Bytes>, Streamed>;

pub(crate) type Answer = Result<Response<Body>, Problem>;

/// Longest path in segments; longer ones match nothing.
const SEGMENTS_MAX: usize = 16;

/// All paths on one screen. What no line takes is `not_found`, or `method_not_allowed` with the methods it takes.
pub(crate) async fn route(peer: &Arc<Peer>, request: Request<Incoming>) -> Response<Body> {
    let gateway = &peer.gateway;
    gateway.metrics.http_requests.inc();
    let path = request.uri().path().to_owned();
    let mut segments = [""; SEGMENTS_MAX];
    let mut count = 0;
    for (place, segment) in segments.iter_mut().zip(path.split('/').skip(1)) {
        *place = segment;
        count += 1;
    }
    let segments = segments.get(..count).unwrap_or_default();
    let method = request.method().clone();
    // Reading needs no check: browsers keep answers from pages of other sites, as none is allowed to see them.
    let is_reading = matches!(method, Method::GET | Method::HEAD) && !request.headers().contains_key(UPGRADE);
    if !is_reading && let Err(problem) = check_origin(request.headers(), &gateway.allowed_origins) {
        gateway.metrics.reject(problem.code, 1);
        return problem_response(&problem);
    }
    let answer = match (segments, &method) {
        // A key is the rest of the path, slashes and all.
        (["kv", _, ..], &Method::GET | &Method::HEAD) => kv::get(gateway, &path, &request).await,
        (["kv", _, ..], &Method::PUT) => kv::put(gateway, &path, request).await,
        (["kv", _, ..], &Method::DELETE) => kv::delete(gateway, &path, &request).await,
        (["kv", _, ..], _) => Err(not_allowed("GET, PUT, DELETE")),
        (["v1", "kv"], &Method::GET) => kv::list(gateway, &request).await,
        (["v1", "kv"], &Method::POST) => kv::batch(gateway, request).await,
        (["v1", "kv"], _) => Err(not_allowed("GET, POST")),
        (["v1", "kv", "watch"], &Method::GET) => kv::watch(peer, &request).await,
        (["v1", "kv", "watch"], _) => Err(not_allowed("GET")),
        ([""], &Method::GET | &Method::HEAD) => Ok(assets::chat_page(&request)),
        (["docs"], &Method::GET | &Method::HEAD) => Ok(assets::docs_page(&request)),
        (["openapi.json"], &Method::GET | &Method::HEAD) => spec::openapi(gateway),
        (["asyncapi.json"], &Method::GET | &Method::HEAD) => spec::asyncapi(gateway),
        (["web", file @ ..], &Method::GET | &Method::HEAD) => assets::file(file, &request),
        ([""] | ["web", ..] | ["docs" | "openapi.json" | "asyncapi.json"], _) => Err(not_allowed("GET")),
        (["v1", "rooms", room, "messages"], &Method::POST) => send::send(gateway, room, request).await,
        (["v1", "rooms", room, "messages"], &Method::GET) => history::history(gateway, room, &request).await,
        (["v1", "rooms", _, "messages"], _) => Err(not_allowed("GET, POST")),
        (["v1", "rooms", room, "events"], &Method::GET) => events::events(peer, room, &request).await,
        (["v1", "rooms", room, "presence"], &Method::GET) => members::presence(gateway, room, &request).await,
        (["v1", "rooms", room, "members"], &Method::GET) => members::list(gateway, room, &request).await,
        (["v1", "rooms", _, "events" | "presence" | "members"], _) => Err(not_allowed("GET")),
        (["v1", "rooms", room, "members", user], &Method::PUT) => {
            members::add(gateway, room, user, &request).await
        }
        (["v1", "rooms", room, "members", user], &Method::DELETE) => {
            members::remove(gateway, room, user, &request).await
        }
        (["v1", "rooms", _, "members", _], _) => Err(not_allowed("PUT, DELETE")),
        (["v1", "rooms", room, "read"], &Method::PUT) => members::read(gateway, room, request).await,
        (["v1", "rooms", _, "read"], _) => Err(not_allowed("PUT")),
        (["v1", "messages"], &Method::POST) => many::send_many(gateway, request),
        (["v1", "messages"], _) => Err(not_allowed("POST")),
        (["v1", "rooms"], &Method::GET) => rooms::list(gateway, &request).await,
        (["v1", "rooms"], _) => Err(not_allowed("GET")),
        (["v1", "rooms", room], &Method::GET) => room::get(gateway, room, &request).await,
        (["v1", "rooms", room], &Method::PUT) => room::put(gateway, room, request).await,
        (["v1", "rooms", room], &Method::DELETE) => room::delete(gateway, room, &request).await,
        (["v1", "rooms", _], _) => Err(not_allowed("GET, PUT, DELETE")),
        (["v1", "users", user, "rooms"], &Method::GET) => users::rooms(gateway, user, &request).await,
        (["v1", "users", _, "rooms"], _) => Err(not_allowed("GET")),
        (["v1", "users", user], &Method::DELETE) => users::erase(gateway, user, &request).await,
        (["v1", "users", _], _) => Err(not_allowed("DELETE")),
        (["v1", "users", user, "messages"], &Method::GET) => stats::messages(gateway, user, &request).await,
        (["v1", "stats"], &Method::GET) => stats::totals(gateway, &request).await,
        (["v1", "stats", "rooms"], &Method::GET) => stats::rooms(gateway, &request).await,
        (["v1", "stats", "users"], &Method::GET) => stats::users(gateway, &request).await,
        (["v1", "stats", "hourly"], &Method::GET) => stats::hourly(gateway, &request).await,
        (["v1", "stats", "active-users"], &Method::GET) => stats::active_users(gateway, &request).await,
        (["v1", "stats", "users", user, "rooms"], &Method::GET) => {
            stats::user_rooms(gateway, user, &request).await
        }
        (["v1", "stats", "report"], &Method::GET) => stats::report(gateway, &request).await,
        (["v1", "stats", "audit"], &Method::POST) => stats::audit(gateway, &request).await,
        (["v1", "stats", "audit"], _) => Err(not_allowed("POST")),
        (["v1", "stats", "rooms" | "users" | "hourly" | "active-users" | "report"], _)
        | (["v1", "users", _, "messages"] | ["v1", "stats"] | ["v1", "stats", "users", _, "rooms"], _) => {
            Err(not_allowed("GET"))
        }
        (["v1", "ws"], &Method::GET) => ws::upgrade_api(peer, request),
        ([.., "chat", room], &Method::GET) => ws::upgrade_chat(peer, room, request),
        (["v1", "backups", backup], &Method::PUT) => backups::begin(gateway, backup, &request).await,
        (["v1", "backups", backup], &Method::DELETE) => backups::end(gateway, backup, &request),
        (["v1", "backups", _], _) => Err(not_allowed("PUT, DELETE")),
        (["v1", "backups", backup, "files", file], &Method::GET) => {
            backups::file(gateway, backup, file, &request).await
        }
        (["v1", "backups", _, "files", _], _) => Err(not_allowed("GET")),
        (["v1", "queues"], &Method::GET) => queues::list(gateway, &request).await,
        (["v1", "queues"], _) => Err(not_allowed("GET")),
        (["v1", "queues", queue], &Method::GET) => queues::show(gateway, queue, &request).await,
        (["v1", "queues", queue], &Method::PUT) => queues::put(gateway, queue, request).await,
        (["v1", "queues", queue], &Method::DELETE) => queues::delete(gateway, queue, &request).await,
        (["v1", "queues", _], _) => Err(not_allowed("GET, PUT, DELETE")),
        (["v1", "queues", queue, "messages"], &Method::POST) => queues::send(gateway, queue, request).await,
        (["v1", "queues", queue, "messages"], &Method::GET) => {
            queues::waiting(gateway, queue, &request).await
        }
        (["v1", "queues", _, "messages"], _) => Err(not_allowed("GET, POST")),
        (["v1", "queues", queue, "messages", id], &Method::DELETE) => {
            queues::remove(gateway, queue, id, &request).await
        }
        (["v1", "queues", _, "messages", _], _) => Err(not_allowed("DELETE")),
        (["v1", "queues", queue, "messages", id, "ack"], &Method::POST) => {
            queues::ack(gateway, queue, id, request).await
        }
        (["v1", "queues", queue, "messages", id, "nack"], &Method::POST) => {
            queues::nack(gateway, queue, id, request).await
        }
        (["v1", "queues", queue, "messages", id, "extend"], &Method::POST) => {
            queues::extend(gateway, queue, id, request).await
        }
        (["v1", "queues", queue, "get"], &Method::POST) => queues::get(peer, queue, request).await,
        (["v1", "queues", queue, "read"], &Method::POST) => queues::read(peer, queue, request).await,
        (["v1", "queues", queue, "lease"], &Method::POST) => queues::lease(peer, queue, request).await,
        (["v1", "queues", queue, "ack"], &Method::POST) => queues::ack_many(gateway, queue, request).await,
        (["v1", "queues", queue, "redrive"], &Method::POST) => queues::redrive(gateway, queue, request).await,
        (["v1", "clients"], &Method::GET) => queues::clients(gateway, &request).await,
        (["v1", "clients"], _) => Err(not_allowed("GET")),
        (["v1", "clients", client], &Method::PUT) => queues::register(gateway, client, &request).await,
        (["v1", "clients", client], &Method::DELETE) => queues::unregister(gateway, client, &request).await,
        (["v1", "clients", _], _) => Err(not_allowed("PUT, DELETE")),
        (["v1", "clients", client, "get"], &Method::POST) => {
            queues::get_of_client(peer, client, request).await
        }
        (["v1", "clients", client, "read"], &Method::POST) => {
            queues::read_of_client(peer, client, request).await
        }
        (["v1", "queues", _, "get" | "read" | "lease" | "ack" | "redrive"], _)
        | (
            ["v1", "queues", _, "messages", _, "ack" | "nack" | "extend"]
            | ["v1", "clients", _, "get" | "read"],
            _,
        ) => Err(not_allowed("POST")),
        (["metrics"], &Method::GET) => stats::metrics(gateway, &request).await,
        ([.., "health"] | [.., "health", "ready"], &Method::GET | &Method::HEAD) => {
            health::ready(gateway).await
        }
        ([.., "health", "live"], &Method::GET | &Method::HEAD) => health::live(),
        (["v1", "ws"] | [.., "chat", _] | ["metrics"], _)
        | ([.., "health"] | [.., "health", "live" | "ready"], _) => Err(not_allowed("GET")),
        _ => Err(Problem::new(ErrorCode::NotFound, format!("nothing is served at {path}"))),
    };
    answer.unwrap_or_else(|problem| {
        if !problem.is_counted {
            gateway.metrics.reject(problem.code, 1);
        }
        problem_response(&problem)
    })
}

fn not_allowed(methods: &'static str) -> Problem {
    Problem::new(ErrorCode::MethodNotAllowed, methods)
}

fn problem_response(problem: &Problem) -> Response<Body> {
    let mut body = Vec::with_capacity(256);
    write_problem(problem, &mut body);
    let status =
        StatusCode::from_u16(problem.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = respond(status, "application/problem+json", body);
    let headers = response.headers_mut();
    if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if let Some(revision) = problem.revision {
        headers.insert(ETAG, revision_tag(revision.get()));
    }
    if problem.code == ErrorCode::MethodNotAllowed
        && let Ok(methods) = HeaderValue::from_str(&problem.detail)
    {
        headers.insert(ALLOW, methods);
    }
    response
}

/// Appends the whole object, as HTTP answers it.
fn write_problem(problem: &Problem, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"type\":\"urn:hubbub:error:");
    out.extend_from_slice(problem.code.as_str().as_bytes());
    out.extend_from_slice(b"\",");
    problem.write_members(out);
    out.push(b'}');
}

/// A whole answer.
fn respond(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(body.into())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(NOSNIFF.0, NOSNIFF.1);
    response
}

const NOSNIFF: (HeaderName, HeaderValue) =
    (hyper::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));

fn json(status: StatusCode, body: Vec<u8>) -> Response<Body> {
    respond(status, "application/json", body)
}

/// The room a path names; percent-encoding is undone.
pub(crate) fn room_of(segment: &str) -> Result<RoomId, Problem> {
    let decoded = percent_encoding::percent_decode_str(segment).decode_utf8_lossy();
    RoomId::new(&decoded).map_err(|_| Problem::invalid(vec![Fault::new("roomId", ID_RULE)]))
}

/// The user a path names.
fn user_of(segment: &str) -> Result<UserId, Problem> {
    let decoded = percent_encoding::percent_decode_str(segment).decode_utf8_lossy();
    UserId::new(&decoded).map_err(|_| Problem::invalid(vec![Fault::new("userId", ID_RULE)]))
}

fn caller_of(request: &Request<Incoming>) -> Result<Caller, Problem> {
    Caller::of(request.headers(), &Query::parse(request.uri().query()))
}

/// Done, and nothing to say.
fn no_content() -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::new())));
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// The entity tag of a key's value: its revision in quotes.
fn revision_tag(revision: u64) -> HeaderValue {
    let mut tag = Vec::with_capacity(22);
    tag.push(b'"');
    write_u64(revision, &mut tag);
    tag.push(b'"');
    // Digits and quotes may stand in a header.
    HeaderValue::from_maybe_shared(Bytes::from(tag)).unwrap_or(const { HeaderValue::from_static("") })
}

/// Reads a whole body of at most `limit` bytes, in the time the server allows.
async fn whole_body(gateway: &Gateway, body: Incoming, limit: usize) -> Result<Bytes, Problem> {
    let read = Limited::new(body, limit).collect();
    match tokio::time::timeout(gateway.server.body_timeout, read).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(Problem::new(ErrorCode::TooLarge, format!("the body may have at most {limit} bytes")))
        }
        Ok(Err(error)) => Err(Problem::new(ErrorCode::Malformed, format!("the body ended early: {error}"))),
        Err(_) => {
            let seconds = gateway.server.body_timeout.as_secs();
            Err(Problem::new(ErrorCode::RequestTimeout, format!("the body took longer than {seconds} s")))
        }
    }
}
