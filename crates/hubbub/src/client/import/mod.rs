//! `hubbub import`: sends the messages of a file in batches. Each has an id, so that repeating an import is harmless.

mod made_rooms;
mod source;

use std::time::Duration;

use anyhow::{Context, bail};
use hubbub_core::backoff::Backoff;
use hyper::Method;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::connection::{Connection, JSON};
use super::session::pause;
use super::{is_true, print_json, show, text};
use crate::cli::ImportArgs;
use crate::progress::Progress;
use made_rooms::MadeRooms;
use source::Source;

/// Size of a request, in messages and bytes.
const BATCH_LINES: usize = 1_000;
const BATCH_BYTES: usize = 1 << 20;
const BATCH_MAX: Duration = Duration::from_secs(120);

/// Attempts without progress before the import fails, and their pauses.
const ATTEMPTS: u32 = 8;
const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));

pub(crate) async fn import(args: ImportArgs) -> anyhow::Result<()> {
    let name = args.file.display().to_string();
    let progress = source::progress(&args);
    let mut source = Source::open(&args, &progress).with_context(|| format!("reading {name}"))?;
    let mut import = Import {
        connection: args.client.server()?.connect().await?,
        waiting: Vec::new(),
        made: MadeRooms::default(),
        is_repeated: false,
        bytes: 0,
        stored: 0,
        duplicate: 0,
        refused: 0,
        unit: source.unit,
        is_json: args.client.json,
        progress,
    };
    let failure = loop {
        match source.next() {
            Ok(Some((line, Some(message)))) => {
                import.add(line, with_id(message, &args.id_prefix, line)).await?;
            }
            Ok(Some((line, None))) => {
                import.refuse(line, "malformed", "quotes or the number of fields are wrong")?;
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    import.send().await?;
    if let Some(error) = failure {
        import.print()?;
        import.warn();
        return Err(error).with_context(|| {
            format!(
                "reading {name}: only the messages before are imported; importing the whole file again is harmless"
            )
        });
    }
    import.report()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Id {
    message_id: Option<IgnoredAny>,
}

/// Adds an id to a message that has none: the same one whenever the file is imported with this prefix. The server refuses
/// what is not a message.
fn with_id(message: String, prefix: &str, line: u64) -> String {
    if !serde_json::from_str::<Id>(&message).is_ok_and(|id| id.message_id.is_none()) {
        return message;
    }
    let id = format!("{prefix}-{line}-{:08x}", crc32c::crc32c(message.as_bytes()));
    match serde_json::from_str(&message) {
        Ok(Value::Object(mut object)) => {
            object.insert("messageId".to_owned(), id.into());
            Value::Object(object).to_string()
        }
        _ => message,
    }
}

/// A message without an answer.
struct Waiting {
    line: u64,
    /// Its room, if it names one.
    room: Option<String>,
    message: String,
}

/// The room of a message, as the server reads it.
fn room_of(message: &str) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Room {
        room_id: Value,
    }
    match serde_json::from_str::<Room>(message).ok()?.room_id {
        Value::String(room) => Some(room),
        Value::Number(room) => Some(room.to_string()),
        _ => None,
    }
}

struct Import {
    connection: Connection,
    /// Messages without an answer.
    waiting: Vec<Waiting>,
    made: MadeRooms,
    /// Whether the waiting messages were sent before: then duplicates may be of this import.
    is_repeated: bool,
    bytes: usize,
    stored: u64,
    duplicate: u64,
    refused: u64,
    /// Name of a message's position: line or row.
    unit: &'static str,
    is_json: bool,
    progress: Progress,
}

impl Import {
    async fn add(&mut self, line: u64, message: String) -> anyhow::Result<()> {
        if self.bytes + message.len() > BATCH_BYTES {
            self.send().await?;
        }
        self.bytes += message.len();
        let room = room_of(&message);
        self.waiting.push(Waiting { line, room, message });
        if self.waiting.len() >= BATCH_LINES { self.send().await } else { Ok(()) }
    }

    /// Repeats until every message has a final answer. After a message that it cannot accept now, the server refuses all
    /// later ones, so repeating keeps the order.
    async fn send(&mut self) -> anyhow::Result<()> {
        let (mut backoff, mut attempts) = (PAUSES, 0);
        self.made.look(&mut self.connection, &self.waiting).await;
        while let Some(Waiting { line, .. }) = self.waiting.first() {
            let (line, before) = (*line, self.waiting.len());
            let (trouble, asked) = match self.attempt().await {
                Ok(None) => continue,
                Ok(Some(trouble)) => trouble,
                Err(error) => (format!("{error:#}"), Duration::ZERO),
            };
            self.is_repeated = true;
            self.progress.remark(&format!("{} {line}: {trouble}; trying again", self.unit));
            if self.waiting.len() < before {
                backoff.reset();
                attempts = 0;
            }
            attempts += 1;
            if attempts == ATTEMPTS {
                bail!(
                    "{} {line} and those behind it were not stored: {trouble}; importing again is harmless",
                    self.unit
                );
            }
            pause(&mut backoff, asked).await;
        }
        self.bytes = 0;
        self.is_repeated = false;
        Ok(())
    }

    /// Sends all waiting messages in one request. Those to be repeated keep waiting; returns why, and how long the server asks
    /// to wait.
    async fn attempt(&mut self) -> anyhow::Result<Option<(String, Duration)>> {
        let body: String = self.waiting.iter().flat_map(|waiting| [waiting.message.as_str(), "\n"]).collect();
        let answer = self.connection.whole(BATCH_MAX, Method::POST, "/v1/messages", JSON, body).await?;
        let status = answer.status;
        let asked = answer.clone().success().map_or_else(|refused| refused.retry_after, |_| Duration::ZERO);
        let mut answers = answer.body.split(|byte| *byte == b'\n').filter(|answer| !answer.is_empty());
        let (mut again, mut trouble) = (Vec::new(), None);
        for waiting in std::mem::take(&mut self.waiting) {
            let answer = answers.next().map(serde_json::from_slice::<Value>);
            let Some(Ok(answer)) = answer.filter(|_| status.is_success()) else {
                trouble.get_or_insert_with(|| format!("the server answered {status}, and not every line"));
                again.push(waiting);
                continue;
            };
            match text(&answer, "code") {
                "" if is_true(&answer, "duplicate") && !self.is_repeated => self.duplicate += 1,
                "" => {
                    self.stored += 1;
                    self.made.note(waiting.room.as_deref());
                }
                _ if is_true(&answer, "retryable") => {
                    trouble.get_or_insert_with(|| text(&answer, "detail").to_owned());
                    again.push(waiting);
                }
                code => self.refuse(waiting.line, code, text(&answer, "detail"))?,
            }
        }
        self.waiting = again;
        Ok(trouble.map(|trouble| (trouble, asked)))
    }

    /// Reports a refused line and the reason.
    fn refuse(&mut self, line: u64, code: &str, detail: &str) -> anyhow::Result<()> {
        self.refused += 1;
        if self.is_json {
            return print_json(&json!({(self.unit): line, "code": code, "detail": detail}));
        }
        self.progress.remark(&format!("{} {line}: {detail} ({code})", self.unit));
        Ok(())
    }

    fn print(&self) -> anyhow::Result<()> {
        let Self { stored, duplicate, refused, .. } = self;
        self.progress.finish();
        let counts = json!({"stored": stored, "duplicate": duplicate, "refused": refused});
        show(self.is_json, &counts, |_| {
            format!("stored {stored}, there before {duplicate}, refused {refused}\n")
        })
    }

    /// Says which rooms are open now.
    fn warn(&self) {
        if let Some(warning) = self.made.warning() {
            self.progress.remark(&warning);
        }
    }

    fn report(&self) -> anyhow::Result<()> {
        self.print()?;
        self.warn();
        if self.refused > 0 {
            bail!("{} {}s were refused; nothing of them was stored", self.refused, self.unit);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use hubbub_core::id::is_valid_id;

    use super::*;
    use crate::cli::{Cli, Command};

    fn id(message: &str, prefix: &str, line: u64) -> String {
        let message: Value = serde_json::from_str(&with_id(message.to_owned(), prefix, line)).unwrap();
        text(&message, "messageId").to_owned()
    }

    #[test]
    fn equal_lines_of_two_files_have_ids_of_their_own() {
        const LINE: &str = r#"{"roomId":"r","userId":"ada","message":"hello"}"#;
        assert_eq!(id(LINE, "import", 7), id(LINE, "import", 7), "an import can be repeated");
        assert!(id(LINE, "import", 7).starts_with("import-7-"));
        assert_ne!(id(LINE, "monday", 7), id(LINE, "tuesday", 7));
        assert_eq!(id(r#"{"messageId":"own"}"#, "monday", 7), "own");
    }

    #[test]
    fn rooms_are_read_as_the_server_reads_them() {
        for (message, room) in [
            (r#"{"roomId":"r","userId":"ada"}"#, Some("r")),
            (r#"{"roomId":7}"#, Some("7")),
            (r#"{"roomId":null}"#, None),
            (r#"{"userId":"ada"}"#, None),
            ("[]", None),
        ] {
            assert_eq!(room_of(message).as_deref(), room, "{message}");
        }
    }

    #[test]
    fn a_prefix_makes_valid_ids() {
        let parse = |prefix: &str| {
            let parsed = Cli::try_parse_from(["hubbub", "import", "-", "--id-prefix", prefix])?;
            let Command::Import(args) = parsed.command else { unreachable!("it is an import") };
            Ok::<_, clap::Error>(args.id_prefix)
        };
        for prefix in ["a", "2026-11_logs.1:x@y", &"x".repeat(34)] {
            let id = id("{}", &parse(prefix).unwrap(), u64::MAX);
            assert!(is_valid_id(&id), "{id}");
        }
        for prefix in ["", "a b", "ä", "a/b", &"x".repeat(35)] {
            let refused = parse(prefix).unwrap_err().to_string();
            assert!(refused.contains("1 to 34 characters"), "{refused}");
        }
        let parsed = Cli::try_parse_from(["hubbub", "import", "-"]).unwrap();
        assert!(matches!(parsed.command, Command::Import(args) if args.id_prefix == "import"));
    }
}
