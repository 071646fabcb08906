//! The table of endpoints as an OpenAPI 3.1 document.
//!
//! Examples of a request and of its answer have the same name. `x-step` numbers them all in the order in which they
//! work one after another on a fresh server; OpenAPI itself gives operations and examples no order.

use std::collections::BTreeMap;

use hubbub_core::ErrorCode;
use hubbub_core::limits::Limits;
use serde_json::{Map, Value, json};

use super::examples::{Example, examples};
use super::operation::{Content, Media, Operation, Parameter, path_parameter};
use super::operations;
use super::schemas::{self, schema};
use crate::http::endpoint::Endpoint;
use crate::http::endpoints::ENDPOINTS;

const ABOUT: &str = "A self-hosted durable messaging server: an acknowledged message is on disk, is delivered once, in \
    order, and anybody who reconnects continues without a gap. Times are RFC 3339 in UTC, on input also decimal \
    seconds since 1970. Lists page by `next`. Errors are RFC 9457 problems with a stable `code`; 429 and 503 carry \
    `Retry-After`. The sockets are described in `/asyncapi.json`.";

/// The whole document.
pub(super) fn document(limits: &Limits) -> Value {
    let mut paths = Map::new();
    let examples = examples();
    for endpoint in ENDPOINTS {
        let Some(document) = endpoint.document else { continue };
        let described = describe(endpoint, &document(limits), &examples);
        let path = paths.entry(endpoint.template.replace("{*", "{")).or_insert_with(|| json!({}));
        if let Some(methods) = path.as_object_mut() {
            methods.insert(endpoint.method.as_str().to_lowercase(), described);
        }
    }
    let tags = operations::TAGS.iter().map(|(name, about)| json!({"name": name, "description": about}));
    json!({
        "openapi": "3.1.0",
        "info": super::info("Hubbub over HTTP", ABOUT),
        "servers": [{"url": "/"}],
        "tags": tags.collect::<Vec<_>>(),
        "paths": paths,
        "components": {"schemas": schemas::all(limits)},
    })
}

fn describe(endpoint: &Endpoint, operation: &Operation, examples: &[Example]) -> Value {
    let steps: Vec<(u64, &Example)> =
        (1..).zip(examples).filter(|(_, example)| example.operation == operation.id).collect();
    let in_path = endpoint.parameters().map(path_parameter).collect::<Vec<_>>();
    let parameters = in_path.iter().chain(&operation.parameters);
    let parameters: Vec<Value> = parameters.map(|parameter| describe_parameter(parameter, &steps)).collect();
    let mut described = json!({
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "responses": answers(operation, &steps),
        "x-step": steps.first().map(|(step, _)| step),
    });
    let Some(members) = described.as_object_mut() else { return described };
    if !operation.about.is_empty() {
        members.insert("description".into(), operation.about.clone().into());
    }
    if !parameters.is_empty() {
        members.insert("parameters".into(), parameters.into());
    }
    if let Some(body) = &operation.body {
        let examples = steps.iter().filter_map(|(step, example)| {
            Some((example.name.clone(), example_object(*step, body, example.body.as_ref()?)))
        });
        let mut body = describe_content(body, examples.collect());
        if let Some(body) = body.as_object_mut() {
            body.insert("required".into(), true.into());
        }
        members.insert("requestBody".into(), body);
    }
    described
}

fn describe_parameter(parameter: &Parameter, steps: &[(u64, &Example)]) -> Value {
    let examples: Map<String, Value> = steps
        .iter()
        .filter_map(|(step, example)| {
            let mut shown = json!({"value": example.parameters.get(parameter.name)?, "x-step": step});
            if let (Some(members), Some(source)) = (shown.as_object_mut(), example.from.get(parameter.name)) {
                members.insert("x-from".into(), source.clone());
            }
            Some((example.name.clone(), shown))
        })
        .collect();
    let mut described = json!({
        "name": parameter.name,
        "in": parameter.location,
        "required": parameter.location == "path",
        "description": parameter.about,
        "schema": parameter.schema,
    });
    if let Some(members) = described.as_object_mut().filter(|_| !examples.is_empty()) {
        members.insert("examples".into(), examples.into());
    }
    described
}

/// Every status with its content; the errors grouped by theirs.
fn answers(operation: &Operation, steps: &[(u64, &Example)]) -> Value {
    let mut answers = Map::new();
    let examples_of = |status: u16, content: &Content| -> Map<String, Value> {
        let mine = steps.iter().filter(|(_, example)| example.status == status);
        mine.map(|(step, e)| (e.name.clone(), example_object(*step, content, &e.answer))).collect()
    };
    for (status, content) in &operation.answers {
        let described = describe_content(content, examples_of(*status, content));
        answers.insert(status.to_string(), described);
    }
    let mut by_status: BTreeMap<u16, Vec<ErrorCode>> = BTreeMap::new();
    for code in &operation.errors {
        by_status.entry(code.http_status()).or_default().push(*code);
    }
    let problem = Content { media: Media::Json(schema("Problem")), about: "" };
    for (status, codes) in by_status {
        // The health checks answer 503 with a body of their own.
        if answers.contains_key(&status.to_string()) {
            continue;
        }
        let about: Vec<String> =
            codes.iter().map(|code| format!("`{}`: {}", code.as_str(), code.about())).collect();
        let described = json!({
            "description": about.join("\n\n"),
            "content": {"application/problem+json": {
                "schema": schema("Problem"), "examples": examples_of(status, &problem),
            }},
            "x-codes": codes.iter().map(|code| code.as_str()).collect::<Vec<_>>(),
        });
        answers.insert(status.to_string(), described);
    }
    answers.into()
}

fn describe_content(content: &Content, examples: Map<String, Value>) -> Value {
    let text = json!({"type": "string"});
    // OpenAPI 3.1 has no words for a sequence of values, hence the extensions.
    let (kind, mut described) = match &content.media {
        // The name and step of an answer without a body, so that it can be asked for.
        Media::None => return json!({"description": content.about, "x-examples": examples}),
        Media::Json(schema) => ("application/json", json!({"schema": schema})),
        Media::Lines(schema) => ("application/x-ndjson", json!({"schema": text, "x-line-schema": schema})),
        Media::Events(schemas) => ("text/event-stream", json!({"schema": text, "x-event-schemas": schemas})),
        Media::Other(kind) => (*kind, json!({"schema": text})),
    };
    if let Some(members) = described.as_object_mut() {
        members.insert("examples".into(), examples.into());
    }
    json!({"description": content.about, "content": {kind: described}})
}

/// An Example Object; values of NDJSON become its lines.
fn example_object(step: u64, content: &Content, value: &Value) -> Value {
    let value = match (&content.media, value) {
        (Media::Lines(_), Value::Array(lines)) => {
            lines.iter().map(|line| format!("{line}\n")).collect::<String>().into()
        }
        _ => value.clone(),
    };
    json!({"value": value, "x-step": step})
}
