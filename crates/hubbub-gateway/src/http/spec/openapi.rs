//! The table of endpoints as an OpenAPI 3.1 document.
//!
//! Examples of a request and of its answer have the same name. `x-step` numbers them all in the order in which they
//! work one after another on a fresh server; OpenAPI itself gives operations and examples no order.

use std::collections::BTreeMap;

use hubbub_core::ErrorCode;
use hubbub_core::limits::Limits;
use serde_json::{Map, Value, json};

use super::examples::{Example, examples};
use super::schemas::{self, schema, with_limits};
use crate::auth::request_token::COOKIE_NAME;
use crate::http::endpoint::Endpoint;
use crate::http::endpoints::{TAGS, Tag};
use crate::http::operation::{Media, Parameter, caller_parameters, header, path_parameter};
use crate::http::permission::Permission;

const ABOUT: &str = "A self-hosted durable messaging server: an acknowledged message is on disk, is delivered once, in \
    order, and anybody who reconnects continues without a gap. Times are RFC 3339 in UTC, on input also decimal \
    seconds since 1970. Lists page by `next`. `HEAD` is answered as `GET`, without the body, but where that begins a \
    stream. Errors are RFC 9457 problems with a stable `code`; 429 and 503 carry `Retry-After`. The sockets are described \
    in `/asyncapi.json`.";

pub(super) fn document(limits: &Limits) -> Value {
    let mut paths = Map::new();
    let examples = examples();
    for (tag, endpoint) in TAGS.iter().flat_map(|tag| tag.endpoints().map(move |endpoint| (tag, endpoint))) {
        let described = describe(tag, endpoint, limits, &examples);
        let path = paths.entry(endpoint.template.replace("{*", "{")).or_insert_with(|| json!({}));
        if let Some(methods) = path.as_object_mut() {
            methods.insert(endpoint.method.as_str().to_lowercase(), described);
        }
    }
    let tags = TAGS.iter().map(|tag| json!({"name": tag.name, "description": tag.about}));
    json!({
        "openapi": "3.1.0",
        "info": super::info("Hubbub over HTTP", ABOUT),
        "servers": [{"url": "/"}],
        "tags": tags.collect::<Vec<_>>(),
        "paths": paths,
        "components": {"schemas": schemas::all(limits), "securitySchemes": security_schemes()},
    })
}

fn describe(tag: &Tag, endpoint: &'static Endpoint, limits: &Limits, examples: &[Example]) -> Value {
    let operation = &endpoint.document;
    let steps: Vec<(u64, &Example)> =
        (1..).zip(examples).filter(|(_, example)| example.operation == operation.id).collect();
    let in_path = endpoint.path_parameters().map(path_parameter);
    let takes_names = tag.has_callers && endpoint.permission.takes_names();
    let caller = if takes_names { caller_parameters(endpoint) } else { Vec::new() };
    let in_path: Vec<Parameter> = in_path.chain(caller).collect();
    let parameters = in_path.iter().chain(operation.parameters.iter().copied().flatten());
    let parameters: Vec<Value> =
        parameters.map(|parameter| describe_parameter(parameter, limits, &steps)).collect();
    let mut described = json!({
        "operationId": operation.id,
        "tags": [tag.name],
        "summary": operation.summary,
        "responses": answers(endpoint, limits, &steps),
        "security": security(endpoint),
        "x-permission": endpoint.permission.about(),
        "x-step": steps.first().map(|(step, _)| step),
    });
    let Some(members) = described.as_object_mut() else { return described };
    if !operation.about.is_empty() {
        members.insert("description".into(), with_limits(operation.about, limits).into());
    }
    if !parameters.is_empty() {
        members.insert("parameters".into(), parameters.into());
    }
    if let Some(body) = operation.body {
        let examples = steps.iter().filter_map(|(step, example)| {
            Some((example.name.clone(), example_object(*step, body, example.body.as_ref()?)))
        });
        let mut body = describe_content(body, "", examples.collect());
        if let Some(body) = body.as_object_mut() {
            body.insert("required".into(), operation.needs_body.into());
        }
        members.insert("requestBody".into(), body);
    }
    described
}

/// How a caller proves who it is, where the server asks for it.
fn security_schemes() -> Value {
    json!({
        "bearer": {
            "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
            "description": "A JSON Web Token or an API key. A server without authentication ignores it.",
        },
        "session": {
            "type": "apiKey", "in": "cookie", "name": COOKIE_NAME,
            "description": "What `POST /v1/auth/session` sets; for event streams.",
        },
    })
}

/// The empty requirement stands for servers without authentication.
fn security(endpoint: &Endpoint) -> Value {
    let is_stream = endpoint.document.answers.iter().any(|(_, media, _)| matches!(media, Media::Events(_)));
    match endpoint.permission {
        Permission::Open => json!([]),
        _ if is_stream => json!([{"bearer": []}, {"session": []}, {}]),
        _ => json!([{"bearer": []}, {}]),
    }
}

