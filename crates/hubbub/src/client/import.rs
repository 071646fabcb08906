//! `hubbub import`: the messages of a file, many at a time, each with its own id, so that repeating is harmless.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use hyper::Method;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use super::connection::{Connection, Server};
use super::csv::{self, Records};
use super::export::COLUMNS;
use super::{print, print_json};
use crate::cli::{FileFormat, ImportArgs};

/// A request is sent when it holds so many messages or bytes.
const BATCH_LINES: usize = 1_000;
const BATCH_BYTES: usize = 1 << 20;
/// How long the server may take for one.
const BATCH_MAX: Duration = Duration::from_secs(120);

/// Attempts in a row of which none brings anything forward, with pauses that double from the first to the last.
const ATTEMPTS: u32 = 8;
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(2);

/// Columns that a server gives anew.
const GIVEN_BY_SERVER: [&str; 2] = ["seq", "receivedAt"];

pub(crate) async fn import(args: ImportArgs) -> anyhow::Result<()> {
    let server = Server::parse(&args.client.server)?;
    let name = args.file.display().to_string();
    let reader: Box<dyn BufRead> = if args.file == Path::new("-") {
        Box::new(BufReader::new(std::io::stdin()))
    } else {
        Box::new(BufReader::new(File::open(&args.file).with_context(|| format!("opening {name}"))?))
    };
    let is_csv = args.file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
    let format = args.format.unwrap_or(if is_csv { FileFormat::Csv } else { FileFormat::Jsonl });
    let mut records = Records::new(reader, format == FileFormat::Csv);
    let columns = match format {
        FileFormat::Csv => Some(read_columns(&mut records).with_context(|| format!("reading {name}"))?),
        FileFormat::Jsonl => None,
    };
    let connection = server.connect().await?;
    let mut import = Import {
        server,
        connection: Some(connection),
        waiting: Vec::new(),
        is_repeated: false,
        bytes: 0,
        stored: 0,
        duplicate: 0,
        refused: 0,
        is_json: args.client.json,
    };
    while let Some((line, record)) = records.next().with_context(|| format!("reading {name}"))? {
        let message = match &columns {
            None => with_id(record, line),
            Some(columns) => match from_csv(columns, &record) {
                Some(message) => with_id(message, line),
                None => {
                    import.refuse(line, "malformed", "quotes or the number of fields are wrong")?;
                    continue;
                }
            },
        };
        import.add(line, message).await?;
    }
    import.send().await?;
    import.report()
}

/// The names in the first record.
fn read_columns(records: &mut Records<Box<dyn BufRead>>) -> anyhow::Result<Vec<String>> {
    let (_, header) = records.next()?.context("it is empty")?;
    let columns = csv::parse(&header).context("the names of the columns are not readable")?;
    for needed in ["roomId", "userId", "message"] {
        if !columns.iter().any(|name| name == needed) {
            bail!("the first line must name the columns, and '{needed}' is not among them");
        }
    }
    Ok(columns)
}

