//! `/openapi.json`, `/asyncapi.json` and the page at `/docs` that shows them: the API in a form programs can read.
//!
//! The documents are built from the code when somebody first asks: the table of endpoints names what HTTP takes, with its
//! documentation; [`frames`] lists what sockets say, [`schemas`] the schemas both share. Limits, error
//! codes and versions come from where they are defined. The process test `documents_are_true` sends every example to a
//! real server and compares the answer with the example and the schema.

mod asyncapi;
mod examples;
mod frames;
mod openapi;
pub(super) mod schemas;

use std::sync::OnceLock;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use serde_json::Value;

use super::endpoint::Call;
use super::{Answer, IsKept, respond};

/// The documents of one server, each built when it is first asked for.
#[derive(Debug, Default)]
pub struct Documents {
    openapi: OnceLock<Bytes>,
    asyncapi: OnceLock<Bytes>,
}

pub(super) async fn openapi(call: Call) -> Answer {
    let gateway = call.gateway();
    let build = || openapi::document(&gateway.limits).to_string().into();
    Ok(document(gateway.documents.openapi.get_or_init(build)))
}

pub(super) async fn asyncapi(call: Call) -> Answer {
    let gateway = call.gateway();
    let build = || asyncapi::document(&gateway.limits).to_string().into();
    Ok(document(gateway.documents.asyncapi.get_or_init(build)))
}

fn document(content: &Bytes) -> hyper::Response<super::Body> {
    let mut response = respond(StatusCode::OK, "application/json", content.clone());
    response.extensions_mut().insert(IsKept);
    // It changes with the server's version and settings.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn info(title: &str, about: &str) -> Value {
    serde_json::json!({
        "title": title,
        "version": env!("CARGO_PKG_VERSION"),
        "description": about,
        // The identifier of OpenAPI is unknown to AsyncAPI.
        "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
    })
}
