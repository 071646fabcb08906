//! HTTP: finds the endpoint of a request ([`endpoints`]), and what answers have in common.

mod assets;
mod backups;
mod bulk;
mod consistency;
pub(crate) mod endpoint;
mod endpoints;
mod events;
mod health;
mod history;
mod kv;
mod members;
mod operation;
pub(crate) mod query;
mod queues;
mod rooms;
mod send;
mod spec;
mod sse;
mod stats;
mod streamed;
mod types;

pub(crate) use send::write_receipt as send_receipt;
pub use spec::Documents;
pub(crate) use stats::SAMPLE_INTERVAL;
pub use stats::{MetricsDefault, Statistics};

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hubbub_core::ErrorCode;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, RETRY_AFTER, UPGRADE};
use hyper::{Method, Request, Response, StatusCode};

use serde::Serialize;

use crate::auth::check_origin;
use crate::json::{write_number, write_plain};
use crate::problem::Problem;
use crate::server::Peer;
use endpoint::{Answering, Call};
use query::Query;
use streamed::Streamed;

pub(crate) type Body = Either<Full<Bytes>, Streamed>;

/// Most items of one request that is a list.
const ITEMS_MAX: usize = 1_000;

pub(crate) type Answer = Result<Response<Body>, Problem>;

/// Answers a request. A path that no endpoint has is `not_found`; a method it does not take, `method_not_allowed`.
pub(crate) async fn route(peer: &Arc<Peer>, request: Request<Incoming>) -> Response<Body> {
    let gateway = &peer.gateway;
    gateway.metrics.http_requests.inc();
    let answer = match dispatch(peer, request) {
        Ok(answer) => answer.await,
        Err(problem) => Err(problem),
    };
    answer.unwrap_or_else(|problem| {
        if !problem.is_counted {
            gateway.metrics.reject(problem.code, 1);
        }
        problem_response(&problem)
    })
}

fn dispatch(peer: &Arc<Peer>, request: Request<Incoming>) -> Result<Answering, Problem> {
    let method = request.method();
    // Reading needs no check: browsers keep answers from pages of other sites, as none is allowed to see them.
    let is_reading =
        matches!(*method, Method::GET | Method::HEAD) && !request.headers().contains_key(UPGRADE);
    if !is_reading {
        check_origin(request.headers(), &peer.gateway.allowed_origins)?;
    }
    let path = request.uri().path();
    let found = endpoint::find(path);
    if found.is_empty() {
        return Err(Problem::new(ErrorCode::NotFound, format!("nothing is served at {path}")));
    }
    let Some(&endpoint) = found.iter().find(|endpoint| endpoint.accepts(method)) else {
        return Err(Problem::new(ErrorCode::MethodNotAllowed, endpoint::allowed(&found)));
    };
    if !peer.gateway.store.has_queues_and_keys() && endpoints::is_optional(endpoint) {
        let reason = "this server's store (Cassandra or ScyllaDB) has rooms only, no queues and no keys";
        return Err(Problem::new(ErrorCode::NotSupported, reason));
    }
    let query = Query::parse(request.uri().query());
    Ok((endpoint.handler)(Call { peer: peer.clone(), endpoint, request, query }))
}

fn problem_response(problem: &Problem) -> Response<Body> {
    let mut body = Vec::with_capacity(256);
    write_plain("{\"type\":\"urn:hubbub:error:", problem.code.as_str(), &mut body);
    body.push(b',');
    problem.write_members(&mut body);
    body.push(b'}');
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

fn respond(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(body.into())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(NOSNIFF.0, NOSNIFF.1);
    response
}

/// An answer that is still being written when it begins.
fn stream_response(content_type: &'static str, body: Streamed) -> Response<Body> {
    let mut response = Response::new(Either::Right(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(NOSNIFF.0, NOSNIFF.1);
    response
}

const NOSNIFF: (HeaderName, HeaderValue) =
    (hyper::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));

fn json(status: StatusCode, body: Vec<u8>) -> Response<Body> {
    respond(status, "application/json", body)
}

fn json_of(status: StatusCode, answer: &impl Serialize) -> Answer {
    let body = serde_json::to_vec(answer).map_err(|error| {
        tracing::error!(%error, "writing an answer as JSON failed");
        Problem::new(ErrorCode::Internal, "the answer could not be written; see the server's log")
    })?;
    Ok(json(status, body))
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::default()));
    *response.status_mut() = status;
    response
}

fn no_content() -> Response<Body> {
    empty(StatusCode::NO_CONTENT)
}

/// The entity tag of a key's value: its revision in quotes.
fn revision_tag(revision: u64) -> HeaderValue {
    let mut tag = Vec::with_capacity(22);
    write_number("\"", revision, &mut tag);
    tag.push(b'"');
    // Digits and quotes may stand in a header.
    HeaderValue::from_maybe_shared(Bytes::from(tag)).unwrap_or(const { HeaderValue::from_static("") })
}
