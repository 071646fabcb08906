//! Spans as OTLP's protobuf.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::Clock;
use hubbub_core::invariant::saturate;
use hubbub_pipeline::traces::{Attribute, Span, SpanKind};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{self as otlp, ResourceSpans, ScopeSpans, Status};
use prost::Message;

use crate::build;

/// As long as the wall clock deviates by less, spans keep the relation of the clocks that they began with, so that those of
/// several requests fit together.
const DRIFT_MAX: u64 = 5_000;

pub(super) struct Encoder {
    resource: Resource,
    clock: Arc<dyn Clock>,
    /// Wall-clock microseconds since 1970 at 0 of the monotonic clock.
    origin: i64,
}

impl Encoder {
    /// Of the spans of one server: a service, and which one of its servers.
    pub(super) fn new(service: &str, server: &str, clock: Arc<dyn Clock>) -> Self {
        let attributes =
            [("service.name", service), ("service.instance.id", server), ("service.version", build::VERSION)];
        let attributes =
            attributes.map(|(key, value)| pair(key, Value::StringValue(value.to_owned()))).to_vec();
        let origin = origin(&*clock);
        Self { resource: Resource { attributes, ..Resource::default() }, clock, origin }
    }

    /// The body of a request.
    pub(super) fn request(&mut self, spans: &[Span]) -> Vec<u8> {
        let origin = origin(&*self.clock);
        if origin.abs_diff(self.origin) > DRIFT_MAX {
            self.origin = origin;
        }
        let scope = InstrumentationScope {
            name: "hubbub".to_owned(),
            version: build::VERSION.to_owned(),
            ..InstrumentationScope::default()
        };
        let spans = spans.iter().map(|span| encoded(span, self.origin)).collect();
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }];
        let resource = Some(self.resource.clone());
        let resource_spans = vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }];
        ExportTraceServiceRequest { resource_spans }.encode_to_vec()
    }
}

/// How many spans the collector refused although it took the request.
pub(super) fn refused(answer: &[u8]) -> u64 {
    // Whoever answers with something else says nothing about it.
    let answer = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
    answer.partial_success.map_or(0, |partial| saturate(partial.rejected_spans))
}

fn origin(clock: &dyn Clock) -> i64 {
    let monotonic: i64 = saturate(clock.monotonic().as_micros());
    clock.now().as_micros().saturating_sub(monotonic)
}

/// Nanoseconds since 1970.
fn nanos(origin: i64, at: Duration) -> u64 {
    saturate(i128::from(origin).saturating_mul(1_000).saturating_add(saturate(at.as_nanos())))
}

fn encoded(span: &Span, origin: i64) -> otlp::Span {
    let kind = match span.kind {
        SpanKind::Server => otlp::span::SpanKind::Server,
        SpanKind::Internal => otlp::span::SpanKind::Internal,
        SpanKind::Producer => otlp::span::SpanKind::Producer,
    };
    let attributes = span.attributes.iter().map(|(key, value)| match value {
        Attribute::Text(text) => pair(key, Value::StringValue(text.clone())),
        Attribute::Number(number) => pair(key, Value::IntValue(saturate(*number))),
    });
    let status = span.is_failed.then(|| Status { code: StatusCode::Error.into(), ..Status::default() });
    otlp::Span {
        trace_id: span.context.trace.to_be_bytes().to_vec(),
        span_id: span.context.span.to_be_bytes().to_vec(),
        parent_span_id: span.parent.map(|parent| parent.to_be_bytes().to_vec()).unwrap_or_default(),
        name: span.name.clone().into_owned(),
        kind: kind.into(),
        start_time_unix_nano: nanos(origin, span.began),
        end_time_unix_nano: nanos(origin, span.ended),
        attributes: attributes.collect(),
        status,
        ..otlp::Span::default()
    }
}

fn pair(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}
