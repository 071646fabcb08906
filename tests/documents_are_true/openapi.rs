//! Every example of `/openapi.json`, in the order of their `x-step`.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use super::{check_references, text_of};
use crate::harness::likeness::differences;
use crate::harness::schema::{Schemas, Unknown};
use crate::harness::tokens::admin;
use crate::harness::{Server, Setup, in_time};

/// One example of `/openapi.json`, put together from where OpenAPI wants its parts.
#[derive(Debug)]
pub(super) struct Step {
    /// Operation and example.
    pub(super) name: String,
    pub(super) place: String,
    pub(super) method: Method,
    pub(super) path: String,
    /// What of the path stands for what an earlier answer said, and where that is.
    pub(super) taken: Vec<(String, String)>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
    pub(super) status: u16,
    pub(super) media: Option<String>,
    /// Of the answer: with `schema`, and perhaps `x-line-schema` or `x-event-schemas`.
    pub(super) content: Value,
    pub(super) answer: Value,
}

impl Step {
    /// Accounts and API keys are made only where callers need tokens; the others' examples need none.
    fn needs_token(&self) -> bool {
        let starts = ["/v1/auth/login", "/v1/auth/accounts", "/v1/auth/keys"];
        starts.iter().any(|start| self.path.starts_with(start))
    }
}

/// All examples in the order of their `x-step`.
fn steps(document: &Value) -> Vec<Step> {
    let mut steps = BTreeMap::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            for (status, response) in operation["responses"].as_object().unwrap() {
                let none = serde_json::json!({});
                let (media, content) = match response.get("content").and_then(Value::as_object) {
                    Some(content) => {
                        content.iter().next().map(|(media, content)| (Some(media), content)).unwrap()
                    }
                    None => (None, &none),
                };
                let examples = content.get("examples").unwrap_or(&response["x-examples"]);
                for (name, example) in examples.as_object().into_iter().flatten() {
                    let step = Step {
                        place: format!("{method} {path}, example {name}"),
                        status: status.parse().unwrap(),
                        media: media.cloned(),
                        content: content.clone(),
                        answer: example["value"].clone(),
                        ..request(method, path, operation, name)
                    };
                    let before = steps.insert(example["x-step"].as_u64().unwrap(), step);
                    assert!(before.is_none(), "two examples with one x-step: {before:?}");
                }
            }
        }
    }
    assert_eq!(steps.keys().copied().collect::<Vec<_>>(), (1..=steps.len() as u64).collect::<Vec<_>>());
    steps.into_values().collect()
}

fn request(method: &str, template: &str, operation: &Value, name: &str) -> Step {
    let mut path = template.to_owned();
    let (mut query, mut headers) = (form_urlencoded::Serializer::new(String::new()), Vec::new());
    let mut taken = Vec::new();
    let mut has_query = false;
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let key = parameter["name"].as_str().unwrap();
        let Some(value) = parameter["examples"].get(name).map(|example| text_of(&example["value"])) else {
            assert_ne!(parameter["in"], "path", "{method} {template}, example {name}: no {key}");
            continue;
        };
        if let Some(source) = parameter["examples"][name]["x-from"].as_str() {
            taken.push((value.clone(), source.to_owned()));
        }
        match parameter["in"].as_str().unwrap() {
            "path" => path = path.replace(&format!("{{{key}}}"), &value.replace(' ', "%20")),
            "query" => {
                query.append_pair(key, &value);
                has_query = true;
            }
            _ => headers.push((key.to_owned(), value)),
        }
    }
    if has_query {
        path = format!("{path}?{}", query.finish());
    }
    let body = operation["requestBody"]["content"].as_object().and_then(|content| {
        content.values().next().unwrap()["examples"].get(name).map(|example| text_of(&example["value"]))
    });
    Step {
        name: format!("{}.{name}", operation["operationId"].as_str().unwrap()),
        taken,
        place: String::new(),
        method: method.to_uppercase().parse().unwrap(),
        path,
        headers,
        body: body.unwrap_or_default(),
        status: 0,
        media: None,
        content: Value::Null,
        answer: Value::Null,
    }
}

/// The status, the content type, and the body: of an endless stream as much as `wanted` has.
pub(super) async fn perform(server: &Server, step: &Step) -> (u16, Option<String>, String) {
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let mut request = Request::builder().method(step.method.clone()).uri(&step.path);
    request = request.header("host", server.address().to_string());
    for (name, value) in &step.headers {
        request = request.header(name, value);
    }
    if step.status == 101 {
        for (name, value) in [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ] {
            request = request.header(name, value);
        }
    }
    let request = request.body(Full::new(Bytes::from(step.body.clone()))).unwrap();
    let response = in_time(&step.place, sender.send_request(request)).await.unwrap();
    let status = response.status().as_u16();
    let media = response.headers().get("content-type").map(|media| {
        let media = media.to_str().unwrap();
        media.split(';').next().unwrap().to_owned()
    });
    let is_endless = media.as_deref() == Some("text/event-stream");
    let events = step.answer.as_str().map_or(0, |text| text.matches("\n\n").count());
    let mut body = response.into_body();
    let mut text = String::new();
    while status != 101 && !(is_endless && text.matches("\n\n").count() >= events) {
        let Some(frame) = in_time(&step.place, body.frame()).await else { break };
        text.push_str(&String::from_utf8_lossy(frame.unwrap().data_ref().unwrap()));
    }
    (status, media, text)
}

