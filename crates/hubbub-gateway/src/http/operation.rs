//! What `/openapi.json` says about one endpoint: what it takes and what it answers. `examples.jsonl` has examples of both.

use hubbub_core::ErrorCode;
use hubbub_core::limits::Limits;
use hyper::Method;
use serde_json::{Value, json};

use super::endpoint::Endpoint;
use super::endpoints::is_optional;
use super::permission::Permission;
use super::query::{LIMIT_DEFAULT, LIMIT_MAX};
use super::spec::schemas::{id, limit, one_of, schema, time};
use super::{consistency, history};

pub(super) type Text = &'static str;
/// A schema, which may depend on the limits.
type SchemaOf = fn(&Limits) -> Value;

/// What OpenAPI calls an operation: an endpoint without its method and path.
pub(super) struct Operation {
    /// Unique, for generated clients: `sendMessage`. Empty = it is a page and not documented.
    pub(super) id: Text,
    pub(super) summary: Text,
    /// What a caller has to know beyond it, in Markdown, with names of limits in braces.
    pub(super) about: Text,
    /// Those of the query and the header; the template of the endpoint names those of the path.
    pub(super) parameters: &'static [&'static [Parameter]],
    pub(super) body: Option<Media>,
    pub(super) needs_body: bool,
    /// Status, content and description.
    pub(super) answers: &'static [(u16, Media, Text)],
    /// Headers of these answers.
    pub(super) headers: &'static [Parameter],
    pub(super) errors: &'static [ErrorCode],
    /// Whether the errors of every operation that reads, or writes, come on top.
    uses_store: bool,
}

/// Of an endpoint that is not part of the API.
pub(super) const UNDOCUMENTED: Operation = Operation {
    id: "",
    summary: "",
    about: "",
    parameters: &[],
    body: None,
    needs_body: false,
    answers: &[],
    headers: &[],
    errors: &[],
    uses_store: false,
};

/// Something in the path, the query or the header.
pub(super) struct Parameter {
    pub(super) name: Text,
    /// `path`, `query` or `header`.
    pub(super) location: Text,
    pub(super) schema: SchemaOf,
    pub(super) about: Text,
}

