//! HTTP: finds the endpoint of a request ([`endpoints`]), and what answers have in common.

mod accounts;
mod api_keys;
mod assets;
mod backups;
mod bulk;
mod chats;
mod connections;
mod consistency;
mod cors;
pub(crate) mod endpoint;
mod endpoints;
mod events;
mod health;
mod history;
mod kv;
mod logins;
mod members;
mod members_known;
mod one_history;
mod operation;
mod permission;
pub(crate) mod query;
mod queues;
mod request_body;
mod revocations;
mod rooms;
mod route;
mod security;
mod send;
mod spec;
mod sse;
mod stats;
mod store_read;
mod streamed;
mod template;
mod timeline;
mod traced;
mod types;
mod watching;

pub(crate) use kv::parse_key_prefix;
pub(crate) use send::write_receipt as send_receipt;
pub use spec::Documents;
pub(crate) use stats::SAMPLE_INTERVAL;
pub use stats::{MetricsDefault, Statistics};
pub(crate) use store_read::StoreReads;
pub(crate) use watching::Watching;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::{BodyExt, Either, Full};
use hubbub_core::ErrorCode;
use hubbub_core::invariant::saturate;
use hubbub_core::text::repeated;
use hyper::body::{Body as _, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, ETAG, HeaderValue, RETRY_AFTER, UPGRADE, WWW_AUTHENTICATE};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use percent_encoding::percent_decode_str;

use serde::Serialize;

use crate::auth::caller::Identity;
use crate::auth::origin::{check_host, check_one_host, check_origin};
use crate::incoming_memory::FREE_BYTES;
use crate::json::{write_number, write_plain};
use crate::outgoing_memory::{self, Reader};
use crate::problem::Problem;
use crate::rates::{Charged, UnderWay};
use crate::server::Peer;
use crate::{Compat, Gateway};
use cors::CrossOrigin;
use endpoint::{Answering, Call, Endpoint};
use query::Query;
pub(crate) use request_body::RequestBody;
pub(crate) use route::AllowedMethods;
use streamed::Streamed;
use traced::TracedRequest;

pub(crate) type Body = Either<Full<Bytes>, Streamed>;

/// Headers of an answer, about.
const HEADERS: usize = 10;
/// Most items of one request that is a list.
const ITEMS_MAX: usize = 1_000;

pub(crate) type Answer = Result<Response<Body>, Problem>;

/// Answers a request. A path that no endpoint has is `not_found`; a method it does not take, `method_not_allowed`.
pub(crate) async fn route(peer: &Arc<Peer>, request: Request<Incoming>) -> Response<Body> {
    let gateway = &peer.gateway;
    let (parts, body) = request.into_parts();
    let body = RequestBody::new(body, parts.version, &parts.headers);
    let mut request = Request::from_parts(parts, body);
    gateway.metrics.http_requests.inc();
    let begun = gateway.clock.monotonic();
    let (mut traced, mut is_timed) = (None, true);
    let page = CrossOrigin::of(request.method(), request.headers(), &gateway.allowed_origins);
    let answer = match admit(peer, &request) {
        Ok(admitted) => {
            is_timed = !admitted.endpoint.is_for_monitoring();
            // What is refused for its rate leaves no span: others want theirs.
            traced = TracedRequest::begin(gateway, admitted.endpoint, &mut request);
            let space = if is_timed { gateway.outgoing_memory.space().await } else { Ok(()) };
            let identity = identify(peer, &request).await;
            let uri = request.uri().clone();
            match space.and_then(|()| begin(peer, &admitted, request, identity)) {
                Ok(answer) => answer.await.map_err(|problem| name_missing(problem, admitted.endpoint, &uri)),
                Err(problem) => Err(problem),
            }
        }
        Err(problem) => Err(problem),
    };
    let mut response = answer.unwrap_or_else(|problem| {
        let preflight = page.as_ref().and_then(|page| page.preflight(&problem.methods.text()?));
        preflight.unwrap_or_else(|| refuse(gateway, &problem))
    });
    // The beginning of a WebSocket is counted to the byte, and is nothing that a browser shows.
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        security::add_headers(response.headers_mut(), gateway.tls.is_some());
        cors::mark_varying(response.headers_mut(), &gateway.allowed_origins);
        if let Some(page) = page {
            page.allow(response.headers_mut());
        }
    }
    if let Some(traced) = traced {
        (*traced).end(response.status());
    }
    response = charge_body(&peer.reader, response);
    if is_timed && response.extensions_mut().remove::<MayWait>().is_none() {
        let took = gateway.clock.monotonic().saturating_sub(begun);
        gateway.metrics.http_time.record(saturate(took.as_micros()), 1);
    }
    response
}