/// The JSON object that a record stands for; an empty field is one that is not there.
fn from_csv(columns: &[String], record: &str) -> Option<String> {
    let fields = csv::parse(record)?;
    (fields.len() == columns.len()).then_some(())?;
    let mut message = Map::new();
    for (name, value) in columns.iter().zip(fields) {
        let is_wanted = COLUMNS.contains(&name.as_str()) && !GIVEN_BY_SERVER.contains(&name.as_str());
        if is_wanted && !value.is_empty() {
            message.insert(name.clone(), value.into());
        }
    }
    Some(Value::Object(message).to_string())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Id {
    message_id: Option<IgnoredAny>,
}

/// Gives a message without an id one that it gets again when the file is imported again. What is no message at all
/// is left for the server to refuse.
fn with_id(message: String, line: u64) -> String {
    if !serde_json::from_str::<Id>(&message).is_ok_and(|id| id.message_id.is_none()) {
        return message;
    }
    let id = format!("import-{line}-{:08x}", crc32c::crc32c(message.as_bytes()));
    match serde_json::from_str(&message) {
        Ok(Value::Object(mut object)) => {
            object.insert("messageId".to_owned(), id.into());
            Value::Object(object).to_string()
        }
        _ => message,
    }
}

struct Import {
    server: Server,
    connection: Option<Connection>,
    /// Messages without an answer, with their lines.
    waiting: Vec<(u64, String)>,
    /// Whether what waits was sent before: what is there already is then taken for our own.
    is_repeated: bool,
    bytes: usize,
    stored: u64,
    duplicate: u64,
    refused: u64,
    is_json: bool,
}

impl Import {
    async fn add(&mut self, line: u64, message: String) -> anyhow::Result<()> {
        if self.bytes + message.len() > BATCH_BYTES {
            self.send().await?;
        }
        self.bytes += message.len();
        self.waiting.push((line, message));
        if self.waiting.len() >= BATCH_LINES { self.send().await } else { Ok(()) }
    }

    /// Sends until everything has an answer that no repetition can better. The server refuses all that follows a
    /// message that it has no room for, so repeating keeps the order.
    async fn send(&mut self) -> anyhow::Result<()> {
        let (mut pause, mut attempts) = (PAUSE_FIRST, 0);
        while let Some((line, _)) = self.waiting.first() {
            let (line, before) = (*line, self.waiting.len());
            let trouble = match self.attempt().await {
                Ok(None) => continue,
                Ok(Some(detail)) => detail,
                Err(error) => format!("{error:#}"),
            };
            self.is_repeated = true;
            eprintln!("line {line}: {trouble}; trying again");
            if self.waiting.len() < before {
                (pause, attempts) = (PAUSE_FIRST, 0);
            }
            attempts += 1;
            if attempts == ATTEMPTS {
                bail!(
                    "line {line} and those behind it were not stored: {trouble}; importing again is harmless"
                );
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_LAST);
        }
        self.bytes = 0;
        self.is_repeated = false;
        Ok(())
    }

    /// One request with everything that waits. What is to be repeated still waits afterwards; the answer says why.
    async fn attempt(&mut self) -> anyhow::Result<Option<String>> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.server.connect().await?,
        };
        let body: String = self.waiting.iter().flat_map(|(_, message)| [message, "\n"]).collect();
        let (status, body) = connection.whole(BATCH_MAX, Method::POST, "/v1/messages", body).await?;
        self.connection = Some(connection);
        let mut answers = body.split(|byte| *byte == b'\n').filter(|answer| !answer.is_empty());
        let (mut again, mut trouble) = (Vec::new(), None);
        for (line, message) in std::mem::take(&mut self.waiting) {
            let answer = answers.next().map(serde_json::from_slice::<Value>);
            let Some(Ok(answer)) = answer.filter(|_| status.is_success()) else {
                trouble.get_or_insert_with(|| format!("the server answered {status}, and not every line"));
                again.push((line, message));
                continue;
            };
            let text = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default();
            let is = |name: &str| answer.get(name).and_then(Value::as_bool).unwrap_or_default();
            match text("code") {
                "" if is("duplicate") && !self.is_repeated => self.duplicate += 1,
                "" => self.stored += 1,
                _ if is("retryable") => {
                    trouble.get_or_insert_with(|| text("detail").to_owned());
                    again.push((line, message));
                }
                code => self.refuse(line, code, text("detail"))?,
            }
        }
        self.waiting = again;
        Ok(trouble)
    }

    /// Says which line was refused and why.
    fn refuse(&mut self, line: u64, code: &str, detail: &str) -> anyhow::Result<()> {
        self.refused += 1;
        if self.is_json {
            return print_json(&json!({"line": line, "code": code, "detail": detail}));
        }
        eprintln!("line {line}: {detail} ({code})");
        Ok(())
    }

    fn report(&self) -> anyhow::Result<()> {
        let Self { stored, duplicate, refused, is_json, .. } = self;
        if *is_json {
            print_json(&json!({"stored": stored, "duplicate": duplicate, "refused": refused}))?;
        } else {
            print(&format!("stored {stored}, there before {duplicate}, refused {refused}\n"))?;
        }
        if *refused > 0 {
            bail!("{refused} lines were refused; nothing of them was stored");
        }
        Ok(())
    }
}