/// A body, of a request or of an answer. Schemas are named.
#[derive(Debug, Clone, Copy)]
pub(super) enum Media {
    Nothing,
    Json(Text),
    /// One JSON value of one of these schemas.
    AnyOf(&'static [Text]),
    AnyObject,
    /// One JSON value a line, each of this schema.
    Lines(Text),
    /// Server-Sent Events: the schema of each event's data by the event's name.
    Events(&'static [(Text, Text)]),
    /// Anything else, of this type.
    Other(Text),
}

pub(super) const OCTETS: Media = Media::Other("application/octet-stream");

/// What every operation can be answered with, but for those by which the server is watched.
const ANSWERING: &[ErrorCode] =
    &[ErrorCode::Malformed, ErrorCode::TooManyRequests, ErrorCode::Overloaded, ErrorCode::Unavailable];

/// What every operation that reads the store can be answered with.
const READING: &[ErrorCode] = &[ErrorCode::Unreadable, ErrorCode::Internal];

/// What every operation that needs a token can be answered with.
const REFUSALS: &[ErrorCode] = &[ErrorCode::Unauthorized, ErrorCode::Forbidden];

/// What every operation that writes can be answered with.
const WRITING: &[ErrorCode] = &[
    ErrorCode::Forbidden,
    ErrorCode::RequestTimeout,
    ErrorCode::TooLarge,
    ErrorCode::DiskFull,
    ErrorCode::Unreadable,
    ErrorCode::ShuttingDown,
    ErrorCode::Unconfirmed,
    ErrorCode::Internal,
];

pub(super) const AFTER: Parameter =
    query("after", id, "Those behind this one: the `next` of the page before.");
pub(super) const LIMIT: Parameter =
    query("limit", |_| limit(1, LIMIT_DEFAULT, LIMIT_MAX), "Most items of the page.");
pub(super) const PAGE: &[Parameter] = &[AFTER, LIMIT];
pub(super) const FROM_TO: &[Parameter] = &[
    query("from", time, "Received at this time or later."),
    query("to", time, "Received before this time."),
];
/// `limit` of a page of messages.
pub(super) const HISTORY_LIMIT: Parameter = query(
    "limit",
    |limits| limit(1, history::LIMIT_DEFAULT.min(limits.page_messages), limits.page_messages),
    "Most messages of the page.",
);
/// Of a read that a replica may answer; anything else in this header is `malformed`.
pub(super) const REPLICATED: &[Parameter] = &[header(
    consistency::HEADER,
    |_| one_of(&[consistency::STRONG]),
    "Asks the primary database; without it a replica that holds as much may answer.",
)];

pub(super) const fn query(name: Text, schema: SchemaOf, about: Text) -> Parameter {
    Parameter { name, location: "query", schema, about }
}

pub(super) const fn header(name: Text, schema: SchemaOf, about: Text) -> Parameter {
    Parameter { name, location: "header", schema, about }
}

impl Endpoint {
    pub(super) const fn named(mut self, id: Text, summary: Text) -> Self {
        self.document.id = id;
        self.document.summary = summary;
        self
    }

    pub(super) const fn about(mut self, about: Text) -> Self {
        self.document.about = about;
        self
    }

    pub(super) const fn parameters(mut self, groups: &'static [&'static [Parameter]]) -> Self {
        self.document.parameters = groups;
        self
    }

    pub(super) const fn takes(mut self, body: Media) -> Self {
        self.document.needs_body = true;
        self.may_take(body)
    }

    /// A body that may be left out.
    pub(super) const fn may_take(mut self, body: Media) -> Self {
        self.document.body = Some(body);
        self
    }

    /// Headers of all answers that refuse nothing.
    pub(super) const fn with_headers(mut self, headers: &'static [Parameter]) -> Self {
        self.document.headers = headers;
        self
    }

    pub(super) const fn gives(mut self, answers: &'static [(u16, Media, Text)]) -> Self {
        self.document.answers = answers;
        self
    }

    /// Besides what every operation that reads, or writes, can be answered with.
    pub(super) const fn refuses(mut self, errors: &'static [ErrorCode]) -> Self {
        self.document.uses_store = true;
        self.refuses_only(errors)
    }

    pub(super) const fn refuses_only(mut self, errors: &'static [ErrorCode]) -> Self {
        self.document.errors = errors;
        self
    }

    pub(super) fn errors(&'static self) -> Vec<ErrorCode> {
        let common = if self.method == Method::GET { READING } else { WRITING };
        let groups: [(bool, &[ErrorCode]); 5] = [
            (true, self.document.errors),
            (self.document.uses_store, common),
            (!self.is_for_monitoring(), ANSWERING),
            (self.permission != Permission::Open, REFUSALS),
            (is_optional(self), &[ErrorCode::NotSupported]),
        ];
        let mut codes = Vec::new();
        for code in groups.into_iter().filter(|(has, _)| *has).flat_map(|(_, codes)| codes) {
            if !codes.contains(code) {
                codes.push(*code);
            }
        }
        codes
    }
}

pub(super) fn path_parameter(name: Text) -> Parameter {
    let about = match name {
        "room" => "The room's id.",
        "user" => "The user's id.",
        "queue" => "The queue's name.",
        "client" => "The client's name.",
        "id" => "The message's id.",
        "backup" => "The name of the backup; the client that begins it chooses it.",
        "keyId" => "The id of the API key.",
        "loginId" => "The id of the login.",
        "connection" => "The `connectionId` of the list.",
        "key" => "The key: 1 to 512 bytes, percent-encoded; slashes need not be.",
        "file" => "The file's name as listed, with `/` written as `%2F`.",
        _ => "",
    };
    let schema: SchemaOf = match name {
        "key" => |_| schema("Key"),
        "file" => |_| json!({"type": "string"}),
        _ => id,
    };
    Parameter { name, location: "path", schema, about }
}

/// Who calls. Where `user` is a parameter of the path or the query, only the header is shown.
pub(super) fn caller_parameters(endpoint: &Endpoint) -> Vec<Parameter> {
    let parameters = &endpoint.document.parameters;
    let is_in_query = parameters.iter().copied().flatten().any(|parameter| parameter.name == "user");
    let is_in_path = endpoint.path_parameters().any(|name| name == "user");
    let by_header = |about| header("Hubbub-User", id, about);
    if is_in_query {
        vec![by_header("Who calls. Without it the administrator.")]
    } else if is_in_path {
        vec![by_header("Who calls; or `?user=`. Without it, the administrator.")]
    } else {
        vec![
            by_header("Who calls. Without it, and without `user`, the administrator."),
            query("user", id, "The same, for those who cannot set headers."),
        ]
    }
}
