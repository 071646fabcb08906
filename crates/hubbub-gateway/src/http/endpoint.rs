//! An endpoint, and a request on its way to it.

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use hubbub_core::id::{ID_RULE, InvalidId, is_valid_id};
use hubbub_core::invariant::saturate;
use hubbub_core::{ClientId, FieldError, MessageId, QueueId, RoomId, TraceContext, UserId};
use hyper::body::Body;
use hyper::{HeaderMap, Method, Request};

use super::operation::{Media, Operation, Text, UNDOCUMENTED};
use super::permission::Permission;
use super::query::{LIMIT_DEFAULT, LIMIT_MAX, Query, refuse_faults};
use super::request_body::{too_large, too_slow};
use super::template;
use super::{Answer, RequestBody};
use crate::Gateway;
use crate::auth::Scope;
use crate::auth::caller::{Caller, Identity};
use crate::auth::open_connections::{ConnectionKind, Listed};
use crate::incoming_memory::Share;
use crate::problem::Problem;
use crate::rates::{Charged, Exceeded, Rates};
use crate::server::Peer;

/// An answer under way. It is boxed, so that an idle connection does not reserve room for the largest of them.
pub(super) type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

pub(super) type Handler = fn(Call) -> Answering;

/// Charges a request, or more of one.
type Charge = fn(&Rates, &Charged, usize, Duration) -> Result<(), Exceeded>;

pub(super) struct Endpoint {
    pub(super) method: Method,
    /// `/v1/rooms/{room}`; a last `{*name}` takes the rest of the path, slashes included.
    pub(super) template: Text,
    pub(super) handler: Handler,
    pub(super) document: Operation,
    pub(super) permission: Permission,
    /// Whether `HEAD` is answered as `GET`, without the body.
    pub(super) has_head: bool,
    pub(super) has_prefix: bool,
    /// Where the parameter stands that takes the rest of the path, if there is one.
    rest_at: Option<usize>,
}

const fn endpoint(method: Method, template: Text, handler: Handler) -> Endpoint {
    let (document, permission, rest_at) = (UNDOCUMENTED, Permission::Unstated, template::rest_at(template));
    Endpoint { method, template, handler, document, permission, has_head: false, has_prefix: false, rest_at }
}

pub(super) const fn get(template: Text, handler: Handler) -> Endpoint {
    let mut endpoint = endpoint(Method::GET, template, handler);
    endpoint.has_head = true;
    endpoint
}

pub(super) const fn post(template: Text, handler: Handler) -> Endpoint {
    endpoint(Method::POST, template, handler)
}

pub(super) const fn put(template: Text, handler: Handler) -> Endpoint {
    endpoint(Method::PUT, template, handler)
}

pub(super) const fn delete(template: Text, handler: Handler) -> Endpoint {
    endpoint(Method::DELETE, template, handler)
}

impl Endpoint {
    /// Says who may use it.
    pub(super) const fn needs(mut self, permission: Permission) -> Self {
        self.permission = permission;
        self
    }

    /// For a `GET` that begins a stream or a socket.
    pub(super) const fn without_head(mut self) -> Self {
        self.has_head = false;
        self
    }

    /// Is found under any prefix too: `/chat/{room}` also at `/team/chat/{room}`.
    pub(super) const fn under_any_prefix(mut self) -> Self {
        self.has_prefix = true;
        self
    }

    pub(super) fn accepts(&self, method: &Method) -> bool {
        *method == self.method || (self.has_head && *method == Method::HEAD)
    }

    /// Whether those who watch the server ask for it.
    pub(super) fn is_for_monitoring(&self) -> bool {
        matches!(self.template, "/health" | "/health/live" | "/health/ready" | "/metrics")
    }

    pub(super) fn path_parameters(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.template.split('/').filter_map(parameter_name)
    }

    /// Who calls, by the token and the name in the header or the query. Where `user` is a parameter of the endpoint, or of the report that `/metrics` may answer with, only
    /// the header names the caller.
    fn caller(&self, identity: Identity, headers: &HeaderMap, query: &Query) -> Result<Caller, Problem> {
        if !self.permission.takes_names() {
            return Caller::unnamed(identity);
        }
        let mut parameters = self.document.parameters.iter().copied().flatten();
        let is_metrics = self.permission == Permission::Scope(Scope::Metrics);
        let is_named = query.get("user").is_some();
        if is_named && (is_metrics || parameters.any(|parameter| parameter.name == "user")) {
            return Caller::of(identity, headers, &Query::default());
        }
        Caller::of(identity, headers, query)
    }

