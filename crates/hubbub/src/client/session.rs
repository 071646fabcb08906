//! A client command's server, its requests and retries.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Context;
use hubbub_core::Clock;
use hubbub_core::backoff::Backoff;
use hubbub_core::id::write_uuid_v7;
use hyper::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};

use super::connection::{Answer, Connection, TIMEOUT};
use super::pages::Pages;
use super::table::Table;
use super::{print_json, show, text};
use crate::cli::ClientArgs;
use crate::output::{UsageError, notice, print};
use crate::system::{KeyedRandom, SystemClock};

/// The connection of a command, and how it prints.
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) is_json: bool,
    /// Whether the token says who calls.
    pub(super) has_token: bool,
}

impl Session {
    pub(super) fn new(args: &ClientArgs) -> anyhow::Result<Self> {
        let server = args.server()?;
        let has_token = server.has_token();
        Ok(Self { connection: server.connection(), is_json: args.json, has_token })
    }

    /// Sends a POST; the body of its success.
    pub(super) async fn post(&mut self, path: &str, body: String) -> anyhow::Result<Value> {
        self.connection.request(TIMEOUT, Method::POST, path, body).await?.success()
    }

    /// Sends a change without a body. Says what was `done` to what.
    pub(super) async fn change(
        &mut self,
        method: Method,
        path: &str,
        done: (&str, &str),
    ) -> anyhow::Result<()> {
        self.change_with(method, path, String::new(), done).await
    }

    /// Sends a change. Says what was `done` to what.
    pub(super) async fn change_with(
        &mut self,
        method: Method,
        path: &str,
        body: String,
        done: (&str, &str),
    ) -> anyhow::Result<()> {
        self.connection.request(TIMEOUT, method, path, body).await?.success()?;
        self.say(done)
    }

    /// Says what was done to what: `deleted: tea`, or `{"deleted":"tea"}`.
    pub(super) fn say(&self, (how, name): (&str, &str)) -> anyhow::Result<()> {
        show(self.is_json, &json!({how: name}), |_| format!("{how}: {name}\n"))
    }

    /// Creates something or changes the given settings. `name` is the member of the answer that names it.
    pub(super) async fn put(&mut self, path: &str, settings: String, name: &str) -> anyhow::Result<()> {
        let updated = if settings == "{}" { "unchanged" } else { "updated" };
        self.replace(path, settings, (updated, name)).await
    }

    /// The same where what is not given is gone; `updated` is what to say unless it is new.
    pub(super) async fn replace(
        &mut self,
        path: &str,
        body: String,
        (updated, name): (&str, &str),
    ) -> anyhow::Result<()> {
        let answer = self.connection.request(TIMEOUT, Method::PUT, path, body).await?;
        let how = if answer.status.as_u16() == 201 { "created" } else { updated };
        show(self.is_json, &answer.success()?, |made| format!("{how}: {}\n", text(made, name)))
    }

    /// Repeats the request until the answer is final.
    pub(super) async fn retry(&mut self, method: Method, path: &str, body: String) -> anyhow::Result<Answer> {
        self.connection.retry(method, path, body).await
    }

    /// Prints every entry of a list on a line of its own.
    pub(super) async fn list(
        &mut self,
        mut pages: Pages,
        line: impl Fn(&Value) -> String,
    ) -> anyhow::Result<()> {
        while let Some(page) = pages.next(&mut self.connection).await? {
            page.iter().try_for_each(|entry| show(self.is_json, entry, &line))?;
        }
        Ok(())
    }

    /// Prints every entry of a list as a row of a table.
    pub(super) async fn table<const N: usize>(
        &mut self,
        mut pages: Pages,
        mut table: Table<N>,
        row: impl Fn(&Value) -> [String; N],
    ) -> anyhow::Result<()> {
        while let Some(page) = pages.next(&mut self.connection).await? {
            if self.is_json {
                page.iter().try_for_each(print_json)?;
            } else {
                print(table.add(page.iter().map(&row)))?;
            }
        }
        Ok(())
    }
}

/// The path with the given parameters; it may have others.
pub(super) fn with_query<const N: usize>(path: &str, pairs: [(&str, Option<String>); N]) -> String {
    let pairs = pairs.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    let separator = if path.contains('?') { '&' } else { '?' };
    format!("{path}{separator}{query}")
}

/// A segment of a path: everything but letters and digits is escaped.
pub(super) fn escape(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// A JSON object of the given members.
pub(super) fn object<const N: usize>(members: [(&str, Option<Value>); N]) -> String {
    let members = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::from(members.collect::<Map<_, _>>()).to_string()
}

/// Generates an id, so that a request can be repeated.
pub(crate) fn make_id() -> String {
    let mut id = String::new();
    write_uuid_v7(SystemClock::new().now(), &KeyedRandom::new(), &mut id);
    id
}

/// Messages to send: the text of the command line with its id, or each line of standard input.
pub(super) enum Texts {
    Given(Option<(String, Option<String>)>),
    Lines(Lines<BufReader<Stdin>>),
}

impl Texts {
    /// # Errors
    /// One id for all lines of standard input.
    pub(super) fn new(text: Option<String>, id: Option<String>) -> Result<Self, UsageError> {
        match (text.filter(|text| text != "-"), id) {
            (Some(text), id) => Ok(Self::Given(Some((text, id)))),
            (None, Some(_)) => {
                let text = "--id is that of one message, whose text is an argument; each line of standard input gets an \
                            id of its own";
                Err(UsageError(text.to_owned()))
            }
            (None, None) => {
                if std::io::stdin().is_terminal() {
                    notice("each line typed here is sent as a message, until Ctrl-D");
                }
                Ok(Self::Lines(BufReader::new(tokio::io::stdin()).lines()))
            }
        }
    }

    /// The next text and its id, the same for all attempts; `None` at the end.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<(String, String)>> {
        match self {
            Self::Given(given) => Ok(given.take().map(|(text, id)| (text, id.unwrap_or_else(make_id)))),
            Self::Lines(lines) => loop {
                match lines.next_line().await.context("reading standard input")? {
                    Some(line) if line.is_empty() => {}
                    line => return Ok(line.map(|line| (line, make_id()))),
                }
            },
        }
    }
}

/// Longest pause that a server is granted.
const ASKED_MAX: Duration = Duration::from_secs(60);

/// Waits before the next attempt, at least as long as the server asks for.
pub(crate) async fn pause(backoff: &mut Backoff, asked: Duration) {
    tokio::time::sleep(backoff.exact_pause().max(asked.min(ASKED_MAX))).await;
}