/// Marks the answer whose body the server keeps in memory anyway.
#[derive(Debug, Clone, Copy)]
struct IsKept;

/// Counts the body as unread until the client has all of it. What is written while it is sent, its writer bounds.
fn charge_body(reader: &Arc<Reader>, mut response: Response<Body>) -> Response<Body> {
    if response.body().size_hint().lower() <= FREE_BYTES as u64
        || response.extensions_mut().remove::<IsKept>().is_some()
    {
        return response;
    }
    response.map(|body| match body {
        // It is there, so collecting it neither waits nor copies.
        Either::Left(whole) => match whole.collect().now_or_never() {
            Some(Ok(whole)) => Either::Left(Full::new(outgoing_memory::charge(reader, whole.to_bytes()))),
            None => Either::Left(Full::default()),
        },
        streamed @ Either::Right(_) => streamed,
    })
}

/// Marks the answer to a request that may have waited for something to happen: how long, says nothing about the server.
#[derive(Debug, Clone, Copy)]
struct MayWait;

/// A request that is worth finding out who sent it.
struct Admitted<'a> {
    endpoint: &'static Endpoint,
    /// Its address pays, as far as addresses are limited.
    charged: Charged,
    _under_way: UnderWay<'a>,
}

/// Refuses what can be refused before a token is verified, which costs more than all of this.
fn admit<'a>(peer: &'a Arc<Peer>, request: &Request<RequestBody>) -> Result<Admitted<'a>, Problem> {
    let gateway = &peer.gateway;
    let found = find_endpoint(gateway, request);
    // Whoever watches the server must reach it while it is flooded.
    if let Ok(endpoint) = found
        && endpoint.is_for_monitoring()
    {
        return Ok(Admitted { endpoint, charged: Charged::default(), _under_way: UnderWay::free() });
    }
    let under_way = gateway.rates.begin_request()?;
    let mut charged = Charged::default();
    if gateway.rates.is_limited() {
        let address = gateway.rates.client_address(peer.address, request.headers());
        let now = gateway.clock.monotonic();
        charged = gateway.rates.charged(None, address, now);
        gateway.rates.check(&charged, now)?;
        if found.is_err() {
            // What is nowhere is paid for, too.
            gateway.rates.charge(&charged, 0, now)?;
        }
    }
    Ok(Admitted { endpoint: found?, charged, _under_way: under_way })
}