    /// Whether the path is of this template; a parameter may be empty.
    pub(super) fn covers(&self, path: &str) -> bool {
        let mut segments = if self.has_prefix { self.tail(path) } else { path }.split('/');
        for part in self.template.split('/') {
            let Some(segment) = segments.next() else { return false };
            if part.starts_with("{*") {
                return true;
            }
            if part != segment && parameter_name(part).is_none() {
                return false;
            }
        }
        segments.next().is_none()
    }

    /// As many of the path's last segments as the template has.
    fn tail<'a>(&self, path: &'a str) -> &'a str {
        let segments = self.template.matches('/').count();
        let start = path.rmatch_indices('/').nth(segments.saturating_sub(1));
        start.and_then(|(start, _)| path.get(start..)).unwrap_or(path)
    }

    /// What the path has for a parameter, still percent-encoded; empty when the template has none of this name.
    pub(super) fn parameter<'a>(&self, name: &str, path: &'a str) -> &'a str {
        template::parameter(self.template, self.rest_at, name, path).unwrap_or_default()
    }
}

fn parameter_name(segment: &str) -> Option<&str> {
    let name = segment.strip_prefix('{')?.strip_suffix('}')?;
    Some(name.strip_prefix('*').unwrap_or(name))
}

pub(crate) struct Call {
    pub(crate) peer: Arc<Peer>,
    pub(super) endpoint: &'static Endpoint,
    pub(crate) request: Request<RequestBody>,
    pub(crate) query: Query,
    /// Who calls; not always known where no token is needed.
    caller: Result<Caller, Problem>,
    is_without_token: bool,
    /// The account of the caller's address, if addresses are limited.
    by_address: Charged,
    /// What the body takes until the request is answered.
    held: Option<Share>,
}

impl Call {
    /// The request of somebody, which is not authorized yet.
    pub(super) fn new(
        peer: Arc<Peer>,
        endpoint: &'static Endpoint,
        request: Request<RequestBody>,
        (identity, by_address): (Result<Identity, Problem>, Charged),
    ) -> Self {
        let query = Query::parse(request.uri().query());
        let is_without_token = matches!(identity, Ok(Identity::Nobody));
        let caller = identity.and_then(|identity| endpoint.caller(identity, request.headers(), &query));
        Self { peer, endpoint, request, query, caller, is_without_token, by_address, held: None }
    }

    pub(super) fn gateway(&self) -> &Arc<Gateway> {
        &self.peer.gateway
    }

    /// The span of the request, if it is traced.
    pub(super) fn trace(&self) -> Option<TraceContext> {
        self.request.extensions().get().copied()
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        self.request.headers()
    }

    /// Who calls.
    pub(crate) fn caller(&self) -> Result<Caller, Problem> {
        self.caller.clone()
    }

    /// Whether a token is needed and there is none.
    pub(crate) fn is_without_token(&self) -> bool {
        self.is_without_token
    }

    /// What the list of connections says about a stream that this request begins.
    pub(super) fn listed(&self, kind: ConnectionKind) -> Arc<Listed> {
        let gateway = self.gateway();
        Listed::new(&gateway.auth, kind, gateway.rates.client_address(self.peer.address, self.headers()))
    }

    pub(super) fn caller_ref(&self) -> Result<&Caller, Problem> {
        self.caller.as_ref().map_err(Problem::clone)
    }

    /// Who pays for this request, and for what it brings.
    pub(crate) fn charged(&self) -> Charged {
        let gateway = self.gateway();
        if !gateway.rates.is_limited() {
            return Charged::default();
        }
        let mut charged = self.by_address.clone();
        // Whoever is no valid caller is refused by the endpoint.
        let user = self.caller.as_ref().ok().and_then(|caller| caller.user.as_ref());
        gateway.rates.charge_user(&mut charged, user, gateway.clock.monotonic());
        charged
    }

    /// Charges the request and the body it announces, of which no more is used than a body may have.
    pub(super) fn charge(&self) -> Result<(), Problem> {
        let limits = &self.gateway().limits;
        let most = match self.endpoint.document.body {
            // The lines of a streamed body are charged one by one.
            Some(Media::Lines(_)) => 0,
            _ if matches!(self.endpoint.method, Method::POST | Method::PUT) => {
                limits.body_bytes.max(limits.value_bytes)
            }
            _ => 0,
        };
        self.charge_with(
            Rates::charge,
            saturate::<_, usize>(self.request.body().size_hint().lower()).min(most),
        )
    }

