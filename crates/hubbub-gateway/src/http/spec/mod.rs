//! `/openapi.json`, `/asyncapi.json` and the page at `/docs` that shows them: the API in a form programs can read.
//!
//! The documents are built from tables in the code when somebody first asks: [`operations`] lists what HTTP takes,
//! [`frames`] what sockets say, [`schemas`] the shapes both share. Limits, error codes and versions come from where
//! they are defined.
//!
//! **To add an operation**: write its line in the router (`http/mod.rs`), then an [`Operation`] in the file of its tag
//! under `operations/`, with at least one example that succeeds and, if it takes anything, one that is refused. The
//! examples are a walk: from first to last they work, one after another, on a fresh server. `the_router_is_documented`
//! fails while the two tables differ; the process test `documents_are_true` sends every example to a real server and
//! holds the answer against the example and the schema.

mod asyncapi;
mod conversations;
mod frames;
mod openapi;
mod operation;
mod operations;
#[cfg(test)]
mod router_tests;
mod schemas;
mod values;

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use serde_json::Value;

use super::{Answer, respond};
use crate::Gateway;
use operation::Operation;

/// The documents of one server, each built when it is first asked for.
#[derive(Default)]
pub struct Documents {
    openapi: OnceLock<Bytes>,
    asyncapi: OnceLock<Bytes>,
}

impl fmt::Debug for Documents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Documents")
    }
}

/// `GET /openapi.json`.
pub(super) fn openapi(gateway: &Arc<Gateway>) -> Answer {
    let build = || openapi::document(&gateway.limits).to_string().into();
    Ok(document(gateway.documents.openapi.get_or_init(build)))
}

/// `GET /asyncapi.json`.
pub(super) fn asyncapi(gateway: &Arc<Gateway>) -> Answer {
    let build = || asyncapi::document(&gateway.limits).to_string().into();
    Ok(document(gateway.documents.asyncapi.get_or_init(build)))
}

fn document(content: &Bytes) -> hyper::Response<super::Body> {
    let mut response = respond(StatusCode::OK, "application/json", content.clone());
    // It changes with the server's version and settings.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// What both documents say about themselves.
fn info(title: &str, about: &str) -> Value {
    serde_json::json!({
        "title": title,
        "version": env!("CARGO_PKG_VERSION"),
        "description": about,
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    })
}
