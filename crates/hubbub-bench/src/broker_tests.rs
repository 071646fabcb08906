//! Workloads against a server that stores later than it answers, as one behind a broker does.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::options::arguments;
use crate::report::Report;
use crate::workloads::engine::{Findings as _, Loading, Workload, measure};
use crate::workloads::http::HttpArgs;
use crate::workloads::persist::PersistArgs;

/// Stores a share of what it accepted whenever somebody asks for its metrics.
struct LateStore {
    has_broker: bool,
    /// In percent of all that was accepted.
    each_time: u64,
    accepted: AtomicU64,
    stored: AtomicU64,
    /// Nothing more is stored.
    stored_max: u64,
}

impl LateStore {
    fn new(has_broker: bool, each_time: u64) -> Self {
        let (accepted, stored) = Default::default();
        Self { has_broker, each_time, accepted, stored, stored_max: u64::MAX }
    }

    /// Accepted before, and stored until only so many are.
    fn losing(accepted: u64, stored_max: u64) -> Self {
        Self { accepted: accepted.into(), stored_max, ..Self::new(true, 5) }
    }

    fn metrics(&self) -> String {
        let accepted = self.accepted.load(Ordering::SeqCst);
        let stored = self.stored.load(Ordering::SeqCst) + (self.each_time * accepted).div_ceil(100);
        let stored = stored.min(accepted).min(self.stored_max);
        self.stored.store(stored, Ordering::SeqCst);
        let confirmed = format!(
            "hubbub_log_confirm_seconds_bucket{{le=\"+Inf\"}} {accepted}\nhubbub_log_confirm_seconds_sum 0.1\n"
        );
        let confirmed = if self.has_broker { confirmed } else { String::new() };
        format!("hubbub_messages_accepted_total {stored}\nhubbub_messages_stored_total {stored}\n{confirmed}")
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let (is_post, path) = (request.method() == Method::POST, request.uri().path().to_owned());
        let body = request.into_body().collect().await.expect("a body").to_bytes();
        let answer = match &*path {
            "/metrics" => self.metrics(),
            _ if is_post => {
                self.accepted.fetch_add(1, Ordering::SeqCst);
                let draft: Value = serde_json::from_slice(&body).expect("a message");
                format!("{{\"messageId\":{}}}", draft["messageId"])
            }
            _ => String::new(),
        };
        Ok(Response::new(Full::new(Bytes::from(answer))))
    }

    /// Serves until the test ends; its URL.
    async fn serve(self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("address"));
        let server = Arc::new(self);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = Arc::clone(&server);
                tokio::spawn(async move {
                    let answer = |request| server.answer(request);
                    let serving =
                        http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
                    let _ = serving.await;
                });
            }
        });
        url
    }
}

/// The process of the server is this one.
async fn run<W: Workload>(url: &str, own: &[&str]) -> Report {
    let pid = std::process::id().to_string();
    let line = [&["--quiet", "--server", url, "--server-pid", &pid][..], own].concat();
    measure(&arguments::<Loading<W>>(W::NAME, &line).expect("options")).await.expect("measured")
}

const CLOSED: [&str; 5] = ["--closed", "--duration", "300ms", "--connections", "4"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_the_broker_has_is_told_of_a_rate() {
    // At least 60 questions, 20 ms apart.
    let url = LateStore::new(true, 1).serve().await;
    let report = run::<HttpArgs>(&url, &CLOSED).await;
    assert!(report.is_clean(), "all was stored in the end: {}", report.terminal());
    let summary = serde_json::to_value(&report).expect("a summary");
    let number = |place: &str| summary.pointer(place).and_then(Value::as_f64).unwrap_or(f64::NAN);
    let (accepted, rate) = (number("/ledger/accepted"), number("/perSecond"));
    assert!(number("/lagS") > 1.0 && number("/unstoredAtEnd") > 0.6 * accepted, "{summary}");
    assert!(number("/storedPerSecond") < 0.5 * rate, "{summary}");
    let behind = summary["storeBehind"].as_str().expect("it fell behind");
    assert!(report.notes.iter().any(|note| note == behind), "{:?}", report.notes);
    assert!(report.terminal().contains(" were left at the end of the load, for "), "{}", report.terminal());
    // What a message cost is of those that were stored meanwhile.
    assert!(number("/usage/messages") < 0.4 * accepted, "{summary}");
    assert!(number("/capacity/perSecond") < 0.4 * rate, "{summary}");
    assert_eq!(report.rate(), number("/storedPerSecond"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_broker_answers_are_what_is_stored() {
    let url = LateStore::new(false, 100).serve().await;
    let report = run::<HttpArgs>(&url, &CLOSED).await;
    let summary = serde_json::to_value(&report).expect("a summary");
    assert!(report.is_clean() && summary.get("lagS").is_none(), "{summary}");
    let messages = summary["usage"]["messages"].as_f64();
    assert_eq!((messages, report.rate()), (Some(report.latency.count as f64), report.per_second));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_what_was_lost_is_no_part_of_a_run() {
    let url = LateStore::losing(100, 60).serve().await;
    let own = ["--drain", "--messages", "100", "--around", "0s", "--give-up", "2s"];
    let report = run::<PersistArgs>(&url, &own).await;
    assert_eq!(report.faults, ["100 were to be drained, but 60 stored"]);
    let (cpu, persisted) = (report.cpu.as_ref().expect("processors"), report.persisted.as_ref());
    let store_s = persisted.expect("what was stored").store_s;
    let waited = report.notes.iter().any(|note| note.starts_with("nothing was stored in the last "));
    assert!(waited, "{:?}", report.notes);
    assert!(cpu.seconds < store_s + 1.8, "{} s, and the last was stored after {store_s} s", cpu.seconds);
    assert!(report.analysis.usage.is_some(), "{}", report.terminal());
}