/// The events of a stream: id, kind and data.
fn events(text: &str) -> Vec<(bool, String, Value)> {
    let field =
        |event: &str, name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    let events = text.split_terminator("\n\n").map(|event| {
        let kind = field(event, "event: ").unwrap_or_else(|| "message".into());
        let data = serde_json::from_str(&field(event, "data: ").unwrap()).unwrap();
        (field(event, "id: ").is_some(), kind, data)
    });
    events.collect()
}

/// The pairs of an answer as shown and as said, with the schema of each.
pub(super) fn parts(step: &Step, said: &str) -> Vec<(Value, Value, Value)> {
    let lines =
        |text: &str| -> Vec<Value> { text.lines().map(|line| serde_json::from_str(line).unwrap()).collect() };
    match step.media.as_deref() {
        Some("application/json" | "application/problem+json") => {
            vec![(step.content["schema"].clone(), step.answer.clone(), serde_json::from_str(said).unwrap())]
        }
        Some("application/x-ndjson") => {
            let (shown, said) = (lines(step.answer.as_str().unwrap()), lines(said));
            assert_eq!(shown.len(), said.len(), "{}: {said:?}", step.place);
            let schema = &step.content["x-line-schema"];
            shown.into_iter().zip(said).map(|(shown, said)| (schema.clone(), shown, said)).collect()
        }
        Some("text/event-stream") => {
            let (shown, said) = (events(step.answer.as_str().unwrap()), events(said));
            assert_eq!(shown.len(), said.len(), "{}: {said:?}", step.place);
            let pair = |(a, b): ((bool, String, Value), (bool, String, Value))| {
                assert_eq!((a.0, &a.1), (b.0, &b.1), "{}: {b:?}", step.place);
                (step.content["x-event-schemas"][&a.1].clone(), a.2, b.2)
            };
            shown.into_iter().zip(said).map(pair).collect()
        }
        Some(_) => {
            assert!(!said.is_empty(), "{}: an empty text", step.place);
            Vec::new()
        }
        None => {
            assert_eq!(said, "", "{}", step.place);
            Vec::new()
        }
    }
}

/// Whether an answer is shown as `{}` because it is the document itself.
fn is_document(step: &Step) -> bool {
    step.path.ends_with("api.json")
}

#[tokio::test]
async fn every_example_of_openapi_happens() {
    let server = Server::start();
    let with_tokens = Setup::new().with_tokens().set("auth.accounts=true").start();
    let document = server.get("/openapi.json").await.json();
    let schemas = Schemas { document: &document, unknown: Unknown::Refused };
    let mut answers: BTreeMap<String, Value> = BTreeMap::new();
    // As shown, and this server's: it is a part of receipts.
    let mut epoch: Option<(String, String)> = None;
    for mut step in steps(&document) {
        if let Some((shown, own)) = &epoch {
            step.body = step.body.replace(shown, own);
            step.answer = serde_json::from_str(&step.answer.to_string().replace(shown, own)).unwrap();
        }
        if step.needs_token() {
            step.headers.push(("authorization".into(), format!("Bearer {}", admin())));
        }
        for (shown, source) in &step.taken {
            let (name, pointer) = source.split_once('#').unwrap();
            let value = answers.get(name).and_then(|answer| answer.pointer(pointer));
            let value = value.unwrap_or_else(|| panic!("{}: there is no {source}", step.place));
            step.path = step.path.replace(shown, &text_of(value));
        }
        let server = if step.needs_token() { &with_tokens } else { &server };
        let (status, media, said) = perform(server, &step).await;
        assert_eq!((status, &media), (step.status, &step.media), "{}: {said}", step.place);
        for (schema, shown, said) in parts(&step, &said) {
            assert_eq!(schemas.faults(&schema, &said), [""; 0], "{}: {said}", step.place);
            if !is_document(&step) {
                assert_eq!(schemas.faults(&schema, &shown), [""; 0], "{}, as shown", step.place);
                assert_eq!(differences(&shown, &said), [""; 0], "{}: {said}", step.place);
                if let (None, Some(shown), Some(own)) =
                    (&epoch, shown["epoch"].as_str(), said["epoch"].as_str())
                {
                    epoch = Some((shown.to_owned(), own.to_owned()));
                }
            }
        }
        answers.insert(step.name.clone(), serde_json::from_str(&said).unwrap_or_default());
        if (200..300).contains(&step.status) {
            check_request(&document, &step);
        }
    }
}