fn find_endpoint(gateway: &Gateway, request: &Request<RequestBody>) -> Result<&'static Endpoint, Problem> {
    let method = request.method();
    check_one_host(request.version(), request.headers())?;
    if gateway.checks_hosts {
        check_host(request.headers(), request.uri(), &gateway.allowed_origins)?;
    }
    // Reading needs no check: browsers keep answers from pages of sites that are not listed.
    let is_reading =
        matches!(*method, Method::GET | Method::HEAD) && !request.headers().contains_key(UPGRADE);
    if !is_reading {
        check_origin(request.headers(), request.uri(), &gateway.allowed_origins)?;
    }
    let path = request.uri().path();
    if !gateway.serves_clients {
        let watching = route::find(path).iter().find(|endpoint| endpoint.is_for_monitoring()).copied();
        return watching.filter(|endpoint| endpoint.accepts(method)).ok_or_else(|| {
            let reason = "this server only stores (server.role = committer): it has /health and /metrics, and nothing for \
                          clients; use a server with the role gateway";
            Problem::new(ErrorCode::NotSupported, reason)
        });
    }
    let compat = match gateway.compat {
        Some(Compat::Chats) => route::find_in(chats::ENDPOINTS, path),
        None => Vec::new(),
    };
    let found = if compat.is_empty() { route::find(path) } else { Cow::Owned(compat) };
    if found.is_empty() {
        return Err(Problem::new(ErrorCode::NotFound, format!("nothing is served at {}", repeated(path))));
    }
    let Some(&endpoint) = found.iter().find(|endpoint| endpoint.accepts(method)) else {
        return Err(Problem::method_not_allowed(AllowedMethods::of(&found)));
    };
    if !gateway.store.has_queues_and_keys() && endpoints::is_optional(endpoint) {
        let reason = "this server's store (Cassandra or ScyllaDB) has rooms only, no queues and no keys";
        return Err(Problem::new(ErrorCode::NotSupported, reason));
    }
    Ok(endpoint)
}

/// Names the room or queue that is not there: the one in the path, or in the query of a report.
fn name_missing(problem: Problem, endpoint: &Endpoint, uri: &Uri) -> Problem {
    let parameter = match problem.code {
        ErrorCode::UnknownRoom => "room",
        ErrorCode::UnknownQueue => "queue",
        _ => return problem,
    };
    let name = percent_decode_str(endpoint.parameter(parameter, uri.path())).decode_utf8_lossy();
    let query = Query::parse(uri.query());
    match (name.as_ref(), query.get(parameter)) {
        ("", None) => problem,
        ("", Some(name)) | (name, _) => problem.naming(&repeated(name), endpoint.method != Method::DELETE),
    }
}

async fn identify(peer: &Peer, request: &Request<RequestBody>) -> Result<Identity, Problem> {
    let auth = &peer.gateway.auth;
    let (method, headers) = (request.method(), request.headers());
    let identified = auth.identify(&peer.last_token, method, headers);
    if !auth.must_refresh(&identified, method, headers) {
        return identified;
    }
    Box::pin(auth.refresh()).await?;
    auth.identify(&peer.last_token, method, headers)
}

fn begin(
    peer: &Arc<Peer>,
    admitted: &Admitted<'_>,
    request: Request<RequestBody>,
    identity: Result<Identity, Problem>,
) -> Result<Answering, Problem> {
    let Admitted { endpoint, charged, .. } = admitted;
    let call = Call::new(peer.clone(), endpoint, request, (identity, charged.clone()));
    if !endpoint.is_for_monitoring() {
        // Whoever has no right pays, too.
        call.charge()?;
    }
    permission::authorize(&call)?;
    request_body::check_is_plain(call.request.method(), call.headers())?;
    Ok((endpoint.handler)(call))
}

/// Counts a problem, and writes the answer that tells it.
pub(crate) fn refuse(gateway: &Gateway, problem: &Problem) -> Response<Body> {
    if !problem.is_counted {
        gateway.metrics.reject(problem.code, 1);
    }
    problem_response(problem)
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
        headers.insert(RETRY_AFTER, problem.retry_after_s.into());
    }
    if let Some(revision) = problem.revision {
        headers.insert(ETAG, revision_tag(revision.get()));
    }
    if problem.code == ErrorCode::Unauthorized {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"hubbub\""));
    }
    if let Some(methods) = problem.methods.text().and_then(|methods| HeaderValue::from_str(&methods).ok()) {
        headers.insert(ALLOW, methods);
    }
    response
}

/// With room for the headers that answers usually have: growing costs more than all of them.
fn response_with(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = HeaderMap::with_capacity(HEADERS);
    response
}

fn respond(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = response_with(status, Either::Left(Full::new(body.into())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// An answer that is still being written when it begins.
fn stream_response(content_type: &'static str, body: Streamed) -> Response<Body> {
    let mut response = response_with(StatusCode::OK, Either::Right(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

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
    response_with(status, Either::Left(Full::default()))
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
