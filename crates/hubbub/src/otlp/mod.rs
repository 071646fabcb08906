//! Exports traces to a collector by OTLP: protobuf over HTTP.
//!
//! The server leaves spans in a bounded queue ([`SpanQueue`]) and never waits. One task posts them, a bounded number at a time;
//! while the collector does not answer, it tries again after growing pauses, and what does not fit into the queue is dropped
//! and counted. When the server stops, it posts once more, within a short time.

mod encode;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http_body_util::Full;
use hubbub_core::{Clock, RandomSource};
use hubbub_gateway::fetch;
use hubbub_pipeline::log::backoff::Backoff;
use hubbub_pipeline::traces::{Collector, SpanQueue, TracedReceiver, Tracer};
use hubbub_pipeline::{Metrics, Pipeline};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::Config;
use encode::Encoder;

/// How often spans are posted.
const INTERVAL: Duration = Duration::from_millis(500);
/// Spans of one request.
const SPANS_MAX: usize = 1_024;
/// The longest pause before another try.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// For the last requests, when the server stops.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Where spans are posted, and how.
#[derive(Debug, Clone)]
struct Target {
    uri: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    timeout: Duration,
}

impl Target {
    /// `None` = traces are not exported.
    fn of(config: &Config) -> Result<Option<Self>, String> {
        let Some(url) = config.otlp_url.as_ref() else { return Ok(None) };
        let rule = "telemetry.otlp.url must be http://HOST:PORT or https://HOST:PORT, perhaps with a path";
        let uri: Uri = url.0.parse().map_err(|_| rule.to_owned())?;
        let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
        let authority = uri.authority().filter(|authority| is_web && !authority.as_str().contains('@'));
        let authority = authority.ok_or(rule)?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path == "/" { "/v1/traces" } else { path };
        let uri = Uri::builder().scheme(uri.scheme_str().unwrap_or_default()).authority(authority.as_str());
        let uri = uri.path_and_query(path).build().map_err(|_| rule.to_owned())?;
        let headers =
            config.otlp_headers.as_ref().map_or(Ok(Vec::new()), |headers| headers_of(&headers.0))?;
        Ok(Some(Self { uri, headers, timeout: *config.otlp_timeout }))
    }
}

impl Target {
    /// Without what stands behind the path, which may be secret.
    fn shown(&self) -> String {
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        format!("{authority}{}", self.uri.path())
    }
}

fn headers_of(text: &str) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let parse = |header: &str| {
        let (name, value) = header.split_once('=')?;
        let mut value = HeaderValue::from_str(value.trim()).ok()?;
        value.set_sensitive(true);
        Some((name.trim().parse().ok()?, value))
    };
    let headers: Option<Vec<_>> = text.split(',').map(parse).collect();
    headers.ok_or_else(|| "telemetry.otlp.headers must be NAME=VALUE, several separated by commas".to_owned())
}

/// What is wrong with the settings.
pub(crate) fn check(config: &Config) -> Result<(), String> {
    Target::of(config).map(drop)
}

/// The tracer of a server that exports traces, and what makes its exporter.
pub(crate) fn tracer(
    config: &Config,
    clock: Arc<dyn Clock>,
    random: Arc<dyn RandomSource>,
    metrics: Arc<Metrics>,
) -> Option<(Tracer, TracedReceiver)> {
    config.otlp_url.is_some().then(|| Tracer::new(config.otlp_sample.0, clock, random, metrics))
}

/// The task that exports.
pub(crate) struct Exporting {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Exporting {
    /// Starts it.
    pub(crate) fn start(
        config: &Config,
        receiver: TracedReceiver,
        name: &str,
        pipeline: &Pipeline,
    ) -> anyhow::Result<Option<Self>> {
        let Some(target) = Target::of(config).map_err(anyhow::Error::msg).context("exporting traces")? else {
            return Ok(None);
        };
        tracing::info!(collector = target.shown(), "exporting traces");
        let Pipeline { hub, clock, random, metrics, .. } = pipeline.clone();
        let queue = SpanQueue::new(metrics.clone());
        let collector = Collector::new(receiver, hub, queue.clone());
        let encoder = Encoder::new(&config.otlp_service, name, clock);
        let exporter = Exporter { target, encoder, queue, metrics, is_refused: false };
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(export(collector, exporter, Backoff::new(random).up_to(PAUSE_MAX), stopped));
        Ok(Some(Self { stop, task }))
    }

