//! Traces reach a collector whole: every span with its parent and its times, from all servers that had to do with a message.
//! A collector that is away, hangs or refuses costs nothing but spans.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::harness::{Answer, Server, Setup, hubbub, until};

/// How a collector answers.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    Takes,
    /// An answer after which the same is to be sent again.
    IsBusy,
    Hangs,
}

#[derive(Clone, Debug)]
struct Exported {
    server: String,
    span: Span,
}

impl Exported {
    fn attribute(&self, key: &str) -> Value {
        value_of(&self.span.attributes, key)
    }

    fn times(&self) -> (u64, u64) {
        (self.span.start_time_unix_nano, self.span.end_time_unix_nano)
    }
}

fn value_of(attributes: &[KeyValue], key: &str) -> Value {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|found| found.value.clone()).and_then(|value| value.value) {
        Some(AnyValue::StringValue(text)) => json!(text),
        Some(AnyValue::IntValue(number)) => json!(number),
        _ => Value::Null,
    }
}

/// A collector: OTLP over HTTP, in protobuf.
struct Receiver {
    address: SocketAddr,
    manner: Arc<Mutex<Manner>>,
    spans: Arc<Mutex<Vec<Exported>>>,
    asked: Arc<Mutex<usize>>,
}

impl Receiver {
    async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Self {
            address: listener.local_addr().unwrap(),
            manner: Arc::new(Mutex::new(manner)),
            spans: Arc::default(),
            asked: Arc::default(),
        };
        let (manner, spans, asked) =
            (receiver.manner.clone(), receiver.spans.clone(), receiver.asked.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (manner, spans, asked) = (manner.clone(), spans.clone(), asked.clone());
                let service = service_fn(move |request| {
                    take(request, *manner.lock().unwrap(), spans.clone(), asked.clone())
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        receiver
    }

    fn set(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    fn asked(&self) -> usize {
        *self.asked.lock().unwrap()
    }

    /// The spans of a trace, by name; fails when there are two of one name and server.
    fn trace(&self, trace: &str) -> HashMap<String, Exported> {
        let mut found = HashMap::new();
        for exported in self.spans.lock().unwrap().iter() {
            if hex(&exported.span.trace_id) == trace {
                let name = format!("{}/{}", exported.server, exported.span.name);
                assert!(found.insert(name.clone(), exported.clone()).is_none(), "two of {name}");
            }
        }
        found
    }

    /// A server called `name` that exports to it.
    fn setup(&self, setup: Setup, name: &str) -> Setup {
        let setup = setup.set(&format!("telemetry.otlp.url=http://{}", self.address));
        setup.set("telemetry.otlp.sample=0").set(&format!("server.name={name}"))
    }
}

async fn take(
    request: Request<Incoming>,
    manner: Manner,
    spans: Arc<Mutex<Vec<Exported>>>,
    asked: Arc<Mutex<usize>>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    *asked.lock().unwrap() += 1;
    match manner {
        Manner::Takes => {}
        Manner::IsBusy => {
            let mut busy = Response::new(Full::default());
            *busy.status_mut() = hyper::StatusCode::SERVICE_UNAVAILABLE;
            return Ok(busy);
        }
        Manner::Hangs => std::future::pending::<()>().await,
    }
    assert_eq!((head.method, head.uri.path()), (Method::POST, "/v1/traces"));
    assert_eq!(head.headers["content-type"], "application/x-protobuf");
    let decoded = ExportTraceServiceRequest::decode(body).unwrap();
    for resource in decoded.resource_spans {
        let attributes = resource.resource.unwrap().attributes;
        assert_eq!(value_of(&attributes, "service.name"), "hubbub");
        let server = value_of(&attributes, "service.instance.id").as_str().unwrap().to_owned();
        for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            spans.lock().unwrap().push(Exported { server: server.clone(), span });
        }
    }
    Ok(Response::new(Full::from(ExportTraceServiceResponse::default().encode_to_vec())))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const CALLER: &str = "00f067aa0ba902b7";

/// The number of a message makes its trace.
fn trace_of(number: u64) -> String {
    format!("{:032x}", 0x4bf9_2f35_u64 + number)
}

async fn send(server: &Server, room: &str, number: u64) -> Answer {
    let traceparent = format!("00-{}-{CALLER}-01", trace_of(number));
    let body = json!({"userId": "ada", "message": "secret words", "messageId": format!("m-{number}")});
    let path = format!("/v1/rooms/{room}/messages");
    let headers = [("traceparent", traceparent.as_str())];
    server.http().await.request(Method::POST, &path, &headers, body.to_string()).await
}

/// Sends messages until the trace of one has all of these spans, and its `publish` so many subscribers: a subscription is live a
/// moment after it was answered.
async fn trace_with(
    receiver: &Receiver,
    server: &Server,
    names: &[&str],
    (publish, subscribers): (&str, u64),
) -> (u64, HashMap<String, Exported>) {
    let (mut sent, mut whole) = (0, None);
    until("a trace is whole", async || {
        sent += 1;
        let status = send(server, "r", sent).await.status;
        assert!([201, 202].contains(&status), "{status}");
        let mut traces = (1..=sent).map(|number| (number, receiver.trace(&trace_of(number))));
        let is_whole = |spans: &HashMap<String, Exported>| {
            names.iter().all(|name| spans.contains_key(*name))
                && spans[publish].attribute("hubbub.subscribers") == subscribers
        };
        whole = traces.find(|(_, spans)| is_whole(spans));
        if whole.is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        whole.is_some()
    })
    .await;
    whole.unwrap()
}

fn is_child(child: &Exported, parent: &Exported) -> bool {
    !child.span.span_id.iter().all(|byte| *byte == 0) && child.span.parent_span_id == parent.span.span_id
}

const REQUEST: &str = "POST /v1/rooms/{room}/messages";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traces_are_exported() {
    let receiver = Receiver::start(Manner::Takes).await;
    let server = receiver.setup(Setup::new(), "a").start();
    let _sockets = [server.subscriber("r", json!({})).await, server.subscriber("r", json!({})).await];
    let names = [&format!("a/{REQUEST}")[..], "a/log", "a/store", "a/publish", "a/deliver"];
    let (number, trace) = trace_with(&receiver, &server, &names, ("a/publish", 2)).await;
    assert_eq!(trace.len(), names.len(), "{:?}", trace.keys());
    let [request, log, store, publish, deliver] = names.map(|name| &trace[name]);
    assert_eq!(hex(&request.span.parent_span_id), CALLER);
    for (child, parent) in [(log, request), (store, log), (publish, request), (deliver, publish)] {
        assert!(is_child(child, parent), "{child:?} {parent:?}");
    }
    for exported in trace.values() {
        let (began, ended) = exported.times();
        assert!(began <= ended, "{exported:?}");
        assert!(exported.span.status.as_ref().is_none_or(|status| status.code() != StatusCode::Error));
    }
    // Queued and committed within the request; published once stored, delivered once published. A sender that looks at that moment
    // has its answer before the log has told all others.
    assert!(request.times().0 <= log.times().0 && log.times().0 <= store.times().0);
    assert!(store.times().1 <= log.times().1 && store.times().1 <= request.times().1);
    // Records have microseconds.
    assert!(publish.times().0.abs_diff(store.times().1) < 1_000);
    assert_eq!(deliver.times().0, publish.times().1);
    let attributes = [
        (request, "http.response.status_code", json!(201)),
        (request, "http.route", json!("/v1/rooms/{room}/messages")),
        (log, "messaging.destination.name", json!("r")),
        (log, "messaging.message.id", json!(format!("m-{number}"))),
        (publish, "hubbub.subscribers", json!(2)),
        (deliver, "hubbub.delivered", json!(2)),
    ];
    for (exported, key, value) in attributes {
        assert_eq!(exported.attribute(key), value, "{key} of {exported:?}");
    }
    let all = format!("{:?}", receiver.spans.lock().unwrap());
    assert!(!all.contains("secret") && !all.contains("ada"), "neither texts nor users are in spans");
    // Nobody asked for these.
    let spans = receiver.spans.lock().unwrap().len();
    let not_recorded = [("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00")];
    let mut http = server.http().await;
    assert_eq!(http.request(Method::GET, "/v1/rooms", &not_recorded, "").await.status, 200);
    assert_eq!(http.get("/v1/rooms").await.status, 200);
    let asked = [("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")];
    assert_eq!(http.request(Method::GET, "/v1/rooms/none", &asked, "").await.status, 404);
    let name = "a/GET /v1/rooms/{room}";
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    until("the span of the request is exported", async || receiver.trace(trace).contains_key(name)).await;
    let gets: Vec<Exported> = receiver.spans.lock().unwrap().iter().skip(spans).cloned().collect();
    assert_eq!(gets.iter().filter(|exported| exported.span.name.starts_with("GET")).count(), 1, "{gets:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_of_requests_is_traced_by_chance() {
    let receiver = Receiver::start(Manner::Takes).await;
    let server = receiver.setup(Setup::new(), "a").set("telemetry.otlp.sample=1").start();
    server.send("r", "x").await;
    server.get("/health").await;
    until("a trace is exported", async || !receiver.spans.lock().unwrap().is_empty()).await;
    let spans = receiver.spans.lock().unwrap().clone();
    let request = spans.iter().find(|exported| exported.span.name == REQUEST).unwrap();
    assert!(request.span.parent_span_id.is_empty() && request.span.trace_id.iter().any(|byte| *byte != 0));
    assert!(!spans.iter().any(|exported| exported.span.name.contains("health")), "{spans:?}");
}

/// What a server has when it stops, the collector gets, if it is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_exports_what_it_has() {
    let receiver = Receiver::start(Manner::Takes).await;
    let mut server = receiver.setup(Setup::new(), "a").start();
    assert_eq!(send(&server, "r", 1).await.status, 201);
    server.stop().await;
    let names: Vec<String> = receiver.trace(&trace_of(1)).into_keys().collect();
    assert!(names.contains(&format!("a/{REQUEST}")) && names.contains(&"a/store".to_owned()), "{names:?}");
}

/// Traced messages are taken, stored and delivered as if there were no collector, and the server stops in order.
async fn costs_nothing(server: &mut Server, receiver: Option<&Receiver>) {
    let mut socket = server.subscriber("r", json!({})).await;
    for number in 1..=200 {
        assert_eq!(send(server, "r", number).await.status, 201);
    }
    socket.receive_many(200).await;
    match receiver {
        Some(receiver) => until("the collector is asked", async || receiver.asked() > 0).await,
        None => until("it is told", async || server.log().contains("exporting traces failed")).await,
    }
    assert_eq!(server.metric("traces_spans_exported_total").await, 0);
    assert_eq!(server.history("r").await.len(), 200);
    drop(socket);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_hangs_costs_nothing() {
    let receiver = Receiver::start(Manner::Hangs).await;
    let mut server = receiver.setup(Setup::new(), "a").start();
    costs_nothing(&mut server, Some(&receiver)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_away_costs_nothing() {
    // A port that is bound and does not listen.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("telemetry.otlp.url=http://{}", socket.local_addr().unwrap());
    let mut server = Setup::new().set(&url).start();
    costs_nothing(&mut server, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_was_busy_gets_what_it_missed() {
    let receiver = Receiver::start(Manner::IsBusy).await;
    let server = receiver.setup(Setup::new(), "a").start();
    for number in 1..=20 {
        assert_eq!(send(&server, "r", number).await.status, 201);
    }
    until("the collector is asked", async || receiver.asked() > 1).await;
    receiver.set(Manner::Takes);
    let store = |number| receiver.trace(&trace_of(number)).contains_key("a/store");
    until("all is exported, once", async || (1..=20).all(store)).await;
    assert_eq!(server.metric("traces_spans_dropped_total").await, 0);
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_of_all_servers_join_one_trace() {
    use crate::harness::{Kafka, Postgres};
    let (receiver, kafka, postgres) =
        (Receiver::start(Manner::Takes).await, Kafka::shared(), Postgres::start(""));
    let setup = |name| receiver.setup(kafka.setup(&postgres.url("postgres"), 2), name);
    let _committer = setup("committer").start();
    let gateway = setup("gateway").set("server.role=gateway").start();
    let other = setup("other").set("server.role=gateway").start();
    let _socket = other.subscriber("r", json!({})).await;
    let request = format!("gateway/{REQUEST}");
    let names = [
        &request[..],
        "gateway/log",
        "committer/log",
        "committer/store",
        "committer/bus",
        "other/publish",
        "other/deliver",
    ];
    let (_, trace) = trace_with(&receiver, &gateway, &names, ("other/publish", 1)).await;
    let [request, taken, log, store, bus, publish, deliver] = names.map(|name| &trace[name]);
    assert_eq!(hex(&request.span.parent_span_id), CALLER);
    for (child, parent) in [
        (taken, request),
        (log, request),
        (store, log),
        (bus, request),
        (publish, request),
        (deliver, publish),
    ] {
        assert!(is_child(child, parent), "{child:?} {parent:?}");
    }
    assert_eq!(request.attribute("http.response.status_code"), 202);
    assert_eq!(taken.attribute("messaging.system"), "kafka");
    // Whichever was first.
    assert!(
        ["bus", "store"].map(|from| json!(from)).contains(&publish.attribute("hubbub.from")),
        "{publish:?}"
    );
    assert_eq!(log.attribute("hubbub.seq"), publish.attribute("hubbub.seq"));
}

#[test]
fn wrong_settings_are_refused() {
    for (settings, reason) in [
        (&["telemetry.otlp.url=ftp://x"][..], "telemetry.otlp.url must be http"),
        (&["telemetry.otlp.url=http://user:word@x:4318"], "telemetry.otlp.url must be http"),
        (&["telemetry.otlp.sample=1.1"], "telemetry.otlp.sample must be a share"),
        (&["telemetry.otlp.sample=-1"], "telemetry.otlp.sample must be a share"),
        (
            &["telemetry.otlp.url=http://x:1", "timeline.memory=0B"],
            "telemetry.otlp.url needs timeline.memory",
        ),
        (&["telemetry.otlp.headers=a=b"], "telemetry.otlp.headers must not be on the command line"),
    ] {
        let setup = settings.iter().fold(Setup::new(), |setup, setting| setup.set(setting));
        let arguments = setup.arguments("127.0.0.1:0");
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let said = hubbub(&arguments, "").refusal(2);
        assert!(said.contains(reason), "{settings:?}: {said}");
    }
}