    fn charge_with(&self, charge: Charge, bytes: usize) -> Result<(), Problem> {
        let charged = self.charged();
        if charged.is_nobody() {
            return Ok(());
        }
        let gateway = self.gateway();
        Ok(charge(&gateway.rates, &charged, bytes, gateway.clock.monotonic())?)
    }

    /// `after` and `limit` of a list.
    pub(super) fn page<T>(
        &self,
        parse: fn(&str) -> Result<T, InvalidId>,
    ) -> Result<(Option<T>, usize), Problem> {
        let mut faults = Vec::new();
        let limit = self.query.limit(LIMIT_DEFAULT, LIMIT_MAX, &mut faults);
        let after = self.query.id("after", parse, &mut faults);
        refuse_faults(faults)?;
        Ok((after, limit))
    }

    pub(super) fn parameter(&self, name: &str) -> &str {
        self.endpoint.parameter(name, self.request.uri().path())
    }

    pub(crate) fn room(&self) -> Result<RoomId, Problem> {
        self.id("room", "roomId", RoomId::new)
    }

    pub(super) fn room_text(&self) -> Result<Cow<'_, str>, Problem> {
        self.id_text("room", "roomId")
    }

    pub(super) fn queue_text(&self) -> Result<Cow<'_, str>, Problem> {
        self.id_text("queue", "queue")
    }

    pub(crate) fn user(&self) -> Result<UserId, Problem> {
        self.id("user", "userId", UserId::new)
    }

    pub(super) fn message(&self) -> Result<MessageId, Problem> {
        self.id("id", "messageId", MessageId::new)
    }

    pub(super) fn queue(&self) -> Result<QueueId, Problem> {
        self.id("queue", "queue", QueueId::new)
    }

    pub(super) fn client(&self) -> Result<ClientId, Problem> {
        self.id("client", "client", ClientId::new)
    }

    /// An id in the path; percent-encoding is undone.
    fn id<T>(&self, name: &str, field: Text, parse: fn(&str) -> Result<T, InvalidId>) -> Result<T, Problem> {
        parse(&self.decoded(name)).map_err(|_| Problem::invalid(vec![FieldError::new(field, ID_RULE)]))
    }

    fn decoded(&self, name: &str) -> Cow<'_, str> {
        percent_encoding::percent_decode_str(self.parameter(name)).decode_utf8_lossy()
    }

    /// The same to be compared only, which takes no memory of its own.
    fn id_text(&self, name: &str, field: Text) -> Result<Cow<'_, str>, Problem> {
        let text = self.decoded(name);
        let fault = || Problem::invalid(vec![FieldError::new(field, ID_RULE)]);
        is_valid_id(&text).then_some(text).ok_or_else(fault)
    }

    pub(super) async fn body(&mut self) -> Result<Bytes, Problem> {
        self.body_up_to(self.gateway().limits.body_bytes).await
    }

    /// Refuses a caller whose token has ended since the request was authorized.
    pub(super) async fn check_token(&self) -> Result<(), Problem> {
        let Some(access) = self.caller.as_ref().ok().and_then(Caller::token) else { return Ok(()) };
        self.gateway().auth.check_again(access).await
    }

    /// The whole body of at most `limit` bytes, in the time the server allows. By then the token may have ended.
    pub(super) async fn body_up_to(&mut self, limit: usize) -> Result<Bytes, Problem> {
        let body_timeout = self.peer.gateway.server.body_timeout;
        let announced = self.request.body().size_hint().exact();
        if announced.is_some_and(|bytes| bytes > limit as u64) {
            return Err(too_large(limit));
        }
        let mut share = Share::new(&self.peer.gateway.incoming_memory);
        let (read, has_waited) = {
            let read = self.request.body_mut().read_all(limit, &mut share);
            let mut read = pin!(tokio::time::timeout(body_timeout, read));
            // Most bodies came with their heads.
            match poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await {
                Poll::Ready(read) => (read, false),
                Poll::Pending => (read.await, true),
            }
        };
        if has_waited {
            self.check_token().await?;
        }
        match read {
            Ok(Ok(body)) => {
                if announced.is_none() && !body.is_empty() {
                    self.charge_with(Rates::charge_bytes, body.len())?;
                }
                share.keep();
                self.held = Some(share);
                Ok(body)
            }
            Ok(Err(problem)) => Err(problem),
            Err(_) => {
                self.request.body_mut().give_up();
                Err(too_slow(body_timeout))
            }
        }
    }
}
