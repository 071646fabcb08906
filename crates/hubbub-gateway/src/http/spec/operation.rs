//! The documentation of one endpoint: what it takes and what it answers. `examples.jsonl` has examples of both.

use hubbub_core::ErrorCode;
use serde_json::{Value, json};

use super::schemas::{id, one_of, schema};
use crate::http::consistency;

/// What OpenAPI calls an operation: an endpoint without its method and path.
pub(in crate::http) struct Operation {
    /// Unique, for generated clients: `sendMessage`.
    pub(super) id: &'static str,
    pub(super) tag: &'static str,
    /// One line.
    pub(super) summary: &'static str,
    /// What a caller has to know beyond it, in Markdown; may be empty.
    pub(super) about: String,
    /// Those of the query and the header; the template of the endpoint names those of the path.
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<Content>,
    pub(super) answers: Vec<(u16, Content)>,
    pub(super) errors: Vec<ErrorCode>,
}

/// Something in the path, the query or the header.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    /// `path`, `query` or `header`.
    pub(super) location: &'static str,
    pub(super) schema: Value,
    pub(super) about: String,
}

/// A body, of a request or of an answer.
#[derive(Clone)]
pub(super) struct Content {
    pub(super) media: Media,
    pub(super) about: &'static str,
}

/// The kinds of bodies there are.
#[derive(Clone)]
pub(super) enum Media {
    /// Nothing.
    None,
    /// One JSON value.
    Json(Value),
    /// One JSON value a line, each of this schema.
    Lines(Value),
    /// Server-Sent Events; an object of schemas by the event's name.
    Events(Value),
    /// Anything else, of this type.
    Other(&'static str),
}

/// What every operation that reads the store can meet.
pub(super) const READING: &[ErrorCode] = &[ErrorCode::Unavailable, ErrorCode::Internal];

/// What every operation that writes can meet.
pub(super) const WRITING: &[ErrorCode] = &[
    ErrorCode::Forbidden,
    ErrorCode::RequestTimeout,
    ErrorCode::TooLarge,
    ErrorCode::Overloaded,
    ErrorCode::DiskFull,
    ErrorCode::Unavailable,
    ErrorCode::ShuttingDown,
    ErrorCode::Unconfirmed,
    ErrorCode::Internal,
];

impl Operation {
    pub(super) fn new(id: &'static str, tag: &'static str, summary: &'static str) -> Self {
        Self {
            id,
            tag,
            summary,
            about: String::new(),
            parameters: Vec::new(),
            body: None,
            answers: Vec::new(),
            errors: Vec::new(),
        }
    }

    pub(super) fn about(mut self, about: impl Into<String>) -> Self {
        self.about = about.into();
        self
    }

    pub(super) fn query(self, name: &'static str, schema: Value, about: impl Into<String>) -> Self {
        self.parameter("query", name, schema, about)
    }

    pub(super) fn header(self, name: &'static str, schema: Value, about: impl Into<String>) -> Self {
        self.parameter("header", name, schema, about)
    }

    fn parameter(
        mut self,
        location: &'static str,
        name: &'static str,
        schema: Value,
        about: impl Into<String>,
    ) -> Self {
        self.parameters.push(Parameter { name, location, schema, about: about.into() });
        self
    }

    /// Takes the caller from the header or the query.
    pub(super) fn caller(self) -> Self {
        self.header("Hubbub-User", id(), "Who calls. Without it, and without `user`, the administrator.")
            .query("user", id(), "The same, for those who cannot set headers.")
    }

    /// The same where the path has a `user` of its own.
    pub(super) fn caller_by_header(self) -> Self {
        self.header("Hubbub-User", id(), "Who calls; or `?user=`. Without it, the administrator.")
    }

    /// Reads what a replica may answer.
    pub(super) fn replicated(self) -> Self {
        let about = "Asks the primary database; without it a replica that holds as much may answer.";
        self.header(consistency::HEADER, one_of(&[consistency::STRONG]), about)
            .refuses(&[ErrorCode::Malformed])
    }

    pub(super) fn takes(mut self, media: Media, about: &'static str) -> Self {
        self.body = Some(Content { media, about });
        self
    }

    pub(super) fn gives(mut self, status: u16, media: Media, about: &'static str) -> Self {
        self.answers.push((status, Content { media, about }));
        self
    }

    pub(super) fn refuses(mut self, errors: &[ErrorCode]) -> Self {
        self.errors.extend_from_slice(errors);
        self
    }
}

/// The documentation of a parameter of a path.
pub(super) fn path_parameter(name: &'static str) -> Parameter {
    let about = match name {
        "room" => "The room's id.",
        "user" => "The user's id.",
        "queue" => "The queue's name.",
        "client" => "The client's name.",
        "id" => "The message's id.",
        "backup" => "What the backup is called; whoever begins it chooses.",
        "key" => "The key: 1 to 512 bytes, percent-encoded; slashes need not be.",
        "file" => "The file's name as listed, with `/` written as `%2F`.",
        _ => "",
    };
    let schema = match name {
        "key" => schema("Key"),
        "file" => json!({"type": "string"}),
        _ => id(),
    };
    Parameter { name, location: "path", schema, about: about.to_owned() }
}