/// What succeeds is what the schema of the request describes.
fn check_request(document: &Value, step: &Step) {
    let template = step.place.split([' ', ',']).nth(1).unwrap();
    let operation = &document["paths"][template][step.method.as_str().to_lowercase()];
    let schemas = Schemas { document, unknown: Unknown::Allowed };
    let Some(content) = operation["requestBody"]["content"].as_object() else { return };
    let (media, content) = content.iter().next().unwrap();
    if media == "application/json" {
        let faults = schemas.faults(&content["schema"], &serde_json::from_str(&step.body).unwrap());
        assert_eq!(faults, [""; 0], "{}: its request", step.place);
    }
}

#[tokio::test]
async fn openapi_is_well_formed() {
    let server = Server::start();
    let document = server.get("/openapi.json").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    check_references(&document);
    let tags: HashSet<&Value> = document["tags"].as_array().unwrap().iter().map(|tag| &tag["name"]).collect();
    let mut ids = HashSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let place = format!("{method} {path}");
            assert!(ids.insert(operation["operationId"].clone()), "{place}: its id is taken");
            assert!(tags.contains(&operation["tags"][0]), "{place}: no such tag");
            assert!(!operation["summary"].as_str().unwrap().is_empty(), "{place}: no summary");
            let named: HashSet<&str> =
                path.split('/').filter_map(|s| s.strip_prefix('{')?.strip_suffix('}')).collect();
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let in_path: HashSet<&str> = parameters
                .iter()
                .filter(|parameter| parameter["in"] == "path" && parameter["required"] == true)
                .map(|parameter| parameter["name"].as_str().unwrap())
                .collect();
            assert_eq!(named, in_path, "{place}");
            for parameter in &parameters {
                assert!(!parameter["description"].as_str().unwrap().is_empty(), "{place}: {parameter}");
            }
            let statuses: HashSet<u16> = steps(&document)
                .iter()
                .filter(|step| step.place.starts_with(&format!("{place},")))
                .map(|step| step.status)
                .collect();
            // What is open while the examples run has a number that none of them can know.
            let is_shown = operation["operationId"] == "closeConnection";
            assert!(is_shown || statuses.iter().any(|status| *status < 300), "{place}: no example succeeds");
            let takes_something = !parameters.is_empty() || operation.get("requestBody").is_some();
            let is_refused = statuses.iter().any(|status| (400..500).contains(status));
            assert!(is_refused || !takes_something, "{place}: no example is refused");
        }
    }
}

/// A method no path takes is answered with those that it does: the same as in the document.
#[tokio::test]
async fn paths_take_the_documented_methods() {
    let server = Server::start();
    let document = server.get("/openapi.json").await.json();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let place = path.replace(['{', '}'], "");
        let answer = server.http().await.request(Method::PATCH, &place, &[], "").await;
        answer.problem(405, "method_not_allowed");
        let mut allowed: Vec<String> =
            answer.header("allow").unwrap().split(", ").map(str::to_lowercase).collect();
        // It is as GET, and said once for all.
        allowed.retain(|method| method != "head");
        allowed.sort_unstable();
        let mut documented: Vec<&String> = methods.as_object().unwrap().keys().collect();
        documented.sort_unstable();
        assert_eq!(allowed.iter().collect::<Vec<_>>(), documented, "{path}");
    }
}

#[tokio::test]
async fn documents_tell_this_server_s_limits() {
    let server = crate::harness::Setup::new().set("limits.page_messages=70").start();
    let document = server.get("/openapi.json").await.json();
    let parameters = document["paths"]["/v1/rooms/{room}/messages"]["get"]["parameters"].as_array().unwrap();
    let limit = parameters.iter().find(|parameter| parameter["name"] == "limit").unwrap();
    assert_eq!((&limit["schema"]["maximum"], &limit["schema"]["default"]), (&70.into(), &50.into()));
    // Every code a problem may have, and no other.
    let codes =
        document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"].as_array().unwrap();
    assert!(codes.contains(&"overloaded".into()) && codes.len() > 10, "{codes:?}");
}

/// What the last table of docs/api.md lists, no more and no less.
#[tokio::test]
async fn the_page_of_the_api_lists_every_operation() {
    let server = Server::start();
    let document = server.http().await.get("/openapi.json").await.json();
    let mut wanted = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let summary = operation["summary"].as_str().unwrap();
            wanted.push(format!("| `{} {path}` | {summary} |", method.to_uppercase()));
        }
    }
    wanted.retain(|row| !row.starts_with("| `HEAD "));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (_, table) = page.split_once("\n## All operations\n").unwrap();
    let mut listed: Vec<String> = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.splitn(4, '|').take(3).collect::<Vec<_>>().join("|") + "|")
        .collect();
    wanted.sort();
    listed.sort();
    assert_eq!(listed, wanted);
}