    /// Exports what there is, if the collector takes it at once.
    pub(crate) async fn close(self) {
        let _ = self.stop.send(true);
        if self.task.await.is_err() {
            tracing::error!("the exporter of traces panicked");
        }
    }
}

async fn export(
    mut collector: Collector,
    mut exporter: Exporter,
    backoff: Backoff,
    stop: watch::Receiver<bool>,
) {
    let mut stopped = stop.clone();
    tokio::select! {
        _ = stopped.wait_for(|is_stopping| *is_stopping) => {}
        () = collector.run() => {}
        () = exporter.run(backoff, &stop) => {}
    }
    collector.finish();
    let posting = async { while exporter.post().await.is_ok_and(|count| count > 0) {} };
    let _ = tokio::time::timeout(LAST_TIMEOUT, posting).await;
}

struct Exporter {
    target: Target,
    encoder: Encoder,
    queue: Arc<SpanQueue>,
    metrics: Arc<Metrics>,
    /// Whether the last request failed.
    is_refused: bool,
}

impl Exporter {
    /// Posts spans until it is dropped.
    async fn run(&mut self, mut backoff: Backoff, stop: &watch::Receiver<bool>) {
        loop {
            match self.post().await {
                Ok(count) => {
                    backoff.reset();
                    if count < SPANS_MAX {
                        tokio::time::sleep(INTERVAL).await;
                    }
                }
                Err(reason) => {
                    if !std::mem::replace(&mut self.is_refused, true) {
                        let collector = self.target.shown();
                        tracing::warn!(
                            collector,
                            reason,
                            "exporting traces failed; trying again, and dropping what does not fit"
                        );
                    }
                    if backoff.pause_unless(stop).await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    /// Posts the oldest spans. Returns how many; an error if they should be posted again.
    async fn post(&mut self) -> Result<usize, String> {
        let spans = self.queue.oldest(SPANS_MAX);
        if spans.is_empty() {
            return Ok(0);
        }
        let mut request = Request::new(Full::new(Bytes::from(self.encoder.request(&spans))));
        *request.method_mut() = Method::POST;
        request.headers_mut().extend(self.target.headers.iter().cloned());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let answer = fetch::send(&self.target.uri, request, ANSWER_BYTES_MAX, self.target.timeout).await?;
        let status = answer.status();
        if is_temporary(status) {
            return Err(format!("the answer was {}", status.as_u16()));
        }
        self.queue.remove(spans.len());
        let refused = if status.is_success() { encode::refused(answer.body()) } else { spans.len() as u64 };
        let refused = refused.min(spans.len() as u64);
        self.metrics.spans_dropped.inc_by(refused);
        self.metrics.spans_exported.inc_by(spans.len() as u64 - refused);
        if refused > 0 {
            // The next ones are refused, too, most likely: no reason to hurry, or to say it again.
            if !std::mem::replace(&mut self.is_refused, true) {
                let status = status.as_u16();
                tracing::warn!(spans = refused, status, "the collector of traces refuses spans");
            }
            return Ok(0);
        }
        if std::mem::replace(&mut self.is_refused, false) {
            tracing::info!("traces are exported again");
        }
        Ok(spans.len())
    }
}

/// The answers after which the standard wants the same again.
fn is_temporary(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502..=504)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_pairs() {
        let headers = headers_of("authorization=Basic eDp5=, x-tenant = a").unwrap();
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(headers, [("authorization", "Basic eDp5="), ("x-tenant", "a")]);
        for wrong in ["", "a", "=b", "a b=c", "a=b,", "a=b\nc"] {
            assert!(headers_of(wrong).is_err(), "{wrong:?}");
        }
    }
}
