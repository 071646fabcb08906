//! Requests that are traced: their span, and the log's where a broker is the log.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::OpBatch;
use hubbub_pipeline::traces::{BegunTrace, Span, SpanKind};
use hyper::header::HeaderValue;
use hyper::{Method, Request, StatusCode};

use super::RequestBody;
use super::endpoint::Endpoint;
use crate::Gateway;

/// Leaves the span of a request when it is dropped, also when the client went away before the answer.
pub(super) struct TracedRequest {
    gateway: Arc<Gateway>,
    begun: BegunTrace,
    method: Method,
    endpoint: &'static Endpoint,
    status: Option<StatusCode>,
}

impl TracedRequest {
    /// Begins the span, and leaves its context in the request. `None` = the request is not traced.
    pub(super) fn begin(
        gateway: &Arc<Gateway>,
        endpoint: &'static Endpoint,
        request: &mut Request<RequestBody>,
    ) -> Option<Box<Self>> {
        let tracer = gateway.hub.timeline().tracer()?;
        let begun = tracer.begin(request.headers().get("traceparent").map(HeaderValue::as_bytes))?;
        request.extensions_mut().insert(begun.context);
        let (gateway, method) = (gateway.clone(), request.method().clone());
        Some(Box::new(Self { gateway, begun, method, endpoint, status: None }))
    }

    pub(super) fn end(mut self, status: StatusCode) {
        self.status = Some(status);
    }
}

impl Drop for TracedRequest {
    fn drop(&mut self) {
        let Some(tracer) = self.gateway.hub.timeline().tracer() else { return };
        let Self { begun: BegunTrace { context, parent, at }, method, endpoint, status, .. } = self;
        if endpoint.is_for_monitoring() {
            return;
        }
        let method = match *method {
            Method::GET | Method::HEAD | Method::POST | Method::PUT | Method::DELETE | Method::OPTIONS => {
                method.as_str()
            }
            // It may be of any length.
            _ => "_OTHER",
        };
        let template = endpoint.template;
        let mut attributes = vec![("http.request.method", method.into()), ("http.route", template.into())];
        attributes
            .extend(status.map(|status| ("http.response.status_code", u64::from(status.as_u16()).into())));
        let name = format!("{method} {template}");
        tracer.span(Span {
            context: *context,
            parent: *parent,
            name: Cow::Owned(name),
            kind: SpanKind::Server,
            began: *at,
            ended: self.gateway.clock.monotonic(),
            attributes,
            is_failed: status.is_none_or(|status| status.is_server_error()),
        });
    }
}

impl Gateway {
    /// Leaves the spans of messages that a broker was given at `began`, and has confirmed now, or not.
    pub(crate) fn trace_log(&self, ops: &OpBatch, began: Duration, is_failed: bool) {
        let Some(tracer) = self.hub.timeline().tracer().filter(|_| self.log.parts_messages()) else { return };
        let (ended, system) = (self.clock.monotonic(), self.log.health().kind);
        for (_, context) in ops.traces() {
            tracer.span(Span {
                context: tracer.child(*context),
                parent: Some(context.span),
                name: Cow::Borrowed("log"),
                kind: SpanKind::Producer,
                began,
                ended,
                attributes: vec![("messaging.system", system.into())],
                is_failed,
            });
        }
    }
}