fn describe_parameter(parameter: &Parameter, limits: &Limits, steps: &[(u64, &Example)]) -> Value {
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
        "schema": (parameter.schema)(limits),
    });
    if let Some(members) = described.as_object_mut().filter(|_| !examples.is_empty()) {
        members.insert("examples".into(), examples.into());
    }
    described
}

/// Every status with its content; the errors grouped by theirs.
fn answers(endpoint: &'static Endpoint, limits: &Limits, steps: &[(u64, &Example)]) -> Value {
    let mut answers = Map::new();
    let examples_of = |status: u16, media: Media| -> Map<String, Value> {
        let mine = steps.iter().filter(|(_, example)| example.status == status);
        mine.map(|(step, e)| (e.name.clone(), example_object(*step, media, &e.answer))).collect()
    };
    for (status, media, about) in endpoint.document.answers {
        let mut described = describe_content(*media, about, examples_of(*status, *media));
        add_headers(&mut described, endpoint.document.headers, limits);
        answers.insert(status.to_string(), described);
    }
    let mut by_status: BTreeMap<u16, Vec<ErrorCode>> = BTreeMap::new();
    for code in endpoint.errors() {
        by_status.entry(code.http_status()).or_default().push(code);
    }
    for (status, codes) in by_status {
        // The health checks answer 503 with a body of their own.
        if answers.contains_key(&status.to_string()) {
            continue;
        }
        let about: Vec<String> =
            codes.iter().map(|code| format!("`{}`: {}", code.as_str(), code.about())).collect();
        let mut described = json!({
            "description": about.join("\n\n"),
            "content": {"application/problem+json": {
                "schema": schema("Problem"), "examples": examples_of(status, Media::Json("Problem")),
            }},
            "x-codes": codes.iter().map(|code| code.as_str()).collect::<Vec<_>>(),
        });
        if matches!(status, 429 | 503) {
            add_headers(&mut described, RETRY_AFTER, limits);
        }
        answers.insert(status.to_string(), described);
    }
    answers.into()
}

/// Of every answer that says to try again.
const RETRY_AFTER: &[Parameter] =
    &[header("Retry-After", |_| json!({"type": "integer"}), "Seconds after which to try again.")];

fn add_headers(answer: &mut Value, headers: &[Parameter], limits: &Limits) {
    let one = |header: &Parameter| {
        let described = json!({"description": header.about, "schema": (header.schema)(limits)});
        (header.name.to_owned(), described)
    };
    let headers: Map<String, Value> = headers.iter().map(one).collect();
    if let Some(members) = answer.as_object_mut().filter(|_| !headers.is_empty()) {
        members.insert("headers".into(), headers.into());
    }
}

fn describe_content(media: Media, about: &str, examples: Map<String, Value>) -> Value {
    // OpenAPI 3.1 has no words for a sequence of values, hence the extensions. Generators of clients make a text of it, and
    // types of what it holds from `contentSchema` of JSON Schema.
    let text_of = |kind: &str, holds: Value| json!({"type": "string", "contentMediaType": kind, "contentSchema": holds});
    let (kind, mut described) = match media {
        // The name and step of an answer without a body, so that it can be asked for.
        Media::Nothing => return json!({"description": about, "x-examples": examples}),
        Media::Json(name) => ("application/json", json!({"schema": schema(name)})),
        Media::AnyOf(names) => {
            let schemas: Vec<Value> = names.iter().map(|name| schema(name)).collect();
            ("application/json", json!({"schema": {"anyOf": schemas}}))
        }
        Media::AnyObject => {
            ("application/json", json!({"schema": {"type": "object", "additionalProperties": true}}))
        }
        Media::Lines(name) => {
            let kind = "application/x-ndjson";
            (kind, json!({"schema": text_of(kind, schema(name)), "x-line-schema": schema(name)}))
        }
        Media::Events(kinds) => {
            let schemas: Map<String, Value> =
                kinds.iter().map(|(event, name)| ((*event).to_owned(), schema(name))).collect();
            let mut data: Vec<Value> = schemas.values().cloned().collect();
            data.sort_by_key(Value::to_string);
            data.dedup();
            let kind = "text/event-stream";
            (kind, json!({"schema": text_of(kind, json!({"anyOf": data})), "x-event-schemas": schemas}))
        }
        Media::Other(kind) => (kind, json!({"schema": {"type": "string"}})),
    };
    if let Some(members) = described.as_object_mut() {
        members.insert("examples".into(), examples.into());
    }
    json!({"description": about, "content": {kind: described}})
}

/// An Example Object; values of NDJSON become its lines.
fn example_object(step: u64, media: Media, value: &Value) -> Value {
    let value = match (media, value) {
        (Media::Lines(_), Value::Array(lines)) => {
            lines.iter().map(|line| format!("{line}\n")).collect::<String>().into()
        }
        _ => value.clone(),
    };
    json!({"value": value, "x-step": step})
}
